"""One browser for the tests of the view without Jupyter."""

from collections.abc import Iterator

import pytest

from tests.browser.lab import CHROMIUM, chromium
from tests.browser.view.stage import Stage


@pytest.fixture(scope="package")
def browser() -> Iterator[Stage]:
    if chromium() is None:
        pytest.skip(f"there is no chromium on the path, and {CHROMIUM} names none")
    with Stage() as running:
        yield running


@pytest.fixture
def stage(browser: Stage) -> Iterator[Stage]:
    """The page anew; at the end it must not have failed, nor looked for anything elsewhere."""
    browser.open()
    yield browser
    browser.page.close()
    assert browser.complaints() == []
