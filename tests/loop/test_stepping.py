"""Step mode: what is shown at each pause, and what becomes of the turn by each answer."""

import json

import pytest

from agentmagic import Agent, ModelSettings, Policy, Rule, Session
from agentmagic.approval.approvals import Gate
from agentmagic.errors import ReplayMismatch
from agentmagic.events import ApprovalAsked, Approve, QuestionAsked, Reply, Stop, fold
from agentmagic.export import to_markdown
from agentmagic.loop.stepping import Stepper
from agentmagic.messages import Media, Text, user
from agentmagic.providers.base import Request
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.session import UNATTENDED
from agentmagic.testing import run
from tests.turns import always, approve, calls, deny, kinds, notices, results, scripted


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = calls(("add", {"a": 1, "b": 2}))


class Person:
    """Answers each pause with the next of some functions, which take the pause; the last one answers the others too."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def step(self, session, prompt="How much is it?", **options):
        started = session.start(prompt, attended=True, step=True, **options)

        def listen(event):
            if isinstance(event, (ApprovalAsked, QuestionAsked)):
                self.asked.append(event)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                started.send(answer(event))

        started.listen(listen)
        return started.wait()


go, to_the_end, skip = approve, always, deny  # what these answers mean to a pause


def test_a_turn_pauses_before_each_request_and_each_call_and_shows_what_is_about_to_be_sent():
    person = Person(go)
    settings = ModelSettings(temperature=0.5)
    result = person.step(scripted(ADD, "3", tools=[add], instructions="Be brief.", settings=settings))
    assert result.final_text == "3"
    assert [(event.type, event.step) for event in person.asked] == [
        ("question_asked", True),
        ("approval_asked", True),
        ("question_asked", True),
    ]
    assert kinds(result.events)[:4] == ["turn_started", "step_started", "question_asked", "question_answered"]
    first, _, second = (event.text if isinstance(event, QuestionAsked) else "" for event in person.asked)
    heading, *lines = first.splitlines()
    assert heading.startswith("Step 1, to scripted:script, about ")
    assert lines == [
        "Instructions: Be brief.",
        "Tools: add(a, b)",
        "Settings: temperature=0.5",
        "user: How much is it?",
    ]
    assert second.splitlines()[4:] == [
        "1 message as before, and:",
        "assistant: calls add(a=1, b=2)",
        "tool: add returned 3",
    ]


@pytest.mark.parametrize("wrong", [{"a": "one"}, {"a": 1, "b": 13}], ids=["do not fit", "a rule denies them"])
def test_arguments_can_be_edited_and_those_that_cannot_be_used_are_asked_for_again(wrong):
    def edit(arguments):
        return lambda event: Approve(event.id, arguments=arguments)

    policy = Policy([Rule("deny", "add", when=lambda arguments: arguments["b"] == 13), Rule("allow", "add")])
    person = Person(go, edit(wrong), edit({"a": 1, "b": 9}), go)
    result = person.step(scripted(ADD, "10", tools=[add], permission=policy))
    assert "cannot be used" in person.asked[2].reason
    assert results(result)[0].text.endswith("it ran with those.\n10")


def test_the_prompt_can_be_edited_keeps_its_image_and_stays_so_in_the_history():
    image = Media("image/png", b"...")

    def edit(event):
        assert event.suggested == "How much is it?"
        return Reply(event.id, "How much is 1 + 2?")

    session = scripted(ADD, "3", tools=[add])
    result = Person(edit, go).step(session, [image, "How much is it?"])
    edited = (Text("How much is 1 + 2?"), image)
    assert [request.messages[0].parts for request in session.agent.model.requests] == [edited] * 2
    assert result.history_delta[0].parts == session.messages[0].parts == fold(result.events)[0].parts == edited
    assert "How much is 1 + 2?" in to_markdown(session.turns)
    assert "How much is it?" not in to_markdown(session.turns)


def test_run_to_the_end_pauses_no_more_in_this_turn_and_approves_nothing_for_later():
    session = scripted(ADD, "3", "4", ADD, "3", tools=[add])
    person = Person(to_the_end)
    for pauses in (1, 2):
        person.step(session)
        assert len(person.asked) == pauses
    session.agent = Agent(session.agent.model, tools=[add], permission=Policy([Rule("ask", "add")]))
    assert results(run(session, "Again?"))[0].status == "denied"


def test_stop_ends_the_turn_before_the_request_is_sent_and_a_call_that_is_skipped_is_told_to_the_model():
    session = scripted(ADD, "So be it.", tools=[add])
    assert Person(lambda _: Stop()).step(session).stop_reason == "cancelled"
    assert session.agent.model.requests == []
    result = Person(go, skip, go).step(session)
    assert [(one.status, one.text) for one in results(result)] == [("error", "add was not run: the user skipped it.")]
    assert result.final_text == "So be it."


def test_a_call_that_the_policy_asks_about_is_asked_about_once():
    policy = Policy([Rule("ask", "add")])
    person = Person(go)
    person.step(scripted(ADD, "3", tools=[add], permission=policy))
    assert [event.step for event in person.asked] == [True, False, True]


def test_without_a_person_the_turn_runs_and_says_so():
    result = run(scripted(ADD, "3", tools=[add]), "How much is it?", step=True)
    assert result.final_text == "3"
    assert notices(result) == [UNATTENDED]


def test_the_requests_of_a_plan_pause_too():
    task = {"id": "1", "tool": "add", "parameters": {"a": 1, "b": 2}, "description": "Add."}
    model = ScriptedModel([json.dumps(one) for one in ({"route": "tools"}, {"tasks": [task]})] + ["3"])
    person = Person(go)
    Person.step(person, Session(Agent(model, tools=[add])), plan=True, judge="off")
    whats = [event.text.partition(",")[0] for event in person.asked if isinstance(event, QuestionAsked)]
    assert whats == ["The route", "The plan", "Step 2"]
    assert [event.call.name for event in person.asked if isinstance(event, ApprovalAsked)] == ["add"]


def test_a_replayed_turn_can_be_stepped_through_but_not_otherwise_than_recorded(tmp_path):
    def on_tape(mode, *steps):
        return Session(Agent(ScriptedModel(steps), tools=[add]), cassette=tmp_path / "x.cassette.yaml", replay=mode)

    recorded = run(on_tape("record", ADD, "3"), "How much is it?")
    person = Person(go)
    result = person.step(on_tape("replay"))
    assert [event.type for event in person.asked] == ["question_asked", "approval_asked", "question_asked"]
    assert (result.final_text, result.usage) == (recorded.final_text, recorded.usage)
    for cause, *answers in (("skipped", go, skip, go), ("prompt", lambda event: Reply(event.id, "Another question."))):
        with pytest.raises(ReplayMismatch, match=cause):
            Person(*answers).step(on_tape("replay"))


def test_messages_that_a_compaction_changed_are_shown_again():
    shown = []

    async def ask(question):
        shown.append(question.text)
        return Reply(question.id, "")

    async def two_steps():
        stepper = Stepper(Gate(person=ask), on=True)
        await stepper.before_step(1, Request((user("first"), user("second"), user("third"))), "m", None)
        await stepper.before_step(2, Request((user("a summary"), user("third"))), "m", None)

    engine().call(two_steps())
    assert "user: a summary" in shown[1]
    assert "as before" not in shown[1]
