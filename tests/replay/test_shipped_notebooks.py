"""The notebooks we ship end well in every runner, and replay without a key, another machine or a process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbval")
pytest.importorskip("papermill")

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = ROOT / "notebooks"
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", str(NOTEBOOKS / "nbval.cfg")]
RUNNERS = {
    "run": ["agentmagic", "run", "{notebook}", "--output", "{folder}/out.ipynb"],
    "nbval": ["pytest", "-q", "-p", "no:cacheprovider", *NBVAL, "{notebook}"],
    "nbconvert": ["nbconvert", "--to", "notebook", "--execute", "--output-dir", "{folder}", "{notebook}"],
    "papermill": ["papermill", "--cwd", "{notebook.parent}", "{notebook}", "{folder}/out.ipynb"],
}
OURS = re.compile(r"(?:OPENAI|GEMINI|GOOGLE|ANTHROPIC|AGENTMAGIC)_(?!CACHE$)")
"""How the variables begin that would change what a notebook does; the cache has the weights of the local model."""
RECORDED = sorted(path for path in NOTEBOOKS.rglob("*.ipynb") if path.with_suffix(".cassette.yaml").exists())
LOCAL = [path for path in RECORDED if path.parent == NOTEBOOKS and "%agent models local:" in path.read_text("utf-8")]
"""These ask the local model, unless a variable says that they are replayed."""
READY = [path for path in RECORDED if path not in LOCAL]
ALONE = [path for path in READY if path.parent.name == "lessons" and path.stem != "5_mcp"]
"""These need no other machine and no process, though their exercises run: the server of lesson 5 is a student's own."""
SEALED = str(Path(__file__).parent / "sealed")


def run(runner: str, notebook: Path, folder: Path, *, path: str = "", **variables: str) -> subprocess.CompletedProcess:
    """Run a notebook with a runner. `path` is put on the kernel's PYTHONPATH."""
    command = [word.format(notebook=notebook, folder=folder) for word in RUNNERS[runner]]
    kept = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    environment = kept | {"PYTHONPATH": os.pathsep.join(filter(None, (path, str(ROOT))))} | variables
    command = [sys.executable, "-m", *command]
    return subprocess.run(
        command, cwd=notebook.parent, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "notebook"),
    [(runner, path) for runner in ("run", "nbval") for path in READY]
    + [(runner, path) for runner in ("nbconvert", "papermill") for path in (READY[0], READY[-1])],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_shipped_notebook_ends_well_without_any_variable(notebook: Path, runner: str, tmp_path: Path):
    done = run(runner, notebook, tmp_path, path=SEALED if notebook in ALONE else "")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.local_model
@pytest.mark.parametrize("notebook", LOCAL, ids=lambda path: path.stem)
def test_a_notebook_of_the_local_model_ends_well_without_any_variable(notebook: Path, tmp_path: Path):
    done = run("run", notebook, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("notebook", [one for one in RECORDED if one.parent == NOTEBOOKS], ids=lambda path: path.stem)
def test_a_walkthrough_is_replayed_without_key_network_or_process(notebook: Path, tmp_path: Path):
    done = run("nbval", notebook, tmp_path, path=SEALED, AGENTMAGIC_REPLAY="replay")
    assert done.returncode == 0, done.stdout + done.stderr


REACHING = """import socket, subprocess
for reach in (lambda: socket.create_connection(("192.0.2.1", 80), 1), lambda: subprocess.run("ls")):
    try:
        reach()
    except PermissionError as error:
        assert "a replay " in str(error)
    else:
        raise AssertionError(reach)
"""


@pytest.mark.slow
def test_a_sealed_kernel_reaches_no_other_machine_and_starts_no_process(tmp_path: Path):
    path = tmp_path / "reaching.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(REACHING)]), path)
    done = run("nbconvert", path, tmp_path / "out", path=SEALED)
    assert done.returncode == 0, done.stderr
