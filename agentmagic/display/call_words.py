"""The texts about tool calls, and about the tasks of a plan, that all renderers share."""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Any, cast

from agentmagic.display.blocks import (
    Block,
    ChecklistBlock,
    FooterBlock,
    QuestionBlock,
    ReasoningBlock,
    State,
    TextBlock,
    ToolCard,
    is_frame,
)
from agentmagic.display.words import LONGEST_RESULT, SHORT_ARGUMENTS, OpenTable, compact, plain_word, without_middle
from agentmagic.events import TaskState, ToolProgress
from agentmagic.messages import Resource, Text, ToolResult
from agentmagic.plan import TaskProgress
from agentmagic.providers.outside import is_outside
from agentmagic.secrets import redact, without_growing_secret
from agentmagic.text import exact, plural, reveal, sanitize, sanitize_json, single_line
from agentmagic.tools.base import NO_OUTPUT, PRINTED
from agentmagic.tools.server_names import address_to_show, is_mcp_server, shown_server
from agentmagic.undo.watcher import RUN_PYTHON

GLYPHS: dict[State, str] = {
    "pending": "◌",
    "waiting": "‖",
    "running": "◐",
    "done": "✓",
    "failed": "✗",
    "denied": "⊘",
    "interrupted": "■",
}
STATES: dict[State, str] = {
    "pending": "",
    "waiting": "waits for you",
    "running": "running",
    "done": "",
    "failed": "failed",
    "denied": "denied",
    "interrupted": "interrupted",
}
_STATE_OF_TASK: dict[TaskState, State] = {
    "pending": "pending",
    "running": "running",
    "done": "done",
    "failed": "failed",
    "skipped": "denied",
}
TASK_STATES: OpenTable[State] = OpenTable(_STATE_OF_TASK, lambda _state: "interrupted")
"""The state of a call that has the same glyph and colour as the state of a task."""

MOST_ARGUMENTS = 200
"""Arguments that a card shows."""
CODE = {
    **dict.fromkeys(("code", "python", "source"), "python"),
    "sql": "sql",
    "query": "sql",
    "changes": "diff",
    "command": "bash",
}
"""The language of arguments that hold code, by the argument's name."""
SHORTEST_CODE = 20
"""An argument must have more characters than this to be highlighted as code."""
SHORTEST_CUT = 500
"""Characters that are shown of each long argument at least, however many arguments there are."""
HOSTED = {
    "web_search": ("Search the web", "Searching the web", "Searched the web"),
    "web_fetch": ("Read pages of the web", "Reading a page", "Read a page"),
    "code_execution": ("Run code at the provider", "Running code", "Ran code"),
}
"""Titles of tools that the provider runs: in the question to the user, while the tool runs, and after it ran."""
KEY_WIDTH = 24

LONGEST_PARSED = 20_000
"""Characters of the longest program that is parsed; of a longer one, the last line stands for the last statement."""
LONGEST_VALUE = 60

_ESCAPE = re.compile(r"\\[^\n\x80-\U0010ffff]")
_SIZE = re.compile(r"shape: \(([\d_,]+), ([\d_,]+)\)|>([\d,]+) rows \xd7 ([\d,]+) columns")
_SERIES_END = re.compile(r"(?:Name|Length|dtype): ")
"""How the last line of a pandas Series begins, which tells its name, length and type."""


def card_name(card: ToolCard) -> str:
    """Return the name of the called tool, or in words what a call of the model's provider does."""
    return hosted_title(card) or sanitize(card.name)


def hosted_title(card: ToolCard) -> str:
    """Return in words what a call of the model's provider does or may do; "" for other calls and unknown tools."""
    question, doing, did = HOSTED.get(card.name, ("", "", "")) if card.hosted else ("", "", "")
    return question if card.is_question else did if card.state == "done" else doing


def server(card: ToolCard) -> str:
    """Return the name of the server of a tool call, with the address of an MCP server whose name could be mistaken.

    For a call that asks an agent, return "agent".
    """
    if card.agent:
        return "agent"
    return sanitize(card.server) if card.hosted else shown_server(card.server)


def has_address(card: ToolCard) -> bool:
    """Return whether `server` shows an address with the name."""
    return not (card.hosted or card.agent) and address_to_show(card.server) != ""


def group_names(cards: Iterable[ToolCard]) -> str:
    """Return the names of the tools that a group of calls uses; a tool with more calls also has their number."""
    times = Counter(map(card_name, cards))
    return ", ".join(name if count == 1 else f"{name} \N{MULTIPLICATION SIGN}{count}" for name, count in times.items())


