// Puts the docked panel into the right area, and the ways to it: a button, commands, keys, `%agent chat --dock`.
import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application'
import { ICommandPalette } from '@jupyterlab/apputils'
import { CommandRegistry } from '@lumino/commands'
import { goToWaiting } from './cells'
import { DockedPanel, WAITS } from './docked_panel'
import { agentIcon } from './icon'
import { IKernelLinks, KernelLinks } from './kernel_links'

/** Commands; schema/plugin.json has their keys, and the button. */
export const PANEL = 'agentmagic:panel'
export const GO = 'agentmagic:go-to-waiting'

export const dock: JupyterFrontEndPlugin<void> = {
  id: 'agentmagic:plugin',
  description: 'The agent of a notebook, beside it.',
  autoStart: true,
  requires: [IKernelLinks],
  optional: [ICommandPalette, ILabShell, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    links: KernelLinks | null,
    palette: ICommandPalette | null,
    lab: ILabShell | null,
    restorer: ILayoutRestorer | null
  ) => {
    if (!links) return
    const panel = new DockedPanel(links)
    app.shell.add(panel, 'right', { rank: 900 })
    const open = () => app.shell.activateById(panel.id)
    const show = () => {
      open()
      panel.takeKeys()
      panel.holdKeys()
    }
    /** Goes to the panel, or back to the notebook; with `begins`, to the turn that begins in the panel. */
    const turn = ({ begins }: { begins?: boolean }) => {
      if (begins) panel.follow()
      if (begins !== undefined || !panel.node.contains(document.activeElement)) return show()
      panel.releaseKeys()
      links.tracker.currentWidget?.activate()
    }
    links.each(link => link.on('show', () => link === links.front && show()))
    const waits = () => Boolean(links.front?.state?.waits)
    /** Goes to the cell that waits for the user, or to the panel if what waits was asked there. */
    const go = () => {
      const notebook = links.waiting
      if (!notebook || goToWaiting(app, notebook)) return
      if (notebook !== links.tracker.currentWidget) app.shell.activateById(notebook.id)
      notebook.content.mode = 'command' // in which JupyterLab does not take the keys back
      show()
    }
    app.commands.addCommand(PANEL, {
      label: 'Agent Panel',
      caption: () => (waits() ? WAITS : 'Show the agent beside the notebook'),
      className: () => (waits() ? 'agentmagic-waits' : ''),
      icon: agentIcon,
      execute: args => turn(args)
    })
    app.commands.addCommand(GO, { label: 'Go to What Waits for You', execute: go, isEnabled: () => links.waiting !== null })
    links.changed.connect(() => app.commands.notifyCommandChanged())
    for (const command of [PANEL, GO]) palette?.addItem({ command, category: 'Agent' })
    if (lab) restorer?.add(panel, panel.id)
    else void app.restored.then(() => remember(panel, open))
    hearKeys(app.commands)
  }
}

/** Shows the panel after a reload if it was open before: Notebook 7 does not remember what is in its right area. */
function remember(panel: DockedPanel, open: () => void): void {
  if (localStorage.getItem(panel.id)) open()
  panel.shown.connect((_, isOpen) => (isOpen ? localStorage.setItem(panel.id, 'open') : localStorage.removeItem(panel.id)))
}

/** Where JupyterLab hears no keys: in a view, and in the box of `input()`, which keeps them to itself. */
const UNHEARD = 'agentmagic-view, .jp-Stdin-input'

/** Has the keys of our commands work there too. */
function hearKeys(commands: CommandRegistry): void {
  const hear = (event: KeyboardEvent) => {
    if (!(event.target instanceof Element && event.target.closest(UNHEARD))) return
    const pressed = CommandRegistry.keystrokeForKeydownEvent(event)
    const binding = commands.keyBindings.find(({ command, keys }) => [PANEL, GO].includes(command) && keys.length === 1 && keys[0] === pressed)
    if (!binding) return
    event.preventDefault()
    event.stopPropagation()
    void commands.execute(binding.command)
  }
  document.addEventListener('keydown', hear, true)
}
