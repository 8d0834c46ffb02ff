"""The notebook's namespace: its variables (including sessions), its functions as tools, and its MCP servers."""

import asyncio
import builtins
import re
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from itertools import count
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from agentmagic.agent import Agent
from agentmagic.context.rules import commands_here
from agentmagic.errors import SessionBusy, UsageError
from agentmagic.events import Event, HistoryCut, TurnStarted
from agentmagic.jupyter.notebook.file import KnownNotebook
from agentmagic.jupyter.prompt.attachables import Attachables
from agentmagic.messages import ToolDef
from agentmagic.prompt.attachments import UNKNOWN, Attacher
from agentmagic.providers.catalog import ModelInfo
from agentmagic.providers.registry import address_of, info
from agentmagic.replay.deck import Deck
from agentmagic.runtime.engine import Listeners, engine
from agentmagic.session import Session
from agentmagic.settings import Replay, learn_secrets, path_of, schema_only
from agentmagic.text import a_type, did_you_mean
from agentmagic.tools.base import ServersUnreachable, Tool, Toolset, list_connected, list_source, notices_of
from agentmagic.tools.functions import Functions, function_tool, is_tool
from agentmagic.tools.notebook import NotebookTools

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers

Variables = MutableMapping[str, Any]
_UNBOUND: Any = object()

DEFAULT_SESSION = "agent"
"""The name of the variable with the default session: the session of `%%agent` without a NAME."""


_HISTORY_NAME = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[oid]h")
"""Names of the variables in which IPython stores inputs and results."""


def check_name(name: str | None, what: str = "name a session") -> None:
    """Raise UsageError if a name is a builtin, `In`, `Out`, or not valid for a variable. None is allowed.

    `what` says in the error message what the name was needed for, as in "'In' cannot name a session".
    """
    if name is not None and (name in ("In", "Out") or hasattr(builtins, name)):
        raise UsageError(f"{name!r} cannot {what}: it is a name of Python or IPython itself.")
    if name is not None and (not name.isidentifier() or iskeyword(name)):
        raise UsageError(f"{name!r} cannot {what}: a variable has letters, digits and _ in its name, no digit first.")


def check_variable(name: str | None) -> None:
    """Raise UsageError if an answer cannot be bound to a name."""
    check_name(name, "take an answer")
    if name is not None and _HISTORY_NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot take an answer: IPython keeps inputs and results under it.")


def can_name_session(name: str) -> bool:
    """Return whether a new session can have this name."""
    try:
        check_name(name)
        _check_visible(name)
    except UsageError:
        return False
    return True


class MarkedFunctions:
    """A toolset of the notebook's functions that are marked with `@tool`. Each turn gets their present definitions."""

    is_local = True

    def __init__(self, variables: Variables) -> None:
        self._variables = variables

    async def tools(self) -> Sequence[Tool]:
        """Return the notebook's functions that are marked with `@tool`, as tools."""
        return [function_tool(function) for function in self.functions()]

    def functions(self) -> list[Callable[..., Any]]:
        """Return the notebook's functions that are marked with `@tool`, each once."""
        # Variables that begin with _ are left out: IPython stores values there that cells have shown, also functions.
        values = [
            value for name, value in tuple(self._variables.items()) if not name.startswith("_") and is_tool(value)
        ]
        return list(dict.fromkeys(values))

    async def aclose(self) -> None:
        """Do nothing: functions have nothing to close."""


class ChosenTools:
    """A toolset that selects tools by name from other toolsets."""

    def __init__(self, names: Sequence[str], toolsets: Sequence[Toolset]) -> None:
        self._names = names
        self.sources = toolsets

    def over(self, sources: Sequence[Toolset]) -> "ChosenTools":
        """Return a toolset that selects the same names from the toolsets `sources`."""
        return ChosenTools(self._names, sources)

    async def tools(self) -> Sequence[Tool]:
        """Return the selected tools in the order in which their names were given.

        Raises UsageError if a tool is missing. Raises ServersUnreachable instead if a failed server may have it.
        """
        listings = await asyncio.gather(*map(list_source, self.sources))
        by_name = _by_name(listings)
        tools = [by_name[name] for name in self._names if name in by_name]
        if len(tools) == len(self._names):
            return tools
        missing = next(name for name in self._names if name not in by_name)
        hint = did_you_mean(missing, by_name)
        message = f"There is no function or tool {missing!r} to offer.{hint} Tools: {', '.join(by_name) or 'none'}."
        message = " ".join((message, *(notice for source in self.sources for notice in notices_of(source))))
        if problems := [problem for _, unreachable in listings for problem in unreachable]:
            raise ServersUnreachable(message, tools, problems)
        raise UsageError(message)

    async def connected_tools(self) -> tuple[Sequence[Tool], Sequence[str]]:
        """Return the selected tools that need no new connection to a server, and the servers that are not connected."""
        listings = await asyncio.gather(*map(list_connected, self.sources))
        by_name = _by_name(listings)
        return [by_name[name] for name in self._names if name in by_name], [
            one for _, servers in listings for one in servers
        ]

    async def aclose(self) -> None:
        """Do nothing: the session closes the toolsets from which this one selects."""


