import asyncio
import gc
import json
import re
import weakref
from base64 import b64encode, urlsafe_b64decode
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any

import pytest
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from agentmagic import secrets
from agentmagic.errors import (
    AuthenticationFailed,
    AuthenticationMissing,
    BadRequest,
    ContextTooLong,
    MalformedCall,
    ProviderError,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.events import PartDelta, PartFinished, PartStarted
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
from agentmagic.providers import clients
from agentmagic.providers.base import Model, ModelFinished, ModelSettings, OutputSchema, Request
from agentmagic.providers.gemini.gemini_decoder import Decoder, refusal
from agentmagic.providers.gemini.gemini_encoder import encode, memo_for
from agentmagic.providers.gemini.gemini_model import Gemini
from tests.providers.loopback import Exchange, Loopback, recorded, sse

MODEL = "gemini-3.5-flash"
KEY = "test-key-0123456789"
SIGNED = "RXZJQ0N1OENBUg=="
WEATHER = ToolDef(
    "weather",
    "Tell the weather",
    {"type": "object", "properties": {"my_city": {"type": "string"}}, "required": ["my_city"]},
)
PNG = Media("image/png", b"\x89PNG\xff\xfe", "chart")
HELLO = Request((user("Hello"),))


def chunk(*parts, reason=None, usage=None, **more):
    """Write a chunk as the API does."""
    candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    counts = {} if usage is None else {"usageMetadata": usage}
    return {"candidates": [candidate], **counts, "modelVersion": MODEL, **more}


def call(name="weather", id: str | None = "c1", signature: str | None = None, **arguments) -> dict[str, Any]:  # noqa: A002  (the protocol's name)
    part = {"functionCall": {"name": name, "args": arguments}}
    if id:
        part["functionCall"]["id"] = id
    return part | ({"thoughtSignature": signature} if signature else {})


def decode(*chunks) -> list[Any]:
    decoder = Decoder(MODEL, mint=lambda: "minted")
    return [event for one in chunks for event in decoder.feed(one)] + list(decoder.close())


def parts_of(events) -> list[Any]:
    return [event.part for event in events if isinstance(event, PartFinished)]


def replay(parts, model=MODEL):
    """Return what an answer of these parts looks like in the next request."""
    return encode(Request((user("Hi"), Message("assistant", tuple(parts)))), model)["contents"][1]["parts"]


def results(*parts, model=MODEL):
    """Return the contents that carry one result of these parts."""
    result = ToolResult("c1", "weather", parts)
    return encode(Request((Message("tool", (result,)),)), model)["contents"]


# ---- decode


def test_adjacent_chunks_of_text_become_one_part():
    assert decode(chunk({"text": "Hel"}), chunk({"text": "lo"}), chunk({"text": ""}, reason="STOP"))[:-1] == [
        PartStarted(0, "text"),
        PartDelta(0, "Hel"),
        PartDelta(0, "lo"),
        PartFinished(0, Text("Hello")),
    ]


def test_thoughts_are_reasoning_and_end_where_text_begins():
    events = decode(
        chunk({"text": "Hm", "thought": True}), chunk({"text": "m", "thought": True}, {"text": "Yes"}, reason="STOP")
    )
    kinds = [(event.index, event.kind) for event in events if isinstance(event, PartStarted)]
    thought = Reasoning("Hmm", ProviderData("gemini", {"text": "Hmm", "thought": True}))
    assert kinds == [(0, "reasoning"), (1, "text")]
    assert parts_of(events) == [thought, Text("Yes")]


def test_a_call_is_started_told_and_finished_with_its_signature():
    part = call(my_city="Ulm", signature=SIGNED)
    assert decode(chunk(part), chunk({"text": ""}, reason="STOP"))[:-1] == [
        PartStarted(0, "tool_call", "weather"),
        PartDelta(0, '{"my_city": "Ulm"}'),
        PartFinished(0, ToolCall("c1", "weather", {"my_city": "Ulm"}, ProviderData("gemini", part))),
    ]


def test_parallel_calls_keep_their_order_and_the_one_signature():
    first, second = call(id="a", my_city="Ulm", signature=SIGNED), call(id="b", my_city="Bonn")
    parts = parts_of(decode(chunk(first), chunk(second), chunk(reason="STOP")))
    assert [part.id for part in parts] == ["a", "b"]
    assert replay(parts) == [first, second]


def test_a_call_without_an_id_gets_one_that_the_replay_has_too():
    (part,) = parts_of(decode(chunk(call(id=None), reason="STOP")))
    assert part.id == "minted"
    assert replay([part])[0]["functionCall"]["id"] == "minted"


def test_minted_ids_differ():
    ids = {
        part.id for _ in range(3) for event in Decoder(MODEL).feed(chunk(call(id=None))) for part in parts_of([event])
    }
    assert len(ids) == 3


def test_a_signature_on_an_empty_text_goes_back_in_its_place():
    signed = {"text": "", "thoughtSignature": SIGNED}
    parts = parts_of(decode(chunk({"text": "Hello"}), chunk(signed, reason="STOP")))
    assert parts == [Text("Hello"), Text("", ProviderData("gemini", signed))]
    assert replay(parts) == [{"text": "Hello"}, signed]


def test_a_part_of_an_unknown_kind_is_named_and_goes_back_as_it_came():
    part = {"executableCode": {"language": "PYTHON", "code": "1"}}
    (text,) = parts_of(decode(chunk(part, reason="STOP")))
    assert "executableCode" in text.text
    assert replay([text]) == [part]


PLAIN_PARTS = st.fixed_dictionaries({"text": st.text(max_size=3)}, optional={"thought": st.just(True)})
SIGNED_PARTS = st.fixed_dictionaries(
    {"text": st.text(max_size=3), "thoughtSignature": st.just(SIGNED)}, optional={"thought": st.just(True)}
)
CALLS = st.builds(call, id=st.sampled_from(["a", "b"]), signature=st.sampled_from([None, SIGNED]))


@given(st.lists(st.lists(PLAIN_PARTS | SIGNED_PARTS | CALLS, max_size=3), max_size=4))
def test_whatever_gemini_answers_goes_back_as_it_came_but_for_the_seams_of_plain_words(chunks):
    sent = [part for parts in chunks for part in parts]
    parts = parts_of(decode(*(chunk(*parts) for parts in chunks), chunk({"text": "."}, reason="STOP")))
    assert replay(parts, "gemini-2.5-pro") == joined([*sent, {"text": "."}])


def joined(parts):
    """Join adjacent plain texts of a kind, and leave empty ones out."""
    whole = []
    for part in parts:
        plain = set(part) <= {"text", "thought"}
        if plain and not part["text"]:
            continue
        if plain and whole and set(whole[-1]) == set(part):
            whole[-1] = whole[-1] | {"text": whole[-1]["text"] + part["text"]}
        else:
            whole.append(part)
    return whole


@given(st.lists(st.lists(PLAIN_PARTS | SIGNED_PARTS | CALLS, max_size=3), max_size=4))
def test_every_part_is_started_once_and_finished_before_the_next(chunks):
    events = decode(*(chunk(*parts) for parts in chunks), chunk(reason="STOP"))
    frame = [type(event) for event in events if not isinstance(event, PartDelta)]
    assert frame == [PartStarted, PartFinished] * (len(frame) // 2) + [ModelFinished]
    assert [event.index for event in events if isinstance(event, PartStarted)] == list(range(len(frame) // 2))


def test_usage_is_that_of_the_last_chunk_with_thoughts_counted_in():
    last = {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 5}
    end = decode(chunk({"text": "a"}, usage={"promptTokenCount": 9}), chunk(reason="STOP", usage=last))[-1]
    assert end == ModelFinished(Usage(9, 4, 8, 5, requests=1, cost=None), "STOP")


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "A_REASON_OF_TOMORROW"])
def test_an_answer_may_be_empty_when_it_has_ended(reason):
    (end,) = decode({"candidates": [{"finishReason": reason}]})
    assert end.reason == reason


@pytest.mark.parametrize("chunks", [[], [chunk({"text": "Hel"})]])
def test_a_stream_without_a_finish_reason_is_broken(chunks):
    with pytest.raises(StreamBroken, match="broke off"):
        decode(*chunks)


@pytest.mark.parametrize("only", [{"usageMetadata": {"promptTokenCount": 1}}, {"candidates": []}])
def test_a_stream_without_candidates_is_a_whole_answer_that_says_nothing(only):
    (end,) = decode(only)
    assert (type(end), end.reason) == (ModelFinished, "NO_CANDIDATES")


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"]
)
def test_an_answer_gemini_could_not_write_is_malformed(reason):
    with pytest.raises(MalformedCall, match=reason) as caught:
        decode({"candidates": [{"finishReason": reason, "finishMessage": "print(default_api.x"}]})
    assert caught.value.retryable
    assert "default_api.x" in str(caught.value)


def test_an_answer_that_stopped_for_no_reason_may_be_asked_for_again():
    with pytest.raises(StreamBroken, match="OTHER"):
        decode({"candidates": [{"finishReason": "OTHER"}]})


def test_a_history_without_its_signatures_would_be_refused_again():
    with pytest.raises(BadRequest, match="MISSING_THOUGHT_SIGNATURE"):
        decode({"candidates": [{"finishReason": "MISSING_THOUGHT_SIGNATURE"}]})


def test_an_answer_that_stopped_at_its_length_is_cut():
    events = decode(chunk({"text": "It is"}, reason="MAX_TOKENS"))
    assert parts_of(events) == [Text("It is")]
    assert (events[-1].cut, decode(chunk(reason="STOP"))[-1].cut) == (True, False)


def test_a_call_of_nothing_cannot_be_read():
    with pytest.raises(MalformedCall, match="without naming it"):
        decode(chunk(call(name="")))


def test_a_part_of_nothing_but_a_signature_says_nothing_and_goes_back():
    signed = {"thoughtSignature": SIGNED}
    hello, empty = parts_of(decode(chunk({"text": "Hello"}), chunk(signed, {}, reason="STOP")))
    assert empty == Text("", ProviderData("gemini", signed))
    assert replay([hello, empty]) == [{"text": "Hello"}, signed]


def test_a_lone_surrogate_of_the_model_becomes_a_replacement_character():
    parts = parts_of(decode(chunk({"text": "a\ud800"}, call(my_city="\ud800"), {"odd\ud800": 1}, reason="STOP")))
    assert [parts[0].text, parts[1].arguments] == ["a\ufffd", {"my_city": "\ufffd"}]
    assert "odd\ufffd" in parts[2].text
    json.dumps(replay(parts), ensure_ascii=False).encode()


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST", "LANGUAGE"])
def test_a_blocked_answer_is_refused_with_the_reason(reason):
    with pytest.raises(BadRequest, match=f"blocked its answer .{reason}.: it") as caught:
        decode(chunk({"text": "Hel"}), {"candidates": [{"finishReason": reason}]})
    assert not caught.value.retryable


def test_a_blocked_prompt_is_refused_with_the_reason():
    with pytest.raises(BadRequest, match=r"blocked the prompt .PROHIBITED_CONTENT."):
        decode({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 503, "message": "The model is overloaded."}, Unavailable),
        ({"message": "Odd"}, Unavailable),
        ({"status": "RESOURCE_EXHAUSTED"}, RateLimited),
        ({"status": "UNAUTHENTICATED"}, AuthenticationFailed),
        ({"code": 400, "message": "API key not valid."}, AuthenticationFailed),
        ({"code": 400, "message": "The input token count (9) exceeds the maximum"}, ContextTooLong),
        ({"code": "odd", "status": ["odd"], "details": {"odd": 1}}, Unavailable),
        ("odd", Unavailable),
    ],
)
def test_an_error_in_the_stream_is_told_by_its_code(error, kind):
    with pytest.raises(ProviderError) as caught:
        decode(chunk({"text": "a"}), {"error": error})
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "odd",
    [[], "text", None, {"candidates": {"content": []}}, {"candidates": [7]}, chunk(7), chunk({"functionCall": 7})],
)
def test_what_is_no_answer_is_broken(odd):
    with pytest.raises(StreamBroken):
        decode(odd)


