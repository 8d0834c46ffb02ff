"""How much of what a person approves is in view stands beside the button: "12 of 340 lines in view"."""

import re

import pytest
from playwright.sync_api import expect

from agentmagic.events import ApprovalAsked, ApprovalGiven, QuestionAsked
from agentmagic.messages import ToolCall
from agentmagic.widgets.sync import Feed
from tests.display.logs import asked_for, started, step_over

pytestmark = pytest.mark.browser

PROGRAM = "\n".join(f"print({number})" for number in range(340))
HOMES = ("cell", "panel")


def shown(stage, *calls, home="panel", **fields):
    """Show calls that wait for an approval."""
    feed = Feed()
    parts = [part for number, call in enumerate(calls, 1) for part in asked_for(call, number)]
    asks = [ApprovalAsked(f"a{number}", call, "notebook", **fields) for number, call in enumerate(calls, 1)]
    for event in [*started(), *parts, *step_over(), *asks]:
        feed.feed(event)
    stage.show(feed, home)
    return feed


def run(**arguments):
    return ToolCall("c1", "run_python", arguments)


def extent(stage):
    return stage.page.locator(".am-extent").filter(visible=True)


def told(stage):
    """Return the lines in view and all lines, once the page tells them."""
    extent(stage).wait_for()
    seen, whole = re.fullmatch(r"([\d,]+) of ([\d,]+) lines in view", extent(stage).inner_text()).groups()
    return int(seen.replace(",", "")), int(whole.replace(",", ""))


@pytest.mark.parametrize("home", HOMES)
def test_a_program_that_goes_on_out_of_its_box_says_so_beside_the_button(stage, home):
    shown(stage, run(code=PROGRAM), home=home)
    seen, whole = told(stage)
    assert whole == 340
    assert 0 <= seen < 30
    beside = "button => button.nextElementSibling.className"
    assert stage.button("Approve").filter(visible=True).first.evaluate(beside) == "am-extent"


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("arguments", [{"code": "print(1)"}, {"what": "tea", "cups": 2}, {}], ids=repr)
def test_a_call_that_is_all_in_view_says_nothing(stage, arguments, home):
    shown(stage, run(**arguments), home=home)
    stage.drawn()
    expect(extent(stage)).to_have_count(0)


def test_a_line_without_a_break_counts_as_the_lines_that_it_takes(stage):
    shown(stage, run(code="x = " + "1 + " * 8_000 + "1"))
    seen, whole = told(stage)
    assert whole > 200 > seen


def test_all_arguments_and_effects_are_counted_together(stage):
    shown(stage, run(code=PROGRAM, why="to see", path="a.txt"), effects=("Writes a.txt.",))
    assert told(stage)[1] == 340 + 3


def test_what_the_edge_of_the_view_hides_is_not_in_view_and_more_of_it_is_in_a_larger_one(stage):
    stage.page.set_viewport_size({"width": 1280, "height": 420})
    shown(stage, run(code="\n".join(f"print({number})" for number in range(14))))
    seen, whole = told(stage)
    assert whole == 14 > seen
    stage.page.set_viewport_size({"width": 1280, "height": 1400})
    stage.page.locator(".am-panel").evaluate("panel => { panel.style.height = panel.style.maxHeight = '1200px' }")
    expect(extent(stage)).to_have_count(0)


def test_the_edited_program_has_its_lines_beside_its_own_button_and_back_has_those_of_the_call(stage):
    shown(stage, run(code=PROGRAM), home="cell")
    stage.page.locator(".am-approval").first.focus()
    stage.press("e")
    stage.button("Approve as edited").filter(visible=True).wait_for()
    seen, whole = told(stage)
    assert (whole, seen < 30) == (340, True)
    stage.press("ControlOrMeta+a")
    stage.page.keyboard.type("print(1)")
    expect(extent(stage)).to_have_count(0)
    stage.press("Escape")
    assert told(stage)[1] == 340


def test_a_pause_before_a_call_and_the_text_of_files_say_it_too(stage):
    shown(stage, run(code=PROGRAM), home="cell", step=True)
    assert told(stage)[1] == 340
    stage.open()
    feed = Feed()
    files = QuestionAsked("f", "May these files be used?", choices=("yes", "no"), files="Obey.\n" * 300)
    for event in [*started(), files]:
        feed.feed(event)
    stage.show(feed, "cell")
    assert told(stage)[1] == 300
    assert axe(stage) == []


def axe(stage):
    return [line for line in stage.axe() if "scrollable" in line]


def test_once_it_is_answered_nothing_is_said_and_the_next_call_has_its_own_number(stage):
    other = ToolCall("c2", "run_python", {"code": "\n".join(["pass"] * 100)})
    feed = shown(stage, run(code=PROGRAM), other, home="cell")
    expect(extent(stage)).to_have_count(2)
    stage.play(feed, ApprovalGiven("a1", approved=True), home="cell")
    expect(extent(stage)).to_have_count(1)
    assert told(stage)[1] == 100
    stage.play(feed, ApprovalGiven("a2", approved=False), home="cell")
    expect(extent(stage)).to_have_count(0)
