"""Shows chat panels (`session.chat()`, `%agent chat`), and gives them access to the notebook."""

import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from agentmagic.agent import Agent
from agentmagic.context.rules import commands_here
from agentmagic.display.printout import Printout
from agentmagic.display.transcript import Transcript
from agentmagic.errors import JournalError, UsageError
from agentmagic.history.journal import in_use
from agentmagic.history.journal_reader import SavedConversation, list_conversations
from agentmagic.history.journal_reader import read as read_journal
from agentmagic.jupyter.cell.runner import FigureOutput
from agentmagic.jupyter.frontend import Kind, front_end, publisher, say
from agentmagic.jupyter.magics.agent_commands import GLANCE, IN_A_CELL, AgentCommands
from agentmagic.jupyter.magics.formatting import about_earlier, ago, length
from agentmagic.jupyter.magics.mcp_commands import McpCommands, mcp_magic
from agentmagic.jupyter.magics.options import SESSION_FLAGS, LineMagic, ParsedLine
from agentmagic.jupyter.magics.parser import Help
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, Namespace, can_name_session
from agentmagic.jupyter.prompt.references import prompt_of
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import Prompt
from agentmagic.prompt.attachments import Attachment
from agentmagic.prompt.project_commands import command_prompt, find_command, parse_command
from agentmagic.run import Run
from agentmagic.session import Session
from agentmagic.settings import path_of
from agentmagic.text import plural
from agentmagic.tools.base import Toolset
from agentmagic.widgets.commands import Conversation, EarlierConversation, Notebook

if TYPE_CHECKING:
    from agentmagic.jupyter.panel.chat import Chat

ELSEWHERE = (
    "The chat panel works in JupyterLab and Notebook 7. Here %%agent asks, and %agent history shows the conversation."
)

MOST_NAMES = 500
"""The most variables that a panel suggests after an `@`."""

_NUMBER_SUFFIX = re.compile(r"_\d+$")
_TABULAR = frozenset({"pandas", "polars", "numpy"})

_notebooks: dict[int, "ShellNotebook"] = {}
"""The notebook of each shell that has loaded the extension, by the shell's id."""
_chats: list["Chat"] = []
"""The panels in cells. They and their sessions are never released: a page may show a panel until the kernel ends."""
_docked_chats: list["Chat"] = []
"""The panels that are docked beside the notebook."""


