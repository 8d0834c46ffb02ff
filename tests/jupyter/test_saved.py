"""Conversations that outlive their kernel: saved beside the notebook, picked up again after a restart."""

import os
import re
from contextlib import closing

import pytest

from agentmagic import Agent, ScriptedModel, Session
from agentmagic.history.journal import FOLDER
from tests.jupyter.harness import CONSOLE, Notebook

LOAD = "%load_ext agentmagic"
COUNTING = """
from agentmagic import Agent, Session
from agentmagic.providers.scripted import ScriptedModel

class Counting:
    "Says how many messages it was sent."
    name = "test:counting"
    async def stream(self, request):
        async for event in ScriptedModel([f"I was sent {len(request.messages)}."]).stream(request):
            yield event
    async def aclose(self):
        pass

agent = Agent(Counting())
"""


def begin(kernel, **front_end):
    """Load the extension and make the recipe, as the first cells do; returns what loading said of conversations."""
    said = re.sub(r"No key was found.*\n", "", kernel.run(LOAD, **front_end).stream)
    made = kernel.run(COUNTING, **front_end)
    assert made.ok, made.error
    return said


def ask(kernel, words, **front_end):
    cell = kernel.run(f"%%agent\n{words}", **front_end)
    assert cell.ok, cell.error
    return cell.text


def test_a_conversation_goes_on_after_a_restart_with_one_command(notebook):
    kernel = notebook.kernel()
    assert begin(kernel) == ""
    kernel.run("%agent status")
    assert not notebook.folder.parent.exists()  # nothing is touched before the first turn
    ask(kernel, "Which product sold best?")
    assert notebook.saved == ["agent.jsonl"]
    assert f"saved       {FOLDER}/sales/agent.jsonl" in kernel.run("%agent status").stream
    ask(kernel, "And where?")
    kernel.restart()
    assert begin(kernel) == (
        "Saved conversation of this notebook: agent, 2 turns, just now. %agent load picks it up.\n"
    )
    loaded = kernel.run("%agent load").stream
    assert f"agent goes on with 2 turns of {FOLDER}/sales/agent.jsonl" in loaded
    assert "asked last  And where?" in loaded
    assert "answered    I was sent 3." in loaded
    assert "I was sent 5." in ask(kernel, "Why?")
    assert kernel.run("%reload_ext agentmagic").stream == "test:counting answers.\n"
    assert notebook.saved == ["agent.jsonl"]


RECIPE = COUNTING.replace("agent = Agent(", "agent.agent = Agent(")  # the session that loading has made stays


def test_a_session_that_was_made_without_a_notebook_is_saved_from_the_first_cell_on(notebook):
    """As after the button of an older page, or in a notebook that was renamed and not saved yet."""
    kernel = notebook.kernel()
    kernel.run(LOAD, **CONSOLE)
    kernel.run(RECIPE, **CONSOLE)
    ask(kernel, "before", **CONSOLE)
    assert notebook.saved == []
    assert kernel.run("%reload_ext agentmagic").stream == "test:counting answers.\n"
    assert [line["type"] for line in notebook.lines()].count("turn_started") == 1  # at once, not with the next turn
    ask(kernel, "after")
    assert [line["type"] for line in notebook.lines()].count("turn_started") == 2
    kernel.restart()
    assert "agent, 2 turns, just now" in kernel.run(LOAD).stream
    kernel.run("from agentmagic.jupyter.panel import panels")
    offered = "panels._notebooks[id(get_ipython())].suggest_conversation(agent)"
    assert kernel.value(offered) == "Conversation(name='agent', about='2 turns, just now', saved=True)"
    kernel.run(RECIPE)
    ask(kernel, "without loading it")
    assert kernel.run(offered).displays == []  # no more, once something was asked


