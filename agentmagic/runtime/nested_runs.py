"""Runs a coroutine in the main thread while a cell, or a callback of the kernel's event loop, blocks that loop."""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from importlib import import_module
from typing import Any, cast

from agentmagic.runtime.engine import engine, outcome, void
from agentmagic.runtime.exits import interruption
from agentmagic.runtime.main_thread import in_nested_code


def run_nested(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on an event loop that the calling thread is running already, and return its result.

    The loop's other callbacks run meanwhile. Call this only in a job of the main thread (`MainThread.run`), because the
    loop survives a nested run only if `replace_callbacks` follows.
    """
    cast("Any", import_module("nest_asyncio2")).apply(loop)
    context = copy_context()
    context.run(in_nested_code.set, True)
    task = loop.create_task(outcome(lambda: coroutine), context=context)
    # Called in a signal handler, so that a loop which waits for files must be woken.
    with engine().main.nest(lambda: void(loop.call_soon_threadsafe(task.cancel))) as is_stopped:
        try:
            return loop.run_until_complete(task).result()
        except asyncio.CancelledError:
            if is_stopped():
                raise interruption() from None
            raise
        finally:
            task.cancel()  # If an interrupt has ended the nested run, the task must not go on.
