import re

import pytest

from agentmagic import Agent, Done, Policy, Reply, Rule, Session, web_search
from agentmagic.display import terminal
from agentmagic.display.transcript import Transcript
from agentmagic.errors import UsageError
from agentmagic.events import TurnFinished
from agentmagic.messages import Message, Text, user
from agentmagic.plan import Checklist, open_plan
from agentmagic.testing import Recorder, invalid_history, run
from tests.turns import StallsAfter, notices, script, texts


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def find(word: str) -> str:
    """Find the number of a word."""
    numbers = {"one": "1", "two": "2"}
    if word not in numbers:
        message = f"there is no word {word!r}"
        raise ValueError(message)
    return numbers[word]


def nothing() -> str:
    """Find nothing."""
    return ""


def task(name, parameters, *, key="t1", after=(), why=""):
    return {"id": key, "tool": name, "parameters": parameters, "depends_on": list(after), "description": why}


TOOLS = {"route": "tools"}


def tasks(*written):
    return {"tasks": list(written)}


def planned(*steps, tools=(add, find, nothing), **options):
    """The session and the result of one planned turn."""
    agent = {
        name: options.pop(name) for name in ("permission", "timeout", "max_iterations", "max_tokens") if name in options
    }
    session = Session(Agent(script(*steps), tools=tools, **agent))
    return session, run(session, "Do the sum", plan=True, **options)


def rows(events):
    """The tasks of a log, as (id, state, attempts)."""
    return [(row.task.id, row.state, row.attempt) for row in Checklist(events).rows.values()]


def requests(session):
    return session.agent.model.requests


def test_a_question_that_needs_no_tool_is_answered_at_once():
    session, result = planned({"route": "answer"}, "Hello.")
    assert (result.final_text, result.stop_reason) == ("Hello.", "answer")
    assert [message.role for message in result.history_delta] == ["user", "assistant"]
    assert requests(session)[0].output.name == "route"


ADDS = tasks(task("add", {"a": 1, "b": 2}))


@pytest.mark.parametrize(
    ("steps", "tools"),
    [
        ([{"route": "answer"}], [add]),
        ([{"route": "answer"}], []),
        ([TOOLS, tasks(task("web_search", {})), ADDS], [add]),
    ],
)
def test_what_answers_may_search_the_web_and_no_task_is_a_search(steps, tools):
    web = web_search()
    session, result = planned(*steps, "Found.", tools=[*tools, web], permission="allow")
    assert result.final_text == "Found."
    assert rows(result.events) == [("t1", "done", 1)] * (len(steps) - 1 > 0)
    *asked, answer = requests(session)
    assert "the web can be looked at, and no task is needed for it: web_search." in asked[0].messages[-1].text
    assert [one.tool_choice for one in asked] == ["none"] * len(steps)
    assert (answer.tool_choice, answer.hosted) == ("auto", (web.hosted,))


def test_tasks_become_ordinary_calls_of_one_step_and_the_requests_for_route_and_plan_do_not_join_the_conversation():
    plan = tasks(task("add", {"a": 1, "b": 2}), task("find", {"word": "one"}, key="t2"))
    session, result = planned(TOOLS, plan, "It is 3.")
    assert result.final_text == "It is 3."
    assert [call.name for call in result.history_delta[1].calls] == ["add", "find"]
    assert texts(result) == ["3", "1"]
    assert invalid_history(result.history_delta) is None
    assert rows(result.events) == [("t1", "done", 1), ("t2", "done", 1)]
    assert (result.usage.requests, result.iterations_used) == (3, 2)
    route, plan, answer = requests(session)
    assert [message.role for message in route.messages] == ["user", "user"]
    assert [definition.name for definition in plan.tools] == ["add", "find", "nothing"]
    assert plan.tool_choice == "none"
    assert "Plan the user's last request" not in str((answer.messages, session.messages))


