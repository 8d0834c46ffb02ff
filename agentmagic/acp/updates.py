"""Translates the updates that an outside agent sends into steps, tool calls with results, plans and costs.

The functions here do no I/O. Each turns an update into model events and news (such as `CallNews`), in order.

An agent reports its whole turn as one stream, which is divided into steps. A step ends when a call that was announced
in it begins: at the call's permission request, when the call comes over MCP, at its result, or at the next text.
`OutsideModel` also ends the step if the agent has sent the input of the calls and then sends nothing for a moment.
Later updates belong to the next step.

What a model writes through its agent (titles, inputs, contents, names of tools) is only shown. Whether a call is one of
an agentmagic tool is read from the fields that the agent's program writes itself, as `OutsideAgent` names them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentmagic.acp import bounds
from agentmagic.acp.agents import SERVER, OutsideAgent
from agentmagic.acp.reports import CallReport, text_of, value_at
from agentmagic.errors import ProviderError
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.loop.tool_calls import DEEPEST_INNER
from agentmagic.messages import Reasoning, Text, ToolCall, ToolResult, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.text import clean, single_line

if TYPE_CHECKING:
    from acp import schema

CONTINUES = "calls"
"""The finish reason of a step after which the agent continues its turn."""
DONE = ("completed", "failed")
_NOWHERE = Path()
PlanStatus = Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class LateCall:
    """A tool call that began while calls of an earlier step ran, most likely inside the call with the id `parent`."""

    call: ToolCall
    parent: str


@dataclass(frozen=True, slots=True)
class CallNews:
    """The progress text of a running tool call, or the result of a finished one."""

    call_id: str
    progress: str = ""
    result: ToolResult | None = None


@dataclass(frozen=True, slots=True)
class PlanNews:
    """The whole plan of an outside agent, each entry with its status."""

    entries: tuple[tuple[str, PlanStatus], ...]


@dataclass(frozen=True, slots=True)
class CostNews:
    """The cost of an outside agent's session so far, in US dollars."""

    dollars: float


News = ModelEvent | LateCall | CallNews | PlanNews | CostNews


