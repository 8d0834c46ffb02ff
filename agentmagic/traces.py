"""OpenTelemetry spans for turns, model requests and tool calls, named as in its GenAI semantic conventions.

There are no metrics. Nothing is traced, and OpenTelemetry is not imported, before the user has set a tracer provider in
this process. Each span is the current span while its work runs, so that spans of tools, HTTP clients and MCP become its
children.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import lru_cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from agentmagic.errors import describe
from agentmagic.events import RunResult
from agentmagic.log import logger
from agentmagic.messages import NOTEBOOK, Message, Part, Reasoning, Text, ToolCall, ToolDef, ToolResult, Usage, as_text
from agentmagic.secrets import redact
from agentmagic.serialization import own_version
from agentmagic.text import clip, cut, sanitize, sanitize_json

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

P = ParamSpec("P")
T = TypeVar("T")

CONVENTIONS = "0.1.0"
"""The version of the conventions (open-telemetry/semantic-conventions-genai, status Development)."""
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable of OpenTelemetry that decides whether spans have messages, arguments and results."""
_WANTED = ("true", "1", "span_only", "span_and_event")
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
"""The environment variable of OpenTelemetry with the name of a tracer provider, which is loaded at the first use."""

FLUSH = 2.0
"""Seconds to wait for the exporters at the end of a cell."""
LONGEST_TEXT = 10_000
"""Characters of a text, an argument or a result in a span."""
MOST_MESSAGES = 50
"""The most messages of a request that are exported in its span: the last ones."""
LONGEST_ERROR = 500
"""Characters of an error, or of the description of a tool, in a span."""

_NAMED_BY = {"invoke_agent": "agent.name", "chat": "request.model", "execute_tool": "tool.name"}
"""The attribute that follows the operation in the name of a span."""
_PROVIDERS = {"gemini": "gcp.gemini", "openai-chat": "openai"}
"""The names of providers in the conventions, where they differ from agentmagic's names."""


class TraceSpan:
    """A span that has been started; `inner` is the OpenTelemetry span, or None if nothing is traced.

    If `is_exported` is false, the span is never ended, so that it is not exported. This is used for work replayed from
    a cassette (a recording).
    """

    def __init__(self, span: "Span | None" = None, *, kept: bool = True) -> None:
        self.is_exported = kept
        self.inner = span
        self.conversation = ""

    @property
    def trace_id(self) -> str:
        """The id of the span's trace in hexadecimal digits, or "" if the span is not exported."""
        if self.inner is None or not self.is_exported or not self.inner.is_recording():
            return ""
        return f"{self.inner.get_span_context().trace_id:032x}"

    @property
    def takes_content(self) -> bool:
        """Whether the user has enabled content in spans: messages, tool arguments and results."""
        return self.inner is not None and os.environ.get(CONTENT, "").strip().lower() in _WANTED

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the span, without those whose value is empty, 0 or None."""
        if self.inner is not None:
            self.inner.set_attributes({f"gen_ai.{name}": value for name, value in attributes.items() if value})

    def count(self, usage: Usage) -> None:
        """Set the span's attributes for token counts."""
        if usage.input_tokens or usage.output_tokens:
            self.set(
                {
                    "usage.input_tokens": usage.input_tokens,
                    "usage.output_tokens": usage.output_tokens,
                    "usage.cache_read.input_tokens": usage.cached_tokens,
                    "usage.cache_creation.input_tokens": usage.cache_write_tokens,
                    "usage.reasoning.output_tokens": usage.reasoning_tokens,
                }
            )

    def fail(self, kind: str, message: str = "") -> None:
        """Set the span's status to an error; `kind` is an HTTP status or the name of an exception, for example.

        `message` is exported only if the user has enabled content in spans, since it may contain a part of an answer or
        an argument.
        """
        if self.inner is not None:
            from opentelemetry.trace import Status, StatusCode

            self.inner.set_attribute("error.type", kind)
            description = clip(redact(message), LONGEST_ERROR) if self.takes_content else ""
            self.inner.set_status(Status(StatusCode.ERROR, description or None))

    def drop(self) -> None:
        """Mark the span as not exported, unless it is `NOTHING`, the span that all untraced work shares."""
        self.is_exported = self.inner is None  # stays True for `NOTHING`, which has no `inner` and is shared

    def end(self) -> None:
        """End the span if it is to be exported; a span that never ends is not exported."""
        if self.inner is not None and self.is_exported:
            _unflushed.set()
            with suppress(Exception):  # a span processor of the user may raise
                self.inner.end()


NOTHING = TraceSpan()
_current: ContextVar[TraceSpan] = ContextVar("agentmagic_span", default=NOTHING)
_unflushed = threading.Event()
_flushing: list[threading.Thread] = []


Spanning = AbstractContextManager[TraceSpan]
_UNTRACED: Spanning = nullcontext(NOTHING)


