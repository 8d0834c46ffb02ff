"""`ollama:MODEL`, a model on an Ollama server, through the server's own API.

The OpenAI-compatible API of Ollama ignores the requested size of the context window, and silently cuts off the
beginning of a longer conversation. With Ollama's own API, each request sets this size, and the server refuses a
conversation that does not fit.
https://github.com/ollama/ollama/blob/main/docs/api.md
"""

import json
import re
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agentmagic import settings
from agentmagic.classroom import class_settings
from agentmagic.errors import BadRequest, MissingExtra, ProviderError, UnknownModel
from agentmagic.messages import Content, Media, Message, ProviderData, Reasoning, ToolCall, ToolDef, Usage, as_text
from agentmagic.providers import failures, wire
from agentmagic.providers.addresses import bare, join, split_query, without_ending
from agentmagic.providers.base import FREE, ModelEvent, ModelFinished, ModelSettings, Provider, Request, merge
from agentmagic.providers.clients import RemoteModel, http_client, listed_names
from agentmagic.providers.error_bodies import find_error, status_of
from agentmagic.providers.failures import Fault, Vendor, quote, unreachable, usable_key
from agentmagic.providers.finish_reasons import ending_of
from agentmagic.providers.repeats import SentCalls
from agentmagic.providers.streams import AFTER_END, read_objects
from agentmagic.providers.wire import Json, Memo, clean, count_of, object_of, objects_of, text_of
from agentmagic.text import is_loopback

if TYPE_CHECKING:
    import httpx2

PROVIDER = "ollama"
HOST = "OLLAMA_HOST"
KEY = "OLLAMA_API_KEY"
PORT = 11434
EXAMPLE = f"http://localhost:{PORT}"

SMALLEST_CONTEXT = 8_192
"""The smallest context that is requested, in tokens. It is doubled as needed: each change reloads the model."""
ANSWER_TOKENS = 4_096
IMAGE_TOKENS = 1_024
"""Tokens of the context that are reserved for an answer without a length limit, and for each image."""
BYTES_A_TOKEN = 3
LISTING_SECONDS = 0.3
KEPT_SECONDS = 240.0
"""Seconds after its last use in which a model counts as loaded. The server keeps a model in memory for 5 minutes."""

_last_used: dict[tuple[str, str], float] = {}
"""The monotonic time when a model was last used by any session, by the server's address and the model's name."""

_ADDED = re.compile(r"/(?:api|v1)(?:/(?:chat|generate|chat/completions))?$")
_IMAGES = ("image/png", "image/jpeg", "image/webp")


def host(value: str | None = None) -> str:
    """Return the address of the Ollama server, from `value` or from the variable `OLLAMA_HOST`.

    Missing parts, such as the port, are added in the same way as Ollama does.
    """
    text = without_ending(bare(value or settings.variable(HOST) or ""), _ADDED).rstrip("/")
    scheme, separator, rest = text.rpartition("://")
    scheme = scheme or "http"
    where, _, path = rest.partition("/")
    name, colon, port = where.rpartition(":")
    if not colon or where.endswith("]"):
        name, port = where, "" if separator else str(PORT)
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(name, name)  # noqa: S104  (an address to bind)
    return "/".join(filter(None, (f"{scheme}://{name}{f':{port}' if port else ''}", path)))


def list_installed() -> list[str]:
    """Return the names of the models that are downloaded on the Ollama server.

    The list is empty if no server answers within `LISTING_SECONDS`, or if a teacher's or administrator's limits forbid
    its address.
    """
    if not class_settings().allows_address(host()):
        return []
    return listed_names(join(host(), "/api/tags"), ("models", "name"), LISTING_SECONDS)


PROVIDERS = (
    Provider(
        name=PROVIDER,
        make="agentmagic.providers.ollama:Ollama",
        about=f"a model on an Ollama server ({HOST})",
        base_url=HOST,
        prices=FREE,
        installed=list_installed,
    ),
)


