// Converts a model's Markdown to elements: markdown-it escapes HTML in the text, and sanitise.js checks the output.
/** @import { Token } from "markdown-it" */
import MarkdownIt from "markdown-it"
import { coloured, framed } from "./code.js"
import { h, scrollable } from "./dom.js"
import { maths, typeset } from "./maths.js"
import { isImage, isLink, sanitised } from "./sanitise.js"

const TASK = /^\[([ xX])\][ \u00a0]/

const md = new MarkdownIt({ html: !SANITISE, linkify: true })
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false })
md.use(maths)
if (SANITISE) md.validateLink = (url) => isLink(url) || isImage(url)
else md.validateLink = () => true

const { escapeHtml } = md.utils

md.renderer.rules.fence = md.renderer.rules.code_block = (tokens, index) => {
  const token = /** @type {Token} */ (tokens[index])
  const language = languageOf(token)
  const html = coloured(token.content, language) ?? escapeHtml(token.content)
  return `<pre title="${escapeHtml(language)}"><code>${html}</code></pre>`
}

md.renderer.rules.image = (tokens, index) => {
  const token = /** @type {Token} */ (tokens[index])
  const source = String(token.attrGet("src") ?? "")
  const words = escapeHtml(token.content)
  if (isImage(source) || !SANITISE) return `<img src="${escapeHtml(source)}" alt="${words}">`
  return `<a href="${escapeHtml(source)}">${words || "image"}</a>`
}

for (const cell of ["th_open", "td_open"]) {
  md.renderer.rules[cell] = (tokens, index) => {
    const token = /** @type {Token} */ (tokens[index])
    const side = /text-align:(right|center)/.exec(String(token.attrGet("style") ?? ""))
    return `<${token.tag}${side ? ` class="am-${side[1]}"` : ""}>`
  }
}

md.core.ruler.after("inline", "tasks", (state) => {
  state.tokens.forEach((token, index) => {
    const inItem = token.type === "inline" && state.tokens[index - 2]?.type === "list_item_open"
    const task = inItem && TASK.exec(token.content)
    const first = token.children?.[0]
    if (!task || first?.type !== "text") return
    const box = new state.Token("html_inline", "", 0)
    const done = task[1] !== " "
    box.content = `<span class="am-task">${done ? "☑" : "☐"}</span> `
    first.content = first.content.slice(task[0].length)
    token.children?.unshift(box)
    state.tokens[index - 2]?.attrJoin("class", "am-item-task")
  })
})

/** Returns the language of a code block, as it is shown. @param {Token} token */
export function languageOf(token) {
  return (token.info.trim().split(/\s+/)[0] ?? "").toLowerCase().slice(0, 30)
}

/** The link definitions of a text, filled while the text is parsed. @typedef {{references?: Record<string, any>, [other: string]: any}} Env */

/**
 * A self-contained part of a Markdown text: a paragraph, a list, a table.
 * @typedef {object} Unit
 * @property {Token[]} tokens
 * @property {number} line the number of its first line
 */

/**
 * Returns a text that ends with the head of a table with the row of dashes completed below it, so that the head is drawn
 * as a table from its first word on. Other texts are unchanged. Python's `with_head` does the same.
 * @param {string} text
 */
export function withHead(text) {
  const lines = text.split("\n")
  const dashes = lines.at(-2)?.includes("|") && /^ {0,3}\|?[-:| ]*$/.test(lines.at(-1) ?? "") ? (lines.pop() ?? "") : ""
  const head = lines.at(-1) ?? ""
  const isHead = /^ {0,3}\|/.test(head) || (head.includes("|") && dashes.includes("-"))
  if (!isHead || lines.at(-2)?.includes("|")) return text
  const cells = head.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/)
  return [...lines.slice(0, -1), head.trim() === "|" ? "| |" : head, `|${"---|".repeat(cells.length)}`].join("\n")
}

/** Parses Markdown into its units. @param {string} text @param {Env} env */
export function units(text, env) {
  /** @type {Unit[]} */
  const found = []
  let level = 0
  for (const token of md.parse(text, env)) {
    if (level === 0) found.push({ tokens: [], line: token.map?.[0] ?? found.at(-1)?.line ?? 0 })
    found.at(-1)?.tokens.push(token)
    level += token.nesting
  }
  return found
}

/** Returns the HTML of some tokens, not sanitised yet. @param {Token[]} tokens @param {Env} env */
export const html = (tokens, env) => md.renderer.render(tokens, md.options, env)

/** Converts HTML to elements: sanitised, with formulas typeset and frames around code. @param {string} source */
export function elements(source) {
  const page = sanitised(source)
  typeset(page)
  for (const pre of /** @type {NodeListOf<HTMLElement>} */ (page.querySelectorAll("pre"))) {
    const language = pre.title
    pre.removeAttribute("title")
    const place = document.createComment("")
    pre.replaceWith(place)
    place.replaceWith(framed(pre, language))
  }
  for (const table of page.querySelectorAll("table")) {
    const frame = h("div", { class: "am-table" })
    table.replaceWith(frame)
    frame.append(table)
    scrollable(frame, "Table")
  }
  return page
}
