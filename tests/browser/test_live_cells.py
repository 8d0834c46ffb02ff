"""Cells that run: the person clicks and types in their view, and reads along."""

import re

import psutil
import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import CONNECT, NOTEBOOK_7, Cell, editor, linked, save_with, see_mark
from tests.browser.lab import retype
from tests.jupyter.conftest import subshells

pytestmark = pytest.mark.browser

TEA = "calls('order', what='tea')"
LONG = "{'text': 'words\\n\\n' * 100}"
"""An answer that is higher than what is seen of a notebook."""
SHORT = "{'text': 'words\\n\\n' * 4}"


def test_calls_are_approved_edited_denied_answered_and_always_allowed_by_clicks(begun):
    much = "much tea " * 60
    steps = f"calls('order', what='{much}'), {TEA}, {TEA}, calls('echo', text='hi'), calls('choose'), {TEA}, {TEA}"
    parts = "print([str(message.parts[0]) for message in agent.messages if message.role == 'tool'])"
    cell = begun(f"{steps}, 'All come.'", parts, prepare=CONNECT)
    cell.click("Approve")
    for number, words in ((1, "coffee"), (2, "tea")):
        order = cell.card("order").nth(number)
        order.get_by_role("button", name="Edit").click()
        retype(order.get_by_label("what", exact=True), words)
        order.get_by_role("button", name="Approve as edited").click()
    cell.card("echo").get_by_text("raw", exact=True).wait_for()
    cell.click("Deny…")
    retype(cell.box("Reason, which the model is told"), "no need")
    cell.click("Deny")
    cell.says("Which tea?")
    retype(cell.box("Your answer"), "Earl Grey")
    cell.click("Answer", "Always allow")
    cell.finish("All come.")
    cell.keeps("ordered much tea", "ordered coffee", "ordered tea", "no need", "chosen: Earl Grey")
    results = cell.notebook.printed(3).split("ToolResult")[1:]
    words = ["much tea", "coffee", "tea", "no need", "Earl Grey", "tea", "tea"]
    assert all(word in result for word, result in zip(words, results, strict=True))
    assert ["changed" in result for result in results] == [False, True, *[False] * 5]  # an edit may change nothing
    widths = "() => [harness.cell(2).node, harness.cell(2).outputArea.node].map(e => e.getBoundingClientRect().right)"
    outer, inner = cell.page.evaluate(widths)
    assert inner <= outer


@subshells
def test_keys_alone_change_an_argument_leave_an_edit_approve_and_open_a_card(begun):
    tool = '@tool(ask=True)\ndef sell(what: str, year: int) -> str:\n    return f"sold {what} {year}"\n'
    cell = begun(f"calls('sell', what='tea', year=2024), {TEA}, 'It comes.'", prepare=tool)
    cell.button("Edit").press("Enter")
    cell.press("Tab", "End", "Backspace")
    cell.keys.type("5")
    cell.press("Tab")
    assert cell.focused() == "Approve as edited"
    cell.press("Enter")
    order = cell.card("order")
    order.locator("summary").focus()
    order.get_by_role("button", name="Approve").wait_for()
    cell.press("Tab", "Tab", "Tab")
    assert cell.focused() == "Edit"
    cell.press("Enter")
    cell.keys.type(" please")
    cell.press("Escape")
    assert cell.focused() == "Edit"
    cell.press("Shift+Tab", "Shift+Tab")
    assert cell.focused() == "Approve"
    cell.press("Enter")
    cell.finish("It comes.")
    cell.keeps("sold tea 2025", "ordered tea")
    result = order.get_by_text("ordered tea")
    expect(result).to_be_hidden()
    order.locator("summary").focus()
    cell.press("Enter")
    result.wait_for()
    assert cell.page.evaluate("() => harness.panel().content.widgets.length") == 3


