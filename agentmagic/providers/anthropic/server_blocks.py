"""Reads the blocks of what Anthropic's servers do within an answer: searches, pages, programs, and citations.

https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool, web-fetch-tool and code-execution-tool,
and https://platform.claude.com/docs/en/build-with-claude/citations
"""

from collections.abc import Iterable, Iterator, Sequence

from agentmagic.messages import (
    FETCH,
    Citation,
    Content,
    HostedCall,
    HostedResult,
    Part,
    ProviderData,
    Resource,
    ResultStatus,
    Text,
)
from agentmagic.providers import hosted
from agentmagic.providers.wire import Json, mint_id, object_of, objects_of, read_arguments, text_of
from agentmagic.text import clean

HOST = "Anthropic"
_RESULT = "_result"
_SHOWN_APART = frozenset({"type", "id", "tool_use_id", "caller", "encrypted_content", "encrypted_stdout", "signature"})
"""Fields of which nothing is shown."""


def is_result(block: Json) -> bool:
    """Return whether a block is the result of a call of the server."""
    return block["type"].endswith(_RESULT) and bool(text_of(block.get("tool_use_id")))


def call_of(block: Json, own: ProviderData) -> HostedCall:
    """Return the part of a call that the server carries out."""
    arguments = hosted.fitting(read_arguments(block.get("input")))
    call_id = text_of(block.get("id"))
    return HostedCall(
        call_id or mint_id(), hosted.name_of(block.get("name")), arguments, HOST, own if call_id else None
    )


def result_of(block: Json, own: ProviderData) -> HostedResult:
    """Return the part of what came of a call."""
    name = hosted.name_of(block["type"].removesuffix(_RESULT).removesuffix("_tool"))
    content, status = _content(block.get("content"))
    if block.get("is_error") is True:
        status = "error"
    return HostedResult(text_of(block["tool_use_id"]), name, content, status, own)


def lone(block: Json, own: ProviderData) -> tuple[HostedCall, HostedResult]:
    """Return the parts of a block of a kind of its own, which is neither a call nor a result."""
    shown = {name: value for name, value in block.items() if name not in _SHOWN_APART}
    call = HostedCall(mint_id(), hosted.name_of(block["type"]), {}, HOST, own if block["type"] else None)
    return hosted.alone(call, hosted.words(shown))


def _content(content: object) -> tuple[tuple[Content, ...], ResultStatus]:
    """Return what a result holds, in parts, and whether the call failed."""
    found = object_of(content)
    if code := text_of(found.get("error_code")):
        return hosted.words(code.replace("_", " ")), "error"
    if found.get("type") == "web_fetch_result":
        return (_document(found),), "ok"
    if "return_code" in found:  # of a program
        files = [f"[file {text_of(one.get('file_id'))}]" for one in objects_of(found.get("content"))]
        status: ResultStatus = "error" if found.get("return_code") else "ok"
        return (*hosted.printed(found), *hosted.words("\n".join(files))), status
    if found:
        return hosted.words({name: value for name, value in found.items() if name not in _SHOWN_APART}), "ok"
    entries = objects_of(content)
    if any(one.get("type") == "web_search_result" for one in entries):
        return hosted.pages(hosted.page(one.get("url"), one.get("title")) for one in entries), "ok"
    return hosted.words(content), "ok"


def _document(found: Json) -> Content:
    document = object_of(found.get("content"))
    source = object_of(document.get("source"))
    is_text = source.get("type") == "text"
    kind = "" if is_text else hosted.title_of(source.get("media_type"))
    return hosted.page(found.get("url"), document.get("title"), source.get("data") if is_text else "", kind)


def fetched_pages(parts: Iterable[Part]) -> list[Resource]:
    """Return the pages that were fetched, among the parts of answers."""
    fetched = (part for part in parts if isinstance(part, HostedResult) and part.name == FETCH)
    return [page for part in fetched for page in part.content if isinstance(page, Resource)]


def cited_text(blocks: Sequence[Json], pages: Sequence[Resource], own: ProviderData | None) -> Text:
    """Return the text of adjacent blocks as one part; a citation is of the whole text of its block.

    `pages` are those that were fetched before, which it may cite.
    """
    text = "".join(block["text"] for block in blocks)
    citations: list[Citation] = []
    start = 0
    for block in blocks:
        end = start + len(block["text"])
        citations += _citations(text, (start, end), block, pages)
        start = end
    return Text(text, own, citations=hosted.cites(citations))


def _citations(text: str, span: tuple[int, int], block: Json, pages: Sequence[Resource]) -> Iterator[Citation]:
    for one in objects_of(block.get("citations"))[: hosted.MOST_CITATIONS]:
        url, title = one.get("url") or one.get("source"), one.get("title")
        if url is None and (found := _cited_page(one, pages)):
            url, title = found.uri, found.name
        yield hosted.citation(text, span, url, title or one.get("document_title"), one.get("cited_text"))


def _cited_page(citation: Json, pages: Sequence[Resource]) -> Resource | None:
    """Return the fetched page that a citation is of: the API counts all documents of a request, and names no address.

    Other documents are the user's own, and have no address. A page may have the title of one, but not its words.
    """
    title, words = hosted.title_of(citation.get("document_title")), clean(text_of(citation.get("cited_text"))).strip()
    alike = [page for page in pages if page.name == title]
    whole = [page for page in alike if words and words in page.text]
    unread = [page for page in alike if not 0 < len(page.text) < hosted.LONGEST_PAGE]  # PDF, and the ends of long pages
    return next(iter(whole or unread), None)
