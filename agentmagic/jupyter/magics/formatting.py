"""Formats what `%agent` and `%mcp` print about sessions, tools, models and servers, as printouts or lines of text."""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from agentmagic import settings
from agentmagic.acp.agents import list_installed
from agentmagic.approval.policy import LEVELS, PolicyLike, policy_of
from agentmagic.bill import FolderBill, Spending
from agentmagic.classroom import class_settings
from agentmagic.context.project_files import FileKind
from agentmagic.context.request_view import tokens_of_text
from agentmagic.context.rules import project_here, summary
from agentmagic.display.blocks import PromptBlock
from agentmagic.display.printout import (
    LineLook,
    Printed,
    PrintedFold,
    PrintedLine,
    PrintedRows,
    Printout,
    note,
    printout,
)
from agentmagic.display.words import cost, costs, searches, typed_text
from agentmagic.errors import UsageError
from agentmagic.events import (
    SERVED,
    Event,
    Notice,
    PromptValue,
    StepRetried,
    TaskFinished,
    TaskJudged,
    ToolFinished,
    TurnFinished,
    TurnStarted,
    innermost,
)
from agentmagic.history.journal_reader import Saved, SavedConversation
from agentmagic.jupyter.notebook.file import SaveFolder
from agentmagic.log import LogEntry
from agentmagic.loop.budgets import PeriodMeter, period_meters
from agentmagic.loop.step import Preview
from agentmagic.messages import (
    Message,
    Reasoning,
    ResultStatus,
    ToolCall,
    ToolDef,
    ToolKey,
    ToolResult,
    Usage,
    as_text,
)
from agentmagic.providers.outside import display_name
from agentmagic.providers.registry import Provider, default_model, info, providers
from agentmagic.replay.comparison import Difference
from agentmagic.replay.exchange import hosted_tool
from agentmagic.replay.unasked import unasked_takes
from agentmagic.serve.serving import STOPPED
from agentmagic.session import Session
from agentmagic.text import join_names, json_line, plural, sanitize, single_line
from agentmagic.tools.base import Toolset
from agentmagic.tools.server_names import shown_server
from agentmagic.widgets.commands import relative_path, web_tools
from agentmagic.widgets.inspector import tokens_used

if TYPE_CHECKING:
    from agentmagic.tools.mcp import ServerState
    from agentmagic.tools.mcp.content import Prompt, ResourceEntry

MOST_LEFT_OUT = 20
"""The most tools of a server that are listed as left out, each with the reason why the model does not get it."""

_SECONDS = re.compile(r"\d+\.\d+(?= s\b)|(?<=seconds=)[\d.]+")
"""Matches the durations in lines of the log."""

STDERR_LINES = 5
"""Lines from the end of a server's stderr that are shown with its state."""

NO_TURNS = "There are no turns yet."
WIDTH = 100
"""Characters of a prompt, an answer or a description that are shown in a line."""

_PLACEHOLDERS = {"acp": "NAME", "scripted": "FILE.json", "cassette": "FILE.cassette.yaml"}
"""Placeholders for MODEL in "PROVIDER:MODEL", for providers that need something else there than a model's name."""


# -- sessions --------------------------------------------------------------------------------------


