"""What `%agent` and `%mcp` print about sessions, tools, models and servers: plain text."""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from agentmagic import settings
from agentmagic.approval.policy import PolicyLike, policy_of
from agentmagic.display.words import cost, one_line, shown
from agentmagic.events import Notice, StepFinished, TurnFinished, TurnStarted
from agentmagic.history.journal_reader import SavedConversation
from agentmagic.jupyter.notebook_file import SaveFolder
from agentmagic.log import LogEntry
from agentmagic.messages import ToolDef, Usage
from agentmagic.providers.registry import Provider, default_model, info, providers
from agentmagic.session import Session

if TYPE_CHECKING:
    from agentmagic.tools.mcp import ServerState

MOST_LEFT_OUT = 20
"""Tools of a server that are named with why they are left out."""

WIDTH = 100
"""Characters of a line that are shown of a prompt, an answer or a description."""

_NAMES = {"scripted": "FILE.json"}
"""What is written behind the colon, where it is no model's name."""


def status(name: str, session: Session, place: SaveFolder) -> str:
    """Say how a session stands; `place` is where those are saved that the magics make."""
    rows = [
        ("session", name + (", a turn is running" if session.running else "")),
        ("model", model_name(session)),
        ("turns", f"{len(session.turns)}, {len(session.messages)} messages"),
        ("context", context(session)),
        ("tool calls", f"{session.tool_calls}, {session.tool_failures} failed"),
        ("usage", usage(session.usage)),
        ("permission", permission(session.agent.permission)),
        ("saved", saved(session, place)),
        ("in doubt", in_doubt(session)),
    ]
    return "\n".join(f"{label:<12}{value}" for label, value in rows if value)


def permission(given: PolicyLike) -> str:
    """Say what becomes of calls: by the environment, a word, or a policy."""
    policy = policy_of(given)
    rules = f"{len(policy.rules)} rule{'s' * (len(policy.rules) != 1)}" if policy.rules else ""
    what = ", ".join(filter(None, (policy.default, rules, "a hook" if policy.hook else "")))
    override = settings.permission_override()
    return f"{override} ({settings.PERMISSION}), over {what}" if override else what


def context(session: Session) -> str:
    """Say how much of the model's window the last request took, where both are known."""
    for turn in reversed(session.turns):
        steps = [event for event in turn.events if isinstance(event, StepFinished) and event.usage.input_tokens]
        if steps:
            started = turn.events[0]
            window = info(started.model).window if isinstance(started, TurnStarted) else None
            taken = steps[-1].usage.input_tokens + steps[-1].usage.output_tokens
            share = f" of the window of {window:,} ({taken / window:.0%})" if window else ""
            return f"{taken:,} tokens{share}"
    return ""


def saved(session: Session, place: SaveFolder) -> str:
    """Say where a session is saved, or why it is not."""
    journal = session.history.journal
    if journal is None:
        why = place.why_not or "it was made in code, without a path"
        return f"nowhere: {why}"
    if not journal.problem:
        return path(journal.path)
    why = "another kernel writes it" if journal.taken else f"it cannot be saved in {path(journal.path)}"
    return f"in memory only: {why}; %agent save FILE keeps it"


def in_doubt(session: Session) -> str:
    """Name the tools that may have been cut off in their work."""
    return ", ".join(f"{name} ({server})" for server, name in sorted(session.in_doubt))


def path(place: Path) -> str:
    """Write a path as a person would, from the folder where the kernel is."""
    whole = place.absolute()
    return str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole)


def turns(number: int) -> str:
    """Say how many turns."""
    return f"{number} turn{'' if number == 1 else 's'}"


def ago(seconds: float) -> str:
    """Say how long ago something was, in its largest unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return "just now"


def model_name(session: Session) -> str:
    """Say which model the next turn asks, and why."""
    if override := settings.model_override():
        return f"{override} ({settings.MODEL} says so)"
    chosen = session.agent.model
    if chosen is None:
        found = default_model()
        return f"{found} (its key is set)" if found else "none chosen, and no key is set; see %agent models"
    return chosen if isinstance(chosen, str) else chosen.name


def usage(spent: Usage) -> str:
    """Say what requests, tokens and cost came to."""
    tokens = f"{spent.input_tokens:,} tokens in ({spent.cached_tokens:,} cached), {spent.output_tokens:,} out"
    return f"{spent.requests} request{'' if spent.requests == 1 else 's'}, {tokens}, {cost(spent.cost)}"


def history(session: Session) -> str:
    """List the turns of a session: what was asked, how it ended, what was answered."""
    lines: list[str] = []
    number = 0
    for event in session.events:
        if isinstance(event, TurnStarted):
            number += 1
            lines.append(f"{number:>3}  {_line(event.prompt.text)}")
        elif isinstance(event, TurnFinished):
            result = event.result
            end = "" if result.stop_reason == "answer" else f"[{result.stop_reason}] "
            lines.append(f"     {end}{_line(result.error or result.final_text)}")
    return "\n".join(lines) or "There are no turns yet."


def found(session: Session, words: Sequence[str]) -> str:
    """List where words occur in a session: the turn, who said them, what stands around them."""
    matches = session.search(" ".join(words))
    lines = [f"{match.turn + 1:>3}  {match.role:<10}{_line(match.excerpt)}" for match in matches]
    return "\n".join(lines) or f"{' '.join(words)!r} occurs nowhere in the conversation."


def sessions(
    bound: Mapping[str, Session], conversations: Sequence[SavedConversation], place: SaveFolder, now: float
) -> str:
    """List the sessions that variables hold, and the conversations of the notebook's folder, the last used first."""
    names = (*bound, *(one.name for one in conversations))
    width = max(map(len, names), default=0) + 2
    lines = ["Sessions of the notebook:"]
    lines += [f"  {name:<{width}}{turns(len(one.turns)):<10}{saved(one, place)}" for name, one in bound.items()]
    if place.folder is None:
        return "\n".join([*lines, f"Not saved: {place.why_not}."])
    lines.append(f"Saved in {path(place.folder)}{':' if conversations else ': nothing yet.'}")
    lines += [
        f"  {one.name:<{width}}{turns(one.turns):<10}{ago(now - one.modified):<16}{_line(one.prompt)}"
        for one in conversations
    ]
    return "\n".join(lines)


