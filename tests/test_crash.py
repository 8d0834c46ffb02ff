"""A process is killed at any moment of a turn whose tool does something that must not be done twice.

`AGENTMAGIC_CRASHES=200` kills it so often.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentmagic import Agent, Session
from agentmagic.events import ApprovalAsked, Approve, is_delta
from agentmagic.history.journal_reader import read
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import invalid_history
from tests.turns import calls, texts

CRASHES = int(os.environ.get("AGENTMAGIC_CRASHES", "3"))
ROOT = Path(__file__).parent.parent
PAYMENTS = 4
PAY = ("notebook", "pay")

CHILD = "import sys; from tests.test_crash import Place; Place(sys.argv[1]).turn(sys.argv[2])"


class Place:
    """Where a conversation is saved and its tool leaves its mark."""

    def __init__(self, folder):
        self.folder = folder
        self.path = Path(folder, "agent.jsonl")
        self.effects = Path(folder, "effects.txt")

    def child(self, stall=""):
        command = [sys.executable, "-c", CHILD, str(self.folder), stall]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )

    def turn(self, stall):
        """What a child does: it announces each event, a payment that stalls, and its end."""
        steps = [{"text": "Now.", **calls(("pay", {"amount": number}))} for number in range(PAYMENTS)]
        session = Session(Agent(ScriptedModel([*steps, "All paid."]), tools=[self.pay(stall)]), path=self.path)
        os.write(1, b".")
        run = session.start("Pay.")
        run.listen(lambda event: None if is_delta(event) else os.write(1, b"."))
        run.wait()
        session.close()
        os.write(1, b"$")

    def pay(self, stall=""):
        def pay(amount: int) -> str:
            """Pay an amount."""
            with self.effects.open("a") as file:
                file.write(f"{amount}\n")
                file.flush()
                os.fsync(file.fileno())
            if stall:
                os.write(1, b"!")
                sys.stdin.read()
            return f"paid {amount}"

        return pay

    @property
    def paid(self):
        return len(self.effects.read_text().splitlines()) if self.effects.exists() else 0

    def marks(self, kind):
        """How many whole lines of a kind the file holds."""
        lines = self.path.read_bytes().split(b"\n")[1:-1] if self.path.exists() else []
        return sum(json.loads(line)["type"] == kind for line in lines) if kind else len(lines)

    def again(self):
        """Load the conversation and have the same tool called again."""
        script = ScriptedModel([calls(("pay", {"amount": 99})), "Done."])
        return Session.load(self.path, Agent(script, tools=[self.pay()]))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def killed(child, announcements, delay):
    """Kill a child a moment after it announced so many events; returns how many it had announced."""
    heard = 0
    while heard < announcements and (said := child.stdout.read(1)) not in (b"", b"$"):
        heard += 1
        assert said == b"."
    until = time.perf_counter() + delay
    while time.perf_counter() < until:  # some microseconds, which no clock of the system would wait
        pass
    child.kill()
    rest, _ = child.communicate()
    return heard + rest.count(b".")


@pytest.fixture(scope="module")
def events_of_a_turn(tmp_path_factory):
    """How many events a turn that nobody kills announces."""
    child = Place(tmp_path_factory.mktemp("whole")).child()
    said, _ = child.communicate()
    return said.count(b".")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CRASHES))
def test_a_killed_process_loses_no_result_and_no_tool_runs_twice_unasked(place, events_of_a_turn, seed):
    chance = random.Random(seed)  # noqa: S311  (a seed is the point)
    announced = killed(place.child(), chance.randint(1, events_of_a_turn), chance.uniform(0, 2e-3))
    begun, finished = place.marks("tool_started"), place.marks("tool_finished")
    paid = place.paid
    assert place.marks("") >= announced - 1  # the first one is the session's own
    assert finished <= paid <= begun <= finished + 1
    if not place.path.exists():
        assert paid == 0
        return
    saved = read(place.path)
    assert saved.in_doubt == ({PAY} if begun > finished else set())
    again = place.again()
    assert invalid_history(again.messages) is None
    assert sum(text.startswith("paid") for turn in again.turns for text in texts(turn.result)) == finished
    result = again.ask("Pay again.")
    again.close()
    assert place.paid == paid + (not saved.in_doubt)
    assert ("was under way when the kernel stopped" in texts(result)[0]) == bool(saved.in_doubt)
    assert read(place.path).turns == tuple(turn.events for turn in again.turns)
    assert read(place.path).in_doubt == saved.in_doubt


def test_a_tool_that_was_under_way_is_asked_about_until_a_person_said_yes(place):
    child = place.child("stall")
    while child.stdout.read(1) != b"!":
        pass
    child.kill()
    child.communicate()
    for _ in range(2):
        unattended = place.again()
        unattended.ask("Pay again.")
        unattended.close()
        assert place.paid == 1
    attended = place.again()
    run = attended.start("Pay again.", attended=True)
    run.listen(lambda event: run.send(Approve(event.id)) if isinstance(event, ApprovalAsked) else None)
    run.wait()
    attended.close()
    assert place.paid == 2
    trusted = place.again()
    trusted.ask("Pay again.")
    trusted.close()
    assert place.paid == 3
