"""What the magics and the chat panel both do with a session, and what a panel needs of the notebook around it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentmagic.errors import UsageError
from agentmagic.messages import Prompt
from agentmagic.providers.base import Model
from agentmagic.run import Run
from agentmagic.session import Session
from agentmagic.tools.base import Toolset

INTENTS = ("approve", "edit", "deny", "reply", "stop")
"""The types of the page's messages that answer a turn; they work in a cell and in a panel."""

LONGEST_NAME = 1_000
"""Characters of an id, of a name and of a reason that a page may send."""


def choose_model(session: Session, model: str | Model) -> None:
    """Use another model from the next turn on. Raises what `Session.model` raises, and then changes nothing."""
    agent = replace(session.agent, model=model)
    session.model(agent)
    session.agent = agent


def export(session: Session, target: Path, functions: Sequence[Callable[..., Any]], *, overwrite: bool = False) -> str:
    """Write the finished turns to a file in the form that its name asks for; return what to say of it.

    `functions` are the notebook's tools, which an exported notebook calls.
    """
    from agentmagic import export  # loads every form; most sessions are never exported

    missing, turns = missing_turn(session), session.turns
    export.save(turns, target, tools=(*session.agent.tools, *functions), overwrite=overwrite)
    return f"Wrote {count_turns(len(turns))} to {relative_path(target)}.{missing}"


def missing_turn(session: Session) -> str:
    """Return a sentence about the turn that is running, which no copy of the session holds yet; "" if none is."""
    return " The turn under way is not in it." if session.running else ""


def count_turns(number: int) -> str:
    """Return a number of turns in words."""
    return f"{number} turn{'' if number == 1 else 's'}"


def relative_path(place: Path) -> str:
    """Return a path as a person writes it: relative to the kernel's folder if it lies below that."""
    whole, here = place.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


class Notebook:
    """What a panel asks of the notebook around it, answered for a program without one.

    `prepare`, `toolsets`, `begun` and `fork` are called where synchronous tools run: the main thread of a kernel.
    """

    forks = False
    """Whether a fork can be bound to a variable."""

    def name_of(self, session: Session) -> str:  # noqa: ARG002  (this parameter and the next ones are for subclasses)
        """Return the variable that holds a session, or "" if none does."""
        return ""

    def prepare(self, session: Session, written: str) -> Prompt:  # noqa: ARG002
        """Make the prompt of typed text, evaluating nothing of it. Raises AgentMagicError if it cannot be made."""
        return written

    def toolsets(self, session: Session) -> Sequence[Toolset] | None:  # noqa: ARG002
        """Return the sources of tools of the session's next turn, or None for its own."""
        return None

    def functions(self) -> Sequence[Callable[..., Any]]:
        """Return the functions of the notebook that are tools."""
        return ()

    def begun(self, run: Run) -> None:
        """Take notice of a turn that the panel has begun."""

    def fork(self, session: Session, turns: int) -> str:  # noqa: ARG002
        """Bind a session that begins with the first turns of another, and return its name. Raises UsageError."""
        message = "A fork needs a variable of a notebook. In code, use session.fork()."
        raise UsageError(message)

    def folder(self) -> Path:
        """Return the folder in which exports are written."""
        return Path.cwd()
