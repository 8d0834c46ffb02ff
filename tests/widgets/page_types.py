"""The types of what travels between kernel and page, for the page: `python -m tests.widgets.page_types` writes them."""

import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, SecretStr

from agentmagic.display.block_json import BlockFields, FormFields
from agentmagic.display.blocks import State
from agentmagic.widgets.page_messages import PageAction
from agentmagic.widgets.view_messages import Change, Message

FILE = Path(__file__).parents[2] / "js" / "src" / "messages.d.ts"
HEAD = "// What travels between the kernel and a view; made by `python -m tests.widgets.page_types`.\n"
PLAIN = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    object: "unknown",
    SecretStr: "string",
}
ALIASES = {
    "CardState": State,
    "Form": FormFields,
    "Block": BlockFields,
    "Change": Change,
    "Message": Message,
    "PageAction": PageAction,
}
"""Unions, by their name in the page."""


class _Writer:
    """Writes types of Python as TypeScript; the classes among them as interfaces, each once."""

    def __init__(self) -> None:
        self.interfaces: dict[type, str] = {}
        self._names: dict[Any, str] = {kind: name for name, kind in ALIASES.items()} | PLAIN

    def type(self, kind: Any) -> str:
        """Return how a type is written where it is used."""
        return self._names.get(kind) or self.definition(kind)

    def definition(self, kind: Any) -> str:
        """Return what a type is, for a class its name."""
        origin, args = get_origin(kind), get_args(kind)
        if origin is None:
            return self._interface(kind)
        if origin is Literal:
            return " | ".join(map(json.dumps, args))
        inner = list(map(self.type, args))
        if origin in (Union, types.UnionType):
            return " | ".join(inner)
        if origin is tuple:
            return f"[{', '.join(inner)}]"
        return f"Record<{', '.join(inner)}>" if issubclass(origin, Mapping) else f"{inner[0]}[]"

    def _interface(self, kind: Any) -> str:
        if kind not in self.interfaces:
            self.interfaces[kind] = ""  # keeps its place before the types that it names
            needed = kind.__required_keys__ if is_typeddict(kind) else _required(kind)
            fields = [
                f"  {name}{'' if name in needed else '?'}: {self.type(hint)}"
                for name, hint in get_type_hints(kind).items()
                if name != "model_config"
            ]
            about = " ".join((kind.__doc__ or "").split())
            lines = [f"/** {about} */", f"export interface {kind.__name__} {{", *fields, "}"]
            self.interfaces[kind] = "\n".join(lines)
        return kind.__name__


def _required(kind: type[BaseModel]) -> set[str]:
    """Return the fields of a message that the page has to send."""
    return {name for name, field in kind.model_fields.items() if field.is_required() or name == "type"}


def page_types() -> str:
    """Return the file."""
    writer = _Writer()
    aliases = [f"export type {name} = {writer.definition(kind)}" for name, kind in ALIASES.items()]
    return "\n\n".join([HEAD.rstrip(), *writer.interfaces.values(), *aliases]) + "\n"


if __name__ == "__main__":
    FILE.write_text(page_types(), encoding="utf-8")
