"""Bounds the work of calendars: ranges of dates, periods, and texts that are read or written as dates."""

import re
from collections.abc import Mapping
from math import inf

from agentmagic.undo.extents import NUMBER, OTHER, PANDAS, PLAIN, Extent
from agentmagic.undo.workload import Bound, Bounded, FunctionBound, Given, most_of

_PERIODS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "D": 86400, "B": 86400,
    "W": 6e5, "w": 6e5, "ME": 2.4e6, "MS": 2.4e6, "M": 2.4e6, "mo": 2.4e6, "QE": 7e6, "QS": 7e6, "Q": 7e6, "q": 7e6,
    "YE": 3e7, "YS": 3e7, "Y": 3e7, "y": 3e7,
}  # fmt: skip
"""Lengths of the periods that texts such as "2h" name in pandas and polars, in seconds, rounded down."""
_CALENDAR = 10_000 * 3.2e7
"""Seconds that the days of a calendar in texts can span: 10,000 years."""


def seconds_of(period: Extent | None) -> float:
    """Return the length of a period such as "2h" in seconds, or 0 if it is not known."""
    found = re.fullmatch(r"(\d*)([A-Za-z]+)(-[A-Z]+)?", str(period.exact)) if period and period.kind == "text" else None
    return max(1, int(found[1] or 1)) * _PERIODS.get(found[2], 0) if found else 0.0


def _parsed_dates(of: Extent, given: Given) -> Bounded:
    """Bound reading dates from texts: 50 µs for a text whose format is not known."""
    source = given.args[0] if given.args else of
    form = given.get(None, "format")
    is_known = source.weight == PLAIN or (form is not None and isinstance(form.exact, str) and "%" in form.exact)
    if source.shape == () or source.kind == "text":
        return 500.0 + source.size, NUMBER
    inner, length = NUMBER, source.cells
    kind = "series" if source.kind in ("series", "") else ""
    return length * (5 if is_known else 500), Extent(kind, source.shape, length, 64, PLAIN, inner, labels=source.labels)


def _upsampled(of: Extent, given: Given) -> Bounded:
    """Bound a row for each period of the calendar: 10,000 years of it, because the span is not known."""
    period = seconds_of(given.get(0, "freq", "rule", "every"))
    rows = of.length + _CALENDAR / period if period else inf
    kind = "groups" if of.kind in PANDAS else ""
    return of.work + rows * PLAIN, Extent(kind, None, of.size + rows * max(1.0, of.width), of.bits, of.weight, of.inner)


def _formatted_dates(of: Extent, given: Given) -> Bounded:
    form = given.size if given.all else 20
    size = of.cells * (form + 30) * 10
    return of.cells * 10 + size * 0.3, Extent("text" if of.shape == () else "", None, size)


def _dates(given: Given) -> Bounded:
    """Bound a range of dates: the number of its periods, or a span of the calendar."""
    if (periods := given.get(None, "periods")) is not None or len(given.args) > 2:  # noqa: PLR2004
        number = most_of(periods) if periods is not None else inf
        return number * 0.5, Extent("series", (number,), number, 64, PLAIN, NUMBER)
    freq = given.get(None, "freq", "interval")
    period = 86400.0 if freq is None else seconds_of(freq)
    number = _span(given) / period if period else inf
    return number * 0.5, Extent("series", (number,), number, 64, PLAIN, NUMBER)


def _span(given: Given) -> float:
    """Return an upper bound of the seconds between the two dates that are given as texts."""
    ends = [*given.args[:2], *(one for name, one in given.names.items() if name in ("start", "end"))]
    years = [re.match(r"(\d{4})(?!\d)", str(one.exact)) for one in ends if one.kind == "text"]
    if len(years) == 2 and all(years):  # noqa: PLR2004
        first, last = sorted(int(year[1]) for year in years if year)
        return (last - first + 1) * 3.2e7
    return _CALENDAR


def _polars_dates(given: Given) -> Bounded:
    interval = given.get(2, "interval")
    period = 86400.0 if interval is None else seconds_of(interval)
    number = _CALENDAR / period if period else inf
    return number * 0.5, Extent("polars expression", None, number, 128, PLAIN)


def _parsed(given: Given) -> Bounded:
    return _parsed_dates(OTHER, given)


CALENDAR_METHODS: Mapping[Bound, str] = {
    _upsampled: "resample asfreq",
    _formatted_dates: "strftime isoformat ctime",
}
"""The methods of each kind of work."""
CALENDAR_FUNCTIONS: Mapping[str, Mapping[FunctionBound, str]] = {
    "pandas": {
        _parsed: "to_datetime Timestamp Timedelta to_timedelta Period",
        _dates: "date_range period_range timedelta_range bdate_range",
    },
    "polars": {_polars_dates: "date_range"},
}
"""The functions of each kind of work, by module."""
