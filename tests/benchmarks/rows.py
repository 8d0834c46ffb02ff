"""A map whose process is killed, against a provider that refuses: `python -m tests.benchmarks.rows`.

Each row calls one tool, which appends the row to a file. The process that maps is killed three times, and the map is
run again until each row has its answer. Then the same with the tool on a cluster of Dask, one of whose workers is
killed. `--rows`, `--cluster-rows`, `--limit` (requests a minute) and `--concurrency` change the size.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentmagic import Agent, ModelSettings, Session, register_model, tool
from agentmagic.events import MapProgress, PartFinished, PartStarted
from agentmagic.messages import Text, Usage
from agentmagic.providers.base import ModelFinished
from tests.benchmarks.floor import Floor
from tests.benchmarks.limited import INPUT_PRICE, OUTPUT_PRICE

MODEL = "openai-chat:rows"
LONGEST_ANSWER = 60
"""Tokens; it is what is set aside for an answer."""
PROMPT = "Note row number {number}, then say what the customer thinks.\nRow {number}. {review}"
REVIEW = "I have had it for three weeks now, and it does what it says. The box was damaged, though. "
ROOT = Path(__file__).parents[2]


# -- the process that maps ---------------------------------------------------------------------------


def labelled(folder: str, rows: int, max_cost: float, concurrency: int | None, scheduler: str = "") -> None:
    """Map the rows, as the child does; print what the map has come to."""
    register_model(MODEL, input_price=INPUT_PRICE, output_price=OUTPUT_PRICE, window=128_000)
    notes = f"{folder}/notes.txt"
    executor = None
    if scheduler:
        from distributed import Client

        executor = Client(scheduler).get_executor(pure=False)

    @tool(executor=executor)
    def note(number: int) -> str:
        """Note the number of a row."""
        with open(notes, "a") as file:  # noqa: PTH123  (on a worker, which takes the function alone)
            file.write(f"{number}\n")
        return "noted"

    agent = Agent(MODEL, tools=[note], permission="allow", settings=ModelSettings(max_output_tokens=LONGEST_ANSWER))
    session = Session(agent)
    reviews = [{"number": number, "review": REVIEW * (1 + number % 5)} for number in range(rows)]
    path = Path(folder, "rows.jsonl")
    run = session.start_map(reviews, PROMPT, to=path, max_cost=max_cost, concurrency=concurrency)
    run.listen(Starting())
    result = run.wait()
    seen = result.progress
    counts = {"answered": seen.answered, "kept": seen.kept, "failed": seen.failed, "ended": seen.ended}
    errors = {"errors": seen.errors, "notices": seen.notices, "cost": seen.usage.cost}
    print(json.dumps(counts | errors | {"doubtful": [row.place for row in result.doubtful]}), flush=True)


class Starting:
    """Prints at the first report what the process has used until then: imports, and the file that was read."""

    def __init__(self) -> None:
        self._is_told = False

    def __call__(self, progress: MapProgress) -> None:
        if not self._is_told:
            self._is_told = True
            print(json.dumps({"cpu": time.process_time()}), flush=True)


def remembered(rows: int) -> None:
    """Map rows with a model that takes no time, and print the CPU seconds and the peak of memory in KiB."""
    session = Session(Agent(Instant()))
    reviews = [{"number": number, "review": REVIEW} for number in range(rows)]
    began = time.process_time()
    result = session.map(reviews, PROMPT)
    took = time.process_time() - began
    assert result.progress.answered == rows
    assert len(result.frame) == rows
    print(json.dumps({"cpu": took, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}), flush=True)


class Instant:
    """A model that answers in no time."""

    name = "testing:instant-rows"

    async def stream(self, request):
        yield PartStarted(0, "text")
        yield PartFinished(0, Text("The customer likes it."))
        yield ModelFinished(Usage(100, 0, 10), "stop")

    async def aclose(self):
        pass


# -- the process that kills it -------------------------------------------------------------------------


@contextmanager
def provider(limit: int, *latency: float) -> Iterator[str]:
    """Start the provider in a process of its own, and yield its address."""
    command = [sys.executable, "-m", "tests.benchmarks.limited", str(limit), *map(str, latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def is_over(process: int) -> bool:
    """Return whether a process has ended; its figures can still be read."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def counts(address: str) -> dict[str, Any]:
    """Return what the provider has counted."""
    with urllib.request.urlopen(f"{address}/counts") as answer:  # noqa: S310  (of this machine)
        found = json.load(answer)
    for name in ("begun", "answered"):
        found[name] = Counter({int(row): count for row, count in found[name].items()})
    return found


