"""Bounds the work of showing and formatting values, and of matching regular expressions, with the sizes of texts."""

import os
import re
import sys
from math import inf
from typing import Any

from agentmagic.undo.extents import NUMBERS, OTHER, PLAIN, Extent, text_of


def raised(base: float, exponent: float) -> float:
    """Return a power, or infinity if it is too large for a number."""
    try:
        return float(base**exponent)
    except OverflowError:
        return inf


def shown_size(one: Extent) -> float:
    """Return an upper bound of the length of the text of a value, with `str` or `repr`."""
    if one.kind in ("float", "bool", "other"):
        return 350.0
    if one.kind in ("int", "range"):
        return one.bits / 3 + 2 if one.kind == "int" else one.bits + 30
    if one.kind == "text":
        return one.size * 10 + 2
    return 1000 + _shown_cells(one) * 1000 if one.weight < 1 else (one.size + 1) * 400 + one.bits


def shown(one: Extent) -> float:
    """Return the work of showing a value, as its text and, for a frame, its HTML."""
    if one.kind in ("text", "range"):
        return 1 + one.size * PLAIN if one.kind == "text" else 10.0
    if one.weight < 1 or one.kind in ("frame", "series", "array"):
        is_flat = one.weight < 1 or (one.inner is not None and one.inner.kind in NUMBERS)
        return 60 * _shown_cells(one) + (0 if is_flat else one.size * 5)
    return 1 + one.size * 5 + raised(one.bits / 30, 2) * 0.02


def _shown_cells(one: Extent) -> float:
    """Return how many cells of a frame or array its library shows."""
    pandas: Any = sys.modules.get("pandas")
    numpy: Any = sys.modules.get("numpy")
    rows, columns = (pandas.get_option(f"display.max_{name}") if pandas else 100 for name in ("rows", "columns"))
    rows, columns = inf if rows is None else max(25, rows), inf if columns is None else max(25, columns)
    threshold = numpy.get_printoptions()["threshold"] if numpy else 0
    if int(os.environ.get("POLARS_FMT_MAX_ROWS", "8")) not in range(1000):
        rows = inf
    return min(one.size, max(threshold, min(rows, one.length) * min(columns, one.width)))


def formatted(one: Extent, spec: Extent | None) -> tuple[float, Extent]:
    """Return the work and the extent of a value as a text in a format, such as `:>10`."""
    if spec is None:
        return shown(one), text_of(shown_size(one))
    known = str(spec.exact) if isinstance(spec.exact, (str, bytes)) else None
    width = raised(10, spec.size) if known is None else sum(map(float, re.findall(r"\d+", known)))
    size = shown_size(one) + width + spec.size * 10
    return shown(one) + size * 0.1, text_of(size)


def matching_work(pattern: Extent | None, texts: Extent, length: float) -> float:
    """Return the work of finding all matches of a regular expression in texts of at most this length: 20 ns a step."""
    if pattern is None or pattern is OTHER:
        return texts.size
    if not isinstance(pattern.exact, (str, bytes)):
        return 0.0 if pattern.kind in NUMBERS else inf
    source = pattern.exact if isinstance(pattern.exact, str) else pattern.exact.decode("latin-1")
    each = steps(source, length)
    is_linear = each <= length + 1
    return 100 * len(source) + (
        texts.size * 0.3 if is_linear else max(1.0, texts.cells if texts.kind != "text" else 1.0) * each * 0.2
    )


_TOKEN = re.compile(
    r"\\(?:[1-9]|[gk])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?:|\?P<\w+>)?|\)|\||[*+?]|\{(\d*)(?:(,)(\d*))?\}|[^\\\[]",
    re.DOTALL,
)
"""One part of a pattern. The groups are the limits of a repetition: `{2,5}`."""


def steps(pattern: str, length: float) -> float:  # noqa: C901  (one arm for each kind)
    """Return an upper bound of the steps of finding all matches of a pattern in a text of this length.

    Each repetition can stop at each place, so the steps are a product over the repetitions. A repeated group that has
    repetitions or alternatives inside has no bound; nor have back references, look-around and flags in the pattern.
    """
    length, factor, position = length + 1, 1.0, 0
    groups = [False]
    """For the pattern and each open group: whether it has repetitions or alternatives inside."""
    closed = False  # whether the part before is a group that has
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None or (pattern.startswith("(?", position) and len(token[0]) == 1):
            return inf
        position, part = token.end(), token[0]
        repeats = part in ("*", "+", "?") or (token[1] is not None and (token[1] or token[2] or token[3]))
        if part[0] == "\\" and part[1] in "123456789gk":
            return inf
        if part[0] == "(":
            groups.append(False)
        elif part == ")":
            if len(groups) == 1:
                return inf
            closed = groups.pop()
            groups[-1] |= closed
            continue
        elif part == "|":
            groups[-1], factor = True, factor * 2
        elif repeats:
            if closed:
                return inf
            position += pattern.startswith(("?", "+"), position)  # a lazy or possessive repetition
            groups[-1] = True
            if position < len(pattern) or len(groups) > 1:  # the last repetition has nothing to come back for
                factor *= _choices(part, token, length)
        closed = False
    return length * factor if len(groups) == 1 else inf


def _choices(part: str, token: re.Match[str], length: float) -> float:
    """Return how many numbers of repetitions a quantifier allows."""
    if part in ("*", "+") or (token[2] and not token[3]):
        return length
    if part == "?":
        return 2
    return min(length, abs(int(token[3]) - int(token[1] or 0)) + 1) if token[2] else 1