# ---- encode


def test_instructions_and_tools_go_where_gemini_wants_them():
    body = encode(Request((user("Hi"),), "Be brief.", (WEATHER,)), MODEL)
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["tools"][0]["functionDeclarations"] == [
        {"name": "weather", "description": "Tell the weather", "parametersJsonSchema": WEATHER.parameters}
    ]
    assert "toolConfig" not in body


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("weather", {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
    ],
)
def test_a_tool_choice_is_a_calling_mode(choice, config):
    body = encode(Request((user("Hi"),), tools=(WEATHER,), tool_choice=choice), MODEL)
    assert body["toolConfig"] == {"functionCallingConfig": config}


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("gemini-3.5-flash", True),
        ("models/gemini-2.5-pro", True),
        ("gemini-2.5-flash", True),
        ("gemini-2.5-flash-lite", False),
        ("gemini-2.5-flash-image", False),
        ("gemini-2.0-flash", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_thoughts_are_asked_of_models_that_think(model, asked):
    assert ("generationConfig" in encode(HELLO, model)) is asked


def test_media_of_a_prompt_go_inline_and_the_rest_in_words():
    parts = (
        PNG,
        Media("audio/wav", b"ab"),
        Media("application/zip", b"abc", "data.zip"),
        Resource("file:///a", text="A"),
    )
    assert encode(Request((user("Look:", *parts),)), MODEL)["contents"][0]["parts"] == [
        {"text": "Look:"},
        {"inlineData": {"mimeType": "image/png", "data": b64encode(PNG.data).decode()}},
        {"inlineData": {"mimeType": "audio/wav", "data": "YWI="}},
        {"text": "[application/zip data.zip, 3 bytes]"},
        {"text": "[resource file:///a]\nA"},
    ]


def test_the_results_of_a_step_are_one_content_in_the_order_of_the_calls():
    parts = (ToolResult("a", "weather", (Text("sun"),)), ToolResult("b", "clock", (Text("late"),), "error"))
    (content,) = encode(Request((Message("tool", parts),)), MODEL)["contents"]
    assert content == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "a", "name": "weather", "response": {"output": "sun"}}},
            {"functionResponse": {"id": "b", "name": "clock", "response": {"error": "late"}}},
        ],
    }


