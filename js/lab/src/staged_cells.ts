// Proposed cells: each stands below its cell, not run, until the user keeps or discards it. None of them is part of the
// notebook before that, so that nothing runs or saves it.
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application'
import { Cell } from '@jupyterlab/cells'
import { CodeEditor } from '@jupyterlab/codeeditor'
import { INotebookModel, NotebookActions, NotebookPanel } from '@jupyterlab/notebook'
import { PanelLayout, Widget } from '@lumino/widgets'
import { KernelLink } from './kernel_link'
import { IKernelLinks, KernelLinks } from './kernel_links'
import { Proposal, Settled } from './messages'
import { isTrusted } from './trust'

export const stagedCells: JupyterFrontEndPlugin<void> = {
  id: 'agentmagic:staged-cells',
  description: 'Shows proposed cells in the notebook, to be kept or discarded.',
  autoStart: true,
  requires: [IKernelLinks],
  activate: (_: JupyterFrontEnd, links: KernelLinks | null) => {
    if (!links) return
    const stage = (notebook: NotebookPanel) => new Stage(notebook, links.of(notebook))
    links.tracker.forEach(stage)
    links.tracker.widgetAdded.connect((_, notebook) => stage(notebook))
  }
}

const TITLES = { insert: 'Proposed cell', change: 'Proposed change', remove: 'Proposed removal' }

/** The staged cells of a notebook, and the bar above it. */
class Stage {
  cards: StagedCell[] = []
  private bar = new Bar(this)
  /** Whether proposals are being applied, and are placed after that. */
  private keeping = false

  constructor(readonly panel: NotebookPanel, private link: KernelLink) {
    panel.contentHeader.addWidget(this.bar)
    const leave = link.on('proposals', ({ proposals }) => this.show(proposals))
    panel.disposed.connect(leave)
    void panel.context.ready.then(() => panel.content.model?.cells.changed.connect(() => this.place()))
    link.changed.connect(() => this.place())
  }

  /** Takes over what the kernel says is open; what the user has typed into a card stays. */
  private show(proposals: Proposal[]): void {
    const known = new Map(this.cards.map(card => [card.proposal.id, card]))
    const open = new Set(proposals.map(({ id }) => id))
    for (const card of this.cards) if (!open.has(card.proposal.id)) card.dispose()
    this.cards = proposals.map(proposal => known.get(proposal.id) ?? new StagedCell(proposal, this))
    this.place()
  }

  /** Puts each card below its cell: cells come and go. */
  private place(): void {
    const { content, isDisposed } = this.panel
    if (isDisposed || this.keeping || !content.model) return
    const trusted = isTrusted(content.model)
    this.bar.draw()
    this.cards = this.cards.map(card => (card.isDisposed ? card.again() : card)) // a cell that is removed takes it along
    const cells = new Map(content.widgets.map(cell => [cell.model.id, cell]))
    const last = content.widgets[content.widgets.length - 1]
    for (const card of this.cards) card.stand(trusted ? cells.get(card.anchor) ?? last : undefined)
  }

  get shown(): boolean {
    const { model } = this.panel.content
    return Boolean(this.cards.length && model && isTrusted(model))
  }

  /** Applies proposals in one step of undo; those whose cell has changed stay, and say so. */
  keep(cards: StagedCell[], run = false): void {
    const notebook = this.panel.content
    const shared = notebook.model?.sharedModel
    if (!shared) return
    const settled: Settled[] = []
    let last = ''
    const undo = (shared as unknown as { undoManager: { stopCapturing(): void } }).undoManager
    undo.stopCapturing()
    this.keeping = true
    shared.transact(() => {
      for (const card of cards) {
        const id = this.apply(card, shared)
        if (id === null) continue
        last = id || last
        settled.push(card.kept(run))
      }
    })
    this.keeping = false
    undo.stopCapturing()
    this.settle(settled)
    const at = notebook.widgets.findIndex(({ model }) => model.id === last)
    if (at >= 0) notebook.activeCellIndex = at
    if (at >= 0 && run) {
      notebook.deselectAll()
      void NotebookActions.run(notebook, this.panel.sessionContext)
    }
  }

