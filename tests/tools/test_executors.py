"""Tools on executors: threads, a process pool, and doubles of the ones of a cluster."""

import multiprocessing
import os
import pickle
import sys
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import cloudpickle
import pytest

from agentmagic import Agent, Done, ScriptedModel, Session, ToolContext, tool
from agentmagic.errors import UsageError
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.serialization import from_json, to_json
from agentmagic.testing import PATIENCE
from agentmagic.tools import executors
from agentmagic.tools.base import STILL_RUNNING, Tool
from agentmagic.tools.calling import validate_result
from agentmagic.tools.executors import MAY_HAVE_RUN, ON_WORKER, kind_of
from agentmagic.tools.functions import ToolOptions, _make_tool
from agentmagic.undo.states import maker_of
from tests.tools import heavy
from tests.turns import SOON, calls, notices, play, results, texts

KEY = "sk-proj-Zx81kQm20vLt75RbYw93NcHs64JdUe17"


class Inline(Executor):
    """Runs a call at once, from a pickle, as a cluster does. `ends` are how calls end, in place of running."""

    def __init__(self, *ends, **kwargs):
        self._ends = list(ends)
        self._kwargs = kwargs
        self.sent = []

    def submit(self, fn, /, *args, **kwargs):
        args = [arg.data if isinstance(arg, Scattered) else arg for arg in args]  # as Dask does
        call = cloudpickle.dumps(partial(fn, *args, **kwargs))
        self.sent.append(call)
        future = Future()
        end = self._ends.pop(0) if self._ends else None
        if end == "cancelled":
            future.cancel()
            future.set_running_or_notify_cancel()
        elif end is not None and end != "never":
            future.set_exception(end)
        elif end is None:
            try:
                future.set_result(pickle.loads(call)())  # noqa: S301  (of this test)
            except BaseException as error:  # noqa: BLE001  (as an executor does)
                future.set_exception(error)
        return future


def named(module: str, base: type, name: str = "Double", **members) -> type:
    """A class of a library that is not there."""
    return type(name, (base,), {"__module__": module, **members})


Dask = named("distributed.cfexecutor", Inline)
IPyParallel = named("ipyparallel.client.view", Inline)
KilledWorker = named("distributed.scheduler", Exception, "KilledWorker")
CommClosedError = named("distributed.comm.core", OSError, "CommClosedError")
RemoteError = named("ipyparallel.error", Exception, "RemoteError")


class Client:
    """A client of Dask: a scheduler with a number of allowed failures, or one that does not answer."""

    def __init__(self, failures=0):
        self._scheduler = SimpleNamespace(allowed_failures=failures)
        self.asked = 0

    def run_on_scheduler(self, function):
        self.asked += 1
        if isinstance(self._scheduler.allowed_failures, Exception):
            raise self._scheduler.allowed_failures
        return cloudpickle.loads(cloudpickle.dumps(function))(dask_scheduler=self._scheduler)


class Scattered:
    """The future of Dask for some data."""

    def __init__(self, data):
        self.data = data


class Queue:
    """The queue of Dask: its tokens stay with the scheduler."""

    tokens: dict[str, list[bool]] = {}  # noqa: RUF012  (as in a scheduler)

    def __init__(self, name, client=None):
        self.name = name
        self.tokens.setdefault(name, [])

    def put(self, token):
        self.tokens[self.name].append(token)

    def get(self, *, batch):
        found, self.tokens[self.name] = self.tokens[self.name], []
        return found

    def close(self): ...


@pytest.fixture(autouse=True)
def library(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Queue=Queue, Future=Scattered))


def dask(failures=0, *ends, pure=False, **kwargs):
    executor = Dask(*ends, pure=pure, **kwargs)
    executor._client = Client(failures)
    return executor


def ipyparallel(*ends, ename="", evalue="", view="LoadBalancedView", **attributes):
    error = RemoteError(f"[0:apply] {ename}: {evalue}")
    error.ename, error.evalue = ename, evalue
    executor = IPyParallel(*(ends or ([error] if ename else ())))
    executor.view = named("ipyparallel.client.view", object, view)()
    vars(executor.view).update(attributes)
    return executor


