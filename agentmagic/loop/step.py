"""What a turn sends a model, step by step, and what comes back, told as events."""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from agentmagic.agent import Agent
from agentmagic.approval.gate import Gate
from agentmagic.context import tokens
from agentmagic.context.compaction import Context, Limits, RequestView, accept_all
from agentmagic.errors import ContextTooLong, ProviderError, ToolError
from agentmagic.events import (
    Compacted,
    Event,
    Fold,
    Notice,
    PartFinished,
    Sampled,
    StepFinished,
    StepRetried,
    StepStarted,
)
from agentmagic.loop.budget import Budget, BudgetExhausted
from agentmagic.loop.retry import Hear, OnRetry, PartEvent, ask
from agentmagic.loop.tool_calls import Emit
from agentmagic.messages import Media, Message, Part, Text, ToolCall, Usage, as_text
from agentmagic.providers.base import Model, ModelFinished, Request
from agentmagic.secrets import redact
from agentmagic.tools.base import Completion, Tool, Toolset
from agentmagic.tools.output_cache import find_result, reader

Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What a turn is made of.

    `past` are the messages of the session so far; `limits`, `view`, `compacted` and `accepts` decide what the
    model is sent of them, see `Context`. `priced` says whether the model's price is known. `notices` are
    told as they come, the first right after the start; `budgets` are kept before each request. `call_ids` are
    those of the calls of the past.
    """

    agent: Agent
    model: Model
    toolsets: Sequence[Toolset]
    past: Sequence[Message]
    prompt: Message
    gate: Gate
    limits: Limits = Limits()  # noqa: RUF009  (a frozen value)
    view: RequestView = field(default_factory=RequestView)
    compacted: Compacted | None = None
    accepts: Callable[[Media], bool] = accept_all
    priced: bool = True
    budgets: Sequence[Budget] = ()
    notices: deque[Notice] = field(default_factory=deque[Notice])
    call_ids: AbstractSet[str] = frozenset()


class Steps:
    """Takes the steps of a turn: each one model request, its response told part by part.

    `number` counts them. `tools` are those of the turn; the one that reads on in long results joins them when
    there is one. `fold` is what the turn has told so far, through `emit`. `unreported` is a guess at the tokens
    of responses whose provider does not count them.
    """

    def __init__(self, setup: TurnContext, tools: dict[str, Tool], fold: Fold, emit: Emit) -> None:
        self.number = 0
        self.usage = Usage()
        self.unreported = Usage()
        self._setup = setup
        self._model = setup.model
        self._form = form = setup.agent.form
        self._tools = tools
        self._fold = fold
        self._emit = emit
        self._call_ids: set[str] = set()
        said = setup.agent.instructions
        self._instructions = said if form is None else f"{said}\n\n{form.instructions}".lstrip()

    @cached_property
    def _context(self) -> Context:
        """What is sent of the history; made when the tools of the turn are known, which count too."""
        return Context(
            self._setup.limits,
            self._setup.compacted,
            view=self._setup.view,
            accepts=self._setup.accepts,
            instructions=self._instructions,
            tools=[tool.definition for tool in self._tools.values()],
        )

    async def take(self, tool_choice: str, *extra: Message, closing: bool = False) -> ModelFinished:
        """Send one request, again where that may help, and tell its response; `extra` is not kept.

        Older turns are summarised first where it would be too long. A closing step has no number of its own.
        Raises ProviderError, and BudgetExhausted before a request that no budget allows.
        """
        self._keep_budgets()
        messages = self._messages
        if self._context.due(messages) and await self._compact(messages):
            self._keep_budgets()
        self.number += not closing
        self._emit(StepStarted(self.number, self._model.name, closing))
        await asyncio.sleep(0)  # a model and tools that never wait must not keep a cancel out
        began = time.monotonic()
        finished = await self._respond(messages, tool_choice, extra)
        self._emit(StepFinished(self.number, finished.usage, finished.reason, time.monotonic() - began))
        self._call_ids.update(call.id for call in self._fold.unanswered)
        self._measure(finished)
        return finished

    async def _respond(self, messages: Messages, tool_choice: str, extra: Messages) -> ModelFinished:
        try:
            return await self._ask(self._request(messages, tool_choice, extra), self._hear, self._say_retry)
        except ContextTooLong as error:
            if self._setup.agent.compact_at is None or not await self._compact(messages):
                raise
            self._keep_budgets()
            self._say_retry(1, 0.0, str(error))
        return await self._ask(self._request(messages, tool_choice, extra), self._hear, self._say_retry)

    async def _ask(self, request: Request, hear: Hear, on_retry: OnRetry) -> ModelFinished:
        """Ask the model, and count what it took, in vain or not."""
        try:
            finished = await ask(self._model, request, hear, on_retry)
        except ProviderError as error:
            self.usage += error.usage or Usage()
            raise
        self.usage += finished.usage
        return finished

    def _keep_budgets(self) -> None:
        """Raise BudgetExhausted where one is used up, or cannot be kept since the model's price is unknown."""
        usage = self.usage + self.unreported
        if not self._setup.priced:
            usage = replace(usage, cost=None)
        for budget in self._setup.budgets:
            if words := budget.exhausted(usage):
                raise BudgetExhausted(words)

    def _measure(self, finished: ModelFinished) -> None:
        if not (finished.usage.input_tokens or finished.usage.output_tokens):
            self.unreported += Usage(input_tokens=self._context.estimate(self._messages))
        elif finished.once:
            self._context.measured(len(self._setup.past) + len(self._fold.messages) - 1, finished.usage)

    def _hear(self, event: PartEvent) -> None:
        self._emit(self._with_own_id(event))

    def _with_own_id(self, event: PartEvent) -> Event:
        """Give a call that has another's id one of its own: results are told apart by it."""
        if not isinstance(event, PartFinished) or not isinstance(event.part, ToolCall):
            return event
        call_id = event.part.id
        if not (call_id in self._setup.call_ids or call_id in self._call_ids or self._fold.has_call(call_id)):
            return event
        return replace(event, part=replace(event.part, id=f"call_{uuid.uuid4().hex}", provider_data=None))

    def _say_retry(self, attempt: int, delay: float, error: str) -> None:
        self._emit(StepRetried(self.number, attempt, delay, redact(error)))

    # -- what the model is sent ----------------------------------------------------------------

    @property
    def _messages(self) -> Messages:
        return (*self._setup.past, *self._fold.messages)

    def _request(self, messages: Messages, tool_choice: str, extra: Messages) -> Request:
        sent = (*self._context.view(messages), *extra)
        if self._context.shortened and self._tools:
            tool = reader(lambda call_id: find_result(self._messages, call_id), self._setup.limits.result)
            self._tools.setdefault(tool.name, tool)
        definitions = tuple(tool.definition for tool in self._tools.values())
        return Request(sent, self._instructions, definitions, tool_choice, self._form and self._form.output)

    async def _compact(self, messages: Messages) -> bool:
        """Have the history sent shorter from now on; whether that could be."""
        compacted = await self._context.compact(messages, len(self._setup.past), self._complete)
        if compacted is not None:
            self._emit(compacted)
        return compacted is not None

    async def sample(
        self, call_id: str, server: str, messages: Sequence[Message], instructions: str, max_tokens: int
    ) -> Completion:
        """Have the model answer a tool, beside the conversation and without tools.

        Raises ProviderError, and ToolError where a budget is used up. No provider is told a limit of tokens: the
        model is asked to keep to it, and what is longer is cut.
        """
        try:
            self._keep_budgets()
        except BudgetExhausted as spent:
            message = f"The model was not asked. {spent}"
            raise ToolError(message) from None
        taken = tuple(replace(message, parts=tuple(map(self._taken, message.parts))) for message in messages)
        short = f"Answer in at most {max_tokens} tokens."
        said = f"{instructions}\n\n{short}".lstrip()
        text, usage = await self._complete(Request(taken, said), "The answer for a tool")
        self._emit(Sampled(call_id, server, usage))
        longest = max_tokens * tokens.CHARACTERS
        return Completion(text[:longest], self._model.name, cut=len(text) > longest)

    def _taken(self, part: Part) -> Part:
        """Name a medium in words that the model does not take."""
        return Text(as_text(part)) if isinstance(part, Media) and not self._setup.accepts(part) else part

    async def _complete(self, request: Request, what: str = "The summary") -> tuple[str, Usage]:
        """Have the model write something that nobody sees."""
        words: list[str] = []

        def hear(event: PartEvent) -> None:
            if isinstance(event, PartFinished) and isinstance(event.part, Text):
                words.append(event.part.text)

        def on_retry(_attempt: int, delay: float, error: str) -> None:
            words.clear()
            self._emit(Notice("info", f"{what} is asked for again in {delay:.0f} s: {error}"))

        finished = await self._ask(request, hear, on_retry)
        return "".join(words), finished.usage
