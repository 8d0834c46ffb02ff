"""A turn as VS Code and Colab send it: their requests are played here, their pages are not."""

import pytest

from tests.jupyter.conftest import ACT

VS_CODE = {"cell": "vscode-notebook-cell:/c%3A/Users/me/sales.ipynb#W2sZmlsZQ%3D%3D"}
"""VS Code names a cell by the address of its document."""
COLAB = {"cell": False}
"""Colab names no cell, and loads its package into the kernel."""
LOADED = """
import sys, types
colab, output = types.ModuleType("google.colab"), types.ModuleType("google.colab.output")
output.asked = 0
def enable_custom_widget_manager():
    output.asked += 1
output.enable_custom_widget_manager = enable_custom_widget_manager
sys.modules |= {"google.colab": colab, "google.colab.output": output}
"""
GONE = """
import sys
for name in ("google.colab", "google.colab.output"):
    sys.modules.pop(name)
"""


@pytest.fixture
def colab(kernel):
    """The kernel as Colab has it: with its package, whose output module fetches the widgets of others."""
    assert kernel.run(LOADED).ok
    yield kernel
    assert kernel.run(GONE).ok


def turn(kernel, front_end):
    """Ask in a cell of this front end, approve by typing, and return what the cell shows at its end."""
    assert kernel.run(ACT).ok
    assert kernel.run('play(calls("act", what="a"), "It is **done**.", tools=[act])').ok
    cell, prompts = kernel.answer("%%agent\nDo it.", "y", **front_end)
    assert cell.ok, cell.error
    (prompt,) = prompts
    assert prompt.startswith("(Type your answer: this page sends no clicks to a running cell.)\nRun act (notebook)?")
    return cell


def check_html(cell):
    """Check that the cell was updated while it ran, and ends as HTML that needs neither widget nor script."""
    assert any(one["msg_type"] == "update_display_data" for one in cell.messages)
    page = cell.displays[-1]["text/html"]
    assert "acted: a" in page
    assert "<strong>done</strong>" in page
    assert "<script" not in page
    assert not any("application/vnd.jupyter.widget-view+json" in one for one in cell.displays)


def test_vs_code_shows_html_that_is_updated_and_takes_typed_answers(kernel):
    check_html(turn(kernel, VS_CODE))


def test_colab_shows_html_that_is_updated_and_is_asked_for_its_widget_manager(colab):
    check_html(turn(colab, COLAB))
    assert int(colab.value("output.asked")) > 0
