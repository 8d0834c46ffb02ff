"""Putting variables back after code ran: each one is as it was, or is named with a reason."""

import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from agentmagic.undo.changes import Changes
from agentmagic.undo.pictures import MOST, SHIELDED, TOO_MANY
from tests.undo.random_programs import run


def space(**variables: Any) -> dict[str, Any]:
    return {"__name__": "__main__", **variables}


def test_a_variable_that_was_changed_since_is_left_alone_and_so_is_what_shares_objects_with_it():
    rows: list[int] = [1]
    here = space(rows=rows, box=[rows], other={})
    kept = run(here, "rows.append(2)\nbox.append(3)\nother['a'] = 1", {"rows", "box", "other"})
    here["box"].append("mine")
    undone = kept.restore()
    assert undone.restored == ("other",)
    assert undone.refused == {
        "box": "it has been changed since",
        "rows": "it shares objects with a variable that is left alone",
    }
    assert here["box"] == [[1, 2], 3, "mine"]


@pytest.mark.parametrize(
    ("make", "change", "why"),
    [
        (lambda: iter({1, 2}), "next(it)", "it holds a set_iterator, which was changed and cannot be put back"),
        (lambda: [open(__file__)], "it[0].read()", "it holds a file that was read, written or closed"),  # noqa: SIM115, PTH123
        (lambda: open(__file__, "rb"), "it.close()", "it holds a file that was read, written or closed"),  # noqa: SIM115, PTH123
        (lambda: io.TextIOWrapper(io.BytesIO(b"1")), "it", "it holds a TextIOWrapper, which cannot be watched"),
        (lambda: np.arange(4), "it.resize(9, refcheck=False)", "the form of an array was changed in place"),
    ],
)
def test_what_cannot_be_kept_is_named_with_the_reason(make: Callable[[], Any], change: str, why: str):
    here = space(it=make())
    value = here["it"]
    assert run(here, change, {"it"}).restore().refused == {"it": why}
    assert here["it"] is value
    [one.close() for one in (value if isinstance(value, list) else ())]


def test_a_file_that_a_program_could_have_reached_and_left_as_it_was_is_not_named():
    with open(__file__) as file:  # noqa: PTH123
        here = space(log=file, rows=[file], count=0)
        undone = run(here, "count = log.fileno()").restore()
    assert (undone.restored, undone.refused) == (("count",), {})


def test_an_array_that_is_larger_than_the_limit_is_named_and_a_smaller_one_is_put_back():
    here = space(large=np.zeros(200_000), small=np.zeros(10))
    changes = Changes(here, limit=1_000_000)
    changes.expect(None)
    exec("large[150_000] = 1\nsmall[0] = 1", here)  # noqa: S102
    undone = changes.settle().restore()
    assert undone.refused == {"large": "an array in it was too large to be copied"}
    assert here["small"][0] == 0
    assert here["large"][150_000] == 1


def test_what_is_beside_more_objects_than_can_be_watched_is_told_and_put_back():
    crowd = [[[number], [number]] for number in range(MOST)]
    here = space(first=[1], crowd=crowd, last=[1])
    changes = run(here, "first.append(2)\nlast.append(2)")
    assert changes.touched_names == {"first", "last"}
    assert changes.unwatched == {"crowd": TOO_MANY}
    undone = changes.restore()
    assert (undone.restored, undone.refused) == (("first", "last"), {"crowd": TOO_MANY})
    assert (here["first"], here["last"]) == ([1], [1])


def test_a_write_past_what_copies_a_large_frame_is_told():
    here = space(frame=pd.DataFrame({"a": np.zeros(SHIELDED // 8 + 1)}))
    program = "array = frame['a'].to_numpy()\narray.flags.writeable = True\narray[-1] = 7"
    changes = Changes(here)
    changes.expect({"frame"}, words=program.replace(".", " ").split())
    exec(program, here)  # noqa: S102
    assert changes.settle().touched_names >= {"frame"}
    assert changes.restore().refused["frame"] == "an array in it was too large to be copied"


def test_what_the_page_sets_with_the_first_figure_is_no_change_of_the_notebook(monkeypatch):
    def replaced():
        """Stand for a function of IPython, which puts one into the place of a function of matplotlib."""

    replaced.__module__ = "IPython.core.pylabtools"
    monkeypatch.setattr(plt, "_backend_mod", None)
    monkeypatch.setattr(plt, "draw_if_interactive", plt.draw_if_interactive)
    here = space(plt=plt, replaced=replaced)
    program = "plt.draw_if_interactive = replaced; dict.__setitem__(plt.rcParams, 'interactive', {})"
    try:
        assert not run(here, program.format(True)).matters
        monkeypatch.undo()
        plt.switch_backend("agg")
        changes = run(here, program.format(False) + "; plt.rcParams['figure.dpi'] = 44")
        assert (changes.touched_names, changes.packages.touched_names) == (set(), {"settings of matplotlib"})
        assert changes.restore().restored == ("settings of matplotlib",)
        assert plt.isinteractive()
    finally:
        plt.ioff()


def test_names_that_a_program_made_are_removed_and_those_it_removed_come_back():
    here = space(gone=[1])
    value = here["gone"]
    undone = run(here, "made = gone\nmade.append(2)\ndel gone", {"gone"}).restore()
    assert undone.restored == ("gone", "made")
    assert here["gone"] is value == [1]
    assert "made" not in here


KEYS = """
class Key:
    def __init__(self, number):
        self.number = number
    def __hash__(self):
        return hash(self.number)
    def __eq__(self, other):
        return self.number == other.number

keys = [Key(number) for number in range(20)]
found, pairs, members = dict.fromkeys(keys), {(key, 1): key for key in keys}, set(keys)
"""


def test_keys_are_put_back_before_what_finds_them_by_their_hash():
    here = space()
    exec(KEYS, here)  # noqa: S102
    change = "for key in keys:\n    key.number += 1000\nfound[Key(0)] = pairs[Key(0)] = 1\nmembers.add(Key(0))"
    undone = run(here, change, {"keys", "found", "pairs", "members"}).restore()
    assert not undone.refused
    assert all(key in here["found"] and (key, 1) in here["pairs"] and key in here["members"] for key in here["keys"])


def test_keeping_beside_a_large_frame_takes_no_time_for_it():
    columns = {f"c{number}": np.zeros(1_000_000) for number in range(8)}
    here = space(x=[1], **{f"frame_{number}": pd.DataFrame(columns, copy=False) for number in range(16)})  # 1 GB
    Changes(here).expect({"x"})
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        Changes(here).expect({"x"})
        took.append(time.perf_counter() - begin)
    assert min(took) < 0.05


class Hostile:
    """An object whose attributes cannot be read."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None  # pyright: ignore[reportAssignmentType]  (as Python sets it beside __eq__)


def test_keeping_runs_no_code_of_the_objects():
    here = space(hostile=Hostile(), rows=[Hostile()])
    undone = run(here, "rows.append(1)").restore()
    assert undone.restored == ("rows",)
    assert len(here["rows"]) == 1
    assert undone.refused == {}
