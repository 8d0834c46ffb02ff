"""One prompt over many rows: in code, as data scientists use it."""

import asyncio
import json
import threading
import time
from dataclasses import replace

import pandas as pd
import polars as pl
import pytest
from pydantic import BaseModel

from agentmagic import Agent, MapFailed, ModelSettings, RetrySettings, Session, SessionBusy, Stop, tool
from agentmagic.host import ScriptHost
from agentmagic.messages import Usage
from agentmagic.testing import PATIENCE, Stalled
from tests.mapping.models import RowModel
from tests.turns import SOON, hosted, script

ONCE = RetrySettings(tries=1)


class Line(BaseModel):
    length: int


@pytest.fixture
def model():
    return RowModel()


@pytest.fixture
def session(model):
    with_model = Session(Agent(model, retry=ONCE), namespace={"rubric": "short", "review": "the notebook's"})
    yield with_model
    with_model.close()


REVIEWS = pd.DataFrame({"review": ["good", "so so", "awful"], "stars": [5, 3, 1]}, index=[10, 20, 30])
META = ["_status", "_error", "_notice", "_cost", "_tokens", "_steps", "_run"]


def test_a_frame_keeps_its_index_and_columns_and_has_the_fields_of_the_answers_beside_them(session):
    frame = session.map(REVIEWS, "How long?\n{review}", as_=Line).frame
    assert list(frame.columns) == ["review", "stars", "length", *META]
    assert list(frame.index) == [10, 20, 30]
    assert list(frame["length"]) == [4, 5, 5]
    assert list(frame["_status"]) == ["answered"] * 3
    assert list(frame["_tokens"]) == [120] * 3
    assert list(frame["_run"]) == [0, 1, 2]
    assert "length" not in REVIEWS.columns


@pytest.mark.parametrize(
    ("rows", "prompt", "asked"),
    [
        (REVIEWS, "{rubric}: {review}, {stars:.1f}", ["short: good, 5.0", "short: so so, 3.0", "short: awful, 1.0"]),
        (REVIEWS["review"], "{review}", ["good", "so so", "awful"]),
        (pd.Series(["a", "b"]), "{row}", ["a", "b"]),
        (pl.DataFrame({"review": ["a", "b"]}), "{review!r}", ["'a'", "'b'"]),
        (pl.Series("review", ["a", "b"]), "{review.upper()}", ["A", "B"]),
        ([{"review": "a"}, {"review": "b"}], "{review} {row['review']}", ["a a", "b b"]),
        (["a", "b"], "{row} is {rubric.upper()}", ["a is SHORT", "b is SHORT"]),
        ((letter for letter in "ab"), "{row}", ["a", "b"]),
        (pd.DataFrame({"Review text": ["a"]}), '{Review text} {"json": 1}', ['a {"json": 1}']),
    ],
)
def test_rows_of_any_kind_fill_the_prompt_in_the_form_of_cells(session, model, rows, prompt, asked):
    result = session.map(rows, prompt)
    assert list(model.asked) == asked
    assert [row.status for row in result] == ["answered"] * len(asked)


def test_names_of_the_notebook_are_evaluated_once(session, model):
    class Counted(list):
        def __str__(self):
            self.append(1)
            return "counted"

    session._watcher.own_namespace["counted"] = counted = Counted()
    session.map(["a", "b", "c"], "{counted!s} {row}")
    assert len(counted) == 1
    assert list(model.asked) == ["counted a", "counted b", "counted c"]


LONG = 2**53 + 1
"""The first whole number that is no float."""
IDS = [{"text": "good"}, {"text": "fails"}, {"text": "bad", "id": LONG}]


@pytest.mark.parametrize(
    "rows", [IDS, pd.DataFrame(IDS, dtype=object), pl.DataFrame(IDS)], ids=["list", "pandas", "polars"]
)
def test_whole_numbers_stay_so_when_a_row_fails_or_none_is_answered(session, rows):
    all_rows, failed = (session.map(some, "{text}", as_=Line).frame for some in (rows, rows[1:2]))
    missing = None if isinstance(rows, pl.DataFrame) else pd.NA
    assert (all_rows["length"].to_list(), failed["length"].to_list()) == ([4, missing, 3], [missing])
    assert {str(frame["length"].dtype) for frame in (all_rows, failed)} == {"Int64"}
    assert all_rows["id"].to_list()[2] == LONG


