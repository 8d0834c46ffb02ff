"""IPython in a terminal: rendered text, a line for each call, typed answers, interrupts."""

import os
import signal
import sys

import pexpect
import pytest

from tests.jupyter.harness import ROOT

pytestmark = pytest.mark.posix  # pexpect needs a pseudo-terminal

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
second = "A **second** answer.\\n\\n- one\\n- two"
agent = Session(Agent(ScriptedModel([calls("act", what="a"), "It is done.", calls("nap"), second])))
"""


@pytest.fixture
def terminal(tmp_path):
    (tmp_path / "setup.py").write_text(SETUP)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython"), "TERM": "xterm"}
    arguments = ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor"]
    child = pexpect.spawn(sys.executable, arguments, env=variables, cwd=str(tmp_path), encoding="utf-8", timeout=30)
    child.expect(r"In \[1\]: ")
    for line in ("%load_ext agentmagic", "%run -i setup.py"):
        child.sendline(line)
        child.expect(r"In \[\d+\]: ")
    yield child
    child.close(force=True)


def ask(terminal, prompt, line=""):
    terminal.sendline(f"get_ipython().run_cell_magic('agent', {line!r}, {prompt!r})")


def test_a_turn_is_printed_approved_and_interrupted(terminal):
    ask(terminal, "hello", "-o done")
    terminal.expect_exact("Run act (notebook) with")
    terminal.expect_exact("what  a")
    terminal.expect_exact("[n]o and why: ")
    terminal.sendline("y")
    terminal.expect(r"✓ act \(notebook\) what: a \[.* ms\] → acted: a")
    terminal.expect_exact("It is done.")
    terminal.expect_exact("done is bound: str, 11 characters.")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "sleep")
    terminal.expect_exact("◐ waiting for nap")
    terminal.kill(signal.SIGINT)
    terminal.expect_exact("stopped")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "again")
    terminal.expect_exact("A \x1b[1msecond\x1b[0m answer.")
    terminal.expect(r"• .*one")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("exit()")
    terminal.expect(pexpect.EOF)


def test_a_long_program_says_how_many_of_its_lines_the_terminal_shows(terminal):
    rows, _ = terminal.getwinsize()
    terminal.sendline("agent = Session(Agent(ScriptedModel([calls('act', what='x\\n' * 340), 'It is done.'])))")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "hello")
    terminal.expect(rf"{rows - 3} of 34\d lines in view\. \[y\]es")
    terminal.sendline("n")
    terminal.expect_exact("It is done.")


def test_a_program_that_exits_ends_no_terminal_and_an_exit_of_the_user_does(terminal):
    programs = ["exit(3)", "quit", "get_ipython().ask_exit()", "import asyncio\nawait asyncio.sleep(0)\nexit('enough')"]
    terminal.sendline(
        "from agentmagic import NotebookTools, Policy, Rule; kept = 41; "
        "options = {'tools': [NotebookTools()], 'permission': Policy([Rule('allow', 'run_python')])}; "
        f"steps = [calls('run_python', code=one) for one in {programs!r}]; "
        "agent = Session(Agent(ScriptedModel([*steps, 'Done.']), **options))"
    )
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "go")
    for words in ("with exit code 3.", "with exit code 0.", "with exit code 0.", ": enough"):
        terminal.expect_exact(f"The program ended itself{words if words[0] == ':' else f' {words}'}")
    terminal.expect_exact("Done.")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("kept + 1")
    terminal.expect_exact("42")
    terminal.sendline("quit")
    terminal.expect(pexpect.EOF)


def test_an_input_that_has_ended_types_no_key_and_a_key_that_is_typed_is_used(terminal):
    for line in (
        "from agentmagic.errors import AuthenticationMissing; from agentmagic.testing import Faulty",
        "locked = lambda: Faulty(AuthenticationMissing('No key.', variables=('TEST_KEY',)))",
        "agent = Session(Agent(locked())); other = Session(Agent(locked()))",
    ):
        terminal.sendline(line)
        terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "hello", "other")
    terminal.expect_exact("TEST_KEY is not set. Type the key")
    terminal.sendeof()
    terminal.expect_exact("AuthenticationMissing")
    terminal.expect(r"In \[\d+\]: ")
    assert "Traceback" not in terminal.before
    ask(terminal, "hello")
    terminal.expect_exact("TEST_KEY is not set. Type the key")
    terminal.sendline("typed")
    terminal.expect_exact("Here is the answer.")
    assert "Forgotten" not in terminal.before  # of the turn without the key
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("len(agent.turns)")
    terminal.expect_exact("1")


def test_a_map_is_a_bar_and_then_a_line_and_an_interrupt_says_what_is_kept(terminal):
    terminal.sendline("from tests.mapping.models import RowModel; agent = Session(Agent(RowModel()))")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("words = ['a', 'b', 'c']")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "Say {row}", "-o lengths --map words")
    terminal.expect_exact("3/3")
    terminal.expect_exact("✓ 3 rows")
    terminal.expect_exact("lengths is bound: DataFrame, 3 rows")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("agent.last_map.run(1)")
    terminal.expect_exact("> Say b")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("words = ['a', 'b waits']")
    terminal.expect(r"In \[\d+\]: ")
    ask(terminal, "Say {row}", "--map words --to words.jsonl")
    terminal.expect_exact("1/2")
    terminal.kill(signal.SIGINT)
    terminal.expect_exact("■ Stopped: 1 of 2 rows")
    terminal.expect_exact("Interrupted: 1 of 2 rows are answered. Run the cell again to go on.")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("run = agent.start_map(['a', 'b waits'], 'Say {row}')")
    terminal.expect(r"In \[\d+\]: ")
    terminal.sendline("run.stop()")
    terminal.expect_exact("■ Stopped: ")
