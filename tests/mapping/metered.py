"""A model that costs by the row: what it reads, and what it says, which is not known before."""

import random
from collections import Counter

from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Text, Usage
from agentmagic.providers.base import ModelFinished

MODEL = "testing:metered"
PRICES = {"input_price": 2.0, "output_price": 8.0}
"""US dollars for a million tokens."""


class Metered:
    """A model that says "good" and counts a token for each four characters that it reads.

    `says` gives the tokens of an answer by the text that is asked about; `asked` counts the texts.
    """

    name = MODEL

    def __init__(self, says=lambda _text: 5):
        self.asked = Counter()
        self._says = says

    async def stream(self, request):
        text = request.messages[-1].text
        self.asked[text] += 1
        yield PartStarted(0, "text")
        yield PartFinished(0, Text("good"))
        yield ModelFinished(self.usage(text), "stop")

    def usage(self, text):
        return Usage(len(text) // 4, 0, self._says(text))

    def cost(self, text):
        used = self.usage(text)
        return (used.input_tokens * PRICES["input_price"] + used.output_tokens * PRICES["output_price"]) / 1e6

    def honours(self, settings):
        return settings.given

    async def aclose(self):
        pass


def spread(seed, low, high, count):
    """Return numbers between two bounds, as many small ones as large ones by their logarithm."""
    chance = random.Random(seed)  # noqa: S311  (costs, no secrets)
    return [round(low * (high / low) ** chance.random()) for _ in range(count)]
