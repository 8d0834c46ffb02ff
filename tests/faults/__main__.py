"""How many seeded faults the tests catch: `python -m tests.faults SEED`; see docs/contributing.md.

A copy of the checkout gets the faults as switches in its package, so that one copy serves all of them. Then:

1. All tests run once with no fault on: which of them reach which place, and how long each takes.
2. Each fault is on alone, before the tests that reach it and are nearest, until one fails.
3. What survives is on together, before all tests. Each test that fails is run again with each of those faults alone.
4. The same with the tests in a browser, if `--browser` is given.

The copy keeps what is known; the same command goes on from there.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.seeds import chosen, sow

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
NEAREST = 20.0
"""Seconds of tests that a fault alone is put before."""
HUNG = 60.0
"""Seconds more than its tests need after which a run counts as hung, and its fault as caught."""
PROCESSES = os.cpu_count() or 2


class Field:
    """A copy of the checkout with seeded faults, and what is known of them."""

    def __init__(self, folder: Path, under: str) -> None:
        self.folder = folder
        self.under = under
        self.known = folder.parent / f"{folder.name}.json"
        self.state: dict[str, Any] = json.loads(self.known.read_text()) if self.known.exists() else {}

    def keep(self, **more: Any) -> None:
        self.state |= more
        self.known.write_text(json.dumps(self.state, indent=1), encoding="utf-8")

    def plant(self, seed: int, count: int, tests: str | None) -> None:
        """Copy the checkout, with the tests of another commit if one is named, and seed the faults."""
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file() and not (tests and name.startswith("tests/")):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.folder / name)
        if tests:
            archive = subprocess.run(["git", "archive", tests, "tests"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
            subprocess.run(["tar", "x", "-C", str(self.folder)], input=archive.stdout, check=True)
        package = self.folder / "agentmagic"
        drawn = chosen(self.folder, list(package.rglob("*.py")), seed, count)
        sow(self.folder, drawn)
        shutil.copy(HERE / "switches.py", package / "_switches.py")
        first = package / "__init__.py"
        source = first.read_text(encoding="utf-8")
        head, quotes, rest = source.partition('"""\n')
        first.write_text(f"{head}{quotes}import agentmagic._switches\n{rest}", encoding="utf-8")
        shutil.copy(HERE / "outcomes.py", self.folder / "outcomes.py")
        for command in (["git", "init", "-q"], ["git", "add", "-A"]):
            subprocess.run(command, cwd=self.folder, check=True)  # tests ask git which files are the project's
        self.keep(seed=seed, seeds=[vars(one) for one in drawn], caught={}, survived=[])

    def run(self, name: str, on: list[int], options: list[str], limit: float | None = None, *, note: bool = False):
        """Run pytest; return its exit code, the outcomes of its tests, and (fault, test) pairs that were reached."""
        work = self.folder.parent / f"{self.folder.name}-runs" / name
        shutil.rmtree(work, ignore_errors=True)
        (work / "reached").mkdir(parents=True)
        outcomes = work / "outcomes"
        outcomes.touch()
        more = {"FAULTS_ON": ",".join(map(str, on)), "FAULTS_OUTCOMES": str(outcomes), "PYTHONPATH": str(self.folder)}
        if note:
            more["FAULTS_FOLDER"] = str(work / "reached")
        if "browser" in name:
            more["FAULTS_CURRENT"] = str(work / "current")
            (work / "current").touch()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "outcomes",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            *options,
        ]
        with (work / "output").open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | more,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                with suppress(ProcessLookupError):  # else a kernel that the tests left behind would go on
                    os.killpg(process.pid, signal.SIGKILL)
        tests: dict[str, tuple[bool, float]] = {}
        for line in outcomes.read_text(encoding="utf-8").splitlines():
            test, outcome, duration = json.loads(line)
            good, before = tests.get(test, (True, 0.0))
            tests[test] = good and outcome != "failed", before + duration
        reached = {
            (int(number), test)
            for file in (work / "reached").iterdir()
            for number, _, test in (line.partition("\t") for line in file.read_text(encoding="utf-8").splitlines())
        }
        return code, tests, reached

    def select(self, tests: list[str]) -> list[str]:
        file = self.folder.parent / f"{self.folder.name}-runs" / f"tests-{os.urandom(4).hex()}"
        file.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
        return [f"@{file}"]

    def record(self, paths: list[str]) -> None:
        marks = "not browser and not local_model"
        _, tests, reached = self.run(
            "record", [], ["-n", str(PROCESSES + 1), "--no-loadscope-reorder", "-m", marks, *paths], note=True
        )
        by_fault: dict[int, list[str]] = defaultdict(list)
        for number, test in sorted(reached):
            by_fault[number].append(test)
        failed = [test for test, (good, _) in tests.items() if not good]
        self.keep(
            tests={test: duration for test, (good, duration) in tests.items() if good},
            failed=failed,
            reached={str(number): by_fault.get(number, []) for number in range(len(self.state["seeds"]))},
        )

    def candidates(self, number: int) -> list[str]:
        """The tests that reach a fault, the nearest first: of its own folder, of few faults, short."""
        tests, reached = self.state["tests"], self.state["reached"]
        often = Counter(test for of_one in reached.values() for test in of_one)
        parts = self.state["seeds"][number]["path"].split("/")[1:]
        homes = tuple(f"tests/{part}" for part in {"/".join(parts[:-1]), parts[0].removesuffix(".py")} if part)
        at = reached[str(number)]
        known = [test for test in at if test in tests]
        if "" in at:  # when it was imported, so that every test may depend on it
            name = parts[-1].removesuffix(".py")
            known = [test for test in tests if test.startswith(homes) or f"test_{name}" in test]
        return sorted(known, key=lambda test: (not test.startswith(homes), often[test] // 4, tests[test]))

    def alone(self, number: int) -> None:
        chosen_tests, seconds = [], 0.0
        for test in self.candidates(number):
            seconds += self.state["tests"][test]
            if chosen_tests and seconds > NEAREST:
                break
            chosen_tests.append(test)
        if chosen_tests:
            self.put_before(number, f"alone-{number}", chosen_tests, seconds)

    def put_before(self, number: int, name: str, tests: list[str], seconds: float) -> None:
        code, outcomes, _ = self.run(name, [number], ["-x", "-n0", *self.select(tests)], HUNG + 3 * seconds)
        if code not in {0, 5}:
            failed = [test for test, (good, _) in outcomes.items() if not good]
            self.state["caught"][str(number)] = failed[-1] if failed else f"exit {code}"

    def numbers(self) -> list[int]:
        return [number for number, seed in enumerate(self.state["seeds"]) if seed["path"].startswith(self.under)]

    def survivors(self) -> list[int]:
        return [number for number in self.numbers() if str(number) not in self.state["caught"]]

    def together(self, name: str, options: list[str]) -> None:
        """Put all survivors before all tests; then each alone before the tests that failed."""
        code, tests, reached = self.run(name, self.survivors(), options, note=True)
        failed = [test for test, (good, _) in tests.items() if not good]
        print(f"{name}: exit {code}, {len(tests)} tests, {len(failed)} failed with {len(self.survivors())} faults on")
        if failed:
            _, again, _ = self.run(f"{name}-without", [], ["-n0", *self.select(failed)])
            failed = [test for test in failed if again.get(test, (False, 0))[0]]
        self.keep(**{name: failed})
        for number in self.survivors():
            at = {test for one, test in reached if one == number} | set(self.state["reached"][str(number)])
            mine = [test for test in failed if test in at or "" in at]
            if mine:
                self.put_before(number, f"{name}-{number}", mine, sum(tests[test][1] for test in mine))
                self.keep()

    def report(self) -> None:
        caught, reached = self.state["caught"], self.state["reached"]
        for number in self.numbers():
            seed = self.state["seeds"][number]
            fate = caught.get(str(number)) or ("SURVIVED" if reached[str(number)] else "SURVIVED, not reached")
            print(f"{number:4} {seed['path']}:{seed['line']} {seed['kind']}: {fate}")
            if str(number) not in caught:
                print(f"       {' '.join(seed['pattern'].split())[:200]}")
        total = len(self.numbers())
        print(f"seed {self.state['seed']}: {len(caught)} of {total} caught ({len(caught) / total:.1%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=lambda text: int(text, 0))
    parser.add_argument("paths", nargs="*", help="tests to run, all if none is given")
    parser.add_argument("--count", type=int, default=200, help="how many faults (200)")
    parser.add_argument("--under", default="agentmagic", help="the part of the package whose faults are switched on")
    parser.add_argument("--field", type=Path, required=True, help="the folder for the copy")
    parser.add_argument("--tests", help="the commit whose tests are run, in place of those of the checkout")
    parser.add_argument("--browser", action="store_true", help="put what survives before the tests in a browser, too")
    parser.add_argument("--quick", action="store_true", help="only put each fault before the nearest tests")
    given = parser.parse_args()
    field = Field(given.field.resolve(), given.under)
    if "seeds" not in field.state:
        field.plant(given.seed, given.count, given.tests)
    if "reached" not in field.state:
        field.record(given.paths)
    if "alone" not in field.state:
        with ThreadPoolExecutor(PROCESSES) as pool:
            list(pool.map(field.alone, field.numbers()))
        field.keep(alone=True)
    every = ["-n", str(PROCESSES + 1), "--no-loadscope-reorder", "-m", "not browser and not local_model", *given.paths]
    if "together" not in field.state and not given.quick:
        field.together("together", every)
    if "browser" not in field.state and given.browser:
        field.together("browser", ["-m", "browser", "-n0", "tests/browser"])
    field.report()


main()
