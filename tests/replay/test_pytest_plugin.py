"""The pytest plugin: tests that are recorded once, and then need no model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentmagic import Agent, ScriptedModel, Session

ROOT = Path(__file__).parent.parent.parent

TEST = """
from agentmagic import Agent
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import check


def test_weather(agentmagic_session, pytestconfig):
    records = pytestconfig.getoption("--agentmagic-replay") == "record"
    for city in ("Oslo", "Bergen"):
        session = agentmagic_session(Agent(ScriptedModel([f"It is 17 degrees in {city}."] * records)))
        session.ask("How warm is it?")
        check(session).answered(city)
"""


CELLS = (
    """%load_ext agentmagic
%agent cassette x.cassette.yaml
from agentmagic import Agent, ScriptedModel
agent = Agent(ScriptedModel([]))""",
    "%%agent\nFirst?",
    "%%agent\nSecond?",
)


MAPS = (
    """%load_ext agentmagic
%agent cassette x.cassette.yaml
import os
from agentmagic import Agent, ScriptedModel

records = os.environ["AGENTMAGIC_REPLAY"] == "record"
agent = Agent(ScriptedModel(["One.", "Two.", "Three.", "Four."] * records))
rows = [{"review": "good"}, {"review": "bad"}]""",
    "%%agent --map rows -o moods\nWhich mood? {review}",
    "moods",
    "agent.map(rows, 'How short is {review}?')",
)


@pytest.fixture
def tested(tmp_path):
    """Run pytest with the plugin in a folder with one test."""
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "agentmagic.pytest_plugin", "-p", "no:cacheprovider", *options]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.mark.slow
def test_a_test_is_recorded_once_and_then_replayed_without_a_model(tested, tmp_path):
    assert "AGENTMAGIC_REPLAY=record" in tested().stdout
    assert tested("--agentmagic-replay=record").returncode == 0
    assert [path.name for path in tmp_path.rglob("*.yaml")] == ["test_weather.cassette.yaml"]
    replayed = tested()
    assert replayed.returncode == 0, replayed.stdout
    test = tmp_path / "test_it.py"
    test.write_text(TEST.replace("How warm", "How cold"), encoding="utf-8")
    assert tested("--agentmagic-replay=record").returncode == 0
    changed = tested()
    assert changed.returncode == 0, changed.stdout
    test.write_text(TEST.replace('("Oslo", "Bergen")', '("Oslo",)').replace("How warm", "How cold"), encoding="utf-8")
    shorter = tested()
    assert shorter.returncode == 1
    assert "test_weather.cassette.yaml: 1 recorded turn not asked for: 'How cold is it?'" in shorter.stdout


@pytest.mark.slow
def test_a_run_of_a_notebook_that_does_not_ask_for_a_recorded_turn_fails(tested, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbval")
    session = Session(Agent(ScriptedModel(["One.", "Two."])), cassette=tmp_path / "x.cassette.yaml", replay="record")
    session.deck.name = "agent"
    for prompt in ("First?", "Second?"):
        session.ask(prompt)
    session.close()
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "replay")
    for count, status in ((3, 0), (2, 1)):
        cells = map(nbformat.v4.new_code_cell, CELLS[:count])
        nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), tmp_path / "x.ipynb")
        done = tested("--nbval-lax", "--nbval-current-env", "x.ipynb")
        assert done.returncode == status, done.stdout
        assert ("x.cassette.yaml: 1 recorded turn not asked for: 'Second?'" in done.stdout) == bool(status)


@pytest.mark.slow
def test_a_run_without_the_fixture_loads_nothing_of_agentmagic(tested, tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n    ours = [name for name in sys.modules if name.startswith('agentmagic.')]\n"
        "    assert ours == ['agentmagic.pytest_plugin']\n",
        encoding="utf-8",
    )
    done = tested()
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("changed", [("First?", "Which is the first?"), ("First?", "Hello!"), ("Second?", "Bye.")])
@pytest.mark.parametrize("mode", ["record", "auto"])
def test_nbval_passes_after_a_changed_prompt_was_recorded(tested, tmp_path, monkeypatch, changed, mode):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("nbval")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [source.replace("ScriptedModel([])", "ScriptedModel(['One.', 'Two.'])") for source in CELLS]
    for way, sources in (("record", cells), (mode, [source.replace(*changed) for source in cells])):
        monkeypatch.setenv("AGENTMAGIC_REPLAY", way)
        notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
        nbclient.NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}, kernel_name="python3").execute()
    nbformat.write(notebook, tmp_path / "x.ipynb")
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "replay")
    done = tested("--nbval-lax", "--nbval-current-env", "x.ipynb")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_nbval_passes_a_notebook_with_recorded_maps_whose_model_has_no_answers(tested, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("nbval")
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, MAPS)))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for mode in ("record", "replay"):
        monkeypatch.setenv("AGENTMAGIC_REPLAY", mode)
        nbclient.NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}, kernel_name="python3").execute()
    nbformat.write(notebook, tmp_path / "x.ipynb")
    done = tested("--nbval", "--nbval-current-env", "x.ipynb")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    assert (tmp_path / "x.cassette.yaml").read_text(encoding="utf-8").count("\nmap: 2\n") == 2
