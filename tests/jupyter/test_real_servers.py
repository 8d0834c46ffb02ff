"""Servers made by others in a notebook: added in a cell, used by the scripted model of another."""

import ast
import json
import sys

import psutil
import pytest

from tests.jupyter.conftest import SETUP
from tests.jupyter.harness import Kernel
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


# -- from PyPI ---------------------------------------------------------------------------------------


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