class ShellNotebook(Notebook):
    """Gives the chat panels of a shell access to the notebook: variables, sessions, saved conversations, magics.

    `magic` is `%agent`; `commands` has the methods that carry out its subcommands.
    """

    forks = True

    def __init__(self, namespace: Namespace, magic: LineMagic, commands: AgentCommands) -> None:
        self.looks = namespace.looks
        self._namespace = namespace
        self._commands = commands
        servers = McpCommands(namespace, attended=lambda: False, run_prompt=_refuse_prompt)
        self._magics = {"agent": (magic, commands), "mcp": (mcp_magic(), servers)}

    def name_of(self, session: Session) -> str:
        """Return the name of the first variable whose value is the session, or ""."""
        return next((name for name, other in self._namespace.sessions().items() if other is session), "")

    def prepare(self, session: Session, text: str) -> tuple[Prompt, TurnSettings]:
        """Return the prompt made from text in the panel's box, and the settings of its turn. Nothing is evaluated.

        The values of `@name` and the resources of `@server:uri` are attached. If the text begins with `/NAME`, the
        prompt comes from the project's command file NAME, with the rest of the text filled in.
        """
        self._namespace.save_late()
        attachables = self._namespace.attachables(session, session.agent)
        project_commands = commands_here(rules=session.agent.rules) if text.startswith("/") else ()
        command = parse_command(text, project_commands, [word for word, _ in self.commands()])
        typed_prompt = prompt_of(command[1] if command else text, session.toolsets(), attachables, evaluate=False)
        if command is None:
            return typed_prompt.prompt, TurnSettings(values=typed_prompt.prompt_values, notices=typed_prompt.problems)
        prompt, value = command_prompt(find_command(command[0], project_commands), typed_prompt.prompt)
        return prompt, TurnSettings(values=(value, *typed_prompt.prompt_values), notices=typed_prompt.problems)

    def prompts(self, session: Session) -> Sequence[tuple[str, str]]:
        """Return the project's commands (prompt files) with descriptions, except those named like a subcommand."""
        subcommands = {word for word, _ in self.commands()}
        project_commands = commands_here(rules=session.agent.rules)
        return [(one.name, one.description or one.file) for one in project_commands if one.name not in subcommands]

    def toolsets(self, session: Session) -> Sequence[Toolset]:
        """Return the session's own toolsets, the functions of the notebook and the servers of `%mcp`."""
        return self._namespace.toolsets(session, session.agent)

    def functions(self) -> Sequence[Callable[..., Any]]:
        """Return the functions of the notebook that are marked with `@tool`."""
        return self._namespace.functions()

    def equip(self, session: Session) -> None:
        """Give the notebook's tools to a session that the user's code made, and not a magic."""
        self._namespace.equip(session)

    def show_figures(self, run: Run) -> None:
        """From now on, show the Matplotlib figures that the tools of a run draw."""
        run.listen(FigureOutput().feed)

    def fork(self, session: Session, turns: int) -> str:
        """Copy a session's first turns to a new session. Return its name: the old name with the next free number."""
        name = self._free_name(self.name_of(session))
        self._namespace.fork(session, name, turns)
        return name

    def release(self, name: str, turns: int) -> None:
        """Delete the variable `name`, which has a saved copy of a session, if the copy is not in use.

        The copy is not in use if no panel shows it and it still has `turns` turns. Its saved conversation stays.
        """
        session = self._namespace.variables.get(name)
        is_shown = any(chat.session is session for chat in (*_chats, *_docked_chats))
        if isinstance(session, Session) and session.path is not None and len(session.turns) == turns and not is_shown:
            session.history.close()
            del self._namespace.variables[name]

    def folder(self) -> Path:
        """Return the notebook's folder, or the kernel's working directory if the notebook's file is unknown."""
        return self._namespace.folder

    def commands(self) -> Sequence[tuple[str, str]]:
        """Return the subcommands of `%agent` that a chat panel can run, with their help."""
        magic, _ = self._magics["agent"]
        own = [(word, about) for word, about in magic.summary() if magic.commands[word] not in IN_A_CELL]
        return [("help", "Show all commands, or what one of them does."), *own]

    def read_line(self, session: Session, magic: str, line: str) -> ParsedLine | Help:
        """Return the subcommand in a line of the chat panel, with its arguments, or Help.

        Raises UsageError for an invalid line, and for a subcommand that works only in a cell.
        """
        table, _ = self._magics[magic]
        read = table.read(line)
        # A browser page can send any line. Subcommands for cells only, such as `ask`, would evaluate `{expression}`.
        if isinstance(read, ParsedLine) and table.commands[read.word] in IN_A_CELL:
            raise UsageError(f"%agent {read.word} works only in a cell. Write it there.")
        return table.read(self._with_session(session, magic, line))

    def run_line(self, session: Session, magic: str, line: str) -> str | Printout:
        """Carry out a line of `%agent` or `%mcp` from the chat panel, and return what it prints.

        A subcommand of `%agent` that works on a session gets the panel's session.
        """
        self.read_line(session, magic, line)
        table, commands = self._magics[magic]
        return table.carry_out(commands, self._with_session(session, magic, line))

    def _with_session(self, session: Session, magic: str, line: str) -> str:
        """Return a line of the panel with the name of the panel's session, if its subcommand works on a session."""
        table, _ = self._magics[magic]
        word = next(iter(line.split(maxsplit=1)), "")
        if magic != "agent" or word not in table.commands or "session" not in table.parser(word).arguments:
            return line
        if not (name := self.name_of(session)):
            raise UsageError(
                "The conversation of this panel is no variable any more. Bind it again, or open another one."
            )
        return f"{SESSION_FLAGS[0]} {name} {line}"

    def file(self, session: Session, name: str, data: bytes) -> Attachment:
        """Return an attachment of an uploaded image, document or text; the bytes are not written to a file."""
        return self._namespace.attachables(session, session.agent).attacher.upload(name, data)

    def names(self) -> Sequence[tuple[str, str]]:
        """Return names to suggest after an `@` in a prompt, each with its type or a description, data frames first."""
        names = [(name, _kind(self._namespace.variables.get(name))) for name in self._namespace.attachable_names()]
        names = sorted(names, key=lambda one: (not one[1].startswith("DataFrame"), one[0]))[:MOST_NAMES]
        return [*names, ("error", "the last traceback"), ("out[", "a cell's value"), ("In[", "a cell's code")]

    def conversations(self) -> Sequence[Conversation]:
        """Return the sessions of the notebook, and the saved conversations that are not open in a session."""
        sessions = self._namespace.sessions()
        return [
            *(Conversation(name, plural(len(one.turns), "turn")) for name, one in sessions.items()),
            *self._unopened_conversations(),
        ]

    def suggest_conversation(self, session: Session) -> Conversation | None:
        """Return the saved conversation that was used last; None if none exists, or if a session has a turn."""
        sessions = (session, *self._namespace.sessions().values())
        return (
            None
            if any(one.turns or one.running for one in sessions)
            else next(self._unopened_conversations(GLANCE), None)
        )

    def find_earlier(self, session: Session, *, kin: bool) -> EarlierConversation | None:
        """Return the conversation of an earlier kernel with which the panel of a session goes on by itself, or None.

        It was saved under the name of the session or, with `kin`, under this name with another number, if that variable
        is free. Returns None if the session has begun a conversation, or uses a cassette, whose turns do not follow on
        from others. None too if the user has to decide: about a file that is long or damaged, or that another kernel
        writes.
        """
        name, folder = self.name_of(session), self._namespace.place().folder
        if not name or folder is None or not _may_go_on(session):
            return None
        found = list_conversations(folder, GLANCE)
        mine = (one for one in found if one.turns != 0 and self._continues(one, session, name, kin=kin))
        last = next(mine, None)
        if last is None or last.turns is None or in_use(last.path):
            return None
        try:
            saved = read_journal(last.path)
        except JournalError:
            return None
        if saved.unread_lines or saved.lost_turns or not saved.turns:
            return None
        return EarlierConversation(last.name, about_earlier(last, saved, time.time()), saved.turns)

    def _continues(self, saved: SavedConversation, session: Session, name: str, *, kin: bool) -> bool:
        """Return whether a saved conversation is a session's or, with `kin`, that of its name with another number."""
        if saved.name == name:
            return session.path is not None and path_of(saved.path) == path_of(session.path)
        value = self._namespace.variables.get(saved.name)
        is_free = can_name_session(saved.name) and (value is None or isinstance(value, Agent))
        return kin and is_free and _stem(saved.name) == _stem(name)

    def _unopened_conversations(self, most: int | None = None) -> Iterator[Conversation]:
        """Yield the saved conversations that are not open in a session, the last used first."""
        folder = self._namespace.place().folder
        sessions = self._namespace.sessions().values()
        open_paths = {path_of(one.path) for one in sessions if one.path is not None and one.turns}
        for one in list_conversations(folder, most) if folder is not None else ():
            if one.turns != 0 and path_of(one.path) not in open_paths:
                yield Conversation(one.name, f"{length(one)}, {ago(time.time() - one.modified)}", saved=True)

    def new(self, session: Session) -> Session:
        """Return a new session with the agent of `session`, bound to its name with the next free number.

        Return `session` itself if it has no turns.
        """
        if not session.turns:
            return session
        name = self._free_name(self.name_of(session))
        new_session = self._namespace.draft(name)
        new_session.agent = session.agent
        self._namespace.bind(name, new_session)
        return new_session

    def take_up(self, name: str) -> Session:
        """Return the session in the variable `name`; if it has no turns yet, load its saved conversation."""
        session = self._namespace.draft(name)
        if not session.turns and session.path is not None and path_of(session.path).exists():
            session.restore()
        self._namespace.bind(name, session)
        return session

    def open(self, name: str, *, saved: bool) -> Session:
        """Return the session in the variable `name`; with `saved`, a session with the saved conversation `name`."""
        if not saved:
            return self._namespace.existing_session(name)
        own = self._namespace.variables.get(name)
        is_name = can_name_session(name)
        takes = is_name and (own is None or (isinstance(own, Session) and not own.turns))
        session = name if takes else self._free_name(name if is_name else "")
        self._commands.load(session=session, saved=name)
        return self._namespace.existing_session(session)

    def _free_name(self, name: str) -> str:
        return next(free for number in count(2) if self._is_free(free := f"{_stem(name or DEFAULT_SESSION)}_{number}"))

    def _is_free(self, name: str) -> bool:
        path = self._namespace.place().file(name)
        return name not in self._namespace.variables and (path is None or not path_of(path).exists())


