"""Asks the user about an act of the chat panel's page, on a card outside any turn."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from agentmagic import log
from agentmagic.approval.approvals import NO_ONE
from agentmagic.errors import UsageError
from agentmagic.events import Approve, Deny, Intent, PageDecision
from agentmagic.jupyter.panel.page_acts import PageAct
from agentmagic.runtime.engine import engine
from agentmagic.text import exact
from agentmagic.widgets.page_messages import PAGE
from agentmagic.widgets.view import View

T = TypeVar("T")

MOST_WAITING = 20
"""Acts of a page that wait for the answers to earlier questions; a further act is refused."""

UNSEEN = "no page shows this panel"


@dataclass(frozen=True, slots=True)
class _OpenQuestion:
    id: str
    answer: "asyncio.Future[bool]"


class PageQuestions:
    """Shows one card at a time in a chat panel, and waits for the user's answer; used in the engine thread.

    Each act that needs an answer gets a line in the audit log and a `PageDecision`, with which `record` is called.
    """

    def __init__(self, view: View, record: Callable[[PageDecision], None]) -> None:
        self._view = view
        self._record = record
        self._turn = asyncio.Lock()
        self._acts: list[PageAct] = []
        self._open: _OpenQuestion | None = None

    def answer(self, intent: Intent) -> bool:
        """Take an answer to the open question. Return False if it does not answer this question. Thread-safe."""
        question = self._open
        if question is None or not isinstance(intent, Approve | Deny) or intent.id != question.id:
            return False
        engine().loop.call_soon_threadsafe(_settle, question.answer, isinstance(intent, Approve))
        return True

    async def do(self, act: PageAct, carry_out: Callable[[], Awaitable[T]]) -> T | None:
        """Ask the user about an act, and carry it out after a yes. Return its result, or None after a no.

        An act that waits for its answer already is not asked about twice: a page can send it again at a key press.
        Without a page that shows the panel, the answer is no. Raises UsageError if too many acts wait, and the errors
        of `carry_out`.
        """
        if act in self._acts:
            return None
        if len(self._acts) >= MOST_WAITING:
            raise UsageError(f"{MOST_WAITING} actions wait for your answer already. Answer the card, then try again.")
        self._acts.append(act)
        try:
            async with self._turn:
                is_seen = self._view.mounted.is_set()
                approved = is_seen and await self._ask(act)
        finally:
            self._acts.remove(act)
        decision = ("approved" if approved else "denied") if is_seen else NO_ONE
        entry = log.Audit(PAGE, act.name, {"line": act.line}, decision=decision, outcome="denied")
        self._record(PageDecision(act.line, act.about, approved, "" if is_seen else UNSEEN))
        try:
            if not approved:
                return None
            entry.outcome = "error"
            result = await carry_out()
            entry.outcome = "ok"
            return result
        finally:
            log.audit(entry)

    async def _ask(self, act: PageAct) -> bool:
        question = self._open = _OpenQuestion(uuid.uuid4().hex, asyncio.get_running_loop().create_future())
        line, target = exact(act.line), exact(act.target)
        self._view.tell({"asked": {"ask": question.id, "about": act.about, "line": line, "target": target}})
        try:
            return await question.answer
        finally:
            self._open = None
            self._view.tell({"asked": None})


def _settle(answer: "asyncio.Future[bool]", approved: bool) -> None:
    if not answer.done():  # a second click on the card comes too late
        answer.set_result(approved)
