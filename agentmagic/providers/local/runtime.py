"""The model in memory: loaded once per process, one generation at a time, cancelled within a token.

xllamacpp runs llama.cpp's server inside the process. Its generation blocks the thread that asks for it and
calls back for every token; the callback's return value, True, ends it. It also listens on loopback, so a
random key keeps other users of the machine out. Its threads spin while they wait, so one core is left free.
"""

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from agentmagic.errors import AgentMagicError, ContextTooLong, MissingExtra, ProviderError, StreamBroken
from agentmagic.messages import Usage
from agentmagic.providers.local import openmp
from agentmagic.providers.local.prompts import GenerationRequest
from agentmagic.providers.wire import clean_text, count_of, figures_of, object_of, objects_of, text_of

CONTEXT = 8192
"""Tokens a prompt and its reply may have together; 8192 take 0.1 GB more memory than 4096."""

BATCH = 64
"""Tokens of a prompt read at a time. A cancel takes effect between two batches."""

PROMPT_CACHE_MIB = 512
"""Memory for prompts already read: every turn with the same tools begins with the same plan prompt."""

LONGEST = CONTEXT * 16
"""Characters after which a prompt is refused unread: no text of this length fits the context."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A generation is complete; `reason` is "stop", or "length" where the reply was cut off."""

    usage: Usage
    reason: str


class RefusedForm(ProviderError):
    """The runtime cannot hold a reply to the grammar or the schema of its prompt."""


class Generator(Protocol):
    """What answers prompts: the loaded model, or a double of it."""

    def generate(self, prompt: GenerationRequest) -> AsyncGenerator[str | Finished]:
        """Yield the reply piece by piece and last of all a `Finished`; closing it ends the generation.

        Raises RefusedForm before the first piece for a form that it cannot keep to.
        """
        ...