def test_an_image_of_a_result_goes_inside_it():
    (content,) = results(Text("Here:"), PNG)
    response = content["parts"][0]["functionResponse"]
    assert response["response"] == {"output": "Here:\n[image/png chart, 6 bytes]"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": b64encode(PNG.data).decode()}}]


@pytest.mark.parametrize(("model", "media"), [("gemini-2.5-flash", PNG), (MODEL, Media("audio/wav", b"ab"))])
def test_media_that_no_result_may_hold_follow_beside_it(model, media):
    answered, beside = results(media, model=model)
    assert "parts" not in answered["parts"][0]["functionResponse"]
    assert beside["parts"][0]["text"].startswith("From the result of weather: [")
    assert beside["parts"][1]["inlineData"]["mimeType"] == media.media_type


def test_media_that_gemini_cannot_read_are_named_in_the_result():
    (content,) = results(Media("application/zip", b"abc"))
    assert content["parts"][0]["functionResponse"]["response"] == {"output": "[application/zip, 3 bytes]"}


def test_the_first_call_of_another_provider_skips_the_check_of_signatures():
    theirs = ProviderData("openai", {"encrypted_content": "x"})
    parts = (
        Reasoning("Hm", theirs),
        Text("Wait", theirs),
        ToolCall("a", "f", {}, theirs),
        ToolCall("b", "f", {"n": 1}),
    )
    text, first, second = replay(parts)
    assert text == {"text": "Wait"}
    assert first["thoughtSignature"] == b64encode(b"skip_thought_signature_validator").decode()
    assert second == {"functionCall": {"id": "b", "name": "f", "args": {"n": 1}}}


def test_a_message_with_nothing_to_say_is_left_out():
    thought = Reasoning("Hm", ProviderData("gemini", {"text": "Hm", "thought": True}))
    signed = Text("", ProviderData("gemini", {"text": "", "thoughtSignature": SIGNED}))
    silent = [(), (Reasoning("Hm"),), (thought,), (thought, signed), (Text(""),)]
    for parts in silent:
        messages = (user("Hi"), Message("assistant", parts, interrupted=True), user("Go on"))
        assert [content["parts"] for content in encode(Request(messages), MODEL)["contents"]] == [
            [{"text": "Hi"}],
            [{"text": "Go on"}],
        ]


def test_a_message_of_the_user_that_says_nothing_is_not_sent_empty():
    for nothing in (user(""), user()):
        assert encode(Request((nothing,)), MODEL)["contents"] == [{"role": "user", "parts": [{"text": "(no words)"}]}]


@pytest.mark.parametrize(
    ("model", "checked"), [(MODEL, True), ("gemini-flash-latest", True), ("gemini-2.5-pro", False)]
)
def test_a_call_that_an_older_gemini_left_unsigned_skips_the_check_of_newer_ones(model, checked):
    (part,) = replay(parts_of(decode(chunk(call(), reason="STOP"))), model)
    assert ("thoughtSignature" in part) is checked


def test_a_call_is_not_signed_anew_where_its_answer_is_signed_before_it():
    parts = parts_of(decode(chunk({"text": "Hm", "thoughtSignature": SIGNED}, call(), reason="STOP")))
    assert "thoughtSignature" not in replay(parts)[1]


@pytest.mark.parametrize("name", ["a b/c", "ü" * 70, "x" * 200, "", "3d"])
def test_a_name_that_gemini_would_refuse_is_made_legal_in_the_call_and_its_result(name):
    own = ToolCall("b", name, {}, ProviderData("gemini", {"functionCall": {"id": "b", "name": name, "args": {}}}))
    history = (
        Message("assistant", (ToolCall("a", name, {}), own)),
        Message("tool", (ToolResult("a", name, ()), ToolResult("b", name, ()))),
    )
    called, answered = encode(Request(history), MODEL)["contents"]
    names = {part["functionCall"]["name"] for part in called["parts"]}
    names |= {part["functionResponse"]["name"] for part in answered["parts"]}
    assert len(names) == 1
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", names.pop())


def test_what_no_encoding_can_write_is_replaced_wherever_it_stands():
    lone = "\ud800"
    history = (
        Message("user", (Text(lone), Media("image/png", b"", lone))),
        Message("assistant", (Text(lone), ToolCall(lone, lone, {lone: [lone, float("nan")]}))),
        Message("tool", (ToolResult(lone, lone, (Text(lone),)),)),
    )
    tool = ToolDef("clock", lone, {"type": "object", "description": lone})
    json.dumps(encode(Request(history, lone, (tool,)), MODEL), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("model", "tools", "held"),
    [
        (MODEL, (), True),
        (MODEL, (WEATHER,), True),
        ("gemini-flash-latest", (WEATHER,), True),
        ("gemini-2.5-flash", (), True),
        ("models/gemini-2.5-flash", (WEATHER,), False),
        ("gemma-3-27b-it", (), False),
    ],
)
def test_the_form_of_an_answer_goes_to_the_models_that_take_one(model, tools, held):
    schema = {"$schema": "x", "type": "object", "properties": {"n": {"type": "integer"}}}
    body = encode(Request((user("Hi"),), tools=tools, output=OutputSchema("answer", schema)), model)
    config = body.get("generationConfig", {})
    asked = (config.get("responseMimeType"), config.get("responseJsonSchema"))
    assert asked == (
        ("application/json", {"type": "object", "properties": schema["properties"]}) if held else (None,) * 2
    )


def test_a_schema_loses_only_the_keywords_gemini_does_not_know():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "examples": {"type": "integer", "exclusiveMinimum": 0, "examples": [1]},
            "kind": {"const": "a", "title": "Kind"},
            "any": True,
            "node": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null", "const": None}]},
        },
        "required": ["examples"],
        "additionalProperties": False,
        "$defs": {"Node": {"type": "array", "items": {"type": ["string", "null"], "examples": ["x"]}}},
    }
    body = encode(Request((user("Hi"),), tools=(ToolDef("f", "", schema),)), MODEL)
    assert body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == {
        "type": "object",
        "properties": {
            "examples": {"type": "integer"},
            "kind": {"enum": ["a"], "title": "Kind"},
            "any": {},
            "node": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null", "enum": [None]}]},
        },
        "required": ["examples"],
        "additionalProperties": False,
        "$defs": {"Node": {"type": "array", "items": {"type": ["string", "null"]}}},
    }


