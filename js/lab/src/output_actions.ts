// Ask about this, Explain and Fix: over the output of a cell, in the command palette, and by keys.
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application'
import { ICommandPalette } from '@jupyterlab/apputils'
import { Cell, CodeCell } from '@jupyterlab/cells'
import { IOutput, IMimeBundle, isError, isStream, isExecuteResult, isDisplayData } from '@jupyterlab/nbformat'
import { Notebook, NotebookPanel } from '@jupyterlab/notebook'
import { CommandRegistry } from '@lumino/commands'
import { PANEL } from './dock'
import { IKernelLinks, KernelLinks } from './kernel_links'
import { OutputPart } from './messages'
import { isTrusted } from './trust'

type Action = 'ask' | 'explain' | 'fix'

const ACTIONS: [action: Action, word: string, label: string][] = [
  ['ask', 'Ask about this', 'Ask About This Output'],
  ['explain', 'Explain', 'Explain This Output'],
  ['fix', 'Fix', 'Fix This Error']
]
const command = (action: Action) => `agentmagic:${action}-output`

/** Outputs of a cell that are sent, characters of one text and of all of them; the kernel takes no more. */
const MOST = 18
const LONGEST_TEXT = 100_000
const LONGEST = 8_000_000

export const outputActions: JupyterFrontEndPlugin<void> = {
  id: 'agentmagic:outputs',
  description: 'Asks the agent about the output of a cell.',
  autoStart: true,
  requires: [IKernelLinks],
  optional: [ICommandPalette],
  activate: ({ commands }: JupyterFrontEnd, links: KernelLinks | null, palette: ICommandPalette | null) => {
    if (!links) return
    const { tracker } = links
    /** Whether something can be done with the output of a cell, if agentmagic is loaded. */
    const can = (panel: NotebookPanel | null, cell: Cell | null | undefined, action: Action): cell is CodeCell => {
      if (!panel || !(cell instanceof CodeCell) || !isTrusted(panel.context.model)) return false
      const parts = shownBy(cell)
      return action === 'fix' ? parts.some(({ kind }) => kind === 'error') : parts.length > 0
    }
    const isOffered = (panel: NotebookPanel | null, cell: Cell | null | undefined, action: Action) =>
      panel !== null && links.of(panel).state !== null && can(panel, cell, action)
    /** Takes the keys in any case: what is typed next is meant for the panel, also before the kernel has answered. */
    const act = (panel: NotebookPanel | null, cell: Cell | null | undefined, action: Action) => {
      if (panel && can(panel, cell, action)) {
        const source = cell.model.sharedModel.getSource().slice(0, LONGEST_TEXT)
        links.of(panel).sendSoon({ type: 'output', action, count: cell.model.executionCount, source, outputs: shownBy(cell) })
      }
      void commands.execute(PANEL, { begins: action !== 'ask' })
    }
    const active = () => tracker.currentWidget?.content.activeCell
    for (const [action, , label] of ACTIONS) {
      commands.addCommand(command(action), {
        label,
        isEnabled: () => (action === 'ask' ? active() instanceof CodeCell : can(tracker.currentWidget, active(), action)),
        isVisible: () => isOffered(tracker.currentWidget, active(), action),
        execute: () => act(tracker.currentWidget, active(), action)
      })
      palette?.addItem({ command: command(action), category: 'Agent' })
    }
    const bar = new Bar(commands)
    tracker.widgetAdded.connect((_, panel) => {
      bar.follow(panel.content, (cell, action) => isOffered(panel, cell, action), (cell, action) => act(panel, cell, action))
    })
  }
}

/** The buttons over an output; they stand over the one that the pointer is on. */
class Bar {
  private node = document.createElement('div')
  private buttons = new Map<Action, HTMLButtonElement>()
  private act = (_: Action): void => undefined

  constructor(private commands: CommandRegistry) {
    this.node.className = 'agentmagic-output-bar'
    this.node.setAttribute('role', 'toolbar')
    this.node.setAttribute('aria-label', 'Ask the agent about this output')
    for (const [action, word] of ACTIONS) {
      const button = document.createElement('button')
      button.textContent = word
      button.addEventListener('click', event => event.isTrusted && this.act(action))
      this.buttons.set(action, button)
      this.node.append(button)
    }
  }

  /** Shows the buttons in a notebook. */
  follow(notebook: Notebook, can: (cell: Cell, action: Action) => boolean, act: (cell: Cell, action: Action) => void): void {
    notebook.node.addEventListener('pointerover', ({ target }) => {
      const output = target instanceof Element && target.closest('.jp-Cell-outputWrapper')
      if (output && output === this.node.parentElement) return
      const cell = output && notebook.widgets.find(({ node }) => node.contains(output))
      if (!cell || !can(cell, 'ask')) return this.node.remove()
      this.act = action => {
        this.node.remove()
        act(cell, action)
      }
      for (const [action, button] of this.buttons) {
        button.hidden = !can(cell, action)
        button.title = this.keysOf(action)
      }
      output.append(this.node)
    })
    notebook.node.addEventListener('pointerleave', () => this.node.remove())
  }

  private keysOf(action: Action): string {
    const binding = this.commands.keyBindings.find(one => one.command === command(action))
    return binding ? CommandRegistry.formatKeystroke(binding.keys) : ''
  }
}

/** Returns what a cell shows, but for what agentmagic itself shows there. */
function shownBy(cell: CodeCell): OutputPart[] {
  const parts: OutputPart[] = []
  for (const output of cell.model.outputs.toJSON()) {
    const part = partOf(output)
    const last = parts.at(-1)
    if (last?.kind === 'error') break // what extensions print below it
    if (part?.kind === 'text' && last?.kind === 'text') last.text = cut(last.text + part.text)
    else if (part) parts.push(part)
  }
  let room = LONGEST
  return parts.slice(0, MOST).filter(part => (room -= part.kind === 'image' ? part.data.length : part.text.length) >= 0)
}

function partOf(output: IOutput): OutputPart | null {
  if (isStream(output)) return { kind: 'text', text: cut(joined(output.text)) }
  if (isError(output)) return { kind: 'error', text: cut(output.traceback.join('\n') || `${output.ename}: ${output.evalue}`) }
  if (!isExecuteResult(output) && !isDisplayData(output)) return null
  const data = output.data as IMimeBundle
  const result = isExecuteResult(output)
  if (joined(data['text/html']).includes('<agentmagic-')) return null
  for (const type of ['image/png', 'image/jpeg'] as const) {
    if (data[type]) return { kind: 'image', type, data: joined(data[type]).replace(/\s/g, ''), result }
  }
  const text = joined(data['text/plain'])
  return text ? { kind: result ? 'result' : 'text', text: cut(text) } : null
}

/** Returns a text that notebooks also hold as lines. */
const joined = (text: unknown): string => (Array.isArray(text) ? text.join('') : typeof text === 'string' ? text : '')
/** Returns the beginning and the end of a text that is too long. */
const cut = (text: string): string =>
  text.length <= LONGEST_TEXT ? text : `${text.slice(0, LONGEST_TEXT / 2)}\n(…)\n${text.slice(20 - LONGEST_TEXT / 2)}`
