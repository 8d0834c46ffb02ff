"""The notebooks we ship run from their cassettes: without a key, another machine or a process, in every runner."""

import os
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
    "nbval": ["pytest", "-q", "-p", "no:cacheprovider", *NBVAL, "{notebook}"],
    "nbconvert": ["nbconvert", "--to", "notebook", "--execute", "--output-dir", "{folder}", "{notebook}"],
    "papermill": ["papermill", "--cwd", "{notebook.parent}", "{notebook}", "{folder}/out.ipynb"],
}
KEYS = ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY", "AGENTMAGIC_MODEL")
RECORDED = sorted(path for path in NOTEBOOKS.rglob("*.ipynb") if path.with_suffix(".cassette.yaml").exists())


def run(runner: str, notebook: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a notebook from its cassette with a runner whose kernel is sealed."""
    command = [word.format(notebook=notebook, folder=folder) for word in RUNNERS[runner]]
    kept = {name: value for name, value in os.environ.items() if name not in KEYS}
    path = os.pathsep.join([str(Path(__file__).parent / "sealed"), str(ROOT)])
    environment = kept | {"AGENTMAGIC_REPLAY": "replay", "PYTHONPATH": path} | variables
    command = [sys.executable, "-m", *command]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "notebook"),
    [("nbval", path) for path in RECORDED] + [("nbconvert", RECORDED[0]), ("papermill", RECORDED[0])],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_shipped_notebook_is_replayed_without_key_network_or_process(notebook: Path, runner: str, tmp_path: Path):
    done = run(runner, notebook, tmp_path)
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
    done = run("nbconvert", path, tmp_path / "out")
    assert done.returncode == 0, done.stderr
