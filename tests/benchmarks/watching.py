"""What it costs to watch the variables while a program runs, and to undo it: CPU beside much that it does not touch."""

import pickle
import time
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from agentmagic.undo.changes import Changes

TRIES = 3
RECORDS = 100_000
FRAME = pd.DataFrame({"a": range(1_000), "b": ["x"] * 1_000})


def crowded() -> dict[str, Any]:
    """Return what else lies in the notebook, by name."""
    mpl.use("agg")
    records = [{"a": number, "b": str(number), "c": number / 2} for number in range(RECORDS)]
    return {
        f"{RECORDS:,} records": records,
        "50,000 nested lists": [[number, [number]] for number in range(RECORDS // 2)],
        "100 subplots": plt.subplots(10, 10)[1],
        "a frame of 128 MB": pd.DataFrame(np.zeros((2_000_000, 8))),
    }


def watched(beside: object, names: set[str] | None) -> tuple[float, float]:
    """Return the CPU milliseconds to look before and after a program that changes a small frame, and to undo it."""
    best = [float("inf")] * 2
    for _ in range(TRIES):
        space = {"__name__": "__main__", "frame": FRAME.copy(), "beside": beside}
        began = time.process_time()
        changes = Changes(space)
        changes.expect(names)
        looked = time.process_time() - began
        space["frame"]["c"] = 1
        began = time.process_time()
        assert changes.settle().rows()
        settled = time.process_time()
        assert "frame" in changes.restore().restored
        found = (looked + settled - began, time.process_time() - settled)
        best = [min(pair) * 1000 for pair in zip((one / 1000 for one in best), found, strict=True)]
    return best[0], best[1]


def imported() -> tuple[float, float]:
    """Return the CPU milliseconds to look before and after a program that only imports packages, and to undo it."""
    best = [float("inf")] * 2
    for _ in range(TRIES):
        began = time.process_time()
        changes = Changes({"__name__": "__main__"})
        changes.expect(set(), imports=("numpy", "pandas", "matplotlib.pyplot"))
        changes.settle()
        settled = time.process_time()
        changes.restore()
        best = [min(best[0], settled - began), min(best[1], time.process_time() - settled)]
    return best[0] * 1000, best[1] * 1000


def floor(value: object) -> float:
    """Return the CPU milliseconds to read a value once, as pickle does."""
    began = time.process_time()
    pickle.dumps(value)
    return (time.process_time() - began) * 1000


def main() -> None:
    """Print the figures."""
    print(f"\n{'a program that changes a frame, beside':44} {'look':>9} {'undo':>9} {'pickle':>9} ms")
    look, undo = imported()
    print(f"{'nothing: a program that imports 3 packages':44} {look:9.1f} {undo:9.1f} {'':9} ms goal 30", flush=True)
    for what, value in crowded().items():
        for names, how, goal in (({"frame"}, "named", "goal 30"), (None, "may reach all", "goal 300, undo 1000")):
            look, undo = watched(value, names)
            print(f"{f'{what}, {how}':44} {look:9.1f} {undo:9.1f} {floor(value):9.1f} ms {goal}", flush=True)


if __name__ == "__main__":
    main()
