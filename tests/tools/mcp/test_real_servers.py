"""Servers made by others, run as their users run them."""

import asyncio
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentmagic.messages import Media, Resource, ToolCall
from agentmagic.tools.base import call_tool
from agentmagic.tools.mcp import McpServers, config
from agentmagic.tools.mcp.host import Sampled, Typed
from tests.tools.mcp.calling import PATIENCE, call, connected, context

NPM = Path(os.environ.get("AGENTMAGIC_NPM") or "nowhere")
PLACES = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))


def script(name):
    return NPM / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"


def of_npm(name):
    there = script(name).is_file() and shutil.which("node")
    return pytest.mark.skipif(not there, reason=f"AGENTMAGIC_NPM names no folder with server-{name}, or no node")


def of_pypi(name):
    return pytest.mark.skipif(not shutil.which(name, path=PLACES), reason=f"{name} is not installed")


def npm_entry(name, *args, **more):
    return {"command": "node", "args": [str(script(name)), *args], **more}


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
    git = functools.partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True)
    git(["git", "init", "-q"])
    (tmp_path / "note.txt").write_text("hello\n")

    async def scene(servers):
        status = await call(servers, "git_status", repo_path=str(tmp_path))
        assert "note.txt" in status.text
        assert (await call(servers, "git_add", repo_path=str(tmp_path), files=["note.txt"])).status == "ok"
        assert "+hello" in (await call(servers, "git_diff_staged", repo_path=str(tmp_path))).text
        assert (await call(servers, "git_status", repo_path=str(tmp_path / "none"))).status == "error"

    with_servers(scene, git="mcp-server-git")


class Page(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        body = b"User-agent: *\nAllow: /\n" if self.path == "/robots.txt" else b"<h1>News</h1><p>All is well.</p>"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain" if self.path == "/robots.txt" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@of_pypi("mcp-server-fetch")
def test_the_fetch_server_reads_a_page():
    async def scene(servers):
        answer = await call(servers, "fetch", url=f"http://127.0.0.1:{web.server_port}/", raw=True)
        assert "All is well." in answer.text
        (prompt,) = await servers.prompts()
        assert (prompt.name, [one.name for one in prompt.arguments]) == ("fetch", ["url"])

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        try:
            environment = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
            with_servers(
                scene, fetch={"command": "mcp-server-fetch", "args": ["--allow-private-ips"], "env": environment}
            )
        finally:
            web.shutdown()
            thread.join()


@of_pypi("fastmcp")
def test_a_server_made_with_fastmcp_works(tmp_path):
    program = tmp_path / "shop.py"
    program.write_text(
        "from fastmcp import FastMCP\n\nmcp = FastMCP('shop')\n\n\n"
        "@mcp.tool\ndef price(items: list[str], discount: float = 0.0) -> dict[str, float]:\n"
        "    '''Price some items.'''\n    return {'total': 2.5 * len(items) * (1 - discount)}\n"
    )

    async def scene(servers):
        answer = await call(servers, "price", items=["a", "b"])
        assert answer.structured == {"total": 5.0}
        wrong = await call(servers, "price", items="a")
        assert (wrong.status, "do not fit" in wrong.text) == ("error", True)

    with_servers(scene, shop={"command": "fastmcp", "args": ["run", "--no-banner", str(program)]})


@of_npm("filesystem")
def test_the_filesystem_server_works_end_to_end(tmp_path):
    tmp_path = tmp_path.resolve()
    entry = npm_entry("filesystem", "${workspaceFolder}", allow=["read_*", "list_*"])

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

    with_servers(scene, memory=npm_entry("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}))


@of_npm("sequential-thinking")
def test_the_thinking_server_takes_its_large_schema():
    async def scene(servers):
        thought = {"thought": "first", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
        answer = await call(servers, "sequentialthinking", **thought)
        assert json.loads(answer.text)["thoughtNumber"] == 1

    with_servers(scene, think=npm_entry("sequential-thinking"))


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
        return Sampled("forty-two", "a-model")

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

    with_servers(scene, host=Typed(complete), everything=npm_entry("everything", roots=[str(tmp_path)]))


@contextmanager
def everything_over_http():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = ["node", str(script("everything")), "streamableHttp"]
    environment = os.environ | {"PORT": str(port)}
    with subprocess.Popen(
        program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as one:
        assert "listening" in one.stderr.readline()
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            one.kill()


@of_npm("everything")
def test_the_everything_server_works_over_http():
    async def complete(request, _call):
        return Sampled("forty-two", "a-model")

    with everything_over_http() as url:
        with_servers(use_everything, host=Typed(complete), everything=url)
