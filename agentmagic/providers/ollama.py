"""`ollama:MODEL`, a model on an Ollama server, through the server's own API.

Its OpenAI-compatible API ignores the size of the context and cuts the front of a longer conversation without a word.
Here the size is asked for with each request, and a conversation that does not fit is refused.
https://github.com/ollama/ollama/blob/main/docs/api.md
"""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast
from urllib.request import ProxyHandler, build_opener

from agentmagic import settings
from agentmagic.errors import (
    AgentMagicError,
    BadRequest,
    ContextTooLong,
    MalformedCall,
    MissingExtra,
    ProviderError,
    UnknownModel,
)
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import (
    Content,
    Media,
    Message,
    ProviderData,
    Reasoning,
    ToolCall,
    ToolDef,
    ToolResult,
    Usage,
    as_text,
)
from agentmagic.providers import failures
from agentmagic.providers.base import (
    FREE,
    Memo,
    ModelEvent,
    ModelFinished,
    ModelSettings,
    PartWriter,
    Provider,
    Request,
    merged,
)
from agentmagic.providers.clients import ClientLease, http_client
from agentmagic.providers.failures import Fault, Vendor, broken, quoted, unreachable, usable_key, usable_url
from agentmagic.providers.wire import (
    Json,
    clean,
    count_of,
    figures_of,
    kept,
    mint_id,
    object_of,
    objects_of,
    read_arguments,
    retry_after,
    text_of,
    unreadable,
)
from agentmagic.secrets import learn, redact

if TYPE_CHECKING:
    import httpx2

PROVIDER = "ollama"
HOST = "OLLAMA_HOST"
KEY = "OLLAMA_API_KEY"
PORT = 11434
EXAMPLE = f"http://localhost:{PORT}"

SMALLEST_CONTEXT = 8_192
"""The least context that is asked for. It is doubled as needed, because each change loads the model anew."""
ANSWER_TOKENS = 4_096
IMAGE_TOKENS = 1_024
"""Room for an answer whose length has no limit, and for an image, in tokens."""
BYTES_A_TOKEN = 3
LISTING_SECONDS = 0.3

_IMAGES = ("image/png", "image/jpeg", "image/webp")
_TOO_LONG = ("context length", "context size", "exceeds the available context")


def host(written: str | None = None) -> str:
    """Return the address of the server, read from `OLLAMA_HOST` as Ollama reads it."""
    text = (written or settings.variable(HOST) or "").strip().rstrip("/")
    scheme, separator, rest = text.rpartition("://")
    scheme = scheme or "http"
    where, _, path = rest.partition("/")
    name, colon, port = where.rpartition(":")
    if not colon or where.endswith("]"):
        name, port = where, "" if separator else str(PORT)
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(name, name)  # noqa: S104  (an address to bind)
    return "/".join(filter(None, (f"{scheme}://{name}{f':{port}' if port else ''}", path)))


def installed() -> list[str]:
    """Return the models that are pulled, or nothing if no server answers at once."""
    loopback = failures.is_loopback(host())
    opener = build_opener(*([ProxyHandler({})] if loopback else []))
    with suppress(OSError, ValueError, RecursionError, AgentMagicError):
        with opener.open(
            f"{usable_url(host(), HOST, 'http://localhost:11434')}/api/tags", timeout=LISTING_SECONDS
        ) as got:
            listed = objects_of(object_of(json.loads(got.read(2**22))).get("models"))
        return [name for entry in listed if (name := text_of(entry.get("name")))]
    return []


PROVIDERS = (
    Provider(
        name=PROVIDER,
        make="agentmagic.providers.ollama:Ollama",
        about=f"a model on an Ollama server ({HOST})",
        base_url=HOST,
        prices=FREE,
        installed=installed,
    ),
)


