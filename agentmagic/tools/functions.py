"""Makes tools of Python functions: defines them for the model, chooses a thread or event loop, converts results."""

import asyncio
import inspect
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar, cast, overload

from agentmagic import json_schema
from agentmagic.errors import ToolError, UsageError
from agentmagic.host import Output, current_host
from agentmagic.messages import Example, Message, ToolCall, ToolDef, ToolResult
from agentmagic.runtime.engine import caller, engine, outcome, void
from agentmagic.runtime.exits import contained_exits, interruption
from agentmagic.runtime.nested_runs import run_nested
from agentmagic.tools.base import STILL_RUNNING, TIMEOUT, Completion, Done, Tool, ToolContext, result
from agentmagic.tools.executors import Dispatcher, check_executor
from agentmagic.undo.own import user_variables
from agentmagic.values.describe import collect, snapshot, to_outputs

Function = Callable[..., Any]
T = TypeVar("T")
F = TypeVar("F", bound=Function)

PAUSE = 0.1
"""Seconds between two progress reports with the lines that a running function printed."""

MARK = "__agentmagic_tool__"
TOOL_CACHE = "__agentmagic_built__"
"""The attribute in which a function caches its `Tool`, because reading a signature takes a millisecond or two."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Pattern of the tool names that all providers accept."""
MOST_NAMES = 100
"""Maximum number of variable names that the model can choose from for a parameter. The newest ones are offered."""
IN_THREAD = (
    "The main thread is busy, so functions that were called from another thread run in a thread. "
    "If they are safe there, say so with @tool(thread_safe=True)."
)


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options of the decorator `@tool`; see its docstring."""

    name: str | None = None
    description: str | None = None
    ask: bool = False
    timeout: float | None = TIMEOUT
    parallel: bool = True
    thread_safe: bool = False
    loop: Literal["engine", "caller"] = "engine"
    variables: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    executor: Executor | None = field(default=None, repr=False, compare=False)
    repeatable: bool = False


class _HiddenValue:
    """Holds a value that is stored as an attribute of a function. In a pickle of the function, it becomes None.

    A pickle of the function may be sent to a worker. It must not contain the options of the tool, because they have
    references to the executor and to the notebook's variables.
    """

    __slots__ = ("value",)

    def __init__(self, value: ToolOptions | Tool) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


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
    variables: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    repeatable: bool = False,
) -> Callable[[F], F]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Mark a function as a tool that models may call. It stays an ordinary function.

    The schema comes from its type hints and docstring. A docstring line
    `Example: a question -> {"argument": "value"}` shows small models how to call it.

    With `ask=True` the user is asked before each call. `timeout` is in seconds; None means no limit. With
    `parallel=False` no other call runs at the same time. With `thread_safe=True` a synchronous function runs in a
    thread, and not in the kernel's main thread. With `loop="caller"` an async function runs on the event loop of the
    code that started the run, for objects that are bound to that loop.

    For a parameter whose class JSON cannot represent, such as a data frame, the model gives the name of a variable of
    the notebook. In a Python script, pass the variables: `@tool(variables=globals())`.

    With `executor` the body of a synchronous function runs on that executor: on threads, on a process pool, or on
    workers of a cluster. `repeatable` says that a second run of a call does no harm. Without it, an executor that may
    run a call twice is refused.

    Raises UsageError for a function with parameters that a model cannot fill in, or that cannot run on its executor.
    """
    tool_options = ToolOptions(**options)
    return partial(tool_with, options=tool_options) if function is None else tool_with(function, tool_options)


def tool_with(function: F, options: ToolOptions) -> F:
    """Mark a function as a tool with the options of `@tool`. Raises UsageError if the function cannot be a tool."""
    if not callable(function):
        raise UsageError(f"@tool marks functions, and {function!r} is none.")
    new_tool = _make_tool(function, options)
    if options.loop == "caller" and not _is_async_function(function):
        name = json_schema.name_of(function)
        raise UsageError(f'{name} is not async, so loop="caller" means nothing to it. Leave it out.')
    try:
        setattr(function, MARK, _HiddenValue(options))
        setattr(function, TOOL_CACHE, _HiddenValue(new_tool))
        json_schema.set_plain_defaults(function)
    except AttributeError:  # Bound methods and built-in functions do not accept new attributes.
        raise UsageError(
            f"@tool cannot mark {function!r}. Mark the function itself, or give it to Agent(tools=[...]) as it is."
        ) from None
    return function


