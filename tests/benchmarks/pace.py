"""The pace of a provider, in virtual time: how much of an allowed rate the gate uses, and how often it is refused.

`python -m tests.benchmarks.pace` prints the table alone. A cell has the least share and, in brackets, the most refusals
a row of five seeds, and for a server that never refuses how many times as long its answers took on average.
"""

import asyncio
import random
import selectors
import statistics
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, cycle, product, repeat
from typing import Any, TypeVar

from agentmagic.errors import ProviderError, RateLimited, Unavailable
from agentmagic.messages import Usage
from agentmagic.providers.gate import ProviderGate
from agentmagic.providers.rate_limits import on_request, on_response

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


GRANTS = ("one", "second", "minute", "window")
CALM = (0.0, 0.0, 0.0, 429)
STORM = (180.0, 60.0, 0.3, 429)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A provider and how it behaves.

    `limit` is in requests a minute, granted one by "one", by the "second" or the "minute" (a bucket that holds so much
    of it), or by the "window" (a fixed minute). It `tells` its limit in "headers", only how long to "wait", or
    "nothing". From `storm` on, for its seconds, a share of requests is refused whatever the rate. `tokens` is a limit a
    minute. `capacity` is the number of requests that it serves at full speed; it refuses none then. `transit` are the
    seconds that a request or a refusal is on its way, at least and at most. The first requests take `loading` seconds
    more until they are sent, because the client is loaded.
    """

    limit: float = 500
    grants: str = "second"
    tells: str = "nothing"
    latency: tuple[float, float] = (0.8, 2.5)
    storm: tuple[float, float, float, int] = CALM
    tokens: float = 0.0
    capacity: int = 0
    minutes: float = 10.0
    transit: tuple[float, float] = (0.02, 0.08)
    loading: float = 0.0


class Server:
    """A simulated provider."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = random.Random(seed)  # noqa: S311  (no secret)
        self.accepted = self.refused = self.under_way = self.most = 0
        self.slower = 0.0  # the sum of how many times as long answers took
        burst = {"one": 1.0, "second": max(scene.limit / 60, 2.0), "minute": scene.limit, "window": 0.0}[scene.grants]
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
        }
        if self.scene.tokens:
            told |= {
                "x-ratelimit-limit-tokens": f"{self.scene.tokens:.0f}",
                "x-ratelimit-remaining-tokens": f"{max(self.token_level, 0):.0f}",
            }
        return told

    async def ask(self, usage: Usage) -> None:
        """Answer a request."""
        if self.accepted + self.refused == 0:
            await asyncio.sleep(self.scene.loading)
        if (sent := on_request.get()) is not None:
            sent()
        await asyncio.sleep(self.random.uniform(*self.scene.transit))
        scene, now = self.scene, asyncio.get_running_loop().time()
        start, seconds, share, status = scene.storm
        stormy = start <= now < start + seconds and self.random.random() < share
        wait = 1.0 if stormy else None if scene.capacity else self.take(usage.input_tokens + usage.output_tokens)
        if wait is not None:
            self.refused += 1
            await asyncio.sleep(self.random.uniform(*self.scene.transit))
            if (listener := on_response.get()) is not None:
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
            slower = max(1.0, self.under_way / scene.capacity)
            took, self.slower = took * slower, self.slower + slower
        try:
            await asyncio.sleep(took * 0.3)
            if (listener := on_response.get()) is not None:
                listener(200, self.headers(0.0))
            await asyncio.sleep(took * 0.7)
        finally:
            self.under_way -= 1


Client = Callable[[Server], Awaitable[None]]


def rows() -> Iterator[Usage]:
    """Yield what the rows of a map use, without an end."""
    chance = random.Random(7)  # noqa: S311  (no secret)
    while True:
        yield Usage(input_tokens=chance.randint(200, 1800), output_tokens=chance.randint(50, 450))


async def gated(server: Server) -> None:
    """Send rows through the gate, as a map does."""
    gate = ProviderGate()

    async def row(usage: Usage) -> None:
        while True:
            with suppress(ProviderError):
                async with gate.ticket(usage.input_tokens + 250, row=True) as ticket:
                    await server.ask(usage)
                    ticket.charge_usage(usage)
                return

    async with asyncio.TaskGroup() as tasks:
        for usage in rows():
            await gate.room()
            tasks.create_task(row(usage))


