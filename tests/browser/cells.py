"""Where cells are tested, and what their notebooks begin with: a session that plays a script, tools to call in it."""

import os

import pytest

from tests.browser.lab import ROOT

KERNEL6 = "AGENTMAGIC_KERNEL6"
"""The environment variable that names a Python with ipykernel 6.31."""

KERNELS = [
    "python3",
    pytest.param("ipykernel6", marks=pytest.mark.skipif(KERNEL6 not in os.environ, reason=f"{KERNEL6} is not set")),
]

EVERYWHERE = pytest.mark.parametrize("lab", ["lab", "notebook"], indirect=True)
"""Runs a test in JupyterLab and in Notebook 7."""

SERVER = ROOT / "tests" / "tools" / "mcp" / "servers" / "raw.py"
"""A server of MCP; `CONNECT` makes it one of the notebook's."""

SETUP = """
%load_ext agentmagic
import os, sys, time
from agentmagic import Agent, Session, ToolContext, tool
from agentmagic.errors import RateLimited
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Stalled, invalid_history

def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}

def play(*steps):
    global agent
    agent = Session(Agent(ScriptedModel(list(steps))))

@tool(ask=True)
def order(what: str) -> str:
    "Order."
    return "ordered " + what

@tool
async def choose(ctx: ToolContext) -> str:
    "Have the person choose."
    return "chosen: " + await ctx.ask("Which tea?")

@tool
def nap() -> str:
    "Sleep as a function does."
    time.sleep(60)
"""

CONNECT = f"%mcp add raw {{sys.executable}} {SERVER}\n"

PLANNED = """
import json
@tool
def find(word: str) -> str:
    "Find a word."
    if word != "two":
        raise ValueError(f"there is no word {word!r}")
    return "2"
@tool(ask=True)
def add(a: int, b: int) -> int:
    "Add."
    return a + b
STEPS = [json.dumps(step) for step in (
    {"route": "ask", "question": "Which word?"},
    {"route": "tools"},
    {"tasks": [
        {"id": "t1", "tool": "find", "parameters": {"word": "too"}, "description": "find the number"},
        {"id": "t2", "tool": "add", "parameters": {"a": 1, "b": 2}, "depends_on": ["t1"], "description": "add to it"},
    ]},
    {"success": False, "retry": True, "reason": "It is spelt two.", "parameters": {"word": "two"}},
)]
"""
"""A plan, which begins with a question to the user; its second task asks for an approval."""
