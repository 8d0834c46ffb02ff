"""Cells in a real kernel: turns, their output, their order, their failures."""

import re

from tests.jupyter.harness import BATCH, CONSOLE

ADD = """
@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b
"""

UNMARKED = """
def unmarked() -> str:
    "Not marked."
    return "unmarked"
"""
GATE = """
import threading
gate = threading.Event()
async def wait() -> str:
    "Wait."
    await asyncio.to_thread(gate.wait, 30)
    return "opened"
"""
DRAW = """
import matplotlib.pyplot as plt
@tool
def draw() -> str:
    "Draw."
    plt.plot([1, 2])
    return "drawn"
"""
WHERE = """
loops = []
@tool(loop="caller")
async def where() -> str:
    "Tell."
    await asyncio.sleep(0)
    loops.append(asyncio.get_running_loop())
    return "here"
"""
THREAD = """
import threading
threads = []
@tool
def thread() -> str:
    "Tell."
    threads.append(threading.current_thread().name)
    return "here"
"""
PRICED = """
play(*[calls("add", a=1, b=2)] * 9)
agent.agent.model.name = "test:dear"
"""
INNER = """
def ask_inside() -> str:
    "Ask."
    return Session(Agent(ScriptedModel(["inner"]))).ask("x").final_text
"""


def test_a_cell_calls_a_function_of_the_notebook_and_shows_the_answer(kernel):
    kernel.run(ADD + 'play(calls("add", a=19, b=23), "It is **42**.")')
    cell = kernel.run("%%agent\nWhat is 19 plus 23?")
    assert cell.ok
    assert cell.count("execute_result") == 0
    (shown,) = cell.displays
    assert "It is <strong>42</strong>." in shown["text/html"]
    assert "✓ add (notebook)" in shown["text/plain"]
    assert "It is **42**." in shown["text/plain"]


def test_a_function_that_is_defined_anew_is_the_one_that_runs(kernel):
    kernel.run('play(calls("f"), "one", calls("f"), "two")\n@tool\ndef f() -> str:\n    "Tell."\n    return "old"')
    kernel.run("%%agent\nfirst")
    kernel.run('@tool\ndef f() -> str:\n    "Tell."\n    return "new"')
    assert "new" in kernel.run("%%agent\nsecond").text


def test_values_of_the_notebook_are_put_into_the_prompt(kernel):
    kernel.run("x = 5\nplay('fine')")
    kernel.run('%%agent\nIs {x + 1} even? {"json": true} {nothing}')
    assert kernel.value("agent.messages[0].text") == repr('Is 6 even? {"json": true} {nothing}')


def test_an_expression_that_fails_stays_and_says_so(kernel):
    kernel.run("x = []\nplay('fine')")
    cell = kernel.run("%%agent\nThe first is {x[0]}.")
    assert "{x[0]} stays as it is: IndexError" in cell.stream
    assert kernel.value("agent.messages[0].text") == repr("The first is {x[0]}.")


def test_cells_that_were_queued_together_run_one_after_the_other(kernel):
    kernel.run("order = []\nplay({'text': 'one two', 'pace': 0.01}, 'three')")
    cells = [kernel.send(code) for code in ("%%agent\nfirst", "order.append(len(agent.messages))", "%%agent\nsecond")]
    for cell in cells:
        assert kernel.finish(cell).ok
    assert "one two" in cells[0].text
    assert "three" in cells[2].text
    assert kernel.value("order") == "[2]"


def test_another_session_takes_the_recipe_of_the_default_one_and_keeps_its_own_history(kernel):
    kernel.run("play('first', 'second')")
    assert "first" in kernel.run("%%agent other\nhello").text
    assert kernel.value("len(other.messages), len(agent.messages)") == "(2, 0)"


def test_a_cell_that_makes_a_session_says_so_once(kernel):
    kernel.run("play('first', 'second')")
    assert kernel.run("%%agent other\nhello").stream == "New session: other.\n"
    assert kernel.run("%%agent other\nagain").stream == ""
    hinted = kernel.run("%%agent Sum\nthe table").stream
    assert hinted.startswith("New session: Sum. If it begins your prompt, write the prompt below the line")


