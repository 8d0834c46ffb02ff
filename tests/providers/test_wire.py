"""What all providers read off the wire: JSON of any shape, text that may be no Unicode, names, waits."""

import json
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmagic.errors import StreamBroken
from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Text, user
from agentmagic.providers import wire
from agentmagic.providers.failures import certificate_fault
from agentmagic.providers.openai.client import NAME, is_strict
from agentmagic.providers.wire import clean, clean_data, fit_id, fit_name, retry_after

ANY_TEXT = st.text(st.characters(categories=("L", "N", "P", "Cs", "Zs")), max_size=8)
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@settings(deadline=None)  # the machine may be busy
@given(ANY_JSON)
def test_what_is_clean_can_be_written_as_a_body_and_is_cleaned_no_further(value: Any):
    cleaned = clean({"value": value})
    assert json.loads(wire.write_body(cleaned).decode()) == cleaned == clean(cleaned)
    assert wire.count_of(value) >= 0  # no figure breaks an answer


def test_what_is_nested_too_deep_is_not_walked():
    assert clean(nested(wire.DEEPEST)) == nested(wire.DEEPEST)
    with pytest.raises(ValueError, match="deeper"):
        clean(nested(wire.DEEPEST + 1))
    with pytest.raises(StreamBroken, match="deeper"):
        clean_data(nested(wire.DEEPEST + 1))


@settings(deadline=None)  # the machine may be busy
@given(st.text(st.sampled_from('{}[]",:0123456789eE.-+ntrufalsNI\\ud8'), max_size=40))
def test_whatever_a_model_writes_as_arguments_becomes_an_object_that_can_be_written(text: str):
    json.dumps(wire.read_arguments(text), allow_nan=False)


READERS: dict[Any, Any] = {
    wire.object_of: dict,
    wire.objects_of: list,
    wire.text_of: str,
    wire.text_in: str,
    wire.count_of: int,
    wire.read_arguments: dict,
    lambda value: list(wire.pieces_of([{"type": value, "text": value}])): list,
}


@pytest.mark.parametrize("reader", READERS)
@settings(deadline=None)  # the machine may be busy
@given(value=ANY_JSON)
def test_a_reader_returns_what_was_asked_for_whatever_a_server_sends(reader: Any, value: Any):
    found = reader(value)
    assert isinstance(found, READERS[reader])
    json.dumps(found, ensure_ascii=False, allow_nan=reader is not wire.read_arguments)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        ("3", 3),
        (3.0, 3),
        (-1, -1),
        ("", None),
        ("3x", None),
        (3.5, None),
        (None, None),
        (True, None),
        ([3], None),
        (float("inf"), None),
        ("9" * 5000, None),
    ],
)
def test_a_number_may_be_written_as_a_float_or_as_digits(value: Any, number: int | None):
    assert wire.number_of(value) == number


@pytest.mark.parametrize(
    ("content", "pieces"),
    [
        ("fine", [("text", "fine")]),
        (["fi", "ne"], [("text", "fi"), ("text", "ne")]),
        ({"type": "text", "text": "fine"}, [("text", "fine")]),
        ({"type": "output_text", "text": {"value": "fine", "annotations": []}}, [("text", "fine")]),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "fine"}],
            [("reasoning", "hm"), ("text", "fine")],
        ),
        (
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}, {"text": "m"}]}, {"text": "ok"}],
            [("reasoning", "hmm"), ("text", "ok")],
        ),
        ([{"type": "image_url", "image_url": {"url": "data:"}}, None, 3, {"type": "text"}, "x"], [("text", "x")]),
        (0, []),
        ({}, []),
    ],
)
def test_content_is_a_text_a_piece_or_a_list_of_pieces(content: Any, pieces: list[tuple[str, str]]):
    assert list(wire.pieces_of(content)) == pieces


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        (None, {}),
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('""', {}),
        ("{}", {}),
        ('"{}"', {}),
        ("{}{}", {}),
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        (json.dumps(json.dumps(json.dumps({"a": 1}))), {"a": 1}),
        ('{}{"a": 1}', {"a": 1}),
        ('{}\n {"a": 1}\n', {"a": 1}),
        ('null{"a": 1}', {"a": 1}),
        ('""{"a": 1}', {"a": 1}),
        ('{"a": 1}{"a": 2}', {"_raw": '{"a": 1}{"a": 2}'}),
        ('{"a": 1}{"a": 1}', {"_raw": '{"a": 1}{"a": 1}'}),
        ('{"a": 1} and', {"_raw": '{"a": 1} and'}),
        ('{"a": 1', {"_raw": '{"a": 1'}),
        ("[1]", {"_raw": "[1]"}),
        ([{"a": 1}], {"_raw": '[{"a": 1}]'}),
        (3, {"_raw": "3"}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
    ],
)
def test_arguments_are_the_one_object_that_is_there_and_nothing_is_guessed_of_two(
    value: Any, arguments: dict[str, Any]
):
    assert wire.read_arguments(value) == arguments


