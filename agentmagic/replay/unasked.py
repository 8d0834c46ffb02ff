"""Finds recorded turns that no cell has asked for in a replay, for example because the cell was deleted.

Only at the end of a run is it certain which turns these are. `%agent replay --report` lists them at any time. The
pytest fixture lists them at the end of a test. A Python program or kernel writes them to stderr when its process ends,
but a kernel may be killed before. So a program that runs notebooks sets AGENTMAGIC_UNASKED to a folder, and each
process writes its list there.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentmagic import settings
from agentmagic.errors import CassetteError
from agentmagic.plain_files import read_plain_text
from agentmagic.replay.cassette import Cassette, Take
from agentmagic.text import clip, plural, sanitize, single_line

UNASKED = "AGENTMAGIC_UNASKED"
MOST_NAMED = 5
"""Maximum number of cassettes that are named, and of turns of each."""

_played_keys: dict[Path, set[str]] = {}
"""The cassettes that this process replays, each with the keys of the turns that it has played or recorded."""
_failed_cassettes: set[Path] = set()
"""Cassettes whose last turn differed from the recording. Later cells may not have run, so they are not reported."""


def add_played(cassette: Cassette, take: Take) -> None:
    """Store that a cell of this process has asked for a recorded turn."""
    _played_keys.setdefault(cassette.path, set()).add(take.key)
    _failed_cassettes.discard(cassette.path)
    _keep()


def add_recorded(cassette: Cassette, take: Take) -> None:
    """Store that this process has recorded a turn, so that no report lists it as a turn that no cell asked for."""
    if cassette.path in _played_keys:
        add_played(cassette, take)


def note_failure(cassette: Cassette) -> None:
    """Store that a replayed turn differed from its recording. Then no unasked turns of this cassette are reported."""
    _failed_cassettes.add(cassette.path)
    _keep()


def forget(path: Path) -> None:
    """Forget which turns of this cassette file were played."""
    _played_keys.pop(path, None)


def unasked_takes(path: Path) -> list[Take]:
    """Return the turns of a cassette file that no cell of this process asked for, or [] if no cell replayed it."""
    with suppress(CassetteError):
        return (
            [take for take in Cassette.at(path).takes if take.key not in _played_keys[path]]
            if path in _played_keys
            else []
        )
    return []


def summary(path: Path) -> str:
    """Return a sentence that names the recorded turns that no cell asked for; "" if none exist."""
    if not (takes := unasked_takes(path)):
        return ""
    names = ", ".join(repr(clip(single_line(sanitize(take.prompt), 200), 60)) for take in takes[:MOST_NAMED])
    names += f" and {len(takes) - MOST_NAMED} more" if len(takes) > MOST_NAMED else ""
    return (
        f"{path.name}: {plural(len(takes), 'recorded turn')} not asked for: {names}. Restore the cell or prompt, or "
        "delete the cassette and record it anew: AGENTMAGIC_REPLAY=record."
    )


def collect(folder: Path) -> Iterator[str]:
    """Yield the sentences about unplayed turns that other processes wrote to the folder, and delete their files."""
    for file in sorted(folder.glob("*.txt")):
        if file.stem != str(os.getpid()):
            yield from read_plain_text(file).splitlines()
        file.unlink()


def _summaries() -> list[str]:
    return [sentence for path in _played_keys if path not in _failed_cassettes and (sentence := summary(path))]


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
            sys.__stderr__.write("".join(f"{sentence}\n" for sentence in _summaries()[:MOST_NAMED]))
