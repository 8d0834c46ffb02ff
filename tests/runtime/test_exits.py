"""What exits in the code of a tool ends that code, and nothing else."""

import asyncio
import builtins
import contextvars
import sys
import threading
from types import SimpleNamespace

import pytest

from agentmagic.runtime import exits
from agentmagic.runtime.engine import engine
from agentmagic.runtime.exits import CodeExit, contained_exits, end_tool
from agentmagic.testing import PATIENCE


class Autocall:
    """An `exit` as IPython has one: it asks the shell to end, and raises nothing."""

    def __init__(self, shell):
        self.shell = shell

    def __call__(self, keep_kernel=False):
        self.shell.ask_exit()


class Shell:
    """A shell that counts how often it was asked to end."""

    def __init__(self):
        self.ended = 0
        self.exiter = Autocall(self)
        self.kernel = SimpleNamespace(do_shutdown=self.ask_exit)

    def ask_exit(self, *_):
        self.ended += 1


@pytest.fixture(autouse=True)
def no_other_tool(monkeypatch):
    """As if no tool of another test hung in its thread."""
    monkeypatch.setattr(exits, "_open", set())


@pytest.fixture
def shell(monkeypatch):
    made = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: made))
    return made


def code_of(function):
    with pytest.raises(CodeExit) as caught, contained_exits():
        function()
    return caught.value.code


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda shell: shell.exiter(3), 3),
        (lambda shell: shell.exiter(keep_kernel=True), None),
        (lambda shell: shell.ask_exit(), None),
        (lambda shell: shell.kernel.do_shutdown(False), None),
        (lambda _: vars(builtins)["quit"]("words"), "words"),
        (lambda _: sys.exit(5), 5),
    ],
)
def test_code_of_a_tool_ends_itself_and_the_user_s_own_the_shell(shell, leave, code):
    with contained_exits():
        pass
    for _ in range(2):
        assert code_of(lambda: leave(shell)) == code
    assert shell.ended == 0
    assert (type(shell.exiter).__name__, type(shell.exiter).__doc__) == ("Autocall", Autocall.__doc__)
    shell.exiter()
    assert shell.ended == 1


@pytest.mark.parametrize("hidden", [False, True])
def test_the_built_in_names_are_as_before_and_the_input_stays_open(monkeypatch, hidden):
    for name in ("exit", "quit"):
        if hidden:  # as IPython hides them while a cell runs
            monkeypatch.delattr(builtins, name, raising=False)
    before = {name: vars(builtins).get(name) for name in ("exit", "quit")}
    closed = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(close=lambda: closed.append(True)))
    with contained_exits():
        assert code_of(lambda: vars(builtins)["exit"](1)) == 1
        assert code_of(vars(builtins)["quit"]) is None  # the outer block goes on
    assert {name: vars(builtins).get(name) for name in ("exit", "quit")} == before
    assert closed == []


def test_a_thread_ends_alone_whoever_has_started_it(shell):
    go_on, codes = threading.Event(), []

    def work(code):
        try:
            if code != "early":
                go_on.wait(PATIENCE)
            shell.exiter(code)
        except SystemExit as end:  # which ends a thread without a word
            codes.append(end.code)

    own, early, late = (threading.Thread(target=work, args=(code,)) for code in ("own", "early", "late"))
    own.start()
    with contained_exits():
        early.start()
        late.start()
        early.join()
    go_on.set()
    late.join()
    own.join()
    assert (sorted(codes), shell.ended) == (["early", "late", "own"], 0)


def test_what_a_tool_has_left_in_an_event_loop_raises_no_exit_of_the_loop(shell):
    with contained_exits():
        left = contextvars.copy_context()
    with pytest.raises(RuntimeError, match="is over"):
        left.run(shell.exiter)
    assert shell.ended == 0
    end_tool()  # of the user's own code: returns


def test_a_task_that_exits_ends_neither_the_engine_nor_the_loop_of_the_user_s_functions():
    async def leave():
        sys.exit(3)

    async def gather():
        try:
            await asyncio.gather(leave(), asyncio.sleep(0))
        except SystemExit as end:
            return end.code

    async def on_both():
        return await gather(), await engine().await_user(gather, "gather")

    assert engine().call(on_both()) == (3, 3)
    assert engine().thread.is_alive()
