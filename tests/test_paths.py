"""Paths as people write them."""

from pathlib import Path

import pytest

from agentmagic.errors import UsageError
from agentmagic.paths import file_of, path_of


def test_a_path_stays_as_it_was_written_but_for_its_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert path_of("talk.jsonl") == Path("talk.jsonl")
    assert path_of("~/talk.jsonl") == tmp_path / "talk.jsonl"
    assert path_of(Path("of/nobody.jsonl")) == Path("of/nobody.jsonl")


@pytest.mark.parametrize("written", ["x" * 300, "~no_such_user_here/x", "a\0b", "\ud800"], ids=ascii)
def test_what_no_file_can_be_called_is_refused_in_a_line(written):
    with pytest.raises(UsageError, match=r"^'.+' cannot be used as a path: .+[^.]\. Write another one\.$") as refused:
        path_of(written)
    assert len(str(refused.value)) < 250
    str(refused.value).encode()


def test_an_empty_name_is_refused():
    with pytest.raises(UsageError, match="name of the file is empty"):
        path_of("")


def test_a_path_through_a_file_is_left_to_whoever_opens_it(tmp_path):
    (tmp_path / "file").touch()
    assert path_of(tmp_path / "file" / "below") == tmp_path / "file" / "below"


def test_a_folder_is_no_file_to_write(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        file_of(tmp_path)
    assert file_of(tmp_path / "new.md") == tmp_path / "new.md"
