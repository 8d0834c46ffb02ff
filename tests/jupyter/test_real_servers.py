"""Servers made by others in a notebook: added in a cell, used by the scripted model of another."""

import ast
import json
import sys

import psutil
import pytest

from tests.jupyter.conftest import SETUP
from tests.jupyter.harness import BATCH, Kernel
from tests.tools.mcp import real
from tests.tools.mcp.calling import are_gone
from tests.tools.mcp.real import npm, of_npm, of_pypi, pypi
from tests.turns import calls

pytestmark = pytest.mark.slow

RESULTS = (
    "[(part.name, part.server, part.status) for row in agent.messages if row.role == 'tool' for part in row.parts]"
)
TEXTS = "[part.text for row in agent.messages if row.role == 'tool' for part in row.parts]"


@pytest.fixture
def cells(tmp_path):
    """Write a script; return the first line of the cells that it answers."""

    def write(*steps):
        file = tmp_path / "script.json"
        file.write_text(json.dumps(steps))
        return f"%%agent -m scripted:{file}\n"

    return write


@pytest.fixture
def load(kernel, tmp_path, own_approvals):
    """Load a project's file of servers, each approved by typing; they are gone after the test."""
    added = []

    def connect(**servers):
        added.extend(servers)
        (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
        cell = kernel.send(f"%mcp load {tmp_path / '.mcp.json'}")
        for name in servers:
            assert f"Start the MCP server {name!r}" in kernel.asked(cell)["prompt"]
            kernel.type("y")
        assert kernel.finish(cell).ok
        return cell.stream

    yield connect
    for name in added:
        kernel.run(f"%mcp remove {name}")


def value(kernel, expression):
    return ast.literal_eval(kernel.value(expression))


# -- from npm ----------------------------------------------------------------------------------------


@of_npm("everything")
def test_the_everything_server_shows_in_a_cell_all_that_it_sends(kernel, add, cells):
    add("everything", *npm("everything"))
    kernel.run("%mcp allow everything")
    agent = cells(
        calls(
            ("echo", {"message": "hello"}),
            ("get-sum", {"a": 2, "b": 3}),
            "get-tiny-image",
            ("get-structured-content", {"location": "New York"}),
            ("trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
        ),
        calls(("get-sum", {"a": "two", "b": 3})),
        "All done.",
    )
    cell = kernel.run(f"{agent}Show me everything.")
    assert cell.ok, cell.error
    assert "✓ echo (everything) message: hello" in cell.text
    assert "The sum of 2 and 3 is 5." in cell.text
    assert '"conditions": "Cloudy"' in cell.text
    assert "✓ trigger-long-running-operation (everything)" in cell.text
    assert "✗ get-sum (everything) a: two, b: 3" in cell.text
    assert "All done." in cell.text
    assert 'src="data:image/png;base64,' in cell.displays[-1]["text/html"]
    assert [status for _, _, status in value(kernel, RESULTS)] == ["ok"] * 5 + ["error"]
    assert value(kernel, "dict(agent.messages[2].parts[3].structured)")["conditions"] == "Cloudy"


@of_npm("everything")
def test_the_everything_server_asks_the_person_and_the_model_of_a_cell(kernel, add, cells):
    add("everything", *npm("everything"))
    kernel.run("%mcp allow everything")
    think = calls(("trigger-sampling-request", {"prompt": "why?", "maxTokens": 20}))
    agent = cells(think, "forty-two", calls("trigger-elicitation-request"), "All done.")
    cell = kernel.send(f"{agent}Ask.")
    assert "wants your model to answer" in kernel.asked(cell)["prompt"]
    kernel.type("y")
    assert "everything" in kernel.asked(cell)["prompt"]
    kernel.type("-")
    assert "All done." in kernel.finish(cell).text
    sampled, declined = value(kernel, TEXTS)
    assert "forty-two" in sampled
    assert "declined" in declined


@of_npm("filesystem")
def test_the_filesystem_server_writes_what_a_person_approves(kernel, load, cells, tmp_path):
    files = real.entry(npm("filesystem", "${workspaceFolder}"), allow=["read_*"])
    assert "ready" in load(files=files)
    note = str(tmp_path.resolve() / "note.txt")
    agent = cells(
        calls(("write_file", {"path": note, "content": "grüße\n"})),
        calls(("read_text_file", {"path": note}), ("read_text_file", {"path": "/etc/hostname"})),
        calls(("write_file", {"path": note, "content": "bye"})),
        "All done.",
    )
    cell = kernel.send(f"{agent}Write a note.")
    assert "write_file" in kernel.asked(cell)["prompt"]
    kernel.type("y")
    kernel.asked(cell)
    kernel.type("n")
    assert kernel.finish(cell).ok, cell.error
    assert (tmp_path / "note.txt").read_text() == "grüße\n"
    assert "✓ write_file (files)" in cell.text
    assert "✗ read_text_file (files) path: /etc/hostname" in cell.text
    assert "outside allowed directories" in cell.text
    assert [status for _, _, status in value(kernel, RESULTS)] == ["ok", "ok", "error", "denied"]
    assert value(kernel, TEXTS)[1] == "grüße\n"


# -- from PyPI ---------------------------------------------------------------------------------------


@of_pypi("mcp-server-time")
def test_the_time_server_tells_the_time_in_a_cell(kernel, add, cells):
    add("clock", *pypi("mcp-server-time"))
    noon = {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    step = calls(("convert_time", noon), ("get_current_time", {"timezone": "Nowhere/Atlantis"}))
    agent = cells(step, "I may not say.", step, "It is 21:00.")
    cell = kernel.run(f"{agent}What time is it in Tokyo?", **BATCH)
    assert "⊘ convert_time (clock)" in cell.text  # no one is there to ask
    kernel.run("%mcp allow clock convert_time get_*")
    cell = kernel.run(f"{agent}What time is it in Tokyo?")
    assert "✓ convert_time (clock)" in cell.text
    assert "21:00:00+09:00" in cell.text
    assert "✗ get_current_time (clock) timezone: Nowhere/Atlantis" in cell.text
    assert cell.text.index("✗ get_current_time") < cell.text.index("It is 21:00.")


# -- the kernel ends ---------------------------------------------------------------------------------


@of_npm("everything", "filesystem")
@of_pypi("mcp-server-time")
def test_no_real_server_outlives_a_killed_kernel(tmp_path):
    commands = {
        "everything": npm("everything"),
        "files": npm("filesystem", tmp_path),
        "clock": pypi("mcp-server-time"),
    }
    with Kernel(sys.executable, {"IPYTHONDIR": str(tmp_path)}, tmp_path) as kernel:
        assert kernel.run(SETUP).ok
        for name, command in commands.items():
            assert "ready" in kernel.run(f"%mcp add {name} {' '.join(command)}").stream
        found = [child.pid for child in psutil.Process(kernel.pid).children(recursive=True)]
        assert len(found) >= len(commands)
        kernel.kill()
        assert are_gone(found)
