"""Every provider through every fault: it ends in an answer or a typed error, and the conversation goes on.

Each turn runs through a real session and the real SDK against a server as strict as the real API.
"""

import re

import pytest
from tenacity import wait_none

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    EmptyAnswer,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.events import TRIES
from tests.contracts.conversing import every_api, retries, words_of
from tests.providers.strict.script import (
    DROPPED,
    TOO_LONG,
    Answer,
    Call,
    Think,
    call,
    fault,
    say,
    silence,
)
from tests.turns import results

HALF = "Half an answer that never comes to its end."
ANSWER = "It is noon."
UTC = ("clock", {"zone": "UTC"})
CET = ("clock", {"zone": "CET"})
AGAIN = 3
"""How often a model is asked at most that says nothing, or writes what cannot be read."""

PASSING = {
    "408": (fault(408), Unavailable),
    "409": (fault(409), Unavailable),
    "429": (fault(429), RateLimited),
    "dropped": (DROPPED, Unavailable),
    "closed in text": (say(HALF, think=HALF, ends="closed"), StreamBroken),
    "error in text": (say(HALF, ends="error"), Unavailable),
    "closed in a call": (call(UTC, CET, says=HALF, ends="closed"), StreamBroken),
}
"""Faults that may pass, and what they raise where they do not."""

FINAL = {
    "400": (fault(400), BadRequest),
    "401": (fault(401), AuthenticationFailed),
    "403": (fault(403), AuthenticationFailed),
    "404": (fault(404), BadRequest),
    "too long": (TOO_LONG, ContextTooLong),
}
"""Faults that the same request would meet again."""


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("agentmagic.loop.retry._backoff", lambda _settings: wait_none())


SECRET = {
    "openai": "-A secret thought.",
    "openai-chat": "A secret thought.",
    "gemini": "c2lnbmF0dXJl",  # "signature"
    "anthropic": "c2lnbmF0dXJl",
    "ollama": "A secret thought.",
}


@every_api
def test_a_whole_turn_is_accepted_and_reasoning_and_signatures_go_back_as_they_came(conversation, api):
    """A provider could also get a history accepted by leaving them out; the model would have to think anew."""
    first = call(UTC, CET, think="A secret thought.", says="Let me look.")
    between = Answer((Think("Hm."), Call("clock", '{"zone": "UTC"}'), Think("And."), Call("clock", '{"zone": "CET"}')))
    with conversation(api, first, between, between, say(ANSWER)) as talk:
        result, error = talk.ask()
        assert (error, result.final_text) == (None, ANSWER)
        assert sorted(talk.ran) == ["CET", "CET", "CET", "UTC", "UTC", "UTC"]
        sent = talk.server.requests[1].body.decode()
        assert SECRET[api] in sent
        assert "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I" not in sent  # "skip_thought_signature_validator"
        talk.goes_on()


@every_api
def test_a_fault_that_passes_is_tried_again_as_a_whole(conversation, api):
    faults = (fault(503), DROPPED, call(UTC, CET, think=HALF, says=HALF, ends="closed"), say(HALF, ends="error"))
    with conversation(api, call(UTC), *faults, say(ANSWER)) as talk:
        result, error = talk.ask()
        assert (error, result.stop_reason, result.final_text) == (None, "answer", ANSWER)
        assert talk.ran == ["UTC"]
        assert retries(result) == len(faults)
        assert HALF[:4] not in words_of(result)
        talk.goes_on()


@every_api
@pytest.mark.parametrize(("fault", "kind"), PASSING.values(), ids=PASSING)
def test_a_fault_that_stays_raises_its_error_after_the_last_try(conversation, api, fault, kind):
    with conversation(api, call(UTC), *[fault] * TRIES) as talk:
        result, error = talk.ask()
        assert isinstance(error, kind), repr(error)
        assert error.retryable
        assert result.stop_reason == "error"
        assert len(talk.server.requests) == 1 + TRIES
        assert retries(result) == TRIES - 1
        assert talk.ran == ["UTC"]
        talk.goes_on()


@every_api
@pytest.mark.parametrize(("fault", "kind"), FINAL.values(), ids=FINAL)
def test_a_refusal_raises_its_error_at_once(conversation, api, fault, kind):
    with conversation(api, call(UTC), fault) as talk:
        result, error = talk.ask()
        assert type(error) is kind
        assert result.stop_reason == "error"
        assert len(talk.server.requests) == 2
        assert retries(result) == 0
        assert talk.ran == ["UTC"]
        talk.goes_on()


@every_api
def test_a_failure_with_status_200_is_told_in_its_words(conversation, api):
    with conversation(api, *[fault(200)] * TRIES) as talk:
        _, error = talk.ask()
        assert isinstance(error, BadRequest | Unavailable)
        assert re.search(r"with 200\.|server busy", str(error))
        talk.goes_on()


@every_api
def test_a_server_that_says_when_to_come_again_is_obeyed(conversation, api):
    with conversation(api, fault(429, retry_after="0.05"), fault(503, retry_after="0.1"), say(ANSWER)) as talk:
        result, _ = talk.ask()
        assert result.final_text == ANSWER
        assert [event.delay for event in result.events if event.type == "step_retried"] == [0.05, 0.1]


@every_api
@pytest.mark.parametrize("empty", [silence(), silence(think="Hm, hm.")], ids=["nothing", "only reasoning"])
def test_a_model_that_stays_silent_is_an_error(conversation, api, empty):
    with conversation(api, call(UTC), *[empty] * AGAIN) as talk:
        _, error = talk.ask()
        assert type(error) is EmptyAnswer
        assert len(talk.server.requests) == 1 + AGAIN
        assert talk.ran == ["UTC"]
        talk.goes_on()


@every_api
def test_a_text_cut_at_the_limit_of_length_is_kept_and_nothing_is_run_from_such_a_message(conversation, api):
    cut = call(UTC, CET, think="Hm.", ends="length")
    with conversation(api, say(HALF, ends="length"), cut, call(CET), say(ANSWER)) as talk:
        result, error = talk.ask()
        assert (error, result.stop_reason) == (None, "answer")
        assert result.final_text.startswith(HALF[:10])
        result, error = talk.ask()
        assert (error, result.final_text, talk.ran) == (None, ANSWER, ["CET"])
        assert [part.status for part in results(result)] == ["error", "error", "ok"]
        talk.goes_on()


@every_api
def test_tools_of_names_that_no_api_takes_are_refused_and_the_conversation_goes_on(conversation, api):
    names = ["default_api.clock", "what time is it?", "c" * 65, "c" * 129, "", "1.clock"]
    with conversation(api, call(*((name, {"zone": "UTC"}) for name in names)), say(ANSWER)) as talk:
        result, error = talk.ask()
        assert (error, result.final_text, talk.ran) == (None, ANSWER, [])
        talk.goes_on()
