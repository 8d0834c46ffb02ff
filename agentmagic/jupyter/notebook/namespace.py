"""The notebook's namespace: the sessions that are its variables, its functions as tools, its servers."""

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
"""The variable that holds the session of `%%agent` without a NAME."""


_KEPT = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[oid]h")
"""The names under which IPython keeps inputs and results."""


def check_name(name: str | None, what: str = "name a session") -> None:
    """Raise UsageError for a name that no session can have, or no variable that is to do `what`."""
    if name is not None and (name in ("In", "Out") or hasattr(builtins, name)):
        raise UsageError(f"{name!r} cannot {what}: it is a name of Python or IPython itself.")
    if name is not None and (not name.isidentifier() or iskeyword(name)):
        raise UsageError(f"{name!r} cannot {what}: a variable has letters, digits and _ in its name, no digit first.")


def check_variable(name: str | None) -> None:
    """Raise UsageError for a name to which no answer can be bound."""
    check_name(name, "take an answer")
    if name is not None and _KEPT.fullmatch(name):
        raise UsageError(f"{name!r} cannot take an answer: IPython keeps inputs and results under it.")


def can_name_session(name: str) -> bool:
    """Return whether a session can be made under a name."""
    try:
        check_name(name)
        _check_listed(name)
    except UsageError:
        return False
    return True


class MarkedFunctions:
    """The functions of the notebook that `@tool` marks, as they are defined when a turn begins: a toolset."""

    is_local = True

    def __init__(self, variables: Variables) -> None:
        self._variables = variables

    async def tools(self) -> Sequence[Tool]:
        """Return the marked functions as tools."""
        return [function_tool(function) for function in self.functions()]

    def functions(self) -> list[Callable[..., Any]]:
        """Return the marked functions, each once."""
        # IPython keeps results under names that begin with _: a function shown by a cell would be found twice.
        found = [value for name, value in tuple(self._variables.items()) if not name.startswith("_") and is_tool(value)]
        return list(dict.fromkeys(found))

    async def aclose(self) -> None:
        """Do nothing: functions hold nothing open."""


class Chosen:
    """Some tools of other toolsets, by name: a toolset."""

    def __init__(self, names: Sequence[str], toolsets: Sequence[Toolset]) -> None:
        self._names = names
        self.sources = toolsets

    def over(self, sources: Sequence[Toolset]) -> "Chosen":
        """Return a choice of the same names from other toolsets."""
        return Chosen(self._names, sources)

    async def tools(self) -> Sequence[Tool]:
        """Return the chosen tools in the order of the choice.

        Raises UsageError if one is missing, and ServersUnreachable if it may be a tool of a server that failed.
        """
        listed = await asyncio.gather(*map(list_source, self.sources))
        found = _by_name(listed)
        chosen = [found[name] for name in self._names if name in found]
        if len(chosen) == len(self._names):
            return chosen
        missing = next(name for name in self._names if name not in found)
        hint = did_you_mean(missing, found)
        message = f"There is no function or tool {missing!r} to offer.{hint} Tools: {', '.join(found) or 'none'}."
        message = " ".join((message, *(words for source in self.sources for words in notices_of(source))))
        if problems := [problem for _, unreachable in listed for problem in unreachable]:
            raise ServersUnreachable(message, chosen, problems)
        raise UsageError(message)

    async def listed(self) -> tuple[Sequence[Tool], Sequence[str]]:
        """Return the chosen tools that can be had without connecting a server, and the servers left out."""
        listed = await asyncio.gather(*map(list_connected, self.sources))
        found = _by_name(listed)
        return [found[name] for name in self._names if name in found], [one for _, left in listed for one in left]

    async def aclose(self) -> None:
        """Do nothing: the toolsets belong to the session."""


def _by_name(listed: Iterable[tuple[Sequence[Tool], object]]) -> dict[str, Tool]:
    # Reversed, so that of two tools of one name the first is chosen.
    return {tool.name: tool for tools, _ in reversed(list(listed)) for tool in reversed(tools)}