def card_state(card: ToolCard, *, error: bool = True) -> str:
    """Return the state of a tool call in words: whether the user edited it, how it ended, why it was denied or failed.

    Without `error`, the reason of a failed call is left out, because the caller shows the error itself.
    """
    reason = why(card) if error or card.state == "denied" else ""
    outcome = ": ".join(filter(None, (STATES[card.state] or hosted_state(card), reason)))
    return ", ".join(filter(None, ("edited" if card.written is not None else "", outcome)))


def why(card: ToolCard) -> str:
    """Return on one line why a call was denied or failed: the reason, or the first line of the error; else ""."""
    if card.state == "denied":
        return single_line(sanitize(card.reason), SHORT_ARGUMENTS)
    if card.state != "failed" or card.result is None or card.is_for_model:
        return ""
    texts = (part.text for part in card.result.content if isinstance(part, Text) and part.audience != "assistant")
    error = next((text for text in texts if text.strip() and not text.startswith(PRINTED)), "")
    lines = sanitize(error[:LONGEST_RESULT]).splitlines()
    # Leave out lines such as the opening brace of JSON.
    return single_line(next((line for line in lines if any(map(str.isalnum, line))), ""), SHORT_ARGUMENTS)


def hosted_state(card: ToolCard) -> str:
    """Return the outcome of a call that the provider ran, such as "3 pages"; for a question, "allowed"; else ""."""
    if not card.hosted or card.state != "done":
        return ""
    pages = sum(isinstance(part, Resource) for part in card.result.content) if card.result else 0
    return plural(pages, "page") if pages else "allowed" if card.is_question else ""


def long_reason(card: ToolCard) -> str:
    """Return why a call was denied, or "" if `card_state` shows the whole reason."""
    reason = sanitize(card.reason)
    return "" if card_state(card).endswith(f": {reason}") else reason


def short_arguments(card: ToolCard) -> str:
    """Return the arguments of a tool call on one short line: of a program its last statement.

    While the model is writing the arguments, they are raw JSON. Return "" for a call that waits for the user's
    approval, because its card shows all arguments in full.
    """
    if card.state == "waiting":
        return ""
    if card.call is None:
        return single_line(sanitize(without_growing_secret(card.raw)), SHORT_ARGUMENTS)
    if code := _program(card):
        return single_line(last_statement(code)[0], SHORT_ARGUMENTS)
    arguments = sanitize_json(card.call.arguments)
    if card.hosted and not card.is_question:  # leave out the names: the card's title says what the values are
        lists = (cast("list[Any]", value if isinstance(value, list) else [value]) for value in arguments.values())
        return single_line(", ".join(compact(one) for values in lists for one in values), SHORT_ARGUMENTS)
    if is_outside(card.server) and not is_mcp_server(
        card.server
    ):  # show only the title that an outside agent gives its call
        return single_line(compact(arguments.get("title", "")), SHORT_ARGUMENTS)
    pairs = (f"{key}: {compact(value)}" for key, value in arguments.items())
    return single_line(", ".join(pairs), SHORT_ARGUMENTS)


def program_value(card: ToolCard) -> str:
    """Return the value of a program that has run, as "→ (120, 4)"; "" if the call is no program, or without a value."""
    code = _program(card) if card.state == "done" and card.result else ""
    value = value_line(code, card.result, card.rich) if code and card.result else ""
    return f"→ {value}" if value else ""


def _program(card: ToolCard) -> str:
    """Return the code of a call whose only argument is a program, with secrets blanked; "" for other calls."""
    match [*card.call.arguments.items()] if card.call else []:
        case [("code" | "python", str(code))] if card.name == RUN_PYTHON or len(code) > SHORTEST_CODE:
            return sanitize(code)
        case _:
            return ""


def last_statement(code: str) -> tuple[str, bool]:
    """Return the last statement of a program, and whether it is an expression, which has a value.

    If the program is not plain Python, or is too long, its last line is returned, and False.
    """
    # The parser would print a warning for an escape that Python does not know, so no escape is left for it.
    source = _ESCAPE.sub("__", code)
    try:
        last = ast.parse(source).body[-1] if len(code) <= LONGEST_PARSED else None
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        last = None
    if last is None:
        return next((line.strip() for line in reversed(code.splitlines()) if line.strip()), ""), False
    lines = [line.encode() for line in code.splitlines(keepends=True)[last.lineno - 1 : last.end_lineno]]
    lines[-1] = lines[-1][: last.end_col_offset]
    lines[0] = lines[0][last.col_offset :]
    return b"".join(lines).decode(errors="replace"), isinstance(last, ast.Expr)