def test_parameters_that_refer_to_a_result_are_settled_by_the_model_and_constant_ones_take_no_request():
    first = task("find", {"word": "two"})
    dependent = (
        task("add", {"a": 1, "b": "$t1"}, key="t2"),
        task("add", {"a": 1, "b": 1}, key="t3", after=["t1"]),
    )
    session, result = planned(TOOLS, tasks(first, *dependent), {"a": 1, "b": 2}, "It is 3.")
    assert texts(result) == ["2", "3", "2"]
    settling = requests(session)[2]
    assert settling.output.name == "arguments"
    assert "t1 (find): 2" in settling.messages[0].text
    assert len(requests(session)) == 4


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (tasks(task("adds", {"a": 1, "b": 2})), "calls adds, and there is no such tool. Tools: add"),
        (tasks(task("add", {"a": "x", "b": 2})), "Task t1"),
        (tasks(task("add", {"a": 1, "b": "$t2"}), task("add", {"a": 1, "b": "$t1"}, key="t2")), "wait for each other"),
        (tasks(task("find", {"word": "one"}, after=["t9"])), "depends on t9"),
        (tasks(task("nothing", {}), task("nothing", {})), "the same id"),
        ("no JSON", "not JSON"),
        (tasks(), "has less than 1 item"),
    ],
)
def test_a_plan_that_cannot_run_is_written_again(wrong, said):
    session, result = planned(TOOLS, wrong, tasks(task("add", {"a": 1, "b": 2})), "It is 3.")
    assert result.final_text == "It is 3."
    rejected = next(event for event in result.events if event.type == "plan_rejected")
    assert said in rejected.problem
    assert rejected.problem in requests(session)[2].messages[-1].text


def test_after_three_invalid_plans_the_turn_goes_on_without_one():
    session, result = planned(TOOLS, "no", "no", "no", {"text": "", "calls": []}, tools=[add])
    assert re.search(
        r"wrote no valid plan in 3 tries \(.*[^.]\), so the turn goes on without one\.$", notices(result)[0]
    )
    assert requests(session)[-1].tool_choice == "auto"
    assert result.stop_reason == "answer"


def corrected(**parameters):
    return {"success": False, "retry": True, "reason": "It is spelt otherwise.", "parameters": parameters}


@pytest.mark.parametrize(
    ("judgements", "state", "refused"),
    [
        ([corrected(word="two")], ("t1", "done", 2), False),
        ([corrected(words="two"), corrected(word="two")], ("t1", "done", 2), True),
        ([corrected(word="too")] * 4, ("t1", "failed", 4), False),
        ([corrected(word="tow"), corrected(word="too")], ("t1", "failed", 2), False),
        (["no"] * 3, ("t1", "failed", 1), True),
    ],
    ids=["corrected", "corrections that do not fit", "four times at most", "back to what failed", "unreadable"],
)
def test_a_failed_task_is_repaired_with_corrected_parameters_as_far_as_they_help(judgements, state, refused):
    plan = tasks(task("find", {"word": "too"}, why="the number"))
    session, result = planned(TOOLS, plan, *judgements, "That is it.")
    assert rows(result.events) == [state]
    assert result.final_text == "That is it."
    assert len(requests(session)) == 3 + len(judgements)
    judging = requests(session)[2].messages[0].text
    for seen in ("Do the sum", "the number", '{"word": "too"}', "attempt 1", "there is no word 'too'"):
        assert seen in judging
    said = [requests(session)[3].messages[0].text, *notices(result)]
    assert any("could not be used" in text for text in said) == refused
    assert invalid_history(result.history_delta) is None


def test_what_depends_on_a_failed_task_is_skipped_and_the_answer_says_so():
    first = task("find", {"word": "x"}, why="the number")
    second = task("add", {"a": 1, "b": "$t1"}, key="t2", why="the sum")
    third = task("add", {"a": 1, "b": "$t2"}, key="t3")
    no = {"success": False, "retry": False, "reason": "There is no such word."}
    session, result = planned(TOOLS, tasks(first, second, third), no, "I could not.")
    assert rows(result.events) == [("t1", "failed", 1), ("t2", "skipped", 0), ("t3", "skipped", 0)]
    told = requests(session)[-1].messages[-1].text
    assert "say plainly that this was not done" in told
    assert "There is no such word." in told


def test_a_denied_task_fails_without_a_judgement_and_a_corrected_call_is_decided_anew():
    policy = Policy([Rule("deny", "add"), Rule("deny", "find", when=lambda given: given["word"] == "two")], "allow")
    session, result = planned(TOOLS, tasks(task("add", {"a": 1, "b": 2})), "It was denied.", permission=policy)
    assert rows(result.events) == [("t1", "failed", 1)]
    assert len(requests(session)) == 3
    plan = tasks(task("find", {"word": "too"}))
    session, result = planned(TOOLS, plan, corrected(word="two"), "It was denied.", permission=policy)
    assert rows(result.events) == [("t1", "failed", 2)]
    assert "a rule of the user denies it" in texts(result)[-1]