@pytest.mark.slow
def test_who_goes_on_without_loading_finds_each_conversation_and_the_one_used_last_is_offered(notebook):
    kernel = notebook.kernel()
    begin(kernel)
    ask(kernel, "the first conversation")
    assert kernel.run("%%agent tutor\nof the tutor").ok
    kernel.restart()
    assert "%agent sessions lists all 2." in kernel.run(LOAD).stream
    begin(kernel)
    assert "I was sent 1." in ask(kernel, "the second conversation")
    assert kernel.complete("%agent load a") == ["agent", "agent.1"]
    assert "asked last  the first conversation" in kernel.run("%agent load agent.1").stream
    assert "I was sent 3." in ask(kernel, "more of the first")
    assert "asked last  the second conversation" in kernel.run("%agent load agent").stream
    os.utime(notebook.folder / "tutor.jsonl", (2e9, 2e9))
    kernel.restart()
    said = kernel.run(LOAD).stream
    assert "notebook: tutor, 1 turn, " in said
    assert "%agent -s tutor load picks it up." in said
    assert "%agent sessions lists all 3." in said
    assert "the second conversation" in kernel.run("%agent sessions").stream


@pytest.fixture(scope="module")
def sales(tmp_path_factory):
    """A notebook with a kernel that keeps running."""
    made = Notebook(tmp_path_factory.mktemp("sales"))
    begin(made.kernel())
    yield made
    made.kernels[0].stop()


@pytest.fixture
def kernel(sales):
    """Its kernel, in which `agent` has two turns."""
    kernel = sales.kernels[0]
    kernel.run("for name in ('agent', 'other', 'held', 'mine', 'tutor', 'theirs'): globals().pop(name, None)")
    kernel.run("import gc\ngc.collect()")  # a session that is bound no more lets go of its file when it is collected
    kernel.run("agent = Agent(Counting())")
    ask(kernel, "Which product sold best?")
    ask(kernel, "And where, please?")
    return kernel


def test_a_recipe_that_is_bound_anew_begins_a_conversation_and_a_session_made_in_code_is_saved_where_it_says(
    kernel, sales
):
    before = sales.saved
    kernel.run("mine = Session(Agent(Counting()))\n%agent -s mine")
    kernel.run("%%agent mine\nhello")
    assert sales.saved == before
    assert "nowhere: it was made in code, without a path" in kernel.run("%agent -s mine").stream
    assert kernel.run("%agent -s mine save mine.jsonl").stream == "Saved 1 turn in mine.jsonl.\n"
    assert "saved       mine.jsonl" in kernel.run("%agent -s mine").stream
    assert "there already" in kernel.run("%agent save mine.jsonl").error
    kernel.run("held = agent\nagent = Agent(Counting())")
    told = ask(kernel, "anew")
    assert "I was sent 1." in told
    assert "another kernel or session" not in told
    assert len(sales.saved) == len(before) + 1


def test_a_fork_is_a_session_of_its_own_and_saved_as_one(kernel, sales):
    assert kernel.run("%agent fork tutor --turns 1").stream == "tutor begins with 1 turn of agent.\n"
    assert "I was sent 3." in kernel.run("%%agent tutor\nmore").text
    assert kernel.value("len(agent.turns), len(tutor.turns)") == "(2, 2)"
    assert len([line for line in sales.lines("tutor") if line["type"] == "turn_started"]) == 2
    assert "tutor is a Session of yours and stays" in kernel.run("%agent fork tutor").error
    assert "sales is a" in kernel.run("sales = 1\n%agent fork sales").error
    assert "saved already" in kernel.run("del tutor\n%agent fork tutor").error
    assert "Give how many" in kernel.run("%agent fork another --turns -1").error


def test_a_conversation_that_another_kernel_writes_is_gone_on_with_in_memory(kernel, sales):
    path = sales.folder / "theirs.jsonl"
    with closing(Session(Agent(ScriptedModel(["one", "two"])), path=path)) as elsewhere:
        elsewhere.ask("of the first")
        loaded = kernel.run("%agent -s theirs load").stream
        assert "is being written by another kernel or session" in loaded
        told = kernel.run("%%agent theirs\nof the second").text
        assert "I was sent 3." in told
        assert "another kernel" not in told  # said once
        short = "in memory only: another kernel writes it; %agent save FILE keeps it\n"
        assert f"saved       {short}" in kernel.run("%agent -s theirs status").stream
        assert short in kernel.run("%agent sessions").stream
        elsewhere.ask("of the first again")
    assert [line["type"] for line in sales.lines("theirs")].count("turn_started") == 2


