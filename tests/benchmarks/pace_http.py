"""The pace of a map over HTTP, in real time: `python -m tests.benchmarks.pace_http [SCENE ...]`.

The provider is a process of its own, and its log gives the figures: the share of the allowed rate that it accepted
after a warm-up, and the refusals a row. If the machine cannot do the allowed rate, the share is that of what it can do:
the rows in a second of CPU of a map at a provider without a limit, measured in the same run, because a map runs on one
core. Each scene is played `--runs` times, and the median stands in the table. Nothing else should run beside it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentmagic import Agent, ModelSettings, Session, register_model
from tests.benchmarks.limited import INPUT_PRICE, OUTPUT_PRICE

ROOT = Path(__file__).parents[2]
MODEL = "openai-chat:rows"
PROMPT = "Row {number}. {review}"
REVIEW = "I have had it for three weeks now, and it does what it says. The box was damaged, though. "
UNLIMITED = 10**7


@dataclass(frozen=True, slots=True)
class LiveScene:
    """What a provider allows, in requests a minute, what it tells of it, and the goal of the share that is used.

    The share is that of the `seconds` after the `warm_up`, both counted from the first request.
    """

    name: str
    limit: int
    tells: str
    goal: float
    latency: tuple[float, float] = (0.8, 2.5)
    storms: tuple[float, float, float] = (0.0, 0.0, 0.0)  # seconds from storm to storm, of one, and its refused share
    burst: float = 1.0  # seconds of the rate that may be sent at once
    warm_up: float = 10.0
    seconds: float = 60.0


STORMS = (30.0, 5.0, 0.3)
SCENES = (
    LiveScene("500 a minute, told in headers", 500, "headers", 0.9),
    LiveScene("500 a minute, told how long to wait", 500, "wait", 0.9),
    LiveScene("500 a minute, not told", 500, "nothing", 0.9),
    LiveScene("500 a minute, one by one, not told", 500, "nothing", 0.85, burst=0.0),
    LiveScene("500 a minute, told in headers, storms", 500, "headers", 0.85, storms=STORMS),
    LiveScene("500 a minute, not told, storms", 500, "nothing", 0.85, storms=STORMS),
    LiveScene("200 a second, not told, seconds 15 to 25", 12_000, "nothing", 0.7, warm_up=15.0, seconds=10.0),
)


@contextmanager
def provider(scene: LiveScene, limit: int) -> Iterator[str]:
    """Start the provider in a process of its own, and yield its address."""
    options = [
        str(limit),
        *map(str, scene.latency),
        "--tells",
        scene.tells,
        "--storms",
        *map(str, scene.storms),
        "--burst",
        str(scene.burst),
    ]
    command = [sys.executable, "-m", "tests.benchmarks.limited", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def played(scene: LiveScene, limit: int) -> tuple[list[float], list[float], float]:
    """Return when the provider accepted requests, when it refused them, and the CPU seconds of the map's process.

    The times are in seconds after the first request.
    """
    with provider(scene, limit) as address, TemporaryDirectory() as folder:
        env = os.environ | {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "bench"}
        command = [sys.executable, "-m", "tests.benchmarks.pace_http", "--child", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
        while not (log := read_log(address))["accepted"]:
            time.sleep(0.05)
        began = min(log["accepted"] + log["refused"])
        time.sleep(max(0.0, scene.warm_up + scene.seconds - (log["now"] - began)))
        log = read_log(address)
        process.kill()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    end = began + scene.warm_up + scene.seconds
    accepted, refused = ([at - began for at in log[kind] if at < end] for kind in ("accepted", "refused"))
    return accepted, refused, used.ru_utime + used.ru_stime


def read_log(address: str) -> dict[str, Any]:
    """Return when the provider has accepted and refused requests."""
    with urllib.request.urlopen(f"{address}/log") as answer:  # noqa: S310  (of this machine)
        return json.load(answer)


def mapped(folder: str, rows: int) -> None:
    """Map rows, as the child does: until the process is killed or, if `rows` is given, so many rows after a few.

    Then print the CPU seconds of these rows, without those of the start.
    """
    register_model(MODEL, input_price=INPUT_PRICE, output_price=OUTPUT_PRICE, window=128_000)
    session = Session(Agent(MODEL, settings=ModelSettings(max_output_tokens=60)))
    reviews = ({"number": number, "review": REVIEW * (1 + number % 5)} for number in range(10**6))
    session.map(islice(reviews, 50 if rows else None), PROMPT, to=Path(folder, "first.jsonl"))
    began = time.process_time()
    session.map(islice(reviews, rows), PROMPT, to=Path(folder, "rows.jsonl"))
    print(time.process_time() - began, flush=True)


def possible(scene: LiveScene, rows: int = 500) -> float:
    """Return how many rows a map can do in 60 seconds of CPU, at most the allowed requests a minute."""
    with provider(replace(scene, latency=(0.1, 0.3)), UNLIMITED) as address, TemporaryDirectory() as folder:
        env = os.environ | {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "bench"}
        command = [sys.executable, "-m", "tests.benchmarks.pace_http", "--child", folder, "--rows", str(rows)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env, check=True)
    return min(scene.limit, 60 * rows / float(done.stdout.splitlines()[-1]))


def figures(scene: LiveScene, allowed: float) -> tuple[float, float, float]:
    """Play a scene. Return the share of the allowed rate, the refusals a row, and the CPU milliseconds of a row."""
    accepted, refused, cpu = played(scene, scene.limit)
    count = sum(at >= scene.warm_up for at in accepted)
    return count / (allowed * scene.seconds / 60), len(refused) / len(accepted), 1000 * cpu / len(accepted)


def main() -> None:
    """Print the table, or be the process that maps."""
    reader = argparse.ArgumentParser(prog="python -m tests.benchmarks.pace_http")
    reader.add_argument("scenes", nargs="*", type=int, help="the numbers of scenes, from 0")
    reader.add_argument("--runs", type=int, default=5)
    reader.add_argument("--child", help=argparse.SUPPRESS)
    reader.add_argument("--rows", type=int, default=0, help=argparse.SUPPRESS)
    options = reader.parse_args()
    if options.child:
        mapped(options.child, options.rows)
        return
    for number in options.scenes or range(len(SCENES)):
        scene = SCENES[number]
        allowed = possible(scene) if scene.limit > 6000 else scene.limit
        some = [figures(scene, allowed) for _ in range(options.runs)]
        share, refusals, cpu = (statistics.median(column) for column in zip(*some, strict=True))
        least, most = min(one[0] for one in some), max(one[0] for one in some)
        words = f"{share:6.1%} of {allowed / 60:.1f} a second (goal {scene.goal:.0%}; {least:.0%} to {most:.0%})"
        print(f"{scene.name:46} {words}, {refusals:.2f} refusals a row (goal 0.3), {cpu:.1f} ms a row", flush=True)


if __name__ == "__main__":
    main()
