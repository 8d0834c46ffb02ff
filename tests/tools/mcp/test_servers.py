import asyncio
import contextlib
import contextvars
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import permutations

import pytest
from mcp import types

from agentmagic.errors import MissingExtra, ServerError, UsageError
from agentmagic.messages import Media, Text, ToolCall
from agentmagic.tools import mcp as servers_module
from agentmagic.tools.base import ServersUnreachable
from agentmagic.tools.calling import call_tool
from agentmagic.tools.mcp import config, limits
from agentmagic.tools.mcp.guardian import guardian
from agentmagic.tools.mcp.servers import _usable_tools
from tests.tools.mcp.calling import (
    PATIENCE,
    are_gone,
    call,
    connected,
    context,
    is_alive,
    raw,
    with_servers,
    workshop,
)
from tests.tools.mcp.servers import workshop as workshop_server
from tests.turns import AT_ONCE, SOON

AWAY = ("daemon",) if sys.platform == "linux" else ()  # elsewhere no process tells its environment


def state(servers, name="raw"):
    return next(one for one in servers.servers if one.name == name)


@with_servers(a=replace(raw(), allow=("ec*",), timeout=7), b=raw())
async def test_two_servers_at_once_keep_their_clashing_tools_apart_which_ask_unless_allowed(servers, /):
    tools = await servers.tools()
    assert [tool.name for tool in tools] == sorted(tool.name for tool in tools)
    echo, pid = (next(tool for tool in tools if tool.name == name) for name in ("a__echo", "a__pid"))
    others = [tool for tool in tools if tool not in (echo, pid)]
    assert (echo.definition.description, echo.definition.parameters["required"]) == ("echo.", ["text"])
    assert (echo.ask, pid.ask, echo.timeout) == (False, True, 7)
    assert all(tool.ask for tool in others)
    first, second = await call(servers, "a__pid"), await call(servers, "b__pid")
    assert first.text != second.text
    assert os.getsid(int(first.text)) == int(first.text), "an interrupt of this process spares them"


def test_a_connection_outlives_the_task_that_opened_it_and_takes_nothing_of_its_context():
    cell = contextvars.ContextVar("cell", default="none")
    seen = []

    @contextlib.asynccontextmanager
    async def lifespan(server):
        seen.append(cell.get())
        yield {}

    opening = contextvars.copy_context()
    opening.run(cell.set, "the cell that opened it")

    async def main():
        async with connected(memory=config.parse(workshop_server.make(lifespan=lifespan))) as servers:
            await asyncio.create_task(servers.tools(), context=opening)
            assert (await call(servers, "echo", text="still here")).text == "still here"

    asyncio.run(main())
    assert seen == ["none"]


@with_servers(raw=raw())
async def test_a_server_that_dies_during_a_call_costs_that_call_only_and_its_last_words_can_be_seen(servers, /):
    before = (await call(servers, "pid")).text
    died = await call(servers, "die")
    assert died.status == "error"
    assert "went away during die; whether the call took effect is unknown" in died.text
    owner = next((task for task in asyncio.all_tasks() if task.get_name() == "agentmagic-mcp-raw"), None)
    if owner is not None:
        await asyncio.wait((owner,))
    seen = state(servers)
    assert seen.state == "died"
    assert "cannot be used: it ended. Its last words: I was told to die" in seen.error
    assert seen.stderr == "I was told to die"
    assert (await call(servers, "pid")).text != before


@with_servers(raw=config.parse({"command": sys.executable, "cwd": "/gone"}))
async def test_a_folder_that_is_not_there_is_not_taken_for_a_missing_command(servers, /):
    with pytest.raises(ServerError, match="gone does not exist"):
        await servers.tools()


