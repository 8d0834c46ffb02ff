"""Maps on cassettes: recorded as their rows are, replayed without a model, and told by name where they differ."""

import asyncio
import re
import shutil
import time
from dataclasses import replace

import pandas as pd
import pytest
from pydantic import BaseModel

from agentmagic import Agent, MapFailed, ModelSettings, ReplayMismatch, Session, tool
from agentmagic.errors import CassetteError, UsageError
from agentmagic.events import PartFinished
from agentmagic.host import begin_cell
from agentmagic.jupyter.magics import formatting
from agentmagic.loop.retry import RetrySettings
from agentmagic.messages import Text
from agentmagic.providers.base import ModelFinished
from agentmagic.replay import unasked
from agentmagic.replay.cassette import Cassette
from agentmagic.testing import PATIENCE
from tests.mapping.models import MODEL, RowModel
from tests.replay.test_report import told

ONCE = RetrySettings(tries=1)
PROMPT = "How long?\n{row}"
ROWS = ["a", "bb", "fails", "dddd"]


class Line(BaseModel):
    length: int


class Tone(BaseModel):
    mood: str


@tool
def look_up(line: str) -> str:
    """Look a line up."""
    return f"{line} was looked up"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.cassette.yaml"


@pytest.fixture
def begun(path):
    """Makes a session on the cassette, with a model of its own, which are both returned."""
    made = []

    def begin(mode, model=None, *, namespace=None, **recipe):
        model = model or RowModel()
        given = {"retry": ONCE, **recipe}
        session = Session(Agent(model, **given), cassette=path, replay=mode, namespace=namespace or {})
        made.append(session)
        return session, model

    yield begin
    for session in made:
        session.close()


@pytest.fixture
def mapped(begun):
    """Runs a map in a new session, and returns its result and the rows that the model was asked."""

    def run(mode, rows=ROWS, prompt=PROMPT, **options):
        own = {name: options.pop(name) for name in ("model", "namespace", "instructions") if name in options}
        begin_cell()
        session, model = begun(mode, **own)
        try:
            return session.map(rows, prompt, **{"as_": Line, **options}), list(model.asked)
        finally:
            session.close()

    return run


def seen(result):
    """What a user sees of a map, apart from its id, which no two runs share."""
    return result.rows, replace(result.progress, id=""), result.doubtful, str(result.estimate), result.frame.to_json()


# -- modes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "asks"),
    [("replay", False), ("replay-model", False), ("auto", False), ("record", True), ("live", True)],
)
@pytest.mark.parametrize("sample", [None, 2])
def test_a_map_is_asked_or_comes_from_the_tape_as_the_mode_says(mapped, path, mode, asks, sample):
    recorded, asked = mapped("record", sample=sample)
    before = path.read_text(encoding="utf-8")
    result, again = mapped(mode, sample=sample)
    assert bool(again) == asks
    assert set(again) <= set(asked)
    assert [row.status for row in result] == [row.status for row in recorded]
    if not asks:
        assert seen(result) == seen(recorded)
        assert [row.value for row in result if row.value] == [row.value for row in recorded if row.value]
    if mode != "record":
        assert path.read_text(encoding="utf-8") == before


def test_the_mode_comes_from_the_call_the_session_or_the_environment(begun, path, monkeypatch):
    session, model = begun(None)
    recorded = session.map(ROWS, PROMPT, replay="record")
    session.close()
    assert seen(session.map(ROWS, PROMPT, replay="replay")) == seen(recorded)
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "replay")
    monkeypatch.setenv("AGENTMAGIC_CASSETTE", str(path))
    assert seen(Session(Agent(RowModel())).map(ROWS, PROMPT)) == seen(recorded)
    assert set(model.asked.values()) == {1}


