"""The pace of a provider, in virtual time: how much of an allowed rate the gate uses, and how often it is refused."""

import asyncio
import random
import selectors
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentmagic.errors import ProviderError, RateLimited, Unavailable
from agentmagic.messages import Usage
from agentmagic.providers.gate import ProviderGate
from agentmagic.providers.rate_limits import hear

T = TypeVar("T")


class _VirtualSelector(selectors.SelectSelector):
    """Waits for nothing: the time that it is to wait has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("Everything waits, and no timer is set.")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self._clock = _VirtualSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        """The seconds since it was made."""
        return self._clock.now


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A provider and how it behaves.

    `limit` is in requests a minute, granted by the `second` or the `minute` (a bucket that holds so much of it), or by
    the `window` (a fixed minute). It `tells` its limit in "headers", only how long to "wait", or "nothing". From
    `storm` on, for its seconds, a share of requests is refused whatever the rate. `tokens` is a limit a minute.
    `capacity` is the number of requests that it serves at full speed; it refuses none then.
    """

    limit: float = 500
    grants: str = "second"
    tells: str = "nothing"
    latency: tuple[float, float] = (0.8, 2.5)
    storm: tuple[float, float, float, int] = (0.0, 0.0, 0.0, 429)
    tokens: float = 0.0
    capacity: int = 0
    minutes: float = 10.0


