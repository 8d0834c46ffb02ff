"""Makes HTTP clients that choose a proxy for each request, and that explain failures of proxies and certificates.

All HTTP clients of the package are made here. httpx2 alone would send requests for this machine to a proxy too, would
create no client at all if one proxy is unusable, and would not name the proxy in its errors.
"""

import asyncio
import os
import re
import ssl
import sys
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from agentmagic.text import is_loopback, single_line

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""The environment variables that decide how a request leaves this machine."""
_PROXY_STATUSES = frozenset({403, 451, 502, 503, 504, 511})
"""HTTP statuses with which a proxy sends an HTML page. Servers of models and of MCP do not send pages with them."""
_PORTS = {"http": 80, "https": 443}
_REASON = 200
"""The most characters of a library's error message in a `RouteFault`."""


class RouteFault(Exception):
    """Raised when a request could not be sent, because of a proxy or of the certificates on this machine.

    The message says why, and what the user can do.

    `problem` and `advice` are two parts of the message, without a full stop. `proxy` is the address of the proxy, or ""
    if none exists. `lasting` is True if the next try would fail in the same way.
    """

    def __init__(self, problem: str, advice: str, proxy: str = "", *, lasting: bool = True) -> None:
        super().__init__(f"{problem}. {advice[:1].upper()}{advice[1:]}.")
        self.problem = problem
        self.advice = advice
        self.proxy = proxy
        self.lasting = lasting


def route_fault(error: BaseException | None) -> RouteFault | None:
    """Return the `RouteFault` (an error of a proxy or of certificates) that caused an error, or None."""
    while error is not None and not isinstance(error, RouteFault):
        if isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        else:
            error = error.__cause__ or error.__context__
    return error


@dataclass(frozen=True, slots=True)
class ProxyRoute:
    """The proxy for requests to `host`, and the environment variable that names it. `url` can contain a password."""

    url: str
    variable: str
    host: str

    def __str__(self) -> str:
        scheme, _, place = self.url.partition("://")
        return f"{scheme}://{place.rpartition('@')[2].partition('/')[0]}"

    def fault(self, error: Exception | str) -> RouteFault:
        """Return the exception for a request that failed at this proxy; `error` says how it failed."""
        reason = single_line(str(error) or type(error).__name__, _REASON).rstrip(".")
        if reason.startswith(str(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED.value)):
            what = f"the proxy {self} asks for a user name and a password that it knows (407)"
            return RouteFault(what, f"write them into {self.variable}, as in http://USER:PASSWORD@HOST:PORT", str(self))
        is_refusal = type(error).__name__ == "ProxyError"
        what = f"the proxy {self} {'refused' if is_refusal else 'failed'} ({reason})"
        advice = f"check {self.variable}, or add {self.host} to NO_PROXY if it is reached without a proxy"
        return RouteFault(what, advice, str(self), lasting=is_refusal and reason.startswith("4"))


def proxy_for(url: str) -> ProxyRoute | None:
    """Return the proxy that the environment or the system's settings name for requests to `url`, or None.

    Requests to this machine itself never use a proxy.
    """
    with suppress(ValueError):  # `url` is not a valid address
        if is_loopback(url):
            return None
        parts, proxies = urlsplit(url), urllib.request.getproxies()
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        # If no variable is set, the proxy settings of Windows and macOS apply, with their own list of excepted hosts.
        has_settings = sys.platform in ("win32", "darwin") and not urllib.request.getproxies_environment()
        if _is_direct(host, port, proxies.get("no", "")) or (proxies and has_settings and _is_excepted(host)):
            return None
        for scheme in (parts.scheme, "all"):
            if value := proxies.get(scheme):
                # The GNOME desktop writes "socks:" for a SOCKS 5 proxy; HTTP clients know only "socks5:".
                address = re.sub("^socks:", "socks5:", value if "://" in value else f"http://{value}")
                lower = f"{scheme}_proxy"
                return ProxyRoute(address, lower if os.environ.get(lower) else lower.upper(), host)
    return None


@lru_cache(maxsize=256)  # on Windows the lookup can query a name server
def _is_excepted(host: str) -> bool:
    """Return whether the system's proxy settings exclude a host."""
    return bool(urllib.request.proxy_bypass(host))


def _is_direct(host: str, port: int, no_proxy: str) -> bool:
    """Return whether `NO_PROXY` lists a host. An entry is a name, a domain, an address, a network, or "*" for all."""
    for entry in re.split(r"[,\s]+", no_proxy.lower()):
        name = entry.partition("://")[2] or entry
        with suppress(ValueError):  # the host is not an IP address, or the entry is not a network
            if ip_address(host) in ip_network(name.strip("[]"), strict=False):
                return True
        if with_port := re.fullmatch(r"([^:]+):(\d+)", name):
            name = with_port[1] if int(with_port[2]) == port else ""
        domain = name.removeprefix("*").lstrip(".")
        if name == "*" or (domain and (host == domain or host.endswith(f".{domain}"))):
            return True
    return False


