"""How the programs that are known to us join a served notebook: a line for each, to be pasted."""

import json
import shlex
import sys
from collections.abc import Iterator

NAME = "notebook"
"""What the notebook is called in a client."""


def bridge_command(notebook: str) -> list[str]:
    """Return the command that a client starts: the bridge, of this Python. It holds no token."""
    return [sys.executable, "-m", "agentmagic", "bridge", *([notebook] if notebook else ())]


def client_lines(notebook: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each known client, and the line that adds the notebook to it."""
    program, *arguments = bridge_command(notebook)
    command = shlex.join((program, *arguments))
    yield "Claude Code", f"claude mcp add {NAME} -- {command}"
    yield "Codex", f"codex mcp add {NAME} -- {command}"
    yield "Gemini CLI", f"gemini mcp add {NAME} -- {command}"
    entry = {"mcpServers": {NAME: {"command": program, "args": arguments}}}
    yield "Others, in their mcpServers", json.dumps(entry)
