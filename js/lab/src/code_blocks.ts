// Puts code of an answer into cells, for the Insert and New cell buttons that views draw (js/src/code.js). It never runs it.
//
// A view finds this under a symbol of the global object, and passes on the click. Why not otherwise:
// - Untrusted outputs hold HTML without scripts. HTML can shadow the properties of `window` that are named by strings,
//   with ids and names of elements, but no symbols. The property is made before the first notebook is drawn and cannot be
//   replaced.
// - Frames in outputs, and other pages, can send messages and have no way to this object. So nothing listens to messages.
// - Events of the document can be sent by any script. So nothing listens to those either, and a call needs the event of a
//   click that a person has made (`isTrusted`), is under way, was used once at most, and was made in a view of ours.
// Scripts of trusted outputs can do all that JupyterLab can. No interface in the page keeps those out, and this one gives
// them nothing more.
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application'
import { Cell, CodeCell } from '@jupyterlab/cells'
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook'
import { isAgentCell } from './agent_cells'
import { goTo } from './cells'
import { IKernelLinks, KernelLinks } from './kernel_links'

const FRONT_END = Symbol.for('agentmagic.front-end')

export const codeBlocks: JupyterFrontEndPlugin<void> = {
  id: 'agentmagic:code-blocks',
  description: 'Puts code of an answer into cells.',
  autoStart: true,
  requires: [IKernelLinks],
  activate: (app: JupyterFrontEnd, links: KernelLinks | null) => {
    if (!links || FRONT_END in globalThis) return
    const cells = new LastCells(links.tracker)
    const doing = (put: (panel: NotebookPanel, view: Element, code: string) => Cell | null) => (code: unknown, click: unknown) => {
      const view = clickedView(click)
      const panel = view && notebookOf(view, links.tracker)
      if (!panel || typeof code !== 'string' || panel.context.model.readOnly) return false
      const cell = put(panel, view, code)
      if (cell) void goTo(app, panel, cell, 'edit').then(() => cell.editor?.focus())
      return cell !== null
    }
    const value = Object.freeze({
      insert: doing((panel, view, code) => insert(cells.before(panel, view), code) ?? newCell(panel, view, code)),
      newCell: doing(newCell)
    })
    Object.defineProperty(globalThis, FRONT_END, { value })
  }
}

const used = new WeakSet<Event>()

/** Returns the view in which a person has clicked just now. */
function clickedView(click: unknown): Element | null {
  if (!(click instanceof MouseEvent) || click.type !== 'click' || !click.isTrusted || click.eventPhase === Event.NONE) return null
  if (used.has(click)) return null
  used.add(click)
  const path = click.composedPath()
  return path.find((node): node is Element => node instanceof Element && node.localName === 'agentmagic-view') ?? null
}

/** Returns the notebook that a view stands in, or the one in front for a view beside it. */
function notebookOf(view: Element, tracker: INotebookTracker): NotebookPanel | null {
  if (view.closest('.jp-CodeConsole')) return null
  return tracker.find(panel => panel.node.contains(view)) ?? tracker.currentWidget
}

/** Knows the cell of each notebook that the user was in before the one whose output was clicked. */
class LastCells {
  private cells = new WeakMap<NotebookPanel, [now: Cell, before?: Cell]>()

  constructor(tracker: INotebookTracker) {
    tracker.activeCellChanged.connect((_, cell) => {
      const panel = tracker.currentWidget
      const [now] = (panel && this.cells.get(panel)) ?? []
      if (panel && cell && cell !== now) this.cells.set(panel, [cell, now])
    })
  }

  before(panel: NotebookPanel, view: Element): Cell | undefined {
    const [now, before] = this.cells.get(panel) ?? []
    return now?.node.contains(view) ? before : now
  }
}

/** Writes code at the cursor of a cell, if it is one for code. */
function insert(cell: Cell | undefined, code: string): Cell | null {
  if (!cell?.editor || cell.isDisposed || !(cell instanceof CodeCell) || cell.readOnly || isAgentCell(cell.model)) return null
  cell.inputHidden = false
  cell.editor.replaceSelection?.(code)
  return cell
}

/** Makes a cell of code below the one that a view stands in, else below the active one. */
function newCell({ content, context }: NotebookPanel, view: Element, code: string): Cell | null {
  const own = content.widgets.findIndex(cell => cell.node.contains(view))
  const place = (own < 0 ? content.activeCellIndex : own) + 1
  context.model.sharedModel.insertCell(place, { cell_type: 'code', source: code, metadata: { trusted: true } })
  return content.widgets[place] ?? null
}
