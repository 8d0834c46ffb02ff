"""The tokens that servers granted: kept in the keyring of the system, or in memory if no keyring can be used."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agentmagic.classroom import class_settings
from agentmagic.runtime.engine import engine
from agentmagic.secrets import learn, redact
from agentmagic.settings import KEYRING_SERVICE
from agentmagic.tools.mcp.config import Http, Transport

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata

T = TypeVar("T")

SERVICE = f"{KEYRING_SERVICE}-mcp"  # the keyring lists the records under it; the user name is the server's URL
PATIENCE = 10.0  # seconds; a locked keyring asks its owner, and waits for ever if the owner cannot see the question

_SECRET = frozenset({"access_token", "refresh_token", "id_token", "client_secret", "registration_access_token"})
_log = logging.getLogger(__name__)
_unkept: dict[str, str] = {}  # the records that no keyring took, by URL, until the process ends


class Grant:
    """What a server granted: the token, and what is needed to refresh it. It is the library's `TokenStorage`."""

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
        """Return the token."""
        return self.token

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        """Set the token."""
        self.token = tokens

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        """Return our registration with the authorization server."""
        return self.client

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        """Set our registration with the authorization server."""
        self.client = client_info

    async def load(self) -> None:
        """Read the stored record, if there is one that can be read."""
        from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata

        record = await read(self.url)
        try:
            kept: Any = json.loads(record or "{}")
            hide(kept.get("token"), kept.get("client"))
            token = OAuthToken.model_validate(kept["token"])
            client = OAuthClientInformationFull.model_validate(kept["client"])
            issuer = OAuthMetadata.model_validate(kept["issuer"]) if "issuer" in kept else None
            resource = ProtectedResourceMetadata.model_validate(kept["resource"]) if "resource" in kept else None
        except (AttributeError, KeyError, TypeError, ValueError):  # there is none, or it has another form
            return
        self.token, self.client, self.issuer, self.resource = token, client, issuer, resource

    async def save(self) -> None:
        """Store the record."""
        # Of the metadata only what a refresh needs, because some keyrings hold only a few kilobytes.
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
    """Return an empty grant for a server over HTTP, or None if its entry has an Authorization header."""
    if not isinstance(transport, Http) or "authorization" in {name.lower() for name in transport.headers}:
        return None
    return Grant(transport)


def hide(*records: object) -> None:
    """Register the secrets in the answers of an authorization server."""
    for record in records:
        if isinstance(record, Mapping):
            for name, value in cast("Mapping[str, object]", record).items():
                if name in _SECRET and isinstance(value, str):
                    learn(name, value, certain=True)


async def read(url: str) -> str | None:
    """Return the record of a server, or None."""
    return _unkept.get(url) or await _patiently(lambda keyring: keyring.get_password(SERVICE, url) or None, None)


async def write(url: str, record: str) -> None:
    """Store the record of a server; if no keyring takes it, it is kept in memory and a warning is logged."""
    _unkept[url] = record
    if await _patiently(lambda keyring: _put(keyring, url, record), instead=False):
        _unkept.pop(url, None)
    else:
        _log.warning("No keyring took the token for %s: it is kept in memory, until this process ends.", redact(url))


async def forget(url: str) -> None:
    """Delete the record of a server from memory and keyring."""
    _unkept.pop(url, None)
    await _patiently(lambda keyring: keyring.delete_password(SERVICE, url), None)


async def keyring_usable() -> bool:
    """Return whether there is a keyring that says it can be used."""
    return await _patiently(lambda keyring: keyring.get_keyring().priority > 0, instead=False)


def _put(keyring: Any, url: str, record: str) -> bool:
    keyring.set_password(SERVICE, url, record)
    return keyring.get_password(SERVICE, url) == record  # some backends accept a record and store nothing


async def _patiently(use: Callable[[Any], T], instead: T) -> T:
    """Use the keyring in a thread; return `instead` if it is missing, locked, broken, silent or not allowed."""
    if class_settings().keyring is False:
        return instead
    try:
        async with asyncio.timeout(PATIENCE):
            return await engine().in_pool(lambda: use(import_module("keyring")))
    except Exception:  # noqa: BLE001  (each backend raises errors of its own, D-Bus errors among them)
        return instead
