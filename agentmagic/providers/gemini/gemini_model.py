"""`gemini:MODEL`: Google's Gemini API, and Vertex AI, through the google-genai SDK (PROVIDER-5)."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentmagic import secrets, settings
from agentmagic.errors import AuthenticationFailed, BadRequest, StreamBroken, Unavailable
from agentmagic.providers.base import Model, ModelEvent, Request
from agentmagic.providers.gemini.gemini_decoder import Decoder
from agentmagic.providers.gemini.gemini_encoder import PROVIDER, encode, memo_for
from agentmagic.providers.gemini.gemini_errors import BASE_URL, KEYS, not_gemini, quoted, refusal, untrusted
from agentmagic.providers.wire import Json, certificate_fault, retry_after, unreadable

if TYPE_CHECKING:
    import httpx2
    from google.genai import Client, types

CONNECT_TIMEOUT = 30.0
SILENCE_TIMEOUT = 600.0
"""Seconds without a byte after which a connection is taken for dead; a turn's own limit cuts sooner."""

_opened: ContextVar["list[httpx2.Response]"] = ContextVar("opened")
"""The responses of the request that this task is sending."""

_KNOWN_SDK = "3.4."
"""The versions of google-genai whose private door is known to yield what the public one does."""


def make(model: str) -> Model:
    """Make the model of that name; its key is looked for when it is first asked."""
    return Gemini(model)


class Gemini:
    """A model of the Gemini API, or of Vertex AI where the environment says so.

    Without `base_url` and `api_key` the environment is asked, at the first request. Vertex AI is used
    where `GOOGLE_GENAI_USE_VERTEXAI` is true; it needs `GOOGLE_CLOUD_PROJECT` and Google's application
    default credentials in place of a key. Connections are kept as long as requests come from one event loop.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._memo = memo_for(model)
        self._connection: _GeminiClient | None = None
        self._connecting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        """The full name, "gemini:MODEL"."""
        return f"{PROVIDER}:{self._model}"

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield what comes back."""
        connection = await self._connect()
        decoder = Decoder(self._model)
        with _provider_errors(self._model):
            body = encode(request, self._model, self._memo)
            async with aclosing(connection.chunks(self._model, body)) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
        for event in decoder.close():
            yield event

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _connect(self) -> "_GeminiClient":
        async with self._connecting:
            loop = asyncio.get_running_loop()
            if self._connection is None or self._loop is not loop:
                # Importing the SDK takes a second of CPU, a keyring may ask its owner: not on the event loop.
                self._connection = await asyncio.to_thread(_GeminiClient, self._base_url, self._api_key)
                self._loop = loop
            return self._connection


class _GeminiClient:
    """The SDK's client on an HTTP client of ours, which keeps it from picking aiohttp where that is installed."""

    def __init__(self, base_url: str | None, api_key: str | None) -> None:
        import httpx2
        from google.genai import types, version

        # One TLS context for the three places where the SDK would load the certificates anew.
        tls = httpx2.create_ssl_context()
        hooks = {"request": [_bound_waiting], "response": [_note_opened]}
        self._http = httpx2.AsyncClient(verify=tls, event_hooks=hooks)
        options = types.HttpOptions(
            httpx_async_client=self._http, httpx_client=httpx2.Client(verify=tls), async_client_args={"ssl": tls}
        )
        project = _vertex_project() if api_key is None else None
        if project is None:
            self._client = _gemini_client(options, base_url, api_key)
        else:
            self._client = _vertex_client(options, project)
        self._private = project is None and version.__version__.startswith(_KNOWN_SDK)

    async def chunks(self, model: str, body: Json) -> AsyncGenerator[Any, None]:
        """Send a body and yield the chunks of the response as plain JSON.

        Closing it early closes the response too, which the SDK would leave to the garbage collector.
        """
        opened: list[httpx2.Response] = []
        _opened.set(opened)
        chunks = (_private_door if self._private else _public_door)(self._client, model, body)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            for response in opened:
                await response.aclose()
            with suppress(Exception):
                await anext(chunks)  # fails, now that nothing can come, and so unwinds the SDK's generators

    async def aclose(self) -> None:
        await self._http.aclose()


def _gemini_client(options: "types.HttpOptions", base_url: str | None, api_key: str | None) -> "Client":
    from google.genai import Client

    options.api_version = "v1beta"
    options.base_url = _checked(base_url or settings.variable(BASE_URL))
    key = (api_key or settings.require_key("Gemini", KEYS)).strip()
    secrets.learn(KEYS[0], key)
    if not (key.isascii() and key.isprintable()):  # an HTTP client would quote it in its complaint
        message = f"The key of Gemini holds characters that no key has. Copy it again into {' or '.join(KEYS)}."
        raise AuthenticationFailed(message)
    return Client(vertexai=False, api_key=key, http_options=options)


