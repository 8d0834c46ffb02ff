"""One server for all tests of this folder, and the figures they measured at the end of the run."""

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.cells import KERNEL6, SETUP
from tests.browser.lab import CHROMIUM, Lab, Notebook, chromium, launched

OpenNotebook = Callable[..., Notebook]


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    """One browser for all tests: Playwright can be started once in a thread."""
    if chromium() is None:
        pytest.skip(f"there is no chromium on the path, and {CHROMIUM} names none")
    with launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, chrome: Browser) -> Iterator[Lab]:
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    other = os.environ.get(KERNEL6)
    kernels = {"ipykernel6": other} if other else {}
    with Lab(tmp_path_factory.mktemp("lab"), kernels=kernels, browser=chrome) as running:
        yield running


@pytest.fixture
def lab(server: Lab, request: pytest.FixtureRequest) -> Lab:
    """JupyterLab, or Notebook 7 where a test is given "notebook"."""
    server.front_end = getattr(request, "param", "lab")
    if server.front_end == "notebook":
        pytest.importorskip("notebook", reason="Notebook 7 is not installed")
    return server


@pytest.fixture
def open_notebook(lab: Lab) -> Iterator[OpenNotebook]:
    """Opens a notebook of the given cells behind `SETUP`, which has been run."""
    opened: list[Notebook] = []

    def open_(*cells: str, kernel: str = "python3") -> Notebook:
        number = len(list(lab.folder.iterdir()))
        notebook = lab.open(lab.write(f"{number}.ipynb", [SETUP, *cells], kernel))
        opened.append(notebook)
        notebook.run(0)
        return notebook

    yield open_
    for notebook in opened:
        notebook.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests measured."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name} {value}")
