"""Which errors mean that a conversation is too long: one row a maker, and what is too long but no conversation."""

import json
from contextlib import nullcontext
from typing import Any

import pytest

from agentmagic import Agent, RetrySettings, Session
from agentmagic.errors import BadRequest, ContextTooLong, ProviderError, RateLimited, Unavailable
from agentmagic.messages import user
from agentmagic.providers.anthropic.decoder import refusal as claude_refusal
from agentmagic.providers.base import Request
from agentmagic.providers.failures import Fault
from agentmagic.providers.gemini.decoder import refusal as gemini_refusal
from agentmagic.providers.ollama import refusal as ollama_refusal
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.client import error_for, fault_of
from agentmagic.providers.openai.responses import OpenAIResponses
from agentmagic.providers.too_long import is_too_long
from tests.providers.loopback import Exchange, Loopback, ask, sse

Json = dict[str, Any]

TOO_LONG = {
    "OpenAI": "This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 tokens.",
    "OpenAI (Responses)": "Your input exceeds the context window of this model. Please adjust your input.",
    "Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "Anthropic, with the answer": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "Gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Vertex AI": "The input token count is 2000000 but model only supports up to 1048576.",
    "Amazon Bedrock": "Input is too long for requested model.",
    "Amazon Bedrock (Titan)": "Input Tokens Exceeded: Number of input tokens exceeds maximum length",
    "Moonshot": "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Groq": "Please reduce the length of the messages or completion.",
    "Cerebras": "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    "vLLM": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
    "(4000 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.",
    "vLLM, with the answer": "'max_tokens' or 'max_completion_tokens' is too large: 1000. This model's maximum context "
    "length is 4096 tokens and your request has 4000 input tokens (1000 > 4096 - 4000).",
    "vLLM, the engine": "The decoder prompt (length 5000) is longer than the maximum model length of 4096. For image "
    "inputs, the number of image tokens depends on the number of images.",
    "SGLang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "SGLang, with the answer": "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size",
    "llama.cpp, counted": "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context length.",
    "LM Studio, the older": "Trying to keep the first 5000 tokens when context the overflows. However, the model is "
    "loaded with context length of only 4096 tokens, which is not enough.",
    "Ollama": "the prompt is longer than the context length currently available to the model; shorten it",
    "Ollama, the input": "the input length exceeds the context length",
    "Ollama Cloud": "prompt too long; exceeded max context length by 4 tokens",
    "DashScope": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 202745]",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "OpenRouter": "This endpoint's maximum context length is 163840 tokens. You requested about 200000 tokens.",
    "OpenRouter (Poolside)": "Input length 140000 exceeds the maximum allowed input length of 131040 tokens.",
    "LiteLLM": "litellm.ContextWindowExceededError: litellm.BadRequestError: the context window is exceeded",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
    "Together": "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens "
    "and 512 `max_new_tokens`",
    "TGI": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
    "GitHub Copilot": "prompt token count of 70000 exceeds the limit of 64000",
    "GitHub Models": "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "MiniMax": "invalid params, context window exceeds limit (2013)",
    "Z.ai": "Prompt exceeds max length",
    "Volcengine": "Input length 40000 exceeds the maximum length 32768",
    "Volcengine, with pictures": "Total tokens of image and text exceed max message tokens.",
    "SiliconFlow": "length of prompt_tokens (40000) must be less than max_seq_len (32768).",
    "Fireworks": "The prompt is too long: 140000, model maximum context length: 131071",
    "TensorRT-LLM": "The sum of prompt length (4000), query length (0) and max_tokens should not exceed max_num_tokens",
    "Databricks": "Too many input tokens: 140000. The limit is 128000.",
    "OpenAI, the configured limit": "Input tokens exceed the configured limit of 272000 tokens.",
    "Amazon Bedrock, characters": "Malformed input request: expected maxLength: 51200, actual: 60000, please reformat "
    "your input and try again.",
    "Moonshot, without numbers": "Invalid request: Input token length too long",
    "watsonx": "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
    "Snowflake": "max tokens of 8192 exceeded",
    "vLLM, nothing left": "max_tokens must be at least 1, got -1234.",
    "Gemini, bytes": "Request payload size exceeds the limit: 20971520 bytes.",
    "OpenAI, a message": "Invalid 'messages[1].content': string too long. Expected one with maximum length 1048576.",
    "OpenAI, the list": "Invalid 'messages': array too long. Expected an array with maximum length 2048.",
}
"""The words of each maker for a conversation that is too long."""

