"""A conversation as the cells of a notebook: the agent's calls, with the same arguments and without a model.

A cell holds nothing but its call; no argument can add code. The notebook is nbformat 4.5, https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import inspect
import keyword
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentmagic import json_schema
from agentmagic.display.blocks import Block, PromptBlock, State, TextBlock, ToolCard
from agentmagic.display.transcript import Transcript
from agentmagic.errors import ToolError
from agentmagic.export.document import answer, prompt_of, without_html
from agentmagic.history.history import Turn
from agentmagic.messages import NOTEBOOK, ToolCall
from agentmagic.secrets import redact
from agentmagic.text import one_line, shown
from agentmagic.tools.base import ToolContext
from agentmagic.tools.functions import function_tool

Json = dict[str, Any]

WIDEST = 100
"""Characters of a call that stands on one line."""

DEEPEST = 40
"""How deep arguments may be nested; Python itself reads fewer than a hundred open brackets."""

LONGEST_COMMENT = 200

_WHY: dict[State, str] = {"failed": "it failed", "denied": "it was denied", "interrupted": "it was interrupted"}


def to_notebook(turns: Iterable[Turn], tools: Iterable[Any] = ()) -> Json:
    """Return turns as a notebook: prompts and answers as Markdown, and each call as a cell that makes it again.

    The call of a Python function is a plain call, and the call of a server's tool goes through a session. Calls
    that did not succeed are commented out. `tools` are the tools that the agent was given. With them,
    renamed functions are called by their own names, async functions are awaited, and functions that take a
    `ToolContext`, or arguments that must be converted, are called through the session. No outputs are stored.
    """
    functions = {function_tool(one).name: _Function.of(one) for one in tools if callable(one)}
    renderer = _CellRenderer(functions)
    blocks = (block for turn in turns for block in Transcript(turn.events).blocks)
    cells = [cell for block in blocks for cell in block.render(renderer)]
    return {
        "cells": [_numbered(cell, number) for number, cell in enumerate((*_set_up(cells), *cells), 1)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


@dataclass(frozen=True, slots=True)
class _Function:
    """What is needed to call a function as its tool was called."""

    name: str
    awaited: bool
    plain: bool
    signature: json_schema.Signature

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_Function":
        signature = json_schema.read_signature(function, ToolContext, variables=True)
        # The name of a partial or an object is that of the function inside or of its class, which is not what ran.
        return cls(signature.name, inspect.iscoroutinefunction(function), inspect.isroutine(function), signature)

    def takes(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the function takes the arguments without conversion."""
        try:
            converted = json_schema.arguments_for(self.signature, arguments)
        except ToolError:
            return False
        # A member of a string enumeration equals its string but has another type.
        pairs = ((value, arguments[key]) for key, value in converted.items() if key in arguments)
        alike = all(value == given and type(value) in (type(given), float) for value, given in pairs)
        # An alias is no name of a parameter, and the function itself does not have the default of a `Field`.
        alike &= converted.keys() == arguments.keys()
        return alike and self.plain and self.signature.context is None and not self.signature.by_name


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell, and what it needs: functions by name, a session, the alias of a server in that session."""

    kind: str
    source: str
    functions: tuple[str, ...] = ()
    server: str = ""
    session: bool = False


@dataclass(frozen=True, slots=True)
class _CellRenderer:
    """Yields the cells of a block; `functions` are those of the agent, by the names of their tools."""

    functions: Mapping[str, _Function]

    def prompt(self, block: PromptBlock) -> Iterator[_Cell]:
        yield _Cell("markdown", without_html(prompt_of(block.prompt)))

    def text(self, block: TextBlock) -> Iterator[_Cell]:
        if block.text.strip():
            yield _Cell("markdown", without_html("\n\n".join(answer(block))))

    def card(self, card: ToolCard) -> Iterator[_Cell]:
        if card.inside:  # what an agent has done is done again without it
            yield from (cell for block in card.inside.blocks for cell in block.render(self))
        elif card.call and not card.hosted:  # a hosted call is the provider's, and no cell can make it
            yield _call(card, card.call, self.functions.get(card.call.name))

    def _none(self, _block: Block) -> Iterator[_Cell]:
        yield from ()

    values = reasoning = checklist = question = proposal = notice = retry = progress = footer = _none


def _call(card: ToolCard, call: ToolCall, function: _Function | None) -> _Cell:
    """Write a call as a cell, or as a comment if it must not be made again."""
    name = function.name if function else call.name
    own = card.server in ("", NOTEBOOK) and is_name(name)
    plain = own and (function is None or function.takes(call.arguments))
    try:
        callee, first = (name, []) if plain else ("session.call", [_literal(call.name)])
        source = _written(callee, first, call.arguments)
    except ValueError as error:
        return _Cell("code", comment(f"{call.name} is not called here: {error}."))
    if card.state != "done":
        return _Cell("code", f"{comment(_why(card))}\n{commented(source)}")
    needs = (name,) if own else ()
    if plain:
        return _Cell("code", f"await {source}" if function and function.awaited else source, needs)
    return _Cell("code", source, needs, server=card.server if card.server != NOTEBOOK else "", session=True)


def _why(card: ToolCard) -> str:
    said = card.result.text if card.result else card.reason
    return f"Not called here, since {_WHY.get(card.state, 'it was not finished')}: {said}".rstrip(": ")


def _set_up(cells: Sequence[_Cell]) -> Iterator[_Cell]:
    """Yield the cells that prepare what the cells below need."""
    if functions := _names(cell.functions for cell in cells):
        yield _Cell("code", f"# Define or import here the functions that are called below:\n# {functions}")
    if through := [cell for cell in cells if cell.session]:
        servers = _names((cell.server,) for cell in through if cell.server)
        lines = (
            "from agentmagic import Agent, Session",
            "",
            comment(f"As the agent had it: Agent(mcp=...), with these servers: {servers or 'none'}"),
            "mcp = {}",
            f"session = Session(Agent(tools=[{_names(cell.functions for cell in through)}], mcp=mcp))",
        )
        yield _Cell("code", "\n".join(lines))


def _names(groups: Iterable[tuple[str, ...]]) -> str:
    return ", ".join(dict.fromkeys(name for group in groups for name in group))


def _numbered(cell: _Cell, number: int) -> Json:
    lines = cell.source.splitlines(keepends=True)
    whole: Json = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return whole | {"execution_count": None, "outputs": []} if cell.kind == "code" else whole


# -- calls as source -------------------------------------------------------------------------------------


def comment(text: str) -> str:
    """Write a text as a comment of one line."""
    return f"# {one_line(shown(text), LONGEST_COMMENT)}"


def commented(source: str) -> str:
    """Comment source out."""
    return "\n".join(f"# {line}" for line in source.split("\n"))


def is_name(text: str) -> bool:
    """Return whether a text is a Python name; Python would normalise names that are not ASCII."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text != "__debug__"