def preview(turn_preview: Preview, values: Sequence[PromptValue]) -> Printout:
    """Return what a turn would send to the model: the tokens of each part, then the parts themselves."""
    request = turn_preview.request
    rows = [(part, f"{number:>8,} tokens") for part, number in turn_preview.tokens.items()]
    rows += [
        (sanitize(one.file), f"{tokens_of_text(one.text):>8,} tokens of the instructions") for one in request.project
    ]
    rows += [("together", f"{sum(turn_preview.tokens.values()):>8,} tokens, about")]
    value_rows = [(sanitize(value.written), f"{value.tokens:>8,} tokens: {sanitize(value.shown)}") for value in values]
    width = max(len(label) for label, _ in (*rows, *value_rows))
    of_values = ["of the prompt:", PrintedRows(value_rows, indent=2, least=width)] if values else []
    unlisted = (
        f"Not connected, so their tools are not listed here: {', '.join(turn_preview.unlisted)}."
        if turn_preview.unlisted
        else ""
    )
    tools = (f"{tool.name}: {tool.description}\n{json.dumps(tool.parameters)}" for tool in request.tools)
    messages = (f"[{message.role}]\n{_message_text(message)}" for message in request.messages)
    web = [f"{tool.name}: {json_line(hosted_tool(tool))}" for tool in request.hosted]
    whose = f"Carried out by the provider of {turn_preview.model}"
    parts = {"Instructions": [request.instructions], "Tools": tools, whose: web, "Messages": messages}
    folds = (PrintedFold(name, "\n\n".join(texts)) for name, texts in parts.items())
    return printout(
        f"This would be sent to {turn_preview.model}. Nothing was called.",
        [PrintedRows(rows, indent=2, least=width), *([] if values else [unlisted])],
        [*of_values, unlisted] if values else [],
        *([part] for part in folds if part.inside),
    )


def _message_text(message: Message) -> str:
    """Return the text of a message as the model gets it, with the names of images and files in their place."""
    parts = (
        f"{part.name}({json_line(part.arguments)})"
        if isinstance(part, ToolCall)
        else part.text
        if isinstance(part, Reasoning | ToolResult)
        else as_text(part)
        for part in message.parts
    )
    return "\n".join(parts)


def status(name: str, session: Session, place: SaveFolder) -> PrintedRows:
    """Return rows about the state of a session; `place` is the folder in which the magics save sessions."""
    rows = [
        ("session", name + (", a turn is running" if session.running else "")),
        ("model", model_name(session)),
        ("turns", f"{len(session.turns)}, {len(session.messages)} messages"),
        ("context", _context(session)),
        ("tool calls", f"{session.tool_calls}, {session.tool_failures} failed"),
        ("usage", usage(session.usage)),
        ("web", web_tools(session)),
        ("permission", permission(session.agent.permission)),
        ("budgets", "; ".join(map(str, period_meters()))),
        ("policy", f"bound by {one.file}: {', '.join(one.names)}" if (one := class_settings().policy) else ""),
        ("class", f"bound by {files}" if (files := _class_files()) else ""),
        *_project(session),
        # Only the file of the recording is shown, not its mode: a saved notebook must be the same in every mode.
        ("cassette", "" if (cassette := session.deck.path) is None else relative_path(cassette)),
        ("saved", _save_location(session, place)),
        ("in doubt", _in_doubt(session)),
    ]
    return PrintedRows([row for row in rows if row[1]])


def _project(session: Session) -> list[tuple[str, str]]:
    """Return rows about the project's files that a model gets, one row for each kind: rules, skills, commands."""
    project = project_here(rules=session.agent.rules)
    return [(f"{kind}{'' if kind == 'rules' else 's'}", summary(project, kind)) for kind in get_args(FileKind)]


def class_bounds() -> str:
    """Return lines about the administrator's policy and the classroom settings that limit this notebook.

    A line also names each setting in these files that asks for more than another of the files allows.
    """
    bounds, lines = class_settings(), list[str]()
    if policy := bounds.policy:
        lines.append(f"Bound by the administrator's policy in {policy.file}: {', '.join(policy.names)}.")
    if bounds.classes:
        names = dict.fromkeys(name for one in bounds.classes for name in one.names)
        lines.append(f"Bound by the class settings in {_class_files()}: {', '.join(names)}.")
    return "\n".join([*lines, *bounds.wider])


def _class_files() -> str:
    return ", ".join(_from_here(one.file) for one in class_settings().classes if one.file is not None)


def _from_here(file: Path) -> str:
    """Return a path relative to the working directory, so that a saved notebook names no folder of this machine."""
    try:
        return os.path.relpath(file)
    except (OSError, ValueError):  # the folder was deleted, or the file is on another drive
        return str(file)


