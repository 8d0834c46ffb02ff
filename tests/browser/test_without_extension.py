"""JupyterLab without our extension: nothing is worse than before there was one."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.cells import SETUP, Cell, sources
from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

FRONT_END = "() => Symbol.for('agentmagic.front-end') in globalThis || jupyterapp.hasPlugin('agentmagic:plugin')"
ANSWER = "Run this:\n\n```python\nx = 1\n```\n"
STEPS = "[calls('propose_cell', why='Shows how.', source=f'x = {number}') for number in (1, 2)]"
MODEL = f"ScriptedModel([{ANSWER!r}, calls('order', what='tea'), 'Well then.', *{STEPS}, 'Done.', 'Bye.'])"
BEGIN = f"from agentmagic import NotebookTools\nagent = Session(Agent({MODEL}, tools=[NotebookTools()]))"
ASK = ("%%agent\nHow?", "%%agent\ntea", "%%agent\nPropose.", "%agent chat --dock")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, chrome: Browser) -> Iterator[Lab]:
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    with Lab(tmp_path_factory.mktemp("bare"), browser=chrome, extension=False) as running:
        yield running


def test_the_same_notebook_works_without_the_extension(lab):
    notebook = lab.open(lab.write("bare.ipynb", [SETUP, BEGIN, *ASK]))
    assert not notebook.page.evaluate(FRONT_END)
    for index in range(3):
        notebook.run(index)
    expect(notebook.output(2).locator(".am-code-head").get_by_role("button")).to_have_text(["Copy"])
    notebook.start(3)
    approve = notebook.output(3).get_by_role("button", name="Approve", exact=True)
    approve.wait_for()
    notebook.page.wait_for_function("() => document.title.startsWith('(!) ')")
    tab = notebook.page.locator(".lm-TabBar-tab.jp-mod-current[data-type=document-title] .lm-TabBar-tabLabel")
    assert tab.evaluate("label => getComputedStyle(label, '::before').content") == '"(!) "'
    approve.click()
    notebook.finish(3, "Well then.")
    notebook.run(4, "It was inserted below")
    assert sources(notebook)[5] == "x = 1"
    notebook.run(6, "The panel is here: this page has no place for it beside the notebook.")
    panel = Cell(notebook, 6)
    panel.send("hello")
    expect(panel.answers.last).to_have_text("Bye.")
    notebook.close()
