"""The texts and figures about a map that all renderers share. A map runs one prompt for many rows."""

from collections.abc import Iterator, Sequence
from typing import Literal

from agentmagic.display import call_words, words
from agentmagic.display.blocks import State
from agentmagic.events import MapEnd, MapProgress
from agentmagic.text import about_seconds, join_names, plural, sanitize, single_line

LONGEST_LABEL = 40
"""Characters of a row's label that are shown."""
LONGEST_ERROR = 200
"""Characters of an error that are shown beside its count."""
MOST_NOTICES = 10
LONGEST_NOTICE = 500

MapState = State | Literal["partly"]
"""The state of a call that has the same glyph and colour as that of a map, or "partly": some rows have no answer."""
_STATES: dict[MapEnd, State] = {
    "": "running",
    "done": "done",
    "stopped": "interrupted",
    "budget": "interrupted",
    "failed": "failed",
}
GLYPHS: dict[MapState, str] = {**call_words.GLYPHS, "partly": "!"}
_ENDS: dict[MapEnd, str] = {
    "stopped": "Stopped",
    "budget": "Stopped at the budget",
    "failed": "Failed",
}


def state(progress: MapProgress) -> MapState:
    """Return the state of a map. A map that is done has failed if no row has an answer."""
    if progress.ended == "done" and progress.failed + progress.in_doubt:
        return "partly" if progress.answered else "failed"
    return _STATES[progress.ended]


def heading(progress: MapProgress) -> str:
    """Return how many rows were answered or failed, and how the map ended: "Stopped: 132 of 300 rows"."""
    count = progress.answered + progress.failed
    rows = plural(count, "row")
    if progress.total is not None and (progress.total != count or not progress.ended):
        rows = f"{count:,} of {plural(progress.total, 'row')}"
    end = _ENDS.get(progress.ended)
    return rows if end is None else f"{end}: {rows}"


def figures(progress: MapProgress, *, times: bool) -> Iterator[str]:
    """Yield the counts, rate and cost of a map, one text each.

    Figures that depend on the clock are included only with `times`.
    """
    if progress.kept:
        yield f"{progress.kept:,} answered before"
    if progress.failed:
        yield f"{progress.failed:,} failed"
    if progress.in_doubt:
        yield f"{progress.in_doubt:,} in doubt"
    if not progress.ended and progress.running:
        yield f"{progress.running:,} under way"
    if times and not progress.ended and progress.rate:
        yield f"{progress.rate:,.0f} rows a minute"
    if progress.usage.requests:
        yield _cost(progress)
    if times and not progress.ended and progress.left is not None and progress.done < (progress.total or 0):
        yield f"about {about_seconds(progress.left)} left"
    if times and progress.ended and progress.seconds:
        yield words.duration(progress.seconds)


def _cost(progress: MapProgress) -> str:
    usage = progress.usage
    if usage.cost is None:
        return f"{usage.input_tokens + usage.output_tokens:,} tokens, {words.cost(None)}"
    is_projected = not progress.ended and progress.projected and progress.done < (progress.total or 0)
    projection = f" of about {words.cost(progress.projected)}" if is_projected else ""
    return words.cost(usage.cost) + projection


def shares(progress: MapProgress) -> tuple[float, float] | None:
    """Return the share of answered rows and that of failed rows, from 0 to 1, or None if the total is unknown."""
    if not progress.total:
        return None
    answered_share = min(progress.answered / progress.total, 1.0)
    return answered_share, min(progress.failed / progress.total, 1.0 - answered_share)


def errors(progress: MapProgress) -> list[str]:
    """Return a line for each of the first kinds of error, which names its first rows, and a line for the rest."""
    others = progress.failed + progress.in_doubt - sum(number for _, number in progress.errors)
    more = [f"{plural(others, 'row')}: other errors"] if progress.errors and others > 0 else []
    examples = progress.examples or [()] * len(progress.errors)
    lines = [
        f"{plural(number, 'row')}: {single_line(sanitize(error), LONGEST_ERROR)}{_named(rows, number)}"
        for (error, number), rows in zip(progress.errors, examples, strict=False)
    ]
    return [*lines, *more]


def _named(rows: Sequence[tuple[str, str]], number: int) -> str:
    """Return the labels of the first rows of an error, each with a piece of the row, as the rest of a line."""
    if not rows:
        return ""
    names = [f"{single_line(sanitize(label), LONGEST_LABEL)}{f' “{piece}”' if piece else ''}" for label, piece in rows]
    more = [f"{number - len(rows):,} more"] if number > len(rows) else []
    return f" ({join_names([*names, *more])})"


def notices(progress: MapProgress) -> list[str]:
    """Return the notices of a map and, if it ended early, how to continue with the remaining rows."""
    lines = [single_line(sanitize(notice), LONGEST_NOTICE) for notice in progress.notices[:MOST_NOTICES]]
    is_partial = progress.total is None or progress.answered + progress.failed < progress.total
    if progress.ended in _ENDS and is_partial and progress.done:
        lines.append(_how_to_go_on(progress))
    return lines


def again(progress: MapProgress) -> str:
    """Return the label of a button that asks the rows without an answer again, or "" if it is not of use."""
    number = progress.failed + progress.in_doubt
    if progress.ended != "done" or not number:
        return ""
    return "Ask the failed row again" if number == 1 else f"Ask the {number:,} failed rows again"


def advice(progress: MapProgress) -> list[str]:
    """Return how to ask the failed rows again without that button. For a map that ended early, `notices` says it."""
    return [_how_to_go_on(progress)] if again(progress) else []


def _how_to_go_on(progress: MapProgress) -> str:
    file = single_line(sanitize(progress.file), LONGEST_ERROR)
    return KEPT.format(file) if file else LOST


def ending(progress: MapProgress) -> str:
    """Return in one line how a map ended early, if it did, and its notices: "Stopped: 132 of 300 rows. ...", or ""."""
    early = [f"{heading(progress)}."] if progress.ended in _ENDS else []
    return " ".join((*early, *notices(progress)))


UNDER_WAY = "The map was under way when this was shown."
"""Shown in the HTML of a running map.

The notebook may be saved, or its kernel may stop, before newer HTML replaces this.
"""
KEPT = "The answers are kept in {}. Run this again to go on with the rest."
LOST = "No file keeps the answers (--to FILE, to= in code): run again, this asks all rows again."
