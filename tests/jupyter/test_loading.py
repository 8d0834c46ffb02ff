"""Loading into a kernel and leaving it: what it costs, what it binds, what stays behind."""

import sys

import psutil
import pytest

from tests.jupyter.harness import ROOT, Kernel

FOREIGN = """
from IPython.core.magic import register_cell_magic
@register_cell_magic("agent")
def theirs(line, cell):
    print("theirs")
"""
CPU = """
import sys, time
before = time.process_time()
get_ipython().run_line_magic("load_ext", "agentmagic")
print(time.process_time() - before)
heavy = {"pydantic", "openai", "google.genai", "mcp", "markdown_it", "nh3", "jsonschema_rs", "genai_prices"}
print(sorted(heavy & set(sys.modules)))
"""


@pytest.fixture
def fresh(tmp_path):
    with Kernel(sys.executable, {"IPYTHONDIR": str(tmp_path / "ipython")}, tmp_path) as kernel:
        yield kernel


def test_loading_binds_the_default_session_and_imports_nothing_heavy(fresh):
    cpu, heavy = fresh.run(CPU).stream.splitlines()
    assert float(cpu) < 1  # the goal is 0.25 s, measured by the benchmarks
    assert heavy == "[]"
    assert fresh.value("agent").startswith("<Session default")


def test_the_sdk_of_a_provider_whose_key_is_set_is_imported_in_the_background(fresh):
    pytest.importorskip("openai")
    fresh.run("import os, sys, threading\nos.environ['OPENAI_API_KEY'] = 'test-key-of-nobody'\n%load_ext agentmagic")
    fresh.run("[one.join() for one in threading.enumerate() if one.name == 'agentmagic-preload']")
    assert fresh.value("[name in sys.modules for name in ('openai', 'google.genai')]") == "[True, False]"


def test_loading_again_keeps_the_session(fresh):
    fresh.run("%load_ext agentmagic\nfirst = agent")
    assert fresh.run("%reload_ext agentmagic").ok
    assert fresh.value("agent is first") == "True"


@pytest.mark.slow
def test_loading_again_keeps_the_servers_and_offers_each_function_once(fresh):
    server = ROOT / "tests" / "tools" / "mcp" / "servers" / "raw.py"
    fresh.run("%load_ext agentmagic\nimport sys\nfrom agentmagic import Agent, Session, tool")
    fresh.run(
        "from agentmagic.providers.scripted import ScriptedModel\nagent = Session(Agent(ScriptedModel(['one', 'two'])))"
    )
    fresh.run("@tool\ndef add(a: int) -> int:\n    return a")
    fresh.run(f"%mcp add raw {{sys.executable}} {server}")
    fresh.run("%%agent\nhello")
    fresh.run("%reload_ext agentmagic")
    assert "ready" in fresh.run("%mcp").stream
    cell = fresh.run("%%agent\nagain")
    assert "two" in cell.text
    assert "Two tools" not in cell.text


def test_an_agent_of_that_name_becomes_a_session_without_a_word(fresh):
    cell = fresh.run("from agentmagic import Agent\nagent = Agent('local:')\n%load_ext agentmagic")
    assert cell.stream == ""
    assert fresh.value("agent") == "<Session local:: 0 turns, 0 messages>"


def test_a_variable_of_that_name_stays(fresh):
    fresh.run("agent = {'mine': 1}")
    assert "agent is a dict of yours and stays" in fresh.run("%load_ext agentmagic").stream
    assert fresh.value("agent") == "{'mine': 1}"


@pytest.mark.slow
def test_another_extensions_magic_stays_and_ours_loads_under_another_name(fresh):
    fresh.run(FOREIGN)
    said = fresh.run("%load_ext agentmagic").stream
    assert "%%agent belongs to another extension and stays" in said
    assert fresh.run("%%agent\nhello").stream == "theirs\n"
    assert fresh.run(said.partition(": ")[2]).ok
    fresh.run("from agentmagic import Agent, Session\nfrom agentmagic.providers.scripted import ScriptedModel")
    fresh.run("agent = Session(Agent(ScriptedModel(['ours'])))")
    assert "ours" in fresh.run("%%magent\nhello").text
    assert "scripted:script" in fresh.run("%magent").stream
    assert fresh.run("%%agent\nhello").stream == "theirs\n"


