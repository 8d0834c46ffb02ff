"""The JupyterLab extension: the panel beside the notebook, and what tells that something waits."""

import json
from contextlib import nullcontext
from importlib.metadata import version

import pytest
from packaging.version import Version
from playwright.sync_api import expect

from tests.browser.axe import serious, unnamed
from tests.browser.cells import EVERYWHERE, Cell, Seen, editor, run_by_palette, save_with, see_mark, sources

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("closed_dock")]

PANEL = "Alt+Shift+P"
GO = "Alt+Shift+G"
TEA = "calls('order', what='tea')"
ANSWERED = f"play({TEA}, 'Well then.')"


class Dock(Seen):
    """The panel beside a notebook."""

    def __init__(self, notebook):
        super().__init__(notebook, notebook.page.locator(".agentmagic-dock"))
        self.early = self.root.get_by_label("Message, before the panel is ready")

    def open(self):
        self.press(PANEL)
        self.message.wait_for()
        expect(self.message).to_be_focused()
        return self


def start_waiting(notebook, index, button="Approve"):
    """Start a cell, whose turn waits for the user to press a button, and see the mark that says so."""
    notebook.start(index)
    notebook.output(index).get_by_role("button", name=button, exact=True).wait_for()
    see_mark(notebook)


def approve_by_keys(output):
    """Approve the call in an output or a panel, to which the keys have just gone."""
    expect(output.get_by_role("group", name="Approval of order").first).to_be_focused()
    expect(output.get_by_role("button", name="Approve", exact=True)).to_be_in_viewport()
    output.page.keyboard.press("y")
    output.get_by_text("Well then.").filter(visible=True).wait_for()


def test_keys_open_the_panel_ask_and_approve_in_it_and_go_back_to_the_notebook(open_notebook):
    notebook = open_notebook(f"play('one', 'two', {TEA}, 'Well then.')", "%%agent\nfrom a cell", run=1)
    dock = Dock(notebook).open()
    dock.keys.type("hello")
    dock.press("Enter")
    dock.turns(1)
    notebook.run(2)
    dock.turns(2)
    expect(dock.answers).to_have_text(["one", "two"])
    assert serious(notebook.page, ".agentmagic-dock") == []
    dock.send("tea")
    dock.button("Approve").wait_for()
    if Version(version("jupyterlab")) >= Version("4.6"):  # an older one does not hide the icons of tabs from readers
        assert unnamed(notebook.page) == []
    see_mark(notebook)
    editor(notebook, 1).click()
    dock.press(GO)
    approve_by_keys(dock.root)
    dock.message.click()
    dock.press(PANEL)
    notebook.page.wait_for_function("() => harness.panel().node.contains(document.activeElement)")


def test_an_approval_of_a_cell_is_marked_and_given_in_the_panel(open_notebook):
    notebook = open_notebook(ANSWERED, "%%agent\ntea", run=1)
    page = notebook.page
    start_waiting(notebook, 2)
    mark = page.get_by_role("button", name="(!) waits for you")
    expect(page.locator(".lm-TabBar-tab.agentmagic-waits")).to_have_attribute("title", "The agent waits for you")
    expect(page.locator(".agentmagic-status")).to_contain_text("scripted:script")
    expect(mark).to_be_visible()
    assert serious(page, ".agentmagic-status") == []
    page.keyboard.press(PANEL)
    approve_by_keys(Dock(notebook).root)
    notebook.finish(2, "Well then.")
    for gone in (page.locator(".agentmagic-waits"), mark):
        expect(gone).to_have_count(0)


def test_the_status_bar_says_which_model_was_chosen_in_the_panel(open_notebook):
    notebook = open_notebook("play('one')", run=1)
    status = notebook.page.locator(".agentmagic-status")
    expect(status).to_contain_text("scripted:script answers")
    dock = Dock(notebook).open()
    dock.root.get_by_label("Model", exact=True).focus()
    dock.keys.type("l")
    dock.root.locator(".am-page-question", has_text="%agent models local:qwen2.5-coder-1.5b").wait_for()
    dock.press("n")
    expect(dock.root.get_by_label("Model", exact=True)).to_have_value("scripted:script")
    expect(dock.root.get_by_label("Model", exact=True)).to_be_focused()
    dock.keys.type("l")
    dock.allow("%agent models local:qwen2.5-coder-1.5b")
    expect(status).to_contain_text("local:qwen2.5-coder-1.5b answers")


