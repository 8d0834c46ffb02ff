"""Makes `exit`, `quit` and `sys.exit` end only the tool or program that calls them, not the process.

IPython's `exit` raises nothing: it asks the shell to end after the cell. Python's own `exit` closes the standard input
before it raises SystemExit. And SystemExit ends the event loop if a task on the loop raises it, as KeyboardInterrupt
does.
"""

import asyncio
import builtins
import logging
import selectors
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from traceback import walk_tb
from typing import Any, cast

from agentmagic.errors import describe

logger = logging.getLogger(__name__)

NAMES = ("exit", "quit")
_MISSING: Any = object()


class CodeExit(Exception):
    """Raised instead of SystemExit when a tool or hook exits. `code` is the exit code; the SystemExit is the cause."""

    def __init__(self, code: object) -> None:
        super().__init__(f"The code {describe_exit(code)}")
        self.code = code


def describe_exit(code: object) -> str:
    """Return a phrase such as "ended itself with exit code 1.", which follows the name of the code that exited.

    If the code has exited with a message, the phrase has the message.
    """
    number = 0 if code is None else code
    message = describe(SystemExit(code))
    if message and not isinstance(number, int):
        return f"ended itself: {message}"
    return f"ended itself with exit code {int(number) if isinstance(number, int) else 1}."


class CodeInterrupt(Exception):
    """Raised instead of a KeyboardInterrupt that the code of a tool raises itself; that one is the cause."""


def interruption() -> KeyboardInterrupt:
    """Return the exception by which the user's interrupt, or the end of a turn, stops a tool in the main thread."""
    error = KeyboardInterrupt()
    cast("Any", error).__agentmagic_interrupt__ = True
    return error


def is_interruption(error: BaseException) -> bool:
    """Return whether `interruption` made an exception, and not the code of a tool."""
    return hasattr(error, "__agentmagic_interrupt__")


_block: ContextVar[object] = ContextVar("agentmagic_exits", default=None)
"""The `contained_exits` block to which the running code belongs.

Tasks that the code leaves on an event loop keep it.
"""
_open: set[object] = set()
_GUARDED = "__agentmagic_guarded__"


@contextmanager
def contained_exits() -> Generator[None]:
    """Guard the user code in a `with` block: if the code calls `exit`, only the `with` block ends, with CodeExit.

    In threads that the code starts, `exit` ends only the thread, like `sys.exit`.
    """
    # No lock here, because an interrupt could leave it locked. If two threads come here, both do the next steps.
    block = object()
    _open.add(block)
    _guard_shell()
    _guard_loop()
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
    """Raise SystemExit if a tool, or code in a thread that runs no cells, calls this. For a user's cell, return.

    Raises RuntimeError in a task that still runs on an event loop after its tool has ended, because SystemExit would
    end the loop.
    """
    block = _block.get()
    if block is not None and block not in _open:
        message = "The tool that left this behind is over, and nothing else is ended by its exit."
        raise RuntimeError(message)
    thread = threading.current_thread()
    # ipykernel can run cells in threads of subshells, too, and it handles shutdown requests in a thread of its own.
    runs_cells = thread is threading.main_thread() or type(thread).__module__.startswith("ipykernel")
    if block is not None or not runs_cells:
        raise SystemExit(code)


# -- Python's own names ----------------------------------------------------------------------------------


class _BuiltinExit:
    """Replaces the built-in `exit` or `quit` while code of a tool runs.

    While a cell runs, IPython's variables `exit` and `quit` hide these built-in names.
    """

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
    """Replace the built-in `exit` and `quit` by versions that end only the tool that calls them.

    `contained_exits` calls this. At the end of the last open block, it restores the original names.
    """
    for name, value in _builtin_exits():
        if not isinstance(value, _BuiltinExit):
            setattr(builtins, name, _BuiltinExit(name, value))


def _withdraw_names() -> None:
    for name, value in _builtin_exits():  # not a _BuiltinExit if IPython has restored its own function
        if isinstance(value, _BuiltinExit):
            if value.original is _MISSING:
                delattr(builtins, name)
            else:
                setattr(builtins, name, value.original)


# -- IPython's -------------------------------------------------------------------------------------------


class _ShellExit:
    """A base class, added to the class of IPython's `exit` and `quit`. In a tool, these then end only the tool."""

    def __call__(self, *code: object, **options: object) -> None:
        end_tool(*code[:1])
        cast("Any", super()).__call__(*code, **options)


def _guard_shell() -> None:
    """Patch the IPython shell of this process, if there is one, so that a tool cannot end it."""
    find: Callable[[], Any] = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if (shell := find()) is None:
        return
    exit_class = cast("type[Any]", type(shell.exiter))
    if not issubclass(exit_class, _ShellExit):
        # The class of the object `exit` is changed, not the object: the user may have bound it to other names.
        attributes = {
            "__module__": exit_class.__module__,
            "__qualname__": exit_class.__qualname__,
            "__doc__": exit_class.__doc__,
        }
        shell.exiter.__class__ = type(exit_class.__name__, (_ShellExit, exit_class), attributes)
    _guard(shell, "ask_exit")
    _guard(getattr(shell, "kernel", None), "do_shutdown")


def _guard(owner: Any, name: str) -> None:
    method = getattr(owner, name, None)
    if method is None or hasattr(method, _GUARDED):
        return

    @wraps(method)
    def guarded(*arguments: Any, **options: Any) -> Any:
        end_tool()
        return method(*arguments, **options)

    setattr(guarded, _GUARDED, True)
    setattr(owner, name, guarded)


# -- the event loop of the main thread -------------------------------------------------------------------

_LOOP_FILES = (str(Path(asyncio.__file__).parent), selectors.__file__)


def _guard_loop() -> None:
    """Patch the running event loop of the main thread, so that code that a tool has left on it cannot end the loop.

    A kernel whose loop ends is lost with all its variables.
    """
    loop = asyncio._get_running_loop()  # noqa: SLF001  (the public function raises if no loop runs)
    kind = cast("Any", type(loop))
    if threading.current_thread() is not threading.main_thread() or not hasattr(kind, "_run_once"):
        return
    if "_run_once" in vars(loop):
        return

    def run_once() -> None:
        try:
            kind._run_once(loop)  # noqa: SLF001  (looked up each time: nest_asyncio2 replaces the method)
        except BaseException as error:
            if not _is_left_behind(error):
                raise
            logger.info("%s, raised by code that a tool left behind, did not end the event loop", type(error).__name__)

    cast("Any", loop)._run_once = run_once  # noqa: SLF001
    _guard(loop, "stop")


def _is_left_behind(error: BaseException) -> bool:
    """Return whether an exception, which is about to end an event loop, comes from a tool or from a signal handler.

    asyncio passes on SystemExit and KeyboardInterrupt of a callback or task. Other exceptions get here only from a
    handler of a signal that arrived while the loop waited, or from a defect of the loop. If such a handler raises
    SystemExit, the loop ends: this is how programs react to a request to terminate.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    handles = [frame.f_locals.get("self") for frame in frames if frame.f_code is asyncio.Handle._run.__code__]  # noqa: SLF001
    if is_interruption(error):
        return False
    if handles and not isinstance(error, Exception):
        return cast("Any", handles[-1])._context.get(_block) is not None  # noqa: SLF001
    return not isinstance(error, SystemExit) and not frames[-1].f_code.co_filename.startswith(_LOOP_FILES)
