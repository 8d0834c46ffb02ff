"""Batches: many requests that a provider answers within a day, for half the price.

A model offers its provider's batch API by a method `batches`. The ids of batches may be kept in a file: another process
collects by them.
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
from agentmagic.providers.base import Model, ModelEvent, ModelFinished, ModelSettings, Request, honoured
from agentmagic.providers.clients import LONGEST_EVENT, LONGEST_RESPONSE, Decoder, RemoteModel, counting
from agentmagic.providers.failures import broken, cut_off, quoted
from agentmagic.providers.registry import address_of, counted, priced, search_fees
from agentmagic.providers.streams import read_json
from agentmagic.providers.wire import Json, object_of, text_of

if TYPE_CHECKING:
    import httpx2

PRICE = 0.5
"""The price of a token in a batch, as a share of the usual price.

https://developers.openai.com/api/docs/guides/batch, https://platform.claude.com/docs/en/build-with-claude/batch-processing
and https://ai.google.dev/gemini-api/docs/batch-api
"""

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A legal key of a request: Anthropic's rule for a `custom_id`, the strictest."""

_ID = re.compile(r"(?:[a-z]+/)?[A-Za-z0-9][A-Za-z0-9_.:=-]{0,199}")
"""A legal id of a batch or of a file, which becomes a part of an address; those of Gemini have two parts."""

_NOT_THERE = frozenset({404, 405, 410, 501})
"""HTTP statuses of a server that has no batch API, or not that batch."""

_BYTES_OF_RESULT = 2**20
"""Bytes of one result on average, beyond which a file of results is broken off."""

_ENCODED_AT_ONCE = 100
"""Requests that are encoded before other work of the event loop gets its turn."""

BatchAnswer = list[ModelEvent] | ProviderError
"""What came of a request: the events of a whole answer, its usage with the cost, or why there is none."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most requests, and the most bytes of all requests, that one batch takes."""

    requests: int
    size: int


@dataclass(frozen=True, slots=True)
class BatchState:
    """How far a batch has come; `word` is the provider's own. The counts are 0 if the provider does not tell them.

    `done` says that nothing more happens, also if the batch has failed, expired or been canceled: `results` has what
    came of each request.
    """

    word: str
    done: bool
    total: int = 0
    finished: int = 0
    failed: int = 0


class Batches(Protocol):
    """The batch API of a model's provider. Every failure is a ProviderError; nothing is sent again by itself."""

    @property
    def limits(self) -> BatchLimits:
        """The most that one batch takes."""
        ...

    def line(self, key: str, request: Request) -> bytes:
        """Return a request as it is written into a batch."""
        ...

    async def submit(self, requests: Sequence[tuple[str, Request]]) -> str:
        """Send requests, each with a key that fits `KEY` and stands once, and return the id of the batch.

        StreamBroken and a cancellation leave open whether there is a batch. Raises ValueError for other keys.
        """
        ...

    async def state(self, batch_id: str) -> BatchState:
        """Return how far a batch has come. Raises Unavailable if another try may help, BadRequest for an unknown id."""
        ...

    def results(self, batch_id: str, keys: Collection[str]) -> AsyncIterator[tuple[str, BatchAnswer]]:
        """Yield what came of the requests with these keys, each once, in any order; others in the batch are left out.

        Raises Unavailable if the batch is not done.
        """
        ...

    async def cancel(self, batch_id: str) -> None:
        """Ask the provider to stop a batch; it is done some time later, with the answers that it has by then."""
        ...


@runtime_checkable
class Batching(Protocol):
    """A model whose provider may have a batch API."""

    def batches(self) -> Batches | None:
        """Return the batch API, None if there is none for this model."""
        ...


def batches_of(model: Model) -> Batches | None:
    """Return the batch API of a model's provider, or None if it has none that we know."""
    return model.batches() if isinstance(model, Batching) else None


async def split(
    batches: Batches, requests: Iterable[tuple[str, Request]]
) -> AsyncIterator[Sequence[tuple[str, Request]]]:
    """Yield the requests, cut into batches that the provider takes.

    A request that is larger than a batch may be gets one of its own, which the provider refuses.
    """
    limits, piece, size = batches.limits, list[tuple[str, Request]](), 0
    for key, request in requests:
        length = len(batches.line(key, request)) + 1
        if piece and (len(piece) == limits.requests or size + length > limits.size):
            yield piece
            piece, size = [], 0
        piece.append((key, request))
        size += length
        if len(piece) % _ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    if piece:
        yield piece


