"""Rows, prompts and files that are not as they should be: a clear sentence, and nothing is lost."""

import datetime as dt
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from agentmagic import Agent, MapFailed, Media, ModelSettings, Session, UsageError, register_model
from agentmagic.providers import catalog
from agentmagic.testing import PATIENCE, Stalled
from tests.mapping.metered import MODEL, PRICES, Metered

META = ["_status", "_error", "_notice", "_cost", "_tokens", "_steps", "_run"]
MISSING = "review is missing in this row, so nothing was asked. Fill it, or leave the row out."
TOO_LONG = (
    "{review} is longer than the 128,000 characters that a prompt takes of one value, so nothing was asked. "
    "Shorten it first, as {review[:128000]} does."
)
UNSEEN = f"{{review}} is an image: {MODEL} sees no images, so nothing was asked."


def mapped(rows, prompt="{review}", *, agent=None, **options):
    """The result, and what the model was asked."""
    model = Metered()
    session = Session(Agent(model, **(agent or {})), namespace={})
    try:
        return session.map(rows, prompt, **options), [*model.asked.elements()]
    finally:
        session.close()


def refused(rows, prompt="{review}", *, agent=None, **options):
    """The sentence with which a map is refused that asks nothing."""
    model = Metered()
    session = Session(Agent(model, **(agent or {})), namespace={})
    try:
        with pytest.raises(UsageError) as error:
            session.map(rows, prompt, **options)
    finally:
        session.close()
    assert not model.asked
    return str(error.value)


def frame(*values, **options):
    return pd.DataFrame({"review": list(values)}, **options)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (frame(), ["review"]),
        (pd.DataFrame(), []),
        (pl.DataFrame({"review": []}), ["review"]),
        (pd.Series([], name="review", dtype=str), ["review"]),
        ([], []),
        (iter(()), []),
    ],
    ids=["pandas", "no columns", "polars", "series", "list", "iterator"],
)
def test_no_rows_are_an_empty_result_with_its_columns_and_nothing_is_sent(rows, columns):
    result, asked = mapped(rows)
    assert asked == []
    assert list(result.frame.columns) == [*columns, "answer", *META]
    assert len(result.frame) == 0
    assert repr(result) == "<MapResult: 0 rows, 0 answered>"


def test_an_empty_list_and_a_full_one_are_asked_the_same(tmp_path):
    path = tmp_path / "labels.jsonl"
    mapped([], "Label it: {review}", to=path)
    assert mapped([{"review": "good"}], "Label it: {review}", to=path)[1] == ["Label it: good"]


WEIRD = pd.DataFrame([["long", 4.25, "x", "y"]], columns=["Review text", "Star count", "class", "a:b"])


@pytest.mark.parametrize(
    ("rows", "prompt", "asked"),
    [
        (frame("a", "b", index=[1, 1]), "{review}", ["a", "b"]),
        (frame("same", "same"), "{review}", ["same", "same"]),
        (WEIRD, "{Review text}: {Star count:.1f}", ["long: 4.2"]),
        (WEIRD, "{ Review text!r:>7}", [" 'long'"]),
        (WEIRD, "{class}{a:b}", ["xy"]),
        (pd.DataFrame({0: ["zero"]}), "{0}", ["zero"]),
        (pd.Series(["a"], name=0), "{0}", ["a"]),
        (pd.Series(["a"], name="review"), "{review}", ["a"]),
        (pd.Series(["a"]), "{row}", ["a"]),
        (pl.Series("review", ["a"]), "{review}", ["a"]),
        (np.array(["a", "b"]), "{row}", ["a", "b"]),
        (frame("a", "b", index=pd.MultiIndex.from_tuples([(1, "x"), (2, "y")])), "{review}", ["a", "b"]),
        (frame(pd.Timestamp("2024-05-01"), dt.date(2024, 5, 2)), "{review}", ["2024-05-01", "2024-05-02"]),
        (frame("a", index=pd.date_range("2024-05-01", periods=1)), "{review}", ["a"]),
        (frame(*pd.array(["a"], dtype="string[pyarrow]")), "{review}", ["a"]),
        (pd.DataFrame({"review": pd.array([7], dtype="Int64")}), "{review}", ["7"]),
        (pd.DataFrame({"review": pd.array([7], dtype="int64[pyarrow]")}), "{review:03}", ["007"]),
        (pd.DataFrame({"review": pd.Categorical(["a", "b"])}), "{review}", ["a", "b"]),
    ],
)
def test_rows_of_every_kind_are_asked_and_keep_their_index(rows, prompt, asked):
    result, were_asked = mapped(rows, prompt)
    assert sorted(were_asked) == sorted(asked)
    assert [row.status for row in result] == ["answered"] * len(asked)
    if isinstance(rows, (pd.DataFrame, pd.Series)):
        assert result.frame.index.equals(rows.index)


