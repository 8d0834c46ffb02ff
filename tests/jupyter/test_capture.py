"""What tools print, display and plot belongs to their calls, and the model is told of it."""

import base64
import hashlib
import re

import pytest

from tests.jupyter.harness import BATCH, CONSOLE

TOLD = "print([part.text for part in agent.messages[2].parts[0].content if part.type == 'text'])"

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


def test_what_a_tool_prints_is_in_its_card_and_told_to_the_model(kernel):
    for front_end in ({}, BATCH):
        kernel.run(PRINTS)
        cell = kernel.run("%%agent\nCount.", **front_end)
        assert cell.stream == ""
        assert "one two" in cell.displays[0]["text/html"]
        assert kernel.run(TOLD).stream == "['3', 'Printed:\\none two\\ncareful']\n"
        assert kernel.run("print('free again')").stream == "free again\n"
    kernel.run(PRINTS)
    assert "one two\n" in kernel.run("%%agent\nCount.", **CONSOLE).stream
    assert "Printed" in kernel.run(TOLD).stream


def test_what_a_tool_displays_is_in_its_card_and_updates_replace_it(kernel):
    kernel.run(DISPLAYS)
    cell = kernel.run("%%agent\nShow.")
    assert len(cell.displays) == 1
    assert kernel.run(TOLD).stream == """['shown', 'Printed:\\nbefore', 'forty two', "'final'"]\n"""
    kernel.run("import os\nif os.path.exists('rich.jsonl'): os.remove('rich.jsonl')\nagent.save('rich.jsonl')")
    kernel.run("other = Session.load('rich.jsonl')")
    assert "<b>forty</b> two" in kernel.run("other").displays[0]["text/html"]


def test_a_styled_frame_that_a_tool_displays_is_styled_for_the_user_and_a_frame_for_the_model(kernel):
    kernel.run("""
import pandas as pd
from IPython.display import display
def show() -> str:
    "Show."
    display(pd.DataFrame({"sold": [1, 2]}).style.set_caption("Sales"))
    return "shown"
play(calls("show"), "Shown.", tools=[show])
""")
    assert "Sales" in kernel.run("%%agent\nShow.").displays[0]["text/html"]
    assert kernel.run(TOLD).stream == "['shown', '   sold\\n0     1\\n1     2']\n"


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
FIGURES = [
    ("draw()", ["draw()"]),
    ("figure = draw(); plt.show(); return figure", ["draw()"]),
    ("figure = draw(); display(figure, figure); plt.show()", ["draw()"]),
    ("figure = draw(); plt.close(); return figure", ["draw()"]),
    ("return draw().axes[0]", ["draw()"]),
    ("return {'figure': draw()}", ["draw()"]),
    ("return type('Grid', (), {'figure': draw(), 'savefig': lambda *_: 1 / 0})()", ["draw()"]),
    ("plt.ioff(); figure = draw(); plt.ion(); return figure", ["draw()"]),
    ("draw(); draw()", ["draw()", "draw()"]),
    ("draw('Vik'); return draw()", ["draw()", "draw('Vik')"]),
    (
        "figure = draw('Vik'); display(figure); figure.axes[0].set_yticks([1, 2], ['Bergen by the sea', 'Oslo'])",
        ["draw('Vik')", "draw()"],
    ),
    ("draw(); plt.close()", []),
    ("for _ in range(2):\n        draw(); plt.show()", ["draw()"] * 2),
]
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


