"""Programs that the model runs in the notebook, and what they have: variables, tools as functions, a receipt."""

import re
from html import unescape

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agentmagic.events import CellProposed
from agentmagic.jupyter.notebook.file import KnownNotebook
from agentmagic.jupyter.notebook.kernel import KernelNotebook
from tests.jupyter.harness import BATCH, CONSOLE
from tests.turns import AT_ONCE

ALLOWED = """
from agentmagic import NotebookTools, Policy, Rule
from agentmagic.events import VariablesChanged
def program(*codes, rules=(), asked=False, **options):
    steps = [calls("run_python", code=code) for code in codes]
    rules = [*([] if asked else [Rule("allow", "run_python")]), *rules]
    tools = [NotebookTools(), *options.pop("tools", ())]
    play(*steps, "Done.", tools=tools, permission=Policy(rules), **options)
def inspect_it(name):
    return {"calls": [{"name": "inspect_variable", "arguments": {"name": name}}]}
def told():
    return [part.text for row in agent.messages if row.role == "tool" for part in row.parts]
def described():
    return next(one.description for one in agent.agent.model.requests[0].tools if one.name == "run_python")
def receipt():
    found = [event for event in agent.events if isinstance(event, VariablesChanged)]
    rows = [(one.change, one.name, one.before, one.after) for event in found for one in event.changes]
    return sorted(row for row in rows if row[1] not in ("agent", "calls", "play")), [event.files for event in found]
def inner():
    return [(event.call.name, dict(event.call.arguments)) for event in agent.events if event.type == "inner_call"]
"""


@pytest.fixture
def notebook(kernel):
    assert kernel.run(ALLOWED).ok
    return kernel


def told(kernel) -> str:
    return kernel.run("print(*told(), sep='|')").stream.strip()


def asks(kernel, *codes, more: str = "") -> None:
    assert kernel.run(f"program(*{codes!r}, {more})").ok


def receipt(kernel) -> str:
    return kernel.run("print(receipt())").stream.strip()


def test_the_model_gets_what_a_program_prints_its_last_value_or_its_error_and_the_user_the_traceback(notebook):
    notebook.run("x = 20")
    asks(
        notebook,
        'y = x * 2\nprint("so far", y)\ny + 2',
        "import asyncio\n%time\nz = await asyncio.sleep(0, 5)\nz",
        "await asyncio.sleep(0, 'slept');",
        "print('begun')\nkept = 1\n1 / 0",
    )
    cell = notebook.run("%%agent\nAdd.")
    assert told(notebook).startswith("Printed:\nso far 40\n42|")
    nothing = "5|(no output; print what you need to know)"
    assert told(notebook).endswith(f"{nothing}|ZeroDivisionError: division by zero\nPrinted:\nbegun")
    assert notebook.value("y, z, kept") == "(40, 5, 1)"
    html = cell.displays[0]["text/html"]
    assert "Traceback" in html
    assert "line 3" in html
    assert "notebook_kernel" not in html
    assert "('made', 'y', '', 'int'), ('made', 'z', '', 'int')" in receipt(notebook)


@pytest.mark.parametrize(("end", "images"), [("plt.show()\nfigure", 1), ("plt.figure().subplots()", 2)])
def test_a_program_sends_each_figure_once_as_a_plain_cell_shows_it(notebook, end, images):
    draw = "figure, axes = plt.subplots()\naxes.set_yticks([0, 1], ['Bergen by the sea', 'Oslo']);"
    notebook.run("import matplotlib.pyplot as plt\nplt.close(plt.figure())")
    plain = [data["image/png"] for data in notebook.run(draw).displays]
    asks(notebook, f"{draw}\n{end}")
    (shown,) = notebook.run("%%agent\nPlot.").displays
    found = re.findall(r"data:image/png;base64,([\w+/=]+)", shown["text/html"])
    assert (len(found), found[:1]) == (images, plain[:images])
    assert told(notebook).count("[image/png") == images
    assert notebook.value("plt.get_fignums()") == "[]"


# -- permission --------------------------------------------------------------------------------------------


