"""The texts and figures that all renderers share."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import unified_diff
from itertools import islice, zip_longest
from typing import Any, TypeVar, cast

from agentmagic.display.blocks import (
    Block,
    ChecklistBlock,
    FooterBlock,
    PromptBlock,
    ProposalBlock,
    QuestionBlock,
    ReasoningBlock,
    RetryBlock,
    State,
    TextBlock,
    ToolCard,
    ValuesBlock,
)
from agentmagic.display.programs import last_statement, value_line
from agentmagic.events import (
    SERVED,
    CellPlace,
    Level,
    PageDecision,
    PromptValue,
    ProposalFate,
    StopReason,
    TaskState,
    ToolProgress,
    VariableChange,
    VariablesChanged,
)
from agentmagic.messages import Media, Part, Resource, Text, Usage
from agentmagic.plan import TaskProgress
from agentmagic.providers.outside import is_outside
from agentmagic.secrets import redact, without_growing_secret
from agentmagic.serialization import same_json
from agentmagic.text import (
    DEEPEST,
    cut_middle,
    exact,
    join_names,
    json_line,
    plural,
    reveal,
    sanitize,
    sanitize_json,
    single_line,
)
from agentmagic.tools.base import PRINTED
from agentmagic.tools.server_names import address_to_show, is_mcp_server, shown_server
from agentmagic.undo.watcher import RUN_PYTHON

V = TypeVar("V")


class OpenTable(dict[str, V]):
    """A dict that has a value for unknown keys too: a newer version or user code may use words not listed here."""

    def __init__(self, entries: Mapping[Any, V], other: Callable[[str], V]) -> None:
        super().__init__(entries)
        self._other = other

    def __missing__(self, key: str) -> V:
        return self._other(key)


def _plain_word(word: object) -> str:
    return single_line(sanitize(str(word)), LONGEST_WORD).replace("_", " ")


GLYPHS: dict[State, str] = {
    "pending": "◌",
    "waiting": "‖",
    "running": "◐",
    "done": "✓",
    "failed": "✗",
    "denied": "⊘",
    "interrupted": "■",
}
LEVELS: dict[Level, str] = {"info": "", "warning": "Warning:", "error": "Error:"}
"""The word before a notice."""

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
_STOPS: dict[StopReason, str] = {
    "answer": "",
    "done": "",
    "limit": "stopped at the limit of steps",
    "budget": "stopped at the budget",
    "timeout": "",
    "cancelled": "stopped",
    "no_tools": "no tools to call",
    "error": "",
}
"""How a turn ended, in its footer. For a timeout and an error this is "", because the notice above has the reason."""
STOPS = OpenTable(_STOPS, lambda reason: f"stopped: {_plain_word(reason)}")

FILES = "Their text"
UNSENT = "no answer, not sent again"
"""Shown in the footer of a turn that later requests leave out."""

_FATES: dict[ProposalFate, str] = {"kept": "kept", "changed": "kept with changes", "discarded": "discarded"}
FATES = OpenTable(_FATES, _plain_word)
_PLACES: dict[CellPlace, str] = {
    "staged": "It stands in the notebook and was not run: keep or discard it there.",
    "below": "It was inserted below the cell that ran, and was not run.",
    "shown": "Copy it if you want it: it could not be put into the notebook from here.",
}
PLACES = OpenTable(_PLACES, lambda _place: _PLACES["shown"])

ONE_LINE = 80
"""Characters of the longest JSON that is written on one line."""

LONGEST_RESULT = 20_000
"""Characters of a result, or of arguments, that a card shows."""

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

LONGEST_WORD = 40
"""Characters that are shown of an unknown word."""

LONGEST_WHY = 300
"""Characters that are shown of the reason for a proposed cell."""

CHANGES = {"made": "+", "changed": "~", "removed": "-"}
MODULE = "module "
"""The beginning of the description of an imported module; a receipt does not list imports."""
MOST_CHANGES = 30
"""Changed variables that a receipt lists."""

SHORT_ARGUMENTS = 100
LONGEST_LINE = 300
"""Characters that are shown of a command of the chat panel, once the user has decided about it."""
HOSTED = {
    "web_search": ("Search the web", "Searching the web", "Searched the web"),
    "web_fetch": ("Read pages of the web", "Reading a page", "Read a page"),
    "code_execution": ("Run code at the provider", "Running code", "Ran code"),
}
"""Titles of tools that the provider runs: in the question to the user, while the tool runs, and after it ran."""

KEY_WIDTH = 24
SECONDS_A_MINUTE = 60

_LANGUAGES = OpenTable({"code": "python", "markdown": "markdown"}, lambda _kind: "text")
_VALUES = ("variable:", "cell:", "error:", "file:")
"""How the names of attached values begin. The address of a server's file may begin so too, but has "://"."""
_COLUMNS = re.compile(r"((?:^ +\S.*\n)?(?:^(?=.*(?:\S {2,}\S|[│┌└])).*(?:\n|\Z)){2,})", re.MULTILINE)
"""Two or more lines with blanks or borders between columns, and the header line before them.

A lookahead is not tried again when the rest does not match. Without it, one long line would take quadratic time.
"""

