"""The Responses API: what is sent, and what is made of what comes back."""

import json
import re
from base64 import b64decode
from typing import Any

import pytest

from agentmagic.errors import BadRequest, ContextTooLong, MalformedCall, RateLimited, StreamBroken, Unavailable
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import (
    Media,
    Message,
    Part,
    ProviderData,
    Reasoning,
    Resource,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    Usage,
    user,
)
from agentmagic.providers.base import Model, ModelEvent, ModelFinished, ModelSettings, OutputSchema, Request
from agentmagic.providers.openai.responses import Decoder, OpenAIResponses, encode
from tests.providers.loopback import Loopback, ask, recorded

USAGE = {
    "input_tokens": 58,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 15,
    "output_tokens_details": {"reasoning_tokens": 5},
}
TOOL = ToolDef("clock", "Tells the time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
PNG = Media("image/png", b"\x89PNG", "plot")


def message_item(text: str, place: int = 0) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": f"msg_{place}", "type": "message", "role": "assistant", "phase": "final_answer", "content": content}


def call_item(arguments: str = "{}", place: int = 0) -> dict[str, Any]:
    item = {"id": f"fc_{place}", "type": "function_call", "call_id": f"call_{place}", "name": "clock"}
    return item | {"arguments": arguments, "status": "completed"}


def reasoning_item(*summary: str, encrypted: str = "gAAAA-complete") -> dict[str, Any]:
    entries = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": "rs_1", "type": "reasoning", "summary": entries, "encrypted_content": encrypted}


def added(item: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def delta(kind: str, text: str, place: int = 0) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": place, "delta": text}


def done(item: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def completed(**more: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", "usage": USAGE, **more}}


def decode(*chunks: dict[str, Any]) -> list[ModelEvent]:
    decoder = Decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [*events, *decoder.close()]


def parts(events: list[ModelEvent]) -> tuple[Part, ...]:
    return tuple(event.part for event in events if isinstance(event, PartFinished))


def test_text_comes_in_deltas_and_then_whole_with_its_item():
    item = message_item("It is noon.")
    events = decode(
        {"type": "response.created", "response": {}},
        added(message_item("")),
        delta("output_text", "It is "),
        delta("output_text", "noon."),
        done(item),
        completed(),
    )
    assert events == [
        PartStarted(0, "text"),
        PartDelta(0, "It is "),
        PartDelta(0, "noon."),
        PartFinished(0, Text("It is noon.", ProviderData("openai", item))),
        ModelFinished(Usage(58, 8, 15, 5, 1, None), "completed"),
    ]


def test_a_call_streams_its_arguments_as_raw_text():
    events = decode(
        added(call_item("")),
        delta("function_call_arguments", '{"zone": '),
        delta("function_call_arguments", '"UTC"}'),
        done(call_item('{"zone": "UTC"}')),
        completed(),
    )
    assert events[:3] == [PartStarted(0, "tool_call", "clock"), PartDelta(0, '{"zone": '), PartDelta(0, '"UTC"}')]
    data = ProviderData("openai", call_item('{"zone": "UTC"}'))
    assert events[3] == PartFinished(0, ToolCall("call_0", "clock", {"zone": "UTC"}, data))


def test_parallel_calls_keep_their_own_index():
    events = decode(
        added(call_item("", 0), 0),
        added(call_item("", 1), 1),
        delta("function_call_arguments", "{}", 1),
        done(call_item("{}", 1), 1),
        delta("function_call_arguments", "{}", 0),
        done(call_item("{}", 0), 0),
        completed(),
    )
    assert [(type(event).__name__, getattr(event, "index", None)) for event in events] == [
        ("PartStarted", 0),
        ("PartStarted", 1),
        ("PartDelta", 1),
        ("PartFinished", 1),
        ("PartDelta", 0),
        ("PartFinished", 0),
        ("ModelFinished", None),
    ]
    assert [part.id for part in parts(events) if isinstance(part, ToolCall)] == ["call_1", "call_0"]


@pytest.mark.parametrize("arguments", ["{zone: UTC}", "[1]", '{"a": NaN}', "[" * 100_000])
def test_arguments_that_are_no_json_object_are_kept_raw(arguments: str):
    (call,) = parts(decode(added(call_item("")), done(call_item(arguments)), completed()))
    assert isinstance(call, ToolCall)
    assert call.arguments == {"_raw": arguments}


def test_reasoning_is_kept_as_its_finished_item_with_summaries_apart():
    item = reasoning_item("First.", "Then.")
    events = decode(
        added(reasoning_item(encrypted="gAA-half")),
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
        delta("reasoning_summary_text", "First."),
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
        delta("reasoning_summary_text", "Then."),
        done(item),
        completed(),
    )
    assert parts(events) == (Reasoning("First.\n\nThen.", ProviderData("openai", item)),)
    assert "".join(event.text for event in events if isinstance(event, PartDelta)) == "First.\n\nThen."


def test_a_refusal_is_text():
    item = message_item("") | {"content": [{"type": "refusal", "refusal": "I will not."}]}
    events = decode(added(message_item("")), delta("refusal", "I will not."), done(item), completed())
    assert parts(events) == (Text("I will not.", ProviderData("openai", item)),)


def test_items_of_other_kinds_are_passed_over():
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    events = decode(
        added(search, 0),
        delta("reasoning_text", "for nobody", 0),
        {"type": "response.web_search_call.searching", "output_index": 0},
        done(search, 0),
        added(message_item("", 1), 1),
        done(message_item("Found.", 1), 1),
        completed(),
    )
    assert [type(event) for event in events] == [PartStarted, PartFinished, ModelFinished]


def test_a_text_that_ends_after_the_next_item_has_begun_is_one_part():
    told = ("output_text", "Let me look.", 0)
    events = decode(
        added(message_item("", 0), 0),
        delta(*told),
        added(call_item("{}", 1), 1),
        done(call_item("{}", 1), 1),
        done(message_item("Let me look.", 0), 0),
        completed(),
    )
    parts = {event.index: event.part.type for event in events if isinstance(event, PartFinished)}
    assert parts == {0: "text", 1: "tool_call"}
    assert sum(isinstance(event, PartStarted) for event in events) == 2


def test_an_item_that_came_at_once_with_thinking_in_it_is_thinking_and_words():
    item = message_item("<think>Hm.</think>Noon.")
    assert [event.part for event in decode(done(item), completed()) if isinstance(event, PartFinished)] == [
        Reasoning("Hm."),
        Text("Noon."),
    ]


def test_an_item_that_was_never_announced_still_comes_whole():
    events = decode(done(message_item("Hello.")), completed())
    assert [type(event) for event in events] == [PartStarted, PartFinished, ModelFinished]


def test_a_response_cut_by_its_length_ends_with_that_reason_and_the_text_that_came():
    response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": None}
    events = decode(
        added(message_item("")),
        delta("output_text", "It is"),
        {"type": "response.incomplete", "response": response},
    )
    assert events[2:] == [
        PartFinished(0, Text("It is")),
        ModelFinished(Usage(requests=1, cost=None), "max_output_tokens", True),
    ]


def incomplete(reason: str) -> dict[str, Any]:
    response = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return {"type": "response.incomplete", "response": response}


@pytest.mark.parametrize("closed", [True, False])
def test_what_was_cut_off_is_finished_and_not_sent_back_as_an_item(closed: bool):
    item = call_item('{"zone": "U') | {"status": "incomplete"}
    begun = (added(call_item("")), delta("function_call_arguments", '{"zone": "U'))
    events = decode(*begun, *([done(item)] if closed else []), incomplete("max_output_tokens"))
    assert parts(events) == (ToolCall("call_0", "clock", {"_raw": '{"zone": "U'}),)
    assert events[-1] == ModelFinished(Usage(requests=1, cost=None), "max_output_tokens", True)


def test_an_answer_that_was_filtered_is_refused():
    with pytest.raises(BadRequest, match="content filter"):
        decode(added(message_item("")), delta("output_text", "It is"), incomplete("content_filter"))


def test_an_item_comes_out_once_and_nothing_after_the_end():
    item = call_item("{}")
    events = decode(added(item), added(item), done(item), done(item), added(item), completed(), completed(), done(item))
    assert [type(event) for event in events] == [PartStarted, PartFinished, ModelFinished]


def test_a_call_of_nothing_cannot_be_read():
    with pytest.raises(MalformedCall, match="without naming it"):
        decode(done(call_item("{}") | {"name": ""}), completed())


def test_a_call_without_an_id_gets_one_and_is_sent_back_under_it():
    item = call_item("{}") | {"call_id": None}
    (call,) = parts(decode(done(item), completed()))
    assert isinstance(call, ToolCall)
    (sent,) = encode(Request((Message("assistant", (call,)),)), "m")["input"]
    assert sent["call_id"] == call.id != ""


def test_an_item_that_changes_its_type_is_broken():
    with pytest.raises(StreamBroken):
        decode(added(message_item("")), done(call_item("{}")), completed())


def test_a_lone_surrogate_of_the_model_becomes_a_replacement_character_in_the_item_too():
    (text,) = parts(decode(done(message_item("a\ud800")), completed()))
    assert isinstance(text, Text)
    assert text.text == "a\ufffd"
    json.dumps(text.provider_data.data, ensure_ascii=False).encode()  # pyright: ignore[reportOptionalMemberAccess]


def test_a_stream_without_a_closing_event_is_broken():
    with pytest.raises(StreamBroken, match="ended before it was complete"):
        decode(added(message_item("")), delta("output_text", "It is"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("rate_limit_exceeded", RateLimited),
        ("context_length_exceeded", ContextTooLong),
        ("server_error", Unavailable),
        ("invalid_prompt", BadRequest),
        ("invalid_image_url", BadRequest),
        ("never_heard_of", StreamBroken),
        (None, StreamBroken),
    ],
)
def test_an_error_event_midway_is_told_by_its_code(code: str | None, expected: type[Exception]):
    error = {"code": code, "message": "Something happened"}
    with pytest.raises(expected, match="Something happened") as failed:
        decode({"type": "response.failed", "response": {"error": error}})
    with pytest.raises(expected) as event:
        decode({"type": "error", **error})
    assert type(failed.value) is type(event.value) is expected


def test_a_request_is_stateless_and_asks_for_encrypted_reasoning():
    body = encode(Request((user("Hi"),), "Be terse.", (TOOL,)), "gpt-5.4")
    assert body == {
        "model": "gpt-5.4",
        "instructions": "Be terse.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "tools": [
            {
                "type": "function",
                "name": "clock",
                "description": "Tells the time.",
                "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
                "strict": False,
            }
        ],
        "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "stream": True,
    }


def test_without_tools_nothing_is_said_about_them():
    assert encode(Request((user("Hi"),)), "gpt-5.4").keys().isdisjoint({"tools", "tool_choice", "instructions"})


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_general_tool_choice_is_sent_as_it_is(choice: str):
    assert encode(Request((user("Hi"),), "", (TOOL,), choice), "m")["tool_choice"] == choice


def test_a_named_tool_choice_names_the_function():
    body = encode(Request((user("Hi"),), "", (TOOL,), "clock"), "m")
    assert body["tool_choice"] == {"type": "function", "name": "clock"}


def test_what_the_model_wrote_goes_back_verbatim_and_in_order():
    items = [reasoning_item("Look."), call_item('{"zone":  "UTC"}', 1), call_item("{broken", 2)]
    events = decode(*(done(item, place) for place, item in enumerate(items)), completed())
    results = tuple(ToolResult(f"call_{place}", "clock", (Text("noon"),)) for place in (1, 2))
    history = (user("When?"), Message("assistant", parts(events)), Message("tool", results))
    assert encode(Request(history), "m")["input"][1:] == [
        *items,
        {"type": "function_call_output", "call_id": "call_1", "output": "noon"},
        {"type": "function_call_output", "call_id": "call_2", "output": "noon"},
    ]


def test_a_history_made_elsewhere_is_encoded_afresh_without_its_reasoning():
    foreign = ProviderData("gemini", {"thought_signature": "x"})
    answer = Message(
        "assistant",
        (Reasoning("Hm.", foreign), Text("Let me look.", foreign), ToolCall("c" * 80, "clock", {"a": "é"}, foreign)),
    )
    result = Message("tool", (ToolResult("c" * 80, "clock", (Text("noon"),)),))
    text, call, output = encode(Request((answer, result)), "m")["input"]
    assert text == {"role": "assistant", "content": "Let me look."}
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "clock", '{"a": "é"}')
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64


def test_an_answer_cut_off_by_the_user_is_sent_as_text_without_the_reasoning_that_led_to_it():
    own = ProviderData("openai", reasoning_item("Hm."))
    half = Message("assistant", (Reasoning("Hm.", own), Text("It is")), interrupted=True)
    assert encode(Request((user("When?"), half, user("Go on."))), "m")["input"][1:] == [
        {"role": "assistant", "content": "It is"},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ]


def test_reasoning_that_cannot_be_found_again_is_left_out_and_what_it_led_to_goes_without_its_id():
    bare = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None}
    answer = Message("assistant", (Reasoning("", own(bare)), ToolCall("call_0", "clock", {}, own(call_item("{}")))))
    (call,) = encode(Request((answer,)), "gpt-5.4")["input"]
    assert call == {"type": "function_call", "call_id": "call_0", "name": "clock", "arguments": "{}"}


@pytest.mark.parametrize("model", ["gpt-4.1", "ft:gpt-4o:mine", "gpt-5-chat-latest"])
def test_a_model_that_does_not_reason_is_neither_sent_reasoning_nor_asked_for_it(model: str):
    answer = Message(
        "assistant", (Reasoning("Hm.", own(reasoning_item("Hm."))), Text("Noon.", own(message_item("Noon."))))
    )
    body = encode(Request((answer,)), model)
    assert body["input"] == [{"role": "assistant", "content": "Noon."}]
    assert "include" not in body


def test_reasoning_whose_call_got_another_id_is_left_out():
    renamed = ToolCall("call_other", "clock", {})
    second = ToolCall("call_1", "clock", {}, own(call_item("{}", 1)))
    answer = Message("assistant", (Reasoning("Hm.", own(reasoning_item("Hm."))), renamed, second))
    items = encode(Request((answer,)), "gpt-5.4")["input"]
    assert [item["type"] for item in items] == ["function_call", "function_call"]
    assert all("id" not in item for item in items)


def test_an_interrupted_answer_of_nothing_but_reasoning_is_left_out():
    half = Message("assistant", (Reasoning("Hm.", own(reasoning_item("Hm."))),), interrupted=True)
    assert len(encode(Request((user("Hi"), half, user("Go on."))), "gpt-5.4")["input"]) == 2


def test_a_message_of_the_user_that_says_nothing_is_not_sent_empty():
    for nothing in (user(""), user()):
        (item,) = encode(Request((nothing,)), "m")["input"]
        assert item["content"] == [{"type": "input_text", "text": "(no words)"}]


@pytest.mark.parametrize("name", ["a.b/c", "ü" * 70, "x" * 65, ""])
def test_the_name_of_a_call_that_openai_would_refuse_is_made_legal(name: str):
    (item,) = encode(Request((Message("assistant", (ToolCall("a", name, {}),)),)), "m")["input"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["name"])


def test_what_no_encoding_can_write_is_replaced_wherever_it_stands():
    lone = "\ud800"
    history = (
        Message("user", (Text(lone), Media("image/png", b"", lone))),
        Message("assistant", (Text(lone), ToolCall(lone, lone, {lone: [lone, float("nan")]}))),
        Message("tool", (ToolResult(lone, lone, (Text(lone),)),)),
    )
    tool = ToolDef("clock", lone, {"type": "object", "description": lone})
    json.dumps(encode(Request(history, lone, (tool,)), "m"), ensure_ascii=False, allow_nan=False).encode()


def test_the_form_of_an_answer_is_a_json_schema():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    body = encode(Request((user("Hi"),), output=OutputSchema("answer", schema)), "m")
    assert body["text"] == {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}}


