"""A plugin of pytest that writes the outcome and duration of each test, and which test runs."""

import json
import os
from pathlib import Path

import pytest

OUTCOMES = os.environ["FAULTS_OUTCOMES"]
CURRENT = os.environ.get("FAULTS_CURRENT", "")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    if CURRENT:
        Path(f"{CURRENT}-new").write_text(nodeid, encoding="utf-8")
        Path(f"{CURRENT}-new").replace(CURRENT)  # kernels read it at any time


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if hasattr(report, "node") or "PYTEST_XDIST_WORKER" not in os.environ:  # in the process that is told of all tests
        with Path(OUTCOMES).open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.outcome, report.duration]) + "\n")
