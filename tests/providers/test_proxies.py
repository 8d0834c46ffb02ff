import asyncio
import re
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from agentmagic.providers import proxies
from agentmagic.providers.clients import listed_names
from agentmagic.providers.failures import connection_broken
from agentmagic.providers.local import downloads
from agentmagic.providers.proxies import async_client, proxy_for, route_fault
from tests.providers.loopback import Exchange, Loopback

PROXY = "http://someone:of-the-proxy-01@proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Set variables of the network; there are no others."""
    for name in (*proxies.NETWORK, *map(str.lower, proxies.NETWORK)):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


def got(url):
    """The text that a client gets from an address, or the fault."""

    async def main():
        async with async_client() as client:
            return (await client.get(url)).text

    try:
        return asyncio.run(main())
    except httpx2.TransportError as error:
        return route_fault(error)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost.", "api.localhost", "127.0.0.1", "127.9.8.7", "[::1]", "0.0.0.0", "[::]"],  # noqa: S104
)
def test_this_machine_is_reached_without_a_proxy(environment, name, host):
    environment(name, PROXY)
    assert proxy_for(f"http://{host}:8080/v1") is None
    assert proxy_for("http://localhost.example:8080/v1") is not None


@pytest.mark.parametrize(
    ("no_proxy", "direct"),
    [
        ("api.example", True),
        ("example", True),
        (".example", True),
        ("*.example", True),
        ("API.Example", True),
        ("other.test, api.example", True),
        ("other.test api.example", True),
        ("https://api.example", True),
        ("api.example:443", True),
        ("*", True),
        ("api.example:8443", False),
        ("pi.example", False),
        ("other.test", False),
        ("", False),
        (",", False),
    ],
)
def test_no_proxy_lists_names_domains_and_ports(environment, no_proxy, direct):
    environment("HTTPS_PROXY", PROXY)
    environment("NO_PROXY", no_proxy)
    assert (proxy_for("https://api.example/v1") is None) is direct


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("10.0.0.0/8", "https://10.1.2.3", True),
        ("10.1.2.3", "https://10.1.2.3", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("fd00::/8", "https://[fd00::1]:8080", True),
        ("[fd00::1]", "https://[fd00::1]", True),
        ("fd00::/8", "https://10.1.2.3", False),
    ],
)
def test_no_proxy_lists_addresses_and_networks(environment, no_proxy, url, direct):
    environment("HTTPS_PROXY", PROXY)
    environment("NO_PROXY", no_proxy)
    assert (proxy_for(url) is None) is direct


@pytest.mark.parametrize(
    ("variables", "url", "proxy", "variable"),
    [
        ({"HTTPS_PROXY": PROXY, "ALL_PROXY": "http://other"}, "https://a", "http://proxy.example:3128", "HTTPS_PROXY"),
        ({"https_proxy": "proxy.example:80"}, "https://a", "http://proxy.example:80", "https_proxy"),
        ({"ALL_PROXY": "socks5h://proxy.example"}, "http://a", "socks5h://proxy.example", "ALL_PROXY"),
        ({"all_proxy": "socks://proxy.example:1080/"}, "http://a", "socks5://proxy.example:1080", "all_proxy"),
    ],
)
def test_a_proxy_is_named_without_its_password_and_with_its_variable(environment, variables, url, proxy, variable):
    for name, value in variables.items():
        environment(name, value)
    route = proxy_for(url)
    assert (str(route), route.variable) == (proxy, variable)


def test_only_what_the_proxy_is_for_goes_through_it_in_one_client(environment):
    with Loopback([Exchange("of the proxy", 200, "text/plain")] * 2) as proxy, Loopback([]) as server:
        environment("HTTP_PROXY", proxy.url.replace("//", "//someone:of-the-proxy-01@"))
        assert got("http://api.example/v1") == "of the proxy"
        environment("NO_PROXY", "127.0.0.0/8")
        assert "no exchange is left" in str(got(server.url))
    assert [one.path for one in proxy.requests] == ["http://api.example/v1"]
    assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("socks5://someone:of-the-proxy-01@proxy.example", "needs a package that is not installed, socksio. Run: pip"),
        ("socks://proxy.example:1080/", "socks5://proxy.example:1080 needs a package"),
        ("ftp://someone:of-the-proxy-01@proxy.example", "has no usable address. Set ALL_PROXY to one like"),
        ("proxy.example:port", "the proxy http://proxy.example:port has no usable address"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_and_is_no_hindrance_to_others(environment, proxy, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", None)
    environment("ALL_PROXY", proxy)
    environment("NO_PROXY", "nobody.invalid")
    fault = got("https://api.example/v1")
    assert words in str(fault)
    assert fault.lasting
    assert "of-the-proxy-01" not in str(fault)
    assert got("http://nobody.invalid") is None  # it fails without a proxy
    with Loopback([Exchange("hello", 200, "text/plain")]) as server:
        assert got(server.url) == "hello"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SSL_CERT_FILE", "nowhere.pem", "nowhere.pem, which does not exist"),
        ("SSL_CERT_FILE", "", "which holds no certificates"),  # a folder
        ("SSL_CERT_FILE", "empty.pem", "empty.pem, which holds no certificates"),
        ("SSL_CERT_DIR", "nowhere", "nowhere, which is no folder"),
    ],
)
def test_certificates_that_cannot_be_read_are_named(environment, tmp_path, variable, value, words):
    (tmp_path / "empty.pem").touch()
    environment(variable, str(tmp_path / value))
    fault = got("https://api.example/v1")
    assert str(fault).startswith(f"{variable} is {tmp_path}")
    assert words in str(fault)
    assert str(fault).endswith("or unset it.")


def test_the_list_of_models_and_the_weights_are_fetched_from_this_machine_without_a_proxy(environment, tmp_path):
    listed = Exchange('{"data": [{"id": "some-model"}]}', 200, "application/json")
    with Loopback([]) as proxy, Loopback([listed, Exchange("weights", 206, "text/plain")]) as server:
        environment("ALL_PROXY", proxy.url)
        environment("HTTP_PROXY", proxy.url)
        environment("HF_ENDPOINT", server.url)
        assert listed_names(f"{server.url}/models", ("data", "id"), 30.0) == ["some-model"]
        downloads._continue(tmp_path / "weights", 7, lambda *_: None, threading.Event())
    assert proxy.connections == 0


def test_a_stream_that_breaks_off_names_the_proxy(environment):
    environment("HTTPS_PROXY", PROXY)
    error = httpx2.ReadError("gone", request=httpx2.Request("POST", "https://api.example/v1"))
    assert "api, through the proxy http://proxy.example:3128, closed the connection (gone)" in str(
        connection_broken("api", error)
    )
    assert "api closed the connection (gone)" in str(connection_broken("api", httpx2.ReadError("gone")))


def test_no_other_module_makes_a_client():
    root = Path(proxies.__file__).parent.parent
    made = re.compile(r"httpx2?\.(Async)?Client\(|urlopen\(|(Async)?HTTPTransport\(")
    sources = (path for room in ("providers", "tools") for path in (root / room).rglob("*.py"))
    makers = {path.name for path in sources if made.search(path.read_text(encoding="utf-8"))}
    assert makers == {
        "model.py",
        "proxies.py",
    }  # the model of Gemini: a client that its SDK wants, and that sends nothing