def test_without_a_rule_that_names_it_no_program_runs_where_no_one_is(notebook):
    notebook.run("import os\nos.environ['AGENTMAGIC_PERMISSION'] = 'allow'\nran = False")
    notebook.run("def hook(call, tool):\n    return 'allow'")
    for permission in ("'allow'", "Policy([Rule('allow', 'run_*')])", "Policy(default='allow')", "hook"):
        options = f"tools=[NotebookTools()], permission={permission}"
        notebook.run(f"play(calls('run_python', code='ran = True'), 'Sorry.', {options})")
        assert notebook.run("%%agent\nTry.", **BATCH).ok
        assert 'permission=Policy([Rule("allow", "run_python")])' in told(notebook)
    notebook.run("del os.environ['AGENTMAGIC_PERMISSION']")
    assert notebook.value("ran") == "False"


def test_a_person_is_shown_the_program_and_what_it_would_do_and_always_holds_for_the_same_program_only(notebook):
    notebook.run("count = 0")
    hidden = "count += 1000\nimport os\u202e"
    asks(notebook, "count += 1", "count += 1", "count += 10", hidden, more="asked=True")
    _, prompts = notebook.answer("%%agent\nCount.", "a", 'e {"code": "count += 100"}', "n not that", **CONSOLE)
    assert "Writes: count" in prompts[0]
    assert "count += 10" in prompts[1]
    for line in ("count += 1000", "\\u202e", "Risk: cannot be read as Python", "[a]lways this program"):
        assert line in prompts[2]
    assert told(notebook).endswith("run_python was not run: the user denied it and said: not that.")
    assert notebook.value("count") == "102"


ENDLESS = ("9**9**9", "sum(range(10**11))", "re.match('(a+)+b', 'a' * 40)", "'x'.ljust(10**11)")


def test_at_the_level_reads_a_program_that_changes_nothing_runs_unasked_only_if_it_ends(notebook):
    notebook.run("import re, polars\nrows = [3, 1, 2]\nt = polars.DataFrame({'a': [1]})")
    asks(notebook, "len(rows)", *ENDLESS, "([rows] * t.width)[0].sort()", more="asked=True")
    notebook.run("%agent permission reads")
    try:
        _, prompts = notebook.answer("%%agent\nLook.", *["n"] * 5, **CONSOLE)
        assert all("It only reads, but how long it takes is not known before: `" in one for one in prompts[:4])
        assert "`sum(range(10 ** 11))`" in prompts[1]
        assert "When it has run, you see what it changed." in prompts[4]
        assert told(notebook).startswith("3|run_python was not run")
        asks(notebook, *ENDLESS, more="asked=True")
        notebook.run("%agent permission reads")
        assert notebook.run("%%agent\nLook.", **BATCH).ok
        assert told(notebook).count("it needs a person's approval, and no one is there to give it") == len(ENDLESS)
    finally:
        notebook.run("%agent permission ask")
    assert notebook.value("rows") == "[3, 1, 2]"


# -- tools as functions ------------------------------------------------------------------------------------

TOOLS = """
import asyncio, threading
@tool
def double(number: int) -> int:
    "Double a number."
    double.thread = threading.current_thread() is threading.main_thread()
    return number * 2
@tool
async def slow(number: int) -> dict:
    "Think about a number."
    await asyncio.sleep(0)
    return {"number": number}
@tool
def own() -> object:
    "Return an object."
    return own
"""


def test_inside_a_program_every_tool_is_a_function_that_is_asked_about_and_returns_its_own_value(notebook):
    notebook.run(TOOLS)
    code = (
        "print([tools.double(number) for number in range(2)], tools.slow(number=7)['number'], tools.own() is own)\n"
        "import inspect\nprint(inspect.signature(tools.double), tools.double.__doc__, 'run_python' in dir(tools))"
    )
    asks(notebook, code, more="tools=[double, slow, own], rules=[Rule('ask', 'double')]")
    cell, (prompt, _) = notebook.answer("%%agent\nDouble.", "y", "y", **CONSOLE)
    assert cell.ok
    assert "number" in prompt
    assert told(notebook) == "Printed:\n[0, 2] 7 True\n(number) Double a number. False"
    assert "tools.double(number): Double a number." in notebook.run("print(described())").stream
    assert notebook.value("double.thread, len(inner())") == "(True, 4)"
    assert notebook.value("[part.name for row in agent.messages for part in row.calls]") == "['run_python']"
    assert "slow" in cell.stream


