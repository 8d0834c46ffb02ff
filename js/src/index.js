// A view of a conversation: follows the kernel, draws the conversation, and sends the user's actions to the kernel.
/** @import { Block, Message, State } from "./messages.js" */
/** @import { Action, Desk, Early, Model, Waiting } from "./types.js" */
import { Asked } from "./asked.js"
import { Attention } from "./attention.js"
import { ended } from "./blocks.js"
import { button, counted, h, once, put, say } from "./dom.js"
import { Composer, Head, Running, toTheEnd } from "./frame.js"
import { Hold } from "./hold.js"
import { Link } from "./link.js"
import { Log } from "./log.js"
import { door } from "./place.js"
import { keepFocus } from "./refuge.js"
import { Search } from "./search.js"
import { Setup } from "./setup.js"
import { begun, follow, nothing } from "./state.js"

const SECOND = 1_000
/** Width in pixels below which the view is narrow. A container query would delay opening a long session by a second. */
const NARROW = 480

/** JupyterLab's states of a kernel that has lost the session of a view. */
const GONE = ["restarting", "autorestarting", "terminating", "dead"]

const now = () => Date.now() / SECOND

export class View {
  #known = nothing()
  #actions = ""
  #noted = ""
  #heard = h("div", { class: "am-heard", role: "status" })
  #note = h("div", { class: "am-notice", hidden: true })
  /** @type {Map<string, HTMLElement>} */
  #noteButtons = new Map()
  #earlier = h("div", { class: "am-notice am-earlier", hidden: true })
  #earlierWords = h("span")
  #problem = h("p", { class: "am-problem", role: "alert", hidden: true })
  #told = h("p", { class: "am-told", role: "status", hidden: true })
  #setup = new Setup(this.#desk(), () => this.attention.free())
  #asked = new Asked(this.#desk(), () => this.#rest())
  #lost = h("div", { class: "am-notice am-lost", role: "alert", hidden: true })
  #unheard = ""
  /** The conversation that the user is leaving for its fork. @type {string | null} */
  #left = null
  /** Whether JupyterLab has reported that the kernel is gone. */
  #isGone = false
  #wanted = false
  /** Whether the user has run the turn of this cell again, which moves the view into a new output. */
  #retried = false

