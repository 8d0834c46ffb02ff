// A line to paste, in the HTML that a cell shows. Where this code runs, it gets a button that copies it.
import { copying } from "./code.js"
import { h } from "./dom.js"

/** The element around such a line, in agentmagic/display/elements.py too. */
export const LINE = "agentmagic-line"

const STYLE = `
:host { display: flex; align-items: baseline; gap: 8px; }
button {
  flex: none;
  padding: 1px 8px;
  border: 1px solid var(--jp-border-color2, #e0e0e0);
  border-radius: 4px;
  background: none;
  color: var(--jp-content-font-color2, #616161);
  font: 12px/1.5 var(--jp-ui-font-family, system-ui, sans-serif);
  cursor: pointer;
}
button:hover { background: var(--jp-layout-color2, #eee); }
button:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: 2px; }
`

export class Line extends HTMLElement {
  connectedCallback() {
    if (this.shadowRoot) return
    this.dataset.lmSuppressShortcuts = "true" // Enter and Space press the button
    const sheet = new CSSStyleSheet()
    sheet.replaceSync(STYLE)
    const shadow = this.attachShadow({ mode: "open" })
    shadow.adoptedStyleSheets = [sheet]
    shadow.append(h("slot"), copying(this, () => this.textContent ?? "", "Copy line"))
  }
}
