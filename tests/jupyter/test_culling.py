"""A Jupyter server that ends idle kernels: a turn that runs without a cell is work, and a kernel at rest is not."""

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from time import sleep
from typing import IO, Any
from urllib.error import URLError
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from tests.jupyter.harness import ROOT

websocket = pytest.importorskip("websocket")
pytest.importorskip("jupyter_server")
pytestmark = [pytest.mark.slow, pytest.mark.posix]

TURN = """
%load_ext agentmagic
from pathlib import Path
from agentmagic import Agent, ScriptedModel, Session
from agentmagic.runtime import engine
engine.PULSE = 0.2  # the server below waits for seconds, not for hours

def wait() -> str:
    "Wait, and say nothing."
    return Path("gate").read_text()

script = [{"calls": [{"name": "wait", "arguments": {}}]}, "Done."]
run = Session(Agent(ScriptedModel(script), tools=[wait])).start("Wait.")
"""
"""A cell that ends at once; its turn goes on, as a turn of the chat panel does, until somebody writes to the gate."""

TOKEN = uuid4().hex
HEADERS = {"Authorization": f"token {TOKEN}"}
IDLE = 2
"""Seconds for which the server lets a kernel be idle."""
LOOK = r"last_activity=|Culling '\w+' kernel"
"""What the server logs when it looks at a kernel, and when it ends one."""


class Server:
    """A server that ends kernels which are idle for two seconds, and logs each look at a kernel."""

    def __init__(self, folder: Path) -> None:
        options = {
            "ServerApp.port": 0,
            "ServerApp.allow_root": True,
            "ServerApp.root_dir": folder,
            "ServerApp.log_level": "DEBUG",
            "IdentityProvider.token": TOKEN,
            "MappingKernelManager.cull_idle_timeout": IDLE,
            "MappingKernelManager.cull_interval": 1,
        }
        argv = [sys.executable, "-m", "jupyter_server", *(f"--{name}={value}" for name, value in options.items())]
        own = {"PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(folder), "HOME": str(folder)}
        self.process = Popen(
            argv, cwd=folder, env={**os.environ, **own}, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, text=True
        )
        assert self.process.stderr is not None
        self.log: IO[str] = self.process.stderr
        self.host = self.line(r"http://(127\.0\.0\.1:\d+)/")[1]

    def line(self, pattern: str) -> re.Match[str]:
        """Read the log up to a line."""
        said: list[str] = []
        for line in self.log:
            said.append(line)
            if found := re.search(pattern, line):
                return found
        raise RuntimeError(f"The server has ended:\n{''.join(said)}")

    def get(self, path: str, body: bytes | None = None) -> Any:
        """Return the answer of the server's API."""
        request = Request(f"http://{self.host}/api/{path}", data=body, headers=HEADERS)
        while True:
            try:
                with urlopen(request) as reply:  # noqa: S310
                    return json.load(reply)
            except URLError as error:  # the server logs its address just before it listens
                if self.process.poll() is not None or not isinstance(error.reason, ConnectionRefusedError):
                    raise
                sleep(0.05)

    def run(self, kernel: str, code: str) -> None:
        """Run a cell as a page does that is then closed."""
        page: Any = websocket.create_connection(f"ws://{self.host}/api/kernels/{kernel}/channels", header=HEADERS)
        header = {"msg_id": uuid4().hex, "username": "", "session": uuid4().hex, "msg_type": "execute_request"}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = {"header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}, "content": content}
        page.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        state = ""
        while state != "idle":
            answer = json.loads(page.recv())
            assert answer["msg_type"] != "error", answer["content"]
            if answer["parent_header"].get("msg_id") == header["msg_id"]:
                state = answer["content"].get("execution_state", state)
        page.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    yield running
    running.process.terminate()
    running.process.wait(30)
    running.log.close()


def test_a_kernel_is_not_ended_while_a_silent_tool_of_a_turn_without_a_cell_runs_but_afterwards(server, tmp_path):
    os.mkfifo(tmp_path / "gate")
    kernel = server.get("kernels", b"{}")["id"]
    server.run(kernel, TURN)
    with (tmp_path / "gate").open("w") as gate:  # waits until the tool reads
        end = datetime.now(UTC) + timedelta(seconds=3 * IDLE)
        while datetime.now(UTC) < end:
            assert server.line(LOOK)[0] == "last_activity="
        # The last activity of the server is what JupyterHub's culler looks at.
        latest = datetime.fromisoformat(server.get("status")["last_activity"])
        assert end - latest < timedelta(seconds=IDLE)
        gate.write("seen")
    server.line("Culling 'idle' kernel")
