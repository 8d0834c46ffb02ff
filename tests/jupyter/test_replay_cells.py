"""`%agent cassette`, `record`, `replay` and `auto`: a notebook that is recorded, and runs again from its recording."""

import json
import shutil
import sys

import pytest

from tests.jupyter.harness import BATCH, RAW, Kernel

SETUP = "%load_ext agentmagic\nfrom agentmagic import Agent, ScriptedModel"
SAYS = "agent = Agent(ScriptedModel({}))"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    with Kernel(sys.executable, {"IPYTHONDIR": str(folder)}, folder) as made:
        yield made


@pytest.fixture
def kernel(shared, tmp_path):
    """A kernel in the folder of the test, as before `%load_ext`."""
    shared.run(f"%cd -q {tmp_path}")
    yield shared
    begin_again(shared)


def begin_again(kernel):
    """Forget variables, sessions and cassettes, as a restart does."""
    assert kernel.run("%unload_ext agentmagic\n%reset -f").ok


def test_a_notebook_is_recorded_replayed_and_forked(kernel):
    assert kernel.run(SETUP).ok
    assert "No cassette is named" in kernel.run("%agent cassette").stream
    needed = "Mode: record. It needs a cassette, and the kernel does not know which notebook it runs. Name the file: "
    assert kernel.run("%agent record").stream == f"{needed}%agent cassette FILE\n"
    assert kernel.run("%agent cassette x.cassette.yaml", **BATCH).stream.startswith("Cassette: x.cassette.yaml.")
    kernel.run(SAYS.format(["Hello there."]))
    recorded = kernel.run("%%agent\nSay hello.", **BATCH)
    assert recorded.ok

    assert kernel.run(f"{SAYS.format([])}\n%agent replay").stream == "Mode: replay.\n"
    replayed = kernel.run("%%agent\nSay hello.", **BATCH)
    assert replayed.ok
    assert "Hello there." in replayed.text
    assert replayed.displays == recorded.displays
    failed = kernel.run("%%agent\nSay goodbye.", **BATCH)
    assert not failed.ok
    assert failed.error.startswith("ReplayMismatch: Cell 'Say goodbye.', step 1 (nearest recording: 'Say hello.')")
    _, first, second = kernel.run("%agent replay --report").stream.splitlines()
    assert "same" in first
    assert "order" in second

    kernel.run(f"{SAYS.format(['Bye.'])}\n%agent auto")
    assert "Hello there." in kernel.run("%%agent\nSay hello.", **BATCH).text
    assert "Bye." in kernel.run("%%agent\nSay goodbye.", **BATCH).text
    assert kernel.run("%agent live").stream == "Mode: live.\n"


FOUND = {
    "searches": [{"query": "jit", "found": [{"url": "https://x.org/", "title": "X"}]}],
    "text": "It has one.",
    "citations": [{"of": "It has one", "url": "https://x.org/", "title": "X"}],
}


def test_record_alone_records_beside_a_notebook_that_the_kernel_knows(tmp_path):
    notebook = tmp_path / "sales.ipynb"
    notebook.write_text("{}")
    known = {"JPY_SESSION_NAME": str(notebook), "IPYTHONDIR": str(tmp_path / "ipython")}
    with Kernel(sys.executable, known, tmp_path) as kernel:
        kernel.run(f"{SETUP}\n{SAYS.format(['Hello there.'])}")
        assert "records to NOTEBOOK.cassette.yaml" in kernel.run("%agent cassette").stream
        assert kernel.run("%agent record").stream == "Mode: record. Cassette: sales.cassette.yaml.\n"
        assert kernel.run("%%agent\nSay hello.").ok
    assert "Hello there." in (tmp_path / "sales.cassette.yaml").read_text()
    with Kernel(sys.executable, known, tmp_path) as kernel:
        kernel.run(f"{SETUP}\n{SAYS.format([])}")
        assert kernel.run("%agent replay").stream == "Mode: replay. Cassette: sales.cassette.yaml.\n"
        assert "Hello there." in kernel.run("%%agent\nSay hello.").text
        kernel.run("%agent cassette other.cassette.yaml")
        assert kernel.run("%agent record").stream == "Mode: record.\n"


def test_a_cell_with_the_web_is_recorded_and_replayed(kernel):
    kernel.run(f"{SETUP}\n{SAYS.format([FOUND])}\n%agent cassette x.cassette.yaml\n%agent record")
    recorded = kernel.run("%%agent --web --permission allow\nnews?", **BATCH)
    assert "It has one. [1]" in recorded.text
    for mode in ("replay", "replay-model"):
        kernel.run(f"%agent reset\n{SAYS.format([])}\n%agent {mode}")
        replayed = kernel.run("%%agent --web --permission allow\nnews?", **BATCH)
        assert (replayed.ok, replayed.displays) == (True, recorded.displays)