def invoke_agent(name: str, model: str, conversation: str, *, on_tape: bool = False) -> Spanning:
    """Open the span of a turn.

    `on_tape` says that the turn uses a cassette (a recording). Its span is exported only if a request was really sent
    or a tool really ran.
    """
    if _tracer() is None:
        return _UNTRACED
    provider, _, model_name = model.partition(":")
    attributes = {"provider.name": _PROVIDERS.get(provider, provider), "request.model": model_name}
    attributes |= {"agent.name": name, "conversation.id": conversation}
    return _open_span("invoke_agent", attributes, is_exported=not on_tape)


def chat(
    model: str, instructions: str, messages: Sequence[Message], tools: Sequence[ToolDef], settings: Mapping[str, Any]
) -> Spanning:
    """Open the span of a model request; `settings` are its sampling settings, named as in the GenAI conventions."""
    if _tracer() is None:
        return _UNTRACED
    provider, _, model_name = model.partition(":")
    sampling = {f"request.{name}": value for name, value in settings.items()}
    attributes = {"provider.name": _PROVIDERS.get(provider, provider), "request.model": model_name, **sampling}

    def content() -> dict[str, Any]:
        return {
            "system_instructions": [{"type": "text", "content": instructions}] if instructions else [],
            "input.messages": [_message(one) for one in messages[-MOST_MESSAGES:]],
            "tool.definitions": [
                {"type": "function", "name": one.name, "description": one.description, "parameters": one.parameters}
                for one in tools
            ],
        }

    attributes |= {"request.stream": True}
    return _open_span("chat", attributes, content, remote=provider not in ("local", "scripted"))


def record_answer(span: TraceSpan, parts: Iterable[Part], usage: Usage, reason: str, model: str) -> None:
    """Add the answer to the span of a model request; `model` is the provider's name for the model that answered."""
    if span.inner is None:
        return
    span.set({"response.finish_reasons": [reason] if reason else None, "response.model": model})
    span.count(usage)
    if span.takes_content:
        message = {"role": "assistant", "parts": list(map(_part, parts)), "finish_reason": reason or "stop"}
        span.set({"output.messages": _json([message])})


def record_turn(span: TraceSpan, result: RunResult, error: BaseException | None) -> None:
    """Add the result of a turn to its span."""
    if span.inner is None:
        return
    span.count(result.usage)
    if error is not None or result.stop_reason in ("cancelled", "budget"):
        span.fail(result.stop_reason if error is None else kind_of_error(error), result.error)
    if span.takes_content and result.history_delta:
        prompt, *rest = result.history_delta
        span.set({"input.messages": _json([_message(prompt)]), "output.messages": _json(list(map(_message, rest)))})


def execute_tool(definition: ToolDef, call: ToolCall) -> Spanning:
    """Open the span of a tool call."""
    if _tracer() is None:
        return _UNTRACED
    attributes = {"tool.name": call.name, "tool.call.id": call.id}
    attributes["tool.description"] = clip(sanitize(definition.description), LONGEST_ERROR)
    attributes["tool.type"] = "function" if definition.server == NOTEBOOK else "extension"
    return _open_span("execute_tool", attributes, lambda: {"tool.call.arguments": call.arguments})


def record_call(span: TraceSpan, result: ToolResult, error: BaseException | None) -> None:
    """Add the result of a tool call to its span; `error` is the exception that the tool raised, or None."""
    if result.is_error:
        kind = "tool_error" if result.status == "error" else result.status
        span.fail(kind if error is None else type(error).__name__, result.text)
    if span.takes_content:
        span.set({"tool.call.result": _json(result.text)})


def kind_of_error(error: BaseException) -> str:
    """Return what the span attribute `error.type` says about an error: an HTTP status, or the exception's name."""
    status = getattr(error, "status", None)
    return type(error).__name__ if status is None else str(int(status))


def drop() -> None:
    """Mark agentmagic's current span as not exported, because its work was replayed from a cassette."""
    _current.get().drop()


