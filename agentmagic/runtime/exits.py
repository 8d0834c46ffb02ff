"""Has `exit`, `quit` and `sys.exit` end the tool or program that calls them, and not the process.

IPython's `exit` raises nothing: it tells the shell to end once the cell is over. Python's own closes the standard input
before it raises SystemExit. And SystemExit ends the event loop in whose task it is raised.
"""

import builtins
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, cast

from agentmagic.errors import said

NAMES = ("exit", "quit")
_MISSING: Any = object()


class CodeExit(Exception):
    """Raised in place of SystemExit, which is its cause, where a tool or hook has ended itself; `code` is the code."""

    def __init__(self, code: object) -> None:
        super().__init__(f"The code {exit_words(code)}")
        self.code = code


def exit_words(code: object) -> str:
    """Return how code has ended itself, with its exit code or its message, for a sentence that begins with its name."""
    number = 0 if code is None else code
    words = said(SystemExit(code))
    if words and not isinstance(number, int):
        return f"ended itself: {words}"
    return f"ended itself with exit code {int(number) if isinstance(number, int) else 1}."


_block: ContextVar[object] = ContextVar("agentmagic_exits", default=None)
"""The block of `contained_exits` that the running code belongs to. What the code leaves in an event loop keeps it."""
_open: set[object] = set()
_GUARDED = "__agentmagic_guarded__"


@contextmanager
def contained_exits() -> Generator[None]:
    """Have the code of the block end itself, and nothing else, if it exits. Raises CodeExit then.

    In the threads that the code starts, `exit` ends the thread, as `sys.exit` does.
    """
    # Without a lock, which an interrupt could leave taken: of two threads at once, the later one does it again.
    block = object()
    _open.add(block)
    _guard_shell()
    offer_names()
    token = _block.set(block)
    try:
        yield
    except SystemExit as error:
        raise CodeExit(error.code) from error
    finally:
        _block.reset(token)
        _open.discard(block)
        if not _open:
            _withdraw_names()


def end_tool(code: object = None) -> None:
    """Raise SystemExit if code of a tool calls this, or code in a thread of its own; return if it is the user's cell.

    Raises RuntimeError in what a tool that is over has left in an event loop: SystemExit would end the loop.
    """
    block = _block.get()
    if block is not None and block not in _open:
        message = "The tool that left this behind is over, and nothing else is ended by its exit."
        raise RuntimeError(message)
    thread = threading.current_thread()
    # ipykernel runs the user's cells in threads of subshells, and takes the request to shut down in another one.
    runs_cells = thread is threading.main_thread() or type(thread).__module__.startswith("ipykernel")
    if block is not None or not runs_cells:
        raise SystemExit(code)


# -- Python's own names ----------------------------------------------------------------------------------


class _BuiltinExit:
    """Stands for the built-in `exit` or `quit` while code of a tool runs; IPython hides them while a cell runs."""

    def __init__(self, name: str, original: Any) -> None:
        self._name = name
        self.original = original

    def __call__(self, code: object = None) -> None:
        end_tool(code)
        if self.original is _MISSING:
            message = f"name {self._name!r} is not defined"
            raise NameError(message)
        self.original(code)

    def __repr__(self) -> str:
        return self._name if self.original is _MISSING else repr(self.original)


def _builtin_exits() -> Iterator[tuple[str, Any]]:
    for name in NAMES:
        yield name, vars(builtins).get(name, _MISSING)


def offer_names() -> None:
    """Make `exit` and `quit` built-in names that end code of a tool; `contained_exits` does, and takes them away."""
    for name, held in _builtin_exits():
        if not isinstance(held, _BuiltinExit):
            setattr(builtins, name, _BuiltinExit(name, held))


def _withdraw_names() -> None:
    for name, held in _builtin_exits():  # IPython may have put its own back meanwhile
        if isinstance(held, _BuiltinExit):
            if held.original is _MISSING:
                delattr(builtins, name)
            else:
                setattr(builtins, name, held.original)


# -- IPython's -------------------------------------------------------------------------------------------


class _ShellExit:
    """The first class of the shell's `exit` and `quit`, which are one object, under whichever name it is called."""

    def __call__(self, *code: object, **options: object) -> None:
        end_tool(*code[:1])
        cast("Any", super()).__call__(*code, **options)


def _guard_shell() -> None:
    """Have the shell of this process, if it is one of IPython, ask whose code it is that wants to end it."""
    find: Callable[[], Any] = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if (shell := find()) is None:
        return
    own = cast("type[Any]", type(shell.exiter))
    if not issubclass(own, _ShellExit):
        # The same object gets another class: the user may have given it other names.
        told = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
        shell.exiter.__class__ = type(own.__name__, (_ShellExit, own), told)
    _guard(shell, "ask_exit")
    _guard(getattr(shell, "kernel", None), "do_shutdown")


def _guard(owner: Any, name: str) -> None:
    method = getattr(owner, name, None)
    if method is None or hasattr(method, _GUARDED):
        return

    @wraps(method)
    def guarded(*given: Any, **options: Any) -> Any:
        end_tool()
        return method(*given, **options)

    setattr(guarded, _GUARDED, True)
    setattr(owner, name, guarded)
