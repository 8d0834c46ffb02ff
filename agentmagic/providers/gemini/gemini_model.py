"""`gemini:MODEL`: Google's Gemini API, and Vertex AI, through the google-genai SDK."""

from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from agentmagic import settings
from agentmagic.errors import AuthenticationFailed
from agentmagic.providers.base import ModelEvent, ModelSettings, Request
from agentmagic.providers.clients import CONNECT_TIMEOUT, SILENCE_TIMEOUT, RemoteModel, http_client, tls_context
from agentmagic.providers.failures import cut_off, no_answer, quoted, unreachable, usable_key, usable_url
from agentmagic.providers.gemini import BASE_URL, KEYS, PROVIDERS
from agentmagic.providers.gemini.gemini_decoder import Decoder, refusal
from agentmagic.providers.gemini.gemini_encoder import encode, honoured_by, memo_for
from agentmagic.providers.wire import Json, retry_after, unreadable

if TYPE_CHECKING:
    import httpx2
    from google.genai import Client

_opened: ContextVar["list[httpx2.Response]"] = ContextVar("opened")
"""The responses of the request that this task sends; the SDK gives no access to them."""

_KNOWN_SDK = "3.4."
"""The versions of google-genai whose private API was tested to yield the same chunks as the public one."""


class Gemini(RemoteModel["_Access", "_GeminiClient"]):
    """A model of the Gemini API, or of Vertex AI if `GOOGLE_GENAI_USE_VERTEXAI` is true.

    Vertex AI needs `GOOGLE_CLOUD_PROJECT`, and Google's application default credentials in place of a key.
    """

    row = PROVIDERS[0]
    vendor = "Gemini"

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = memo_for(model)

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model takes."""
        return honoured_by(self.model, settings)

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        return encode(request, self.model, self._memo)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        connection = await self._client()
        decoder = Decoder(self.model)
        with self._errors():
            body = self.body(request)
            async with aclosing(connection.chunks(self.model, body)) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
        for event in decoder.close():
            yield event

    def _find(self) -> "_Access":
        self._found_url = self.base_url
        if self._api_key is None and (project := _vertex_project()) is not None:
            return _Access(project=project, location=settings.variable("GOOGLE_CLOUD_LOCATION") or "global")
        if self.base_url:
            usable_url(self.base_url, BASE_URL, self.example)
        return _Access(self.base_url, usable_key(self.vendor, self._api_key, KEYS))

    @staticmethod
    def _connect(found: "_Access") -> "_GeminiClient":
        return _GeminiClient(found)

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Turn the errors of the SDK and the HTTP client into ProviderErrors that say what to do."""
        import httpx2
        from google.auth.exceptions import GoogleAuthError
        from google.genai.errors import APIError, UnknownApiResponseError

        try:
            yield
        except APIError as error:
            said: Any = error
            code = said.code if isinstance(said.code, int) else None
            wait = None if said.response is None else retry_after(said.response.headers)
            raise self._refused(refusal(code, said.details, self.model, retry_after=wait), {}) from error
        except (UnknownApiResponseError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable("it is no JSON, or nested without end") from error
        except (httpx2.ReadError, httpx2.ReadTimeout, httpx2.RemoteProtocolError) as error:
            raise cut_off("Gemini", error) from error
        except httpx2.HTTPError as error:
            raise unreachable("Gemini", error, BASE_URL, self.base_url) from error
        except GoogleAuthError as error:
            raise AuthenticationFailed(
                f"Google refused the credentials ({quoted(str(error))}). Run: gcloud auth application-default login"
            ) from error


class _Access(NamedTuple):
    """How to reach a model: the address and key of the Gemini API, or the project and location of Vertex AI."""

    url: str = ""
    key: str = ""
    project: str = ""
    location: str = ""


class _GeminiClient:
    """The SDK's client on an HTTP client of ours; without one the SDK uses aiohttp if that is installed."""

    def __init__(self, access: _Access) -> None:
        import httpx2
        from google.genai import Client, types, version

        self._http = http_client(event_hooks={"request": [_bound_waiting], "response": [_note_opened]})
        tls = tls_context()  # for the three clients that the SDK would make
        options = types.HttpOptions(
            httpx_async_client=self._http, httpx_client=httpx2.Client(verify=tls), async_client_args={"ssl": tls}
        )
        if access.project:
            self._client = Client(vertexai=True, project=access.project, location=access.location, http_options=options)
        else:
            options.api_version = "v1beta"
            options.base_url = access.url or None
            self._client = Client(vertexai=False, api_key=access.key, http_options=options)
        self._private = not access.project and version.__version__.startswith(_KNOWN_SDK)

    async def chunks(self, model: str, body: Json) -> AsyncGenerator[Any, None]:
        """Send a body and yield the chunks of the response as plain JSON.

        Closing the iterator closes the response too; the SDK would leave that to the garbage collector.
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
                await anext(chunks)  # fails, because the response is closed, and so ends the SDK's generators

    async def aclose(self) -> None:
        await self._http.aclose()


def _vertex_project() -> str | None:
    """Return the project for Vertex AI, or None if the Gemini API is to be used."""
    if (settings.variable("GOOGLE_GENAI_USE_VERTEXAI") or "").lower() not in ("true", "1"):
        return None
    if project := settings.variable("GOOGLE_CLOUD_PROJECT"):
        return project
    raise AuthenticationFailed(
        "GOOGLE_GENAI_USE_VERTEXAI is set, but GOOGLE_CLOUD_PROJECT is not. "
        "Set it to your project, or unset the first to use the Gemini API with a key."
    )


async def _bound_waiting(request: "httpx2.Request") -> None:
    """Limit the wait for a dead connection; a timeout given to the SDK would also be sent to the server."""
    request.extensions["timeout"] = {"connect": CONNECT_TIMEOUT, "read": SILENCE_TIMEOUT}


async def _note_opened(response: "httpx2.Response") -> None:
    _opened.get().append(response)
    kind = str(response.headers.get("content-type", ""))
    if response.is_success and "html" in kind:  # a login page of a proxy, or a wrong address
        raise no_answer("The server", kind, BASE_URL)
    if "event-stream" in kind:
        read = response.aiter_bytes  # that of `http_client`, which does not hold the response
        response.aiter_bytes = lambda chunk_size=None: _data_lines(read(chunk_size))


_DATA = b"data:"


async def _data_lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield a stream of events as the SDK can read it: without comments and without fields other than data.

    Gemini sends none of these, but a server between may: a comment that keeps the connection open, for example. The
    SDK also insists on the space behind "data:". A long line is not collected, it passes through chunk by chunk.
    """
    at_start, skipped, begun = True, False, b""
    async with aclosing(chunks):
        async for chunk in chunks:
            lines: list[bytes] = []
            text, begun = begun + chunk, b""
            for line in text.splitlines(keepends=True):
                if at_start and _DATA.startswith(line):  # the chunk ends within the name of the field
                    begun = line
                    break
                if at_start:
                    skipped = line[:1] in b":eir"  # of a comment, event, id, retry
                if not skipped:
                    lines.append(b"data: " + line[5:] if at_start and line.startswith(_DATA) else line)
                at_start = line.endswith((b"\r", b"\n"))
            yield b"".join(lines)


async def _private_door(client: "Client", model: str, body: Json) -> AsyncGenerator[Any, None]:
    """Yield the chunks as the SDK's own client decodes them, before it builds pydantic models of them.

    The models cost over ten times as much as the rest. Requests, keys and errors are the same as those of the public
    API; the tests compare the two.
    """
    api = client.aio._api_client  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  (see above)
    path = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    sent = api._build_request("post", f"{path}:streamGenerateContent?alt=sse", body)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    response: Any = await api._async_request(sent, stream=True)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    async for chunk in response:
        yield chunk


async def _public_door(client: "Client", model: str, body: Json) -> AsyncGenerator[Any, None]:
    """Yield the chunks of the SDK's documented API, turned back into JSON."""
    from google.genai import types

    config = types.GenerateContentConfig(
        # The whole body, which replaces the contents that the SDK insists on.
        http_options=types.HttpOptions(extra_body=body),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        automatic_continuation=False,
    )
    try:
        async for chunk in await client.aio.models.generate_content_stream(model=model, contents=".", config=config):
            yield chunk.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (AttributeError, TypeError, ValueError) as error:  # the SDK's errors for a chunk of another shape
        raise unreadable(type(error).__name__) from error
