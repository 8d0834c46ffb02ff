"""Ends of outside agents' turns: last words after the response, words that come later, empty ends, slow starts."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import acp
import pytest

from agentmagic import Session
from agentmagic.acp import bounds, process
from agentmagic.acp.late_words import LastWord, LateWords
from agentmagic.acp.model import OutsideModel
from agentmagic.acp.updates import CallNews, CostNews, PlanNews
from agentmagic.errors import AuthenticationFailed, BadRequest, EmptyAnswer, ProviderError, TurnTimeout, Unavailable
from agentmagic.events import Notice, PartDelta, PartFinished, PartStarted, ToolFinished
from agentmagic.messages import Text
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from tests.acp.sessions import PLAIN, asked, names, of_kind, session_of, started

LONG = 60.0
"""Seconds that no test waits."""
TASK = {"content": "look", "priority": "low", "status": "completed"}


def plain(*words: str, **settings: Any) -> Session:
    return session_of(*words, program=PLAIN, **settings)


@pytest.fixture
def session() -> Iterator[Session]:
    session = plain()
    yield session
    session.close()


def ask(session: Session, *steps: Any, **options: Any) -> Run:
    return asked(session, json.dumps(steps), **options)


def text_of(run: Run) -> str:
    return run.settled.result().result.final_text


def error_of(run: Run) -> Any:
    return run.settled.result().error


def notices_of(run: Run) -> list[str]:
    return [event.text for event in of_kind(run, Notice)]


def model_of(session: Session) -> OutsideModel:
    return cast("OutsideModel", session.model())


def wait_until(condition: Any) -> None:
    """Wait until a condition of the engine's objects holds."""

    async def wait() -> None:
        async with asyncio.timeout(LONG):
            while not condition():  # noqa: ASYNC110  (no event tells of it)
                await asyncio.sleep(0)

    engine().submit(wait()).result()


def call(number: str = "c1", **fields: Any) -> list[Any]:
    fields = {"title": "Read a.txt", "kind": "read", "status": "pending", **fields}
    return ["update", {"sessionUpdate": "tool_call", "toolCallId": number, **fields}]


def done(number: str = "c1", **fields: Any) -> list[Any]:
    return ["update", {"sessionUpdate": "tool_call_update", "toolCallId": number, "status": "completed", **fields}]


END = ["end", "end_turn"]


# -- the last words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        ([["say", "The total is 4"], END, ["say", "2 euros."]], "The total is 42 euros."),
        ([END, ["say", "Hello."]], "Hello."),
        ([["think", "hm"], END, ["say", "Hello."]], "Hello."),
        ([call(), done(), END, ["say", "Read."]], "Read."),
        ([["say", "Reading."], call(), END, done(), ["say", "Read."]], "Read."),
        ([["say", "one "], END, ["say", "two "], ["sleep", 0.01], ["say", "three"]], "one two three"),
    ],
)
def test_words_just_after_the_response_belong_to_the_answer(session: Session, steps: list[Any], answer: str) -> None:
    run = ask(session, *steps)
    assert text_of(run) == answer
    assert [event.result.status for event in of_kind(run, ToolFinished)] == ["ok"] * ("c1" in json.dumps(steps))
    again = ask(session, ["say", "next"], END)
    assert (text_of(again), notices_of(again)) == ("next", [])


