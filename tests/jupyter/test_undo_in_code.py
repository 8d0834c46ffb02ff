"""Undo and redo of sessions that code has made: variables go back with the conversation, and it is said."""

import pytest

from tests.jupyter.test_notebook_tools import ALLOWED

MADE = """
def made(*codes, **options):
    "A session that runs one program in each turn."
    steps = [step for code in codes for step in (calls("run_python", code=code), "Done.")]
    permission = Policy([Rule("allow", "run_python")])
    return Session(Agent(ScriptedModel(steps), tools=[NotebookTools()], permission=permission), **options)
total, rows = 1, [1]
@tool
def add() -> str:
    "Add a row."
    rows.append(2)
    return "added"
"""
STAYS = "What run_python did outside of the variables, as to files, stays."
NOT_KEPT = "The variables are as they were: what they held before is not kept any more, only the conversation changed."


@pytest.fixture
def notebook(kernel):
    assert kernel.run(ALLOWED).ok
    assert kernel.run(MADE).ok
    return kernel


def printed(kernel, code):
    cell = kernel.run(code)
    assert cell.ok, cell.error
    return cell.stream.strip().splitlines()


def test_undo_and_redo_put_variables_back_and_say_so(notebook):
    for how in ("s.ask('Go.');", "await s.start('Go.');", "r = s.start('Go.')\nr.wait();"):
        notebook.run("total, rows = 1, [1]\ns = made('total = 2; rows.append(2)')")
        assert notebook.run(how).ok
        cell = notebook.run("s.undo()")
        assert cell.stream.splitlines() == ["Forgotten: Go.", "Put back: rows, total.", STAYS]
        assert cell.displays == []  # the prompt that is returned is not shown once more
        assert printed(notebook, "print(total, rows)") == ["1 [1]"]
        redone = ["Back again: Go.", "Put back: rows, total.", "2 [1, 2] Go."]
        assert printed(notebook, "x = s.redo()\nprint(total, rows, x.text)") == redone
    assert printed(notebook, "print(s.undo().text, s.undone.restored, s.undo())")[-2:] == [
        "There is no turn to undo.",
        "Go. ('rows', 'total') None",
    ]


def test_a_session_without_a_name_has_undo_and_one_made_before_loading_too(notebook):
    notebook.run("held = [made('total = 5')]\nheld[0].ask('Go.');")
    assert "Put back: total." in printed(notebook, "held[0].undo();")
    notebook.run("%unload_ext agentmagic")
    notebook.run("s, t = made('total = 6'), Session(Agent(ScriptedModel([calls('add'), 'Done.']), tools=[add]))")
    notebook.run("t.ask('Go.');")
    notebook.run("t.undo();")
    notebook.run("%load_ext agentmagic")
    assert notebook.value("t.undone.restored, rows") == "(('rows',), [1])"
    notebook.run("s.ask('Go.');")
    assert "Put back: total." in printed(notebook, "s.undo();")


def test_a_fork_keeps_nothing_and_a_cleared_conversation_comes_back_with_its_undo(notebook):
    notebook.run("s = made('total = 2')\ns.ask('Go.')\nf = s.fork();")
    assert printed(notebook, "f.undo();") == ["Forgotten: Go.", NOT_KEPT, STAYS]
    assert printed(notebook, "s.clear()\ns.undo();") == ["Brought back 1 turn."]
    assert "Put back: total." in printed(notebook, "s.undo();")
