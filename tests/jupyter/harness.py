"""A real kernel for the tests: runs cells, collects their outputs, interrupts, types answers.

Whatever is waited for is a message of the kernel; nothing sleeps.
"""

import json
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Self, cast

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from agentmagic.history.journal import FOLDER

ROOT = Path(__file__).parent.parent.parent
SERVERS = ROOT / "tests" / "tools" / "mcp" / "servers"
RAW = (sys.executable, "-S", SERVERS / "raw.py")
OBLIGING = (sys.executable, SERVERS / "obliging.py")
"""Command lines of servers."""

TIMEOUT = 30.0
"""Seconds that the slowest message may take."""

LAB = {"allow_stdin": True, "cell": True}
CONSOLE = {"allow_stdin": True, "cell": False}
BATCH = {"allow_stdin": False, "cell": False}
"""What the front ends tell of themselves with a request."""

IDLE = "status idle"


class _Manager(KernelManager):
    """Starts the kernel of a Python that is named by its path."""

    python = "python"

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [self.python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="test", language="python")


PRINTOUT = '<div class="agentmagic agentmagic-printout'
"""The beginning of the HTML of a message or a printout."""


@dataclass(repr=False)
class Cell:
    """A cell that was sent: its messages so far, and its reply once that came."""

    request: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] | None = None

    def __repr__(self) -> str:
        """Return what a failed test shows of the cell: its last printed text, kinds of messages, and how it ended."""
        kinds = [kind for kind, _ in groupby(message["msg_type"] for message in self.messages)]
        ended = self.reply and {key: self.reply["content"].get(key) for key in ("status", "ename", "evalue")}
        return f"<Cell {self.stream[-60:]!r} {' '.join(kinds[-8:])} {ended}>"

    @property
    def ok(self) -> bool:
        return self.reply is not None and self.reply["content"]["status"] == "ok"

    @property
    def idle(self) -> bool:
        """Whether the kernel has said that it is done with the message."""
        return any(message["content"].get("execution_state") == "idle" for message in self.messages)

    @property
    def done(self) -> bool:
        return self.idle and self.reply is not None

    @property
    def stream(self) -> str:
        """What was printed, and the text of messages and printouts, which a notebook shows as HTML."""
        return "".join(filter(None, map(_printed, self.messages)))

    @property
    def error(self) -> str:
        """The error as it is shown, or an empty string.

        Python before 3.11.9 can raise SystemError if two threads parse code (github.com/python/cpython/issues/106905).
        If that happens to IPython while it writes a traceback, it shows none, and only the reply names the error.
        """
        if self.reply and "AST constructor recursion depth mismatch" in self.stream:
            return "{ename}: {evalue}".format_map(self.reply["content"])
        return "\n".join("\n".join(lines) for lines in self._contents("error", "traceback"))

    @property
    def displays(self) -> list[dict[str, Any]]:
        """The displayed bundles as they stand: updated ones in the place of the first.

        Places for views, and printouts, are left out.
        """
        shown: dict[str, dict[str, Any]] = {}
        for message in self.messages:
            content = message["content"]
            if message["msg_type"] in ("display_data", "update_display_data", "execute_result"):
                display = content.get("transient", {}).get("display_id") or message["header"]["msg_id"]
                shown[display] = content["data"]
        return [
            data for data in shown.values() if not data.get("text/html", "").startswith(("<agentmagic-view", PRINTOUT))
        ]

    @property
    def text(self) -> str:
        """The plain text of all displays."""
        return "\n".join(bundle.get("text/plain", "") for bundle in self.displays)

    def count(self, kind: str) -> int:
        return sum(message["msg_type"] == kind for message in self.messages)

    def _contents(self, kind: str, key: str) -> Iterator[Any]:
        return (message["content"][key] for message in self.messages if message["msg_type"] == kind)


def _printed(message: dict[str, Any]) -> str:
    content = message["content"]
    data = content.get("data", {}) if message["msg_type"] == "display_data" else {}
    if data.get("text/html", "").startswith(PRINTOUT):
        return f"{data['text/plain']}\n"
    return content["text"] if message["msg_type"] == "stream" else ""


