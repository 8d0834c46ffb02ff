"""Refusals that name a field: it is found in the request, left out, told, and remembered for the server."""

import asyncio
import json
import time
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from agentmagic import Agent, ModelSettings, Session
from agentmagic.errors import ProviderError
from agentmagic.loop.retry import MENDS
from agentmagic.messages import user
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.base import Request, merge
from agentmagic.providers.failures import find_refused_field
from agentmagic.providers.gemini.model import Gemini
from agentmagic.providers.ollama import Ollama
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.responses import OpenAIResponses
from agentmagic.providers.wire import omit_fields
from agentmagic.testing import run
from tests.providers.loopback import Exchange, Loopback
from tests.providers.test_wire import ANY_JSON
from tests.turns import notices

SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "pattern": r"\d{4}", "format": "uri", "default": "1"},
        "strict": {"$ref": "#/$defs/one"},
    },
    "$defs": {"one": {"type": "string", "pattern": "x", "const": {"pattern": "kept"}}},
    "additionalProperties": False,
}
ECHO = {"role": "assistant", "content": "Hm.", "reasoning_content": "Hm.", "tool_calls": []}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "unsupported parameter: stream_options"}, ECHO],
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": {"name": "strict", "parameters": SCHEMA, "strict": False}}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "max_tokens": 9,
    "reasoning": {"effort": "low"},
    "reasoning_effort": "low",
    "seed": 1,
    "format": {"type": "object"},
    "think": True,
}
CALL = {"functionCall": {"id": "1", "name": "f", "args": {"id": "kept"}}, "thoughtSignature": "x"}
GEMINI = {
    "contents": [{"role": "model", "parts": [CALL]}],
    "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
    "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
}
PLACE = "tools[0].function_declarations[0].parameters.properties[1].value"


def pydantic(*where, kind="extra_forbidden", words="Extra inputs are not permitted"):
    echoed = {"content": "`seed` is not supported"}
    return {"detail": [{"type": kind, "loc": ["body", *where], "msg": words, "input": echoed}]}