def loaded(name: str, session: Session, notices: Sequence[Notice]) -> str:
    """Say what came of a saved conversation: how much, its end, what is in doubt, what is wrong with it."""
    where = path(session.path) if session.path is not None else "memory"
    rows: list[tuple[str, str]] = []
    if session.turns:
        last = session.turns[-1]
        rows = [("asked last", _line(last.prompt.text)), ("answered", _line(last.answer) or "nothing")]
    if session.in_doubt:
        rows.append(("in doubt", f"{in_doubt(session)}; you are asked before it runs again"))
    lines = [f"  {label:<12}{value}" for label, value in rows]
    return "\n".join(
        [f"{name} goes on with {turns(len(session.turns))} of {where}.", *lines, *(notice.text for notice in notices)]
    )


def log(lines: Sequence[LogEntry], *, detailed: bool, times: bool) -> str:
    """Show log records, one a line."""
    head = (
        "" if detailed else "%agent debug on keeps more from then on: every event of a turn, and the SDKs' records.\n"
    )
    clock = [time.strftime("%H:%M:%S ", time.localtime(line.time)) if times else "" for line in lines]
    shown_lines = (f"{at}{line.level:<8}{line.logger}: {line.text}" for at, line in zip(clock, lines, strict=True))
    return head + ("\n".join(shown_lines) or "There are no records yet.")


def tools(definitions: Sequence[ToolDef]) -> str:
    """List tools by where they live."""
    if not definitions:
        return "There are no tools. Mark a function with @tool, or connect a server with %mcp add."
    lines: list[str] = []
    for server, group in groupby(sorted(definitions, key=_place), key=lambda one: one.server):
        members = list(group)
        width = max(len(one.name) for one in members)
        lines += [shown(server), *(f"  {one.name:<{width}}  {_line(one.description)}" for one in members)]
    return "\n".join(lines)


def models(session: Session) -> str:
    """List the providers, their default models and whether their keys are set."""
    rows = [
        (f"{row.name}:{row.default or _NAMES.get(row.name, 'MODEL')}", f"{row.about}{_key(row)}")
        for row in providers().values()
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {about}" for name, about in rows]
    return "\n".join([f"The session's model: {model_name(session)}", *lines])


def servers(rows: Iterable[Sequence[str]]) -> str:
    """List servers: name, state, number of tools, and what went wrong if anything did."""
    lines = [
        f"{name:<16}{state:<16}{count} tools{'  ' + _line(error) if error else ''}"
        for name, state, count, error in rows
    ]
    return "\n".join(lines) or "There are no servers. Connect one: %mcp add NAME COMMAND... or %mcp add NAME URL"


def server(state: "ServerState") -> str:
    """Say all that is known of a server."""
    rows = [
        ("server", state.name),
        ("state", state.state),
        ("address", state.address),
        ("calls itself", state.title),
        ("protocol", state.protocol),
        ("tools", str(state.tools)),
        ("runs unasked", ", ".join(state.allow)),
        ("disabled", ", ".join(state.disabled)),
        *(("left out", f"{name}: {why}") for name, why in list(state.left_out.items())[:MOST_LEFT_OUT]),
        ("error", state.error),
    ]
    lines = [f"{label:<14}{shown(value)}" for label, value in rows if value]
    about = [f"\nIt says of itself:\n{shown(state.instructions)}"] if state.instructions else []
    return "\n".join([*lines, *about, *([_last_words(state.stderr)] if state.stderr else [])])


def server_log(lines: Sequence[tuple[str, str, str]], stderr: str) -> str:
    """Show what a server logged, as level, logger and text, and the end of its stderr."""
    said = [shown(f"{level:<10}{logger + ': ' if logger else ''}{text}") for level, logger, text in lines]
    return "\n".join([*said, *([_last_words(stderr)] if stderr else [])]) or "It has logged nothing."


def _last_words(stderr: str) -> str:
    return f"\nIts last words on stderr:\n{shown(stderr)}"


def prompts(rows: Iterable[tuple[str, str, str, str]]) -> str:
    """List prompts of servers: server, name, how the arguments are written, description."""
    lines = [f"{name}  {prompt}  {arguments}  {_line(about)}" for name, prompt, arguments, about in rows]
    return shown("\n".join(lines)) or "The servers offer no prompts."


def resources(rows: Iterable[tuple[str, str, str]]) -> str:
    """List resources of servers as a cell names them: server, URI, description."""
    lines = [f"@{name}:{uri}  {_line(about)}" for name, uri, about in rows]
    return shown("\n".join(lines)) or "The servers offer no resources."


def _place(definition: ToolDef) -> tuple[bool, str, str]:
    return definition.server != "notebook", definition.server, definition.name


def _key(row: Provider) -> str:
    if not row.keys:
        return ""
    return ", key found" if settings.find_key(row.keys) else f", needs {' or '.join(row.keys)}"


def _line(text: str) -> str:
    return one_line(shown(text), WIDTH)
