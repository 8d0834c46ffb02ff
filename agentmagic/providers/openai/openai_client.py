"""What both OpenAI APIs share: the connection, the cheap way to stream, the errors, and the form of an answer.

This is the only module that imports the SDK. Its typed streaming builds a pydantic model for every chunk. Asking for
`object` instead yields plain dicts, and keeps the SDK's authentication and errors.
"""

import base64
import json
import re
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast
from urllib.parse import urlsplit

from agentmagic import settings
from agentmagic.errors import AuthenticationFailed, BadRequest, ContextTooLong, MissingExtra, ProviderError
from agentmagic.messages import Media, Usage
from agentmagic.providers import failures
from agentmagic.providers.base import ModelEvent, ModelSettings, OutputSchema
from agentmagic.providers.clients import ClientLease, http_client
from agentmagic.providers.failures import Fault, Vendor, broken, sentence, unreachable, usable_key, usable_url
from agentmagic.providers.openai import BASE_URL, KEY
from agentmagic.providers.wire import (
    Json,
    clean,
    count_of,
    figures_of,
    fit_name,
    retry_after,
)
from agentmagic.secrets import learn, redact

if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI, AsyncStream


# The codes that come in a chunk, after the response has begun with status 200, by the status that they stand for.
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
"""Seconds that a server may take to list its models."""

LIST_BYTES = 1_000_000
LISTED = 200
LONGEST_ID = 200
"""Of a server's list: its bytes, the models that are taken, and the characters of a name."""

_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_PAYMENT_REQUIRED = 402
_TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
_TOO_LONG_WORDS = re.compile(r"context (length|window|size)|prompt is too long|too many tokens", re.IGNORECASE)


def error_for(fault: Fault, *, who: str = "The provider", model: str = "the model") -> ProviderError:
    """Return the error for a reported failure, with what to do."""
    status = _status(fault)
    # Compatible servers report a prompt over the window as a plain refusal.
    too_long = fault.code in _TOO_LONG or (status in (None, 400, 422) and _TOO_LONG_WORDS.search(fault.message))
    fault = replace(
        fault,
        status=status,
        kind=ContextTooLong if too_long else None,
        used_up=fault.code in _QUOTA or status == _PAYMENT_REQUIRED,
    )
    hint = " Some servers know openai-chat: only, not openai:."
    return failures.error_for(fault, Vendor(who, model, (KEY,), BASE_URL, hint))


def _status(fault: Fault) -> int | None:
    if fault.status:
        return fault.status
    if re.fullmatch(r"[45]\d\d", fault.code):  # compatible servers give an HTTP status as the code
        return int(fault.code)
    if fault.code.startswith(("invalid_image", "invalid_base64", "image_")):
        return 400
    return _STATUS_OF.get(fault.code)


def filtered() -> BadRequest:
    """Return the error for an answer that a content filter stopped; the user may have seen the first half."""
    return BadRequest("The provider withheld the answer: its content filter stopped it. Word the request differently.")


OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "none"
"""Sent to a server that asks for no key, because the SDK insists on one."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A legal name of a function, or of the form of an answer."""

IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""The image types that OpenAI's vision models read."""

PDF = "application/pdf"

NOTHING = "(no words)"
"""Sent in place of a user message without content, which both APIs refuse."""

# https://developers.openai.com/api/docs/guides/latest-model: of the models that reason, only those from GPT-5.1 on take
# a temperature, and only while they do not reason, which is their default.
_DOES_NOT_REASON = re.compile(r"(?:ft:)?(?:gpt-3|gpt-4|chatgpt)|gpt-5.*-chat")
_ALWAYS_REASONS = re.compile(r"(?:ft:)?(?:o\d|gpt-5(?:-|$)|codex|gpt-5\.\d+-(?:pro|codex))")


def reasons(model: str) -> bool:
    """Return whether a model takes a request for reasoning and a history with reasoning; other vendors' models may."""
    return not _DOES_NOT_REASON.match(model)


def honoured_by(model: str, settings: ModelSettings) -> set[str]:
    """Return the names of the settings that a model takes."""
    refused = {"reasoning"} if not reasons(model) else set[str]()
    if _ALWAYS_REASONS.match(model) or (model.startswith("gpt-5") and settings.reasoning not in (None, "none")):
        refused.add("temperature")
    return set(settings.given) - refused


_FORMS = frozenset({"response_format", "text"})
"""The fields with the form of an answer, in the two APIs."""

_FORM_REFUSED = re.compile(r"response_format|json_schema|text\.format", re.IGNORECASE)
"""Words of a server that refuses a request because of the form of its answer."""

