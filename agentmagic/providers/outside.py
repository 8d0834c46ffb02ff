"""Agents of other makers (`acp:`): each owns its loop, so a session runs another kind of turn for them."""

import re

from agentmagic.providers.base import FREE, KINDS, Family, Provider

PREFIX = "acp:"

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
