"""Cells that run, in JupyterLab and Notebook 7: the person clicks and types in their view, and reads along."""

import re

import psutil
import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import CONNECT, EVERYWHERE, KERNELS, PLANNED
from tests.browser.lab import retype

pytestmark = pytest.mark.browser

SLOWLY = {"text": "slowly " * 600, "pace": 0.02}
TEA = "calls('order', what='tea')"


class Cell:
    """A cell whose turn is looked at while it runs."""

    def __init__(self, notebook, index):
        self.notebook = notebook
        self.index = index
        self.page = notebook.page
        self.output = notebook.output(index)
        self.view = self.output.locator("agentmagic-view")

    def start(self):
        self.notebook.start(self.index)
        return self

    def finish(self, *signs):
        """Wait for the end, and until what is drawn a moment later says all of this."""
        self.notebook.finish(self.index)
        for sign in signs:
            self.notebook.wait_for_text(self.index, sign)

    def written(self):
        """What the notebook keeps as text of the turn."""
        return self.notebook.outputs(self.index)[1]["data"]["text/plain"]

    def button(self, name):
        return self.view.get_by_role("button", name=name, exact=True)

    def click(self, name):
        self.button(name).click()

    def box(self, label):
        return self.view.get_by_label(label, exact=True)

    def card(self, name):
        return self.view.locator(".am-card", has_text=name)


@pytest.fixture
def begun(open_notebook):
    """Starts a turn that plays some steps, in the third cell; others may come behind it."""

    def begin(steps, *cells, prepare="", kernel="python3", line="%%agent"):
        notebook = open_notebook(f"{prepare}play({steps})", f"{line}\nhello", *cells, kernel=kernel)
        notebook.run(1)
        return Cell(notebook, 2).start()

    return begin


@EVERYWHERE
def test_approve_runs_the_call_of_a_running_cell(begun):
    cell = begun(f"{TEA}, 'It comes.'")
    cell.click("Approve")
    cell.finish("It comes.")
    assert "ordered tea" in cell.written()


LONG = "{'text': 'words\\n\\n' * 100}"
SHORT = "{'text': 'words\\n\\n' * 4}"
"""An answer that is higher than what is seen of a notebook."""


@EVERYWHERE
def test_what_waits_below_what_is_seen_is_told_and_approved_in_a_bar_and_marked_on_the_tab(begun, lab):
    cell = begun(f"{LONG[:-1]}, 'pace': 0.02}} | {TEA}, 'It comes.'")
    cell.notebook.wait_for_text(2, "words")
    cell.notebook.scroll_to(2)
    approve = cell.button("Approve order")
    expect(approve).to_be_in_viewport(ratio=1, timeout=20_000)
    box(cell, lab)
    expect(approve).to_be_in_viewport(ratio=1)
    expect(cell.button("Stop")).to_be_in_viewport(ratio=1)
    assert cell.page.title().startswith("(!) ")
    if lab.front_end == "lab":
        assert tab_mark(cell.page) == '"(!) "'
    approve.click()
    cell.finish("It comes.")
    assert "ordered tea" in cell.written()
    cell.page.wait_for_function("() => !document.title.startsWith('(!)')")
    expect(cell.page.locator("[data-agentmagic-waits]")).to_have_count(0)


def box(cell, lab):
    """Have the output scroll in a box, as Notebook 7 does it with a long one whenever an output is updated."""
    if lab.front_end == "notebook":
        cell.page.evaluate(
            """index => {
              const widget = harness.cell(index)
              widget.removeClass('jp-mod-outputsScrolled')
              widget.node.getBoundingClientRect() // else nothing of that would be laid out
              widget.addClass('jp-mod-outputsScrolled')
            }""",
            cell.index,
        )


def tab_mark(page):
    tab = page.locator(".lm-TabBar-tab.jp-mod-current[data-type=document-title] .lm-TabBar-tabLabel")
    return tab.evaluate("label => getComputedStyle(label, '::before').content")


@EVERYWHERE
def test_an_approval_is_scrolled_into_sight_of_a_reader_who_looks_at_the_end_of_its_cell(begun, lab):
    # A few lines come before the call, so that the reader is still near the end when it waits.
    cell = begun(f"{LONG} | calls('choose'), {SHORT} | {TEA}, 'It comes.'")
    cell.button("Answer").scroll_into_view_if_needed()
    retype(cell.box("Your answer"), "Earl Grey")
    cell.page.keyboard.press("Enter")
    expect(cell.button("Approve")).to_be_in_viewport(ratio=1)
    box(cell, lab)
    expect(cell.button("Approve")).to_be_in_viewport(ratio=1)
    cell.click("Approve")
    cell.finish("It comes.")


