"""Speed, as ratios against a floor in the same run: `python -m tests.benchmarks`.

Figures depend on the machine and are not asserted; `docs/reference/benchmarks.md` says what they are for.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from tempfile import mkdtemp

from agentmagic import Agent, Session, tool
from agentmagic.errors import RateLimited
from agentmagic.events import PartDelta
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Faulty, Stalled
from tests.benchmarks import bills, long, outside, pace, tapes, watching
from tests.benchmarks.floor import Floor

PROVIDERS = ("openai-chat:bench", "openai:bench", "gemini:bench", "anthropic:bench", "ollama:bench")
CHUNKS = 20_000
REPEATS = 20
TRIES = 3
PROMPT = "stream 10"


@tool
async def echo(text: str) -> str:
    """Repeat a text."""
    return text


@contextmanager
def server() -> Iterator[str]:
    """Start the loopback server in a process of its own, so that its work is not counted."""
    command = [sys.executable, "-m", "tests.benchmarks.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        base = f"http://127.0.0.1:{int(process.stdout.readline())}"
        os.environ |= {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_KEY": "bench", "GEMINI_API_KEY": "bench"}
        os.environ |= {"GOOGLE_GEMINI_BASE_URL": base, "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "bench"}
        os.environ["OLLAMA_HOST"] = base
        yield f"{base}/v1"
        process.stdin.close()


async def ask(session: Session, prompt: str) -> None:
    """Play one turn with one async iterator over its events."""
    run = session.start(prompt)
    async for _ in run:
        pass
    await run


async def cpu(work: Callable[[], Awaitable[object]]) -> float:
    """Return the CPU seconds of this process while the work is done."""
    began = time.process_time()
    await work()
    return time.process_time() - began


async def turns(play: Callable[[str], Awaitable[object]], count: int) -> float:
    """Return the CPU milliseconds of one tool turn, the median of the last ten of a conversation of `count`."""
    took = [await cpu(lambda: play("call the tool")) for _ in range(count)]
    return statistics.median(took[-10:]) * 1000


def row(what: str, ours: float, floor: float | None, unit: str, goal: str) -> None:
    """Print one line of the table."""
    beside = f"{floor:9.2f} {ours / floor:7.1f}x" if floor else f"{'':9} {'':8}"
    print(f"{what:44} {ours:9.2f} {beside} {unit:3} {goal}", flush=True)


async def tool_turns(base: str) -> None:
    """CPU of a turn with one tool call, in a short and in a long conversation."""
    for count, goal in ((50, "goal 4"), (200, "goal 5")):
        floor = Floor(base)
        least = await turns(floor.ask, count)
        await floor.aclose()
        for name in PROVIDERS:
            async with Session(Agent(name, tools=[echo], permission="allow")) as session:
                took = await turns(lambda prompt, session=session: ask(session, prompt), count)
            row(f"tool turn at {count} turns, {name}", took, least, "ms", goal)


async def streaming(base: str) -> None:
    """CPU of a long answer, every event kept and iterated over: the least of some tries, of the floor too."""
    floor = Floor(base)
    least = min([await cpu(lambda: floor.ask(f"stream {CHUNKS}")) for _ in range(TRIES)])
    await floor.aclose()
    for name in PROVIDERS:
        tries: list[float] = []
        for _ in range(TRIES):
            async with Session(Agent(name)) as session:
                await ask(session, "stream 10")
                tries.append(await cpu(lambda session=session: ask(session, f"stream {CHUNKS}")))
        took = min(tries)
        row(f"{CHUNKS} chunks, {name}", took, least, "s", "goal 0.8")


async def first_token(base: str) -> None:
    """Wall time from the prompt to the first piece of text, over the floor's."""
    floor = Floor(base)
    least = statistics.median([await by_hand_until_text(floor) for _ in range(REPEATS)]) * 1000
    await floor.aclose()
    for name in PROVIDERS:
        async with Session(Agent(name)) as session:
            await ask(session, PROMPT)
            took = statistics.median([await until_text(session) for _ in range(REPEATS)]) * 1000
            first = statistics.median([await first_in_new_session(name) for _ in range(REPEATS)]) * 1000
        row(f"first token, {name}", took, least, "ms", f"{took - least:.2f} over the floor, goal 3")
        row(f"in a new session, {name}", first, least, "ms", f"{first - least:.2f} over the floor, goal 3")


