"""The parts that a map is made of, and the error that a failed map raises."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmagic.errors import AgentMagicError
from agentmagic.loop.budgets import Meter
from agentmagic.loop.turn_context import TurnContext
from agentmagic.mapping.file import MapFile
from agentmagic.mapping.options import MapSettings
from agentmagic.mapping.prompts import RowPrompts
from agentmagic.mapping.rows import Rows
from agentmagic.messages import Usage
from agentmagic.replay.map_tape import MapTape
from agentmagic.runtime.engine import void


class MapFailed(AgentMagicError):
    """Raised when an error ended a map. `result` has the rows that were answered."""

    code = "map-failed"


@dataclass(frozen=True, slots=True)
class MapWork:
    """The parts that a map is made of.

    `turn` is the context of each row's turn, except for the prompt. `within` wraps the coroutine of a row's turn, so
    that the user's async functions run on the session's event loop. `meters` limit the whole map. `on_usage` is called
    with the usage of each row. `tape` is the object that records or replays the map. `on_replayed_usage` is called with
    the recorded usage of a replayed map. `kept` is the temporary file of an earlier run of this map: rows that have an
    answer there are not asked.
    """

    turn: TurnContext
    rows: Rows
    prompts: RowPrompts
    settings: MapSettings
    meters: Sequence[Meter]
    within: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
    on_usage: Callable[[Usage], None]
    notices: tuple[str, ...] = ()
    tape: MapTape | None = None
    on_replayed_usage: Callable[[Usage], None] = void
    kept: MapFile | None = None

    @property
    def path(self) -> Path | None:
        """The file that stores the map's answers (option `to`), or None."""
        return None if self.settings.to is None else Path(self.settings.to).expanduser()
