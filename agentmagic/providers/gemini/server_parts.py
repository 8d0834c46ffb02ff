"""Reads the parts of an answer about work that Google's servers did: searches, fetched pages, programs, citations.

API reference: https://ai.google.dev/api/generate-content#GroundingMetadata. Guides under
https://ai.google.dev/gemini-api/docs: google-search, url-context, tool-combination and code-execution.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast
from urllib.parse import quote_plus

from agentmagic.messages import FETCH, SEARCH, Citation, Content, HostedCall, HostedResult, ProviderData, ResultStatus
from agentmagic.providers import hosted
from agentmagic.providers.hosted import PROGRAM
from agentmagic.providers.wire import Json, number_of, object_of, objects_of, text_of

HOST = "Google"
_NAMES = {"GOOGLE_SEARCH_WEB": SEARCH, "URL_CONTEXT": FETCH}
_GOOD = frozenset({"", "success"})
_OUTCOMES: dict[str, ResultStatus] = {"OUTCOME_OK": "ok", "OUTCOME_DEADLINE_EXCEEDED": "timeout"}
_MOST_QUERIES = 50


class ServerParts:
    """Makes `HostedCall` and `HostedResult` parts from those parts of one response that Google's servers made.

    `searches` counts the billed searches. A result without an id belongs to the latest call. `called` becomes True at
    the first call.
    """

    def __init__(self, provider: str, mint: Callable[[], str]) -> None:
        self._provider = provider
        self._mint = mint
        self._last: HostedCall | None = None
        self._calls: dict[str, HostedCall] = {}
        self._queries: set[str] = set()
        self.called = False

    def parts(self, part: Json) -> tuple[HostedCall | HostedResult, ...]:
        """Return the hosted calls and results for one part of Gemini's response.

        `part` is neither plain text nor a call of one of our tools.
        """
        data = ProviderData(self._provider, part)
        if call := object_of(part.get("toolCall")):
            kind, arguments = text_of(call.get("toolType")), object_of(call.get("args"))
            if kind == "GOOGLE_SEARCH_WEB":
                self._queries.update(_queries(arguments.get("queries")))
            return (self._begin(call.get("id"), _NAMES.get(kind) or kind.lower(), arguments, data),)
        if program := object_of(part.get("executableCode")):
            return (self._begin(program.get("id"), PROGRAM, {"code": text_of(program.get("code"))}, data),)
        if response := object_of(part.get("toolResponse")):
            return (self._end(response, self._result_content, data, "ok"),)
        if output := object_of(part.get("codeExecutionResult")):
            status = _OUTCOMES.get(text_of(output.get("outcome")), "error")
            return (self._end(output, lambda one, _call: hosted.text_content(one.get("output")), data, status),)
        return self._unknown_part(part, data)

    def searches(self) -> int:
        """Return the number of searches that are billed: the number of different queries."""
        return len(self._queries)

    def _begin(self, call_id: object, name: str, arguments: Json, data: ProviderData) -> HostedCall:
        self.called = True
        final_id = text_of(call_id) or self._mint()
        self._last = self._calls[final_id] = HostedCall(
            final_id, hosted.name_of(name), hosted.limit_arguments(arguments), HOST, data
        )
        return self._last

    def _end(
        self,
        result: Json,
        read: Callable[[Json, HostedCall | None], tuple[Content, ...]],
        data: ProviderData,
        status: ResultStatus,
    ) -> HostedResult:
        call = self._calls.get(text_of(result.get("id"))) or (None if result.get("id") else self._last)
        name = call.name if call else hosted.name_of(_NAMES.get(text_of(result.get("toolType")), PROGRAM))
        call_id = call.id if call else text_of(result.get("id")) or self._mint()
        return HostedResult(call_id, name, read(result, call), status, data)

    @staticmethod
    def _result_content(response: Json, call: HostedCall | None) -> tuple[Content, ...]:
        """Return the content of the result of one of Google's tools.

        A search result contains no pages. In their place, the content has links to the same searches at Google.
        """
        data = object_of(response.get("response"))
        match text_of(response.get("toolType")):
            case "GOOGLE_SEARCH_WEB":
                return hosted.pages(_suggestions(_queries(call.arguments.get("queries") if call else ())))
            case "URL_CONTEXT":
                return _fetched_pages(data.get("urls_metadata") or data.get("urlMetadata"))
            case _:
                return hosted.text_content(data)

    def _unknown_part(self, part: Json, data: ProviderData) -> tuple[HostedCall | HostedResult, ...]:
        """Return a call and a result that show a part of Gemini's response: an image, or a part of an unknown kind."""
        if blob := object_of(part.get("inlineData")):
            content: tuple[Content, ...] = (hosted.image(blob.get("data"), blob.get("mimeType")),)
            name = "image"
        else:
            kinds = (key for key in part if key not in ("thought", "thoughtSignature"))
            name = hosted.name_of(next(kinds, ""))
            content = hosted.text_content({key: value for key, value in part.items() if key != "thoughtSignature"})
        return hosted.call_and_result(HostedCall(self._mint(), name, {}, HOST, data), content)


