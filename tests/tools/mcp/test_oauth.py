import asyncio
import contextlib
import json
import logging
import re
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from agentmagic.errors import ServerError
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact
from agentmagic.tools.mcp import config, limits, oauth, token_store
from agentmagic.tools.mcp.oauth import Redirect, read_redirect
from agentmagic.tools.mcp.pending import AuthorizationPage, PendingCallers, ServerHost, Timer
from tests.providers.loopback import Exchange, Loopback
from tests.tools.mcp import calling
from tests.tools.mcp.calling import PATIENCE, call, played
from tests.tools.mcp.servers import authorized


class Drawer(KeyringBackend):
    """A keyring in memory."""

    priority = 1  # pyright: ignore[reportAssignmentType]  (as every backend does)

    def __init__(self):
        super().__init__()
        self.records = {}

    def get_password(self, service, username):
        return self.records.get((service, username))

    def set_password(self, service, username, password):
        self.records[service, username] = password

    def delete_password(self, service, username):
        del self.records[service, username]


@pytest.fixture(autouse=True)
def drawer():
    before, drawer = keyring.get_keyring(), Drawer()
    keyring.set_keyring(drawer)
    yield drawer
    keyring.set_keyring(before)
    token_store._in_memory.clear()


def visit(url):
    """Open a page as a browser does; return the address that it ended up at."""
    try:
        with urllib.request.build_opener().open(url, timeout=PATIENCE) as answer:
            return answer.url
    except urllib.error.HTTPError as error:
        with error:
            return error.url


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


def visit_from_afar(url):
    """Open a page on another machine, from which no redirect comes back; return where it led."""
    try:
        urllib.request.build_opener(_Stay).open(url, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        with error:
            return error.headers["Location"]


@dataclass(frozen=True)
class Idle(ServerHost):
    """Somebody who does nothing, or types these answers."""

    types: list[str] = field(default_factory=list)
    pages: list[AuthorizationPage] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def is_attended(self):
        return True

    async def authorize(self, page):
        self.pages.append(page)
        self.asked.set()
        return self.types.pop(0) if self.types else await self.act(page) or await asyncio.Event().wait()

    async def act(self, page):
        """Do what this person does, and return what the person types; wait for ever if that is None."""


class Visitor(Idle):
    """Somebody who opens each page in a browser, and waits."""

    async def act(self, page):
        await asyncio.to_thread(visit, page.url)


class Paster(Idle):
    """Somebody at another machine, who pastes the address the browser ended up at."""

    async def act(self, page):
        return await asyncio.to_thread(visit_from_afar, page.url)


def _play(scene):
    with authorized.serving() as (url, granting):
        asyncio.run(scene(url, granting))


authorizing = played(_play)
"""Make a test of an async function that gets the URL of a server that asks for a token, and what grants its tokens."""


def connected(url, host, **more):
    return calling.connected(host=host, web=config.parse({"url": url, **more}))


def port_of(page):
    return urlsplit(parse_qs(urlsplit(page.url).query)["redirect_uri"][0]).port


def is_free(port):
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) != 0


@authorizing
async def test_a_person_authorizes_once_and_the_token_is_in_the_keyring_until_the_server_is_removed(
    url, granting, /, drawer
):
    person = Visitor()
    async with connected(url, person) as servers:
        assert (await call(servers, "echo", text="hello")).text == "hello"
        await servers.restart("web")
        assert (await call(servers, "echo", text="again")).text == "again"
    assert [page.note for page in person.pages] == ["The token will be kept in the keyring of this system."]
    assert granting.authorized[0].resource == url
    assert granting.authorized[0].code_challenge
    assert is_free(port_of(person.pages[0]))
    assert list(drawer.records) == [("agentmagic-mcp", url)]
    assert json.loads(drawer.records["agentmagic-mcp", url])["token"]["access_token"] in granting.access
    async with connected(url, ServerHost()) as servers:
        assert (await call(servers, "echo", text="later")).text == "later"
        await servers.remove("web")
    assert not drawer.records


