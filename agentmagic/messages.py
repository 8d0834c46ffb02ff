"""The frozen classes of a conversation: messages and their parts, tools, usage.

A `Message` has parts. In messages of the user and the assistant, these are `Text`, `Reasoning`, `Media`, `Resource` and
`ToolCall`. A message of role "tool" has the `ToolResult` parts for the calls of the assistant message before it, in the
order of the calls. A call that the provider carried out itself within an answer is part of the assistant message, as a
`HostedCall` and its `HostedResult`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Literal, TypeVar, cast, dataclass_transform

from agentmagic.errors import UsageError
from agentmagic.secrets import redact
from agentmagic.text import clip, encodable, json_line

Role = Literal["user", "assistant", "tool"]
ResultStatus = Literal["ok", "error", "denied", "interrupted", "timeout"]

T = TypeVar("T")

LONGEST_REPR = 2_000
"""Characters of a `repr`, not counting the last text in it and the names of fields."""
LONGEST_STRING = 400
"""Characters of one text inside a `repr`."""
FRAME = 20
"""Characters that a `repr` counts for the brackets and the class name of a value that contains other values."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass with slots. The function `brief` is its `repr`, unless the class defines one."""
    own = "__repr__" in vars(kind)
    frozen = dataclass(frozen=True, slots=True)(kind)
    if not own:
        cast("Any", frozen).__repr__ = brief
    return frozen


def brief(value: object) -> str:
    """Return the `repr` of a value with secrets blanked, and with a few thousand characters at most.

    A field with `repr=False` is shown only if it differs from its default. Fields that were added to a class later have
    this mark, so that outputs in older notebooks stay the same.
    """
    return redact(_Brief().write(value))


class _Brief:
    """Writes the `repr` of one value, and stops after 2,000 characters (LONGEST_REPR)."""

    def __init__(self) -> None:
        self._left = LONGEST_REPR

    def write(self, value: Any) -> str:  # noqa: PLR0911  (one return for each kind of value)
        """Return the `repr` of a value, cut off with "…" if it is too long."""
        match value:
            case str():
                text = redact(value[: 2 * LONGEST_STRING])  # called before `clip`: a cut secret is not recognized
                return self._count(repr(clip(text, LONGEST_STRING)))
            case bytes():
                return self._count(repr(value[:LONGEST_STRING]) + "…" * (len(value) > LONGEST_STRING))
            case list():
                return f"[{self._join(cast('list[Any]', value), self.write)}]"
            case tuple():
                items = cast("tuple[Any, ...]", value)
                return f"({self._join(items, self.write)}{',' * (len(items) == 1)})"
            case Mapping():
                pairs = cast("Mapping[Any, Any]", value).items()
                return f"{{{self._join(pairs, lambda item: f'{self.write(item[0])}: {self.write(item[1])}')}}}"
            case _ if is_dataclass(value) and not isinstance(value, type):
                visible_fields = (one for one in fields(value) if one.repr or getattr(value, one.name) != one.default)
                inner = self._join(visible_fields, lambda one: f"{one.name}={self.write(getattr(value, one.name))}")
                return f"{type(value).__qualname__}({inner})"
            case _:
                return self._count(clip(repr(value), LONGEST_STRING))

    def _join(self, items: Iterable[T], write: Callable[[T], str]) -> str:
        self._left -= FRAME  # counted, so that writing ends even if a value contains itself
        texts: list[str] = []
        for item in items:
            if self._left < 0:
                texts.append("…")
                break
            texts.append(write(item))
        return ", ".join(texts)

    def _count(self, text: str) -> str:
        self._left -= len(text)
        return text


@value_class
class ProviderData:
    """Opaque data of a provider, which later requests send back to the same provider unchanged.

    `provider` is the provider's name in the registry ("openai", "openai-chat", "gemini", ...); `data` is plain JSON.
    """

    type: ClassVar[str] = "provider_data"
    provider: str
    data: Any


@value_class
class Citation:
    """The source of a span of a text: a web page, and the words of the page that are quoted ("" if unknown).

    `start` and `end` count characters of the text; `end` is exclusive.
    """

    type: ClassVar[str] = "citation"
    start: int
    end: int
    url: str
    title: str = ""
    quote: str = ""


@value_class
class Source:
    """A web page that an answer cites, with its number in the answer and the words that the provider quoted from it."""

    number: int
    url: str
    title: str = ""
    quotes: tuple[str, ...] = ()


@value_class
class Text:
    """Text of a user, a model or a tool. If `audience` is "assistant", the text is not shown to the user.

    `citations` are sorted by their ends.
    """

    type: ClassVar[str] = "text"
    text: str
    provider_data: ProviderData | None = None
    audience: str = ""
    citations: tuple[Citation, ...] = field(default=(), repr=False)


@value_class
class Reasoning:
    """The reasoning that a model wrote; `text` is empty if the provider sent only opaque data."""

    type: ClassVar[str] = "reasoning"
    text: str
    provider_data: ProviderData | None = None


