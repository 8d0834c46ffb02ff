"""`%%agent -m acp:...` in a real kernel: its cards, its tools, Stop, a recording, and what a killed kernel leaves."""

import shutil
import sys
from functools import partial

import psutil
import pytest

from tests.acp.sessions import AGENT
from tests.jupyter.harness import Kernel

pytest.importorskip("acp")
pytest.importorskip("fastmcp")

SETUP = "%load_ext agentmagic\ndf = [1, 2, 3]\ndef double(n: int) -> int:\n    'Double.'\n    return 2 * n"


def answering(python, agent):
    return f'%%agent -m "acp:{python} {agent}"'


@pytest.fixture
def kernel(tmp_path):
    with Kernel(sys.executable, {"IPYTHONDIR": str(tmp_path / "ipython")}, tmp_path) as made:
        assert made.run(SETUP).ok
        yield made


def test_a_cell_asks_an_outside_agent_and_is_replayed_without_it(kernel, tmp_path):
    agent = tmp_path / "agent.py"
    shutil.copy(AGENT, agent)
    head = answering(sys.executable, agent)
    kernel.run("%agent cassette x.cassette.yaml\n%agent record")
    cells = [
        f'{head} --tools double\nWhat is {{df}}?\n!think hm\n!plan completed\n!call double {{"n": 21}}\n!say So far',
        f"{head}\n!edit notes.txt\n!say Done.",
        f"{head} -o result --as int\n!say 7",
    ]
    first = kernel.run(cells[0])
    assert first.ok
    for words in ("[1, 2, 3]", "42", "So far", "step 1"):
        assert words in first.text
    edited, (question,) = kernel.answer(cells[1], "y")
    assert "+new text" in edited.text
    assert "[e]dit" not in question
    assert "notes.txt" in edited.text
    assert (tmp_path / "notes.txt").read_text() == "new text\n"
    last = kernel.run(cells[2])
    assert kernel.run("result").text == "7"

    agent.unlink()
    (tmp_path / "notes.txt").unlink()
    kernel.run(f"%unload_ext agentmagic\n%reset -f\n{SETUP}\n%agent cassette x.cassette.yaml\n%agent replay")
    again = [kernel.run(cell) for cell in cells]
    assert all(cell.ok for cell in again)
    assert [cell.text for cell in again] == [cell.text for cell in (first, edited, last)]
    assert kernel.run("result").text == "7"
    assert not (tmp_path / "notes.txt").exists()


@pytest.mark.slow
def test_stop_ends_the_cell_and_the_next_one_is_answered(kernel):
    head = answering(sys.executable, AGENT)
    cell = kernel.send(f"{head}\n!say Hello\n!hang")
    kernel.wait_for_text(cell, "Hello")
    assert kernel.interrupted(cell) < 1.0
    assert "again" in kernel.run(f"{head}\n!say again").text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a Job Object ends them there")
@pytest.mark.parametrize("end", [Kernel.kill, Kernel.restart, partial(Kernel.restart, now=False)])
def test_a_kernel_that_ends_during_a_turn_leaves_no_process_of_the_agent(kernel, tmp_path, end):
    cell = kernel.send(f"{answering(sys.executable, AGENT)}\n!spawn child\n!say Hello\n!hang")
    kernel.wait_for_text(cell, "Hello")
    (agent,) = [one for one in psutil.Process(kernel.pid).children() if str(AGENT) in one.cmdline()]
    child = psutil.Process(int((tmp_path / "child").read_text()))
    end(kernel)
    for process in (agent, child):
        process.wait(10)