_LOOKS_OTHERWISE = re.compile(r"\s.*|.*\s|-?[\d.]+([eE][-+]?\d+)?|true|false|null|", re.DOTALL)
"""Strings of one line that, without their quotes, would be read as another value or as nothing."""


def restore_unchanged(
    edited: Any, original: Any, change: Callable[[str], str] = exact, depth: int = DEEPEST, name: str = ""
) -> Any:
    """Return the value that a user edited, with each part that the user left unchanged replaced by the original part.

    A part is unchanged if it equals what `sanitize_json` makes of the original with this `change`, `depth` and `name`.
    So secrets that were shown blanked, and parts that were not shown because they are nested too deep, are restored.
    """
    if same_json(edited, sanitize_json(original, change, depth, name)):
        return original
    if depth == 0:
        return edited
    match edited, original:
        case dict(), Mapping():
            before = cast("Mapping[str, Any]", original)
            keys = {change(key): key for key in before}
            items = ((keys.get(key, key), value) for key, value in cast("dict[str, Any]", edited).items())
            return {key: restore_unchanged(value, before.get(key), change, depth - 1, key) for key, value in items}
        case list(), list() | tuple():
            pairs = zip_longest(cast("list[Any]", edited), cast("list[Any]", original))
            return [restore_unchanged(value, old, change, depth - 1, name) for value, old in pairs][
                : len(cast("list[Any]", edited))
            ]
        case _:
            return edited


def compact(value: Any) -> str:
    """Return a JSON value on one line.

    A string is returned as it is, with its line breaks, if it cannot be mistaken for a JSON value of another type.
    """
    if isinstance(value, str) and ("\n" in value.strip() or not _LOOKS_OTHERWISE.fullmatch(value.strip("\n"))):
        return value
    return json_line(value)


def indented_json(value: Any) -> str:
    """Return a JSON value as indented text."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


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


def card_name(card: ToolCard) -> str:
    """Return the name of the called tool, or in words what a call of the model's provider does."""
    return hosted_title(card) or sanitize(card.name)


def server(card: ToolCard) -> str:
    """Return the name of the server of a tool call, with the address of an MCP server whose name could be mistaken.

    For a call that asks an agent, return "agent".
    """
    if card.agent:
        return "agent"
    return sanitize(card.server) if card.hosted else shown_server(card.server)


def group_names(cards: Iterable[ToolCard]) -> str:
    """Return the names of the tools that a group of calls uses; a tool with more calls also has their number."""
    times = Counter(map(card_name, cards))
    return ", ".join(name if count == 1 else f"{name} \N{MULTIPLICATION SIGN}{count}" for name, count in times.items())


def has_address(card: ToolCard) -> bool:
    """Return whether `server` shows an address with the name."""
    return not (card.hosted or card.agent) and address_to_show(card.server) != ""


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


def hosted_title(card: ToolCard) -> str:
    """Return in words what a call of the model's provider does or may do; "" for other calls and unknown tools."""
    question, doing, did = HOSTED.get(card.name, ("", "", "")) if card.hosted else ("", "", "")
    return question if card.is_question else did if card.state == "done" else doing


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


def edits(card: ToolCard) -> str:
    """Return how the user changed the arguments of a tool call, as lines of a diff; "" without changes."""
    if card.written is None or card.call is None:
        return ""
    before, now = (format_arguments(arguments).splitlines() for arguments in (card.written, card.call.arguments))
    _, _, *lines = [*unified_diff(before, now, lineterm="", n=0), "", ""]
    return "\n".join(f"{line[0]} {line[1:]}" for line in lines if line and not line.startswith("@@"))


