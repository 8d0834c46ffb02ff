"""The bridge: an MCP client on stdio, `python -m agentmagic bridge`, and real servers in processes of their own."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ElicitResult

from agentmagic.serve.bridge.envelope import LARGEST

ROOT = Path(__file__).parents[2]
BRIDGE = [sys.executable, "-m", "agentmagic", "bridge"]
ERAS = {"legacy": "2025-11-25", "auto": "2026-07-28"}  # how a client connects, and at which version


class World:
    """The kernels of a user, and the clients that come through a bridge."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")}
        self.processes: list[subprocess.Popen] = []
        self.heard: asyncio.Queue = asyncio.Queue()

    def kernel(self, notebook="analysis.ipynb", place="work", token=""):
        """Start a kernel, and return its process once it is served."""
        folder = self.folder / place
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.serve.kernel", notebook, str(folder), *([token] if token else [])]
        process = self.start(command, ROOT, stderr=subprocess.DEVNULL)
        assert process.stdout.readline() == b"ready\n"
        return process

    def start(self, command, place, **options):
        process = subprocess.Popen(
            command, cwd=place, env=os.environ | self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )
        self.processes.append(process)
        return process

    def bridge(self):
        """Start a bridge whose pipes the test holds."""
        return self.start(BRIDGE, self.folder, stderr=subprocess.DEVNULL)

    def end(self, *processes):
        for process in processes:
            process.kill()
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                with suppress(BrokenPipeError):
                    stream.close()

    def parameters(self, *arguments, place="."):
        env, cwd = self.env, self.folder / place
        return StdioServerParameters(command=BRIDGE[0], args=[*BRIDGE[1:], *arguments], env=env, cwd=cwd)

    @asynccontextmanager
    async def client(self, *arguments, place=".", mode="legacy", **options):
        """A client through a bridge; what it hears without asking is in `heard`."""
        self.heard = asyncio.Queue()

        async def hear(message):
            self.heard.put_nowait(message)

        async with asyncio.timeout(30):
            async with Client(
                self.parameters(*arguments, place=place), mode=mode, message_handler=hear, **options
            ) as client:
                yield client

    async def hears(self, method, words=""):
        """Wait for a notification."""
        while True:
            message = await self.heard.get()
            if getattr(message, "method", "") == method and words in str(message.params):
                return


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.end(*made.processes)


def text(result):
    return result.content[0].text


async def joined(client):
    """The process of the kernel that a client reaches."""
    return int(text(await client.call_tool("process")))


def line(method, number=None, **params):
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if number is None else message | {"id": number}).encode() + b"\n"


HELLO = line(
    "initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
)


