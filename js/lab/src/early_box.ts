// The box that takes what is typed for the docked panel before the panel's view is there.
import { Signal } from '@lumino/signaling'

/** What was typed: messages that were sent with Enter, and the text that is being written. */
export interface Early {
  sent: string[]
  text: string
  selection: [start: number, end: number]
  /** Whether the keys go to the box. */
  focused: boolean
}

/** The box of one notebook. It stays in the page, with its focus, until a view takes over what is in it. */
export class EarlyBox {
  readonly node = document.createElement('div')
  /** Emitted when Enter is pressed. What is written is sent by `send`. */
  readonly entered = new Signal<this, void>(this)
  /** Emitted when an input method has finished a word, for which `take` has waited. */
  readonly composed = new Signal<this, void>(this)
  private box = document.createElement('textarea')
  private list = document.createElement('ul')
  private composing = false
  private sent: string[] = []

  constructor() {
    this.node.className = 'agentmagic-early'
    this.list.setAttribute('aria-label', 'Sent when the panel is ready')
    this.box.setAttribute('aria-label', 'Message, before the panel is ready')
    this.box.rows = 2
    this.box.spellcheck = false
    this.box.addEventListener('keydown', event => this.hear(event))
    this.box.addEventListener('compositionstart', () => (this.composing = true))
    // The last letters of a word come after the event that ends it.
    this.box.addEventListener('compositionend', () => setTimeout(() => ((this.composing = false), this.composed.emit())))
    this.node.append(this.list, this.box)
    this.draw()
  }

  /** Says below what is written what becomes of it. */
  set hint(words: string) {
    this.box.placeholder = words
  }

  get isFocused(): boolean {
    return document.activeElement === this.box
  }

  get isEmpty(): boolean {
    return !this.sent.length && !this.box.value
  }

  focus(): void {
    this.box.focus()
  }

  /** Notes that what is written is to be sent once the panel is ready. */
  send(): void {
    if (!this.box.value.trim()) return
    this.sent.push(this.box.value)
    this.box.value = ''
    this.draw()
  }

  /** Returns what was typed and is empty from then on; null while an input method is writing a word. */
  take(): Early | null {
    if (this.composing) return null
    const { sent, box } = this
    const early: Early = { sent, text: box.value, selection: [box.selectionStart, box.selectionEnd], focused: this.isFocused }
    this.sent = []
    box.value = ''
    this.draw()
    return early
  }

  /** Puts back what another box has held. */
  put({ sent, text, selection }: Early): void {
    this.sent.unshift(...sent)
    this.box.value = [text, this.box.value].filter(Boolean).join('\n\n')
    this.box.setSelectionRange(...selection)
    this.draw()
  }

  private hear(event: KeyboardEvent): void {
    if (event.key !== 'Enter' || event.isComposing || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return
    event.preventDefault()
    this.entered.emit()
  }

  private draw(): void {
    this.list.hidden = !this.sent.length
    this.list.replaceChildren(...this.sent.map(words => Object.assign(document.createElement('li'), { textContent: words })))
  }
}
