"""Checks of lesson 8: a plan of two tasks, and a judgement."""

from agentmagic.testing import check, exercise, expect

from . import SAME, prompt_of


def tasks_of(session):
    """Return the tasks of the last plan of a session."""
    plans = [event.tasks for event in session.last.events if event.type == "planned"]
    problems = [event.problem for event in session.last.events if event.type == "plan_rejected"]
    hint = 'The loop compares a plan with the list of tools. The result of a task is "$" and the id of that task.'
    expect(plans or not problems, f"The plan was sent back: {' '.join(problems[:1])}", hint)
    hint = "Leave the first step of the script, which says that tools are used, as it is."
    expect(plans, "No plan has run.", hint)
    return plans[-1]


@exercise(
    "1",
    'The second task takes the result of the first: as a value, "$t1" stands for it.',
    '{"id": "t2", "tool": "times", "parameters": {"a": "$t1", "b": 4}, "description": "four of them"}',
)
def check_1(session):
    """Check the tasks, and that the second one waits for the first one's result."""
    expect(prompt_of(session) == "What do 4 chairs cost?", "The question is another one.", SAME)
    tasks = tasks_of(session)
    hint = "Two tasks: one finds the price, and one multiplies it."
    tools = [task.tool for task in tasks]
    expect(sorted(tools) == ["price", "times"], f"The plan has the tasks {tools}.", hint)
    first, second = tasks if tools == ["price", "times"] else reversed(tasks)
    names = (sorted(first.parameters), sorted(second.parameters))
    hint = "The parameters of a task are those of its tool: item of price, a and b of times."
    expect(names == (["item"], ["a", "b"]), f"The tasks have the parameters {names[0]} and {names[1]}.", hint)
    hint = "What is the price of, and how is that item called in PRICES?"
    expect(first.parameters.get("item") == "chair", f"The first task asks for {dict(first.parameters)}.", hint)
    values = list(second.parameters.values())
    hint = f"When you write the plan, you do not know the price. \"${first.id}\" stands for the result of the task {first.id}."
    expect(f"${first.id}" in map(str, values), f"The second task has the parameters {dict(second.parameters)}.", hint)
    expect(4 in values, f"The second task has the parameters {dict(second.parameters)}.", "How many chairs are there?")
    checked = check(session).hint(hint).in_order("price", "times").called("times", a=75, b=4)
    checked.hint("The answer is the last step of the script. Leave it as it is.").answered("300")
    result = session.call("times", a=6, b=7)
    expect(result.text in ("42", "42.0"), f"6 times 7 is {result.text!r:.80} now.", "times multiplies any two numbers.")
    result = session.call("price", item="desk")
    expect(result.text == "230.0", f"A desk costs {result.text!r:.80} now.", SAME)


@exercise(
    "2",
    'Set "retry" to True, and give all parameters of the next attempt.',
    'judgement = {"success": False, "retry": True, "reason": "The shop calls it a desk.", "parameters": {"item": "desk"}}',
)
def check_2(session, judgement):
    """Check the judgement, and both attempts."""
    expect(prompt_of(session) == "What does a table to write at cost?", "The question is another one.", SAME)
    (task,) = tasks_of(session)
    hint = "The plan asks for a table, and that is the mistake that the judge finds. Leave the plan as it is."
    expect(task.parameters.get("item") == "table", f"The plan asks for {dict(task.parameters)}.", hint)
    hint = "The call has failed. Has it succeeded, as the judge says?"
    expect(judgement.get("success") is False, "The judgement says that the task has succeeded.", hint)
    hint = "Does another try help? Then the judge has to say so."
    expect(judgement.get("retry") is True, "The judgement does not ask for another try.", hint)
    hint = "The next attempt needs its parameters, in the form of those of the task."
    parameters = judgement.get("parameters")
    expect(isinstance(parameters, dict) and set(parameters) == {"item"}, f"The parameters are {parameters!r:.100}.", hint)
    hint = "What does the customer mean by a table to write at, and how does the shop call it?"
    check(session).hint(hint).called("price", item="desk").answered("230")
    hint = "The reason is for those who read the plan: why was the result not right?"
    expect(str(judgement.get("reason") or "").strip(), "The judgement has no reason.", hint)
    items = [event.call.arguments.get("item") for event in session.last.events if event.type == "tool_started"]
    expect(items == ["table", "desk"], f"The attempts were {items}.", "One try more, with the right parameters.")
    result = session.call("price", item="lamp")
    expect(result.text == "45.0", f"A lamp costs {result.text!r:.80} now.", SAME)
