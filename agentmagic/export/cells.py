"""A run as the plain cells of a notebook: what the agent called, with the same arguments and without a model.

The notebook is nbformat 4.5, https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentmagic import json_schema
from agentmagic.display.blocks import PromptBlock, State, TextBlock, ToolCard
from agentmagic.display.transcript import Transcript
from agentmagic.errors import ToolError
from agentmagic.export.document import prompt_of
from agentmagic.export.markup import prose
from agentmagic.export.source import comment, commented, function_call, is_name, session_call
from agentmagic.history.history import Turn
from agentmagic.messages import ToolCall
from agentmagic.tools.base import ToolContext
from agentmagic.tools.functions import function_tool

Json = dict[str, Any]

NOTEBOOK = "notebook"
"""The server of the tools that are Python functions."""

_WHY: dict[State, str] = {"failed": "it failed", "denied": "it was denied", "interrupted": "it was interrupted"}


def to_notebook(turns: Iterable[Turn], tools: Iterable[Any] = ()) -> Json:
    """Return turns as a notebook: prompts and answers as Markdown, each call as a cell that makes it again.

    A call of a Python function is a plain call of it, that of a server's tool goes through a session. Calls
    that did not succeed are commented out. `tools` are those of the agent, as it was given them: with
    them renamed functions go by their own names, async ones are awaited, and those that take a
    `ToolContext`, or arguments that have to be converted, are called through the session. No outputs are stored.
    """
    functions = {function_tool(one).name: _Function.of(one) for one in tools if inspect.isroutine(one)}
    cells = list(_cells(turns, functions))
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
    """What has to be known of a function to call it as its tool was called."""

    name: str
    awaited: bool
    signature: json_schema.Signature

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_Function":
        signature = json_schema.read_signature(function, ToolContext)
        return cls(function.__name__, inspect.iscoroutinefunction(function), signature)

    def takes(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the function can be given the arguments as they are."""
        try:
            converted = json_schema.arguments_for(self.signature, arguments)
        except ToolError:
            return False
        return self.signature.context is None and all(_alike(converted[key], arguments[key]) for key in converted)


def _alike(converted: Any, given: Any) -> bool:
    # An enumeration of strings equals its strings, and is not one of them.
    return converted == given and type(converted) in (type(given), float)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell, and what it needs: functions by name, a session, in it the server of an alias."""

    kind: str
    source: str
    functions: tuple[str, ...] = ()
    server: str = ""
    session: bool = False


def _cells(turns: Iterable[Turn], functions: Mapping[str, _Function]) -> Iterator[_Cell]:
    for turn in turns:
        for block in Transcript(turn.events).blocks:
            match block:
                case PromptBlock():
                    yield _Cell("markdown", prompt_of(block.prompt))
                case TextBlock() if block.text.strip():
                    yield _Cell("markdown", prose(block.text))
                case ToolCard(call=ToolCall() as call):
                    yield _call(card=block, call=call, function=functions.get(call.name))
                case _:
                    pass


def _call(card: ToolCard, call: ToolCall, function: _Function | None) -> _Cell:
    """Write a call as a cell, or as a comment where it is not to be made again."""
    name = function.name if function else call.name
    own = card.server in ("", NOTEBOOK) and is_name(name)
    plain = own and (function is None or function.takes(call.arguments))
    try:
        source = function_call(name, call.arguments) if plain else session_call(call.name, call.arguments)
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
    """Yield the cells that say, and do, what those below need."""
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
