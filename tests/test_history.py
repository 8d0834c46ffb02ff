from agentmagic.events import PartDelta, PartStarted, RunResult, TurnFinished, TurnStarted
from agentmagic.fold import fold
from agentmagic.history import History
from agentmagic.messages import Usage, user
from tests.logs import WHOLE

USAGE = Usage(6, 0, 4, 0, 2, 0.5)
TURN = (*WHOLE, TurnFinished(RunResult("It is 3.", fold(WHOLE), tuple(WHOLE), 2, False, "answer", USAGE)))


def history(turns=1):
    made = History()
    for _ in range(turns):
        made.add(TURN)
    return made


def test_a_turn_s_messages_are_folded_from_its_events():
    assert history().messages == fold(WHOLE)


def test_deltas_are_left_out_of_the_log():
    kept = tuple(event for event in TURN if not isinstance(event, (PartDelta, PartStarted)))
    assert history().events[:-1] == kept[:-1]
    last = history().events[-1]
    assert isinstance(last, TurnFinished)
    assert last.result.events == kept[:-1]


def test_turns_follow_one_another():
    assert history(2).messages == fold(WHOLE) * 2
    assert history(2).turns == 2


def test_usage_is_the_sum_of_the_turns():
    assert history(2).usage == USAGE + USAGE
    assert History().usage == Usage()


def test_undo_forgets_the_last_turn_and_gives_its_prompt_back():
    made = history()
    made.add((TurnStarted(user("And now?"), "m"),))
    assert made.undo() == user("And now?")
    assert made.messages == fold(WHOLE)
    assert made.usage == USAGE


def test_undo_of_nothing_is_none():
    assert History().undo() is None


def test_clear_forgets_everything():
    made = history(2)
    made.clear()
    assert (made.messages, made.events, made.usage, made.turns) == ((), (), Usage(), 0)