def test_text_in_quotes_arrives_as_it_was_typed(kernel):
    kernel.run("x = 5\nwho = 'other'\nplay('a')\nmodel = agent.agent.model")
    kernel.run("%%agent {who} --instructions 'Say {x} and $x.'\nhello")
    assert kernel.value("[request.instructions for request in model.requests]") == "['Say {x} and $x.']"


def test_an_unknown_price_is_said_in_the_first_cell_of_a_session_alone(kernel):
    kernel.run("play('a', 'b')\nagent.agent.model.name = 'test:unpriced'")
    assert "price unknown" in kernel.run("%%agent\nfirst").text
    again = kernel.run("%%agent\nsecond").text
    assert "tokens in" in again
    assert "price unknown" not in again


def test_help_needs_no_prompt(kernel):
    assert "--max-iterations" in kernel.run("%%agent --help").stream
    assert "Subcommands" in kernel.run("%agent help").stream
    assert "--overwrite" in kernel.run("%agent export?").stream


def test_a_name_that_holds_an_agent_becomes_a_session_of_it(kernel):
    kernel.run("other = Agent(ScriptedModel(['from the recipe']))")
    assert "from the recipe" in kernel.run("%%agent other\nhello").text
    assert kernel.value("type(other).__name__") == "'Session'"


def test_a_name_that_holds_something_else_is_refused_and_left_alone(kernel):
    kernel.run("x = None")
    cell = kernel.run("%%agent x\nhello")
    assert not cell.ok
    assert "x is a NoneType, no session, and is left alone" in cell.error
    assert len(cell.error.splitlines()) == 1
    assert kernel.value("x is None") == "True"


def test_a_failed_turn_fails_the_cell_in_one_line_and_leaves_the_transcript(kernel):
    kernel.run("from agentmagic.errors import BadRequest\nplay(BadRequest('no such thing'), 'fine')")
    cell = kernel.run("%%agent\nhello")
    assert not cell.ok
    assert cell.error == "BadRequest: the turn failed; the output says why."
    assert "Error: no such thing" in cell.text
    assert cell.reply["content"]["evalue"] == "no such thing"
    assert "fine" in kernel.run("%%agent\nagain").text


def test_keep_going_lets_the_next_cell_run(kernel):
    kernel.run("from agentmagic.errors import BadRequest\nplay(BadRequest('no such thing'))")
    cell = kernel.run("%%agent --keep-going\nhello")
    assert cell.ok
    assert "Error: no such thing" in cell.text


def test_a_timeout_fails_the_cell(kernel):
    kernel.run("agent = Session(Agent(Stalled()))")
    cell = kernel.run("%%agent --timeout 0.05\nhello")
    assert cell.error == "TurnTimeout: the turn failed; the output says why."
    assert "half an" in cell.text
    assert "Error: The turn took longer than 0.05 s" in cell.text


def test_the_error_of_a_batch_run_has_its_reason_for_the_log_of_the_run(kernel):
    kernel.run("from agentmagic.errors import BadRequest\nplay(BadRequest('no such thing'))")
    assert kernel.run("%%agent\nhello", **BATCH).error == "BadRequest: no such thing"


def test_a_call_where_there_are_no_tools_fails_the_cell(kernel):
    kernel.run("play(calls('nothing'))")
    cell = kernel.run("%%agent\nhello")
    assert cell.error.startswith("TurnFailed: The model called a tool, and there are none.")


def test_no_tools_and_chosen_tools(kernel):
    kernel.run(ADD + UNMARKED + "play('a', 'b', 'c')\nmodel = agent.agent.model")
    kernel.run("%%agent --no-tools\nhello")
    kernel.run("%%agent --tools unmarked\nhello")
    kernel.run("%%agent\nhello")
    listed = "[[one.name for one in request.tools] for request in model.requests]"
    assert kernel.value(listed) == "[[], ['unmarked'], ['add']]"