def notebook_function(source: str, name: str = "work", **values):
    """A function as a cell defines it: its module is not a file. `values` are variables of the notebook."""
    namespace = {"__name__": "__main__", **values}
    exec(source, namespace)  # noqa: S102  (a cell)
    return namespace[name]


def once(function, *, arguments=None, times=1, **options):
    """The result of a turn in which a function, marked with options, is called."""
    marked = tool(name="work", **options)(function)
    steps = [calls(("work", arguments or {}))] * times
    return play(*steps, "Done.", tools=[marked])


def executor_tool(function, executor) -> Tool:
    """The tool of a method or partial, which no decorator can mark, on an executor."""
    return _make_tool(function, ToolOptions(name="work", executor=executor))


def add(a: int, b: int = 1) -> int:
    return a + b


def add_one() -> int:
    return 1


# -- where it runs -------------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2, thread_name_prefix="mine") as executor:
        yield executor


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def test_a_function_runs_on_the_threads_of_the_user_with_its_context(threads):
    @tool(executor=threads)
    def thread(context: ToolContext) -> str:
        return f"{threading.current_thread().name} {context.call.name} {context.deps}"

    assert texts(play(calls("thread"), "Done.", tools=[thread], deps=7)) == ["mine_0 thread 7"]


def test_the_time_of_a_call_that_waits_for_a_thread_does_not_run(threads):
    free = threading.Event()
    waiting = [threads.submit(free.wait, PATIENCE) for _ in range(2)]

    @tool(executor=threads, timeout=SOON)
    def quick() -> str:
        return "done"

    threading.Timer(1.5 * SOON, free.set).start()
    assert texts(play(calls("quick"), "Done.", tools=[quick])) == ["done"]
    assert all(one.result() for one in waiting)


def test_a_function_runs_in_a_process_of_a_pool(processes):
    (result,) = results(once(heavy.where, executor=processes))
    assert int(result.text) not in (0, os.getpid())


def test_what_a_function_raises_in_a_process_is_the_result_of_its_call(processes):
    assert texts(once(heavy.boom, arguments={"word": "no"}, executor=processes)) == ["ValueError: no"]


@pytest.mark.posix
def test_a_pool_whose_process_was_killed_is_told_as_lost_and_then_as_broken():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        lost, broken = results(once(heavy.die, executor=executor, times=2))
    assert lost.text.startswith("work may have run, wholly or in part: its worker was lost before it answered")
    assert lost.text.endswith(executors.BROKEN_POOL)
    assert broken.text.startswith("work was not run: its executor did not take the call (BrokenProcessPool: ")
    assert broken.text.endswith(executors.BROKEN_POOL)
    assert (lost.in_doubt, broken.in_doubt) == (True, False)


def test_a_function_of_a_notebook_goes_to_a_cluster_without_its_options_and_their_variables():
    executor = Inline()
    work = notebook_function("def work(a: int) -> int: return a + STEP", STEP=2, lock=threading.Lock())
    outcome = once(work, arguments={"a": 1}, executor=executor, variables={"lock": threading.Lock()})
    assert texts(outcome) == ["3"]
    assert b"agentmagic" not in executor.sent[0].replace(b"__agentmagic_", b"")


def test_names_of_parameters_may_be_those_of_the_options_of_dask():
    def work(pure: bool, key: str, workers: int) -> str:
        return f"{pure} {key} {workers}"

    asked = {"pure": True, "key": "a", "workers": 1}
    assert texts(once(work, arguments=asked, executor=dask())) == ["True a 1"]


def test_what_a_worker_returns_may_end_the_turn():
    outcome = once(lambda: Done("All done."), executor=Inline())
    assert (outcome.final_text, outcome.stop_reason) == ("All done.", "done")


@pytest.mark.parametrize(
    ("ename", "text"),
    [("ValueError", "ValueError: no"), ("ToolError", "no"), ("NameError", "NameError: no")],
)
def test_an_error_of_ipyparallel_is_told_in_the_words_of_the_function(ename, text):
    assert texts(once(add, arguments={"a": 1}, executor=ipyparallel(ename=ename, evalue="no"))) == [text]


