// Where views stand in a page: elements of a cell's saved HTML, which a view fills while its kernel is there.

/** The place of a view, named by its `view`; empty, so that without a kernel nothing is seen of it. */
const PLACE = "agentmagic-view"
/** What is read where no view is: it stands aside while the view that it is `of` can be drawn. */
const STATIC = "agentmagic-static"

/**
 * @typedef {object} Shown a view that is drawn
 * @property {HTMLElement} element
 * @property {CSSStyleSheet} sheet
 * @property {() => void} back called when it is in the page again
 * @property {() => void} close
 */

/** The views that can be drawn, by name. @type {Map<string, () => Shown>} */
const makers = new Map()
/** Views that were drawn and are not in the page now: JupyterLab takes out cells that are out of sight. @type {Map<string, Shown>} */
const idle = new Map()

class Place extends HTMLElement {
  /** @type {Shown | undefined} */
  shown

  connectedCallback() {
    // JupyterLab's one-letter shortcuts stay out of what is written here.
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

  fill() {
    const make = makers.get(this.name)
    if (!make || this.shown) return
    const known = idle.get(this.name)
    idle.delete(this.name)
    this.shown = known ?? make()
    const shadow = this.shadowRoot ?? this.attachShadow({ mode: "open" })
    shadow.adoptedStyleSheets = [this.shown.sheet]
    shadow.replaceChildren(this.shown.element)
    if (known) known.back()
  }

  empty() {
    this.shown?.close()
    this.shown = undefined
  }
}

class Static extends HTMLElement {
  connectedCallback() {
    this.fill()
  }

  fill() {
    this.hidden = makers.has(this.getAttribute("of") ?? "")
  }

  empty() {
    this.fill()
  }
}

/**
 * Lets a view be drawn wherever its name stands in the page, until the function that it returns is called.
 * @param {string} name @param {() => Shown} make
 */
function open(name, make) {
  makers.set(name, make)
  for (const place of places(name)) place.fill()
  return () => {
    makers.delete(name)
    idle.get(name)?.close()
    idle.delete(name)
    for (const place of places(name)) place.empty()
  }
}

/** @param {string} name @returns {Iterable<Place | Static>} */
const places = (name) => document.querySelectorAll(`${PLACE}[view="${CSS.escape(name)}"], ${STATIC}[of="${CSS.escape(name)}"]`)

/** The door that all kernels of a page share, whichever brought it: elements can be defined once. */
export function door() {
  if (!customElements.get(PLACE)) {
    customElements.define(PLACE, Object.assign(Place, { open }))
    customElements.define(STATIC, Static)
  }
  return /** @type {{open: typeof open}} */ (/** @type {unknown} */ (customElements.get(PLACE)))
}
