// The connection of a view to its kernel: puts the kernel's messages in order, and asks for missing ones.
/** @import { Frame, InspectionPage, Message, MessagePiece, UpToDate, ViewSnapshot } from "./messages.js" */

const FIRST_WAIT = 60
const LONGEST_WAIT = 10_000
const QUIET = 3_000
/** How many unanswered "hello" messages, about four seconds in all, mean that the kernel does not answer. */
const MOST_UNANSWERED = 6
/** The number of incomplete messages that are kept; pieces of older messages were lost. */
const MOST_UNFINISHED = 8

/**
 * @typedef {object} Ends
 * @property {(content: object) => void} send sends a message to the kernel
 * @property {(snapshot: ViewSnapshot) => void} begin called with the whole state
 * @property {(frame: Frame) => void} follow called with the next frame
 * @property {(words: string) => void} complain called with the kernel's reason for a refusal
 * @property {(prompt: string) => void} giveBack called with a prompt that was not sent
 * @property {(words: string) => void} tell called with a message about an action of the kernel
 * @property {(found: InspectionPage) => void} inspected called with the requests and responses of a turn
 * @property {(heard: boolean) => void} answered called with whether the kernel answers, and again with every answer
 * @property {() => boolean} expecting returns whether more messages must come, so that the link asks again after a silence
 * @property {(callback: () => void, wait: number) => any} [later] setTimeout, replaced in tests
 * @property {(timer: any) => void} [forget] clearTimeout
 */

/** Follows the kernel's messages for one view. */
export class Link {
  /** @type {Map<number, Frame>} */
  #early = new Map()
  /** @type {Map<number, string[]>} */
  #pieces = new Map()
  #number = -1
  #wait = FIRST_WAIT
  #asking = false
  #unanswered = 0
  /** @type {any} */
  #timer

  /**
   * @param {string} name the name of this view in the kernel's answers
   * @param {Ends} ends
   */
  constructor(name, ends) {
    this.name = name
    this.ends = { later: setTimeout.bind(globalThis), forget: clearTimeout.bind(globalThis), ...ends }
  }

  /** Asks the kernel for the messages that this view has not seen, repeatedly until it answers. */
  hello() {
    this.#asking = true
    if (this.#unanswered++ >= MOST_UNANSWERED) this.ends.answered(false)
    this.ends.send({ type: "hello", view: this.name, seen: this.#number })
    this.#in(this.#wait, () => this.hello())
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT)
  }

  /** Called when JupyterLab reports that the kernel is gone: reports this at once, without waiting for an answer. */
  lose() {
    this.#unanswered = MOST_UNANSWERED
    this.hello()
  }

  close() {
    this.ends.forget(this.#timer)
  }

  /** @param {Message} message */
  receive(message) {
    if ("piece" in message) {
      const whole = this.#joined(message)
      if (whole) this.receive(whole)
    } else if ("problem" in message) {
      this.ends.complain(message.problem)
      if (message.unsent) this.ends.giveBack(message.unsent)
    } else if ("unsent" in message) {
      this.ends.giveBack(message.unsent)
    } else if ("said" in message) {
      this.ends.tell(message.said)
    } else if ("inspection" in message) {
      this.ends.inspected(message.inspection)
    } else if ("view" in message) {
      if (message.view === this.name) this.#answered(message)
    } else if (message.n > this.#number) {
      this.#early.set(message.n, message)
      this.#catchUp()
    }
  }

  /** @param {ViewSnapshot | UpToDate} answer */
  #answered(answer) {
    if ("blocks" in answer && answer.n >= this.#number) {
      this.#number = answer.n
      this.ends.begin(answer)
    }
    if (answer.n > this.#number) return // frames before this answer are still on their way, or lost
    this.#asking = false
    this.#unanswered = 0
    this.#wait = FIRST_WAIT
    this.ends.answered(true)
    this.#catchUp()
  }

  #catchUp() {
    if (this.#number >= 0) {
      for (let next; (next = this.#early.get(this.#number + 1)); ) {
        this.#early.delete(next.n)
        this.#number = next.n
        this.ends.follow(next)
      }
      for (const number of this.#early.keys()) if (number <= this.#number) this.#early.delete(number)
    }
    if (this.#asking) return
    if (this.#early.size) this.hello()
    else this.#listen()
  }

  /** Asks again after a long silence, because the last message of a turn can be lost, too. */
  #listen() {
    this.#in(QUIET, () => (this.ends.expecting() ? this.hello() : this.#listen()))
  }

  /** @param {number} wait @param {() => void} what */
  #in(wait, what) {
    this.ends.forget(this.#timer)
    this.#timer = this.ends.later(what, wait)
  }

  /** @param {MessagePiece} piece @returns {Message | undefined} */
  #joined({ piece, of, id, text }) {
    const parts = this.#pieces.get(id) ?? []
    this.#pieces.set(id, parts)
    for (const other of this.#pieces.keys()) if (other < id - MOST_UNFINISHED) this.#pieces.delete(other)
    parts[piece] = text
    if (Object.keys(parts).length < of) return undefined
    this.#pieces.delete(id)
    return JSON.parse(parts.join(""))
  }
}
