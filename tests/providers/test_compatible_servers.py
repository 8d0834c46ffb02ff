"""The servers on the page "Compatible servers": each answers a turn with a call as it does, and refuses as it does."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentmagic import Agent, RetrySettings, Session
from agentmagic.errors import BadRequest, ContextTooLong, ProviderError, RateLimited
from agentmagic.messages import Reasoning, Text
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.responses import OpenAIResponses
from tests.providers.loopback import Exchange, Loopback, sse

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compatible-servers.md"

Json = dict[str, Any]
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
SOURCE = "https://a.example/1"


def chunk(delta: Json | None, reason: object = None, **more: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}


def calls(*pieces: str, **more: Any) -> list[Json]:
    """Chunks with a call of `add`, whose arguments come in these pieces."""
    head, *rest = pieces
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": head}, **more}
    later = [{"index": 0, "function": {"arguments": piece}} for piece in rest]
    return [chunk({"tool_calls": [one]}) for one in (first, *later)]


CALL = calls('{"one": 1,', ' "two": 2}')
END, ENDED, COUNTED = chunk({}, "tool_calls"), chunk({}, "stop"), {"choices": [], "usage": USAGE}
ANSWER = [chunk({"role": "assistant", "content": "It "}), chunk({"content": "is 3."}), ENDED, COUNTED]


@dataclass(frozen=True)
class Dialect:
    """How a server speaks: the address on the page, what it streams, a refusal, and what becomes of that.

    `url` ends in the path below which requests arrive. `call` and `answer` are the chunks of a step with a call and of
    the last step. `thinks`: there is a thought in the first. `says` are words of the error.
    """

    url: str
    call: Sequence[Any]
    refusal: tuple[int, Json]
    fails: type[ProviderError] = ContextTooLong
    says: str = "no longer fits"
    answer: Sequence[Any] = tuple(ANSWER)
    thinks: bool = False
    sources: bool = False
    sent_back: Mapping[str, str] = field(default_factory=dict)
    """Fields of the message with the call that the second request has as they came."""


def error(message: str, **more: Any) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


SERVERS = {
    "vLLM": Dialect(
        "http://localhost:8000/v1",
        [chunk({"role": "assistant", "content": ""}), chunk({"reasoning": "Hm."}), *CALL, END, COUNTED],
        (400, {"object": "error", "code": 400, "message": "This model's maximum context length is 8192 tokens."}),
        thinks=True,
    ),
    "SGLang": Dialect(
        "http://localhost:30000/v1",
        [chunk({"reasoning_content": "Hm.", "content": None}), *CALL, END, COUNTED],
        (
            400,
            {
                "object": "error",
                "type": "BadRequestError",
                "code": 400,
                "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
            },
        ),
        thinks=True,
    ),
    "llama.cpp": Dialect(
        "http://localhost:8080/v1",
        [chunk({"reasoning_content": "Hm."}), *CALL, chunk({}, "tool_calls", timings={}), COUNTED],
        (400, error("the request exceeds the available context size", code=400, type="exceed_context_size_error")),
        thinks=True,
    ),
    "LM Studio": Dialect(
        "http://localhost:1234/v1",
        [chunk({"content": "<think>Hm.</think>"}), *CALL, END, COUNTED],
        (
            400,
            {
                "error": "Trying to keep the first 5000 tokens when context the overflows. However, the model is "
                "loaded with context length of only 4096 tokens."
            },
        ),
        thinks=True,
    ),
    "LiteLLM": Dialect(
        "http://localhost:4000/v1",
        [chunk({"reasoning_content": "Hm.", "thinking_blocks": [{"type": "thinking", "thinking": "Hm."}]}), *CALL, END],
        (400, error("litellm.ContextWindowExceededError: too long", type=None, param=None, code="400")),
        thinks=True,
    ),
    "OpenRouter": Dialect(
        "https://openrouter.ai/api/v1",
        [
            chunk({"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}]}),
            *CALL,
            END,
            COUNTED,
        ],
        (404, error("No endpoints found that support image input", code=404)),
        BadRequest,
        "image input",
        thinks=True,
        sent_back={"reasoning": "Hm."},
    ),
    "Azure": Dialect(
        "https://RESOURCE.openai.azure.com/openai/v1",
        [{"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}, *CALL, END, COUNTED],
        (
            400,
            error("The response was filtered: the prompt triggered our content policy.", code="content_filter"),
        ),
        BadRequest,
        "content policy",
    ),
    "Bedrock": Dialect(
        "https://bedrock-runtime.REGION.amazonaws.com/openai/v1",
        [chunk({"content": "<reasoning>Hm.</reasoning>"}), *CALL, END, COUNTED],
        (400, {"message": "Input is too long for requested model."}),
        thinks=True,
    ),
    "Mistral": Dialect(
        "https://api.mistral.ai/v1",
        [chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}), *CALL, END],
        (
            400,
            {
                "object": "error",
                "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            },
        ),
        answer=[
            chunk({"content": [{"type": "text", "text": "It "}, {"type": "reference", "reference_ids": [0]}]}),
            chunk({"content": [{"type": "text", "text": "is 3."}]}),
            chunk({}, "stop", usage=USAGE),
        ],
        thinks=True,
    ),
    "xAI": Dialect(
        "https://api.x.ai/v1",
        [chunk({"reasoning_content": "Hm."}), *calls('{"one": 1, "two": 2}'), END, COUNTED],
        (
            400,
            {
                "code": "Client specified an invalid argument",
                "error": "This model's maximum prompt length is 131072 but the request contains 500000 tokens.",
            },
        ),
        answer=[*ANSWER[:3], {"choices": [], "usage": USAGE, "citations": [SOURCE]}],
        thinks=True,
        sources=True,
    ),
    "Kimi": Dialect(
        "https://api.moonshot.ai/v1",
        [
            chunk({"reasoning_content": "Hm."}),
            *CALL,
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls", "usage": USAGE}]},
        ],
        (400, error("Invalid request: Your request exceeded model token limit: 131072")),
        thinks=True,
        sent_back={"reasoning_content": "Hm."},
    ),
    "DashScope": Dialect(
        "https://WORKSPACE.ap-southeast-1.maas.aliyuncs.com/compatible-mode/v1",
        [
            chunk({"reasoning_content": "Hm.", "content": None}),
            chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "add", "arguments": ""}}]}),
            chunk({"tool_calls": [{"index": 0, "id": "", "function": {"arguments": '{"one": 1, "two": 2}'}}]}),
            chunk({"content": ""}, "tool_calls"),
            COUNTED,
        ],
        (400, error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]")),
        thinks=True,
    ),
    "Z.ai": Dialect(
        "https://api.z.ai/api/paas/v4",
        [chunk({"reasoning_content": "Hm."}), *calls('{"one": 1, "two": 2}'), END | {"usage": USAGE}],
        (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
        thinks=True,
        answer=[*ANSWER[:2], chunk({}, "stop", usage=USAGE, web_search=[{"title": "A", "link": SOURCE}])],
        sources=True,
    ),
    "Groq": Dialect(
        "https://api.groq.com/openai/v1",
        [chunk({"reasoning": "Hm."}), *calls('{"one": 1, "two": 2}'), END | {"x_groq": {"id": "r", "usage": USAGE}}],
        (
            413,
            error(
                "Request too large on tokens per minute (TPM): Limit 6000, Requested 14000", code="rate_limit_exceeded"
            ),
        ),
        BadRequest,
        "larger than",
        thinks=True,
    ),
    "DeepSeek": Dialect(
        "https://api.deepseek.com",
        [": keep-alive\n\n", chunk({"reasoning_content": "Hm.", "content": None}), *CALL, END | {"usage": USAGE}],
        (402, error("Insufficient Balance")),
        RateLimited,
        "used up",
        thinks=True,
        sent_back={"reasoning_content": "Hm."},
    ),
    "Perplexity Sonar": Dialect(
        "https://api.perplexity.ai",
        [],
        (400, error("Tool calling is not supported for this model", code=400)),
        BadRequest,
        "Tool calling is not supported",
        answer=[
            {
                "choices": [
                    {"index": 0, "delta": {"content": text}, "message": {"content": whole}, "finish_reason": reason}
                ],
                "usage": USAGE,
                "citations": [SOURCE],
                "search_results": [{"title": "A", "url": SOURCE}],
            }
            for text, whole, reason in (("It ", "It ", None), ("is 3.", "It is 3.", "stop"))
        ],
        sources=True,
    ),
}


def event(kind: str, **more: Any) -> Json:
    return {"type": f"response.{kind}", **more}


def response(*items: Json, **more: Any) -> list[Json]:
    """The events of a response with these items, which Perplexity and xAI end like OpenAI."""
    whole = {"id": "r", "status": "completed", "output": items, "usage": {"input_tokens": 7, "output_tokens": 3}}
    done = [event("output_item.done", output_index=place, item=item) for place, item in enumerate(items)]
    return [event("created", response={"id": "r", "output": []}), *done, event("completed", response=whole | more)]


WANTED = {"type": "function_call", "id": "f", "call_id": "c1", "name": "add", "arguments": '{"one": 1, "two": 2}'}
SAID = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "It is 3.", "annotations": []}],
}
SEARCHED = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}
FOUND = {"type": "search_results", "queries": ["q"], "results": [{"id": 1, "title": "A", "url": SOURCE}]}

RESPONDERS = {
    "Perplexity": ("https://api.perplexity.ai/v1", response(FOUND, WANTED), response(FOUND, SAID)),
    "xAI": (SERVERS["xAI"].url, response(WANTED), response(SEARCHED, SAID, citations=[SOURCE])),
}
"""The servers with OpenAI's Responses API: their address, and the events of a step with a call and of the last one."""


