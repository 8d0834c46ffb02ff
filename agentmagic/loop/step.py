"""One step of a turn: what the model is sent, and its response, emitted as events."""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from agentmagic.agent import TOOL_CHOICES, Agent
from agentmagic.approval.approvals import Approvals
from agentmagic.bill import Account
from agentmagic.context.compaction import Context, Limits
from agentmagic.context.request_view import CHARACTERS, RequestView, tokens_by_part
from agentmagic.context.rules import NO_PROJECT, Project
from agentmagic.errors import ContextTooLong, ProviderError, ToolError
from agentmagic.events import (
    Compacted,
    Event,
    Fold,
    Notice,
    PartFinished,
    PromptValue,
    Sampled,
    StepFinished,
    StepRetried,
    StepStarted,
    Working,
)
from agentmagic.history.history import History
from agentmagic.loop.budgets import Budget, BudgetExhausted, Purse
from agentmagic.loop.hosting import take_hosted
from agentmagic.loop.outer_turn import OuterTurn
from agentmagic.loop.retry import Hear, OnRetry, PartEvent, ask
from agentmagic.loop.stepping import Stepper
from agentmagic.loop.tool_calls import Emit
from agentmagic.messages import Media, Message, Part, Text, ToolCall, ToolDef, Usage, as_text, user
from agentmagic.plan import PlanOptions
from agentmagic.providers.base import (
    KINDS,
    SETTINGS,
    Model,
    ModelFinished,
    OutputSchema,
    PlanQuestion,
    Request,
    honoured,
    hosts,
)
from agentmagic.providers.catalog import ModelInfo
from agentmagic.providers.traffic import TurnTraffic
from agentmagic.runtime.engine import void
from agentmagic.secrets import redact
from agentmagic.tools.base import Completion, Tool, Toolset, as_of_now, list_connected
from agentmagic.tools.output_cache import find_result, reader
from agentmagic.undo.watcher import Watcher

Messages = tuple[Message, ...]
DECIDING = {
    "route": "choosing the route",
    "plan": "planning",
    "parameters": "settling the parameters of a task",
    "judgement": "judging the result of a task",
}
"""What a screen says while the model makes a decision of a planned turn."""


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What a turn is made of.

    `history` is the session's past: the turn adds nothing to it, but its journal records every event. `view` is
    what earlier turns sent of that history. `facts` are what is known of the model. `budgets` are checked before
    each request. `notices` are emitted as they come, the first right after the turn's start. `plan` says how the
    turn is planned, if it is. `step` pauses it before each request and call. `tape` records the turn or plays it
    back: it takes each event, and returns the event to emit. `traffic` keeps the requests to the model and its
    responses. `values` describe the values that the prompt names, as the model is sent them. `noted` is what sources of
    tools have said in this session: each is said once. `unreachable` are the problems of servers that the
    user was told of. `watcher` finds out what the tools change. `purse` is asked before each request, and told what it
    has cost. `row` says that the turn is one of many, whose requests wait for those of other turns. `caller` is the
    outside program that makes the calls in place of a model, "" without one. `project` are the files around the
    notebook of which the model is told. `account` pays for each request that is sent. `around` is the turn that this
    one is inside, if an agent tool has begun it, and `name` the name of the agent if there are several.
    `inner_budgets` are checked before the requests of turns inside only: what a client calls costs nothing itself.
    """

    agent: Agent
    model: Model
    toolsets: Sequence[Toolset]
    prompt: Message
    history: History = field(default_factory=History)
    approvals: Approvals = field(default_factory=Approvals)
    facts: ModelInfo = ModelInfo("", None, KINDS, priced=True)  # noqa: RUF009  (a frozen value)
    view: RequestView = field(default_factory=RequestView)
    budgets: Sequence[Budget] = ()
    notices: deque[Notice] = field(default_factory=deque[Notice])
    plan: PlanOptions | None = None
    step: bool = False
    tape: Callable[[Event], Event] | None = None
    traffic: TurnTraffic = field(default_factory=TurnTraffic)
    values: tuple[PromptValue, ...] = ()
    noted: set[str] = field(default_factory=set[str])
    unreachable: set[str] = field(default_factory=set[str])
    watcher: Watcher = field(default_factory=Watcher)
    purse: Purse = field(default_factory=Purse)
    row: bool = False
    caller: str = ""
    project: Project = NO_PROJECT
    account: Account = Account()  # noqa: RUF009  (a frozen value)
    around: OuterTurn | None = None
    name: str = ""
    inner_budgets: Sequence[Budget] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a turn would send first: the request, and the estimated tokens of its parts.

    `unlisted` are servers that are not connected, whose tools would be in the request too.
    """

    model: str
    request: Request
    tokens: Mapping[str, int]
    unlisted: tuple[str, ...] = ()