class Namespace:
    """The sessions of a notebook, and what all of them share: its functions and the servers of `%mcp`.

    `place` returns, for the running cell, where the sessions that it makes are saved. `hidden` are IPython's names.
    """

    def __init__(self, variables: Variables, notebook: KnownNotebook, hidden: frozenset[str] = frozenset()) -> None:
        self.notebook = notebook
        self.hidden = hidden
        self.place = notebook.place
        self.variables = variables
        # The session that writes each file, to close the file when another session takes over its name.
        self._saved: WeakValueDictionary[Path, Session] = WeakValueDictionary()
        # Sessions that have the notebook's tools: a session may have several names, or lose its own.
        self._equipped: WeakSet[Session] = WeakSet()
        self._servers: McpServers | None = None
        # Sessions that have the notebook's cassette.
        self._joined: WeakSet[Session] = WeakSet()
        # Sessions made here when the notebook was not known. They are saved once it is.
        self._unsaved: WeakSet[Session] = WeakSet()
        self._numbers = count(1)
        self._deck = Deck()
        self._functions = MarkedFunctions(variables)
        self._look = NotebookTools()
        self.listeners = Listeners[Event | HistoryCut]()
        """Called with what happens in every session of the notebook, as the listeners of `Session.listen` are."""
        self.looks = Listeners[None]()
        """Called when the user has chosen in a panel what answers, or what may run."""

    def insert(self, cassette: Path) -> None:
        """Use a cassette in all sessions of the notebook, those that are made later included."""
        self._deck.insert(cassette)
        for session in {*self.sessions().values(), *self._joined}:
            session.deck.insert(cassette)

    def choose(self, mode: Replay, *, timed: bool = False) -> None:
        """Use the cassette in this mode in all sessions of the notebook."""
        self._deck.choose(mode, timed=timed)
        for session in {*self.sessions().values(), *self._joined}:
            session.deck.choose(mode, timed=timed)

    @property
    def replays(self) -> bool:
        """Whether the notebook is in the mode `replay`, which needs no server."""
        return self._deck.mode == "replay"

    def attachables(self, session: Session, agent: Agent) -> Attachables:
        """Return what a prompt to an agent of a session can attach."""

        def model() -> ModelInfo:
            chosen = session.model(agent)
            return info(chosen.name, address_of(chosen))

        learn_secrets()  # before any value is shown
        return Attachables(self.variables, Attacher(model, schema_only=schema_only()), self.hidden, self.folder)

    def attachable_names(self) -> list[str]:
        """Return the names of the variables to offer behind an `@`."""
        return Attachables(self.variables, Attacher(lambda: UNKNOWN), self.hidden).names()

    @property
    def folder(self) -> Path:
        """The notebook's folder, or the kernel's if the notebook is unknown."""
        notebook = self.place().notebook
        return notebook.parent if notebook is not None else Path.cwd()

    def project_commands(self) -> list[str]:
        """Return the names of the project's commands."""
        return [one.name for one in commands_here()]

    def need_servers(self) -> "McpServers":
        """Return the servers of `%mcp`, made and offered to every session if there were none yet."""
        if self._servers is None:
            from agentmagic.tools.mcp import McpServers  # takes a while to load

            self._servers = McpServers()
            engine().at_close(self._servers.aclose)
            for session in self._equipped:
                session.add_toolset(self._servers)
        return self._servers

    def server_groups(self) -> "list[McpServers]":
        """Return the servers of `%mcp` and those of the sessions' agents, each group once."""
        if "agentmagic.tools.mcp" not in sys.modules:  # it takes a while to load, and without it no server exists
            return []
        from agentmagic.tools.mcp import McpServers

        own = (self._servers,) if self._servers else ()
        of_sessions = (source for one in self.sessions().values() for source in one.toolsets())
        return list(dict.fromkeys((*own, *(source for source in of_sessions if isinstance(source, McpServers)))))

    def group_of(self, server: str) -> "McpServers | None":
        """Return the group that holds a server, that of `%mcp` first, or None."""
        groups = self.server_groups()
        return next((group for group in groups if any(one.name == server for one in group.servers)), None)

    def bind_default(self) -> str | None:
        """Make the default session a variable; return what to print if its name holds another value."""
        value = self.variables.get(DEFAULT_SESSION, _UNBOUND)
        if value is _UNBOUND or isinstance(value, Session | Agent):
            self.session(DEFAULT_SESSION)
            return None
        return f"{DEFAULT_SESSION} is {a_type(value)} of yours and stays. {_another(DEFAULT_SESSION)}"

    def session(self, name: str) -> Session:
        """Return the session of a name; make and bind one if the name is free or holds an Agent.

        Raises UsageError if it holds another value.
        """
        session = self.draft(name)
        self.bind(name, session)
        return session

    def draft(self, name: str) -> Session:
        """Return the session of a name; make one, without binding it, if the name is free or holds an Agent.

        Raises UsageError if it holds another value.
        """
        self.place()  # notices that the notebook was renamed
        value = self.variables.get(name, _UNBOUND)
        if value is _UNBOUND:
            value = self._make(name, self._recipe())
        elif isinstance(value, Agent):
            value = self._make(name, value)
        elif not isinstance(value, Session):
            raise UsageError(f"{name} is {a_type(value)}, no session, and is left alone. {_another(name)}")
        self._save_if_known(value, name)
        self.equip(value, name)
        return value

    def save_late(self) -> None:
        """Save from now on the sessions that were made here when the notebook was not known, if it is known now."""
        if self._unsaved:
            for name, session in self.sessions().items():
                self._save_if_known(session, name)

    def _save_if_known(self, session: Session, name: str) -> None:
        if session not in self._unsaved or (path := self.place().file(name)) is None:
            return
        with suppress(SessionBusy):  # then the next call saves it
            session.save_from_now(path)
            self._unsaved.discard(session)
            self._saved[path] = session
            self.notebook.remember()

    def bind(self, name: str, session: Session) -> None:
        """Make a session that `draft` has returned the variable of its name."""
        if self.variables.get(name) is session:
            return
        self.variables[name] = session
        if (path := self.place().file(name)) is not None:
            self._saved[path] = session

    def fork(self, session: Session, name: str, turns: int | None) -> Session:
        """Bind a session that begins with the first turns of another, or with all; it is saved like every other.

        Raises UsageError if the name is not free, or the conversation cannot be saved.
        """
        _check_listed(name)
        if name in self.variables:
            raise UsageError(
                f"{name} is {a_type(self.variables[name])} of yours and stays. Choose a name that is free."
            )
        path = self.place().file(name)
        if path is not None and path_of(path).exists():
            raise UsageError(f"A conversation of the name {name} is saved already. Choose another name.")
        forked = session.fork(turns)
        self._equipped.add(forked)  # a fork has the toolsets of its original
        self._join(forked, name)
        forked.listen(self._remember)
        if path is not None:
            forked.save(path)
            self.notebook.remember()
        self.bind(name, forked)
        return forked

    def functions(self) -> list[Callable[..., Any]]:
        """Return the functions of the notebook that `@tool` marks."""
        return self._functions.functions()

    def known(self, name: str) -> Session:
        """Return the session of a name; only the default session is made if its name is free.

        Raises UsageError for another unbound name, and for a name that holds an Agent, which stays one.
        """
        if name != DEFAULT_SESSION and name not in self.variables:
            known = self.sessions()
            hint = did_you_mean(name, known)
            raise UsageError(f"There is no session {name}.{hint} Sessions: {', '.join(known) or 'none'}.")
        if isinstance(self.variables.get(name), Agent):
            raise UsageError(
                f"{name} is an Agent, a recipe without a conversation. %%agent {name} makes a session of it."
            )
        return self.session(name)

    def sessions(self) -> dict[str, Session]:
        """Return the sessions that variables hold, by name."""
        items = tuple(self.variables.items())  # a copy: tools in other threads may bind variables
        return {name: value for name, value in items if isinstance(value, Session) and not name.startswith("_")}

    def offer_notebook(self, session: Session, *, offered: bool) -> None:
        """Offer the tools of the notebook in every later turn of a session, or no more."""
        session.remove_toolset(self._look)
        if offered:
            session.add_toolset(self._look)

    def toolsets(
        self, session: Session, agent: Agent, chosen: Sequence[str] | None = None, *, notebook: bool = False
    ) -> tuple[Toolset, ...]:
        """Return the sources of tools of a turn, without empty ones; with `chosen`, one source of these tools.

        With `notebook`, the tools of the notebook are among them.
        Raises UsageError for a chosen name that no source can have.
        """
        sources = tuple(source for source in session.toolsets(agent) if not self._is_empty(source))
        if notebook and self._look not in sources:
            sources = (*sources, self._look)
        if chosen is None:
            return sources
        bound = {name: self.variables.get(name) for name in chosen}
        functions = {name: one for name, one in bound.items() if callable(one) and not isinstance(one, type)}
        if not sources and (missing := [name for name in chosen if name not in functions]):
            known = [name for name, value in self.variables.items() if callable(value) and not isinstance(value, type)]
            hint = did_you_mean(missing[0], known)
            raise UsageError(
                f"--tools names {missing[0]}, which is no function of the notebook.{hint} Define it first."
            )
        # A tool may have another name than its function: the model knows only the tool's.
        names = [function_tool(functions[name]).name if name in functions else name for name in chosen]
        return (Chosen(names, (Functions(functions.values()), *sources)),)

    def definitions(self, toolsets: Iterable[Toolset]) -> tuple[list[ToolDef], list[str]]:
        """Return the tools of toolsets as a turn would see them, and what is wrong with the servers that failed.

        Servers are connected if needed.
        """
        listings = [engine().call(list_source(toolset)) for toolset in toolsets]
        found = [tool.definition for tools, _ in listings for tool in tools]
        return found, [problem for _, problems in listings for problem in problems]

    def _remember(self, event: Event | HistoryCut) -> None:
        if isinstance(event, TurnStarted):  # by now the folder of the conversation is there
            self.notebook.remember()
        self.listeners.tell(event)

    def join(self, session: Session) -> None:
        """Have a session that code has made use the notebook's cassette, under the name of its variable.

        Sessions without a variable are numbered, in the order of their first turns.
        """
        if session not in self._joined:
            names = (name for name, one in self.sessions().items() if one is session)
            name = next(names, "")
            self._join(session, name or f"unnamed {next(self._numbers)}")
            session.name = name

    def _join(self, session: Session, name: str) -> None:
        """Have a session use the notebook's cassette, under its name, which traces and the ledger have too."""
        self._joined.add(session)
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
        """Make a session that is saved beside the notebook, if its file is known."""
        _check_listed(name)
        path = self.place().file(name)
        earlier = self._saved.get(path) if path is not None else None
        if earlier is not None and not earlier.running:
            # The session has lost its variable, but other code may hold it: close its file, which the new one takes.
            earlier.history.close()
        made = Session(recipe, path=path)
        if path is None:
            self._unsaved.add(made)
        return made

    def equip(self, session: Session, name: str | None = None) -> None:
        """Give a session the notebook's functions, servers and cassette, once."""
        if session in self._equipped:
            return
        if name is None:
            self.join(session)
        else:
            self._join(session, name)
        self._equipped.add(session)
        session.listen(self._remember)
        session.add_toolset(self._functions)
        if self._servers is not None:
            session.add_toolset(self._servers)


def _check_listed(name: str) -> None:
    """Raise UsageError for a name that begins with _: lists leave it out, as IPython keeps results under such names."""
    if name.startswith("_"):
        raise UsageError(
            f"No session is made under {name}: lists leave out names that begin with _. Choose another name."
        )


def _another(name: str) -> str:
    return f"Use another session, %%agent NAME, or rename yours and del {name}."
