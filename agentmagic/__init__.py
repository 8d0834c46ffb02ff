"""Agents in a Jupyter notebook: a model, tools, and a loop that runs in the kernel.

In a notebook, `%load_ext agentmagic` and then `%%agent`. In code:

    from agentmagic import Agent, Session
    result = Session(Agent("openai:gpt-5.4", tools=[function])).ask("a question")

The public names are listed in `__init__.pyi`, once, for type checkers and for this module. Each is loaded when it is
first used, so that importing agentmagic costs nothing.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

_LINES = (line.split() for line in Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines())
# Each is "from MODULE import NAME as NAME".
_HOMES = dict(sorted((words[3], words[1]) for words in _LINES if words[:1] == ["from"] and words[-2] == "as"))

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]  (type checkers read the stub)


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("agentmagic")
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))


def load_ipython_extension(shell: Any, name: str = "agent") -> None:
    """Load the magics: `%load_ext agentmagic`. Under another name, they are `%%name` and `%name`."""
    from agentmagic.jupyter import check_ipython

    check_ipython()  # before what follows is imported, which needs its names
    from agentmagic.jupyter.extension import load

    load(shell, name)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics: `%unload_ext agentmagic`."""
    from agentmagic.jupyter.extension import unload

    unload(shell)
