"""Planned turns in a real kernel: the checklist, the question back, confirming, resuming."""

from tests.jupyter.harness import BATCH, CONSOLE

PLAN = """
import json
@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b
def task(number, *after, **parameters):
    told = {"depends_on": after, "description": f"sum {number}"}
    return {"id": f"t{number}", "tool": "add", "parameters": parameters, **told}
def plan(*steps, **options):
    play(*[json.dumps(step) if isinstance(step, dict) else step for step in steps], **options)
TOOLS = {"route": "tools"}
"""
TWO = '{"tasks": [task(1, a=1, b=2), task(2, "t1", a=4, b=5)]}'


def test_a_plan_is_a_checklist_in_the_cell_and_stats_tell_the_object_of_each_turn(kernel):
    kernel.run(f'{PLAN}plan(TOOLS, {TWO}, "They are 3 and 9.", "Hello.")')
    cell = kernel.run("%%agent --plan\nAdd them.")
    assert cell.ok, cell.error
    assert "Plan: 2 of 2 done\n  ✓ t1 sum 1: 3\n  ✓ t2 sum 2: 9" in cell.text
    assert "They are 3 and 9." in cell.text
    assert "<b>Plan: 2 of 2 done</b>" in cell.displays[0]["text/html"]
    kernel.run("%%agent\nHello?")
    head, *rows = (line.split()[:6] for line in kernel.run("%agent stats").stream.splitlines())
    assert head == ["turn", "requests", "tasks", "retries", "calls", "failed"]
    assert [" ".join(row) for row in rows] == ["1 3 2 0 2 0", "2 1 0 0 0 0", "all 4 2 0 2 0"]


def test_the_question_back_is_typed_and_in_batch_it_is_the_answer(kernel):
    asks = '{"route": "ask", "question": "Which numbers?"}'
    kernel.run(f'{PLAN}plan({asks}, TOOLS, {{"tasks": [task(1, a=1, b=2)]}}, "3", {asks})')
    _, (prompt,) = kernel.answer("%%agent --plan\nAdd them.", "1 and 2", **CONSOLE)
    assert "Which numbers?" in prompt
    asked = "[message.text for message in agent.messages[:3]]"
    assert kernel.value(asked) == "['Add them.', 'Which numbers?', '1 and 2']"
    cell = kernel.run("%%agent --plan\nAdd them.", **BATCH)
    assert cell.ok
    assert "Which numbers?" in cell.text


def test_a_plan_to_confirm_is_run_as_the_user_typed_it(kernel):
    kernel.run(f'{PLAN}plan(TOOLS, {TWO}, "Done.")')
    typed = 't1 add {"a": 40, "b": 2} # sum 1'
    cell, (prompt,) = kernel.answer("%%agent --plan --confirm\nAdd them.", typed, **CONSOLE)
    assert 't1 add {"a": 1, "b": 2} # sum 1' in prompt
    assert "✓ t1 sum 1: 42" in cell.stream
    assert "t2" not in cell.stream.rpartition("Plan:")[2]


def test_a_plan_that_was_interrupted_is_resumed(kernel):
    kernel.run(f"""{PLAN}
calls_of_wait = []
async def wait() -> str:
    "Wait."
    print("it waits", flush=True)
    calls_of_wait.append(1)
    await asyncio.sleep(60 * (len(calls_of_wait) == 1))
    return "opened"
second = {{"id": "t2", "tool": "wait", "parameters": {{}}, "depends_on": ["t1"]}}
plan(TOOLS, {{"tasks": [task(1, a=1, b=2), second]}}, "Opened.", tools=[add, wait])
""")
    cell = kernel.send("%%agent --plan\nGo.")
    kernel.wait_for_text(cell, "it waits")
    kernel.interrupt()
    kernel.finish(cell)
    assert "%agent resume" in kernel.run("%%agent\nHello?", **BATCH).error
    resumed = kernel.run("%agent resume")
    assert resumed.ok, resumed.error
    assert "Opened." in resumed.text
    ran = "[call.name for message in agent.messages for call in message.calls]"
    assert kernel.value(ran) == "['add', 'wait', 'wait']"
    assert kernel.run("%agent resume").error.startswith("UsageError: The last turn left no plan")
