// The links of all notebooks in the page, and which of them is in front. The other plugins begin here.
import { JupyterFrontEndPlugin } from '@jupyterlab/application'
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook'
import { Token } from '@lumino/coreutils'
import { Signal } from '@lumino/signaling'
import { KernelLink } from './kernel_link'

export class KernelLinks {
  /** Emitted when another notebook is in front, or the kernel of one or that kernel's state is another one. */
  readonly changed = new Signal<this, void>(this)
  /** By their notebook, which may be open in several views. */
  private links = new Map<NotebookPanel['context'], KernelLink>()
  private followers: ((link: KernelLink) => void)[] = []

  constructor(readonly tracker: INotebookTracker) {
    tracker.widgetAdded.connect((_, notebook) => this.of(notebook))
    tracker.currentChanged.connect(() => this.changed.emit())
  }

  /** The link of the notebook in front, or null without a notebook. */
  get front(): KernelLink | null {
    return this.tracker.currentWidget && this.of(this.tracker.currentWidget)
  }

  /** The notebook that waits for the user: the one in front, if it does, else another one. */
  get waiting(): NotebookPanel | null {
    const waits = (notebook: NotebookPanel) => Boolean(this.of(notebook).state?.waits)
    const { currentWidget } = this.tracker
    return currentWidget && waits(currentWidget) ? currentWidget : this.tracker.find(waits) ?? null
  }

  /** Returns the link of a notebook, which is made when the notebook is first seen. */
  of({ context }: NotebookPanel): KernelLink {
    const known = this.links.get(context)
    if (known) return known
    const link = new KernelLink(context)
    this.links.set(context, link)
    context.disposed.connect(() => this.links.delete(context))
    link.changed.connect(() => this.changed.emit())
    for (const follow of this.followers) follow(link)
    return link
  }

  /** Calls a function with every link, those that come later too. */
  each(follow: (link: KernelLink) => void): void {
    this.followers.push(follow)
    for (const link of this.links.values()) follow(link)
  }
}

/** What other plugins get the links by: null in a page without notebooks. */
export const IKernelLinks = new Token<KernelLinks | null>('agentmagic:KernelLinks')

export const kernelLinks: JupyterFrontEndPlugin<KernelLinks | null> = {
  id: 'agentmagic:links',
  description: 'Links notebooks with kernels in which agentmagic is loaded.',
  autoStart: true,
  provides: IKernelLinks,
  optional: [INotebookTracker],
  activate: (_, tracker: INotebookTracker | null) => tracker && new KernelLinks(tracker)
}
