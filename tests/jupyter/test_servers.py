"""Servers across cells: connected in one, used in others, gone in a third; approved, asked, interrupted, restarted."""

import json
import sys

import psutil
import pytest

from tests.jupyter.conftest import SETUP
from tests.jupyter.harness import OBLIGING, RAW, Kernel
from tests.tools.mcp.calling import are_gone, is_alive

ENTRY = {"command": sys.executable, "args": [*map(str, RAW[1:])]}


# -- through cells -----------------------------------------------------------------------------------


def test_a_server_of_one_cell_gets_variables_is_used_in_others_restarted_and_gone_after_a_third(kernel, add):
    kernel.run("%env PLACE=Rome")
    assert "ready        " in add("-e TOWN=${PLACE} --timeout 7 raw -e GREETING='good day'", *RAW, "odd").stream
    kernel.run("%mcp allow raw\nplay(calls('environment'), 'done', calls('pid'), 'first', calls('pid'), 'second')")
    for prompt in ("hello", "again", "and again"):
        assert kernel.run(f"%%agent\n{prompt}").ok
    seen = "__import__('json').loads(agent.messages[2].parts[0].text)"
    assert kernel.value(f"[{seen}[name] for name in ('TOWN', 'GREETING')]") == "['Rome', 'good day']"
    first, second = (int(kernel.value(f"int(agent.messages[{row}].parts[0].text)")) for row in (6, 10))
    assert first == second
    assert "ready" in kernel.run("%mcp restart raw").stream
    assert not is_alive(first)
    assert "There is no server 'row'. Did you mean raw? Servers: raw" in kernel.run("%mcp restart row").error
    shown = kernel.run("%mcp get raw").stream
    assert "left out      scalar: Its schema does not describe an object." in shown
    assert "dropped       bad_type: type strange of x" in shown
    assert kernel.run("%mcp remove raw").ok
    assert "There are no servers" in kernel.run("%mcp").stream


def test_a_server_shows_itself_and_its_tools_are_taken_away_and_given_back(kernel, add):
    add("obliging", *OBLIGING)
    shown = kernel.run("%mcp get obliging").stream
    assert "state         ready" in shown
    assert "It says of itself:\nBe kind to it." in shown
    assert "does not get: talk, visit" in kernel.run("%mcp disable obliging talk visit").stream
    listed = kernel.run("%mcp tools obliging").stream
    assert ("talk" in listed, "book" in listed) == (False, True)
    assert "disabled      talk, visit" in kernel.run("%mcp get obliging").stream
    assert "gets every tool" in kernel.run("%mcp enable obliging").stream
    for command in ("allow", "disable", "enable"):
        assert "has no tool 'tlak'. Did you mean talk? Its tools: " in kernel.run(f"%mcp {command} obliging tlak").error
    assert "without asking" in kernel.run("%mcp allow obliging book 't*'").stream
    assert "runs unasked  book, t*" in kernel.run("%mcp get obliging").stream
    kernel.run("play(calls('talk'), 'done')")
    kernel.run("%%agent\nhello")
    assert "all is well" in kernel.run("%mcp logs obliging").stream


def test_the_resources_and_prompts_of_a_server_go_along_if_the_cell_itself_names_them(kernel, add):
    add("obliging", *OBLIGING)
    assert "@obliging:memo://one" in kernel.run("%mcp resources obliging").stream
    kernel.run("x = '@obliging:memo://one'\nplay('read', 'read', 'Hello, Ann.')")
    assert "did not read 'memo://none'" in kernel.run("%%agent\nWhat is in @obliging:memo://none?").error
    assert kernel.run("%%agent\nWhat is in @obliging:memo://one? Mail me@obliging:no and @other:thing").ok
    assert kernel.value("[part.text for part in agent.messages[0].parts[1:]]") == "['remember the milk']"
    assert "@other:thing" in kernel.value("agent.messages[0].text")
    assert kernel.run("%%agent --new\nWhat is {x}?").ok
    assert kernel.value("[part.type for part in agent.messages[0].parts]") == "['text']"
    assert "obliging  greet  name= [tone=]  Greet somebody." in kernel.run("%mcp prompts").stream
    shown = kernel.run("%mcp prompt obliging greet name=Ann").stream
    assert shown == "user: Say hello to Ann in a warm tone.\n"
    assert "Hello, Ann." in kernel.run("%mcp prompt obliging greet name=Ann tone=cold --ask").text
    assert kernel.value("agent.messages[-2].text") == "'Say hello to Ann in a cold tone.'"
    assert "Write NAME=VALUE" in kernel.run("%mcp prompt obliging greet Ann").error