def _by_name(listings: Iterable[tuple[Sequence[Tool], object]]) -> dict[str, Tool]:
    # Both are reversed, so that the first of two tools with the same name is kept.
    return {tool.name: tool for tools, _ in reversed(list(listings)) for tool in reversed(tools)}


class Namespace:
    """The sessions of a notebook and what they share: functions, the servers of `%mcp`, the cassette (a recording).

    `place` returns where new sessions of the running cell are saved, as a `SaveFolder`. `hidden`: the names of
    variables that IPython defines.
    """

    def __init__(self, variables: Variables, notebook: KnownNotebook, hidden: frozenset[str] = frozenset()) -> None:
        self.notebook = notebook
        self.hidden = hidden
        self.place = notebook.place
        self.variables = variables
        # The session that writes each conversation file. If a new session gets the file, the old one closes it.
        self._writers: WeakValueDictionary[Path, Session] = WeakValueDictionary()
        # Sessions that have the notebook's tools. Not stored by name: a session can have several names, or none.
        self._equipped_sessions: WeakSet[Session] = WeakSet()
        self._servers: McpServers | None = None
        # Sessions that use the notebook's cassette, the file to which turns are recorded.
        self._joined_sessions: WeakSet[Session] = WeakSet()
        # Sessions made by magics while the notebook's file was unknown. They are saved when the file is known.
        self._unsaved_sessions: WeakSet[Session] = WeakSet()
        self._numbers = count(1)
        self._deck = Deck()
        self._functions = MarkedFunctions(variables)
        self._notebook_tools = NotebookTools()
        self.listeners = Listeners[Event | HistoryCut]()
        """Called with the events of every session of the notebook, like the listeners of `Session.listen`."""
        self.looks = Listeners[None]()
        """Called when the user may have changed settings that panels show: the model, the permission, the rules."""

    def insert(self, cassette: Path) -> None:
        """Use a cassette (a file of recorded turns) in all sessions of the notebook, including later sessions."""
        self._deck.insert(cassette)
        for session in {*self.sessions().values(), *self._joined_sessions}:
            session.deck.insert(cassette)

    def choose(self, mode: Replay, *, timed: bool = False) -> None:
        """Make all sessions of the notebook record to their cassette (a file of turns), replay it, or ignore it."""
        self._deck.choose(mode, timed=timed)
        for session in {*self.sessions().values(), *self._joined_sessions}:
            session.deck.choose(mode, timed=timed)

    @property
    def replays(self) -> bool:
        """Whether the notebook replays recorded turns (the mode `replay`), which needs no MCP server."""
        return self._deck.mode == "replay"

    @property
    def uses_cassette(self) -> bool:
        """Whether the notebook has a cassette, or is in a mode that needs one."""
        return self._deck.path is not None or self._deck.mode != "live"

    def attachables(self, session: Session, agent: Agent) -> Attachables:
        """Return the variables and files that a prompt can attach with `@name`, for the model of `agent`."""

        def model() -> ModelInfo:
            choice = session.model(agent)
            return info(choice.name, address_of(choice))

        learn_secrets()  # so that secrets in attached values are blanked
        return Attachables(self.variables, Attacher(model, schema_only=schema_only()), self.hidden, self.folder)

    def attachable_names(self) -> list[str]:
        """Return the names of the variables to suggest after an `@` in a prompt."""
        return Attachables(self.variables, Attacher(lambda: UNKNOWN), self.hidden).names()

    @property
    def folder(self) -> Path:
        """The folder of the notebook, or the kernel's working directory if the notebook's file is unknown."""
        notebook = self.place().notebook
        return notebook.parent if notebook is not None else Path.cwd()

    def project_commands(self) -> list[str]:
        """Return the names of the commands (prompts in files) that the user's project defines."""
        return [one.name for one in commands_here()]

    def need_servers(self) -> "McpServers":
        """Return the group of servers to which `%mcp` adds. The first call creates the group for all sessions."""
        if self._servers is None:
            from agentmagic.tools.mcp import McpServers  # imported late because it is slow to import

            self._servers = McpServers()
            engine().at_close(self._servers.aclose)
            for session in self._equipped_sessions:
                session.add_toolset(self._servers)
        return self._servers

    def server_groups(self) -> "list[McpServers]":
        """Return the groups of MCP servers in the notebook, each once: the group of `%mcp`, then each session's."""
        if "agentmagic.tools.mcp" not in sys.modules:  # not imported: no server exists, and the import is slow
            return []
        from agentmagic.tools.mcp import McpServers

        own = (self._servers,) if self._servers else ()
        of_sessions = (source for one in self.sessions().values() for source in one.toolsets())
        return list(dict.fromkeys((*own, *(source for source in of_sessions if isinstance(source, McpServers)))))

    def group_of(self, server: str) -> "McpServers | None":
        """Return the first group with an MCP server of this name, or None; the group of `%mcp` is searched first."""
        groups = self.server_groups()
        return next((group for group in groups if any(one.name == server for one in group.servers)), None)

    def bind_default(self) -> str | None:
        """Bind the default session to the variable `agent`; return a message if the variable has another value."""
        value = self.variables.get(DEFAULT_SESSION, _UNBOUND)
        if value is _UNBOUND or isinstance(value, Session | Agent):
            self.session(DEFAULT_SESSION)
            return None
        return f"{DEFAULT_SESSION} is {a_type(value)} of yours and stays. {_other_session_hint(DEFAULT_SESSION)}"

    def session(self, name: str) -> Session:
        """Return the session in the variable `name`. If the variable is unbound or has an Agent, bind a new session.

        Raises UsageError if the variable has another value.
        """
        session = self.draft(name)
        self.bind(name, session)
        return session

    def draft(self, name: str) -> Session:
        """Return the session in the variable `name`. If it is unbound or has an Agent, return a new, unbound session.

        Raises UsageError if the variable has another value.
        """
        self.place()  # finds the notebook again if it was renamed
        value = self.variables.get(name, _UNBOUND)
        if value is _UNBOUND:
            value = self._make(name, self._recipe())
        elif isinstance(value, Agent):
            value = self._make(name, value)
        elif not isinstance(value, Session):
            raise UsageError(f"{name} is {a_type(value)}, no session, and is left alone. {_other_session_hint(name)}")
        self._save_if_known(value, name)
        self.equip(value, name)
        return value

    def save_late(self) -> None:
        """Begin to save sessions that were made while the notebook's file was unknown, if the file is known now."""
        if self._unsaved_sessions:
            for name, session in self.sessions().items():
                self._save_if_known(session, name)

    def _save_if_known(self, session: Session, name: str) -> None:
        if session not in self._unsaved_sessions or (path := self.place().file(name)) is None:
            return
        with suppress(SessionBusy):  # if a turn is running, the next call saves the session
            session.save_from_now(path)
            self._unsaved_sessions.discard(session)
            self._writers[path] = session
            self.notebook.remember()

    def bind(self, name: str, session: Session) -> None:
        """Bind a session, which `draft` has returned, to the variable `name`."""
        if self.variables.get(name) is session:
            return
        self.variables[name] = session
        if (path := self.place().file(name)) is not None:
            self._writers[path] = session

    def fork(self, session: Session, name: str, turns: int | None) -> Session:
        """Bind and return a new session that begins with the first `turns` turns of another session, or all.

        The new session is saved if the notebook's file is known. Raises UsageError if the name begins with _ or is not
        free, or if a conversation of this name is saved already.
        """
        _check_visible(name)
        if name in self.variables:
            raise UsageError(
                f"{name} is {a_type(self.variables[name])} of yours and stays. Choose a name that is free."
            )
        path = self.place().file(name)
        if path is not None and path_of(path).exists():
            raise UsageError(f"A conversation of the name {name} is saved already. Choose another name.")
        branch = session.fork(turns)
        self._equipped_sessions.add(branch)  # a fork has the toolsets of its original
        self._join(branch, name)
        branch.listen(self._remember)
        if path is not None:
            branch.save(path)
            self.notebook.remember()
        self.bind(name, branch)
        return branch

    def functions(self) -> list[Callable[..., Any]]:
        """Return the functions of the notebook that are marked with `@tool`."""
        return self._functions.functions()

    def existing_session(self, name: str) -> Session:
        """Return the session in the variable `name`. Make a new one only for the default name, if that is unbound.

        Raises UsageError if another name is unbound, or if the variable has an Agent or another value.
        """
        if name != DEFAULT_SESSION and name not in self.variables:
            sessions = self.sessions()
            hint = did_you_mean(name, sessions)
            raise UsageError(f"There is no session {name}.{hint} Sessions: {', '.join(sessions) or 'none'}.")
        if isinstance(self.variables.get(name), Agent):
            raise UsageError(
                f"{name} is an Agent, a recipe without a conversation. %%agent {name} makes a session of it."
            )
        return self.session(name)

    def sessions(self) -> dict[str, Session]:
        """Return the sessions in the notebook's variables, by name."""
        items = tuple(self.variables.items())  # a copy: tools in other threads may bind variables
        return {name: value for name, value in items if isinstance(value, Session) and not name.startswith("_")}

    def offer_notebook(self, session: Session, *, offered: bool) -> None:
        """Begin or stop offering a session the tools that read and run the notebook, from the next turn on."""
        session.remove_toolset(self._notebook_tools)
        if offered:
            session.add_toolset(self._notebook_tools)

    def toolsets(
        self, session: Session, agent: Agent, tool_names: Sequence[str] | None = None, *, notebook: bool = False
    ) -> tuple[Toolset, ...]:
        """Return the toolsets of a turn, without empty ones. With `tool_names`, one toolset selects only these tools.

        `notebook` adds the tools that read and run the notebook.
        Raises UsageError if one of `tool_names` is not a function, and no other toolset may have a tool of that name.
        """
        sources = tuple(source for source in session.toolsets(agent) if not self._is_empty(source))
        if notebook and self._notebook_tools not in sources:
            sources = (*sources, self._notebook_tools)
        if tool_names is None:
            return sources
        values = {name: self.variables.get(name) for name in tool_names}
        functions = {name: one for name, one in values.items() if callable(one) and not isinstance(one, type)}
        if not sources and (missing := [name for name in tool_names if name not in functions]):
            candidates = [
                name for name, value in self.variables.items() if callable(value) and not isinstance(value, type)
            ]
            hint = did_you_mean(missing[0], candidates)
            raise UsageError(
                f"--tools names {missing[0]}, which is no function of the notebook.{hint} Define it first."
            )
        # The user names a function, whose tool may have another name. Toolsets find a tool by the tool's name.
        names = [function_tool(functions[name]).name if name in functions else name for name in tool_names]
        return (ChosenTools(names, (Functions(functions.values()), *sources)),)

    def definitions(self, toolsets: Iterable[Toolset]) -> tuple[list[ToolDef], list[str]]:
        """Return the definitions of the tools in toolsets, and the problems of servers that failed.

        Servers are connected if needed.
        """
        listings = [engine().call(list_source(toolset)) for toolset in toolsets]
        definitions = [tool.definition for tools, _ in listings for tool in tools]
        return definitions, [problem for _, problems in listings for problem in problems]

    def _remember(self, event: Event | HistoryCut) -> None:
        if isinstance(event, TurnStarted):  # the folder of conversations exists from now on
            self.notebook.remember()
        self.listeners.tell(event)

    def join(self, session: Session) -> None:
        """Connect a session to the notebook's cassette (a recording), under the name of the session's variable.

        The session was made in the user's code. In the cassette, a session without a variable is named "unnamed N",
        numbered in the order of the first turns.
        """
        if session not in self._joined_sessions:
            names = (name for name, one in self.sessions().items() if one is session)
            name = next(names, "")
            self._join(session, name or f"unnamed {next(self._numbers)}")
            session.name = name

    def _join(self, session: Session, name: str) -> None:
        """Connect a session to the notebook's cassette (a recording) under a name, which traces and costs show too."""
        self._joined_sessions.add(session)
        session.name = session.name or name
        session.deck.join("" if name == DEFAULT_SESSION else name, self._deck)

    def _is_empty(self, source: Toolset) -> bool:
        if self._servers is not None and source is self._servers:
            return not self._servers.servers
        return source is self._functions and not any(map(is_tool, tuple(self.variables.values())))

    def _recipe(self) -> Agent:
        default = self.variables.get(DEFAULT_SESSION)
        return default.agent if isinstance(default, Session) else Agent()

    def _make(self, name: str, recipe: Agent) -> Session:
        """Make a session that is saved beside the notebook, if the notebook's file is known."""
        _check_visible(name)
        path = self.place().file(name)
        earlier = self._writers.get(path) if path is not None else None
        if earlier is not None and not earlier.running:
            # Code may still use an earlier session of this name. Close its file: the new session writes to it now.
            earlier.history.close()
        session = Session(recipe, path=path)
        if path is None:
            self._unsaved_sessions.add(session)
        return session

    def equip(self, session: Session, name: str | None = None) -> None:
        """Give a session the notebook's functions, the servers of `%mcp` and the cassette, if it lacks them."""
        if session in self._equipped_sessions:
            return
        if name is None:
            self.join(session)
        else:
            self._join(session, name)
        self._equipped_sessions.add(session)
        session.listen(self._remember)
        session.add_toolset(self._functions)
        if self._servers is not None:
            session.add_toolset(self._servers)


def _check_visible(name: str) -> None:
    """Raise UsageError if the name of a session begins with _, because the lists of sessions leave out such names."""
    if name.startswith("_"):
        raise UsageError(
            f"No session is made under {name}: lists leave out names that begin with _. Choose another name."
        )


def _other_session_hint(name: str) -> str:
    return f"Use another session, %%agent NAME, or rename yours and del {name}."
