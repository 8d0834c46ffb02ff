import time

import pytest

from agentmagic import register_secret
from agentmagic.events import PromptValue
from agentmagic.messages import Media, Message, Resource, Text, ToolDef, ToolResult, user
from agentmagic.providers.base import ModelSettings, OutputSchema, Request
from agentmagic.replay.comparison import LONGEST, MOST_DIFFERENCES, Difference, RequestRecord, RequestRecords, compare
from tests.replay.changes import CHANGES, COSMETIC, NOTEBOOK, played


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_named_with_its_place_and_its_cause(change, tmp_path):
    played(NOTEBOOK, path := tmp_path / "a.cassette.yaml", "record")
    first = next(one for one in played(change.notebook, path, "replay-model") if one.cause not in ("same", "cosmetic"))
    found = [one for one in first.differences if one.cause != "cosmetic"]
    assert (first.prompt, first.step) == (change.notebook.cells[change.cell].text, change.step)
    assert (found[0].cause, found[0].field) == (change.cause, change.field)
    assert found[0].before != found[0].after
    assert {one.cause for one in found} == {change.cause}


@pytest.mark.parametrize(("before", "after"), COSMETIC.values(), ids=COSMETIC)
def test_a_cosmetic_change_raises_no_alarm(before, after, tmp_path):
    played(before, path := tmp_path / "a.cassette.yaml", "record")
    assert {one.cause for one in played(after, path, "replay-model")} <= {"same", "cosmetic"}


def request(*words: str, **options) -> Request:
    return Request(tuple(map(user, words)), **options)


def record_of(*asked) -> RequestRecord:
    """The record of one request, its model and its values."""
    return RequestRecords()(*asked)


def only(before: Request, after: Request, *values) -> Difference:
    """The one difference of two requests."""
    one, two = values or ((), ())
    (difference,) = compare(record_of(before, "a:b", one), record_of(after, "a:b", two))
    return difference


def test_a_traceback_that_another_python_writes_raises_no_alarm():
    lines = [
        "  Cell, line 2, in <module>",
        '    price = float("249,00")',
        "            ^^^^~~~~~",
        "ValueError: no number",
    ]
    with_marks, without = "\n".join(lines), "\n".join([*lines[:2], lines[3]])
    values = [[PromptValue("@error", "text", "", 0, one)] for one in (with_marks, without)]
    assert only(request(f"Why?\n{with_marks}"), request(f"Why?\n{without}"), *values).cause == "cosmetic"


def test_a_secret_is_blanked_and_raises_no_alarm_if_only_one_machine_knows_it():
    log_in, log_out = (f"Log {way} with hunter2hunter2, then look." for way in ("in", "out"))
    unknown = record_of(request(log_in, instructions="It is hunter2hunter2."), "a:b")
    register_secret("hunter2hunter2")
    known, elsewhere = (
        record_of(request(text, instructions="It is hunter2hunter2."), "a:b") for text in (log_in, log_out)
    )
    assert "hunter2" not in repr(known)
    assert "[redacted]" in known.messages[0]
    assert {one.cause for one in compare(known, unknown)} == {"cosmetic"}
    assert {one.cause for one in compare(unknown, known)} == {"cosmetic"}
    assert [one.cause for one in compare(elsewhere, unknown) if one.cause != "cosmetic"] == ["prompt"]


@pytest.mark.parametrize("times", [2, 1100])
def test_a_value_that_stands_many_times_in_a_prompt_is_one_difference(times):
    before, after = (request(f"{number} and " * times) for number in (3, 4))
    values = [[PromptValue("{n}", "text", "", 0, text)] for text in "34"]
    assert only(before, after, *values) == Difference("value", "values.{n}", "3", "4")


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [("In May 3?", "In June 4?", "34"), ("1 " * 60 + "May", "1 1 " * 60 + "June", ("1", "1 1"))],
    ids=["once", "in many places that could be the value"],
)
def test_a_changed_prompt_around_a_changed_value_is_named_too_in_little_time(before, after, values):
    filled = [[PromptValue("{n}", "text", "", 0, text)] for text in values]
    records = [record_of(request(one), "a:b", two) for one, two in zip((before, after), filled, strict=True)]
    started = time.monotonic()
    assert [one.cause for one in compare(*records)] == ["value", "prompt"]
    assert time.monotonic() - started < 10  # each way to read the prompts alone: longer than any test