@pytest.mark.parametrize(("judge", "count"), [("all", 5), ("odd", 4), ("off", 3)])
def test_judge_says_which_results_cost_a_request(judge, count):
    fine = {"success": True, "retry": False}
    plan = tasks(task("add", {"a": 1, "b": 2}), task("nothing", {}, key="t2"))
    session, _ = planned(TOOLS, plan, *[fine] * (count - 3), "Done.", judge=judge)
    assert len(requests(session)) == count


def replied(session, words, prompt, **options):
    """The question of one turn, and the turn's result after the user replied."""
    turn, recorder = session.start(prompt, attended=True, **options), Recorder()
    turn.listen(recorder)
    asked = recorder.wait_for("question_asked")
    turn.send(Reply(asked.id, words))
    return asked, turn.wait()


def test_the_model_asks_the_user_back_and_plans_with_the_answer():
    steps = ({"route": "ask", "question": "Which word?"}, TOOLS, tasks(task("find", {"word": "two"})), "It is 2.")
    _, result = replied(Session(Agent(script(*steps), tools=[find])), "two", "Find the number", plan=True)
    assert result.final_text == "It is 2."
    asked_back = (user("Find the number"), Message("assistant", (Text("Which word?"),)), user("two"))
    assert result.history_delta[:3] == asked_back
    assert invalid_history(result.history_delta) is None


def test_without_a_user_the_question_is_the_text_of_the_turn():
    _, result = planned({"route": "ask", "question": "Which word?"})
    assert (result.final_text, result.stop_reason) == ("Which word?", "answer")
    assert result.history_delta[-1].role == "assistant"


def test_a_confirmed_plan_runs_as_the_user_changed_it():
    plan = tasks(task("add", {"a": 1, "b": 2}, why="the sum"), task("nothing", {}, key="t2"))
    session = Session(Agent(script(TOOLS, plan, "It is 10."), tools=[add, nothing]))
    edited = 't1 add {"a": 1, "b": 9} # the sum'
    asked, result = replied(session, edited, "Do it", plan=True, confirm=True)
    assert asked.suggested == 't1 add {"a": 1, "b": 2} # the sum\nt2 nothing {}'
    assert asked.plan == "new"
    assert texts(result) == ["10"]
    assert rows(result.events) == [("t1", "done", 1)]


CHANGED = 't1 add {"a": 1, "b": 2}\nnonsense', 't1 add {"a": 1, "b": 2}'
"""A plan as a user changes it, and as the user mends it then."""


def test_a_changed_plan_that_cannot_be_run_is_put_again_with_what_is_wrong():
    session = Session(Agent(script(TOOLS, tasks(task("add", {"a": 1, "b": 2})), "Done."), tools=[add]))
    turn, replies, asked = session.start("Do it", attended=True, plan=True, confirm=True), iter(CHANGED), []

    def reply(event):
        if event.type == "question_asked":
            asked.append(event)
            turn.send(Reply(event.id, next(replies)))

    turn.listen(reply)
    assert turn.wait().final_text == "Done."
    assert [(one.plan, one.suggested) for one in asked] == [("new", CHANGED[1]), ("refused", CHANGED[0])]
    assert asked[1].text.startswith("The plan cannot be run: This line is no task: 'nonsense'.")


def test_without_a_user_a_plan_to_confirm_is_shown_and_not_run():
    _, result = planned(TOOLS, tasks(task("nothing", {})), confirm=True)
    assert "The plan was not run" in result.final_text
    assert "t1 nothing {}" in result.final_text
    assert texts(result) == []
    shown = terminal.render(Transcript([*result.events, TurnFinished(result)]))
    assert shown.count("t1 nothing") == 1  # in the answer, and not in a checklist too


def test_a_tool_that_ends_the_turn_ends_the_plan():
    def finish() -> Done:
        """Finish."""
        return Done("All done.")

    plan = tasks(task("finish", {}), task("nothing", {}, key="t2", after=["t1"]))
    _, result = planned(TOOLS, plan, tools=[finish, nothing])
    assert (result.final_text, result.stop_reason) == ("All done.", "done")
    assert [state for _, state, _ in rows(result.events)] == ["done", "skipped"]


