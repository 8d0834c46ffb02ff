"""A model that answers rows, each as its prompt says."""

import asyncio
import json
import threading
from collections import Counter

from agentmagic.errors import Unavailable
from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.runtime.engine import engine

MODEL = "testing:rows"


class RowModel:
    """A model that answers the last line of a prompt with its length, as JSON; `asked` counts the prompts.

    A line with "fails" is an error until the model is `mended`. One with "waits" sets `waits` and has no
    answer until `go_on` is called, one with "calls" calls the tool `look_up` first. `under_way` is the number of
    requests at a time, `most` the largest.
    """

    name = MODEL

    def __init__(self, *, output_tokens=20, grows=1):
        self.asked = Counter()
        self.requests = []
        self.under_way = self.most = 0
        self.mended = False
        self.waits = threading.Event()
        self._go_on = asyncio.Event()
        self._output = output_tokens
        self._input, self._grows = 100, grows  # each request takes so many times the tokens of the one before

    async def stream(self, request):
        prompt = next(message.text for message in reversed(request.messages) if message.role == "user")
        line = prompt.splitlines()[-1]
        self.asked[line] += 1
        self.requests.append(request)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if "waits" in line:
                self.waits.set()
                await self._go_on.wait()
            await asyncio.sleep(0)
            if "fails" in line and not self.mended:
                message = f"{line} is down"
                raise Unavailable(message)
            calls = "calls" in line and request.messages[-1].role != "tool"
            part = ToolCall("c1", "look_up", {"line": line}) if calls else Text(json.dumps({"length": len(line)}))
            yield PartStarted(0, "text")
            yield PartFinished(0, part)
            yield ModelFinished(Usage(self._input, 0, self._output, cost=None), "stop")
            self._input *= self._grows
        finally:
            self.under_way -= 1

    def go_on(self):
        """Have the lines with "waits" answered."""
        engine().loop.call_soon_threadsafe(self._go_on.set)

    def honours(self, settings):
        return settings.given

    async def aclose(self):
        pass
