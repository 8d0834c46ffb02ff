"""What is kept of the view in the package is what its sources build."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
JS = ROOT / "js"
LAB = JS / "lab"
EXTENSION = ROOT / "agentmagic" / "labextension"
STATIC = ROOT / "agentmagic" / "widgets" / "static"


@pytest.mark.slow
def test_the_built_view_is_up_to_date(tmp_path):
    if not shutil.which("node") or not (JS / "node_modules").is_dir():
        pytest.skip("the view cannot be built: it needs Node.js and npm ci in js/")
    subprocess.run(["node", "build.js", str(tmp_path)], cwd=JS, check=True, timeout=60)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in STATIC.iterdir()}
    assert built.keys() == kept.keys()
    assert [name for name in built if built[name] != kept[name]] == [], "run npm run build in js/"


@pytest.mark.slow
def test_the_built_extension_of_jupyterlab_is_up_to_date(tmp_path):
    if not shutil.which("npm") or not (LAB / "node_modules").is_dir():
        pytest.skip("the extension cannot be built: it needs Node.js and npm ci in js/lab/")
    sources, built = tmp_path / "js" / "lab", tmp_path / "agentmagic" / "labextension"
    # Whole, since the names of modules in the build are paths.
    shutil.copytree(LAB, sources, ignore=lambda folder, _: {"lib"} if folder == str(LAB) else (), symlinks=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=sources, check=True, timeout=100, capture_output=True)
    assert contents(built) == contents(EXTENSION), "run npm run build in js/lab/"


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_style_loads_nothing_from_elsewhere():
    style = (STATIC / "view.css").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("folder", [JS, LAB])
def test_the_lock_file_names_no_registry(folder):
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    assert not any("resolved" in package for package in lock["packages"].values())
