"""Secrets: texts that are never shown, logged or saved. The whole process shares one registry of them.

A secret is recognized by its value or by its shape, and `redact` replaces it by `[redacted]`. It is also recognized if
escapes, colour codes or invisible characters stand in it or beside it, and if it is written in base64 or hexadecimal.

- Values that are certainly secret: values passed to `register_secret`; values of variables with a registered name
  (`register_names`); and random-looking values of variables with a name such as `API_KEY`.
- Likely values: other values of variables with a name such as `SORT_KEY`, where "key" may not mean a secret.
- Shapes: keys of known services, tokens in headers, passwords beside their names; see `secret_shapes`.

Likely values are blanked in everything that people read: screens, logs, errors, exports. They are not blanked in a
journal: after a reload, the journal is sent to the model again, and a wrong guess must not damage the conversation.
"""

import binascii
import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice, takewhile
from operator import eq
from urllib.parse import quote, quote_plus, unquote_plus

from agentmagic.errors import UsageError
from agentmagic.escapes import Places, decode, decoded_forms, find_unfinished
from agentmagic.secret_shapes import ADDRESS, KEY, LONGEST_VALUE, PLAIN, SHAPES, Shape, is_random

BLANK = "[redacted]"
SHORTEST = 8
"""Characters of the shortest value that is blanked: blanking "abc" would ruin every text."""
LONGEST_TAIL = 4_000
"""Characters at the end of a growing text that are searched for the beginning of a shape."""
MOST_HARMLESS = 3
"""Characters of a secret that may be visible, since so few reveal nothing."""
LEAST_OF_A_PART = 12
"""Least characters of a value's beginning that are blanked if the value is cut off.

It is also the least length of an encoded word at the end of a growing text that is held back.
"""
CONTEXT = 60
"""Characters before a position that can decide whether the text after it is a secret: a name, an escape."""

_SHORTEST_WORD = 12
"""Characters of the shortest word that is examined: the length of a value of `SHORTEST` characters in base64."""
_BEFORE_WORD = 8
"""Characters before a long word that may be the beginning of a key, such as "hvs."."""
_SHORTEST_ENCODED = 24
"""Characters of the shortest word that is decoded from base64 or hexadecimal and searched for shapes."""

_WORDS = bytes(
    65 if chr(number).isascii() and (chr(number).isalnum() or chr(number) in "+/_=-") else 32 for number in range(256)
)
"""A translation table that replaces each character of a word by "A", and each other character by a blank."""
_LONG = b"A" * _SHORTEST_WORD

_KEYS = {start: shape for shape in SHAPES if shape.key for start in shape.starts}
_NAMED = [(start, shape) for shape in SHAPES if not shape.key for start in shape.starts]
_HEADS: dict[bytes, list[str]] = {}
"""The literals with which keys begin, by their first two characters."""
for _start in _KEYS:
    _HEADS.setdefault(_start[:2].encode(), []).append(_start)
_KEY_WORDS = bytes(number if re.match(KEY, chr(number)) else 32 for number in range(256))
"""A translation table that replaces each character that cannot be in a key by a blank."""
_BEGINNINGS = {start[:end] for start in _KEYS for end in range(1, len(start))}
_NAMED_BEGINNINGS = {start[:end] for start, _ in _NAMED for end in range(1, len(start))}
_LONGEST_START = max(map(len, _BEGINNINGS | _NAMED_BEGINNINGS))

_MOST_PARTS = 1000
"""The maximum number of occurrences of a value's beginning that are examined in one text."""
_CUT = re.compile(r"\Z|…|\.\.\.|\s*[\[(]")
"""Matches where a text was cut off: at the end, at dots, or at a note in brackets."""

Span = tuple[int, int]