class Decoder:
    """Turns the lines of one streamed answer of an Ollama server into model events."""

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._calls = SentCalls()
        self._writer = wire.PartWriter(lambda text, _field: Reasoning(text, ProviderData(PROVIDER, {"model": model})))
        self.usage_so_far: Usage | None = None
        self.rest: float | None = None

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield the model events in one line of the answer, which can be any JSON.

        Raises a ProviderError if the line reports an error.
        """
        line = object_of(chunk)
        if self.rest is not None:  # the answer has ended
            return
        if error := line.get("error") and find_error(line):
            raise _reported(error, self._model)
        message = object_of(line.get("message"))
        if thinking := text_of(message.get("thinking")):
            yield from self._writer.think(thinking, "thinking")
        yield from self._writer.take(message.get("content"), "thinking")
        for entry in objects_of(message.get("tool_calls")):
            yield from self._call(entry)
        if line.get("done") is True or text_of(line.get("done_reason")):
            yield from self._writer.finish()
            self.rest = AFTER_END
            reason = text_of(line.get("done_reason")) or "stop"  # older versions of Ollama do not send a reason
            input_tokens, output_tokens = count_of(line.get("prompt_eval_count")), count_of(line.get("eval_count"))
            self.usage_so_far = Usage(input_tokens, 0, output_tokens, requests=1)
            ending, model = ending_of(reason), text_of(line.get("model"))
            yield ModelFinished(self.usage_so_far, reason, ending == "cut", model=model, unknown=ending == "unknown")

    def close(self, *, done: bool = False) -> tuple[ModelEvent, ...]:  # noqa: ARG002  (this API has no `[DONE]`)
        """Check that the answer is complete, and return no events. Raises StreamBroken if it is not complete."""
        if self.rest is None:
            raise failures.stream_broken("the response ended before it was complete")
        return ()

    def _call(self, entry: Json) -> Iterator[ModelEvent]:
        function = object_of(entry.get("function"))
        name, arguments = wire.tool_name(function.get("name")), wire.read_arguments(function.get("arguments"))
        call = ToolCall(text_of(entry.get("id")), name, arguments)
        if not self._calls.is_again(call):
            yield from self._writer.whole(call if call.id else replace(call, id=wire.mint_id()))


def refusal(status: int | None, message: str, model: str, wait: float | None = None, asked: str = "") -> ProviderError:
    """Return our exception for an error message of the server.

    `status` is None if the error came inside a stream. `wait` is the number of seconds that the server asks to wait.
    `asked` is the address of the request.
    """
    fault = Fault(message, status=status or status_of("", message), retry_after=wait, asked=asked)
    hint = f" If it is not on that machine yet, run: ollama pull {model}"
    return failures.error_for(fault, Vendor("Ollama", model, (KEY, "the sign-in (ollama signin)"), HOST, hint))


def _reported(error: Json, model: str) -> ProviderError:
    message = quote(error.get("message"))
    return refusal(status_of(str(error.get("code") or ""), message), message, model)


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the JSON body of `POST /api/chat`. The size of the context window (`num_ctx`) is added later."""
    messages: list[Json] = []
    if request.instructions:
        messages.append({"role": "system", "content": clean(request.instructions)})
    messages += (memo or _memo(model))(request.messages)
    # "truncate" and "shift" are False, because Ollama would otherwise drop the first messages of a request that is too
    # long, or half of the conversation during the answer.
    body: Json = {"model": model, "messages": messages, "stream": True, "truncate": False, "shift": False}
    if tools := _tools_to_offer(request):
        body["tools"] = [_tool(tool) for tool in tools]
    elif request.output:  # a model with a required format cannot call tools
        body["format"] = clean(request.output.schema)
    model_settings = request.settings
    if options := model_settings.under(
        {"temperature": "temperature", "max_output_tokens": "num_predict", "seed": "seed"}
    ):
        body["options"] = options
    if model_settings.reasoning is not None:
        body["think"] = model_settings.reasoning != "none" and model_settings.reasoning
    return merge(body, model_settings.extra)


def _tools_to_offer(request: Request) -> Sequence[ToolDef]:
    """Return the tools that a request offers to the model.

    Ollama's API has no `tool_choice`, so the tools that the model must not choose are left out.
    """
    if request.tool_choice in ("auto", "required"):
        return request.tools
    return [tool for tool in request.tools if tool.name == request.tool_choice]


def _tool(tool: ToolDef) -> Json:
    # Ollama cannot read `true` and `false` where a JSON Schema is expected; `each_schema` replaces them by {}.
    parameters = wire.each_schema(tool.parameters, lambda schema: schema)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": clean(function)}


def _memo(model: str) -> Memo:
    return Memo(lambda message: map(clean, _messages(message, model)))


def _messages(message: Message, model: str) -> Iterator[Json]:
    content = [part for part in message.parts if isinstance(part, Content)]
    match message.role:
        case "user":
            yield _with_images({"role": "user", "content": "\n\n".join(filter(None, map(_text, content)))}, content)
        case "assistant":
            functions = [(call.id, {"name": call.name, "arguments": dict(call.arguments)}) for call in message.calls]
            calls = [{"id": call_id, "function": function} for call_id, function in functions]
            body: Json = {"role": "assistant", "content": "".join(map(as_text, content))}
            own = ProviderData(PROVIDER, {"model": model})
            thoughts = [
                part.text for part in message.parts if isinstance(part, Reasoning) and part.provider_data == own
            ]
            body |= {"thinking": "".join(thoughts)} if thoughts else {}
            if body["content"] or calls:
                yield body | ({"tool_calls": calls} if calls else {})
        case "tool":
            yield from _results(message)


def _results(message: Message) -> Iterator[Json]:
    """Yield a message with the text of each tool result, then one user message with all their images."""
    images: list[Content] = []
    for result in wire.results_of(message):
        text = f"{'Error: ' if result.is_error else ''}{result.text}"
        yield {"role": "tool", "content": text, "tool_name": result.name, "tool_call_id": result.call_id}
        images += [part for part in result.content if _is_image(part)]
    if images:
        yield _with_images({"role": "user", "content": "The images that the tools returned:"}, images)


