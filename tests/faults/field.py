"""A copy of the checkout with seeded faults, in which pytest is run with some of them on."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.seeds import chosen, sow

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
HUNG = 60.0
"""Seconds more than its tests need after which a run counts as hung."""


@dataclass(frozen=True)
class Outcome:
    """What a run of pytest came to."""

    code: int  # its exit code; -1 if it hung
    tests: dict[str, tuple[bool, float]]  # whether each passed, and its seconds
    reached: set[tuple[int, str]]  # the faults and the tests that reached their place; no test: an import did

    @property
    def failed(self) -> list[str]:
        return [test for test, (passed, _) in self.tests.items() if not passed]


class Field:
    """The copy, and what is known of its faults, which a file beside it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = folder.with_suffix(".json")
        self._runs = folder.with_suffix(".runs")
        self.state: dict[str, Any] = json.loads(self._known.read_text()) if self._known.exists() else {}

    def keep(self, **more: Any) -> None:
        self.state |= more
        self._known.write_text(json.dumps(self.state, indent=1), encoding="utf-8")

    def plant(self, seed: int, count: int, tests: str | None) -> None:
        """Copy the checkout, with the tests of another commit if one is named, and seed the faults."""
        for name in _output("git", "ls-files", "-co", "--exclude-standard").decode().splitlines():
            if (ROOT / name).is_file() and not (tests and name.startswith("tests/")):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.folder / name)
        if tests:
            subprocess.run(["tar", "x", "-C", self.folder], input=_output("git", "archive", tests, "tests"), check=True)
        drawn = chosen(self.folder, list((self.folder / "agentmagic").rglob("*.py")), seed, count)
        sow(self.folder, drawn)
        shutil.copy(HERE / "switches.py", self.folder / "agentmagic" / "_switches.py")
        first = self.folder / "agentmagic" / "__init__.py"
        docstring, quotes, rest = first.read_text(encoding="utf-8").partition('"""\n')
        first.write_text(f"{docstring}{quotes}import agentmagic._switches\n{rest}", encoding="utf-8")
        shutil.copy(HERE / "outcomes.py", self.folder)
        for command in (["git", "init", "-q"], ["git", "add", "-A"]):  # tests ask git for the files of the project
            subprocess.run(command, cwd=self.folder, check=True)
        self.keep(seed=seed, seeds=[vars(one) for one in drawn], caught={})

    def run(self, name: str, faults: list[int], options: list[str], tests: dict[str, float] | None = None) -> Outcome:
        """Run pytest with the faults on: all tests that the options choose, or those of `tests`, with their seconds."""
        work = self._runs / name
        shutil.rmtree(work, ignore_errors=True)
        (work / "reached").mkdir(parents=True)
        (work / "outcomes").touch()
        environment = os.environ | {
            "PYTHONPATH": str(self.folder),
            "FAULTS_ON": ",".join(map(str, faults)),
            "FAULTS_OUTCOMES": str(work / "outcomes"),
            "FAULTS_CURRENT": str(work / "current"),
        }
        if tests is None:
            environment["FAULTS_REACHED"] = str(work / "reached")
        else:
            (work / "tests").write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
            options = [*options, f"@{work / 'tests'}"]
        command = [sys.executable, "-m", "pytest", "-p", "outcomes", "-p", "no:cacheprovider", "--tb=no", *options]
        code = self._wait(command, environment, work / "output", tests and HUNG + 3 * sum(tests.values()))
        return Outcome(code, _tests(work / "outcomes"), _reached(work / "reached"))

    def _wait(self, command: list[str], environment: dict[str, str], output: Path, limit: float | None) -> int:
        with output.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            with suppress(ProcessLookupError):  # a kernel that the tests left behind would go on
                os.killpg(process.pid, signal.SIGKILL)


def _output(*command: str) -> bytes:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def _tests(file: Path) -> dict[str, tuple[bool, float]]:
    tests: dict[str, tuple[bool, float]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        test, outcome, duration = json.loads(line)  # of its set-up, its call, its end
        passed, before = tests.get(test, (True, 0.0))
        tests[test] = passed and outcome != "failed", before + duration
    return tests


def _reached(folder: Path) -> set[tuple[int, str]]:
    lines = [line for file in folder.iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
    return {(int(number), test) for number, _, test in (line.partition("\t") for line in lines)}
