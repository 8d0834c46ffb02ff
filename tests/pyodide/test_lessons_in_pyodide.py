"""The lessons in a browser's Python: what each puts out there is what is saved in it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
LESSONS = {path.stem: path for path in (ROOT / "notebooks" / "lessons").glob("*.ipynb")}
MISSING = {"4_results": "No module named 'pandas'", "5_mcp": "No module named 'mcp'"}
"""Lessons that need a package which cannot be had here, with the first error of each."""
OTHER_WORDS = {"11_structured_answers": {"cell-15", "cell-16", "exercise-2"}}
"""Cells that put out the reason why an answer does not fit a schema. In Pyodide, another library words it."""

FIRST = """\
%load_ext agentmagic
from agentmagic import Agent, ScriptedModel, Session, ToolContext, tool
import asyncio, signal"""
TYPED = """\
@tool
def loud(word: str) -> str:
    \"\"\"Return a word in capitals.\"\"\"
    print("called with", word)
    return word.upper()

script = [{"calls": [{"name": "loud", "arguments": {"word": "sea"}}]}, "SEA."]
session = Session(Agent(ScriptedModel(script), tools=[loud]))
print(session.ask("Shout.").final_text)"""
AWAITED = """\
run = Session(Agent(ScriptedModel(["Hello."]))).start("Greet me.")
print((await run).final_text)"""
NESTED = """\
def inner() -> str:
    \"\"\"Ask another session.\"\"\"
    return Session(Agent(ScriptedModel(["From inside."]))).ask("Well?").final_text

script = [{"calls": [{"name": "inner", "arguments": {}}]}, "Done."]
print(Session(Agent(ScriptedModel(script), tools=[inner])).ask("Ask.").history_delta[2].parts[0].text)"""
STOPPED = """\
async def wait() -> str:
    \"\"\"Wait for a minute.\"\"\"
    await asyncio.sleep(60)

session = Session(Agent(ScriptedModel([{"calls": [{"name": "wait", "arguments": {}}]}]), tools=[wait]))
asyncio.get_event_loop().call_later(0.2, signal.raise_signal, signal.SIGINT)
try:
    session.ask("Wait.")
except KeyboardInterrupt:
    print("stopped")"""
CALLER = """\
@tool(loop="caller")
async def here() -> str:
    \"\"\"Return where this runs.\"\"\"
    return type(asyncio.get_running_loop()).__name__

script = [{"calls": [{"name": "here", "arguments": {}}]}, "Done."]
print(Session(Agent(ScriptedModel(script), tools=[here])).ask("Where?").history_delta[2].parts[0].text)"""
MAGIC = """\
%%agent -m scripted:hello.json
Greet me."""
CELLS = {
    "first": FIRST,
    "typed": TYPED,
    "awaited": AWAITED,
    "nested": NESTED,
    "caller": CALLER,
    "stopped": STOPPED,
    "magic": MAGIC,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("AGENTMAGIC_PYODIDE" not in os.environ, reason="AGENTMAGIC_PYODIDE names no prepared folder"),
]


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory) -> dict[str, Any]:
    """Run all lessons, and the cells above, in one Pyodide, which takes seconds to start."""
    folder, place = Path(os.environ["AGENTMAGIC_PYODIDE"]).resolve(), tmp_path_factory.mktemp("pyodide")
    cells = [{"id": name, "cell_type": "code", "source": source} for name, source in CELLS.items()]
    (place / "cells.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (place / "hello.json").write_text('["Hello, **reader**."]', encoding="utf-8")
    pipes = [place / "requests", place / "answers"]
    for pipe in pipes:
        os.mkfifo(pipe)
    node, script = folder / "node_modules" / "node" / "bin" / "node", Path(__file__).with_name("run.mjs")
    run = [node, script, folder, ROOT, place, place / "cells.ipynb", *LESSONS.values()]
    with subprocess.Popen([sys.executable, "-m", "tests.pyodide.sanitiser", *pipes], cwd=ROOT) as sanitiser:
        try:
            done = subprocess.run(run, capture_output=True, text=True, timeout=240, check=False)
        finally:
            sanitiser.terminate()
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((place / "report.json").read_text(encoding="utf-8"))
    print(report["seconds"])  # noqa: T201  (pytest shows it if a test fails)
    return report["notebooks"]


MARKS = re.compile(r"\n *[~^]+(?=\n)")


def joined(text: str | list[str]) -> str:
    return "".join(text)


def saved(output: dict[str, Any]) -> tuple[Any, ...]:
    """What a reader sees of an output, of the notebook's file or of the page.

    The marks below a line of a traceback are left out: they differ between versions of Python.
    """
    if output["output_type"] == "stream":
        return ("stream", output["name"], joined(output["text"]))
    return (output["output_type"], {kind: MARKS.sub("", joined(data)) for kind, data in output["data"].items()})


@pytest.mark.parametrize("name", sorted(LESSONS.keys() - MISSING.keys()))
def test_a_lesson_puts_out_in_pyodide_what_is_saved_in_it(notebooks, name):
    cells = json.loads(LESSONS[name].read_text(encoding="utf-8"))["cells"]
    others = OTHER_WORDS.get(name, ())
    code = [cell for cell in cells if cell["cell_type"] == "code" and cell["id"] not in others]
    expected = {cell["id"]: list(map(saved, cell["outputs"])) for cell in code}
    ran = [cell for cell in notebooks[name] if cell["id"] not in others]
    assert {cell["id"]: list(map(saved, cell["outputs"])) for cell in ran} == expected
    assert [cell["error"] for cell in notebooks[name] if cell["error"]] == []


@pytest.mark.parametrize("name", MISSING)
def test_a_lesson_that_lacks_a_package_says_which_one(notebooks, name):
    errors = [cell["error"] for cell in notebooks[name] if cell["error"]]
    assert errors[0].endswith(MISSING[name])


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        ("typed", "SEA.\n"),
        ("awaited", "Hello.\n"),
        ("nested", "From inside.\n"),
        ("caller", "WebLoop\n"),
        ("stopped", "stopped\n"),
    ],
)
def test_a_cell_waits_for_its_turn_where_there_are_no_threads(notebooks, cell, printed):
    (ran,) = (one for one in notebooks["cells"] if one["id"] == cell)
    assert ran["error"] == ""
    assert joined(one["text"] for one in ran["outputs"] if one["output_type"] == "stream") == printed


def test_a_cell_of_the_page_shows_its_answer(notebooks):
    (ran,) = (one for one in notebooks["cells"] if one["id"] == "magic")
    assert ran["error"] == ""
    shown = "".join(one["data"]["text/html"] for one in ran["outputs"])
    assert "<p>Hello, <strong>reader</strong>.</p>" in shown
