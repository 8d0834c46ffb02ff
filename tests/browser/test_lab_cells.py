"""The JupyterLab extension in cells: code of an answer, questions about outputs, colours and Tab in %%agent cells."""

import pytest
from nbformat import NO_CONVERT, read, write
from nbformat.v4 import new_output
from playwright.sync_api import expect

from tests.browser.axe import findings, unnamed, violations
from tests.browser.cells import editor, linked, run_by_palette, sources

pytestmark = pytest.mark.browser

ANSWER = "play('''Run this:\n\n```python\nx = 1\n```\n''')"
TABLE = "import pandas as pd\nsales = pd.DataFrame({'city': ['Rome', 'Lima'], 'sold': [3, 14]})\n"
FIGURE = "import matplotlib.pyplot as plt\nprint('drawn')\nplt.plot([1, 3, 2])\nplt.show()"
SEEN = """
class Seeing(ScriptedModel):
    "Plays a script, and keeps what it was asked."
    def __init__(self, *steps):
        super().__init__(list(steps))
        self.asked = []
    async def stream(self, request):
        self.asked.append(request.messages[-1])
        async for event in super().stream(request):
            yield event
model = Seeing("one", "two", "three")
agent = Session(Agent(model))
"""


def write_in(notebook, index, text):
    """Replace what a cell holds, by its keys."""
    editor(notebook, index).click()
    notebook.page.keyboard.press("ControlOrMeta+a")
    notebook.page.keyboard.press("Delete")
    notebook.page.keyboard.type(text)


def bar(notebook, index):
    """Point at the output of a cell, and return the buttons over it."""
    notebook.page.mouse.move(0, 0)
    notebook.output(index).hover(position={"x": 150, "y": 8})
    return notebook.output(index).locator(".agentmagic-output-bar button:visible")


def dock(notebook):
    return notebook.page.locator(".agentmagic-dock")


# -- code of an answer -----------------------------------------------------------------------------


def test_code_goes_to_the_cursor_of_the_last_cell_or_into_a_new_one_and_is_not_run(open_notebook):
    notebook = open_notebook(ANSWER, "%%agent\nHow?", "# first\n# last", run=2)
    editor(notebook, 3).click()
    notebook.page.keyboard.press("ControlOrMeta+Home")
    notebook.page.keyboard.press("End")
    notebook.page.keyboard.press("Enter")
    notebook.output(2).get_by_role("button", name="Insert code at the cursor").click()
    expect(editor(notebook, 3)).to_be_focused()
    assert sources(notebook)[3] == "# first\nx = 1\n# last"
    notebook.output(2).get_by_role("button", name="Insert code as a new cell").press("Enter")
    expect(editor(notebook, 3)).to_be_focused()
    assert sources(notebook)[3:] == ["x = 1", "# first\nx = 1\n# last"]
    assert notebook.outputs(3) == []
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.press("z")
    notebook.page.wait_for_function("() => harness.panel().content.widgets.length === 4")


def test_only_a_click_of_the_person_puts_code_into_a_cell(open_notebook):
    notebook = open_notebook(ANSWER, "%%agent\nHow?", "# last", run=2)
    forged = """() => {
      const name = Symbol.for("agentmagic.front-end")
      const view = document.querySelector("agentmagic-view")
      const click = new MouseEvent("click", { bubbles: true, composed: true })
      const told = []
      view.addEventListener("click", event => told.push(globalThis[name].insert("evil", event)), { once: true })
      view.dispatchEvent(click)
      for (const button of view.shadowRoot.querySelectorAll(".am-code-head button")) button.click()
      told.push(globalThis[name].newCell("evil", {}), globalThis[name].newCell("evil"))
      try { globalThis[name] = 1; Object.defineProperty(globalThis, name, { value: 1 }) } catch { told.push("kept") }
      return told
    }"""
    assert notebook.page.evaluate(forged) == [False, False, False, "kept"]
    stolen = """() => document.addEventListener("click", event => {
      const frontEnd = globalThis[Symbol.for("agentmagic.front-end")]
      window.stolen = [frontEnd.insert("evil", event)]
      setTimeout(() => window.stolen.push(frontEnd.insert("evil", event)))
    }, { once: true })"""
    notebook.page.evaluate(stolen)
    editor(notebook, 3).click()  # a person's click, but in no view
    notebook.page.wait_for_function("() => window.stolen?.length === 2")
    assert notebook.page.evaluate("() => window.stolen") == [False, False]
    assert sources(notebook)[3:] == ["# last"]