async def first_in_new_session(name: str) -> float:
    """Return the seconds from making a session, beside another one, to its first piece of text."""
    began = time.perf_counter()
    async with Session(Agent(name)) as session:
        return time.perf_counter() - began + await until_text(session)


async def by_hand_until_text(floor: Floor) -> float:
    """Return the seconds until the floor's first piece of text."""
    began = time.perf_counter()
    floor.messages = [{"role": "user", "content": PROMPT}]
    took = [time.perf_counter() - began async for _ in floor.stream()]
    return took[0]


async def until_text(session: Session) -> float:
    """Return the seconds until the first piece of text of a turn, and play it to its end."""
    session.clear()
    began = time.perf_counter()
    run = session.start(PROMPT)
    took = [time.perf_counter() - began async for event in run if isinstance(event, PartDelta)]
    await run
    return took[0]


async def tools_together() -> None:
    """Wall time of eight tools of 0.2 s, called in one step."""

    async def sleeper() -> None:
        """Sleep without blocking."""
        await asyncio.sleep(0.2)

    def blocker() -> None:
        """Sleep and block."""
        time.sleep(0.2)

    for function in (sleeper, blocker):
        step = {"calls": [{"name": function.__name__, "arguments": {}}] * 8}
        async with Session(Agent(ScriptedModel([step, "done"]), tools=[function])) as session:
            began = time.perf_counter()
            await ask(session, "all of them")
            row(f"8 tools of 0.2 s, {function.__name__}", time.perf_counter() - began, 0.2, "s", "goal 0.25")


async def cancelling() -> None:
    """Wall time from a cancel to the end of its turn, in each state in which the turn can wait."""

    async def wait() -> None:
        """Wait without an end."""
        await asyncio.Event().wait()

    @tool(ask=True)
    async def careful() -> None:
        """Wait for a person."""

    waits = {
        "a stream": (lambda: Stalled("Half an ans"), "part_delta"),
        "a tool": (lambda: ScriptedModel([{"calls": [{"name": "wait", "arguments": {}}]}]), "tool_started"),
        "an approval": (lambda: ScriptedModel([{"calls": [{"name": "careful", "arguments": {}}]}]), "approval_asked"),
        "a wait before a retry": (lambda: Faulty(RateLimited("busy", retry_after=60.0)), "step_retried"),
    }
    for what, (model, sign) in waits.items():
        took: list[float] = []
        for _ in range(REPEATS):
            async with Session(Agent(model(), tools=[wait, careful])) as session:
                run = session.start(PROMPT, attended=True)
                async for event in run:
                    if event.type == sign:
                        began = time.perf_counter()
                        run.cancel()
                took.append(time.perf_counter() - began)
        row(f"cancel in {what}", statistics.median(took) * 1000, None, "ms", "goal 500")


LOAD = r"""
import time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
began = time.process_time()
shell.run_line_magic("load_ext", "agentmagic")
loaded = time.process_time() - began
shell.run_cell("from agentmagic import Agent, Session\nfrom agentmagic.providers.scripted import ScriptedModel")
shell.run_cell("agent = Session(Agent(ScriptedModel(['Hello.'])))")
began = time.process_time()
shell.run_cell("%%agent\nhello")
print(loaded, time.process_time() - began)
"""


def loading() -> None:
    """CPU of `%load_ext agentmagic` in a fresh shell, and of the first cell after it."""
    command = [sys.executable, "-c", LOAD]
    lines = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(5)]
    figures = [tuple(map(float, line.split()[-2:])) for line in lines]
    row("%load_ext agentmagic", statistics.median(load for load, _ in figures), None, "s", "goal 0.25")
    row("first %%agent after it", statistics.median(cell for _, cell in figures), None, "s", "")


async def main() -> None:
    """Print the whole table."""
    print(f"{'':44} {'ours':>9} {'floor':>9} {'ratio':>8}")
    with server() as base:
        await tool_turns(base)
        await streaming(base)
        await first_token(base)
    await tools_together()
    await cancelling()
    loading()
    await outside.table()


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = mkdtemp()  # of the ledger: what is paid here is none of the developer's
    asyncio.run(main())
    long.main()
    tapes.main()
    watching.main()
    pace.main()
    bills.main()
