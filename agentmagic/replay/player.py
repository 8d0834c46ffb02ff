"""Replays one turn: each request is compared with the recorded request, then gets the recorded answer."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, cast

from agentmagic import errors
from agentmagic.errors import BadRequest, CassetteError, ProviderError, ReplayMismatch, ToolError, TurnTimeout, describe
from agentmagic.events import (
    AgentOption,
    ApprovalAsked,
    Approve,
    CellProposed,
    Deny,
    Event,
    Intent,
    QuestionAsked,
    Reply,
    StepFinished,
    ToolFinished,
    TurnFinished,
)
from agentmagic.host import current_host
from agentmagic.loop.budgets import BudgetExhausted
from agentmagic.messages import HostedTool, ToolCall, ToolResult
from agentmagic.providers.base import ModelEvent, ModelSettings, Request
from agentmagic.replay.bound_values import REPLAY_MODEL, describe_lost, lost_variables, restore_variables
from agentmagic.replay.cassette import Cassette, Take
from agentmagic.replay.checks import MEND
from agentmagic.replay.comparison import ABSENT, Difference, Known, RequestRecord, RequestRecords, compare, record_line
from agentmagic.replay.exchange import (
    Json,
    blank_secrets,
    call_of,
    calls_of,
    hosted_of,
    kind_of,
    message_of,
    request_of,
)
from agentmagic.replay.inner_calls import InnerCalls
from agentmagic.replay.inner_takes import inner_takes
from agentmagic.replay.recorded_answers import model_events, usage_of
from agentmagic.replay.recorder import DIGEST, Place, place_of
from agentmagic.serialization import from_json, same_json
from agentmagic.text import clip, single_line
from agentmagic.tools.base import ToolContext

COSMETIC = "cosmetic"
UNDO_ADVICE = "Undo the change to keep the recording."
RESET_ADVICE = "To keep the recording, run %agent reset and then the cells from the top, each once."
RECORD_ADVICE = (
    "To record the cell anew, run it with %agent record (AGENTMAGIC_REPLAY=record); to go on live, %agent auto."
)
APPROVAL_PASSES = 20
"""Passes of the event loop that a call without a recorded approval waits, because an "always" may come to cover it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a request compares to its recording. `step` is the request's number. `cause` is "same" if it is equal."""

    prompt: str
    step: int
    cause: str
    differences: tuple[Difference, ...] = ()