def value_line(code: str, result: ToolResult, rich: Sequence[str]) -> str:
    """Return the value of a program's last expression on one short line, or "" if it has none.

    A data frame is shown as its size. `rich` has the HTML of each part of the result. If the last expression prints,
    its last printed line is returned.
    """
    statement, is_expression = last_statement(code)
    texts = [(number, part.text) for number, part in enumerate(result.content) if isinstance(part, Text)]
    values = [(number, text) for number, text in texts if not text.startswith((PRINTED, NO_OUTPUT))]
    if not is_expression or result.is_error:
        return ""
    if statement.startswith("print("):
        last_text = texts[-1][1] if texts else ""
        last_line = last_text.rpartition("\n")[2] if last_text.startswith(PRINTED) else ""
        return single_line(sanitize(last_line), LONGEST_VALUE)
    if not values:
        return ""
    number, text = values[-1]
    html = rich[number] if number < len(rich) else ""
    if is_frame(html):
        return frame_size(html)
    last_line = text.rpartition("\n")[2]
    return single_line(sanitize(last_line if _SERIES_END.match(last_line) else text), LONGEST_VALUE)


def told_size(html: str) -> tuple[int, int] | None:
    """Return the numbers of rows and columns that the HTML of a data frame tells, or None if it tells none.

    polars tells them above the table, pandas below it and only if it left out rows or columns.
    """
    match = _SIZE.search(html.partition("<table")[0] + html.rpartition("</table>")[2])
    if match is None:
        return None
    rows, columns = (int(re.sub("[_,]", "", number)) for number in match.groups() if number)
    return rows, columns


def frame_size(html: str) -> str:
    """Return the size of a data frame from its HTML: "120 rows x 4 columns"."""
    if size := told_size(html):
        rows, columns = size
    else:  # a frame that is shown as a whole does not tell its size
        body = html.partition("<tbody>")[2]
        rows, columns = body.count("<tr"), body.partition("</tr>")[0].count("<td")
    return f"{plural(rows, 'row')} x {plural(columns, 'column')}"


def all_arguments(card: ToolCard) -> str:
    """Return all arguments of a call, formatted by `format_arguments`, or as raw JSON while the model writes them."""
    if card.call is None:
        return without_middle(sanitize(without_growing_secret(card.raw)), LONGEST_RESULT)
    return format_arguments(card.call.arguments)


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a tool call's arguments as text for a user who approves it: one on each line, the values in a column.

    Hidden characters are escaped. The middle of a value that is too long is left out. So its end stays visible, and no
    value pushes another one out of sight.
    """
    visible: dict[str, Any] = sanitize_json(dict(islice(arguments.items(), MOST_ARGUMENTS)), redact)
    each = max(LONGEST_RESULT // max(len(visible), 1), SHORTEST_CUT)
    pairs = [(reveal(key), reveal(without_middle(compact(value), each))) for key, value in visible.items()]
    width = min(max((len(key) for key, _ in pairs), default=0), KEY_WIDTH)
    more = len(arguments) - len(pairs)
    rest = [f"({more:,} more arguments are not shown)"] if more else []
    return "\n".join([*(_align(key, value, width) for key, value in pairs), *rest])


def _align(key: str, text: str, width: int) -> str:
    key = single_line(key, 4 * KEY_WIDTH)
    return f"{key:<{width}}  " + text.replace("\n", "\n" + " " * (width + 2))


def edits(card: ToolCard) -> str:
    """Return how the user changed the arguments of a tool call, as lines of a diff; "" without changes."""
    if card.written is None or card.call is None:
        return ""
    before, now = (format_arguments(arguments).splitlines() for arguments in (card.written, card.call.arguments))
    _, _, *lines = [*unified_diff(before, now, lineterm="", n=0), "", ""]
    return "\n".join(f"{line[0]} {line[1:]}" for line in lines if line and not line.startswith("@@"))


def languages(card: ToolCard) -> dict[str, str]:
    """Return the names of a call's arguments that are code, with their languages."""
    arguments = card.call.arguments.items() if card.call else ()
    return {
        name: CODE[name]
        for name, value in arguments
        if name in CODE and isinstance(value, str) and len(value) > SHORTEST_CODE
        if not (card.hosted and name == "query")  # the words of a search
    }


