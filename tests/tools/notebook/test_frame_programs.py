"""Undo of programs over frames, with pyarrow as without: each variable is as it was, or is named with a reason."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.notebook.frame_programs import ArrowNotebook, FrameNotebook, outcomes
from tests.tools.notebook.random_programs import Notebook, check

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kinds", [FrameNotebook, ArrowNotebook])
@pytest.mark.parametrize("seed", range(15))
def test_undo_and_redo_of_a_random_program_over_frames_are_never_silently_wrong(kinds: type[Notebook], seed: int):
    check(kinds(seed))


WITHOUT_PYARROW = """
import json, sys

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from tests.tools.notebook import frame_programs
kinds = getattr(frame_programs, sys.argv[1])
print(json.dumps(frame_programs.outcomes(range(int(sys.argv[2]), int(sys.argv[3])), kinds)))
"""


def outcomes_without_pyarrow(kinds: type[Notebook], first: int, last: int) -> dict[str, Any]:
    """Return the outcomes of the same programs in a process in which pyarrow cannot be imported."""
    command = [sys.executable, "-c", WITHOUT_PYARROW, kinds.__name__, str(first), str(last)]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300).stdout)


def test_undo_with_pyarrow_on_a_hundred_programs_is_as_without():
    with_pyarrow, without = outcomes(range(100), FrameNotebook), outcomes_without_pyarrow(FrameNotebook, 0, 100)
    assert (with_pyarrow["text"], without["text"]) == ("ArrowStringArray", "StringArray")
    assert with_pyarrow["each"] == without["each"]
    assert with_pyarrow["counts"] == {"exact": 100}


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "exact"), [(Notebook, 277), (FrameNotebook, 297)])
def test_undo_with_pyarrow_on_three_hundred_programs_is_as_without(kinds: type[Notebook], exact: int):
    with_pyarrow, without = outcomes(range(300), kinds), outcomes_without_pyarrow(kinds, 0, 300)
    assert with_pyarrow["each"] == without["each"]
    assert with_pyarrow["counts"].keys() <= {"exact", "refused"}
    assert with_pyarrow["counts"]["exact"] >= exact


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [FrameNotebook, ArrowNotebook])
def test_undo_of_two_hundred_random_programs_over_frames_is_never_silently_wrong(kinds: type[Notebook]):
    restored, refused = map(sum, zip(*(check(kinds(seed)) for seed in range(15, 215)), strict=True))
    assert restored > 3 * refused
