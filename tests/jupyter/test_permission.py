"""Permission as a person at a notebook meets it: what is asked and shown, what may be typed, what never starts."""

import json
import sys

import pytest

from tests.jupyter.conftest import ACT
from tests.jupyter.harness import BATCH, CONSOLE, RAW

EVIL = "\\x1b[2Jharmless\\u202e\\nwhat  something else"


@pytest.fixture
def project(kernel, tmp_path, own_approvals):
    """A project's file of servers, which are gone after the test."""
    named = []

    def write(servers, path=".mcp.json", **more):
        named.extend(servers)
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(json.dumps({"mcpServers": servers, **more}))
        return tmp_path / path

    yield write
    for name in named:
        kernel.run(f"%mcp remove {name}")


def program(*words, **more):
    command, *args = map(str, (*RAW, *words))
    return {"command": command, "args": args, **more}


def test_if_the_output_of_a_cell_fails_approvals_are_typed_and_the_answer_is_printed(kernel):
    kernel.run(ACT + "play(calls('act', what='a'), 'It is done.')")
    broken = "from agentmagic.display.transcript import Transcript\nfed, Transcript.feed = Transcript.feed, None"
    kernel.run(broken)
    try:
        cell, prompts = kernel.answer("%%agent\nAct.", "y")
    finally:
        kernel.run("Transcript.feed = fed")
    assert cell.ok
    assert "the output of this cell has failed" in prompts[0]
    assert "what  a\n" in prompts[0]
    assert cell.stream.endswith("It is done.\n")
    assert kernel.value("agent.tool_calls, agent.tool_failures") == "(1, 0)"


# -- a call ------------------------------------------------------------------------------------------


def test_arguments_are_shown_as_they_are_in_the_card_and_in_the_prompt(kernel):
    kernel.run(ACT + f'play(calls("act", what="{EVIL}"), "first", calls("act", what="{EVIL}"), "second")')
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    kernel.wait_for_text(cell, "waits for you")
    assert r"what  \x1b[2Jharmless\u202e" in cell.displays[0]["text/html"]
    kernel.type("n")
    kernel.finish(cell)
    _, (prompt,) = kernel.answer("%%agent\nhello", "n", **CONSOLE)
    assert prompt.splitlines()[1:3] == [r"  what  \x1b[2Jharmless\u202e", "        what  something else"]
    kernel.run("play(calls('act', what='a'), 'done')")
    captured = "%%capture out\nget_ipython().run_cell_magic('agent', '', 'hello')"  # shows no card
    assert "what  a" in kernel.answer(captured, "y")[1][0]


FOUND = """{"searches": [{"query": "jit", "found": [{"url": "https://x.org/", "title": "X", "text": "So."}]}],
 "text": "It has one.", "citations": [{"of": "It has one", "url": "https://x.org/", "title": "X", "quote": "So."}]}"""


def test_the_web_of_a_cell_is_asked_for_once_and_its_sources_are_shown(kernel):
    kernel.run(f"play({FOUND}, {FOUND}, 'Without.')")
    cell, (prompt,) = kernel.answer("%%agent --web\nnews?", "y", **CONSOLE)
    assert prompt.startswith("web_search:\n")
    assert "A search may cost a fee.\n" in prompt
    assert prompt.endswith("read pages of the web in this session.\n[y]es, in this session, [n]o and why: ")
    assert "Sources:\n[1] X\n    https://x.org/" in cell.stream
    cell = kernel.run("%%agent --web\nmore?")
    assert cell.displays[0]["text/plain"].startswith("✓ Searched the web (scripted) jit [1 page]\n")
    assert "It has one. [1]\n\nSources:\n[1] X\n    https://x.org/" in cell.displays[0]["text/plain"]
    assert "Searched the web" in cell.displays[0]["text/html"]
    kernel.run("%%agent\nwithout?")
    assert kernel.value("[len(one.hosted) for one in agent.agent.model.requests]") == "[2, 2, 0]"
    assert kernel.value("agent.turns[0].events[-1].result.sources[0].quotes") == "('So.',)"


def test_what_the_provider_carries_out_is_told_by_the_status_the_tools_and_a_preview(kernel):
    kernel.run("from agentmagic import web_search\nplay('hi', tools=[web_search(['x.org'])])")
    told = "web_search, carried out by the provider of scripted:script"
    assert f"web         {told}\n" in kernel.run("%agent status").stream
    assert f"The web: {told}." in kernel.run("%agent tools").stream
    shown = kernel.run("%%agent --show --web\nnews?").stream
    assert "-- Carried out by the provider of scripted:script --\nweb_" in shown
    assert 'web_search: {"name": "web_search", "domains": ["x.org"]}\n' in shown
    assert 'web_fetch: {"name": "web_fetch"}\n' in shown


