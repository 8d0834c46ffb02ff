"""The chat panel in JupyterLab: everything it does, done by clicks and keys."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import EVERYWHERE, PLANNED
from tests.browser.lab import ROOT, retype

pytestmark = pytest.mark.browser

SERVER = ROOT / "tests" / "tools" / "mcp" / "servers" / "raw.py"
WORDS = " ".join(f"word{number}" for number in range(400))

SETUP = """
%load_ext agentmagic
import os, sys
from agentmagic import Agent, Session, tool
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Stalled

year = 2026

def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}

def play(*steps):
    global agent
    agent = Session(Agent(ScriptedModel(list(steps))))

@tool(ask=True)
def order(what: str) -> str:
    "Order."
    print("brewing", what)
    return "ordered " + what
"""


class Panel:
    """A panel in the output of a cell."""

    def __init__(self, notebook, cell):
        self.notebook = notebook
        self.cell = cell
        self.page = notebook.page
        self.box = notebook.output(cell).locator(".am-panel")
        self.message = self.box.get_by_label("Message", exact=True)
        self.prompts = self.box.locator(".am-said")
        self.answers = self.box.locator(".am-text")
        self.message.wait_for()

    def send(self, text):
        retype(self.message, text)
        self.message.press("Enter")

    def button(self, name):
        return self.box.get_by_role("button", name=name, exact=True)

    def wait_for(self, text):
        self.box.get_by_text(text).first.wait_for()

    def turns(self, number):
        """Wait until so many turns are over."""
        self.box.locator(".am-figures.am-block").nth(number - 1).wait_for()

    def do(self, turn, name):
        """Press one of the buttons beside a prompt."""
        prompt = self.box.locator(".am-prompt").nth(turn)
        prompt.hover()
        prompt.get_by_role("button", name=name, exact=True).click()

    def menu(self, name):
        self.box.locator("summary[aria-label=More]").click()
        self.button(name).click()

    def written(self):
        """The text of the conversation in the saved notebook."""
        return self.notebook.outputs(self.cell)[1]["data"]["text/plain"]


@pytest.fixture
def open_notebook(lab):
    opened = []

    def open_(*cells):
        number = len(list(lab.folder.iterdir()))
        notebook = lab.open(lab.write(f"panel{number}.ipynb", [SETUP, *cells]))
        opened.append(notebook)
        notebook.run(0)
        return notebook

    yield open_
    for notebook in opened:
        notebook.close()


@pytest.fixture
def open_panel(open_notebook):
    """Opens a panel in the cell behind one that prepares it."""

    def open_(prepare, *cells):
        notebook = open_notebook(prepare, "agent.chat()", *cells)
        notebook.run(1)
        notebook.run(2)
        return Panel(notebook, 2)

    return open_


def test_a_message_is_answered_as_the_words_come_and_stays_in_the_notebook(open_panel):
    panel = open_panel(f"play({{'text': {WORDS!r}, 'pace': 0.005}})")
    panel.send("hello {year}")
    part = "box => box.textContent.includes('word5') && !box.textContent.includes('word399')"
    panel.page.wait_for_function(part, arg=panel.box.element_handle())
    panel.turns(1)
    expect(panel.prompts).to_have_text(["hello {year}"], use_inner_text=True)
    panel.wait_for("word399")
    panel.notebook.page.wait_for_function(
        "index => JSON.stringify(harness.cell(index).model.outputs.toJSON()).includes('word399')", arg=2
    )
    assert panel.written().startswith("> hello {year}\n\nword0 word1")
    expect(panel.box.locator(".am-head")).to_contain_text("tokens, no charge")


def test_stop_ends_the_turn_in_the_middle(open_panel):
    panel = open_panel("agent = Session(Agent(Stalled('half an ans')))")
    panel.send("hello")
    panel.wait_for("half an")
    panel.button("Stop").click()
    panel.turns(1)
    expect(panel.box.locator(".am-figures.am-block")).to_contain_text("interrupted")


@pytest.mark.parametrize("answer", ["approve", "edit", "deny"])
def test_a_call_is_approved_edited_and_denied_by_its_buttons(open_panel, answer):
    panel = open_panel("play(calls('order', what='tea'), 'Well then.')")
    panel.send("tea please")
    card = panel.box.locator(".am-card")
    card.get_by_role("button", name="Approve", exact=True).wait_for()
    if answer == "approve":
        panel.button("Approve").click()
    elif answer == "edit":
        panel.button("Edit").click()
        retype(card.get_by_label("what"), "coffee")
        panel.button("Approve as edited").click()
    else:
        panel.button("Deny…").click()
        panel.page.keyboard.type("not today")
        panel.page.keyboard.press("Enter")
    panel.wait_for("Well then.")
    card.locator("summary").first.click()
    shown = {"approve": "ordered tea", "edit": "ordered coffee", "deny": "not today"}[answer]
    card.get_by_text(shown).wait_for()
    if answer == "deny":
        assert "brewing" not in panel.notebook.text(2)
    else:
        panel.notebook.wait_for_text(2, "brewing")  # what is printed comes after the result, at times


def test_a_turn_runs_again_with_the_same_prompt_and_with_another(open_panel):
    panel = open_panel("play('one', 'two', 'three', 'four')")
    for number, text in enumerate(("first", "second"), 1):
        panel.send(text)
        panel.turns(number)
    panel.do(1, "Run again")
    panel.wait_for("three")
    expect(panel.prompts).to_have_text(["first", "second"], use_inner_text=True)
    panel.do(0, "Edit and run again")
    panel.wait_for("1 later turn will go")
    retype(panel.box.get_by_label("Edit your message"), "other {year}")
    panel.page.keyboard.press("Enter")
    panel.wait_for("four")
    expect(panel.prompts).to_have_text(["other {year}"], use_inner_text=True)
    expect(panel.answers).to_have_text(["four"])


@EVERYWHERE
def test_shift_enter_breaks_the_line_in_a_new_message_and_in_one_that_is_edited(open_panel):
    panel = open_panel("play('one', 'two')")
    keys = panel.page.keyboard
    panel.message.focus()
    keys.type("draft")
    keys.press("Shift+Enter")
    expect(panel.message).to_have_value("draft\n")
    keys.press("ControlOrMeta+z")
    expect(panel.message).to_have_value("")
    keys.type("first")
    keys.press("Shift+Enter")
    keys.type("second")
    keys.press("Enter")
    panel.turns(1)
    expect(panel.prompts).to_have_text([re.compile(r"^first\nsecond$")], use_inner_text=True)
    panel.do(0, "Edit and run again")
    expect(panel.box.get_by_label("Edit your message")).to_be_focused()
    keys.press("ControlOrMeta+End")
    keys.press("Shift+Enter")
    keys.type("third")
    keys.press("Enter")
    panel.wait_for("two")
    expect(panel.prompts).to_have_text([re.compile(r"^first\nsecond\nthird$")], use_inner_text=True)


@EVERYWHERE
def test_what_waits_and_stop_are_in_sight_where_the_end_of_the_panel_is_not(open_panel):
    panel = open_panel("play(calls('order', what='tea'), 'It comes.')\nprint('\\n' * 10)")
    panel.send("tea please")
    panel.button("Approve").wait_for()
    panel.notebook.scroll_to(0)
    bar = panel.notebook.output(2).locator(".am-pin")
    expect(bar.get_by_text("order waits for your approval")).to_be_in_viewport(ratio=1)
    stop = bar.get_by_role("button", name="Stop")
    expect(stop).to_be_in_viewport(ratio=1)
    expect(panel.message).not_to_be_in_viewport()
    stop.click()
    panel.turns(1)
    expect(bar).to_be_hidden()


def test_a_fork_becomes_a_variable_with_a_panel_of_its_own(open_panel):
    panel = open_panel("play('one', 'two', 'three')", "%agent chat agent_2", "len(agent.turns)")
    for number, text in enumerate(("first", "second"), 1):
        panel.send(text)
        panel.turns(number)
    panel.do(0, "Fork from here")
    panel.wait_for("agent_2.chat()")
    panel.notebook.run(3)
    fork = Panel(panel.notebook, 3)
    fork.turns(1)
    fork.send("another way")
    fork.turns(2)
    expect(fork.prompts).to_have_text(["first", "another way"], use_inner_text=True)
    assert panel.notebook.run(4).strip().endswith("2")


def test_a_model_is_chosen_for_the_next_turn(open_panel, lab):
    (lab.folder / "one.json").write_text('["from the one"]')
    (lab.folder / "other.json").write_text('["from the other"]')
    panel = open_panel("agent = Session(Agent('scripted:other.json'))", "%agent models scripted:one.json")
    panel.notebook.run(3)
    choice = panel.box.get_by_label("Model", exact=True)
    panel.page.wait_for_function("choice => choice.value === 'scripted:one.json'", arg=choice.element_handle())
    choice.select_option("scripted:other.json")
    panel.send("hello")
    panel.wait_for("from the other")


def test_the_servers_tab_disconnects_connects_and_takes_tools_away(open_panel):
    panel = open_panel(
        f"%mcp add raw {{sys.executable}} {SERVER}\nplay('one', 'two')",
        "print([tool.name for tool in agent.tools if tool.server == 'raw'])",
    )
    panel.box.get_by_role("tab", name="Servers 1").click()
    panel.box.get_by_text("12 tools").click()
    panel.box.get_by_label("echo", exact=True).uncheck()
    panel.wait_for("11 of 12 tools")
    assert panel.box.get_by_label("echo", exact=True).evaluate("box => box === box.getRootNode().activeElement")
    panel.box.get_by_role("tab", name="Chat").click()
    panel.send("hello")
    panel.turns(1)
    tools = panel.notebook.run(3)
    assert "wait" in tools
    assert "echo" not in tools
    panel.box.get_by_role("tab", name="Servers 1").click()
    panel.button("Disconnect raw").click()
    panel.button("Connect raw").wait_for()
    panel.box.get_by_role("tab", name="Chat").click()
    panel.send("and now")
    panel.turns(2)
    assert panel.notebook.run(3).strip() == "[]"
    panel.box.get_by_role("tab", name="Servers 1").click()
    panel.button("Connect raw").click()
    panel.button("Disconnect raw").wait_for()


def test_the_inspector_shows_what_the_last_turn_sent_and_follows_the_next(open_panel):
    panel = open_panel("play('one', 'two')")
    panel.send("hello there")
    panel.turns(1)
    panel.box.get_by_role("tab", name="Chat").press("ArrowLeft")
    panel.wait_for("Turn 1, scripted:script: hello there")
    panel.box.get_by_role("searchbox").focus()
    panel.page.keyboard.type("hello")
    panel.wait_for('"text": "hello there"')
    panel.box.get_by_role("tab", name="Chat").click()
    panel.send("and now")
    panel.turns(2)
    panel.box.get_by_role("tab", name="Inspector").click()
    panel.wait_for("Turn 2, scripted:script: and now")
    panel.button("Earlier turn").press("Enter")
    panel.wait_for("Turn 1, scripted:script: hello there")


def test_what_was_cleared_comes_back_by_a_click_and_what_runs_again_is_kept_as_a_fork(open_panel):
    panel = open_panel("play('one', 'two', 'one again')", "[turn.answer for turn in agent_2.turns]")
    for number, text in enumerate(("first", "second"), 1):
        panel.send(text)
        panel.turns(number)
    panel.menu("Clear")
    panel.page.keyboard.press("Enter")
    panel.wait_for("Cleared 2 turns.")
    panel.button("Undo").click()
    panel.turns(2)
    expect(panel.prompts).to_have_text(["first", "second"], use_inner_text=True)
    panel.do(0, "Run again")
    panel.wait_for("1 later turn will go, and be kept as a fork.")
    panel.page.keyboard.press("Enter")
    panel.wait_for("is kept as agent_2")
    panel.wait_for("one again")
    expect(panel.prompts).to_have_text(["first"], use_inner_text=True)
    assert panel.notebook.run(3).strip().endswith("['one', 'two']")


GROW = """
rows = [1]
@tool
def grow() -> str:
    "Grow."
    rows.append(2)
    return "grown"
