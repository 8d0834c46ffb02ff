"""The queue of a panel's turns: a session runs one turn at a time, and cells begin turns too."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agentmagic.errors import AgentMagicError, SessionBusy, with_code
from agentmagic.log import logger
from agentmagic.prompt.attachments import Attachment
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.text import one_line, shown

SOON = 0.3
"""Seconds that the main thread has to begin a turn before the panel tells that a cell keeps it busy."""

SHOWN = 60
"""Characters that are shown of a prompt in the queue."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedTurn:
    """A turn that `begin` begins, called where synchronous tools run.

    `unsent` is the text, and `attached` the attachments, to give back to the user if the turn does not begin.
    """

    begin: Callable[[], Run]
    prompt: str
    unsent: str = ""
    attached: tuple[Attachment, ...] = ()


class TurnQueue:
    """Begins turns in the order in which they were added, each when its session is free; on the engine.

    `changed` is called when `note` may have changed, and `failed` with a turn that did not begin and the error.
    """

    def __init__(
        self, session: Session, changed: Callable[[], None], failed: Callable[[QueuedTurn, BaseException], None]
    ) -> None:
        self._session = session
        self._changed = changed
        self._failed = failed
        self._turns: list[QueuedTurn] = []
        self._beginning: QueuedTurn | None = None
        self._lock = threading.Lock()
        self._work: asyncio.Task[None] | None = None
        self._held = False

    @property
    def note(self) -> str:
        """The line that tells which turns wait and for what, or ""."""
        number = len(self._turns)
        if not number or not (self._held or self._session.running):
            return ""
        first = one_line(self._turns[0].prompt, SHOWN)
        which = f"{number} messages wait" if number > 1 else f"“{first}” waits" if first else "Your turn waits"
        return f"{which} for {'the cell that runs' if self._held else 'the turn under way'}."

    @property
    def waits(self) -> bool:
        """Whether a turn of the queue has not begun yet, also if `note` does not tell of it."""
        return bool(self._turns)

    def add(self, turn: QueuedTurn) -> None:
        """Add a turn."""
        self._turns.append(turn)
        self._changed()
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._begin_all())

    def withdraw(self) -> list[QueuedTurn]:
        """Remove the turns that have not begun, and return them."""
        with self._lock:
            taken = [turn for turn in self._turns if turn is not self._beginning]
            self._turns = [turn for turn in self._turns if turn is self._beginning]
        self._changed()
        return taken

    async def _begin_all(self) -> None:
        while turn := await self._next():
            if await self._begun(turn):
                self._turns = [other for other in self._turns if other is not turn]
            self._beginning = None
            self._changed()

    async def _next(self) -> QueuedTurn | None:
        """Wait until the session is free; return the turn that is first in the queue by then."""
        while self._turns and (run := self._session.running) is not None:
            # wait() leaves the future alone when this task is cancelled; awaiting it would cancel the run's future.
            await asyncio.wait((asyncio.wrap_future(run.settled),))
        return self._turns[0] if self._turns else None

    def _begin(self, turn: QueuedTurn) -> None:
        """Begin a turn in the main thread, unless the user has withdrawn it while it waited for that thread."""
        with self._lock:
            if turn not in self._turns:
                return
            self._beginning = turn
        turn.begin()

    async def _begun(self, turn: QueuedTurn) -> bool:
        """Begin a turn, or tell why it cannot; return False if a cell has begun another turn first."""
        task = asyncio.ensure_future(engine().run_user(partial(self._begin, turn)))
        done, _ = await asyncio.wait((task,), timeout=SOON)
        if not done:
            self._held = True
            self._changed()
            await asyncio.wait((task,))
            self._held = False
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, SessionBusy):
            return False
        if error is not None:
            self._failed(turn, error)
        return True


def why_not_begun(error: BaseException) -> str:
    """Return why a turn did not begin; an error that is not ours goes to the log with its traceback."""
    if isinstance(error, asyncio.CancelledError):  # the user interrupted the main thread
        return "Interrupted before the turn began."
    if not isinstance(error, AgentMagicError):
        logger.error("a turn of a panel did not begin", exc_info=error)
    return shown(with_code(error))
