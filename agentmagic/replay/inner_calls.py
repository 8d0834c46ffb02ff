"""Tool calls that a recorded tool made itself. A replay does not run this tool, so the replay makes its calls."""

import asyncio
from collections import defaultdict
from itertools import islice

from agentmagic.errors import ToolError
from agentmagic.replay.comparison import Difference
from agentmagic.replay.exchange import Json
from agentmagic.replay.recorder import Place, place_of
from agentmagic.tools.base import ToolContext


class InnerCalls:
    """The recorded calls that tools made in a turn. `repeats` has the calls that the replay has made again.

    The keys of `repeats` are places: the step of a call, its index in the step, and the number of a call that a tool
    made.
    """

    def __init__(self) -> None:
        self._documents = defaultdict[Place, list[Json]](list)
        self.repeats: dict[Place, Json] = {}
        self._may_end: dict[Place, asyncio.Event] = {}

    def add(self, document: Json) -> None:
        """Add a recorded call that a tool made. Calls are added in the order in which they ended."""
        self._documents[place_of(document)[:-1]].append(document)

    def recorded_place(self, place: Place) -> Place:
        """Return the place that a call has in the recording, given its place in the replay."""
        return place_of(self.repeats[place]) if place in self.repeats else place

    async def wait(self, place: Place) -> None:
        """Wait until the repeated call at this place may end, in recorded order. A denied call never calls `wait`."""
        may_end = self._may_end.pop(place, None)
        if may_end is not None:
            await may_end.wait()

    def of_tool(self, result: Json, place: Place, context: ToolContext) -> "RepeatedCalls":
        """Return the recorded calls that a tool made, to repeat them. Raises ValueError if a call is missing."""
        documents = self._documents.get(place_of(result), [])
        if sorted(place_of(document)[-1] for document in documents) != list(range(1, len(documents) + 1)):
            raise ValueError
        return RepeatedCalls(self, documents, place, context)

    def begin(self, document: Json, place: Place, context: ToolContext) -> "tuple[asyncio.Task[str], asyncio.Event]":
        """Start a task that repeats a call that a tool made. Return the task, and an event that, once set, lets it end.

        The result of the task is the error message of the call, or "" if the call succeeded.
        """

        async def call() -> str:
            try:
                await context.call_tool(document["inner"], document["arguments"])
            except ToolError as error:
                return str(error)
            return ""

        self.repeats[place], self._may_end[place] = document, asyncio.Event()
        return asyncio.create_task(call()), self._may_end[place]

    def has_run(self, place: Place) -> bool:
        """Return whether a repeated call was allowed to run. If so, it has called `wait`."""
        return place not in self._may_end


class RepeatedCalls:
    """The recorded calls that one tool made. The replay repeats them in their recorded order."""

    def __init__(self, calls: InnerCalls, documents: list[Json], place: Place, context: ToolContext) -> None:
        self._calls = calls
        self._by_number = {place_of(document)[-1]: document for document in documents}
        self._rest = iter(documents)
        self._place = place
        self._context = context
        self._tasks = list[tuple["asyncio.Task[str]", asyncio.Event]]()

    async def play(self, count: int) -> Difference | None:
        """Repeat `count` more calls to their end. Return a difference if one ran when recorded, but may not run now."""
        for document in islice(self._rest, count):
            number = place_of(document)[-1]
            while len(self._tasks) < max(number, min(document.get("begun", 0), len(self._by_number))):
                following = len(self._tasks) + 1
                pair = self._calls.begin(self._by_number[following], (*self._place, following), self._context)
                self._tasks.append(pair)
            if "unfinished" in document:  # in the recording, this call had no end, so do not wait
                continue
            task, may_end = self._tasks[number - 1]
            may_end.set()
            message = await task
            if not self._calls.has_run((*self._place, number)) and document.get("ran", True):
                return Difference("tool result", f"results.{document['inner']}", document.get("text", ""), message)
        return None
