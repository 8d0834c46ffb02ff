"""Shows the names of MCP servers, so that a stranger's server cannot pass for a part of agentmagic or for a provider.

The person gives a server its name, but a file of a project can propose one. A name that resembles one of ours, or that
is written with letters that resemble others, is shown with the server's command line or URL.
"""

import re
import unicodedata
from functools import cache

from agentmagic.messages import NOTEBOOK
from agentmagic.providers.outside import NAMES, PREFIX
from agentmagic.providers.registry import providers
from agentmagic.text import exact

OURS = (NOTEBOOK, "agentmagic")
"""Words that make a name resemble ours wherever they stand in it."""

_LOOKALIKES = str.maketrans(
    # Each pair: letters in lower case, and the ASCII letter that they resemble. They are Cyrillic, Greek, Armenian and
    # Latin; 1 and l resemble i.
    {
        letter: ascii_letter
        for letters, ascii_letter in (
            ("\u0430\u03b1\u0251", "a"),
            ("\u0432\u03b2\u044c\u0185", "b"),
            ("\u0441\u03f2", "c"),
            ("\u0501\u0257", "d"),
            ("\u0435\u0454\u04bd3\u03b5", "e"),
            ("\u0581\u02619", "g"),
            ("\u04bb\u0570\u043d", "h"),
            ("\u0456\u03b9\u0131\u04cf1l|\u0269", "i"),
            ("\u0458\u03f3", "j"),
            ("\u043a\u03ba", "k"),
            ("\u043c", "m"),
            ("\u043f\u0578\u03b7", "n"),
            ("\u043e\u03bf\u05850\u04e9", "o"),
            ("\u0440\u03c1", "p"),
            ("\u051b", "q"),
            ("\u0433", "r"),
            ("\u04555$", "s"),
            ("\u0442\u03c47", "t"),
            ("\u057d\u03c5", "u"),
            ("\u0475\u03bd", "v"),
            ("\u051d\u03c9\u0461", "w"),
            ("\u0445\u03c7", "x"),
            ("\u0443\u03b3\u04af", "y"),
            ("\u1d22", "z"),
            ("\ua789\u02d0\u2236\u0589\u05c3\u02f8\ufe13", ":"),
        )
        for letter in letters
    }
)
_PAIRS = (("rn", "m"), ("vv", "w"))
"""Pairs of letters that resemble one."""
_BETWEEN = re.compile(r"[^\w:]|_")
_ADDRESSES: dict[str, dict[str, None]] = {}
"""The addresses of the servers of each name that this process has known, without doubles."""


def register_server(name: str, address: str) -> None:
    """Remember the command line or URL of an MCP server, with secrets blanked, to show it with the server's name."""
    _ADDRESSES.setdefault(name, {})[address] = None


def is_mcp_server(name: str) -> bool:
    """Return whether an MCP server of this process has this name."""
    return name in _ADDRESSES


def address_to_show(name: str, address: str = "") -> str:
    """Return the command line or URL to show with the name of a server, or "" if the name cannot be mistaken.

    Without `address`, it is that of the servers of this name in this process, or "an MCP server" if none is known, as
    for a saved conversation.
    """
    if name == NOTEBOOK or not resembles_ours(name) or (name not in _ADDRESSES and _is_ours(name)):
        return ""
    return exact(address) or " or ".join(map(exact, _ADDRESSES.get(name, {}))) or "an MCP server"


def shown_server(name: str, address: str = "") -> str:
    """Return the name of a tool's server as it is shown: with `address_to_show` if the name could be mistaken."""
    address = address_to_show(name, address)
    return f"{exact(name)} ({address})" if address else exact(name)


def quoted_server(name: str) -> str:
    """Return the name of a server in quotation marks, for a sentence, with `address_to_show` if there is one."""
    address = address_to_show(name)
    return f"{name!r} ({address})" if address else repr(name)


@cache
def resembles_ours(name: str) -> bool:
    """Return whether a name looks like one of ours or like a provider, or has letters that resemble ASCII letters."""
    plain = _skeleton(name)
    if any(_skeleton(word) in plain for word in OURS):
        return True
    before, colon, _ = plain.partition(":")
    if before in _taken_names() and (colon or before == plain):
        return True
    return plain.isascii() and any(map(_is_lookalike, name))


def _is_ours(name: str) -> bool:
    """Return whether the name is of an outside agent or of a provider, which stand where a server's name stands."""
    return name.startswith(PREFIX) or name in providers()


def _is_lookalike(character: str) -> bool:
    """Return whether a character is not in ASCII, but resembles one that is. An accent alone does not count."""
    folded = unicodedata.normalize("NFKC", character).casefold()
    return not character.isascii() and folded.translate(_LOOKALIKES).isascii()


@cache
def _taken_names() -> frozenset[str]:
    return frozenset(map(_skeleton, (*providers(), *NAMES)))


def _skeleton(name: str) -> str:
    """Return a name without accents, spaces and marks, and with each letter replaced by the one that it resembles."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    bare = "".join(one for one in unicodedata.normalize("NFD", folded) if not unicodedata.combining(one))
    plain = _BETWEEN.sub("", bare.translate(_LOOKALIKES))
    for pair, one in _PAIRS:
        plain = plain.replace(pair, one)
    return plain
