"""A model that answers at the pace of a real one, in Markdown of every kind."""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import cycle, islice

from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Text, Usage
from agentmagic.providers.base import ModelFinished
from tests.browser.view import scenes

TOKENS = 10_000
LETTERS = 4
"""Characters of a token."""


def tokens() -> list[str]:
    """Return ten thousand tokens of Markdown: headings, code, tables, lists, maths."""
    code = "\n".join(f"    total_{number} = frame.loc[{number}, 'amount'] * 1.{number}  # once" for number in range(40))
    table = "\n".join(f"| row {number} | {number * 37:,} | **{number}** |" for number in range(60))
    items = "\n".join(f"- item {number} with `code`, *stress* and\n  - a nested one" for number in range(60))
    page = f"{scenes.MARKDOWN}\n## Code\n\n```python\n{code}\n```\n\n| a | b | c |\n|--|--:|--|\n{table}\n\n{items}\n\n"
    words = "".join(islice(cycle(page), LETTERS * TOKENS))
    return [words[place : place + LETTERS] for place in range(0, len(words), LETTERS)]


async def ticks(rate: float | None, count: int) -> AsyncIterator[int]:
    """Yield the numbers from 0, so many a second, or as fast as they can be had."""
    began = time.perf_counter()
    for number in range(count):
        due = began + (number + 1) / rate if rate else 0
        await asyncio.sleep(max(0, due - time.perf_counter()))
        yield number


async def waking(rate: float | None) -> None:
    """Wake up for every token and do nothing: the floor of what showing them can cost."""
    async for _ in ticks(rate, TOKENS):
        pass


class Paced:
    """A model that says `tokens`, so many a second, or as fast as it can; `ended` is the time of the last of them."""

    name = "testing:paced"

    def __init__(self, rate: float | None) -> None:
        self.ended = 0.0
        self._rate = rate

    async def stream(self, request):
        written = tokens()
        yield PartStarted(0, "text")
        async for number in ticks(self._rate, TOKENS):
            yield PartDelta(0, written[number])
        self.ended = time.time()
        yield PartFinished(0, Text("".join(written)))
        yield ModelFinished(Usage(100, TOKENS, 0), "stop")

    async def aclose(self):
        pass
