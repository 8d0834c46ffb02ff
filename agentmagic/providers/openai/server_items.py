"""Reads the output items about work that OpenAI's servers did for a response: searches, programs, images and others.

https://developers.openai.com/api/docs/guides/tools-web-search, tools-code-interpreter, tools-file-search and
tools-image-generation
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from agentmagic.messages import (
    FETCH,
    SEARCH,
    Citation,
    Content,
    HostedCall,
    HostedResult,
    HostedTool,
    ProviderData,
    ResultStatus,
    Text,
)
from agentmagic.providers import hosted
from agentmagic.providers.hosted import PROGRAM
from agentmagic.providers.openai.client import read_citations
from agentmagic.providers.wire import Json, count_of, mint_id, object_of, objects_of, read_arguments, text_in, text_of

HOST = "OpenAI"
SOURCES = "web_search_call.action.sources"
"""The value in the field `include` of a request that adds the pages found by a search to the response."""
# The models that can search the web. A search can also open pages; OpenAI has no separate tool that fetches pages.
_HAS_WEB = re.compile(r"(?:ft:)?(?:gpt-(?:[5-9]|\d\d)(?!.*-search)|gpt-4\.1(?!-nano))")
_SEARCH_CALL = "web_search_call"
_HIDDEN_FIELDS = frozenset({"id", "type", "status", "name", "arguments", "encrypted_content", "fingerprint"})
"""Fields of items of unknown types that are not shown in the text of the result."""
_WHOLE = frozenset({"", "completed", "failed"})
"""The statuses of items that the API accepts in the history."""
_OURS = frozenset(
    {"custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request"}
)
"""Types of items that the client must answer. They are not sent back: without an answer, the API refuses them."""
_FOUND = {"search_results": SEARCH, "fetch_url_results": FETCH}
"""Types of Perplexity's items with pages, and what they are called here. Its API does not take such items back:
https://docs.perplexity.ai/docs/agent-api and perplexityai/perplexity-py, 2026-11."""


def hosts(model: str, tool: HostedTool) -> bool:
    """Return whether OpenAI's servers can run a tool for a model. They obey limits on domains and on uses."""
    return tool.name == SEARCH and _HAS_WEB.match(model) is not None


def web_tool(tool: HostedTool) -> Json:
    """Return the entry for the web search in the field "tools" of a request.

    Without `user_location`, OpenAI would search as for a user in the United States.
    """
    entry: Json = {"type": "web_search", "user_location": {"type": "approximate"}}
    return entry | ({"filters": {"allowed_domains": list(tool.domains)}} if tool.domains else {})


def bound_of(tools: Sequence[HostedTool]) -> Json:
    """Return the request field that limits how many hosted calls a response can make, or {} without a limit.

    A hosted call is a call that OpenAI runs itself. The API has no limit for searches alone.
    """
    bounds = [tool.max_uses for tool in tools if tool.max_uses]
    return {"max_tool_calls": min(bounds)} if bounds else {}


def citations_of(item: Json, text: str) -> tuple[Citation, ...]:
    """Return the citations in a message item, with positions in `text`, the whole text of the message.

    OpenAI counts positions from the beginning of each content entry of the message.
    """
    citations: list[Citation] = []
    start = 0
    for content in objects_of(item.get("content")):
        end = start + len(text_in(content))
        own = read_citations(text[start:end], content.get("annotations"))
        citations += (replace(one, start=one.start + start, end=one.end + start) for one in own)
        start = end
    return hosted.order_citations(citations)


def other_sources(response: Json, items: Sequence[Json]) -> Json:
    """Return the sources that stand beside the texts of a response, for `sources_at_end`.

    xAI lists all pages that were read in `citations` of the response (https://docs.x.ai/developers/tools/citations).
    Perplexity writes "[1]" into the text, and has the pages in items (docs.perplexity.ai/docs/agent-api). 2026-11.
    """
    found = [item.get("results") for item in items if item.get("type") in _FOUND]
    return {"search_results": found, "citations": response.get("citations")}


def searches(response: Json, items: Sequence[Json]) -> int:
    """Return how many searches of a response are billed: the server's count, or else the number of search items."""
    count = object_of(object_of(response.get("tool_usage")).get("web_search")).get("num_requests")
    return sum(map(_is_search, items)) if count is None else count_of(count)


