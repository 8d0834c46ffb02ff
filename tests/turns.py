"""What the tests of turns share: steps of a script, and what to look for in a result."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from agentmagic import Agent, Session
from agentmagic.events import Approve, Deny
from agentmagic.host import Host, install
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.providers.scripted import ScriptedModel, ScriptedStep
from agentmagic.testing import Stalled, run
from agentmagic.tools.base import ToolContext

AT_ONCE = 3.0
"""Seconds within which a cancel or a timeout takes effect on a busy machine. The docs promise 0.5 on a quiet one."""
SOON = 0.8
"""A timeout in seconds that what it cuts has surely begun before, on a busy machine too."""


class Free:
    """The costs of a row in a map without a limit: nothing is reserved."""

    async def set_aside(self, request: Request) -> Usage:
        return Usage()

    def give_back(self, request: Request, aside: Usage, used: Usage | None) -> None:
        pass


def names(context: ToolContext) -> str:
    """Return the names of the tools that can be called."""
    return ", ".join(one.name for one in context.tools)


@contextmanager
def hosted(host: Host) -> Iterator[Host]:
    """Have a host be that of this process for a while."""
    before = install(host)
    try:
        yield host
    finally:
        install(before)


def approve(asked) -> Approve:
    return Approve(asked.id)


def always(asked) -> Approve:
    return Approve(asked.id, always=True)


def deny(asked) -> Deny:
    return Deny(asked.id)


def script(*steps) -> ScriptedModel:
    """A model that plays steps; an object is an answer in JSON."""
    return ScriptedModel([json.dumps(step) if isinstance(step, dict) else step for step in steps])


class StallsAfter(Stalled):
    """A model that plays steps, as `script` does, and then stalls; `tell` is called when it does."""

    def __init__(self, *steps, tell=lambda: None):
        super().__init__()
        self._script = script(*steps)
        self._left = len(steps)
        self._tell = tell

    async def stream(self, request):
        self._left -= 1
        if self._left < 0:
            self._tell()
        async for event in self._script.stream(request) if self._left >= 0 else super().stream(request):
            yield event


def calls(*pairs) -> ScriptedStep:
    """A step of a script that calls tools: calls("now", ("add", {"a": 1}))."""
    whole = [(pair, {}) if isinstance(pair, str) else pair for pair in pairs]
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in whole]}


def scripted(*steps, **options):
    """A session whose model plays the steps."""
    return Session(Agent(ScriptedModel(steps), **options))


def play(*steps, **options):
    """The result of one turn of a script."""
    return run(scripted(*steps, **options), "a prompt")


def results(result):
    """Every tool result of a turn, in order."""
    return [part for message in result.history_delta if message.role == "tool" for part in message.parts]


def texts(result):
    """The words of every tool result of a turn."""
    return [part.text for part in results(result)]


def kinds(events, *leave_out):
    """The types of the events, in order, those of parts excepted."""
    return [event.type for event in events if not event.type.startswith("part_") and event.type not in leave_out]


def notices(result):
    """The words of every notice of a turn."""
    return [event.text for event in result.events if event.type == "notice"]
