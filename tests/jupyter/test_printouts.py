"""What `%agent` and `%mcp` print: HTML where a notebook shows it, else the same as plain text."""

import re

import pytest

from tests.jupyter.harness import BATCH, CONSOLE

LINES = ["status", "help", "history", "tools", "models", "stats", "usage", "sessions", "save --help", "cost", "debug"]
SETUP = "play('It is tea.')\nagent.ask('What is it?')"


def shown(cell):
    return [message["content"]["data"] for message in cell.messages if message["msg_type"] == "display_data"]


def lasting(text):
    """The lines but for those that say where a session is saved, which differs between the front ends."""
    return [line for line in text.splitlines() if not re.search("nowhere: |Not saved: ", line)]


@pytest.mark.parametrize("line", [*(f"%agent {line}" for line in LINES), "%mcp", "%%agent --show\nhello"])
def test_a_notebook_shows_html_whose_plain_text_a_console_and_a_batch_run_print(kernel, line):
    kernel.run(SETUP)
    cell = kernel.run(line)
    (data,) = shown(cell)
    assert not cell.count("stream")
    assert data["text/html"].startswith('<div class="agentmagic agentmagic-printout')
    for front_end in (BATCH, CONSOLE):
        printed = kernel.run(line, **front_end)
        assert not shown(printed)
        if line != "%agent debug":  # has times in a console, and further records
            assert lasting(printed.stream) == lasting(data["text/plain"])


def test_the_notebook_of_a_cassette_has_the_same_text_when_it_is_recorded_and_checked(kernel, tmp_path):
    kernel.run(SETUP)
    assert shown(kernel.run("%agent status"))
    kernel.run(f"import os\nos.environ['AGENTMAGIC_CASSETTE'] = {str(tmp_path / 'one.cassette.yaml')!r}")
    for line in ("%agent record", "%agent status", "%agent live"):
        cell, checked = kernel.run(line), kernel.run(line, **BATCH)
        assert not shown(cell)
        assert lasting(cell.stream) == lasting(checked.stream)
    kernel.run("del os.environ['AGENTMAGIC_CASSETTE']")
    assert shown(kernel.run("%agent status"))


def test_messages_about_a_turn_are_small_lines_below_it(kernel):
    kernel.run("play('It is tea.')")
    cell = kernel.run("%%agent -o answer\nWhat is it?")
    assert "<small>answer is bound: str, " in "".join(data.get("text/html", "") for data in shown(cell))


def test_what_others_wrote_is_escaped(kernel):
    kernel.run("play('<b>tea</b>')\nagent.ask('<img src=x>')")
    (data,) = shown(kernel.run("%agent history"))
    assert "&lt;img src=x&gt;" in data["text/html"]
    assert "<img" not in data["text/html"]
