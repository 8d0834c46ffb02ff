"""What Tab offers in a cell, on the line of a magic, and in a prompt."""

from pathlib import Path

import pytest
from IPython.core.completer import CompletionContext
from IPython.core.interactiveshell import InteractiveShell
from pandas import DataFrame
from pydantic import create_model

from agentmagic import Agent, ScriptedModel, Session, tool
from agentmagic.classroom import VS_CODE_VARIABLE
from agentmagic.jupyter.magics import options
from agentmagic.jupyter.magics.agent_commands import agent_magic
from agentmagic.jupyter.magics.completion import matcher
from agentmagic.jupyter.magics.mcp_commands import mcp_magic
from agentmagic.jupyter.notebook.file import KnownNotebook
from agentmagic.jupyter.notebook.namespace import Namespace
from tests.jupyter.harness import OBLIGING, RAW


class Picture:
    def _repr_png_(self): ...


@tool
def add(): ...


@tool
def sub(): ...


VARIABLES = {
    "sales": 1,
    "sad": pytest,
    "City": create_model("City"),
    "drawn": Picture(),
    "other": Session(Agent(ScriptedModel([]))),
    "add": add,
    "sub": sub,
    "place": "Rome",
    "Out": {3: 1},
    "In": ["", "x = 1"],
    "staff": ["Ann", "Ben"],
    "shops": DataFrame({"city": ["Oslo"]}),
    "_hidden": 1,
}


def completed(text, variables):
    """What the last word of a cell, or of a line, may become."""
    namespace = Namespace(variables, KnownNotebook(InteractiveShell()))
    complete = matcher(namespace, options.ask_parser(), [agent_magic(), mcp_magic()])
    line, column = text.count("\n"), len(text.rpartition("\n")[2])
    context = CompletionContext(token="", full_text=text, cursor_position=column, cursor_line=line, limit=9)
    return sorted(one.text for one in complete(context)["completions"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("%%agent --ou", ["--out"]),
        ("%%agent --map s", ["shops", "staff"]),
        ("%%agent --on-error ", ["keep", "stop"]),
        ("%%agent --to lab", ["labels.jsonl"]),
        ("%%agent o", ["other"]),
        ("%%agent -m openai:", ["openai:gpt-5.4"]),
        ("%%agent -m acp:cl", ["acp:claude"]),
        ("%%agent --permission d", ["deny"]),
        ("%%agent --tools add,s", ["add,sub"]),
        ("%%agent -o sa", ["sales"]),
        ("%%agent --as list[Ci", ["list[City]"]),
        ("%%agent --set=reasoning=l", ["--set=reasoning=low"]),
        ("%%agent --image ", ["drawn", "figures/", "plot.png"]),
        ("%%agent --image figures/", ["figures/map.jpg"]),
        ("%%agent\nHow are the {sal", ["sales"]),
        ("%%agent\nHow is {1 + place.isd", ["isdecimal", "isdigit"]),
        ("%%agent\nHow is @out[", ["out[3]"]),
        ("%%agent\nWhy is @In[", ["In[1]"]),
        ("%%agent\nWhy is @sal", ["sales"]),
        ("%%agent\nWrite to me@sal", []),
        ("%agent debug o", ["off", "on"]),
        ("%agent history --s", ["--search", "--session"]),
        ("%mcp rem", ["remove"]),
        ("%mcp load .m", [".mcp.json"]),
    ],
)
def test_a_word_is_completed_by_what_may_stand_there(text, found, tmp_path, monkeypatch):
    for path in ("plot.png", ".plot.png", "notes.txt", ".mcp.json", "labels.jsonl", "figures/map.jpg"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.chdir(tmp_path if "--image" not in text else Path("/"))  # images are those of the notebook's folder
    assert completed(text, {**VARIABLES, VS_CODE_VARIABLE: str(tmp_path / "a.ipynb")}) == found


def test_tab_in_a_kernel_knows_servers_tools_prompts_and_resources(kernel, add):
    add("raw", *RAW)
    add("kind", *OBLIGING)
    assert {"raw", "kind"} <= set(kernel.complete("%mcp get "))
    assert kernel.complete("%mcp disable kind t") == ["talk", "think"]
    assert kernel.complete("%mcp allow raw ec") == ["echo"]
    assert "kind" not in kernel.complete("%mcp allow raw ")
    assert kernel.complete("%mcp prompt kind gr") == ["greet"]
    assert kernel.complete("%mcp prompt -s agent kind greet n") == ["name="]
    assert "kind:" in kernel.complete("%%agent\nread @ki")
    assert kernel.complete("%%agent\nread @kind:memo://on") == ["memo://one"]
    assert "memo://of/" in kernel.complete("%%agent\nread @kind:")


def test_tab_in_a_kernel_knows_the_servers_of_an_agent_and_starts_none(kernel):
    entry = {"command": str(RAW[0]), "args": [*map(str, RAW[1:])]}
    kernel.run(f"play('first', mcp={ {'own': entry} })")
    assert kernel.complete("%mcp tools ow") == ["own"]
    assert "echo" not in kernel.complete("%mcp allow own ")
    assert kernel.complete("%mcp prompt own ") == ["--ask", "--help", "--session"]
    assert "state         stopped" in kernel.run("%mcp get own").stream