async def workers(server: Server, limit: Callable[[], float], told: Callable[[bool], None]) -> None:
    """Keep as many rows under way as a limit says, each sent again with backoff; tell of each success or refusal."""
    under_way, changed = 0, asyncio.Event()

    async def row(usage: Usage) -> None:
        nonlocal under_way
        for wait in chain((0.5, 1, 2, 4, 8, 16), repeat(30)):
            try:
                await server.ask(usage)
            except ProviderError as error:
                told(False)
                changed.set()
                await asyncio.sleep(error.retry_after or wait + server.random.random())
                continue
            told(True)
            break
        under_way -= 1
        changed.set()

    async with asyncio.TaskGroup() as tasks:
        for usage in rows():
            while under_way >= int(limit()):
                changed.clear()
                await changed.wait()
            under_way += 1
            tasks.create_task(row(usage))


async def fixed(server: Server) -> None:
    """Keep ten rows under way."""
    await workers(server, lambda: 10, lambda _: None)


async def aimd(server: Server) -> None:
    """Keep rows under way: one more each round, half as many after a refusal, at most once a second."""
    limit, cut = 10.0, 0.0

    def told(good: bool) -> None:
        nonlocal limit, cut
        now = asyncio.get_running_loop().time()
        if good:
            limit += 1 / limit
        elif now > cut + 1:
            limit, cut = max(limit / 2, 1.0), now

    await workers(server, lambda: limit, told)


def play(scene: Scene, seed: int, client: Client = gated) -> Server:
    """Return the server after a scene."""

    async def main() -> Server:
        server = Server(scene, seed)
        with suppress(TimeoutError):
            async with asyncio.timeout(scene.minutes * 60):
                await client(server)
        return server

    return in_virtual_time(main())


def share(server: Server) -> float:
    """Return how much of the allowed rate was used, or of the highest that a server without a limit can have."""
    scene = server.scene
    allowed = scene.limit * scene.minutes
    if scene.tokens:
        allowed = scene.tokens * scene.minutes / 1250  # the mean of the rows
    if scene.capacity:
        allowed = scene.capacity / statistics.mean(scene.latency) * scene.minutes * 60
    return server.accepted / allowed


LATENCIES = ((0.8, 2.5), (2.0, 12.0))
CLIENTS: dict[str, Client] = {"gate": gated, "10 at once": fixed, "AIMD": aimd}


def scenes() -> Iterator[tuple[str, list[Scene]]]:
    """Yield the rows of the table: a name, and the scenes whose worst figures stand in it."""
    tells = ("nothing", "wait", "headers")
    for limit, latency, stormy in product((60, 500, 5000), LATENCIES, (False, True)):
        storm = STORM if stormy else CALM
        grants = GRANTS if limit < 5000 else ("second", "window")
        kinds = [
            Scene(limit=limit, latency=latency, storm=storm, grants=grant, tells=tell)
            for grant, tell in product(grants, tells)
        ]
        yield f"{limit:,} a minute, {latency[0]} to {latency[1]:g} s{', a storm' * stormy}", kinds
    for latency in LATENCIES:
        name = f"{latency[0]} to {latency[1]:g} s"
        busy = (180.0, 60.0, 0.3, 503)
        yield f"500 a minute, {name}, a storm of 503", [Scene(latency=latency, storm=busy)]
        told = [Scene(limit=5000, tokens=300_000, latency=latency, tells=tell, grants="minute") for tell in tells]
        yield f"300,000 tokens a minute, {name}", told
        yield f"never refuses, 32 at full speed, {name}", [Scene(capacity=32, latency=latency)]


def main(seeds: int = 5, minutes: float = 10.0) -> None:
    """Print the table: for each row the worst of its scenes and seeds; one scene for a seed if it is a long one."""
    print(f"\n{'share of the rate (refusals a row)':44} {''.join(f'{name:>20}' for name in CLIENTS)}")
    for name, kinds in scenes():
        cells: list[str] = []
        for who, client in CLIENTS.items():
            few = zip(cycle(kinds), range(seeds), strict=False)
            some = few if who != "gate" or kinds[0].limit > 500 else product(kinds, range(seeds))
            played = [play(replace(scene, minutes=minutes), seed, client) for scene, seed in some]
            worst = max(one.refused / max(one.accepted, 1) for one in played)
            slower = max(one.slower / one.accepted for one in played)
            cells.append(f"{min(map(share, played)):.1%} ({worst:.2f})" + f" {slower:.1f}x" * (slower > 0))
        print(f"{name:44} {''.join(f'{cell:>20}' for cell in cells)}", flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
