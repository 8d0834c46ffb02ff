"""The calls of clients on the tape: recorded, played at their place, made anew, refused."""

import pytest

from agentmagic import Agent, Policy, Rule, Session, tool
from agentmagic.errors import ReplayMismatch, ServerError, UsageError
from agentmagic.events import ApprovalAsked, Deny, StepFinished, ToolFinished
from agentmagic.messages import ToolDef
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay import unasked
from agentmagic.replay.cassette import Cassette
from agentmagic.tools.base import Tool
from tests.serve.desks import Client, Office, listening_nowhere
from tests.turns import approve, hosted

ran = []


@tool
def double(number: int) -> int:
    """Double a number."""
    ran.append(number)
    return number * 2


@tool(ask=True)
def careful(what: str) -> str:
    """Do something that could hurt."""
    ran.append(what)
    return f"did {what}"


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@pytest.fixture
def tape(tmp_path):
    return tmp_path / "tape.yaml"


def scripted_on(tape, replay, *tools, answers=("One.", "Two."), **options):
    agent = Agent(ScriptedModel(answers), tools=tools or [double, careful], **options)
    return Session(agent, cassette=tape, replay=replay)


def prompts(session):
    return [turn.prompt.text for turn in session.turns]


def results_of(session):
    return [event.result.text for event in session.events if isinstance(event, ToolFinished)]


CALLED = "fastmcp calls double"
WHOLE = [CALLED, "One?", "claude calls careful", CALLED, "Two?", CALLED]


def record(tape, answer=approve, **options):
    """Record a notebook: calls of two clients before, between and after its turns."""
    session = scripted_on(tape, "record", **options)
    with hosted(Office(answer)), listening_nowhere() as server:
        serving = session.serve(tools=True)
        client, other = Client(server.desk), Client(server.desk, "claude")
        client.call("double", number=1)
        session.ask("One?")
        other.call("careful", what="harm")
        client.call("double", number=2)
        session.ask("Two?")
        client.call("double", number=3)
        serving.stop()
        session.close()
    assert prompts(session) == WHOLE
    assert results_of(session) == ["2", "did harm", "4", "6"]
    assert ran == [1, "harm", 2, 3]
    ran.clear()
    return session


def notebook(session, *asked, office=None, stop=True):
    """Run the cells of the notebook without its clients. Returns the server."""
    with hosted(office or Office(attended=False)), listening_nowhere() as server:
        serving = session.serve(tools=True)
        for prompt in asked or ("One?", "Two?"):
            session.ask(prompt)
        if stop:
            serving.stop()
        return server


def test_a_replay_plays_each_call_at_its_place_runs_nothing_and_serves_nothing(tape):
    recorded = record(tape)
    session = scripted_on(tape, "replay", answers=())
    server = notebook(session)
    assert prompts(session) == WHOLE
    assert results_of(session) == results_of(recorded)
    assert session.messages == recorded.messages
    assert (ran, server.desks, session.usage) == ([], {}, recorded.usage)
    assert session.usage.requests == 2
    steps = [event.usage.requests for event in session.events if isinstance(event, StepFinished)]
    assert steps == [0, 1, 0, 0, 1, 0]
    assert unasked.unasked_takes(tape) == []
    assert {one.cause for one in session.deck.verdicts} == {"same"}


def test_a_call_of_which_the_notebook_is_not_served_is_told_as_not_asked_for(tape):
    record(tape)
    session = scripted_on(tape, "replay", answers=())
    with pytest.raises(ReplayMismatch):
        session.ask("One?")  # its history lacks the first call
    assert [take.prompt for take in unasked.unasked_takes(tape)][:1] == [CALLED]


