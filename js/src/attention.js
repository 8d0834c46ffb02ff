// What waits for the person: it is scrolled into sight, told by a bar where it is out of sight, and marked on the tab.
/** @import { Block, CardFields, QuestionFields } from "./messages.js" */
/** @import { Waits } from "./types.js" */
/** @import { Log } from "./log.js" */
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
  #planned = false
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
      if (this.#isAtEnd()) this.#wanted = came
      this.#notification = notify(said(this.blocks().get(came)), () => this.show()) ?? this.#notification
    }
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
    // If nothing of it takes the keys now, the block itself does: else they would go to an editor.
    const block = place?.closest(".am-block")
    const targets = [block?.querySelector(".am-pause button"), block?.querySelector("summary, textarea"), block]
    const target = targets.find((one) => one instanceof HTMLElement && one.getClientRects().length > 0)
    if (target instanceof HTMLElement) target.focus({ preventScroll: true })
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
    if (this.#wanted !== undefined) this.log.asking(this.#wanted)?.scrollIntoView({ block: "nearest" })
    this.#wanted = undefined
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

  /** Whether the person looks at the end of the conversation, or at the cell above it, where nothing of it is seen. */
  #isAtEnd() {
    const { element, following } = this.log
    const { top, bottom } = element.getBoundingClientRect()
    const seen = scroller(element.parentElement)?.getBoundingClientRect() ?? { top: 0, bottom: innerHeight }
    const [end, start] = [bottom - seen.bottom, top - seen.bottom]
    return following && bottom > seen.top && (end < NEAR || (start > -BAR && start < NEAR))
  }
}

/** @param {Block} [block] */
const isWaiting = (block) => (block?.kind === "card" && block.state === "waiting") || (block?.kind === "question" && block.ask !== "")

/** Says of a block that it waits. @param {Block} [block] */
export const said = (block) => {
  if (block?.kind === "card") return block.step ? `Paused before ${block.name}` : `${block.name} waits for your approval`
  return block?.kind === "question" && block.step ? "Paused before a request" : "A question waits for your answer"
}

/** What an element is scrolled by: the next element around it that has more than it shows. @param {Element | null} element */
export function scroller(element) {
  for (let node = element; node; node = node.parentElement ?? hostOf(node)) {
    if (/auto|scroll/.test(getComputedStyle(node).overflowY) && node.scrollHeight > node.clientHeight + 1) return node
  }
  return null
}

/** @param {Element} element */
function hostOf(element) {
  const root = element.getRootNode()
  return root instanceof ShadowRoot ? root.host : null
}
