// The places of views in a page: elements in the saved HTML of a cell, which a view fills while its kernel answers.
import { Line, LINE } from "./line.js"

/** The element for a view, whose name is in the attribute `view`; it is hidden unless the kernel answers. */
const PLACE = "agentmagic-view"
/** The attribute of a place that the user went to before its view existed. */
const WANTED = "data-wanted"
/** The element with the saved HTML; it is hidden while the kernel answers the view that its attribute `of` names. */
const STATIC = "agentmagic-static"

/**
 * @typedef {object} Shown a drawn view
 * @property {HTMLElement} element
 * @property {CSSStyleSheet} sheet
 * @property {boolean} waits whether a block in it waits for the user
 * @property {boolean} ready whether the user can type or answer in it
 * @property {() => void} takeEarly called when there may be text that was typed before the view existed
 * @property {() => void} back called when the view is in the page again
 * @property {() => void} focus called when the user goes to the view
 * @property {() => void} follow called when the user has begun a turn outside the view
 * @property {() => void} close
 */

/** @typedef {(answered: (is: boolean) => void) => Shown} Make makes a view, which reports through `answered` whether its kernel answers */

/**
 * The functions that make views, by the name of the view. Each notebook of a kernel adds one; the last one is used.
 * @type {Map<string, Make[]>}
 */
const makers = new Map()
/** Text that was typed in panels whose kernel is gone, for the next panel of the same session. @type {Map<string, string>} */
const typed = new Map()
/** The names of views whose kernel answers. @type {Set<string>} */
const alive = new Set()
/** Drawn views that are not in the page now, because JupyterLab removes cells that are out of sight. @type {Map<string, Shown>} */
const idle = new Map()

class Place extends HTMLElement {
  /** @type {Shown | undefined} */
  shown

  connectedCallback() {
    // Keep JupyterLab's one-letter shortcuts from acting on text typed here.
    this.dataset.lmSuppressShortcuts = "true"
    this.fill()
  }

  disconnectedCallback() {
    if (!this.shown) return
    idle.get(this.name)?.close()
    idle.set(this.name, this.shown)
    this.shown = undefined
  }

  get name() {
    return this.getAttribute("view") ?? ""
  }

  /** Whether a block in the view waits for the user, also while JupyterLab has removed the view from the page. */
  get waits() {
    return Boolean((this.shown ?? idle.get(this.name))?.waits)
  }

  /** Whether the view can get the focus. Until then, the JupyterLab extension shows its own box. */
  get ready() {
    return Boolean(this.shown?.ready)
  }

  /** Lets the view take over the text typed in that box; the extension's method `early` of this element returns it. */
  takeEarly() {
    this.shown?.takeEarly()
  }

  /** Focuses the view, or notes the wish until it exists. Called by the JupyterLab extension. @override */
  focus() {
    this.toggleAttribute(WANTED, !this.shown)
    this.shown?.focus()
  }

  /** Has the view scroll to the turn that the user begins over an output. Called by the JupyterLab extension. */
  follow() {
    this.shown?.follow()
  }

  fill() {
    const make = makers.get(this.name)?.at(-1)
    if (!make || this.shown) return
    const known = idle.get(this.name)
    idle.delete(this.name)
    this.shown = known ?? make((is) => live(this.name, is))
    this.look()
    const shadow = this.shadowRoot ?? this.#root()
    shadow.adoptedStyleSheets = [this.shown.sheet]
    shadow.replaceChildren(this.shown.element)
    if (known) known.back()
    if (this.hasAttribute(WANTED)) this.focus()
  }

  #root() {
    const shadow = this.attachShadow({ mode: "open" })
    // In a cell, JupyterLab cancels line breaks, undo and redo that it receives, because of its own editor.
    shadow.addEventListener("beforeinput", (event) => event.stopPropagation())
    return shadow
  }

  empty() {
    if (this.shadowRoot?.activeElement) this.toggleAttribute(WANTED, true)
    this.shown?.close()
    this.shown = undefined
  }

  look() {
    this.hidden = !alive.has(this.name)
  }
}

