"""Calls on Dask that run once: what its scheduler does when a worker is lost, and a token for each call."""

import io
import pickle
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import Future
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
CLOSED = "{} was not run: its client of Dask is closed. Make a new one, and mark the tool with its executor."

_checked: WeakKeyDictionary[Any, None] = WeakKeyDictionary()
"""The clients whose scheduler has said that it runs no call of a lost worker again."""


def check_client(name: str, client: Any, *, once: bool) -> None:
    """Raise ToolError if a client is closed or, with `once`, its scheduler runs the calls of a lost worker again.

    The scheduler is asked until it has said that it does not. Blocks for 1 or 2 ms then.
    """
    if getattr(client, "status", "") in ("closing", "closed"):
        raise ToolError(CLOSED.format(name))
    if not once or client in _checked:
        return

    def allowed(dask_scheduler: Any) -> int:  # an inner function goes by value: the scheduler needs no agentmagic
        return dask_scheduler.allowed_failures

    try:
        failures = client.run_on_scheduler(allowed)
    except Exception as error:  # noqa: BLE001  (of the connection, or of a scheduler that runs no functions)
        raise ToolError(NOT_ASKED.format(name, one_line(redact(said(error)), 200) or type(error).__name__)) from None
    if failures != 0:
        raise ToolError(MAY_REPEAT.format(name, failures))
    _checked[client] = None


def submit(executor: Any, name: str, call: Callable[[], Any], *, once: bool) -> Future[Any]:
    """Submit a call of a tool; `once`, only its first run carries it out. `outcome` reads the future's value.

    `allowed-failures` counts workers that are lost. If a worker leaves in good order, because it is scaled down,
    retired or at the end of its lifetime, its calls are run again all the same, and so is a call whose value was lost.
    Hence each call has a token, which the scheduler gives to one run only.
    """
    data, futures = _pickled(call)
    if not once:
        return executor.submit(_runner(name), data, "", *futures)
    client = executor._client  # noqa: SLF001  (which nothing else tells)
    queue = cast("Any", sys.modules["distributed"]).Queue(f"agentmagic-{uuid.uuid4().hex}", client=client)
    queue.put(True)
    try:
        future: Future[Any] = executor.submit(_runner(name), data, queue.name, *futures)
    except BaseException:
        queue.close()
        raise
    future.add_done_callback(lambda _future: queue.close())
    return future


def outcome(answer: tuple[str, Any]) -> tuple[bool, Any]:
    """Return whether a call has run, and its value. Raises SystemExit if the function has ended itself."""
    how, value = answer
    if how == "exited":
        raise SystemExit(value)
    return (True, pickle.loads(value)) if how == "ran" else (False, None)  # noqa: S301  (the user's own worker)


def _pickled(call: Callable[[], Any]) -> tuple[bytes, list[Any]]:
    """Return the pickle of a call, and the futures of Dask in it, such as scattered data; it has their numbers."""
    cloudpickle, distributed = cast("Any", sys.modules["cloudpickle"]), cast("Any", sys.modules["distributed"])
    futures: list[Any] = []

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, obj: object) -> int | None:
            if not isinstance(obj, distributed.Future):
                return None
            futures.append(obj)
            return len(futures) - 1

    file = io.BytesIO()
    Pickler(file).dump(call)
    return file.getvalue(), futures


def _runner(name: str) -> Callable[..., tuple[str, Any]]:
    """Return what runs a call on a worker, with the tool's name, by which Dask groups calls.

    Inner functions go by value, so the worker need not have agentmagic.
    """

    def run(data: bytes, token: str, *values: object) -> tuple[str, Any]:
        import io
        import pickle
        from importlib import import_module

        dumps, new_queue = import_module("cloudpickle").dumps, import_module("distributed").Queue

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, pid: int) -> object:
                return values[pid]  # Dask has put the data in the place of its future

        if token:
            queue = new_queue(token)
            try:
                if not queue.get(batch=True):
                    return "repeated", None
            finally:
                queue.close()
        try:
            call = Unpickler(io.BytesIO(data)).load()
            # Pickled in here: Dask waits for ever for a value that cannot be pickled. And an exit would end the worker.
            return "ran", dumps(call())
        except SystemExit as error:
            return "exited", error.code if isinstance(error.code, int | None) else str(error.code)

    run.__name__ = name
    return run
