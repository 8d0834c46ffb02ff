"""A notebook we ship, opened in JupyterLab and run by Run All from its cassette, in a sealed kernel."""

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser

from tests.browser.lab import ROOT, Lab
from tests.replay.test_shipped_notebooks import NOTEBOOKS

OPENED = NOTEBOOKS / "01_first_agent.ipynb"
"""Other runners run all of them, in tests/replay."""


@pytest.mark.browser
def test_run_all_runs_a_shipped_notebook_from_its_cassette(chrome: Browser, tmp_path: Path):
    sealed = os.pathsep.join([str(ROOT / "tests" / "replay" / "sealed"), str(ROOT)])
    with Lab(tmp_path, {"AGENTMAGIC_REPLAY": "replay", "PYTHONPATH": sealed}, browser=chrome) as lab:
        shutil.copytree(NOTEBOOKS, lab.folder, dirs_exist_ok=True)
        opened = lab.open(lab.folder / OPENED.name)
        opened.run_all()
        for index, cell in enumerate(nbformat.read(OPENED, as_version=4).cells):
            if cell.cell_type == "code":
                kinds = [output["output_type"] for output in opened.outputs(index)]
                may_fail = "raises-exception" in cell.metadata.get("tags", ())
                assert may_fail or "error" not in kinds, opened.text(index)
                assert bool(kinds) == bool(cell.outputs), cell.source