def all_arguments(card: ToolCard) -> str:
    """Return all arguments of a call, formatted by `format_arguments`, or as raw JSON while the model writes them."""
    if card.call is None:
        return _without_middle(sanitize(without_growing_secret(card.raw)), LONGEST_RESULT)
    return format_arguments(card.call.arguments)


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
    return reveal(_without_middle(redact(code), LONGEST_RESULT))


def question_label(block: QuestionBlock) -> str:
    """Return the word before a question, or before the request of a turn that pauses."""
    return "Paused:" if block.step else "Question:"


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a tool call's arguments as text for a user who approves it: one on each line, the values in a column.

    Hidden characters are escaped. The middle of a value that is too long is left out. So its end stays visible, and no
    value pushes another one out of sight.
    """
    visible: dict[str, Any] = sanitize_json(dict(islice(arguments.items(), MOST_ARGUMENTS)), redact)
    each = max(LONGEST_RESULT // max(len(visible), 1), SHORTEST_CUT)
    pairs = [(reveal(key), reveal(_without_middle(compact(value), each))) for key, value in visible.items()]
    width = min(max((len(key) for key, _ in pairs), default=0), KEY_WIDTH)
    more = len(arguments) - len(pairs)
    rest = [f"({more:,} more arguments are not shown)"] if more else []
    return "\n".join([*(_align(key, value, width) for key, value in pairs), *rest])


def _without_middle(text: str, most: int) -> str:
    return cut_middle(
        text, most, lambda start, end: f"\n… {end - start:,} of {len(text):,} characters are not shown …\n"
    )


def _align(key: str, text: str, width: int) -> str:
    key = single_line(key, 4 * KEY_WIDTH)
    return f"{key:<{width}}  " + text.replace("\n", "\n" + " " * (width + 2))


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
    word = "" if row.state in ("pending", "done") else _plain_word(row.state)
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


def answer(block: QuestionBlock) -> str | None:
    """Return the user's answer to a question, None before the answer.

    An answer that is a plan is not repeated, because the checklist of the plan shows its tasks.
    """
    if block.answer is None or not block.plan:
        return None if block.answer is None else sanitize(block.answer)
    return "Run as it is." if block.answer.strip() in ("", block.suggested.strip()) else "Run as changed."


def stretches(text: str) -> list[tuple[str, bool]]:
    """Split a text into parts, each with True if it is laid out in columns, like a data frame in a prompt."""
    parts = [(part, bool(place % 2)) for place, part in enumerate(_COLUMNS.split(text))]
    return [(part, columns) for part, columns in parts if part] or [("", False)]


def typed_text(block: PromptBlock) -> str:
    """Return the text of a prompt as the user typed it.

    A table that replaced a name in the prompt becomes the name again, because a ValuesBlock shows the table.
    """
    text = sanitize(block.prompt.text)
    for value in block.values:
        if value.in_place and "\n" in value.text:  # a table was put on lines of its own, even in a sentence
            place = rf"(?:(?<=[ (])\n\n)?{re.escape(value.text)}(?:\n\n(?=[ ,;:.?!)]))?"
            text = sanitize(value.written).join(re.split(place, text, maxsplit=1))
    return text


def attachments(block: PromptBlock) -> list[tuple[str, str]]:
    """Return the name and text of each resource and variable that is attached to a prompt.

    Values that a ValuesBlock shows are left out.
    """
    resources = (part for part in own_parts(block) if isinstance(part, Resource) and part.text)
    return [
        (sanitize(resource.name or resource.uri), _without_middle(sanitize(resource.text), LONGEST_RESULT))
        for resource in resources
    ]


def own_parts(block: PromptBlock) -> list[Part]:
    """Return the parts of a prompt, without the values that a ValuesBlock shows."""

    def is_value(part: Part) -> bool:
        return isinstance(part, Resource) and "://" not in part.uri and part.uri.startswith(_VALUES)

    return [part for part in block.prompt.parts if not (block.values and is_value(part))]


def values_line(block: ValuesBlock) -> str:
    """Return one line on what the model gets for the values: "{sales}: DataFrame, 7 rows x 2 columns (90 tokens)"."""
    return " · ".join(
        f"{_short(value.written)}: {_short(value.shown)} ({plural(value.tokens, 'token')})" for value in block.values
    )


def values(block: ValuesBlock) -> Iterator[tuple[PromptValue, str | Media]]:
    """Yield each value with the text or the image that the model gets for it."""
    images = (part for part in block.prompt.parts if isinstance(part, Media))
    for value in block.values:
        image = next(images, None) if value.kind == "image" else None
        yield value, image or _without_middle(sanitize(value.text), LONGEST_RESULT)


def _short(text: str) -> str:
    return single_line(sanitize(text), SHORT_ARGUMENTS)


def duration(seconds: float) -> str:
    """Return a duration in words: "850 ms", "2.1 s" or "3 min 5 s"."""
    if seconds < 1:
        return f"{max(seconds * 1000, 1):.0f} ms"
    if seconds < SECONDS_A_MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), SECONDS_A_MINUTE)  # round before dividing, to avoid "1 min 60 s"
    return f"{minutes} min {rest} s"


def progress(event: ToolProgress) -> str:
    """Return how far a tool call has come, with the last line of its output."""
    figures = f"{event.progress:g} of {event.total:g}" if event.total else ""
    last = sanitize(event.message).strip("\n").rpartition("\n")[2]
    return " ".join(filter(None, (figures, single_line(last, SHORT_ARGUMENTS))))


def share(event: ToolProgress) -> float | None:
    """Return which share of a tool call is done, from 0 to 1, or None if that is unknown."""
    fraction = event.progress / event.total if event.total else math.nan
    return min(max(fraction, 0), 1) if math.isfinite(fraction) else None


def retry(block: RetryBlock, *, times: bool) -> str:
    """Return a sentence that says why and when a failed request is sent again, or was if the block is closed."""
    error = sanitize(block.error).strip().rstrip(".")
    seconds = f"{round(block.delay, 1):g} s" if times else ""
    number = f"({block.attempt + 1} of {block.tries})"
    if block.open:
        joint = ". Trying" if ". " in error else ", trying"
        return f"{error}{joint} again{f' in {seconds}' if seconds else ''} {number}"
    if not block.answered:
        return f"{error}. The turn ended before the next try {number}"
    return f"{error}. Tried again{f' after {seconds}' if seconds else ''} {number}"


def receipt(event: VariablesChanged) -> str:
    """Return what a turn changed: a line for each variable, files opened to write, unwatched variables; or ""."""
    changes = [change for change in event.changes if not _is_import(change)]
    lines = [_change(change) for change in changes[:MOST_CHANGES]]
    more = [f"{len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else []
    head = ["Changed in the notebook:"] if lines else []
    files = f"Files opened to write: {', '.join(event.files)}." if event.files else ""
    names = join_names(event.unwatched, MOST_CHANGES)
    unwatched_note = f"Not watched, and not put back by undo: {names}." if event.unwatched else ""
    return "\n".join(filter(None, (*head, *lines, *more, files, unwatched_note)))


def _is_import(change: VariableChange) -> bool:
    """Return whether a change binds the name of a module, or removes it."""
    return change.change != "changed" and (change.after or change.before).startswith(MODULE)


def _change(change: VariableChange) -> str:
    sizes = " → ".join(dict.fromkeys(filter(None, (change.before, change.after))))
    return f"{CHANGES[change.change]} {change.name}{': ' if sizes else ''}{sizes}"


def proposal_title(block: ProposalBlock) -> str:
    """Return the title of a proposal: "Proposed change of cell 3"."""
    proposal = block.proposed
    which = f" cell {proposal.number}" if proposal.number else " the cell"
    match proposal.action:
        case "insert":
            kind = "Markdown cell" if proposal.kind == "markdown" else "cell"
            return f"Proposed {kind}{f', below{which}' if proposal.number else ''}"
        case "change":
            return f"Proposed change of{which}"
        case "remove":
            return f"Proposed removal of{which}"
        case _:
            return f"Proposed: {_plain_word(proposal.action)}{which}"


def proposal_why(block: ProposalBlock) -> str:
    """Return the reason for a proposed cell, on one line."""
    return single_line(sanitize(block.proposed.why), LONGEST_WHY)


def proposal_state(block: ProposalBlock) -> str:
    """Return in words what the user did with a proposed cell, or "" before the user decides."""
    if block.settled is None:
        return ""
    if block.proposed.action == "remove" and block.settled.fate == "kept":
        return "removed"
    return FATES[block.settled.fate] + (", and run" if block.settled.ran else "")


def proposal_hint(block: ProposalBlock) -> str:
    """Return what the user can do with a proposed cell, or "" if there is nothing left to do."""
    place, action = block.proposed.place, block.proposed.action
    if block.settled is not None or (place == "shown" and action == "remove"):
        return ""
    return PLACES[place]


def proposal_code(block: ProposalBlock) -> tuple[str, str]:
    """Return a proposed cell's code (a diff if it changes a cell) and its language. Hidden characters are escaped."""
    proposal = block.proposed
    source, before = exact(proposal.source), exact(proposal.before)
    if block.settled is not None and block.settled.fate == "changed":
        source = exact(block.settled.source)
    if proposal.action == "change":
        _, _, _, *lines = [*unified_diff(before.splitlines(), source.splitlines(), lineterm=""), "", "", ""]
        return "\n".join("⋮" if line.startswith("@@") else line for line in lines).rstrip("\n"), "diff"
    return before if proposal.action == "remove" else source, _LANGUAGES[proposal.kind]


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


