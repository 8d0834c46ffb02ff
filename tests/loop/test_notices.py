"""A notice about a setting, a tool or a server is given once in a session; a notice about a turn in each turn."""

from dataclasses import replace

import pytest

from agentmagic import Agent, ModelSettings, Session
from agentmagic.errors import ServerError, UsageError
from agentmagic.events import innermost
from agentmagic.loop.turn_context import SeenNotices
from agentmagic.messages import ToolDef
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.session import UNATTENDED
from agentmagic.testing import run
from agentmagic.tools.base import Tool
from agentmagic.tools.functions import function_tool
from agentmagic.tools.output_cache import READER
from tests.turns import calls


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def look() -> str:
    """Look around."""
    return "nothing here"


def gone() -> str:
    """Be gone."""
    return ""


def refused():
    raise UsageError("The tool gone has no class here.")


class Small(ScriptedModel):
    """A model that honours no setting, advises the user, and can handle few tools."""

    def honours(self, _settings):
        return ()

    def advice(self):
        return "A larger model answers better."

    def choose(self, tools, _prompt):
        return [tool for tool in tools if tool.name in ("add", "scout")]


class Troubled:
    """A toolset with trouble of every kind. `trouble` can change between turns."""

    def __init__(self):
        self.trouble = "left out"

    async def tools(self):
        reader, second = (Tool(ToolDef(name, ""), None) for name in (READER, "look"))
        return [reader, function_tool(look), second, replace(function_tool(gone), now=refused)]

    @property
    def notices(self):
        return [f"The tool odd is {self.trouble}."]

    async def aclose(self):
        pass


class Away:
    """A server that cannot be reached."""

    why = "The server away is away."

    async def tools(self):
        if self.why:
            raise ServerError(self.why)
        return ()

    async def aclose(self):
        pass


def told(result):
    """The words of every notice of a turn, and of the turns inside it."""
    return [one.text for one in map(innermost, result.events) if one.type == "notice"]


ALLOWED = "AGENTMAGIC_PERMISSION=allow is set, and holds for each turn."
ALL = {
    ALLOWED,
    "scripted:script takes no seed, so it is asked without that setting.",
    "A larger model answers better.",
    UNATTENDED,
    f"{READER} is the name of the tool that reads on in long results. Yours is left out; rename it.",
    "Two tools are named look; the first of them is used.",
    "The tool gone has no class here.",
    "The tool odd is left out.",
    "scripted:script can handle 2 tools. Left out: look.",
    "This turn runs without a tool server. The server away is away.",
}
"""What a turn can begin with."""
INNER = "scripted:script can handle 1 tools. Left out: look."
"""What only the turn of the asked agent begins with: it may choose among other tools."""
LIMIT = "The limit of 2 steps is reached. Raise max_iterations to allow more."
STEP = calls(("add", {"a": 1, "b": 2}))


@pytest.fixture(name="parts")
def parts_fixture(monkeypatch):
    """A session with all of that trouble, also in an agent that it asks; and what is troubled."""
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "allow")
    source, server = Troubled(), Away()
    inner = Agent(Small([STEP, "Found."] * 9), tools=[add, source, server], settings=ModelSettings(seed=1))
    tools = [add, source, server, inner.as_tool("scout", "Finds things.")]
    model = Small([STEP, calls(("scout", {"prompt": "Find."}), ("scout", {"prompt": "Find on."})), "Done."] * 9)
    agent = Agent(model, tools=tools, settings=ModelSettings(seed=1), max_iterations=2, on_limit="answer")
    return Session(agent), source, server


def test_what_a_turn_begins_with_is_told_once_and_what_is_about_the_turn_each_time(parts):
    session, source, server = parts
    first, second = (told(run(session, "Go.", step=True)) for _ in range(2))
    assert sorted(first) == sorted([*ALL, INNER, LIMIT])
    assert second == [LIMIT]
    source.trouble = "left out, and renamed"
    assert told(run(session, "Go.")) == ["The tool odd is left out, and renamed.", LIMIT]
    server.why = ""
    assert told(run(session, "Go.")) == [LIMIT]
    server.why = Away.why  # it was there meanwhile, so this is new
    assert told(run(session, "Go.")) == ["This turn runs without a tool server. The server away is away.", LIMIT]


def test_a_map_tells_what_no_turn_has_told_and_its_rows_tell_nothing_again(parts):
    session, _, _ = parts
    assert session.map(["a"], "What is {row}?").notices == (ALLOWED, Away.why)
    assert ALLOWED not in told(run(session, "Go."))
    assert session.map(["a", "b"], "What is {row}?").notices == ()


def test_another_session_tells_its_notices_itself():
    for _ in range(2):
        assert told(run(Session(Agent(Small(["Hi."]))), "Go.")) == ["A larger model answers better."]


def test_a_notice_that_has_changed_is_new_and_one_twice_in_a_row_is_one():
    seen = SeenNotices()
    assert [seen.new(one) for one in (["a", "a", "b"], ["a"], ["a", "c"], [])] == [["a", "b"], [], ["c"], []]
