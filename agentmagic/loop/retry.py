"""The model requests of a turn: streamed, retried if that may help. Every failure is a ProviderError."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, nullcontext
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)
from tenacity.wait import wait_base

from agentmagic import traces
from agentmagic.agent import RetrySettings
from agentmagic.context.request_view import tokens_of_request
from agentmagic.errors import (
    AgentMagicError,
    EmptyAnswer,
    MalformedCall,
    ProviderError,
    RateLimited,
    Unavailable,
    said,
)
from agentmagic.events import SERVED, PartDelta, PartFinished, PartStarted
from agentmagic.loop.budgets import BudgetExhausted
from agentmagic.messages import HostedResult, Media, Part, Text, ToolCall, Usage, user
from agentmagic.providers.base import Model, ModelEvent, ModelFinished, Request, Taped, is_played
from agentmagic.providers.gate import gate_of
from agentmagic.providers.registry import counted
from agentmagic.providers.traffic import ModelExchange
from agentmagic.runtime.timeouts import Deadline, await_with_grace, being_cancelled
from agentmagic.secrets import redact

REPROMPTS = 2
"""How often a model is asked again after an empty answer, or one that cannot be read."""

MENDS = 5
"""How often a request is sent again without a field that the server refused."""

_OVERLOADED = (HTTPStatus.SERVICE_UNAVAILABLE, 529)
"""Statuses of a server that has too much to do; the second is Anthropic's."""

_REPROMPTS: dict[type[BaseException], str] = {
    EmptyAnswer: "Your last message was empty. Answer in words, or call a tool.",
    MalformedCall: "Your last message could not be read. Write it again; the arguments of a call are a JSON object.",
}
"""What a model is told when it is asked again. The message is not kept in the history."""

PartEvent = PartStarted | PartDelta | PartFinished
Hear = Callable[[PartEvent], None]
OnRetry = Callable[[int, float, str], None]
"""Called after a failed try with its number, the seconds until the next, and the error."""
OnMend = Callable[[str], None]
"""Called with a sentence on what a server refused and the next request lacks."""
Pay = Callable[[str, Usage], None]
"""Called with the name of a model and what a request that was sent to it has used."""
_SAMPLING = {"temperature": "temperature", "max_output_tokens": "max_tokens", "seed": "seed"}
"""What the conventions of traces call the settings of a model."""


async def ask(  # noqa: PLR0913  (three of them hear what happens)
    model: Model,
    exchange: ModelExchange,
    settings: RetrySettings,
    hear: Hear,
    on_retry: OnRetry,
    on_mend: OnMend,
    pay: Pay,
    row: Deadline | None = None,
) -> ModelFinished:
    """Send a request, with retries as the settings say, and return the model's closing event, its usage with the cost.

    `hear` is called with the parts of the response as they come; the exchange keeps those of the last try that are
    whole. A request that the model has mended is sent again at once, which does not count as a try. `pay` is told what
    each request has used, if it was sent and not played from a cassette. Raises the ProviderError of the last try.

    Every try passes the gate of the model. `row` is the deadline of a turn that is one of many rows: it is paused
    while the request waits at the gate, and a refusal because of the pace is waited out there and counts as no try.
    """
    failures: list[ProviderError] = []
    waited: list[ProviderError] = []
    mends = 0
    gate, tokens = gate_of(model), tokens_of_request(exchange.request) if row else 0

    async def admitted(request: Request) -> ModelFinished:
        async with AsyncExitStack() as stack:
            with row.paused() if row else nullcontext():
                ticket = await stack.enter_async_context(gate.admitted(tokens, row=row is not None))
            finished = await _sent(model, request, exchange.parts, hear, pay)
            ticket.used(finished.usage)
            return finished

    async def attempt() -> ModelFinished:
        nonlocal mends
        while True:
            request = _reprompted(exchange.request, failures)
            try:
                return await admitted(request)
            except ProviderError as error:
                if row and _waits_at_gate(error) and _may_help(error, failures, settings):
                    waited.append(error)
                    continue
                if error.mended and mends < MENDS:
                    mends += 1
                    on_mend(redact(error.mended))
                    continue
                failures.append(error)
                raise

    def tell(state: RetryCallState) -> None:
        delay = state.next_action.sleep if state.next_action else 0.0
        on_retry(state.attempt_number, delay, redact(said(failures[-1])))

    retrying = AsyncRetrying(
        stop=stop_after_attempt(settings.tries),
        wait=partial(_wait, settings),
        retry=retry_if_exception(lambda error: _may_help(error, failures, settings)),
        before_sleep=tell,
        sleep=model.rest if isinstance(model, Taped) else asyncio.sleep,
        reraise=True,
    )
    try:
        finished: ModelFinished = await cast("Any", retrying)(attempt)
    except ProviderError as error:
        error.usage = _wasted(model, [*failures, *waited])
        raise
    return replace(finished, usage=counted(model, finished.usage) + _wasted(model, [*failures, *waited]))


def _wasted(model: Model, failures: list[ProviderError]) -> Usage:
    """Return the usage of failed tries, as far as the provider reported it."""
    return sum((counted(model, failure.usage) for failure in failures if failure.usage is not None), Usage())


