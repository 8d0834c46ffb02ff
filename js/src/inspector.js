// The inspector tab: the requests and responses of a turn. They are requested from the kernel only while the tab is open.
/** @import { InspectionPage, RequestPage } from "./messages.js" */
/** @import { Desk } from "./types.js" */
import { button, counted, folding, h, put, say, scrollable } from "./dom.js"

export class Inspector {
  #turn = 0
  #turns = 0
  #words = ""
  #open = false
  #asked = false
  /** @type {InspectionPage | undefined} */
  #shown
  #heading = h("p", { class: "am-inspected" })
  #earlier = button("Earlier turn", () => this.#ask(this.#turn - 1), "small")
  #later = button("Later turn", () => this.#ask(this.#turn + 1), "small")
  #search = h("input", { class: "am-box", type: "search", "aria-label": "Search requests and responses", placeholder: "search", spellcheck: "false" })
  #found = h("p", { class: "am-hint", role: "status", hidden: true })
  #figures = h("div", {})
  #requests = h("div", {})

  /** @param {HTMLElement} element @param {Desk} desk */
  constructor(element, desk) {
    this.desk = desk
    this.#search.addEventListener("input", () => this.#filter())
    const row = h("div", { class: "am-row" }, this.#earlier, this.#later, this.#search)
    put(element, row, this.#heading, this.#found, this.#figures, this.#requests)
  }

  /** Called when the tab is opened or closed. @param {boolean} open @param {number} [turn] the turn to show, counted from 1; else the last */
  show(open, turn = 0) {
    if (open && (turn || !this.#open)) this.#ask(turn)
    this.#open = open
  }

  /** Called when a turn has ended: shows it if the last turn was shown, unless the user is reading or searching there. */
  turnOver() {
    const reads = this.#search.value !== "" || this.#requests.querySelector("[open]") !== null
    if (this.#open) this.#ask(this.#turn === this.#turns && !reads ? 0 : this.#turn)
  }

  /** @param {number} turn counted from 1, 0 for the last */
  #ask(turn) {
    if (!this.desk.can("inspect")) return
    this.#asked = true
    this.desk.act({ type: "inspect", turn })
  }

  /** Shows the kernel's answer, unless it is for another view of the panel. @param {InspectionPage} found */
  receive(found) {
    if (!this.#asked) return
    this.#asked = false
    const same = JSON.stringify({ ...found, turns: 0 }) === JSON.stringify({ ...this.#shown, turns: 0 })
    this.#turn = found.turn
    this.#turns = found.turns
    this.#earlier.disabled = found.turn <= 1
    this.#later.disabled = found.turn >= found.turns
    if (same) return // only the number of turns changed: do not redraw, so that opened parts stay open
    this.#shown = found
    say(this.#heading, found.heading)
    put(this.#figures, ...(found.turn ? figures(found) : []), found.note && h("p", { class: "am-hint" }, found.note))
    this.#words = ""
    this.#draw(this.#search.value.trim())
  }

  #filter() {
    const words = this.#search.value.trim()
    if (words !== this.#words) this.#draw(words)
  }

  /** @param {string} words */
  #draw(words) {
    this.#words = words
    const requests = this.#shown?.requests ?? []
    const drawn = requests.map((one) => drawRequest(one, words)).filter((one) => one !== null)
    put(this.#requests, ...drawn)
    say(this.#found, words ? `${counted(drawn.length, "request")} of ${requests.length} with ${words}` : "")
  }
}

/** @param {InspectionPage} found */
function figures({ meter, share, bars }) {
  const track = h("div", { class: "am-track" }, h("span", { style: `width: ${100 * share}%` }))
  const rows = bars.map(({ name, depth, start, share, time, failed }) => {
    const bar = h("span", { style: `left: ${100 * start}%; width: max(2px, ${100 * share}%)` })
    const label = h("span", { class: "am-mono", style: `padding-left: ${depth}em` }, failed ? `${name}, failed` : name)
    return h("li", { "data-depth": depth, "data-failed": failed }, label, h("span", { class: "am-track" }, bar), h("span", { class: "am-hint" }, time))
  })
  return [h("p", {}, h("b", {}, "Context: "), meter), track, h("p", {}, h("b", {}, "Timeline")), h("ol", { class: "am-timeline", "aria-label": "Timeline" }, ...rows)]
}

/** Draws a request; with `words` only the lines that contain them, or null if there are none. @param {RequestPage} one @param {string} words */
function drawRequest({ title, tokens, counted, sent, sent_note, received, received_note }, words) {
  const [asked, answered] = [linesWith(sent, words), linesWith(received, words)]
  if (words && !asked && !answered) return null
  const parts = Object.entries(tokens).filter(([, number]) => number > 0)
  const whole = parts.reduce((sum, [, number]) => sum + number, 0)
  const shares = parts.map(([part, number]) => h("span", { "data-part": part, style: `width: ${(100 * number) / (whole || 1)}%` }))
  const legend = parts.map(([part, number]) => h("span", { class: "am-hint", "data-part": part }, `${part} ${number.toLocaleString("en")}`))
  return folding(
    { class: "am-exchange", open: words !== "" },
    h("summary", {}, h("b", {}, title), ` about ${whole.toLocaleString("en")} tokens${counted}`),
    h("div", { class: "am-track am-parts" }, ...shares),
    h("div", { class: "am-legend" }, ...legend),
    fold("Request", `${title}, request`, sent_note, asked, words),
    fold("Response", `${title}, response`, received_note, answered, words),
  )
}

/** @param {string} name @param {string} label @param {string} note @param {string} text @param {string} words */
function fold(name, label, note, text, words) {
  const pre = scrollable(h("pre", {}, ...marked(text, words)), label)
  return folding({ open: words !== "" && text !== "" }, h("summary", {}, name), note && h("p", { class: "am-hint" }, note), pre)
}

/** @param {string} text @param {string} words */
function linesWith(text, words) {
  if (!words) return text
  const sought = words.toLowerCase()
  return text.split("\n").filter((line) => line.toLowerCase().includes(sought)).join("\n")
}

/** Splits a text at the searched words, and marks these words. @param {string} text @param {string} words */
function marked(text, words) {
  if (!words) return [text]
  const sought = words.toLowerCase()
  const found = []
  let end = 0
  for (let at = text.toLowerCase().indexOf(sought); at >= 0; at = text.toLowerCase().indexOf(sought, end)) {
    found.push(text.slice(end, at), h("mark", {}, text.slice(at, at + words.length)))
    end = at + words.length
  }
  return [...found, text.slice(end)]
}
