"""The guardian: a small child process that ends the MCP servers of this process if this process is killed.

This file is also the guardian's program. The guardian reads "+PID MARK" for each server that has started, and "-PID"
for each server that has ended. When its input ends, this process is gone, and the guardian ends the servers that are
left. On Windows, a Job Object does this instead.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "AGENTMAGIC_SERVER"  # The environment variable that marks a server's processes, even those outside its group.
GRACE = 0.5  # Seconds from SIGTERM to SIGKILL.
ROUNDS = 3  # How many times marked processes are searched: each can start another just before it is killed.


class Guardian:
    """Starts the guardian process when the first MCP server starts, and tells it each server's process id and mark.

    The guardian ends the servers if this process is killed. A mark is a random text in the environment of all processes
    of a server.
    """

    def __init__(self) -> None:
        self._servers: dict[int, str] = {}
        self._pipe: int | None = None

    def watch(self, pid: int, mark: str) -> None:
        """Make the guardian process end the server with this process id if the current process is killed."""
        self._servers[pid] = mark
        if not self._send(f"+{pid} {mark}\n"):
            self._start()
            self._send("".join(f"+{pid} {mark}\n" for pid, mark in self._servers.items()))

    def release(self, pid: int) -> None:
        """Tell the guardian process that the server `pid` has ended, so that the guardian does not kill it later."""
        self._servers.pop(pid, None)
        self._send(f"-{pid}\n")

    def _send(self, lines: str) -> bool:
        """Send lines to the guardian process. Return whether that process is running."""
        try:
            return self._pipe is not None and os.write(self._pipe, lines.encode()) > 0
        except OSError:  # The guardian was killed.
            self._close()
            return False

    def _start(self) -> None:
        if sys.platform == "win32":
            return
        reading, self._pipe = os.pipe()
        silence = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        program = [sys.executable, "-I", "-S", __file__]
        # `setsid` gives the guardian its own process group: Jupyter kills the whole group of a kernel.
        actions = [(os.POSIX_SPAWN_DUP2, reading, 0), *silence]
        os.posix_spawn(sys.executable, program, os.environ, file_actions=actions, setsid=True)
        os.close(reading)
        os.register_at_fork(after_in_child=self._close)  # A forked child must not keep the pipe open.

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


guardian = Guardian()


def kill_marked(mark: str) -> None:
    """Kill the processes with this mark in their environment. They are found in /proc, so this works only on Linux."""
    for _ in range(ROUNDS):
        pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _is_marked(folder, mark)]
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return


def _is_marked(process: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # The process has ended, or belongs to another user.
        return False


def _end(servers: dict[int, str]) -> None:
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for pid in servers:
            with suppress(OSError):
                os.killpg(pid, kind)
        if kind == signal.SIGTERM and servers:
            time.sleep(GRACE)
    for mark in servers.values():
        kill_marked(mark)


def _main() -> None:
    servers: dict[int, str] = {}
    for line in sys.stdin:
        pid, _, mark = line[1:].strip().partition(" ")
        if line.startswith("+"):
            servers[int(pid)] = mark
        else:
            servers.pop(int(pid), None)
    _end(servers)


if __name__ == "__main__":
    _main()