class Player:
    """Replays one recorded turn (`take`). If `timed`, answers and tool calls take as long as in the recording."""

    def __init__(self, cassette: Cassette, take: Take, *, timed: bool = False) -> None:
        self.take = take
        self.timed = timed
        self.cassette = cassette
        self.requests: list[Json] = []
        self._answers: dict[int, Json] = {}
        self._waits: dict[int, float] = {}
        self._results: dict[Place, Json] = {}
        self._inner = InnerCalls()
        self._ranks: dict[Place, int] = {}
        self._approvals = defaultdict[Place, deque[Json]](deque)
        self._asked = defaultdict[Place, list[Json]](list)
        self._questions = defaultdict[str, deque[Json]](deque)
        self._played_numbers: set[int] = set()
        self._used_ids: set[int] = set()
        self._end: Json = {}
        self._recorded_ends: dict[str, ToolFinished] = {}
        self.plans = defaultdict[tuple[int, bool], list[Any]](list)
        """The plans of an outside agent. Key: the number of the answer before, and whether a result followed it."""
        self.late_words: dict[int, str] = {}
        """What an outside agent sent after its last turn, as a sentence. The key is the number of the answer before."""
        for document in take.documents:
            self._sort(document)
        self.halt: Callable[[], object] = lambda: None
        self._seconds = deque(cast("list[float]", self._end.get("steps", [])))
        self._is_paced = False
        """Whether an answer of the running step has got the seconds of the step."""

    def _sort(self, document: Json) -> None:  # noqa: C901  (one arm for each kind of document)
        match document:
            case {"request": str()}:
                self.requests.append(document)
            case {"wait": int() | float() as seconds}:
                self._waits[len(self.requests)] = seconds
            case {"approval": _}:
                self._approvals[place_of(document)].append(document)
            case {"asked": str()}:
                self._asked[place_of(document)].append(document)
            case {"inner": str(), "arguments": dict()}:
                self._inner.add(document)
            case {"question": str() as text}:
                self._questions[blank_secrets(text)].append(document)
            case {"result": str()}:
                self._ranks[place_of(document)] = len(self._results)
                self._results[place_of(document)] = document
            case {"plan": list()} | {"late": str()}:
                self._sort_outside(document)
            case {"end": str()}:
                self._end = document
            case {"answer": _}:
                self._answers[document.get("to", len(self.requests))] = document
            case _:
                pass

    def _sort_outside(self, document: Json) -> None:
        step = len(self._answers)
        if "late" in document:
            self.late_words[step] = document["late"]
        else:
            self.plans[step, any(place[0] == step for place in self._results)].append(document["plan"])

    def _where(self, document: Json) -> str:
        return f"{self.cassette.path.name}, {self.take.prompt!r:.60}, {next(iter(document), '')}:"

    # -- requests ------------------------------------------------------------------------------

    def find(
        self, new_record: RequestRecord, number: int, known: Known | None = None
    ) -> tuple[int | None, tuple[Difference, ...]]:
        """Return the number of an equal recorded request, or else of the next one not played, and its differences.

        The number is None if none is left. `known` differences are left out. If only digests differ, it was edited.
        """
        remaining = [one for one in range(1, len(self.requests) + 1) if one not in self._played_numbers]
        match = next((one for one in remaining if self.digest(one) == new_record.digest[:DIGEST]), None)
        if match is not None:
            self._played_numbers.add(match)
            return match, ()
        if not remaining:
            if not self.take.ended:
                raise CassetteError(self.break_message)
            there = f"{len(self.requests)} requests"
            return None, (Difference("order", "requests", there, f"request {number}"),)
        self._played_numbers.add(remaining[0])
        old_records = (record for _, record in records(self.cassette, self.take))
        return remaining[0], compare(next(islice(old_records, remaining[0] - 1, None)), new_record, known)

    def digest(self, number: int) -> str:
        """Return the recorded digest of a request."""
        return self.requests[number - 1]["request"]

    def before(self, number: int | None) -> list[tuple[Json, Json]]:
        """Return the recorded documents before a request, each with what `Chain.feed` returns for it."""
        pairs: list[tuple[Json, Json]] = []
        request = None if number is None else self.requests[number - 1 : number]
        for document, whole in self.cassette.requests(self.take, self.cassette.chain_to(self.take.base)):
            if "end" in document or (request and document is request[0]):
                break
            pairs.append((document, whole))
        return pairs

    def before_call(self, place: Place, ended_places: Collection[Place]) -> list[tuple[Json, Json]]:
        """Return pairs like `before`: for documents before a step's tool calls, and those of its calls that ended."""
        pairs: list[tuple[Json, Json]] = []
        answers = 0
        for document, whole in self.cassette.requests(self.take, self.cassette.chain_to(self.take.base)):
            if "end" in document or (kind_of(document) == "request" and answers == place[0]):
                break
            answers += kind_of(document) == "answer" and "error" not in document
            if document.get("step") != place[0] or place_of(document)[:2] in ended_places:
                pairs.append((document, whole))
        return pairs

    @property
    def break_message(self) -> str:
        """The error message for a recording that breaks off: its documents end before the turn ended."""
        return (
            f"The recording of {self.take.prompt!r:.60} in {self.cassette.path.name} breaks off after request "
            f"{len(self._answers)}: its kernel was killed, or the file was cut. Record the cell again: %agent record"
        )

    @property
    def unplayed_count(self) -> int:
        """The number of recorded requests that were not played."""
        return len(self.requests) - len(self._played_numbers)

    async def events(self, number: int) -> AsyncIterator[ModelEvent]:
        """Yield the events of the answer to a recorded request. If the answer ended with an error, raise the error."""
        answer = self._answers.get(number)
        if answer is None:
            if self.take.ended:
                await self.stop()
            raise CassetteError(self.break_message)
        try:
            events = list(model_events(answer, self.cassette.restore))
            failure = self._error(answer["error"], self._waits.get(number)) if "error" in answer else None
        except (ValueError, KeyError, TypeError, IndexError) as error:
            where = f"{self.cassette.path.name}: answer {number} to {self.take.prompt!r:.60}"
            message = f"{where} cannot be read: {_brief(error)}. Undo the edit, or record it again."
            raise CassetteError(message) from None
        pause = self._seconds_of(number) / len(events) if self.timed and events and failure is None else 0
        for event in events:
            await asyncio.sleep(pause)  # also for 0 seconds, so that the turn can be cancelled
            yield event
        if failure is not None:
            raise failure
        if answer.get("stopped"):
            await self.stop()

    def _seconds_of(self, number: int) -> float:
        """Return how long the answer to a request takes: the seconds of the running step, without its waits.

        The first answer of a step takes all of them.
        """
        if not self._seconds or self._is_paced:
            return 0
        self._is_paced = True
        failed = takewhile(lambda one: "error" in self._answers.get(one, ()), range(number - 1, 0, -1))
        return max(self._seconds[0] - sum(self._waits.get(one, 0) for one in failed), 0)

    def _error(self, data: Mapping[str, Any], wait: float | None) -> ProviderError:
        kind: Any = getattr(errors, data["kind"], None)
        is_class = isinstance(kind, type) and issubclass(kind, ProviderError)
        error = kind(data["text"]) if is_class else ProviderError(data["text"])
        error.status = data.get("status")
        error.retry_after = data.get("retry_after") if wait is None else wait
        error.retryable = data.get("retryable", False)
        error.mended = data.get("mended", "")
        error.usage = usage_of(data["usage"]) if "usage" in data else None
        return error

    async def stop(self) -> None:
        """End the turn as the recorded turn ended here: by its time limit, by a budget, or by the user."""
        match self._end.get("end"):
            case "timeout":
                raise TurnTimeout(self._end.get("error", ""))
            case "budget":
                raise BudgetExhausted(self._end.get("error", ""))
            case _:
                pass
        self.halt()
        await asyncio.Event().wait()

    @property
    def is_over(self) -> bool:
        """Whether the recorded turn ended at this point, by its time limit or by the user."""
        return not self.unplayed_count and self._end.get("end") in ("timeout", "cancelled")

    @property
    def sources(self) -> list[Json]:
        """The tool lists of the recorded turn, one for each toolset."""
        return list(self.cassette.sources(self.take))

    @property
    def project(self) -> Sequence[Json]:
        """The project files in the turn's requests. Files that did not change are stored with an earlier turn."""
        take: Take | None = self.take
        while take is not None:
            lists: list[Sequence[Json] | None]
            lists = [entry["project"] for entry in take.documents if "request" in entry and "project" in entry]
            if lists:
                return next((files for files in lists if files), ())
            take = take.base
        return ()

    @property
    def chosen_tools(self) -> list[str] | None:
        """The names of the tools that the model chose to be offered, or None if it did not choose."""
        return self._listing.get("chosen")

    def hosts(self, tool: HostedTool) -> bool | None:
        """Return whether the recorded turn's provider runs a hosted tool; None if the turn had no tool of that name.

        If the turn had the tool only with other limits, return whether the provider runs the tool with those limits.
        """
        entries = self._hosted_entries(tool.name)
        same = [entry for entry in entries if hosted_of(entry) == tool]
        return any("missing" not in entry for entry in same or entries) if entries else None

    def _hosted_entries(self, name: str) -> list[Json]:
        """Return the recorded entries for a provider-hosted tool of this name: one for each combination of limits."""
        return [entry for entry in self._listing.get("hosted", ()) if entry["name"] == name]

    @property
    def _listing(self) -> Json:
        """The document with the tools of the turn; {} if the turn ended before its tools were listed."""
        documents = [document for document in self.take.documents if "sources" in document]
        return documents[-1] if documents else {}

    @property
    def call_lines(self) -> list[str]:
        """The recorded tool calls, each as one line."""
        return [f"{document['result']}({self.arguments(document)})" for document in self._results.values()]

    # -- tools and the user --------------------------------------------------------------------

    def recorded_result(self, place: Place, call: ToolCall) -> ToolResult | None:
        """Return the recorded result of a tool call that really ran in this replay, or None if its place has none."""
        document = self._results.get(place)
        return None if document is None or document["result"] != call.name else self.end_event(document, call).result

    def result_of(self, place: Place, call: ToolCall) -> Json | None:
        """Return the recorded result of an equal tool call, preferably at this place in the turn, or None."""
        if place in self._inner.repeats:
            return self._inner.repeats[place]
        candidates = (self._results.get(place), *self._results.values())
        same = [document for document in candidates if document is not None and self._same(document, call)]
        fresh = [document for document in same if id(document) not in self._used_ids]
        result = (fresh or same or [None])[0]
        self._used_ids.add(id(result))
        return result

    def _same(self, result: Json, call: ToolCall) -> bool:
        return result["result"] == call.name and same_json(
            blank_secrets(self.arguments(result)), blank_secrets(call.arguments)
        )

    def arguments(self, result: Json) -> Any:
        """Return the arguments of the recorded tool call that has this result."""
        before = takewhile(lambda document: document is not result, self.take.documents)
        answers = [document for document in before if kind_of(document) == "answer"]
        return call_of(result, calls_of(answers[-1]) if answers else ())["arguments"]

    def requests_for(self, call: ToolCall, place: Place) -> list[tuple[ToolCall, Sequence[AgentOption]]]:
        """Return the recorded permission requests of an outside agent for a call, each with the options it offered.

        A recording of an earlier version has only the decision about a call, which stands for one request.
        """
        recorded_place = self._inner.recorded_place(place)
        if documents := self._asked.get(recorded_place):
            return [_requested(call, document) for document in documents]
        was_decided = self._approvals.get(recorded_place) or not self._results.get(recorded_place, {}).get("ran", True)
        return [(call, ())] if was_decided else []

    async def play_call(self, document: Json, place: Place, call: ToolCall, context: ToolContext) -> ToolResult:
        """Repeat what a recorded tool call did: messages, questions, changed variables. Return its recorded result."""
        await self._inner.wait(place)
        for _ in range(self._ranks.get(place_of(document), 0) + 1):
            await asyncio.sleep(0)  # let all calls of a step begin first, then end in recorded order
        try:
            inner = self._inner.of_tool(document, place, context)
        except ValueError:
            raise CassetteError(f"{self._where(document)} calls that it made are missing. {MEND}") from None
        try:
            event = self.end_event(document, call)
        except (ValueError, KeyError, TypeError, AttributeError):
            message = f"{self._where(document)} something is missing or has another form. {MEND}"
            raise CassetteError(message) from None
        self._recorded_ends[call.id] = event
        ends = asyncio.get_running_loop().time() + event.seconds * self.timed
        for aside in document.get("asides", ()):
            match aside:
                case ["variables", dict()] if variables := lost_variables(aside[1]):
                    raise self._lost_error(variables, place[0], call)
                case ["inner", int() as count]:
                    if (difference := await inner.play(count)) is not None:
                        raise mismatch(self.cassette, self.take, place[0], [difference])
                case _:
                    await _repeat_aside(aside, context)
        await asyncio.sleep(ends - asyncio.get_running_loop().time())
        if document.get("status") == "interrupted":
            await self.stop()
        return event.result

    def _lost_error(self, variables: Mapping[str, str], step: int, call: ToolCall) -> ReplayMismatch:
        """Return the error for a tool call that changed variables whose values could not be recorded."""
        cell, file = f"Cell {clip(self.take.prompt, 60)!r}, step {step}", self.cassette.path.name
        message = f"{cell}: {call.name} changed {describe_lost(variables)}, which is not in {file}. {REPLAY_MODEL}"
        differences = [Difference("tool result", f"variables.{name}", kind, ABSENT) for name, kind in variables.items()]
        return ReplayMismatch(message, differences)

    def end_event(self, document: Json, call: ToolCall) -> ToolFinished:
        """Return the event that ends a tool call, with the result and the duration from the recorded `document`."""
        fields = {name: document[name] for name in ("status", "structured", "done", "server") if name in document}
        content = [{"type": "text", "text": document["text"]}] if "text" in document else document.get("content", [])
        data = {"type": "tool_result", "call_id": call.id, "name": call.name, "content": content, **fields}
        result: ToolResult = from_json(self.cassette.restore(data))
        rich = tuple(map(str, document.get("rich", ())))  # unsafe HTML; it is sanitised when it is displayed
        return ToolFinished(result, float(document.get("seconds", 0.0)), document.get("traceback", ""), rich)

    def recorded_failure(self, place: Place, event: ToolFinished) -> ToolFinished:
        """Return the end of a call that failed before its tool ran, as recorded if the recorded call failed too.

        The reason can hold the words of a library, which differ between versions of the library, and in a browser.
        """
        recorded = self.recorded_result(place, ToolCall(event.result.call_id, event.result.name, {}))
        return event if recorded is None or recorded.status != event.result.status else replace(event, result=recorded)

    async def intent(self, question: ApprovalAsked | QuestionAsked, place: Place) -> Intent | None:
        """Return the user's recorded answer, or None. A call without an answer is approved if the recorded call ran."""
        if isinstance(question, QuestionAsked):
            answers = self._questions.get(blank_secrets(question.text))
            answer = answers.popleft()["answer"] if answers else None
            return None if answer is None else Reply(question.id, answer)
        if not (approvals := self._approvals.get(self._inner.recorded_place(place))):
            if question.hosted:  # when this was recorded, an "always" answer or a rule decided, not the user
                return Deny(question.id) if self._was_denied(question.call.name) else Approve(question.id)
            for _ in range(APPROVAL_PASSES):
                await asyncio.sleep(0)
            result = self._inner.repeats.get(place) or self._results.get(place)
            ran = result is not None and result.get("ran", True)
            return Approve(question.id) if ran else None
        document = approvals.popleft()
        match document.get("answer"):
            case "yes" | "always" as word:
                arguments, option = document.get("arguments"), document.get("option", "")
                return Approve(question.id, word == "always", arguments, "" if word == "always" else option)
            case "no":
                return Deny(question.id, document.get("reason", ""), document.get("option", ""))
            case _:
                return None

    def _was_denied(self, name: str) -> bool:
        """Return whether the recorded turn could have offered a provider-hosted tool of this name, but did not."""
        wholes = self.cassette.requests(self.take, self.cassette.chain_to(self.take.base))
        in_request = any(tool["name"] == name for _, whole in wholes for tool in whole.get("hosted") or ())
        return bool(self._hosted_entries(name)) and not in_request

    def recorded_event(self, event: Event) -> Event:
        """Return an event of the replay with its recorded duration. The end of a tool call gets the recorded result."""
        match event:
            case StepFinished() if self._seconds:
                self._is_paced = False
                return replace(event, seconds=self._seconds.popleft())
            case TurnFinished(result=result) if "seconds" in self._end:
                return TurnFinished(replace(result, seconds=self._end["seconds"]))
            case _:
                return self.recorded_call_event(event)

    def recorded_call_event(self, event: Event) -> Event:
        """If the event ends a replayed tool call, return the recorded event. Return any other event unchanged."""
        match event:
            case ToolFinished(result=result):
                return self._recorded_ends.pop(result.call_id, event)
            case _:
                return event


