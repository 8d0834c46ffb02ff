// The conversation: draws each block separately, only when it changed, in the time between two frames.
/** @import { Block, CardFields, State } from "./messages.js" */
/** @import { Desk, Drawn } from "./types.js" */
import { drawing } from "./blocks.js"
import { Group, pictures } from "./card.js"
import { button, h, put } from "./dom.js"

/** Milliseconds for drawing in one frame: normally, if the last frame was too short for everything, and for many blocks. */
const SHARE = 16
const LATE_SHARE = 30
const OPENING_SHARE = 40
/** So many blocks change at once only when a session is opened. */
const OPENING = 50
const AT_THE_END = 48
/** Pixels between the top of the view and the beginning of an answer that is held there. */
const ABOVE = 8
/** How many calls in a row are shown one by one; more calls are folded into a group. */
const MOST_CALLS = 4

/** @param {Element | null} element */
const keyOf = (element) => Number(/** @type {HTMLElement | null} */ (element)?.dataset.key ?? -1)

/** Kinds of blocks below an answer that are not the next thing to read. */
const BESIDE = ["footer", "notice", "reasoning", "progress"]

/**
 * How the view scrolls while the conversation grows. "follow": it follows the end until the beginning of the answer
 * reaches the top; then it is "held" there for reading. "end": the user went to the end, and the view stays there.
 * "away": the user scrolled elsewhere, and the view does not move.
 * @typedef {"follow" | "held" | "end" | "away"} Move
 */

export class Log {
  /** @type {Map<number, Drawn<any> & {block: Block}>} */
  #drawn = new Map()
  /** @type {Set<number>} */
  #dirty = new Set()
  /** @type {Set<Element>} the elements whose group may have changed */
  #regroup = new Set()
  /** @type {WeakMap<Element, Group>} the groups by their headers, which are elements of the log, too */
  #groups = new WeakMap()
  #empty = h("div", { class: "am-empty-log" })
  #welcomed = ""
  #planned = false
  #late = false
  /** @type {Move} */
  #move = "follow"
  /** The key of the answer that grows at the end, or -1. Only blocks of the kinds in BESIDE can be below it. */
  #answer = -1
  /** Whether a pointer button is pressed on the log; then the log does not scroll until the click is over. */
  #pressed = false
  #top = 0

  /** @param {Desk} desk @param {() => ReadonlyMap<number, Block>} blocks @param {boolean} scrolls */
  constructor(desk, blocks, scrolls) {
    /** Called after blocks were drawn. */
    this.changed = () => {}
    this.desk = desk
    this.blocks = blocks
    this.log = h("div", { class: "am-log", role: "log", "aria-label": "Conversation", "aria-relevant": "additions" })
    this.scrolls = scrolls
    this.element = scrolls ? this.#scroller() : this.log
  }

