"""What the user is shown of a project's files before they are used: all of their text, and what has changed in it."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff

from agentmagic.approval_file import ApprovalFile
from agentmagic.context.project_files import ProjectFile
from agentmagic.secrets import redact
from agentmagic.text import counted

LONGEST_QUESTION = 65_536
"""Characters of files in one question. Files beyond it are asked about in the next turn."""
YES, NO = "Use them", "Do not use them"

_WHAT = {
    "rules": "rules, sent with every request",
    "skill": "a skill, sent when the model asks for it",
    "command": "a command, sent when you type /{name}",
}


def question_about(files: Sequence[ProjectFile], store: ApprovalFile) -> tuple[str, list[ProjectFile]]:
    """Return a question about as many of the files as one can show in whole, and these files."""
    shown: list[ProjectFile] = []
    parts: list[str] = []
    room = LONGEST_QUESTION
    for file in files:
        part = file_shown(file, store)
        if parts and len(part) > room:
            break
        parts.append(part)
        shown.append(file)
        room -= len(part)
    which = "a file that tells" if len(shown) == 1 else f"{len(shown)} files that tell"
    rest = (
        f"\n\n{counted(len(files) - len(shown), 'more file')} will be asked about later."
        if len(files) > len(shown)
        else ""
    )
    head = (
        f"This project has {which} the model how to work. Use what you trust: it may come from a download. Your answer "
        "is kept for these texts, and you are asked again if they change."
    )
    return "\n\n".join([head, *parts]) + rest, shown


def file_shown(file: ProjectFile, store: ApprovalFile) -> str:
    """Return a file as the user judges it: what it is, what has changed since it was approved, all of its text."""
    before, text = str(store.entry_before({"file": str(file.path)}).get("text", "")), redact(file.text)
    what = _WHAT[file.kind].format(name=file.name)
    lines = [f"{file.file} ({what})", *_changes(before, text), *(f"| {line}" for line in text.rstrip("\n").split("\n"))]
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
    """Return whether an answer, which may be typed, is a yes."""
    return (answer or "").strip().lower() in (YES.lower(), "y", "yes")