def test_many_values_in_the_place_of_arguments_take_no_long_time():
    assert wire.read_arguments("{}" * 200_000) == {}


@settings(deadline=None)  # the machine may be busy
@given(ANY_TEXT | st.text(max_size=200))
def test_every_name_and_id_is_made_one_that_a_provider_takes_the_same_every_time(name: str):
    assert NAME.fullmatch(fit_name(name, NAME))
    assert fit_name(name, NAME) == fit_name(name, NAME)
    assert len(fit_id(name * 9, 40)) <= 40
    assert fit_name(f"{name:x<100}a", NAME) != fit_name(f"{name:x<100}b", NAME)  # long ones that differ late stay apart


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_the_wait_is_read_in_seconds(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers) == seconds


def test_the_wait_may_be_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after({"retry-after": later}) == pytest.approx(60, abs=5)


def caused_by(cause: Exception) -> Exception:
    error = OSError("cannot connect")
    error.__cause__ = RuntimeError("handshake")
    error.__cause__.__context__ = cause
    return error


def test_a_fault_of_a_certificate_is_found_among_the_causes_of_an_error():
    untrusted = ssl.SSLCertVerificationError(1, "certificate verify failed")
    untrusted.verify_message = "self-signed certificate"
    assert "self-signed" in certificate_fault(caused_by(untrusted))
    assert not certificate_fault(caused_by(ssl.SSLError(1, "odd")))
    assert not certificate_fault(caused_by(ConnectionError("refused")))


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def holding(schema: Any) -> dict[str, Any]:
    return OBJECT | {"properties": {"n": schema}}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (holding({"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}) | {"$defs": {"N": OBJECT}}, True),
        (OBJECT | {"required": []}, False),
        (OBJECT | {"additionalProperties": True}, False),
        (holding(True), False),
        (holding({"type": "array"}), False),
        (holding({"type": "string", "minLength": 1}), False),
        (holding({"$ref": "#/$defs/N", "description": "beside"}) | {"$defs": {"N": OBJECT}}, False),
        (OBJECT | {"$defs": {"N": {"type": "object"}}}, False),
    ],
)
def test_a_schema_is_strict_that_leaves_nothing_open(schema: dict[str, Any], strict: bool):
    assert is_strict(schema) is strict


def test_a_growing_history_is_encoded_once_and_a_changed_one_from_there_on():
    encoded = []

    def encode(message):
        encoded.append(message.text)
        yield {"text": message.text}

    memo = wire.Memo(encode)
    first, second, third, other = map(user, ("first", "second", "third", "another"))
    for history in ((first, second), (first, second, third), (first, other, third), (other,)):
        assert [one["text"] for one in memo(history)] == [message.text for message in history]
    assert encoded == ["first", "second", "third", "another", "third", "another"]


def test_words_after_a_text_that_was_finished_are_a_part_of_their_own():
    writer = wire.PartWriter()
    events = [event for text in ("a", "b") for event in (*writer.say(text), *writer.finish(Text(text)))]
    assert [event.index for event in events if isinstance(event, PartStarted)] == [0, 1]
    assert [event.part for event in events if isinstance(event, PartFinished)] == [Text("a"), Text("b")]


@pytest.mark.parametrize(
    "body", [{"a": "\ud800"}, {"a": object()}, {"a": nested(2_000)}], ids=["text", "value", "depth"]
)
def test_a_body_that_json_cannot_hold_is_a_value_error(body: dict[str, Any]):
    with pytest.raises(ValueError, match="rializ"):
        wire.write_body(body)


def test_a_schema_in_a_list_or_under_a_name_becomes_an_object():
    schema = {"properties": {"a": True, "b": {"anyOf": [True]}}, "additionalProperties": False}
    changed = wire.each_schema(schema, lambda one: one)
    assert changed == {"properties": {"a": {}, "b": {"anyOf": [{}]}}, "additionalProperties": False}