def test_a_map_needs_no_key_and_no_model_when_it_is_replayed(mapped, path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = RowModel()
    model.name = "openai:gpt-5-mini"
    recorded, _ = mapped("record", model=model)
    session = Session(Agent("openai:gpt-5-mini", retry=ONCE), cassette=path, replay="replay", namespace={})
    assert seen(session.map(ROWS, PROMPT, as_=Line)) == seen(recorded)


def test_the_mode_replay_tools_is_refused_with_what_to_choose(mapped):
    mapped("record")
    with pytest.raises(UsageError, match=r"replay-tools plays no map: .* Choose replay, auto or live"):
        mapped("replay-tools")


def test_tools_do_not_run_in_a_replay_and_replay_model_says_so(mapped):
    ran = []

    @tool
    def look_up(line: str) -> str:
        """Look a line up."""
        ran.append(line)
        return line

    recorded, _ = mapped("record", ["calls me", "b"], tools=[look_up])
    assert ran == ["calls me"]
    assert seen(mapped("replay", ["calls me", "b"], tools=[look_up])[0]) == seen(recorded)
    result, asked = mapped("replay-model", ["calls me", "b"], tools=[look_up])
    assert (ran, asked) == (["calls me"], [])
    assert result.progress.notices[-1] == "The rows of a map are played as a whole, so their tools do not run."


def test_rows_end_in_a_replay_in_the_order_in_which_they_ended(begun):
    async def order(mode):
        model = RowModel()
        session, _ = begun(mode, model)
        run = session.start_map(["waits", "b", "c"], PROMPT)
        found = []
        async for row in run:
            found.append(row.place)
            if len(found) == 2:
                model.go_on()
        await session.aclose()
        return found

    assert asyncio.run(order("record")) == asyncio.run(order("replay")) == [1, 2, 0]


def test_a_row_that_was_replayed_says_where_its_run_is(mapped):
    assert mapped("record")[0].run(1).final_text
    with pytest.raises(UsageError, match="Row 1 was replayed: its run is not on the cassette"):
        mapped("replay")[0].run(1)


# -- differences -------------------------------------------------------------------------------------


def renamed():
    model = RowModel()
    model.name = "testing:other"
    return model


@pytest.mark.parametrize(
    ("change", "field", "before", "after"),
    [
        ({"prompt": "How short?\n{row}"}, "prompt", "How long?\\n{row}", "How short?\\n{row}"),
        ({"model": renamed()}, "model", MODEL, "testing:other"),
        ({"as_": Tone}, "settings.output.name", "Line", "Tone"),
        ({"instructions": "Be brief."}, "instructions", "", "Be brief."),
        ({"tools": [look_up]}, "tools", "(absent)", "look_up"),
        ({"settings": ModelSettings(temperature=0.5)}, "settings.temperature", "(absent)", "0.5"),
    ],
)
def test_what_has_changed_in_what_all_rows_are_asked_is_named_with_both_values(mapped, change, field, before, after):
    mapped("record")
    with pytest.raises(ReplayMismatch) as found:
        mapped("replay", **change)
    text = str(found.value)
    assert re.search(rf"{re.escape(field)} is not (as recorded in x.cassette.yaml|either) \(cause: ", text)
    assert f"Recorded: {before!r}; now: {after!r}".replace("\\\\", "\\") in text
    result, asked = mapped("auto", **change)
    assert len(asked) >= 4
    assert seen(mapped("replay", **change)[0]) == seen(result)


def test_a_value_of_the_notebook_and_an_earlier_turn_that_have_changed_are_named(begun, mapped):
    mapped("record", prompt="{rubric}: {row}", namespace={"rubric": "short"})
    with pytest.raises(ReplayMismatch, match=r"values.\{rubric\} is not as recorded .* Recorded: 'short'; now: 'long'"):
        mapped("replay", prompt="{rubric}: {row}", namespace={"rubric": "long"})
    session, _ = begun("record")
    session.map(ROWS, PROMPT)
    session.close()
    session, _ = begun("live")
    session.ask("Before?")
    with pytest.raises(ReplayMismatch, match="history"):
        session.map(ROWS, PROMPT, replay="replay")


@pytest.mark.parametrize(
    ("rows", "before", "after", "asked"),
    [
        ([*ROWS, "new"], r"\(absent\)", r"1 row: 4 \(\w{8}\)", ["new"]),
        (ROWS[1:], r"1 row: 0 \(\w{8}\)", r"\(absent\)", []),
        (["other", *ROWS[1:]], r"1 row: 0 \(\w{8}\)", r"1 row: 0 \(\w{8}\)", ["other"]),
        (list("vwxyz"), r"4 rows: 0 \(\w{8}\), 1 \(\w{8}\), 2 \(\w{8}\), \.\.\.", "5 rows: 0 .*", list("vwxyz")),
        (ROWS[::-1], r"keys \w{16}", r"keys \w{16}", []),
    ],
)
def test_rows_that_have_changed_are_named_and_auto_asks_no_others(mapped, rows, before, after, asked):
    mapped("record")
    pattern = rf"rows is not as recorded .*Recorded: '{before}'; now: '{after}'"
    with pytest.raises(ReplayMismatch, match=pattern):
        mapped("replay", rows)
    result, now = mapped("auto", rows)
    assert now == asked
    assert result.progress.kept == len(rows) - len(asked)
    again, now = mapped("replay", rows)
    assert now == []
    assert seen(again) == seen(result)


def test_a_row_that_was_edited_by_hand_is_named_and_not_played(mapped, path):
    mapped("record", pd.DataFrame({"row": ["a", "bb"]}, index=["first", "second"]))
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('{"length":2}', '{"length":3}'), encoding="utf-8")
    with pytest.raises(ReplayMismatch, match=r"rows\.second is not as recorded .*\(cause: edited\)"):
        mapped("replay", pd.DataFrame({"row": ["a", "bb"]}, index=["first", "second"]))
    lines = [line for line in text.splitlines(keepends=True) if '"second"' not in line]
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(CassetteError, match="lacks a document, or has one more"):
        mapped("replay", ["a", "bb"])