def test_in_command_mode_one_letter_answers_each_call_and_no_cell_of_the_notebook_changes(begun):
    told = "print([part.text for message in agent.messages if message.role == 'tool' for part in message.parts])"
    cell = begun(f"{TEA}, {TEA}, {TEA}, 'It comes.'", told)
    for number, keys in enumerate((["y"], ["n", "n", "o", "Enter"], ["e", "End", "s", "ControlOrMeta+Enter"])):
        cell.card("order").nth(number).locator(".am-approval:focus:not(.am-fresh)").wait_for()
        cell.press(*keys)
    cell.finish("It comes.")
    cell.card("order").nth(1).get_by_text("denied: no", exact=True).wait_for()
    cell.card("order").nth(2).get_by_text("edited", exact=True).wait_for()
    assert cell.page.evaluate("() => harness.panel().content.mode") == "command"
    assert cell.page.evaluate("() => harness.panel().content.widgets.length") == 4
    printed = cell.notebook.printed(3)
    assert all(words in printed for words in ("ordered tea", "the user denied it", "ordered teas"))


@NOTEBOOK_7
def test_an_approval_is_in_sight_of_a_reader_at_the_end_of_a_cell_whose_output_scrolls_in_a_box(begun):
    # A few lines come before the call, so that the reader is still near the end when it waits.
    cell = begun(f"{LONG} | calls('choose'), {SHORT} | {TEA}, 'It comes.'")
    cell.button("Answer").scroll_into_view_if_needed()
    retype(cell.box("Your answer"), "Earl Grey")
    expect(cell.root.locator(".am-fresh")).to_have_count(0)  # the box has taken the keys of itself, half a second ago
    cell.press("Enter")
    expect(cell.button("Approve")).to_be_in_viewport(ratio=1)
    cell.page.evaluate(
        """() => { // as Notebook 7 does it with a long output whenever it is updated
          const widget = harness.cell(2)
          widget.removeClass('jp-mod-outputsScrolled')
          widget.node.getBoundingClientRect() // else nothing of that would be laid out
          widget.addClass('jp-mod-outputsScrolled')
        }"""
    )
    expect(cell.button("Approve")).to_be_in_viewport(ratio=1)
    cell.click("Approve")
    cell.finish("It comes.")


@subshells
def test_stop_is_in_sight_during_a_long_answer_ends_it_in_the_middle_and_is_heard_as_a_stop(begun):
    cell = begun(f"{LONG[:-1]} * 30, 'pace': 0.02}}")  # a minute: a busy machine must not see its end
    cell.notebook.wait_for_text(2, "words")
    cell.notebook.scroll_to(2)
    cell.root.locator(".am-running.am-pinned").wait_for()
    expect(cell.button("Stop")).to_be_in_viewport(ratio=1)
    cell.button("Stop").press("Enter")
    cell.finish("stopped")
    assert cell.notebook.text(2).count("words") < 3000
    expect(cell.root.locator("div.am-heard[role=status]")).to_have_text("Stopped")


def test_an_error_is_said_once_below_its_cell(begun):
    cell = begun("*[RateLimited('The quota is used up.', retry_after=0.01)] * 5")
    cell.finish("RateLimited: the turn failed; the output says why.")
    expect(cell.root.get_by_text("The quota is used up.").last).to_be_visible()
    assert cell.root.locator(".am-block", has_text="quota").count() == 1
    assert "quota" not in cell.output.inner_text()  # which does not look into the view


def test_a_card_that_was_opened_is_open_still_when_its_turn_is_over_and_its_cell_was_out_of_sight(begun):
    cell = begun("calls('choose'), {'text': 'slowly ' * 60, 'pace': 0.02}", *["print('\\n' * 60)"] * 8)
    retype(cell.box("Your answer"), "Earl Grey")
    cell.click("Answer")
    cell.card("choose").locator("summary").click()
    result = cell.card("choose").get_by_text("chosen: Earl Grey")
    result.wait_for()
    cell.finish()
    cell.turns(1)
    expect(result).to_be_visible()
    for index in range(3, 11):
        cell.notebook.run(index)
    cell.notebook.use_windowing("full")
    # Once more where cells were not measured yet, since JupyterLab then guesses where the cell is.
    there = "harness.panel().content.scrollToItem(10).catch(() => {})"
    cell.page.wait_for_function(f"() => {{ {there}; return !harness.cell(2).isAttached }}")
    cell.notebook.scroll_to(2)
    result.wait_for()


