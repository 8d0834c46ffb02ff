"""How a cell fails: in one line, without a traceback."""

from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from agentmagic.errors import AgentMagicError
from agentmagic.events import RunResult
from agentmagic.secrets import redact

P = ParamSpec("P")
T = TypeVar("T")


class TurnFailed(AgentMagicError):
    """A turn ended without an answer; `result` is what it came to."""


class TurnInterrupted(KeyboardInterrupt):
    """The person interrupted a turn."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


def one_line(function: Callable[P, T]) -> Callable[P, T]:
    """Have the errors of a magic shown as their one line; they stay the errors they are."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except AgentMagicError as error:
            error.args = (redact(str(error)),)  # a notebook keeps it beside the line
            line = f"{type(error).__name__}: {error}"
            cast("Any", error)._render_traceback_ = lambda: [line]
            raise
        except TurnInterrupted:
            raise
        except (KeyboardInterrupt, CancelledError):
            message = "what was under way is given up."
            raise TurnInterrupted(message) from None

    return call


def check(result: RunResult) -> None:
    """Raise TurnFailed for a result that fails a cell (API-6), where nothing else was raised."""
    reasons = {
        "cancelled": "The turn was cancelled; what was finished is kept.",
        "no_tools": "The model called a tool, and there are none. Mark a function with @tool, or connect a server.",
    }
    if words := reasons.get(result.stop_reason):
        error = TurnFailed(words)
        error.result = result
        raise error
