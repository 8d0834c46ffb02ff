// The servers tab: what is connected, what it offers, what went wrong.
/** @import { Desk, Server, Tool } from "./types.js" */
import { button, counted, h, put } from "./dom.js"

const READY = "ready"
const STARTING = "starting"

/** @param {HTMLElement} place @param {Server[]} servers @param {Desk} desk */
export function drawServers(place, servers, desk) {
  const open = new Set([...place.querySelectorAll("details[open]")].map((details) => details.getAttribute("data-of")))
  const focused = /** @type {ShadowRoot | Document} */ (place.getRootNode()).activeElement
  const of = place.contains(focused) ? focused?.closest("[data-of]")?.getAttribute("data-of") : undefined
  const adding = place.querySelector(".am-addition") ?? (desk.can("command") && addition(desk))
  const none = h("p", { class: "am-hint" }, desk.can("command") ? "No servers yet." : "No servers yet. Add one in a cell with %mcp add.")
  put(place, ...servers.map((server) => row(server, desk, open)), !servers.length && none, adding)
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
    tools.length > 0 && fold(offer(tools), `tools ${name}`, open, everyTool(server, desk), ...tools.map((tool) => toolOf(name, tool, desk, open))),
    stderr && fold("What it wrote to stderr", `stderr ${name}`, open, h("pre", { tabindex: 0 }, stderr)),
  )
}

/** @param {Server["tools"]} tools */
function offer(tools) {
  const offered = tools.filter(([, enabled]) => enabled).length
  const words = counted(tools.length, "tool")
  return offered === tools.length ? words : `${offered} of ${words}`
}

/** @param {string} title @param {string} of @param {Set<string | null>} open @param {...(HTMLElement | false)} inside */
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

/** A tool: whether the model is offered it, whether it runs without asking, and what it is. @param {string} server @param {Tool} tool @param {Desk} desk @param {Set<string | null>} open */
function toolOf(server, [name, enabled, always, about = "", given = ""], desk, open) {
  const box = h("input", { type: "checkbox", checked: enabled, disabled: !desk.can("tool"), "data-of": `tool ${server} ${name}` })
  box.addEventListener("change", () => desk.act({ type: "tool", server, name, enabled: box.checked }))
  const label = h("label", {}, box, h("span", { class: "am-mono" }, name))
  const of = `about ${server} ${name}`
  const [words, ...rest] = about.split("\n")
  const more = (about || given) && fold(words || "Arguments", of, open, rest.length > 0 && h("p", {}, about), given ? h("pre", { tabindex: 0, "aria-label": "Arguments" }, given) : h("p", {}, "No arguments."))
  return h("div", { class: "am-tool" }, h("div", { class: "am-row" }, label, h("span", { class: "am-space" }), allowing(server, name, always, desk)), more)
}

/** @param {string} server @param {string} name "" for every tool @param {boolean | undefined} always @param {Desk} desk */
function allowing(server, name, always, desk) {
  if (always) return h("span", { class: "am-hint" }, name ? "runs without asking" : "all run without asking")
  if (!desk.can("allow")) return null
  const label = name ? "Always allow" : "Always allow all"
  const allow = () => desk.act({ type: "allow", server, ...(name && { name }) })
  return button(label, allow, "small", { "aria-label": `${label} ${name || server}`, "data-of": `allow ${server} ${name}` })
}

/** @param {Server} server @param {Desk} desk */
function everyTool({ name, tools }, desk) {
  return h("div", { class: "am-row" }, h("span", { class: "am-space" }), allowing(name, "", tools.every(([, , always]) => always), desk))
}

/** Adds a server by its command line or address, as %mcp add does. @param {Desk} desk */
function addition(desk) {
  const name = h("input", { class: "am-box", "aria-label": "Name of the server", placeholder: "name", spellcheck: "false" })
  const line = h("input", { class: "am-box am-mono", "aria-label": "Its command line or web address", placeholder: "npx -y server-x, or https://…", spellcheck: "false" })
  const send = () => {
    const empty = [name, line].find((box) => !box.value.trim())
    if (empty) return empty.focus()
    desk.act({ type: "command", magic: "mcp", line: `add ${name.value.trim().replace(/\s+/g, "-")} ${line.value}` })
    name.value = line.value = ""
    name.focus()
  }
  // Not a form: the page has none, so that no text of others can stand in one.
  const form = h("div", { class: "am-addition", role: "form", "aria-label": "Add a server" }, name, line, button("Add server", send))
  form.addEventListener("keydown", (event) => event.key === "Enter" && event.target instanceof HTMLInputElement && send())
  return form
}