def new_session(name: str) -> str:
    """Return the line that tells the user that a cell has made a session with this name.

    If the name begins with a capital, the user may have meant it as the first word of a prompt; the line says so.
    """
    hint = f" If it begins your prompt, write the prompt below the line, and del {name}." if name[0].isupper() else ""
    return f"New session: {name}.{hint}"


def model_name(session: Session) -> str:
    """Return the model of the next turn. If the agent does not name this model, add why it is used."""
    if override := settings.model_override():
        return f"{display_name(override)} ({settings.MODEL} says so)"
    if session.agent.model is None:
        default = default_model()
        return f"{default} (its key is set)" if default else "none chosen, and no key is set; see %agent models"
    return chosen_model(session)


def chosen_model(session: Session) -> str:
    """Return the name of the agent's model, or "" if the agent names no model."""
    model = session.agent.model
    return "" if model is None else display_name(model) if isinstance(model, str) else model.name


def who_answers(session: Session) -> str:
    """Return the text about the model of the next turn, for JupyterLab's status bar."""
    name = display_name(settings.model_override() or "") or chosen_model(session) or default_model()
    return f"{name} answers" if name else "agentmagic found no key: your first message offers what there is"


def usage(total: Usage) -> str:
    """Return one line with the numbers of requests and tokens, and the cost."""
    cache = f", {total.cache_write_tokens:,} written to the cache" if total.cache_write_tokens else ""
    tokens = f"{total.input_tokens:,} tokens in ({total.cached_tokens:,} cached{cache}), {total.output_tokens:,} out"
    figures = (plural(total.requests, "request"), searches(total), tokens, cost(total.cost))
    return ", ".join(filter(None, figures))


def stats(session: Session) -> Printout:
    """Return a table of counts, tokens and cost, with a row for each turn and a row for all turns."""
    rows = [_turn_figures(f"{number}", turn.events, turn.usage) for number, turn in enumerate(session.turns, 1)]
    whole = _turn_figures("all", session.events, session.usage)
    head = ("turn", "requests", "tasks", "retries", "calls", "failed", "tokens in", "out", "cost")
    return printout([PrintedRows([*rows, whole], "table", head, left=0)]) if rows else note(NO_TURNS)


def bill(folder_usage: FolderBill, columns: Sequence[str], meters: Sequence[PeriodMeter]) -> Printout:
    """Return the cost report of a folder: a table with sums, notes on unread data, and what is left of the budgets."""
    sums = folder_usage.sums(*columns)
    if not sums:
        return note("\n".join(["No session of this folder has paid for a request yet.", *map(str, meters)]))
    head = (*columns, "requests", "tokens", "cached", "cost", "failures")
    whole = sum(sums.values(), Spending())
    last = ("all", *("" for _ in columns[1:]))
    rows = [(*map(sanitize, key), *_spending_cells(figures)) for key, figures in (*sums.items(), (last, whole))]
    notes = ["Counted are paid requests in your ledger on this machine, also of sessions that were not saved."]
    if whole.unpriced:
        notes.append(f"The price of {plural(whole.unpriced, 'request')} is unknown, and not in the cost.")
    if folder_usage.damaged:
        notes.append(f"{plural(folder_usage.damaged, 'line')} could not be read, and what stood there is missing.")
    if folder_usage.left_out:
        notes.append(f"{plural(folder_usage.left_out, 'month')} of the ledger were not read: the oldest are missing.")
    table = PrintedRows(rows, "table", head, left=len(columns))
    return printout([table], [*(PrintedLine(line, "quiet") for line in notes), *map(str, meters)])


def _spending_cells(figures: Spending) -> tuple[str, ...]:
    counts = (figures.requests, figures.tokens, figures.cached)
    return (*(f"{count:,}" for count in counts), costs(figures.cost, figures.unpriced), f"{figures.failures:,}")


