"""Finds what `@name` in a prompt refers to: a variable, a cell, an error, or a file in the notebook's folder."""

import builtins
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from agentmagic.errors import UsageError
from agentmagic.prompt.attachments import SCHEMA, Attacher, Attachment
from agentmagic.session import Session
from agentmagic.text import close_names
from agentmagic.values import frames

_CELL = re.compile(r"(?i)(in|out)\[(\d{1,9})\]")


@dataclass(frozen=True, slots=True)
class Attachables:
    """The variables of a notebook and the files in its folder, which `@name` in a prompt can attach.

    Names in `hidden` are never attached.
    """

    variables: Mapping[str, Any]
    attacher: Attacher
    hidden: frozenset[str] = frozenset()
    folder: Path = field(default_factory=Path.cwd)

    def names(self) -> list[str]:
        """Return the variables to suggest after `@`: the notebook's data, functions and classes, without imports."""
        # A function or class is the notebook's own if its module is `__main__`. The loop uses a copy of the variables,
        # because tools in other threads may bind variables meanwhile.
        values = ((name, one) for name, one in tuple(self.variables.items()) if self.has(name))
        return [name for name, one in values if not callable(one) or getattr(one, "__module__", "") == "__main__"]

    def has(self, name: str) -> bool:
        """Return whether a variable of this name exists and can be attached."""
        if name.startswith("_") or name in self.hidden or name not in self.variables:
            return False
        # `get`, not `[name]`: a chat panel calls this in another thread, and a cell may just have deleted the variable.
        return not isinstance(self.variables.get(name), (ModuleType, Session))

    def close(self, name: str) -> str:
        """Return the name of a variable that is spelled almost like `name`, or "" if none is or `name` is bound."""
        if name in self.variables:  # for example a session, which a prompt may address: "@agent, ..."
            return ""
        return next(iter(close_names(name, self.names(), cutoff=0.75)), "")

    def is_free(self, word: str) -> bool:
        """Return whether a word could name a new variable: it is neither bound nor a builtin such as `property`."""
        return word.isidentifier() and word not in self.variables and not hasattr(builtins, word)

    def find(self, word: str, spec: str) -> Attachment | None:
        """Return the attachment of `@word` or `@word:spec`, or None if the word names nothing.

        `spec` limits what is attached, for example to a number of rows.
        Raises UsageError if the word names something that cannot be attached.
        """
        reference = f"@{word}:{spec}" if spec else f"@{word}"
        if match := _CELL.fullmatch(word):
            return self._cell_attachment(reference, match[1].lower() == "in", int(match[2]))
        if self.has(word):
            value = self.variables[word]
            rows = int(spec) if spec.isdecimal() and frames.is_frame(value) else None
            only = spec == SCHEMA
            return self.attacher.attach(reference, word, value, rows=rows, only_schema=only, uri=f"variable:{word}")
        if word == "error":
            last = cast("BaseException | None", getattr(sys, "last_value", None))
            if last is None:
                raise UsageError("no cell has failed yet")
            return self.attacher.attach(reference, word, last, uri="error:last")
        path = self._file(word)
        return self.attacher.file(reference, path, word) if path is not None else None

    def _cell_attachment(self, reference: str, is_input: bool, number: int) -> Attachment:
        values: Any = self.variables.get("In" if is_input else "Out", {})
        numbers = range(1, len(values)) if is_input else cast("Mapping[int, Any]", values)
        name = reference.removeprefix("@").partition(":")[0]
        if number not in numbers:
            raise UsageError(f"cell {number} {'was not run' if is_input else 'has left no value'}")
        if is_input:
            return self.attacher.output(reference, name, values[number], "code")
        return self.attacher.attach(reference, name, values[number], uri=f"cell:{name}")

    def _file(self, word: str) -> Path | None:
        """Return the file of a path in the notebook's folder, or None if no such file exists.

        Raises UsageError if the file is hidden or lies outside of the folder.
        """
        folder = self.folder.resolve()
        try:
            path = (folder / word).expanduser().resolve()
            if not path.is_file():
                return None
        except (OSError, RuntimeError, ValueError):  # the operating system rejects the path
            return None
        if not path.is_relative_to(folder):
            raise UsageError("it lies outside of the notebook's folder")
        if any(one.startswith(".") for one in path.relative_to(folder).parts):
            raise UsageError("hidden files, which often hold keys, are not attached")
        return path
