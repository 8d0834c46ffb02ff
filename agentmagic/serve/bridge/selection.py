"""Selection of the served kernel that the bridge joins, and the list of all served kernels."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from agentmagic.errors import UsageError
from agentmagic.platforms import quote_word
from agentmagic.serve.kernels import ServedKernel
from agentmagic.text import reveal

COMMAND = "python -m agentmagic bridge"


def label(kernel: ServedKernel) -> str:
    """Return a short name of a kernel for the user: the name of its notebook, or its process id."""
    return reveal(kernel.notebook, strictly=True) or f"process {kernel.process}"


def lines(kernels: Iterable[ServedKernel]) -> list[str]:
    """Return a line for each kernel: its notebook, its process id, and when serving began."""
    served = list(kernels)
    if not served:
        return ["No kernel is served. Run %agent serve in a notebook."]
    return [f"{_place(one)}  (process {one.process}, since {_time(one)})" for one in served]


def choose(kernels: Sequence[ServedKernel], notebook: str = "", here: Path | None = None) -> ServedKernel:
    """Return the kernel of a notebook; without `notebook`, the only kernel or the one nearest to the folder `here`.

    `notebook` is a path, a name with or without ".ipynb", or a process id. If one notebook has several kernels, the
    newest is chosen. Raises UsageError if no kernel matches, or more than one.
    """
    here = here or Path.cwd()
    # Keep only the newest kernel of each notebook.
    kernels = list({one.path or one.process: one for one in kernels}.values())
    if not kernels and not notebook:
        raise UsageError("No kernel is served. Run %agent serve in a notebook.")
    matches = _matching(kernels, notebook, here) if notebook else kernels
    if not matches:
        others = f" These are served:\n{_commands(kernels)}" if kernels else ""
        raise UsageError(f"No kernel of {reveal(notebook, strictly=True)} is served. Run %agent serve in it.{others}")
    if len(matches) > 1:
        matches = _nearest(matches, here) or matches
    if len(matches) > 1:
        raise UsageError(f"{len(matches)} kernels are served. Start the bridge with one of them:\n{_commands(matches)}")
    return matches[0]


def _matching(kernels: Iterable[ServedKernel], notebook: str, here: Path) -> list[ServedKernel]:
    def is_meant(one: ServedKernel) -> bool:
        names = (one.notebook, Path(one.notebook).stem, str(one.process))
        return notebook in names or bool(one.path and _resolve(here / notebook) == _resolve(Path(one.path)))

    return [one for one in kernels if is_meant(one)]


def _nearest(kernels: Iterable[ServedKernel], here: Path) -> list[ServedKernel]:
    """Return the kernels in the folder `here` or in the nearest one above it; if none exist, those below it."""
    here = _resolve(here)
    places = [(one, _resolve(Path(one.folder))) for one in kernels]
    above = [(len(place.parts), one) for one, place in places if here.is_relative_to(place)]
    if above:
        deepest = max(depth for depth, _ in above)
        return [one for depth, one in above if depth == deepest]
    return [one for one, place in places if place.is_relative_to(here)]


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # `resolve` failed: a loop of links, or a NUL in the name, for example
        return path


def _place(kernel: ServedKernel) -> str:
    return reveal(kernel.path or f"{kernel.folder} (no notebook)", strictly=True)


def _time(kernel: ServedKernel) -> str:
    try:
        return f"{datetime.fromtimestamp(kernel.begun).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):
        return "an unknown time"


def _commands(kernels: Iterable[ServedKernel]) -> str:
    arguments = [reveal(quote_word(one.path or str(one.process)), strictly=True) for one in kernels]
    return "\n".join(f"{COMMAND} {one}" for one in arguments)
