"""`gemini:MODEL`: Google's Gemini API, and Vertex AI, through the google-genai SDK."""

import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from contextvars import ContextVar
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from agentmagic import settings
from agentmagic.errors import AuthenticationFailed, BadRequest, ProviderError
from agentmagic.messages import HostedTool
from agentmagic.providers.addresses import split_query
from agentmagic.providers.base import ModelEvent, ModelSettings, Request
from agentmagic.providers.clients import RemoteModel, http_client
from agentmagic.providers.failures import quote, sentence, stream_broken, unreachable, usable_key
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

    Vertex AI needs the variable `GOOGLE_CLOUD_PROJECT`, and Google's "application default credentials" in place of an
    API key.
    """

    row = PROVIDERS[0]
    vendor = "Gemini"
    mark = "candidates"
    added = re.compile(r"/v1(?:alpha|beta\d*)?(?:/models(?:/[^/]*)?)?$")

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = memo_for(model)

    @property
    def reached_at(self) -> str:
        """The address that requests reach: Google's own address unless another one is set."""
        return _vertex_url() if self._is_vertex else self.base_url or OWN_URL

    @property
    def is_own(self) -> bool:
        """Whether requests go to Google's own server, as they do without a `base_url`."""
        with suppress(ValueError):  # an incomplete IPv6 address; the first request raises the error that explains it
            return urlsplit(self.base_url or OWN_URL).hostname == urlsplit(OWN_URL).hostname
        return False

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of those `settings` that the model accepts."""
        return honoured_names(self.model, settings)

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether Google's servers can run the tool. False on Vertex AI, which refuses it next to functions."""
        return not self._is_vertex and hosts(self.model, tool)

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        return omit_fields(encode(self.refused.fit(request), self.model, self._memo), self.without)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Send the request and yield the events of the answer."""
        with self._sending(request) as body:
            decoder = Decoder(self.model, circulates=CIRCULATES in body.get("toolConfig", {}))
            response = await self._post(lambda client: client.post(self.model, write_body(body)), body)
            async with aclosing(self._events(response, decoder, body)) as events:
                async for event in events:
                    yield event

    def batches(self) -> GeminiBatches | None:
        """Return the batch API of this model, or None on Vertex AI. A server that only imitates Gemini may lack it."""
        return None if self._is_vertex else GeminiBatches(self, self)

    @property
    def _is_vertex(self) -> bool:
        return self._api_key is None and _uses_vertex()

    async def open(self, call: "Callable[[AsyncClient], Awaitable[object]]") -> "httpx2.Response":
        """Run an SDK call until it sends its first HTTP request, and return the open response to this request."""
        return await self._post(lambda client: client.open(call))

    async def upload(self, content: bytes) -> "httpx2.Response":
        """Upload `content` as a file to Google, and return the open response."""
        return await self._post(lambda client: client.upload(content))

    async def _post(
        self, send: "Callable[[_GeminiClient], Awaitable[httpx2.Response]]", body: Json | None = None
    ) -> "httpx2.Response":
        """Call `send` with the Gemini client, and return the open response. Raises ProviderError if the request fails.

        `body` is the body of the request. If the server refuses one of its fields, later requests leave this field out.
        """
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
        """Return the exception for a response whose HTTP status reports an error, and close the response."""
        import httpx2

        payload: object = None
        async with aclosing(response):
            with suppress(httpx2.HTTPError):  # if the body cannot be read, the exception is made from the status alone
                await response.aread()
                payload = {"message": response.text}
                with suppress(ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
                    payload = response.json()
        wait = retry_after(response.headers)
        asked = str(response.url)
        failure = refusal(response.status_code, payload, self.model, retry_after=wait, who=self.who, asked=asked)
        return self._note_refusal(failure, body, payload)

    def _reported(self, error: Json) -> ProviderError:
        return refusal(None, {"error": error}, self.model, who=self.who)

    def _find(self) -> "_Access":
        url = self.reached_at
        if self._api_key is None and (project := _vertex_project()) is not None:
            return _Access(url, project=project, location=_vertex_location())
        return _Access(self._usable_url(), usable_key(self.vendor, self._api_key, KEYS))

    @staticmethod
    def _connect(access: "_Access") -> "_GeminiClient":
        return _GeminiClient(access)


class _Access(NamedTuple):
    """The address of a model, with the key for the Gemini API, or with the project and location for Vertex AI."""

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

        self._http = http_client(_sender(), address=access.url)
        # The SDK also makes three HTTP clients that are never used. They get this empty TLS context, which trusts no
        # server, because a normal one would read the certificates from files.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        options = types.HttpOptions(
            base_url=split_query(access.url)[0],
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
        """Post a request body for `model`, and return the open response, of any HTTP status.

        Raises the errors of the SDK and of httpx2.
        """
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
        """Run an SDK call until it sends its first HTTP request, and return the open response to this request.

        If `body` is given, it is sent in place of the body that the SDK made.
        """
        token = _body.set(body)
        try:
            await call(self._client.aio)
        except _ResponseReady as answered:
            # The traceback is removed: it would keep the SDK's stack frames and the request body in memory.
            answered.__traceback__ = None
            return answered.response
        finally:
            _body.reset(token)
        raise stream_broken("Google's SDK did not send the request")

    async def upload(self, content: bytes) -> "httpx2.Response":
        """Upload `content` as a file, and return the open response, of any HTTP status.

        https://ai.google.dev/gemini-api/docs/files
        """
        import httpx2
        from google.genai import types

        config = types.UploadFileConfig(mime_type="application/jsonl", display_name="batch.jsonl")
        start = await self.open(lambda aio: aio.files.upload(file=BytesIO(content), config=config))
        if not start.is_success:
            return start
        await start.aclose()
        # Of the upload address that the server returned, only the path is used: the file must go to no other server.
        upload_url = httpx2.URL(start.headers.get("x-goog-upload-url", "/"))
        url = start.request.url.copy_with(raw_path=upload_url.raw_path)
        headers = {"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"}
        return await self._http.send(
            self._http.build_request("POST", url, content=content, headers=headers), stream=True
        )

    async def aclose(self) -> None:
        await self._http.aclose()


class _ResponseReady(BaseException):
    """Raised in the SDK's code to get the open response out of it. The SDK does not catch a BaseException."""

    def __init__(self, response: "httpx2.Response") -> None:
        super().__init__()
        self.response = response


