import asyncio
import threading
from contextlib import aclosing, suppress
from importlib import import_module

import pytest

from agentmagic import classroom
from agentmagic.classroom import class_settings
from agentmagic.errors import BadRequest, ProviderError, StreamBroken
from agentmagic.messages import user
from agentmagic.providers import clients
from agentmagic.providers.base import Request
from tests.providers.loopback import Exchange, Loopback


def limited(*chunks, lines=False):
    async def body():
        for chunk in chunks:
            yield chunk

    async def main():
        return [chunk async for chunk in clients._limit_chunks(body(), lines=lines)]

    return asyncio.run(main())


def test_events_and_lines_are_counted_one_by_one_even_if_their_ends_are_cut_in_two(monkeypatch):
    monkeypatch.setattr(clients, "LONGEST_EVENT", 30)
    monkeypatch.setattr(clients, "LONGEST_RESPONSE", 100)
    for chunks in ([b"data: x\n", b"\n"], [b"data: x\r\n\r", b"\n"], [b"data: x\r", b"\r"], [b"x\n\n"]):
        assert limited(*chunks * 5) == chunks * 5
    assert limited(*[b"12345\n"] * 10, lines=True) == [b"12345\n"] * 10
    for chunk, lines in ((b": ping\n", False), (b"x\n\n", False), (b"12345", True)):
        with pytest.raises(StreamBroken, match="have no end"):
            limited(*[chunk] * 40, lines=lines)


def lease(made, closed):
    async def close(client):
        closed.append(client)

    return clients.ClientLease(lambda: "here", made, close)


def test_a_client_that_cannot_be_made_is_made_anew_at_the_next_request():
    answers = [OSError("no route"), "a client"]

    def make(_found):
        if isinstance(answer := answers.pop(0), OSError):
            raise answer
        return answer

    async def main():
        held = lease(make, closed := [])
        with pytest.raises(OSError, match="no route"):
            await held.client()
        client = await held.client()
        await held.release()
        return client, closed

    assert asyncio.run(main()) == ("a client", ["a client"])


def test_a_cancelled_request_leaves_the_client_to_the_next_one():
    begun, going = threading.Event(), threading.Event()

    def make(_found):
        begun.set()
        going.wait()
        return object()

    async def main():
        held = lease(make, closed := [])
        task = asyncio.ensure_future(held.client())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.wait([task])
        going.set()
        client = await held.client()
        await held.release()
        return task.cancelled(), closed == [client]

    assert asyncio.run(main()) == (True, True)


def test_another_proxy_or_certificate_needs_another_client(monkeypatch):
    async def main():
        def make(_found):
            return object()

        first, second = lease(make, []), lease(make, [])
        one = await first.client()
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
        two, three = await second.client(), await first.client()
        await first.release()
        await second.release()
        return one is not two, two is three

    assert asyncio.run(main()) == (True, True)


@pytest.mark.parametrize(
    ("module", "sdk"),
    [
        ("anthropic.model:Anthropic", "anthropic"),
        ("gemini.model:Gemini", "google.genai"),
        ("ollama:Ollama", "httpx2"),
        ("openai.chat_completions:OpenAIChat", "openai"),
        ("openai.responses:OpenAIResponses", "openai"),
    ],
)
def test_the_key_is_looked_for_once_for_all_requests_to_one_address(module, sdk, monkeypatch):
    pytest.importorskip(sdk)
    name, _, kind = module.partition(":")
    make = getattr(import_module(f"agentmagic.providers.{name}"), kind)
    find, finds = make._find, []
    monkeypatch.setattr(make, "_find", lambda self: finds.append(self.base_url) or find(self))

    async def ask_twice(url):
        model = make("some-model", base_url=url, api_key="key-0123456789")
        for _ in range(2):
            with suppress(ProviderError):
                async for _ in model.stream(Request((user("Hello"),))):
                    pass
        await model.aclose()

    with Loopback([Exchange("", 500, "text/plain")] * 2) as server:
        asyncio.run(ask_twice(server.url))
        assert len(server.requests) == 2
    assert len(finds) == 1


@pytest.mark.parametrize(
    ("module", "sdk", "header"),
    [
        ("anthropic.model:Anthropic", "anthropic", "authorization"),
        ("gemini.model:Gemini", "google.genai", "x-goog-api-key"),
        ("openai.responses:OpenAIResponses", "openai", "authorization"),
    ],
)
def test_a_redirect_takes_no_key_to_another_server(module, sdk, header):
    pytest.importorskip(sdk)
    name, _, kind = module.partition(":")
    make = getattr(import_module(f"agentmagic.providers.{name}"), kind)

    async def ask(url):
        model = make("some-model", base_url=url, api_key="key-0123456789")
        with suppress(ProviderError):
            async for _ in model.stream(Request((user("Hello"),))):
                pass
        await model.aclose()

    with Loopback([]) as other:
        moves = [Exchange("", 307, "text/plain", {"location": there}) for there in ("/here", f"{other.url}/there")]
        with Loopback(moves) as server:
            asyncio.run(ask(server.url))
    assert [header in one.headers for one in (*server.requests, *other.requests)] == [True, True, False]


@pytest.mark.parametrize(
    ("module", "sdk"),
    [
        ("anthropic.model:Anthropic", "anthropic"),
        ("gemini.model:Gemini", "google.genai"),
        ("openai.responses:OpenAIResponses", "openai"),
        ("ollama:Ollama", "httpx2"),
    ],
)
def test_a_redirect_takes_no_prompt_to_another_server_where_the_addresses_are_bounded(
    module, sdk, tmp_path, monkeypatch
):
    pytest.importorskip(sdk)
    name, _, kind = module.partition(":")
    monkeypatch.setattr(classroom, "POLICY_FILE", tmp_path / "policy.toml")

    async def ask(url):
        model = getattr(import_module(f"agentmagic.providers.{name}"), kind)("some-model", base_url=url, api_key="key")
        async with aclosing(model):
            await anext(model.stream(Request((user("Hello"),))))

    with Loopback([]) as other, Loopback([Exchange("", 307, "text/plain", {"location": other.url})]) as server:
        (tmp_path / "policy.toml").write_text(f'addresses = ["{server.url}/*"]')
        class_settings.cache_clear()
        with pytest.raises(BadRequest, match=r"sends the request on to another address \(307\), which is not followed"):
            asyncio.run(ask(server.url))
    class_settings.cache_clear()
    assert (len(server.requests), other.requests) == (1, [])
