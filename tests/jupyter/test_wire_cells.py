"""Cells that talk to recorded APIs: what the cell shows, what runs in the notebook, what is sent next."""

import json
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("openai")
pytest.importorskip("google.genai")

from tests.providers.gemini import test_gemini_model
from tests.providers.loopback import Exchange, Loopback, recorded, sse
from tests.providers.openai import test_chat_completions, test_responses

pytestmark = pytest.mark.slow  # the providers are tested on the same recordings

CLOCK = """
@tool
def {name}() -> str:
    "Gets the current date"
    return "2024-01-01"
"""
COLOURS = """
@tool
def favorite_color(_person: str) -> str:
    "Returns a person's favourite colour"
    return {"Joe": "sage green", "Hadley": "red"}[_person]
"""
DATE = "What's the current date in YYYY-MM-DD format?"
TERSE = "Be very terse, not even punctuation."


@dataclass(frozen=True)
class Conversation:
    """A recording, and the cells that lead to it: a prompt each, and what its answer holds."""

    recording: str
    model: str
    turns: Sequence[tuple[str, str]]
    instructions: str = ""
    tools: str = ""
    part: tuple[int, int | None] = (0, None)

    @property
    def first_cell(self) -> str:
        return f'%%agent -m {self.model} --new --instructions "{self.instructions}"\n'


def with_clock(recording: str, model: str, name: str, part: tuple[int, int]) -> Conversation:
    return Conversation(recording, model, [(DATE, "2024-01-01")], TERSE, CLOCK.format(name=name), part)


OPENAI = "openai:gpt-5.4"
CHAT = "openai-chat:gpt-5.4"
GEMINI = "gemini:gemini-3.5-flash"
ONE, OTHER = (0, 2), (2, 4)

CONVERSATIONS = {
    "openai: text": Conversation(
        "responses_simple_streaming_request",
        OPENAI,
        [("What is 1 + 1?", "2")],
        "Be as terse as possible; no punctuation",
    ),
    "openai-chat: text": Conversation(
        "chat_simple_streaming_request",
        CHAT,
        [("What is 1 + 1?", "2")],
        "Be as terse as possible; no punctuation",
    ),
    "gemini: text": Conversation(
        "gemini_simple_streaming_request",
        GEMINI,
        [("What is 1 + 1?", "2")],
        "Be as terse as possible; no punctuation. Do not spell out numbers.",
    ),
    "openai: one call": with_clock("responses_tool_variations_async", OPENAI, "get_current_date", ONE),
    "openai: another call": with_clock("responses_tool_variations_async", OPENAI, "get_current_date2", OTHER),
    "openai-chat: one call": with_clock("chat_tool_variations_async", CHAT, "get_current_date", ONE),
    "openai-chat: another call": with_clock("chat_tool_variations_async", CHAT, "get_current_date2", OTHER),
    "gemini: calls of two turns, with signatures": Conversation(
        "gemini_tools_simple",
        GEMINI,
        [(DATE, "It is 2024-01-01."), ("What month is it? Provide the full name.", "It is January.")],
        "Always use a tool to help you answer. Reply with 'It is ____.'.",
        CLOCK.format(name="get_date"),
    ),
    "gemini: parallel calls, with a signature": Conversation(
        "gemini_tools_parallel",
        GEMINI,
        [
            (
                "What are Joe and Hadley's favourite colours?\nAnswer like name1: colour1, name2: colour2",
                "Joe sage green Hadley red",
            )
        ],
        TERSE,
        COLOURS,
    ),
}

PICTURES = {
    "openai": ("responses_images", OPENAI, lambda body: body["input"][1]["content"][0]["image_url"]),
    "openai-chat": ("chat_images", CHAT, lambda body: body["messages"][0]["content"][1]["image_url"]["url"]),
    "gemini": ("gemini_images_inline", GEMINI, lambda body: body["contents"][0]["parts"][1]["inlineData"]["data"]),
}
"""By provider: a recording, its model, and where its request has the image."""

NORMAL: dict[str, Callable[[Any], Any]] = {
    OPENAI: lambda body: test_responses.without_ids(test_responses.normal(body)),
    CHAT: test_chat_completions.normal,
    GEMINI: test_gemini_model.normal,
}


