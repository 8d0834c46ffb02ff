"""Which notebook a kernel runs, and what is said of its conversations."""

import pytest

from agentmagic.history.journal import FOLDER
from agentmagic.jupyter import formatting
from agentmagic.jupyter.notebook_file import SERVER_SAYS, VS_CODE_SAYS, SaveFolder, folder_of
from agentmagic.widgets.commands import relative_path


@pytest.fixture
def notebook(tmp_path):
    made = tmp_path / "sales 2.v1.ipynb"
    made.write_text("{}")
    return made


def test_the_server_names_the_notebook_in_the_environment(notebook, monkeypatch):
    monkeypatch.setenv(SERVER_SAYS, str(notebook))
    assert folder_of({}) == notebook.parent / FOLDER / "sales 2.v1"


def test_vs_code_names_it_in_a_variable_which_counts_first(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv(SERVER_SAYS, str(tmp_path / "of another server.ipynb"))
    assert folder_of({VS_CODE_SAYS: str(notebook)}) == notebook.parent / FOLDER / "sales 2.v1"


@pytest.mark.parametrize("said", ["", "sales.ipynb", "gone.ipynb", "talk.txt", "."])
def test_what_is_no_file_of_a_notebook_here_is_not_believed(said, tmp_path, monkeypatch):
    (tmp_path / "talk.txt").touch()
    (tmp_path / "sales.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SERVER_SAYS, said if said in ("", "sales.ipynb") else str(tmp_path / said))
    assert folder_of({VS_CODE_SAYS: 3}) is None


def test_a_session_has_its_file_in_the_folder(tmp_path):
    assert SaveFolder(tmp_path).file("agent") == tmp_path / "agent.jsonl"
    assert SaveFolder(None, "it is so").file("agent") is None


@pytest.mark.parametrize(("name", "file"), [("con", "con-"), ("Com1", "Com1-"), ("nul.1", "nul-.1"), ("cons", "cons")])
def test_a_session_may_be_called_what_windows_lets_no_file_be_called(name, file, tmp_path):
    assert SaveFolder(tmp_path).file(name) == tmp_path / f"{file}.jsonl"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 minute ago"),
        (3_599, "59 minutes ago"),
        (7_200, "2 hours ago"),
        (86_400, "1 day ago"),
        (864_000, "10 days ago"),
    ],
)
def test_an_age_is_said_in_its_largest_unit(seconds, said):
    assert formatting.ago(seconds) == said


def test_a_path_is_written_from_where_the_kernel_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert relative_path(tmp_path / "a" / "b.jsonl") == str((tmp_path / "a" / "b.jsonl").relative_to(tmp_path))
    assert relative_path(tmp_path.parent) == str(tmp_path.parent)
