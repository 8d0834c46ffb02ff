// The panel beside the notebook: the view of the notebook in front, or a line that says why there is none.
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils'
import { PathExt } from '@jupyterlab/coreutils'
import { Message } from '@lumino/messaging'
import { Signal } from '@lumino/signaling'
import { Widget } from '@lumino/widgets'
import { agentIcon } from './icon'
import { KernelLink } from './kernel_link'
import { KernelLinks } from './kernel_links'
import { isTrusted } from './trust'

export const WAITS = 'The agent waits for you'
const LOAD = '%load_ext agentmagic'

export class DockedPanel extends Widget {
  /** Emitted when the panel is opened or closed. */
  readonly shown = new Signal<this, boolean>(this)
  private drawn = ''
  private wanted = false

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
  }

  protected override onAfterHide(_: Message): void {
    this.shown.emit(false)
  }

  protected override onActivateRequest(_: Message): void {
    this.draw()
    this.goThere()
  }

  protected override onUpdateRequest(_: Message): void {
    this.draw()
  }

  private draw(): void {
    const waits = this.link?.state?.waits
    this.title.className = waits ? 'agentmagic-waits' : ''
    this.title.caption = waits ? WAITS : 'Agent'
    if (!this.isVisible) return
    const { link } = this
    const [words, view] = this.found()
    if (!view && !words) link?.send({ type: 'dock' })
    const wanted = `${link?.context.path} ${view} ${words}`
    if (wanted === this.drawn) return
    this.drawn = wanted
    const hadKeys = this.node.contains(document.activeElement)
    this.node.replaceChildren(...this.content(words, view))
    if (this.wanted || hadKeys) this.goThere()
  }

  /** Has the keys go to what the panel shows, or to the view that is on its way. */
  private goThere(): void {
    const place = this.node.querySelector('agentmagic-view')
    this.wanted = !place && this.found()[0] === ''
    place?.setAttribute('data-wanted', '')
    const target = place ?? this.node.querySelector('button')
    if (target instanceof HTMLElement) target.focus()
  }

  /** Returns what is said in place of the view, and the view's name. */
  private found(): [words: string, view: string] {
    const { link } = this
    if (!link) return ['Open a notebook to talk with its agent.', '']
    if (!link.kernel) return ['This notebook has no kernel. Start one from the Kernel menu.', '']
    if (!isTrusted(link.context.model)) {
      return ['This notebook is not trusted, so nothing is offered for it. Run its cells, or choose “Trust Notebook” in the command palette.', '']
    }
    if (!link.isLoaded) return ['agentmagic is not loaded in the kernel of this notebook.', '']
    return ['', link.state?.view ?? '']
  }

  private content(words: string, view: string): HTMLElement[] {
    const note = document.createElement('div')
    note.className = 'agentmagic-dock-note'
    const line = document.createElement('p')
    line.textContent = words || 'The panel is on its way.'
    note.append(line)
    const { link } = this
    if (link?.kernel && isTrusted(link.context.model) && !link.isLoaded) note.append(this.loader(link))
    if (!view) return [note]
    const place = document.createElement('agentmagic-view')
    place.setAttribute('view', view)
    // Where the view finds the tab to be marked while something waits.
    this.node.dataset.tab = this.links.tracker.currentWidget?.id
    return [place, note]
  }

  private loader(link: KernelLink): HTMLElement {
    const button = document.createElement('button')
    button.className = 'jp-mod-styled jp-mod-accept'
    button.textContent = 'Load agentmagic'
    button.addEventListener('click', () => void load(link))
    return button
  }
}

/** Loads agentmagic in the kernel of a notebook, if the user agrees to the line that does so. */
async function load({ kernel, context }: KernelLink): Promise<void> {
  const { button } = await showDialog({
    title: 'Load agentmagic?',
    body: `This runs ${LOAD} in the kernel of ${PathExt.basename(context.path)}.`,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Run it' })]
  })
  if (!button.accept || !kernel || kernel.isDisposed) return
  const { content } = await kernel.requestExecute({ code: LOAD, store_history: false }).done
  if (content.status === 'error') void showErrorMessage('agentmagic was not loaded', `${content.ename}: ${content.evalue}`)
}