def test_rows_of_one_index_are_told_apart_by_their_place():
    result, _ = mapped(frame("a", "b", index=[1, 1]))
    with pytest.raises(UsageError, match=r"2 rows have the index 1\. Choose one by its place: 0, 1\."):
        result.run(1)
    assert [result.run(place=place).final_text for place in (0, 1)] == ["good", "good"]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (frame("a", None, float("nan"), pd.NA, pd.NaT), MISSING),
        (pl.DataFrame({"review": ["a", None]}), MISSING),
        (frame(1.0, np.nan), MISSING),
        (pd.DataFrame({"review": pd.array([1, None], dtype="Int64")}), MISSING),
        (pd.DataFrame({"review": pd.array(["a", None], dtype="string[pyarrow]")}), MISSING),
        ([{"review": "a"}, {"text": "b"}, "c", None], "The row has no review."),
        (frame("a", "word " * 1_000_000), TOO_LONG),
        (frame("a", "x" * 128_001), TOO_LONG),
        ([{"review": "a"}, {"review": ["word"] * 100_000}], TOO_LONG),
        ([{"review": "a"}, {"review": Image.new("RGB", (4, 4))}], UNSEEN),
        ([{"review": "a"}, {"review": Figure()}], UNSEEN),
    ],
    ids=[
        *("missing", "null of polars", "NaN", "Int64", "pyarrow", "no such key"),
        *("5 MB", "a letter too long", "a long list", "image", "figure"),
    ],
)
def test_a_row_that_cannot_be_asked_fails_with_a_sentence_and_the_others_are_asked(rows, problem):
    result, asked = mapped(rows)
    assert len(asked) == 1
    first, *others = result
    assert first.status == "answered"
    assert {(row.status, row.error, row.usage.requests) for row in others} == {("failed", problem, 0)}
    assert list(result.failed["_error"]) == [problem] * len(others)


def test_what_a_failed_row_advises_lets_it_be_asked():
    result, (asked,) = mapped(frame("word " * 1_000_000), "{review[:128000]}")
    assert (len(asked), [row.status for row in result]) == (128_000, ["answered"])


def test_a_model_that_sees_images_is_sent_them(monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, images=True)
    result, _ = mapped([{"review": Image.new("RGB", (4, 4))}, {"review": plt.figure()}])
    assert [row.status for row in result] == ["answered", "answered"]


PDF = b"%PDF-1.7 of a contract"


@pytest.mark.parametrize("value", [PDF, Media("application/pdf", PDF)], ids=["bytes", "part"])
def test_documents_in_rows_are_sent_to_a_model_that_reads_them_and_else_not_asked(monkeypatch, value):
    monkeypatch.setattr(catalog, "_registrations", {})
    (unread,), asked = mapped([{"review": value}])
    assert (unread.status, list(asked)) == ("failed", [])
    assert unread.error == f"{{review}} is application/pdf, which {MODEL} does not read, so nothing was asked."
    register_model(MODEL, documents=True)
    (read,), (asked,) = mapped([{"review": value}], "Whose contract? {review}")
    assert (read.status, asked) == ("answered", "Whose contract? [document: review]")


