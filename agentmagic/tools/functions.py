"""Python functions as tools: what a model sees of them, where they run, what becomes of what they return."""

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast, overload

from agentmagic import schema
from agentmagic.engine import caller_loop, engine, void
from agentmagic.errors import UsageError
from agentmagic.messages import Content, Example, Media, Resource, Text, ToolCall, ToolDef, ToolResult
from agentmagic.tools.base import TIMEOUT, Done, Tool, ToolContext, result

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

MARK = "__agentmagic_tool__"
TABLE_ROWS = 50
"""Rows of a data frame that are written out for a model; beyond, head and shape must do."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What `@tool` was told; see there."""

    name: str | None = None
    description: str | None = None
    ask: bool = False
    timeout: float | None = TIMEOUT
    parallel: bool = True
    thread_safe: bool = False
    loop: Literal["engine", "caller"] = "engine"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    ask: bool = False,
    timeout: float | None = TIMEOUT,
    parallel: bool = True,
    thread_safe: bool = False,
    loop: Literal["engine", "caller"] = "engine",
) -> Callable[[F], F]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Make a function a tool; it stays an ordinary function, and a model may call it too.

    The schema comes from its type hints and docstring. A docstring line
    `Example: a question -> {"argument": "value"}` shows small models how to call it.

    `ask=True` has a person asked before each call. `timeout` is in seconds, None for none.
    `parallel=False` keeps other calls from running beside it. `thread_safe=True` lets a synchronous
    function run in a thread where it would run in the kernel's main thread. `loop="caller"` runs an async
    function on the event loop of the code that started the run, for what is bound to that loop.

    Raises UsageError for a function whose parameters no model could fill in.
    """
    if function is None:
        return lambda inner: tool_with(inner, ToolOptions(**options))
    return tool_with(function, ToolOptions(**options))


def tool_with(function: F, options: ToolOptions) -> F:
    """Mark a function as a tool, having seen that it can be one."""
    if not callable(function):
        message = f"@tool marks functions, and {function!r} is none."
        raise UsageError(message)
    schema.read_signature(function, ToolContext)
    if options.loop == "caller" and not inspect.iscoroutinefunction(function):
        message = f'{function.__name__} is not async, so loop="caller" means nothing to it. Leave it out.'
        raise UsageError(message)
    setattr(function, MARK, options)
    return function


def is_tool(value: object) -> bool:
    """Whether `@tool` marked this very function."""
    return inspect.isroutine(value) and isinstance(getattr(value, MARK, None), ToolOptions)


def function_tool(function: Function) -> Tool:
    """Make the `Tool` of a function, marked or plain.

    Raises UsageError for a function whose parameters no model could fill in.
    """
    options = cast("ToolOptions", getattr(function, MARK, ToolOptions()))
    signature = schema.read_signature(function, ToolContext)
    definition = ToolDef(
        options.name or signature.name,
        options.description or signature.description,
        signature.parameters,
        examples=tuple(Example(question, arguments) for question, arguments in signature.examples),
    )
    invoke = _Invocation(function, signature, options)
    return Tool(definition, invoke, options.timeout, options.parallel, options.ask)


class Functions:
    """A toolset of Python functions."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self._tools = tuple(function_tool(function) for function in functions)

    async def tools(self) -> Sequence[Tool]:
        """Return the functions' tools, the same ones each time."""
        return self._tools

    async def aclose(self) -> None:
        """Do nothing: functions hold nothing open."""


class _BlockingContext(ToolContext):
    """The context of a synchronous function, whose `ask` returns the answer itself."""

    def __init__(self, outer: ToolContext, loop: asyncio.AbstractEventLoop) -> None:
        self.call = outer.call
        self.deps = outer.deps
        self._outer = outer
        self._loop = loop

    @property
    def cancelled(self) -> bool:
        return self._outer.cancelled

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        self._outer.progress(progress, total, message)

    def ask(self, question: str) -> str:  # type: ignore[override]
        answer = asyncio.run_coroutine_threadsafe(self._outer.ask(question), self._loop)
        engine().wait(answer, lambda: None)
        return answer.result()


