"""Batches: many requests that a provider answers within a day, for half the price.

A model offers its provider's batch API through a method `batches`. The id of a batch stays valid in other processes: it
can be saved to a file, and the results collected later.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast, runtime_checkable

from agentmagic.errors import BadRequest, ProviderError, Unavailable
from agentmagic.messages import Usage
from agentmagic.providers.base import Model, ModelEvent, ModelFinished, ModelSettings, Request, honoured_settings
from agentmagic.providers.clients import LONGEST_EVENT, LONGEST_RESPONSE, Decoder, RemoteModel, adding_usage
from agentmagic.providers.failures import connection_broken, quote, stream_broken
from agentmagic.providers.registry import address_of, priced, search_fees, usage_with_cost
from agentmagic.providers.streams import read_json
from agentmagic.providers.wire import Json, object_of, text_of

if TYPE_CHECKING:
    import httpx2

PRICE = 0.5
"""The price of a token in a batch, as a fraction of the usual price.

https://developers.openai.com/api/docs/guides/batch, https://platform.claude.com/docs/en/build-with-claude/batch-processing
and https://ai.google.dev/gemini-api/docs/batch-api
"""

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A legal key of a request: Anthropic's rule for a `custom_id`, the strictest."""

_ID = re.compile(r"(?:[a-z]+/)?[A-Za-z0-9][A-Za-z0-9_.:=-]{0,199}")
"""A legal id of a batch or of a file. The id is used in URLs; an id of Gemini has two parts with a slash between."""

_MISSING_STATUSES = frozenset({404, 405, 410, 501})
"""HTTP statuses of a server that has no batch API, or does not know the batch."""

_BYTES_OF_RESULT = 2**20
"""The most bytes of one result on average; reading a larger file of results is aborted."""

_ENCODE_CHUNK = 100
"""The number of requests that are encoded before other tasks of the event loop can run."""

BatchAnswer = list[ModelEvent] | ProviderError
"""The outcome of a request: the events of a whole answer, with usage and cost, or the error why it has no answer."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one batch: the number of requests, and the total size of the requests in bytes."""

    requests: int
    size: int


@dataclass(frozen=True, slots=True)
class BatchState:
    """The progress of a batch; `word` is the provider's own name for the state.

    `done` is True when the batch has ended, even if it failed, expired or was canceled. `Batches.results` can then
    yield the outcome of each request. The counts are 0 if the provider does not report them.
    """

    word: str
    done: bool
    total: int = 0
    finished: int = 0
    failed: int = 0


class Batches(Protocol):
    """The batch API of a model's provider. Every failure is a ProviderError. Requests are not retried."""

    @property
    def limits(self) -> BatchLimits:
        """The limits of one batch."""
        ...

    def line(self, key: str, request: Request) -> bytes:
        """Return a request encoded as the provider's batch API needs it; `key` identifies its result."""
        ...

    async def submit(self, requests: Sequence[tuple[str, Request]]) -> str:
        """Send requests as one batch, and return the id of the batch.

        Each request has a unique key that matches `KEY`; other keys raise ValueError. After StreamBroken or a
        cancellation it is unknown whether the batch was created.
        """
        ...

    async def state(self, batch_id: str) -> BatchState:
        """Return the progress of a batch. Raises Unavailable if a retry can help, BadRequest if the id is unknown."""
        ...

    def results(self, batch_id: str, keys: Collection[str]) -> AsyncIterator[tuple[str, BatchAnswer]]:
        """Yield the key and the outcome of each request with one of these keys, in any order.

        Other requests of the batch are skipped. Raises Unavailable if the batch is not done.
        """
        ...

    async def cancel(self, batch_id: str) -> None:
        """Ask the provider to stop a batch. The batch ends some time later, with the answers that it has by then."""
        ...


@runtime_checkable
class Batching(Protocol):
    """A model for which the provider may offer a batch API: many requests, answered within a day, at half the price."""

    def batches(self) -> Batches | None:
        """Return the provider's batch API for this model, or None if none exists."""
        ...