def test_a_polars_frame_comes_back_as_one(session):
    frame = session.map(pl.DataFrame({"review": ["good"]}), "{review}", as_=Line).frame
    assert isinstance(frame, pl.DataFrame)
    assert frame.rows(named=True)[0] | {"_cost": None} == {
        "review": "good",
        "length": 4,
        "_status": "answered",
        "_error": "",
        "_notice": "",
        "_cost": None,
        "_tokens": 120,
        "_steps": 1,
        "_run": 0,
    }


def test_a_column_with_the_name_of_an_input_gets_a_number(session):
    frame = session.map(pd.DataFrame({"length": ["a"]}), "{length}", as_=Line).frame
    assert list(frame["length"]) == ["a"]
    assert list(frame["length_2"]) == [1]


def test_every_row_begins_from_the_session_and_leaves_it_alone():
    model = script("Understood.", {"length": 1}, {"length": 2})
    session = Session(Agent(model, instructions="Be brief."))
    session.ask("We count letters.")
    before = session.turns
    result = session.map(["a", "bb"], "Count {row}", as_=Line)
    assert [row.value for row in result] == [Line(length=1), Line(length=2)]
    sent = [[message.text for message in request.messages] for request in model.requests[1:]]
    assert sent == [["We count letters.", "Understood.", f"Count {row}"] for row in ("a", "bb")]
    assert {request.instructions.partition("\n")[0] for request in model.requests} == {"Be brief."}
    assert session.turns == before


def test_a_row_calls_tools_and_its_run_can_be_opened(session):
    looked = []

    @tool
    def look_up(line: str) -> str:
        """Look a line up."""
        looked.append(line)
        return "found"

    result = session.map(["x", "calls"], "{row}", as_=Line, tools=[look_up])
    assert looked == ["calls"]
    assert [row.steps for row in result] == [1, 2]
    run = result.run(1)
    assert [call.name for message in run.history_delta for call in message.calls] == ["look_up"]
    assert [type(event).__name__ for event in run.events].count("ToolFinished") == 1
    assert session.map(["x"], "{row}", tools=[look_up]).run(0).final_text == '{"length": 1}'


def test_rows_whose_tools_wait_for_the_main_thread_do_not_run_out_of_time(session):
    class Kernel(ScriptHost):
        takes_tools = True

    @tool
    def look_up(line: str) -> str:
        """Work for a while, one call after the other."""
        time.sleep(0.3)
        return line

    session.agent = replace(session.agent, timeout=SOON)
    with hosted(Kernel()):
        result = session.map([f"{number} calls" for number in range(6)], "{row}", tools=[look_up])
    assert [row.status for row in result] == ["answered"] * 6


def test_what_would_be_asked_about_is_denied_in_a_row_and_told_if_a_row_calls_it(session):
    @tool(ask=True)
    def look_up(line: str) -> str:
        """Look a line up."""
        return line

    assert session.map(["no tool"], "{row}", tools=[look_up]).notices == ()
    result = session.map(["calls"], "{row}", tools=[look_up])
    (denied,) = [event.result for event in result.run(0).events if type(event).__name__ == "ToolFinished"]
    assert denied.status == "denied"
    told = "A row cannot ask you, so calls of look_up are denied. To let them run, give the agent "
    told += 'permission=Policy([Rule("allow", "look_up")]).'
    assert result.notices[0] == told
    assert result.notices[1].startswith("In 1 row a call of a tool failed: 0. ")
    assert repr(result) == f"<MapResult: 1 row, 1 answered. {told} {result.notices[1]}>"


def test_failed_rows_are_kept_and_counted_by_kind(session):
    result = session.map(["a", "fails", None, "b"], "{row}")
    assert [row.status for row in result] == ["answered", "failed", "failed", "answered"]
    assert dict(result.progress.errors) == {
        "fails is down": 1,
        "row is missing in this row, so nothing was asked. Fill it, or leave the row out.": 1,
    }
    assert list(result.failed["_run"]) == [1, 2]
    assert repr(result) == "<MapResult: 4 rows, 2 answered, 2 failed>"


