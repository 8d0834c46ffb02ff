"""Chat Completions: what is sent, what is made of what comes back, and what compatible servers do differently."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from agentmagic.errors import BadRequest, MalformedCall, StreamBroken
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
from agentmagic.providers.base import Model, ModelEvent, ModelFinished, OutputSchema, Request
from agentmagic.providers.openai.chat_completions import OpenAIChat, encode
from agentmagic.providers.openai.chat_decoder import Decoder
from tests.providers.loopback import Exchange, Loopback, ask, recorded, sse

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


def tool_calls(*chunks: dict[str, Any]) -> list[ToolCall]:
    events = decode(*chunks, says("tool_calls"))
    for index in range(len(parts(events))):
        mine = [type(event) for event in events if getattr(event, "index", None) == index]
        assert mine[0] is PartStarted
        assert mine[-1] is PartFinished
    return [part for part in parts(events) if isinstance(part, ToolCall)]


def test_text_comes_in_deltas_then_whole_and_the_usage_after_the_reason():
    events = decode(
        says(role="assistant", content="", refusal=None),
        says(content="It is "),
        says(content="noon."),
        says("stop"),
        {"choices": [], "usage": USAGE},
    )
    assert events == [
        PartStarted(0, "text"),
        PartDelta(0, "It is "),
        PartDelta(0, "noon."),
        PartFinished(0, Text("It is noon.")),
        ModelFinished(Usage(58, 8, 15, 5, 1, None), "stop"),
    ]


def test_a_server_that_tells_no_usage_counts_one_request():
    assert decode(says(content="Hi"), says("stop"))[-1] == ModelFinished(Usage(requests=1, cost=None), "stop")


def test_a_call_streams_its_arguments_as_raw_text():
    events = decode(
        calls(piece(0, "call_0", "clock")),
        calls(piece(0, arguments='{"zone": ')),
        calls(piece(0, arguments='"UTC"}')),
        says("tool_calls"),
    )
    assert events[:-1] == [
        PartStarted(0, "tool_call", "clock"),
        PartDelta(0, '{"zone": '),
        PartDelta(0, '"UTC"}'),
        PartFinished(0, ToolCall("call_0", "clock", {"zone": "UTC"})),
    ]


def test_text_before_parallel_calls_is_finished_before_they_start():
    events = decode(
        says(content="Let me look."),
        calls(piece(0, "a", "clock", '{"n"')),
        calls(piece(1, "b", "clock", '{"n"')),
        calls(piece(0, arguments=": 1}")),
        calls(piece(1, arguments=": 2}")),
        says("tool_calls"),
    )
    assert parts(events) == (
        Text("Let me look."),
        ToolCall("a", "clock", {"n": 1}),
        ToolCall("b", "clock", {"n": 2}),
    )
    order = [(type(event).__name__, event.index) for event in events if isinstance(event, PartStarted | PartFinished)]
    assert order == [
        ("PartStarted", 0),
        ("PartFinished", 0),
        ("PartStarted", 1),
        ("PartStarted", 2),
        ("PartFinished", 1),
        ("PartFinished", 2),
    ]


def test_a_call_without_arguments_has_none():
    assert tool_calls(calls(piece(0, "a", "clock"))) == [ToolCall("a", "clock", {})]


def test_arguments_that_are_no_json_object_are_kept_raw():
    assert tool_calls(calls(piece(0, "a", "clock", "{zone: UTC}")))[0].arguments == {"_raw": "{zone: UTC}"}


def test_whole_calls_in_one_chunk_with_its_finish_reason_are_read():
    whole = calls(piece(0, "a", "clock", '{"n": 1}'), piece(1, "b", "clock", '{"n": 2}'), finish="tool_calls")
    assert parts(decode(whole)) == (ToolCall("a", "clock", {"n": 1}), ToolCall("b", "clock", {"n": 2}))


def test_calls_without_an_index_are_told_apart():
    by_id = tool_calls(calls(piece(None, "a", "clock", "{}")), calls(piece(None, "b", "clock", "{}")))
    by_name = tool_calls(calls(piece(None, None, "clock", '{"n":')), calls(piece(None, None, None, "1}")))
    assert [call.id for call in by_id] == ["a", "b"]
    assert [call.arguments for call in by_name] == [{"n": 1}]


def test_calls_that_all_claim_index_0_are_told_apart_by_their_ids():
    read = tool_calls(calls(piece(0, "a", "clock", "{}")), calls(piece(0, "b", "date", "{}")))
    assert [(call.id, call.name) for call in read] == [("a", "clock"), ("b", "date")]


def test_an_id_that_changes_from_piece_to_piece_starts_no_new_call():
    (call,) = tool_calls(calls(piece(0, "a", "clock", '{"n":')), calls(piece(0, "b", None, "1}")))
    assert (call.id, call.arguments) == ("a", {"n": 1})


def test_ids_that_are_missing_or_given_twice_are_made_up():
    read = tool_calls(calls(piece(0, None, "clock", "{}"), piece(1, "", "clock", "{}")))
    read += tool_calls(calls(piece(0, "same", "clock", "{}"), piece(1, "same", "clock", "{}")))
    assert len({call.id for call in read}) == 4
    assert all(call.id for call in read)


def test_a_name_in_pieces_is_put_together_and_a_repeated_one_is_not():
    (pieces,) = tool_calls(calls(piece(0, "a", "clo")), calls(piece(0, None, "ck")), calls(piece(0, arguments="{}")))
    (repeated,) = tool_calls(calls(piece(0, "a", "clock", "{")), calls(piece(0, "a", "clock", "}")))
    assert pieces.name == repeated.name == "clock"


def test_arguments_sent_as_an_object_are_read():
    assert tool_calls(calls(piece(0, "a", "clock", {"n": 1})))[0].arguments == {"n": 1}


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_of_a_compatible_server_is_a_part_of_its_own(key: str):
    events = decode(says(**{key: "Hm, "}), says(content=None, **{key: "yes."}), says(content="Noon."), says("stop"))
    data = ProviderData("openai-chat", {"model": "some-model", "field": key})
    assert parts(events) == (Reasoning("Hm, yes.", data), Text("Noon."))
    assert events[:2] == [PartStarted(0, "reasoning"), PartDelta(0, "Hm, ")]


def test_a_refusal_is_text():
    assert parts(decode(says(content=None, refusal="I will not."), says("stop"))) == (Text("I will not."),)


def test_a_stream_without_a_finish_reason_is_broken():
    with pytest.raises(StreamBroken, match="ended before it was complete"):
        decode(says(content="It is"))


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "model_length"])
def test_an_answer_that_stopped_at_its_length_is_cut(reason: str):
    assert decode(says(content="It is"), says(reason))[-1] == ModelFinished(Usage(requests=1, cost=None), reason, True)


def test_a_call_that_was_cut_off_is_finished_with_what_came_and_one_without_a_name_is_dropped():
    half, nameless = piece(0, "a", "clock", '{"zone": "U'), piece(1, "b")
    events = decode(calls(half), calls(nameless), says("length"))
    assert parts(events) == (ToolCall("a", "clock", {"_raw": '{"zone": "U'}),)
    assert events[-1] == ModelFinished(Usage(requests=1, cost=None), "length", True)


@pytest.mark.parametrize("nameless", [piece(0, "a", "", "{}"), piece(0, None, None, '{"a": 1}')])
def test_a_call_of_nothing_cannot_be_read(nameless: dict[str, Any]):
    with pytest.raises(MalformedCall, match="without naming it"):
        decode(calls(nameless), says("tool_calls"))


def test_an_answer_that_was_filtered_is_refused():
    with pytest.raises(BadRequest, match="content filter"):
        decode(says(content="It is"), says("content_filter"))


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_an_answer_that_the_server_could_not_finish_is_broken(reason: str):
    with pytest.raises(StreamBroken, match=reason):
        decode(says(content="It is"), says(reason))


def test_an_answer_of_nothing_is_finished_without_parts():
    assert decode(says("stop"))[0] == ModelFinished(Usage(requests=1, cost=None), "stop")


def test_another_choice_is_not_mixed_into_the_answer():
    other = {"choices": [{"index": 1, "delta": {"content": "Or not."}, "finish_reason": None}]}
    assert parts(decode(says(content="Noon."), other, says("stop"))) == (Text("Noon."),)


def test_a_lone_surrogate_of_the_model_becomes_a_replacement_character():
    events = decode(says(content="a\ud800"), calls(piece(0, "a", "clock", '{"zone": "\\ud800"}')), says("stop"))
    assert parts(events) == (Text("a\ufffd"), ToolCall("a", "clock", {"zone": "\ufffd"}))


@pytest.mark.parametrize("arguments", ["[" * 5000, '{"a": ' * 200 + "1" + "}" * 200, '{"a": 1e999}', '{"a": NaN}', "7"])
def test_arguments_that_nobody_can_walk_or_write_are_kept_raw(arguments: str):
    assert tool_calls(calls(piece(0, "a", "clock", arguments)))[0].arguments == {"_raw": arguments}


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


def test_a_named_tool_choice_names_the_function():
    body = encode(Request((user("Hi"),), "", (TOOL,), "clock"), "m")
    assert body["tool_choice"] == {"type": "function", "function": {"name": "clock"}}


def test_a_history_made_elsewhere_is_encoded_without_its_reasoning():
    foreign = ProviderData("gemini", {"thought_signature": "x"})
    answer = Message("assistant", (Reasoning("Hm.", foreign), ToolCall("c" * 80, "clock", {"a": 1}, foreign)))
    result = Message("tool", (ToolResult("c" * 80, "clock", (Text("noon"),)),))
    asked, answered = encode(Request((answer, result)), "m")["messages"]
    assert asked.keys() == {"role", "content", "tool_calls"}
    assert asked["content"] == ""  # some servers refuse null
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert len(answered["tool_call_id"]) <= 40


@pytest.mark.parametrize("led_to", [ToolCall("a", "clock", {}), Text("Noon.")])
def test_reasoning_goes_back_to_the_model_that_wrote_it_and_to_no_other(led_to: Part):
    own = ProviderData("openai-chat", {"model": "deepseek", "field": "reasoning_content"})
    answer = Message("assistant", (Reasoning("Hm.", own), led_to))
    assert encode(Request((answer,)), "deepseek")["messages"][0]["reasoning_content"] == "Hm."
    assert "reasoning_content" not in encode(Request((answer,)), "gpt-5.4")["messages"][0]


def test_an_interrupted_answer_of_nothing_but_reasoning_is_left_out():
    half = Message("assistant", (Reasoning("Hm."),), interrupted=True)
    assert encode(Request((user("Hi"), half)), "m")["messages"] == [{"role": "user", "content": "Hi"}]


def test_a_message_of_the_user_that_says_nothing_is_not_sent_empty():
    for nothing in (user(""), user(), Message("user", (Text(""), Text("")))):
        assert encode(Request((nothing,)), "m")["messages"] == [{"role": "user", "content": "(no words)"}]


def test_a_summary_before_the_prompt_is_one_text_with_it():
    assert encode(Request((user("So far: tea.", "And now?"),)), "m")["messages"][0]["content"] == (
        "So far: tea.\n\nAnd now?"
    )


@pytest.mark.parametrize("name", ["a.b/c", "ü" * 70, "x" * 65, ""])
def test_the_name_of_a_call_that_openai_would_refuse_is_made_legal(name: str):
    (message,) = encode(Request((Message("assistant", (ToolCall("a", name, {}),)),)), "m")["messages"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", message["tool_calls"][0]["function"]["name"])


def test_what_no_encoding_can_write_is_replaced_wherever_it_stands():
    lone = "\ud800"
    history = (
        Message("user", (Text(lone), Media("image/png", b"", lone))),
        Message("assistant", (Text(lone), ToolCall(lone, lone, {lone: [lone, float("nan")]}))),
        Message("tool", (ToolResult(lone, lone, (Text(lone),)),)),
    )
    tool = ToolDef("clock", lone, {"type": "object", "description": lone})
    json.dumps(encode(Request(history, lone, (tool,)), "m"), ensure_ascii=False, allow_nan=False).encode()


CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_the_form_of_an_answer_is_a_json_schema():
    body = encode(Request((user("Hi"),), output=OutputSchema("answer", CLOSED)), "m")
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": CLOSED, "strict": True},
    }


def sent_to_server(request: Request, *exchanges: Exchange) -> list[dict[str, Any]]:
    """Ask a server other than OpenAI's, once for each exchange; return the bodies that it got."""
    with Loopback(exchanges) as server:
        model = OpenAIChat("qwen", base_url=f"{server.url}/v1")
        for _ in exchanges:
            try:
                ask(model, request)
            except BadRequest as error:
                assert error.retryable  # noqa: PT017  (an answer follows)
    return [got.json for got in server.requests]


