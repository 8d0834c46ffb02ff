"""The chat panel in a real kernel: where it shows what, and what its turns have of the notebook."""

import pytest

from agentmagic import Session
from agentmagic.errors import UsageError
from tests.jupyter.harness import BATCH, CONSOLE, OBLIGING

# A page that needs no browser: it clicks in the cell under way, and waits there while the main thread does its jobs.
PAGE = """
from agentmagic.runtime.engine import engine
from agentmagic.jupyter.panel import panels
from tests.widgets.page import Page

class Waiting(Page):
    def until(self, holds):
        return engine().call(engine().in_pool(lambda: Page.until(self, holds)))

def opened(*steps):
    global page
    play(*steps)
    agent.chat()
    page = Waiting(next(chat for chat in panels._chats if chat.session is agent).view)
"""


@pytest.fixture
def paged(kernel):
    """A kernel with pages that need no browser."""
    assert kernel.run(PAGE).ok
    return kernel


def test_a_cell_shows_the_place_of_the_panel_and_the_conversation_so_far(kernel):
    kernel.run("play('an **answer**')")
    assert kernel.run("agent.chat()", **BATCH).displays == []
    kernel.run("%%agent\na prompt")
    cell = kernel.run("agent.chat()")
    (written,) = cell.displays
    assert cell.count("display_data") == 2
    assert written["text/html"].startswith("<agentmagic-static ")
    assert "<strong>answer</strong>" in written["text/html"]
    assert written["text/plain"].startswith("> a prompt\n\nan **answer**")
    assert "application/vnd.jupyter.widget-view+json" not in str(cell.messages)
    (written,) = kernel.run("agent.chat()", **BATCH).displays
    assert written["text/plain"].startswith("> a prompt\n\nan **answer**")
    assert "agentmagic-static" not in written["text/html"]
    assert " ms" not in written["text/plain"]
    cell = kernel.run("agent.chat()", **CONSOLE)
    assert cell.stream.startswith("The chat panel works in JupyterLab and Notebook 7.")
    assert cell.displays == []


def test_the_magic_shows_the_panel_and_makes_the_session_that_is_named(kernel):
    assert kernel.run("%agent chat other").count("display_data") == 2
    assert kernel.value("type(other).__name__") == "'Session'"
    assert "no session" in kernel.run("x = 1\n%agent chat x").error


def test_a_panels_turn_has_the_functions_of_the_notebook_and_a_cell_waits_for_it(paged):
    paged.run("x = 2026\n@tool\ndef year() -> str:\n    'Tell the year.'\n    print('in the tool')\n    return str(x)")
    paged.run("opened(calls('year'), {'text': 'slow ' * 20, 'pace': 0.01}, 'second')")
    paged.run("page.act('send', text='Is it 2026?')\npage.until(lambda: page.state.get('running'))")
    assert paged.run("%%agent\nfrom a cell").ok
    assert paged.value("[turn.prompt.text for turn in agent.turns]") == "['Is it 2026?', 'from a cell']"
    assert paged.value("agent.turns[0].tool_failures, agent.turns[0].answer[:4]") == "(0, 'slow')"


def test_nothing_that_is_typed_in_the_panel_is_evaluated(paged):
    pasted = "{x} {ran.append(x)} {1/0 + x} {__import__('sys').exit(x)}"
    paged.run(f"x, ran = 2026, []\npasted = {pasted!r}\nopened('one', 'two', 'three', 'four')")
    steps = "'send', text=pasted", "'rewrite', turn=0, text='again ' + pasted", "'retry', turn=0"
    for step, answer in zip(steps, ("one", "two", "three"), strict=True):
        cell = paged.run(f"page.act({step})\npage.until(lambda: page.texts('text') == ['{answer}'])\npage.turns(1)")
        assert cell.ok, cell.error
        prompt = pasted if answer == "one" else f"again {pasted}"
        assert paged.value("agent.turns[0].prompt.text") == repr(prompt)
        assert paged.value("agent.model().requests[-1].messages[-1].text") == repr(prompt)
    assert paged.value("ran, page.problems") == "([], [])"
    assert paged.value("[fork.turns[0].answer for fork in (agent_2, agent_3)]") == "['one', 'two']"
    assert paged.run("%%agent\nIs it {x}?").ok  # a cell is the user's own code, and its values are put in
    assert paged.value("agent.turns[-1].prompt.text") == "'Is it 2026?'"


def test_the_servers_of_the_notebook_are_there_and_a_resource_that_is_named_goes_along(paged, add):
    add("obliging", *OBLIGING)
    paged.run("opened('one', 'two')\npage.act('send', text='Read @obliging:memo://one')\npage.turns(1)")
    parts = "[part.type for part in agent.turns[0].prompt.parts]"
    assert paged.value(parts) == "['text', 'resource']"
    paged.run("page.act('retry', turn=0)\npage.until(lambda: page.texts('text') == ['two'])\npage.turns(1)")
    assert paged.value(parts) == "['text', 'resource']"
    assert "'book'" in paged.value("[one.name for one in agent.tools]")
    assert paged.value("[row['name'] for row in page.state['servers']]") == "['obliging']"


