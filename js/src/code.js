// Code: coloured, with a button that copies it.
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

/** Characters of code that are coloured at once; a longer piece stays plain. */
const LONGEST = 20_000
const COPIED = 1_500

/** Returns code as HTML with its words coloured, or null where the language is not known. @param {string} code @param {string} language */
export function coloured(code, language) {
  if (!hljs.getLanguage(language) || code.length > LONGEST) return null
  return hljs.highlight(code, { language, ignoreIllegals: true }).value
}

/** Puts a head with the language and a copy button above code. @param {HTMLElement} pre @param {string} language @param {string} [text] what is copied, if not what is shown */
export function framed(pre, language, text) {
  const copy = button("Copy", () => copyFrom(copy, pre, text), "quiet", { "aria-label": "Copy code" })
  const head = h("div", { class: "am-code-head" }, h("span", {}, language), copy)
  return h("div", { class: "am-code" }, head, scrollable(pre, language ? `Code, ${language}` : "Code"))
}

/** @param {HTMLElement} copy @param {HTMLElement} pre @param {string} [text] */
async function copyFrom(copy, pre, text) {
  try {
    await navigator.clipboard.writeText((text ?? pre.textContent ?? "").replace(/\n$/, ""))
  } catch {
    copySelected(pre)
  }
  put(copy, "Copied")
  setTimeout(() => put(copy, "Copy"), COPIED)
}

/** Copies where a page may not use the clipboard itself. @param {HTMLElement} pre */
function copySelected(pre) {
  getSelection()?.selectAllChildren(pre)
  document.execCommand("copy")
  getSelection()?.removeAllRanges()
}
