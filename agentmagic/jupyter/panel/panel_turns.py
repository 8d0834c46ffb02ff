"""Begins the turns of a chat panel: new prompts and turns that run again, with their attachments."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar, cast

from agentmagic.errors import AuthenticationMissing, with_code
from agentmagic.events import Planned, Routed, TurnStarted
from agentmagic.jupyter.cell.model_setup import TurnsWithoutKey
from agentmagic.jupyter.cell.turn_queue import SOON, QueuedTurn, TurnQueue, failure_message
from agentmagic.log import logger
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import Content, Prompt, as_prompt
from agentmagic.plan import RESUME_PROMPT
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.text import sanitize
from agentmagic.widgets import commands
from agentmagic.widgets import page_messages as page
from agentmagic.widgets.view import View

T = TypeVar("T")

MOST_FORKS = 5
"""The number of forks that stay variables; older ones are released. A panel forks before a turn runs again."""

TurnAction = page.SendPrompt | page.ResumePlan | page.RetryTurn | page.RewriteTurn


class InCell(Protocol):
    """Wraps a function so that it prints, and saves its turn, as if the cell that shows the chat panel called it."""

    def __call__(self, function: Callable[[], T], /) -> Callable[[], T]:
        """Return the wrapped function."""
        ...


class PanelTurns:
    """Begins the turns of a chat panel's session, one after the other; used in the engine thread.

    Keeps the queue of turns and the attachments for the next message. Turns without an API key are kept until the user
    has chosen a model or a key. `on_change` is called when `note` or `attachment_lines` may have changed.
    """

    def __init__(self, view: View, notebook: commands.Notebook, in_cell: InCell, on_change: Callable[[], None]) -> None:
        self._view = view
        self._notebook = notebook
        self._in_cell = in_cell
        self._on_change = on_change
        self._forks: list[tuple[str, int]] = []
        self._attachments: dict[str, commands.Attachment] = {}
        self._coming: list[asyncio.Future[list[str]]] = []
        self._in_order = asyncio.Lock()
        self._turns_without_key = TurnsWithoutKey(view, self._begin_or_give_back)

    def turn_to(self, session: Session) -> None:
        """Use another session for later turns. The attachments for the next message stay."""
        self._session = session
        self._queue = TurnQueue(session, self._on_change, self._report_failure)

    @property
    def note(self) -> str:
        """A line that tells how many turns wait, and for what. It is "" if none waits for another turn or a cell."""
        return self._queue.note

    @property
    def waits(self) -> bool:
        """Whether a turn waits in the queue, or for the user's choice of a model or a key."""
        return self._queue.waits or self._turns_without_key.waits

    @property
    def attachment_lines(self) -> list[tuple[str, str]]:
        """The name of each attachment of the next message, and a line about the attachment."""
        return [(name, one.value.shown) for name, one in self._attachments.items()]

    def set_up(self, action: page.SetupAction) -> None:
        """Carry out what the user chose on the setup card, which is shown if a key is missing. Thread-safe."""
        self._turns_without_key.act(action)

    def detach(self, name: str) -> None:
        """Remove an attachment from the next message."""
        self._attachments.pop(name, None)

    def withdraw(self) -> None:
        """Remove the turns that have not begun from the queue, and put their prompts back into the panel's text box."""
        self._give_back(self._queue.withdraw())

    async def with_coming(self, prompt: page.SendPrompt) -> page.SendPrompt:
        """Wait for the outputs that the user chose before sending a prompt; return the prompt with their names."""
        async with self._in_order:  # the next prompt does not overtake this one
            coming, self._coming = self._coming, []
            names = [name for one in coming for name in await one]
        return prompt.model_copy(update={"attached": [*prompt.attached, *names]})

    def enqueue(self, action: TurnAction) -> None:
        """Add a turn to the queue: a new prompt, the rest of a plan, or an earlier turn that runs again."""
        match action:
            case page.SendPrompt():
                matches = [self._attachments.pop(name, None) for name in action.attached]
                attachments = tuple(one for one in matches if one is not None)
                begin = partial(self._send, action.text, attachments, plan=action.plan)
                self._enqueue(begin, action.text, action.text, attachments)
            case page.ResumePlan():
                self._enqueue(partial(self._send, RESUME_PROMPT, resume=True), RESUME_PROMPT)
            case page.RetryTurn():
                turns = self._session.turns
                prompt = turns[action.turn].prompt.text if action.turn < len(turns) else ""
                self._enqueue(partial(self._run_again, action.turn), prompt)
            case page.RewriteTurn():
                self._enqueue(partial(self._run_again, action.turn, action.text), action.text, action.text)

    def _enqueue(
        self, begin: Callable[[], Run], prompt: str, unsent: str = "", attachments: tuple[commands.Attachment, ...] = ()
    ) -> None:
        self._queue.add(QueuedTurn(self._in_cell(begin), prompt, unsent, attachments))

    async def attach(self, make: Callable[[], Sequence[commands.Attachment]], prompt: str) -> None:
        """Begin a turn with the prompt and the attachments. If the prompt is "", keep them for the next message.

        `make` returns the attachments, and is called in the thread in which synchronous tools run.
        """
        coming: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        if not prompt:
            self._coming.append(coming)
        try:
            await self._attach(make, prompt, coming)
        finally:
            if not coming.done():
                coming.set_result([])
            self._coming = [one for one in self._coming if one is not coming]

    async def _attach(
        self, make: Callable[[], Sequence[commands.Attachment]], prompt: str, coming: "asyncio.Future[list[str]]"
    ) -> None:
        making = asyncio.ensure_future(engine().run_user(self._in_cell(make)))
        done, _ = await asyncio.wait((making,), timeout=SOON)
        if not done:
            self._view.say("The output is attached when the kernel is free.")
        try:
            attachments = tuple(await making)
        except asyncio.CancelledError:
            self._view.complain("The output is not attached: the kernel was interrupted.")
            raise
        except Exception as error:  # noqa: BLE001  (the user must see that a click failed)
            logger.exception("an output was not attached")
            self._view.complain(f"The output is not attached: {sanitize(with_code(error))}")
            return
        finally:
            if not done:
                self._view.say("")
        if prompt:
            # Wait until a browser page has drawn the panel, in which the user answers the turn's questions.
            await self._view.takes_clicks()
            self._enqueue(partial(self._send, prompt, attachments), prompt, prompt, attachments)
        else:
            self.hold(attachments)
            coming.set_result([one.value.written for one in attachments])
        self._on_change()

    def hold(self, attachments: Iterable[commands.Attachment]) -> None:
        """Keep attachments for the next message, or show an error if there are too many."""
        total = self._attachments | {one.value.written: one for one in attachments}
        if len(total) > commands.MOST_ATTACHED:
            self._view.complain(f"A message takes {commands.MOST_ATTACHED} attachments at most. Remove some of them.")
        else:
            self._attachments = total

    def _report_failure(self, turn: QueuedTurn, error: BaseException) -> None:
        if isinstance(error, AuthenticationMissing) and self._view.mounted.is_set():
            self._turns_without_key.hold(self._session, turn, error)
        else:
            self.hold(turn.attachments)
            self._view.complain(failure_message(error), turn.unsent)

    def _give_back(self, turns: Sequence[QueuedTurn]) -> None:
        self.hold(one for turn in turns for one in turn.attachments)
        self._view.give_back("\n\n".join(turn.unsent for turn in turns if turn.unsent))

    def _send(
        self,
        text: str,
        attachments: Sequence[commands.Attachment] = (),
        *,
        plan: bool = False,
        resume: bool = False,
    ) -> Run:
        prompt, settings = self._prepare(text, attachments)
        return self._attend(prompt, replace(settings, plan=plan, resume=resume))

    def _prepare(self, text: str, attachments: Sequence[commands.Attachment]) -> tuple[Prompt, TurnSettings]:
        prompt, settings = self._notebook.prepare(self._session, text)
        if not attachments:
            return prompt, settings
        message = as_prompt(prompt)
        message = replace(message, parts=(*message.parts, *(one.part for one in attachments)))
        return message, replace(settings, values=(*settings.values, *(one.value for one in attachments)))

    def _run_again(self, turn: int, text: str | None = None) -> Run:
        before = [event for one in self._session.turns[turn : turn + 1] for event in one.events]
        start = next((event for event in before if isinstance(event, TurnStarted)), None)
        prompt, settings = None, TurnSettings()
        if text is not None:
            prompt, settings = self._prepare(text, _attachments_of(start))
            values = [one for one in start.values if one.in_place and one.text in text] if start else []
            settings = replace(settings, values=(*values, *settings.values))
        settings = replace(settings, plan=any(isinstance(event, Routed | Planned) for event in before))
        self._keep_as_fork(turn)
        return self._attend(prompt, settings, turn)

    def _keep_as_fork(self, turn: int) -> None:
        """Keep a copy of the session if running a turn again would remove answers; tell the user the copy's name."""
        turns = self._session.turns
        if not self._notebook.forks or self._session.running or not any(one.answer for one in turns[turn:]):
            return
        name = self._notebook.fork(self._session, len(turns))
        self._view.say(f"The conversation as it was is kept as {name}: %agent chat {name} shows it.")
        self._forks.append((name, len(turns)))
        if len(self._forks) > MOST_FORKS:
            self._notebook.release(*self._forks.pop(0))

    def _attend(self, prompt: Prompt | None, settings: TurnSettings, turn: int | None = None) -> Run:
        """Begin a turn, whose questions the user answers. If no page has ever drawn the panel, the policy decides."""
        toolsets = self._notebook.toolsets(self._session)
        settings = replace(settings, toolsets=toolsets, attended=self._view.mounted.is_set())
        run = self._session.begin(prompt, settings, turn)
        self._notebook.show_figures(run)
        run.settled.add_done_callback(lambda _: self._look_for_key(run))
        return run

    def _look_for_key(self, run: Run) -> None:
        """If a turn failed because an API key is missing, run it again when the user has chosen a model or a key."""
        with suppress(Exception):  # the conversation already shows any other failure
            try:
                run.result()
            except AuthenticationMissing as missing:
                begin = partial(self._run_again, len(self._session.turns) - 1)
                self._turns_without_key.hold(self._session, QueuedTurn(self._in_cell(begin), ""), missing)

    def _begin_or_give_back(self, turns: Sequence[QueuedTurn], *, begin: bool) -> None:
        for turn in turns if begin else ():
            self._queue.add(turn)
        if not begin:
            self._give_back(turns)
        self._notebook.looks.tell(None)


def _attachments_of(start: TurnStarted | None) -> list[commands.Attachment]:
    """Return the attachments of an earlier turn, so that the turn can run again with them.

    They are those values of the turn that the text of the prompt neither contains nor names. Each is one of the last
    parts of the prompt.
    """
    if start is None:
        return []
    values = [one for one in start.values if not one.in_place and one.written not in start.prompt.text]
    parts = start.prompt.parts[-len(values) :] if values else ()
    return [commands.Attachment(*pair) for pair in zip(values, cast("Sequence[Content]", parts), strict=False)]
