"""Removes escapes from a text: backslashes, percent signs, HTML entities, hidden characters.

A secret does not always stand in a text literally. JSON, `repr`, URLs and HTML escape characters in it or beside it,
sometimes more than once, and colour codes or invisible characters may stand inside it. `decode` returns the text that
the escapes stand for, and `Places` converts positions in the decoded text to positions in the original text.
"""

import re
from bisect import bisect_right
from functools import lru_cache
from html import unescape

HIDDEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters, except tab and line ends
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # characters that set the direction of text
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufe00-\ufe0e\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # can hide a text
    "\ud800-\udfff"  # lone surrogates: half of a character's UTF-16 code
)
"""Characters that cannot be seen, or that reorder or overwrite others, as the inside of a regex character class."""
TERMINAL = (
    r"\[[0-?]*[ -/]*[@-~]"  # terminal escapes for colours and cursor movements
    r"|[\]PX^_][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)"  # terminal escapes for titles, links and other strings
    r"|[ -/]*[0-~]?"
)
"""A pattern of a terminal command, without the escape character before it."""
SUSPECT = re.compile(f"[{HIDDEN}\r\u200c\u200d]")
"""Finds a hidden character, a joiner or a carriage return. A text without a match needs no cleaning."""

_Escape = tuple[str, re.Pattern[str]]

_LEVELS = 3
"""How many kinds of escapes, one inside the other, are decoded; repeated escapes of one kind count once."""
_SIMPLE = {"n": "\n", "t": "\t", "r": "", **{mark: mark for mark in "\"'/-_.:=@+"}}
"""The meaning of a backslash and the character after it; an escaped carriage return is dropped."""
_MARKS = re.compile(r"\\([/_.:=@+-])")
_CODES = re.compile(r"\\[uxU]")
# Each pattern below begins with a fixed character or a character class, since Python searches fast for these.
_HIDDEN_TEXT = re.compile(rf"[{HIDDEN}\r\u200c\u200d](?:(?<=\x1b)(?:{TERMINAL})|(?<=\r)(?!\n)|(?<![\x1b\r]))")
_ESCAPES: tuple[_Escape, ...] = (
    (
        "\\",
        re.compile(
            r"\\(?:\\*(?:u\{?[0-9A-Fa-f]{4}\}?|x[0-9A-Fa-f]{2}|U000[0-9A-Fa-f]{5}"
            rf"|[{re.escape(''.join(_SIMPLE))}])|\\+)"
        ),
    ),
    # Percent escapes of ASCII characters only. `secrets` searches for values with others in their escaped form.
    ("%", re.compile(r"%(?:25)*[0-7][0-9A-Fa-f]")),
    ("&", re.compile(r"&(?:amp;)*(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});")),
)
"""Patterns of escapes, repeatedly escaped or not, each with the character with which the escape begins."""
_UNFINISHED = re.compile(
    r"[\x1b\r\\%&\u200c\u200d](?:(?<=\x1b)(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,1000}|[ -/]*)"
    r"|(?<=[\u200c\u200d])[\u200c\u200d]*|(?<=\r)|(?<=\\)\\*(?:[uU][0-9A-Fa-f{]{0,8}|x[0-9A-Fa-f]?)?"
    r"|(?<=%)(?:25)*[0-9A-Fa-f]?|(?<=&)[#A-Za-z0-9;]{0,12})\Z"
)
"""Matches the end of a text if that may be the beginning of an escape."""


def decoded_forms(text: str) -> tuple[str, ...]:
    """Return the text in one or two decoded forms, for the search for secrets.

    In the first form, backslash escapes are decoded and hidden characters removed. If it has percent escapes or HTML
    entities, they are decoded too in a second form. Both forms are needed: a decoded character, such as a quote, can
    wrongly end an address or a value.
    """
    first = _decode(_drop_hidden(text), _ESCAPES[:1])
    if any(mark in first and escape.search(first) for mark, escape in _ESCAPES[1:]):
        return first, _decode(first, _ESCAPES)
    return (first,)


def decode(text: str) -> str:
    """Return the text with all escapes decoded and hidden characters removed."""
    return decoded_forms(text)[-1]


def _decode(text: str, escapes: tuple[_Escape, ...]) -> str:
    for _ in range(_LEVELS):
        before, is_simple = text, False
        for mark, escape in escapes:
            if mark in text:
                is_simple = mark == "\\" and not _CODES.search(text)
                text = _decode_simple(text) if is_simple else escape.sub(_character, text)
        if text == before:
            break
        if not is_simple:
            text = _drop_hidden(text)
    return text


class Places:
    """Converts positions in a decoded text to positions in the original `text`.

    `number` is the index of the decoded form in the tuple that `decoded_forms` returns.
    """

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
        """Return the span of the original text that became the decoded characters from `start` to `end` (exclusive).

        There must be at least one character between `start` and `end`.
        """
        for level in reversed(self._levels):
            start, end = level.place(start)[0], level.place(end - 1)[1]
        return start, end


class _Level:
    """One step of decoding: `text` has the escapes of one kind decoded, and the object keeps their positions."""

    def __init__(self, text: str, escape: re.Pattern[str]) -> None:
        # For each escape: its position and length in the decoded text, and its span in the text before decoding.
        self._at: list[int] = []
        self._lengths: list[int] = []
        self._spans: list[tuple[int, int]] = []
        pieces: list[str] = []
        position = length = 0
        for match in escape.finditer(text):
            character = _character(match)
            pieces += (text[position : match.start()], character)
            length += match.start() - position
            self._at.append(length)
            self._lengths.append(len(character))
            self._spans.append(match.span())
            length += len(character)
            position = match.end()
        self.text = "".join((*pieces, text[position:]))

    def place(self, at: int) -> tuple[int, int]:
        """Return the span of the text before decoding that became the character at `at` in the decoded text."""
        number = bisect_right(self._at, at) - 1
        if number < 0:
            return at, at + 1
        beyond = at - self._at[number] - self._lengths[number]
        if beyond < 0:
            return self._spans[number]
        start = self._spans[number][1] + beyond
        return start, start + 1


def find_unfinished(text: str) -> int:
    """Return where an escape starts that is cut off by the end of the text, or the text's length if none exists."""
    match = _UNFINISHED.search(text, max(0, len(text) - 1100))
    return match.start() if match else len(text)


def _drop_hidden(text: str) -> str:
    """Return the text without characters in `HIDDEN`, joiners, terminal escapes and lone carriage returns."""
    if text.isascii() and text.replace("\n", " ").replace("\t", " ").isprintable():
        return text
    return _HIDDEN_TEXT.sub("", text)


def _decode_simple(text: str) -> str:
    """Return a text with its backslash escapes decoded, for a text with only simple ones: `str.replace` is fastest."""
    while "\\\\" in text:
        text = text.replace("\\\\", "\\")
    for mark in "nrt\"'":
        text = text.replace(f"\\{mark}", _SIMPLE[mark])
    return _MARKS.sub(r"\1", text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    return _decode_escape(escape[0])


@lru_cache(maxsize=10_000)
def _decode_escape(escape: str) -> str:
    """Return the character that an escape stands for, "" for a hidden character."""
    match escape[0]:
        case "\\":
            body = escape.lstrip("\\")
            if body and body[0] in "uxU":
                return chr(int(body[1:].strip("{}"), 16))
            return _SIMPLE[body] if body else "\\"
        case "%":
            return chr(int(escape[-2:], 16))
        case "&":
            entity = f"&{escape[1:-1].rpartition(';')[2]};"
            character = unescape(entity)
            return escape if character == entity else character
        case _:
            return ""