def batches_of(model: Model) -> Batches | None:
    """Return the batch API of a model's provider, or None if agentmagic supports none for this model."""
    return model.batches() if isinstance(model, Batching) else None


async def split(
    batches: Batches, requests: Iterable[tuple[str, Request]]
) -> AsyncIterator[Sequence[tuple[str, Request]]]:
    """Yield the requests in groups that are within the limits of one batch.

    A single request that is larger than the limit becomes a group of its own. The provider will refuse it.
    """
    limits, piece, size = batches.limits, list[tuple[str, Request]](), 0
    for key, request in requests:
        length = len(batches.line(key, request)) + 1
        if piece and (len(piece) == limits.requests or size + length > limits.size):
            yield piece
            piece, size = [], 0
        piece.append((key, request))
        size += length
        if len(piece) % _ENCODE_CHUNK == 0:
            await asyncio.sleep(0)
    if piece:
        yield piece


def decode_answer(decoder: Decoder, answer: object) -> BatchAnswer:
    """Return the model events for one answer of a batch, which came as a whole and can be any JSON.

    Returns the error instead, if the answer reports an error or cannot be decoded.
    """
    try:
        with adding_usage(decoder):
            events = [*decoder.feed(answer), *decoder.close()]
            if not any(isinstance(event, ModelFinished) for event in events):
                raise stream_broken("the provider paused it, and an answer of a batch cannot go on.")
    except ProviderError as failure:
        return failure
    return events


def unanswered_error(who: str, why: str) -> Unavailable:
    """Return the error for a request of a batch that got no answer; `who` is the server, `why` the reason."""
    return Unavailable(f"{who} did not answer this request: {why}. Ask it again.")


EXPIRED = "its batch expired first"
CANCELED = "its batch was canceled first"
_NOT_NAMED = "the results of its batch do not name it"


