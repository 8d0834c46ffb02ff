"""Agents in a Jupyter notebook: a model, tools, and a loop that runs in the kernel.

In a notebook, `%load_ext agentmagic` and then `%%agent`. In code:

    from agentmagic import Agent, Session
    result = Session(Agent("openai:gpt-5.4", tools=[function])).ask("a question")

The public names are listed only in `__init__.pyi`, which type checkers and lazy_loader read. Each name is imported at
its first use, so that `import agentmagic` is fast.
"""

from typing import Any

from lazy_loader import attach_stub  # pyright: ignore[reportMissingTypeStubs]

_attribute, __dir__, __all__ = attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use. Raises AttributeError for any other name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("agentmagic")
    return _attribute(name)


def load_ipython_extension(shell: Any, name: str = "agent") -> None:
    """Load the magics `%%agent` and `%agent`, for `%load_ext agentmagic`. `name` replaces "agent" in their names."""
    from agentmagic.jupyter import check_ipython

    check_ipython()  # called first, since the import of `load` below fails with an IPython that is too old
    from agentmagic.jupyter.extension import load

    load(shell, name)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics, for `%unload_ext agentmagic`."""
    from agentmagic.jupyter.extension import unload

    unload(shell)
