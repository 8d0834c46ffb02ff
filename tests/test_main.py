"""`python -m agentmagic run`: what it prints, where it writes, and how it ends."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from agentmagic.__main__ import main

ROOT = Path(__file__).parent.parent
NO_LIBGOMP = 'raise ImportError("libgomp.so.1: cannot open shared object file: No such file or directory")'


@pytest.fixture
def run(tmp_path):
    """Run a notebook with these cells, which lies in the folder `lessons`, from the folder above it."""
    (tmp_path / "lessons").mkdir()

    def run(*cells: str, **variables: str) -> subprocess.CompletedProcess[str]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbformat.write(notebook, tmp_path / "lessons" / "one.ipynb")
        return subprocess.run(
            [sys.executable, "-m", "agentmagic", "run", "lessons/one.ipynb"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_a_run_prints_its_cells_and_leaves_nothing_beside_the_notebook(run, tmp_path):
    done = run("6 * 7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[0]\n    6 * 7\n\n42\n" in done.stdout
    assert "Written with its outputs to one.out.ipynb" in done.stdout
    assert sorted(path.name for path in tmp_path.rglob("*.ipynb")) == ["one.ipynb", "one.out.ipynb"]
    assert nbformat.read(tmp_path / "one.out.ipynb", 4).cells[0].outputs[0].data == {"text/plain": "42"}


@pytest.mark.slow
def test_a_run_ends_with_an_error_at_a_turn_that_failed_and_says_why_once(run):
    done = run(
        "%load_ext agentmagic\nfrom agentmagic import Agent, RateLimited, ScriptedModel, Session\n"
        "failure = RateLimited('The quota is used up.')\nfailure.retryable = False\n"
        "agent = Session(Agent(ScriptedModel([failure])))",
        "%%agent\nhello",
        "print('never ' * 2)",
    )
    assert done.returncode == 1
    assert "A cell failed" in done.stderr
    assert "never never" not in done.stdout
    assert done.stdout.count("The quota is used up.") == 1 + 1  # in the script of the model, and in the turn
    assert done.stdout.rstrip().partition("Written")[0].rstrip().endswith("RateLimited")


RECORDED = """%load_ext agentmagic
%agent cassette one.cassette.yaml
from agentmagic import Agent, ScriptedModel
agent = Agent(ScriptedModel(['One.', 'Two.']))
---
%%agent
First?
---
%%agent
Second?"""


@pytest.mark.slow
def test_a_run_that_does_not_ask_for_a_recorded_turn_ends_with_an_error(run):
    cells = RECORDED.split("\n---\n")
    assert run(*cells, AGENTMAGIC_REPLAY="record").returncode == 0
    done = run(*cells[:-1], AGENTMAGIC_REPLAY="replay")
    assert (done.returncode, done.stderr.partition(". ")[0]) == (
        1,
        "\none.cassette.yaml: 1 recorded turn not asked for: 'Second?'",
    )


@pytest.mark.slow
def test_a_run_whose_kernel_dies_ends_with_an_error(run):
    done = run("import os; os._exit(3)")
    assert done.returncode == 1
    assert "The kernel died" in done.stderr


@pytest.mark.slow
def test_a_machine_that_cannot_run_the_local_model_is_told_before_the_download(run, tmp_path):
    (tmp_path / "xllamacpp.py").write_text(NO_LIBGOMP, encoding="utf-8")
    here, cache = os.pathsep.join([str(tmp_path), str(ROOT)]), str(tmp_path / "cache")
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "PIP_NO_INDEX": "1"}
    done = run("%agent models local:", PYTHONPATH=here, AGENTMAGIC_CACHE=cache, **nowhere)
    assert done.returncode == 2
    assert "libgomp.so.1, which this machine does not have" in done.stderr
    assert "apt-get install libgomp1" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_a_report_without_anyone_to_agree_runs_nothing_and_names_the_option(monkeypatch, capsys):
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert main(["cassette", "report", "one.ipynb"]) == 2
    assert "Give --yes to run it." in capsys.readouterr().err