def test_a_variable_named_tools_is_neither_read_nor_overwritten(notebook):
    notebook.run(TOOLS + "tools = 'mine'")
    asks(notebook, "print(tools, agent_tools.double(4))", more="tools=[double]")
    notebook.run("%%agent\nDouble.")
    assert told(notebook) == "Printed:\nmine 8"
    assert "agent_tools.double(number)" in notebook.run("print(described())").stream
    assert "NameError" in notebook.run("del tools\ntools").error


# -- the receipt -------------------------------------------------------------------------------------------


def test_the_receipt_names_what_was_made_changed_and_removed(notebook):
    notebook.run("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2]})\nrows = [1, 2]\ngone = 1.5\nsame = [1]")
    notebook.run("import sys, textwrap")
    asks(
        notebook,
        "import sys, textwrap\ntextwrap.later = 1\nframe['b'] = 3\nrows[0] = 9\ndel gone\nmade = {'a': 1}\nlen(same)",
        "import json\nopen('out.txt', 'w').close()",
    )
    cell = notebook.run("%%agent\nChange.")
    assert receipt(notebook) == (
        "([('changed', 'frame', 'DataFrame, 2 rows x 1 column', 'DataFrame, 2 rows x 2 columns'), "
        "('changed', 'rows', 'list of 2', 'list of 2'), ('changed', 'textwrap', 'module textwrap', 'module textwrap'), "
        "('made', 'json', '', 'module json'), "
        "('made', 'made', '', 'dict of 1'), ('removed', 'gone', 'float', '')], [('out.txt',)])"
    )
    assert "~ frame: DataFrame, 2 rows" in cell.displays[0]["text/html"]
    assert "\n- gone: float\n+ made: dict of 1\n" in cell.displays[0]["text/plain"]
    shown = cell.displays[0]["text/plain"].partition("Changed in the notebook")[2]
    assert "~ textwrap: module textwrap\n" in shown
    assert "json" not in shown  # an import
    assert "Files opened to write: out.txt." in cell.displays[0]["text/plain"]
    asks(notebook, "print(rows)")
    notebook.run("%%agent\nLook.")
    assert receipt(notebook) == "([], [])"


def test_a_key_in_a_variable_leaves_through_no_summary_receipt_question_journal_or_export(notebook, tmp_path):
    key, plain = "sk-" + "q7Zx" * 8, "correct-horse-battery"
    notebook.run(f"holder = ['{key}']\npassword = '{plain}-staple9'\nnested = {{'api_key': '{plain}-nested9'}}")
    steps = "calls('list_variables'), inspect_it('holder'), inspect_it('password'), inspect_it('nested'), "
    code = "holder2 = holder[:]; password += str(1); tools.propose_cell(source=holder[0], why=holder[0]); holder[0]"
    notebook.run(f"play({steps} calls('run_python', code={code!r}), 'Done.', tools=[NotebookTools()])")
    notebook.run(f"agent.save({str(tmp_path / 'saved.jsonl')!r})")
    cell, prompts = notebook.answer("%%agent\nLook.", "y")
    for name in ("out.json", "out.md", "out.html"):
        assert notebook.run(f"%agent export {tmp_path / name}").ok
    files = [path.read_text() for path in tmp_path.iterdir()]
    sent = notebook.run("print(agent.messages, agent.events)").stream
    for said in (sent, str(cell.messages), str(prompts), *files):
        assert not [one for one in (key, f"{plain}-staple9", f"{plain}-nested9") if one in said]
    assert "holder2" in sent
    assert len(files) >= 4


