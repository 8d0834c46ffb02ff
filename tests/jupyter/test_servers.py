"""Servers across cells: connected in one, used in others, gone in a third; approved, asked, interrupted, restarted."""

import json
import sys

import psutil
import pytest

from tests.jupyter.conftest import SETUP, pythons
from tests.jupyter.harness import BATCH, ROOT, Kernel, timed
from tests.tools.mcp.calling import are_gone, is_alive

SERVERS = ROOT / "tests" / "tools" / "mcp" / "servers"
RAW = (sys.executable, "-S", SERVERS / "raw.py")
OBLIGING = (sys.executable, SERVERS / "obliging.py")
ENTRY = {"command": sys.executable, "args": ["-S", str(SERVERS / "raw.py")]}
BABBLING = """
import sys
from mcp.server import MCPServer

server = MCPServer("babbling")
for name in {tools}:
    server.add_tool(lambda: "done", name=name)
for number in range(100):
    print("line", number, file=sys.stderr)
server.run()
"""
SOON = 0.5
"""Seconds that LOOP-14 allows."""


@pytest.fixture
def project(kernel, tmp_path, own_approvals):
    """A project's file that names a server."""

    def write(**more):
        entry = {**ENTRY, **more}
        (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"proj": entry}}))
        return tmp_path / ".mcp.json"

    yield write
    kernel.run("%mcp remove proj")


# -- through cells -----------------------------------------------------------------------------------


def test_a_server_of_one_cell_is_used_in_others_and_gone_after_a_third(kernel, add):
    assert "ready" in add("raw", *RAW).stream
    kernel.run("%mcp allow raw")
    kernel.run("play(calls('pid'), 'first', calls('pid'), 'second')")
    assert "✓ pid (raw)" in kernel.run("%%agent\nhello").text
    assert "✓ pid (raw)" in kernel.run("%%agent\nagain").text
    first, second = (int(kernel.value(f"int(agent.messages[{row}].parts[0].text)")) for row in (2, 6))
    assert first == second
    assert kernel.run("%mcp remove raw").ok
    assert not is_alive(first)
    assert "There are no servers" in kernel.run("%mcp").stream


def test_a_call_that_is_interrupted_leaves_the_server_for_the_next(kernel, add):
    add("raw", *RAW)
    kernel.run("%mcp allow raw")
    kernel.run("play(calls('wait'), calls('echo', text='alive'), calls('cancelled'), 'second')")
    cell = kernel.send("%%agent\nhello")
    kernel.wait_for_text(cell, "running")
    with timed() as seconds:
        kernel.interrupt()
        kernel.finish(cell)
        assert seconds() < 4 * SOON
    assert "cancelled" in cell.error
    assert kernel.value("valid()") == "True"
    assert "✓ echo (raw)" in kernel.run("%%agent\nagain").text
    assert kernel.value("agent.messages[-2].parts[0].text") == "'[true]'"  # it was told


def test_a_server_gets_variables_headers_and_limits_from_its_line(kernel, add):
    kernel.run("%env PLACE=Rome")
    assert "ready        " in add("-e TOWN=${PLACE} --timeout 7 raw -e GREETING='good day'", *RAW).stream
    kernel.run("%mcp allow raw\nplay(calls('environment'), 'done')")
    kernel.run("%%agent\nhello")
    seen = "__import__('json').loads(agent.messages[2].parts[0].text)"
    assert kernel.value(f"[{seen}[name] for name in ('TOWN', 'GREETING')]") == "['Rome', 'good day']"
    assert (
        "http://localhost/mcp is a web address, which takes no -e."
        in kernel.run("%mcp add web -e A=1 http://localhost/mcp").error
    )
    assert "'A' is not a variable. Write NAME=VALUE." in kernel.run("%mcp add -e A other x").error
    kernel.run("%mcp remove raw")


