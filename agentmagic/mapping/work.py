"""What a map is made of, and the error that it ends with."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmagic.errors import AgentMagicError
from agentmagic.loop.budgets import Budget
from agentmagic.loop.step import TurnContext
from agentmagic.mapping.options import MapSettings
from agentmagic.mapping.prompts import RowPrompts
from agentmagic.mapping.rows import Rows
from agentmagic.messages import Usage
from agentmagic.replay.map_tape import MapTape
from agentmagic.runtime.engine import void


class MapFailed(AgentMagicError):
    """A map ended before its rows were asked, because of an error; `result` has what was answered."""

    code = "map-failed"


@dataclass(frozen=True, slots=True)
class MapWork:
    """What a map is made of.

    `turn` is what each row's turn is made of, but for its prompt. `within` runs a coroutine on behalf of the session.
    `budgets` bound the whole map, and `spent` is told what each row has used, `replayed` what a map that is played from
    its `tape` had used.
    """

    turn: TurnContext
    rows: Rows
    prompts: RowPrompts
    settings: MapSettings
    budgets: Sequence[Budget]
    within: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
    spent: Callable[[Usage], None]
    notices: tuple[str, ...] = ()
    tape: MapTape | None = None
    replayed: Callable[[Usage], None] = void

    @property
    def path(self) -> Path | None:
        """The file of the map, or None if it has none."""
        return None if self.settings.to is None else Path(self.settings.to).expanduser()
