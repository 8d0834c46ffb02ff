import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic import secrets, serialization
from agentmagic.errors import JournalError, UsageError
from agentmagic.events import (
    Notice,
    PartFinished,
    PromptAdded,
    RunResult,
    StepFinished,
    ToolFinished,
    TurnFinished,
    TurnStarted,
    fold,
    is_delta,
)
from agentmagic.messages import (
    Citation,
    Media,
    Message,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    user,
)
from agentmagic.secrets import BLANK
from agentmagic.serialization import (
    DEEPEST,
    LARGEST_MEDIA,
    LARGEST_VALUE,
    LONGEST_TEXT,
    VERSION,
    InDoubt,
    begins_journal,
    decode_record,
    encode,
    encode_record,
    header,
    shrink,
)
from tests.logs import WHOLE, json_values, parts, some_events, whole_messages


def finished(log):
    return TurnFinished(RunResult("It is 3.", fold(log), tuple(log), 2, False, "answer", Usage(6, 0, 4, 0, 2, None)))


@given(parts | whole_messages | some_events)
def test_whatever_is_written_is_one_line_and_read_back_the_same(value):
    line = serialization.encode(value)
    assert "\n" not in line
    assert serialization.decode(line) == value


def test_a_log_is_read_back_with_its_results_whole():
    log = [*WHOLE, finished(WHOLE), *WHOLE, finished(WHOLE)]
    assert serialization.decode_log(serialization.encode(event) for event in log) == log


def test_the_reason_of_a_newer_version_for_the_end_of_a_turn_is_read():
    line = encode_record(finished([])).replace(b'"answer"', b'"quota"')
    assert decode_record(line).result.stop_reason == "quota"


def test_a_result_is_written_without_the_log_around_it_and_without_what_stands_at_its_default():
    line = json.loads(serialization.encode(finished(WHOLE)))
    assert set(line["result"]) == {"type", "final_text", "iterations_used", "timed_out", "stop_reason", "usage"}
    step = '{"type":"step_finished","step":1,"usage":{"type":"usage"}}'
    assert serialization.encode(StepFinished(1, Usage())) == step
    media = '{"type":"media","media_type":"image/png","data":{"$bytes":"iVBORw=="}}'
    assert serialization.encode(Media("image/png", b"\x89PNG")) == media


@pytest.mark.parametrize("foreign", [{"type": "text", "text": "mine"}, {"$bytes": "eA=="}, {"type": "no such thing"}])
def test_somebody_else_s_json_is_never_read_as_values(foreign):
    call = ToolCall("1", "write", foreign, ProviderData("openai", foreign))
    result = ToolResult("1", "write", (Text("ok"),), structured=[foreign])
    assert serialization.decode(serialization.encode(call)) == call
    assert serialization.decode(serialization.encode(result)) == result


@pytest.mark.parametrize(
    "line", ["not json", '{"type":"no_such_type"}', '{"text":"x"}', '{"type":"text","wrong":1}', "[" * 100_000]
)
def test_a_line_of_somebody_else_is_refused_in_a_sentence(line):
    with pytest.raises(UsageError, match=r"^This line was not written by agentmagic: "):
        serialization.decode(line)


@dataclass
class City:
    name: str
    people: int


# -- the lines of a journal ------------------------------------------------------------------------


KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def deep(levels):
    value = "the end"
    for _ in range(levels):
        value = [value]
    return value


def a_ring():
    ring = []
    ring.append(ring)
    return ring


@given(some_events)
def test_what_is_written_is_read_back_and_what_is_refused_is_none(event):
    record = decode_record(encode_record(event))
    prompt = event.prompt.role == "user" if isinstance(event, (TurnStarted, PromptAdded)) else True
    assert record == (event if prompt and not is_delta(event) else None)


def test_doubts_and_a_lone_surrogate_are_written_and_read_back():
    for record in (InDoubt((("bank", "pay"), ("notebook", "save"))), Notice("info", "\ud83d")):
        assert decode_record(encode_record(record)) == record


def test_secrets_are_blanked_wherever_they_stand_keys_too():
    call = ToolCall("1", "get", {"url": f"https://host/?key={KEY}", KEY: 1, f"{KEY}0": 2, "more": [{KEY: f"a\n{KEY}"}]})
    result = ToolResult("1", "get", (Text(KEY),), structured={"$bytes": KEY, KEY: 1})
    lines = encode_record(PartFinished(0, call)) + encode_record(ToolFinished(result))
    assert KEY.encode() not in lines
    blank = {"url": f"https://host/?key={BLANK}", BLANK: 2, "more": [{BLANK: f"a\n{BLANK}"}]}
    assert decode_record(encode_record(PartFinished(0, call))).part.arguments == blank
    secrets.learn("SORT_KEY", "created-at-descending")  # which only may be a secret
    prompt = TurnStarted(user("sort by created-at-descending"), "m")
    assert decode_record(encode_record(prompt)) == prompt


