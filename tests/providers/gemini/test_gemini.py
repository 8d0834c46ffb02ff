import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    MalformedCall,
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
from agentmagic.providers.base import ModelFinished, ModelSettings, Request
from agentmagic.providers.gemini.decoder import Decoder, refusal
from agentmagic.providers.gemini.encoder import encode
from agentmagic.providers.gemini.model import Gemini
from tests.providers.loopback import Exchange, Loopback, ask, sse

MODEL = "gemini-3.5-flash"
KEY = "test-key-0123456789"
SIGNED = "RXZJQ0N1OENBUg=="
WEATHER = ToolDef(
    "weather",
    "Tell the weather",
    {"type": "object", "properties": {"my_city": {"type": "string"}}, "required": ["my_city"]},
)
ZIP = Media("application/zip", b"abc", "data.zip")
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


def error(message, code=400, status="INVALID_ARGUMENT", **more):
    return {"error": {"code": code, "message": message, "status": status, **more}}


# ---- decode


def test_thoughts_text_and_calls_become_parts_and_the_usage_is_that_of_the_last_chunk():
    part = call(my_city="Ulm", signature=SIGNED)
    last = {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 5}
    assert decode(
        chunk({"text": "Hm", "thought": True}, usage={"promptTokenCount": 9}),
        chunk({"text": "m", "thought": True}, {"text": "Yes"}),
        chunk({"text": "."}, part, {"text": ""}, reason="STOP", usage=last),
    ) == [
        PartStarted(0, "reasoning"),
        PartDelta(0, "Hm"),
        PartDelta(0, "m"),
        PartFinished(0, Reasoning("Hmm", ProviderData("gemini", {"text": "Hmm", "thought": True}))),
        PartStarted(1, "text"),
        PartDelta(1, "Yes"),
        PartDelta(1, "."),
        PartFinished(1, Text("Yes.")),
        PartStarted(2, "tool_call", "weather"),
        PartDelta(2, '{"my_city": "Ulm"}'),
        PartFinished(2, ToolCall("c1", "weather", {"my_city": "Ulm"}, ProviderData("gemini", part))),
        ModelFinished(Usage(9, 4, 8, 5, requests=1, cost=None), "STOP"),
    ]


CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}


def test_parts_that_hold_no_words_go_back_as_they_came():
    sent = [{"text": "Hello"}, {"thoughtSignature": SIGNED}, CODE, RAN]
    parts = parts_of(decode(*map(chunk, sent), chunk({}, reason="STOP")))
    assert [part.type for part in parts] == ["text", "text", "hosted_call", "hosted_result"]
    assert replay(parts) == sent


def test_a_call_without_an_id_gets_one_that_the_replay_has_too():
    (part,) = parts_of(decode(chunk(call(id=None), reason="STOP")))
    assert part.id == replay([part])[0]["functionCall"]["id"] == "minted"
    first, second = (parts_of(Decoder(MODEL).feed(chunk(call(id=None)))) for _ in range(2))
    assert first[0].id != second[0].id


PLAIN_PARTS = st.fixed_dictionaries({"text": st.text(max_size=3)}, optional={"thought": st.just(True)})
SIGNED_PARTS = st.fixed_dictionaries(
    {"text": st.text(max_size=3), "thoughtSignature": st.just(SIGNED)}, optional={"thought": st.just(True)}
)
CALLS = st.builds(call, id=st.uuids().map(str), signature=st.sampled_from([None, SIGNED]))


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