OTHER = {
    "a tool's name": "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64.",
    "a tool's description": "Invalid 'tools[3].function.description': string too long; it exceeds the context limit.",
    "a user": "Invalid 'user': string too long. Expected a string with maximum length 64, but got one of length 90.",
    "metadata": "metadata.user_id: String should have at most 256 characters",
    "a key of the cache": "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64.",
    "an id": "Invalid 'input[2].call_id': string too long. Expected a string with maximum length 64.",
    "a name in a message": "Invalid 'messages[2].tool_calls[0].function.name': string too long.",
    "a picture's address": "Invalid 'input[1].content[0].image_url': string too long.",
    "instructions": "Invalid 'instructions': string too long. Expected a string with maximum length 256000.",
    "a stop sequence": "stop_sequences.0: String should have at most 100 characters",
    "a tool of Anthropic": "tools.0.custom.name: String should have at most 128 characters",
    "the answer": "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "the answer (Anthropic)": "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
    "the answer (Gemini)": "The request has a maxOutputTokens value of 99999 but the supported "
    "range is from 1 (inclusive) to 65537 (exclusive).",
    "the answer (vLLM)": "'max_tokens' is too large: 9000. This model's maximum context length "
    "is 4096 tokens and your request has 200 input tokens (9000 > 4096 - 200).",
    "the answer (TGI)": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 10 `inputs` tokens and 5000 "
    "`max_new_tokens`",
    "the answer, without numbers": "max_tokens must be less than the context window of the model",
    "the answer (a gateway)": "`max_tokens` (300000) exceeds the model's context length",
    "the name of a field": "Unknown parameter: 'context_window'.",
    "the answer (DashScope)": "Range of max_tokens should be [1, 8192]",
    "a picture": "messages.5.content.0.image.source.base64: image exceeds 5 MB maximum: 7000000 bytes > 5242880 bytes",
    "many pictures": "Too many images in request: at most 100 images are allowed.",
    "a list of pictures": "Invalid 'messages[1].content': array too long. Expected an array with maximum length 100.",
    "many tools": "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 200.",
    "tokens a minute": "Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    "throttling": "Throttling error: Too many tokens, please wait before trying again.",
    "tokens a day": "Too many tokens per day, please wait before trying again.",
    "a temperature": "temperature: range: 0..1",
}
"""What else is too long, too large or too many."""


@pytest.mark.parametrize("words", TOO_LONG.values(), ids=TOO_LONG)
@pytest.mark.parametrize("status", [None, 400, 422])
def test_the_words_of_each_maker_are_known_with_every_provider(words: str, status: int | None):
    errors = (
        error_for(fault_of({"message": words}, status)),
        claude_refusal(status or 400, {"error": {"type": "invalid_request_error", "message": words}}, "m"),
        gemini_refusal(status or 400, {"error": {"message": words}}, "m"),
        ollama_refusal(status, words, "m"),
    )
    assert {type(error) for error in errors} == {ContextTooLong}


@pytest.mark.parametrize("words", OTHER.values(), ids=OTHER)
@pytest.mark.parametrize("code", ["", "string_above_max_length", "invalid_request_error"])
def test_what_else_is_too_long_is_no_long_conversation(words: str, code: str):
    errors = (
        error_for(Fault(words, code, 400)),
        claude_refusal(400, {"error": {"type": code, "message": words}}, "m"),
        gemini_refusal(400, {"error": {"message": words}}, "m"),
        ollama_refusal(400, words, "m"),
    )
    assert ContextTooLong not in {type(error) for error in errors}


