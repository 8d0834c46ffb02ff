"""Turns Python values into message parts for a model: text, tables, images, JSON.

Results of functions go through `to_content`. Values in a prompt go through `describe`, which limits the characters and
the time for every value. No library is imported to recognize its values: a value of pandas or Matplotlib exists only if
the notebook has imported that library.
"""

import dataclasses
import inspect
import json
import math
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, cast, is_typeddict

from agentmagic.errors import ToolError
from agentmagic.host import Output
from agentmagic.messages import Content, Media, Resource, Text
from agentmagic.text import cut, plural
from agentmagic.values import frames, labelled_arrays, pictures, reprs

RESULT_ROWS = 50
"""Largest number of rows shown of a data frame in a result."""

CHARACTERS = 4
"""Approximate number of characters in one token."""

BUDGET = 5_000
"""Largest number of tokens for one value in a prompt."""

TABLE_BUDGET = 1_000
"""Largest number of tokens for a data frame, unless the caller asks for a number of rows."""

MOST_ITEMS = 10_000
"""Largest number of items that are read from the generators in one result."""

LONGEST_HTML = 500_000
"""Largest number of characters in the HTML of one value. A value with longer HTML is shown as text."""

MOST_BYTES = 10_000_000
"""Size in bytes after which no more items are read from the generators in one result."""

CUT = "\n(cut: {whole:,} characters in all, the first {most:,} shown)"


def never() -> bool:
    """Return False. As the default of `should_stop`, it never stops the reading."""
    return False


def to_content(value: Any, should_stop: Callable[[], bool] = never) -> Sequence[Content]:
    """Return the message parts of a function's result: text, or an image if the value draws itself as one.

    For a list or tuple that contains an image, a data frame or a message part, return one part for each item.

    A generator is read up to 10,000 items (MOST_ITEMS) or 10 MB (MOST_BYTES), or until `should_stop` returns True.
    """
    return tuple(part for part, _ in to_outputs(value, should_stop))


def to_outputs(value: Any, should_stop: Callable[[], bool] = never) -> Sequence[Output]:
    """Return the message parts of a function's result, each with the HTML that Jupyter shows for it, or "".

    A generator is read up to 10,000 items (MOST_ITEMS) or 10 MB (MOST_BYTES), or until `should_stop` returns True.
    """
    reader = _Reader(should_stop)
    if isinstance(value, _GENERATORS):
        value = reader.read(cast("Iterable[Any]", value))
    if isinstance(value, (list, tuple)) and any(map(_is_rich, items := cast("Sequence[Any]", value))):
        return tuple(_output(item, reader) for item in items)
    return (_output(value, reader),)


def html_of(value: Any) -> str:
    """Return the HTML that Jupyter shows for a value, or "" if none exists.

    A long data frame is cut to its first rows.
    """
    if isinstance(value, (str, int, float, dict, list, tuple, type, type(None))) or _draws(value):
        return ""
    rows = value.shape[0] if _has_head(value) else 0
    try:
        html: object = (value.head(RESULT_ROWS) if rows > RESULT_ROWS else value)._repr_html_()
    except Exception:  # noqa: BLE001  (it has no such method, or its library fails)
        return ""
    if not isinstance(html, str) or len(html) > LONGEST_HTML:
        return ""
    return f"{html}<p>{rows:,} rows in all, the first {RESULT_ROWS} shown</p>" if rows > RESULT_ROWS else html


async def collect(items: AsyncIterator[Any], should_stop: Callable[[], bool] = never) -> list[Any]:
    """Return the items of an async generator.

    Reads up to 10,000 items (MOST_ITEMS) or 10 MB (MOST_BYTES), or until `should_stop` returns True.
    """
    reader, read = _Reader(should_stop), list[Any]()
    async for item in items:
        if reader.is_full(item):
            read.append(_cut_after(read))
            break
        read.append(item)
    return read


def describe(value: Any, budget: int = BUDGET, *, rows: int | None = None) -> str:  # noqa: PLR0911  (as in `summary`)
    """Return a text about a value for a model, in about `budget` tokens at most and in a limited time.

    A string is returned as it is. For a data frame or series, the text has the index and columns with types, missing
    values, ranges and distinct values, and some rows or, if `rows` is given, the first `rows`. For an array, the text
    has the range and a corner. For a function or class it has the source, and for a data class the schema. NumPy
    numbers, times and the like are written as `print` does. Any other value is written like its repr. No iterator is
    consumed.
    """
    most = budget * CHARACTERS
    if is_opaque(value):
        return reprs.short_repr(value, most)
    if isinstance(value, str):
        return cut(value, most, CUT)
    if frames.is_frame(value):
        room = most if rows is not None else min(most, TABLE_BUDGET * CHARACTERS)
        return frames.table(value, room, rows, lambda cell: reprs.short_repr(cell, frames.LONGEST_CELL))
    if frames.is_array(value):
        return cut(frames.array(value, lambda corner: reprs.short_repr(corner, most)), most, CUT)
    if labelled_arrays.is_labelled_array(value):
        room = min(most, TABLE_BUDGET * CHARACTERS)
        return cut(labelled_arrays.table(value, room, lambda item: reprs.short_repr(item, room)), most, CUT)
    if isinstance(value, type) or inspect.isroutine(value):
        return cut(_definition(value), most, CUT)
    return str(value) if type(value) in reprs.PRINTED_TYPES else reprs.short_repr(value, most)


