"""Turns that wait for each other: a session runs one at a time, whether a cell asked for it or a panel."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agentmagic.display import words
from agentmagic.errors import AgentMagicError, SessionBusy, said
from agentmagic.log import logger
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.session import Session

SOON = 0.3
"""Seconds that a turn may take to begin before it is said what it waits for."""

SHOWN = 60
"""Characters of a prompt that waits."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedTurn:
    """A turn to be begun by a function, which runs where synchronous tools run.

    `unsent` is what was typed for it, to be given back where it does not begin.
    """

    begin: Callable[[], Run]
    prompt: str
    unsent: str = ""


class TurnQueue:
    """Begins turns in the order in which they were asked for, each when its session is free; on the engine.

    `changed` is called when what `note` says has changed, and `failed` with a turn that did not begin and why.
    """

    def __init__(
        self, session: Session, changed: Callable[[], None], failed: Callable[[QueuedTurn, str], None]
    ) -> None:
        self._session = session
        self._changed = changed
        self._failed = failed
        self._turns: list[QueuedTurn] = []
        self._begins: QueuedTurn | None = None
        self._lock = threading.Lock()
        self._work: asyncio.Task[None] | None = None
        self._held = False

    @property
    def note(self) -> str:
        """Who waits for what, or "" where nobody does."""
        number = len(self._turns)
        if not number or not (self._held or self._session.running):
            return ""
        first = words.one_line(self._turns[0].prompt, SHOWN)
        who = f"{number} messages wait" if number > 1 else f"“{first}” waits" if first else "Your turn waits"
        return f"{who} for {'the cell that runs' if self._held else 'the turn under way'}."

    def add(self, turn: QueuedTurn) -> None:
        """Take a turn in."""
        self._turns.append(turn)
        self._changed()
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._begin_all())

    def withdraw(self) -> str:
        """Take back the turns that have not begun; return what was typed for them."""
        with self._lock:
            taken = [turn for turn in self._turns if turn is not self._begins]
            self._turns = [turn for turn in self._turns if turn is self._begins]
        self._changed()
        return "\n\n".join(turn.unsent for turn in taken if turn.unsent)

    async def _begin_all(self) -> None:
        while turn := await self._next():
            if await self._begun(turn):
                self._turns = [other for other in self._turns if other is not turn]
            self._begins = None
            self._changed()

    async def _next(self) -> QueuedTurn | None:
        """Wait until the session is free; return the turn whose place in line it is by then."""
        while self._turns and (run := self._session.running) is not None:
            await asyncio.wait((asyncio.ensure_future(asyncio.wrap_future(run.settled)),))
        return self._turns[0] if self._turns else None

    def _begin(self, turn: QueuedTurn) -> None:
        """Begin a turn, unless it was taken back meanwhile; called where turns are begun."""
        with self._lock:
            if turn not in self._turns:
                return
            self._begins = turn
        turn.begin()

    async def _begun(self, turn: QueuedTurn) -> bool:
        """Begin a turn or say why not; return False where somebody else was faster."""
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
            self._failed(turn, _why(error))
        return True


def _why(error: BaseException) -> str:
    """Say why a turn did not begin; what nobody foresaw goes to the log, too."""
    if isinstance(error, asyncio.CancelledError):
        return "Interrupted before the turn began."
    if not isinstance(error, AgentMagicError):
        logger.error("a turn of a panel did not begin", exc_info=error)
    return words.shown(said(error))
