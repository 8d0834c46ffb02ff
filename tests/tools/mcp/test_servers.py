import asyncio
import contextlib
import contextvars
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from agentmagic.errors import MissingExtra, ServerError, UsageError
from agentmagic.messages import Media, Resource, Text, ToolCall
from agentmagic.tools import mcp as servers_module
from agentmagic.tools.base import ServersUnreachable, Toolset, call_tool
from agentmagic.tools.mcp import McpServers, config, limits
from agentmagic.tools.mcp.config import ServerConfig, Stdio
from tests.tools.mcp.calling import PATIENCE, SERVERS, are_gone, call, connected, context, is_alive, raw, workshop
from tests.tools.mcp.servers import workshop as workshop_server
from tests.turns import SOON


def run(coroutine):
    return asyncio.run(coroutine)


def state(servers, name="raw"):
    return next(one for one in servers.servers if one.name == name)


def test_two_servers_at_once_keep_their_clashing_tools_apart():
    async def main():
        async with connected(a=raw(), b=raw()) as servers:
            tools = await servers.tools()
            assert [tool.name for tool in tools[:2]] == ["a__echo", "a__pid"]
            assert {tool.definition.server for tool in tools} == {"a", "b"}
            first, second = await call(servers, "a__pid"), await call(servers, "b__pid")
            assert first.text != second.text
            assert isinstance(servers, Toolset)

    run(main())


def test_tools_come_with_their_schema_and_ask_unless_allowed():
    async def main():
        program = ServerConfig(raw().transport, allow=("ec*",), timeout=7)
        async with connected(raw=program) as servers:
            echo, pid, *_ = await servers.tools()
            assert echo.definition.description == "echo."
            assert echo.definition.parameters["required"] == ["text"]
            assert (echo.ask, pid.ask, echo.timeout) == (False, True, 7)

    run(main())


def test_calls_may_come_from_any_task_and_many_at_once():
    async def main():
        async with connected(raw=raw()) as servers:
            await asyncio.create_task(servers.tools())
            answers = await asyncio.gather(
                *(asyncio.create_task(call(servers, "echo", text=str(n))) for n in range(20))
            )
            assert [answer.text for answer in answers] == [str(n) for n in range(20)]

    run(main())


def test_many_tasks_that_need_a_server_start_it_once():
    async def main():
        async with connected(raw=raw()) as servers:
            answers = await asyncio.gather(*(call(servers, "pid") for _ in range(5)))
            assert len({answer.text for answer in answers}) == 1

    run(main())


def test_a_connection_outlives_the_task_that_opened_it_and_takes_nothing_of_its_context():
    cell = contextvars.ContextVar("cell", default="none")
    seen = []

    @contextlib.asynccontextmanager
    async def lifespan(server):
        seen.append(cell.get())
        yield {}

    async def opening(servers):
        cell.set("the cell that opened it")
        await servers.tools()

    async def main():
        async with connected(memory=config.parse(workshop_server.make(lifespan=lifespan))) as servers:
            await asyncio.create_task(opening(servers))
            assert (await call(servers, "echo", text="still here")).text == "still here"

    run(main())
    assert seen == ["none"]


def test_a_server_that_dies_during_a_call_costs_that_call_only():
    async def main():
        async with connected(raw=raw()) as servers:
            before = (await call(servers, "pid")).text
            died = await call(servers, "die")
            assert died.status == "error"
            assert "went away during die" in died.text
            after = (await call(servers, "pid")).text
            assert after != before

    run(main())


def test_what_a_dead_server_said_can_be_seen():
    async def main():
        async with connected(raw=raw()) as servers:
            await call(servers, "die")
            owner = next((task for task in asyncio.all_tasks() if task.get_name() == "agentmagic-mcp-raw"), None)
            if owner is not None:
                await asyncio.wait((owner,))
            seen = state(servers)
            assert seen.state == "died"
            assert "cannot be used: it ended. Its last words: I was told to die" in seen.error
            assert seen.stderr == "I was told to die"

    run(main())


