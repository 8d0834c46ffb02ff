"""Records or replays one turn: wraps the model, the toolsets and the questions to the user of the turn."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from agentmagic import traces
from agentmagic.approval.approvals import Ask
from agentmagic.classroom import OFFLINE_MODES
from agentmagic.errors import CassetteError, ReplayMismatch, ServerError, describe
from agentmagic.events import (
    SERVED,
    AgentOption,
    ApprovalAsked,
    Event,
    Intent,
    Notice,
    PromptValue,
    QuestionAsked,
    ToolFinished,
    TurnFinished,
)
from agentmagic.loop.planning import LONGEST_RESULT, LONGEST_SUMMARY
from agentmagic.loop.turn import Channel, Outcome, run_turn
from agentmagic.loop.turn_context import TurnContext
from agentmagic.loop.turn_options import PlayTurn
from agentmagic.messages import HostedTool, Message, ToolCall, ToolDef, ToolResult, Usage
from agentmagic.providers.base import (
    Advising,
    FewTools,
    Model,
    ModelEvent,
    ModelFinished,
    ModelSettings,
    Preparing,
    Request,
    honoured_settings,
    hosts,
)
from agentmagic.providers.registry import address_of, usage_with_cost
from agentmagic.replay import unasked
from agentmagic.replay.agent_tape import ask_agent
from agentmagic.replay.bound_values import recorded_changes
from agentmagic.replay.cassette import prompt_parts
from agentmagic.replay.comparison import ABSENT, Difference, Known, RequestRecords, compare_results, is_cosmetic
from agentmagic.replay.exchange import Json, blank_secrets
from agentmagic.replay.map_tape import RecordedModel
from agentmagic.replay.player import COSMETIC, Player, Verdict, both_values, mismatch
from agentmagic.replay.recorded_answers import Answer
from agentmagic.replay.recorder import DIGEST, Calls, Place, TurnRecorder
from agentmagic.replay.taped_tools import on_tape_toolsets, real_tool
from agentmagic.secrets import redact
from agentmagic.serialization import from_json
from agentmagic.settings import Replay
from agentmagic.text import clip
from agentmagic.tools.base import (
    Tool,
    ToolContext,
    Toolset,
)
from agentmagic.tools.notebook.proposals import FATES, is_report

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

GOES_ON = "The recorded answers go on."
EMPTY = "(empty)"
"""The text for an empty result in a request in which a model checks the result of a task."""


class KnownResults:
    """Tool results that were reported as different from the recording.

    `calls` has the ids of their calls, and `texts` the recorded and the new text of each.

    `edited` is True once an edit of the recording was reported, because all later requests contain the edit too.
    """

    def __init__(self) -> None:
        self.edited = False
        self.calls: set[str] = set()
        self.texts: list[tuple[str, str]] = []

    def add(self, call_id: str, old: ToolResult, new: ToolResult) -> None:
        """Add a tool result that differs: as recorded, and as returned now."""
        self.calls.add(call_id)
        old_text, new_text = old.text, redact(new.text)
        pairs = [(old_text, new_text), (f"({old.status}):", f"({new.status}):")]
        pairs += [
            (clip(old_text.strip(), most, "..."), clip(new_text.strip(), most, "..."))
            for most in (LONGEST_RESULT, LONGEST_SUMMARY)
        ]
        self.texts += [(before or EMPTY, after or EMPTY) for before, after in dict.fromkeys(pairs) if before != after]

    def of(self, request: Request, recorded_prompt: str, prompt: str) -> Known:
        """Return the reported results that this request contains. The prompts are the turn's, as recorded and now."""
        texts = self.texts
        if redact(request.messages[-1].text) == prompt:  # the last message is the prompt, which quotes no results
            texts = []
        elif recorded_prompt != prompt and is_cosmetic(recorded_prompt, prompt):
            texts = [*texts, (recorded_prompt, prompt)]
        places = {
            (place, number)
            for place, message in enumerate(request.messages)
            for number, part in enumerate(message.parts)
            if isinstance(part, ToolResult) and part.call_id in self.calls
        }
        return Known(places, texts)


