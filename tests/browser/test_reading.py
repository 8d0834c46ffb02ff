"""What a reader sees while a turn runs: an answer that stays in its place, the clock, JupyterLab's own state."""

import pytest
from playwright.sync_api import expect

from tests.browser.cells import Cell, editor
from tests.browser.test_docked_panel import Dock

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("closed_dock")]

WORDS = "\\n\\n".join(f"Paragraph {number}: " + "word " * 40 for number in range(30))
LONG = f"play({{'text': '{WORDS}', 'pace': 0.002}}, 'Soon over.')"
SIZE = {"width": 1280, "height": 720}

TOP = """() => {
  const [view] = [...document.querySelectorAll('.jp-Notebook agentmagic-view')].slice(-1)
  return view.shadowRoot.querySelector('.am-text').getBoundingClientRect().top
}"""
"""Where the first line of the answer in the last cell is."""
AT_REST = f"""async () => {{
  for (let before, frames = 0; ; ) {{
    await new Promise(requestAnimationFrame)
    const now = ({TOP})()
    frames = now === before && 0 < now && now < innerHeight ? frames + 1 : 0
    if (frames === 10) return now
    before = now
  }}
}}"""
BEYOND = """() => {
  const outer = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect()
  const [view] = [...document.querySelectorAll('.jp-Notebook agentmagic-view')].slice(-1)
  return view.shadowRoot.querySelector('.am-end-of-log').getBoundingClientRect().bottom - outer.bottom
}"""
"""Pixels of the answer's end below what is seen."""

NO_PATIENCE = """is => {
  const { timeout } = AbortSignal
  AbortSignal.timeout = is ? Object.assign(() => timeout.call(AbortSignal, 0), { timeout }) : timeout.timeout
}"""
"""Has anywidget give up what has not loaded at once; else it does after two seconds."""


@pytest.fixture
def slow_down(lab):
    """Makes the page some times slower, until the test is over."""
    devtools = lab.page.context.new_cdp_session(lab.page)

    def slow(times):
        devtools.send("Emulation.setCPUThrottlingRate", {"rate": times})

    yield slow
    slow(1)
    devtools.detach()


def top_at_rest(page):
    """Returns where the answer begins once that is in sight and at rest: a frame may show it before it is put right."""
    return page.wait_for_function(AT_REST).json_value()


def wait_for_top(page, top):
    page.wait_for_function(f"top => Math.abs(({TOP})() - top) < 2", arg=top)


@pytest.mark.parametrize(
    ("keys", "windowing", "slowness"),
    [("Shift+Enter", "full", 8), ("Shift+Enter", "defer", 1), ("Alt+Enter", "defer", 4), ("Alt+Enter", "none", 1)],
)
def test_an_answer_in_the_last_cell_keeps_its_first_line_in_view_while_it_grows(
    open_notebook, slow_down, keys, windowing, slowness
):
    notebook = open_notebook(LONG, "%%agent\nhello", run=1)
    page = notebook.page
    page.set_viewport_size(SIZE)
    notebook.use_windowing(windowing)
    editor(notebook, 2).click()
    slow_down(slowness)
    page.keyboard.press(keys)
    cell = Cell(notebook, 2)
    cell.says("Paragraph 3:")
    top = top_at_rest(page)
    for number in (10, 20, 29):
        cell.says(f"Paragraph {number}:")
        wait_for_top(page, top)
    cell.turns(1)
    wait_for_top(page, top)


def test_an_answer_that_comes_at_once_begins_in_sight(open_notebook):
    notebook = open_notebook(f"play('{WORDS}')", "%%agent\nhello", run=1)
    page = notebook.page
    page.set_viewport_size(SIZE)
    notebook.use_windowing("full")
    editor(notebook, 2).click()
    page.keyboard.press("Shift+Enter")
    Cell(notebook, 2).turns(1)
    top_at_rest(page)


def test_a_view_that_was_slow_to_load_hears_the_kernel(open_notebook):
    notebook = open_notebook("play('Done.')", "%%agent\nhello", run=1)
    notebook.page.evaluate(NO_PATIENCE, True)
    notebook.start(2)
    try:
        Cell(notebook, 2).turns(1)
    finally:
        notebook.page.evaluate(NO_PATIENCE, False)


def test_a_reader_who_goes_to_the_end_of_an_answer_in_a_cell_sees_it_grow(open_notebook):
    notebook = open_notebook(LONG.replace("0.002", "0.004"), "%%agent\nhello", run=1)
    page = notebook.page
    page.set_viewport_size(SIZE)
    notebook.use_windowing("full")
    editor(notebook, 2).click()
    page.keyboard.press("Shift+Enter")
    cell = Cell(notebook, 2)
    cell.says("Paragraph 8:")
    notebook.output(2).hover()
    page.mouse.wheel(0, 100_000)
    page.wait_for_function(f"() => ({BEYOND})() < 30")
    for number in (15, 20, 25):
        cell.says(f"Paragraph {number}:")
        page.wait_for_function(f"() => ({BEYOND})() < 30")


def test_a_turn_is_told_in_our_own_item_and_jupyterlabs_state_is_that_of_cells(open_notebook):
    notebook = open_notebook(LONG, "%%agent\nhello", run=1)
    page = notebook.page
    state = page.locator(".jp-StatusBar-Widget").get_by_text("| ")
    notebook.start(2)
    Cell(notebook, 2).says("Paragraph 3:")
    expect(page.locator(".agentmagic-status")).to_contain_text("agent runs a turn")
    expect(state).to_contain_text("| Busy")
    notebook.finish(2)
    expect(state).to_contain_text("| Idle")
    expect(page.locator(".agentmagic-status")).not_to_contain_text("turn")
    dock = Dock(notebook).open()
    assert abs(page.locator(".agentmagic-dock").bounding_box()["width"] - 420) < 5
    dock.send("again")
    dock.turns(2)