def normal(model: str, body: Any) -> Any:
    """Reduce a request to what the API reads of it."""
    return plain(NORMAL[model](body))


def plain(value: Any) -> Any:
    """Leave out what means nothing: blanks about words, an empty `required`, that no other argument may come."""
    if isinstance(value, dict):
        kept = {key: plain(item) for key, item in value.items() if key != "additionalProperties"}
        return {key: item for key, item in kept.items() if (key, item) != ("required", [])}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str) and value.startswith("{"):  # a schema, which Gemini's own tests compare as text
        return plain(json.loads(value))
    return " ".join(value.split()) if isinstance(value, str) else value


class Api(Loopback):
    """Serves exchanges; the panels of other tests, which ask for the models, are answered beside them."""

    def answer(self, received):
        if received.method != "GET":
            return super().answer(received)
        self.requests.remove(received)
        return Exchange('{"data": []}', content_type="application/json")


@contextmanager
def server(kernel, exchanges):
    """Serve exchanges to the cells of a kernel."""
    if not kernel.run("import openai, google.genai").ok:
        pytest.skip("the kernel has no openai and google-genai")
    with Api(exchanges) as loopback:
        variables = {
            "OPENAI_BASE_URL": f"{loopback.url}/v1",
            "OPENAI_API_KEY": "sk-test",
            "GOOGLE_GEMINI_BASE_URL": loopback.url,
            "GEMINI_API_KEY": "test",
        }
        kernel.run(f"import os\nos.environ |= {variables}")
        yield loopback
        kernel.run(f"for name in {list(variables)}: del os.environ[name]")


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_recorded_conversation_goes_on_in_cells_as_the_api_accepted_it(kernel, conversation):
    exchanges = recorded(conversation.recording)[slice(*conversation.part)]
    with server(kernel, exchanges) as loopback:
        assert kernel.run(conversation.tools or "pass").ok
        head = conversation.first_cell
        for prompt, answer in conversation.turns:
            cell = kernel.run(head + prompt)
            head = head.replace(" --new", "")
            assert cell.ok, cell.error
            assert answer in cell.text
        sent = [normal(conversation.model, request.json) for request in loopback.requests]
    assert sent == [normal(conversation.model, exchange.request) for exchange in exchanges]
    assert kernel.value("valid()") == "True"


@pytest.mark.parametrize(("recording", "model", "image_of"), PICTURES.values(), ids=PICTURES)
def test_an_image_reaches_the_recorded_api_from_a_cell(kernel, recording, model, image_of):
    exchange = recorded(recording)[0]
    image = image_of(exchange.request).partition("base64,")[2] or image_of(exchange.request)
    with server(kernel, [exchange]) as loopback:
        cell = kernel.run(
            "from base64 import urlsafe_b64decode\nfrom agentmagic.messages import Media\n"
            f"image = urlsafe_b64decode({image!r}.replace('+', '-').replace('/', '_'))\n"
            f"session = Session(Agent({model!r}))\n"
            'print(session.ask(["What\'s in this image?", Media("image/png", image)]).final_text)'
        )
        assert cell.ok, cell.error
        (sent,) = loopback.requests
    assert "red" in cell.stream
    assert normal(model, sent.json) == normal(model, exchange.request)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index: int, person: str) -> dict[str, Any]:
    function = {"name": "favorite_color", "arguments": json.dumps({"_person": person})}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


def test_parallel_calls_of_a_compatible_server_run_functions_of_the_notebook(kernel):
    calls = [call(0, "Joe"), call(1, "Hadley")]
    asked = sse(chunk(tool_calls=calls), chunk("tool_calls"), done=True)
    answered = sse(chunk(content="Joe: sage green, Hadley: **red**"), chunk("stop"), done=True)
    with server(kernel, [Exchange(asked), Exchange(answered)]) as loopback:
        assert kernel.run(COLOURS).ok
        cell = kernel.run("%%agent -m openai-chat:small --new\nWhat are their colours?")
        assert cell.ok, cell.error
        second = loopback.requests[1].json["messages"]
    assert "Hadley: <strong>red</strong>" in cell.displays[0]["text/html"]
    assert [message["role"] for message in second] == ["user", "assistant", "tool", "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in second[2:]] == [
        ("call_0", "sage green"),
        ("call_1", "red"),
    ]
