"""`%%agent -m acp:...` in a real kernel: its cards, its tools, Stop, a recording, and what a killed kernel leaves."""

import re
import shutil
import subprocess
import sys
from functools import partial

import psutil
import pytest

from tests.acp.sessions import AGENT
from tests.jupyter.harness import ROOT, Kernel

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


@pytest.mark.slow
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
def test_a_recorded_notebook_runs_in_batch_without_the_program_and_shows_the_same_cards(kernel, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("nbval")
    agent = tmp_path / "agent.py"
    shutil.copy(AGENT, agent)
    head = answering(sys.executable, agent)
    cells = [
        f'{head} --tools double\n!think hm\n!plan in_progress\n!call double {{"n": 21}}\n!edit notes.txt\n!say Done.',
        f"{head} -o result --as int --max-cost 1\n!cost 0.25\n!say 7",
    ]
    kernel.run("%agent cassette x.cassette.yaml\n%agent record")
    first, _ = kernel.answer(cells[0], "y")
    live = [first, kernel.run(cells[1])]
    kernel.run("%agent live")  # it closes the cassette
    agent.unlink()
    (tmp_path / "notes.txt").unlink()
    assert str(tmp_path) not in (tmp_path / "x.cassette.yaml").read_text(encoding="utf-8")

    begin = f"{SETUP}\n%agent cassette x.cassette.yaml\n%agent replay"
    book = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, [begin, *cells, "result"])))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    nbclient.NotebookClient(book, resources={"metadata": {"path": tmp_path}}, kernel_name="python3").execute()
    texts = ["\n".join(one["data"]["text/plain"] for one in cell.outputs if "data" in one) for cell in book.cells]
    assert texts == ["", *(re.sub(r" \[[\d.]+ m?s\]| · [\d.]+ m?s", "", cell.text) for cell in live), "7"]  # no times
    assert not (tmp_path / "notes.txt").exists()
    nbformat.write(book, tmp_path / "x.ipynb")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--nbval",
        "--nbval-current-env",
        "x.ipynb",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_the_options_of_a_cell_hold_for_an_outside_agent_or_a_sentence_says_why_not(kernel):
    head = answering(sys.executable, AGENT)
    kernel.run(f"{head}\n!say warm")  # a timeout that a user sets includes the start of the agent
    answered = kernel.run(f"{head} --timeout 1\n!say Hello\n!hang")
    assert "took longer than 1 s" in answered.text
    assert "max_cost is $0.0100" in kernel.run(f"{head} --max-cost 0.01\n!cost 0.5\n!wait").text
    later = kernel.run(f"{head} --bg -o later\n!say It is late.")
    kernel.wait_for_text(later, "later is bound: ")  # behind the words, which stream in
    assert kernel.run("later").text == "'It is late. '"
    kernel.run(f"import os; os.environ['AGENTMAGIC_MODEL'] = 'acp:{sys.executable} {AGENT}'")
    by_name = kernel.run("%%agent -m openai:gpt-5.4\n!say By the environment.").text
    assert "AGENTMAGIC_MODEL is set: acp:…/" in by_name
    assert "By the environment." in by_name
    refused = kernel.run("%%agent --map df\nIs {item} large?")
    assert "is an agent with a loop of its own, which runs no map. Choose a model: -m." in refused.error
    assert sys.executable not in by_name + refused.error


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