async def preview(turn: TurnContext) -> Preview:
    """Return what a turn would send first. No server is connected for it, and nothing is sent."""
    tools, own, unlisted = await _connected(turn)
    steps = Steps(turn, tools, Fold(), void)
    steps.hosted = tuple(tool for tool in own if hosts(turn.model, tool.hosted))
    request = steps.first_request()
    return Preview(turn.model.name, request, tokens_by_part(request), unlisted)


async def compact(turn: TurnContext) -> Compacted | None:
    """Compact the history between two turns. Return how, or None if nothing can be gained.

    Raises BudgetExhausted if a budget does not allow the request for the summary.
    """
    tools, _, _ = await _connected(turn)
    return await Steps(turn, tools, Fold(), void).compact_early()


async def _connected(turn: TurnContext) -> tuple[dict[str, Tool], list[Tool], tuple[str, ...]]:
    """Return a turn's tools, those of a provider's own apart, and the names of the servers that are not connected.

    No server is connected for them.
    """
    listed = [await list_connected(source) for source in turn.toolsets]
    tools = {tool.name: tool for found, _ in reversed(listed) for tool in reversed(found)}  # the first of a name holds
    offered, _ = as_of_now(tools.values())
    own = take_hosted(offered)
    return offered, own, tuple(name for _, left in listed for name in left)