NOON = Exchange(sse(says(content="Noon."), says("stop"), done=True))
FORMED = Request((user("Hi"),), output=OutputSchema("answer", CLOSED))


def test_a_server_is_asked_for_a_form_but_not_beside_tools_that_it_may_call():
    with_tools, without_calls = replace(FORMED, tools=(TOOL,)), replace(FORMED, tools=(TOOL,), tool_choice="none")
    assert "response_format" in sent_to_server(FORMED, NOON)[0]
    assert "response_format" in sent_to_server(without_calls, NOON)[0]
    assert "response_format" not in sent_to_server(with_tools, NOON)[0]


def test_a_server_that_refuses_a_form_is_asked_again_without_one():
    refusal = Exchange('{"error": {"message": "This response_format type is unavailable"}}', 400, "application/json")
    first, second, third = sent_to_server(FORMED, refusal, NOON, NOON)
    assert "response_format" in first
    assert "response_format" not in second
    assert "response_format" not in third


def test_images_of_the_user_go_as_they_are_and_sounds_are_named():
    body = encode(Request((user("Look:", PNG, Media("audio/wav", b"RIFF")),)), "m")
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw==", "detail": "auto"}},
        {"type": "text", "text": "[audio/wav, 4 bytes]"},
    ]


def test_images_of_tool_results_follow_all_results_in_a_message_of_the_user():
    results = (
        ToolResult("call_1", "plot", (Text("Here."), PNG)),
        ToolResult("call_2", "clock", (Text("no such zone"),), "error"),
    )
    first, second, shown = encode(Request((Message("tool", results),)), "m")["messages"]
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "Here.\n[image/png plot, 4 bytes]"}
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": "Error: no such zone"}
    assert shown["role"] == "user"
    assert [part["type"] for part in shown["content"]] == ["text", "image_url"]
    assert "call_1" in shown["content"][0]["text"]


