import { isCodeCellModel } from '@jupyterlab/cells'
import { INotebookModel } from '@jupyterlab/notebook'

/** Whether all outputs of a notebook are trusted: by Jupyter's signature, or since the user has run their cells. */
export function isTrusted(model: INotebookModel): boolean {
  return [...model.cells].every(cell => !isCodeCellModel(cell) || cell.trusted || cell.outputs.length === 0)
}
