"""Turns Python values into parts for a model: text, tables, images, JSON.

The results of functions go through `to_content`, the values in a prompt through `describe`. Both write a data frame
with `_frame`. No library is imported to recognize its values: a value of pandas or Matplotlib exists only if the
notebook has imported that library.
"""

import dataclasses
import json
import math
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, cast

from agentmagic.errors import ToolError
from agentmagic.messages import Content, Media, Resource, Text
from agentmagic.text import cut

RESULT_ROWS = 50
"""Rows of a data frame that a result holds."""

PROMPT_ROWS = 5
"""Rows of a data frame that a prompt holds."""

LONGEST_VALUE = 20_000
"""Characters of one value that a prompt holds."""

MOST_ITEMS = 10_000
"""Items that are read of generators in one result."""

MOST_BYTES = 10_000_000
"""Bytes after which no more items are read of generators in one result."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The memory address in a repr: it tells a model nothing and differs from run to run."""


def never() -> bool:
    """Return False."""
    return False


def to_content(value: Any, stopped: Callable[[], bool] = never) -> Sequence[Content]:
    """Return the parts of a result: text, or an image if the value draws itself as one; of a list, those of its items.

    A generator is read up to the limits above, or until `stopped` returns True.
    """
    reader = _Reader(stopped)
    if isinstance(value, _GENERATORS):
        value = reader.read(cast("Iterable[Any]", value))
    if isinstance(value, (list, tuple)) and any(map(_is_rich, items := cast("Sequence[Any]", value))):
        return tuple(_part(item, reader) for item in items)
    return (_part(value, reader),)


async def collect(items: AsyncIterator[Any], stopped: Callable[[], bool] = never) -> list[Any]:
    """Return the items of an async generator, up to the limits above, or until `stopped` returns True."""
    reader, read = _Reader(stopped), list[Any]()
    async for item in items:
        if reader.is_full(item):
            read.append(_cut_after(read))
            break
        read.append(item)
    return read


def describe(value: Any) -> str:
    """Return the text of a value in a prompt: a string as it is, a frame by its columns and first rows, else its repr.

    The text is cut at `LONGEST_VALUE` characters.
    """
    text = value if isinstance(value, str) else _frame(value, PROMPT_ROWS, titled=True) or repr(value)
    return cut(text, LONGEST_VALUE, "\n(cut: {whole:,} characters in all, the first {most:,} shown)")


def snapshot(value: Any) -> Any:
    """Return a copy of a dict or list that JSON can hold, so that no later change alters the history; else None."""
    if not isinstance(value, (dict, list)):
        return None
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return None


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
            return _image(value) or Text(_frame(value, RESULT_ROWS) or _json(value, reader))


def _is_rich(value: Any) -> bool:
    """Whether a value makes a part of its own: content, a figure or a data frame."""
    if isinstance(value, (str, int, float, dict, list, tuple, type(None))):
        return False
    return isinstance(value, (Text, Media, Resource)) or _drawer(value) is not None or _is_frame(value)


def _drawer(value: Any) -> Callable[..., Any] | None:
    """Return the method with which a value draws itself, or None."""
    return None if isinstance(value, type) else getattr(value, "_repr_png_", None) or getattr(value, "savefig", None)


def _image(value: Any) -> Media | None:
    if (draw := _drawer(value)) is None:
        return None
    if draw.__name__ == "savefig":
        import io

        buffer = io.BytesIO()
        draw(buffer, format="png")
        if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.close(value)  # the result shows the figure; an open one would be shown by the cell again
        return Media("image/png", buffer.getvalue())
    data = draw()
    return Media("image/png", data) if isinstance(data, bytes) else None


