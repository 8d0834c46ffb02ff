"""Runs a coroutine in the main thread while a cell, or a callback of the kernel's event loop, blocks that loop."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from importlib import import_module
from typing import Any, cast

from agentmagic.runtime.engine import outcome


def run_nested(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on an event loop that the calling thread is running already, and return its result.

    The loop's other callbacks run meanwhile. Call this only in a job of the main thread (`MainThread.run`), because the
    loop survives a nested run only if `replace_callbacks` follows.
    """
    cast("Any", import_module("nest_asyncio2")).apply(loop)
    task = loop.create_task(outcome(lambda: coroutine))
    try:
        return loop.run_until_complete(task).result()
    except KeyboardInterrupt:
        task.cancel()
        raise
    except SystemExit:  # Raised by the coroutine or by a task of it. It must not end the kernel's loop.
        task.cancel()
        with suppress(asyncio.CancelledError, SystemExit):
            loop.run_until_complete(task)
        raise
