import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentmagic import Agent, Session, ToolContext, tool
from agentmagic.errors import AuthenticationMissing, RateLimited, SessionBusy, UsageError
from agentmagic.events import Approve, Deny, Reply, Stop
from agentmagic.host import ScriptHost
from agentmagic.messages import Media, Message, Text, Usage, user
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.testing import PATIENCE, Faulty, Recorder, Stalled, invalid_history
from agentmagic.undo.stack import NOT_STORED
from tests.turns import AT_ONCE, SOON, StallsAfter, calls, hosted, kinds, notices, play, results, scripted, texts

ROOT = Path(__file__).parent.parent


async def never() -> str:
    """Wait for what never comes."""
    await asyncio.Event().wait()
    return "never"


def look() -> str:
    return "nothing here"


@tool(ask=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


ERASE = calls(("erase", {"path": "a.txt"}))


def recorded(session, **options):
    """A run that has begun, and the recorder of its events."""
    recorder = Recorder()
    begun = session.start("a prompt", **options)
    begun.listen(recorder)
    return begun, recorder


# -- a conversation ------------------------------------------------------------------------------


def test_a_session_remembers_its_turns_and_sums_them_up():
    model = ScriptedModel([calls("look", "nothing"), "Hello.", "Hello again."])
    session = Session(Agent(model, tools=[look]))
    assert [definition.name for definition in session.tools] == ["look"]
    first = session.ask("Hi")
    assert repr(session) == "<Session scripted:script: 1 turn, 4 messages>"
    second = session.ask("Hi again")
    assert second.history_delta == session.messages[4:]
    assert [message.text for message in session.messages if message.role != "tool"] == [
        *("Hi", "", "Hello.", "Hi again", "Hello again.")
    ]
    assert model.requests[2].messages == session.messages[:-1]
    assert [event.type for event in session.events if event.type.startswith("turn")] == [
        "turn_started",
        "turn_finished",
    ] * 2
    assert session.usage == first.usage + second.usage
    assert (session.usage.requests, session.tool_calls, session.tool_failures) == (3, 2, 1)


def test_undo_and_clear():
    session = scripted("One.", "Two.")
    session.ask("first")
    session.ask("second")
    assert session.undo() == user("second")
    assert [message.text for message in session.messages] == ["first", "One."]
    session.clear()
    assert session.messages == ()
    assert session.usage == Usage()
    assert session.undo() is None
    assert [message.text for message in session.messages] == ["first", "One."]
    assert session.undo() == user("first")
    assert session.undo() is None


def test_an_undo_in_a_script_says_what_stays_and_a_step_back_says_nothing(caplog, monkeypatch):
    session = scripted(calls("look"), "One.", "Two.", tools=[look])
    assert session.step_back() is None
    session.ask("first")
    outcome = session.step_back()
    assert (outcome.prompt.text, outcome.redone, outcome.tools) == ("first", False, ("look",))
    assert session.step_back(redo=True).redone
    session.ask("second")
    session.undo()  # of a turn without a call
    assert caplog.records == []
    session = session.fork()
    session.undo()
    assert session.undone.problem == NOT_STORED
    assert [record.message for record in caplog.records] == [session.undone.problem]
    told = []
    with hosted(ScriptHost()) as host:
        host.tell_undone = lambda one, *, redo: told.append((one, redo))
        session.redo()
        session.undo()
        session.step_back(redo=True)
    assert told == [(session, True), (session, False)]


def test_another_recipe_can_stand_in_for_one_turn_with_its_own_servers():
    session = scripted("Never asked.")
    other = Agent(ScriptedModel(["From the other."]), instructions="Be another.")
    assert session.ask("a prompt", agent=other).final_text == "From the other."
    assert session.agent is not other
    other = Agent(ScriptedModel(["y"]), mcp={"files": {"command": "no-such-program"}})
    assert len(session.toolsets(other)) == 1
    assert session.toolsets(other) == session.toolsets(other)
    assert session.toolsets() == ()


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("  \n ", r"The prompt is empty. Write what the agent should do"),
        (None, r"\w"),
        (Message("assistant", (Text("I say"),)), r"\w"),
        (["words", 7], r"\w"),
        ("x" * 10_000_000, r"The prompt has 10,000,000 characters.*give the agent a tool that reads it"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_prompt_that_cannot_be_is_refused_in_a_sentence(prompt, words):
    session = scripted("Hello.")
    with pytest.raises(UsageError, match=words):
        session.start(prompt)
    assert session.messages == ()
    assert session.ask([Media("image/png", b"\x89PNG")]).final_text == "Hello."


def test_no_model_and_no_key_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AuthenticationMissing, match=r'Set OPENAI_API_KEY or GEMINI_API_KEY.*"local:"'):
        Session().ask("a prompt")


def test_the_environment_s_model_overrides_the_code_and_says_so(monkeypatch, tmp_path):
    script = tmp_path / "other.json"
    script.write_text(json.dumps(["From the script."] * 2))
    monkeypatch.setenv("AGENTMAGIC_MODEL", f"scripted:{script}")
    outcome = play("From the code.")
    assert outcome.final_text == "From the script."
    said = ["AGENTMAGIC_MODEL is set: scripted:other is asked in each turn."]
    assert notices(outcome) == said
    session = Session("openai:gpt-5.4")  # named and not asked: said once a session
    assert [notices(session.ask(prompt)) for prompt in ("one", "two")] == [said, []]
    for model in (None, f"scripted:{script}"):  # no model that would be overridden
        assert notices(Session(model).ask("a prompt")) == []


# -- runs ----------------------------------------------------------------------------------------


def test_a_run_can_be_awaited_and_iterated_over_and_listened_to_however_late():
    async def main():
        async with scripted(calls("look"), "Done.", tools=[look]) as session:
            begun = session.start("a prompt")
            events = [event async for event in begun]
            outcome = await begun
            assert events[-1].type == "turn_finished"
            assert tuple(events[:-1]) == outcome.events
            assert events[-1].result == outcome
            assert [event async for event in begun] == list(begun.events)
            recorder = Recorder()
            begun.listen(recorder)
            recorder.wait_for("turn_finished")
            assert tuple(recorder.events) == begun.events

    asyncio.run(main())


def test_several_may_iterate_at_once_from_several_loops():
    begun, recorder = recorded(Session(Agent(Stalled("Half"))))

    async def collect():
        return [event async for event in begun]

    async def two():
        return await asyncio.gather(collect(), collect())

    with ThreadPoolExecutor(2) as pool:
        loops = [pool.submit(asyncio.run, two()) for _ in range(2)]
        recorder.wait_for("part_delta")
        begun.cancel()
        assert [loop.result(PATIENCE) for loop in loops] == [[list(begun.events)] * 2] * 2


@pytest.mark.filterwarnings("ignore")
def test_a_listener_that_raises_does_not_break_the_run_and_hears_what_comes_next(caplog):
    heard = []

    def fail(event):
        heard.append(event)
        message = "a bug in the listener"
        raise RuntimeError(message)

    begun, recorder = recorded(Session(Agent(Stalled("Half"))))
    begun.listen(fail)
    recorder.wait_for("part_delta")
    begun.cancel()
    assert begun.wait().stop_reason == "cancelled"
    engine().call(asyncio.sleep(0))
    assert tuple(heard) == begun.events
    assert caplog.text.count("a listener failed; it goes on with the next event") == 1


@pytest.mark.filterwarnings("ignore")
def test_an_approval_that_a_listener_could_not_show_is_denied_with_the_reason():
    def show(event):
        if event.type == "approval_asked":
            message = "no screen"
            raise RuntimeError(message)

    session = scripted(ERASE, "Well.", tools=[erase], timeout=None)
    session.listen(show)
    (denied,) = results(session.ask("Act.", attended=True))
    words = "erase was not run: the user denied it and said: it could not be shown: RuntimeError: no screen."
    assert (denied.status, denied.text) == ("denied", words)


def test_while_a_turn_runs_another_is_refused_and_so_is_its_result():
    session = Session(Agent(StallsAfter("Hello.")))
    session.ask("a prompt")
    begun = session.start("a prompt")
    assert (session.running, begun.over) == (begun, False)
    changes = (session.undo, session.clear, lambda: session.edit(0, "x"), lambda: session.restore("x"))
    for refused in (lambda: session.start("another"), *changes):
        with pytest.raises(SessionBusy):
            refused()
    with pytest.raises(UsageError, match="The turn is not over"):
        begun.result()
    begun.cancel()
    begun.wait()
    assert (session.running, begun.over) == (None, True)


def test_of_two_turns_that_start_at_the_same_time_one_is_refused():
    both = threading.Barrier(2, timeout=0.2)

    class Slow(Session):
        def model(self, agent=None):
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait()
            return super().model(agent)

    session = Slow(Agent(Stalled()))
    with ThreadPoolExecutor(2) as pool:
        errors = [one.exception() for one in [pool.submit(session.start, "a prompt") for _ in range(2)]]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "SessionBusy"]
    session.close()


