"""Insert the numbers of sources into an answer without breaking its Markdown. Each number follows the citing words."""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from secrets import randbelow
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from agentmagic.display.markdown import MATHS, parse, to_html
from agentmagic.messages import Citation, Source
from agentmagic.secrets import redact
from agentmagic.text import map_positions, sanitize, web_address

if TYPE_CHECKING:
    from markdown_it.token import Token

LONGEST_TITLE = 150
"""Characters of a page's title, and of its address, that are shown."""
LONGEST_QUOTE = 600
"""Characters of a quotation from a page that are shown."""
LONGEST_NUMBERED = 50_000
"""The longest text, in characters, that gets source numbers.

A longer text, which is slow to parse, only gets the list of sources.
"""
MOST_NUMBERS = 1_000
"""Sources that get a number in the text of an answer; the list below the text has all sources."""
HEAVIEST_NUMBERED = 250_000
"""The largest `_weight` of a text that gets numbers.

Parsing such a text once takes about 0.1 s, and the text is parsed 2 or 3 times.
"""
MOST_SOUGHT = 250_000
"""The total `_weight` of text that is parsed again to find positions where numbers do not change the Markdown."""

_PRIVATE, _PRIVATE_SIZE = 0xE000, 6_400
_SPACE = "\u1680"
"""The first character of a mark.

Markdown treats it as white space beside emphasis, and a web address ends before it.
"""
_MARK = _SPACE + "".join(chr(_PRIVATE + randbelow(_PRIVATE_SIZE)) for _ in range(4))
"""A placeholder for a number in Markdown; the next character encodes the number.

It is random, so no text can contain it.
"""
_MARKS = re.compile(rf"{_SPACE}?{_MARK[1:]}([\ue000-\uf8ff])")

_CLOSED = re.compile(
    r"(?<!`)(?P<ticks>`{1,10})(?!`).{1,1000}?(?<!`)(?P=ticks)(?!`)"
    r"|!?\[[^\[\]\n]{0,500}\](?:\([^()\n]{0,2000}(?:\([^()\n]{0,500}\)[^()\n]{0,500})?\)|\[[^\[\]\n]{0,500}\])"
    rf"|<?https?://[^\s<>|]{{1,2000}}>?|{MATHS.pattern}",
    re.DOTALL,
)
"""Stretches that a number must not split: code, links, addresses and maths."""
_WIDE = r"[\u3001\u3002\u300d\u300f\u2019\u201d\uff01\uff09\uff0c\uff1a\uff1b\uff1f]"
"""Chinese and Japanese punctuation, which no space follows."""
_REST = re.compile(
    r"(?:(?<=[a-zA-Z0-9])(?:[a-zA-Z0-9]|[.,:'\u2019-](?=[a-zA-Z0-9]))+)?"
    rf"{_WIDE}*(?:(?:[^\w\s|\\]|_)+(?=[\s|]|$))?"
)
"""The rest of a word, and the punctuation behind it."""
_NEXT = re.compile(r"(?:\s*\n[ >]*(?:[-*+]|\d{1,9}[.)]|#{1,6}|\|))?\s*\Z")
"""The start of the next line, which a citation may include at its end: the marker of an item, a heading or a row."""
_CODE = ("fence", "code_block")
_SLOW = re.compile(r"[^\w\s]|[_\n]")
"""Characters that can begin a Markdown construct."""
_SLOW_WEIGHT, _LINK_WEIGHT = 20, 50
"""Measured extra parsing times, in plain characters: of a `_SLOW` character, and of a "[", which can open a link."""


class Mark(NamedTuple):
    """A source number, and its position in a Markdown text.

    `before` is Markdown to insert before the number, so that the paragraph or the code above the number is closed. It
    is "" for a number that stands inside a paragraph.
    """

    place: int
    number: int
    before: str = ""


def link(url: str) -> str:
    """Return a web page's URL for use in a link, in HTML or Markdown; "" if the page must not be linked."""
    return web_address(redact(url)).replace("(", "%28").replace(")", "%29")


def insert_numbers(text: str, marks: Iterable[Mark], format_number: Callable[[int], str], glue: str = "") -> str:
    """Return the text with the source numbers of `marks`, each formatted by `format_number`.

    `glue` is inserted before each number whose mark has no `before`.
    """
    pieces: list[str] = []
    end = 0
    for mark in marks:
        pieces += (text[end : mark.place], mark.before or glue, format_number(mark.number))
        end = mark.place
    return "".join((*pieces, text[end:]))


