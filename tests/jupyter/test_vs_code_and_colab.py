"""A turn as VS Code and Colab send it: their requests are played here, their pages are not."""

import re
import sys
import tomllib
from types import ModuleType

import IPython
import pytest
from IPython.core.error import UsageError

import agentmagic
from agentmagic.jupyter import OLDEST_IPYTHON
from tests.jupyter.conftest import ACT
from tests.jupyter.harness import ROOT

VS_CODE = "vscode-notebook-cell:/c%3A/Users/me/sales.ipynb#W2sZmlsZQ%3D%3D"
"""VS Code names a cell by the address of its document: cellExecution.ts of vscode-jupyter."""
COLAB = {"colab": {"cell_id": "rY2kTq7x1"}}
"""Colab has metadata of its own: google/colab/_history.py of colabtools."""


@pytest.mark.parametrize("cell", [VS_CODE, COLAB], ids=["vs_code", "colab"])
def test_a_turn_is_html_that_is_updated_while_it_runs_and_asks_by_typing(kernel, cell):
    assert kernel.run(ACT).ok
    assert kernel.run('play(calls("act", what="a"), "It is **done**.", tools=[act])').ok
    asked, prompts = kernel.answer("%%agent\nDo it.", "y", cell=cell)
    assert asked.ok, asked.error
    (prompt,) = prompts
    why = "this page sends no clicks to a running cell|buttons in a running cell need ipykernel 7 or newer"
    assert re.match(rf"\(Type your answer: (?:{why})\.\)\nRun act \(notebook\)\?", prompt)
    assert asked.count("update_display_data") > 0
    page = asked.displays[-1]["text/html"]
    assert "acted: a" in page
    assert "<strong>done</strong>" in page
    assert "<script" not in page
    assert not any("application/vnd.jupyter.widget-view+json" in one for one in asked.displays)


@pytest.mark.parametrize(
    ("in_colab", "advice"),
    [
        (False, "this kernel runs 7.34.0. Run this, and restart the kernel: pip install --upgrade 'ipython>=8.30'"),
        (
            True,
            "the runtime of Colab is made for 7.34.0 and would not start with another one. Connect Colab to",
        ),
    ],
)
def test_an_ipython_that_is_too_old_is_told_in_one_line_and_colab_how_it_can_be_used(in_colab, advice, monkeypatch):
    monkeypatch.setattr(IPython, "version_info", (7, 34, 0, ""))
    monkeypatch.setattr(IPython, "__version__", "7.34.0")
    if in_colab:
        monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    with pytest.raises(UsageError) as refused:
        agentmagic.load_ipython_extension(None)
    assert f"agentmagic needs IPython 8.30 or newer, and {advice}" in str(refused.value)


def test_the_oldest_ipython_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"ipython>={OLDEST_IPYTHON}" in project["dependencies"]
