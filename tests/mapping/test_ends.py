"""How the answers of rows end, and what a frame says about it: whole, cut off, refused, null, of an earlier run."""

import logging

import pandas as pd
import polars as pl
import pytest
from pydantic import BaseModel

from agentmagic import Agent, BadRequest, MapFailed, ModelSettings, RetrySettings, Session, register_model, tool
from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall, Usage
from agentmagic.providers import catalog
from agentmagic.providers.base import ModelFinished
from agentmagic.testing import PATIENCE
from tests.mapping.models import RowModel

MODEL = "testing:ends"
CUT = "The answer was cut off at the limit of output. Raise max_output_tokens (--set max_output_tokens=N)"


class Line(BaseModel):
    length: int


class Ends:
    """A model that answers a row as `answers` says: a text, or a text and fields of its end, or an error.

    `answers` maps the text of a row to the answer, or is a function that does. `asked` has the rows in order. A request
    takes 10 and 5 tokens.
    """

    name = MODEL

    def __init__(self, answers):
        self.asked = []
        self._answers = answers if callable(answers) else answers.__getitem__

    async def stream(self, request):
        row = request.messages[0].text
        self.asked.append(row)
        answer = self._answers(row)
        if isinstance(answer, Exception):
            raise answer
        part, end = answer if isinstance(answer, tuple) else (answer, {})
        part = Text(part) if isinstance(part, str) else part
        yield PartStarted(0, part.type)
        yield PartFinished(0, part)
        yield ModelFinished(Usage(10, 0, 5), **{"reason": "stop", **end})

    def honours(self, settings):
        return settings.given

    async def aclose(self):
        pass


@pytest.fixture(autouse=True)
def priced(monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, input_price=10.0, output_price=100.0)  # a request of 10 and 5 tokens: $0.0006


@pytest.fixture
def ask(tmp_path):
    """Return a function that maps rows in a new session, as a new kernel would; it returns the result and the rows."""

    def asked(answers, rows, *, agent=None, **options):
        model = Ends(answers)
        agent = {"retry": RetrySettings(tries=1), "settings": ModelSettings(max_output_tokens=5), **(agent or {})}
        session = Session(Agent(model, **agent), namespace={})
        try:
            return session.map(rows, "{row}", **{"to": tmp_path / "a.jsonl", **options}), model.asked
        finally:
            session.close()

    return asked


LENGTH = {"reason": "length", "cut": True}
UNKNOWN = {"reason": "weird", "unknown": True}


# -- answers that are not whole ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("as_", "answer", "end", "error"),
    [
        (None, "half a sente", LENGTH, CUT),
        (Line, '{"length": 1}', LENGTH, CUT),
        (Line, '{"len', LENGTH, CUT),
        (int | None, "null", LENGTH, CUT),
        (None, "a whole sentence", UNKNOWN, "The server ended the answer for a reason that agentmagic does not know"),
        (Line, '{"length": 1}', UNKNOWN, "The server ended the answer for a reason that agentmagic does not know"),
        (None, "I cannot help.", {"refused": True}, "The model refused to answer: I cannot help."),
        (Line, '{"length": 1}', {"refused": True}, "The model refused to answer: "),
        (None, ToolCall("c", "look_up", {}), {"reason": "tool_calls"}, "The model called a tool, and there are none."),
    ],
)
def test_a_row_without_a_whole_answer_is_failed_with_the_reason_and_asked_again(ask, as_, answer, end, error):
    whole = "4" if as_ == int | None else '{"length": 4}'
    result, asked = ask({"good": whole, "bad": (answer, end)}, ["good", "bad"], as_=as_)
    good, bad = result
    assert (good.status, bad.status, bad.value) == ("answered", "failed", None)
    assert bad.error.startswith(error)
    assert bad.usage.output_tokens == 5 * asked.count("bad")
    assert dict(result.progress.errors) == {bad.error: 1}
    again, asked = ask({"bad": whole}, ["good", "bad"], as_=as_)
    assert (asked, [row.status for row in again]) == (["bad"], ["answered", "answered"])


def test_the_limit_of_output_can_be_raised_and_the_file_keeps_its_answers(ask):
    answers = {"good": "fine", "bad": ("half a sente", LENGTH)}
    ask(answers, ["good", "bad"])
    raised = {"settings": ModelSettings(max_output_tokens=500)}
    result, asked = ask({"bad": "a whole sentence"}, ["good", "bad"], agent=raised)
    assert asked == ["bad"]
    assert list(result.frame["answer"]) == ["fine", "a whole sentence"]


def test_an_answer_that_is_whole_after_a_repair_counts_though_the_first_one_was_a_refusal(ask):
    answers = iter([("I cannot.", {"refused": True}), '{"length": 3}'])
    (row,), asked = ask(lambda _: next(answers), ["a"], as_=Line)
    assert (row.status, row.value, len(asked)) == ("answered", Line(length=3), 2)


