"""The inspector: raw requests and responses of every API, a timeline, tokens, secrets, bounds."""

import json
import re

import pytest

from agentmagic import Agent, Session
from agentmagic.errors import UsageError
from agentmagic.providers import traffic
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.secrets import register_secret
from agentmagic.testing import run
from agentmagic.widgets.inspector import MOST_CHUNKS, inspect_turn, page_of
from tests.contracts.conversing import Conversations, every_api, one_api
from tests.providers.strict.script import Answer, Call, Fault, say
from tests.turns import calls, scripted

SECRET = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def conversation():
    conversations = Conversations()
    yield conversations
    conversations.close()


@pytest.fixture
def asked():
    """A scripted session with one turn that calls a tool."""
    session = scripted(calls(("clock", {"zone": "UTC"})), "It is noon.", tools=[clock])
    run(session, "What time is it?")
    yield session
    session.close()


def clock(zone: str) -> str:
    """Tell the time in a zone."""
    return f"noon in {zone}"


@every_api
def test_a_turn_is_shown_as_its_provider_had_it(conversation, api):
    with conversation(api, Answer((Call("clock", '{"zone": "UTC"}'),)), say("It is noon.")) as talk:
        talk.ask()
        seen = inspect_turn(talk.session)
        bodies = [json.loads(request.body) for request in talk.server.requests[-2:]]
    assert [one.title for one in seen.requests] == ["Step 1", "Step 2"]
    assert [one.sent for one in seen.requests] == bodies
    assert seen.requests[0].sent_note.startswith("POST http://127.0.0.1")
    answer = "".join(seen.requests[1].received)
    assert "It" in answer
    assert all(line.startswith(("{", "[")) for one in seen.requests for line in one.received)
    assert seen.requests[0].received_note == "Status 200."
    assert [(bar.name, bar.depth) for bar in seen.bars] == [("Step 1", 0), ("clock", 1), ("Step 2", 0)]


@one_api
def test_tries_that_failed_are_counted_and_the_answer_to_the_last_request_is_shown(conversation, api):
    with conversation(api, Fault(500), say("Here."), Fault(400)) as talk:
        talk.ask()
        (tried,) = inspect_turn(talk.session).requests
        talk.ask()
        (refused,) = inspect_turn(talk.session).requests
    assert (tried.title, tried.received_note) == ("Step 1, try 2", "Status 200.")
    assert refused.received_note == "Status 400."
    assert "error" in refused.received[0]


@one_api
def test_a_secret_is_blanked_on_both_ways_also_if_chunks_split_it(conversation, api):
    register_secret(SECRET)
    with conversation(api, say(f"The word is {SECRET}.")) as talk:
        talk.ask(f"Say {SECRET}.")
        seen = inspect_turn(talk.session)
    assert SECRET not in repr(seen)
    assert SECRET not in seen._repr_html_()
    assert SECRET not in json.dumps(page_of(talk.session, 0))
    assert "battery" not in repr(seen)


@one_api
def test_a_replayed_turn_shows_the_request_as_its_provider_encodes_it(conversation, api, tmp_path):
    path = tmp_path / "x.cassette.yaml"
    with conversation(api, say("It is noon.")) as talk:
        recording = Session(Agent(talk.model), cassette=path, replay="record")
        run(recording, "What time is it?")
        recording.close()
        body = json.loads(talk.server.requests[-1].body)
        name = talk.model.name
    session = Session(Agent(name), cassette=path, replay="replay")
    run(session, "What time is it?")
    (only,) = inspect_turn(session).requests
    session.close()
    assert only.sent == body
    assert "from a cassette" in only.sent_note
    assert "It is noon." in "".join(only.received)


def test_a_model_without_http_is_shown_in_our_own_form(asked):
    seen = inspect_turn(asked)
    first, second = seen.requests
    assert first.sent["messages"][-1]["parts"] == [{"type": "text", "text": "What time is it?"}]
    assert "own form" in first.sent_note
    assert "It is noon." in second.received[0]
    assert second.tokens["results"] > 0
    assert list(second.tokens) == ["instructions", "tools", "history", "results", "prompt"]


def test_tokens_are_those_of_a_preview(asked):
    before = asked.preview("And in Oslo?").tokens
    asked.agent = Agent(ScriptedModel(["Noon too."]), tools=[clock])
    run(asked, "And in Oslo?")
    assert inspect_turn(asked).requests[0].tokens == before


def test_the_text_and_the_html_hold_the_timeline_the_meter_and_both_ways(asked):
    seen = inspect_turn(asked)
    text, html = repr(seen), seen._repr_html_()
    for words in ("Turn 1", "Context: ", "Step 1", "clock", "Request", "Response", "noon in UTC"):
        assert words in text
        assert words in html
    assert re.search(r"<details[^>]*><summary[^>]*><b[^>]*>Step 1</b>", html)
    assert re.search(r"<td[^>]*><div [^>]*margin-left:[^>]*></div></td>", html)
    timeless = inspect_turn(asked, times=False)
    assert " ms" not in repr(timeless) + timeless._repr_html_()


def test_a_search_leaves_the_lines_with_the_words(asked):
    seen = inspect_turn(asked).search("NOON IN")
    assert [one.title for one in seen.requests] == ["Step 2"]
    assert seen.requests[0].sent_text == '"text": "noon in UTC"'
    assert "occurs in no request" in inspect_turn(asked).search("midnight").note


def test_a_turn_that_is_not_there_is_refused(asked):
    with pytest.raises(UsageError, match="There is no turn 7"):
        inspect_turn(asked, 7)
    with pytest.raises(UsageError, match="There are no turns yet"):
        inspect_turn(scripted("x"))


def test_only_the_last_turns_keep_their_requests():
    session = scripted(*["ok"] * (traffic.MOST_TURNS + 1))
    for _ in range(traffic.MOST_TURNS + 1):
        run(session, "again")
    assert inspect_turn(session, 1).requests == ()
    assert "not kept" in repr(inspect_turn(session, 1))
    assert inspect_turn(session, 2).requests
    session.close()


def test_what_is_kept_is_bounded():
    kept = traffic.HttpExchange("POST", "http://x", b"")
    kept.receive(b"a" * traffic.LONGEST_BODY)
    kept.receive(b"b")
    assert (kept.size, kept.whole, len(kept.chunks)) == (traffic.LONGEST_BODY, False, 1)
    turn = traffic.TurnTraffic()
    for _ in range(2):
        exchange = traffic.ModelExchange(None, 1, http=[kept])
        turn.exchanges.append(exchange)
    turn.trim(traffic.LONGEST_BODY)
    assert [one.is_dropped for one in turn.exchanges] == [True, False]


def test_a_long_response_is_shown_in_part(asked):
    exchange = asked.traffic.of(asked.turns[0]).exchanges[0]
    exchange.http.append(traffic.HttpExchange("POST", "http://x", b'{"a": 1}', 200))
    exchange.http[0].receive(b"".join(b'data: {"n": %d}\n\n' % number for number in range(1000)))
    received = inspect_turn(asked).requests[0].received
    assert len(received) == MOST_CHUNKS + 1
    assert received[0] == '{"n": 0}'
    assert received[-1] == '{"n": 999}'
    assert f"({1000 - MOST_CHUNKS} chunks are left out here)" in received
