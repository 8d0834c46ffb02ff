import pytest

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.events import PartFinished
from agentmagic.messages import (
    Media,
    Message,
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
from agentmagic.providers.anthropic.decoder import Decoder, refusal
from agentmagic.providers.anthropic.encoder import BINDING, encode, honoured_names
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.base import ModelFinished, ModelSettings, OutputSchema, Request
from tests.providers.loopback import Exchange, Loopback, ask
from tests.providers.strict.anthropic import event

MODEL = "claude-sonnet-5-5"
OLD = "claude-haiku-4-5-20251001"
KEY = "test-key-0123456789"
CLOCK = ToolDef("clock", "Tell the time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
PNG = Media("image/png", b"\x89PNG", "plot.png")
PDF = Media("application/pdf", b"%PDF", "paper.pdf")
CSV = Media("text/csv; charset=utf-8", b"a,b\n1,2")
WAV = Media("audio/wav", b"ab")
HELLO = Request((user("Hello"),))
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "c2VjcmV0"}


def own(data):
    return ProviderData("anthropic", data)


def start(**usage):
    return {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 3, **usage}}}


def end(reason="end_turn", **more):
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}, **more}, STOP]


STOP = {"type": "message_stop"}


def block(place, empty, *deltas):
    pieces = [{"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas]
    begin = {"type": "content_block_start", "index": place, "content_block": empty}
    return [begin, *pieces, {"type": "content_block_stop", "index": place}]


def says(place, *texts):
    return block(place, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


def calls(place, *pieces, **more):
    empty = {"type": "tool_use", "id": f"toolu_{place}", "name": "clock", "input": {}, **more}
    return block(place, empty, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def decode(*events):
    decoder = Decoder(MODEL)
    told = [part_event for one in events for part_event in decoder.feed(one)]
    return [*told, *decoder.close()]


def parts_of(*events):
    return [one.part for one in decode(*events) if isinstance(one, PartFinished)]


# ---- answers


def test_an_answer_becomes_parts_of_its_blocks():
    thinking = [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}]
    parts = parts_of(
        start(),
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, *thinking),
        *block(1, REDACTED),
        *says(2, "Let me ", "look."),
        *calls(3, '{"zone": ', '"UTC"}', caller={"type": "direct"}),
        *calls(4),
        *end("tool_use"),
    )
    assert parts == [
        Reasoning("Hm.", own(THOUGHT)),
        Reasoning("", own(REDACTED)),
        Text("Let me look."),
        ToolCall("toolu_3", "clock", {"zone": "UTC"}, own({"caller": {"type": "direct"}})),
        ToolCall("toolu_4", "clock", {}),
    ]


def test_blocks_of_the_server_and_citations_go_back_as_they_came():
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    cited = {"type": "web_search_result_location", "encrypted_index": "x"}
    parts = parts_of(
        start(),
        *block(0, search, {"type": "input_json_delta", "partial_json": '{"query": "noon"}'}),
        *block(1, found),
        *block(
            2,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "Noon."},
            {"type": "citations_delta", "citation": cited},
        ),
        *end(),
    )
    assert encode(Request((user("Hi"), Message("assistant", tuple(parts)), user("And?"))), MODEL)["messages"][1][
        "content"
    ] == [search | {"input": {"query": "noon"}}, found, {"type": "text", "text": "Noon.", "citations": [cited]}]


def test_a_text_that_stays_open_while_the_server_searches_is_one_part():
    begin, first, second, end_ = says(0, "It is ", "noon.")
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    parts = parts_of(start(), begin, first, *block(1, search), *block(2, found), second, end_, *end())
    assert [part.text for part in parts if isinstance(part, Text)] == ["It is noon."]


def test_usage_counts_what_was_read_from_and_written_to_the_cache_as_input():
    cached = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}
    figures = {"output_tokens": 9, "input_tokens": None, "output_tokens_details": {"thinking_tokens": 4}}
    finished = decode(start(**cached), *end(usage=figures))[-1]
    assert finished == ModelFinished(Usage(123, 100, 9, 4, 1, None, 20), "end_turn")