@authorizing
async def test_a_token_that_has_run_out_is_refreshed_once_for_all_kernels_without_asking_and_is_seen_nowhere(
    url, granting, /, caplog
):
    caplog.set_level(logging.DEBUG)
    person = Visitor()
    async with connected(url, person) as servers, connected(url, ServerHost()) as other:
        await call(servers, "echo", text="hello")
        await call(other, "echo", text="hello")
        granting.expire()
        answers = await asyncio.gather(*(call(servers, "echo", text=str(n)) for n in range(5)))
        assert [answer.text for answer in answers] == list("01234")
        assert granting.secrets
        for secret in granting.secrets:
            assert secret not in f"{servers.get('web')} {person.pages} {caplog.text}"
            assert redact(f"<{secret}>") == "<[redacted]>"
        assert (await call(other, "echo", text="in another kernel")).text == "in another kernel"
        assert granting.refreshed == 1
    granting.expire()
    async with connected(url, ServerHost()) as servers:
        assert (await call(servers, "echo", text="later")).text == "later"
    assert (len(person.pages), granting.refreshed) == (1, 2)


@authorizing
async def test_growing_rights_are_named_and_asked_for_three_times_at_most(url, granting, /):
    person = Visitor()
    async with connected(url, person) as servers:
        await call(servers, "echo", text="hello")
        granting.greedy = 2
        assert (await call(servers, "echo", text="more")).text == "more"
        granting.greedy = 9
        refused = await call(servers, "echo", text="hello")
        assert "authorized 3 times and asks for more each time. It wants: more-3." in refused.text
        await call(servers, "echo", text="hello")
    assert [page.scope for page in person.pages] == ["use", "use more-1", "use more-1 more-2"]


@authorizing
async def test_a_client_that_is_registered_already_needs_no_registration(url, granting, /):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    granting.registers = False
    granting.clients["ours"] = OAuthClientInformationFull(
        client_id="ours",
        client_secret="its-own-secret",
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/callback")],
        token_endpoint_auth_method="client_secret_basic",
        scope="use",
    )
    entry = {"client_id": "ours", "client_secret": "its-own-secret", "callback_port": port}
    async with connected(url, Visitor(), **entry) as servers:
        assert (await call(servers, "echo", text="hello")).text == "hello"
        assert "its-own-secret" not in f"{servers.get('web')} {config.parse({'url': url, **entry})}"
    assert list(granting.clients) == ["ours"]


NOBODY = "connect it once in a notebook, with %mcp add, or give its entry an Authorization header."


@pytest.mark.parametrize(
    ("attended", "headers", "words"),
    [
        (False, {}, f"it asks to be authorized (HTTP 401), and no one is there to do so; {NOBODY}"),
        (True, {"authorization": "Bearer of-my-own-making"}, "HTTP 401); check the headers of its entry"),
    ],
)
@authorizing
async def test_with_nobody_there_or_a_header_of_its_own_a_server_fails_at_once_and_says_what_to_do(
    url, granting, /, attended, headers, words
):
    person = Visitor()
    async with connected(url, person if attended else ServerHost(), headers=headers) as servers:
        with pytest.raises(ServerError, match=re.escape(words)):
            await servers.tools()
    assert not person.pages
    assert not granting.clients


@authorizing
async def test_an_address_may_be_pasted_and_wrong_ones_are_told(url, granting, /):
    person = Paster(types=["what?", "http://127.0.0.1/callback?code=x&state=y"])
    async with connected(url, person) as servers:
        assert (await call(servers, "echo", text="hello")).text == "hello"
    assert [page.note for page in person.pages[1:]] == [
        "That address holds no answer: it should have code=... and state=... in it.",
        "That address answers another request, not this one.",
    ]


@authorizing
async def test_who_said_no_is_asked_again_by_a_restart_and_not_by_every_turn(url, granting, /):
    person = Idle(types=["", ""])
    async with connected(url, person) as servers:
        for _ in range(3):
            with pytest.raises(ServerError, match="it was not authorized"):
                await servers.tools()
        assert len(person.pages) == 1
        assert is_free(port_of(person.pages[0]))
        with pytest.raises(ServerError, match="it was not authorized"):
            await servers.restart("web")
        assert len(person.pages) == 2


