"""How far a map has come, as a bar in a terminal."""

from typing import Any, TextIO

from agentmagic.events import MapProgress
from agentmagic.text import one_line, shown

LONGEST_LINE = 300
"""Characters of a notice or an error in one line."""


class TerminalBar:
    """Draws a map in the last line of a terminal; notices stand above it."""

    def __init__(self, stream: TextIO) -> None:
        from tqdm import tqdm  # takes a while to load

        self._bar: Any = tqdm(file=stream, unit="row", mininterval=0, dynamic_ncols=True)
        self._notices = 0

    def show(self, progress: MapProgress) -> None:
        """Draw the bar anew."""
        for notice in progress.notices[self._notices :]:
            self.write(notice)
        self._notices = len(progress.notices)
        self._bar.total, self._bar.n = progress.total, progress.done
        self._bar.initial = progress.kept  # which the rate does not count
        self._bar.set_postfix_str(_figures(progress), refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def write(self, line: str) -> None:
        """Print a line above the bar, or below it once it is closed."""
        self._bar.write(one_line(shown(line), LONGEST_LINE), file=self._bar.fp)


def _figures(progress: MapProgress) -> str:
    cost, projected = progress.usage.cost, progress.projected
    told = [f"{progress.failed:,} failed"] if progress.failed else []
    if cost:
        of = f" of about ${projected:,.4f}" if projected and not progress.ended else ""
        told.append(f"${cost:,.4f}{of}")
    return ", ".join(told)
