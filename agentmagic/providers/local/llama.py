"""Runs the local model in this process: the model is loaded once, and generates one reply at a time.

xllamacpp runs llama.cpp's server inside the process. A generation blocks the thread that starts it, and calls a
callback for every token. The generation ends when the callback returns True.

The wheels of xllamacpp need `libgomp.so.1`, the OpenMP library of GCC. A minimal Debian or Ubuntu, as in most
containers, does not have this library. The extra `local` installs pykdtree on Linux, because its small wheel contains a
copy. Nothing else of pykdtree is used.
"""

import asyncio
import atexit
import ctypes
import os
import secrets
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Protocol, cast

from agentmagic.errors import AgentMagicError, ContextTooLong, MissingExtra, ProviderError, StreamBroken
from agentmagic.messages import Usage
from agentmagic.providers.base import busy_with
from agentmagic.providers.local import CONTEXT
from agentmagic.providers.local.prompts import GenerationRequest
from agentmagic.providers.too_long import is_too_long
from agentmagic.providers.wire import count_of, object_of, objects_of, text_of
from agentmagic.text import encodable

BATCH = 64
"""The number of prompt tokens that are processed at a time. A cancellation takes effect between two batches."""

PROMPT_CACHE_MIB = 512
"""MiB of memory for a cache of prompts: each turn with the same tools begins with the same plan prompt."""

LAST_WAIT = 10.0
"""Seconds that Python waits at its exit for the end of a generation."""

LONGEST = CONTEXT * 16
"""The most characters of a prompt. A longer text cannot fit the context, so it is refused without counting tokens."""

