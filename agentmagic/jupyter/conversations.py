"""The conversations of a notebook: which there are, and taking them up, forking, saving and exporting them."""

import shlex
import time
from keyword import iskeyword
from pathlib import Path

from agentmagic.errors import UsageError
from agentmagic.history.journal_reader import saved_in
from agentmagic.jupyter import formatting
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.notebook_file import SUFFIX
from agentmagic.jupyter.subcommands import DEFAULT_SESSION, Export, Fork, Load, Save
from agentmagic.session import Session
from agentmagic.settings import file_of, path_of


class Conversations:
    """What the subcommands about conversations do; each returns what to say. `magic` is what `%agent` is loaded as."""

    def __init__(self, namespace: Namespace, magic: str) -> None:
        self._namespace = namespace
        self._magic = magic

    def hint(self) -> str | None:
        """Say that there is a conversation to pick up, where the default session has none yet and could."""
        default = self._namespace.sessions().get(DEFAULT_SESSION)
        if default is None or default.path is None or default.turns:
            return None
        saved = [one for one in saved_in(default.path.parent) if one.turns]
        if not saved:
            return None
        one = saved[0]
        others = f" %{self._magic} sessions lists all {len(saved)}." if len(saved) > 1 else ""
        age = formatting.ago(time.time() - one.modified)
        return (
            f"Saved conversation of this notebook: {one.name}, {formatting.turns(one.turns)}, {age}. "
            f"%{self._magic} {_how_to_load(one.name)} picks it up.{others}"
        )

    def listed(self) -> str:
        """List the sessions that are variables and the conversations of the notebook's folder."""
        place = self._namespace.place()
        saved = saved_in(place.folder) if place.folder is not None else []
        return formatting.sessions(self._namespace.sessions(), saved, place, time.time())

    def load(self, command: Load) -> str:
        """Have a session go on with a saved conversation."""
        session = self._namespace.draft(command.session)
        path = self._own(session) if command.saved is None else self._found(command.saved)
        session.restore(path)
        self._namespace.bind(command.session, session)
        return formatting.loaded(command.session, session, session.take_notices())

    def save(self, command: Save) -> str:
        """Save a session to a file of its own."""
        from agentmagic.export import FORMS

        session = self._namespace.known(command.session)
        target = file_of(command.target)
        if target.name.lower().endswith(FORMS):
            message = (
                f"save writes a conversation to be loaded again: name a {SUFFIX} file. "
                f"%{self._magic} export writes {', '.join(FORMS)}."
            )
            raise UsageError(message)
        session.save(target)
        return f"Saved {formatting.turns(len(session.turns))} in {formatting.path(target)}."

    def fork(self, command: Fork) -> str:
        """Bind a new session that begins as another."""
        session = self._namespace.known(command.session)
        missing = _under_way(session)
        forked = self._namespace.fork(session, command.name, command.turns)
        return f"{command.name} begins with {formatting.turns(len(forked.turns))} of {command.session}.{missing}"

    def export(self, command: Export) -> str:
        """Write a conversation in another form."""
        from agentmagic import export

        session = self._namespace.known(command.session)
        target = self._for_export(command)
        tools = (*session.agent.tools, *self._namespace.functions())
        missing, turns = _under_way(session), session.turns
        export.save(turns, target, tools=tools, overwrite=command.overwrite)
        return f"Wrote {formatting.turns(len(turns))} to {formatting.path(target)}.{missing}"

    def _for_export(self, command: Export) -> Path:
        """Return the file to write; raises UsageError for one that stays as it is, and for the notebook itself."""
        from agentmagic.export import form_of

        target = file_of(command.target)
        form_of(target)
        if not target.exists():
            return target
        notebook = self._namespace.place().notebook
        if notebook is not None and target.samefile(notebook):
            message = f"{command.target} is this notebook itself, which is not written over. Choose another name."
            raise UsageError(message)
        if not command.overwrite:
            message = f"{command.target} is there already. Choose another name, or replace it with --overwrite."
            raise UsageError(message)
        return target

    def _own(self, session: Session) -> Path:
        if session.path is None:
            why = self._namespace.place().why_not
            message = f"This session is saved nowhere{why and ': '}{why}. Name the conversation or file to load."
            raise UsageError(message)
        return path_of(session.path)

    def _found(self, written: str) -> Path:
        """Return the file of a conversation by its name or its path. Raises UsageError where there is none."""
        theirs = path_of(written)
        ours = self._namespace.place().file(written)
        for path in (theirs if ours is None else path_of(ours), theirs):
            if path.is_file():
                return path
        folder = self._namespace.place().folder
        known = [one.name for one in (saved_in(folder) if folder is not None else ())]
        message = f"There is no saved conversation {written!r}, nor a file. Saved: {', '.join(known) or 'none'}."
        raise UsageError(message)


def _how_to_load(name: str) -> str:
    if name == DEFAULT_SESSION:
        return "load"
    is_free = name.isidentifier() and not iskeyword(name) and not name.startswith("_")
    return f"-s {name} load" if is_free else f"load {shlex.quote(name)}"


def _under_way(session: Session) -> str:
    """Say that the turn under way, if there is one, is not in what is made of a session now."""
    return " The turn under way is not in it." if session.running else ""
