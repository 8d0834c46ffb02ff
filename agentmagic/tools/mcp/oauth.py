"""OAuth for a server over HTTP: the mcp library's protocol, with our network, our keyring and our person.

The library finds the authorization server (RFC 9728, RFC 8414), registers a client with it (RFC 7591) and
speaks PKCE (RFC 7636) and resource indicators (RFC 8707). It does so in a generator that yields requests.
We send those ourselves, with limits, apart from the server's own connection: the library would send them
through that, and keep a lock while a call is answered, so that one slow call would hold up all the others.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from agentmagic.runtime.timeouts import GRACE
from agentmagic.secrets import redact
from agentmagic.tools.mcp.redirect import Answer, Redirect, read
from agentmagic.tools.mcp.streamable_http import bound
from agentmagic.tools.mcp.tokens import Grant, hide, usable
from agentmagic.tools.mcp.words import deceives, line

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult

    from agentmagic.tools.mcp.waiting import Waiting

CLIENT = "agentmagic"
"""What an authorization page calls us."""

ANSWER = 15.0
"""Seconds an authorization server has for each answer."""

LONGEST_ANSWER = 512 * 1024
LONGEST_ADDRESS = 4000

PERSON = 900.0
"""Seconds a person has on the authorization page."""

TRIES = 3
"""How often a person is asked again for an address that does not fit."""

MOST_TOKENS = 4
"""Tokens a request is sent with: none, the one that was kept, a refreshed one, a new one."""

_REFUSED = 401
_TOO_LITTLE = 403
_FINE = range(200, 300)
_PLACEHOLDER = "http://127.0.0.1/callback"
_KEPT = "The token will be kept in the keyring of this system."
_UNKEPT = "No keyring can be used here: the token will be kept in memory, until the kernel ends."
_OTHERWISE = "or give its entry an Authorization header"


class NotAuthorized(Exception):
    """Why there is no token; completes "the server cannot be used: ..."."""


class Interrupted(NotAuthorized):
    """The person was asked, and nobody waits for the answer any more."""


class Authorization:
    """Puts the token on each request of one connection; where it is refused, gets another.

    `on_problem` is told why there is none, and "" once there is. `in_vain` is why a person who was asked did not
    authorize us, "" if that did not happen.
    """

    def __init__(self, grant: Grant, waiting: "Waiting", on_problem: Callable[[str], None]) -> None:
        self._grant = grant
        self._waiting = waiting
        self._on_problem = on_problem
        self._lock = asyncio.Lock()
        self._asked = False
        self.in_vain = ""

    async def flow(self, request: "httpx2.Request") -> "AsyncGenerator[httpx2.Request, httpx2.Response]":
        """Send a request, and again with every token that is better than the one refused."""
        for _ in range(MOST_TOKENS):
            used = self._sign(request)
            response = yield request
            if not _asks(response) or not await self._has_better(request, response, used):
                return

    def _sign(self, request: "httpx2.Request") -> str | None:
        if access := self._grant.access:
            request.headers["Authorization"] = f"Bearer {access}"
        return access

    async def _has_better(self, request: "httpx2.Request", refused: "httpx2.Response", used: str | None) -> bool:
        if request.method == "DELETE":  # the goodbye
            return False
        try:
            async with self._lock:
                if self._grant.access == used:
                    await self._grant.load()  # of another kernel, or an earlier one
                if self._grant.access == used:
                    await self._obtain(request, refused)
        except Exception as error:  # noqa: BLE001  (the refusal stands, and is said in our words)
            words = _words(error, self._grant.url)
            if self._asked and not isinstance(error, Interrupted):
                self.in_vain = words
            self._on_problem(words)
            return False
        self._on_problem("")
        return True

    async def _obtain(self, request: "httpx2.Request", refused: "httpx2.Response") -> None:
        """Refresh the token, or have a person authorize a new one. Raises NotAuthorized, and what the library does."""
        used, fed, self._asked = self._grant.access, False, False
        async with AsyncExitStack() as opened:
            side = await opened.enter_async_context(_client())
            asking = _Asking(self._waiting, self._grant.url)
            provider = self._provider(asking)
            if refused.status_code == _REFUSED:
                provider.context.token_expiry_time = 1.0  # long ago: the library refreshes it first
            flow = await opened.enter_async_context(aclosing(provider.async_auth_flow(request)))
            outgoing = await anext(flow)
            while outgoing is not request or not (fed or _is_other(provider, used)):
                if outgoing is request:
                    fed = True
                    await self._prepare(provider, asking, opened)
                    outgoing = await flow.asend(refused)
                else:
                    outgoing = await flow.asend(await _send(side, outgoing, self._grant.url))
            self._grant.issuer = provider.context.oauth_metadata
            self._grant.resource = provider.context.protected_resource_metadata
        await self._grant.save()

    def _provider(self, asking: "_Asking") -> "OAuthClientProvider":
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata

        metadata = OAuthClientMetadata.model_validate({"redirect_uris": [_PLACEHOLDER], "client_name": CLIENT})
        provider = OAuthClientProvider(
            self._grant.url, metadata, self._grant, redirect_handler=asking.show, callback_handler=asking.wait
        )
        provider.context.oauth_metadata = self._grant.issuer
        provider.context.protected_resource_metadata = self._grant.resource
        return provider

    async def _prepare(self, provider: "OAuthClientProvider", asking: "_Asking", opened: AsyncExitStack) -> None:
        """Open the way back, and have a client registered for its address: many servers want it to the letter.

        A person who was asked in vain is not asked again before the server is connected anew.
        """
        from pydantic import AnyUrl

        if self.in_vain:
            raise NotAuthorized(self.in_vain)
        if not await self._waiting.attended():
            raise NotAuthorized(
                "it asks to be authorized, and nobody is there to do so; connect it once in a notebook, "
                f"with %mcp add, {_OTHERWISE}"
            )
        self._asked = True
        asking.redirect = await opened.enter_async_context(Redirect())
        provider.context.client_metadata.redirect_uris = [AnyUrl(asking.redirect.address)]
        provider.context.client_info = None
        provider.context.oauth_metadata = provider.context.protected_resource_metadata = None  # they may have moved


class _Asking:
    """One authorization: the page, the person, and the way back."""

    def __init__(self, waiting: "Waiting", server: str) -> None:
        self._waiting = waiting
        self._server = server
        self._page = ""
        self.redirect: Redirect | None = None

    async def show(self, url: str) -> None:
        """Take the address of the page. Raises NotAuthorized where it is none to be shown."""
        if problem := unfit(url, self._server):
            raise NotAuthorized(f"the authorization page it named is not shown: {problem}")
        self._page = url

    async def wait(self) -> "AuthorizationCodeResult":
        """Return the code that came back first, by the browser or by the person's hand. Raises NotAuthorized."""
        from mcp.shared.auth import AuthorizationCodeResult

        answer = await self._first()
        if answer.error:
            raise NotAuthorized(f"its authorization server refused: {answer.error}")
        return AuthorizationCodeResult(code=answer.code, state=answer.state, iss=answer.issuer)

    async def _first(self) -> Answer:
        redirect = self.redirect
        if redirect is None:
            raise NotAuthorized("it was not authorized")
        redirect.state = parse_qs(urlsplit(self._page).query)["state"][-1]
        typed = asyncio.ensure_future(self._typed(redirect.state))
        typed.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may ask for it
        try:
            done, _ = await asyncio.wait((typed, redirect.answer), timeout=PERSON, return_when=asyncio.FIRST_COMPLETED)
        finally:
            typed.cancel()
            await asyncio.wait((typed,), timeout=GRACE)
        if redirect.answer.done():
            return redirect.answer.result()
        if typed.cancelled():
            raise (
                Interrupted("no caller waits for it any more")
                if done
                else NotAuthorized("it was not authorized in time")
            )
        return typed.result()

    async def _typed(self, state: str) -> Answer:
        note = _KEPT if await usable() else _UNKEPT
        for _ in range(TRIES):
            pasted = await self._waiting.authorize(self._page, note)
            if not pasted.strip():
                raise NotAuthorized("it was not authorized")
            try:
                answer = read(pasted)
            except ValueError as error:
                note = str(error)
                continue
            if answer.belongs_to(state):
                return answer
            note = "That address answers another request, not this one."
        raise NotAuthorized("it was not authorized: no address that was pasted answers the request")


