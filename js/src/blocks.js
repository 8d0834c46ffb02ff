// Blocks as elements, but for cards.
/** @import { Block, Desk, Drawn, FooterBlock, NoticeBlock, PromptBlock, QuestionBlock, RetryBlock, WordsBlock } from "./types.js" */
import { Card } from "./card.js"
import { button, counted, h, iconButton, ICONS, put, say, writingBox } from "./dom.js"
import { Growing } from "./growing.js"

/** Makes what draws blocks of a kind. @param {Block["kind"]} kind @param {Desk} desk @returns {Drawn<any>} */
export function drawing(kind, desk) {
  switch (kind) {
    case "text":
      return new Words(desk)
    case "reasoning":
      return new Thoughts()
    case "card":
      return new Card(desk)
    case "prompt":
      return new Prompt(desk)
    case "question":
      return new Question(desk)
    case "footer":
      return new Figures()
    default:
      return new Notice(desk)
  }
}

const interruptedMark = () => h("p", { class: "am-mark", hidden: true }, "Interrupted")

/** What the model says. @implements {Drawn<WordsBlock>} */
class Words {
  #text = h("div", { class: "am-text" })
  #mark = interruptedMark()
  #growing = new Growing(this.#text)
  #open = false

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
    this.element = h("div", {}, this.#text, this.#mark)
  }

  /** @param {WordsBlock} block @param {number} deadline */
  update(block, deadline) {
    const { text = "", open } = block
    if (this.#open && !open) this.desk.announce("The answer is complete")
    this.#open = open
    this.#text.classList.toggle("am-busy", open)
    this.element.setAttribute("aria-busy", String(open))
    this.#mark.hidden = !block.interrupted
    this.element.hidden = !text && !block.interrupted
    return this.#growing.draw(text, open, deadline)
  }
}

/** What the model thinks, folded; it is drawn when it is opened. @implements {Drawn<WordsBlock>} */
class Thoughts {
  #summary = h("summary")
  #text = h("div", { class: "am-text" })
  #mark = interruptedMark()
  #details = h("details", { ontoggle: () => this.#details.open && this.#draw(Infinity) }, this.#summary, this.#text)
  #growing = new Growing(this.#text)
  /** @type {WordsBlock | undefined} */
  #block
  element = h("div", { class: "am-thoughts" }, this.#details, this.#mark)

  /** @param {WordsBlock} block @param {number} deadline */
  update(block, deadline) {
    this.#block = block
    const empty = !block.text?.trim()
    this.element.hidden = empty && !block.open && !block.interrupted
    this.#details.classList.toggle("am-empty", empty)
    this.element.classList.toggle("am-busy", block.open)
    this.#mark.hidden = !block.interrupted
    say(this.#summary, block.open ? "Thinking…" : "Thought")
    return this.#details.open && this.#draw(deadline)
  }

  /** @param {number} deadline */
  #draw(deadline) {
    return this.#block ? this.#growing.draw(this.#block.text ?? "", this.#block.open, deadline) : false
  }
}

/** What the person asked, and what can be done with it. @implements {Drawn<PromptBlock>} */
class Prompt {
  #words = h("div", { class: "am-said" })
  #tools = h("div", { class: "am-tools" })
  element = h(
    "div",
    {
      class: "am-prompt",
      tabindex: 0,
      role: "group",
      "aria-label": "Your message",
      onpointerenter: () => this.#offer(),
      onfocusin: () => this.#offer(),
    },
    this.#words,
    this.#tools,
  )
  /** @type {PromptBlock | undefined} */
  #block

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
  }

