"""What tools print, display and plot belongs to their calls, and the model is told of it."""

import base64
import hashlib
import re

import pytest

from tests.jupyter.harness import BATCH, CONSOLE

TOLD = "print([part.text for part in agent.messages[2].parts[0].content if part.type == 'text'])"
KINDS = "print([getattr(part, 'media_type', 'text') for part in agent.messages[2].parts[0].content])"

PRINTS = """
import sys
@tool
def count() -> int:
    "Count."
    print("one", "two")
    print("careful", file=sys.stderr)
    return 3
play(calls("count"), "Counted.")
"""
DISPLAYS = """
from IPython.display import HTML, clear_output, display, update_display
@tool
def show() -> str:
    "Show."
    print("before")
    display(HTML("<b>forty</b> two"))
    handle = display("draft", display_id=True)
    handle.update("final")
    return "shown"
play(calls("show"), "Shown.")
"""
PLOTS = """
import matplotlib.pyplot as plt
mine = plt.figure()
@tool
def plot() -> str:
    "Plot."
    plt.figure(); plt.plot([1, 2])
    plt.figure(); plt.plot([2, 1])
    return "plotted"
play(calls("plot"), "Plotted.")
"""
SHOWS = """
import matplotlib.pyplot as plt
@tool
def plot() -> str:
    "Plot."
    plt.figure(); plt.plot([1, 2])
    plt.show()
    return "plotted"
play(calls("plot"), "Plotted.")
"""


@pytest.mark.parametrize("front_end", [{}, BATCH], ids=["lab", "batch"])
def test_what_a_tool_prints_is_in_its_card_and_told_to_the_model(kernel, front_end):
    kernel.run(PRINTS)
    cell = kernel.run("%%agent\nCount.", **front_end)
    assert cell.ok
    assert cell.stream == ""
    assert "one two" in cell.displays[0]["text/html"]
    assert kernel.run(TOLD).stream == "['3', 'Printed:\\none two\\ncareful']\n"
    assert kernel.run("print('free again')").stream == "free again\n"


def test_a_console_prints_what_a_tool_prints_and_the_model_is_told(kernel):
    kernel.run(PRINTS)
    assert "one two\n" in kernel.run("%%agent\nCount.", **CONSOLE).stream
    assert "Printed" in kernel.run(TOLD).stream


def test_what_a_tool_displays_is_in_its_card_and_updates_replace_it(kernel):
    kernel.run(DISPLAYS)
    cell = kernel.run("%%agent\nShow.")
    assert len(cell.displays) == 1
    assert kernel.run(TOLD).stream == """['shown', 'Printed:\\nbefore', 'forty two', "'final'"]\n"""


def test_figures_that_a_tool_leaves_open_are_taken_once_and_closed(kernel):
    kernel.run(PLOTS)
    cell = kernel.run("%%agent\nPlot.")
    assert len(cell.displays) == 1
    assert cell.displays[0]["text/html"].count("data:image/png") == 2
    assert kernel.run(KINDS).stream == "['text', 'image/png', 'image/png']\n"
    assert kernel.run("print(plt.get_fignums())").stream == "[]\n"


def test_a_figure_that_a_tool_shows_is_taken_once(kernel):
    kernel.run("import matplotlib.pyplot as plt; plt.figure(); plt.close()")
    kernel.run(SHOWS)
    cell = kernel.run("%%agent\nPlot.")
    assert len(cell.displays) == 1
    assert kernel.run(KINDS).stream == "['text', 'image/png']\n"


