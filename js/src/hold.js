// Keeps an answer in a cell where the reader reads while it grows. JupyterLab keeps the next cell, which is the active one, in
// sight, and browsers keep what has the focus in its place: both would carry the answer away.
import { scroller } from "./attention.js"

/** Milliseconds after a key, a click or a turn of the wheel in which a person may have scrolled. */
const RECENT = 400
/** Milliseconds after the answer has grown, or the turn has ended, in which the page scrolls because of that. */
const SETTLING = 1_000
/** What a person scrolls with, or has scrolled by. */
const INPUTS = ["wheel", "touchmove", "pointerdown", "keydown"]

export class Hold {
  #running = false
  #over = new AbortController()
  #timer = 0
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
  }

  /** @param {boolean} is whether a turn is under way */
  run(is) {
    if (is === this.#running) return
    this.#running = is
    clearTimeout(this.#timer)
    if (is) this.#begin()
    else this.#timer = window.setTimeout(() => this.stop(), SETTLING)
  }

  #begin() {
    this.stop()
    this.#over = new AbortController()
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
    if (now - this.#input < RECENT) this.#follows = at.top < 0 && this.#beyond(outer) <= 0
    else if (this.#writes || now - this.#grown > SETTLING) return
    else if (this.#follows) this.#scroll(outer, Math.max(0, this.#beyond(outer)))
    else if (isSeen && at.scrolled !== scrolled) this.#scroll(outer, at.top - top)
    else if (!height && at.isSeen) this.#scroll(outer, Math.min(0, at.top)) // the page had scrolled before the answer was drawn
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
