"""What an answer costs from the model to the eye, in a real JupyterLab: `python -m tests.benchmarks.browser`.

Figures depend on the machine and on what else it does, and are not asserted. The goals are in
`docs/reference/benchmarks.md`.
"""

import json
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from playwright.sync_api import Browser, Page

from tests.benchmarks.paced import tokens
from tests.browser.lab import Lab, Notebook, launched

RATE = 200
"""Tokens a second of a fast model."""

TURNS = 200
CARDS = 2
"""Cards of a turn."""

PATIENCE = 180.0
"""Seconds that a turn may take."""

SETUP = """
%load_ext agentmagic
import json, os, time
from agentmagic import Agent, Session, tool
from agentmagic.providers.scripted import ScriptedModel
from tests.benchmarks.paced import Paced, waking
from agentmagic.runtime.engine import engine

@tool
async def run_query(sql: str) -> str:
    "Run a query."
    return '[{"n": 1}]'
"""
SHORT = "agent = Session(Agent(ScriptedModel(['Yes, **yes**.'])))\nprint(os.getpid())"
PACED = "model = Paced({rate})\nagent = Session(Agent(model))"
TURN = "%%agent\nhello"
UNSEEN = 'os.environ["AGENTMAGIC_VIEW"] = "off"'
"""From here on, turns that code begins are not shown in their cell: the page would be busy with them."""

LONG = f"""
{UNSEEN}
calls = {{"calls": [{{"name": "run_query", "arguments": {{"sql": "SELECT 1"}}}}] * {CARDS}}}
answer = "Answer, with `code` and **stress**, and a\\n\\n- list\\n- of two"
agent = Session(Agent(ScriptedModel([calls, answer] * {TURNS}), tools=[run_query]))
for number in range({TURNS}):
    agent.ask(f"Question {{number}}")
"""

WATCH = """
window.bench = { tasks: [], painted: 0 }
new PerformanceObserver(list => bench.tasks.push(...list.getEntries().map(entry => entry.duration)))
  .observe({ type: 'longtask' })
bench.watch = index => {
  bench.tasks.length = bench.painted = 0
  const found = harness.cell(index).outputArea.node.querySelector('agentmagic-view')?.shadowRoot
  if (!found) return void requestAnimationFrame(() => bench.watch(index))
  const within = ({ target }) => (target.closest ? target : target.parentElement)?.closest('.am-text')
  new MutationObserver(list => {
    if (list.some(within)) requestAnimationFrame(() => { bench.painted = Date.now() })
  }).observe(found, { subtree: true, childList: true, characterData: true })
}
bench.log = index =>
  harness.cell(index).outputArea.node.querySelector('agentmagic-view')?.shadowRoot?.querySelector('.am-log')
bench.says = (index, words) => bench.log(index)?.textContent.includes(words)
bench.cards = index => bench.log(index)?.querySelectorAll('.am-card').length
bench.scroll = async index => {
  const shadow = harness.cell(index).outputArea.node.querySelector('agentmagic-view').shadowRoot
  const scroller = shadow.querySelector('.am-scroller')
  const times = []
  for (let top = scroller.scrollHeight; top > 0; top -= 250) {
    scroller.scrollTop = top
    times.push(await new Promise(requestAnimationFrame))
  }
  return times
}
"""
"""What the page is measured with: long tasks, the last paint of an answer, the frames of scrolling."""

LOADS = 16
"""Pages of JupyterLab that are loaded with the extension, and as many without it."""

START = """
window.spent = { modules: 0, activation: 0 }
{
  const timed = (part, work) => {
    const began = performance.now()
    const made = work()
    spent[part] += performance.now() - began
    return made
  }
  const follow = container => ({
    init: scope => timed('modules', () => container.init(scope)),
    get: async name => {
      const make = await container.get(name)
      return () => {
        const module = timed('modules', make)
        for (const plugin of [module.default ?? []].flat()) {
          const { activate } = plugin
          plugin.activate = (...given) => timed('activation', () => activate(...given))
        }
        return module
      }
    },
  })
  const found = new Proxy({}, {
    set: (all, name, container) => Reflect.set(all, name, name === 'agentmagic' ? follow(container) : container),
  })
  Object.defineProperty(window, '_JUPYTERLAB', { get: () => found, set: () => {} })
}
"""
"""Measures what the extension's own code takes while JupyterLab starts, in milliseconds."""

