"""Commands on a session that the magics and the chat panel share, and the panel's interface to the notebook."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentmagic.approval.policy import Level, at_level, policy_of
from agentmagic.display.printout import Printout
from agentmagic.errors import AgentMagicError, MissingExtra, UsageError
from agentmagic.events import Event
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import Prompt
from agentmagic.prompt.attachments import Attachment
from agentmagic.providers.base import Model, hosts
from agentmagic.run import Run
from agentmagic.runtime.engine import Listeners
from agentmagic.session import Session
from agentmagic.text import join_names, plural, single_line
from agentmagic.tools.base import Toolset

INTENTS = ("approve", "edit", "deny", "reply", "stop")
"""The types of the page messages that answer a running turn. They work in a cell and in a panel."""

SETUP = ("local", "key", "server", "leave")
"""The types of the page messages of the setup card, where the user chooses a model.

They work in a cell and in a panel.
"""

STOP_MAP = "stop-map"
"""The type of the page message that ends a map. It works in a cell and in a panel."""

ASK_ROWS = "ask-rows"
"""The type of the page message that asks the failed rows of a map again. It works in the cell of the map."""

NEEDS_EXTENSION = "This works in a notebook with %load_ext agentmagic. In code, use the methods of the session."

LONGEST_NAME = 1_000
"""Characters of an id, a name or a reason that a page may send."""

LONGEST_UNDONE = 100
"""Characters of the prompt of a turn that was undone, as the report has it."""

MOST_ATTACHED = 20
"""Resources and values that can be attached to one prompt."""


def choose_model(session: Session, model: str | Model) -> None:
    """Let the session use another model from the next turn on.

    Raises the errors of `Session.model`; the session is then unchanged.
    """
    agent = replace(session.agent, model=model)
    try:
        session.model(agent)
    except MissingExtra:
        if not session.deck.answers():  # a replay needs only the model's name, and not its package
            raise
    session.agent = agent


def choose_level(session: Session, level: Level) -> None:
    """Change which tools run without asking, from the next turn on. Rules and hooks are kept."""
    session.agent = replace(session.agent, permission=at_level(session.agent.permission, level))


def level_of(session: Session) -> Level | None:
    """Return the permission level of a session, or None if its policy allows or denies calls by default."""
    policy = policy_of(session.agent.permission)
    return policy.level if policy.default == "ask" else None


def export(session: Session, target: Path, functions: Sequence[Callable[..., Any]], *, overwrite: bool = False) -> str:
    """Write a session's finished turns to a file, in the format of its suffix; return a message for the user.

    `functions` are the notebook's functions that are tools. A conversation that is exported as a notebook calls them.
    """
    from agentmagic import export  # imported late: it loads every export format, and most sessions are never exported

    missing, turns = missing_turn(session), session.turns
    export.save(turns, target, tools=(*session.agent.tools, *functions), overwrite=overwrite)
    return f"Wrote {plural(len(turns), 'turn')} to {relative_path(target)}.{missing}"


def compact(session: Session) -> str:
    """Compact a session's history for the model; return a message for the user.

    Older results are shortened, and older turns summarised if needed. Raises the errors of `Session.compact`.
    """
    compaction = session.compact()
    if compaction is None:
        return "There is nothing to compact: a summary would be no shorter than the conversation."
    return (
        f"Compacted: about {compaction.before:,} tokens became {compaction.after:,}. The conversation here stays whole."
    )


def missing_turn(session: Session) -> str:
    """Return a sentence that says that a copy of the session lacks the running turn; "" if no turn is running."""
    return " The turn under way is not in it." if session.running else ""


def undo_report(session: Session, *, redo: bool = False) -> str:
    """Return a report, as lines of text, of what the last undo (or redo) of a session has changed."""
    outcome = session.undone
    if outcome is None:
        return "There is nothing to redo." if redo else "There is no turn to undo."
    prompt = single_line(outcome.prompt.text, LONGEST_UNDONE) if outcome.prompt is not None else ""
    turns = plural(outcome.turns, "turn")
    lines = [f"{'Back again' if redo else 'Forgotten'}: {prompt}" if prompt else f"Brought back {turns}."]
    if outcome.looks:
        lines.append(f"Forgotten too: {plural(outcome.looks, 'later call')} that changed nothing.")
    if outcome.kind == "clear" and redo:
        lines = ["The conversation is forgotten again."]
    if outcome.kind == "edit" and not redo:
        lines.append(f"The conversation is as it was before that: {turns}.")
    put_back = [name for name in outcome.restored if name not in outcome.removed]
    removed = sorted(outcome.removed)
    lines += [f"{done}: {', '.join(names)}." for done, names in (("Put back", put_back), ("Removed", removed)) if names]
    lines += [f"Left alone: {name}: {why}." for name, why in outcome.refused.items()]
    if outcome.problem:
        lines.append(outcome.problem)
    if outcome.tools and not redo:
        lines.append(f"What {', '.join(outcome.tools)} did outside of the variables, as to files, stays.")
    return "\n".join(lines)


def relative_path(place: Path) -> str:
    """Return a path relative to the kernel's folder if it lies below that folder, else the absolute path."""
    whole, here = place.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of the notebook: a session in a variable, or one `saved` in a file; `about` tells its length."""

    name: str
    about: str
    saved: bool = False


@dataclass(frozen=True, slots=True)
class EarlierConversation:
    """A conversation of an earlier kernel with which a panel goes on; `about` tells its length, its age and its doubts.

    The panel shows its `turns`. They are loaded from the file once the user adds to the conversation.
    """

    name: str
    about: str
    turns: Sequence[Sequence[Event]]


class Notebook:
    """The chat panel's interface to the notebook around it. This base class is for a program without a notebook.

    `prepare`, `toolsets`, `show_figures`, `fork` and `release` are called where synchronous tools run: the main thread
    of a kernel. The other methods are called in a pool thread.
    """

    forks = False
    """Whether sessions can be bound to variables. If not, the panel does not offer the actions that need it."""

    def __init__(self) -> None:
        self.looks = Listeners[None]()
        """Called after the user has chosen a model or a permission level in a panel."""

    def name_of(self, session: Session) -> str:  # noqa: ARG002  (this parameter and the next ones are for subclasses)
        """Return the name of the variable that holds a session, or "" without such a variable."""
        return ""

    def prepare(self, session: Session, text: str) -> tuple[Prompt, TurnSettings]:  # noqa: ARG002
        """Return the prompt for a typed text, and turn settings that describe the values named in the text.

        No code in the text is evaluated.

        Raises AgentMagicError if the prompt cannot be made.
        """
        return text, TurnSettings()

    def toolsets(self, session: Session) -> Sequence[Toolset] | None:  # noqa: ARG002
        """Return the toolsets for the session's next turn, or None for the session's own toolsets."""
        return None

    def functions(self) -> Sequence[Callable[..., Any]]:
        """Return the functions of the notebook that are tools."""
        return ()

    def show_figures(self, run: Run) -> None:
        """Let the notebook show the figures that a turn's tools draw. Called when the chat panel has begun a turn."""

    def fork(self, session: Session, turns: int) -> str:  # noqa: ARG002
        """Bind a new session with the first `turns` turns of `session` to a variable; return the variable's name.

        Raises UsageError if that is impossible.
        """
        raise UsageError(NEEDS_EXTENSION)

    def release(self, name: str, turns: int) -> None:
        """Delete the variable of a forked session if the session is saved and unused, and still has `turns` turns."""

    def folder(self) -> Path:
        """Return the folder for exported files."""
        return Path.cwd()

    def commands(self) -> Sequence[tuple[str, str]]:
        """Return the commands that the user can type in the panel, each with its help."""
        return ()

    def prompts(self, session: Session) -> Sequence[tuple[str, str]]:  # noqa: ARG002
        """Return the prompts that can be sent with `/NAME`, each with its description."""
        return ()

    def read_line(self, session: Session, magic: str, line: str) -> object:  # noqa: ARG002
        """Return what `run_line` would run, as the magic reads the line. Raises UsageError for an invalid line."""
        raise UsageError(NEEDS_EXTENSION)

    def run_line(self, session: Session, magic: str, line: str) -> str | Printout:  # noqa: ARG002
        """Run a line of `%agent` on a session, or a line of `%mcp`; return what it prints."""
        raise UsageError(NEEDS_EXTENSION)

    def file(self, session: Session, name: str, data: bytes) -> Attachment:  # noqa: ARG002
        """Return the attachment for a file from the browser page. Raises UsageError if the file cannot be attached."""
        raise UsageError(NEEDS_EXTENSION)

    def names(self) -> Sequence[tuple[str, str]]:
        """Return the name and the kind of value of each variable that a prompt can attach; tables come first."""
        return ()

    def conversations(self) -> Sequence[Conversation]:
        """Return the conversations of the notebook."""
        return ()

    def suggest_conversation(self, session: Session) -> Conversation | None:  # noqa: ARG002
        """Return the saved conversation that the panel of a session offers to continue, or None."""
        return None

    def find_earlier(self, session: Session, *, kin: bool) -> EarlierConversation | None:  # noqa: ARG002
        """Return the conversation of an earlier kernel with which the panel of a session goes on by itself, or None.

        It was saved under the name of the session or, with `kin`, under this name with another number.
        """
        return None

    def take_up(self, name: str) -> Session:  # noqa: ARG002
        """Return the session in the variable `name`; if it has no turns yet, load its saved conversation."""
        raise UsageError(NEEDS_EXTENSION)

    def new(self, session: Session) -> Session:  # noqa: ARG002
        """Create a session without turns, with the agent of `session`, and bind it to a variable; return it."""
        raise UsageError(NEEDS_EXTENSION)

    def open(self, name: str, *, saved: bool) -> Session:  # noqa: ARG002
        """Return the session of a conversation by its name; with `saved`, load it from its file first."""
        raise UsageError(NEEDS_EXTENSION)


def web_tools(session: Session) -> str:
    """Return in words which of the agent's web tools the provider runs, and which it lacks; "" if the agent has none.

    Without a model, the text says that no model is chosen.
    """
    tools = [tool for tool in session.agent.own_tools() if tool.hosted]
    if not tools:
        return ""
    try:
        model = session.model()
    except AgentMagicError:
        return f"{join_names([tool.name for tool in tools])}; no model is chosen that could carry them out"
    groups = [[tool.name for tool in tools if hosts(model, tool.hosted) == can] for can in (True, False)]
    labels = ("carried out by the provider of", "which cannot be had of")
    return "; ".join(
        f"{join_names(names)}, {how} {model.name}" for names, how in zip(groups, labels, strict=True) if names
    )