def test_options_hold_for_their_cell_alone(kernel):
    kernel.run("play('a', 'b')\nmodel = agent.agent.model")
    kernel.run("%%agent --instructions 'Be brief.' --new\nhello")
    kernel.run("%%agent\nhello")
    assert kernel.value("[request.instructions for request in model.requests]") == "['Be brief.', '']"


def test_new_forgets_the_conversation_first(kernel):
    kernel.run("play('a', 'b')")
    kernel.run("%%agent\nfirst")
    kernel.run("%%agent --new\nsecond")
    assert kernel.value("[row.text for row in agent.messages]") == "['second', 'b']"


def test_a_turn_in_the_background_streams_into_its_own_cell(kernel):
    kernel.run(GATE + "play(calls('wait'), 'all done', tools=[wait])")
    cell = kernel.run("%%agent --bg\nhello")
    assert cell.ok
    later = kernel.run("print('later')\ngate.set()")
    kernel.wait(cell, lambda: "all done" in str(cell.displays) + str(later.displays))
    updates = [message for message in cell.messages + later.messages if message["msg_type"] == "update_display_data"]
    shown = [message for message in cell.messages + later.messages if message["msg_type"] == "display_data"]
    identity = shown[1]["content"]["transient"]["display_id"]  # behind the place of the view
    assert {message["content"]["transient"]["display_id"] for message in updates} == {identity}


def test_a_function_runs_in_the_main_thread_when_no_cell_is_in_front(kernel):
    kernel.run(THREAD + "play({'text': 'wait', 'pace': 0.3, **calls('thread')}, 'over')")
    assert kernel.run("%%agent --bg\nhello").ok
    kernel.run("run = agent.running\nif run: await run")
    assert kernel.value("threads") == "['MainThread']"


def test_a_cell_waits_for_the_turn_in_the_background(kernel):
    kernel.run("play({'text': 'one two three', 'pace': 0.02}, 'second')")
    kernel.run("%%agent --bg\nfirst")
    assert "second" in kernel.run("%%agent\nnext").text
    assert kernel.value("[row.text for row in agent.messages][1]") == "'one two three'"


def test_what_is_printed_by_a_batch_run_is_the_same_each_time_and_holds_no_times(kernel):
    seen = []
    for _ in range(2):
        kernel.run(ADD + 'play(calls("add", a=1, b=2), "Three.")')
        cell = kernel.run("%%agent\nWhat is 1 plus 2?", **BATCH)
        assert cell.count("display_data") == 1
        assert cell.updates == 0
        assert "transient" not in cell.messages[-2]["content"] or not cell.messages[-2]["content"]["transient"]
        seen.append(cell.displays)
    assert seen[0] == seen[1]
    assert " ms" not in seen[0][0]["text/plain"]


def test_a_batch_run_waits_for_a_turn_in_the_background(kernel):
    kernel.run("play('the answer')")
    assert "the answer" in kernel.run("%%agent --bg\nhello", **BATCH).text


def test_a_console_gets_text(kernel):
    kernel.run(ADD + 'play({"text": "Let me see.", **calls("add", a=1, b=2)}, "It is 3.")')
    cell = kernel.run("%%agent\nWhat is 1 plus 2?", **CONSOLE)
    assert cell.displays == []
    assert cell.stream.startswith("Let me see.\n\n✓ add (notebook) a: 1, b: 2 [")
    assert "] → 3\n\nIt is 3.\n" in cell.stream


def test_a_captured_cell_is_one_output(kernel):
    kernel.run("play('quiet')")
    cell = kernel.run("%%capture captured\nget_ipython().run_cell_magic('agent', '', 'hello')")
    assert cell.ok
    assert cell.displays == []
    assert kernel.value("[list(one.data) for one in captured.outputs]") == "[['text/html', 'text/plain']]"