# -- maps that were broken off -------------------------------------------------------------------------


def test_a_recording_that_breaks_off_is_told_and_auto_asks_the_rows_that_it_lacks(mapped, path, monkeypatch):
    monkeypatch.setattr("agentmagic.replay.map_tape.ROWS", 2)
    mapped("record", ["a", "b", "c", "d", "e"])
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.rindex("---\nrows")], encoding="utf-8")
    with pytest.raises(CassetteError, match="breaks off after 4 rows"):
        mapped("replay", ["a", "b", "c", "d", "e"])
    assert mapped("auto", ["a", "b", "c", "d", "e"])[1] == ["e"]
    assert mapped("replay", ["a", "b", "c", "d", "e"])[1] == []


def test_a_map_that_was_stopped_is_replayed_as_far_as_it_came_and_auto_asks_the_others(begun, mapped):
    session, model = begun("record")
    run = session.start_map(["a", "waits", "c"], PROMPT, concurrency=1, as_=Line)
    assert model.waits.wait(PATIENCE)
    run.stop()
    stopped = run.wait()
    session.close()
    result, asked = mapped("replay", ["a", "waits", "c"])
    assert asked == []
    assert (result.rows, result.progress.ended) == (stopped.rows, "stopped")
    assert "This map was stopped when it was recorded" in result.progress.notices[-1]
    model = RowModel()
    model.go_on()
    result, asked = mapped("auto", ["a", "waits", "c"], model=model)
    assert asked == ["waits", "c"]
    assert result.progress.answered == 3


def test_a_map_that_failed_or_met_its_cap_ends_so_in_a_replay(mapped):
    with pytest.raises(MapFailed) as failed:
        mapped("record", ["a", "fails", "c"], on_error="stop", concurrency=1)
    with pytest.raises(MapFailed) as again:
        mapped("replay", ["a", "fails", "c"], on_error="stop", concurrency=1)
    assert str(again.value) == str(failed.value)
    assert again.value.result.rows == failed.value.result.rows
    settings = ModelSettings(max_output_tokens=20)
    capped, _ = mapped("record", list("abcdefgh"), max_tokens=500, settings=settings)
    assert capped.progress.ended == "budget"
    assert seen(mapped("replay", list("abcdefgh"), max_tokens=500, settings=settings)[0]) == seen(capped)


@pytest.mark.parametrize("sample", [None, 8])
def test_a_map_that_ended_early_is_replayed_with_the_rows_that_its_file_had_in_any_place(mapped, tmp_path, sample):
    rows = [*list("abcdefgh"), None]
    options = {"to": tmp_path / "a.jsonl", "settings": ModelSettings(max_output_tokens=20), "sample": sample}
    mapped("live", ["c", "fails", "g", "h"], **options | {"sample": None})
    rows[4] = "fails"
    recorded, asked = mapped("record", rows, max_tokens=550, **options)
    assert (asked, recorded.ended) == (["a"], "budget")
    kept = {2: "answered", 4: "failed", 6: "answered", 7: "answered", 8: "failed"}
    told = {row.place: row.status for row in recorded}
    assert told == kept | {0: "answered"} if sample is None else told.items() < (kept | {0: "answered"}).items()
    result, asked = mapped("replay", rows, max_tokens=550, **options)
    assert (asked, seen(result)) == ([], seen(recorded))


