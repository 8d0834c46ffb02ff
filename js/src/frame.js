// The parts around a conversation: in a cell the status line below it; in the panel the header, tabs and message box.
/** @import { CardFields, ConversationRow, ExportSession, State } from "./messages.js" */
/** @import { Action, Desk, Early, Waits } from "./types.js" */
import { isRisky } from "./approval.js"
import { said } from "./attention.js"
import { figures } from "./blocks.js"
import { elapsed } from "./card.js"
import { button, h, icon, iconButton, ICONS, isFocused, menu, once, put, recalling, say, Suggestions, writingBox } from "./dom.js"
import { Attached } from "./files.js"
import { Gauge } from "./gauge.js"
import { Inspector } from "./inspector.js"
import { Servers } from "./servers.js"

/** @type {[form: ExportSession["form"], label: string][]} */
const EXPORTS = [["markdown", "Markdown"], ["html", "HTML"], ["json", "JSON"], ["notebook", "Notebook"]]

const MOST_SUGGESTED = 50
/** The value of the menu item for a model that is not in the list. */
const OTHER = "other"
/** Longest text of a call's arguments that fits on the status line, in characters. */
const LONGEST_ARGUMENTS = 160

/** Seconds after which the elapsed time of an activity is shown. */
const LONG = 2

/** The status line of a running turn: its activity, its time and cost so far, the call that waits, and a Stop button. */
export class Running {
  #icon = h("span", { class: "am-state" })
  #words = h("span", { class: "am-word" })
  #arguments = h("span", { class: "am-what" })
  #figures = h("span", { class: "am-figures" })
  #time = h("span", { class: "am-time" })
  #show
  #approve
  #stop
  /** @type {State["running"]} */
  #running = null
  /** @type {Waits | null} */
  #waits = null
  /** The id of the approval request that the button answers. */
  #ask = ""

