"""Servers made by others, run as their users run them."""

import asyncio
import json

import pytest

from agentmagic.messages import Media, Resource, ToolCall
from agentmagic.tools.base import call_tool
from agentmagic.tools.mcp import McpServers, config
from agentmagic.tools.mcp.pending import Host, SamplingAnswer
from tests.tools.mcp import real
from tests.tools.mcp.calling import PATIENCE, call, connected, context
from tests.tools.mcp.real import of_npm, of_pypi

pytestmark = pytest.mark.slow


def with_servers(scene, *, host=None, **entries):
    async def main():
        servers = McpServers(config.read(entries), host=host)
        try:
            async with asyncio.timeout(2 * PATIENCE):
                await scene(servers)
        finally:
            await servers.aclose()

    asyncio.run(main())


async def answering(servers, name, *answers, **arguments):
    """Call a tool and answer what it asks."""
    left = list(answers)

    async def ask(question):
        return left.pop(0)

    tools = {tool.name: tool for tool in await servers.tools()}
    request = ToolCall("call-1", name, arguments)
    through = context(request)
    through._ask = ask
    return await call_tool(tools[name], request, through)


@of_pypi("mcp-server-time")
def test_the_time_server_tells_the_time():
    async def scene(servers):
        answer = await call(
            servers, "convert_time", source_timezone="Etc/UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert "21:00" in answer.text
        wrong = await call(servers, "get_current_time", timezone="Nowhere/Atlantis")
        assert wrong.status == "error"

    with_servers(scene, time="mcp-server-time")


@of_pypi("mcp-server-time")
def test_two_servers_with_the_same_tools_are_told_apart_by_their_names():
    async def scene(servers):
        names = [tool.name for tool in await servers.tools()]
        assert names == [f"{place}__{tool}" for place in ("a", "b") for tool in ("get_current_time", "convert_time")]
        answers = await asyncio.gather(
            *(call(servers, f"{place}__get_current_time", timezone="Etc/UTC") for place in "ab")
        )
        assert all("UTC" in answer.text for answer in answers)

    with_servers(scene, a="mcp-server-time", b="mcp-server-time")


@of_pypi("mcp-server-git")
def test_the_git_server_reads_a_repository(tmp_path):
    folder = str(real.repository(tmp_path))

    async def scene(servers):
        status = await call(servers, "git_status", repo_path=folder)
        assert "note.txt" in status.text
        assert (await call(servers, "git_add", repo_path=folder, files=["note.txt"])).status == "ok"
        assert "+hello" in (await call(servers, "git_diff_staged", repo_path=folder)).text
        assert (await call(servers, "git_status", repo_path=str(tmp_path / "none"))).status == "error"

    with_servers(scene, git="mcp-server-git")


@of_pypi("mcp-server-fetch")
def test_the_fetch_server_reads_a_page():
    async def scene(servers):
        answer = await call(servers, "fetch", url=url, raw=True)
        assert "All is well." in answer.text
        (prompt,) = await servers.prompts()
        assert (prompt.name, [one.name for one in prompt.arguments]) == ("fetch", ["url"])

    with real.a_page() as url:
        with_servers(scene, fetch="mcp-server-fetch --allow-private-ips")


@of_pypi("fastmcp")
def test_a_server_made_with_fastmcp_works(tmp_path):
    async def scene(servers):
        answer = await call(servers, "price", items=["a", "b"])
        assert answer.structured == {"total": 5.0}
        wrong = await call(servers, "price", items="a")
        assert (wrong.status, "do not fit" in wrong.text) == ("error", True)

    with_servers(scene, shop=f"fastmcp run --no-banner {real.shop(tmp_path)}")


@of_npm("filesystem")
def test_the_filesystem_server_works_end_to_end(tmp_path):
    tmp_path = tmp_path.resolve()
    entry = real.entry(real.npm("filesystem", "${workspaceFolder}"), allow=["read_*", "list_*"])

    async def main():
        async with connected(**config.read({"files": entry}, workspace=tmp_path)) as servers:
            tools = {tool.name: tool for tool in await servers.tools()}
            assert servers.servers[0].left_out == {}
            assert (tools["read_text_file"].ask, tools["write_file"].ask) == (False, True)
            written = await call(servers, "write_file", path=str(tmp_path / "note.txt"), content="grüße\n")
            assert written.status == "ok"
            assert (tmp_path / "note.txt").read_text() == "grüße\n"
            read = await call(servers, "read_text_file", path=str(tmp_path / "note.txt"))
            assert read.text == "grüße\n"
            listed = await call(servers, "list_directory", path=str(tmp_path))
            assert "[FILE] note.txt" in listed.text
            outside = await call(servers, "read_text_file", path="/etc/hostname")
            assert (outside.status, "outside allowed directories" in outside.text) == ("error", True)

    asyncio.run(main())


@of_npm("memory")
def test_the_memory_server_remembers(tmp_path):
    async def scene(servers):
        ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
        assert (await call(servers, "create_entities", entities=[ada])).status == "ok"
        assert "likes engines" in (await call(servers, "search_nodes", query="Ada")).text
        await servers.restart("memory")
        assert "likes engines" in (await call(servers, "read_graph")).text

    environment = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}
    with_servers(scene, memory=real.entry(real.npm("memory"), env=environment))


