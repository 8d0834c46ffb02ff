"""`anthropic:MODEL`: Anthropic's Messages API, through the anthropic SDK.

This is the only module that imports the SDK. Its typed streaming builds a pydantic model for every event. Asking for
`object` instead yields plain dicts, and keeps the SDK's authentication and errors.
"""

import json
import re
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentmagic import secrets, settings
from agentmagic.errors import AuthenticationFailed, BadRequest, ProviderError
from agentmagic.providers.anthropic import BASE_URL, KEY
from agentmagic.providers.anthropic.anthropic_decoder import Decoder, refusal
from agentmagic.providers.anthropic.anthropic_encoder import (
    BINDING,
    FORCED,
    FORM,
    PROVIDER,
    THINKING,
    encode,
    encode_answer,
    honoured_by,
    memo_for,
)
from agentmagic.providers.base import ModelEvent, ModelSettings, Request
from agentmagic.providers.clients import ClientLease, http_client
from agentmagic.providers.failures import broken, quoted, sentence, unreachable, usable_key, usable_url
from agentmagic.providers.wire import Json, retry_after

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream

_REFUSED = {
    FORCED: re.compile(r"tool_choice"),
    FORM: re.compile(r"output_config|output_format|json_schema", re.IGNORECASE),
    THINKING: re.compile(r"\bthinking[.:]|block_binding|anthropic-beta|adaptive", re.IGNORECASE),
}
"""Words of a server that refuses a request because of one of the fields that can be left out."""

OWN_URL = "https://api.anthropic.com"

_PAUSES = 20
"""Responses of one answer that may end in a pause."""


class Anthropic:
    """A model of the Messages API.

    `base_url` and `api_key` replace `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY`, which are read at the first request,
    and again if the base URL has changed or the key was refused.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._memo = memo_for()
        self._without: frozenset[str] = frozenset()
        self._lease = ClientLease(self._find, _connect, lambda client: client.close())
        self._url = ""
        if api_key:
            secrets.learn(KEY, api_key)

    @property
    def name(self) -> str:
        """The full name, "anthropic:MODEL"."""
        return f"{PROVIDER}:{self._model}"

    @property
    def base_url(self) -> str:
        """The address that requests are sent to, as it was given or as the environment has it now."""
        return (self._base_url or settings.variable(BASE_URL) or OWN_URL).strip()

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model takes."""
        return honoured_by(self._model, settings)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        decoder = Decoder(self._model)
        body = encode(request, self._model, self._memo, self._without)
        messages = body["messages"]
        for _ in range(_PAUSES):
            stream = await self._post(body)
            with self._stream_errors():
                async with stream:
                    async for event in stream:
                        for part_event in decoder.feed(event):
                            yield part_event
            self._check_content_type(stream)
            decoder.close()
            if not decoder.paused:
                return
            body["messages"] = [*messages, *encode_answer(decoder.parts)]
        raise broken(f"{self._who} paused it {_PAUSES} times")

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._lease.release()

    async def _post(self, body: Json) -> "AsyncStream[object]":
        if self._url != self.base_url:
            self._lease.forget()
        client = await self._lease.client()
        from anthropic import AnthropicError, APIStatusError, AsyncStream

        binding = "block_binding" in body.get(THINKING, {})
        try:
            return await client.post(
                "/v1/messages",
                cast_to=object,
                content=json.dumps(body, ensure_ascii=False).encode(),  # the SDK would copy a dict first, item by item
                options={"headers": {"anthropic-beta": BINDING}} if binding else {},
                stream=True,
                stream_cls=AsyncStream[object],
            )
        except APIStatusError as error:
            wait = retry_after(error.response.headers)
            raise self._refused(refusal(error.status_code, error.body, self._model, retry_after=wait), body) from error
        except AnthropicError as error:
            raise unreachable(self._who, error, BASE_URL, self.base_url) from error
        except (ValueError, RecursionError) as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error

    def _refused(self, failure: ProviderError, body: Json) -> ProviderError:
        """Return a failure, which can be tried again if the next try goes without a field that was refused."""
        if isinstance(failure, AuthenticationFailed):
            self._lease.forget()  # the user may set another key
        if isinstance(failure, BadRequest):
            refused = {name for name, words in _REFUSED.items() if name in body and words.search(str(failure))}
            self._without |= refused
            failure.retryable = bool(refused)
        return failure

    def _find(self) -> tuple[str, str]:
        """Return the address and the key. Raises BadRequest, AuthenticationMissing and AuthenticationFailed."""
        self._url = self.base_url
        return usable_url(self._url, BASE_URL, "https://host"), usable_key("Anthropic", self._api_key, [KEY])

    @property
    def _who(self) -> str:
        return "Anthropic" if self.base_url == OWN_URL else self.base_url

    @contextmanager
    def _stream_errors(self) -> Generator[None]:
        """Turn the errors of a stream that broke off into ProviderErrors."""
        import httpx2
        from anthropic import APIStatusError

        try:
            yield
        except APIStatusError as error:  # an error event, which the SDK raises by itself
            raise refusal(None, error.body, self._model) from error
        except httpx2.HTTPError as error:
            raise broken(f"{self._who} closed the connection ({str(error) or type(error).__name__})") from error
        except (ValueError, RecursionError) as error:  # an event that is no JSON, no UTF-8, or nested without end
            raise broken(f"{self._who} sent something that cannot be read") from error

    def _check_content_type(self, stream: "AsyncStream[object]") -> None:
        kind = str(stream.response.headers.get("content-type", ""))
        if kind and "event-stream" not in kind:  # a login page of a proxy, or a wrong address
            said = f"{self._who} answered with {quoted(kind)[:80]} in place of an event stream."
            raise BadRequest(f"{said} Check the base URL ({BASE_URL}).")


def _connect(found: tuple[str, str]) -> "AsyncAnthropic":
    from anthropic import AsyncAnthropic

    url, key = found
    # No retries of the SDK's: the loop retries, and shows it.
    return AsyncAnthropic(base_url=url, api_key=key, max_retries=0, http_client=http_client(), open_telemetry=False)
