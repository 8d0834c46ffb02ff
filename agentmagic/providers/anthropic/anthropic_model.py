"""`anthropic:MODEL`: Anthropic's Messages API, through the anthropic SDK.

This is the only module that imports the SDK. Its typed streaming builds a pydantic model for every event. Asking for
`object` instead yields plain dicts, and keeps the SDK's authentication and errors.
"""

import asyncio
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
from agentmagic.providers.failures import broken, quoted, sentence, unreachable, usable_key, usable_url
from agentmagic.providers.wire import CONNECT_TIMEOUT, SILENCE_TIMEOUT, Json, retry_after

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

    `base_url` and `api_key` replace `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY`, which are read at the first request.
    Connections are kept as long as requests come from the same event loop.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._memo = memo_for()
        self._without: frozenset[str] = frozenset()
        self._client: AsyncAnthropic | None = None
        self._made_for: tuple[asyncio.AbstractEventLoop, str] | None = None
        self._connecting = asyncio.Lock()
        self._key_refused = False
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
        client, self._client = self._client, None
        # The connections of a loop that is gone cannot be closed from another one.
        if client is not None and self._made_for and self._made_for[0] is asyncio.get_running_loop():
            await client.close()

    async def _post(self, body: Json) -> "AsyncStream[object]":
        client = await self._connected()
        from anthropic import AnthropicError as SDKError
        from anthropic import APIStatusError, AsyncStream

        binding = "block_binding" in body.get(THINKING, {})
        try:
            return await client.post(
                "/v1/messages",
                cast_to=object,
                body=body,
                options={"headers": {"anthropic-beta": BINDING}} if binding else {},
                stream=True,
                stream_cls=AsyncStream[object],
            )
        except APIStatusError as error:
            wait = retry_after(error.response.headers)
            raise self._refused(refusal(error.status_code, error.body, self._model, retry_after=wait), body) from error
        except SDKError as error:
            raise unreachable(self._who, error, BASE_URL) from error
        except (ValueError, RecursionError) as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error

    def _refused(self, failure: ProviderError, body: Json) -> ProviderError:
        """Return a failure, which can be tried again if the next try goes without a field that was refused."""
        if isinstance(failure, AuthenticationFailed):
            self._key_refused = True
        if isinstance(failure, BadRequest):
            refused = {name for name, words in _REFUSED.items() if name in body and words.search(str(failure))}
            self._without |= refused
            failure.retryable = bool(refused)
        return failure

    async def _connected(self) -> "AsyncAnthropic":
        async with self._connecting:
            made_for = (asyncio.get_running_loop(), self.base_url)
            if self._client is None or self._made_for != made_for or self._key_refused:
                await self.aclose()
                self._key_refused = False  # the user may have set another key
                # In a thread: importing the SDK takes a second of CPU, and a keyring may ask the user.
                self._client = await asyncio.to_thread(self._connect)
                self._made_for = made_for
            return self._client

    def _connect(self) -> "AsyncAnthropic":
        import httpx2
        from anthropic import AsyncAnthropic

        url = usable_url(self.base_url, BASE_URL, "https://host")
        key = usable_key("Anthropic", self._api_key, [KEY])
        timeout = httpx2.Timeout(SILENCE_TIMEOUT, connect=CONNECT_TIMEOUT)
        # No retries of the SDK's: the loop retries, and shows it.
        return AsyncAnthropic(base_url=url, api_key=key, timeout=timeout, max_retries=0, open_telemetry=False)

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