def page_decision(event: PageDecision) -> str:
    """Return a sentence about an act of the chat panel's page that the user allowed or denied."""
    line = single_line(exact(event.line), LONGEST_LINE)
    if event.reason:
        return f"Not done, because {sanitize(event.reason)}: {line}"
    return f"You {'allowed' if event.approved else 'denied'} in the panel: {line}"


def effects(card: ToolCard) -> str:
    """Return lines of text on what a tool call does, or "" if its tool did not report it."""
    return "\n".join(map(exact, card.effects))


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


def waiting(running: FooterBlock | None) -> str:
    """Return in words what a turn waits for after a request: a model on this machine reads the prompt for a while."""
    is_local = running is not None and running.model.startswith("local:")
    return "the local model is reading the prompt" if is_local else "waiting for the model"


def footer(block: FooterBlock, *, times: bool) -> Iterator[str]:
    """Yield the figures of a turn: agent, model, time (if `times` is true), cost, and how it ended.

    A turn that an MCP client began has no model and no time here: the card of its call shows the client and the time.
    """
    is_served = block.model.startswith(SERVED)
    if block.agent:
        yield sanitize(block.agent)
    if block.model and not is_served:
        yield sanitize(block.model)
    if times and block.stop_reason and not is_served:
        yield duration(block.seconds)
    has_tokens = block.usage.input_tokens or block.usage.output_tokens
    is_priced = block.usage.cost is not None or not (block.price_told or is_outside(block.model))
    if has_tokens and is_priced:
        yield cost(block.usage.cost)
    if block.stop_reason and STOPS[block.stop_reason]:
        yield STOPS[block.stop_reason]
    if block.unsent is not None:
        yield UNSENT


