import asyncio
import contextvars
import gc
import inspect
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from agentmagic.errors import UsageError
from agentmagic.runtime.engine import Engine, engine
from agentmagic.runtime.home import HOME, NO_JSPI
from agentmagic.testing import PATIENCE

ROOT = Path(__file__).parent.parent.parent
place = contextvars.ContextVar("place", default="nowhere")


@pytest.fixture
def main():
    """The queue of the main thread, which is served by `serving`."""
    return engine().main


def serving(coroutine, on_interrupt=lambda: None):
    """What a coroutine on the engine returns, while this thread, the main one, does its jobs."""
    future = engine().submit(coroutine)
    engine().main.serve(future, on_interrupt)
    return future.result()


# -- the engine ----------------------------------------------------------------------------------


def test_a_coroutine_and_a_function_in_the_pool_run_in_a_copy_of_the_caller_s_context():
    async def where():
        before = place.get()
        place.set("this run")
        return before, await engine().in_pool(place.get)

    token = place.set("this cell")
    try:
        assert engine().call(where()) == ("this cell", "this run")
        assert place.get() == "this cell"
    finally:
        place.reset(token)


def test_the_pool_has_room_for_sixteen_at_least():
    together = threading.Barrier(16, timeout=PATIENCE)

    async def all_at_once():
        await asyncio.gather(*(engine().in_pool(together.wait) for _ in range(16)))

    engine().call(all_at_once())


@pytest.mark.parametrize("error", [StopIteration("the end"), SystemExit(3), KeyboardInterrupt(), ValueError("bad")])
@pytest.mark.parametrize("begins", [True, False])
def test_whatever_a_function_in_the_pool_raises_comes_back(error, begins):
    def fail():
        raise error

    async def call():
        with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)):
            await (engine().in_pool(fail) if begins else engine().in_pool(int, fail))

    engine().call(call())


def test_waiting_on_the_engine_s_own_thread_is_refused_and_runs_nothing():
    ran = []

    async def work():
        ran.append(True)

    async def call():
        with pytest.raises(RuntimeError, match="await it instead"):
            engine().wait(Future(), lambda: None)
        with pytest.raises(RuntimeError, match="await it instead"):
            engine().call(work())
        await asyncio.sleep(0)
        return ran

    assert engine().submit(call()).result(PATIENCE) == []


def test_the_thread_of_the_engine_does_not_hold_the_context_of_who_began_it():
    class Span:
        """What a context variable holds."""

    span = Span()
    begun_by, is_held = contextvars.ContextVar("begun_by"), weakref.ref(span)
    context = contextvars.copy_context()
    context.run(begun_by.set, span)
    own = context.run(Engine)
    del span, context
    gc.collect()
    assert is_held() is None
    own.close()