def test_a_timed_cell_is_timed(kernel):
    kernel.run("play('quick')")
    cell = kernel.run("%%time\n%%agent\nhello")
    assert "Wall time" in cell.stream
    assert "quick" in cell.text


def test_a_plot_of_a_tool_is_shown_in_its_cell(kernel):
    kernel.run(DRAW + "play(calls('draw'), 'look')")
    cell = kernel.run("%%agent\ndraw", **BATCH)
    assert cell.ok, cell.error
    assert any("data:image/png" in bundle["text/html"] for bundle in cell.displays)


def test_a_tool_that_is_bound_to_the_kernels_loop_runs_there(kernel):
    kernel.run(WHERE + "play(calls('where'), 'fine')")
    assert kernel.run("%%agent\nwhere").ok
    assert kernel.value("get_ipython().kernel.io_loop.asyncio_loop in loops") == "True"


def test_a_session_can_be_asked_in_code(kernel):
    kernel.run(INNER + "play(calls('ask_inside'), 'outer', tools=[ask_inside])")
    cell = kernel.run("print(agent.ask('hello').final_text)")
    assert cell.stream == "outer\n", cell.error
    assert kernel.value("agent.messages[2].parts[0].text") == "'inner'"


def test_a_run_can_be_awaited_in_a_cell(kernel):
    kernel.run("play('awaited')")
    assert kernel.run("result = await agent.start('hello')\nprint(result.final_text)").stream == "awaited\n"


def test_the_variable_that_overrides_the_model_is_told(kernel):
    kernel.run("import os, pathlib\npathlib.Path('script.json').write_text('[\"from the script\"]')\nplay('never')")
    kernel.run("os.environ['AGENTMAGIC_MODEL'] = 'scripted:script.json'")
    cell = kernel.run("%%agent\nhello", **BATCH)
    kernel.run("del os.environ['AGENTMAGIC_MODEL']")
    assert "AGENTMAGIC_MODEL is set: scripted:script is asked in this turn." in cell.text
    assert "from the script" in cell.text


def test_the_default_session_is_made_again_where_it_was_deleted(kernel):
    kernel.run("globals().pop('agent', None)")
    assert "turns" in kernel.run("%agent").stream
    assert kernel.value("agent").startswith("<Session")


def test_the_line_magic_tells_and_changes(kernel):
    kernel.run(ADD + "play('yes', 'no')")
    kernel.run("%%agent\nIs it?")
    assert "scripted:script" in kernel.run("%agent").stream
    assert kernel.run("%agent history").stream == "  1  Is it?\n     yes\n"
    assert "  add  Add." in kernel.run("%agent tools").stream
    assert "1 request, " in kernel.run("%agent cost").stream
    listed = kernel.run("%agent models").stream
    assert "local:qwen2.5-coder-1.5b" in listed
    assert "scripted:FILE.json" in listed
    assert kernel.run("%agent reset").stream == "The conversation is forgotten. %agent undo brings it back.\n"
    assert kernel.run("%agent undo").stream == "Brought back 1 turn.\n"
    assert kernel.run("%agent undo").stream == "Forgotten: Is it?\n"
    assert kernel.value("agent.messages") == "()"
    assert kernel.run("%agent undo").stream == "There is no turn to undo.\n"


def test_a_model_is_chosen_for_the_session(kernel):
    kernel.run("import json, pathlib\npathlib.Path('script.json').write_text(json.dumps(['scripted']))\nplay('never')")
    assert kernel.run("%agent models scripted:script.json").stream == "The session's model: scripted:script.json\n"
    assert "scripted" in kernel.run("%%agent\nhello").text


def test_a_turn_that_reaches_its_limit_of_cost_shows_it_and_does_not_fail(kernel):
    kernel.run("from agentmagic.providers.registry import register_model")
    kernel.run("register_model('test:dear', input_price=1e6, output_price=1e6)  # a dollar a token")
    kernel.run(ADD + PRICED)
    cell = kernel.run("%%agent --max-cost 2\nAdd, and add again.")
    assert cell.ok, cell.error
    assert "max_cost is $2.0000" in cell.text
    assert "stopped at the budget" in cell.text
    assert kernel.value("agent.usage.requests") == "1"
    assert "Give US dollars above 0" in kernel.run("%%agent --max-cost 0\nhello").error