def test_a_memo_writes_what_would_be_written_without_it():
    past = (
        user("Hi", PNG),
        Message("assistant", (ToolCall("a", "f", {}),)),
        Message("tool", (ToolResult("a", "f", ()),)),
    )
    memo = memo_for(MODEL)
    first = encode(Request(past[:1]), MODEL, memo)
    second = encode(Request(past), MODEL, memo)
    assert second == encode(Request(past), MODEL)
    assert second["contents"][0] is first["contents"][0]


# ---- errors


def error(message, code=400, status="INVALID_ARGUMENT", **more):
    return {"error": {"code": code, "message": message, "status": status, **more}}


BAD_KEY = error("API key not valid. Please pass a valid API key.", details=[{"reason": "API_KEY_INVALID"}])
TOO_LONG = error("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).")
QUOTA = error(
    "You exceeded your current quota.",
    429,
    "RESOURCE_EXHAUSTED",
    details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}],
)


@pytest.mark.parametrize(
    ("status", "payload", "kind", "words"),
    [
        (400, BAD_KEY, AuthenticationFailed, "GOOGLE_API_KEY"),
        (401, error("No."), AuthenticationFailed, "refused the key"),
        (403, error("Permission denied"), AuthenticationFailed, "Permission denied"),
        (400, TOO_LONG, ContextTooLong, "no longer fits"),
        (400, error("Odd schema"), BadRequest, "It says: Odd schema. The"),
        (404, error("models/x is not found"), BadRequest, "no model 'gemini-3.5-flash'"),
        (404, {"message": "<html>", "status": "Not Found"}, BadRequest, "GOOGLE_GEMINI_BASE_URL"),
        (429, QUOTA, RateLimited, "quota"),
        (408, None, Unavailable, "not available"),
        (500, [error("Internal")], Unavailable, "Internal"),
        (503, error("The model is overloaded."), Unavailable, "Try again later"),
    ],
)
def test_a_refusal_says_what_happened_and_what_to_do(status, payload, kind, words):
    refused = refusal(status, payload, MODEL)
    assert type(refused) is kind
    assert words in str(refused)
    assert refused.status == status


