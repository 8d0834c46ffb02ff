// The progress of a map, which runs one prompt over many rows.
/** @import { ProgressFields } from "./messages.js" */
/** @import { Desk, Drawn } from "./types.js" */
import { figures } from "./blocks.js"
import { button, h, hide, icon, ICONS, put, say } from "./dom.js"

/** The progress bar of a map, with its figures, its errors, and a button: Stop, or to ask the failed rows again. @implements {Drawn<ProgressFields>} */
export class Progress {
  #icon = h("span", { class: "am-state" })
  #heading = h("b")
  #figures = h("span", { class: "am-figures" })
  #stop
  #again
  #answered = h("div", { class: "am-answered" })
  #failed = h("div", { class: "am-failed" })
  #bar = h("div", { class: "am-shares", role: "progressbar", "aria-label": "Rows with an outcome" }, this.#answered, this.#failed)
  #errors = h("div", { class: "am-errors" })
  #notices = h("div", { class: "am-hint" })
  element
  /** @type {ProgressFields | undefined} */
  #block
  #drawn = ""

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
    this.#stop = button("Stop", () => desk.act({ type: "stop-map" }), "small")
    this.#again = button("", () => desk.act({ type: "ask-rows" }), "small")
    const head = h("div", { class: "am-map-head" }, this.#icon, this.#heading, this.#figures, h("span", { class: "am-space" }), this.#stop, this.#again)
    this.element = h("div", { class: "am-card am-map", role: "group", "aria-label": "Map", tabindex: -1 }, head, this.#bar, this.#errors, this.#notices)
  }

  /** @param {ProgressFields} block */
  update(block) {
    const before = this.#block?.state
    this.#block = block
    const { heading, shares, errors } = block
    say(this.#heading, heading)
    put(this.#figures, ...figures(block.figures))
    this.#bar.hidden = shares !== null && shares[0] === 1
    this.#bar.classList.toggle("am-unknown", shares === null)
    const [answered, failed] = shares ?? [0, 0]
    this.#answered.style.width = percent(answered)
    this.#failed.style.width = percent(failed)
    this.#bar.setAttribute("aria-valuenow", String(Math.round(100 * (answered + failed))))
    put(this.#errors, ...errors.map(line))
    say(this.#again, block.again)
    if (before === "running" && block.state !== before) this.desk.announce(heading)
    this.refresh()
  }

  /** Shows whether the map is still running; it is not if the kernel is gone. Shows how to ask its failed rows again. */
  refresh() {
    const { again = "", advice = "", notices = [] } = this.#block ?? {}
    const asks = again !== "" && this.desk.can("ask-rows")
    hide(this.#again, !asks, this.element)
    put(this.#notices, ...[...notices, ...(advice && !asks ? [advice] : [])].map(line))
    const runs = this.#block?.state === "running" && this.desk.can("stop-map")
    const state = this.#block?.state === "running" && !runs ? "interrupted" : (this.#block?.state ?? "running")
    hide(this.#stop, !runs, this.element)
    this.element.dataset.state = state
    if (state === this.#drawn) return
    this.#drawn = state
    put(this.#icon, icon(ICONS[state], state))
  }
}

/** @param {string} text */
const line = (text) => h("p", {}, text)

/** @param {number} share */
const percent = (share) => `${(100 * share).toFixed(2)}%`
