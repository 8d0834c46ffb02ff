"""What a chat panel needs of the notebook around it, and what stands in where there is none."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from agentmagic.errors import UsageError
from agentmagic.messages import Prompt
from agentmagic.run import Run
from agentmagic.session import Session
from agentmagic.tools.base import Toolset


class Notebook(Protocol):
    """The notebook around a panel; `forks` says whether a fork can be given a name there.

    `prepare`, `toolsets`, `begun` and `fork` are called where synchronous tools run: the main thread of a kernel.
    """

    forks: bool

    def name_of(self, session: Session) -> str:
        """Return the variable that holds a session, or "" where none does."""
        ...

    def prepare(self, session: Session, written: str) -> Prompt:
        """Make the prompt of what was written, without evaluating any of it. Raises AgentMagicError if it cannot."""
        ...

    def toolsets(self, session: Session) -> Sequence[Toolset] | None:
        """Return the sources of tools of the session's next turn, or None for its own."""
        ...

    def functions(self) -> Sequence[Callable[..., Any]]:
        """Return the functions of the notebook that are tools."""
        ...

    def begun(self, run: Run) -> None:
        """Take notice of a turn that the panel has begun."""
        ...

    def fork(self, session: Session, turns: int) -> str:
        """Bind a session that begins with the first turns of another, and return its name. Raises UsageError."""
        ...

    def folder(self) -> Path:
        """Return where exports are written."""
        ...


class Bare:
    """A program without the extension: prompts are sent as they were written, and sessions have no name."""

    forks = False

    def name_of(self, session: Session) -> str:  # noqa: ARG002  (none has one)
        """Return that it has none."""
        return ""

    def prepare(self, session: Session, written: str) -> Prompt:  # noqa: ARG002  (every session's are alike)
        """Return what was written."""
        return written

    def toolsets(self, session: Session) -> None:
        """Leave it at the session's own."""

    def functions(self) -> Sequence[Callable[..., Any]]:
        """Return none."""
        return ()

    def begun(self, run: Run) -> None:
        """Do nothing."""

    def fork(self, session: Session, turns: int) -> str:  # noqa: ARG002  (it is refused whatever is asked for)
        """Refuse: there is no variable for it."""
        message = "A fork needs a variable of a notebook. In code, use session.fork()."
        raise UsageError(message)

    def folder(self) -> Path:
        """Return the working directory."""
        return Path.cwd()
