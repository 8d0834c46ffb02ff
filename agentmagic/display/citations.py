"""Where the numbers of an answer's sources stand: behind the words that rest on them, with the Markdown left whole."""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from secrets import randbelow
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from agentmagic.display.markdown import MATHS, parsed, to_html
from agentmagic.messages import Citation, Source
from agentmagic.secrets import redact
from agentmagic.text import moved, shown, web_address

if TYPE_CHECKING:
    from markdown_it.token import Token

LONGEST_TITLE = 150
"""Characters that are shown of the title and of the address of a page."""
LONGEST_QUOTE = 600
"""Characters that are shown of what is quoted from a page."""
LONGEST_NUMBERED = 50_000
"""Characters of a text that has numbers; a longer one, whose Markdown takes long to read, has the list alone."""
MOST_NUMBERS = 1_000
"""Sources of an answer that have a number in it; the list has them all."""
HEAVIEST_NUMBERED = 250_000
"""The most that a text with numbers weighs; Markdown reads it in a tenth of a second or so, and two or three times."""
MOST_SOUGHT = 250_000
"""The weight of what is read once more to find places that leave the Markdown whole."""

_PRIVATE, _PRIVATE_SIZE = 0xE000, 6_400
_SPACE = "\u1680"
"""Begins a mark: Markdown takes it for white space beside emphasis, and the address before it ends."""
_MARK = _SPACE + "".join(chr(_PRIVATE + randbelow(_PRIVATE_SIZE)) for _ in range(4))
"""What stands for a number in Markdown, before the character that tells it: no text can know it."""
_MARKS = re.compile(rf"{_SPACE}?{_MARK[1:]}([\ue000-\uf8ff])")

_CLOSED = re.compile(
    r"(?<!`)(?P<ticks>`{1,10})(?!`).{1,1000}?(?<!`)(?P=ticks)(?!`)"
    r"|!?\[[^\[\]\n]{0,500}\](?:\([^()\n]{0,2000}(?:\([^()\n]{0,500}\)[^()\n]{0,500})?\)|\[[^\[\]\n]{0,500}\])"
    rf"|<?https?://[^\s<>|]{{1,2000}}>?|{MATHS.pattern}",
    re.DOTALL,
)
"""What no number can stand in: code, links, addresses, maths."""
_WIDE = r"[\u3001\u3002\u300d\u300f\u2019\u201d\uff01\uff09\uff0c\uff1a\uff1b\uff1f]"
"""Punctuation that no space follows: of Chinese and Japanese."""
_REST = re.compile(
    r"(?:(?<=[a-zA-Z0-9])(?:[a-zA-Z0-9]|[.,:'\u2019-](?=[a-zA-Z0-9]))+)?"
    rf"{_WIDE}*(?:(?:[^\w\s|\\]|_)+(?=[\s|]|$))?"
)
"""What is left of a word, and the punctuation behind it."""
_NEXT = re.compile(r"(?:\s*\n[ >]*(?:[-*+]|\d{1,9}[.)]|#{1,6}|\|))?\s*\Z")
"""What of the next line a citation may hold that ends there: the begin of an item, a heading or a row."""
_CODE = ("fence", "code_block")
_SLOW = re.compile(r"[^\w\s]|[_\n]")
"""What may begin something in Markdown."""
_SLOW_WEIGHT, _LINK_WEIGHT = 20, 50
"""What such a character weighs, and one that may begin a link, beside any other, as was measured."""


class Mark(NamedTuple):
    """A number at a place of a text; `before` is what ends a block of code above it, "" within words."""

    place: int
    number: int
    before: str = ""


def link(url: str) -> str:
    """Return an address as a link leads to it, also one of Markdown; "" for one to which no link may lead."""
    return web_address(redact(url)).replace("(", "%28").replace(")", "%29")


def marked(text: str, marks: Iterable[Mark], written: Callable[[int], str], glue: str = "") -> str:
    """Return a text with its numbers, each as `written` makes it, behind `glue` where words come before it."""
    pieces: list[str] = []
    done = 0
    for mark in marks:
        pieces += (text[done : mark.place], mark.before or glue, written(mark.number))
        done = mark.place
    return "".join((*pieces, text[done:]))


def cited_html(text: str, marks: Sequence[Mark], number: Callable[[int], Markup]) -> Markup:
    """Return Markdown as sanitised HTML, in which the numbers are as `number` makes them."""
    html = to_html(marked(shown(text), marks, _mark))
    return Markup(_MARKS.sub(lambda found: number(ord(found[1]) - _PRIVATE), html))  # noqa: S704  (it is sanitised)


@lru_cache(maxsize=16)
def placed(text: str, citations: tuple[Citation, ...], sources: tuple[Source, ...]) -> tuple[Mark, ...]:
    """Return where the numbers of a text stand in it, as it is shown, in order.

    A number stands at the end of what rests on its source, behind the punctuation, and behind a block of code. If it
    would change what the Markdown becomes, it stands at the end of the text.
    """
    whole = shown(text)
    if not citations or len(whole) > LONGEST_NUMBERED or _weight(whole) > HEAVIEST_NUMBERED:
        return ()
    numbers = {source.url: source.number for source in sources if source.number <= MOST_NUMBERS}
    places = _NumberPlaces(whole)
    numbered = [one for one in citations if one.url in numbers]
    ends = moved([one.end for one in numbered], text, whole, shown)
    found = {places.mark(end, numbers[one.url]) for end, one in zip(ends, numbered, strict=True)}
    return tuple(sorted(_fitting(whole, found, places)))


def _mark(number: int) -> str:
    return _MARK + chr(_PRIVATE + number)