@pytest.mark.parametrize(
    ("rows", "prompt", "words"),
    [
        (frame("a"), "{revew}", "{revew} names no column and no variable. Did you mean review? The columns: review."),
        (frame(), "{revew}", "{revew} names no column and no variable. Did you mean review?"),
        (WEIRD, "{Reviw text} {class}", "{Reviw text} names no column and no variable. Did you mean Review text?"),
        (frame("a"), "Label it.", "The prompt names no column, so every row would be asked the same."),
        (frame("a"), " ", "The prompt is empty."),
        (pd.DataFrame([[1, 2]], columns=["review", "review"]), "{review}", "more than one column of the name review."),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "{1}", "more than one column of the name 1."),
        (
            pl.LazyFrame({"review": ["a"]}),
            "{review}",
            "rows is a LazyFrame, whose rows are not there yet. Give ",
        ),
        ({"review": ["a"]}, "{review}", "rows is a dict. Give a data frame of pandas or polars, a list of dicts or of"),
        ("reviews.csv", "{review}", "rows is a str. Give a data frame"),
    ],
)
def test_a_map_that_makes_no_sense_is_refused_before_anything_is_sent(rows, prompt, words, tmp_path):
    path = tmp_path / "labels.jsonl"
    assert words in refused(rows, prompt, to=path)
    assert not path.exists()


def test_rows_before_an_error_of_their_iterator_keep_their_answers(tmp_path):
    def reviews(count):
        for number in range(count):
            yield {"review": f"review {number}"}
        message = "the connection to the database was lost"
        raise ConnectionError(message)

    path = tmp_path / "labels.jsonl"
    model = Metered()
    session = Session(Agent(model), namespace={})
    with pytest.raises(
        UsageError, match=r"The rows cannot be read: .*the connection to the database was lost"
    ) as error:
        session.map(reviews(70), "{review}", to=path)
    session.close()
    assert [row.status for row in error.value.result] == ["answered"] * 70
    assert len(error.value.result.frame) == 70

    result, asked = mapped([{"review": f"review {number}"} for number in range(71)], to=path)
    assert asked == ["review 70"]
    assert result.progress.kept == 70


# -- files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"prompt": "Say: {review}"}, "prompt"),
        ({"as_": int}, "type"),
        ({"agent": {"instructions": "Be brief."}}, "instructions"),
        ({"settings": ModelSettings(temperature=0.5)}, "settings"),
        ({"tools": [len]}, "tools"),
        ({"agent": {"instructions": "Be brief."}, "prompt": "Say: {review}"}, "prompt, instructions"),
    ],
    ids=lambda value: value.replace(", ", " and ") if isinstance(value, str) else "",
)
def test_the_file_of_another_map_is_left_as_it_is_and_what_differs_is_named(change, named, tmp_path):
    path = tmp_path / "labels.jsonl"
    mapped(frame("a"), to=path)
    before = path.read_bytes()
    if "tools" in change:
        change = {"tools": [look]}
    said = refused(frame("a", "b"), **{"to": path, **change})
    assert said == (
        f"{path} holds the answers to another {named}, and was left as it is. Ask all rows anew with again=True "
        "(--again), or name another file."
    )
    assert path.read_bytes() == before


def look() -> str:
    """Look."""
    return ""


def test_the_file_of_a_conversation_is_left_as_it_is(tmp_path):
    path = tmp_path / "chat.jsonl"
    session = Session(Agent(Metered()), path=path)
    session.ask("Hello.")
    session.close()
    before = path.read_bytes()
    assert refused(frame("a"), to=path) == f"{path} is no file of a map, and was left as it is. Name another file."
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "cannot be written: Is a directory. Name another file."),
        ("note.txt/labels.jsonl", "cannot be written: Not a directory. Name another file."),
    ],
)
def test_a_file_that_cannot_be_made_is_told_before_anything_is_sent(name, words, tmp_path):
    (tmp_path / "note.txt").write_text("A note.")
    assert words in refused(frame("a"), to=tmp_path / name)
    assert (tmp_path / "note.txt").read_text() == "A note."


