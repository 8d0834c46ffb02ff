"""How the tests of this folder start servers and call their tools."""

import asyncio
import contextlib
import functools
import inspect
import os
import select
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import psutil

from agentmagic.messages import ToolCall, ToolResult
from agentmagic.tools.base import ToolContext
from agentmagic.tools.calling import call_tool
from agentmagic.tools.mcp import McpServers
from agentmagic.tools.mcp.config import ServerConfig, Stdio
from agentmagic.tools.mcp.pending import ServerHost

SERVERS = Path(__file__).parent / "servers"
PATIENCE = 30.0
"""Seconds after which a test has hung."""


def raw(*wrong: str, connect_timeout: float = 20, env: Mapping[str, str] | None = None) -> ServerConfig:
    program = Stdio(sys.executable, ("-S", str(SERVERS / "raw.py"), *wrong), env or {})
    return ServerConfig(program, connect_timeout=connect_timeout)


def workshop() -> ServerConfig:
    return ServerConfig(Stdio(sys.executable, (str(SERVERS / "workshop.py"),)))


@contextlib.asynccontextmanager
async def connected(*, host: ServerHost | None = None, **configs: ServerConfig) -> AsyncIterator[McpServers]:
    servers = McpServers(configs, host=host)
    try:
        async with asyncio.timeout(PATIENCE):
            yield servers
    finally:
        await servers.aclose()


Scene = Callable[..., Awaitable[None]]


def played(play: Callable[[Scene], None]) -> Callable[[Scene], Callable[..., None]]:
    """Make a test of an async function: `play` calls it with what stands before its "/"; the others are fixtures."""

    def decorate(scene: Scene) -> Callable[..., None]:
        @functools.wraps(scene)
        def test(**fixtures: Any) -> None:
            play(functools.partial(scene, **fixtures))

        given = inspect.signature(scene).parameters.values()
        names = [one for one in given if one.kind is not one.POSITIONAL_ONLY]
        test.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
        return test

    return decorate


def with_servers(**configs: ServerConfig) -> Callable[[Scene], Callable[..., None]]:
    """Make a test of an async function that gets servers as its first parameter."""

    async def main(scene: Scene) -> None:
        async with connected(**configs) as servers:
            await scene(servers)

    return played(lambda scene: asyncio.run(main(scene)))


Ask = Callable[[str], Awaitable[str]]


async def _nobody(question: str) -> str:
    raise AssertionError(question)


def _unheard(*_: object) -> None:
    pass


def context(call: ToolCall, on_progress: Callable[..., None] = _unheard, ask: Ask = _nobody) -> ToolContext:
    return ToolContext(call, ask=ask, progress=on_progress)


async def call(servers: McpServers, name: str, *, on_progress=_unheard, ask: Ask = _nobody, **arguments) -> ToolResult:
    tools = {tool.name: tool for tool in await servers.tools()}
    request = ToolCall("call-1", name, arguments)
    return await call_tool(tools[name], request, context(request, on_progress, ask))


def answering(*answers: object) -> tuple[Ask, list[str]]:
    """Make a person of answers, or of errors to raise, and the list of what the person is asked."""
    left, asked = list(answers), []

    async def ask(question: str) -> str:
        asked.append(question)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    return ask, asked


def is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # there os.kill ends the process
        return psutil.pid_exists(pid)
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if sys.platform == "linux" else ""
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in ("Z", "X")  # a zombie, or one that its parent is just reaping


def are_gone(pids: Collection[int]) -> bool:
    """Whether processes that were killed have ended; a busy machine takes a moment over it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(pid)
            select.select([ended], [], [], PATIENCE)
            os.close(ended)
    return not any(map(is_alive, pids))
