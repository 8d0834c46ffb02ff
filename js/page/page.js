// Mounts the built view with models that need no kernel; the tests play messages to them.
import { View } from "./view.js"

class StandIn {
  sent = []
  #listeners = new Set()

  constructor(home) {
    this.home = home
  }

  get(name) {
    return this[name]
  }

  send(content) {
    this.sent.push(content)
    this.answer?.(content)
  }

  on(_event, listener) {
    this.#listeners.add(listener)
  }

  off(_event, listener) {
    this.#listeners.delete(listener)
  }

  receive(message) {
    for (const listener of this.#listeners) listener(message)
  }

  /** Hands over messages, `pace` milliseconds apart, and returns when the last is drawn. */
  async play(messages, pace = 0) {
    const begin = performance.now()
    for (const [place, message] of messages.entries()) {
      const wait = begin + place * pace - performance.now()
      if (pace && wait > 0) await new Promise((resolve) => setTimeout(resolve, wait))
      this.receive(message)
    }
    const last = performance.now()
    await drawn()
    return performance.now() - last
  }
}

/** Resolves when two frames in a row changed nothing in the page. */
async function drawn() {
  let quiet = 0
  const watch = new MutationObserver(() => (quiet = 0))
  watch.observe(document.body, { subtree: true, childList: true, characterData: true })
  while (quiet++ < 2) await new Promise((resolve) => requestAnimationFrame(resolve))
  watch.disconnect()
}

/** Shows a view in a part of the page, from a snapshot as a kernel sends it; returns the milliseconds it took. */
async function show(home, snapshot) {
  const begin = performance.now()
  const model = new StandIn(home)
  model.answer = ({ type, view: name }) => {
    if (type !== "hello" || !snapshot) return
    queueMicrotask(() => model.receive({ ...snapshot, view: name }))
  }
  const place = document.getElementById(home)
  const shown = new View(model)
  place.replaceChildren(shown.element)
  model.close = () => shown.close()
  models[home] = model
  await drawn()
  return performance.now() - begin
}

/** Says how much longer than it needs a task of some milliseconds takes on this machine, by other work on it. */
async function slowness() {
  const times = []
  for (let run = 0; run < 60; run++) {
    await new Promise((resolve) => setTimeout(resolve))
    const begin = performance.now()
    for (let turn = 0, sum = 0; turn < 2_000_000; turn++) sum += turn % 7
    times.push(performance.now() - begin)
  }
  times.sort((one, other) => one - other)
  return { usually: times[30] / times[0], at_worst: times[57] / times[0] }
}

const models = {}
const longTasks = []
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({
  type: "longtask",
})
if (location.hash === "#dark") document.documentElement.classList.add("dark")
window.stage = { show, models, drawn, slowness, longTasks }
