"""JSON of a server before anything reads it: what can be mended in it, and whom it answers where it cannot be read."""

import re

_HALVES = re.compile(rb"\\\\|\\u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[89a-fA-F][0-9a-fA-F]{2})")
_HALF = len(r"\ud83d")
_ID = rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")'
_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ANSWER = rb'"(?:result|error)"\s*:'
_ID_AT_START = re.compile(rb"\s*\{\s*" + _VERSION + _ID + rb"\s*,\s*" + _VERSION + _ANSWER)
_ANSWER_AT_START = re.compile(rb"\s*\{\s*" + _VERSION + _ANSWER)
_ID_AT_END = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')

LARGEST_MENDED = 1_000_000
"""Bytes; more would take longer than a reader may be kept."""

ENDS = 4096
"""Bytes at each end of a message that are enough for `answered`."""


def mend(text: bytes) -> bytes:
    r"""Return JSON with each half of a character ("\ud83d") replaced by U+FFFD, up to `LARGEST_MENDED` bytes.

    A program that cuts a text between the halves of an emoji writes such, and the reader under us refuses all of it.
    """
    if len(text) > LARGEST_MENDED or not (rb"\ud" in text or rb"\uD" in text):
        return text
    return _HALVES.sub(lambda match: rb"\ufffd" if len(match[0]) == _HALF else match[0], text)


def answered(head: bytes, tail: bytes) -> int | str | None:
    """Return the id of the request that a message answers, from both its ends; None for what is no answer."""
    found = _ID_AT_START.match(head) or (_ANSWER_AT_START.match(head) and _ID_AT_END.search(tail))
    if not found:
        return None
    identifier = found[1].decode("utf-8", "replace")
    return identifier[1:-1] if identifier.startswith('"') else int(identifier)