@pytest.mark.parametrize(
    ("first", "last", "usage"),
    [
        ({"input_tokens": 7}, {"input_tokens": 0, "cache_read_input_tokens": 0}, Usage(7, 0, 9, 0, 1, None)),
        ({"input_tokens": 0}, {"input_tokens": 7.0}, Usage(7, 0, 9, 0, 1, None)),
        ({"input_tokens": 7}, {"input_tokens": 8}, Usage(8, 0, 9, 0, 1, None)),
        (
            {"input_tokens": 7, "cache_creation_input_tokens": 5, "cache_creation": {"ephemeral_1h_input_tokens": 3}},
            {"cache_creation_input_tokens": 0, "cache_creation": None},
            Usage(12, 0, 9, 0, 1, None, 5, 3),
        ),
        (
            {"cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3}, "input_tokens": 7},
            {},
            Usage(12, 0, 9, 0, 1, None, 5, 3),
        ),
    ],
)
def test_the_last_figure_that_is_not_zero_counts_and_writes_for_an_hour_apart(first, last, usage):
    assert decode(start(**first), *end(usage={"output_tokens": 9, **last}))[-1].usage == usage


def test_an_answer_that_stopped_at_a_limit_is_cut_and_a_thought_of_it_does_not_go_back():
    thinking = block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm."})
    *_, thought, finished = decode(start(), *thinking, *end("max_tokens"))
    assert (thought.part, finished.cut) == (Reasoning("Hm."), True)
    assert decode(start(), *says(0, "Hel")[:-1], *end("model_context_window_exceeded"))[-1].cut


def test_an_answer_that_claude_declines_is_refused_with_its_reason():
    details = {"type": "refusal", "category": "cyber", "explanation": "Too dangerous."}
    with pytest.raises(BadRequest, match=r"declined to answer \(cyber\): Too dangerous\. Word the request differently"):
        decode(start(), *end(delta={"stop_reason": "refusal", "stop_details": details}))
    with pytest.raises(BadRequest, match="it does not say why"):
        decode(start(), *end("refusal"))


# ---- requests


def sent(*parts, role="user", model=MODEL):
    """The content of a message as it is sent."""
    history = (user("Hi"), Message(role, parts), user("And now?"))
    return encode(Request(history), model)["messages"][1]["content"]


def test_a_request_has_its_parts_where_the_api_wants_them():
    body = encode(Request((user("Hello"),), "Be brief.", (CLOCK,)), MODEL)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body == {
        "model": MODEL,
        "max_tokens": 64_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", **mark}]}],
        "stream": True,
        "thinking": {
            "type": "adaptive",
            "display": "summarized",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
        },
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "tools": [
            {"name": "clock", "description": "Tell the time.", "input_schema": dict(CLOCK.parameters), **mark},
        ],
    }


@pytest.mark.parametrize(
    ("model", "kind", "bound"),
    [
        ("anthropic/claude-opus-6", "adaptive", True),
        ("claude-opus-5-20260724", "adaptive", False),
        ("claude-opus-4-8@20260601", "adaptive", False),
        (OLD, None, False),
        ("claude-sonnet-4-20250514", None, False),
        ("claude-3-7-sonnet-latest", None, False),
        ("glm-5", None, False),
    ],
)
def test_only_models_that_think_by_themselves_are_asked_for_thoughts(model, kind, bound):
    thinking = encode(HELLO, model).get("thinking", {})
    assert (thinking.get("type"), "block_binding" in thinking) == (kind, bound)


def test_thoughts_and_calls_of_claude_go_back_and_those_of_others_do_not():
    foreign = Reasoning("Hm.", ProviderData("openai", {"type": "thinking"}))
    call = ToolCall("call.1", "default_api.clock", {"zone": "UTC"}, own({"caller": {"type": "direct"}}))
    assistant = Message("assistant", (Reasoning("Hm.", own(THOUGHT)), Reasoning("?"), foreign, Text("\n"), call))
    results = Message("tool", (ToolResult("call.1", "default_api.clock", (Text("noon"), PNG)),))
    *_, answer, result = encode(Request((user("Hi"), assistant, results)), MODEL)["messages"]
    thought, tool_use = answer["content"]
    assert thought == THOUGHT
    assert tool_use == {
        "caller": {"type": "direct"},
        "type": "tool_use",
        "id": result["content"][0]["tool_use_id"],
        "name": "default_api_clock",
        "input": {"zone": "UTC"},
    }
    assert [inner["type"] for inner in result["content"][0]["content"]] == ["text", "image"]


def test_media_are_sent_as_images_and_documents_or_named_and_no_answer_ends_in_a_thought():
    image, pdf, text, named, read = sent(PNG, PDF, CSV, WAV, Resource("file:///a", text="words"))
    assert image == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}
    assert (pdf["title"], pdf["source"]["media_type"]) == ("paper.pdf", "application/pdf")
    assert text["source"] == {"type": "text", "media_type": "text/plain", "data": "a,b\n1,2"}
    assert named["text"] == "[audio/wav, 2 bytes]"
    assert read["text"] == "[resource file:///a]\nwords"
    assert sent(Text(" "))[0]["text"] == "(no words)"
    assert sent(Text("Hi."), Reasoning("", own(REDACTED)), role="assistant") == [{"type": "text", "text": "Hi."}]
    assert sent(PNG, role="assistant")[0]["text"] == "[image/png plot.png, 4 bytes]"


