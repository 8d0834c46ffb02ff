"""Writes any value like its repr, with limits for characters and time. Also calls functions with a time limit."""

import ctypes
import dataclasses
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from time import monotonic
from typing import Any, TypeVar, cast
from uuid import UUID

from agentmagic.runtime.engine import in_thread
from agentmagic.secrets import learn
from agentmagic.text import clip, cut
from agentmagic.values import frames

T = TypeVar("T")

PATIENCE = 0.2
"""Seconds for all code of a user's classes that writes one value: a `__repr__` can be slow, or never end."""

DEEPEST = 6
"""Largest number of nested levels that are written."""

LONGEST_SECRET = 10_000
"""Largest number of characters of a text that are registered as a secret."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The memory address in a repr. It is removed, because it is useless to a model and changes from run to run."""


def short_repr(value: Any, most: int) -> str:
    """Return a text like the repr of a value, of about `most` characters at most, within 0.2 seconds (PATIENCE)."""
    writer = _Writer(most)
    writer.write(value)
    return clip("".join(writer.pieces), 2 * most)  # escaped characters are longer than the originals


def in_time(function: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the result of a function, called in a new thread.

    Raises TimeoutError, or the exception of the function.

    When the time is over, the thread is ended if it runs Python code, so that it does not use the processor for ever.
    """
    future = Future[T]()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001  (it is raised where it is waited for)
            future.set_exception(error)

    thread = in_thread(call, "agentmagic-value")
    try:
        return future.result(seconds)
    except TimeoutError:
        if not future.done():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
        raise


CONTAINERS: Mapping[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    deque: ("deque([", "])"),
    dict: ("{", "}"),
    OrderedDict: ("{", "}"),
    defaultdict: ("{", "}"),
    Counter: ("Counter({", "})"),
}
"""Types whose items are written one by one. Only Python's own types, because a subclass can have code of its own."""
PRINTED_TYPES = (date, datetime, time, timedelta, Decimal, Fraction, UUID)
"""Types whose values are written as `print` does, unless they are inside another value."""
_PLAIN = (int, float, complex, bool, type(None), range, *PRINTED_TYPES)
_PACKAGES = frozenset({"numpy", "pandas", "polars"})
"""Packages whose values have a fast repr, like the types in _PLAIN."""


class _Writer:
    """Writes a value like its repr, up to a number of characters. `pieces` is the text so far.

    The items of Python's own containers, and the fields of data classes, are written one by one. The repr of another
    class can run code of the user. It is called in a thread. All these calls together may take 0.2 seconds (PATIENCE).
    """

    def __init__(self, most: int) -> None:
        self.pieces: list[str] = []
        self._remaining = most
        self._deadline: float | None = None

    def write(self, value: Any, depth: int = 0) -> None:
        """Write a value, or as much of it as fits."""
        kind = cast("type[Any]", type(value))
        if kind in (str, bytes, bytearray):
            most = max(self._remaining, 0)
            self._add(repr(value[:most]) + (f"… (cut: {len(value):,} in all)" if len(value) > most else ""))
        elif kind in CONTAINERS:
            self._container(value, depth)
        elif dataclasses.is_dataclass(kind) and hasattr(value, "__dict__"):
            hidden_names = {field.name for field in dataclasses.fields(kind) if not field.repr}
            attributes = cast("dict[str, Any]", value.__dict__)
            self._fields(
                kind.__name__, {name: item for name, item in attributes.items() if name not in hidden_names}, depth
            )
        elif issubclass(kind, tuple) and (names := getattr(cast("Any", kind), "_fields", None)):
            self._fields(kind.__name__, dict(zip(names, cast("tuple[Any, ...]", value), strict=False)), depth)
        elif (text := frames.scalar(value)) is not None:
            self._add(text)
        elif frames.is_frame(value):
            self._add(f"<{frames.size(value)}>")
        else:
            self._add(ADDRESS.sub("", self._repr(value)))

    def _add(self, text: str) -> None:
        self.pieces.append(text)
        self._remaining -= len(text)

    def _container(self, value: Any, depth: int) -> None:
        opening, closing = CONTAINERS[type(value)]
        if not value and type(value) in (set, frozenset):
            opening, closing = f"{type(value).__name__}(", ")"
        self._add(opening)
        is_map = isinstance(value, dict)
        items = cast("dict[Any, Any]", value).items() if is_map else cast("Iterable[Any]", value)
        whole = len(value)
        # Copy the items first, because the repr of an item, or another thread, can change the container.
        for number, item in enumerate(list(islice(items, max(self._remaining, 0) + 2))):
            if self._remaining <= 0 or depth == DEEPEST:
                self._add(f"{', ' if number else ''}… ({whole - number:,} more)")
                break
            self._add(", " if number else "")
            if is_map:
                self._pair(item, depth + 1)
            else:
                self.write(item, depth + 1)
        self._add(",)" if type(value) is tuple and len(cast("tuple[Any, ...]", value)) == 1 else closing)

    def _pair(self, item: tuple[Any, Any], depth: int) -> None:
        key, value = item
        _learn(key, value)
        self.write(key, depth)
        self._add(": ")
        self.write(value, depth)

    def _fields(self, name: str, fields: Mapping[str, Any], depth: int) -> None:
        self._add(f"{name}(")
        for number, (field, value) in enumerate(fields.items()):
            if self._remaining <= 0 or depth == DEEPEST:
                self._add("…")
                break
            _learn(field, value)
            self._add(f"{', ' if number else ''}{field}=")
            self.write(value, depth + 1)
        self._add(")")

    def _repr(self, value: Any) -> str:
        kind = cast("type[Any]", type(value))
        try:
            if kind in _PLAIN or (kind.__module__.partition(".")[0] in _PACKAGES and not _holds_objects(value)):
                return repr(value)
            now = monotonic()
            self._deadline = self._deadline or now + PATIENCE
            if now > self._deadline:
                return f"<{kind.__name__}>"
            most = max(self._remaining, 0)
            return in_time(lambda: cut(repr(value), most, "… (cut: {whole:,} in all)"), self._deadline - now)
        except TimeoutError:
            return f"<{kind.__name__}: its repr took longer than {PATIENCE:g} s>"
        except Exception as error:  # noqa: BLE001  (a user's class may raise anything)
            return f"<{kind.__name__}: its repr raised {type(error).__name__}>"


def _learn(name: Any, value: Any) -> None:
    """Register the text of a key or field that is named like a secret, so that the text is blanked from now on."""
    if isinstance(name, str) and isinstance(value, str):
        learn(name, value[:LONGEST_SECRET])


def _holds_objects(value: Any) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") == "O"
