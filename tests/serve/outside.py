"""An outside client in a process of its own, as an agent in a terminal is one: fastmcp's, before a served kernel.

`python -m tests.serve.outside NAME FOLDER` joins the kernel that is served in a folder. It takes calls line by line,
as JSON: `["run_python", {"code": "x = 1"}]`; a name alone waits for nothing. It prints, as JSON, "joined", what it is
told meanwhile, and each result.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Self

ROOT = Path(__file__).parents[2]
TIMEOUT = 30.0
"""Seconds that the slowest answer may take, on a machine that does other work."""


class Outside:
    """The client from the side of a test: makes calls, and hears what it is told."""

    def __init__(self, name: str, folder: Path, env: dict[str, str] | None = None) -> None:
        argv = [sys.executable, "-m", "tests.serve.outside", name, str(folder)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True)
        self._lines: Queue[list[Any]] = Queue()
        self.told: list[str] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._next() == ["joined"]

    def start(self, tool: str, **arguments: Any) -> None:
        """Make a call, and return at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([tool, arguments]) + "\n")
        self._process.stdin.flush()

    def result(self) -> tuple[bool, str]:
        """Wait for the result of a call: whether it is an error, and its text."""
        while (line := self._next())[0] != "result":
            self.told.append(line[1])
        return line[1], line[2]

    def call(self, tool: str, **arguments: Any) -> tuple[bool, str]:
        """Make a call, and wait for its result."""
        self.start(tool, **arguments)
        return self.result()

    def hears(self, words: str) -> None:
        """Wait until it is told something of the call under way."""
        while not any(words in one for one in self.told):
            line = self._next()
            assert line[0] == "told", line
            self.told.append(line[1])

    def leave(self) -> None:
        """End the process, as a terminal that is closed does."""
        self._process.kill()
        self._reader.join()
        with self._process:  # closes its pipes
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _next(self) -> list[Any]:
        try:
            return self._lines.get(timeout=TIMEOUT)
        except Empty:
            raise TimeoutError(f"the client heard nothing for {TIMEOUT} s; before: {self.told}") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))


def say(*words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def main(name: str, folder: str) -> None:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport
    from mcp.types import Implementation

    from agentmagic.serve import kernels

    async def tell(_done: float, _total: float | None, words: str | None) -> None:
        say("told", words or "")

    served = next(one for one in reversed(kernels.find_all()) if Path(one.folder) == Path(folder))
    transport = StreamableHttpTransport(served.url, headers={"Authorization": f"Bearer {served.token}"})
    info = Implementation(name=name, version="1")
    async with Client(transport, client_info=info, progress_handler=tell, timeout=600) as client:
        say("joined")
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            text = "\n".join(getattr(part, "text", part.type) for part in result.content)
            say("result", result.is_error, text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