def test_figures_are_sent_as_often_as_they_are_drawn_and_as_a_plain_cell_shows_them(drawing):
    images = {code: plain(drawing, code) for code in ("draw()", "draw('Vik')")}
    for body, codes in FIGURES:
        assert drawn_by_a_tool(drawing, body) == [image for code in codes for image in images[code]], body
    assert drawn_by_a_tool(drawing, "draw()", "return draw('Vik')") == images["draw()"] + images["draw('Vik')"]


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("inline.figure_formats = {'retina'}", marks=pytest.mark.slow),
        pytest.param("inline.figure_formats = {'jpeg'}", marks=pytest.mark.slow),
        "inline.figure_formats = {'svg'}",  # which models do not read: it is sent as PNG
        "inline.print_figure_kwargs = {'bbox_inches': None, 'facecolor': 'yellow'}",
        "plt.rcParams.update({'figure.dpi': 60, 'savefig.dpi': 300, 'savefig.transparent': True})",
    ],
)
def test_a_tools_figure_follows_the_settings_of_the_notebook(drawing, setting):
    as_png = plain(drawing, "draw()")
    drawing.run(setting)
    (shown,) = [one for one in drawing.run("draw();").messages if one["msg_type"] == "display_data"]
    width = shown["content"]["metadata"].get("image/png", {}).get("width")
    for body in ("draw()", "return draw()", "figure = draw(); display(figure); return figure"):
        assert drawn_by_a_tool(drawing, body) == (plain(drawing, "draw()") or as_png)
        if "retina" in setting:
            assert f'width="{width}"' in drawing.run("agent").displays[0]["text/html"]


def test_an_image_is_as_wide_in_its_card_as_its_tool_says(drawing):
    drawing.run("draw().savefig('bergen.png'); plt.close()")
    for body in ("return Image('bergen.png', width=320)", "display(Image('bergen.png', width=320))"):
        assert len(drawn_by_a_tool(drawing, body)) == 1
        assert 'width="320"' in drawing.run("agent").displays[0]["text/html"]


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_figure_that_a_cell_draws_around_a_turn_stays_its_own(drawing, kind):
    drawing.run(f"@tool\n{kind}def plot():\n    'Plot.'\n    draw('Vik')")
    drawing.run("play(calls('plot'), {'text': 'It is plotted now.', 'pace': 0.1}, tools=[plot])")
    cell = drawing.run(
        "figure, axes = plt.subplots(); axes.plot([1, 2])\n"
        "result = agent.ask('Plot.')\n"
        "axes.set_yticks([1, 2], ['Bergen by the sea', 'Oslo'])\n"
    )
    images = digests(data["image/png"] for data in cell.displays if "image/png" in data)
    tools = plain(drawing, "draw('Vik')") if kind else []  # shown when the tool ends, or with the cell
    assert sorted(images) == sorted([*tools, *plain(drawing, "draw()")])


def test_a_figure_that_is_empty_or_cannot_be_drawn_is_told_in_words_and_closed(drawing):
    empty = "<Figure size 640x480 with 0 Axes>"
    broken = "(a figure that was left open cannot be drawn: ValueError: "
    for body, words in (("return plt.figure()", empty), ("draw().suptitle('$\\\\broken$')", broken)):
        assert drawn_by_a_tool(drawing, body) == []
        assert words in drawing.run(TOLD).stream


def test_a_long_tool_tells_its_last_lines_in_order_while_it_runs(kernel):
    kernel.run("""
import sys, threading
gate = threading.Event()
def fit() -> str:
    "Fit."
    print("begun", end="\\r")
    print("loading", file=sys.stderr)
    for epoch in range(20):
        print("epoch", epoch, "of", 20)
    return f"heard: {gate.wait(30)}"
play(calls("fit"), "Done.", tools=[fit])
wanted = "\\n".join(f"epoch {epoch} of 20" for epoch in range(10, 20))
agent.listen(lambda event: event.type == "tool_progress" and event.message == wanted and gate.set())
""")
    kernel.run("%%agent\nFit.")
    assert "heard: True" in kernel.run(TOLD).stream


def test_what_was_printed_before_an_error_or_an_interrupt_is_kept_and_a_typed_answer_is_no_output(kernel):
    kernel.run("""
from agentmagic import ToolContext
@tool
def fail(context: ToolContext, wait: bool) -> int:
    "Fail."
    print("so far")
    wait and time.sleep(30)
    answer = context.ask("Which?")
    print("after")
    raise ValueError(answer)
play(calls("fail", wait=False), "Failed.", calls("fail", wait=True))
""")
    kernel.answer("%%agent\nFail.", "this", **CONSOLE)
    assert kernel.run(TOLD).stream == "['ValueError: this', 'Printed:\\nso far\\nafter']\n"
    kernel.interrupted(kernel.wait_for_text(kernel.send("%%agent --new\nWait."), "so far"))
    assert "so far" in kernel.run(TOLD).stream


