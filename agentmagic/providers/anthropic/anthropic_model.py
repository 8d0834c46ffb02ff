"""`anthropic:MODEL`: Anthropic's Messages API, through the anthropic SDK.

This is the only module that imports the SDK. Its typed streaming builds a pydantic model for every event. Asking for
`object` instead yields plain dicts, and keeps the SDK's authentication and errors.
"""

import re
from collections.abc import AsyncGenerator, Collection
from typing import TYPE_CHECKING

from agentmagic.errors import BadRequest
from agentmagic.providers.anthropic import BASE_URL, PROVIDERS
from agentmagic.providers.anthropic.anthropic_decoder import Decoder, refusal
from agentmagic.providers.anthropic.anthropic_encoder import (
    BINDING,
    FORCED,
    FORM,
    THINKING,
    encode,
    encode_answer,
    honoured_by,
    memo_for,
)
from agentmagic.providers.base import ModelEvent, ModelSettings, Request
from agentmagic.providers.clients import RemoteModel, http_client
from agentmagic.providers.failures import broken, sentence, unreachable
from agentmagic.providers.wire import Json, retry_after

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream

_PAUSES = 20
"""Responses of one answer that may end in a pause."""


class Anthropic(RemoteModel[tuple[str, str], "AsyncAnthropic"]):
    """A model of the Messages API."""

    row = PROVIDERS[0]
    vendor = "Anthropic"
    own_url = "https://api.anthropic.com"
    refusable = {  # noqa: RUF012  (declared as a class variable by the base)
        FORCED: re.compile(r"tool_choice"),
        FORM: re.compile(r"output_config|output_format|json_schema", re.IGNORECASE),
        THINKING: re.compile(r"\bthinking[.:]|block_binding|anthropic-beta|adaptive", re.IGNORECASE),
    }

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = memo_for()

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model takes."""
        return honoured_by(self.model, settings)

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        return encode(request, self.model, self._memo, self.without)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        from anthropic import APIStatusError

        decoder = Decoder(self.model)
        body = self.body(request)
        messages = body["messages"]
        for _ in range(_PAUSES):
            stream = await self._post(body)
            try:
                with self._reading():
                    async with stream:
                        async for event in stream:
                            for part_event in decoder.feed(event):
                                yield part_event
            except APIStatusError as error:  # an error event, which the SDK raises by itself
                raise refusal(None, error.body, self.model) from error
            self._check_type(stream.response)
            decoder.close()
            if not decoder.paused:
                return
            body["messages"] = [*messages, *encode_answer(decoder.parts)]
        raise broken(f"{self.who} paused it {_PAUSES} times")

    async def _post(self, body: Json) -> "AsyncStream[object]":
        client = await self._client()
        from anthropic import AnthropicError, APIStatusError, AsyncStream

        binding = "block_binding" in body.get(THINKING, {})
        try:
            return await client.post(
                "/v1/messages",
                cast_to=object,
                content=self._memo.write(body, "messages"),  # the SDK would copy a dict first, item by item
                options={"headers": {"anthropic-beta": BINDING}} if binding else {},
                stream=True,
                stream_cls=AsyncStream[object],
            )
        except APIStatusError as error:
            wait = retry_after(error.response.headers)
            raise self._refused(refusal(error.status_code, error.body, self.model, retry_after=wait), body) from error
        except AnthropicError as error:
            raise unreachable(self.who, error, BASE_URL, self.base_url) from error
        except (ValueError, RecursionError) as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error

    @staticmethod
    def _connect(found: tuple[str, str]) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic

        url, key = found
        # No retries of the SDK's: the loop retries, and shows it.
        return AsyncAnthropic(base_url=url, api_key=key, max_retries=0, http_client=http_client(), open_telemetry=False)
