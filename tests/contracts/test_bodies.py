"""Any subset of what a request can carry goes to every kind of model: the body is JSON, holds it, and is answered.

A kind of model is a name that an encoder treats in its own way. `forms` says when it is sent the form of an answer: the
instructions describe a form in words too, for those that cannot be held to one.
"""

import asyncio
import json
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import pytest

from agentmagic import ModelSettings
from agentmagic.events import PartFinished
from agentmagic.messages import Message, Text, ToolCall, ToolDef, ToolResult, user
from agentmagic.providers.base import Model, OutputSchema, Request, honoured_settings
from tests.contracts.conversing import PIXEL, api_case
from tests.providers.strict.script import call, say
from tests.providers.strict.server import KEY, Strict, strict

CARRIED = ("instructions", "tools", "settings", "form", "history", "image")
SUBSETS = [frozenset(some) for size in range(len(CARRIED) + 1) for some in combinations(CARRIED, size)]
ANSWER = "It is noon."
SETTINGS = ModelSettings(temperature=0.5, max_output_tokens=907, reasoning="low", seed=7)
CLOCK = ToolDef("clock", "Tells the hour.", {"type": "object", "properties": {"zone": {"type": "string"}}})
HOUR = {"type": "object", "properties": {"the_hour": {"type": "string"}}, "required": ["the_hour"]}
FORM = OutputSchema("hour", HOUR | {"additionalProperties": False})
MARKS = {
    "instructions": "Be brief, please.",
    "tools": CLOCK.description,
    "settings": "907",
    "form": "the_hour",
    "history": "What was the time?",
    "image": "iVBORw0KGgo",
}
"""What a body holds only if a request carries it."""

Forms = Literal["always", "without tools", "never"]


@dataclass(frozen=True)
class Kind:
    """Models of an API that are treated alike, by the name of one of them."""

    api: str
    model: str
    forms: Forms = "always"


KINDS = [
    Kind("openai", "gpt-5.4"),
    Kind("openai", "o3"),
    Kind("openai", "gpt-5.1-chat-latest"),
    Kind("openai", "gpt-4o"),
    Kind("openai", "an/open-model"),
    Kind("openai-chat", "gpt-5.4", "without tools"),
    Kind("openai-chat", "o3", "without tools"),
    Kind("openai-chat", "gpt-4o", "without tools"),
    Kind("openai-chat", "an/open-model", "without tools"),
    Kind("gemini", "gemini-3.5-flash"),
    Kind("gemini", "gemini-3.5-flash-lite"),
    Kind("gemini", "gemini-3-pro-image"),
    Kind("gemini", "gemini-2.5-pro", "without tools"),
    Kind("gemini", "gemini-2.5-flash-lite", "without tools"),
    Kind("gemini", "gemini-2.5-flash-image", "without tools"),
    Kind("gemini", "gemini-2.0-flash", "without tools"),
    Kind("gemini", "gemini-1.5-flash", "without tools"),
    Kind("gemini", "gemma-4-31b-it", "never"),
    Kind("gemini", "gemma-3-27b-it", "never"),
    Kind("anthropic", "claude-sonnet-5-5"),
    Kind("anthropic", "claude-opus-5-5"),
    Kind("anthropic", "claude-opus-4-7"),
    Kind("anthropic", "claude-haiku-4-5"),
    Kind("anthropic", "an/open-model"),
    Kind("ollama", "qwen3", "without tools"),
    Kind("ollama", "gemma3:4b", "without tools"),
]


def kind_case(kind: Kind):
    """A kind as a parameter of a test, which is skipped where its SDK is not installed."""
    return pytest.param(kind, id=f"{kind.api}:{kind.model}", marks=api_case(kind.api).marks)


def model_of(kind: Kind, server: Strict) -> Model:
    """The model of a kind, pointed at a server that knows it."""
    first: Any = server.model()
    if kind.api == "gemini":
        server.api.path = f"/v1beta/models/{kind.model}:streamGenerateContent?alt=sse"
    return type(first)(kind.model, base_url=first.base_url, api_key=KEY)


async def asked(model: Model, request: Request) -> tuple[Any, ...]:
    """The parts of the answer to a request."""
    return tuple([event.part async for event in model.stream(request) if isinstance(event, PartFinished)])


async def history_of(model: Model, server: Strict) -> tuple[Message, ...]:
    """Two turns with a model, one of them with a call."""
    server.script(call((CLOCK.name, {"zone": "UTC"}), says="Let me look."), say("It was ten."), say("Yes."))
    prompt = user(MARKS["history"])
    called = await asked(model, Request((prompt,), tools=(CLOCK,)))
    results = [ToolResult(one.id, one.name, (Text("ten"),)) for one in called if isinstance(one, ToolCall)]
    messages = [prompt, Message("assistant", called), Message("tool", tuple(results))]
    messages.append(Message("assistant", await asked(model, Request(tuple(messages), tools=(CLOCK,)))))
    messages.append(user("Are you sure?"))
    return (*messages, Message("assistant", await asked(model, Request(tuple(messages)))))


def request_with(carried: frozenset[str], model: Model, history: tuple[Message, ...]) -> Request:
    """A request that carries these things and a prompt."""
    prompt = user("What time is it?", *([PIXEL] if "image" in carried else []))
    return Request(
        (*(history if "history" in carried else ()), prompt),
        MARKS["instructions"] if "instructions" in carried else "",
        (CLOCK,) if "tools" in carried else (),
        output=FORM if "form" in carried else None,
        settings=honoured_settings(model, SETTINGS) if "settings" in carried else ModelSettings(),
    )


def expected(kind: Kind, carried: frozenset[str]) -> frozenset[str]:
    """What the body for a request with these things holds."""
    holds = kind.forms == "always" or (kind.forms == "without tools" and "tools" not in carried)
    return carried if holds else carried - {"form"}


@pytest.mark.parametrize("kind", [kind_case(kind) for kind in KINDS])
def test_any_subset_of_what_a_request_carries_is_sent_as_json_and_answered(kind):
    async def main() -> None:
        history = await history_of(model, server)
        for carried in SUBSETS:
            server.begin_anew(say(ANSWER))
            said = await asked(model, request_with(carried, model, history))
            assert server.refusals == [], carried
            sent = json.dumps(json.loads(server.requests[-1].body))
            assert {name for name, mark in MARKS.items() if mark in sent} == expected(kind, carried)
            assert "What time is it?" in sent
            assert "".join(part.text for part in said if isinstance(part, Text)) == ANSWER, carried
        await model.aclose()

    with strict(kind.api) as server:
        model = model_of(kind, server)
        asyncio.run(main())
