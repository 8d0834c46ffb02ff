"""A server's process: in a session of its own, with an end that is noticed, and gone when it is to be gone."""

import asyncio
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from contextlib import suppress
from pathlib import Path

from agentmagic.tools.mcp.config import Stdio

EXIT_GRACE = 1.0
"""Seconds a server has to end after its input was closed."""

TERM_GRACE = 0.5
"""Seconds it has after SIGTERM, before SIGKILL.

Both must have passed before the kernel itself is terminated: Jupyter gives it 2.5 seconds to shut down.
"""

_BUFFER = 64 * 1024


class _Protocol(SubprocessStreamProtocol):
    """Notes when the process ends; asyncio's `Process.wait` waits also for whoever else holds its pipes open."""

    def __init__(self) -> None:
        super().__init__(limit=_BUFFER, loop=asyncio.get_running_loop())
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.ended.set()


class Child:
    """A process and its three pipes."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        if protocol.stdin is None or protocol.stdout is None or protocol.stderr is None:
            raise RuntimeError("the process was started without a pipe")
        self.stdin, self.stdout, self.stderr = protocol.stdin, protocol.stdout, protocol.stderr
        self._transport = transport
        self._ended = protocol.ended

    async def wait(self, patience: float | None = None) -> bool:
        """Wait until it has ended; return whether it has, after `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End it: close its input, then SIGTERM, then SIGKILL, to it and to all it started in its session."""
        self.stdin.close()
        try:
            if not await self.wait(EXIT_GRACE):
                self._signal(kill=False)
                await self.wait(TERM_GRACE)
        finally:
            self._signal(kill=True)  # also where a cancel cut the grace short, and for what the server left behind

    async def close(self) -> None:
        """Wait until it is gone and let go of its pipes, which a process that left the session may hold open."""
        await self.wait(TERM_GRACE)
        self._transport.close()

    def _signal(self, *, kill: bool) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._transport.kill()
            else:  # the group has the number of its leader, which began the session
                os.killpg(self._transport.get_pid(), signal.SIGKILL if kill else signal.SIGTERM)


async def start(program: Stdio) -> Child:
    """Start a program. Raises OSError or ValueError where it cannot be started."""
    from mcp.client.stdio import get_default_environment

    if program.cwd is not None and not program.cwd.is_dir():
        raise NotADirectoryError(f"its folder {program.cwd} does not exist")
    environment = get_default_environment() | dict(program.env)
    # Commands installed beside this Python are found too: a kernel's PATH often lacks its own environment.
    places = os.pathsep.join((environment.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    transport, protocol = await asyncio.get_running_loop().subprocess_exec(
        _Protocol,
        shutil.which(program.command, path=places) or program.command,
        *program.args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment,
        cwd=program.cwd,
        start_new_session=True,
    )
    return Child(transport, protocol)
