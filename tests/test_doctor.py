"""`python -m agentmagic doctor`: what is found, what is said of it, the exit status."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from agentmagic import doctor, errors
from agentmagic.__main__ import main
from agentmagic.errors import MissingExtra
from agentmagic.providers.local import downloads

KEY = "sk-of-nobody-0123456789abcdef"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of a project, without weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(downloads.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path


def without(monkeypatch, *names):
    """Take distributions away, as far as the doctor can see."""
    found = doctor.version

    def version(name):
        if name in names:
            raise PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(doctor, "version", version)


def said(words):
    return [one for one in doctor.examine() if words in one.about]


def test_a_machine_with_all_that_cells_need_passes(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("ok ", "note ")) for line in lines)
    assert any("packages that it needs." in line or "runs from a folder" in line for line in lines)
    assert any(f"Python {sys.version_info[0]}.{sys.version_info[1]}" in line for line in lines)


def test_packages_that_are_missing_fail_with_the_command(monkeypatch, capsys):
    without(monkeypatch, "ipykernel", "tenacity", "nh3")
    assert main(["doctor"]) == 1
    lines = [one for one in capsys.readouterr().out.splitlines() if one.startswith("missing")]
    pip = f"{sys.executable} -m pip install"  # of this Python, whatever `python` is
    assert "nh3, tenacity" in lines[0]
    assert [line.partition("To mend it: ")[2] for line in lines] == [f"{pip} nh3 tenacity", f"{pip} ipykernel"]


def test_a_key_is_found_and_never_shown(monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    main(["doctor"])
    shown = capsys.readouterr().out
    assert KEY not in shown
    assert "openai: has a key" in shown
    assert "The model of a cell that names none: openai:" in shown


def test_an_extra_and_weights_that_are_missing_come_with_their_command(monkeypatch):
    def require():
        raise MissingExtra("The local model", "local")

    monkeypatch.setattr("agentmagic.providers.local.llama.require", require)
    (finding,) = said("local: ")
    assert str(finding) == (
        "note     local: the package xllamacpp is not installed. "
        f"To mend it: {sys.executable} -m pip install 'agentmagic[local]'"
    )
    monkeypatch.setattr("agentmagic.providers.local.llama.require", lambda: None)
    (finding,) = said("its weights")
    assert (finding.health, doctor.FETCH in finding.command) == ("note", True)


def test_an_agentmagic_that_is_not_installed_is_installed_from_its_folder(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", missing)
    monkeypatch.setattr(errors, "distribution", missing)
    (finding,) = said("not installed in this Python")
    folder = Path(errors.__file__).parents[1]
    assert finding.command == f"{sys.executable} -m pip install -e {shlex.quote(f'{folder}[all]')}"
    assert f"pip install '{folder}[mcp]'" in str(MissingExtra("MCP servers", "mcp"))


def test_servers_of_the_project_are_read_and_not_started(place):
    servers = {"files": {"command": "no-such-program"}, "clock": {"command": sys.executable}, "odd": {"command": 5}}
    (place / ".vscode").mkdir()
    (place / ".vscode" / "mcp.json").write_text(json.dumps({"servers": servers}))
    (place / ".mcp.json").write_text("{")
    files, clock, odd = (said(words)[0] for words in ("The server files ", "The server clock ", "server 'odd' in "))
    assert [one.health for one in (files, clock, odd)] == ["note", "ok", "note"]
    assert "no program 'no-such-program'" in files.about
    assert str(Path(".vscode/mcp.json")) in clock.about.partition("%mcp load ")[2]
    assert said("this is not JSON")


def test_the_extension_for_jupyterlab_is_installed_from_a_folder_since_it_is_on_no_index(place, monkeypatch):
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: [str(place)])
    (finding,) = said("The JupyterLab extension")
    assert finding.command == f"{sys.executable} -m pip install --force-reinstall --no-deps {doctor.OWN_SOURCE}"
