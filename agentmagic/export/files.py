"""Exports on disk: the form by the file's name, whole or not at all."""

import os
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentmagic.errors import UsageError
from agentmagic.export.cells import to_notebook
from agentmagic.export.data import to_gemini, to_json, to_openai, to_responses, write
from agentmagic.export.document import to_markdown
from agentmagic.history.history import Turn
from agentmagic.paths import file_of

FORMS = (".md", ".ipynb", ".openai.json", ".responses.json", ".gemini.json", ".json")
"""How the name of a file ends; the first that fits is taken."""


def save(
    turns: Iterable[Turn], path: str | os.PathLike[str], *, tools: Iterable[Any] = (), overwrite: bool = False
) -> Path:
    """Write turns to a file in the form that its name asks for, and return its path.

    `.md`, `.json` and `.ipynb` are what `to_markdown`, `to_json` and `to_notebook` make, the last with
    `tools`; `.openai.json`, `.responses.json` and `.gemini.json` are lists of messages. A file that is there
    is replaced only with `overwrite`, and only by a whole one; folders that are missing are made.

    Raises UsageError where the name says no form or the file cannot be written.
    """
    target = file_of(path)
    form = form_of(target)
    with _told(target):
        if target.exists() and not overwrite:
            message = f"{target} is there already. Choose another name, or replace it with overwrite=True."
            raise UsageError(message)
        text = _written(form, tuple(turns), tools)
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, text)
    return target


def form_of(target: Path) -> str:
    """Return the one of FORMS that the name of a file asks for; raises UsageError where it asks for none."""
    form = next((form for form in FORMS if target.name.lower().endswith(form)), None)
    if form is None:
        message = f"The name {target.name!r} does not say what to write. Let it end in one of {', '.join(FORMS)}."
        raise UsageError(message)
    return form


def _written(form: str, turns: tuple[Turn, ...], tools: Iterable[Any]) -> str:
    messages = [message for turn in turns for message in turn.messages]
    match form:
        case ".md":
            return to_markdown(turns)
        case ".ipynb":
            return write(to_notebook(turns, tools))
        case ".openai.json":
            return write(to_openai(messages))
        case ".responses.json":
            return write(to_responses(messages))
        case ".gemini.json":
            return write(to_gemini(messages))
        case _:
            return to_json(turns)


def _replace(target: Path, text: str) -> None:
    """Write a file beside its place and move it there, so that nobody sees half of it."""
    beside = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with beside.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _told(target: Path) -> Generator[None]:
    """Say in a sentence what keeps a file from being written."""
    try:
        yield
    except OSError as error:
        taken = target.parent.exists() and not target.parent.is_dir()
        why = f"{target.parent} is no folder" if taken else error.strerror
        message = f"{target} cannot be written: {why}. Choose another place."
        raise UsageError(message) from error