@pytest.mark.parametrize("mode", ERAS)
def test_a_client_reaches_the_only_kernel(world, mode):
    process = world.kernel()
    seen = []

    async def progress(done, total, message):
        seen.append(message)

    async def choose(context, params):
        return ElicitResult(action="accept", content={"city": "Rome"})

    async def main():
        async with world.client(mode=mode, elicitation_callback=choose) as client:
            assert "process" in [tool.name for tool in (await client.list_tools()).tools]
            assert await joined(client) == process.pid
            assert text(await client.call_tool("steps", progress_callback=progress)) == "done"
            assert text(await client.call_tool("book")) == "accept Rome"
            assert (await client.read_resource("memo://one")).contents[0].text == "remember the milk"
            return client.instructions, client.protocol_version

    assert asyncio.run(main()) == ("Ask the notebook.", ERAS[mode])
    assert seen == ["step 0", "step 1", "step 2"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.slow
def test_a_cancelled_call_is_cancelled_in_the_kernel_and_a_large_result_passes(world, mode):
    world.kernel()

    async def main():
        async with world.client(mode=mode) as client:
            begun = asyncio.Event()

            async def progress(*_):
                begun.set()

            call = asyncio.create_task(client.call_tool("wait", progress_callback=progress))
            await begun.wait()
            call.cancel()
            assert text(await client.call_tool("wait_for_cancel")) == "cancelled"
            assert len(text(await client.call_tool("big"))) == 2_500_000

    asyncio.run(main())


@pytest.mark.posix
@pytest.mark.slow
def test_a_call_in_a_kernel_that_dies_gets_an_error_once_and_the_next_kernel_is_joined(world):
    process = world.kernel()

    async def main():
        async with world.client() as client:
            assert await joined(client) == process.pid
            with pytest.raises(
                MCPError, match=r"^The kernel of analysis.ipynb has ended. Run %agent serve in it again.$"
            ):
                await client.call_tool("die")
            await world.hears("notifications/message", "has ended")
            with pytest.raises(MCPError, match=r"has ended. Run %agent serve"):
                await client.call_tool("process")
            assert (await client.list_tools()).tools == []
            second = world.kernel()
            await world.hears("notifications/message", "The kernel of analysis.ipynb is joined.")
            await world.hears("notifications/tools/list_changed")
            assert await joined(client) == second.pid

    asyncio.run(main())
    assert (world.folder / "work" / "notes").read_text() == "dies\n"


def close(world, process):
    """Do what `%agent serve stop` does to the file of a kernel."""
    (path,) = (world.folder / "state").rglob(f"{process.pid}-*.json")
    path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(("end", "fate"), [(World.end, "has ended"), (close, "is no longer served")])
def test_a_kernel_that_ends_between_calls_is_missed_and_another_notebook_is_not_joined(world, end, fate):
    first = world.kernel()

    async def main():
        async with world.client() as client:
            await joined(client)
            end(world, first)
            await world.hears("notifications/message", f"The kernel of analysis.ipynb {fate}. Run %agent serve")
            world.kernel("other.ipynb")
            with pytest.raises(MCPError, match=rf"analysis.ipynb {fate}"):
                await client.call_tool("process")
            second = world.kernel()
            await world.hears("notifications/tools/list_changed")
            assert await joined(client) == second.pid

    asyncio.run(main())


@pytest.mark.slow
def test_the_subscription_of_a_stateless_client_outlives_its_kernel(world):
    first = world.kernel()

    async def main():
        async with world.client(mode="auto") as client, client.listen(tools_list_changed=True) as changes:
            await joined(client)
            world.end(first)
            second = world.kernel()
            await anext(aiter(changes))
            assert await joined(client) == second.pid

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.slow)])
def test_without_a_kernel_the_bridge_says_what_to_do_and_joins_the_first_that_is_served(world, mode):
    async def main():
        async with world.client(mode=mode) as client:
            assert "No kernel is served. Run %agent serve in a notebook." in client.instructions
            assert (await client.list_tools()).tools == []
            assert (await client.list_resources()).resources == []
            with pytest.raises(MCPError, match=r"No kernel is served. Run %agent serve"):
                await client.call_tool("process")
            if mode == "legacy":
                process = world.kernel()
                await world.hears("notifications/tools/list_changed")
            else:
                async with client.listen(tools_list_changed=True) as changes:
                    process = world.kernel()
                    await anext(aiter(changes))
            assert await joined(client) == process.pid
            assert "process" in [tool.name for tool in (await client.list_tools()).tools]

    asyncio.run(main())


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.slow
def test_a_kernel_that_refuses_the_token_is_named_and_its_successor_joined(world, mode):
    first = world.kernel(token="another")

    async def main():
        async with world.client(mode=mode) as client:
            for _ in range(2):
                with pytest.raises(
                    MCPError, match=r"kernel of analysis.ipynb refused the token in its file. Run %agent"
                ):
                    await client.call_tool("process")
            world.end(first)
            second = world.kernel()
            if mode == "legacy":
                assert "refused the token" in client.instructions
                await world.hears("notifications/tools/list_changed")
                assert await joined(client) == second.pid

    asyncio.run(main())


@pytest.mark.slow
def test_several_kernels_are_told_apart_by_name_and_by_folder(world):
    one, other = world.kernel(place="one"), world.kernel("b.ipynb", place="two")

    async def main():
        async with world.client("b.ipynb") as client:
            assert await joined(client) == other.pid
        async with world.client(place="one") as client:
            assert await joined(client) == one.pid
        (world.folder / "three").mkdir()
        async with world.client(place="three") as client:
            for path in ("one/analysis.ipynb", "two/b.ipynb"):
                assert f"python -m agentmagic bridge {world.folder / path}" in client.instructions
            with pytest.raises(MCPError, match=r"2 kernels are served"):
                await client.call_tool("process")
            world.end(other)
            await world.hears("notifications/tools/list_changed")
            assert await joined(client) == one.pid

    asyncio.run(main())


def read(process, *keys):
    """The next message of a bridge that has one of these keys."""
    while True:
        message = json.loads(process.stdout.readline())
        if any(key in message for key in keys):
            return message


@pytest.mark.slow
def test_rubbish_is_dropped_and_a_client_that_closes_its_end_ends_the_bridge_at_once(world):
    world.kernel()
    bridge = world.bridge()
    rubbish = [
        (b"hello", None),
        (b"\xff\xfe\x00", None),
        (b"[" * 100_000, None),
        (b"[]", None),
        (b'{"jsonrpc": "2.0"}', None),
        (b'{"jsonrpc": "2.0", "id": 7, "method": 5}', 7),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": [1]}', "a"),
        (b'{"id": 8, "method": "ping", "params": {"x": "' + b"x" * LARGEST + b'"}}', 8),
    ]
    for sent, _ in rubbish:
        bridge.stdin.write(sent + b"\n")
    bridge.stdin.write(HELLO)
    bridge.stdin.flush()
    answers = [read(bridge, "error", "result") for _ in range(4)]
    assert [one["id"] for one in answers] == [7, "a", 8, 0]
    assert [one["error"]["message"].split(" was")[0] for one in answers[:3]] == [
        *["A line that is not an MCP message"] * 2,
        f"A message over {LARGEST} bytes",
    ]
    assert answers[3]["result"]["protocolVersion"] == "2025-06-18"
    bridge.stdin.write(line("notifications/initialized"))
    bridge.stdin.write(line("tools/call", 1, name="wait", arguments={}, _meta={"progressToken": "p"}))
    bridge.stdin.flush()
    assert read(bridge, "method")["params"]["message"] == "begun"
    bridge.stdin.close()
    assert bridge.wait(timeout=5) == 0
    assert bridge.stdout.read() == b""


