"""Cells in JupyterLab: they stream, are interrupted, and stay in the saved notebook."""

import psutil
import pytest
from playwright.sync_api import expect

from tests.browser.cells import CONNECT

pytestmark = pytest.mark.browser

LONGEST_INTERRUPT = 0.5
"""Seconds that a turn may take to end after an interrupt, in addition to a plain cell in the same run."""

PATIENCE = 10.0
"""Seconds after which a process that should end has not ended."""

WORDS = [f"word{number}." for number in range(40)]


def test_an_answer_streams_into_its_cell_and_ends_as_one_static_output(begun):
    cell = begun({"text": " ".join(WORDS), "pace": 0.05})
    for word in WORDS[2:23:10]:
        cell.page.wait_for_function(
            "([word, last]) => harness.text(2).includes(word) && !harness.text(2).includes(last) && !harness.done[2]",
            arg=[word, WORDS[-1]],
        )
    cell.finish(" ".join(WORDS))
    place, output = cell.notebook.outputs(2)
    assert place["data"]["text/plain"] == ""
    assert set(output["data"]) == {"text/html", "text/plain"}
    assert " ".join(WORDS) in output["data"]["text/plain"]
    assert "▌" not in cell.notebook.text(2)


INTERRUPTED = [
    ("agent = Session(Agent(Stalled('Half an ans')))", "Half an"),
    (CONNECT + "%mcp allow raw\nplay(calls('wait'))", "waiting"),
    ("play(calls('nap'))", "waiting for nap ("),
    ("play(RateLimited('busy', retry_after=60))", "trying again in 60 s"),
    ("play(calls('order', what='tea'))", "waits for you"),
]
"""A cell that prepares a turn, and what its output shows when it is interrupted."""


def test_an_interrupt_ends_the_cell_at_once_whatever_it_is_at_and_the_conversation_goes_on(open_notebook):
    prepared = [cell for prepare, _ in INTERRUPTED for cell in (prepare, "%%agent\nhello")]
    again = "print(invalid_history(agent.messages), os.getpid())\nagent.agent = Agent(ScriptedModel(['second answer']))"
    notebook = open_notebook("print('asleep')\ntime.sleep(60)", *prepared, again, "%%agent\nagain")
    notebook.start(1)
    notebook.wait_for_text(1, "asleep")
    plain = notebook.interrupt(1)
    for number, (_, sign) in enumerate(INTERRUPTED):
        index = 2 * number + 3
        notebook.run(index - 1)
        notebook.start(index)
        notebook.wait_for_text(index, sign)
        assert notebook.interrupt(index) < plain + LONGEST_INTERRUPT, sign
        notebook.wait_for_text(index, "stopped")
        expect(notebook.output(index).locator(".am-running")).to_be_hidden()
    valid, process = notebook.printed(12).split()
    assert valid == "None"
    notebook.run(13)
    notebook.wait_for_text(13, "second answer")
    kernel = psutil.Process(int(process))
    children = kernel.children(recursive=True)
    notebook.shut_down_kernel()
    assert psutil.wait_procs([kernel, *children], PATIENCE)[1] == []


def test_a_saved_notebook_shows_its_turns_when_opened_again_without_a_kernel_and_by_somebody_else(lab, open_notebook):
    notebook = open_notebook(
        "play(calls('order', what='tea'), 'It **comes**.')", "%%agent --permission allow\nhi", run=2
    )
    notebook.wait_for_text(2, "comes")
    notebook.save()
    notebook.end()
    for trusted in (True, False):
        if not trusted:  # the signature is of what is in it
            notebook.path.write_text(notebook.path.read_text(encoding="utf-8").replace("\\nhi", "\\ngood day"))
        lab.reload()
        notebook = lab.open(notebook.path)
        output = notebook.output(2)
        expect(output.locator("strong", has_text="comes")).to_be_visible()
        if trusted:
            notebook.shut_down_kernel()
        expect(output.locator("summary", has_text="order")).to_be_visible()
        expect(output.get_by_text("ordered tea")).to_be_hidden()
        output.locator("summary").click()
        expect(output.get_by_text("ordered tea")).to_be_visible()
        assert "not found" not in output.inner_text()
        assert output.locator(".am-cell").count() == 0
        notebook.end()