@pytest.mark.slow
def test_a_turn_whose_last_text_is_long_past_ends_with_the_response(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SILENCE", 0.05)
    monkeypatch.setattr(bounds, "LAST_WORDS", LONG)
    began = time.monotonic()
    assert text_of(ask(session, ["say", "done"], ["sleep", 0.1], END)) == "done"
    assert time.monotonic() - began < LONG


@pytest.mark.slow
def test_an_agent_that_goes_on_talking_does_not_keep_its_turn_open(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bounds, "SILENCE", LONG)
    monkeypatch.setattr(bounds, "LAST_WORDS", 0.2)
    talk = tmp_path / "talk"
    run = ask(session, ["say", "one ", "m1"], END, ["wait", str(talk)], ["say", "two", "m1"])
    assert text_of(run) == "one "
    talk.touch()
    wait_until(lambda: model_of(session).late_words._entries)
    (told,) = notices_of(ask(session, ["say", "next"], END))
    assert told.endswith('sent more after its last turn had ended. It is no part of an answer: "two"')


def test_stop_does_not_wait_for_the_last_words(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SILENCE", LONG)
    monkeypatch.setattr(bounds, "LAST_WORDS", LONG)
    pid = text_of(_stopped_after_its_response(session))
    monkeypatch.undo()
    assert text_of(ask(session, ["pid"], END)) == pid  # the agent has ended its turn, so its process goes on


def _stopped_after_its_response(session: Session) -> Run:
    model = model_of(session)
    run = started(session, json.dumps([["pid"], END]))
    wait_until(lambda: model._prompt is not None and model._prompt.is_answered)
    began = time.monotonic()
    run.cancel()
    assert run.settled.result(5).result.stop_reason == "cancelled"
    assert time.monotonic() - began < 0.5
    return run


TALK = PartDelta(0, "word")
RESULT = CallNews("c1")


@pytest.mark.parametrize(
    ("heard", "answered", "end"),
    [
        ([], 10.0, 12.0),
        ([(9.9, PartStarted(0, "text")), (9.9, TALK)], 10.0, 10.2),
        ([(5.0, PartStarted(0, "text")), (5.0, TALK)], 10.0, 5.3),
        ([(5.0, PartStarted(0, "text")), (11.0, TALK)], 10.0, 11.3),
        ([(5.0, PartStarted(0, "text")), (11.9, TALK)], 10.0, 12.0),
        ([(5.0, PartStarted(0, "reasoning")), (5.0, TALK)], 10.0, 10.3),
        ([(5.0, PartStarted(0, "tool_call")), (6.0, RESULT)], 10.0, 10.3),
        ([(5.0, PartStarted(0, "text")), (6.0, RESULT), (7.0, TALK)], 10.0, 7.3),
        ([(5.0, PlanNews(()))], 10.0, 10.3),
        ([(5.0, CostNews(1.0)), (6.0, PartFinished(0, Text("")))], 10.0, 12.0),
    ],
)
def test_when_the_words_have_ended(heard: list[tuple[float, Any]], answered: float, end: float) -> None:
    word = LastWord()
    for now, news in heard:
        word.hear(news, now)
    assert word.turn_end(answered) == pytest.approx(end)


def test_what_is_kept_of_late_words_is_bounded() -> None:
    late = LateWords()
    chunk = acp.update_agent_message_text("x" * 10_000)
    for _ in range(100):
        late.add(chunk)
    for number in range(3 * bounds.LATE_IDS):
        late.add(acp.start_tool_call(f"call{number}", "Read"))
        late.note(acp.start_tool_call(f"new{number}", "Read"))
    late.begin_prompt()
    assert len(late._earlier) == bounds.LATE_IDS
    assert len(late._entries) == bounds.LATE_ENTRIES
    assert len(late.take("acp:x")) < 2 * bounds.LATE_TEXT
    assert late.take("acp:x") == ""


# -- words that come later -------------------------------------------------------------------------


def test_what_has_an_id_of_the_turn_before_is_told_once_and_is_no_part_of_the_answer(session: Session) -> None:
    ask(session, ["say", "one", "m1"], call(), END)
    late = [["say", "and 2 euros", "m1"], ["say", ".", "m1"], done()]
    run = ask(session, *late, ["say", "two", "m2"], *late, call("c2"), done("c2"), ["say", "three", "m3"], END)
    assert text_of(run) == "three"
    assert [event.result.call_id for event in of_kind(run, ToolFinished)] == ["c2"]
    (told,) = notices_of(run)
    assert told.endswith('the call "Read a.txt" (completed); "and 2 euros.and 2 euros."')
    assert notices_of(ask(session, ["say", "four"], END)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "answer", "told"),
    [
        ([["say", "one", "m1"]], [["say", "two", "m1"]], "two", 0),
        ([["say", "!"], ["say", "one", "m1"]], [["say", "!"], ["say", "two", "m1"]], "!two", 0),
        ([["say", "one", "m1"]], [["say", "two"], ["say", "late", "m1"]], "two", 1),
        ([["say", "one", "m1"]], [["say", "late", "m1"], ["say", "two"]], "two", 1),
        ([["say", "one", "m1"]], [["say", "two", "m2"], ["say", "late", "m1"]], "two", 1),
        ([["say", "one", "m1"]], [["think", "late", "m1"], call(), done()], "", 1),
    ],
)
def test_an_agent_that_repeats_its_ids_keeps_its_answers(
    session: Session, first: list[Any], second: list[Any], answer: str, told: int
) -> None:
    ask(session, *first, END)
    run = ask(session, *second, END)
    assert (text_of(run), len(notices_of(run))) == (answer, told)
    if not told:
        third = ask(session, ["say", "three ", "m1"], call(), done(), ["say", "four", "m1"], END)
        assert (text_of(third), notices_of(third)) == ("four", [])


@pytest.mark.slow
def test_what_comes_between_two_turns_is_told_in_the_second(session: Session, tmp_path: Path) -> None:
    talk = tmp_path / "talk"
    late = [
        ["say", "2 eu"],
        ["say", "ros, sk-ant-api03-0123456789abcdefghij"],
        ["think", "hm"],
        call("c9", title="Look\nup"),
        ["update", {"sessionUpdate": "usage_update", "used": 1, "size": 2}],
        ["update", {"sessionUpdate": "plan", "entries": [TASK, TASK]}],
    ]
    ask(session, ["say", "one"], END, ["wait", str(talk)], *late)
    talk.touch()
    wait_until(lambda: len(model_of(session).late_words._entries) == 4)
    run = ask(session, done("c9"), ["say", "next"], END)
    assert text_of(run) == "next"
    (told,) = notices_of(run)
    assert told.partition("answer: ")[2] == (
        '"2 euros, [redacted]"; the thought "hm"; the call "Look up" (completed); a plan of 2 steps'
    )


@pytest.mark.slow
def test_what_comes_after_stop_is_told_in_the_next_turn(session: Session) -> None:
    run = session.start(json.dumps([["say", "one"], ["stopped"], done(title="Write b.txt"), ["end", "cancelled"]]))
    wait_until(lambda: any(isinstance(event, PartDelta) for event in run.events))
    run.cancel()
    run.settled.result()
    (told,) = notices_of(ask(session, ["say", "two"], END))
    assert 'the call "Write b.txt" (completed)' in told


@pytest.mark.slow
def test_a_call_that_is_announced_with_an_old_id_is_a_new_call(session: Session) -> None:
    for _ in range(2):
        run = ask(session, call(), done(), ["say", "read"], END)
        assert len(of_kind(run, ToolFinished)) == 1
        assert notices_of(run) == []


@pytest.mark.slow
def test_what_an_agent_sends_before_its_first_prompt_is_not_late(session: Session) -> None:
    ask(session, ["say", "one"], END)
    session.undo()  # the next turn opens another session of the agent
    assert notices_of(ask(session, ["say", "two"], END)) == []


@pytest.mark.slow
def test_late_words_are_replayed(tmp_path: Path) -> None:
    prompts = [[["say", "one", "m1"], END], [["say", "late", "m1"], ["say", "two", "m2"], END], [["think", "hm"], END]]
    runs: list[list[Run]] = []
    for mode in ("record", "replay"):
        session = plain(cassette=tmp_path / "t.cassette.yaml", replay=mode)
        runs.append([ask(session, *steps) for steps in prompts])
        session.close()
    for live, again in zip(*runs, strict=True):
        assert names(again) == names(live)
        assert notices_of(again) == notices_of(live)
        assert type(error_of(again)) is type(error_of(live))
    assert [len(notices_of(run)) for run in runs[1]] == [0, 1, 0]


# -- ends without an answer ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [["think", "hm"]],
        [["say", " \n"]],
        [["update", {"sessionUpdate": "usage_update", "used": 1, "size": 2}]],
        [["update", {"sessionUpdate": "plan", "entries": []}]],
    ],
)
def test_an_end_without_text_call_or_plan_is_an_error(
    session: Session, monkeypatch: pytest.MonkeyPatch, steps: list[Any]
) -> None:
    monkeypatch.setattr(bounds, "LAST_WORDS", 0.1)
    run = ask(session, *steps, END)
    assert isinstance(error_of(run), EmptyAnswer)
    assert "ended its turn without an answer. Ask again. Try it in a terminal: " in str(error_of(run))
    assert text_of(ask(session, ["say", "next"], END)) == "next"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([call(), done()], "end_turn"),
        ([["update", {"sessionUpdate": "plan", "entries": [TASK]}]], "end_turn"),
        ([], "max_tokens"),
        ([], "max_turn_requests"),
    ],
)
def test_other_ends_without_text_are_answers(
    session: Session, monkeypatch: pytest.MonkeyPatch, steps: list[Any], reason: str
) -> None:
    monkeypatch.setattr(bounds, "LAST_WORDS", 0.1)
    run = ask(session, *steps, ["end", reason])
    assert (error_of(run), run.settled.result().result.stop_reason) == (None, "answer")


