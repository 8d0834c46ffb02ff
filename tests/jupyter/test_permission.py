"""Permission as a person at a notebook meets it: what is asked and shown, what may be typed, what never starts."""

import json
import sys

import pytest

from tests.jupyter.harness import BATCH, CONSOLE, ROOT

SERVERS = ROOT / "tests" / "tools" / "mcp" / "servers"
RAW = (sys.executable, "-S", SERVERS / "raw.py")
OBLIGING = (sys.executable, SERVERS / "obliging.py")
HOSTILE = (sys.executable, "-S", SERVERS / "hostile.py")

ACT = """
@tool(ask=True)
def act(what: str) -> str:
    "Act."
    return "acted: " + what
"""
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


def answers(kernel, code, *typed, **front_end):
    """Run a cell, typing lines as it asks; return it and the prompts."""
    cell = kernel.send(code, **front_end)
    prompts = []
    for line in typed:
        prompts.append(kernel.asked(cell)["prompt"])
        kernel.type(line)
    return kernel.finish(cell), prompts


def test_if_the_output_of_a_cell_fails_approvals_are_typed_and_the_answer_is_printed(kernel):
    kernel.run(ACT + "play(calls('act', what='a'), 'It is done.')")
    broken = "from agentmagic.display.transcript import Transcript\nfed, Transcript.feed = Transcript.feed, None"
    kernel.run(broken)
    try:
        cell, prompts = answers(kernel, "%%agent\nAct.", "y")
    finally:
        kernel.run("Transcript.feed = fed")
    assert cell.ok
    assert "the output of this cell has failed" in prompts[0]
    assert "what  a\n" in prompts[0]
    assert cell.stream.endswith("It is done.\n")
    assert kernel.value("agent.tool_calls, agent.tool_failures") == "(1, 0)"


# -- a call ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["a different one please", "always ask me before that", "y but not today"])
def test_a_reason_that_begins_like_a_yes_is_a_no(kernel, reason):
    kernel.run(ACT + "play(calls('act', what='a'), 'done')")
    cell, _ = answers(kernel, "%%agent\nhello", reason)
    assert "acted" not in cell.text
    assert kernel.value("agent.messages[2].parts[0].text").endswith(f"and said: {reason}.'")


def test_what_is_typed_wrong_is_asked_for_again_and_the_call_is_not_lost(kernel):
    kernel.run(ACT + "play(calls('act', what='a'), 'done')")
    cell, prompts = answers(kernel, "%%agent\nhello", "e", "what = b", '["b"]', '{"how": "b"}', 'e {"what": "b"}')
    assert "no JSON (" in prompts[2]
    assert "no JSON object" in prompts[3]
    assert "cannot be used" in prompts[4]
    assert "acted: b" in cell.text


def test_arguments_are_shown_as_they_are_in_the_card_and_in_the_prompt(kernel):
    kernel.run(ACT + f'play(calls("act", what="{EVIL}"), "first", calls("act", what="{EVIL}"), "second")')
    cell = kernel.send("%%agent\nhello")
    kernel.asked(cell)
    kernel.wait_for_text(cell, "waits for you")
    assert r"what  \x1b[2Jharmless\u202e" in cell.displays[0]["text/html"]
    kernel.type("n")
    kernel.finish(cell)
    _, (prompt,) = answers(kernel, "%%agent\nhello", "n", **CONSOLE)
    assert prompt.splitlines()[1:3] == [r"  what  \x1b[2Jharmless\u202e", "        what  something else"]


def test_a_cell_whose_output_is_captured_shows_all_in_the_prompt(kernel):
    kernel.run(ACT + "play(calls('act', what='a'), 'done')")
    _, (prompt,) = answers(kernel, "%%capture out\nget_ipython().run_cell_magic('agent', '', 'hello')", "y")
    assert "what  a" in prompt


def test_a_definition_that_changed_after_always_is_shown_with_its_change(kernel, add):
    add("hostile", *HOSTILE, "change", "forget")
    kernel.run("play(calls('count'), 'one', calls('forget'), 'two', calls('count'), 'three')")
    answers(kernel, "%%agent\nhello", "a")
    answers(kernel, "%%agent\nhello", "y")
    cell, (prompt,) = answers(kernel, "%%agent\nhello", "n")
    assert prompt.partition("\n")[2].startswith("Its definition has changed since you approved it:\n")
    assert "-Counts the words of a text." in prompt
    assert "+Sends all your files to a stranger." in prompt
    assert "denied" in cell.text


def test_an_end_of_input_and_an_empty_line_are_a_no(kernel):
    kernel.run(ACT + "play(calls('act', what='a'), 'done')")
    cell, _ = answers(kernel, "%%agent\nhello", "")
    assert "acted" not in cell.text


def test_the_variable_that_denies_is_over_every_yes(kernel, add):
    add("raw", *RAW)
    kernel.run("%mcp allow raw\nimport os\nos.environ['AGENTMAGIC_PERMISSION'] = 'deny'")
    kernel.run("play(calls('echo', text='a'), 'done')")
    cell = kernel.run("%%agent --permission allow\nhello")
    kernel.run("del os.environ['AGENTMAGIC_PERMISSION']")
    assert "AGENTMAGIC_PERMISSION=deny is set" in cell.text
    assert "denies every tool call" in cell.text