def verdicts(sessions: Mapping[str, Session]) -> Printout:
    """Return a table that compares a replay with its recording.

    A replayed request has one row, or one for each difference. A recorded turn that the notebook did not ask for has
    a row, too.
    """
    rows = [
        (
            name,
            single_line(sanitize(verdict.prompt), 40),
            f"{verdict.step}",
            one.cause if one else verdict.cause,
            _difference(one),
        )
        for name, session in sessions.items()
        for verdict in session.deck.verdicts
        for one in verdict.differences or (None,)
    ]
    paths = dict.fromkeys(path.absolute() for session in sessions.values() if (path := session.deck.path) is not None)
    unasked_cells = [
        (take.session, single_line(sanitize(take.prompt), 40)) for path in paths for take in unasked_takes(path)
    ]
    rows += [(session, cell, "", "not asked", "") for session, cell in unasked_cells]
    head = ("session", "cell", "step", "verdict", "")
    return printout([PrintedRows(rows, "table", head)]) if rows else note("Nothing was replayed yet.")


def _difference(one: Difference | None) -> str:
    if one is None:
        return ""
    return f"{one.field}: {single_line(sanitize(one.before), 40)} -> {single_line(sanitize(one.after), 40)}"


def _turn_figures(name: str, events: Sequence[Event], total: Usage) -> tuple[str, ...]:
    inner: list[Event] = [innermost(event) for event in events]
    counts = Counter(type(event) for event in inner)
    again = sum(isinstance(event, StepRetried) or (isinstance(event, TaskJudged) and event.retry) for event in inner)
    failures = sum(isinstance(event, ToolFinished) and event.result.is_error for event in inner)
    figures = (total.requests, counts[TaskFinished], again, counts[ToolFinished], failures)
    tokens = (total.input_tokens, total.output_tokens)
    return (name, *(f"{figure:,}" for figure in (*figures, *tokens)), cost(total.cost))


def history(session: Session) -> Printout:
    """Return the turns of a session: the prompt, the reason if the turn ended early, and the answer."""
    rows: list[tuple[str, str]] = []
    number, is_served = 0, False
    last_result: ToolResult | None = None
    for event in session.events:
        match event:
            case TurnStarted():
                number, is_served, last_result = number + 1, event.model.startswith(SERVED), None
                typed = typed_text(PromptBlock(event.prompt, values=tuple(event.values)))
                rows.append((f"{number:>3}", single_line(typed, WIDTH)))
            case ToolFinished():
                last_result = event.result
            case TurnFinished(result=result):
                # The turn of a client's call ends well even if the call failed.
                failed = last_result if is_served and last_result is not None and last_result.is_error else None
                reason = result.stop_reason if failed is None else FAILED[failed.status]
                end = "" if reason == "answer" else f"[{reason}] "
                end += "[not sent again] " if result.unsent else ""
                text = result.error or result.final_text or (failed.text if failed else "")
                rows.append(("", f"{end}{_line(text)}"))
            case _:
                pass
    return printout([PrintedRows(rows)]) if rows else note(NO_TURNS)


FAILED: dict[ResultStatus, str] = {
    "ok": "done",
    "error": "failed",
    "denied": "denied",
    "interrupted": "interrupted",
    "timeout": "timed out",
}
"""How a client's call has ended, by the status of its result."""


def occurrences(session: Session, words: Sequence[str]) -> Printout:
    """Return the places in a session where words occur: the turn, the role, the text around the words."""
    matches = session.search(" ".join(words))
    rows = [(f"{match.turn + 1:>3}", f"{match.role:<8}", _line(match.excerpt)) for match in matches]
    return printout([PrintedRows(rows)]) if rows else note(f"{' '.join(words)!r} occurs nowhere in the conversation.")