def add(one: int, two: int) -> int:
    """Add two numbers."""
    return one + two


def body(chunks: Sequence[Any]) -> Exchange:
    return Exchange("".join(one if isinstance(one, str) else sse(one) for one in chunks) + sse(done=True))


def path_of(url: str) -> str:
    return re.sub(r"^https?://[^/]+", "", url)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_of_the_page_answers_a_turn_with_a_call(name: str):
    server = SERVERS[name]
    steps = [server.call, server.answer] if server.call else [server.answer]
    with Loopback(map(body, steps)) as loopback:
        model = OpenAIChat("m", base_url=loopback.url + path_of(server.url), api_key="k")
        with closing(Session(Agent(model, tools=[add] if server.call else []))) as session:
            result = session.ask("What is 1 and 2?")
        requests = [(one.path, one.json) for one in loopback.requests]
    assert result.final_text == "It is 3."
    assert [path for path, _ in requests] == [f"{path_of(server.url)}/chat/completions"] * len(steps)
    parts = [part for message in result.history_delta for part in message.parts]
    thoughts = "".join(part.text for part in parts if isinstance(part, Reasoning))
    assert thoughts == ("Hm." if server.thinks else "")
    texts = [part for part in parts if isinstance(part, Text) and part.text == "It is 3."]
    assert [one.url for text in texts for one in text.citations] == [SOURCE] * server.sources
    assert result.usage.output_tokens >= USAGE["completion_tokens"]
    if server.call:
        _, asked, told = requests[1][1]["messages"][-3:]
        assert told["content"] == "3"
        assert {key: asked[key] for key in server.sent_back} == server.sent_back


