"""Approvals, questions and keys that are typed."""

import pytest

from tests.jupyter.harness import BATCH, CONSOLE, ROOT

ACT = """
@tool(ask=True)
def act(what: str) -> str:
    "Act."
    return "acted: " + what
"""
TWICE = ACT + "play(calls('act', what='a'), 'first', calls('act', what='b'), 'second')"
LOCKED = """
from agentmagic import settings
class Locked:
    name = "test:locked"
    async def stream(self, request):
        settings.require_key("Locked", ("LOCKED_KEY",))
        async for event in ScriptedModel(["unlocked"]).stream(request):
            yield event
    async def aclose(self):
        pass
agent = Session(Agent(Locked()))
"""
SERVER = ROOT / "tests" / "tools" / "mcp" / "servers" / "raw.py"


def test_an_approval_shows_the_call_and_a_yes_lets_it_run_once(kernel):
    kernel.run(TWICE)
    cell = kernel.send("%%agent\nhello")
    why, asked = kernel.asked(cell)["prompt"].splitlines()
    assert why.startswith("(Type your answer: ")
    assert asked.startswith("Run act (notebook)? [y]es")
    kernel.wait_for_text(cell, "waits for you")
    assert "what  a" in cell.displays[0]["text/html"]
    kernel.type("y")
    assert "acted: a" in kernel.finish(cell).text
    kernel.asked(cell := kernel.send("%%agent\nagain"))
    kernel.type("yes")
    assert "acted: b" in kernel.finish(cell).text


def test_a_console_is_told_the_arguments_in_the_prompt(kernel):
    kernel.run(TWICE)
    cell = kernel.send("%%agent\nhello", **CONSOLE)
    assert kernel.asked(cell)["prompt"].startswith("Run act (notebook) with\n  what  a\n[y]es")
    kernel.type("y")
    assert "acted: a" in kernel.finish(cell).stream


def test_always_is_asked_once_a_session(kernel):
    kernel.run(TWICE)
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    kernel.type("a")
    kernel.finish(cell)
    assert "acted: b" in kernel.run("%%agent\nagain").text


def test_always_answers_the_other_calls_of_the_same_step_too(kernel):
    kernel.run(ACT + "both = [{'name': 'act', 'arguments': {'what': w}} for w in 'ab']\nplay({'calls': both}, 'done')")
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    kernel.type("always")
    text = kernel.finish(cell).text
    assert "acted: a" in text
    assert "acted: b" in text


def test_a_no_and_its_reason_reach_the_model(kernel):
    kernel.run(TWICE)
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    kernel.type("n not on a Sunday")
    assert kernel.finish(cell).ok
    assert "not on a Sunday" in kernel.value("agent.messages[2].parts[0].text")


def test_a_call_is_denied_where_nobody_can_type(kernel):
    kernel.run(TWICE)
    cell = kernel.run("%%agent\nhello", **BATCH)
    assert cell.ok
    assert "no one is there to give it" in cell.text


def test_a_servers_tool_asks_until_it_is_allowed(kernel):
    assert kernel.run(f"import sys\n%mcp add raw {{sys.executable}} {SERVER}").ok
    kernel.run("play(calls('echo', text='hi'), 'first', calls('echo', text='ho'), 'second')")
    cell = kernel.send("%%agent\nhello")
    assert "Run echo (raw)?" in kernel.asked(cell)["prompt"]
    kernel.type("n")
    kernel.finish(cell)
    assert "without asking" in kernel.run("%mcp allow raw echo").stream
    assert "✓ echo (raw)" in kernel.run("%%agent\nagain").text
    assert "ready" in kernel.run("%mcp").stream
    assert "echo" in kernel.run("%mcp tools raw").stream
    assert kernel.run("%mcp remove raw").ok
    assert "There are no servers" in kernel.run("%mcp").stream


def test_a_tools_question_is_typed(kernel):
    kernel.run(
        "from agentmagic import ToolContext\n@tool\nasync def order(ctx: ToolContext) -> str:\n    'Order.'\n"
        "    return 'ordered ' + await ctx.ask('Which colour?')\nplay(calls('order'), 'done')"
    )
    cell = kernel.send("%%agent\nhello")
    assert "Which colour?" in kernel.asked(cell)["prompt"]
    kernel.type("green")
    assert "ordered green" in kernel.finish(cell).text


