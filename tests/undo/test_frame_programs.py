"""Undo of random programs: each variable is as it was, or is named with a reason; also without pyarrow."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.undo.frame_programs import ArrowNotebook, FrameNotebook
from tests.undo.live_programs import LiveNotebook
from tests.undo.random_programs import Notebook, check

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "count"), [(Notebook, 220), (FrameNotebook, 220), (ArrowNotebook, 220), (LiveNotebook, 80)]
)
def test_undo_and_redo_of_random_programs_are_never_silently_wrong_and_seldom_refused(
    kinds: type[Notebook], count: int
):
    outcomes = [check(kinds(seed)) for seed in range(count)]
    assert sum(restored for restored, _ in outcomes) > 3 * sum(len(refused) for _, refused in outcomes)


WITHOUT_PYARROW = """
import sys, warnings

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
warnings.simplefilter("ignore")
import pandas
from tests.undo.frame_programs import FrameNotebook
from tests.undo.random_programs import check
print(type(pandas.Series(["x"]).array).__name__, [check(FrameNotebook(seed), users=0)[1] for seed in range(40)])
"""


@pytest.mark.slow
def test_undo_without_pyarrow_refuses_nothing_either():
    command = [sys.executable, "-c", WITHOUT_PYARROW]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300, text=True)
    assert done.stdout == f"StringArray {[[]] * 40}\n"
