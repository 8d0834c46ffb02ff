"""Which file the weights are, and what the places it can come from have in common."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SIZE = 1_117_320_768
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""What the maker of the model published for `FILE` in `REPOSITORY`; weights with another hash are refused."""

REPOSITORY = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
BLOCK = 1 << 20

Progress = Callable[[int, int, str], None]
"""Called with the bytes there are, the bytes there will be, and the source they come from."""


class SourceFailed(Exception):
    """A source could not give the weights; the message says why."""


class Stopped(Exception):
    """The fetch was asked to stop; what is whole stays on disk."""


def check(stop: threading.Event) -> None:
    """Raise Stopped where a stop was asked for."""
    if stop.is_set():
        raise Stopped


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size(path: Path) -> int:
    """Return the bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0
