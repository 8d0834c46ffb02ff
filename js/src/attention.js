// What waits for the person: it is scrolled into sight, told by a bar where it is out of sight, and marked on the tab.
/** @import { Block, CardFields, QuestionFields } from "./messages.js" */
/** @import { Waits } from "./types.js" */
/** @import { Log } from "./log.js" */
import { take } from "./approval.js"
import { isFocused } from "./dom.js"
import { mark, notify, tabOf } from "./tab.js"

/** Pixels below what is seen in which the end of a conversation still counts as looked at. */
const NEAR = 160
/** Pixels that a bar covers at the end of what is seen in a cell. */
const BAR = 48
/** Of what a person answers in, the part that must be seen. */
const MOST = 0.5

export class Attention {
  /** @type {Set<number>} the keys of the blocks that wait */
  #keys = new Set()
  /** @type {Set<Element>} what is in sight of the places where those are answered */
  #seen = new Set()
  /** @type {number | undefined} the key of the block to be scrolled to once it is drawn */
  #wanted
  /** @type {number | undefined} the key of one that came before this view was seen, in a turn that was faster */
  #early
  #planned = false
  /** @type {HTMLElement | undefined} where the keys were before what waits took them of itself */
  #from
  /** Whether something was answered and something else waits still. */
  #next = false
  /** Whether the person goes to what waits, which is not drawn yet. */
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

  /** The first block that waits, or null. @returns {Waits | null} */
  get waits() {
    const [first, ...more] = this.#keys
    if (first === undefined) return null
    const places = [...this.#keys].map((key) => this.log.asking(key))
    const hidden = this.#sight !== undefined && !places.some((place) => place && this.#seen.has(place))
    return { block: /** @type {CardFields | QuestionFields} */ (this.blocks().get(first)), more: more.length, hidden }
  }

  /** Looks at blocks that changed, before they are drawn. @param {Iterable<number>} touched */
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

  /** Takes back the mark while no kernel answers: then nothing can be answered here. @param {boolean} is */
  answered(is) {
    if (is === this.#answered) return
    this.#answered = is
    this.#mark()
  }

  /** Goes to what waits. */
  show() {
    const [first = -1] = this.#keys
    const place = this.log.asking(first)
    this.#going = !place && this.#keys.size > 0
    if (this.#going) this.#plan()
    place?.scrollIntoView({ block: "nearest" })
    const target = targetOf(place)
    if (target) take(target, true)
  }

  /** Gives the keys to what waits, if the person is in the notebook's command mode or in this view, and writes nothing. @param {Element} [place] */
  #take(place) {
    const target = place?.getClientRects().length ? targetOf(place) : undefined // hidden while it cannot be answered
    const from = target && this.#free()
    if (!from) return
    this.#from = this.#from?.isConnected ? this.#from : from
    take(target)
  }

  /** Keeps the keys in this view once the person has gone to another part of it. @param {Element} target */
  #leave(target) {
    if (this.#keys.size && !target.closest(OPEN)) this.#from = undefined
  }

  /** Gives the keys back once everything is answered. */
  #giveBack() {
    if (this.#from?.isConnected && isFocused(this.log.element)) this.#from.focus({ preventScroll: true })
    this.#from = undefined
  }

  /** Returns what has the keys now if what waits may take them. */
  #free() {
    const { element, scrolls } = this.log
    const root = element.getRootNode()
    const host = root instanceof ShadowRoot ? root.host : element.closest(".agentmagic")
    const focused = root instanceof ShadowRoot && document.activeElement === host ? root.activeElement : document.activeElement
    if (!(focused instanceof HTMLElement)) return undefined
    const isOurs = root instanceof ShadowRoot ? focused.getRootNode() === root : host?.contains(focused)
    if (isOurs) return isIdle(focused, element) ? focused : undefined
    // What a panel shows may be shown in a cell too, which is nearer to the notebook.
    const commands = !scrolls && host?.closest(".jp-Notebook.jp-mod-commandMode")
    return commands && commands.contains(focused) && !focused.matches(`${WRITTEN}, agentmagic-view`) ? focused : undefined
  }

  close() {
    this.#keys.clear()
    this.#mark()
    this.#sight?.disconnect()
  }

  #mark() {
    this.#tab = tabOf(this.log.element) ?? this.#tab // a cell out of sight is not in the page
    const waits = this.#answered && this.#keys.size > 0
    mark(this, waits ? (this.#tab ?? "") : null)
    if (!waits) this.#notification?.close()
  }

  #plan() {
    if (this.#planned) return
    this.#planned = true
    requestAnimationFrame(() => this.#watch())
  }

  /** Watches the places where blocks that wait are answered, once they are drawn. */
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
    // In the next frame, when what was answered is drawn so, and has let the keys go.
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
    // Within a panel nothing is covered, and all that clips it counts; the margin would not reach into a scroller.
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
   * Whether the person looks at the end of the conversation, or at the cell above it, where nothing of it is seen. All of
   * a turn that was faster than this view comes at once: it is looked at if its beginning is.
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

/** What waits. */
const OPEN = ".am-card[data-state=waiting], .am-question.am-open"
/** What a person writes in. */
const WRITTEN = "textarea, input, select, [contenteditable]"

/** Whether the person does nothing with what has the keys: an empty box for a message, or a part of the log that does not wait. @param {HTMLElement} focused @param {Element} log */
function isIdle(focused, log) {
  if (focused instanceof HTMLTextAreaElement) return focused.closest(".am-composer") !== null && focused.value === ""
  if (focused.matches(WRITTEN) || focused.closest(OPEN)) return false
  return log.contains(focused) || focused.matches(".agentmagic, .am-running, .am-scroller")
}

/**
 * Returns what of a place takes the keys: if nothing else, the block itself, or they would go to an editor.
 * @param {Element} [place] @returns {HTMLElement | undefined}
 */
function targetOf(place) {
  const block = place?.closest(".am-block")
  const found = [".am-pause button", ".am-approval", "summary, textarea"].map((one) => block?.querySelector(one))
  return [...found, block].flatMap((one) => (one instanceof HTMLElement ? one : [])).find((one) => one.getClientRects().length > 0)
}

/** @param {Block} [block] */
const isWaiting = (block) => (block?.kind === "card" && block.state === "waiting") || (block?.kind === "question" && block.ask !== "")

/** Says of a block that it waits. @param {Block} [block] */
export const said = (block) => {
  if (block?.kind === "card") return block.step ? `Paused before ${block.name}` : `${block.title ? `“${block.title}”` : block.name} waits for your approval`
  return block?.kind === "question" && block.step ? "Paused before a request" : "A question waits for your answer"
}

/** What an element is scrolled by: the next element around it that has more than it shows. @param {Element | null} element */
export function scroller(element) {
  for (let node = element; node; node = node.parentElement ?? hostOf(node)) {
    if (/auto|scroll/.test(getComputedStyle(node).overflowY) && node.scrollHeight > node.clientHeight + 1) return node
  }
  return null
}

/** Returns the element whose shadow holds it. @param {Element} element */
export function hostOf(element) {
  const root = element.getRootNode()
  return root instanceof ShadowRoot ? root.host : null
}
