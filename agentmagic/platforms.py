"""Functions for what Windows does in another way than Linux and macOS: splitting command lines, replacing files."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PATIENCE = 1.0
"""Seconds during which replacing a file is tried again on Windows, if another program is reading the file."""
PAUSE = 0.01
"""Seconds between two attempts."""
_PIECES = re.compile(r'(?P<slashes>\\*)"|(?P<gap>[ \t\r\n])|\\+|[^\\" \t\r\n]+')
"""A quote with the backslashes before it, a blank, or a run of other characters."""


def split_command(text: str) -> list[str]:
    """Split a command line into words by the rules of this operating system, and remove the quotes.

    Raises ValueError if a quote is not closed.
    """
    return list(words_on_windows(text)) if sys.platform == "win32" else shlex.split(text)


def words_on_windows(text: str) -> Iterator[str]:
    r"""Yield the words of a command line by the rules of Windows programs (CommandLineToArgvW).

    Only `"` is a quote. Backslashes are normal characters, as in `C:\tools\server.exe`, except before a `"`: there, two
    backslashes stand for one, and a single remaining backslash makes the `"` a part of the word.
    """
    word: str | None = None
    in_quotes = False
    for piece in _PIECES.finditer(text):
        if piece["gap"] and not in_quotes:
            if word is not None:
                yield word
            word = None
        elif (slashes := piece["slashes"]) is not None:
            is_part = len(slashes) % 2 == 1
            word = (word or "") + "\\" * (len(slashes) // 2) + '"' * is_part
            in_quotes ^= not is_part
        else:
            word = (word or "") + piece[0]
    if in_quotes:
        raise ValueError("No closing quotation")
    if word is not None:
        yield word


def join_command(words: Sequence[str]) -> str:
    """Return the command line that `split_command` splits into these words."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def quote_word(word: str) -> str:
    """Return a word for a command line, in quotes if it needs them."""
    return join_command([word])


def move_over(source: Path, target: Path) -> None:
    """Move a file to `target`, replacing a file of that name. Raises OSError.

    Windows refuses this while any program has the target open. agentmagic itself opens such files only briefly, so a
    refused move is tried again for one second (PATIENCE).
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            source.replace(target)
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() > end:
                raise
        else:
            return
        time.sleep(PAUSE)