def test_a_server_that_cannot_be_brought_back_ends_in_a_server_error(tmp_path):
    script = tmp_path / "server.py"
    shutil.copy(SERVERS / "raw.py", script)
    program = ServerConfig(Stdio(sys.executable, ("-S", str(script))))

    async def main():
        async with connected(raw=program) as servers:
            tools = {tool.name: tool for tool in await servers.tools()}
            await call(servers, "die")
            script.unlink()
            request = ToolCall("call-2", "echo", {"text": "hello"})
            with pytest.raises(ServerError, match="'raw' cannot be used"):
                await call_tool(tools["echo"], request, context(request))
            assert state(servers).state == "failed"

    run(main())


def test_a_command_that_is_not_there_is_said_at_once():
    async def main():
        async with connected(none=config.parse("no-such-command-anywhere")) as servers:
            with pytest.raises(ServerError, match="command not found: no-such-command-anywhere; install it or correct"):
                await servers.tools()
            assert state(servers, "none").state == "failed"

    run(main())


def test_a_folder_that_is_not_there_is_not_taken_for_a_missing_command(tmp_path):
    async def main():
        program = config.parse({"command": sys.executable, "cwd": str(tmp_path / "gone")})
        async with connected(raw=program) as servers:
            with pytest.raises(ServerError, match="gone does not exist"):
                await servers.tools()

    run(main())


def test_a_server_that_ends_at_once_is_quoted():
    async def main():
        broken = ServerConfig(Stdio(sys.executable, ("-c", "raise SystemExit('no licence')")))
        async with connected(broken=broken) as servers:
            with pytest.raises(ServerError, match=r"it ended without an answer\. Its last words: no licence"):
                await servers.tools()

    run(main())


def test_every_server_is_tried_and_every_failure_told():
    async def main():
        async with connected(a=config.parse("no-such-a"), raw=raw(), b=config.parse("no-such-b")) as servers:
            with pytest.raises(ServerError, match=r"(?s)no-such-a.*no-such-b"):
                await servers.tools()
            assert state(servers).state == "ready"

    run(main())


def test_a_server_that_never_answers_is_given_up_in_time():
    async def main():
        async with connected(raw=raw("silent", "stubborn", connect_timeout=0.3)) as servers:
            begun = time.monotonic()
            with pytest.raises(ServerError, match=r"did not answer within 0\.3 s"):
                await servers.tools()
            assert time.monotonic() - begun < 2
            assert state(servers).state == "failed"

    run(main())


def test_bytes_that_are_no_message_are_passed_over_and_kept_to_be_seen():
    async def main():
        async with connected(raw=raw("banner")) as servers:
            assert (await call(servers, "echo", text="ä")).text == "ä"
            assert "Willkommen! \ufffd" in state(servers).stderr

    run(main())


def test_a_cancelled_call_reaches_the_server():
    async def main():
        async with connected(raw=raw()) as servers:
            begun = asyncio.Event()
            waiting = asyncio.create_task(call(servers, "wait", on_progress=lambda *_: begun.set()))
            await begun.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert json.loads((await call(servers, "cancelled")).text) == [True]

    run(main())


def test_a_call_over_its_time_is_stopped_and_the_server_told():
    async def main():
        async with connected(raw=ServerConfig(raw().transport, timeout=SOON)) as servers:
            answer = await call(servers, "wait")
            assert answer.status == "timeout"
            assert json.loads((await call(servers, "cancelled")).text) == [True]

    run(main())


def test_cancelling_does_not_wait_for_a_server_that_has_stopped_reading():
    async def main():
        async with connected(raw=raw()) as servers:
            begun = asyncio.Event()
            deaf = asyncio.create_task(call(servers, "deaf", on_progress=lambda *_: begun.set()))
            await begun.wait()
            flood = [asyncio.create_task(call(servers, "echo", text="x" * 10**6)) for _ in range(3)]
            cancelled_at = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for task in (deaf, *flood):
                    group.create_task(cancel(task))
            assert time.monotonic() - cancelled_at < 0.5

    async def cancel(task):
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    run(main())


def test_a_server_has_a_session_of_its_own_so_that_an_interrupt_spares_it():
    async def main():
        async with connected(raw=raw()) as servers:
            pid = int((await call(servers, "pid")).text)
            assert os.getsid(pid) == pid

    run(main())


