"""A panel after a restart of the kernel: it goes on with the conversation of the kernel before."""

import json
import os
from contextlib import closing

import pytest

from agentmagic import Agent, ScriptedModel, Session
from tests.jupyter.test_saved import LOAD, RECIPE, ask

PANELS = """
from agentmagic.runtime.engine import engine
from agentmagic.jupyter.panel import panels
from tests.widgets.page import Page

class Waiting(Page):
    def until(self, holds):
        return engine().call(engine().in_pool(lambda: Page.until(self, holds)))
    def ready(self):
        "Wait for what a page waits for before it takes keys."
        self.until(lambda: "actions" in self.state)
        return self
    def send(self, text, turns):
        self.act("send", text=text)
        self.turns(turns)
        return self.texts("text")[-1]

def docked():
    chat = panels.docked_chat(get_ipython(), agent)
    chat.look()
    return Waiting(chat.view)
def in_cell(session=None):
    chat = panels._chat(get_ipython(), session or agent)
    chat.look()
    return Waiting(chat.view)
def looked(page):
    "What the panel shows once it has looked around."
    chat = next(one for one in (*panels._chats, *panels._docked_chats) if one.view is page._view)
    engine().call(chat._look())
    page.until(lambda: "actions" in page.state)
    offered = page.state["offered"]
    return page.texts("prompt"), page.state["earlier"], offered and offered["name"]
"""


def begin(kernel):
    """Do what the first cells of the notebook do."""
    for cell in (LOAD, RECIPE, PANELS):
        done = kernel.run(cell)
        assert done.ok, done.error


@pytest.fixture
def kernel(notebook):
    """A kernel that has been restarted; before, a conversation of two turns was held."""
    kernel = notebook.kernel()
    begin(kernel)
    ask(kernel, "the first")
    ask(kernel, "the second")
    kernel.restart()
    begin(kernel)
    return kernel


def did(kernel, code):
    cell = kernel.run(code)
    assert cell.ok, cell.error
    return cell


def said(kernel):
    return kernel.value("[turn.prompt.text for turn in agent.turns]")


def test_a_message_that_comes_before_all_else_goes_into_the_conversation_of_the_kernel_before(kernel, notebook):
    did(kernel, "page = docked()\npage.act('send', text='early')\npage.act('send', text='at once')\npage.turns(4)")
    assert kernel.value("page.texts('text')[-2:]") == "['I was sent 5.', 'I was sent 7.']"
    assert kernel.value("page.texts('prompt')") == "['the first', 'the second', 'early', 'at once']"
    assert notebook.saved == ["agent.jsonl"]
    assert (
        kernel.value("agent.undo().text, agent.undo().text, agent.undo().text") == "('at once', 'early', 'the second')"
    )


def test_what_was_said_is_shown_with_its_age_until_the_second_message(kernel):
    did(kernel, "page = docked().ready()")
    assert kernel.value("page.texts('prompt'), page.state['title']") == "(['the first', 'the second'], 'agent')"
    line = "The conversation goes on: 2 turns, just now."
    assert kernel.value("page.state['earlier'], page.state['offered']") == f"('{line}', None)"
    assert said(kernel) == "[]"
    assert kernel.value("page.send('third', 3), page.state['earlier']") == f"('I was sent 5.', '{line}')"
    assert kernel.value("page.send('fourth', 4), page.state['earlier']") == "('I was sent 7.', '')"


def test_one_click_begins_anew_and_what_was_there_stays_in_its_file_and_is_offered(kernel, notebook):
    did(kernel, "page = in_cell().ready()\npage.act('new')\npage.until(lambda: not page.state['earlier'])")
    assert kernel.value("looked(page)") == "([], '', 'agent')"
    assert kernel.value("page.send('anew', 1)") == "'I was sent 1.'"
    assert notebook.saved == ["agent.1.jsonl", "agent.jsonl"]


def test_cells_begin_anew_while_a_panel_is_open_that_nobody_uses_and_it_then_shows_their_conversation(kernel):
    did(kernel, "page = docked().ready()\nother = in_cell().ready()")
    assert "I was sent 1." in ask(kernel, "of a cell")
    for page in ("page", "other"):
        did(kernel, f"{page}.turns(1)")
        assert kernel.value(f"{page}.texts('prompt'), {page}.state['earlier']") == "(['of a cell'], '')"
    assert kernel.value("page.send('more', 2)") == "'I was sent 3.'"


