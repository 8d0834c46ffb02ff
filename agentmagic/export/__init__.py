"""Exports a conversation to read, send or run: as Markdown, HTML, JSON, messages for a provider, or a notebook.

Each function accepts turns or messages and returns text or plain JSON; only `save` writes to the disk. Secrets are
blanked in every format.
"""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentmagic.errors import UsageError
from agentmagic.export.cells import to_notebook
from agentmagic.export.data import to_gemini, to_json, to_openai, to_responses, write
from agentmagic.export.document import to_markdown
from agentmagic.export.page import to_html
from agentmagic.history.history import Turn
from agentmagic.plain_files import write_failure
from agentmagic.platforms import move_over
from agentmagic.settings import file_of

__all__ = ["save", "to_gemini", "to_html", "to_json", "to_markdown", "to_notebook", "to_openai", "to_responses"]

FORMS = (".md", ".html", ".ipynb", ".openai.json", ".responses.json", ".gemini.json", ".json")
"""Endings of file names. The first ending that matches decides the format."""
_MESSAGES = {".openai.json": to_openai, ".responses.json": to_responses, ".gemini.json": to_gemini}
"""The formats that are lists of messages."""
_TEXTS = {".md": to_markdown, ".html": to_html, ".json": to_json}
"""The formats that are one text."""


def save(
    turns: Iterable[Turn], path: str | os.PathLike[str], *, tools: Iterable[Any] = (), overwrite: bool = False
) -> Path:
    """Write turns to a file, in the format that matches its name, and return the path.

    `.md`, `.html`, `.json` and `.ipynb` files get the output of `to_markdown`, `to_html`, `to_json` and `to_notebook`.
    Only `to_notebook` uses `tools`.
    `.openai.json`, `.responses.json` and `.gemini.json` files have lists of messages for these APIs. An existing file
    is replaced only if `overwrite` is True, and only by a complete file. Missing folders are created.

    Raises UsageError if the name has none of these endings, or if the file cannot be written.
    """
    target = file_of(path)
    form = form_of(target)
    try:
        if target.exists() and not overwrite:
            raise UsageError(f"{target} is there already. Choose another name, or replace it with overwrite=True.")
        text = _render(form, tuple(turns), tools)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, text)
    except OSError as error:
        raise _write_error(target, error) from error
    return target


def form_of(target: Path) -> str:
    """Return the ending of a file name, one of FORMS. Raises UsageError for any other ending."""
    form = next((form for form in FORMS if target.name.lower().endswith(form)), None)
    if form is None:
        message = f"The name {target.name!r} does not say what to write. Let it end in one of {', '.join(FORMS)}."
        raise UsageError(message)
    return form


def _render(form: str, turns: tuple[Turn, ...], tools: Iterable[Any]) -> str:
    if form in _MESSAGES:
        return write(_MESSAGES[form]([message for turn in turns if not turn.unsent for message in turn.messages]))
    if form == ".ipynb":
        return write(to_notebook(turns, tools))
    return _TEXTS[form](turns)


def replace_file(target: Path, text: str) -> None:
    """Write a temporary file next to the target, then rename it to the target, so that no reader sees half a file."""
    beside = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with beside.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        move_over(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def _write_error(target: Path, error: OSError) -> UsageError:
    parent_is_file = target.parent.exists() and not target.parent.is_dir()
    advice = "Choose another place."
    why = f"{target.parent} is no folder. {advice}" if parent_is_file else write_failure(error, advice)
    return UsageError(f"{target} cannot be written: {why}")