def test_a_server_sees_the_environment_it_was_given_and_no_keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-servers")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/our-authority.pem")

    async def main():
        async with connected(raw=raw(env={"GIVEN": "yes"})) as servers:
            environment = json.loads((await call(servers, "environment")).text)
            assert environment["GIVEN"] == "yes"
            assert environment["PATH"] == os.environ["PATH"]
            assert environment["https_proxy"] == "http://proxy.example:3128"
            assert environment["SSL_CERT_FILE"] == "/etc/our-authority.pem"
            assert "OPENAI_API_KEY" not in environment

    run(main())


def test_servers_can_live_on_a_loop_in_another_thread():
    async def main():
        async with connected(raw=raw()) as servers:
            return (await call(servers, "echo", text="from a thread")).text

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, main()).result() == "from a thread"


def test_a_result_over_the_limit_costs_that_call_only(monkeypatch):
    monkeypatch.setattr(limits, "MESSAGE_BYTES", 100_000)

    async def main():
        async with connected(raw=raw()) as servers:
            large, small = await asyncio.gather(call(servers, "large", size=10**6), call(servers, "echo", text="here"))
            assert "over 100000 bytes" in large.text
            assert small.text == "here"

    run(main())


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("refuse", "refuse failed: not today"),
        ("fail", "it went wrong"),
    ],
)
def test_a_failing_call_is_a_result_and_the_server_stays(tool, words):
    async def main():
        async with connected(raw=raw()) as servers:
            before = (await call(servers, "pid")).text
            answer = await call(servers, tool)
            assert (answer.status, answer.text) == ("error", words)
            assert (await call(servers, "pid")).text == before

    run(main())


def test_a_result_out_of_shape_is_read_for_what_it_says():
    async def main():
        async with connected(raw=raw()) as servers:
            answer = await call(servers, "rubbish")
            assert (answer.status, answer.text) == ("ok", "this is no list")

    run(main())


def test_half_a_character_in_the_arguments_does_not_break_the_connection():
    async def main():
        async with connected(raw=raw()) as servers:
            assert "half a character" in (await call(servers, "echo", text="\ud800")).text
            assert (await call(servers, "echo", text="whole")).text == "whole"

    run(main())


def test_pages_are_read_to_the_end_and_no_further():
    async def main():
        async with connected(raw=raw("endless")) as servers:
            names = [tool.name for tool in await servers.tools()]
            assert len(names) == len(set(names)) == 12

    run(main())


def test_schemas_are_mended_and_a_tool_that_cannot_be_used_is_named():
    async def main():
        async with connected(raw=raw("odd")) as servers:
            tools = {tool.name: tool for tool in await servers.tools()}
            shown = state(servers)
            assert set(shown.left_out) == {"endless", "scalar"}
            assert "leads back to itself" in shown.left_out["endless"]
            assert shown.dropped == {
                "bad_type": ("type strange of x",),
                "far_reference": ("$ref https://example.org/schema.json",),
            }
            assert shown.tools == 16
            assert tools["loose"].definition.parameters == {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "required": ["x"],
            }
            assert (await call(servers, "go")).text == "called go"
            assert "do not fit" in (await call(servers, "loose")).text
            left, dropped = servers.notices
            assert left.startswith("The MCP server 'raw' has tools that cannot be used: scalar (Its schema does not")
            assert left.endswith("leads back to itself). %mcp get raw lists all.")
            assert "bad_type (type strange of x)" in dropped

    run(main())


def test_a_list_that_has_not_changed_is_not_mended_again(monkeypatch):
    async def main():
        async with connected(raw=raw("odd")) as servers:
            first = await servers.tools()
            monkeypatch.setattr("agentmagic.tools.mcp.servers._usable", None)
            assert [one.definition for one in await servers.tools()] == [one.definition for one in first]
            assert len(state(servers).left_out) == 2

    run(main())


def test_a_schema_that_lacks_its_type_is_taken_for_an_object():
    async def main():
        async with connected(raw=raw("foreign")) as servers:
            assert (await call(servers, "no_type")).text == "called no_type"

    run(main())