def sessions(
    open_sessions: Mapping[str, Session], conversations: Sequence[SavedConversation], place: SaveFolder, now: float
) -> Printout:
    """Return the sessions in variables, and the notebook's saved conversations, the last used first."""
    # The names of sessions and conversations get the same width, so that the columns of both lists line up.
    width = max(map(len, (*open_sessions, *(one.name for one in conversations))), default=0)
    rows = [
        (f"{name:<{width}}", f"{plural(len(one.turns), 'turn'):<8}", _save_location(one, place))
        for name, one in open_sessions.items()
    ]
    parts = [PrintedLine("Sessions of the notebook:", "heading"), *_named(rows)]
    if place.folder is None:
        return printout([*parts, f"Not saved: {place.why_not}."])
    saved = f"Saved in {relative_path(place.folder)}{':' if conversations else ': nothing yet.'}"
    saved_rows = [
        (f"{one.name:<{width}}", f"{length(one):<8}", f"{ago(now - one.modified):<14}", _line(one.prompt))
        for one in conversations
    ]
    return printout([*parts, PrintedLine(saved, "heading"), *_named(saved_rows)])


def _named(rows: Sequence[Sequence[str]]) -> list[PrintedRows]:
    """Return rows that begin with a name, as a part of a printout; no part if there are none."""
    return [PrintedRows(rows, "names", indent=2)] if rows else []


def length(conversation: SavedConversation) -> str:
    """Return the length of a saved conversation in turns, or in MB if its turns were not counted."""
    return (
        f"{conversation.path.stat().st_size / 1e6:.0f} MB"
        if conversation.turns is None
        else plural(conversation.turns, "turn")
    )


def load_report(name: str, session: Session, notices: Sequence[Notice]) -> Printout:
    """Return what is said of a loaded conversation: its length, its last turn, damage to its file, tools in doubt.

    A tool is in doubt if a kernel died while the tool was running: the tool may have done its work.
    """
    where = relative_path(session.path) if session.path is not None else "memory"
    rows: list[tuple[str, str]] = []
    if session.turns:
        last = session.turns[-1]
        rows += [("asked last", _line(last.prompt.text)), ("answered", _line(last.answer) or "nothing")]
    if session.in_doubt:
        rows.append(("in doubt", f"{_in_doubt(session)}; you are asked before it runs again"))
    facts = [PrintedRows(rows, indent=2, least=10)] if rows else []
    goes_on = f"{name} goes on with {plural(len(session.turns), 'turn')} of {where}."
    return printout([goes_on, *facts, *(notice.text for notice in notices)])


def about_earlier(conversation: SavedConversation, saved: Saved, now: float) -> str:
    """Return sentences about a conversation of an earlier kernel: its length, its age, what is in doubt in it."""
    doubts = _names_of(saved.in_doubt)
    sentences = (
        f"The conversation goes on: {plural(len(saved.turns), 'turn')}, {ago(now - conversation.modified)}.",
        *saved.problems,
        f"In doubt: {doubts}; you are asked before it runs again." if doubts else "",
    )
    return " ".join(filter(None, sentences))


def ago(seconds: float) -> str:
    """Return a time span as text such as "3 hours ago", in the largest unit that fits."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return f"{plural(int(seconds // length), unit)} ago"
    return "just now"


def permission(value: PolicyLike) -> str:
    """Return a line about a permission policy: its default or level, how many rules it has, whether it has a hook."""
    policy = policy_of(value)
    default = policy.default if policy.level == "ask" or policy.default != "ask" else LEVELS[policy.level].lower()
    rules = plural(len(policy.rules), "rule") if policy.rules else ""
    summary_text = ", ".join(filter(None, (default, rules, "a hook" if policy.hook else "")))
    override = settings.permission_override()
    return f"{override} ({settings.PERMISSION}), over {summary_text}" if override else summary_text


def _context(session: Session) -> str:
    """Return how much of the model's context window the last request filled. It is "" before the first request."""
    for turn in reversed(session.turns):
        if tokens := tokens_used(turn):
            start = turn.events[0]
            window = info(start.model).window if isinstance(start, TurnStarted) else None
            share = f" of the window of {window:,} ({tokens / window:.0%})" if window else ""
            return f"{tokens:,} tokens{share}"
    return ""