def encode(prompt: GenerationRequest) -> dict[str, Any]:
    """Write a prompt as the body of a chat completion."""
    body: dict[str, Any] = {
        "messages": [{"role": role, "content": text} for role, text in prompt.messages],
        "max_tokens": prompt.max_tokens,
        "temperature": 0,
        "seed": 1,
        "stream": True,
        "return_progress": True,  # chunks while the prompt is read too, so that a cancel need not wait for its end
    }
    if prompt.grammar:
        body["grammar"] = prompt.grammar
    if prompt.schema is not None:
        schema = {"name": "arguments", "schema": prompt.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def decode(chunk: Mapping[str, Any]) -> Iterator[str | Finished]:
    """Read one chunk of a streamed completion.

    Raises ContextTooLong for a prompt over the context, ProviderError for every other failure.
    """
    if error := chunk.get("error"):
        raise _failure(error)
    for choice in objects_of(chunk.get("choices"))[:1]:
        if text := text_of(object_of(choice.get("delta")).get("content")):
            yield text
        if reason := text_of(choice.get("finish_reason")):
            yield Finished(_usage(figures_of(chunk.get("timings"))), reason)


def _usage(timings: Mapping[str, Any]) -> Usage:
    cached = count_of(timings.get("cache_n"))
    return Usage(cached + count_of(timings.get("prompt_n")), cached, count_of(timings.get("predicted_n")))


def _failure(error: object) -> ProviderError:
    told = figures_of(error)
    if told.get("type") == "exceed_context_size_error":
        return _too_long(f"{told.get('n_prompt_tokens', 'too many')} tokens")
    return _failed(told.get("message", error))


def _failed(why: object) -> ProviderError:
    return ProviderError(f"The local model failed: {clean_text(str(why))[:300]}")


def _too_long(size: str) -> ContextTooLong:
    message = (
        f"The prompt is too long for the local model: {size}, and it takes {CONTEXT} tokens. "
        "Shorten the prompt, or choose a model with a larger window."
    )
    return ContextTooLong(message)


class Runtime:
    """A model that is loaded."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._busy = threading.Lock()

    async def generate(self, prompt: GenerationRequest) -> AsyncGenerator[str | Finished]:
        """Yield the reply piece by piece and last of all a `Finished`.

        Closing the iterator, or cancelling the task, returns at once; the generation ends at its next token.
        Generations asked for at the same time wait for each other.
        """
        length = sum(len(text) for _, text in prompt.messages)
        if length > LONGEST:
            raise _too_long(f"{length} characters")
        stop = threading.Event()
        chunks: asyncio.Queue[Any] = asyncio.Queue()
        post = _poster(chunks, stop)
        threading.Thread(target=self._work, args=(encode(prompt), post, stop), daemon=True).start()
        try:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                for piece in decode(object_of(chunk)):
                    yield piece
                    if isinstance(piece, Finished):
                        return
        finally:
            stop.set()
        message = "The local model stopped in the middle of its answer."
        raise StreamBroken(message)

    def warm_up(self) -> None:
        """Generate one token, so that the first question does not pay for what is set up late."""

        def receive(_chunk: Any) -> bool:
            return False

        self._server.handle_chat_completions(encode(GenerationRequest((("user", "Hello"),), max_tokens=1)), receive)

    def _work(self, body: dict[str, Any], post: Callable[[Any], None], stop: threading.Event) -> None:
        def receive(received: Any) -> bool:
            for chunk in cast("list[Any]", received) if isinstance(received, list) else [received]:
                post(chunk)
            return stop.is_set()

        with self._busy:
            try:
                if not stop.is_set():
                    self._server.handle_chat_completions(body, receive)
            except ValueError as error:
                post(RefusedForm(f"The local model cannot keep to this form: {str(error)[:300]}"))
            except Exception as error:  # noqa: BLE001  (whatever the runtime raises is the asking task's to see)
                post(_failed(error))
        post(None)


def _poster(chunks: asyncio.Queue[Any], stop: threading.Event) -> Callable[[Any], None]:
    """Return what puts a chunk into a queue of this loop from any thread; a closed loop ends the generation."""
    loop = asyncio.get_running_loop()

    def post(chunk: Any) -> None:
        try:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        except RuntimeError:
            stop.set()

    return post


_loaded: dict[Path, Future[Runtime]] = {}
_loading = threading.Lock()


def require() -> Any:
    """Import xllamacpp, with the OpenMP library from a wheel if the machine has none.

    Raises MissingExtra if it is not installed, and ProviderError if it cannot be loaded.
    """
    try:
        try:
            return import_module("xllamacpp")
        except ImportError as error:
            if openmp.NAME not in str(error) or not openmp.load():
                raise
        return import_module("xllamacpp")
    except ModuleNotFoundError:
        raise MissingExtra("The local model", "local") from None
    except ImportError as error:
        raise ProviderError(_not_imported(str(error))) from error


def _not_imported(reason: str) -> str:
    if openmp.NAME in reason:
        return (
            f"The local model needs the library {openmp.NAME}, which this machine does not have. Install it as root: "
            "apt-get install libgomp1 (Debian, Ubuntu) or dnf install libgomp (Fedora)."
        )
    return (
        f"The local model cannot run, because xllamacpp cannot be loaded: {reason[:300]}. If a library is missing, "
        "install it with the system's package manager; else run: pip install --force-reinstall xllamacpp"
    )


async def load(path: Path) -> Runtime:
    """Return the model of a GGUF file, loaded and warmed up by the first who asks.

    Raises MissingExtra, or ProviderError where the file cannot be loaded. Cancelling leaves the load to go on.
    """
    with _loading:
        future = _loaded.get(path)
        if future is None or (future.done() and future.exception()):
            future = _loaded[path] = Future[Runtime]()
            future.set_running_or_notify_cancel()
            threading.Thread(target=_load, args=(path, future), daemon=True).start()
    return await asyncio.wrap_future(future)


def _load(path: Path, future: Future[Runtime]) -> None:
    try:
        runtime = Runtime(_server(require(), path))
        runtime.warm_up()
    except Exception as error:  # noqa: BLE001  (it is raised again by whoever awaits the load)
        future.set_exception(_not_loaded(path, error))
    else:
        future.set_result(runtime)


def _not_loaded(path: Path, error: Exception) -> Exception:
    if isinstance(error, AgentMagicError):
        return error
    reason = str(error)[:300] or type(error).__name__
    message = (
        f"The local model could not be loaded from {path}: {reason}. It needs 2 GB of free memory and a sound file."
    )
    return ProviderError(message)


def _server(xllamacpp: Any, path: Path) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.n_batch = BATCH
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.use_jinja = True
    params.verbosity = 0
    params.warmup = False
    params.api_keys = [secrets.token_hex(16)]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
    return xllamacpp.Server(params)


def threads() -> int:
    """Return how many threads generate: one fewer than the cores this process may use."""
    with suppress(AttributeError):  # not on macOS and Windows
        return max(1, len(os.sched_getaffinity(0)) - 1)
    return max(1, (os.cpu_count() or 2) - 1)
