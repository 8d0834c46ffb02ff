"""Agents in a Jupyter notebook: a model, tools, and a loop that runs in the kernel.

In a notebook, `%load_ext agentmagic` and then `%%agent`. In code:

    from agentmagic import Agent, Session
    result = Session(Agent("openai:gpt-5.4", tools=[function])).ask("a question")

The public names are listed only in `__init__.pyi`, which type checkers and this module read. Each name is imported at
its first use, so that `import agentmagic` is fast.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

_LINES = (line.split() for line in Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines())
# Each import line of `__init__.pyi` is "from MODULE import NAME as NAME".
_HOMES = dict(sorted((words[3], words[1]) for words in _LINES if words[:1] == ["from"] and words[-2] == "as"))

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]  (type checkers read the stub)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use. Raises AttributeError for any other name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("agentmagic")
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # stored, so that Python does not call `__getattr__` again for the name
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))


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
