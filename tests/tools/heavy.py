"""Functions for the workers of other processes, which import this file and nothing of agentmagic."""

import os
import signal


def where() -> int:
    """Return the process that runs this."""
    return os.getpid()


def boom(word: str) -> str:
    """Fail."""
    raise ValueError(word)


def die() -> None:
    """End the worker."""
    os.kill(os.getpid(), signal.SIGKILL)
