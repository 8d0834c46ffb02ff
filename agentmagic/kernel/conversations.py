"""The conversations of a notebook: which there are, and taking them up, forking, saving and exporting them."""

import time
from pathlib import Path

from agentmagic.errors import UsageError
from agentmagic.kernel import reports
from agentmagic.kernel.namespace import Namespace
from agentmagic.kernel.subcommands import DEFAULT_SESSION, Export, Fork, Load, Save
from agentmagic.saved import saved_in
from agentmagic.session import Session


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
        one = next((one for one in saved if one.path == default.path), saved[0])
        others = f" %{self._magic} sessions lists all {len(saved)}." if len(saved) > 1 else ""
        age = reports.ago(time.time() - one.modified)
        return (
            f"Saved conversation of this notebook: {one.name}, {reports.turns(one.turns)}, {age}. "
            f"%{self._magic} {_how_to_load(one.name)} picks it up.{others}"
        )

    def listed(self) -> str:
        """List the sessions that are variables and the conversations of the notebook's folder."""
        place = self._namespace.place()
        saved = saved_in(place.folder) if place.folder is not None else []
        return reports.sessions(self._namespace.sessions(), saved, place, time.time())

    def load(self, command: Load) -> str:
        """Have a session go on with a saved conversation."""
        session = self._namespace.session(command.session)
        path = self._own(session) if command.saved is None else self._found(command.saved)
        session.restore(path)
        return reports.loaded(command.session, session, session.take_notices())

    def save(self, command: Save) -> str:
        """Save a session to a file of its own."""
        session = self._namespace.known(command.session)
        target = Path(command.target).expanduser()
        session.save(target)
        return f"Saved {reports.turns(len(session.turns))} in {reports.path(target)}."

    def fork(self, command: Fork) -> str:
        """Bind a new session that begins as another."""
        forked = self._namespace.fork(self._namespace.known(command.session), command.name, command.turns)
        return f"{command.name} begins with {reports.turns(len(forked.turns))} of {command.session}."

    def export(self, command: Export) -> str:
        """Write a conversation in another form."""
        from agentmagic import export

        session = self._namespace.known(command.session)
        target = Path(command.target).expanduser()
        if target.exists() and not command.overwrite:
            message = f"{command.target} is there already. Choose another name, or replace it with --overwrite."
            raise UsageError(message)
        tools = (*session.agent.tools, *self._namespace.functions())
        export.save(session.turns, target, tools=tools, overwrite=command.overwrite)
        return f"Wrote {reports.turns(len(session.turns))} to {reports.path(target)}."

    def _own(self, session: Session) -> Path:
        if session.path is None:
            why = self._namespace.place().why_not
            message = f"This session is saved nowhere{why and ': '}{why}. Name the conversation or file to load."
            raise UsageError(message)
        return session.path

    def _found(self, written: str) -> Path:
        """Return the file of a conversation by its name or its path. Raises UsageError where there is none."""
        ours = self._namespace.place().file(written)
        for path in (ours, Path(written).expanduser()):
            if path is not None and path.is_file():
                return path
        folder = self._namespace.place().folder
        known = [one.name for one in (saved_in(folder) if folder is not None else ())]
        message = f"There is no saved conversation {written!r}, nor a file. Saved: {', '.join(known) or 'none'}."
        raise UsageError(message)


def _how_to_load(name: str) -> str:
    if name == DEFAULT_SESSION:
        return "load"
    return f"-s {name} load" if name.isidentifier() else f"load {name}"
