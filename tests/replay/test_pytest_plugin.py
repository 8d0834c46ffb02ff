"""The pytest plugin: tests that are recorded once, and then need no model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_a_run_without_the_fixture_loads_nothing_of_agentmagic(tested, tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n    ours = [name for name in sys.modules if name.startswith('agentmagic.')]\n"
        "    assert ours == ['agentmagic.pytest_plugin']\n",
        encoding="utf-8",
    )
    done = tested()
    assert done.returncode == 0, done.stdout
