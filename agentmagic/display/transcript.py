"""Turn the events of a session into blocks, from which renderers make HTML or text for the user.

The same events always make the same blocks, whether they come from a running turn or from a log. It makes no
difference whether the events include deltas (the pieces of a growing text) or only whole texts.
"""

import threading
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from itertools import count
from typing import TypeVar, get_args

from agentmagic import events
from agentmagic.display import words
from agentmagic.display.blocks import (
    FINAL_STATES,
    Block,
    ChecklistBlock,
    FooterBlock,
    GrowingBlock,
    NoticeBlock,
    Pieces,
    PrintoutBlock,
    ProgressBlock,
    PromptBlock,
    ProposalBlock,
    QuestionBlock,
    ReasoningBlock,
    RetryBlock,
    Snapshot,
    State,
    TextBlock,
    ToolCard,
    ValuesBlock,
)
from agentmagic.display.printout import Printout
from agentmagic.events import Event, MapProgress, PartKind
from agentmagic.messages import (
    HostedCall,
    HostedResult,
    Reasoning,
    ResultStatus,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    sources_of,
)
from agentmagic.plan import NOT_RUN, Checklist
from agentmagic.text import sanitize, single_line
from agentmagic.tools.server_names import shown_server

_ENDS: dict[ResultStatus, State] = {
    "ok": "done",
    "error": "failed",
    "timeout": "failed",
    "denied": "denied",
    "interrupted": "interrupted",
}

_KINDS: dict[type, PartKind] = {
    Text: "text",
    Reasoning: "reasoning",
    ToolCall: "tool_call",
    HostedCall: "hosted_call",
}
_BLOCKS: dict[PartKind, "type[_Part]"] = {
    "text": TextBlock,
    "reasoning": ReasoningBlock,
    "tool_call": ToolCard,
    "hosted_call": ToolCard,
}

LONGEST_LINE = 400
"""Characters that are shown of a prompt that the loop sends back to the model."""

_Part = TextBlock | ReasoningBlock | ToolCard
_TaskEvent = events.Planned | events.TaskStarted | events.TaskJudged | events.TaskFinished
_AnyBlock = TypeVar("_AnyBlock", bound=Block)