def test_a_server_asks_the_person_who_types_and_the_sessions_model_once_the_person_agrees(kernel, add):
    add("obliging", *OBLIGING)
    kernel.run("%mcp allow obliging\nplay(calls('book'), 'done', calls('think'), '4', 'It is 4.')")
    cell, prompts = kernel.answer("%%agent\nhello", "Rome", "3", "y")
    assert "Book a trip" in prompts[0]
    assert "accept city='Rome' nights=3 breakfast=True" in kernel.value("agent.messages[2].parts[0].text")
    cell, (prompt,) = kernel.answer("%%agent --new\nhello", "y")
    assert "wants your model to answer" in prompt
    assert "It is 4." in cell.text
    assert "obliging had the model answer it" in cell.text
    assert kernel.value("agent.messages[2].parts[0].text").endswith(": 4'")
    assert kernel.value("agent.usage.requests") == "3"


# -- servers that fail -------------------------------------------------------------------------------


def test_a_turn_runs_with_the_servers_that_work_and_those_of_an_agent_are_restarted_and_removed_too(kernel):
    kernel.run(f"play('first', 'second', mcp={ {'own': ENTRY, 'gone': {'command': 'no-such-command'}} })")
    assert "state         stopped" in kernel.run("%mcp get own").stream
    assert "ready" in kernel.run("%mcp restart own").stream
    cell = kernel.run("%%agent\nhello")
    assert cell.ok, cell.error
    remedy = "%mcp restart gone tries again, %mcp remove gone forgets the server."
    assert "The MCP server 'gone' cannot be used" in cell.text
    assert remedy in cell.text
    assert remedy in kernel.run("%agent tools").stream
    states = [line.split()[:2] for line in kernel.run("%mcp").stream.splitlines()]
    assert states == [["own", "ready"], ["gone", "failed"]]
    assert "command not found" in kernel.run("%mcp restart gone").error
    assert kernel.run("%mcp remove gone").ok
    assert "gone" not in kernel.run("%%agent\nagain").text
    kernel.run("%mcp remove own")


def test_a_server_that_has_failed_shows_the_end_of_its_stderr(kernel, tmp_path):
    (tmp_path / "noisy.py").write_text("import sys\nfor n in range(9): print('line', n, file=sys.stderr)")
    assert "it ended without an answer" in kernel.run(f"%mcp add noisy {sys.executable} {tmp_path / 'noisy.py'}").error
    assert "Its last words on stderr:\nline 4\nline 5\n" in kernel.run("%mcp get noisy").stream
    kernel.run("%mcp remove noisy")


def test_a_bad_entry_of_a_file_is_mended_by_setting_its_variable(kernel, tmp_path, own_approvals):
    entries = {"unset": {**ENTRY, "env": {"PLACE": "${NO_SUCH_PLACE}"}}, "odd": {"args": []}, "good": ENTRY}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    cell, (prompt,) = kernel.answer(f"%mcp load {tmp_path / '.mcp.json'}", "y")
    assert "Start the MCP server 'good'" in prompt
    assert "the variable NO_SUCH_PLACE is not set" in cell.stream
    states = dict(line.split()[:2] for line in kernel.run("%mcp").stream.splitlines())
    assert states == {"unset": "failed", "odd": "failed", "good": "ready"}
    kernel.run("import os\nos.environ['NO_SUCH_PLACE'] = 'Rome'\nplay('first')")
    assert "no one has approved it yet" in kernel.run("%mcp restart unset").error
    assert "ready" in kernel.run("%mcp approve unset").stream
    text = kernel.run("%%agent\nhello").text
    assert 'neither "command" nor "url"' in text
    assert "unset" not in text
    kernel.run("del os.environ['NO_SUCH_PLACE']\n%mcp remove unset\n%mcp remove odd\n%mcp remove good")


# -- kernels that come and go ------------------------------------------------------------------------


def connected(kernel):
    """Connect two servers, call one, and return the processes of both."""
    assert kernel.run(SETUP).ok
    for name in ("good", "bad"):
        assert "ready" in kernel.run(f"%mcp add {name} {' '.join(map(str, RAW))}\n%mcp allow {name}").stream
    assert kernel.run("play(calls('bad__echo', text='hi'), 'done')").ok
    assert "✓ bad__echo (bad)" in kernel.run("%%agent\nhello").text
    found = [child.pid for child in psutil.Process(kernel.pid).children() if "raw.py" in " ".join(child.cmdline())]
    assert len(found) == 2
    return found


@pytest.mark.slow
def test_a_kernel_that_is_restarted_in_a_call_or_shut_down_leaves_no_server_behind_and_connects_anew(tmp_path):
    with Kernel(sys.executable, {"IPYTHONDIR": str(tmp_path / "ipython")}, tmp_path) as kernel:
        first = connected(kernel)
        kernel.run("play(calls('good__wait'), 'done')")
        kernel.wait_for_text(kernel.send("%%agent\nhello"), "waiting")
        kernel.restart(now=False)
        assert are_gone(first)
        second = connected(kernel)
        assert set(first).isdisjoint(second)
    assert not any(map(is_alive, second))