class Kernel:
    """A running kernel."""

    def __init__(self, python: str, env: Mapping[str, str], cwd: Path) -> None:
        self._manager = _Manager()
        self._manager.python = python
        ours = {"PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1", "JPY_SESSION_NAME": ""}
        self._manager.start_kernel(env={**os.environ, **ours, **env}, cwd=str(cwd))
        self._connect()

    @property
    def pid(self) -> int:
        return self._manager.provisioner.pid  # type: ignore[union-attr]

    def send(self, code: str, *, allow_stdin: bool = True, cell: bool | str | dict[str, Any] = True) -> Cell:
        """Send a cell, as JupyterLab does unless told otherwise; `cell` may be its id, or all metadata."""
        session = self._client.session
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": False,
        }
        name = {"cellId": cell if isinstance(cell, str) else "a-cell"} if cell else {}
        message = session.msg("execute_request", content, metadata=cell if isinstance(cell, dict) else name)
        self._client.shell_channel.send(message)
        sent = self._cells[message["header"]["msg_id"]] = Cell(message["header"]["msg_id"])
        return sent

    def run(self, code: str, **front_end: Any) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.send(code, **front_end))

    def answer(self, code: str, *typed: str, **front_end: Any) -> tuple[Cell, list[str]]:
        """Run a cell to its end, typing a line each time it asks; return it and the prompts."""
        cell = self.send(code, **front_end)
        prompts = []
        for line in typed:
            prompts.append(self.asked(cell)["prompt"])
            self.type(line)
        return self.finish(cell), prompts

    def finish(self, cell: Cell) -> Cell:
        return self.wait(cell, lambda: cell.done)

    def wait(self, cell: Cell, until: Callable[[], bool]) -> Cell:
        """Take messages in until something holds."""
        end = time.monotonic() + TIMEOUT
        while not until():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {TIMEOUT} s; the cell said: {cell.stream}{cell.error}{cell.text}")
            self._take_messages()
        return cell

    def wait_for_text(self, cell: Cell, text: str) -> Cell:
        """Wait until a text is printed or displayed by a cell."""
        return self.wait(cell, lambda: text in cell.stream or text in str(cell.displays))

    def asked(self, cell: Cell) -> dict[str, Any]:
        """Wait until the kernel asks for input; return the prompt and whether it hides what is typed."""
        found: list[dict[str, Any]] = []

        def came() -> bool:
            try:
                found.append(self._client.get_stdin_msg(timeout=0)["content"])
            except queue.Empty:
                return False
            return True

        self.wait(cell, came)
        return found[0]

    def type(self, text: str) -> None:
        self._client.input(text)

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def interrupted(self, cell: Cell) -> float:
        """Interrupt a cell; return the seconds until it was back."""
        start = time.monotonic()
        self.interrupt()
        self.finish(cell)
        return time.monotonic() - start

    def kill(self) -> None:
        """Kill it as nothing can be refused: with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def restart(self, *, now: bool = True) -> None:
        """Start it anew, in the same folder and environment; unless it is killed now, it may end by itself first."""
        self._client.stop_channels()
        if now:
            self.kill()  # the manager would interrupt it before, and a turn might end by that
        self._manager.restart_kernel(now=now)
        self._connect()

    def value(self, expression: str) -> str:
        """Return the repr of an expression."""
        return self.run(expression).displays[-1]["text/plain"]

    def subshell(self) -> str | None:
        """Have the kernel make a subshell, as JupyterLab does for comms, and return its id; None if it has none."""
        control = self._client.control_channel
        control.send(self._client.session.msg("create_subshell_request", {}))
        try:
            return control.get_msg(timeout=5)["content"].get("subshell_id")
        except queue.Empty:  # the kernel is older and does not know the request
            return None

    def tell(self, comm: str, data: Mapping[str, Any], *, subshell: str | None = None, opens: str = "") -> Cell:
        """Send a message of a comm as a page does, and wait for its end; `opens` is the target of a new comm."""
        sent = self.post(comm, data, subshell=subshell, opens=opens)
        return self.wait(sent, lambda: sent.idle)

    def post(self, comm: str, data: Mapping[str, Any], *, subshell: str | None = None, opens: str = "") -> Cell:
        """Send a message of a comm, and return at once."""
        content = {"comm_id": comm, "data": data} | ({"target_name": opens} if opens else {})
        metadata = {"version": "1.0.0"}  # of the protocol of widgets
        message = self._client.session.msg("comm_open" if opens else "comm_msg", content, metadata=metadata)
        message["header"]["subshell_id"] = subshell
        self._client.shell_channel.send(message)
        sent = self._cells[message["header"]["msg_id"]] = Cell(message["header"]["msg_id"])
        return sent

    def complete(self, code: str) -> list[str]:
        reply = cast("Any", self._client).complete(code, len(code), reply=True, timeout=TIMEOUT)
        return reply["content"]["matches"]

    def stop(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _connect(self) -> None:
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=TIMEOUT)
        self._cells: dict[str, Cell] = {}

    def _take_messages(self) -> None:
        with suppress(queue.Empty):
            self._sort(self._client.get_iopub_msg(timeout=0.05))
        try:
            reply = self._client.get_shell_msg(timeout=0)
        except queue.Empty:
            return
        cell = self._cells.get(reply["parent_header"].get("msg_id"))
        if cell is not None:
            cell.reply = reply

    def _sort(self, message: dict[str, Any]) -> None:
        cell = self._cells.get(message["parent_header"].get("msg_id"))
        if cell is not None:
            cell.messages.append(message)


class Notebook:
    """A notebook's file and the kernels that run it."""

    def __init__(self, folder):
        self.file = folder / "sales.ipynb"
        self.file.write_text("{}")
        self.folder = folder / FOLDER / "sales"
        self.kernels = []

    def kernel(self, **variables):
        told = {"JPY_SESSION_NAME": str(self.file), "IPYTHONDIR": str(self.file.parent / "ipython"), **variables}
        self.kernels.append(Kernel(sys.executable, told, self.file.parent))
        return self.kernels[-1]

    @property
    def saved(self):
        return sorted(path.name for path in self.folder.glob("*.jsonl"))

    def lines(self, name="agent"):
        return [json.loads(line) for line in (self.folder / f"{name}.jsonl").read_text().splitlines()]
