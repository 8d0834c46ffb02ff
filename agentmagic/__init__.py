"""Agents in a Jupyter notebook: a model, tools, and a loop that runs in the kernel.

In a notebook, `%load_ext agentmagic` and then `%%agent`. In code:

    from agentmagic import Agent, Session
    result = Session(Agent("openai:gpt-5.4", tools=[function])).ask("a question")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentmagic.agent import Agent
    from agentmagic.approval.policy import Policy, Rule
    from agentmagic.errors import AgentMagicError
    from agentmagic.events import RunResult
    from agentmagic.run import Run
    from agentmagic.secrets import register_secret
    from agentmagic.session import Session
    from agentmagic.tools.base import Done, TaskComplete, ToolContext
    from agentmagic.tools.functions import tool

__all__ = [
    "Agent",
    "AgentMagicError",
    "Done",
    "Policy",
    "Rule",
    "Run",
    "RunResult",
    "Session",
    "TaskComplete",
    "ToolContext",
    "register_secret",
    "tool",
]

_HOMES = {
    "Agent": "agentmagic.agent",
    "AgentMagicError": "agentmagic.errors",
    "Done": "agentmagic.tools.base",
    "Policy": "agentmagic.approval.policy",
    "Rule": "agentmagic.approval.policy",
    "Run": "agentmagic.run",
    "RunResult": "agentmagic.events",
    "Session": "agentmagic.session",
    "TaskComplete": "agentmagic.tools.base",
    "ToolContext": "agentmagic.tools.base",
    "register_secret": "agentmagic.secrets",
    "tool": "agentmagic.tools.functions",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing agentmagic costs nothing."""
    if name == "__version__":
        from importlib.metadata import version

        return version("agentmagic")
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))


def load_ipython_extension(shell: Any, name: str = "agent") -> None:
    """Load the magics: `%load_ext agentmagic`; called with another name, they are `%%name` and `%name`."""
    from agentmagic.jupyter.extension import load

    load(shell, name)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again: `%unload_ext agentmagic`."""
    from agentmagic.jupyter.extension import unload

    unload(shell)