play(calls('grow'), 'It has grown.')
"""


def test_undo_and_redo_take_the_variables_along_by_keys_in_the_menu_and_in_the_box(open_panel):
    panel = open_panel(GROW, "rows, len(agent.turns)")
    panel.send("grow it")
    panel.turns(1)
    for name, told, value in (
        ("Undo", "Forgotten: grow it", "([1], 0)"),
        ("Redo", "Back again: grow it", "([1, 2], 1)"),
    ):
        panel.box.locator("summary[aria-label=More]").focus()
        panel.page.keyboard.press("Enter")
        panel.button(name).focus()
        panel.page.keyboard.press("Enter")
        panel.wait_for(told)
        panel.wait_for("Put back: rows.")
        assert value in panel.notebook.run(3)
    expect(panel.prompts).to_have_text(["grow it"], use_inner_text=True)
    panel.message.focus()
    panel.page.keyboard.type("/undo ")
    panel.page.keyboard.press("Enter")
    panel.wait_for("Nothing asked yet.")
    assert "([1], 0)" in panel.notebook.run(3)


def test_a_conversation_is_exported_and_cleared(open_panel, lab):
    panel = open_panel("play('one')")
    panel.send("hello")
    panel.turns(1)
    panel.menu("Export as Markdown")
    panel.wait_for("Wrote 1 turn to ")
    name = panel.box.locator(".am-told").inner_text().split()[-1].rstrip(".")
    assert "hello" in (lab.folder / name).read_text()
    panel.menu("Clear")
    panel.page.keyboard.press("Enter")
    panel.box.get_by_text("Nothing asked yet.").wait_for()
    panel.page.wait_for_function("index => !harness.cell(index).model.outputs.toJSON()[1].data['text/plain']", arg=2)


def test_an_empty_panel_says_what_answers_and_its_examples_go_into_the_box(open_panel):
    panel = open_panel("play('A table.')\nimport pandas as pd\nsales = pd.DataFrame({'name': ['Lamp'], 'total': [1]})")
    panel.wait_for("Nothing asked yet.")
    panel.wait_for("scripted:script answers.")
    panel.box.get_by_role("button", name="What is in @sales").click()
    expect(panel.message).to_have_value("What is in @sales, and what stands out?")
    expect(panel.message).to_be_focused()
    panel.page.keyboard.press("Enter")
    panel.turns(1)
    values = panel.box.locator(".am-values")
    values.locator("summary").click()
    expect(values.get_by_role("cell", name="Lamp", exact=True)).to_be_visible()


def test_the_up_key_brings_earlier_prompts_back_and_the_down_key_the_draft(open_panel):
    panel = open_panel("play('one', 'two')")
    for number, text in enumerate(("first", "second"), 1):
        panel.send(text)
        panel.turns(number)
    keys = panel.page.keyboard
    keys.type("a draft")
    for key, text in [("Up", "second"), ("Up", "first"), ("Up", "first"), ("Down", "second"), ("Down", "a draft")]:
        keys.press(f"Arrow{key}")
        expect(panel.message).to_have_value(text)
    keys.press("Shift+Enter")
    keys.type("of two lines")
    keys.press("ArrowUp")
    expect(panel.message).to_have_value("a draft\nof two lines")
    keys.press("ArrowUp")
    expect(panel.message).to_have_value("second")


@EVERYWHERE
def test_keys_complete_variables_and_commands_and_a_command_answers_without_a_turn(open_panel):
    panel = open_panel("play('one')\nsalary, sales = [1], [2]", "[part.text for part in agent.turns[0].prompt.parts]")
    keys = panel.page.keyboard
    panel.message.focus()
    keys.type("look at @sal")
    options = panel.box.get_by_role("listbox", name="Suggestions").get_by_role("option")
    expect(options).to_have_text(["@salarylist", "@saleslist"])
    keys.press("ArrowDown")
    keys.press("Tab")
    expect(panel.message).to_have_value("look at @sales ")
    expect(options.first).to_be_hidden()
    keys.type("{year}")
    keys.press("Enter")
    panel.turns(1)
    keys.type("/co")
    expect(options).to_have_count(1)
    keys.press("Enter")
    expect(panel.message).to_have_value("/cost ")
    keys.press("Enter")
    panel.box.locator(".am-told", has_text="request").wait_for()
    expect(panel.prompts).to_have_text(["look at @sales {year}"], use_inner_text=True)
    expect(panel.box.locator(".am-values summary")).to_contain_text("@sales: [2]")
    assert "['look at @sales {year}', '[2]']" in panel.notebook.run(3)


def test_a_new_chat_begins_empty_and_the_list_leads_back(open_panel):
    panel = open_panel("play('one', 'two')", "[len(agent.turns), len(agent_2.turns)]", "agent.chat()")
    panel.send("first")
    panel.turns(1)
    panel.button("New chat").click()
    title = panel.box.locator(".am-title")
    expect(title).to_have_text("agent_2")
    panel.wait_for("Nothing asked yet.")
    panel.send("second")
    panel.wait_for("two")
    panel.turns(1)
    expect(panel.prompts).to_have_text(["second"], use_inner_text=True)
    assert "[1, 1]" in panel.notebook.run(3)
    panel.box.locator(".am-chats summary").press("Enter")
    panel.box.get_by_role("button", name="agent 1 turn").press("Enter")
    expect(title).to_have_text("agent")
    expect(panel.prompts).to_have_text(["first"], use_inner_text=True)
    panel.notebook.run(4)
    expect(Panel(panel.notebook, 4).box.locator(".am-said")).to_have_text(["first"])


def test_a_conversation_is_not_left_while_its_turn_runs(open_panel):
    panel = open_panel("agent = Session(Agent(Stalled('half an ans')))")
    panel.send("hello")
    panel.wait_for("half an")
    panel.button("New chat").click()
    panel.box.get_by_role("alert").get_by_text("under way").wait_for()
    panel.button("Stop").click()
    panel.turns(1)


def test_a_saved_conversation_is_opened_in_the_panel_of_a_new_kernel_and_not_saved_twice(open_notebook):
    notebook = open_notebook("agent.chat()")
    panel_agent = "agent.agent = Agent(ScriptedModel(['an answer', 'another']))"
    notebook.run(1)
    panel = Panel(notebook, 1)
    notebook.page.evaluate("async code => { await harness.kernel().requestExecute({code}).done }", panel_agent)
    panel.send("kept where")
    panel.turns(1)
    notebook.page.wait_for_function(
        "() => harness.cell(1).model.outputs.toJSON()[1].data['text/plain'].includes('1 turn')"
    )
    assert "kept where" not in str(notebook.outputs(1))
    notebook.page.evaluate("async () => { await harness.panel().sessionContext.restartKernel() }")
    notebook.page.wait_for_function("() => harness.ready()")
    notebook.run(0)
    notebook.run(1)
    panel = Panel(notebook, 1)
    panel.wait_for("Nothing asked yet.")
    panel.box.locator(".am-chats summary").click()
    panel.box.get_by_role("button", name="agent 1 turn, just now").click()
    panel.turns(1)
    expect(panel.prompts).to_have_text(["kept where"], use_inner_text=True)


def test_a_model_of_any_name_is_chosen_by_keys(open_panel):
    panel = open_panel("play('one')", "agent.agent.model")
    choice = panel.box.get_by_label("Model", exact=True)
    choice.select_option("Other model…")
    keys = panel.page.keyboard
    keys.type("openai-chat:my-model")
    keys.press("Enter")
    expect(choice).to_have_value("openai-chat:my-model")
    assert "'openai-chat:my-model'" in panel.notebook.run(3)
    choice.select_option("Other model…")
    keys.type("nobody:x")
    keys.press("Enter")
    panel.box.get_by_role("alert").get_by_text("No provider answers to 'nobody:x'").wait_for()
    expect(choice).to_have_value("openai-chat:my-model")


def test_the_servers_tab_adds_a_server_describes_its_tools_and_always_allows_them(open_panel):
    panel = open_panel("play(calls('raw_echo', text='tea'), 'Well then.')", "import sys; sys.executable")
    python = panel.notebook.run(3).strip().strip("'").split("'")[-1]
    panel.box.get_by_role("tab", name="Servers").click()
    panel.box.get_by_label("Name of the server").press_sequentially("raw")
    line = panel.box.get_by_label("Its command line or web address")
    line.press_sequentially(f"{python} {SERVER}")
    line.press("Enter")
    panel.box.get_by_text("12 tools", exact=True).click()
    panel.button("Always allow echo").click()
    panel.box.get_by_text("runs without asking").wait_for()
    panel.box.locator(".am-tool", has_text="echo").locator("summary").first.click()
    panel.box.get_by_role("tab", name="Chat").click()
    panel.send("hello")
    panel.turns(1)
    assert panel.box.get_by_role("button", name="Approve").count() == 0


def test_a_panel_fills_an_output_view_of_its_own(open_panel):
    panel = open_panel("play('one')")
    panel.page.evaluate(
        "async () => { harness.panel().content.activeCellIndex = 2;"
        " await jupyterapp.commands.execute('notebook:create-output-view') }"
    )
    view = panel.page.locator(".jp-LinkedOutputView")
    view.locator(".am-panel").wait_for()
    view.locator(".am-panel").evaluate("panel => { window.panel = panel }")
    panel.page.wait_for_function(
        """() => {
          const [seen, filled] = [document.querySelector('.jp-LinkedOutputView'), panel].map(node => node.offsetHeight)
          return seen * 0.9 < filled && filled <= seen
        }"""
    )


def reopened(lab, panel):
    """The panel after the person has loaded the page anew, without having saved since the last word."""
    panel.notebook.save()
    lab.reload()
    return Panel(lab.open(panel.notebook.path), panel.cell)


def test_a_reload_in_the_middle_of_a_turn_shows_all_of_it_and_the_rest_as_it_comes(open_panel, lab):
    panel = open_panel("play('one', calls('order', what='tea'), 'It comes.')")
    panel.send("first")
    panel.turns(1)
    panel.send("tea please")
    panel.button("Approve").wait_for()
    panel = reopened(lab, panel)
    expect(panel.prompts).to_have_text(["first", "tea please"], use_inner_text=True)
    panel.button("Approve").click()
    panel.wait_for("It comes.")
    expect(panel.notebook.output(2).locator("agentmagic-static")).to_be_hidden()


@EVERYWHERE
def test_a_panel_whose_kernel_was_restarted_keeps_the_words_and_starts_again_with_its_conversation(open_panel):
    panel = open_panel("agent.agent = Agent(ScriptedModel(['one', 'two']))")
    panel.send("first")
    panel.turns(1)
    panel.message.press_sequentially("words that are")
    panel.notebook.restart_kernel()
    panel.box.get_by_role("alert").get_by_text("The kernel that held this conversation is gone.").wait_for()
    panel.message.press_sequentially(" kept")
    panel.message.press("Enter")
    expect(panel.message).to_have_value("words that are kept")
    panel.notebook.run(0)
    panel.notebook.run(1)
    panel.button("Start again").click()
    expect(panel.box.get_by_role("alert")).to_be_hidden()
    panel.turns(1)
    expect(panel.prompts).to_have_text(["first"], use_inner_text=True)
    expect(panel.answers).to_have_text(["one"])
    expect(panel.message).to_have_value("words that are kept")
    panel.message.press("Enter")
    panel.turns(2)
    expect(panel.prompts).to_have_text(["first", "words that are kept"], use_inner_text=True)


def test_a_kernel_that_hears_no_panel_while_a_cell_runs_is_not_taken_for_gone(open_notebook):
    notebook = open_notebook("play('one')", "agent.chat()", "import time\ntime.sleep(8)")
    notebook.page.evaluate("() => { harness.kernel().commsOverSubshells = 'disabled' }")
    notebook.run(1)
    notebook.run(2)
    panel = Panel(notebook, 2)
    notebook.start(3)
    panel.send("hello")
    panel.turns(1)
    expect(panel.prompts).to_have_text(["hello"], use_inner_text=True)
    expect(panel.message).to_have_value("")


def test_words_typed_in_a_panel_whose_kernel_is_gone_are_in_the_one_that_is_shown_next(open_panel):
    panel = open_panel("play('one')")
    panel.message.press_sequentially("kept")
    panel.notebook.restart_kernel()
    panel.button("Start again").wait_for()
    for cell in range(3):
        panel.notebook.run(cell)
    expect(Panel(panel.notebook, 2).message).to_have_value("kept")


def test_a_second_view_keeps_in_step(open_panel):
    panel = open_panel("play('one', 'two')", "agent.chat()")
    panel.send("first")
    panel.turns(1)
    panel.notebook.run(3)
    other = Panel(panel.notebook, 3)
    expect(other.answers).to_have_text(["one"])
    other.send("second")
    panel.wait_for("two")
    other.wait_for("two")
    panel.page.wait_for_function("() => harness.cell(3).model.outputs.toJSON()[1].data['text/plain'].includes('two')")
    assert panel.written() == "The chat panel is shown again in another cell of this notebook."


def test_a_saved_notebook_shows_the_conversation_without_its_kernel(open_panel, lab):
    panel = open_panel("play('an **answer**')")
    panel.send("hello")
    panel.turns(1)
    panel.page.wait_for_function(
        "index => JSON.stringify(harness.cell(index).model.outputs.toJSON()).includes('answer')", arg=2
    )
    panel.notebook.save()
    panel.notebook.close()
    lab.reload()
    output = lab.open(panel.notebook.path).output(2)
    output.locator("strong", has_text="answer").wait_for()
    assert output.get_by_text("hello").is_visible()
    assert output.locator(".am-panel").count() == 0
    assert "not found" not in output.inner_text()


def test_a_turn_of_a_cell_shows_in_the_panel_and_a_message_waits_for_it(open_panel):
    panel = open_panel(
        "play({'text': 'slowly'} | calls('order', what='tea'), 'It comes.', 'after it')",
        "%%agent\nfrom a cell",
        "[turn.prompt.text for turn in agent.turns]",
    )
    panel.notebook.start(3)
    panel.wait_for("slowly")
    expect(panel.prompts).to_have_text(["from a cell"], use_inner_text=True)
    panel.send("from the panel")
    panel.wait_for("“from the panel” waits for the turn under way.")
    panel.button("Take back").click()
    expect(panel.message).to_have_value("from the panel")
    panel.message.press("Enter")
    panel.wait_for("“from the panel” waits for the turn under way.")
    panel.button("Approve").click()
    panel.notebook.finish(3)
    panel.wait_for("after it")
    assert "['from a cell', 'from the panel']" in panel.notebook.run(4)


def focused(panel):
    """What the keys go to: its label, or its words."""
    element = panel.box.evaluate_handle("panel => panel.getRootNode().activeElement")
    return element.evaluate("element => element?.getAttribute('aria-label') ?? element?.innerText")


def test_keys_alone_are_enough(open_panel):
    panel = open_panel("play(calls('order', what='tea'), 'Well then.')")
    page = panel.page
    panel.message.focus()
    page.keyboard.type("tea please")
    page.keyboard.press("Enter")
    panel.button("Approve").wait_for()
    reached = [focused(panel)]
    while reached[-1] != "Approve" and len(reached) < 12:
        page.keyboard.press("Shift+Tab")
        reached.append(focused(panel))
    page.keyboard.press("Enter")
    panel.wait_for("Well then.")
    assert reached == ["Message", "Deny…", "Edit", "Always allow", "Approve"]


def test_what_cannot_be_done_is_said_and_the_words_come_back(open_panel):
    panel = open_panel("agent = Session(Agent('nobody:x'))")
    panel.send("hello")
    panel.box.get_by_role("alert").get_by_text("No provider answers to 'nobody:x'").wait_for()
    expect(panel.message).to_have_value("hello")


@EVERYWHERE
def test_a_plan_is_begun_answered_and_resumed_by_keys(open_panel):
    panel = open_panel(f"{PLANNED}\nplay(*STEPS, 'It is 3.')")
    keys = panel.page.keyboard
    panel.message.click()
    keys.type("Add the number to 1.")
    keys.press("Tab")
    keys.press("Space")
    expect(panel.box.get_by_label("Plan first")).to_be_checked()
    keys.press("Shift+Tab")
    keys.press("Enter")
    panel.box.get_by_label("Your answer").click()
    keys.type("two")
    keys.press("Enter")
    expect(panel.box.locator(".am-plan-heading")).to_have_text("Plan: 1 of 2 done, 1 running")
    panel.button("Stop").click()
    panel.turns(1)
    panel.wait_for("The plan was cut off with 1 open task.")
    assert serious(panel.page, "agentmagic-view") == []
    panel.button("Resume").focus()
    keys.press("Enter")
    panel.button("Approve").focus()
    keys.press("Enter")
    panel.wait_for("It is 3.")
    expect(panel.box.locator(".am-plan-heading").last).to_have_text("Plan: 2 of 2 done")
    expect(panel.button("Resume")).to_have_count(0)
    assert "Which word?\n\ntwo" in panel.box.locator(".am-question").first.inner_text()


def test_a_stranger_without_a_key_is_told_so_in_sight_and_chooses_a_model_by_keys(open_panel):
    panel = open_panel("")
    keys = panel.page.keyboard
    model = panel.box.get_by_label("Model", exact=True)
    expect(model.locator("option:checked")).to_have_text("Choose a model")
    panel.message.click()
    keys.type("hello")
    keys.press("Enter")
    expect(panel.box.get_by_role("alert").filter(has_text="%agent models local:")).to_be_in_viewport()
    expect(panel.message).to_have_value("hello")
    model.focus()
    keys.type("local")
    keys.press("Enter")
    panel.wait_for("local:qwen2.5-coder-1.5b answers.")
    expect(model).to_have_value("local:qwen2.5-coder-1.5b")
