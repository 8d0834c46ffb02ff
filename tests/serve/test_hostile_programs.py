"""A served kernel outlives 200 programs of clients that end themselves, or try to end it, in every place."""

import itertools
import os
import random
import sys

import pytest

from tests.jupyter.conftest import OLDEST, missing
from tests.jupyter.harness import Kernel
from tests.serve.outside import Outside

pytest.importorskip("fastmcp")
pytestmark = [pytest.mark.slow, pytest.mark.posix]

SETUP = """
%load_ext agentmagic
import _thread, asyncio, contextvars, signal, sys, threading
from agentmagic import Agent, Policy, Rule, ScriptedModel, Session
agent = Session(Agent(ScriptedModel([]), permission=Policy([Rule("allow", "run_python")])))
precious, kept = ["mine"], []
%agent serve
"""
ENDS = [
    "raise KeyboardInterrupt",
    "raise SystemExit(3)",
    "sys.exit('enough')",
    "exit()",
    "raise asyncio.CancelledError",
    "raise BaseException('x')",
    "raise GeneratorExit",
    "raise ValueError('a\\ud800c')",
    "print('a\\ud800c')",
    "signal.raise_signal(signal.SIGINT)",
    "_thread.interrupt_main()",
    "raise MemoryError",
]
END = "def end(*_):\n    {}\n"
COROUTINE = f"{END}async def later():\n    await asyncio.sleep(0.01)\n    end()\n"
LOOP = "asyncio.get_running_loop()"
PLACES = {
    "the program": "{}",
    "after an await": "await asyncio.sleep(0.01)\n{}",
    "a coroutine": f"{COROUTINE}await later()",
    "one of two tasks": f"{COROUTINE}await asyncio.gather(later(), asyncio.sleep(0.02))",
    "a task group": f"{COROUTINE}async with asyncio.TaskGroup() as group:\n    group.create_task(later())",
    "a task that is left behind": f"{COROUTINE}kept.append({LOOP}.create_task(later()))",
    "a callback that is left behind": f"{END}{LOOP}.call_soon(end)",
    "a timer that is left behind": f"{END}{LOOP}.call_later(0.02, end)",
    "a callback from a thread": f"{END}threading.Thread(target={LOOP}.call_soon_threadsafe, args=[end]).start()",
    "a thread": f"{END}thread = threading.Thread(target=end)\nthread.start()\nthread.join()",
    "a thread that is left behind": f"{END}threading.Timer(0.02, end).start()",
    "an awaited thread": f"{END}await asyncio.to_thread(end)",
    "a finalizer": f"{END}class Last:\n    __del__ = end\nLast()\nNone",
    "the end of a generator": (
        f"{END}def numbers():\n    try:\n        yield 1\n    finally:\n        end()\nnext(numbers())"
    ),
    "a nested run": f"{COROUTINE}await asyncio.sleep(0)\nasyncio.run(later())",
    "another context": f"{END}contextvars.Context().run(end)",
    "a handler of a signal": (
        f"{END}signal.signal(signal.SIGUSR1, end)\nsignal.raise_signal(signal.SIGUSR1)\nawait asyncio.sleep(0.01)"
    ),
}
WITHOUT_CONTEXT = ("a callback from a thread", "another context")
"""Places in which nothing says that a tool is the caller, so that `exit` is the user's own, which ends the kernel."""
PAIRS = itertools.product(ENDS, PLACES)
PROGRAMS = [PLACES[place].format(end) for end, place in PAIRS if (end, place in WITHOUT_CONTEXT) != ("exit()", True)]
random.Random(55).shuffle(PROGRAMS)  # noqa: S311  (the same order in each run)
AT_EACH = 20
"""After so many programs, the user runs a cell."""
SIGNALS = ("raise_signal(signal.SIGINT)", "interrupt_main")
"""A signal that a program leaves behind stops what runs when it comes, as Ctrl+C does. So no cell runs before that."""


@pytest.mark.parametrize(
    "python",
    [pytest.param(sys.executable, id="this"), pytest.param(os.environ.get(OLDEST), id="oldest", marks=missing)],
)
def test_a_served_kernel_keeps_its_variables_and_answers_its_clients_and_its_user(python, tmp_path):
    assert len(PROGRAMS) >= 200
    state = {"IPYTHONDIR": str(tmp_path / "ipython"), "XDG_STATE_HOME": str(tmp_path / "state")}
    state["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
    with Kernel(python, state, tmp_path) as kernel:
        assert kernel.run(SETUP).ok
        with Outside("codex", tmp_path, {**os.environ, **state, "NO_PROXY": "127.0.0.1"}) as client:
            for number, program in enumerate(PROGRAMS):
                client.call("run_python", code=program)
                if number % AT_EACH == 0:
                    if any(signal in recent for recent in PROGRAMS[: number + 1][-3:] for signal in SIGNALS):
                        client.call("run_python", code="await asyncio.sleep(0.1)")
                    cell = kernel.run(f"kept.clear()\nprint(await asyncio.sleep(0.05, {number}))")
                    assert cell.stream.endswith(f"{number}\n"), (program, cell.error)
            answer = client.call("run_python", code="await asyncio.sleep(0.1)\nprecious")
        assert answer == (False, "['mine']")
        # An older Jupyter writes into any cell that it cannot send a lone surrogate, which a program printed.
        assert kernel.run("print(precious)").stream.endswith("['mine']\n")