class RemoteBatches(ABC):
    """The base class of the providers' batch APIs: checks ids, reads result files, adds costs and explains errors.

    `frame` has the bytes to send before, between and after the encoded requests. `cheap_cache` is True if the lower
    price of batches applies to cached tokens too. In methods, `name` is the id of a batch or of a file on the server.
    """

    limits: ClassVar[BatchLimits]
    frame: ClassVar[tuple[bytes, bytes, bytes]] = (b"", b"\n", b"\n")
    cheap_cache: ClassVar[bool] = True

    def __init__(self, model: RemoteModel[Any, Any]) -> None:
        self._remote = model

    @property
    def who(self) -> str:
        """The name of the server in error messages."""
        return self._remote.who

    @abstractmethod
    def line(self, key: str, request: Request) -> bytes:
        """Return a request encoded as the provider's batch API needs it; `key` identifies its result."""

    @abstractmethod
    async def _submit(self, content: bytes) -> object:
        """Create a batch from the encoded requests. Return the id of the batch as the server sent it, unchecked."""

    @abstractmethod
    async def _open(self, what: Literal["batch", "cancel", "file"], name: str) -> "httpx2.Response":
        """Send a request to the server, and return the open response.

        `what` says what to request: the state of the batch `name`, its cancellation, or the content of the file `name`.
        """

    @abstractmethod
    def _state(self, batch: Json) -> BatchState:
        """Return the progress of a batch that the server describes as `batch`."""

    @abstractmethod
    def _files(self, batch: Json) -> Iterable[object]:
        """Return the ids of a batch's result files, unchecked, as the server sent them. A missing file gives None."""

    @abstractmethod
    def _result(self, line: Json) -> tuple[object, Callable[[], BatchAnswer]]:
        """Return the key in one line of a result file, unchecked, and a function that decodes the line's answer."""

    def _missing_reason(self, batch: Json) -> ProviderError | None:
        """Return the error to report for each request of a batch that got no result.

        `batch` is the server's description of the batch. Returns None if it does not say why results are missing.
        """
        del batch

    async def submit(self, requests: Sequence[tuple[str, Request]]) -> str:
        """Send requests as one batch, each with its key, and return the id of the batch."""
        keys = [key for key, _ in requests]
        if not all(map(KEY.fullmatch, keys)) or len(set(keys)) < len(keys):
            message = (
                f"The keys of a batch are different texts of up to 64 letters, digits, - and _, not {keys!r:.200}."
            )
            raise ValueError(message)
        content, (begin, joint, end) = BytesIO(), self.frame
        for place, (key, request) in enumerate(requests):
            content.write(joint if place else begin)
            content.write(self.line(key, request))
            if place % _ENCODE_CHUNK == 0:
                await asyncio.sleep(0)
        content.write(end)
        with self._explain_missing():
            return self._new_id(await self._submit(content.getvalue()))

    async def state(self, batch_id: str) -> BatchState:
        """Return the progress of a batch."""
        return self._state(await self._batch(batch_id))

    async def results(self, batch_id: str, keys: Collection[str]) -> AsyncGenerator[tuple[str, BatchAnswer]]:
        """Yield the key and the outcome of each request with one of these keys."""
        batch = await self._batch(batch_id)
        if not (state := self._state(batch)).done:
            raise Unavailable(f"The batch {batch_id} of {self.who} is not done ({state.word}). Collect it later.")
        remaining, most = dict.fromkeys(keys), LONGEST_RESPONSE + len(keys) * _BYTES_OF_RESULT
        for name in filter(None, map(_read_id, self._files(batch))):
            if not remaining:
                return
            async with aclosing(self._lines(batch_id, name, most)) as lines:
                async for line in lines:
                    raw_key, read = self._result(line)
                    if (key := text_of(raw_key)) in remaining:
                        del remaining[key]
                        yield key, self._add_cost(read())
        for key in remaining:
            yield key, self._missing_reason(batch) or unanswered_error(self.who, _NOT_NAMED)

    async def cancel(self, batch_id: str) -> None:
        """Ask the provider to stop a batch."""
        with self._explain_missing(batch_id):
            await (await self._open("cancel", _check_id(batch_id))).aclose()

    def _new_id(self, raw_id: object) -> str:
        """Return the id that a server gave to a new batch or file. Raises BadRequest if the id cannot be used."""
        if (name := _read_id(raw_id)) is None:
            raise BadRequest(f"{self.who} took the requests, but gave them no id that can be used. Check the base URL.")
        return name

    async def _batch(self, batch_id: str) -> Json:
        """Fetch and return the server's description of a batch."""
        with self._explain_missing(batch_id):
            return object_of(await self._remote.whole(await self._open("batch", _check_id(batch_id))))

    async def _lines(self, batch_id: str, name: str, most: int) -> AsyncGenerator[Json]:
        """Download a result file, and yield those of its lines that are JSON objects; `most` is its limit in bytes."""
        import httpx2

        with self._explain_missing(batch_id):
            response = await self._open("file", name)
        # Call the method of the class. On the instance, `http_client` replaced it with a method that stops at the size
        # limit of a single answer, but the results file of a batch can be larger.
        reads = type(response).aiter_bytes(response)
        try:
            async with aclosing(response), aclosing(_cut_lines(reads, self.who, most)) as lines:
                async for line in lines:
                    try:
                        result = object_of(read_json(line.decode()))
                    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
                        continue
                    yield result
        except httpx2.HTTPError as error:
            raise connection_broken(self.who, error) from error

    def _add_cost(self, answer: BatchAnswer) -> BatchAnswer:
        """Add the cost, at the reduced price of batches, to the usage in an answer. Return the answer."""
        if isinstance(answer, ProviderError):
            answer.usage = answer.usage and self._cost(answer.usage)
            return answer
        *parts, last = answer
        return [*parts, replace(last, usage=self._cost(last.usage)) if isinstance(last, ModelFinished) else last]

    def _cost(self, usage: Usage) -> Usage:
        """Return the usage of one answer with its cost, at the reduced price of batches."""
        usage = self._price(replace(usage, requests=1))
        if usage.cost is None:
            return usage
        fees = search_fees(self._remote.name, usage, self._remote.base_url) or 0.0
        cost = PRICE * (usage.cost - fees) + fees
        if usage.cached_tokens and not self.cheap_cache:
            # Cached tokens get no batch discount, so their discount is added to the cost again. Their price can depend
            # on the length of the whole prompt. So it is computed for a prompt of this length that has only cached
            # tokens, and then multiplied by the real share of cached tokens.
            cached_cost = self._price(Usage(usage.input_tokens, usage.input_tokens, requests=1)).cost or 0.0
            cost += (1 - PRICE) * cached_cost * usage.cached_tokens / usage.input_tokens
        return replace(usage, cost=cost)

    def _price(self, usage: Usage) -> Usage:
        return priced(self._remote.name, usage, self._remote.base_url)

    @contextmanager
    def _explain_missing(self, batch_id: str = "") -> Generator[None]:
        """Replace a "not found" error in the `with` block by an error about the batch, or about a missing batch API.

        Without this, the message would say that the model was not found.
        """
        try:
            yield
        except ProviderError as failure:
            if failure.status not in _MISSING_STATUSES:
                raise
            message = f"{self.who} took no batch of {self._remote.model} ({failure.status}): it may have no batch API."
            advice = "Send the requests one by one, or check the name and the base URL."
            if batch_id:
                message = f"{self.who} does not know the batch {batch_id}, or no longer ({failure.status})."
                advice = "Use the key and the address that it was made with, or ask its requests again."
            raise BadRequest(f"{message} {advice}", status=failure.status) from failure


