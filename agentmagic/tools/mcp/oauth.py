"""OAuth for an MCP server over HTTP.

The mcp library runs the protocol, and this module asks the user. The library finds the authorization server (RFC 9728,
RFC 8414), registers agentmagic there (RFC 7591), and uses PKCE (RFC 7636) and resource indicators (RFC 8707). It does
so in a generator that yields HTTP requests. This module sends these requests with an HTTP client and limits of its own.
The library itself would send them through the connection to the MCP server, and hold a lock until each call is
answered. One slow call would then block all others.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import parse_qs, urlsplit

from agentmagic import text
from agentmagic.providers.proxies import async_client
from agentmagic.runtime.timeouts import GRACE
from agentmagic.secrets import redact
from agentmagic.text import is_loopback, single_line
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.http_transport import limit_body, replace_answer
from agentmagic.tools.mcp.pending import PendingCallers
from agentmagic.tools.mcp.server_errors import failure
from agentmagic.tools.mcp.token_store import Grant, hide, keyring_usable

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult

    Flow = AsyncGenerator[httpx2.Request, httpx2.Response]

CLIENT = "agentmagic"  # The name of this client on authorization pages.
USER_SECONDS = 900.0  # Seconds that the user has to authorize agentmagic in the browser.
TRIES = 3  # How many times the user can paste the browser's final address if it is invalid.

_REFUSED = 401
_TOO_LITTLE = 403
_SUCCESS = range(200, 300)
_PATH = "/callback"
_PLACEHOLDER = "http://127.0.0.1/callback"
_IN_KEYRING = "The token will be kept in the keyring of this system."
_IN_MEMORY = "No keyring can be used here: the token will be kept in memory, until the kernel ends."
_OTHERWISE = "or give its entry an Authorization header"
_PAGE = b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
_THANKS = b"agentmagic has the answer. You can close this page and go back to your notebook."
_NOTHING = b"Nothing is waited for here."


class NotAuthorized(Exception):
    """Raised when no access token can be obtained. The message completes the words "the server cannot be used: "."""


class CallerLeft(NotAuthorized):
    """Raised when the user was asked to authorize agentmagic, but no code waits for the server any more."""


class Authorization:
    """Adds the access token to each request of one connection, and gets a new token if the server refuses the old one.

    `problem` says why there was no token for the last request, or is "" if there was one or the server needs none.
    `failed_attempt` says why an authorization failed after the user was asked, or is "" otherwise.
    """

    def __init__(self, grant: Grant, pending: PendingCallers) -> None:
        self._grant = grant
        self._pending = pending
        self.problem = ""
        self._lock = asyncio.Lock()
        self._has_asked = False
        self._consents = 0
        self.failed_attempt = ""

    def as_auth(self) -> "httpx2.Auth":
        """Return this authorization as an `httpx2.Auth`, which HTTP clients accept."""
        import httpx2

        flow = self.flow

        class Auth(httpx2.Auth):
            def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
                return flow(request)

        return Auth()

    async def flow(self, request: "httpx2.Request") -> "AsyncGenerator[httpx2.Request, httpx2.Response]":
        """Send a request. If the server refuses the token, get a new token and send the request again."""
        for _ in range(limits.TOKEN_ATTEMPTS):
            token = self._grant.access
            if token:
                request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            self.problem = ""
            if not _asks_for_token(response):
                return
            if not await self._has_better(request, response, token):
                if self.problem:
                    replace_answer(response, failure(response.status_code, self.problem))
                return

    async def _has_better(self, request: "httpx2.Request", refusal: "httpx2.Response", token: str | None) -> bool:
        if request.method == "DELETE":  # A DELETE only ends the session, so the user is not asked.
            return False
        try:
            async with self._lock:
                if self._grant.access == token:
                    await self._grant.load()  # Another kernel may have stored a token.
                if self._grant.access == token:
                    await self._obtain(request, refusal)
        except Exception as error:  # noqa: BLE001  (the server's refusal stands, and we explain it in our words)
            reason = _reason(error, self._grant.url)
            if self._has_asked and not isinstance(error, CallerLeft):
                self.failed_attempt = reason
            status = f"HTTP {refusal.status_code}"
            self.problem = reason if status in reason else f"{status}: {reason}"
            return False
        return True

    async def _obtain(self, request: "httpx2.Request", refusal: "httpx2.Response") -> None:
        """Refresh the access token, or ask the user to authorize a new one.

        Raises NotAuthorized if there is no new token, and the exceptions of the mcp library.
        """
        token, is_refusal_sent, self._has_asked = self._grant.access, False, False
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(_make_client())
            prompt = _AuthorizationPrompt(self._pending, self._grant.url)
            provider = self._provider(prompt)
            if refusal.status_code == _REFUSED:
                provider.context.token_expiry_time = 1.0  # This is long ago, so the library refreshes the token first.
            flow = await stack.enter_async_context(aclosing(provider.async_auth_flow(request)))
            outgoing = await anext(flow)
            # The mcp library yields the original request when it has a token. If the server has refused that token,
            # this code sends the refusal to the library, once. The library then starts a new authorization.
            while outgoing is not request or not (is_refusal_sent or _has_other_token(provider, token)):
                if outgoing is request:
                    is_refusal_sent = True
                    await self._prepare(provider, prompt, stack, refusal)
                    outgoing = await flow.asend(refusal)
                else:
                    response = await _send(client, outgoing, self._grant.url)
                    response = _forgive_slash(response, provider.context.auth_server_url, prompt.issuers)
                    outgoing = await _next_request(flow, response, provider)
            self._grant.issuer = provider.context.oauth_metadata
            self._grant.resource = provider.context.protected_resource_metadata
        await self._grant.save()

    def _provider(self, prompt: "_AuthorizationPrompt") -> "OAuthClientProvider":
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata

        metadata = OAuthClientMetadata.model_validate({"redirect_uris": [_PLACEHOLDER], "client_name": CLIENT})
        provider = OAuthClientProvider(
            self._grant.url,
            metadata,
            self._grant,
            redirect_handler=prompt.show,
            callback_handler=prompt.wait,
            client_metadata_url=self._grant.server.client_metadata_url or None,
        )
        provider.context.oauth_metadata = self._grant.issuer
        provider.context.protected_resource_metadata = self._grant.resource
        return provider

    async def _prepare(
        self,
        provider: "OAuthClientProvider",
        prompt: "_AuthorizationPrompt",
        stack: AsyncExitStack,
        refusal: "httpx2.Response",
    ) -> None:
        """Prepare an authorization by the user: listen at a redirect address, and use it to register agentmagic.

        Many authorization servers compare the redirect address literally, so a new address needs a new registration.
        Raises NotAuthorized if no user can be asked, an earlier attempt for this connection failed, or the user was
        asked too often.
        """
        from mcp.shared.auth import OAuthClientInformationFull
        from pydantic import AnyUrl

        if self.failed_attempt:  # The user was asked already, and is asked again only for the next connection.
            raise NotAuthorized(self.failed_attempt)
        if not await self._pending.is_attended():
            raise NotAuthorized(
                f"it asks to be authorized (HTTP {refusal.status_code}), and no one is there to do so; connect it once "
                f"in a notebook, with %mcp add, {_OTHERWISE}"
            )
        if self._consents >= limits.CONSENTS:
            rights = f" It wants: {scope}." if (scope := scope_of(refusal)) else ""
            raise NotAuthorized(
                f"it was authorized {self._consents} times and asks for more each time.{rights} "
                "Restart the server to be asked again"
            )
        self._has_asked = True
        self._consents += 1
        server = self._grant.server
        prompt.redirect = await stack.enter_async_context(Redirect(server.callback_port))
        provider.context.client_metadata.redirect_uris = [AnyUrl(prompt.redirect.address)]
        provider.context.client_info = None
        if server.client_id:
            method = "client_secret_basic" if server.client_secret else "none"
            credentials = {"client_id": server.client_id, "client_secret": server.client_secret or None}
            provider.context.client_info = OAuthClientInformationFull.model_validate(
                {**credentials, "redirect_uris": [prompt.redirect.address], "token_endpoint_auth_method": method}
            )
        # The stored metadata is cleared, because the authorization server may have moved since it was stored.
        provider.context.oauth_metadata = provider.context.protected_resource_metadata = None


class _AuthorizationPrompt:
    """One authorization by the user: shows the address of a web page, and waits for the answer.

    The answer comes from the browser, or the user pastes it.
    """

    def __init__(self, pending: PendingCallers, server: str) -> None:
        self._pending = pending
        self._server = server
        self._page = self._scope = ""
        self.redirect: Redirect | None = None
        self.issuers: dict[str, str] = {}
        """The issuer as its metadata has it, and as it was announced, where a slash was forgiven."""

    async def show(self, url: str) -> None:
        """Store the address of the authorization page, which `wait` shows to the user.

        Raises NotAuthorized if the address must not be shown.
        """
        if problem := address_problem(url, self._server):
            raise NotAuthorized(f"the authorization page it named is not shown: {problem}")
        self._page = url
        self._scope = single_line(" ".join(parse_qs(urlsplit(url).query).get("scope", ())), limits.SCOPE)

    async def wait(self) -> "AuthorizationCodeResult":
        """Return the authorization code that the browser sends or the user pastes. Raises NotAuthorized without it."""
        from mcp.shared.auth import AuthorizationCodeResult

        answer = await self._first_answer()
        if answer.error:
            raise NotAuthorized(f"its authorization server refused: {answer.error}")
        issuer = answer.issuer and self.issuers.get(answer.issuer, answer.issuer)
        return AuthorizationCodeResult(code=answer.code, state=answer.state, iss=issuer)

    async def _first_answer(self) -> "RedirectAnswer":
        redirect = self.redirect
        if redirect is None:
            raise NotAuthorized("it was not authorized")
        redirect.state = parse_qs(urlsplit(self._page).query)["state"][-1]
        question = asyncio.ensure_future(self._typed_answer(redirect.state))
        # The callback retrieves the exception of `question`. If the browser answers first, no other code retrieves it,
        # and asyncio would log that.
        question.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            done, _ = await asyncio.wait(
                (question, redirect.answer), timeout=USER_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            question.cancel()
            await asyncio.wait((question,), timeout=GRACE)
        if redirect.answer.done():
            return redirect.answer.result()
        if question.cancelled():
            raise (
                CallerLeft("no caller waits for it any more")
                if done
                else NotAuthorized("it was not authorized in time")
            )
        return question.result()

    async def _typed_answer(self, state: str) -> "RedirectAnswer":
        note = _IN_KEYRING if await keyring_usable() else _IN_MEMORY
        for _ in range(TRIES):
            address = await self._pending.authorize(self._page, note, self._scope)
            if not address.strip():
                raise NotAuthorized("it was not authorized")
            try:
                answer = read_redirect(address)
            except ValueError as error:
                note = str(error)
                continue
            if answer.belongs_to(state):
                return answer
            note = "That address answers another request, not this one."
        raise NotAuthorized("it was not authorized: no address that was pasted answers the request")


@dataclass(frozen=True, slots=True)
class RedirectAnswer:
    """The answer of an authorization page: a code or an error (RFC 6749, 4.1.2; RFC 9207)."""

    state: str
    code: str = ""
    issuer: str | None = None
    error: str = ""

    def belongs_to(self, state: str) -> bool:
        """Return whether this answers the authorization request that had the given `state` parameter."""
        return secrets.compare_digest(self.state.encode(), state.encode())


def read_redirect(address: str) -> RedirectAnswer:
    """Return the authorization answer in the address at which the browser ended.

    Raises ValueError, with a sentence for the user, if the address contains no answer.
    """
    try:
        query = parse_qs(urlsplit(address.strip()).query, max_num_fields=20)
    except ValueError:
        raise ValueError("That address cannot be read.") from None
    values = {name: texts[0] for name, texts in query.items()}
    error = single_line(redact(f"{values.get('error', '')} {values.get('error_description', '')}"), 300)
    if "state" not in values or not (error or "code" in values):
        raise ValueError("That address holds no answer: it should have code=... and state=... in it.")
    return RedirectAnswer(values["state"], values.get("code", ""), values.get("iss"), error)


class Redirect:
    """A context manager that waits for the redirected browser on a port of 127.0.0.1, by default a free port.

    `answer` is set by the first request with the expected `state` parameter. Other requests get a 404 response.
    """

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self.answer: asyncio.Future[RedirectAnswer] = asyncio.get_running_loop().create_future()
        self.address = ""
        self.state = ""
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=limits.REDIRECT_BYTES)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        self.answer.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            async with asyncio.timeout(limits.REDIRECT_SECONDS):
                answer = self._answer_in(await reader.readuntil(b"\r\n\r\n"))
                status, page = (b"200 OK", _THANKS) if answer else (b"404 Not Found", _NOTHING)
                writer.write(_PAGE % (status, len(page), page))
                await writer.drain()
            # The answer is set after the page is sent, because the code that waits for it then closes this server.
            if answer and not self.answer.done():
                self.answer.set_result(answer)
        except (OSError, EOFError, asyncio.LimitOverrunError):  # OSError includes TimeoutError
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer_in(self, request: bytes) -> RedirectAnswer | None:
        method, _, target = request.partition(b"\r\n")[0].decode("ascii", "replace").partition(" ")
        target = target.partition(" ")[0]
        try:
            answer = read_redirect(target)
        except ValueError:
            return None
        fits = method == "GET" and target.startswith(f"{_PATH}?") and self.state and answer.belongs_to(self.state)
        return answer if fits else None


def address_problem(url: str, server: str) -> str | None:
    """Return why an address that a server names for OAuth must not be used, or None if it can be used.

    The address must use https. It may use http only if the address and the MCP server are both on this machine, because
    a remote server must not make us send requests to services here that use http.
    """
    return text.address_problem(url, limits.AUTH_ADDRESS, https=not (is_loopback(url) and is_loopback(server)))


def _asks_for_token(response: "httpx2.Response") -> bool:
    """Return whether an HTTP response asks for an access token, or for one with more rights (RFC 6750, 3.1)."""
    from mcp.client.auth.utils import extract_field_from_www_auth

    if response.status_code == _TOO_LITTLE:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == _REFUSED


def scope_of(response: "httpx2.Response") -> str:
    """Return the rights (OAuth scopes) that a server asks for in the headers of a refusal, or ""."""
    from mcp.client.auth.utils import extract_scope_from_www_auth

    return single_line(extract_scope_from_www_auth(response) or "", limits.SCOPE)


async def _next_request(flow: "Flow", response: "httpx2.Response", provider: "OAuthClientProvider") -> "httpx2.Request":
    """Give a response to the mcp library's OAuth flow, and return the flow's next request.

    Raises NotAuthorized if the server does not support OAuth.
    """
    from mcp.client.auth import OAuthRegistrationError

    try:
        return await flow.asend(response)
    except OAuthRegistrationError:
        context = provider.context
        if context.oauth_metadata is None and context.protected_resource_metadata is None:
            raise NotAuthorized(
                "it wants a token and does not say where to get one; give its entry an Authorization header"
            ) from None
        raise


def _forgive_slash(response: "httpx2.Response", announced: str | None, issuers: dict[str, str]) -> "httpx2.Response":
    """Return a response, in which the issuer of metadata is the announced one if only its closing slash differs.

    Then `issuers` gets both. RFC 8414, 3.3 compares issuers as plain strings. Google's servers, Auth0 and Expo differ
    by the slash of an empty path (2026-11). The issuer in the browser's answer must be that of the metadata, as it is
    written there (RFC 9207, 2.4).
    """
    import httpx2
    from mcp.client.auth.utils import issuers_match

    try:
        metadata = response.json() if announced is not None and response.status_code in _SUCCESS else None
    except (ValueError, RecursionError):  # another answer of the flow, which the library judges
        return response
    if announced is None or not isinstance(metadata, dict):
        return response
    fields = cast("dict[str, Any]", metadata)
    issuer = fields.get("issuer")
    if not isinstance(issuer, str) or issuer == announced or not issuers_match(issuer, announced):
        return response
    issuers[issuer] = announced
    return httpx2.Response(response.status_code, json={**fields, "issuer": announced}, request=response.request)


def _has_other_token(provider: "OAuthClientProvider", token: str | None) -> bool:
    current = provider.context.current_tokens
    return current is not None and current.access_token != token


def _make_client() -> "httpx2.AsyncClient":
    """Return an HTTP client for the authorization server. It does not send the headers configured for the MCP server.

    The size of responses is limited; `_send` sets the time limit.
    """
    import httpx2

    async def limit(response: httpx2.Response) -> None:
        await limit_body(response, limits.AUTH_BYTES)

    return async_client(timeout=None, event_hooks={"response": [limit]})


async def _send(client: "httpx2.AsyncClient", request: "httpx2.Request", server: str) -> "httpx2.Response":
    """Send a request of the mcp library's OAuth flow, and register the secrets in the response."""
    if problem := address_problem(str(request.url), server):
        raise NotAuthorized(f"an address of its authorization is not used: {problem}")
    request.headers["Accept-Encoding"] = "identity"
    async with asyncio.timeout(limits.AUTH_SECONDS):
        response = await client.send(request, follow_redirects=False)
    if request.method == "POST" and response.status_code in _SUCCESS:
        try:
            hide(response.json())
        except ValueError:  # The library's own error would quote the response.
            raise NotAuthorized("what its authorization server answered cannot be read") from None
    return response


def _reason(error: Exception, url: str) -> str:
    """Return a phrase for the user that says why there is no access token, and what to do."""
    from mcp.client.auth import OAuthRegistrationError

    match error:
        case NotAuthorized():
            return str(error)
        case TimeoutError():
            return f"its authorization server did not answer within {limits.AUTH_SECONDS:g} s"
        case OAuthRegistrationError():
            message = single_line(redact(str(error)), 300)
            return (
                f"its authorization server registers no clients ({message}); give its entry a client_id, {_OTHERWISE}"
            )
        case _:
            message = single_line(redact(f"{type(error).__name__}: {error}"), 300)
            return f"{url} could not be authorized ({message}); try again, {_OTHERWISE}"