def as_auth(authorization: Authorization) -> "httpx2.Auth":
    """Return an authorization in the form that a client takes."""
    import httpx2

    class Auth(httpx2.Auth):
        def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            return authorization.flow(request)

    return Auth()


def unfit(url: str, server: str) -> str | None:
    """Say why an address of the authorization is not used, or return None.

    It is on the web and encrypted, or on this machine where the server is too: a server far away
    has no business with what listens here.
    """
    try:
        parts = urlsplit(url)
        here = _is_loopback(parts.hostname) and _is_loopback(urlsplit(server).hostname)
    except ValueError:
        return "it cannot be read"
    if not parts.hostname or (parts.scheme != "https" and not (parts.scheme == "http" and here)):
        return "it is no https address"
    if deceives(url, LONGEST_ADDRESS):
        return "it is written so that it could deceive"
    return None


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _asks(response: "httpx2.Response") -> bool:
    """Whether a server asks for a token, or for one that allows more (RFC 6750, 3.1)."""
    from mcp.client.auth.utils import extract_field_from_www_auth

    if response.status_code == _TOO_LITTLE:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == _REFUSED


def _is_other(provider: "OAuthClientProvider", used: str | None) -> bool:
    current = provider.context.current_tokens
    return current is not None and current.access_token != used


def _client() -> "httpx2.AsyncClient":
    """Make a client for the authorization server: it knows none of the entry's headers. `_send` limits its time."""
    import httpx2

    async def limit(response: httpx2.Response) -> None:
        await bound(response, LONGEST_ANSWER)

    return httpx2.AsyncClient(timeout=None, event_hooks={"response": [limit]})


async def _send(client: "httpx2.AsyncClient", request: "httpx2.Request", server: str) -> "httpx2.Response":
    """Send a request of the library's, and blank what is secret in the answer from now on."""
    if problem := unfit(str(request.url), server):
        raise NotAuthorized(f"an address of its authorization is not used: {problem}")
    request.headers["Accept-Encoding"] = "identity"
    async with asyncio.timeout(ANSWER):
        response = await client.send(request, follow_redirects=False)
    if request.method == "POST" and response.status_code in _FINE:
        try:
            hide(response.json())
        except ValueError:  # the library would quote it
            raise NotAuthorized("what its authorization server answered cannot be read") from None
    return response


def _words(error: Exception, url: str) -> str:
    """Say why there is no token, and what to do."""
    from mcp.client.auth import OAuthRegistrationError

    match error:
        case NotAuthorized():
            return str(error)
        case TimeoutError():
            return f"its authorization server did not answer within {ANSWER:g} s"
        case OAuthRegistrationError():
            said = line(redact(str(error)), 300)
            return f"its authorization server registers no clients ({said}); give its entry an Authorization header"
        case _:
            said = line(redact(f"{type(error).__name__}: {error}"), 300)
            return f"{url} could not be authorized ({said}); try again, {_OTHERWISE}"