def test_a_running_cell_says_what_it_does_and_how_long_and_a_stop_leaves_one_line(begun):
    cell = begun("calls('nap')")
    line = cell.view.locator(".am-running .am-word")
    expect(line).to_have_text(re.compile(r"^waiting for nap \(\d+ s\)$"), timeout=20_000)
    cell.notebook.interrupt(2)
    cell.finish("Interrupted: the turn was cancelled; what was finished is kept.")
    expect(line).to_be_hidden()


def test_an_error_is_said_once_below_its_cell(begun):
    cell = begun("*[RateLimited('The quota is used up.', retry_after=0.01)] * 5")
    cell.finish("RateLimited: the turn failed; the output says why.")
    expect(cell.view.get_by_text("The quota is used up.").last).to_be_visible()
    assert cell.view.locator(".am-block", has_text="quota").count() == 1
    assert "quota" not in cell.output.inner_text()  # which does not look into the view


@EVERYWHERE
def test_stop_is_in_sight_during_a_long_answer(begun):
    cell = begun(f"{LONG[:-1]} * 6, 'pace': 0.02}}")
    cell.notebook.wait_for_text(2, "words")
    cell.notebook.scroll_to(2)
    cell.view.locator(".am-running.am-pinned").wait_for()
    expect(cell.button("Stop")).to_be_in_viewport(ratio=1)
    cell.click("Stop")
    cell.finish("interrupted")


def test_always_allow_runs_the_calls_that_come_after_without_a_question(begun):
    cell = begun(f"{TEA}, {TEA}, 'Both come.'")
    cell.click("Always allow")
    cell.finish()
    assert cell.written().count("ordered tea") == 2


def test_edited_arguments_are_what_the_call_runs_with(begun):
    cell = begun(f"{TEA}, 'It comes.'")
    cell.click("Edit")
    retype(cell.box("what"), "coffee")
    cell.click("Approve as edited")
    cell.finish()
    assert "ordered coffee" in cell.written()


@EVERYWHERE
def test_keys_change_one_argument_of_several(begun):
    tool = '@tool(ask=True)\ndef sell(what: str, year: int) -> str:\n    return f"sold {what} {year}"\n'
    cell = begun("calls('sell', what='tea', year=2024), 'Sold.'", prepare=tool)
    keys = cell.page.keyboard
    cell.button("Edit").press("Enter")
    keys.press("Tab")
    keys.press("End")
    keys.press("Backspace")
    keys.type("5")
    keys.press("Tab")
    assert focused(cell.page) == "Approve as edited"
    keys.press("Enter")
    cell.finish("Sold.")
    assert "sold tea 2025" in cell.written()


def test_an_edit_that_changes_nothing_tells_the_model_of_none(begun):
    cell = begun(f"{TEA}, 'It comes.'", "print(agent.messages[2].parts[0])")
    cell.click("Edit")
    retype(cell.box("what"), "tea")
    cell.click("Approve as edited")
    cell.finish("It comes.")
    assert "ordered tea" in cell.notebook.run(3)
    assert "changed" not in cell.notebook.text(3)


def test_a_no_with_its_reason_reaches_the_model(begun):
    cell = begun(f"{TEA}, 'Well then.'", "print(agent.messages[2].parts[0])")
    cell.click("Deny…")
    retype(cell.box("Reason, which the model is told"), "no milk")
    cell.click("Deny")
    cell.finish("denied")
    assert "no milk" in cell.notebook.run(3)


def test_a_servers_call_is_approved_by_its_name(begun):
    cell = begun("calls('echo', text='hi'), 'Said.'", prepare=CONNECT)
    cell.card("echo").get_by_text("raw", exact=True).wait_for()
    cell.click("Approve")
    cell.finish("Said.")


@EVERYWHERE
def test_a_question_of_a_tool_is_answered_in_the_cell(begun):
    cell = begun("calls('choose'), 'A good one.'")
    cell.view.get_by_text("Which tea?", exact=True).wait_for()
    retype(cell.box("Your answer"), "Earl Grey")
    cell.click("Answer")
    cell.finish("A good one.")
    assert "chosen: Earl Grey" in cell.written()