class Transcript:
    """The blocks that a stream of events makes.

    `blocks` grows as events are fed, and loses the blocks of a step that is tried again. `running` is the footer of the
    turn under way, or None; the footer joins the blocks when the turn ends. `approval_requests` has all requests for
    approval by their ids, also the answered ones. `price_told` says that a footer, here or in an earlier cell, showed
    that the price is unknown; later footers do not repeat that. Feeding a piece of a growing text takes constant time.

    The turn of an agent tool has a transcript of its own. `around` is then the outer transcript, which has the card of
    the call to that tool. Blocks of the two transcripts never have the same key.
    """

    def __init__(self, log: Iterable[Event] = (), around: "Transcript | None" = None) -> None:
        # A reentrant lock: a reader can hold it while calling several methods that take it too.
        self.lock = threading.RLock()
        self._around = around
        # `replace` does not restart these keys, so that the blocks of a new history get new keys.
        self.keys: Iterator[int] = count(1) if around is None else around.keys
        self.replace(log)

    def replace(self, log: Iterable[Event]) -> None:
        """Replace all blocks by those of other events, because the session was cleared, cut or forked."""
        with self.lock:
            self.blocks: list[Block] = []
            self.running: FooterBlock | None = None
            around = self._around
            self.approval_requests: dict[str, events.ApprovalAsked] = {} if around is None else around.approval_requests
            self.price_told: bool = around is not None and around.price_told
            self._turns = 0
            self._turn = 0
            self._client = ""
            self._asker = ""
            self._step = 0
            self._retry: RetryBlock | None = None
            self._parts: dict[int, _Part] = {}
            self._cards: dict[str, ToolCard] = {}
            self._inside: dict[int, Transcript] = {}
            self._questions: dict[str, QuestionBlock] = {}
            self._proposals: dict[str, ProposalBlock] = {}
            self._checklist = Checklist()
            self._plan: ChecklistBlock | None = None
            self._sent_back = False
            self._maps: dict[str, ProgressBlock] = {}
            for event in log:
                self.feed(event)

    def snapshot(self, before: Snapshot | None = None, *, finished: bool = False) -> Snapshot:
        """Return copies of the blocks; with `finished`, only those of turns that are over.

        A block that has not changed since the snapshot `before` is reused instead of copied.
        """
        with self.lock:
            end = self._turn if finished and self.running else len(self.blocks)
            return Snapshot(_copies(self.blocks[:end], before), None if finished else copy(self.running))

    def feed(self, event: Event | MapProgress) -> None:
        """Add one event."""
        with self.lock:
            if isinstance(event, events.PartDelta):  # checked first, because most events are such pieces of a text
                self._extend_part(event)
            else:
                self._take(event)

    def show(self, printout: Printout, line: str = "") -> None:
        """Add what a command has printed; `line` is the command if the user typed it."""
        with self.lock:
            self._add(PrintoutBlock(printout, line))

    def _take(self, event: Event | MapProgress) -> None:  # noqa: C901, PLR0912, PLR0915  (one arm for each event)
        match event:
            case events.TurnStarted():
                self._start_turn(event)
            case events.Working():
                self._enter(event.text)
            case events.StepStarted():
                self._start_step()
                self._enter(words.waiting(self.running))
            case events.PartStarted():
                if event.kind != "hosted_result":  # a hosted result is shown in its call's card
                    self._start_part(event)
            case events.PartFinished():
                self._finish_part(event)
            case events.StepRetried():
                self._withdraw_step()
                self._enter("waiting to try again")
                self._retry = self._add(RetryBlock(event.attempt, event.delay, event.error, event.tries, open=True))
            case events.StepFinished():
                self._finish_step(event)
            case events.TurnFinished():
                self._finish_turn(event)
            case events.InnerCall():
                self._card(event.call).inner = True
            case events.InnerEvent():
                self._take_inside(event)
            case events.ToolStarted():
                self._change(self._card(event.call, event.server), "running")
            case events.ToolProgress():
                self._tell_progress(event)
            case events.ToolFinished():
                self._finish_call(event)
            case events.ApprovalAsked():
                self.approval_requests[event.id] = event
                card = self._card(event.call, "" if event.hosted else event.server)
                card.step, card.effects, card.optional = event.step, event.effects, event.optional
                card.reason = event.reason
                card.fixed, card.client = event.fixed, self._asker or card.client
                card.hosted = card.is_question = event.hosted
                card.options, card.can_approve = event.own_options, event.can_approve
                card.once, card.exact = event.once, bool(event.options)
                self._change(card, "waiting", ask=event.id)
            case events.ApprovalGiven():
                self._settle_approval(event)
            case events.CallChanged():
                card = self._card(event.call)
                card.name = event.call.name
                card.version += 1
            case events.Routed() | events.PlanRejected():
                self._spend(event.usage)
            case events.Planned() | events.TaskStarted() | events.TaskJudged() | events.TaskFinished():
                self._change_plan(event)
            case events.PromptAdded():
                self._sent_back = True
                line = single_line(sanitize(event.prompt.text), LONGEST_LINE)
                self._add(NoticeBlock("info", f"Sent back to the model: {line}"))
            case events.PromptEdited():
                self._edit_prompt(event)
            case events.QuestionAsked():
                fields = {name: getattr(event, name) for name in ("suggested", "step", "choices", "plan", "files")}
                question = QuestionBlock(event.text, ask=event.id, **fields, open=True)
                self._questions[event.id] = self._add(question)
            case events.QuestionAnswered():
                self._answer(event)
            case events.CellProposed():
                self._proposals[event.id] = self._add(ProposalBlock(event))
            case events.ProposalSettled():
                self.settle_proposal(event)
            case events.PageDecision():
                self._add(NoticeBlock("info", words.page_decision(event)))
            case events.Notice():
                self._add(NoticeBlock(event.level if event.level in get_args(events.Level) else "warning", event.text))
            case events.VariablesChanged():
                if receipt := words.receipt(event):
                    self._add(NoticeBlock("info", receipt))
            case events.Compacted():
                self._compact(event)
            case events.Sampled():
                self._sample(event)
            case MapProgress():
                self._show_map(event)
            case _:
                pass  # other events are not shown; instead of `Clarified`, the block of its question is

    def _add(self, block: _AnyBlock) -> _AnyBlock:
        block.key = next(self.keys)
        self.blocks.append(block)
        return block

    # -- turns and steps -----------------------------------------------------------------------

    def _start_turn(self, event: events.TurnStarted) -> None:
        self._turn = len(self.blocks)
        self._plan = None
        self._sent_back = False
        self._client = event.client
        self._asker = event.agent if self._around is not None else ""
        if self._around is None:
            self._add(PromptBlock(event.prompt, self._turns, tuple(event.values), self._client))
        if event.values:
            self._add(ValuesBlock(event.values, event.prompt))
        self._turns += 1
        self.running = FooterBlock(event.model, open=True, price_told=self.price_told, phase="listing the tools")
        self.running.agent = event.agent
        self._start_step()

    def _start_step(self) -> None:
        self._step = len(self.blocks)
        self._parts = {}
        self._cards = {}
        self._retry = None

    def _enter(self, phase: str) -> None:
        if self.running:
            self.running.phase = phase

    def _withdraw_step(self) -> None:
        """Remove the blocks of a step that is tried again, except those that the model did not write."""
        exempt = (NoticeBlock, PrintoutBlock, ProgressBlock)
        self.blocks[self._step :] = [block for block in self.blocks[self._step :] if isinstance(block, exempt)]
        self._parts = {}
        self._cards = {}

    def _finish_step(self, event: events.StepFinished) -> None:
        for block in self._parts.values():
            if block.open and not (isinstance(block, ToolCard) and block.call):
                self._give_up(block)
        self._parts = {}
        if not event.interrupted:
            self._end_retry()
            self._step = len(self.blocks)
        self._spend(event.usage)

    def _finish_turn(self, event: events.TurnFinished) -> None:
        result = event.result
        self._give_up_open()
        if result.final_text.startswith(NOT_RUN):  # the answer has the plan
            self.blocks[self._turn :] = [block for block in self.blocks[self._turn :] if block is not self._plan]
        self._show_final_text(result.final_text)
        if result.value is not None:
            self._show_value(result.wrapped_in)
        if result.error:
            level = "warning" if result.stop_reason == "budget" else "error"
            tries = self._withdraw_retry()
            code = f" [{result.error_code}]" if result.error_code else ""  # journals of older versions have no code
            self._add(NoticeBlock(level, result.error + (tries if result.stop_reason == "error" else "") + code))
        model = self.running.model if self.running else ""
        agent = self.running.agent if self.running else ""
        # If `unsent` is set, the user can send the turn again. An MCP client or an outer model does so by itself.
        asks_again = self._client or self._around is not None
        unsent = self._turns - 1 if result.unsent and not asks_again else None
        footer = FooterBlock(model, result.usage, result.seconds, result.stop_reason, self.price_told, unsent=unsent)
        footer.steps, footer.trace, footer.agent = result.iterations_used, result.trace, agent
        self._add(footer)
        self.price_told |= result.usage.cost is None and result.usage.output_tokens > 0
        self.running = None
        self._turn = len(self.blocks)

    def end(self) -> None:
        """End a turn that stopped without a TurnFinished event."""
        self._give_up_open()
        self.running = None

    def _give_up_open(self) -> None:
        """Close the turn's open blocks, except maps. The turn has ended, so the blocks get no more events."""
        for block in self.blocks[self._turn :]:
            if block.open and not isinstance(block, ProgressBlock):  # a map can outlive the turn
                self._give_up(block)

    def _end_retry(self) -> None:
        """Close the step's RetryBlock, if there is one: the request that was sent again is answered."""
        if self._retry is not None:
            self._retry.open, self._retry.answered = False, True
            self._retry.version += 1
            self._retry = None

    def _withdraw_retry(self) -> str:
        """Remove the step's RetryBlock, because the end of the turn reports the error.

        Return the number of tries, such as " (tried 3 times)", or "" if there was no RetryBlock.
        """
        step = self.blocks[self._step :]
        self.blocks[self._step :] = [block for block in step if not isinstance(block, RetryBlock)]
        return next((f" (tried {one.attempt + 1} times)" for one in step if isinstance(one, RetryBlock)), "")

    def _show_final_text(self, text: str) -> None:
        """Show the turn's final text if no message contained it: for example, a tool's message that ended the turn."""
        shown_text = "".join(block.text for block in self.blocks[self._turn :] if isinstance(block, TextBlock))
        if not shown_text.rstrip().endswith(text.strip()):
            self._add(TextBlock(Pieces(text)))

    def _show_value(self, wrapped_in: str) -> None:
        """Mark the model's last text as JSON that holds the value of the answer.

        The JSON is shown, not the value itself, which may be an object of the user's class that no log stores.
        """
        for block in reversed(self.blocks[self._turn :]):
            if isinstance(block, TextBlock):
                block.is_value = True
                block.wrapped_in = wrapped_in
                block.version += 1
                return

    def _give_up(self, block: Block) -> None:
        """Close a block that gets no more events."""
        block.open = False
        block.version += 1
        if isinstance(block, ChecklistBlock):
            block.rows = [replace(row, state="pending") if row.state == "running" else row for row in block.rows]
        if isinstance(block, ToolCard):
            block.state = "interrupted"
            block.ask, block.client = "", self._client
            block.pieces = Pieces()
            self._end_inside(block)

    # -- parts ---------------------------------------------------------------------------------

    def _start_part(self, event: events.PartStarted) -> _Part:
        self._end_retry()
        match event.kind:
            case "text":
                block = TextBlock(open=True)
            case "reasoning":
                block = ReasoningBlock(open=True)
            case _:
                block = ToolCard(event.name, client=self._client, open=True, hosted=event.kind == "hosted_call")
        self._parts[event.index] = block
        return self._add(block)

    def _extend_part(self, event: events.PartDelta) -> None:
        block = self._parts.get(event.index)
        if block:
            block.pieces.append(event.text)
            block.version += 1

    def _finish_part(self, event: events.PartFinished) -> None:
        part = event.part
        if isinstance(part, HostedResult):
            self._finish_hosted(part)
        if not isinstance(part, Text | Reasoning | ToolCall | HostedCall):
            return
        kind = _KINDS[type(part)]
        block = self._parts.get(event.index)
        # A part may begin as one kind and turn out to be another: reasoning instead of text, for example.
        if block is not None and not isinstance(block, _BLOCKS[kind]):
            self.blocks[:] = [one for one in self.blocks if one is not block]
            block = None
        block = block or self._start_part(events.PartStarted(event.index, kind))
        block.version += 1
        if isinstance(part, Text | Reasoning):
            block.pieces = Pieces(part.text)
            block.open = False
            if isinstance(part, Text) and isinstance(block, TextBlock):
                before = [one for one in self.blocks[self._turn :] if isinstance(one, TextBlock) and one is not block]
                block.citations = part.citations
                block.sources = sources_of(part.citations, (source for one in before for source in one.sources))
        elif isinstance(block, ToolCard):
            block.pieces = Pieces()
            block.call = part if isinstance(part, ToolCall) else ToolCall(part.id, part.name, part.arguments)
            block.name = part.name
            self._cards[part.id] = block
            if isinstance(part, HostedCall):
                block.server = part.host
                self._change(block, "running")

    def _finish_hosted(self, part: HostedResult) -> None:
        """Show the result of a hosted call (run by the provider) in the card of the call, if there is one."""
        if card := self._cards.get(part.call_id):
            card.result = ToolResult(part.call_id, part.name, part.content, part.status)
            self._change(card, _ENDS.get(part.status, "failed"))

    # -- calls ---------------------------------------------------------------------------------

    def _card(self, call: ToolCall, server: str = "") -> ToolCard:
        """Return the card of a tool call, creating it for a new call.

        The card of a known call gets `call` too, because the user may have edited the arguments.
        """
        card = self._cards.get(call.id)
        if card is None:
            card = self._cards[call.id] = self._add(ToolCard(call.name, client=self._client, open=True))
        card.call = call
        card.server = server or card.server
        return card

    def _change(self, card: ToolCard, state: State, *, ask: str = "") -> None:
        card.state = state
        card.ask = ask
        card.open = state not in FINAL_STATES
        card.version += 1

    def _tell_progress(self, event: events.ToolProgress) -> None:
        card = self._cards.get(event.call_id)
        if card and card.open:
            card.progress = event
            card.version += 1

    def _finish_call(self, event: events.ToolFinished) -> None:
        result = event.result
        card = self._cards.get(result.call_id) or self._card(ToolCall(result.call_id, result.name, {}))
        card.result = result
        card.seconds = event.seconds
        card.traceback = event.traceback
        card.rich = event.rich
        card.progress = None
        self._end_inside(card)
        self._change(card, _ENDS.get(result.status, "failed"))

    def _take_inside(self, event: events.InnerEvent) -> None:
        """Add an event of an agent's turn to the card of the tool call that asks the agent."""
        call_id, *further = event.path
        if (card := self._cards.get(call_id)) is None:  # a damaged journal may lack the call
            return
        inner = self._inside.setdefault(card.key, Transcript(around=self))
        inner.feed(events.InnerEvent(tuple(further), event.event) if further else event.event)
        if not further and isinstance(event.event, events.TurnStarted):
            card.agent = event.event.agent
        self._spend(event.usage)
        self._show_inside(card, inner)

    def _show_inside(self, card: ToolCard, inner: "Transcript") -> None:
        card.inside = Snapshot(inner.blocks, inner.running)
        card.version += 1
        self.price_told |= inner.price_told

    def _end_inside(self, card: ToolCard) -> None:
        """Close the agent's turn in the card of a finished call, if the turn stopped without an end event."""
        inner = self._inside.get(card.key)
        if inner is not None and inner.running is not None:
            inner.end()
            self._show_inside(card, inner)

    def settle_proposal(self, event: events.ProposalSettled) -> bool:
        """Record the decision on a proposed cell. Return whether this transcript, or one in a card, has that cell."""
        if block := self._proposals.get(event.id):
            block.settled = event
            block.version += 1
            return True
        for block in self.blocks if self._inside else ():
            inner = self._inside.get(block.key)
            if isinstance(block, ToolCard) and inner is not None and inner.settle_proposal(event):
                self._show_inside(block, inner)
                return True
        return False

    def _settle_approval(self, event: events.ApprovalGiven) -> None:
        question = self.approval_requests.get(event.id)
        card = self._cards.get(question.call.id) if question else None
        if card and card.ask == event.id:
            card.reason = "" if event.approved else event.reason
            if event.approved and event.arguments is not None and card.call:
                card.written = card.call.arguments
                card.call = replace(card.call, arguments=event.arguments)
            card.client = self._client
            # This hosted card only asked for approval. The calls that the provider then runs get cards of their own.
            state = "done" if card.hosted else "pending"
            self._change(card, state if event.approved else "denied")

    # -- what the user is asked ----------------------------------------------------------------

    def _edit_prompt(self, event: events.PromptEdited) -> None:
        block = next((block for block in reversed(self.blocks) if isinstance(block, PromptBlock)), None)
        if block and not self._sent_back:  # a prompt that the turn itself sent to the model has no block
            block.prompt = event.prompt
            block.version += 1
        # The output of a cell does not show the prompt block, so a notice shows the changed prompt.
        self._add(NoticeBlock("info", f"The prompt was changed to: {event.prompt.text}"))

    def _answer(self, event: events.QuestionAnswered) -> None:
        question = self._questions.pop(event.id, None)
        if question and question.step:  # the pause is over: remove its question
            self.blocks[:] = [block for block in self.blocks if block.key != question.key]
        elif question:
            question.answer = event.text
            question.open = False
            question.version += 1

    # -- plans, and what was spent -------------------------------------------------------------

    def _change_plan(self, event: _TaskEvent) -> None:
        self._spend(event.usage)
        self._checklist.feed(event)
        if self._plan is None:
            self._plan = self._add(ChecklistBlock())
        # Copy the rows of the checklist (its tasks), because a front end may be reading the block in another thread.
        self._plan.rows = [replace(row, judgements=[*row.judgements]) for row in self._checklist.rows.values()]
        self._plan.open = self._checklist.open
        self._plan.version += 1

    def _compact(self, event: events.Compacted) -> None:
        action = "Older turns were summarised" if event.summary else "Older results were shortened"
        text = f"{action} for the model: about {event.before:,} tokens became {event.after:,}. The history stays whole."
        self._add(NoticeBlock("info", text))
        self._spend(event.usage)

    def _sample(self, event: events.Sampled) -> None:
        tokens = event.usage.input_tokens + event.usage.output_tokens
        text = f"{shown_server(event.server)} had the model answer it, beside the conversation: {tokens:,} tokens."
        self._add(NoticeBlock("info", text))
        self._spend(event.usage)

    def _show_map(self, progress: MapProgress) -> None:
        block = self._maps.get(progress.id)
        if block is None:
            block = self._maps[progress.id] = self._add(ProgressBlock(progress))
        block.progress = progress
        block.open = not progress.ended
        block.version += 1

    def _spend(self, usage: Usage) -> None:
        if self.running:
            self.running.usage += usage
            self.running.version += 1


def _copy_block(block: Block, before: Block | None) -> Block:
    if before and before.version == block.version:
        return before
    twin = copy(block)
    if isinstance(twin, GrowingBlock | ToolCard):
        twin.pieces = Pieces(twin.pieces.text)  # take a copy, because the transcript appends to its own list
    if isinstance(twin, ToolCard) and twin.inside is not None:
        inside = before.inside if isinstance(before, ToolCard) else None
        twin.inside = Snapshot(_copies(twin.inside.blocks, inside), copy(twin.inside.running))
    return twin


def _copies(blocks: Iterable[Block], before: Snapshot | None) -> list[Block]:
    """Return copies of blocks. A block that has not changed since the snapshot `before` is reused instead of copied."""
    old_blocks = {block.key: block for block in before.blocks} if before else {}
    return [_copy_block(block, old_blocks.get(block.key)) for block in blocks]