def is_tool(value: object) -> bool:
    """Return whether `@tool` marked this function."""
    function = inspect.isroutine(value) or isinstance(value, partial)
    return function and _hidden_value(cast("object", value), MARK) is not None


def _hidden_value(function: object, attribute: str) -> Any:
    holder = getattr(function, attribute, None)
    return holder.value if isinstance(holder, _HiddenValue) else None


def function_tool(function: Function) -> Tool:
    """Return the `Tool` of a function, marked or plain.

    Raises UsageError for a function with parameters that a model cannot fill in.
    """
    cache = _hidden_value(function, TOOL_CACHE)
    # This is checked because functools.wraps copies attributes: a wrapper can have the wrapped function's cache.
    if isinstance(cache, Tool) and cast("_Invocation", cache.invoke).function is function:
        return cache
    # A functools.partial of a function marked with @tool gets the same options, such as `ask`.
    candidates = (_hidden_value(layer, MARK) for layer in json_schema.layers(function))
    tool = _make_tool(function, next((layer for layer in candidates if layer is not None), ToolOptions()))
    with suppress(AttributeError):  # Bound methods and built-in functions do not accept new attributes.
        setattr(function, TOOL_CACHE, _HiddenValue(tool))
    return tool


def _make_tool(function: Function, options: ToolOptions) -> Tool:
    name = options.name or json_schema.name_of(function)
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]} is no name for a tool: it takes ASCII letters, digits, _ and -, 64 at most, a letter first. "
            'Write a function with such a name, or give it one with @tool(name="...").'
        )
    signature = json_schema.read_signature(function, ToolContext, variables=_variables(options) is not None)
    definition = ToolDef(
        name,
        options.description or signature.description,
        signature.parameters,
        examples=tuple(Example(question, arguments) for question, arguments in signature.examples),
    )
    check_executor(function, options.executor, signature.context, repeatable=options.repeatable)
    executor = options.executor
    dispatcher = None if executor is None else Dispatcher(function, executor, repeatable=options.repeatable)
    invoke = _Invocation(function, signature, options, dispatcher)
    now = partial(_definition_now, definition, signature, options) if signature.by_name else None
    return Tool(definition, invoke, options.timeout, options.parallel, options.ask, now=now)


# -- variables by name -----------------------------------------------------------------------------------


def _variables(options: ToolOptions) -> Mapping[str, Any] | None:
    """Return the variables that the model can name as arguments, or None without a notebook or `@tool(variables=)`."""
    notebook = current_host().notebook
    return notebook.namespace if options.variables is None and notebook is not None else options.variables


def _values(options: ToolOptions, classes: Sequence[type]) -> dict[str, Any]:
    """Return the variables whose values are instances of `classes`, without running code of the values."""
    variables = user_variables(_variables(options) or {})
    return {name: value for name, value in variables.items() if any(one in classes for one in type(value).__mro__)}


def _definition_now(definition: ToolDef, signature: json_schema.Signature, options: ToolOptions) -> ToolDef:
    """Return a tool's definition that lists the names of the variables that exist now.

    Raises UsageError if there is no variable for a required parameter.
    """
    names = {parameter: [*_values(options, classes)][-MOST_NAMES:] for parameter, classes in signature.by_name.items()}
    parameters, missing = json_schema.with_names(signature, names)
    if missing is not None:
        kinds = json_schema.any_of(signature.by_name[missing])
        raise UsageError(
            f"{definition.name} is left out of this turn: its {missing} is {kinds}, and no variable is one. "
            f"Bind one in a cell, {missing} = ..., and ask again."
        )
    return replace(definition, parameters=parameters)


def _with_variables(
    arguments: Mapping[str, Any], signature: json_schema.Signature, options: ToolOptions
) -> Mapping[str, Any]:
    """Replace each argument that names a notebook variable with its value. Raises ToolError for a missing variable."""
    values = dict(arguments)
    for parameter, classes in signature.by_name.items():
        if (name := values.get(parameter)) is None:
            continue
        if name not in (present := _values(options, classes)):
            kinds = json_schema.any_of(classes)
            others = ", ".join([*present][-MOST_NAMES:]) or "none"
            raise ToolError(f"No variable {name!r:.80} is {kinds} now. Those that are: {others}.")
        values[parameter] = present[name]
    return values