@pytest.mark.parametrize(
    ("code", "param", "status", "expected"),
    [
        *((code, "", 400, True) for code in ("context_length_exceeded", "exceed_context_size_error", "1261")),
        *((code, "", None, True) for code in ("ContextWindowExceededError", "tokens_limit_reached")),
        ("context_length_exceeded", "messages", 400, True),
        ("context_length_exceeded", "input", None, True),
        ("context_length_exceeded", "tools[0].function.name", 400, False),
        ("context_length_exceeded", "", 500, True),
        ("string_above_max_length", "messages[3].content", 400, True),
        ("string_above_max_length", "input[3].output", 400, True),
        ("string_above_max_length", "messages[3].tool_calls[0].function.arguments", 400, True),
        ("string_above_max_length", "tools[0].function.name", 400, False),
        ("string_above_max_length", "input[3].call_id", 400, False),
        *(("string_above_max_length", field, 400, False) for field in ("user", "prompt_cache_key", "instructions")),
        ("string_above_max_length", "", 400, False),
        ("array_above_max_length", "messages", 400, True),
        ("array_above_max_length", "messages[1].content", 400, False),
        ("array_above_max_length", "tools", 400, False),
        ("", "", 413, True),
        ("", "", 429, False),
        ("", "", 400, False),
    ],
)
def test_the_field_that_is_named_decides_before_the_code(code: str, param: str, status: int | None, expected: bool):
    error = error_for(fault_of({"message": "Odd.", "code": code, "param": param}, status))
    assert isinstance(error, ContextTooLong) is expected


@pytest.mark.parametrize(
    ("words", "status", "kind"),
    [
        ("Request Entity Too Large", 413, ContextTooLong),
        ("The image is too large", 413, BadRequest),
        ("tokens per minute (TPM): Limit 6000, Used 5000, Requested 1400", 413, RateLimited),
        ("tokens per minute (TPM): Limit 6000, Requested 14000, please reduce your message size", 413, BadRequest),
        ("Request too large on tokens per min (TPM): Limit 30,000, Requested 46,477.", 429, BadRequest),
        ("Too many tokens", 429, RateLimited),
        ("Context size has been exceeded.", 500, ContextTooLong),
        ("prompt is too long", 500, Unavailable),
    ],
)
def test_a_status_says_what_the_words_mean(words: str, status: int, kind: type[ProviderError]):
    assert type(error_for(Fault(words, "", status))) is kind


def test_words_that_are_endless_are_searched_in_part_and_no_number_is_too_large():
    assert not is_too_long("x" * 5_000 + "context length" + "9" * 9_000)
    assert is_too_long("maximum context length is " + "9" * 3_000)
    assert not is_too_long("limit " * 700, "x" * 9_000, "[" * 9_000)


@pytest.mark.parametrize(
    ("field", "requests"), [("tools[0].function.name", 5), ("prompt_cache_key", 5), ("messages[1].content", 7)]
)
def test_a_summary_is_paid_for_only_if_the_conversation_is_too_long(field: str, requests: int):
    text = "A long answer. " * 400
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    body = {"error": {"message": "Too long.", "code": "string_above_max_length", "param": field}}
    error = Exchange(json.dumps(body), status=400, content_type="application/json")
    replies = [*[Exchange(sse(chunk, done=True))] * 4, error, *[Exchange(sse(chunk, done=True))] * 2]
    with Loopback(replies) as server:
        session = Session(Agent(OpenAIChat("m", base_url=f"{server.url}/v1"), retry=RetrySettings(tries=1)))
        for _ in range(4):
            session.ask("more " * 400)
        with pytest.raises(BadRequest) if requests == 5 else nullcontext():
            session.ask("more")
        assert len(server.requests) == requests


@pytest.mark.parametrize("provider", [OpenAIResponses, OpenAIChat])
def test_an_error_in_the_stream_is_read_with_its_field(provider):
    error = {"message": "Too long.", "code": "string_above_max_length"}
    for field, kind in (("input[1].output", ContextTooLong), ("input[1].call_id", ProviderError)):
        with Loopback([Exchange(sse({"error": error | {"param": field}}))]) as server, pytest.raises(kind) as caught:
            ask(provider("m", base_url=f"{server.url}/v1", api_key="sk-test"), Request((user("go"),)))
        assert isinstance(caught.value, ContextTooLong) is (kind is ContextTooLong)
