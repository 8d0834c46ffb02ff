"""Servers made by others, run as their users run them."""

import asyncio
import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentmagic.tools.mcp import config
from tests.tools.mcp.calling import call, connected

NPM = os.environ.get("AGENTMAGIC_NPM", "")
FILESYSTEM = Path(NPM) / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"


@pytest.mark.skipif(find_spec("mcp_server_time") is None, reason="mcp-server-time is not installed")
def test_the_time_server_tells_the_time():
    async def main():
        async with connected(**config.read(["mcp-server-time"])) as servers:
            answer = await call(
                servers, "convert_time", source_timezone="Etc/UTC", time="12:00", target_timezone="Asia/Tokyo"
            )
            assert "21:00" in answer.text
            wrong = await call(servers, "get_current_time", timezone="Nowhere/Atlantis")
            assert wrong.status == "error"

    asyncio.run(main())


@pytest.mark.skipif(not NPM or not FILESYSTEM.is_file(), reason="AGENTMAGIC_NPM names no folder with server-filesystem")
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_filesystem_server_works_end_to_end(tmp_path):
    tmp_path = tmp_path.resolve()
    configuration = tmp_path / ".mcp.json"
    entry = {"command": "node", "args": [str(FILESYSTEM), "${workspaceFolder}"], "allow": ["read_*", "list_*"]}
    configuration.write_text(json.dumps({"mcpServers": {"files": entry}}))

    async def main():
        async with connected(**config.read(configuration)) as servers:
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
