"""The pace of a map over HTTP, in real time: `python -m tests.benchmarks.pace_http [SCENE ...]`.

The provider is a process of its own, and its log gives the figures: the share of the allowed rate that it accepted
after a warm-up, and the refusals a row. If the machine cannot do the allowed rate, the share is that of what it can do:
the rows a second of the same map at a provider without a limit, measured in the same run. Each scene is played
`--runs` times, and the median stands in the table. Nothing else should run beside it.
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
from dataclasses import dataclass
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
    LiveScene("500 a minute, told in headers, storms", 500, "headers", 0.85, storms=STORMS),
    LiveScene("500 a minute, not told, storms", 500, "nothing", 0.85, storms=STORMS),
    LiveScene("200 a second, not told, 20 s from the start", 12_000, "nothing", 0.7, warm_up=0.0, seconds=20.0),
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
    since = [
        [at - began for at in log[kind] if at - began < scene.warm_up + scene.seconds]
        for kind in ("accepted", "refused")
    ]
    return since[0], since[1], used.ru_utime + used.ru_stime


def read_log(address: str) -> dict[str, Any]:
    """Return when the provider has accepted and refused requests."""
    with urllib.request.urlopen(f"{address}/log") as answer:  # noqa: S310  (of this machine)
        return json.load(answer)


def mapped(folder: str) -> None:
    """Map rows until the process is killed, as the child does."""
    register_model(MODEL, input_price=INPUT_PRICE, output_price=OUTPUT_PRICE, window=128_000)
    session = Session(Agent(MODEL, settings=ModelSettings(max_output_tokens=60)))
    reviews = ({"number": number, "review": REVIEW * (1 + number % 5)} for number in range(10**6))
    session.map(reviews, PROMPT, to=Path(folder, "rows.jsonl"))


def possible(scene: LiveScene) -> float:
    """Return how many requests a minute the same map sends to a provider without a limit, at most the allowed ones."""
    accepted, _, _ = played(scene, UNLIMITED)
    last = [at for at in accepted if at > scene.seconds / 2]
    return min(scene.limit, len(last) / (scene.seconds / 2) * 60)


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
    reader.add_argument("--seconds", type=float, default=None)
    reader.add_argument("--child", help=argparse.SUPPRESS)
    options = reader.parse_args()
    if options.child:
        mapped(options.child)
        return
    for number in options.scenes or range(len(SCENES)):
        scene = SCENES[number]
        allowed = possible(scene) if scene.limit > 6000 else scene.limit
        some = [figures(scene, allowed) for _ in range(options.runs)]
        share, refusals, cpu = (statistics.median(column) for column in zip(*some, strict=True))
        print(
            f"{scene.name:48} {share:6.1%} (goal {scene.goal:.0%})  {refusals:.2f} refusals a row (goal 0.3)  "
            f"{cpu:.1f} ms a row" + f", {allowed / 60:.0f} a second possible" * (allowed < scene.limit),
            f"  {min(one[0] for one in some):.0%} to {max(one[0] for one in some):.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