@pytest.mark.parametrize("use", ["'retry', turn=1", "'command', line='history'", "'back'", "'fork', turn=0"])
def test_all_that_uses_what_was_said_loads_it(kernel, use):
    did(kernel, f"page = docked().ready()\npage.act({use})\npage.until(lambda: agent.turns)")


def test_a_cassette_has_the_panel_go_on_with_nothing_also_if_it_comes_later(kernel, tmp_path):
    did(kernel, "page = docked().ready()")
    did(kernel, f"%agent cassette {tmp_path / 'taped.yaml'}")
    did(kernel, "%agent replay")
    did(kernel, "page.until(lambda: not page.state['earlier'] and not page.texts('prompt'))")
    assert kernel.value("looked(docked())") == "([], '', 'agent')"


def test_a_conversation_that_needs_a_decision_is_offered_as_it_was(kernel, notebook):
    path = notebook.folder / "agent.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"type":"torn\n' + whole.partition("\n")[2])
    assert kernel.value("looked(docked())") == "([], '', 'agent')"
    padding = {"type": "notice", "kind": "info", "text": "x" * 2**20}
    path.write_text(f"{whole}{json.dumps(padding)}\n")
    assert kernel.value("looked(docked())") == "([], '', 'agent')"
    path.write_text(whole)
    did(kernel, "page = docked().ready()")
    with closing(Session(Agent(ScriptedModel(["one"])))) as elsewhere:
        elsewhere.restore(path)
        assert kernel.value("looked(docked())") == "([], '', 'agent')"
        # The panel that showed it before says that it is kept in memory only.
        assert kernel.value("page.send('third', 3)") == "'I was sent 5.'"
        assert "is being written by another kernel" in kernel.value("page.texts('notice')")
    path.unlink()


def test_a_file_that_cannot_be_read_any_more_gives_the_message_back(kernel, notebook):
    did(kernel, "page = docked().ready()")
    path = notebook.folder / "agent.jsonl"
    path.write_text("no journal\n")
    did(kernel, "page.act('send', text='third')\npage.until(lambda: page.problems and not page.texts('prompt'))")
    assert kernel.value("page.problems[0][1]") == "'third'"


def test_a_turn_that_was_cut_off_and_a_tool_in_doubt_are_told(notebook):
    kernel = notebook.kernel()
    begin(kernel)
    did(kernel, "from agentmagic import tool\nimport threading")
    did(kernel, "@tool\ndef pay():\n    'Pay.'\n    print('paying')\n    threading.Event().wait()")
    did(kernel, "agent.agent = Agent(ScriptedModel([{'calls': [{'name': 'pay', 'arguments': {}}]}]))")
    kernel.wait_for_text(kernel.send("agent.ask('Pay')"), "paying")
    kernel.restart()
    begin(kernel)
    did(kernel, "page = docked().ready()")
    told = kernel.value("page.state['earlier']")
    assert "1 turn, just now. This turn was cut off when its kernel ended." in told
    assert "In doubt: pay (notebook); you are asked before it runs again." in told
    assert kernel.value("page.send('And?', 2)") == "'I was sent 4.'"
    assert kernel.value("agent.in_doubt") == "{('notebook', 'pay')}"


def test_the_docked_panel_goes_on_with_the_conversation_that_it_began_last_and_one_of_a_cell_with_its_own(
    kernel, notebook
):
    did(kernel, "page = docked().ready()\npage.send('third', 3)")
    did(kernel, "page.act('new')\npage.until(lambda: page.state['title'] == 'agent_2')")
    assert kernel.value("looked(page)") == "([], '', None)"
    assert kernel.value("page.send('other', 1)") == "'I was sent 1.'"
    os.utime(notebook.folder / "agent.jsonl", (1e9, 1e9))
    kernel.restart()
    begin(kernel)
    did(kernel, "page = docked().ready()\ncell = in_cell().ready()")
    assert kernel.value("page.texts('prompt'), page.state['title']") == "(['other'], 'agent_2')"
    assert kernel.value("cell.texts('prompt')") == "['the first', 'the second', 'third']"
    assert kernel.value("'agent_2' in globals()") == "False"
    assert kernel.value("page.send('more', 2), len(agent_2.turns)") == "('I was sent 3.', 2)"
