"""`python -m agentmagic doctor`: what is found, what is said of it, the exit status."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentmagic import doctor, errors
from agentmagic.__main__ import main
from agentmagic.errors import MissingExtra
from agentmagic.providers.local import downloads

ROOT = Path(__file__).parents[1]
REQUIRED = [
    re.split(r"[^\w.-]", line)[0]
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    if not line.endswith("== 'emscripten'")
]
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


@pytest.mark.posix
def test_outside_agents_of_this_machine_are_told_and_others_are_not(place, monkeypatch):
    for name, says in (("codex-acp", ""), ("claude", ""), ("qwen", ""), ("node", "echo v20.1.0")):
        (place / name).write_text(f"#!/bin/sh\n{says}\n")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    claude, codex, qwen = said("acp:")
    assert str(claude) == (
        "note     acp:claude: claude is here, and its adapter claude-agent-acp is not installed. "
        "To mend it: npm install -g @agentclientprotocol/claude-agent-acp"
    )
    assert (codex.health, codex.about) == (
        "ok",
        f"acp:codex: {place / 'codex-acp'}. If it is not logged in, in a terminal: codex-acp login.",
    )
    assert (qwen.health, qwen.command) == ("note", "npm install -g @qwen-code/qwen-code")
    assert "22 or newer, and v20.1.0 was found" in qwen.about
    without(monkeypatch, "agent-client-protocol")
    assert said("acp:codex")[0].command.endswith("[acp]'")


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


# -- packages that are missing or broken ----------------------------------------------------------------

PURGED = """
import sys
from agentmagic import doctor

names = sys.argv[1:]
for name in names:
    for module in [one for one in sys.modules if one.partition(".")[0] in (name, "agentmagic")]:
        del sys.modules[module]
    kept, sys.modules[name] = sys.modules.get(name), None  # an import of it raises ModuleNotFoundError
    from agentmagic.__main__ import main
    print(f"== {name}")
    print("exit", main(["doctor"]))
    del sys.modules[name]
"""


def test_it_starts_without_any_other_package_and_names_them(tmp_path):
    begin = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    start = f"{begin}; from agentmagic.__main__ import main; sys.exit(main(['doctor']))"
    ran = subprocess.run(
        [sys.executable, "-S", "-I", "-c", start], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    rows = ran.stdout.splitlines()
    (packages,) = (row for row in rows if "Packages that agentmagic needs" in row)
    assert packages.partition("pip install ")[2].split() == REQUIRED
    assert any("ipykernel, which runs the cells" in row for row in rows)
    assert any(row.startswith("note     Providers and keys cannot be looked at: ModuleNotFoundError: ") for row in rows)
    assert any("can be written, for saved conversations" in row for row in rows)


def test_each_package_that_agentmagic_needs_has_the_module_that_is_looked_for():
    assert all(find_spec(doctor._MODULES.get(name, name.replace("-", "_"))) for name in REQUIRED)


SDKS = {
    "openai": "openai: has a key, but its SDK is not installed.",
    "google": "gemini: has a key, but its SDK is not installed.",
    "anthropic": "anthropic: has a key, but its SDK is not installed.",
    "xllamacpp": "local: the package xllamacpp is not installed.",
    "mcp": "MCP servers: the package mcp cannot be imported",
    "ipywidgets": "exit 0",  # anywidget, which needs it, is imported already
    "keyring": "exit 0",
}
JUPYTER = ("ipykernel", "jupyter_core", "jupyterlab", "jupyterlab_server")


@pytest.mark.slow
def test_a_package_that_cannot_be_imported_is_a_row_whichever_it_is(tmp_path):
    needed = [doctor._MODULES.get(one, one.replace("-", "_")) for one in REQUIRED]
    names = ["httpx2", *needed, *JUPYTER, *SDKS, "pydantic_core"]  # httpx2 before an SDK has imported it
    env = os.environ | {"PYTHONPATH": str(ROOT)} | dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), KEY)
    command = [sys.executable, "-c", PURGED, *names]
    env |= {"GEMINI_API_KEY": KEY}
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    told = dict(one.split("\n", 1) for one in ran.stdout.split("== ")[1:])
    assert list(told) == names
    assert [name for name, words in SDKS.items() if words not in told[name]] == []
    others = [name for name in names if name not in SDKS]
    assert [name for name in others if not re.search(rf"import of {name} |'{name}['.]", told[name])] == []
    assert [name for name in (*needed, "ipykernel") if "exit 1" not in told[name]] == []
    assert KEY not in ran.stdout


def test_a_package_that_breaks_when_it_is_imported_is_missing_and_comes_with_its_command(tmp_path, monkeypatch):
    (tmp_path / "nh3.py").write_text("raise RuntimeError('built for another Python\\nwith details')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nh3", raising=False)
    (finding,) = said("The package nh3")
    assert str(finding) == (
        "missing  The package nh3, which agentmagic needs, cannot be imported: RuntimeError: built for another Python. "
        f"To mend it: {sys.executable} -m pip install --force-reinstall nh3"
    )


def test_a_check_that_fails_is_a_row_and_the_others_go_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    findings = list(doctor.examine())
    (row,) = (one for one in findings if one.about.startswith("The folders that are written cannot be looked at: "))
    assert row.command == f"{sys.executable} -m pip install --force-reinstall platformdirs"
    assert any("for saved conversations" in one.about for one in findings)


# -- extensions that are disabled -----------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Folders of the user, of this Python and of the machine for JupyterLab, with the extension installed."""
    pytest.importorskip("jupyterlab")
    from jupyter_core import paths
    from jupyterlab_server import config

    folders = {name: tmp_path / name for name in ("user", "sys_prefix", "system", "app")}
    for module in (paths, config):
        monkeypatch.setattr(module, "SYSTEM_CONFIG_PATH", [str(folders["system"])])
    monkeypatch.setattr(paths, "ENV_CONFIG_PATH", [str(folders["sys_prefix"])])
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folders["user"]))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTERLAB_DIR", str(folders["app"]))
    for name in ("agentmagic", "anywidget", "@jupyter-widgets/jupyterlab-manager"):
        extension = tmp_path / "data" / "labextensions" / name
        extension.mkdir(parents=True)
        built = {"name": name, "version": "1", "jupyterlab": {"_build": {"load": "x.js"}}}
        (extension / "package.json").write_text(json.dumps(built))
    return folders


