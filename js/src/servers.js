// The servers tab: the MCP servers, their tools and their errors.
/** @import { ServerRow } from "./messages.js" */
/** @import { Desk } from "./types.js" */
import { button, counted, folding, h, isFocused, once, put, say } from "./dom.js"

const READY = "ready"
const STARTING = "starting"

/** Draws the tab. Elements that the user has opened, typed in or begun to click stay when something else changes. */
export class Servers {
  /** @type {Map<string, any>} */
  #made = new Map()

  /** @param {HTMLElement} place @param {Desk} desk */
  constructor(place, desk) {
    this.place = place
    this.desk = desk
  }

  /** @param {ServerRow[]} servers @param {string} web a text about the tools that the provider runs */
  update(servers, web) {
    const { place, desk } = this
    const focused = /** @type {ShadowRoot | Document} */ (place.getRootNode()).activeElement
    const of = place.contains(focused) && focused?.getAttribute("data-of")
    const adding = desk.can("command") && this.#once("adding", () => addition(desk))
    const none = h("p", { class: "am-hint" }, desk.can("command") ? "No servers yet." : "No servers yet. Add one in a cell with %mcp add.")
    const hosted = this.#once("web", () => h("p", { class: "am-hint am-web" }))
    say(hosted, web && `The web: ${web}`)
    put(place, hosted, ...servers.map((server) => this.#row(server)), !servers.length && none, adding)
    // While a server starts, it has no button to connect or disconnect it, and its row keeps the focus for that button.
    const places = of ? [...place.querySelectorAll(`[data-of="${CSS.escape(of)}"]`)] : []
    const last = places.at(-1)
    if (last instanceof HTMLElement && (!isFocused(place) || places.includes(/** @type {Element} */ (focused)))) last.focus({ preventScroll: true })
  }

  /** @template {HTMLElement} E @param {string} name @param {() => E} make @returns {E} */
  #once(name, make) {
    return once(this.#made, name, make)
  }

  /** @param {ServerRow} server */
  #row(server) {
    const { name, address, state, error, stderr, tools } = server
    const row = this.#once(`server ${name}`, () => h("section", { class: "am-server-row", "aria-label": `Server ${name}`, tabindex: -1, "data-of": `link ${name}` }))
    row.dataset.state = state
    const head = this.#once(`head ${name}`, () => h("div", { class: "am-row" }))
    put(head, h("span", { class: "am-name" }, name), h("span", { class: "am-hint" }, state), h("span", { class: "am-space" }), this.#link(server))
    const written = this.#once(`written ${name}`, () => h("pre", { tabindex: 0 }))
    say(written, stderr)
    return put(
      row,
      head,
      address && h("p", { class: "am-hint am-mono" }, address),
      error && h("p", { class: "am-problem" }, error),
      tools.length > 0 && this.#fold(offer(tools), `tools ${name}`, this.#everyTool(server), ...tools.map((tool) => this.#tool(name, tool))),
      stderr && this.#fold("What it wrote to stderr", `stderr ${name}`, written),
    )
  }

  /** @param {string} title @param {string} name @param {...(HTMLElement | false)} inside */
  #fold(title, name, ...inside) {
    const summary = this.#once(`summary ${name}`, () => h("summary"))
    say(summary, title)
    return put(this.#once(name, () => folding({}, summary)), summary, ...inside)
  }

  /** @param {ServerRow} server */
  #link({ name, state }) {
    const { desk } = this
    const type = state === READY ? "disconnect" : "connect"
    if (state === STARTING || !desk.can(type)) return null
    const words = state === READY ? "Disconnect" : "Connect"
    const properties = { "aria-label": `${words} ${name}`, "data-of": `link ${name}` }
    return this.#once(`${type} ${name}`, () => button(words, () => desk.act({ type, server: name }), "", properties))
  }

  /** Draws a tool: whether it is offered to the model, whether it runs without asking, and its description. @param {string} server @param {ServerRow["tools"][number]} tool */
  #tool(server, [name, enabled, always, about = "", given = ""]) {
    const { desk } = this
    const change = () => {
      const wanted = box.checked
      if (wanted) box.checked = false // the kernel asks first
      desk.act({ type: "tool", server, name, enabled: wanted })
    }
    const box = this.#once(`box ${server} ${name}`, () => h("input", { type: "checkbox", onchange: change }))
    box.checked = enabled
    box.disabled = !desk.can("tool")
    const label = this.#once(`label ${server} ${name}`, () => h("label", {}, box, h("span", { class: "am-mono" }, name)))
    const head = this.#once(`choices ${server} ${name}`, () => h("div", { class: "am-row" }))
    put(head, label, h("span", { class: "am-space" }), this.#allowing(server, name, always))
    const [words, ...rest] = about.split("\n")
    const whole = this.#once(`whole ${server} ${name}`, () => h("p"))
    const taken = this.#once(`taken ${server} ${name}`, () => h("pre", { tabindex: 0, "aria-label": "Arguments" }))
    say(whole, about)
    say(taken, given)
    const more = (about || given) && this.#fold(words || "Arguments", `about ${server} ${name}`, rest.length > 0 && whole, given ? taken : h("p", {}, "No arguments."))
    return put(this.#once(`tool ${server} ${name}`, () => h("div", { class: "am-tool" })), head, more)
  }

  /** @param {string} server @param {string} name "" for every tool @param {boolean | undefined} always */
  #allowing(server, name, always) {
    const { desk } = this
    if (always) return h("span", { class: "am-hint" }, name ? "runs without asking" : "all run without asking")
    if (!desk.can("allow")) return null
    const label = name ? "Always allow" : "Always allow all"
    const allow = () => desk.act({ type: "allow", server, ...(name && { name }) })
    return this.#once(`allow ${server} ${name}`, () => button(label, allow, "small", { "aria-label": `${label} ${name || server}` }))
  }

  /** @param {ServerRow} server */
  #everyTool({ name, tools }) {
    const row = this.#once(`all ${name}`, () => h("div", { class: "am-row" }))
    return put(row, h("span", { class: "am-space" }), this.#allowing(name, "", tools.every(([, , always]) => always)))
  }
}

/** @param {ServerRow["tools"]} tools */
function offer(tools) {
  const offered = tools.filter(([, enabled]) => enabled).length
  const words = counted(tools.length, "tool")
  return offered === tools.length ? words : `${offered} of ${words}`
}

/** Draws the line that adds a server by its command line or address, like %mcp add. @param {Desk} desk */
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
  // Not a form element: the page contains none, so that no untrusted text can be inside a form.
  const form = h("div", { class: "am-addition", role: "form", "aria-label": "Add a server" }, name, line, button("Add server", send))
  form.addEventListener("keydown", (event) => event.key === "Enter" && event.target instanceof HTMLInputElement && send())
  return form
}