def test_the_delay_gemini_asks_for_is_kept():
    assert refusal(429, QUOTA, MODEL, retry_after=9.0).retry_after == 34.07
    assert refusal(429, {}, MODEL, retry_after=9.0).retry_after == 9.0
    assert refusal(503, {}, MODEL).retry_after is None


def test_the_quota_of_a_day_is_not_worth_another_try():
    violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
    daily = error("You exceeded your current quota.", 429, details=[{"violations": [violation]}])
    assert not refusal(429, daily, MODEL).retryable
    assert refusal(429, QUOTA, MODEL).retryable


def test_a_secret_in_the_words_of_the_provider_is_blanked_and_long_words_cut():
    secrets.register_secret(KEY)
    refused = refusal(400, error(f"bad {KEY} " + "x" * 9000), MODEL)
    assert KEY not in str(refused)
    assert len(str(refused)) < 700


# ---- through the SDK


@pytest.fixture(autouse=True)
def known_key(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


async def collect(model, request) -> list[Any]:
    try:
        return [event async for event in model.stream(request)]
    finally:
        await model.aclose()


def ask(server, request=HELLO, model=MODEL):
    return asyncio.run(collect(Gemini(model, base_url=server.url), request))


def answer(*chunks, **more):
    return Exchange(sse(*chunks), **more)


def refused_by(exchange):
    with Loopback([exchange]) as server, pytest.raises(ProviderError) as caught:
        ask(server)
    return caught.value


def test_a_gemini_is_a_model():
    assert isinstance(Gemini(MODEL), Model)
    assert Gemini(MODEL).name == "gemini:gemini-3.5-flash"


def test_the_request_is_ours_and_the_events_are_those_of_the_answer():
    chunks = [
        chunk({"text": "Hm", "thought": True}),
        chunk({"text": "Grüße\u2028!"}, call(my_city="Ulm")),
        chunk(reason="STOP"),
    ]
    request = Request((user("Hello", PNG),), "Be brief.", (WEATHER,), "required")
    with Loopback([answer(*chunks)]) as server:
        assert ask(server, request) == decode(*chunks)
    (sent,) = server.requests
    assert sent.path == "/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse"
    assert sent.json == encode(request, MODEL)
    assert sent.headers["x-goog-api-key"] == KEY


@pytest.mark.parametrize("cut", [None, 1, 5, 11, 32, 35, 36])  # from 32 on: within and behind "data:"
def test_comments_and_other_fields_of_a_stream_are_passed_over(cut):
    chunks = [chunk({"text": "Grüße"}), chunk({"text": "!"}, reason="STOP")]
    written = [f"event: message\nid: 7\ndata:{json.dumps(one)}\n\n" for one in chunks]
    body = ": ping\r\n\r\n" + ": ping\n\n".join(written)
    with Loopback([Exchange(body, stall_at=cut)]) as server:
        server.release()
        assert ask(server) == decode(*chunks)


def test_signatures_survive_a_round_trip():
    signed = [call(my_city="Ulm", signature="+/+/AAAA"), {"text": "", "thoughtSignature": "/+A="}]
    with Loopback([answer(chunk(*signed, reason="STOP"))]) as server:
        back = replay(parts_of(ask(server)))
    assert [urlsafe(part["thoughtSignature"]) for part in back] == [
        urlsafe(part["thoughtSignature"]) for part in signed
    ]


def test_requests_share_a_connection_until_it_is_closed():
    async def twice(model):
        first = [event async for event in model.stream(HELLO)]
        return first == await collect(model, HELLO)

    with Loopback([answer(chunk({"text": "a"}, reason="STOP"))] * 3) as server:
        model = Gemini(MODEL, base_url=server.url)
        assert asyncio.run(twice(model))
        assert asyncio.run(collect(model, HELLO))  # on another event loop, after aclose
        asyncio.run(model.aclose())
    assert len(server.requests) == 3


def test_the_environment_names_server_and_key(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "another-key-of-google")
    with Loopback([answer(chunk(reason="STOP"))]) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        asyncio.run(collect(Gemini("models/gemini-2.0-flash"), HELLO))
    assert server.requests[0].path.startswith("/v1beta/models/gemini-2.0-flash:")
    assert server.requests[0].headers["x-goog-api-key"] == "another-key-of-google"


def test_a_missing_key_is_told_at_the_first_request(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEMINI_API_KEY")
    model = Gemini(MODEL)
    with pytest.raises(AuthenticationMissing, match="GOOGLE_API_KEY or GEMINI_API_KEY"):
        asyncio.run(collect(model, HELLO))


@pytest.mark.parametrize("key", ["schlüssel-0123456789", "key-of-\n-two-lines"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(key):
    with pytest.raises(AuthenticationFailed, match="characters") as caught:
        asyncio.run(collect(Gemini(MODEL, api_key=key), HELLO))
    assert key not in str(caught.value)


def test_a_truncated_stream_is_broken():
    assert "broke off" in str(refused_by(answer(chunk({"text": "Hel"}))))
    cut = refused_by(answer(chunk({"text": "Hel"}), chunk(reason="STOP"), cut_at=120))
    assert isinstance(cut, StreamBroken)


def test_an_error_does_not_quote_a_page_for_people():
    error = refused_by(Exchange("<html>Bad gateway</html>", 502, "text/html"))
    assert type(error) is Unavailable
    assert "<html>" not in str(error)


@pytest.mark.parametrize(
    "body",
    [
        "",
        f"data: {'[' * 100_000}\n\n",
        'data: {"candidates": [{\n\n',
        "<html>a proxy</html>",
        "data: [1]\n\n",
        'data: {"candidates": [7]}\n\n',
    ],
)
def test_what_is_no_event_stream_is_broken(body):
    assert isinstance(refused_by(Exchange(body)), StreamBroken)


def test_a_page_in_place_of_an_answer_names_the_base_url_and_is_not_asked_for_again():
    page = refused_by(Exchange("<html>Sign in</html>", 200, "text/html; charset=utf-8"))
    assert isinstance(page, BadRequest)
    assert "GOOGLE_GEMINI_BASE_URL" in str(page)


def test_a_server_that_does_not_speak_tls_is_not_tried_again():
    with Loopback([]) as server:
        model = Gemini(MODEL, base_url=server.url.replace("http", "https"))
        with pytest.raises(Unavailable, match="TLS") as caught:
            asyncio.run(collect(model, HELLO))
    assert not caught.value.retryable
    assert "GOOGLE_GEMINI_BASE_URL" in str(caught.value)


def test_a_stream_without_a_byte_for_too_long_is_broken(monkeypatch):
    monkeypatch.setattr(clients, "SILENCE_TIMEOUT", 0.05)
    assert isinstance(refused_by(answer(chunk({"text": "Hello"}), stall_at=60)), StreamBroken)


def test_refusals_reach_the_caller():
    limited = refused_by(Exchange(json.dumps(QUOTA), 429, "application/json"))
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == 34.07
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    for headers, seconds in ({"retry-after": "7"}, 7.0), ({"retry-after-ms": "500"}, 0.5), ({"retry-after": later}, 60):
        busy = refused_by(Exchange("busy", 503, "text/plain", headers))
        assert isinstance(busy, Unavailable)
        assert busy.retry_after == pytest.approx(seconds, abs=5)
    assert isinstance(refused_by(Exchange(json.dumps(BAD_KEY), 400, "application/json")), AuthenticationFailed)
    assert isinstance(refused_by(answer(chunk({"text": "a"}), error("Busy.", 503))), Unavailable)


@pytest.mark.parametrize("body", ["[" * 100_000, "[1, 2]", '{"error": null}', "a proxy", "", '{"error": "\udce9"}'])
def test_a_refusal_with_an_odd_body_is_told_by_its_status(body):
    for status, kind in (401, AuthenticationFailed), (503, Unavailable):
        assert type(refused_by(Exchange(body, status, "application/json"))) is kind


def test_a_refusal_that_breaks_off_is_told_by_its_status():
    assert type(refused_by(Exchange("no" * 100, 401, "text/plain", cut_at=20))) is AuthenticationFailed


def test_a_body_is_not_kept_after_its_answer(monkeypatch):
    sent = []
    build = AsyncClient.build_request

    def built(*args, **options):
        request = build(*args, **options)
        sent.append(weakref.ref(request))
        return request

    monkeypatch.setattr(AsyncClient, "build_request", built)
    gc.disable()
    try:
        with Loopback([answer(chunk({"text": "Hello"}, reason="STOP"))]) as server:
            ask(server)
        assert [request() for request in sent] == [None] * len(sent) != []
    finally:
        gc.enable()


def test_an_error_that_stands_in_the_stream_as_plain_json_is_told():
    begun = sse(chunk({"text": "Hel"}))
    busy = refused_by(Exchange(begun + json.dumps(error("Busy.", 503), indent=2)))
    assert isinstance(busy, Unavailable)
    assert "Busy." in str(busy)


def test_a_server_that_is_not_there_is_unavailable():
    with Loopback([]) as server:
        url = server.url
    with pytest.raises(Unavailable, match=r"cannot be reached .*GOOGLE_GEMINI_BASE_URL"):
        asyncio.run(collect(Gemini(MODEL, base_url=url), HELLO))


@pytest.mark.parametrize("url", ["localhost:1234", "ftp://127.0.0.1/", "http://[::1", "http://[", "nonsense"])
def test_a_base_url_that_is_none_is_refused(url):
    with pytest.raises(BadRequest, match="GOOGLE_GEMINI_BASE_URL"):
        asyncio.run(collect(Gemini(MODEL, base_url=url), HELLO))


@pytest.mark.parametrize("stall_at", [0, 60])
def test_cancelling_drops_a_stalled_connection_at_once(stall_at):
    async def cancel():
        model = Gemini(MODEL, base_url=server.url)
        task = asyncio.create_task(collect(model, HELLO))
        await asyncio.to_thread(server.stalled.wait, 20)
        start = monotonic()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.dropped.wait, 0.5)
        return monotonic() - start

    with Loopback([answer(chunk({"text": "Hello"}), stall_at=stall_at)]) as server:
        assert asyncio.run(cancel()) < 0.5


def test_an_answer_nobody_reads_on_drops_its_connection():
    async def read_one():
        model = Gemini(MODEL, base_url=server.url)
        stream = model.stream(HELLO)
        assert await anext(stream) == PartStarted(0, "text")
        await asyncio.to_thread(server.stalled.wait, 20)
        await stream.aclose()
        dropped = await asyncio.to_thread(server.dropped.wait, 5)
        await model.aclose()
        return dropped

    body = sse(chunk({"text": "Hello"}))
    with Loopback([Exchange(body + body, stall_at=len(body))]) as server:
        assert asyncio.run(read_one())


def test_vertex_is_asked_with_the_project_and_no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "credentials.json"))
    token = {"access_token": "token-of-google", "expires_in": 3600, "token_type": "Bearer"}
    exchanges = [Exchange(json.dumps(token), 200, "application/json"), answer(chunk({"text": "Hi"}, reason="STOP"))]
    with Loopback(exchanges) as server:
        credentials = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
        (tmp_path / "credentials.json").write_text(json.dumps(credentials))
        monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", server.url)
        monkeypatch.setenv("GOOGLE_VERTEX_BASE_URL", server.url)
        assert asyncio.run(collect(Gemini(MODEL), HELLO)) == decode(chunk({"text": "Hi"}, reason="STOP"))
    asked = server.requests[-1]
    assert asked.path.endswith(
        f"/projects/my-project/locations/global/publishers/google/models/{MODEL}:streamGenerateContent?alt=sse"
    )
    assert asked.headers["authorization"] == "Bearer token-of-google"
    assert "x-goog-api-key" not in asked.headers
    assert asked.json == encode(HELLO, MODEL)


def test_vertex_without_a_project_says_what_to_set(monkeypatch):
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "1")
    with pytest.raises(AuthenticationFailed, match="GOOGLE_CLOUD_PROJECT"):
        asyncio.run(collect(Gemini(MODEL), HELLO))


