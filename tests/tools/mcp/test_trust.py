import asyncio
import contextlib
import json
import sys

import pytest

from agentmagic.errors import ConfigError, ServerError
from agentmagic.secrets import register_secret
from agentmagic.tools.mcp import McpServers, config
from agentmagic.tools.mcp.config import Input, Stdio
from agentmagic.tools.mcp.pending import ServerHost
from agentmagic.tools.mcp.trust import TrustStore
from tests.tools.mcp.calling import PATIENCE, SERVERS, call, raw


@pytest.fixture
def store(tmp_path):
    return TrustStore(tmp_path / "data" / "trusted.json")


@pytest.fixture
def read(tmp_path, store):
    """Write a file that names a server, and read it."""

    def read(*wrong, folder=tmp_path, **changes):
        entry = {"command": sys.executable, "args": ["-S", str(SERVERS / "raw.py"), *wrong], **changes}
        entry = {key: value for key, value in entry.items() if value is not None}
        path = folder / ".mcp.json"
        path.write_text(json.dumps({"mcpServers": {"raw": entry}}))
        return McpServers(config.read(path), store=store)

    return read


def played(scene, servers):
    async def main():
        async with asyncio.timeout(PATIENCE), contextlib.aclosing(servers):
            await scene()

    asyncio.run(main())


def test_a_server_of_a_file_does_not_start_before_its_command_was_approved(tmp_path, read):
    async def scene():
        with pytest.raises(ServerError, match="was not started, since no one has approved it yet"):
            await servers.tools()
        assert servers.get("raw").state == "needs approval"
        shown = servers.pending("raw") or ""
        assert f"GREETING=hello 'API_KEY=[redacted]' {sys.executable} -S" in shown
        assert f"The file {tmp_path / '.mcp.json'} names it." in shown
        servers.approve("raw")
        assert servers.pending("raw") is None
        assert (await call(servers, "echo", text="hello")).text == "hello"
        with pytest.raises(ServerError, match="no one has approved it yet"):
            await servers.add("raw", read("other")._servers["raw"].connection.config)
        assert servers.get("raw").state == "needs approval", "its entry changed in its file"

    servers = read(env={"GREETING": "hello", "API_KEY": "1234"})
    played(scene, servers)


def test_an_approval_lasts_until_the_entry_changes_and_is_for_its_place(tmp_path, read, store):
    read().approve("raw")
    assert McpServers(config.read(tmp_path / ".mcp.json"), store=TrustStore(store.path)).pending("raw") is None
    (tmp_path / "other").mkdir()
    assert read(folder=tmp_path / "other").pending("raw")
    changed = read("banner")
    shown = changed.pending("raw") or ""
    assert "It has changed. Before it was: " in shown
    assert shown.count("raw.py") == 2
    changed.approve("raw")
    assert read().pending("raw"), "the old entry is forgotten"


def test_a_host_is_asked_once_and_its_yes_is_kept(read):
    asked = []

    async def confirm(question):
        asked.append(question)
        return True

    async def scene():
        await asyncio.gather(servers.tools(), servers.tools())
        await servers.restart("raw")

    servers = read()
    servers._servers["raw"].connection.pending.host = ServerHost(confirm=confirm)
    played(scene, servers)
    assert len(asked) == 1
    assert asked[0].startswith("Start the MCP server 'raw', which the project names?\n")


def test_an_entry_that_cannot_be_read_is_not_approved_unseen(read, store, monkeypatch):
    async def scene():
        assert servers.pending("raw") is None
        with pytest.raises(ServerError, match="GITHUB_TOKEN is not set"):
            servers.approve("raw")
        assert not store.path.exists()
        monkeypatch.setenv("GITHUB_TOKEN", "given-by-now")
        with pytest.raises(ServerError, match="no one has approved it yet"):
            await servers.restart("raw")
        assert "TOKEN=[redacted]" in (servers.pending("raw") or "")
        servers.approve("raw")
        await servers.restart("raw")
        assert servers.get("raw").state == "ready"

    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    servers = read(env={"TOKEN": "${GITHUB_TOKEN}"})
    played(scene, servers)


def test_what_code_names_needs_no_approval(store):
    servers = McpServers({"raw": raw()}, store=store)
    servers.approve("raw")
    assert (servers.pending("raw"), store.path.exists()) == (None, False)


@pytest.mark.parametrize("content", [b"[]", b"\xff", b'{"x": 7}'])
def test_a_store_that_cannot_be_read_approves_nothing(read, store, content):
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    servers = read()
    assert servers.pending("raw")
    servers.approve("raw")
    assert servers.pending("raw") is None


def test_the_question_shows_every_word_and_no_secret_and_nothing_moves_hides_or_passes_for_a_line_of_it(read):
    register_secret("a-very-secret-word")
    args = ["\n" * 50 + "The file /safe names it.", "ev\u200bil\u202e", "a b", "a-very-secret-word", "\x1b[2Jc"]
    shown = read(*args, allow=["a\nb"], cwd="/y").pending("raw")
    command, allowed, file = shown.splitlines()
    assert command.count("\\n") == 50
    assert command.endswith(r"'ev\u200bil\u202e' 'a b' [redacted] '\x1b[2Jc'  (in /y)")
    assert read(**WEB).pending("raw").startswith("https://example.org/mcp  (with X: 1)\n")
    assert allowed == r"Without asking you, it may run: a\nb"
    assert file.startswith("The file ")


