// Loads agentmagic in the kernel of a notebook, as a cell with the line would.
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils'
import { PathExt } from '@jupyterlab/coreutils'
import { KernelLink } from './kernel_link'

const LOAD = '%load_ext agentmagic'

/** Returns whether the user agrees to the line that loads agentmagic. */
export async function askToLoad({ context }: KernelLink): Promise<boolean> {
  const { button } = await showDialog({
    title: 'Load agentmagic?',
    body: `This runs ${LOAD} in the kernel of ${PathExt.basename(context.path)}.`,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Run it' })]
  })
  return button.accept
}

/** Loads agentmagic, and says if that fails. */
export async function load(link: KernelLink): Promise<void> {
  if (link.isLoading || link.isLoaded) return
  link.isLoading = true
  const problem = await run(link)
  link.isLoading = false
  if (problem) void showErrorMessage('agentmagic was not loaded', problem)
}

/** Returns what is wrong, or "". */
async function run({ kernel, context }: KernelLink): Promise<string> {
  // The line runs as one of the notebook's cells: by its id the kernel finds the notebook, if that was renamed. The first
  // one is the most likely to be saved in the file.
  const [cell] = context.model.cells
  try {
    const reply = await kernel?.requestExecute({ code: LOAD, store_history: false }, false, { cellId: cell?.id ?? '' }).done
    if (reply?.content.status === 'error') return `${reply.content.ename}: ${reply.content.evalue}`
    return reply?.content.status === 'ok' ? '' : 'A cell that ran before has failed, and the line was left out. Load agentmagic again.'
  } catch {
    return 'The kernel was stopped or restarted meanwhile. Load agentmagic again.'
  }
}
