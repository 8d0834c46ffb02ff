"""Calls as Python source that holds nothing but the call, whatever its arguments are."""

import keyword
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentmagic.display import words
from agentmagic.secrets import redact

WIDEST = 100
"""Characters of a call that stands on one line."""

DEEPEST = 40
"""How deep arguments may be nested; Python itself reads fewer than a hundred open brackets."""

LONGEST_COMMENT = 200


def function_call(function: str, arguments: Mapping[str, Any]) -> str:
    """Write the call of a function, secrets blanked; raises ValueError where Python cannot hold an argument."""
    return _written(function, [], arguments)


def session_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """Write the call of a tool through `session`; raises as `function_call` does."""
    return _written("session.call", [_literal(tool)], arguments)


def comment(text: str) -> str:
    """Write words as a comment of one line."""
    return f"# {words.one_line(words.shown(text), LONGEST_COMMENT)}"


def commented(source: str) -> str:
    """Comment source out, whose lines end in line feeds."""
    return "\n".join(f"# {line}" for line in source.split("\n"))


def is_name(text: str) -> bool:
    """Whether Python takes a text for a name, and for no other than it is."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text != "__debug__"


def _written(callee: str, first: list[str], arguments: Mapping[str, Any]) -> str:
    named = [f"{key}={_literal(value)}" for key, value in arguments.items() if is_name(key)]
    others = {key: value for key, value in arguments.items() if not is_name(key)}
    items = [*first, *named, *([f"**{_literal(others)}"] if others else [])]
    line = f"{callee}({', '.join(items)})"
    return line if len(line) <= WIDEST else f"{callee}(\n" + "".join(f"    {item},\n" for item in items) + ")"


def _literal(value: Any, depth: int = DEEPEST) -> str:  # noqa: PLR0911  (one arm for each type)
    """Write JSON data in Python; a subclass of its types, which may print as it likes, is written as the type."""
    if depth == 0:
        raise ValueError("its arguments are nested too deep to be written out")
    match value:
        case None | True | False:
            return repr(value)
        case str():
            return str.__repr__(redact(value))
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value) if math.isfinite(value) else f"float({float.__repr__(value)!r})"
        case bytes():
            return bytes.__repr__(value)
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return "{" + ", ".join(f"{_literal(key)}: {_literal(item, depth - 1)}" for key, item in items) + "}"
        case list() | tuple():
            return "[" + ", ".join(_literal(item, depth - 1) for item in cast("Sequence[Any]", value)) + "]"
        case _:
            raise ValueError(f"a {type(value).__name__} among its arguments cannot be written out")