@EVERYWHERE
def test_stop_ends_a_turn_in_the_middle_of_its_answer(begun):
    cell = begun(SLOWLY)
    cell.notebook.wait_for_text(2, "slowly slowly")
    cell.click("Stop")
    cell.finish("interrupted")
    assert cell.notebook.text(2).count("slowly") < 600


@EVERYWHERE
def test_a_stop_is_heard_as_a_stop(begun):
    cell = begun("{'text': 'slowly ' * 300, 'pace': 0.02}")
    cell.view.get_by_text("slowly").wait_for()
    cell.button("Stop").focus()
    cell.page.keyboard.press("Enter")
    cell.finish()
    expect(cell.view.locator("div.am-heard[role=status]")).to_have_text("Stopped")


def test_an_opened_card_stays_open_when_the_turn_is_over(begun):
    cell = begun(f"calls('choose'), {SLOWLY | {'text': 'slowly ' * 60}}")
    retype(cell.box("Your answer"), "Earl Grey")
    cell.click("Answer")
    cell.card("choose").locator("summary").click()
    result = cell.card("choose").get_by_text("chosen: Earl Grey")
    result.wait_for()
    cell.finish()
    cell.view.locator(".am-figures.am-block").wait_for()
    assert result.is_visible()


@EVERYWHERE
def test_run_all_keeps_its_order_with_an_approval_clicked_in_between(open_notebook):
    notebook = open_notebook(
        f"play('one', {TEA}, 'two', 'three')",
        "%%agent\nfirst",
        "%%agent\nsecond",
        "print([message.text for message in agent.messages])",
        "%%agent\nthird",
    )
    notebook.start_all()
    Cell(notebook, 3).click("Approve")
    notebook.finish("all")
    notebook.wait_for_text(3, "two")
    assert notebook.text(4).strip() == "['first', 'one', 'second', '', '', 'two']"
    notebook.wait_for_text(5, "three")


def opened_again(lab, notebook, *, reload):
    """Save a notebook with a call that waits in its third cell, close its page or its tab alone, and open it."""
    notebook.page.wait_for_function("() => JSON.stringify(harness.cell(2).model.outputs.toJSON()).includes('order')")
    notebook.save()
    if reload:
        lab.reload()
    else:
        notebook.close_tab()
    return lab.open(notebook.path, "connected")


@EVERYWHERE
def test_a_page_that_is_loaded_in_the_middle_of_a_cell_answers_what_waits_there(lab, begun):
    cell = begun(f"{TEA}, 'It comes.'")
    cell.button("Approve").wait_for()
    again = Cell(opened_again(lab, cell.notebook, reload=True), 2)
    again.click("Approve")
    again.notebook.wait_for_text(2, "It comes.")
    assert "done" in again.notebook.text(2)


def test_a_tab_that_is_closed_during_a_turn_and_opened_again_has_its_cell_and_panel_alive(lab, open_notebook):
    notebook = open_notebook(f"play({TEA}, 'It comes.')", "%%agent\nhello", "agent.chat()")
    notebook.run(1)
    notebook.run(3)
    Cell(notebook, 2).start().button("Approve").wait_for()
    notebook = opened_again(lab, notebook, reload=False)
    panel = Cell(notebook, 3)
    panel.click("Approve")
    for index in (2, 3):
        notebook.wait_for_text(index, "It comes.")
    retype(panel.box("Message"), "and now")
    expect(panel.button("Send")).to_be_enabled()


def test_a_turn_that_ended_while_its_tab_was_closed_is_shown_when_it_is_opened_again(lab, open_notebook):
    notebook = open_notebook(f"play({TEA}, 'It comes.')", "%%agent\nhello")
    notebook.run(1)
    Cell(notebook, 2).start().button("Approve").wait_for()
    kernel = notebook.page.evaluate("() => harness.kernel().id")
    notebook = opened_again(lab, notebook, reload=False)
    notebook.close_tab()
    lab.interrupt(kernel)
    lab.open(notebook.path).output(2).locator(".am-card[data-state=interrupted]").wait_for()


