"""The real outside agents, with a model on loopback: Claude Code, Codex and opencode, without a login.

AGENTMAGIC_AGENTS names the folder in which npm has installed them (.ci/run does). What a model writes at an ordinary
speed comes in pieces, so the scenes in which an agent asks are played quickly and slowly.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentmagic import Agent, Session, tool
from agentmagic.acp.agents import KNOWN
from agentmagic.errors import AgentMagicError
from agentmagic.events import ApprovalAsked, Approve, Deny, ToolFinished, fold
from agentmagic.messages import ToolCall, ToolResult
from agentmagic.run import Run
from tests.acp.loopback import Loopback, loopback_model
from tests.acp.sessions import always, no, of_kind, started, texts_in

pytestmark = [pytest.mark.slow, pytest.mark.posix]

FOLDER = Path(os.environ.get("AGENTMAGIC_AGENTS") or "nowhere") / "node_modules" / ".bin"
NPM = Path(os.environ.get("AGENTMAGIC_NPM") or "nowhere") / "node_modules" / ".bin"  # Claude Code needs its Node.js
PATIENCE = 60
"""How long a turn may take, in seconds; it takes 2."""
SLOW = 0.2
"""Seconds between the pieces of a call's input, as a model of an ordinary speed needs them."""
AT_BOTH_SPEEDS = pytest.mark.parametrize("pause", [0.0, SLOW], ids=["quick", "slow"], indirect=True)

CODEX = """model = "gpt-5.1"
model_provider = "loop"
[model_providers.loop]
name = "loop"
base_url = "http://127.0.0.1:PORT/v1"
wire_api = "responses"
requires_openai_auth = false
"""
CLAUDE = {
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:PORT",
    "ANTHROPIC_AUTH_TOKEN": "made-up",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}
