"""A progress bar in a terminal for a map."""

from typing import Any, TextIO

from agentmagic.events import MapProgress
from agentmagic.text import sanitize, single_line

LONGEST_LINE = 300
"""Characters of a notice or an error that are printed."""


class TerminalBar:
    """A progress bar in the last line of a terminal, with notices above it."""

    def __init__(self, stream: TextIO) -> None:
        from tqdm import tqdm  # only imported when a bar is shown, since the import is slow

        self._bar: Any = tqdm(file=stream, unit="row", mininterval=0, dynamic_ncols=True)
        self._notices = 0

    def show(self, progress: MapProgress) -> None:
        """Draw the bar again, and print new notices above it."""
        for notice in progress.notices[self._notices :]:
            self.write(notice)
        self._notices = len(progress.notices)
        self._bar.total, self._bar.n = progress.total, progress.done
        self._bar.initial = progress.kept  # the rate (rows a second) does not count the rows of earlier runs
        self._bar.set_postfix_str(_postfix(progress), refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        """Stop drawing; the bar stays in the terminal."""
        self._bar.close()

    def write(self, line: str) -> None:
        """Print a line above the bar, or below it once it is closed."""
        self._bar.write(single_line(sanitize(line), LONGEST_LINE), file=self._bar.fp)


def _postfix(progress: MapProgress) -> str:
    cost, projected = progress.usage.cost, progress.projected
    parts = [f"{progress.failed:,} failed"] if progress.failed else []
    if cost:
        of = f" of about ${projected:,.4f}" if projected and not progress.ended else ""
        parts.append(f"${cost:,.4f}{of}")
    return ", ".join(parts)