def load(shell: InteractiveShell, namespace: Namespace, magic: LineMagic, commands: AgentCommands) -> None:
    """Create the `ShellNotebook` with which the chat panels of a shell access its notebook."""
    _notebooks[id(shell)] = ShellNotebook(namespace, magic, commands)


def _stem(name: str) -> str:
    return _NUMBER_SUFFIX.sub("", name)


def _may_go_on(session: Session) -> bool:
    """Return whether a session has no turn yet, begins none now, and is neither recorded nor replayed."""
    journal = session.history.journal
    if journal is None or journal.begun or session.turns or session.running or session.running_map:
        return False
    try:
        return session.deck.mode == "live"
    except UsageError:  # the mode in the environment is none: the next turn says so
        return False


def _refuse_prompt(_session: str, _prompt: object) -> None:
    raise UsageError("A prompt of a server is asked in a cell, with %mcp prompt.")


def _kind(value: object) -> str:
    """Return the type name of a value, with the shape of a table or an array."""
    name = type(value).__name__
    # `shape` is read only from objects of known libraries: reading an attribute of other objects may run their code.
    if type(value).__module__.partition(".")[0] in _TABULAR:
        return f"{name} {' by '.join(map(str, cast('Any', value).shape))}" if hasattr(value, "shape") else name
    return name


