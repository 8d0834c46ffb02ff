// The plugins of the extension. Each does without what a front end does not have: Notebook 7 has no status bar.
import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application'
import { ICommandPalette } from '@jupyterlab/apputils'
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook'
import { DockedPanel } from './docked_panel'
import { agentIcon } from './icon'
import { KernelLink } from './kernel_link'

/** The links by their notebook, which may be open in several views. */
const links = new WeakMap<NotebookPanel['context'], KernelLink>()

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'agentmagic:plugin',
  description: 'The agent of a notebook, beside it.',
  autoStart: true,
  optional: [INotebookTracker, ICommandPalette, ILabShell, ILayoutRestorer],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker | null, palette: ICommandPalette | null, lab: ILabShell | null, restorer: ILayoutRestorer | null) => {
    if (!tracker) return // a page without notebooks
    const panel = new DockedPanel()
    app.shell.add(panel, 'right', { rank: 900 })
    restorer?.add(panel, panel.id)
    const show = () => {
      lab?.expandRight?.()
      app.shell.activateById(panel.id)
    }
    const front = () => (tracker.currentWidget ? linked(tracker.currentWidget) : null)
    /** Returns the link of a notebook, which is made when the notebook is first seen. */
    const linked = ({ context }: NotebookPanel) => {
      const known = links.get(context)
      if (known) return known
      const link = new KernelLink(context)
      links.set(context, link)
      link.changed.connect(() => link === front() && panel.update())
      link.on('show', () => link === front() && show())
      return link
    }
    tracker.widgetAdded.connect((_, notebook) => linked(notebook))
    tracker.currentChanged.connect(() => panel.follow(front()))
    app.commands.addCommand('agentmagic:panel', { label: 'Show the Agent Panel', caption: 'Show the agent beside the notebook', icon: agentIcon, execute: show })
    app.commands.addCommand('agentmagic:go-to-waiting', { label: 'Go to What Waits for You', execute: show })
    for (const command of ['agentmagic:panel', 'agentmagic:go-to-waiting']) palette?.addItem({ command, category: 'Agent' })
  }
}

export default plugin
