"""How the programs that are known to us join a served notebook: a line for each, to be pasted."""

import json
import sys
from collections.abc import Iterator

from agentmagic.platforms import join_command

NAME = "notebook"
"""What the notebook is called in a client."""


def bridge_command(notebook: str) -> list[str]:
    """Return the command that a client starts: the bridge, of this Python. It holds no token."""
    return [sys.executable, "-m", "agentmagic", "bridge", *([notebook] if notebook else ())]


def client_lines(notebook: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each known client, and the line that adds the notebook to it."""
    program, *arguments = command = bridge_command(notebook)
    yield "Claude Code", join_command(["claude", "mcp", "add", NAME, "--", *command])
    yield "Codex", join_command(["codex", "mcp", "add", NAME, "--", *command])
    # Gemini CLI takes the program before the "--", and does not write to the folder of a project from the home folder.
    yield "Gemini CLI", join_command(["gemini", "mcp", "add", "-s", "user", NAME, program, "--", *arguments])
    yield "Copilot CLI", join_command(["copilot", "mcp", "add", NAME, "--", *command])
    entry = {"command": program, "args": arguments}
    yield "VS Code", join_command(["code", "--add-mcp", json.dumps({"name": NAME, **entry})])
    yield "Others", json.dumps({"mcpServers": {NAME: entry}})
