// Cells to which the user is taken.
import { JupyterFrontEnd } from '@jupyterlab/application'
import { Cell, CodeCell } from '@jupyterlab/cells'
import { NotebookMode, NotebookPanel } from '@jupyterlab/notebook'

/** Brings a cell of a notebook into sight, as the active one. In the mode `edit` JupyterLab keeps the keys in its editor. */
export function goTo({ shell }: JupyterFrontEnd, { id, content }: NotebookPanel, cell: Cell, mode: NotebookMode): Promise<void> {
  shell.activateById(id)
  content.deselectAll()
  content.activeCellIndex = content.widgets.indexOf(cell)
  content.mode = mode
  return content.scrollToCell(cell)
}

/** Goes to what waits for the user in a cell of a notebook. Returns whether there is such a cell. */
export function goToWaiting(app: JupyterFrontEnd, notebook: NotebookPanel): boolean {
  for (const cell of notebook.content.widgets) {
    const place = cell instanceof CodeCell ? waitingIn(cell) : undefined
    if (!place) continue
    if (cell instanceof CodeCell) cell.outputHidden = false
    void goTo(app, notebook, cell, 'command').then(() => place.focus())
    return true
  }
  return false
}

/** Returns the view that waits in the output of a cell (js/src/place.js), or the box of a question that is typed. */
function waitingIn({ node }: CodeCell): HTMLElement | undefined {
  const places = [...node.querySelectorAll<HTMLElement & { waits?: boolean }>('agentmagic-view')]
  return places.find(({ waits }) => waits === true) ?? node.querySelector<HTMLElement>('.jp-Stdin-input') ?? undefined
}