def test_a_state_has_its_numbers_right_and_says_each_failure_once(kernel, tmp_path, own_approvals):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            BABBLING.format(tools=[f"{name}-{n}" for n in range(25 - 24 * (name == "one"))])
        )
        kernel.run(f"%mcp add {name} {sys.executable} {tmp_path / name}.py")
    shown = kernel.run("%mcp").stream
    assert "1 tool\n" in shown
    assert "25 tools" in shown
    assert "(20 of 25)" in kernel.run("%mcp disable two nosuch").error
    seen = kernel.run("%mcp get one").stream
    assert "last words" not in seen
    assert "The end of its stderr (%mcp logs one shows more):\nline 95\nline 96" in seen
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"odd": {"args": []}}}))
    assert kernel.run(f"%mcp load {tmp_path / '.mcp.json'}").stream.count("neither") == 1
    for name in ("one", "two", "odd"):
        kernel.run(f"%mcp remove {name}")


def test_get_names_the_tools_that_stay_out_and_the_keywords_that_were_dropped(kernel, own_approvals):
    kernel.run(f"%mcp add raw {' '.join(map(str, RAW))} odd")
    seen = kernel.run("%mcp get raw").stream
    assert "left out      scalar: Its schema does not describe an object." in seen
    assert "dropped       bad_type: type strange of x" in seen
    kernel.run("%mcp remove raw")


def test_get_shows_a_server_and_logs_its_last_words(kernel, add):
    add("obliging", *OBLIGING)
    shown = kernel.run("%mcp get obliging").stream
    assert "state         ready" in shown
    assert "obliging.py" in shown
    assert "It says of itself:\nBe kind to it." in shown
    kernel.run("%mcp allow obliging\nplay(calls('talk'), 'done')")
    kernel.run("%%agent\nhello")
    assert "all is well" in kernel.run("%mcp logs obliging").stream


def test_tools_are_taken_away_and_given_back(kernel, add):
    add("obliging", *OBLIGING)
    assert "does not get: visit, talk" in kernel.run("%mcp disable obliging talk visit").stream
    listed = kernel.run("%mcp tools obliging").stream
    assert "talk" not in listed
    assert "book" in listed
    assert "disabled      visit, talk" in kernel.run("%mcp get obliging").stream
    assert "gets every tool" in kernel.run("%mcp enable obliging").stream
    assert "talk" in kernel.run("%mcp tools obliging").stream
    assert "has no tool 'tlak'" in kernel.run("%mcp disable obliging tlak").error


def test_a_server_is_restarted(kernel, add):
    add("raw", *RAW)
    assert "ready" in kernel.run("%mcp restart raw").stream
    assert "There is no server 'row'. Servers: raw" in kernel.run("%mcp restart row").error


def test_the_servers_of_a_sessions_agent_are_known_too(kernel):
    program = json.dumps({"own": ENTRY})
    kernel.run(f"play('first', mcp={program})")
    assert "own" in kernel.run("%mcp").stream
    assert "state         stopped" in kernel.run("%mcp get own").stream
    assert "ready" in kernel.run("%mcp restart own").stream


# -- servers that fail -------------------------------------------------------------------------------


def test_a_turn_runs_although_a_server_of_the_cell_before_failed(kernel, add):
    add("raw", *RAW)
    kernel.run("%mcp allow raw")
    failed = kernel.run("%mcp add clock no-such-command").error
    remedy = "%mcp restart clock tries again, %mcp remove clock forgets the server."
    assert failed.endswith(f"command not found: no-such-command; install it or correct the command. {remedy}")
    kernel.run("play(calls('echo', text='hi'), 'first', calls('echo', text='hi'), 'second')")
    cell = kernel.run("%%agent\nhello")
    assert cell.ok, cell.error
    assert "✓ echo (raw)" in cell.text
    assert "The MCP server 'clock' cannot be used" in cell.text
    assert remedy in cell.text
    assert remedy in kernel.run("%agent tools").stream
    assert "echo" in kernel.run("%mcp tools raw").stream
    assert kernel.run("%mcp remove clock").ok
    assert "clock" not in kernel.run("%%agent\nagain").text


