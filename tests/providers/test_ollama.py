import asyncio
import json

import pytest

from agentmagic import Agent, Session
from agentmagic.errors import BadRequest, ContextTooLong, Unavailable, UnknownModel
from agentmagic.messages import Media, Message, Text, ToolCall, ToolDef, ToolResult, user
from agentmagic.providers import ollama, registry
from agentmagic.providers.base import ModelSettings, OutputSchema, Request
from agentmagic.providers.ollama import Ollama, encode, host, refusal
from tests.providers.loopback import Exchange, Loopback, ask

pytest.importorskip("httpx2")

CLOCK = ToolDef("clock", "Tells the time.", {"type": "object", "properties": {"zone": True}})
ANSWER = '{"message": {"role": "assistant", "content": "Noon."}}\n{"done": true, "done_reason": "stop"}\n'
PIXEL = Media("image/png", b"pixel", "pixel.png")


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104  (an address to bind, which a client cannot use)
        ("[::1]", "http://[::1]:11434"),
        ("https://gpu.example/ollama/", "https://gpu.example/ollama"),
    ],
)
def test_the_address_is_read_as_ollama_reads_it(monkeypatch, written, url):
    monkeypatch.setenv("OLLAMA_HOST", written)
    assert host() == url
    assert Ollama("qwen3").base_url == url


def test_the_context_grows_with_the_conversation_does_not_shrink_and_a_user_s_own_size_is_kept():
    short = Request((user("Hello.", Media("image/png", b"x" * 300_000)),), tools=(CLOCK,))
    long = Request((user("word " * 20_000),), tools=(CLOCK,))
    own = Request((user("Hello."),), settings=ModelSettings(extra={"options": {"num_ctx": 20_000}}))
    with Loopback([Exchange(ANSWER)] * 4) as server:
        model = Ollama("qwen3", base_url=server.url)
        for request in (short, long, short, own):
            ask(model, request)
    bodies = [received.json for received in server.requests]
    assert [body["options"]["num_ctx"] for body in bodies] == [8_192, 65_536, 65_536, 20_000]
    assert all(body["truncate"] is body["shift"] is False for body in bodies[:3])


@pytest.mark.parametrize(("choice", "offered"), [("auto", 2), ("required", 2), ("clock", 1), ("none", 0)])
def test_only_tools_that_may_be_called_are_offered_and_their_schemas_are_objects(choice, offered):
    body = encode(Request((user("Hi"),), "", (CLOCK, ToolDef("watch", "", {"type": "object"})), choice), "qwen3")
    tools = [tool["function"] for tool in body.get("tools", ())]
    assert len(tools) == offered
    assert all(tool["parameters"]["properties"] == {"zone": {}} for tool in tools[:1])
    assert "tool_choice" not in body


def test_the_form_of_an_answer_is_its_schema_unless_tools_are_offered_and_effort_a_word():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    output = OutputSchema("answer", schema)
    low, none = (
        encode(Request((user("Hi"),), output=output, settings=ModelSettings(reasoning=effort)), "qwen3")
        for effort in ("low", "none")
    )
    assert (low["format"], low["think"], none["think"]) == (schema, "low", False)
    assert "format" not in encode(Request((user("Hi"),), "", (CLOCK,), output=output), "qwen3")


def test_pictures_of_prompts_and_results_are_sent_as_images():
    history = (
        user("Look:", PIXEL),
        Message("assistant", (ToolCall("a", "camera", {}),)),
        Message("tool", (ToolResult("a", "camera", (Text("Here."), PIXEL)),)),
    )
    prompt, _, result, shown = encode(Request(history), "qwen3")["messages"]
    assert prompt == {"role": "user", "content": "Look:", "images": ["cGl4ZWw="]}
    assert result["tool_name"] == "camera"
    assert "images" not in result
    assert shown["images"] == ["cGl4ZWw="]


def test_the_model_is_loaded_once_before_the_first_turn():
    async def prepare(model):
        for _ in range(2):
            await model.prepare()
        await model.aclose()

    with Loopback([]) as server:
        asyncio.run(prepare(Ollama("qwen3", base_url=server.url)))
        assert (server.requests, server.connections) == ([], 1)  # a request to load a model is none of a turn


def test_a_server_that_does_not_run_is_told_with_the_command_that_starts_it():
    with Loopback([]) as gone:
        url = gone.url
    with pytest.raises(Unavailable) as caught:
        Session(Agent(Ollama("qwen3", base_url=url))).ask("Hello.")
    assert f"Ollama at {url} cannot be reached" in str(caught.value)
    assert "To start it, run: ollama serve" in str(caught.value)
    assert not caught.value.retryable


def test_a_refusal_says_what_to_do():
    words = "the prompt is longer than the context length currently available to the model"
    assert type(refusal(400, words, "qwen3")) is ContextTooLong
    assert "run: ollama pull qwen3" in str(refusal(404, "model 'qwen3' not found", "qwen3"))
    page = Exchange("<html>", content_type="text/html")
    with Loopback([page]) as server, pytest.raises(BadRequest) as caught:
        ask(Ollama("qwen3", base_url=server.url), Request((user("Hello."),)))
    assert str(caught.value).startswith(f"{server.url} answered with text/html in place of a stream.")


def test_the_models_of_the_server_are_offered_and_one_is_made_by_its_name(monkeypatch):
    tags = json.dumps({"models": [{"name": "qwen3:0.6b"}, {"name": "gemma4:latest"}]})
    with Loopback([Exchange(tags, content_type="application/json")]) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        assert registry.usable_models()[-2:] == ["ollama:qwen3:0.6b", "ollama:gemma4:latest"]
    assert ollama.list_installed() == []
    assert registry.resolve("ollama:qwen3:0.6b").name == "ollama:qwen3:0.6b"
    with pytest.raises(UnknownModel, match="Write ollama:MODEL; the command ollama list"):
        registry.resolve("ollama:")