def test_ipyparallel_ends_a_turn_by_the_name_of_the_error():
    assert (
        once(add, arguments={"a": 1}, executor=ipyparallel(ename="TaskComplete", evalue="Over.")).final_text == "Over."
    )


# -- what is refused when a tool is marked -------------------------------------------------------------------


async def later() -> None: ...
def several():
    yield 1


def with_context(context: ToolContext) -> None: ...


def asynchronous():
    executor = dask()
    executor._client.asynchronous = True
    return executor


MARKED = [
    (add, object, {}, "executor= takes a concurrent.futures.Executor, and an object is not one."),
    (add, lambda: None, {"repeatable": True}, "repeatable=True means nothing to add without executor=."),
    (later, Inline, {}, "later is async, and an executor runs synchronous functions. Write `def`"),
    (several, Inline, {}, "several is a generator, which cannot leave its worker. Return a list"),
    (with_context, Inline, {}, "with_context takes a ToolContext, which cannot leave this process."),
    (add, lambda: dask(pure=None), {}, "Make the executor with client.get_executor(pure=False)"),
    (add, lambda: dask(pure=None), {"repeatable": True}, "Dask runs two equal calls of add only once."),
    (add, lambda: dask(pure=True), {}, "Dask runs two equal calls of add only once."),
    (add, lambda: dask(retries=2), {}, "This executor runs add again, up to 2 times, if a call fails."),
    (add, lambda: ipyparallel(retries=1), {}, "This executor runs add again, up to 1 times, if a call fails."),
    (add, lambda: ipyparallel(view="DirectView", targets=[0, 1]), {}, "This executor runs add on all 2 engines"),
    (add, asynchronous, {}, "Make the client with Client(...), without asynchronous=True."),
    (lambda: 1, ProcessPoolExecutor, {"name": "one"}, "Move it to the top level of a module."),
]


@pytest.mark.parametrize(("function", "executor", "options", "words"), MARKED)
def test_what_cannot_run_on_an_executor_is_refused_with_the_sentence_that_mends_it(function, executor, options, words):
    with pytest.raises(UsageError) as raised:
        tool(executor=executor(), **options)(function)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("executor", "options"),
    [
        (lambda: dask(pure=True), {"repeatable": True}),
        (lambda: dask(retries=2), {"repeatable": True}),
        (lambda: ipyparallel(retries=1), {"repeatable": True}),
        (lambda: ipyparallel(view="DirectView", targets=0), {}),
    ],
)
def test_a_repeatable_tool_and_a_view_of_one_engine_are_taken(executor, options):
    assert texts(once(add, arguments={"a": 1}, executor=executor(), **options)) == ["2"]


def test_a_function_of_a_notebook_is_refused_on_a_process_pool(monkeypatch):
    work = notebook_function("def work() -> int: return 1")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="heavy.py"))
    with ProcessPoolExecutor(1) as executor:
        assert tool(executor=executor)(work) is work  # in a script, whose file the processes import
        monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())
        with pytest.raises(UsageError, match=r"work is defined in a notebook.*%%writefile heavy.py.*from heavy import"):
            tool(executor=executor)(notebook_function("def work() -> int: return 1"))


def test_the_kind_of_an_executor_is_that_of_the_library_it_comes_from():
    subclass = type("Own", (ThreadPoolExecutor,), {})
    interpreter = named("concurrent.futures.interpreter", ThreadPoolExecutor)
    found = [kind_of(object.__new__(one)) for one in (subclass, interpreter, Dask, IPyParallel, Inline)]
    assert found == ["threads", "processes", "dask", "ipyparallel", "other"]


# -- calls that may run twice --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "words"),
    [
        (3, "work was not run: if a worker is lost, this Dask scheduler runs its calls again, up to 3 times"),
        (OSError("Timed out"), "whether it runs the calls of a lost worker again (Timed out)."),
    ],
)
def test_a_scheduler_that_may_run_a_call_twice_is_refused_unless_the_tool_is_repeatable(failures, words):
    executor = dask(failures)
    (refused,) = results(once(add, arguments={"a": 1}, executor=executor))
    assert words in refused.text
    assert "@tool(executor=..., repeatable=True)" in refused.text
    assert (executor.sent, refused.is_error, refused.in_doubt) == ([], True, False)
    assert texts(once(add, arguments={"a": 1}, executor=executor, repeatable=True)) == ["2"]
    assert executor._client.asked == 1


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_client_that_is_closed_is_named(repeatable):
    executor = dask(0)
    executor._client.status = "closed"
    (refused,) = texts(once(add, arguments={"a": 1}, executor=executor, repeatable=repeatable))
    assert refused.startswith("work was not run: its client of Dask is closed.")


