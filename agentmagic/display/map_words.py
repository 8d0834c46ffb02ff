"""The words and figures about a map that every renderer shows alike."""

from collections.abc import Iterator

from agentmagic.display import words
from agentmagic.display.blocks import State
from agentmagic.events import MapEnd, MapProgress
from agentmagic.text import about_seconds, counted, one_line, shown

LONGEST_ERROR = 200
"""Characters of an error that stands beside its count."""
MOST_NOTICES = 10
LONGEST_NOTICE = 500

STATES: dict[MapEnd, State] = {
    "": "running",
    "done": "done",
    "stopped": "interrupted",
    "budget": "interrupted",
    "failed": "failed",
}
"""Which state of a call looks like that of a map."""
_ENDS: dict[MapEnd, str] = {
    "stopped": "Stopped",
    "budget": "Stopped at the budget",
    "failed": "Failed",
}


def heading(progress: MapProgress) -> str:
    """Say how many rows were answered or failed, and how the map ended: "Stopped: 132 of 300 rows"."""
    settled = progress.answered + progress.failed
    rows = counted(settled, "row")
    if progress.total is not None and (progress.total != settled or not progress.ended):
        rows = f"{settled:,} of {counted(progress.total, 'row')}"
    end = _ENDS.get(progress.ended)
    return rows if end is None else f"{end}: {rows}"


def figures(progress: MapProgress, *, times: bool) -> Iterator[str]:
    """Yield the counts, the pace and the cost of a map, figure by figure; what depends on the clock with `times`."""
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
    projected = f" of about {words.cost(progress.projected)}" if is_projected else ""
    return words.cost(usage.cost) + projected


def shares(progress: MapProgress) -> tuple[float, float] | None:
    """Return the shares of the rows that were answered and that failed, or None if the total is not known."""
    if not progress.total:
        return None
    answered = min(progress.answered / progress.total, 1.0)
    return answered, min(progress.failed / progress.total, 1.0 - answered)


def errors(progress: MapProgress) -> list[str]:
    """Return the first kinds of error, each with the number of its rows, and how many rows have other ones."""
    others = progress.failed + progress.in_doubt - sum(number for _, number in progress.errors)
    more = [f"{counted(others, 'row')}: other errors"] if progress.errors and others > 0 else []
    told = [f"{counted(number, 'row')}: {one_line(shown(error), LONGEST_ERROR)}" for error, number in progress.errors]
    return [*told, *more]


def notices(progress: MapProgress) -> list[str]:
    """Return what the user should know about a map, and what becomes of the rows that were not asked."""
    told = [one_line(shown(notice), LONGEST_NOTICE) for notice in progress.notices[:MOST_NOTICES]]
    is_partial = progress.total is None or progress.answered + progress.failed < progress.total
    if progress.ended in _ENDS and is_partial and progress.done:
        file = one_line(shown(progress.file), LONGEST_ERROR)
        told.append(KEPT.format(file) if file else LOST)
    return told


UNDER_WAY = "The map was under way when this was shown."
"""What HTML says of a map that runs: a notebook may be saved, or its kernel end, before there is other HTML."""
KEPT = "The answers are kept in {}. Run this again to go on with the rest."
LOST = "No file keeps the answers (--to FILE, to= in code): run again, this asks all rows again."
