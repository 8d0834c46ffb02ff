"""Answers that were recorded at the real APIs come out as the parts that they were."""

import pytest

from agentmagic.events import PartFinished
from agentmagic.messages import ToolCall, user
from agentmagic.providers.base import Request
from tests.contracts.conversing import api_case
from tests.providers.loopback import Loopback, ask, recorded
from tests.providers.strict.server import APIS, KEY

TOOLS = ["get_current_date", "2024-01-01", "get_current_date2", "2024-01-01"]
DATES = ["get_date", "It is 2024-01-01.", "", "get_date", "It is January.", ""]
RECORDINGS = [
    ("openai", "responses_simple_streaming_request", ["2"]),
    ("openai", "responses_tool_variations_async", TOOLS),
    ("openai", "responses_images", ["A simple red rectangle", "The image is a **dark blue hexagon"]),
    ("openai-chat", "chat_simple_streaming_request", ["2"]),
    ("openai-chat", "chat_tool_variations_async", TOOLS),
    ("openai-chat", "chat_images", ["The image is a solid red rectangle", "The image is a logo"]),
    ("gemini", "gemini_simple_streaming_request", ["2"]),
    ("gemini", "gemini_images_inline", ["This image is a solid, bright red color.", ""]),
    ("gemini", "gemini_tools_simple", DATES),
    ("gemini", "gemini_tools_parallel", ["favorite_color", "favorite_color", "Joe sage green Hadley red", ""]),
]


@pytest.mark.parametrize(
    ("api", "name", "expected"), [pytest.param(*row, marks=api_case(row[0]).marks) for row in RECORDINGS]
)
def test_what_a_real_api_answered_comes_out_as_its_parts(api, name, expected):
    exchanges = recorded(name)
    with Loopback(exchanges) as server:
        answers = [ask(APIS[api]().model(server.url, KEY), Request((user("Hi"),))) for _ in exchanges]
    assert all(answer[-1].usage.input_tokens > 0 for answer in answers)
    parts = [event.part for answer in answers for event in answer if isinstance(event, PartFinished)]
    told = [part.name if isinstance(part, ToolCall) else part.text for part in parts]
    assert [text[: len(start)] for text, start in zip(told, expected, strict=True)] == expected