def own(item: dict[str, Any]) -> ProviderData:
    return ProviderData("openai", item)


def test_images_and_documents_of_the_user_go_as_they_are_and_the_rest_is_named():
    sound, page = Media("audio/wav", b"RIFF"), Resource("file:///a.txt", text="words")
    body = encode(Request((user("Look:", PNG, Media("application/pdf", b"%PDF"), sound, page),)), "m")
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"},
        {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_text", "text": "[audio/wav, 4 bytes]"},
        {"type": "input_text", "text": "[resource file:///a.txt]\nwords"},
    ]


def test_an_image_in_a_tool_result_reaches_the_model():
    result = ToolResult("call_1", "plot", (Text("Here."), PNG))
    (output,) = encode(Request((Message("tool", (result,)),)), "m")["input"]
    assert [part["type"] for part in output["output"]] == ["input_text", "input_image"]


@pytest.mark.parametrize("status", ["error", "denied", "interrupted", "timeout"])
def test_a_failed_result_says_so(status: Any):
    results = (
        ToolResult("call_1", "clock", (Text("no such zone"),), status),
        ToolResult("call_2", "clock", (Text("half a plot"), PNG), status),
    )
    first, second = encode(Request((Message("tool", results),)), "m")["input"]
    assert first["output"] == "Error: no such zone"
    assert second["output"][0] == {"type": "input_text", "text": "Error:"}