  /** @param {PromptBlock} block */
  update(block) {
    if (this.#block?.text === block.text && this.#block.turn === block.turn) return // what is in use stays
    this.#block = block
    say(this.#words, block.text)
    this.forget()
  }

  forget() {
    put(this.#tools)
  }

  /** Shows what can be done with the prompt, to whoever comes near. */
  #offer() {
    if (this.#block && !this.#tools.firstChild) put(this.#tools, ...this.#actions(this.#block))
  }

  /** @param {PromptBlock} block */
  #actions({ turn, text }) {
    const { desk } = this
    if (turn === null) return []
    return [
      desk.can("rewrite") && iconButton("Edit and run again", ICONS.edit, () => this.#rewrite(turn, text)),
      desk.can("retry") && iconButton("Run again", ICONS.retry, () => this.#retry(turn)),
      desk.can("fork") && iconButton("Fork from here", ICONS.fork, () => desk.act({ type: "fork", turn })),
    ]
  }

  /** @param {number} turn @param {string} text */
  #rewrite(turn, text) {
    const run = () => {
      this.#back()
      this.desk.act({ type: "rewrite", turn, text: box.value })
    }
    const box = writingBox("Edit your message", { text, send: run, back: () => this.#back() })
    put(this.element, h("div", { class: "am-rewrite" }, box, ...this.#last(turn, run)))
    box.focus()
  }

  /** Runs a turn again; if others come after it, the person is told first what becomes of them. @param {number} turn */
  #retry(turn) {
    const run = () => {
      this.#back()
      this.desk.act({ type: "retry", turn })
    }
    if (!this.desk.later(turn)) return run()
    put(this.element, h("div", { class: "am-rewrite" }, this.#words, ...this.#last(turn, run)))
    this.element.querySelector("button")?.focus()
  }

  /** Says what running a turn again does to the later ones, above the buttons. @param {number} turn @param {() => void} run */
  #last(turn, run) {
    const later = this.desk.later(turn)
    const fate = `${counted(later, "later turn")} will go${this.desk.can("fork") ? ", and be kept as a fork" : ""}.`
    const row = h("div", { class: "am-row" }, button("Run again", run, "go"), button("Back", () => this.#back(), "quiet"))
    return [later ? h("p", { class: "am-hint" }, fate) : "", row]
  }

  #back() {
    put(this.element, this.#words, this.#tools)
  }
}

/** What a tool asks the person. @implements {Drawn<QuestionBlock>} */
class Question {
  #words = h("p", { class: "am-asked" })
  #place = h("div")
  element = h("div", { class: "am-question", role: "group", "aria-label": "Question" }, this.#words, this.#place)
  asking = this.element
  /** @type {string | null} */
  #shown = null

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
  }

  /** @param {QuestionBlock} block */
  update(block) {
    say(this.#words, block.text)
    const now = block.answer === null ? block.ask : `= ${block.answer}`
    if (now === this.#shown) return
    this.#shown = now
    this.element.classList.toggle("am-open", block.ask !== "")
    if (block.answer !== null) put(this.#place, h("p", { class: "am-answer" }, block.answer))
    else put(this.#place, block.ask && this.desk.can("reply") && this.#form(block.ask))
    if (block.ask) this.desk.announce(`Question: ${block.text}`)
  }

  forget() {
    this.#shown = null
  }

  /** @param {string} id */
  #form(id) {
    const send = () => this.desk.act({ type: "reply", id, text: box.value.trim() })
    const box = writingBox("Your answer", { send })
    return h("div", { class: "am-row am-reply" }, box, button("Answer", send, "go"))
  }
}

/** Something to know: quiet, or with an edge where it matters. @implements {Drawn<NoticeBlock | RetryBlock>} */
class Notice {
  element = h("p", { class: "am-notice" })

  /** @param {Desk} desk */
  constructor(desk) {
    this.desk = desk
  }

  /** @param {NoticeBlock | RetryBlock} block */
  update(block) {
    const level = block.kind === "notice" ? block.level : "info"
    if (this.element.dataset.level !== level && level === "error") this.desk.announce(`Error: ${block.text}`)
    this.element.dataset.level = level
    put(this.element, level !== "info" && h("b", {}, level === "error" ? "Error: " : "Warning: "), block.text)
  }
}

/** What a turn took. @implements {Drawn<FooterBlock>} */
class Figures {
  element = h("p", { class: "am-figures" })

  /** @param {FooterBlock} block */
  update(block) {
    put(this.element, ...figures(block.figures))
  }
}

/** @param {string[]} list */
export const figures = (list) => list.map((figure) => h("span", {}, figure))
