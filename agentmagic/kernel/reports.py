"""What `%agent` and `%mcp` print about sessions, tools, models and servers: plain text."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from agentmagic import settings
from agentmagic.events import TurnFinished, TurnStarted
from agentmagic.messages import ToolDef, Usage
from agentmagic.providers.registry import Provider, default_model, providers
from agentmagic.render.words import cost, one_line, shown
from agentmagic.session import Session

WIDTH = 100
"""Characters of a line that are shown of a prompt, an answer or a description."""


def status(name: str, session: Session) -> str:
    """Say how a session stands."""
    rows = [
        ("session", name + (", a turn is running" if session.running else "")),
        ("model", model_name(session)),
        ("turns", f"{session.history.turns}, {len(session.messages)} messages"),
        ("tool calls", f"{session.tool_calls}, {session.tool_failures} failed"),
        ("usage", usage(session.usage)),
        ("permission", settings.permission_override() or session.agent.permission),
    ]
    return "\n".join(f"{label:<12}{value}" for label, value in rows)


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
    rows = [(f"{row.name}:{row.default or 'MODEL'}", f"{row.about}{_key(row)}") for row in providers().values()]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {about}" for name, about in rows]
    return "\n".join([f"The session's model: {model_name(session)}", *lines])


def servers(rows: Iterable[Sequence[str]]) -> str:
    """List servers: name, state, number of tools, and what went wrong if anything did."""
    lines = [
        f"{name:<16}{state:<10}{count} tools{'  ' + _line(error) if error else ''}"
        for name, state, count, error in rows
    ]
    return "\n".join(lines) or "There are no servers. Connect one: %mcp add NAME COMMAND... or %mcp add NAME URL"


def _place(definition: ToolDef) -> tuple[bool, str, str]:
    return definition.server != "notebook", definition.server, definition.name


def _key(row: Provider) -> str:
    if not row.keys:
        return ""
    return ", key found" if settings.find_key(row.keys) else f", needs {' or '.join(row.keys)}"


def _line(text: str) -> str:
    return one_line(shown(text), WIDTH)
