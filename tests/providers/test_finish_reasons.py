"""What the word means with which a server ends an answer: one row a maker, and each API reads the same table."""

from collections.abc import Callable
from typing import Any

import pytest

from agentmagic.errors import BadRequest, MalformedCall, ProviderError, StreamBroken
from agentmagic.providers.anthropic.decoder import Decoder as Anthropic
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.batch import decode_answer
from agentmagic.providers.finish_reasons import ending_of, kind_of, unknown_end
from agentmagic.providers.gemini import decoder as gemini
from agentmagic.providers.gemini.decoder import Decoder as Gemini
from agentmagic.providers.ollama import Decoder as OllamaDecoder
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses

Json = dict[str, Any]

MAKERS = {
    "OpenAI": ("stop tool_calls function_call", "length", "content_filter", "", ""),
    "Responses": ("completed", "incomplete max_output_tokens", "content_filter", "failed cancelled", ""),
    "Anthropic": (
        "end_turn stop_sequence tool_use pause_turn",
        "max_tokens model_context_window_exceeded",
        "refusal",
        "",
        "",
    ),
    "Gemini": (
        "STOP FINISH_REASON_STOP",
        "MAX_TOKENS FINISH_REASON_MAX_TOKENS",
        "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY MODEL_ARMOR",
        "",
        "MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MALFORMED_RESPONSE",
    ),
    "Google's endpoint for OpenAI's API": (
        "stop",
        "length",
        "content_filter:_RECITATION",
        "",
        "function_call_filter:_MALFORMED_FUNCTION_CALL",
    ),
    "Bedrock": (
        "end_turn tool_use stop_sequence",
        "max_tokens model_context_window_exceeded",
        "guardrail_intervened content_filtered",
        "",
        "malformed_model_output malformed_tool_use",
    ),
    "Mistral": ("stop tool_calls", "length model_length", "", "error", ""),
    "DeepSeek": ("stop tool_calls", "length", "content_filter", "insufficient_system_resource", ""),
    "Z.ai": ("stop tool_calls", "length model_context_window_exceeded", "sensitive", "network_error", ""),
    "Cohere": ("COMPLETE STOP_SEQUENCE TOOL_CALL", "MAX_TOKENS ERROR_LIMIT", "ERROR_TOXIC", "ERROR USER_CANCEL", ""),
    "Together": ("stop eos tool_calls", "length", "", "", ""),
    "watsonx": ("eos_token stop_sequence", "max_tokens token_limit", "", "cancelled error not_finished", ""),
    "vLLM, SGLang": ("stop tool_calls", "length", "", "abort error", ""),
    "Titan, Jurassic": ("FINISHED STOP_CRITERIA_MET endoftext", "LENGTH", "CONTENT_FILTERED", "", ""),
    "Aleph Alpha": ("end_of_text stop_sequence_reached", "maximum_tokens", "", "", ""),
    "SambaNova, Baidu": ("end_of_text normal", "max_len_reached", "", "", ""),
    "TGI": ("eos_token stop_sequence", "length", "", "", ""),
    "llama.cpp": ("stop eos tool_calls", "length limit", "", "", ""),
    "LM Studio": (
        "eosFound stopStringFound toolCalls",
        "maxPredictedTokensReached contextLengthReached",
        "",
        "userStopped modelUnloaded failed",
        "",
    ),
    "Ollama": ("stop load unload", "length", "", "", ""),
    "AI SDK": ("stop tool-calls", "length", "content-filter", "error", ""),
    "an enum as text": ("FinishReason.STOP FinishReason.TOOL_CALLS", "FinishReason.LENGTH", "", "", ""),
}
"""The words of each maker for an answer that is whole, cut, refused, broken off, or has a call that cannot be read."""

KINDS = ("whole", "cut", "refused", "broken", "malformed")
TABLE = [
    pytest.param(word.replace(":_", ": "), kind, id=f"{maker}-{word}")
    for maker, rows in MAKERS.items()
    for kind, words in zip(KINDS, rows, strict=True)
    for word in words.split()
]
UNKNOWN = ["weird", "time_limit", "FINISH_REASON_UNSPECIFIED", "other", "stopped by a rule", "!", ":", "x" * 9_000]


@pytest.mark.parametrize(("word", "kind"), [*TABLE, *(pytest.param(word, "unknown") for word in UNKNOWN)])
def test_the_word_of_a_maker_has_a_row_in_any_case(word: str, kind: str):
    assert {kind_of(word), kind_of(word.upper())} == {kind}