  /** Applies a proposal. Returns the id of its cell, "" if that is removed, or null if the proposal cannot be applied. */
  private apply(card: StagedCell, shared: INotebookModel['sharedModel']): string | null {
    const { anchor, source, proposal: { action, kind, before } } = card
    const place = shared.cells.findIndex(cell => cell.getId() === anchor)
    const cell = shared.cells[place]
    if (action === 'insert') {
      const metadata = kind === 'code' ? { trusted: true } : {}
      const made = shared.insertCell(place < 0 ? shared.cells.length : place + 1, { cell_type: kind, source, metadata })
      this.follow(card, made.getId())
      return made.getId()
    }
    if (!cell || cell.getSource() !== before) {
      card.refuse(cell ? 'The cell has changed since this was proposed, so it cannot be applied.' : 'The cell is not there any more.')
      return null
    }
    if (action === 'change') cell.setSource(source)
    else shared.deleteCell(place)
    return action === 'change' ? anchor : ''
  }

  discard(cards: StagedCell[]): void {
    this.settle(cards.map(({ proposal: { id } }) => ({ id, fate: 'discarded' })))
  }

  /** Has later proposals for the place of a kept one come below it. */
  private follow(kept: StagedCell, id: string): void {
    const { anchor } = kept
    const later = this.cards.slice(this.cards.indexOf(kept) + 1)
    for (const card of later) if (card.proposal.action === 'insert' && card.anchor === anchor) card.anchor = id
  }

  private settle(settled: Settled[]): void {
    const over = new Set(settled.map(({ id }) => id))
    const left = this.cards.filter(({ proposal: { id } }) => !over.has(id))
    for (const card of this.cards) if (!left.includes(card)) card.dispose()
    this.cards = left
    if (settled.length) this.link.send({ type: 'settle', settled })
    this.place()
    this.bar.say(over.size ? `${counted(over.size)} decided, ${left.length} left.` : '')
    if (!this.panel.node.contains(document.activeElement)) this.panel.content.node.focus()
  }
}

/** A proposal below its cell. */
class StagedCell extends Widget {
  /** The id of the cell that it stands below; a later one of a row stands below an earlier one that was kept. */
  anchor: string
  private editor: CodeEditor.IEditor | null = null
  private problem = element('p', 'agentmagic-staged-problem', { role: 'alert' })
  private home: Cell | undefined

  constructor(readonly proposal: Proposal, private stage: Stage, private written = proposal.source) {
    super()
    this.anchor = proposal.cell
    this.addClass('agentmagic-staged')
    this.node.dataset.action = proposal.action
    this.node.dataset.lmSuppressShortcuts = 'true'
    this.node.setAttribute('role', 'group')
    const title = TITLES[proposal.action] + (proposal.number ? ` ${proposal.action === 'insert' ? 'below' : 'of'} cell ${proposal.number}` : '')
    this.node.setAttribute('aria-label', `${title}: ${proposal.why}`)
    const head = element('div', 'agentmagic-staged-head')
    head.append(element('b', '', {}, title), element('span', 'agentmagic-staged-why', {}, proposal.why), this.buttons())
    this.problem.hidden = true
    this.node.append(head, this.problem)
    if (proposal.action !== 'remove') this.write()
  }

  /** The text as it stands, which the user may have changed. */
  get source(): string {
    return this.editor ? this.editor.model.sharedModel.getSource() : this.written
  }

  /** Returns what became of the proposal, which was kept. */
  kept(ran: boolean): Settled {
    const { source, proposal: { id, action, source: proposed } } = this
    const changed = action !== 'remove' && source !== proposed
    return { id, fate: changed ? 'changed' : 'kept', ...(changed && { source }), ran }
  }

  /** Returns the same card anew, after this one was disposed with its cell. */
  again(): StagedCell {
    const card = new StagedCell(this.proposal, this.stage, this.written)
    card.anchor = this.anchor
    return card
  }