def test_citations_keep_their_words_where_secrets_are_blanked():
    secrets.learn("API_KEY", "a1B2c3D4e5F6g7H8")
    text = "Your key a1B2c3D4e5F6g7H8 is bad. Paris is big. The key a1B2c3D4e5F6g7H8 too. Rome is old."
    words = ("Your", "Paris is big.", "Rome is old.")
    spans = [(text.index(one), text.index(one) + len(one)) for one in words]
    part = Text(text, citations=tuple(Citation(start, end, "https://x.org/") for start, end in spans))
    read = decode_record(encode_record(PartFinished(0, part))).part
    assert BLANK in read.text
    assert tuple(read.text[one.start : one.end] for one in read.citations) == words


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"a": [1, 2.5, None, True]}, {"a": [1, 2.5, None, True]}),
        (City("Delft", 106_000), {"name": "Delft", "people": 106_000}),
        ({"a": KEY}, {"a": BLANK}),
        (object(), None),
        (a_ring(), None),
        ("x" * 2**20, None),
    ],
    ids=["json", "dataclass", "secret", "object", "ring", "large"],
)
def test_the_value_of_a_result_is_written_as_json_or_left_out_of_its_record(value, read):
    record = TurnFinished(RunResult("{}", (), (), 1, False, "answer", Usage(), value=value))
    assert decode_record(encode_record(record)).result.value == read
    if read == value:
        assert serialization.decode(encode(record)) == record


@pytest.mark.parametrize(
    "value",
    [deep(DEEPEST), deep(100_000), object(), 10**5_000, "x" * LARGEST_VALUE, [0] * LARGEST_VALUE, a_ring(), {b"a": 1}],
    ids=["deep", "deeper", "object", "number", "words", "numbers", "ring", "key"],
)
def test_a_value_that_cannot_be_written_does_not_take_its_record_along(value):
    result = ToolResult("1", "get", (Text("ok"),), structured=value)
    fit, lost = shrink(ToolFinished(result))
    assert fit == ToolFinished(ToolResult("1", "get", (Text("ok"),)))
    assert lost == ("the structured value of a result",)
    call, lost = shrink(PartFinished(0, ToolCall("1", "get", {"value": value})))
    assert call.part.arguments == {"_raw": "(too large to be saved)"}
    assert lost == ("the arguments of a call",)
    thought, _ = shrink(PartFinished(0, Reasoning("hm", ProviderData("openai", value))))
    assert thought.part == Reasoning("hm")
    assert all(decode_record(encode_record(record)) == record for record in (fit, call, thought))


def test_words_and_media_that_are_too_large_are_cut_and_named():
    contents = (Text("a" * LONGEST_TEXT), Text("b" * 1_000), Media("text/plain", b"c"))
    fit, lost = shrink(ToolFinished(ToolResult("1", "get", contents, done="d" * 20)))
    assert fit.result.content[0] == contents[0]
    assert fit.result.content[1].text == "\n[1,000 more characters were too many to be saved]"
    assert fit.result.content[2] == contents[2]
    assert fit.result.done == "\n[20 more characters were too many to be saved]"
    assert lost == ("a text of 1,000 characters", "a text of 20 characters")
    large, small = Media("image/png", b"x" * LARGEST_MEDIA), Media("image/png", b"x")
    assert shrink(TurnStarted(user("Look.", large), "m")) == (TurnStarted(user("Look.", large), "m"), ())
    fit, lost = shrink(TurnStarted(user("Look.", large, small), "m"))
    assert fit.prompt == user("Look.", large, "[image/png, 1 bytes, too large to be saved]")
    assert lost == ("image/png, 1 bytes",)
    fit, _ = shrink(TurnFinished(RunResult("x" * (LONGEST_TEXT + 1), (), (), 2, False, "answer", Usage(1), error="hm")))
    assert fit.result.final_text.endswith("[1 more characters were too many to be saved]")
    assert (fit.result.error, fit.result.usage) == ("hm", Usage(1))