# -- outputs ---------------------------------------------------------------------------------------


def test_an_output_is_asked_about_with_what_it_shows_attached(open_notebook):
    notebook = open_notebook(SEEN, TABLE + "sales", FIGURE, run=3)
    linked(notebook)
    expect(bar(notebook, 2)).to_have_text(["Ask about this", "Explain"])
    bar(notebook, 2).first.click()
    chips = dock(notebook).get_by_role("list", name="Attached").get_by_role("listitem")
    expect(chips).to_have_count(2)
    bar(notebook, 3).first.click()
    expect(chips).to_have_count(5)
    names = ["@In[3]", "@out[3]", "@In[4]", "output [4]", "figure [4]"]
    expect(chips.locator(".am-mono")).to_have_text(names)
    assert findings(violations(notebook.page, ".agentmagic-dock")) == []
    dock(notebook).get_by_role("button", name="Remove @In[4]").click()
    expect(chips).to_have_count(4)
    dock(notebook).get_by_label("Message", exact=True).click()
    notebook.page.keyboard.type("What stands out in {sales}?")
    notebook.page.keyboard.press("Enter")
    dock(notebook).locator(".am-figures.am-block").wait_for()
    expect(chips).to_have_count(0)
    write_in(notebook, 3, "print([type(part).__name__ for part in model.asked[0].parts], model.asked[0].parts[0].text)")
    kinds = "['Text', 'Resource', 'Resource', 'Resource', 'Media']"
    assert f"{kinds} What stands out in {{sales}}?" in notebook.printed(3)


def test_an_output_is_explained_and_an_error_fixed_by_key_click_and_palette_with_an_approval_in_the_panel(
    open_notebook,
):
    begin = SEEN.replace('"one"', 'calls("order", what="tea"), "one"')
    notebook = open_notebook(begin, "x = 1\nx", "x / 0", "", run=3)
    editor(notebook, 2).click()
    linked(notebook)
    notebook.page.keyboard.press("Alt+Shift+E")
    dock(notebook).get_by_role("button", name="Approve").first.click()
    turns = dock(notebook).locator(".am-figures.am-block")
    expect(turns).to_have_count(1)
    expect(dock(notebook).locator(".am-said")).to_contain_text("Explain the output of this cell")
    expect(bar(notebook, 3)).to_have_text(["Ask about this", "Explain", "Fix"])
    expect(bar(notebook, 3).last).to_have_attribute("title", "Alt+Shift+F")
    assert findings(violations(notebook.page, ".agentmagic-output-bar")) == []
    assert unnamed(notebook.page) == []
    bar(notebook, 3).last.click()
    expect(turns).to_have_count(2)
    editor(notebook, 2).click()
    offered = "name => jupyterapp.commands.isVisible(`agentmagic:${name}-output`)"
    assert [notebook.page.evaluate(offered, name) for name in ("ask", "fix")] == [True, False]
    run_by_palette(notebook, "Explain This Output")
    expect(turns).to_have_count(3)
    editor(notebook, 4).click()
    assert not notebook.page.evaluate(offered, "ask")
    write_in(notebook, 3, "[(part.name, part.text.splitlines()[-1]) for part in model.asked[2].parts[1:]]")
    assert notebook.printed(3) == "[('In[4]', 'x / 0'), ('error', 'ZeroDivisionError: division by zero')]"


@pytest.mark.usefixtures("closed_dock")
def test_what_is_typed_after_the_key_that_asks_is_the_panels_while_agentmagic_is_being_loaded(lab):
    notebook = lab.open(lab.write("loading.ipynb", ["%load_ext agentmagic", "'tea'"]))
    notebook.run(1)
    notebook.start(0)
    editor(notebook, 1).click()
    notebook.page.keyboard.press("ControlOrMeta+a")
    before = sources(notebook)
    notebook.page.keyboard.press("Alt+Shift+A")
    notebook.page.keyboard.type("What is dd?")
    box = dock(notebook).get_by_label("Message", exact=True)
    expect(box).to_have_value("What is dd?")
    expect(box).to_be_focused()
    chips = dock(notebook).get_by_role("list", name="Attached").get_by_role("listitem")
    expect(chips.locator(".am-mono")).to_have_text(["@In[1]", "@out[1]"])
    assert sources(notebook) == before
    notebook.close()