@value_class
class Media:
    """An image, a sound or other binary data; `media_type` is the MIME type.

    If `audience` is "user", it is not sent to a model.
    """

    type: ClassVar[str] = "media"
    media_type: str
    data: bytes
    name: str = ""
    audience: str = ""


@value_class
class Resource:
    """A resource of an MCP server, or a web page. `uri` names it, and `text` is "" if its text was not sent."""

    type: ClassVar[str] = "resource"
    uri: str
    name: str = ""
    media_type: str = ""
    text: str = ""


@value_class
class ToolCall:
    """A tool call that the model requested. If its arguments are not a JSON object, they are `{"_raw": "..."}`."""

    type: ClassVar[str] = "tool_call"
    id: str
    name: str
    arguments: Mapping[str, Any]
    provider_data: ProviderData | None = None


@value_class
class ToolResult:
    """The result of a tool call.

    `done` is the message of a tool that ended the turn (`TaskComplete`, `Done`), else None. `structured` is a JSON
    value that a tool returned in addition to the content. `server` is the alias of the MCP server that wrote the
    content, or "" if it is not from a server. `in_doubt` says that the worker process of the call was lost, so that the
    call may have run in part or completely.
    """

    type: ClassVar[str] = "tool_result"
    call_id: str
    name: str
    content: tuple["Text | Media | Resource", ...]
    status: ResultStatus = "ok"
    structured: Any = None
    done: str | None = None
    server: str = ""
    in_doubt: bool = False

    @property
    def is_error(self) -> bool:
        """Whether the model should read this result as a failure."""
        return self.status != "ok"

    @property
    def text(self) -> str:
        """The text of the result, with media named in brackets."""
        return "\n".join(as_text(part) for part in self.content)


Content = Text | Media | Resource


@value_class
class HostedCall:
    """A tool call that the provider's servers carry out themselves within an answer: a web search, a program.

    `host` is the provider. `name` is "web_search", "web_fetch", "code_execution", or the provider's own tool name.
    """

    type: ClassVar[str] = "hosted_call"
    id: str
    name: str
    arguments: Mapping[str, Any]
    host: str = ""
    provider_data: ProviderData | None = None


@value_class
class HostedResult:
    """The result of a `HostedCall`, which the provider carried out: web pages as resources, text, images.

    Like every tool result, the content is untrusted.
    """

    type: ClassVar[str] = "hosted_result"
    call_id: str
    name: str
    content: tuple[Content, ...] = ()
    status: ResultStatus = "ok"
    provider_data: ProviderData | None = None

    @property
    def text(self) -> str:
        """The text of the result, with pages and media named in brackets."""
        return "\n".join(as_text(part) for part in self.content)


Part = Text | Reasoning | Media | Resource | ToolCall | ToolResult | HostedCall | HostedResult


@value_class
class Message:
    """One entry of the history; `interrupted` marks an answer that the user or the turn's timeout cut off."""

    type: ClassVar[str] = "message"
    role: Role
    parts: tuple[Part, ...]
    interrupted: bool = False

    @property
    def text(self) -> str:
        """The text of the message, without reasoning, calls and results."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


@value_class
class Usage:
    """Tokens and cost of one or more model requests.

    `cached_tokens` (read from a cache) and `cache_write_tokens` are part of `input_tokens`, `reasoning_tokens` part of
    `output_tokens`, and `cache_write_1h_tokens` (cached for an hour) part of `cache_write_tokens`. `searches` counts
    the web searches that the provider made and bills. `cost` is in US dollars; None means that a price is unknown,
    and 0 that the requests were free.
    """

    type: ClassVar[str] = "usage"
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    cost: float | None = 0.0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    searches: int = field(default=0, repr=False)

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of all counts. If either cost is unknown, the cost of the sum is unknown."""
        is_known = self.cost is not None and other.cost is not None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.requests + other.requests,
            (self.cost or 0.0) + (other.cost or 0.0) if is_known else None,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            self.searches + other.searches,
        )


NOTEBOOK = "notebook"
"""The `server` of tools that are not from an MCP server."""
ToolKey = tuple[str, str]
"""The identity of a tool: (server, name)."""


@value_class
class Example:
    """A question and the arguments that answer it, from an `Example:` line of a docstring."""

    question: str
    arguments: Mapping[str, Any]