def test_what_may_not_wait_is_closed_unrun_in_a_browser_that_cannot_wait(monkeypatch):
    def refuse(_loop):
        raise UsageError(NO_JSPI)

    async def work():
        raise AssertionError

    monkeypatch.setattr(HOME, "refuse_to_block", refuse)
    coroutine = work()
    with pytest.raises(UsageError, match="Chrome or Edge"):
        engine().call(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_closing_calls_what_was_left_open_and_ends_the_thread_even_if_that_never_ends():
    own, stuck = Engine(), Engine()
    closed = []

    async def close():
        closed.append(True)

    async def forgotten():
        closed.append("forgotten")

    own.at_close(close)
    own.at_close(forgotten)
    own.forget(forgotten)
    stuck.at_close(asyncio.Event().wait)
    own.close()
    stuck.close(timeout=0.05)
    assert closed == [True]
    for one in (own, stuck):
        one.thread.join(PATIENCE)
        assert not one.thread.is_alive()
        one.close()


@pytest.mark.posix
def test_a_forked_child_gets_an_engine_of_its_own():
    code = """
import os, warnings
warnings.simplefilter("ignore")
from agentmagic.runtime.engine import UserLoop, engine
async def pid(): return os.getpid()
async def user_pid(): return await users.run(pid, "pid", print)
users = UserLoop()
parent = engine().call(pid())
assert engine().call(user_pid()) == parent
child = os.fork()
if child == 0:
    os._exit(0 if engine().call(pid()) == engine().call(user_pid()) == os.getpid() != parent else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "0\n"


def test_the_engine_s_loop_is_not_touched_by_a_patch_of_its_class(monkeypatch):
    monkeypatch.setattr(asyncio.SelectorEventLoop, "run_forever", None)
    own = Engine()
    assert own.call(asyncio.sleep(0, 42)) == 42
    own.close()


def nested(how):
    """What a coroutine of the user gets that runs another one on its own loop."""

    async def inner():
        return 7

    async def work():
        return how(inner())

    return engine().submit(engine().await_user(work, "work")).result(PATIENCE)


def on_a_new_loop(coroutine):
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


NESTED_RUNS = """
import asyncio, nest_asyncio2
patched = asyncio.new_event_loop()
asyncio.set_event_loop(patched)
{first}
{second}
from agentmagic.runtime.home import NESTED
from tests.runtime.test_engine import nested, on_a_new_loop
def applied_here(coroutine):
    nest_asyncio2.apply()
    return asyncio.run(coroutine)
def refused(how):
    try:
        return nested(how)
    except RuntimeError as error:
        return str(error) == NESTED
running = asyncio.get_running_loop
print(refused(asyncio.run), refused(lambda one: running().run_until_complete(one)), refused(applied_here))
print(refused(lambda one: asyncio.get_event_loop().run_until_complete(asyncio.ensure_future(one))))
print(refused(lambda one: running().run_forever()), nested(on_a_new_loop))
patched.close()
"""


@pytest.mark.parametrize("imported_first", [True, False])
def test_after_nest_asyncio_a_nested_run_is_refused_at_once_with_advice_and_the_engine_goes_on(imported_first):
    lines = ("import agentmagic.runtime.engine", "nest_asyncio2.apply(patched)")
    first, second = lines if imported_first else reversed(lines)
    code = NESTED_RUNS.format(first=first, second=second)
    command = [sys.executable, "-W", "ignore", "-c", code]  # Python warns of a coroutine that is never awaited
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.split(), done.stderr) == (["True"] * 5 + ["7"], "")


# -- the main thread -----------------------------------------------------------------------------


def test_the_main_thread_does_its_jobs_one_at_a_time_and_in_order_and_tells_when_their_turn_has_come(main):
    done = []

    def job(number):
        done.append(("job", number, threading.current_thread()))
        return number

    def begins(number):
        done.append(("begins", number, threading.current_thread()))

    async def three():
        return await asyncio.gather(*(main.run(partial(job, number), partial(begins, number)) for number in range(3)))

    before = signal.getsignal(signal.SIGINT)
    assert serving(three()) == [0, 1, 2]
    assert done == [(what, number, threading.main_thread()) for number in range(3) for what in ("begins", "job")]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_job_may_serve_the_jobs_of_another_wait_and_its_exception_is_raised_to_who_posted_it(main):
    async def inner():
        return await main.run(lambda: 1 / 0)

    async def outer():
        return await main.run(lambda: serving(inner()))

    with pytest.raises(ZeroDivisionError):
        serving(outer())


async def give_up(job):
    """Cancel a job and wait for its end."""
    job.cancel()
    await asyncio.wait([job])


async def give_up_running(main, function):
    """Run a function in the main thread, and give it up once it has begun."""
    started, loop = asyncio.Event(), asyncio.get_running_loop()

    def work():
        loop.call_soon_threadsafe(started.set)
        function()

    job = asyncio.ensure_future(main.run(work))
    await started.wait()
    await give_up(job)


def test_a_job_given_up_before_it_runs_is_never_done(main):
    done = []
    began, given_up = threading.Event(), threading.Event()

    async def while_it_waits():
        job = asyncio.ensure_future(main.run(lambda: done.append("waited")))
        await asyncio.sleep(0)
        await give_up(job)

    async def as_it_begins():
        job = asyncio.ensure_future(main.run(lambda: done.append("began"), lambda: (began.set(), given_up.wait())))
        await asyncio.to_thread(began.wait)
        await give_up(job)
        given_up.set()
        await main.run(int)  # comes only after the job before it has ended

    engine().submit(while_it_waits()).result(PATIENCE)  # nobody serves meanwhile
    main.drain()
    with pytest.raises(CancelledError):  # by the user: nothing is left that would take the next interrupt for its own
        serving(main.run(lambda: signal.raise_signal(signal.SIGINT)))
    serving(as_it_begins())
    assert done == []


@pytest.mark.parametrize("lost", [0, 1])
def test_a_job_given_up_while_it_runs_is_interrupted(main, monkeypatch, lost):
    """A signal is lost if it comes just before the call that blocks; it is sent again."""
    send, sent, slept = signal.pthread_kill, [], []

    def send_or_lose(thread, number):
        sent.append(number)
        if len(sent) > lost:
            send(thread, number)

    monkeypatch.setattr(signal, "pthread_kill", send_or_lose)

    serving(give_up_running(main, lambda: slept.append(time.sleep(60))))
    assert slept == []


@pytest.mark.posix
def test_a_job_that_ends_as_it_is_interrupted_is_not_over_before_the_signal_came(main, monkeypatch):
    """A signal that comes later would stop what the main thread does next, such as the loop of a kernel."""
    send, ending, over, late = signal.pthread_kill, threading.Event(), threading.Event(), []

    def send_late(thread, number):
        ending.set()
        late.append(over.wait(0.2))
        send(thread, number)

    monkeypatch.setattr(signal, "pthread_kill", send_late)

    turn = engine().submit(give_up_running(main, ending.wait))
    while not main._jobs:
        pass
    main.drain()
    over.set()
    turn.result(PATIENCE)
    assert late == [False]


@pytest.mark.posix
def test_the_first_interrupt_tells_who_serves_and_the_second_stops_waiting(main):
    told = []
    never = Future()

    def interrupt_twice():
        for count in range(2):
            while not main.serving or len(told) < count:
                pass
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt_twice, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        main.serve(never, lambda: told.append(True))
    thread.join()
    assert told == [True]
    assert not main.serving


def test_an_interrupt_that_comes_before_the_waiting_is_heard_when_it_begins(main):
    told, done = [], Future()

    def tell():
        told.append(True)
        done.set_result(None)

    with main.mark_busy():
        signal.raise_signal(signal.SIGINT)
        main.serve(done, tell)
    assert told == [True]


@pytest.mark.parametrize(("interrupts", "reached"), [(1, [1]), (2, [])])
def test_an_interrupt_of_a_waiting_that_never_begins_is_raised_at_the_end_or_when_it_comes_again(
    main, interrupts, reached
):
    found = []

    def begin():
        with main.mark_busy():
            for _ in range(interrupts):
                signal.raise_signal(signal.SIGINT)
            found.append(1)

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert found == reached
    assert not main.serving
    with main.mark_busy():
        pass  # nothing is left of the interrupt


def test_an_interrupt_in_the_moment_in_which_a_lock_is_taken_leaves_it_free(main, monkeypatch):
    class Interrupted(threading.Condition):
        armed = False

        def __enter__(self):
            taken = super().__enter__()
            if Interrupted.armed and threading.current_thread() is threading.main_thread():
                Interrupted.armed = False
                signal.raise_signal(signal.SIGINT)
            return taken

    monkeypatch.setattr(main, "_condition", Interrupted())

    async def never():
        Interrupted.armed = True
        await asyncio.Event().wait()

    def job():
        future = engine().submit(never())
        main.serve(future, future.cancel)

    with pytest.raises(CancelledError):
        serving(main.run(job))
    assert not Interrupted.armed
    with ThreadPoolExecutor() as pool:
        assert pool.submit(main._condition.acquire, timeout=PATIENCE).result()
