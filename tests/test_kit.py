"""The offline kit: what it gathers is installed without a network."""

import subprocess
import sys
import zipfile

import pytest

from agentmagic import kit
from agentmagic.__main__ import main
from agentmagic.providers.local import downloads

TOY = {
    "toy.py": "SAID = 'installed'",
    "toy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n",
    "toy-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "toy-1.0.dist-info/RECORD": "",
}


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels, which stands in for the network."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "toy-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in TOY.items():
            wheel.writestr(name, text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.slow
def test_what_a_kit_gathers_is_installed_without_an_index_or_said_to_be_for_other_machines(
    index, tmp_path, monkeypatch
):
    folder = tmp_path / "kit"
    folder.mkdir()
    kit.gather(folder, "toy", "toy")
    monkeypatch.delenv("PIP_FIND_LINKS")
    moved = folder.rename(tmp_path / "moved here")
    subprocess.run([sys.executable, moved / "install.py"], check=True, timeout=100)
    python = moved / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    said = subprocess.run([python, "-c", "import toy; print(toy.SAID)"], check=True, capture_output=True, text=True)
    assert said.stdout == "installed\n"
    (moved / "wheels" / "toy-1.0-py3-none-any.whl").unlink()  # as if the packages were for another Python
    ended = subprocess.run([sys.executable, moved / "install.py"], check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "The packages are for Python 3." in ended.stderr


def test_a_kit_holds_the_notebooks_and_the_weights_and_nothing_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(kit, "gather", lambda *_: None)
    monkeypatch.setattr(downloads, "SIZE", 7)
    monkeypatch.setenv(downloads.GIVEN, "")
    monkeypatch.setenv(downloads.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    left = ("notebooks/1.out.ipynb", "notebooks/.agentmagic/a.jsonl")
    for name in ("pyproject.toml", "docs/lessons.md", "notebooks/1.ipynb", *left):
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / name).write_text("{}")
    downloads.cache().mkdir(parents=True)
    (downloads.cache() / downloads.FILE).write_bytes(b"weights")
    kit.pack(tmp_path / "kit", tmp_path / "clone", model=True)
    held = sorted(str(path.relative_to(tmp_path / "kit")) for path in (tmp_path / "kit").rglob("*") if path.is_file())
    assert held == ["README.md", "docs/lessons.md", f"models/{downloads.FILE}", "notebooks/1.ipynb"]
    assert "python3 install.py" in (tmp_path / "kit" / "README.md").read_text()
    monkeypatch.setenv(downloads.CACHE, str(tmp_path / "another machine"))
    kit.place(str(tmp_path / "kit" / "models"))
    assert (downloads.cache() / downloads.FILE).read_bytes() == b"weights"


def test_a_kit_is_made_in_a_clone_only_and_the_command_names_its_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "room").mkdir()
    monkeypatch.chdir(tmp_path / "room")
    assert main(["kit", "there"]) == 2
    assert "is no clone of agentmagic" in capsys.readouterr().err
    assert list((tmp_path / "room").iterdir()) == []
    monkeypatch.setattr(kit, "pack", lambda *_, **__: None)
    assert main(["kit", "."]) == 0
    assert capsys.readouterr().out.endswith(": python3 room/install.py\n")
