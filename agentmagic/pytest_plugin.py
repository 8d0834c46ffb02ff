"""Sessions on cassettes for tests with pytest: the fixture `agentmagic_session`, and the option `--agentmagic-replay`.

Nothing of agentmagic is loaded before a test asks for the fixture.
"""

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentmagic.agent import Agent
    from agentmagic.providers.base import Model
    from agentmagic.session import Session

FOLDER = "cassettes"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("agentmagic")
    group.addoption(
        "--agentmagic-replay",
        metavar="MODE",
        default="replay",
        help="how agentmagic_session uses the cassette of a test: record, replay (the default), replay-model, "
        "replay-tools, auto or live",
    )


@pytest.fixture
def agentmagic_session(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Session]]":
    """Return a function that makes a session whose turns are replayed from the cassette of the test.

    It takes an agent and the options of `Session`. The cassette is cassettes/MODULE/TEST.cassette.yaml beside the test;
    --agentmagic-replay=record records it. The sessions are closed at the end of the test.
    """
    from agentmagic.host import begin_cell
    from agentmagic.session import Session

    begin_cell()
    made: list[Session] = []
    place: Path = request.path.parent / FOLDER / request.path.stem / _file_of(request.node.name)

    def session(agent: "Agent | str | Model | None" = None, **options: Any) -> "Session":
        mode: Any = request.config.getoption("--agentmagic-replay")
        given: dict[str, Any] = {"cassette": place, "replay": mode, **options}
        one = Session(agent, **given)
        made.append(one)
        return one

    yield session
    for one in made:
        one.close()


def _file_of(test: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', test).strip('-')}.cassette.yaml"
