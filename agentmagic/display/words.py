"""The texts and figures that all renderers share."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from typing import Any, TypeVar

from agentmagic.display.blocks import FooterBlock, PromptBlock, ProposalBlock, QuestionBlock, RetryBlock, ValuesBlock
from agentmagic.events import (
    SERVED,
    CellPlace,
    Level,
    PageDecision,
    PromptValue,
    ProposalFate,
    StopReason,
    VariableChange,
    VariablesChanged,
)
from agentmagic.messages import Media, Part, Resource, Usage
from agentmagic.providers.outside import is_outside
from agentmagic.text import cut_middle, exact, join_names, json_line, plural, sanitize, single_line

V = TypeVar("V")


class OpenTable(dict[str, V]):
    """A dict that has a value for unknown keys too: a newer version or user code may use words not listed here."""

    def __init__(self, entries: Mapping[Any, V], other: Callable[[str], V]) -> None:
        super().__init__(entries)
        self._other = other

    def __missing__(self, key: str) -> V:
        return self._other(key)


def plain_word(word: object) -> str:
    """Return a word that this version may not know, on one line and without underscores."""
    return single_line(sanitize(str(word)), LONGEST_WORD).replace("_", " ")


LEVELS: dict[Level, str] = {"info": "", "warning": "Warning:", "error": "Error:"}
"""The word before a notice."""

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
STOPS = OpenTable(_STOPS, lambda reason: f"stopped: {plain_word(reason)}")

FILES = "Their text"
UNSENT = "no answer, not sent again"
"""Shown in the footer of a turn that later requests leave out."""

_FATES: dict[ProposalFate, str] = {"kept": "kept", "changed": "kept with changes", "discarded": "discarded"}
FATES = OpenTable(_FATES, plain_word)
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


def question_label(block: QuestionBlock) -> str:
    """Return the word before a question, or before the request of a turn that pauses."""
    return "Paused:" if block.step else "Question:"


def without_middle(text: str, most: int) -> str:
    """Return a text of at most `most` characters, with a note in place of its middle if it is longer."""
    return cut_middle(
        text, most, lambda start, end: f"\n… {end - start:,} of {len(text):,} characters are not shown …\n"
    )


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
        (sanitize(resource.name or resource.uri), without_middle(sanitize(resource.text), LONGEST_RESULT))
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
        yield value, image or without_middle(sanitize(value.text), LONGEST_RESULT)


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
            return f"Proposed: {plain_word(proposal.action)}{which}"


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


def page_decision(event: PageDecision) -> str:
    """Return a sentence about an act of the chat panel's page that the user allowed or denied."""
    line = single_line(exact(event.line), LONGEST_LINE)
    if event.reason:
        return f"Not done, because {sanitize(event.reason)}: {line}"
    return f"You {'allowed' if event.approved else 'denied'} in the panel: {line}"


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
