// Keeps an answer in a cell where the reader reads while it grows. JupyterLab keeps the next cell, which is the active one, in
// sight, and browsers keep what has the focus in its place: both would carry the answer away.
import { hostOf, scroller } from "./attention.js"

/** Milliseconds after a key, a click or a turn of the wheel in which a person may have scrolled. */
const RECENT = 400
/** Milliseconds after the answer has grown, or the turn has ended, in which the page scrolls because of that. */
const SETTLING = 1_000
/** What a person scrolls with, or has scrolled by. */
const INPUTS = ["wheel", "touchmove", "pointerdown", "keydown"]

export class Hold {
  #running = false
  /** Whether the turn was seen to run. */
  #ran = false
  #over = new AbortController()
  #input = -Infinity
  #grown = -Infinity
  /** Whether the person has gone to the end of the answer, and sees it as it grows. */
  #follows = false
  /** Whether the person writes in another cell, which stays in its place then. */
  #writes = false
  #seen = { top: 0, height: 0, scrolled: 0, isSeen: false }

  /** @param {HTMLElement} element of the answer @param {HTMLElement} end what stands below it */
  constructor(element, end) {
    this.element = element
    this.end = end
    this.sizes = new ResizeObserver(() => this.#look())
    this.#begin() // a turn may be over before the page has drawn anything of it
  }

  /** @param {boolean} is whether a turn is under way */
  run(is) {
    if (is === this.#running) return
    this.#running = is
    if (is) this.#begin()
    else this.#grown = performance.now()
    this.#ran = true
  }

  #begin() {
    this.stop()
    this.#over = new AbortController()
    this.#input = -Infinity
    this.#follows = this.#writes = false
    const options = { signal: this.#over.signal, capture: true, passive: true }
    for (const type of INPUTS) addEventListener(type, (event) => this.#hear(event), options)
    document.addEventListener("scroll", () => this.#look(), options)
    this.sizes.observe(this.element)
  }

  stop() {
    this.#over.abort()
    this.sizes.disconnect()
  }

  /** @param {Event} event */
  #hear(event) {
    this.#input = performance.now()
    const [target] = event.composedPath()
    const writes = event.type === "keydown" && target instanceof HTMLElement && target.isContentEditable
    this.#writes = writes || (this.#writes && event.type === "keydown")
  }

  /** What is seen now is where the reader reads. */
  accept() {
    const outer = this.#running ? scroller(this.element) : null
    if (outer) this.#note(outer)
  }

  #look() {
    const outer = scroller(this.element)
    if (!outer) return
    const now = performance.now()
    const { top, height, scrolled, isSeen } = this.#seen
    const at = this.#note(outer)
    if (at.height !== height) this.#grown = now
    if (!this.#running && this.#isOver(now)) this.stop()
    else if (now - this.#input < RECENT) this.#follows = at.top < 0 && this.#beyond(outer) <= 0
    else if (this.#writes || now - this.#grown > SETTLING) return
    else if (this.#follows) this.#scroll(outer, Math.max(0, this.#beyond(outer)))
    else if (isSeen && at.scrolled !== scrolled) this.#scroll(outer, at.top - top)
    // The page had scrolled before the answer was drawn.
    else if (at.height && !height && (at.isSeen || this.#isLast())) this.#scroll(outer, Math.min(0, at.top))
  }

  /** Whether the page no longer scrolls because of the turn, or has not: an answer of before is not held. @param {number} now */
  #isOver(now) {
    if (!this.#ran && !this.#isLast()) return true
    return this.#seen.height > 0 && now - this.#grown > SETTLING
  }

  /** Whether the cell is the last that the person has run, and did nothing since: JupyterLab has made the next one active. */
  #isLast() {
    const cell = hostOf(this.element)?.closest(".jp-Cell")
    return this.#input === -Infinity && Boolean(cell?.nextElementSibling?.classList.contains("jp-mod-active"))
  }

  /** @param {Element} outer @param {number} by */
  #scroll(outer, by) {
    if (Math.abs(by) < 1) return
    outer.scrollTop += by
    this.#note(outer)
  }

  /** Returns how many pixels of the answer's end are below what is seen. @param {Element} outer */
  #beyond(outer) {
    return this.end.getBoundingClientRect().bottom - outer.getBoundingClientRect().bottom
  }

  /** @param {Element} outer */
  #note(outer) {
    const [own, seen] = [this.element.getBoundingClientRect(), outer.getBoundingClientRect()]
    const isSeen = own.height > 0 && own.top < seen.bottom && own.bottom > seen.top
    this.#seen = { top: own.top - seen.top, height: own.height, scrolled: outer.scrollTop, isSeen }
    return this.#seen
  }
}