_NAME = re.compile(
    r"key|(?:access|api|auth|refresh)?token|secrets?|(?:access|private|secret)key|.*(?:apikey|passw(?:or)?d)"
    r"|pass(?:phrase|code)|pwd|credentials?|authorization|cookie"
)
"""Matches a word that, in the name of a variable, says that the value is a secret."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class _Registry:
    """The secret values registered in this process. Any thread can add values.

    `values` and `encoded` have the certain values under the key True, and both certain and likely values under the key
    False. `encoded` has the values in base64 and hexadecimal. `beginnings` are the beginnings of all values, each of
    fewer than 12 characters (`LEAST_OF_A_PART`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.values: dict[bool, tuple[str, ...]] = {True: (), False: ()}
        self.encoded: dict[bool, tuple[str, ...]] = {True: (), False: ()}
        self.beginnings: set[str] = set()

    def add(self, value: str, *, certain: bool) -> None:
        with self._lock:  # without the lock, two threads could overwrite each other's values
            if value in self.values[certain]:
                return
            for only in (True, False) if certain else (False,):
                self.values[only] = tuple(dict.fromkeys((*self.values[only], *_spellings(value))))
                self.encoded[only] = tuple(dict.fromkeys((*self.encoded[only], *_encodings(value))))
            self.beginnings |= {one[:end] for one in _spellings(value) for end in range(1, LEAST_OF_A_PART)}


_registry = _Registry()
_names: set[str] = set()


def register_secret(value: str) -> None:
    """Blank this text wherever agentmagic shows, logs or saves it, until the process ends.

    Raises UsageError for a value of fewer than 8 characters.
    """
    if len(value) < SHORTEST:
        raise UsageError(
            f"A secret of fewer than {SHORTEST} characters would blank too much other text. Register a longer one."
        )
    _registry.add(value, certain=True)


def register_names(names: Iterable[str]) -> None:
    """Treat the values of variables with exactly these names as secrets, even if the names do not suggest it."""
    _names.update(names)


def learn(name: str, value: str, *, certain: bool = False) -> None:
    """Register the value of a variable, header or option as a secret, if its name says so or it is `certain`.

    Short values, plain words, numbers, paths and addresses are not registered. The password in an address is registered
    under any name. If a value has several words, such as "Bearer ...", the last word is registered too.
    """
    for address in ADDRESS.finditer(value) if "://" in value else ():
        learn("password", address["secret"])
    certain = certain or name in _names
    if not certain and not is_secret_name(name):
        return
    for secret in (value, value.rpartition(" ")[2]):
        if len(secret) >= SHORTEST and not _is_plain(secret):
            _registry.add(secret, certain=certain or is_random(secret))


def learn_address(url: str) -> bool:
    """Register as secrets the password in a URL, and the values of query parameters with names such as `token`.

    Return whether the query has such a parameter.
    """
    learn("", url)
    pairs = [pair.partition("=") for pair in url.partition("#")[0].partition("?")[2].split("&")]
    for name, _, value in pairs:
        learn(name, value)
        learn(name, unquote_plus(value))
    return any(is_secret_name(name) for name, _, _ in pairs)


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those whose name suggests a secret or whose value contains one."""
    return {
        name: value
        for name, value in variables.items()
        if name not in _names and not is_secret_name(name) and redact(value, name=name) == value
    }


@lru_cache(maxsize=1000)
def is_secret_name(name: str) -> bool:
    """Return whether a name of a variable, header or option has a word such as "key" or "password"."""
    return any(_NAME.fullmatch(word.lower()) for word in _WORD.findall(name))


@lru_cache(maxsize=1000)
def may_name(name: str) -> bool:
    """Return whether the value of a field with this name may be a secret: the name contains a name in `SHAPES`."""
    return any(literal in name.lower() for literal, _ in _NAMED)


def redact(text: str, *, keep_likely: bool = False, name: str = "", start: int = 0) -> str:
    """Return the text with every secret blanked; with `keep_likely`, values that are only likely secrets stay.

    A registered value that is cut off is blanked too if at least half of it is there. If the text is a JSON value,
    `name` is its key. The text before `start` is used to recognize secrets, but is not returned.
    """
    spans = _spans(text, keep_likely=keep_likely)
    if may_name(name) and len(text) <= LONGEST_VALUE:
        spans += _spans_beside(name, text)
    if not spans:
        return text[start:] if start else text
    pieces: list[str] = []
    position = start
    for begin, end in _merge(spans):
        if end > position:
            pieces += (text[position:begin], BLANK)
            position = end
    return "".join((*pieces, text[position:]))


def holds_secret(data: bytes) -> bool:
    """Return whether the data contains, in UTF-8, a value that certainly is a secret. Shapes are not searched."""
    return any(value.encode("utf-8", "replace") in data for value in _registry.values[True])


def safe_length(text: str, start: int = 0) -> int:
    """Return how many characters of a growing text can be shown. The rest may become a secret when more arrives.

    The result is the length of the text if all of it can be shown, and never less than `start`. The text before
    `start` is used only to recognize a secret after it, for example by its name.
    """
    first = max(start, len(text) - LONGEST_TAIL)
    before = max(0, first - CONTEXT)
    tail = text[before : find_unfinished(text)]
    end = len(tail)
    for number, view in enumerate(decoded_forms(tail)):
        if (at := _secret_start(view)) < len(view):
            end = min(end, at if view == tail else Places(tail, number).span(at, at + 1)[0])
    end = find_unfinished(tail[:end]) if end < len(tail) else end  # moved back, so as not to cut an escape
    return max(first, before + end)


def without_growing_secret(text: str, start: int = 0) -> str:
    """Return a streamed text without its end, if this end may become a secret when more text arrives.

    An end of at most 3 characters (MOST_HARMLESS) is not cut off, since so few characters reveal nothing.
    """
    end = safe_length(text, start)
    return text[:end] if len(text) - end > MOST_HARMLESS else text


# -- finding secrets in a text -------------------------------------------------------------------------------


def _spans(text: str, *, keep_likely: bool) -> list[Span]:
    """Return the spans of secrets in the text, including secrets that are written with escapes."""
    views = decoded_forms(text)
    spans = [] if views[0] == text else _find_values(text, keep_likely=keep_likely)
    for number, view in enumerate(views):
        if (view_spans := _find_secrets(view, keep_likely=keep_likely)) and view != text:
            place = Places(text, number).span
            view_spans = [place(*span) for span in view_spans]
        spans += view_spans
    return spans


def _merge(spans: list[Span]) -> Iterator[Span]:
    """Yield the spans in order, with overlapping spans merged into one."""
    spans.sort()
    start, end = spans[0]
    for other, last in spans:
        if other >= end:
            yield start, end
            start = other
        end = max(end, last)
    yield start, end


def _find_secrets(text: str, *, keep_likely: bool, inner: bool = False) -> list[Span]:
    """Return the spans of secrets in a text without escapes. `inner` means not to decode base64 and hexadecimal."""
    spans = _find_values(text, keep_likely=keep_likely)
    plain = text.encode("ascii", "replace")  # one byte a character, so that positions are those of `text`
    lower = plain.lower().decode()
    for literal, shape in _NAMED:
        if literal in lower:
            spans += _find_shape(text, shape, partial(lower.find, literal))
    words = _long_words(plain)
    if not words:
        return spans
    long_text = b"\n".join([plain[start - _BEFORE_WORD if start > _BEFORE_WORD else 0 : end] for start, end in words])
    for literal in _key_starts(long_text):
        spans += _find_shape(text, _KEYS[literal], partial(text.find, literal))
    if not inner:
        decoded_text = long_text.decode()
        spans += [
            span for value in _registry.encoded[keep_likely] if value in decoded_text for span in _all(text, value)
        ]
        spans += [span for span in words if span[1] - span[0] >= _SHORTEST_ENCODED and _hides(text[slice(*span)])]
    return spans


def _key_starts(words: bytes) -> set[str]:
    """Return those literals of `SHAPES`, such as "sk-", with which a service's key in `words` may begin."""
    firsts = {word[:2] for word in words.translate(_KEY_WORDS).split()} & _HEADS.keys()
    return {literal for first in firsts for literal in _HEADS[first] if literal.encode() in words}


def _find_values(text: str, *, keep_likely: bool) -> list[Span]:
    """Return the spans of registered values, and of values that are cut off after at least half of their length."""
    spans: list[Span] = []
    for value in _registry.values[keep_likely]:
        head = value[:LEAST_OF_A_PART]
        if head not in text:
            continue
        spans += _all(text, value)
        for start, _ in islice(_all(text, head), _MOST_PARTS):
            same = start + sum(1 for _ in takewhile(bool, map(eq, value, text[start : start + len(value)])))
            if (same - start) * 2 >= len(value) and _CUT.match(text, same):
                spans.append((start, same))
    return spans


def _all(text: str, value: str) -> Iterator[Span]:
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)


