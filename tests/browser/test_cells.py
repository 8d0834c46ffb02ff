"""Cells in JupyterLab: they stream, keep their order, ask, are interrupted, and stay in the saved notebook."""

import json

import psutil
import pytest
from playwright.sync_api import expect

from tests.browser.cells import CONNECT, EVERYWHERE, KERNELS

pytestmark = pytest.mark.browser

SOON = 0.5
"""Seconds that LOOP-14 allows for an interrupt."""

PATIENCE = 10.0
"""Seconds after which a process that should end has not ended."""

WORDS = [f"word{number}." for number in range(40)]

INTERRUPTED = {
    "a stalled stream": ("agent = Session(Agent(Stalled('Half an ans')))", "Half an"),
    "a slow MCP tool": (CONNECT + "%mcp allow raw\nplay(calls('wait'))", "waiting"),
    "a function that sleeps": ("play(calls('nap'))", "running"),
    "a retry wait": ("play(RateLimited('busy', retry_after=60))", "trying again in 60 s"),
    "an approval": ("play(calls('order', what='tea'))", "waits for you"),
}
"""By what the turn is at: a cell that prepares it, and what its output shows by then."""


@EVERYWHERE
def test_an_answer_streams_into_its_cell_and_ends_as_one_static_output(open_notebook):
    step = {"text": " ".join(WORDS), "pace": 0.05}
    notebook = open_notebook(f"play({step})", "%%agent\nhello")
    notebook.run(1)
    notebook.start(2)
    for word in WORDS[2:23:10]:
        notebook.page.wait_for_function(
            "([word, last]) => harness.text(2).includes(word) && !harness.text(2).includes(last) && !harness.done[2]",
            arg=[word, WORDS[-1]],
        )
    notebook.finish(2)
    place, output = notebook.outputs(2)
    assert place["data"]["text/plain"] == ""
    assert set(output["data"]) == {"text/html", "text/plain"}
    assert " ".join(WORDS) in output["data"]["text/plain"]
    notebook.wait_for_text(2, " ".join(WORDS))
    assert "▌" not in notebook.text(2)


def test_run_all_keeps_the_order_of_the_cells(open_notebook):
    notebook = open_notebook(
        "play({'text': 'the first answer', 'pace': 0.05}, 'the second answer')",
        "%%agent\nfirst",
        "print([message.text for message in agent.messages])",
        "%%agent\nsecond",
    )
    notebook.run_all()
    notebook.wait_for_text(2, "the first answer")
    assert notebook.text(3).strip() == "['first', 'the first answer']"
    notebook.wait_for_text(4, "the second answer")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("prepare", "sign"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_an_interrupt_ends_the_cell_at_once_and_the_conversation_goes_on(
    open_notebook, prepare, sign, kernel, record_property
):
    notebook = open_notebook(
        prepare,
        "%%agent\nhello",
        "print(invalid_history(agent.messages))\nagent.agent = Agent(ScriptedModel(['second answer']))",
        "%%agent\nagain",
        "print(os.getpid())",
        kernel=kernel,
    )
    notebook.run(1)
    notebook.start(2)
    notebook.wait_for_text(2, sign)
    seconds = notebook.interrupt(2)
    record_property("seconds", seconds)
    assert seconds < SOON
    assert "interrupted" in json.dumps(notebook.outputs(2)[1]).lower()
    notebook.wait_for_text(2, "Interrupted: the turn was cancelled")
    assert notebook.run(3).strip() == "None"
    notebook.run(4)
    notebook.wait_for_text(4, "second answer")
    kernel_process = psutil.Process(int(notebook.run(5)))
    children = kernel_process.children(recursive=True)
    notebook.shut_down_kernel()
    assert psutil.wait_procs([kernel_process, *children], PATIENCE)[1] == []


@pytest.mark.parametrize(
    ("lab", "trusted", "has_kernel"),
    [("lab", True, True), ("lab", True, False), ("lab", False, True), ("notebook", True, True)],
    ids=["a new kernel", "no kernel", "a notebook of somebody else", "Notebook 7"],
    indirect=["lab"],
)
def test_a_saved_notebook_shows_its_turns_when_opened_again(lab, open_notebook, trusted, has_kernel):
    notebook = open_notebook("play(calls('order', what='tea'), 'It **comes**.')", "%%agent --permission allow\nhello")
    notebook.run(1)
    notebook.run(2)
    notebook.save()
    notebook.close()
    if not trusted:  # the signature is of what is in it
        notebook.path.write_text(notebook.path.read_text(encoding="utf-8").replace("hello", "good day"))
    lab.reload()
    notebook = lab.open(notebook.path)
    if not has_kernel:
        notebook.shut_down_kernel()
    output = notebook.output(2)
    expect(output.locator("strong", has_text="comes")).to_be_visible()
    expect(output.locator("summary", has_text="order")).to_be_visible()
    expect(output.get_by_text("ordered tea")).to_be_hidden()
    output.locator("summary").click()
    expect(output.get_by_text("ordered tea")).to_be_visible()
    assert "not found" not in output.inner_text()
    assert output.locator(".am-cell").count() == 0


@EVERYWHERE
def test_a_card_with_long_arguments_stays_within_its_cell(open_notebook):
    notebook = open_notebook("play(calls('order', what='much tea ' * 60), 'Fine.')", "%%agent --permission allow\ntea")
    notebook.run(1)
    notebook.run(2)
    notebook.output(2).locator(".am-card").wait_for()
    widths = (
        "() => [harness.cell(2).node, harness.cell(2).outputArea.node].map(node => node.getBoundingClientRect().right)"
    )
    cell, output = notebook.page.evaluate(widths)
    assert output <= cell
