"""The lines with which known clients join a served notebook."""

import json
import shlex
import sys

import pytest

from agentmagic.serve.clients import bridge_command, client_lines

NOTEBOOK = "my sales (1).ipynb"


@pytest.mark.parametrize(
    ("client", "before"),
    [
        ("Claude Code", ["claude", "mcp", "add", "notebook", "--"]),
        ("Codex", ["codex", "mcp", "add", "notebook", "--"]),
        ("Copilot CLI", ["copilot", "mcp", "add", "notebook", "--"]),
    ],
)
def test_a_line_gives_the_client_the_command_of_the_bridge_behind_dashes(client, before):
    assert shlex.split(dict(client_lines(NOTEBOOK))[client]) == [*before, *bridge_command(NOTEBOOK)]


def test_gemini_takes_the_program_before_the_dashes():
    words = shlex.split(dict(client_lines(NOTEBOOK))["Gemini CLI"])
    program, *arguments = bridge_command(NOTEBOOK)
    assert words == ["gemini", "mcp", "add", "-s", "user", "notebook", program, "--", *arguments]


def test_vs_code_and_others_are_given_json():
    lines = dict(client_lines(NOTEBOOK))
    entry = {"command": sys.executable, "args": ["-m", "agentmagic", "bridge", NOTEBOOK]}
    command, option, given = shlex.split(lines["VS Code"])
    assert (command, option, json.loads(given)) == ("code", "--add-mcp", {"name": "notebook", **entry})
    assert json.loads(lines["Others"]) == {"mcpServers": {"notebook": entry}}


def test_a_kernel_without_a_notebook_is_found_by_its_folder(monkeypatch):
    assert dict(client_lines(""))["Codex"].endswith(" -m agentmagic bridge")
    monkeypatch.setattr(sys, "platform", "win32")
    assert '"my sales (1).ipynb"' in dict(client_lines(NOTEBOOK))["Codex"]
