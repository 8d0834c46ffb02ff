"""Which notebook a kernel runs, and what is said of its conversations."""

import json

import pytest

from agentmagic.classroom import SERVER_VARIABLE, VS_CODE_VARIABLE, notebook_of
from agentmagic.history.journal import FOLDER
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.notebook.file import (
    RECORD,
    UNKNOWN,
    KnownNotebook,
    SaveFolder,
)


class Shell:
    """The shell of a kernel that carries out a cell, a line of a console, a program's cell, or a page's message."""

    kernel = None
    request = "cell"

    def __init__(self):
        self.user_ns = {}
        self.cell = "cell-1"

    def get_parent(self):
        return {
            "header": {"msg_type": "comm_msg" if self.request == "page" else "execute_request"},
            "content": {"allow_stdin": self.request in ("cell", "console")},
            "metadata": {"cellId": self.cell} if self.request == "cell" else {},
        }


@pytest.fixture
def notebook(tmp_path):
    made = tmp_path / "sales 2.v1.ipynb"
    made.write_text("{}")
    return made


def write(path, *ids):
    """A notebook of cells with these ids, as it is saved."""
    path.write_text(json.dumps({"cells": [{"id": name, "source": f"# {name}"} for name in ids]}))
    return path


def kernel(monkeypatch, path, running="cell-1"):
    """What a new kernel knows of its notebook, whose path the server told."""
    monkeypatch.setenv(SERVER_VARIABLE, str(path))
    known = KnownNotebook(Shell())
    known._shell.cell = running
    return known


def talk(known):
    """Hold a conversation: its folder, with one file."""
    folder = known.place().folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.jsonl").touch()
    known.remember()
    return folder


@pytest.mark.parametrize(
    ("requests", "saved"),
    [
        ("cell page", True),
        ("cell console page", True),
        ("page", False),  # no notebook was seen
        ("found page", True),  # a page that has found the kernel shows one
        ("found program", False),
        ("cell console", False),
        ("cell program", False),  # a program may run the cells of a kernel that a person has used
    ],
)
def test_a_click_in_the_page_saves_as_the_cells_of_its_notebook_do(requests, saved, notebook, monkeypatch):
    known = kernel(monkeypatch, write(notebook, "cell-1"))
    known.attended = "found" in requests
    for known._shell.request in requests.removeprefix("found ").split():
        place = known.place()
    assert (place.folder is not None) is saved


def test_a_click_finds_a_renamed_notebook_by_the_cell_that_ran_last(notebook, monkeypatch):
    known = kernel(monkeypatch, notebook.with_name("Untitled.ipynb"))
    assert known.place().folder is None  # the cell is not saved yet
    known._shell.request = "page"
    write(notebook, "cell-1")
    assert known.place().notebook == notebook


def test_the_server_names_the_notebook_in_the_environment_and_vs_code_in_a_variable_which_counts_first(
    notebook, tmp_path, monkeypatch
):
    monkeypatch.setenv(SERVER_VARIABLE, str(notebook))
    assert notebook_of({}) == notebook
    monkeypatch.setenv(SERVER_VARIABLE, str(tmp_path / "of another server.ipynb"))
    assert notebook_of({VS_CODE_VARIABLE: str(notebook)}) == notebook