@pytest.mark.usefixtures("closed_dock")
def test_a_turn_that_is_begun_over_an_output_is_scrolled_to(open_notebook):
    notebook = open_notebook("play('long\\n\\n' * 60, 'long\\n\\n' * 60, 'three')", "x / 0", run=2)
    page, panel = notebook.page, dock(notebook)
    page.keyboard.press("Alt+Shift+P")
    panel.get_by_label("Message", exact=True).wait_for()
    page.keyboard.type("hello")
    page.keyboard.press("Enter")
    turns = panel.locator(".am-figures.am-block")
    for number, by_key in ((1, False), (2, True)):
        expect(turns).to_have_count(number)
        panel.locator(".am-log").hover()
        page.mouse.wheel(0, -100_000)
        expect(panel.locator(".am-said").first).to_be_in_viewport()
        editor(notebook, 2).click()
        if by_key:
            page.keyboard.press("Alt+Shift+F")
        else:
            bar(notebook, 2).last.click()
        expect(turns).to_have_count(number + 1)
        expect(panel.locator(".am-text").last).to_be_in_viewport()


@pytest.mark.usefixtures("closed_dock")
def test_an_untrusted_notebook_or_one_without_agentmagic_has_no_controls_until_its_cells_are_run(lab):
    path = lab.write("untrusted.ipynb", ["%load_ext agentmagic", "1", "1"])
    document = read(path, as_version=NO_CONVERT)
    html = "<div class='agentmagic-output-bar'><button>Fix</button></div><agentmagic-view view='x'></agentmagic-view>"
    document.cells[1].outputs = [new_output("display_data", {"text/html": html, "text/plain": "1"})]
    write(document, path)
    notebook = lab.open(path)
    notebook.run(2)
    notebook.page.keyboard.press("Alt+Shift+P")
    dock(notebook).get_by_text("This notebook is not trusted").wait_for()
    notebook.run(0)
    assert bar(notebook, 2).count() == dock(notebook).get_by_role("button").count() == 0
    assert not notebook.page.evaluate("() => jupyterapp.commands.isVisible('agentmagic:ask-output')")
    notebook.run(1)  # which trusts it
    dock(notebook).get_by_label("Message", exact=True).wait_for()
    linked(notebook)
    expect(bar(notebook, 2)).to_have_count(2)
    notebook.close()


# -- %%agent cells ---------------------------------------------------------------------------------


def coloured(notebook, index):
    """Return the words of a cell that have a colour or a weight of their own, line by line."""
    return notebook.page.evaluate(
        "index => Array.from(harness.cell(index).node.querySelectorAll('.cm-line'),"
        " line => Array.from(line.querySelectorAll('span[class]'), span => span.textContent))",
        index,
    )


def test_a_prompt_is_coloured_as_markdown_and_as_python_between_braces(open_notebook):
    prompt = "%%agent --new\nHow is it, isn't **it**?\nIn {len(sales)} and @sales\n\\frac{a}{b}"
    notebook = open_notebook(prompt, "for x in y")
    first = "() => harness.cell(1).node.querySelector('.cm-line span')?.textContent"
    notebook.page.wait_for_function(f"({first})() === '%%agent --new'")
    expect(editor(notebook, 1).locator(".cm-line span[class]:text-is('len')")).to_be_visible()
    head, prose, values, latex = coloured(notebook, 1)
    assert head == ["%%agent --new"]
    assert prose[0] == "**"  # "is" and "isn't" are prose
    assert "len" in values
    assert values[-1] == "@sales"
    assert latex == []
    notebook.page.wait_for_function("() => harness.cell(2).node.querySelectorAll('.cm-line span[class]').length === 2")
    assert coloured(notebook, 2)[0] == ["for", "in"]


def test_options_names_and_expressions_are_completed_by_tab(open_notebook):
    notebook = open_notebook("sales, city = 1, 'Rome'\ncity", "", run=1)
    items = notebook.page.locator(".jp-Completer:visible .jp-Completer-match")
    for typed, first in [
        ("%%agent --ne", "--new"),
        ("%%agent\nHow is @sal", "sales"),
        ("%%agent\nHow is @out[", "out[2]"),
        ("%%agent\nHow is {city.isd", "isdecimal"),
    ]:
        write_in(notebook, 2, typed)
        notebook.page.keyboard.press("Tab")
        expect(items.first).to_have_text(first)
        notebook.page.keyboard.press("Enter")
        expect(items).to_have_count(0)
        assert sources(notebook)[2].endswith(first)