  /** @param {Model} model @param {(answered: boolean) => void} [answered] called with whether the kernel answers */
  constructor(model, answered = () => {}) {
    this.model = model
    this.show = answered
    const name = `am-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`
    this.link = new Link(name, {
      send: (content) => this.#send(content),
      begin: (snapshot) => this.#begin(begun(snapshot, now(), this.#known.blocks)),
      follow: (frame) => this.#follow(follow(this.#known, frame), frame.state),
      answered: (is) => this.#answered(is),
      complain: (words) => {
        this.#say(this.#problem, words)
        if (words) this.composer?.attached.refused()
      },
      giveBack: (prompt) => this.composer?.giveBack(prompt),
      tell: (words) => this.#say(this.#told, words),
      inspected: (found) => this.head?.inspector.receive(found),
      expecting: () => Boolean(this.#known.state.running),
    })
    const panel = model.get("home") === "panel"
    this.log = new Log(this.#desk(), () => this.#known.blocks, panel)
    this.attention = new Attention(this.log, () => this.#known.blocks, () => (this.hold?.accept(), this.#drawRunning()))
    this.element = panel ? this.#panel(name) : this.#cell()
    this.receive = (/** @type {Message} */ message) => this.link.receive(message)
    model.on("msg:custom", this.receive)
    this.kernel = model.widget_manager?.kernel
    this.status = (/** @type {unknown} */ _, /** @type {string} */ status) => {
      if (!GONE.includes(status)) return
      this.#isGone = true
      this.link.lose()
    }
    this.kernel?.statusChanged.connect(this.status)
    this.clock = setInterval(() => this.#tick(), SECOND)
    this.#drawState()
    this.link.hello()
  }

  /** Called when the view is in the page again, after it was removed from it. */
  back() {
    this.log.back()
    if (this.#retried) this.#hold()
    this.takeEarly()
  }

  /** Focuses the view itself, because the button that had the focus is removed and the next key would go to the notebook. */
  #hold() {
    const { element } = this
    element.tabIndex = -1
    element.addEventListener("blur", () => element.removeAttribute("tabindex"), { once: true })
    element.focus({ preventScroll: true })
  }

  /** Whether the kernel has sent the view's state, and the view is visible. */
  get ready() {
    return this.#known.state.actions !== undefined && this.element.getClientRects().length > 0
  }

  /** Takes over the typed text and the focus from the box that the JupyterLab extension has shown until now. */
  takeEarly() {
    const root = this.element?.getRootNode()
    if (!this.composer || !(root instanceof ShadowRoot) || !this.ready) return
    const early = /** @type {{early?: () => Early | null}} */ (/** @type {unknown} */ (root.host)).early?.()
    if (!early) return
    this.composer.takeOver(early)
    if (early.focused && (early.text || early.sent.length)) this.composer.focus()
    else if (early.focused) this.focus()
  }

  /** Whether a block or a card waits for the user. */
  get waits() {
    return this.attention.waits !== null || this.#asked.waits || this.#setup.waits
  }

  /** Scrolls to the turn that begins, because the user has asked for it outside the view. */
  follow() {
    this.log.follow()
  }

  /** Moves the user to the block that waits, or else to the message box. */
  focus() {
    this.#wanted = !this.ready
    if (this.#wanted) return
    if (this.#asked.waits) return this.#asked.show()
    this.head?.show(0)
    if (this.#setup.waits) this.#setup.show()
    else if (this.attention.waits) this.attention.show()
    else this.composer?.focus()
  }

  /** Focuses the message box, or in another tab the tab itself. */
  #rest() {
    if (this.composer?.element.getClientRects().length) this.composer.focus()
    else this.head?.tab?.focus({ preventScroll: true })
  }

  close() {
    this.model.off("msg:custom", this.receive)
    this.kernel?.statusChanged.disconnect(this.status)
    this.#keepTyped()
    clearInterval(this.clock)
    this.width?.disconnect()
    this.pinned?.disconnect()
    this.hold?.stop()
    this.attention.close()
    this.#asked.close()
    this.#setup.close()
    this.link.close()
    this.element.remove()
  }

  #cell() {
    const running = new Running(this.#desk(), () => this.attention.show())
    const end = h("div", { class: "am-end-of-log" })
    this.running = [running]
    // A busy page is told of several changes at once, of which only the last is true now.
    this.pinned = new IntersectionObserver((seen) => running.element.classList.toggle("am-pinned", !seen.at(-1)?.isIntersecting))
    this.pinned.observe(end)
    this.hold = new Hold(this.log.element, end)
    return this.#root(h("div", { class: "am-cell" }, this.#note, this.log.element, this.#setup.element, this.#lost, this.#problem, end, running.element))
  }

  /** @param {string} name */
  #panel(name) {
    this.composer = new Composer(this.#desk())
    this.composer.element.addEventListener("input", () => this.#isLost && this.#keepTyped())
    const desk = this.#desk()
    const show = () => (this.head?.show(0), this.attention.show())
    const above = new Running({ ...desk, can: (type) => type !== "stop" && desk.can(type) }, show)
    const bar = new Running(desk, show)
    this.running = [above, bar]
    const end = toTheEnd(this.log.element, () => this.log.stayAtEnd())
    this.search = new Search(this.log, () => this.composer?.focus())
    const chat = h("div", { class: "am-chat" }, this.search.element, this.#earlier, h("div", { class: "am-scroll" }, this.log.element, end))
    const servers = h("div", { class: "am-tab-page am-servers" })
    const inspector = h("div", { class: "am-tab-page am-inspector" })
    this.head = new Head(this.#desk(), [chat, servers, inspector], name, (from) => this.#find(from))
    this.composer.attached.takeDropped(chat)
    chat.append(above.element, this.#note, this.#setup.element, this.#lost, this.composer.element)
    const pin = h("div", { class: "am-pin", hidden: true }, bar.element)
    this.pinned = new IntersectionObserver((seen) => (pin.hidden = Boolean(seen.at(-1)?.isIntersecting)), { threshold: 0.9 })
    this.pinned.observe(this.composer.element)
    put(this.#earlier, this.#earlierWords, button("Start anew", () => desk.act({ type: "new" }), "small"))
    const panel = h("div", { class: "am-panel" }, this.head.element, chat, servers, inspector, this.#asked.element, this.#problem, this.#told)
    panel.addEventListener("keydown", (event) => this.#findByKey(event))
    const root = this.#root(panel, pin)
    keepFocus(root, this.composer.box, () => this.#rest())
    return root
  }

  /** Handles the keys of the browser's search in the panel, because the browser cannot find text that is not drawn. @param {KeyboardEvent} event */
  #findByKey(event) {
    if (event.key.toLowerCase() !== "f" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return
    event.preventDefault()
    event.stopPropagation()
    this.#find(event.target instanceof HTMLElement ? event.target : null)
  }

  /** @param {HTMLElement | null} from where the focus goes back to */
  #find(from) {
    this.head?.show(0)
    this.search?.open(from)
  }

  /** @param {...HTMLElement} parts */
  #root(...parts) {
    const root = h("div", { class: "agentmagic" }, ...parts, this.#heard)
    this.width = new ResizeObserver(() => {
      root.classList.toggle("am-narrow", root.clientWidth <= NARROW)
      this.head?.fit()
    })
    this.width.observe(root)
    return root
  }

  /** @returns {Desk} */
  #desk() {
    return {
      act: (action) => this.#act(action),
      can: (type) => !this.#isLost && (this.#known.state.actions?.includes(type) ?? false),
      later: (turn) => [...this.#known.blocks.values()].filter((block) => block.kind === "prompt" && (block.turn ?? 0) > turn).length,
      announce: (words) => (this.#heard.textContent = words),
      complain: (words) => this.#say(this.#problem, words),
      inspect: (turn) => this.head?.inspect(turn),
      now: () => now() + this.#known.ahead,
      state: () => this.#known.state,
      asked: () => [...this.#known.blocks.values()].flatMap((block) => (block.kind === "prompt" && !block.client ? block.text : [])).reverse(),
    }
  }

  /** Shows a message in an element of the view. @param {HTMLElement} place @param {string} words */
  #say(place, words) {
    say(place, words)
    if (words) place.scrollIntoView({ block: "nearest" })
  }

  /** @param {Action} action */
  #act(action) {
    if (!this.#asked.waits) this.#asked.acts()
    if (action.type !== "file") say(this.#problem, "") // keep the message: one of several files may be too large
    say(this.#told, "")
    if ("text" in action) this.#unheard = action.text
    this.#send(action)
    this.link.hello() // if the kernel is gone, this is not answered either
    this.#left = action.type === "fork" ? (this.#known.state.title ?? "") : null
    this.#retried = action.type === "retry" && !this.composer
    if (this.#retried) this.#hold()
    if (action.type === "command" || action.type === "send" || action.type === "resume" || action.type === "rewrite" || action.type === "retry") this.log.follow()
  }

  /** @param {object} content */
  #send(content) {
    try {
      this.model.send(content)
    } catch {
      // The connection is closed. The link handles this as a kernel that does not answer.
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
    if (words) this.head?.inspector.turnOver()
  }

  #drawState() {
    const { state } = this.#known
    const actions = state.actions?.join() ?? ""
    if (actions !== this.#actions) this.log.refresh()
    this.#actions = actions
    this.element.classList.toggle("am-large", Boolean(state.large))
    this.#drawNote(state)
    say(this.#earlierWords, state.earlier ?? "")
    this.#earlier.hidden = !state.earlier
    this.#drawRunning()
    this.head?.update(state)
    this.composer?.update(state)
    this.#setup.update(state)
    this.#asked.update(state)
    this.#arrive(state)
    this.#takeTyped()
    const asked = [...this.#known.blocks.values()].some(({ kind }) => kind !== "printout")
    if (state.actions && !asked) this.log.welcome(state, (prompt) => this.composer?.propose(prompt))
    if (this.#wanted) this.focus()
    this.takeEarly()
  }

  /** Scrolls to the end of the fork that the user asked for, once the panel shows it. @param {State} state */
  #arrive({ title }) {
    if (this.#left === null || title === this.#left) return
    this.#left = null
    this.log.follow()
    this.composer?.focus()
  }

  #drawRunning() {
    const { waits } = this.attention
    const running = this.#isLost ? null : (this.#known.state.running ?? null)
    this.hold?.run(running !== null)
    for (const line of this.running ?? []) line.update({ running }, waits)
  }

  /** Shows a note above the box: a waiting message, cleared turns, or a plan or conversation that can be continued. @param {State} state */
  #drawNote(state) {
    const { said = "", choices = [] } = noteOf(state) ?? {}
    if (said === this.#noted) return
    this.#noted = said
    this.#note.hidden = !said
    const { act, can } = this.#desk()
    const offered = choices.filter(([, { type }]) => can(type))
    put(this.#note, said, ...offered.map(([label, action]) => once(this.#noteButtons, JSON.stringify(action), () => button(label, () => act(action), "small"))))
  }

  get #isLost() {
    return !this.#lost.hidden
  }

  /** The key of the panel's session and place in the page, so that text typed in a cell is not moved to the docked panel. */
  get #key() {
    const root = this.element?.getRootNode()
    const isDocked = root instanceof ShadowRoot && root.host.closest(".agentmagic-dock") !== null
    return `${isDocked}/${this.model.widget_manager?.context?.path}/${this.#known.state.title}`
  }

  /** Takes over the text that was typed in an earlier panel of the session. */
  #takeTyped() {
    const words = door().typed.get(this.#key)
    if (!words || !this.composer || this.#isLost) return
    door().typed.delete(this.#key)
    this.composer.giveBack(words)
  }

  #keepTyped() {
    if (this.composer?.typed) door().typed.set(this.#key, this.composer.typed)
  }

  /**
   * Handles that the kernel answers or does not. Without a kernel, a cell whose turn is over shows its saved HTML instead
   * of the view. The view stays for a running turn, which is shown nowhere else, and for a panel, to keep its typed text.
   * @param {boolean} is whether the kernel answers
   */
  #answered(is) {
    // In a kernel without subshells, the messages of a panel are answered after the running cell.
    if (!is && this.composer && this.kernel?.status === "busy") return
    // A page that was just loaded, or was offline, is still connecting. Only then can we know whether the kernel answers.
    if (!is && !this.#isGone && this.kernel && this.kernel.connectionStatus !== "connected") return
    if (is) this.#isGone = false
    this.attention.answered(is)
    const stays = Boolean(this.composer ?? this.#known.state.running) || this.#hasMap()
    if (is || !stays) this.show(is)
    if (is && this.#wanted) this.focus()
    if (is) this.takeEarly()
    if (is === this.#isLost && (is || stays)) this.#lose(!is)
    this.#unheard = ""
  }

  /** Shows or hides that the kernel is gone, and restores the message that the kernel did not receive. @param {boolean} is */
  #lose(is) {
    this.#lost.hidden = !is
    door().typed.delete(this.#key)
    if (is) {
      this.composer?.giveBack(this.#unheard)
      this.#keepTyped()
      put(this.#lost, ...this.#wayBack())
    }
    this.log.refresh()
    this.#drawState()
  }

  /** Returns whether a map was running. */
  #hasMap() {
    return [...this.#known.blocks.values()].some((block) => block.kind === "progress" && block.state === "running")
  }

  /** Returns what the user can do now that the kernel is gone. */
  #wayBack() {
    if (!this.composer && this.#hasMap()) return ["The kernel is gone, and the map ended with it. Answers that are in its file are kept: run the cell again."]
    if (!this.composer) return ["The kernel is gone. This is what the turn had shown by then."]
    const said = "The kernel that held this conversation is gone. What you type here is kept."
    if (!this.kernel || !/^\w+$/.test(this.#known.state.title ?? "")) return [`${said} Run this cell again to go on.`]
    return [`${said} Define your agent and its tools again, then go on with the saved conversation.`, button("Start again", () => this.#startAgain(), "small")]
  }

  /** Lets the new kernel draw the session's panel in this place. */
  async #startAgain() {
    const { kernel, model } = this
    const call = `start_again(${JSON.stringify(this.#known.state.title)}, ${JSON.stringify(model.get("name"))})`
    const code = `__import__("agentmagic.jupyter.panel.panels", fromlist=["start_again"]).${call}`
    const [cell] = model.widget_manager?.context?.model?.cells ?? [] // its id lets the kernel find a renamed notebook
    try {
      const { content } = (await kernel?.requestExecute({ code, store_history: false }, true, { cellId: cell?.id ?? "" }).done) ?? {}
      if (content?.status !== "ok") say(this.#problem, content?.evalue ?? "")
    } catch {
      say(this.#problem, "There is no kernel to start again in. Start one from the Kernel menu, then try again.")
    }
  }

  #tick() {
    if (!this.#known.state.running) return
    for (const line of this.running ?? []) line.tick()
    this.log.tick()
  }
}

/**
 * Returns the note above the message box and its buttons, or null.
 * @param {State} state @returns {{said: string, choices: [label: string, action: Action][]} | null}
 */
function noteOf({ note = "", cleared = 0, left = "", offered = null }) {
  if (note) return { said: note, choices: [["Take back", { type: "withdraw" }]] }
  if (cleared) return { said: `Cleared ${counted(cleared, "turn")}.`, choices: [["Undo", { type: "undo" }]] }
  if (left) return { said: `The plan was cut off with ${left}.`, choices: [["Resume", { type: "resume" }], ["Drop", { type: "drop" }]] }
  if (!offered) return null
  const { name, about, saved } = offered
  return { said: `Saved conversation: ${name}, ${about}.`, choices: [["Go on with it", { type: "open", name, saved }]] }
}

/**
 * Receives a model's messages directly from its connection. anywidget (0.11) drops all messages of a model that took more
 * than two seconds to load, as on a slow machine.
 * @param {Model} model
 */
async function hear(model) {
  const own = await model.widget_manager?.get_model?.(model.get("id"))
  own?.comm?.on_msg?.((message) => {
    const { method, content } = message.content.data
    return method === "custom" ? own.trigger("msg:custom", content) : own._handle_comm_msg(message)
  })
}

/**
 * Starts an anywidget that shows nothing itself: it draws all views of its kernel, including earlier ones.
 * Each view has put itself into the queue of this library; see `agentmagic.widgets.view`.
 * @param {{model: Model}} context
 */
function initialize({ model }) {
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(model.get("sheet"))
  const { open } = door()
  /** @param {Waiting} view */
  const show = (view) => {
    if (view.gone) return
    hear(view.model)
    view.close = open(view.model.get("name"), (answered) => Object.assign(new View(view.model, answered), { sheet }))
    // When a notebook is closed, its widgets get no message and lose their connection, so close the view here.
    view.model.widget_manager?.context?.disposed.connect(() => view.close())
  }
  hear(model)
  model.on("msg:custom", () => model.send({ type: "here" })) // the kernel asks whether a page exists
  const queues = (globalThis.agentmagic ??= {})
  const waiting = queues[model.get("name")] ?? []
  // A page loads this library of a kernel again for each notebook or console that it opens on the kernel.
  if (!Array.isArray(waiting)) return
  queues[model.get("name")] = { push: show }
  for (const view of waiting) show(view)
}

export default { initialize }
