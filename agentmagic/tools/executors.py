"""Runs tools on an executor that the user passed to `@tool`: threads, a process pool, Dask or ipyparallel.

Checks which functions can run there, runs each call once, and reports lost workers.

The kind of an executor (threads, process pool, Dask or ipyparallel) is read from the module of its class, so that none
of these libraries is imported. Any other executor is expected to pickle functions as cloudpickle does and to run each
call once.
"""

import asyncio
import inspect
import pickle
import sys
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeVar, cast

from agentmagic import json_schema
from agentmagic.errors import ToolError, UsageError, describe
from agentmagic.messages import ToolResult
from agentmagic.runtime.engine import engine, in_thread
from agentmagic.runtime.main_thread import Job
from agentmagic.secrets import redact
from agentmagic.text import a_type, single_line
from agentmagic.tools import dask_calls, payload
from agentmagic.tools.base import TaskComplete, ToolContext, failure

Function = Callable[..., Any]
T = TypeVar("T")
Kind = Literal["threads", "processes", "dask", "ipyparallel", "other"]

KINDS: Mapping[str, Kind] = {
    # This entry must precede the one for threads: InterpreterPoolExecutor is a subclass of ThreadPoolExecutor.
    "concurrent.futures.interpreter": "processes",
    "concurrent.futures.thread": "threads",
    "concurrent.futures.process": "processes",
    "distributed": "dask",
    "ipyparallel": "ipyparallel",
}
"""Kind of an executor, by the module of its class or of one of its base classes."""
LOSS_ERRORS = {"KilledWorker": "distributed", "CommClosedError": "distributed", "EngineError": "ipyparallel"}
"""Names of exceptions that mean that a worker was lost, with their package. BrokenExecutor means the same."""

ON_WORKER = "It runs on a worker, which goes on, and may still be running."
NO_EXECUTOR = (
    "executor= takes a concurrent.futures.Executor, and {} is not one. Give a ThreadPoolExecutor, for Dask "
    "client.get_executor(pure=False), for ipyparallel view.executor."
)
ASYNC = "{} is async, and an executor runs synchronous functions. Write `def`, or leave executor= out."
GENERATOR = "{} is a generator, which cannot leave its worker. Return a list, or leave executor= out."
CONTEXT = (
    "{} takes a ToolContext, which cannot leave this process. Leave that parameter out and pass what the function "
    "needs as arguments, or run it on a ThreadPoolExecutor."
)
IN_NOTEBOOK = (
    "{0} is defined in a notebook, where the processes of a pool cannot find it. Write it into a file, with "
    "%%writefile heavy.py, and use `from heavy import {0}`. Or use the executor of Dask, which sends the function."
)
NESTED = (
    "{} is defined inside a function, where the processes of a pool cannot find it. Move it to the top level of a "
    "module."
)
EQUAL_CALLS = (
    "Dask runs two equal calls of {} only once. Make the executor with client.get_executor(pure=False), so that each "
    "call runs."
)
ASYNCHRONOUS = (
    "{} would never run: the client of Dask is asynchronous, on the loop that a cell blocks. Make the client with "
    "Client(...), without asynchronous=True."
)
RETRIES = (
    "This executor runs {} again, up to {} times, if a call fails. Make the executor without retries, or, if a second "
    "run does no harm, declare @tool(executor=..., repeatable=True)."
)
ALL_ENGINES = (
    "This executor runs {} on all {} engines at each call. Use client.load_balanced_view().executor, which chooses one."
)
NOT_REPEATED = "repeatable=True means nothing to {} without executor=. Leave it out."

MAY_HAVE_RUN = (
    "{} may have run, wholly or in part: its worker was lost before it answered ({}). It was not called again. Check "
    "what it has done before you call it again."
)
MAY_RUN_AGAIN = "The worker of {} was lost before it answered ({}). It may be called again."
BROKEN_POOL = "The process pool is broken for good: make a new ProcessPoolExecutor and mark the tool with it."
NOT_SUBMITTED = "{} was not run: its executor did not take the call ({})."


def kind_of(executor: Executor) -> Kind:
    """Return the kind of an executor, without importing any library."""
    for base in type(executor).__mro__:
        for module, kind in KINDS.items():
            if base.__module__ == module or base.__module__.startswith(f"{module}."):
                return kind
    return "other"