def test_tools_are_listed_again_once_the_server_says_they_changed():
    async def main():
        async with connected(raw=raw()) as servers:
            before = [tool.name for tool in await servers.tools()]
            assert "grown" not in before
            await call(servers, "grow")
            assert "grown" in [tool.name for tool in await servers.tools()]

    run(main())


def test_servers_come_and_go_while_others_stay():
    async def main():
        async with connected(a=raw()) as servers:
            pid = (await call(servers, "pid")).text
            await servers.add("b", raw())
            assert [(one.name, one.state, one.tools) for one in servers.servers] == [
                ("a", "ready", 12),
                ("b", "ready", 12),
            ]
            with pytest.raises(UsageError, match="There is a server 'b' already"):
                await servers.add("b", workshop())
            await servers.remove("b")
            with pytest.raises(UsageError, match=r"There is no server 'b'. Servers: a\."):
                await servers.remove("b")
            assert (await call(servers, "pid")).text == pid

    run(main())


def test_the_same_server_once_more_stays_connected_and_allows_more():
    async def main():
        async with connected(a=raw()) as servers:
            pid = (await call(servers, "pid")).text
            await servers.add("a", replace(raw(), allow=("pid",)))
            assert (await call(servers, "pid")).text == pid
            assert [tool.name for tool in await servers.tools() if not tool.ask] == ["pid"]

    run(main())


def test_tools_can_be_taken_away_and_given_back():
    async def main():
        async with connected(raw=raw()) as servers:
            await servers.tools()
            servers.disable("raw", ["echo", "*cel*"])
            assert not {"echo", "cancelled"} & {tool.name for tool in await servers.tools()}
            assert (state(servers).tools, state(servers).disabled) == (10, ("echo", "cancelled"))
            servers.enable("raw", ["ec*"])
            assert {"echo"} == {"echo", "cancelled"} & {tool.name for tool in await servers.tools()}
            servers.enable("raw")
            assert state(servers).disabled == ()
            with pytest.raises(UsageError, match=r"has no tool 'ehco'\. Its tools: echo, pid"):
                servers.disable("raw", ["ehco"])

    run(main())


def test_a_server_can_be_restarted():
    async def main():
        async with connected(raw=raw(), other=raw()) as servers:
            before = (await call(servers, "raw__pid")).text, (await call(servers, "other__pid")).text
            await servers.restart("raw")
            assert state(servers).state == "ready"
            after = (await call(servers, "raw__pid")).text, (await call(servers, "other__pid")).text
            assert (before[0] != after[0], before[1] == after[1]) == (True, True)
            with pytest.raises(UsageError, match="There is no server 'none'"):
                await servers.restart("none")

    run(main())


def test_a_disconnected_server_stays_so_until_it_is_connected_again():
    async def main():
        async with connected(raw=raw(), other=raw()) as servers:
            await servers.tools()
            await servers.disconnect("raw")
            assert {tool.definition.server for tool in await servers.tools()} == {"other"}
            assert state(servers).state == "stopped"
            await servers.restart("raw")
            assert {tool.definition.server for tool in await servers.tools()} == {"raw", "other"}
            await servers.disconnect("raw")
            assert await servers.prompts() == []
            assert state(servers).state == "stopped"
            await servers.add("raw", servers._servers["raw"].connection.config)  # as a cell that runs again does
            assert {tool.definition.server for tool in await servers.tools()} == {"raw", "other"}

    run(main())


def test_who_listens_is_told_when_a_server_or_its_tools_change():
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        async with connected(raw=raw()) as servers:
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

    run(main())


def test_a_server_says_how_it_is_reached_and_what_it_is():
    async def main():
        async with connected(raw=raw(env={"TOKEN": "abc"})) as servers:
            assert servers.get("raw").title == ""
            await servers.tools()
            seen = servers.get("raw")
            assert (seen.title, seen.protocol) == ("raw 1", "2025-11-25")
            assert seen.address.startswith("'TOKEN=[redacted]' ")
            assert servers.logs("raw") == ()

    run(main())


