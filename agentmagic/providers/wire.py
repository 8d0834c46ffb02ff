"""What all providers read and write alike: untrusted JSON, text that is no Unicode, names, ids, waits.

The readers (`object_of`, `text_of` and so on) return a value of the type that the caller expects, or raise
StreamBroken: a server can send JSON of any shape.
"""

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, cast
from uuid import uuid4

from agentmagic.errors import StreamBroken
from agentmagic.text import encodable

Json = dict[str, Any]

DEEPEST = 100
"""Levels of nesting that are read; deeper data would exhaust the stack of the code that walks it."""

_NAME_FOR_ALL = 64
"""Characters of a function's name that every provider takes."""


def unreadable(why: str) -> StreamBroken:
    """Return the error for data that is no answer."""
    return StreamBroken(f"The provider sent something that cannot be read: {why}. Ask again, or check the base URL.")


def object_of(value: object) -> Json:
    """Return a JSON object; null counts as an empty one."""
    if value is None or isinstance(value, dict):
        return cast("Json", value or {})
    raise _misshapen(value, "an object")


def objects_of(value: object) -> list[Json]:
    """Return a list of JSON objects; null counts as an empty one."""
    if value is None or isinstance(value, list):
        return [object_of(item) for item in cast("list[object]", value or [])]
    raise _misshapen(value, "a list")


def text_of(value: object) -> str:
    """Return a text without lone surrogates; null counts as an empty one."""
    if value is None or isinstance(value, str):
        return encodable(value or "")
    raise _misshapen(value, "a text")


def place_of(value: object) -> int:
    """Return a whole number, the position of a part."""
    if isinstance(value, int):
        return value
    raise _misshapen(value, "a number")


def figures_of(value: object) -> Json:
    """Return an object with figures such as token counts, an empty one for anything else: no answer fails over them."""
    return cast("Json", value) if isinstance(value, dict) else {}


def count_of(value: object) -> int:
    """Return a number of tokens, 0 for anything else."""
    return max(value, 0) if isinstance(value, int) else 0


def _misshapen(value: object, expected: str) -> StreamBroken:
    return unreadable(f"{type(value).__name__} in place of {expected}")


def clean(value: Any, depth: int = DEEPEST) -> Any:
    """Return JSON data that can be written: without lone surrogates, with null for NaN and infinity.

    Raises ValueError if it is nested deeper than `depth`.
    """
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth == 0:
        message = f"it is nested deeper than {DEEPEST} levels"
        raise ValueError(message)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        return {encodable(key): clean(item, depth - 1) for key, item in entries}
    return [clean(item, depth - 1) for item in cast("Sequence[Any]", value)]


def kept(data: Any) -> Any:
    """Return JSON of a provider in a form that can be saved and sent back. Raises StreamBroken if it nests too deep."""
    try:
        return clean(data)
    except ValueError as error:
        raise unreadable(str(error)) from None


def read_arguments(text: str) -> Json:
    """Return a call's arguments, `{"_raw": text}` for text that is no JSON object, and {} for no text."""
    if not text.strip():
        return {}
    try:
        value = clean(json.loads(text, parse_constant=_finite, parse_float=_finite))
    except (ValueError, RecursionError):
        return {"_raw": encodable(text)}
    return cast("Json", value) if isinstance(value, dict) else {"_raw": encodable(text)}


def _finite(number: str) -> float:
    value = float(number)
    if math.isfinite(value):
        return value
    message = f"{number} is no JSON number"
    raise ValueError(message)


_write_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps with an option makes an encoder per call


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a call's arguments as JSON text."""
    return _write_json(clean(arguments))


def mint_id() -> str:
    """Return an id for a call that came without one."""
    return f"call_{uuid4().hex}"


def fit_id(call_id: str, longest: int) -> str:
    """Return a call's id, shortened if another server made it longer than this API takes; the same every time."""
    if len(call_id) <= longest:
        return call_id
    return f"call_{_digest(call_id)}"


def fit_name(name: str, legal: re.Pattern[str]) -> str:
    """Return the name of a function if the API takes it, or else a legal name made of it, the same every time.

    A history can hold names that a model made up, or that only another provider allows.
    """
    if legal.fullmatch(name):
        return name
    fitted = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    fitted = fitted if re.match(r"[A-Za-z_]", fitted) else f"_{fitted}"
    return fitted if len(fitted) <= _NAME_FOR_ALL else f"{fitted[: _NAME_FOR_ALL - 33]}_{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(encodable(text).encode()).hexdigest()[:32]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait, from `Retry-After` (seconds or a date) or its -ms form."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    try:
        return max(parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