def test_the_picture_of_a_failed_call_stands_beside_its_result():
    call = Message("assistant", (ToolCall("a", "plot", {}), ToolCall("b", "plot", {})))
    results = (ToolResult("a", "plot", (Text("no axis"), PNG), "error"), ToolResult("b", "plot", (), "error"))
    failed, empty, label, image = encode(Request((user("Hi"), call, Message("tool", results))), MODEL)["messages"][2][
        "content"
    ]
    assert failed["content"] == [{"type": "text", "text": "no axis\n[image/png plot.png, 4 bytes]"}]
    assert (empty["is_error"], empty["content"]) == (True, [{"type": "text", "text": "(no words)"}])
    assert label["text"] == "From the result of plot: [image/png plot.png, 4 bytes]"
    assert image["type"] == "image"


@pytest.mark.parametrize(
    ("choice", "sent_choice", "words"),
    [
        ("none", {"type": "none"}, None),
        ("required", {"type": "any"}, "Call one of the tools before you answer."),
        ("clock", {"type": "tool", "name": "clock"}, "Call the tool clock before you answer."),
    ],
)
def test_a_choice_of_tools_is_put_into_words_for_models_that_cannot_be_forced(choice, sent_choice, words):
    request = Request((user("Hello"),), "Be brief.", (CLOCK,), choice)
    forced, asked = encode(request, "claude-opus-5"), encode(request, MODEL)
    assert forced["tool_choice"] == sent_choice
    assert asked.get("tool_choice") == (sent_choice if words is None else None)
    assert [text["text"] for text in asked["system"]][1:] == ([] if words is None else [words])