def _save_location(session: Session, place: SaveFolder) -> str:
    """Return where a session is saved, or why it is not saved."""
    journal = session.history.journal
    if journal is None:
        return f"nowhere: {place.why_not or 'it was made in code, without a path'}"
    if not journal.problem:
        return relative_path(journal.path)
    why = "another kernel writes it" if journal.taken else f"it cannot be saved in {relative_path(journal.path)}"
    return f"in memory only: {why}; %agent save FILE keeps it"


def _in_doubt(session: Session) -> str:
    return _names_of(session.in_doubt)


def _names_of(tools: Collection[ToolKey]) -> str:
    return ", ".join(f"{name} ({server})" for server, name in sorted(tools))


# -- models, tools, the log ------------------------------------------------------------------------


def models(session: Session) -> Printout:
    """Return the providers, with default models and whether keys are set, and the installed agent programs."""
    rows = [
        (f"{row.name}:{row.default or _PLACEHOLDERS.get(row.name, 'MODEL')}", f"{row.about}{_key(row)}")
        for row in providers().values()
    ]
    rows += [(agent.model, "an agent of this machine, with its own login") for agent in list_installed()]
    return printout([f"The session's model: {model_name(session)}", *_named(rows)])


def tools(definitions: Sequence[ToolDef], problems: Sequence[str] = ()) -> Printout:
    """Return the tools, the notebook's first, then those of each server, and the problems of failed servers."""
    if not definitions and not problems:
        return note("There are no tools. Mark a function with @tool, or connect a server with %mcp add.")
    in_order = sorted(definitions, key=lambda one: (one.server != "notebook", one.server, one.name))
    parts: list[Printed] = []
    for server, group in groupby(in_order, key=lambda one: one.server):
        parts.append(PrintedLine(shown_server(server), "heading"))
        parts += _named([(one.name, _line(one.description)) for one in group])
    return printout([*parts, *problems])


def log(lines: Sequence[LogEntry], *, detailed: bool, times: bool) -> Printout:
    """Return log records, one on each line; without `times`, the lines have no time of day and no durations."""
    hint = "%agent debug on keeps more from then on: every event of a turn, and the SDKs' records."
    clock = "%H:%M:%S " if times else ""
    rows = [f"{time.strftime(clock, time.localtime(one.time))}{one.level:<8}{one.logger}: {one.text}" for one in lines]
    text = "\n".join(rows) or "There are no records yet."
    records = PrintedLine(text if times else _SECONDS.sub("…", text), "code")
    return printout([*([] if detailed else [PrintedLine(hint, "quiet")]), records])


def _key(row: Provider) -> str:
    if not row.keys:
        return ""
    return ", key found" if settings.find_key(row.keys) else f", needs {' or '.join(row.keys)}"


# -- servers ---------------------------------------------------------------------------------------


def servers(toolsets: Iterable[Toolset], name: str | None = None, *, errors: bool = True) -> Printout:
    """Return a row for each MCP server in the toolsets, or only for `name`: state, number of tools, last error."""
    from agentmagic.tools.mcp import McpServers  # imported late: the import is slow, and many notebooks have no server

    states = [state for source in toolsets if isinstance(source, McpServers) for state in source.servers]
    rows = [
        (
            shown_server(one.name, one.address),
            one.state,
            f"{_tools(one)}{'  ' + _line(one.error) if one.error and errors else ''}",
        )
        for one in states
        if name in (None, one.name)
    ]
    none = "There are no servers. Connect one: %mcp add NAME COMMAND... or %mcp add NAME URL"
    return printout([PrintedRows(rows, "names", least=14)]) if rows else note(none)