def test_leaving_the_session_cancels_what_runs():
    async def main():
        async with Session(Agent(Stalled())) as session:
            begun = session.start("a prompt")
        assert begun.done
        assert (await begun).stop_reason == "cancelled"

    asyncio.run(main())


def test_a_session_closes_the_models_it_made_also_beside_one_that_cannot_be_closed(tmp_path, monkeypatch):
    closed = []

    class Closing(Stalled):
        async def aclose(self):
            closed.append(self)
            if len(closed) == 1:
                raise OSError("it does not close")

    models = {"scripted:one": Closing(), "scripted:two": Closing()}
    monkeypatch.setattr("agentmagic.agent.resolve", models.__getitem__)
    session = Session(path=tmp_path / "a.jsonl")
    for name in models:
        session.model(Agent(name))
    with pytest.raises(OSError, match="it does not close"):
        session.close()
    assert set(closed) == set(models.values())


# -- cancelling ----------------------------------------------------------------------------------


def cancelled_at_once(begun, cancel):
    began = time.monotonic()
    cancel()
    outcome = begun.wait()
    assert time.monotonic() - began < AT_ONCE
    assert outcome.stop_reason == "cancelled"
    assert invalid_history(outcome.history_delta) is None
    return outcome


@pytest.mark.parametrize("way", ["cancel", "stop", "abort"])
def test_a_stream_that_stands_still_is_cancelled_at_once(way):
    model, abort = Stalled("Half an ans"), threading.Event()
    begun = Session(Agent(model)).start("a prompt", abort=abort)
    model.stalled.wait(PATIENCE)
    ways = {"cancel": begun.cancel, "stop": lambda: begun.send(Stop()), "abort": abort.set}
    outcome = cancelled_at_once(begun, ways[way])
    assert outcome.final_text == "Half an ans"
    assert outcome.history_delta[-1].interrupted
    assert model.closed.is_set()