# -- stopping ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["while True:\n    pass", "tools.wait()"])
def test_an_interrupt_ends_a_program_at_once_and_the_next_turn_works(notebook, code):
    notebook.run("@tool\nasync def wait() -> str:\n    'Wait.'\n    await asyncio.sleep(30)")
    asks(notebook, f"half = 1\nprint('begun', flush=True)\n{code}", more="tools=[wait]")
    cell = notebook.wait_for_text(notebook.send("%%agent\nStay.", **CONSOLE), "begun")
    assert notebook.interrupted(cell) < AT_ONCE
    assert cell.error == ""
    assert "stopped" in cell.text or "Interrupted" in cell.stream  # a busy machine may not wait for the program
    assert notebook.value("half, valid()") == "(1, True)"
    # A busy machine may take longer to end the program than the turn waits for it: then it says so.
    unwatched = notebook.value("[event.unwatched for event in agent.events if isinstance(event, VariablesChanged)]")
    assert "('made', 'half', '', 'int')" in receipt(notebook) or "all variables" in unwatched
    notebook.run("agent.agent = Agent(ScriptedModel(['Still here.']))")
    assert notebook.run("%%agent\nAgain.").ok


# -- offering ----------------------------------------------------------------------------------------------


def test_an_option_and_a_command_offer_the_tools_of_the_notebook(notebook):
    notebook.run("play('One.', 'Two.', 'Three.')")
    offered = "'run_python' in [one.name for one in agent.agent.model.requests[-1].tools]"
    for line, command, said, seen in (
        ("--notebook", "%agent tools notebook", "run_python", True),
        ("", "%agent tools notebook off", "no longer", True),
        ("", "", "", False),
    ):
        notebook.run(f"%%agent {line}\nGo.")
        assert notebook.value(offered) == str(seen)
        assert said in notebook.run(command).stream


def test_cells_are_read_from_the_history_and_variables_listed_without_the_code_of_their_classes(notebook):
    notebook.run("class Odd:\n    def __repr__(self):\n        raise SystemExit\nodd = Odd()\nnumbers = [1, 2]")
    notebook.run("marker = 'a cell to be found'\nmarker")
    steps = "calls('read_cells', first=-3, count=3), calls('list_variables'), inspect_it('numbrs')"
    notebook.run(f"play({steps}, 'Seen.', tools=[NotebookTools()])")
    notebook.run("%%agent\nLook.")
    text = told(notebook)
    for said in (
        "Cells as this kernel has run them",
        "marker = 'a cell to be found'",
        "-> a cell to be found",
        "running now",
        "numbers: list of 2 = [1, 2]",
        "odd: Odd",
        "There is no variable 'numbrs'. Close names: numbers.",
    ):
        assert said in text


def test_a_proposed_cell_is_inserted_below_the_running_one_once_and_never_run(notebook):
    notebook.run("steps = [calls('propose_cell', source=f'untouched = {n}', why='A number.') for n in (1, 2)]")
    notebook.run("play(*steps, 'Done.', tools=[NotebookTools()])")
    cell = notebook.run("%%agent\nPropose.")
    assert cell.ok, cell.error
    assert [one for one in cell.reply["content"]["payload"] if one["source"] == "set_next_input"] == [
        {"source": "set_next_input", "text": "untouched = 1", "replace": False}
    ]
    below, shown = told(notebook).split("|")
    assert "Inserted below this cell, and not run." in below
    assert "Shown to the user, who can copy it" in shown
    assert notebook.value("'untouched' in globals()") == "False"
    assert "untouched = 2" in unescape(re.sub(r"<[^>]+>", "", cell.displays[0]["text/html"]))


def test_the_model_is_told_whether_a_proposed_cell_was_run_as_it_is_or_changed(notebook):
    first, second = "kept_cell = [1, 2]", "changed_cell = sum([1, 2, 3])"
    notebook.run(f"steps = [calls('propose_cell', source=one, why='Counts.') for one in {[first, second]}]")
    notebook.run("play(steps[0], 'Done.', steps[1], 'Again.', 'Told.', tools=[NotebookTools()])")
    assert notebook.run("%%agent\nPropose.").ok
    assert notebook.run(first).ok
    assert notebook.run("%%agent\nPropose another.").ok
    assert notebook.run("changed_cell = sum([1, 2, 3, 4])").ok
    assert notebook.run("%%agent\nWhat became of it?").ok
    assert notebook.value("[(one.fate, one.ran) for one in agent.events if one.type == 'proposal_settled']") == (
        "[('kept', True), ('changed', True)]"
    )
    notes = "[message.parts[-1].text for message in agent.messages if message.role == 'user'][1:]"
    assert "the user kept it, and ran it." in notebook.value(f"{notes}[0]")
    assert "It is now:\\nchanged_cell = sum([1, 2, 3, 4])" in notebook.value(f"{notes}[1]")