def test_a_figure_in_a_prompt_is_a_value_that_is_known_by_its_digest():
    before, after = (
        Request((Message("user", (Text("What is in "), Media("image/png", data))),)) for data in (b"one", b"two")
    )
    value = [PromptValue("@fig", "image", "", 0, "")]
    difference = only(before, after, value, value)
    assert (difference.cause, difference.field) == ("value", "values.@fig")


def test_a_frame_that_a_prompt_attaches_is_one_difference():
    tables = [f"DataFrame, {rows} rows x 1 column." for rows in (3, 4)]
    before, after = (
        Request((Message("user", (Text("How many rows has @df?"), Resource("@df", text=table))),)) for table in tables
    )
    values = [[PromptValue("@df", "frame", "", 0, table)] for table in tables]
    assert only(before, after, *values) == Difference("value", "values.@df", *tables)


def in_form(title: str) -> Request:
    form = OutputSchema("City", {"type": "object", "title": title})
    return request("x", instructions=f"Be brief.\n\n{form.instructions}", output=form)


def after_answer(text: str) -> Request:
    return Request((user("x"), Message("assistant", (Text(text),)), user("y")))


def after_result(text: str, status="ok") -> Request:
    return Request((user("x"), Message("tool", (ToolResult("1", "add", (Text(text),), status),))))


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        (in_form("City"), in_form("Town"), ("settings", "settings.output.schema.title", "City", "Town")),
        (request("x"), request("x", settings=ModelSettings(seed=1)), ("settings", "settings.seed", "(absent)", "1")),
        (after_answer("One."), after_answer("Two."), ("prompt", "history[1].parts[0].text", "One.", "Two.")),
        (
            after_result("3"),
            after_result("3", "denied"),
            ("tool result", "results.add.status", "(absent)", "denied"),
        ),
        (
            after_result('{"sum": "14"}'),
            after_result('{"sum": 14}'),
            ("tool result", "results.add.sum", '"14" (a text)', "14 (a whole number)"),
        ),
    ],
    ids=["the form of an answer", "a setting", "an answer", "the status of a result", "the type of a value"],
)
def test_a_part_of_a_request_that_nothing_else_explains_is_compared(before, after, difference):
    assert only(before, after) == Difference(*difference)


def test_a_long_value_is_shown_around_its_difference():
    text = "word " * 10_000
    difference = only(request(f"{text}one{text}"), request(f"{text}two{text}"))
    assert len(difference.before) <= LONGEST + 2
    assert "word one" in difference.before
    assert "word two" in difference.after


def test_hostile_results_cannot_exhaust_the_comparison():
    deep = "[" * 50_000
    assert only(after_result(deep), after_result(deep + "1")).cause == "tool result"
    nested = "[" * 400 + "{0}" + "]" * 400
    assert only(after_result(nested.format(1)), after_result(nested.format(2))).cause == "tool result"
    many = [{f"{n}": {"a": value} for n in range(100)} for value in (1, 2)]
    tools = [ToolDef("add", "Add.", one) for one in many]
    records = [record_of(request("x", tools=(tool,)), "a:b") for tool in tools]
    assert len(compare(*records)) == MOST_DIFFERENCES
    keys = [ToolDef("add", "Add.", {"k" * 10_000: value}) for value in (1, 2)]
    assert len(only(request("x", tools=(keys[0],)), request("x", tools=(keys[1],))).field) <= LONGEST + 1