LIBGOMP = "libgomp.so.1"


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a generation; `reason` is "stop", or "length" if the reply was cut off."""

    usage: Usage
    reason: str


class RefusedForm(ProviderError):
    """Raised when llama.cpp cannot use the grammar of a prompt, or cannot turn its JSON Schema into a grammar."""


class Generator(Protocol):
    """Generates replies to prompts: the loaded model, or a test double of it."""

    def generate(self, prompt: GenerationRequest) -> AsyncGenerator[str | Finished]:
        """Yield the reply piece by piece, then a `Finished`; closing the iterator ends the generation.

        Raises RefusedForm, before the first piece, if llama.cpp refuses the grammar or the schema of the prompt.
        """
        ...


def encode(prompt: GenerationRequest) -> dict[str, Any]:
    """Return the body of a chat completion request to llama.cpp for a prompt."""
    body: dict[str, Any] = {
        "messages": [{"role": role, "content": text} for role, text in prompt.messages],
        "max_tokens": prompt.max_tokens,
        "temperature": 0,
        "seed": 1,
        "stream": True,
        # With this field, llama.cpp also sends chunks while it reads the prompt. A request can be cancelled only at a
        # chunk.
        "return_progress": True,
    }
    if prompt.grammar:
        body["grammar"] = prompt.grammar
    if prompt.schema is not None:
        schema = {"name": "arguments", "schema": prompt.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def decode(chunk: Mapping[str, Any]) -> Iterator[str | Finished]:
    """Yield the text in one chunk of a streamed completion, and a `Finished` if the chunk ends it.

    Raises ContextTooLong for a prompt that is too long for the model, and ProviderError for every other failure.
    """
    if error := chunk.get("error"):
        details = object_of(error)
        if is_too_long(text_of(details.get("message", error)), text_of(details.get("type"))):
            raise _too_long(f"{details.get('n_prompt_tokens', 'too many')} tokens")
        raise _failure(details.get("message", error))
    for choice in objects_of(chunk.get("choices"))[:1]:
        if text := text_of(object_of(choice.get("delta")).get("content")):
            yield text
        if reason := text_of(choice.get("finish_reason")):
            timings = object_of(chunk.get("timings"))
            cached_tokens = count_of(timings.get("cache_n"))
            # llama.cpp leaves the cached tokens out of `prompt_n`, so they are added.
            prompt_tokens = cached_tokens + count_of(timings.get("prompt_n"))
            yield Finished(Usage(prompt_tokens, cached_tokens, count_of(timings.get("predicted_n"))), reason)


def _failure(reason: object) -> ProviderError:
    return ProviderError(f"The local model failed: {encodable(str(reason))[:300]}")


def _too_long(size: str) -> ContextTooLong:
    return ContextTooLong(
        f"The prompt is too long for the local model: {size}, and it takes {CONTEXT} tokens. "
        "Shorten the prompt, or choose a model with a larger window."
    )


class Runtime:
    """A loaded model; `server` is an `xllamacpp.Server`, or a test double of it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._busy = threading.Lock()  # held by the thread of the running generation
        self._closed_event = threading.Event()
        atexit.register(self.close)

    async def generate(self, prompt: GenerationRequest) -> AsyncGenerator[str | Finished]:
        """Yield the reply piece by piece, then a `Finished`.

        Closing the iterator, or cancelling the task, returns at once; the generation ends at its next token.
        Generations run one after another.
        """
        length = sum(len(text) for _, text in prompt.messages)
        if length > LONGEST:
            raise _too_long(f"{length} characters")
        stop = threading.Event()
        chunks: asyncio.Queue[Any] = asyncio.Queue()
        post = _poster(chunks, stop)
        # The generation gets its own thread, because until it ends, it blocks its thread and also signals.
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
        raise StreamBroken("The local model stopped in the middle of its answer.")

    def close(self) -> None:
        """End the current generation, and allow no other. Called when Python exits.

        Otherwise, a thread could return from llama.cpp to Python after Python's exit, and the process would crash.
        """
        self._closed_event.set()
        self._busy.acquire(timeout=LAST_WAIT)

    def warm_up(self) -> None:
        """Generate one token, so that the first real generation does not have to wait for llama.cpp's buffers."""

        def go_on(_chunk: Any) -> bool:
            return False

        self._server.handle_chat_completions(encode(GenerationRequest((("user", "Hello"),), max_tokens=1)), go_on)

    def _work(self, body: dict[str, Any], post: Callable[[Any], None], stop: threading.Event) -> None:
        def receive(value: Any) -> bool:
            for chunk in cast("list[Any]", value) if isinstance(value, list) else [value]:
                post(chunk)
            return stop.is_set() or self._closed_event.is_set()

        with self._busy:
            try:
                if not stop.is_set():  # set if the request was cancelled while it waited for another generation
                    self._server.handle_chat_completions(body, receive)
            except ValueError as error:  # xllamacpp raises it for a schema that it cannot turn into a grammar
                post(RefusedForm(f"The local model cannot keep to this form: {str(error)[:300]}"))
            except Exception as error:  # noqa: BLE001  (`generate` raises it in its task)
                post(_failure(error))
        post(None)  # None ends the pieces. If no `Finished` came before it, `generate` raises StreamBroken


def _poster(chunks: asyncio.Queue[Any], stop: threading.Event) -> Callable[[Any], None]:
    """Return a function that puts a chunk into the queue `chunks`, and that any thread can call.

    It sets `stop` if the event loop of the queue, which is the running one, has been closed.
    """
    loop = asyncio.get_running_loop()

    def post(chunk: Any) -> None:
        try:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        except RuntimeError:  # the event loop is closed, so nobody waits for the generation
            stop.set()

    return post


_runtimes: dict[Path, Future[Runtime]] = {}
_loading = threading.Lock()


def require() -> Any:
    """Import xllamacpp and return the module. If the machine has no OpenMP library, load pykdtree's copy first.

    Raises MissingExtra if xllamacpp is not installed, and ProviderError if it cannot be loaded.
    """
    try:
        try:
            return import_module("xllamacpp")
        except ImportError as error:
            if LIBGOMP not in str(error) or not load_openmp():
                raise
        return import_module("xllamacpp")
    except ModuleNotFoundError:
        raise MissingExtra("The local model", "local") from None
    except ImportError as error:
        raise ProviderError(_import_advice(str(error))) from error


