"""The chat panel in JupyterLab: everything it does, done by clicks and keys."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import PLANNED, SERVER, Cell

pytestmark = pytest.mark.browser

TEA = "calls('order', what='tea')"
WORDS = " ".join(f"word{number}" for number in range(400))


def of_turn(panel, turn, name):
    """Press one of the buttons beside a prompt."""
    prompt = panel.root.locator(".am-prompt").nth(turn)
    prompt.hover()
    prompt.get_by_role("button", name=name, exact=True).click()


def of_menu(panel, name):
    """Choose from the menu by keys."""
    panel.root.locator("summary[aria-label=More]").press("Enter")
    panel.button(name).press("Enter")


def send_with_plan(panel, prompt):
    """Ask for a plan by keys, and send a message."""
    panel.message.click()
    panel.keys.type(prompt)
    panel.press("Tab", "Tab", "Space")
    expect(panel.root.get_by_label("Plan first")).to_be_checked()
    panel.press("Shift+Tab", "Shift+Tab", "Enter")


def prompts_are(panel, *prompts):
    expect(panel.prompts).to_have_text(list(prompts))  # also of those that are out of sight, whose inner text is empty


# -- turns -----------------------------------------------------------------------------------------


def test_a_message_is_answered_as_the_words_come_and_stays_in_the_notebook(open_panel, lab):
    panel = open_panel(f"play({{'text': '**Yes** ' + {WORDS!r}, 'pace': 0.005}})")
    panel.send("hello {year}")
    part = "box => box.textContent.includes('word5') && !box.textContent.includes('word399')"
    panel.page.wait_for_function(part, arg=panel.root.locator(".am-panel").element_handle())
    panel.turns(1)
    prompts_are(panel, "hello {year}")
    panel.says("word399")
    expect(panel.root.locator(".am-head")).to_contain_text("tokens, no charge")
    panel.keeps("> hello {year}\n\n**Yes** word0 word1", "word399")
    panel.notebook.save()
    panel.notebook.end()
    lab.reload()
    notebook = lab.open(panel.notebook.path)  # without its kernel
    output = notebook.output(2)
    output.locator("strong", has_text="Yes").wait_for()
    expect(output.get_by_text("hello")).to_be_visible()
    assert output.locator(".am-panel").count() == 0
    assert "not found" not in output.inner_text()
    notebook.close()


def test_shift_enter_breaks_the_line_in_a_new_message_and_in_one_that_is_edited(open_panel):
    panel = open_panel("play('one', 'two')")
    panel.message.focus()
    panel.keys.type("draft")
    panel.press("Shift+Enter")
    expect(panel.message).to_have_value("draft\n")
    panel.press("ControlOrMeta+z")
    expect(panel.message).not_to_have_value("draft\n")  # how much one undo takes back is the browser's affair
    panel.press("ControlOrMeta+a", "Delete")
    expect(panel.message).to_have_value("")
    panel.keys.type("first")
    panel.press("Shift+Enter")
    panel.keys.type("second")
    panel.press("Enter")
    panel.turns(1)
    expect(panel.prompts).to_have_text([re.compile(r"^first\nsecond$")], use_inner_text=True)
    of_turn(panel, 0, "Edit and run again")
    expect(panel.box("Edit your message")).to_be_focused()
    panel.press("ControlOrMeta+End", "Shift+Enter")
    panel.keys.type("third {year}")
    panel.press("Enter")
    panel.says("two")
    expect(panel.prompts).to_have_text([re.compile(r"^first\nsecond\nthird \{year\}$")], use_inner_text=True)


def test_what_waits_and_stop_are_in_sight_where_the_end_of_the_panel_is_not(open_panel):
    panel = open_panel(f"play({TEA}, 'It comes.')\nprint('\\n' * 8)")
    panel.send("tea please")
    panel.button("Approve").wait_for()
    panel.notebook.scroll_to(0)
    bar = panel.output.locator(".am-pin")
    expect(bar.get_by_text("order waits for your approval")).to_be_in_viewport(ratio=1)
    stop = bar.get_by_role("button", name="Stop")
    expect(stop).to_be_in_viewport(ratio=1)
    expect(panel.message).not_to_be_in_viewport()
    stop.click()
    panel.turns(1)
    expect(bar).to_be_hidden()


def test_a_conversation_is_run_again_cleared_brought_back_forked_and_exported(open_panel, lab):
    panel = open_panel(
        "play(*'one two three four five'.split())",
        "[turn.answer for turn in agent_3.turns]",
        "[len(agent.turns), len(agent_4.turns)]",
    )
    panel.send("first", "second")
    of_turn(panel, 1, "Run again")
    panel.says("three")
    prompts_are(panel, "first", "second")
    of_menu(panel, "Clear")
    panel.press("Enter")
    panel.says("Cleared 2 turns.")
    panel.click("Undo")
    panel.turns(2)
    prompts_are(panel, "first", "second")
    of_turn(panel, 0, "Run again")
    panel.says("1 later turn will go, and be kept as a fork.")
    panel.press("Enter")
    panel.says("is kept as agent_3")
    panel.says("four")
    prompts_are(panel, "first")
    assert panel.notebook.printed(3) == "['one', 'three']"
    of_menu(panel, "Export as Markdown")
    panel.says("Wrote 1 turn to ")
    name = panel.root.locator(".am-printout").last.inner_text().split()[-1].rstrip(".")
    assert "four" in (lab.folder / name).read_text()
    of_turn(panel, 0, "Fork from here")
    panel.says("This is agent_4, with the turns up to there.")
    expect(panel.root.locator(".am-title")).to_have_text("agent_4")
    expect(panel.message).to_be_focused()
    panel.keys.type("another way")
    panel.press("Enter")
    panel.says("five")
    prompts_are(panel, "first", "another way")
    assert panel.notebook.printed(4) == "[1, 2]"


GROW = """
rows = [1]
@tool
def grow() -> str:
    "Grow."
    rows.append(2)
    return "grown"
