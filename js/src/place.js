// Where views stand in a page: elements of a cell's saved HTML, which a view fills while its kernel is there.

/** The place of a view, named by its `view`; without a kernel that answers nothing is seen of it. */
const PLACE = "agentmagic-view"
/** What a place bears if the person has come to it before its view is there. */
const WANTED = "data-wanted"
/** What is read then: it stands aside while the kernel answers the view that it is `of`. */
const STATIC = "agentmagic-static"

/**
 * @typedef {object} Shown a view that is drawn
 * @property {HTMLElement} element
 * @property {CSSStyleSheet} sheet
 * @property {boolean} waits whether something in it waits for the person
 * @property {boolean} ready whether it can be typed in, or answered
 * @property {() => void} takeEarly called when there may be words that were typed before it was there
 * @property {() => void} back called when it is in the page again
 * @property {() => void} focus called when the person comes to it
 * @property {() => void} close
 */

/** @typedef {(answered: (is: boolean) => void) => Shown} Make makes a view that says whether its kernel answers */

/**
 * The views that can be drawn, by name. The last of several draws: each notebook of a kernel brings one.
 * @type {Map<string, Make[]>}
 */
const makers = new Map()
/** What was typed in panels whose kernel is gone, for the next panel of the same session. @type {Map<string, string>} */
const typed = new Map()
/** The names of those whose kernel answers. @type {Set<string>} */
const alive = new Set()
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

  /** Whether something in the view waits for the person, also while JupyterLab has it out of the page. */
  get waits() {
    return Boolean((this.shown ?? idle.get(this.name))?.waits)
  }

  /** Whether the keys can go to the view. Until then the JupyterLab extension has a box of its own. */
  get ready() {
    return Boolean(this.shown?.ready)
  }

  /** Has the view take over what was typed in that box, which is what the extension's `early` of this element returns. */
  takeEarly() {
    this.shown?.takeEarly()
  }

  /** The JupyterLab extension calls this when the person comes to the view. @override */
  focus() {
    this.toggleAttribute(WANTED, !this.shown)
    this.shown?.focus()
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
    // In a cell, JupyterLab cancels line breaks, undo and redo that it hears of, for its own editor's sake.
    shadow.addEventListener("beforeinput", (event) => event.stopPropagation())
    return shadow
  }

  empty() {
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
 * What Notebook 7 scrolls in a box, by itself, if an output is long when something is added to it. A call that waits
 * for an approval there would be out of sight at once. What a person puts in a box stays there: its icon says so.
 */
const BOXED = `[data-notebook] ${CELL}.jp-mod-outputsScrolled ${OUTPUTS}:not(:has(> .jp-OutputArea-promptOverlay [data-icon$=":expand"]))`

/** Of the page around views. What JupyterLab puts around an output would keep a bar from the end of what is seen. */
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

/** Shows a view, or what is read without it. @param {string} name @param {boolean} is */
function live(name, is) {
  if (is === alive.has(name)) return
  if (is) alive.add(name)
  else alive.delete(name)
  for (const element of [...places(name), ...statics(name)]) element.look()
}

/**
 * Lets a view be drawn wherever its name stands in the page, until the function that it returns is called.
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

/** Has a view drawn anew by the last of its makers, if there is one. @param {string} name */
function renew(name) {
  idle.get(name)?.close()
  idle.delete(name)
  live(name, false)
  for (const place of places(name)) {
    place.empty()
    place.fill()
  }
}

/** @param {string} name @returns {NodeListOf<Place>} */
const places = (name) => document.querySelectorAll(`${PLACE}[view="${CSS.escape(name)}"]`)
/** @param {string} name @returns {NodeListOf<Static>} */
const statics = (name) => document.querySelectorAll(`${STATIC}[of="${CSS.escape(name)}"]`)

/** The door that all kernels of a page share, whichever brought it: elements can be defined once. */
export function door() {
  if (!customElements.get(PLACE)) {
    customElements.define(PLACE, Object.assign(Place, { open, typed }))
    customElements.define(STATIC, Static)
    const sheet = new CSSStyleSheet()
    sheet.replaceSync(AROUND)
    document.adoptedStyleSheets.push(sheet)
  }
  return /** @type {{open: typeof open, typed: typeof typed}} */ (/** @type {unknown} */ (customElements.get(PLACE)))
}