def test_the_time_a_person_takes_is_nobody_elses():
    class Slow(Visitor):
        async def authorize(self, page):
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(0.2, over.set)  # longer than either clock has
            await over.wait()
            return "done"

    async def main():
        waiting, timer_ran_out = PendingCallers("web", Slow()), asyncio.Event()
        timer = Timer(0.1, timer_ran_out.set)
        async with asyncio.timeout(PATIENCE), Deadline(0.1) as deadline:
            with waiting.caller(deadline), waiting.clock(timer):
                assert await waiting.authorize("https://example.org/authorize", "") == "done"
                assert not timer_ran_out.is_set()
        async with asyncio.timeout(PATIENCE):
            await timer_ran_out.wait()

    asyncio.run(main())


@authorizing
async def test_cancelling_withdraws_what_is_asked_and_frees_the_port_so_that_a_person_is_asked_again(url, granting, /):
    async def cancelled(servers, task):
        await person.asked.wait()
        person.asked.clear()
        port = port_of(person.pages[-1])
        assert not is_free(port)
        task.cancel()
        await asyncio.wait((task,))
        if servers.get("web").state != "ready":
            await asyncio.wait((servers._servers["web"].connection._session.owner,))
        return is_free(port)

    person = Idle()
    async with connected(url, person) as servers:
        for _ in range(2):
            assert await cancelled(servers, asyncio.ensure_future(servers.tools()))
        pending = servers._servers["web"].connection.pending
        pending.host = Visitor()
        await call(servers, "echo", text="hello")
        granting.revoke()
        pending.host = ServerHost()
        assert "echo failed: it asks to be authorized" in (await call(servers, "echo", text="hello")).text
        pending.host = person
        await cancelled(servers, asyncio.ensure_future(call(servers, "echo", text="hello")))
        pending.host = Visitor()
        assert (await call(servers, "echo", text="again")).text == "again"
        assert is_free(port_of(person.pages[-1]))


def locked(*_):
    raise KeyringLocked


@pytest.mark.parametrize(
    ("priority", "put", "note"),
    [(1, locked, "The token will be"), (0, lambda *_: None, "No keyring can be used here: the token will be")],
)
@authorizing
async def test_without_a_keyring_the_token_is_kept_in_memory_which_is_said(
    url, granting, /, caplog, monkeypatch, priority, put, note
):
    monkeypatch.setattr(Drawer, "priority", priority)
    monkeypatch.setattr(Drawer, "set_password", put)
    person = Visitor()
    for host in (person, ServerHost()):
        async with connected(url, host) as servers:
            await servers.tools()
    assert person.pages[0].note.startswith(note)
    assert f"No keyring took the token for {url}: it is kept in memory" in caplog.text


@pytest.mark.parametrize("record", ["[]", "{}", '{"token": 7, "client": 8}', "\x00"])
def test_a_record_that_cannot_be_read_is_none(drawer, record):
    drawer.records[token_store.SERVICE, "https://example.org/mcp"] = record
    grant = token_store.Grant(config.Http("https://example.org/mcp"))
    asyncio.run(grant.load())
    assert grant.access is None


def test_only_the_answer_to_this_request_ends_the_wait():
    async def main():
        async with asyncio.timeout(PATIENCE), Redirect() as redirect:
            redirect.state = "right"
            base = redirect.address
            for stray in ("?code=a&state=wrong", "?state=right", "", "/more?code=a&state=right"):
                await asyncio.to_thread(visit, f"{base}{stray}")
                assert not redirect.answer.done()
            silent, idle = await asyncio.open_connection("127.0.0.1", urlsplit(base).port)
            _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(base).port)
            writer.write(b"GET /" + b"x" * 100_000)
            await asyncio.to_thread(visit, f"{base}?code=a&state=right&iss=me")
            answer = await redirect.answer
            assert (answer.code, answer.issuer) == ("a", "me")
            writer.transport.abort()
        assert is_free(urlsplit(base).port)
        async with asyncio.timeout(PATIENCE):
            assert await silent.read() == b"", "who is silent is not waited for"
        idle.close()

    asyncio.run(main())


