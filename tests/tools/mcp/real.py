"""Servers made by others: where they are, how they are started, and what they are given to work on."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentmagic.tools.mcp.guardian import guardian
from tests.providers.loopback import Exchange, Loopback, Received

NPM = Path(os.environ.get("AGENTMAGIC_NPM") or "nowhere")
PLACES = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))

SHOP = """
from fastmcp import FastMCP

mcp = FastMCP("shop")


@mcp.tool
def price(items: list[str], discount: float = 0.0) -> dict[str, float]:
    "Price some items."
    return {"total": 2.5 * len(items) * (1 - discount)}


if __name__ == "__main__":
    mcp.run(show_banner=False)
"""


def of_npm(*names: str) -> pytest.MarkDecorator:
    """Skip a test where the packages of these servers are missing."""
    there = shutil.which("node") and all(_script(name).is_file() for name in names)
    return pytest.mark.skipif(
        not there, reason=f"AGENTMAGIC_NPM names no folder with server-{', server-'.join(names)}, or no node"
    )


def of_pypi(name: str) -> pytest.MarkDecorator:
    """Skip a test where this program is missing."""
    return pytest.mark.skipif(not shutil.which(name, path=PLACES), reason=f"{name} is not installed")


def npm(name: str, *args: object) -> list[str]:
    """Return the command line of a server from npm."""
    return ["node", str(_script(name)), *map(str, args)]


def pypi(name: str, *args: object) -> list[str]:
    """Return the command line of a server that is installed beside this Python, for a kernel of another one too."""
    return [shutil.which(name, path=PLACES) or name, *map(str, args)]


def entry(command: Sequence[str], **more: object) -> dict[str, object]:
    """Write a command line as an entry of `mcpServers`."""
    return {"command": command[0], "args": list(command[1:]), **more}


def shop(folder: Path) -> Path:
    """Write a server that is made with fastmcp."""
    program = folder / "shop.py"
    program.write_text(SHOP)
    return program


def repository(folder: Path) -> Path:
    """Make a git repository with a file that is new in it."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True, capture_output=True)
    (folder / "note.txt").write_text("hello\n")
    return folder


class _Page(Loopback):
    def answer(self, received: Received) -> Exchange:
        if received.path == "/robots.txt":
            return Exchange("User-agent: *\nAllow: /\n", content_type="text/plain")
        return Exchange("<h1>News</h1><p>All is well.</p>", content_type="text/html")


@contextmanager
def a_page() -> Iterator[str]:
    """Serve a page that says "All is well."; yield its address."""
    with _Page([]) as web:
        yield f"{web.url}/"


@contextmanager
def everything_over_http() -> Iterator[str]:
    """Run npm's server-everything over streamable HTTP; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        npm("everything", "streamableHttp"),
        env=os.environ | {"PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        guardian.watch(process.pid, "everything")  # it reads no input, so it would outlive tests that are killed
        try:
            assert "listening" in process.stderr.readline()
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            guardian.release(process.pid)
            process.kill()


def _script(name: str) -> Path:
    return NPM / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
