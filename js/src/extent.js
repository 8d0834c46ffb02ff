// How much of the texts of a card is in view, for a user who is about to approve them.
import { h, say } from "./dom.js"

/** The shares of a text's height at which its visible part is measured again. */
const STEPS = Array.from({ length: 101 }, (_, step) => step / 100)

/** Counts the lines of texts as they are drawn, and how many of them no edge hides: of a box, of the view, of the page. */
export class Extent {
  element = h("span", { class: "am-extent", hidden: true })
  /** @type {Map<Element, number>} the texts, each with the height of its visible part in pixels */
  #texts = new Map()
  #sight = new IntersectionObserver((entries) => this.#look(entries), { threshold: STEPS })
  #sizes = new ResizeObserver((entries) => this.#again(entries.map(({ target }) => target)))

  /** Measures these texts from now on, and no others. @param {Iterable<Element>} texts */
  watch(texts) {
    this.stop()
    for (const text of texts) {
      this.#texts.set(text, text.clientHeight)
      this.#sight.observe(text)
      this.#sizes.observe(text)
    }
  }

  stop() {
    this.#sight.disconnect()
    this.#sizes.disconnect()
    this.#texts.clear()
    say(this.element, "")
  }

  /** Measures texts again whose size has changed. @param {Element[]} texts */
  #again(texts) {
    for (const text of texts) {
      this.#sight.unobserve(text)
      if (this.#texts.has(text)) this.#sight.observe(text)
    }
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #look(entries) {
    for (const { target, intersectionRect } of entries) if (this.#texts.has(target)) this.#texts.set(target, intersectionRect.height)
    let [seen, all] = [0, 0]
    for (const [text, height] of this.#texts) {
      const lines = linesOf(text, height)
      seen += lines.seen
      all += lines.all
    }
    say(this.element, seen < all ? `${seen.toLocaleString("en")} of ${all.toLocaleString("en")} lines in view` : "")
  }
}

/** Returns how many lines a text has as it is drawn, and how many are in the visible part. @param {Element} text @param {number} height in pixels */
function linesOf(text, height) {
  const { lineHeight, fontSize, paddingTop, paddingBottom } = getComputedStyle(text)
  const line = parseFloat(lineHeight) || parseFloat(fontSize) * 1.5 // "normal" is no number
  const all = Math.max(1, Math.round((text.scrollHeight - parseFloat(paddingTop) - parseFloat(paddingBottom)) / line))
  const hidden = text.scrollHeight - Math.min(height, text.clientHeight)
  // A text of which less than half a line is hidden is in view; a line that is cut in two is not.
  return { all, seen: hidden < line / 2 ? all : Math.max(0, Math.min(all - 1, Math.floor((height - parseFloat(paddingTop)) / line))) }
}