def _tools(state: "ServerState") -> str:
    count = plural(state.tools, "tool")
    if not state.left_out:
        return count
    return f"{count}, {'more' if '...' in state.left_out else len(state.left_out)} left out"


def server(state: "ServerState") -> Printout:
    """Return all details of an MCP server: address, state, tools, errors, the end of its stderr."""
    left_out = [("left out", f"{name}: {why}") for name, why in list(state.left_out.items())[:MOST_LEFT_OUT]]
    if len(state.left_out) > MOST_LEFT_OUT:
        left_out.append(("", f"({MOST_LEFT_OUT} of {len(state.left_out)})"))
    dropped_rows = [("dropped", f"{name}: {', '.join(words)}") for name, words in state.dropped.items() if words]
    rows = [
        ("server", state.name),
        ("state", state.state),
        ("address", state.address),
        ("calls itself", state.title),
        ("protocol", state.protocol),
        ("tools", _tools(state)),
        ("runs unasked", ", ".join(state.allow)),
        ("disabled", ", ".join(state.disabled)),
        *left_out,
        *dropped_rows[:MOST_LEFT_OUT],
        ("error", state.error),
    ]
    facts = PrintedRows([(label, sanitize(value)) for label, value in rows if value], least=12)
    head = f"The end of its stderr (%mcp logs {state.name} shows more)"
    if state.state in ("died", "failed"):
        head = "Its last words on stderr"
    end = "\n".join(state.stderr.splitlines()[-STDERR_LINES:])
    return printout([facts], _titled("It says of itself", state.instructions, "line"), _titled(head, end, "code"))


def server_log(lines: Sequence[tuple[str, str, str]], stderr: str) -> Printout:
    """Return the log lines of an MCP server (level, logger and text), and the end of its stderr."""
    entries = [f"{level:<10}{logger + ': ' if logger else ''}{text}" for level, logger, text in lines]
    end = _titled("The end of its stderr", stderr, "code")
    if not entries and not end:
        return note("It has logged nothing.")
    return printout([PrintedLine("\n".join(entries), "code")] if entries else [], end)


def _titled(title: str, text: str, look: LineLook) -> list[PrintedLine]:
    """Return a text below its title, as parts of a printout; no parts if the text is empty."""
    return [PrintedLine(f"{title}:", "heading"), PrintedLine(text, look)] if text else []


def prompts(entries: "Iterable[Prompt]") -> Printout:
    """Return a row for each prompt of MCP servers: name, arguments (optional in brackets), server, description."""
    rows: list[tuple[str, ...]] = []
    for one in entries:
        arguments = (f"{argument.name}=" if argument.required else f"[{argument.name}=]" for argument in one.arguments)
        rows.append((shown_server(one.server), one.name, " ".join(arguments), _line(one.description)))
    return printout([PrintedRows(rows, "names")]) if rows else note("The servers offer no prompts.")


def resources(entries: "Iterable[ResourceEntry]") -> Printout:
    """Return a row for each resource of MCP servers: the `@SERVER:URI` that attaches it, and a description."""
    rows = [(f"@{one.server}:{one.uri}", _line(one.description or one.name)) for one in entries]
    return printout([PrintedRows(rows, "names")]) if rows else note("The servers offer no resources.")


def _line(text: str) -> str:
    return single_line(sanitize(text), WIDTH)


# -- serving -------------------------------------------------------------------------------------------------

WAITING_FOR_CALLS = "This cell waits for calls until it is interrupted."
WAIT_FOR_CALLS = "Calls are carried out while a cell waits for them: %agent serve --wait."


def stop_serving(session: Session) -> str:
    """Stop serving a session over MCP. Return a message naming its clients. Raises UsageError if it is not served."""
    if (serving := session.serving) is None:
        raise UsageError("Nothing is served. %agent serve begins it.")
    serving.stop()
    clients = f" Clients that called: {join_names(serving.clients)}." if serving.clients else ""
    return f"{STOPPED}{clients}"