def _text(part: Content) -> str:
    return "" if _is_image(part) else as_text(part)


def _is_image(part: Content) -> bool:
    return isinstance(part, Media) and part.media_type in _IMAGES


def _with_images(body: Json, parts: Sequence[Content]) -> Json:
    images = [wire.base64_of(part) for part in parts if isinstance(part, Media) and _is_image(part)]
    return body | ({"images": images} if images else {})


def context_for(messages: Sequence[Json], options: Json, size: int) -> int:
    """Return how many tokens the context window needs for a request and its answer.

    The number is rounded up to a power of 2. `size` is the length of the request as JSON, in bytes.
    """
    tokens = options.get("num_predict") or ANSWER_TOKENS
    images = [image for message in messages for image in message.get("images", ())]
    tokens += IMAGE_TOKENS * len(images) + (size - sum(map(len, images))) // BYTES_A_TOKEN
    return max(SMALLEST_CONTEXT, 1 << (tokens - 1).bit_length())


class Ollama(RemoteModel[tuple[str, str], "httpx2.AsyncClient"]):
    """A model on an Ollama server. The server is not contacted before the first request.

    A key from the user's settings is not sent to a server on this machine; `api_key` is sent to any server. The context
    window grows with the conversation up to the model's limit, and never shrinks.
    """

    row = PROVIDERS[0]
    vendor = "Ollama"
    mark = "done"
    example = EXAMPLE

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        if not model:
            raise UnknownModel("ollama: names no model. Write ollama:MODEL; the command ollama list tells the models.")
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = _memo(model)
        self._context = SMALLEST_CONTEXT

    @property
    def base_url(self) -> str:
        """The address that requests are sent to. It is the constructor's `base_url`, or else from the environment."""
        return host(self._base_url)

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of all `settings` that have a value, because this API accepts all of them."""
        return settings.given

    async def prepare(self) -> None:
        """Make the server load the model, which can take a minute. Errors are ignored: `stream` raises them again."""
        if time.monotonic() - _last_used.get((self.base_url, self.model), -KEPT_SECONDS) >= KEPT_SECONDS:
            with suppress(ProviderError), self._reading():
                async with aclosing(await self._open({"model": self.model, "messages": []})) as response:
                    await self._check(response, {})
                    await response.aread()

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request. The size of the context window (`num_ctx`) is added later."""
        return wire.omit_fields(encode(self.refused.fit(request), self.model, self._memo), self.without)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        decoder = Decoder(self.model)
        with self._sending(request) as body, self._reading():
            response = await self._open(body)
            async with aclosing(response), aclosing(self._events(response, decoder, body, read_objects)) as events:
                await self._check(response, body)
                async for event in events:
                    yield event

    async def _open(self, body: Json) -> "httpx2.Response":
        """Add the size of the context window to a request body, send it, and return the open response."""
        client = await self._client()
        import httpx2

        try:
            request = client.build_request("POST", "/api/chat", content=self._encode_body(body))
            return await client.send(request, stream=True)
        except ValueError as error:
            raise BadRequest(failures.sentence(f"The request cannot be sent: {error}")) from error
        except httpx2.HTTPError as error:
            start = " To start it, run: ollama serve"
            raise unreachable(f"Ollama at {self.base_url}", error, HOST, self.base_url, start) from error

    def _encode_body(self, body: Json) -> bytes:
        """Return a request body as JSON, with a context window (`num_ctx`) that is large enough for the request."""
        options = body.get("options", {})
        while True:
            size = self._context
            data = wire.write_body(body | {"options": {"num_ctx": size} | options})
            self._context = max(size, context_for(body["messages"], options, len(data)))
            if self._context == size:
                return data

    async def _check(self, response: "httpx2.Response", body: Json) -> None:
        if not response.is_success:
            error: object = None
            answer = await response.aread()
            with suppress(ValueError, RecursionError):
                error = answer.decode()
                error = object_of(json.loads(answer)).get("error")
            error = object_of(error).get("message", error)  # an object on servers that only resemble Ollama
            failure = refusal(
                response.status_code, quote(error), self.model, wire.retry_after(response.headers), str(response.url)
            )
            raise self._note_refusal(failure, body, error)
        kind = str(response.headers.get("content-type", ""))
        if "html" in kind:
            raise failures.wrong_content_type(self.base_url, kind, HOST, response.status_code)
        _last_used[self.base_url, self.model] = time.monotonic()

    def _reported(self, error: Json) -> ProviderError:
        return _reported(error, self.model)

    def _find_key(self) -> str:
        key = self._api_key or ("" if is_loopback(self.base_url) else settings.find_key([KEY]))
        return usable_key("Ollama", key, [KEY]) if key else ""

    @staticmethod
    def _connect(access: tuple[str, str]) -> "httpx2.AsyncClient":
        url, key = access
        if find_spec("httpx2") is None:
            raise MissingExtra("The Ollama provider", PROVIDER)
        base, _ = split_query(url)
        return http_client(address=url, base_url=base, headers={"Authorization": f"Bearer {key}"} if key else {})