def test_a_tool_is_cancelled_at_once_and_the_next_turn_works():
    session = scripted(calls("look", "never"), "Here.", tools=[look, never])
    begun, recorder = recorded(session)
    recorder.wait_for("tool_finished")
    outcome = cancelled_at_once(begun, begun.cancel)
    assert [part.status for part in results(outcome)] == ["ok", "interrupted"]
    assert session.ask("the next prompt").final_text == "Here."
    session.close()
    session.close()  # twice is once
    assert invalid_history(session.messages) is None


def test_a_thread_is_left_behind_and_said_to_be_possibly_still_running():
    let_go = threading.Event()

    def stubborn(ctx: ToolContext) -> bool:
        let_go.wait(PATIENCE)
        ctx.progress(1, message="still here")
        return ctx.cancelled

    session = scripted(calls("stubborn"), "Next.", tools=[stubborn])
    begun, recorder = recorded(session)
    recorder.wait_for("tool_started")
    outcome = cancelled_at_once(begun, begun.cancel)
    assert texts(outcome) == [
        "stubborn was interrupted. It runs in a thread, which cannot be stopped, and may still be running."
    ]
    assert results(outcome)[0].status == "interrupted"
    let_go.set()
    assert session.ask("the next prompt").final_text == "Next."
    assert "tool_progress" not in kinds(session.events)


def test_a_retry_wait_and_an_approval_wait_are_cancelled_at_once():
    slow = Session(Agent(Faulty(RateLimited("slow down", retry_after=100.0))))
    for session, waits in ((slow, "step_retried"), (scripted(ERASE, tools=[erase]), "approval_asked")):
        begun, recorder = recorded(session, attended=True)
        recorder.wait_for(waits)
        outcome = cancelled_at_once(begun, begun.cancel)
        assert [part.status for part in results(outcome)] == ["interrupted"] * (session is not slow)