def _read_id(value: object) -> str | None:
    """Return the id of a batch or file from a server's response, or None if the value cannot be such an id."""
    return name if _ID.fullmatch(name := text_of(value)) else None


def _check_id(batch_id: str) -> str:
    if (name := _read_id(batch_id)) is None:
        raise BadRequest(f"{quote(batch_id)[:80]!r} is not the id of a batch.")
    return name


async def _cut_lines(reads: AsyncGenerator[bytes], who: str, most: int) -> AsyncGenerator[bytes]:
    """Join the pieces of a result file (`reads`), and yield its lines. Lines over `LONGEST_EVENT` bytes are shortened.

    Raises StreamBroken if the file has more than `most` bytes.
    """
    line, read = bytearray(), 0
    async with aclosing(reads):
        async for chunk in reads:
            read += len(chunk)
            if read > most:
                failure = stream_broken(f"{who} sent results of over {most >> 20} MB.")
                failure.retryable = False
                raise failure
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield bytes(line + end[: LONGEST_EVENT - len(line)])
                line.clear()
            line += rest[: LONGEST_EVENT - len(line)]
    yield bytes(line)


class BatchedModel:
    """A model that answers its first request with an answer from a batch.

    Later requests, such as a request to repair a bad answer, go to the model itself. `aclose` does not close the model.
    """

    def __init__(self, model: Model, answer: Sequence[ModelEvent]) -> None:
        self.name = model.name
        self.base_url = address_of(model)
        self._model = model
        self._answer: Sequence[ModelEvent] | None = answer

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model honours."""
        return honoured_settings(self._model, settings).given

    def price_usage(self, usage: Usage) -> Usage:
        """Return the usage of one request with its cost. The usage of the answer from the batch has it already."""
        return usage_with_cost(self._model, usage) if usage.cost is None else usage

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """Yield the answer from the batch for the first request; send all later requests to the model."""
        answer, self._answer = self._answer, None
        if answer is not None:
            for event in answer:
                yield event
            return
        async with aclosing(cast("AsyncGenerator[ModelEvent]", self._model.stream(request))) as stream:
            async for event in stream:
                yield event

    async def aclose(self) -> None:
        """Do nothing: the model is shared with the other rows of a map."""