def test_a_conversation_is_searched_and_exported_from_a_cell(kernel, sales):
    assert kernel.run("%agent history --search AND where").stream == "  2  user      And where, please?\n"
    assert "occurs nowhere" in kernel.run("%agent history --search profit").stream
    assert kernel.run("%agent export export.md").stream == "Wrote 2 turns to export.md.\n"
    assert "Which product sold best?" in (sales.file.parent / "export.md").read_text(encoding="utf-8")
    assert kernel.run("%agent export export.html").stream == "Wrote 2 turns to export.html.\n"
    page = (sales.file.parent / "export.html").read_text(encoding="utf-8")
    assert "<title>Which product sold best?</title>" in page
    assert "replace it with --overwrite" in kernel.run("%agent export export.md").error
    assert kernel.run("%agent export export.md --overwrite").ok
    for written in ("sales.ipynb", f"{sales.file} --overwrite"):
        assert "is this notebook itself" in kernel.run(f"%agent export {written}").error
    assert sales.file.read_text() == "{}"


def test_a_name_that_cannot_be_used_is_refused_in_a_line_and_the_conversation_stays(kernel):
    kernel.run("import pathlib\npathlib.Path('folder.md').mkdir(exist_ok=True)")
    kernel.run("pathlib.Path('notes.jsonl').write_text('notes\\n')")
    for line, said in [
        *((f"%{magic} {'x' * 300}", "cannot be used as a path") for magic in ("agent save", "agent load", "mcp load")),
        ('%agent save ""', "is empty"),
        ("%agent save ~no_such_user_here/talk.md", "cannot be used as a path"),
        ("%agent save .", "is a folder. Name a file"),
        ("%agent export folder.md --overwrite", "is a folder. Name a file"),
        ("%agent save talk.md", "name a .jsonl file. %agent export writes"),
        ("%agent export export.txt", "does not say what to write"),
        ("%agent load nosuch", "There is no saved conversation 'nosuch'"),
        ("%agent load notes.jsonl", "no conversation of agentmagic"),
        ("%agent fork _hidden", "lists leave out names that begin with _"),
        ("%%agent _hidden\nhello", "lists leave out names that begin with _"),
    ]:
        error = kernel.run(line).error
        assert said in error
        assert len(error.splitlines()) == 1
    assert kernel.value("len(agent.turns), '_hidden' in globals()") == "(2, False)"


def test_what_looks_a_session_up_makes_none(kernel):
    kernel.run("tutor = Agent(Counting())")
    for line in ("-s tutor status", "-s tutor reset", "fork mine -s tutor"):
        assert "tutor is an Agent, a recipe without a conversation. %%agent tutor" in kernel.run(f"%agent {line}").error
    for line in ("-s typo load", "-s typo models nosuch:x", "-s typo history", "-s tutor load nosuch"):
        assert kernel.run(f"%agent {line}").error
    assert kernel.value("type(tutor) is Agent, 'mine' in globals(), 'typo' in globals()") == "(True, False, False)"


def test_what_is_made_of_a_session_says_that_a_turn_is_still_under_way(kernel):
    kernel.run("import asyncio, threading\ngate = threading.Event()")
    kernel.run("async def wait() -> str:\n    'Wait.'\n    await asyncio.to_thread(gate.wait, 20)")
    steps = "[{'calls': [{'name': 'wait', 'arguments': {}}]}, 'done']"
    kernel.run(f"other = Session(Agent(ScriptedModel({steps}), tools=[wait]))\n%agent -s other")
    kernel.run("%%agent other --bg\nwait")
    for command in ("export under-way.md --overwrite", "fork mine"):
        assert "The turn under way is not in it." in kernel.run(f"%agent -s other {command}").stream
    kernel.run("gate.set()\nother.running and other.running.wait()")
    assert kernel.run("%agent -s other export under-way.md --overwrite").stream == "Wrote 1 turn to under-way.md.\n"
