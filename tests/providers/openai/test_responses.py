"""The Responses API: what is sent, and what is made of what comes back."""

from dataclasses import replace
from typing import Any

import pytest

from agentmagic.errors import BadRequest, StreamBroken, Unavailable
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import (
    HostedCall,
    HostedResult,
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
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, OutputSchema, Request
from agentmagic.providers.openai.responses import Decoder, OpenAIResponses, encode

USAGE = {
    "input_tokens": 58,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 15,
    "output_tokens_details": {"reasoning_tokens": 5},
}
SCHEMA = {"parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}
TOOL = ToolDef("clock", "Tells the time.", SCHEMA["parameters"])
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


def test_items_come_in_deltas_each_at_its_own_index_and_then_whole():
    said, call = message_item("It is noon.", 0), call_item("{}", 1)
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    assert decode(
        {"type": "response.created", "response": {}},
        added(message_item("")),
        delta("output_text", "It is "),
        added(search, 2),
        added(call_item("", 1), 1),
        delta("function_call_arguments", "{", 1),
        delta("output_text", "noon."),
        delta("function_call_arguments", "}", 1),
        {"type": "response.web_search_call.searching", "output_index": 2},
        done(search, 2),
        done(call, 1),
        done(said),
        completed(),
    ) == [
        PartStarted(0, "text"),
        PartDelta(0, "It is "),
        PartStarted(1, "hosted_call", "web_search"),
        PartStarted(2, "tool_call", "clock"),
        PartDelta(2, "{"),
        PartDelta(0, "noon."),
        PartDelta(2, "}"),
        PartFinished(1, HostedCall("ws_1", "web_search", {}, "OpenAI", ProviderData("openai", search))),
        PartStarted(3, "hosted_result", "web_search"),
        PartFinished(3, HostedResult("ws_1", "web_search", (), "ok", ProviderData("openai", {}))),
        PartFinished(2, ToolCall("call_1", "clock", {}, ProviderData("openai", call))),
        PartFinished(0, Text("It is noon.", ProviderData("openai", said))),
        ModelFinished(Usage(58, 8, 15, 5, 1, None), "completed"),
    ]


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


def incomplete(reason: str) -> dict[str, Any]:
    response = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return {"type": "response.incomplete", "response": response}


REFUSAL = message_item("") | {"content": [{"type": "refusal", "refusal": "I will not."}]}
HALF = call_item('{"zone": "U')
BEGUN = (added(call_item("")), delta("function_call_arguments", '{"zone": "U'))
CUT_CALL = ToolCall("call_0", "clock", {"_raw": '{"zone": "U'})


@pytest.mark.parametrize(
    ("chunks", "part", "cut"),
    [
        ([done(REFUSAL), completed()], Text("I will not.", ProviderData("openai", REFUSAL)), False),
        ([done(message_item("<think>Hm.</think>")), completed()], Reasoning("Hm."), False),
        ([added(message_item("")), delta("output_text", "It is"), incomplete("max_tokens")], Text("It is"), True),
        ([added(reasoning_item()), delta("reasoning_text", "Hm"), incomplete("max_tokens")], Reasoning("Hm"), True),
        ([*BEGUN, incomplete("max_output_tokens")], CUT_CALL, True),
        ([*BEGUN, done(HALF | {"status": "incomplete"}), incomplete("max_output_tokens")], CUT_CALL, True),
        ([*BEGUN, done(HALF | {"status": "incomplete"}), completed(status="incomplete")], CUT_CALL, True),
    ],
)
def test_an_item_becomes_a_part_that_goes_back_only_if_it_is_whole(chunks, part: Part, cut: bool):
    events = decode(*chunks)
    assert parts(events) == (part,)
    assert events[-1].cut is cut


def test_a_refusal_is_marked_whatever_event_it_comes_in():
    words = {"type": "response.refusal.done", "output_index": 0, "refusal": "I will not."}
    for chunks in (
        [done(REFUSAL), completed()],
        [completed(output=[REFUSAL])],
        [added(message_item("")), delta("refusal", "I will "), delta("refusal", "not."), words, completed()],
    ):
        events = decode(*chunks)
        assert [part.text for part in parts(events)] == ["I will not."]
        assert events[-1].refused
    assert not decode(done(message_item("I will not.")), completed())[-1].refused


def failed(code: str | None) -> list[dict[str, Any]]:
    """Both events that report a failure."""
    error = {"code": code, "message": "It said so"}
    return [{"type": "response.failed", "response": {"error": error}}, {"type": "error", **error}]


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (incomplete("content_filter"), BadRequest, "content filter"),
        (completed(status="cancelled"), StreamBroken, r"\(cancelled\)"),
        *((event, Unavailable, "It said so") for event in failed("server_error")),
        *((event, StreamBroken, "It said so") for event in failed("never_heard_of") + failed(None)),
    ],
)
def test_an_answer_that_was_withheld_or_failed_is_an_error(event, kind: type[Exception], words: str):
    with pytest.raises(kind, match=words) as caught:
        decode(added(message_item("")), delta("output_text", "It is"), event)
    assert type(caught.value) is kind