def test_a_failed_row_can_end_the_map(session, model):
    with pytest.raises(MapFailed, match=r"^Row 1 failed: fails is down$") as failed:
        session.map(["a", "fails", "b"], "{row}", on_error="stop", concurrency=1)
    assert [row.status for row in failed.value.result] == ["answered", "failed"]
    assert list(failed.value.result.frame["_status"]) == ["answered", "failed", "not asked"]


def test_rows_that_all_fail_alike_end_the_map(session, model):
    model.name = "testing:rows"
    with pytest.raises(MapFailed, match="All of the first 10 rows failed alike"):
        session.map([{"row": "x", "n": n} for n in range(1000)], "{n}\nfails {row}", concurrency=1)
    assert sum(model.asked.values()) == 10


@pytest.mark.parametrize("bound", [1, 7])
def test_no_more_rows_than_the_bound_are_asked_at_a_time(session, model, bound):
    session.map([str(number) for number in range(50)], "{row}", concurrency=bound)
    assert model.most == bound


def test_a_map_is_awaited_and_its_rows_are_iterated_as_they_end(session):
    async def main():
        run = session.start_map(["a", "b", "c"], "{row}", concurrency=1)
        rows = [row.index async for row in run]
        return rows, await run

    rows, result = asyncio.run(main())
    assert rows == [0, 1, 2]
    assert result.progress.ended == "done"


def test_a_stopped_map_has_a_frame_and_says_which_rows_are_in_doubt(session, model):
    run = session.start_map(["a", "waits", "b"], "{row}", concurrency=1)

    async def stop():
        async for _ in run:
            break
        await asyncio.to_thread(model.waits.wait, PATIENCE)
        run.stop()
        return await run

    result = asyncio.run(stop())
    assert list(result.frame["_status"]) == ["answered", "in doubt", "not asked"]
    assert (result.progress.ended, result.progress.in_doubt) == ("stopped", 1)
    assert session.last_map.frame.equals(result.frame)


def test_closing_a_session_stops_its_map(model):
    session = Session(Agent(model))
    run = session.start_map(["waits"], "{row}")
    session.close()
    assert run.done
    assert run.progress.ended == "stopped"


def test_a_map_waits_for_no_turn_and_a_turn_for_no_map(model):
    session = Session(Agent(Stalled()))
    turn = session.start("a question")
    with pytest.raises(SessionBusy):
        session.map(["a"], "{row}")
    turn.send(Stop())
    turn.settled.result(PATIENCE)
    session.agent = Agent(model)
    run = session.start_map(["waits"], "{row}")
    session.ask("meanwhile")
    run.stop()
    run.settled.result(PATIENCE)


def test_progress_is_told_and_ends_with_why(session):
    told = []
    ended = threading.Event()
    run = session.start_map(["a", "fails"], "{row}", concurrency=1)
    run.listen(lambda progress: (told.append(progress), progress.ended and ended.set()))
    result = run.wait()
    last = result.progress
    assert (last.total, last.answered, last.failed, last.done, last.ended) == (2, 1, 1, 2, "done")
    assert last.usage.requests == 1


def test_the_costs_of_a_map_count_for_the_session(session):
    session.max_tokens = 360
    session.agent = replace(session.agent, settings=ModelSettings(max_output_tokens=20))
    session.map(["a", "b"], "{row}")
    assert session._paid_usage == Usage(200, 0, 40, requests=2, cost=None)
    session.max_tokens = 240
    assert session.ask("a question").stop_reason == "budget"


def test_json_of_the_file_reads_like_a_table(session, tmp_path):
    session.map(REVIEWS, "{review}", as_=Line, to=tmp_path / "labels.jsonl", concurrency=1)
    lines = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines] == ["map", *["row_asked", "row_log", "row_ended"] * 3]
    assert [line["value"] for line in lines if line["type"] == "row_ended"] == [{"length": n} for n in (4, 5, 5)]