def test_an_exit_on_a_worker_of_dask_ends_the_call_and_a_value_that_cannot_be_sent_is_told():
    assert texts(once(lambda: sys.exit(3), executor=dask())) == ["The tool ended itself with exit code 3."]
    assert texts(once(lambda: [threading.Lock()], executor=dask())) == [
        "TypeError: cannot pickle '_thread.lock' object"
    ]


def test_a_scheduler_that_runs_each_call_once_is_asked_once():
    executor = dask(0)
    assert texts(once(add, arguments={"a": 1}, executor=executor, times=2)) == ["2", "2"]
    assert executor._client.asked == 1


# -- workers that are lost -----------------------------------------------------------------------------------

LOSSES = [
    (lambda: dask(0, KilledWorker("tcp://10.0.0.1")), "KilledWorker"),
    (lambda: dask(0, CommClosedError("closed")), "CommClosedError"),
    (lambda: dask(0, "cancelled"), "the executor gave the call up"),
    (lambda: Inline(BrokenExecutor("the node is gone")), "BrokenExecutor"),
    (lambda: ipyparallel(ename="EngineError", evalue="Engine died"), "EngineError"),
]


@pytest.mark.parametrize(("executor", "reason"), LOSSES)
def test_a_call_whose_worker_was_lost_may_have_run_and_is_in_doubt(executor, reason):
    outcome = once(add, arguments={"a": 1}, executor=executor())
    (lost,) = results(outcome)
    assert lost.text == MAY_HAVE_RUN.format("work", reason)
    assert (lost.status, lost.in_doubt) == ("error", True)
    assert [event.result.in_doubt for event in outcome.events if event.type == "tool_finished"] == [True]


@pytest.mark.parametrize(("executor", "reason"), LOSSES)
def test_a_repeatable_call_whose_worker_was_lost_may_be_called_again(executor, reason):
    (lost,) = results(once(add, arguments={"a": 1}, executor=executor(), repeatable=True))
    assert (lost.text, lost.in_doubt) == (executors.MAY_RUN_AGAIN.format("work", reason), False)


def test_a_call_that_dask_runs_again_is_not_carried_out_again_and_is_in_doubt():
    class Twice(type(dask())):
        def submit(self, fn, /, *args):
            super().submit(fn, *args)  # on a worker that leaves in good order, so that its value is not wanted
            return super().submit(fn, *args)

    made, executor = [], Twice(pure=False)
    executor._client = Client(0)
    Inline.made = made
    work = notebook_function("def work() -> int: Inline.made.append(1); return 1", Inline=Inline)
    (result,) = results(once(work, executor=executor))
    assert (result.text, result.in_doubt, len(made)) == (
        MAY_HAVE_RUN.format("work", "Dask gave the call to another one"),
        True,
        1,
    )


def test_errors_of_a_function_that_are_named_like_a_lost_worker_are_its_own():
    own = type("KilledWorker", (Exception,), {})
    assert texts(once(add, arguments={"a": 1}, executor=dask(0, own("no")))) == ["KilledWorker: no"]


def test_doubt_is_kept_in_a_saved_result_and_left_out_where_there_is_none():
    result = ToolResult("1", "work", (Text("lost"),), "error", in_doubt=True)
    assert from_json(to_json(result)) == result
    assert "in_doubt" not in to_json(ToolResult("1", "work", ()))
    assert validate_result(ToolCall("1", "work", {}), ToolResult("1", "work", (), in_doubt="x")).in_doubt is False


def test_a_call_that_is_given_up_on_a_worker_says_that_it_goes_on():
    (late,) = results(once(add, arguments={"a": 1}, executor=Inline("never"), timeout=0.05))
    assert (late.status, late.text) == ("timeout", f"work took longer than 0.05 s and was given up. {ON_WORKER}")


