"""Turns the chunks of a streamed chat completion into model events.

The servers that speak this API differ in many details: some send no usage, no ids of calls, whole calls in one chunk,
names in pieces, calls as text, or reasoning in a separate field.
https://developers.openai.com/api/reference/resources/chat
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Citation, HostedCall, HostedResult, ProviderData, Reasoning, ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.providers.failures import stream_broken
from agentmagic.providers.finish_reasons import ending_of
from agentmagic.providers.hosted import (
    MOST_CITATIONS,
    MOST_PAGES,
    SOURCE_FIELDS,
    LateCitations,
    call_and_result,
    limit_arguments,
    name_of,
    page,
    pages,
    sources_at_end,
    text_content,
)
from agentmagic.providers.openai.client import is_search_model, read_citations, read_usage
from agentmagic.providers.streams import SETTLE
from agentmagic.providers.wire import (
    Json,
    PartWriter,
    arguments_text,
    clean_data,
    count_of,
    figures_so_far,
    mint_id,
    number_of,
    object_of,
    objects_of,
    read_arguments,
    text_in,
    text_of,
    tool_name,
)
from agentmagic.serialization import same_json

PROVIDER = "openai-chat"
"""The provider's name in the data that the history keeps for it."""


@dataclass(slots=True)
class _Call:
    """A tool call that is still being streamed.

    `index` is the index of its part. It is set when the first arguments come, because the name is complete then.
    `is_again` is True if the name came once more after the arguments. If more arguments follow, this was the name of a
    second call. If not, the server only repeated the name. `first` is the call that this call may only repeat: it has
    no events until the end, and is dropped if its arguments are those of `first`.
    """

    id: str = ""
    name: str = ""
    index: int = -1
    pieces: list[str] = field(default_factory=list[str])
    extra: Json = field(default_factory=dict[str, Any])
    is_again: bool = False
    first: "_Call | None" = None

    @property
    def is_repeat(self) -> bool:
        """Whether the call only repeats `first`: under the same id, or whole after pieces if the calls have no ids."""
        if self.first is None or self.name != self.first.name:
            return False
        if not self.first.id and not len(self.pieces) == 1 < len(self.first.pieces):
            return False
        return same_json(read_arguments("".join(self.pieces)), read_arguments("".join(self.first.pieces)))

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a whole JSON object. It is False for the `{}` that some servers send in advance."""
        if not self.pieces[-1].rstrip().endswith("}"):
            return False
        return bool(read_arguments("".join(self.pieces)).keys() - {"_raw"})

    def is_followed_by(self, text: str) -> bool:
        """Return whether `text` begins a second object of arguments."""
        return bool(self.pieces) and text.lstrip().startswith("{") and self.is_complete


_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""The fields with reasoning: the first of DeepSeek, llama.cpp and others, the second of vLLM, Ollama and OpenRouter."""

_STANDARD_FIELDS = frozenset(
    {*_REASONING_FIELDS, *SOURCE_FIELDS, "role", "content", "refusal", "tool_calls", "function_call", "audio"}
)
_STANDARD_CALL_FIELDS = frozenset({"index", "id", "type", "function"})
"""The standard fields of a message and of a call. All other fields are sent back to the server unchanged."""

_GROWING = frozenset({"text", "summary", "data", "signature"})
"""Fields in reasoning details whose value comes in pieces: https://openrouter.ai/docs/use-cases/reasoning-tokens."""