def summary(value: Any) -> str:  # noqa: PLR0911  (one return for each kind of value)
    """Return the type and size of a value in a few words, without its content. No code of the value runs."""
    kind = cast("type[Any]", type(value))
    if is_opaque(value):
        return kind.__name__
    if isinstance(value, type):
        return f"class {value.__name__}"
    if frames.is_frame(value) or frames.is_array(value):
        return frames.size(value)
    if labelled_arrays.is_labelled_array(value):
        return labelled_arrays.size(value)
    if inspect.isroutine(value):
        return f"function {getattr(value, '__name__', '')}".rstrip()
    if kind in (str, bytes, bytearray):
        return f"{kind.__name__}, {plural(len(value), 'character' if kind is str else 'byte')}"
    if kind in reprs.CONTAINERS:
        return f"{kind.__name__} of {len(value):,}"
    return kind.__name__


def is_opaque(value: Any) -> bool:
    """Return whether `isinstance` fails for a value, such as a proxy that is not set up yet and has no `__class__`."""
    try:
        return value.__class__ is None
    except Exception:  # noqa: BLE001  (a user's class may raise anything)
        return True


def schema(value: Any, budget: int = BUDGET) -> str:
    """Return the names and types inside a value, without the values themselves."""
    if is_opaque(value):
        return summary(value)
    if frames.is_frame(value):
        return frames.columns(value, budget * CHARACTERS)
    if labelled_arrays.is_labelled_array(value):
        return cut(labelled_arrays.schema(value), budget * CHARACTERS, CUT)
    return cut(f"{summary(value)}{_inside(value)}", budget * CHARACTERS, CUT)


def _definition(value: Any) -> str:
    """Return the JSON Schema of a data class, or the source of a function or another class, or else the signature."""
    if isinstance(value, type) and _is_data(cast("type[Any]", value)):
        from pydantic import TypeAdapter

        with suppress(Exception):  # for example, a field has a type that JSON cannot represent
            return json.dumps(TypeAdapter(value).json_schema(), ensure_ascii=False, indent=1)
    with suppress(OSError, TypeError):
        return inspect.getsource(value)
    with suppress(ValueError, TypeError):
        return f"{summary(value)}{inspect.signature(value)}\n{inspect.getdoc(value) or ''}".rstrip()
    return summary(value)


