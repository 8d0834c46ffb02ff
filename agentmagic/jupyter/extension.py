"""The face in the kernel: loads the magics into an IPython shell, and takes them away again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentmagic import log
from agentmagic.jupyter import notebook_file, options, panel
from agentmagic.jupyter.completion import matcher
from agentmagic.jupyter.frontend import Keyboard, in_kernel, say
from agentmagic.jupyter.magics import AgentMagics
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.subcommands import DEFAULT_SESSION
from agentmagic.runtime.engine import engine

Shell = Any
"""An `InteractiveShell` of IPython, which types few of its attributes."""

Magic = Callable[..., None]


@dataclass(frozen=True)
class _Loaded:
    """What was put into a shell."""

    magics: tuple[tuple[str, str], ...]
    matcher: Callable[..., Any]


_loaded: dict[int, _Loaded] = {}
_namespaces: dict[int, Namespace] = {}
"""What the sessions of each shell share; kept while the magics are away, so that loading again finds it."""


def load(shell: Shell, name: str = DEFAULT_SESSION) -> None:
    """Register `%%name`, `%name` and `%mcp`, and bind the default session to the variable `agent`.

    Where a conversation of the notebook is saved, a line says how to pick it up.
    Another extension's magic of the same name is left alone, and a line says how to load under another.
    """
    unload(shell)
    namespace = _namespaces.setdefault(id(shell), Namespace(shell.user_ns, lambda: notebook_file.place(shell)))
    magics = AgentMagics(shell, name, namespace)
    registered: list[tuple[str, str]] = []
    for kind, magic, function in _functions(magics):
        if _is_taken(shell, kind, magic):
            say(_how_to_load(kind, magic))
        else:
            shell.register_magic_function(function, kind, magic)
            registered.append((kind, magic))
    complete = matcher(name, namespace)
    shell.Completer.custom_matchers.append(complete)
    _loaded[id(shell)] = _Loaded(tuple(registered), complete)
    panel.load(shell, namespace)
    _attach(shell)
    log.keep()
    for words in (namespace.bind_default(), magics.conversations.hint()):
        if words:
            say(words)


def unload(shell: Shell) -> None:
    """Take the magics away; sessions are variables and stay."""
    loaded = _loaded.pop(id(shell), None)
    if loaded is None:
        return
    for kind, magic in loaded.magics:
        shell.magics_manager.magics[kind].pop(magic, None)
    shell.Completer.custom_matchers.remove(loaded.matcher)
    log.stop()
    engine().main.holds_tools = False
    engine().main.person = None
    engine().main.attach(None)


def _attach(shell: Shell) -> None:
    """Have synchronous tools run in the main thread, also when no cell blocks it."""
    main = engine().main
    main.holds_tools = True
    main.person = Keyboard(shell)
    loop = getattr(shell.kernel, "io_loop", None) if in_kernel(shell) else None
    if loop is not None:
        main.attach(loop.add_callback)


def _functions(magics: AgentMagics) -> list[tuple[str, str, Magic]]:
    """Return the magics: kind, name, and a function whose docstring is the help."""

    def ask(line: str, cell: str) -> None:
        magics.cell(line, cell)

    def agent(line: str) -> None:
        magics.line(line)

    def mcp(line: str) -> None:
        magics.mcp(line)

    ask.__doc__ = options.ask_parser(magics.name).format_help()
    agent.__doc__ = options.overview("agent", magics.name)
    mcp.__doc__ = options.overview("mcp", "mcp")
    return [("cell", magics.name, ask), ("line", magics.name, agent), ("line", "mcp", mcp)]


def _is_taken(shell: Shell, kind: str, magic: str) -> bool:
    """Whether another extension, or the user, has a magic of that name; IPython's own placeholders do not count."""
    function = shell.magics_manager.magics[kind].get(magic)
    return callable(function) and getattr(function, "__module__", None) != __name__


def _how_to_load(kind: str, magic: str) -> str:
    written = f"{'%%' if kind == 'cell' else '%'}{magic}"
    if magic == "mcp":
        return f"{written} belongs to another extension and stays; connect servers in code: Agent(..., mcp=[...])."
    other = f"m{magic}"
    call = f'import agentmagic; agentmagic.load_ipython_extension(get_ipython(), "{other}")'
    return f"{written} belongs to another extension and stays. To have ours as %%{other} and %{other}: {call}"
