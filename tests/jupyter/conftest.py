"""One kernel for all tests; modules whose code depends on the version of the kernel run on the oldest as well."""

import os
import sys
from importlib.metadata import version

import pytest

from tests.jupyter.harness import Kernel, Notebook

OLDEST = "AGENTMAGIC_OLDEST"
"""The variable that names a Python with the oldest versions that are supported, also of ipykernel."""

SETUP = """
%load_ext agentmagic
import asyncio, time
from agentmagic import Agent, Session, tool
from agentmagic.errors import RateLimited
from agentmagic.events import PartDelta, PartStarted
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.widgets.view import View

View.patience = 0.0  # no page will say hello

class Stalled:
    "Says half of an answer, and then nothing."
    name = "test:stalled"
    def __init__(self):
        self.requests = 0
    async def stream(self, request):
        self.requests += 1
        if self.requests > 1:
            async for event in ScriptedModel(["second answer"]).stream(request):
                yield event
            return
        yield PartStarted(0, "text")
        yield PartDelta(0, "half an ")
        await asyncio.Event().wait()
    async def aclose(self):
        pass

def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}

def play(*steps, **options):
    global agent
    agent = Session(Agent(ScriptedModel(list(steps)), **options))

def valid():
    "Whether every call of the history is answered by the message after it."
    rows = agent.messages
    asked = [{call.id for call in row.calls} for row in rows]
    answered = [{part.call_id for part in row.parts} if row.role == "tool" else set() for row in rows]
    return all(calls == results for calls, results in zip(asked, answered[1:] + [set()]))

# Without the session that loading binds, for each test makes its own.
get_ipython().as_loaded = {name: value for name, value in globals().items() if name[0] != "_" and name != "agent"}
"""

CLEAN = """
from agentmagic.jupyter import extension
from agentmagic.replay.deck import Deck
extension._namespaces[id(get_ipython())]._deck = Deck()
for _name in [name for name in globals() if name[0] != "_" and name not in get_ipython().as_loaded]:
    del globals()[_name]
globals().update(get_ipython().as_loaded)
"""

ACT = """
@tool(ask=True)
def act(what: str) -> str:
    "Act."
    return "acted: " + what
"""
GATE = """
import threading
gate = threading.Event()
async def wait() -> str:
    "Wait."
    await asyncio.to_thread(gate.wait, 30)
    return "opened"
"""
"""Cells that define a tool which asks, and one that waits until a gate is opened."""


is_older = int(version("ipykernel").partition(".")[0]) < 7
subshells = pytest.mark.skipif(is_older, reason="needs ipykernel 7, which takes messages while a cell runs")
later_outputs = pytest.mark.skipif(is_older, reason="needs ipykernel 7, which updates a cell that has ended")
missing = pytest.mark.skipif(OLDEST not in os.environ, reason=f"{OLDEST} names no Python with the oldest versions")
every_kernel = pytest.mark.parametrize(
    "shared_kernel",
    [
        pytest.param(None, id="this"),  # as without parameters, so that both share one kernel
        pytest.param(os.environ.get(OLDEST), id="oldest", marks=[missing, pytest.mark.slow]),
    ],
    indirect=True,
    scope="package",
)


@pytest.fixture(scope="package")
def shared_kernel(request, tmp_path_factory):
    variables = {
        "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }
    with Kernel(
        getattr(request, "param", None) or sys.executable, variables, tmp_path_factory.mktemp("work")
    ) as kernel:
        assert kernel.run(SETUP).ok
        yield kernel


@pytest.fixture
def kernel(shared_kernel):
    """A kernel as after `%load_ext`, without the variables, the tools and the cassette of the tests before."""
    yield shared_kernel
    state = shared_kernel.run(CLEAN)
    assert state.ok, state.error


@pytest.fixture
def notebook(tmp_path):
    """A notebook's file, and the kernels that run it."""
    made = Notebook(tmp_path)
    yield made
    for kernel in made.kernels:
        kernel.stop()


@pytest.fixture
def add(kernel):
    """Add servers by their command lines; they are gone after the test."""
    added = []

    def connect(name, *command):
        added.append(name)
        cell = kernel.run(f"%mcp add {name} {' '.join(map(str, command))}")
        assert cell.ok, cell.error
        return cell

    yield connect
    for name in added:
        kernel.run(f"%mcp remove {name}")


@pytest.fixture
def own_approvals(kernel, tmp_path):
    """A place for approvals of this test alone."""
    assert kernel.run(f"import os\nos.environ['XDG_DATA_HOME'] = {str(tmp_path / 'data')!r}").ok