def test_an_item_comes_out_once_and_nothing_after_the_end():
    item = call_item("{}")
    events = decode(added(item), added(item), done(item), done(item), added(item), completed(), completed(), done(item))
    assert [type(event) for event in events] == [PartStarted, PartFinished, ModelFinished]


def test_a_call_without_an_id_gets_one_and_is_sent_back_under_it():
    item = call_item("{}") | {"call_id": None}
    (call,) = parts(decode(done(item), completed()))
    assert isinstance(call, ToolCall)
    (sent,) = encode(Request((Message("assistant", (call,)),)), "m")["input"]
    assert sent["call_id"] == call.id != ""


def test_a_request_is_stateless_and_asks_for_encrypted_reasoning():
    body = encode(Request((user("Hi"),), "Be terse.", (TOOL,)), "gpt-5.4")
    assert body == {
        "model": "gpt-5.4",
        "instructions": "Be terse.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "tools": [{"type": "function", "name": "clock", "description": "Tells the time.", **SCHEMA, "strict": False}],
        "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "stream": True,
    }


def test_tools_and_the_choice_of_one_are_named_only_if_there_are_any():
    assert encode(Request((user("Hi"),)), "gpt-5.4").keys().isdisjoint({"tools", "tool_choice", "instructions"})
    choices = [encode(Request((user("Hi"),), "", (TOOL,), one), "m")["tool_choice"] for one in ("required", "clock")]
    assert choices == ["required", {"type": "function", "name": "clock"}]


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


BARE = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None}
CALL = ToolCall("call_0", "clock", {}, ProviderData("openai", call_item("{}")))
FRESH = {"type": "function_call", "call_id": "call_0", "name": "clock", "arguments": "{}"}


@pytest.mark.parametrize(
    ("reasoning", "led_to", "items"),
    [
        (reasoning_item("Hm."), (Text("It is"),), [{"role": "assistant", "content": "It is"}]),  # cut off by the user
        (BARE, (CALL,), [FRESH]),  # nothing is stored at OpenAI
        (reasoning_item("Hm."), (replace(CALL, provider_data=None), CALL), [FRESH, FRESH]),  # its call lost its item
    ],
)
def test_reasoning_without_its_item_is_left_out_and_what_it_led_to_is_written_anew(reasoning, led_to, items):
    answer = Message("assistant", (Reasoning("Hm.", own(reasoning)), *led_to))
    assert encode(Request((answer,)), "gpt-5.4")["input"] == items


@pytest.mark.parametrize("model", ["gpt-4.1", "ft:gpt-4o:mine", "gpt-5-chat-latest"])
def test_a_model_that_does_not_reason_is_neither_sent_reasoning_nor_asked_for_it(model: str):
    parts = (Reasoning("Hm.", own(reasoning_item("Hm."))), Text("Noon.", own(message_item("Noon."))))
    body = encode(Request((Message("assistant", parts),)), model)
    assert body["input"] == [{"role": "assistant", "content": "Noon."}]
    assert "include" not in body


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


def test_a_result_has_its_images_and_says_if_it_failed():
    contents = ((Text("no such zone"),), (Text("half a plot"), PNG))
    results = tuple(ToolResult(f"call_{place}", "plot", content, "timeout") for place, content in enumerate(contents))
    first, second = encode(Request((Message("tool", results),)), "m")["input"]
    assert first["output"] == "Error: no such zone"
    assert second["output"][0] == {"type": "input_text", "text": "Error:"}
    assert [part["type"] for part in second["output"][1:]] == ["input_text", "input_image"]


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


FOUND = {"type": "search_results", "queries": ["noon"], "results": [{"url": "https://a.example/", "title": "A"}]}
FETCHED = {"type": "fetch_url_results", "contents": [{"url": "https://a.example/", "title": "A", "snippet": "a"}]}


@pytest.mark.parametrize(
    ("item", "name", "arguments"), [(FOUND, "web_search", {"queries": ["noon"]}), (FETCHED, "web_fetch", {})]
)
def test_pages_that_perplexity_found_are_a_search_that_goes_back_as_text(item, name: str, arguments):
    events = decode(added(item), done(item), completed(output=[item]))
    call, result = parts(events)
    assert isinstance(call, HostedCall)
    assert isinstance(result, HostedResult)
    assert (events[0], call.name, call.arguments) == (PartStarted(0, "hosted_call", name), name, arguments)
    assert [page.uri for page in result.content if isinstance(page, Resource)] == ["https://a.example/"]
    sent = encode(Request((Message("assistant", (call, result)),)), "m")["input"]
    assert {one["role"] for one in sent} == {"assistant"}
    assert "https://a.example/" in str(sent)
    assert "type" not in str([one.keys() for one in sent])
