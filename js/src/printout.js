// Draws what a command of the panel has printed.
/** @import { PrintoutFields, PrintedFields } from "./messages.js" */
/** @import { Drawn } from "./types.js" */
import { folding, h, heading, put, scrollable } from "./dom.js"

/** A printout, in the frame of a card if it has more than paragraphs. @implements {Drawn<PrintoutFields>} */
export class Printout {
  element = h("div", { class: "am-printout", role: "group", "aria-label": "Output of a command" })

  /** @param {PrintoutFields} block */
  update({ line, card, parts }) {
    this.element.classList.toggle("am-card", card)
    put(this.element, line && h("p", { class: "am-typed" }, line), ...parts.map(drawn))
  }
}

/** @param {PrintedFields} part @returns {HTMLElement} */
function drawn(part) {
  const { text, inside, head, rows, left } = part
  switch (part.part) {
    case "line":
      return h("p", {}, text)
    case "quiet":
      return h("p", { class: "am-hint" }, text)
    case "heading":
      return heading(text)
    case "code":
      return scrollable(h("pre", {}, text), "Text")
    case "fold":
      return folding({}, h("summary", {}, text), scrollable(h("pre", {}, inside), text))
    default: {
      /** @param {"th" | "td"} tag @param {readonly string[]} cells */
      const row = (tag, cells) => h("tr", {}, ...cells.map((cell, place) => h(tag, { class: place >= left && "am-right" }, cell)))
      const table = h("table", {}, head.length > 0 && h("thead", {}, row("th", head)), h("tbody", {}, ...rows.map((cells) => row("td", cells))))
      return scrollable(h("div", { class: `am-table am-${part.part}` }, table), "Table")
    }
  }
}
