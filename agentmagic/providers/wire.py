"""What every provider reads and writes alike: JSON of unknown shape, text that may be no Unicode, names, waits.

What comes off the wire is not trusted to have any shape: the readers here return what was looked for, or
raise StreamBroken.
"""

import hashlib
import json
import math
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, cast
from uuid import uuid4

from agentmagic.errors import StreamBroken

Json = dict[str, Any]

DEEPEST = 100
"""Levels of nesting that are read; what a model nests deeper would exhaust the stack of whoever walks it."""

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""What OpenSSL calls an answer that is not TLS."""

_NAME_FOR_ALL = 64
"""Characters of a function's name that every provider takes."""


def unreadable(why: str) -> StreamBroken:
    """Say that what came is no answer, and why."""
    return StreamBroken(f"The provider sent something that cannot be read: {why}. Ask again, or check the base URL.")


def object_of(value: object) -> Json:
    """Return a JSON object; nothing counts as an empty one."""
    if value is None or isinstance(value, dict):
        return cast("Json", value or {})
    raise _misshapen(value, "an object")


def objects_of(value: object) -> list[Json]:
    """Return a list of JSON objects; nothing counts as an empty one."""
    if value is None or isinstance(value, list):
        return [object_of(item) for item in cast("list[object]", value or [])]
    raise _misshapen(value, "a list")


def text_of(value: object) -> str:
    """Return a text that can be written; nothing counts as an empty one."""
    if value is None or isinstance(value, str):
        return clean_text(value or "")
    raise _misshapen(value, "a text")


def place_of(value: object) -> int:
    """Return a whole number."""
    if isinstance(value, int):
        return value
    raise _misshapen(value, "a number")


def figures_of(value: object) -> Json:
    """Return an object of figures; anything else is an empty one, since no answer should fail of a figure."""
    return cast("Json", value) if isinstance(value, dict) else {}


def count_of(value: object) -> int:
    """Return a number of tokens; anything else counts as none."""
    return max(value, 0) if isinstance(value, int) else 0


def _misshapen(value: object, expected: str) -> StreamBroken:
    return unreadable(f"{type(value).__name__} in place of {expected}")


def clean(value: Any, depth: int = DEEPEST) -> Any:
    """Return JSON data as it can be written: without lone surrogates, and null for a number that is none.

    Raises ValueError where it is nested deeper than `depth`.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth == 0:
        message = f"it is nested deeper than {DEEPEST} levels"
        raise ValueError(message)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        return {clean_text(key): clean(item, depth - 1) for key, item in entries}
    return [clean(item, depth - 1) for item in cast("Sequence[Any]", value)]


def clean_text(text: str) -> str:
    """Return the text with every lone surrogate, which no encoding of Unicode can write, replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def kept(data: Any) -> Any:
    """Return JSON that a provider sent as it can be kept and sent back.

    Raises StreamBroken for what is nested too deep.
    """
    try:
        return clean(data)
    except ValueError as error:
        raise unreadable(str(error)) from None


def read_arguments(text: str) -> Json:
    """Parse a call's arguments; what is no JSON object stands as `{"_raw": text}`, nothing as no arguments."""
    if not text.strip():
        return {}
    try:
        value = clean(json.loads(text, parse_constant=_finite, parse_float=_finite))
    except (ValueError, RecursionError):
        return {"_raw": clean_text(text)}
    return cast("Json", value) if isinstance(value, dict) else {"_raw": clean_text(text)}


def _finite(number: str) -> float:
    value = float(number)
    if math.isfinite(value):
        return value
    message = f"{number} is no JSON number"
    raise ValueError(message)


def mint_id() -> str:
    """Make an id for a call that came without one."""
    return f"call_{uuid4().hex}"


def fit_id(call_id: str, longest: int) -> str:
    """Shorten a call's id that another server made longer than this API takes; the same id every time."""
    if len(call_id) <= longest:
        return call_id
    return f"call_{_digest(call_id)}"


def fit_name(name: str, legal: re.Pattern[str]) -> str:
    """Return the name of a function as an API takes it: itself where it is legal, else the same other name every time.

    A history may hold names that a model made up, or that another provider allows.
    """
    if legal.fullmatch(name):
        return name
    fitted = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    fitted = fitted if re.match(r"[A-Za-z_]", fitted) else f"_{fitted}"
    return fitted if len(fitted) <= _NAME_FOR_ALL else f"{fitted[: _NAME_FOR_ALL - 33]}_{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(clean_text(text).encode()).hexdigest()[:32]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a response asks to wait, from `Retry-After` (seconds or a date) or its -ms form."""
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


def certificate_fault(error: BaseException | None) -> str:
    """Say what is wrong with a server's encryption where that is why it could not be reached, else nothing.

    Trying again does not help then: the address, or the certificates that this machine trusts, are wrong.
    """
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted, {getattr(error, 'verify_message', error)}"
        if isinstance(error, ssl.SSLError) and getattr(error, "reason", "") in _NO_TLS:
            return "it does not speak TLS there; http:// may be meant"
        error = error.__cause__ or error.__context__
    return ""
