"""One server for all tests of this folder, and the figures they measured at the end of the run."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.cells import SETUP, Cell
from tests.browser.lab import CHROMIUM, SIZE, Lab, Notebook, chromium, launched

OpenNotebook = Callable[..., Notebook]

FAST = {
    "test_an_answer_streams_into_its_cell_and_ends_as_one_static_output",
    "test_stop_is_in_sight_during_a_long_answer_ends_it_in_the_middle_and_is_heard_as_a_stop",
    "test_keys_alone_change_an_argument_leave_an_edit_approve_and_open_a_card",
    "test_a_message_is_answered_as_the_words_come_and_stays_in_the_notebook",
    "test_shift_enter_breaks_the_line_in_a_new_message_and_in_one_that_is_edited",
    "test_a_saved_notebook_shows_its_turns_when_opened_again_without_a_kernel_and_by_somebody_else",
    "test_markdown_is_drawn_as_jupyter_users_expect",
    "test_a_waiting_card_can_be_answered_with_keys_alone",
    "test_object_of_tools_and_of_plain_cells_are_the_same_while_a_page_is_attached",
    "test_keys_open_the_panel_ask_and_approve_in_it_and_go_back_to_the_notebook",
    "test_an_agent_thinks_shows_its_checklist_asks_with_cards_and_answers",
}
"""The tests of this folder that are not slow: a few that tell most, in less than a minute."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("browser") and item.name not in FAST:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="package")
def chrome() -> Iterator[Browser]:
    """One browser for all tests of this folder. Until it is closed, no other test can run an event loop."""
    if chromium() is None:
        pytest.skip(f"there is no chromium on the path, and {CHROMIUM} names none")
    with launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, chrome: Browser) -> Iterator[Lab]:
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    with Lab(tmp_path_factory.mktemp("lab"), browser=chrome) as running:
        yield running


@pytest.fixture
def lab(server: Lab, request: pytest.FixtureRequest) -> Lab:
    """JupyterLab, or Notebook 7 where a test is given "notebook"."""
    server.front_end = getattr(request, "param", "lab")
    if server.front_end == "notebook":
        pytest.importorskip("notebook", reason="Notebook 7 is not installed")
    server.page.set_viewport_size(SIZE)  # a test may have changed it, and the page is that of all tests
    return server


@pytest.fixture
def closed_dock(lab: Lab) -> Iterator[None]:
    """Closes the docked panel after the test: a reload would bring it back."""
    yield
    lab.page.evaluate("() => localStorage.clear()")
    lab.reload()


@pytest.fixture
def open_notebook(lab: Lab) -> Iterator[OpenNotebook]:
    """Opens a notebook of the given cells behind `SETUP`, and runs `SETUP` and the next `run` cells."""
    opened: list[Notebook] = []

    def open_(*cells: str, run: int = 0) -> Notebook:
        notebook = lab.open(lab.write(lab.next_path(), [SETUP, *cells]))
        opened.append(notebook)
        lab.start_next_kernel()
        for index in range(run + 1):
            notebook.run(index)
        return notebook

    yield open_
    for notebook in opened:
        notebook.close()


@pytest.fixture
def begun(open_notebook: OpenNotebook) -> Callable[..., Cell]:
    """Starts a turn that plays some steps, in the third cell; others may come behind it."""

    def begin(steps: str, *cells: str, prepare: str = "", line: str = "%%agent") -> Cell:
        notebook = open_notebook(f"{prepare}play({steps})", f"{line}\nhello", *cells, run=1)
        notebook.start(2)
        return Cell(notebook, 2)

    return begin


@pytest.fixture
def open_panel(open_notebook: OpenNotebook) -> Callable[..., Cell]:
    """Opens a panel in the cell behind one that prepares it."""

    def open_(prepare: str, *cells: str) -> Cell:
        panel = Cell(open_notebook(prepare, "agent.chat()", *cells, run=2), 2)
        panel.message.wait_for()
        return panel

    return open_


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests measured."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name} {value}")