def test_it_is_a_model_and_is_named_after_its_provider():
    assert isinstance(OpenAIChat("gpt-5.4"), Model)
    assert OpenAIChat("gpt-5.4").name == "openai-chat:gpt-5.4"


def played(name: str) -> list[tuple[dict[str, Any], list[ModelEvent], dict[str, Any]]]:
    """Play a recording: per exchange the recorded request, our events, and the request we would send next."""
    exchanges = recorded(name)
    seen = []
    with Loopback(exchanges) as server:
        for exchange in exchanges:
            request = read_request(exchange.request)
            events = ask(OpenAIChat("gpt-5.4", base_url=f"{server.url}/v1"), request)
            answer = Message("assistant", parts(events))
            results = tuple(ToolResult(call.id, call.name, (Text("2024-01-01"),)) for call in answer.calls)
            history = (*request.messages, answer, *([Message("tool", results)] if results else []))
            following = Request(history, request.instructions, request.tools)
            seen.append((exchange.request, events, encode(following, "gpt-5.4")))
        assert [(got.method, got.path) for got in server.requests] == [("POST", "/v1/chat/completions")] * len(
            exchanges
        )
        for exchange, got in zip(exchanges, server.requests, strict=True):
            assert normal(got.json) == normal(exchange.request)
    return seen


