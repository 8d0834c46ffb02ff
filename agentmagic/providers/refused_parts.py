"""Changes the history in requests to a server that refused a part of it. The history of the session does not change.

A provider accepts a history only with its own thoughts, with pictures of some sizes, with roles in some orders. So a
history of another provider, or of another model, can hold a part that a server refuses, in this turn and in each later
one. A refusal mostly says which part it means. Then the request is sent once more without this part, or with a bridge.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, cast

from agentmagic.messages import (
    HostedCall,
    HostedResult,
    Media,
    Message,
    Part,
    Reasoning,
    Resource,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    media_of,
)
from agentmagic.providers.base import Effort, ModelSettings, Request
from agentmagic.providers.history_forms import HISTORY_FORMS, ID_FORM, HistoryForm, without_parts
from agentmagic.providers.hosted import as_plain_text
from agentmagic.providers.wire import Json, base64_of, clean, results_of, write_arguments, write_json
from agentmagic.text import join_names

_IMAGE_TYPES = "image/"

_CURE = re.compile(r"\bset [`'\"]?reasoning[._]effort[`'\"]? to [`'\"]?(none|low|medium|high)\b", re.IGNORECASE)
"""A refusal of tools that names its cure: https://developers.openai.com/api/docs/guides/latest-model"""

_NO_IMAGES = re.compile(
    r"(?:not|n't|no|without) (?:\w+ ){0,5}(?:multi-?modal|vision|image(?:s|_url| inputs?)?)\b(?! (?:of|larger|over))"
    r"|image(?:s|_url| inputs?| content)? (?:\w+ ){0,3}(?:not|n't|un)\s?(?:be )?supported|text-only"
    r"|image_url is only supported by|unknown variant [`'\"]?image_url",
    re.IGNORECASE,
)
_LOST_ITEM = re.compile(r"\bitem\b.{0,80}\b(?:rs|fc|msg)_", re.IGNORECASE)
"""A refusal of an item that only the server that made it can look up by its id."""

_TOO_MANY = re.compile(
    r"too many (?:images|pictures)|(?:number|count|amount) of (?:images|pictures)"
    r"|(?:at most|up to|more than|maximum(?: of)?|limit(?:ed)?(?: of| to)?|only) (?:\d+|one) (?:image|picture)"
    r"|\d+ (?:images?|pictures?)(?:\(s\))? (?:per|may|can|are|is|in|allowed)",
    re.IGNORECASE,
)
_TOO_MANY_TOOLS = re.compile(
    r"\b(?:tools|functions|function.?declarations)\b(?![.\[]\w).{0,60}"
    r"\b(?:array too long|maximum|at most|limit(?:ed)?|exceed)"
    r"|(?:too many|(?:at most|up to|more than|maximum(?: of)?|limit(?: of)?|only) \d+|(?:number|count|amount) of)"
    r" (?:tools|functions|function.?declarations)\b",
    re.IGNORECASE | re.DOTALL,
)
"""A refusal of too many tools: 128 at OpenAI, Azure and Groq, others at Gemini's models (2026-11)."""

_ELSEWHERE = re.compile(
    r"\bmodel\b.{0,80}\b(?:not found|not exist|unknown|invalid)|api.?key|quota|billing|content.?(?:filter|policy)"
    r"|permission|max_(?:output_|completion_)?tokens",
    re.IGNORECASE | re.DOTALL,
)
"""Words of refusals whose cause is not a part of the history."""

_PATH = re.compile(r"\b(?:messages|input|contents)(?:[.\[\]]+\w+)+")
"""The path of a part in a request, such as `messages.2.content.0.image` or `input[3].content[1]`."""


@dataclass(frozen=True, slots=True)
class _PartKind:
    """A kind of parts that servers refuse: the words of such refusals, the keys of a message's parts, the notice."""

    words: re.Pattern[str]
    keys: Callable[[Message], Iterable[Hashable]]
    notice: str


def _images(message: Message) -> Iterator[Media]:
    return (media for media in media_of(message) if media.media_type.startswith(_IMAGE_TYPES))


def _files(message: Message) -> Iterator[Media]:
    return (media for media in media_of(message) if not media.media_type.startswith(_IMAGE_TYPES))


