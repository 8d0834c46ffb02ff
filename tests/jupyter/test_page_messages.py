"""Messages of pages: IPython's hooks run for those of other extensions, and for none of ours, in no thread."""

import pytest

from tests.jupyter.conftest import every_kernel

pytestmark = every_kernel

HOOKS = """
import ipywidgets, threading
from comm import get_comm_manager
from agentmagic.widgets.view import _library

view, slider = View(None), ipywidgets.IntSlider()
lab = next(one for one in get_comm_manager().comms.values() if one.target_name == "agentmagic.lab")
hooks, events = [], get_ipython().events
def heard(*_):
    hooks.append((get_ipython().kernel.get_parent()["header"]["msg_type"], threading.current_thread().name))
for hook in ("pre_execute", "post_execute"):
    events.register(hook, heard)
def of_pages():
    return sorted({one for one in hooks if one[0] != "execute_request"})
"""
HELLO = {"method": "custom", "content": {"type": "hello", "view": "a", "seen": 0}}
STATE = {"method": "request_state"}
OURS = [
    ("view.comm", HELLO),
    ("view.comm", {"method": "custom", "content": {"type": "?"}}),
    ("view.comm", STATE),
    ("view.layout.comm", STATE),
    ("_library().comm", STATE),
    ("lab", {"type": "hello"}),
    ("lab", {"type": "dock"}),
    ("lab", {"type": "?"}),
]
"""The comms of a view, of what a page loads with it, and of the extension, and messages to them."""


@pytest.fixture
def watched(kernel):
    state = kernel.run(HOOKS)
    assert state.ok, state.error
    yield kernel
    assert kernel.run("for hook in ('pre_execute', 'post_execute'): events.unregister(hook, heard)").ok
    for line in ("%unload_ext agentmagic", "%load_ext agentmagic"):  # the tests of this kernel know of no page
        assert kernel.run(line).ok


def comm_of(kernel, expression):
    return kernel.value(f"{expression}.comm_id").strip("'")


def test_no_message_of_ours_runs_a_hook_between_cells(watched):
    for comm, data in OURS:
        watched.tell(comm_of(watched, comm), data)
    assert watched.value("of_pages()") == "[]"


def test_no_message_of_ours_and_no_page_that_loads_its_widgets_runs_a_hook_while_a_cell_runs(watched):
    subshell = watched.subshell()
    if subshell is None:
        pytest.skip("this kernel has no subshells: messages wait for the cell")
    sent = [(comm_of(watched, comm), data) for comm, data in OURS]
    cell = watched.send("input()")  # blocks the main thread
    watched.asked(cell)
    for comm, data in sent:
        watched.tell(comm, data, subshell=subshell)
    watched.tell("control", {}, opens="jupyter.widget.control")
    watched.tell("control", {"method": "request_states"})
    watched.type("go on")
    assert watched.finish(cell).ok
    assert watched.value("of_pages(), view.mounted.is_set()") == "([], True)"


def test_a_message_of_another_widget_runs_the_hooks_as_before(watched):
    comm = comm_of(watched, "slider.comm")
    watched.tell(comm, {"method": "update", "state": {"value": 7}, "buffer_paths": []})
    assert watched.value("slider.value") == "7"
    assert watched.value("of_pages()") == "[('comm_msg', 'MainThread')]"
