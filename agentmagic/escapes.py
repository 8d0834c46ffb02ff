"""Escapes in a text, and what it reads without them: backslashes, percent signs, HTML entities, hidden characters.

A secret is not always written as it is: JSON, `repr`, an address and HTML escape characters of it or beside it, once or
several times, and colours or invisible characters may stand within it. `decoded` returns what a reader takes the text
for, and `Places` leads from there back to the text.
"""

import re
from bisect import bisect_right
from functools import lru_cache
from html import unescape

HIDDEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters, except tab and line ends
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of text
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufe00-\ufe0e\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # can carry text, too
    "\ud800-\udfff"  # halves of characters
)
"""Characters, for a class in a pattern, that cannot be seen, or that reorder or overwrite others."""
TERMINAL = (
    r"\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|[\]PX^_][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)"  # titles, links and other strings of a terminal
    r"|[ -/]*[0-~]?"
)
"""A pattern of what a terminal takes for a command behind the character of escape."""
SUSPECT = re.compile(f"[{HIDDEN}\r\u200c\u200d]")
"""One of these is in each text with something hidden."""

_Escape = tuple[str, re.Pattern[str]]

_LEVELS = 3
"""How often kinds of escapes may stand within each other; several levels of one kind count once."""
_SIMPLE = {"n": "\n", "t": "\t", "r": "", **{mark: mark for mark in "\"'/-_.:=@+"}}
"""What a backslash and a character stand for; a carriage return says nothing."""
_MARKS = re.compile(r"\\([/_.:=@+-])")
_CODES = re.compile(r"\\[uxU]")
# In each pattern one character or class comes first, which Python finds fast.
_HIDDEN_TEXT = re.compile(rf"[{HIDDEN}\r\u200c\u200d](?:(?<=\x1b)(?:{TERMINAL})|(?<=\r)(?!\n)|(?<![\x1b\r]))")
_ESCAPES: tuple[_Escape, ...] = (
    (
        "\\",
        re.compile(
            r"\\(?:\\*(?:u\{?[0-9A-Fa-f]{4}\}?|x[0-9A-Fa-f]{2}|U000[0-9A-Fa-f]{5}"
            rf"|[{re.escape(''.join(_SIMPLE))}])|\\+)"
        ),
    ),
    ("%", re.compile(r"%(?:25)*[0-7][0-9A-Fa-f]")),  # known values are looked for with those beyond ASCII
    ("&", re.compile(r"&(?:amp;)*(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});")),
)
"""Escapes of any level, each with the character that it begins with."""
_UNFINISHED = re.compile(
    r"[\x1b\r\\%&\u200c\u200d](?:(?<=\x1b)(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,1000}|[ -/]*)"
    r"|(?<=[\u200c\u200d])[\u200c\u200d]*|(?<=\r)|(?<=\\)\\*(?:[uU][0-9A-Fa-f{]{0,8}|x[0-9A-Fa-f]?)?"
    r"|(?<=%)(?:25)*[0-9A-Fa-f]?|(?<=&)[#A-Za-z0-9;]{0,12})\Z"
)
"""The end of a text that may be the beginning of an escape."""


def readings(text: str) -> tuple[str, ...]:
    """Return the text without hidden characters and backslashes, and if it then has other escapes, without those too.

    They are two texts, since percent signs and entities may stand for what would end an address or a value.
    """
    first = _decoded(_visible(text), _ESCAPES[:1])
    if any(mark in first and escape.search(first) for mark, escape in _ESCAPES[1:]):
        return first, _decoded(first, _ESCAPES)
    return (first,)


def decoded(text: str) -> str:
    """Return the text without escapes, and without what cannot be seen."""
    return readings(text)[-1]


def _decoded(text: str, escapes: tuple[_Escape, ...]) -> str:
    for _ in range(_LEVELS):
        before, is_simple = text, False
        for mark, escape in escapes:
            if mark in text:
                is_simple = mark == "\\" and not _CODES.search(text)
                text = _simply(text) if is_simple else escape.sub(_character, text)
        if text == before:
            break
        if not is_simple:
            text = _visible(text)
    return text


class Places:
    """Leads from places in what `readings` returns to the places of the text; `number` says in which of them."""

    def __init__(self, text: str, number: int) -> None:
        patterns = [_HIDDEN_TEXT]
        for escapes in (_ESCAPES[:1], _ESCAPES)[: number + 1]:
            patterns += [*(escape for _, escape in escapes), _HIDDEN_TEXT] * _LEVELS
        self._levels: list[_Level] = []
        for pattern in patterns:
            level = _Level(text, pattern)
            if level.text != text:
                self._levels.append(level)
            text = level.text
        self.text = text

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the decoded characters from `start` to before `end`, at least one, stand in the text."""
        for level in reversed(self._levels):
            start, end = level.place(start)[0], level.place(end - 1)[1]
        return start, end


class _Level:
    """A text without one kind of escapes, with the places where they stood."""

    def __init__(self, text: str, escape: re.Pattern[str]) -> None:
        self._at: list[int] = []  # for each escape, where it stands in the decoded text, and its span in the text
        self._lengths: list[int] = []
        self._spans: list[tuple[int, int]] = []
        pieces: list[str] = []
        done = length = 0
        for found in escape.finditer(text):
            character = _character(found)
            pieces += (text[done : found.start()], character)
            length += found.start() - done
            self._at.append(length)
            self._lengths.append(len(character))
            self._spans.append(found.span())
            length += len(character)
            done = found.end()
        self.text = "".join((*pieces, text[done:]))

    def place(self, at: int) -> tuple[int, int]:
        """Return the span in the text of the character at this place of the decoded text."""
        number = bisect_right(self._at, at) - 1
        if number < 0:
            return at, at + 1
        beyond = at - self._at[number] - self._lengths[number]
        if beyond < 0:
            return self._spans[number]
        start = self._spans[number][1] + beyond
        return start, start + 1


def unfinished(text: str) -> int:
    """Return where an escape begins that the end of the text breaks off; the length of the text if none does."""
    found = _UNFINISHED.search(text, max(0, len(text) - 1100))
    return found.start() if found else len(text)


def _visible(text: str) -> str:
    """Return the text without what cannot be seen."""
    if text.isascii() and text.replace("\n", " ").replace("\t", " ").isprintable():
        return text
    return _HIDDEN_TEXT.sub("", text)


def _simply(text: str) -> str:
    """Decode backslashes, with the speed of C: most texts with escapes have no others."""
    while "\\\\" in text:
        text = text.replace("\\\\", "\\")
    for mark in "nrt\"'":
        text = text.replace(f"\\{mark}", _SIMPLE[mark])
    return _MARKS.sub(r"\1", text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    return _meant(escape[0])


@lru_cache(maxsize=10_000)
def _meant(escape: str) -> str:
    """Return the character that an escape stands for, "" for what cannot be seen."""
    match escape[0]:
        case "\\":
            written = escape.lstrip("\\")
            if written and written[0] in "uxU":
                return chr(int(written[1:].strip("{}"), 16))
            return _SIMPLE[written] if written else "\\"
        case "%":
            return chr(int(escape[-2:], 16))
        case "&":
            entity = f"&{escape[1:-1].rpartition(';')[2]};"
            character = unescape(entity)
            return escape if character == entity else character
        case _:
            return ""