def test_a_server_of_an_agent_that_failed_is_kept_and_removed_in_the_same_way(kernel):
    kernel.run(f"play('first', 'second', mcp={ {'own': ENTRY, 'gone': {'command': 'no-such-command'}} })")
    cell = kernel.run("%%agent\nhello")
    assert cell.ok, cell.error
    assert "%mcp restart gone tries again, %mcp remove gone forgets the server." in cell.text
    states = [line.split()[:2] for line in kernel.run("%mcp").stream.splitlines()]
    assert states == [["own", "ready"], ["gone", "failed"]]
    assert "command not found" in kernel.run("%mcp restart gone").error
    assert kernel.run("%mcp remove gone").ok
    assert "gone" not in kernel.run("%%agent\nagain").text


def test_a_bad_entry_of_a_file_is_mended_by_setting_its_variable(kernel, tmp_path, own_approvals):
    entries = {"unset": {**ENTRY, "env": {"PLACE": "${NO_SUCH_PLACE}"}}, "odd": {"args": []}, "good": ENTRY}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    load = f"%mcp load {tmp_path / '.mcp.json'}"
    cell = kernel.send(load)
    assert "Start the MCP server 'good'" in kernel.asked(cell)["prompt"]
    kernel.type("y")
    assert "the variable NO_SUCH_PLACE is not set" in kernel.finish(cell).stream
    states = {line.split()[0]: line.split()[1] for line in kernel.run("%mcp").stream.splitlines()}
    assert states == {"unset": "failed", "odd": "failed", "good": "ready"}
    kernel.run("import os\nos.environ['NO_SUCH_PLACE'] = 'Rome'\nplay('first')")
    assert "no one has approved it yet" in kernel.run("%mcp restart unset").error
    assert "ready" in kernel.run("%mcp approve unset").stream
    cell = kernel.run("%%agent\nhello")
    assert cell.ok, cell.error
    assert 'neither "command" nor "url"' in cell.text
    assert "unset" not in cell.text
    kernel.run("del os.environ['NO_SUCH_PLACE']\n%mcp remove unset\n%mcp remove odd\n%mcp remove good")


def test_chosen_tools_run_although_a_server_failed_and_a_missing_one_is_told(kernel, add):
    add("raw", *RAW)
    kernel.run("%mcp allow raw")
    kernel.run("%mcp add clock no-such-command")
    kernel.run("play(calls('echo', text='hi'), 'first', 'second')")
    assert "✓ echo (raw)" in kernel.run("%%agent --tools echo\nhello").text
    cell = kernel.run("%%agent --tools echo,tell_time\nhello")
    assert cell.ok, cell.error
    assert "%mcp restart clock" in cell.text
    assert kernel.value("[one.name for one in agent.tools]") == "['echo']"
    kernel.run("%mcp remove clock")
    assert "There is no function or tool 'tell_time'" in kernel.run("%%agent --tools tell_time\nhello").text


# -- a project's file --------------------------------------------------------------------------------


def test_a_server_of_a_file_starts_once_its_command_was_shown_and_agreed_to(kernel, project):
    path = project()
    cell = kernel.send(f"%mcp load {path}")
    asked = kernel.asked(cell)["prompt"]
    assert asked.startswith("Start the MCP server 'proj', which the project names?\n")
    assert ENTRY["args"][-1] in asked
    assert f"The file {path} names it." in asked
    kernel.type("y")
    assert "ready" in kernel.finish(cell).stream
    assert "ready" in kernel.run(f"%mcp load {path}").stream


def test_a_no_leaves_the_server_for_later(kernel, project):
    cell = kernel.send(f"%mcp load {project()}")
    kernel.asked(cell)
    kernel.type("")
    assert "%mcp approve proj lets it start" in kernel.finish(cell).stream
    assert "needs approval" in kernel.run("%mcp").stream
    approved = kernel.run("%mcp approve proj").stream
    assert approved.startswith("proj may start: ")
    assert "ready" in approved
    assert "needs no approval" in kernel.run("%mcp approve proj").stream


