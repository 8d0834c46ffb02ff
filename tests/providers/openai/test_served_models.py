"""The models that a compatible server lists for the panel."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from agentmagic.providers.clients import LIST_BYTES, LISTED
from agentmagic.providers.openai import BASE_URL, KEY
from agentmagic.providers.openai.openai_client import served_models


class Server(ThreadingHTTPServer):
    """Answers every request with `body`, and notes what was asked."""

    body = b""
    status = 200

    def __init__(self):
        self.asked = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    with Server() as running:
        Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setenv(BASE_URL, f"http://127.0.0.1:{running.server_port}/v1/")
        monkeypatch.setenv(KEY, "sk-of-the-server-1234567890")
        yield running
        running.shutdown()


def test_the_models_of_a_compatible_server_are_listed_with_its_key(server):
    server.body = b'{"object": "list", "data": [{"id": "qwen", "object": "model"}, {"id": "llama"}]}'
    assert served_models() == ["openai-chat:qwen", "openai-chat:llama"]
    assert server.asked == [("/v1/models", "Bearer sk-of-the-server-1234567890")]


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"data": [{"id": 1}]}', b'{"data": "x"}', b" " * (LIST_BYTES + 1)]
)
def test_a_list_that_is_none_is_left_out(server, body):
    server.body = body
    assert served_models() == []


def test_a_server_that_refuses_or_is_not_there_lists_nothing(server, monkeypatch):
    server.status = 401
    assert served_models() == []
    server.shutdown()
    server.server_close()
    assert served_models() == []
    monkeypatch.setenv(BASE_URL, "no address")
    assert served_models() == []
    monkeypatch.delenv(BASE_URL)
    assert served_models() == []


def test_names_that_cannot_be_shown_and_too_many_are_left_out(server):
    names = ",".join(f'{{"id": "m{number}"}}' for number in range(LISTED + 5))
    server.body = f'{{"data": [{{"id": "a\\u202eb"}}, {names}]}}'.encode()
    found = served_models()
    assert len(found) == LISTED
    assert found[0] == "openai-chat:m0"
