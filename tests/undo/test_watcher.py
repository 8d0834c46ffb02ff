"""What a session watches while its tools run: in a script, in each thread, of calls that run at one time."""

import threading

import numpy as np
import pytest

from agentmagic import Agent, Session, tool
from agentmagic.errors import ToolError
from agentmagic.messages import ToolCall
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.undo.changes import summarize
from agentmagic.undo.pictures import Camera
from agentmagic.undo.stack import NOT_STORED, STILL_RUNNING
from agentmagic.undo.watcher import Watcher
from tests.turns import AT_ONCE, SOON

SOURCE = """
import threading
import numpy as np
rows, total, table, holder = [1], 1, np.zeros(20_000), {}
holder["rows"] = rows

class Account:
    seen = []
    def __init__(self):
        self.balance = 1

account, cell = Account(), []

def append(): rows.append(2)
def rebind():
    global total
    total = 2
def by_text(code): exec(code, globals())
def by_name(name): globals()[name][0] = 7
def by_names(names): [globals()[name].__setitem__(0, 7) for name in names]
def deposit(): account.balance += 1; account.seen.append("x")
async def later(): rows.append(3)
def remove():
    global cell
    del cell
def make():
    global made
    made = [1]
def fail():
    rows.append(4)
    raise ValueError("no")
def read(): return len(rows) + total + int(table.sum()) + account.balance
"""

CASES = [
    ("append", {}, ("holder", "rows")),
    ("rebind", {}, ("total",)),
    ("by_text", {"code": "rows.append(5); total = 9; table[3] = 1"}, ("holder", "rows", "table", "total")),
    ("by_name", {"name": "table"}, ("table",)),
    ("by_names", {"names": ["table", "rows"]}, ("holder", "rows", "table")),
    ("deposit", {}, ("Account", "account")),
    ("later", {}, ("holder", "rows")),
    ("remove", {}, ("cell",)),
    ("make", {}, ("made",)),
    ("fail", {}, ("holder", "rows")),
    ("read", {}, ()),
]


@pytest.fixture
def script():
    """The variables of a script."""
    space = {"__name__": "__main__"}
    exec(SOURCE, space)  # noqa: S102
    return space


def state(space):
    account = space["account"]
    cell = space.get("cell"), space.get("made")
    return space["rows"][:], space["total"], space["table"].tolist(), account.balance, account.seen[:], cell


