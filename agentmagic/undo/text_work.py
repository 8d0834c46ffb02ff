"""Bounds the work of methods and functions of texts, such as padding and regular expressions."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from agentmagic.undo.backtracking import steps
from agentmagic.undo.extents import BOOL, HELD, NUMBER, NUMBERS, OTHER, PLAIN, POLARS, Extent, text_of, unknown, whole
from agentmagic.undo.workload import Bound, Bounded, FunctionBound, Given, cell_size, most_of, predicate, raised, shown


def _padded(of: Extent, given: Given) -> Bounded:
    """Bound a method that pads each text to a width."""
    width = max([8.0, *(most_of(one) for one in given.all)])
    texts = of.cells if of.kind != "text" else 1.0
    size = (of.size + texts) * width if of.kind != "text" else of.size + width
    return of.work + size * 0.05, replace(
        of, size=size, shape=(size,) if of.kind == "text" else of.shape, inner=None, exact=None
    )


def _tabs(of: Extent, given: Given) -> Bounded:
    return _padded(replace(of, size=of.size * max([8.0, *(most_of(one) for one in given.all)])), given)


def _text_pass(of: Extent, given: Given) -> Bounded:
    """Bound a method of texts, which looks at each character once."""
    removed = max([1.0, *(one.size for one in given.all if one.kind != "text" or one.size > 3)])  # noqa: PLR2004
    if of.kind == "text":  # `strip` compares each character with each that it removes
        return of.work * removed + given.work, replace(of, exact=None)
    inner = of.inner if of.inner and of.inner.kind == "text" else None
    kind = of.kind if of.kind in HELD else ""
    result = replace(of, kind=kind, inner=inner, exact=None, columns=None)
    return of.cells + of.size * 0.05 * removed + given.work, result


def _text_parts(of: Extent, given: Given) -> Bounded:
    """Bound a method that makes a list of parts of each text."""
    sought = max([1.0, *(one.size for one in given.args[:1] if one.kind == "text")])
    work = of.cells * 5 + of.size * 0.5 if of.kind != "text" else of.size * (0.5 + sought * 0.01)
    pattern = 0.0 if of.kind in ("text", "list") else _pattern_work(of, given.get(0, "pat"))
    kind = "list" if of.kind == "text" else of.kind if of.kind in POLARS else ""
    inner = text_of(of.size) if of.kind == "text" else None
    shape = (of.size + 1,) if of.kind == "text" else of.shape
    size = of.size * 2 + 2
    if "expand" in given.names:
        size += of.cells * cell_size(of)
    return work + pattern + size * 0.1 + given.work, Extent(kind, shape, size, inner=inner)


def _replaced(of: Extent, given: Given) -> Bounded:
    """Bound a replacement: each character can become the new text. Patterns in columns are regular expressions."""
    new = max([1.0, *(one.size for one in given.args[1:]), *(one.size for one in given.args[:1] if one.kind != "text")])
    is_plain = of.weight == PLAIN and of.inner is not None and of.inner.kind in NUMBERS
    work = of.work + given.work * 4
    if is_plain:
        return work, replace(of, kind="", columns=None, inner=None, weight=1.0 if new > 1 or given.names else of.weight)
    size = (of.size + 1) * new
    pattern = 0.0
    if of.kind != "text" and (regex := given.get(None, "regex")) is not None and regex.exact is not False:
        pattern = max([_pattern_work(of, one) for one in (*given.args[:1], regex) if one is not BOOL] or [0.0])
    kind = of.kind if of.kind == "text" or of.kind in POLARS else ""
    shape = (size,) if of.kind == "text" else None
    return work + pattern + size * (0.02 if of.kind == "text" else 0.2), Extent(kind, shape, size, of.bits)


def _pattern_work(of: Extent, pattern: Extent | None) -> float:
    """Return the work of matching a pattern in each text of a column: 20 ns for a step."""
    if pattern is None:
        return of.size
    if not isinstance(pattern.exact, str):
        return 0.0 if pattern.kind in NUMBERS or pattern.kind == "other" else inf
    text = max(1.0, cell_size(of) if of.inner is not None else of.size)
    if steps(pattern.exact, text) <= text + 1:  # one step for each character
        return 100 * len(pattern.exact) + of.size * 0.3
    return 100 * len(pattern.exact) + of.cells * steps(pattern.exact, text) * 0.2


def matched(of: Extent, given: Given) -> Bounded:
    """Bound a search for a regular expression in each text of a column."""
    pattern = given.get(0, "pat", "pattern", "other", "item")
    if of.kind == "polars expression" or of.kind in POLARS:  # polars matches in linear time
        return of.work * 5 + given.work, replace(of, inner=None, exact=None)
    flags = given.get(None, "flags")
    work = _pattern_work(of, pattern) if flags is None or flags.kind == "flag" else inf
    _, result = predicate(of, Given())
    return of.cells * 2 + work, result


def _extracted(of: Extent, given: Given) -> Bounded:
    work, _ = matched(of, given)
    if of.kind == "text":
        work = min(work, of.work + given.work) if not given.names else work
    pattern = given.get(0, "pat", "pattern")
    groups = pattern.size + 1 if pattern else 1
    kind = of.kind if of.kind in POLARS else ""
    return work + of.cells * groups, Extent(kind, None, (of.size + 1) * groups, inner=None)


def _find(of: Extent, given: Given) -> Bounded:
    """Bound `find` and `index`: of a text, without a regular expression."""
    sought = max([1.0, *(one.size for one in given.args[:1])])
    work = of.work + given.work + of.size * sought * 0.01 + (of.length if of.kind in ("range", "") else 0)
    return work, replace(of, inner=NUMBER, kind="") if of.is_held and of.cells > 1 else whole(of.size)


def joined(of: Extent, given: Given) -> Bounded:
    """Return the bound of `text.join(texts)`."""
    size = given.size + of.size * sum(one.length for one in given.args)
    return 1 + given.work + size * 0.02, text_of(size)


def regex_work(pattern: Extent | None, text: Extent | None, flags: Extent | None, limit: Extent | None = None) -> float:
    """Return the work of a search: 20 ns for a step."""
    if pattern is None or text is None or not isinstance(pattern.exact, (str, bytes)):
        return inf
    if flags is not None and flags.kind != "flag" and limit is not flags:
        return inf
    source = pattern.exact if isinstance(pattern.exact, str) else pattern.exact.decode("latin-1")
    return 100 * len(source) + steps(source, text.size) * 0.2


def _parts_of(text: Extent | None, pattern: Extent | None) -> Extent:
    size = (text.size if text else 1) * (1 + (pattern.size if pattern else 1)) + 1
    return Extent("", None, size)


def _searched(given: Given) -> Bounded:
    pattern, text = given.get(0, "pattern"), given.args[1] if len(given.args) > 1 else given.get(None, "string")
    return regex_work(pattern, text, given.get(2, "flags")), _parts_of(text, pattern)


def _split(given: Given) -> Bounded:
    pattern, text = given.get(0, "pattern"), given.args[1] if len(given.args) > 1 else given.get(None, "string")
    return regex_work(pattern, text, given.get(3, "flags")), _parts_of(text, pattern)


def _substituted(given: Given) -> Bounded:
    pattern, new, text = given.get(0, "pattern"), given.get(1, "repl"), given.get(2, "string")
    if new is None or text is None:
        return inf, OTHER
    is_plain = isinstance(new.exact, str) and "\\" not in new.exact
    size = (text.size + 1) * (new.size + 1) * (1 if is_plain else text.size + 1)
    return regex_work(pattern, text, given.get(4, "flags")) + size * 0.02, text_of(size)


def _wrapped(given: Given) -> Bounded:
    prefix = given.args[1] if len(given.args) > 1 else OTHER
    size = (given.args[0].size if given.args else 1) * (1 + (prefix.size if prefix.kind == "text" else 0))
    width = sum(one.size for one in given.names.values() if one.kind == "text")
    work = size * 20 + raised(size, 2) * 0.01  # a long word is cut from the front, line by line
    return work * (1 + width), text_of(size * 2 * (1 + width))


def _dumped(given: Given) -> Bounded:
    indent, marks = given.get(None, "indent"), given.get(None, "separators")
    factor = (
        1 + (max(most_of(indent), indent.size) if indent is not None else 0) + (marks.size if marks is not None else 0)
    )
    source = given.args[0] if given.args else OTHER
    size = (source.size + 1) * 25 * factor
    return source.size * 5 + size * 0.02 + source.bits * 0.01, text_of(size)


def _loaded(given: Given) -> Bounded:
    return given.size, unknown(given.size, 64 + 4 * given.size)


def _pretty(given: Given) -> Bounded:
    """Bound `pprint`, which makes the text of each part again at each level."""
    source, indent = given.args[0] if given.args else OTHER, given.get(1, "indent")
    factor = 1 + (most_of(indent) if indent is not None else 0)
    return (source.size + 1) * 100 * factor + shown(source), text_of((source.size + 1) * 40 * factor)


def _one_text(given: Given) -> Bounded:
    size = 1000 + given.size * 100
    return size * 0.1, text_of(size)


TEXT_METHODS: Mapping[Bound, str] = {
    _padded: "ljust rjust center zfill pad",
    _tabs: "expandtabs",
    _text_pass: "upper lower title capitalize swapcase casefold strip lstrip rstrip removeprefix removesuffix "
    "to_lowercase to_uppercase strip_chars cat",
    _text_parts: "split rsplit splitlines rpartition",
    _replaced: "replace translate",
    matched: "contains match fullmatch count_matches",
    _extracted: "extract extractall extract_all findall",
    _find: "find rfind index rindex",
}
"""The methods of each kind of work."""

TEXT_FUNCTIONS: Mapping[str, Mapping[FunctionBound, str]] = {
    "builtins": {
        _one_text: "chr",
    },
    "json": {
        _dumped: "dumps",
        _loaded: "loads",
    },
    "re": {
        _searched: "findall search match fullmatch",
        _split: "split",
        _substituted: "sub",
        _one_text: "escape",
    },
    "time": {
        _one_text: "ctime strftime",
    },
    "os": {
        _one_text: "getcwd",
    },
    "os.path": {
        _one_text: "join basename dirname abspath splitext",
    },
    "pprint": {
        _pretty: "pformat pprint pp",
    },
    "textwrap": {
        _wrapped: "dedent fill shorten indent",
    },
}
"""The functions of each kind of work, by module."""
