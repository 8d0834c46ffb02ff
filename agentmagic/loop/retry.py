"""Send the model requests of a turn: streamed, and retried if that may help. Every failure is a ProviderError."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, nullcontext
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from random import Random
from typing import Any, cast

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
)

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
    describe,
)
from agentmagic.events import SERVED, PartDelta, PartFinished, PartStarted
from agentmagic.loop.budgets import BudgetExhausted
from agentmagic.messages import HostedResult, Media, Part, Text, ToolCall, Usage, user
from agentmagic.providers.base import Model, ModelEvent, ModelFinished, Request, Taped, is_played
from agentmagic.providers.gate import gate_of
from agentmagic.providers.registry import usage_with_cost
from agentmagic.providers.traffic import ModelExchange
from agentmagic.runtime.timeouts import Deadline, await_with_grace, is_cancelling
from agentmagic.secrets import redact

_JITTER = Random()  # noqa: S311  (not a secret; the generator of `random` belongs to the user's program)
REPROMPTS = 2
"""How often a request is sent again after an empty answer, or after an answer that cannot be read."""

MENDS = 5
"""How often a request is sent again without a field that the server refused."""

_OVERLOADED = (HTTPStatus.SERVICE_UNAVAILABLE, 529)
"""HTTP statuses of an overloaded server; 529 is Anthropic's."""

_REPROMPTS: dict[type[BaseException], str] = {
    EmptyAnswer: "Your last message was empty. Answer in words, or call a tool.",
    MalformedCall: "Your last message could not be read. Write it again; the arguments of a call are a JSON object.",
}
"""The message that is added when a request is sent again after an unusable answer. It is not kept in the history."""

PartEvent = PartStarted | PartDelta | PartFinished
Hear = Callable[[PartEvent], None]
OnRetry = Callable[[int, float, str], None]
"""Called after a failed try with its number, the seconds until the next try, and the error."""
OnMend = Callable[[str], None]
"""Called with a sentence about a field that the server refused and that the next request leaves out."""
Pay = Callable[[str, Usage], None]
"""Called with the name of a model and the usage of a request that was sent to it."""
_SAMPLING = {"temperature": "temperature", "max_output_tokens": "max_tokens", "seed": "seed"}
"""The names of a model's settings in the OpenTelemetry conventions for traces."""


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
    """Send a request, with retries as `settings` say. Return the model's closing event; its usage includes the cost.

    `hear` is called with the parts of the response as they come; the exchange keeps the complete parts of the last try.
    If the server refused a field of the request that the model object now leaves out, the request is sent again at
    once, which does not count as a try. `pay` is called with the usage of each request that was really sent, not played
    from a recorded cassette. Raises the ProviderError of the last try.

    Every try passes the model's gate (a rate limiter). If the turn is one of many rows of a map, `row` is its deadline,
    which is paused while the request waits at the gate. Then a request that was refused because of a rate limit or an
    overloaded provider also waits at the gate again, which does not count as a try.
    """
    failures: list[ProviderError] = []
    refusals: list[ProviderError] = []
    mends = 0
    gate, tokens = gate_of(model), tokens_of_request(exchange.request) if row else 0

    async def send_through_gate(request: Request) -> ModelFinished:
        async with AsyncExitStack() as stack:
            with row.pause_in_block() if row else nullcontext():
                ticket = await stack.enter_async_context(gate.ticket(tokens, row=row is not None))
            response = await _send(model, request, exchange.parts, hear, pay)
            ticket.charge_usage(response.usage)
            return response

    async def attempt() -> ModelFinished:
        nonlocal mends
        while True:
            request = _with_reprompt(exchange.request, failures)
            try:
                return await send_through_gate(request)
            except ProviderError as error:
                if row and _waits_at_gate(error) and _may_help(error, failures, settings):
                    refusals.append(error)
                    continue
                if error.mended and mends < MENDS:
                    mends += 1
                    on_mend(redact(error.mended))
                    continue
                failures.append(error)
                raise

    def report(state: RetryCallState) -> None:
        delay = state.next_action.sleep if state.next_action else 0.0
        on_retry(state.attempt_number, delay, redact(describe(failures[-1])))

    retrying = AsyncRetrying(
        stop=stop_after_attempt(settings.tries),
        wait=partial(_wait, settings),
        retry=retry_if_exception(lambda error: _may_help(error, failures, settings)),
        before_sleep=report,
        sleep=model.rest if isinstance(model, Taped) else asyncio.sleep,
        reraise=True,
    )
    try:
        response: ModelFinished = await cast("Any", retrying)(attempt)
    except ProviderError as error:
        error.usage = _failed_usage(model, [*failures, *refusals])
        raise
    return replace(
        response, usage=usage_with_cost(model, response.usage) + _failed_usage(model, [*failures, *refusals])
    )


def _failed_usage(model: Model, failures: list[ProviderError]) -> Usage:
    """Return the usage of failed tries, as far as the provider reported it."""
    return sum((usage_with_cost(model, failure.usage) for failure in failures if failure.usage is not None), Usage())