def with_span(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls `function`, in any thread, with the span that is current now.

    If nothing is traced, `function` itself is returned. Other context variables stay those of the thread.
    """
    if _tracer() is None:
        return function
    current = _Current()

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with current.attach():
            return function(*args, **kwargs)

    return call


def with_span_async(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Return a coroutine function that runs `function`, in any task, with the span that is current now."""
    if _tracer() is None:
        return function
    current = _Current()

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with current.attach():
            return await function(*args, **kwargs)

    return call


def flush(seconds: float = FLUSH) -> None:
    """Let the user's exporters send the spans that have ended. Wait at most `seconds` for them."""
    # Start no thread if there is nothing to send, or if the thread of an earlier call still hangs in an exporter.
    if not _unflushed.is_set() or (_flushing and _flushing[0].is_alive()):
        return
    _unflushed.clear()
    provider: Any = import_module("opentelemetry.trace").get_tracer_provider()
    force = getattr(provider, "force_flush", None)
    if force is None:
        return

    def send() -> None:
        try:
            force(int(seconds * 1000))
        except Exception as error:  # noqa: BLE001  (of an exporter of the user)
            logger.warning("the spans of OpenTelemetry were not sent: %s", describe(error))

    # Run in a thread, because some exporters ignore the timeout that `force` gets.
    _flushing[:] = [threading.Thread(target=send, name="agentmagic-traces", daemon=True)]
    _flushing[0].start()
    _flushing[0].join(seconds)


# -- spans -----------------------------------------------------------------------------------------


def _tracer() -> "Tracer | None":
    """Return agentmagic's OpenTelemetry tracer, or None if the user has not set a tracer provider."""
    module: Any = sys.modules.get("opentelemetry.trace")
    if module is None and os.environ.get(_PROVIDER):
        with suppress(ImportError):
            module = import_module("opentelemetry.trace")
    # While another thread imports the module, `get_tracer_provider` may still be missing in it.
    if module is None or not hasattr(module, "get_tracer_provider"):
        return None
    provider, unset = module.get_tracer_provider(), (module.ProxyTracerProvider, module.NoOpTracerProvider)
    return None if isinstance(provider, unset) else _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: Any) -> "Tracer":
    url = f"https://opentelemetry.io/schemas/gen-ai/{CONVENTIONS}"
    return provider.get_tracer("agentmagic", own_version(), schema_url=url)


class _Current:
    """The spans that are current when this object is made.

    These are the current OpenTelemetry span, which may be another library's, and agentmagic's innermost span.
    """

    def __init__(self) -> None:
        from opentelemetry.trace import get_current_span

        self._ours, self._span = _current.get(), get_current_span()

    @contextmanager
    def attach(self) -> Generator[None]:
        """Make these spans the current spans in the `with` block."""
        with _attach(self._ours, self._span):
            yield


@contextmanager
def _attach(ours: TraceSpan, span: "Span") -> Generator[None]:
    from opentelemetry.context import attach, detach
    from opentelemetry.trace import set_span_in_context

    token, before = attach(set_span_in_context(span)), _current.set(ours)
    try:
        yield
    finally:
        _current.reset(before)
        detach(token)


@contextmanager
def _open_span(
    operation: str,
    attributes: Mapping[str, Any],
    content: Callable[[], Mapping[str, Any]] = dict,
    *,
    remote: bool = False,
    is_exported: bool = True,
) -> Generator[TraceSpan]:
    """Open a span that is current in the `with` block. An exception in the block becomes the span's error."""
    tracer = _tracer()
    if tracer is None:
        yield NOTHING
        return
    outer = _current.get()
    conversation = attributes.get("conversation.id") or outer.conversation
    all_attributes = {"operation.name": operation, "conversation.id": conversation, **attributes}
    span = _start_span(
        tracer, f"{operation} {attributes[_NAMED_BY[operation]]}".rstrip(), all_attributes, remote=remote
    )
    span.is_exported, span.conversation = is_exported, conversation
    try:
        if span.inner is None:
            yield span
            return
        if span.takes_content:
            span.set({key: _json(value) for key, value in content().items() if value})
        with _attach(span, span.inner):
            yield span
    except BaseException as error:
        is_cancelled = isinstance(error, asyncio.CancelledError)
        span.fail("cancelled" if is_cancelled else kind_of_error(error), "" if is_cancelled else describe(error))
        raise
    finally:
        outer.is_exported = outer.is_exported or span.is_exported
        span.end()


def _start_span(tracer: "Tracer", name: str, attributes: Mapping[str, Any], *, remote: bool) -> TraceSpan:
    """Start a span. If a span processor of the user raises, log a warning and return an empty span."""
    from opentelemetry.trace import SpanKind

    kind = SpanKind.CLIENT if remote else SpanKind.INTERNAL
    own_attributes = {f"gen_ai.{key}": value for key, value in attributes.items() if value}
    try:
        return TraceSpan(tracer.start_span(name, kind=kind, attributes=own_attributes))
    except Exception as error:  # noqa: BLE001  (see above)
        logger.warning("a span of OpenTelemetry could not be started: %s", describe(error))
        return TraceSpan()


# -- content ---------------------------------------------------------------------------------------


def _json(value: Any) -> str:
    """Return messages, arguments or results as JSON text for a span, with secrets blanked and long texts cut."""
    return json.dumps(
        sanitize_json(value, lambda text: cut(sanitize(text), LONGEST_TEXT)), ensure_ascii=False, default=repr
    )


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": list(map(_part, message.parts))}


def _part(part: Part) -> dict[str, Any]:
    """Return a message part in the form of the GenAI conventions. Media are named, but their data is left out."""
    match part:
        case Reasoning():
            return {"type": "reasoning", "content": part.text}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": dict(part.arguments)}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.text}
        case Text():
            return {"type": "text", "content": part.text}
        case _:
            return {"type": "text", "content": as_text(part)}
