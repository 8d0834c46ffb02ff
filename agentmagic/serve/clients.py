"""Commands and settings that the user can paste to add a served notebook to a known MCP client."""

import json
import sys
from collections.abc import Iterator

from agentmagic.platforms import join_command

NAME = "notebook"
"""The name of the notebook in the client's list of MCP servers."""


def bridge_command(notebook: str) -> list[str]:
    """Return the command with which an MCP client starts the bridge in this Python. It contains no token."""
    return [sys.executable, "-m", "agentmagic", "bridge", *([notebook] if notebook else ())]


def client_lines(notebook: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each known MCP client, and the shell command or JSON that adds the notebook to that client."""
    program, *arguments = command = bridge_command(notebook)
    yield "Claude Code", join_command(["claude", "mcp", "add", NAME, "--", *command])
    yield "Codex", join_command(["codex", "mcp", "add", NAME, "--", *command])
    # Gemini CLI expects the program before "--". "-s user", because it writes no project settings in the home folder.
    yield "Gemini CLI", join_command(["gemini", "mcp", "add", "-s", "user", NAME, program, "--", *arguments])
    yield "Copilot CLI", join_command(["copilot", "mcp", "add", NAME, "--", *command])
    entry = {"command": program, "args": arguments}
    yield "VS Code", join_command(["code", "--add-mcp", json.dumps({"name": NAME, **entry})])
    yield "Others", json.dumps({"mcpServers": {NAME: entry}})
