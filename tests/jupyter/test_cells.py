"""Cells in a real kernel: turns, their output, their order, their failures."""

import re

import IPython
from packaging.version import Version

from tests.jupyter.conftest import GATE, later_outputs
from tests.jupyter.harness import BATCH, CONSOLE

KEY = "sk-planted0123456789abcdef0123456789"
ADD = """
@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b
"""


def test_a_cell_calls_the_function_of_the_notebook_as_it_is_now_and_shows_the_answer(kernel):
    kernel.run(ADD + 'play(calls("add", a=19, b=23), "It is **42**.", calls("add", a=1, b=2), "two")')
    cell = kernel.run("%%agent\nWhat is 19 plus 23?")
    assert cell.ok
    assert cell.count("execute_result") == 0
    (shown,) = cell.displays
    assert "It is <strong>42</strong>." in shown["text/html"]
    assert "✓ add (notebook)" in shown["text/plain"]
    kernel.run(ADD.replace("a + b", "1000"))
    assert "1000" in kernel.run("%%agent\nsecond").text


def test_values_of_the_notebook_are_put_into_the_prompt_and_kept_and_what_cannot_be_put_in_is_told(kernel, tmp_path):
    kernel.run("x, sales = 5, []\nplay('fine')")
    cell = kernel.run('%%agent\nIs {x + 1} even? {"json": true} {nothing} {sales[0]} {sale} {exit()}')
    asked = 'Is 6 even? {"json": true} {nothing} {sales[0]} {sale} {exit()}'
    assert kernel.value("agent.messages[0].text") == repr(asked)
    assert "{sales[0]} stays as it is: IndexError" in cell.stream
    assert "no variable is named sale. Did you mean sales?" in cell.stream
    assert "exit belongs to IPython" in cell.stream
    assert "{x + 1}: 6 (1 token)" in cell.text
    path = tmp_path / "saved.jsonl"
    kernel.run(f"%agent save {path}\nagain = Session.load({str(path)!r}, agent.agent)")
    assert kernel.value("again.events[0].values == agent.events[0].values != ()") == "True"


def test_a_cell_that_makes_a_session_says_so_once_and_one_named_like_something_else_leaves_it_alone(kernel):
    kernel.run("play('first', 'second')\nbob, x = Agent(ScriptedModel(['from the recipe'])), None")
    cell = kernel.run("%%agent other\nhello")
    assert cell.stream == "New session: other.\n"
    assert "first" in cell.text
    assert kernel.run("%%agent other\nagain").stream == ""
    assert kernel.value("len(other.messages), len(agent.messages)") == "(4, 0)"
    hinted = kernel.run("%%agent Sum\nthe table").stream
    assert hinted.startswith("New session: Sum. If it begins your prompt, write the prompt below the line")
    assert "from the recipe" in kernel.run("%%agent bob\nhello").text
    assert "x is a NoneType, no session, and is left alone" in kernel.run("%%agent x\nhello").error
    assert kernel.value("type(bob).__name__, x is None") == "('Session', True)"


def test_options_hold_for_their_cell_alone_and_text_in_quotes_arrives_as_it_was_typed(kernel):
    kernel.run(f"{ADD}x, who = 5, 'agent'\ndef unmarked() -> str: ...\nplay(*'abcd')\nmodel = agent.agent.model")
    kernel.run("%%agent {who} --no-tools --instructions 'Say {x} and $x.'\nfirst")
    kernel.run("%%agent --tools unmarked\nsecond")
    kernel.run("%%agent --new\nthird")
    sent = "[(request.instructions, [one.name for one in request.tools]) for request in model.requests]"
    assert kernel.value(sent) == "[('Say {x} and $x.', []), ('', ['unmarked']), ('', ['add'])]"
    assert kernel.value("[row.text for row in agent.messages]") == "['third', 'c']"


def test_a_failed_turn_fails_the_cell_in_one_line_and_leaves_the_transcript(kernel):
    kernel.run("from agentmagic.errors import BadRequest\nfailure = BadRequest('no such thing')")
    kernel.run("play(failure, 'fine', failure, failure, calls('nothing'))")
    cell = kernel.run("%%agent\nhello")
    assert cell.error == "BadRequest: the turn failed; the output says why."
    assert "Error: no such thing [request-refused]" in cell.text
    assert cell.reply["content"]["evalue"] == "no such thing"
    assert "fine" in kernel.run("%%agent\nagain").text
    cell = kernel.run("%%agent --keep-going\nhello")
    assert cell.ok
    assert "Error: no such thing" in cell.text
    assert kernel.run("%%agent\nhello", **BATCH).error == "BadRequest: no such thing [request-refused]"  # for logs
    assert kernel.run("%%agent\nhello").error.startswith("TurnFailed: The model called a tool, and there are none.")


