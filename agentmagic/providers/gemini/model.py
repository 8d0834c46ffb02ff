"""`gemini:MODEL`: Google's Gemini API, and Vertex AI, through the google-genai SDK."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from contextvars import ContextVar
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from agentmagic import settings
from agentmagic.errors import AuthenticationFailed, BadRequest, ProviderError
from agentmagic.messages import HostedTool
from agentmagic.providers.base import ModelEvent, ModelSettings, Request
from agentmagic.providers.clients import RemoteModel, http_client
from agentmagic.providers.failures import quote, sentence, stream_broken, unreachable, usable_key, usable_url
from agentmagic.providers.gemini import BASE_URL, KEYS, PROVIDERS
from agentmagic.providers.gemini.batches import GeminiBatches
from agentmagic.providers.gemini.decoder import Decoder, refusal
from agentmagic.providers.gemini.encoder import CIRCULATES, encode, honoured_names, hosts, memo_for
from agentmagic.providers.wire import Json, omit_fields, retry_after, write_body

if TYPE_CHECKING:
    import httpx2
    from google.genai.client import AsyncClient

OWN_URL = "https://generativelanguage.googleapis.com"
"""The address of the Gemini API, which is also the SDK's default."""

_body: ContextVar[bytes | None] = ContextVar("body")
"""The body to put into the request that the SDK sends for this task, or None to keep the SDK's own body."""


class Gemini(RemoteModel["_Access", "_GeminiClient"]):
    """A model of the Gemini API, or of Vertex AI if `GOOGLE_GENAI_USE_VERTEXAI` is true.

    Vertex AI needs `GOOGLE_CLOUD_PROJECT`, and Google's application default credentials in place of a key.
    """

    row = PROVIDERS[0]
    vendor = "Gemini"

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = memo_for(model)

    @property
    def reached_at(self) -> str:
        """The address that requests reach: Google's own address unless another one is set."""
        return _vertex_url() if self._is_vertex else self.base_url or OWN_URL

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of those `settings` that the model accepts."""
        return honoured_names(self.model, settings)

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether Google runs the tool itself. Not on Vertex AI, which refuses functions together with it."""
        return not self._is_vertex and hosts(self.model, tool)

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        return omit_fields(encode(request, self.model, self._memo), self.without)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        body = self.body(request)
        decoder = Decoder(self.model, circulates=CIRCULATES in body.get("toolConfig", {}))
        response = await self._post(lambda client: client.post(self.model, write_body(body)), body)
        async with aclosing(self._events(response, decoder, body)) as events:
            async for event in events:
                yield event

    def batches(self) -> GeminiBatches | None:
        """Return the batch API, or None on Vertex AI. A compatible server need not have it."""
        return None if self._is_vertex else GeminiBatches(self, self)

    @property
    def _is_vertex(self) -> bool:
        return self._api_key is None and _uses_vertex()

    async def open(self, call: "Callable[[AsyncClient], Awaitable[object]]") -> "httpx2.Response":
        """Send the first HTTP request of an SDK call, and return the open response."""
        return await self._post(lambda client: client.open(call))

    async def upload(self, content: bytes) -> "httpx2.Response":
        """Send a file and return the open response."""
        return await self._post(lambda client: client.upload(content))

    async def _post(
        self, send: "Callable[[_GeminiClient], Awaitable[httpx2.Response]]", body: Json | None = None
    ) -> "httpx2.Response":
        """Call `send` with the client, and return the open response. Raises ProviderError for a failed request."""
        client = await self._client()
        import httpx2
        from google.auth.exceptions import GoogleAuthError

        try:
            response = await send(client)
        except (ValueError, RecursionError, httpx2.InvalidURL) as error:
            raise BadRequest(sentence(f"The request cannot be sent: {error}")) from error
        except httpx2.HTTPError as error:
            raise unreachable("Gemini", error, BASE_URL, self.base_url) from error
        except GoogleAuthError as error:
            raise AuthenticationFailed(
                f"Google refused the credentials ({quote(str(error))}). Run: gcloud auth application-default login"
            ) from error
        if not response.is_success:
            raise await self._refusal(response, body or {})
        return response

    async def _refusal(self, response: "httpx2.Response", body: Json) -> ProviderError:
        """Return the error for a response with a status of failure, and close the response."""
        import httpx2

        payload: object = None
        async with aclosing(response):
            with suppress(httpx2.HTTPError):  # the status alone is enough for an error
                await response.aread()
                payload = {"message": response.text}
                with suppress(ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
                    payload = response.json()
        wait = retry_after(response.headers)
        failure = refusal(response.status_code, payload, self.model, retry_after=wait, who=self.who)
        return self._note_refusal(failure, body, payload)

    def _find(self) -> "_Access":
        self._found_url = url = self.reached_at
        if self._api_key is None and (project := _vertex_project()) is not None:
            return _Access(url, project=project, location=_vertex_location())
        return _Access(usable_url(url, BASE_URL, self.example), usable_key(self.vendor, self._api_key, KEYS))

    @staticmethod
    def _connect(access: "_Access") -> "_GeminiClient":
        return _GeminiClient(access)


class _Access(NamedTuple):
    """How to reach a model: the address, with the key of the Gemini API, or the project and location of Vertex AI."""

    url: str
    key: str = ""
    project: str = ""
    location: str = ""


class _GeminiClient:
    """A client that uses Google's SDK only for the address and the credentials of a request.

    The SDK is not allowed to encode the body or to read the response: it would copy the whole history, build a pydantic
    model for each chunk, and crash at an error response that is not UTF-8.
    """

    def __init__(self, access: _Access) -> None:
        import httpx2
        from google.genai import Client, types

        self._http = http_client(_sender())
        # An empty TLS context, which trusts no server and reads no files, for the three other clients that the SDK
        # makes and that are never used.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        options = types.HttpOptions(
            base_url=access.url,
            httpx_async_client=self._http,
            httpx_client=httpx2.Client(verify=tls, trust_env=False),
            async_client_args={"ssl": tls},
        )
        if access.project:
            self._client = Client(vertexai=True, project=access.project, location=access.location, http_options=options)
        else:
            options.api_version = "v1beta"
            self._client = Client(vertexai=False, api_key=access.key, http_options=options)

    async def post(self, model: str, body: bytes) -> "httpx2.Response":
        """Send a body and return the open response, of any status. Errors of the SDK and of httpx2 are raised."""
        from google.genai import types

        config = types.GenerateContentConfig(
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), automatic_continuation=False
        )

        async def first(aio: "AsyncClient") -> None:
            chunks = await aio.models.generate_content_stream(model=model, contents=".", config=config)
            await anext(chunks, None)

        return await self.open(first, body)

    async def open(
        self, call: "Callable[[AsyncClient], Awaitable[object]]", body: bytes | None = None
    ) -> "httpx2.Response":
        """Send the first HTTP request of an SDK call, with `body` if given, and return the open response."""
        token = _body.set(body)
        try:
            await call(self._client.aio)
        except _ResponseReady as answered:
            # The traceback would keep the SDK's frames and the body in memory.
            answered.__traceback__ = None
            return answered.response
        finally:
            _body.reset(token)
        raise stream_broken("Google's SDK did not send the request")

    async def upload(self, content: bytes) -> "httpx2.Response":
        """Send a file and return the open response, of any status: https://ai.google.dev/gemini-api/docs/files."""
        import httpx2
        from google.genai import types

        config = types.UploadFileConfig(mime_type="application/jsonl", display_name="batch.jsonl")
        start = await self.open(lambda aio: aio.files.upload(file=BytesIO(content), config=config))
        if not start.is_success:
            return start
        await start.aclose()
        # Use only the path of the returned address, so that the file goes to no other server.
        upload_url = httpx2.URL(start.headers.get("x-goog-upload-url", "/"))
        url = start.request.url.copy_with(raw_path=upload_url.raw_path)
        headers = {"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"}
        return await self._http.send(
            self._http.build_request("POST", url, content=content, headers=headers), stream=True
        )

    async def aclose(self) -> None:
        await self._http.aclose()


