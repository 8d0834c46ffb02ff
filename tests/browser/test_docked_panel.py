"""The JupyterLab extension: the panel beside the notebook, and what tells that something waits."""

import json
import os
from contextlib import nullcontext

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import EVERYWHERE, KERNEL6

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("closed_dock")]

PANEL = "Alt+Shift+P"
GO = "Alt+Shift+G"
TEA = "play(calls('order', what='tea'), 'Well then.')"


class Dock:
    """The panel beside a notebook."""

    def __init__(self, page):
        self.page = page
        self.box = page.locator(".agentmagic-dock")
        self.answers = self.box.locator(".am-text")
        self.message = self.box.get_by_label("Message", exact=True)
        self.early = self.box.get_by_label("Message, before the panel is ready")

    def open(self):
        self.page.keyboard.press(PANEL)
        self.message.wait_for()
        return self

    def button(self, name):
        return self.box.get_by_role("button", name=name, exact=True)

    def send(self, text):
        self.message.click()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def turns(self, number):
        self.box.locator(".am-figures.am-block").nth(number - 1).wait_for()


def start_waiting(notebook, index, button="Approve"):
    """Start a cell, whose turn waits for the user to press a button, and see the mark that says so."""
    notebook.start(index)
    notebook.output(index).get_by_role("button", name=button, exact=True).wait_for()
    notebook.page.locator(".jp-Toolbar .agentmagic-waits").filter(visible=True).wait_for()


@EVERYWHERE
def test_keys_open_the_panel_ask_in_it_and_go_back_to_the_notebook(open_notebook):
    notebook = open_notebook("play('one', 'two')", "%%agent\nfrom a cell")
    notebook.run(1)
    dock = Dock(notebook.page).open()
    expect(dock.message).to_be_focused()
    notebook.page.keyboard.type("hello")
    notebook.page.keyboard.press("Enter")
    dock.turns(1)
    notebook.run(2)
    dock.turns(2)
    expect(dock.answers).to_have_text(["one", "two"])
    assert serious(notebook.page, ".agentmagic-dock") == []
    dock.message.click()
    notebook.page.keyboard.press(PANEL)
    notebook.page.wait_for_function("() => harness.panel().node.contains(document.activeElement)")


@EVERYWHERE
def test_an_approval_of_a_cell_is_marked_and_given_in_the_panel(open_notebook, lab):
    notebook = open_notebook(TEA, "%%agent\ntea")
    notebook.run(1)
    page = notebook.page
    start_waiting(notebook, 2)
    if lab.front_end == "lab":
        expect(page.locator(".lm-TabBar-tab.agentmagic-waits")).to_have_attribute("title", "The agent waits for you")
        expect(page.locator(".agentmagic-status")).to_contain_text("scripted:script")
        expect(page.get_by_role("button", name="(!) waits for you")).to_be_visible()
        assert serious(page, ".agentmagic-status") == []
    page.keyboard.press(PANEL)
    dock = Dock(page)
    expect(dock.box.locator(".am-card summary").first).to_be_focused()
    page.keyboard.press("Tab")
    expect(dock.button("Approve")).to_be_focused()
    page.keyboard.press("Enter")
    notebook.finish(2)
    assert "Well then." in notebook.text(2)
    expect(page.locator(".agentmagic-waits")).to_have_count(0)
    expect(page.get_by_role("button", name="(!) waits for you")).to_have_count(0)


# -- the keystroke that goes to what waits ---------------------------------------------------------


def approve_by_keys(output):
    """Approve the call in the output of a cell, to which the keys have just gone."""
    expect(output.locator(".am-card summary").first).to_be_focused()
    expect(output.get_by_role("button", name="Approve", exact=True)).to_be_in_viewport()
    output.page.keyboard.press("Tab")
    expect(output.get_by_role("button", name="Approve", exact=True)).to_be_focused()
    output.page.keyboard.press("Enter")
    output.get_by_text("Well then.").filter(visible=True).wait_for()