@pytest.mark.parametrize("said", ["", "sales.ipynb", "gone.ipynb", "talk.txt", "."])
def test_what_is_no_file_of_a_notebook_here_is_not_believed(said, tmp_path, monkeypatch):
    (tmp_path / "talk.txt").touch()
    (tmp_path / "sales.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    known = kernel(monkeypatch, said if said in ("", "sales.ipynb") else tmp_path / said)
    known._shell.user_ns[VS_CODE_VARIABLE] = 3
    assert known.place() == SaveFolder(None, UNKNOWN)


def test_a_session_has_its_file_in_the_folder(notebook, tmp_path, monkeypatch):
    folder = kernel(monkeypatch, notebook).place()
    assert folder.file("agent") == tmp_path / FOLDER / "sales 2.v1" / "agent.jsonl"
    assert SaveFolder(None, "it is so").file("agent") is None
    for name, file in (("con", "con-"), ("nul.1", "nul-.1"), ("cons", "cons")):  # Windows has no file `con`
        assert SaveFolder(tmp_path).file(name) == tmp_path / f"{file}.jsonl"


def test_a_renamed_notebook_keeps_its_conversations_and_its_old_name_is_free(tmp_path, monkeypatch):
    old = write(tmp_path / "old.ipynb", "cell-1", "cell-2")
    talk(kernel(monkeypatch, old))
    new = old.rename(tmp_path / "new.ipynb")
    write(old, "cell-8", "cell-9")
    assert kernel(monkeypatch, old, "cell-8").place().folder == tmp_path / FOLDER / "old.1"
    assert kernel(monkeypatch, new).place().folder == tmp_path / FOLDER / "new"
    assert (tmp_path / FOLDER / "new" / "agent.jsonl").exists()
    assert kernel(monkeypatch, old, "cell-8").place().folder == tmp_path / FOLDER / "old"


def test_a_new_notebook_that_is_not_saved_yet_is_offered_nothing_of_the_old_one(tmp_path, monkeypatch):
    old = write(tmp_path / "old.ipynb")
    talk(kernel(monkeypatch, old))
    number = old.stat().st_ino
    assert kernel(monkeypatch, old).place().folder == tmp_path / FOLDER / "old"
    assert kernel(monkeypatch, old, "another").place().folder == tmp_path / FOLDER / "old.1"
    assert old.stat().st_ino == number  # as a file system may give it to the next file


def test_a_notebook_is_followed_while_its_kernel_runs(tmp_path, monkeypatch):
    old = write(tmp_path / "old.ipynb", "cell-1")
    known = kernel(monkeypatch, old)
    folder = talk(known)
    known._shell.cell = "cell-2"
    new = old.rename(tmp_path / "new.ipynb")
    assert known.place().notebook == new
    write(old, "cell-9")
    assert known.place() == SaveFolder(folder, notebook=new)  # where its journals are open
    known.remember()
    restarted = kernel(monkeypatch, old)  # the server tells a restarted kernel the old name
    assert restarted.place() == SaveFolder(tmp_path / FOLDER / "new", notebook=new)


@pytest.mark.parametrize(("before", "after"), [(".", "sub"), ("one", "other")])
def test_a_notebook_that_was_moved_takes_its_conversations_along(before, after, tmp_path, monkeypatch):
    for name in (before, after):
        (tmp_path / name).mkdir(exist_ok=True)
    old = write(tmp_path / before / "old.ipynb", "cell-1", "cell-2")
    talk(kernel(monkeypatch, old))
    new = old.rename(tmp_path / after / "new.ipynb")
    assert kernel(monkeypatch, new).place().folder == tmp_path / after / FOLDER / "new"
    assert (tmp_path / after / FOLDER / "new" / "agent.jsonl").exists()
    assert not (tmp_path / before / FOLDER / "old").exists()


def test_a_copy_is_another_notebook_even_if_the_original_is_deleted(tmp_path, monkeypatch):
    first = write(tmp_path / "first.ipynb", "cell-1", "cell-2")
    folder = talk(kernel(monkeypatch, first))
    (tmp_path / "sub").mkdir()
    elsewhere = write(tmp_path / "sub" / "first.ipynb", "cell-1", "cell-2")
    copy = write(tmp_path / "first-Copy1.ipynb", "cell-1", "cell-2")
    assert kernel(monkeypatch, elsewhere).place().folder == tmp_path / "sub" / FOLDER / "first"
    assert kernel(monkeypatch, copy).place().folder == tmp_path / FOLDER / "first-Copy1"
    renamed = first.rename(tmp_path / "renamed.ipynb")
    assert kernel(monkeypatch, renamed).place().folder == tmp_path / FOLDER / "renamed"
    assert not folder.exists()
    renamed.unlink()
    assert kernel(monkeypatch, elsewhere).place().folder == tmp_path / "sub" / FOLDER / "first"
    assert (tmp_path / FOLDER / "renamed" / "agent.jsonl").exists()


def test_of_two_notebooks_with_the_same_cells_none_is_taken_for_the_missing_one(tmp_path, monkeypatch):
    known = kernel(monkeypatch, write(tmp_path / "old.ipynb", "cell-1"))
    talk(known)
    for name in ("one.ipynb", "two.ipynb"):
        write(tmp_path / name, "cell-1")
    (tmp_path / "old.ipynb").unlink()
    assert known.place().notebook is None


def test_cells_without_ids_are_known_by_their_source(tmp_path, monkeypatch):
    source = ["import pandas as pd\n", "sales = pd.read_csv('sales-of-2025.csv')"]
    old = tmp_path / "old.ipynb"
    old.write_text(json.dumps({"cells": [{"source": "%load_ext agentmagic"}, {"source": source}]}))
    talk(kernel(monkeypatch, old, "of-this-page"))
    new = tmp_path / "new.ipynb"
    new.write_text(old.read_text())  # another file, as an editor may write it
    old.write_text(json.dumps({"cells": [{"source": "%load_ext agentmagic"}, {"source": "a" * 50}]}))
    assert kernel(monkeypatch, new, "of-another-page").place().folder == tmp_path / FOLDER / "new"


@pytest.mark.parametrize("record", ["", "[]", "[" * 100_000, '{"name": "x", "number": 0, "cells": {}}'])
def test_a_folder_that_says_nothing_of_its_notebook_is_that_of_its_name(record, tmp_path, monkeypatch):
    (tmp_path / FOLDER / "old").mkdir(parents=True)
    if record:
        (tmp_path / FOLDER / "old" / RECORD).write_text(record)
    known = kernel(monkeypatch, write(tmp_path / "old.ipynb", "cell-1"))
    assert known.place().folder == tmp_path / FOLDER / "old"
    known.remember()
    write(tmp_path / "old.ipynb", "cell-2")
    assert kernel(monkeypatch, tmp_path / "old.ipynb", "cell-2").place().folder == tmp_path / FOLDER / "old.1"


def test_an_age_is_said_in_its_largest_unit():
    ages = (-5, "just now"), (59, "just now"), (60, "1 minute ago"), (7_199, "1 hour ago"), (864_000, "10 days ago")
    assert [(seconds, formatting.ago(seconds)) for seconds, _ in ages] == [*ages]
