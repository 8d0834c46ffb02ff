"""The question whether the user approves the project's rules, skills and commands.

It shows the whole text of each file, and what has changed in it since the last approval.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff

from agentmagic.approval_file import ApprovalFile
from agentmagic.context.project_files import ProjectFile
from agentmagic.text import join_names, plural

LONGEST_QUESTION = 65_536
"""Most characters of files shown in one question. The user is asked about the other files in the next turn."""
YES, NO = "Use them", "Do not use them"

QUESTION = (
    "This project has {which} the model how to work: {names}. Read them, and use them only if you trust them: they may "
    "come from a download. Your answer is kept for these texts, and you are asked again if they change.{rest}"
)
_WHAT = {
    "rules": "rules, sent with every request",
    "skill": "a skill, sent when the model asks for it",
    "command": "a command, sent when you type /{name}",
}


def approved_texts(store: ApprovalFile) -> Mapping[str, str]:
    """Return the texts that the user approved, by the paths of their files."""
    return {str(one.get("file")): str(one.get("text", "")) for one in store.read().values()}


def question_about(files: Sequence[ProjectFile], before: Mapping[str, str]) -> tuple[str, str, list[ProjectFile]]:
    """Return a question about approval, the text to show with it, and the files that the question covers.

    It covers as many of `files` as can be shown completely. `before` has the texts approved earlier, by path.
    """
    shown_files: list[ProjectFile] = []
    parts: list[str] = []
    room = LONGEST_QUESTION
    for file in files:
        part = file_text(file, before)
        if parts and len(part) > room:
            break
        parts.append(part)
        shown_files.append(file)
        room -= len(part)
    remaining = len(files) - len(shown_files)
    question = QUESTION.format(
        which="a file that tells" if len(shown_files) == 1 else f"{len(shown_files)} files that tell",
        names=join_names([f"{one.file}{' (changed)' if before.get(str(one.path)) else ''}" for one in shown_files]),
        rest=f" {plural(remaining, 'more file')} will be asked about later." if remaining else "",
    )
    return question, "\n\n".join(parts), shown_files


def file_text(file: ProjectFile, before: Mapping[str, str]) -> str:
    """Return a file as shown to the user: its path and purpose, changes since the last approval, and the whole text."""
    text = file.text
    changes = _changes(before.get(str(file.path), ""), text)
    purpose = _WHAT[file.kind].format(name=file.name)
    lines = [
        f"{file.file} ({purpose})",
        *changes,
        *(f"| {line}" for line in text.rstrip("\n").split("\n")),
    ]
    if file.others:
        lines += ["Files beside it. The model can read them, and they run only as code that you are asked about:"]
        lines += [f"| {name} ({size:,} bytes)" for name, size, _ in file.others]
    return "\n".join(lines)


def _changes(before: str, text: str) -> Iterator[str]:
    if not before:
        return
    if before == text:
        yield "It has changed since you approved it: a file beside it is another one."
        return
    yield "It has changed since you approved it:"
    for line in list(unified_diff(before.split("\n"), text.split("\n"), n=0, lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield f"{line[0]} {line[1:]}"
    yield "All of it, as it is now:"


def is_yes(answer: str | None) -> bool:
    """Return whether the user's answer, which was typed or is the label of a button, means yes."""
    return (answer or "").strip().lower() in (YES.lower(), "y", "yes")
