"""Agents of other makers (`acp:`). Each runs its own agent loop, so a session runs another kind of turn for them."""

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
        prices=FREE,  # the agent itself reports what its account is charged, if anything
        all_models=Family(re.compile(""), KINDS, window=None),
    ),
)


def is_outside(model: object) -> bool:
    """Return whether a model is the name of an outside agent."""
    return isinstance(model, str) and model.strip().startswith(PREFIX)


def display_name(model: str) -> str:
    """Return the name of a model as it is shown and recorded. The command of an outside agent loses folders and keys.

    The mark "…" replaces each folder, so that a shown command is never equal to the name of a known agent.
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
    """Return a word of a command; in a path of this machine, the mark "…" replaces the folder."""
    before, mark, path = word.rpartition("=")
    is_of_machine = path.startswith("~") or PurePath(path).is_absolute()
    return f"{before}{mark}…/{PurePath(path).name}" if is_of_machine else word
