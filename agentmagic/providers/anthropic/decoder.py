"""Turns the stream events of Anthropic's Messages API into part events.

https://platform.claude.com/docs/en/build-with-claude/streaming and https://platform.claude.com/docs/en/api/errors
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentmagic.errors import BadRequest, ProviderError
from agentmagic.events import PartDelta, PartFinished, PartKind, PartStarted
from agentmagic.messages import HostedCall, HostedResult, Part, ProviderData, Reasoning, Resource, ToolCall, Usage
from agentmagic.providers.anthropic import BASE_URL, KEY
from agentmagic.providers.anthropic.encoder import PROVIDER
from agentmagic.providers.anthropic.server_blocks import (
    call_of,
    cited_text,
    fetched_pages,
    is_result,
    result_of,
    unknown_block,
)
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.providers.error_bodies import find_error, status_of
from agentmagic.providers.failures import Fault, Vendor, error_for, quote, stream_broken
from agentmagic.providers.finish_reasons import Ending, ending_of
from agentmagic.providers.hosted import MOST_CITATIONS, part_events
from agentmagic.providers.repeats import SentCalls
from agentmagic.providers.streams import AFTER_END, SETTLE
from agentmagic.providers.wire import (
    Json,
    PartWriter,
    clean_data,
    count_of,
    figures_so_far,
    mint_id,
    number_of,
    object_of,
    objects_of,
    read_arguments,
    text_of,
    tool_name,
)

_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP status for an error type. An error inside a stream has only a type, as the stream began with status 200."""

_QUOTA_WORDS = re.compile(r"credit balance|usage limits?|spend(?:ing)? limit", re.IGNORECASE)
_QUOTA_CODES = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})
_PAYMENT_REQUIRED = 402

_KINDS: Mapping[str, PartKind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "tool_call",
    "server_tool_use": "hosted_call",
    "mcp_tool_use": "hosted_call",
}
_GROWS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_DELTA_OF = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
"""The type of delta that extends a block, by the type of the block; a block of another type accepts any delta."""
_OWNERS = {delta: block for block, delta in _DELTA_OF.items()} | {"signature_delta": "thinking"}
_CALLS = frozenset({"tool_call", "hosted_call"})
_WRITES = ("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens")
"""The counts of tokens written to the cache, for an hour and for 5 minutes."""
_PLAIN = frozenset({"type", "text", "id", "name", "input"})
"""The fields of a text or call whose values are stored in its part itself; other fields go into `provider_data`."""


def refusal(  # noqa: PLR0913  (facts about one response)
    status: int | None,
    payload: object,
    model: str,
    *,
    retry_after: float | None = None,
    who: str = "Anthropic",
    asked: str = "",
) -> ProviderError:
    """Return our exception for an error of the server, from the HTTP status and the JSON body of the response.

    `status` is None for an error that came inside a stream or in the results of a batch. `asked` is the address of
    the request.
    """
    error = find_error(payload) or {}
    kind, message = str(error.get("type") or error.get("code") or ""), error.get("message")
    message = next((text for text in (message, payload) if isinstance(text, str)), "")  # a web page is a string
    status = status or _STATUS_OF.get(kind) or status_of(str(error.get("code") or kind), message) or 500
    is_refusal = status < 500 and status != 429  # noqa: PLR2004  (HTTP: a refusal that no retry helps)
    code = object_of(error.get("details")).get("error_code")
    fault = Fault(
        message,
        kind,
        status,
        retry_after,
        used_up=status == _PAYMENT_REQUIRED
        or code in _QUOTA_CODES
        or bool(is_refusal and _QUOTA_WORDS.search(message)),
        asked=asked,
    )
    return error_for(fault, Vendor(who, model, (KEY,), BASE_URL))


@dataclass(slots=True)
class _OpenBlock:
    """A content block that is being streamed. It has its first `data`, pieces of text or input, and citations.

    A delta is an event with a further piece. Only deltas of the type `delta_type` extend this block.
    """

    index: int
    data: Json
    delta_type: str
    pieces: list[str] = field(default_factory=list[str])
    citations: list[Json] = field(default_factory=list[Json])


