"""Stores access tokens for MCP servers in the system's keyring, or in memory if no keyring can be used."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agentmagic.runtime.engine import engine
from agentmagic.secrets import learn, redact
from agentmagic.settings import KEYRING_SERVICE, keyring_library
from agentmagic.tools.mcp.config import Http, Transport

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata

T = TypeVar("T")

SERVICE = f"{KEYRING_SERVICE}-mcp"  # The service name in the keyring. The user name is the server's URL.
PATIENCE = 10.0  # Seconds to wait for the keyring. If it is locked, it asks the user, who may not see the question.

_SECRET = frozenset({"access_token", "refresh_token", "id_token", "client_secret", "registration_access_token"})
_log = logging.getLogger(__name__)
_in_memory: dict[str, str] = {}  # Tokens and their data by server URL, if no keyring can store them.


class Grant:
    """The access token for an MCP server, and the data to refresh it. Implements the mcp library's `TokenStorage`."""

    def __init__(self, server: Http) -> None:
        self.server = server
        self.url = server.url
        self.token: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.issuer: OAuthMetadata | None = None
        self.resource: ProtectedResourceMetadata | None = None

    @property
    def access(self) -> str | None:
        """The access token, or None."""
        return self.token.access_token if self.token else None

    async def get_tokens(self) -> "OAuthToken | None":
        """Return the access token with its refresh token, or None."""
        return self.token

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        """Set the access token with its refresh token."""
        self.token = tokens

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        """Return agentmagic's registration with the authorization server, or None."""
        return self.client

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        """Set agentmagic's registration with the authorization server."""
        self.client = client_info

    async def load(self) -> None:
        """Load the token and its data from the store. Do nothing if the store has no valid record for the server."""
        from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata

        record = await read(self.url)
        try:
            data: Any = json.loads(record or "{}")
            hide(data.get("token"), data.get("client"))
            token = OAuthToken.model_validate(data["token"])
            client = OAuthClientInformationFull.model_validate(data["client"])
            issuer = OAuthMetadata.model_validate(data["issuer"]) if "issuer" in data else None
            resource = ProtectedResourceMetadata.model_validate(data["resource"]) if "resource" in data else None
        except (AttributeError, KeyError, TypeError, ValueError):  # There is no record, or it is invalid.
            return
        self.token, self.client, self.issuer, self.resource = token, client, issuer, resource

    async def save(self) -> None:
        """Write the token and the data to refresh it to the store."""
        # Only what a refresh of the token needs is stored, because some keyrings store only a few kilobytes.
        parts = (
            ("token", self.token, None),
            ("client", self.client, {"client_id", "client_secret", "token_endpoint_auth_method", "issuer"}),
            ("issuer", self.issuer, {"issuer", "authorization_endpoint", "token_endpoint"}),
            ("resource", self.resource, {"resource", "authorization_servers"}),
        )
        record = {
            name: part.model_dump(mode="json", exclude_none=True, include=include)
            for name, part, include in parts
            if part is not None
        }
        await write(self.url, json.dumps(record))


def grant_for(transport: Transport) -> Grant | None:
    """Return an empty `Grant` for a server over HTTP. Later, it will have the access token.

    Return None for a server that is not over HTTP, or for which the user has set an Authorization header.
    """
    if not isinstance(transport, Http) or "authorization" in {name.lower() for name in transport.headers}:
        return None
    return Grant(transport)


def hide(*records: object) -> None:
    """Register the secrets in the responses of an authorization server, so that they are blanked in all texts."""
    for record in records:
        if isinstance(record, Mapping):
            for name, value in cast("Mapping[str, object]", record).items():
                if name in _SECRET and isinstance(value, str):
                    learn(name, value, certain=True)


async def read(url: str) -> str | None:
    """Return the record stored for a server's URL, or None. It is a JSON text with the token and its data."""
    return _in_memory.get(url) or await _patiently(lambda keyring: keyring.get_password(SERVICE, url) or None, None)


async def write(url: str, record: str) -> None:
    """Store the record for a server's URL. If no keyring stores it, keep it in memory and log a warning."""
    _in_memory[url] = record
    if await _patiently(lambda keyring: _store(keyring, url, record), instead=False):
        _in_memory.pop(url, None)
    else:
        _log.warning("No keyring took the token for %s: it is kept in memory, until this process ends.", redact(url))


async def forget(url: str) -> None:
    """Delete the stored token and its data for a server's URL, from memory and from the keyring."""
    _in_memory.pop(url, None)
    await _patiently(lambda keyring: keyring.delete_password(SERVICE, url), None)


async def keyring_usable() -> bool:
    """Return whether the system has a usable keyring."""
    return await _patiently(lambda keyring: keyring.get_keyring().priority > 0, instead=False)


def _store(keyring: Any, url: str, record: str) -> bool:
    keyring.set_password(SERVICE, url, record)
    return keyring.get_password(SERVICE, url) == record  # Some backends accept a record without storing it.


async def _patiently(use: Callable[[Any], T], instead: T) -> T:
    """Call `use` with the keyring library in a thread, and return its value.

    Return `instead` if the keyring is missing, locked, broken, too slow or not allowed.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            return await engine().in_pool(lambda: use(keyring_library()))
    except Exception:  # noqa: BLE001  (each backend raises errors of its own, D-Bus errors among them)
        return instead