# -- servers by name ---------------------------------------------------------------------------------


def test_what_is_allowed_has_to_be_a_tool_and_is_shown(kernel, add):
    add("raw", *RAW)
    for command in ("allow", "disable", "enable"):
        assert "has no tool 'ecko'. Its tools: echo" in kernel.run(f"%mcp {command} raw ecko").error
    kernel.run("%mcp allow raw echo 'd*'")
    assert "runs unasked  echo, d*" in kernel.run("%mcp get raw").stream


def test_a_server_cannot_pass_for_the_notebook(kernel, project):
    assert "cannot be called 'notebook'" in kernel.run(f"%mcp add notebook {RAW[0]}").error
    assert "cannot be called 'notebook'" in kernel.run(f"%mcp load {project({'notebook': program()})}").stream
    kernel.run("%mcp remove unnamed")


def test_tab_knows_servers_tools_prompts_and_resources(kernel, add):
    add("raw", *RAW)
    add("kind", *OBLIGING)
    assert {"raw", "kind"} <= set(kernel.complete("%mcp get "))
    assert kernel.complete("%mcp disable kind t") == ["talk", "think"]
    assert kernel.complete("%mcp allow raw ec") == ["echo"]
    assert "kind" not in kernel.complete("%mcp allow raw ")
    assert kernel.complete("%mcp prompt kind gr") == ["greet"]
    assert kernel.complete("%mcp prompt -s agent kind greet n") == ["name="]
    assert kernel.complete("%%agent\nread @kind:memo://on") == ["memo://one"]
    assert "memo://of/" in kernel.complete("%%agent\nread @kind:")


def test_tab_knows_the_servers_of_an_agent_and_starts_none(kernel):
    kernel.run(f"play('first', mcp={ {'own': program()} })")
    assert kernel.complete("%mcp tools ow") == ["own"]
    assert "echo" not in kernel.complete("%mcp allow own ")
    assert kernel.complete("%mcp prompt own ") == ["--ask", "--help", "--session"]
    assert "state         stopped" in kernel.run("%mcp get own").stream


# -- a project's file --------------------------------------------------------------------------------


@pytest.mark.parametrize("front_end", [{}, BATCH], ids=["somebody can type", "nobody can"])
def test_a_server_of_a_file_starts_on_no_way_before_it_was_approved(kernel, project, tmp_path, front_end):
    started = tmp_path / "started"
    code = f"open({str(started)!r}, 'w')"
    path = project({"proj": {"command": sys.executable, "args": ["-c", code]}})
    kernel.run(f"play('first', mcp={str(path)!r})")
    for cell in (
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
        "with agent.fork() as other: pass",
    ):
        kernel.run(cell, **front_end)
        assert "needs approval" in kernel.run("%mcp").stream
    assert not started.exists()
    kernel.run("%mcp approve proj")
    assert started.exists()


def test_what_a_file_asks_for_is_asked_in_a_line_of_its_own_and_only_for_what_it_may_be(kernel, project):
    inputs = [
        {
            "id": "team",
            "options": ["red", "blue"],
            "description": "Team?\nStart the MCP server\x1b[2J",
            "default": "red",
        },
    ]
    path = project({"proj": program("${input:team}")}, ".vscode/mcp.json", inputs=inputs)
    _, prompts = answers(kernel, f"%mcp load {path}", "green", "blue", "n")
    assert prompts[0] == prompts[1]
    assert prompts[0].startswith("The file asks for 'team': Team? Start the MCP server")
    assert prompts[0].endswith(" (red, blue), else red: ")
    assert "raw.py blue\n" in prompts[2]


def test_an_approval_that_cannot_be_kept_is_said_in_a_line(kernel, project, tmp_path):
    (tmp_path / "file").write_text("")
    kernel.run(f"os.environ['XDG_DATA_HOME'] = {str(tmp_path / 'file')!r}")
    path = project({"proj": program()})
    cell, _ = answers(kernel, f"%mcp load {path}", "y")
    assert cell.ok
    assert "The approval cannot be kept in" in cell.stream
    cell = kernel.run("%mcp approve proj")
    assert cell.error.startswith("ServerError: The approval cannot be kept in")
    assert "needs approval" in kernel.run("%mcp").stream


def test_an_interrupt_at_the_question_starts_nothing(kernel, project):
    cell = kernel.send(f"%mcp load {project({'proj': program()})}")
    kernel.asked(cell)
    kernel.interrupt()
    assert kernel.finish(cell).error == "Interrupted: what was under way is given up."
    assert "needs approval" in kernel.run("%mcp").stream


def test_no_secret_of_an_entry_is_shown(kernel, project):
    entry = {
        "url": "http://me:a-long-secret-1@127.0.0.1:9/mcp?apiKey=a-long-secret-2",
        "headers": {"X-Token": "a-long-3"},
    }
    cell, (prompt,) = answers(kernel, f"%mcp load {project({'proj': entry})}", "y")
    for said in (prompt, cell.stream, kernel.run("%mcp get proj").stream, kernel.run("%mcp").stream):
        assert "a-long-" not in said
    assert "with X-Token" in prompt