def check_executor(function: Function, executor: object, context: str | None, *, repeatable: bool) -> None:
    """Raise UsageError if a function cannot run on an executor, or if the executor may not run each call exactly once.

    With `repeatable`, calls may run more than once. Without an executor, `repeatable` is refused.
    `context` is the name of the function's parameter for a ToolContext, if it has one.
    """
    name = json_schema.name_of(function)
    if executor is None:
        if repeatable:
            raise UsageError(NOT_REPEATED.format(name))
        return
    if not isinstance(executor, Executor):
        raise UsageError(NO_EXECUTOR.format(a_type(executor)))
    inner = json_schema.innermost_function(function)
    kind = kind_of(executor)
    problem = ""
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        problem = ASYNC.format(name)
    elif inspect.isgeneratorfunction(inner):
        problem = GENERATOR.format(name)
    elif context is not None and kind != "threads":
        problem = CONTEXT.format(name)
    elif kind == "processes":
        problem = _import_problem(name, inner)
    elif kind in ("dask", "ipyparallel"):
        problem = _repeat_problem(name, executor, repeatable=repeatable)
    if problem:
        raise UsageError(problem)


def _import_problem(name: str, function: Any) -> str:
    """Return why a worker process cannot import a function by its name, or "" if it can."""
    if "<" in getattr(function, "__qualname__", ""):
        return NESTED.format(name)
    # The worker processes of a Python program import its file to find the functions; a notebook has no such file.
    is_cell = function.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    return IN_NOTEBOOK.format(name) if is_cell else ""


def _repeat_problem(name: str, executor: Any, *, repeatable: bool) -> str:
    """Return why an executor (Dask or ipyparallel), with its present options, might not run each call once, or ""."""
    if kind_of(executor) == "ipyparallel":
        view = executor.view
        targets = getattr(view, "targets", None)
        if isinstance(targets, list) and any(base.__name__ == "DirectView" for base in type(view).__mro__):
            return ALL_ENGINES.format(name, len(cast("list[Any]", targets)))
        retries = getattr(view, "retries", 0)
    else:
        if getattr(executor._client, "asynchronous", False):  # noqa: SLF001  (see below)
            return ASYNCHRONOUS.format(name)
        options: Mapping[str, Any] = executor._kwargs  # noqa: SLF001  (which nothing else tells)
        pure = options.get("pure")
        if pure is None or (pure and not repeatable):
            return EQUAL_CALLS.format(name)
        retries = options.get("retries", 0)
    return RETRIES.format(name, retries) if retries and not repeatable else ""