def test_vertex_without_credentials_says_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(AuthenticationFailed, match="gcloud auth application-default login"):
        asyncio.run(collect(Gemini(MODEL), HELLO))


# ---- recorded traffic


def urlsafe(data):
    return urlsafe_b64decode(data.replace("+", "-").replace("/", "_"))


def messages_of(contents, answers):
    """Turn recorded contents into our history, with our own decoded answers in place of the recorded ones."""
    answers = iter(answers)
    for content in contents:
        if content["role"] == "model":
            yield Message("assistant", tuple(next(answers)))
        elif "functionResponse" in content["parts"][0]:
            responses = [part["functionResponse"] for part in content["parts"]]
            yield Message(
                "tool", tuple(ToolResult(r["id"], r["name"], (Text(r["response"]["result"]),)) for r in responses)
            )
        else:
            yield user(*(spoken(part) for part in content["parts"]))


def spoken(part):
    blob = part.get("inlineData")
    return Media(blob["mimeType"], urlsafe(blob["data"])) if blob else part["text"]


def normal(body):
    """Reduce a body to what both clients mean: contents, instructions, tools."""
    declared = [tool for group in body.get("tools", []) for tool in group["functionDeclarations"]]
    return {
        "contents": [
            [normal_part(part) for part in content["parts"] if part.get("text") != ""] for content in body["contents"]
        ],
        "roles": [content["role"] for content in body["contents"]],
        "instructions": body.get("systemInstruction", {}).get("parts"),
        "tools": [(tool["name"], tool["description"], normal_schema(tool)) for tool in declared],
    }


