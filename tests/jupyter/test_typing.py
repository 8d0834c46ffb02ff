"""Approvals, questions and keys that are typed."""

from tests.jupyter.conftest import ACT, every_kernel
from tests.jupyter.harness import BATCH, CONSOLE

pytestmark = every_kernel

TWICE = ACT + "play(calls('act', what='a'), 'first', calls('act', what='b'), 'second')"


def test_an_approval_shows_the_call_which_runs_once_after_a_yes_or_as_it_was_edited(kernel):
    kernel.run(TWICE)
    cell = kernel.send("%%agent\nhello")
    why, asked = kernel.asked(cell)["prompt"].splitlines()
    assert why.startswith("(Type your answer: ")
    assert asked.startswith("Run act (notebook)? [y]es")
    kernel.wait_for_text(cell, "waits for you")
    assert "what  a" in cell.displays[0]["text/html"]
    kernel.type("y")
    assert "acted: a" in kernel.finish(cell).text
    cell, (prompt, again) = kernel.answer("%%agent\nagain", 'e {"how": "b"}', 'e {"what": "c"}', **CONSOLE)
    assert prompt.startswith("Run act (notebook) with\n  what  b\n[y]es")
    assert "cannot be used" in again
    assert "acted: c" in cell.stream


def test_a_call_is_not_run_after_a_no_whose_reason_reaches_the_model_and_where_nobody_can_type(kernel):
    kernel.run(TWICE)
    cell, _ = kernel.answer("%%agent\nhello", "n not on a Sunday")
    assert cell.ok
    assert "not on a Sunday" in kernel.value("agent.messages[2].parts[0].text")
    cell = kernel.run("%%agent\nhello", **BATCH)
    assert cell.ok
    assert "no one is there to give it" in cell.text


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


def test_a_missing_key_is_asked_for_hidden_and_the_turn_runs_again_or_fails_if_nothing_is_typed(kernel):
    kernel.run(LOCKED)
    cell = kernel.run("%%agent\nhello", **BATCH)
    assert cell.error.startswith("AuthenticationMissing: Locked needs a key")
    cell, _ = kernel.answer("%%agent\nhello", "")
    assert cell.error.startswith("AuthenticationMissing: the turn failed")
    assert "Error: Locked needs a key" in cell.text
    kernel.run(LOCKED)
    cell = kernel.send("%%agent\nhello")
    asked = kernel.asked(cell)
    assert asked["password"]
    assert "LOCKED_KEY" in asked["prompt"]
    kernel.type("a-very-secret-key")
    assert kernel.finish(cell).ok
    assert "unlocked" in cell.text
    assert "Error" not in cell.text
    assert "a-very-secret-key" not in str(cell.messages)
    assert kernel.value("settings._typed_keys.clear() or len(agent.messages)") == "2"


def test_the_local_model_is_offered_where_no_model_is_chosen(kernel):
    kernel.run("agent = Session()")
    cell, (prompt,) = kernel.answer("%%agent\nhello", "n")
    assert "Use the small local model (1.1 GB, fetched once)?" in prompt
    assert cell.error.startswith("AuthenticationMissing: No model is chosen and no key is set.")
    cell = kernel.run("%%agent\nhello", **BATCH)
    assert "local:" in cell.error
    assert len(cell.error.splitlines()) == 1
    kernel.run("import os\nos.environ['AGENTMAGIC_LOCAL_MODEL'] = 'nowhere.gguf'")
    cell, _ = kernel.answer("%%agent\nhello", "y")
    kernel.run("del os.environ['AGENTMAGIC_LOCAL_MODEL']")
    assert kernel.value("agent.agent.model").startswith("'local:")
    assert cell.count("clear_output") == 1  # so that the question that was answered is not saved


STEPS = "@tool\ndef add(a: int) -> str:\n    'Add.'\n    return f'{a} added'\nplay(calls('add', a=1), 'done')"


def test_a_turn_is_stepped_through_and_quit_by_typing(kernel):
    kernel.run(STEPS)
    cell, prompts = kernel.answer("%%agent --step\nhello", "e Add one.", "s", "", **CONSOLE)
    assert cell.ok
    assert prompts[0].startswith("Step 1, to scripted:")
    assert prompts[1].startswith("Paused before add (notebook) with\n  a  1\n")
    assert "tool: add returned add was not run: the user skipped it." in prompts[2]
    assert kernel.value("agent.messages[0].text") == "'Add one.'"
    cell, _ = kernel.answer("%%agent --step\nhello", "q", **CONSOLE)
    assert (cell.error, cell.ok) == ("", False)
    assert "stopped" in cell.stream, cell.messages
    assert kernel.value("len(agent.agent.model.requests)") == "2"


def test_a_stepped_cell_runs_on_in_batch_and_says_so(kernel):
    kernel.run(STEPS)
    text = kernel.run("%%agent --step --large\nhello", **BATCH)
    assert text.ok
    assert "Step mode needs a person" in text.text
    assert "1 added" in text.text
    assert "zoom:1.75" in text.displays[0]["text/html"]
