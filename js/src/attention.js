// Draws the user's attention to waiting calls and questions: scrolls them into sight, or names them in a bar if they are
// out of sight, and marks the tab.
/** @import { Block, CardFields, QuestionFields } from "./messages.js" */
/** @import { Waits } from "./types.js" */
/** @import { Log } from "./log.js" */
import { quoted, take } from "./approval.js"
import { isFocused } from "./dom.js"
import { mark, notify, tabOf } from "./tab.js"

/** Pixels below the visible part in which the end of a conversation still counts as visible. */
const NEAR = 160
/** Height in pixels of the bar that covers the bottom of the visible part in a cell. */
const BAR = 48
/** The share of an answer's place that must be visible. */
const MOST = 0.5

export class Attention {
  /** @type {Set<number>} the keys of the blocks that wait for the user */
  #keys = new Set()
  /** @type {Set<Element>} the visible ones of the places where waiting blocks are answered */
  #seen = new Set()
  /** @type {number | undefined} the key of the block to scroll to once it is drawn */
  #wanted
  /** @type {number | undefined} the key of a block that began to wait before this view was visible */
  #early
  #planned = false
  /** @type {HTMLElement | undefined} the element that had the focus before a waiting block took it by itself */
  #from
  /** Whether a block was answered while another block still waits. */
  #next = false
  /** Whether the user wants to go to a waiting block that is not drawn yet. */
  #going = false
  #answered = true
  /** @type {string | undefined} */
  #tab
  /** @type {IntersectionObserver | undefined} */
  #sight
  /** @type {Notification | undefined} */
  #notification