def test_it_is_a_model_and_is_named_after_its_provider():
    assert isinstance(OpenAIResponses("gpt-5.4"), Model)
    assert OpenAIResponses("gpt-5.4").name == "openai:gpt-5.4"


def played(name: str) -> list[tuple[dict[str, Any], list[ModelEvent], dict[str, Any]]]:
    """Play a recording: per exchange the recorded request, our events, and the request we would send next."""
    exchanges = recorded(name)
    seen = []
    with Loopback(exchanges) as server:
        for exchange in exchanges:
            model = OpenAIResponses("gpt-5.4", base_url=f"{server.url}/v1", api_key="sk-test")
            request = read_request(exchange.request)
            events = ask(model, request)
            answer = Message("assistant", parts(events))
            results = tuple(ToolResult(call.id, call.name, (Text("2024-01-01"),)) for call in answer.calls)
            history = (*request.messages, answer, *([Message("tool", results)] if results else []))
            following = Request(history, request.instructions, request.tools)
            seen.append((exchange.request, events, encode(following, "gpt-5.4")))
        assert [(got.method, got.path) for got in server.requests] == [("POST", "/v1/responses")] * len(exchanges)
        for exchange, got in zip(exchanges, server.requests, strict=True):
            assert normal(got.json) == normal(exchange.request)
    return seen