class UpdateReader:
    """Reads the updates that an outside agent sends during one prompt.

    `agent` is the agent's row in the table of agents. `tools`: the names of the agentmagic tools that the agent can
    call. `fresh`: a function that returns a call id that is unique in the conversation, given the agent's id of the
    call. Paths inside `folder` are shown relative to it. Raises ProviderError if the agent sends more than the limits
    allow.
    """

    def __init__(
        self,
        agent: OutsideAgent,
        tools: Sequence[str] = (),
        fresh: Callable[[str], str] = str,
        folder: Path = _NOWHERE,
    ) -> None:
        self._agent = agent
        self._name = agent.model
        self._tools = tools
        self._fresh = fresh
        self._folder = folder
        self._calls: dict[str, CallReport] = {}  # the keys are the agent's ids of the calls
        self._announced: list[tuple[int, CallReport]] = []  # calls of the unfinished step, and their indexes as parts
        self._early_ids: set[str] = set()  # the agent's ids of calls that came over MCP before their report
        self._unmatched: list[ToolCall] = []
        self._running: list[CallReport] = []
        self._held: list[CallReport] = []  # calls that were reported while the user is asked about another call
        self._index = 0
        self._open: tuple[Literal["text", "reasoning"], list[str]] | None = None
        self._message: str | None = None
        self._characters = 0

    @property
    def last_text(self) -> str:
        """The text that the agent is writing, "" if the last word of the agent is not text."""
        return "".join(self._open[1]) if self._open is not None and self._open[0] == "text" else ""

    @property
    def is_step_whole(self) -> bool:
        """Whether calls were announced, and the input of each is known."""
        return bool(self._announced) and all(one.has_input or one.has_begun for _, one in self._announced)

    def feed(self, update: "schema.SessionNotification") -> Iterator[News]:
        """Yield the events and news in an update; nothing for commands, modes, titles and the user's messages."""
        content: Any = update.update
        match content.session_update:
            case "agent_message_chunk":
                yield from self._text("text", content)
            case "agent_thought_chunk":
                yield from self._text("reasoning", content)
            case "tool_call" | "tool_call_update":
                yield from self.call(content)
            case "plan":
                entries = content.entries[: bounds.PLAN]
                yield PlanNews(
                    tuple((single_line(clean(one.content), bounds.PLAN_TEXT), one.status) for one in entries)
                )
            case "usage_update" if content.cost is not None and content.cost.currency.upper() == "USD":
                if 0 <= content.cost.amount < float("inf"):
                    yield CostNews(content.cost.amount)
            case _:
                pass

    def call(self, update: Any) -> Iterator[News]:
        """Yield the events and news in an update about a tool call."""
        key, status = update.tool_call_id[: bounds.ID], getattr(update, "status", None)
        report = self._calls.get(key)
        if key in self._early_ids or (report is not None and report.is_over):
            return
        is_new = report is None
        if report is None:
            report = self._new(key)
        self._merge(report, update)
        if not report.tool and (is_new or self._is_announced(report)):
            report.tool = self._tool_of(update)
        if is_new:
            if report.tool and self._match_report(report):
                self._early_ids.add(key)
                return
            yield from self._announce(report)
        if status in DONE:
            yield from self.close(report)
            self.end(report)
            yield CallNews(report.id, result=report.result(status))
        elif report.runs:
            yield CallNews(report.id, report.progress())

    def request(self, update: Any) -> Iterator[News]:
        """Yield the events in a permission request; `update` is its call, with all that the request says of it.

        A request about a call that is over, or that is not the agent's own, is about a new call.
        """
        key = update.tool_call_id[: bounds.ID]
        report = self._calls.get(key)
        if report is None or report.is_over or report.tool or key in self._early_ids:
            self._early_ids.discard(key)
            report = self._new(key)
            self._merge(report, update)
            yield from self._announce(report)
        else:
            self._merge(report, update)
        report.is_asked = True
        yield from self.close(report)

    def decided(self, report: "CallReport") -> Iterator[News]:
        """Mark a permission request as answered, and yield the announcements of the calls that were held until then."""
        report.is_asked = False
        if any(one.is_asked for one in self._running):
            return
        held, self._held = self._held, []
        for one in held:
            yield from self._announce(one, beside=True)
        if any(one.has_begun for one in held):
            yield from self.close()

    def is_ours(self, update: Any) -> bool:
        """Return whether the agent's program marks a permission request as one for a tool of agentmagic's server."""
        mark = self._agent.server_field
        return bool(mark) and value_at(update.field_meta, mark) == SERVER

    def report_of(self, call_id: str) -> "CallReport | None":
        """Return the call with this id of the agent. None if it is unknown, or came over MCP before its report."""
        return None if call_id in self._early_ids else self._calls.get(call_id[: bounds.ID])

    def match_call(self, name: str, arguments: Mapping[str, Any]) -> "CallReport | None":
        """Return the agent's report of a call that came over MCP, marked as made; None if there is no report yet."""
        open_calls = [one for one in self._calls.values() if one.tool == name and not (one.is_over or one.is_made)]
        same = [one for one in open_calls if one.call().arguments == arguments]
        match = next(iter((*same, *(one for one in open_calls if not one.has_input))), None)
        if match is not None:
            match.is_made = True
        return match

    def announce_call(self, call: ToolCall) -> Iterator[News]:
        """Yield the announcement of a call that came over MCP and that the agent has not reported yet."""
        report = self._new(call.id)
        report.tool, report.raw, report.is_made = call.name, dict(call.arguments), True
        self._unmatched.append(call)
        yield from self._announce(report)
        yield from self.close(report)

    def end(self, report: "CallReport") -> None:
        """Mark a call as finished; what the agent reports about it later is ignored."""
        report.is_over = True
        if report in self._running:
            self._running.remove(report)

    def close(self, report: "CallReport | None" = None) -> Iterator[News]:
        """End the running step if it announced the call `report`, or, without `report`, if it announced any call."""
        if self._announced and (report is None or self._is_announced(report)):
            yield from self._end(ModelFinished(Usage(), CONTINUES))

    def finish(self, reason: str, usage: Usage) -> Iterator[News]:
        """End the last step, because the agent's turn is over. Unfinished calls get a result that says so."""
        for held in self._held:
            yield from self._announce_now(held)
        self._held = []
        unfinished = [*self._running, *(one for _, one in self._announced if not one.is_over)]
        yield from self._end(ModelFinished(usage, reason, cut=reason == "max_tokens"))
        for report in unfinished:
            self.end(report)
            message = f"{self._name} ended its turn and did not say what came of this."
            yield CallNews(report.id, result=ToolResult(report.id, report.name, (Text(message),), "interrupted"))

    def _new(self, key: str) -> "CallReport":
        if len(self._calls) >= bounds.CALLS:
            raise ProviderError(f"{self._name} made over {bounds.CALLS} calls for one prompt and was stopped.")
        self._calls[key] = CallReport(self._fresh(key), folder=self._folder)
        return self._calls[key]

    def _merge(self, report: CallReport, update: Any) -> None:
        report.merge(update)
        self._count(report.size())

    def _is_announced(self, report: "CallReport") -> bool:
        return any(one is report for _, one in self._announced)

    def _end(self, step_end: ModelFinished) -> Iterator[News]:
        yield from self._end_part()
        for index, report in self._announced:
            yield PartFinished(index, report.call())
        self._running += [one for _, one in self._announced if not one.is_over]
        self._announced, self._index, self._message = [], 0, None
        yield step_end

    def _text(self, kind: Literal["text", "reasoning"], update: Any) -> Iterator[News]:
        text = text_of(update)
        if not text:
            return
        self._count(len(text))
        yield from self.close()
        message, before = update.message_id, self._message
        if self._open is not None and self._open[0] != kind:
            yield from self._end_part()
        elif self._open is not None and message != before and None not in (message, before):
            text = f"\n\n{text}"
        self._message = message
        if self._open is None:
            self._open = (kind, [])
            yield PartStarted(self._index, kind)
        self._open[1].append(text)
        yield PartDelta(self._index, text)

    def _end_part(self) -> Iterator[News]:
        if self._open is not None:
            kind, pieces = self._open
            text = "".join(pieces)
            yield PartFinished(self._index, Text(text) if kind == "text" else Reasoning(text))
            self._open = None
            self._index += 1

    def _announce(self, report: "CallReport", *, beside: bool = False) -> Iterator[News]:
        # While the user is asked about a call, it does not run, so a new call is not inside it. If the call is denied,
        # the new call belongs to the next step.
        if any(one.is_asked for one in self._running):
            self._held.append(report)
            return
        # Calls that were held together began beside each other, so they are all put into the outermost running call.
        running = [one for one in self._running if not one.tool]
        parent = next(iter(running if beside else reversed(running)), None)
        # A call that would be too deep could never be carried out. The calls around a running one still take calls.
        while parent is not None and parent.depth >= DEEPEST_INNER:
            parent = parent.parent
        # A call inside a running call must begin now, because the running call may need its result. Calls of
        # agentmagic tools never wait for another call of the agent: while only such calls run, a new call waits for
        # the next step.
        if parent is not None:
            report.parent = parent
            self._running.append(report)
            yield LateCall(report.call(), parent.id)
            return
        yield from self._announce_now(report)

    def _announce_now(self, report: "CallReport") -> Iterator[News]:
        yield from self._end_part()
        self._announced.append((self._index, report))
        yield PartStarted(self._index, "tool_call", report.name)
        self._index += 1

    def _tool_of(self, update: Any) -> str:
        """Return the name of the agentmagic tool that the agent calls, "" for an action of its own."""
        name = value_at(update.field_meta, self._agent.tool_field) if self._agent.tool_field else ""
        return next((tool for tool in self._tools if name == self._agent.tool_name(SERVER, tool)), "")

    def _match_report(self, report: "CallReport") -> bool:
        """Return whether the reported call came over MCP before the report. If so, it no longer counts as unmatched."""
        arguments = report.call().arguments
        same = [one for one in self._unmatched if one.name == report.tool]
        match = next((one for one in same if one.arguments == arguments), same[0] if same and not arguments else None)
        if match is None:
            return False
        self._unmatched.remove(match)
        return True

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._characters > bounds.TEXT:
            raise ProviderError(f"{self._name} sent over {bounds.TEXT:,} characters for one prompt and was stopped.")


def usage_of(response: "schema.PromptResponse", dollars: float | None) -> Usage:
    """Return the usage of a prompt, as far as the agent reports it; `dollars` is None if the cost is unknown."""
    usage = response.usage
    if usage is None:
        return Usage(requests=1, cost=dollars)
    cache_reads, cache_writes = usage.cached_read_tokens or 0, usage.cached_write_tokens or 0
    return Usage(
        input_tokens=usage.input_tokens + cache_reads + cache_writes,
        cached_tokens=cache_reads,
        output_tokens=usage.output_tokens,
        reasoning_tokens=min(usage.thought_tokens or 0, usage.output_tokens),
        requests=1,
        cost=dollars,
        cache_write_tokens=cache_writes,
    )
