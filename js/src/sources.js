// The sources of an answer: numbers in its text that open the source, and the list below it. The pages are not loaded.
/** @import { PagesForm, SourceFields, WordsFields } from "./messages.js" */
import { folding, h, isFocused } from "./dom.js"
import { isLink } from "./sanitise.js"

const PRIVATE = 0xe000
/** Marks a source number in Markdown; the next character encodes the number. It is random, so that no text can forge it. Markdown treats its first character as white space. */
const MARK = `\u1680${String.fromCharCode(...crypto.getRandomValues(new Uint16Array(4)).map((one) => PRIVATE + (one % 6_400)))}`
const MARKS = new RegExp(`\u1680?${MARK.slice(1)}([\ue000-\uf8ff])`)

/** Returns a text with marks in place of its source numbers. @param {string} text @param {NonNullable<WordsFields["marks"]>} marks */
export function marked(text, marks) {
  let done = 0
  const pieces = marks.map(([place, before, number]) => {
    const piece = text.slice(done, place) + before + MARK + String.fromCharCode(PRIVATE + number)
    done = place
    return piece
  })
  return pieces.join("") + text.slice(done)
}

/**
 * Replaces the marks by numbers; each number opens its source over the text.
 * @param {HTMLElement} text @param {SourceFields[]} sources @param {HTMLElement} place the parent of an opened source
 */
export function numbered(text, sources, place) {
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT)
  /** @type {Text[]} */
  const nodes = []
  while (walker.nextNode()) if (MARKS.test(walker.currentNode.nodeValue ?? "")) nodes.push(/** @type {Text} */ (walker.currentNode))
  for (const node of nodes) {
    const pieces = node.data.split(MARKS) // alternately a text and the character of a number
    const made = pieces.map((piece, at) => (at % 2 ? numberOf(piece.charCodeAt(0) - PRIVATE, sources, place) : piece))
    node.replaceWith(...made.filter((one) => one !== ""))
  }
}

/** @param {number} number @param {SourceFields[]} sources @param {HTMLElement} place */
function numberOf(number, sources, place) {
  const source = sources.find((one) => one.number === number)
  if (!source) return ""
  const label = `source ${number}: ${source.title}`
  const properties = { type: "button", class: "am-cite", title: source.title, "aria-label": label, "aria-expanded": "false" }
  const element = h("button", { ...properties, onclick: () => open(element, source, place) }, String(number))
  return element
}

/** Shows a source below its number until the source loses the focus. @param {HTMLElement} number @param {SourceFields} source @param {HTMLElement} place */
function open(number, source, place) {
  const card = h("div", { class: "am-source", role: "group", "aria-label": `Source ${source.number}`, tabindex: -1 }, ...page(source), ...quoted(source))
  const close = () => {
    card.remove()
    number.setAttribute("aria-expanded", "false")
  }
  card.addEventListener("focusout", ({ relatedTarget }) => card.contains(/** @type {Node | null} */ (relatedTarget)) || close())
  card.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return
    event.stopPropagation()
    if (isFocused(card)) number.focus()
    close()
  })
  place.append(card)
  number.setAttribute("aria-expanded", "true")
  const [at, frame] = [number.getBoundingClientRect(), place.getBoundingClientRect()]
  card.style.top = `${at.bottom - frame.top + 4}px`
  card.style.left = `${Math.max(0, Math.min(at.left - frame.left, frame.width - card.offsetWidth))}px`
  ;(card.querySelector("a") ?? card).focus({ preventScroll: true })
  card.scrollIntoView({ block: "nearest" })
}

/** Returns the list of the sources. @param {SourceFields[]} sources */
export function sourceList(sources) {
  const entries = sources.map((source) => {
    const quotes = source.quotes.length > 0 && folding({}, h("summary", { class: "am-hint" }, "Quoted"), ...quoted(source))
    return h("li", { value: source.number }, ...page(source), quotes)
  })
  const title = h("p", { class: "am-heading", role: "heading", "aria-level": 3 }, "Sources")
  return h("div", { class: "am-sources" }, title, h("ol", { "aria-label": "Sources" }, ...entries))
}

/** Returns the list of pages that a web search found. @param {PagesForm} form */
export const pageList = ({ pages }) =>
  h("ol", { class: "am-pages", "aria-label": "Pages" }, ...pages.map(([title, address, link, text]) => h("li", {}, ...page({ title, address, link }), text && h("p", {}, text))))

/** Returns the title of a page, as a link if the link is allowed, and its address. @param {{title: string, address: string, link: string}} page */
function page({ title, address, link }) {
  const properties = { href: link, target: "_blank", rel: "noopener noreferrer nofollow" }
  return [isLink(link) ? h("a", properties, title) : h("span", {}, title), " ", h("span", { class: "am-address" }, address)]
}

/** @param {SourceFields} source */
const quoted = ({ quotes }) => quotes.map((quote) => h("blockquote", {}, quote))
