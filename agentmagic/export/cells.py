"""Exports a conversation as a notebook whose cells repeat the agent's tool calls, without a model.

Arguments are written as literals, so no argument can add code to a cell. The format is nbformat 4.5, https://nbformat.readthedocs.io/en/latest/format_description.html
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
from agentmagic.text import sanitize, single_line
from agentmagic.tools.base import ToolContext
from agentmagic.tools.functions import function_tool

Json = dict[str, Any]

WIDEST = 100
"""Maximum number of characters of a call that is written on one line."""

DEEPEST = 40
"""Maximum nesting depth of arguments. Python itself accepts fewer than a hundred nested brackets."""

LONGEST_COMMENT = 200

_WHY: dict[State, str] = {"failed": "it failed", "denied": "it was denied", "interrupted": "it was interrupted"}


def to_notebook(turns: Iterable[Turn], tools: Iterable[Any] = ()) -> Json:
    """Return turns as a notebook: prompts and answers as Markdown, and each tool call as a cell that repeats the call.

    Python functions are called directly, and tools of MCP servers through a session. Calls that did not succeed are
    commented out. `tools` are the tools of the agent. If they are given, functions whose tools have other names are
    called by their own names, async functions are awaited, and functions that need a `ToolContext` or converted
    arguments are called through the session. No outputs are stored.
    """
    functions = {function_tool(tool).name: _Function.of(tool) for tool in tools if callable(tool)}
    renderer = _CellRenderer(functions)
    blocks = (block for turn in turns for block in Transcript(turn.events).blocks)
    cells = [cell for block in blocks for cell in block.render(renderer)]
    return {
        "cells": [_cell_json(cell, number) for number, cell in enumerate((*_set_up(cells), *cells), 1)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


@dataclass(frozen=True, slots=True)
class _Function:
    """A tool's Python function, and what must be known to write a call of it with the arguments of a tool call."""

    name: str
    is_async: bool
    is_plain: bool
    signature: json_schema.Signature

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_Function":
        signature = json_schema.read_signature(function, ToolContext, variables=True)
        # `isroutine` is False for a partial or a callable object: `signature.name` is its inner function or class.
        return cls(signature.name, inspect.iscoroutinefunction(function), inspect.isroutine(function), signature)

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a plain call of the function accepts these tool arguments, without conversion or context."""
        try:
            parameters = json_schema.arguments_for(self.signature, arguments)
        except ToolError:
            return False
        # Compare types too: a member of a string enumeration equals its string, but the function got the member.
        pairs = ((value, arguments[key]) for key, value in parameters.items() if key in arguments)
        alike = all(value == argument and type(value) in (type(argument), float) for value, argument in pairs)
        # The parameters differ from the arguments if pydantic's `Field` gives one an alias or a default: a plain call
        # applies neither.
        alike &= parameters.keys() == arguments.keys()
        return alike and self.is_plain and self.signature.context is None and not self.signature.by_name


@dataclass(frozen=True, slots=True)
class _Cell:
    """A notebook cell, and what its code needs: `functions`, a `session`, and an MCP `server`, named by its alias."""

    kind: str
    source: str
    functions: tuple[str, ...] = ()
    server: str = ""
    session: bool = False


@dataclass(frozen=True, slots=True)
class _CellRenderer:
    """Yields the notebook cells for one part of a conversation. `functions` are the agent's functions, by tool name."""

    functions: Mapping[str, _Function]

    def prompt(self, block: PromptBlock) -> Iterator[_Cell]:
        yield _Cell("markdown", without_html(prompt_of(block.prompt)))

    def text(self, block: TextBlock) -> Iterator[_Cell]:
        if block.text.strip():
            yield _Cell("markdown", without_html("\n\n".join(answer(block))))

    def card(self, card: ToolCard) -> Iterator[_Cell]:
        if card.inside:  # an agent called as a tool: repeat only the calls that it made itself
            yield from (cell for block in card.inside.blocks for cell in block.render(self))
        elif card.call and not card.hosted:  # a hosted call ran at the provider, so no cell can repeat it
            yield _call(card, card.call, self.functions.get(card.call.name))

    def _none(self, _block: Block) -> Iterator[_Cell]:
        yield from ()

    values = reasoning = checklist = question = proposal = notice = printout = retry = progress = footer = _none


def _call(card: ToolCard, call: ToolCall, function: _Function | None) -> _Cell:
    """Return a cell that repeats a tool call. If the call must not be repeated, its code is a comment in the cell."""
    name = function.name if function else call.name
    own = card.server in ("", NOTEBOOK) and is_name(name)
    plain = own and (function is None or function.accepts(call.arguments))
    try:
        callee, first = (name, []) if plain else ("session.call", [_literal(call.name)])
        source = _call_source(callee, first, call.arguments)
    except ValueError as error:
        return _Cell("code", comment(f"{call.name} is not called here: {error}."))
    if card.state != "done":
        return _Cell("code", f"{comment(_skip_reason(card))}\n{comment_out(source)}")
    needs = (name,) if own else ()
    if plain:
        return _Cell("code", f"await {source}" if function and function.is_async else source, needs)
    return _Cell("code", source, needs, server=card.server if card.server != NOTEBOOK else "", session=True)


def _skip_reason(card: ToolCard) -> str:
    reason = card.result.text if card.result else card.reason
    return f"Not called here, since {_WHY.get(card.state, 'it was not finished')}: {reason}".rstrip(": ")


def _set_up(cells: Sequence[_Cell]) -> Iterator[_Cell]:
    """Yield the cells to place before the given cells: a list of the functions to define, and code for the session."""
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


def _cell_json(cell: _Cell, number: int) -> Json:
    lines = cell.source.splitlines(keepends=True)
    whole: Json = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return whole | {"execution_count": None, "outputs": []} if cell.kind == "code" else whole


# -- calls as source -------------------------------------------------------------------------------------


def comment(text: str) -> str:
    """Return a text as a Python comment of one line."""
    return f"# {single_line(sanitize(text), LONGEST_COMMENT)}"


def comment_out(source: str) -> str:
    """Return source code with every line commented out."""
    return "\n".join(f"# {line}" for line in source.split("\n"))


def is_name(text: str) -> bool:
    """Return whether a text is a Python name in ASCII. Python would normalise other names."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text != "__debug__"


def _call_source(callee: str, first: list[str], arguments: Mapping[str, Any]) -> str:
    """Return the source code of a call without secrets. Raises ValueError if an argument cannot be a literal."""
    keywords = [f"{key}={_literal(value, name=key)}" for key, value in arguments.items() if is_name(key)]
    others = {key: value for key, value in arguments.items() if not is_name(key)}
    items = [*first, *keywords, *([f"**{_literal(others)}"] if others else [])]
    line = f"{callee}({', '.join(items)})"
    return line if len(line) <= WIDEST else f"{callee}(\n" + "".join(f"    {item},\n" for item in items) + ")"


def _literal(value: Any, depth: int = DEEPEST, name: str = "") -> str:  # noqa: PLR0911  (one arm for each type)
    """Return JSON data as a Python literal. Raises ValueError if it is nested too deep, or has another type."""
    if depth == 0:
        raise ValueError("its arguments are nested too deep to be written out")
    # Values are written with `str.__repr__`, `int.__repr__` and so on: a subclass could have a `repr` with code.
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
