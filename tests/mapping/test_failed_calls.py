"""A row says which calls of its tools failed, although it has an answer: in the frame, the file, and a replay."""

import pandas as pd
import polars as pl
import pytest

from agentmagic import Agent, ScriptedModel, Session, tool
from agentmagic.errors import ToolError
from agentmagic.events import ToolFinished
from agentmagic.mapping.failed_calls import LONGEST_REASON, failed_calls
from agentmagic.messages import Text, ToolResult
from agentmagic.testing import Faulty
from tests.mapping.models import RowModel
from tests.turns import calls

LINES = ["a", "calls b", "calls out", "calls c"]
OUT = "1 of 1 call of look_up failed: it is out of order"
TOLD = (
    "In 1 row a call of a tool failed: 2. The column _notice of the frame says which call, and why. "
    f"In the first: {OUT}"
)


@tool
def look_up(line: str) -> str:
    """Look a line up."""
    if "out" in line:
        raise ToolError("it is out of order")
    return "found"


@pytest.fixture
def session():
    made = Session(Agent(RowModel(), tools=[look_up]))
    yield made
    made.close()


@pytest.mark.parametrize("rows", [LINES, pd.DataFrame({"line": LINES}), pl.DataFrame({"line": LINES})])
def test_a_row_whose_tool_failed_says_so_and_so_does_the_map(session, rows):
    result = session.map(rows, "{row}" if rows is LINES else "{line}")
    assert list(result.frame["_status"]) == ["answered"] * 4
    assert list(result.frame["_error"]) == [""] * 4
    assert list(result.frame["_notice"]) == ["", "", OUT, ""]
    assert result.progress.notices == (TOLD,)


def test_a_row_from_the_file_says_it_too(session, tmp_path):
    session.map(LINES, "{row}", to=tmp_path / "rows.jsonl")
    again = session.map([*LINES, "calls d"], "{row}", to=tmp_path / "rows.jsonl")
    assert again.progress.kept == 4
    assert list(again.frame["_notice"]) == ["", "", OUT, "", ""]
    assert again.progress.notices == (TOLD,)


def test_a_replay_says_it_too_and_once(tmp_path):
    told = []
    for mode in ("record", "replay"):
        session = Session(Agent(RowModel(), tools=[look_up]), cassette=tmp_path / "x.cassette.yaml", replay=mode)
        result = session.map(LINES, "{row}")
        told.append((list(result.frame["_notice"]), result.progress.notices))
        session.close()
    assert told == [(["", "", OUT, ""], (TOLD,))] * 2


def test_a_call_that_was_denied_has_failed():
    @tool(ask=True)
    def send(line: str) -> str:
        """Send a line."""
        return line

    session = Session(Agent(ScriptedModel([calls(("send", {"line": "a"})), "Done."]), tools=[send]))
    (row,) = session.map(["a"], "{row}")
    assert row.status == "answered"
    assert row.notice.startswith("1 of 1 call of send failed: send was not run: it needs a person's approval")


def test_an_agent_tool_that_failed_and_a_tool_that_failed_inside_one_are_told():
    task = {"prompt": "Find."}
    lost = Agent(Faulty(*[ValueError("it is gone")] * 9)).as_tool("lost", "Finds.")
    found = Agent(ScriptedModel([calls(("look_up", {"line": "out"})), "Found."]), tools=[look_up])
    outer = Agent(
        ScriptedModel([calls(("lost", task), ("found", task)), "Done."]), tools=[lost, found.as_tool("found", "Finds.")]
    )
    (row,) = Session(outer).map(["a"], "{row}")
    assert row.status == "answered"
    assert "1 of 1 call of lost failed: lost failed: " in row.notice
    assert "ValueError: it is gone" in row.notice
    assert OUT in row.notice
    assert "of found failed" not in row.notice


def test_calls_are_counted_by_tool_and_a_long_reason_or_one_of_many_lines_is_a_short_one():
    def ended(name, status="ok", text="x"):
        return ToolFinished(ToolResult("1", name, (Text(text),), status))

    events = [ended("a", "error", "no\n\nroom"), ended("a"), ended("a", "timeout", "late"), ended("b")]
    assert failed_calls(events) == "2 of 3 calls of a failed: no room"
    assert failed_calls([ended("b")]) == ""
    (_, _, reason) = failed_calls([ended("a", "error", "long " * 1000)]).partition(": ")
    assert len(reason) <= LONGEST_REASON
    many = [ended(f"tool{number}", "error", "long " * 1000) for number in range(50)]
    assert len(failed_calls(many)) <= 300
