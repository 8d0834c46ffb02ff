// The card for a user without a key: the ways to get a model, each with a button. A key is sent in one message, and is not
// stored in the page.
/** @import { SetupCard, State } from "./messages.js" */
/** @import { Desk } from "./types.js" */
import { answeredByKeys, keyed, take, withKey } from "./approval.js"
import { copying } from "./code.js"
import { button, h, heading, isFocused, put } from "./dom.js"
import { mark, notify, tabOf } from "./tab.js"

export class Setup {
  element = h("div", { class: "am-setup", role: "group", "aria-label": "What can answer", tabindex: -1, hidden: true })
  #key = h("input", { class: "am-box", type: "password", "aria-label": "Key", "aria-keyshortcuts": "k", autocomplete: "off", spellcheck: "false", placeholder: "Paste a key" })
  #provider = h("select", { class: "am-model", "aria-label": "Provider of the key" })
  #kept = h("div", { class: "am-row" })
  #servers = h("div", { class: "am-way" })
  #hint = h("p", { class: "am-hint" })
  /** @type {SetupCard | null} */
  #card = null
  #drawn = ""
  /** @type {HTMLElement | undefined} the element that had the focus before the card took it */
  #from
  /** @type {Notification | undefined} */
  #notification

  /** @param {Desk} desk @param {() => HTMLElement | undefined} free returns the focused element if the card may take the focus from it */
  constructor(desk, free) {
    this.desk = desk
    this.free = free
    answeredByKeys(this.element, () => this.waits)
    this.#key.addEventListener("click", () => this.#key.focus())
    this.#key.addEventListener("input", () => this.#typed())
    this.#key.addEventListener("keydown", ({ key, isComposing }) => {
      if (key === "Enter" && !isComposing) this.#send(!this.#card?.keyring)
    })
    this.#provider.addEventListener("change", () => this.#explain())
  }

  /** Whether the card waits for the user. */
  get waits() {
    return this.#card !== null
  }

  /** Focuses the card, because the user goes there. */
  show() {
    this.element.scrollIntoView({ block: "nearest" })
    take(this.element, true)
  }

  close() {
    mark(this, null)
    this.#notification?.close()
  }

  /** @param {State} state */
  update({ setup = null }) {
    const { element, desk } = this
    const shown = setup && desk.can("key") ? setup : null
    const [came, went] = [!this.#card && shown, this.#card && !shown]
    this.#card = shown
    if (!shown) this.#key.value = ""
    if (went && isFocused(element)) this.#giveBack()
    element.hidden = !shown
    const { servers = null, ...rest } = shown ?? {}
    const now = JSON.stringify(rest)
    if (shown && now !== this.#drawn) this.#draw(shown)
    this.#drawn = now
    if (shown && !shown.fixed) this.#drawServers(servers)
    if (went) this.close()
    if (!came) return
    mark(this, tabOf(element) ?? "")
    desk.announce(came.why)
    this.#notification = notify(came.why, () => this.show())
    requestAnimationFrame(() => this.#take())
  }

  /** Scrolls to the card, and focuses it if the user is not at something else. */
  #take() {
    this.element.scrollIntoView({ block: "nearest" })
    this.#from = this.waits ? this.free() : undefined
    if (this.#from) take(this.element)
  }

  #giveBack() {
    if (this.#from?.isConnected) this.#from.focus({ preventScroll: true })
    this.#from = undefined
  }

  /** @param {SetupCard} card */
  #draw(card) {
    const { element, desk } = this
    const local = keyed("l", "Use the local model", () => desk.act({ type: "local" }))
    const line = h("code", {}, card.install)
    const install = card.install && h("p", { class: "am-hint" }, "Its package is not installed. Run this in a terminal first: ", line, copying(line, () => card.install, "Copy line"))
    put(
      element,
      h("p", { class: "am-asked" }, h("b", {}, card.why), " Choose what answers; the message is sent then."),
      !card.fixed && h("div", { class: "am-way" }, heading("The local model"), h("p", {}, card.local), install, h("div", { class: "am-row" }, local)),
      h("div", { class: "am-way" }, withKey(heading("With a key"), "k"), this.#keyForm(card)),
      !card.fixed && this.#servers,
      h("div", { class: "am-row" }, h("span", { class: "am-space" }), keyed("n", "Not now", () => desk.act({ type: "leave" }), "quiet")),
    )
  }

  /** Returns the box for a key, and the choices of where it is stored. @param {SetupCard} card */
  #keyForm({ providers, keyring }) {
    put(this.#provider, ...providers.map(([name, about]) => h("option", { value: name }, about)))
    const keep = !keyring && button("Keep in the keyring", () => this.#send(true), "go")
    put(this.#kept, keep, button("Use in this kernel only", () => this.#send(false), keyring ? "go" : ""))
    this.#explain()
    return h("div", { class: "am-key-form" }, this.#key, this.#provider, this.#kept, this.#hint)
  }

  /** Chooses the provider by the beginning of the key; if two providers match, the one with the longer prefix. */
  #typed() {
    const typed = this.#key.value.trim()
    const fitting = this.#card?.providers.filter(([, , , begin]) => begin && typed.startsWith(begin)) ?? []
    const [first] = fitting.sort((one, other) => other[3].length - one[3].length)
    if (first) this.#provider.value = first[0]
    this.#explain()
  }

  #explain() {
    const { providers = [], keyring = "" } = this.#card ?? {}
    const [, , variable = ""] = providers.find(([name]) => name === this.#provider.value) ?? []
    this.#hint.textContent = `${keyring || "The keyring keeps the key for other notebooks too."} Or set ${variable} in the environment or a .env file.`
  }

  /** @param {boolean} keep */
  #send(keep) {
    const key = this.#key.value.trim()
    if (!key) return this.#key.focus()
    this.#key.value = ""
    this.desk.act({ type: "key", provider: this.#provider.value, key, keep })
  }

  /** @param {SetupCard["servers"]} servers null while they are looked for */
  #drawServers(servers) {
    const { desk } = this
    const row = (/** @type {[string, string[]]} */ [name, models]) => {
      const model = h("select", { class: "am-model", "aria-label": `Model of ${name}` }, ...models.map((one) => h("option", { value: one }, one)))
      return h("div", { class: "am-row" }, h("span", { class: "am-name" }, name), model, button(`Use ${name}`, () => desk.act({ type: "server", server: name, model: model.value })))
    }
    const said = servers === null ? "Looking for Ollama, LM Studio, llama.cpp and vLLM on this machine…" : "No server was found on this machine (Ollama, LM Studio, llama.cpp, vLLM)."
    const now = JSON.stringify(servers)
    if (this.#servers.dataset.shown === now) return
    this.#servers.dataset.shown = now
    put(this.#servers, heading("A server on this machine"), ...(servers?.length ? servers.map(row) : [h("p", { class: "am-hint" }, said)]))
  }
}