async def _send(model: Model, request: Request, parts: dict[int, Part], hear: Hear, pay: Pay) -> ModelFinished:
    """Send a request once, in a trace span, and pay for it.

    A request that is answered from a recorded cassette has no span and no price.
    """
    settings = request.settings.under(_SAMPLING)
    usage: Usage | None = None
    with traces.chat(model.name, request.instructions, request.messages, request.tools, settings) as span:
        try:
            response = await await_with_grace(_stream(model, request, parts, hear))
            usage = response.usage
            traces.record_answer(span, parts.values(), usage, response.reason, response.model)
        except ProviderError as error:
            usage = error.usage
            raise
        except asyncio.CancelledError:
            # The provider charges for the input of a cancelled request, so count an estimate of it.
            usage = Usage(input_tokens=tokens_of_request(request))
            raise
        finally:
            if is_played(model) or model.name.startswith(SERVED):
                span.drop()
            elif usage is not None:
                pay(model.name, usage_with_cost(model, usage))
    return response


async def _stream(model: Model, request: Request, parts: dict[int, Part], hear: Hear) -> ModelFinished:
    response = await stream_once(model, request, parts, hear)
    if not any(map(_says_something, parts.values())):
        raise _silence(model, response)
    return response


async def stream_once(model: Model, request: Request, parts: dict[int, Part], hear: Hear) -> ModelFinished:
    """Send a request once and return the model's closing event. Store the complete parts in `parts`, by index.

    Raises AgentMagicError; every failure of a model is a ProviderError.
    """
    response = None
    parts.clear()  # remove the parts that an earlier try received
    try:
        async with aclosing(cast("AsyncGenerator[ModelEvent]", model.stream(request))) as stream:
            async for event in stream:
                if isinstance(event, ModelFinished):
                    response = event
                else:
                    if isinstance(event, PartFinished):
                        parts[event.index] = event.part
                    hear(event)
    except Exception as error:
        if is_cancelling():  # SDKs raise their own errors when a cancellation closes their socket
            raise asyncio.CancelledError from error
        if isinstance(error, (AgentMagicError, BudgetExhausted)):
            raise
        raise ProviderError(f"{model.name} failed: {error_text(error)}") from error
    if response is None:  # the SDKs raise no error for a truncated stream
        message = f"{model.name} ended its answer without a closing event."
        raise ProviderError(message)
    return response


def _says_something(part: Part) -> bool:
    match part:
        case Text():
            return bool(part.text.strip())
        case HostedResult():  # an image answers the user; search results alone do not
            return any(isinstance(one, Media) for one in part.content)
        case _:
            return isinstance(part, ToolCall)


def _silence(model: Model, response: ModelFinished) -> EmptyAnswer:
    reason = "used up its limit of output before it said anything. Raise max_output_tokens, or ask for less at once."
    if not response.cut:
        reason = "answered nothing. Ask again, or ask in other words."
    error = EmptyAnswer(f"{model.name} {reason}")
    error.retryable = not response.cut
    error.usage = response.usage
    return error


def _with_reprompt(request: Request, failures: list[ProviderError]) -> Request:
    """Return the request for the next try. If the last answer could not be used, add a message that says why."""
    message = _REPROMPTS.get(type(failures[-1])) if failures else None
    return replace(request, messages=(*request.messages, user(message))) if message else request


def _may_help(error: BaseException, failures: list[ProviderError], settings: RetrySettings) -> bool:
    """Return whether sending a failed request again may help: as the settings say, or else by the kind of error."""
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
    """Return whether a request was refused because of the rate limit, or because the provider is overloaded."""
    return isinstance(error, RateLimited) or (isinstance(error, Unavailable) and error.status in _OVERLOADED)


def _backoff(settings: RetrySettings) -> Callable[[RetryCallState], float]:
    exponential = wait_exponential(multiplier=settings.first_wait, max=settings.longest_wait)
    return lambda state: exponential(state) + _JITTER.uniform(0, min(1.0, settings.longest_wait))


def _wait(settings: RetrySettings, state: RetryCallState) -> float:
    """Return the seconds before the next try.

    After an unusable answer it is 0. Otherwise it is what the provider asked for, or, if it asked for nothing, an
    exponential backoff with jitter.
    """
    error = state.outcome.exception() if state.outcome else None
    if type(error) in _REPROMPTS:
        return 0.0
    delay = error.retry_after if isinstance(error, ProviderError) else None
    return _backoff(settings)(state) if delay is None else delay


def error_text(error: Exception) -> str:
    """Return the type and the text of an error, with every secret blanked."""
    return redact(f"{type(error).__name__}: {describe(error)}")


def hide_secrets(error: BaseException) -> None:
    """Remove the causes of an error if one of them holds a secret, because a traceback would show it."""
    causes = [cause for cause in (error.__cause__, error.__context__) if cause is not None]
    if any(redact(words) != words for words in map(describe, _tree(causes))):
        error.__cause__, error.__suppress_context__ = None, True


def _tree(errors: Sequence[BaseException]) -> list[BaseException]:
    """Return the errors, their causes, and the members of exception groups, each once."""
    tree: list[BaseException] = []
    waiting = list(errors)
    while waiting:
        error = waiting.pop()
        if any(error is other for other in tree):  # seen before: compared by identity, as causes may form a cycle
            continue
        tree.append(error)
        members = cast("Sequence[BaseException]", error.exceptions) if isinstance(error, BaseExceptionGroup) else ()
        waiting += [one for one in (error.__cause__, error.__context__, *members) if one is not None]
    return tree