def _requested(call: ToolCall, document: Json) -> tuple[ToolCall, Sequence[AgentOption]]:
    """Return the call that a recorded permission request is about, and the options that it offered."""
    options = [AgentOption(*option) for option in document.get("options", ())]
    return replace(call, name=document["asked"], arguments=document.get("arguments", call.arguments)), options


def is_incomplete(take: Take) -> bool:
    """Return whether a replay of this turn fails: a tool changed a variable that could not be recorded."""
    asides = (aside for document in take.documents for aside in document.get("asides", ()))
    own = any(aside[0] == "variables" and lost_variables(aside[1]) for aside in asides)
    return own or any(map(is_incomplete, inner_takes(take)))


def first_call(cassette: Cassette) -> Take | None:
    """Return the first turn of a session that began with a tool call by an MCP client of the notebook, or None."""
    firsts = {take.session: take for take in reversed(cassette.takes)}
    return next((take for take in reversed(firsts.values()) if take.head.get("served")), None)


def next_call(cassette: Cassette, takes: Sequence[Take]) -> tuple[str, ToolCall | None] | None:
    """Return the prompt and the call of the first recorded turn; None if it is not a tool call by an MCP client.

    Turns without an end are skipped. The call is None if the turn ended before its call.
    """
    calls = takewhile(lambda take: take.head.get("served"), takes)
    if (take := next((one for one in calls if one.ended), None)) is None:
        return None
    answers = (one for one in take.documents if kind_of(one) == "answer")
    data = next((call for answer in answers for call in calls_of(answer)), None)
    call = None if data is None else from_json(cassette.restore(data))
    return take.prompt, call if isinstance(call, ToolCall) else None