def test_a_server_that_fails_to_start_is_kept_until_it_is_replaced_or_removed():
    async def main():
        async with connected() as servers:
            retry = r"%mcp restart 'a clock' tries again, %mcp remove 'a clock' forgets the server\.$"
            for _ in range(2):
                with pytest.raises(ServerError, match=retry):
                    await servers.add("a clock", config.parse("no-such-command-anywhere"))
                assert state(servers, "a clock").state == "failed"
            await servers.add("a clock", raw())
            assert [(one.name, one.state) for one in servers.servers] == [("a clock", "ready")]
            with pytest.raises(ServerError):
                await servers.add("other", config.parse("no-such-command-anywhere"))
            await servers.remove("other")
            assert (await call(servers, "echo", text="hello")).text == "hello"

    run(main())


def test_an_adding_that_is_given_up_leaves_nothing():
    async def main():
        async with connected() as servers:
            adding = asyncio.create_task(servers.add("raw", raw("silent")))
            while not servers.servers or state(servers).state != "starting":  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            assert servers.servers == []

    run(main())


def test_the_tools_of_the_servers_that_work_come_with_the_error():
    async def main():
        async with connected(bad=config.parse("no-such-a"), raw=raw()) as servers:
            with pytest.raises(ServersUnreachable, match="no-such-a") as caught:
                await servers.tools()
            assert {tool.definition.server for tool in caught.value.tools} == {"raw"}
            (problem,) = caught.value.problems
            assert problem == (
                "The MCP server 'bad' cannot be used: command not found: no-such-a; install it or correct the command. "
                "%mcp restart bad tries again, %mcp remove bad forgets the server."
            )

    run(main())


def test_a_turn_goes_on_without_a_server_that_starts_slowly_and_has_its_tools_later(monkeypatch):
    monkeypatch.setattr(limits, "START_WAIT", 0.2)

    async def main():
        async with connected(raw=raw(), slow=raw("held")) as servers:
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

    run(main())


def test_a_null_for_an_optional_argument_is_taken_for_none_given():
    async def main():
        async with connected(raw=raw()) as servers:
            assert (await call(servers, "echo", text="hello", size=None)).text == "hello"
            refused = await call(servers, "large", size=None)
            assert "null is not of type" in refused.text or "None is not of type" in refused.text

    run(main())


def test_a_listing_does_not_wait_again_for_a_server_that_never_answers(monkeypatch):
    monkeypatch.setattr(limits, "RETRY", 0.1)

    async def main():
        async with connected(bad=raw("silent", connect_timeout=2), good=raw()) as servers:
            with pytest.raises(ServersUnreachable, match="did not answer within 2 s"):
                await servers.tools()
            begun = time.monotonic()
            for _ in range(2):
                with pytest.raises(ServersUnreachable, match=r"failed before and has not answered within 0\.1 s"):
                    await servers.tools()
            assert time.monotonic() - begun < 1.5

    run(main())


def test_a_call_to_a_removed_server_is_an_error_result_and_starts_nothing():
    async def main():
        async with connected(raw=raw()) as servers:
            tool = (await servers.tools())[0]
            await servers.remove("raw")
            request = ToolCall("call-1", "echo", {"text": "x"})
            answer = await call_tool(tool, request, context(request))
            assert answer.text == "echo cannot be called: the server 'raw' was disconnected."

    run(main())


def test_closed_servers_can_be_connected_again():
    async def main():
        async with connected(raw=raw()) as servers:
            await servers.tools()
            await servers.aclose()
            await servers.aclose()
            assert state(servers).state == "stopped"
            assert (await call(servers, "echo", text="back")).text == "back"

    run(main())


def test_closing_leaves_no_process_not_even_one_that_refuses():
    async def main():
        async with connected(a=raw("stubborn", "spawn"), b=raw("stubborn"), c=raw()) as servers:
            tools = {(tool.definition.server, tool.name): tool for tool in await servers.tools()}
            pids = []
            for server in "abc":
                request = ToolCall("call-1", f"{server}__pid", {})
                pids.append(int((await call_tool(tools[server, request.name], request, context(request))).text))
            pids.append(int(state(servers, "a").stderr.removeprefix("child ")))
            assert all(is_alive(pid) for pid in pids)
            begun = time.monotonic()
            await servers.aclose()
            assert time.monotonic() - begun < 5
            assert are_gone(pids)

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the environment of a process")
def test_closing_ends_a_process_that_left_the_group_of_its_server():
    async def main():
        async with connected(raw=raw("spawn", "daemon")) as servers:
            await servers.tools()
            child = int(state(servers).stderr.removeprefix("child "))
            assert os.getsid(child) == child
            await servers.aclose()
            assert are_gone([child])

    run(main())


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


