"""A history goes on with any provider, whoever made it and however it was cut, undone, forked or edited."""

import base64
from dataclasses import replace
from itertools import permutations

import pytest

from agentmagic import Agent, tool
from agentmagic.providers import catalog
from agentmagic.providers.registry import register_model
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import PATIENCE, invalid_history
from tests.contracts.conversing import (
    GOES_ON,
    PIXEL,
    Conversation,
    api_case,
    every_api,
    tools,
)
from tests.providers.strict.script import TOO_LONG, call, say
from tests.providers.strict.server import APIS
from tests.serve.desks import Client, Office, listening_nowhere
from tests.turns import calls, deny, hosted

UTC = ("clock", {"zone": "UTC"})
CET = ("clock", {"zone": "CET"})
ANSWER = "It is noon."
PAIRS = [
    pytest.param(
        *(api_case(name).values[0] for name in pair),
        id=" to ".join(pair),
        marks=[mark for name in pair for mark in api_case(name).marks],
    )
    for pair in permutations(APIS, 2)
]
every_pair = pytest.mark.parametrize(("maker", "heir"), PAIRS)


def eventful(talk: Conversation) -> None:
    """Give a conversation all that is hard to hand over: two turns, the second of them cut off."""
    talk.server.script(
        call(UTC, CET, think="I need two times.", says="Let me look."),
        call(
            ("faulty", {}),
            ("camera", {}),
            ("default_api.clock", {"zone": "UTC"}),
            ("clock", {"place": "UTC"}),
            think="Hm.",
        ),
        say(ANSWER, think="That is all."),
    )
    _, error = talk.ask("What time is it here and there?")
    assert error is None, error
    interrupt(talk, call(UTC, think="Once more."), call(CET, UTC, think="Hm.", says="And th", ends="stall"))


def interrupt(talk: Conversation, *steps) -> None:
    """Run a turn that stands still, and cancel it there."""
    talk.server.stalled.clear()
    talk.server.script(*steps)
    run = talk.session.start("And now?")
    assert talk.server.stalled.wait(PATIENCE)
    run.cancel()
    assert run.wait().stop_reason == "cancelled"


def hand_over(talk: Conversation, heir: Conversation) -> None:
    """Let the model of another conversation go on with one, with calls of its own."""
    heir.server.script(call(UTC, CET, think="Let me see."), say(GOES_ON))
    result, error = talk.ask("Go on.", agent=Agent(heir.model, tools=tools(talk.ran)))
    assert (error, heir.server.refusals) == (None, [])
    assert result.final_text == GOES_ON
    assert invalid_history(talk.session.messages) is None


@every_pair
def test_a_history_goes_on_with_another_provider_and_back(conversation, maker, heir):
    with conversation(maker) as talk, conversation(heir) as other:
        eventful(talk)
        hand_over(talk, other)
        talk.goes_on()
        hand_over(talk, other)


@every_api
def test_a_history_with_call_ids_that_come_again_or_are_long_and_with_odd_arguments_goes_on(conversation, api):
    with conversation(api) as talk:
        for odd in (("clock", {"zone": "x" * 5000}), ("clock", {"zone": "\u0000 \U0001f600"})):
            counting_anew = ScriptedModel([calls(odd), "Done."])
            talk.ask(agent=Agent(counting_anew, tools=tools(talk.ran)))
        hand_over(talk, talk)


@pytest.mark.parametrize(("maker", "heir"), PAIRS[:1])
def test_a_history_that_was_compacted_can_be_handed_over(conversation, maker, heir):
    with conversation(maker) as talk, conversation(heir) as other:
        for _ in range(3):
            talk.server.script(call(UTC, think="Hm."), say(ANSWER))
            talk.ask("Tell me a long story. " * 50)
        talk.server.script(TOO_LONG, say("A summary."), say(ANSWER))
        result, error = talk.ask()
        assert (error, result.final_text) == (None, ANSWER)
        assert [event.type for event in result.events].count("compacted") == 1
        hand_over(talk, other)
        talk.goes_on()


@every_api
def test_a_turn_that_is_cancelled_at_any_of_its_events_leaves_a_history_that_goes_on(conversation, api):
    steps = (call(UTC, CET, think="I need two times.", says="Let me look."), say(ANSWER, think="That is all."))
    number, told, result = 0, [], None

    def listener(event) -> None:
        told.append(event)
        if len(told) == number:
            run.cancel()

    with conversation(api) as talk:
        while result is None or len(told) >= number:  # until a turn is over before so many events
            number += 1
            told.clear()
            talk.session.clear()
            prompt = f"What time is it at event {number}?"
            talk.server.script(*steps, to=prompt)
            run = talk.session.start(prompt)
            run.listen(listener)
            result = run.wait()
            assert result.stop_reason in ("cancelled", "answer"), number
            talk.goes_on()


def test_a_figure_of_a_prompt_is_sent_as_an_image_to_a_model_that_sees_and_else_named(conversation, monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    with conversation("ollama", say(ANSWER), say(ANSWER)) as talk:
        talk.ask(["What is in [image: pixel.png]?", PIXEL])
        register_model("ollama:qwen3", images=True)
        talk.ask(["And now?", PIXEL])
        named, seen = (sent.body.decode() for sent in talk.server.requests)
    assert base64.b64encode(PIXEL.data).decode() in seen
    assert base64.b64encode(PIXEL.data).decode() not in named
    assert "[image/png pixel.png, " in named


CALLED = {
    "carried out": ("clock", {"zone": "UTC"}, "noon in UTC"),
    "with a picture": ("camera", {}, "What I see:"),
    "failed": ("faulty", {}, "the gears are stuck"),
    "denied": ("careful", {}, "the user denied it"),
    "of no tool": ("clokc", {"zone": "UTC"}, "There is no tool"),
    "with odd arguments": ("clock", {"zone": "\ud800", "": float("inf")}, "noon in"),
}


@every_api
def test_a_history_with_the_calls_of_clients_goes_on_with_every_provider(conversation, api):
    @tool(ask=True)
    def careful() -> str:
        """Do something that could hurt."""
        return "done"

    with conversation(api) as talk, hosted(Office(deny)), listening_nowhere() as server:
        own = talk.session.agent
        talk.session.agent = replace(own, tools=[*own.tools, careful])
        talk.session.serve(tools=True)
        client = Client(server.desk, session=talk.session)
        for name, arguments, told in CALLED.values():
            assert told in client.call(name, **arguments).text
        talk.goes_on()
        client.call("clock", zone="UTC")
        talk.session.agent = own  # without a tool that was called
        talk.goes_on()
        talk.session.agent = replace(own, tools=[])
        talk.goes_on()


@every_api
def test_a_history_goes_on_after_a_call_whose_client_went_away(conversation, api):
    with conversation(api) as talk, hosted(Office()), listening_nowhere() as server:
        talk.session.serve(tools=True)
        client = Client(server.desk)
        call = client.start("ask_user", question="Sure?")
        client.waits_for("asked")
        run = talk.session.running
        call.cancel()
        assert run.settled.result(PATIENCE).result.stop_reason == "cancelled"
        talk.goes_on()
