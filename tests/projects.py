"""What the tests of a project's rules, skills and commands share."""

from pathlib import Path

import pytest

from agentmagic import Agent, Session
from agentmagic.context import rules
from agentmagic.events import QuestionAsked, Reply
from agentmagic.providers.scripted import ScriptedModel

SKILL = "---\nname: {name}\ndescription: {about}\n---\nUse scipy.\n"


class Clone:
    """A repository that the user has just cloned: `folder` is that of its notebook, `root` its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "lessons"
        (root / ".git").mkdir(parents=True)
        self.folder.mkdir()

    def write(self, file: str, text: str | bytes) -> Path:
        place = self.root / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    def skill(self, name: str = "stats", about: str = "How to test means.", **files: str) -> None:
        self.write(f".agents/skills/{name}/SKILL.md", SKILL.format(name=name, about=about))
        for file, text in files.items():
            self.write(f".agents/skills/{name}/{file}.py", text)

    def approve(self) -> None:
        """Do as `%agent rules approve` does."""
        rules.report(rules.project_here(rules=True), approve=True)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone whose notebook runs here, on a machine where nobody has approved anything."""
    made = Clone(tmp_path / "clone")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(made.folder)
    monkeypatch.setattr(rules, "_refused_keys", set())
    return made


def session(*answers, **options) -> tuple[Session, ScriptedModel]:
    """A session whose model remembers what it was asked."""
    model = ScriptedModel(list(answers) or ["Hello."] * 5)
    return Session(Agent(model, **options)), model


def ask(own: Session, answer: str | None, prompt: str = "Hello.", **options):
    """Run a turn, answer the question about the project's files, and return the result with the questions."""
    asked: list[QuestionAsked] = []
    run = own.start(prompt, attended=answer is not None, **options)

    def hear(event):
        if isinstance(event, QuestionAsked):
            asked.append(event)
            run.send(Reply(event.id, answer or ""))

    run.listen(hear)
    return run.wait(), asked