def test_run_all_keeps_the_order_of_the_cells_with_an_approval_clicked_in_between(open_notebook):
    notebook = open_notebook(
        f"play({{'text': 'one', 'pace': 0.05}}, {TEA}, 'two', 'three')",
        "%%agent\nfirst",
        "%%agent\nsecond",
        "print([message.text for message in agent.messages])",
        "%%agent\nthird",
    )
    notebook.start_all()
    Cell(notebook, 3).click("Approve")
    notebook.finish_all()
    notebook.wait_for_text(3, "two")
    assert notebook.outputs(4)[0]["text"].strip() == "['first', 'one', 'second', '', '', 'two']"
    notebook.wait_for_text(5, "three")


def opened_again(lab, notebook, until="connected"):
    """Save a notebook with a call that waits in its third cell, close its tab, and open it."""
    save_with(notebook, 2, "order")
    notebook.close_tab()
    return lab.open(notebook.path, until)


def test_a_tab_that_is_opened_again_has_nothing_to_click_until_it_is_connected(lab, begun):
    cell = begun(f"{TEA}, 'It comes.'")
    cell.button("Approve").wait_for()
    held = []
    cell.page.route("**/api/sessions*", lambda request: held.append(request))  # noqa: PLW0108  (a method takes no mark)
    cell = Cell(opened_again(lab, cell.notebook, "drawn"), 2)
    cell.notebook.wait_for_text(2, "waits for you")
    expect(cell.button("Approve")).to_be_hidden()
    for request in held:
        request.continue_()
    cell.page.unroute("**/api/sessions*")
    cell.click("Approve")
    cell.notebook.wait_for_text(2, "It comes.")


def test_a_tab_that_is_closed_during_a_turn_and_opened_again_has_its_cell_and_panel_alive(lab, open_notebook):
    notebook = open_notebook(f"play({TEA}, 'It comes.', {TEA})", "%%agent\nhello", "agent.chat()", run=1)
    notebook.run(3)
    notebook.start(2)
    Cell(notebook, 2).button("Approve").wait_for()
    kernel = notebook.page.evaluate("() => harness.kernel().id")
    notebook = opened_again(lab, notebook)
    panel = Cell(notebook, 3)
    panel.click("Approve")
    for index in (2, 3):
        notebook.wait_for_text(index, "It comes.")
    panel.message.click()
    panel.keys.type("and now")
    expect(panel.button("Send")).to_be_enabled()
    notebook.start(2)
    Cell(notebook, 2).button("Approve").wait_for()
    notebook = opened_again(lab, notebook)
    notebook.close_tab()
    lab.interrupt(kernel)  # a turn that ends while the tab is closed
    lab.open(notebook.path).output(2).locator(".am-card[data-state=interrupted]").wait_for()


@pytest.mark.parametrize("killed", [False, True], ids=["shut down", "killed"])
def test_what_was_written_can_be_read_when_the_kernel_ends_in_the_middle_of_a_turn(begun, killed):
    cell = begun(f"{TEA} | {{'text': 'Let me order.'}})\nprint(os.getpid()")
    kernel = psutil.Process(int(cell.notebook.outputs(1)[0]["text"]))
    cell.button("Approve").wait_for()
    if killed:
        kernel.kill()
        cell.page.locator(".jp-Dialog", has_text="appears to have died").get_by_role("button").click()
    else:
        cell.notebook.shut_down_kernel()
    for name in ("Approve", "Stop"):
        expect(cell.button(name)).to_be_hidden()
    expect(cell.output.get_by_text("Let me order.").filter(visible=True)).to_have_count(1)


SALES = """
import pandas as pd, matplotlib.pyplot as plt
plot = plt.figure()
plt.close(plot)
sales = pd.DataFrame({"product": ["Lamp", "Chair"], "revenue": [48, 31]})
"""
PROGRAM = (
    "import matplotlib.pyplot as plt\ntotals = sales.groupby('product')['revenue'].sum()\ntotals.plot.bar()\ntotals\n"
)
COLOUR = "element => getComputedStyle(element).color"