@EVERYWHERE
@pytest.mark.parametrize("windowing", ["contentVisibility", "full"])
def test_one_keystroke_goes_to_a_call_that_waits_in_a_cell_out_of_sight(open_notebook, windowing):
    notebook = open_notebook(TEA, *("print('long\\n' * 60)",) * 3, "%%agent\ntea")
    notebook.use_windowing(windowing)
    for index in range(1, 5):
        notebook.run(index)
    start_waiting(notebook, 5)
    notebook.scroll_to(0)
    page = notebook.page
    page.locator(".jp-Notebook .jp-Cell").first.locator(".cm-content").click()
    page.keyboard.press(GO)
    approve_by_keys(notebook.output(-1))  # the last one of those that are in the page
    notebook.finish(5)


def test_one_keystroke_goes_to_a_call_that_waits_in_another_notebook(open_notebook):
    first = open_notebook(TEA, "%%agent\ntea")
    first.run(1)
    start_waiting(first, 2)
    second = open_notebook("1 + 1")
    page = second.page
    expect(page.get_by_role("button", name=f"(!) {first.path.name} waits for you")).to_be_visible()
    page.locator(".jp-Notebook:visible .cm-content").first.click()
    page.keyboard.press(GO)
    expect(page.locator(".lm-DockPanel-tabBar .lm-mod-current")).to_contain_text(first.path.name)
    approve_by_keys(page.locator(".jp-Notebook:visible .jp-Cell-outputWrapper").last)


@EVERYWHERE
def test_one_keystroke_goes_to_the_panel_for_a_turn_that_was_asked_there(open_notebook):
    notebook = open_notebook(TEA)
    notebook.run(1)
    dock = Dock(notebook.page).open()
    dock.send("tea")
    dock.button("Approve").wait_for()
    notebook.page.locator(".jp-Notebook .cm-content").first.click()
    notebook.page.keyboard.press(GO)
    expect(dock.box.locator(".am-card summary").first).to_be_focused()
    dock.button("Approve").click()
    dock.turns(1)


@pytest.mark.skipif(KERNEL6 not in os.environ, reason=f"{KERNEL6} is not set")
def test_one_keystroke_goes_to_the_box_in_which_an_answer_is_typed(open_notebook):
    notebook = open_notebook(TEA, "%%agent\ntea", kernel="ipykernel6")
    notebook.run(1)
    notebook.start(2)
    box = notebook.page.locator(".jp-Stdin-input")
    box.wait_for()
    notebook.page.locator(".jp-Notebook .cm-content").first.click()
    notebook.page.keyboard.press(GO)
    expect(box).to_be_focused()
    notebook.page.keyboard.type("yes")
    notebook.page.keyboard.press("Enter")
    notebook.finish(2)


STEPPED = (
    "@tool\ndef brew(what: str) -> str:\n    'Brew.'\n    return what\nplay(calls('brew', what='tea'), 'Well then.')"
)


