"""The spans of turns, as the SDK of OpenTelemetry exports them."""

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from mcp.server import MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentmagic import Agent, Reply, RetrySettings, ScriptedModel, Session, ToolContext, Unavailable, tool, traces
from agentmagic.display import block_json, html, terminal
from agentmagic.display.transcript import Transcript
from agentmagic.events import TurnFinished
from agentmagic.messages import ToolDef, user
from agentmagic.providers.anthropic import decoder as anthropic_decoder
from agentmagic.providers.gemini import decoder as gemini_decoder
from agentmagic.providers.openai import chat_decoder, responses
from agentmagic.testing import run
from agentmagic.tools.base import Tool
from agentmagic.tools.base import result as tool_result
from tests.serve.desks import Client, Office, listening_nowhere
from tests.tools.mcp.servers import obliging
from tests.turns import StallsAfter, approve, calls, hosted, scripted

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

    handshake = ("notifications", "discover", "initialize", "tools/list", "listen", "setLevel")
    in_order = sorted(spans.values(), key=path)
    return [line(span) for span in in_order if not any(word in span.name for word in handshake)]


def attributes(name):
    return [dict(span.attributes or {}) for span in EXPORTER.get_finished_spans() if span.name == name]


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


def test_the_spans_have_the_attributes_of_the_conventions_and_no_content():
    session = scripted(calls(("add", {"a": 1, "b": 2})), "The secret is 3.", tools=[add], permission="allow")
    session.name = "helper"
    result = run(session, "Tell the secret")
    (turn,), (first, last), (call,) = map(attributes, ("invoke_agent helper", "chat script", "execute_tool add"))
    about = {"gen_ai.provider.name": "scripted", "gen_ai.request.model": "script"}
    about["gen_ai.conversation.id"] = turn["gen_ai.conversation.id"]
    used = {
        "gen_ai.usage.input_tokens": result.usage.input_tokens,
        "gen_ai.usage.output_tokens": result.usage.output_tokens,
    }
    assert turn == about | used | {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    for one in (first, last):
        assert (one["gen_ai.operation.name"], one["gen_ai.response.finish_reasons"]) == ("chat", ("stop",))
        assert about.items() <= one.items()
    assert call["gen_ai.tool.name"] == "add"
    assert call["gen_ai.tool.type"] == "function"
    assert call["gen_ai.tool.call.id"] == result.history_delta[1].parts[0].id
    scope = EXPORTER.get_finished_spans()[-1].instrumentation_scope
    assert (scope.name, scope.schema_url.rpartition("/")[2]) == ("agentmagic", traces.CONVENTIONS)
    assert "secret" not in json.dumps([turn, first, last, call])


def test_content_is_in_the_spans_if_the_variable_of_opentelemetry_asks_for_it_and_secrets_are_blanked(monkeypatch):
    monkeypatch.setenv(traces.CONTENT, "span_only")
    step = calls(("add", {"a": 1, "b": 2}), ("fail", {"why": f"the key {KEY}"}))
    session = scripted(step, "It is 3.", instructions="Be brief.", tools=[add, fail], permission="allow")
    run(session, f"Add, with {KEY}")
    (first, last), (call,), (failed,) = map(attributes, ("chat script", "execute_tool add", "execute_tool fail"))
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    asked, *_ = json.loads(first["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "Add, with [redacted]"}]}
    (answer,) = json.loads(last["gen_ai.output.messages"])
    assert answer["parts"] == [{"type": "text", "content": "It is 3."}]
    assert (json.loads(call["gen_ai.tool.call.arguments"]), json.loads(call["gen_ai.tool.call.result"])) == (
        {"a": 1, "b": 2},
        "3",
    )
    assert json.loads(failed["gen_ai.tool.call.result"]) == "LookupError: the key [redacted]"
    written = [
        span.to_json() for span in EXPORTER.get_finished_spans() if span.instrumentation_scope.name == "agentmagic"
    ]
    assert KEY not in "".join(written)


def mark() -> str:
    """Open a span where a tool runs, and say in which thread."""
    with own("inside"):
        return threading.current_thread().name


def synchronous() -> str:
    """Mark."""
    return mark()


async def asynchronous() -> str:
    """Mark."""
    await asyncio.sleep(0)
    return mark()


@pytest.mark.parametrize(
    "made",
    [
        tool(synchronous),
        tool(thread_safe=True)(synchronous),
        tool(executor=ThreadPoolExecutor(1))(synchronous),
        tool(asynchronous),
        tool(loop="caller")(asynchronous),
    ],
    ids=["a thread", "a thread beside others", "an executor", "the session's loop", "the caller's loop"],
)
def test_the_span_of_a_call_is_current_wherever_its_tool_runs(made):
    name = "asynchronous" if made.__name__ == "asynchronous" else "synchronous"
    scripted(calls(name), "Done.", tools=[made], permission="allow").ask("Mark")
    assert tree()[2:4] == [f"  execute_tool {name} internal", "    inside internal"]


@tool
async def outer(ctx: ToolContext) -> int:
    """Call another tool."""
    return await ctx.call_tool("add", {"a": 1, "b": 1})


def test_a_call_that_a_tool_makes_nests_under_the_tool():
    run(scripted(calls("outer"), "2", tools=[outer, add], permission="allow"), "Call")
    assert tree()[2:5] == [
        "  execute_tool outer internal",
        "    execute_tool add internal",
        "      inside add internal",
    ]


def test_an_error_that_holds_an_answer_is_no_part_of_a_span_without_the_variable(monkeypatch):
    def ask():
        EXPORTER.clear()
        run(Session(Agent(ScriptedModel(['"Jane is ill"'] * 9), output=int)), "How many?")
        return repr([(span.status.description, span.attributes) for span in EXPORTER.get_finished_spans()])

    assert "Jane" not in ask()
    monkeypatch.setenv(traces.CONTENT, "true")
    assert "Jane" in ask()


def test_the_turn_of_an_agent_that_a_call_asks_nests_under_the_call_with_its_own_name():
    scout = Agent(ScriptedModel(["Found."])).as_tool("scout", "Finds things.")
    session = Session(Agent(ScriptedModel([calls(("scout", {"prompt": "Look."})), "Done."]), tools=[scout]))
    session.name = "lead"
    session.ask("Look.")
    assert tree() == [
        "invoke_agent lead internal",
        "  chat script internal",
        "  execute_tool scout internal",
        "    invoke_agent scout internal",
        "      chat script internal",
        "  chat script internal",
    ]


def test_a_request_for_a_server_that_asks_the_model_nests_under_the_call_of_its_tool():
    session = scripted(calls("think"), "4", "It is 4.", mcp=[{"obliging": obliging.make()}], permission="allow")
    turn = session.start("Think", attended=True)

    def agree(event):
        if event.type == "question_asked":
            turn.send(Reply(event.id, "y"))

    turn.listen(agree)
    assert turn.wait().final_text == "It is 4."
    session.close()
    assert [line for line in tree() if "chat" in line or "execute" in line] == [
        "  chat script internal",
        "  execute_tool think internal",
        "    chat script internal",
        "  chat script internal",
    ]


class Asking:
    """A source whose tool asks the model from a task without a context, as servers of the older protocols do."""

    async def tools(self):
        return [Tool(ToolDef("think", "Think."), self.think)]

    async def think(self, call, context):
        asking = context.complete([user("2 + 2?")], "", max_tokens=5)
        answer = await asyncio.create_task(asking, context=contextvars.Context())
        return tool_result(call, answer.text)

    async def aclose(self):
        pass


def test_a_request_from_another_task_nests_under_the_call_that_it_is_for():
    run(scripted(calls("think"), "4", "It is 4.", tools=[Asking()], permission="allow"), "Think")
    assert tree()[2:4] == ["  execute_tool think internal", "    chat script internal"]


def test_requests_beside_the_conversation_have_spans_too():
    session = scripted(*["word " * 400] * 6, "A summary.")
    for number in range(6):
        run(session, f"Question {number}? " + "word " * 400)
    EXPORTER.clear()
    session.compact()
    assert tree() == ["chat script internal"]
    EXPORTER.clear()
    plan = {"tasks": [{"id": "t1", "tool": "add", "parameters": {"a": 1, "b": 2}, "depends_on": [], "description": ""}]}
    steps = [json.dumps(one) for one in ({"route": "tools"}, plan)]
    run(scripted(*steps, "It is 3.", tools=[add], permission="allow"), "Do the sum", plan=True)
    assert [line for line in tree() if "chat" in line] == ["  chat script internal"] * 3


def test_each_row_of_a_map_is_a_turn_with_spans():
    result = Session(Agent(ScriptedModel(["one", "two"]))).map([{"n": 1}, {"n": 2}], "Say {n}")
    assert len(result) == 2
    assert tree() == ["invoke_agent internal", "  chat script internal"] * 2


def test_a_call_of_a_client_of_the_notebook_nests_under_the_clients_own_span():
    with hosted(Office(approve)), listening_nowhere() as server:
        session = Session(Agent(ScriptedModel([]), tools=[add], permission="allow"))
        session.serve(tools=True)
        client = Client(server.desk)
        EXPORTER.clear()
        with own("tools/call add"):
            assert client.call("add", a=1, b=2).text == "3"
        session.close()
    assert tree() == ["tools/call add internal", "  execute_tool add internal", "    inside add internal"]


@pytest.mark.parametrize(("mode", "spans"), [("record", 3), ("replay", 0), ("auto", 0), ("replay-tools", 2)])
def test_what_comes_from_a_cassette_has_no_spans(mode, spans, tmp_path):
    def played(mode):
        model = ScriptedModel([calls(("add", {"a": 1, "b": 2})), "3"])
        session = Session(Agent(model, tools=[add], permission="allow"), cassette=tmp_path / "c.yaml", replay=mode)
        result = run(session, "Add")
        session.close()
        return result

    recorded = played("record")
    assert recorded.trace
    assert recorded.trace not in (tmp_path / "c.yaml").read_text(encoding="utf-8")
    if mode != "record":
        EXPORTER.clear()
        assert bool(played(mode).trace) == bool(spans)
    names = [span.name for span in EXPORTER.get_finished_spans() if span.name.startswith(("chat", "execute"))]
    assert len(names) == spans


def test_a_turn_that_is_cancelled_ends_its_spans_and_says_so():
    begun = threading.Event()
    session = Session(Agent(StallsAfter(tell=begun.set)))
    turn = session.start("Wait")
    begun.wait(10)
    turn.cancel()
    turn.settled.result(10)
    assert tree() == ["invoke_agent internal cancelled", "  chat stalled client cancelled"]


def test_a_trace_is_named_in_the_details_of_the_footer_but_not_in_a_batch_output():
    result = run(scripted("Hi."), "Hello")
    assert result.trace == f"{EXPORTER.get_finished_spans()[0].context.trace_id:032x}"
    transcript = Transcript()
    for event in (*result.events, TurnFinished(result)):
        transcript.feed(event)
    shown = [render(transcript, times=times) for render in (html.render, terminal.render) for times in (True, False)]
    assert [result.trace in one for one in shown] == [True, False] * 2
    page = dict(transcript.blocks[-1].render(block_json.JsonRenderer()))
    assert str(page["details"]).endswith(f" · trace {result.trace}")


class Failing:
    """A processor of spans that fails."""

    def on_start(self, *_):
        raise RuntimeError("no room")

    on_end = on_start

    def shutdown(self):
        pass


def test_a_processor_that_fails_harms_no_turn(monkeypatch):
    provider = TracerProvider()
    provider.add_span_processor(Failing())
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    assert run(scripted("Hi."), "Hello").final_text == "Hi."


def test_the_end_of_a_cell_waits_for_the_exporters_for_a_bounded_time(monkeypatch):
    asked, never = threading.Event(), threading.Event()

    def hang(_milliseconds):
        asked.set()
        never.wait(30)

    run(scripted("Hi."), "Hello")
    monkeypatch.setattr(PROVIDER, "force_flush", hang)
    traces.flush(0.05)
    assert asked.is_set()
    run(scripted("Hi."), "Hello")
    traces.flush(0.05)
    assert sum(one.name == "agentmagic-traces" for one in threading.enumerate()) == 1
    never.set()
    asked.clear()
    traces.flush(0.05)  # nothing has ended since
    assert not asked.is_set()
    never.set()


WITHOUT = """
import sys
from agentmagic import Agent, ScriptedModel, Session
assert Session(Agent(ScriptedModel(["Hi."]))).ask("Hello").trace == ""
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_without_a_provider_opentelemetry_is_not_imported():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("decoder", "chunks"),
    [
        (
            chat_decoder.Decoder(),
            [{"model": "gpt-1-0304", "choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}],
        ),
        (
            anthropic_decoder.Decoder("claude-1"),
            [
                {"type": "message_start", "message": {"model": "claude-1-0304", "usage": {}}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi."}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            ],
        ),
        (
            gemini_decoder.Decoder("gemini-1"),
            [
                {
                    "modelVersion": "gemini-1-0304",
                    "candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}],
                }
            ],
        ),
        (
            responses.Decoder(),
            [{"type": "response.completed", "response": {"model": "gpt-1-0304", "status": "completed"}}],
        ),
    ],
    ids=["chat", "anthropic", "gemini", "responses"],
)
def test_a_decoder_says_which_model_has_answered(decoder, chunks):
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    events += decoder.close()
    assert events[-1].model.endswith("-0304")
