// Helpers for DOM elements. Untrusted text enters the page only as text, through `put`, or sanitised, through markdown.js.

/** @typedef {Node | string | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg"

/**
 * Creates an element. Properties named `on...` are listeners; all others are attributes (true: present, false or null: absent).
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value)
  }
  return put(element, ...children)
}

/**
 * Replaces the children of an element; strings become text only. A child that stays is not touched, so that it keeps its
 * focus and a click that has begun.
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function put(element, ...children) {
  const nodes = children.filter((child) => child !== null && child !== undefined && child !== false)
  for (const old of [...element.childNodes]) if (!nodes.includes(old)) old.remove()
  let next = element.firstChild
  for (const node of nodes) {
    if (node === next) next = next.nextSibling
    else element.insertBefore(typeof node === "string" ? asText(node) : node, next)
  }
  return element
}

/**
 * Returns the element that was created under a name, or creates it, so that an element in use is not replaced.
 * @template {Element} E
 * @param {Map<string, E>} made @param {string} name @param {() => E} make
 * @returns {E}
 */
export function once(made, name, make) {
  const element = made.get(name) ?? make()
  made.set(name, element)
  return element
}

/** Returns a number with a noun, in the plural if needed: "2 turns". @param {number} number @param {string} thing */
export const counted = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`

/**
 * Sets an element's text if it differs, and hides the element if the text is empty.
 * @param {HTMLElement} element @param {string} text
 */
export function say(element, text) {
  if (element.dataset.said === text) return
  element.dataset.said = text
  element.hidden = text === ""
  put(element, text)
}

/** @param {string} text @returns {Node} */
function asText(text) {
  return SANITISE ? document.createTextNode(text) : document.createRange().createContextualFragment(text)
}

/**
 * Returns an icon of 16 by 16 points, drawn from its path and hidden from screen readers.
 * @param {string} path @param {string} name
 */
export function icon(path, name) {
  const svg = document.createElementNS(SVG, "svg")
  svg.setAttribute("viewBox", "0 0 16 16")
  svg.setAttribute("aria-hidden", "true")
  svg.setAttribute("class", `am-icon am-icon-${name}`)
  const line = document.createElementNS(SVG, "path")
  line.setAttribute("d", path)
  svg.append(line)
  return svg
}

/** Returns whether an element, also one in a shadow tree, contains the focus. @param {Element} element */
export function isFocused(element) {
  const root = /** @type {Document | ShadowRoot} */ (element.getRootNode())
  return element.contains(root.activeElement ?? null)
}

/**
 * Hides or shows an element. If the element had the focus, `refuge` gets it; otherwise the next key would go to the notebook.
 * @param {HTMLElement} element @param {boolean} hidden @param {HTMLElement} refuge
 */
export function hide(element, hidden, refuge) {
  if (hidden && isFocused(element)) refuge.focus({ preventScroll: true })
  element.hidden = hidden
}

/** Makes a scrollable element reachable by keyboard. @template {HTMLElement} E @param {E} element @param {string} label @returns {E} */
export function scrollable(element, label) {
  element.tabIndex = 0
  element.setAttribute("role", "group")
  element.setAttribute("aria-label", label)
  return element
}

let folds = 0

/**
 * Returns an element that a summary opens. It is a group for screen readers, so it has the summary's name.
 * @param {Record<string, any>} properties @param {HTMLElement} summary @param {...Child} inside
 */
export function folding(properties, summary, ...inside) {
  summary.id ||= `am-fold-${++folds}`
  return h("details", { "aria-labelledby": summary.id, ...properties }, summary, ...inside)
}

/** Returns a small title for a card. It is not a heading element, because it is inside another page. @param {string} words */
export const heading = (words) => h("p", { class: "am-heading" }, words)

/**
 * Returns a button with a text; `kind` is "go" for the main button, "quiet" for rarely used ones.
 * @param {string} label @param {() => void} onclick @param {string} [kind] @param {Record<string, any>} [properties]
 */
export function button(label, onclick, kind = "", properties = {}) {
  return h("button", { type: "button", class: `am-button ${kind && `am-${kind}`}`, onclick, ...properties }, label)
}

/**
 * Returns a button with an icon; screen readers read its label, which is also its tooltip.
 * @param {string} label @param {string} path @param {() => void} onclick
 */
export function iconButton(label, path, onclick) {
  const properties = { type: "button", class: "am-button am-quiet am-small", "aria-label": label, title: label, onclick }
  return h("button", properties, icon(path, "button"))
}

/**
 * Returns a text box that grows with its text. If `send` is given, Enter calls it, also with Ctrl or Cmd; otherwise, and
 * with other modifiers, Enter inserts a new line. Escape calls `back`.
 * @param {string} label @param {{text?: string, send?: () => void, back?: () => void}} [options]
 */
export function writingBox(label, { text = "", send, back } = {}) {
  const box = h("textarea", { class: "am-box", rows: 1, "aria-label": label, spellcheck: "false" })
  const fit = () => {
    box.style.height = "auto"
    box.style.height = `${box.scrollHeight + 2}px`
  }
  box.value = text
  box.addEventListener("input", fit)
  box.addEventListener("keydown", (event) => {
    if (event.isComposing) return // the key belongs to an input method, for example for Japanese
    if (event.key === "Escape") back?.()
    if (!send || event.key !== "Enter" || event.shiftKey || event.altKey) return
    event.preventDefault()
    send()
  })
  requestAnimationFrame(fit)
  return box
}

/**
 * Completions for the text before the caret: the position where the completed word begins, and words with descriptions.
 * @typedef {{from: number, words: [word: string, about: string][]} | null} Offer
 */

/** Shows completions below a text box: the arrow keys choose one, Enter or Tab inserts it, Escape closes the list. */
export class Suggestions {
  /** @type {Offer} */
  #offer = null
  #chosen = 0

  /** @param {HTMLTextAreaElement} box @param {(before: string) => Offer} offer */
  constructor(box, offer) {
    this.box = box
    this.offer = offer
    this.element = h("ul", { class: "am-suggestions", role: "listbox", "aria-label": "Suggestions", id: `am-${Math.random()}`, hidden: true })
    box.setAttribute("aria-autocomplete", "list")
    box.setAttribute("aria-controls", this.element.id)
    // Do not offer completions for a text that was put into the box as a whole.
    box.addEventListener("input", (event) => (event instanceof CustomEvent ? this.#close() : this.#look()))
    box.addEventListener("blur", () => this.#close())
    box.addEventListener("keydown", (event) => this.#key(event), true) // capture, to run before the box sends its text
    // Keep the focus in the box while a word is clicked.
    this.element.addEventListener("mousedown", (event) => event.preventDefault())
  }

  #look() {
    const { box } = this
    this.#offer = box.selectionStart === box.selectionEnd ? this.offer(box.value.slice(0, box.selectionStart)) : null
    this.#chosen = 0
    if (!this.#offer?.words.length) return this.#close()
    put(this.element, ...this.#offer.words.map(([word, about], place) => this.#option(word, about, place)))
    this.element.hidden = false
    this.#choose(0)
  }

  /** @param {string} word @param {string} about @param {number} place */
  #option(word, about, place) {
    const properties = { role: "option", id: `${this.element.id}-${place}`, onclick: () => this.#take(place) }
    return h("li", properties, h("span", { class: "am-mono" }, word), h("span", { class: "am-hint" }, about))
  }

  /** @param {number} place */
  #choose(place) {
    const options = [...this.element.children]
    this.#chosen = (place + options.length) % options.length
    options.forEach((option, number) => option.setAttribute("aria-selected", String(number === this.#chosen)))
    const chosen = options[this.#chosen]
    chosen?.scrollIntoView({ block: "nearest" })
    this.box.setAttribute("aria-activedescendant", chosen?.id ?? "")
  }

  /** @param {number} place */
  #take(place) {
    const { box } = this
    const from = this.#offer?.from ?? 0
    const word = this.#offer?.words[place]?.[0] ?? ""
    box.setRangeText(word.endsWith("[") ? word : `${word} `, from, box.selectionStart, "end")
    box.dispatchEvent(new Event("input"))
  }

  #close() {
    this.element.hidden = true
    this.box.removeAttribute("aria-activedescendant")
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (this.element.hidden || event.isComposing || event.shiftKey) return
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.#choose(this.#chosen + (event.key === "ArrowDown" ? 1 : -1))
    else if (event.key === "Enter" || event.key === "Tab") this.#take(this.#chosen)
    else if (event.key === "Escape") this.#close()
    else return
    event.preventDefault()
    event.stopImmediatePropagation()
  }
}

/** Lets the up key, in the first line of a box, restore earlier texts, and the down key go back. @param {HTMLTextAreaElement} box @param {() => string[]} earlier the earlier texts, newest first */
export function recalling(box, earlier) {
  let place = -1
  let draft = ""
  box.addEventListener("keydown", (event) => {
    const up = event.key === "ArrowUp"
    if (!(up || event.key === "ArrowDown") || event.shiftKey || event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return
    const texts = earlier()
    if (place >= 0 && box.value !== texts[place]) place = -1 // the restored text was edited, so it is a new draft
    const rest = up ? box.value.slice(0, box.selectionStart) : box.value.slice(box.selectionEnd)
    const next = place + (up ? 1 : -1)
    if (rest.includes("\n") || next < -1 || next >= texts.length) return
    event.preventDefault()
    if (place < 0) draft = box.value
    place = next
    box.value = texts[place] ?? draft
    const caret = up ? 0 : box.value.length
    box.setSelectionRange(caret, caret)
    box.dispatchEvent(new CustomEvent("input", { detail: "recalled" }))
  })
}

/** Returns a menu that opens from its summary; it closes after a click on an item, with Escape, and when it loses the focus. @param {HTMLElement} summary @param {HTMLElement} items */
export function menu(summary, items) {
  const element = folding({}, summary, items)
  const close = () => element.removeAttribute("open")
  items.addEventListener("click", ({ target }) => target instanceof HTMLButtonElement && close())
  element.addEventListener("focusout", ({ relatedTarget }) => element.contains(/** @type {Node} */ (relatedTarget)) || close())
  element.addEventListener("keydown", ({ key }) => key === "Escape" && (close(), summary.focus()))
  return element
}

export const ICONS = {
  new: "M8 3v10M3 8h10",
  chevron: "M6 4l4 4-4 4",
  done: "M3 8.5 6.5 12 13 4.5",
  failed: "m4 4 8 8m0-8-8 8",
  denied: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2M3.8 3.8l8.4 8.4",
  partly: "M8 3v6M8 12.5h.01",
  interrupted: "M4.5 4.5h7v7h-7z",
  running: "M8 2a6 6 0 1 1-6 6",
  waiting: "M5.5 3.5v9m5-9v9",
  pending: "M4 8h.01M8 8h.01M12 8h.01",
  edit: "M3 13l.7-2.8 7.2-7.2 2.1 2.1-7.2 7.2z",
  retry: "M12.5 5.5A5 5 0 1 0 13 9M13 2.5v3.2H9.8",
  fork: "M4 2.5v4c0 2 2 2.5 4 2.5s4 .5 4 2.5v2M4 6.5v7",
  down: "M8 3v9m-4-4 4 4 4-4",
  up: "M8 13V4m-4 4 4-4 4 4",
  file: "M12.5 7.5 7.6 12.4a2.9 2.9 0 0 1-4.1-4.1l5.3-5.3a1.9 1.9 0 0 1 2.7 2.7L6.3 10.9a.9.9 0 0 1-1.3-1.3l4.6-4.6",
}
