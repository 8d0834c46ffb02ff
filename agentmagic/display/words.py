"""The words and figures that every renderer shows alike; what comes from outside is blanked and cleaned here."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, cast

from agentmagic.display.blocks import FooterBlock, RetryBlock, State, ToolCard
from agentmagic.events import TRIES, StopReason, ToolProgress
from agentmagic.messages import Usage
from agentmagic.secrets import redact, settled
from agentmagic.serialization import same_json

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
STOPS: dict[StopReason, str] = {
    "answer": "",
    "done": "",
    "limit": "stopped at the limit of steps",
    "budget": "stopped at the budget",
    "timeout": "timed out",
    "cancelled": "interrupted",
    "no_tools": "no tools to call",
    "error": "failed",
}

LONGEST_RESULT = 20_000
"""Characters of a result, or of arguments, that a card shows."""

MOST_ARGUMENTS = 200
"""Arguments that a card shows."""

SHORTEST_CUT = 500
"""Characters of a long argument that are shown, however many arguments there are."""

SHORT_ARGUMENTS = 100
KEY_WIDTH = 24
DEEPEST = 50
SECONDS_A_MINUTE = 60

_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e\ufeff\ud800-\udfff]")
"""Control characters, terminal escapes among them, overrides of the writing direction, and half characters."""

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\ud800-\udfff]"  # what acts on a screen, and what cannot be written
    r"|[\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f]"
    r"|[\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
    r"|[\u200c\u200d](?=[\x00-\x7f]|$)|(?:(?<=[\x00-\x7f])|^)[\u200c\u200d]"  # joiners belong to scripts and emoji
)
"""Characters that hide, turn or overwrite others."""

_LOOKS_OTHERWISE = re.compile(r"\s.*|.*\s|-?[\d.]+([eE][-+]?\d+)?|true|false|null|", re.DOTALL)
"""Strings that would read as another value, or as none, without their quotes."""


def shown(text: str) -> str:
    """Make text from anywhere fit to be shown: secrets blanked, nothing in it that acts on a screen."""
    return cleaned(redact(text))


def cleaned(text: str) -> str:
    """Return text without what acts on a screen."""
    return _HIDDEN.sub("", text)


def one_line(text: str, limit: int) -> str:
    """Bring text to one line of a length, an ellipsis at the end of what was cut."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit and len(text) <= limit * 4 else line[: limit - 1].rstrip() + "…"


def cut(text: str, limit: int = LONGEST_RESULT) -> tuple[str, str]:
    """Return the start of a text, and a note on what is not shown or an empty string."""
    if len(text) <= limit:
        return text, ""
    note = f"The first {limit:,} of {len(text):,} characters. The whole result is in session.messages."
    return text[:limit], note