def decoded(decoder: Decoder, answer: object) -> BatchAnswer:
    """Return the events of a whole answer, which can be any JSON."""
    try:
        with counting(decoder):
            events = [*decoder.feed(answer), *decoder.close()]
            if not any(isinstance(event, ModelFinished) for event in events):
                raise broken("the provider paused it, and an answer of a batch cannot go on.")
    except ProviderError as failure:
        return failure
    return events


def unanswered(who: str, why: str) -> Unavailable:
    """Return the error for a request in a batch that no answer came to."""
    return Unavailable(f"{who} did not answer this request: {why}. Ask it again.")


EXPIRED = "its batch expired first"
CANCELED = "its batch was canceled first"
_NOT_NAMED = "the results of its batch do not name it"


class RemoteBatches(ABC):
    """The batch API of a server, the base of such: ids, results line by line, errors, the cost.

    `frame` is what stands before, between and behind the encoded requests. `cheap_cache` says that tokens read from a
    cache are cheaper in a batch too. The `name` of a batch or of a file is its id.
    """

    limits: ClassVar[BatchLimits]
    frame: ClassVar[tuple[bytes, bytes, bytes]] = (b"", b"\n", b"\n")
    cheap_cache: ClassVar[bool] = True

    def __init__(self, model: RemoteModel[Any, Any]) -> None:
        self._remote = model

    @property
    def who(self) -> str:
        """The server, as errors name it."""
        return self._remote.who

    @abstractmethod
    def line(self, key: str, request: Request) -> bytes:
        """Return a request as it is written into a batch."""

    @abstractmethod
    async def _submit(self, content: bytes) -> object:
        """Send the encoded requests and return the id of their batch as the server writes it."""

    @abstractmethod
    async def _open(self, what: Literal["batch", "cancel", "file"], name: str) -> "httpx2.Response":
        """Ask for a batch, for its cancellation, or for a file, and return the open response."""

    @abstractmethod
    def _state(self, batch: Json) -> BatchState:
        """Return how far a batch has come."""

    @abstractmethod
    def _files(self, batch: Json) -> Iterable[object]:
        """Return the names of the files with the results, as the server writes them; some may be missing."""

    @abstractmethod
    def _result(self, line: Json) -> tuple[object, Callable[[], BatchAnswer]]:
        """Return the key of a line of results, as the server writes it, and a function that reads the answer."""

    def _fate(self, batch: Json) -> ProviderError | None:
        """Return why requests have no result, None if the batch does not tell."""
        del batch

    async def submit(self, requests: Sequence[tuple[str, Request]]) -> str:
        """Send requests, each with a key, and return the id of the batch."""
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
            if place % _ENCODED_AT_ONCE == 0:
                await asyncio.sleep(0)
        content.write(end)
        with self._explained():
            return self._made(await self._submit(content.getvalue()))

    async def state(self, batch_id: str) -> BatchState:
        """Return how far a batch has come."""
        return self._state(await self._batch(batch_id))

    async def results(self, batch_id: str, keys: Collection[str]) -> AsyncGenerator[tuple[str, BatchAnswer]]:
        """Yield what came of the requests with these keys, each once."""
        batch = await self._batch(batch_id)
        if not (state := self._state(batch)).done:
            raise Unavailable(f"The batch {batch_id} of {self.who} is not done ({state.word}). Collect it later.")
        left, most = dict.fromkeys(keys), LONGEST_RESPONSE + len(keys) * _BYTES_OF_RESULT
        for name in filter(None, map(_name, self._files(batch))):
            if not left:
                return
            async with aclosing(self._lines(batch_id, name, most)) as lines:
                async for line in lines:
                    written, read = self._result(line)
                    if (key := text_of(written)) in left:
                        del left[key]
                        yield key, self._billed(read())
        for key in left:
            yield key, self._fate(batch) or unanswered(self.who, _NOT_NAMED)

    async def cancel(self, batch_id: str) -> None:
        """Ask the provider to stop a batch."""
        with self._explained(batch_id):
            await (await self._open("cancel", _checked(batch_id))).aclose()

    def _made(self, written: object) -> str:
        """Return the id that a server gave a batch or a file. Raises BadRequest for one that cannot be used."""
        if (name := _name(written)) is None:
            raise BadRequest(f"{self.who} took the requests, but gave them no id that can be used. Check the base URL.")
        return name

    async def _batch(self, batch_id: str) -> Json:
        """Return a batch as the server describes it."""
        with self._explained(batch_id):
            return object_of(await self._remote.whole(await self._open("batch", _checked(batch_id))))

    async def _lines(self, batch_id: str, name: str, most: int) -> AsyncGenerator[Json]:
        """Yield the lines of a file of results that are JSON objects."""
        import httpx2

        with self._explained(batch_id):
            response = await self._open("file", name)
        # The method of the class: that of our responses breaks off what is longer than any answer.
        reads = type(response).aiter_bytes(response)
        try:
            async with aclosing(response), aclosing(_cut(reads, self.who, most)) as lines:
                async for line in lines:
                    try:
                        found = object_of(read_json(line.decode()))
                    except (ValueError, RecursionError):  # no JSON, no UTF-8, or nested without end
                        continue
                    yield found
        except httpx2.HTTPError as error:
            raise cut_off(self.who, error) from error

    def _billed(self, answer: BatchAnswer) -> BatchAnswer:
        """Return an answer with what it costs in a batch."""
        if isinstance(answer, ProviderError):
            answer.usage = answer.usage and self._cost(answer.usage)
            return answer
        *parts, last = answer
        return [*parts, replace(last, usage=self._cost(last.usage)) if isinstance(last, ModelFinished) else last]

    def _cost(self, usage: Usage) -> Usage:
        """Return the usage of one answer with its cost."""
        usage = self._priced(replace(usage, requests=1))
        if usage.cost is None:
            return usage
        fees = search_fees(self._remote.name, usage, self._remote.base_url) or 0.0
        cost = PRICE * (usage.cost - fees) + fees
        if usage.cached_tokens and not self.cheap_cache:
            # The price may depend on the length of the prompt: that of one as long, all from the cache, and its share.
            cached = self._priced(Usage(usage.input_tokens, usage.input_tokens, requests=1)).cost or 0.0
            cost += (1 - PRICE) * cached * usage.cached_tokens / usage.input_tokens
        return replace(usage, cost=cost)

    def _priced(self, usage: Usage) -> Usage:
        return priced(self._remote.name, usage, self._remote.base_url)

    @contextmanager
    def _explained(self, batch_id: str = "") -> Generator[None]:
        """Say of what a server does not have that it is a batch, or the batch API: the errors speak of models."""
        try:
            yield
        except ProviderError as failure:
            if failure.status not in _NOT_THERE:
                raise
            happened = f"{self.who} took no batch of {self._remote.model} ({failure.status}): it may have no batch API."
            advice = "Send the requests one by one, or check the name and the base URL."
            if batch_id:
                happened = f"{self.who} does not know the batch {batch_id}, or no longer ({failure.status})."
                advice = "Use the key and the address that it was made with, or ask its requests again."
            raise BadRequest(f"{happened} {advice}", status=failure.status) from failure


