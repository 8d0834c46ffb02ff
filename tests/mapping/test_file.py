"""The file of a map: what was paid for once is not asked again."""

import json
from pathlib import Path

import pandas as pd
import pytest
from pydantic import BaseModel

from agentmagic import Agent, MapFailed, ModelSettings, RetrySettings, Session, UsageError, tool
from agentmagic.mapping import file as map_file
from agentmagic.mapping.file import MapFile, Recipe, RowAsked, RowEnded
from tests.mapping.models import RowModel

RECIPE = Recipe("Say {row}", "testing:rows", {"prompt": "1", "model": "testing:rows"})


class Line(BaseModel):
    length: int


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.jsonl"


@pytest.fixture
def ask(path):
    """Return a function that maps rows in a new session, as a new kernel would; it returns what became of them."""

    def asked(rows, prompt="{row}", *, agent=None, **options):
        model = RowModel()
        agent = {"retry": RetrySettings(tries=1), **(agent or {})}
        session = Session(Agent(model, **agent), namespace={})
        try:
            result = session.map(rows, prompt, **{"to": path, "as_": Line, **options})
        finally:
            session.close()
        return result, model.asked

    return asked


def test_a_second_run_asks_nothing_and_has_the_same_frame(ask):
    first, asked = ask(["a", "bb"])
    again, nothing = ask(["a", "bb"])
    assert (sum(asked.values()), sum(nothing.values())) == (2, 0)
    assert again.frame.equals(first.frame)
    assert again.progress.kept == 2
    assert again.usage == first.usage
    assert again.run(1).final_text == '{"length": 2}'


def test_only_new_and_changed_rows_are_asked_and_removed_ones_leave_the_result(ask):
    ask(pd.DataFrame({"row": ["a", "b", "c"]}, index=[1, 2, 3]))
    result, asked = ask(pd.DataFrame({"row": ["c", "changed", "a", "new"], "other": 0}, index=[9, 2, 1, 4]))
    assert set(asked) == {"changed", "new"}
    assert list(result.frame.index) == [9, 2, 1, 4]
    assert list(result.frame["length"]) == [1, 7, 1, 3]


def test_equal_rows_are_asked_each_and_kept_each(ask):
    assert ask(["same", "same", "same"])[1]["same"] == 3
    assert sum(ask(["same", "same", "same", "same"])[1].values()) == 1


def test_failed_rows_are_asked_again(ask):
    ask(["a", "fails"])
    assert list(ask(["a", "fails"])[1]) == ["fails"]


@pytest.mark.parametrize("has_file", [True, False], ids=["a file", "no file"])
def test_a_map_is_begun_again_for_its_failed_rows_alone_and_its_cost_counts_on(path, has_file):
    model = RowModel()
    session = Session(Agent(model, retry=RetrySettings(tries=1)), namespace={})
    to = path if has_file else None
    run = session.start_map(["a", "one fails", "b", "two fails"], "{row}", to=to)
    assert run.wait().progress.failed == 2
    paid, model.mended = run.progress.usage, True
    model.asked.clear()
    again = session.begin_map_again(run)
    result = again.wait()
    assert (list(model.asked), result.progress.kept) == (["one fails", "two fails"], 2)
    assert list(result.frame["_status"]) == ["answered"] * 4
    assert result.usage.input_tokens == 2 * paid.input_tokens
    assert session.last_map.rows == result.rows
    session.close()


def test_a_map_that_is_begun_again_keeps_its_cap_and_one_that_cannot_be_begun_again_says_what_to_do():
    model = RowModel()
    session = Session(
        Agent(model, retry=RetrySettings(tries=1), settings=ModelSettings(max_output_tokens=20)), namespace={}
    )
    rows = ["fails " * 20, "a", "b"]  # two answers take 240 tokens; the first row has more than the 40 that are left
    run = session.start_map(rows, "{row}", max_tokens=280, concurrency=1)
    assert run.wait().progress.failed == 1
    model.mended = True
    again = session.begin_map_again(run).wait()
    assert (again.ended, again.progress.answered) == ("budget", 2)
    running = session.start_map(["waits"], "{row}")
    with pytest.raises(UsageError, match=r"cannot be asked again from here\. Run the cell of the map again\."):
        session.begin_map_again(running)
    running.stop()
    session.close()


@tool
def other() -> str:
    """Do something else."""
    return ""


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"prompt": "Say: {row}"}, "another prompt"),
        ({"as_": int}, "another type"),
        ({"agent": {"instructions": "Be brief."}}, "another instructions"),
        ({"tools": [other]}, "another tools"),
    ],
)
def test_what_has_changed_in_what_all_rows_are_asked_is_named_and_refused(ask, path, change, named):
    ask(["a", "b"])
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"holds the answers to {named}.*again=True"):
        ask(["a", "b"], **change)
    assert path.read_bytes() == before
    if "as_" not in change:
        assert sum(ask(["a", "b"], **change, again=True)[1].values()) == 2
        assert sum(ask(["a", "b"], **change)[1].values()) == 0