@pytest.mark.parametrize("change", ["clear", "save"])
def test_a_call_is_played_before_the_history_that_has_it_is_saved_or_cleared(tape, tmp_path, change):
    def cells(session, served):
        session.ask("One?")
        served()
        if change == "clear":
            session.clear()
        else:
            session.save(tmp_path / f"{session.deck.mode}.jsonl")
        session.ask("Two?")

    first = scripted_on(tape, "record")
    with hosted(Office()), listening_nowhere() as server:
        first.serve(tools=True)
        cells(first, lambda: Client(server.desk).call("double", number=1))
        first.close()
    again = scripted_on(tape, "replay", answers=())
    with hosted(Office()), listening_nowhere():
        again.serve(tools=True)
        cells(again, lambda: None)
        again.close()
    assert prompts(again) == prompts(first)
    if change == "save":
        assert Session.load(tmp_path / "replay.jsonl").tool_calls == 1


def test_the_answer_of_a_person_and_that_of_a_clients_user_are_played(tape):
    session = scripted_on(tape, "record")
    with hosted(Office(lambda event: Deny(event.id, "not now"))), listening_nowhere() as server:
        session.serve(tools=True)
        Client(server.desk).call("careful", what="harm")
        session.close()
    again = scripted_on(tape, "replay", answers=())
    with hosted(Office(approve)), listening_nowhere():
        again.serve(tools=True)
        again.close()
    assert "not now" in results_of(again)[0]
    assert ran == []


def test_auto_plays_what_is_recorded_and_then_serves(tape):
    record(tape)
    session = scripted_on(tape, "auto", answers=())
    with hosted(Office()), listening_nowhere() as server:
        session.serve(tools=True)
        assert prompts(session) == [CALLED]
        session.ask("One?")
        client = Client(server.desk)
        session.ask("Two?")
        assert prompts(session) == WHOLE[:-1]
        assert ran == []
        session.serving.play_recorded()
        assert client.call("double", number=9).text == "18"
        assert (prompts(session), ran) == ([*WHOLE, CALLED], [9])
        session.close()
    whole = scripted_on(tape, "replay", answers=())
    notebook(whole)
    assert results_of(whole)[-1] == "18"


def test_a_call_that_is_made_in_auto_is_carried_out_although_the_tape_has_one_of_the_same_tool(tape):
    record(tape)
    session = scripted_on(tape, "auto")
    with hosted(Office()), listening_nowhere() as server:
        session.serve(tools=True)
        assert Client(server.desk).call("double", number=50).text == "100"
        assert ran == [50]
        session.close()
    assert [take.prompt for take in Cassette.at(tape).takes] == [CALLED, *WHOLE]
    again = scripted_on(tape, "replay", answers=())
    with hosted(Office()), listening_nowhere():
        again.serve(tools=True)
        assert results_of(again) == ["2", "100"]
        again.close()


def test_recorded_calls_are_made_anew_in_auto_after_a_change_and_the_person_is_asked(tape):
    record(tape)
    session = scripted_on(tape, "auto", answers=("Other.", "Two."))
    with hosted(Office(approve)), listening_nowhere():
        session.serve(tools=True)
        session.ask("Something else?")
        session.ask("Two?")
        session.close()
    assert "harm" in ran
    assert sum(isinstance(event, ApprovalAsked) for event in session.events) == 1


POLICIES = {
    "as recorded": (approve, "ask", ["did harm"], True),
    "today's person denies": (lambda event: Deny(event.id), "ask", ["denied"], True),
    "today's policy allows": (None, Policy([Rule("allow", "careful")]), ["did harm"], False),
}


@pytest.mark.parametrize(("answer", "permission", "told", "asks"), POLICIES.values(), ids=POLICIES)
def test_replay_model_runs_the_tools_and_asks_as_todays_policy_says(tape, answer, permission, told, asks):
    session = scripted_on(tape, "record")
    with hosted(Office(approve)), listening_nowhere() as server:
        session.serve(tools=True)
        Client(server.desk).call("careful", what="harm")
        session.close()
    ran.clear()
    again = scripted_on(tape, "replay-model", answers=(), permission=permission)
    with hosted(Office(answer)), listening_nowhere() as server:
        again.serve(tools=True)
        assert server.desks == {}
        again.close()
    assert told[0] in results_of(again)[0]
    assert ran == (["harm"] if told == ["did harm"] else [])
    assert any(isinstance(event, ApprovalAsked) for event in again.events) is asks


