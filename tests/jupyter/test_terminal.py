"""IPython in a terminal: text as it comes, typed answers, interrupts."""

import os
import signal
import sys

import pexpect
import pytest

from tests.jupyter.harness import ROOT

SETUP = """
import time
from agentmagic import Agent, Session, tool
from agentmagic.providers.scripted import ScriptedModel
@tool(ask=True)
def act(what: str) -> str:
    "Act."
    return "acted: " + what
@tool
def nap() -> str:
    "Sleep."
    time.sleep(60)
def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}
agent = Session(Agent(ScriptedModel([calls("act", what="a"), "It is done.", calls("nap"), "second answer"])))
"""


@pytest.fixture
def terminal(tmp_path):
    (tmp_path / "setup.py").write_text(SETUP)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython"), "TERM": "dumb"}
    arguments = ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor"]
    child = pexpect.spawn(sys.executable, arguments, env=variables, cwd=str(tmp_path), encoding="utf-8", timeout=30)
    child.expect(r"In \[1\]: ")
    for line in ("%load_ext agentmagic", "%run -i setup.py"):
        child.sendline(line)
        child.expect(r"In \[\d+\]: ")
    yield child
    child.close(force=True)


def ask(terminal, prompt):
    terminal.sendline(f"get_ipython().run_cell_magic('agent', '', {prompt!r})")


def test_a_turn_is_printed_approved_and_interrupted(terminal):
    ask(terminal, "hello")
    terminal.expect_exact("Run act (notebook) with")
    terminal.expect_exact("what  a")
    terminal.expect_exact("[n]o and why: ")
    terminal.sendline("y")
    terminal.expect_exact("acted: a")
    terminal.expect_exact("It is done.")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "sleep")
    terminal.expect_exact("nap (notebook) [running]")
    terminal.kill(signal.SIGINT)
    terminal.expect_exact("Interrupted: the turn was cancelled")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "again")
    terminal.expect_exact("second answer")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("exit()")
    terminal.expect(pexpect.EOF)


def test_an_input_that_has_ended_declines_the_local_model(terminal):
    hidden = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AGENTMAGIC_MODEL")
    terminal.sendline(f"import os; os.environ |= dict.fromkeys({hidden!r}, ''); agent = Session(Agent())")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "hello")
    terminal.expect_exact("[y/N] ")
    terminal.sendeof()
    terminal.expect_exact("AuthenticationMissing: No model is chosen")
    terminal.expect(r"In \[\d+\]: ")
    assert "Traceback" not in terminal.before