def read_request(recorded_request: dict[str, Any]) -> Request:
    """Read the recorded request back into our terms."""
    instructions, messages = "", []
    for item in recorded_request["messages"]:
        match item:
            case {"role": "system", "content": instructions}:
                continue
            case {"role": "user", "content": content}:
                messages.append(Message("user", tuple(read_content(part) for part in content)))
            case {"role": "assistant", "tool_calls": entries}:
                messages.append(Message("assistant", tuple(read_call(entry) for entry in entries)))
            case {"role": "tool", "tool_call_id": call_id, "content": output}:
                messages.append(Message("tool", (ToolResult(call_id, "", (Text(output),)),)))
    functions = [tool["function"] for tool in recorded_request.get("tools", ())]
    tools = tuple(ToolDef(tool["name"], tool["description"], tool["parameters"]) for tool in functions)
    return Request(tuple(messages), instructions, tools)


def read_call(entry: dict[str, Any]) -> ToolCall:
    function = entry["function"]
    return ToolCall(entry["id"], function["name"], json.loads(function["arguments"]))


def read_content(part: dict[str, Any]) -> Text | Media:
    if part["type"] == "text":
        return Text(part["text"])
    head, comma, data = part["image_url"]["url"].partition(";base64,")
    if not comma:  # the address of an image, which we do not send
        return Text(part["image_url"]["url"])
    return Media(head.removeprefix("data:"), b64decode(data))


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """Bring a request into the form in which ours and the recorded client's must agree."""
    return {
        "messages": [normal_message(message) for message in body["messages"]],
        **{key: body.get(key) for key in ("model", "stream", "stream_options", "tools")},
    }