class Decoder:
    """Turns the events of one response, as plain JSON, into part events.

    `feed` and `close` raise MalformedCall or StreamBroken if a retry can help, and another ProviderError if not. If
    `paused` is True after `close`, the same answer continues in a further response, which is fed to this decoder too.
    `pages` are the web pages that Anthropic's servers fetched for earlier answers: this answer can cite them.
    """

    def __init__(self, model: str, pages: Sequence[Resource] = ()) -> None:
        self._model = model
        self._pages = pages
        self._writer = PartWriter()
        self._open: dict[object, _OpenBlock] = {}
        self._texts: list[Json] = []
        self._calls = SentCalls()
        self._figures: Json = {}
        self._usage = Usage(cost=None)
        self._reason = ""
        self._answerer = ""
        self._ending: Ending = "whole"
        self._ended = False
        self.rest: float | None = None
        self.paused = False
        self.parts: list[Part] = []

    @property
    def usage_so_far(self) -> Usage | None:
        """The tokens that the answer has used so far, in all its responses; None if the server reported no tokens."""
        used = self._usage + _usage(self._figures) if self._figures else self._usage
        return used if used.input_tokens else None

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield the part events for one stream event, which can be any JSON."""
        if self._ended:
            return
        event = object_of(chunk)
        match event.get("type"):
            case "content_block_delta":  # nearly every event
                yield from self._delta(number_of(event.get("index")), object_of(event.get("delta")))
            case "content_block_start":
                yield from self._start(number_of(event.get("index")), object_of(event.get("content_block")))
            case "content_block_stop":
                yield from self._finish(number_of(event.get("index")))
            case "message":  # the whole answer at once, from a server that does not stream
                yield from self._take(event)
            case "message_start":
                message = object_of(event.get("message"))
                self._figures, self._answerer = object_of(message.get("usage")), text_of(message.get("model"))
                self.paused = False
            case "message_delta":
                self._take_figures(object_of(event.get("usage")))
                self._take_reason(object_of(event.get("delta")))
            case "message_stop":
                yield from self._end()
            case kind if kind == "error" or event.get("error"):
                raise refusal(None, event, self._model)
            case _:  # a ping, or an event of a later version
                return

    def close(self, *, done: bool = False) -> Iterator[ModelEvent]:
        """Yield the final part events of the answer, if the server did not send its last event (`message_stop`).

        Raises StreamBroken if the answer is not complete. An answer is complete if it has a stop reason, or if the
        server sent `[DONE]` after some content (`done`).
        """
        if self._ended or self.paused:
            return
        if not self._reason and not (done and (self.parts or self._texts or self._open)):
            raise stream_broken("the response ended before it was complete")
        yield from self._end()

    def _take(self, message: Json) -> Iterator[ModelEvent]:
        """Yield the events of a whole answer, from a server that does not stream."""
        self._figures = object_of(message.get("usage"))
        for place, block in enumerate(objects_of(message.get("content"))):
            yield from self._start(place, block)
            yield from self._finish(place)
        self._take_reason(message)
        yield from self._end()

    def _start(self, place: object, data: Json) -> Iterator[ModelEvent]:
        data = {**data, "type": text_of(data.get("type"))}
        if (before := self._open.get(place)) is not None:
            if before.data["type"] == data["type"] and before.data.get("id") == data.get("id"):
                return  # the server announced the same block twice
            yield from self._finish(place)  # some compatible servers begin a block without closing the previous one
        kind = _kind(data)
        if kind != "text" and all(one.data["type"] != "text" for one in self._open.values()):
            yield from self._end_text()
        # A text block gets no index yet: its first word can be thinking, so `PartWriter` starts the part then. A call
        # with a known id gets none either: `_finish` starts its part if it is not only the same call once more.
        is_known = kind == "tool_call" and self._calls.has_id(text_of(data.get("id")))
        index = -1 if kind == "text" or is_known else self._writer.next_index()
        block = self._open[place] = _OpenBlock(index, data, _DELTA_OF.get(data["type"], ""))
        if index >= 0:
            yield PartStarted(block.index, kind, text_of(data.get("name") or data["type"]) if kind in _CALLS else "")
        # Anthropic begins a block with both fields empty. Some compatible servers put the first piece into them.
        for key in ("text", "thinking"):
            yield from self._piece(block, text_of(data.get(key)))

    def _delta(self, place: int | None, delta: Json) -> Iterator[ModelEvent]:
        block, kind = self._open.get(place), delta.get("type")
        if block is None or kind != block.delta_type:  # this is seldom true, because most deltas fit the block
            owner = _OWNERS.get(text_of(kind))
            if owner and (block is None or (block.delta_type and block.data["type"] != owner)):
                yield from self._open_for(owner)
                block = next((one for one in reversed(self._open.values()) if one.data["type"] == owner), block)
        if block is None:
            return
        match kind:
            case "text_delta" | "input_json_delta" | "thinking_delta":
                yield from self._piece(block, text_of(delta.get(_GROWS[kind])))
            case "signature_delta":
                block.data = {**block.data, "signature": text_of(delta.get("signature"))}
            case "citations_delta":
                if len(block.citations) < MOST_CITATIONS:
                    block.citations.append(object_of(delta.get("citation")))
            case _:
                return

    def _open_for(self, owner: str) -> Iterator[ModelEvent]:
        """Open a text or thinking block (`owner`), if none is open, for deltas that came without a block of their own.

        Some compatible servers send deltas without an index, or with the index of another block.
        """
        if owner in ("text", "thinking") and all(one.data["type"] != owner for one in self._open.values()):
            yield from self._start(owner, {"type": owner, owner: ""})

    def _piece(self, block: _OpenBlock, text: str) -> Iterator[ModelEvent]:
        if text:
            block.pieces.append(text)
            if block.data["type"] == "text":
                yield from self._writer.say(text)
            elif block.data["type"] in _KINDS and block.index >= 0:
                yield PartDelta(block.index, text)

    def _finish(self, place: object) -> Iterator[ModelEvent]:
        block = self._open.pop(place, None)
        if block is None:
            return
        citations = (
            {"citations": [*objects_of(block.data.get("citations")), *block.citations]} if block.citations else {}
        )
        data, text = clean_data(block.data | citations), "".join(block.pieces)
        if data["type"] == "text":
            self._texts.append({**data, "text": text})
            return
        part, *more = _parts(data, text)
        is_again = data.get("id") and isinstance(part, ToolCall) and self._calls.is_again(part)
        if block.index < 0:
            if is_again:
                return
            block.index = self._writer.next_index()
            yield PartStarted(block.index, "tool_call", text_of(data.get("name")))
        yield PartFinished(block.index, part)
        for one in more:
            yield from part_events(self._writer.next_index(), one)
        self.parts += (part, *more)

    def _end_text(self) -> Iterator[ModelEvent]:
        """Finish the open text part, and yield its last events.

        The part joins all adjacent text blocks, because the API begins a new block at each citation.
        """
        if blocks := self._texts:
            self._texts = []
            own = _own(_whole(blocks)) if len(blocks) > 1 or _extra(blocks[0]) else None
            part = cited_text(blocks, (*self._pages, *fetched_pages(self.parts)), own)
            self.parts.append(part)
            yield from self._writer.finish(part)

    def _take_figures(self, usage: Json) -> None:
        # Some compatible servers report 0 input tokens at the end. `figures_so_far` keeps the earlier count.
        self._figures = figures_so_far(self._figures, usage)

    def _take_reason(self, delta: Json) -> None:
        self._reason = text_of(delta.get("stop_reason")) or self._reason
        # After the stop reason, wait only briefly for the last event (`message_stop`): some servers do not send it.
        self.rest = SETTLE if self._reason else None
        if self._reason == "refusal":
            details = object_of(delta.get("stop_details"))
            category, why = quote(details.get("category")), quote(details.get("explanation"))
            why = why.rstrip(".") or "it does not say why"
            message = f"Claude declined to answer{f' ({category})' if category else ''}"
            raise BadRequest(f"{message}: {why}. Word the request differently.")
        self._ending = ending_of(self._reason)

    def _end(self) -> Iterator[ModelEvent]:
        for place in tuple(self._open):
            yield from self._finish(place)
        yield from self._end_text()
        self._usage += _usage(self._figures)
        self._figures = {}
        if self._reason == "pause_turn":
            self._reason, self.paused, self.rest = "", True, None
            return
        self._ended, self.rest = True, AFTER_END
        once = self._usage.requests == 1
        cut, unknown = self._ending == "cut", self._ending == "unknown"
        reason = self._reason or "end_turn"
        yield ModelFinished(self._usage, reason, cut, once, model=self._answerer, unknown=unknown)


def _kind(data: Json) -> PartKind:
    """Return the kind of part that a content block becomes.

    A block of an unknown type becomes a hosted call (a call that the provider ran itself) and its result.
    """
    return _KINDS.get(data["type"]) or ("hosted_result" if is_result(data) else "hosted_call")


def _parts(data: Json, text: str) -> tuple[Part, *tuple[HostedCall | HostedResult, ...]]:
    """Return the parts for a finished content block that is not text.

    `text` joins the block's streamed pieces: the text of a thought, or the JSON of a call's input.
    """
    match data["type"]:
        case "thinking":  # a thought that was cut off has no signature, so the API would refuse it in later requests
            return (Reasoning(text, _own({**data, "thinking": text}) if data.get("signature") else None),)
        case "redacted_thinking":
            return (Reasoning("", _own(data)),)
        case "tool_use":
            return (_call(data, text),)
        case _:
            whole = {**data, "input": read_arguments(text)} if text else data
            if _KINDS.get(data["type"]):
                return (call_of(whole, _own(whole)),)
            return (result_of(whole, _own(whole)),) if is_result(whole) else unknown_block(whole, _own(whole))


def _whole(blocks: list[Json]) -> Json:
    """Return the data that a text part keeps, so that later requests send its content blocks back unchanged."""
    return blocks[0] if len(blocks) == 1 else {"blocks": blocks}


def _call(data: Json, text: str) -> ToolCall:
    arguments = read_arguments(text) or read_arguments(data.get("input"))
    extra = _extra(data)
    call_id = text_of(data.get("id")) or mint_id()
    return ToolCall(call_id, tool_name(data.get("name")), arguments, _own(extra) if extra else None)


def _extra(data: Json) -> Json:
    """Return the fields of a text block or call block for which `Text` or `ToolCall` has no attribute."""
    return {name: value for name, value in data.items() if name not in _PLAIN and value is not None}


def _own(data: Json) -> ProviderData:
    return ProviderData(PROVIDER, data)


def _usage(figures: Json) -> Usage:
    """Return the usage of a response, from the counts in its field "usage".

    The API leaves the tokens read from or written to the cache out of `input_tokens`, so they are added here.
    """
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    new, cache_reads, cache_writes, output = (count_of(figures.get(name)) for name in names)
    for_1h, for_5m = (count_of(object_of(figures.get("cache_creation")).get(name)) for name in _WRITES)
    cache_writes = max(cache_writes, for_1h + for_5m)
    thoughts = count_of(object_of(figures.get("output_tokens_details")).get("thinking_tokens"))
    searches = count_of(object_of(figures.get("server_tool_use")).get("web_search_requests"))
    return Usage(
        new + cache_reads + cache_writes, cache_reads, output, thoughts, 1, None, cache_writes, for_1h, searches
    )