  /** @param {Desk} desk @param {() => void} show scrolls to the block that waits */
  constructor(desk, show) {
    this.desk = desk
    this.#stop = button("Stop", () => desk.act({ type: "stop" }), "small")
    this.#show = button("Show", show, "small")
    this.#approve = this.#approving("")
    const parts = [this.#icon, this.#words, this.#arguments, this.#figures, this.#time, h("span", { class: "am-space" })]
    const properties = { class: "am-running", role: "group", "aria-label": "Turn under way", tabindex: -1, hidden: true }
    this.element = h("div", properties, ...parts, this.#show, this.#approve, this.#stop)
  }

  /** @param {State} state @param {Waits | null} waits */
  update({ running = null }, waits) {
    this.#running = running
    this.#waits = waits
    this.element.hidden = !running
    this.element.classList.toggle("am-waiting", waits !== null)
    const state = waits ? "waiting" : "running"
    if (this.element.dataset.state !== state) put(this.#icon, icon(ICONS[state], state))
    this.element.dataset.state = state
    this.#stop.hidden = !this.desk.can("stop")
    put(this.#figures, ...figures(running?.figures ?? []))
    this.#drawWaits(waits)
    this.tick()
  }

  tick() {
    const running = this.#waits ? null : this.#running
    say(this.#time, running ? elapsed(this.desk.now() - running.since) : "")
    if (!running) return
    const [words, since] = running.doing
    const seconds = this.desk.now() - since
    say(this.#words, words && seconds >= LONG ? `${words} (${elapsed(seconds)})` : words)
  }

  /** @param {string} id */
  #approving(id) {
    return button("Approve", () => this.desk.act({ type: "approve", id }), "small am-go")
  }

  /** Shows what waits for the user; if it is out of sight, with the arguments and buttons to answer it here. @param {Waits | null} waits */
  #drawWaits(waits) {
    const hidden = waits?.hidden ? waits : null
    const whole = hidden?.block.kind === "card" && hidden.block.approve ? onOneLine(hidden.block) : null
    const more = hidden?.more ? `, and ${hidden.more} more` : ""
    const words = hidden ? `${said(hidden.block)}${more}` : "waits for you"
    const inside = [this.#show, this.#approve].some(isFocused)
    const { ask = "" } = waits?.block ?? {}
    if (ask !== this.#ask) this.#approve.replaceWith((this.#approve = this.#approving(ask))) // replace the button, so that a click that has begun does not approve another call
    this.#ask = ask
    if (waits) say(this.#words, words)
    say(this.#arguments, whole ?? "")
    this.#figures.hidden = hidden !== null
    this.#show.hidden = !hidden
    const go = hidden?.block.step ? "Go on" : "Approve"
    say(this.#approve, go)
    this.#approve.hidden = whole === null || !this.desk.can("approve") // only a call that is shown completely can be approved here
    if (hidden) this.#approve.setAttribute("aria-label", `${go} ${hidden.block.kind === "card" ? hidden.block.name : ""}`)
    if (inside && ![this.#show, this.#approve].some(isFocused)) this.element.focus({ preventScroll: true })
  }
}

/** Returns a call's arguments on one line, or null if they do not fit, or if the call has a risk or a note. @param {CardFields} block */
function onOneLine(block) {
  const { arguments: pairs, note } = block
  const line = pairs.map(([name, text]) => `${name}: ${text}`).join(", ")
  return note || isRisky(block) || line.length > LONGEST_ARGUMENTS || line.includes("\n") ? null : line
}

/** The index of the inspector among the tabs. */
const INSPECTOR = 2

/** The panel's header and tabs, which show one of the `pages` at a time. */
export class Head {
  #title = h("h2", { class: "am-title" })
  #model = h("select", { class: "am-model", "aria-label": "Model" })
  #free = h("input", { class: "am-model", "aria-label": "Name of the model", placeholder: "provider:model", spellcheck: "false", hidden: true })
  #models = h("span", { class: "am-models" }, this.#model, this.#free)
  #cost = h("span", { class: "am-hint am-cost" })
  /** The parts that do not fit in the header and are moved to the menu. */
  #moved = h("div", { class: "am-moved" })
  #chats = h("div", { class: "am-chats" })
  #list = h("div", { class: "am-items" })
  #menu = h("div", { class: "am-menu" })
  #levels = h("div", { class: "am-levels", role: "group", "aria-label": "Permission" })
  #more = h("summary", { "aria-label": "More" }, "⋯")
  #items
  #tabs = h("div", { class: "am-tabs", role: "tablist", "aria-label": "Parts of the panel" })
  #sure = h("div", { class: "am-notice", role: "group", "aria-label": "Clear", hidden: true })
  #shown = 0
  /** @type {Record<string, string>} what each part shows */
  #drawn = {}
  /** @type {Map<string, HTMLElement>} */
  #chatItems = new Map()
  /** @type {Map<string, HTMLElement>} */
  #levelItems = new Map()

  /**
   * @param {Desk} desk @param {HTMLElement[]} pages of chat, servers and inspector @param {string} name unique in the page
   * @param {(from: HTMLElement) => void} search
   */
  constructor(desk, pages, name, search) {
    this.desk = desk
    this.pages = pages
    this.search = search
    this.gauge = new Gauge(desk)
    this.#items = this.#menuItems()
    put(this.#menu, menu(this.#more, h("div", { class: "am-items" }, this.#moved, ...this.#items.map(([, item]) => item))))
    this.servers = new Servers(/** @type {HTMLElement} */ (pages[1]), desk)
    this.inspector = new Inspector(/** @type {HTMLElement} */ (pages[INSPECTOR]), desk)
    this.#model.addEventListener("change", () => (this.#model.value === OTHER ? this.#nameModel() : desk.act({ type: "model", name: this.#model.value })))
    this.#free.addEventListener("keydown", (event) => this.#named(event))
    this.tabs = ["Chat", "Servers", "Inspector"].map((title, place) => this.#tab(title, place, name))
    put(this.#tabs, ...this.tabs)
    this.head = h("div", { class: "am-head" })
    this.#place(0)
    this.element = h("div", {}, this.head, this.#tabs)
    pages[0]?.append(this.#sure)
    this.show(0)
  }

  /** @param {State} state */
  update(state) {
    const { title = "Chat", model = "", models = [], cost = "", servers } = state
    say(this.#title, title)
    say(this.#cost, cost)
    this.gauge.update(state)
    // Drawn again when a card opens and closes: until it is approved, the model before is the session's model.
    this.#redraw("models", [model, models, this.desk.can("model"), state.asked?.ask], () => this.#drawModels(model, models))
    this.#redraw("menu", [state.actions], () => this.#drawMenu())
    this.#redraw("levels", [state.level, state.levels], () => this.#drawLevels(state))
    this.#redraw("chats", [this.desk.can("chats")], () => this.#drawChats())
    this.#redraw("list", [title, state.chats], () => this.#drawList(state))
    this.#redraw("servers", [servers, state.web, state.actions], () => {
      this.#tabs.hidden = servers === undefined
      put(/** @type {HTMLElement} */ (this.tabs[1]), servers?.length ? `Servers ${servers.length}` : "Servers")
      this.servers.update(servers ?? [], state.web ?? "")
    })
    this.#redraw("room", [title, model, models, cost, state.context, this.desk.can("chats")], () => this.fit())
  }

  /** The tab whose page is shown. */
  get tab() {
    return this.tabs[this.#shown]
  }

  /** Moves the parts that do not fit in the header into the menu. */
  fit() {
    const { head } = this
    if (!head.clientWidth || isFocused(this.#models)) return
    const { right } = head.getBoundingClientRect()
    for (const moved of [0, 1, 2]) {
      this.#place(moved)
      if (this.#menu.getBoundingClientRect().right <= right) return
    }
  }

  /** Moves the first 0, 1 or 2 of cost and model from the header into the menu. @param {number} moved */
  #place(moved) {
    const [cost, models] = [moved > 0 && this.#cost, moved > 1 && this.#models]
    this.head.classList.toggle("am-tight", moved > 1)
    put(this.#moved, models, cost)
    put(this.head, this.#chats, !models && this.#models, !cost && this.#cost, this.gauge.element, this.#menu)
  }

  /** Redraws a part only if its content changed, so that an open list keeps its focus. @param {string} part @param {unknown[]} shown @param {() => void} draw */
  #redraw(part, shown, draw) {
    const now = JSON.stringify(shown)
    if (now === this.#drawn[part]) return
    this.#drawn[part] = now
    draw()
  }

  /** @param {string} model @param {string[]} models */
  #drawModels(model, models) {
    const names = models.includes(model) || !model ? models : [model, ...models]
    const options = names.map((name) => h("option", { value: name, selected: name === model }, name))
    // Without this option, the first model would look chosen, and the user could not choose it.
    const none = !model && names.length > 0 && h("option", { value: "", selected: true }, "Choose a model")
    put(this.#model, none, ...options, this.desk.can("model") && h("option", { value: OTHER }, "Other model…"))
    this.#model.hidden = !names.length || !this.#free.hidden
    this.#model.disabled = !this.desk.can("model")
  }

  /** Creates the menu items, once, so that later changes do not close an open menu. @returns {[needs: Action["type"][], item: HTMLElement][]} */
  #menuItems() {
    const { desk } = this
    const as = (/** @type {ExportSession["form"]} */ form, /** @type {string} */ label) => button(label, () => desk.act({ type: "export", form }), "quiet", { "aria-label": `Export as ${label}` })
    return [
      [[], button("Search", () => this.search(this.#more), "quiet", { title: "Ctrl+F, on macOS ⌘F" })],
      [["export"], h("span", { class: "am-hint" }, "Export")],
      ...EXPORTS.map(([form, label]) => /** @type {[Action["type"][], HTMLElement]} */ ([["export"], as(form, label)])),
      [["export", "clear"], h("hr")],
      [["level"], this.#levels],
      [["level"], h("hr")],
      [["back"], button("Undo", () => desk.act({ type: "back" }), "quiet", { title: "Undo the last turn, edit or clear, and what it did to variables" })],
      [["redo"], button("Redo", () => desk.act({ type: "redo" }), "quiet", { title: "Do again what was undone last" })],
      [["clear"], button("Clear", () => this.#askSure(this.#more), "quiet")],
    ]
  }

  #drawMenu() {
    for (const [needs, item] of this.#items) item.hidden = !needs.every((action) => this.desk.can(action))
    this.#menu.hidden = this.#items.every(([, item]) => item.hidden)
  }

  /** Draws the choice of which calls run without asking. @param {State} state */
  #drawLevels({ level = "", levels = [] }) {
    const item = (/** @type {[string, string]} */ [name, words]) => {
      const made = once(this.#levelItems, name, () => button(words, () => this.desk.act(/** @type {Action} */ ({ type: "level", level: name })), "quiet"))
      made.setAttribute("aria-pressed", String(name === level))
      return made
    }
    put(this.#levels, h("span", { class: "am-hint" }, "Permission"), ...levels.map(item))
  }

  /** Draws the name of the conversation, which opens the list of other conversations, and a button for a new one. */
  #drawChats() {
    const { desk } = this
    const can = desk.can("chats")
    const summary = h("summary", { title: "Conversations" }, this.#title, icon(ICONS.chevron, "chevron"))
    const list = menu(summary, this.#list)
    list.addEventListener("toggle", () => list.open && desk.act({ type: "chats" }))
    put(this.#chats, can ? list : this.#title, can && iconButton("New chat", ICONS.new, () => desk.act({ type: "new" })))
  }

  /** @param {State} state */
  #drawList({ chats = [], title }) {
    const { desk } = this
    const item = (/** @type {ConversationRow} */ { name, about, saved }) => {
      const made = once(this.#chatItems, `${saved} ${name}`, () => button(name, () => desk.act({ type: "open", name, saved }), "quiet"))
      put(made, name, h("small", { class: "am-hint" }, about))
      if (!saved && name === title) made.setAttribute("aria-current", "true")
      else made.removeAttribute("aria-current")
      return made
    }
    const [open, saved] = [false, true].map((is) => chats.filter((chat) => chat.saved === is).map(item))
    const head = (/** @type {string} */ words) => h("span", { class: "am-hint" }, words)
    put(this.#list, head("Conversations"), ...(open ?? []), ...(saved?.length ? [head("Saved"), ...saved] : []))
  }

  /** Switches between the list of models and a text box for any model name. */
  #nameModel() {
    this.#model.hidden = true
    this.#free.hidden = false
    this.#free.value = ""
    this.#free.focus()
  }

  /** @param {KeyboardEvent} event */
  #named({ key }) {
    if (key !== "Enter" && key !== "Escape") return
    const name = this.#free.value.trim()
    if (key === "Enter" && name) this.desk.act({ type: "model", name })
    this.#model.value = this.desk.state().model ?? ""
    this.#model.hidden = false
    this.#model.focus()
    this.#free.hidden = true
  }

  /** Asks the user before the conversation is cleared. @param {HTMLElement} from the element that gets the focus back */
  #askSure(from) {
    const close = () => ((this.#sure.hidden = true), from.focus({ preventScroll: true }))
    const clear = button("Clear all", () => (close(), this.desk.act({ type: "clear" })), "small")
    put(this.#sure, "Clear this conversation? It can be undone until the next message.", clear, button("Keep", close, "small"))
    this.#sure.onkeydown = ({ key }) => void (key === "Escape" && close())
    this.#sure.hidden = false
    this.show(0)
    clear.focus()
  }

  /** @param {string} title @param {number} place @param {string} name */
  #tab(title, place, name) {
    const page = /** @type {HTMLElement} */ (this.pages[place])
    page.id = `${name}-${place}`
    page.setAttribute("role", "tabpanel")
    page.setAttribute("aria-label", title)
    const properties = { type: "button", role: "tab", class: "am-tab", "aria-controls": page.id }
    return h("button", { ...properties, onclick: () => this.show(place), onkeydown: (/** @type {KeyboardEvent} */ event) => this.#step(event) }, title)
  }

  /** @param {KeyboardEvent} event */
  #step(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return
    const step = event.key === "ArrowRight" ? 1 : this.tabs.length - 1
    this.show((this.#shown + step) % this.tabs.length)
    this.tabs[this.#shown]?.focus()
  }

  /** Shows a turn in the inspector. @param {number} turn counted from 1, 0 for the last */
  inspect(turn) {
    this.show(INSPECTOR, turn)
    this.tab?.focus()
  }

  /** Shows one of the pages. @param {number} shown its index @param {number} [turn] the turn to inspect there */
  show(shown, turn) {
    this.#shown = shown
    this.tabs.forEach((tab, place) => {
      tab.setAttribute("aria-selected", String(place === shown))
      tab.tabIndex = place === shown ? 0 : -1
    })
    this.pages.forEach((page, place) => (page.hidden = place !== shown))
    this.inspector.show(shown === INSPECTOR, turn)
  }
}

/** The box in which the user writes a prompt. */
export class Composer {
  #box = writingBox("Message", { send: () => this.#go() })
  #plan = h("input", { type: "checkbox" })
  /** Whether Enter was pressed before all files were attached. */
  #isWaiting = false
  #send
  #stop

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
    this.#box.placeholder = "Ask. @ for a variable, / for a command"
    this.attached = new Attached(desk, this.#box, () => this.#goOn())
    const suggestions = new Suggestions(this.#box, (before) => offer(before, desk.state()))
    recalling(this.#box, () => desk.asked())
    this.#box.addEventListener("input", () => this.#weigh())
    this.#send = button("Send", () => this.#go(), "go")
    this.#stop = button("Stop", () => desk.act({ type: "stop" }))
    const about = "Write a list of tasks first, then run them and check their results"
    const plan = h("label", { class: "am-plan-first", title: about }, this.#plan, "Plan first")
    const hint = h("span", { class: "am-hint" }, "Enter sends, Shift+Enter breaks the line")
    this.element = h("div", { class: "am-composer" }, suggestions.element, this.attached.element, this.#box, h("div", { class: "am-row" }, this.attached.button, plan, hint, h("span", { class: "am-space" }), this.#stop, this.#send))
    this.#weigh()
  }

  /** @param {State} state */
  update({ running = null, actions = [] }) {
    this.attached.update()
    this.attached.button.hidden = !actions.includes("file")
    this.#stop.hidden = !running || !this.desk.can("stop")
    this.element.hidden = !actions.includes("send") // "send" stays when the kernel is gone, so that typed text is kept
    this.#weigh()
  }

  /** Sends the message that waited until all files were attached. */
  #goOn() {
    if (!this.#isWaiting || this.attached.isSending) return
    this.#isWaiting = false
    this.#go()
  }

  get typed() {
    return this.#box.value
  }

  /** The message box, which stays as long as the view. */
  get box() {
    return this.#box
  }

  focus() {
    this.#box.focus()
  }

  /** Restores a prompt that was not sent, in front of the text in the box. @param {string} unsent */
  giveBack(unsent) {
    this.#box.value = [unsent, this.#box.value].filter(Boolean).join("\n\n")
    this.#box.dispatchEvent(new Event("input"))
  }

  /** Writes a prompt into the box, so that the user can read it before sending it. @param {string} prompt */
  propose(prompt) {
    this.#box.value = prompt
    this.#box.focus()
    this.#box.dispatchEvent(new CustomEvent("input", { detail: "proposed" }))
  }

  /** Sends the messages, and shows the text, that the user typed before this box existed. @param {Early} early */
  takeOver({ sent, text, selection: [start, end] }) {
    if (!sent.length && !text) return
    const unsent = sent.filter((words) => !this.#submit(words))
    const kept = [this.#box.value, ...unsent].filter(Boolean).join("\n\n")
    const before = kept && text ? `${kept}\n\n` : kept
    this.#box.value = before + text
    this.#box.setSelectionRange(before.length + start, before.length + end)
    this.#box.dispatchEvent(new Event("input"))
  }

  #go() {
    if (!this.#submit(this.#box.value)) return
    this.#box.value = ""
    this.#box.dispatchEvent(new Event("input"))
    this.#box.focus()
  }

  /** Sends a message or runs a command; returns false if that is not possible now. @param {string} text */
  #submit(text) {
    if (!text.trim() || !this.desk.can("send")) return false
    this.#isWaiting = this.attached.isSending
    if (this.#isWaiting) return false
    const [, line = "", word] = /^\/(([\w-]+)(?:\s.*)?)$/.exec(text.trim()) ?? []
    const attached = this.attached.names
    const isCommand = this.desk.can("command") && this.desk.state().commands?.some(([name]) => name === word)
    const inspected = isCommand && /^inspect(?:\s+(\d+))?\s*$/.exec(line)
    if (inspected) return this.desk.inspect(Number(inspected[1] ?? 0)), true
    this.desk.act(isCommand ? { type: "command", line } : { type: "send", text, ...(this.#plan.checked && { plan: true }), ...(attached.length && { attached }) })
    return true
  }

  #weigh() {
    this.#send.disabled = !this.#box.value.trim() || !this.desk.can("send")
  }
}

/** Returns completions at the caret: commands at the beginning of the text, variables after an @. @param {string} before @param {State} state */
function offer(before, { commands = [], prompts = [], names = [], actions = [] }) {
  const [, sign = "", typed = ""] = /^(\/)([\w-]*)$/.exec(before) ?? /(?:^|[^\w@.])(@)(\w*)$/.exec(before) ?? []
  const slashed = [...prompts, ...(actions.includes("command") ? commands : [])]
  const known = sign === "@" ? names : sign === "/" ? slashed : []
  const words = known.filter(([name]) => name.startsWith(typed) && name !== typed).slice(0, MOST_SUGGESTED)
  /** @type {[string, string][]} */
  const whole = words.map(([name, about]) => [sign + name, about])
  return { from: before.length - typed.length - 1, words: whole }
}

/** Returns a button that scrolls to the end of the log; it is shown when the user has scrolled away from the end. @param {HTMLElement} log @param {() => void} follow */
export function toTheEnd(log, follow) {
  const properties = { type: "button", class: "am-button am-end", hidden: true, "aria-label": "Go to the end", onclick: follow }
  const shown = h("button", properties, icon(ICONS.down, "button"))
  const check = () => (shown.hidden = log.scrollHeight - log.scrollTop - log.clientHeight < 200)
  log.addEventListener("scroll", check, { passive: true })
  if (log.firstElementChild) new ResizeObserver(check).observe(log.firstElementChild)
  return shown
}