class Steps:
    """Takes the steps of a turn: each one model request, its response emitted part by part.

    `number` counts them. `tools` are those of the turn; the tool that reads on in long results is added when the
    first result is shortened. `fold` holds the messages of the turn so far. `unreported` is an estimate of the
    tokens of responses whose provider does not count them. The model's provider carries out the `hosted` tools.
    """

    def __init__(
        self, turn: TurnContext, tools: dict[str, Tool], fold: Fold, emit: Emit, stepper: Stepper | None = None
    ) -> None:
        self.hosted: tuple[Tool, ...] = ()
        self.number = 0
        self.usage: Usage = Usage()
        self.unreported = Usage()
        self._turn = turn
        self._model = turn.model
        self._schema = turn.agent.output_schema
        self._tools = tools
        self._fold = fold
        self._emit = emit
        self._stepper = stepper
        self._call_ids: set[str] = set()
        self.tell_of_project()
        self._settings = honoured(turn.model, turn.agent.settings)
        self._limits = Limits(turn.facts.window, turn.agent.compact_at, turn.agent.max_result)

    def tell_of_project(self) -> None:
        """Tell the model of the project's files that the user has approved by now, before the first step."""
        self._project = self._turn.project.texts
        self._instructions = self._turn.agent.instructed(self._project)

    @cached_property
    def _context(self) -> Context:
        """What is sent of the history. Made at the first step: it counts the tools, which are listed only then."""
        return Context(
            self._limits,
            self._turn.history.compacted,
            view=self._turn.view,
            accepts=self._turn.facts.accepts,
            provider=self._model.name.partition(":")[0],
            instructions=self._instructions,
            tools=self._definitions,
            unsent=self._turn.history.unsent,
        )

    async def take(self, tool_choice: str, *extra: Message, closing: bool = False) -> ModelFinished:
        """Send one request, with retries, and emit its response. `extra` is sent and not kept.

        Older turns are summarised first if the request would be too long. A closing step has no number of its own.
        Raises ProviderError, and BudgetExhausted before a request that a budget does not allow.
        """
        messages = await self._fitting()
        self.number += not closing
        self._emit(StepStarted(self.number, self._model.name, closing))
        await asyncio.sleep(0)  # lets a cancel in, even if the model and the tools never wait
        if self._stepper is not None and self._stepper.on and await self._pause(messages, tool_choice, extra):
            messages = await self._fitting()
        began = time.monotonic()
        finished = await self._respond(messages, tool_choice, extra)
        self._emit(StepFinished(self.number, finished.usage, finished.reason, time.monotonic() - began))
        self._call_ids.update(call.id for call in self._fold.unanswered)
        self._measure(finished)
        return finished

    async def _pause(self, messages: Messages, tool_choice: str, extra: Messages) -> bool:
        """Show the request in step mode. Return whether the user changed its prompt."""
        assert self._stepper is not None  # noqa: S101  (of the caller)
        last = self._fold.messages[-1]
        request = self._request(messages, tool_choice, extra)
        prompt = last if last.role == "user" and not extra else None
        return await self._stepper.before_step(self.number, request, self._model.name, prompt)

    def first_request(self) -> Request:
        """Return the request of the first step of a turn that has not begun."""
        choice = self._turn.agent.tool_choice
        messages = (*self._turn.history.messages, self._turn.prompt)
        return self._request(messages, choice if choice in TOOL_CHOICES or choice in self._tools else "auto", ())

    def write(self, *parts: Part) -> None:
        """Emit a step that the loop wrote itself, without a request: the calls of a plan, for example."""
        self.number += 1
        self._emit(StepStarted(self.number, self._model.name))
        for index, part in enumerate(parts):
            self._emit(PartFinished(index, part))
        self._emit(StepFinished(self.number, Usage()))
        self._call_ids.update(call.id for call in self._fold.unanswered)

    async def decide(self, prompt: str, schema: OutputSchema, what: PlanQuestion) -> tuple[str, Usage]:
        """Have the model answer a question of the loop, which does not join the conversation, as JSON of a form.

        For a route and a plan the model sees the conversation and the tools, else the question alone. Returns its
        text, which may not fit. Raises ProviderError and BudgetExhausted.
        """
        asked = user(f"{prompt}\n\n{schema.instructions}")
        if what.tool is None:
            request = self._request(await self._fitting(), "none", (asked,))
        else:
            self.keep_budgets()  # the history is not sent, and is not compacted for this request
            request = Request((asked,), self._turn.agent.instructions)
        self._emit(Working(DECIDING[what.kind]))
        request = replace(request, output=schema, decision=what)
        return await self._complete(request, f"The {what.kind}")

    async def _fitting(self) -> Messages:
        """Return the messages for the next request, after compaction if it is due and if the budgets allow it."""
        self.keep_budgets()
        for words in filter(None, (budget.warning() for budget in self._turn.budgets)):
            self._emit(Notice("warning", words))
        messages = self._messages
        if self._context.due(messages) and await self._compact(messages):
            self.keep_budgets()  # the summary was paid for too
        return messages

    def own_id(self, event: PartFinished) -> PartFinished:
        """Give a call whose id another call has a new one: results find their calls by the id."""
        if not isinstance(event.part, ToolCall):
            return event
        call_id = event.part.id
        known = call_id in self._turn.history.call_ids or call_id in self._call_ids or self._fold.has_call(call_id)
        if not known:
            return event
        # The provider's own record of the call holds the old id, so it cannot be sent back.
        return replace(event, part=replace(event.part, id=f"call_{uuid.uuid4().hex}", provider_data=None))

    async def sample(
        self, call_id: str, server: str, messages: Sequence[Message], instructions: str, max_tokens: int
    ) -> Completion:
        """Have the model answer a tool, beside the conversation and without tools.

        Raises ProviderError, and ToolError if a budget is used up. No provider is given a limit of tokens: the
        model is asked to keep to it, and a longer answer is cut.
        """
        try:
            self.keep_budgets()
        except BudgetExhausted as spent:
            message = f"The model was not asked. {spent}"
            raise ToolError(message) from None
        taken = tuple(replace(message, parts=tuple(map(self._taken, message.parts))) for message in messages)
        said = f"{instructions}\n\nAnswer in at most {max_tokens} tokens.".lstrip()
        text, usage = await self._complete(Request(taken, said), "The answer for a tool")
        self._emit(Sampled(call_id, server, usage))
        longest = max_tokens * CHARACTERS
        return Completion(text[:longest], self._model.name, cut=len(text) > longest)

    async def _respond(self, messages: Messages, tool_choice: str, extra: Messages) -> ModelFinished:
        try:
            return await self._ask(self._request(messages, tool_choice, extra), self._emit, self._say_retry)
        except ContextTooLong as error:
            if self._turn.agent.compact_at is None or not await self._compact(messages):
                raise
            self.keep_budgets()
            self._say_retry(1, 0.0, str(error))
        return await self._ask(self._request(messages, tool_choice, extra), self._emit, self._say_retry)

    async def _ask(self, request: Request, hear: Hear, on_retry: OnRetry, purpose: str = "") -> ModelFinished:
        """Ask the model, and count the usage of failed tries too."""
        if self._turn.around is not None:
            purpose = f"{self._turn.name}: {purpose or f'step {self.number}'}"
        row = self._stepper.gate.deadline if self._turn.row and self._stepper is not None else None
        retry = self._turn.agent.retry
        async with self._turn.purse.paying(request) as payment:
            with self._turn.traffic.exchange(request, self.number, purpose) as exchange:
                try:
                    pay = self._turn.account.pay
                    finished = await ask(self._model, exchange, retry, hear, on_retry, self._say_mend, pay, row)
                except ProviderError as error:
                    payment.usage = error.usage or Usage()
                    self.usage += payment.usage
                    raise
                exchange.finished = finished
            payment.usage = finished.usage
        self.usage += finished.usage
        return finished

    def keep_inner_budgets(self, priced: bool) -> None:
        """Raise BudgetExhausted if no request of an inner turn may be sent, to a model whose price is known or not."""
        self.keep_budgets(priced=priced)
        _keep(self._turn.inner_budgets, self.usage if priced else replace(self.usage, cost=None))

    def keep_budgets(self, *, priced: bool = True) -> None:
        """Raise BudgetExhausted if a budget is used up, or cannot be kept because the model's price is unknown."""
        usage = self.usage + self.unreported
        if not (priced and self._turn.facts.priced):
            usage = replace(usage, cost=None)
        _keep(self._turn.budgets, usage)

    def spend(self, usage: Usage) -> None:
        """Count what the turn of an agent tool has spent."""
        self.usage += usage

    def _measure(self, finished: ModelFinished) -> None:
        if not (finished.usage.input_tokens or finished.usage.output_tokens):
            self.unreported += Usage(input_tokens=self._context.estimate(self._messages))
        elif finished.once:  # else the count holds the conversation several times, and says nothing of its length
            self._context.measured(len(self._messages) - 1, finished.usage)

    def _say_retry(self, attempt: int, delay: float, error: str) -> None:
        self._emit(StepRetried(self.number, attempt, delay, redact(error), self._turn.agent.retry.tries))

    def _say_mend(self, mend: str) -> None:
        self._emit(Notice("info", mend))

    @property
    def _messages(self) -> Messages:
        return (*self._turn.history.messages, *self._fold.messages)

    def _request(self, messages: Messages, tool_choice: str, extra: Messages) -> Request:
        sent = (*self._context.view(messages), *extra)
        if self._context.shortened and self._tools:
            tool = reader(lambda call_id: find_result(self._messages, call_id), self._limits.result)
            self._tools.setdefault(tool.name, tool)
        return Request(
            sent,
            self._instructions,
            self._definitions,
            tool_choice,
            self._schema,
            self._settings,
            hosted=tuple(tool.hosted for tool in self.hosted if tool.hosted),
            project=self._project,
        )

    @property
    def _definitions(self) -> tuple[ToolDef, ...]:
        return tuple(tool.definition for tool in self._tools.values())

    async def _compact(self, messages: Messages) -> bool:
        """Make the history shorter for the model, if possible. Return whether that was done."""
        compacted = await self._context.compact(messages, len(self._turn.history.messages), self._complete)
        if compacted is not None:
            self._emit(compacted)
        return compacted is not None

    async def compact_early(self) -> Compacted | None:
        """Compact the history between two turns, all but the last turns, if that makes it shorter."""
        self.keep_budgets()
        messages, unsent = self._turn.history.messages, self._turn.history.unsent
        prompts = (at for at, one in enumerate(messages) if one.role == "user" and at not in unsent)
        last = max(prompts, default=None)
        return None if last is None else await self._context.compact(messages, last, self._complete, early=True)

    def _taken(self, part: Part) -> Part:
        """Replace media that the model does not take by text that names them."""
        return Text(as_text(part)) if isinstance(part, Media) and not self._turn.facts.accepts(part) else part

    async def _complete(self, request: Request, what: str = "The summary") -> tuple[str, Usage]:
        """Have the model write a text that is not part of the conversation."""
        words: list[str] = []

        def hear(event: PartEvent) -> None:
            if isinstance(event, PartFinished) and isinstance(event.part, Text):
                words.append(event.part.text)

        def on_retry(_attempt: int, delay: float, error: str) -> None:
            words.clear()
            self._emit(Notice("info", f"{what} is asked for again in {delay:.0f} s: {error}"))

        if self._stepper is not None:
            await self._stepper.before_request(what, request, self._model.name)
        # A limit of output is meant for answers. A summary has its own, in words.
        settings = self._settings.only({*SETTINGS} - {"max_output_tokens"})
        finished = await self._ask(replace(request, settings=settings), hear, on_retry, what)
        return "".join(words), finished.usage


def _keep(budgets: Sequence[Budget], usage: Usage) -> None:
    if words := next(filter(None, (budget.exhausted(usage) for budget in budgets)), None):
        raise BudgetExhausted(words)
