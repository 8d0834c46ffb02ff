"""The strict server itself: it refuses what the real APIs refuse, and accepts what they accepted."""

import copy
import json
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.providers.loopback import recorded
from tests.providers.strict.anthropic import Anthropic
from tests.providers.strict.chat import Chat
from tests.providers.strict.gemini import MODEL, Gemini
from tests.providers.strict.ollama import Ollama
from tests.providers.strict.responses import Responses
from tests.providers.strict.rules import Refused
from tests.providers.strict.script import DROPPED, PAGE, TOO_LONG, Answer, Call, Say, Think, call, fault, say, silence
from tests.providers.strict.server import APIS, strict

UTC = ("clock", {"zone": "UTC"})
CET = ("clock", {"zone": "CET"})
CALLING = call(UTC, CET, think="Hm.", says="Let me look.")
SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}, "years": {"type": "array", "items": {}}}}
FUNCTION = {"name": "clock", "description": "Tell the time.", "parameters": SCHEMA}


def responses():
    """An API and a request it accepts: 0 prompt, 1 reasoning, 2 words, 3 4 calls, 5 6 results, 7 8 answer, 9 prompt."""
    api = Responses()
    wrote = api.output(CALLING)
    results = [{"type": "function_call_output", "call_id": item["call_id"], "output": "noon"} for item in wrote[2:]]
    said = api.output(say("It is noon.", think="That is all."))
    user = {"role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]}
    tool = {"type": "function", "strict": False, **FUNCTION}
    body = {
        "model": "m",
        "input": [user, *wrote, *results, *said, user],
        "tools": [tool],
        "stream": True,
        "store": False,
    }
    return api, body


def chat():
    """An API, and a request that it accepts: 0 system, 1 prompt, 2 calls, 3 4 results, 5 answer, 6 prompt."""
    api = Chat()
    wrote = api.output(CALLING)
    results = [{"role": "tool", "tool_call_id": entry["id"], "content": "noon"} for entry in wrote["tool_calls"]]
    user = {"role": "user", "content": "What time is it?"}
    system = {"role": "system", "content": "Be brief."}
    messages = [system, user, wrote, *results, api.output(say("It is noon.")), user]
    return api, {"model": "m", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}


def gemini():
    """An API and a request it accepts within a turn: 0 prompt, 1 answer, 2 prompt, 3 calls, 4 results."""
    api = Gemini()
    answer = {"role": "model", "parts": api.output(say("Hello."))}
    wrote = {"role": "model", "parts": api.output(CALLING)}
    named = [part["functionCall"] for part in wrote["parts"] if "functionCall" in part]
    parts = [{"functionResponse": {"id": e["id"], "name": e["name"], "response": {"output": "noon"}}} for e in named]
    user = {"role": "user", "parts": [{"text": "What time is it?"}]}
    declaration = {"name": "clock", "description": "Tell the time.", "parametersJsonSchema": SCHEMA}
    contents = [user, answer, user, wrote, {"role": "user", "parts": parts}]
    return api, {"contents": copy.deepcopy(contents), "tools": [{"functionDeclarations": [declaration]}]}


def anthropic():
    """An API and a request it accepts within a turn: 0 prompt, 1 answer, 2 prompt, 3 calls, 4 results."""
    api = Anthropic()
    user = {"role": "user", "content": [TEXT]}
    tool = {"name": "clock", "description": "Tell the time.", "input_schema": SCHEMA}
    messages = [user, {"role": "assistant", "content": api.output(say("Hello."))}, user]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": [tool], "system": [TEXT]}
    api.check(api.path, body)
    wrote = api.output(CALLING)
    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": [TEXT]} for block in wrote[2:]]
    messages += [{"role": "assistant", "content": wrote}, {"role": "user", "content": results}]
    return api, copy.deepcopy(body)


def ollama():
    """An API and a request it accepts within a turn: 0 prompt, 1 answer, 2 prompt, 3 calls, 4 and 5 results."""
    api = Ollama()
    user = {"role": "user", "content": "What time is it?", "images": ["aGk="]}
    tool = {"type": "function", "function": {"name": "clock", "description": "Tell it.", "parameters": SCHEMA}}
    wrote = api.output(CALLING)
    results = [
        {"role": "tool", "content": "noon", "tool_name": "clock", "tool_call_id": one["id"]}
        for one in wrote["tool_calls"]
    ]
    messages = [user, api.output(say("Hello.")), user, wrote, *results]
    body = {"model": "m", "messages": messages, "tools": [tool], "options": {"num_ctx": 8192}}
    return api, copy.deepcopy(body | {"truncate": False, "shift": False})


TEXT = {"type": "text", "text": "What time is it?"}
VALID = {"openai": responses, "openai-chat": chat, "gemini": gemini, "anthropic": anthropic, "ollama": ollama}

# Each mutation changes a request that is accepted in one place; beside it a piece of the refusal's words.
RESPONSES = {
    "a call without its result": (lambda b: b["input"].pop(5), "No tool output found for function call"),
    "a result without its call": (lambda b: b["input"].pop(3), "No tool call found for function call output"),
    "a result before its call": (lambda b: b["input"].insert(3, b["input"].pop(5)), "No tool call found"),
    "a result after the next prompt": (lambda b: b["input"].append(b["input"].pop(6)), "No tool output found"),
    "a result twice": (lambda b: b["input"].insert(5, b["input"][5]), "No tool call found"),
    "an item twice": (lambda b: b["input"].insert(3, b["input"][3]), "Duplicate item found with id fc_"),
    "a call's id twice": (lambda b: b["input"][4].update(call_id=b["input"][3]["call_id"]), "Duplicate 'call_id'"),
    "calls without their reasoning": (lambda b: b["input"].pop(1), "without its required 'reasoning' item"),
    "an answer without its reasoning": (lambda b: b["input"].pop(7), "without its required 'reasoning' item"),
    "reasoning that led to nothing": (lambda b: b["input"].pop(2), "without its required following item"),
    "reasoning at the end": (lambda b: b.update(input=b["input"][:8]), "without its required following item"),
    "reasoning that was changed": (lambda b: b["input"][1].update(encrypted_content="gAAAA-"), "could not be verified"),
    "reasoning without its secret": (lambda b: b["input"][1].pop("encrypted_content"), "Items are not persisted"),
    "an item of nobody": (lambda b: b["input"][3].update(id="fc_of_nobody"), "Item with id 'fc_of_nobody' not found"),
    "an item by reference": (lambda b: b["input"].append({"type": "item_reference", "id": "msg_1"}), "not found"),
    "a role of no API": (lambda b: b["input"][0].update(role="model"), "Invalid value: 'model'"),
    "a prompt without content": (lambda b: b["input"][0].update(content=[]), "Invalid type for 'input[0].content'"),
    "content of null": (lambda b: b["input"][0].update(content=None), "Invalid type for 'input[0].content'"),
    "content of another API": (
        lambda b: b["input"][0].update(content=[{"type": "text", "text": "Hi"}]),
        "Supported values are: 'input_text'",
    ),
    "a result of null": (lambda b: b["input"][5].update(output=None), "Invalid type for 'input[5].output'"),
    "arguments that are no text": (lambda b: b["input"][3].update(arguments={}), "expected a string"),
    "a call of a name with a dot": (lambda b: b["input"][3].update(name="a.clock"), "string does not match pattern"),
    "a call of a long id": (lambda b: b["input"][3].update(call_id="c" * 65), "string too long"),
    "a tool of a name with a space": (lambda b: b["tools"][0].update(name="a clock"), "string does not match pattern"),
    "a tool of a long name": (lambda b: b["tools"][0].update(name="c" * 65), "string too long"),
    "a tool without a schema": (lambda b: b["tools"][0].update(parameters=None), "schema must be a JSON Schema"),
    "a tool that takes a list": (lambda b: b["tools"][0].update(parameters={"type": "array"}), "schema must be"),
    "an array of nothing": (
        lambda b: b["tools"][0].update(parameters={"type": "object", "properties": {"a": {"type": "array"}}}),
        "array schema missing items",
    ),
    "a strict tool that leaves things open": (
        lambda b: b["tools"][0].pop("strict"),
        "'additionalProperties' is required",
    ),
    "a choice of an unknown tool": (
        lambda b: b.update(tool_choice={"type": "function", "name": "watch"}),
        "Tool choice 'watch' not found",
    ),
    "a choice of another API": (lambda b: b.update(tool_choice="any"), "Invalid value: 'any'"),
    "a choice without tools": (lambda b: (b.pop("tools"), b.update(tool_choice="none")), "only allowed when 'tools'"),
    "an unknown parameter": (lambda b: b.update(messages=[]), "Unknown parameter: 'messages'"),
    "an unknown kind of item": (lambda b: b["input"][1].update(type="thought"), "Invalid value: 'thought'"),
    "no input": (lambda b: b.update(input=[]), "Missing required parameter: 'input'"),
}
CHAT = {
    "a call without its result": (lambda b: b["messages"].pop(4), "did not have response messages"),
    "calls without any result": (lambda b: b.update(messages=b["messages"][:3]), "did not have response messages"),
    "a result without its call": (lambda b: b["messages"][2]["tool_calls"].pop(), "must be a response to a preceeding"),
    "a result after the next prompt": (lambda b: b["messages"].append(b["messages"].pop(4)), "did not have response"),
    "a result before its call": (lambda b: b["messages"].insert(2, b["messages"].pop(3)), "must be a response to a"),
    "a result twice": (lambda b: b["messages"].insert(4, b["messages"][3]), "Duplicate value for 'tool_call_id'"),
    "a call's id twice": (
        lambda b: b["messages"][2]["tool_calls"][1].update(id=b["messages"][2]["tool_calls"][0]["id"]),
        "Duplicate value for 'id'",
    ),
    "a result of no call": (lambda b: b["messages"][3].pop("tool_call_id"), "Missing parameter 'tool_call_id'"),
    "content of null without a call": (lambda b: b["messages"][5].update(content=None), "expected a string, got null"),
    "content of null in a result": (lambda b: b["messages"][3].update(content=None), "expected a string, got null"),
    "content of nothing": (lambda b: b["messages"][1].update(content=[]), "expected a string, got []"),
    "a list of no calls": (lambda b: b["messages"][5].update(tool_calls=[]), "empty array"),
    "a picture in a result": (
        lambda b: b["messages"][3].update(content=[{"type": "image_url", "image_url": {}}]),
        "Supported values are: 'text'",
    ),
    "reasoning left out in the turn": (
        lambda b: (b["messages"][2].pop("reasoning_content"), b.update(messages=b["messages"][:5])),
        "`reasoning_content` in the thinking mode must be passed back",
    ),
    "reasoning changed in the turn": (
        lambda b: (b["messages"][2].update(reasoning_content="?"), b.update(messages=b["messages"][:5])),
        "`reasoning_content` in the thinking mode must be passed back",
    ),
    "a role of no API": (lambda b: b["messages"][0].update(role="model"), "Invalid value: 'model'"),
    "arguments that are no text": (
        lambda b: b["messages"][2]["tool_calls"][0]["function"].update(arguments={}),
        "expected a string",
    ),
    "a call of a name with a dot": (
        lambda b: b["messages"][2]["tool_calls"][0]["function"].update(name="a.clock"),
        "string does not match pattern",
    ),
    "a call of a long id": (lambda b: b["messages"][2]["tool_calls"][0].update(id="c" * 41), "string too long"),
    "a call of no kind": (lambda b: b["messages"][2]["tool_calls"][0].pop("type"), "Missing required parameter"),
    "a tool of a name with a space": (
        lambda b: b["tools"][0]["function"].update(name="a clock"),
        "string does not match pattern",
    ),
    "a tool of a long name": (lambda b: b["tools"][0]["function"].update(name="c" * 65), "string too long"),
    "a tool that takes a list": (
        lambda b: b["tools"][0]["function"].update(parameters={"type": "array"}),
        "schema must be a JSON Schema",
    ),
    "no tools in a list": (lambda b: b.update(tools=[]), "[] is too short"),
    "a choice of an unknown tool": (
        lambda b: b.update(tool_choice={"type": "function", "function": {"name": "watch"}}),
        "Tool choice 'watch' not found",
    ),
    "a choice without tools": (lambda b: (b.pop("tools"), b.update(tool_choice="none")), "only allowed when 'tools'"),
    "an unknown parameter": (lambda b: b.update(input=[]), "Unknown parameter: 'input'"),
    "no messages": (lambda b: b.update(messages=[]), "Invalid 'messages': empty array"),
}
GEMINI = {
    "a call without its result": (lambda b: b["contents"][4]["parts"].pop(), "number of function response parts"),
    "calls without any result": (
        lambda b: b["contents"][4].update(parts=[{"text": "And now?"}]),
        "number of function response parts",
    ),
    "a result without its call": (lambda b: b["contents"][3]["parts"].pop(), "number of function response parts"),
    "results of no call": (lambda b: b["contents"].pop(3), "function response turn comes immediately after"),
    "results after another prompt": (
        lambda b: b["contents"].insert(4, b["contents"][0]),
        "number of function response parts",
    ),
    "results apart from each other": (
        lambda b: b["contents"].append({"role": "user", "parts": [b["contents"][4]["parts"].pop()]}),
        "number of function response parts",
    ),
    "a result of another id": (
        lambda b: b["contents"][4]["parts"][0]["functionResponse"].update(id="g0"),
        "match the ids of the function calls",
    ),
    "a result of another name": (
        lambda b: b["contents"][4]["parts"][0]["functionResponse"].update(name="watch"),
        "match the ids of the function calls",
    ),
    "a call's id twice": (
        lambda b: [
            part[kind].update(id="g1", name="clock")
            for content, kind in ((b["contents"][3], "functionCall"), (b["contents"][4], "functionResponse"))
            for part in content["parts"]
            if kind in part
        ],
        "ids of function calls are unique",
    ),
    "calls after an answer": (lambda b: b["contents"].pop(2), "function call turn comes immediately after"),
    "no signature in the turn": (
        lambda b: b["contents"][3]["parts"][2].pop("thoughtSignature"),
        "missing a thought_signature",
    ),
    "a signature that was changed": (
        lambda b: b["contents"][3]["parts"][2].update(thoughtSignature="AAAA"),
        "Corrupted thought signature",
    ),
    "a signature of another part": (
        lambda b: b["contents"][3]["parts"][2].update(
            thoughtSignature=b["contents"][1]["parts"][1]["thoughtSignature"]
        ),
        "Corrupted thought signature",
    ),
    "a signature that is no base64": (
        lambda b: b["contents"][3]["parts"][2].update(thoughtSignature="?"),
        "Base64 decoding failed",
    ),
    "a content without parts": (lambda b: b["contents"][1].update(parts=[]), "contents.parts must not be empty"),
    "an answer first": (lambda b: b["contents"].pop(0), "immediately after a user turn"),
    "an answer last": (lambda b: b.update(contents=b["contents"][:2]), "ends with a user role"),
    "an empty text": (lambda b: b["contents"][0].update(parts=[{"text": ""}]), "must have one initialized field"),
    "a part of nothing": (lambda b: b["contents"][0].update(parts=[{}]), "must have one initialized field"),
    "a part of two kinds": (
        lambda b: b["contents"][0]["parts"][0].update(inlineData={}),
        "must have one initialized field",
    ),
    "an unknown kind of part": (
        lambda b: b["contents"][0].update(parts=[{"type": "text"}]),
        'Unknown name "type"',
    ),
    "a role of no API": (lambda b: b["contents"][0].update(role="assistant"), "Please use a valid role"),
    "a call of the user": (lambda b: b["contents"][3].update(role="user"), "Please use a valid role"),
    "a call of a name with a space": (
        lambda b: b["contents"][3]["parts"][3]["functionCall"].update(name="a clock"),
        "Invalid function name",
    ),
    "arguments that are no object": (
        lambda b: b["contents"][3]["parts"][3]["functionCall"].update(args="UTC"),
        "TYPE_STRUCT",
    ),
    "a tool of a long name": (
        lambda b: b["tools"][0]["functionDeclarations"][0].update(name="c" * 129),
        "Invalid function name",
    ),
    "a tool twice": (
        lambda b: b["tools"][0]["functionDeclarations"].append(b["tools"][0]["functionDeclarations"][0]),
        "Duplicate function declaration",
    ),
    "a tool with two schemas": (
        lambda b: b["tools"][0]["functionDeclarations"][0].update(parameters={}),
        "mutually exclusive",
    ),
    "a tool that takes a list": (
        lambda b: b["tools"][0]["functionDeclarations"][0].update(parametersJsonSchema={"type": "array"}),
        "should be of type OBJECT",
    ),
    "a keyword that Gemini does not know": (
        lambda b: b["tools"][0]["functionDeclarations"][0].update(
            parametersJsonSchema={"type": "object", "properties": {"a": {"const": 1}}}
        ),
        "Unknown keyword 'const'",
    ),
    "a choice of an unknown tool": (
        lambda b: b.update(toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["watch"]}}),
        "'watch' is not a declared function",
    ),
    "a choice in the wrong mode": (
        lambda b: b.update(toolConfig={"functionCallingConfig": {"allowedFunctionNames": ["clock"]}}),
        "only when function calling mode is ANY",
    ),
    "an unknown parameter": (lambda b: b.update(messages=[]), 'Unknown name "messages"'),
    "no contents": (lambda b: b.update(contents=[]), "contents is not specified"),
}
UNANSWERED = "`tool_use` ids were found without `tool_result` blocks"
ANTHROPIC = {
    "a call without its result": (lambda b: b["messages"][4]["content"].pop(), UNANSWERED),
    "a result without its call": (lambda b: b["messages"][3]["content"].pop(), "unexpected `tool_use_id` found"),
    "results after words": (lambda b: b["messages"][4]["content"].insert(0, TEXT), UNANSWERED),
    "results after another prompt": (lambda b: b["messages"].insert(4, b["messages"][0]), UNANSWERED),
    "a result twice": (
        lambda b: b["messages"][4]["content"].append(b["messages"][4]["content"][0]),
        "each tool_use must have a single result",
    ),
    "a call's id twice": (
        lambda b: b["messages"][3]["content"][3].update(id=b["messages"][3]["content"][2]["id"]),
        "`tool_use` ids must be unique",
    ),
    "calls without their thought": (lambda b: b["messages"][3]["content"].pop(0), "cannot be modified"),
    "a thought that was changed": (
        lambda b: b["messages"][3]["content"][0].update(thinking="Hm?"),
        "Invalid `signature` in `thinking` block",
    ),
    "a thought of nobody": (
        lambda b: b["messages"][3]["content"][0].update(signature="AAAA"),
        "Invalid `signature` in `thinking` block",
    ),
    "a thought after another prompt": (
        lambda b: b["messages"][0].update(content=[{"type": "text", "text": "Hi."}]),
        "bound to a different conversation",
    ),
    "a thought with other tools": (lambda b: b.pop("tools"), "bound to a different conversation"),
    "a thought at the end": (
        lambda b: b["messages"][1].update(content=[b["messages"][3]["content"][0]]),
        "The final block in an assistant message cannot be `thinking`",
    ),
    "a message without content": (lambda b: b["messages"][1].update(content=[]), "must have non-empty content"),
    "an empty text": (lambda b: b["system"][0].update(text=""), "must be non-empty"),
    "a blank text": (lambda b: b["messages"][1]["content"][0].update(text=" "), "must contain non-whitespace text"),
    "an answer first": (lambda b: b["messages"].pop(0), 'first message must use the "user" role'),
    "an answer last": (lambda b: b.update(messages=b["messages"][:2]), "does not support assistant message prefill"),
    "a picture in an answer": (
        lambda b: b["messages"][1]["content"].append({"type": "image"}),
        "Input tag 'image' found",
    ),
    "a picture of no type": (
        lambda b: b["messages"][0].update(content=[{"type": "image", "source": {"type": "base64", "data": "AA"}}]),
        "media_type: Input should be image/jpeg",
    ),
    "a picture in a failed result": (
        lambda b: b["messages"][4]["content"][0].update(
            is_error=True,
            content=[{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}],
        ),
        'all content must be type "text" if `is_error` is true',
    ),
    "a failed result without content": (
        lambda b: b["messages"][4]["content"][0].update(is_error=True, content=[]),
        "content cannot be empty if `is_error` is true",
    ),
    "a role of no API": (lambda b: b["messages"][0].update(role="tool"), "Unexpected role"),
    "a call of a name with a dot": (
        lambda b: b["messages"][3]["content"][2].update(name="a.b"),
        "should match pattern",
    ),
    "a call of an id with a dot": (lambda b: b["messages"][3]["content"][2].update(id="a.b"), "should match pattern"),
    "arguments that are no object": (
        lambda b: b["messages"][3]["content"][2].update(input="UTC"),
        "Input should be an object",
    ),
    "a tool of a long name": (lambda b: b["tools"][0].update(name="c" * 129), "should match pattern"),
    "a tool twice": (lambda b: b["tools"].append(b["tools"][0]), "Tool names must be unique"),
    "a tool that takes a list": (lambda b: b["tools"][0].update(input_schema={"type": "array"}), "Field required"),
    "a tool with alternatives": (
        lambda b: b["tools"][0].update(input_schema={**SCHEMA, "anyOf": []}),
        "not supported at the top level",
    ),
    "a forced tool": (
        lambda b: b.update(tool_choice={"type": "tool", "name": "clock"}),
        'type "tool" and "any" are not supported',
    ),
    "an open form": (
        lambda b: b.update(output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
        "'additionalProperties' must be explicitly set to false",
    ),
    "a temperature": (lambda b: b.update(temperature=1.0), "temperature: Extra inputs are not permitted"),
    "thoughts within a budget": (lambda b: b.update(thinking={"type": "enabled"}), '"thinking.type.enabled" is not'),
    "too long an answer": (lambda b: b.update(max_tokens=128_001), "128001 > 128000"),
    "no limit of the answer": (lambda b: b.pop("max_tokens"), "max_tokens: Field required"),
    "five marks of the cache": (
        lambda b: b["tools"].extend({**b["tools"][0], "name": f"c{n}", "cache_control": {}} for n in range(5)),
        "A maximum of 4 blocks with cache_control",
    ),
}
OLLAMA = {
    "no model": (lambda b: b.pop("model"), "model is required"),
    "content that is a list": (lambda b: b["messages"][0].update(content=[]), "cannot unmarshal array into Go struct"),
    "a role of no API": (lambda b: b["messages"][0].update(role="model"), "invalid role: model"),
    "arguments as text": (
        lambda b: b["messages"][3]["tool_calls"][0]["function"].update(arguments="{}"),
        "cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments",
    ),
    "an image that is an address": (lambda b: b["messages"][0].update(images=["http://x"]), "illegal base64"),
    "an effort of no API": (lambda b: b.update(think="lots"), "invalid think value"),
    "a schema of true": (
        lambda b: b["tools"][0]["function"].update(parameters={"type": "object", "properties": {"a": True}}),
        "cannot unmarshal bool into Go struct field",
    ),
    "a fraction of tokens": (lambda b: b["options"].update(num_ctx=8192.5), "must be of type integer"),
    "a conversation that may be cut": (lambda b: b.pop("truncate"), "may be cut"),
}
MUTATIONS = [
    pytest.param(name, mutate, words, id=f"{name}: {what}")
    for name, table in (
        ("openai", RESPONSES),
        ("openai-chat", CHAT),
        ("gemini", GEMINI),
        ("anthropic", ANTHROPIC),
        ("ollama", OLLAMA),
    )
    for what, (mutate, words) in table.items()
]
SDKS = {"openai": "openai", "openai-chat": "openai", "gemini": "json", "anthropic": "anthropic", "ollama": "json"}
every_api = pytest.mark.parametrize("name", APIS)


@pytest.fixture(autouse=True)
def sdk(request):
    """All but Gemini take the names of their parameters from the SDK."""
    if "name" in request.fixturenames:
        pytest.importorskip(SDKS[request.getfixturevalue("name")])


@every_api
def test_a_whole_history_is_accepted(name):
    api, body = VALID[name]()
    api.check(api.path, body)
    api.check(api.path, json.loads(json.dumps(body)))


@pytest.mark.parametrize(("name", "mutate", "words"), MUTATIONS)
def test_what_the_real_api_refuses_is_refused(name, mutate, words):
    api, body = VALID[name]()
    body = json.loads(json.dumps(body))
    mutate(body)
    with pytest.raises(Refused) as caught:
        api.check(api.path, body)
    assert words in str(caught.value)


def test_calls_of_another_provider_are_accepted_without_ids_and_reasoning():
    api, body = responses()
    del body["input"][1]
    for item in body["input"]:
        item.pop("id", None)
    body["input"] = [item for item in body["input"] if item.get("type") != "reasoning"]
    api.check(api.path, body)


def test_calls_of_another_provider_are_accepted_with_the_documented_signature():
    api, body = gemini()
    body["contents"][3]["parts"][2]["thoughtSignature"] = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
    api.check(api.path, body)


def test_signatures_of_earlier_turns_may_be_left_out():
    api, body = gemini()
    del body["contents"][3]["parts"][2]["thoughtSignature"]
    body["contents"] += [{"role": "model", "parts": [{"text": "Noon."}]}, body["contents"][0]]
    api.check(api.path, body)


def test_signatures_may_come_back_in_the_other_alphabet_of_base64():
    api, body = gemini()
    text = json.dumps(body)
    assert "/" in body["contents"][3]["parts"][2]["thoughtSignature"]
    api.check(api.path, json.loads(text.replace("/", "_")))


def test_reasoning_of_earlier_turns_may_be_left_out_in_a_chat():
    api, body = chat()
    del body["messages"][2]["reasoning_content"]
    api.check(api.path, body)


RESPONSES_RECORDED = ["responses_images", "responses_simple_streaming_request", "responses_tool_variations_async"]
CHAT_RECORDED = ["chat_images", "chat_simple_streaming_request", "chat_tool_variations_async"]
GEMINI_RECORDED = ["gemini_images_inline", "gemini_tools_parallel", "gemini_tools_simple"]


@pytest.mark.parametrize("recording", RESPONSES_RECORDED)
def test_what_the_responses_api_accepted_is_accepted(recording):
    api = Responses()
    for exchange in recorded(recording):
        api.check(api.path, exchange.request)


@pytest.mark.parametrize("recording", CHAT_RECORDED)
def test_what_the_chat_api_accepted_is_accepted(recording):
    api = Chat()
    for exchange in recorded(recording):
        api.check(api.path, exchange.request)


@pytest.mark.parametrize("recording", GEMINI_RECORDED)
def test_what_gemini_accepted_is_accepted(recording):
    api = Gemini()
    for exchange in recorded(recording):
        api.check(api.path, exchange.request)
        for line in exchange.body.splitlines():
            if line.startswith("data:"):
                (candidate,) = json.loads(line.removeprefix("data:"))["candidates"]
                api.learn(candidate["content"]["parts"])


@pytest.mark.parametrize("recording", ["gemini_tools_parallel", "gemini_tools_simple"])
def test_what_gemini_accepted_is_refused_where_it_wrote_something_else(recording):
    signed = recorded(recording)[1].request
    with pytest.raises(Refused, match="Corrupted thought signature"):
        Gemini().check(Gemini.path, signed)


def post(server, body, path=None):
    """The status, content type and body of an answer."""
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=5)
    try:
        connection.request("POST", path or server.api.path, body if isinstance(body, bytes) else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read().decode()
    finally:
        connection.close()


@every_api
def test_a_request_that_is_refused_gets_status_400_and_takes_no_step(name):
    _, body = VALID[name]()
    with strict(name, say("Hello.")) as server:
        server.api = VALID[name]()[0]
        status, kind, answer = post(server, body | {"nonsense": 1})
        assert (status, kind) == (400, "application/json")
        error = json.loads(answer)["error"]
        assert (error if name == "ollama" else error["message"]) == server.refusals[0]
        assert "nonsense" in server.refusals[0]
        status, kind, answer = post(server, body)
        assert (status, kind.split(";")[0], "Hel" in answer) == (200, "text/event-stream", True)
        assert len(server.refusals) == 1


@every_api
@pytest.mark.parametrize(
    "body", [b'{"model": "\xff"}', b"{", b"[]", b""], ids=["not UTF-8", "no JSON", "a list", "none"]
)
def test_a_body_that_cannot_be_read_is_refused(name, body):
    with strict(name, say("Hello.")) as server:
        assert post(server, body)[0] == 400
        assert len(server.refusals) == 1


@every_api
def test_a_request_beyond_the_script_is_refused(name):
    with strict(name) as server:
        api, body = VALID[name]()
        server.api = api
        assert post(server, body)[0] == 400
        assert server.refusals == ["The script has no step for this request."]


@every_api
def test_a_request_to_another_address_is_refused(name):
    with strict(name, say("Hello.")) as server:
        assert post(server, {}, "/v2/elsewhere")[0] == 404
        assert len(server.refusals) == 1


@every_api
@pytest.mark.parametrize("status", [401, 403, 408, 409, 429, 500, 503, 529])
def test_a_fault_has_its_status_and_the_form_of_the_api(name, status):
    with strict(name, fault(status, retry_after="3")) as server:
        server.api, body = VALID[name]()
        got, kind, answer = post(server, body)
    assert (got, kind) == (status, "application/json")
    error = json.loads(answer)["error"]
    if name == "ollama":  # it has no more than words
        assert error
        return
    assert error["message"]
    assert error.get("code") == status if name == "gemini" else "type" in error


@every_api
def test_odd_answers_are_what_they_say(name):
    with strict(name, TOO_LONG, PAGE, DROPPED) as server:
        server.api, body = VALID[name]()
        assert post(server, body)[0] == 400
        assert post(server, body)[1].startswith("text/html")
        with pytest.raises(ConnectionError):
            post(server, body)
        assert server.refusals == []


CLOSING = {
    "openai": "response.completed",
    "openai-chat": 'finish_reason": "',
    "gemini": "finishReason",
    "anthropic": "message_stop",
    "ollama": '"done": true',
}


@every_api
@pytest.mark.parametrize("ending", ["unfinished", "error", "garbage"])
@pytest.mark.parametrize(
    "answer", [say("Hello there."), CALLING, silence(think="Hm, hm.")], ids=["text", "calls", "none"]
)
def test_an_answer_that_breaks_off_has_no_closing_event(name, answer, ending):
    with strict(name, answer, Answer(answer.parts, ending)) as server:
        server.api, body = VALID[name]()
        whole, broken = post(server, body)[2], post(server, body)[2]
    assert CLOSING[name] in whole
    assert CLOSING[name] not in broken
    assert ("rror" in broken) == (ending == "error")


@every_api
def test_every_answer_can_be_sent_back_as_it_was_made(name):
    """Whatever parts an answer has, its own API takes it back."""
    part_lists = [
        (Say("a"),),
        (Think("a"), Say("b")),
        (Think("a"), Say("b"), Call("clock", "{}"), Call("clock", "{}")),
        (Say("a"), Think("b"), Call("clock", "{}")),
        (Think("a"), Call("clock", "{}"), Think("b"), Call("clock", "{}")),
    ]
    for parts in part_lists:
        api, body = VALID[name]()
        send_back(api, body, api.output(Answer(parts)))
        api.check(api.path, body)


def send_back(api, body, wrote):
    """Add what an API wrote to a body, with a result for each of its calls."""
    match api:
        case Responses():
            ids = [item["call_id"] for item in wrote if item["type"] == "function_call"]
            results = [{"type": "function_call_output", "call_id": call_id, "output": ""} for call_id in ids]
            body["input"] += [*wrote, *results]
        case Chat():
            ids = [entry["id"] for entry in wrote.get("tool_calls", ())]
            results = [{"role": "tool", "tool_call_id": call_id, "content": ""} for call_id in ids]
            body["messages"] += [wrote, *results]
        case Gemini():
            named = [part["functionCall"] for part in wrote if "functionCall" in part]
            results = [{"functionResponse": {"id": e["id"], "name": e["name"], "response": {}}} for e in named]
            body["contents"] += [{"role": "model", "parts": wrote}]
            body["contents"] += [{"role": "user", "parts": results or [{"text": "And now?"}]}]
        case Anthropic():
            calls = [block["id"] for block in wrote if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call_id} for call_id in calls]
            answer = {"role": "assistant", "content": wrote}
            body["messages"] += [answer, {"role": "user", "content": results or [TEXT]}]


def test_the_model_that_gemini_is_asked_for_is_one_that_signs():
    assert MODEL.startswith("gemini-3")