  /** Returns the scrollable element around the log; it shows the end until the user scrolls elsewhere. */
  #scroller() {
    const properties = { class: "am-scroller", tabindex: 0, role: "region", "aria-label": "Messages" }
    const element = h("div", properties, this.log, this.#empty)
    element.addEventListener("scroll", () => this.#scrolled(), { passive: true })
    element.addEventListener("pointerdown", () => this.#press())
    const sizes = new ResizeObserver(() => this.#grow())
    sizes.observe(this.log)
    sizes.observe(element) // the status line below it may take some of its height
    return element
  }

  /** Shows a welcome text and example prompts in a conversation without turns. @param {State} state @param {(prompt: string) => void} propose */
  welcome({ welcome = "", examples = [], reads_notebook = false, actions = [], setup = null }, propose) {
    const offers = actions.includes("command")
    const answers = setup ? "" : welcome // the card for a user without a key says what is missing
    const said = JSON.stringify([answers, examples, reads_notebook, offers])
    if (said === this.#welcomed) return
    this.#welcomed = said
    put(
      this.#empty,
      h("p", { class: "am-heading" }, "Nothing asked yet."),
      h("p", {}, "The model gets what you type and what you attach with @. It can call the functions that @tool marks and the tools of the Servers tab, and you are asked before what could hurt."),
      reads_notebook && h("p", {}, "It has the tools that read this notebook, and that run code in it if you allow that."),
      !reads_notebook && offers && h("p", {}, h("code", {}, "/tools notebook"), " offers it tools that read this notebook and run code in it."),
      answers && h("p", { class: "am-hint" }, answers),
      ...examples.map((example) => button(example, () => propose(example), "example")),
      h("p", { class: "am-hint" }, "@ attaches a variable, / lists commands, the up key brings back what you asked."),
    )
  }

  /** Whether the view follows the end as the conversation grows. */
  get following() {
    return this.#move === "follow" || this.#move === "end"
  }

  #scrolled() {
    const { scrollTop } = this.element
    if (Math.abs(scrollTop - this.#top) < 1) return // our own scrolling, not the user's
    // If the conversation has grown since the view went to the end, the user has not scrolled away from the end.
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

  /** Scrolls to the end of the grown log, or holds the beginning of the answer at the top. */
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

  /** Redraws all blocks that are not the same objects as before. */
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

  /** Finds the answer that grows at the end. A new prompt is followed, unless the user has scrolled elsewhere. @param {number} key @param {Block} [block] */
  #findAnswer(key, block) {
    if (!block && key === this.#answer) this.#answer = -1
    if (!block || block.within !== undefined || key < this.#answer || BESIDE.includes(block.kind)) return
    this.#answer = block.kind === "text" || block.kind === "printout" ? key : -1
    if (block.kind === "prompt" && !this.#drawn.has(key) && this.#move !== "away") this.#move = "follow"
  }

  /** Updates the buttons of all blocks to the actions that are possible now. */
  refresh() {
    for (const drawn of this.#drawn.values()) drawn.refresh?.()
  }

  tick() {
    for (const drawn of this.#drawn.values()) drawn.tick?.()
  }

  /** Restores the scroll position, which an element loses when it is removed from the page. */
  back() {
    this.element.scrollTop = this.following ? this.element.scrollHeight : this.#top
  }

  /** Yields the visible drawn blocks with their elements, in order. */
  *drawn() {
    for (const [key, block] of [...this.blocks()].sort(([one], [other]) => one - other)) {
      const element = this.#drawn.get(key)?.element
      if (element && !element.hidden) yield { block, element }
    }
  }

  /** Unfolds a block, and stops following the end. @param {Element} element */
  stayAt(element) {
    this.#move = "away"
    for (let around = element.parentElement; around && around !== this.log; around = around.parentElement)
      if (around instanceof HTMLDetailsElement) around.open = true
    let header = element.classList.contains("am-folded") ? element.previousElementSibling : null
    while (header && !this.#groups.has(header)) header = header.previousElementSibling
    if (header) this.#groups.get(header)?.open()
  }

  /** Scrolls to the end, and follows the next answer. */
  follow() {
    this.#goTo("follow")
  }

  /** Scrolls to the end, and stays there. */
  stayAtEnd() {
    this.#goTo("end")
  }

  /** @param {Move} move */
  #goTo(move) {
    this.#move = move
    this.#answer = -1
    this.#scrollTo(this.element.scrollHeight)
  }

  /** Returns the element in which a waiting block is answered, or undefined if the block is not drawn up to date. @param {number} key */
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
    if (opening && this.element !== this.log) keys.reverse() // draw the end first, which is visible
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

  /** Takes a call with visible pictures out of its group, which may split the group in two. @param {Element} element */
  #unfold(element) {
    element.classList.remove("am-grouped", "am-folded")
    for (const near of [element.previousElementSibling, element.nextElementSibling]) if (near) this.#regroup.add(near)
  }

  /** Updates the groups of calls around each element that was drawn or has lost a neighbour. */
  #group() {
    while (this.#regroup.size) {
      const [element] = this.#regroup
      const row = this.#row(/** @type {Element} */ (element))
      for (const other of [element, ...row]) this.#regroup.delete(/** @type {Element} */ (other))
      if (row.length) this.#fold(row)
    }
  }

  /** Returns an element and its neighbours that can be folded together. @param {Element} element */
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

  /** Returns whether a running tool made the call, or the calls of a group; undefined for other elements. @param {Element} element */
  #isInner(element) {
    const block = this.blocks().get(Math.ceil(keyOf(element)))
    return block?.kind === "card" ? block.inner : undefined
  }

  /** Returns whether an element can be in a row of calls: a call, reasoning, a hidden element or a group's header. @param {Element} element */
  #folds(element) {
    const block = this.blocks().get(keyOf(element))
    const kind = block?.kind
    if (block?.kind === "card" && (pictures(block).length || block.agent)) return false
    return kind === "card" || kind === "reasoning" || this.#groups.has(element) || element.hasAttribute("hidden")
  }

  /** Folds a row from its first to its last call into a group, or unfolds it if there are few calls. @param {Element[]} row */
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
    group.element.dataset.key = String(keyOf(first) - 0.5) // the key places the header before its first call
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

  /** Returns the parent of a block: the log, or the card of the agent whose turn the block belongs to. @param {Block} block @returns {Element} */
  #around({ within }) {
    const card = within === undefined ? undefined : this.blocks().get(within)
    return (card && within !== undefined && this.#drawingOf(within, card).inside) || this.log
  }

  /** Inserts an element in the order of the keys, nearly always at one of the ends. @param {number} key @param {HTMLElement} element @param {Element} around */
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