class _ResponseReady(BaseException):
    """Raised to carry a response out of the SDK's code. It is a BaseException, so that the SDK does not catch it."""

    def __init__(self, response: "httpx2.Response") -> None:
        super().__init__()
        self.response = response


@cache
def _sender() -> "type[httpx2.AsyncClient]":
    import httpx2

    class Sender(httpx2.AsyncClient):
        """Sends a request of the SDK with the body in `_body`, and raises `_ResponseReady` with the open response."""

        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            try:
                body = _body.get()
            except LookupError:  # not a request of the SDK
                return await super().send(request, **options)
            if body is not None:
                headers = request.headers.copy()
                del headers["Content-Length"]
                request = self.build_request(request.method, request.url, content=body, headers=headers)
            options["stream"] = True
            raise _ResponseReady(await super().send(request, **options))

    return Sender


def _uses_vertex() -> bool:
    return (settings.variable("GOOGLE_GENAI_USE_VERTEXAI") or "").lower() in ("true", "1")


def _vertex_location() -> str:
    return settings.variable("GOOGLE_CLOUD_LOCATION") or "global"


def _vertex_url() -> str:
    """Return the address of Vertex AI for the location, the same as the SDK chooses."""
    match _vertex_location():
        case "global":
            usual = "https://aiplatform.googleapis.com"
        case "us" | "eu" as location:
            usual = f"https://aiplatform.{location}.rep.googleapis.com"
        case location:
            usual = f"https://{location}-aiplatform.googleapis.com"
    return settings.variable("GOOGLE_VERTEX_BASE_URL") or usual


def _vertex_project() -> str | None:
    """Return the project for Vertex AI, or None to use the Gemini API. Raises AuthenticationFailed if it is not set."""
    if not _uses_vertex():
        return None
    if project := settings.variable("GOOGLE_CLOUD_PROJECT"):
        return project
    raise AuthenticationFailed(
        "GOOGLE_GENAI_USE_VERTEXAI is set, but GOOGLE_CLOUD_PROJECT is not. "
        "Set it to your project, or unset the first to use the Gemini API with a key."
    )
