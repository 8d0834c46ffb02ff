// The card of a tool call, from the first characters of its arguments to its result.
/** @import { CardFields, CardState } from "./messages.js" */
/** @import { Desk, Drawn } from "./types.js" */
import { answeredByKeys, approval, quoted, take } from "./approval.js"
import { coloured } from "./code.js"
import { button, folding, h, heading, hide, icon, isFocused, ICONS, put, say, scrollable } from "./dom.js"
import { Extent } from "./extent.js"
import { drawn, LONG, noted } from "./forms.js"
import { sanitised } from "./sanitise.js"

/** Lines of an argument that its box shows at once. */
const MOST_LINES = 15

/** @implements {Drawn<CardFields>} */
export class Card {
  #icon = h("span", { class: "am-state" })
  #client = h("span", { class: "am-client" })
  #name = h("span", { class: "am-name" })
  #server = h("span", { class: "am-server" })
  #short = h("span", { class: "am-short" })
  #value = h("span", { class: "am-value" })
  #word = h("span", { class: "am-word" })
  #progress = h("span", { class: "am-hint am-progress" })
  #time = h("span", { class: "am-time" })
  #summary = h("summary", {}, icon(ICONS.chevron, "chevron"))
  /** @type {Record<"arguments" | "ask" | "result", HTMLElement> | undefined} made when the card is first opened */
  #sections
  /** The inner turn, if the tool is an agent. */
  inside = h("section", { class: "am-inside", role: "group" })
  #details = h("details", { ontoggle: () => this.#fill() }, this.#summary)
  #pictures = h("div", { class: "am-pictures am-section" })
  #bar = h("div", { class: "am-bar", hidden: true })
  #extent = new Extent()
  /** @type {CardFields | undefined} */
  #block
  /** @type {Partial<CardFields>} the version of the block whose details are drawn */
  #filled = {}
  #touched = false

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
    this.#summary.append(this.#icon, this.#client, this.#name, this.#server, this.#short, this.#value, this.#word, this.#progress, this.#time)
    this.#summary.addEventListener("click", () => (this.#touched = true))
    this.element = h("div", { class: "am-card" }, this.#details, this.#pictures, this.#bar)
    answeredByKeys(this.element, () => this.#block?.state === "waiting")
  }

  /** @param {CardFields} block */
  update(block) {
    const before = this.#block
    this.#block = block
    if (before?.state !== block.state) this.#enter(block, before?.state)
    if (block.agent && !before?.agent) this.#takeIn(block.agent)
    if (block.waits && !before?.waits) this.#details.open = true
    say(this.#client, block.client)
    say(this.#name, block.name)
    this.#details.setAttribute("aria-label", block.name)
    this.#name.classList.toggle("am-title", block.titled)
    say(this.#server, block.server)
    this.#server.classList.toggle("am-whole", block.addressed)
    say(this.#short, block.short)
    say(this.#value, block.value)
    say(this.#word, block.word)
    say(this.#progress, block.progress?.text ?? "")
    this.#drawBar(block)
    if (before?.result !== block.result) put(this.#pictures, ...pictures(block).map(drawn))
    this.tick()
    this.#fill()
  }

  get asking() {
    const ask = this.#sections?.ask
    return ask?.firstChild ? ask : this.element
  }

  tick() {
    const { since = null, time = "" } = this.#block ?? {}
    say(this.#time, since === null ? time : elapsed(this.desk.now() - since))
  }

  refresh() {
    if (this.#sections) hide(this.#sections.ask, !this.desk.can("approve"), this.#summary)
  }

  /** @param {CardFields} block @param {CardState} [before] */
  #enter(block, before) {
    this.element.dataset.state = block.state
    this.element.classList.toggle("am-inner", block.inner)
    put(this.#icon, icon(ICONS[block.state], block.state), h("span", { class: "am-heard" }, `${heard(block.state)}:`))
    if (block.state === "waiting") {
      this.#details.open = true
      const whose = block.client && !block.titled ? ` of ${block.client}` : ""
      this.desk.announce(block.step ? `Paused before ${block.name}` : `${quoted(block)}${whose} waits for your approval`)
    } else if (before === "waiting") {
      const inside = isFocused(this.#details)
      if (!this.#touched) this.#details.open = false
      if (inside) this.#summary.focus()
    }
    if (block.state === "failed" && before) this.desk.announce(`${block.name} failed`)
  }

  /** Prepares the place for the turn of an agent, whose blocks are drawn there as they arrive. @param {string} agent */
  #takeIn(agent) {
    this.#sections ??= this.#body()
    this.inside.setAttribute("aria-label", `What ${agent} does`)
    this.#sections.result.before(this.inside)
  }

  /** @param {CardFields} block */
  #drawBar({ state, progress }) {
    const share = state === "running" ? progress?.share ?? null : null
    this.#bar.hidden = state !== "running"
    this.#bar.classList.toggle("am-unknown", share === null)
    this.#bar.style.width = share === null ? "" : `${share * 100}%`
  }

  /** Draws the details of the card when it is open. */
  #fill() {
    const block = this.#block
    if (!block || !this.#details.open) return
    const before = this.#filled
    const sections = (this.#sections ??= this.#body())
    if (before.arguments !== block.arguments) {
      put(sections.arguments, ...sectionOf(block))
      if (block.ask && before.ask === block.ask) this.#extent.watch(sections.arguments.querySelectorAll("pre, li"))
    }
    if (before.ask !== block.ask) {
      const asked = isFocused(sections.ask)
      put(sections.ask, block.ask && approval(block, this.desk, this.#extent, () => sections.arguments.querySelectorAll("pre, li")))
      if (!block.ask) this.#extent.stop()
      const again = sections.ask.firstElementChild
      if (asked && again instanceof HTMLElement) take(again) // the user is asked again after an invalid edit
    }
    const told = block.progress?.lines ?? ""
    if (before.result !== block.result || before.reason !== block.reason || (before.progress?.lines ?? "") !== told) {
      const inside = isFocused(sections.result)
      put(sections.result, ...outcome(block, this.desk))
      if (inside) this.#summary.focus()
    }
    this.#filled = block
    this.refresh()
  }

  #body() {
    const section = () => h("section", { class: "am-section" })
    const sections = { arguments: section(), ask: section(), result: section() }
    this.#details.append(h("div", { class: "am-body" }, ...Object.values(sections)))
    return sections
  }
}

/** The header that folds and opens many calls in a row; calls that wait for the user stay visible. */
export class Group {
  #words = h("span", { class: "am-name" })
  #names = h("span", { class: "am-short" })
  #counts = h("span", { class: "am-counts" })
  /** @type {Element[]} */
  #inside = []
  #counted = ""
  /** @type {boolean | undefined} */
  #open
  element = h(
    "button",
    { type: "button", class: "am-group am-block", onclick: () => this.#show(!this.#open) },
    icon(ICONS.chevron, "chevron"),
    this.#words,
    this.#names,
    this.#counts,
  )

  /** @param {Element[]} inside the elements to fold, in order @param {CardFields[]} calls the calls among them */
  update(inside, calls) {
    this.#inside = inside
    say(this.#words, `${calls.length} calls`)
    say(this.#names, tally(calls.map(({ name }) => name)).map(([name, times]) => (times > 1 ? `${name} ×${times}` : name)).join(", "))
    const states = tally(calls.map(({ state }) => state))
    if (this.#counted !== states.join()) put(this.#counts, ...states.map(([state, times]) => counted(state, times)))
    this.#counted = states.join()
    // When the group is created, elements that the user reads or has opened stay visible.
    this.#show(this.#open ?? inside.some((element) => !isWaiting(element) && (isFocused(element) || element.querySelector("details[open]"))))
  }

  open() {
    this.#show(true)
  }

  /** @param {boolean} open */
  #show(open) {
    this.#open = open
    this.element.setAttribute("aria-expanded", String(open))
    for (const element of this.#inside) {
      const folded = !open && !isWaiting(element)
      if (folded && isFocused(element)) this.element.focus()
      element.classList.toggle("am-folded", folded)
      element.classList.toggle("am-grouped", open)
    }
  }
}

/** @param {Element} element */
const isWaiting = (element) => element instanceof HTMLElement && element.dataset.state === "waiting"

/** @template {string} T @param {T[]} words @returns {[word: T, times: number][]} */
function tally(words) {
  const found = new Map()
  for (const word of words) found.set(word, (found.get(word) ?? 0) + 1)
  return [...found]
}

/** @param {CardState} state @param {number} times */
function counted(state, times) {
  const words = h("span", { class: "am-heard" }, state === "waiting" ? " waits for you" : ` ${state}`)
  return h("span", { class: "am-state" }, icon(ICONS[state], state), String(times), words)
}

/** Returns the word that screen readers read in place of the icon. @param {CardState} state */
const heard = (state) => (state === "pending" ? "being prepared" : state)

/** @param {CardFields} block */
function sectionOf({ arguments: pairs, languages, note, effects, edits }) {
  const lines = effects.map((line) => h("li", { class: line.startsWith("Risk:") ? "am-problem" : "" }, line))
  const does = lines.length ? [heading("What it does"), h("ul", { class: "am-effects", "aria-label": "What it does" }, ...lines)] : []
  const rows = pairs.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, argument(name, text, Object.hasOwn(languages, name) ? languages[name] : ""))])
  const changed = edits ? [heading("Edited by you"), h("pre", {}, edits)] : []
  const given = rows.length ? [heading("Arguments"), h("dl", { class: "am-arguments" }, ...rows)] : []
  return [...given, noted(note), ...changed, ...does]
}

/** @param {string} name @param {string} text @param {string} language of its code, or "" */
function argument(name, text, language) {
  const html = coloured(text, language)
  const pre = h("pre", {}, html === null ? text : sanitised(html))
  return text.length > LONG || text.split("\n").length > MOST_LINES ? scrollable(pre, name || "Argument") : pre
}

/** Returns the images and frames of a result that are always shown below the call. @param {Pick<CardFields, "result">} block */
export const pictures = ({ result }) => result?.below ?? []

/** @param {CardFields} block @param {Desk} desk */
function outcome({ result, more, reason, progress, traceback, ask }, desk) {
  if (!result && progress?.lines) return [heading("Output"), h("pre", {}, progress.lines)]
  if (!result) return reason && !ask ? [heading("Reason"), h("pre", {}, reason)] : []
  const all = more == null ? null : button("Show all", () => desk.act({ type: "whole", key: more }), "small")
  const shown = pictures({ result })
  const forms = result.forms.map(drawn)
  const folded = folding({}, h("summary", { class: "am-hint" }, "Traceback"), h("pre", {}, traceback))
  const raised = traceback ? h("div", { class: "am-tree" }, folded) : null
  // Pictures are below the card, whether or not there is anything else to show in it.
  const inside = forms.length || shown.length ? forms : [h("p", { class: "am-hint" }, "nothing")]
  return [inside.length > 0 && heading(result.error ? "Error" : "Result"), ...inside, all, raised]
}

/** Returns a running time as text, in whole seconds. @param {number} seconds */
export function elapsed(seconds) {
  const whole = Math.max(0, Math.floor(seconds))
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`
}
