import json
import os

import pytest

from agentmagic.errors import UsageError
from agentmagic.export import FORMS, save, to_gemini, to_json, to_markdown, to_notebook, to_openai, to_responses
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
    assert texts[".json"] == to_json(TURNS)
    assert json.loads(texts[".ipynb"]) == to_notebook(TURNS)
    assert json.loads(texts[".openai.json"]) == to_openai(MESSAGES)
    assert json.loads(texts[".responses.json"]) == to_responses(MESSAGES)
    assert json.loads(texts[".gemini.json"]) == to_gemini(MESSAGES)


def test_the_notebook_knows_the_tools(tmp_path):
    async def now() -> str:
        """Tell the time."""
        return "noon"

    turns = [turn(*one_call(ToolCall("c1", "now", {}), Text("noon"), server="notebook"))]
    assert '"await now()"' in save(turns, tmp_path / "run.ipynb", tools=[now]).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["run", "run.txt", "md"])
def test_a_name_without_a_form_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"does not say what to write\. Let it end in one of \.md, \.ipynb, "):
        save(TURNS, tmp_path / name)
    assert names(tmp_path) == []


def test_a_file_that_is_there_is_replaced_only_when_told(tmp_path):
    path = tmp_path / "run.md"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"is there already\. Choose another name, or replace it with overwrite=True"):
        save(TURNS, path)
    assert path.read_text() == "mine"
    save(TURNS, path, overwrite=True)
    assert path.read_text(encoding="utf-8") == to_markdown(TURNS)
    assert names(tmp_path) == ["run.md"]


@pytest.mark.parametrize("place", ["file/run.md", "file/below/run.md"])
def test_a_file_that_cannot_be_written_is_said_in_a_sentence(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written: .+\. Choose another place\."):
        save(TURNS, tmp_path / place)
    assert names(tmp_path) == ["file"]


def test_a_name_that_no_file_can_have_is_said_in_a_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"cannot be used as a path: .+\. Write another one\."):
        save(TURNS, tmp_path / f"{'x' * 300}.md")


def test_a_folder_is_not_replaced_and_nothing_is_left_beside_it(tmp_path):
    (tmp_path / "run.md").mkdir()
    with pytest.raises(UsageError, match=r"run\.md is a folder\. Name a file"):
        save(TURNS, tmp_path / "run.md", overwrite=True)
    assert names(tmp_path) == ["run.md"]


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    path = save(TURNS, tmp_path / "run.md")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        save([], path, overwrite=True)
    assert path.read_text(encoding="utf-8") == to_markdown(TURNS)
    assert names(tmp_path) == ["run.md"]
