"""What is kept of the view in the package is what its sources build."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
JS = ROOT / "js"
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


def test_the_style_loads_nothing_from_elsewhere():
    style = (STATIC / "view.css").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style


def test_the_lock_file_names_no_registry():
    lock = json.loads((JS / "package-lock.json").read_text(encoding="utf-8"))
    assert not any("resolved" in package for package in lock["packages"].values())