def _is_search(item: Json) -> bool:
    """Return whether an item is a completed search. Opening a page costs no fee, so it does not count."""
    action = object_of(item.get("action"))
    is_complete = text_of(item.get("status")) in ("", "completed")
    return item.get("type") == _SEARCH_CALL and action.get("type") == "search" and is_complete


def to_history_item(item: Json) -> Json:
    """Return an output item in the form in which later requests send it back.

    A search item loses its list of found pages: some versions of the API refuse the list that they sent themselves.
    """
    if item.get("type") != _SEARCH_CALL:
        return item
    action = object_of(item.get("action"))
    fields = {name: value for name, value in action.items() if name != "sources" and value is not None}
    return {**item, "action": fields} if action else item


def hosted_parts(item: Json, provider: str, *, is_whole: bool) -> tuple[HostedCall, HostedResult]:
    """Return the hosted call and the result for an output item. Later requests send back the item if it is complete."""
    kind, status = text_of(item.get("type")), text_of(item.get("status"))
    goes_back = is_whole and status in _WHOLE and kind not in (*_OURS, *_FOUND)
    name, arguments = _name_and_arguments(kind, item)
    data = ProviderData(provider, item) if goes_back else None
    call = HostedCall(text_of(item.get("id")) or mint_id(), name, hosted.limit_arguments(arguments), HOST, data)
    end_status: ResultStatus = "error" if status == "failed" or item.get("error") else "ok"
    outcome: ResultStatus = end_status if is_whole and status in _WHOLE else "interrupted"
    return hosted.call_and_result(call, _result_content(kind, item), outcome)


def name_of(item: Json) -> str:
    """Return the name of the hosted call in an output item, which can be incomplete."""
    kind = text_of(item.get("type"))
    return hosted.name_of(item.get("name") or _FOUND.get(kind) or kind.removesuffix("_call"))


def _name_and_arguments(kind: str, item: Json) -> tuple[str, Json]:
    """Return the name and the arguments of the hosted call in an item of type `kind`."""
    action = object_of(item.get("action"))
    match kind:
        case "web_search_call":
            name = FETCH if action.get("type") in ("open_page", "find_in_page") else SEARCH
            return name, {key: value for key, value in action.items() if key not in ("type", "sources") and value}
        case "code_interpreter_call":
            return PROGRAM, {"code": text_of(item.get("code"))}
        case "file_search_call":
            return "file_search", {"queries": item.get("queries")}
        case _ if kind in _FOUND:
            return _FOUND[kind], {"queries": item["queries"]} if item.get("queries") else {}
        case _:
            return name_of(item), read_arguments(item.get("arguments"))


def _result_content(kind: str, item: Json) -> tuple[Content, ...]:
    """Return the content of the result of the hosted call in an item of type `kind`."""
    match kind:
        case "web_search_call":
            action = object_of(item.get("action"))
            own_page = [{"url": action["url"]}] if action.get("url") else []
            return hosted.pages(_source(one) for one in (*objects_of(action.get("sources")), *own_page))
        case "code_interpreter_call":
            outputs = objects_of(item.get("outputs"))[: hosted.MOST_PAGES]
            return tuple(part for one in outputs for part in _output(one))
        case "file_search_call":
            entries: Sequence[Json] = objects_of(item.get("results"))[: hosted.MOST_PAGES]
            return tuple(part for one in entries for part in _file(one))
        case _ if kind in _FOUND:
            found = (*objects_of(item.get("results")), *objects_of(item.get("contents")))
            return hosted.pages(hosted.page(one.get("url"), one.get("title"), one.get("snippet")) for one in found)
        case "image_generation_call":
            return (hosted.image(item.get("result"), f"image/{text_of(item.get('output_format')) or 'png'}"),)
        case _:
            return hosted.text_content(
                {name: value for name, value in item.items() if name not in _HIDDEN_FIELDS and value}
            )


def _source(source: Json) -> Content:
    """Return a page that a search found, or a data feed of OpenAI, which has a name and no address."""
    return hosted.page(source.get("url"), source.get("title") or source.get("name"))


def _output(output: Json) -> tuple[Content, ...]:
    url = text_of(output.get("url"))
    if url.startswith("data:"):
        head, _, data = url.partition(",")
        return (hosted.image(data, head.removeprefix("data:").partition(";")[0]),)
    return (hosted.page(url, "an image"),) if url else hosted.text_content(output.get("logs"))


def _file(entry: Json) -> tuple[Content, ...]:
    name = hosted.title_of(entry.get("filename"))
    return (*((Text(f"{name}:"),) if name else ()), *hosted.text_content(entry.get("text")))
