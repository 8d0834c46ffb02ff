"""What traces cost a turn with and without an SDK, a line of the ledger, and a bill of 20,000 requests."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from agentmagic import traces
from agentmagic.bill import PaidRequests, folder_bill
from agentmagic.events import RunResult
from agentmagic.messages import Text, ToolCall, ToolDef, Usage, user
from agentmagic.tools.base import result

TIMES = 2_000
TRIES = 5
REQUESTS = 20_000
USED = Usage(1_000, 400, 100, requests=1, cost=0.0123)
CALL, TOOL = ToolCall("call_1", "look", {"page": 7}), ToolDef("look", "Look a page up.")
ASKED, ANSWER, RESULT = (user("Look"),), (Text("Done."),), result(CALL, "text")
ENDED = RunResult("", (), (), 2, timed_out=False, stop_reason="answer", usage=USED)


def traced() -> None:
    """Make the calls of a turn with two requests and a tool."""
    with traces.invoke_agent("agent", "openai:gpt", "1") as turn:
        for _ in range(2):
            with traces.chat("openai:gpt", "", ASKED, (TOOL,), {}) as request:
                traces.record_answer(request, ANSWER, USED, "stop", "gpt-1")
        with traces.execute_tool(TOOL, CALL) as call:
            traces.with_span(traced)
            traces.record_call(call, RESULT, None)
        traces.record_turn(turn, ENDED, None)


def milliseconds(work: Callable[[], object], times: int = TIMES) -> float:
    """Return the CPU milliseconds of one call, the least of some tries."""
    took: list[float] = []
    for _ in range(TRIES):
        began = time.process_time()
        for _ in range(times):
            work()
        took.append((time.process_time() - began) / times * 1000)
    return min(took)


SDK = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.benchmarks.bills import milliseconds, traced
trace.set_tracer_provider(TracerProvider())
print(milliseconds(traced, 500))
"""


def main() -> None:
    """Print the lines of the table."""
    from tests.benchmarks.__main__ import row

    row("traces of a turn, without an SDK", milliseconds(traced), None, "ms", "goal 0.02")
    done = subprocess.run([sys.executable, "-c", SDK], capture_output=True, text=True, check=True)
    row("traces of a turn, with an SDK", float(done.stdout), None, "ms", "")
    with TemporaryDirectory() as name:
        folder = Path(name)
        ledger = PaidRequests()
        ledger.path = lambda: folder / "ledger.jsonl"
        row("a line of the ledger", milliseconds(lambda: ledger.pay("f", "agent", "m", USED), 500), None, "ms", "")
        ledger.costs("day")
        row("a look at the ledger before a request", milliseconds(lambda: ledger.costs("day")), None, "ms", "")
        lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
        bill_path = PaidRequests.path()
        bill_path.parent.mkdir(parents=True, exist_ok=True)
        here = lines[0].replace(b'"folder": "f"', f'"folder": {json.dumps(str(folder.resolve()))}'.encode())
        bill_path.write_bytes(here * REQUESTS)
        took: list[float] = []
        for _ in range(TRIES):
            began = time.perf_counter()
            (found,) = folder_bill(folder).rows
            took.append(time.perf_counter() - began)
        what = f"a bill of {found['requests']:,} requests"
        row(what, statistics.median(took), None, "s", f"goal 1, {len(here)} B each")


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = mkdtemp()
    main()