@pytest.mark.slow
def test_an_empty_end_after_a_further_prompt_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LAST_WORDS", 0.1)
    prompts = [json.dumps([END])]
    session = plain(before_finish=lambda _: prompts.pop() if prompts else None)
    run = ask(session, ["update", {"sessionUpdate": "plan", "entries": [TASK]}], ["say", "one"], END)
    assert isinstance(error_of(run), EmptyAnswer)
    session.close()


def test_a_refusal_is_an_error_and_what_was_said_is_kept(session: Session) -> None:
    run = ask(session, ["say", "I will not."], ["end", "refusal"])
    assert isinstance(error_of(run), BadRequest)
    assert str(error_of(run)).endswith("refused to go on with this prompt. Change it, or choose another model.")
    assert text_of(run) == "I will not."


def test_the_words_of_an_error_are_shown(session: Session) -> None:
    data = {"error": {"message": "The weekly quota is used up."}}
    run = ask(session, ["error", {"code": -32603, "message": "Internal error", "data": data}])
    assert type(error_of(run)) is ProviderError
    assert str(error_of(run)).endswith("did not answer the prompt: The weekly quota is used up.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "is_login"),
    [
        ("Failed to authenticate. API Error: 403 This would exceed your weekly usage limit.", False),
        ("Failed to authenticate. API Error: 401 The key is wrong.", True),
        ("The usage is 4. " * 100, True),
    ],
)
def test_a_used_up_quota_is_no_missing_login_if_the_agent_says_so_in_its_text(
    session: Session, words: str, is_login: bool
) -> None:
    error = error_of(ask(session, ["say", words], ["error", {"code": -32000, "message": "Authentication required"}]))
    assert isinstance(error, AuthenticationFailed) is is_login
    assert (words.rstrip(".") in str(error)) is not is_login


