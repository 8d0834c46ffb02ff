"""A server that asks to be authorized, in cells: the browser comes back, the address is pasted, no one is there."""

import re

import pytest

from tests.jupyter.harness import BATCH
from tests.tools.mcp.servers import authorized
from tests.tools.mcp.test_oauth import visit, visit_from_afar
from tests.turns import AT_ONCE


@pytest.fixture
def web(kernel):
    with authorized.serving() as (url, granting):
        yield url, granting
        kernel.run("%mcp remove web")


def page_of(kernel, cell):
    """Wait until the kernel asks, and return the address it shows."""
    asked = kernel.asked(cell)
    assert asked["password"], "what is pasted is not kept in the notebook"
    kernel.wait_for_text(cell, "kept in memory")
    return re.findall(r"http://\S+/authorize\?\S+", cell.stream)[0]


def test_the_browser_comes_back_and_the_cell_goes_on(kernel, web):
    url, granting = web
    cell = kernel.send(f"%mcp add web {url}")
    visit(page_of(kernel, cell))
    kernel.finish(cell)
    assert "ready" in cell.stream
    assert "No keyring can be used here: the token will be kept in memory, until the kernel ends." in cell.stream
    assert not any(secret in cell.stream for secret in granting.secrets)


def test_an_interrupt_ends_the_wait_at_once_nobody_there_is_told_what_to_do_and_the_address_may_be_pasted(kernel, web):
    cell = kernel.send(f"%mcp add web {web[0]}")
    page_of(kernel, cell)
    assert kernel.interrupted(cell) < AT_ONCE
    assert not cell.ok
    assert "web" not in kernel.run("%mcp list").stream
    cell = kernel.run(f"%mcp add web {web[0]}", **BATCH)
    assert "it asks to be authorized (HTTP 401), and no one is there to do so" in cell.error
    kernel.run("%mcp remove web")
    cell = kernel.send(f"%mcp add web {web[0]}")
    kernel.type(visit_from_afar(page_of(kernel, cell)))
    kernel.finish(cell)
    assert "ready" in cell.stream
    assert "code=" not in cell.stream


def test_a_turn_asks_while_its_cell_waits(kernel, web):
    kernel.run(f"play(calls('echo', text='hello'), 'done', mcp={{'web': {{'url': {web[0]!r}, 'allow': ['*']}}}})")
    cell = kernel.send("%%agent\nGo on")
    visit(page_of(kernel, cell))
    assert "hello" in kernel.finish(cell).text
