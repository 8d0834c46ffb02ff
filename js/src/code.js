// Code blocks with syntax colours, and buttons that copy the code or put it into a cell.
/** @import { FrontEnd } from "./types.js" */
import hljs from "highlight.js/lib/core"
import bash from "highlight.js/lib/languages/bash"
import c from "highlight.js/lib/languages/c"
import cpp from "highlight.js/lib/languages/cpp"
import css from "highlight.js/lib/languages/css"
import diff from "highlight.js/lib/languages/diff"
import go from "highlight.js/lib/languages/go"
import ini from "highlight.js/lib/languages/ini"
import java from "highlight.js/lib/languages/java"
import javascript from "highlight.js/lib/languages/javascript"
import json from "highlight.js/lib/languages/json"
import julia from "highlight.js/lib/languages/julia"
import markdown from "highlight.js/lib/languages/markdown"
import pythonRepl from "highlight.js/lib/languages/python-repl"
import python from "highlight.js/lib/languages/python"
import r from "highlight.js/lib/languages/r"
import rust from "highlight.js/lib/languages/rust"
import sql from "highlight.js/lib/languages/sql"
import typescript from "highlight.js/lib/languages/typescript"
import xml from "highlight.js/lib/languages/xml"
import yaml from "highlight.js/lib/languages/yaml"
import { button, h, put, scrollable } from "./dom.js"

const LANGUAGES = {
  ...{ bash, c, cpp, css, diff, go, ini, java, javascript, json, julia, markdown, "python-repl": pythonRepl },
  ...{ python, r, rust, sql, typescript, xml, yaml },
}
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language)
hljs.registerAliases("jsonc", { languageName: "json" })
hljs.registerAliases(["toml", "cfg"], { languageName: "ini" })
hljs.registerAliases(["ipython", "ipython3"], { languageName: "python" })

/** Longest piece of code, in characters, that is coloured; a longer piece stays plain. */
const LONGEST = 20_000
const COPIED = 1_500
/** The name under which our JupyterLab extension offers its functions, if installed; js/lab/src/code_blocks.ts says why. */
const FRONT_END = Symbol.for("agentmagic.front-end")

/** Returns code as HTML with syntax colours, or null if the language is unknown. @param {string} code @param {string} language */
export function coloured(code, language) {
  if (!hljs.getLanguage(language) || code.length > LONGEST) return null
  return hljs.highlight(code, { language, ignoreIllegals: true }).value
}

/** Puts a header with the language and buttons above code. @param {HTMLElement} pre @param {string} language @param {string} [text] the code, if it differs from the text shown */
export function framed(pre, language, text) {
  const code = () => (text ?? pre.textContent ?? "").replace(/\n$/, "")
  const head = h("div", { class: "am-code-head" }, h("span", { class: "am-space" }, language), ...inserting(code), copying(pre, code, "Copy code"))
  return h("div", { class: "am-code" }, head, scrollable(pre, language ? `Code, ${language}` : "Code"))
}

/** Returns a button that copies a text. @param {HTMLElement} shown the element that shows it @param {() => string} text @param {string} label */
export function copying(shown, text, label) {
  const copy = button("Copy", () => copyFrom(copy, shown, text()), "quiet", { "aria-label": label })
  return copy
}

/** Returns the buttons that put code into a cell, if the page can do that. @param {() => string} code */
function inserting(code) {
  const frontEnd = /** @type {FrontEnd | undefined} */ (/** @type {any} */ (globalThis)[FRONT_END])
  if (!frontEnd) return []
  /** @param {"insert" | "newCell"} how @param {string} label @param {string} about @param {string} done */
  const putting = (how, label, about, done) => {
    const onclick = (/** @type {Event} */ click) => tell(made, frontEnd[how](code(), click) ? done : "No notebook", label)
    const made = h("button", { type: "button", class: "am-button am-quiet", "aria-label": about, title: about, onclick }, label)
    return made
  }
  return [
    putting("insert", "Insert", "Insert code at the cursor", "Inserted"),
    putting("newCell", "New cell", "Insert code as a new cell", "Inserted"),
  ]
}

/** Shows the result of an action on its button for a moment. @param {HTMLElement} made @param {string} words @param {string} label */
function tell(made, words, label) {
  put(made, words)
  setTimeout(() => put(made, label), COPIED)
}

/** @param {HTMLElement} copy @param {HTMLElement} pre @param {string} code */
async function copyFrom(copy, pre, code) {
  try {
    await navigator.clipboard.writeText(code)
  } catch {
    copySelected(pre)
  }
  tell(copy, "Copied", "Copy")
}

/** Copies code in pages that cannot use the clipboard API. @param {HTMLElement} pre */
function copySelected(pre) {
  getSelection()?.selectAllChildren(pre)
  document.execCommand("copy")
  getSelection()?.removeAllRanges()
}