def test_much_printed_text_keeps_its_beginning_and_its_end(kernel):
    kernel.run("""
def shout() -> str:
    "Shout."
    print(*range(200_000), sep="\\n")
    for share in range(101):
        print(f"\\r{share}%", end="")
    return "done"
play(calls("shout"), "Shouted.", tools=[shout])
""")
    kernel.run("%%agent\nShout.")
    printed = kernel.run("print(agent.messages[2].parts[0].content[1].text)").stream
    assert printed.startswith("Printed:\n0\n1\n2\n")
    assert "characters left out)" in printed
    assert printed.endswith("199999\n100%\n")
    assert len(printed) < 201_000


SHELLS = [
    "get_ipython().run_cell_magic('bash', '', 'echo one; echo two >&2')",
    "get_ipython().run_cell_magic('script', 'sh', 'echo one; echo two >&2')",
    "get_ipython().system('echo one; echo two >&2')",
    "!echo one; echo two >&2",
    "%%bash\necho one\necho two >&2",
    "%%sh\necho one\necho two >&2",
]


def test_what_a_child_process_prints_reaches_the_model_and_not_the_cell(kernel):
    kernel.run("from agentmagic import NotebookTools, Policy, Rule\nallowed = Policy([Rule('allow', 'run_python')])")
    steps = ", ".join(f"calls('run_python', code={program!r}), 'Done.'" for program in SHELLS)
    kernel.run(f"play({steps}, tools=[NotebookTools()], permission=allowed)")
    for program in SHELLS:
        assert kernel.run("%%agent --new\nRun it.").stream == "", program
        told = kernel.run(TOLD).stream
        assert ("one" in told, "two" in told) == (True, True), program
    assert kernel.run("%%bash\necho free").stream == "free\n"


def test_what_a_coroutine_of_the_tool_prints_on_another_loop_is_its_own_and_what_a_thread_prints_is_not(kernel):
    kernel.run("""
import threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
late = threading.Event()
async def speak(word):
    print(word)
async def later():
    await asyncio.to_thread(late.wait, 30)
    print("too late")
def start() -> int:
    "Start."
    global after
    asyncio.run_coroutine_threadsafe(speak("mine"), loop).result()
    after = asyncio.run_coroutine_threadsafe(later(), loop)
    thread = threading.Thread(target=print, args=("of a thread",))
    thread.start()
    thread.join()
    return 1
play(calls("start"), "Started.", tools=[start])
""")
    assert kernel.run("%%agent\nStart.").stream == "of a thread\n"
    assert kernel.run("late.set(); after.result(30)").ok
    assert kernel.run(TOLD).stream == "['1', 'Printed:\\nmine']\n"


def test_a_chart_of_a_tool_is_shown_below_the_cell_and_the_model_gets_a_picture_or_its_specification(kernel):
    kernel.run("""
import altair as alt, pandas as pd, plotly.graph_objects as go
from IPython.display import display
def chart() -> str:
    "Chart."
    display(alt.Chart(pd.DataFrame({"x": [1, 2]})).mark_bar().encode(x="x:Q"))
    go.Figure(go.Bar(y=[1, 2], name="Oslo")).show()
    return "shown"
play(calls("chart"), "Shown.", tools=[chart])
""")
    cell = kernel.run("%%agent\nChart.")
    assert any("vega" in str(data.get("text/html")) for data in cell.displays)
    assert any("application/vnd.plotly.v1+json" in data for data in cell.displays)
    assert not any("data:image/png" in str(data) for data in cell.displays)
    kernel.run("parts = agent.messages[2].parts[0].content")
    told = kernel.run("print([p.type for p in parts], parts[1].media_type, parts[2].text)").stream
    assert "['text', 'media', 'text'] image/png" in told
    assert '"name": "Oslo"' in told