def test_null_and_an_answer_that_was_cut_off_are_replayed_as_they_were_recorded(mapped):
    class Ends(RowModel):
        async def stream(self, request):
            async for event in super().stream(request):
                is_cut = isinstance(event, ModelFinished) and request.messages[-1].text.endswith("cut")
                is_null = isinstance(event, PartFinished) and request.messages[-1].text.endswith("null")
                yield replace(event, **{"cut": True} if is_cut else {"part": Text("null")} if is_null else {})

    recorded, _ = mapped("record", ["a", "null", "cut"], as_=Line | None, model=Ends())
    assert [(row.status, row.value) for row in recorded.rows[:2]] == [("answered", Line(length=1)), ("answered", None)]
    assert recorded.rows[2].error.startswith("The answer was cut off at the limit of output.")
    result, asked = mapped("replay", ["a", "null", "cut"], as_=Line | None)
    assert (asked, seen(result)) == ([], seen(recorded))


def test_a_cassette_that_cannot_be_written_ends_the_map_with_its_rows(path, tmp_path):
    model, folder = RowModel(), tmp_path / "folder"
    session = Session(Agent(model, retry=ONCE), cassette=folder / "x.cassette.yaml", replay="record", namespace={})
    run = session.start_map(["a", "waits"], PROMPT, as_=Line)
    assert model.waits.wait(PATIENCE)
    shutil.rmtree(folder)
    model.go_on()
    with pytest.raises(CassetteError, match="cannot be written") as found:
        run.wait()
    assert [row.status for row in found.value.result] == ["answered", "answered"]
    session.close()


# -- a map with a file -------------------------------------------------------------------------------


def test_the_rows_of_a_map_with_a_file_are_read_from_there(mapped, path, tmp_path):
    to = tmp_path / "labels.jsonl"
    recorded, _ = mapped("record", to=to)
    text = path.read_text(encoding="utf-8")
    assert "file: labels.jsonl" in text
    assert "rows:" not in text
    before = to.read_bytes()
    to.chmod(0o444)
    result, asked = mapped("replay", to=to)
    assert asked == []
    assert seen(result) == seen(recorded)
    assert result.run(1).final_text == recorded.run(1).final_text
    assert to.read_bytes() == before
    assert seen(mapped("replay")[0])[0] == seen(recorded)[0]  # the cassette names the file
    to.chmod(0o644)
    to.write_bytes(before.replace(b'{"length":2}', b'{"length":3}'))
    with pytest.raises(ReplayMismatch, match=r"answers in labels\.jsonl is not as recorded"):
        mapped("replay", to=to)
    to.unlink()
    with pytest.raises(CassetteError, match=r"labels\.jsonl has the recorded rows of .*Restore it"):
        mapped("replay", to=to)


def test_auto_asks_what_the_file_lacks_and_figures_of_a_second_run_are_those_of_the_recording(mapped, tmp_path):
    to = tmp_path / "labels.jsonl"
    mapped("live", ["a", "b"], to=to)
    recorded, asked = mapped("record", ["a", "b", "c"], to=to)
    assert (asked, recorded.progress.kept) == (["c"], 2)
    result, asked = mapped("replay", ["a", "b", "c"], to=to)
    assert (asked, seen(result)) == ([], seen(recorded))
    assert mapped("auto", ["a", "b", "c", "d"], to=to)[1] == ["d"]
    assert mapped("replay", ["a", "b", "c", "d"], to=to)[1] == []


# -- among other turns -------------------------------------------------------------------------------


def test_a_map_has_its_place_among_the_turns_and_is_none_of_them(begun, path):
    def run(mode):
        session, model = begun(mode)
        session.ask("First?")
        session.map(["a", "b"], PROMPT)
        answer = session.ask("Second?").final_text
        session.undo()
        session.undo()
        session.ask("First?")
        session.map(["a", "b"], PROMPT)
        session.ask("Second?")
        session.close()
        return answer, sum(model.asked.values())

    recorded = run("record")
    assert [take.prompt for take in Cassette(path).takes] == []
    assert [take.prompt for take in Cassette.at(path).takes] == ["First?", PROMPT, "Second?"]
    assert recorded[1] == 8
    assert run("replay") == run("auto") == (recorded[0], 0)