def test_what_was_shown_can_be_read_when_the_kernel_ends_in_the_middle_of_a_turn(begun):
    cell = begun(f"{TEA} | {{'text': 'Let me order.'}}")
    cell.button("Approve").wait_for()
    cell.notebook.shut_down_kernel()
    cell.button("Approve").wait_for(state="hidden")
    expect(cell.output.get_by_text("Let me order.").filter(visible=True)).to_have_count(1)


def test_what_was_written_is_read_when_the_kernel_is_killed_in_the_middle_of_an_answer(open_notebook):
    notebook = open_notebook(f"play({SLOWLY})\nprint(os.getpid())", "%%agent\nhello")
    kernel = psutil.Process(int(notebook.run(1)))
    cell = Cell(notebook, 2).start()
    notebook.wait_for_text(2, "slowly slowly")
    kernel.kill()
    notebook.page.locator(".jp-Dialog", has_text="appears to have died").get_by_role("button").click()
    cell.output.get_by_text("The kernel is gone.").wait_for()
    expect(cell.output.get_by_text("slowly slowly").filter(visible=True)).to_have_count(1)
    expect(cell.button("Stop")).to_be_hidden()


def test_a_second_view_of_a_running_cell_keeps_in_step_and_takes_clicks(begun):
    cell = begun(f"{TEA}, {SLOWLY | {'text': 'slowly ' * 100}}")
    cell.button("Approve").wait_for()
    cell.page.evaluate("() => { jupyterapp.commands.execute('notebook:create-output-view') }")
    other = cell.page.locator(".jp-LinkedOutputView agentmagic-view")
    other.get_by_role("button", name="Approve", exact=True).click()
    for place in (cell.view, other):
        place.get_by_text(re.compile("slowly slowly")).wait_for()
    cell.finish()
    other.locator(".am-figures.am-block").wait_for()
    cell.output.locator(".am-figures.am-block").wait_for()
    one, two = (place.locator(".am-log") for place in (cell.view, other))
    assert "order" in one.inner_text()
    expect(two).to_have_text(one.inner_text(), use_inner_text=True)


def test_keys_alone_approve_open_a_card_and_leave_an_edit(begun):
    cell = begun(f"{TEA}, 'It comes.'")
    keys = cell.page.keyboard
    cell.button("Approve").wait_for()
    cell.view.locator("summary").focus()
    for _ in range(3):
        keys.press("Tab")
    assert focused(cell.page) == "Edit"
    keys.press("Enter")
    keys.type(" please")
    keys.press("Escape")
    assert focused(cell.page) == "Edit"
    keys.press("Shift+Tab")
    keys.press("Shift+Tab")
    assert focused(cell.page) == "Approve"
    keys.press("Enter")
    cell.finish()
    result = cell.card("order").get_by_text("ordered tea")
    expect(result).to_be_hidden()
    keys.press("Enter")  # the focus is on the card that was approved
    result.wait_for()
    assert cell.page.evaluate("() => harness.panel().content.widgets.length") == 3


SALES = """
import pandas as pd, matplotlib.pyplot as plt
plot = plt.figure()
plt.close(plot)
sales = pd.DataFrame({"product": ["Lamp", "Chair"], "revenue": [48, 31]})
"""
PROGRAM = (
    "import matplotlib.pyplot as plt\ntotals = sales.groupby('product')['revenue'].sum()\ntotals.plot.bar()\ntotals\n"
)


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_keys_alone_approve_a_program_that_is_read_as_code_and_has_a_figure_and_a_receipt(begun, theme):
    cell = begun(f"calls('run_python', code={PROGRAM!r}), 'Lamp.'", prepare=SALES, line="%%agent --notebook")
    cell.notebook.use_theme(theme)
    card, keys = cell.card("run_python"), cell.page.keyboard
    code = card.locator(".am-arguments pre")
    code.wait_for()
    assert code.evaluate("pre => pre.textContent") == PROGRAM
    expect(code.locator(".hljs-keyword").first).to_have_text("import")
    expect(card.locator(".am-effects li").first).to_have_text("Reads: sales")
    assert serious(cell.page, "agentmagic-view") == []
    card.locator("summary").focus()
    keys.press("Tab")
    assert focused(cell.page) == "Approve"
    keys.press("Enter")
    cell.finish("Lamp.", "Changed in the notebook: made totals (Series, 2 rows).")
    expect(card.get_by_role("img")).to_be_visible()
    result = card.get_by_text("Name: revenue")
    expect(result).to_be_hidden()
    keys.press("Enter")
    expect(result).to_be_visible()
    cell.notebook.use_theme("JupyterLab Light")