def _private_keys(message: Message) -> Iterator[Hashable]:
    """Yield a key for each part of an answer that holds opaque data of a provider, such as a signed thought."""
    return (("data", write_json(clean(data))) for data in map(_data, message.parts) if data)


def _data(part: Part) -> Any:
    own = None if isinstance(part, Media | Resource | ToolResult) else part.provider_data
    return None if own is None else own.data


def _call_keys(message: Message) -> Iterator[Hashable]:
    return (("call", call.id, call.name) for call in message.calls)


_PICTURES = _PartKind(
    re.compile(r"\bimages?\b|image_url|picture|inline_?data|multi-?modal|vision|pixels?\b", re.IGNORECASE),
    _images,
    "The server refused a picture of the conversation; it is named in text from now on.",
)
_KINDS = (
    _PICTURES,
    _PartKind(
        re.compile(r"\bpdf\b|\bdocuments?\b|\bfiles?\b|\baudio\b|\bvideo\b|mime.?type", re.IGNORECASE),
        _files,
        "The server refused a file of the conversation; it is named in text from now on.",
    ),
    _PartKind(
        re.compile(rf"thinking|thought|signature|encrypted|reasoning|{_LOST_ITEM.pattern}", re.IGNORECASE),
        _private_keys,
        "The server refused the thoughts of earlier answers; they are left out from now on.",
    ),
    _PartKind(
        re.compile(r"tool_?(?:use|call|result)|function.?(?:call|response)", re.IGNORECASE),
        _call_keys,
        "The server refused an earlier tool call; the call and its result are sent as text from now on.",
    ),
)
_SUSPECTED = (
    "The server refused the request and named no part of it; it was sent again without the pictures, files, thoughts "
    "and calls that this server has not accepted before."
)
_PART_NOTICE = "The server refused a part of an earlier message; it is left out or named in text from now on."


def _keys(message: Message) -> Iterator[Hashable]:
    """Yield a key for each part of a message that a refusal can name by its path."""
    yield from (("text", part.text) for part in message.parts if isinstance(part, Text))
    yield from chain(media_of(message), _call_keys(message))


def names_part(words: str) -> bool:
    """Return whether an error names a part of the history for certain, so that its HTTP status does not matter.

    OpenRouter answers 404 to pictures for a model that sees none, llama.cpp 500, and OpenAI 404 to an unknown item.
    """
    return any(pattern.search(words) for pattern in (_NO_IMAGES, _LOST_ITEM, ID_FORM))


