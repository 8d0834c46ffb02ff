// The panel beside the notebook: the view of the notebook in front, or a line that says why there is none.
import { Message } from '@lumino/messaging'
import { Signal } from '@lumino/signaling'
import { Widget } from '@lumino/widgets'
import { Early, EarlyBox } from './early_box'
import { agentIcon } from './icon'
import { KernelLink } from './kernel_link'
import { KernelLinks } from './kernel_links'
import { askToLoad, load } from './loading'
import { isTrusted } from './trust'
import { giveWidth } from './width'

export const WAITS = 'The agent waits for you'

/** Milliseconds in which the notebook may take the keys by itself after the panel was opened. */
const HOLD = 1_000

/** The place of a view; js/src/place.js has the element, once a kernel has brought it. */
type Place = HTMLElement & { ready?: boolean; takeEarly?: () => void; early?: () => Early | null; follow?: () => void }

/** What is said in place of the view, what becomes of what is typed meanwhile, and what Enter does. */
interface Found {
  words: string
  hint: string
  enter: 'keep' | 'send' | 'load'
}

const KEPT = 'What you type here is kept.'
const HELD = 'The output is sent as soon as the kernel has answered.'
const COMING: Found = { words: 'The panel is on its way.', hint: 'Enter sends, as soon as the panel is ready', enter: 'send' }
const CONNECTING: Found = { words: 'The notebook is being connected to its kernel.', hint: KEPT, enter: 'keep' }

export class DockedPanel extends Widget {
  /** Emitted when the panel is opened or closed. */
  readonly shown = new Signal<this, boolean>(this)
  private drawn = ''
  private place: Place | null = null
  private hold = new AbortController()
  /** What is typed before a view is there, by notebook; under null, what is typed without a notebook. */
  private boxes = new Map<KernelLink | null, EarlyBox>()

  constructor(private links: KernelLinks) {
    super()
    this.id = 'agentmagic-panel'
    this.addClass('agentmagic-dock')
    this.node.setAttribute('role', 'region')
    this.node.setAttribute('aria-label', 'Agent')
    this.title.icon = agentIcon
    this.title.caption = 'Agent'
    links.changed.connect(() => this.update())
  }

  private get link(): KernelLink | null {
    return this.links.front
  }

  protected override onAfterShow(_: Message): void {
    this.shown.emit(true)
    this.update()
    requestAnimationFrame(() => giveWidth(this))
  }

  protected override onAfterHide(_: Message): void {
    this.shown.emit(false)
  }

  protected override onActivateRequest(_: Message): void {
    this.takeKeys()
  }

  protected override onUpdateRequest(_: Message): void {
    this.draw()
  }

  /** Has the keys go to the view, or to a box until it is there. This is done at once: other keys are the notebook's. */
  takeKeys(): void {
    this.draw()
    if (this.place?.ready) return this.place.focus()
    this.showBox()
    this.box.focus()
  }

  /** Has the view scroll to the turn that the user begins over an output; one that is not there yet begins at its end. */
  follow(): void {
    this.place?.follow?.()
  }

  /**
   * Takes the keys back for a moment if the notebook takes them by itself, as the command palette has it do when it
   * closes. A click, or a key that is pressed elsewhere, ends that.
   */
  holdKeys(): void {
    this.releaseKeys()
    const { signal } = (this.hold = new AbortController())
    const isOurs = ({ target }: Event) => target instanceof Node && this.node.contains(target)
    const takeBack = ({ target }: Event) => target instanceof Element && target.closest('.jp-NotebookPanel') && this.takeKeys()
    document.addEventListener('focusin', takeBack, { signal })
    document.addEventListener('pointerdown', () => this.releaseKeys(), { signal, capture: true })
    document.addEventListener('keydown', event => isOurs(event) || this.releaseKeys(), { signal, capture: true })
    setTimeout(() => signal === this.hold.signal && this.releaseKeys(), HOLD)
  }

  releaseKeys(): void {
    this.hold.abort()
  }

