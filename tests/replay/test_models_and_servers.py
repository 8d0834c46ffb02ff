"""Every model and every kind of server is recorded once, and replayed after it is gone."""

import pytest

from agentmagic import Agent, ModelSettings, Session
from agentmagic.events import without_deltas
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.testing import invalid_history
from tests.providers.strict.script import call, say
from tests.providers.strict.server import APIS, strict
from tests.providers.test_local import Replies, local
from tests.providers.test_refusals import Refusing
from tests.turns import notices, script, texts

PROMPT = "What time is it?"


def clock(zone: str) -> str:
    """Return the time in a zone."""
    return f"noon in {zone}"


def unavailable(zone: str) -> str:
    """Return the time in a zone."""
    raise AssertionError("a tool ran")


unavailable.__name__ = "clock"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.cassette.yaml"


def ask(path, mode, agent, *prompts, **options):
    session = Session(agent, cassette=path, replay=mode)
    try:
        return [session.ask(prompt, **options) for prompt in prompts]
    finally:
        session.close()


def same(after, before):
    assert without_deltas(after.events) == without_deltas(before.events)
    assert after.history_delta == before.history_delta


def test_thinking_that_was_written_as_text_is_replayed(path):
    with strict("openai-chat", say("<think>` or</think>Noon, `so`.")) as server:
        (before,) = ask(path, "record", Agent(server.model()), PROMPT)
        same(ask(path, "replay", Agent(server.model()), PROMPT)[0], before)
    assert before.final_text == "Noon, `so`."


def test_a_field_that_the_server_refused_is_told_again_in_a_replay(path):
    extra = {"top_k": 5, "min_p": 0.1}
    refusals = {name: f"Unrecognized request argument supplied: {name}" for name in extra}
    with Refusing(OpenAIChat, refusals) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url), settings=ModelSettings(extra=extra))
        (before,) = ask(path, "record", agent, PROMPT)
    fresh = Agent(OpenAIChat("m", base_url=server.url), settings=ModelSettings(extra=extra))
    same(ask(path, "replay", fresh, PROMPT)[0], before)
    assert [text.split("`")[1] for text in notices(before)] == ["top_k", "min_p"]
    assert (before.final_text, len(server.asked)) == ("Fine.", 3)


@pytest.mark.parametrize("name", APIS)
def test_every_api_is_replayed_without_its_server_and_then_goes_on_with_it(name, path):
    asked = call(("clock", {"zone": "UTC"}), ("clock", {"zone": "CET"}), think="Hm.", says="Let me look.")
    with strict(name, asked, say("It is noon.", think="That is all."), say("Still noon.")) as server:
        (before,) = ask(path, "record", Agent(server.model(), tools=[clock]), PROMPT)
        assert len(server.requests) == 2
        played, live = ask(path, "auto", Agent(server.model(), tools=[clock]), PROMPT, "And now?")
        assert (len(server.requests), server.refusals, live.final_text) == (3, [], "Still noon.")
    same(played, before)
    same(ask(path, "replay", Agent(server.model(), tools=[unavailable]), PROMPT)[0], before)


def test_the_local_model_is_replayed_without_being_loaded(path):
    replies = Replies("clock", '{"zone":"UTC"}', "none", "It is noon in UTC.")
    (before,) = ask(path, "record", Agent(local(replies), tools=[clock]), PROMPT)
    assert texts(before) == ["noon in UTC"]
    same(ask(path, "replay", Agent(local(None), tools=[unavailable]), PROMPT)[0], before)


def test_a_plan_with_parallel_and_dependent_tasks_is_replayed(path):
    def task(name, zone, *after):
        more = {"after": list(after)} if after else {}
        return {"id": name, "tool": "clock", "parameters": {"zone": zone}, "description": "look", **more}

    plan = {"tasks": [task("t1", "UTC"), task("t2", "CET"), task("t3", "$t1")]}
    model = script({"route": "tools"}, plan, {"zone": "EST"}, "It is noon.")
    (before,) = ask(path, "record", Agent(model, tools=[clock]), PROMPT, plan=True)
    (after,) = ask(path, "replay", Agent(script(), tools=[unavailable]), PROMPT, plan=True)
    assert sorted(texts(after)) == ["noon in CET", "noon in EST", "noon in UTC"]
    assert texts(after) == texts(before)
    assert [event.type for event in after.events] == [event.type for event in before.events]
    assert not invalid_history(after.history_delta)