@with_servers(slow=raw(), quick=replace(raw(), timeout=SOON))
async def test_the_server_is_told_of_a_call_that_is_cancelled_or_over_its_time(servers, /):
    begun = asyncio.Event()
    waiting = asyncio.create_task(call(servers, "slow__wait", on_progress=lambda *_: begun.set()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await call(servers, "quick__wait")).status == "timeout"
    for name in ("slow", "quick"):
        assert json.loads((await call(servers, f"{name}__cancelled")).text) == [True]


@with_servers(raw=raw())
async def test_cancelling_does_not_wait_for_a_server_that_has_stopped_reading(servers, /):
    begun = asyncio.Event()
    calls = [asyncio.create_task(call(servers, "deaf", on_progress=lambda *_: begun.set()))]
    await begun.wait()
    calls += [asyncio.create_task(call(servers, "echo", text="x" * 10**6)) for _ in range(3)]
    await asyncio.sleep(0)
    cancelled_at = time.monotonic()
    for task in calls:
        task.cancel()
    await asyncio.wait(calls)
    assert time.monotonic() - cancelled_at < AT_ONCE


@with_servers(raw=raw(env={"GIVEN": "yes"}))
async def test_a_server_sees_the_environment_it_was_given_and_no_keys(servers, /, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-servers")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/our-authority.pem")
    environment = json.loads((await call(servers, "environment")).text)
    assert environment["GIVEN"] == "yes"
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["https_proxy"] == "http://proxy.example:3128"
    assert environment["SSL_CERT_FILE"] == "/etc/our-authority.pem"
    assert "OPENAI_API_KEY" not in environment


@with_servers(raw=raw())
async def test_a_failing_call_is_a_result_and_the_server_stays(servers, /):
    before = (await call(servers, "pid")).text
    for tool, arguments, words in (
        ("refuse", {}, "refuse failed: not today"),
        ("fail", {}, "it went wrong"),
        ("echo", {"text": "\ud800"}, "half a character"),
        ("large", {"size": None}, "null is not of type"),
    ):
        answer = await call(servers, tool, **arguments)
        assert (answer.status, words in answer.text) == ("error", True), answer.text
    assert (await call(servers, "pid")).text == before


@with_servers(a=raw())
async def test_servers_come_and_go_while_others_stay(servers, /):
    pid = (await call(servers, "pid")).text
    await servers.add("b", raw())
    assert [(one.name, one.state, one.tools) for one in servers.servers] == [("a", "ready", 12), ("b", "ready", 12)]
    with pytest.raises(UsageError, match="There is a server 'b' already"):
        await servers.add("b", workshop())
    await servers.remove("b")
    await servers.add("a", replace(raw(), allow=("pid",)))  # the same server once more
    assert [tool.name for tool in await servers.tools() if not tool.ask] == ["pid"]
    with pytest.raises(UsageError, match=r"There is no server 'b'. Servers: a\."):
        await servers.remove("b")
    assert (await call(servers, "pid")).text == pid


@with_servers(raw=raw())
async def test_tools_can_be_taken_away_and_given_back(servers, /):
    await servers.tools()
    servers.disable("raw", ["echo", "*cel*"])
    assert not {"echo", "cancelled"} & {tool.name for tool in await servers.tools()}
    assert (state(servers).tools, state(servers).disabled) == (10, ("cancelled", "echo"))
    servers.enable("raw", ["ec*"])
    assert {"echo"} == {"echo", "cancelled"} & {tool.name for tool in await servers.tools()}
    servers.enable("raw")
    assert state(servers).disabled == ()
    with pytest.raises(UsageError, match=r"has no tool 'ehco'\. Did you mean echo\? Its tools: cancelled, deaf"):
        servers.disable("raw", ["ehco"])


@with_servers(raw=replace(raw(), only=("echo", "p*"), disable=("pid",)))
async def test_tools_that_an_entry_takes_away_can_be_given_back(servers, /):
    assert [tool.name for tool in await servers.tools()] == ["echo"]
    assert "deaf" in state(servers).disabled
    servers.enable("raw", ["pid", "deaf"])
    assert [tool.name for tool in await servers.tools()] == ["deaf", "echo", "pid"]
    servers.enable("raw")
    assert (len(await servers.tools()), state(servers).disabled) == (12, ())


@with_servers(raw=raw(), other=raw())
async def test_a_disconnected_server_stays_so_until_it_is_connected_again(servers, /):
    before = [(await call(servers, f"{name}__pid")).text for name in ("raw", "other")]
    await servers.disconnect("raw")
    assert {tool.definition.server for tool in await servers.tools()} == {"other"}
    assert state(servers).state == "stopped"
    await servers.restart("raw")
    after = [(await call(servers, f"{name}__pid")).text for name in ("raw", "other")]
    assert (before[0] != after[0], before[1] == after[1]) == (True, True)
    await servers.disconnect("raw")
    assert await servers.prompts() == []
    assert state(servers).state == "stopped"
    await servers.add("raw", servers._servers["raw"].connection.config)  # as a cell that runs again does
    assert {tool.definition.server for tool in await servers.tools()} == {"raw", "other"}


@with_servers(raw=raw())
async def test_who_listens_is_told_when_a_server_or_its_tools_change(servers, /):
    loop, seen = asyncio.get_running_loop(), []
    end = servers.listen(lambda _: loop.call_soon(lambda: seen.append(state(servers))))
    await servers.tools()
    servers.disable("raw", ["echo"])
    await asyncio.sleep(0)
    assert {"starting", "ready"} == {one.state for one in seen}
    assert "echo" in seen[-2].offered
    assert "echo" not in seen[-1].offered
    end()
    told = len(seen)
    await servers.disconnect("raw")
    assert len(seen) == told


@with_servers()
async def test_a_server_that_fails_to_start_is_kept_until_it_is_replaced(servers, /):
    retry = r"%mcp restart 'a clock' tries again, %mcp remove 'a clock' forgets the server\.$"
    for _ in range(2):
        with pytest.raises(ServerError, match=retry):
            await servers.add("a clock", config.parse("no-such-command-anywhere"))
        assert state(servers, "a clock").state == "failed"
    await servers.add("a clock", raw())
    assert [(one.name, one.state) for one in servers.servers] == [("a clock", "ready")]


@with_servers()
async def test_an_adding_that_is_given_up_leaves_nothing_and_closing_ends_one_too(servers, /):
    async def adding():
        task = asyncio.create_task(servers.add("raw", raw("silent")))
        while not servers.servers or state(servers).state != "starting":  # noqa: ASYNC110  (nothing tells of it)
            await asyncio.sleep(0)
        return task

    given_up = await adding()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert servers.servers == []
    closed = await adding()
    await servers.aclose()
    with pytest.raises(ServerError, match="disconnected"):
        await closed


@pytest.mark.posix
@with_servers(raw=raw(), slow=raw("held"))
async def test_a_turn_goes_on_without_a_server_that_starts_slowly_and_has_its_tools_later(servers, /, monkeypatch):
    monkeypatch.setattr(limits, "START_WAIT", 0.2)
    await servers.restart("raw")  # so that it is ready, however long that takes
    with pytest.raises(ServersUnreachable) as failed:
        await servers.tools()
    (problem,) = failed.value.problems
    assert problem == (
        "The MCP server 'slow' is still starting after 0.2 s; its tools come with a later turn. "
        "%mcp remove slow forgets the server."
    )
    assert {tool.definition.server for tool in failed.value.tools} == {"raw"}
    assert state(servers, "slow").state == "starting"
    async with asyncio.timeout(PATIENCE):
        while not state(servers, "slow").stderr:  # noqa: ASYNC110  (no event tells that it wrote its id)
            await asyncio.sleep(0)
    pid = int(state(servers, "slow").stderr)
    os.kill(pid, signal.SIGUSR1)
    monkeypatch.setattr(limits, "START_WAIT", PATIENCE)
    assert {tool.definition.server for tool in await servers.tools()} == {"raw", "slow"}
    assert int((await call(servers, "slow__pid")).text) == pid


@with_servers(bad=raw("silent", connect_timeout=0.5), good=raw())
async def test_a_listing_does_not_wait_again_for_a_server_that_never_answers(servers, /, monkeypatch):
    monkeypatch.setattr(limits, "RETRY", 0.1)
    with pytest.raises(ServersUnreachable, match=r"did not answer within 0\.5 s"):
        await servers.tools()
    assert state(servers, "bad").state == "failed"
    for _ in range(2):
        with pytest.raises(ServersUnreachable, match=r"failed before and has not answered within 0\.1 s"):
            await servers.tools()


@with_servers(raw=raw())
async def test_a_call_to_a_removed_server_is_an_error_result_and_starts_nothing(servers, /):
    tool = next(tool for tool in await servers.tools() if tool.name == "echo")
    await servers.remove("raw")
    request = ToolCall("call-1", "echo", {"text": "x"})
    answer = await call_tool(tool, request, context(request))
    assert answer.text == "echo cannot be called: the server 'raw' was disconnected."


@pytest.mark.posix
@with_servers(a=raw("stubborn", "spawn", *AWAY), b=raw("spawn"))
async def test_closing_leaves_no_process_not_even_one_that_refuses_or_left_the_group_of_its_server(servers, /):
    tools = {(tool.definition.server, tool.name): tool for tool in await servers.tools()}
    pids = []
    for server in "ab":
        request = ToolCall("call-1", f"{server}__pid", {})
        pids.append(int((await call_tool(tools[server, request.name], request, context(request))).text))
        pids.append(int(state(servers, server).stderr.removeprefix("child ")))
    assert all(is_alive(pid) for pid in pids)
    begun = time.monotonic()
    await servers.aclose()
    assert time.monotonic() - begun < 5
    assert are_gone(pids)
    assert not guardian._servers.keys() & set(pids), "another process may get the id of one"


KILLED = """
import asyncio, os, signal
from tests.tools.mcp.calling import call, connected, raw

async def main():
    async with connected(gone=raw(), raw=raw("stubborn", "spawn", "daemon")) as servers:
        await servers.remove("gone")
        pid = (await call(servers, "pid")).text
        print(pid, servers.get("raw").stderr.removeprefix("child "), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.linux
def test_after_a_kill_of_this_process_no_server_survives_not_even_one_that_refuses():
    program = [sys.executable, "-c", KILLED]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    server, child = map(int, ended.stdout.split())
    assert are_gone([server, child])


@with_servers(raw=raw("stubborn"))
async def test_a_program_whose_closing_is_cut_short_is_gone_all_the_same(servers, /, monkeypatch):
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 0.05)
    pid = int((await call(servers, "pid")).text)
    await servers.aclose()
    assert are_gone([pid])


@with_servers(raw=raw())
async def test_what_is_listed_without_connecting_is_that_of_the_servers_that_are_connected(servers, /):
    assert await servers.connected_tools() == ([], ["raw"])
    assert state(servers).state == "stopped"
    await servers.tools()
    tools, left = await servers.connected_tools()
    assert "echo" in [tool.name for tool in tools]
    assert left == []


@pytest.mark.parametrize("entry", [workshop(), config.parse(workshop_server.make())], ids=["stdio", "memory"])
def test_a_server_of_the_mcp_library_works_in_every_way(entry):
    async def main():
        async with connected(workshop=entry) as servers:
            await use_all_of(servers)

    asyncio.run(main())


def test_a_server_object_of_fastmcp_works_in_memory():
    shop = pytest.importorskip("fastmcp").FastMCP("shop")

    @shop.tool
    def price(items: list[str]) -> dict[str, float]:
        return {"total": 2.5 * len(items)}

    async def main():
        async with connected(**config.read(shop)) as servers:
            assert (await call(servers, "price", items=["a", "b"])).structured == {"total": 5.0}
            assert state(servers, "shop").title.startswith("shop")

    asyncio.run(main())


async def use_all_of(servers):
    assert (await call(servers, "echo", text="hello")).text == "hello"
    assert (await call(servers, "add", a=1, b=2)).structured == {"sum": 3}
    assert (await call(servers, "picture")).content == (Media("image/png", workshop_server.PIXEL),)
    assert (await call(servers, "add", a=1)).status == "error"
    told = []
    answer = await call(servers, "count", to=3, on_progress=lambda *words: told.append(words))
    assert answer.content == (Text("counted"),)
    assert sorted(told) == [("call-1", n, 3.0, f"at {n}") for n in (1, 2, 3)]
    await call(servers, "learn")
    while "trick" not in [tool.name for tool in await servers.tools()]:  # noqa: ASYNC110  (the notice may lag)
        await asyncio.sleep(0)
    begun = asyncio.Event()
    working = asyncio.create_task(call(servers, "work", on_progress=lambda *_: begun.set()))
    await begun.wait()
    working.cancel()
    assert (await call(servers, "wait_until_cancelled")).text == "it was"


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.client.streamable_http", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentmagic\[mcp\]'"):
        servers_module.warm()


def test_the_order_in_which_a_server_lists_its_tools_changes_nothing():
    listed = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("b", "c", "a")]
    orders = [[tool.name for tool in _usable_tools(order)[0]] for order in permutations(listed)]
    assert orders == [["a", "b", "c"]] * 6
