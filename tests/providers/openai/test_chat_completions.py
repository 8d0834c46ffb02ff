"""Chat Completions: what is sent, what is made of what comes back, and what compatible servers do differently."""

from dataclasses import replace
from typing import Any

import pytest

from agentmagic.errors import BadRequest, StreamBroken
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import (
    Media,
    Message,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    Usage,
    user,
)
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, OutputSchema, Request
from agentmagic.providers.openai.chat_completions import OpenAIChat, encode
from agentmagic.providers.openai.chat_decoder import Decoder

USAGE = {
    "prompt_tokens": 58,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens": 15,
    "completion_tokens_details": {"reasoning_tokens": 5},
}
TOOL = ToolDef("clock", "Tells the time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
PNG = Media("image/png", b"\x89PNG", "plot")


def says(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}


def calls(*entries: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return says(finish, tool_calls=list(entries))


def piece(
    index: int | None, call_id: str | None = None, name: str | None = None, arguments: Any = ""
) -> dict[str, Any]:
    entry: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    return entry | ({} if index is None else {"index": index}) | ({} if call_id is None else {"id": call_id})


def decode(*chunks: dict[str, Any]) -> list[ModelEvent]:
    decoder = Decoder("some-model", {"clock"})
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [*events, *decoder.close()]


def parts(events: list[ModelEvent]) -> tuple[Part, ...]:
    return tuple(event.part for event in events if isinstance(event, PartFinished))


def called(*chunks: dict[str, Any]) -> list[str]:
    events = decode(*chunks, says("tool_calls"))
    begun = [event.index for event in events if isinstance(event, PartStarted)]
    assert sorted(begun) == sorted(event.index for event in events if isinstance(event, PartFinished))
    found = parts(events)
    return [f"{part.id} {part.name} {part.arguments}" for part in found if isinstance(part, ToolCall)]


def test_text_and_calls_come_in_deltas_then_whole_and_the_usage_after_the_reason():
    assert decode(
        says(role="assistant", content="", refusal=None),
        says(content="It is "),
        says(content="noon."),
        calls(piece(0, "a", "clock", '{"n"')),
        calls(piece(1, "b", "clock", '{"n"')),
        calls(piece(0, arguments=": 1}")),
        calls(piece(1, arguments=": 2}")),
        says("stop"),
        {"choices": [], "usage": USAGE},
    ) == [
        PartStarted(0, "text"),
        PartDelta(0, "It is "),
        PartDelta(0, "noon."),
        PartFinished(0, Text("It is noon.")),
        PartStarted(1, "tool_call", "clock"),
        PartDelta(1, '{"n"'),
        PartStarted(2, "tool_call", "clock"),
        PartDelta(2, '{"n"'),
        PartDelta(1, ": 1}"),
        PartDelta(2, ": 2}"),
        PartFinished(1, ToolCall("a", "clock", {"n": 1})),
        PartFinished(2, ToolCall("b", "clock", {"n": 2})),
        ModelFinished(Usage(58, 8, 15, 5, 1, None), "stop"),
    ]


ODD_CALLS = {
    "no arguments": ([piece(0, "a", "clock")], ["a clock {}"]),
    "arguments as an object": ([piece(0, "a", "clock", {"n": 1})], ["a clock {'n': 1}"]),
    "no index, other ids": (
        [piece(None, "a", "clock", "{}"), piece(None, "b", "clock", "{}")],
        ["a clock {}", "b clock {}"],
    ),
    "no index, pieces": ([piece(None, "a", "clock", '{"n":'), piece(None, None, None, "1}")], ["a clock {'n': 1}"]),
    "index 0 for all": ([piece(0, "a", "clock", "{}"), piece(0, "b", "date", "{}")], ["a clock {}", "b date {}"]),
    "an id that changes": ([piece(0, "a", "clock", '{"n":'), piece(0, "b", None, "1}")], ["a clock {'n': 1}"]),
    "a name in pieces": ([piece(0, "a", "clo"), piece(0, None, "ck", "{}")], ["a clock {}"]),
    "a name repeated": ([piece(0, "a", "clock", "{"), piece(0, "a", "clock", "}")], ["a clock {}"]),
    "a name that comes last": ([piece(0, "a", "", '{"n":'), piece(0, None, "clock", "1}")], ["a clock {'n': 1}"]),
    "a name that never comes": ([piece(0, "a", "clock"), piece(1, "b")], ["a clock {}"]),
}


@pytest.mark.parametrize(("pieces", "read"), ODD_CALLS.values(), ids=ODD_CALLS)
def test_calls_are_read_however_a_server_sends_them(pieces: list[dict[str, Any]], read: list[str]):
    assert called(*map(calls, pieces)) == read


@pytest.mark.parametrize(
    "arguments", ["{zone: UTC}", "7", "[" * 5000, '{"a": ' * 200 + "1" + "}" * 200, '{"a": 1e999}']
)
def test_arguments_that_are_no_json_object_are_kept_raw(arguments: str):
    (call,) = parts(decode(calls(piece(0, "a", "clock", arguments), finish="tool_calls")))
    assert call.arguments == {"_raw": arguments}


@pytest.mark.parametrize("ids", [(None, ""), ("same", "same")])
def test_ids_that_are_missing_or_given_twice_are_made_up(ids: tuple[str | None, str]):
    entries = (piece(place, call_id, "clock", "{}") for place, call_id in enumerate(ids))
    first, second = (call.id for call in parts(decode(calls(*entries), says("stop"))))
    assert "" != first != second != ""


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_of_a_compatible_server_is_a_part_of_its_own(key: str):
    events = decode(says(**{key: "Hm, "}), says(content=None, **{key: "yes."}), says(content="Noon."), says("stop"))
    data = ProviderData("openai-chat", {"model": "some-model", "field": key})
    assert parts(events) == (Reasoning("Hm, yes.", data), Text("Noon."))


def test_an_answer_that_stopped_at_its_length_is_cut():
    for reason in "length", "max_tokens", "MODEL_LENGTH", "max_output_tokens", "model_context_window_exceeded":
        finished = decode(says(content="It is"), says(reason))[-1]
        assert finished == ModelFinished(Usage(requests=1, cost=None), reason, cut=True)


COUNTS = {"prompt_tokens": 58, "completion_tokens": 15, "prompt_tokens_details": {"cached_tokens": 8}}
FLOATS = {"prompt_tokens": 58.0, "completion_tokens": 15.0, "prompt_tokens_details": {"cached_tokens": 8.0}}
HITS = {"completion_tokens": 15, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 50}
WRITES = {"cached_tokens": 8, "cache_write_tokens": 20}


@pytest.mark.parametrize(
    ("chunks", "written"),
    [
        ([{"choices": [{"usage": COUNTS}]}], 0),  # Moonshot
        ([{"choices": [], "x_groq": {"id": "x", "usage": COUNTS}}], 0),
        ([{"x_groq": {"id": "x"}}, {"usage": FLOATS}], 0),
        ([{"usage": HITS | {"prompt_tokens": 58}}], 0),  # DeepSeek
        ([{"usage": HITS}], 0),
        ([{"usage": COUNTS | {"prompt_tokens_details": None, "cached_tokens": 8}}], 0),
        ([{"usage": COUNTS | {"prompt_tokens_details": WRITES}}], 20),
        ([{"usage": COUNTS}, {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": None}}], 0),
        ([{"usage": COUNTS}, {"usage": "none"}, {"choices": None, "x_groq": []}], 0),
        ([{"usage": COUNTS | {"prompt_tokens": 3, "completion_tokens": 1}}, {"usage": COUNTS}], 0),
    ],
)
def test_token_counts_are_read_wherever_a_server_puts_them(chunks: list[Any], written: int):
    usage = Usage(58, 8, 15, 0, 1, None, written)
    assert decode(says(content="Noon."), says("stop"), *chunks)[-1] == ModelFinished(usage, "stop")


@pytest.mark.parametrize(
    ("reason", "error", "words"),
    [
        *((reason, BadRequest, "content filter") for reason in ("content_filter", "content_filter: RECITATION")),
        *((reason, BadRequest, "content filter") for reason in ("sensitive", "SAFETY", "refusal")),
        *((reason, StreamBroken, reason) for reason in ("error", "insufficient_system_resource", "abort")),
    ],
)
def test_an_answer_that_the_server_withheld_or_could_not_finish_is_an_error(reason, error, words: str):
    with pytest.raises(error, match=words):
        decode(says(content="It is"), says(reason))


def test_a_refusal_is_text_that_is_marked_and_another_choice_is_not_mixed_into_the_answer():
    other = {"choices": [{"index": 1, "delta": {"content": "Or not."}, "finish_reason": None}]}
    events = decode(says(content=None, refusal="I will not."), other, says("stop"))
    assert parts(events) == (Text("I will not."),)
    assert events[-1].refused
    assert not decode(says(content="I will not.", refusal=None), says("stop"))[-1].refused


def test_a_call_that_was_cut_off_is_finished_with_what_came_and_one_without_a_name_is_dropped():
    events = decode(calls(piece(0, "a", "clock", '{"zone": "U')), calls(piece(1, "b")), says("length"))
    assert parts(events) == (ToolCall("a", "clock", {"_raw": '{"zone": "U'}),)


def test_a_request_asks_for_the_usage_of_its_stream():
    assert encode(Request((user("Hi"),), "Be terse.", (TOOL,)), "gpt-5.4") == {
        "model": "gpt-5.4",
        "messages": [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "Tells the time.",
                    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
                },
            }
        ],
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("led_to", [ToolCall("a", "clock", {}), Text("Noon.")])
def test_reasoning_goes_back_to_the_model_that_wrote_it_and_to_no_other(led_to: Part):
    own = ProviderData("openai-chat", {"model": "deepseek", "field": "reasoning_content"})
    answer = Message("assistant", (Reasoning("Hm.", own), led_to))
    ours, theirs = (encode(Request((answer,)), model)["messages"][0] for model in ("deepseek", "gpt-5.4"))
    assert (ours["reasoning_content"], "reasoning_content" in theirs) == ("Hm.", False)
    assert ours["content"] == getattr(led_to, "text", "")  # some servers refuse null


CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_the_form_of_an_answer_is_a_json_schema_and_goes_beside_tools_to_openai_only():
    formed = Request((user("Hi"),), output=OutputSchema("answer", CLOSED))
    model = OpenAIChat("qwen", base_url="http://localhost/v1")
    assert model.body(formed)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": CLOSED, "strict": True},
    }
    assert "response_format" in model.body(replace(formed, tools=(TOOL,), tool_choice="none"))
    named = model.body(replace(formed, tools=(TOOL,), tool_choice="clock"))
    assert "response_format" not in named
    own = OpenAIChat("gpt-5.4").body(replace(formed, tools=(TOOL,), settings=ModelSettings(max_output_tokens=9)))
    assert ("response_format" in own, own.get("max_completion_tokens"), "max_tokens" in own) == (True, 9, False)
    assert named["tool_choice"] == {"type": "function", "function": {"name": "clock"}}


def test_texts_of_the_user_are_one_and_images_go_as_they_are():
    texts = encode(Request((user("So far: tea.", "And now?"),)), "m")["messages"]
    assert texts[0]["content"] == "So far: tea.\n\nAnd now?"  # some servers take no list
    mixed = user("Look:", PNG, Media("application/pdf", b"%PDF"), Media("audio/wav", b"RIFF"))
    assert encode(Request((mixed,)), "m")["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw==", "detail": "auto"}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "text", "text": "[audio/wav, 4 bytes]"},
    ]


def test_images_of_tool_results_follow_all_results_in_a_message_of_the_user():
    failed = ToolResult("call_2", "clock", (Text("no such zone"),), "error")
    results = (ToolResult("call_1", "plot", (Text("Here."), PNG)), failed)
    first, second, shown = encode(Request((Message("tool", results),)), "m")["messages"]
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "Here.\n[image/png plot, 4 bytes]"}
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": "Error: no such zone"}
    assert (shown["role"], [part["type"] for part in shown["content"]]) == ("user", ["text", "image_url"])
    assert "call_1" in shown["content"][0]["text"]