def async_client(
    kind: "type[httpx2.AsyncClient] | None" = None, *, limits: "httpx2.Limits | None" = None, **options: Any
) -> "httpx2.AsyncClient":
    """Return a new HTTP client that chooses a proxy for each request; `options` are those of httpx2."""
    import httpx2

    return (kind or httpx2.AsyncClient)(transport=_router({"limits": limits} if limits else {}), **options)


def sync_client(url: str, **options: Any) -> "httpx2.Client":
    """Return a new synchronous HTTP client for one address. Raises RouteFault."""
    import httpx2

    return httpx2.Client(transport=_open_transport(httpx2.HTTPTransport, url, proxy_for(url), {}), **options)


def _router(options: dict[str, Any]) -> "httpx2.AsyncBaseTransport":
    import httpx2

    class Router(httpx2.AsyncBaseTransport):
        """Sends each request through the proxy for its address, or directly if none exists.

        It has one transport for each proxy and scheme. Each transport is made when it is first needed.
        """

        def __init__(self) -> None:
            self._ways: dict[tuple[str, ProxyRoute | None], httpx2.AsyncBaseTransport] = {}

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            url = str(request.url)
            proxy = proxy_for(url)
            key = (request.url.scheme, proxy)
            if key not in self._ways:
                try:
                    # Loading the certificates takes time, so the transport is made in a thread.
                    way = await asyncio.to_thread(_open_transport, httpx2.AsyncHTTPTransport, url, proxy, options)
                except RouteFault as fault:
                    raise httpx2.ConnectError(str(fault)) from fault
                self._ways.setdefault(key, way)
            if proxy is None:
                return await self._ways[key].handle_async_request(request)
            try:
                response = await self._ways[key].handle_async_request(request)
            except httpx2.TransportError as error:
                fault = proxy.fault(error)
                fault.__cause__ = error
                raise type(error)(str(fault)) from fault
            status = response.status_code
            page = "html" in response.headers.get("Content-Type", "") and request.method == "POST"
            if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED or (page and status in _PROXY_STATUSES):
                await response.aclose()
                words = f"{status} {response.reason_phrase}" + (", with an HTML page" if page else "")
                fault = proxy.fault(httpx2.ProxyError(words))
                raise httpx2.ProxyError(str(fault)) from fault
            return response

        async def aclose(self) -> None:
            for way in self._ways.values():
                await way.aclose()

    return Router()


def _open_transport(transport: type[T], url: str, proxy: ProxyRoute | None, options: dict[str, Any]) -> T:
    """Return a new HTTP transport for requests to `url`, through a proxy or directly. Raises RouteFault.

    `transport` is the class of httpx2 to use.
    """
    import httpx2

    # Only https needs certificates. Requests to other addresses must work even if the certificate settings are wrong.
    verify = tls_context() if urlsplit(url).scheme == "https" else False
    make = cast("Any", transport)
    if proxy is None:
        return make(verify=verify, **options)
    try:
        tls = tls_context() if proxy.url.startswith("https:") else None
        return make(verify=verify, proxy=httpx2.Proxy(proxy.url, ssl_context=tls), **options)
    except ImportError:
        what = f"the proxy {proxy} needs a package that is not installed, socksio"
        raise RouteFault(what, "run: pip install socksio", str(proxy)) from None
    except (ValueError, httpx2.InvalidURL):
        advice = f"set {proxy.variable} to one like http://HOST:PORT or socks5://HOST:PORT"
        raise RouteFault(f"the proxy {proxy} has no usable address", advice, str(proxy)) from None


def tls_context() -> ssl.SSLContext:
    """Return the TLS context that all clients share; loading the certificates takes 30 ms. Raises RouteFault."""
    return _tls_context(network())


def network() -> tuple[str | None, ...]:
    """Return the values of the environment variables for proxies and certificates, in the order of `NETWORK`."""
    return tuple(os.environ.get(name) or os.environ.get(name.lower()) for name in NETWORK)


@cache
def _tls_context(_network: tuple[str | None, ...]) -> ssl.SSLContext:
    import httpx2

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and folder and not any(map(os.path.isdir, folder.split(os.pathsep))):
        raise _no_certificates("SSL_CERT_DIR", folder, "is no folder")
    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # SSLError is an OSError too
        why = "does not exist" if isinstance(error, FileNotFoundError) else "holds no certificates that can be read"
        raise _no_certificates("SSL_CERT_FILE" if file else "SSL_CERT_DIR", file or folder or "", why) from error


def _no_certificates(variable: str, path: str, why: str) -> RouteFault:
    example = "a file with certificates in PEM form" if variable == "SSL_CERT_FILE" else "a folder with certificates"
    return RouteFault(f"{variable} is {single_line(path, _REASON)}, which {why}", f"set it to {example}, or unset it")