CALM = "async () => { await jupyterapp.restored; await new Promise(requestIdleCallback) }"
EXTENSIONS = """
() => JSON.parse(document.getElementById('jupyter-config-data').textContent).federated_extensions.map(({name}) => name)
"""


@dataclass
class Traffic:
    """What the page's sockets received: bytes of whole frames, of our messages, and of the HTML beside them."""

    whole: int = 0
    ours: int = 0
    html: int = 0
    updates: int = 0

    def restart(self) -> None:
        """Count from nothing."""
        self.whole = self.ours = self.html = self.updates = 0

    def listen(self, page: Any) -> None:
        """Count what comes in from now on, over sockets that are opened from now on."""
        page.on("websocket", lambda socket: socket.on("framereceived", self._count))

    def _count(self, frame: bytes | str) -> None:
        self.whole += len(frame)
        header, content = opened(frame)
        kind = header.get("msg_type")
        if kind == "comm_msg":
            message = content["data"].get("content")
            self.ours += size(message)
            self.updates += bool(message and "ops" in message)
        elif kind in ("display_data", "update_display_data"):
            self.html += size(content["data"])


def opened(frame: bytes | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and content of a frame of the protocol v1.kernel.websocket.jupyter.org."""
    if isinstance(frame, str):
        message = json.loads(frame)
        return message.get("header", {}), message.get("content", {})
    (count,) = struct.unpack_from("<Q", frame)
    offsets = struct.unpack_from(f"<{count}Q", frame, 8)
    parts = [frame[start:stop] for start, stop in pairwise(offsets)]
    return json.loads(parts[1]), json.loads(parts[4])


def size(value: object) -> int:
    """Return the bytes of a value as it is sent."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def row(what: str, figure: float, unit: str, goal: str) -> None:
    """Print one line of the table."""
    print(f"{what:58} {figure:9.2f} {unit:5} {goal}", flush=True)


def answer(lab: Lab, name: str, rate: float | None) -> None:
    """Measure an answer of ten thousand tokens at a rate, in a kernel that has shown an answer before."""
    traffic = Traffic()
    traffic.listen(lab.page)
    paced = PACED.format(rate=rate)
    unseen, floor = f"{UNSEEN}\nagent.ask('hello');", f"engine().call(waking({rate}))"
    cells = [SETUP, SHORT, TURN, paced, TURN, "print(json.dumps(model.ended))", paced, unseen, floor]
    notebook = lab.open(lab.write(f"{rate}.ipynb", cells))
    notebook.run(0)
    kernel = psutil.Process(int(notebook.printed(1)))
    notebook.run(2)
    notebook.output(2).locator("agentmagic-view strong").wait_for()
    notebook.run(3)
    traffic.restart()
    lab.page.evaluate("() => bench.watch(4)")
    took, seconds = measured(notebook, kernel, 4)
    lab.page.wait_for_function("() => Date.now() - bench.painted > 1000")
    painted, tasks = lab.page.evaluate("() => [bench.painted / 1000, bench.tasks]")
    ended = json.loads(notebook.printed(5))
    notebook.run(6)
    alone, _ = measured(notebook, kernel, 7)
    least, _ = measured(notebook, kernel, 8)
    notebook.close()
    text = len("".join(tokens()).encode())
    share = 100 / seconds
    row(f"{name}: our messages, times the text", traffic.ours / text, "", "goal 1.5")
    row(f"{name}: the HTML for saving, times the text", traffic.html / text, "", "")
    row(f"{name}: whole frames", traffic.whole / 1e6, "MB", "goal 1")
    row(f"{name}: updates a second", traffic.updates / seconds, "", "goal 10")
    if rate:
        row(f"{name}: CPU of the kernel, share of a core", took * share, "%", "goal 5")
        row("  with nobody looking", alone * share, "%", "")
        row("  of a loop that wakes up for each token and does nothing", least * share, "%", "")
    row(f"{name}: longest task of the page", max(tasks, default=0), "ms", "goal 100")
    row(f"{name}: from the last token to the last paint", painted - ended, "s", "goal 0.3")


def measured(notebook: Notebook, kernel: psutil.Process, index: int) -> tuple[float, float]:
    """Run a cell; return the CPU seconds of its kernel, and how long it took."""
    began, clock = spent(kernel), time.perf_counter()
    notebook.run(index)
    return spent(kernel) - began, time.perf_counter() - clock


def spent(process: psutil.Process) -> float:
    """Return the CPU seconds of a process so far."""
    times = process.cpu_times()
    return times.user + times.system


def panel(lab: Lab) -> None:
    """Measure the panel of a long session: how soon it is drawn, and how it scrolls."""
    notebook = lab.open(lab.write("panel.ipynb", [SETUP, LONG, "agent.chat()", "agent.chat()"]))
    for index in (0, 1):
        notebook.run(index)
    for index, name in ((2, "with its library"), (3, "the second time")):
        lab.page.evaluate("() => { bench.tasks.length = 0 }")
        end, whole = shown(notebook, index)
        row(f"panel of {TURNS} turns: its end drawn after, {name}", end, "s", "goal 1")
        row("  all of it", whole, "s", "")
        row("  longest task of the page", max(lab.page.evaluate("() => bench.tasks"), default=0), "ms", "goal 100")
    for name, frame in scrolled(lab.page.evaluate("() => bench.scroll(3)")):
        row(f"panel of {TURNS} turns: {name} frame while scrolled", frame, "ms", "")
    notebook.close()


def shown(notebook: Notebook, index: int) -> Iterator[float]:
    """Show the panel; yield the seconds until its end, which is what is seen, and until all of it is drawn."""
    began = time.perf_counter()
    notebook.start(index)
    for drawn in (
        f"index => bench.says(index, 'Question {TURNS - 1}')",
        f"index => bench.cards(index) === {TURNS * CARDS}",
    ):
        notebook.page.wait_for_function(drawn, arg=index, polling="raf")
        yield time.perf_counter() - began


def scrolled(times: list[float]) -> Iterator[tuple[str, float]]:
    """Yield the usual and the longest time between two frames, in milliseconds."""
    frames = sorted(later - sooner for sooner, later in pairwise(times))
    yield "the usual", frames[len(frames) // 2]
    yield "the longest", frames[-1]


def start(browser: Browser) -> None:
    """Measure what the extension adds to the start of JupyterLab: its own code, and the whole page's CPU beside it."""
    with (
        TemporaryDirectory() as one,
        TemporaryDirectory() as two,
        Lab(Path(one), browser=browser) as ours,
        Lab(Path(two), browser=browser, extension=False) as bare,
    ):
        ours.page.add_init_script(START)
        spent: dict[Lab, list[tuple[float, ...]]] = {ours: [], bare: []}
        for number in range(LOADS):
            for lab in (ours, bare) if number % 2 else (bare, ours):
                spent[lab].append(loaded(lab.page))
        print(f"with {ours.page.evaluate(EXTENSIONS)}, without {bare.page.evaluate(EXTENSIONS)}")
    (script, tasks, modules, activation), (script_bare, tasks_bare) = (
        [median(column) for column in zip(*rows[1:], strict=True)] for rows in spent.values()
    )
    row("start of JupyterLab: the extension's modules", modules, "ms", "")
    row("  its activation", activation, "ms", "")
    row("  both", modules + activation, "ms", "goal 50")
    row("  scripts of the whole page, more than without it", script - script_bare, "ms", "")
    row("  tasks of the whole page, more than without it", tasks - tasks_bare, "ms", "")
    row("  tasks of the whole page without it", tasks_bare, "ms", "")


def loaded(page: Page) -> tuple[float, ...]:
    """Load a page anew; return the milliseconds of CPU of its scripts and its tasks, and those of the extension."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.reload()
    page.wait_for_function("() => window.jupyterapp")
    page.evaluate(CALM)
    figures = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
    devtools.detach()
    own: list[float] = page.evaluate("() => window.spent ? [spent.modules, spent.activation] : []")
    return (figures["ScriptDuration"] * 1000, figures["TaskDuration"] * 1000, *own)


def main() -> None:
    """Print the table, and how busy the machine was before and after."""
    print(f"load of the machine {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    with TemporaryDirectory() as folder, Lab(Path(folder)) as lab:
        lab.page.set_default_timeout(PATIENCE * 1000)
        lab.page.add_init_script(WATCH)
        lab.reload()
        answer(lab, f"{RATE} tokens/s", RATE)
        answer(lab, "at once", None)
        panel(lab)
    with launched() as browser:
        start(browser)
    print(f"load of the machine {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
