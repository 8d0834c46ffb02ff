"""What both OpenAI APIs share: the connection, the cheap way to stream, and what their failures mean.

This is the one place that imports the SDK. Its typed streaming builds a pydantic model for every
chunk; asking for `object` instead yields plain dicts and keeps its authentication and its errors.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

from agentmagic import settings
from agentmagic.errors import AuthenticationFailed, BadRequest, MissingExtra, ProviderError
from agentmagic.messages import Media, Usage
from agentmagic.providers.base import ModelEvent
from agentmagic.providers.openai.openai_errors import (
    BASE_URL,
    KEY,
    Fault,
    broken,
    error_for,
    sentence,
    unreachable,
    untrusted,
)
from agentmagic.providers.wire import Json, certificate_fault, clean, count_of, figures_of, retry_after
from agentmagic.secrets import learn, redact

if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI, AsyncStream

OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "none"
"""Sent to a server that asks for no key: the SDK insists on having one."""

CONNECT_TIMEOUT = 30.0
SILENCE_TIMEOUT = 600.0
"""Seconds without a byte after which a connection is taken for dead; a turn's own limit cuts sooner."""

IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""The image types that the vision models of OpenAI read."""

PDF = "application/pdf"

NOTHING = "(no words)"
"""What a message of the user says that says nothing: an empty one is refused."""

_FORMS = frozenset({"response_format", "text"})
"""Where the two APIs take the form of an answer."""

_FORM_REFUSED = re.compile(r"response_format|json_schema|text\.format", re.IGNORECASE)
"""What a server names that refuses a request because of the form its answer is to have."""


class Decoder(Protocol):
    """Turns the chunks of one response into events; `close` comes after the last chunk.

    Both raise a ProviderError where the server reports a failure; `close` raises StreamBroken where
    the response ended before its closing chunk.
    """

    def feed(self, chunk: object) -> Iterable[ModelEvent]:
        """Return the events of a chunk, whatever JSON it is."""
        ...

    def close(self) -> Iterable[ModelEvent]:
        """Return the events that only the end of the response brings."""
        ...


class OpenAIClient:
    """An OpenAI-compatible server, asked for one model.

    The client is made at the first request and kept as long as requests come from the same event loop and
    the base URL stays what it was. `keyless` lets a server other than OpenAI's be asked without a key.
    """

    def __init__(self, model: str, base_url: str | None, api_key: str | None, *, keyless: bool = False) -> None:
        self.model = model
        self._base_url = base_url
        self._api_key = api_key
        self._keyless = keyless
        self._client: AsyncOpenAI | None = None
        self._made_for: tuple[asyncio.AbstractEventLoop, str] | None = None
        self._key_refused = False
        self.takes_forms = True
        """Whether it may be sent the form of an answer; no longer once it refused a request because of one."""
        if api_key:
            learn(KEY, api_key)

    @property
    def is_openai(self) -> bool:
        """Whether it is OpenAI's own."""
        return _is_openai(self.url)

    @property
    def url(self) -> str:
        """The base URL, as it was given or as the environment has it now."""
        return (self._base_url or settings.variable(BASE_URL) or OPENAI_URL).strip()

    async def events(self, path: str, body: Json, decoder: Decoder) -> AsyncGenerator[ModelEvent, None]:
        """Post a request and yield what the decoder makes of the answer, chunk by chunk.

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
        client, self._client = self._client, None
        if client is not None and self._made_for and self._made_for[0] is asyncio.get_running_loop():
            await client.close()

    async def _open(self, path: str, body: Json) -> "AsyncStream[object]":
        client = await self._connected()
        from openai import AsyncStream

        try:
            return await client.post(path, cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object])
        except _api_error() as error:
            failure = self._refused(error)
            self._key_refused = isinstance(failure, AuthenticationFailed)
            self._take_no_forms(body, failure)
            raise failure from error
        except ValueError as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error

    def _take_no_forms(self, body: Json, failure: ProviderError) -> None:
        """Ask without a form from now on, where the form was why a request was refused: its words will have to do."""
        if isinstance(failure, BadRequest) and _FORM_REFUSED.search(str(failure)) and body.keys() & _FORMS:
            self.takes_forms = False
            failure.retryable = True

    async def _connected(self) -> "AsyncOpenAI":
        made_for = (asyncio.get_running_loop(), self.url)
        if self._client is None or self._made_for != made_for:
            await self.aclose()
            self._client, self._made_for = self._connect(), made_for
        elif self._key_refused:
            self._client.api_key = self._find_key(self.url)  # another may have been set since
            self._key_refused = False
        return self._client

    def _connect(self) -> "AsyncOpenAI":
        url = _checked_url(self.url)
        key = self._find_key(url)
        try:
            import httpx2
            from openai import AsyncOpenAI
        except ImportError as error:
            raise MissingExtra("The OpenAI provider", "openai") from error
        timeout = httpx2.Timeout(SILENCE_TIMEOUT, connect=CONNECT_TIMEOUT)
        return AsyncOpenAI(base_url=url, api_key=key, timeout=timeout, max_retries=0)

    def _find_key(self, url: str) -> str:
        key = self._api_key
        if not key and self._keyless and not _is_openai(url):
            key = settings.find_key([KEY]) or NO_KEY
        key = (key or settings.require_key("OpenAI", [KEY])).strip()
        if not key.isascii() or not key.isprintable():
            message = f"The OpenAI key holds characters that no key has. Copy it into {KEY} once more."
            raise AuthenticationFailed(message)
        return key

    @property
    def _who(self) -> str:
        return "OpenAI" if _is_openai(self.url) else self.url

    def _refused(self, error: "APIError") -> ProviderError:
        """Say why no stream came."""
        response = getattr(error, "response", None)
        if response is None:
            fault = certificate_fault(error)
            return untrusted(self.url, fault) if fault else unreachable(self.url, _cause(error))
        fault = Fault(_words(error), _code(error), response.status_code, retry_after(response.headers))
        return error_for(fault, who=self._who, model=self.model)

    def _broken(self, error: "APIError") -> ProviderError:
        """Say why a stream broke off: the connection, or an error chunk that the SDK raises by itself."""
        if error.body is None:
            return broken(f"{self._who} closed the connection ({_cause(error)})")
        return error_for(Fault(_words(error), _code(error)), who=self._who, model=self.model)

    def _check_content_type(self, stream: "AsyncStream[object]") -> None:
        kind = str(stream.response.headers.get("content-type", ""))
        if kind and "event-stream" not in kind:
            message = (
                f"{self.url} answered with {kind[:80]} in place of an event stream. Check the base URL ({BASE_URL})."
            )
            raise BadRequest(redact(message), status=stream.response.status_code)


def _cause(error: "APIError") -> str:
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__


def _code(error: "APIError") -> str:
    return str(error.code or error.type or "")


def _words(error: "APIError") -> str:
    """Return what the server said, or nothing where it sent a page for people."""
    body = error.body
    if isinstance(body, dict):
        body = cast("Json", body).get("message") or json.dumps(body)
    return "" if str(body or "").startswith("<") else str(body or error.message)


def _api_error() -> "type[APIError]":
    from openai import APIError

    return APIError


def _is_openai(url: str) -> bool:
    return urlsplit(url).hostname == urlsplit(OPENAI_URL).hostname


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if usable:
        return url
    message = f"The base URL {url[:200]!r} is no address. Set {BASE_URL} to one like http://localhost:8080/v1."
    raise BadRequest(redact(message))


_write_json = json.JSONEncoder(ensure_ascii=False).encode


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Write a call's arguments as JSON text."""
    return _write_json(clean(arguments))


def read_usage(usage: object, sent: str, written: str) -> Usage:
    """Read the tokens of one request; `sent` and `written` are the API's words for input and output.

    The cost is unknown here, and figures that a server leaves out, or garbles, count as zero.
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
    """Write a blob as a data URL."""
    return f"data:{media.media_type};base64,{base64.b64encode(media.data).decode()}"
