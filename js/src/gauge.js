// A gauge of how full the model's context window is, with a button to free space in it.
/** @import { State } from "./messages.js" */
/** @import { Desk } from "./types.js" */
import { button, h, menu, put, say } from "./dom.js"

/** The share of the window at which the gauge warns; older turns are summarised at about this share. */
const FULL = 0.8

export class Gauge {
  #words = h("span", { class: "am-gauge-words", "aria-hidden": "true" })
  #ring = h("span", { class: "am-ring", "aria-hidden": "true" })
  #summary = h("summary", {}, this.#ring, this.#words)
  #about = h("p", { class: "am-about" })
  #compact

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
    this.#compact = button("Compact now", () => desk.act({ type: "compact" }), "small", { title: "Have the model summarise older turns; they stay here" })
    this.element = h("div", { class: "am-menu am-gauge", hidden: true }, menu(this.#summary, h("div", { class: "am-items" }, this.#about, this.#compact)))
  }

  /** @param {State} state */
  update({ context = 0, window: most = 0, running = null }) {
    this.element.hidden = !context
    const share = most ? context / most : 0
    const percent = `${Math.round(100 * share)} %`
    const told = most ? `context ${percent} of ${short(most)} tokens` : `context ${short(context)} tokens, window unknown`
    this.#summary.setAttribute("aria-label", told)
    this.#summary.title = told
    say(this.#words, most ? percent : `context ${short(context)}`)
    this.#ring.hidden = !most
    this.#ring.style.setProperty("--am-share", String(Math.min(share, 1)))
    this.element.classList.toggle("am-full", share >= FULL)
    const window = most ? ` of the ${most.toLocaleString("en")} that the model takes` : ""
    put(this.#about, `The next message is sent with about ${context.toLocaleString("en")} tokens${window}.`)
    this.#compact.hidden = !this.desk.can("compact")
    this.#compact.disabled = running !== null
  }
}

/** Returns a number of tokens as a short text. @param {number} tokens */
const short = (tokens) => (tokens < 1_000 ? String(tokens) : tokens < 1_000_000 ? `${Math.round(tokens / 1_000)}k` : `${Math.round(tokens / 100_000) / 10}M`)
