"""Servers made by others: where they are, and how they are started."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

NPM = Path(os.environ.get("AGENTMAGIC_NPM") or "nowhere")
PLACES = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))


def of_npm(*names: str) -> pytest.MarkDecorator:
    """Skip a test where the packages of these servers are missing."""
    there = shutil.which("node") and all(_script(name).is_file() for name in names)
    return pytest.mark.skipif(
        not there, reason=f"AGENTMAGIC_NPM names no folder with server-{', server-'.join(names)}, or no node"
    )


def of_pypi(name: str) -> pytest.MarkDecorator:
    """Skip a test where this program is missing."""
    return pytest.mark.skipif(not shutil.which(name, path=PLACES), reason=f"{name} is not installed")


def npm(name: str, *args: object) -> list[str]:
    """Return the command line of a server from npm."""
    return ["node", str(_script(name)), *map(str, args)]


def entry(command: Sequence[str], **more: object) -> dict[str, object]:
    """Write a command line as an entry of `mcpServers`."""
    return {"command": command[0], "args": list(command[1:]), **more}


def _script(name: str) -> Path:
    return NPM / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
