"""The strict server itself: it refuses what the real APIs refuse."""

import copy

import pytest

from tests.providers.strict.anthropic import Anthropic
from tests.providers.strict.chat import Chat
from tests.providers.strict.gemini import Gemini
from tests.providers.strict.ollama import Ollama
from tests.providers.strict.responses import Responses
from tests.providers.strict.rules import Refused
from tests.providers.strict.script import call

UTC = ("clock", {"zone": "UTC"})
CET = ("clock", {"zone": "CET"})
CALLING = call(UTC, CET, think="Hm.", says="Let me look.")
SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}, "years": {"type": "array", "items": {}}}}
FUNCTION = {"name": "clock", "description": "Tell the time.", "parameters": SCHEMA}
TEXT = {"type": "text", "text": "What time is it?"}


def responses():
    """An API and a request it accepts: 0 prompt, 1 reasoning, 2 words, 3 and 4 calls, 5 and 6 results."""
    api = Responses()
    wrote = api.output(CALLING)
    results = [{"type": "function_call_output", "call_id": item["call_id"], "output": "noon"} for item in wrote[2:]]
    user = {"role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]}
    tool = {"type": "function", "strict": False, **FUNCTION}
    return api, {"model": "m", "input": [user, *wrote, *results], "tools": [tool], "stream": True}


def chat():
    """An API, and a request that it accepts: 0 system, 1 prompt, 2 calls, 3 and 4 results."""
    api = Chat()
    wrote = api.output(CALLING)
    results = [{"role": "tool", "tool_call_id": entry["id"], "content": "noon"} for entry in wrote["tool_calls"]]
    user = {"role": "user", "content": "What time is it?"}
    system = {"role": "system", "content": "Be brief."}
    messages = [system, user, wrote, *results]
    return api, {"model": "m", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}


def gemini():
    """An API and a request it accepts: 0 prompt, 1 calls, 2 results."""
    api = Gemini()
    wrote = {"role": "model", "parts": api.output(CALLING)}
    named = [part["functionCall"] for part in wrote["parts"] if "functionCall" in part]
    parts = [{"functionResponse": {"id": e["id"], "name": e["name"], "response": {"output": "noon"}}} for e in named]
    user = {"role": "user", "parts": [{"text": "What time is it?"}]}
    declaration = {"name": "clock", "description": "Tell the time.", "parametersJsonSchema": SCHEMA}
    contents = [user, wrote, {"role": "user", "parts": parts}]
    return api, {"contents": contents, "tools": [{"functionDeclarations": [declaration]}]}


def anthropic():
    """An API and a request it accepts: 0 prompt, 1 calls, 2 results."""
    api = Anthropic()
    user = {"role": "user", "content": [TEXT]}
    tool = {"name": "clock", "description": "Tell the time.", "input_schema": SCHEMA}
    messages = [user]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": [tool], "system": [TEXT]}
    api.check(api.path, body)
    wrote = api.output(CALLING)
    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": [TEXT]} for block in wrote[2:]]
    messages += [{"role": "assistant", "content": wrote}, {"role": "user", "content": results}]
    return api, body


def ollama():
    """An API and a request it accepts: 0 prompt, 1 calls, 2 and 3 results."""
    api = Ollama()
    user = {"role": "user", "content": "What time is it?", "images": ["aGk="]}
    wrote = api.output(CALLING)
    results = [{"role": "tool", "content": "noon", "tool_call_id": one["id"]} for one in wrote["tool_calls"]]
    messages = [user, wrote, *results]
    body = {"model": "m", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}
    return api, body | {"options": {"num_ctx": 8192}, "truncate": False, "shift": False}


VALID = {"openai": responses, "openai-chat": chat, "gemini": gemini, "anthropic": anthropic, "ollama": ollama}
HISTORY = {"openai": "input", "gemini": "contents"}
SDKS = {"openai": "openai", "openai-chat": "openai", "gemini": "json", "anthropic": "anthropic", "ollama": "json"}
"""All but Gemini and Ollama take the names of their parameters from the SDK."""

# Each mutation changes a request that is accepted in one place: the messages `m` of a body `b`, or its rest. Beside it
# stands a piece of the refusal's words.
RESPONSES = {
    "a call without its result": (lambda m, _: m.pop(5), "No tool output found for function call"),
    "calls without their reasoning": (lambda m, _: m.pop(1), "without its required 'reasoning' item"),
    "reasoning that was changed": (lambda m, _: m[1].update(encrypted_content="gAAA-"), "could not be verified"),
    "a call of a long id": (lambda m, _: m[3].update(call_id="c" * 65), "string too long"),
    "an open strict tool": (lambda _, b: b["tools"][0].pop("strict"), "'additionalProperties' is required"),
    "an unknown parameter": (lambda _, b: b.update(messages=[]), "Unknown parameter: 'messages'"),
}
CHAT = {
    "a call without its result": (lambda m, _: m.pop(4), "did not have response messages"),
    "a result without its call": (lambda m, _: m[2]["tool_calls"].pop(), "must be a response to a preceeding"),
    "a picture in a result": (lambda m, _: m[3].update(content=[{"type": "image_url"}]), "values are: 'text'"),
    "reasoning left out in the turn": (
        lambda m, _: m[2].pop("reasoning_content"),
        "`reasoning_content` in the thinking mode must be passed back",
    ),
    "an unknown parameter": (lambda _, b: b.update(input=[]), "Unknown parameter: 'input'"),
}
GEMINI = {
    "a call without its result": (lambda m, _: m[2]["parts"].pop(), "number of function response parts"),
    "a result of another id": (lambda m, _: m[2]["parts"][0]["functionResponse"].update(id="g0"), "match the ids"),
    "no signature in the turn": (lambda m, _: m[1]["parts"][2].pop("thoughtSignature"), "missing a thought_signature"),
    "a keyword that Gemini does not know": (
        lambda _, b: b["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"].update(const=1),
        "Unknown keyword 'const'",
    ),
    "an unknown parameter": (lambda _, b: b.update(messages=[]), 'Unknown name "messages"'),
}
ANTHROPIC = {
    "a call without its result": (lambda m, _: m[2]["content"].pop(), "ids were found without `tool_result` blocks"),
    "calls without their thought": (lambda m, _: m[1]["content"].pop(0), "cannot be modified"),
    "a thought that was changed": (lambda m, _: m[1]["content"][0].update(thinking="Hm?"), "Invalid `signature`"),
    "a call of an id with a dot": (lambda m, _: m[1]["content"][2].update(id="a.b"), "should match pattern"),
    "an open form": (
        lambda _, b: b.update(output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
        "'additionalProperties' must be explicitly set to false",
    ),
}
OLLAMA = {
    "arguments as text": (
        lambda m, _: m[1]["tool_calls"][0]["function"].update(arguments="{}"),
        "cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments",
    ),
    "a schema of true": (
        lambda _, b: b["tools"][0]["function"]["parameters"]["properties"].update(a=True),
        "cannot unmarshal bool into Go struct field",
    ),
    "a conversation that may be cut": (lambda _, b: b.pop("truncate"), "may be cut"),
}
TABLES = {"openai": RESPONSES, "openai-chat": CHAT, "gemini": GEMINI, "anthropic": ANTHROPIC, "ollama": OLLAMA}


def valid(name):
    """An API, a request that it accepts and that no other test sees, and the messages in it."""
    api, body = VALID[name]()
    body = copy.deepcopy(body)
    return api, body, body[HISTORY.get(name, "messages")]


@pytest.mark.parametrize(
    ("name", "mutate", "words"),
    [pytest.param(name, *row, id=f"{name}: {what}") for name, table in TABLES.items() for what, row in table.items()],
)
def test_what_the_real_api_refuses_is_refused(name, mutate, words):
    pytest.importorskip(SDKS[name])
    api, body, messages = valid(name)
    mutate(messages, body)
    with pytest.raises(Refused) as caught:
        api.check(api.path, body)
    assert words in str(caught.value)