@dataclass
class Trial:
    """Maps that are killed and run again, and what they have taken: CPU and wall seconds, memory in KiB."""

    address: str
    folder: Path
    rows: int
    max_cost: float
    concurrency: int | None = None
    scheduler: str = ""
    cpu: float = 0.0
    starting: float = 0.0
    seconds: float = 0.0
    peak: int = 0
    runs: int = 0
    asked_again: int = 0
    finished: set[int] = field(default_factory=set[int])
    last: dict[str, Any] = field(default_factory=dict[str, Any])

    def run(self, kill_at: int | None = None, worker: int | None = None) -> None:
        """Run the map once; kill its process, or the process of a worker, when so many rows have been answered."""
        self.runs += 1
        before = counts(self.address)
        options = [str(self.folder), str(self.rows), str(self.max_cost), str(self.concurrency or 0), self.scheduler]
        command = [sys.executable, "-m", "tests.benchmarks.rows", "--child", *options]
        address = {"OPENAI_BASE_URL": f"{self.address}/v1", "OPENAI_API_KEY": "bench"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | address)
        assert process.stdout is not None
        starting = json.loads(process.stdout.readline())["cpu"]
        self.starting += starting
        began = time.monotonic()
        if kill_at is not None:
            while len(counts(self.address)["answered"]) < kill_at and not is_over(process.pid):
                time.sleep(0.2)  # seldom: to write all counts takes the provider a while
            os.kill(worker or process.pid, signal.SIGKILL)
        with process.stdout:
            said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds += time.monotonic() - began
        self.cpu += used.ru_utime + used.ru_stime - starting
        self.peak = max(self.peak, used.ru_maxrss)
        self.last = json.loads(said.splitlines()[-1]) if said.strip() else {}
        after = counts(self.address)
        self.asked_again += sum(after["begun"][row] > before["begun"][row] for row in self.finished)
        self.finished = {int(line["row"]) for line in self.lines("row_ended") if line["status"] == "answered"}

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return the whole lines of a kind in the file of the map."""
        path = self.folder / "rows.jsonl"
        beginning = f'{{"type":"{kind}"'.encode()
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith(beginning)]

    @property
    def notes(self) -> Counter[int]:
        """How often the tool has run for each row."""
        return Counter(map(int, Path(self.folder, "notes.txt").read_text().split()))

    def run_and_kill(self, kills: int, worker: int | None = None) -> None:
        """Run the map, kill it, and run it again until each row has its answer; a run that brings nothing is the last.

        With a `worker`, its process is killed in the run after that.
        """
        for kill in range(1, kills + 1):
            self.run(self.rows * kill // (kills + 1))
        answered = -1
        while answered < len(self.finished) < self.rows:
            answered = len(self.finished)
            self.run(None if worker is None else (answered + self.rows) // 2, worker)
            worker = None


async def by_hand(address: str, rows: int, at_once: int) -> float:
    """Return the CPU seconds of the same requests by hand, a row."""
    turns = [Floor(f"{address}/v1") for _ in range(at_once)]
    left = iter(range(rows))

    async def work(floor: Floor) -> None:
        for number in left:
            floor.messages = []
            await floor.ask(PROMPT.format(number=number, review=REVIEW * (1 + number % 5)))

    began = time.process_time()
    await asyncio.gather(*map(work, turns))
    took = time.process_time() - began
    for floor in turns:
        await floor.aclose()
    return took / rows


def row(what: str, figure: str, goal: str = "") -> None:
    """Print one line of the table."""
    print(f"{what:52} {figure:>14}  {goal}", flush=True)


@contextmanager
def cluster() -> Iterator[tuple[str, int]]:
    """Start a cluster of Dask, and yield the address of its scheduler and the process of a worker."""
    from dask import config
    from distributed import Client, LocalCluster

    with (
        config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=8, dashboard_address=None) as started,
        Client(started) as client,
    ):
        yield started.scheduler_address, next(iter(client.run(os.getpid).values()))


def least(options: argparse.Namespace) -> float:
    """Return the CPU seconds of a row by hand."""
    with provider(10**7, 0.0, 0.0) as address:
        return asyncio.run(by_hand(address, min(options.rows, 1000), 32))


def table(options: argparse.Namespace) -> None:
    """Print the whole table."""
    floor = least(options)
    with TemporaryDirectory() as folder, provider(options.limit) as address:
        trial = Trial(address, Path(folder), options.rows, 1000.0, options.concurrency)
        trial.run_and_kill(options.kills)
        seen, floor = counts(address), (floor + least(options)) / 2  # the machine may be slower by now
        report(trial, seen, floor, options)
    with TemporaryDirectory() as folder, provider(options.limit) as address:
        capped(Trial(address, Path(folder), options.rows, 0.0, options.concurrency), trial.last["cost"])
    if options.cluster_rows and find_spec("distributed"):
        print("\nwith the tool on a cluster, one of whose workers is killed")
        with TemporaryDirectory() as folder, provider(options.limit) as address, cluster() as (scheduler, worker):
            trial = Trial(address, Path(folder), options.cluster_rows, 1000.0, options.concurrency, scheduler)
            trial.run_and_kill(options.kills, worker)
            report(trial, counts(address), floor, options)
    print()
    large(options.memory_rows)


def report(trial: Trial, seen: dict[str, Any], floor: float, options: argparse.Namespace) -> None:
    """Print what a map has come to that was killed."""
    twice = {number for number, count in seen["answered"].items() if count > 1}
    ran_twice = {number for number, count in trial.notes.items() if count > 1}
    listed = set(trial.last["doubtful"])
    failed = {int(line["row"]) for line in trial.lines("row_ended") if line["status"] == "failed"}
    allowed = options.limit / 60 * trial.seconds
    row("rows", f"{trial.rows:,}", f"{trial.runs} runs, {options.kills} of them killed")
    row("rows answered", f"{len(trial.finished):,}", f"goal {trial.rows:,}")
    row("rows asked again although finished", f"{trial.asked_again:,}", "goal 0")
    row("rows answered twice", f"{len(twice):,}", "goal at most those in doubt")
    row("rows listed as in doubt", f"{len(listed):,}")
    row("rows answered twice and not listed", f"{len(twice - listed):,}", "goal 0")
    row("rows that failed and were asked again", f"{len(failed):,}")
    row("rows whose tool ran twice", f"{len(ran_twice):,}", "goal at most those in doubt, and those that failed")
    row("rows whose tool ran twice for neither reason", f"{len(ran_twice - listed - failed):,}", "goal 0")
    row("refusals a row", f"{seen['refused'] / trial.rows:.2f}", "goal 0.3")
    share = 100 * seen["accepted"] / allowed
    row("share of the allowed rate", f"{share:.0f} %", f"{options.limit:,} a minute, goal 90")
    row("seconds", f"{trial.seconds:.0f}")
    row("cost, as the provider counts it", f"${seen['cost']:.4f}")
    row("cost, as the map counts it", f"${trial.last['cost']:.4f}")
    row("CPU of a row", f"{1000 * trial.cpu / trial.rows:.2f} ms", "goal 3")
    row("  and of a start, with all imports", f"{trial.starting / trial.runs:.2f} s")
    row("  by hand", f"{1000 * floor:.2f} ms", f"{trial.cpu / trial.rows / floor:.1f}x")
    row("peak of memory", f"{trial.peak / 1024:.0f} MiB")
    for error, count in trial.last["errors"]:
        row(f"  {error[:48]}", f"{count:,}")


def capped(trial: Trial, whole: float) -> None:
    """Run a map whose cap is a third of what all rows cost, kill it once, and print what was paid."""
    trial.max_cost = whole / 3
    trial.run(trial.rows // 6)
    trial.run()
    seen = counts(trial.address)
    over = seen["cost"] - trial.max_cost
    row("a cap that binds", f"${trial.max_cost:.4f}", f"ended by {trial.last['ended']}")
    row("  paid, as the provider counts it", f"${seen['cost']:.4f}", f"dearest request ${seen['dearest']:.6f}")
    row("  beyond the cap, in requests", f"{max(0.0, over) / seen['dearest']:.2f}", "goal 1")


def large(rows: int) -> None:
    """Print the CPU and the memory of a map of many rows."""
    command = [sys.executable, "-m", "tests.benchmarks.rows", "--memory", str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    found = json.loads(done.stdout)
    row(f"{rows:,} rows of one request, no network: peak", f"{found['peak'] / 1024:.0f} MiB", "goal 600")
    row("  CPU of a row", f"{1000 * found['cpu'] / rows:.2f} ms")


def main() -> None:
    """Print the table, or be one of its processes."""
    reader = argparse.ArgumentParser(prog="python -m tests.benchmarks.rows")
    reader.add_argument("--rows", type=int, default=10_000)
    reader.add_argument("--cluster-rows", type=int, default=2_000)
    reader.add_argument("--memory-rows", type=int, default=100_000)
    reader.add_argument("--limit", type=int, default=5_000, help="requests a minute")
    reader.add_argument("--kills", type=int, default=3)
    reader.add_argument("--concurrency", type=int, default=None)
    reader.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    reader.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = reader.parse_args()
    if options.child:
        folder, rows, max_cost, concurrency, scheduler = options.child
        labelled(folder, int(rows), float(max_cost), int(concurrency) or None, scheduler)
    elif options.memory:
        remembered(options.memory)
    else:
        table(options)


if __name__ == "__main__":
    main()