  /** Stands below a cell, or nowhere. */
  stand(home: Cell | undefined): void {
    if (this.home === home && (!home || this.parent === home)) return
    this.home?.node.classList.remove('agentmagic-staged-removal')
    this.home = home
    if (!home) this.parent = null
    else (home.layout as PanelLayout).addWidget(this)
    const aimed = home?.model.id === this.anchor
    if (home && aimed && this.proposal.action === 'remove') home.node.classList.add('agentmagic-staged-removal')
    if (home && !aimed && this.proposal.action !== 'insert') this.refuse('The cell is not there any more.')
  }

  /** Says why the proposal cannot be applied. */
  refuse(words: string): void {
    this.problem.textContent = words
    this.problem.hidden = false
  }

  override dispose(): void {
    if (this.isDisposed) return
    this.home?.node.classList.remove('agentmagic-staged-removal')
    this.written = this.source
    this.editor?.dispose()
    this.editor = null
    super.dispose()
  }

  private buttons(): HTMLElement {
    const { action, kind } = this.proposal
    const keep = button(action === 'remove' ? 'Remove cell' : 'Keep', () => this.stage.keep([this]), 'jp-mod-accept')
    const run = action !== 'remove' && kind === 'code' ? [button('Keep and run', () => this.stage.keep([this], true))] : []
    const buttons = element('span', 'agentmagic-staged-buttons')
    buttons.append(keep, ...run, button('Discard', () => this.stage.discard([this])))
    return buttons
  }

  /** Shows the text in an editor, with what it changes marked. */
  private write(): void {
    const { action, before, kind } = this.proposal
    const model = new CodeEditor.Model({ mimeType: kind === 'code' ? 'text/x-ipython' : 'text/x-ipythongfm' })
    model.sharedModel.setSource(this.written)
    const host = element('div', 'agentmagic-staged-source')
    this.editor = this.stage.panel.content.contentFactory.editorFactory({ host, model, config: { lineNumbers: false } })
    if (action === 'change') void markChanges(this.editor, before)
    host.querySelector('.cm-content')?.setAttribute('aria-label', 'Proposed text')
    this.node.append(host)
  }
}

/** Marks what is other in an editor than a text before it. */
async function markChanges(editor: CodeEditor.IEditor, original: string): Promise<void> {
  const { unifiedMergeView } = await import('@codemirror/merge') // which a page loads when it first needs it
  if (editor.isDisposed) return
  editor.injectExtension(unifiedMergeView({ original, mergeControls: false, gutter: true, highlightChanges: true, allowInlineDiffs: false }))
}

/** How many proposals wait, and what can be done with all of them. */
class Bar extends Widget {
  private words = element('span', '', {})
  private told = element('span', 'agentmagic-heard', { role: 'status' })

  constructor(private stage: Stage) {
    super()
    this.addClass('agentmagic-staged-bar')
    this.node.setAttribute('role', 'region')
    this.node.setAttribute('aria-label', 'Proposed cells')
    this.node.append(
      this.words,
      button('Keep all', () => stage.keep(stage.cards), 'jp-mod-accept'),
      button('Discard all', () => stage.discard(stage.cards)),
      this.told
    )
    this.hide()
  }

  draw(): void {
    this.words.textContent = `${counted(this.stage.cards.length)} in this notebook`
    this.setHidden(!this.stage.shown)
  }

  say(words: string): void {
    this.told.textContent = words
  }
}

const counted = (number: number) => (number === 1 ? '1 proposal' : `${number} proposals`)

function element(tag: string, name: string, attributes: Record<string, string> = {}, text = ''): HTMLElement {
  const made = document.createElement(tag)
  made.className = name
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.textContent = text
  return made
}

function button(label: string, act: () => void, look = ''): HTMLButtonElement {
  const made = element('button', `jp-mod-styled jp-mod-small ${look}`, {}, label) as HTMLButtonElement
  made.addEventListener('click', act)
  return made
}
