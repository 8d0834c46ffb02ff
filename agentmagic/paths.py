"""Paths as people write them: a `~` filled in, and what no file can be called refused in a sentence."""

import os
from contextlib import suppress
from pathlib import Path

from agentmagic.errors import UsageError


def path_of(written: str | os.PathLike[str]) -> Path:
    """Return the path that somebody wrote; nothing need be there.

    Raises UsageError for an empty one, and for one that the system cannot look up: the name is too long or
    has a NUL in it, its user is unknown, or a folder on the way may not be entered.
    """
    if not os.fspath(written):
        message = "The name of the file is empty. Write its name, or its path."
        raise UsageError(message)
    try:
        path = Path(written).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (OSError, RuntimeError, ValueError) as error:  # of the look-up, of an unknown user, of a NUL
        why = error.strerror if isinstance(error, OSError) else error
        message = f"{_shown(written)} cannot be used as a path: {str(why).rstrip('.')}. Write another one."
        raise UsageError(message) from error
    return path


def file_of(written: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is to be written; raises UsageError for a folder too."""
    path = path_of(written)
    if path.is_dir():
        message = f"{path} is a folder. Name a file, in that folder or elsewhere."
        raise UsageError(message)
    return path


def _shown(written: str | os.PathLike[str]) -> str:
    """Return a path fit for one line of a message."""
    text = repr(os.fspath(written))
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"  # noqa: PLR2004  (characters of a line)
