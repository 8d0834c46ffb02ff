"""The view in JupyterLab: it draws, and its clicks arrive, while a cell runs."""

import pytest

from tests.browser.lab import retype

pytestmark = pytest.mark.browser

SETUP = """
import queue, threading
from IPython.display import display
from agentmagic.runtime.engine import engine
from agentmagic.events import ApprovalAsked, ApprovalGiven, PartDelta, PartStarted, ToolStarted
from agentmagic.messages import ToolCall
from agentmagic.widgets.view import View
from tests.display.logs import asked_for, one_text, over, started, step_over

class Listener:
    def __init__(self):
        self.actions = queue.Queue()
    def act(self, action):
        self.actions.put(action)

def play(view, *events):
    async def feed():
        for event in events:
            view.feed(event)
    engine().call(feed())

def shown(home="cell", events=()):
    global view, listener
    listener = Listener()
    view = View(listener, home=home, events=events)
    view.tell({"title": "agent", "actions": ["approve", "deny", "stop", "send"]})
    display(view)

call = ToolCall("c1", "order", {"what": "tea"})
waiting = [*started(), *asked_for(call), *step_over(), ApprovalAsked("a1", call, "shop")]
"""


@pytest.fixture
def open_notebook(lab):
    opened = []

    def open_(*cells):
        number = len(list(lab.folder.iterdir()))
        notebook = lab.open(lab.write(f"live{number}.ipynb", [SETUP, *cells]))
        opened.append(notebook)
        notebook.run(0)
        return notebook

    yield open_
    for notebook in opened:
        notebook.close()


def test_a_running_cell_is_drawn_live_and_takes_clicks(open_notebook):
    notebook = open_notebook(
        "shown()\n"
        "assert view.mounted.wait(10), 'no hello while the cell runs'\n"
        "play(view, *waiting)\n"
        "print(listener.actions.get(timeout=20))\n"
        "play(view, ApprovalGiven('a1', approved=True), ToolStarted(call, 'shop'))\n"
        "print(listener.actions.get(timeout=20))\n"
        "play(view, *over('', 'cancelled'))"
    )
    notebook.start(1)
    output = notebook.output(1)
    output.get_by_role("button", name="Approve").click()
    output.locator(".am-card[data-state=running]").wait_for()
    assert not notebook.is_done(1)
    output.get_by_role("button", name="Stop").click()
    notebook.finish(1)
    output.locator(".am-figures.am-block", has_text="interrupted").wait_for()
    assert "Approve(id='a1'" in notebook.text(1)
    assert "Stop()" in notebook.text(1)


def test_a_second_view_shows_the_same_and_both_share_what_they_draw_with(open_notebook):
    notebook = open_notebook(
        "shown('panel', one_text('an **answer**'))", "display(view)", "print(listener.actions.get(timeout=20))"
    )
    for cell in (1, 2):
        notebook.start(cell)
        notebook.finish(cell)
        notebook.output(cell).locator("strong", has_text="answer").wait_for()
    retype(notebook.output(2).get_by_label("Message", exact=True), "hello")
    notebook.page.keyboard.press("Enter")
    assert "type='send' text='hello'" in notebook.run(3)