@tool
def look_up(line: str = "") -> str:
    """Look a line up."""
    return "found"


CALL = (ToolCall("c", "look_up", {}), {"reason": "tool_calls"})


@pytest.mark.parametrize(
    ("on_limit", "answers", "status"),
    [
        ("stop", [CALL], "failed"),
        ("answer", [CALL, "As far as was found."], "answered"),
        ("answer", [CALL, ("As far as", LENGTH)], "failed"),
        ("answer", [CALL, CALL], "failed"),
        ("answer", [CALL, BadRequest("no")], "failed"),
    ],
)
def test_a_row_that_used_all_its_steps_is_answered_only_if_the_model_closed_with_an_answer(
    ask, on_limit, answers, status
):
    left = iter(answers)
    agent = {"on_limit": on_limit, "max_iterations": 1, "tools": [look_up]}
    (row,), _ = ask(lambda _: next(left), ["a"], agent=agent)
    assert row.status == status
    assert bool(row.error) == (status == "failed")


def test_a_turn_outside_of_a_map_keeps_an_answer_that_was_cut_off():
    session = Session(Agent(Ends({"a": ("half a sente", LENGTH)})))
    result = session.ask("a")
    assert (result.final_text, result.stop_reason, result.error) == ("half a sente", "answer", "")


# -- answers that mean nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("as_", "answer", "value"),
    [
        (Line | None, "null", None),
        (Line | None, '{"value": null}', None),
        (int | None, "```json\nnull\n```", None),
        (int, "0", 0),
        (bool, "false", False),
        (str, '""', ""),
        (list[int], "[]", []),
        (dict[str, int], "{}", {}),
    ],
)
@pytest.mark.parametrize("library", [pd, pl])
def test_a_value_that_means_nothing_is_an_answer_and_is_paid_for_once(ask, library, as_, answer, value):
    rows = library.DataFrame({"row": ["a", "b"]})
    frames = []
    for asks in (["a", "b"], [], []):
        result, asked = ask({"a": answer, "b": answer}, rows, as_=as_)
        assert sorted(asked) == asks
        assert [(row.status, row.error, row.value) for row in result] == [("answered", "", value)] * 2
        frames.append(result.frame)
    assert list(frames[0]["_status"]) == ["answered"] * 2
    assert all(frame.equals(frames[0]) for frame in frames)


# -- what the file has -----------------------------------------------------------------------------------


ROWS = [f"row {number}" for number in range(100)]


def statuses(result):
    """How often each status stands in the frame of a result."""
    return result.frame["_status"].value_counts().to_dict()


@pytest.fixture
def begun(ask, tmp_path):
    """A file with answers of the rows from 60 on, and one row that failed and one in doubt among the first."""
    ask(lambda _: "fine", ROWS[60:])
    ask({"row 7": BadRequest("no")}, ["row 7"])
    ask({"row 9": "fine"}, ["row 9"])
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:-2]))  # of row 9, only that it was asked
    return {"answered": 40, "failed": 1, "in doubt": 1, "not asked": 58}


def test_a_map_that_meets_its_cap_has_the_rows_of_its_file(ask, begun):
    result, asked = ask({}, ROWS, max_cost=0.001)
    assert (asked, statuses(result), result.ended) == ([], begun, "budget")
    assert result.frame["_error"][7] == "no"
    assert result.frame["_error"][9] == "It was asked by an earlier run, and its answer did not arrive."
    assert [row.place for row in result.doubtful] == [9]
    assert (result.progress.kept, result.progress.failed, result.progress.in_doubt) == (40, 1, 1)
    assert result.usage.requests == 40
    whole, asked = ask(lambda _: "fine", ROWS)
    assert (len(asked), statuses(whole)) == (60, {"answered": 100})


def test_a_map_that_fails_has_the_rows_of_its_file(ask, begun):
    with pytest.raises(MapFailed) as failed:
        ask(lambda _: BadRequest("down"), ROWS, on_error="stop", concurrency=1)
    assert statuses(failed.value.result) == begun | {"failed": 2, "not asked": 57}
    assert failed.value.result.frame["_error"][0] == "down"


@pytest.mark.parametrize("lines", [list, iter])
def test_a_map_that_is_stopped_has_the_rows_of_its_file_before_anything_is_asked(tmp_path, lines):
    path = tmp_path / "a.jsonl"
    rows = [*["waits"] * 3, *"abcdefgh"]
    model = RowModel()
    session = Session(Agent(model, retry=RetrySettings(tries=1)), namespace={})
    session.map(rows[3:], "{row}", to=path)
    model.asked.clear()
    run = session.start_map(lines(rows), "{row}", to=path, concurrency=1)
    assert model.waits.wait(PATIENCE)
    assert [row.status for row in run.so_far()] == ["answered"] * 8
    assert list(run.frame["_status"]) == ["not asked"] * 3 + ["answered"] * 8
    run.stop()
    assert list(run.wait().frame["_status"]) == ["in doubt", *["not asked"] * 2, *["answered"] * 8]
    assert list(model.asked) == ["waits"]
    session.close()