REFUSALS = [
    # top-level fields, in the words of OpenAI, Azure, Groq, xAI, Cohere, TGI, Mistral and LiteLLM
    ({"message": "Unrecognized request argument supplied: stream_options"}, "body.stream_options"),
    ("Additional properties are not allowed ('stream_options' was unexpected)", "body.stream_options"),
    ({"message": "property 'parallel_tool_calls' is unsupported"}, "body.parallel_tool_calls"),
    ("Model m does not support parameter reasoningEffort.", "body.reasoning_effort"),
    ("Argument not supported on this model: parallelToolCalls", "body.parallel_tool_calls"),
    ('parameter "seed" is not a valid field', "body.seed"),
    ("unknown field `seed`, expected one of `model`, `temperature`", "body.seed"),
    (pydantic("parallel_tool_calls"), "body.parallel_tool_calls"),
    ({"message": {"detail": pydantic("stream_options")["detail"]}}, "body.stream_options"),
    ("temperature is deprecated for this model.", "body.temperature"),
    ({"message": "Unsupported value: it does not support 0.5.", "param": "temperature"}, "body.temperature"),
    ({"message": "Unsupported parameter: 'reasoning.effort' is not supported."}, "body.reasoning.effort"),
    ('"qwen3" does not support thinking', "body.think"),
    ({"message": "Provider returned error", "metadata": {"raw": '{"error": "unknown field: seed"}'}}, "body.seed"),
    ("[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra', 'input': 'temperature'}]", "body.seed"),
    ("[{'loc': ('body', 'seed'), 'msg': 'extra fields not permitted', 'type': 'x'}]", "body.seed"),
    (
        "UnsupportedParamsError: groq does not support parameters: ['parallel_tool_calls'], for model=m.",
        "body.parallel_tool_calls",
    ),
    ("`temperature` and `top_p` cannot both be specified for this model.", "body.temperature"),
    ("got an unexpected keyword argument 'stream_options'", "body.stream_options"),
    ("The following parameters are not supported: seed, top_p", "body.seed"),
    # fields of messages
    ("messages.1.reasoning_content: Extra inputs are not permitted", "messages.reasoning_content"),
    ("For display only. Please remove the reasoning_content from your message.", "messages.reasoning_content"),
    ("('messages.1' : property 'reasoning_content' is unsupported)", "messages.reasoning_content"),
    (pydantic("messages", 1, "Assistant", "reasoning_content"), "messages.reasoning_content"),
    # keywords of the schemas of tools
    ("Invalid schema for function 'strict': 'pattern' is not permitted.", "tools.pattern"),
    ("In context=('properties', 'format'), 'additionalProperties' is not supported", "tools.additionalProperties"),
    ("tools[0].function.parameters.properties[pattern].format: only 'date-time' is supported", "tools.format"),
    ("Unknown parameter: 'tools[0].function.strict'.", "tools.strict"),
    ("schema: keyword `$ref` is not supported", "tools.$ref"),
    (pydantic("tools", 0, "function", "parameters", "properties", "pattern", "default"), "tools.default"),
    ("Invalid schema for function 'f': 'uri' is not a valid format.", "tools.format"),
    ("Unsupported keywords in schema: pattern, minLength", "tools.pattern"),
    ("schema contains unsupported regex: look-around", "tools.pattern"),
    ("Invalid schema for function 'f': '\\d{4}' is not a 'regex'.", "tools.pattern"),
    ("JSON schema conversion failed:\nPattern must start with '^' and end with '$'", "tools.pattern"),
    ("Failed to initialize samplers: failed to parse grammar", "tools.pattern"),
    # what the request needs, does not have or what is no refusal of a field
    ("registry/m does not support tools", ""),
    ("Unrecognized request argument supplied: top_p", ""),
    ("image_url is only supported by certain models", ""),
    ("temperature must be at most 2", ""),
    ("The `reasoning_content` in the thinking mode must be passed back to the API.", ""),
    ("'additionalProperties' is required to be supplied and to be false", ""),
    ("tools.0.function.parameters.properties.strict: Extra inputs are not permitted", ""),
    ("Invalid value: 'ignore this, `stream_options` is unsupported'", ""),
    ("'content' of type 'seed' is wrong", ""),
    ("This image format is not supported", ""),
    (pydantic("messages", 1, "content", kind="missing", words="Field required"), ""),
    ({"message": "Bad request", "request": {"messages": "parameter 'seed' is not supported"}}, ""),
    ("Invalid parameter: 'seed' must be a number", ""),
    ("'auto' tool choice requires --enable-auto-tool-choice to be set", ""),
    ("thinking blocks in the latest assistant message cannot be modified", ""),
    ({"message": 7, "detail": [[None]]}, ""),
    (None, ""),
]


@pytest.mark.parametrize(("said", "field"), REFUSALS)
def test_a_refusal_is_read_as_the_field_of_the_request_that_it_names(said, field):
    assert find_refused_field(said, CHAT) == (field, "")
    assert find_refused_field({"error": said}, CHAT) == (field, "")


@settings(deadline=None)  # the machine may be busy
@given(
    ANY_JSON, st.lists(st.sampled_from(["seed", "messages", " ", "'", "`", "[", "0", ".", ":", "not supported", "{"]))
)
def test_whatever_a_server_says_one_field_of_the_request_is_found_or_none(said, words):
    for one in (said, {"error": said}, {"detail": [{"loc": said, "msg": "".join(words)}]}, "".join(words)):
        field = find_refused_field(one, CHAT)[0]
        assert not field or omit_fields(CHAT, {field: ""}) != CHAT


@pytest.mark.parametrize("words", ["'a ", "tools.", "{'loc': (", "not supported ", "regex ", "seed.", "\n'", '{"a":'])
def test_a_long_error_is_read_in_a_moment(words):
    began = time.process_time()
    find_refused_field(words * 1_000_000, CHAT)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (f"Unknown name \"additionalProperties\" at '{PLACE}': Cannot find field.", "tools.additionalProperties"),
        ("Unknown name \"id\" at 'contents[1].parts[0].function_call': Cannot find field.", "messages.id"),
        (
            "Unknown name \"thinking_config\" at 'generation_config': Cannot find field.",
            "body.generationConfig.thinkingConfig",
        ),
        ("Unknown name \"parametersJsonSchema\" at 'tools[0].function_declarations[0]': Cannot find field.", ""),
    ],
)
def test_gemini_names_the_field_and_its_place(words, field):
    assert (
        find_refused_field([{"error": {"code": 400, "message": f"Invalid JSON payload received. {words}"}}], GEMINI)[0]
        == field
    )


