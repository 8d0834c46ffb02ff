"""The recorded turns that no cell has asked for, of the cassettes that this process replays.

Only the end of a run shows that a turn was never asked. `%agent replay --report` tells of it at any time, the fixture
of pytest at the end of a test, and a script or kernel on stderr when its process ends. A program that runs notebooks
in kernels, which may be killed, names a folder in the variable UNASKED: each process keeps its turns in a file there.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentmagic import settings
from agentmagic.errors import CassetteError
from agentmagic.replay.cassette import Cassette, Take
from agentmagic.text import clip, counted, one_line, shown

UNASKED = "AGENTMAGIC_UNASKED"
MOST_TOLD = 5
"""Cassettes, and turns of each, that are named."""

_asked: dict[Path, set[str]] = {}
"""The cassettes that this process replays, each with the keys of the turns that were played, or recorded since."""
_failed: set[Path] = set()
"""Those whose last turn was not as recorded: the cells after it may not have run, and nothing is told of them."""


def note_played(cassette: Cassette, take: Take) -> None:
    """Note that a turn of a cassette is played."""
    _asked.setdefault(cassette.path, set()).add(take.key)
    _failed.discard(cassette.path)
    _keep()


def note_recorded(cassette: Cassette, take: Take) -> None:
    """Note that a turn was recorded: no cell has to ask for it in this process."""
    if cassette.path in _asked:
        note_played(cassette, take)


def note_failure(cassette: Cassette) -> None:
    """Note that a turn was not as recorded."""
    _failed.add(cassette.path)
    _keep()


def forget(path: Path) -> None:
    """Forget what was played of a cassette."""
    _asked.pop(path, None)


def unasked(path: Path) -> list[Take]:
    """Return the takes of a cassette that no turn of this process has asked for; none if it was not replayed."""
    with suppress(CassetteError):
        return [take for take in Cassette.at(path).takes if take.key not in _asked[path]] if path in _asked else []
    return []


def summary(path: Path) -> str:
    """Return in a sentence which recorded turns of a cassette were not asked for, "" if all were."""
    if not (takes := unasked(path)):
        return ""
    names = ", ".join(repr(clip(one_line(shown(take.prompt), 200), 60)) for take in takes[:MOST_TOLD])
    names += f" and {len(takes) - MOST_TOLD} more" if len(takes) > MOST_TOLD else ""
    return (
        f"{path.name}: {counted(len(takes), 'recorded turn')} not asked for: {names}. Restore the cell or prompt, or "
        "delete the cassette and record it anew: AGENTMAGIC_REPLAY=record."
    )


def kept(folder: Path) -> Iterator[str]:
    """Yield what other processes have kept in a folder, a sentence for each cassette, and remove it."""
    for place in sorted(folder.glob("*.txt")):
        if place.stem != str(os.getpid()):
            yield from place.read_text(encoding="utf-8").splitlines()
        place.unlink()


def _summaries() -> list[str]:
    return [told for path in _asked if path not in _failed and (told := summary(path))]


def _keep() -> None:
    if folder := settings.variable(UNASKED):
        with suppress(OSError):
            Path(folder, f"{os.getpid()}.txt").write_text("".join(f"{one}\n" for one in _summaries()), encoding="utf-8")


@atexit.register
def _tell() -> None:
    if not settings.variable(UNASKED) and sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write("".join(f"{one}\n" for one in _summaries()[:MOST_TOLD]))
