"""How many seeded faults the tests catch: `python -m tests.faults SEED --field FOLDER`.

A copy of the checkout gets the faults as switches in its package, so that one copy serves all of them. Then:

1. All tests run once with no fault on: which of them reach which place, and how long each takes.
2. Each fault is on alone, before the tests that reach it and are nearest, until one fails.
3. What survives is on together, before all tests. Each test that fails is run again with each of those faults alone.
4. The same with the tests in a browser, if `--browser` is given.

A file beside the copy keeps what is known; the same command goes on from there.
"""

import argparse
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.field import Field

NEAREST = 20.0
"""Seconds of tests that a fault alone is put before."""
PROCESSES = os.cpu_count() or 2
IN_PARALLEL = ["-n", str(PROCESSES + 1), "--no-loadscope-reorder", "-m", "not browser and not local_model"]
IN_A_BROWSER = ["-n0", "-m", "browser"]


class Judge:
    """Finds which of the faults in a part of the package the tests catch."""

    def __init__(self, field: Field, under: str) -> None:
        self.field = field
        self.seeds = field.state["seeds"]
        self.numbers = [number for number, seed in enumerate(self.seeds) if seed["path"].startswith(under)]

    @property
    def caught(self) -> dict[str, str]:
        """The first test that caught each fault."""
        return self.field.state["caught"]

    def survivors(self) -> list[int]:
        return [number for number in self.numbers if str(number) not in self.caught]

    def record(self, options: list[str]) -> None:
        outcome = self.field.run("record", [], options)
        reached: dict[str, list[str]] = defaultdict(list)
        for number, test in sorted(outcome.reached):
            reached[str(number)].append(test)
        durations = {test: seconds for test, (passed, seconds) in outcome.tests.items() if passed}
        self.field.keep(tests=durations, failed=outcome.failed, reached=reached)

    def nearest(self, number: int) -> dict[str, float]:
        """The tests before which a fault is put alone: those of its own folder, of few faults, and short ones first."""
        tests, reached = self.field.state["tests"], self.field.state["reached"]
        faults = Counter(test for of_one in reached.values() for test in of_one)
        folder, _, name = self.seeds[number]["path"].removesuffix(".py").partition("/")[2].rpartition("/")
        home = f"tests/{folder}/" if folder else f"tests/test_{name}"
        known = [test for test in reached.get(str(number), []) if test in tests]
        if "" in reached.get(str(number), []):  # every test may depend on what an import did
            known = [test for test in tests if test.startswith(home) or f"test_{name}" in test]
        known.sort(key=lambda test: (not test.startswith(home), faults[test] // 4, tests[test]))
        near: dict[str, float] = {}
        for test in known:
            if near and sum(near.values()) + tests[test] > NEAREST:
                break
            near[test] = tests[test]
        return near

    def alone(self, number: int) -> None:
        if near := self.nearest(number):
            self.put_before(number, f"alone-{number}", near)

    def put_before(self, number: int, name: str, tests: dict[str, float]) -> None:
        outcome = self.field.run(name, [number], ["-x", "-n0"], tests)
        if outcome.code:
            self.caught[str(number)] = next(iter(outcome.failed), f"exit {outcome.code}")

    def together(self, name: str, options: list[str]) -> None:
        """Put what survived before all tests together, and each fault before the tests that failed."""
        faults = self.survivors()
        outcome = self.field.run(name, faults, options)
        failed = {test: seconds for test, (passed, seconds) in outcome.tests.items() if not passed}
        print(f"{name}: {len(failed)} of {len(outcome.tests)} tests failed with {len(faults)} faults on")
        if failed:  # without any fault, too?
            again = self.field.run(f"{name}-again", [], ["-n0"], failed).tests
            failed = {test: seconds for test, seconds in failed.items() if again.get(test, (False, 0))[0]}
        for number in faults:
            # With all on, one fault may have kept a test from the place of another.
            reached = {test for one, test in outcome.reached if one == number}
            reached.update(self.field.state["reached"].get(str(number), []))
            if mine := {test: seconds for test, seconds in failed.items() if test in reached or "" in reached}:
                self.put_before(number, f"{name}-{number}", mine)
                self.field.keep()
        self.field.keep(**{name: list(failed)})

    def report(self) -> Iterable[str]:
        for number in self.numbers:
            seed = self.seeds[number]
            place = f"{number:3} {seed['path']}:{seed['line']} {seed['kind']}"
            if test := self.caught.get(str(number)):
                yield f"{place}: {test}"
            else:
                yield f"{place}: SURVIVED {' '.join(seed['pattern'].split())[:150]}"
        yield f"{len(self.numbers) - len(self.survivors())} of {len(self.numbers)} faults of this seed are caught"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=lambda text: int(text, 0))
    parser.add_argument("paths", nargs="*", help="the tests to run, all if none is given")
    parser.add_argument("--count", type=int, default=200, help="how many faults (200)")
    parser.add_argument("--under", default="agentmagic", help="the part of the package whose faults are switched on")
    parser.add_argument("--field", type=Path, required=True, help="the folder for the copy")
    parser.add_argument("--tests", help="the commit whose tests are run, in place of those of the checkout")
    parser.add_argument("--browser", action="store_true", help="put what survives before the tests in a browser, too")
    parser.add_argument("--quick", action="store_true", help="stop after step 2")
    given = parser.parse_args()
    field = Field(given.field.resolve())
    if not field.state:
        field.plant(given.seed, given.count, given.tests)
    judge = Judge(field, given.under)
    if "reached" not in field.state:
        judge.record([*IN_PARALLEL, *given.paths])
    if "alone" not in field.state:
        with ThreadPoolExecutor(PROCESSES) as pool:
            list(pool.map(judge.alone, judge.numbers))
        field.keep(alone=True)
    if "together" not in field.state and not given.quick:
        judge.together("together", [*IN_PARALLEL, *given.paths])
    if "browser" not in field.state and given.browser:
        judge.together("browser", IN_A_BROWSER)
    print(*judge.report(), sep="\n")


main()
