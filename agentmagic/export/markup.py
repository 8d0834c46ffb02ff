"""Text from anywhere as Markdown that stays within its place.

Whoever shows Markdown, GitHub or JupyterLab, keeps scripts out of the page. Here it is seen to that no text hides
or ends what stands around it: no tag, no comment and no fence reaches beyond the text it is in.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

from agentmagic.display.words import cut, shown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST = 200_000
"""Characters of Markdown that are written; the rest is cut, with a note."""

_PASSES = 10
_END = "end"
_TAG = re.compile(r"<[A-Za-z/!?]")
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~$&]")
_BACKTICKS = re.compile(r"`+")


def prose(text: str) -> str:
    """Return Markdown that somebody wrote: HTML in it reads as text, and a fence left open is closed."""
    source, note = cut(shown(text).strip("\n"), LONGEST)
    whole = _closed(_without_html(source))
    return f"{whole}\n\n*{note}*" if note else whole


def quote(markdown: str) -> str:
    """Put Markdown into a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in markdown.split("\n"))


def plain(text: str) -> str:
    """Write words on one line so that Markdown shows them as they are."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(shown(text).split()))


def fence(text: str, language: str = "") -> str:
    """Put text into a fence that nothing in it can close."""
    marks = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{marks}{language}\n{text}\n{marks}"


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def _without_html(text: str) -> str:
    """Return the text with the `<` of every block that holds HTML written out.

    Without its HTML a text may read otherwise further down, so it is looked at until nothing is left.
    """
    if not _TAG.search(text):
        return text
    lines = text.split("\n")
    for _ in range(_PASSES):
        spans = [token.map for token in _parser().parse("\n".join(lines)) if token.map and _holds_html(token)]
        if not spans:
            return "\n".join(lines)
        for start, end in spans:
            lines[start:end] = [line.replace("<", "&lt;") for line in lines[start:end]]
    return fence(text, "markdown")


def _holds_html(token: "Token") -> bool:
    if token.type == "html_block":
        return True
    # Where there are tables, code does not reach from one cell into the next, as it does here.
    if "|" in token.content and token.type == "inline" and _TAG.search(token.content):
        return True
    return any(child.type == "html_inline" for child in token.children or ())


def _closed(text: str) -> str:
    """Close the fence that a text ends in, if it does."""
    if "```" not in text and "~~~" not in text:
        return text
    last = _parser().parse(f"{text}\n\n{_END}")[-1]
    return f"{text}\n{last.markup}" if last.type == "fence" else text
