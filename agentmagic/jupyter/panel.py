"""`session.chat()` and `%agent chat`: the panel in the cell under way, and the notebook around it."""

import re
import uuid
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from agentmagic.display import html
from agentmagic.display.transcript import Transcript
from agentmagic.errors import UsageError
from agentmagic.jupyter.figures import FigureOutput
from agentmagic.jupyter.frontend import Kind, front_end, publisher, say
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.notebook_file import notebook_of
from agentmagic.jupyter.prompt import prompt_of
from agentmagic.jupyter.subcommands import DEFAULT_SESSION
from agentmagic.messages import Prompt
from agentmagic.run import Run
from agentmagic.session import Session
from agentmagic.settings import path_of
from agentmagic.tools.base import Toolset
from agentmagic.widgets.surroundings import Bare, Notebook

if TYPE_CHECKING:
    from agentmagic.widgets.chat import Chat

ELSEWHERE = (
    "The chat panel works in JupyterLab and Notebook 7. Here %%agent asks, and %agent history shows the conversation."
)
NOWHERE = "The chat panel works in a notebook, in JupyterLab or Notebook 7. In code, use session.ask()."

_NUMBERED = re.compile(r"_\d+$")

_notebooks: dict[int, "Around"] = {}
"""What is around the panels of each shell that has loaded the extension."""
_chats: dict[Session, "Chat"] = {}
"""The panels; a widget is there until its kernel ends, and so is its session."""


class Around:
    """The notebook around the panels of a shell with the extension, see `agentmagic.widgets.surroundings.Notebook`."""

    forks = True

    def __init__(self, shell: InteractiveShell, namespace: Namespace) -> None:
        self._shell = shell
        self._namespace = namespace

    def equip(self, session: Session) -> None:
        """Give a session that was made in code what the notebook's own have."""
        self._namespace.equip(session)

    def name_of(self, session: Session) -> str:
        """Return the first variable that holds a session."""
        return next((name for name, other in self._namespace.sessions().items() if other is session), "")

    def prepare(self, session: Session, written: str) -> Prompt:
        """Attach the resources of `@server:uri`; nothing of what was written is evaluated."""
        return prompt_of(written, session.toolsets(), evaluate=None)

    def toolsets(self, session: Session) -> Sequence[Toolset]:
        """Return the session's own sources, the functions of the notebook and the servers of `%mcp`."""
        return self._namespace.toolsets(session, session.agent)

    def functions(self) -> Sequence[Callable[..., Any]]:
        """Return the functions that `@tool` marks."""
        return self._namespace.functions()

    def begun(self, run: Run) -> None:
        """Have the plots of its tools shown when they have ended."""
        run.listen(FigureOutput().feed)

    def fork(self, session: Session, turns: int) -> str:
        """Bind the fork to the session's name with the next number that is free."""
        stem = _NUMBERED.sub("", self.name_of(session) or DEFAULT_SESSION)
        name = next(name for number in count(2) if self._is_free(name := f"{stem}_{number}"))
        self._namespace.fork(session, name, turns)
        return name

    def folder(self) -> Path:
        """Return the notebook's folder, or where the kernel is."""
        notebook = notebook_of(self._namespace.variables)
        return notebook.parent if notebook is not None else Path.cwd()

    def _is_free(self, name: str) -> bool:
        saved = self._namespace.place().file(name)
        return name not in self._namespace.variables and (saved is None or not path_of(saved).exists())


def load(shell: InteractiveShell, namespace: Namespace) -> None:
    """Have the panels of a shell know the notebook around them."""
    _notebooks[id(shell)] = Around(shell, namespace)


def show(session: Session) -> None:
    """Show a session's panel in the cell under way: what is live where that works, else the conversation so far.

    Raises UsageError outside of IPython.
    """
    shell = get_ipython()
    if shell is None:
        raise UsageError(NOWHERE)
    match front_end(shell).kind:
        case Kind.TEXT:
            say(ELSEWHERE)
        case Kind.BATCH:
            _show_written(shell, session)
        case Kind.LIVE:
            _chat(shell, session).show(publisher(shell, None))


def _show_written(shell: InteractiveShell, session: Session) -> None:
    from agentmagic.widgets.static_html import bundle

    transcript = Transcript()
    for event in session.events:
        transcript.feed(event)
    if transcript.blocks:
        page = html.render(transcript, times=False, prompt=True)
        publisher(shell, None)(bundle(transcript, page, times=False), False)


def _chat(shell: InteractiveShell, session: Session) -> "Chat":
    if session not in _chats:
        from agentmagic.widgets.chat import Chat

        around: Notebook = _around(shell, session)
        chat = _chats[session] = Chat(session, around, publisher(shell, uuid.uuid4().hex))

        def look(_result: object) -> None:
            chat.look()

        cast("Any", shell).events.register("post_run_cell", look)
    return _chats[session]


def _around(shell: InteractiveShell, session: Session) -> Notebook:
    if (around := _notebooks.get(id(shell))) is None:
        return Bare()
    around.equip(session)
    return around
