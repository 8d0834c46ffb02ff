"""Who is told of events: functions of others, of which none may harm the turn."""

from collections.abc import Callable
from typing import Generic, TypeVar

from agentmagic.log import logger

T = TypeVar("T")


class Listeners(Generic[T]):
    """Functions that are called with every event, in the order in which they came; one that fails is left out."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[T], None], ...] = ()

    def add(self, listener: Callable[[T], None]) -> Callable[[], None]:
        """Tell a function too, from now on; returns what ends that."""
        self._listeners = (*self._listeners, listener)
        return lambda: self._remove(listener)

    def tell(self, event: T) -> None:
        """Call everybody with an event."""
        for listener in self._listeners:
            self.tell_one(listener, event)

    def tell_one(self, listener: Callable[[T], None], event: T) -> None:
        """Call one of them; whatever it raises, the turn goes on, and the log has it."""
        if listener not in self._listeners:
            return
        try:
            listener(event)
        except Exception:  # noqa: BLE001  (see above)
            logger.exception("a listener failed and is not called again")
            self._remove(listener)

    def _remove(self, listener: Callable[[T], None]) -> None:
        self._listeners = tuple(other for other in self._listeners if other is not listener)