def test_keys_alone_approve_a_program_and_open_its_values_and_results_in_both_themes(begun):
    line = "%%agent --notebook\nWhat sold best in {sales}? See @plot, and say"
    cell = begun(f"calls('run_python', code={PROGRAM!r}), 'It is **Lamp**.'", prepare=SALES, line=line)
    card, values = cell.card("run_python"), cell.root.locator(".am-values")
    code = card.locator(".am-arguments pre")
    code.wait_for()
    assert code.evaluate("pre => pre.textContent") == PROGRAM
    expect(code.locator(".hljs-keyword").first).to_have_text("import")
    expect(card.locator(".am-effects li").first).to_have_text("Reads: sales")
    expect(values.locator("summary")).to_have_text(
        re.compile(r"^\{sales\}: DataFrame, 2 rows x 2 columns .*@plot: Figure as an image")
    )
    expect(values.get_by_role("table").first).to_be_hidden()
    values.locator("summary").focus()
    cell.press("Enter")
    expect(values.get_by_role("cell", name="Chair", exact=True)).to_be_visible()
    expect(values.get_by_role("img")).to_be_visible()
    assert serious(cell.page, "agentmagic-view") == []
    light = code.evaluate(COLOUR)
    cell.notebook.use_theme("JupyterLab Dark")
    cell.page.wait_for_function(f"([code, light]) => ({COLOUR})(code) !== light", arg=[code.element_handle(), light])
    assert min(map(int, re.findall(r"\d+", code.evaluate(COLOUR))[:3])) > 150
    assert serious(cell.page, "agentmagic-view") == []
    card.locator("summary").focus()
    cell.press("Tab")
    assert cell.focused() == "Approve"
    cell.press("Enter")
    cell.finish("Lamp.", "Changed in the notebook:", "+ totals: Series, 2 rows")
    expect(card.get_by_role("img")).to_be_visible()
    expect(card.locator("summary").first).to_contain_text("totals→ Name: revenue, dtype: int64")
    result = card.locator(".am-body").get_by_text("Name: revenue")
    expect(result).to_be_hidden()
    cell.press("Enter")
    expect(result).to_be_visible()
    assert serious(cell.page, "agentmagic-view") == []
    cell.notebook.use_theme("JupyterLab Light")


BREW = "@tool\ndef brew(what: str, minutes: int) -> str:\n    'Brew.'\n    return f'{what} after {minutes} minutes'\n\n"
SMALLEST = """root => Math.min(...[...root.querySelectorAll("*")]
    .filter((e) => !e.closest(".am-heard") && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((e) => e.getClientRects().length)
    .map((e) => parseFloat(getComputedStyle(e).fontSize)))"""
"""The size in pixels of the smallest text that is seen in a view."""


def test_keys_step_through_a_turn_in_large_type_change_its_prompt_skip_a_call_and_run_to_the_end(begun):
    brew = "calls('brew', what='tea', minutes=3)"
    cell = begun(f"{brew}, {brew}, {brew}, 'It is ready.'", prepare=BREW, line="%%agent --step --large")
    cell.page.set_viewport_size({"width": 1280, "height": 720})
    paused = cell.root.get_by_role("group", name="Pause")
    paused.get_by_text("Step 1, to scripted:script").wait_for()
    assert cell.root.locator(".agentmagic").evaluate(SMALLEST) >= 20
    cell.button("Edit").press("Enter")
    retype(cell.box("The prompt"), "Make tea, please.")
    cell.press("Tab")
    assert cell.focused() == "Go on as edited"
    cell.press("Enter")
    cell.card("brew").get_by_role("button", name="Skip").wait_for()
    cell.button("Go on").press("Enter")
    paused.get_by_text("tool: brew returned tea after 3 minutes").wait_for()
    expect(cell.button("Go on")).to_be_focused()  # a person who goes on by a key goes on by the same key
    assert cell.root.locator(".agentmagic").evaluate(SMALLEST) >= 20
    cell.press("Enter")
    cell.button("Skip").wait_for()
    expect(cell.button("Go on")).to_be_focused()  # a moment later; it would take the key that is for the other button
    cell.button("Skip").press("Enter")
    paused.get_by_role("button", name="Run to the end").press("Enter")
    cell.finish("It is ready.")
    expect(paused).to_have_count(0)
    cell.keeps("The prompt was changed to: Make tea, please.", "the user skipped it")


