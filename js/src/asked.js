// The card that asks about an act of this page, outside any turn: what it would do, as the command that does the same.
/** @import { PageQuestion, State } from "./messages.js" */
/** @import { Desk } from "./types.js" */
import { answeredByKeys, keyed, take } from "./approval.js"
import { h, heading, isFocused, put } from "./dom.js"
import { Extent } from "./extent.js"
import { mark, notify, tabOf } from "./tab.js"

export class Asked {
  element = h("div", { class: "am-page-question", role: "group", "aria-label": "Question about this panel", tabindex: -1, hidden: true })
  #extent = new Extent()
  /** @type {PageQuestion | null} */
  #question = null
  /** @type {HTMLElement | null} the element that had the focus before the card took it */
  #from = null
  /** @type {HTMLElement | null} the element that had the focus when the user did the last action in this view */
  #acted = null

  /** @param {Desk} desk @param {() => void} refuge focuses another part of the view if the element before is gone */
  constructor(desk, refuge) {
    this.desk = desk
    this.refuge = refuge
    answeredByKeys(this.element, () => this.waits)
  }

  /** Whether the card waits for the user. */
  get waits() {
    return this.#question !== null
  }

  /** @param {State} state */
  update({ asked = null }) {
    const shown = asked && this.desk.can("approve") ? asked : null
    if (shown?.ask === this.#question?.ask) return
    const inside = isFocused(this.element)
    this.#question = shown
    if (shown) this.#draw(shown)
    else this.#extent.stop()
    mark(this, shown ? (tabOf(this.element) ?? "") : null)
    if (shown && inside) take(this.element) // a key that was meant for the question before does not answer this one
    else if (shown) requestAnimationFrame(() => this.#take())
    if (shown) return
    if (inside) this.#giveBack()
    this.element.hidden = true
  }

  /** Remembers where the focus is, because the user does something: a menu that closes loses the focus. */
  acts() {
    this.#acted = this.#focused() ?? null
  }

  /** Focuses the card, because the user goes there. */
  show() {
    this.element.scrollIntoView({ block: "nearest" })
    take(this.element, true)
  }

  close() {
    mark(this, null)
    this.#extent.stop()
  }

  /** @param {PageQuestion} question */
  #draw({ ask, about, line, target }) {
    const { desk, element } = this
    const text = (/** @type {string} */ words, /** @type {string} */ label) => h("pre", { tabindex: 0, "aria-label": label }, words)
    const texts = [text(line, "Command"), ...(target ? [text(target, "Server")] : [])]
    const approve = keyed("y", "Approve", () => desk.act({ type: "approve", id: ask }), "go")
    const deny = keyed("n", "Deny", () => desk.act({ type: "deny", id: ask, reason: "" }), "quiet")
    put(
      element,
      h("p", { class: "am-asked" }, h("b", {}, "Run this? "), about),
      texts[0],
      target ? heading("The server") : null,
      texts[1],
      h("div", { class: "am-row" }, approve, this.#extent.element, deny),
    )
    element.hidden = false
    this.#extent.watch(texts)
    const words = `The panel asks: ${about} ${line}`
    desk.announce(words)
    notify(words, () => this.show())
  }

  /** Focuses the card if the focus is in this view, and the user is not writing there. */
  #take() {
    const { element } = this
    element.scrollIntoView({ block: "nearest" })
    const lost = this.#acted?.isConnected && !this.#acted.checkVisibility() ? this.#acted : null // it was in a menu
    const focused = this.#focused() ?? lost
    if (!focused) return
    const isBox = focused.matches("textarea, input:not([type=checkbox])")
    if (isBox && /** @type {HTMLInputElement} */ (focused).value) return
    this.#from = lost ?? focused
    take(element, lost !== null || !isBox) // after a click, keys answer at once; in a box, the user may be about to write
  }

  /** Returns the focused element of this view, if it has the focus. @returns {HTMLElement | undefined} */
  #focused() {
    const root = this.element.getRootNode()
    const focused = root instanceof ShadowRoot || root instanceof Document ? root.activeElement : null
    return focused instanceof HTMLElement && this.element.closest(".agentmagic")?.contains(focused) ? focused : undefined
  }

  #giveBack() {
    const of = this.#from?.getAttribute("data-of") // the name of a button that another one has replaced meanwhile
    const places = of ? [...(this.element.closest(".agentmagic")?.querySelectorAll(`[data-of="${CSS.escape(of)}"]`) ?? [])] : []
    const from = this.#from?.isConnected ? this.#from : /** @type {HTMLElement | undefined} */ (places.at(-1))
    const target = from?.closest("details:not([open])")?.querySelector("summary") ?? from
    this.#from = null
    if (target?.getClientRects().length) target.focus({ preventScroll: true })
    else this.refuge()
  }
}
