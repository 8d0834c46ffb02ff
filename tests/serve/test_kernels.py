"""The files of served kernels: who may read them, which are found, and which kernel is meant."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agentmagic.__main__ import main
from agentmagic.errors import UsageError
from agentmagic.serve import kernels
from agentmagic.serve.bridge import relay
from agentmagic.serve.bridge.selection import choose, lines
from agentmagic.serve.kernels import ServedKernel

ROOT = Path(__file__).parents[2]
TOKEN = "t0ken-of-a-kernel"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path
    kernels.remove()


def kernel(notebook="a.ipynb", folder="/work", **changes):
    return replace(ServedKernel.here("http://127.0.0.1:1/mcp", TOKEN, notebook, folder), **changes)


def put(one, name="", mode=0o600, text=None):
    """Write a file as a kernel would, or not quite."""
    folder = kernels.folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or kernels._name(one.process, one.host))
    path.write_text(json.dumps(asdict(one)) if text is None else text)
    path.chmod(mode)
    return path


@pytest.mark.posix
def test_a_kernel_is_found_in_a_file_that_only_the_user_can_read_until_it_is_removed(monkeypatch):
    opened = []
    real = os.open

    def watched(path, flags, mode=0o777, **more):
        opened.append((flags & os.O_EXCL != 0, mode))
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    kernels.write(kernel("first.ipynb"))
    assert opened == [(True, 0o600)]
    kernels.write(one := kernel())
    (path,) = kernels.folder().iterdir()
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]
    assert kernels.find_all() == [one]
    assert TOKEN in path.read_text()
    assert TOKEN not in f"{one}{one!r}{lines([one])}"
    kernels.remove()
    kernels.remove()
    assert kernels.find_all() == []


@pytest.mark.posix
@pytest.mark.parametrize(
    ("end", "status", "is_left"),
    [
        ("", 0, False),
        ("child = os.fork(); child and (os.waitpid(child, 0), 1 / len(k.find_all()))", 0, False),
        ("os.kill(os.getpid(), 9)", -9, True),
    ],
)
def test_the_file_is_removed_by_its_own_process_as_it_ends_or_by_who_looks(end, status, is_left):
    code = (
        "import os; from agentmagic.serve import kernels as k\n"
        f"k.write(k.ServedKernel.here('http://127.0.0.1:1/mcp', '{TOKEN}', 'a.ipynb', '.')); {end}"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == status
    assert bool(list(kernels.folder().iterdir())) == is_left
    assert kernels.find_all() == []
    assert list(kernels.folder().iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "how", "is_found", "is_left"),
    [
        ({}, {}, True, True),
        ({"process_start": ""}, {}, True, True),
        ({"process_start": "1"}, {}, False, False),  # its process id is used again
        ({"process": 2**22 + 1}, {}, False, False),  # over the largest process id of Linux
        ({"host": "elsewhere"}, {}, True, True),  # the name of this machine has changed
        ({"host": "elsewhere", "process_start": "1"}, {}, False, True),
        ({"host": "elsewhere", "process_start": ""}, {}, False, True),
        ({"url": "http://example.org:1/mcp"}, {}, False, True),
        ({"url": "http://127.0.0.1.example.org:1/mcp"}, {}, False, True),
        ({"url": "http://[::1"}, {}, False, True),
        ({"token": "two\r\nlines"}, {}, False, True),
        ({"token": "t\n"}, {}, False, True),
        ({"process": "one"}, {}, False, True),
        ({"process": -1}, {}, False, True),
        ({"notebook": "n" * 501}, {}, False, True),
        pytest.param({}, {"mode": 0o640}, False, True, marks=pytest.mark.posix),
        ({}, {"name": "other.json"}, False, True),
        ({}, {"text": "{"}, False, True),
        ({}, {"text": "[" * 10_000}, False, True),
        ({}, {"text": " " * 20_000}, False, True),
    ],
)
def test_only_whole_private_files_of_living_processes_are_found(changes, how, is_found, is_left):
    path = put(kernel(**changes), **how)
    assert bool(kernels.find_all()) == is_found
    assert path.exists() == is_left


@pytest.mark.posix
def test_links_and_pipes_are_not_read(home):
    path = put(kernel())
    path.rename(home / "elsewhere.json")
    path.symlink_to(home / "elsewhere.json")
    os.mkfifo(path.with_name("1-pipe.json"), 0o600)
    assert kernels.find_all() == []


@pytest.mark.posix
def test_a_folder_that_others_can_read_is_closed_and_one_that_cannot_be_used_is_named(home):
    kernels.folder().mkdir(parents=True, mode=0o755)
    kernels.write(kernel())
    assert stat.S_IMODE(kernels.folder().stat().st_mode) == 0o700
    kernels.remove()
    kernels.folder().rmdir()
    kernels.folder().symlink_to(home)
    with pytest.raises(UsageError, match=r"cannot be written .* Make the folder yours"):
        kernels.write(kernel())


A, B = kernel("a.ipynb", "/work/one", process=1), kernel("b.ipynb", "/work/one/deep", process=2)
A_ELSEWHERE, UNNAMED = kernel("a.ipynb", "/else", process=3), kernel("", "/work", process=4)
NEWER = replace(A, process=5, begun=A.begun + 1)


@pytest.mark.parametrize(
    ("served", "notebook", "here", "expected"),
    [
        ([A], "", "/nowhere", A),
        ([A, B], "", "/work/one", A),
        ([A, B], "", "/work/one/deep/er", B),
        ([A, A_ELSEWHERE], "", "/work", A),
        ([A, NEWER], "", "/nowhere", NEWER),
        ([A, B], "b.ipynb", "/nowhere", B),
        ([A, B], "b", "/nowhere", B),
        ([A, B], "2", "/nowhere", B),
        ([A, UNNAMED], "4", "/nowhere", UNNAMED),
        ([A, A_ELSEWHERE], "/else/a.ipynb", "/work/one", A_ELSEWHERE),
        ([A, A_ELSEWHERE], "../else/a.ipynb", "/work", A_ELSEWHERE),
        ([A, A_ELSEWHERE], "a.ipynb", "/else", A_ELSEWHERE),
        ([], "", "/work", "No kernel is served. Run %agent serve in a notebook."),
        ([], "a.ipynb", "/work", "No kernel of a.ipynb is served. Run %agent serve in it."),
        ([B], "a.ipynb", "/work", "in it. These are served:\npython -m agentmagic bridge /work/one/deep/b.ipynb"),
        (
            [A, UNNAMED],
            "",
            "/nowhere",
            "one of them:\npython -m agentmagic bridge /work/one/a.ipynb\npython -m agentmagic bridge 4",
        ),
    ],
)
def test_the_kernel_that_is_meant_is_chosen(served, notebook, here, expected):
    if isinstance(expected, str):
        with pytest.raises(UsageError) as raised:
            choose(served, notebook, Path(here))
        assert expected in str(raised.value)
    else:
        assert choose(served, notebook, Path(here)) == expected


def test_a_line_of_the_list_hides_nothing_and_needs_no_valid_time():
    (line,) = lines([kernel("a\u202e\n.ipynb", "/work", process=7, begun=1e30)])
    assert line == "/work/a\\u202e\\n.ipynb  (process 7, since an unknown time)"


def test_the_command_lists_the_kernels(capsys):
    assert main(["bridge", "--list"]) == 0
    kernels.write(kernel())
    assert main(["bridge", "--list"]) == 0
    none, one = capsys.readouterr().out.splitlines()
    assert none == "No kernel is served. Run %agent serve in a notebook."
    assert one.startswith(f"/work/a.ipynb  (process {os.getpid()}, since 20")
    assert TOKEN not in one


def test_without_its_package_the_bridge_names_the_command(capsys, monkeypatch):
    monkeypatch.setattr(relay, "find_spec", lambda name: None)
    assert main(["bridge"]) == 2
    assert "The bridge needs a package that is not installed. Run: pip install" in capsys.readouterr().err