def test_a_row_that_was_asked_and_not_answered_is_in_doubt_and_asked_again(ask, path):
    ask(["a", "b", "c"])
    lines = path.read_bytes().splitlines(keepends=True)
    keys = [json.loads(line)["key"] for line in lines if b'"row_ended"' in line]
    path.write_bytes(b"".join(line for line in lines if keys[1].encode() not in line or b"row_asked" in line))
    result, asked = ask(["a", "b", "c"])
    assert list(asked) == ["b"]
    assert [row.index for row in result.doubtful] == [1]
    assert repr(result) == "<MapResult: 3 rows, 3 answered, 1 row in doubt>"
    assert [row.index for row in ask(["a", "b", "c"])[0].doubtful] == [1]


@pytest.mark.parametrize("cut", range(1, 40, 5))
def test_a_last_line_that_was_cut_is_asked_again_and_harms_no_other(ask, path, cut):
    ask(["a", "b"], concurrency=1)
    path.write_bytes(path.read_bytes()[:-cut])
    result, asked = ask(["a", "b"])
    assert list(asked) == ["b"]
    assert [row.status for row in result] == ["answered", "answered"]
    assert sum(ask(["a", "b"])[1].values()) == 0


def test_a_first_line_that_was_cut_begins_the_file_anew(ask, path):
    path.write_bytes(b'{"type":"map","ver')
    assert sum(ask(["a"])[1].values()) == 1
    assert sum(ask(["a"])[1].values()) == 0


def test_a_damaged_line_is_told_and_its_row_asked_again(ask, path):
    ask(["a", "b"], concurrency=1)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"answered", b"ANSWERED")
    path.write_bytes(b"".join(lines))
    result, asked = ask(["a", "b"])
    assert list(asked) == ["a"]
    assert result.progress.notices == (f"{path} has 1 line that cannot be read; their rows are asked again.",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"review,label\ngood,1\n", "is no file of a map"),
        (b'{"type":"journal","version":1}\n', "is no file of a map"),
        (
            b'{"type":"map","version":99,"agentmagic":"9","prompt":"","model":"","recipe":{}}\n',
            "is of a newer agentmagic",
        ),
    ],
)
def test_another_file_is_refused_and_left_as_it_is(ask, path, content, words):
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        ask(["a"])
    assert path.read_bytes() == content


def test_two_maps_cannot_write_one_file(path):
    first = MapFile(path, RECIPE)
    with pytest.raises(UsageError, match="Another map writes"):
        MapFile(path, RECIPE)
    first.close()
    MapFile(path, RECIPE).close()


def test_what_a_file_holds_is_there_before_the_row_is_answered(path):
    written = MapFile(path, RECIPE)
    written.write(RowAsked("k1", "0", "d"))
    assert json.loads(path.read_bytes().splitlines()[-1]) == {
        "type": "row_asked",
        "key": "k1",
        "row": "0",
        "request": "d",
    }
    written.write(RowEnded("k1", "0", "answered", 3))
    written.close()
    again = MapFile(path, RECIPE)
    assert (again.doubtful_keys, again.outcomes["k1"].value) == (set(), 3)
    again.close()


@pytest.mark.linux
def test_a_full_disk_ends_the_map_and_the_result_has_what_was_answered(ask, path, monkeypatch):
    write = MapFile.write

    def full(self, *lines):
        if len(self.outcomes) >= 2:
            with Path("/dev/full").open("wb", buffering=0) as nowhere:
                nowhere.write(b"x")
        write(self, *lines)

    monkeypatch.setattr(map_file.MapFile, "write", full)
    with pytest.raises(MapFailed, match=r"the disk is full\. Make room on it\.") as failed:
        ask(["a", "b", "c", "d"], concurrency=1)
    monkeypatch.undo()
    assert [row.status for row in failed.value.result][:2] == ["answered", "answered"]
    assert set(ask(["a", "b", "c", "d"])[1]) == {"c", "d"}


def test_secrets_are_not_in_the_file(ask, path, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", "sk-very-secret-0123456789abcdef")
    ask(["sk-very-secret-0123456789abcdef"])
    assert b"very-secret" not in path.read_bytes()


def test_the_file_of_a_map_without_one_is_gone_with_its_result(ask, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result, _ = ask(["a"], to=None)
    assert result.run(0).final_text
    assert list(tmp_path.iterdir()) == []
