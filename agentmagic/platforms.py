"""What Windows does otherwise than Linux and macOS: command lines, and files that are moved to a taken name."""

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE = 1.0
"""Seconds for which Windows is asked again to replace a file that another program reads."""
PAUSE = 0.01
"""Seconds between two tries."""


def split_command(text: str) -> list[str]:
    r"""Split a command line into words as the shell of this system does, and take the quotes off.

    On Windows a backslash belongs to a path, as in `C:\tools\server.exe`. Raises ValueError for an open quote.
    """
    words = shlex.shlex(text, posix=True)
    words.whitespace_split, words.commenters = True, ""
    if sys.platform == "win32":
        words.escape = ""
    return list(words)


def join_command(words: Sequence[str]) -> str:
    """Return a command line as the shell of this system reads it."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def quote_word(word: str) -> str:
    """Return a word of a command line, in quotes if it needs them."""
    return join_command([word])


def move_over(written: Path, target: Path) -> None:
    """Move a file to a name that another file may have, which it replaces. Raises OSError.

    Windows refuses while a program has that file open. Ours read for milliseconds, so Windows is asked again.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            written.replace(target)
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() > end:
                raise
        else:
            return
        time.sleep(PAUSE)
