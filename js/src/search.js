// Search in the conversation: counts and marks the matches and scrolls to them, also in closed cards and folded calls.
/** @import { Block } from "./messages.js" */
/** @import { Log } from "./log.js" */
import { h, iconButton, ICONS, say } from "./dom.js"

/** The largest number of matches; further matches are ignored. */
const MOST_FOUND = 1_000
/** Milliseconds for which changes of the conversation are collected before it is searched again. */
const PAUSE = 200
/** Selects elements that are not searched: they are not part of the conversation, or their text is repeated below. */
const BESIDE = "button, textarea, input, [hidden], .am-heard, .am-code-head, .am-tools, .am-figures, .am-short, svg"
/** Selects elements that separate texts: no match continues from one into the next. */
const APART = "p, li, td, th, pre, dt, dd, h1, h2, h3, h4, h5, h6, summary, div, span.am-name"
/** The number of frames in which the page scrolls to a match. */
const MOST_FRAMES = 6
/** Pixels that are kept free above and below the current match. */
const ROOM = 60

export class Search {
  #box = h("input", { class: "am-box", type: "text", "aria-label": "Search the conversation", placeholder: "Search", spellcheck: "false" })
  #count = h("span", { class: "am-hint", role: "status" })
  /** @type {Range[]} */
  #found = []
  #now = 0
  #timer = 0
  /** @type {HTMLElement | null} the element that had the focus before the search */
  #before = null

  /** @param {Log} log @param {() => void} back called at the end if no element had the focus before */
  constructor(log, back) {
    this.log = log
    this.back = back
    const [earlier, later] = [iconButton("Earlier match", ICONS.up, () => this.#step(-1)), iconButton("Later match", ICONS.down, () => this.#step(1))]
    const close = iconButton("Close the search", ICONS.failed, () => this.close())
    this.element = h("div", { class: "am-find", role: "search", "aria-label": "Conversation", hidden: true }, this.#box, this.#count, earlier, later, close)
    this.element.addEventListener("keydown", (event) => this.#key(event))
    this.#box.addEventListener("input", () => this.#look())
    log.changed = () => this.#again()
  }

  /** @param {HTMLElement | null} from the element that gets the focus back */
  open(from) {
    if (this.element.hidden) this.#before = from
    this.element.hidden = false
    this.#box.focus()
    this.#box.select()
    this.#look()
  }

  close() {
    this.element.hidden = true
    this.#mark([])
    if (this.#before?.isConnected) this.#before.focus({ preventScroll: true })
    else this.back()
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.isComposing || !["Escape", "Enter"].includes(event.key)) return
    if (event.key === "Enter" && event.target !== this.#box) return
    event.preventDefault()
    event.stopPropagation()
    if (event.key === "Escape") this.close()
    else this.#step(event.shiftKey ? -1 : 1)
  }

  /** Searches for new words, and goes to the last match, which is nearest to the end of the conversation. */
  #look() {
    this.#mark(this.#find())
    this.#now = this.#found.length - 1
    this.#go()
  }

  /** Searches again after the conversation has changed, and stays at the same match. */
  #again() {
    if (this.element.hidden || this.#timer) return
    this.#timer = window.setTimeout(() => {
      this.#timer = 0
      if (this.element.hidden) return
      const before = this.#found[this.#now]
      this.#mark(this.#find())
      const place = before ? this.#found.findIndex((one) => isSame(one, before)) : -1
      this.#now = place >= 0 ? place : Math.max(0, Math.min(this.#now, this.#found.length - 1))
      this.#tell()
    }, PAUSE)
  }

  /** @param {number} by */
  #step(by) {
    const { length } = this.#found
    if (length) this.#now = (this.#now + by + length) % length
    this.#go()
  }

  #find() {
    const words = this.#box.value.trim().split(/\s+/).filter(Boolean)
    if (!words.length) return []
    const wanted = new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("\\s+"), "giu")
    const lower = words.map((word) => word.toLowerCase())
    /** @type {Range[]} */
    const found = []
    for (const { block, element } of this.log.drawn()) {
      if (found.length >= MOST_FOUND) break
      const text = said(block).toLowerCase()
      if (!lower.every((word) => text.includes(word))) continue
      const close = opened(element)
      found.push(...places(element, wanted))
      close()
    }
    return found.slice(0, MOST_FOUND)
  }

  #go() {
    this.#tell()
    const range = this.#found[this.#now]
    const element = range?.startContainer.parentElement
    if (!range || !element) return
    const block = element.closest(".am-block")
    if (block) this.log.stayAt(block)
    for (let node = element.closest("details"); node; node = node.parentElement?.closest("details") ?? null) node.open = true
    element.scrollIntoView({ block: "nearest" })
    requestAnimationFrame(() => this.#scrollTo(range, MOST_FRAMES))
  }

  /** Scrolls to a match, again in the next frames, because sizes of elements out of sight are estimates until drawn. @param {Range} range @param {number} frames */
  #scrollTo(range, frames) {
    const { element } = this.log
    const [seen, place] = [element.getBoundingClientRect(), range.getBoundingClientRect()]
    if (place.top < seen.top + ROOM) element.scrollTop -= seen.top + ROOM - place.top
    else if (place.bottom > seen.bottom - ROOM) element.scrollTop += place.bottom - seen.bottom + ROOM
    if (frames && range === this.#found[this.#now]) requestAnimationFrame(() => this.#scrollTo(range, frames - 1))
  }

  #tell() {
    const { length } = this.#found
    const all = length === MOST_FOUND ? `${MOST_FOUND.toLocaleString("en")}+` : String(length)
    say(this.#count, length ? `${this.#now + 1} of ${all}` : this.#box.value.trim() ? "Not found" : "")
    this.#markNow()
  }

  /** @param {Range[]} found */
  #mark(found) {
    for (const name of MARKS) for (const range of this.#found) marks(name)?.delete(range)
    this.#found = found
    for (const range of found) marks(MARKS[0])?.add(range)
  }

  #markNow() {
    for (const range of this.#found) marks(MARKS[1])?.delete(range)
    const range = this.#found[this.#now]
    if (range) marks(MARKS[1])?.add(range)
  }
}