def test_the_question_shows_all_that_an_entry_asks_for_and_where_its_values_come_from(read, monkeypatch, tmp_path):
    monkeypatch.setenv("SHOP_KEY", "abcd1234")
    monkeypatch.setenv("PLACE", "berlin")
    headers = {"Authorization": "Bearer ${SHOP_KEY}", "X-Place": "${PLACE}\u202e", "X-Id": "9fK2mQ7xT4bZ8nW1cV5d"}
    client = {"client_id": "app\u200b", "client_secret": "s3cr3t-of-it", "callback_port": 4711, "roots": ["/", "a\nb"]}
    client |= {
        "client_metadata_url": "https://example.org/client",
        "timeout": 7,
        "connect_timeout": 9,
        "type": "sse",
        "allow": ["get_*"],
        "trust": True,
    }
    entry = {**WEB, "url": "https://me:hunter2x@example.org/mcp?place=${PLACE:-x}", "headers": headers, **client}
    lines = read(**entry).pending("raw").splitlines()
    assert lines[0] == (
        "https://me:[redacted]@example.org/mcp?place=berlin  "
        r"(with Authorization: [redacted], X-Place: berlin\u202e, X-Id: [redacted])"
    )
    assert lines[1:-1] == [
        "It is reached by server-sent events.",
        r"It is authorized as the client app\u200b, with the secret [redacted]",
        "The client is described at: https://example.org/client",
        "Its authorization comes back to the port: 4711",
        "It is given the values of: PLACE (your environment), SHOP_KEY (your environment)",
        rf"It is told to work in: /, {tmp_path}/a\nb",
        "A call may take: 7 s",
        "Its first answer may take: 9 s",
        "It is trusted: its tools may run without asking you, at a level of permission that says so.",
        "Without asking you, it may run: get_*",
    ]
    env = {"HOME_OF": "/h", "MY_TOKEN": "${SHOP_KEY}", "PORT": "${NO_PORT:-80}"}
    program = read(args=["x" * 10_000], env=env).pending("raw").splitlines()
    assert program[0] == f"HOME_OF=/h 'MY_TOKEN=[redacted]' PORT=80 {sys.executable} {'x' * 10_000}"
    assert program[1] == "It is given the values of: SHOP_KEY (your environment)"


WEB = {"command": None, "args": None, "url": "https://example.org/mcp", "headers": {"X": "1"}}


@pytest.mark.parametrize(
    "change",
    [
        {"args": ["-S", "other.py"]},
        {"command": "/usr/bin/env"},
        {"env": {"NAME": "value"}},
        {"cwd": "/"},
        {"allow": ["*"]},
        {"trust": True},
        {"roots": ["/"]},
        {"timeout": 1},
        WEB,
        {**WEB, "url": "https://example.org/other"},
        {**WEB, "headers": {"X": "2"}},
        {**WEB, "type": "sse"},
    ],
)
def test_any_change_of_an_entry_has_to_be_approved(read, change):
    for entry in ({}, WEB):
        read(**entry).approve("raw")
        assert read(**entry).pending("raw") is None
        if entry != change:
            assert read(**change).pending("raw")


def test_a_change_of_what_stands_in_for_an_answer_has_to_be_approved(tmp_path, store):
    def servers(default):
        entry = {"command": "python", "args": ["${input:program}"]}
        data = {"inputs": [{"id": "program", "default": default}], "servers": {"a": entry, "b": {"command": "x"}}}
        (tmp_path / "mcp.json").write_text(json.dumps(data))
        return McpServers(config.read(tmp_path / "mcp.json"), store=store)

    for name in "ab":
        servers("safe.py").approve(name)
    assert servers("safe.py").pending("a") is None
    assert "evil.py" in (servers("evil.py").pending("a") or "")
    assert servers("evil.py").pending("b") is None


def test_an_approval_that_cannot_be_kept_is_said_and_starts_nothing(read, store):
    store.path.parent.write_text("")
    servers = read()
    with pytest.raises(ServerError, match=r"cannot be kept in .* Make it writable"):
        servers.approve("raw")
    assert servers.pending("raw")


@pytest.mark.parametrize("name", ["Notebook", " ", "a\u200bb"])
def test_a_server_cannot_be_called_what_would_pass_for_something_else(name, store):
    with pytest.raises(ConfigError, match="A server cannot be called"):
        McpServers({name: config.parse("x")}, store=store)


def test_inputs_of_vs_code_are_asked_for_once_or_are_their_defaults(tmp_path):
    def read(ask=None):
        (tmp_path / "mcp.json").write_text(json.dumps({"inputs": inputs, "servers": {"a": entry}}))
        return config.read(tmp_path / "mcp.json", ask=ask)["a"].transport

    asked = []
    inputs = [
        {"type": "promptString", "id": "team", "description": "Which team?", "password": True},
        {"type": "pickString", "id": "colour", "options": ["red", "blue"], "default": "red"},
    ]
    entry = {"command": "x", "args": ["${input:team}", "${input:team}", "${input:colour}"]}
    assert read(lambda one: asked.append(one) or "blue-and-long-enough") == Stdio("x", ("blue-and-long-enough",) * 3)
    assert asked == [
        Input("team", "Which team?", password=True),
        Input("colour", default="red", options=("red", "blue")),
    ]
    assert "asks for a value that was not given" in read().problem
    inputs[0]["default"] = "green"
    assert read() == Stdio("x", ("green", "green", "red"))