class RefusedParts:
    """What the server at one address has refused in the histories that were sent to it.

    `fit` changes the history of a request accordingly. `learn` reads a refusal. `accept` notes an accepted request.
    """

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()
        self._forms: list[HistoryForm] = []
        self._most_images: int | None = None
        self._most_tools: int | None = None
        self._takes_private = True
        self._effort: Effort | None = None
        self._accepted: tuple[Message, ...] = ()
        self._trial: tuple[Request, set[Hashable]] | None = None
        self._sent: tuple[Message, ...] = ()

    def fit(self, request: Request) -> Request:
        """Return the request in the form that the server takes: the same object if the server has refused nothing."""
        if self._effort and _calls_tools(request):
            request = replace(request, settings=request.settings | ModelSettings(reasoning=self._effort))
        if self._most_tools is not None:
            request = replace(request, tools=self._first_tools(request))
        if not self._keys and not self._forms and self._most_images is None and self._takes_private:
            return request
        messages: Iterable[Message] = self._without_refused(request.messages)
        for form in self._forms:
            messages = form.change(tuple(messages))
        # A message that was sent before stays the same object, because its encoded form is kept by identity.
        self._sent = tuple(
            cast("Message", old if old == new else new)
            for old, new in zip_longest(self._sent, messages)
            if new is not None
        )
        return replace(request, messages=self._sent)

    def follow_cure(self, words: str, *, has_tools: bool) -> str:
        """Return a notice if a refusal of tools says with which reasoning effort they are accepted, or else ""."""
        cure = _CURE.search(words) if has_tools else None
        if cure is None or self._effort:
            return ""
        self._effort = cast("Effort", cure[1].lower())
        return f"The server takes tools only with the reasoning effort `{self._effort}`, which is sent from now on."

    def learn(self, words: str, request: Request, body: Json) -> str:
        """Return a notice if a refusal in these words can be avoided from now on, or else "".

        `request` is what was asked, and `body` is what was sent for it. A picture of the prompt itself is never left
        out: the answer would be about nothing.
        """
        if self._trial is not None and self._trial[0] is request:  # this was not the cause
            self._keys -= self._trial[1]
            self._trial = None
            return ""
        if notice := self._bound_tools(words, request) or self._bridge(words):
            return notice
        prompt = request.messages[-1:] if request.messages[-1].role == "user" else ()
        earlier = request.messages[: len(request.messages) - len(prompt)]
        strings = set(_named_strings(words, body))
        for kind in _KINDS:
            if kind.words.search(words) and self._refuse(kind, words, earlier, prompt, strings):
                return kind.notice
        named = {key for message in earlier for key in _keys(message) if _is_named(key, strings)}
        if self._add(named):
            return _PART_NOTICE
        suspects = {key for message in self._unknown(request, earlier) for kind in _KINDS for key in kind.keys(message)}
        suspects -= self._keys
        if _ELSEWHERE.search(words) or not self._add(suspects):
            return ""
        self._trial = (request, suspects)
        return _SUSPECTED

    def _unknown(self, request: Request, earlier: Sequence[Message]) -> Iterator[Message]:
        """Yield those of the earlier messages that the server has neither accepted before nor written itself."""
        accepted = self._accepted
        is_continued = bool(accepted) and request.messages[: len(accepted)] == accepted
        is_same_turn = is_continued and all(message.role != "user" for message in request.messages[len(accepted) :])
        for message in earlier:
            if message not in accepted and not (is_same_turn and message.role == "assistant"):
                yield message

    def accept(self, request: Request) -> None:
        """Note that the server has accepted a request, and so every part of it."""
        self._accepted = request.messages
        self._trial = None

    def _refuse(
        self,
        kind: _PartKind,
        words: str,
        earlier: Sequence[Message],
        prompt: Sequence[Message],
        strings: Collection[str],
    ) -> bool:
        """Note that parts of a kind are refused, those that the refusal names or else all. Return whether it is new."""
        if kind is _PICTURES and (_NO_IMAGES.search(words) or _TOO_MANY.search(words)):
            return self._bound_images(words, earlier, prompt)
        keys = {key for message in earlier for key in kind.keys(message)}
        if kind.keys is _private_keys:
            # Refused once more in one conversation: the server takes not even the thoughts that it sent itself.
            is_again = not keys.isdisjoint(self._keys) and not keys <= self._keys
            is_news, self._takes_private = self._takes_private, self._takes_private and not is_again
            return is_news and self._add(keys)
        named = {key for key in keys if strings and _is_named(key, strings)}
        return self._add(named or keys)

    def _bound_images(self, words: str, earlier: Sequence[Message], prompt: Sequence[Message]) -> bool:
        """Set how many pictures a request can have, from a refusal. Return whether this is news and can help."""
        asked = sum(1 for message in prompt for _ in _images(message))
        count = asked + sum(1 for message in earlier for _ in _images(message))
        allowed = [number for number in _numbers(words) if number < count]
        most = 0 if _NO_IMAGES.search(words) else max(allowed, default=1)
        if count <= most or asked > most or (self._most_images is not None and self._most_images <= most):
            return False
        self._most_images = most
        return True

    def _bridge(self, words: str) -> str:
        """Return a notice if a refusal is of an order of roles that is avoided from now on, or else ""."""
        for form in HISTORY_FORMS:
            if form not in self._forms and form.words.search(words):
                self._forms.append(form)
                return form.notice
        return ""

    def _bound_tools(self, words: str, request: Request) -> str:
        """Return a notice that names the tools left out, if a request had more than the server takes, or else ""."""
        if self._most_tools is not None or not _TOO_MANY_TOOLS.search(words):
            return ""
        count = len(request.tools) + len(request.hosted)
        numbers = _numbers(words)
        most = max((one for one in numbers if one < count), default=0 if numbers else count // 2)
        if most == 0:
            return ""
        self._most_tools = most
        kept = self._first_tools(request)
        left_out = [tool.name for tool in request.tools if tool not in kept]
        return f"The server takes at most {most} tools. Left out from now on: {join_names(left_out, 100)}."

    def _first_tools(self, request: Request) -> tuple[ToolDef, ...]:
        """Return as many of a request's tools as the server takes. The tool that must be called is among them."""
        most = max((self._most_tools or 0) - len(request.hosted), 0)
        chosen = sorted(request.tools, key=lambda tool: tool.name != request.tool_choice)[:most]
        return tuple(tool for tool in request.tools if tool in chosen)

    def _add(self, keys: Collection[Hashable]) -> bool:
        is_new = not self._keys.issuperset(keys)
        self._keys.update(keys)
        return is_new

    def _without_refused(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Yield the messages without the refused parts. Refused calls and their results become text."""
        refused = self._keys | self._hidden_images(messages)
        plain: Message | None = None  # an answer whose calls became text
        for message in messages:
            if message.role == "assistant":
                kept = message
                if not self._takes_private or not refused.isdisjoint(_private_keys(message)):
                    kept = replace(message, parts=tuple(_without_data(message.parts)))
                plain = message if not refused.isdisjoint(_call_keys(message)) else None
                yield _in_words(kept) if plain else without_parts(kept, refused)
            elif message.role == "tool" and plain is not None:
                yield without_parts(Message("user", tuple(_in_text(results_of(message)))), refused)
            else:
                yield without_parts(message, refused)

    def _hidden_images(self, messages: Sequence[Message]) -> set[Hashable]:
        if self._most_images is None:
            return set()
        images = [image for message in messages for image in _images(message)]
        return set(images[: max(len(images) - self._most_images, 0)])


def _numbers(words: str) -> list[int]:
    """Return the numbers in a refusal that can be a limit."""
    return [int(number) for number in re.findall(r"(?<![\w.])[1-9]\d{0,3}(?!\w|\.\d)", words)]


def _calls_tools(request: Request) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


def _without_data(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts of an answer as if another provider had made it: without its thoughts and opaque data."""
    for part in parts:
        match part:
            case Reasoning():
                continue
            case HostedCall() | HostedResult():
                yield as_plain_text(part)
            case Text() | ToolCall():
                yield replace(part, provider_data=None)
            case _:
                yield part


def _in_words(message: Message) -> Message:
    """Return an answer whose tool calls are text. Its thoughts are left out, because they belong to the calls."""
    parts = (
        Text(f"\n[Called {part.name} {write_arguments(part.arguments)}]") if isinstance(part, ToolCall) else part
        for part in _without_data(message.parts)
    )
    return replace(message, parts=tuple(parts))


def _in_text(results: Iterable[ToolResult]) -> Iterator[Part]:
    for result in results:
        yield Text(f"[The result of {result.name} ({result.status}):]")
        yield from result.content


def _named_strings(words: str, body: Json) -> Iterator[str]:
    """Yield all strings in the part of a request's body whose path a refusal names."""
    for match in _PATH.finditer(words):
        value: Any = body
        for step in re.findall(r"\w+", match[0]):
            inner = _step(value, step)
            if inner is None:
                break
            value = inner
        if isinstance(value, dict) and value is not body:
            yield from _strings(value)


def _step(value: Any, step: str) -> Any:
    """Return an item of a JSON list or object, or None if it has no such item, or the item is not a container."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return items[int(step)] if step.isdigit() and int(step) < len(items) else None
    inner = cast("Json", value).get(step) if isinstance(value, dict) else None
    return cast("Any", inner) if isinstance(inner, list | dict) else None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in cast("list[Any]", value) if isinstance(value, list) else cast("Json", value).values():
            yield from _strings(inner)


def _is_named(part: object, strings: Collection[str]) -> bool:
    match part:
        case Media():
            data = base64_of(part)
            return any(text.endswith(data) for text in strings)
        case ("text", str(text)):
            return bool(text) and any(text in string for string in strings)  # some APIs take all texts in one string
        case ("call", str(call_id), str()):
            return call_id in strings
        case _:
            return False
