"""What is left when a client goes away, when serving stops, and when the process ends: nothing."""

import asyncio
import gc
import logging
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from agentmagic import Agent, Session, ToolContext, tool
from agentmagic.display import html
from agentmagic.display.transcript import Transcript
from agentmagic.errors import MissingExtra
from agentmagic.export.document import to_markdown
from agentmagic.runtime.engine import engine
from agentmagic.serve import limits
from agentmagic.serve import serving as serving_module
from agentmagic.serve.server import Server
from tests.serve.served import MODERN, PATIENCE, Served, Workshop

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


class Tools:
    """Tools that wait: for the test, for an answer of the client's user."""

    def __init__(self):
        self.began = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)

    def tools(self):
        @tool
        async def wait() -> str:
            """Wait for ever."""
            self.began.release()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.release()
            return "never"

        @tool
        async def inquire(context: ToolContext) -> str:
            """Ask."""
            self.began.release()
            try:
                return await context.ask("Which one?")
            finally:
                self.ended.release()

        @tool
        def echo(text: str) -> str:
            """Return the text."""
            return text

        return [wait, inquire, echo]


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """A served session, with its tools; `left` are the tasks of the engine that were not there before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    engine().call(serving_module.shared_server().aclose())
    before = tasks()
    tools = Tools()
    session = Session(Agent(tools=tools.tools(), permission="allow"))
    serving = session.serve(tools=True)
    served = Served(None, serving_module.shared_server(), serving._token)
    served.session, served.serving, served.tools = session, serving, tools
    served.left = lambda: tasks() - before
    yield served
    serving.stop()
    engine().call(serving_module.shared_server().aclose())


def tasks():
    async def find():
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    return engine().call(find())


def until(condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)  # of what no event tells: the end of tasks
    return found


def begin_session(served):
    """Begin a session of the protocol, and return what makes requests in it."""
    _, text = served.send(served.request(HELLO))
    session = next(line for line in text.splitlines() if line.startswith("mcp-session-id:")).split()[1]
    headers = {"Mcp_Session_Id": session, "MCP_Protocol_Version": "2025-11-25"}
    served.send(served.request({"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers))

    def request(name, number):
        params = {"name": name, "arguments": {}}
        return served.request({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, **headers)

    return request, headers


def echoes(served):
    return "still there" in served.send(served.modern(name="echo", arguments={"text": "still there"}))[1]


@pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "session"])
@pytest.mark.parametrize("phase", ["wait", "inquire", "queued"])
def test_a_client_that_goes_away_leaves_the_session_free(notebook, phase, stateless, monkeypatch):
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.2)
    request, _ = begin_session(notebook)
    number = iter(range(10, 100))

    def call(name):
        line = socket.create_connection(notebook.address, timeout=PATIENCE)
        line.sendall(notebook.modern(name=name) if stateless else request(name, next(number)))
        return line

    first = call("wait" if phase == "queued" else phase)
    assert notebook.tools.began.acquire(timeout=PATIENCE)
    if phase == "queued":
        call("wait").close()
        assert notebook.session.running is not None
    if phase == "inquire" and stateless:  # it is told at once, and the call goes on without a connection
        assert b"input_required" in b"".join(iter(lambda: first.recv(65536), b""))
    first.close()
    assert notebook.tools.ended.acquire(timeout=PATIENCE)
    assert echoes(notebook)
    until(lambda: notebook.session.running is None or notebook.session.running.settled.done())


def test_stopping_ends_open_calls_streams_and_questions(notebook):
    request, headers = begin_session(notebook)
    lines = [socket.create_connection(notebook.address, timeout=PATIENCE) for _ in range(4)]
    lines[0].sendall(notebook.modern(name="wait"))
    assert notebook.tools.began.acquire(timeout=PATIENCE)
    lines[1].sendall(request("wait", 20))
    lines[2].sendall(notebook.head(method="GET", Accept="text/event-stream", **headers))
    assert b"200 OK" in lines[2].recv(65536)
    lines[3].sendall(notebook.modern("tools/list"))
    assert b"200 OK" in lines[3].recv(65536)
    began = time.monotonic()
    notebook.serving.stop()
    notebook.serving.wait()
    answers = [b"".join(iter(lambda line=line: line.recv(65536), b"")) for line in lines[:3]]
    engine().call(notebook.server.aclose())
    assert time.monotonic() - began < limits.CLOSING + 2
    assert b"no longer served" in answers[0]
    until(lambda: not notebook.left())
    for line in lines:
        line.close()
    gc.collect()


def test_a_stopped_notebook_can_be_served_again_under_another_token(notebook):
    notebook.serving.stop()
    until(lambda: notebook.serving.ended)
    assert notebook.send(notebook.modern(name="echo"))[0] == 401
    again = notebook.session.serve(tools=True)
    try:
        served = Served(None, serving_module.shared_server(), again._token)
        assert served.token != notebook.token
        assert echoes(served)
    finally:
        again.stop()


def test_the_token_is_in_no_text_of_ours(notebook, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    token = notebook.token
    texts = [
        notebook.send(notebook.modern(name="echo", arguments={"text": token}))[1],
        notebook.send(notebook.modern(name="echo", client=token, arguments={"wrong": token}))[1],
        notebook.send(notebook.modern(name="echo", token=token[:-1]))[1],
        notebook.send(notebook.request({"method": token}, MCP_Protocol_Version=MODERN))[1],
        repr(notebook.serving),
        repr(notebook.server._desks),
        repr(notebook.session),
        repr(notebook.session.messages),
        str([turn.events for turn in notebook.session.turns]),
        notebook.session.serving.url,
    ]
    texts += [record.getMessage() for record in caplog.records]
    texts += capfd.readouterr()
    assert [text for text in texts if token in text] == []


def test_hidden_characters_of_a_client_are_not_in_what_is_shown(notebook):
    hidden = "a\u202eb\x1b[31mc\u2066<script>alert(1)</script>"
    assert notebook.send(notebook.modern(name="echo", client=hidden, arguments={"text": hidden}))[0] == 200
    (turn,) = notebook.session.turns
    for shown in (to_markdown(notebook.session.turns), html.render(Transcript(turn.events))):
        assert "echo" in shown
        assert not set(shown) & set("\u202e\x1b\u2066")
    assert "<script>" not in html.render(Transcript(turn.events))


def test_a_long_result_is_cut_and_says_so(notebook):
    text = notebook.send(notebook.modern(name="echo", arguments={"text": "x" * 1_000_000}))[1]
    assert len(text) < 100_000
    assert "of 1000000 are left out" in text


def test_without_the_extra_its_command_is_said_and_nothing_listens(monkeypatch):
    def lack(name):
        raise ImportError(name)

    monkeypatch.setattr("agentmagic.serve.server.import_module", lack)
    server = Server()
    with pytest.raises(MissingExtra, match=r"pip install .*agentmagic\[mcp\]"):
        engine().call(server.open(Workshop()))
    assert server.url == ""


SCRIPT = """
import socket, sys, threading
from tests.serve.test_endings import Tools, begin_session
from tests.serve.served import Served
from agentmagic import Agent, Session
from agentmagic.serve import serving as module
tools = Tools()
session = Session(Agent(tools=tools.tools(), permission="allow"))
serving = session.serve(tools=True)
served = Served(None, module.shared_server(), serving._token)
request, headers = begin_session(served)
lines = [socket.create_connection(served.address) for _ in range(3)]
lines[0].sendall(request("wait", 5))
tools.began.acquire()
lines[1].sendall(served.modern(name="wait"))
lines[2].sendall(served.head(method="GET", Accept="text/event-stream", **headers))
assert lines[2].recv(100)
served.send(b"GARBAGE\\r\\n\\r\\n")
served.send(served.modern(Host="evil.example.com"))
kept = [line.detach() for line in lines]  # open until the end, and not what Python warns of
print("open", flush=True)
"""


@pytest.mark.slow
def test_a_process_ends_soon_and_silently_with_open_calls(tmp_path):
    program = subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    assert program.stdout.readline() == "open\n"
    began = time.monotonic()
    _, errors = program.communicate(timeout=30)
    assert time.monotonic() - began < 6
    assert errors == ""
    assert list(tmp_path.rglob("*.json")) == []
