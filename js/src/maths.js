// Typesets TeX between dollar signs, as in Jupyter's front ends, as MathML, which browsers draw with installed fonts.
/** @import { MarkdownIt, Token } from "markdown-it" */
import temml from "temml"
import { sanitised } from "./sanitise.js"

const INLINE =
  /\$\$(?<d>.{1,2000}?)\$\$|\$(?![\s$])(?<i>[^$\n]{0,500}?[^\s$\\])\$(?!\d)|\\\((?<p>.{1,500}?)\\\)|\\\[(?<b>.{1,2000}?)\\\]/suy
const BLOCK = /^(?:\$\$(?<d>[\s\S]{1,5000}?)\$\$|\\\[(?<b>[\s\S]{1,5000}?)\\\])[ \t]*(?:\n|$)/u
const MOST_LINES = 100
const MOST_KEPT = 300

/** Makes the Markdown parser keep formulas unchanged, so that `typeset` finds them. @param {MarkdownIt} md */
export function maths(md) {
  md.inline.ruler.before("escape", "maths", inline)
  md.block.ruler.before("fence", "maths_block", block, { alt: ["paragraph", "list", "blockquote"] })
  md.renderer.rules.maths = (tokens, index) => {
    const token = /** @type {Token} */ (tokens[index])
    return `<span class="am-maths${token.markup}">${md.utils.escapeHtml(token.content)}</span>`
  }
}

/** @param {any} state @param {boolean} silent */
function inline(state, silent) {
  if (state.src[state.pos] !== "$" && state.src[state.pos] !== "\\") return false
  INLINE.lastIndex = state.pos
  const found = INLINE.exec(state.src)
  if (!found || INLINE.lastIndex > state.posMax) return false
  const { d, i, p, b } = found.groups ?? {}
  if (!silent) {
    const token = state.push("maths", "span", 0)
    token.content = d ?? i ?? p ?? b
    token.markup = d || b ? " am-display" : ""
  }
  state.pos = INLINE.lastIndex
  return true
}

/** @param {any} state @param {number} start @param {number} end @param {boolean} silent */
function block(state, start, end, silent) {
  const from = state.bMarks[start] + state.tShift[start]
  const opening = state.src.slice(from, from + 2)
  if ((opening !== "$$" && opening !== "\\[") || state.sCount[start] - state.blkIndent >= 4) return false
  const source = state.getLines(start, Math.min(end, start + MOST_LINES), state.blkIndent, false).trimStart()
  const found = BLOCK.exec(source)
  if (!found) return false
  if (silent) return true
  const lines = found[0].trimEnd().split("\n").length
  const token = state.push("maths", "span", 0)
  token.content = (found.groups?.d ?? found.groups?.b ?? "").trim()
  token.markup = " am-display"
  token.map = [start, start + lines]
  state.line = start + lines
  return true
}

/** @type {Map<string, string>} */
const kept = new Map()

/** Typesets the formulas in a part of a page. @param {ParentNode} page */
export function typeset(page) {
  for (const place of page.querySelectorAll(".am-maths")) {
    const tex = place.textContent ?? ""
    place.replaceChildren(sanitised(mathml(tex, place.classList.contains("am-display")), "maths"))
    if (!place.textContent) place.textContent = tex
  }
}

/** @param {string} tex @param {boolean} displayMode */
function mathml(tex, displayMode) {
  const key = `${displayMode} ${tex}`
  const known = kept.get(key)
  if (known !== undefined) return known
  if (kept.size > MOST_KEPT) kept.clear()
  const made = render(tex, displayMode)
  kept.set(key, made)
  return made
}

/** @param {string} tex @param {boolean} displayMode */
function render(tex, displayMode) {
  try {
    return temml.renderToString(tex, { displayMode, throwOnError: true, maxExpand: 200, maxSize: [20, 200], trust: !SANITISE })
  } catch {
    return "" // invalid TeX stays as it was written
  }
}
