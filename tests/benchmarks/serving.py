"""A served call over the same call in the kernel, and over the mcp library alone: `python -m tests.benchmarks.serving`.

CPU of the process, which holds the client too: a socket that sends the same bytes each time. The function returns its
text. The median of some calls, one after the other.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from agentmagic import Agent, Session, tool
from agentmagic.providers.scripted import ScriptedModel
from tests.benchmarks.__main__ import row
from tests.serve.served import Served

CALLS = 200
LONG = 1000


@tool
async def echo(text: str) -> str:
    """Repeat a text."""
    return text


@contextmanager
def bare() -> Iterator[str]:
    """Serve the function with the mcp library and uvicorn, and nothing of ours."""
    server = MCPServer("bare", log_level="ERROR")
    server.add_tool(lambda text: text, name="echo")
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(transport_security=security)
    http = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=http.run, daemon=True)
    thread.start()
    while not http.started:
        time.sleep(0.01)
    port = http.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/mcp"
    http.should_exit = True
    thread.join()


class Address:
    """Stands for our server where only its address counts."""

    def __init__(self, url: str) -> None:
        self.url = url


def median(call: Callable[[], object], count: int = CALLS) -> float:
    """Return the milliseconds of a call, the median of the last ones."""
    took = []
    for _ in range(count):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return statistics.median(took[-CALLS // 2 :]) * 1000


def over_http(url: str, token: str) -> Callable[[], None]:
    """Return what makes a call and checks its answer."""
    served = Served(None, Address(url), token)
    request = served.modern(arguments={"text": "hello"})

    def call() -> None:
        status, text = served.send(request)
        assert status == 200, text
        assert "hello" in text

    return call


def main() -> None:
    """Print the table."""
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()  # where the file of a served kernel is
    with bare() as url:
        least = median(over_http(url, "none"))
    session = Session(Agent(tools=[echo], permission="allow"))
    by_hand = median(lambda: session.call("echo", text="hello"))
    step = {"calls": [{"name": "echo", "arguments": {"text": "hello"}}]}
    asking = Session(Agent(ScriptedModel([step, "Done."] * CALLS), tools=[echo], permission="allow"))
    turn = median(lambda: asking.start("Echo hello.").wait())
    served = session.serve(tools=True)
    try:
        call = over_http(served.url, served._token)
        first = median(call)
        row("served call over the mcp library's", first, least, "ms", "")
        row("served call over a turn with the call", first, turn, "ms", "")
        row("served call over session.call", first, by_hand, "ms", "")
        median(call, LONG)
        late = median(call)
        row(f"served call after {LONG:,} others", late, first, "ms", "goal 1")
    finally:
        served.stop()


if __name__ == "__main__":
    main()