def test_functions_run_in_the_main_thread_or_on_the_kernels_loop_with_and_without_a_cell_in_front(kernel):
    kernel.run("""
import threading
@tool(loop="caller")
async def where() -> bool:
    "Tell."
    return asyncio.get_running_loop() is get_ipython().kernel.io_loop.asyncio_loop
@tool
def thread() -> str:
    "Tell."
    return threading.current_thread().name
play(calls('where'), 'fine', {'text': 'wait', 'pace': 0.1, **calls('thread')}, 'over')
""")
    assert kernel.run("%%agent\nwhere").ok
    assert kernel.run("%%agent --bg\nhello").ok
    kernel.run("run = agent.running\nif run: await run")
    told = "[part.text for row in agent.messages if row.role == 'tool' for part in row.parts]"
    assert kernel.value(told) == "['true', 'MainThread']"


@later_outputs
def test_a_turn_in_the_background_streams_into_its_own_cell_and_the_next_one_waits_for_it(kernel):
    kernel.run(GATE + "play(calls('wait'), {'text': 'all is done', 'pace': 0.02}, 'second', tools=[wait])")
    cell = kernel.run("%%agent --bg\nhello")
    assert cell.ok
    later = kernel.run("print('later')\ngate.set()")
    assert "second" in kernel.run("%%agent\nnext").text
    kernel.wait(cell, lambda: "all is done" in str(cell.displays) + str(later.displays))
    updates = [message for message in cell.messages + later.messages if message["msg_type"] == "update_display_data"]
    shown = [message for message in cell.messages + later.messages if message["msg_type"] == "display_data"]
    identity = shown[1]["content"]["transient"]["display_id"]  # behind the place of the view
    assert {message["content"]["transient"]["display_id"] for message in updates} == {identity}


def test_what_is_printed_by_a_batch_run_is_the_same_each_time_and_holds_no_times(kernel):
    seen = []
    for _ in range(2):
        kernel.run(ADD + 'play(calls("add", a=1, b=2), "Three.")')
        cell = kernel.run("%%agent\nWhat is 1 plus 2?", **BATCH)
        assert cell.count("display_data") == 1
        assert cell.count("update_display_data") == 0
        seen.append(cell.displays)
    assert seen[0] == seen[1]
    assert " ms" not in seen[0][0]["text/plain"]
    kernel.run("play('the answer')")
    assert "the answer" in kernel.run("%%agent --bg\nhello", **BATCH).text  # waits for the turn


def test_a_console_gets_text(kernel):
    kernel.run(ADD + 'play({"text": "Let me see.", **calls("add", a=1, b=2)}, "It is 3.")')
    cell = kernel.run("%%agent\nWhat is 1 plus 2?", **CONSOLE)
    assert cell.displays == []
    assert cell.stream.startswith("Let me see.\n\n✓ add (notebook) a: 1, b: 2 [")
    assert "] → 3\n\nIt is 3.\n" in cell.stream


def test_a_captured_cell_is_one_output_and_a_timed_one_is_timed(kernel):
    kernel.run("play('quiet', 'quick')")
    cell = kernel.run("%%capture captured\nget_ipython().run_cell_magic('agent', '', 'hello')")
    assert cell.displays == []
    assert kernel.value("[list(one.data) for one in captured.outputs]") == "[['text/html', 'text/plain']]"
    cell = kernel.run("%%time\n%%agent\nhello")
    assert "Wall time" in cell.stream
    assert "quick" in cell.text


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
    for said in ("Brought back 1 turn.", "Forgotten: Is it?", "There is no turn to undo."):
        assert kernel.run("%agent undo").stream == f"{said}\n"
    kernel.run("import pathlib\npathlib.Path('script.json').write_text('[\"scripted\"]')")
    assert kernel.run("%agent models scripted:script.json").stream == "The session's model: scripted:script.json\n"
    assert "scripted" in kernel.run("%%agent\nhello").text
    kernel.run("del agent")
    assert "turns" in kernel.run("%agent").stream  # the default session is made again