def _find_shape(text: str, shape: Shape, find: Callable[[int], int]) -> Iterator[Span]:
    """Yield the spans of secrets of one shape; `find` returns the next position of the shape's literal, or -1."""
    at, match, skipped_length = find(0), shape.pattern.match, 0
    while at >= 0:
        hit = match(text, at)
        end = at + 1
        if hit and (span := shape.span(hit)):
            yield span
            end = span[1]
        elif hit:
            skipped_length += hit.end() - at
            # A match that is not a secret may contain the name of another value, so the search continues inside the
            # match. If the skipped matches are longer than the text, it continues after the match, to bound the time.
            end = at + 1 if skipped_length < len(text) else hit.end()
        at = find(end)


def _long_words(plain: bytes) -> list[Span]:
    """Return the spans of words that are long enough to be the key of a service."""
    find = (plain.translate(_WORDS) + b" ").find
    words: list[Span] = []
    start = find(_LONG)
    while start >= 0:
        end = find(b" ", start)
        words.append((start, end))
        start = find(_LONG, end)
    return words


def _hides(word: str) -> bool:
    """Return whether a word, decoded from base64 or hexadecimal, is a text that contains a secret."""
    word = word.strip("=").rpartition("=")[2].replace("-", "+").replace("_", "/")
    for decoder, padded in (
        (binascii.a2b_base64, f"{word[: len(word) - (len(word) % 4 == 1)]}=="),
        (binascii.a2b_hex, word),
    ):
        try:
            if not decoder(word[:_SHORTEST_ENCODED]).isascii():  # decode only the word's beginning first: this is fast
                continue
            text = decoder(padded).decode()
        except ValueError:
            continue
        if _find_secrets(text, keep_likely=True, inner=True):
            return True
    return False