@pytest.fixture
def keyless(kernel):
    """A model whose key is looked for when it is asked, as those of the providers."""
    kernel.run(LOCKED)
    yield kernel
    kernel.run("settings._typed.clear()")


def test_a_missing_key_is_asked_for_hidden_and_the_turn_runs_again(keyless):
    cell = keyless.send("%%agent\nhello")
    asked = keyless.asked(cell)
    assert asked["password"]
    assert "LOCKED_KEY" in asked["prompt"]
    keyless.type("a-very-secret-key")
    assert keyless.finish(cell).ok
    assert "unlocked" in cell.text
    assert "Error" not in cell.text
    assert "a-very-secret-key" not in str(cell.messages)
    assert keyless.value("len(agent.messages)") == "2"


def test_an_empty_key_gives_up(keyless):
    cell = keyless.send("%%agent\nhello")
    keyless.asked(cell)
    keyless.type("")
    assert keyless.finish(cell).error.startswith("AuthenticationMissing: the turn failed")
    assert "Error: Locked needs a key" in cell.text


def test_a_missing_key_fails_the_cell_where_nobody_can_type(keyless):
    cell = keyless.run("%%agent\nhello", **BATCH)
    assert cell.error.startswith("AuthenticationMissing: Locked needs a key")


def test_the_local_model_is_offered_where_no_model_is_chosen(kernel):
    kernel.run("agent = Session()")
    cell = kernel.send("%%agent\nhello")
    assert "Use the small local model (1.1 GB, fetched once)?" in kernel.asked(cell)["prompt"]
    kernel.type("n")
    assert kernel.finish(cell).error.startswith("AuthenticationMissing: No model is chosen and no key is set.")


def test_the_question_that_is_answered_is_not_saved(kernel):
    kernel.run("import os\nos.environ['AGENTMAGIC_LOCAL_MODEL'] = 'nowhere.gguf'\nagent = Session()")
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    kernel.type("y")
    kernel.finish(cell)
    kernel.run("del os.environ['AGENTMAGIC_LOCAL_MODEL']")
    assert kernel.value("agent.agent.model").startswith("'local:")
    assert cell.count("clear_output") == 1


def test_without_a_model_a_batch_run_says_what_to_do(kernel):
    kernel.run("agent = Session()")
    cell = kernel.run("%%agent\nhello", **BATCH)
    assert "local:" in cell.error
    assert len(cell.error.splitlines()) == 1


STEPS = "@tool\ndef add(a: int) -> str:\n    'Add.'\n    return f'{a} added'\nplay(calls('add', a=1), 'done')"


def test_a_turn_is_stepped_through_by_typing(kernel):
    kernel.run(STEPS)
    cell = kernel.send("%%agent --step\nhello", **CONSOLE)
    assert kernel.asked(cell)["prompt"].startswith("Step 1, to scripted:")
    kernel.type("e Add one.")
    assert kernel.asked(cell)["prompt"].startswith("Paused before add (notebook) with\n  a  1\n")
    kernel.type("s")
    assert "tool: add returned add was not run: the user skipped it." in kernel.asked(cell)["prompt"]
    kernel.type("")
    assert kernel.finish(cell).ok
    assert kernel.value("agent.messages[0].text") == "'Add one.'"


def test_a_stepped_cell_runs_on_in_batch_and_says_so(kernel):
    kernel.run(STEPS)
    text = kernel.run("%%agent --step --large\nhello", **BATCH)
    assert text.ok
    assert "Step mode needs a person" in text.text
    assert "1 added" in text.text
    assert "zoom:1.75" in text.displays[0]["text/html"]


def test_a_turn_is_quit_at_a_pause(kernel):
    kernel.run(STEPS)
    cell = kernel.send("%%agent --step\nhello", **CONSOLE)
    kernel.asked(cell)
    kernel.type("q")
    assert "Interrupted" in kernel.finish(cell).error
    assert kernel.value("len(agent.agent.model.requests)") == "0"
