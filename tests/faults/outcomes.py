"""A plugin of pytest that writes the outcome and duration of each test, and which test runs."""

import json
import os
from pathlib import Path

import pytest

OUTCOMES = Path(os.environ["FAULTS_OUTCOMES"])
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
CURRENT = Path(f"{os.environ['FAULTS_CURRENT']}-{WORKER}")
CURRENT.touch()
os.environ["FAULTS_PYTEST"] = str(os.getpid())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    new = CURRENT.with_suffix(".new")
    new.write_text(nodeid, encoding="utf-8")
    new.replace(CURRENT)  # other processes read it at any time


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not WORKER:  # in the process that is told of all tests
        with OUTCOMES.open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.outcome, report.duration]) + "\n")