def test_where_nobody_can_type_nothing_of_a_file_starts(kernel, project):
    cell = kernel.run(f"%mcp load {project()}", **BATCH)
    assert "no one has approved it yet" in cell.stream
    assert "%mcp approve proj lets it start" in cell.stream
    assert "needs approval" in kernel.run("%mcp").stream


def test_a_file_that_lets_tools_run_unasked_is_asked_about_again(kernel, project):
    cell = kernel.send(f"%mcp load {project()}")
    kernel.asked(cell)
    kernel.type("y")
    kernel.finish(cell)
    cell = kernel.send(f"%mcp load {project(allow=['*'])}")
    asked = kernel.asked(cell)["prompt"]
    assert "Without asking you, it may run: *" in asked
    assert "It has changed. Before it was: " in asked
    kernel.type("n")
    kernel.finish(cell)
    assert "needs approval" in kernel.run("%mcp").stream


# -- prompts and resources ---------------------------------------------------------------------------


def test_a_resource_goes_along_with_a_prompt(kernel, add):
    add("obliging", *OBLIGING)
    assert "@obliging:memo://one" in kernel.run("%mcp resources obliging").stream
    kernel.run("play('read')")
    assert kernel.run("%%agent\nWhat is in @obliging:memo://one? Mail me@obliging:no and @other:thing").ok
    assert kernel.value("[part.type for part in agent.messages[0].parts]") == "['text', 'resource']"
    assert kernel.value("agent.messages[0].parts[1].text") == "'remember the milk'"
    assert "@other:thing" in kernel.value("agent.messages[0].text")


def test_what_a_value_holds_attaches_nothing(kernel, add):
    add("obliging", *OBLIGING)
    kernel.run("x = '@obliging:memo://one'\nplay('read')")
    assert kernel.run("%%agent\nWhat is {x}?").ok
    assert kernel.value("[part.type for part in agent.messages[0].parts]") == "['text']"


def test_a_resource_that_is_not_there_fails_the_cell(kernel, add):
    add("obliging", *OBLIGING)
    kernel.run("play('read')")
    cell = kernel.run("%%agent\nWhat is in @obliging:memo://none/at/all?")
    assert "did not read 'memo://none/at/all'" in cell.error
    assert kernel.value("len(agent.messages)") == "0"


def test_a_prompt_of_a_server_is_shown_and_asked(kernel, add):
    add("obliging", *OBLIGING)
    assert "obliging  greet  name= [tone=]  Greet somebody." in kernel.run("%mcp prompts").stream
    shown = kernel.run("%mcp prompt obliging greet name=Ann").stream
    assert shown == "user: Say hello to Ann in a warm tone.\n"
    kernel.run("play('Hello, Ann.')")
    assert "Hello, Ann." in kernel.run("%mcp prompt obliging greet name=Ann tone=cold --ask").text
    assert kernel.value("agent.messages[0].text") == "'Say hello to Ann in a cold tone.'"
    assert "Write NAME=VALUE" in kernel.run("%mcp prompt obliging greet Ann").error


def test_servers_are_completed_behind_an_at_sign(kernel, add):
    add("obliging", *OBLIGING)
    assert "obliging:" in kernel.complete("%%agent\nWhat is in @obl")
    assert "obliging" in kernel.complete("%mcp restart obl")


# -- what a server asks ------------------------------------------------------------------------------


def test_a_form_of_a_server_is_typed(kernel, add):
    add("obliging", *OBLIGING)
    kernel.run("%mcp allow obliging\nplay(calls('book'), 'done')")
    cell = kernel.send("%%agent\nhello")
    assert "Book a trip" in kernel.asked(cell)["prompt"]
    kernel.type("Rome")
    kernel.asked(cell)
    kernel.type("3")
    kernel.asked(cell)
    kernel.type("y")
    assert kernel.finish(cell).ok
    assert "accept city='Rome' nights=3 breakfast=True" in kernel.value("agent.messages[2].parts[0].text")