def test_without_the_extension_a_proposed_cell_is_inserted_and_runs_when_the_person_runs_it(begun):
    proposal = "calls('propose_cell', source='later = 1', why='Sets a number.')"
    blocked = "from agentmagic.tools.notebook.base import attached\nattached().can_stage = lambda: False\n"
    cell = begun(
        f"{proposal}, 'It is below.'", "print('later' in globals())", line="%%agent --notebook", prepare=blocked
    )
    cell.finish("It is below.")
    cell.page.wait_for_function("() => harness.panel().content.widgets.length === 5")
    model = cell.page.evaluate("() => harness.cell(3).model.toJSON()")
    assert (model["source"], model["execution_count"], model["outputs"]) == ("later = 1", None, [])
    assert cell.notebook.run(4).strip() == "False"
    cell.page.locator(".jp-Notebook .jp-Cell").nth(3).locator(".cm-content").click()
    cell.page.keyboard.press("Shift+Enter")
    assert cell.notebook.run(4).strip() == "True"


def test_the_line_of_values_opens_by_keys_to_a_table_and_a_figure(begun):
    cell = begun("'Lamp.'", prepare=SALES, line="%%agent\nWhat sold best in {sales}? See @plot, and say")
    cell.finish("Lamp.")
    values = cell.view.locator(".am-values")
    line = values.locator("summary")
    expect(line).to_have_text(re.compile(r"^\{sales\}: DataFrame, 2 rows x 2 columns .*@plot: Figure as an image"))
    expect(values.get_by_role("table").first).to_be_hidden()
    line.focus()
    cell.page.keyboard.press("Enter")
    expect(values.get_by_role("cell", name="Chair", exact=True)).to_be_visible()
    expect(values.get_by_role("img")).to_be_visible()
    expect(values.locator(".am-heading")).to_have_text(["{sales}", "@plot"])
    assert serious(cell.page, "agentmagic-view") == []


STEPS = "{'calls': [{'name': 'brew', 'arguments': {'what': 'tea', 'minutes': 3}}]}, 'It is ready.'"
BREW = "@tool\ndef brew(what: str, minutes: int) -> str:\n    'Brew.'\n    return f'{what} after {minutes} minutes'\n\n"


def test_keys_alone_step_through_a_turn_in_large_type(begun):
    cell = begun(STEPS, prepare=BREW, line="%%agent --step --large")
    page, keys = cell.page, cell.page.keyboard
    page.set_viewport_size({"width": 1280, "height": 720})
    paused = cell.view.get_by_role("group", name="Pause")
    paused.get_by_text("Step 1, to scripted:script").wait_for()
    assert smallest(cell.view) >= 20
    cell.button("Edit").focus()
    keys.press("Enter")
    retype(cell.box("The prompt"), "Make tea, please.")
    keys.press("Tab")
    expect(cell.button("Go on as edited")).to_be_focused()
    keys.press("Enter")
    cell.card("brew").get_by_role("button", name="Skip").wait_for()
    cell.button("Go on").focus()
    keys.press("Enter")
    paused.get_by_text("tool: brew returned tea after 3 minutes").wait_for()
    expect(cell.button("Go on")).to_be_focused()  # a person who goes on by a key goes on by the same key
    assert smallest(cell.view) >= 20
    keys.press("Enter")
    cell.finish("It is ready.")
    expect(paused).to_have_count(0)
    assert "The prompt was changed to: Make tea, please." in cell.written()


def test_a_call_is_skipped_and_the_turn_run_to_its_end_by_buttons(begun):
    cell = begun(STEPS, prepare=BREW, line="%%agent --step")
    cell.click("Go on")
    cell.click("Skip")
    cell.view.get_by_role("group", name="Pause").get_by_role("button", name="Run to the end").click()
    cell.finish("It is ready.")
    assert "the user skipped it" in cell.written()


def smallest(view):
    """The size in pixels of the smallest text that is seen in a view."""
    script = """root => Math.min(...[...root.querySelectorAll("*")]
        .filter((e) => !e.closest(".am-heard") && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
        .filter((e) => e.getClientRects().length)
        .map((e) => parseFloat(getComputedStyle(e).fontSize)))"""
    return view.locator(".agentmagic").evaluate(script)