def test_the_permission_option_leaves_the_rules_of_a_policy_and_the_variable_that_denies(kernel, add):
    add("raw", *RAW)
    kernel.run("%mcp allow raw\nfrom agentmagic import Policy, Rule\nimport os")
    kernel.run("secret = calls('echo', text='secret')")
    kernel.run("play(secret, 'done', secret, 'done', permission=Policy([Rule('deny', when={'text': 'secret'})]))")
    assert "⊘ echo text: secret" in kernel.run("%%agent --permission allow\nhello").text
    kernel.run("os.environ['AGENTMAGIC_PERMISSION'] = 'deny'")
    cell = kernel.run("%%agent --permission allow\nhello")
    kernel.run("del os.environ['AGENTMAGIC_PERMISSION']")
    assert "AGENTMAGIC_PERMISSION=deny is set" in cell.text
    assert "denies every tool call" in cell.text


# -- a project's file --------------------------------------------------------------------------------


def test_a_server_of_a_file_starts_on_no_way_before_it_was_approved(kernel, project, tmp_path):
    started = tmp_path / "started"
    code = f"open({str(started)!r}, 'w')"
    path = project({"proj": {"command": sys.executable, "args": ["-c", code]}})
    kernel.run(f"play('first', mcp={str(path)!r})")
    ways = (
        "%%agent\nhello",
        "%%agent --permission allow\nhello",
        "%%agent\nread @proj:memo://one",
        "%mcp restart proj",
        "%mcp tools proj",
        "%mcp prompts proj",
        "%mcp resources proj",
        "%mcp prompt proj greet",
        "%agent tools",
        "agent.call('echo', text='hi')",
        "agent.fork().ask('hello')",
    )
    for cell in ways:
        kernel.run(cell)  # somebody could type
        kernel.run(cell, **BATCH)
    assert "needs approval" in kernel.run("%mcp").stream
    assert not started.exists()
    kernel.run("%mcp approve proj")
    assert started.exists()


def test_a_server_of_a_file_starts_once_its_command_was_shown_and_agreed_to_and_is_asked_about_anew_if_it_changed(
    kernel, project
):
    path = project({"proj": program()})
    cell, (asked,) = kernel.answer(f"%mcp load {path}", "y")
    assert asked.startswith("Start the MCP server 'proj', which the project names?\n")
    assert str(RAW[-1]) in asked
    assert f"The file {path} names it." in asked
    assert "ready" in cell.stream
    assert "ready" in kernel.run(f"%mcp load {path}").stream
    _, (asked,) = kernel.answer(f"%mcp load {project({'proj': program(allow=['*'])})}", "n")
    assert "Without asking you, it may run: *" in asked
    assert "It has changed. Before it was: " in asked
    assert "needs approval" in kernel.run("%mcp").stream


def test_a_server_of_a_file_waits_for_approve_after_a_no_an_interrupt_and_where_nobody_can_type(kernel, project):
    load = f"%mcp load {project({'proj': program()})}"
    cell = kernel.run(load, **BATCH)
    assert "no one has approved it yet" in cell.stream
    cell = kernel.send(load)
    kernel.asked(cell)
    kernel.interrupt()
    assert "Interrupted: what was under way is given up." in kernel.finish(cell).stream
    assert "%mcp approve proj lets it start" in kernel.answer(load, "")[0].stream
    assert "needs approval" in kernel.run("%mcp").stream
    approved = kernel.run("%mcp approve proj").stream
    assert approved.startswith("proj may start: ")
    assert "ready" in approved
    assert "needs no approval" in kernel.run("%mcp approve proj").stream


def test_no_secret_of_an_entry_is_shown(kernel, project):
    entry = {
        "url": "http://me:a-long-secret-1@127.0.0.1:9/mcp?apiKey=a-long-secret-2",
        "headers": {"X-Token": "a-long-3"},
    }
    cell, (prompt,) = kernel.answer(f"%mcp load {project({'proj': entry})}", "y")
    for said in (prompt, cell.stream, kernel.run("%mcp get proj").stream, kernel.run("%mcp").stream):
        assert "a-long-" not in said
    assert "with X-Token" in prompt
