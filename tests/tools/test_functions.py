import asyncio
import gc
import inspect
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, update_wrapper
from types import GenericAlias, SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import Field

from agentmagic import Approve, Done, Session, ToolContext, tool
from agentmagic.errors import ToolError, UsageError
from agentmagic.host import ScriptHost
from agentmagic.messages import Example, Text, ToolCall, ToolDef, ToolResult
from agentmagic.runtime.engine import BLOCKS, UNFINISHED, engine
from agentmagic.testing import PATIENCE
from agentmagic.tools.base import STILL_RUNNING, Tool
from agentmagic.tools.calling import LONGEST_TRACEBACK
from agentmagic.tools.functions import IN_THREAD, function_tool, is_tool, to_result
from agentmagic.tools.notebook.code import ToolFunctions
from tests.turns import AT_ONCE, SOON, calls, hosted, kinds, notices, play, results, scripted, texts

CALL = ToolCall("c1", "work", {})
PNG = b"\x89PNG"


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Example: 1 plus 2 -> {"a": 1, "b": 2}
    """
    return a + b


@pytest.fixture
def in_a_kernel():
    """As in a kernel: synchronous tools belong to the main thread."""
    host = ScriptHost()
    host.takes_tools = True
    host.wake = lambda drain: None  # reachable; a job that comes early waits for the cell to serve it
    with hosted(host):
        yield host


# -- what a model sees ---------------------------------------------------------------------------


def test_a_function_becomes_a_tool_with_the_options_of_its_decorator_and_stays_a_function():
    made = function_tool(add)
    assert (made.name, made.definition.description, made.definition.server) == ("add", "Add two numbers.", "notebook")
    assert made.definition.examples == (Example("1 plus 2", {"a": 1, "b": 2}),)
    assert (made.timeout, made.parallel, made.ask) == (60.0, True, False)

    @tool(name="twice", description="Doubles.", ask=True, timeout=5.0, parallel=False)
    def double(a: int) -> int:
        return 2 * a

    made = function_tool(double)
    assert (made.name, made.definition.description) == ("twice", "Doubles.")
    assert (made.timeout, made.parallel, made.ask) == (5.0, False, True)
    assert (double(4), is_tool(double), is_tool(add)) == (8, True, False)


def test_a_call_by_the_user_gets_the_value_of_a_field_too_and_a_bound_method_is_a_tool():
    def double(x: int = Field(3, description="how many"), *, by: int = Field(default=2)) -> int:
        return x * by

    class Box:
        @tool
        def open(self, lid: str = Field("shut")) -> str:
            return lid

    marked = tool(double)
    assert (marked(), marked(4), Box().open()) == (6, 8, "shut")
    again = function_tool(tool(name="twice")(marked))  # its words are still there
    assert again.definition.parameters["properties"]["x"]["description"] == "how many"
    assert texts(play(calls("twice", ("open", {"lid": "ajar"})), "Done.", tools=[marked, Box().open])) == ["6", "ajar"]


async def repeat(text: str, times: int = 2, *, sep: str = "") -> str:
    """Repeat a text.

    Args:
        text: what is repeated
        times: how often
    """
    return sep.join([text] * times)


async def count(to: int, start: int = 0):
    """Count."""
    for number in range(start, to):
        yield number


class Shelf:
    """Look on the shelf."""

    def __init__(self, *books: str) -> None:
        self.books = books

    def find(self, word: str, most: int = 9) -> list[str]:
        """Find books by a word."""
        return [book for book in self.books if word in book][:most]

    async def __call__(self, word: str, most: int = 9) -> list[str]:
        return self.find(word, most)


SHELF = Shelf("red book", "red hat", "blue book")
marked = tool(name="more", ask=True)(partial(add, 1))
updated = update_wrapper(partial(repeat, "b"), repeat)
named = partial(add, 5)
named.__name__, named.__doc__ = "add_five", "Add five."
RED = {"word": "red"}
PARTIALS = {
    "a function": (partial(add, 1), "add", "Add two numbers.", "b", {"b": 3}, "4"),
    "with a keyword bound": (partial(add, b=9), "add", "Add two numbers.", "a", {"a": 1}, "10"),
    "with everything bound": (partial(add, 4, b=5), "add", "Add two numbers.", "", {}, "9"),
    "an async function": (partial(repeat, sep="-"), "repeat", "Repeat a text.", "text times", {"text": "a"}, "a-a"),
    "an async generator": (partial(count, start=1), "count", "Count.", "to", {"to": 3}, "[1, 2]"),
    "a method": (partial(SHELF.find, most=1), "find", "Find books by a word.", "word", RED, '["red book"]'),
    "an object": (partial(SHELF, "red"), "Shelf", "Look on the shelf.", "most", {"most": 1}, '["red book"]'),
    "no partial but an object": (SHELF, "Shelf", "Look on the shelf.", "most word", RED, '["red book", "red hat"]'),
    "a partial": (partial(updated, 3), "repeat", "Repeat a text.", "sep", {}, "bbb"),
    "one with a name and a docstring": (partial(named), "add_five", "Add five.", "b", {}, "6"),
    "one that is marked": (partial(marked, 1), "more", "Add two numbers.", "", {}, "2"),
}


@pytest.mark.parametrize(
    ("function", "name", "description", "left", "arguments", "answer"), PARTIALS.values(), ids=PARTIALS
)
def test_a_partial_is_a_tool_without_the_parameters_that_it_binds(function, name, description, left, arguments, answer):
    made = function_tool(function)
    assert (made.name, made.definition.description, made.ask) == (name, description, name == "more")
    assert sorted(made.definition.parameters["properties"]) == left.split()
    assert scripted(tools=[function]).call(name, **arguments).text == answer


def test_a_marked_partial_is_a_tool_of_the_notebook_and_may_be_bound_to_its_caller_s_loop():
    first, second = tool(name="first")(partial(add, 1)), tool(loop="caller")(partial(repeat, times=1))
    assert (is_tool(first), is_tool(second), is_tool(partial(add, 1))) == (True, True, False)
    assert texts(play(calls(("first", {}), ("repeat", {"text": "a"})), "Done.", tools=[first, second])) == ["2", "a"]


@pytest.mark.parametrize(
    ("mark", "function", "why"),
    [
        (tool, 3, "@tool marks functions, and 3 is none"),
        (
            tool,
            partial(cast("Any", sorted), 1, 2, 3),
            r"sorted cannot be a tool: .* Write a function with type hints that calls it",
        ),
        (tool(loop="caller"), add, 'add is not async, so loop="caller" means nothing'),
    ],
)
def test_what_is_no_tool_cannot_be_marked(mark, function, why):
    with pytest.raises(UsageError, match=why):
        mark(function)


# -- what becomes of what it returns -------------------------------------------------------------


def test_a_returned_value_is_a_result_that_does_not_change_with_it():
    value = {"rows": [1]}
    came = to_result(CALL, value)
    value["rows"].append(2)
    assert came.structured == {"rows": [1]}
    assert to_result(CALL, {"a": object()}).structured is None
    assert to_result(CALL, "words").structured is None
    assert to_result(CALL, Done("finished")).done == "finished"
    whole = ToolResult("", "", (Text("denied by the tool"),), "denied")
    assert to_result(CALL, whole) == ToolResult("c1", "work", whole.content, "denied")


@pytest.mark.parametrize("error", [StopIteration("the end"), GeneratorExit(), KeyboardInterrupt(), SystemExit(2)])
def test_no_exception_of_a_function_stops_the_turn_or_the_engine(error):
    def fail() -> None:
        raise error

    outcome = play(calls("fail"), "Sorry.", tools=[fail])
    assert (outcome.stop_reason, results(outcome)[0].status) == ("answer", "error")
    assert engine().thread.is_alive()


# -- the traceback of one that raises --------------------------------------------------------------


def traceback_of(function):
    """The traceback that a user is shown of a tool, after a check that the model gets none."""
    outcome = play(calls(function.__name__), "Sorry.", tools=[function])
    (finished,) = (event for event in outcome.events if event.type == "tool_finished")
    assert "Traceback" not in repr(outcome.history_delta)
    return finished.traceback


def fail() -> None:
    raise ValueError("sk-" + "a1B2" * 8)


async def fail_later() -> None:
    fail()


def refuse() -> None:
    raise ToolError("Choose another.")


@pytest.mark.parametrize("function", [fail, fail_later])
def test_a_traceback_begins_with_the_tool_s_own_code_and_holds_no_secret(function):
    first, place, *_, last = traceback_of(function).splitlines()
    assert first == "Traceback (most recent call last):"
    assert place.endswith(f"in {function.__name__}")
    assert last == "ValueError: [redacted]"
    assert traceback_of(refuse) == ""  # said on purpose


def test_a_long_traceback_loses_its_middle():
    def fail() -> None:
        raise ValueError("x" * 10 * LONGEST_TRACEBACK)

    told = traceback_of(fail)
    assert len(told) <= LONGEST_TRACEBACK
    assert told.startswith("Traceback")


# -- where it runs -------------------------------------------------------------------------------


def thread_of_a_function() -> str:
    return threading.current_thread().name


async def thread_of_a_coroutine() -> str:
    return threading.current_thread().name


@tool(thread_safe=True)
def thread_of_a_thread_safe_function() -> str:
    return threading.current_thread().name


THREADS = [thread_of_a_function, thread_of_a_coroutine, thread_of_a_thread_safe_function]


def test_in_a_script_synchronous_functions_run_in_the_pool():
    outcome = play(calls(*(function.__name__ for function in THREADS)), "Done.", tools=THREADS)
    assert texts(outcome) == ["agentmagic-tool", "agentmagic-user", "agentmagic-tool"]


@pytest.mark.usefixtures("in_a_kernel")
def test_in_a_kernel_they_run_in_the_main_thread():
    outcome = play(calls(*(function.__name__ for function in THREADS)), "Done.", tools=THREADS)
    assert texts(outcome) == ["MainThread", "agentmagic-user", "agentmagic-tool"]


@pytest.mark.usefixtures("in_a_kernel")
def test_in_the_main_thread_they_run_one_at_a_time_and_each_clock_stands_still_until_its_turn_has_come():
    running = []

    @tool(timeout=2 * SOON)
    def slow() -> int:
        running.append(True)
        time.sleep(1.1 * SOON)  # time itself is what is tested
        count = len(running)
        running.pop()
        return count

    assert texts(play(calls(*["slow"] * 2), "Done.", tools=[slow])) == ["1"] * 2


@pytest.mark.usefixtures("in_a_kernel")
def test_the_timeout_interrupts_a_function_in_the_main_thread():
    @tool(timeout=SOON)
    def sleep() -> None:
        time.sleep(PATIENCE)

    began = time.monotonic()
    outcome = play(calls("sleep"), "Sorry.", tools=[sleep])
    assert time.monotonic() - began < SOON + AT_ONCE
    assert [(part.status, part.text) for part in results(outcome)] == [
        ("timeout", f"sleep took longer than {SOON} s and was stopped.")
    ]
    assert outcome.stop_reason == "answer"


@pytest.mark.usefixtures("in_a_kernel")
def test_an_interrupt_in_the_main_thread_cancels_the_turn():
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    session: Session = scripted(calls("interrupted"), tools=[interrupted])
    begun = session.start("a prompt")
    with pytest.raises(KeyboardInterrupt):
        begun.wait()
    assert begun.result().stop_reason == "cancelled"
    assert session.messages[-1].parts[0].status == "interrupted"


@pytest.mark.usefixtures("in_a_kernel")
def test_a_function_of_the_main_thread_may_run_another_agent():
    def delegate() -> str:
        return scripted(calls("thread_of_a_function"), "From below.", tools=[thread_of_a_function]).ask("x").final_text

    assert texts(play(calls("delegate"), "Done.", tools=[delegate])) == ["From below."]


def asked_on_a_loop(where):
    """Run a turn with one call of a tool, from an event loop that is kept as `where.loop`."""

    async def main():
        where.loop = asyncio.get_running_loop()
        return await scripted(calls("where"), "Done.", tools=[where]).start("a prompt")

    return texts(asyncio.run(main()))


def test_a_coroutine_bound_to_its_caller_s_loop_runs_there():
    @tool(loop="caller")
    async def where() -> bool:
        return asyncio.get_running_loop() is where.loop

    assert asked_on_a_loop(where) == ["true"]
    where.loop = None  # and for a caller without a loop in its thread, on a new one
    assert texts(play(calls("where"), "Done.", tools=[where])) == ["false"]


def test_a_coroutine_whose_caller_is_the_engine_runs_beside_it():
    @tool(loop="caller")
    async def where() -> bool:
        return asyncio.get_running_loop() is engine().loop

    async def begin():
        return await scripted(calls("where"), "Done.", tools=[where]).start("a prompt")

    assert texts(engine().call(begin())) == ["false"]


def test_a_timeout_cancels_a_coroutine_on_its_caller_s_loop():
    @tool(loop="caller", timeout=SOON)
    async def where() -> None:
        await asyncio.Event().wait()

    assert asked_on_a_loop(where) == [f"where took longer than {SOON} s and was stopped."]


# -- coroutines that block ------------------------------------------------------------------------


@pytest.fixture
def block():
    """A tool that blocks its event loop until the test is over, and the event that says it does."""
    begun, release = threading.Event(), threading.Event()

    async def block() -> str:
        begun.set()
        release.wait(PATIENCE)
        return "released"

    block.begun, block.release = begun, release
    yield block
    release.set()


async def loop_of() -> int:
    return id(asyncio.get_running_loop())


def test_a_turn_whose_coroutine_blocks_is_cancelled_at_once_and_its_loop_is_kept_once_it_answers(block):
    session = scripted(calls("loop_of"), calls("block"), calls("loop_of"), "Done.", tools=[loop_of, block])
    begun = session.start("a prompt")
    assert block.begun.wait(PATIENCE)
    assert texts(play(calls("thread_of_a_coroutine"), "Done.", tools=THREADS)) == ["agentmagic-user"]
    assert not begun.done  # and other sessions go on
    began = time.monotonic()
    begun.cancel()
    outcome = begun.wait()
    assert time.monotonic() - began < AT_ONCE
    assert outcome.stop_reason == "cancelled"
    before, told = texts(outcome)
    assert told == f"block was interrupted. {BLOCKS.format('block')}"
    assert "`def` instead of `async def`" in told
    block.release.set()
    assert texts(session.ask("again")) == [before]


def test_a_coroutine_that_blocks_is_given_up_at_its_timeout_and_the_next_one_runs_on_another_loop(block):
    steps = (calls("loop_of"), calls("block"), calls("loop_of"), "Done.")
    session = scripted(*steps, tools=[loop_of, tool(timeout=SOON)(block)])
    before, blocked, after = texts(session.ask("a prompt"))
    assert blocked == f"block took longer than {SOON} s and was given up. {BLOCKS.format('block')}"
    assert before != after


def test_a_session_has_one_loop_also_after_a_call_was_stopped():
    @tool(timeout=SOON)
    async def wait() -> None:
        await asyncio.Event().wait()

    steps = (calls("loop_of"), calls("wait"), calls("loop_of"), "Done.", calls("loop_of"), "Done.")
    session = scripted(*steps, tools=[loop_of, wait])
    before, stopped, after = texts(session.ask("a prompt"))
    assert stopped == f"wait took longer than {SOON} s and was stopped."
    assert [before, after] == [before, *texts(session.ask("again"))]
    assert session.call("loop_of").text == before  # by hand
    assert texts(play(calls("loop_of"), "Done.", tools=[loop_of])) != [before]


def test_the_loop_s_thread_ends_with_its_session_closed_or_collected():
    threads = []

    async def thread() -> None:
        threads.append(threading.current_thread())

    closed, collected = (scripted(calls("thread"), "Done.", tools=[thread]) for _ in range(2))
    closed.ask("a prompt")
    collected.ask("a prompt")
    closed.close()
    del collected
    gc.collect()
    for one in threads:
        one.join(PATIENCE)
        assert not one.is_alive()


def test_hooks_and_tools_made_by_hand_run_on_the_loop_of_the_session():
    threads = []

    async def hook(*_: object) -> None:
        threads.append(threading.current_thread().name)

    async def invoke(call: ToolCall, context: ToolContext) -> ToolResult:
        await hook()
        return to_result(call, context.call.id)

    tools = [Tool(ToolDef("work", "Work."), invoke)]
    assert texts(play(calls("work"), "Done.", tools=tools, before_finish=hook, permission=hook)) == ["call_1"]
    assert threads == ["agentmagic-user"] * 3


def test_a_call_that_is_given_up_tells_what_it_leaves_behind():
    over = {name: threading.Event() for name in ("stubborn", "endless")}

    @tool(timeout=SOON)
    async def stubborn() -> None:
        while not over["stubborn"].is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    @tool(timeout=SOON, thread_safe=True)
    def endless() -> object:
        try:
            while True:
                time.sleep(0.01)  # the work for an item
                yield 1
        finally:
            over["endless"].set()  # closed with the timeout, long before it reaches a limit

    given_up = f"took longer than {SOON} s and was given up."
    assert texts(play(calls("stubborn", "endless"), "Sorry.", tools=[stubborn, endless])) == [
        f"stubborn {given_up} {UNFINISHED}",
        f"endless {given_up} {STILL_RUNNING}",
    ]
    over["stubborn"].set()
    assert all(one.wait(PATIENCE) for one in over.values())


def test_the_tools_of_a_turn_are_functions_of_a_program():
    asked = []
    definitions = [ToolDef("look-up", "Look.", {"properties": {"at": {}, "by": {}}, "required": ["at"]})]
    context = SimpleNamespace(tools=definitions, call_tool=lambda name, arguments: asked.append((name, arguments)))
    tools = ToolFunctions(context)
    tools.look_up(1, by=2)
    tools["look-up"](at=3)
    assert asked == [("look-up", {"at": 1, "by": 2}), ("look-up", {"at": 3})]
    assert (tools.look_up.__name__, str(inspect.signature(tools.look_up))) == ("look_up", "(at, by=None)")


# -- functions of a run that another thread started -----------------------------------------------


@pytest.mark.usefixtures("in_a_kernel")
def test_a_main_thread_that_waits_for_the_thread_of_a_session_is_not_waited_for():
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(play, calls("thread_of_a_function"), "Done.", tools=THREADS)
        outcome = asked.result(PATIENCE)
    assert texts(outcome) == ["agentmagic-tool"]
    assert notices(outcome) == [IN_THREAD]
    assert "thread_safe=True" in IN_THREAD


def test_a_main_thread_that_is_free_runs_the_functions_of_other_threads(in_a_kernel):
    posted = []
    in_a_kernel.wake = posted.append
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(play, calls("thread_of_a_function"), "Done.", tools=THREADS)
        while not posted:
            pass
        posted[0]()
        assert texts(asked.result(PATIENCE)) == ["MainThread"]


# -- variables by name -----------------------------------------------------------------------------


class Frame:
    """A class that JSON cannot carry."""

    def __init__(self, rows=0):
        self.rows = rows


class Deeper(Frame):
    """A frame too."""


class Matrix:
    """Another class."""

    def __class_getitem__(cls, item):
        return GenericAlias(cls, item)


def counting(variables, **options):
    @tool(variables=variables, **options)
    def count_rows(df: Frame, other: Frame | Matrix[int] | None = None) -> int:
        """Count rows.

        Args:
            df: What to count.
        """
        return df.rows if other is None else df.rows + other.rows

    return count_rows


def asked_for(session):
    """The properties of the first tool of the last request."""
    return session.agent.model.requests[-1].tools[0].parameters["properties"]


def test_a_parameter_that_json_cannot_carry_takes_the_name_of_a_variable():
    variables = {"sales": Frame(3), "costs": Deeper(4), "_2": Frame(), "n": 5, "grid": Matrix()}
    step = calls(("count_rows", {"df": "sales", "other": "costs"}))
    session = scripted(step, "Seven.", tools=[counting(variables)])
    shown = session.preview("How many?").request.tools
    outcome = session.ask("How many?")
    assert texts(outcome) == ["7"]
    assert [dict(call.arguments) for row in session.messages for call in row.calls] == [
        {"df": "sales", "other": "costs"}
    ]
    assert asked_for(session) == {
        "df": {
            "type": "string",
            "description": "What to count. The name of a variable that is a tests.Frame.",
            "enum": ["sales", "costs"],
        },
        "other": {
            "anyOf": [{"type": "string", "enum": ["sales", "costs", "grid"]}, {"type": "null"}],
            "default": None,
            "description": "The name of a variable that is a tests.Frame or a tests.Matrix.",
        },
    }
    assert session.agent.model.requests[-1].tools == shown


def test_the_names_are_those_of_the_beginning_of_each_turn():
    variables = {}
    session = scripted("none", "one", "many", tools=[counting(variables)])
    (told,) = notices(session.ask("How many?"))
    assert told == (
        "count_rows is left out of this turn: its df is a tests.Frame, and no variable is one. "
        "Bind one in a cell, df = ..., and ask again."
    )
    assert session.agent.model.requests[-1].tools == session.preview("How many?").request.tools == ()
    variables["sales"] = Frame(3)
    assert notices(session.ask("And now?")) == []
    assert asked_for(session)["df"]["enum"] == ["sales"]
    variables |= {f"v{number}": Frame(number) for number in range(150)}
    session.ask("And now?")
    assert asked_for(session)["df"]["enum"] == [f"v{number}" for number in range(50, 150)]  # the newest ones


def test_a_parameter_that_may_be_left_out_needs_no_variable():
    def count_rows(df: Frame | None = Field(None, description="What to count.")) -> int:
        return df.rows if df else 0

    variables = {}
    counts = tool(variables=variables)(count_rows)
    session = scripted(calls("count_rows"), "None.", calls(("count_rows", {"df": "sales"})), "Three.", tools=[counts])
    assert texts(session.ask("How many?")) == ["0"]
    assert asked_for(session) == {}
    variables["sales"] = Frame(3)
    assert texts(session.ask("And now?")) == ["3"]
    assert asked_for(session)["df"]["description"] == "What to count. The name of a variable that is a tests.Frame."


def test_a_variable_that_is_another_when_it_is_called_gives_an_error_that_names_the_others():
    variables = {"sales": Frame(3), "costs": Frame(4)}

    def end() -> str:
        variables["sales"] = 1
        return "done"

    step = calls(("count_rows", {"df": "sales"}))
    outcome = play(calls("end"), step, "Oh.", tools=[counting(variables), end])
    assert texts(outcome) == ["done", "No variable 'sales' is a tests.Frame now. Those that are: costs."]
    assert results(outcome)[1].status == "error"


def test_a_name_is_looked_up_and_never_evaluated():
    variables = {"sales": Frame(3), "boom": Frame}
    wrong = ["sales.rows", "boom()", "boom", "__import__('os')"]
    steps = [calls(("count_rows", {"df": name})) for name in wrong]
    outcome = play(*steps, "Oh.", tools=[counting(variables)], max_repeats=9)
    assert all("is not one of" in text and "sales" in text for text in texts(outcome))
    assert len(texts(outcome)) == len(wrong)
    assert "sales" in variables


def test_an_always_holds_when_variables_come():
    variables = {"sales": Frame(3)}
    step = calls(("count_rows", {"df": "sales"}))
    session = scripted(step, "Three.", step, "Three.", tools=[counting(variables, ask=True)])
    begun = session.start("How many?", attended=True)
    begun.listen(lambda event: event.type == "approval_asked" and begun.send(Approve(event.id, always=True)))
    assert texts(begun.wait()) == ["3"]
    variables["costs"] = Frame(4)
    again = session.ask("And now?")
    assert texts(again) == ["3"]
    assert "approval_asked" not in kinds(again.events)
