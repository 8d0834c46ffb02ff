"""The words with which providers end an answer: what each means, and what an unknown one does."""

import json

import pytest
from pydantic import BaseModel

from agentmagic import Agent, Session
from agentmagic.errors import BadRequest, InvalidOutput, StreamBroken
from agentmagic.providers.anthropic.decoder import Decoder as Messages
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.endings import ending_of
from agentmagic.providers.gemini.decoder import Decoder as Gemini
from agentmagic.providers.ollama import Decoder as Ollama
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses
from agentmagic.testing import run
from tests.providers.loopback import Exchange, Loopback, sse
from tests.turns import notices

WORDS = {
    "whole": "stop STOP end_turn tool_calls tool_use function_call stop_sequence eos eos_token completed done Complete "
    "finish_reason_stop FINISH_REASON_STOP endTurn toolCalls",
    "cut": "length max_tokens MAX_TOKENS max_output_tokens model_length model_context_window_exceeded maxTokens Length "
    "incomplete FINISH_REASON_MAX_TOKENS",
    "withheld": "content_filter content-filter ContentFilter content_filtered refusal sensitive SAFETY "
    "guardrail_intervened prohibited_content content_filter:SAFETY moderation",
    "broken": "network_error error abort aborted cancelled insufficient_system_resource timeout OTHER",
    "unknown": "hm length_of_patience stop! repetition compaction",
}


@pytest.mark.parametrize(("word", "ending"), [(word, ending) for ending, row in WORDS.items() for word in row.split()])
def test_each_word_has_its_meaning(word, ending):
    assert ending_of(word) == ending


def chat(reason):
    return Chat(), [
        {"choices": [{"delta": {"content": "Half"}}]},
        {"choices": [{"delta": {}, "finish_reason": reason}]},
    ]


def responses(reason):
    item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Half"}]}
    end = {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": [item]}
    kind = "response.completed" if reason == "stop" else "response.incomplete"
    return Responses(), [{"type": kind, "response": end}]


def messages(reason):
    return Messages("m"), [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Half"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}},
        {"type": "message_stop"},
    ]


def gemini(reason):
    return Gemini("m"), [{"candidates": [{"content": {"parts": [{"text": "Half"}]}, "finishReason": reason}]}]


def ollama(reason):
    return Ollama(), [{"message": {"content": "Half"}, "done": True, "done_reason": reason}]


DIALECTS = pytest.mark.parametrize("dialect", [chat, responses, messages, gemini, ollama])


def end(dialect, reason) -> ModelFinished:
    """Return the closing event of an answer that ends for a reason."""
    decoder, chunks = dialect(reason)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [*events, *decoder.close()][-1]


@DIALECTS
@pytest.mark.parametrize(
    ("reason", "cut", "unclear"), [("max_tokens", True, False), ("tired", False, True), ("stop", False, False)]
)
def test_every_dialect_tells_a_whole_answer_from_one_that_is_cut_or_ended_for_an_unknown_reason(
    dialect, reason, cut, unclear
):
    closing = end(dialect, reason)
    assert (closing.cut, closing.unclear) == (cut, unclear)


@DIALECTS
@pytest.mark.parametrize(("reason", "error"), [("guardrail_intervened", BadRequest), ("network_error", StreamBroken)])
def test_every_dialect_raises_for_an_answer_that_was_withheld_or_broken_off(dialect, reason, error):
    with pytest.raises(error):
        end(dialect, reason)


def stream(text: str, reason: str) -> Exchange:
    """An answer of a chat server."""
    closing = {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}
    return Exchange(sse(closing) + sse(done=True))


def session(server, **options) -> Session:
    return Session(Agent(OpenAIChat("m", base_url=server.url, api_key="k"), **options))


def test_an_answer_with_an_unknown_end_is_kept_and_a_notice_names_the_reason():
    with Loopback([stream("Half", "tired\x1b[0m " * 40)]) as server:
        result = run(session(server), "Go.")
    (notice,) = notices(result)
    assert result.final_text == "Half"
    assert notice.startswith("The provider ended the answer for an unknown reason (tired")
    assert "\x1b" not in notice
    assert len(notice) < 200


class Person(BaseModel):
    name: str


def test_a_value_that_is_cut_twice_is_called_cut_and_not_asked_for_again():
    with Loopback([stream('{"name": "B', "length"), stream('{"name": "B', "length")]) as server:
        with pytest.raises(InvalidOutput, match=r"cut off at the model's limit of output.* Raise max_output_tokens"):
            session(server).ask("Go.", output=Person)
        again = server.requests[1].json["messages"][-1]["content"]
    assert len(server.requests) == 2
    assert "Be much shorter." in again
    assert "JSON" not in json.dumps(server.requests[0].json["messages"][-1]["content"])


def test_a_row_of_a_map_whose_end_is_unknown_has_failed():
    with Loopback([stream("Half", "tired")]) as server:
        (row,) = session(server).start_map(["a"], "{row}").wait()
    assert (row.status, row.value) == ("failed", None)
    assert "unknown reason (tired)" in row.error
