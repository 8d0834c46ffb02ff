"""Bounds the work of matching a regular expression, which can grow exponentially with the length of the text."""

import re
from math import inf

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
