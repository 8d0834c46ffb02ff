"""Tools on a cluster of Dask on this machine, whose workers are killed."""

import pytest
from dask import config
from distributed import Client, LocalCluster

from agentmagic import Agent, ScriptedModel, Session, tool
from agentmagic.tools.dask_calls import MAY_REPEAT
from agentmagic.tools.executors import MAY_HAVE_RUN
from tests.tools.clusters import call_and_end, kill, runs, session_with
from tests.turns import calls, notices, play, results, texts

pytestmark = [pytest.mark.slow, pytest.mark.posix]


@pytest.fixture(scope="module", params=[0, 3])
def failures(request):
    return request.param


@pytest.fixture(scope="module")
def whole(failures):
    with (
        config.set({"distributed.scheduler.allowed-failures": failures}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def client(whole):
    whole.wait_for_workers(2)  # another one takes the place of one that was killed
    return whole


def test_a_tool_runs_on_the_workers_once_a_call_also_if_calls_are_equal(client, failures, tmp_path):
    step = calls(*[("work", {"folder": str(tmp_path)})] * 2)
    session = session_with(client.get_executor(pure=False), step, repeatable=failures > 0)
    assert set(texts(session.ask("Go."))) <= {"1", "2"}  # the second one may begin before the first one counts
    assert len(runs(tmp_path)) == 2
    assert set(runs(tmp_path)) <= set(client.run(lambda: __import__("os").getpid()).values())


def test_a_scheduler_that_runs_calls_again_is_refused(client, failures, tmp_path):
    session = session_with(client.get_executor(pure=False), calls(("work", {"folder": str(tmp_path)})))
    (result,) = results(session.ask("Go."))
    assert (result.text, runs(tmp_path) == []) == (
        ("1", False) if not failures else (MAY_REPEAT.format("work", 3), True)
    )


def test_a_call_whose_worker_was_killed_is_in_doubt_or_runs_again_if_it_is_repeatable(client, failures, tmp_path):
    result = call_and_end(client.get_executor(pure=False), tmp_path, kill, repeatable=failures > 0)
    expected = (MAY_HAVE_RUN.format("work", "KilledWorker"), True, 1) if not failures else ("2", False, 2)
    assert (result.text, result.in_doubt, len(runs(tmp_path))) == expected


def test_what_a_client_does_by_itself_is_no_change_of_the_notebook(client):
    variables = {"__name__": "__main__", "client": client, "cluster": client.cluster, "rows": [1]}
    exec("def work() -> int: rows.append(client.submit(len, 'ab', pure=False).result()); return len(rows)", variables)  # noqa: S102
    model = ScriptedModel([calls("work"), "Done."])
    outcome = Session(Agent(model, tools=[variables["work"]]), namespace=variables).ask("Go.")
    changed = {change.name for change in outcome.changes} - {"random numbers of Python"}  # a client draws some at times
    assert (texts(outcome), changed) == (["2"], {"rows"})


def test_a_function_reads_data_that_was_scattered_once(client):
    namespace = {"__name__": "__main__", "table": client.scatter([(1, 2, 3)])[0]}
    exec("def total() -> int: return sum(table)", namespace)  # noqa: S102  (a cell)
    total = tool(executor=client.get_executor(pure=False), repeatable=True)(namespace["total"])
    outcome = play(calls("total"), "Done.", tools=[total])
    assert (texts(outcome), notices(outcome)) == (["6"], [])


def test_a_call_whose_worker_is_retired_is_not_carried_out_again_unless_it_is_repeatable(client, failures, tmp_path):
    def retire(_process):
        client.retire_workers([worker for worker, tasks in client.processing().items() if tasks])

    result = call_and_end(client.get_executor(pure=False), tmp_path, retire, repeatable=failures > 0)
    doubt = (MAY_HAVE_RUN.format("work", "Dask gave the call to another one"), True, 1)
    assert (result.text, result.in_doubt, len(runs(tmp_path))) == (("2", False, 2) if failures else doubt)
