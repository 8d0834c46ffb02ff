"""The setup card, on which a user without an API key chooses a local model, types a key, or chooses a model server."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from agentmagic import log, settings
from agentmagic.errors import AgentMagicError, AuthenticationMissing, UsageError, describe, with_code
from agentmagic.jupyter.cell.turn_queue import QueuedTurn
from agentmagic.log import logger
from agentmagic.providers import first_use
from agentmagic.providers.failures import usable_key
from agentmagic.runtime.engine import Listeners, engine
from agentmagic.secrets import SHORTEST
from agentmagic.session import Session
from agentmagic.text import sanitize
from agentmagic.widgets import commands
from agentmagic.widgets.page_messages import PAGE, LeaveSetup, SetupAction, UseKey, UseLocal, UseServer
from agentmagic.widgets.view import View
from agentmagic.widgets.view_messages import SetupCard

MOST_MODELS = 50
"""The most models of a server that the card lists."""


class SetupCards:
    """The setup cards that wait for the user's choice. `changed` is called when one comes or goes, in any thread."""

    def __init__(self) -> None:
        self.changed = Listeners[None]()
        self._waiting: tuple[ModelSetup, ...] = ()

    def waits(self, session: Session) -> bool:
        """Return whether the user has to choose a model or a key for a session."""
        return any(card.session is session for card in self._waiting)

    def add(self, card: "ModelSetup") -> None:
        """Add a card, because it is shown."""
        self._change((*self._waiting, card))

    def remove(self, card: "ModelSetup") -> None:
        """Remove a card, because the user has chosen, or it is not shown any more. It may be removed already."""
        self._change(tuple(one for one in self._waiting if one is not card))

    def _change(self, waiting: "tuple[ModelSetup, ...]") -> None:
        if waiting != self._waiting:
            self._waiting = waiting
            self.changed.tell(None)


setup_cards = SetupCards()


class ModelSetup:
    """Shows the setup card in a view until the user has chosen a model or a key.

    Then calls `on_choice` in the engine thread, with False if the user left the card without a choice, or if the card
    could not be shown. A chosen model is set in the session's agent. A chosen key is available to every session from
    then on.
    """

    def __init__(
        self, view: View, session: Session, missing: AuthenticationMissing, on_choice: Callable[[bool], None]
    ) -> None:
        self._view = view
        self.session = session
        self._missing = missing
        self._on_choice = on_choice
        self._servers: tuple[first_use.FoundServer, ...] = ()
        self._is_over = False
        engine().submit(self._show_or_leave())

    def act(self, action: SetupAction) -> None:
        """Carry out the user's choice on the card. Thread-safe."""
        engine().submit(self._carry_out(action))

    def close(self) -> None:
        """Stop waiting for the user, who has chosen, or interrupted the cell of the card. Thread-safe."""
        self._is_over = True
        setup_cards.remove(self)

    async def _show_or_leave(self) -> None:
        try:
            await self._show()
        except Exception:  # noqa: BLE001  (otherwise the cell would wait forever for a choice that nobody can make)
            logger.exception("the choice of a model could not be shown")
            self.close()
            self._on_choice(False)

    async def _show(self) -> None:
        card = await engine().in_pool(self._card)  # in a pool thread: looking for a keyring takes time
        if self._is_over:
            return
        self._view.tell({"setup": card})
        setup_cards.add(self)
        if not card["fixed"]:
            self._servers = await first_use.find_servers()
        if self._is_over:  # chosen while servers were looked for: the card must not come back
            return
        rows = [(server.name, list(map(sanitize, server.models[:MOST_MODELS]))) for server in self._servers]
        self._view.tell({"setup": {**card, "servers": rows}})

    def _card(self) -> SetupCard:
        about, install = first_use.local_model()
        rows = [(row.name, row.about, row.keys[0], row.key_begins) for row in first_use.keyed_providers()]
        fixed = settings.model_override() is not None
        if fixed:  # an environment variable sets the model, so only a key for that model helps
            rows = [row for row in rows if row[2] in self._missing.variables]
        return {
            "why": sanitize(describe(self._missing)).partition(". ")[0].rstrip(".") + ".",
            "local": about,
            "install": install,
            "providers": rows,
            "keyring": settings.keyring_problem(),
            "servers": None,
            "fixed": fixed,
        }

    async def _carry_out(self, action: SetupAction) -> None:
        try:
            await engine().in_pool(partial(self._choose, action))
        except AgentMagicError as error:
            self._view.complain(sanitize(with_code(error)))
        else:
            if not isinstance(action, LeaveSetup):  # the answers on this card are acts of the page, too
                given = action.model_dump(exclude={"key"})
                log.audit(log.Audit(PAGE, f"setup {action.type}", given, decision="approved", outcome="ok"))
            self._view.tell({"setup": None})
            self.close()
            self._on_choice(not isinstance(action, LeaveSetup))

    def _choose(self, action: SetupAction) -> None:
        importlib.invalidate_caches()  # lets imports find a package that the user installed while the card was shown
        match action:
            case UseLocal():
                commands.choose_model(self.session, first_use.LOCAL)
            case UseKey():
                self._use_key(action)
            case UseServer():
                server = next((one for one in self._servers if one.name == action.server), None)
                if server is None or action.model not in server.models:
                    raise UsageError(f"{action.server} does not list the model {action.model}. Choose another one.")
                commands.choose_model(self.session, server.model(action.model))
            case LeaveSetup():
                pass

    def _use_key(self, action: UseKey) -> None:
        row = next((row for row in first_use.keyed_providers() if row.name == action.provider), None)
        if row is None:
            raise UsageError(f"{action.provider} is no provider that takes a key. Choose another one.")
        key = usable_key(row.name, action.key.get_secret_value().strip() or " ", row.keys)
        if len(key) < SHORTEST:
            raise UsageError(f"A key has {SHORTEST} characters at least. Paste all of it.")
        if row.keys[0] not in self._missing.variables:
            commands.choose_model(self.session, f"{row.name}:{row.default}")
        (settings.keep_key if action.keep else settings.type_key)(row.keys[0], key)


class BeginTurns(Protocol):
    """A callback that begins turns, or gives their prompts back to the user. It is called in the engine thread."""

    def __call__(self, turns: Sequence[QueuedTurn], *, begin: bool) -> None:
        """Begin the turns if `begin` is True, else give their prompts back to the user."""
        ...


class TurnsWithoutKey:
    """Keeps a chat panel's turns until the user has chosen a model or a key; used in the engine thread."""

    def __init__(self, view: View, begin_turns: BeginTurns) -> None:
        self._view = view
        self._begin_turns = begin_turns
        self._turns: list[QueuedTurn] = []
        self._setup: ModelSetup | None = None

    @property
    def waits(self) -> bool:
        """Whether a turn is waiting for the user's choice."""
        return self._setup is not None

    def hold(self, session: Session, turn: QueuedTurn, missing: AuthenticationMissing) -> None:
        """Keep a turn until the user has chosen a model or a key; all waiting turns share one setup card."""
        self._turns.append(turn)
        if self._setup is None:
            self._setup = ModelSetup(self._view, session, missing, self._finish_choice)

    def act(self, action: SetupAction) -> None:
        """Carry out the user's choice on the setup card, if the card is shown. Thread-safe."""
        if self._setup is not None:
            self._setup.act(action)

    def _finish_choice(self, is_chosen: bool) -> None:
        turns, self._turns, self._setup = self._turns, [], None
        self._begin_turns(turns, begin=is_chosen)
