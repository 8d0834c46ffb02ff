"""A server made by others in a notebook: added in a cell, used by the scripted model of another."""

import ast
import json

import pytest

from tests.tools.mcp.real import npm, of_npm
from tests.turns import calls

pytestmark = pytest.mark.slow  # the servers themselves are tested in tools/mcp

STATES = "[part.status for row in agent.messages if row.role == 'tool' for part in row.parts]"


@of_npm("everything")
def test_the_everything_server_shows_in_a_cell_all_that_it_sends(kernel, add, tmp_path):
    add("everything", *npm("everything"))
    kernel.run("%mcp allow everything")
    several = calls(
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 2, "b": 3}),
        "get-tiny-image",
        ("get-structured-content", {"location": "New York"}),
        ("trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
    )
    wrong = calls(("get-sum", {"a": "two", "b": 3}))
    (tmp_path / "script.json").write_text(json.dumps([several, wrong, "All done."]))
    cell = kernel.run(f"%%agent -m scripted:{tmp_path / 'script.json'}\nShow me everything.")
    assert cell.ok, cell.error
    assert "✓ echo (everything) message: hello" in cell.text
    assert "The sum of 2 and 3 is 5." in cell.text
    assert '"conditions": "Cloudy"' in cell.text
    assert "✓ trigger-long-running-operation (everything)" in cell.text
    assert "✗ get-sum (everything) a: two, b: 3" in cell.text
    assert "All done." in cell.text
    assert 'src="data:image/png;base64,' in cell.displays[-1]["text/html"]
    assert ast.literal_eval(kernel.value(STATES)) == ["ok"] * 5 + ["error"]
    assert "Cloudy" in kernel.value("dict(agent.messages[2].parts[3].structured)")