def test_a_stop_while_the_file_is_read_waits_for_it(tmp_path):
    class Row:
        """A row that may stop the map when its text is read."""

        def __init__(self, number, stop=bool):
            self.number, self.stop = number, stop

        def __str__(self):
            self.stop()
            return f"row {self.number}"

    model = Ends(lambda _: "fine")
    session = Session(Agent(model), namespace={})
    rows = [Row(number) for number in range(300)]
    session.map(rows[200:], "{row!s}", to=tmp_path / "a.jsonl")
    model.asked.clear()
    rows[3].stop = lambda: session.running_map.stop()  # noqa: PLW0108  (there is none yet)
    stopped = session.start_map(rows, "{row!s}", to=tmp_path / "a.jsonl").wait()
    assert stopped.ended == "stopped"
    assert (model.asked, statuses(stopped)) == ([], {"not asked": 200, "answered": 100})
    session.close()


def test_a_map_that_could_ask_nothing_and_has_no_answer_fails_and_tells_what_is_known(ask, begun):
    with pytest.raises(MapFailed, match=r"^No row was asked. The map has cost \$") as failed:
        ask({}, ROWS[:20], max_cost=0.0005)
    assert statuses(failed.value.result) == {"not asked": 18, "failed": 1, "in doubt": 1}


def test_rows_that_a_limit_of_each_row_forbids_end_the_map(monkeypatch, ask):
    monkeypatch.setattr(catalog, "_registrations", {})
    reason = "What the turn costs is unknown, so max_cost cannot be kept"
    for rows, beginning in (["a", "b"], "No row was asked. "), (ROWS, "All of the first 10 rows failed alike. Row "):
        with pytest.raises(MapFailed, match=f"^{beginning}.*{reason}") as failed:
            ask({}, rows, agent={"max_cost": 1.0})
        assert set(statuses(failed.value.result)) == {"not asked"}


def test_an_endless_iterator_is_read_no_further_than_the_file_goes_before_rows_are_asked(ask, tmp_path):
    def endless():
        number = 0
        while True:
            yield f"row {number}"
            number += 1

    first, asked = ask(lambda _: "fine", endless(), max_cost=0.0061)
    assert (len(asked), first.ended) == (10, "budget")
    again, asked = ask(lambda _: "fine", endless(), max_cost=0.0121)
    assert (len(asked), again.progress.kept) == (10, 10)


# -- the end, for a reader of a log --------------------------------------------------------------------------


def test_a_script_without_a_terminal_is_told_how_its_map_ended(ask, caplog, tmp_path):
    caplog.set_level(logging.INFO, "agentmagic")
    ask(lambda _: "fine", ["a", "b"])
    assert [(one.levelname, one.message) for one in caplog.records if "map ended" in one.message] == [
        ("INFO", "map ended: 2 rows.")
    ]
    caplog.clear()
    result, _ = ask(lambda _: "fine", ["a", "b", "c", "d"], max_cost=0.002)
    told = (
        "Stopped at the budget: 3 of 4 rows. A request may cost $0.0006, and $0.0002 are left of max_cost. No further "
        "request was sent; raise the limit to go on. With a smaller max_output_tokens, a request takes less of it. The "
        f"answers are kept in {tmp_path / 'a.jsonl'}. Run this again to go on with the rest."
    )
    (record,) = [one for one in caplog.records if one.message.startswith("map ended")]
    assert (record.levelname, record.message) == ("WARNING", f"map ended: {told}")
    assert repr(result) == f"<MapResult: 4 rows, 3 answered, $0.0018. {told}>"
    assert (result.ended, result.notices) == ("budget", result.progress.notices)


def test_calls_that_were_denied_are_told_with_their_rows(ask):
    @tool(ask=True)
    def send(line: str = "") -> str:
        """Send a line."""
        return line

    calls = {"a": ["send", "send"], "b": ["look_up"], "c": ["send"]}

    def answer(row):
        return (ToolCall("1", calls[row].pop(), {}), {"reason": "tool_calls"}) if calls[row] else "done"

    result, _ = ask(answer, ["a", "b", "c"], agent={"tools": [send, look_up]})
    assert result.notices[-1].startswith("In 2 rows a call of a tool failed: 0, 2. ")
    assert "In the first: 2 of 2 calls of send failed: send was not run: it needs a person's" in result.notices[-1]
    assert result.notices[-1] in repr(result)
