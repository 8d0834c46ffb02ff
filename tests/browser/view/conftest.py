"""The page of the view, without Jupyter."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.view.stage import Stage


@pytest.fixture(scope="package")
def browser(chrome: Browser) -> Stage:
    return Stage(chrome)


@pytest.fixture
def stage(browser: Stage) -> Iterator[Stage]:
    """The page anew; at the end it must not have failed, nor looked for anything elsewhere."""
    browser.open()
    yield browser
    browser.page.close()
    assert browser.complaints() == []