def test_a_whole_answer_may_say_nothing():
    for only, reason in (
        ({"candidates": [{"finishReason": "A_REASON_OF_TOMORROW"}]}, "A_REASON_OF_TOMORROW"),
        ({"usageMetadata": {"promptTokenCount": 1}}, "NO_CANDIDATES"),
    ):
        (end,) = decode(only)
        assert (type(end), end.reason, end.cut) == (ModelFinished, reason, False)


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (
            {"promptFeedback": {"blockReason": "JAILBREAK"}},
            BadRequest,
            r"blocked the prompt \(JAILBREAK\): it may be an",
        ),
        (error("The model is overloaded.", 503), Unavailable, "overloaded"),
        ({"finishReason": "SAFETY"}, BadRequest, r"blocked its answer \(SAFETY\): it may be unsafe"),
        ({"finishReason": "SPII", "finishMessage": "Names."}, BadRequest, r"blocked its answer \(SPII\): Names\. Word"),
        ({"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "p(x"}, MalformedCall, r"\(MAL.*: p\(x\)"),
        ({"finishReason": "UNEXPECTED_TOOL_CALL"}, MalformedCall, "was not offered"),
        ({"finishReason": "OTHER"}, StreamBroken, "OTHER"),
        ({"finishReason": "MISSING_THOUGHT_SIGNATURE"}, BadRequest, "Start a new session, or undo a turn"),
    ],
)
def test_an_answer_that_was_withheld_or_could_not_be_written_says_why(end, kind, words):
    with pytest.raises(kind, match=words) as caught:
        decode(chunk({"text": "Hel"}), {"candidates": [end]} if "finishReason" in end else end)
    assert caught.value.retryable is kind.retryable


# ---- encode


def test_instructions_tools_and_the_choice_of_one_go_where_gemini_wants_them():
    bodies = [
        encode(Request((user("Hi"),), "Be brief.", (WEATHER,), one), MODEL) for one in ("auto", "none", "weather")
    ]
    assert bodies[0]["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert bodies[0]["tools"][0]["functionDeclarations"] == [
        {"name": "weather", "description": "Tell the weather", "parametersJsonSchema": WEATHER.parameters}
    ]
    assert [body.get("toolConfig", {}).get("functionCallingConfig") for body in bodies] == [
        None,
        {"mode": "NONE"},
        {"mode": "ANY", "allowedFunctionNames": ["weather"]},
    ]


def test_media_of_a_prompt_go_inline_and_the_rest_in_words():
    parts = (
        PNG,
        Media("audio/wav", b"ab"),
        ZIP,
        Resource("file:///a", text="A"),
    )
    assert encode(Request((user("Look:", *parts),)), MODEL)["contents"][0]["parts"] == [
        {"text": "Look:"},
        {"inlineData": {"mimeType": "image/png", "data": b64encode(PNG.data).decode()}},
        {"inlineData": {"mimeType": "audio/wav", "data": "YWI="}},
        {"text": "[application/zip data.zip, 3 bytes]"},
        {"text": "[resource file:///a]\nA"},
    ]


def test_the_results_of_a_step_are_one_content_with_their_images():
    parts = (ToolResult("a", "weather", (Text("sun"), PNG, ZIP)), ToolResult("b", "clock", (Text("late"),), "error"))
    (content,) = encode(Request((Message("tool", parts),)), MODEL)["contents"]
    first, second = (part["functionResponse"] for part in content["parts"])
    assert (content["role"], first["id"], first["name"]) == ("user", "a", "weather")
    assert first["response"] == {"output": "sun\n[image/png chart, 6 bytes]\n[application/zip data.zip, 3 bytes]"}
    assert first["parts"] == [{"inlineData": {"mimeType": "image/png", "data": b64encode(PNG.data).decode()}}]
    assert second == {"id": "b", "name": "clock", "response": {"error": "late"}}


@pytest.mark.parametrize(("model", "media"), [("gemini-2.5-flash", PNG), (MODEL, Media("audio/wav", b"ab"))])
def test_media_that_no_result_may_hold_follow_beside_it(model, media):
    result = Message("tool", (ToolResult("c1", "weather", (media,)),))
    answered, beside = encode(Request((result,)), model)["contents"]
    assert "parts" not in answered["parts"][0]["functionResponse"]
    assert beside["parts"][0]["text"].startswith("From the result of weather: [")
    assert beside["parts"][1]["inlineData"]["mimeType"] == media.media_type


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


def test_a_call_that_an_older_gemini_left_unsigned_skips_the_check_of_newer_ones():
    parts = parts_of(decode(chunk(call(), reason="STOP")))
    replays = [replay(parts, model) for model in (MODEL, "gemini-flash-latest", "gemini-2.5-pro")]
    assert ["thoughtSignature" in part for (part,) in replays] == [True, True, False]


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


# ---- errors


BAD_KEY = error("API key not valid. Please pass a valid API key.", details=[{"reason": "API_KEY_INVALID"}])
TOO_LONG = error("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).")
DELAY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
DAILY = {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}


@pytest.mark.parametrize(
    ("status", "payload", "kind", "words"),
    [
        (400, BAD_KEY, AuthenticationFailed, "GOOGLE_API_KEY"),
        (403, error("Permission denied"), AuthenticationFailed, "Permission denied"),
        (400, TOO_LONG, ContextTooLong, "no longer fits"),
        (400, error("Odd schema"), BadRequest, "It says: Odd schema. The"),
        (404, {"message": "<html>", "status": "Not Found"}, BadRequest, "GOOGLE_GEMINI_BASE_URL"),
        (500, [error("Internal")], Unavailable, "Internal"),
        (None, error("The model is overloaded.", 503), Unavailable, "Try again later"),
        (None, {"error": {"status": "RESOURCE_EXHAUSTED"}}, RateLimited, "no more requests for now"),
        (None, {"error": {"status": "UNAUTHENTICATED"}}, AuthenticationFailed, "refused the key"),
        (None, {"error": {"code": "odd", "status": ["odd"], "details": {"odd": 1}}}, Unavailable, "(500)"),
        (None, {"error": "odd"}, Unavailable, "(500)"),
    ],
)
def test_a_refusal_says_what_happened_and_what_to_do(status, payload, kind, words):
    refused = refusal(status, payload, MODEL)
    assert type(refused) is kind
    assert words in str(refused)
    assert refused.status == status or status is None


def test_the_delay_gemini_asks_for_is_kept_and_the_quota_of_a_day_is_not_worth_another_try():
    limited, daily = (refusal(429, error("No.", 429, details=[one]), MODEL, retry_after=9.0) for one in (DELAY, DAILY))
    assert (limited.retry_after, limited.retryable) == (34.07, True)
    assert (daily.retry_after, daily.retryable, "quota" in str(daily)) == (9.0, False, True)


# ---- through the SDK


def answer(*chunks):
    return Exchange(sse(*chunks))


def asked(server, request=HELLO, model=MODEL):
    return ask(Gemini(model, base_url=server.url, api_key=KEY), request)


def test_the_request_is_ours_and_the_events_are_those_of_the_answer():
    chunks = chunk({"text": "Hm", "thought": True}), chunk({"text": "Grüße\u2028!"}, call()), chunk(reason="STOP")
    request = Request((user("Hello", PNG),), "Be brief.", (WEATHER,), "required")
    with Loopback([answer(*chunks)]) as server:
        assert asked(server, request, f"models/{MODEL}") == decode(*chunks)
    (sent,) = server.requests
    assert sent.path == "/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse"
    assert sent.json == encode(request, MODEL)
    assert sent.headers["x-goog-api-key"] == KEY


def test_an_error_that_stands_in_the_stream_as_plain_json_is_told():
    body = sse(chunk({"text": "Hel"})) + json.dumps(error("Busy.", 503), indent=2)
    with Loopback([Exchange(body)]) as server, pytest.raises(Unavailable, match=r"Busy\."):
        asked(server)


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
        assert ask(Gemini(MODEL), HELLO) == decode(chunk({"text": "Hi"}, reason="STOP"))
    asked = server.requests[-1]
    assert asked.path.endswith(
        f"/projects/my-project/locations/global/publishers/google/models/{MODEL}:streamGenerateContent?alt=sse"
    )
    assert asked.headers["authorization"] == "Bearer token-of-google"
    assert "x-goog-api-key" not in asked.headers
    assert asked.json == encode(HELLO, MODEL)


@pytest.mark.parametrize("location", ["global", "us", "eu", "us-central1"])
def test_the_address_of_vertex_is_the_one_that_the_sdk_chooses(monkeypatch, location):
    from google.auth.credentials import AnonymousCredentials
    from google.genai import Client

    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", location)
    sdk = Client(vertexai=True, project="my-project", location=location, credentials=AnonymousCredentials())
    assert f"{Gemini(MODEL).reached_at}/" == sdk._api_client._http_options.base_url


def test_another_address_of_vertex_needs_another_client(monkeypatch):
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")

    async def addresses():
        model, found = Gemini(MODEL), []
        for location in ("us", "eu"):
            monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", location)
            client = await model._client()
            found.append(client._client._api_client._http_options.base_url)
        await model.aclose()
        return found

    assert asyncio.run(addresses()) == [f"https://aiplatform.{one}.rep.googleapis.com" for one in ("us", "eu")]


@pytest.mark.parametrize(
    ("project", "words"), [("", "GOOGLE_CLOUD_PROJECT"), ("my-project", "gcloud auth application-default login")]
)
def test_vertex_without_a_project_or_credentials_says_what_to_do(monkeypatch, tmp_path, project, words):
    given = {"GOOGLE_GENAI_USE_VERTEXAI": "1", "GOOGLE_CLOUD_PROJECT": project}
    for name, value in (given | {"CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AuthenticationFailed, match=words):
        ask(Gemini(MODEL), HELLO)


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
