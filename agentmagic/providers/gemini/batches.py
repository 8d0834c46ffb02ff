"""Gemini's batch API: a file with the requests is uploaded, a batch is created from it, and a file has the results.

https://ai.google.dev/gemini-api/docs/batch-api and https://ai.google.dev/api/batch-api
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

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
from agentmagic.providers.clients import RemoteModel
from agentmagic.providers.failures import quote
from agentmagic.providers.gemini.decoder import Decoder, refusal
from agentmagic.providers.wire import Json, count_of, object_of, write_body

if TYPE_CHECKING:
    import httpx2
    from google.genai.client import AsyncClient

_DONE = frozenset({"succeeded", "partially_succeeded", "failed", "cancelled", "expired"})
_FATES = {"expired": EXPIRED, "cancelled": CANCELED}
_STATUS_OF = dict(enumerate((499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401), 1))
"""The HTTP status for an error code of https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto"""


class SdkCalls(Protocol):
    """The methods of a `Gemini` model through which its batch API sends requests with Google's SDK."""

    async def open(self, call: "Callable[[AsyncClient], Awaitable[object]]") -> "httpx2.Response":
        """Run an SDK call until it sends its first HTTP request, and return the open response to this request.

        Raises ProviderError.
        """
        ...

    async def upload(self, content: bytes) -> "httpx2.Response":
        """Upload `content` as a file to Google, and return the open response."""
        ...


class GeminiBatches(RemoteBatches):
    """The batch API of a model of the Gemini API. Vertex AI has another batch API, which is not supported here.

    Google allows files of 2 GB with any number of requests. The limits here are lower, as requests are kept in memory.
    """

    limits = BatchLimits(50_000, 200_000_000)
    # The batch discount does not apply to cached tokens: see the section "Technical details" of the batch guide.
    cheap_cache = False

    def __init__(self, model: RemoteModel[Any, Any], calls: SdkCalls) -> None:
        super().__init__(model)
        self._calls = calls

    def line(self, key: str, request: Request) -> bytes:
        """Return a request as the JSON line that is written into the file of a batch; `key` identifies its result."""
        return write_body({"key": key, "request": self._remote.body(request)})

    async def _submit(self, content: bytes) -> object:
        upload = await self._calls.upload(content)
        file = self._new_id(object_of(object_of(await self._remote.whole(upload)).get("file")).get("name"))
        batch = await self._calls.open(lambda aio: aio.batches.create(model=self._remote.model, src=file))
        return object_of(await self._remote.whole(batch)).get("name")

    async def _open(self, what: Literal["batch", "cancel", "file"], name: str) -> "httpx2.Response":
        match what:
            case "batch":
                return await self._calls.open(lambda aio: aio.batches.get(name=name))
            case "cancel":
                return await self._calls.open(lambda aio: aio.batches.cancel(name=name))
            case "file":
                return await self._calls.open(lambda aio: aio.files.download(file=name))

    def _state(self, batch: Json) -> BatchState:
        about = object_of(batch.get("metadata"))
        # The state is "JOB_STATE_RUNNING" or "BATCH_STATE_RUNNING", for example.
        word = quote(about.get("state")).rpartition("STATE_")[2].lower()
        stats = object_of(about.get("batchStats"))
        names = ("requestCount", "successfulRequestCount", "failedRequestCount")
        total, successes, failures = (count_of(stats.get(name)) for name in names)
        return BatchState(word, batch.get("done") is True or word in _DONE, total, successes, failures)

    def _files(self, batch: Json) -> tuple[object, ...]:
        output = object_of(batch.get("response")) or object_of(object_of(batch.get("metadata")).get("output"))
        return (output.get("responsesFile"),)

    def _result(self, line: Json) -> tuple[object, Callable[[], BatchAnswer]]:
        return line.get("key"), lambda: self._answer(line)

    def _answer(self, line: Json) -> BatchAnswer:
        if error := object_of(line.get("error")):
            return self._error(error)
        return decode_answer(Decoder(self._remote.model), line.get("response"))

    def _missing_reason(self, batch: Json) -> ProviderError | None:
        if why := _FATES.get(self._state(batch).word):
            return unanswered_error(self.who, why)
        error = object_of(batch.get("error"))
        return self._error(error) if error else None

    def _error(self, error: Json) -> ProviderError:
        status = _STATUS_OF.get(count_of(error.get("code")))
        return refusal(status, {"error": error}, self._remote.model, who=self.who)
