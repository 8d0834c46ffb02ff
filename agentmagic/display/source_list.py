"""Render the sources of an answer as static HTML: numbers that link to a list of sources, and search results."""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b

from markupsafe import Markup

from agentmagic.display.blocks import TextBlock
from agentmagic.display.citations import LONGEST_QUOTE, LONGEST_TITLE, cited_html, link, place_numbers
from agentmagic.display.elements import MUTED, element, fold
from agentmagic.display.rich_values import Pages
from agentmagic.messages import Source
from agentmagic.secrets import redact
from agentmagic.text import clip, sanitize, single_line, web_address

HEADING = "Sources"
LIST = "margin:0;padding-left:2em"
RAISED = "line-height:0;margin-left:2px"
"""The style of a number, which does not make its line higher."""


def source_title(source: Source) -> str:
    """Return the title of a cited web page on one line, or its address if it has no title."""
    return single_line(sanitize(source.title), LONGEST_TITLE) or shown_address(source.url)


def shown_address(url: str) -> str:
    """Return a web page's address on one line, cut to length.

    A web address is shown in ASCII, so that no letter in it looks like another.
    """
    return single_line(web_address(redact(url)) or sanitize(url), LONGEST_TITLE)


def quotes_of(source: Source) -> Sequence[str]:
    """Return the quotations from a cited web page, each cut to length."""
    return [clip(sanitize(quote).strip(), LONGEST_QUOTE) for quote in source.quotes]


class SourceList:
    """The HTML of a text with source numbers, and of the list that the numbers link to."""

    def __init__(self, block: TextBlock) -> None:
        self._block = block
        self._sources = {source.number: source for source in block.sources}
        # The name begins the ids of the list's entries. It differs between answers, and stays the same in a replay.
        data = repr((block.text, block.sources)).encode(errors="replace") if block.sources else b""
        self._name = f"am-source-{blake2b(data, digest_size=4).hexdigest()}"

    def text(self) -> Markup:
        """Return the text as HTML, in which each source number links to its entry in the list of sources."""
        block = self._block
        return cited_html(block.text, place_numbers(block.text, block.citations, block.sources), self._number)

    def below(self) -> Markup:
        """Return the list of sources, or nothing for a text without sources."""
        if not self._sources:
            return Markup()
        heading = element("small", element("b", HEADING))
        head = element("p", heading, style="margin:6px 0 2px", more=' role="heading" aria-level="3"')
        return element("div", head, element("ol", *map(self._entry, self._block.sources), style=LIST))

    def _number(self, number: int) -> Markup:
        title = source_title(self._sources[number])
        leads = Markup('<a href="#{}-{}" title="{}" aria-label="source {}: {}">{}</a>')
        return element("sup", leads.format(self._name, number, title, number, title, number), style=RAISED)

    def _entry(self, source: Source) -> Markup:
        quotes = [element("blockquote", quote) for quote in quotes_of(source)]
        more = fold(element("small", "Quoted"), *quotes, look=f"cursor:pointer;{MUTED}") if quotes else ""
        entry = Markup('<li id="{}-{}" value="{}">{}{}</li>')
        return entry.format(self._name, source.number, source.number, _page(source_title(source), source.url), more)


def pages_html(pages: Pages) -> Markup:
    """Return the web pages that a search found as HTML, each with its address and the beginning of its text."""
    entries = (element("li", _page(title or shown_address(url), url), _start(text)) for title, url, text in pages.pages)
    note = element("p", element("small", pages.note), style=MUTED) if pages.note else ""
    return element("ol", *entries, style=LIST) + note


def _page(title: str, url: str) -> Markup:
    """Return the title and address of a web page as HTML; the title is a link if the address may be linked."""
    leads_to = link(url)
    rel = Markup('<a href="{}" rel="noopener noreferrer nofollow">{}</a>')
    address = element("small", shown_address(url), style=f"{MUTED};overflow-wrap:anywhere")
    return Markup("{} {}").format(rel.format(leads_to, title) if leads_to else title, address)


_start = partial(element, "div", style="white-space:pre-wrap;overflow-wrap:anywhere")