def disable(folder, listed):
    folder.mkdir(parents=True)
    (folder / "page_config.json").write_text(json.dumps({"disabledExtensions": listed}))


EXTENSION = "The JupyterLab extension: the panel beside the notebook"


@pytest.mark.parametrize(
    ("place", "listed", "about", "mend"),
    [
        ("user/labconfig", {"agentmagic": True}, EXTENSION, "enable --level=user agentmagic"),
        ("sys_prefix/labconfig", {"agentmagic:plugin": True}, EXTENSION, "enable --level=sys_prefix agentmagic:plugin"),
        ("system/labconfig", {"agentmagic": True}, EXTENSION, "enable --level=system agentmagic"),
        ("app/settings", ["agentmagic"], EXTENSION, "take agentmagic out of disabledExtensions in "),
        (
            "sys_prefix/labconfig",
            {"@jupyter-widgets/jupyterlab-manager": True},
            "Widgets in JupyterLab: buttons and the chat panel",
            "enable --level=sys_prefix @jupyter-widgets/jupyterlab-manager",
        ),
        (
            "user/labconfig/page_config.d",
            {"anywidget": True},
            "The front end of anywidget: buttons and the chat panel",
            "enable --level=user anywidget",
        ),
    ],
)
def test_an_extension_that_is_disabled_anywhere_is_a_note_with_the_command(lab, place, listed, about, mend):
    disable(lab[place.partition("/")[0]] / place.partition("/")[2], listed)
    (finding,) = said(about)
    assert (finding.health, finding.about) == ("note", f"{about}: disabled, {next(iter(listed))}.")
    assert mend in finding.command


def test_an_extension_that_another_one_disables_is_a_note_and_one_that_is_enabled_again_is_ok(lab, tmp_path):
    other = tmp_path / "data" / "labextensions" / "other"
    other.mkdir()
    built = {
        "name": "other",
        "version": "1",
        "jupyterlab": {"_build": {"load": "x.js"}, "disabledExtensions": ["anywidget"]},
    }
    (other / "package.json").write_text(json.dumps(built))
    disable(lab["user"] / "labconfig", {"agentmagic": False})
    assert [one.health for one in said("The front end of anywidget")] == ["note"]
    assert [one.health for one in said(EXTENSION)] == ["ok"]


# -- keys that cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (KEY, None),
        (f"'{KEY}'", "has quotes around it, which are sent as part of it"),
        (f'"{KEY}"', "has quotes around it, which are sent as part of it"),
        (f"\u201c{KEY}\u201d", "has quotes around it, which are sent as part of it"),
        (f"{KEY} ", "has a blank before or behind it"),
        (f" {KEY}", "has a blank before or behind it"),
        (f"{KEY}\n", "ends in a line break"),
        (f"{KEY}\r\n", "ends in a line break"),
        (f"{KEY}\nmore", "has a line break in it"),
        (f"{KEY} # mine", "has a blank in it"),
        (f"Bearer {KEY}", "begins with the word Bearer, which is no part of it"),
        (f"OPENAI_API_KEY={KEY}", "begins with the name of a variable"),
        (f"{KEY}\u00e9", "has characters in it that no key has"),
        ("sk-...", "stands for a key, and is not one"),
        ("<key>", "stands for a key, and is not one"),
        ("   ", "is blank"),
    ],
)
def test_a_key_that_cannot_be_is_named_with_how_to_mend_it_and_never_shown(monkeypatch, capsys, key, problem):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    main(["doctor"])
    shown = capsys.readouterr().out
    assert KEY not in shown
    rows = [line for line in shown.splitlines() if " openai: " in line]
    if problem is None:
        assert rows == ["ok       openai: has a key."]
        return
    mend = "To mend it: set OPENAI_API_KEY to the key alone"
    assert rows == [f"note     openai: the key in OPENAI_API_KEY {problem}. {mend}"]
    assert "The model of a cell that names none: openai:gpt-5.4, with the key that is named above." in shown