def cited_html(text: str, marks: Sequence[Mark], number: Callable[[int], Markup]) -> Markup:
    """Return Markdown as sanitised HTML, in which `number` renders each source number."""
    html = to_html(insert_numbers(sanitize(text), marks, _mark))
    return Markup(_MARKS.sub(lambda match: number(ord(match[1]) - _PRIVATE), html))  # noqa: S704  (it is sanitised)


@lru_cache(maxsize=16)
def place_numbers(text: str, citations: tuple[Citation, ...], sources: tuple[Source, ...]) -> tuple[Mark, ...]:
    """Return the source numbers of a text's citations, in order. Positions refer to `sanitize(text)`, the shown text.

    A number stands behind the words that cite the source and their punctuation, or below a block of code. If it would
    change how the Markdown is parsed, it stands at the end of the text. A text that is too long or too slow to
    parse gets no numbers.
    """
    whole = sanitize(text)
    if not citations or len(whole) > LONGEST_NUMBERED or _weight(whole) > HEAVIEST_NUMBERED:
        return ()
    numbers = {source.url: source.number for source in sources if source.number <= MOST_NUMBERS}
    places = _NumberPlaces(whole)
    numbered_citations = [citation for citation in citations if citation.url in numbers]
    ends = map_positions([citation.end for citation in numbered_citations], text, whole, sanitize)
    marks = {places.mark(end, numbers[citation.url]) for end, citation in zip(ends, numbered_citations, strict=True)}
    return tuple(sorted(_fitting(whole, marks, places)))


def _mark(number: int) -> str:
    return _MARK + chr(_PRIVATE + number)


def _weight(text: str) -> int:
    """Return an estimate of a text's parsing time: the number of characters of plain prose that take the same time."""
    return len(text) + _SLOW_WEIGHT * len(_SLOW.findall(text)) + _LINK_WEIGHT * text.count("[")


class _NumberPlaces:
    """Finds the positions at which source numbers can stand in a Markdown text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.tokens = parse(text)
        self._code = [token for token in self.tokens if token.type in _CODE and token.map]
        self._code_at = _by_line(self._code)
        self._words_at = _by_line(token for token in self.tokens if token.type == "inline")
        self._tables_at = _by_line(token for token in self.tokens if token.type == "table_open")
        self._spans: dict[int, list[tuple[int, int]]] = {}

    def mark(self, end: int, number: int) -> Mark:
        """Return where to put the source number of a citation whose cited words end at the position `end`."""
        text = self._text
        near = max(end - 40, 0)
        if before := _NEXT.search(text[near:end]):
            end = near + before.start()
        line = bisect_right(self._starts, max(end - 1, 0)) - 1
        if code := self._code_at.get(line):
            return self._behind(code, number)
        if table := self._tables_at.get(line):
            end = self._in_cell(end, line, table)
            line = bisect_right(self._starts, max(end, 0)) - 1
            if end < 0:
                return self.at_the_end(number)
        paragraph = self._words_at.get(line)
        first, last = paragraph.map if paragraph and paragraph.map else (line, line + 1)
        start = self._starts[first]
        for opens, closes in self._closed_spans(start, self._starts[last] - 1):
            if opens < end < closes:
                end = closes
        rest = _REST.match(text, end)
        return Mark(rest.end() if rest else end, number)

    def _in_cell(self, end: int, line: int, table: "Token") -> int:
        """Return the end of the last table cell with words before `end`; -1 if this row and the row above have none.

        A source number behind the last "|" of a row would become a table cell of its own.
        """
        first = table.map[0] if table.map else line
        for row in (line, line - 1):
            start = self._starts[row]
            before = self._text[start : min(end, self._starts[row + 1] - 1)]
            cell = before.rstrip(" \t\r|")
            if row < first or row == first + 1:  # `row` is above the table, or is the line of dashes in it
                return -1
            if cell.strip(" \t>"):
                is_escaped = cell.endswith("\\") and before[len(cell) :].startswith("|")
                return start + len(cell) + is_escaped
        return -1

    def pieces(self, marks: Collection[Mark]) -> Iterator[tuple[int, str, Sequence[Mark]]]:
        """Yield each top-level Markdown block with source numbers: where it begins, its text, and its numbers."""
        starts = [*self._starts, len(self._text) + 1]
        for token in self.tokens:
            if token.level == 0 and token.map:
                start, end = starts[token.map[0]], starts[token.map[1]] - 1
                if own := [mark for mark in marks if start <= mark.place <= end]:
                    yield start, self._text[start:end], own

    def _closed_spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the start and end of each code span, link and formula between two positions."""
        if start not in self._spans:
            matches = _CLOSED.finditer(self._text[start:end])
            self._spans[start] = [(start + match.start(), start + match.end()) for match in matches]
        return self._spans[start]

    def at_the_end(self, number: int) -> Mark:
        """Return the Mark of a source number at the end of the text."""
        last = self._code[-1] if self._code else None
        if last and last.map and last.map[1] >= len(self._starts) - 1 - self._text.endswith("\n"):
            return self._behind(last, number)
        return Mark(len(self._text.rstrip()), number, "\n\n")

    def _behind(self, code: "Token", number: int) -> Mark:
        """Return the Mark that puts a number on a line of its own below code, inside the same list or quotation."""
        first, last = code.map or (0, 1)
        lines = [self._text[self._starts[place] : self._starts[place + 1] - 1] for place in range(first, last)]
        while len(lines) > 1 and not lines[-1].strip(" >"):
            lines.pop()
        inside = re.sub("[^>]", " ", lines[0].partition(code.markup)[0]) if code.markup else ""
        is_open = code.type == "fence" and (len(lines) == 1 or set(lines[-1].strip(" >")) != {code.markup[0]})
        close = f"\n{inside}{code.markup}" if is_open else ""
        place = self._starts[first] + sum(map(len, lines)) + len(lines) - 1
        return Mark(place, number, f"{close}\n{inside}")