class Decoder:
    """Turns the lines of one streamed answer into events."""

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._writer = PartWriter(lambda text, _field: Reasoning(text, ProviderData(PROVIDER, {"model": model})))
        self._finished = False

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield the events of a line, which can be any JSON. Raises a ProviderError if it reports a failure."""
        line = object_of(chunk)
        if self._finished:
            return
        if error := line.get("error"):
            raise refusal(None, quoted(error), self._model)
        message = object_of(line.get("message"))
        if thought := text_of(message.get("thinking")):
            yield from self._writer.write("reasoning", thought)
        if text := text_of(message.get("content")):
            yield from self._writer.write("text", text)
        for entry in objects_of(message.get("tool_calls")):
            yield from self._call(entry)
        if line.get("done") is True:
            yield from self._writer.end()
            self._finished = True
            reason = text_of(line.get("done_reason")) or "stop"  # older servers give none
            sent, written = count_of(line.get("prompt_eval_count")), count_of(line.get("eval_count"))
            yield ModelFinished(Usage(sent, 0, written, requests=1), reason, reason == "length")

    def close(self) -> tuple[ModelEvent, ...]:
        """Return nothing. Raises StreamBroken if the answer was not complete."""
        if not self._finished:
            raise broken("the response ended before it was complete")
        return ()

    def _call(self, entry: Json) -> Iterator[ModelEvent]:
        yield from self._writer.end()
        function = object_of(entry.get("function"))
        name, written = text_of(function.get("name")), function.get("arguments")
        if not name:
            raise MalformedCall("The model called a tool without naming it. Ask again.")
        arguments = read_arguments(written) if isinstance(written, str) else kept(object_of(written))
        index = self._writer.next_index()
        yield PartStarted(index, "tool_call", name)
        yield PartDelta(index, json.dumps(arguments, ensure_ascii=False))
        yield PartFinished(index, ToolCall(text_of(entry.get("id")) or mint_id(), name, arguments))


def refusal(status: int | None, message: str, model: str, wait: float | None = None) -> ProviderError:
    """Return the error for what the server says; without a status, the answer had begun."""
    too_long = any(words in message.lower() for words in _TOO_LONG)
    fault = Fault(message, status=status, retry_after=wait, kind=ContextTooLong if too_long else None)
    hint = f" If it is not on that machine yet, run: ollama pull {model}"
    return failures.error_for(fault, Vendor("Ollama", model, (KEY, "the sign-in (ollama signin)"), HOST, hint))


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the body of `POST /api/chat`, without the size of the context."""
    messages: list[Json] = []
    if request.instructions:
        messages.append({"role": "system", "content": clean(request.instructions)})
    messages += (memo or _memo(model))(request.messages)
    # Ollama would leave out the first messages of a conversation that does not fit, or the first half of the context.
    body: Json = {"model": model, "messages": messages, "stream": True, "truncate": False, "shift": False}
    if tools := _offered(request):
        body["tools"] = [_tool(tool) for tool in tools]
    elif request.output:  # a model that is held to a form can call no tool
        body["format"] = clean(request.output.schema)
    given = request.settings
    options = {"temperature": given.temperature, "num_predict": given.max_output_tokens, "seed": given.seed}
    if options := {name: value for name, value in options.items() if value is not None}:
        body["options"] = options
    if given.reasoning is not None:
        body["think"] = False if given.reasoning == "none" else given.reasoning
    return merged(body, given.extra)


def _offered(request: Request) -> Sequence[ToolDef]:
    """Return the tools to offer: the API has no choice of tools, so a model may only call what it is offered."""
    if request.tool_choice in ("auto", "required"):
        return request.tools
    return [tool for tool in request.tools if tool.name == request.tool_choice]


def _tool(tool: ToolDef) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": _fit(tool.parameters)}
    return {"type": "function", "function": clean(function)}


def _fit(schema: Any) -> Any:
    """Return a JSON Schema whose parts are objects: the server cannot read true and false, which are schemas too."""
    if not isinstance(schema, Mapping):
        return {}
    fitted = {**cast("Mapping[str, Any]", schema)}
    if "properties" in fitted:
        fitted["properties"] = {name: _fit(one) for name, one in object_of(fitted["properties"]).items()}
    if "anyOf" in fitted:
        fitted["anyOf"] = [_fit(one) for one in fitted["anyOf"]]
    return fitted


def _memo(model: str) -> Memo:
    return Memo(lambda message: map(clean, _messages(message, model)))


def _messages(message: Message, model: str) -> Iterator[Json]:
    content = [part for part in message.parts if isinstance(part, Content)]
    match message.role:
        case "user":
            yield _with_images({"role": "user", "content": "\n\n".join(filter(None, map(_text, content)))}, content)
        case "assistant":
            calls = [_call(call) for call in message.calls]
            body: Json = {"role": "assistant", "content": "".join(map(as_text, content))}
            own = ProviderData(PROVIDER, {"model": model})
            thoughts = [
                part.text for part in message.parts if isinstance(part, Reasoning) and part.provider_data == own
            ]
            body |= {"thinking": "".join(thoughts)} if thoughts else {}
            if body["content"] or calls:
                yield body | ({"tool_calls": calls} if calls else {})
        case "tool":
            yield from _results([part for part in message.parts if isinstance(part, ToolResult)])


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "function": {"name": call.name, "arguments": dict(call.arguments)}}


def _results(results: Sequence[ToolResult]) -> Iterator[Json]:
    """Yield results as text, then one user message with their images."""
    shown: list[Content] = []
    for result in results:
        text = f"{'Error: ' if result.is_error else ''}{result.text}"
        yield {"role": "tool", "content": text, "tool_name": result.name, "tool_call_id": result.call_id}
        shown += [part for part in result.content if _is_image(part)]
    if shown:
        yield _with_images({"role": "user", "content": "The images that the tools returned:"}, shown)


def _text(part: Content) -> str:
    return "" if _is_image(part) else as_text(part)


def _is_image(part: Content) -> bool:
    return isinstance(part, Media) and part.media_type in _IMAGES