def test_the_traceback_of_a_function_is_for_the_user_alone(kernel):
    kernel.run('@tool\ndef fail() -> str:\n    "Fail."\n    return {}["nothing"]\n\nplay(calls("fail"), "Sorry.")')
    (shown,) = kernel.run("%%agent\nTry.").displays
    assert "Traceback</b></small></summary>" in shown["text/html"]
    assert "Cell, line 4, in fail\n    return {}[" in shown["text/html"]
    assert "ipykernel" not in shown["text/html"]
    assert "%tb shows where it was raised." in shown["text/plain"]
    raised = re.sub(r"\x1b\[[\d;]*m", "", kernel.run("%tb").error)
    assert "in fail()" in raised
    assert raised.rstrip().endswith("KeyError: 'nothing'")
    assert "agentmagic" not in raised
    assert "Cell, line 4, in fail\n" in kernel.run("%agent debug").stream
    assert kernel.run("assert 'Traceback' not in repr(agent.agent.model.requests)").ok


GROW = """
rows, log = [1], []
@tool
def grow() -> str:
    "Grow."
    global total
    rows.append(2)
    total = 3
    return "grown"
"""


def test_undo_and_redo_take_the_variables_along_and_say_what_stays(kernel):
    kernel.run(GROW + 'kept = rows\nplay(calls("grow"), "Done.")')
    kernel.run("%%agent\nGrow it")
    assert kernel.value("rows, total") == "([1, 2], 3)"
    assert kernel.run("%agent undo").stream == (
        "Forgotten: Grow it\nPut back: kept, rows, total.\n"
        "What grow did outside of the variables, as to files, stays.\n"
    )
    assert kernel.value("rows, kept is rows, 'total' in globals(), agent.turns") == "([1], True, False, ())"
    assert kernel.run("%agent redo").stream == "Back again: Grow it\nPut back: kept, rows, total.\n"
    assert kernel.value("rows, total, len(agent.turns)") == "([1, 2], 3, 1)"
    assert kernel.run("%agent redo").stream == "There is nothing to redo.\n"
    kernel.run("rows.append('mine')")
    told = kernel.run("%agent undo").stream
    assert "Put back: total." in told
    assert "Left alone: rows: it has been changed since." in told
    assert kernel.value("rows, 'total' in globals()") == "([1, 2, 'mine'], False)"


def test_fix_asks_about_the_last_error_with_its_cell_and_a_line_below_the_error_says_so(kernel):
    kernel.run("%reload_ext agentmagic")  # forgets the failures of the tests before
    kernel.run('play("Divide by one.", "Again.")\nimport os\nos.environ["ACME_API_KEY"] = "sk-acme-0123456789abcdef"')
    assert "No cell has failed" in str(kernel.run("%agent fix").error)
    failed = kernel.run("token = 'sk-acme-0123456789abcdef'\ntotal = {1: 2}\ntotal[0] / 0")
    assert failed.stream == "%agent fix asks the agent about this error.\n"
    kernel.run("1 + 1")
    fixed = kernel.run("%agent fix")
    assert fixed.ok, fixed.error
    assert "Divide by one." in fixed.text
    prompt = kernel.run("print(agent.turns[-1].prompt.text)").stream
    assert "total[0] / 0" in prompt
    assert "KeyError: 0" in prompt
    assert "sk-acme" not in prompt


def test_the_line_below_an_error_is_not_there_in_batch_runs_and_if_it_is_turned_off(kernel):
    assert kernel.run("1 / 0", **BATCH).stream == ""
    kernel.run("import os\nos.environ['AGENTMAGIC_HINTS'] = 'off'")
    assert kernel.run("1 / 0").stream == ""
    kernel.run("del os.environ['AGENTMAGIC_HINTS']")


