"""What providers do themselves: searches, pages, programs and citations, by traffic made from their SDKs' own types.

`hosted_traffic` has, for each, what the server streams, and where the conversation goes on, the request that is then
sent: its `source` says what it was made from.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agentmagic.context.request_view import RequestView, Rules
from agentmagic.events import PartFinished
from agentmagic.messages import (
    HostedCall,
    HostedResult,
    HostedTool,
    Message,
    ProviderData,
    Resource,
    Text,
    ToolDef,
    as_text,
    user,
)
from agentmagic.providers.anthropic import encoder as anthropic
from agentmagic.providers.anthropic.decoder import Decoder as AnthropicDecoder
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.base import Request
from agentmagic.providers.gemini import encoder as gemini
from agentmagic.providers.gemini.decoder import Decoder as GeminiDecoder
from agentmagic.providers.gemini.model import Gemini
from agentmagic.providers.openai import chat_completions, responses
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.chat_decoder import Decoder as ChatDecoder
from agentmagic.providers.openai.responses import Decoder as ResponsesDecoder
from agentmagic.providers.openai.responses import OpenAIResponses

TRAFFIC = Path(__file__).parent / "hosted_traffic"
CLAUDE, GPT, FLASH, FLASH_25 = "claude-sonnet-5-5", "gpt-5.4", "gemini-3.8-flash", "gemini-2.5-flash"
SEARCH, FETCH = HostedTool("web_search"), HostedTool("web_fetch")
WEB = {"anthropic": (SEARCH, FETCH), "openai": (SEARCH,), "gemini": (SEARCH, FETCH), "openai-chat": (SEARCH,)}
KEY = "test-key-0123456789"
HELLO = user("Hello")
CLOCK = ToolDef("clock", "Tell the time.")


def made(name: str) -> list[Any]:
    return json.loads((TRAFFIC / f"{name}.json").read_text(encoding="utf-8"))["exchanges"]


def streamed(name: str, number: int = 0) -> list[Any]:
    lines = made(name)[number]["body"].splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return [json.loads(one) for one in data]


def provider_of(name: str) -> str:
    kind = name.partition("_")[0]
    return {"chat": "openai-chat", "responses": "openai"}.get(kind, kind)


def model_of(name: str) -> str:
    if provider_of(name) == "gemini":
        return FLASH_25 if name.endswith("_25") else FLASH
    models = {"anthropic": CLAUDE, "openai": GPT}
    return models.get(provider_of(name)) or made(name)[0]["request"]["model"]


def connected(name: str, url: str) -> Any:
    """Return the model under test, pointed at a server."""
    kinds = {"anthropic": Anthropic, "openai": OpenAIResponses, "gemini": Gemini, "openai-chat": OpenAIChat}
    return kinds[provider_of(name)](model_of(name), base_url=url, api_key=KEY)


def decoder_of(provider: str, model: str = "") -> Any:
    match provider:
        case "anthropic":
            return AnthropicDecoder(CLAUDE)
        case "openai":
            return ResponsesDecoder()
        case "gemini":
            return GeminiDecoder(model or FLASH, circulates=model != FLASH_25)
        case _:
            return ChatDecoder(model or "m")


def body_of(provider: str, request: Request, model: str = "") -> Any:
    match provider:
        case "anthropic":
            return anthropic.encode(request, model or CLAUDE)
        case "openai":
            return responses.encode(request, model or GPT)
        case "gemini":
            return gemini.encode(request, model or FLASH)
        case _:
            return chat_completions.encode(request, model or "m")


def decoded(decoder: Any, events: list[Any], *, done: bool = False) -> list[Any]:
    return [*(one for event in events for one in decoder.feed(event)), *decoder.close(done=done)]


def answers(name: str, number: int = 0) -> list[Any]:
    chunks = streamed(name, number)
    return decoded(decoder_of(provider_of(name), model_of(name)), chunks, done=True)


def parts_of(events: list[Any]) -> tuple[Any, ...]:
    finished = (one for one in events if isinstance(one, PartFinished))
    return tuple(one.part for one in sorted(finished, key=lambda event: event.index))


def viewed(provider: str, *messages: Message) -> tuple[Message, ...]:
    """Return the messages as the loop sends them to a provider."""
    view = RequestView()
    view.follow(messages, Rules(provider=provider))
    return view.messages


def told(part: Any) -> Any:
    """Return what a reader is shown of a part."""
    match part:
        case Text(text, citations=citations):
            return (text, *((text[one.start : one.end], one.url, one.title) for one in citations))
        case HostedCall():
            return (f"{part.name} of {part.host}", dict(part.arguments))
        case HostedResult():
            found = [
                (one.uri, one.name, one.text) if isinstance(one, Resource) else as_text(one) for one in part.content
            ]
            return (part.status, *found)
        case _:
            return type(part).__name__


SHANNON = "Claude Shannon was born on April 30, 1916, in Petoskey, Michigan"
WIKIPEDIA = ("https://en.wikipedia.org/wiki/Claude_Shannon", "Claude Shannon - Wikipedia")
BRITANNICA = ("https://www.britannica.com/biography/Claude-Shannon", "Claude Shannon | Biography")
ARTICLE = (
    "Article Title\n\nArtificial intelligence is poised to revolutionize healthcare delivery. "
    "It will not replace nurses."
)
TIDES, BREST = "https://example.com/tides", "https://example.com/brest"
GROUNDED = "https://vertexaisearch.cloud.google.com/grounding-api-redirect/"
SF = "https://www.google.com/search?q=weather+in+San+Francisco"
NORTH = "northernmost city in the United States"


def marker(url: str) -> str:
    return f"([example.com]({url}?utm_source=openai))"


ANSWERS: dict[str, tuple[int, list[Any]]] = {
    "anthropic_search": (
        1,
        [
            "Reasoning",
            ("web_search of Anthropic", {"query": "claude shannon birth date"}),
            ("ok", (*WIKIPEDIA, ""), (*BRITANNICA, "")),
            (f"Based on the search results 🔎, {SHANNON}.", (SHANNON, *WIKIPEDIA), (SHANNON, *BRITANNICA)),
        ],
    ),
    "anthropic_fetch": (
        0,
        [
            ("I'll fetch the article.",),
            ("web_fetch of Anthropic", {"url": "https://example.com/article"}),
            ("ok", ("https://example.com/article", "Article Title", ARTICLE)),
            ("web_fetch of Anthropic", {"url": "https://example.com/paper.pdf"}),
            ("ok", ("https://example.com/paper.pdf", "", "")),
            (
                "Based on the article, AI will transform healthcare; the paper says that trials are few.",
                ("AI will transform healthcare", "https://example.com/article", "Article Title"),
                ("that trials are few", "https://example.com/paper.pdf", ""),
            ),
        ],
    ),
    "anthropic_errors": (
        1,
        [
            ("web_search of Anthropic", {"query": "zqxv 1x"}),
            ("ok",),
            ("web_search of Anthropic", {"query": "one more"}),
            ("error", "max uses exceeded"),
            ("web_fetch of Anthropic", {"url": "https://example.com/invented"}),
            ("error", "url not in prior context"),
            ("web_fetch of Anthropic", {"url": "https://example.com/down"}),
            ("error", "unavailable"),
            ("I found nothing, and could not read the pages.",),
        ],
    ),
    "anthropic_dynamic": (
        1,
        [
            ("code_execution of Anthropic", {"code": "r = await web_search({'query': 'AI SDK'})\nprint(r[:200])"}),
            ("web_search of Anthropic", {"query": "AI SDK"}),
            ("ok", ("https://ai-sdk.dev/", "AI SDK", "")),
            ("web_fetch of Anthropic", {"url": "https://ai-sdk.dev/"}),
            ("ok", ("https://ai-sdk.dev/", "AI SDK", "AI SDK\n\nA toolkit.")),
            ("ok",),
            ("bash_code_execution of Anthropic", {"command": "echo 'a,b' > /tmp/t.csv; cat /tmp/t.csv"}),
            ("ok", "a,b\n", "[file file_011Made]"),
            ("The AI SDK is a toolkit.",),
        ],
    ),
    "responses_search": (
        1,
        [
            "Reasoning",
            ("web_search of OpenAI", {"query": "tides Brest today", "queries": ["tides Brest today", "marées Brest"]}),
            ("ok", (TIDES, "", ""), (BREST, "", ""), "oai-weather"),
            "Reasoning",
            ("web_fetch of OpenAI", {"url": TIDES}),
            ("ok", (TIDES, "", "")),
            ("web_fetch of OpenAI", {"pattern": "Brest", "url": TIDES}),
            ("ok", (TIDES, "", "")),
            "Reasoning",
            (
                f"Marée à Brest — high water is at 05:12. {marker(TIDES)}.\n\nLow water is at 11:20. {marker(BREST)}",
                (marker(TIDES), f"{TIDES}?utm_source=openai", "Tides | Example"),
                (marker(BREST), f"{BREST}?utm_source=openai", "Brest — Example"),
            ),
        ],
    ),
    "responses_search_failed": (
        0,
        [
            ("web_search of OpenAI", {"query": "anything"}),
            ("error",),
            ("I could not search the web just now.",),
        ],
    ),
    "responses_code_interpreter": (
        0,
        [
            "Reasoning",
            ("code_execution of OpenAI", {"code": "import csv\nprint(6*7)\n"}),
            ("ok", "42\n", ("https://files.example.invalid/plot.png", "an image", "")),
            ("The result is 42: [table](sandbox:/mnt/data/t.csv)",),
        ],
    ),
    "responses_compatible": (
        1,
        [
            ("web_search of OpenAI", {}),
            ("ok",),
            (
                "xAI was founded in 2023.[[1]](https://en.wikipedia.org/wiki/XAI)",
                ("[[1]](https://en.wikipedia.org/wiki/XAI)", "https://en.wikipedia.org/wiki/XAI", ""),
            ),
        ],
    ),
    "chat_search_model": (
        1,
        [
            (
                "A whale was freed. ([example.com](https://example.com/news?utm_source=openai))",
                (
                    "([example.com](https://example.com/news?utm_source=openai))",
                    "https://example.com/news?utm_source=openai",
                    "Good news",
                ),
            ),
        ],
    ),
    "chat_openrouter": (
        1,
        [
            (
                "It is at https://github.com/example/project",
                ("https://github.com/example/project",) * 2 + ("example/project",),
                ("", "https://example.dev/project", ""),
            ),
        ],
    ),
    "chat_groq_compound": (
        0,
        [
            ("Sunny.",),
            ("web_search of ", {"query": "weather San Francisco"}),
            ("ok", ("https://weather.example/", "Weather", "sunny")),
            "Reasoning",
        ],
    ),
    "gemini_search_25": (
        1,
        [
            (
                "### Weather — San Francisco 🌉\n\nIt is 69°F (21°C) now. The high is 85°F.",
                ("It is 69°F (21°C) now.", SF, "Weather information for San Francisco"),
                ("It is 69°F (21°C) now.", f"{GROUNDED}AUZIYQONE", "weather.gov"),
                ("The high is 85°F.", f"{GROUNDED}AUZIYQTWO", ""),
            ),
            ("web_search of Google", {"queries": ["weather in San Francisco today"]}),
            (
                "ok",
                (SF, "Weather information for San Francisco", ""),
                (f"{GROUNDED}AUZIYQONE", "weather.gov", ""),
                (f"{GROUNDED}AUZIYQTWO", "", ""),
                (f"{SF}+today", "weather in San Francisco today", ""),
            ),
        ],
    ),
    "gemini_search_3_functions": (
        1,
        [
            ("web_search of Google", {"queries": [NORTH]}),
            ("ok", (f"https://www.google.com/search?q={NORTH.replace(' ', '+')}", NORTH, "")),
            "ToolCall",
        ],
    ),
    "gemini_url_context_25": (
        0,
        [
            (
                "Pydantic AI Gateway is now available!",
                ("Pydantic AI Gateway is now available!", "https://ai.example.dev", "Example AI"),
            ),
            (
                "web_fetch of Google",
                {"urls": ["https://ai.example.dev", "https://news.example/paid", "https://down.example"]},
            ),
            (
                "ok",
                ("https://ai.example.dev", "", ""),
                ("https://news.example/paid", "", "(not read: paywall)"),
                ("https://down.example", "", "(not read: error)"),
            ),
        ],
    ),
    "gemini_url_context_3": (
        0,
        [
            ("web_fetch of Google", {"urls": ["https://ai.example.dev"]}),
            ("ok", ("https://ai.example.dev", "", "")),
            (
                "Pydantic AI Gateway is now available!",
                ("Pydantic AI Gateway is now available!", "https://ai.example.dev", "Example AI"),
            ),
            ("",),
        ],
    ),
    "gemini_code_execution": (
        0,
        [
            ("Let me compute. ",),
            ("code_execution of Google", {"code": "print(6*7)\n"}),
            ("ok", "42\n"),
            ("code_execution of Google", {"code": "1/0\n"}),
            ("error", "ZeroDivisionError: division by zero\n"),
            ("It is 42.",),
        ],
    ),
}
"""What each answer becomes, and the searches that are billed."""
ALL = pytest.mark.parametrize("name", list(ANSWERS))


PAGE = "https://example.com/a"


def own(data: Any, provider: str = "anthropic") -> ProviderData:
    return ProviderData(provider, data)


def use(call_id: str, name: str = "web_fetch", **more: Any) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": call_id, "name": name, "input": {}, **more}


def result(call_id: str, content: Any = (), kind: str = "web_fetch_tool_result", **more: Any) -> dict[str, Any]:
    return {"type": kind, "tool_use_id": call_id, "content": content, **more}


def document(text: str, title: str) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, "title": title}


def begun(place: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": place, "content_block": block}


def said(place: int, text: str, *citations: Any) -> list[dict[str, Any]]:
    block = {"type": "text", "text": text, **({"citations": list(citations)} if citations else {})}
    return [begun(place, block), {"type": "content_block_stop", "index": place}]


def ended() -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}, {"type": "message_stop"}]


# ---- what APIs refuse


def valid_anthropic(body: Any) -> None:
    for message in body["messages"]:
        blocks = message["content"]
        assert blocks
        assert all(one["type"] != "text" or one["text"].strip() for one in blocks)
        calls = [one["id"] for one in blocks if one["type"] == "server_tool_use"]
        results = [one["tool_use_id"] for one in blocks if one["type"].endswith("_tool_result")]
        assert sorted(calls) == sorted(results)
        called = [one.get("caller", {}).get("tool_id") for one in blocks]
        assert {one for one in called if one} <= set(calls)
        assert blocks[-1]["type"] != "thinking"


def valid_openai(body: Any) -> None:
    items = body["input"]
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        assert kind != "reasoning" or items[place + 1].get("id"), "reasoning without the item that it led to"
        assert item.get("status", "completed") in ("completed", "failed")
        assert "sources" not in item.get("action", {})
    ids = [item["id"] for item in items if "id" in item]
    assert len(set(ids)) == len(ids)


def valid_gemini(body: Any) -> None:
    for content in body["contents"]:
        assert content["parts"]
        for call, answer in (("toolCall", "toolResponse"), ("executableCode", "codeExecutionResult")):
            calls, found = ([one[kind].get("id") for one in content["parts"] if kind in one] for kind in (call, answer))
            assert sorted(calls) == sorted(found)


def valid_chat(body: Any) -> None:
    assert all(message["content"] for message in body["messages"])


VALID = {"anthropic": valid_anthropic, "openai": valid_openai, "gemini": valid_gemini, "openai-chat": valid_chat}