def turn(script, *calls, tools):
    steps = [{"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}, "Done."]
    session = Session(Agent(ScriptedModel(steps), tools=tools), namespace=script)
    return session, session.ask("Go.")


@pytest.mark.parametrize(("name", "arguments", "changed"), CASES)
def test_what_a_tool_changes_in_a_script_is_told_and_put_back(script, name, arguments, changed):
    before = state(script)
    session, result = turn(script, (name, arguments), tools=[tool(script[name])])
    assert tuple(change.name for change in result.changes) == changed
    assert (state(script) != before) == bool(changed)
    after = state(script)
    session.undo()
    assert (session.undone.restored, dict(session.undone.refused), session.undone.problem) == (changed, {}, "")
    assert state(script) == before
    session.redo()
    assert state(script) == after


def test_the_variables_of_a_script_are_those_of_its_main_module(monkeypatch, script):
    main = type(threading)("__main__")
    main.__dict__.update(script)
    exec(SOURCE, main.__dict__)  # noqa: S102
    monkeypatch.setitem(__import__("sys").modules, "__main__", main)
    session, result = turn(None, ("append", {}), tools=[tool(main.append)])
    assert [change.name for change in result.changes] == ["holder", "rows"]
    session.undo()
    assert main.rows == [1]


def test_calls_that_run_at_one_time_share_their_changes(script):
    first, second = threading.Event(), threading.Event()

    def one():
        script["rows"].append(2)
        first.set()
        assert second.wait(SOON)

    def other():
        assert first.wait(SOON)
        script["table"][0] = 1
        second.set()

    session, result = turn(script, ("one", {}), ("other", {}), tools=[tool(one), tool(other)])
    assert [change.name for change in result.changes] == ["holder", "rows", "table"]
    session.undo()
    assert session.undone.restored == ("holder", "rows", "table")
    assert (script["rows"], script["table"][0]) == ([1], 0)


def test_a_session_within_a_tool_of_another_puts_back_what_is_its_own(script):
    inner = []

    def outer():
        script["total"] = 5
        inner.append(turn(script, ("append", {}), tools=inside)[0])

    inside = [tool(script["append"])]
    session, _ = turn(script, ("outer", {}), tools=[tool(outer)])
    inner[0].undo()
    assert (script["rows"], script["total"]) == ([1], 5)
    session.undo()
    assert session.undone.restored == ("holder", "rows", "total")
    assert (script["rows"], script["total"]) == ([1], 1)


def test_if_an_object_makes_the_look_fail_the_tool_runs_all_the_same(script, monkeypatch):
    def refuse(*_, **__):
        raise ToolError("no")

    monkeypatch.setattr("agentmagic.undo.changes.Camera", refuse)
    session, result = turn(script, ("append", {}), tools=[tool(script["append"])])
    assert (script["rows"], result.changes) == ([1, 2], ())
    assert next(event for event in result.events if event.type == "variables_changed").unwatched == ("all variables",)
    session.undo()
    assert session.undone.problem == NOT_STORED


def test_a_tool_that_goes_on_after_the_turn_is_told_as_not_watched(script):
    begun, goes_on = threading.Event(), threading.Event()

    @tool(thread_safe=True)
    def stay():
        script["rows"].append(2)
        begun.set()
        goes_on.wait(60)

    steps = [{"calls": [{"name": "stay", "arguments": {}}]}]
    session = Session(Agent(ScriptedModel(steps), tools=[stay]), namespace=script)
    run = session.start("Go.")
    assert begun.wait(AT_ONCE)
    run.cancel()
    result = run.wait()
    changed = next(event for event in result.events if event.type == "variables_changed")
    assert (changed.changes, changed.unwatched) == ((), ("all variables",))
    session.undo()
    assert session.undone.problem == STILL_RUNNING
    goes_on.set()


def test_a_script_logs_what_undo_left_alone(script, caplog):
    script["lock"] = threading.Lock()

    def take():
        script["lock"].acquire()
        script["total"] = 5

    session, _ = turn(script, ("take", {}), tools=[tool(take)])
    session.undo()
    assert (script["total"], caplog.messages) == (
        1,
        ["lock was left alone: it holds a lock, which was changed and cannot be put back."],
    )


@pytest.mark.parametrize("failing", ["expect", "settle"])
def test_an_interrupt_of_the_look_is_no_look(script, monkeypatch, failing):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Camera, "look" if failing == "expect" else "again", interrupted)
    watcher, changes = Watcher(script), []
    with pytest.raises(KeyboardInterrupt), watcher.watch(ToolCall("1", "append", {}), script["append"], changes):
        script["append"]()
    assert summarize(changes).unwatched == ("all variables",)
    monkeypatch.undo()
    with watcher.watch(ToolCall("2", "append", {}), script["append"], changes):
        script["append"]()
    assert [row.name for row in changes[-1].rows()] == ["holder", "rows"]


def test_files_that_a_tool_opens_to_write_are_told_in_whichever_thread_it_runs(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write():
        (tmp_path / "made.txt").write_text("x")

    _, result = turn(script, ("write", {}), tools=[tool(write)])
    assert next(event for event in result.events if event.type == "variables_changed").files == ("made.txt",)


def test_an_array_beside_is_left_to_itself(script):
    script["beside"] = np.zeros(10)
    session, _ = turn(script, ("append", {}), tools=[tool(script["append"])])
    script["beside"][0] = 1
    session.undo()
    assert script["beside"][0] == 1