def _is_data(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields") or is_typeddict(kind)


def _inside(value: Any) -> str:
    """Return the names and types of a value's fields, a data class's schema, a function's signature, or ""."""
    match value:
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            fields = [
                (key, item) for key, item in islice(pairs, MOST_ITEMS) if isinstance(key, str) and key.isidentifier()
            ]
        case type():
            return f"\n{_definition(value)}" if _is_data(cast("type[Any]", value)) else ""
        case _ if _is_data(cast("type[Any]", type(value))):
            fields = list(cast("dict[str, Any]", getattr(value, "__dict__", {})).items())
        case _:
            return str(inspect.signature(value)) if inspect.isfunction(value) else ""
    return "".join(f"\n{name}: {summary(item)}" for name, item in fields)


def snapshot(value: Any) -> Any:
    """Return a copy of a dict or list of JSON data, so that later changes do not alter it.

    Return None for any other value.
    """
    if not isinstance(value, (dict, list)):
        return None
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return None


def _output(value: Any, reader: "_Reader") -> Output:
    """Return a value as a message part with HTML.

    A pyplot figure is closed, because Jupyter would otherwise show it a second time.
    """
    image = pictures.shown_image(value)
    if (pyplot := sys.modules.get("matplotlib.pyplot")) and (figure := pictures.figure_of(value)) is not None:
        pyplot.close(figure)
    return image or (_part(value, reader), html_of(value))


def _part(value: Any, reader: "_Reader") -> Content:
    match value:
        case None:
            return Text("(no value returned)")
        case str():
            return Text(value)
        case bytes():
            return Media("application/octet-stream", value)
        case Text() | Media() | Resource():
            return value
        case _:
            return Text(_frame(frames.without_style(value), RESULT_ROWS) or _json(value, reader))


def _is_rich(value: Any) -> bool:
    """Return whether a value becomes a message part of its own: a message part, a figure or a data frame."""
    if isinstance(value, (str, int, float, dict, list, tuple, type(None))):
        return False
    return isinstance(value, (Text, Media, Resource)) or _draws(value) or _has_head(frames.without_style(value))


def _draws(value: Any) -> bool:
    """Return whether a value can draw itself as an image."""
    return not isinstance(value, type) and (hasattr(value, "_repr_png_") or hasattr(value, "savefig"))


def _frame(value: Any, limit: int) -> str | None:
    """Return the first `limit` rows of a data frame or series as text, or None for any other value."""
    if not _has_head(value):
        return None
    rows: int = value.shape[0]
    head: Any = value.head(limit) if rows > limit else value
    write = getattr(head, "to_string", None)  # pandas abbreviates columns in str(); other libraries have str() only
    text = str(write() if callable(write) else head)
    return text if rows <= limit else f"{text}\n({rows} rows in all, the first {limit} shown)"


def _has_head(value: Any) -> bool:
    """Return whether a value is a frame or series in memory, of any library: it has rows and a `head` method.

    `frames.is_frame` also accepts lazy frames, which can be described but have no rows yet.
    """
    head, shape = getattr(value, "head", None), getattr(value, "shape", None)
    return callable(head) and isinstance(shape, tuple) and not isinstance(value, type)


# -- JSON ------------------------------------------------------------------------------------------------

_GENERATORS = (Generator, map, filter, zip)
_LISTS = (list, tuple, set, frozenset, deque)
_TIMES = ("M", "m")
"""The dtype kinds of NumPy's times and durations."""


def _json(value: Any, reader: "_Reader") -> str:
    if isinstance(value, (dict, list, tuple)):
        try:  # fast, because it is written in C; it accepts only JSON data
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            pass
    try:
        data = reader.data(value)
    except RecursionError:
        raise ToolError("The tool returned a value that contains itself, or that is nested too deeply.") from None
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


class _Reader:
    """Turns values into JSON data. Missing values and NaN become null, other objects become the data that they hold."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop
        self._items = 0
        self._bytes = 0

    def data(self, value: Any) -> Any:
        """Return the JSON data of a value."""
        if isinstance(value, _GENERATORS):
            value = self.read(cast("Iterable[Any]", value))
        elif not isinstance(value, type) and dataclasses.is_dataclass(value):
            value = {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}
        elif callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):  # a pydantic model
            value = dump()
        if isinstance(value, Mapping):
            return {self._key(key): self.data(item) for key, item in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, _LISTS):
            return [self.data(item) for item in cast("Iterable[Any]", value)]
        return self._finite(value) if isinstance(value, float) else self._other(value)

    def read(self, items: Iterable[Any]) -> list[Any]:
        """Return the items of a generator, until `is_full` is true. A note that the rest was cut then follows."""
        read: list[Any] = []
        for item in items:
            if self.is_full(item):
                return [*read, _cut_after(read)]
            read.append(item)
        return read

    def is_full(self, item: Any) -> bool:
        """Count an item. Return whether reading must stop: at MOST_ITEMS, after MOST_BYTES, or by `should_stop`."""
        full = self._should_stop() or self._items >= MOST_ITEMS or self._bytes > MOST_BYTES
        self._items += 1
        self._bytes += _size(item)
        return full

    def _key(self, key: Any) -> str:
        data = self.data(key)
        return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)

    def _finite(self, value: float) -> float | str | None:
        if math.isnan(value):
            return None
        return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"

    def _other(self, value: Any) -> Any:
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        if type(value).__name__ in frames.MISSING:
            return None
        if callable(item := getattr(value, "item", None)) and getattr(value, "shape", None) == ():
            # A NumPy scalar. For a time, `item()` would return nanoseconds.
            is_time = getattr(getattr(value, "dtype", None), "kind", "") in _TIMES
            return self.data(item()) if not is_time else None if str(value) == "NaT" else str(value)
        if callable(to_list := getattr(value, "tolist", None)):
            return self.data(to_list())
        try:
            return to_jsonable_python(value)
        except UnicodeDecodeError:  # the value contains bytes that are not UTF-8
            return to_jsonable_python(value, bytes_mode="base64")
        except (PydanticSerializationError, TypeError):
            return reprs.ADDRESS.sub("", repr(value))


def _size(value: Any) -> int:
    """Return the approximate size of a value in bytes."""
    match value:
        case Media():
            return len(value.data)
        case Text() | Resource():
            return sys.getsizeof(value.text)
        case Mapping():
            return sum(map(_size, cast("Mapping[Any, Any]", value).values()))
        case _ if isinstance(value, _LISTS):
            return sum(map(_size, cast("Iterable[Any]", value)))
        case _:
            return sys.getsizeof(value)


def _cut_after(read: Sequence[Any]) -> str:
    return f"(cut: only the first {len(read):,} items were read)"