DRAW = """
import hashlib
import matplotlib.pyplot as plt
from IPython.display import Image, display
from matplotlib_inline.config import InlineBackend
plt.close(plt.figure())  # pyplot and the inline backend are set up now
def draw(town="Bergen by the sea"):
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    axes.set_yticks([1, 2], [town, "Oslo"])  # the name of the town begins beyond the figure's edge
    return figure
def told():
    parts = [part for row in agent.messages if row.role == "tool" for one in row.parts for part in one.content]
    return [hashlib.sha256(part.data).hexdigest() for part in parts if part.type == "media"]
"""
ONCE = {
    "left open": "draw()",
    "returned": "return draw()",
    "returned and shown": "figure = draw(); plt.show(); return figure",
    "shown": "draw(); plt.show()",
    "displayed": "figure = draw(); display(figure); return 'displayed'",
    "displayed and returned": "figure = draw(); display(figure); return figure",
    "displayed again": "figure = draw(); display(figure, figure); plt.show()",
    "closed and returned": "figure = draw(); plt.close(); return figure",
    "saved": "figure = draw(); figure.savefig('bergen.png')",
    "returned as axes": "return draw().axes[0]",
    "in a dictionary": "return {'figure': draw()}",
    "in a list": "return [draw(), 'Bergen']",
    "of a grid": "return type('Grid', (), {'figure': draw(), 'savefig': lambda *_: 1 / 0})()",
    "drawn without showing": "plt.ioff(); figure = draw(); plt.ion(); return figure",
}
"""Bodies of a tool that draws one figure."""
TIMES = {
    "two that are equal": ("draw(); draw()", ["draw()", "draw()"]),
    "two that are returned": ("return [draw(), draw('Vik')]", ["draw()", "draw('Vik')"]),
    "one returned, one left open": ("draw('Vik'); return draw()", ["draw()", "draw('Vik')"]),
    "one that has changed": (
        "figure = draw('Vik'); display(figure); figure.axes[0].set_yticks([1, 2], ['Bergen by the sea', 'Oslo'])",
        ["draw('Vik')", "draw()"],
    ),
    "none that was closed": ("draw(); plt.close()", []),
    "three in a row": ("for _ in range(3):\n        draw(); plt.show()", ["draw()"] * 3),
}
"""Bodies of a tool, and what a plain cell runs for each of the figures that are sent."""


def digests(images):
    return [hashlib.sha256(base64.b64decode(image)).hexdigest() for image in images]


def plain(kernel, code):
    """The images that a plain cell shows."""
    kinds = ("image/png", "image/jpeg")
    return digests(data[kind] for data in kernel.run(f"{code};").displays for kind in kinds if kind in data)


def drawn_by_a_tool(kernel, *bodies):
    """The images of the tools' results and of the cell's output, which are the same; no figure is left open."""
    names = [f"plot_{number}" for number in range(len(bodies))]
    for name, body in zip(names, bodies, strict=True):
        defined = kernel.run(f"@tool\ndef {name}():\n    'Plot.'\n    {body}")
        assert defined.ok, defined.error
    kernel.run(f"play({{'calls': [one for name in {names} for one in calls(name)['calls']]}}, 'Plotted.')")
    (shown,) = kernel.run("%%agent\nPlot.").displays
    images = re.findall(r"data:image/\w+;base64,([\w+/=]+)", shown["text/html"])
    assert kernel.run("print(told())").stream == f"{digests(images)}\n"
    assert kernel.value("plt.get_fignums()") == "[]"
    return digests(images)


@pytest.fixture
def drawing(kernel):
    """A kernel with a function that draws, and with settings of its own for the test."""
    state = kernel.run(f"{DRAW}\ninline, before = InlineBackend.instance(), plt.rcParams.copy()")
    assert state.ok, state.error
    yield kernel
    kernel.run("inline.print_figure_kwargs = {'bbox_inches': 'tight'}")
    kernel.run("inline.figure_formats = {'png'}")
    kernel.run("plt.rcParams.update(before)")


@pytest.mark.parametrize("body", ONCE.values(), ids=ONCE.keys())
def test_a_tools_figure_is_sent_once_as_a_plain_cell_shows_it(drawing, body):
    assert drawn_by_a_tool(drawing, body) == plain(drawing, "draw()")