class Functions:
    """A toolset of Python functions and of `Tool` objects that the user built."""

    is_local = True

    def __init__(self, functions: Iterable[Function | Tool]) -> None:
        self._tools = tuple(_off_engine(one) if isinstance(one, Tool) else function_tool(one) for one in functions)

    async def tools(self) -> Sequence[Tool]:
        """Return the tools, which never change."""
        return self._tools

    async def aclose(self) -> None:
        """Do nothing: functions have no connections."""


class _RemoteContext(ToolContext):
    """A ToolContext for a function outside the engine's event loop: `ask` and similar methods run on that loop."""

    def __init__(self, outer: ToolContext) -> None:
        self.call = outer.call
        self.deps = outer.deps
        self.tools = outer.tools
        self.tell = outer.tell
        self.propose = outer.propose
        self._outer = outer

    @property
    def cancelled(self) -> bool:
        return self._outer.cancelled

    @property
    def output(self) -> Sequence[Output]:
        return self._outer.output

    def close_figures(self) -> None:
        self._outer.close_figures()

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        self._outer.progress(progress, total, message)

    async def ask(self, question: str) -> str:
        return await asyncio.wrap_future(engine().submit(self._outer.ask(question)))

    async def complete(self, messages: Sequence[Message], instructions: str = "", *, max_tokens: int) -> Completion:
        answer = self._outer.complete(messages, instructions, max_tokens=max_tokens)
        return await asyncio.wrap_future(engine().submit(answer))

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        return await asyncio.wrap_future(engine().submit(self._outer.call_tool(name, arguments)))


class _BlockingContext(_RemoteContext):
    """A ToolContext for a synchronous function: `ask`, `complete` and `call_tool` block and return the answer."""

    def ask(self, question: str) -> str:  # type: ignore[override]
        return self._await(super().ask(question))

    def complete(self, messages: Sequence[Message], instructions: str = "", *, max_tokens: int) -> Completion:  # type: ignore[override]
        return self._await(super().complete(messages, instructions, max_tokens=max_tokens))

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:  # type: ignore[override]
        return self._await(super().call_tool(name, arguments))

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        answer = engine().submit(coroutine)
        try:
            # In the main thread, `wait` runs other jobs meanwhile: it runs another tool, or reads a typed answer.
            engine().wait(answer, lambda: void(answer.cancel()))
            return answer.result()
        except CancelledError:
            if threading.current_thread() is threading.main_thread():
                raise interruption() from None  # A tool does not catch it with `except Exception`.
            raise ToolError("The turn is over.") from None
        finally:
            answer.cancel()