def test_a_call_that_is_stopped_on_a_worker_says_that_it_goes_on():
    executor, sent = Inline("never"), threading.Event()
    executor.sent = SimpleNamespace(append=lambda _call: sent.set())
    run = Session(Agent(ScriptedModel([calls("work")]), tools=[executor_tool(add_one, executor)])).start("Go.")
    assert sent.wait(PATIENCE)
    run.cancel()
    (stopped,) = results(run.wait())
    assert (stopped.status, stopped.text) == ("interrupted", f"work was interrupted. {ON_WORKER}")


def test_a_call_that_a_process_has_not_begun_is_stopped():
    executor = named("concurrent.futures.process", Inline)("never")
    assert texts(once(heavy.where, executor=executor, timeout=0.05)) == [
        "work took longer than 0.05 s and was stopped."
    ]


def test_a_call_in_a_thread_goes_on_too(threads):
    goes_on = threading.Event()
    running = once(partial(goes_on.wait, PATIENCE), executor=threads, timeout=0.05)
    assert texts(running) == [f"work took longer than 0.05 s and was given up. {STILL_RUNNING}"]
    goes_on.set()


# -- what goes along -----------------------------------------------------------------------------------------

CELL = """
import dataclasses
@dataclasses.dataclass
class Settings:
    api_key: str = ""
    def word(self): return HIDDEN
class Table:
    HIDDEN = KEY
def helper(): return HIDDEN
def read() -> str: return str(HIDDEN)
def read_deeply() -> str: return (lambda: helper())()
def default(a: str = KEY) -> str: return "x"
def outer(inside):
    def closure() -> str: return str(inside)
    return closure
closure = outer(KEY)
settings = Settings(KEY)
def of_object() -> str: return settings.word()
def of_class() -> str: return Table.HIDDEN
def innocent() -> str: return "x"
"""


@pytest.mark.parametrize(
    ("name", "place", "hidden"),
    [
        ("read", "the global HIDDEN", KEY),
        ("read", "the global HIDDEN", {"a": [1, {"b": KEY}]}),
        ("read", "the global HIDDEN", KEY.encode()),
        ("read_deeply", "the global HIDDEN", KEY),
        ("default", "the default of a", 1),
        ("closure", "the variable inside", 1),
        ("of_object", "the global settings", 1),
        ("of_class", "the attribute HIDDEN of Table", 1),
    ],
)
def test_a_secret_that_would_be_in_the_pickle_is_refused_by_its_name(name, place, hidden):
    executor = Inline()
    function = notebook_function(CELL, name, KEY=KEY, HIDDEN=hidden)
    (refused,) = texts(once(function, executor=executor))
    assert refused.startswith(f"work was not run: {place} holds a secret, which would be in the pickle")
    assert (executor.sent, KEY in refused) == ([], False)


@pytest.mark.parametrize("executor", [Inline, dask])
def test_a_secret_that_no_code_uses_stays_here(executor):
    assert texts(once(notebook_function(CELL, "innocent", KEY=KEY, HIDDEN=KEY), executor=executor())) == ["x"]


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("password", "Tr0ub4dor&3-staple", True),
        ("database", {"password": "hunter2hunter2"}, True),
        ("ADDRESS", "postgresql://me:s3cretpw99@db/x", True),
        ("SORT_KEY", "customer_name", False),
        ("KEY_COLUMNS", ["user_id", "Order Date"], False),
        ("settings", {"pad_token": "<|endoftext|>", "key": "customer_id"}, False),
    ],
)
def test_a_name_alone_makes_no_secret(name, value, is_secret):
    work = notebook_function(f"def work() -> str: return str({name})", **{name: value})
    (text,) = texts(once(work, executor=Inline()))
    refused = f"work was not run: the global {name} holds a secret"
    assert text.startswith(refused) if is_secret else text == str(value)


class Holder:
    def __init__(self, key):
        self.key = key

    def work(self) -> str:
        return "x"


