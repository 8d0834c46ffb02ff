"""What a tool of the user has changed, in a replay that does not run it: changed again, or the turn fails."""

import pytest

from agentmagic import Agent, ReplayMismatch, ScriptedModel, Session

pytest.importorskip("pandas")

MAKE = """
import numpy as np
import pandas as pd
class Account:
    balance = 0
frame = pd.DataFrame({"a": [1.5, None]}, index=["x", "y"])
series = frame["a"].copy()
array = np.zeros(3)
rows = same = [1, 2]
found = {"a": 1}
seen = {1}
pair = (1, [2])
account = Account()
"""
PUT_BACK = [
    ("frame.loc['x', 'a'] = 9; frame['b'] = ['p', 'q']", "frame.to_csv()", True),
    ("series.iloc[0] = 9", "series.to_dict()", True),
    ("array[1] = 7", "array.tolist()", True),
    ("rows.append(3)", "rows, same", True),
    ("rows.append(3); raise ValueError('no')", "rows, same", True),
    ("found.update(b=2); del found['a']", "found", True),
    ("seen.add(5)", "seen", True),
    ("pair[1].append(3)", "pair", False),
    ("globals()['frame'] = frame.head(1)", "frame.to_csv()", False),
    ("globals()['made'] = [frame.shape]", "globals()['made'] if 'made' in globals() else 'none'", False),
    ("globals().pop('rows')", "'rows' in globals()", False),
]
LOST = [
    ("account.balance += 5", "account (Account)"),
    ("account.owner = rows; rows.append(1)", "account (Account)"),
    ("globals()['model'] = Account()", "model (Account)"),
]


def asked(path, mode, change):
    """Ask a session whose only tool changes variables; return these, and the objects that they held before."""
    space = {"__name__": "__main__"}
    exec(f"{MAKE}\ndef change() -> str:\n    'Change.'\n    {change}\n    return 'done'", space)  # noqa: S102
    before = dict(space)
    steps = [{"calls": [{"name": "change", "arguments": {}}]}, "Done."]
    script = steps if mode in ("record", "auto") else []
    agent = Agent(ScriptedModel(script), tools=[space["change"]])
    session = Session(agent, cassette=path, replay=mode, namespace=space)
    session.ask("Change them.")
    notices = [event.text for event in session.turns[-1].events if event.type == "notice"]
    return space, before, notices, session


@pytest.mark.parametrize(("change", "look", "in_place"), PUT_BACK)
def test_a_change_is_made_again_in_place_and_can_be_undone(tmp_path, change, look, in_place):
    looks = []
    for mode in ("record", "replay"):
        space, before, notices, session = asked(tmp_path / "a.cassette.yaml", mode, change)
        assert notices == []
        looks.append(repr(eval(look, space)))  # noqa: S307
        assert not in_place or all(space[name] is value for name, value in before.items())
        session.undo()
        assert all(space[name] is value for name, value in before.items())
        session.close()
    assert looks[0] == looks[1] != repr(eval(look, space))  # noqa: S307


@pytest.mark.parametrize(("change", "named"), LOST)
def test_a_change_that_a_cassette_cannot_keep_fails_the_replay_by_name(tmp_path, change, named):
    path = tmp_path / "a.cassette.yaml"
    _, _, notices, _ = asked(path, "record", change)
    assert notices[0].startswith(f"A cassette cannot keep {named}. A replay of this cell fails.")
    with pytest.raises(ReplayMismatch) as caught:
        asked(path, "replay", change)
    assert str(caught.value) == (
        f"Cell 'Change them.', step 1: change changed {named}, which is not in a.cassette.yaml. To have its tools run"
        " again, replay it with %agent replay model (AGENTMAGIC_REPLAY=replay-model)."
    )
    for mode in ("replay-model", "auto"):  # the tool runs
        space, *_ = asked(path, mode, change)
        assert space["account"].balance == 5 or "balance" not in change


def test_a_drawing_that_a_tool_makes_is_not_missed(tmp_path):
    change = "import matplotlib.figure; globals()['figure'] = matplotlib.figure.Figure()"
    for mode in ("record", "replay"):
        space, _, notices, _ = asked(tmp_path / "a.cassette.yaml", mode, change)
        assert notices == []
    assert "figure" not in space
