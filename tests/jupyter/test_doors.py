"""One notebook with every API: the same cells, in a real kernel, against a strict server."""

import sys

import pytest

from agentmagic.providers.registry import providers
from tests.contracts.conversing import every_api
from tests.jupyter.harness import LAB, Kernel
from tests.providers.strict.script import Answer, Call, Think, say
from tests.providers.strict.server import KEY, strict

pytestmark = pytest.mark.slow  # what a provider does is tested in contracts/

CLOCK = """
@tool
def clock(zone: str) -> str:
    "Tell the time in a zone."
    return f"noon in {zone}"
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel without the panels of other tests, which would ask the servers for their models."""
    folder = tmp_path_factory.mktemp("doors")
    with Kernel(sys.executable, {"IPYTHONDIR": str(folder)}, folder) as made:
        assert made.run("%load_ext agentmagic\nfrom agentmagic import Session, tool").ok
        yield made


@every_api
def test_a_cell_thinks_calls_and_answers(api, kernel):
    calls = Answer((Think("I need the time."), Call("clock", '{"zone": "UTC"}'), Call("clock", '{"zone": "CET"}')))
    described = providers()[api]
    with strict(api, calls, say("It is **noon**.")) as server:
        model = server.model()
        env = {described.base_url: getattr(model, "base_url", server.url), **dict.fromkeys(described.keys, KEY)}
        kernel.run(f"import os\nbefore = dict(os.environ)\nos.environ |= {env!r}\nagent = Session()")
        assert kernel.run(CLOCK).ok
        cell = kernel.run(f"%%agent -m {model.name}\nWhat time is it?", **LAB)
        kernel.run("os.environ.clear()\nos.environ |= before")
        assert cell.ok, cell.text
        assert server.refusals == []
    shown = cell.displays[0]
    assert "noon in UTC" in shown["text/plain"]
    assert "noon in CET" in shown["text/plain"]
    assert "It is <strong>noon</strong>." in shown["text/html"]
    if "Thought" in shown["text/html"]:
        assert "I need the time." in shown["text/html"]