# -- the keystroke that goes to what waits ---------------------------------------------------------


def test_one_keystroke_goes_to_a_call_that_waits_in_a_cell_out_of_sight(open_notebook):
    notebook = open_notebook(ANSWERED, *("print('long\\n' * 60)",) * 3, "%%agent\ntea")
    notebook.use_windowing("full")
    for index in range(1, 5):
        notebook.run(index)
    start_waiting(notebook, 5)
    notebook.page.mouse.move(500, 400)
    notebook.page.mouse.wheel(0, -100_000)
    editor(notebook, 0).click()
    notebook.page.keyboard.press(GO)
    approve_by_keys(notebook.output(-1))  # the last one of those that are in the page
    notebook.finish(5)


def test_one_keystroke_goes_to_a_call_that_waits_in_another_notebook(open_notebook):
    first = open_notebook(ANSWERED, "%%agent\ntea", run=1)
    start_waiting(first, 2)
    page = open_notebook("1 + 1").page
    expect(page.get_by_role("button", name=f"(!) {first.path.name} waits for you")).to_be_visible()
    page.locator(".jp-Notebook:visible .cm-content").first.click()
    page.keyboard.press(GO)
    expect(page.locator(".lm-DockPanel-tabBar .lm-mod-current")).to_contain_text(first.path.name)
    approve_by_keys(page.locator(".jp-Notebook:visible .jp-Cell-outputWrapper").last)


def test_a_pause_of_step_mode_is_marked_and_reached_and_left_by_the_key_as_an_approval_is(open_notebook):
    tool = "@tool\ndef brew(what: str) -> str:\n    'Brew.'\n    return what\n"
    line = "%%agent --step\n" + "hello\n" * 10
    notebook = open_notebook(
        f"{tool}play(calls('brew', what='tea'), 'Well then.')", "print('long\\n' * 60)", line, "1 + 1", run=2
    )
    page, output = notebook.page, notebook.output(3)
    go_on = output.get_by_role("button", name="Go on", exact=True)
    page.set_viewport_size({"width": 1280, "height": 720})
    start_waiting(notebook, 3, "Go on")
    expect(page.get_by_role("button", name="(!) waits for you")).to_be_visible()
    before = sources(notebook)
    for sight in (0, 3):  # from afar, and from the cell itself
        notebook.scroll_to(sight)
        editor(notebook, sight).click()
        page.keyboard.press(GO)
        expect(go_on).to_be_focused()
        expect(go_on).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(output.locator(".am-card[data-state=waiting]")).to_be_visible()
    expect(go_on).to_be_focused()
    page.keyboard.press("Enter")
    output.get_by_role("group", name="Pause").get_by_text("tool: brew returned tea").wait_for()
    expect(go_on).to_be_focused()
    page.keyboard.press("Enter")
    notebook.finish(3)
    assert sources(notebook) == before


# -- what is typed before the view is there ---------------------------------------------------------


def beside(notebook, index):
    """Have the keys be the notebook's commands, in a cell; return what the cells hold."""
    editor(notebook, index).click()
    notebook.page.keyboard.press("Escape")
    return sources(notebook)


def by_key(notebook):
    notebook.page.keyboard.press(PANEL)


def by_palette(notebook):
    run_by_palette(notebook, "Agent Panel")


