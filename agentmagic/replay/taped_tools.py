"""The sources of tools of a turn or a map on tape: their lists and calls are recorded, or come from the tape."""

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
    """A tape with the tools of a turn or a map.

    `sources` are their lists by number, `taped` the tools by the id of the real one, `call` carries out a call.
    """

    sources: dict[int, Json]
    taped: dict[int, Tool]

    async def call(self, tool: Tool, source: Toolset, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call, or return its recorded result."""
        ...


def taped(tape: ToolTape, sources: Sequence[Toolset], recorded: Sequence[Json] | None) -> tuple[Toolset, ...]:
    """Return sources of tools on a tape. With `recorded`, the lists of those that are no functions come from there."""
    numbers = count()
    away = iter([one for one in recorded or () if not one.get("local")])

    def of(source: Toolset) -> Toolset:
        if isinstance(source, Choosing):
            return source.over(list(map(of, source.sources)))
        nothing: Json = {}
        listed = None if isinstance(source, Local) or recorded is None else next(away, nothing)
        return TapedTools(tape, source, next(numbers), listed)

    return tuple(map(of, sources))


async def running(tool: Tool, source: Toolset) -> Tool:
    """Return a tool that can run. If the tool was listed from the tape, ask its source for the real one."""
    if tool.invoke is not on_tape:
        return tool
    tools, problems = await list_source(source)
    found = next((one for one in tools if one.name == tool.name), None)
    if found is None:
        raise ServerError(" ".join(problems) or f"There is no tool {tool.name!r} any more.")
    return found


async def on_tape(_call: ToolCall, _context: ToolContext) -> ToolResult:
    """Stand for the call of a tool that is known from a tape alone."""
    message = "The tool is known from its recording alone."
    raise ServerError(message)


class TapedTools:
    """A source of tools on a tape. `recorded` is its list of tools if the list comes from the tape too."""

    def __init__(self, tape: ToolTape, source: Toolset, number: int, recorded: Json | None) -> None:
        self._tape = tape
        self._source = source
        self._number = number
        self._recorded = recorded
        self.notices: Sequence[str] = ()

    async def tools(self) -> Sequence[Tool]:
        """Return the tools. Raises ServersUnreachable if some were or are missing."""
        listed = self._recorded
        if listed is None:
            tools, problems = await list_source(self._source)
            notices = notices_of(self._source)
            listed = source_of(tools, problems, notices, local=isinstance(self._source, Local))
        else:
            tools, problems = _recorded_tools(listed), listed.get("problems", ())
        self._tape.sources[self._number] = listed
        self.notices = listed.get("notices", ())
        taped = [self._taped(tool) for tool in tools]
        if problems:
            raise ServersUnreachable(" ".join(problems), taped, problems)
        return taped

    def _taped(self, tool: Tool) -> Tool:
        async def invoke(call: ToolCall, context: ToolContext) -> ToolResult:
            return await self._tape.call(tool, self._source, call, context)

        # A tool that two sources offer, the notebook and its agent for example, stays one.
        return self._tape.taped.setdefault(id(tool), replace(tool, invoke=invoke))

    async def aclose(self) -> None:
        """Do nothing: the session closes the source."""


def _recorded_tools(source: Json) -> list[Tool]:
    def flag(name: str, tool: Json, usual: object) -> Any:
        return source.get(name, {}).get(tool["name"], usual)

    return [
        Tool(
            tool_def(tool),
            on_tape,
            parallel=flag("parallel", tool, True),
            ask=flag("ask", tool, False),
            code=flag("code", tool, False),
            hosted=hosted_of(own) if (own := flag("hosted", tool, None)) else None,
        )
        for tool in source.get("tools", ())
    ]