def show(shell: InteractiveShell, session: Session) -> None:
    """Show a session's chat panel in the running cell. In a batch run, show the conversation so far instead."""
    match front_end(shell).kind:
        case Kind.TEXT:
            say(ELSEWHERE)
        case Kind.BATCH:
            _show_static(shell, session)
        case Kind.LIVE:
            _chat(shell, session).show(publisher(shell, None), publisher(shell, uuid.uuid4().hex))


def _show_static(shell: InteractiveShell, session: Session) -> None:
    from agentmagic.widgets.static_html import bundle

    transcript = Transcript(session.events)
    if transcript.blocks:
        publisher(shell, None)(bundle(transcript, times=False, prompt=True), False)


def start_again(name: str, view: str) -> None:
    """Show a session's chat panel, with its saved conversation, in place of a panel that an earlier kernel showed.

    `view` is the name of the earlier panel's view. The browser page calls this function in the new kernel. Raises
    JournalError if the saved conversation cannot be read.
    """
    shell = cast("InteractiveShell", get_ipython())
    cast("Any", shell).run_line_magic("load_ext", "agentmagic")
    _chat(shell, _notebooks[id(shell)].take_up(name), view).look()


def _chat(shell: InteractiveShell, session: Session, view: str = "") -> "Chat":
    """Return the panel in a cell output that shows a session now, or a new panel. With `view`, it is always new.

    The user can open another conversation in a panel, so the session of a panel can change.
    """
    panel = next((chat for chat in _chats if chat.session is session), None)
    return panel if panel is not None and not view else _new_chat(shell, session, _chats, view)


def docked_chat(shell: InteractiveShell, session: Session) -> "Chat":
    """Return a new chat panel to draw beside the notebook, separate from the session's panels in cell outputs.

    No code names its session, so it also goes on with the conversation that "New chat" began in an earlier kernel.
    """
    return _new_chat(shell, session, _docked_chats, kin=True)


def _new_chat(
    shell: InteractiveShell, session: Session, panels: "list[Chat]", view: str = "", *, kin: bool = False
) -> "Chat":
    from agentmagic.jupyter.panel.chat import Chat  # imported late: it loads the widget, which only a panel needs

    notebook = _notebooks.get(id(shell))
    if notebook is not None:
        notebook.equip(session)
    chat = Chat(session, notebook or Notebook(), view, kin=kin)
    panels.append(chat)

    def look(_result: object) -> None:
        chat.look()

    # Look again after each cell: the cell may have changed the session's variable, its agent, keys or servers.
    cast("Any", shell).events.register("post_run_cell", look)
    return chat