def normal_part(part):
    part = json.loads(json.dumps(part))
    if "thoughtSignature" in part:
        part["thoughtSignature"] = urlsafe(part["thoughtSignature"])
    if "inlineData" in part:
        part["inlineData"]["data"] = urlsafe(part["inlineData"]["data"])
    if "functionResponse" in part:
        part["functionResponse"]["response"] = list(part["functionResponse"]["response"].values())
    return part


def normal_schema(tool):
    text = json.dumps(tool.get("parametersJsonSchema") or tool["parameters"], sort_keys=True)
    return re.sub(r'"[A-Z]+"', lambda word: word[0].lower(), text)


def request_of(body, answers):
    tools = tuple(
        ToolDef(tool["name"], tool["description"], json.loads(normal_schema(tool)))
        for group in body.get("tools", [])
        for tool in group["functionDeclarations"]
    )
    instructions = body.get("systemInstruction", {"parts": [{"text": ""}]})["parts"][0]["text"]
    return Request(tuple(messages_of(body["contents"], answers)), instructions, tools)


RECORDINGS = {
    "gemini_simple_streaming_request": [["2"]],
    "gemini_images_inline": [["This image is a solid, bright red color.", ""]],
    "gemini_tools_simple": [["get_date"], ["It is 2024-01-01.", ""], ["get_date"], ["It is January.", ""]],
    "gemini_tools_parallel": [["favorite_color", "favorite_color"], ["Joe sage green Hadley red", ""]],
}