def records(cassette: Cassette, take: Take) -> Iterator[tuple[Json, RequestRecord]]:
    """Yield each recorded request of a turn, with its `RequestRecord`. Raises CassetteError for a bad request."""
    make_record, values = RequestRecords(), tuple(map(record_line, take.head.get("values", ())))
    for document, whole in cassette.requests(take, cassette.chain_to(take.base)):
        if kind_of(document) == "request":
            try:
                request = request_of(whole, cassette.restore)
            except (ValueError, KeyError, TypeError) as error:
                message = f"{cassette.path.name}: request {document['request']!r:.20} of {take.prompt!r:.60} "
                raise CassetteError(f"{message}cannot be read: {_brief(error)}. Record it again.") from None
            yield document, replace(make_record(request, str(take.head.get("model", ""))), values=values)


def all_records(cassette: Cassette, take: Take) -> Iterator[tuple[Json, RequestRecord]]:
    """Yield what `records` yields for a turn, and for the turns of agents that were called in it as tools."""
    yield from records(cassette, take)
    for inner in inner_takes(take):
        yield from all_records(cassette, inner)


class CassetteModel:
    """The model `cassette:FILE`: it answers a request from a cassette file, whichever model was recorded."""

    def __init__(self, path: str) -> None:
        self.name = f"cassette:{path}"
        self._path = path
        self._records = RequestRecords()

    def honours(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return the names of all settings that were given: this model ignores none of them."""
        return settings.given

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Yield the recorded answer. Raises BadRequest if the request is not on the cassette."""
        cassette = Cassette.at(self._path)
        prompt = next((one.text for one in reversed(request.messages) if one.role == "user"), "")
        turns = [take for take in cassette.takes if not take.is_map]
        for take in sorted(turns, key=lambda take: take.prompt != prompt):
            player = Player(cassette, take)
            record = self._records(request, str(take.head.get("model", "")))
            record = replace(record, values=tuple(map(record_line, take.head.get("values", ()))))
            match, differences = player.find(record, 1) if player.requests else (None, ())
            if match is not None and not [one for one in differences if one.cause != COSMETIC]:
                async for event in player.events(match):
                    yield event
                return
        nearest = ", ".join(repr(clip(take.prompt, 40)) for take in cassette.takes[:5]) or "none"
        message = f"The cassette {self._path} has no answer to this request. Its prompts: {nearest}."
        raise BadRequest(message)

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""


def make(path: str) -> CassetteModel:
    """Return a model that answers from a cassette file. Raises CassetteError if the file has no recording."""
    if not Cassette.at(path).takes:
        message = f"There is no recording in {path}. Write cassette:FILE, or record it: %agent record"
        raise CassetteError(message)
    return CassetteModel(path)


async def _repeat_aside(aside: Sequence[Any], context: ToolContext) -> None:
    match aside:
        case ["progress", done, total, words]:
            context.progress(done, total, words)
        case ["tell", words]:
            context.tell(words)
        case ["propose", dict()]:
            proposal = replace(cast("CellProposed", from_json(aside[1])), place="shown")
            notebook = current_host().notebook  # its front end may insert cells in another way than the recorded one
            context.propose(proposal if notebook is None else notebook.stage(proposal))
        case ["ask", question]:
            with suppress(ToolError):
                await context.ask(question)
        case ["complete", messages, instructions, limit]:
            conversation = [message_of(message, lambda data: data) for message in messages]
            with suppress(ToolError, ProviderError):
                await context.complete(conversation, instructions, max_tokens=limit)
        case ["variables", dict()]:
            await restore_variables(aside[1], context)
        case ["gone", words]:
            raise errors.ServerError(words)
        case _:
            pass


def mismatch(
    cassette: Cassette, take: Take, step: int, differences: Sequence[Difference], prompt: str = ""
) -> ReplayMismatch:
    """Return the error for a request that differs. It says where, shows both values, and what the user can do."""
    where = f"Cell {clip(prompt or take.prompt, 60)!r}, step {step}"
    if prompt and prompt != take.prompt:
        where += f" (nearest recording: {clip(take.prompt, 60)!r})"
    first, *others = differences
    sentences = [f"{where}: {first.field} is not as recorded in {cassette.path.name} {both_values(first)}"]
    sentences += [f"{other.field} is not either {both_values(other)}" for other in others]
    keep = RESET_ADVICE if (first.cause, first.field) == ("order", "history") else UNDO_ADVICE
    return ReplayMismatch(f"{' '.join(sentences)} {keep} {RECORD_ADVICE}", differences)


def both_values(difference: Difference) -> str:
    """Return the cause and both values of a difference, as text for a message."""
    values = f"Recorded: {difference.before!r}; now: {difference.after!r}."
    return f"(cause: {difference.cause}). {values}"


def _brief(error: Exception) -> str:
    return single_line(describe(error), 120).rstrip(".")