def test_opaque_data_and_blobs_are_written_as_they_are():
    by_chance = f"gAAAAAB{KEY}-{KEY}"
    blob = bytes(range(256))
    thought = Reasoning("", ProviderData("openai", {"encrypted_content": by_chance}))
    assert decode_record(encode_record(PartFinished(0, thought))).part == thought
    image = Message("user", (Media("image/png", blob),))
    assert decode_record(encode_record(TurnStarted(image, "m"))).prompt == image


def test_what_cannot_be_written_is_refused_with_the_reason(monkeypatch):
    for value, why in ((deep(DEEPEST), "deeper than 100"), (deep(2_000), "deeper than 100"), (Text, "JSON")):
        with pytest.raises(ValueError, match=why):
            encode_record(ToolFinished(ToolResult("1", "get", (), structured=value)))
    monkeypatch.setattr("agentmagic.serialization.LONGEST_LINE", 50)  # a longer line is not read
    with pytest.raises(ValueError, match="it has 63 bytes, and 50 is the most"):
        encode_record(Notice("info", "x" * 20))


NOTICE = '{"type":"notice","level":"info","text":"x"}'
USAGE = '"usage":{"type":"usage"}'
RESULT = '"type":"run_result","final_text":"","iterations_used":0,"timed_out":false,"stop_reason":"answer"'


@pytest.mark.parametrize(
    "line",
    [
        "",
        b"\xff\xfe" + NOTICE.encode("utf-16"),
        "[" * 100_000,
        encode(ToolFinished(ToolResult("1", "x", (), structured=deep(DEEPEST)))),
        '{"type":"notice","level":"<b>","text":"x"}',
        '{"type":"notice","level":"info","text":5}',
        '{"type":"notice","level":"info"}',
        '{"type":"journal","version":1}',
        '{"type":"text","text":"a part, no event"}',
        '{"type":"part_delta","index":0,"text":"x"}',
        '{"type":"history_cut","turns":-1}',
        '{"type":"history_cut","turns":true}',
        '{"type":"history_cut","turns":1' + "0" * 400 + "}",
        '{"type":"in_doubt","tools":[["bank"]]}',
        '{"type":"in_doubt","tools":["ab",5]}',
        '{"type":"step_finished","step":1,"usage":{"type":"usage","cost":NaN}}',
        '{"type":"part_finished","index":0,"part":{"type":"usage"}}',
        '{"type":"part_finished","index":0,"part":{"type":"tool_call","id":"1","name":"x","arguments":[]}}',
        '{"type":"part_finished","index":0,"part":{"type":"media","media_type":"a/b","data":{"$bytes":7}}}',
        '{"type":"tool_finished","result":{"type":"tool_result","call_id":"1","name":"x","content":"abc"}}',
        '{"type":"turn_started","prompt":{"type":"message","role":"tool","parts":[]},"model":"m"}',
        '{"type":"turn_started","prompt":' * 300 + "1" + "}" * 300,
    ],
)
def test_a_line_of_the_wrong_shape_is_no_record(line):
    assert decode_record(line if isinstance(line, bytes) else line.encode()) is None


def test_a_line_of_the_right_shape_is_one_also_with_a_field_that_this_version_does_not_know():
    assert decode_record(NOTICE.encode()) == Notice("info", "x")
    assert decode_record(b'{"type":"notice","level":"info","text":"x","more":{"type":"text"}}') == Notice("info", "x")
    forged = f'{{"type":"turn_finished","result":{{{RESULT},{USAGE},"events":[1],"history_delta":7,"value":{{}}}}}}'
    result = decode_record(forged.encode()).result
    assert (result.events, result.history_delta, result.value) == ((), (), {})


@given(st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_line_of_somebody_else_raises(line):
    assert decode_record(line) is None


def test_a_journal_begins_with_its_format_and_with_nothing_less(tmp_path):
    assert json.loads(header())["version"] == VERSION
    assert begins_journal(tmp_path, header())
    assert not any(begins_journal(tmp_path, header()[:length]) for length in range(len(header())))


@pytest.mark.parametrize(
    "line", [b"# Notes", b'{"type":"journal"}', b'{"type":"journal","version":true}', NOTICE.encode()]
)
def test_a_file_of_somebody_else_is_refused(tmp_path, line):
    with pytest.raises(JournalError, match=r"notes.txt is no conversation of agentmagic, and was left as it is"):
        begins_journal(tmp_path / "notes.txt", line + b"\n")


def test_a_newer_format_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(JournalError, match=r"the format 2 of a newer agentmagic.*this one reads format 1.*git pull"):
        begins_journal(tmp_path / "agent.jsonl", b'{"type":"journal","version":2,"agentmagic":"9.0"}\n')