def read_request(recorded_request: dict[str, Any]) -> Request:
    """Read the recorded request back into our terms."""
    instructions, messages = "", []
    for item in recorded_request["input"]:
        match item:
            case {"role": "system", "content": [{"text": instructions}]}:
                continue
            case {"role": "user", "content": content}:
                messages.append(Message("user", tuple(read_content(part) for part in content)))
            case {"type": "function_call"}:
                call = ToolCall(item["call_id"], item["name"], json.loads(item["arguments"]))
                messages.append(Message("assistant", (call,)))
            case {"type": "function_call_output", "call_id": call_id, "output": output}:
                messages.append(Message("tool", (ToolResult(call_id, "", (Text(output),)),)))
    tools = tuple(
        ToolDef(tool["name"], tool["description"], tool["parameters"]) for tool in recorded_request.get("tools", ())
    )
    return Request(tuple(messages), instructions, tools)


def read_content(part: dict[str, Any]) -> Text | Media:
    if part["type"] == "input_text":
        return Text(part["text"])
    head, comma, data = part["image_url"].partition(";base64,")
    if not comma:  # the address of an image, which we do not send
        return Text(part["image_url"])
    return Media(head.removeprefix("data:"), b64decode(data))


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """Bring a request into the form in which ours and the recorded client's must agree."""
    items = list(body["input"])
    if "instructions" in body:
        items.insert(0, {"role": "system", "content": [{"type": "input_text", "text": body["instructions"]}]})
    return {
        "items": [entry for item in items for entry in normal_item(item)],
        "tools": [{**tool, "strict": None} for tool in body.get("tools", ())],
        **{key: body[key] for key in ("model", "store", "stream", "include")},
    }