@pytest.mark.parametrize(("name", "expected"), RECORDINGS.items())
def test_a_recording_comes_out_as_events_and_goes_on_as_it_was_accepted(name, expected, monkeypatch):
    exchanges = recorded(name)
    answers = []
    with Loopback(exchanges) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        for exchange in exchanges:
            events = asyncio.run(collect(Gemini(MODEL), request_of(exchange.request, answers)))
            answers.append(parts_of(events))
            assert events[-1].reason == "STOP"
            assert events[-1].usage.reasoning_tokens > 0
    assert [[part.name if isinstance(part, ToolCall) else part.text for part in parts] for parts in answers] == expected
    assert [normal(sent.json) for sent in server.requests] == [normal(exchange.request) for exchange in exchanges]


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3.5-flash", "none", {"thinkingLevel": "MINIMAL", "includeThoughts": False}),
        ("gemini-3.5-flash", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-2.5-flash-lite", "low", {"thinkingBudget": 1024, "includeThoughts": True}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0, "includeThoughts": False}),
        ("gemini-2.5-pro", "none", None),
        ("gemini-2.0-flash", "low", None),
    ],
)
def test_effort_is_a_level_or_a_budget_of_thoughts(model, effort, thinking):
    settings = ModelSettings(reasoning=effort)
    honoured = settings.only(Gemini(model).honours(settings))
    assert honoured.given == (("reasoning",) if thinking else ())
    config = encode(Request((user("Hi"),), settings=honoured), model).get("generationConfig", {})
    assert thinking in (None, config.get("thinkingConfig"))
