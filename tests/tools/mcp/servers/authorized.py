"""A server that asks for a token, and the authorization server that grants it: both real, both on loopback."""

import secrets
import time
from contextlib import contextmanager

from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthToken

from tests.tools.mcp.servers import workshop

LASTS = 3600
SCOPES = ["use", *(f"more-{number}" for number in range(1, 10))]


class Granting:
    """Grants whatever it is asked for, and remembers what it granted and was asked."""

    def __init__(self):
        self.clients = {}
        self.codes = {}
        self.access = {}
        self.refresh = {}
        self.authorized = []
        self.refreshed = 0
        self.registers = True
        self.greedy = 0  # how many more rights a call needs, one after the other

    @property
    def secrets(self):
        """All that must be seen nowhere."""
        clients = [client.client_secret for client in self.clients.values()]
        return [*self.access, *self.refresh, *(one for one in clients if one)]

    def expire(self):
        """Refuse every access token granted so far; they can be refreshed."""
        self.access.clear()

    def revoke(self):
        """Refuse every token granted so far."""
        self.access.clear()
        self.refresh.clear()

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        self.authorized.append(params)
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + LASTS,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self.grant(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        self.refreshed += 1
        del self.refresh[refresh_token.token]
        return self.grant(client, scopes, refresh_token.resource)

    async def load_access_token(self, token):
        return self.access.get(token)

    def grant(self, client, scopes, resource):
        access, refresh = (f"{kind}-{secrets.token_urlsafe(24)}" for kind in ("access", "refresh"))
        shared = {"client_id": client.client_id, "scopes": scopes, "resource": resource}
        self.access[access] = AccessToken(token=access, **shared)
        self.refresh[refresh] = RefreshToken(token=refresh, **shared)
        return OAuthToken(access_token=access, expires_in=LASTS, refresh_token=refresh, scope=" ".join(scopes))


def asking_for_more(app, granting):
    """Refuse requests whose token does not have the first `granting.greedy` further rights, each right on its own."""

    async def answer(scope, receive, send):
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and scope["path"] == "/register" and not granting.registers:
            await refuse(send, 404, b"")
            return
        token = granting.access.get(headers.get(b"authorization", b"").decode().removeprefix("Bearer "))
        lacking = [one for one in SCOPES[1 : granting.greedy + 1] if token is not None and one not in token.scopes]
        if lacking:
            await refuse(send, 403, f'Bearer error="insufficient_scope", scope="{lacking[0]}"'.encode())
        else:
            await app(scope, receive, send)

    return answer


async def refuse(send, status, challenge):
    await send({"type": "http.response.start", "status": status, "headers": [(b"www-authenticate", challenge)]})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving():
    """Yield the server's URL and what grants its tokens."""
    granting = Granting()

    def make_app(origin):
        auth = AuthSettings(
            issuer_url=origin,
            resource_server_url=f"{origin}/mcp",
            required_scopes=["use"],
            validate_token_resource=True,
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=SCOPES, default_scopes=["use"]
            ),
        )
        server = workshop.make(auth=auth, auth_server_provider=granting)
        return asking_for_more(server.streamable_http_app(), granting)

    with workshop.serving(make_app) as origin:
        yield f"{origin}/mcp", granting