# The part of JSON Schema that every version of strict mode supports.
# https://developers.openai.com/api/docs/guides/structured-outputs
_STRICT = frozenset(
    {"type", "title", "description", "properties", "required", "additionalProperties", "items", "enum", "const"}
    | {"anyOf", "$ref", "$defs"}
)
_ALLOWS_VALUES = frozenset({"type", "enum", "const", "anyOf", "$ref"})
"""The keywords one of which a strict schema needs."""


class Decoder(Protocol):
    """Turns the chunks of one response into events; `close` comes after the last chunk.

    Both raise a ProviderError if the server reports a failure. `close` raises StreamBroken if the response ended
    before its closing chunk.
    """

    def feed(self, chunk: object) -> Iterable[ModelEvent]:
        """Return the events of a chunk, which can be any JSON."""
        ...

    def close(self) -> Iterable[ModelEvent]:
        """Return the events that only the end of the response brings."""
        ...


@dataclass(frozen=True, slots=True)
class _Served:
    id: str


@dataclass(frozen=True, slots=True)
class _ServedList:
    data: list[_Served]


def served_models() -> list[str]:
    """Return the models that the server of `OPENAI_BASE_URL` lists; none if it does not answer within `LIST_WAIT`."""
    import httpx2
    from pydantic import TypeAdapter

    if (url := settings.variable(BASE_URL)) is None:
        return []
    key = settings.find_key((KEY,))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body, until = b"", time.monotonic() + LIST_WAIT
    try:
        with httpx2.stream("GET", f"{url.strip().rstrip('/')}/models", headers=headers, timeout=LIST_WAIT) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > LIST_BYTES or time.monotonic() > until:
                    return []
        listed = TypeAdapter(_ServedList).validate_json(body).data
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return []
    names = (one.id for one in listed)
    return [f"openai-chat:{name}" for name in names if name.isprintable() and len(name) <= LONGEST_ID][:LISTED]


class OpenAIClient:
    """One model on an OpenAI-compatible server; the base of the classes for the two APIs.

    `base_url` and `api_key` replace `OPENAI_BASE_URL` and `OPENAI_API_KEY`, which are read at the first request, and
    again if the base URL has changed or the key was refused.
    """

    provider: ClassVar[str]
    keyless: ClassVar[bool] = False
    """Whether servers other than OpenAI's are asked without a key if none is set."""

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self.model = model
        self.takes_forms = True
        """Whether requests have the form of the answer; False after a request was refused because of it."""
        self._base_url = base_url
        self._api_key = api_key
        self._lease = ClientLease(self._find, _connect, lambda client: client.close())
        self._url = ""
        if api_key:
            learn(KEY, api_key)

    @property
    def name(self) -> str:
        """The full name, "provider:model"."""
        return f"{self.provider}:{self.model}"

    @property
    def base_url(self) -> str:
        """The address that requests are sent to, as it was given or as the environment has it now."""
        return (self._base_url or settings.variable(BASE_URL) or OPENAI_URL).strip()

    @property
    def is_openai(self) -> bool:
        """Whether the server is OpenAI's own."""
        with suppress(ValueError):  # half an IPv6 address, which the first request complains of
            return urlsplit(self.base_url).hostname == urlsplit(OPENAI_URL).hostname
        return False

    async def events(self, path: str, body: Json, decoder: Decoder) -> AsyncGenerator[ModelEvent, None]:
        """Post a request and yield the events of the answer, chunk by chunk.

        Every failure is a ProviderError. A cancelled or closed iteration closes the connection.
        """
        stream = await self._open(path, body)
        chunks = 0
        try:
            async with stream:
                async for chunk in stream:
                    chunks += 1
                    for event in decoder.feed(chunk):
                        yield event
            if not chunks:
                self._check_content_type(stream)
            for event in decoder.close():
                yield event
        except _api_error() as error:
            raise self._broken(error) from error
        except (ValueError, RecursionError) as error:  # a chunk that is no JSON, no UTF-8, or nested without end
            raise broken(f"{self._who} sent something that cannot be read") from error

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._lease.release()

    async def _open(self, path: str, body: Json) -> "AsyncStream[object]":
        if self._url != self.base_url:
            self._lease.forget()
        client = await self._lease.client()
        from openai import AsyncStream

        try:
            return await client.post(path, cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object])
        except _api_error() as error:
            failure = self._refused(error)
            if isinstance(failure, AuthenticationFailed):
                self._lease.forget()  # the user may set another key
            if isinstance(failure, BadRequest) and _FORM_REFUSED.search(str(failure)) and body.keys() & _FORMS:
                # The next try goes without the form. The prompt has it in words.
                self.takes_forms = False
                failure.retryable = True
            raise failure from error
        except ValueError as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error

    def _find(self) -> tuple[str, str]:
        """Return the address and the key. Raises BadRequest, AuthenticationMissing and AuthenticationFailed."""
        self._url = self.base_url
        url = usable_url(self._url, BASE_URL, "http://localhost:8080/v1")
        key = self._api_key
        if not key and self.keyless and not self.is_openai:
            key = settings.find_key([KEY]) or NO_KEY
        return url, usable_key("OpenAI", key, [KEY])

    @property
    def _who(self) -> str:
        return "OpenAI" if self.is_openai else self.base_url

    def _refused(self, error: "APIError") -> ProviderError:
        """Return the error for a request that got no stream."""
        response = getattr(error, "response", None)
        if response is None:
            return unreachable(self.base_url, error, BASE_URL, self.base_url)
        fault = Fault(_message(error), _code(error), response.status_code, retry_after(response.headers))
        return error_for(fault, who=self._who, model=self.model)

    def _broken(self, error: "APIError") -> ProviderError:
        """Return the error for a stream that broke off."""
        if error.body is None:
            cause = error.__cause__ or error
            return broken(f"{self._who} closed the connection ({str(cause) or type(cause).__name__})")
        # An error chunk, which the SDK raises by itself.
        return error_for(Fault(_message(error), _code(error)), who=self._who, model=self.model)

    def _check_content_type(self, stream: "AsyncStream[object]") -> None:
        kind = str(stream.response.headers.get("content-type", ""))
        if kind and "event-stream" not in kind:
            raise BadRequest(
                redact(
                    f"{self.base_url} answered with {kind[:80]} in place of an event stream. "
                    f"Check the base URL ({BASE_URL})."
                ),
                status=stream.response.status_code,
            )