def test_a_server_has_the_sessions_model_answer_once_a_person_agrees(kernel, add):
    add("obliging", *OBLIGING)
    kernel.run("%mcp allow obliging\nplay(calls('think'), '4', 'It is 4.')")
    cell = kernel.send("%%agent\nhello")
    assert "wants your model to answer" in kernel.asked(cell)["prompt"]
    kernel.type("y")
    assert "It is 4." in kernel.finish(cell).text
    assert "obliging had the model answer it" in cell.text
    assert kernel.value("agent.messages[2].parts[0].text").endswith(": 4'")
    assert kernel.value("agent.usage.requests") == "3"


# -- approvals ---------------------------------------------------------------------------------------


def test_a_call_is_edited_before_it_runs(kernel, add):
    add("raw", *RAW)
    kernel.run("play(calls('echo', text='rm -rf /'), 'done')")
    cell = kernel.send("%%agent\nhello")
    assert "[e]dit" in kernel.asked(cell)["prompt"]
    kernel.type("e")
    assert '{"text": "rm -rf /"}' in kernel.asked(cell)["prompt"]
    kernel.type("not json")
    assert "That is no JSON" in kernel.asked(cell)["prompt"]
    kernel.type('{"text": "ls"}')
    assert kernel.finish(cell).ok
    assert "text  ls" in str(cell.displays)
    told = kernel.value("agent.messages[2].parts[0].text")
    assert "The user changed the arguments of this call to" in told
    assert "rm -rf" not in told


def test_an_edit_that_changes_nothing_does_not_tell_the_model_of_one(kernel, add):
    add("raw", *RAW)
    kernel.run("play(calls('echo', text='ls'), 'done')")
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    kernel.type('e {"text": "ls"}')
    assert kernel.finish(cell).ok
    assert "The user changed" not in kernel.value("agent.messages[2].parts[0].text")


def test_the_permission_option_leaves_the_rules_of_a_policy(kernel, add):
    add("raw", *RAW)
    kernel.run(
        "from agentmagic import Policy, Rule\n"
        "play(calls('echo', text='secret'), 'done', permission=Policy([Rule('deny', when={'text': 'secret'})]))"
    )
    assert "⊘ echo text: secret" in kernel.run("%%agent --permission allow\nhello").text


# -- kernels that come and go ------------------------------------------------------------------------


@pytest.fixture(params=pythons())
def started(request, tmp_path):
    """Start a kernel of the test's own, to end as it likes."""
    return lambda: Kernel(request.param, {"IPYTHONDIR": str(tmp_path / "ipython")}, tmp_path)


def connected(kernel, *words):
    """Connect two servers, one of which does what the words say, and call it; return the processes of both."""
    assert kernel.run(SETUP).ok
    for name, wrong in (("good", ()), ("bad", words)):
        assert "ready" in kernel.run(f"%mcp add {name} {' '.join(map(str, (*RAW, *wrong)))}\n%mcp allow {name}").stream
    assert kernel.run("play(calls('bad__echo', text='hi'), 'done')").ok
    assert "✓ bad__echo (bad)" in kernel.run("%%agent\nhello").text
    found = [child.pid for child in psutil.Process(kernel.pid).children() if "raw.py" in " ".join(child.cmdline())]
    assert len(found) == 2
    return found


def test_a_kernel_that_is_restarted_in_a_call_leaves_no_server_behind_and_connects_anew(started):
    with started() as kernel:
        first = connected(kernel)
        kernel.run("play(calls('good__wait'), 'done')")
        kernel.wait_for_text(kernel.send("%%agent\nhello"), "waiting")
        kernel.restart(now=False)
        assert are_gone(first)
        assert set(first).isdisjoint(connected(kernel))


@pytest.mark.slow
def test_a_kernel_that_is_shut_down_leaves_no_server_behind_not_even_one_that_will_not_end(started):
    with started() as kernel:
        found = connected(kernel, "stubborn")
    assert not any(map(is_alive, found))


@pytest.mark.slow
def test_a_kernel_that_is_killed_leaves_no_server_behind_that_listens(started):
    with started() as kernel:
        found = connected(kernel)
        kernel.kill()
        assert are_gone(found)