def test_a_run_that_is_cancelled_before_it_began_asks_no_model():
    model = ScriptedModel(["Hello."])
    abort = threading.Event()
    abort.set()
    outcome = Session(Agent(model)).start("a prompt", abort=abort).wait()
    assert (outcome.stop_reason, model.requests) == ("cancelled", [])


def test_a_turn_of_a_model_and_tools_that_never_wait_can_be_cancelled():
    begun = []
    has_begun = threading.Event()

    async def cancel() -> str:
        has_begun.wait(PATIENCE)
        begun[0].cancel()
        return "cancelled"

    begun.append(scripted(calls("cancel"), "Never said.", tools=[cancel]).start("a prompt"))
    has_begun.set()
    outcome = begun[0].wait()
    assert outcome.stop_reason == "cancelled"
    assert texts(outcome) == ["cancelled"]


def test_an_event_of_asyncio_aborts_the_run_and_so_does_the_task_that_awaits_it():
    async def main():
        abort = asyncio.Event()
        session = Session(Agent(Stalled("Half")))
        begun = session.start("a prompt", abort=abort)
        async for event in begun:
            if event.type == "part_delta":
                abort.set()
        assert (await begun).stop_reason == "cancelled"
        begun = session.start("a prompt")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await begun
        assert session.running is None
        return begun

    assert asyncio.run(main()).wait().stop_reason == "cancelled"


INTERRUPTED = """
import asyncio, signal, threading
from agentmagic import Agent, Session
from agentmagic.runtime.engine import engine
from agentmagic.testing import Recorder, Stalled
from agentmagic.providers.scripted import ScriptedModel

async def never():
    await asyncio.Event().wait()

def interrupt(recorder, wait):
    recorder.wait_for(wait)
    while not engine().main.serving:
        pass
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

calling = ScriptedModel([{"calls": [{"name": "never", "arguments": {}}]}])
for wait, model in (("part_delta", Stalled("Half")), ("tool_started", calling)):
    session, recorder = Session(Agent(model, tools=[never])), Recorder()
    run = session.start("a prompt")
    run.listen(recorder)
    threading.Thread(target=interrupt, args=(recorder, wait)).start()
    try:
        run.wait()
    except KeyboardInterrupt:
        print("interrupted", run.result().stop_reason, [message.role for message in session.messages])
"""


@pytest.mark.posix
def test_ctrl_c_in_a_script_cancels_the_run_and_keeps_the_history():
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "interrupted cancelled ['user', 'assistant']",
        "interrupted cancelled ['user', 'assistant', 'tool']",
    ]


class Busy(ScriptHost):
    """A host that counts the signs of activity."""

    def __init__(self):
        self.signs, self.more = 0, threading.Semaphore(0)

    def show_activity(self):
        self.signs += 1
        self.more.release()


def test_a_turn_or_a_map_shows_activity_while_it_runs_but_not_while_it_waits_for_the_user(monkeypatch):
    monkeypatch.setattr("agentmagic.runtime.engine.PULSE", 0.001)

    def rest() -> bool:
        return all(host.more.acquire(timeout=PATIENCE) for _ in range(3))

    def look(asked):
        if begun.waits:
            # On the same loop, 20 signs would be due by then.
            engine().loop.call_later(0.02, look_again, asked, host.signs)
        else:
            engine().loop.call_soon(look, asked)

    def look_again(asked, before):
        waited.append(host.signs - before)
        begun.send(Approve(asked))

    with hosted(Busy()) as host:
        waited, session = [], scripted(calls("rest"), ERASE, "Done.", tools=[rest, erase])
        begun = session.start("a prompt", attended=True)
        begun.listen(lambda event: look(event.id) if event.type == "approval_asked" else None)
        assert texts(begun.wait()) == ["true", "a.txt is gone"]
        assert waited == [0]
        rows = scripted(calls("rest"), "Done.", tools=[rest]).map(["one"], "{row}")
        assert rows.run(0).final_text == "Done."
        assert engine()._pulse is None  # no turn runs, so there is nothing to show


# -- permission and questions --------------------------------------------------------------------


def answered(session, intent):
    """The result of a run whose questions are answered with an intent that is made from the question's id."""
    run = session.start("a prompt", attended=True)
    run.listen(lambda event: run.send(intent(event.id)) if event.type in ("approval_asked", "question_asked") else None)
    return run.wait()


