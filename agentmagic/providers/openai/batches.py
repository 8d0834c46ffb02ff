"""OpenAI's Batch API, for requests to `/v1/responses`.

A file with the requests is uploaded, and a batch is created from it. One file has the answers, another the errors.

https://developers.openai.com/api/docs/guides/batch and https://developers.openai.com/api/reference/resources/batches
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from agentmagic.errors import ProviderError
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
from agentmagic.providers.clients import Decoder
from agentmagic.providers.error_bodies import find_error
from agentmagic.providers.failures import Fault, quote
from agentmagic.providers.openai.client import OpenAIClient, error_for, fault_of
from agentmagic.providers.wire import Json, count_of, number_of, object_of, objects_of, text_of, write_body

if TYPE_CHECKING:
    import httpx2

_DONE = frozenset({"completed", "failed", "expired", "cancelled"})
_FATES = {"expired": EXPIRED, "batch_expired": EXPIRED, "cancelled": CANCELED, "batch_cancelled": CANCELED}
"""Why a request has no answer, by the status of its batch or by the code of its own error."""


class OpenAIBatches(RemoteBatches):
    """The batch API for a model that is reached through OpenAI's Responses API."""

    # From https://developers.openai.com/api/docs/guides/batch#rate-limits.
    limits = BatchLimits(50_000, 200_000_000)

    def __init__(self, model: OpenAIClient, decoder: Callable[[], Decoder]) -> None:
        super().__init__(model)
        self._model = model
        self._decoder = decoder

    def line(self, key: str, request: Request) -> bytes:
        """Return a request as the JSON line that is written into the file of a batch; `key` identifies its result."""
        body = {name: value for name, value in self._model.body(request).items() if name != "stream"}
        return write_body({"custom_id": key, "method": "POST", "url": "/v1/responses", "body": body})

    async def _submit(self, content: bytes) -> object:
        upload = await self._model.open("post", "/files", {"purpose": "batch"}, file=content)
        file = self._new_id(object_of(await self._model.whole(upload)).get("id"))
        body = {"input_file_id": file, "endpoint": "/v1/responses", "completion_window": "24h"}
        return object_of(await self._model.whole(await self._model.open("post", "/batches", body))).get("id")

    async def _open(self, what: Literal["batch", "cancel", "file"], name: str) -> "httpx2.Response":
        match what:
            case "batch":
                return await self._model.open("get", f"/batches/{name}")
            case "cancel":
                return await self._model.open("post", f"/batches/{name}/cancel")
            case "file":
                return await self._model.open("get", f"/files/{name}/content")

    def _state(self, batch: Json) -> BatchState:
        word, counts = quote(batch.get("status")), object_of(batch.get("request_counts"))
        total, successes, failures = (count_of(counts.get(name)) for name in ("total", "completed", "failed"))
        return BatchState(word, word in _DONE, total, successes, failures)

    def _files(self, batch: Json) -> tuple[object, ...]:
        return (batch.get("output_file_id"), batch.get("error_file_id"))

    def _result(self, line: Json) -> tuple[object, Callable[[], BatchAnswer]]:
        return line.get("custom_id"), lambda: self._answer(line)

    def _answer(self, line: Json) -> BatchAnswer:
        if error := object_of(line.get("error")):
            why = _FATES.get(text_of(error.get("code")))
            return unanswered_error(self.who, why) if why else self._error(fault_of(error))
        response = object_of(line.get("response"))
        status, body = number_of(response.get("status_code")), response.get("body")
        if status is not None and status >= 400:  # noqa: PLR2004  (HTTP: a refusal)
            return self._error(fault_of(object_of(body).get("error") or body, status))
        if object_of(body).get("output") is None and (failure := find_error(body)):
            return self._error(fault_of(failure))
        return decode_answer(self._decoder(), body)

    def _missing_reason(self, batch: Json) -> ProviderError | None:
        word = text_of(batch.get("status"))
        if word != "failed":
            return unanswered_error(self.who, _FATES[word]) if word in _FATES else None
        error = (objects_of(object_of(batch.get("errors")).get("data")) or [{}])[0]
        code = text_of(error.get("code"))
        # This code means that all queued batches together have too many tokens, so a later try can succeed:
        # https://developers.openai.com/api/docs/guides/batch#rate-limits
        status = 429 if code == "token_limit_exceeded" else 400
        return self._error(Fault(text_of(error.get("message")), code, status))

    def _error(self, fault: Fault) -> ProviderError:
        return error_for(fault, who=self.who, model=self._model.model)