async def _sent(model: Model, request: Request, parts: dict[int, Part], hear: Hear, pay: Pay) -> ModelFinished:
    """Send a request once, in a span of its own, and pay for it; what a cassette answers has no span, and no price."""
    given = request.settings.under(_SAMPLING)
    used: Usage | None = None
    with traces.chat(model.name, request.instructions, request.messages, request.tools, given) as span:
        try:
            finished = await await_with_grace(_stream(model, request, parts, hear))
            used = finished.usage
            traces.answered(span, parts.values(), used, finished.reason, finished.model)
        except ProviderError as error:
            used = error.usage
            raise
        except asyncio.CancelledError:
            used = Usage(input_tokens=tokens_of_request(request))  # what was sent is paid, as far as we know
            raise
        finally:
            if is_played(model) or model.name.startswith(SERVED):
                span.drop()
            elif used is not None:
                pay(model.name, counted(model, used))
    return finished


async def _stream(model: Model, request: Request, parts: dict[int, Part], hear: Hear) -> ModelFinished:
    finished = await stream_once(model, request, parts, hear)
    if not any(map(_says_something, parts.values())):
        raise _silence(model, finished)
    return finished


async def stream_once(model: Model, request: Request, parts: dict[int, Part], hear: Hear) -> ModelFinished:
    """Send a request once and return the model's closing event; `parts` has the parts that are whole, by index.

    Raises AgentMagicError, a ProviderError for any failure of a model.
    """
    finished = None
    parts.clear()  # of the try before
    try:
        async with aclosing(cast("AsyncGenerator[ModelEvent]", model.stream(request))) as stream:
            async for event in stream:
                if isinstance(event, ModelFinished):
                    finished = event
                else:
                    if isinstance(event, PartFinished):
                        parts[event.index] = event.part
                    hear(event)
    except Exception as error:
        if being_cancelled():  # SDKs raise their own errors when their socket is closed under them
            raise asyncio.CancelledError from error
        if isinstance(error, (AgentMagicError, BudgetExhausted)):
            raise
        raise ProviderError(f"{model.name} failed: {words_of(error)}") from error
    if finished is None:  # a truncated stream raises nothing in the SDKs
        message = f"{model.name} ended its answer without a closing event."
        raise ProviderError(message)
    return finished


def _says_something(part: Part) -> bool:
    match part:
        case Text():
            return bool(part.text.strip())
        case HostedResult():  # what was drawn is an answer, what was only searched is none
            return any(isinstance(one, Media) for one in part.content)
        case _:
            return isinstance(part, ToolCall)


def _silence(model: Model, finished: ModelFinished) -> EmptyAnswer:
    words = "used up its limit of output before it said anything. Ask for less at once."
    if not finished.cut:
        words = "answered nothing. Ask again, or ask in other words."
    error = EmptyAnswer(f"{model.name} {words}")
    error.retryable = not finished.cut
    error.usage = finished.usage
    return error


def _reprompted(request: Request, failures: list[ProviderError]) -> Request:
    """Return the request, with a message on what was wrong with the last answer if that was the model's fault."""
    words = _REPROMPTS.get(type(failures[-1])) if failures else None
    return replace(request, messages=(*request.messages, user(words))) if words else request


def _may_help(error: BaseException, failures: list[ProviderError], settings: RetrySettings) -> bool:
    """Whether sending the same request again may help, as the settings or else the provider say."""
    if not isinstance(error, ProviderError):
        return False
    if settings.statuses is not None and error.status is not None:
        retryable = error.status in settings.statuses
    else:
        retryable = error.retryable
    if type(error) in _REPROMPTS:
        return retryable and sum(type(one) in _REPROMPTS for one in failures) <= REPROMPTS
    return retryable and (error.retry_after or 0.0) <= settings.longest_retry_after


def _waits_at_gate(error: ProviderError) -> bool:
    """Return whether a request was refused because too many are sent."""
    return isinstance(error, RateLimited) or (isinstance(error, Unavailable) and error.status in _OVERLOADED)


def _backoff(settings: RetrySettings) -> wait_base:
    jitter = wait_random(0, min(1.0, settings.longest_wait))
    return wait_exponential(multiplier=settings.first_wait, max=settings.longest_wait) + jitter


def _wait(settings: RetrySettings, state: RetryCallState) -> float:
    """Return the seconds before the next try: what the provider asked for, else backoff with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if type(error) in _REPROMPTS:
        return 0.0
    asked = error.retry_after if isinstance(error, ProviderError) else None
    return _backoff(settings)(state) if asked is None else asked


def words_of(error: Exception) -> str:
    """Return the type and the text of an error, with every secret blanked."""
    return redact(f"{type(error).__name__}: {said(error)}")


def hide_secrets(error: BaseException) -> None:
    """Remove the causes of an error if one of them holds a secret, since a traceback would show it."""
    causes = [cause for cause in (error.__cause__, error.__context__) if cause is not None]
    if any(redact(words) != words for words in map(said, _tree(causes))):
        error.__cause__, error.__suppress_context__ = None, True


def _tree(errors: Sequence[BaseException]) -> list[BaseException]:
    """Return errors, their causes and the members of their groups, each once."""
    found: list[BaseException] = []
    waiting = list(errors)
    while waiting:
        error = waiting.pop()
        if any(error is known for known in found):  # by identity: causes may form a cycle
            continue
        found.append(error)
        members = cast("Sequence[BaseException]", error.exceptions) if isinstance(error, BaseExceptionGroup) else ()
        waiting += [one for one in (error.__cause__, error.__context__, *members) if one is not None]
    return found
