// Draws Markdown while it is being written. Units (paragraphs, lists, tables, code) above the last one cannot change any
// more and are drawn once. The last unit can change: a list is redrawn by items, a table by rows, and code by lines.
/** @import { Token } from "markdown-it" */
/** @import { Unit } from "./markdown.js" */
import { coloured, framed } from "./code.js"
import { elements, html, languageOf, units, withHead } from "./markdown.js"
import { sanitised } from "./sanitise.js"

/** Characters of code that are coloured together; earlier code keeps its colours. */
const STRETCH = 2_000
/** Characters that are parsed at once; more if they all belong to one unit. */
const PORTION = 4_000
/** Units that are drawn at once, because each drawing has a fixed cost. */
const TOGETHER = 8
/** Selects the elements in which the caret can be. */
const FLOW = "p, ul, ol, li, blockquote, h1, h2, h3, h4, h5, h6"
/** Longest text, in characters, that is redrawn at its end because a link was defined after its use. */
const LONGEST_ANEW = 50_000

/** Draws a growing text into an element. */
export class Growing {
  /** @type {Last | null} */
  #last = null
  /** @type {Unit[]} parsed and settled, but not drawn yet */
  #queue = []
  /** @type {Element | null} */
  #caret = null
  #settled = 0
  #drawn = ""
  #open = true
  #late = false
  /** @type {import("./markdown.js").Env} */
  #env = {}

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element
  }

  /**
   * Draws the text so far; returns true if the time was too short for all of it.
   * @param {string} text @param {boolean} open whether more is to come @param {number} deadline
   * @returns {boolean}
   */
  draw(text, open, deadline) {
    if (text === this.#drawn && open === this.#open && !this.#queue.length) return false
    if (!text.startsWith(this.#drawn.slice(0, this.#settled))) this.#restart()
    let parsed
    do {
      if (this.#drain(deadline)) return true
      parsed = this.#parse(text, open)
    } while (parsed.partly && performance.now() < deadline)
    if (parsed.partly || this.#drain(deadline)) return true
    if (parsed.last) this.#grow(parsed.last)
    else this.#drop()
    this.#open = open
    this.#moveCaret()
    return !open && this.#anew(text, deadline)
  }

  /**
   * Parses the part that can still change, or its beginning; returns the last unit if it can still change.
   * @param {string} text @param {boolean} open
   */
  #parse(text, open) {
    const before = count(this.#env.references)
    let length = PORTION
    let tail, found, partly
    do {
      tail = text.slice(this.#settled, this.#settled + length)
      partly = this.#settled + length < text.length
      found = units(tail, this.#env)
      if (open && !partly && PROSE.includes(found.at(-1)?.tokens[0]?.type ?? "")) found = units(withHead(tail), this.#env)
      length *= 2
    } while (partly && found.length < 2)
    this.#late ||= this.#settled > 0 && count(this.#env.references) > before
    const last = open || partly ? found.pop() : undefined
    const start = last ? offset(tail, last.line) : tail.length
    if (last && start && !found.length) this.#drop()
    this.#queue.push(...found)
    this.#settled += start
    this.#drawn = partly ? text.slice(0, this.#settled) : text
    return { last, partly }
  }

  /** Draws the units that cannot change any more, at least one; returns whether the time was too short. @param {number} deadline */
  #drain(deadline) {
    while (this.#queue[0]) {
      if (this.#last?.takes(this.#queue[0].tokens)) this.#keep(/** @type {Unit} */ (this.#queue.shift()))
      else this.#add(this.#queue.splice(0, TOGETHER))
      if (this.#queue.length && performance.now() > deadline) return true
    }
    return false
  }

  /** Updates the unit that was drawn as the last one, and keeps its elements: it is settled now. @param {Unit} unit */
  #keep(unit) {
    this.#last?.draw(unit.tokens, this.#env)
    this.#last?.finish?.()
    this.#last = null
  }

  /** @param {Unit[]} units */
  #add(units) {
    this.#drop()
    this.element.append(elements(units.map((unit) => html(unit.tokens, this.#env)).join("")))
  }

  /** @param {Unit} unit */
  #grow(unit) {
    if (!this.#last?.takes(unit.tokens)) {
      this.#drop()
      this.#last = lastOf(unit.tokens)
      this.element.append(...this.#last.nodes)
    }
    this.#last.draw(unit.tokens, this.#env)
  }

  /** Draws the whole text again if links were defined after their use, unless the text is too long. @param {string} text @param {number} deadline */
  #anew(text, deadline) {
    if (!this.#late || text.length > LONGEST_ANEW) return false
    const env = this.#env
    this.#restart()
    this.#env = env
    return this.draw(text, false, deadline)
  }

  /** Puts the caret after the last word while the text is still growing. */
  #moveCaret() {
    this.#caret?.classList.remove("am-caret")
    if (this.#caret?.className === "") this.#caret.removeAttribute("class")
    let end = this.#open ? this.element.lastElementChild : null
    while (end?.matches("ul, ol, li, blockquote") && end.lastElementChild?.matches(FLOW)) end = end.lastElementChild
    this.#caret = end?.matches(FLOW) ? end : null
    this.#caret?.classList.add("am-caret")
  }

  #drop() {
    for (const node of this.#last?.nodes ?? []) node.remove()
    this.#last = null
  }

  #restart() {
    this.element.replaceChildren()
    this.#last = null
    this.#queue = []
    this.#settled = 0
    this.#drawn = ""
    this.#late = false
    this.#env = {}
  }
}

/**
 * Draws the last unit of a text that is still growing.
 * @typedef {object} Last
 * @property {ChildNode[]} nodes in the page
 * @property {(tokens: Token[]) => boolean} takes returns whether these tokens are a new version of the same unit
 * @property {(tokens: Token[], env: import("./markdown.js").Env) => void} draw
 * @property {() => void} [finish] called when the unit is complete
 */

/** The types that the head of a table is parsed as, until the row of dashes below it is complete. */
const PROSE = ["paragraph_open", "heading_open"]
const BY_PARTS = ["fence", "bullet_list_open", "ordered_list_open", "table_open"]

/** @param {Token[]} tokens @returns {Last} */
function lastOf(tokens) {
  const first = /** @type {Token} */ (tokens[0])
  switch (first.type) {
    case "fence":
      return new LastCode(first)
    case "bullet_list_open":
    case "ordered_list_open":
      return new LastRows(first, "list_item_open", first.tag)
    case "table_open":
      return new LastRows(first, "tr_open", "tbody")
    default:
      return new LastWords()
  }
}

/** Draws a paragraph, a heading or a quotation, each time as a whole. */
class LastWords {
  /** @type {ChildNode[]} */
  nodes = [document.createComment("")]
  #html = ""

  /** @param {Token[]} tokens */
  takes(tokens) {
    return !BY_PARTS.includes(tokens[0]?.type ?? "")
  }

  /** @param {Token[]} tokens @param {import("./markdown.js").Env} env */
  draw(tokens, env) {
    const source = html(tokens, env)
    if (source === this.#html) return
    this.#html = source
    const made = elements(source)
    const nodes = made.childNodes.length ? [...made.childNodes] : [document.createComment("")]
    this.nodes[0]?.replaceWith(...nodes)
    for (const node of this.nodes.slice(1)) node.remove()
    this.nodes = nodes
  }
}

/** Draws a list or a table: only rows whose HTML changed are redrawn. */
class LastRows {
  /** @type {ChildNode[]} */
  nodes = [document.createComment("")]
  /** @type {string[]} */
  #drawn = []
  #shell = ""

  /** @param {Token} first @param {string} row the type of the token that begins a row @param {string} parent */
  constructor(first, row, parent) {
    this.first = first.type
    this.row = row
    this.parent = parent
  }

  /** @param {Token[]} tokens */
  takes(tokens) {
    return tokens[0]?.type === this.first
  }

  /** @param {Token[]} tokens @param {import("./markdown.js").Env} env */
  draw(tokens, env) {
    const { head, rows, tail } = this.#split(tokens)
    const open = html(head, env)
    const close = html(tail, env)
    if (open + close !== this.#shell) this.#begin(open, close)
    const parent = this.#parent()
    rows.forEach((row, place) => this.#row(parent, place, html(row, env), open, close))
  }

  /** @param {string} open @param {string} close */
  #begin(open, close) {
    const [node] = elements(open + close).childNodes
    if (!node) return
    this.nodes[0]?.replaceWith(node)
    this.nodes = [node]
    this.#shell = open + close
    this.#drawn = []
  }

  /** @returns {Element} */
  #parent() {
    const shell = /** @type {Element} */ (this.nodes[0])
    return shell.querySelector(this.parent) ?? shell
  }

  /** @param {Element} parent @param {number} place @param {string} source @param {string} open @param {string} close */
  #row(parent, place, source, open, close) {
    if (this.#drawn[place] === source) return
    this.#drawn[place] = source
    const made = elements(open + source + close)
    const inside = this.parent === "tbody" ? made.querySelector("tbody") : made.firstElementChild
    const row = inside?.lastElementChild
    if (!row) return
    const old = parent.children[place]
    if (old) old.replaceWith(row)
    else parent.append(row)
  }

  /** Splits the tokens of a list or table into those before, in and after its rows. @param {Token[]} tokens */
  #split(tokens) {
    const starts = tokens.flatMap((token, place) => (this.#isRow(token, tokens[0]) ? [place] : []))
    const begin = starts[this.parent === "tbody" ? 1 : 0] ?? tokens.length - 1
    const rows = starts.filter((start) => start >= begin).map((start) => tokens.slice(start, closing(tokens, start) + 1))
    const end = rows.length ? closing(tokens, starts.at(-1) ?? 0) + 1 : tokens.length - 1
    return { head: tokens.slice(0, begin), rows, tail: tokens.slice(end) }
  }

  /** @param {Token} token @param {Token | undefined} list */
  #isRow(token, list) {
    return token.type === this.row && (this.parent === "tbody" || token.level === (list?.level ?? 0) + 1)
  }
}

/** Draws a code block: new text is added to its end, and coloured in stretches. */
class LastCode {
  /** @type {ChildNode[]} */
  nodes
  #code = document.createElement("code")
  #stretch = document.createElement("span")
  #begin = 0
  #drawn = ""

  /** @param {Token} fence */
  constructor(fence) {
    this.language = languageOf(fence)
    const pre = document.createElement("pre")
    this.#code.append(this.#stretch)
    pre.append(this.#code)
    this.nodes = [framed(pre, this.language)]
  }

  /** @param {Token[]} tokens */
  takes(tokens) {
    return tokens[0]?.type === "fence" && languageOf(tokens[0]) === this.language
  }

  /** @param {Token[]} tokens */
  draw(tokens) {
    const code = tokens[0]?.content ?? ""
    if (code === this.#drawn) return
    this.#drawn = code
    const rest = code.slice(this.#begin)
    const cut = rest.length > 2 * STRETCH ? rest.lastIndexOf("\n", rest.length - STRETCH) + 1 : 0
    if (cut) {
      this.#colour(rest.slice(0, cut))
      this.#begin += cut
      this.#stretch = document.createElement("span")
      this.#code.append(this.#stretch)
    }
    this.#colour(rest.slice(cut))
  }

  /** Colours the whole code again at its end, because a string may span two stretches. */
  finish() {
    if (!this.#begin || coloured(this.#drawn, this.language) === null) return
    this.#code.replaceChildren(this.#stretch)
    this.#colour(this.#drawn)
  }

  /** @param {string} code */
  #colour(code) {
    const source = coloured(code, this.language)
    this.#stretch.replaceChildren(source === null ? code : sanitised(source))
  }
}

/** @param {Token[]} tokens @param {number} start */
function closing(tokens, start) {
  const level = tokens[start]?.level
  for (let place = start + 1; place < tokens.length; place++) {
    if (tokens[place]?.level === level && tokens[place]?.nesting === -1) return place
  }
  return tokens.length - 1
}

/** Returns the index at which a line begins in a text. @param {string} text @param {number} line */
function offset(text, line) {
  let place = 0
  for (let number = 0; number < line; number++) place = text.indexOf("\n", place) + 1
  return place
}

/** @param {object | undefined} references */
const count = (references) => Object.keys(references ?? {}).length