def _spans_beside(name: str, text: str) -> Iterator[Span]:
    """Yield the spans of secrets in a text that is the value of a field called `name`."""
    mark = "'" if '"' in text else '"'
    before = f"{mark}{name}{mark}: {mark}"
    for start, end in _find_secrets(f"{before}{text}{mark}", keep_likely=True, inner=True):
        if end > len(before):
            yield max(0, start - len(before)), min(end - len(before), len(text))


# -- the end of a growing text -------------------------------------------------------------------------------


def _secret_start(text: str) -> int:
    """Return where the end part that may become a secret starts in the text, or the text's length if none exists."""
    plain = text.encode("ascii", "replace")
    lower = plain.lower().decode()
    word = max(text.rfind(" "), text.rfind("\n")) + 1
    ends = [len(text), _literal_start(text)]
    ends += [
        _shape_start(text, shape, partial(lower.find, literal), 0) for literal, shape in _NAMED if literal in lower
    ]
    ends += [
        _shape_start(text, _KEYS[literal], partial(text.find, literal), word) for literal in _key_starts(plain[word:])
    ]
    word_start = len(plain.translate(_WORDS).rstrip(b"A"))
    if len(text) - word_start >= LEAST_OF_A_PART:
        ends.append(word_start)
    for value in _registry.values[False]:
        if (head := value[:LEAST_OF_A_PART]) in text:
            ends += [at for at, _ in _all(text, head) if value.startswith(text[at:])]
    return min(ends)


def _shape_start(text: str, shape: Shape, find: Callable[[int], int], start: int) -> int:
    """Return where a possible secret of this shape starts at the end of the text, or the text's length.

    `find` returns the next position of the shape's literal, or -1.
    """
    at = find(start)
    while at >= 0 and not shape.growing.match(text, at):
        at = find(at + 1)
    return at if at >= 0 else len(text)


def _literal_start(text: str) -> int:
    """Return where a literal of `SHAPES` or a registered value may begin at the text's end, or the text's length."""
    for at in range(max(0, len(text) - _LONGEST_START), len(text)):
        end = text[at:]
        if end in _registry.beginnings or end.lower() in _NAMED_BEGINNINGS:
            return at
        if end in _BEGINNINGS and not re.match(KEY, text[at - 1 : at]):
            return at
    return len(text)


# -- values ----------------------------------------------------------------------------------------------------


def _spellings(value: str) -> Iterator[str]:
    """Yield a secret value, its form without escapes, and its escaped forms in JSON, `repr`, URLs and bytes.

    The escaped forms are needed because `escapes` does not decode all escapes of characters beyond ASCII.
    """
    yield value
    yield decode(value)
    for spelling in (json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe="", errors="replace")):
        yield spelling
        yield decode(spelling)
    yield quote_plus(value, errors="replace")
    yield repr(value.encode("utf-8", "replace"))[2:-1]


def _encodings(value: str) -> Iterator[str]:
    """Yield a secret value in hexadecimal and in base64, as it appears in a longer text that was encoded.

    Base64 encodes three bytes as four characters, so there are three spellings, one for each offset of the value in
    the longer text. Characters that depend on the bytes beside the value are left out.
    """
    data = value.encode("utf-8", "replace")
    yield data.hex()
    yield data.hex().upper()
    for before in range(3):
        spelling = b64encode(bytes(before) + data).decode()[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield spelling
        yield spelling.translate(str.maketrans("+/", "-_"))


def _is_plain(value: str) -> bool:
    return bool(PLAIN.fullmatch(value)) or (bool(re.search(r"[/\\]", value)) and not is_random(value))
