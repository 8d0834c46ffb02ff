"""Jobs of the main thread that run the event loop again, which a cell or a callback blocks: the loop goes on."""

import subprocess
import sys

import pytest

from agentmagic.testing import PATIENCE

LOOP = """
import asyncio, nest_asyncio2
from agentmagic.runtime.engine import engine
from agentmagic.runtime.nested_runs import run_nested

loop, ran = asyncio.new_event_loop(), []

async def pause():
    await asyncio.sleep(0.01)  # longer than one iteration of the loop
    return "paused"

def fail():
    raise ValueError

async def leave():
    raise SystemExit

def nested(coroutine):
    ran.append(run_nested(loop, coroutine))

{work}

def job():
    engine().submit(engine().main.run(work))
    while not engine().main._jobs:
        pass
    engine().main.drain()

async def as_task():
    job()

{begin}
for number in range(5):
    loop.call_soon(ran.append, number)
loop.call_later(0.2, loop.stop)
loop.run_forever()
print(ran)
"""
CALLBACK, TASK, THREAD = (
    "loop.call_soon(job)",
    "made = loop.create_task(as_task())",
    "loop.call_soon_threadsafe(job)",
)
ALL = "[0, 1, 2, 3, 4, 'paused']"


@pytest.mark.parametrize("begin", [CALLBACK, TASK, THREAD])
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("def work(): nested(pause())", ALL),
        ("def work():\n    nested(pause())\n    nested(pause())", "[0, 1, 2, 3, 4, 'paused', 'paused']"),
        # asyncio.run runs the same loop once nest_asyncio2 is active
        (
            "def work():\n    nested(pause())\n    ran.append(asyncio.run(pause()))",
            "[0, 1, 2, 3, 4, 'paused', 'paused']",
        ),
        ("def work():\n    nested(pause())\n    fail()", ALL),
        ("def work():\n    nested(pause())\n    raise SystemExit", ALL),
        ("def work():\n    nested(pause())\n    raise KeyboardInterrupt", ALL),
        ("def work(): nested(leave())", "[0, 1, 2, 3, 4]"),
        ("async def twice(): nested(pause())\ndef work(): nested(twice())", "[0, 1, 2, 3, 4, 'paused', None]"),
    ],
)
def test_the_loop_goes_on_after_a_job_has_run_it_again_and_no_callback_is_lost(begin, work, expected):
    code = LOOP.format(work=work, begin=begin)
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == expected, done.stderr
