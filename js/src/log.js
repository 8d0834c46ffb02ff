// The conversation: its blocks, each drawn for itself and only when it changed, in the time between two frames.
/** @import { Block, CardFields, State } from "./messages.js" */
/** @import { Desk, Drawn } from "./types.js" */
import { drawing } from "./blocks.js"
import { Group, pictures } from "./card.js"
import { button, h, put } from "./dom.js"

/** Milliseconds that drawing may take at once, where that was too short for all that has come, and for many blocks. */
const SHARE = 16
const LATE_SHARE = 30
const OPENING_SHARE = 40
/** Blocks that change at once only when a session is opened. */
const OPENING = 50
const AT_THE_END = 48
/** Pixels above an answer whose beginning is held at the top. */
const ABOVE = 8
/** Calls in a row that are shown one by one; more of them fold into a group. */
const MOST_CALLS = 4

/** @param {Element | null} element */
const keyOf = (element) => Number(/** @type {HTMLElement | null} */ (element)?.dataset.key ?? -1)

/** What grows below an answer without being the next thing to read. */
const BESIDE = ["footer", "notice", "retry", "reasoning", "progress"]

/**
 * How what is seen moves as the conversation grows: it follows the end until the beginning of the answer is at the top,
 * where it is held for the reader. A person who goes to the end stays there, and one who goes elsewhere is left alone.
 * @typedef {"follow" | "held" | "end" | "away"} Move
 */

export class Log {
  /** @type {Map<number, Drawn<any> & {block: Block}>} */
  #drawn = new Map()
  /** @type {Set<number>} */
  #dirty = new Set()
  /** @type {Set<Element>} whose group may have changed */
  #regroup = new Set()
  /** @type {WeakMap<Element, Group>} by their headers, which stand in the log too */
  #groups = new WeakMap()
  #empty = h("div", { class: "am-empty-log" })
  #welcomed = ""
  #planned = false
  #late = false
  /** @type {Move} */
  #move = "follow"
  /** The key of the answer that grows at the end, or -1: nothing but figures and notices may stand below it. */
  #answer = -1
  /** Whether a button of the pointer is pressed on it: what is under the pointer does not move until the click is over. */
  #pressed = false
  #top = 0

  /** @param {Desk} desk @param {() => ReadonlyMap<number, Block>} blocks @param {boolean} scrolls */
  constructor(desk, blocks, scrolls) {
    /** Called when something was drawn. */
    this.changed = () => {}
    this.desk = desk
    this.blocks = blocks
    this.log = h("div", { class: "am-log", role: "log", "aria-label": "Conversation", "aria-relevant": "additions" })
    this.scrolls = scrolls
    this.element = scrolls ? this.#scroller() : this.log
  }