def blanked(value: Any, depth: int = DEEPEST, clean: Callable[[str], str] = shown) -> Any:
    """Return a JSON value with all its strings made fit to be shown, and what is nested too deep left out."""
    if depth == 0:
        return "…"
    match value:
        case str():
            return clean(value)
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {clean(str(key)): blanked(item, depth - 1, clean) for key, item in items}
        case list() | tuple():
            return [blanked(item, depth - 1, clean) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def revealing(value: Any) -> Any:
    """Return a JSON value for a person who is to judge it, all its strings as `shown_exactly` returns them."""
    return blanked(value, clean=shown_exactly)


def shown_exactly(text: str) -> str:
    """Return text for a person who is to judge it: secrets blanked, and what hides others as its escape.

    A line ends in a line feed alone, since a box of a page keeps no other line end.
    """
    return revealed(redact(text).replace("\r\n", "\n"))


def restored(edited: Any, original: Any, clean: Callable[[str], str] = shown_exactly) -> Any:
    """Return an edited value, in which each part that is as `blanked` showed it with `clean` is the original part."""
    if same_json(edited, blanked(original, clean=clean)):
        return original
    match edited, original:
        case dict(), Mapping():
            before = cast("Mapping[str, Any]", original)
            names = {clean(name): name for name in before}
            given = ((names.get(name, name), value) for name, value in cast("dict[str, Any]", edited).items())
            return {name: restored(value, before.get(name), clean) for name, value in given}
        case list(), list() | tuple():
            pairs = zip_longest(cast("list[Any]", edited), cast("list[Any]", original))
            return [restored(value, old, clean) for value, old in pairs][: len(cast("list[Any]", edited))]
        case _:
            return edited


def compact(value: Any) -> str:
    """Write a JSON value on one line; a string that cannot be taken for another value goes bare."""
    if isinstance(value, str) and not _LOOKS_OTHERWISE.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def short_arguments(card: ToolCard) -> str:
    """Say a card's arguments on one line, cut; as raw JSON while they are being written.

    A card that waits for a person shows all of them, and none here.
    """
    if card.state == "waiting":
        return ""
    if card.call is None:
        return one_line(shown(settled(card.raw)), SHORT_ARGUMENTS)
    pairs = (f"{key}: {compact(value)}" for key, value in blanked(card.call.arguments).items())
    return one_line(", ".join(pairs), SHORT_ARGUMENTS)


def all_arguments(card: ToolCard) -> str:
    """Write a card's arguments out, as `written_out` does; as raw JSON while they are being written."""
    if card.call is None:
        return _without_middle(shown(settled(card.raw)), LONGEST_RESULT)
    return written_out(card.call.arguments)


def written_out(arguments: Mapping[str, Any]) -> str:
    """Write arguments out, one a line, their values lined up, for a person who is to judge them.

    Characters that hide others stand as their escapes. What is too long loses its middle rather than its end, each
    value for itself, so that none of them is pushed out of sight by another.
    """
    given: dict[str, Any] = blanked(dict(islice(arguments.items(), MOST_ARGUMENTS)), clean=redact)
    each = max(LONGEST_RESULT // max(len(given), 1), SHORTEST_CUT)
    pairs = [(revealed(key), revealed(_without_middle(compact(value), each))) for key, value in given.items()]
    width = min(max((len(key) for key, _ in pairs), default=0), KEY_WIDTH)
    more = len(arguments) - len(pairs)
    rest = [f"({more:,} more arguments are not shown)"] if more else []
    return "\n".join([*(_aligned(key, value, width) for key, value in pairs), *rest])


def revealed(text: str) -> str:
    """Put the escapes of characters in their place that hide, turn or overwrite others."""
    return _UNSEEN.sub(lambda one: one[0].encode("unicode_escape").decode(), text)


def _without_middle(text: str, limit: int) -> str:
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    end = limit // 4
    return f"{text[: limit - end]}\n… {left_out:,} of {len(text):,} characters are not shown …\n{text[-end:]}"


def _aligned(key: str, text: str, width: int) -> str:
    key = one_line(key, 4 * KEY_WIDTH)
    return f"{key:<{width}}  " + text.replace("\n", "\n" + " " * (width + 2))


def duration(seconds: float) -> str:
    """Say a duration as a person would."""
    if seconds < 1:
        return f"{max(seconds * 1000, 1):.0f} ms"
    if seconds < SECONDS_A_MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds // SECONDS_A_MINUTE:.0f} min {seconds % SECONDS_A_MINUTE:.0f} s"


def progress(event: ToolProgress) -> str:
    """Say how far a call has come."""
    figures = f"{event.progress:g} of {event.total:g}" if event.total else ""
    return " ".join(filter(None, (figures, one_line(shown(event.message), SHORT_ARGUMENTS))))


def retry(block: RetryBlock, *, times: bool) -> str:
    """Say that a request is sent again, why and when."""
    error = shown(block.error).strip().rstrip(".")
    when = f" in {round(block.delay, 1):g} s" if times else ""
    joint = ". Trying" if ". " in error else ", trying"
    return f"{error}{joint} again{when} ({block.attempt + 1} of {TRIES})"


def footer(block: FooterBlock, *, times: bool) -> Iterator[str]:
    """Yield what a turn took, figure by figure; seconds only with `times`."""
    if block.model:
        yield shown(block.model)
    if block.usage.requests:
        yield f"{block.usage.requests:,} request{'s' if block.usage.requests > 1 else ''}"
    if block.usage.input_tokens or block.usage.output_tokens:
        yield _tokens(block.usage)
        yield cost(block.usage.cost)
    if times and block.stop_reason:
        yield duration(block.seconds)
    if block.stop_reason and STOPS[block.stop_reason]:
        yield STOPS[block.stop_reason]


def _tokens(usage: Usage) -> str:
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"


def cost(dollars: float | None) -> str:
    """Say a cost in US dollars, to two significant figures at least."""
    if dollars is None:
        return "price unknown"
    if dollars == 0:
        return "no charge"
    if dollars < 0.0001:  # noqa: PLR2004  (what four decimals can show)
        return "less than $0.0001"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"
