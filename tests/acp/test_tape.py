"""Turns of an outside agent on a cassette: replayed without its program, and compared as those of models."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agentmagic import tool
from agentmagic.bill import ledger
from agentmagic.errors import ReplayMismatch, UsageError
from agentmagic.events import PartDelta
from agentmagic.run import Run
from tests.acp.sessions import AGENT, asked, known, names, no, session_of, started

PROMPTS = (
    '!think hm\n!plan pending in_progress\n!call double {"n": 4}\n!plan completed completed\n!both a b\n!say end',
    "!edit FILE\n!inside c\n!cost 0.25\n!say done",
    '!quietly pay {"n": 1}\n!call double {"n": "x"}',
)


@tool(ask=True)
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def played(tape: Path, mode: Any, prompts: Any, agent: Path, answer: Any = None) -> list[Run]:
    """Run prompts on a cassette with the agent of a file."""
    session = session_of(tools=[pay, double], cassette=tape, replay=mode)
    program = f"python3 {agent}" if agent.suffix else agent
    session.agent = type(session.agent)(f"acp:{program}", tools=[pay, double])
    runs = [asked(session, prompt, answer) for prompt in prompts]
    session.close()
    return runs


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("mode", "answer"),
    [("replay", None), pytest.param("replay", no, marks=SLOW), pytest.param("auto", None, marks=SLOW)],
)
def test_a_recording_is_played_without_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, answer: Any
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    tape, file = tmp_path / "t.cassette.yaml", tmp_path / "notes.txt"
    agent = Path(known(tmp_path).removeprefix("acp:"))
    prompts = [prompt.replace("FILE", str(file)) for prompt in PROMPTS]
    live = played(tape, "record", prompts, agent, answer)
    agent.unlink()
    file.unlink(missing_ok=True)
    monkeypatch.setenv("PATH", "/nowhere")
    paid = ledger().here
    again = played(tape, mode, prompts, agent, no)
    assert (paid.requests > 0, ledger().here) == (True, paid), "a replay is not paid"
    for one, other in zip(live, again, strict=True):
        assert names(other) == names(one)
        before, now = one.settled.result().result, other.settled.result().result
        assert (now.final_text, now.usage, now.stop_reason) == (before.final_text, before.usage, before.stop_reason)
        assert [message.text for message in now.history_delta] == [message.text for message in before.history_delta]
        assert now.seconds == before.seconds
    assert not file.exists()


@pytest.mark.slow
def test_another_prompt_is_a_mismatch(tmp_path: Path) -> None:
    tape = tmp_path / "t.cassette.yaml"
    played(tape, "record", ["!say one"], AGENT)
    (run,) = played(tape, "replay", ["!say two"], AGENT)
    assert isinstance(run.settled.result().error, ReplayMismatch)


@pytest.mark.parametrize("mode", ["replay-model", pytest.param("replay-tools", marks=pytest.mark.slow)])
def test_modes_that_split_a_turn_are_refused(tmp_path: Path, mode: str) -> None:
    tape = tmp_path / "t.cassette.yaml"
    played(tape, "record", ["!say one"], AGENT)
    with pytest.raises(UsageError, match="cannot split its turn"):
        played(tape, mode, ["!say one"], AGENT)


@pytest.mark.slow
def test_a_stopped_turn_is_stopped_again(tmp_path: Path) -> None:
    tape = tmp_path / "t.cassette.yaml"
    session = session_of(cassette=tape, replay="record")
    heard = threading.Event()
    session.listen(lambda event: heard.set() if isinstance(event, PartDelta) else None)
    run = started(session, "!say Hello\n!wait")
    assert heard.wait(20)
    run.cancel()
    assert run.settled.result(5).result.stop_reason == "cancelled"
    session.close()
    again = session_of(cassette=tape, replay="replay")
    result = asked(again, "!say Hello\n!wait").settled.result().result
    assert (result.stop_reason, result.final_text) == ("cancelled", "Hello ")
    again.close()
