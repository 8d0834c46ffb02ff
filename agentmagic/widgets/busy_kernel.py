"""Let the kernel answer a browser page while a cell runs: comm messages, and the requests by which a page connects.

A comm is the channel between a widget and the pages that show it. IPython's hooks do not run for these messages. If
they did, pyplot's inline backend would show, from the thread that handles a message, the figures that the cell is still
drawing in the main thread.
"""

import threading
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any
from weakref import WeakSet

from agentmagic.log import logger

_patched_kernels: WeakSet[Any] = WeakSet()
"""The kernels that `answer_pages_anytime` has changed."""


def take_messages_anywhere(comm: Any) -> None:
    """Let JupyterLab choose the subshell for the messages of a comm, so that clicks arrive while a cell runs.

    A subshell is a thread beside the main shell. ipykernel 7.4 would send the messages to the main shell, which waits
    for the cell. Earlier versions let JupyterLab choose without this function.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = _default_subshell  # noqa: SLF001  (there is no public way)
    comm.handle_msg = partial(_call_handler, comm)


def _call_handler(comm: Any, message: Any) -> None:
    """Call the message handler of a comm (a widget's channel). The comm itself would also run IPython's cell hooks."""
    if comm._msg_callback is not None:  # noqa: SLF001  (there is no public way)
        comm._msg_callback(message)  # noqa: SLF001


def _default_subshell(_data: object, default: object) -> object:
    return default


def answer_pages_anytime(kernel: Any) -> None:
    """Let a browser page that is opened while a cell runs connect and load its widgets before the cell ends.

    JupyterLab sends the page's requests to the main shell, which waits for the cell. With this change, the kernel's
    receiving thread answers them itself; ipykernel has no public way to do this. Each kernel is changed once; a kernel
    without such a thread is left alone. A kernel that runs its startup files is changed at its first cell: it would
    undo the change when it starts, and a message that came before would be lost.
    """
    # An ipykernel before 7.0 has no receiving thread.
    if getattr(kernel, "shell_channel_thread", None) is None or kernel in _patched_kernels:
        return
    _patched_kernels.add(kernel)
    if getattr(kernel.shell_channel_thread, "_manager", kernel) is None:  # it has not started
        _at_first_cell(kernel.shell.events, partial(_answer_anytime, kernel))
    else:
        _answer_anytime(kernel)


def _at_first_cell(events: Any, begin: Callable[[], None]) -> None:
    def call() -> None:
        events.unregister("pre_execute", call)
        begin()

    events.register("pre_execute", call)


def _answer_anytime(kernel: Any) -> None:
    _stay_busy(kernel)

    async def receive(message: Any) -> None:
        try:
            answered = await _answer_page(kernel, message)
        except Exception:  # noqa: BLE001  (the message must reach the kernel in any case)
            logger.exception("a page's request was left to the main shell")
            answered = False
        if not answered:
            await kernel.shell_channel_thread_main(message)

    kernel.shell_channel_thread.io_loop.add_callback(lambda: kernel.shell_stream.on_recv(receive, copy=False))


def _stay_busy(kernel: Any) -> None:
    """Make the kernel report "busy" again after each request that is answered while a cell runs.

    JupyterLab shows the last status that it received. Each answer ends with the status "idle", so JupyterLab would show
    "Idle" during a turn, once it has loaded the turn's view.
    """
    publish, lock = kernel._publish_status, threading.Lock()  # noqa: SLF001  (there is no public way)
    is_running = kernel._main_asyncio_lock.locked()  # noqa: SLF001  (a cell has just made the first view)

    def publish_all(status: str, channel: str, parent: Any = None) -> None:
        nonlocal is_running
        parent = parent or kernel.get_parent(channel)
        header = parent.get("header", {})
        with lock:  # else a cell could end just before this "busy", and no "idle" would follow
            publish(status, channel, parent)
            if header.get("msg_type") == "execute_request" and not header.get("subshell_id"):
                is_running = status == "busy"
            elif status == "idle" and is_running:
                publish("busy", channel, parent)

    kernel._publish_status = publish_all  # noqa: SLF001


async def _answer_page(kernel: Any, message: Any) -> bool:
    """Answer a browser page's request about the kernel or its widgets; return False for other messages."""
    idents, frames = kernel.session.feed_identities(message, copy=False)
    request = kernel.session.deserialize(frames, content=False, copy=False)  # content=True would forbid a second read
    request["content"] = kernel.session.unpack(request["content"])
    kind = request["header"]["msg_type"]
    if request["header"].get("subshell_id") or not _asks_for_widgets(kernel, kind, request["content"]):
        return False
    kernel._shell_parent.set(request)  # noqa: SLF001  (messages of comms bear it)
    kernel._publish_status("busy", "shell", request)  # noqa: SLF001
    if kind == "comm_msg":
        comm = kernel.comm_manager.get_comm(request["content"]["comm_id"])
        reply = None if comm is None else _call_handler(comm, request)
    else:
        reply = kernel.shell_handlers[kind](kernel.shell_stream, idents, request)
    if isawaitable(reply):
        await reply
    kernel._publish_status("idle", "shell", request)  # noqa: SLF001
    return True


def _asks_for_widgets(kernel: Any, kind: str, content: Any) -> bool:
    """Return whether a message is one that a browser page sends to load the kernel's widgets.

    While the main shell is free, return False for `comm_open` and `comm_msg`: it answers them itself.
    """
    if kind in ("kernel_info_request", "comm_info_request"):
        return True
    if not kernel._main_asyncio_lock.locked():  # noqa: SLF001  (the main shell is free)
        return False
    match kind, content:
        case "comm_open", {"target_name": "jupyter.widget.control"}:
            return True
        case "comm_msg", {"data": {"method": "request_state" | "request_states"}}:
            return True
        case _:
            return False