def test_replay_tools_is_refused(tape):
    record(tape)
    session = scripted_on(tape, "replay-tools")
    with hosted(Office()), listening_nowhere(), pytest.raises(UsageError, match="replay-tools plays no calls"):
        session.serve()
    assert session.serving is None


@pytest.mark.parametrize("mode", ["replay", "replay-model", "replay-tools"])
def test_a_call_that_is_made_while_a_tape_is_played_is_refused(tape, mode):
    record(tape)
    session = scripted_on(tape, "auto")
    with hosted(Office()), listening_nowhere() as server:
        session.serve(tools=True)
        session.deck.choose(mode)
        came = Client(server.desk).call("double", number=4)
        assert came.is_error
        assert came.text == (
            f"The notebook plays a recording ({mode}), and no calls are carried out meanwhile. "
            "%agent live in the notebook ends that."
        )
        assert (ran, prompts(session)) == ([], [CALLED])
        session.deck.choose("live")
        assert Client(server.desk).call("double", number=4).text == "8"
        session.close()


def test_a_tool_that_has_changed_is_told_as_for_any_turn(tape):
    record(tape)

    @tool
    def double(number: int, twice: bool = False) -> int:
        """Double a number, or more."""
        return number

    session = scripted_on(tape, "replay", double, careful, answers=())
    with (
        hosted(Office()),
        listening_nowhere(),
        pytest.raises(ReplayMismatch, match=r"^Cell 'fastmcp calls double', step 1: tools\.double\.description is not"),
    ):
        session.serve(tools=True)
    assert session.serving is None


def test_a_call_that_failed_when_it_was_recorded_fails_no_cell(tape):
    class Gone:
        is_local = True

        async def tools(self):
            async def leave(call, _context):
                raise ServerError("The server is gone.")

            return [Tool(ToolDef("leave", "Leave.", {"type": "object", "properties": {}}), leave)]

        async def aclose(self):
            pass

    session = scripted_on(tape, "record", Gone())
    with hosted(Office()), listening_nowhere() as server:
        session.serve(tools=True)
        assert Client(server.desk).call("leave").text == "The server is gone."
        session.ask("One?")
        session.close()
    again = scripted_on(tape, "replay", Gone(), answers=())
    notebook(again, "One?")
    assert prompts(again) == ["fastmcp calls leave", "One?"]


def test_a_take_that_broke_off_is_left_out(tape):
    record(tape)
    written = tape.read_text(encoding="utf-8").split("\n---\n")
    first = next(place for place, document in enumerate(written) if "end:" in document)
    tape.write_text("\n---\n".join(written[:first] + written[first + 1 :]), encoding="utf-8")
    session = scripted_on(tape, "replay", answers=())
    with hosted(Office()), listening_nowhere():
        session.serve(tools=True)
        assert prompts(session) == []


def test_two_sessions_of_a_script_find_their_own_recordings(tape):
    def script(mode, answers):
        sessions = [scripted_on(tape, mode, answers=answers) for _ in range(2)]
        with hosted(Office()), listening_nowhere() as server:
            sessions[1].serve(tools=True)
            sessions[0].ask("One?")
            if mode == "record":
                Client(server.desk).call("double", number=1)
            sessions[1].ask("Two?")
            for one in sessions:
                one.close()
        return [prompts(one) for one in sessions]

    recorded = script("record", ("Answer.",))
    assert recorded == [["One?"], [CALLED, "Two?"]]
    assert script("replay", ()) == recorded


def test_the_notebook_that_is_run_again_from_its_top_plays_the_calls_again(tape):
    record(tape)
    session = scripted_on(tape, "replay", answers=())
    notebook(session)
    with hosted(Office()):
        session.clear()
    notebook(session)
    assert prompts(session) == WHOLE


def test_a_turn_is_undone_in_a_replay_and_not_the_call_after_it(tape):
    record(tape)
    session = scripted_on(tape, "replay", answers=())
    with hosted(Office()), listening_nowhere():
        session.serve(tools=True)
        session.ask("One?")
        assert session.undo().text == "One?"
        session.ask("One?")
        session.ask("Two?")
        session.close()
    assert prompts(session) == WHOLE[:-1]