def _name(written: object) -> str | None:
    """Return the id of a batch or of a file if it is one."""
    return name if _ID.fullmatch(name := text_of(written)) else None


def _checked(batch_id: str) -> str:
    if (name := _name(batch_id)) is None:
        raise BadRequest(f"{quoted(batch_id)[:80]!r} is not the id of a batch.")
    return name


async def _cut(reads: AsyncGenerator[bytes], who: str, most: int) -> AsyncGenerator[bytes]:
    """Yield the lines of a file; one over `LONGEST_EVENT` is cut. Raises StreamBroken beyond `most` bytes."""
    line, read = bytearray(), 0
    async with aclosing(reads):
        async for chunk in reads:
            read += len(chunk)
            if read > most:
                failure = broken(f"{who} sent results of over {most >> 20} MB.")
                failure.retryable = False
                raise failure
            *ended, rest = chunk.split(b"\n")
            for end in ended:
                yield bytes(line + end[: LONGEST_EVENT - len(line)])
                line.clear()
            line += rest[: LONGEST_EVENT - len(line)]
    yield bytes(line)


class Collected:
    """A model whose first answer came from a batch; further requests, as for repairs, are sent to the model itself.

    It leaves the model open.
    """

    def __init__(self, model: Model, answer: Sequence[ModelEvent]) -> None:
        self.name = model.name
        self.base_url = address_of(model)
        self._model = model
        self._answer: Sequence[ModelEvent] | None = answer

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model honours."""
        return honoured(self._model, settings).given

    def metered(self, usage: Usage) -> Usage:
        """Return the usage of one request with its cost, which that of the batch has."""
        return counted(self._model, usage) if usage.cost is None else usage

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """Play the answer, and from the second request on ask the model."""
        answer, self._answer = self._answer, None
        if answer is not None:
            for event in answer:
                yield event
            return
        async with aclosing(cast("AsyncGenerator[ModelEvent]", self._model.stream(request))) as stream:
            async for event in stream:
                yield event

    async def aclose(self) -> None:
        """Do nothing: other rows use the model."""