def test_a_session_that_code_makes_uses_the_cassette_and_mode_that_the_notebook_has_named(kernel, tmp_path):
    setup = f"{SETUP}, Session\n%agent cassette x.cassette.yaml\n%agent {{}}"
    made = "agent = Session(Agent(ScriptedModel({})))\nother = Session(Agent(ScriptedModel({})))"
    unnamed = "print([Session(Agent(ScriptedModel({}))).ask('Say hello.').final_text for _ in range(2)])"
    first = "third = Session(Agent(ScriptedModel({}))); third.ask('Say hello.').final_text"
    cells = ("%%agent\nSay hello.", "%%agent other\nSay hello.", "%agent ask Say bye.", unnamed, first)
    outputs = []
    for mode, scripts, more in (("record", (["Hello.", "Bye."], ["Good day."]), ["Hi."]), ("replay", ([], []), [])):
        kernel.restart()  # sessions without a name are counted from here on
        kernel.run(f"%cd -q {tmp_path}\n{setup.format(mode)}")
        kernel.run(made.format(*scripts))
        results = [kernel.run(cell.format(more), **BATCH) for cell in cells]
        assert [one.error for one in results] == [""] * 5
        assert "['Hi.', 'Hi.']" in results[3].stream
        outputs.append([one.displays for one in results])
    assert outputs[0] == outputs[1]
    written = (tmp_path / "x.cassette.yaml").read_text()
    assert written.count("turn: ") == 6
    assert all(f"session: {name}" in written for name in ("other", "unnamed 1", "unnamed 2", "third"))


PROGRAM = """
import math as m
import os
os.mkdir("mark")
sales = pd.DataFrame({"product": ["Desk", "Lamp, small"], "units": [3, 4], "share": [0.1, 1 / 3]})
total, rates = sales["units"].sum(), {"NO": [tools.rate(country="NO"), None]}
api_key = "sk-proj-" + "abcdefghijklmnop0123456789"
seen.append(total.item())
del gone
print("units", total)
"""
LOOK = "print(sales.to_csv(), type(total), total, rates, seen, m.__name__, dict(sales.dtypes), 'gone' in globals())"
PREPARED = f"""{SETUP}, NotebookTools, Policy, Rule
import pandas as pd
%agent cassette x.cassette.yaml
%agent {{}}
policy = Policy([Rule('allow', 'run_python')])
seen, gone = [], 1
def rate(country: str) -> float:
    os.mkdir(f'asked for {{{{country}}}}')
    return 0.088
agent = Agent(ScriptedModel({{}}), tools=[NotebookTools(), rate], permission=policy)"""


def test_a_program_is_not_run_in_a_replay_and_its_variables_return(kernel, tmp_path):
    script = [{"calls": [{"name": "run_python", "arguments": {"code": PROGRAM}}]}, "There are 7."]
    outputs, looks = [], []
    for mode, steps in (("record", script), ("replay", [])):
        assert kernel.run(PREPARED.format(mode, steps)).ok
        cell = kernel.run("%%agent\nCount.", **BATCH)
        assert not cell.error
        looks.append(kernel.run(LOOK).stream)
        outputs.append(cell.text.partition("Changed in the notebook")[0])
        assert "+ total: int64" in cell.text
        assert ("asked" in cell.text, "0.088" in cell.text) == (False, True)
        for folder in ("mark", "asked for NO"):
            assert (tmp_path / folder).exists() == (mode == "record")
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
        assert ("sk-proj-abcdefghijklmnop" in kernel.run("api_key").text) == (mode == "record")
        assert kernel.run("%agent undo").ok
        assert kernel.run("'sales' in globals(), seen, gone").text == "(False, [], 1)"
        begin_again(kernel)
    assert looks[0] == looks[1] != ""
    assert outputs[0] == outputs[1]
    assert "sk-proj-abcdefghijklmnop" not in (tmp_path / "x.cassette.yaml").read_text()


def test_a_program_whose_changes_are_not_all_on_the_tape_fails_in_a_replay_and_runs_again_in_replay_model(
    kernel, tmp_path
):
    program = "double = lambda x: 2 * x"
    script = [{"calls": [{"name": "run_python", "arguments": {"code": program}}]}, "Done."]
    for mode, steps in (("record", script), ("replay", []), ("replay model", [])):
        kernel.run("%reset_selective -f double")
        assert kernel.run(PREPARED.format(mode, steps)).ok
        cell = kernel.run("%%agent\nDefine it.", **BATCH)
        missing = "run_python changed double (function <lambda>), which is not in x.cassette.yaml."
        assert (missing in cell.error) == (mode == "replay")
        assert ("A cassette cannot keep double (function <lambda>)." in cell.text) == (mode == "record")
        assert kernel.value("'double' in globals()") == str(mode != "replay")
        begin_again(kernel)


def test_no_command_starts_a_server_in_a_replay(kernel, tmp_path):
    mark = tmp_path / "started"
    start = tmp_path / "start.py"
    start.write_text(
        f"import runpy\nopen({str(mark)!r}, 'w').close()\nrunpy.run_path({str(RAW[-1])!r}, run_name='__main__')"
    )
    entry = {"command": sys.executable, "args": ["-S", str(start)]}
    (tmp_path / "more.json").write_text(json.dumps({"mcpServers": {"more": entry}}))
    add = f"%mcp add raw {sys.executable} -S {start}\n%mcp allow raw"
    for mode, steps in (("record", ["Hello."]), ("replay", [])):
        kernel.run(f"{SETUP}\n{SAYS.format(steps)}\n%agent cassette x.cassette.yaml\n%agent {mode}")
        added = kernel.run(add)
        assert added.ok
        assert ("raw is not started: a replay needs no server." in added.stream) == (mode == "replay")
        for command in ("%mcp restart raw", "%mcp load more.json", "%mcp approve more"):
            mark.unlink(missing_ok=True)
            ran = kernel.run(command, **BATCH)
            assert ran.ok
            assert mark.exists() == (mode == "record" and "load" not in command), command
        assert not kernel.run("%%agent\nSay hello.", **BATCH).error
        begin_again(kernel)