@pytest.mark.parametrize("executor", [Inline, named("concurrent.futures.process", Inline)])
@pytest.mark.parametrize(
    ("function", "place"),
    [(partial(heavy.boom, word=KEY), "the argument word"), (Holder(KEY).work, "its object")],
)
def test_the_object_of_a_method_and_the_arguments_of_a_partial_go_along_too(executor, function, place):
    session = Session(Agent(ScriptedModel([calls("work"), "Done."]), tools=[executor_tool(function, executor())]))
    assert texts(session.ask("Go."))[0].startswith(f"work was not run: {place} holds a secret")


def test_ipyparallel_sends_no_globals_so_a_key_in_one_stays_here():
    work = notebook_function("def work() -> str: return 'x' if True else KEY", KEY=KEY)
    assert texts(once(work, executor=ipyparallel())) == ["x"]
    closure = notebook_function(CELL, "closure", KEY=KEY)
    assert "the variable inside holds a secret" in texts(once(closure, executor=ipyparallel()))[0]


def test_threads_pickle_nothing_so_all_of_it_may_be_used(threads):
    work = notebook_function("def work() -> str: return f'{len(KEY)} {LOCK.locked()}'", KEY=KEY, LOCK=threading.Lock())
    assert texts(once(work, executor=threads)) == [f"{len(KEY)} False"]


def test_a_global_that_cannot_be_pickled_is_named():
    work = notebook_function("def work() -> bool: return LOCK.locked()", LOCK=threading.Lock())
    assert texts(once(work, executor=Inline())) == [
        (
            "work was not run: the global LOCK, a lock, cannot be sent to a worker (cannot pickle '_thread.lock' "
            "object). Make it inside the function, on the worker."
        )
    ]


@pytest.mark.parametrize(
    ("executor", "mend"),
    [(Inline, "Let"), (dask, "Send it once, with x = client.scatter(x), or let")],
)
def test_large_globals_are_told_once(executor, mend):
    work = notebook_function("def work() -> int: return len(TABLE)", TABLE=bytes(3_000_000))
    outcome = once(work, executor=executor(), times=2)
    assert texts(outcome) == ["3000000", "3000000"]
    told = "Each call of work sends to a worker: the global TABLE (3 MB)."
    assert notices(outcome) == [f"{told} {mend} the function read it there from a file."]


def test_the_function_sees_the_data_of_a_future_of_dask():
    work = notebook_function("def work() -> int: return sum(TABLE)", TABLE=Scattered([1, 2, 3]))
    assert texts(once(work, executor=dask())) == ["6"]


def test_a_variable_that_is_given_by_its_name_is_looked_at_too():
    class Table:
        def __init__(self, text):
            self.text = text

        def __len__(self):
            return len(self.text)

    def work(table: Table) -> int:
        return len(table)

    large, secret = Table("x" * 2_000_000), Table(KEY)
    options = {"executor": Inline(), "variables": {"large": large, "secret": secret}}
    assert notices(once(work, arguments={"table": "large"}, **options))[0].startswith(
        "Each call of work sends to a worker: the argument table (2 MB)."
    )
    assert "the argument table holds a secret" in texts(once(work, arguments={"table": "secret"}, **options))[0]


# -- what undo knows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("executor", "changes"), [(Inline, ()), (lambda: ThreadPoolExecutor(1), ("rows",))])
def test_only_what_runs_in_this_process_is_watched(executor, changes):
    variables = {"__name__": "__main__", "rows": [1]}
    exec("def work() -> int: rows.append(2); return len(rows)", variables)  # noqa: S102  (a cell)
    marked = tool(executor=executor())(variables["work"])
    session = Session(Agent(ScriptedModel([calls("work"), "Done."]), tools=[marked]), namespace=variables)
    outcome = session.ask("Go.")
    assert texts(outcome) == ["2"]
    assert tuple(change.name for change in outcome.changes) == changes
    assert [event for event in outcome.events if event.type == "variables_changed" and event.unwatched] == []
    assert len(variables["rows"]) == 1 + len(changes)


def test_executors_clients_and_clusters_are_no_data_of_a_notebook():
    traits = named("traitlets.traitlets", object, "HasTraits")
    kinds = [ThreadPoolExecutor, Dask, named("distributed.client", object), named("ipyparallel.client.client", traits)]
    assert [maker_of(kind) for kind in kinds] == [None] * 4