def _by_line(tokens: Iterable["Token"]) -> dict[int, "Token"]:
    """Return the first token that covers each line, by line number."""
    by_line: dict[int, Token] = {}
    for token in tokens:
        for line in range(*(token.map or (0, 0))):
            by_line.setdefault(line, token)
    return by_line


def _fitting(text: str, marks: set[Mark], places: _NumberPlaces) -> set[Mark]:
    """Return the marks, but with those moved to the end of the text that would change how the Markdown is parsed."""
    if _fits(text, marks, places.tokens):
        return set(_once(marks))
    budget = MOST_SOUGHT

    def fitting(start: int, piece: str, some: Sequence[Mark], plain: Sequence["Token"] | None = None) -> set[Mark]:
        """Return the marks that fit into a piece of Markdown. If not all fit together, each half is tried by itself."""
        nonlocal budget
        budget -= _weight(piece) * (1 if plain else 2)
        if budget < 0:
            return set()
        plain = plain or parse(piece)
        if _fits(piece, [mark._replace(place=mark.place - start) for mark in some], plain):
            return set(some)
        stops = sorted({mark.place for mark in some})
        if len(stops) == 1:
            return set()
        middle = stops[len(stops) // 2]
        before, behind = [item for item in some if item.place < middle], [item for item in some if item.place >= middle]
        return fitting(start, piece, before, plain) | fitting(start, piece, behind, plain)

    good = {mark for piece in places.pieces(marks) for mark in fitting(*piece)}
    good = good if _fits(text, good, places.tokens) else set[Mark]()
    return set(_once(good | {places.at_the_end(mark.number) for mark in marks - good}))


def _fits(text: str, marks: Collection[Mark], plain: Iterable["Token"]) -> bool:
    """Return whether a text with the marks is parsed in the same way as without them, and no mark is lost.

    `plain` has the tokens of the text without marks.
    """
    shape = _shape(parse(insert_numbers(text, _once(marks), _mark)))
    return shape == (_shape(plain)[0], len(marks))  # a mark can be lost in a table cell that Markdown drops


def _once(marks: Iterable[Mark]) -> list[Mark]:
    """Return the marks in order. Of several marks at one position, only the first keeps its `before`."""
    in_order = sorted(marks)
    pairs = zip(in_order, [None, *in_order], strict=False)
    return [mark._replace(before="") if last and last.place == mark.place else mark for mark, last in pairs]


def _shape(tokens: Iterable["Token"]) -> tuple[list[object], int]:
    """Return the content of parsed Markdown without its source numbers, and how many such numbers it has.

    Paragraphs that hold only source numbers are left out, too.
    """
    shape: list[object] = []
    count = 0
    for token in tokens:
        texts = (child.content for child in token.children or () if child.type == "text")
        count += sum(len(_MARKS.findall(text)) for text in texts)
        if token.type == "inline" and _MARKS.sub("", token.content) == "" != token.content:
            shape[-1:] = [None]
        elif token.type == "paragraph_close" and shape[-1:] == [None]:
            shape.pop()
        else:
            shape += _pieces(token)
    return shape, count


def _pieces(token: "Token") -> Iterator[object]:
    if token.type != "inline":
        yield (token.type, token.tag, token.hidden, token.content, token.info, tuple(token.attrs.items()))
        return
    text = ""
    for child in token.children or ():
        if child.type == "text":
            text += _MARKS.sub("", child.content)
            continue
        yield from (text, *_pieces(child))
        text = ""
    yield text
