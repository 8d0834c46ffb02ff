"""What tools print, display and plot belongs to their calls, and the model is told of it."""

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