@pytest.mark.linux
def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    assert refused(frame("a"), to="/proc/labels.jsonl") == (
        "/proc/labels.jsonl cannot be written: No such file or directory. Name another file."
    )


@pytest.mark.parametrize("name", ["", "s3://bucket/labels.jsonl", "a\0b", 3, b"labels.jsonl"])
def test_what_is_no_path_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(frame("a"), to=name) == (
        f"to is {name!r}. Give the path of a file on this machine, as in 'labels.jsonl'."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_made(tmp_path):
    result, _ = mapped(frame("a"), to=tmp_path / "new" / "labels.jsonl")
    assert result.path.exists()


def test_the_second_of_two_maps_on_one_file_is_told_and_the_first_goes_on(tmp_path):
    path = tmp_path / "labels.jsonl"
    model = Stalled("Half an ans")
    session = Session(Agent(model), namespace={})
    first = session.start_map(frame("a"), "{review}", to=path)
    assert model.stalled.wait(PATIENCE)
    before = path.read_bytes()
    assert refused(frame("a"), to=path).startswith(f"Another map writes {path}, in this kernel or another one.")
    assert path.read_bytes() == before
    assert not first.done
    first.stop()
    session.close()


def test_lines_that_were_damaged_cost_only_their_own_rows(tmp_path):
    path = tmp_path / "labels.jsonl"
    mapped(frame("a", "b", "c"), to=path, concurrency=1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff\xfe no line\n", *lines[2:-1], lines[-1][:-5]]))
    result, asked = mapped(frame("a", "b", "c"), to=path)
    assert asked == ["c"]
    assert [row.status for row in result] == ["answered"] * 3
    assert result.progress.notices == (f"{path} has 2 lines that cannot be read; their rows are asked again.",)
    assert mapped(frame("a", "b", "c"), to=path)[1] == []


# -- caps ----------------------------------------------------------------------------------------------


def test_a_cap_for_a_model_without_a_price_sends_nothing_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    words = (
        "No row was asked. What the map costs is unknown, so max_cost cannot be kept. Register the model's price with "
        "register_model, use max_tokens, or leave max_cost (--max-cost) out."
    )
    with pytest.raises(MapFailed, match=f"^{re.escape(words)}$") as failed:
        mapped(frame("a"), max_cost=1.0)
    assert failed.value.result.usage.requests == 0


def test_a_cap_that_one_request_may_pass_sends_nothing_and_names_what_makes_a_request_smaller(monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, **PRICES)
    with pytest.raises(MapFailed, match=r"With a smaller max_output_tokens, a request takes less of it.") as failed:
        mapped(frame("a"), max_cost=0.01)
    assert failed.value.result.usage.requests == 0
    small = {"settings": ModelSettings(max_output_tokens=100)}
    assert mapped(frame("a"), max_cost=0.01, agent=small)[1] == ["a"]


def test_what_rows_in_doubt_may_have_cost_counts_against_the_cap(monkeypatch, tmp_path):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, **PRICES)
    rows = [f"row number {number} of ten" for number in range(10)]
    options = {"to": tmp_path / "a.jsonl", "concurrency": 1, "agent": {"settings": ModelSettings(max_output_tokens=5)}}
    result, _ = mapped(rows, "{row}", **options)
    each = result.usage.cost / 10
    lines = options["to"].read_bytes().splitlines(keepends=True)
    answered = {row.key.encode() for row in result.rows[:5]}
    options["to"].write_bytes(
        b"".join(
            line
            for line in lines
            if b'"row_' not in line or b"row_asked" in line or any(key in line for key in answered)
        )
    )
    again, asked = mapped(rows, "{row}", max_cost=13 * each, **options)
    assert again.progress.kept == 5
    assert 1 <= len(asked) <= 3  # ten rows were paid, as far as is known
    assert again.progress.ended == "budget"