@pytest.mark.parametrize("show", [by_key, by_palette])
def test_what_is_typed_and_sent_before_the_panel_is_ready_is_in_it_and_not_in_the_notebook(open_notebook, show):
    notebook = open_notebook("play('one', 'two')", "1 + 1", "2 + 2", run=1)
    before, dock = beside(notebook, 2), Dock(notebook)
    show(notebook)
    for words in ("first", "second aa 00"):
        dock.keys.type(words)
        dock.press("Enter")
    dock.keys.type("hello xx")
    dock.press("Shift+Enter")
    dock.keys.type("dd")
    dock.press("ArrowLeft")
    dock.turns(2)
    expect(dock.message).to_be_focused()
    dock.keys.type("!")
    expect(dock.message).to_have_value("hello xx\nd!d")
    expect(dock.prompts).to_have_text(["first", "second aa 00"])
    assert sources(notebook) == before
    assert dock.page.locator(".jp-Dialog").count() == 0


def test_a_word_of_an_input_method_is_finished_where_it_was_begun(open_notebook):
    notebook = open_notebook("play('one')", run=1)
    dock = Dock(notebook)
    method = notebook.page.context.new_cdp_session(notebook.page)
    beside(notebook, 1)
    dock.press(PANEL)
    method.send("Input.imeSetComposition", {"text": "にほ", "selectionStart": 2, "selectionEnd": 2})
    dock.root.locator("agentmagic-view .am-composer").wait_for()
    method.send("Input.imeSetComposition", {"text": "にほん", "selectionStart": 3, "selectionEnd": 3})
    method.send("Input.insertText", {"text": "日本"})
    expect(dock.message).to_be_focused()
    dock.keys.type("!")
    expect(dock.message).to_have_value("日本!")


def test_keys_that_have_gone_back_to_the_notebook_are_not_taken_from_it(open_notebook):
    notebook = open_notebook("play('one')", "1 + 1", run=1)
    beside(notebook, 2)
    dock = Dock(notebook)
    dock.press(PANEL)
    dock.keys.type("hello")
    editor(notebook, 2).click()
    dock.message.wait_for()
    expect(dock.message).to_have_value("hello")
    dock.press("End")
    dock.keys.type(" + 1")
    assert sources(notebook)[2] == "1 + 1 + 1"


# -- the button that loads agentmagic ---------------------------------------------------------------


def test_what_is_typed_without_a_notebook_is_kept_for_the_next_one_where_loading_is_offered_and_done(lab):
    lab.reload()
    lab.page.locator(".jp-Launcher").wait_for()  # which takes the focus when it opens
    lab.page.keyboard.press(PANEL)
    lab.page.keyboard.type("hello")
    expect(lab.page.get_by_label("Message, before the panel is ready")).to_have_value("hello")
    notebook = lab.open(lab.write("unloaded.ipynb", ["1 + 1"]))
    dock, dialog = Dock(notebook), lab.page.locator(".jp-Dialog")
    before = beside(notebook, 0)
    dock.button("Load agentmagic").wait_for()
    dock.early.click()
    dock.press("End")
    dock.keys.type(" aa")
    dock.press("Enter")  # which has agentmagic loaded, and then sends
    expect(dialog).to_contain_text("This runs %load_ext agentmagic in the kernel of unloaded.ipynb.")
    notebook.page.get_by_role("button", name="Cancel").click()
    expect(dock.early).to_be_focused()
    expect(dock.early).to_have_value("hello aa")
    dock.press("Tab")
    expect(dock.button("Load agentmagic")).to_be_focused()
    dock.press("Enter")  # which is as good as a yes
    dock.message.wait_for()
    assert dialog.count() == 0
    expect(dock.message).to_be_focused()
    expect(dock.message).to_have_value("hello aa")  # the button alone sends nothing
    assert dock.root.locator(".am-problem, .am-block").filter(visible=True).count() == 0
    assert notebook.outputs(0) == []
    assert sources(notebook) == before
    notebook.close()


def load_by_button(notebook):
    """Load agentmagic as a person does who uses keys alone."""
    dock = Dock(notebook)
    beside(notebook, 0)
    dock.press(PANEL)
    dock.button("Load agentmagic").press("Enter")
    dock.message.wait_for()
    expect(dock.message).to_be_focused()
    return dock


