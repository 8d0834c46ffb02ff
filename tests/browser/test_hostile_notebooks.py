"""Notebooks and pages that try to have the JupyterLab extension act: nothing runs, is inserted or is loaded."""

import json
from itertools import product

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell, writes
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("closed_dock")]

KERNEL = {"name": "python3", "display_name": "python3", "language": "python"}
LINE = "globals().__setitem__('pwned', 1)"
PROPOSAL = {"kind": "code", "source": LINE, "why": "x", "cell": "target", "number": 1, "before": LINE}
PROPOSALS = [{"id": action, "action": action, **PROPOSAL} for action in ("insert", "change", "remove")]
MESSAGES = (
    {"type": "show"},
    {"type": "state", "session": "x", "model": "x", "cost": "", "waits": "x", "view": "forged"},
    {"type": "dock"},
    {"target_name": "agentmagic.lab", "comm_id": "forged", "data": {"type": "show"}},
    {"msg_type": "comm_msg", "content": {"comm_id": "forged", "data": {"type": "show"}}},
    {"type": "run", "code": LINE},
    {"type": "proposals", "proposals": PROPOSALS},
    {"msg_type": "comm_msg", "content": {"comm_id": "forged", "data": {"type": "proposals", "proposals": PROPOSALS}}},
    {"type": "settle", "settled": [{"id": "a", "fate": "kept", "source": LINE, "ran": True}]},
)
METADATA = {
    "agentmagic": {"staged": True, "state": "keep", "code": LINE, "view": "forged", "trusted": True},
    "trusted": True,
    "agentmagic.lab": {"type": "proposals", "proposals": PROPOSALS},
}


def scripts():
    """HTML that would send each message, or press our commands, if it could."""
    for message in MESSAGES:
        words = json.dumps(message)
        yield f"<script>window.postMessage({words}, '*'); window.parent.postMessage({words}, '*')</script>"
        yield f"<img src=x onerror='window.postMessage({words}, \"*\")'>"
    for command in ("agentmagic:panel", "notebook:run-all-cells"):
        yield f"<button data-commandlinker-command='{command}' data-commandlinker-args='{{}}'>Load agentmagic</button>"
    yield "<agentmagic-view view='forged' data-wanted></agentmagic-view>"
    yield "<div class='agentmagic-dock'><agentmagic-view view='forged'></agentmagic-view></div>"
    yield "<div class='agentmagic-staged-bar'><button class='jp-mod-accept'>Keep all</button></div>"
    yield "<iframe srcdoc=\"<script>parent.postMessage({type: 'show'}, '*')</script>\"></iframe>"
    yield "<svg onload='document.dispatchEvent(new CustomEvent(\"agentmagic\"))'></svg>"


def outputs():
    """Outputs that hold what an attack would hold, as HTML, as our own MIME types and as widgets."""
    for page in scripts():
        yield new_output("display_data", {"text/html": page, "text/plain": "x"})
    types = (
        "application/vnd.agentmagic.lab+json",
        "application/vnd.agentmagic+json",
        "application/vnd.jupyter.widget-view+json",
    )
    for kind, message in product(types, MESSAGES):
        yield new_output("execute_result", {kind: message, "text/plain": "x"}, execution_count=1)
    yield new_output("display_data", {"application/javascript": f"window.postMessage({json.dumps(MESSAGES[0])}, '*')"})
    yield new_output("display_data", {"text/markdown": next(scripts())})
    yield new_output("stream", name="stdout", text=json.dumps(MESSAGES[1]))


def hostile():
    """Return a notebook that attacks by its metadata and by its cells, one for each output."""
    attacked = [
        new_code_cell(LINE, id=f"target-{number}", outputs=[output], metadata=METADATA, execution_count=1)
        for number, output in enumerate(outputs())
    ]
    written = [new_markdown_cell(page, metadata=METADATA) for page in scripts()]
    others = [new_raw_cell("%load_ext agentmagic", metadata=METADATA), new_code_cell("%load_ext agentmagic")]
    target = new_code_cell(LINE, id="target", metadata=METADATA)
    return new_notebook(cells=[target, *attacked, *written, *others], metadata=METADATA | {"kernelspec": KERNEL})


LOOK = """async () => {
  const {content} = await harness.kernel().requestCommInfo({})
  const panel = harness.panel()
  await panel.sessionContext.ready
  return {
    staged: document.querySelectorAll('.jp-Cell > .agentmagic-staged, .agentmagic-staged-removal').length,
    comms: Object.keys(content.comms).length,
    cells: panel.content.model.cells.length,
    ran: panel.content.widgets.filter(cell => cell.promptNode?.textContent.includes('*')).length,
    open: [...document.querySelectorAll('#agentmagic-panel')].some(node => node.offsetParent),
    dialogs: document.querySelectorAll('.jp-Dialog').length,
    pwned: window.pwned,
  }
}"""


def test_a_hostile_notebook_makes_nothing_run_appear_or_load(lab):
    lab.reload()  # without a panel that a test before has left open
    document = hostile()
    assert len(document.cells) >= 60
    path = lab.folder / "hostile.ipynb"
    path.write_text(writes(document), encoding="utf-8")
    notebook = lab.open(path)
    for message in MESSAGES:
        notebook.page.evaluate("message => window.postMessage(message, '*')", message)
    seen = notebook.page.evaluate(LOOK)
    calm = {"staged": 0, "comms": 0, "cells": len(document.cells), "ran": 0, "open": False, "dialogs": 0}
    assert {key: value for key, value in seen.items() if value is not None} == calm
    notebook.close()


SEND = """
from comm import get_comm_manager
def send(**changed):
    comm = next(one for one in get_comm_manager().comms.values() if one.target_name == "agentmagic.lab")
    comm.send({"type": "proposals", "proposals": [PROPOSAL | changed]})
"""


def test_staged_cells_of_the_kernel_are_shown_only_if_each_field_is_as_it_should_be(open_notebook):
    proposal = {**PROPOSAL, "id": "good", "action": "insert", "cell": ""}
    wrong = "for field in PROPOSAL:\n    send(**{'why': 'Bad.', field: ['x']})\nsend(action='run', why='Bad.')"
    notebook = open_notebook(f"PROPOSAL = {proposal}\n{SEND}", wrong, "send()", run=3)
    cards = notebook.page.locator(".agentmagic-staged")
    expect(cards).to_have_count(1)
    expect(cards).not_to_contain_text("Bad.")
    assert notebook.page.evaluate("() => harness.panel().content.widgets.length") == 4
