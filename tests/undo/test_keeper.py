"""What is kept before the calls of sessions: each session takes what is its own, and it goes with the session."""

import gc
import weakref

import pytest

from agentmagic.messages import ToolCall
from agentmagic.undo.snapshots import MOST_CALLS, VariableKeeper


class Owner:
    """Stands for a session."""


def change(space, **variables):
    space.update(variables)


@pytest.fixture
def space():
    return {"a": 1, "b": 1}


@pytest.fixture
def keeper(space):
    return VariableKeeper(space)


def carry_out(keeper, owner, call, **variables):
    with keeper.around(call, change, owner):
        keeper.namespace.update(variables)


def test_sessions_whose_calls_have_the_same_id_take_what_is_their_own(keeper, space):
    one, other = Owner(), Owner()
    carry_out(keeper, one, ToolCall("call_0", "run_python", {"code": "a = 2"}), a=2)
    carry_out(keeper, other, ToolCall("call_0", "run_python", {"code": "b = 2"}), b=2)
    (kept,) = keeper.take(one, ["call_0"])
    assert kept.restore(space).restored == ("a",)
    assert space == {"a": 1, "b": 2}
    (kept,) = keeper.take(other, ["call_0"])
    assert kept.touched == {"b"}
    assert keeper.take(other, ["call_0"]) == []
    assert len(keeper._kept) == 0  # owners whose calls are all taken hold no place
    carry_out(keeper, None, ToolCall("c1", "run_python", {"code": "a = 2"}), a=2)  # of no session
    assert len(keeper.take(keeper, ["c1"])) == 1


def test_what_no_turn_has_taken_goes_with_its_owner(keeper):
    owner = Owner()
    carry_out(keeper, owner, ToolCall("call_0", "run_python", {"code": "a = 2"}), a=2)
    kept = weakref.ref(keeper._kept[owner]["call_0"][0])
    del owner
    gc.collect()
    assert kept() is None
    assert len(keeper._kept) == 0


def test_of_a_turn_with_very_many_calls_the_last_ones_are_kept(keeper):
    owner = Owner()
    for number in range(MOST_CALLS + 5):
        carry_out(keeper, owner, ToolCall(f"call_{number}", "change", {}))
    assert list(keeper._kept[owner])[:1] == ["call_5"]


@pytest.mark.parametrize("same", [True, False])
def test_a_call_within_another_is_part_of_it_and_cannot_be_undone_by_another_session(keeper, space, same):
    outer = Owner()
    inner = outer if same else Owner()
    with keeper.around(ToolCall("c1", "run_python", {"code": "inner()"}), change, outer):
        carry_out(keeper, inner, ToolCall("c2", "run_python", {"code": "a = 2"}), a=2)
    assert keeper.take(inner, ["c2"]) == ([] if same else None)
    (kept,) = keeper.take(outer, ["c1"])
    assert kept.restore(space).restored == ("a",)
