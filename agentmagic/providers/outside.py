"""Agents of other makers (`acp:`): each owns its loop, so a session runs another kind of turn for them."""

import re
from pathlib import PurePath

from agentmagic.platforms import split_command
from agentmagic.providers.base import FREE, KINDS, Family, Provider
from agentmagic.secrets import redact
from agentmagic.text import one_line

PREFIX = "acp:"
NAMES = ("claude", "codex", "copilot", "gemini", "goose", "kimi", "opencode", "qwen")
"""The agents that `agentmagic.acp.agents` knows."""
SHOWN = 100
"""Characters of a command that a message shows."""

PROVIDERS = (
    Provider(
        name="acp",
        make="agentmagic.acp.model:make",
        about="an agent with a login of its own: claude, codex, gemini, or a command",
        package="acp",
        extra="acp",
        prices=FREE,  # the agent reports what its own account is charged, or nothing
        all_models=Family(re.compile(""), KINDS, window=None),
    ),
)


def is_outside(model: object) -> bool:
    """Return whether a model is the name of an outside agent."""
    return isinstance(model, str) and model.strip().startswith(PREFIX)


def shown_name(model: str) -> str:
    """Return the name of a model as it is shown and recorded: the command of an outside agent without folders and keys.

    A mark stands for each folder, so that no command has the name of a known agent.
    """
    if not is_outside(model):
        return model
    written = model.strip().removeprefix(PREFIX).strip()
    try:
        words = split_command(written)
    except ValueError:
        words = [written]
    return f"{PREFIX}{redact(one_line(' '.join(map(_without_folder, words)), SHOWN))}"


def _without_folder(word: str) -> str:
    """Return a word of a command with a mark for the folder of a path of this machine."""
    before, mark, path = word.rpartition("=")
    is_of_machine = path.startswith("~") or PurePath(path).is_absolute()
    return f"{before}{mark}…/{PurePath(path).name}" if is_of_machine else word