LIMIT = {"context": 100_000, "output": 4_000}
OPENCODE = {
    "model": "loop/m",
    "small_model": "loop/m",
    "autoupdate": False,
    "permission": {"bash": "ask", "edit": "ask"},
    "provider": {
        "loop": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "loop",
            "options": {"baseURL": "http://127.0.0.1:PORT/v1", "apiKey": "made-up"},
            "models": {"m": {"name": "m", "tool_call": True, "limit": LIMIT}},
        }
    },
}
FILES = {
    ".claude/settings.json": json.dumps({"env": CLAUDE}),
    ".codex/config.toml": CODEX,
    ".config/opencode/opencode.json": json.dumps(OPENCODE),
}
"""What each agent reads in the home folder, with PORT for the port of the model."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(ask=True)
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@dataclass
class World:
    """A real agent in a session, the model behind it, and the folder in which it works."""

    name: str
    session: Session
    model: Loopback
    folder: Path
    _files: int = field(default=0)

    def file(self) -> Path:
        """Return the path of a file that is not there."""
        self._files += 1
        return self.folder / f"file{self._files}"

    def command(self, words: str) -> str:
        """Return the line of a prompt for a shell command, about which the agent asks."""
        given: dict[str, Any] = {"command": words, "description": "A command"}
        match self.name:
            case "codex":  # it runs in its sandbox what needs no more
                more = {"sandbox_permissions": "require_escalated", "justification": "It is needed."}
                return f"!call exec_command {json.dumps({'cmd': words, **more})}"
            case "opencode":
                return f"!call bash {json.dumps(given)}"
            case _:
                return f"!call Bash {json.dumps(given)}"

    def write(self, file: Path, text: str) -> str:
        """Return the line of a prompt for a new file, about which the agent asks."""
        match self.name:
            case "codex":
                lines = ["apply_patch <<'EOF'", "*** Begin Patch", f"*** Add File: {file.name}", f"+{text}"]
                words = "\n".join([*lines, "*** End Patch", "EOF"])
                return f"!call exec_command {json.dumps({'cmd': words})}"
            case "opencode":
                return f"!call write {json.dumps({'filePath': str(file), 'content': text})}"
            case _:
                return f"!call Write {json.dumps({'file_path': str(file), 'content': text})}"

    def read(self, file: Path) -> str:
        """Return the line of a prompt for reading, about which the agent does not ask."""
        match self.name:
            case "codex":
                return f"!call exec_command {json.dumps({'cmd': f'cat {file.name}'})}"
            case "opencode":
                return f"!call read {json.dumps({'filePath': str(file)})}"
            case _:
                return f"!call Read {json.dumps({'file_path': str(file)})}"

    def play(self, *lines: str, answer: Callable[[ApprovalAsked], Any] | None = None, **options: Any) -> Run:
        """Play a turn to its end; without a function that answers, its questions are approved."""
        run = started(self.session, "\n".join(lines), answer, **options)
        try:
            run.settled.result(PATIENCE)
        except AgentMagicError:  # such as the end of codex, whose no ends the turn
            pass
        except TimeoutError:
            run.cancel()
            raise
        return run


def write_home(home: Path, port: int) -> None:
    for name, text in FILES.items():
        file = home / name
        file.parent.mkdir(parents=True)
        file.write_text(text.replace("PORT", str(port)), encoding="utf-8")


@pytest.fixture(scope="module", params=["claude", "codex", "opencode"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return an agent that keeps running for all scenes."""
    name = request.param
    row = KNOWN[name]
    program = shutil.which(row.command, path=FOLDER)
    if program is None:
        pytest.skip(f"AGENTMAGIC_AGENTS names no folder with {row.command}")
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work").resolve()
    (folder / ".git").mkdir()  # the agents take it for a project
    with pytest.MonkeyPatch.context() as patch, loopback_model() as model:
        write_home(home, model.port)
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", os.pathsep.join([str(FOLDER), str(NPM), os.environ["PATH"]]))
        for variable in ("IS_SANDBOX", "XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
            patch.delenv(variable, raising=False)
        patch.chdir(folder)
        session = Session(Agent(f"acp:{name}", tools=[add, pay]))
        yield World(name, session, model, folder)
        session.close()


@pytest.fixture(autouse=True)
def pause(request: pytest.FixtureRequest, world: World) -> Iterator[float]:
    """Set the speed of the model: that of the parameter, or the highest."""
    world.model.pause = getattr(request, "param", 0.0)
    yield world.model.pause
    world.model.pause = 0.0


# -- what a scene is asked for ----------------------------------------------------------------------------------------


def calls_of(run: Run) -> list[ToolCall]:
    return [call for message in fold(run.events) for call in message.calls]


def results_of(run: Run, name: str) -> list[ToolResult]:
    """Return the results of our tool, also of calls inside a call of the agent."""
    return [event.result for event in of_kind(run, ToolFinished) if event.result.name == name]


def answer_of(run: Run) -> str:
    return fold(run.events)[-1].text.strip()


def questions_of(run: Run, name: str = "") -> list[ApprovalAsked]:
    return [question for question in of_kind(run, ApprovalAsked) if name in ("", question.call.name)]


def shows(question: ApprovalAsked, words: str) -> bool:
    return words in texts_in(dict(question.call.arguments))


# -- its own commands -------------------------------------------------------------------------------------------------


@AT_BOTH_SPEEDS
def test_an_approved_command_is_the_one_on_the_card_and_in_the_history(world: World) -> None:
    words = f"touch {world.file()}"
    run = world.play(world.command(words))
    (question,) = questions_of(run)
    assert shows(question, words)
    assert Path(words.split()[1]).exists()
    assert [dict(call.arguments) for call in calls_of(run)] == [dict(question.call.arguments)]


@AT_BOTH_SPEEDS
def test_a_denied_command_does_not_run(world: World) -> None:
    file = world.file()
    run = world.play(world.command(f"touch {file}"), answer=no)
    assert [shows(question, f"touch {file}") for question in questions_of(run)] == [True]
    assert not file.exists()


@pytest.mark.parametrize("words", ["# agentmagic add", "; echo mcp__agentmagic__add", "&& true add"])
def test_a_command_that_names_our_tool_is_asked_about(world: World, words: str) -> None:
    file = world.file()
    run = world.play(world.command(f"touch {file} {words}"), answer=no)
    assert [shows(question, f"touch {file} {words}") for question in questions_of(run)] == [True]
    assert not file.exists()
    assert "add" not in [call.name for call in calls_of(run)]


def test_a_long_command_is_shown_whole(world: World) -> None:
    words = "\n".join([f"touch {world.file()}", *[f"echo line {number} 'ü\u202e' >/dev/null" for number in range(200)]])
    run = world.play(world.command(words))
    assert [shows(question, words) for question in questions_of(run)] == [True]


def test_each_command_of_a_turn_has_its_own_card(world: World) -> None:
    files = [world.file(), world.file()]
    run = world.play(*[world.command(f"touch {file}") for file in files])
    shown = [[shows(question, f"touch {file}") for file in files] for question in questions_of(run)]
    assert shown == [[True, False], [False, True]]
    assert [file.exists() for file in files] == [True, True]


def test_a_no_ends_only_what_it_names(world: World) -> None:
    files = [world.file(), world.file()]

    def second(question: ApprovalAsked) -> Any:
        return Approve(question.id) if shows(question, f"touch {files[1]}") else Deny(question.id)

    world.play(*[world.command(f"touch {file}") for file in files], answer=second)
    ends = world.name != "claude"  # after a no, the others end their turn
    assert [file.exists() for file in files] == [False, not ends]


def test_always_covers_the_very_same_command_alone(world: World) -> None:
    file = world.file()
    run = world.play(world.command(f"touch {file}"), answer=always)
    assert len(questions_of(run)) == 1
    other = world.file()
    run = world.play(world.command(f"touch {other}"), answer=no)
    assert [shows(question, f"touch {other}") for question in questions_of(run)] == [True]
    assert not other.exists()


def test_without_a_user_nothing_runs_that_it_asks_about(world: World) -> None:
    file = world.file()
    world.session.start(world.command(f"touch {file}")).settled.exception(PATIENCE)
    assert not file.exists()


def test_under_a_policy_that_denies_nothing_runs(world: World) -> None:
    file, agent = world.file(), world.session.agent
    world.session.agent = Agent(f"acp:{world.name}", tools=[add, pay], permission="deny")
    try:
        run = world.play(world.command(f"touch {file} # agentmagic add"))
    finally:
        world.session.agent = agent
    assert questions_of(run) == []
    assert not file.exists()


# -- files ------------------------------------------------------------------------------------------------------------


@AT_BOTH_SPEEDS
def test_an_approved_edit_shows_what_it_writes(world: World) -> None:
    file = world.file()
    run = world.play(world.write(file, "a new text"))
    (question,) = questions_of(run)
    shown = "\n".join(texts_in(dict(question.call.arguments)))
    assert "a new text" in shown
    assert file.name in shown
    assert file.read_text(encoding="utf-8").strip() == "a new text"


def test_a_denied_edit_writes_nothing(world: World) -> None:
    file = world.file()
    run = world.play(world.write(file, "a new text"), answer=no)
    assert len(questions_of(run)) == 1
    assert not file.exists()


def test_what_it_reads_without_asking_is_told(world: World) -> None:
    file = world.file()
    file.write_text("the text of the file\n", encoding="utf-8")
    run = world.play(world.read(file))
    assert questions_of(run) == []
    assert [call.name for call in calls_of(run)] == ["read"]


# -- our tools --------------------------------------------------------------------------------------------------------

ASKS_FIRST = ("codex",)
"""Agents that ask about our tools themselves, and cannot be told that they need not: these have two cards."""


@AT_BOTH_SPEEDS
def test_our_tool_runs_as_itself(world: World) -> None:
    run = world.play('!call add {"a": 2, "b": 3}')
    assert [result.text for result in results_of(run, "add")] == ["5"]
    assert len(questions_of(run)) == (world.name in ASKS_FIRST)


@AT_BOTH_SPEEDS
def test_our_tool_that_asks_has_our_card(world: World) -> None:
    run = world.play('!call pay {"n": 7}')
    assert [result.text for result in results_of(run, "pay")] == ["paid 7"]
    assert [dict(question.call.arguments) for question in questions_of(run, "pay")] == [{"n": 7}]
    assert len(questions_of(run)) == 1 + (world.name in ASKS_FIRST)


def test_our_tool_is_not_run_after_a_no(world: World) -> None:
    run = world.play('!call pay {"n": 7}', answer=no)
    assert len(questions_of(run)) == 1
    assert "ok" not in [result.status for result in results_of(run, "pay")]


def test_our_tool_is_not_asked_about_after_an_always(world: World) -> None:
    def ours(question: ApprovalAsked) -> Any:
        return Approve(question.id, always=question.call.name == "pay")

    first = world.play('!call pay {"n": 1}', answer=ours)
    second = world.play('!call pay {"n": 2}', answer=ours)
    assert [len(questions_of(run, "pay")) for run in (first, second)] == [1, 0]
    assert [result.text for result in results_of(second, "pay")] == ["paid 2"]


# -- turns ------------------------------------------------------------------------------------------------------------


def test_each_answer_lands_in_its_own_turn(world: World) -> None:
    answers = [f"The total is {number} euros." for number in range(3)]
    assert [answer_of(world.play(f"!say {words}")).rpartition("\n")[2] for words in answers] == answers


def test_a_stop_while_a_question_is_open_ends_the_turn(world: World) -> None:
    file = world.file()

    def stop(question: ApprovalAsked) -> Any:
        run = world.session.running
        assert run is not None
        run.cancel()
        return Deny(question.id)

    run = world.play(world.command(f"touch {file}"), answer=stop)
    assert run.done
    assert not file.exists()
    assert "after the stop" in answer_of(world.play("!say after the stop"))


def test_a_stop_while_the_model_writes_ends_the_turn(world: World) -> None:
    file = world.file()
    world.model.pause = 2.0
    world.model.asked.clear()
    run = started(world.session, world.command(f"touch {file}"))
    assert world.model.asked.wait(PATIENCE)
    run.cancel()
    run.settled.exception(10)
    world.model.pause = 0.0
    assert questions_of(run) == []
    assert "after the stop" in answer_of(world.play("!say after the stop"))
    assert not file.exists()
