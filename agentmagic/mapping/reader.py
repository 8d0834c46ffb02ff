"""Reads the rows of a map: makes their prompts, and chooses the rows to ask."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import partial
from itertools import islice

from agentmagic.errors import UsageError
from agentmagic.loop.retry import error_text
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.mapping.sample import choose
from agentmagic.mapping.tally import Tally
from agentmagic.mapping.work import MapWork
from agentmagic.runtime.engine import engine

TOGETHER = 64
"""The number of rows that are read and described together, in a thread."""


class RowReader:
    """Reads the rows of a map, or of a sample of the rows.

    `sample_places` has the numbers of the rows in the sample, and is None if all rows are asked. With a sample, `sizes`
    has the sizes of all prompts.
    """

    def __init__(self, work: MapWork, tally: Tally) -> None:
        self.sizes: list[int] = []
        self.sample_places: list[int] | None = None
        self._work = work
        self._tally = tally

    async def prompts_to_ask(self) -> AsyncGenerator[RowPrompt]:
        """Yield the prompts of the rows to ask. Raises UsageError if the rows cannot be read."""
        if self._work.settings.sample is not None and self.sample_places is None:
            await self._choose(self._work.settings.sample)
        places = None if self.sample_places is None else set(self.sample_places)
        async for prompt in self._prompts():
            if places is None or prompt.place in places:
                yield prompt

    async def _choose(self, number: int) -> None:
        """Choose `number` rows as the sample. They have prompts of all sizes. Raises UsageError for an iterator."""
        if self._work.rows.total is None:
            raise UsageError("A sample is taken of rows whose number is known. Make a list of the iterable first.")
        self.sizes = [prompt.size async for prompt in self._prompts()]
        self.sample_places = choose(self.sizes, number, self._work.settings.seed)
        self._tally.total = len(self.sample_places)

    async def _prompts(self) -> AsyncIterator[RowPrompt]:
        """Yield the prompts of the rows. They are read in a thread, because describing a value can be slow."""
        source = self._work.prompts.read()
        while True:
            together, error = await engine().in_pool(partial(_take, source))
            for prompt in together:
                yield prompt
            if error is not None:
                raise UsageError(f"The rows cannot be read: {error_text(error)}") from error
            if not together:
                if self.sample_places is None:  # without a sample, the number of rows is known now
                    self._tally.total = self._work.rows.total
                return


def _take(source: Iterator[RowPrompt]) -> tuple[list[RowPrompt], Exception | None]:
    """Return up to 64 row prompts (TOGETHER), and the error if the row after them could not be read."""
    prompts: list[RowPrompt] = []
    try:
        prompts.extend(islice(source, TOGETHER))  # `extend` keeps the prompts read before an error
    except Exception as error:  # noqa: BLE001  (an iterator of the user may raise anything)
        return prompts, error
    return prompts, None
