"""Reads the content blocks about work that Anthropic's servers did for an answer.

Such work is a web search, a fetched page, a program run, or a citation.

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
_HIDDEN_FIELDS = frozenset(
    {"type", "id", "tool_use_id", "caller", "encrypted_content", "encrypted_stdout", "signature"}
)
"""Fields of a block that are not shown in the text of a result."""


def is_result(block: Json) -> bool:
    """Return whether a content block is the result of a call that Anthropic's servers ran."""
    return block["type"].endswith(_RESULT) and bool(text_of(block.get("tool_use_id")))


def call_of(block: Json, own: ProviderData) -> HostedCall:
    """Return the part for a content block that describes a call on Anthropic's servers.

    `own` is the data that later requests send back in place of the part.
    """
    arguments = hosted.limit_arguments(read_arguments(block.get("input")))
    call_id = text_of(block.get("id"))
    return HostedCall(
        call_id or mint_id(), hosted.name_of(block.get("name")), arguments, HOST, own if call_id else None
    )


def result_of(block: Json, own: ProviderData) -> HostedResult:
    """Return the result of a call that Anthropic's servers ran, as a message part, from its content block.

    `own` is the data that later requests send back in place of the part.
    """
    name = hosted.name_of(block["type"].removesuffix(_RESULT).removesuffix("_tool"))
    content, status = _content(block.get("content"))
    if block.get("is_error") is True:
        status = "error"
    return HostedResult(text_of(block["tool_use_id"]), name, content, status, own)


def unknown_block(block: Json, own: ProviderData) -> tuple[HostedCall, HostedResult]:
    """Return a call and a result that show a content block of an unknown type."""
    fields = {name: value for name, value in block.items() if name not in _HIDDEN_FIELDS}
    call = HostedCall(mint_id(), hosted.name_of(block["type"]), {}, HOST, own if block["type"] else None)
    return hosted.call_and_result(call, hosted.text_content(fields))


def _content(content: object) -> tuple[tuple[Content, ...], ResultStatus]:
    """Return the content of a hosted call's result, and whether the call succeeded."""
    result = object_of(content)
    if code := text_of(result.get("error_code")):
        return hosted.text_content(code.replace("_", " ")), "error"
    if result.get("type") == "web_fetch_result":
        return (_document(result),), "ok"
    if "return_code" in result:  # the result of a program that Claude ran
        files = [f"[file {text_of(one.get('file_id'))}]" for one in objects_of(result.get("content"))]
        status: ResultStatus = "error" if result.get("return_code") else "ok"
        return (*hosted.program_output(result), *hosted.text_content("\n".join(files))), status
    if result:
        return hosted.text_content({name: value for name, value in result.items() if name not in _HIDDEN_FIELDS}), "ok"
    entries = objects_of(content)
    if any(one.get("type") == "web_search_result" for one in entries):
        return hosted.pages(hosted.page(one.get("url"), one.get("title")) for one in entries), "ok"
    return hosted.text_content(content), "ok"


def _document(result: Json) -> Content:
    document = object_of(result.get("content"))
    source = object_of(document.get("source"))
    is_text = source.get("type") == "text"
    kind = "" if is_text else hosted.title_of(source.get("media_type"))
    return hosted.page(result.get("url"), document.get("title"), source.get("data") if is_text else "", kind)


def fetched_pages(parts: Iterable[Part]) -> list[Resource]:
    """Return the pages that Anthropic's servers fetched, from the parts of answers."""
    results = (part for part in parts if isinstance(part, HostedResult) and part.name == FETCH)
    return [page for part in results for page in part.content if isinstance(page, Resource)]


def cited_text(blocks: Sequence[Json], pages: Sequence[Resource], own: ProviderData | None) -> Text:
    """Return adjacent text blocks as one part; a citation covers the whole text of its block.

    `pages` are the web pages that were fetched before the text was written: the text can cite them.
    """
    text = "".join(block["text"] for block in blocks)
    citations: list[Citation] = []
    start = 0
    for block in blocks:
        end = start + len(block["text"])
        citations += _citations(text, (start, end), block, pages)
        start = end
    return Text(text, own, citations=hosted.order_citations(citations))


def _citations(text: str, span: tuple[int, int], block: Json, pages: Sequence[Resource]) -> Iterator[Citation]:
    for one in objects_of(block.get("citations"))[: hosted.MOST_CITATIONS]:
        url, title = one.get("url") or one.get("source"), one.get("title")
        if url is None and (page := _cited_page(one, pages)):
            url, title = page.uri, page.name
        yield hosted.citation(text, span, url, title or one.get("document_title"), one.get("cited_text"))


def _cited_page(citation: Json, pages: Sequence[Resource]) -> Resource | None:
    """Return the fetched page that a citation without an address refers to, or None.

    The API gives the citation only a title, an index over all documents of the request, and the cited text. A document
    of the user can have the same title as a page, so the cited text must be in the page too, if the whole text of the
    page is known.
    """
    title, words = hosted.title_of(citation.get("document_title")), clean(text_of(citation.get("cited_text"))).strip()
    alike = [page for page in pages if page.name == title]
    whole = [page for page in alike if words and words in page.text]
    # The whole text of these pages is not known: a PDF, or a text that was shortened.
    unread = [page for page in alike if not 0 < len(page.text) < hosted.LONGEST_PAGE]
    return next(iter(whole or unread), None)
