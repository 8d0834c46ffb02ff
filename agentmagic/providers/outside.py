"""Describes `acp:`, agents of other makers, such as Claude Code.

Each such agent runs its own agent loop in a process of its own. So a session runs another kind of turn for it, without
agentmagic's loop.
"""

import re
from pathlib import PurePath

from agentmagic.platforms import split_command
from agentmagic.providers.base import FREE, KINDS, Family, Provider
from agentmagic.secrets import redact
from agentmagic.text import single_line

PREFIX = "acp:"
NAMES = ("claude", "codex", "copilot", "gemini", "goose", "kimi", "opencode", "qwen")
"""The names of the agents that `agentmagic.acp.agents` can start."""
LONGEST_SHOWN = 100
"""The most characters of a command that a message shows."""

PROVIDERS = (
    Provider(
        name="acp",
        make="agentmagic.acp.model:make",
        about="an agent with a login of its own: claude, codex, gemini, or a command",
        package="acp",
        extra="acp",
        prices=FREE,  # agentmagic computes no cost: the agent has its own account, and reports its cost itself
        all_models=Family(re.compile(""), KINDS, window=None),
    ),
)


def is_outside(model: object) -> bool:
    """Return whether `model` is a name such as "acp:claude", which means an agent of another maker."""
    return isinstance(model, str) and model.strip().startswith(PREFIX)


def display_name(model: str) -> str:
    """Return the name of a model as it is shown and recorded.

    A name such as "acp:COMMAND" starts an agent of another maker. Folders and keys in its command are hidden. The mark
    "…" replaces a folder, so that a shown command is never equal to the short name of a known agent.
    """
    if not is_outside(model):
        return model
    command = model.strip().removeprefix(PREFIX).strip()
    try:
        words = split_command(command)
    except ValueError:
        words = [command]
    return f"{PREFIX}{redact(single_line(' '.join(map(_without_folder, words)), LONGEST_SHOWN))}"


def _without_folder(word: str) -> str:
    """Return a word of a command. "…" replaces the folder if it is, or has after "=", a path from the root or "~"."""
    before, mark, path = word.rpartition("=")
    is_of_machine = path.startswith("~") or PurePath(path).is_absolute()
    return f"{before}{mark}…/{PurePath(path).name}" if is_of_machine else word