def test_a_form_of_the_answer_is_closed_and_keeps_the_keywords_that_the_api_knows():
    inner = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    either = {"oneOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}], "default": None}
    schema = {
        "$defs": {"Inner": inner},
        "type": "object",
        "properties": {"a": either, "b": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 3}},
        "required": ["a"],
    }
    closed = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    form = encode(Request((user("Hi"),), output=OutputSchema("answer", schema)), MODEL)["output_config"]["format"]
    assert form["schema"] == {
        "$defs": {"Inner": closed},
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
            "b": {"type": "array", "items": {"enum": ["x", "y"]}},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_form_that_allows_any_value_stays_in_words():
    closed = {"type": "object", "properties": {}}
    any_values = ({}, True, {"type": ["string", "null"]})
    opened = ({"type": "object"}, closed | {"additionalProperties": {"type": "integer"}})
    for schema in (*opened, *(closed | {"properties": {"a": one}} for one in any_values)):
        body = encode(Request((user("Hi"),), output=OutputSchema("answer", schema)), MODEL)
        assert "output_config" not in body, schema


def test_a_tool_with_alternatives_at_the_top_of_its_schema_is_sent_without_them():
    tool = ToolDef("odd", "", {"anyOf": [{"required": ["a"]}], "properties": {"a": {}}})
    schema = encode(Request((user("Hi"),), tools=(tool,)), MODEL)["tools"][0]["input_schema"]
    assert schema == {"type": "object", "properties": {"a": {}}}


NONE, HIGH = ModelSettings(reasoning="none"), ModelSettings(reasoning="high")
WARM = ModelSettings(temperature=0.5, seed=1)


@pytest.mark.parametrize(
    ("model", "settings", "honoured", "fields"),
    [
        (MODEL, HIGH, {"reasoning"}, {"output_config": {"effort": "high"}}),
        (MODEL, NONE, {"reasoning"}, {"thinking": {"type": "between_tools"}}),
        ("claude-haiku-5-5", NONE, {"reasoning"}, {"thinking": {"type": "disabled"}}),
        ("claude-opus-5-5", NONE, set(), None),
        ("claude-fable-5-1", NONE, set(), None),
        (OLD, NONE, {"reasoning"}, {"max_tokens": 32_000}),
        (OLD, HIGH, set(), None),
        (MODEL, WARM, set(), None),
        ("glm-5", WARM, {"temperature"}, {"temperature": 0.5}),
        (MODEL, ModelSettings(extra={"speed": "fast"}), {"extra"}, {"speed": "fast"}),
    ],
)
def test_a_model_is_sent_the_settings_that_it_takes(model, settings, honoured, fields):
    assert honoured_names(model, settings) == honoured
    if fields is not None:
        body = encode(Request((user("Hi"),), settings=settings.only(honoured)), model)
        assert {name: body.get(name) for name in fields} == fields


# ---- failures


@pytest.mark.parametrize(
    ("status", "kind", "message", "error", "words"),
    [
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextTooLong, "no longer fits"),
        (413, "request_too_large", "Request exceeds the maximum size", ContextTooLong, "no longer fits"),
        (401, "authentication_error", "invalid x-api-key", AuthenticationFailed, "Check ANTHROPIC_API_KEY"),
        (403, "permission_error", "", AuthenticationFailed, "Check ANTHROPIC_API_KEY"),
        (402, "billing_error", "Pay first.", RateLimited, "quota of Anthropic is used up"),
        (400, "invalid_request_error", "Your credit balance is too low", RateLimited, "used up"),
        (404, "not_found_error", "model: claude-x", BadRequest, "ANTHROPIC_BASE_URL"),
        (None, "rate_limit_error", "", RateLimited, "no more requests for now"),
        (None, "overloaded_error", "Overloaded", Unavailable, r"\(529\)"),
        (500, "api_error", "prompt is too long", Unavailable, r"\(500\)"),  # its failure, whatever it says
        (None, "invalid_request_error", "no", BadRequest, "refused the request"),
    ],
)
def test_a_failure_says_what_to_do(status, kind, message, error, words):
    failure = refusal(status, {"type": "error", "error": {"type": kind, "message": message}}, MODEL)
    assert type(failure) is error
    assert failure.retryable == (error in (RateLimited, Unavailable) and "used up" not in str(failure))
    with pytest.raises(error, match=words):
        raise failure


# ---- through the SDK


def stream(*events):
    return Exchange("".join(map(event, events)))


HI = stream(start(), *says(0, "Hi."), *end())


def test_a_request_goes_out_with_the_key_and_what_the_api_needs():
    request = Request((user("Hello", PNG),), "Be brief.", (CLOCK,))
    with Loopback([HI]) as server:
        events = ask(Anthropic(MODEL, base_url=server.url, api_key=KEY), request)
    assert parts_of(start(), *says(0, "Hi."), *end()) == [one.part for one in events if isinstance(one, PartFinished)]
    (received,) = server.requests
    assert (received.path, received.json) == ("/v1/messages", encode(request, MODEL))
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["anthropic-beta"] == BINDING


def test_an_answer_that_pauses_goes_on_in_a_further_request():
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    paused = stream(start(), *block(0, search), *end("pause_turn"))
    with Loopback([paused, HI]) as server:
        told = ask(Anthropic(MODEL, base_url=server.url, api_key=KEY), HELLO)
    assert [one.index for one in told if isinstance(one, PartFinished)] == [0, 1]
    assert told[-1] == ModelFinished(Usage(6, 0, 18, 0, 2, None), "end_turn", once=False)
    assert server.requests[1].json["messages"][1:] == [{"role": "assistant", "content": [search]}]


def test_an_answer_that_pauses_for_ever_is_broken():
    paused = stream(start(), *says(0, "Hi."), *end("pause_turn"))
    with Loopback([paused] * 30) as server, pytest.raises(StreamBroken, match="paused it 20 times"):
        ask(Anthropic(MODEL, base_url=server.url, api_key=KEY), HELLO)
    assert len(server.requests) == 20
