"""Has what OpenAI's two APIs share: the connection, streaming, errors, citations, and the schema of an answer.

This is the only module that imports the SDK, for its authentication and its errors. The stream is read without the SDK,
which would build a pydantic model for every chunk.
"""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from agentmagic import settings
from agentmagic.classroom import class_settings
from agentmagic.errors import BadRequest, MalformedCall, MissingExtra, ProviderError
from agentmagic.messages import Citation, Media, Usage
from agentmagic.providers import failures
from agentmagic.providers.addresses import join, split_query, tidy, without_ending
from agentmagic.providers.base import ModelEvent, ModelSettings, OutputSchema, Request
from agentmagic.providers.clients import Decoder, RemoteModel, http_client, listed_names
from agentmagic.providers.error_bodies import find_error, status_of
from agentmagic.providers.failures import Fault, Vendor, connection_broken, sentence, unreachable, usable_key
from agentmagic.providers.hosted import MOST_CITATIONS, citation
from agentmagic.providers.openai import BASE_URL, KEY
from agentmagic.providers.wire import (
    Json,
    base64_of,
    clean,
    count_of,
    fit_name,
    object_of,
    objects_of,
    retry_after,
    text_of,
    write_body,
)

if TYPE_CHECKING:
    import httpx2
    from openai import APIError, AsyncOpenAI


# OpenAI's error codes, by the HTTP status that they stand for. An error inside a stream has only a code, because the
# response began with status 200.
_CODES = {
    400: "invalid_request_error invalid_prompt content_filter bio_policy misalignment_policy_violation "
    "data_residency_mismatch failed_to_download_image unsupported_image_media_type empty_image_file",
    401: "invalid_api_key authentication_error",
    403: "permission_error",
    404: "model_not_found not_found_error",
    429: "rate_limit_exceeded rate_limit_error insufficient_quota",
    500: "server_error internal_error api_error vector_store_timeout",
    503: "slow_down",
    529: "overloaded_error",
}
_STATUS_OF = {code: status for status, codes in _CODES.items() for code in codes.split()}

LIST_WAIT = 1.5
"""Seconds to wait for a server's list of models."""

_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_PAYMENT_REQUIRED = 402
_MALFORMED_CALL = "tool_use_failed"
"""Groq's code for a call that the model wrote wrongly: https://console.groq.com/docs/tool-use/local-tool-calling"""


def error_for(fault: Fault, *, who: str = "The provider", model: str = "the model") -> ProviderError:
    """Return the exception for an error that a server of OpenAI's APIs reports, with advice for the user.

    `who` is the server's name in the message.
    """
    status = _status(fault)
    if fault.code == _MALFORMED_CALL:
        says = sentence(fault.message)
        return MalformedCall(f"The model wrote a tool call that cannot be read. {who} says: {says} Ask again.")
    fault = replace(fault, status=status, used_up=fault.code in _QUOTA or status == _PAYMENT_REQUIRED)
    hint = " Some servers know openai-chat: only, not openai:."
    return failures.error_for(fault, Vendor(who, model, (KEY,), BASE_URL, hint, "/v1"))


def _status(fault: Fault) -> int | None:
    if fault.status:
        return fault.status
    if fault.code.startswith(("invalid_image", "invalid_base64", "image_")):
        return 400
    return _STATUS_OF.get(fault.code) or status_of(fault.code, fault.message)


NO_KEY = "none"
"""The key for a server that needs none, because the SDK refuses to run without a key."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A legal name of a function, or of an answer's schema."""

CHOICES = ("auto", "none", "required")
"""The values of `tool_choice` that are sent unchanged; any other value is the name of a tool."""

IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""The image types that OpenAI's vision models read."""

PDF = "application/pdf"

NOTHING = "(no words)"
"""The text that replaces a user message without content, because both APIs refuse an empty message."""