def test_a_variable_that_is_named_in_the_panel_goes_along_with_its_value_and_others_stay_words(paged):
    paged.run("opened('one')\nsales = [1, 2]\nclass Rude:\n    def __repr__(self): raise OSError('no')\nrude = Rude()")
    written = "@sales, not a@sales, @nobody, @print, @rude, {rude} and @sale"
    paged.run(f"page.act('send', text={written!r})\npage.turns(1)")
    attached = ["[1, 2]", "<Rude: its repr raised OSError>"]
    assert paged.value("[part.text for part in agent.turns[0].prompt.parts][1:]") == str(attached)
    assert paged.value(f"agent.turns[0].prompt.parts[0].text == {written!r}") == "True"
    told = paged.value("[event.text for event in agent.turns[0].events if event.type == 'notice']")
    assert "@sale attaches nothing: no variable is named sale. Did you mean @sales?" in told


def test_a_command_of_the_panel_acts_on_its_own_session_whose_new_name_shows_in_the_head(paged):
    paged.run("opened('one')\npage.until(lambda: page.state.get('title') == 'agent')")
    paged.run("bob = agent\ndel agent")
    assert paged.run("page.until(lambda: page.state['title'] == 'bob')").ok
    paged.run("page.act('send', text='hello')\npage.turns(1)")
    paged.run("page.act('command', line='undo')\npage.until(lambda: page.printed)")
    assert "Forgotten: hello" in paged.value("page.printed[0]")
    assert paged.value("len(bob.turns)") == "0"
    paged.run("page.act('command', line='undoo')\npage.until(lambda: page.problems)")
    assert "Did you mean undo" in paged.value("page.problems[0]")
    paged.run("agent = bob\ndel bob")


def test_no_message_of_the_page_starts_a_program_or_trusts_a_file_before_the_yes_on_its_card(paged, tmp_path):
    paged.run("opened('one', 'two')\nimport shlex, sys, pathlib")
    paged.run(f"mark = pathlib.Path({str(tmp_path / 'started')!r})\ncode = f'open({{str(mark)!r}}, \"w\")'")
    paged.run("line = 'add evil ' + shlex.join([sys.executable, '-c', code])")
    paged.run("page.act('command', magic='mcp', line=line)\nasked = page.asked()")
    assert paged.value("asked['line'] == f'%mcp {line}', mark.exists(), page.state['servers']") == "(True, False, [])"
    paged.run("page.act('deny', id=asked['ask'])\npage.until(lambda: not page.state['asked'])")
    assert paged.value("mark.exists(), page.state['servers'], page.problems") == "(False, [], [])"
    paged.run("page.allow('command', magic='mcp', line=line)\npage.until(lambda: page.problems)")
    assert paged.value("mark.exists()") == "True"
    paged.run("page.act('command', magic='agent', line='rules approve')")
    assert paged.value("page.asked()['about']").startswith("\"Trusts the project's files")
    paged.run("page.act('deny', id=page.asked()['ask'])\nget_ipython().run_line_magic('mcp', 'remove evil')")


def test_what_is_typed_into_a_cell_opens_no_question(paged, add):
    add("obliging", *OBLIGING)
    paged.run("opened('one')\n%mcp allow obliging\n%agent permission trusted")
    assert paged.value("page.until(lambda: page.state.get('level') == 'trusted')") == "True"
    assert paged.value("page.state.get('asked') is None") == "True"


def test_the_panel_turns_to_a_new_conversation_and_back(paged):
    paged.run("opened('one', 'two')")
    paged.run("page.act('new')\npage.act('chats')\npage.until(lambda: page.state.get('chats'))")
    assert paged.value("page.state['title']") == "'agent'"  # a conversation without turns is new already
    paged.run("page.act('send', text='first')\npage.turns(1)\nbefore = set(globals())")
    paged.run("page.act('new')\npage.until(lambda: page.state['title'] != 'agent')\nname = page.state['title']")
    paged.run("page.act('send', text='second')\npage.turns(1)")
    assert paged.value("[one.prompt.text for one in globals()[name].turns]") == "['second']"
    assert paged.value("[one.prompt.text for one in agent.turns]") == "['first']"
    paged.run("page.act('open', name='agent', saved=False)\npage.until(lambda: page.texts('prompt') == ['first'])")
    assert paged.run("globals()[name].close()\ndel globals()[name]").ok


def test_a_fork_becomes_a_variable_that_was_free_and_is_released_once_it_is_saved(paged, tmp_path):
    paged.run("agent_2 = 'mine'\nopened('one')")
    paged.run("page.act('send', text='hello')\npage.turns(1)")
    cell = paged.run("page.act('fork', turn=0)\nprint(page.until(lambda: page.printed)[0])")
    assert "This is agent_3, with the turns up to there." in cell.stream
    assert paged.value("len(agent_3.turns), agent_2") == "(1, 'mine')"
    paged.run("page.act('open', name='agent', saved=False)\npage.until(lambda: page.state['title'] == 'agent')")
    paged.run(f"agent_3.save({str(tmp_path / 'kept.jsonl')!r})")
    paged.run("book = panels._notebooks[id(get_ipython())]\nbook.release('agent_3', 2)\nbook.release('agent', 1)")
    assert paged.value("len(agent_3.turns), len(agent.turns)") == "(1, 1)"
    paged.run("book.release('agent_3', 1)")
    assert paged.value("'agent_3' in globals()") == "False"


def test_a_script_is_told_that_it_has_no_panel():
    with pytest.raises(UsageError, match=r"In code, use session.ask\(\)."):
        Session("scripted:x").chat()
