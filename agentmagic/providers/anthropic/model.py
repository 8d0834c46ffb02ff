"""`anthropic:MODEL`: Anthropic's Messages API, through the anthropic SDK.

This is the only module that imports the SDK, for its authentication and its errors. The stream is read without the SDK,
which would build a pydantic model for every event.
"""

import re
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from agentmagic.errors import BadRequest, ProviderError
from agentmagic.messages import HostedTool
from agentmagic.providers.addresses import split_query
from agentmagic.providers.anthropic import BASE_URL, PROVIDERS
from agentmagic.providers.anthropic.batches import AnthropicBatches
from agentmagic.providers.anthropic.decoder import Decoder, refusal
from agentmagic.providers.anthropic.encoder import (
    BINDING,
    FORCED_CHOICE,
    FORM,
    THINKING,
    encode,
    encode_answer,
    honoured_names,
    hosts,
    is_beta,
    memo_for,
)
from agentmagic.providers.anthropic.server_blocks import fetched_pages
from agentmagic.providers.base import ModelEvent, ModelSettings, Request
from agentmagic.providers.clients import RemoteModel, adding_usage, http_client
from agentmagic.providers.failures import connection_broken, sentence, stream_broken, unreachable
from agentmagic.providers.wire import Json, omit_fields, retry_after, write_body

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

_PAUSES = 20
"""The most responses that one answer can consist of. Every response except the last ends in a pause."""


class Anthropic(RemoteModel[tuple[str, str], "AsyncAnthropic"]):
    """A model behind Anthropic's Messages API, or behind another server that speaks this API."""

    row = PROVIDERS[0]
    mark = "type"
    vendor = "Anthropic"
    own_url = "https://api.anthropic.com"
    added = re.compile(r"/v1(?:/messages)?$")
    refusable = {  # noqa: RUF012  (declared as a class variable by the base)
        FORCED_CHOICE: re.compile(r"tool_choice"),
        FORM: re.compile(r"output_config(?!\.effort)|output_format|json_schema", re.IGNORECASE),
        THINKING: re.compile(r"\bthinking[.:]|block_binding|anthropic-beta|adaptive", re.IGNORECASE),
    }

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = memo_for()

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of those `settings` that the model accepts."""
        return honoured_names(self.model, settings)

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether Anthropic runs the tool itself for this model."""
        return hosts(self.model, tool)

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        return omit_fields(encode(self.refused.fit(request), self.model, self._memo, self.without), self.without)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        decoder = Decoder(self.model, fetched_pages(part for message in request.messages for part in message.parts))
        # If a later response of this answer fails, the earlier responses are still billed.
        with self._sending(request) as body, adding_usage(decoder):
            messages = body["messages"]
            for _ in range(_PAUSES):
                response = await self.open("post", "/v1/messages", body, beta=is_beta(body))
                async with aclosing(self._events(response, decoder, body)) as events:
                    async for event in events:
                        yield event
                if not decoder.paused:
                    return
                body["messages"] = [*messages, *encode_answer(decoder.parts)]
            raise stream_broken(f"{self.who} paused it {_PAUSES} times")

    def batches(self) -> AnthropicBatches:
        """Return the batch API of this model. A server that only imitates Anthropic's API may not have one."""
        return AnthropicBatches(self, self.open)

    async def open(
        self, method: Literal["get", "post"], path: str, body: Json | bytes | None = None, *, beta: bool = False
    ) -> "httpx2.Response":
        """Send an HTTP request and return the open response.

        With `beta`, the request gets the header for the beta feature that `is_beta` looks for in a body.
        """
        client = await self._client()
        import httpx2
        from anthropic import AnthropicError, APIStatusError, AsyncStream

        # With this `cast_to`, the SDK returns the open response instead of reading it.
        options: Json = {"cast_to": httpx2.Response, "stream": True, "stream_cls": AsyncStream[object]}
        fields = body if isinstance(body, dict) else {}
        try:
            if body is not None:  # encoded here as bytes, because the SDK would copy a dict item by item
                options["content"] = body if isinstance(body, bytes) else write_body(body)
            if beta:
                options["options"] = {"headers": {"anthropic-beta": BINDING}}
            response: Any = await getattr(client, method)(path, **options)
        except APIStatusError as error:
            wait = retry_after(error.response.headers)
            asked = str(error.response.url)
            failure = refusal(error.status_code, error.body, self.model, retry_after=wait, who=self.who, asked=asked)
            raise self._note_refusal(failure, fields, error.body) from error
        except AnthropicError as error:
            raise unreachable(self.who, error, BASE_URL, self.base_url) from error
        except httpx2.HTTPError as error:  # the connection broke while the SDK read an error response
            raise connection_broken(self.who, error) from error
        except (ValueError, RecursionError) as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error
        return response

    def _reported(self, error: Json) -> ProviderError:
        return refusal(None, {"error": error}, self.model, who=self.who)

    @staticmethod
    def _connect(access: tuple[str, str]) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic

        url, key = access
        # The SDK must not retry: the agent loop retries, and shows that to the user.
        base, _ = split_query(url)
        client = http_client(address=url)
        return AsyncAnthropic(base_url=base, api_key=key, max_retries=0, http_client=client, open_telemetry=False)
