"""Programs with a top-level `await`, from whoever asks for them, in a kernel whose loop has not been nested before."""

import os
import sys

import pytest

from tests.jupyter.conftest import OLDEST, SETUP, missing
from tests.jupyter.harness import Kernel
from tests.jupyter.test_notebook_tools import ALLOWED
from tests.serve.outside import Outside

PYTHONS = [
    pytest.param(None, id="this"),
    pytest.param(os.environ.get(OLDEST), id="oldest", marks=[missing, pytest.mark.slow]),
]
PROGRAM = "import asyncio\nasync def g():\n    await asyncio.sleep(0.1)\n    return 6 * 7\nprint('slept', await g())"
SLEPT = "slept 42"
BOUND = """
seen = []
@tool(loop="caller")
async def bound():
    "Sleep on the loop of the kernel."
    await asyncio.sleep(0.1)
    seen.append("bound")
"""
PLAY = "play(calls('run_python', code={!r}), calls('bound'), 'Done.', tools=[NotebookTools(), bound], permission=ALLOW)"
IN_A_CELL = [
    "%%agent\nGo.",
    "agent.ask('Go.')",
    "await agent.start('Go.')",
    "result = agent.map([{'a': 1}], 'Go {a}.')\nprint(result.frame)",
    "map_run = agent.start_map([{'a': 1}], 'Go {a}.')\nprint((await map_run).frame)",
]
AFTER_A_CELL = """
import threading
idle = threading.Event()
def work():
    idle.wait()
    agent.ask("Go.")
    print("ended", told())
thread = threading.Thread(target=work)
thread.start()
asyncio.get_running_loop().call_soon(idle.set)
"""


@pytest.fixture
def fresh(request, tmp_path):
    """A kernel of its own for the test, because only the first nested run of a loop meets asyncio's own iteration."""
    variables = {"IPYTHONDIR": str(tmp_path / "ipython"), "XDG_STATE_HOME": str(tmp_path / "state")}
    variables["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
    with Kernel(request.param or sys.executable, variables, tmp_path) as kernel:
        assert kernel.run(SETUP).ok
        assert kernel.run(ALLOWED).ok
        yield kernel


def is_alive(kernel) -> bool:
    return kernel.run("print(await asyncio.sleep(0, 1 + 1))").stream == "2\n"


@pytest.mark.parametrize("fresh", PYTHONS, indirect=True)
def test_a_client_s_program_awaits_while_no_cell_runs(fresh, tmp_path):
    pytest.importorskip("fastmcp")
    assert fresh.run("program()\n%agent serve --tools").ok
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_PROXY": "127.0.0.1"}
    with Outside("codex", tmp_path, env) as client:
        for _ in range(3):
            assert client.call("run_python", code=PROGRAM) == (False, f"Printed:\n{SLEPT}")
    assert is_alive(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("fresh", PYTHONS, indirect=True)
def test_a_turn_in_the_background_awaits_after_its_cell_as_one_of_the_panel_does(fresh):
    assert fresh.run(f"program({PROGRAM!r})").ok
    fresh.wait_for_text(fresh.send(AFTER_A_CELL), f"ended ['Printed:\\n{SLEPT}']")
    assert is_alive(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("fresh", PYTHONS, indirect=True)
def test_a_program_and_a_tool_on_the_kernel_s_loop_await_while_a_cell_runs(fresh):
    program = f"{PROGRAM}\nseen.append(await g())"
    for cell in IN_A_CELL:
        assert fresh.run(f"{BOUND}\nALLOW = Policy([Rule('allow', 'run_python')])\n{PLAY.format(program)}").ok
        done = fresh.run(cell)
        assert done.ok, done.error
        assert fresh.run("print(seen)").stream == "[42, 'bound']\n"
    assert is_alive(fresh)


WAITING = "ready = asyncio.Event()\nprint('one')\nawait ready.wait()\nprint('two')"


@pytest.mark.slow
@pytest.mark.parametrize("fresh", PYTHONS, indirect=True)
def test_a_cell_that_runs_while_a_client_s_program_awaits_keeps_its_output_and_an_interrupt_ends_only_the_program(
    fresh, tmp_path
):
    pytest.importorskip("fastmcp")
    assert fresh.run("program()\n%agent serve").ok
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_PROXY": "127.0.0.1"}
    with Outside("codex", tmp_path, env) as client:
        client.start("run_python", code=WAITING)
        client.hears("one")
        assert fresh.run("print('mine')\nready.set()").stream == "mine\n"
        assert client.result() == (False, "Printed:\none\ntwo")
        client.told.clear()
        client.start("run_python", code=WAITING)
        client.hears("one")
        fresh.interrupt()
        assert client.result()[0]
        assert client.call("run_python", code="1 + 1") == (False, "2")
    assert is_alive(fresh)