class Decoder:
    """Turns the chunks of one streamed completion into model events.

    `model` is the model that the request was sent to, and `tools` are the names of the tools in the request.
    """

    def __init__(self, model: str = "", tools: Collection[str] = ()) -> None:
        self._model = model
        self._tools = tools
        self._extra: Json = {}
        self._sources: dict[str, list[object]] = {}
        self._texts = LateCitations(lambda _text: ProviderData(PROVIDER, {"model": model}))
        self._writer = PartWriter(self._reasoning, self._is_call if tools else None)
        self._calls: list[_Call] = []
        self._places: dict[int, _Call] = {}
        self._usage: Json = {}
        self._reason = ""
        self._answerer = ""
        self._began = False
        self._refused = False
        self.rest: float | None = None

    @property
    def usage_so_far(self) -> Usage | None:
        """The tokens that the answer has used so far, or None if the server has not reported them."""
        return self._figures() if self._usage else None

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield the model events in a chunk of the response. The chunk is unchecked: it can be any JSON."""
        response = object_of(chunk)
        # Servers send the usage in the last chunk, in every chunk, or never.
        if usage := response.get("usage") or response.get("x_groq"):
            self._count(usage)
            self._answerer = text_of(response.get("model")) or self._answerer
        if not SOURCE_FIELDS.isdisjoint(response):
            self._take_sources(response)
        for choice in objects_of(response.get("choices")):
            if choice.get("index") and number_of(choice["index"]):
                continue  # an index above 0 means a second answer to the same request, which is ignored
            if usage := choice.get("usage"):  # Moonshot sends the token counts here
                self._count(usage)
            if delta := choice.get("delta"):
                self._began = True
                yield from self._texts.take(self._delta(object_of(delta)))
            elif whole := object_of(choice.get("message")):
                # A whole answer, from a server that does not stream. If pieces came before (`_began`), the server only
                # repeats the answer; then only the calls and sources are read that no piece had.
                yield from self._texts.take(self._late_events(whole) if self._began else self._delta(whole))
                self._end("" if self._began else "stop")
            if reason := choice.get("finish_reason"):
                self._end(text_of(reason))
                self._answerer = text_of(response.get("model"))

    def close(self, *, done: bool = False) -> Iterator[ModelEvent]:
        """Yield the last model events: the ends of the unfinished parts, and the closing event.

        The closing event waits for the end of the stream, because the usage comes after the finish reason. Some servers
        send no finish reason, but only `[DONE]` (`done`). Raises StreamBroken if the response was not complete,
        BadRequest if a content filter withheld it, and MalformedCall for a call without a name (see `ending_of`).
        """
        if done and self._began and not self._reason:
            self._reason = "tool_calls" if self._calls else "stop"
        if not self._reason:
            raise stream_broken("the response ended before it was complete")
        ending = ending_of(self._reason)
        yield from self._texts.take(self._writer.finish())
        yield from self._texts.close(self._citations())
        for part in _executed_tools(self._extra.get("executed_tools"), ProviderData(PROVIDER, {"model": self._model})):
            yield from self._writer.whole(part)
        self._calls += filter(None, map(self._call_in_text, self._writer.calls))
        self._calls = [call for call in self._calls if not call.is_repeat]
        cut = ending == "cut"
        for call in self._calls:
            yield from self._end_call(call, cut=cut)
        if self._extra:  # an empty reasoning part, which is not displayed, keeps the non-standard fields to send back
            data = ProviderData(PROVIDER, {"model": self._model, "extra": self._extra})
            yield from self._writer.whole(Reasoning("", data))
        unknown, model, refused = ending == "unknown", self._answerer, self._refused
        yield ModelFinished(self._figures(), self._reason, cut, model=model, refused=refused, unknown=unknown)

    def _figures(self) -> Usage:
        """Return the usage: the tokens and the number of billed searches.

        OpenRouter reports the number. A search model of OpenAI makes one search for each answer.
        """
        count = object_of(self._usage.get("server_tool_use_details")).get("web_search_requests")
        searches = count_of(count) or int(is_search_model(self._model))
        return replace(read_usage(self._usage, "prompt", "completion"), searches=searches)

    def _end(self, reason: str) -> None:
        if reason and reason.lower() not in ("null", "none"):  # of servers that write a missing value as text
            self._reason, self.rest = reason, SETTLE  # token counts can still follow

    def _count(self, usage: object) -> None:
        """Store the token counts that a chunk has in `usage`. Groq nests them in another object."""
        figures = object_of(usage)
        self._usage = figures_so_far(self._usage, object_of(figures.get("usage", figures)))

    def _delta(self, delta: Json) -> Iterable[ModelEvent]:
        content = delta.get("content")
        if len(delta) == 1 and isinstance(content, str):  # nearly every chunk
            return self._writer.say(text_of(content)) if content else ()
        return self._delta_events(delta, content)

    def _delta_events(self, delta: Json, content: object) -> Iterator[ModelEvent]:
        """Yield the model events of a delta (a piece of the answer) that has fields other than its text `content`."""
        _keep(self._extra, delta, _STANDARD_FIELDS)
        self._take_sources(delta)
        for name in _REASONING_FIELDS:
            if reasoning := text_in(delta.get(name)):
                # Later requests send reasoning back in the field that it came in, but only if it came as a string.
                yield from self._writer.think(reasoning, name if isinstance(delta[name], str) else "")
                break  # a server that fills both reasoning fields puts the same text into them
        refusal = delta.get("refusal")
        self._refused = self._refused or bool(refusal)
        yield from self._writer.take(content or refusal)
        yield from self._write_calls(delta)

    def _late_events(self, message: Json) -> Iterator[ModelEvent]:
        """Yield the model events for the calls in a whole message that follows its pieces, if no piece had a call."""
        self._take_sources(message)
        if not self._calls:
            yield from self._write_calls(message)

    def _take_sources(self, holder: Json) -> None:
        """Keep the sources in a chunk, delta or message. Some servers repeat them in every chunk."""
        for name in SOURCE_FIELDS & holder.keys():
            known = self._sources.setdefault(name, [])
            if (value := holder[name]) and value not in known and len(known) < MOST_CITATIONS:
                known.append(value)
                self._texts.holds = True

    def _citations(self) -> Iterator[Citation]:
        """Yield the citations of the answer, and then its other sources as citations at the end of the text."""
        text, sources = self._texts.text, clean_data(self._sources)
        annotations = [one for entries in sources.pop("annotations", ()) for one in objects_of(entries)]
        cited = read_citations(text, annotations)
        yield from cited
        yield from sources_at_end(text, sources, {one.url for one in cited})

    def _write_calls(self, delta: Json) -> Iterator[ModelEvent]:
        legacy = object_of(delta.get("function_call"))  # the form of a call in OpenAI's API of 2023
        for entry in objects_of(delta.get("tool_calls")) or ([{"function": legacy, "index": 0}] if legacy else []):
            yield from self._write_call(entry)

    def _is_call(self, text: str) -> bool:
        return self._call_in_text(text) is not None

    def _call_in_text(self, text: str) -> _Call | None:
        fields = read_arguments(text)
        name, arguments = fields.get("name"), fields.get("arguments")
        if not isinstance(name, str) or name not in self._tools:
            return None
        return _Call(name=name, pieces=[arguments_text(arguments)])

    def _reasoning(self, text: str, name: str) -> Reasoning:
        return Reasoning(text, ProviderData(PROVIDER, {"model": self._model, "field": name}))

    def _write_call(self, entry: Json) -> Iterator[ModelEvent]:
        yield from self._writer.end()
        function = object_of(entry.get("function"))
        name = text_of(function.get("name"))
        text = arguments_text(function.get("arguments"))
        call = self._call_of(entry, name, text)
        call.id = call.id or text_of(entry.get("id"))
        if name != call.name:  # some servers repeat the whole name in each piece, others send the name in pieces
            call.name += name
        _keep(call.extra, entry, _STANDARD_CALL_FIELDS)
        if text:
            call.pieces.append(text)
            if call.name and call.first is None:  # a few servers send the name only after the arguments
                yield from self._start_call(call)
                yield PartDelta(call.index, text)

    def _call_of(self, entry: Json, name: str, text: str) -> _Call:
        """Return the call to which `entry`, a piece of a streamed call, belongs.

        Some servers send no index with a piece, others send index 0 for every call.
        """
        place = number_of(entry.get("index"))
        call_id = text_of(entry.get("id"))
        if place is None:
            same = (one for one in reversed(self._calls) if call_id and one.id == call_id)
            call = next(same, self._calls[-1] if self._calls else None)
        else:
            call = self._places.get(place)
        if call is None:
            self._calls.append(call := _Call())
        elif name and self._is_other(call, call_id, name, text, place):
            is_same = call_id in ("", call.id) and name == call.name
            self._calls.append(call := _Call(first=call if is_same else None))
        elif call_id and (call_id != call.id or entry.get("type")) and call.is_followed_by(text):
            # The head of a further call, without its name.
            self._calls.append(call := _Call(name=call.name, first=call if call_id == call.id else None))
        elif call.is_again and text:
            self._calls.append(call := _Call(name=call.name, first=call))
        call.is_again = bool(name and call.pieces and not text and call.is_complete)
        if place is not None:
            self._places[place] = call
        return call

    def _is_other(self, call: _Call, call_id: str, name: str, text: str, place: int | None) -> bool:
        """Return whether a piece of a streamed call begins a new call, or continues `call`.

        The piece has a name, and the index of `call` or no index (`place`). It begins a new call in four cases. Its id
        differs. Or its name differs, and the name of `call` is complete. Or it has arguments, and those of `call` are
        complete. Or it has no id and no index, and `call` has no arguments yet.
        """
        if call_id and call.id and call_id != call.id:
            return True
        if call.name and name != call.name:
            both = {call.name, name} <= set(self._tools) and call.name + name not in self._tools
            if call.pieces or both:
                return True
        if call.pieces:
            return call.is_followed_by(text)
        return place is None and not call_id

    def _start_call(self, call: _Call) -> Iterator[ModelEvent]:
        if call.index < 0:
            call.index = self._writer.next_index()
            yield PartStarted(call.index, "tool_call", call.name)

    def _end_call(self, call: _Call, *, cut: bool) -> Iterator[ModelEvent]:
        if not call.name and (cut or not call.pieces):
            return  # the answer was cut off before the name came, or the server announced a call that never came
        tool_name(call.name)
        yield from self._start_call(call)
        # If a call has no id, or the same id as another call, it gets a new one, so that its result can be matched.
        others = {other.id for other in self._calls if other is not call}
        if not call.id or call.id in others:
            call.id = mint_id()
        arguments = read_arguments("".join(call.pieces))
        data = ProviderData(PROVIDER, {"model": self._model, "extra": call.extra}) if call.extra else None
        yield PartFinished(call.index, ToolCall(call.id, call.name, arguments, data))


def _executed_tools(tools: object, own: ProviderData) -> Iterator[HostedCall | HostedResult]:
    """Yield the calls that Groq's server ran itself, and their results.

    Groq's own data about them is not sent back with these parts: later requests send it with the other non-standard
    fields of the answer. https://console.groq.com/docs/compound/built-in-tools
    """
    for tool in objects_of(tools)[:MOST_PAGES]:
        name = "web_search" if tool.get("type") == "search" else name_of(tool.get("type"))
        call = HostedCall(mint_id(), name, limit_arguments(read_arguments(tool.get("arguments"))), "", own)
        results = objects_of(object_of(tool.get("search_results")).get("results"))
        contents = (page(one.get("url"), one.get("title"), one.get("content")) for one in results)
        call, result = call_and_result(call, pages(contents) or text_content(tool.get("output")))
        yield from (call, replace(result, provider_data=own))


def _keep(extra: Json, chunk: Json, standard_fields: Collection[str]) -> None:
    """Add the non-standard fields of a chunk to `extra`, which has those of the earlier chunks."""
    for name in chunk.keys() - standard_fields:
        value = clean_data(chunk[name])
        if isinstance(value, list) and isinstance(extra.get(name), list):
            _join(extra[name], cast("list[Any]", value))
        elif value not in (None, "", [], {}):
            extra[name] = value


def _join(entries: list[Any], more: list[Any]) -> None:
    """Add entries to a list. If an entry has the same index as an earlier entry, it continues that entry."""
    for entry in more:
        index = object_of(entry).get("index")
        open_entry = next((one for one in entries if index is not None and object_of(one).get("index") == index), None)
        if open_entry is None:
            entries.append(entry)
            continue
        for key, value in entry.items():
            old = open_entry.get(key)
            grows = key in _GROWING and isinstance(old, str) and isinstance(value, str)
            if value is not None:
                open_entry[key] = f"{old}{value}" if grows else value
