"""Take one step of a turn: send a request to the model, and emit its response as events."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from agentmagic.agent import TOOL_CHOICES
from agentmagic.context.compaction import Context, Limits
from agentmagic.context.request_view import CHARACTERS, tokens_by_part
from agentmagic.errors import ContextTooLong, ProviderError, ToolError
from agentmagic.events import (
    Compacted,
    Fold,
    Notice,
    PartFinished,
    Sampled,
    StepFinished,
    StepRetried,
    StepStarted,
    Working,
)
from agentmagic.loop.budgets import NOTHING, UNKNOWN_COST, BudgetExhausted, Meter, keep
from agentmagic.loop.hosting import take_hosted
from agentmagic.loop.retry import Hear, OnRetry, PartEvent, ask
from agentmagic.loop.stepping import Stepper
from agentmagic.loop.tool_calls import Emit
from agentmagic.loop.turn_context import TurnContext
from agentmagic.messages import Media, Message, Part, Text, ToolCall, ToolDef, Usage, user
from agentmagic.providers.base import (
    SETTINGS,
    ModelFinished,
    OutputSchema,
    PlanQuestion,
    Request,
    honoured_settings,
    hosts,
    is_played,
)
from agentmagic.runtime.engine import void
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact
from agentmagic.tools.base import Completion, Tool, current_tools, list_connected
from agentmagic.tools.output_cache import find_result, reader

Messages = tuple[Message, ...]
DECIDING = {
    "route": "choosing the route",
    "plan": "planning",
    "parameters": "settling the parameters of a task",
    "judgement": "judging the result of a task",
}
"""What the user is shown while the model makes a decision of a planned turn."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The first request that a turn would send, and the estimated tokens of its parts.

    `unlisted` are servers that are not connected. A real turn would connect them and add their tools to the request.
    """

    model: str
    request: Request
    tokens: Mapping[str, int]
    unlisted: tuple[str, ...] = ()


async def preview(turn: TurnContext) -> Preview:
    """Return the first request that a turn would send, without connecting a server or sending anything."""
    tools, own, unlisted = await _list_connected(turn)
    steps = Steps(turn, tools, Fold(), void)
    steps.hosted = tuple(tool for tool in own if hosts(turn.model, tool.hosted))
    request = await steps.first_request()
    return Preview(turn.model.name, request, tokens_by_part(request), unlisted)


async def compact(turn: TurnContext) -> Compacted | None:
    """Compact the history between two turns. Return a description of the change, or None if it would save too little.

    Older results are shortened for the model; if that is not enough, older turns are summarised. Raises BudgetExhausted
    if a budget does not allow the request for the summary.
    """
    tools, _, _ = await _list_connected(turn)
    return await Steps(turn, tools, Fold(), void).compact_early()


async def _list_connected(turn: TurnContext) -> tuple[dict[str, Tool], list[Tool], tuple[str, ...]]:
    """Return a turn's tools, the tools that the provider runs itself, and the names of servers that are not connected.

    No server is connected for this.
    """
    listings = [await list_connected(source) for source in turn.toolsets]
    # Later entries of a dict replace earlier ones. So the order is reversed, to keep the first tool of each name.
    tools = {tool.name: tool for source_tools, _ in reversed(listings) for tool in reversed(source_tools)}
    available, _ = current_tools(tools.values())
    own = take_hosted(available)
    return available, own, tuple(name for _, missing in listings for name in missing)


class Steps:
    """Takes the steps of a turn. A step is one model request, whose response is emitted part by part.

    `number` counts the steps. `tools` are the tools of the turn; when the first long result is shortened, a tool is
    added that reads the rest. `fold` holds the messages of the turn so far. The `meters` count the usage of the
    turn and of inner turns. The model's provider itself runs the `hosted` tools.
    """

    def __init__(
        self, turn: TurnContext, tools: dict[str, Tool], fold: Fold, emit: Emit, stepper: Stepper | None = None
    ) -> None:
        self.hosted: tuple[Tool, ...] = ()
        self.number = 0
        self._own_meter = Meter("turn")
        # The calls of an outside program cost nothing, so its turn is not limited. Its inner turns are.
        self._limited = [] if turn.caller else [meter for meter in turn.meters if meter.is_limited]
        self.meters = (self._own_meter, *turn.meters)
        self._turn = turn
        self._model = turn.model
        self._schema = turn.agent.output_schema
        self._tools = tools
        self._fold = fold
        self._emit = emit
        self._stepper = stepper
        self._call_ids: set[str] = set()
        self.tell_of_project()
        self._settings = honoured_settings(turn.model, turn.agent.settings)
        self._limits = Limits(turn.facts.window, turn.agent.compact_at, turn.agent.max_result)

    def tell_of_project(self) -> None:
        """Add the project files that the user has approved by now to the instructions, before the first step."""
        self._project = self._turn.project.texts
        self._instructions = self._turn.agent.instructed(self._project)

    @cached_property
    def _context(self) -> Context:
        """The object that decides which part of the history is sent to the model.

        It counts the tokens of the tools, which are known only at the first step, so it is not created earlier.
        """
        self._turn.view.pictures.is_played = is_played(self._model)
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
        """Send one request, with retries, and emit its response. `extra` messages are sent, but not kept.

        The history is compacted first if the request would be too long. A `closing` step is not counted as a step.
        Raises ProviderError, and BudgetExhausted before a request that a budget does not allow.
        """
        messages = await self._fitting()
        self.number += not closing
        self._emit(StepStarted(self.number, self._model.name, closing))
        await asyncio.sleep(0)  # lets a cancellation arrive, even if the model and the tools never wait
        if self._stepper is not None and self._stepper.on and await self._pause(messages, tool_choice, extra):
            messages = await self._fitting()
        began = time.monotonic()
        response = await self._respond(messages, tool_choice, extra)
        self._emit(StepFinished(self.number, response.usage, response.reason, time.monotonic() - began))
        self._call_ids.update(call.id for call in self._fold.unanswered)
        self._measure(response)
        return response

    async def _pause(self, messages: Messages, tool_choice: str, extra: Messages) -> bool:
        """In step mode, show the request and wait for the user. Return whether the user changed its prompt."""
        assert self._stepper is not None  # noqa: S101  (of the caller)
        last = self._fold.messages[-1]
        request = self._request(messages, tool_choice, extra)
        prompt = last if last.role == "user" and not extra else None
        return await self._stepper.before_step(self.number, request, self._model.name, prompt)

    async def first_request(self) -> Request:
        """Return the request of the first step of a turn that has not begun."""
        choice = self._turn.agent.tool_choice
        messages = (*self._turn.history.messages, self._turn.prompt)
        await self._fit_pictures(messages)
        return self._request(messages, choice if choice in TOOL_CHOICES or choice in self._tools else "auto", ())

    def write(self, *parts: Part) -> None:
        """Emit a step that no model request produced, such as the tool calls of a plan."""
        self.number += 1
        self._emit(StepStarted(self.number, self._model.name))
        for index, part in enumerate(parts):
            self._emit(PartFinished(index, part))
        self._emit(StepFinished(self.number, Usage()))
        self._call_ids.update(call.id for call in self._fold.unanswered)

    async def decide(self, prompt: str, schema: OutputSchema, question: PlanQuestion) -> tuple[str, Usage]:
        """Send the model a question that does not join the conversation, and return the answer and the usage.

        The answer should be JSON that fits `schema`, but this is not checked here. With the questions "use tools?" and
        "which tasks?", the model also gets the conversation and the tools. Raises ProviderError and BudgetExhausted.
        """
        message = user(f"{prompt}\n\n{schema.instructions}")
        if question.tool is None:
            request = self._request(await self._fitting(), "none", (message,))
        else:
            self.keep_budgets()  # no summary is needed, because the history is not sent
            request = Request((message,), self._turn.agent.instructions)
        self._emit(Working(DECIDING[question.kind]))
        request = replace(request, output=schema, decision=question)
        return await self._complete(request, f"The {question.kind}")

    async def _fitting(self) -> Messages:
        """Return the messages for the next request.

        The history is compacted first if the messages are too long. Raises BudgetExhausted if a budget is used up.
        """
        self.keep_budgets()
        for warning in filter(None, (meter.warning() for meter in self._limited)):
            self._emit(Notice("warning", warning))
        messages = self._messages
        await self._fit_pictures(messages)
        if self._context.due(messages) and await self._compact(messages):
            self.keep_budgets()  # check again: the summary had a cost too
        return messages

    def own_id(self, event: PartFinished) -> PartFinished:
        """Give a tool call a new id if an earlier call has the same id, because results refer to calls by id."""
        if not isinstance(event.part, ToolCall):
            return event
        call_id = event.part.id
        is_in_use = call_id in self._turn.history.call_ids or call_id in self._call_ids or self._fold.has_call(call_id)
        if not is_in_use:
            return event
        # Drop `provider_data`: it holds the old id, so it must not be sent back to the provider.
        return replace(event, part=replace(event.part, id=f"call_{uuid.uuid4().hex}", provider_data=None))

    async def sample(  # noqa: PLR0913  (the request, and the call that makes it)
        self,
        call_id: str,
        server: str,
        deadline: Deadline,
        messages: Sequence[Message],
        instructions: str,
        max_tokens: int,
    ) -> Completion:
        """Let the model answer a request of a tool, outside the conversation and without tools.

        Raises ProviderError, and ToolError if a budget is used up. `max_tokens` is not sent to the provider as a limit:
        the instructions tell the model to keep to it, and a longer answer is cut. `deadline` is that of the tool's
        call. In a row of a map, it is paused while the request waits for other rows.
        """
        try:
            self.keep_budgets()
        except BudgetExhausted as spent:
            message = f"The model was not asked. {spent}"
            raise ToolError(message) from None
        await self._fit_pictures(messages)
        request_messages = tuple(
            replace(message, parts=tuple(map(self._replace_media, message.parts))) for message in messages
        )
        full_instructions = f"{instructions}\n\nAnswer in at most {max_tokens} tokens.".lstrip()
        request = Request(request_messages, full_instructions)
        text, usage = await self._complete(request, "The answer for a tool", deadline)
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

    async def _ask(
        self, request: Request, hear: Hear, on_retry: OnRetry, purpose: str = "", deadline: Deadline | None = None
    ) -> ModelFinished:
        """Send a request to the model with retries, and count the usage of failed tries too.

        In a row of a map, `deadline`, by default that of the turn, is paused while the request waits for other rows.
        """
        if self._turn.around is not None:
            purpose = f"{self._turn.name}: {purpose or f'step {self.number}'}"
        row = self._turn.row
        waits = (deadline or self._stepper.gate.deadline) if row and self._stepper is not None else None
        retry, pay = self._turn.agent.retry, self._turn.account.pay
        aside = NOTHING if row is None else await row.set_aside(request)
        used: Usage | None = NOTHING
        try:
            with self._turn.traffic.exchange(request, self.number, purpose) as exchange:
                response = await ask(self._model, exchange, retry, hear, on_retry, self._say_mend, pay, waits)
                exchange.finished = response
            used = response.usage
        except ProviderError as error:
            used = error.usage or NOTHING
            raise
        except asyncio.CancelledError:
            used = None
            raise
        finally:
            if row is not None:
                row.give_back(request, aside, used)
            self.spend(used or NOTHING)
        return response

    def keep_budgets(self) -> None:
        """Raise BudgetExhausted if a budget is used up, or cannot be checked because the model's price is unknown."""
        keep(self._limited, NOTHING if self._turn.facts.priced else UNKNOWN_COST)

    @property
    def usage(self) -> Usage:
        """The usage of the turn so far, that of inner turns included."""
        return self._own_meter.spent

    def spend(self, usage: Usage) -> None:
        """Count the usage of a request in all meters of the turn."""
        for meter in self.meters:
            meter.spend(usage)

    def _measure(self, response: ModelFinished) -> None:
        if not (response.usage.input_tokens or response.usage.output_tokens):  # the provider does not count tokens
            estimate = Usage(input_tokens=self._context.estimate(self._messages))
            for meter in self._limited:
                meter.spend(estimate)
        elif response.once:  # otherwise the provider generated several times, and counted the conversation each time
            self._context.measured(len(self._messages) - 1, response.usage)

    def _say_retry(self, attempt: int, delay: float, error: str) -> None:
        self._emit(StepRetried(self.number, attempt, delay, redact(error), self._turn.agent.retry.tries))

    def _say_mend(self, mend: str) -> None:
        self._emit(Notice("info", mend))

    @property
    def _messages(self) -> Messages:
        return (*self._turn.history.messages, *self._fold.messages)

    def _request(self, messages: Messages, tool_choice: str, extra: Messages) -> Request:
        request_messages = (*self._context.view(messages), *extra)
        # A client reads on in a later call, which is a turn of its own.
        if (self._context.shortened or self._turn.caller) and self._tools:
            tool = reader(lambda call_id: find_result(self._messages, call_id), self._limits.result)
            self._tools.setdefault(tool.name, tool)
        return Request(
            request_messages,
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
        # By name: if servers were given in another order, the provider's prompt cache would not know the request.
        return tuple(tool.definition for _, tool in sorted(self._tools.items()))

    async def _compact(self, messages: Messages) -> bool:
        """Shorten or summarise older messages for the model, if that saves enough. Return whether it was done."""
        compaction = await self._context.compact(messages, len(self._turn.history.messages), self._complete)
        if compaction is not None:
            self._emit(compaction)
        return compaction is not None

    async def compact_early(self) -> Compacted | None:
        """Compact the history between two turns. Return None if too little would be saved."""
        self.keep_budgets()
        messages, unsent = self._turn.history.messages, self._turn.history.unsent
        await self._fit_pictures(messages)
        prompts = (at for at, one in enumerate(messages) if one.role == "user" and at not in unsent)
        last = max(prompts, default=None)
        return None if last is None else await self._context.compact(messages, last, self._complete, early=True)

    def _replace_media(self, part: Part) -> Part:
        """Replace media that the model does not accept by text that names them, and make pictures small."""
        return self._context.fit(part) if isinstance(part, Media) else part

    async def _fit_pictures(self, messages: Sequence[Message]) -> None:
        """Make the pictures of messages small in a thread, and tell the user once if some cannot be sent."""
        if notice := await self._context.fit_pictures(messages):
            self._emit(Notice("warning", notice))

    async def _complete(
        self, request: Request, purpose: str = "The summary", deadline: Deadline | None = None
    ) -> tuple[str, Usage]:
        """Let the model write a text that is not part of the conversation; return the text and the usage."""
        texts: list[str] = []

        def hear(event: PartEvent) -> None:
            if isinstance(event, PartFinished) and isinstance(event.part, Text):
                texts.append(event.part.text)

        def on_retry(_attempt: int, delay: float, error: str) -> None:
            texts.clear()
            self._emit(Notice("info", f"{purpose} failed, and a new try follows after {delay:.0f} s: {error}"))

        if self._stepper is not None:
            await self._stepper.before_request(purpose, request, self._model.name)
        # max_output_tokens is meant for answers. The prompt of a summary states its own limit in words.
        settings = self._settings.only({*SETTINGS} - {"max_output_tokens"})
        response = await self._ask(replace(request, settings=settings), hear, on_retry, purpose, deadline)
        return "".join(texts), response.usage