def _import_advice(reason: str) -> str:
    if LIBGOMP in reason:
        return (
            f"The local model needs the library {LIBGOMP}, which this machine does not have. Install it as root: "
            "apt-get install libgomp1 (Debian, Ubuntu) or dnf install libgomp (Fedora)."
        )
    return (
        f"The local model cannot run, because xllamacpp cannot be loaded: {reason[:300]}. If a library is missing, "
        "install it with the system's package manager; else run: pip install --force-reinstall xllamacpp"
    )


def load_openmp() -> bool:
    """Load the copy of the OpenMP library libgomp that pykdtree's wheel contains, and return whether that succeeded.

    Afterwards the dynamic linker uses this copy for every library of this process that needs `libgomp.so.1`.
    """
    if sys.platform != "linux":
        return False
    try:
        path = next(Path(file.locate()) for file in files("pykdtree") or () if file.name.startswith("libgomp"))
        # The library has another name in pykdtree's wheel. The linker compares the name inside the library with the
        # name that xllamacpp needs. So the original name is restored, in a copy of the library in memory.
        wheel_name = path.name.encode() + b"\0"
        content = path.read_bytes().replace(wheel_name, LIBGOMP.encode().ljust(len(wheel_name), b"\0"))
        with os.fdopen(os.memfd_create(LIBGOMP), "wb") as file:
            file.write(content)
            file.flush()
            ctypes.CDLL(f"/proc/self/fd/{file.fileno()}")
    except (PackageNotFoundError, StopIteration, OSError):  # no pykdtree, no /proc, or a library for another processor
        return False
    return True


async def load(path: Path) -> Runtime:
    """Return the loaded model of a GGUF file. The first call for a file loads it and warms it up.

    Raises MissingExtra, or ProviderError if the file cannot be loaded. Loading continues if the caller is cancelled.
    """
    with _loading:
        future = _runtimes.get(path)
        # A failed load is tried again, because memory can be free now.
        if future is None or (future.done() and future.exception()):
            future = _runtimes[path] = Future[Runtime]()
            future.set_running_or_notify_cancel()  # after this, cancelling a caller does not cancel the loading
            threading.Thread(target=_load, args=(path, future), daemon=True).start()
    if not future.done():
        busy_with.get()("loading the local model's weights into memory")
    return await asyncio.wrap_future(future)


def _load(path: Path, future: Future[Runtime]) -> None:
    try:
        runtime = Runtime(_server(require(), path))
        runtime.warm_up()
    except Exception as error:  # noqa: BLE001  (`load` raises it)
        future.set_exception(_load_error(path, error))
    else:
        future.set_result(runtime)


def _load_error(path: Path, error: Exception) -> Exception:
    if isinstance(error, AgentMagicError):
        return error
    reason = str(error)[:300] or type(error).__name__
    return ProviderError(
        f"The local model could not be loaded from {path}: {reason}. It needs 2 GB of free memory and a sound file."
    )


def _server(xllamacpp: Any, path: Path) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.n_batch = BATCH
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.use_jinja = True
    params.verbosity = 0
    params.warmup = False  # not needed: `warm_up` runs a real prompt
    # The server also listens on a loopback port. With a random key, other users of this machine cannot use it.
    params.api_keys = [secrets.token_hex(16)]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
    return xllamacpp.Server(params)


def threads() -> int:
    """Return the number of threads for a generation: one fewer than the CPU cores of this process, but at least one.

    llama.cpp's threads use the CPU even while they wait, so one core is left for everything else.
    """
    with suppress(AttributeError):  # macOS and Windows do not have `sched_getaffinity`
        return max(1, len(os.sched_getaffinity(0)) - 1)
    return max(1, (os.cpu_count() or 2) - 1)
