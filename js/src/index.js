// A view: follows the kernel, draws the conversation, sends back what a person does.
/** @import { Action, Block, Desk, Message, Model, State, Waiting } from "./types.js" */
import { Attention } from "./attention.js"
import { ended } from "./blocks.js"
import { button, h, put, say } from "./dom.js"
import { Composer, Head, Running, toTheEnd } from "./frame.js"
import { Link } from "./link.js"
import { Log } from "./log.js"
import { door } from "./place.js"
import { begun, follow, nothing } from "./state.js"

const SECOND = 1_000
/** Pixels; a container query would do the same, and cost a long session a second to open. */
const NARROW = 480

const now = () => Date.now() / SECOND

export class View {
  #known = nothing()
  #actions = ""
  #noted = ""
  #heard = h("div", { class: "am-heard", role: "status" })
  #note = h("div", { class: "am-notice", hidden: true })
  #problem = h("p", { class: "am-problem", role: "alert", hidden: true })
  #told = h("p", { class: "am-told", role: "status", hidden: true })

  /** @param {Model} model @param {(answered: boolean) => void} [answered] told whether there is a kernel behind it */
  constructor(model, answered = () => {}) {
    this.model = model
    const name = `am-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`
    this.link = new Link(name, {
      send: (content) => this.#send(content),
      begin: (snapshot) => this.#begin(begun(snapshot, now())),
      follow: (frame) => this.#follow(follow(this.#known, frame), frame.state),
      answered: (is) => (answered(is), this.attention.answered(is)),
      complain: (words) => say(this.#problem, words),
      giveBack: (prompt) => this.composer?.giveBack(prompt),
      tell: (words) => (this.#told.classList.toggle("am-mono", words.includes("\n")), say(this.#told, words)),
      expecting: () => Boolean(this.#known.state.running),
    })
    const panel = model.get("home") === "panel"
    this.log = new Log(this.#desk(), () => this.#known.blocks, panel)
    this.attention = new Attention(this.log, () => this.#known.blocks, () => this.#drawRunning())
    this.element = panel ? this.#panel(name) : this.#cell()
    this.receive = (/** @type {Message} */ message) => this.link.receive(message)
    model.on("msg:custom", this.receive)
    this.clock = setInterval(() => this.#tick(), SECOND)
    this.#drawState()
    this.link.hello()
  }

  /** The view is in the page again, after a time without it. */
  back() {
    this.log.back()
  }

  close() {
    this.model.off("msg:custom", this.receive)
    clearInterval(this.clock)
    this.width?.disconnect()
    this.pinned?.disconnect()
    this.attention.close()
    this.link.close()
    this.element.remove()
  }

  #cell() {
    const running = new Running(this.#desk(), () => this.attention.show())
    const end = h("div", { class: "am-end-of-log" })
    this.running = [running]
    this.pinned = new IntersectionObserver(([entry]) => running.element.classList.toggle("am-pinned", !entry?.isIntersecting))
    this.pinned.observe(end)
    return this.#root(h("div", { class: "am-cell" }, this.#note, this.log.element, this.#problem, end, running.element))
  }

  /** @param {string} name */
  #panel(name) {
    this.composer = new Composer(this.#desk())
    const desk = this.#desk()
    const show = () => (this.head?.show(0), this.attention.show())
    const above = new Running({ ...desk, can: (type) => type !== "stop" && desk.can(type) }, show)
    const bar = new Running(desk, show)
    this.running = [above, bar]
    const end = toTheEnd(this.log.element, () => this.log.follow())
    const chat = h("div", { class: "am-chat" }, h("div", { class: "am-scroll" }, this.log.element, end))
    const servers = h("div", { class: "am-servers" })
    this.head = new Head(this.#desk(), [chat, servers], name)
    chat.append(above.element, this.#note, this.composer.element)
    const pin = h("div", { class: "am-pin", hidden: true }, bar.element)
    this.pinned = new IntersectionObserver(([entry]) => (pin.hidden = Boolean(entry?.isIntersecting)), { threshold: 0.9 })
    this.pinned.observe(this.composer.element)
    const panel = h("div", { class: "am-panel" }, this.head.element, this.#problem, this.#told, chat, servers)
    return this.#root(panel, pin)
  }

  /** @param {...HTMLElement} parts */
  #root(...parts) {
    const root = h("div", { class: "agentmagic" }, ...parts, this.#heard)
    this.width = new ResizeObserver(() => root.classList.toggle("am-narrow", root.clientWidth <= NARROW))
    this.width.observe(root)
    return root
  }

  /** @returns {Desk} */
  #desk() {
    return {
      act: (action) => this.#act(action),
      can: (type) => this.#known.state.actions?.includes(type) ?? false,
      announce: (words) => (this.#heard.textContent = words),
      now: () => now() + this.#known.ahead,
      state: () => this.#known.state,
      asked: () => [...this.#known.blocks.values()].flatMap((block) => (block.kind === "prompt" ? block.text : [])).reverse(),
    }
  }

  /** @param {Action} action */
  #act(action) {
    say(this.#problem, "")
    say(this.#told, "")
    this.#send(action)
    this.link.hello() // a kernel that is gone answers neither
    if (action.type === "send" || action.type === "rewrite" || action.type === "retry") this.log.follow()
  }

  /** @param {object} content */
  #send(content) {
    try {
      this.model.send(content)
    } catch {
      // The connection is gone. That is as if the kernel did not answer, which the link looks after.
    }
  }

  /** @param {import("./state.js").Known} known */
  #begin(known) {
    this.#known = known
    this.attention.look(known.blocks.keys())
    this.#drawState()
    this.log.restart()
  }

  /** @param {Set<number>} touched @param {State} [state] */
  #follow(touched, state) {
    this.attention.look(touched)
    if (state) this.#drawState()
    for (const key of touched) this.#announceEnd(this.#known.blocks.get(key))
    this.log.change(touched)
  }

  /** @param {Block} [block] */
  #announceEnd(block) {
    const words = block?.kind === "footer" && ended(block)
    if (words) this.#heard.textContent = words
  }

  #drawState() {
    const { state } = this.#known
    const actions = state.actions?.join() ?? ""
    if (actions !== this.#actions) this.log.refresh()
    this.#actions = actions
    this.#drawNote(state.note)
    this.#drawRunning()
    this.head?.update(state)
    this.composer?.update(state)
    this.log.welcome(state, (prompt) => this.composer?.propose(prompt))
  }

  #drawRunning() {
    const { waits } = this.attention
    for (const line of this.running ?? []) line.update(this.#known.state, waits)
  }

  /** @param {string} [note] on what waits */
  #drawNote(note = "") {
    if (note === this.#noted) return
    this.#noted = note
    this.#note.hidden = !note
    const { act, can } = this.#desk()
    put(this.#note, note, can("withdraw") && button("Take back", () => act({ type: "withdraw" }), "small"))
  }

  #tick() {
    if (!this.#known.state.running) return
    for (const line of this.running ?? []) line.tick()
    this.log.tick()
  }
}

/**
 * An anywidget without a picture of its own: it draws the views of its kernel, those too that came before it.
 * Each of them has put itself into the queue of this library; see `agentmagic.widgets.view`.
 * @param {{model: Model}} context
 */
function initialize({ model }) {
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(model.get("sheet"))
  const { open } = door()
  /** @param {Waiting} view */
  const show = (view) => {
    if (view.gone) return
    view.close = open(view.model.get("name"), (answered) => Object.assign(new View(view.model, answered), { sheet }))
  }
  const queues = (globalThis.agentmagic ??= {})
  const waiting = queues[model.get("name")] ?? []
  queues[model.get("name")] = { push: show }
  for (const view of /** @type {Waiting[]} */ (waiting)) show(view)
}

export default { initialize }