def test_every_reason_that_gemini_explains_has_the_same_row_in_the_table():
    assert {kind_of(word) for word in gemini._BLOCK_REASONS} == {"refused"}  # pyright: ignore[reportPrivateUsage]
    assert {kind_of(word) for word in gemini._MALFORMED_REASONS} == {"malformed"}  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("word", "error", "words"),
    [
        ("content_filter", BadRequest, "content filter stopped it. Word"),
        ("Guardrail_Intervened", BadRequest, r"stopped it \(Guardrail_Intervened\)"),
        ("network_error", StreamBroken, r"\(network_error\). Send the request again"),
        ("MALFORMED_FUNCTION_CALL", MalformedCall, r"cannot be read \(MALFORMED_FUNCTION_CALL\)"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_that_names_the_reason(word, error, words: str):
    with pytest.raises(error, match=words) as caught:
        ending_of(word)
    assert caught.value.retryable is error.retryable


def test_an_unknown_reason_is_shown_on_one_short_line_without_secrets():
    said = unknown_end("odd\n\x1b[31m sk-ant-api03-" + "a" * 90 + "x" * 9_000)
    assert len(said) < 300
    assert all(word not in said for word in ("\n", "\x1b", "sk-ant"))


def chat(reason: str) -> list[Json]:
    return [{"choices": [{"delta": {"content": "It is"}}]}, {"choices": [{"delta": {}, "finish_reason": reason}]}]


def claude(reason: str) -> list[Json]:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "It is"}}
    return [block, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def google(reason: str) -> list[Json]:
    return [{"candidates": [{"content": {"parts": [{"text": "It is"}]}, "finishReason": reason}]}]


def llama(reason: str) -> list[Json]:
    return [{"message": {"content": "It is"}, "done": True, "done_reason": reason}]


ITEM = {"type": "message", "content": [{"type": "output_text", "text": "It is"}]}


@pytest.mark.parametrize("nothing", ["null", "None"])
def test_a_missing_reason_that_a_server_writes_as_text_ends_nothing(nothing: str):
    decoder = Chat()
    chunk = {"choices": [{"delta": {"content": "It is"}, "finish_reason": nothing}]}
    assert [*decoder.feed(chunk)]
    assert decoder.rest is None
    with pytest.raises(StreamBroken):
        list(decoder.close())
    assert [*decoder.close(done=True)][-1].reason == "stop"


def response(reason: str) -> list[Json]:
    return [{"type": "response.done", "response": {"status": reason, "output": [ITEM]}}]


APIS: dict[str, tuple[Callable[[], Any], Callable[[str], list[Json]]]] = {
    "openai-chat": (Chat, chat),
    "openai": (Responses, response),
    "anthropic": (lambda: Anthropic("claude-sonnet-4-6"), claude),
    "gemini": (lambda: Gemini("gemini-3-pro"), google),
    "ollama": (OllamaDecoder, llama),
}


def end_of(api: str, reason: str) -> ModelFinished:
    decoder, write = APIS[api]
    decoder = decoder()
    events = [event for chunk in write(reason) for event in decoder.feed(chunk)]
    return [*events, *decoder.close()][-1]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("reason", "cut", "unknown"),
    [
        *((word, False, False) for word in ("stop", "STOP", "end_turn", "tool_use", "COMPLETE", "eos_token")),
        *((word, True, False) for word in ("length", "max_tokens", "MAX_TOKENS", "model_length")),
        *((word, False, True) for word in ("weird", "time_limit")),
    ],
)
def test_every_api_reads_how_an_answer_ended_from_the_same_table(api: str, reason: str, cut: bool, unknown: bool):
    end = end_of(api, reason)
    assert (end.reason, end.cut, end.unknown) == (reason, cut, unknown)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("reason", "error"),
    [
        *((word, BadRequest) for word in ("content_filtered", "guardrail_intervened", "sensitive", "SAFETY")),
        *((word, StreamBroken) for word in ("network_error", "abort", "error", "insufficient_system_resource")),
        *((word, MalformedCall) for word in ("MALFORMED_FUNCTION_CALL", "malformed_tool_use")),
    ],
)
def test_no_api_takes_half_an_answer_for_a_whole_one(api: str, reason: str, error: type[ProviderError]):
    with pytest.raises(error):
        end_of(api, reason)


@pytest.mark.parametrize(
    ("event", "end"),
    [
        ({"type": "response.completed", "response": {"status": "in_progress"}}, (False, False)),
        ({"type": "response.completed", "response": {"status": "incomplete"}}, (True, False)),
        ({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "weird"}}}, (True, True)),
        ({"object": "response", "status": "in_progress", "output": [ITEM]}, (False, True)),
    ],
)
def test_a_response_is_as_whole_as_its_closing_event_says(event: Json, end: tuple[bool, bool]):
    finished = list(Responses().feed(event))[-1]
    assert (finished.cut, finished.unknown) == end


@pytest.mark.parametrize(("reason", "expected"), [("stop", False), ("weird", True)])
def test_the_answer_of_a_batch_is_read_with_the_same_table(reason: str, expected: bool):
    whole = {"type": "message", "content": [{"type": "text", "text": "fine"}]}
    answer = decode_answer(Anthropic("claude-sonnet-4-6"), whole | {"stop_reason": reason})
    assert isinstance(answer, list)
    assert answer[-1].unknown is expected
    failed = decode_answer(Anthropic("claude-sonnet-4-6"), whole | {"stop_reason": "guardrail_intervened"})
    assert isinstance(failed, BadRequest)