/** The highlights of all matches and of the current match; all views of a page share them. */
const MARKS = ["am-found", "am-found-now"]

/** @param {string | undefined} name */
function marks(name = "") {
  if (!("highlights" in CSS)) return undefined // matches are not marked, but the page still scrolls to them
  if (!CSS.highlights.has(name)) CSS.highlights.set(name, Object.assign(new Highlight(), { priority: MARKS.indexOf(name) }))
  return CSS.highlights.get(name)
}

/** @param {Range} one @param {Range} other */
const isSame = (one, other) => one.startContainer === other.startContainer && one.startOffset === other.startOffset

/** Returns all text of a block. @param {Block | object | string | number | boolean | null | undefined} value @returns {string} */
function said(value) {
  if (typeof value === "string") return value.length > LONGEST_DATA && /^[\w+/=]+$/.test(value) ? "" : value
  return value && typeof value === "object" ? Object.values(value).map(said).join("\n") : String(value ?? "")
}
/** Length from which a text, in characters, may be the data of an image. */
const LONGEST_DATA = 1_000

/** Opens all closed parts of an element, so that they are drawn; returns a function that closes them again. @param {Element} element */
function opened(element) {
  /** @type {HTMLDetailsElement[]} */
  const all = []
  for (let closed; (closed = [...element.querySelectorAll("details")].filter((one) => !one.open)).length; all.push(...closed)) {
    for (const one of closed) {
      one.open = true
      one.dispatchEvent(new Event("toggle")) // the browser's own event comes later
    }
  }
  return () => all.forEach((one) => (one.open = false))
}

/** Returns the ranges in which the text of an element matches a pattern. @param {Element} element @param {RegExp} wanted */
function places(element, wanted) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) =>
    node instanceof Element && node.matches(BESIDE) ? NodeFilter.FILTER_REJECT : node instanceof Text ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_SKIP,
  )
  /** @type {{node: Text, start: number}[]} */
  const pieces = []
  let text = ""
  let apart = null
  for (let node; (node = /** @type {Text | null} */ (walker.nextNode())); ) {
    const around = node.parentElement?.closest(APART) ?? null
    if (around !== apart) text += "\0"
    apart = around
    pieces.push({ node, start: text.length })
    text += node.data
  }
  return [...text.matchAll(wanted)].map(({ index, 0: { length } }) => {
    const range = document.createRange()
    const [from, to] = [pieces.findLast(({ start }) => start <= index), pieces.findLast(({ start }) => start < index + length)]
    if (from && to) range.setStart(from.node, index - from.start)
    if (from && to) range.setEnd(to.node, index + length - to.start)
    return range
  })
}
