"""Tools on engines of ipyparallel on this machine, one of which is killed."""

import ipyparallel
import pytest

from agentmagic.tools.executors import MAY_HAVE_RUN
from tests.tools.clusters import call_and_end, kill, runs, session_with
from tests.turns import calls, texts

pytestmark = [pytest.mark.slow, pytest.mark.posix]


@pytest.fixture(scope="module")
def client():
    with ipyparallel.Cluster(n=2, log_level=40) as client:
        yield client


def test_a_tool_runs_on_an_engine_and_a_call_whose_engine_was_killed_is_in_doubt(client, tmp_path):
    executor = client.load_balanced_view().executor
    assert texts(session_with(executor, calls(("work", {"folder": str(tmp_path)}))).ask("Go.")) == ["1"]
    folder = tmp_path / "killed"
    folder.mkdir()
    result = call_and_end(executor, folder, kill)
    assert (result.text, result.in_doubt) == (MAY_HAVE_RUN.format("work", "EngineError"), True)
    assert len(runs(folder)) == 1