def _weight(text: str) -> int:
    """Return how long Markdown takes to read a text, about, in characters of prose."""
    return len(text) + _SLOW_WEIGHT * len(_SLOW.findall(text)) + _LINK_WEIGHT * text.count("[")


class _NumberPlaces:
    """Finds the places at which numbers can stand in a text of Markdown."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.tokens = parsed(text)
        self._code = [token for token in self.tokens if token.type in _CODE and token.map]
        self._code_at = _by_line(self._code)
        self._words_at = _by_line(token for token in self.tokens if token.type == "inline")
        self._tables_at = _by_line(token for token in self.tokens if token.type == "table_open")
        self._spans: dict[int, list[tuple[int, int]]] = {}

    def mark(self, end: int, number: int) -> Mark:
        """Return the mark of a citation that ends at a place."""
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
        words = self._words_at.get(line)
        first, last = words.map if words and words.map else (line, line + 1)
        start = self._starts[first]
        for opens, closes in self._closed(start, self._starts[last] - 1):
            if opens < end < closes:
                end = closes
        rest = _REST.match(text, end)
        return Mark(rest.end() if rest else end, number)

    def _in_cell(self, end: int, line: int, table: "Token") -> int:
        """Return the place behind the words of a cell before a place of a table; -1 if there are none near it.

        Behind the last bar of a row a mark would be a cell of its own.
        """
        first = table.map[0] if table.map else line
        for row in (line, line - 1):
            start = self._starts[row]
            before = self._text[start : min(end, self._starts[row + 1] - 1)]
            words = before.rstrip(" \t\r|")
            if row < first or row == first + 1:  # the row of dashes
                return -1
            if words.strip(" \t>"):
                escaped = words.endswith("\\") and before[len(words) :].startswith("|")
                return start + len(words) + escaped
        return -1

    def pieces(self, marks: Collection[Mark]) -> Iterator[tuple[int, str, Sequence[Mark]]]:
        """Yield the outermost blocks of the text that have marks: where each begins, its text, its marks."""
        starts = [*self._starts, len(self._text) + 1]
        for token in self.tokens:
            if token.level == 0 and token.map:
                start, end = starts[token.map[0]], starts[token.map[1]] - 1
                if own := [mark for mark in marks if start <= mark.place <= end]:
                    yield start, self._text[start:end], own

    def _closed(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return where code, links and maths begin and end in a stretch of words."""
        if start not in self._spans:
            found = _CLOSED.finditer(self._text[start:end])
            self._spans[start] = [(start + one.start(), start + one.end()) for one in found]
        return self._spans[start]

    def at_the_end(self, number: int) -> Mark:
        """Return a mark below the text."""
        last = self._code[-1] if self._code else None
        if last and last.map and last.map[1] >= len(self._starts) - 1 - self._text.endswith("\n"):
            return self._behind(last, number)
        return Mark(len(self._text.rstrip()), number, "\n\n")

    def _behind(self, code: "Token", number: int) -> Mark:
        """Return a mark in a line of its own below a block of code, within the same list or quotation."""
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
    """Return the first token of each line."""
    found: dict[int, Token] = {}
    for token in tokens:
        for line in range(*(token.map or (0, 0))):
            found.setdefault(line, token)
    return found


def _fitting(text: str, marks: set[Mark], places: _NumberPlaces) -> set[Mark]:
    """Return marks that leave the Markdown whole; those that would not go to the end of the text."""
    if _fits(text, marks, places.tokens):
        return set(_once(marks))
    left = MOST_SOUGHT

    def fitting(start: int, piece: str, some: Sequence[Mark], plain: Sequence["Token"] | None = None) -> set[Mark]:
        """Return the marks of a piece that fit: all of them, or those of each half that do."""
        nonlocal left
        left -= _weight(piece) * (1 if plain else 2)
        if left < 0:
            return set()
        plain = plain or parsed(piece)
        if _fits(piece, [mark._replace(place=mark.place - start) for mark in some], plain):
            return set(some)
        stops = sorted({mark.place for mark in some})
        if len(stops) == 1:
            return set()
        middle = stops[len(stops) // 2]
        before, behind = [one for one in some if one.place < middle], [one for one in some if one.place >= middle]
        return fitting(start, piece, before, plain) | fitting(start, piece, behind, plain)

    good = {mark for piece in places.pieces(marks) for mark in fitting(*piece)}
    good = good if _fits(text, good, places.tokens) else set[Mark]()
    return set(_once(good | {places.at_the_end(mark.number) for mark in marks - good}))


def _fits(text: str, marks: Collection[Mark], plain: Iterable["Token"]) -> bool:
    """Return whether a text with marks becomes the same as without them, which is `plain`, and none of them is lost."""
    shape = _shape(parsed(marked(text, _once(marks), _mark)))
    return shape == (_shape(plain)[0], len(marks))  # a mark in a cell beyond those of its table would be lost


def _once(marks: Iterable[Mark]) -> list[Mark]:
    """Return marks in order; only the first at a place ends what is above it."""
    ordered = sorted(marks)
    pairs = zip(ordered, [None, *ordered], strict=False)
    return [mark._replace(before="") if last and last.place == mark.place else mark for mark, last in pairs]


def _shape(tokens: Iterable["Token"]) -> tuple[list[object], int]:
    """Return what Markdown becomes, but for the marks in words and for paragraphs of nothing else, and count them."""
    shape: list[object] = []
    count = 0
    for token in tokens:
        words = (child.content for child in token.children or () if child.type == "text")
        count += sum(len(_MARKS.findall(one)) for one in words)
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
    words = ""
    for child in token.children or ():
        if child.type == "text":
            words += _MARKS.sub("", child.content)
            continue
        yield from (words, *_pieces(child))
        words = ""
    yield words