def _frame(value: Any, limit: int, *, titled: bool = False) -> str | None:
    """Return the first `limit` rows of a data frame or series as text, and None for any other value.

    `titled` puts its size, columns and types on top.
    """
    if not _is_frame(value):
        return None
    rows: int = value.shape[0]
    shown: Any = value.head(limit) if rows > limit else value
    write = getattr(shown, "to_string", None)  # pandas abbreviates columns in str(); other libraries have str() only
    text = str(write() if callable(write) else shown)
    title = _title(value, rows) if titled else ""
    note = f"(the first {limit})" if titled else f"({rows} rows in all, the first {limit} shown)"
    return f"{title}{text}" if rows <= limit else f"{title}{text}\n{note}"


def _is_frame(value: Any) -> bool:
    head, shape = getattr(value, "head", None), getattr(value, "shape", None)
    return callable(head) and isinstance(shape, tuple) and not isinstance(value, type)


def _title(value: Any, rows: int) -> str:
    columns, dtypes = getattr(value, "columns", None), getattr(value, "dtypes", None)
    if columns is not None and dtypes is not None:
        schema = ", ".join(f"{name} ({dtype})" for name, dtype in zip(columns, dtypes, strict=False))
        return f"A table of {_count(rows, 'row')} and {_count(len(columns), 'column')}: {schema}\n"
    name = getattr(value, "name", None)
    return f"A column{f' {name}' if name else ''} of {_count(rows, 'value')} ({getattr(value, 'dtype', 'any')}):\n"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# -- JSON ------------------------------------------------------------------------------------------------

_GENERATORS = (Generator, map, filter, zip)
_LISTS = (list, tuple, set, frozenset, deque)
_MISSING = ("NaTType", "NAType")
"""The types of missing values in pandas."""
_TIMES = ("M", "m")
"""The kinds of NumPy's times and durations."""


def _json(value: Any, reader: "_Reader") -> str:
    if isinstance(value, (dict, list, tuple)):
        try:  # in C; it takes no value but those of JSON
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            pass
    try:
        data = reader.data(value)
    except RecursionError:
        raise ToolError("The tool returned a value that contains itself, or that is nested too deeply.") from None
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


class _Reader:
    """Turns values into JSON data. Missing values and not-a-number become null, other objects their own data."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._items = 0
        self._bytes = 0

    def data(self, value: Any) -> Any:
        """Return the JSON data of a value."""
        if isinstance(value, _GENERATORS):
            value = self.read(cast("Iterable[Any]", value))
        elif not isinstance(value, type) and dataclasses.is_dataclass(value):
            value = {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}
        elif callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):  # of pydantic
            value = dump()
        if isinstance(value, Mapping):
            return {self._key(key): self.data(item) for key, item in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, _LISTS):
            return [self.data(item) for item in cast("Iterable[Any]", value)]
        return self._finite(value) if isinstance(value, float) else self._other(value)

    def read(self, items: Iterable[Any]) -> list[Any]:
        """Return the items of a generator, up to the limits."""
        read: list[Any] = []
        for item in items:
            if self.is_full(item):
                return [*read, _cut_after(read)]
            read.append(item)
        return read

    def is_full(self, item: Any) -> bool:
        """Count an item, and return whether no more are read."""
        full = self._stopped() or self._items >= MOST_ITEMS or self._bytes > MOST_BYTES
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

        if type(value).__name__ in _MISSING:
            return None
        if callable(item := getattr(value, "item", None)) and getattr(value, "shape", None) == ():
            # A scalar of NumPy. The item of a time would be its nanoseconds.
            is_time = getattr(getattr(value, "dtype", None), "kind", "") in _TIMES
            return self.data(item()) if not is_time else None if str(value) == "NaT" else str(value)
        if callable(listed := getattr(value, "tolist", None)):
            return self.data(listed())
        try:
            return to_jsonable_python(value)
        except UnicodeDecodeError:  # bytes that are not UTF-8
            return to_jsonable_python(value, bytes_mode="base64")
        except (PydanticSerializationError, TypeError):
            return ADDRESS.sub("", repr(value))


def _size(value: Any) -> int:
    """Estimate the bytes of a value."""
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
