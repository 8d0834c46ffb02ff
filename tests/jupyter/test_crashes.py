"""A kernel is killed in the middle of a turn whose tool does something that must not be done twice.

`AGENTMAGIC_CRASHES=200` kills it so often.
"""

import json
import os
import random
import sys

import pytest

from agentmagic.history.journal import FOLDER
from agentmagic.history.journal_reader import read
from agentmagic.testing import invalid_history
from tests.jupyter.harness import BATCH, Kernel

pytestmark = pytest.mark.posix  # a kernel is killed with SIGKILL

CRASHES = int(os.environ.get("AGENTMAGIC_CRASHES", "1"))
PAYMENTS = 4
PAY = ("notebook", "pay")

PAYING = """
%load_ext agentmagic
import os, threading
from agentmagic import Agent, tool
from agentmagic.providers.scripted import ScriptedModel

stalls = False

def say(text):
    "Print in another thread, so that it is printed into the cell at once."
    thread = threading.Thread(target=print, args=[text], kwargs={"flush": True})
    thread.start()
    thread.join()

@tool
def pay(amount: int) -> str:
    "Pay an amount."
    say(f"before {amount};")
    with open("effects.txt", "a") as file:
        file.write(f"{amount}\\n")
        file.flush()
        os.fsync(file.fileno())
    say(f"after {amount};")
    if stalls:
        threading.Event().wait()
    return f"paid {amount}"

def paying(*amounts):
    calls = [{"text": "Now.", "calls": [{"name": "pay", "arguments": {"amount": amount}}]} for amount in amounts]
    return Agent(ScriptedModel([*calls, "All paid."]))
"""


class Shop:
    """A notebook whose tool leaves a mark, and its kernel."""

    def __init__(self, folder):
        self.notebook = folder / "shop.ipynb"
        self.notebook.write_text("{}")
        self.file, self.effects = folder / FOLDER / "shop" / "agent.jsonl", folder / "effects.txt"
        variables = {"JPY_SESSION_NAME": str(self.notebook), "IPYTHONDIR": str(folder / "ipython")}
        self.kernel = Kernel(sys.executable, variables, folder)

    @property
    def paid(self):
        return len(self.effects.read_text().splitlines()) if self.effects.exists() else 0

    def marks(self, kind):
        """How many whole lines of a kind the file holds."""
        return sum(json.loads(line)["type"] == kind for line in self.file.read_bytes().split(b"\n")[1:-1])

    def begin(self, *amounts):
        cell = self.kernel.run(f"{PAYING}\nagent = paying{amounts!r}")
        assert cell.ok, cell.error

    def crash(self, marker):
        """Have the turn run until a tool printed something, kill the kernel, and start it anew."""
        cell = self.kernel.send("%%agent\nPay.")
        self.kernel.wait(cell, lambda: marker in cell.stream)
        self.kernel.kill()
        self.kernel.restart()


@pytest.fixture
def shop(tmp_path):
    made = Shop(tmp_path)
    yield made
    made.kernel.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CRASHES))
def test_a_killed_kernel_loses_no_result_and_no_tool_runs_twice_unasked(shop, seed):
    chance = random.Random(seed)  # noqa: S311  (a seed is the point)
    shop.begin(*range(PAYMENTS))
    shop.crash(f"{chance.choice(['before', 'after'])} {chance.randrange(PAYMENTS)};")
    begun, finished, paid = shop.marks("tool_started"), shop.marks("tool_finished"), shop.paid
    assert finished <= paid <= begun <= finished + 1
    saved = read(shop.file)
    assert saved.in_doubt == ({PAY} if begun > finished else set())
    shop.begin(99)
    loaded = shop.kernel.run("%agent load").stream
    assert "agent goes on with 1 turn" in loaded
    assert ("in doubt    pay (notebook)" in loaded) == bool(saved.in_doubt)
    told = shop.kernel.run("%%agent\nPay again.", **BATCH).text
    assert shop.paid == paid + (not saved.in_doubt)
    assert ("was under way when the kernel stopped" in told) == bool(saved.in_doubt)
    turns = read(shop.file).turns
    assert invalid_history([message for turn in turns for message in turn[-1].result.history_delta]) is None


@pytest.mark.slow
def test_a_person_is_asked_before_a_tool_that_was_under_way_runs_again(shop):
    shop.begin(5)
    shop.kernel.run("stalls = True")
    shop.crash("after 5;")
    assert shop.paid == 1
    shop.begin(5, 5)
    loaded = shop.kernel.run("%agent load").stream
    assert "The call of pay was under way and may have run in part, or wholly" in loaded
    assert "in doubt    pay (notebook)" in shop.kernel.run("%agent").stream
    cell = shop.kernel.send("%%agent\nPay again.")
    assert "It was under way when the kernel stopped" in shop.kernel.asked(cell)["prompt"]
    shop.kernel.type("n")
    shop.kernel.asked(cell)
    assert shop.paid == 1
    shop.kernel.type("y")
    shop.kernel.finish(cell)
    assert shop.paid == 2
    assert "in doubt" not in shop.kernel.run("%agent").stream