def _written(callee: str, first: list[str], arguments: Mapping[str, Any]) -> str:
    """Write a call, secrets blanked; raises ValueError if an argument has no literal in Python."""
    named = [f"{key}={_literal(value, name=key)}" for key, value in arguments.items() if is_name(key)]
    others = {key: value for key, value in arguments.items() if not is_name(key)}
    items = [*first, *named, *([f"**{_literal(others)}"] if others else [])]
    line = f"{callee}({', '.join(items)})"
    return line if len(line) <= WIDEST else f"{callee}(\n" + "".join(f"    {item},\n" for item in items) + ")"


def _literal(value: Any, depth: int = DEEPEST, name: str = "") -> str:  # noqa: PLR0911  (one arm for each type)
    """Write JSON data as a Python literal."""
    if depth == 0:
        raise ValueError("its arguments are nested too deep to be written out")
    # The methods of the exact types are called: a subclass could print anything, code too.
    match value:
        case None | True | False:
            return repr(value)
        case str():
            return str.__repr__(redact(value, name=name))
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value) if math.isfinite(value) else f"float({float.__repr__(value)!r})"
        case bytes():
            return bytes.__repr__(value)
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return (
                "{" + ", ".join(f"{_literal(key)}: {_literal(item, depth - 1, str(key))}" for key, item in items) + "}"
            )
        case list() | tuple():
            return "[" + ", ".join(_literal(item, depth - 1, name) for item in cast("Sequence[Any]", value)) + "]"
        case _:
            raise ValueError(f"a {type(value).__name__} among its arguments cannot be written out")