BY_NAME = """
import numpy as np, pandas as pd
for name in [name for name, value in globals().items() if isinstance(value, pd.DataFrame | np.ndarray)]:
    del globals()[name]  # those of other tests
sales, long = pd.DataFrame({"n": [1, 2, 3]}), np.zeros(100_000)
def rows(df: pd.DataFrame) -> int:
    return len(df)
def grow(a: np.ndarray) -> None:
    a += 1
def names():
    tools = agent.agent.model.requests[-1].tools
    return [place["enum"] for one in tools for place in one.parameters["properties"].values()]
played = calls("rows", df="sales")
play(calls("grow", a="long"), played, "Done.", played, "Done.", "Done.", tools=[rows, grow])
"""


def test_functions_of_the_notebook_take_its_variables_by_name_and_undo_puts_these_back(notebook):
    assert notebook.run(BY_NAME).ok
    assert notebook.run("%%agent\nHow many?").ok
    assert told(notebook).endswith("|3")
    assert notebook.value("names(), long.sum().item()") == "([['long'], ['sales']], 100000.0)"
    assert "Put back: long." in notebook.run("%agent undo").stream
    assert notebook.value("long.sum().item()") == "0.0"
    notebook.run("late = sales; del sales")
    notebook.run("%%agent\nHow many?")
    assert """"sales" is not one of""" in told(notebook)
    notebook.run("del late")
    left_out = notebook.run("%%agent\nHow many?")
    assert "rows is left out of this turn: its df is a pandas.DataFrame, and no variable is one." in left_out.text


def test_cells_before_a_proposal_do_not_tell_its_fate_although_an_earlier_kernel_made_it():
    shell = InteractiveShell()
    notebook = KernelNotebook(shell, KnownNotebook(shell))
    shell.user_ns["In"] = ["", *("x = 12345" for _ in range(600))]
    assert notebook.fate(CellProposed("a", "insert", "code", "x = 12346", "Why.", place="below")) is None


STYLED = """
import matplotlib
def set_theme():
    matplotlib.rcParams.update({"axes.grid": True, "font.size": 20.0})
"""


def test_undo_puts_back_what_a_program_changes_in_packages_that_it_imports_itself(notebook, tmp_path):
    (tmp_path / "house_style.py").write_text(STYLED)
    assert notebook.run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import matplotlib.pyplot as plt; x = 1").ok
    state = (
        "import matplotlib, numpy; print([matplotlib.rcParams[name] for name in ('font.size', 'axes.grid')], "
        "numpy.random.get_state()[1].sum(), numpy.get_printoptions()['precision'], numpy.geterr()['divide'])"
    )
    before = notebook.run(state).stream
    for program, told in (
        ("import house_style\nhouse_style.set_theme()", "settings of matplotlib"),
        ("import numpy\nnumpy.random.seed(1)", "random numbers of numpy"),
        ("import numpy as np\nnp.set_printoptions(precision=3)", "print options of numpy"),
        ("import numpy as np\nnp.seterr(all='raise')", "error settings of numpy"),
    ):
        asks(notebook, program)
        assert notebook.run("%%agent\nDo it.").ok
        assert f"('changed', '{told}', '', '')" in receipt(notebook)
        assert notebook.run(state).stream != before
        assert told in notebook.run("%agent undo").stream
        assert notebook.run(state).stream == before


def test_undo_names_no_module_that_nobody_changed(notebook):
    assert notebook.run("import builtins, sys, threading\nimport matplotlib.pyplot as plt\nx = 1").ok
    asks(notebook, "exec('x = 2'); threading.current_thread(); plt.plot([1]); plt.show()")
    assert notebook.run("%%agent\nDo it.").ok
    assert receipt(notebook).startswith("([('changed', 'x', 'int', 'int')]")
    assert not notebook.run("1 / 0").ok
    assert notebook.run("import threading\nt = threading.Thread(target=print); t.start(); t.join(); del t").ok
    said = notebook.run("%agent undo").stream
    assert "Put back: x." in said
    assert "Left alone" not in said
