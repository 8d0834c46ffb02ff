"""`%agent serve` in each front end, with a client in another process; tests/browser/test_served.py has the cards."""

import os
import sys

import pytest

from tests.jupyter.harness import BATCH, CONSOLE, LAB, Kernel
from tests.serve.outside import Outside

pytest.importorskip("fastmcp")

SETUP = "%load_ext agentmagic\nfrom agentmagic import Agent, Policy, Rule, ScriptedModel, Session"
ALLOW = 'agent = Session(Agent(ScriptedModel({}), permission=Policy([Rule("allow", "run_python")])))'
LINES = ("claude mcp add notebook -- ", "codex mcp add notebook -- ", "copilot mcp add notebook -- ", "code --add-mcp ")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served").resolve()
    with Kernel(sys.executable, {"IPYTHONDIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}, folder) as made:
        made.folder = folder
        yield made


@pytest.fixture
def kernel(shared):
    """A kernel that serves nothing yet."""
    assert shared.run(SETUP).ok
    yield shared
    shared.run("%agent serve stop")
    assert shared.run("%unload_ext agentmagic\n%reset -f").ok


@pytest.fixture
def join(shared):
    joined = []

    def start(name):
        env = {**os.environ, "XDG_STATE_HOME": str(shared.folder / "state"), "NO_PROXY": "127.0.0.1"}
        joined.append(Outside(name, shared.folder, env))
        return joined[-1]

    yield start
    for client in joined:
        client.leave()


def files(kernel):
    return list((kernel.folder / "state").rglob("*.json"))


def test_each_front_end_says_how_clients_join_with_a_line_of_its_own_for_each(kernel):
    in_lab = kernel.run("%agent serve", **LAB).displays[0]
    in_console = kernel.run("%agent serve", **CONSOLE).stream
    for text in (in_lab["text/plain"], in_console):
        assert all(sum(line.startswith(start) for line in text.splitlines()) == 1 for start in LINES)
        assert text.splitlines()[0].endswith("waits for your yes.")
        assert "http:" not in text
    assert in_lab["text/html"].count("user-select:all") == 2 * 6
    assert "%agent serve --wait" in in_console


@pytest.mark.slow
def test_a_batch_run_serves_and_says_no_place_of_this_machine_and_that_no_one_approves(kernel, join):
    cell = kernel.run("%agent serve", **BATCH)
    assert cell.ok
    assert cell.stream == "The notebook is served over MCP. No one is here to approve: what no rule allows is denied.\n"
    assert cell.displays == []
    is_error, text = join("codex").call("run_python", code="1")
    assert is_error
    assert "no one is there to give it" in text


@pytest.mark.slow
def test_no_page_is_open_so_a_call_that_asks_is_denied_and_one_that_only_looks_is_not(kernel, join):
    cell = kernel.run("%agent serve", **LAB)
    client = join("codex")
    is_error, text = client.call("run_python", code="1")
    assert is_error
    assert 'Rule("allow", "run_python")' in text
    assert "open the notebook" in text
    assert client.call("list_variables")[0] is False
    kernel.wait_for_text(cell, "Called by codex.")
    kernel.wait_for_text(cell, "codex: list_variables")


@pytest.mark.slow
def test_a_console_types_its_answers_while_the_cell_waits_which_an_interrupt_ends(kernel, join):
    cell = kernel.send("%agent serve --wait", **CONSOLE)
    kernel.wait_for_text(cell, "waits for calls until it is interrupted.")
    client = join("codex")
    for typed, ends in (("y", "3"), ("n no sums", "the user denied it and said: no sums"), ("a", "3"), (None, "3")):
        client.start("run_python", code="1 + 2")
        if typed is not None:
            assert kernel.asked(cell)["prompt"].startswith("codex: ")
            kernel.type(typed)
        assert ends in client.result()[1]
    assert kernel.interrupted(cell) < 5
    assert cell.ok, cell.error
    assert "codex: run_python" in cell.stream
    assert cell.stream.endswith("The notebook is no longer served.\n")
    assert files(kernel) == []


def test_serving_again_moves_the_calls_to_the_cell_and_stopping_ends_what_is_under_way(kernel, join):
    assert kernel.run(ALLOW.format([])).ok
    first = kernel.run("%agent serve", **LAB)
    client = join("codex")
    assert client.call("run_python", code="print('one')")[0] is False
    kernel.wait_for_text(first, "Called by codex.")
    second = kernel.run("%agent serve", **LAB)
    assert client.call("run_python", code="print('two')")[0] is False
    kernel.wait_for_text(second, "two")
    assert "one" in str(first.displays)
    assert "two" not in str(first.displays)
    assert "The calls are shown in another cell now" in str(second.messages)
    stop = kernel.run("%agent serve stop", **LAB)
    assert stop.stream == "The notebook is no longer served. Clients that called: codex.\n"
    assert "The notebook is no longer served. Called by codex." in str(stop.messages)
    assert files(kernel) == []


@pytest.mark.slow
def test_a_restart_leaves_no_file(kernel):
    assert kernel.run("%agent serve", **LAB).ok
    assert len(files(kernel)) == 1
    kernel.restart(now=False)
    assert files(kernel) == []
    assert kernel.run(SETUP).ok


@pytest.mark.slow
def test_calls_are_recorded_and_a_batch_run_plays_them_with_the_same_cards_and_variables_and_no_server(kernel, join):
    cells = ("%agent serve", "%%agent\nHow much is n?", "%agent serve stop", "print(n)")
    mode = "%agent cassette x.cassette.yaml\n%agent {}"
    assert kernel.run(mode.format("record")).ok
    assert kernel.run(ALLOW.format(["It is 4."])).ok
    recorded = [kernel.run(cells[0], **LAB)]
    with join("codex") as client:
        assert client.call("run_python", code="n = 4; print('n is', n)") == (False, "Printed:\nn is 4")
        assert client.call("list_variables")[0] is False
    recorded += [kernel.run(cell, **LAB) for cell in cells[1:]]
    assert recorded[-1].stream == "4\n"

    outputs = []
    for _ in range(2):
        kernel.restart(now=False)
        assert kernel.run(f"{SETUP}\n{mode.format('replay')}").ok
        assert kernel.run(ALLOW.format([])).ok
        played = [kernel.run(cell, **BATCH) for cell in cells]
        assert [one.error for one in played] == [""] * 4
        assert played[-1].stream == "4\n"
        assert files(kernel) == []
        outputs.append([(one.stream, one.displays) for one in played])
    assert outputs[0] == outputs[1]
    said, shown = outputs[0][0]
    assert said == "The recorded calls of clients are played. Nothing is served in a replay.\n"
    text = shown[0]["text/plain"]
    assert "codex: run_python (notebook)" in text
    assert "n is 4" in text
    assert "codex: list_variables (notebook)" in text
    assert "It is 4." in str(outputs[0][1])