@cache
def _sender() -> "type[httpx2.AsyncClient]":
    import httpx2

    class Sender(httpx2.AsyncClient):
        """An HTTP client for the SDK. Its `send` sends a request with the body in `_body` instead, if there is one.

        It then raises `_ResponseReady` with the open response, so that the SDK does not read the response.
        """

        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            try:
                body = _body.get()
            except LookupError:  # `_body` is not set, so this request does not come from the SDK
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
    """Return the address of Vertex AI for the location that the user set. The SDK chooses the same address."""
    match _vertex_location():
        case "global":
            usual = "https://aiplatform.googleapis.com"
        case "us" | "eu" as location:
            usual = f"https://aiplatform.{location}.rep.googleapis.com"
        case location:
            usual = f"https://{location}-aiplatform.googleapis.com"
    return settings.variable("GOOGLE_VERTEX_BASE_URL") or usual


def _vertex_project() -> str | None:
    """Return the Google Cloud project for Vertex AI, or None if the user has not chosen Vertex AI.

    Raises AuthenticationFailed if the user has chosen Vertex AI but set no project.
    """
    if not _uses_vertex():
        return None
    if project := settings.variable("GOOGLE_CLOUD_PROJECT"):
        return project
    raise AuthenticationFailed(
        "GOOGLE_GENAI_USE_VERTEXAI is set, but GOOGLE_CLOUD_PROJECT is not. "
        "Set it to your project, or unset the first to use the Gemini API with a key."
    )