def test_where_no_click_reaches_the_cell_the_answer_is_typed_into_a_box_to_which_a_key_goes_and_it_says_why(
    open_notebook,
):
    notebook = open_notebook(f"play({TEA}, 'Well then.')", "%%agent\nhello", "1 + 1")
    notebook.page.evaluate("() => { harness.kernel().commsOverSubshells = 'disabled' }")
    notebook.run(1)
    notebook.run(3)
    editor(notebook, 3).click()
    linked(notebook)  # which this page could not do while a cell runs
    notebook.start(2)
    cell = Cell(notebook, 2)
    notebook.wait_for_text(2, "Type your answer: this page sends no clicks")
    notebook.wait_for_text(2, "waits for you")
    assert cell.button("Approve").count() == 0
    box = cell.page.locator(".jp-Stdin-input")
    box.wait_for()
    see_mark(notebook)
    editor(notebook, 3).click()
    cell.press("Alt+Shift+G")
    expect(box).to_be_focused()
    notebook.type("n not today")
    cell.finish("not today")
    cell.root.locator(".am-card[data-state=denied]").wait_for()


# -- plans ------------------------------------------------------------------------------------------

TASKS = """
'{"route": "tools"}', '{"tasks": [{"id": "t1", "tool": "order", "parameters": {"what": "tea"}}]}', 'Done.'
"""


def test_a_plan_is_changed_in_fixed_width_and_stays_under_the_keys_with_what_is_wrong_until_it_runs(begun):
    cell = begun(TASKS, line="%%agent --plan --confirm")
    box = cell.box("The plan")
    box.click()
    assert "mono" in box.evaluate("box => getComputedStyle(box).fontFamily")
    cell.press("Control+End", "Enter")
    cell.keys.type("nonsense")
    cell.press("Control+Enter")
    cell.warns("The plan cannot be run: This line is no task: 'nonsense'.")
    expect(box).to_be_focused()
    expect(box).to_be_in_viewport()
    assert box.input_value().endswith("\nnonsense")
    cell.press("Control+End", *["Backspace"] * 9)
    cell.click("Run the plan", "Approve")
    cell.finish("Done.")


def test_a_plan_that_was_left_is_resumed_or_dropped_by_a_button(begun):
    cell = begun(TASKS, "%%agent\nWhat now?", line="%%agent --plan")
    cell.button("Approve").wait_for()
    cell.notebook.interrupt(2)
    cell.notebook.start(3)
    later = Cell(cell.notebook, 3)
    later.says("Resume it, or drop it?")
    expect(later.button("Resume")).to_be_visible()
    later.click("Drop")
    later.finish("Done.")
    assert later.root.locator(".am-card").count() == 0


GOES_ON = """
import asyncio, threading
from agentmagic.runtime import engine
engine.PULSE, gate = 0.05, threading.Event()

async def rest() -> bool:
    "Rest."
    return await asyncio.to_thread(gate.wait, 30)

steps = [{"calls": [{"name": "rest", "arguments": {}}]}, "Rested."]
run = Session(Agent(ScriptedModel(steps), tools=[rest])).start("Rest.")
None
"""
SIGNS = """() => new Promise((resolve, reject) => {
  let signs = 0
  setTimeout(() => reject(new Error('there were no signs')), 20_000)
  harness.kernel().iopubMessage.connect((_, { header, content }) => {
    if (header.msg_type === 'comm_msg' && Object.keys(content.data).length === 0 && ++signs === 5) resolve()
  })
})"""
"""Waits for five signs of activity."""


def test_the_signs_of_activity_of_a_turn_without_a_cell_leave_kernel_and_notebook_as_they_are(open_notebook):
    notebook = open_notebook(GOES_ON, "gate.set()\nrun.wait()\nNone", run=1)
    complaints = []
    notebook.page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    notebook.save()
    notebook.page.evaluate(SIGNS)
    notebook.page.wait_for_function("() => harness.kernel().status === 'idle'")
    assert notebook.page.evaluate("() => harness.panel().context.model.dirty") is False
    assert complaints == []
    notebook.run(2)