def _checked(base_url: str | None) -> str | None:
    """Return a base URL that can be asked, or None for Google's own."""
    if base_url is None:
        return None
    with suppress(ValueError):
        parts = urlsplit(base_url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return base_url
    message = (
        f"{BASE_URL} is {quoted(base_url)!r}, which is no address to ask. Write it like https://host, or unset it."
    )
    raise BadRequest(message)


def _vertex_client(options: "types.HttpOptions", project: str) -> "Client":
    from google.genai import Client

    location = settings.variable("GOOGLE_CLOUD_LOCATION") or "global"
    return Client(vertexai=True, project=project, location=location, http_options=options)


def _vertex_project() -> str | None:
    """Return the project to ask Vertex AI in, or None to ask the Gemini API."""
    if (settings.variable("GOOGLE_GENAI_USE_VERTEXAI") or "").lower() not in ("true", "1"):
        return None
    if project := settings.variable("GOOGLE_CLOUD_PROJECT"):
        return project
    message = (
        "GOOGLE_GENAI_USE_VERTEXAI is set, but GOOGLE_CLOUD_PROJECT is not. "
        "Set it to your project, or unset the first to use the Gemini API with a key."
    )
    raise AuthenticationFailed(message)


async def _bound_waiting(request: "httpx2.Request") -> None:
    """Bound the wait for a dead connection; the SDK asks for no timeout unless it may tell the server of it."""
    request.extensions["timeout"] = {"connect": CONNECT_TIMEOUT, "read": SILENCE_TIMEOUT}


async def _note_opened(response: "httpx2.Response") -> None:
    _opened.get().append(response)
    kind = str(response.headers.get("content-type", ""))
    if response.is_success and "html" in kind:  # a page for people, from a proxy or a wrong address
        raise not_gemini(kind)


async def _private_door(client: "Client", model: str, body: Json) -> AsyncGenerator[Any, None]:
    """Yield the chunks as the SDK's own client decoded them.

    The public door builds pydantic models of them first, at over ten times the cost. Its requests, keys and
    errors are the same; the tests hold the two against each other.
    """
    api = client.aio._api_client  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  (see above)
    path = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    sent = api._build_request("post", f"{path}:streamGenerateContent?alt=sse", body)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    response: Any = await api._async_request(sent, stream=True)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    async for chunk in response:
        yield chunk


async def _public_door(client: "Client", model: str, body: Json) -> AsyncGenerator[Any, None]:
    """Yield the chunks through the SDK's documented API, turned back into the JSON they were."""
    from google.genai import types

    config = types.GenerateContentConfig(
        # The body goes in as it is, and replaces the contents that the SDK insists on.
        http_options=types.HttpOptions(extra_body=body),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        automatic_continuation=False,
    )
    try:
        async for chunk in await client.aio.models.generate_content_stream(model=model, contents=".", config=config):
            yield chunk.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (AttributeError, TypeError, ValueError) as error:  # what the SDK makes of a chunk of another shape
        raise unreadable(type(error).__name__) from error


@contextmanager
def _provider_errors(model: str) -> Generator[None]:
    """Turn what the SDK and the HTTP client raise into a ProviderError that says what to do."""
    import httpx2
    from google.auth.exceptions import GoogleAuthError
    from google.genai.errors import APIError, UnknownApiResponseError

    try:
        yield
    except APIError as error:
        said: Any = error
        code = said.code if isinstance(said.code, int) else None
        raise refusal(code, said.details, model, retry_after=_wait(said.response)) from error
    except (UnknownApiResponseError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable("it is no JSON, or nested without end") from error
    except (httpx2.ReadError, httpx2.ReadTimeout, httpx2.RemoteProtocolError) as error:
        message = f"The connection to Gemini broke off ({quoted(str(error)) or type(error).__name__}). Ask again."
        raise StreamBroken(message) from error
    except httpx2.HTTPError as error:
        if fault := certificate_fault(error):
            raise untrusted(fault) from error
        reason = quoted(str(error)) or type(error).__name__
        message = f"Gemini cannot be reached ({reason}). Check the network, and {BASE_URL} where it is set."
        raise Unavailable(message) from error
    except GoogleAuthError as error:
        message = f"Google refused the credentials ({quoted(str(error))}). Run: gcloud auth application-default login"
        raise AuthenticationFailed(message) from error


def _wait(response: Any) -> float | None:
    return None if response is None else retry_after(response.headers)