@dataclass(frozen=True, slots=True)
class _Invocation:
    """One function's way from a call to a result."""

    function: Function
    signature: schema.Signature
    options: ToolOptions

    async def __call__(self, call: ToolCall, context: ToolContext) -> ToolResult:
        arguments = schema.arguments_for(self.signature, call.arguments)
        if inspect.iscoroutinefunction(self.function):
            value = await self._asynchronously(arguments, context)
        else:
            value = await self._synchronously(arguments, context)
        return to_result(call, value)

    async def _asynchronously(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        coroutine = self.function(**self._with(arguments, context))
        loop = caller_loop.get()
        if self.options.loop == "engine":
            return await coroutine
        main = engine().main
        if loop is not None and not main.serving:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))
        return await main.run(functools.partial(_run_on, loop, coroutine))

    async def _synchronously(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        loop = asyncio.get_running_loop()
        blocking = _BlockingContext(context, loop)
        work = functools.partial(self.function, **self._with(arguments, blocking))
        main = engine().main
        if self.options.thread_safe or not (main.holds_tools and main.reachable):
            return await engine().in_pool(work)
        # A function that waits for its turn is not yet running: its own clock stands until then.
        context.deadline.pause()
        return await main.run(work, lambda: void(loop.call_soon_threadsafe(context.deadline.resume)))

    def _with(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        extra = {self.signature.context: context} if self.signature.context else {}
        return {**arguments, **extra}


def _run_on(loop: asyncio.AbstractEventLoop | None, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in the main thread, inside its loop although that is blocked in a cell."""
    if loop is None:
        return asyncio.run(coroutine)
    import nest_asyncio2

    nest_asyncio2.apply(loop)
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        raise


def to_result(call: ToolCall, value: Any) -> ToolResult:
    """Make a result of whatever a function returned."""
    if isinstance(value, Done):
        return result(call, value.message, done=value.message)
    if isinstance(value, ToolResult):
        return replace(value, call_id=call.id, name=call.name)
    structured = value if isinstance(value, (dict, list)) and _is_json(value) else None
    return replace(result(call, *to_content(value)), structured=structured)


def to_content(value: Any) -> Sequence[Content]:
    """Put a value into parts a model can read: text, or an image where it draws itself as one."""
    if value is None:
        return (Text("(no value returned)"),)
    if isinstance(value, str):
        return (Text(value),)
    if isinstance(value, (Text, Media, Resource)):
        return (value,)
    if isinstance(value, (list, tuple)) and any(isinstance(item, (Text, Media, Resource)) for item in value):
        return tuple(part for item in value for part in to_content(item))
    if image := _image(value):
        return (image,)
    return (Text(_table(value) or _json(value)),)


def _image(value: Any) -> Media | None:
    draw = getattr(value, "_repr_png_", None) or getattr(value, "savefig", None)
    if draw is None or isinstance(value, type):
        return None
    if draw.__name__ == "savefig":
        import io

        buffer = io.BytesIO()
        draw(buffer, format="png")
        return Media("image/png", buffer.getvalue())
    data = draw()
    return Media("image/png", data) if isinstance(data, bytes) else None


def _table(value: Any) -> str | None:
    """Write a data frame or series out, without importing pandas to know one."""
    write, head, shape = (getattr(value, name, None) for name in ("to_string", "head", "shape"))
    if not (callable(write) and callable(head) and isinstance(shape, tuple)):
        return None
    if shape[0] <= TABLE_ROWS:
        return str(write())
    return f"{head(TABLE_ROWS).to_string()}\n({shape[0]} rows in all, the first {TABLE_ROWS} shown)"


def _json(value: Any) -> str:
    from pydantic_core import to_jsonable_python

    data = to_jsonable_python(value, fallback=_plain, serialize_unknown=True)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _plain(value: Any) -> Any:
    item = getattr(value, "item", None)  # a NumPy scalar knows its Python value
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    listed = getattr(value, "tolist", None)
    return listed() if callable(listed) else repr(value)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