def test_one_name_for_the_limit_of_an_answer_is_sent_under_the_other_that_the_server_names():
    said = {"message": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."}
    field, other = find_refused_field(said, CHAT)
    body = omit_fields(CHAT, {field: other})
    assert (body["max_completion_tokens"], "max_tokens" in body) == (9, False)
    field, other = find_refused_field("max_completion_tokens: unknown field", body)
    assert (field, other) == ("body.max_completion_tokens", "")


def test_what_is_left_out_is_the_field_alone_and_the_body_stays_as_it_was():
    before = json.dumps(CHAT)
    body = omit_fields(
        CHAT, {"tools.pattern": "", "messages.reasoning_content": "", "body.reasoning.effort": "", "x": ""}
    )
    parameters = body["tools"][0]["function"]["parameters"]
    assert parameters["properties"]["pattern"] == {"type": "string", "format": "uri", "default": "1"}
    assert parameters["$defs"]["one"] == {"type": "string", "const": {"pattern": "kept"}}
    assert body["messages"][1] == {"role": "assistant", "content": "Hm.", "tool_calls": []}
    assert "reasoning" not in body
    assert json.dumps(CHAT) == before
    calls = omit_fields(GEMINI, {"messages.id": "", "messages.thoughtSignature": ""})["contents"][0]["parts"]
    assert calls == [{"functionCall": {"name": "f", "args": {"id": "kept"}}}]


def test_a_field_in_lists_and_schemas_of_the_body_is_left_out_by_its_path():
    body = {"system": [{"text": "x", "cache_control": {}}], "output": {"schema": SCHEMA}}
    assert omit_fields(body, {"body.system.cache_control": ""})["system"] == [{"text": "x"}]
    schema = omit_fields(body, {"body.output.schema.properties.pattern": ""})["output"]["schema"]
    assert "pattern" not in schema["properties"]["pattern"]


def test_none_in_extra_leaves_a_field_out_of_the_body_and_lasts_through_the_settings_of_a_turn():
    both = ModelSettings(extra={"a": {"b": 1}}) | ModelSettings(extra={"a": {"c": None}, "d": None})
    assert both.extra == {"a": {"b": 1, "c": None}, "d": None}
    assert merge({"a": {"c": 2}, "d": 3, "e": 4}, both.extra) == {"a": {"b": 1}, "e": 4}
    settings = ModelSettings(extra={"stream_options": None, "store": None, "contents": {"x": None}, "truncate": None})
    request = Request((user("Hi"),), settings=settings)
    for model in (OpenAIChat("m"), OpenAIResponses("m"), Anthropic("m"), Gemini("m"), Ollama("m")):
        assert not {"stream_options", "store", "truncate"} & model.body(request).keys()


# -- through the real requests --------------------------------------------------------------------------


def sse(*events):
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Fine."}]}
ANSWERS = {
    OpenAIChat: sse({"choices": [{"delta": {"content": "Fine."}, "finish_reason": "stop"}]}),
    OpenAIResponses: sse(
        {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
        {"type": "response.completed", "response": {"status": "completed"}},
    ),
    Anthropic: sse(
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Fine."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ),
    Gemini: sse({"candidates": [{"content": {"parts": [{"text": "Fine."}]}, "finishReason": "STOP"}]}),
    Ollama: json.dumps({"message": {"content": "Fine."}, "done": True}) + "\n",
}


class Refusing(Loopback):
    """A server of one API that refuses each request that has one of the fields, in its words."""

    def __init__(self, api, words, status=400):
        super().__init__([])
        self.api, self.words, self.status, self.asked = api, words, status, []

    def answer(self, received):
        if not (body := json.loads(received.body or b"{}")).get("messages", True):  # Ollama loads a model
            return Exchange("{}", content_type="application/json")
        self.asked.append(body)
        for word, error in self.words.items():
            if f'"{word}":' in json.dumps(body):
                return Exchange(json.dumps({"error": error}), self.status, "application/json")
        return Exchange(ANSWERS[self.api], content_type="text/event-stream")


def find(code: Annotated[str, Field(pattern=r"\d{4}")]) -> str:
    """Find."""
    return code


def session(server, api, **options):
    return Session(Agent(api("m", base_url=server.url, api_key="k"), tools=[find], **options))


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("api", ANSWERS)
def test_every_api_sends_a_refused_request_once_more_and_remembers_what_to_leave_out(api, status):
    message = "Invalid schema for function 'find': 'pattern' is not permitted"
    error = message if api is Ollama else {"message": message, "type": "invalid_request_error"}
    with Refusing(api, {"pattern": error}, status) as server:
        asked = session(server, api)
        first, second = run(asked, "a prompt"), run(asked, "another")
    told = "The server refused `pattern` of the tools; the request was sent again without it."
    assert (first.final_text, second.final_text) == ("Fine.", "Fine.")
    assert (notices(first), notices(second)) == ([told], [])
    assert len(server.asked) == 3
    assert not [event for event in first.events if event.type == "step_retried"]


class Thinking(Refusing):
    """A server that calls a tool after a thought, in a field that it does not take back."""

    def answer(self, received):
        answer = super().answer(received)
        if answer.status == 200 and len(self.asked[-1]["messages"]) == 1:
            function = {"name": "find", "arguments": '{"code": "1234"}'}
            delta = {"reasoning_content": "Hm.", "tool_calls": [{"index": 0, "id": "a", "function": function}]}
            return Exchange(sse({"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}))
        return answer


@pytest.mark.parametrize(
    "error",
    [
        {"message": "messages.1.reasoning_content: Extra inputs are not permitted"},
        {"message": "('messages.1' : property 'reasoning_content' is unsupported)"},
        pydantic("messages", 1, "assistant", "reasoning_content"),
    ],
)
def test_reasoning_that_a_server_sends_and_does_not_take_back_is_left_out_of_the_messages(error):
    with Thinking(OpenAIChat, {"reasoning_content": error}) as server:
        result = run(session(server, OpenAIChat), "a prompt")
    told = "The server refused `reasoning_content` of the messages; the request was sent again without it."
    assert (result.final_text, notices(result), len(server.asked)) == ("Fine.", [told], 3)
    assert [message["role"] for message in server.asked[-1]["messages"]] == ["user", "assistant", "tool"]


def test_each_field_is_left_out_once_and_no_more_than_five_a_step():
    extra = {f"field_{number}": 1 for number in range(MENDS + 1)}
    words = {name: {"message": f"Unknown parameter: '{name}'."} for name in extra}
    with Refusing(OpenAIChat, words) as server:
        asked = session(server, OpenAIChat, settings=ModelSettings(extra=extra))
        assert "field_5" in run(asked, "a prompt").error
        assert (len(server.asked), run(asked, "again").final_text) == (MENDS + 1, "Fine.")


def test_another_address_is_sent_what_the_first_refused(monkeypatch):
    refusal = {"stream_options": {"message": "Unrecognized request argument supplied: stream_options"}}
    with Refusing(OpenAIChat, refusal) as first, Refusing(OpenAIChat, {}) as second:
        asked = Session(Agent(OpenAIChat("m")))
        for server in (first, second, first):
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            assert run(asked, "a prompt").final_text == "Fine."
    assert ["stream_options" in body for body in first.asked] == [True, False, False]
    assert ["stream_options" in body for body in second.asked] == [True]


@pytest.mark.parametrize("status", [401, 402, 403, 404, 407, 413, 429, 500])
def test_an_error_of_a_key_a_quota_or_load_leaves_nothing_out(status):
    async def ask():
        model = OpenAIChat("m", base_url=server.url, api_key="k")
        with pytest.raises(ProviderError) as failed:
            async for _ in model.stream(Request((user("Hi"),))):
                pass
        await model.aclose()
        return failed.value.mended, model.without

    with Refusing(OpenAIChat, {"stream_options": {"message": "stream_options is not supported"}}, status) as server:
        assert asyncio.run(ask()) == ("", {})


def test_a_refusal_that_comes_in_the_stream_before_any_part_is_mended_and_a_later_one_is_not():
    error = sse({"error": {"code": 400, "message": "stream_options is not supported"}})
    begun = sse({"choices": [{"delta": {"content": "Fi"}}]})
    with Loopback([Exchange(error), Exchange(ANSWERS[OpenAIChat]), Exchange(begun + error)]) as server:
        assert run(session(server, OpenAIChat), "a prompt").final_text == "Fine."
        assert "stream_options is not supported" in run(session(server, OpenAIChat), "another").error
        assert len(server.requests) == 3