# Of the reasoning models, only those from GPT-5.1 on accept a temperature, and only if reasoning is off, which is their
# default: https://developers.openai.com/api/docs/guides/latest-model
_DOES_NOT_REASON = re.compile(r"(?:ft:)?(?:gpt-3|gpt-4|chatgpt)|gpt-5.*-chat")
_ALWAYS_REASONS = re.compile(r"(?:ft:)?(?:o\d|gpt-5(?:-|$)|codex|gpt-5\.\d+-(?:pro|codex))")


def reasons(model: str) -> bool:
    """Return whether a model accepts reasoning as a setting and in earlier messages. True for unknown models."""
    return not _DOES_NOT_REASON.match(model)


def honoured_names(model: str, settings: ModelSettings) -> set[str]:
    """Return the names of those `settings` that a model accepts."""
    unsupported = {"reasoning"} if not reasons(model) else set[str]()
    if _ALWAYS_REASONS.match(model) or (model.startswith("gpt-5") and settings.reasoning not in (None, "none")):
        unsupported.add("temperature")
    return set(settings.given) - unsupported


_FORM_REFUSED = re.compile(r"response_format|json_schema|text\.format", re.IGNORECASE)
"""Words in the error of a server that refuses a request because of the schema for its answer."""

# The keywords of JSON Schema that every version of OpenAI's strict mode supports. In strict mode, the answer is certain
# to follow the schema.
# https://developers.openai.com/api/docs/guides/structured-outputs
_STRICT = frozenset(
    {"type", "title", "description", "properties", "required", "additionalProperties", "items", "enum", "const"}
    | {"anyOf", "$ref", "$defs"}
)
_ALLOWS_VALUES = frozenset({"type", "enum", "const", "anyOf", "$ref"})
"""Keywords that say which values a schema allows. Each strict schema needs at least one of them."""


def served_models() -> list[str]:
    """Return the full names of the models that the server at `OPENAI_BASE_URL` lists.

    Models that a teacher's or administrator's limits do not allow are left out. The list is empty if the server does
    not answer within `LIST_WAIT`, or if its address is not allowed.
    """
    url, bounds = tidy(settings.variable(BASE_URL) or ""), class_settings()
    if not url or not bounds.allows_address(url):
        return []
    names = listed_names(
        join(without_ending(url, OpenAIClient.added), "/models"),
        ("data", "id"),
        LIST_WAIT,
        settings.find_key((KEY,)) or "",
    )
    return [f"openai-chat:{name}" for name in names if bounds.allows_model(f"openai-chat:{name}")]