# -- the time of the start -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "words"), [("initialize", "did not start within"), ("session/new", "did not start and open a session")]
)
def test_a_timeout_that_a_user_sets_covers_the_start(request_: str, words: str, tmp_path: Path) -> None:
    results: list[tuple[Any, ...]] = []
    for mode in ("record", "replay"):
        session = plain(request_, timeout=1.0, cassette=tmp_path / "t.cassette.yaml", replay=mode)
        run = ask(session, ["say", "Hello"], END)
        error = error_of(run)
        assert isinstance(error, TurnTimeout)
        assert words in str(error)
        assert "within 1 s, the timeout of the turn. Give it more with timeout= (--timeout in a cell)." in str(error)
        results.append((str(error), run.settled.result().result.stop_reason))
        session.close()
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "limit", "words"),
    [("initialize", (process, "START_SECONDS"), "introduce itself"), ("session/new", (bounds, "OPENING"), "open a")],
)
def test_without_a_timeout_the_start_has_its_own_limit(
    monkeypatch: pytest.MonkeyPatch, request_: str, limit: tuple[Any, str], words: str
) -> None:
    monkeypatch.setattr("agentmagic.acp.connection.START_SECONDS", 0.5)
    monkeypatch.setattr(*limit, 0.5)
    session = plain(request_)
    error = error_of(ask(session, ["say", "Hello"], END))
    assert type(error) is Unavailable
    assert f"did not {words}" in str(error)
    session.close()


@pytest.mark.slow
def test_the_default_timeout_begins_with_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmagic.agent.TIMEOUT", 2.0)
    session = plain("--opening", "2.5", timeout=2.0)
    assert text_of(ask(session, ["say", "Hello"], END)) == "Hello"
    run = ask(session, ["say", "one"], ["stopped"])
    assert isinstance(error_of(run), TurnTimeout)
    assert "took longer than 2 s" in str(error_of(run))
    session.close()
