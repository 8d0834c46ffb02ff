"""Lone surrogates in what tools print, return, raise and tell: each reader of a turn's events can encode its text."""

import json
import os

import pytest

from agentmagic import Agent, Media, Session, Text, ToolContext
from agentmagic.export.document import to_markdown
from agentmagic.messages import ToolResult
from agentmagic.providers.openai.chat_completions import encode
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.serialization import decode
from agentmagic.testing import run
from agentmagic.text import encodable_value
from tests.turns import calls, results

HALF, SHOWN = "a\ud800c", "a\ufffdc"
FILE = os.fsdecode(b"bad\xff.txt")


def returns() -> str:
    """Return."""
    return HALF


def lists() -> dict:
    """Return a structure."""
    return {HALF: [HALF, 1, None], "file": FILE}


def raises() -> str:
    """Raise."""
    raise ValueError(HALF)


def gives() -> ToolResult:
    """Return a result that was made by hand."""
    return ToolResult("", "", (Text(HALF), Media("image/png", b"png", HALF)))


async def tells(context: ToolContext) -> str:
    """Tell and make progress."""
    context.progress(1, 2, HALF)
    context.tell(HALF)
    return await context.ask(HALF)


TOOLS = [returns, lists, raises, gives, tells]


def script():
    return ScriptedModel([calls(*((one.__name__, {}) for one in TOOLS)), "Done."])


def test_what_a_tool_says_is_fit_for_the_history_the_journal_an_export_and_the_next_request(tmp_path):
    model, path = script(), tmp_path / "x.jsonl"
    session = Session(Agent(model, tools=TOOLS), path=path)
    told = run(session, "Go.")
    session.close()
    first, second, *_ = results(told)
    assert first.text == SHOWN
    assert second.structured == {SHOWN: [SHOWN, 1, None], "file": "bad\ufffd.txt"}
    assert all(one.text.encode() for one in results(told))
    written = [decode(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    finished = [one.result.text for one in written if one.type == "tool_finished"]  # in parallel, so in any order
    assert sorted(finished) == sorted(one.text for one in results(told))
    assert SHOWN in to_markdown(session.turns)
    assert all(str(event).encode() for event in told.events)
    assert json.dumps(encode(model.requests[-1], "m"), ensure_ascii=False).encode()


def test_a_recording_holds_the_fit_text_and_is_played(tmp_path):
    path = tmp_path / "x.cassette.yaml"
    texts = []
    for mode in ("record", "replay"):
        session = Session(Agent(script(), tools=TOOLS), cassette=path, replay=mode)
        texts.append([one.text for one in results(run(session, "Go."))])
        session.close()
    assert texts[0] == texts[1]
    assert SHOWN in texts[1]


def test_the_error_of_a_turn_is_fit_too():
    class Failing(ScriptedModel):
        async def stream(self, request):
            raise ValueError(HALF)
            yield

    session = Session(Agent(Failing([])))
    with pytest.raises(Exception, match="failed") as raised:
        session.ask("Go.")
    assert str(raised.value).encode()
    assert session.events[-1].result.error.encode()


@pytest.mark.parametrize(
    "value",
    [
        Text("plain é 😀"),
        (Text("a"), Text("b")),
        {"a": ["b", 1, None, b"\xff"]},
        [1, (2, "c")],
        ToolResult("a", "b", ()),
        7,
    ],
)
def test_a_value_that_can_be_encoded_stays_the_same_object(value):
    assert encodable_value(value) is value
