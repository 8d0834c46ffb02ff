"""Traces, the bill and budgets in a kernel, as a user meets them."""

import os
import re

import pytest

from tests.jupyter.harness import BATCH

pytest.importorskip("opentelemetry.sdk")

SDK = """
import threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))
trace.set_tracer_provider(provider)

@tool
def look(what: str) -> str:
    "Look."
    with trace.get_tracer("mine").start_as_current_span("inside"):
        return f"{what} in the main thread: {threading.current_thread() is threading.main_thread()}"

@tool(loop="caller")
async def hear(what: str) -> str:
    "Hear."
    await asyncio.sleep(0)
    return look(what)
play(calls("look", what="a"), calls("hear", what="b"), "Done.", "Again.")
"""
SPANS = """
spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
for span in sorted(spans.values(), key=lambda span: span.start_time):
    print(f"{span.name} < {spans[span.parent.span_id].name if span.parent else ''}")
print(agent.last.trace, agent.messages[2].text, agent.turns[0].messages[2].parts[0].text)
"""
END = """
provider.shutdown()
trace._TRACER_PROVIDER = None
"""
PAID = """
import os
import tempfile
from agentmagic import register_model
class Paid(ScriptedModel):
    def __init__(self, steps):
        super().__init__(steps)
        self.name = "paid:model"
register_model("paid:model", input_price=0.0, output_price=1_000.0)  # a tenth of a cent a word
before, os.environ["XDG_STATE_HOME"] = os.environ["XDG_STATE_HOME"], tempfile.mkdtemp()  # nothing is spent there
os.environ["AGENTMAGIC_DAILY_BUDGET"] = "0.01"
agent = Session(Agent(Paid(["word " * 8 + "word", "more"])))
"""


def test_the_spans_of_a_cell_nest_are_sent_at_its_end_and_its_footer_names_the_trace(kernel):
    assert kernel.run(SDK).ok
    cell = kernel.run("%%agent\nLook at a.")
    lines = kernel.run(SPANS).stream.splitlines()
    assert lines[:-1] == [
        "invoke_agent agent < ",
        "chat script < invoke_agent agent",
        "execute_tool look < invoke_agent agent",
        "inside < execute_tool look",
        "chat script < invoke_agent agent",
        "execute_tool hear < invoke_agent agent",
        "inside < execute_tool hear",
        "chat script < invoke_agent agent",
    ]
    found, _, told = lines[-1].partition(" ")
    assert "a in the main thread: True" in told
    assert f"trace {found}" in str(cell.displays)
    batch = kernel.run("%%agent\nAgain.", **BATCH)
    assert "trace" not in str(batch.displays)
    assert kernel.run(END).ok


@pytest.fixture
def paid(kernel):
    """The kernel under a budget of a cent, of which nothing is spent."""
    assert kernel.run(PAID).ok
    yield kernel
    assert kernel.run('del os.environ["AGENTMAGIC_DAILY_BUDGET"]; os.environ["XDG_STATE_HOME"] = before').ok


def test_a_budget_ends_a_turn_with_what_to_do_and_status_and_usage_tell_it(paid):
    assert "are left today (AGENTMAGIC_DAILY_BUDGET)" in paid.run("%agent status").stream
    assert paid.run("%%agent\nSay it.").ok
    stopped = paid.run("%%agent\nSay more.")
    assert stopped.ok
    assert "AGENTMAGIC_DAILY_BUDGET is $0.0100" in str(stopped.displays)
    assert re.search(r"budgets +\$0\.00 of \$0\.01 are left today", paid.run("%agent status").stream)
    usage = paid.run("%agent usage").stream
    assert usage.endswith("$0.00 of $0.01 are left today (AGENTMAGIC_DAILY_BUDGET)\n")
    assert paid.run("%agent usage --by notebook").ok
    pwd = pytest.importorskip("pwd", reason="Windows has no homes that can be read")
    users = paid.run("%agent usage --all").stream
    assert re.search(r"^user +requests +tokens +today +this month +all\n", users)
    assert re.search(
        rf"^{re.escape(pwd.getpwuid(os.getuid()).pw_name)} +1 +\d+ +\$0\.\d+ +\$0\.\d+ +\$0\.\d+$", users, re.MULTILINE
    )