def test_a_cell_that_maps_again_is_recorded_anew(begun, path):
    session, _ = begun("record")
    for _ in range(2):
        begin_cell("cell")
        session.map(["a"], PROMPT)
    begin_cell()
    session.close()
    assert len(Cassette.at(path).takes) == 1


def test_a_turn_and_another_map_are_recorded_while_a_map_runs(begun, path):
    session, model = begun("record")
    first = session.start_map(["waits", "b"], PROMPT)
    assert model.waits.wait(PATIENCE)
    session.map(["c", "d"], "Again:\n{row}")
    session.ask("Between?")
    model.go_on()
    first.wait()
    session.close()
    session, model = begun("replay")
    assert [len(session.map(["waits", "b"], PROMPT)), len(session.map(["c", "d"], "Again:\n{row}"))] == [2, 2]
    session.ask("Between?")
    assert not model.asked
    assert told_by(path) == 0


def told_by(path):
    from agentmagic.__main__ import main

    return main(["cassette", "verify", str(path)])


def test_a_turn_is_not_played_as_a_map_nor_a_map_as_a_turn(begun, mapped):
    mapped("record", prompt="{row}")
    session, _ = begun("replay")
    with pytest.raises(ReplayMismatch, match=r"Recorded: 'a map: \{row\}'; now: '\{row\}'"):
        session.ask("{row}")


def test_a_map_that_is_not_asked_for_and_one_that_is_played_are_in_the_report(begun, mapped, path):
    session, _ = begun("record")
    session.ask("First?")
    session.map(ROWS, PROMPT)
    session.close()
    session, _ = begun("replay")
    session.ask("First?")
    assert "1 recorded turn not asked for: 'How long? {row}'" in unasked.summary(path)
    session.map(ROWS, PROMPT)
    assert unasked.summary(path) == ""
    _, turn, played = formatting.verdicts({"agent": session}).text.splitlines()
    assert re.fullmatch(r"agent +First\? +1 +same", turn)
    assert re.fullmatch(r"agent +How long\? \{row\} +1 +same", played)


# -- the file ------------------------------------------------------------------------------------------


def test_show_diff_verify_and_scrub_know_maps(mapped, path, tmp_path, capsys):
    mapped("record")
    assert told(capsys, "show", path)[1].splitlines()[1:3] == [
        "    row 0: answered {'length': 1}",
        "    row 1: answered {'length': 2}",
    ]
    assert told(capsys, "verify", path)[0] == 0
    other = tmp_path / "other.cassette.yaml"
    other.write_bytes(path.read_bytes())
    mapped("record", [*ROWS[1:], "new"])
    status, out = told(capsys, "diff", other, path)
    assert status == 1
    assert "- row 0: answered {'length': 1}" in out
    assert "+ row 3: answered {'length': 3}" in out
    mapped("record", to=tmp_path / "labels.jsonl")
    (tmp_path / "labels.jsonl").unlink()
    assert "its rows are in labels.jsonl, which is missing" in told(capsys, "verify", path)[1]


def test_no_secret_of_a_row_gets_onto_the_cassette(mapped, path, capsys):
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 3
    frame = pd.DataFrame({"row": ["a", "b"]}, index=[key, "other"])
    mapped("record", frame)
    assert key not in path.read_text(encoding="utf-8")
    assert mapped("replay", frame)[1] == []


def test_texts_that_yaml_cannot_hold_as_they_are_come_back_as_they_were(mapped):
    frame = pd.DataFrame({"row": ["a", "b"]}, index=["line\u2028end\x85", "tab\t \U0001f600 \ufeff"])
    recorded, _ = mapped("record", frame)
    assert seen(mapped("replay", frame)[0]) == seen(recorded)


@pytest.mark.slow
def test_two_thousand_rows_are_a_small_cassette_that_is_played_at_once(mapped, path):
    rows = [f"The review number {number} of many" for number in range(2_000)]
    mapped("record", rows)
    assert path.stat().st_size / len(rows) < 260
    began = time.monotonic()
    result, asked = mapped("replay", rows)
    assert (len(result), asked) == (2_000, [])
    assert time.monotonic() - began < 10