class OpenAIClient(RemoteModel[tuple[str, str], "AsyncOpenAI"]):
    """The base class of `OpenAIResponses` and `OpenAIChat`: one model on an OpenAI-compatible server."""

    vendor = "OpenAI"
    own_url = "https://api.openai.com/v1"
    example = "http://localhost:8080/v1"
    refusable: ClassVar = {"response_format": _FORM_REFUSED, "text": _FORM_REFUSED}
    added = re.compile(r"/(?:(?:chat/)?completions|responses|embeddings|models)$")
    keyless: ClassVar[bool] = False
    """Whether requests are sent without a key to servers other than OpenAI's, if no key is set."""

    async def events(self, path: str, request: Request, decoder: Decoder) -> AsyncGenerator[ModelEvent, None]:
        """Post a request to the API's `path`, and yield the model events of the answer, chunk by chunk.

        Every failure is a ProviderError. If the iteration is cancelled or closed, the connection is closed.
        """
        with self._sending(request) as body:
            response = await self.open("post", path, body)
            async with aclosing(self._events(response, decoder, body)) as events:
                async for event in events:
                    yield event

    async def open(
        self, method: Literal["get", "post"], path: str, body: Json | None = None, *, file: bytes | None = None
    ) -> "httpx2.Response":
        """Send an HTTP request, and return the open response. With a `file`, `body` is sent as the fields of a form."""
        client = await self._client()
        import httpx2
        from openai import APIError, AsyncStream

        # With this `cast_to`, the SDK returns the open response instead of reading it.
        options: Json = {"cast_to": httpx2.Response, "stream": True, "stream_cls": AsyncStream[object]}
        try:
            if file is not None:
                form = {"Content-Type": "multipart/form-data"}
                options |= {"body": body, "files": {"file": ("batch.jsonl", file)}, "options": {"headers": form}}
            elif body is not None:
                options["content"] = write_body(body)  # as bytes, because the SDK would copy a dict item by item
            response: Any = await getattr(client, method)(path, **options)
        except APIError as error:
            raise self._note_refusal(self._refusal(error), body or {}, error.body) from error
        except httpx2.HTTPError as error:  # the connection broke while the SDK read an error response
            raise connection_broken(self.who, error) from error
        except ValueError as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error
        return response

    def _chunk(self, data: bytes) -> object:
        chunk = self._parse(data)
        fields = object_of(chunk)
        if (fields.get(self.mark) is None or fields.get("error")) and (error := find_error(fields)):
            raise self._reported(error)
        return chunk

    def _reported(self, error: Json) -> ProviderError:
        return error_for(fault_of(error), who=self.who, model=self.model)

    def _find_key(self) -> str:
        key = self._api_key
        if not key and self.keyless and not self.is_own:
            key = settings.find_key([KEY]) or NO_KEY
        return usable_key(self.vendor, key, [KEY])

    def _refusal(self, error: "APIError") -> ProviderError:
        """Return the error for a request that failed before its stream began."""
        response = getattr(error, "response", None)
        if response is None:
            return unreachable(self.who, error, BASE_URL, self.base_url)
        fault = fault_of(error.body or error.message, response.status_code, retry_after(response.headers))
        return error_for(replace(fault, asked=str(response.url)), who=self.who, model=self.model)

    @staticmethod
    def _connect(access: tuple[str, str]) -> "AsyncOpenAI":
        try:
            from openai import AsyncOpenAI
        except ImportError as error:
            raise MissingExtra("The OpenAI provider", "openai") from error
        url, key = access
        client = http_client(address=url)
        url, _ = split_query(url)
        # The SDK must not retry: the agent loop retries, and shows that to the user.
        return AsyncOpenAI(base_url=url, api_key=key, timeout=client.timeout, max_retries=0, http_client=client)


def fault_of(body: object, status: int | None = None, wait: float | None = None) -> Fault:
    """Return the `Fault` for an error that a server reports; `body` is its JSON or text.

    `wait` is the number of seconds that the server asks to wait.
    """
    fields = find_error(body) or object_of(body)
    message = fields.get("message") or (json.dumps(body) if fields else str(body or ""))
    code = fields.get("code") or fields.get("type") or ""
    return Fault(str(message), str(code), status, wait, param=text_of(fields.get("param")))


def read_usage(usage: object, input_word: str, output_word: str) -> Usage:
    """Return the usage of one request, without its cost, from the server's token counts.

    `input_word` and `output_word` are the beginnings of the names of the counts, such as "prompt" in "prompt_tokens". A
    count that is missing or not a number is 0. DeepSeek counts cache hits and misses in two separate fields
    (https://api-docs.deepseek.com/guides/kv_cache); Moonshot and Together count only hits.
    """
    figures = object_of(usage)
    details, own = (object_of(figures.get(f"{side}_tokens_details")) for side in (input_word, output_word))
    hits, misses = (count_of(figures.get(f"prompt_cache_{what}_tokens")) for what in ("hit", "miss"))
    cached_tokens = count_of(details.get("cached_tokens")) or hits or count_of(figures.get("cached_tokens"))
    counts = (count_of(figures.get(f"{input_word}_tokens")) or hits + misses, cached_tokens)
    counts += (count_of(figures.get(f"{output_word}_tokens")), count_of(own.get("reasoning_tokens")))
    return Usage(*counts, requests=1, cost=None, cache_write_tokens=count_of(details.get("cache_write_tokens")))