def shown_code(code: str) -> str:
    """Return code for the user to check: without its middle if it is long, hidden characters as escapes."""
    return reveal(without_middle(redact(code), LONGEST_RESULT))


def effects(card: ToolCard) -> str:
    """Return lines of text on what a tool call does, or "" if its tool did not report it."""
    return "\n".join(map(exact, card.effects))


def progress(event: ToolProgress) -> str:
    """Return how far a tool call has come, with the last line of its output."""
    figures = f"{event.progress:g} of {event.total:g}" if event.total else ""
    last = sanitize(event.message).strip("\n").rpartition("\n")[2]
    return " ".join(filter(None, (figures, single_line(last, SHORT_ARGUMENTS))))


def share(event: ToolProgress) -> float | None:
    """Return which share of a tool call is done, from 0 to 1, or None if that is unknown."""
    fraction = event.progress / event.total if event.total else math.nan
    return min(max(fraction, 0), 1) if math.isfinite(fraction) else None


def activity(running: FooterBlock, blocks: Iterable[Block]) -> str:
    """Return in words what a running turn is doing, judged by its open blocks; "" while it waits for the user."""
    open_blocks = [block for block in blocks if block.open]
    cards = [block for block in open_blocks if isinstance(block, ToolCard)]
    if any(isinstance(block, QuestionBlock) for block in open_blocks) or any(card.waits for card in cards):
        return ""
    if running_cards := [card for card in cards if card.state == "running"]:
        names = ", ".join(dict.fromkeys(sanitize(card.name) for card in running_cards))
        return hosted_title(running_cards[-1]).lower() or single_line(f"waiting for {names}", SHORT_ARGUMENTS)
    match open_blocks[-1:]:
        case [TextBlock()]:
            return "writing"
        case [ReasoningBlock()]:
            return "thinking"
        case [ToolCard(call=None)]:
            return "choosing a tool"
        case _:
            return running.phase


def plan_heading(block: ChecklistBlock) -> str:
    """Return how far a plan has come: "Plan: 2 of 5 done, 1 failed"."""
    counts = Counter(row.state for row in block.rows)
    other_counts = [f"{counts[state]} {state}" for state in ("running", "failed", "skipped") if counts[state]]
    interruption = ["interrupted"] if not block.open and block.over < len(block.rows) else []
    return ", ".join([f"Plan: {counts['done']} of {len(block.rows)} done", *other_counts, *interruption])


def task_title(row: TaskProgress) -> str:
    """Return the description of a task, or its tool if it has no description, on one line."""
    return single_line(sanitize(row.task.description or row.task.tool), 4 * KEY_WIDTH)


def task_parts(row: TaskProgress) -> list[tuple[str, str]]:
    """Return the parts of a task that are shown on demand: pairs of a heading and a text."""
    parameters, summary = format_arguments(row.parameters), sanitize(row.summary)
    parts = (("Parameters", parameters), ("Attempts", "\n".join(attempts(row))), ("Summary", summary))
    return [(heading, text) for heading, text in parts if text]


def task_state(row: TaskProgress) -> str:
    """Return the state of a task in words, with the number of the attempt after the first one."""
    word = "" if row.state in ("pending", "done") else plain_word(row.state)
    again = f"attempt {row.attempt}" if row.attempt > 1 else ""
    return ", ".join(filter(None, (word, again)))


def attempts(row: TaskProgress) -> Iterator[str]:
    """Yield a line for each time the model judged a task's result: the verdict, and whether it was tried again."""
    for number, judgement in enumerate(row.judgements, 1):
        verdict = "fine" if judgement.success else "not what was needed"
        why = sanitize(judgement.reason or judgement.summary).strip().rstrip(".")
        then = (
            f" Tried again{'' if judgement.parameters is None else ' with other parameters'}."
            if judgement.retry
            else ""
        )
        yield f"Attempt {number}: {verdict}{f' ({single_line(why, 4 * SHORT_ARGUMENTS)})' if why else ''}.{then}"


def approve(card: ToolCard) -> str:
    """Return the label of the answer "yes" to a waiting call, "" if only an answer of its outside agent approves it."""
    return "" if not card.can_approve else "Allow in this session" if card.hosted else "Approve"


def always(card: ToolCard) -> str:
    """Return the label of the answer "always" to a waiting call, "" if the call can be approved only this time."""
    if card.once or card.hosted or not card.can_approve:
        return ""
    if card.exact:
        return "Always exactly this"
    return "Always this program" if card.effects else "Always allow"