play(calls('grow'), 'It has grown.')
"""


def test_undo_and_redo_take_the_variables_along_by_keys_in_the_menu_and_in_the_box(open_panel):
    panel = open_panel(GROW, "rows, len(agent.turns)")
    panel.send("grow it")
    panel.turns(1)
    for name, told, value in (
        ("Undo", "Forgotten: grow it", "([1], 0)"),
        ("Redo", "Back again: grow it", "([1, 2], 1)"),
    ):
        of_menu(panel, name)
        panel.says(told)
        panel.says("Put back: rows.")
        assert panel.notebook.printed(3) == value
    prompts_are(panel, "grow it")
    panel.message.focus()
    panel.keys.type("/undo ")
    panel.press("Enter")
    panel.says("Nothing asked yet.")
    assert panel.notebook.printed(3) == "([1], 0)"


def test_a_turn_of_a_cell_shows_in_the_panel_and_a_message_waits_for_it_or_is_taken_back(open_panel):
    turn = "{'text': 'slowly'} | calls('order', what='tea'), 'It comes.', 'after it'"
    panel = open_panel(f"play({turn})", "%%agent\nfrom a cell", "[turn.prompt.text for turn in agent.turns]")
    panel.notebook.start(3)
    panel.says("slowly")
    prompts_are(panel, "from a cell")
    panel.send("from the panel")
    panel.says("“from the panel” waits for the turn under way.")
    panel.click("Take back")
    expect(panel.message).to_have_value("from the panel")
    panel.message.press("Enter")
    panel.says("“from the panel” waits for the turn under way.")
    panel.click("Approve")
    panel.notebook.finish(3)
    panel.says("after it")
    assert panel.notebook.printed(4) == "['from a cell', 'from the panel']"


def test_a_plan_is_begun_answered_and_resumed_by_keys(open_panel):
    panel = open_panel(f"{PLANNED}\nplay(*STEPS, 'It is 3.')")
    send_with_plan(panel, "Add the number to 1.")
    panel.box("Your answer").click()
    panel.keys.type("two")
    panel.press("Enter")
    headings = panel.root.locator(".am-plan-heading")
    expect(headings).to_have_text("Plan: 1 of 2 done, 1 running")
    panel.click("Stop")
    panel.turns(1)
    panel.says("The plan was cut off with 1 open task.")
    assert serious(panel.page, "agentmagic-view") == []
    panel.root.locator(".am-tasks > li").first.locator("summary").press("Enter")
    panel.says("Attempt 1: not what was needed (It is spelt two)")
    panel.button("Resume").press("Enter")
    panel.button("Approve").press("Enter")
    panel.says("It is 3.")
    expect(headings.last).to_have_text("Plan: 2 of 2 done")
    expect(panel.button("Resume")).to_have_count(0)
    assert "Question: Which word?\n\nAnswer: two" in panel.root.locator(".am-question").first.inner_text()


def test_a_plan_that_was_cut_off_is_dropped_by_its_button_and_the_next_message_is_just_answered(open_panel):
    tasks = {"tasks": [{"id": "t1", "tool": "order", "parameters": {"what": "tea"}}]}
    steps = [json.dumps(step) for step in ({"route": "tools"}, tasks, {"route": "answer"})]
    panel = open_panel(f"play(*{steps}, 'Hello.')")
    send_with_plan(panel, "Order tea.")
    panel.button("Approve").wait_for()
    panel.click("Stop")
    panel.says("The plan was cut off with 1 open task.")
    panel.button("Drop").press("Enter")
    expect(panel.button("Drop")).to_have_count(0)
    panel.send("Hello?")
    panel.turns(2)
    panel.says("Hello.")


def test_a_command_prints_into_the_conversation_and_the_box_stays_where_it_is(open_panel):
    panel = open_panel("play('one', 'two')")
    panel.send("first")
    panel.turns(1)
    place = panel.message.bounding_box()
    for line, shown in (("status", "2 messages"), ("help", "Subcommands"), ("help undo", "Undo the last turn")):
        panel.keys.type(f"/{line}")
        panel.press("Escape", "Enter")  # Escape closes the suggestions
        printed = panel.root.locator(".am-log > .am-printout").last
        expect(printed).to_contain_text(f"/{line}")
        expect(printed).to_contain_text(shown)
        expect(printed).to_be_in_viewport()
        expect(panel.message).to_be_focused()
        assert panel.message.bounding_box() == place
    panel.send("second")
    panel.turns(2)
    expect(panel.root.locator(".am-log > .am-printout")).to_have_count(3)
    panel.keys.type("/inspect 1")
    panel.press("Escape", "Enter")
    panel.says("Turn 1, scripted:script: first")
    assert panel.focused() == "Inspector"


# -- around the conversation -----------------------------------------------------------------------


def test_examples_completions_commands_and_earlier_prompts_come_into_the_box(open_panel):
    begin = "play('one', 'two')\nimport pandas as pd\nsalary, sales = [1], pd.DataFrame({'name': ['Lamp']})"
    panel = open_panel(begin, "[part.text for part in agent.turns[1].prompt.parts][0]")
    panel.says("Nothing asked yet.")
    panel.says("scripted:script answers.")
    panel.root.get_by_role("button", name="What is in @sales").click()
    expect(panel.message).to_have_value("What is in @sales, and what stands out?")
    expect(panel.message).to_be_focused()
    panel.press("Enter")
    panel.turns(1)
    panel.message.focus()
    panel.keys.type("look at @sal")
    options = panel.root.get_by_role("listbox", name="Suggestions").get_by_role("option")
    expect(options).to_have_text(["@salesDataFrame 1 by 1", "@salarylist"])
    panel.press("ArrowDown", "ArrowUp", "Tab")
    expect(panel.message).to_have_value("look at @sales ")
    expect(options.first).to_be_hidden()
    panel.keys.type("{year}")
    panel.press("Enter")
    panel.turns(2)
    panel.keys.type("/cos")
    expect(options).to_have_count(1)
    panel.press("Enter")
    expect(panel.message).to_have_value("/cost ")
    panel.press("Enter")
    panel.root.locator(".am-printout", has_text="request").wait_for()  # and that is no turn
    last, first = "look at @sales {year}", "What is in @sales, and what stands out?"
    prompts_are(panel, first, last)
    assert f"'{last}'" in panel.notebook.printed(3)
    panel.message.focus()
    panel.keys.type("a draft")
    for key, text in [("Up", last), ("Up", first), ("Up", first), ("Down", last), ("Down", "a draft")]:
        panel.press(f"Arrow{key}")
        expect(panel.message).to_have_value(text)
    panel.press("Shift+Enter")
    panel.keys.type("of two lines")
    panel.press("ArrowUp")
    expect(panel.message).to_have_value("a draft\nof two lines")


def test_a_stranger_without_a_key_is_told_so_in_sight_and_chooses_a_model_by_keys(open_panel):
    panel = open_panel("", "agent.agent.model")
    model = panel.box("Model")
    expect(model.locator("option:checked")).to_have_text("Choose a model")
    panel.message.click()
    panel.keys.type("hello")
    panel.press("Enter")
    expect(panel.button("Use the local model")).to_be_in_viewport()
    panel.button("Not now").press("Enter")
    expect(panel.message).to_have_value("hello")
    model.focus()
    panel.keys.type("local")
    panel.press("Enter")
    panel.allow("%agent models local:qwen2.5-coder-1.5b")
    expect(model).to_be_focused()
    panel.says("local:qwen2.5-coder-1.5b answers.")
    for name in ("openai-chat:my-model", "nobody:x"):
        model.select_option("Other model…")
        panel.keys.type(name)
        panel.press("Enter")
        if name == "nobody:x":
            panel.warns("No provider answers to 'nobody:x'")
        expect(model).to_have_value("openai-chat:my-model")
    assert "'openai-chat:my-model'" in panel.notebook.printed(3)


def test_a_server_is_added_allowed_disconnected_and_connected_and_its_tools_taken_away(open_panel):
    panel = open_panel(
        "play(calls('raw_echo', text='tea'), 'one', 'two')",
        "print(sys.executable)",
        "print([tool.name for tool in agent.tools if tool.server == 'raw'])",
    )
    python = panel.notebook.printed(3)
    tab = panel.root.get_by_role("tab", name="Servers")
    tab.click()
    panel.box("Name of the server").press_sequentially("raw")
    line = panel.box("Its command line or web address")
    line.press_sequentially(f"{python} {SERVER}")
    line.press("Enter")
    panel.allow(f"%mcp add raw {python} {SERVER}")
    expect(panel.box("Name of the server")).to_be_focused()
    panel.root.get_by_text("12 tools", exact=True).click()
    expect(panel.root.locator(".am-printout")).to_have_count(0)  # the tab shows the server
    panel.click("Always allow echo")
    panel.allow("%mcp allow raw echo")
    panel.says("runs without asking")
    panel.root.locator(".am-tool", has_text="echo").locator("summary").first.click()
    panel.box("wait").uncheck()
    panel.says("11 of 12 tools")
    assert panel.box("wait").evaluate("box => box === box.getRootNode().activeElement")
    panel.root.get_by_role("tab", name="Chat").click()
    panel.send("hello")
    panel.turns(1)
    tools = panel.notebook.printed(4)
    assert ("echo" in tools, "wait" in tools) == (True, False)
    tab.click()
    panel.click("Disconnect raw")
    panel.button("Connect raw").wait_for()
    panel.root.get_by_role("tab", name="Chat").click()
    panel.send("and now")
    panel.turns(2)
    assert panel.notebook.printed(4) == "[]"
    tab.click()
    panel.click("Connect raw")
    panel.root.locator(".am-page-question", has_text=str(SERVER)).wait_for()  # where the server is, by its command line
    panel.press("n")
    expect(panel.button("Connect raw")).to_be_focused()
    panel.press("Enter")
    panel.allow("%mcp restart raw")
    panel.button("Disconnect raw").wait_for()
    assert panel.focused() == "Disconnect raw"
    panel.box("wait").click()
    panel.allow("%mcp enable raw wait")
    panel.says("12 tools")
    expect(panel.box("wait")).to_be_checked()
    of_menu(panel, "Trusted servers run")
    panel.allow("%agent permission trusted")
    assert panel.focused() == "More"
    panel.root.get_by_role("tab", name="Chat").click()
    panel.says("You denied in the panel: %mcp restart raw")
    panel.says("You allowed in the panel: %agent permission trusted")


# -- other pages, other kernels --------------------------------------------------------------------


def test_a_second_view_keeps_in_step_and_one_in_an_output_view_fills_it(open_panel):
    panel = open_panel("play('one', 'two')", "agent.chat()")
    panel.send("first")
    panel.turns(1)
    panel.notebook.run(3)
    other = Cell(panel.notebook, 3)
    expect(other.answers).to_have_text(["one"])
    other.send("second")
    for place in (panel, other):
        place.says("two")
    other.keeps("two")
    panel.keeps("The chat panel is shown again in another cell of this notebook.")
    panel.page.evaluate("() => { jupyterapp.commands.execute('notebook:create-output-view') }")
    view = panel.page.locator(".jp-LinkedOutputView")
    expect(view.locator(".am-text")).to_have_text(["one", "two"])
    panel.page.wait_for_function(
        "([view, panel]) => view.offsetHeight * 0.9 < panel.offsetHeight && panel.offsetHeight <= view.offsetHeight",
        arg=[view.element_handle(), view.locator(".am-panel").element_handle()],
    )


def test_a_panel_whose_kernel_was_restarted_keeps_the_words_and_starts_again_with_its_conversation(open_panel):
    panel = open_panel("agent.agent = Agent(ScriptedModel(['one', 'two']))")
    panel.send("first")
    panel.turns(1)
    panel.message.press_sequentially("words that are")
    panel.notebook.restart_kernel()
    panel.warns("The kernel that held this conversation is gone.")
    panel.message.press_sequentially(" kept")
    panel.message.press("Enter")
    expect(panel.message).to_have_value("words that are kept")
    panel.notebook.run(0)
    panel.notebook.run(1)
    panel.click("Start again")
    expect(panel.root.get_by_role("alert")).to_be_hidden()
    panel.turns(1)
    prompts_are(panel, "first")
    expect(panel.answers).to_have_text(["one"])
    expect(panel.message).to_have_value("words that are kept")
    expect(panel.message).to_be_focused()  # the button that was pressed is gone
    panel.press("Enter")
    panel.turns(2)
    prompts_are(panel, "first", "words that are kept")


def test_a_kernel_that_hears_no_panel_while_a_cell_runs_is_not_taken_for_gone(open_notebook):
    notebook = open_notebook(
        "play('one')", "agent.chat()", "time.sleep(6)  # silent is who says nothing for four seconds"
    )
    notebook.page.evaluate("() => { harness.kernel().commsOverSubshells = 'disabled' }")
    notebook.run(1)
    notebook.run(2)
    panel = Cell(notebook, 2)
    panel.notebook.start(3)
    panel.send("hello")
    panel.turns(1)
    prompts_are(panel, "hello")
    expect(panel.message).to_have_value("")


# -- turns without any answer ----------------------------------------------------------------------

WRONG_KEY = """
from agentmagic.errors import AuthenticationFailed
from agentmagic.testing import Faulty
model = Faulty(AuthenticationFailed("The key is wrong. Set the right one."), answer="It is 42.")
agent = Session(Agent(model))
"""
SENT = "print([[message.text for message in request.messages] for request in model.requests], len(agent.turns))"


def test_retry_in_a_cell_replaces_the_failed_turn_and_its_error(open_notebook):
    notebook = open_notebook(WRONG_KEY, "%%agent -o answer\nhow much?", "print(answer)\n" + SENT, run=1)
    notebook.run(2, "the turn failed")
    cell = Cell(notebook, 2)
    expect(cell.footers).to_contain_text("no answer, not sent again")
    cell.button("Retry").press("Enter")
    notebook.wait_for_text(2, "It is 42.")
    expect(cell.footers).not_to_contain_text("not sent")
    cell.keeps("It is 42.")
    assert "error" not in [output["output_type"] for output in notebook.outputs(2)]
    assert "The key is wrong" not in notebook.text(2)
    assert notebook.printed(3).splitlines() == ["It is 42.", "[['how much?'], ['how much?']] 1"]