# Models of the Chat Completions API that search the web for each answer:
# https://developers.openai.com/api/docs/guides/tools-web-search
_SEARCHES = re.compile(r"gpt-.*-search-(?:api|preview)")


def is_search_model(model: str) -> bool:
    """Return whether a model of Chat Completions searches the web for each answer."""
    return _SEARCHES.match(model) is not None


LONGEST_LABEL = 300
"""The most characters of a Markdown link's label, which is searched for before its address."""


def read_citations(text: str, annotations: object) -> list[Citation]:
    """Return the citations of a text from the server's `annotations`.

    Most citations are Markdown links that the model wrote into the text. The API does not document in which units it
    counts positions, and other servers send no positions, or 0 and 0. If the text has the cited address, but not
    between the server's positions, the positions are read as UTF-16 units. If that is wrong too, the text is searched
    for a link to the address.
    """
    citations: list[Citation] = []
    for one in objects_of(annotations)[:MOST_CITATIONS]:
        fields = object_of(one.get("url_citation")) or one  # Chat Completions nests the fields, Responses does not
        url = text_of(fields.get("url"))
        if url:
            span = _span(text, url, (fields.get("start_index"), fields.get("end_index")))
            citations.append(citation(text, span, url, fields.get("title"), fields.get("content")))
    return citations


def _span(text: str, url: str, span: tuple[object, object]) -> tuple[object, object]:
    start, end = span
    if type(start) is int and type(end) is int and 0 <= start < end <= 2 * len(text):
        if url in text[start:end] or url not in text:
            return span
        wide = text[:end].encode("utf-16-le", "replace")
        start, end = (len(wide[: 2 * place].decode("utf-16-le", "ignore")) for place in (start, end))
        if url in text[start:end]:
            return start, end
    return _link_span(text, url)


def _link_span(text: str, url: str) -> tuple[int | None, int | None]:
    """Return the start and end of a Markdown link to `url` in a text, including parentheses around the link.

    If there is no such link, return the start and end of the address itself, or (None, None).
    """
    at = text.find(ending := f"]({url})")
    near = max(at - LONGEST_LABEL, 0)
    before, bracket, label = text[near : max(at, 0)].rstrip("]").rpartition("[")
    if not bracket or "]" in label or "\n" in label:
        at = text.find(url)
        return (None, None) if at < 0 else (at, at + len(url))
    start, end = near + len(before.rstrip("[")), at + len(ending)
    return start - text.startswith("(", max(start - 1, 0), start), end + text.startswith(")", end)


def data_url(media: Media) -> str:
    """Return media as a data URL."""
    return f"data:{media.media_type};base64,{base64_of(media)}"


def form(output: OutputSchema) -> Json:
    """Return the schema for an answer in the form that both APIs accept.

    If possible, the API's strict mode is turned on: without it, the model may not follow the schema. In strict mode,
    OpenAI refuses a schema that has other keywords than those that this mode supports.
    """
    name = fit_name(output.name, NAME)
    return {"name": name, "schema": clean(output.schema), "strict": is_strict(output.schema)}


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema uses only the part of JSON Schema that every version of strict mode supports."""
    if schema.keys() - _STRICT or not schema.keys() & _ALLOWS_VALUES:
        return False
    if "$ref" in schema:
        return len(schema) == 1
    kind = schema.get("type")
    if kind == "array" and "items" not in schema:
        return False
    if kind == "object" or "properties" in schema:
        # Strict mode needs all properties to be required, and no additional properties.
        required_names, properties = set(schema.get("required", ())), set(schema.get("properties", ()))
        if schema.get("additionalProperties") is not False or required_names != properties:
            return False
    return all(isinstance(child, Mapping) and is_strict(cast("Json", child)) for child in _children(schema))


def _children(schema: Mapping[str, Any]) -> Iterator[object]:
    for keyword in ("properties", "$defs"):
        yield from schema.get(keyword, {}).values()
    yield from schema.get("anyOf", ())
    if "items" in schema:
        yield schema["items"]