@EVERYWHERE
def test_a_pause_of_step_mode_is_marked_and_reached_and_left_by_the_key_as_an_approval_is(open_notebook, lab):
    notebook = open_notebook(STEPPED, "print('long\\n' * 60)", "%%agent --step\n" + "hello\n" * 10, "1 + 1")
    page, output = notebook.page, notebook.output(3)
    page.set_viewport_size({"width": 1280, "height": 720})
    for index in (1, 2):
        notebook.run(index)
    start_waiting(notebook, 3, "Go on")
    if lab.front_end == "lab":
        expect(page.get_by_role("button", name="(!) waits for you")).to_be_visible()
    before = page.evaluate(CELLS)
    for sight in (0, 3):  # from afar, and from the cell itself
        notebook.scroll_to(sight)
        page.locator(".jp-Notebook .jp-Cell").nth(sight).locator(".cm-content").click()
        page.keyboard.press(GO)
        expect(output.get_by_role("button", name="Go on", exact=True)).to_be_focused()
        expect(output.get_by_role("button", name="Go on", exact=True)).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(output.locator(".am-card[data-state=waiting]")).to_be_visible()
    expect(output.get_by_role("button", name="Go on", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    output.get_by_role("group", name="Pause").get_by_text("tool: brew returned tea").wait_for()
    expect(output.get_by_role("button", name="Go on", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    notebook.finish(3)
    assert page.evaluate(CELLS) == before


@EVERYWHERE
def test_the_line_that_docks_shows_the_named_session_beside_the_notebook(open_notebook):
    notebook = open_notebook("play('one')\nother = agent.fork()", "%agent chat other --dock")
    notebook.run(1)
    notebook.run(2)
    dock = Dock(notebook.page)
    dock.message.wait_for()
    expect(dock.box.locator(".am-head")).to_contain_text("other")
    assert notebook.outputs(2) == []


# -- what is typed before the view is there ---------------------------------------------------------

CELLS = "() => harness.panel().content.widgets.map(cell => [cell.model.type, cell.model.sharedModel.getSource()])"


def by_key(page):
    page.keyboard.press(PANEL)


def by_button(page):
    page.locator(".jp-Toolbar [data-command='agentmagic:panel']").filter(visible=True).click()


def by_palette(page):
    page.keyboard.press("ControlOrMeta+Shift+C")
    # Until the palette has the focus, keys are the notebook's.
    expect(page.locator(".lm-CommandPalette-input").filter(visible=True)).to_be_focused()
    page.keyboard.type("Agent Panel")
    page.locator(".lm-CommandPalette-item.lm-mod-active", has_text="Agent Panel").wait_for()
    page.keyboard.press("Enter")


def beside(notebook, index):
    """Have the keys be the notebook's commands, in a cell."""
    notebook.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".cm-content").click()
    notebook.page.keyboard.press("Escape")
    return notebook.page.evaluate(CELLS)


@EVERYWHERE
@pytest.mark.parametrize("show", [by_key, by_button, by_palette])
def test_what_is_typed_at_the_first_opening_is_in_the_panel_and_not_in_the_notebook(open_notebook, show):
    notebook = open_notebook("play('one')", "1 + 1", "2 + 2", "3 + 3")
    notebook.run(1)
    before, page = beside(notebook, 3), notebook.page
    show(page)
    page.keyboard.type("hello aa xx 00")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("dd")
    page.keyboard.press("ArrowLeft")
    dock = Dock(page)
    dock.message.wait_for()
    expect(dock.message).to_be_focused()
    page.keyboard.type("!")
    expect(dock.message).to_have_value("hello aa xx 00\nd!d")
    assert page.evaluate(CELLS) == before
    assert page.locator(".jp-Dialog").count() == 0
    page.keyboard.press("Enter")
    dock.turns(1)


@EVERYWHERE
def test_enter_before_the_panel_is_ready_sends_once_and_the_keys_stay_there(open_notebook):
    notebook = open_notebook("play('one', 'two')", "1 + 1")
    notebook.run(1)
    before, page = beside(notebook, 2), notebook.page
    page.keyboard.press(PANEL)
    for words in ("first", "second"):
        page.keyboard.type(words)
        page.keyboard.press("Enter")
    page.keyboard.type("thi")
    dock = Dock(page)
    dock.turns(2)
    page.keyboard.type("rd")
    expect(dock.message).to_have_value("third")
    expect(dock.box.locator(".am-said")).to_have_text(["first", "second"])
    assert page.evaluate(CELLS) == before


def test_a_word_of_an_input_method_is_finished_where_it_was_begun(open_notebook):
    notebook = open_notebook("play('one')")
    notebook.run(1)
    page, dock = notebook.page, Dock(notebook.page)
    method = page.context.new_cdp_session(page)
    beside(notebook, 1)
    page.keyboard.press(PANEL)
    method.send("Input.imeSetComposition", {"text": "にほ", "selectionStart": 2, "selectionEnd": 2})
    dock.box.locator("agentmagic-view .am-composer").wait_for()
    method.send("Input.imeSetComposition", {"text": "にほん", "selectionStart": 3, "selectionEnd": 3})
    method.send("Input.insertText", {"text": "日本"})
    expect(dock.message).to_be_focused()
    page.keyboard.type("!")
    expect(dock.message).to_have_value("日本!")


def test_keys_that_have_gone_back_to_the_notebook_are_not_taken_from_it(open_notebook):
    notebook = open_notebook("play('one')", "1 + 1")
    notebook.run(1)
    beside(notebook, 2)
    page, dock = notebook.page, Dock(notebook.page)
    page.keyboard.press(PANEL)
    page.keyboard.type("hello")
    page.locator(".jp-Notebook .jp-Cell").nth(2).locator(".cm-content").click()
    dock.message.wait_for()
    expect(dock.message).to_have_value("hello")
    page.keyboard.press("End")
    page.keyboard.type(" + 1")
    assert page.evaluate(CELLS)[2] == ["code", "1 + 1 + 1"]


def test_what_is_typed_without_a_notebook_is_kept_for_the_next_one(lab):
    lab.reload()
    page, dock = lab.page, Dock(lab.page)
    page.evaluate("async () => { await jupyterapp.restored }")
    page.keyboard.press(PANEL)
    page.keyboard.type("hello")
    expect(dock.early).to_have_value("hello")
    path = lab.write("later.ipynb", ["%load_ext agentmagic"])
    notebook = lab.open(path)
    notebook.run(0)
    dock.message.wait_for()
    expect(dock.message).to_have_value("hello")
    notebook.close()


# -- the button that loads agentmagic ---------------------------------------------------------------


@EVERYWHERE
def test_loading_is_offered_asked_about_and_done(lab):
    notebook = lab.open(lab.write("unloaded.ipynb", ["1 + 1"]))
    before, page, dock = beside(notebook, 0), notebook.page, Dock(notebook.page)
    page.keyboard.press(PANEL)
    page.keyboard.type("aa hello")
    expect(dock.early).to_be_focused()
    page.keyboard.press("Enter")  # which has agentmagic loaded, and then sends
    page.get_by_role("button", name="Cancel").click()
    expect(dock.early).to_be_focused()
    expect(dock.early).to_have_value("aa hello")
    page.keyboard.press("Tab")
    expect(dock.button("Load agentmagic")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Dialog")).to_contain_text(
        "This runs %load_ext agentmagic in the kernel of unloaded.ipynb."
    )
    page.keyboard.press("Enter")
    dock.message.wait_for()
    expect(dock.message).to_be_focused()
    expect(dock.message).to_have_value("aa hello")  # the button alone sends nothing
    assert dock.box.locator(".am-problem, .am-block").filter(visible=True).count() == 0
    assert notebook.outputs(0) == []
    assert page.evaluate(CELLS) == before
    notebook.close()


def load_by_button(notebook):
    """Load agentmagic as a person does who uses keys alone."""
    dock = Dock(notebook.page)
    beside(notebook, 0)
    notebook.page.keyboard.press(PANEL)
    notebook.page.keyboard.press("Enter")
    notebook.page.locator(".jp-Dialog").wait_for()
    notebook.page.keyboard.press("Enter")
    dock.message.wait_for()
    expect(dock.message).to_be_focused()
    return dock


def prompts(path, name="agent"):
    """Return the prompts that are saved of a session of a notebook."""
    file = path.parent / ".agentmagic" / path.stem / f"{name}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line["prompt"]["parts"][0]["text"] for line in lines if line["type"] == "turn_started"]


RECIPE = "from agentmagic import Agent, ScriptedModel\nagent.agent = Agent(ScriptedModel(['one', 'two', 'three']))"


@EVERYWHERE
def test_after_a_restart_the_button_finds_the_notebook_offers_its_conversation_and_saves(lab):
    (lab.folder / f"sub {lab.front_end}").mkdir()
    notebook = lab.open(lab.write(f"sub {lab.front_end}/study.ipynb", [RECIPE, "%reload_ext agentmagic"]))
    dock = load_by_button(notebook)  # in a fresh notebook
    notebook.run(0)
    dock.send("the first")
    dock.turns(1)
    for _ in range(2):
        notebook.restart_kernel()
        dock.button("Load agentmagic").wait_for()
        dock = load_by_button(notebook)
        notebook.run(0)
        expect(dock.box.get_by_text("agent, 1 turn, ")).to_be_visible()
    dock.button("Go on with it").click()
    expect(dock.answers).to_have_text("one")
    notebook.run(1)
    dock.send("the second")
    dock.turns(2)
    assert prompts(notebook.path) == ["the first", "the second"]
    dock.button("New chat").click()
    expect(dock.box.locator(".am-title")).to_have_text("agent_2")
    dock.send("another one")
    dock.turns(1)
    assert prompts(notebook.path, "agent_2") == ["another one"]
    notebook.close()


def test_a_button_that_is_pressed_while_a_cell_runs_loads_when_it_is_over(lab):
    cell = "from agentmagic import Agent, ScriptedModel\nagent = Agent(ScriptedModel(['one']))\ninput()"
    notebook = lab.open(lab.write("busy.ipynb", [cell]))
    page, dock = notebook.page, Dock(notebook.page)
    notebook.start(0)
    page.locator(".jp-Stdin-input").wait_for()
    page.keyboard.press(PANEL)
    page.keyboard.type("hello")
    page.keyboard.press("Enter")
    page.locator(".jp-Dialog").wait_for()
    page.keyboard.press("Enter")
    dock.box.get_by_text("A cell that runs is finished first.").wait_for()
    assert dock.button("Load agentmagic").count() == 0
    page.locator(".jp-Stdin-input").press("Enter")
    dock.turns(1)
    assert prompts(notebook.path) == ["hello"]
    notebook.close()


def is_kept(answer):
    """Whether the server has just kept a layout with the panel, and not one from before it was opened."""
    request = answer.request
    is_layout = "/workspaces" in request.url and request.method == "PUT"
    return is_layout and '"current":"agentmagic-panel"' in request.post_data


@EVERYWHERE
def test_a_reload_in_a_running_cell_brings_the_panel_back_with_its_buttons(open_notebook, lab):
    notebook = open_notebook("play(calls('order', what='tea'), 'Well then.')", "%%agent\ntea")
    notebook.run(1)
    kept = notebook.page.expect_response(is_kept) if lab.front_end == "lab" else nullcontext()
    with kept:  # JupyterLab writes what it restores a moment after it has changed
        dock = Dock(notebook.page).open()
    notebook.save()
    notebook.start(2)
    dock.button("Approve").wait_for()
    notebook.page.goto(notebook.page.url.replace("?reset", ""))
    dock.button("Approve").click()
    dock.turns(1)
    expect(dock.answers).to_have_text(["Well then."])


def test_the_panel_turns_with_the_notebook_in_front(open_notebook):
    first = open_notebook("play('one')")
    first.run(1)
    dock = Dock(first.page).open()
    dock.send("to the first")
    dock.turns(1)
    second = open_notebook("play('two')")
    expect(dock.box.locator(".am-said")).to_have_count(0)
    second.run(1)
    dock.message.wait_for()
    dock.send("to the second")
    dock.turns(1)
    expect(dock.answers).to_have_text(["two"])
    first.page.get_by_role("tab", name=first.path.name).click()
    expect(dock.box.locator(".am-text")).to_have_text("one")


@EVERYWHERE
@pytest.mark.parametrize("place", ["cell", "dock"])
def test_words_come_back_where_they_were_typed_after_a_restart(open_notebook, place):
    notebook = open_notebook("play('one')", "agent.chat()")
    notebook.run(1)
    notebook.run(2)
    dock = Dock(notebook.page).open()
    cell = notebook.output(2).get_by_label("Message", exact=True)
    typed, other = (cell, dock.message) if place == "cell" else (dock.message, cell)
    typed.click()
    notebook.page.keyboard.type("words that are kept")
    notebook.restart_kernel()
    notebook.output(2).get_by_text("The kernel that held this conversation is gone.").wait_for()
    dock.button("Load agentmagic").wait_for()
    notebook.run(0)
    notebook.run(1)
    dock.message.wait_for()
    notebook.run(2)
    expect(typed).to_have_value("words that are kept")
    expect(other).to_have_value("")