WRITTEN = '<tool_call>\n{"name": "clock", "arguments": {"zone": "UTC"}}\n</tool_call>'


def test_a_call_that_is_written_as_text_is_a_call():
    text = f"Let me look. {WRITTEN}\n{WRITTEN.replace('UTC', 'CET').removesuffix('</tool_call>')}"
    for pieces in [text], list(text):
        events = decode(*(says(content=piece) for piece in pieces), says("stop"))
        said, *found = [part for part in parts(events) if part != Text("\n")]
        assert said.text.strip() == "Let me look."
        assert [(call.name, call.arguments["zone"]) for call in found] == [("clock", "UTC"), ("clock", "CET")]
        assert "<tool" not in "".join(event.text for event in events if isinstance(event, PartDelta))


@pytest.mark.parametrize("text", ["a <", WRITTEN.replace("clock", "cloak"), "<tool_call>no JSON</tool_call> so"])
def test_text_that_is_no_call_stays_text(text: str):
    assert "".join(part.text for part in parts(decode(*(says(content=one) for one in text), says("stop")))) == text
    decoder = Decoder("some-model")  # no tool was offered
    events = [*decoder.feed(says("stop", content=f"{WRITTEN}{text}")), *decoder.close()]
    assert parts(events) == (Text(f"{WRITTEN}{text}"),)


def test_unknown_fields_of_messages_and_calls_go_back_to_the_model_that_sent_them():
    signature = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    thought = [{"type": "reasoning.text", "index": 0, "text": "Hm", "signature": None, "format": "x"}]
    ended = [{"type": "reasoning.text", "index": 0, "text": "m.", "signature": "s", "format": "x"}]
    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "x"}
    events = decode(
        says(role="assistant", content=None, reasoning_details=thought, annotations=[]),
        says(reasoning_details=[*ended, sealed]),
        calls(piece(0, "a", "clock", "{}") | signature),
        says("tool_calls"),
    )
    history = (Message("assistant", parts(events)),)
    (sent,) = encode(Request(history), "some-model")["messages"]
    assert sent["tool_calls"][0]["extra_content"] == signature["extra_content"]
    whole = {"type": "reasoning.text", "index": 0, "text": "Hmm.", "signature": "s", "format": "x"}
    assert sent["reasoning_details"] == [whole, sealed]
    (elsewhere,) = encode(Request(history), "another-model")["messages"]
    assert elsewhere.keys() == {"role", "content", "tool_calls"}
    assert elsewhere["tool_calls"][0].keys() == {"id", "type", "function"}