def test_after_a_kill_of_this_process_no_server_survives_not_even_one_that_refuses():
    program = [sys.executable, "-c", KILLED]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    server, child = map(int, ended.stdout.split())
    assert are_gone([server, child])


def test_a_program_whose_closing_is_cut_short_is_gone_all_the_same(monkeypatch):
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 0.05)

    async def main():
        async with connected(raw=raw("stubborn")) as servers:
            pid = int((await call(servers, "pid")).text)
            await servers.aclose()
            assert are_gone([pid])

    run(main())


def test_waiting_calls_end_when_their_server_is_closed():
    async def main():
        async with connected(raw=raw()) as servers:
            begun = asyncio.Event()
            waiting = asyncio.create_task(call(servers, "wait", on_progress=lambda *_: begun.set()))
            await begun.wait()
            await servers.aclose()
            assert "went away during wait" in (await waiting).text

    run(main())


def test_closing_while_connecting_ends_the_attempt():
    async def main():
        async with connected(raw=raw("silent")) as servers:
            listing = asyncio.create_task(servers.tools())
            while state(servers).state != "starting":  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0)
            await servers.aclose()
            with pytest.raises(ServerError, match="disconnected"):
                await listing

    run(main())


def test_what_is_listed_without_connecting_is_that_of_the_servers_that_are_connected():
    async def main():
        async with contextlib.aclosing(McpServers({"raw": raw()})) as servers:
            assert await servers.listed() == ([], ["raw"])
            assert state(servers).state == "stopped"
            await servers.tools()
            tools, left = await servers.listed()
            assert "echo" in [tool.name for tool in tools]
            assert left == []

    run(main())


def make_in_memory():
    return McpServers(config.read({"workshop": workshop_server.make()}))


@pytest.mark.parametrize(
    "make", [lambda: McpServers({"workshop": workshop()}), make_in_memory], ids=["stdio", "memory"]
)
def test_a_server_of_the_mcp_library_works_in_every_way(make):
    async def main():
        servers = make()
        try:
            async with asyncio.timeout(PATIENCE):
                await use_all_of(servers)
        finally:
            await servers.aclose()

    run(main())


def test_a_server_object_of_fastmcp_works_in_memory():
    fastmcp = pytest.importorskip("fastmcp")
    entered = []

    @contextlib.asynccontextmanager
    async def lifespan(server):
        entered.append(server.name)
        yield {}

    shop = fastmcp.FastMCP("shop", lifespan=lifespan)

    @shop.tool
    def price(items: list[str]) -> dict[str, float]:
        """Price some items."""
        return {"total": 2.5 * len(items)}

    async def main():
        async with connected(**config.read(shop)) as servers:
            assert (await call(servers, "price", items=["a", "b"])).structured == {"total": 5.0}
            assert state(servers, "shop").title.startswith("shop")

    run(main())
    assert entered == ["shop"]


async def use_all_of(servers):
    assert (await call(servers, "echo", text="hello")).text == "hello"
    assert (await call(servers, "add", a=1, b=2)).structured == {"sum": 3}
    assert (await call(servers, "picture")).content == (Media("image/png", workshop_server.PIXEL),)
    assert (await call(servers, "papers")).content == (
        Resource("memo://one", media_type="text/plain", text="remember"),
        Resource("memo://two", "two", "text/plain"),
    )
    assert (await call(servers, "complain")).status == "error"
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


def test_importing_this_package_imports_no_mcp():
    code = "import sys, agentmagic.tools.mcp; print([m for m in ('mcp', 'anyio', 'httpx2') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.client.streamable_http", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentmagic\[mcp\]'"):
        servers_module.warm()
