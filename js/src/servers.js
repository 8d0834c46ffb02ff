// The servers tab: what is connected, what it offers, what went wrong.
/** @import { Desk, Server } from "./types.js" */
import { button, h, put } from "./dom.js"

const READY = "ready"
const STARTING = "starting"

/** @param {HTMLElement} place @param {Server[]} servers @param {Desk} desk */
export function drawServers(place, servers, desk) {
  const open = new Set([...place.querySelectorAll("details[open]")].map((details) => details.getAttribute("data-of")))
  const focused = /** @type {ShadowRoot | Document} */ (place.getRootNode()).activeElement
  const of = place.contains(focused) ? focused?.closest("[data-of]")?.getAttribute("data-of") : undefined
  put(place, ...servers.map((server) => row(server, desk, open)), !servers.length && h("p", { class: "am-hint" }, "No servers yet. Add one in a cell with %mcp add."))
  if (of) focus(place.querySelector(`[data-of="${CSS.escape(of)}"]`))
}

/** Takes the focus back to what was drawn anew. @param {Element | null} element */
function focus(element) {
  const target = element instanceof HTMLDetailsElement ? element.querySelector("summary") : element
  if (target instanceof HTMLElement) target.focus()
}

/** @param {Server} server @param {Desk} desk @param {Set<string | null>} open */
function row(server, desk, open) {
  const { name, state, error, stderr, tools } = server
  const head = h("div", { class: "am-row" }, h("span", { class: "am-name" }, name), h("span", { class: "am-hint" }, state), h("span", { class: "am-space" }), link(server, desk))
  return h(
    "section",
    { class: "am-server-row", "data-state": state, "aria-label": `Server ${name}` },
    head,
    error && h("p", { class: "am-problem" }, error),
    tools.length > 0 && fold(counted(tools), `tools ${name}`, open, ...tools.map((tool) => switchOf(name, tool, desk))),
    stderr && fold("What it wrote to stderr", `stderr ${name}`, open, h("pre", { tabindex: 0 }, stderr)),
  )
}

/** @param {Server["tools"]} tools */
function counted(tools) {
  const offered = tools.filter(([, enabled]) => enabled).length
  const words = `${tools.length} tool${tools.length === 1 ? "" : "s"}`
  return offered === tools.length ? words : `${offered} of ${words}`
}

/** @param {string} title @param {string} of @param {Set<string | null>} open @param {...HTMLElement} inside */
function fold(title, of, open, ...inside) {
  return h("details", { "data-of": of, open: open.has(of) }, h("summary", {}, title), ...inside)
}

/** @param {Server} server @param {Desk} desk */
function link({ name, state }, desk) {
  const type = state === READY ? "disconnect" : "connect"
  if (state === STARTING || !desk.can(type)) return null
  const words = state === READY ? "Disconnect" : "Connect"
  return button(words, () => desk.act({ type, server: name }), "", { "aria-label": `${words} ${name}`, "data-of": `link ${name}` })
}

/** @param {string} server @param {[string, boolean]} tool @param {Desk} desk */
function switchOf(server, [name, enabled], desk) {
  const box = h("input", { type: "checkbox", checked: enabled, disabled: !desk.can("tool"), "data-of": `tool ${server} ${name}` })
  box.addEventListener("change", () => desk.act({ type: "tool", server, name, enabled: box.checked }))
  return h("label", { class: "am-tool" }, box, h("span", { class: "am-mono" }, name))
}
