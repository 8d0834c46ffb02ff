"""What the tests of served sessions share: a server that listens nowhere, a person at the notebook, clients."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from agentmagic import Session
from agentmagic.events import Event
from agentmagic.host import ScriptHost, ServedView
from agentmagic.messages import ToolResult
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.serve import kernels, serving
from agentmagic.serve.desk import Desk, Exchange
from agentmagic.testing import PATIENCE, Recorder
from tests.turns import hosted

if TYPE_CHECKING:
    from concurrent.futures import Future


class Pretended:
    """A server that opens desks and listens nowhere; `desks` has those that are open, by token."""

    url = "http://127.0.0.1:1/mcp"

    def __init__(self) -> None:
        self.desks: dict[str, Desk] = {}
        self._count = 0

    async def open(self, desk: Desk) -> str:
        self._count += 1
        token = f"token-{self._count}"
        self.desks[token] = desk
        return token

    async def close(self, token: str) -> None:
        self.desks.pop(token, None)

    @property
    def desk(self) -> Desk:
        """The one that was opened last."""
        return [*self.desks.values()][-1]


class Place(ServedView):
    """A cell in which someone makes an intent of each question; `answer` None leaves all of them open."""

    place = "analysis.ipynb", Path()

    def __init__(self, answer: Callable[[Event], object] | None, *, attended: bool) -> None:
        self.answer = answer
        self.runs: list[Run] = []
        self.seen = Recorder()
        self._attended = attended

    @property
    def attended(self) -> bool:
        return self._attended

    def begin(self, run: Run) -> None:
        self.runs.append(run)
        run.listen(self._feed)

    def show(self, *, recorded: bool) -> None:
        pass

    def close(self, why: str) -> None:
        pass

    def _feed(self, event: Event) -> None:
        if self.answer is not None and event.type in ("approval_asked", "question_asked"):
            intent = self.answer(event)
            if intent is not None:
                self.runs[-1].pass_on(intent)
        self.seen(event)


class Office(ScriptHost):
    """A host with someone in the cell that serves; `notebook` is the double of a notebook, if one is needed."""

    def __init__(
        self, answer: Callable[[Event], object] | None = None, *, attended: bool = True, notebook=None
    ) -> None:
        self.view_of_calls = Place(answer, attended=attended)
        self.notebook = notebook

    def serve_view(self, session: object) -> Place:
        return self.view_of_calls


class Client:
    """An outside program. `notices` are what it was told of its calls, `asked` what its own user was."""

    def __init__(self, desk: Desk, name: str = "fastmcp", answer: str | None = None, session: Session | None = None):
        self.desk, self.name, self.answer = desk, name, answer
        self.session = session
        self.notices: list[str] = []
        self.asked: list[str] = []
        self._changed = threading.Condition()

    def start(self, tool: str, /, **arguments: object) -> "Future[ToolResult]":
        """Make a call; cancelling the future is what a client does that goes away."""
        exchange = Exchange(self.name, self._progress, self._ask)
        return engine().submit(self.desk.call(exchange, tool, arguments))

    def call(self, tool: str, /, **arguments: object) -> ToolResult:
        return self.start(tool, **arguments).result(PATIENCE)

    def tools(self) -> Sequence[str]:
        return [tool.name for tool in engine().call(self.desk.tools())]

    def waits_for(self, words: str) -> None:
        """Wait until the client is told something."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(words in one for one in self.notices), PATIENCE), self.notices

    def _progress(self, _done: float, _total: float | None, words: str) -> None:
        with self._changed:
            self.notices.append(words)
            self._changed.notify_all()

    async def _ask(self, text: str) -> str | None:
        self.asked.append(text)
        if self.answer == "never":
            await asyncio.Event().wait()
        return self.answer


@contextmanager
def listening_nowhere() -> Iterator[Pretended]:
    """Have what is served be served by a double, and told in a file of its own folder."""
    server = Pretended()
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(serving, "shared_server", lambda: server)
        patch.setattr(serving, "_served", [])
        patch.setattr(kernels, "folder", lambda: Path(folder) / "kernels")
        yield server


@contextmanager
def served(session: Session, host: ScriptHost | None = None, *, tools: bool = True) -> Iterator[Client]:
    """Serve a session with its tools, and yield a client of it."""
    with hosted(host or Office()), listening_nowhere() as server:
        session.serve(tools=tools)
        try:
            yield Client(server.desk, session=session)
        finally:
            session.close()


def gone(call: "Future[ToolResult]", session: Session) -> None:
    """Have the client of a call go away, and wait until its turn is over."""
    turn = session.running
    call.cancel()
    if turn is not None:
        turn.settled.result(PATIENCE)