def normal_message(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content") or []
    entries: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    values = [part.get("text") or part["image_url"]["url"] for part in entries]
    return {
        **message,
        "content": values if len(values) < 2 or values[-1].startswith("data:") else ["\n\n".join(values)],
    }


def test_the_recorded_text_is_read():
    ((_, events, following),) = played("chat_simple_streaming_request")
    assert parts(events) == (Text("2"),)
    assert events[-1] == ModelFinished(Usage(26, 0, 4, 0, 1, None), "stop")
    assert following["messages"][-1] == {"role": "assistant", "content": "2"}


def test_the_recorded_calls_are_read_and_answered_as_the_api_accepted_it():
    seen = played("chat_tool_variations_async")
    assert len(seen) == 4
    for (_, events, following), (accepted, answered, _) in zip(seen[::2], seen[1::2], strict=True):
        assert isinstance(events[-1], ModelFinished)
        assert events[-1].reason == "tool_calls"
        assert normal(following) == normal(accepted)
        assert parts(answered) == (Text("2024-01-01"),)


def test_the_recorded_images_are_sent_and_their_description_read():
    for _, events, following in played("chat_images"):
        (text,) = parts(events)
        assert isinstance(text, Text)
        assert following["messages"][-1] == {"role": "assistant", "content": text.text}


WRITTEN = '<tool_call>\n{"name": "clock", "arguments": {"zone": "UTC"}}\n</tool_call>'


@pytest.mark.parametrize("size", [1, 7, 500])
def test_a_call_that_is_written_as_text_is_a_call(size: int):
    text = f"Let me look. {WRITTEN}\n{WRITTEN.replace('UTC', 'CET')}"
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    events = decode(*(says(content=piece) for piece in pieces), says("stop"))
    text_part, *found = [part for part in parts(events) if part != Text("\n")]
    assert text_part.text.strip() == "Let me look."
    assert [(call.name, call.arguments) for call in found] == [("clock", {"zone": "UTC"}), ("clock", {"zone": "CET"})]
    assert "<tool" not in "".join(event.text for event in events if isinstance(event, PartDelta))


def test_a_written_call_without_its_end_is_a_call():
    (call,) = parts(decode(says(content=WRITTEN.removesuffix("</tool_call>")), says("stop")))
    assert (call.name, call.arguments) == ("clock", {"zone": "UTC"})


@pytest.mark.parametrize(
    "text",
    [
        "Use <tool_call> to call.",
        "a < b",
        "a <",
        WRITTEN.replace("clock", "cloak"),
        "<tool_call>no JSON</tool_call> so",
        "<tool_",
    ],
)
def test_text_that_is_no_call_stays_text(text: str):
    assert "".join(part.text for part in parts(decode(*(says(content=one) for one in text), says("stop")))) == text


def test_calls_written_as_text_are_text_if_no_tool_was_offered():
    decoder = Decoder("some-model")
    events = [*decoder.feed(says("stop", content=WRITTEN)), *decoder.close()]
    assert parts(events) == (Text(WRITTEN),)


def test_a_call_whose_name_comes_last_is_called_and_one_that_never_comes_is_nothing():
    (call,) = tool_calls(
        calls(piece(0, "a", arguments='{"zone": ')),
        calls(piece(0, name="clock", arguments='"UTC"}')),
        calls(piece(1, "b")),
    )
    assert (call.name, call.arguments) == ("clock", {"zone": "UTC"})


def test_unknown_fields_of_messages_and_calls_go_back_to_the_model_that_sent_them():
    signature = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    thought = [{"type": "reasoning.text", "index": 0, "text": "Hm", "signature": None, "format": "x"}]
    ended = [{"type": "reasoning.text", "index": 0, "text": "m.", "signature": "s", "format": "x"}]
    events = decode(
        says(role="assistant", content=None, reasoning_details=thought, annotations=[]),
        says(reasoning_details=ended),
        calls(piece(0, "a", "clock", "{}") | signature),
        says("tool_calls"),
    )
    history = (Message("assistant", parts(events)),)
    (sent,) = encode(Request(history), "some-model")["messages"]
    assert sent["tool_calls"][0]["extra_content"] == signature["extra_content"]
    assert sent["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Hmm.", "signature": "s", "format": "x"}
    ]
    (elsewhere,) = encode(Request(history), "another-model")["messages"]
    assert elsewhere.keys() == {"role", "content", "tool_calls"}
    assert elsewhere["tool_calls"][0].keys() == {"id", "type", "function"}