KEY = "sk-planted0123456789abcdef0123456789"


def test_show_tells_what_would_be_sent_and_calls_nothing(kernel):
    kernel.run("import pandas as pd\nsales = pd.DataFrame({'sold': [1, 2]})\nplay('fine')\nmodel = agent.agent.model")
    kernel.run("@tool\ndef year() -> str:\n    'Tell the year.'\n    return '2026'")
    cell = kernel.run("%%agent --show --instructions Short.\nWhat is in {sales}?")
    assert cell.ok, cell.error
    assert "This would be sent to scripted:script. Nothing was called." in cell.stream
    for part in ("instructions", "tools", "history", "results", "prompt", "together", "{sales}"):
        assert re.search(rf"^  {re.escape(part)} +[\d,]+ tokens", cell.stream, re.MULTILINE), part
    for part in ("Short.", "year: Tell the year.", "| sold | int64 | 0 | 1 to 2 |"):
        assert part in cell.stream
    assert kernel.value("len(model.requests), len(agent.messages)") == "(0, 0)"


def test_hand_in_writes_the_run_with_its_checks_and_keeps_a_file_that_is_there(kernel, tmp_path):
    kernel.run("play('three')")
    kernel.run("%%agent\nAdd 1 and 2.")
    kernel.run("from agentmagic.testing import check\ncheck(agent).answered('three')")
    target = tmp_path / "run.yaml"
    said = kernel.run(f"%agent hand-in {target}").stream
    assert "1 check passed, 0 failed." in said
    assert "Add 1 and 2." in target.read_text(encoding="utf-8")
    assert "is there already" in kernel.run(f"%agent hand-in {target}").error


def test_inspect_shows_what_a_turn_sent_and_received(kernel):
    kernel.run(ADD)
    kernel.run("play(calls('add', a=1, b=2), 'three')")
    assert "There are no turns yet" in kernel.run("%agent inspect").error
    kernel.run("%%agent\nAdd 1 and 2.")
    cell = kernel.run("%agent inspect 1\nx = 1")
    (shown,) = cell.displays
    assert {"text/html", "text/plain"} <= shown.keys()
    assert '"text": "Add 1 and 2."' in shown["text/plain"]
    assert ", results " in shown["text/plain"]
    assert " ms" in shown["text/plain"]
    batch = [kernel.run("%agent inspect --search three", **BATCH).displays[0] for _ in range(2)]
    assert batch[0] == batch[1]
    assert " ms" not in batch[0]["text/plain"]


def test_a_key_in_a_variable_leaves_neither_by_show_nor_by_the_line_nor_in_the_saved_output(kernel):
    kernel.run(f"key = {KEY!r}\nrows = [key]\npassword = 'Tr0ub4dor-and-3-horses'\nplay('fine')")
    for line in ("%%agent --show", "%%agent"):
        cell = kernel.run(f"{line}\nUse {{key}}, {{rows}}, @rows and @password")
        assert cell.ok, cell.error
        assert "[redacted]" in cell.stream + str(cell.displays)
        assert KEY not in str(cell.messages)
        assert "Tr0ub4dor" not in str(cell.messages)
    assert "{key}: [redacted]" in cell.text
    assert kernel.value(f"{KEY[:8]!r} in str(agent.model().requests)") == "False"


def test_a_misspelt_name_is_told_in_the_cell(kernel):
    kernel.run("sales = 3\nplay('fine')")
    assert "no variable is named sale. Did you mean sales?" in kernel.run("%%agent\nLook at {sale}.").stream


def test_the_values_of_a_prompt_are_kept_and_shown_again(kernel, tmp_path):
    kernel.run("play('fine')\nx = 5")
    assert "{x}: 5 (1 token)" in kernel.run("%%agent\nIs {x} odd?").text
    path = tmp_path / "saved.jsonl"
    kernel.run(f"%agent save {path}\nagain = Session.load({str(path)!r}, agent.agent)")
    assert kernel.value("again.events[0].values == agent.events[0].values != ()") == "True"
