"""One JupyterLab for all tests of this folder, and the figures they measured at the end of the run."""

import os
from collections.abc import Iterator

import pytest

from tests.browser.lab import CHROMIUM, Lab, chromium

KERNEL6 = "AGENTMAGIC_KERNEL6"
"""The environment variable that names a Python with ipykernel 6.31."""


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    if chromium() is None:
        pytest.skip(f"there is no chromium on the path, and {CHROMIUM} names none")
    other = os.environ.get(KERNEL6)
    with Lab(tmp_path_factory.mktemp("lab"), kernels={"ipykernel6": other} if other else {}) as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests measured."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name} {value}")