def test_rounds_count_as_steps_and_the_last_step_is_the_answer():
    chain = [task("nothing", {}, key=f"t{n}", after=[f"t{n - 1}"] if n > 1 else []) for n in range(1, 5)]
    _, result = planned(TOOLS, tasks(*chain), "As far as it went.", judge="off", max_iterations=3)
    assert [state for _, state, _ in rows(result.events)] == ["done", "done", "skipped", "skipped"]
    assert (result.final_text, result.iterations_used) == ("As far as it went.", 3)


def test_a_budget_that_is_used_up_ends_a_planned_turn():
    _, result = planned(TOOLS, tasks(task("nothing", {})), "Done.", max_tokens=20)
    assert result.stop_reason == "budget"


PHASES = {
    "route": (),
    "plan": (TOOLS,),
    "parameters": (TOOLS, tasks(task("find", {"word": "one"}), task("add", {"a": 1, "b": "$t1"}, key="t2"))),
    "judgement": (TOOLS, tasks(task("nothing", {}))),
    "answer": (TOOLS, tasks(task("find", {"word": "one"}))),
}


def stopped(*steps, **options):
    """The session of a planned turn that was stopped in its first request after the steps, and the turn's result."""
    model = StallsAfter(*steps)
    session = Session(Agent(model, tools=[add, find, nothing]), **options)
    turn = session.start("Do the sum", plan=True)
    assert model.stalled.wait(10)
    turn.cancel()
    return session, turn.wait()


@pytest.mark.parametrize("phase", PHASES)
def test_a_planned_turn_can_be_stopped_in_each_phase(phase):
    session, result = stopped(*PHASES[phase])
    assert result.stop_reason == "cancelled"
    assert invalid_history(session.messages) is None


@pytest.fixture
def cut_off(tmp_path):
    """The file of a session whose second task has no parameters yet."""
    session, _ = stopped(*PHASES["parameters"], path=tmp_path / "plan.jsonl")
    session.close()
    return tmp_path / "plan.jsonl"


def test_a_plan_that_was_cut_off_is_resumed_without_running_finished_tasks_again(cut_off):
    session = Session.load(cut_off, Agent(script({"a": 1, "b": 1}, "It is 2."), tools=[add, find]))
    result = run(session, "Go on", resume=True)
    assert result.final_text == "It is 2."
    assert [call.name for message in result.history_delta for call in message.calls] == ["add"]
    assert rows(result.events) == [("t1", "done", 0), ("t2", "done", 1)]
    assert rows(session.events) == [("t1", "done", 1), ("t2", "done", 1)]
    assert open_plan([turn.events for turn in session.turns]) is None


def test_a_task_that_was_called_and_not_judged_is_not_called_again():
    session, _ = stopped(*PHASES["judgement"])
    session.agent = Agent(script({"success": True, "retry": False}, "There was nothing."), tools=[nothing])
    result = run(session, "Go on", resume=True)
    assert result.final_text == "There was nothing."
    assert texts(result) == []
    assert rows(session.events) == [("t1", "done", 1)]


def test_a_resumed_task_whose_tool_is_gone_fails(cut_off):
    session = Session.load(cut_off, Agent(script("It is gone."), tools=[find]))
    result = run(session, "Go on", resume=True)
    assert rows(result.events) == [("t1", "done", 0), ("t2", "failed", 0)]
    assert "There is no tool 'add' any more." in requests(session)[0].messages[-1].text


def test_a_new_request_while_tasks_are_open_asks_whether_to_drop_them_and_fails_without_a_user(cut_off):
    session = Session.load(cut_off, Agent(script("Hello.", "Hello."), tools=[nothing]))
    with pytest.raises(UsageError, match="%agent resume"):
        session.ask("Hello?")
    assert session.fork().ask("Hello?", drop=True).final_text == "Hello."
    asked, result = replied(session, "drop", "Hello?")
    assert (asked.choices, result.final_text) == (("resume", "drop"), "Hello.")


@pytest.mark.parametrize(
    ("options", "words"), [({"resume": True}, "no plan"), ({"plan": True, "judge": "some"}, "judge is 'some'")]
)
def test_options_of_a_plan_that_cannot_be_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        Session(Agent(script("Hello."))).ask("Hello", **options)
