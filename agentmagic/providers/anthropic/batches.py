"""Anthropic's Message Batches API: one HTTP request submits all model requests, and one file has all results.

https://platform.claude.com/docs/en/build-with-claude/batch-processing
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from agentmagic.providers.anthropic.decoder import Decoder, refusal
from agentmagic.providers.base import Request
from agentmagic.providers.batch import (
    CANCELED,
    EXPIRED,
    BatchAnswer,
    BatchLimits,
    BatchState,
    RemoteBatches,
    decode_answer,
    unanswered_error,
)
from agentmagic.providers.clients import RemoteModel
from agentmagic.providers.failures import quote
from agentmagic.providers.wire import Json, count_of, object_of, text_of, write_body

if TYPE_CHECKING:
    import httpx2

_PATH = "/v1/messages/batches"
_BETA = b'"block_binding":'
"""A field that only requests with the beta have. The text of a message cannot contain it: its quotes are escaped."""
_FATES = {"expired": EXPIRED, "canceled": CANCELED}


class AnthropicBatches(RemoteBatches):
    """The batch API of one Anthropic model; `send` is the model's method `open`, which sends an HTTP request."""

    # A batch can have 256 MB. 100 of the bytes are kept for `frame`:
    # https://platform.claude.com/docs/en/build-with-claude/batch-processing#batch-limitations
    limits = BatchLimits(100_000, 256_000_000 - 100)
    frame = (b'{"requests":[', b",", b"]}")

    def __init__(self, model: RemoteModel[Any, Any], send: "Callable[..., Awaitable[httpx2.Response]]") -> None:
        super().__init__(model)
        self._send = send

    def line(self, key: str, request: Request) -> bytes:
        """Return a model request as JSON bytes, as the batch contains it; `key` identifies its result."""
        params = {name: value for name, value in self._remote.body(request).items() if name != "stream"}
        return write_body({"custom_id": key, "params": params})

    async def _submit(self, content: bytes) -> object:
        response = await self._send("post", _PATH, content, beta=_BETA in content)
        return object_of(await self._remote.whole(response)).get("id")

    async def _open(self, what: Literal["batch", "cancel", "file"], name: str) -> "httpx2.Response":
        match what:
            case "batch":
                return await self._send("get", f"{_PATH}/{name}")
            case "cancel":
                return await self._send("post", f"{_PATH}/{name}/cancel")
            case "file":
                return await self._send("get", f"{_PATH}/{name}/results")

    def _state(self, batch: Json) -> BatchState:
        word, counts = quote(batch.get("processing_status")), object_of(batch.get("request_counts"))
        waiting, successes, *failures = (
            count_of(counts.get(name)) for name in ("processing", "succeeded", "errored", "expired", "canceled")
        )
        return BatchState(word, word == "ended", waiting + successes + sum(failures), successes, sum(failures))

    def _files(self, batch: Json) -> tuple[object, ...]:
        # Not `results_url`, because the API key would be sent to whatever server that URL names.
        return (batch.get("id"),)

    def _result(self, line: Json) -> tuple[object, Callable[[], BatchAnswer]]:
        return line.get("custom_id"), lambda: self._answer(object_of(line.get("result")))

    def _answer(self, result: Json) -> BatchAnswer:
        kind = text_of(result.get("type"))
        if kind in _FATES:
            return unanswered_error(self.who, _FATES[kind])
        if kind == "errored":
            return refusal(None, result.get("error"), self._remote.model, who=self.who)
        return decode_answer(Decoder(self._remote.model), result.get("message"))
