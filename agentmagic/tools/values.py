"""Turns Python values into parts for a model: text, tables, images, JSON.

The results of functions go through `to_content`, the values in a prompt through `describe`. Both write a data frame
with `_frame`. No library is imported to recognize its values: a value of pandas or Matplotlib exists only if the
notebook has imported that library.
"""

import json
import re
import sys
from collections.abc import Sequence
from typing import Any, cast

from agentmagic.messages import Content, Media, Resource, Text
from agentmagic.text import cut

RESULT_ROWS = 50
"""Rows of a data frame that a result holds."""

PROMPT_ROWS = 5
"""Rows of a data frame that a prompt holds."""

LONGEST_VALUE = 20_000
"""Characters of one value that a prompt holds."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The memory address in a repr: it tells a model nothing and differs from run to run."""


def to_content(value: Any) -> Sequence[Content]:
    """Return the parts of a result: text, or an image if the value draws itself as one."""
    if isinstance(value, (list, tuple)) and _has_part(items := cast("Sequence[Any]", value)):
        return tuple(part for item in items for part in to_content(item))
    return (_part(value),)


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


def _part(value: Any) -> Content:
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
            return _image(value) or Text(_frame(value, RESULT_ROWS) or _json(value))


def _has_part(values: Sequence[Any]) -> bool:
    return any(isinstance(item, (Text, Media, Resource)) for item in values)


def _image(value: Any) -> Media | None:
    draw = getattr(value, "_repr_png_", None) or getattr(value, "savefig", None)
    if draw is None or isinstance(value, type):
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
    head, shape = getattr(value, "head", None), getattr(value, "shape", None)
    if not callable(head) or not isinstance(shape, tuple) or isinstance(value, type):
        return None
    rows = cast("tuple[int, ...]", shape)[0]
    shown: Any = head(limit) if rows > limit else value
    write = getattr(shown, "to_string", None)  # pandas abbreviates columns in str(); other libraries have str() only
    text = str(write() if callable(write) else shown)
    title = _title(value, rows) if titled else ""
    note = f"(the first {limit})" if titled else f"({rows} rows in all, the first {limit} shown)"
    return f"{title}{text}" if rows <= limit else f"{title}{text}\n{note}"


def _title(value: Any, rows: int) -> str:
    columns, dtypes = getattr(value, "columns", None), getattr(value, "dtypes", None)
    if columns is not None and dtypes is not None:
        schema = ", ".join(f"{name} ({dtype})" for name, dtype in zip(columns, dtypes, strict=False))
        return f"A table of {_count(rows, 'row')} and {_count(len(columns), 'column')}: {schema}\n"
    name = getattr(value, "name", None)
    return f"A column{f' {name}' if name else ''} of {_count(rows, 'value')} ({getattr(value, 'dtype', 'any')}):\n"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _json(value: Any) -> str:
    from pydantic_core import to_jsonable_python

    try:
        data = to_jsonable_python(value, fallback=_plain, serialize_unknown=True)
    except UnicodeDecodeError:  # bytes that are not UTF-8
        data = to_jsonable_python(value, fallback=_plain, serialize_unknown=True, bytes_mode="base64")
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _plain(value: Any) -> Any:
    item = getattr(value, "item", None)  # a NumPy scalar returns its Python value
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    listed = getattr(value, "tolist", None)
    return listed() if callable(listed) else ADDRESS.sub("", repr(value))