def test_unloading_leaves_a_magic_that_another_extension_has_registered_since(fresh):
    fresh.run("%load_ext agentmagic")
    fresh.run(FOREIGN)
    assert fresh.run("%unload_ext agentmagic").ok
    assert fresh.run("%%agent\nhello").stream == "theirs\n"


def test_unloading_takes_the_magics_away_and_leaves_the_sessions(fresh):
    fresh.run("%load_ext agentmagic\n%unload_ext agentmagic")
    assert "not found" in fresh.run("%%agent\nhello").stream + fresh.run("%%agent\nhello").error
    assert fresh.value("type(agent).__name__") == "'Session'"


def test_unloading_leaves_nothing_that_runs_after_a_cell_and_reloading_takes_it_up_again(fresh):
    count = "len(get_ipython().events.callbacks['post_run_cell'])"
    before = int(fresh.value(count))
    fresh.run("%load_ext agentmagic\nagent.chat()")
    assert int(fresh.value(count)) == before + 3  # of the panel, of runs that code begins, and of %agent fix
    fresh.run("%unload_ext agentmagic")
    assert int(fresh.value(count)) == before
    fresh.run("%load_ext agentmagic")
    assert int(fresh.value(count)) == before + 3


@pytest.mark.slow
def test_nothing_is_left_running_after_the_kernel(tmp_path):
    server = ROOT / "tests" / "tools" / "mcp" / "servers" / "raw.py"
    with Kernel(sys.executable, {}, tmp_path) as kernel:
        kernel.run("%load_ext agentmagic\nimport sys")
        assert kernel.run(f"%mcp add raw {{sys.executable}} {server}").ok
        children = psutil.Process(kernel.pid).children(recursive=True)
        assert any(str(server) in " ".join(child.cmdline()) for child in children)
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert gone


def test_tab_completes_options_subcommands_sessions_models_and_variables(fresh):
    fresh.run("%load_ext agentmagic\nsales = 1\nother = type(agent)()")
    assert "--max-iterations" in fresh.complete("%%agent --m")
    assert fresh.complete("%%agent -m openai:") == ["openai:gpt-5.4"]
    assert fresh.complete("%%agent --permission d") == ["deny"]
    assert fresh.complete("%%agent o") == ["other"]
    assert fresh.complete("%agent hi") == ["history"]
    assert fresh.complete("%agent -s o") == ["other"]
    assert fresh.complete("%mcp rem") == ["remove"]
    assert fresh.complete("%%agent --permission=d") == ["--permission=deny"]
    fresh.run("import pathlib\npathlib.Path('.mcp.json').touch()\npathlib.Path('notes.txt').touch()")
    assert fresh.complete("%mcp load .m") == [".mcp.json"]
    assert sorted(fresh.complete("%mcp load ./")) == ["./.mcp.json", "./ipython/"]
    fresh.run("from agentmagic import tool\n@tool\ndef add(): ...\n@tool\ndef sub(): ...")
    assert fresh.complete("%%agent --tools add,s") == ["add,sub"]
    assert fresh.complete("%%agent\nHow are the {sal") == ["sales"]
    fresh.run("city = 'Rome'\ncity")
    assert fresh.complete("%%agent\nHow is {1 + city.isd") == ["isdecimal", "isdigit"]
    assert any(one.startswith("out[") for one in fresh.complete("%%agent\nHow is @out["))


def test_help_is_printed_and_nothing_is_asked(fresh):
    fresh.run("%load_ext agentmagic")
    assert "--keep-going" in fresh.run("%%agent --help\nhello").stream
    assert "history" in fresh.run("%agent --help").stream
    assert "COMMAND... | URL" in fresh.run("%mcp add --help").stream
    assert fresh.value("agent.messages") == "()"


def test_a_configuration_file_is_loaded(fresh, tmp_path):
    server = ROOT / "tests" / "tools" / "mcp" / "servers" / "raw.py"
    config = {"mcpServers": {"raw": {"command": sys.executable, "args": [str(server)], "allow": ["*"]}}}
    fresh.run(f"import json, pathlib\npathlib.Path('.mcp.json').write_text(json.dumps({config!r}))")
    fresh.run(f"%load_ext agentmagic\nimport os\nos.environ['XDG_DATA_HOME'] = {str(tmp_path)!r}")
    cell = fresh.send("%mcp load .mcp.json")
    assert "Without asking you, it may run: *" in fresh.asked(cell)["prompt"]
    fresh.type("y")
    fresh.finish(cell)
    assert "raw" in cell.stream
    assert "ready" in cell.stream
