// The conversation: its blocks, each drawn for itself and only when it changed, in the time between two frames.
/** @import { Block, Desk, Drawn } from "./types.js" */
import { drawing } from "./blocks.js"
import { h } from "./dom.js"

/** Milliseconds that drawing may take at once, where that was too short for all that has come, and for many blocks. */
const SHARE = 16
const LATE_SHARE = 30
const OPENING_SHARE = 70
/** Blocks that change at once only when a session is opened. */
const OPENING = 50
const AT_THE_END = 48

/** @param {Element | null} element */
const keyOf = (element) => Number(/** @type {HTMLElement | null} */ (element)?.dataset.key ?? -1)

export class Log {
  /** @type {Map<number, Drawn<any> & {kind: string}>} */
  #drawn = new Map()
  /** @type {Set<number>} */
  #dirty = new Set()
  #planned = false
  #late = false
  /** Whether the end is shown as it grows. */
  following = true
  #top = 0

  /** @param {Desk} desk @param {() => ReadonlyMap<number, Block>} blocks @param {boolean} scrolls */
  constructor(desk, blocks, scrolls) {
    this.desk = desk
    this.blocks = blocks
    this.log = h("div", { class: "am-log", role: "log", "aria-label": "Conversation", "aria-relevant": "additions" })
    this.scrolls = scrolls
    this.element = scrolls ? this.#scroller() : this.log
  }

  /** Shows a part of the log, its end as long as the person does not look at another. */
  #scroller() {
    const empty = h("p", { class: "am-empty-log" }, "Nothing asked yet.")
    const element = h("div", { class: "am-scroller", tabindex: 0, role: "region", "aria-label": "Messages" }, this.log, empty)
    element.addEventListener("scroll", () => this.#scrolled(), { passive: true })
    const sizes = new ResizeObserver(() => this.following && this.#toEnd())
    sizes.observe(this.log)
    sizes.observe(element) // a line below it may take some of its height
    return element
  }

  #scrolled() {
    this.following = this.#isAtEnd()
    this.#top = this.element.scrollTop
  }

  #toEnd() {
    this.element.scrollTop = this.element.scrollHeight
  }

  /** Draws everything anew that is not the same. */
  restart() {
    for (const key of this.#drawn.keys()) if (!this.blocks().has(key)) this.#remove(key)
    this.change(this.blocks().keys())
  }

  /** @param {Iterable<number>} keys of blocks that changed, came or went */
  change(keys) {
    for (const key of keys) this.#dirty.add(key)
    this.#plan()
  }

  /** Draws again what depends on what can be done. */
  refresh() {
    for (const drawn of this.#drawn.values()) drawn.forget?.()
    this.change(this.blocks().keys())
  }

  tick() {
    for (const drawn of this.#drawn.values()) drawn.tick?.()
  }

  /** Takes up the place where it was, which an element forgets while it is not in the page. */
  back() {
    this.element.scrollTop = this.following ? this.element.scrollHeight : this.#top
  }

  /** Goes to the end and stays there. */
  follow() {
    this.following = true
    this.#toEnd()
  }

  /** Returns where a block that waits is answered, once it is drawn as it is. @param {number} key */
  asking(key) {
    return this.#dirty.has(key) ? undefined : this.#drawn.get(key)?.asking
  }

  #plan() {
    if (this.#planned || !this.#dirty.size) return
    this.#planned = true
    requestAnimationFrame(() => this.#draw())
  }

  #draw() {
    this.#planned = false
    const opening = this.#dirty.size > OPENING
    const deadline = performance.now() + (opening ? OPENING_SHARE : this.#late ? LATE_SHARE : SHARE)
    const keys = [...this.#dirty].sort((one, other) => one - other)
    if (opening && this.element !== this.log) keys.reverse() // the end of it is what is seen
    for (const key of keys) {
      if (performance.now() > deadline) break
      if (!this.#drawBlock(key, deadline)) this.#dirty.delete(key)
    }
    this.#late = this.#dirty.size > 0
    this.#plan()
  }

  /** @param {number} key @param {number} deadline @returns {boolean} whether there is more to draw */
  #drawBlock(key, deadline) {
    const block = this.blocks().get(key)
    if (!block) {
      this.#remove(key)
      return false
    }
    return Boolean(this.#drawingOf(key, block).update(block, deadline))
  }

  /** @param {number} key @param {Block} block */
  #drawingOf(key, block) {
    const known = this.#drawn.get(key)
    if (known?.kind === block.kind) return known
    if (known) this.#remove(key)
    const made = Object.assign(drawing(block.kind, this.desk), { kind: block.kind })
    made.element.classList.add("am-block")
    made.element.dataset.key = String(key)
    this.#drawn.set(key, made)
    this.#place(key, made.element)
    return made
  }

  /** Puts an element where its key says, nearly always at one of the ends. @param {number} key @param {HTMLElement} element */
  #place(key, element) {
    if (key < keyOf(this.log.firstElementChild)) return void this.log.prepend(element)
    let last = this.log.lastElementChild
    while (key < keyOf(last)) last = last?.previousElementSibling ?? null
    if (last) last.after(element)
    else this.log.prepend(element)
  }

  /** @param {number} key */
  #remove(key) {
    this.#drawn.get(key)?.element.remove()
    this.#drawn.delete(key)
    this.#dirty.delete(key)
  }

  #isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.element
    return scrollHeight - scrollTop - clientHeight < AT_THE_END
  }
}
