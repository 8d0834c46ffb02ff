"""Interrupting a cell: wherever the turn is, the cell is back at once and the conversation goes on."""

import sys

import pytest

from tests.jupyter.conftest import ACT, GATE, every_kernel
from tests.jupyter.harness import RAW
from tests.turns import AT_ONCE

pytestmark = every_kernel

SLOW = """
@tool
def nap() -> str:
    "Sleep as a function does."
    time.sleep(60)
@tool
async def block() -> str:
    "Block as a coroutine must not."
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("setup", "sign"),
    [
        ("agent = Session(Agent(Stalled()))", "half an"),
        (SLOW + "play(calls('nap'), 'second answer')", "running"),
        (SLOW + "play(calls('block'), 'second answer')", "running"),
        ("play(RateLimited('busy', retry_after=60), 'second answer')", "trying again"),
    ],
    ids=["a stalled stream", "a function that sleeps", "a coroutine that blocks", "a retry wait"],
)
def test_an_interrupt_cancels_the_turn_at_once(kernel, setup, sign):
    assert kernel.run(setup).ok
    cell = kernel.wait_for_text(kernel.send("%%agent\nhello"), sign)
    assert kernel.interrupted(cell) < AT_ONCE
    assert not cell.ok
    assert cell.error == ""
    assert "stopped" in cell.text
    assert cell.stream == ""
    assert kernel.value("valid()") == "True"
    assert "second answer" in kernel.run("%%agent\nagain").text


def test_an_interrupt_cancels_a_call_of_a_server_which_is_told_and_there_for_the_next(kernel, add):
    add("raw", *RAW)
    kernel.run("%mcp allow raw\nplay(calls('wait'), calls('echo', text='alive'), calls('cancelled'), 'second')")
    cell = kernel.wait_for_text(kernel.send("%%agent\nhello"), "running")
    assert kernel.interrupted(cell) < AT_ONCE
    assert "stopped" in cell.text
    assert kernel.value("valid()") == "True"
    assert "✓ echo (raw)" in kernel.run("%%agent\nagain").text
    assert kernel.value("agent.messages[-2].parts[0].text") == "'[true]'"


def test_an_interrupt_while_a_server_does_not_answer_gives_up_adding_it(kernel, tmp_path):
    (tmp_path / "silent.py").write_text("import sys\nopen(__file__ + '.started', 'w').close()\nsys.stdin.read()")
    cell = kernel.send(f"%mcp add silent {sys.executable} {tmp_path / 'silent.py'}")
    kernel.wait(cell, (tmp_path / "silent.py.started").exists)
    assert kernel.interrupted(cell) < AT_ONCE
    assert cell.error == ""
    assert "Interrupted: what was under way is given up." in cell.stream


def test_an_interrupt_while_an_approval_is_awaited_cancels_the_turn(kernel):
    kernel.run(ACT + "play(calls('act', what='a'), 'second answer')")
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    assert kernel.interrupted(cell) < AT_ONCE
    assert "stopped" in cell.text
    assert kernel.value("valid()") == "True"
    assert "second answer" in kernel.run("%%agent\nagain").text


STUBBORN = """
def nap() -> None:
    for _ in range(6000):  # in short pieces: a signal that comes just before a sleep is handled after it
        time.sleep(0.01)
def stubborn() -> str:
    "Stay until the second interrupt."
    try:
        try:
            nap()
        finally:  # the turn, which is cancelled, interrupts too: at the same moment, or here
            agent.running and agent.running.settled.result(60)
    except KeyboardInterrupt:
        pass
    try:
        open({stayed!r}, "w").close()
        nap()
    except KeyboardInterrupt:
        pass
    return "left"
play(calls("stubborn"), "second answer", tools=[stubborn])
"""


def test_a_second_interrupt_ends_what_a_tool_that_does_not_listen_does_next(kernel, tmp_path):
    assert kernel.run(STUBBORN.format(stayed=str(tmp_path / "stayed"))).ok
    cell = kernel.wait_for_text(kernel.send("%%agent\nhello"), "running")
    kernel.interrupt()
    kernel.wait(cell, (tmp_path / "stayed").exists)
    assert kernel.interrupted(cell) < AT_ONCE
    assert "stopped" in cell.text
    kernel.run("agent.running and agent.running.settled.result(5)")
    assert "second answer" in kernel.run("%%agent\nagain").text


def test_an_interrupt_ends_the_waiting_for_a_turn_in_the_background_but_not_that_turn(kernel):
    kernel.run(GATE + "play(calls('wait'), 'first answer', tools=[wait])")
    kernel.run("%%agent --bg\nhello")
    cell = kernel.send("print('queued')\nget_ipython().run_cell_magic('agent', '', 'next')")
    kernel.wait_for_text(cell, "queued")
    assert kernel.interrupted(cell) < AT_ONCE
    assert "busy" in cell.stream
    kernel.run("run = agent.running\ngate.set()\nresult = await run")
    assert kernel.value("result.final_text") == "'first answer'"