def normal_item(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a message by its contents, and drop what the API ignores on the way in."""
    if item.get("type") in ("function_call", "function_call_output"):
        return [{key: item.get(key) for key in ("type", "call_id", "name", "arguments", "output")}]
    entries = []
    for part in item["content"]:
        value = part.get("text") or part["image_url"]
        kind = "input_text" if value.startswith("http") else part["type"]
        entries.append({"role": item["role"], "type": kind, "value": value})
    return entries


def test_the_recorded_text_is_read():
    ((_, events, following),) = played("responses_simple_streaming_request")
    assert [part.text for part in parts(events) if isinstance(part, Text)] == ["2"]
    assert isinstance(events[-1], ModelFinished)
    assert events[-1].usage.input_tokens > 0
    assert following["input"][-1]["id"].startswith("msg_")


def test_the_recorded_calls_are_read_and_answered_as_the_api_accepted_it():
    seen = played("responses_tool_variations_async")
    assert len(seen) == 4
    for (_, events, following), (accepted, answered, _) in zip(seen[::2], seen[1::2], strict=True):
        (call,) = parts(events)
        assert isinstance(call, ToolCall)
        assert call.arguments == {}
        ours, theirs = normal(following), normal(accepted)
        assert ids_consistent(following)
        assert ids_consistent(accepted)
        assert without_ids(ours) == without_ids(theirs)
        assert [part.text for part in parts(answered) if isinstance(part, Text)] == ["2024-01-01"]


def ids_consistent(body: dict[str, Any]) -> bool:
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    return calls == outputs != []


def without_ids(body: dict[str, Any]) -> dict[str, Any]:
    """Leave the ids of the calls out: the recorded client sends the item's id in their place."""
    return body | {"items": [{**item, "call_id": None} for item in body["items"]]}


def test_the_recorded_images_are_sent_and_their_description_read():
    for _, events, following in played("responses_images"):
        (text,) = parts(events)
        assert isinstance(text, Text)
        assert text.text == "".join(event.text for event in events if isinstance(event, PartDelta))
        assert following["input"][-1]["content"][0]["text"] == text.text


@pytest.mark.parametrize(
    ("model", "reasoning", "left_out"),
    [
        ("gpt-5.4", None, {"seed"}),
        ("gpt-5.4", "none", {"seed"}),
        ("gpt-5.4", "low", {"seed", "temperature"}),
        ("gpt-5-mini", None, {"seed", "temperature"}),
        ("o4-mini", "high", {"seed", "temperature"}),
        ("gpt-4o", "low", {"seed", "reasoning"}),
    ],
)
def test_a_model_takes_the_settings_that_openai_documents(model, reasoning, left_out):
    settings = ModelSettings(temperature=0, seed=1, reasoning=reasoning)
    assert set(settings.given) - set(OpenAIResponses(model).honours(settings)) == left_out
    compatible = OpenAIResponses(model, base_url="http://localhost:1/v1")
    assert set(settings.given) - set(compatible.honours(settings)) == {"seed"}
