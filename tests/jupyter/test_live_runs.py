"""Runs begun by code in a cell, and what results and sessions look like as the value of a cell."""

from tests.jupyter.conftest import ACT
from tests.jupyter.harness import BATCH, CONSOLE

ADD = """
@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b
play(calls("add", a=19, b=23), "It is **42**.")
%agent tools
"""
ASK = [
    "result = agent.ask('What is 19 plus 23?')",
    "result = await agent.start('What is 19 plus 23?')",
    "agent.start('What is 19 plus 23?')\nimport asyncio\nwhile agent.running: await asyncio.sleep(0.01)",
    "agent.ask('What is 19 plus 23?')",
    "await agent.start('What is 19 plus 23?')",
    "%agent ask 'What is 19 plus 23?'",
]


def test_a_run_that_code_begins_is_shown_once_in_its_cell(kernel):
    for code, front_end in [*((code, {}) for code in ASK), (ASK[0], BATCH)]:
        kernel.run(ADD)
        cell = kernel.run(code, **front_end)
        assert cell.ok, cell.error
        (shown,) = cell.displays
        assert "It is <strong>42</strong>." in shown["text/html"]
        assert "✓ add (notebook)" in shown["text/plain"]
        assert cell.count("execute_result") == 0
    kernel.run(ADD)
    assert "It is **42**." in kernel.run(ASK[0], **CONSOLE).stream


def test_an_approval_of_a_run_that_code_begins_is_asked_in_the_cell(kernel):
    kernel.run(ACT + "play(calls('act', what='a'), 'Done.', tools=[act])")
    cell, _ = kernel.answer("result = agent.ask('Act.')", "y")
    assert "acted: a" in cell.text


def test_a_setting_turns_the_view_off(kernel):
    kernel.run(ADD)
    kernel.run("import os; os.environ['AGENTMAGIC_VIEW'] = 'off'")
    try:
        cell = kernel.run("print(agent.ask('What is 19 plus 23?').final_text)")
    finally:
        kernel.run("del os.environ['AGENTMAGIC_VIEW']")
    assert cell.displays == []
    assert cell.stream == "It is **42**.\n"


def test_a_run_that_a_tool_begins_has_no_view_of_its_own(kernel):
    kernel.run("""
def nested() -> str:
    "Ask another."
    return Session(Agent(ScriptedModel(["inner words"]))).ask("x").final_text
play(calls("nested"), "outer words", tools=[nested])
""")
    (shown,) = kernel.run("result = agent.ask('Go.')").displays
    assert "outer words" in shown["text/plain"]


def test_a_result_of_an_earlier_cell_shows_its_transcript_and_a_session_its_last_turns(kernel):
    kernel.run(ADD + "result = agent.ask('What is 19 plus 23?')")
    for value in ("result", "agent.last", "agent.turns[0]", "agent"):
        (shown,) = kernel.run(value).displays
        assert "What is 19 plus 23?" in shown["text/html"]
        assert "It is <strong>42</strong>." in shown["text/html"]
        assert "\n" not in shown["text/plain"]
    kernel.run("play(*[f'answer {n};' for n in range(12)])\nfor n in range(12): agent.ask(f'{n}')")
    (shown,) = kernel.run("agent").displays
    assert "answer 11;" in shown["text/html"]
    assert "answer 1;" not in shown["text/html"]
    assert "The first 2 are left out" in shown["text/html"]


def test_the_magic_asks_in_an_expression_and_a_session_knows_its_last_answer(kernel):
    kernel.run("play('It is **42**.', '[1, 2]', 'text')")
    assert kernel.value("agent.last, agent.answer, agent.value") == "(None, '', None)"
    assert kernel.run('n = 19\nx = %agent ask "What is {n} plus 23?"').ok
    assert kernel.value("x, agent.messages[0].text") == "('It is **42**.', 'What is 19 plus 23?')"
    assert kernel.value('%agent ask --as list[int] "Numbers."') == "[1, 2]"
    assert kernel.value("agent.answer, agent.value") == "('[1, 2]', [1, 2])"
    kernel.run("agent.agent = Agent(ScriptedModel(['from the other']))\nagent.ask('Again.')")
    assert kernel.value("agent.answer, agent.value") == "('from the other', None)"
    assert "Assign an Agent: session.agent = Agent(...)" in kernel.run("agent.agent = 'gpt'").error
