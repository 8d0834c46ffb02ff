"""Some of the notebooks we ship, opened in JupyterLab and run by Run All from their cassettes, in sealed kernels."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser

from tests.browser.lab import ROOT, Lab
from tests.replay.test_shipped_notebooks import NOTEBOOKS

OPENED = [NOTEBOOKS / "01_first_agent.ipynb", NOTEBOOKS / "04_code.ipynb"]
"""One with a server and one with programs; other runners run all of them, in tests/replay."""

SEALED = os.pathsep.join([str(ROOT / "tests" / "replay" / "sealed"), str(ROOT)])


@pytest.fixture(scope="module")
def replaying(chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab without a key, whose kernels reach no other machine and start no process."""
    env = {"AGENTMAGIC_REPLAY": "replay", "PYTHONPATH": SEALED}
    with Lab(tmp_path_factory.mktemp("lab"), env, browser=chrome) as running:
        shutil.copytree(NOTEBOOKS, running.folder, dirs_exist_ok=True)
        yield running


@pytest.mark.browser
@pytest.mark.parametrize("notebook", OPENED, ids=lambda path: path.stem)
def test_run_all_runs_a_shipped_notebook_from_its_cassette(replaying: Lab, notebook: Path):
    cells = nbformat.read(notebook, as_version=4).cells
    opened = replaying.open(replaying.folder / notebook.relative_to(NOTEBOOKS))
    try:
        opened.run_all()
        for index, cell in enumerate(cells):
            if cell.cell_type == "code":
                kinds = [output["output_type"] for output in opened.outputs(index)]
                may_fail = "raises-exception" in cell.metadata.get("tags", ())
                assert may_fail or "error" not in kinds, opened.text(index)
                assert bool(kinds) == bool(cell.outputs), cell.source
    finally:
        opened.close()
