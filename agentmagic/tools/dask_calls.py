"""Runs each tool call on Dask only once: the scheduler must be set to repeat no calls, and each call gets a token.

If Dask runs a call again all the same, only the run that gets the call's token is executed.
"""

import io
import pickle
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast
from weakref import WeakKeyDictionary

from agentmagic.errors import ToolError, describe
from agentmagic.secrets import redact
from agentmagic.text import single_line

MAY_REPEAT = (
    "{} was not run: if a worker is lost, this Dask scheduler runs its calls again, up to {} times, unannounced. "
    "Start the scheduler with dask.config.set({{'distributed.scheduler.allowed-failures': 0}}), or with "
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0 in its environment. Or, if a second run does no harm, declare "
    "@tool(executor=..., repeatable=True)."
)
UNKNOWN_RETRIES = (
    "{} was not run: the Dask scheduler does not say whether it runs the calls of a lost worker again ({}). If a "
    "second run does no harm, declare @tool(executor=..., repeatable=True)."
)
CLOSED = "{} was not run: its client of Dask is closed. Make a new one, and mark the tool with its executor."

_safe_clients: WeakKeyDictionary[Any, None] = WeakKeyDictionary()
"""Clients of schedulers that do not repeat the calls of a lost worker, according to the scheduler."""


def check_client(name: str, client: Any, *, once: bool) -> None:
    """Raise ToolError if a Dask client is closed or, with `once`, its scheduler repeats the calls of a lost worker.

    The scheduler's setting `allowed-failures` decides whether calls are repeated. ToolError is also raised if the
    setting cannot be read. Reading blocks the thread for 1 to 2 ms, so it is done once for a client that passes.
    """
    if getattr(client, "status", "") in ("closing", "closed"):
        raise ToolError(CLOSED.format(name))
    if not once or client in _safe_clients:
        return

    # An inner function, because Dask sends its code: agentmagic need not be installed on the scheduler.
    def read_setting(dask_scheduler: Any) -> int:
        return dask_scheduler.allowed_failures

    try:
        failures = client.run_on_scheduler(read_setting)
    except Exception as error:  # noqa: BLE001  (of the connection, or of a scheduler that runs no functions)
        raise ToolError(
            UNKNOWN_RETRIES.format(name, single_line(redact(describe(error)), 200) or type(error).__name__)
        ) from None
    if failures != 0:
        raise ToolError(MAY_REPEAT.format(name, failures))
    _safe_clients[client] = None


def submit(executor: Any, name: str, call: Callable[[], Any], *, once: bool) -> Future[Any]:
    """Submit a tool call to Dask. `outcome` reads the future's value. With `once`, a repeated run does nothing.

    Dask's setting `allowed-failures` counts only lost workers. If a worker is scaled down, retired or reaches the end
    of its lifetime, Dask runs its calls again regardless of the setting. It also repeats a call whose value was
    lost. Hence each call has a token, which the scheduler gives to one run only.
    """
    data, futures = _pickle_call(call)
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
    """Return whether a call on Dask was executed, and the call's value. `answer` is the value of `submit`'s future.

    Raises SystemExit if the function called `exit` or `sys.exit`.
    """
    how, value = answer
    if how == "exited":
        raise SystemExit(value)
    return (True, pickle.loads(value)) if how == "ran" else (False, None)  # noqa: S301  (the user's own worker)


def _pickle_call(call: Callable[[], Any]) -> tuple[bytes, list[Any]]:
    """Return the pickle of a call, and the list of the Dask futures in it, for example for scattered data.

    In the pickle, each future is replaced by its index in the list.
    """
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
    """Return the function that runs a tool call on a Dask worker. It has the tool's name, by which Dask groups calls.

    It is an inner function, because Dask sends its code: agentmagic need not be installed on the worker.
    """

    def run(data: bytes, token: str, *values: object) -> tuple[str, Any]:
        import io
        import pickle
        from importlib import import_module

        dumps, new_queue = import_module("cloudpickle").dumps, import_module("distributed").Queue

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, pid: int) -> object:
                return values[pid]  # `values` has the data of each future, passed by Dask.

        if token:
            queue = new_queue(token)
            try:
                if not queue.get(batch=True):
                    return "repeated", None
            finally:
                queue.close()
        try:
            call = Unpickler(io.BytesIO(data)).load()
            # The value is pickled here, because Dask waits forever for a value that cannot be pickled. SystemExit is
            # caught here, because it would end the worker.
            return "ran", dumps(call())
        except SystemExit as error:
            return "exited", error.code if isinstance(error.code, int | None) else str(error.code)

    run.__name__ = name
    return run