def test_a_tool_that_asks_runs_if_a_person_approves_and_always_holds_for_the_session():
    (denied,) = results(outcome := play(ERASE, "Sorry.", tools=[erase]))
    assert denied.status == "denied"
    assert denied.text.startswith("erase was not run: it needs a person's approval, and no one is there to give it.")
    assert "AGENTMAGIC_PERMISSION=allow" in denied.text
    assert "tool_started" not in kinds(outcome.events)
    session = scripted(ERASE, ERASE, "Done.", ERASE, "Done again.", tools=[erase])
    outcome = answered(session, lambda asked: Approve(asked, always=True))
    assert texts(outcome) == ["a.txt is gone"] * 2
    assert kinds(outcome.events)[3:7] == ["approval_asked", "approval_given", "tool_started", "tool_finished"]
    assert kinds(outcome.events).count("approval_asked") == 1
    assert texts(session.ask("once more")) == ["a.txt is gone"]


@pytest.mark.parametrize(
    ("intent", "words"),
    [
        (lambda _: Approve("no such id"), "the user denied it and said: not that file."),
        (lambda asked: Reply(asked, "yes"), "it needs a person's approval"),
    ],
)
def test_a_denied_call_tells_the_model_why_and_an_answer_to_another_question_approves_nothing(intent, words):
    begun, recorder = recorded(scripted(ERASE, "Sorry.", tools=[erase]), attended=True)
    asked = recorder.wait_for("approval_asked")
    begun.send(intent(asked.id))
    begun.send(Deny(asked.id, "not that file"))
    outcome = begun.wait()
    (denied,) = results(outcome)
    assert (denied.status, outcome.stop_reason) == ("denied", "answer")
    assert denied.text.startswith(f"erase was not run: {words}")


def test_time_spent_waiting_for_a_person_does_not_count():
    session = scripted(ERASE, "Done.", tools=[erase], timeout=SOON)
    begun, recorder = recorded(session, attended=True)
    asked = recorder.wait_for("approval_asked")
    time.sleep(1.1 * SOON)  # time itself is what is tested
    begun.send(Approve(asked.id))
    assert begun.wait().stop_reason == "answer"


async def asking(ctx: ToolContext) -> str:
    return await ctx.ask("Which one?")


def asking_in_a_thread(ctx: ToolContext) -> str:
    return ctx.ask("Which one?")  # type: ignore[return-value]  (in a thread it is the answer itself)


ASKING = [(asking, {}), (asking_in_a_thread, {}), (asking, {"loop": "caller"})]


@pytest.mark.parametrize(("function", "options"), ASKING)
def test_a_tool_can_ask_the_person_and_is_told_if_nobody_is_there(function, options):
    tools = [tool(name="asking", timeout=SOON, **options)(function)]
    outcome = answered(scripted(calls("asking"), "Done.", tools=tools), lambda asked: Reply(asked, "the first"))
    assert texts(outcome) == ["the first"]
    assert kinds(outcome.events)[3:7] == ["tool_started", "question_asked", "question_answered", "tool_finished"]
    assert texts(play(calls("asking"), "Sorry.", tools=tools)) == ["No one is there to answer the question."]


def test_a_thread_that_waits_for_an_answer_is_let_go_when_the_turn_ends():
    ended = threading.Event()

    def wait_for_answer(ctx: ToolContext) -> None:
        try:
            ctx.ask("Which one?")  # type: ignore[unused-coroutine]  (in a thread it waits)
        finally:
            ended.set()

    begun, recorder = recorded(scripted(calls("wait_for_answer"), tools=[wait_for_answer]), attended=True)
    recorder.wait_for("question_asked")
    begun.cancel()
    begun.wait()
    assert ended.wait(PATIENCE)


# -- from everywhere -----------------------------------------------------------------------------


def test_any_tool_may_run_another_agent_and_waiting_for_it_on_the_engine_is_refused():
    inner = scripted("From below.", "From below.")

    async def delegate() -> str:
        return (await inner.start("what?")).final_text

    def ask() -> str:
        return inner.ask("what?").final_text

    async def block() -> str:
        return inner.ask("what?").final_text

    said = texts(play(*map(calls, ("block", "delegate", "ask")), "Done.", tools=[delegate, ask, block]))
    assert "await it instead" in said[0]
    assert said[1:] == ["From below."] * 2
    assert len(inner.turns) == 2