def metadata_parts(
    grounding: Json, urls: Json, provider: str, mint: Callable[[], str]
) -> Iterator[HostedCall | HostedResult]:
    """Yield calls and results that show the searches and fetched pages in an answer's metadata.

    They have no data for later requests, so they are not sent back to Gemini.
    """
    data = ProviderData(provider, {})
    if queries := _queries(grounding.get("webSearchQueries")):
        call = HostedCall(mint(), SEARCH, {"queries": queries}, HOST, data)
        web_pages = (hosted.page(web.get("uri"), web.get("title")) for web in map(_web, _chunks(grounding)) if web)
        yield from hosted.call_and_result(call, hosted.pages((*web_pages, *_suggestions(queries))))
    if entries := objects_of(urls.get("urlMetadata")):
        addresses = [one.get("retrievedUrl") for one in entries[: hosted.MOST_PAGES]]
        call = HostedCall(mint(), FETCH, hosted.limit_arguments({"urls": addresses}), HOST, data)
        yield from hosted.call_and_result(call, _fetched_pages(entries))


def queries_of(grounding: Json) -> int:
    """Return the number of different search queries that an answer's metadata lists."""
    return len(set(_queries(grounding.get("webSearchQueries"))))


def sources_of(metadata: Json) -> object:
    """Return the list of recited sources in an answer's `citationMetadata`. Vertex AI names the list otherwise."""
    return metadata.get("citationSources") or metadata.get("citations")


def citations(text: str, grounding: Json, recited: Sequence[Json] = ()) -> Iterator[Citation]:
    """Yield the citations of an answer. Google's positions count UTF-8 bytes over the whole text of the answer.

    `recited` are sources that the answer quotes. Without any segment, the sources of a search stand behind the text.
    """
    chunks, raw, count = _chunks(grounding), text.encode(errors="replace"), 0
    for one in recited:
        yield hosted.citation(text, _span(text, raw, one), one.get("uri"), one.get("title"))
    if not grounding.get("groundingSupports"):
        yield from hosted.sources_at_end(text, {"groundingChunks": list(map(_web, chunks))})
    for support in objects_of(grounding.get("groundingSupports")):
        span = _span(text, raw, object_of(support.get("segment")))
        for place in _as_list(support.get("groundingChunkIndices")):
            count += 1
            if type(place) is int and 0 <= place < len(chunks) and (web := _web(chunks[place])):
                yield hosted.citation(text, span, web.get("uri"), web.get("title"))
            if count >= hosted.MOST_CITATIONS:
                return


def _span(text: str, raw: bytes, segment: Json) -> tuple[object, object]:
    """Return the start and end of a cited segment as positions in `text`, or (None, None).

    Google counts UTF-8 bytes; `raw` is `text` as UTF-8. If `text` does not have the segment's own text at Google's
    positions, the segment's text is searched in `text`.
    """
    start, end, segment_text = (
        number_of(segment.get("startIndex")) or 0,
        number_of(segment.get("endIndex")),
        segment.get("text"),
    )
    if end is not None and 0 <= start < end <= len(raw):
        span = len(raw[:start].decode(errors="ignore")), len(raw[:end].decode(errors="ignore"))
        if not isinstance(segment_text, str) or text[slice(*span)] == segment_text:
            return span
    place = text.find(segment_text) if isinstance(segment_text, str) and segment_text else -1
    return (place, place + len(text_of(segment_text))) if place >= 0 else (None, None)


def _chunks(grounding: Json) -> list[Json]:
    return [object_of(one) for one in _as_list(grounding.get("groundingChunks"))]


def _web(chunk: Json) -> Json:
    """Return the source that a grounding chunk (an entry of Google's list of sources) describes, or {}.

    The source is a web page, a file or a place on the map.
    """
    return next((one for one in map(object_of, chunk.values()) if one), dict[str, Any]())


def _queries(queries: object) -> list[str]:
    """Return the texts of search queries, without empty ones and duplicates."""
    return list(dict.fromkeys(line for one in _as_list(queries) if (line := hosted.title_of(one))))[:_MOST_QUERIES]


def _as_list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _suggestions(queries: Iterable[str]) -> Iterator[Content]:
    """Yield a link to Google Search for each query. Google requires that these links are shown with the answer."""
    return (hosted.page(f"https://www.google.com/search?q={quote_plus(query)}", query) for query in queries)


def _fetched_pages(entries: object) -> tuple[Content, ...]:
    """Return the pages that Google's servers fetched. A page that they could not read has the reason as its text."""
    return hosted.pages(map(_fetched_page, objects_of(entries)))


def _fetched_page(entry: Json) -> Content:
    status = text_of(entry.get("urlRetrievalStatus") or entry.get("url_retrieval_status"))
    status = status.removeprefix("URL_RETRIEVAL_STATUS_").lower()
    url = entry.get("retrievedUrl") or entry.get("retrieved_url")
    return hosted.page(url, "", "" if status in _GOOD else f"(not read: {status})")