@dataclass(frozen=True, slots=True)
class _Invocation:
    """Calls one function, in the thread or on the event loop that its options and the engine choose."""

    function: Function
    signature: json_schema.Signature
    options: ToolOptions
    dispatcher: Dispatcher | None = None

    async def __call__(self, call: ToolCall, context: ToolContext) -> ToolResult:
        values = json_schema.arguments_for(self.signature, call.arguments)
        arguments = _with_variables(values, self.signature, self.options)
        if _is_async_function(self.function):
            return await self._run_async(arguments, context)
        if self.dispatcher is not None and self.dispatcher.kind != "threads":
            value = await self.dispatcher.run(arguments, self.signature.by_name, context)
        else:
            value = await self._run_sync(arguments, context)
        return (
            value
            if isinstance(value, ToolResult)
            else await _on_user_loop(lambda: _async_result(value, context), context)
        )

    async def _run_async(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        async def work() -> ToolResult:
            with contained_exits(), context.watch(self.function):
                value = self.function(**self._with(arguments, _RemoteContext(context)))
                return await _async_result(value, context)

        origin = caller.get()
        # The code that started the turn can run on the engine's own loop, which must not wait for itself. If Python
        # runs in a browser, that code always does.
        if self.options.loop == "engine" or origin.loop is asyncio.get_running_loop():
            return await _on_user_loop(work, context)
        main = engine().main
        # If synchronous code started the turn, `origin.loop` is None. The function then runs on a new loop: in the main
        # thread if a cell waits there, or else in a pool thread. If a waiting cell blocks `origin.loop`, the function
        # still runs on that loop, from inside the cell.
        if origin.loop is None and main.serving:
            return await main.run(lambda: asyncio.run(work()))
        if origin.loop is None:
            return await engine().in_pool(lambda: asyncio.run(work()))
        if origin.in_main_thread and main.serving:
            return await main.run(partial(run_nested, origin.loop, work()))
        answer = asyncio.run_coroutine_threadsafe(outcome(work), origin.loop)
        return (await asyncio.wrap_future(answer)).result()

    async def _run_sync(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Call a synchronous function, which may block. Return its result, or the awaitable that it returned."""
        loop = asyncio.get_running_loop()
        run = engine().in_pool if self.options.thread_safe else engine().run_user
        if self.dispatcher is not None:
            run = self.dispatcher.run_here
        keywords = self._with(arguments, _BlockingContext(context))

        def work() -> Any:
            capture = engine().main.capture_output(_LastLines(loop, context).tell)
            with contained_exits(), capture as context.capture:
                with context.watch(self.function):
                    value = self.function(**keywords)
                # Figures and tables are rendered in this thread: rendering is slow, and matplotlib not thread-safe.
                return value if _is_async(value) else to_result(context.call, value, context)

        def begin() -> None:
            if threading.current_thread() is not threading.main_thread():
                context.left = STILL_RUNNING
                if run == engine().run_user and engine().main.takes_tools:
                    context.tell(IN_THREAD)
            loop.call_soon_threadsafe(context.deadline.resume)

        # The call may wait for a free thread. `begin` starts the time limit when the function starts to run.
        context.deadline.pause()
        return await run(work, begin)

    def _with(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        extra = {self.signature.context: context} if self.signature.context else {}
        return {**arguments, **extra}


class _LastLines:
    """Reports the last lines that a function printed as the progress of its call, at most once in PAUSE seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: ToolContext) -> None:
        self._loop = loop
        self._context = context
        self._lines: Callable[[], str] = str
        self._next_report = 0.0

    def tell(self, lines: Callable[[], str]) -> None:
        self._lines = lines
        # Before the pause is over, a report is already scheduled, and it has these lines too.
        if (now := time.monotonic()) >= self._next_report + PAUSE:
            self._next_report = now
            self._loop.call_soon_threadsafe(self._loop.call_later, PAUSE, self._report)

    def _report(self) -> None:
        if lines := self._lines():
            self._context.progress(*self._context.reached, lines)


def _is_async_function(function: Function) -> bool:
    function = json_schema.innermost_function(function)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _is_async(value: object) -> bool:
    return inspect.isawaitable(value) or isinstance(value, AsyncIterator)


async def _async_result(value: Any, context: ToolContext) -> ToolResult:
    """Await an awaitable or collect an async generator, and return the result. Must not run on the engine's loop."""
    if inspect.isawaitable(value):
        value = await value
    if isinstance(value, AsyncIterator):
        value = await collect(cast("AsyncIterator[Any]", value), lambda: context.cancelled)
    return to_result(context.call, value, context)


async def _on_user_loop(work: Callable[[], Awaitable[ToolResult]], context: ToolContext) -> ToolResult:
    """Run `work` on the event loop for user code. If `work` continues after a cancellation, set `context.left`."""
    results: list[ToolResult] = []

    async def finish() -> ToolResult:
        with contained_exits():
            results.append(await work())
        return results[0]

    def on_left(sentence: str) -> None:
        context.left = sentence

    try:
        return await engine().await_user(finish, context.call.name, on_left)
    except asyncio.CancelledError:
        if not results:
            raise
        return results[0]  # The work ended before the cancellation arrived.


def _off_engine(tool: Tool) -> Tool:
    """Return a copy of a tool that runs on the event loop for user code. A tool made by this module stays as it is."""
    if isinstance(tool.invoke, _Invocation):
        return tool

    async def invoke(call: ToolCall, context: ToolContext) -> ToolResult:
        async def work() -> ToolResult:
            with context.watch(tool.invoke):
                return await tool.invoke(call, _RemoteContext(context))

        return await _on_user_loop(work, context)

    return replace(tool, invoke=invoke)


def to_result(call: ToolCall, value: Any, context: ToolContext | None = None) -> ToolResult:
    """Return the ToolResult for the value that a tool's function returned.

    If the value is a generator, it is read until it ends or the call is cancelled.
    """
    if isinstance(value, Done):
        return result(call, str(value.message), done=str(value.message))
    if isinstance(value, ToolResult):
        return replace(value, call_id=call.id, name=call.name)
    if context is not None and not inspect.isgenerator(value):
        context.value = value
    should_stop = (lambda: False) if context is None else (lambda: context.cancelled)
    outputs = to_outputs(value, should_stop)
    parts = [part for part, _ in outputs]
    if context is not None:
        context.rich = tuple(html for _, html in outputs)
        if context.capture is not None:
            context.capture.leave_out(value, parts)
    return replace(result(call, *parts), structured=snapshot(value))