def prompts(path, name="agent"):
    """Return the prompts that are saved of a session of a notebook."""
    file = path.parent / ".agentmagic" / path.stem / f"{name}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line["prompt"]["parts"][0]["text"] for line in lines if line["type"] == "turn_started"]


RECIPE = """from agentmagic import Agent, ScriptedModel
model = ScriptedModel(['one', 'two', 'three'])
agent.agent = Agent(model)"""
SENT = "[message.text for message in model.requests[-1].messages]"


def test_after_a_restart_the_button_finds_the_notebook_goes_on_with_its_conversation_and_saves(lab):
    (lab.folder / "sub folder").mkdir()
    notebook = lab.open(lab.write("sub folder/study.ipynb", [RECIPE, "%reload_ext agentmagic"]))
    dock = load_by_button(notebook)  # in a fresh notebook
    notebook.run(0)
    dock.send("the first")
    dock.turns(1)
    for _ in range(2):
        notebook.restart_kernel()
        dock.button("Load agentmagic").wait_for()
        dock = load_by_button(notebook)
        expect(dock.root.get_by_text("The conversation goes on: 1 turn, ")).to_be_visible()
        notebook.run(0)
    expect(dock.answers).to_have_text("one")
    notebook.run(1)
    dock.send("the second")
    dock.turns(2)
    assert prompts(notebook.path) == ["the first", "the second"]
    dock.click("New chat")
    expect(dock.root.locator(".am-title")).to_have_text("agent_2")
    dock.send("another one")
    dock.turns(1)
    assert prompts(notebook.path, "agent_2") == ["another one"]
    notebook.close()


def test_a_message_that_is_typed_after_a_restart_before_the_view_is_there_goes_into_the_conversation(lab):
    notebook = lab.open(lab.write("again.ipynb", ["%load_ext agentmagic", RECIPE, SENT, "agent.chat()"]))
    for index in range(2):
        notebook.run(index)
    dock = Dock(notebook).open()
    dock.send("the first", "the second")
    notebook.restart_kernel()
    dock.button("Load agentmagic").wait_for()
    for index in range(2):
        notebook.run(index)
    before = beside(notebook, 2)
    dock.press(PANEL)
    dock.keys.type("the third")
    dock.press("Enter")
    dock.turns(3)
    expect(dock.prompts).to_have_text(["the first", "the second", "the third"])
    expect(dock.message).to_be_focused()
    assert sources(notebook) == before
    assert notebook.printed(2) == "['the first', 'one', 'the second', 'two', 'the third']"
    notebook.restart_kernel()
    dock.button("Load agentmagic").wait_for()
    for index in (0, 1, 3):
        notebook.run(index)
    cell = Cell(notebook, 3)
    expect(cell.prompts).to_have_text(["the first", "the second", "the third"])
    expect(dock.prompts).to_have_text(["the first", "the second", "the third"])
    dock.button("Start anew").press("Enter")
    expect(dock.prompts).to_have_count(0)
    expect(dock.message).to_be_focused()
    dock.button("Go on with it").press("Enter")
    expect(dock.prompts).to_have_count(3)
    expect(dock.message).to_be_focused()
    dock.keys.type("the fourth")
    dock.press("Enter")
    for panel in (dock, cell):
        panel.turns(4)
    notebook.close()


def test_a_button_that_is_pressed_while_a_cell_runs_loads_when_it_is_over(lab):
    cell = "from agentmagic import Agent, ScriptedModel\nagent = Agent(ScriptedModel(['one']))\ninput()"
    notebook = lab.open(lab.write("busy.ipynb", [cell]))
    dock, box = Dock(notebook), notebook.page.locator(".jp-Stdin-input")
    notebook.start(0)
    box.wait_for()
    dock.press(PANEL)
    dock.keys.type("hello")
    dock.press("Enter")
    notebook.page.locator(".jp-Dialog").wait_for()
    dock.press("Enter")
    dock.says("A cell that runs is finished first.")
    assert dock.button("Load agentmagic").count() == 0
    box.press("Enter")
    dock.turns(1)
    assert prompts(notebook.path) == ["hello"]
    notebook.close()


