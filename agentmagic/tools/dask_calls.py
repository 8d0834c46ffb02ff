"""Calls on Dask that run once: what its scheduler does when a worker is lost, and a token for each call."""

import sys
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from agentmagic.errors import ToolError, said
from agentmagic.secrets import redact
from agentmagic.text import one_line

MAY_REPEAT = (
    "{} was not run: if a worker is lost, this Dask scheduler runs its calls again, up to {} times, unannounced. "
    "Start the scheduler with dask.config.set({{'distributed.scheduler.allowed-failures': 0}}), or with "
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0 in its environment. Or, if a second run does no harm, declare "
    "@tool(executor=..., repeatable=True)."
)
NOT_ASKED = (
    "{} was not run: the Dask scheduler does not say whether it runs the calls of a lost worker again ({}). If a "
    "second run does no harm, declare @tool(executor=..., repeatable=True)."
)

_checked: WeakKeyDictionary[Any, None] = WeakKeyDictionary()
"""The clients whose scheduler has said that it runs no call of a lost worker again."""


def check_scheduler(name: str, client: Any) -> None:
    """Raise ToolError if the scheduler runs the calls of a lost worker again. It is asked until it has said no, once.

    Blocks for 1 or 2 ms.
    """
    if client in _checked:
        return
    try:
        # A lambda goes by value: the scheduler need not have agentmagic.
        failures = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures)
    except Exception as error:  # noqa: BLE001  (of the connection, or of a scheduler that runs no functions)
        raise ToolError(NOT_ASKED.format(name, one_line(redact(said(error)), 200) or type(error).__name__)) from None
    if failures != 0:
        raise ToolError(MAY_REPEAT.format(name, failures))
    _checked[client] = None


def submit_once(executor: Any, client: Any, call: Callable[[], Any]) -> Future[Any]:
    """Submit a call that its first run alone carries out; the future's value is (whether it ran, its value).

    `allowed-failures` counts workers that are lost. If a worker leaves in good order, because it is scaled down, retired
    or at the end of its lifetime, its calls are run again all the same, and so is a call whose value was lost. Hence
    each call has a token, which the scheduler gives to one run only.
    """
    queue = cast("Any", sys.modules["distributed"]).Queue(f"agentmagic-{uuid.uuid4().hex}", client=client)
    queue.put(True)
    try:
        future: Future[Any] = executor.submit(partial(_with_token(), call, queue.name))
    except BaseException:
        queue.close()
        raise
    future.add_done_callback(lambda _future: queue.close())
    return future


def _with_token() -> Callable[[Callable[[], Any], str], tuple[bool, Any]]:
    """Return what runs a call on a worker. Inner functions go by value, so the worker need not have agentmagic."""

    def run(call: Callable[[], Any], token: str) -> tuple[bool, Any]:
        from distributed import Queue  # type: ignore[import-not-found]

        queue: Any = Queue(token)
        try:
            is_first = bool(queue.get(batch=True))
        finally:
            queue.close()
        return (True, call()) if is_first else (False, None)

    return run
