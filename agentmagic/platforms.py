"""What Windows does otherwise than Linux and macOS: command lines, and files that are moved to a taken name."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PATIENCE = 1.0
"""Seconds for which Windows is asked again to replace a file that another program reads."""
PAUSE = 0.01
"""Seconds between two tries."""
_PIECES = re.compile(r'(?P<slashes>\\*)"|(?P<gap>[ \t\r\n])|\\+|[^\\" \t\r\n]+')
"""Quotes with the backslashes before them, gaps, and the rest."""


def split_command(text: str) -> list[str]:
    """Split a command line into words as this system does, and take the quotes off.

    Raises ValueError for an open quote.
    """
    return list(words_on_windows(text)) if sys.platform == "win32" else shlex.split(text)


def words_on_windows(text: str) -> Iterator[str]:
    r"""Yield words as programs of Windows find them (CommandLineToArgvW).

    Only `"` quotes. Backslashes belong to a path, as in `C:\tools\server.exe`, but before a `"` each two stand for one,
    and one that is left makes the `"` a part of the word.
    """
    word: str | None = None
    is_quoted = False
    for piece in _PIECES.finditer(text):
        if piece["gap"] and not is_quoted:
            if word is not None:
                yield word
            word = None
        elif (slashes := piece["slashes"]) is not None:
            is_part = len(slashes) % 2 == 1
            word = (word or "") + "\\" * (len(slashes) // 2) + '"' * is_part
            is_quoted ^= not is_part
        else:
            word = (word or "") + piece[0]
    if is_quoted:
        raise ValueError("No closing quotation")
    if word is not None:
        yield word


def join_command(words: Sequence[str]) -> str:
    """Return the command line that `split_command` splits into these words."""
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