  /**
   * @param {Log} log @param {() => ReadonlyMap<number, Block>} blocks
   * @param {() => void} changed called when `waits` changed
   */
  constructor(log, blocks, changed) {
    this.log = log
    this.blocks = blocks
    this.changed = changed
    log.element.addEventListener("focusin", ({ target }) => this.#leave(/** @type {Element} */ (target)))
  }

  /** The first waiting block and the number of others, or null. @returns {Waits | null} */
  get waits() {
    const [first, ...more] = this.#keys
    if (first === undefined) return null
    const places = [...this.#keys].map((key) => this.log.asking(key))
    const hidden = this.#sight !== undefined && !places.some((place) => place && this.#seen.has(place))
    return { block: /** @type {CardFields | QuestionFields} */ (this.blocks().get(first)), more: more.length, hidden }
  }

  /** Updates the waiting blocks from blocks that changed, before these are drawn. @param {Iterable<number>} touched */
  look(touched) {
    const before = [...this.#keys]
    for (const key of new Set([...before, ...touched])) {
      if (isWaiting(this.blocks().get(key))) this.#keys.add(key)
      else this.#keys.delete(key)
    }
    const came = [...this.#keys].find((key) => !before.includes(key))
    if (came === undefined && before.length === this.#keys.size) return
    if (came !== undefined) {
      if (!this.log.element.getClientRects().length) this.#early = came
      else if (this.#isAtEnd()) this.#wanted = came
      this.#notification = notify(said(this.blocks().get(came)), () => this.show()) ?? this.#notification
    }
    this.#next = this.#keys.size > 0 && before.some((key) => !this.#keys.has(key))
    this.#mark()
    this.#plan()
  }

  /** Removes the mark while the kernel does not answer, because nothing can be answered then. @param {boolean} is whether it answers */
  answered(is) {
    if (is === this.#answered) return
    this.#answered = is
    this.#mark()
  }

  /** Scrolls to the first waiting block, and focuses it. */
  show() {
    const [first = -1] = this.#keys
    const place = this.log.asking(first)
    this.#going = !place && this.#keys.size > 0
    if (this.#going) this.#plan()
    place?.scrollIntoView({ block: "nearest" })
    const target = targetOf(place)
    if (target) take(target, true)
  }

  /** Focuses a waiting block, if the user is in the notebook's command mode or in this view, and is not typing. @param {Element} [place] */
  #take(place) {
    const target = place?.getClientRects().length ? targetOf(place) : undefined // a hidden place cannot be answered now
    const from = target && this.free()
    if (!from) return
    this.#from = this.#from?.isConnected ? this.#from : from
    take(target)
  }

  /** Leaves the focus in this view if the user has moved it to another part of the view. @param {Element} target */
  #leave(target) {
    if (this.#keys.size && !target.closest(OPEN)) this.#from = undefined
  }

  /** Returns the focus to the element that had it before, once everything is answered. */
  #giveBack() {
    if (this.#from?.isConnected && isFocused(this.log.element)) this.#from.focus({ preventScroll: true })
    this.#from = undefined
  }

  /** Returns the focused element if a waiting block may take the focus from it. */
  free() {
    const { element, scrolls } = this.log
    const root = element.getRootNode()
    const host = root instanceof ShadowRoot ? root.host : element.closest(".agentmagic")
    const focused = root instanceof ShadowRoot && document.activeElement === host ? root.activeElement : document.activeElement
    if (!(focused instanceof HTMLElement)) return undefined
    const isOurs = root instanceof ShadowRoot ? focused.getRootNode() === root : host?.contains(focused)
    if (isOurs) return isIdle(focused, element) ? focused : undefined
    // A block in a panel may also be shown in a cell. There it is nearer to the notebook, so the cell takes the focus.
    const commands = !scrolls && host?.closest(".jp-Notebook.jp-mod-commandMode")
    return commands && commands.contains(focused) && !focused.matches(`${WRITTEN}, agentmagic-view`) ? focused : undefined
  }

  close() {
    this.#keys.clear()
    this.#mark()
    this.#sight?.disconnect()
  }

  #mark() {
    this.#tab = tabOf(this.log.element) ?? this.#tab // the view of a cell that is out of sight is not in the page
    const waits = this.#answered && this.#keys.size > 0
    mark(this, waits ? (this.#tab ?? "") : null)
    if (!waits) this.#notification?.close()
  }

  #plan() {
    if (this.#planned) return
    this.#planned = true
    requestAnimationFrame(() => this.#watch())
  }

  /** Once the waiting blocks are drawn, scrolls to a new one and observes which of them are visible. */
  #watch() {
    this.#planned = false
    const places = [...this.#keys].flatMap((key) => this.log.asking(key) ?? [])
    if (places.length < this.#keys.size) return this.#plan()
    if (this.#early !== undefined && this.#isAtEnd(true)) this.#wanted = this.#early
    this.#early = undefined
    if (this.#wanted !== undefined) {
      const place = this.log.asking(this.#wanted)
      place?.scrollIntoView({ block: "nearest" })
      this.#take(place)
    }
    this.#wanted = undefined
    if (!places.length) this.#giveBack()
    // In the next frame, when the answered block is drawn as answered and has lost the focus.
    if (this.#next) requestAnimationFrame(() => this.#take(places[0]))
    this.#next = false
    if (this.#going) this.show()
    this.#sight?.disconnect()
    this.#sight = undefined
    this.#seen.clear()
    if (places.length) this.#observe(places)
    this.changed()
  }

  /** @param {Element[]} places */
  #observe(places) {
    // In a panel no bar covers the end, and all scrolling ancestors count, to which a margin would not apply.
    const room = this.log.scrolls ? {} : { root: scroller(this.log.element), rootMargin: `0px 0px -${BAR}px 0px` }
    const sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.#seen.add(target)
        else this.#seen.delete(target)
      }
      this.#sight = sight
      this.changed()
    }, { ...room, threshold: MOST })
    for (const place of places) sight.observe(place)
  }

  /**
   * Returns whether the user sees the end of the conversation, or sees the cell just above a conversation that is not
   * visible yet. With `atOnce`, the whole turn was drawn at once; then it is enough that its beginning is visible.
   */
  #isAtEnd(atOnce = false) {
    const { element, following } = this.log
    const { top, bottom } = element.getBoundingClientRect()
    const seen = scroller(element.parentElement)?.getBoundingClientRect() ?? { top: 0, bottom: innerHeight }
    const [end, start] = [bottom - seen.bottom, top - seen.bottom]
    const begins = start < NEAR && (start > -BAR || (atOnce && top >= seen.top))
    return following && bottom > seen.top && (end < NEAR || begins)
  }
}

/** Selects the blocks that wait for the user. */
const OPEN = ".am-card[data-state=waiting], .am-question.am-open"
/** Selects the elements in which the user types. */
const WRITTEN = "textarea, input, select, [contenteditable]"

/** Returns whether the focused element is not in use: an empty message box, or a part of the log that does not wait. @param {HTMLElement} focused @param {Element} log */
function isIdle(focused, log) {
  if (focused instanceof HTMLTextAreaElement) return focused.closest(".am-composer") !== null && focused.value === ""
  if (focused.matches(WRITTEN) || focused.closest(OPEN)) return false
  return log.contains(focused) || focused.matches(".agentmagic, .am-running, .am-scroller")
}

/**
 * Returns the element in a waiting block that gets the focus; without one, the block itself, so that no editor gets keys.
 * @param {Element} [place] @returns {HTMLElement | undefined}
 */
function targetOf(place) {
  const block = place?.closest(".am-block")
  const found = [".am-pause button", ".am-approval", "summary, textarea"].map((one) => block?.querySelector(one))
  return [...found, block].flatMap((one) => (one instanceof HTMLElement ? one : [])).find((one) => one.getClientRects().length > 0)
}

/** @param {Block} [block] */
const isWaiting = (block) => (block?.kind === "card" && block.state === "waiting") || (block?.kind === "question" && block.ask !== "")

/** Returns a text that says what waits for the user. @param {Block} [block] */
export const said = (block) => {
  if (block?.kind === "card") return block.step ? `Paused before ${block.name}` : `${quoted(block)} waits for your approval`
  return block?.kind === "question" && block.step ? "Paused before a request" : "A question waits for your answer"
}

/** Returns the nearest scrollable element, from this one upwards, whose content is higher than itself. @param {Element | null} element */
export function scroller(element) {
  for (let node = element; node; node = node.parentElement ?? hostOf(node)) {
    if (/auto|scroll/.test(getComputedStyle(node).overflowY) && node.scrollHeight > node.clientHeight + 1) return node
  }
  return null
}

/** Returns the host of the shadow tree that contains an element, or null. @param {Element} element */
export function hostOf(element) {
  const root = element.getRootNode()
  return root instanceof ShadowRoot ? root.host : null
}
