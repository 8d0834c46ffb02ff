"""The notebooks we ship: each runs from its script, and can be read where neither scripts nor styles work."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
nbconvert = pytest.importorskip("nbconvert")
pytest.importorskip("mcp_server_time")

ROOT = Path(__file__).parent.parent


def shipped() -> list[Path]:
    """Return the notebooks that git tracks: a run, or a person, may have left others in the folder."""
    command = ["git", "ls-files", "-z", "notebooks/*.ipynb"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0")[:-1]
    return [ROOT / name for name in names] or sorted((ROOT / "notebooks").glob("*.ipynb"))


NOTEBOOKS = shipped()
RESULTS = """
import json
results = [part for message in agent.messages for part in message.parts if part.type == "tool_result"]
print(json.dumps(["\\n".join(one.text for one in part.content if one.type == "text") for part in results]))
"""


@dataclass(frozen=True)
class Executed:
    """A notebook that was executed: what it said to the model and heard from it, and its page without styles."""

    prompts: list[str]
    steps: list[Any]
    results: list[str]
    page: str

    @property
    def answers(self) -> list[str]:
        """What the script answers, without the marks of Markdown; decisions of a plan, in JSON, are not shown."""
        texts = [step if isinstance(step, str) else step.get("text", "") for step in self.steps]
        return [re.sub(r"[*`]", "", text) for text in texts if text and not text.startswith("{")]

    @property
    def arguments(self) -> list[str]:
        calls = [call for step in self.steps if isinstance(step, dict) for call in step.get("calls", [])]
        return [" ".join(str(value).split()) for call in calls for value in call["arguments"].values()]


class _Words(HTMLParser):
    """Collects what a page says with its scripts and styles removed."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)


def read(page: str) -> str:
    parser = _Words()
    parser.feed(page)
    return " ".join("".join(parser.words).split())


def script_of(notebook: Path) -> Path:
    return notebook.parent / "scripts" / f"{notebook.stem}.json"


def execute(path: Path) -> Any:
    """Execute a notebook in a kernel of its own, and then, in a cell behind the others, `RESULTS`."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(RESULTS))
    variables = {"AGENTMAGIC_MODEL": f"scripted:{script_of(path)}", "PYTHONPATH": str(ROOT)}
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}, timeout=60)
    client.execute(env=os.environ | variables)
    return notebook


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def executed(request):
    notebook = execute(request.param)
    results = json.loads(notebook.cells.pop().outputs[0]["text"])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    prompts = [cell.source.partition("\n")[2] for cell in notebook.cells if cell.source.startswith("%%agent")]
    return Executed(prompts, json.loads(script_of(request.param).read_text(encoding="utf-8")), results, read(page))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_a_script(notebook):
    assert script_of(notebook).is_file()


def test_a_page_of_an_executed_notebook_has_its_prompts_and_answers(executed):
    assert executed.prompts
    for words in (*executed.prompts, *executed.answers):
        assert " ".join(words.split()) in executed.page


def test_a_page_of_an_executed_notebook_has_the_arguments_and_results_of_its_calls(executed):
    assert executed.results
    for value in executed.arguments:
        assert value in executed.page
    for result in executed.results:
        for word in re.findall(r"\w+", result):
            assert word in executed.page


def test_a_page_of_an_executed_notebook_has_the_usage_of_every_turn(executed):
    assert len(re.findall(r"\d requests? · [\d,]+ tokens in", executed.page)) == len(executed.prompts)
