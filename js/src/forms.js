// Draws the results of tools: text, JSON as a tree, tables, images.
/** @import { Form } from "./messages.js" */
import { folding, h, scrollable } from "./dom.js"
import { isImage, sanitised } from "./sanitise.js"
import { pageList } from "./sources.js"

const LARGEST_TREE = 200_000
/** Length of a text, in characters, from which it may be higher than its place. */
export const LONG = 600
const MOST_CHILDREN = 100

/** @param {Form} form @returns {HTMLElement} */
export function drawn(form) {
  switch (form.form) {
    case "table":
      return h("div", {}, table(form), noted(form.note))
    case "image":
      return image(form)
    case "pages":
      return h("div", {}, pageList(form), noted(form.note))
    case "html":
      return scrollable(h("div", { class: "am-table am-rich" }, sanitised(form.html, "rich")), "Value")
    default:
      return h("div", {}, tree(form) ?? words(form.text), noted(form.note))
  }
}

/** @param {string} text */
function words(text) {
  const pre = h("pre", {}, text)
  return text.length > LONG ? scrollable(pre, "Text") : pre
}

/** @param {string} note */
export const noted = (note) => note !== "" && h("p", { class: "am-hint" }, note)

/** @param {Extract<Form, {form: "table"}>} form */
function table({ columns, rows, numeric }) {
  /** @param {"th" | "td"} tag @param {string[]} cells */
  const row = (tag, cells) =>
    h("tr", {}, ...cells.map((cell, place) => h(tag, { class: numeric[place] && "am-right", scope: tag === "th" && "col" }, cell)))
  const body = h("tbody", {}, ...rows.map((cells) => row("td", cells)))
  return scrollable(h("div", { class: "am-table" }, h("table", {}, h("thead", {}, row("th", columns)), body)), "Table")
}

/** @param {Extract<Form, {form: "image"}>} form */
function image({ type, data, name, width }) {
  const source = `data:${type};base64,${data}`
  return isImage(source) ? h("img", { src: source, alt: name || "image", width }) : h("p", { class: "am-hint" }, name || "image")
}

/** Returns a foldable tree for JSON that has more than one level. @param {Extract<Form, {form: "text"}>} form */
function tree({ text, note }) {
  if (note || text.length > LARGEST_TREE || !/^[[{]/.test(text) || !text.includes("\n")) return null
  try {
    return h("div", { class: "am-tree" }, ...branches(JSON.parse(text, sourced)))
  } catch {
    return null
  }
}

/** A number in its original spelling: a JavaScript number would lose digits of a long one. */
class Numeral {
  /** @param {string} source */
  constructor(source) {
    this.source = source
  }
}

/** @type {any} browsers that do not tell the source show the number they know */
const sourced = (/** @type {string} */ _key, /** @type {unknown} */ value, /** @type {{source?: string}} */ context) =>
  typeof value === "number" ? new Numeral(context?.source ?? String(value)) : value

/** @param {object} value an array or an object */
function branches(value) {
  const entries = Object.entries(value)
  const shown = entries.slice(0, MOST_CHILDREN).map(([name, item]) => branch(name, item))
  const more = entries.slice(MOST_CHILDREN)
  return more.length ? [...shown, rest(more)] : shown
}

/** Returns a foldable part with the further children of a tree node, drawn when it is first opened. @param {[string, unknown][]} entries */
function rest(entries) {
  return lazily(h("summary", {}, `${entries.length.toLocaleString("en")} more`), () =>
    entries.map(([name, item]) => branch(name, item)),
  )
}

/** @param {string} name @param {unknown} value @returns {HTMLElement} */
function branch(name, value) {
  const key = h("span", { class: "am-key" }, name)
  if (value === null || typeof value !== "object" || value instanceof Numeral) {
    return h("div", { class: "am-leaf" }, key, leaf(value))
  }
  const size = Object.keys(value).length
  const brackets = Array.isArray(value) ? `[${size}]` : `{${size}}`
  const summary = h("summary", {}, key, h("span", { class: "am-hint" }, brackets))
  return lazily(summary, () => branches(value), size > 0 && size <= 8)
}

/** @param {unknown} value */
function leaf(value) {
  if (value instanceof Numeral) return h("span", { class: "am-number" }, value.source)
  if (typeof value === "string") return h("span", { class: "am-string" }, value)
  return h("span", { class: "am-atom" }, String(value))
}

/** Returns a foldable part whose content is drawn when it is first opened. @param {HTMLElement} summary @param {() => HTMLElement[]} inside @param {boolean} [open] */
function lazily(summary, inside, open = false) {
  const body = h("div", { class: "am-branch" })
  const details = folding({ ontoggle: () => details.open && !body.firstChild && body.append(...inside()) }, summary, body)
  if (open) {
    body.append(...inside())
    details.open = true
  }
  return details
}