@pytest.mark.parametrize(("body", "codes"), TIMES.values(), ids=TIMES.keys())
def test_figures_are_sent_as_often_as_they_are_drawn(drawing, body, codes):
    assert drawn_by_a_tool(drawing, body) == [image for code in codes for image in plain(drawing, code)]


def test_two_tools_of_one_step_send_their_own_figures(drawing):
    assert drawn_by_a_tool(drawing, "draw()", "return draw('Vik')") == plain(drawing, "draw()") + plain(
        drawing, "draw('Vik')"
    )


@pytest.mark.parametrize(
    "setting",
    [
        "inline.figure_formats = {'retina'}",
        "inline.figure_formats = {'jpeg'}",
        "inline.print_figure_kwargs = {'bbox_inches': None, 'facecolor': 'yellow'}",
        "plt.rcParams.update({'figure.dpi': 60, 'savefig.dpi': 300, 'savefig.transparent': True})",
        "plt.style.use('dark_background')",
    ],
)
def test_a_tools_figure_follows_the_settings_of_the_notebook(drawing, setting):
    drawing.run(setting)
    for body in ("draw()", "return draw()", "draw(); plt.show()"):
        assert drawn_by_a_tool(drawing, body) == plain(drawing, "draw()")


def test_a_figure_in_a_format_that_models_do_not_read_is_sent_as_png(drawing):
    expected = plain(drawing, "draw()")
    drawing.run("inline.figure_formats = {'svg'}")
    for body in ("draw()", "return draw()", "draw(); plt.show()", "figure = draw(); display(figure); return figure"):
        assert drawn_by_a_tool(drawing, body) == expected


@pytest.mark.parametrize("body", ["draw()", "return draw()", "draw(); plt.show()"])
def test_a_retina_figure_is_as_wide_in_its_card_as_below_a_cell(drawing, body):
    drawing.run("inline.figure_formats = {'retina'}")
    (shown,) = [one for one in drawing.run("draw();").messages if one["msg_type"] == "display_data"]
    width = shown["content"]["metadata"]["image/png"]["width"]
    drawn_by_a_tool(drawing, body)
    assert f'width="{width}"' in drawing.run("agent").displays[0]["text/html"]


@pytest.mark.parametrize("body", ["return Image('bergen.png', width=320)", "display(Image('bergen.png', width=320))"])
def test_an_image_is_as_wide_in_its_card_as_its_tool_says(drawing, body):
    drawing.run("draw().savefig('bergen.png'); plt.close()")
    assert len(drawn_by_a_tool(drawing, body)) == 1
    assert 'width="320"' in drawing.run("agent").displays[0]["text/html"]


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_figure_that_a_cell_draws_around_a_turn_stays_its_own(drawing, kind):
    drawing.run(
        f"@tool\n{kind}def plot():\n    'Plot.'\n    draw('Vik')\nplay(calls('plot'), 'Plotted.', tools=[plot])"
    )
    cell = drawing.run(
        "figure, axes = plt.subplots(); axes.plot([1, 2])\n"
        "result = agent.ask('Plot.')\n"
        "axes.set_yticks([1, 2], ['Bergen by the sea', 'Oslo'])\n"
    )
    images = digests(data["image/png"] for data in cell.displays if "image/png" in data)
    tools = plain(drawing, "draw('Vik')") if kind else []  # shown when the tool ends, or with the cell
    assert sorted(images) == sorted([*tools, *plain(drawing, "draw()")])


def test_an_empty_figure_is_text_as_in_a_plain_cell(drawing):
    for body in ("plt.figure()", "return plt.figure()"):
        assert drawn_by_a_tool(drawing, body) == []
        assert "<Figure size 640x480 with 0 Axes>" in drawing.run(TOLD).stream


