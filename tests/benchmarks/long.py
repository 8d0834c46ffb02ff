"""What a turn costs as a conversation grows: CPU, memory, and the time to write it down."""

import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

from agentmagic import Agent, Session, tool
from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.registry import register_model
from agentmagic.serialization import encode

NAME = "testing:instant"
LENGTHS = (50, 200, 1_000)
WINDOW = 32_000
"""Tokens: what a conversation of a thousand turns outgrows several times."""
LAST = 120
"""At most so many turns at the end of a conversation are measured: a summary is written about as often."""
WORDS = "The page tells of a river, a mill and a bridge, and of who built them. " * 3


class Instant:
    """A model that calls a tool and then answers, in no time: what is measured is ours alone."""

    name = NAME

    async def stream(self, request):
        for index, part in enumerate(self._parts(request)):
            yield PartStarted(index, part.type)
            yield PartFinished(index, part)
        yield ModelFinished(Usage(0, 0, 0), "stop")

    def _parts(self, request):
        if request.tools and request.messages[-1].role == "user":
            return [ToolCall(f"call_{time.monotonic_ns()}", "look", {"page": 7})]
        return [Text(WORDS)]

    async def aclose(self):
        pass


@tool
async def look(page: int) -> str:
    """Look a page up."""
    return f"{page}: {WORDS}"


def converse(session: Session, turns: int) -> None:
    """Play turns with one tool call each."""
    for number in range(turns):
        session.ask(f"Look up page {number}")


def measured(length: int, folder: str) -> tuple[float, float]:
    """Return the CPU milliseconds of a turn and the bytes it keeps, at the end of a conversation."""
    session = Session(Agent(Instant(), tools=[look]), path=Path(folder, f"{length}.jsonl"))
    last = min(LAST, length // 2)
    converse(session, length - last)
    began = time.process_time()
    converse(session, last)
    took = (time.process_time() - began) / last * 1000
    tracemalloc.start()
    converse(session, last)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    session.close()
    return took, kept / last


def saved_size(folder: str) -> float:
    """Return the bytes of the longest conversation on disk, for each of its events."""
    path = Path(folder, f"{LENGTHS[-1]}.jsonl")
    return path.stat().st_size / sum(1 for _ in path.open("rb"))


def appending(folder: str) -> list[tuple[int, float]]:
    """Return the wall microseconds of one journal line, without waiting for the disk, at several lengths."""
    from agentmagic.events import StepStarted
    from agentmagic.history.journal import Journal

    journal = Journal(Path(folder, "lines.jsonl"), tell=print)
    event = StepStarted(1, NAME)
    rows: list[tuple[int, float]] = []
    for lines in (1_000, 10_000, 100_000):
        began = time.perf_counter()
        for _ in range(lines):
            journal.write(event)
        rows.append((lines, (time.perf_counter() - began) / lines * 1e6))
    journal.close()
    return rows


def main() -> None:
    """Print the table: each length beside the first."""
    register_model(NAME, window=WINDOW)
    print(f"\n{'a turn with a tool call, saved':44} {'ms CPU':>9} {'of 50':>8} {'KiB kept':>9}")
    with TemporaryDirectory() as folder:
        first = 0.0
        for length in LENGTHS:
            took, kept = measured(length, folder)
            first = first or took
            print(
                f"{f'at {length} turns':44} {took:9.2f} {took / first:7.2f}x {kept / 1024:9.1f}  goal 1.5x", flush=True
            )
        print(f"{'bytes on disk, an event':44} {saved_size(folder):9.0f}")
        for lines, took in appending(folder):
            print(f"{f'appending a line, {lines} lines':44} {took:9.2f} us")
    print(f"{'(encoding that line)':44} {_encoding():9.2f} us")


def _encoding() -> float:
    from agentmagic.events import StepStarted

    began = time.perf_counter()
    for _ in range(10_000):
        encode(StepStarted(1, NAME))
    return (time.perf_counter() - began) / 10_000 * 1e6


if __name__ == "__main__":
    main()