@value_class
class ToolDef:
    """A tool as it is described to a model: `parameters` is a JSON Schema of type object.

    `server` is the origin of the tool, shown to users: "notebook", or the user's alias of an MCP server. `own_name` is
    the tool's name on that server, if the model is given another name.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    server: str = NOTEBOOK
    examples: tuple[Example, ...] = ()
    own_name: str = ""


SEARCH, FETCH = "web_search", "web_fetch"
"""The names of the web tools."""


@value_class
class HostedTool:
    """A tool that a provider carries out on its own servers.

    `name` is "web_search" or "web_fetch". If `domains` is not empty, the tool can reach only these domains. `max_uses`
    limits its uses in one request; if it is None, only the provider limits them.
    """

    name: str
    domains: tuple[str, ...] = ()
    max_uses: int | None = None


def sources_of(citations: Iterable[Citation], earlier: Iterable[Source] = ()) -> tuple[Source, ...]:
    """Return each web page in `citations` once, numbered in this order. Pages in `earlier` keep their numbers."""
    numbers = {source.url: source.number for source in earlier}
    sources: dict[str, Source] = {}
    for one in citations:
        number = numbers.setdefault(one.url, len(numbers) + 1)
        before = sources.get(one.url, Source(number, one.url))
        new = one.quote and one.quote not in before.quotes
        quotes = (*before.quotes, one.quote) if new else before.quotes
        sources[one.url] = replace(before, title=before.title or one.title, quotes=quotes)
    return tuple(sorted(sources.values(), key=lambda source: source.number))


def with_source_links(part: Text) -> str:
    """Return a text with its sources as Markdown links, for models and files that do not support citations."""
    pieces: list[str] = []
    position = 0
    for end, citations in groupby(sorted(part.citations, key=_end_of), key=_end_of):
        # A citation whose URL the text contains already needs no link.
        unlinked = (one for one in citations if one.url not in part.text[one.start : end])
        links = dict.fromkeys(f" [{_label(one)}](<{one.url}>)" for one in unlinked)
        pieces += (part.text[position:end], *links)
        position = end
    return "".join((*pieces, part.text[position:]))


def _end_of(citation: Citation) -> int:
    return citation.end


def _label(citation: Citation) -> str:
    return re.sub(r"[\[\]\s]+", " ", citation.title or citation.url).strip()


def as_text(part: Content | HostedCall | HostedResult) -> str:
    """Return a message part as text, for models and displays that do not support parts of its type."""
    match part:
        case Text():
            return part.text
        case Media():
            label = f" {part.name}" if part.name else ""
            return f"[{part.media_type}{label}, {len(part.data)} bytes]"
        case Resource():
            head = f"[resource {part.uri}]"
            return f"{head}\n{part.text}" if part.text else head
        case HostedCall():
            return f"[{part.name} {json_line(part.arguments)}]"
        case HostedResult():
            return f"[{part.name}: {part.text or part.status}]"


def media_of(message: Message) -> Iterator[Media]:
    """Yield the images and other media of a message, and those in its tool results."""
    for part in message.parts:
        for inner in part.content if isinstance(part, ToolResult) else (part,):
            if isinstance(inner, Media):
                yield inner


def change_parts(message: Message, change: Callable[[Any], Any]) -> Message:
    """Return a message with what `change` makes of each part, also of those in its tool results.

    A message or result stays the same object if `change` returns each of its parts as it is.
    """
    parts = tuple(
        _change_content(part, change) if isinstance(part, ToolResult) else change(part) for part in message.parts
    )
    return message if same_objects(parts, message.parts) else replace(message, parts=parts)


def _change_content(result: ToolResult, change: Callable[[Any], Any]) -> ToolResult:
    content = tuple(map(change, result.content))
    return result if same_objects(content, result.content) else replace(result, content=content)


def same_objects(new: Iterable[object], old: Iterable[object]) -> bool:
    """Return whether two sequences of the same length have the same objects."""
    return all(one is other for one, other in zip(new, old, strict=True))


def user(*content: str | Content) -> Message:
    """Return a message of the user made of strings and message parts."""
    return Message("user", parts_of(content))


Prompt = str | Message | list[str | Content]
"""The types that a prompt can have."""
LONGEST_PROMPT = 2_000_000
"""Characters. A longer prompt does not fit any model's window, and would be refused only after a long upload."""


def as_prompt(prompt: Prompt) -> Message:
    """Return a prompt (a text, parts or a message) as a message of the user.

    Raises UsageError if the prompt is empty, too long, of another type, a message that is not of the user, or has parts
    that a user message cannot have.
    """
    match prompt:
        case Message():
            message = prompt
        case str():
            message = user(prompt)
        case list():
            message = user(*prompt)
        case _:
            problem = (
                f"A prompt cannot be {prompt!r:.80}. Give a string, a user message, or a list of strings and parts."
            )
            raise UsageError(problem)
    if not all(isinstance(cast("object", part), (Text, Media, Resource)) for part in message.parts):
        raise UsageError("The prompt holds something else than text, media and resources. Give strings and parts.")
    if message.role != "user":
        raise UsageError(f"The prompt is a message of the {message.role}. Give one of the user.")
    if len(message.text) > LONGEST_PROMPT:
        raise UsageError(
            f"The prompt has {len(message.text):,} characters; no model takes more than {LONGEST_PROMPT:,}. "
            "Put the data into a variable and give the agent a tool that reads it."
        )
    if not message.text.strip() and all(isinstance(part, Text) for part in message.parts):
        raise UsageError("The prompt is empty. Write what the agent should do.")
    return message


def parts_of(content: Iterable[str | Content]) -> tuple[Content, ...]:
    """Return message parts, with strings turned into `Text`s. Lone surrogates, which providers refuse, are replaced."""
    parts = (Text(item) if isinstance(item, str) else item for item in content)
    return tuple(replace(part, text=encodable(part.text)) if isinstance(part, Text) else part for part in parts)
