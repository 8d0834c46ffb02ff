"""The kinds of work of built-in functions and of texts, and the names of all kinds of work."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import inf, log2
from typing import cast

from agentmagic.undo import workload as library
from agentmagic.undo.extents import (
    BOOL,
    FLOAT,
    HELD,
    NUMBER,
    NUMBERS,
    OTHER,
    PLAIN,
    POLARS,
    Extent,
    join,
    list_of,
    range_of,
    repeated,
    text_of,
    unknown,
    whole,
)
from agentmagic.undo.operators import Bounded, item_of
from agentmagic.undo.texts import formatted, matching_work, raised, shown, shown_size
from agentmagic.undo.workload import NONE, Given, Kind, converted, hashed_again

_PERIODS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "D": 86400, "B": 86400,
    "W": 6e5, "w": 6e5, "ME": 2.4e6, "MS": 2.4e6, "M": 2.4e6, "mo": 2.4e6, "QE": 7e6, "QS": 7e6, "Q": 7e6, "q": 7e6,
    "YE": 3e7, "YS": 3e7, "Y": 3e7, "y": 3e7,
}  # fmt: skip
"""Lengths of the periods that texts such as "2h" name in pandas and polars, in seconds, rounded down."""
_YEAR, _YEARS = 3.2e7, 10_000
"""Seconds of a year, and the years that a calendar can span if its ends are not known."""


def _value(of: Extent, given: Given, result: Extent, each: float = 1.0) -> Bounded:
    """Look at the arguments once, to make a short value."""
    return each + of.work + given.work, result


def _length(of: Extent, _given: Given) -> Bounded:
    return 1.0, replace(whole(log2(2 + of.length) + 1 if of.length < inf else inf), exact=None)


def _print(of: Extent, given: Given) -> Bounded:
    between = sum(one.size for one in given.names.values())
    several = (of, *given.args)
    return sum(map(shown, several)) + between * sum(1 + one.length for one in several), OTHER


def _iterate(of: Extent, given: Given) -> Bounded:
    """Make a container of the items of all arguments."""
    several = (of, *given.args)
    items, length = [one.item() for one in several], max(one.length for one in several)
    item = items[0] if len(several) == 1 else list_of(items)
    work = sum(one.length + one.work for one in several) + given.work
    return work, Extent("list", (length,), 2 * sum(one.size + one.length for one in several) + 1, item.bits, inner=item)


def _set(of: Extent, given: Given) -> Bounded:
    work, result = _iterate(of, given)
    return work + hashed_again(result.length, result.bits), result


def _enumerate(of: Extent, given: Given) -> Bounded:
    work, result = _iterate(of, NONE)
    return work + given.work, replace(result, size=3 * result.size, inner=list_of([whole(64), of.item()]))


def _dict(of: Extent, given: Given) -> Bounded:
    """Make a dict of pairs, another dict or the arguments that are given by name."""
    if of.kind == "dict" and not given.all:
        return of.work, of
    work, _ = _set(of, given)
    size, bits = 2 * (of.size + given.size) + 1, max(one.bits for one in (of, *given.all, OTHER))
    return work, Extent("dict", (of.length + len(given.all),), size, bits, inner=unknown(size, bits))


def _counter(of: Extent, given: Given) -> Bounded:
    work, result = _set(of, given)
    return 2 * work, repeated(whole(64), result.length, result.inner)


def _sorted(of: Extent, given: Given) -> Bounded:
    work, result = _iterate(of, NONE)
    return work + given.work + library.sort(result, NONE)[0], result


def _sum(of: Extent, given: Given) -> Bounded:
    """Add all items: containers are copied for each further one; fractions grow."""
    item, start = of.item(), given.get(0, "start") or Extent("int", exact=0)
    if {item.kind, start.kind} <= {"int", "bool", "float", "number"}:
        kind = item.kind if item.kind != "bool" else "int"
        return of.work + of.length, whole(item.bits + log2(2 + of.length) + start.bits, kind)
    bits, size = item.bits * of.length, of.size + given.size
    kind = "exact" if item.kind == "exact" and start.kind in NUMBERS else ""
    work = of.work + of.length * (1 + bits / 1000) + (0 if kind or item.size <= 3 else of.length * size * PLAIN)  # noqa: PLR2004
    return work, Extent(kind, () if kind else None, size + bits / 64, bits)


def _range(of: Extent, given: Given) -> Bounded:
    several = (of, *given.args)
    numbers = [one.exact for one in several]
    if all(type(number) is int for number in numbers) and 0 not in numbers[2:]:
        return 1.0, range_of(range(*cast("list[int]", numbers)))
    length = sum(one.most for one in several[:2])
    bits = max(one.bits for one in several)
    return 1.0, Extent("range", (length,), length + 1, bits, inner=whole(bits))


def _whole(of: Extent, _given: Given) -> Bounded:
    """Make a whole number: the digits of a text, or the whole part of a number."""
    if isinstance(of.exact, int):
        return 1.0, of
    bits = max(of.bits, 1024.0, 6.0 * of.size if of.kind not in NUMBERS else 1.0)
    if of.kind == "float" and isinstance(of.exact, float) and abs(of.exact) < 2.0**62:
        bits = log2(2 + abs(of.exact)) + 1
    return 1 + raised(bits / 30, 2) * 0.02, whole(bits)


def _round(of: Extent, given: Given) -> Bounded:
    """Round a number. Digits left of the point can make a whole number longer."""
    digits = given.get(0, "ndigits")
    if of.is_held or (of.kind == "float" and digits is not None):
        return of.work, replace(of, exact=None)
    bits = max(1024.0, of.bits) + (3.4 * digits.most if digits is not None else 0)
    result = whole(bits, "number") if of.kind in NUMBERS else unknown(of.size + bits / 64, bits)
    return of.work + raised(bits / 30, 1.6) * 0.02, result


def _extreme(of: Extent, given: Given) -> Bounded:
    items = [of.item()] if not given.args else [of, *given.args]
    result = join([*items, *([given.names["default"]] if "default" in given.names else [])])
    return of.length + of.work + 2 * given.work, replace(result, exact=None)


def _next(of: Extent, given: Given) -> Bounded:
    return 1.0, join([of.item(), *given.args])


def _bytes(of: Extent, given: Given) -> Bounded:
    size = of.size * 4 + (of.most if of.kind in NUMBERS | {""} else 0)
    return size * PLAIN + given.work, text_of(size)


def _format(of: Extent, given: Given) -> Bounded:
    return formatted(of, given.get(0))


def _factorial(of: Extent, given: Given) -> Bounded:
    most = max(one.most for one in (of, *given.args))
    bits = min(most, max(1.0, given.args[0].most) if given.args else most) * log2(most + 2) if most < inf else inf
    return 1 + raised(bits / 30, 1.6) * 0.05, whole(bits)


def _statistic(of: Extent, given: Given) -> Bounded:
    """Calculate with fractions: 2.5 µs for a number."""
    number = given.get(9, "n")
    size = of.size + given.size + (number.most if number is not None else 1)
    return size * 20 * (1 + of.bits / 640), unknown(size, of.bits * 2)


def _frame(of: Extent, given: Given, kind: str = "frame") -> Bounded:
    """Make a frame. The values of a dict are its columns; numbers in it are repeated to the length of its lists."""
    if of.kind == kind and not given.all:
        return of.work, replace(of, exact=None)
    columns = given.names.get("columns", OTHER)
    length = max(one.length for one in (of, *([of.inner] if of.inner else []), *given.all))
    width = of.length if of.kind == "dict" else of.width * (of.cell_size if of.kind == "list" else 1)
    width = max(width, columns.length if columns.shape is not None else columns.size)
    size = of.size + length * width * (of.size if given.args or "index" in given.names else 1) + given.size
    return size * 3, Extent(kind, (length, max(1.0, width)), size, max(64, of.bits), 1.0)


def _polars(of: Extent, given: Given) -> Bounded:
    size = 1 + of.size + given.size
    return size + 50 * converted(Given((of, *given.all))), Extent("polars expression", None, size, 128, PLAIN)


def _keys(of: Extent, _given: Given) -> Bounded:
    return 1.0, repeated(of.keys, of.length) if of.keys and of.kind == "dict" else unknown(of.size, of.bits)


def _get(of: Extent, given: Given) -> Bounded:
    work, found = item_of(of, given.args[0] if given.args else OTHER)
    return work + given.work, join([found, given.args[1] if len(given.args) > 1 else OTHER])


def _count(of: Extent, given: Given) -> Bounded:
    """Count or find items, or what matches a pattern in each text of a column."""
    if of.is_held:
        return _match(of, given) if given.args and of.kind not in POLARS else library.reduction(of, given)
    sought = max([1.0, *(one.size for one in given.args[:1])])
    return 2 * (of.work + given.work) + of.length * sought * 0.02, whole(64)


def _calendar(of: Extent, given: Given) -> Bounded:
    """Make a row for each period of a calendar: `periods` of them, or those of 10,000 years."""
    periods, freq = given.names.get("periods"), given.get(9, "freq", "rule", "every", "interval")
    freq = given.args[-1] if freq is None and of.kind in HELD and given.args else freq
    seconds = 86400.0 if freq is None else _seconds(freq)
    years = [int(year[0]) for one in (of, *given.all) if (year := re.match(r"\d{4}(?!\d)", str(one.exact)))]
    span = _YEAR * (max(years) - min(years) + 1 if len(years) > 1 else _YEARS)
    rows = periods.most if periods is not None else span / seconds if seconds else inf
    if of.kind in HELD:
        return of.work + rows, replace(library.like(of, of.size + rows * of.width, is_same=False), kind="groups")
    return rows, Extent("series", (rows,), rows, 64, PLAIN, NUMBER)


def _seconds(period: Extent) -> float:
    """Return the length of a period such as "2h" in seconds, or 0 if it is not known."""
    found = re.fullmatch(r"(\d*)([A-Za-z]+)(-[A-Z]+)?", str(period.exact))
    return max(1, int(found[1] or 1)) * _PERIODS.get(found[2], 0) if found else 0.0


# -- groups and expressions ----------------------------------------------------------------------------------


def _groups(of: Extent, given: Given) -> Bounded:
    """Split the rows into groups or windows."""
    kind = "polars groups" if of.kind == "polars frame" else of.kind if of.kind in POLARS else "groups"
    return 2 * of.work + given.work, replace(of, kind=kind, labels="", exact=None)


def _parts(of: Extent, given: Given) -> Bounded:
    """Make a frame of each group, 100 µs each, or a list of all values, which can stand in each row."""
    work, result = library.passes(of, given)
    return work + of.length * 1000, replace(result, size=inf) if of.kind == "polars expression" else result


def _expression(of: Extent, given: Given) -> Bounded:
    """Combine expressions of polars: each of their operations goes over all rows."""
    operations = 1 + sum(1 + one.size for one in given.all)
    if of.kind in ("polars frame", "polars groups"):
        size = of.size * operations
        return size * of.weight, Extent("polars frame", None, size, 128, of.weight)
    size = operations + of.size
    return size, Extent("polars expression" if of.kind == "polars expression" else "", None, size, 128, PLAIN)


def aggregated(of: Extent, rounds: float, *, by_column: bool) -> Bounded:
    """Return the bound of methods that go over a frame, series or its groups some times, or over one column each."""
    several = of.columns.values() if by_column and of.columns is not None else [of]
    work = max([1.0, *(library.reduction(one, NONE)[0] for one in several)]) * max(1.0, rounds)
    return work * (3 if of.kind == "groups" else 1) + 1000, library.like(of, of.size * max(1.0, rounds), is_same=False)


def queried(of: Extent, parts: float) -> Bounded:
    """Return the bound of an expression that pandas evaluates for each row."""
    each = max([PLAIN, *(one.weight for one in of.columns.values())]) if of.columns else of.weight
    return of.work + of.length * parts * each, library.subset(of, NONE)[1]


# -- texts ---------------------------------------------------------------------------------------------------


def _text(of: Extent, given: Given, factor: float = 150.0) -> Bounded:
    """Make a text of all elements. Numbers and texts that are given, such as an indent, can stand before each one."""
    each = max([1.0, *(max(one.most, one.size) for one in given.all)])
    padded = of.cells * of.cell_size if of.is_held and factor > 100 else 0  # noqa: PLR2004  (to the longest in a column)
    size = (of.size + of.length + 50 + padded / factor) * each
    return size * factor + raised(of.bits / 30, 2), text_of(size * factor + of.bits)


def _shown(of: Extent, given: Given) -> Bounded:
    return shown(of) + given.work, text_of(shown_size(of))


def _split(of: Extent, given: Given) -> Bounded:
    """Make a list of parts of each text."""
    if of.kind == "text":
        sought = max([1.0, *(one.size for one in given.args[:1])])
        return of.size * sought * 0.02 + of.size + given.work, Extent(
            "list", (of.size + 1,), of.size * 2 + 2, inner=text_of(of.size)
        )
    work, _ = _match(of, given)
    size = of.size * 2 + 2 + (of.cells * of.cell_size if given.names else 0)  # a column for each part
    return work + of.cells * 5 + size * PLAIN, unknown(size)


def _match(of: Extent, given: Given) -> Bounded:
    """Search for a regular expression in each text of a column; polars does so in linear time."""
    if of.kind in POLARS:
        return of.work * 5 + given.work, replace(of, inner=None, columns=None, exact=None)
    pattern, flags = given.get(0, "pat", "pattern") or OTHER, given.names.get("flags", OTHER)
    is_known = flags.kind in ("flag", "other") and all(one.kind in ("bool", "other") for one in given.args[1:])
    work = matching_work(pattern, of, of.cell_size) if is_known and pattern.kind != "other" else inf
    size = (of.size + 1) * (2 + pattern.size)
    return of.cells * 2 + of.work + work, Extent("", of.shape, size, labels=of.labels)


def _contains(of: Extent, given: Given) -> Bounded:
    return _match(of, given)[0], library.truth(of, NONE)[1]


def _replace(of: Extent, given: Given) -> Bounded:
    """Replace parts of texts: each character can become the new text. In columns, parts can be regular expressions."""
    values = [*given.args[1:], *(one for one in given.all if one.kind != "text")]
    new = max([1.0, *(one.size for one in values), given.names.get("value", OTHER).size])
    if of.kind == "text":
        size = (of.size + 1) * new
        return of.work + given.work + size * 0.02, text_of(size)
    regex = given.names.get("regex")
    patterns = [one for one in (*given.args[:1], regex) if one and one.kind != "bool"] if regex is not None else []
    work = max([0.0, *(matching_work(one, of, of.cell_size) for one in patterns)])
    size = (of.size + of.cells) * new
    work += of.work * sum(one.length for one in given.all if one.kind != "text")  # one pass for each pair
    kind = of.kind if of.kind in POLARS else ""
    return of.work + given.work + work + size, Extent(kind, None, size, of.bits)


def _regex(of: Extent, given: Given, place: int = 0) -> Bounded:
    """Run a function of `re`. `place` is the position of the text after the pattern; before it stands a new text."""
    text, flags = given.get(place, "string"), given.names.get("flags")
    given_flags = [one for one in (*given.args[place + 1 :], flags) if one is not None]
    if text is None or any(one.kind not in ("flag", "other") for one in given_flags):
        return inf, OTHER
    work = matching_work(of, replace(text, kind="text"), text.size) if text.kind == "text" or text.size < inf else inf
    new = given.args[0] if place else of
    is_plain = isinstance(new.exact, str) and "\\" not in new.exact
    size = (text.size + 1) * (new.size + 1) * (1 if is_plain or not place else text.size + 1)
    return work + size * 0.02, text_of(size) if place else Extent("", None, size * 2)


def _loads(of: Extent, given: Given) -> Bounded:
    return of.size + given.work + raised(of.size / 10, 2) * 0.001, unknown(of.size, 64 + 4 * of.size)


KINDS: Mapping[str, Kind] = {
    "pass": library.passes, "subset": library.subset, "equal rows": library.equal_rows, "sort": library.sort,
    "rank": library.rank, "cells": library.cells, "shifted": library.shifted, "numbers": library.numbers,
    "truth": library.truth,
    "running": library.running, "reduction": library.reduction, "items product": library.product_of_items,
    "distinct": library.distinct, "description": library.description, "pairs": library.pairs,
    "quantile": library.quantile, "head": library.head, "relabel": library.relabel, "convert": library.convert,
    "objects": library.objects, "array": library.array, "members": library.members, "repeat": library.repetition,
    "made": library.made, "square": library.square, "spaced": library.spaced, "arange": library.arange,
    "elements": library.elements, "bins": library.bins, "calendar": _calendar, "product": library.product,
    "widened": library.widened, "spread": library.spread, "stacked": library.stacked, "matrix": library.matrix,
    "fit": library.fit, "groups": _groups, "parts": _parts, "expression": _expression,
    "hash": partial(library.passes, factor=2.5), "hash truth": partial(library.truth, factor=2.5),
    "truth of rows": partial(library.equal_rows, is_truth=True), "dates": partial(library.convert, factor=500.0),
    "rows": partial(library.objects, factor=200.0), "turned": lambda of, _: library.turned(of, of.kind),
    "add": partial(library.operator, operation="Add"), "multiply": partial(library.operator, operation="Mult"),
    "power": partial(library.operator, operation="Pow"), "dot": partial(library.operator, operation="MatMult"),
    "divide": partial(library.operator, operation="FloorDiv"), "compare": partial(library.operator, operation="Eq"),
    "number": partial(_value, result=NUMBER), "float": partial(_value, result=FLOAT),
    "bool": partial(_value, result=BOOL), "slice": partial(_value, result=Extent("slice")),
    "files": partial(_value, result=repeated(text_of(100), 1e4), each=1e4), "length": _length, "print": _print,
    "iterate": _iterate, "set": _set, "enumerate": _enumerate, "dict": _dict, "counter": _counter, "sorted": _sorted,
    "sum": _sum, "range": _range, "whole": _whole, "round": _round, "extreme": _extreme, "next": _next,
    "bytes": _bytes, "format": _format, "factorial": _factorial, "statistic": _statistic, "frame": _frame,
    "series": partial(_frame, kind="series"), "polars": _polars, "keys": _keys, "get": _get, "count": _count,
    "text": _text, "shown": _shown, "split": _split, "match": _match, "contains": _contains, "replace": _replace,
    "regex": _regex, "loads": _loads, "csv": partial(_text, factor=20.0), "substitute": partial(_regex, place=1),
    "polars frame": partial(_frame, kind="polars frame"), "polars series": partial(_frame, kind="polars series"),
    "polars range": lambda of, given: _polars(library.arange(of, given)[1], given),
}  # fmt: skip
"""The kinds of work that the table in `operations` names."""