# -- other pages, notebooks and kernels ---------------------------------------------------------------


def is_kept(answer):
    """Whether the server has just kept a layout with the panel, and not one from before it was opened."""
    request = answer.request
    is_layout = "/workspaces" in request.url and request.method == "PUT"
    return is_layout and '"current":"agentmagic-panel"' in request.post_data


@EVERYWHERE
def test_a_reload_in_a_running_cell_brings_the_cell_and_the_panel_back_with_their_buttons(open_notebook, lab):
    notebook = open_notebook(ANSWERED, "%%agent\ntea", run=1)
    kept = notebook.page.expect_response(is_kept) if lab.front_end == "lab" else nullcontext()
    with kept:  # JupyterLab writes what it restores a moment after it has changed
        dock = Dock(notebook).open()
    notebook.start(2)
    dock.button("Approve").wait_for()
    save_with(notebook, 2, "order")
    notebook.page.goto(notebook.page.url.replace("?reset", ""))
    dock.button("Approve").wait_for()
    Cell(notebook, 2).click("Approve")
    dock.turns(1)
    notebook.wait_for_text(2, "Well then.")
    expect(dock.answers).to_have_text(["Well then."])


WATCH = """
if (sessionStorage.watched) {
  window.said = []
  new MutationObserver(() => {
    const words = document.querySelector('.agentmagic-dock-note')?.textContent
    if (words && window.said.at(-1) !== words) window.said.push(words)
  }).observe(document, { childList: true, subtree: true })
}
"""
"""Keeps what the docked panel says in place of a view. The page is that of all tests, and most do not watch it."""


def test_a_page_that_is_loaded_again_says_that_there_is_no_kernel_only_once_it_has_looked(open_notebook):
    notebook = open_notebook("play('one')", run=1)
    page = notebook.page
    with page.expect_response(is_kept):
        dock = Dock(notebook).open()
    dock.send("hello")
    dock.turns(1)
    notebook.save()
    page.add_init_script(WATCH)
    page.evaluate("() => { sessionStorage.watched = 'yes' }")
    page.goto(page.url.replace("?reset", ""))
    dock.turns(1)
    page.evaluate("() => { delete sessionStorage.watched }")
    said = page.evaluate("() => window.said")
    assert said[0] == "The notebook is being connected to its kernel."
    assert not [words for words in said if "no kernel" in words or "not loaded" in words]
    notebook.shut_down_kernel()
    dock.says("This notebook has no kernel.")


def test_the_panel_turns_with_the_notebook_in_front_and_to_the_session_that_a_line_docks(open_notebook):
    first = open_notebook("play('one')", run=1)
    dock = Dock(first).open()
    dock.send("to the first")
    dock.turns(1)
    second = open_notebook("play('two')\nother = agent.fork()", "%agent chat other --dock", run=1)
    expect(dock.prompts).to_have_count(0)
    second.run(2)
    expect(dock.root.locator(".am-head")).to_contain_text("other")
    assert second.outputs(2) == []
    dock.send("to the second")
    dock.turns(1)
    expect(dock.answers).to_have_text(["two"])
    first.page.get_by_role("tab", name=first.path.name).click()
    expect(dock.answers).to_have_text("one")


def test_words_come_back_where_they_were_typed_after_a_restart(open_notebook):
    notebook = open_notebook("play('one')", "agent.chat()", run=2)
    dock = Dock(notebook).open()
    cell = notebook.output(2).get_by_label("Message", exact=True)
    for box, words in ((cell, "in the cell"), (dock.message, "in the dock")):
        box.click()
        dock.keys.type(words)
    notebook.restart_kernel()
    notebook.output(2).get_by_text("The kernel that held this conversation is gone.").wait_for()
    dock.button("Load agentmagic").wait_for()
    for index in range(3):
        notebook.run(index)
    dock.message.wait_for()
    expect(cell).to_have_value("in the cell")
    expect(dock.message).to_have_value("in the dock")