@pytest.mark.parametrize("name", SERVERS)
def test_a_refusal_of_a_server_of_the_page_is_read_as_what_it_is(name: str):
    server = SERVERS[name]
    status, said = server.refusal
    with Loopback([Exchange(json.dumps(said), status, "application/json")] * 2) as loopback:
        model = OpenAIChat("m", base_url=loopback.url + path_of(server.url), api_key="k")
        session = Session(Agent(model, tools=[add], retry=RetrySettings(tries=1)))
        with closing(session), pytest.raises(server.fails) as raised:
            session.ask("What is 1 and 2?")
    assert type(raised.value) is server.fails
    assert server.says in str(raised.value)


@pytest.mark.parametrize("name", RESPONDERS)
def test_a_server_with_the_responses_api_answers_a_turn_with_a_call(name: str):
    url, *steps = RESPONDERS[name]
    with Loopback(Exchange(sse(*events)) for events in steps) as loopback:
        model = OpenAIResponses("m", base_url=loopback.url + path_of(url), api_key="k")
        with closing(Session(Agent(model, tools=[add]))) as session:
            result = session.ask("What is 1 and 2?")
        requests = [(one.path, one.json) for one in loopback.requests]
    assert result.final_text == "It is 3."
    assert [path for path, _ in requests] == [f"{path_of(url)}/responses"] * 2
    texts = [part for message in result.history_delta for part in message.parts if isinstance(part, Text)]
    assert [one.url for text in texts for one in text.citations] == [SOURCE]
    sent = [item.get("type", "message") for item in requests[1][1]["input"]]
    assert [kind for kind in sent if kind != "message"] == ["function_call", "function_call_output"]


