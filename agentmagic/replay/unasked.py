"""Recorded turns that no cell has asked for, in the cassettes that this process replays.

Only the end of a run shows that a turn was not asked for. `%agent replay --report` lists such turns at any time, the
pytest fixture at the end of a test, and a script or kernel on stderr when its process ends. A program that runs
notebooks in kernels, which may be killed, sets AGENTMAGIC_UNASKED to a folder: each process writes its turns there.
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
"""Maximum number of cassettes that are named, and of turns of each."""

_asked: dict[Path, set[str]] = {}
"""The cassettes that this process replays, each with the keys of the turns that it has played or recorded."""
_failed: set[Path] = set()
"""Cassettes whose last turn differed from the recording. Later cells may not have run, so they are not reported."""


def note_played(cassette: Cassette, take: Take) -> None:
    """Store that a turn of a cassette is played."""
    _asked.setdefault(cassette.path, set()).add(take.key)
    _failed.discard(cassette.path)
    _keep()


def note_recorded(cassette: Cassette, take: Take) -> None:
    """Store that a turn was recorded, so that no cell has to ask for it in this process."""
    if cassette.path in _asked:
        note_played(cassette, take)


def note_failure(cassette: Cassette) -> None:
    """Store that a turn of a cassette differed from the recording."""
    _failed.add(cassette.path)
    _keep()


def forget(path: Path) -> None:
    """Forget which turns of a cassette were played."""
    _asked.pop(path, None)


def unasked(path: Path) -> list[Take]:
    """Return the recorded turns that this process has not asked for; [] if the cassette was not replayed."""
    with suppress(CassetteError):
        return [take for take in Cassette.at(path).takes if take.key not in _asked[path]] if path in _asked else []
    return []


def summary(path: Path) -> str:
    """Return a sentence that names the recorded turns that were not asked for; "" if there are none."""
    if not (takes := unasked(path)):
        return ""
    names = ", ".join(repr(clip(one_line(shown(take.prompt), 200), 60)) for take in takes[:MOST_TOLD])
    names += f" and {len(takes) - MOST_TOLD} more" if len(takes) > MOST_TOLD else ""
    return (
        f"{path.name}: {counted(len(takes), 'recorded turn')} not asked for: {names}. Restore the cell or prompt, or "
        "delete the cassette and record it anew: AGENTMAGIC_REPLAY=record."
    )


def kept(folder: Path) -> Iterator[str]:
    """Yield the sentences that other processes wrote to a folder, one for each cassette, and delete the files."""
    for file in sorted(folder.glob("*.txt")):
        if file.stem != str(os.getpid()):
            yield from file.read_text(encoding="utf-8").splitlines()
        file.unlink()


def _summaries() -> list[str]:
    return [sentence for path in _asked if path not in _failed and (sentence := summary(path))]


def _keep() -> None:
    if folder := settings.variable(UNASKED):
        with suppress(OSError):
            Path(folder, f"{os.getpid()}.txt").write_text(
                "".join(f"{sentence}\n" for sentence in _summaries()), encoding="utf-8"
            )


@atexit.register
def _tell() -> None:
    if not settings.variable(UNASKED) and sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write("".join(f"{sentence}\n" for sentence in _summaries()[:MOST_TOLD]))