@dataclass(kw_only=True)
class TurnTape:
    """Records or replays one turn.

    `player` replays the turn, or is None if there is no recording. `record` creates a recorder when a request is not in
    the recording, or is None if the mode does not record. `real` creates the live model. `name` is the model's name.
    `records`, `verdicts` and `known` are shared by the session's turns. `settle` is called when the turn is over.
    """

    mode: Replay
    player: Player | None
    record: Callable[[], TurnRecorder] | None
    real: Callable[[], Model]
    name: str
    prompt: str
    values: Sequence[PromptValue]
    notices: deque[Notice]
    records: RequestRecords
    verdicts: list[Verdict]
    known: KnownResults
    settle: "Callable[[TurnTape], None]"

    def __post_init__(self) -> None:
        self.frozen = self.mode in ("replay", "replay-tools", "auto") and self.player is not None
        """Whether no tool runs: calls get their recorded results."""
        self.calls = Calls()
        self.sources: dict[int, Json] = {}
        self.tools_on_tape: dict[int, Tool] = {}  # the recorded or replayed tools, by `id()` of the real tool
        self.chosen_tools: Sequence[str] | None = None
        self.hosted_tools: dict[HostedTool, bool] = {}
        self._request_count = 0
        self._results: list[Difference] = []
        self._compared_count = 0
        self._ended_places: set[Place] = set()
        """The places of the calls that have ended."""
        self.recorder = self.record() if self.player is None and self.record is not None else None

    @property
    def project(self) -> Collection[str] | None:
        """The names of the project files in the recording; None if requests can go to a live model."""
        if self.mode not in OFFLINE_MODES:
            return None
        return () if self.player is None else tuple(file["file"] for file in self.player.project)

    @property
    def forked(self) -> bool:
        """Whether the turn was replayed up to a difference, and from there runs live and is recorded."""
        return self.player is not None and self.recorder is not None

    # -- the model -----------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model that the agent loop uses in this turn: it records the live model, or replays."""
        if self.player is None or self.mode == "replay-tools":
            real = self.real()
            return _PreparedModel(self, real) if isinstance(real, Preparing) else TapedModel(self, real)
        return TapedModel(self, None)

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether the recorded provider runs a hosted tool. For a new tool, mode `auto` can go live."""
        assert self.player is not None  # noqa: S101  (else the real model is asked)
        answer = self.player.hosts(tool)
        if answer is not None or self.mode != "auto" or self.record is None:
            return answer is not False  # True if the tool was not recorded: then the replay fails and names the tool
        here = hosts(self.real(), tool)
        if here and self.recorder is None:
            self._fork(1)  # go live before the user is asked to approve it
        return here

    async def stream(self, request: Request) -> "AsyncIterator[ModelEvent]":
        """Yield the answer to a request: the recorded answer, or the answer of the live model."""
        if self.player is not None and self.recorder is None and self.player.is_over:
            await self.player.stop()
        self._request_count += 1
        match = self._find(request, self._request_count)
        if match is not None and self.player is not None:
            async for event in self.player.events(match):
                yield event
            return
        model = self.real()
        answers = self._record_answer(request, model) if self.recorder is not None else model.stream(request)
        async with aclosing(cast("AsyncGenerator[ModelEvent]", answers)) as stream:
            async for event in stream:
                yield event

    def _find(self, request: Request, number: int) -> int | None:
        """Return the number of the request to play, or None to send it to the model. Raises ReplayMismatch."""
        if self.player is None or self.recorder is not None:
            return None
        if number == 1:
            self._warn_of_edits(self.player)
        if self.recorder is not None or self.mode == "replay-tools":
            return None
        prompt, record = self.prompt, self.records(request, self.name, self.values)
        match, differences = self.player.find(record, number, self.known.of(request, self.player.take.prompt, prompt))
        if match is not None and not differences and self.player.digest(match) != record.digest[:DIGEST]:
            self._warn_of_edited_request(match)
        others = [gap for gap in differences if gap.cause != COSMETIC]
        if self.mode == "replay-model" and match is not None and {gap.cause for gap in others} == {"tool result"}:
            self._warn(others)  # these tool results are of an earlier turn that was neither recorded nor replayed
            parts = [part for message in request.messages for part in message.parts]
            self.known.calls |= {part.call_id for part in parts if isinstance(part, ToolResult)}
            others = []
        new, self._compared_count = self._results[self._compared_count :], len(self._results)
        report = (*new, *(others or differences))
        cause = report[0].cause if report else "same"
        self.verdicts.append(Verdict(prompt, number, cause, report))
        if not others:
            return match
        if self.mode == "auto" and self.record is not None:
            self._fork(match)
            return None
        # In the error, put differences in earlier tool results first: they may be why this request differs.
        raise mismatch(self.player.cassette, self.player.take, number, [*self._results, *others], prompt)

    def _warn_of_edits(self, player: Player) -> None:
        """Warn of edits in the recording. If one is forbidden, mode `auto` goes live, others raise ReplayMismatch."""
        if not player.take.ended:
            where = f"Cell {clip(self.prompt, 60)!r}: its recording in {player.cassette.path.name} has no end"
            self.notices.append(Notice("warning", f"{where}, and is played as far as it goes. Record the cell again."))
        edits = player.take.edits
        self.known.edited = self.known.edited or bool(edits)
        self.verdicts += [Verdict(self.prompt, edit.step, "edited", (edit.difference,)) for edit in edits]
        if all(edit.minor for edit in edits):
            for edit in edits:
                where = f"Cell {clip(self.prompt, 60)!r}, step {edit.step}: {edit.difference.field} is not as recorded"
                self.notices.append(
                    Notice("warning", f"{where} {both_values(edit.difference)} It is played as it stands.")
                )
        elif self.mode == "auto":
            self._fork(1)
        else:
            differences = [edit.difference for edit in edits]
            raise mismatch(player.cassette, player.take, edits[0].step, differences, self.prompt)

    def _warn_of_edited_request(self, number: int) -> None:
        """Warn once that a recording without `check` digests was edited. The digest of a request shows this."""
        if not self.known.edited:
            where = f"Cell {clip(self.prompt, 60)!r}, step {number}: the recording was edited"
            message = f"{where}, in an answer or a result before this request. It is played as it stands."
            self.notices.append(Notice("warning", message))
        self.known.edited = True

    def _compare(self, event: ToolFinished) -> None:
        """Warn if the result of a tool call that really ran differs from the recorded result."""
        call, place = self.calls.running.get(event.result.call_id), self.calls.places.get(event.result.call_id, ())
        assert self.player is not None  # noqa: S101  (of the caller)
        result = None if call is None else self.player.recorded_result(place, call)
        if result is not None and (differences := compare_results(result, event.result)):
            self.known.add(event.result.call_id, result, event.result)
            self._warn(differences)

    def _warn(self, differences: Sequence[Difference]) -> None:
        """Warn the user about tool results that differ from the recording, and add them to the next verdict."""
        self._results += differences
        for difference in differences:
            where = (
                f"Cell {clip(self.prompt, 60)!r}, step {self._request_count + 1}: {difference.field} is not as recorded"
            )
            self.notices.append(Notice("warning", f"{where} {both_values(difference)} {GOES_ON}"))

    def _fork(self, number: int | None) -> None:
        """Use the live model from this request on. Record the turn again: first copy what is recorded before it."""
        assert self.player is not None  # noqa: S101  (only what is played can fork)
        self._go_live(self.player.before(number))

    def _go_live(self, before: Sequence[tuple[Json, Json]]) -> None:
        """Use the live model from now on, and record the turn again: first copy the documents in `before`."""
        assert self.record is not None  # noqa: S101  (only a mode that records goes on live)
        self.recorder = self.record()
        self.recorder.copy(before)
        self.frozen = False

    async def _record_answer(self, request: Request, model: Model) -> "AsyncIterator[ModelEvent]":
        recorder = self.recorder
        assert recorder is not None  # noqa: S101  (the caller has looked)
        recorder.tools([self.sources[index] for index in sorted(self.sources)], self.chosen_tools, self.hosted_tools)
        number = recorder.request(request, self.records(request, self.name, self.values).digest[:DIGEST])
        answer = Answer()
        try:
            async with aclosing(cast("AsyncGenerator[ModelEvent]", model.stream(request))) as stream:
                async for event in stream:
                    counted_event = event
                    if isinstance(event, ModelFinished):
                        counted_event = replace(event, usage=usage_with_cost(model, event.usage))
                    answer.feed(counted_event)
                    yield counted_event
        except BaseException as error:
            usage = getattr(error, "usage", None)
            if usage is not None:
                cast("Any", error).usage = usage_with_cost(model, usage)
            answer.fail(error, model.name)
            raise
        finally:
            recorder.answer(number, answer.document())

    async def rest(self, seconds: float) -> None:
        """Wait before a failed request is sent again. A replay waits only if it runs at the recorded speed."""
        if self.recorder is not None:
            self.recorder.wait(seconds)
        if self.recorder is not None or self.player is None or self.player.timed:
            await asyncio.sleep(seconds)

    def with_recorded_fates(self, prompt: Message) -> Message:
        """Return the prompt. The part that says which proposed cells the user kept is taken from the recording."""
        if self.player is None or self.mode == "replay-tools":
            return prompt
        cassette, head = self.player.cassette, self.player.take.head
        fates = [from_json(cassette.restore(part)) for part in prompt_parts(head) if part.get("uri") == FATES]
        return replace(prompt, parts=(*(part for part in prompt.parts if not is_report(part)), *fates))

    # -- tools ---------------------------------------------------------------------------------

    def toolsets(self, sources: Sequence[Toolset]) -> tuple[Toolset, ...]:
        """Return the toolsets, wrapped: their tool lists and calls are recorded, or come from the recording."""
        return on_tape_toolsets(self, sources, self.player.sources if self.player is not None and self.frozen else None)

    async def call(self, tool: Tool, source: Toolset, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a tool call, or in a replay return its recorded result.

        Raises ReplayMismatch if the replayed recording lacks the call.
        """
        place = self.calls.places.get(call.id, (0, 0))
        if tool.agent:
            return await ask_agent(self, tool, call, context, place)
        if self.frozen and self.player is not None:
            traces.drop()
            return await self.player.play_call(self.recorded_call(self.player, place, call), place, call, context)
        if self.recorder is not None:
            hear = partial(self.recorder.aside, call.id)
            context.overheard(hear)
            context.watch = partial(recorded_changes, context, context.watch, hear)
        try:
            return await (await real_tool(tool, source)).invoke(call, context)
        except ServerError as error:
            if self.recorder is not None:
                self.recorder.aside(call.id, "gone", describe(error))
            raise

    def recorded_call(self, player: Player, place: Place, call: ToolCall) -> Json:
        """Return the document of a tool call's recorded result. Raises ReplayMismatch if the call is not recorded."""
        document = player.result_of(place, self.calls.running.get(call.id, call))
        if document is None:
            call_list = ", ".join(player.call_lines) or ABSENT
            call_text = f"{call.name}({blank_secrets(call.arguments)})"
            difference = Difference("tool result", f"results.{call.name}", call_list, call_text)
            raise mismatch(player.cassette, player.take, place[0], [difference])
        return document

    def recorder_at(self, place: Place) -> TurnRecorder:
        """Return the turn's recorder. If the turn was replayed so far, first use the live model from this call on."""
        if self.recorder is None:
            assert self.player is not None  # noqa: S101  (else the turn is recorded from its beginning)
            self._go_live(self.player.before_call(place, self._ended_places))
        assert self.recorder is not None  # noqa: S101
        return self.recorder

    # -- what an outside agent does itself -----------------------------------------------------

    def requested(self, call: ToolCall, changed: bool, options: Sequence[AgentOption]) -> None:
        """Record that an agent in another process asked for permission for its call, offering these `options`.

        `changed` says whether the call is another one than the agent had reported.
        """
        if self.recorder is not None:
            place = self.calls.places.get(call.id, (0, 0))
            self.recorder.requested(call, place, options, changed=changed)

    def requests(self, call: ToolCall) -> Sequence[tuple[ToolCall, Sequence[AgentOption]]]:
        """Return the recorded permission requests for a call: what each was about, and the options it offered."""
        place = self.calls.places.get(call.id, (0, 0))
        return () if self.player is None else self.player.requests_for(call, place)

    def plan(self, entries: Sequence[Sequence[str]]) -> None:
        """Record the task plan of an agent that runs in another process: the text and the status of each entry."""
        if self.recorder is not None:
            self.recorder.write({"plan": [blank_secrets(list(entry)) for entry in entries]})

    def plans(self, *, settled: bool) -> Sequence[Sequence[Sequence[str]]]:
        """Return the task plans recorded in the last step before its first tool result or, if `settled`, after it."""
        return () if self.player is None else self.player.plans.get((self._request_count, settled), ())

    def late(self, words: str) -> None:
        """Record the sentence about what an outside agent sent after the end of its last turn."""
        if self.recorder is not None:
            self.recorder.write({"late": blank_secrets(words)})

    def late_words(self) -> str:
        """Return the sentence of `late` that was recorded after the last step, or ""."""
        return "" if self.player is None else self.player.late_words.get(self._request_count, "")

    # -- the user, and what happens ------------------------------------------------------------

    def ask(self, ask: Ask) -> Ask:
        """Return a function to use in place of `ask`: the user's answers are recorded, or come from the recording."""

        async def on_tape(question: ApprovalAsked | QuestionAsked) -> Intent | None:
            # Always ask the user whether files are trusted, as they may come with the cassette, and at pauses (`step`).
            if question.step or (isinstance(question, QuestionAsked) and question.files):
                return await ask(question)
            call = question.call.id if isinstance(question, ApprovalAsked) else ""
            place = self.calls.places.get(call, (0, 0))
            if self.frozen and self.player is not None:
                return await self.player.intent(question, place)
            intent = await ask(question)
            if self.recorder is not None:
                self.recorder.user_answer(question, intent, place)
            return intent

        return on_tape

    def process(self, event: Event) -> Event:
        """Record an event of the turn, or replace its data with recorded data. Return the event to emit."""
        self.calls.feed(event)
        if isinstance(event, ToolFinished):
            self._ended_places.add(self.calls.places.get(event.result.call_id, (0, 0)))
        if isinstance(event, ToolFinished) and self.mode == "replay-model" and self.player is not None:
            self._compare(event)
        if self.player is not None and self.recorder is None and self.mode != "replay-tools":
            played = self.player.recorded_event(event)
            if self.frozen and played is event and isinstance(event, ToolFinished) and event.result.status == "error":
                played = self.player.recorded_failure(self.calls.places.get(event.result.call_id, (0, 0)), event)
            event = played
        elif self.player is not None and self.frozen:
            event = self.player.recorded_call_event(event)
        if not isinstance(event, TurnFinished):
            return event if self.recorder is None else self.recorder.event(event, self.calls)
        if last := tuple(self._results[self._compared_count :]):
            self.verdicts.append(Verdict(self.prompt, self._request_count + 1, last[0].cause, last))
        try:
            try:
                event = event if self.recorder is None else self.recorder.event(event, self.calls)
            finally:  # settle even if the event cannot be recorded: before that, the file is not read again
                self.settle(self)
        except CassetteError as error:
            self.notices.append(Notice("warning", str(error)))  # too late for this turn: the next turn shows it
        return event

    async def play(self, turn: TurnContext, channel: Channel, run: PlayTurn = run_turn) -> Outcome:
        """Run the turn, recorded or replayed. The outcome has an error if a recorded request was not played."""
        if self.player is not None and (task := asyncio.current_task()) is not None:
            self.player.halt = task.cancel
        on_tape = replace(channel, ask=self.ask(channel.ask), ask_inside=channel.ask_inside or channel.ask)
        outcome = await run(replace(turn, tape=self.process), on_tape)
        whole = outcome.error is None and outcome.result.stop_reason != "cancelled"  # False if stopped by the user
        if whole and (error := self.unplayed_error()) is not None:
            error.result = outcome.result
            outcome = replace(outcome, error=error)
        if isinstance(outcome.error, ReplayMismatch) and self.player is not None:
            unasked.note_failure(self.player.cassette)
        return outcome

    def unplayed_error(self) -> ReplayMismatch | None:
        """Return an error if the replayed turn ended before all recorded requests were played, or None otherwise."""
        player = self.player
        if player is None or self.recorder is not None or self.mode != "replay" or not player.unplayed_count:
            return None
        count = len(player.requests) - player.unplayed_count
        difference = Difference("order", "requests", f"{len(player.requests)} requests", f"{count} requests")
        return mismatch(player.cassette, player.take, count, [difference])


