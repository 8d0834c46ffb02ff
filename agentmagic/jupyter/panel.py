"""`session.chat()` and `%agent chat`: the panel in the running cell, and the notebook around it."""

import re
import uuid
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from agentmagic.display.transcript import Transcript
from agentmagic.errors import UsageError
from agentmagic.jupyter.frontend import Kind, front_end, publisher, say
from agentmagic.jupyter.namespace import DEFAULT_SESSION, Namespace
from agentmagic.jupyter.notebook_file import notebook_of
from agentmagic.jupyter.prompt import prompt_of
from agentmagic.jupyter.runner import FigureOutput
from agentmagic.messages import Prompt
from agentmagic.run import Run
from agentmagic.session import Session
from agentmagic.settings import path_of
from agentmagic.tools.base import Toolset
from agentmagic.widgets.commands import Notebook

if TYPE_CHECKING:
    from agentmagic.widgets.chat import Chat

ELSEWHERE = (
    "The chat panel works in JupyterLab and Notebook 7. Here %%agent asks, and %agent history shows the conversation."
)
NOWHERE = "The chat panel works in a notebook, in JupyterLab or Notebook 7. In code, use session.ask()."

_NUMBERED = re.compile(r"_\d+$")

_namespaces: dict[int, Namespace] = {}
"""The namespace of each shell that has loaded the extension, by the shell's id."""
_chats: dict[Session, "Chat"] = {}
"""The panels; each keeps its session: a page may show the panel until the kernel ends."""


class ShellNotebook(Notebook):
    """The notebook of a shell, as its panels see it."""

    forks = True

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def name_of(self, session: Session) -> str:
        """Return the first variable that holds a session."""
        return next((name for name, other in self._namespace.sessions().items() if other is session), "")

    def prepare(self, session: Session, written: str) -> Prompt:
        """Attach the resources of `@server:uri`; nothing of the text is evaluated."""
        return prompt_of(written, session.toolsets(), evaluate=None)

    def toolsets(self, session: Session) -> Sequence[Toolset]:
        """Return the session's own sources, the functions of the notebook and the servers of `%mcp`."""
        return self._namespace.toolsets(session, session.agent)

    def functions(self) -> Sequence[Callable[..., Any]]:
        """Return the functions that `@tool` marks."""
        return self._namespace.functions()

    def begun(self, run: Run) -> None:
        """Show the figures of the run's tools."""
        run.listen(FigureOutput().feed)

    def fork(self, session: Session, turns: int) -> str:
        """Bind the fork to the session's name with the next free number."""
        stem = _NUMBERED.sub("", self.name_of(session) or DEFAULT_SESSION)
        name = next(name for number in count(2) if self._is_free(name := f"{stem}_{number}"))
        self._namespace.fork(session, name, turns)
        return name

    def folder(self) -> Path:
        """Return the notebook's folder, or the kernel's if the notebook is unknown."""
        notebook = notebook_of(self._namespace.variables)
        return notebook.parent if notebook is not None else Path.cwd()

    def _is_free(self, name: str) -> bool:
        saved = self._namespace.place().file(name)
        return name not in self._namespace.variables and (saved is None or not path_of(saved).exists())


def load(shell: InteractiveShell, namespace: Namespace) -> None:
    """Give the panels of a shell the notebook around them."""
    _namespaces[id(shell)] = namespace


def show(session: Session) -> None:
    """Show a session's panel in the running cell; in a batch run, the conversation so far.

    Raises UsageError outside of IPython.
    """
    shell = get_ipython()
    if shell is None:
        raise UsageError(NOWHERE)
    match front_end(shell).kind:
        case Kind.TEXT:
            say(ELSEWHERE)
        case Kind.BATCH:
            _show_static(shell, session)
        case Kind.LIVE:
            _chat(shell, session).show(publisher(shell, None))


def _show_static(shell: InteractiveShell, session: Session) -> None:
    from agentmagic.widgets.static_html import bundle

    transcript = Transcript(session.events)
    if transcript.blocks:
        publisher(shell, None)(bundle(transcript, times=False, prompt=True), False)


def start_again(name: str, view: str) -> None:
    """Show a session's panel, with its saved conversation, in the place of a view of an earlier kernel.

    The page calls this in the new kernel. Raises JournalError if the saved conversation cannot be read.
    """
    shell = cast("InteractiveShell", get_ipython())
    cast("Any", shell).run_line_magic("load_ext", "agentmagic")
    namespace = _namespaces[id(shell)]
    session = namespace.draft(name)
    if not session.turns and session.path is not None and path_of(session.path).exists():
        session.restore()
    namespace.bind(name, session)
    _chat(shell, session, view).look()


def _chat(shell: InteractiveShell, session: Session, view: str = "") -> "Chat":
    if view or session not in _chats:
        from agentmagic.widgets.chat import Chat  # loads the widget, which only a panel needs

        chat = _chats[session] = Chat(session, _notebook(shell, session), publisher(shell, uuid.uuid4().hex), view)

        def look(_result: object) -> None:
            chat.look()

        # A cell may have changed the session's variable, its agent, keys or servers.
        cast("Any", shell).events.register("post_run_cell", look)
    return _chats[session]


def _notebook(shell: InteractiveShell, session: Session) -> Notebook:
    if (namespace := _namespaces.get(id(shell))) is None:
        return Notebook()
    namespace.equip(session)  # a session made in code gets the notebook's tools too
    return ShellNotebook(namespace)