@of_npm("sequential-thinking")
def test_the_thinking_server_takes_its_large_schema():
    async def scene(servers):
        thought = {"thought": "first", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
        answer = await call(servers, "sequentialthinking", **thought)
        assert json.loads(answer.text)["thoughtNumber"] == 1

    with_servers(scene, think=real.entry(real.npm("sequential-thinking")))


async def use_everything(servers):
    tools = {tool.name for tool in await servers.tools()}
    assert {"echo", "get-sum", "trigger-elicitation-request", "trigger-sampling-request"} <= tools
    assert servers.get("everything").left_out == {}
    assert (await call(servers, "echo", message="hello")).text == "Echo: hello"
    assert "5" in (await call(servers, "get-sum", a=2, b=3)).text
    image = await call(servers, "get-tiny-image")
    assert any(isinstance(part, Media) and part.media_type == "image/png" for part in image.content)
    links = await call(servers, "get-resource-links", count=2)
    assert sum(isinstance(part, Resource) for part in links.content) == 2
    weather = await call(servers, "get-structured-content", location="New York")
    assert set(weather.structured) == {"temperature", "conditions", "humidity"}
    told = []
    await call(
        servers, "trigger-long-running-operation", duration=0.2, steps=4, on_progress=lambda *it: told.append(it)
    )
    assert told[-1][1:3] == (4.0, 4.0)


@of_npm("everything")
def test_the_everything_server_works_over_stdio(tmp_path):
    async def complete(request, _call):
        return SamplingAnswer("forty-two", "a-model")

    async def scene(servers):
        await use_everything(servers)
        assert tmp_path.as_uri() in (await call(servers, "get-roots-list")).text
        form = await answering(servers, "trigger-elicitation-request", "Ada", "y", *[""] * 20)
        assert '"name": "Ada"' in form.text
        sampled = await answering(servers, "trigger-sampling-request", "y", prompt="why?", maxTokens=20)
        assert "forty-two" in sampled.text
        link = {"url": "https://example.org/x", "message": "Sign in"}
        assert '"accept"' in (await answering(servers, "trigger-url-elicitation", "y", **link)).text
        demanded = await answering(servers, "trigger-url-elicitation", "y", **link, errorPath=True)
        assert demanded.text.endswith("The user agreed to visit it; call again.")
        (message,) = await servers.prompt("everything", "args-prompt", {"city": "Rome"})
        assert message.text == "What's weather in Rome?"
        assert any(one.template for one in await servers.resources())
        (blob,) = await servers.read("everything", "demo://resource/dynamic/blob/2")
        assert blob.data.startswith(b"Resource 2")
        assert servers.logs("everything")

    with_servers(scene, host=Host(complete), everything=real.entry(real.npm("everything"), roots=[str(tmp_path)]))


@of_npm("everything")
def test_the_everything_server_works_over_http():
    async def complete(request, _call):
        return SamplingAnswer("forty-two", "a-model")

    with real.everything_over_http() as url:
        with_servers(use_everything, host=Host(complete), everything=url)