class Server:
    """A simulated provider."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = random.Random(seed)
        self.accepted = self.refused = self.under_way = self.most = 0
        self.latencies: list[float] = []
        burst = {"second": max(scene.limit / 60, 2.0), "minute": scene.limit, "window": 0.0}[scene.grants]
        self.burst = self.level = burst
        self.token_level = scene.tokens
        self.at = 0.0
        self.window = (0, 0)
        self.waiting: list[asyncio.Future[None]] = []
        self.offset = self.random.uniform(0, 60)

    def take(self, tokens: float) -> float | None:
        """Take one request and its tokens from the limits. Return the seconds to wait for if they are used up."""
        now, scene = asyncio.get_running_loop().time(), self.scene
        passed, self.at = now - self.at, now
        if scene.tokens:
            self.token_level = min(scene.tokens, self.token_level + passed * scene.tokens / 60)
            if self.token_level < tokens:
                return (tokens - self.token_level) / scene.tokens * 60
        if scene.grants == "window":
            number = int((now + self.offset) // 60)
            count = self.window[1] if self.window[0] == number else 0
            if count >= scene.limit:
                return (number + 1) * 60 - now - self.offset
            self.window = number, count + 1
        else:
            self.level = min(self.burst, self.level + passed * scene.limit / 60)
            if self.level < 1:
                return (1 - self.level) / scene.limit * 60
            self.level -= 1
        self.token_level -= tokens
        return None

    def headers(self, wait: float) -> dict[str, str]:
        """Return what it says of its limits."""
        if self.scene.tells != "headers":
            return {}
        left = max(self.level, 0) if self.scene.grants != "window" else max(self.scene.limit - self.window[1], 0)
        told = {
            "x-ratelimit-limit-requests": f"{self.scene.limit:.0f}",
            "x-ratelimit-remaining-requests": f"{left:.0f}",
            "x-ratelimit-reset-requests": f"{wait:.3f}s",
        }
        if self.scene.tokens:
            told |= {
                "x-ratelimit-limit-tokens": f"{self.scene.tokens:.0f}",
                "x-ratelimit-remaining-tokens": f"{max(self.token_level, 0):.0f}",
                "x-ratelimit-reset-tokens": f"{wait:.3f}s",
            }
        return told

    async def ask(self, usage: Usage) -> None:
        """Answer a request."""
        await asyncio.sleep(self.random.uniform(0.02, 0.08))
        scene, now = self.scene, asyncio.get_running_loop().time()
        start, seconds, share, status = scene.storm
        stormy = start <= now < start + seconds and self.random.random() < share
        wait = 1.0 if stormy else None if scene.capacity else self.take(usage.input_tokens + usage.output_tokens)
        if wait is not None:
            self.refused += 1
            await asyncio.sleep(self.random.uniform(0.02, 0.08))
            if (listener := hear.get()) is not None:
                listener(status if stormy else 429, self.headers(wait))
            asked = None if scene.tells == "nothing" else wait
            if stormy and status != 429:
                raise Unavailable("busy", status=status)
            raise RateLimited("too many", status=429, retry_after=asked)
        self.accepted += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        took = self.random.uniform(*scene.latency)
        if scene.capacity:
            took *= max(1.0, self.under_way / scene.capacity)
        try:
            await asyncio.sleep(took * 0.3)
            if (listener := hear.get()) is not None:
                listener(200, self.headers(0.0))
            await asyncio.sleep(took * 0.7)
            self.latencies.append(took)
        finally:
            self.under_way -= 1


Client = Callable[[Server, float], Awaitable[None]]


async def gated(server: Server, end: float) -> None:
    """Send rows through the gate."""
    gate, loop = ProviderGate(), asyncio.get_running_loop()
    rng = random.Random(7)
    tasks: set[asyncio.Task[None]] = set()

    async def row() -> None:
        usage = Usage(input_tokens=rng.randint(200, 1800), output_tokens=rng.randint(50, 450))
        while True:
            try:
                async with gate.admitted(usage.input_tokens + 250, row=True) as ticket:
                    await server.ask(usage)
                    ticket.used(usage)
            except ProviderError:
                continue
            return

    while loop.time() < end:
        async with asyncio.timeout_at(end + 0.001):
            await gate.room()
        task = loop.create_task(row())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if TRACE and loop.time() // TRACE != gated.last:  # type: ignore
            gated.last = loop.time() // TRACE  # type: ignore
            print(f"   {loop.time():6.1f} rate {gate._rate.value:8.2f} win {gate._window.value:7.1f} grow {gate._window._growing} under {gate._under_way} shut {gate._shut} {server.accepted} {server.refused} rows {len(gate._rows)}")
    for task in tuple(tasks):
        task.cancel()


gated.last = -1  # type: ignore
TRACE = 0.0


def play(scene: Scene, seed: int, client: Client = gated) -> Server:
    """Return the server after a scene."""

    async def main() -> Server:
        server = Server(scene, seed)
        try:
            await client(server, scene.minutes * 60)
        except TimeoutError:
            pass
        return server

    return in_virtual_time(main())


if __name__ == "__main__":
    pick = sys.argv[1:]
    for limit in (60, 500, 5000):
        for grants in ("second", "minute", "window"):
            for tells in ("nothing", "wait", "headers"):
                for latency in ((0.8, 2.5), (2.0, 12.0)):
                    for storm in ((0, 0, 0, 429), (180.0, 60.0, 0.3, 429)):
                        minutes = 10
                        scene = Scene(limit=limit, grants=grants, tells=tells, latency=latency, storm=storm, minutes=minutes)
                        name = f"{limit} {grants} {tells} {latency[1]:.1f} {'storm' if storm[0] else 'calm'}"
                        if pick and not all(set(w.split('|')) & set(name.split()) for w in pick[0].split()):
                            continue
                        if len(pick) > 1:
                            TRACE = float(pick[1])
                        began = time.process_time()
                        servers = [play(scene, seed) for seed in range(1 if TRACE else int(pick[2]) if len(pick) > 2 else 2)]
                        shares = [one.accepted / limit / minutes for one in servers]
                        refs = [one.refused / max(one.accepted, 1) for one in servers]
                        flag = " " if min(shares) >= 0.9 and max(refs) <= 0.3 else "*"
                        print(f"{flag} {name:32} {min(shares):6.1%} {max(refs):6.3f} most {servers[0].most} {time.process_time()-began:.1f} s", flush=True)
