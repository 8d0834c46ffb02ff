"""Toolsets whose tool lists and calls are recorded to a cassette file, or come from it in a replay."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from agentmagic.errors import ServerError
from agentmagic.messages import ToolCall, ToolResult
from agentmagic.replay.exchange import Json, hosted_of, tool_def
from agentmagic.replay.recorder import source_of
from agentmagic.tools.base import (
    Choosing,
    Local,
    ServersUnreachable,
    Tool,
    ToolContext,
    Toolset,
    list_source,
    notices_of,
)


class ToolTape(Protocol):
    """The members that taped tools use of a `TurnTape` or `MapTape`, which records or replays their turn or map.

    `sources` has the tool list of each toolset, by the toolset's number. `tools_on_tape` has the recorded or replayed
    tools, by the `id()` of the real tool.
    """

    sources: dict[int, Json]
    tools_on_tape: dict[int, Tool]

    async def call(self, tool: Tool, source: Toolset, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a tool call, or return its recorded result."""
        ...


def on_tape_toolsets(tape: ToolTape, sources: Sequence[Toolset], lists: Sequence[Json] | None) -> tuple[Toolset, ...]:
    """Return the toolsets, wrapped for recording or replay.

    If recorded tool `lists` are given, the toolsets offer the tools in them, but toolsets of local functions offer
    their real tools.
    """
    numbers = count()
    away = iter([one for one in lists or () if not one.get("local")])

    def of(source: Toolset) -> Toolset:
        if isinstance(source, Choosing):
            return source.over(list(map(of, source.sources)))
        nothing: Json = {}
        listing = None if isinstance(source, Local) or lists is None else next(away, nothing)
        return TapedTools(tape, source, next(numbers), listing)

    return tuple(map(of, sources))


async def real_tool(tool: Tool, source: Toolset) -> Tool:
    """Return a tool that can run. If the tool comes from a recorded list, get the real tool from its toolset."""
    if tool.invoke is not not_callable:
        return tool
    tools, problems = await list_source(source)
    match = next((candidate for candidate in tools if candidate.name == tool.name), None)
    if match is None:
        raise ServerError(" ".join(problems) or f"There is no tool {tool.name!r} any more.")
    return match


async def not_callable(_call: ToolCall, _context: ToolContext) -> ToolResult:
    """Raise ServerError. This function is the `invoke` of a tool that is known only from a recorded list."""
    message = "The tool is known from its recording alone."
    raise ServerError(message)


class TapedTools:
    """A toolset for recording or replay. `listing` is its recorded tool list, or None to list the real tools."""

    def __init__(self, tape: ToolTape, source: Toolset, number: int, listing: Json | None) -> None:
        self._tape = tape
        self._source = source
        self._number = number
        self._listing = listing
        self.notices: Sequence[str] = ()

    async def tools(self) -> Sequence[Tool]:
        """Return the tools. Raises ServersUnreachable if a server did not list its tools, now or in the recording."""
        listing = self._listing
        if listing is None:
            tools, problems = await list_source(self._source)
            notices = notices_of(self._source)
            listing = source_of(tools, problems, notices, local=isinstance(self._source, Local))
        else:
            tools, problems = _recorded_tools(listing), listing.get("problems", ())
        self._tape.sources[self._number] = listing
        self.notices = listing.get("notices", ())
        tape_tools = [self._wrap(tool) for tool in tools]
        if problems:
            raise ServersUnreachable(" ".join(problems), tape_tools, problems)
        return tape_tools

    def _wrap(self, tool: Tool) -> Tool:
        async def invoke(call: ToolCall, context: ToolContext) -> ToolResult:
            return await self._tape.call(tool, self._source, call, context)

        # If two toolsets offer the same tool, for example the notebook's and the agent's, return one object for both.
        return self._tape.tools_on_tape.setdefault(id(tool), replace(tool, invoke=invoke))

    async def aclose(self) -> None:
        """Do nothing: the session closes the real toolset."""


def _recorded_tools(source: Json) -> list[Tool]:
    def flag(name: str, tool: Json, usual: object) -> Any:
        return source.get(name, {}).get(tool["name"], usual)

    return [
        Tool(
            tool_def(tool),
            not_callable,
            parallel=flag("parallel", tool, True),
            ask=flag("ask", tool, False),
            code=flag("code", tool, False),
            hosted=hosted_of(own) if (own := flag("hosted", tool, None)) else None,
        )
        for tool in source.get("tools", ())
    ]
