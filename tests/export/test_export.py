import json
import os

import pytest

from agentmagic.errors import UsageError
from agentmagic.export import (
    FORMS,
    save,
    to_gemini,
    to_html,
    to_json,
    to_markdown,
    to_notebook,
    to_openai,
    to_responses,
)
from agentmagic.messages import Text, ToolCall
from tests.display.logs import one_call, one_text
from tests.export.turns import turn

TURNS = [turn(*one_text("Größe: 21.")), turn(*one_call(ToolCall("c1", "now", {}), Text("noon")))]
MESSAGES = [message for one in TURNS for message in one.messages]


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_the_name_of_the_file_says_the_form(tmp_path):
    folder = tmp_path / "of" / "May"  # is made
    texts = {form: save(iter(TURNS), folder / f"RUN{form.upper()}").read_text(encoding="utf-8") for form in FORMS}
    assert texts[".md"] == to_markdown(TURNS)
    assert texts[".html"] == to_html(TURNS)
    assert texts[".json"] == to_json(TURNS)
    assert json.loads(texts[".ipynb"]) == to_notebook(TURNS)
    assert json.loads(texts[".openai.json"]) == to_openai(MESSAGES)
    assert json.loads(texts[".responses.json"]) == to_responses(MESSAGES)
    assert json.loads(texts[".gemini.json"]) == to_gemini(MESSAGES)

    async def now(): ...

    turns = [turn(*one_call(ToolCall("c1", "now", {}), Text("noon"), server="notebook"))]
    assert '"await now()"' in save(turns, folder / "with tools.ipynb", tools=[now]).read_text(encoding="utf-8")


def test_a_file_that_is_there_is_replaced_only_when_told(tmp_path):
    path = tmp_path / "run.md"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"is there already\. Choose another name, or replace it with overwrite=True"):
        save(TURNS, path)
    assert path.read_text() == "mine"
    save(TURNS, path, overwrite=True)
    assert path.read_text(encoding="utf-8") == to_markdown(TURNS)
    assert names(tmp_path) == ["run.md"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("run.txt", r"does not say what to write\. Let it end in one of \.md, \.html, \.ipynb, "),
        ("md", r"does not say what to write\. Let it end in one of \.md, \.html, \.ipynb, "),
        ("file/run.md", r"cannot be written: .+\. Choose another place\."),
        ("file/below/run.md", r"cannot be written: .+\. Choose another place\."),
        (f"{'x' * 300}.md", r"cannot be used as a path: .+\. Write another one\."),
        ("folder.md", r"folder\.md is a folder\. Name a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_in_a_sentence_and_nothing_is_left(tmp_path, name, why):
    (tmp_path / "file").touch()
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(UsageError, match=why):
        save(TURNS, tmp_path / name, overwrite=True)
    assert sorted(names(tmp_path)) == ["file", "folder.md"]


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    path = save(TURNS, tmp_path / "run.md")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"the disk is full\. Make room on it\."):
        save([], path, overwrite=True)
    assert path.read_text(encoding="utf-8") == to_markdown(TURNS)
    assert names(tmp_path) == ["run.md"]