class Static extends HTMLElement {
  connectedCallback() {
    this.look()
  }

  look() {
    this.hidden = alive.has(this.getAttribute("of") ?? "")
  }
}

const CELL = ".jp-CodeCell"
const OUTPUTS = ".jp-Cell-outputArea:has(> .jp-OutputArea-child > .jp-OutputArea-output > agentmagic-view:not([hidden]))"
/**
 * Selects outputs that Notebook 7 has put in a scrolling box by itself, because they are long. A call that waits for an
 * approval would be out of sight there. Outputs that the user put in a box, which their icon shows, are not selected.
 */
const BOXED = `[data-notebook] ${CELL}.jp-mod-outputsScrolled ${OUTPUTS}:not(:has(> .jp-OutputArea-promptOverlay [data-icon$=":expand"]))`

/** Styles for the page around views. JupyterLab's containers of outputs would keep the bar from sticking to the bottom. */
const AROUND = `
.jp-OutputArea-output:has(> agentmagic-view),
.jp-OutputArea-child:has(> .jp-OutputArea-output > agentmagic-view),
${CELL}:not(.jp-mod-outputsScrolled) ${OUTPUTS},
${BOXED} {
  overflow: clip visible;
  min-width: 0; /* else a long line that is cut short would widen the cell */
}
${BOXED} {
  max-height: none;
  margin-left: 0;
  resize: none;
}
${BOXED}::after {
  content: none;
}
.jp-LinkedOutputView {
  container-type: size;
}
/* A panel in a view of its own has all of it. */
.jp-LinkedOutputView agentmagic-view {
  --am-height: calc(100cqh - 16px);
}
.lm-TabBar-tab[data-agentmagic-waits] .lm-TabBar-tabLabel::before {
  content: "(!) ";
  color: var(--jp-warn-color0, #e65100);
  font-weight: 700;
}
`

/** Shows a view, or the saved HTML in its place. @param {string} name @param {boolean} is whether to show the view */
function live(name, is) {
  if (is === alive.has(name)) return
  if (is) alive.add(name)
  else alive.delete(name)
  for (const element of [...places(name), ...statics(name)]) element.look()
}

/**
 * Draws a view at every place in the page with its name, until the returned function is called.
 * @param {string} name @param {Make} make
 */
function open(name, make) {
  makers.set(name, [...(makers.get(name) ?? []), make])
  renew(name)
  return () => {
    const known = makers.get(name) ?? []
    makers.set(name, known.filter((other) => other !== make))
    if (known.at(-1) === make) renew(name)
  }
}

/** Draws a view again with the last of its makers, if there is one. @param {string} name */
function renew(name) {
  idle.get(name)?.close()
  idle.delete(name)
  for (const place of places(name)) place.empty() // while it is visible: a hidden place has lost the focus
  live(name, false)
  for (const place of places(name)) place.fill()
}

/** @param {string} name @returns {NodeListOf<Place>} */
const places = (name) => document.querySelectorAll(`${PLACE}[view="${CSS.escape(name)}"]`)
/** @param {string} name @returns {NodeListOf<Static>} */
const statics = (name) => document.querySelectorAll(`${STATIC}[of="${CSS.escape(name)}"]`)

/** Returns the functions that all kernels of a page share, because a page can define a custom element only once. */
export function door() {
  if (!customElements.get(PLACE)) {
    customElements.define(PLACE, Object.assign(Place, { open, typed }))
    customElements.define(STATIC, Static)
    customElements.define(LINE, Line)
    const sheet = new CSSStyleSheet()
    sheet.replaceSync(AROUND)
    document.adoptedStyleSheets.push(sheet)
  }
  return /** @type {{open: typeof open, typed: typeof typed}} */ (/** @type {unknown} */ (customElements.get(PLACE)))
}
