"""Says which calls of tools failed in the rows of a map. Such a row can have an answer."""

from collections import Counter
from collections.abc import Iterable, Sequence

from agentmagic.events import Event, ToolFinished, innermost
from agentmagic.mapping.file import LONGEST_ERROR
from agentmagic.mapping.outcomes import MapRow
from agentmagic.secrets import redact
from agentmagic.text import clip, join_names, plural, single_line

LONGEST_REASON = 120
"""Maximum number of characters of the reason for which the calls of one tool failed."""
MOST_TOOLS = 3
"""Maximum number of tools that are named for a row."""
MOST_ROWS_NAMED = 5
"""Maximum number of rows that the notice of a map names."""


def failed_calls(events: Iterable[Event]) -> str:
    """Return which calls of tools failed in the turn of a row, inner turns included, and why; "" if none failed.

    A denied call has failed too. For each tool, the reason is that of its first failed call.
    """
    results = [event.result for event in map(innermost, events) if isinstance(event, ToolFinished)]
    counts = Counter(result.name for result in results)
    failed = [result for result in results if result.status != "ok"]
    reasons = {result.name: single_line(redact(result.text), LONGEST_REASON) for result in reversed(failed)}
    sentences = [
        f"{number} of {plural(counts[name], 'call')} of {name} failed: {reasons[name]}"
        for name, number in Counter(result.name for result in failed).most_common(MOST_TOOLS)
    ]
    return clip(" ".join(sentences), LONGEST_ERROR)


def denial_notice(tools: Sequence[str]) -> str:
    """Return a notice about tools whose calls were denied, because a row cannot ask the user for approval."""
    rules = ", ".join(f'Rule("allow", "{name}")' for name in tools[:MOST_TOOLS])
    sentence = f"A row cannot ask you, so calls of {join_names(tools, 5)} are denied."
    return f"{sentence} To let them run, give the agent permission=Policy([{rules}])."


def failed_calls_notice(rows: Iterable[MapRow]) -> str:
    """Return in which rows calls of tools failed, with the reason in the first of them, "" if there are none."""
    told = [row for row in rows if row.notice]
    if not told:
        return ""
    labels = join_names([str(row.index) for row in told], MOST_ROWS_NAMED)
    return (
        f"In {plural(len(told), 'row')} a call of a tool failed: {labels}. The column _notice of the frame says which "
        f"call, and why. In the first: {clip(told[0].notice, LONGEST_REASON)}"
    )
