"""The table of outside agents, what is typed after acp:, and the sentences for what is missing."""

import os
import sys
from pathlib import Path

import pytest

from agentmagic.acp import agents
from agentmagic.acp.agents import KNOWN, outside_agent
from agentmagic.errors import UnknownModel
from agentmagic.providers.outside import NAMES, display_name
from agentmagic.providers.registry import providers, resolve
from agentmagic.secrets import register_secret
from agentmagic.tools.mcp.stdio import Tail

CLAUDE = "@agentclientprotocol/claude-agent-acp"


def program(folder, name, text="exit 0"):
    """Write a program that a PATH finds."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


@pytest.mark.parametrize(
    ("written", "command", "args", "row"),
    [
        ("acp:npx", "npx", (), None),
        ("acp:npx -y '' '\0'", "npx", ("-y", "", "\0"), None),
        ("acp:some-agent --like gemini", "some-agent", ("--like", "gemini"), None),
        ("acp:claude", "claude-agent-acp", (), "claude"),
        (" acp: gemini ", "gemini", ("--acp",), "gemini"),
        ("acp:gemini --acp -m flash", "gemini", ("--acp", "-m", "flash"), "gemini"),
        (f"acp:npx -y {CLAUDE}@0.101.0", "npx", ("-y", f"{CLAUDE}@0.101.0"), "claude"),
        (f"acp:npx -y {CLAUDE}", "npx", ("-y", CLAUDE), "claude"),
        ("acp:~/bin/kimi acp", str(Path("~/bin/kimi").expanduser()), ("acp",), "kimi"),
        ("acp:/opt/my\\ tools/codex-acp", "/opt/my tools/codex-acp", (), "codex"),
        ("acp:some-agent --say 'two words'", "some-agent", ("--say", "two words"), None),
        ("acp:npx -y some-agent --acp", "npx", ("-y", "some-agent", "--acp"), None),
    ],
)
def test_a_name_is_a_row_and_a_command_is_split_as_a_shell_does_it(written, command, args, row):
    agent = outside_agent(written)
    assert (agent.command, agent.args) == (command, args)
    like = KNOWN[row] if row else agents.OutsideAgent("", "")
    assert (agent.own, agent.install, agent.node) == (like.own, like.install, like.node)


@pytest.mark.parametrize(
    ("written", "login"),
    [
        ("acp:claude", "claude-agent-acp --cli auth login"),
        (f"acp:npx -y {CLAUDE}@0.101.0 --flag", f"npx -y {CLAUDE}@0.101.0 --cli auth login"),
        ("acp:/opt/codex-acp", "/opt/codex-acp login"),
        ("acp:gemini --acp -m flash", "gemini"),
        ("acp:npx -y some-agent --acp", "npx -y some-agent"),
    ],
)
def test_the_login_is_that_of_the_program_that_was_typed(written, login):
    assert agents.login_problem(outside_agent(written)).endswith(f", in a terminal: {login}")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("acp:", "acp: names no agent. Write acp:NAME with one of claude, codex, gemini,"),
        ("acp:say 'no end", "cannot be read: no closing quotation. Close its quotes"),
    ],
)
def test_what_names_no_agent_is_an_error_that_says_what_to_write(written, words):
    with pytest.raises(UnknownModel, match=words):
        outside_agent(written)


def test_each_row_says_how_to_install_and_to_log_in_and_has_no_key_of_ours():
    ours = {key for row in providers().values() for key in row.keys}
    for row in KNOWN.values():
        assert row.install
        assert row.login
        assert not row.own & ours


def test_the_docs_have_the_table():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "outside-agents.md"
    page = guide.read_text(encoding="utf-8").replace("\\|", "|")
    for row in KNOWN.values():
        own = ", ".join(f"`{name}`" for name in sorted(row.own))
        seen = "" if row.is_seen else " not yet seen |"
        cells = [f"`{row.model}`", f"`{row.install}`", f"`{row.login}`", own, str(row.node or "")]
        assert f"| {' | '.join(cells)} |{seen}".replace("|  |", "| |").replace("|  |", "| |") in page


@pytest.mark.posix
@pytest.mark.parametrize(
    ("model", "present", "sentence"),
    [
        ("acp:claude", ("npm", "claude-agent-acp"), ""),
        (
            "acp:claude",
            ("npm",),
            (
                "acp:claude needs the program claude-agent-acp, which is not on the PATH of this kernel. "
                f"To install it: npm install -g {CLAUDE}"
            ),
        ),
        (
            "acp:claude",
            (),
            (
                "acp:claude needs Node.js 22 or newer, and there is none on the PATH of this kernel. "
                f"Install it from https://nodejs.org, and then the agent: npm install -g {CLAUDE}"
            ),
        ),
        (
            "acp:kimi",
            (),
            (
                "acp:kimi needs the program kimi, which is not on the PATH of this kernel. "
                "To install it: uv tool install kimi-cli"
            ),
        ),
        (
            "acp:cluade",
            (),
            (
                "There is no program 'cluade' on the PATH of this kernel. Did you mean acp:claude? "
                "Install it, or write the whole path: acp:/path/to/cluade"
            ),
        ),
    ],
)
def test_a_program_that_is_missing_is_named_with_the_command_that_installs_it(place, model, present, sentence):
    for name in present:
        program(place, name)
    assert agents.problem_of(outside_agent(model)) == sentence


@pytest.mark.posix
@pytest.mark.parametrize(
    ("says", "found"),
    [("v20.20.2", "v20.20.2"), ("v22.0.0", None), ("hello", None), (None, "none")],
)
def test_a_node_that_is_too_old_is_named_with_both_versions(place, says, found):
    if says:
        program(place, "node", f"echo {says}")
    assert agents.node_problem(KNOWN["claude"]) == (
        f"acp:claude needs Node.js 22 or newer, and {found} was found on the PATH of this kernel. "
        f"Install it from https://nodejs.org, and then the agent: npm install -g {CLAUDE}"
        if found
        else ""
    )
    assert agents.node_problem(KNOWN["goose"]) == ""


NPX = "npm error code {}\nnpm error network request to the registry failed\nnpm error A complete log is in a file\n"
NODE = "file.js:3\n  oops\nSyntaxError: Unexpected token\n    at main\n\nNode.js v24.1.0\n"


@pytest.mark.parametrize(
    ("model", "written", "sentence"),
    [
        (
            "acp:npx -y some-agent --acp",
            NPX.format("EAI_AGAIN"),
            (
                "acp:npx -y some-agent --acp could not be fetched: npx did not reach its registry. "
                "Install it once, where there is a network: npm install -g some-agent"
            ),
        ),
        (
            "acp:codex",
            NODE,
            (
                "acp:codex ended with exit status 1: SyntaxError: Unexpected token / Node.js v24.1.0. "
                "Try it in a terminal: codex-acp"
            ),
        ),
        ("acp:goose", "", "acp:goose ended with exit status 1. Try it in a terminal: goose acp"),
    ],
)
def test_an_agent_that_ends_at_its_start_is_named_with_its_last_words(model, written, sentence):
    tail = Tail()
    tail.write(written.encode())
    assert agents.end_problem(outside_agent(model), 1, tail) == sentence


@pytest.mark.posix
def test_an_old_node_is_the_cause_of_an_end_and_npx_that_of_a_long_silence(place):
    program(place, "node", "echo v18.1.0")
    assert "22 or newer, and v18.1.0 was found" in agents.end_problem(KNOWN["claude"], 1, Tail())
    silent = agents.silence_problem(outside_agent("acp:npx -y some-agent"), "start", 60)
    assert silent.endswith(
        "npx may still be fetching it. Install it once, where there is a network: npm install -g some-agent"
    )


@pytest.mark.parametrize(
    ("model", "methods", "sentence"),
    [
        ("acp:codex", ("ChatGPT",), "acp:codex is not logged in. Log in once, in a terminal: codex-acp login"),
        (
            "acp:my-agent --acp",
            ("API\x1b[2J Key", "b" * 500),
            (
                f"acp:my-agent --acp is not logged in (API Key, {'b' * 59}…). "
                "Log in once with its own command, in a terminal: my-agent"
            ),
        ),
    ],
)
def test_a_login_is_named_with_its_command(model, methods, sentence):
    assert agents.login_problem(outside_agent(model), methods) == sentence


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("openai:gpt-5.4", "openai:gpt-5.4"),
        ("acp:claude", "acp:claude"),
        (" acp: npx -y some-agent ", "acp:npx -y some-agent"),
        ("acp:/opt/bin/claude", "acp:…/claude"),  # not the known agent
        (
            "acp:/usr/bin/python '/home/ada/my agent.py' --keep=/tmp/x ./y ~/z",
            "acp:…/python …/my agent.py --keep=…/x ./y …/z",
        ),
        ("acp:'open", "acp:'open"),
    ],
)
def test_a_name_is_shown_without_the_folders_of_this_machine(model, shown):
    assert display_name(model) == shown


def test_no_message_shows_a_key_of_a_typed_command():
    register_secret("a-key-of-the-command")
    agent = outside_agent("acp:my-agent --token a-key-of-the-command")
    tail = Tail()
    messages = [
        agent.model,
        agents.problem_of(agent),
        agents.login_problem(agent),
        agents.end_problem(agent, 1, tail),
        agents.silence_problem(agent, "start", 1),
    ]
    assert not any("a-key-of-the-command" in message for message in messages)


@pytest.mark.posix
def test_the_agents_of_this_machine_are_those_whose_program_is_found(place):
    assert agents.list_installed() == []
    program(place, "gemini")
    assert [agent.model for agent in agents.list_installed()] == ["acp:gemini"]
    assert Path(os.environ["PATH"]) == place


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - providers().keys()))
def test_the_bare_name_of_a_known_agent_is_met_with_the_prefix(name):
    with pytest.raises(UnknownModel, match=f"Did you mean acp:{name}\\?"):
        resolve(name)
    assert set(NAMES) == set(KNOWN)