def test_a_long_tool_tells_its_last_line_while_it_runs(kernel):
    kernel.run("""
import threading
gate = threading.Event()
@tool
def fit() -> str:
    "Fit."
    print("epoch 7 of 9")
    gate.wait(30)
    return "fitted"
@tool(thread_safe=True)
def other() -> str:
    "Open the gate when it is told so."
    input_gate.wait(30)
    gate.set()
    return "opened"
input_gate = threading.Event()
def hear(event):
    if event.type == "tool_progress" and "epoch 7" in event.message:
        input_gate.set()
play({"calls": [*calls("fit")["calls"], *calls("other")["calls"]]}, "Done.")
agent.listen(hear)
""")
    assert kernel.run("%%agent\nFit.").ok
    assert "epoch 7 of 9" in kernel.run(TOLD).stream


def test_what_was_printed_before_an_error_or_an_interrupt_is_kept(kernel):
    kernel.run("""
@tool
def fail() -> int:
    "Fail."
    print("so far")
    raise ValueError("broken")
play(calls("fail"), "Failed.")
""")
    kernel.run("%%agent\nFail.")
    assert kernel.run(TOLD).stream == "['ValueError: broken', 'Printed:\\nso far']\n"
    kernel.run("""
import time
@tool
def wait() -> int:
    "Wait."
    print("I wait")
    time.sleep(30)
play(calls("wait"), "never")
""")
    cell = kernel.send("%%agent --new\nWait.")
    kernel.wait_for_text(cell, "I wait")
    kernel.interrupt()
    kernel.finish(cell)
    assert "I wait" in kernel.run(TOLD).stream


def test_a_turn_inside_a_tool_and_a_typed_answer_are_no_output_of_the_tool(kernel):
    kernel.run("""
from agentmagic import ToolContext
@tool
def ask(context: ToolContext) -> str:
    "Ask."
    print("outer")
    answer = context.ask("Which?")
    print("after")
    return answer
play(calls("ask"), "Asked.")
""")
    cell = kernel.send("%%agent\nAsk.", **CONSOLE)
    kernel.asked(cell)
    kernel.type("this")
    kernel.finish(cell)
    assert kernel.run(TOLD).stream == "['this', 'Printed:\\nouter\\nafter']\n"


def test_much_printed_text_keeps_its_beginning_and_its_end(kernel):
    kernel.run("""
@tool
def shout() -> str:
    "Shout."
    for number in range(200_000):
        print(number)
    for share in range(101):
        print(f"\\r{share}%", end="")
    return "done"
play(calls("shout"), "Shouted.")
""")
    kernel.run("%%agent\nShout.")
    printed = kernel.run("print(agent.messages[2].parts[0].content[1].text)").stream
    assert printed.startswith("Printed:\n0\n1\n2\n")
    assert "characters left out)" in printed
    assert printed.endswith("199999\n100%\n")
    assert len(printed) < 21_000


FRAMES = """
import pandas as pd
from IPython.display import display
@tool
def frame() -> pd.DataFrame:
    "Return a frame."
    display(pd.DataFrame({"shown": ["<b>x</b>"]}))
    return pd.DataFrame({"n": range(1_000), "word": "<script>alert(1)</script>"})
play(calls("frame"), "Framed.")
"""


def test_a_frame_is_a_table_for_the_user_and_text_for_the_model(kernel):
    if not kernel.run(FRAMES).ok:
        pytest.skip("this kernel has no pandas")
    (shown,) = kernel.run("%%agent\nFrame.").displays
    page = shown["text/html"]
    assert page.count("<table>") == 2
    assert "<td>49</td>" in page
    assert "<td>50</td>" not in page
    assert "1,000 rows in all, the first 50 shown" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    told = kernel.run(TOLD).stream
    assert "(1000 rows in all, the first 50 shown)" in told
    assert "<table" not in told


def test_html_of_a_saved_conversation_is_there_after_it_is_loaded(kernel):
    kernel.run(DISPLAYS)
    kernel.run("%%agent\nShow.")
    kernel.run("import os\nif os.path.exists('rich.jsonl'): os.remove('rich.jsonl')\nagent.save('rich.jsonl')")
    kernel.run("other = Session.load('rich.jsonl')")
    assert "<b>forty</b> two" in kernel.run("other").displays[0]["text/html"]