def test_the_traceback_of_a_function_is_for_the_user_alone(kernel):
    kernel.run('@tool\ndef fail() -> str:\n    "Fail."\n    return {}["nothing"]\n\nplay(calls("fail"), "Sorry.")')
    (shown,) = kernel.run("%%agent\nTry.").displays
    assert "Traceback</b></small></summary>" in shown["text/html"]
    assert "Cell, line 4, in fail\n    return {}[" in shown["text/html"]
    assert "ipykernel" not in shown["text/html"]
    assert "%tb shows where it was raised." in shown["text/plain"]
    raised = re.sub(r"\x1b\[[\d;]*m", "", kernel.run("%tb").error)
    if Version(IPython.__version__) >= Version("9.14"):  # an older one leaves out the first frame, the only one
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
        "Forgotten: Grow it\nPut back: kept, rows.\nRemoved: total.\n"
        "What grow did outside of the variables, as to files, stays.\n"
    )
    assert kernel.value("rows, kept is rows, 'total' in globals(), agent.turns") == "([1], True, False, ())"
    assert kernel.run("%agent redo").stream == "Back again: Grow it\nPut back: kept, rows, total.\n"
    assert kernel.value("rows, total, len(agent.turns)") == "([1, 2], 3, 1)"
    assert kernel.run("%agent redo").stream == "There is nothing to redo.\n"
    kernel.run("rows.append('mine')")
    told = kernel.run("%agent undo").stream
    assert "Removed: total." in told
    assert "Left alone: rows: it has been changed since." in told
    assert kernel.value("rows, 'total' in globals()") == "([1, 2, 'mine'], False)"


def test_fix_asks_about_the_last_error_with_its_cell_and_a_line_below_the_error_says_so_if_a_person_sees_it(kernel):
    kernel.run("%reload_ext agentmagic")  # forgets the failures of the tests before
    kernel.run(f'play("Divide by one.", "Again.")\nimport os\nos.environ["ACME_API_KEY"] = {KEY!r}')
    assert "No cell has failed since the extension was loaded. [usage-prompt]" in str(kernel.run("%agent fix").error)
    failed = kernel.run(f"token = {KEY!r}\ntotal = {{1: 2}}\ntotal[0] / 0")
    assert failed.stream == "%agent fix asks the agent about this error.\n"
    assert kernel.run("raise RateLimited('wait')").stream == "%agent help rate-limited explains this error.\n"
    kernel.run("1 + 1")
    fixed = kernel.run("%agent fix")
    assert "Divide by one." in fixed.text
    prompt = kernel.run("print(agent.turns[-1].prompt.text)").stream
    assert "total[0] / 0" in prompt
    assert "KeyError: 0" in prompt
    assert KEY not in prompt
    assert kernel.run("1 / 0", **BATCH).stream == ""
    kernel.run("os.environ['AGENTMAGIC_HINTS'] = 'off'")
    assert kernel.run("1 / 0").stream == ""
    kernel.run("del os.environ['AGENTMAGIC_HINTS'], os.environ['ACME_API_KEY']")


def test_show_tells_what_would_be_sent_and_calls_nothing(kernel):
    kernel.run("import pandas as pd\nsales = pd.DataFrame({'sold': [1, 2]})\nplay('fine')" + ADD)
    cell = kernel.run("%%agent --show --instructions Short.\nWhat is in {sales}?")
    assert cell.ok, cell.error
    assert "This would be sent to scripted:script. Nothing was called." in cell.stream
    for part in ("instructions", "tools", "history", "results", "prompt", "together", "{sales}"):
        assert re.search(rf"^  {re.escape(part)} +[\d,]+ tokens", cell.stream, re.MULTILINE), part
    for part in ("Short.", "add: Add.", "| sold | int64 | 0 | 1 to 2 |"):
        assert part in cell.stream
    assert kernel.value("len(agent.agent.model.requests), len(agent.messages)") == "(0, 0)"


def test_a_turn_is_inspected_and_handed_in_with_its_checks_into_a_file_that_is_not_there_yet(kernel, tmp_path):
    kernel.run("play('three')")
    assert "There are no turns yet" in kernel.run("%agent inspect").error
    kernel.run("%%agent\nAdd 1 and 2.")
    (shown,) = kernel.run("%agent inspect 1\nx = 1").displays
    assert '"text": "Add 1 and 2."' in shown["text/plain"]
    assert " ms" in shown["text/plain"]
    (batch,) = kernel.run("%agent inspect --search three", **BATCH).displays
    assert " ms" not in batch["text/plain"]
    kernel.run("from agentmagic.testing import check\ncheck(agent).answered('three')")
    target = tmp_path / "run.yaml"
    assert "1 check passed, 0 failed." in kernel.run(f"%agent hand-in {target}").stream
    assert "Add 1 and 2." in target.read_text(encoding="utf-8")
    assert "is there already" in kernel.run(f"%agent hand-in {target}").error


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