  private draw(): void {
    const { link } = this
    const waits = link?.state?.waits
    this.title.className = waits ? 'agentmagic-waits' : ''
    this.title.caption = waits ? WAITS : 'Agent'
    if (!this.isVisible) return
    const found = this.found()
    const view = found === COMING ? link?.state?.view : ''
    if (found === COMING && !view) link?.send({ type: 'dock' })
    const wanted = `${link?.context.path} ${view} ${found.words} ${link?.isHolding}`
    if (wanted !== this.drawn) {
      this.drawn = wanted
      this.redraw(found, view ?? '')
    }
    this.place?.takeEarly?.() // of a view that was drawn while the panel was closed
  }

  private redraw(found: Found, view: string): void {
    const { box, node } = this
    const hadKeys = node.contains(document.activeElement)
    for (const child of [...node.children]) if (child !== box.node) child.remove()
    this.showBox()
    box.hint = found.hint
    this.place = view ? this.placeOf(view, box) : null
    node.append(...(this.place ? [this.place] : []), this.note(found))
    if (hadKeys) this.takeKeys()
  }

  /** Shows the box, until a view takes over what is in it. A box that is shown is not moved: a word may be half written. */
  private showBox(): void {
    if (!this.box.node.isConnected) this.node.prepend(this.box.node)
  }

  /** The box of the notebook in front, in which there is what was typed before a notebook was opened. */
  private get box(): EarlyBox {
    const { link } = this
    const box = this.boxes.get(link) ?? this.newBox(link)
    const homeless = link && this.boxes.get(null)?.take()
    if (homeless) box.put(homeless)
    return box
  }

  private newBox(link: KernelLink | null): EarlyBox {
    const box = new EarlyBox()
    this.boxes.set(link, box)
    link?.context.disposed.connect(() => this.boxes.delete(link))
    box.entered.connect(() => this.enter(box))
    box.composed.connect(() => this.place?.takeEarly?.())
    return box
  }

  private enter(box: EarlyBox): void {
    const { link } = this
    const { enter } = this.found()
    if (enter === 'send') box.send()
    else if (enter === 'load' && link) void this.loadAndSend(link, box)
  }

  private found(): Found {
    const { link } = this
    if (!link) return { words: 'Open a notebook to talk with its agent.', hint: KEPT, enter: 'keep' }
    if (!link.isConnected) return CONNECTING
    if (!link.kernel) return { words: 'This notebook has no kernel. Start one from the Kernel menu.', hint: KEPT, enter: 'keep' }
    if (!isTrusted(link.context.model)) {
      const words = 'This notebook is not trusted, so nothing is offered for it. Run its cells, or choose “Trust Notebook” in the command palette.'
      return { words, hint: KEPT, enter: 'keep' }
    }
    if (link.isLoaded) return COMING
    if (link.isLoading) return { ...COMING, words: 'agentmagic is being loaded. A cell that runs is finished first.' }
    return { words: 'agentmagic is not loaded in the kernel of this notebook.', hint: 'Enter loads agentmagic, then sends', enter: 'load' }
  }

  private placeOf(view: string, box: EarlyBox): Place {
    const place: Place = document.createElement('agentmagic-view')
    place.setAttribute('view', view)
    place.early = () => {
      const early = place === this.place ? box.take() : null
      if (early) box.node.remove()
      return early
    }
    // Where the view finds the tab to be marked while something waits.
    this.node.dataset.tab = this.links.tracker.currentWidget?.id
    return place
  }

  private note({ words, enter }: Found): HTMLElement {
    const note = document.createElement('div')
    note.className = 'agentmagic-dock-note'
    const line = document.createElement('p')
    const { link } = this
    line.textContent = link?.isHolding ? `${words} ${HELD}` : words
    note.append(line)
    if (enter === 'load' && link) note.append(this.loader(link))
    return note
  }

  private loader(link: KernelLink): HTMLElement {
    const button = document.createElement('button')
    button.className = 'jp-mod-styled jp-mod-accept'
    button.textContent = 'Load agentmagic'
    button.addEventListener('click', event => event.isTrusted && void load(link)) // who presses it needs no second question
    return button
  }

  /** Loads agentmagic if the user agrees, and then sends what is in the box. */
  private async loadAndSend(link: KernelLink, box: EarlyBox): Promise<void> {
    if (!(await askToLoad(link))) return
    box.send()
    await load(link)
  }
}
