"""The offline kit: what it gathers is installed without a network."""

import subprocess
import sys
import zipfile

import pytest

from agentmagic import kit, lessons, wheels
from agentmagic.__main__ import main
from agentmagic.errors import MissingExtra, UsageError
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
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
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
    assert "the words of pip are above" in ended.stderr


def test_a_kit_holds_the_notebooks_and_the_weights_and_nothing_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(kit, "gather", lambda *_: "this machine")
    monkeypatch.setattr(downloads, "SIZE", 7)
    monkeypatch.setenv(downloads.WEIGHTS_VARIABLE, "")
    monkeypatch.setenv(downloads.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    left = ("notebooks/1.out.ipynb", "notebooks/.agentmagic/a.jsonl")
    for name in ("pyproject.toml", "docs/tutorials/lessons.md", "notebooks/1.ipynb", *left):
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / name).write_text("{}")
    downloads.cache().mkdir(parents=True)
    (downloads.cache() / downloads.FILE).write_bytes(b"weights")
    kit.pack(tmp_path / "kit", tmp_path / "clone", model=True)
    held = sorted(str(path.relative_to(tmp_path / "kit")) for path in (tmp_path / "kit").rglob("*") if path.is_file())
    assert held == ["README.md", "docs/tutorials/lessons.md", f"models/{downloads.FILE}", "notebooks/1.ipynb"]
    assert "python3 install.py" in (tmp_path / "kit" / "README.md").read_text()
    monkeypatch.setenv(downloads.CACHE, str(tmp_path / "another machine"))
    kit.place(str(tmp_path / "kit" / "models"))
    assert (downloads.cache() / downloads.FILE).read_bytes() == b"weights"


def test_a_kit_is_made_of_a_clone_only_and_the_command_names_its_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "room").mkdir()
    monkeypatch.chdir(tmp_path / "room")
    assert main(["kit", "there", "--source", "."]) == 2
    assert "is no clone of agentmagic" in capsys.readouterr().err
    assert list((tmp_path / "room").iterdir()) == []
    monkeypatch.setattr(kit, "pack", lambda *_, **__: "this machine")
    assert main(["kit", "."]) == 0
    said = capsys.readouterr().out
    assert "is for this machine" in said
    assert said.endswith(": python3 room/install.py\n")


def test_a_kit_of_an_installed_release_fetches_that_release_and_a_version_between_two_needs_a_clone(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "course" / "notebooks" / "lessons").mkdir(parents=True)
    (tmp_path / "course" / "notebooks" / "lessons" / "1.ipynb").write_text('{"cells": []}')
    fetched = []
    monkeypatch.setattr(lessons, "_PACKED", tmp_path / "course")
    monkeypatch.setattr(kit, "gather", lambda _, fetches, *__: fetched.append(fetches) or "this machine")
    monkeypatch.setattr(kit, "own_version", lambda: "0.4.2")
    assert main(["kit", str(tmp_path / "kit"), "--student"]) == 0
    assert fetched == ["agentmagic[demo]==0.4.2"]
    assert (tmp_path / "kit" / "notebooks" / "lessons" / "1.ipynb").is_file()
    monkeypatch.setattr(kit, "own_version", lambda: "0.4.3.dev7+gabc")
    assert main(["kit", str(tmp_path / "other")]) == 2
    assert "0.4.3.dev7+gabc is not a release, so pip cannot fetch it. Name a clone" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def make(folder, name, *requires, tag="py3-none-any"):
    """Make a wheel of a version 1.0."""
    about = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nProvides-Extra: fast\n"
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", metadata + "".join(f"Requires-Dist: {one}\n" for one in requires))
        wheel.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.mark.slow
def test_one_kit_serves_several_pythons_and_platforms_each_by_its_own_conditions(index, tmp_path, monkeypatch):
    pytest.importorskip("uv")
    make(
        index,
        "course",
        "console; sys_platform == 'win32'",
        "backport; python_version < '3.13'",
        "fastlib; extra == 'fast'",
    )
    make(index, "console", "deep")
    make(index, "backport")
    make(index, "deep")
    for tag in ("cp312-cp312-manylinux_2_17_x86_64", "cp313-cp313-win_amd64", "cp39-abi3-macosx_11_0_arm64"):
        make(index, "fastlib", tag=tag)
    targets = [wheels.Target("3.12", "linux"), wheels.Target("3.13", "windows"), wheels.Target("3.14", "macos")]
    made = kit.gather(tmp_path / "kit", "course", "course[fast]", targets)
    assert made == "Python 3.12 on linux, Python 3.13 on windows, Python 3.14 on macos"
    held = sorted(path.name for path in (tmp_path / "kit" / "wheels").iterdir())
    pure = [f"{name}-1.0-py3-none-any.whl" for name in ("backport", "console", "course", "deep")]
    tags = ("cp312-cp312-manylinux_2_17_x86_64", "cp313-cp313-win_amd64", "cp39-abi3-macosx_11_0_arm64")
    assert held == [*pure, *(f"fastlib-1.0-{tag}.whl" for tag in tags)]
    ended = subprocess.run(
        [sys.executable, tmp_path / "kit" / "install.py"], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert f"The packages are for {made}, and this is Python {sys.version_info[0]}." in ended.stderr
    assert not (tmp_path / "kit" / ".venv").exists()


def test_a_target_without_a_wheel_is_named(index, tmp_path, monkeypatch, capfd):
    pytest.importorskip("uv")
    make(index, "course", "fastlib")
    make(index, "fastlib", tag="cp312-cp312-win_amd64")
    with pytest.raises(UsageError, match=r"uv could not choose the packages for Python 3\.13 on windows"):
        kit.gather(tmp_path / "kit", "course", "course", [wheels.Target("3.13", "windows")])
    assert "fastlib" in capfd.readouterr().err


def test_a_kit_for_other_machines_names_the_command_that_installs_uv(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"needs a package that is not installed\. Run: pip install '.*\[kit\]'"):
        kit.gather(tmp_path / "kit", "course", "course", [wheels.Target("3.13", "windows")])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--platform", "amiga"], "There is no platform 'amiga'. Choose from linux"),
        (["--python-version", "3"], "'3' is no version of Python"),
        (["--python-version", "3.12; x"], "is no version of Python"),
    ],
)
def test_a_kit_for_a_machine_that_is_none_is_refused(tmp_path, capsys, options, said):
    assert main(["kit", str(tmp_path / "kit"), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "kit").exists()