@pytest.mark.parametrize("address", ["http://[", "http://x/?code=a", "http://x/?state=b", "?" + "a=1&" * 100])
def test_an_address_without_an_answer_is_told(address):
    with pytest.raises(ValueError, match="That address"):
        read_redirect(address)


@pytest.mark.parametrize(
    ("url", "server", "problem"),
    [
        ("https://auth.example.org/authorize?a=1", "https://example.org/mcp", None),
        ("http://127.0.0.1:8000/authorize", "http://localhost:9000/mcp", None),
        ("http://127.0.0.1:8000/authorize", "https://example.org/mcp", "no https"),
        ("https://bank.example@evil.example/", "https://example.org/mcp", "deceive"),
        ("https://example.org/\x1b[2J", "https://example.org/mcp", "deceive"),
        (f"https://example.org/{'a' * 5000}", "https://example.org/mcp", "deceive"),
        ("https://[", "https://example.org/mcp", "cannot be read"),
    ],
)
def test_only_addresses_that_cannot_deceive_are_used(url, server, problem):
    found = oauth.address_problem(url, server)
    assert found is None if problem is None else problem in found


class Hostile(Loopback):
    """A server and its authorization server, whose answers are given by path; "*" stands for the rest."""

    def __init__(self, **answers):
        super().__init__([])
        self._answers = answers

    def answer(self, received):
        name = urlsplit(received.path).path.rpartition("/")[2].replace("-", "_")
        if received.path.startswith("/.well-known/"):
            name = received.path.split("/")[2].replace("-", "_")
        given = self._answers.get(name, Exchange("{}", 404, "application/json"))
        return given(self) if callable(given) else given


def as_json(value, status=200):
    return Exchange(json.dumps(value), status, "application/json")


def resource(server):
    return as_json({"resource": f"{server.url}/mcp", "authorization_servers": [server.url]})


def metadata(**more):
    def answer(server):
        endpoints = {"authorization_endpoint": f"{server.url}/authorize", "token_endpoint": f"{server.url}/token"}
        return as_json({"issuer": server.url, "registration_endpoint": f"{server.url}/register", **endpoints, **more})

    return answer


def contained(words, host=None, **answers):
    """Check that a server that misbehaves fails in these words; return all of them."""
    answers = {
        "mcp": Exchange("", 401),
        "oauth_protected_resource": resource,
        "oauth_authorization_server": metadata(),
        "register": as_json({"client_id": "me", "redirect_uris": ["http://127.0.0.1/callback"]}, 201),
        **answers,
    }

    async def main(url):
        async with connected(url, host or Visitor()) as servers:
            with pytest.raises(ServerError, match=words) as failed:
                await servers.tools()
            return str(failed.value)

    with Hostile(**answers) as server:
        return asyncio.run(main(f"{server.url}/mcp"))


FLOOD = Exchange("x" * 2_000_000, 200, "application/json")
NOTHING = Exchange("{}", 404, "application/json")


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (
            "is not shown: it is written so that it could deceive",
            {"oauth_authorization_server": metadata(authorization_endpoint="https://bank.example@evil.example/")},
        ),
        ("could not be authorized", {"oauth_protected_resource": FLOOD, "oauth_authorization_server": FLOOD}),
        (
            "registers no clients .* give its entry an Authorization header",
            {"register": as_json({"error": "closed"}, 403)},
        ),
        (
            "it wants a token and does not say where to get one; give its entry an Authorization header",
            {"oauth_protected_resource": NOTHING, "oauth_authorization_server": NOTHING, "register": NOTHING},
        ),
    ],
)
def test_a_server_that_cannot_be_authorized_is_never_shown_and_says_why(words, answers):
    person = Visitor()
    assert "HTTP 401" in contained(words, person, **answers)
    assert not person.pages


