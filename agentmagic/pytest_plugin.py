"""The pytest plugin: the fixture `agentmagic_session`, whose turns are recorded, and the option `--agentmagic-replay`.

If a test leaves a recorded turn unreplayed, the test fails. If a notebook under nbval does so, the whole test run
fails. Other modules of agentmagic are imported only when a test uses the fixture, or when such a notebook is reported.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentmagic.agent import Agent
    from agentmagic.providers.base import Model
    from agentmagic.session import Session

FOLDER = "cassettes"
UNASKED = "AGENTMAGIC_UNASKED"
"""The environment variable with the folder in which kernels note the recorded turns that no cell has replayed."""

_folder_key = pytest.StashKey[str]()
_unasked_key = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--agentmagic-replay` to the command line of pytest."""
    group = parser.getgroup("agentmagic")
    group.addoption(
        "--agentmagic-replay",
        metavar="MODE",
        default="replay",
        help="how agentmagic_session uses the cassette of a test: record, replay (the default), replay-model, "
        "replay-tools, auto or live",
    )


def pytest_configure(config: pytest.Config) -> None:
    """If nbval runs notebooks, make a folder in which their kernels report recorded turns that they did not replay.

    The environment variable `AGENTMAGIC_UNASKED` gets its path. If the variable is set already, no folder is made.
    """
    if UNASKED not in os.environ and (config.getoption("nbval", False) or config.getoption("nbval_lax", False)):
        config.stash[_folder_key] = os.environ[UNASKED] = tempfile.mkdtemp()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the test run if a notebook's kernel did not replay a recorded turn. All kernels have ended before this."""
    folder = Path(session.config.stash.get(_folder_key, os.devnull))
    if not list(folder.glob("*.txt")):
        return
    from agentmagic.replay.unasked import collect

    session.config.stash[_unasked_key] = unasked_turns = list(collect(folder))
    if unasked_turns and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter", config: pytest.Config) -> None:
    """Print the recorded turns that no cell of the tested notebooks has replayed."""
    unasked_turns = config.stash.get(_unasked_key, None)
    if unasked_turns:
        terminalreporter.section("recorded turns that were not asked for", red=True)
        for line in unasked_turns:
            terminalreporter.line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder and the environment variable that `pytest_configure` has made."""
    if folder := config.stash.get(_folder_key, ""):
        os.environ.pop(UNASKED, None)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def agentmagic_session(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Session]]":
    """Return a function that makes a session whose turns are replayed from the cassette of the test.

    The function accepts an agent and the options of `Session`. The cassette is cassettes/MODULE/TEST.cassette.yaml
    beside the test; --agentmagic-replay=record records it. The sessions are closed at the end of the test. A test fails
    if it has not replayed all recorded turns.
    """
    from agentmagic.host import begin_cell
    from agentmagic.replay import unasked
    from agentmagic.session import Session

    begin_cell()
    failures = request.session.testsfailed
    sessions: list[Session] = []
    place: Path = request.path.parent / FOLDER / request.path.stem / _file_of(request.node.name)

    def session(agent: "Agent | str | Model | None" = None, **options: Any) -> "Session":
        mode: Any = request.config.getoption("--agentmagic-replay")
        arguments: dict[str, Any] = {"cassette": place, "replay": mode, **options}
        one = Session(agent, **arguments)
        one.deck.begins_at_top = True
        sessions.append(one)
        return one

    yield session
    for one in sessions:
        one.close()
    problem = "" if request.session.testsfailed > failures else unasked.summary(place)
    unasked.forget(place)
    if problem:
        pytest.fail(problem, pytrace=False)


def _file_of(test: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', test).strip('-')}.cassette.yaml"