class Dispatcher:
    """Runs the calls of one function on an executor."""

    def __init__(self, function: Function, executor: Executor, *, repeatable: bool) -> None:
        self.function = function
        self.executor = executor
        self.kind = kind_of(executor)
        self.repeatable = repeatable
        self._has_warned = False

    async def run_here(self, function: Callable[[], T], on_start: Callable[[], None]) -> T:
        """Call a function in a thread of the executor. Just before, `on_start` is called in the same thread."""
        job = Job(function, on_start)
        future = self.executor.submit(copy_context().run, job.run)
        try:
            await _wait_for(future)
        except asyncio.CancelledError:
            future.cancel()
            raise
        future.result()
        return job.future.result()

    async def run(self, arguments: Mapping[str, Any], variables: Collection[str], context: ToolContext) -> Any:
        """Call the function on a worker and return its value, or a result that says that its worker was lost.

        `variables` are the names of the arguments whose values are variables of the notebook. Raises ToolError if the
        call cannot be sent, and every exception of the function.
        """
        context.left = ON_WORKER  # Set first, because a cancellation does not stop the thread that submits.
        future = await engine().in_pool(partial(self._submit, arguments, variables, context))
        try:
            await _wait_for(future)
        except asyncio.CancelledError:
            if self.kind != "processes":
                in_thread(future.cancel, "agentmagic-cancel")  # In a thread: Dask's cancel() waits for the scheduler.
            elif future.cancel():  # The call had not begun, so no work is left.
                context.left = ""
            raise
        context.left = ""
        if future.cancelled():
            return self._loss_result("the executor gave the call up", context)
        error = future.exception()
        if error is None:
            value = future.result()
            has_run, value = dask_calls.outcome(value) if self.kind == "dask" else (True, value)
            return value if has_run else self._loss_result("Dask gave the call to another one", context)
        if name := _loss(error):
            return self._loss_result(name, context)
        raise _original_error(error)

    def _submit(self, arguments: Mapping[str, Any], variables: Collection[str], context: ToolContext) -> Future[Any]:
        """Check the objects to send to the worker, and submit the call. Pickling can be slow: this runs in a thread."""
        name = context.call.name
        if self.kind == "dask":
            client: Any = cast("Any", self.executor)._client  # noqa: SLF001  (which nothing else tells)
            dask_calls.check_client(name, client, once=not self.repeatable)
        parts = payload.pickled_parts(
            self.function, by_value=self.kind != "processes", with_globals=self._sends_globals()
        )
        argument_parts = (
            (f"the argument {variable}", variable, arguments[variable])
            for variable in variables
            if variable in arguments
        )
        large = payload.check(name, chain(parts, argument_parts), self._dumps())
        if large and not self._has_warned:
            self._has_warned = True
            context.tell(payload.large_notice(name, large, dask=self.kind == "dask"))
        if context.cancelled:
            raise ToolError(NOT_SUBMITTED.format(name, "it was stopped"))
        try:
            call = partial(self.function, **arguments)
            if self.kind == "dask":
                future = dask_calls.submit(self.executor, name, call, once=not self.repeatable)
            else:
                future = self.executor.submit(call)
        except Exception as error:  # noqa: BLE001  (of the executor, or of an object that it pickles)
            hint = f" {BROKEN_POOL}" if self.kind == "processes" and isinstance(error, BrokenExecutor) else ""
            reason = single_line(redact(describe(error)), 300).rstrip(".")
            raise ToolError(f"{NOT_SUBMITTED.format(name, f'{type(error).__name__}: {reason}')}{hint}") from None
        if context.cancelled:
            future.cancel()
        return future

    def _sends_globals(self) -> bool:
        """Return whether the executor sends a function's globals. Only ipyparallel without cloudpickle does not."""
        if self.kind != "ipyparallel":
            return True
        serialize = sys.modules.get("ipyparallel.serialize.serialize")
        return getattr(getattr(serialize, "pickle", None), "__name__", "") == "cloudpickle"

    def _dumps(self) -> Callable[[Any], bytes] | None:
        """Return the function with which the executor pickles values, or None if it is not known."""
        if self.kind == "processes":
            return pickle.dumps
        dumps: Callable[[Any], bytes] | None = getattr(sys.modules.get("cloudpickle"), "dumps", None)
        return dumps

    def _loss_result(self, reason: str, context: ToolContext) -> ToolResult:
        hint = f" {BROKEN_POOL}" if self.kind == "processes" else ""
        message = (MAY_RUN_AGAIN if self.repeatable else MAY_HAVE_RUN).format(context.call.name, reason)
        return replace(failure(context.call, f"{message}{hint}"), in_doubt=not self.repeatable)


async def _wait_for(future: Future[Any]) -> None:
    """Wait until a future of another thread is done. Cancelling this wait does not cancel the future."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def end(_future: Future[Any]) -> None:
        with suppress(RuntimeError):  # The waiting event loop is closed already.
            loop.call_soon_threadsafe(event.set)

    future.add_done_callback(end)
    await event.wait()


def _loss(error: BaseException) -> str:
    """Return the name of an exception that means that a worker was lost, or "" for any other exception."""
    name = getattr(error, "ename", None) or type(error).__name__  # ipyparallel has the exception's name in `ename`
    package = type(error).__module__.partition(".")[0]
    return str(name) if isinstance(error, BrokenExecutor) or LOSS_ERRORS.get(str(name)) == package else ""


def _original_error(error: BaseException) -> BaseException:
    """Return the exception that a function raised on its worker.

    ipyparallel sends only the name of the exception's class and its message. From these, a TaskComplete or a ToolError
    is made.
    """
    if type(error).__module__ != "ipyparallel.error" or not (name := getattr(error, "ename", None)):
        return error
    message = str(getattr(error, "evalue", ""))
    if name == "TaskComplete":
        return TaskComplete(message)
    return ToolError(message if name == "ToolError" else f"{name}: {message}")
