"""Figures of Matplotlib while a page is attached: what a tool and a plain cell draw is the same, byte for byte."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.lab import retype

pytestmark = pytest.mark.browser

TIMES = 8
DRAW = """
import math
import matplotlib.pyplot as plt
def draw():
    figure, axes = plt.subplots()
    for shift in range(4):
        axes.plot([math.sin(step / 40 + shift) for step in range(400)], label=f"line {shift}")
    axes.set_yticks([-1, 0, 1], ["Oslo in the north", "Trondheim", "Bergen by the sea"])
    axes.legend()
    for step in range(12):
        axes.text(30 * step, math.sin(step), f"p{step}")
@tool
def plot() -> str:
    "Plot."
    draw()
    return "plotted"
"""
PROMPT = "%%agent\nPlot."
"""A cell whose view says hello while its tool draws."""


def plain(notebook, index):
    """The images that a plain cell shows."""
    shown = (output.get("data", {}) for output in notebook.outputs(index))
    return [data["image/png"].strip() for data in shown if "image/png" in data]


def saved(notebook, index):
    """The images in what the notebook keeps of a turn."""
    pages = (output["data"].get("text/html", "") for output in notebook.outputs(index))
    return [image for page in pages for image in re.findall(r"data:image/png;base64,([\w+/=]+)", page)]


def test_object_of_tools_and_of_plain_cells_are_the_same_while_a_page_is_attached(open_notebook):
    steps = f"*[step for _ in range({TIMES}) for step in (calls('plot'), 'Plotted.')], *['Well.'] * {TIMES}"
    many = f"for _ in range({TIMES}):\n    draw()\n    plt.show()"
    notebook = open_notebook(f"{DRAW}play({steps})", "draw()", PROMPT, "agent.chat()", many, run=2)
    (expected,) = plain(notebook, 2)

    for _ in range(TIMES):
        notebook.run(3)
        assert saved(notebook, 3) == [expected]
    picture = notebook.output(3).locator("agentmagic-view img")
    expect(picture).to_have_attribute("src", f"data:image/png;base64,{expected}")
    assert picture.evaluate("image => image.clientWidth === image.naturalWidth")

    notebook.run(4)
    message = notebook.output(4).get_by_label("Message", exact=True)
    notebook.start(5)
    notebook.page.wait_for_function("() => harness.cell(5).model.outputs.length > 0")
    while not notebook.is_done(5):
        retype(message, "And?")
        message.press("Enter")
    assert plain(notebook, 5) == [expected] * TIMES
