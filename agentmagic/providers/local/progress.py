"""How a fetch shows itself: a bar where somebody looks on, else a line for every quarter."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from agentmagic.providers.local.weights import Progress

QUARTERS = 4


@contextmanager
def shown() -> Generator[Progress]:
    """Give the callback that shows a fetch on standard error, from the first bytes on."""
    if _watched():
        with _bar() as progress:
            yield progress
    else:
        yield _lines()


def _watched() -> bool:
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")


@contextmanager
def _bar() -> Generator[Progress]:
    from tqdm import tqdm

    with tqdm(desc="local model", unit="B", unit_scale=True, file=sys.stderr, mininterval=0.5) as bar:

        def progress(done: int, total: int, source: str) -> None:
            bar.total = total
            bar.set_description(f"local model from {source}", refresh=False)
            bar.update(done - bar.n)

        yield progress


def _lines() -> Progress:
    said: set[tuple[str, int]] = set()

    def progress(done: int, total: int, source: str) -> None:
        quarter = done * QUARTERS // total
        if (source, quarter) not in said:
            said.add((source, quarter))
            line = f"agentmagic: local model from {source}: {done / 1e6:.0f} of {total / 1e6:.0f} MB"
            print(line, file=sys.stderr, flush=True)  # noqa: T201  (it is what the user sees of a long fetch)

    return progress