@pytest.mark.slow
@pytest.mark.parametrize("leave", [lambda bridge: bridge.stdin.close(), lambda bridge: bridge.terminate()])
def test_a_client_that_leaves_without_reading_its_answers_ends_the_bridge(world, leave):
    world.kernel()
    bridge = world.bridge()
    calls = [line("tools/call", number, name="big", arguments={}) for number in range(1, 4)]
    for sent in (HELLO, line("notifications/initialized"), *calls):
        bridge.stdin.write(sent)
    bridge.stdin.flush()
    assert bridge.stdout.readline()
    assert bridge.stdout.peek(1)  # an answer that fills the pipe has begun
    leave(bridge)
    assert bridge.wait(timeout=5) == 0


@pytest.mark.slow
def test_a_client_that_begins_anew_and_a_session_that_the_kernel_has_closed_get_a_new_session(world):
    process = world.kernel()
    bridge = world.bridge()

    def call(tool, number):
        bridge.stdin.write(line("tools/call", number, name=tool, arguments={}))
        bridge.stdin.flush()
        return read(bridge, "error", "result")

    for _ in range(2):
        bridge.stdin.write(HELLO)
        bridge.stdin.flush()
        assert read(bridge, "result")["id"] == 0
        bridge.stdin.write(line("notifications/initialized"))
        assert call("process", 1)["result"]["content"][0]["text"] == str(process.pid)
    call("forget", 2)
    assert "had closed the session of this client" in call("process", 3)["error"]["message"]
    while read(bridge, "method")["method"] != "notifications/tools/list_changed":
        pass
    assert call("process", 4)["result"]["content"][0]["text"] == str(process.pid)


@pytest.mark.slow
def test_each_call_that_is_under_way_when_a_kernel_dies_gets_one_error(world):
    process = world.kernel()
    bridge = world.bridge()
    waits = [
        line("tools/call", number, name="wait", arguments={}, _meta={"progressToken": number})
        for number in range(1, 31)
    ]
    for sent in (HELLO, line("notifications/initialized"), *waits):
        bridge.stdin.write(sent)
    bridge.stdin.flush()
    for _ in waits:
        assert read(bridge, "method")["params"]["message"] == "begun"
    world.end(process)
    bridge.stdin.write(line("notifications/cancelled", requestId=1) + line("ping", "last"))
    bridge.stdin.flush()
    answered = {}
    while not answered.keys() >= {"last", *range(2, 31)}:
        answer = read(bridge, "error", "result")
        assert answer["id"] not in answered
        answered[answer["id"]] = answer.get("error", {}).get("message")
    ended = "The kernel of analysis.ipynb has ended. Run %agent serve in it again."
    assert {number: answered[number] for number in range(2, 31)} == dict.fromkeys(range(2, 31), ended)


@pytest.mark.slow
def test_the_question_of_a_kernel_that_dies_is_withdrawn_and_its_late_answer_reaches_no_other(world):
    first = world.kernel()
    bridge = world.bridge()
    hello = HELLO.replace(b'"capabilities": {}', b'"capabilities": {"elicitation": {}}')
    book = {"name": "book", "arguments": {}}
    for sent in (hello, line("notifications/initialized"), line("tools/call", 1, **book)):
        bridge.stdin.write(sent)
    bridge.stdin.flush()
    assert read(bridge, "result")["id"] == 0
    question = read(bridge, "id")
    assert question["method"] == "elicitation/create"
    world.end(first)
    assert read(bridge, "error")["id"] == 1
    withdrawn = read(bridge, "method")
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question["id"])
    world.kernel()
    while read(bridge, "method")["method"] != "notifications/tools/list_changed":
        pass
    bridge.stdin.write(line("tools/call", 2, **book))
    bridge.stdin.flush()
    again = read(bridge, "id")
    for number, city in ((question["id"], "Paris"), (again["id"], "Rome")):
        answer = {"jsonrpc": "2.0", "id": number, "result": {"action": "accept", "content": {"city": city}}}
        bridge.stdin.write(json.dumps(answer).encode() + b"\n")
    bridge.stdin.flush()
    assert read(bridge, "result")["result"]["content"][0]["text"] == "accept Rome"


@pytest.mark.posix
@pytest.mark.slow
def test_the_client_of_another_library_comes_through(world):
    fastmcp = pytest.importorskip("fastmcp")
    process = world.kernel()

    async def main():
        entry = {"command": BRIDGE[0], "args": BRIDGE[1:], "env": world.env, "cwd": str(world.folder)}
        async with asyncio.timeout(30), fastmcp.Client({"mcpServers": {"notebook": entry}}) as client:
            assert text(await client.call_tool("process")) == str(process.pid)
            with pytest.raises(Exception, match=r"The kernel of analysis.ipynb has ended"):
                await client.call_tool("die")

    asyncio.run(main())