MENDED: dict[str, tuple[list[Exchange], str]] = {
    "Mistral": (
        [
            body(SERVERS["Mistral"].call),
            Exchange(
                json.dumps(
                    {
                        "object": "error",
                        "message": "Tool call id was c1 but must be a-z, A-Z, 0-9, with a length of 9.",
                        "type": "invalid_function_call",
                        "code": "3280",
                    }
                ),
                400,
                "application/json",
            ),
        ],
        "nine letters and digits",
    ),
    "Groq": (
        [
            Exchange(
                json.dumps(error("Failed to call a function.", code="tool_use_failed", failed_generation="<add>")),
                400,
                "application/json",
            ),
            body(SERVERS["Groq"].call),
        ],
        "Failed to call a function",
    ),
    "OpenRouter": (
        [
            body([{"error": {"code": 502, "message": "Provider disconnected"}, **chunk({"content": ""}, "error")}]),
            body(SERVERS["OpenRouter"].call),
        ],
        "Provider disconnected",
    ),
    "Z.ai": ([body([chunk({}, "network_error")]), body(SERVERS["Z.ai"].call)], "network_error"),
}
"""What servers send before the last step that the loop mends, and the words with which it is told."""


@pytest.mark.parametrize("name", MENDED)
def test_what_a_server_refuses_or_breaks_off_is_mended_in_the_same_turn(name: str):
    exchanges, words = MENDED[name]
    with Loopback([*exchanges, body(SERVERS[name].answer)]) as loopback:
        model = OpenAIChat("m", base_url=loopback.url + path_of(SERVERS[name].url), api_key="k")
        with closing(Session(Agent(model, tools=[add], retry=RetrySettings(first_wait=0, longest_wait=0)))) as session:
            result = session.ask("What is 1 and 2?")
        last = loopback.requests[-1].json["messages"]
    assert result.final_text == "It is 3."
    assert words in " ".join(map(str, result.events))
    ids = [call["id"] for message in last for call in message.get("tool_calls", ())]
    assert ids == [message["tool_call_id"] for message in last if message["role"] == "tool"]
    assert name != "Mistral" or all(re.fullmatch("[a-zA-Z0-9]{9}", one) for one in ids)


def test_the_page_has_these_servers_and_their_addresses():
    rows = re.findall(r"^\| \[([^\]]+)\]\([^)]+\) \| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    tested = {name: url for name, (url, *_) in RESPONDERS.items()}
    assert dict(rows) == tested | {name: server.url for name, server in SERVERS.items()}


def test_each_oddity_on_the_page_is_one_of_a_server_on_it():
    _, addresses, oddities = re.split(r"^\| server .*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = re.findall(r"^\| \[([^\]]+)\]", addresses, re.MULTILINE)
    assert set(re.findall(r"^\| (?!-)([^|]+?) \|", oddities, re.MULTILINE)) == set(named)