  /** Shows a part of the log, its end as long as the person does not look at another. */
  #scroller() {
    const properties = { class: "am-scroller", tabindex: 0, role: "region", "aria-label": "Messages" }
    const element = h("div", properties, this.log, this.#empty)
    element.addEventListener("scroll", () => this.#scrolled(), { passive: true })
    element.addEventListener("pointerdown", () => this.#press())
    const sizes = new ResizeObserver(() => this.#grow())
    sizes.observe(this.log)
    sizes.observe(element) // a line below it may take some of its height
    return element
  }

  /** Says in a conversation without turns what it is, and proposes prompts. @param {State} state @param {(prompt: string) => void} propose */
  welcome({ welcome = "", examples = [] }, propose) {
    const said = JSON.stringify([welcome, examples])
    if (said === this.#welcomed) return
    this.#welcomed = said
    put(
      this.#empty,
      h("p", { class: "am-heading" }, "Nothing asked yet."),
      h("p", {}, "Ask about this notebook. The agent can call the functions that @tool marks and the tools of the Servers tab, and asks before it does what could hurt."),
      h("p", { class: "am-hint" }, welcome),
      ...examples.map((example) => button(example, () => propose(example), "example")),
      h("p", { class: "am-hint" }, "@ attaches a variable, / lists commands, the up key brings back what you asked."),
    )
  }

  /** Whether the end is shown as it grows. */
  get following() {
    return this.#move === "follow" || this.#move === "end"
  }

  #scrolled() {
    const { scrollTop } = this.element
    if (Math.abs(scrollTop - this.#top) < 1) return // that was no person
    // What has grown since the end was gone to is not scrolled away from.
    const stays = this.following && (scrollTop >= this.#top || this.#isAtEnd())
    if (!stays) this.#move = this.#isAtEnd() ? "end" : "away"
    this.#top = scrollTop
  }

  #press() {
    this.#pressed = true
    const over = new AbortController()
    const release = () => {
      over.abort()
      requestAnimationFrame(() => {
        this.#pressed = false
        this.#grow()
      })
    }
    for (const type of ["pointerup", "pointercancel"]) addEventListener(type, release, { signal: over.signal })
  }

  /** Shows the end of what has grown, or holds the beginning of the answer. */
  #grow() {
    if (this.#pressed || !this.log.firstChild || !this.following) return
    const { element } = this
    const answer = this.#move === "follow" ? this.#drawn.get(this.#answer)?.element : undefined
    const top = answer && !answer.hidden ? answer.offsetTop - element.offsetTop - ABOVE : Infinity
    if (top < element.scrollHeight - element.clientHeight) this.#move = "held"
    this.#scrollTo(Math.min(top, element.scrollHeight))
  }

  /** @param {number} top */
  #scrollTo(top) {
    this.element.scrollTop = top
    this.#top = this.element.scrollTop
  }

  /** Draws everything anew that is not the same. */
  restart() {
    for (const key of this.#drawn.keys()) if (!this.blocks().has(key)) this.#remove(key)
    for (const [key, block] of this.blocks()) if (this.#drawn.get(key)?.block !== block) this.#dirty.add(key)
    this.#answer = -1
    this.#plan()
  }

  /** @param {Iterable<number>} keys of blocks that changed, came or went */
  change(keys) {
    for (const key of keys) {
      this.#dirty.add(key)
      this.#findAnswer(key, this.blocks().get(key))
    }
    this.#plan()
  }

  /** Notes the answer that grows at the end; a new prompt is followed, unless the person is elsewhere. @param {number} key @param {Block} [block] */
  #findAnswer(key, block) {
    if (!block && key === this.#answer) this.#answer = -1
    if (!block || block.within !== undefined || key < this.#answer || BESIDE.includes(block.kind)) return
    this.#answer = block.kind === "text" ? key : -1
    if (block.kind === "prompt" && !this.#drawn.has(key) && this.#move !== "away") this.#move = "follow"
  }

  /** Shows what can be done now. */
  refresh() {
    for (const drawn of this.#drawn.values()) drawn.refresh?.()
  }

  tick() {
    for (const drawn of this.#drawn.values()) drawn.tick?.()
  }

  /** Takes up the place where it was, which an element forgets while it is not in the page. */
  back() {
    this.element.scrollTop = this.following ? this.element.scrollHeight : this.#top
  }

  /** The blocks that are drawn, each with its element, in their order. */
  *drawn() {
    for (const [key, block] of [...this.blocks()].sort(([one], [other]) => one - other)) {
      const element = this.#drawn.get(key)?.element
      if (element && !element.hidden) yield { block, element }
    }
  }

  /** Shows a block that may be folded, and stays there. @param {Element} element */
  stayAt(element) {
    this.#move = "away"
    for (let around = element.parentElement; around && around !== this.log; around = around.parentElement)
      if (around instanceof HTMLDetailsElement) around.open = true
    let header = element.classList.contains("am-folded") ? element.previousElementSibling : null
    while (header && !this.#groups.has(header)) header = header.previousElementSibling
    if (header) this.#groups.get(header)?.open()
  }

  /** Goes to the end, and follows what comes. */
  follow() {
    this.#goTo("follow")
  }

  /** Goes to the end and stays there. */
  stayAtEnd() {
    this.#goTo("end")
  }

  /** @param {Move} move */
  #goTo(move) {
    this.#move = move
    this.#answer = -1
    this.#scrollTo(this.element.scrollHeight)
  }

  /** Returns where a block that waits is answered, once it is drawn as it is. @param {number} key */
  asking(key) {
    return this.#dirty.has(key) ? undefined : this.#drawn.get(key)?.asking
  }

  #plan() {
    if (this.#planned || !(this.#dirty.size || this.#regroup.size)) return
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
    this.#group()
    this.changed()
    this.#plan()
  }

  /** @param {number} key @param {number} deadline @returns {boolean} whether there is more to draw */
  #drawBlock(key, deadline) {
    const block = this.blocks().get(key)
    if (!block) {
      this.#remove(key)
      return false
    }
    const drawn = this.#drawingOf(key, block)
    if (block.kind === "card") this.#regroup.add(drawn.element)
    if (block.kind === "card" && (pictures(block).length || block.agent)) this.#unfold(drawn.element)
    return Boolean(drawn.update(block, deadline))
  }

  /** Takes a call whose pictures stand open out of its group, which may then be two. @param {Element} element */
  #unfold(element) {
    element.classList.remove("am-grouped", "am-folded")
    for (const near of [element.previousElementSibling, element.nextElementSibling]) if (near) this.#regroup.add(near)
  }

  /** Groups the calls in a row, around each element that was drawn or has lost a neighbour. */
  #group() {
    while (this.#regroup.size) {
      const [element] = this.#regroup
      const row = this.#row(/** @type {Element} */ (element))
      for (const other of [element, ...row]) this.#regroup.delete(/** @type {Element} */ (other))
      if (row.length) this.#fold(row)
    }
  }

  /** Returns an element with those around it that may fold together. @param {Element} element */
  #row(element) {
    if (!element.isConnected || !this.#folds(element)) return []
    const inner = this.#isInner(element)
    const folds = (/** @type {Element} */ other) => this.#folds(other) && (this.#isInner(other) ?? inner) === (inner ?? this.#isInner(other))
    let first = element
    for (let before; (before = first.previousElementSibling) && folds(before); ) first = before
    const row = [first]
    for (let next; (next = row.at(-1)?.nextElementSibling) && folds(next); ) row.push(next)
    return row
  }

  /** Whether a running tool made the call, or those of a group; of anything else, nothing. @param {Element} element */
  #isInner(element) {
    const block = this.blocks().get(Math.ceil(keyOf(element)))
    return block?.kind === "card" ? block.inner : undefined
  }

  /** Whether it is a call, something thought between two calls, nothing to see, or a group's header. @param {Element} element */
  #folds(element) {
    const block = this.blocks().get(keyOf(element))
    const kind = block?.kind
    if (block?.kind === "card" && (pictures(block).length || block.agent)) return false
    return kind === "card" || kind === "reasoning" || this.#groups.has(element) || element.hasAttribute("hidden")
  }

  /** Folds what is between the first and the last call of a row, or unfolds it if the calls are few. @param {Element[]} row */
  #fold(row) {
    const [group = new Group(), ...others] = row.flatMap((element) => this.#groups.get(element) ?? [])
    for (const other of others) other.element.remove()
    const call = (/** @type {Element} */ element) => this.blocks().get(keyOf(element))?.kind === "card"
    const inside = row.slice(row.findIndex(call), row.findLastIndex(call) + 1).filter((element) => !this.#groups.has(element))
    const calls = /** @type {CardFields[]} */ (inside.filter(call).map((element) => this.blocks().get(keyOf(element))))
    const [first] = inside
    if (!first || calls.length <= MOST_CALLS) {
      for (const element of row) element.classList.remove("am-grouped", "am-folded")
      return group.element.remove()
    }
    this.#groups.set(group.element, group)
    group.element.dataset.key = String(keyOf(first) - 0.5) // blocks are placed by their keys
    if (first.previousElementSibling !== group.element) first.before(group.element)
    group.update(inside, calls)
  }

  /** @param {number} key @param {Block} block */
  #drawingOf(key, block) {
    const known = this.#drawn.get(key)
    if (known?.block.kind === block.kind) return Object.assign(known, { block })
    if (known) this.#remove(key)
    const made = Object.assign(drawing(block.kind, this.desk), { block })
    made.element.classList.add("am-block")
    made.element.dataset.key = String(key)
    this.#drawn.set(key, made)
    this.#place(key, made.element, this.#around(block))
    return made
  }

  /** Where a block stands: in the log, or inside the card of the agent whose turn it is of. @param {Block} block @returns {Element} */
  #around({ within }) {
    const card = within === undefined ? undefined : this.blocks().get(within)
    return (card && within !== undefined && this.#drawingOf(within, card).inside) || this.log
  }

  /** Puts an element where its key says, nearly always at one of the ends. @param {number} key @param {HTMLElement} element @param {Element} around */
  #place(key, element, around) {
    if (key < keyOf(around.firstElementChild)) return void around.prepend(element)
    let last = around.lastElementChild
    while (key < keyOf(last)) last = last?.previousElementSibling ?? null
    if (last) last.after(element)
    else around.prepend(element)
  }

  /** @param {number} key */
  #remove(key) {
    const element = this.#drawn.get(key)?.element
    for (const near of [element?.previousElementSibling, element?.nextElementSibling]) if (near) this.#regroup.add(near)
    element?.remove()
    this.#drawn.delete(key)
    this.#dirty.delete(key)
  }

  #isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.element
    return scrollHeight - scrollTop - clientHeight < AT_THE_END
  }
}
