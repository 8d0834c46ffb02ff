"""The spans of turns, as the SDK of OpenTelemetry exports them; the same without it costs nothing."""


import pytest
from mcp.server import MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentmagic import Agent, RetrySettings, ScriptedModel, Session, Unavailable, tool
from agentmagic.testing import run
from tests.turns import calls

EXPORTER, PROVIDER = InMemorySpanExporter(), TracerProvider()
"""One for all tests: mcp keeps the first that it has seen."""
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
KEY = "sk-proj-aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA"


@pytest.fixture(autouse=True)
def sdk(monkeypatch):
    """Set the SDK up as a user does, for one test."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", PROVIDER)
    EXPORTER.clear()
    return monkeypatch


def own(name):
    """A span as the tool of a user makes it."""
    return trace.get_tracer("mine").start_as_current_span(name)


def tree():
    """The spans that have ended, each below its parent: name, kind and class of error; without the handshake of MCP."""
    spans = {span.context.span_id: span for span in EXPORTER.get_finished_spans()}

    def path(span):
        parent = span.parent and spans.get(span.parent.span_id)
        return (*(path(parent) if parent else ()), (span.start_time, span.context.span_id))

    def line(span):
        error = (span.attributes or {}).get("error.type", "")
        return f"{'  ' * (len(path(span)) - 1)}{span.name} {span.kind.name.lower()} {error}".rstrip()

    handshake = ("discover", "initialize", "tools/list", "listen", "setLevel")
    in_order = sorted(spans.values(), key=path)
    return [line(span) for span in in_order if not any(word in span.name for word in handshake)]


def attributes(name):
    return [dict(span.attributes) for span in EXPORTER.get_finished_spans() if span.name == name]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    with own("inside add"):
        return a + b


@tool
async def fail(why: str) -> str:
    """Fail."""
    with own("inside fail"):
        raise LookupError(why)


def peer():
    server = MCPServer("peer")

    @server.tool()
    def weather(city: str) -> str:
        """The weather."""
        with own("inside weather"):
            return f"sun in {city}"

    return server


def test_the_spans_of_a_turn_with_two_tools_and_a_call_of_a_server_nest_and_say_what_failed():
    step = calls(("add", {"a": 1, "b": 2}), ("fail", {"why": "no such thing"}), ("weather", {"city": "Bergen"}))
    model = ScriptedModel([step, Unavailable("overloaded"), "Sun, and 3."])
    agent = Agent(
        model, tools=[add, fail], mcp=[{"peer": peer()}], permission="allow", retry=RetrySettings(first_wait=0.0)
    )
    session = Session(agent)
    session.name = "helper"
    with own("the user's"):
        result = run(session, "Add, fail and look")
    session.close()
    assert result.final_text == "Sun, and 3."
    assert tree() == [
        "the user's internal",
        "  invoke_agent helper internal",
        "    chat script internal",
        "    execute_tool add internal",
        "      inside add internal",
        "    execute_tool fail internal LookupError",
        "      inside fail internal",
        "    execute_tool weather internal",
        "      MCP send tools/call weather client",
        "        tools/call weather server",
        "          inside weather internal",
        "    chat script internal Unavailable",
        "    chat script internal",
    ]