def footer_details(block: FooterBlock, *, times: bool) -> str:
    """Return further figures of a turn: steps, requests, searches and tokens; with `times`, the id of its trace too."""
    steps = plural(block.steps, "step") if block.steps else ""
    requests = plural(block.usage.requests, "request") if block.usage.requests else ""
    has_tokens = block.usage.input_tokens or block.usage.output_tokens
    figures = (
        steps,
        requests,
        searches(block.usage),
        _tokens(block.usage) if has_tokens else "",
        trace(block) if times else "",
    )
    return " · ".join(filter(None, figures))


def searches(usage: Usage) -> str:
    """Return the number of web searches as text, such as "2 searches"; "" if there were none."""
    number = usage.searches
    return f"{number:,} {'search' if number == 1 else 'searches'}" if number else ""


def trace(block: FooterBlock) -> str:
    """Return the OpenTelemetry trace id of a turn as text, or "" if it has no trace.

    The id differs in each run, so output that must not depend on the clock leaves it out.
    """
    return f"trace {sanitize(block.trace[:32])}" if block.trace else ""


def _tokens(usage: Usage) -> str:
    counts = {"cached": usage.cached_tokens, "written to the cache": usage.cache_write_tokens}
    parts = ", ".join(f"{count:,} {label}" for label, count in counts.items() if count)
    return f"{usage.input_tokens:,} tokens in{f' ({parts})' if parts else ''}, {usage.output_tokens:,} out"


def costs(dollars: float, unpriced: int) -> str:
    """Return the cost of several requests as text; it says if the price of some of them (`unpriced`) is unknown."""
    if unpriced and not dollars:
        return "unknown"
    return f"{cost(dollars)}{' + unknown' if unpriced else ''}"


def cost(dollars: float | None) -> str:
    """Return a cost in US dollars as text, with four decimals below $1, else two. For None, it is "price unknown"."""
    if dollars is None:
        return "price unknown"
    if dollars == 0:
        return "no charge"
    if dollars < 0.0001:  # noqa: PLR2004  (what four decimals can show)
        return "less than $0.0001"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"
