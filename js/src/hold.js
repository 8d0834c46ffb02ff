// Keeps a growing answer in a cell at the same place on the screen, so that the user can read it. Otherwise JupyterLab
// would scroll to keep the next cell visible, which is the active one, and browsers to keep the focused element in place.
import { hostOf, scroller } from "./attention.js"

/** Milliseconds after a key, a click or the wheel in which scrolling counts as the user's. */
const RECENT = 400
/** Milliseconds after the answer has grown, or the turn has ended, in which the page may scroll because of that. */
const SETTLING = 1_000
/** Events that may come from the user scrolling. */
const INPUTS = ["wheel", "touchmove", "pointerdown", "keydown"]

export class Hold {
  #running = false
  /** Whether this view has seen the turn run. */
  #ran = false
  #over = new AbortController()
  #input = -Infinity
  #grown = -Infinity
  /** Whether the user has scrolled to the end of the answer, so that the view follows the end. */
  #follows = false
  /** Whether the user is typing in another cell, which must then stay in its place. */
  #writes = false
  #seen = { top: 0, height: 0, scrolled: 0, isSeen: false }

  /** @param {HTMLElement} element the answer @param {HTMLElement} end the element at its end */
  constructor(element, end) {
    this.element = element
    this.end = end
    this.sizes = new ResizeObserver(() => this.#look())
    this.#begin() // begin at once: a short turn may be over before its first drawing
  }

  /** @param {boolean} is whether a turn is running */
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

  /** Accepts the present scroll position as the one where the user reads. */
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
    // The page scrolled before the answer was drawn.
    else if (at.height && !height && (at.isSeen || this.#isLast())) this.#scroll(outer, Math.min(0, at.top))
  }

  /** Returns whether the page no longer scrolls because of this turn; an answer that was there before is never held. @param {number} now */
  #isOver(now) {
    if (!this.#ran && !this.#isLast()) return true
    return this.#seen.height > 0 && now - this.#grown > SETTLING
  }

  /** Returns whether the user ran this cell last and did nothing since: then JupyterLab has made the next cell active. */
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

  /** Returns how many pixels the answer's end is below the visible part. @param {Element} outer */
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