def _connect(found: tuple[str, str]) -> "AsyncOpenAI":
    try:
        from openai import AsyncOpenAI
    except ImportError as error:
        raise MissingExtra("The OpenAI provider", "openai") from error
    url, key = found
    client = http_client()
    # No retries of the SDK's: the loop retries, and shows it.
    return AsyncOpenAI(base_url=url, api_key=key, timeout=client.timeout, max_retries=0, http_client=client)


def _code(error: "APIError") -> str:
    return str(error.code or error.type or "")


def _message(error: "APIError") -> str:
    """Return the server's words, or nothing if it sent an HTML page."""
    body = error.body
    if isinstance(body, dict):
        body = cast("Json", body).get("message") or json.dumps(body)
    return "" if str(body or "").startswith("<") else str(body or error.message)


def _api_error() -> "type[APIError]":
    from openai import APIError

    return APIError


def read_usage(usage: object, sent: str, written: str) -> Usage:
    """Return the tokens of one request; `sent` and `written` are the API's words for input and output.

    The cost is not known here. Figures that a server omits or garbles count as zero.
    """
    figures = figures_of(usage)
    details, own = (figures_of(figures.get(f"{side}_tokens_details")) for side in (sent, written))
    return Usage(
        input_tokens=count_of(figures.get(f"{sent}_tokens")),
        cached_tokens=count_of(details.get("cached_tokens")),
        output_tokens=count_of(figures.get(f"{written}_tokens")),
        reasoning_tokens=count_of(own.get("reasoning_tokens")),
        requests=1,
        cost=None,
    )


def data_url(media: Media) -> str:
    """Return a blob as a data URL."""
    return f"data:{media.media_type};base64,{base64.b64encode(media.data).decode()}"


def form(output: OutputSchema) -> Json:
    """Return the form of an answer, as both APIs take it.

    It is strict if the schema allows that, because a form that is not strict is only a wish. OpenAI refuses a strict
    schema outside the part that it supports.
    """
    name = fit_name(output.name, NAME)
    return {"name": name, "schema": clean(output.schema), "strict": is_strict(output.schema)}


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema keeps to the part of JSON Schema that every version of strict mode supports."""
    if schema.keys() - _STRICT or not schema.keys() & _ALLOWS_VALUES:
        return False
    if "$ref" in schema:
        return len(schema) == 1
    kind = schema.get("type")
    if kind == "array" and "items" not in schema:
        return False
    if kind == "object" or "properties" in schema:
        # Strict mode wants all properties to be required, and no others.
        required, properties = set(schema.get("required", ())), set(schema.get("properties", ()))
        if schema.get("additionalProperties") is not False or required != properties:
            return False
    return all(isinstance(child, Mapping) and is_strict(cast("Json", child)) for child in _children(schema))


def _children(schema: Mapping[str, Any]) -> Iterator[object]:
    for keyword in ("properties", "$defs"):
        yield from schema.get(keyword, {}).values()
    yield from schema.get("anyOf", ())
    if "items" in schema:
        yield schema["items"]