def focused(page):
    """What the element says that has the focus, within our own elements too."""
    script = "() => { let e = document.activeElement; while (e.shadowRoot) e = e.shadowRoot.activeElement; return e }"
    return page.evaluate_handle(script).as_element().inner_text()


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_serious_in_a_cell_that_waits_nor_in_one_that_is_over(begun, theme):
    cell = begun(
        f"{TEA}, '# Tea\\n\\n| a | b |\\n|--|--|\\n| 1 | [2](https://example.org) |\\n\\n```python\\nprint(1)\\n```'"
    )
    cell.notebook.use_theme(theme)
    cell.button("Approve").wait_for()
    assert serious(cell.page, "agentmagic-view") == []
    cell.click("Approve")
    cell.finish()
    cell.card("order").locator("summary").click()
    assert serious(cell.page, "agentmagic-view") == []
    cell.notebook.use_theme("JupyterLab Light")


def test_the_dark_theme_is_followed(begun):
    cell = begun("'An **answer**.'")
    cell.finish()
    words = cell.view.locator("strong")
    colour = "element => getComputedStyle(element).color"
    light = words.evaluate(colour)
    cell.notebook.use_theme("JupyterLab Dark")
    cell.page.wait_for_function(
        "([element, light]) => getComputedStyle(element).color !== light", arg=[words.element_handle(), light]
    )
    assert min(map(int, re.findall(r"\d+", words.evaluate(colour))[:3])) > 150
    cell.notebook.use_theme("JupyterLab Light")


def test_a_card_that_was_opened_is_open_still_when_its_cell_was_out_of_sight(begun):
    cell = begun("calls('choose'), 'A good one.'", *["print('\\n' * 60)"] * 8)
    retype(cell.box("Your answer"), "Earl Grey")
    cell.click("Answer")
    cell.finish()
    cell.card("choose").locator("summary").click()
    for index in range(3, 11):
        cell.notebook.run(index)
    cell.notebook.use_windowing("full")
    cell.notebook.scroll_to(10)
    cell.page.wait_for_function("() => !harness.cell(2).isAttached")
    cell.notebook.scroll_to(2)
    cell.card("choose").get_by_text("chosen: Earl Grey").wait_for()


@pytest.mark.parametrize("kernel", KERNELS)
def test_where_no_click_reaches_the_cell_the_answer_is_typed_and_it_says_why(open_notebook, kernel):
    notebook = open_notebook(f"play({TEA}, 'Well then.')", "%%agent\nhello", kernel=kernel)
    if kernel == "python3":
        notebook.page.evaluate("() => { harness.kernel().commsOverSubshells = 'disabled' }")
    notebook.run(1)
    cell = Cell(notebook, 2).start()
    notebook.wait_for_text(
        2, "Type your answer: " + ("this page sends no clicks" if kernel == "python3" else "buttons in")
    )
    notebook.wait_for_text(2, "waits for you")
    assert cell.button("Approve").count() == 0
    notebook.type("n not today")
    cell.finish("not today")
    cell.view.locator(".am-card[data-state=denied]").wait_for()
    assert cell.button("Approve").count() == 0


@EVERYWHERE
def test_a_plan_is_followed_in_the_cell_by_keys(begun):
    cell = begun("*STEPS, 'It is 3.'", prepare=PLANNED, line="%%agent --plan")
    question = cell.box("Your answer")
    question.click()
    cell.page.keyboard.type("two")
    cell.page.keyboard.press("Enter")
    tasks = cell.view.locator(".am-tasks > li")
    expect(cell.view.locator(".am-plan-heading")).to_have_text("Plan: 1 of 2 done, 1 running")
    expect(tasks.nth(0)).to_have_attribute("data-state", "done")
    tasks.nth(0).locator("summary").focus()
    cell.page.keyboard.press("Enter")
    expect(tasks.nth(0).get_by_text("Attempt 1: not what was needed (It is spelt two)")).to_be_visible()
    assert serious(cell.page, "agentmagic-view") == []
    cell.button("Approve").focus()
    cell.page.keyboard.press("Enter")
    cell.finish("It is 3.")
    expect(cell.view.locator(".am-plan-heading")).to_have_text("Plan: 2 of 2 done")
    assert "Plan: 2 of 2 done" in cell.written()