def test_an_authorization_server_that_is_silent_ends_by_its_own_deadline(monkeypatch):
    monkeypatch.setattr(limits, "AUTH_SECONDS", 0.2)
    silent = Exchange("{}", stall_at=1)
    contained("its authorization server did not answer within 0.2 s", oauth_protected_resource=silent)


def straight_back(answer):
    """Make a page that sends the browser back at once, with this answer."""

    def page(server):
        query = parse_qs(urlsplit(server.requests[-1].path).query)
        where = f"{query['redirect_uri'][0]}?{answer}&state={query['state'][0]}"
        return Exchange("", 302, headers={"Location": where})

    return page


def test_a_refusal_of_the_authorization_server_is_told():
    denied = straight_back("error=access_denied&error_description=Not+%1B%5B31mtoday")
    contained("its authorization server refused: access_denied Not today", authorize=denied)


def test_a_token_in_an_answer_that_cannot_be_read_is_not_quoted(caplog):
    with caplog.at_level(logging.DEBUG):
        said = contained(
            "what its authorization server answered cannot be read",
            authorize=straight_back("code=1"),
            token=Exchange('{"access_token": "a-token-cut-off', 200, "application/json"),
        )
    assert "a-token" not in said + caplog.text


def test_a_request_that_is_never_answered_keeps_none_of_the_others():
    """The library's own flow would keep its lock until the first of them is answered."""

    async def main():
        grant = token_store.Grant(config.Http("https://example.org/mcp"))
        authorization = oauth.Authorization(grant, PendingCallers("web", ServerHost()))
        request = httpx2.Request("POST", grant.url)
        silent, prompt = authorization.flow(request), authorization.flow(request)
        async with asyncio.timeout(PATIENCE), contextlib.aclosing(silent):
            assert await anext(silent) is await anext(prompt) is request
            with pytest.raises(StopAsyncIteration):
                await prompt.asend(httpx2.Response(200, request=request))

    asyncio.run(main())


def announced(path):
    """Let a server announce its authorization server with a path after the address."""
    return lambda server: as_json({"resource": f"{server.url}/mcp", "authorization_servers": [f"{server.url}{path}"]})


def named(path):
    """Let an authorization server name itself with a path after the address."""
    return lambda server: metadata(issuer=f"{server.url}{path}")(server)


ISSUERS = [
    ("", "", True),
    ("/", "", True),
    ("", "/", True),
    ("/", "/", True),
    ("/tenant", "/tenant", True),
    ("/tenant", "/tenant/", False),
    ("/tenant/", "/tenant", False),
    ("", "/tenant", False),
    ("", "//", False),
    ("", "/?", False),
]


@pytest.mark.parametrize(("announcement", "issuer", "is_taken"), ISSUERS)
def test_only_the_closing_slash_of_an_empty_path_is_forgiven_in_an_issuer(announcement, issuer, is_taken):
    contained(
        "its authorization server refused: access_denied" if is_taken else "issuer mismatch",
        oauth_protected_resource=announced(announcement),
        oauth_authorization_server=named(issuer),
        authorize=straight_back("error=access_denied"),
    )


ANSWERS = [
    # what is announced, the issuer in its metadata, the issuer in the answer
    ("", "", "", True),
    ("", "/", "/", True),
    ("/", "", "", True),
    ("", "", "/", False),
    ("/", "/", "", False),
    ("", "/", "/tenant", False),
]


@pytest.mark.parametrize(("announcement", "issuer", "answered", "is_taken"), ANSWERS)
def test_the_issuer_in_the_answer_of_the_browser_is_that_of_the_metadata(announcement, issuer, answered, is_taken):
    def page(server):
        return straight_back(f"code=1&iss={quote(server.url + answered, safe='')}")(server)

    contained(
        "cannot be read" if is_taken else "iss mismatch",
        oauth_protected_resource=announced(announcement),
        oauth_authorization_server=named(issuer),
        authorize=page,
        token=Exchange("{", 200, "application/json"),
    )
