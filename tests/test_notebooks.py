"""The notebooks we ship: each runs without a key, and can be read where neither scripts nor styles work.

The lessons are run by tests/test_lessons.py, and every notebook from its cassette by tests/replay.
"""

import json
import os
import re
import shutil
import subprocess
from html import unescape
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
    git = shutil.which("git")
    listed = git and subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = (listed or "").split("\0")[:-1]
    return [ROOT / name for name in names] or sorted((ROOT / "notebooks").rglob("[0-9]*_*.ipynb"))


NOTEBOOKS = shipped()
WALKTHROUGHS = [path for path in NOTEBOOKS if path.parent.name == "notebooks"]
HISTORY = """
import json
from agentmagic import Session
sessions = {id(value): value for value in tuple(globals().values()) if isinstance(value, Session)}
messages = [message for session in sessions.values() for message in session.messages]
results = [part for message in messages for part in message.parts if part.type == "tool_result"]
print(json.dumps({
    "answers": [message.text for message in messages if message.role == "assistant"],
    "arguments": [str(value) for message in messages for call in message.calls for value in call.arguments.values()],
    "results": [one.text for part in results for one in part.content if one.type == "text"],
}))
"""


def read(page: str) -> str:
    """What a page says with its scripts and styles removed."""
    return " ".join(unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", "", page, flags=re.DOTALL)).split())


def script_of(notebook: Path) -> Path:
    return notebook.parent / "scripts" / f"{notebook.stem}.json"


def execute(path: Path) -> Any:
    """Execute a notebook in a kernel of its own, and then, in a cell behind the others, `HISTORY`."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(HISTORY))
    script = {"AGENTMAGIC_MODEL": f"scripted:{script_of(path)}"}
    variables = {"PYTHONPATH": str(ROOT)} | (script if script_of(path).exists() else {"AGENTMAGIC_REPLAY": "replay"})
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}, timeout=60)
    client.execute(env=os.environ | variables)
    return notebook


@pytest.mark.slow
@pytest.mark.parametrize("path", WALKTHROUGHS, ids=lambda path: path.stem)
def test_a_page_of_an_executed_notebook_has_prompts_answers_arguments_results_and_usage(path):
    notebook = execute(path)
    history = json.loads(notebook.cells.pop().outputs[0]["text"])
    written = nbconvert.HTMLExporter().from_notebook_node(notebook)[0]
    page = read(written)
    prompts = [cell.source.partition("\n")[2] for cell in notebook.cells if cell.source.startswith("%%agent")]
    assert all([prompts, history["answers"], history["results"]])
    assert [value for value in (*prompts, *history["arguments"]) if " ".join(value.split()) not in page] == []
    said = [word for answer in history["answers"] for word in re.findall(r"[^\W\d_]+", answer)]
    said += [word for result in history["results"] for word in re.findall(r"\w+", result)]
    assert [word for word in said if word not in page] == []
    assert len(re.findall(r" · no charge", page)) >= len(prompts)
    assert len(re.findall(r'title="[^"]*\d requests? · [\d,]+ tokens in', written)) >= len(prompts)