def _with_images(body: Json, parts: Sequence[Content]) -> Json:
    images = [b64encode(part.data).decode() for part in parts if isinstance(part, Media) and _is_image(part)]
    return body | ({"images": images} if images else {})


def context_for(messages: Sequence[Json], options: Json, written: int) -> int:
    """Return the size of the context, in tokens, that a request and its answer need, with room to grow.

    `written` is the length of the request as JSON, in bytes.
    """
    needed = options.get("num_predict") or ANSWER_TOKENS
    images = [image for message in messages for image in message.get("images", ())]
    needed += IMAGE_TOKENS * len(images) + (written - sum(map(len, images))) // BYTES_A_TOKEN
    return max(SMALLEST_CONTEXT, 1 << (needed - 1).bit_length())


class Ollama:
    """A model on an Ollama server; nothing is asked of the server before the first request.

    `base_url` and `api_key` replace `OLLAMA_HOST` and `OLLAMA_API_KEY`, which only servers on other machines are sent.
    The context grows with the conversation up to what the model allows, and never shrinks.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        if not model:
            raise UnknownModel("ollama: names no model. Write ollama:MODEL; the command ollama list tells the models.")
        self.model = model
        self._base_url = base_url
        self._api_key = api_key
        if api_key:
            learn(KEY, api_key)
        self._memo = _memo(model)
        self._context = SMALLEST_CONTEXT
        self._loaded = False
        self._url = ""
        self._lease = ClientLease(self._find, _connect, lambda client: client.aclose())

    @property
    def name(self) -> str:
        """The full name, "ollama:MODEL"."""
        return f"{PROVIDER}:{self.model}"

    @property
    def base_url(self) -> str:
        """The address that requests are sent to, as it was given or as the environment has it now."""
        return host(self._base_url)

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model takes: all."""
        return settings.given

    async def prepare(self) -> None:
        """Have the server load the model, once; that can take a minute. What fails here fails in `stream` too."""
        if not self._loaded:
            self._loaded = True
            with suppress(ProviderError):
                await self._load()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        body = encode(request, self.model, self._memo)
        decoder = Decoder(self.model)
        async with aclosing(self._lines(body)) as lines:
            async for line in lines:
                for event in decoder.feed(line):
                    yield event
        decoder.close()

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._lease.release()

    async def _load(self) -> None:
        async with aclosing(self._lines({"model": self.model, "messages": []})) as lines:
            async for _ in lines:
                pass

    async def _lines(self, body: Json) -> AsyncGenerator[object, None]:
        """Post a request, with the size of the context, and yield the lines of the response as JSON."""
        if self._url != self.base_url:
            self._lease.forget()
        client = await self._lease.client()
        import httpx2

        given = body.pop("options", {})
        written = json.dumps(body, ensure_ascii=False).encode()
        self._context = max(self._context, context_for(body["messages"], given, len(written)))
        options = {"num_ctx": self._context} | given
        data = written[:-1] + f', "options": {json.dumps(options)}}}'.encode()  # a long history is written once
        opened = False
        try:
            async with client.stream("POST", "/api/chat", content=data) as response:
                opened = True
                await self._check(response)
                async for line in _split(response.aiter_bytes()):
                    yield json.loads(line)
        except httpx2.HTTPError as error:
            if opened:
                raise broken(f"Ollama closed the connection ({str(error) or type(error).__name__})") from error
            start = " To start it, run: ollama serve"
            raise unreachable(f"Ollama at {self.base_url}", error, HOST, self.base_url, start) from error
        except (ValueError, RecursionError) as error:  # a line that is no JSON, no UTF-8, or nested without end
            raise unreadable("a line that is no JSON") from error

    async def _check(self, response: "httpx2.Response") -> None:
        if not response.is_success:
            said: object = None
            with suppress(ValueError, RecursionError):
                said = figures_of(json.loads(await response.aread())).get("error")
            said = figures_of(said).get("message", said)  # servers that only resemble Ollama
            raise refusal(response.status_code, quoted(said), self.model, retry_after(response.headers))
        kind = str(response.headers.get("content-type", ""))
        if "html" in kind:  # a login page of a proxy, or a wrong address
            said = f"{self.base_url} answered with {quoted(kind)[:80]}, as Ollama never does. Check {HOST}."
            raise BadRequest(redact(said), status=response.status_code)

    def _find(self) -> tuple[str, str]:
        self._url = self.base_url
        url = usable_url(self._url, HOST, EXAMPLE)
        key = self._api_key or ("" if failures.is_loopback(url) else settings.find_key([KEY]))
        return url, usable_key("Ollama", key, [KEY]) if key else ""


def _connect(found: tuple[str, str]) -> "httpx2.AsyncClient":
    url, key = found
    if find_spec("httpx2") is None:
        raise MissingExtra("The Ollama provider", PROVIDER)
    return http_client(base_url=url, headers={"Authorization": f"Bearer {key}"} if key else {})


async def _split(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a response; the splitter of the HTTP client also splits at characters within them."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            yield line
    if rest.strip():
        yield rest