class TapedModel(RecordedModel):
    """The model in a recorded or replayed turn. `real` is the live model, or None if the recording answers."""

    def __init__(self, tape: TurnTape, real: Model | None) -> None:
        head = {} if tape.player is None else tape.player.take.head
        super().__init__(tape.name if real is None else real.name, head)
        self.base_url = head.get("address") if real is None else address_of(real)
        self._advice = str(head.get("advice", ""))
        self._tape = tape
        self.real = real

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model honours, or honoured in the recording."""
        if self.real is not None:
            return honoured_settings(self.real, settings).given
        return super().honours(settings)

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether the provider runs a hosted tool itself, or did so in the recording."""
        here = self._tape.hosted_tools[tool] = self._tape.hosts(tool) if self.real is None else hosts(self.real, tool)
        return here

    def advice(self) -> str:
        """Return a sentence of advice for the user, which comes from the model or the recording."""
        if self.real is None:
            return self._advice
        return self.real.advice() if isinstance(self.real, Advising) else ""

    def choose(self, tools: Sequence[ToolDef], question: str) -> Sequence[ToolDef]:
        """Return the tools that the model selects for a question, or selected in the recording."""
        player = self._tape.player
        if self.real is None and player is not None:
            return [tool for tool in tools if player.chosen_tools is None or tool.name in player.chosen_tools]
        if not isinstance(self.real, FewTools):
            return tools
        choice = self.real.choose(tools, question)
        self._tape.chosen_tools = [tool.name for tool in choice]
        return choice

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request, which comes from the live model or the recording."""
        return self._tape.stream(request)

    def price_usage(self, usage: Usage) -> Usage:
        """Return the usage unchanged: it has its cost already. A tool call by an MCP client has no usage."""
        return Usage() if self.name.startswith(SERVED) else usage

    @property
    def live(self) -> bool:
        """Whether the last request was sent to a live model."""
        return self.real is not None or self._tape.forked

    async def rest(self, seconds: float) -> None:
        """Wait before a failed request is sent again."""
        await self._tape.rest(seconds)


class _PreparedModel(TapedModel):
    async def prepare(self) -> None:
        """Load the live model, for example from its file."""
        await cast("Preparing", self.real).prepare()
