// Says in the status bar which model answers, what it has cost, whether a turn runs, and which notebook waits for the user.
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application'
import { PathExt } from '@jupyterlab/coreutils'
import { IStatusBar } from '@jupyterlab/statusbar'
import { Widget } from '@lumino/widgets'
import { GO } from './dock'
import { IKernelLinks, KernelLinks } from './kernel_links'

export const attention: JupyterFrontEndPlugin<void> = {
  id: 'agentmagic:attention',
  description: 'Says in the status bar what the agent of the notebook in front is doing.',
  autoStart: true,
  requires: [IKernelLinks],
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, links: KernelLinks | null, bar: IStatusBar | null) => {
    if (!links || !bar) return
    const item = new StatusItem(links, () => void app.commands.execute(GO))
    bar.registerStatusItem('agentmagic:status', { item, align: 'middle', isActive: () => item.isActive, activeStateChanged: links.changed })
  }
}

class StatusItem extends Widget {
  private waits = document.createElement('button')
  private said = document.createElement('span')

  constructor(private links: KernelLinks, go: () => void) {
    super()
    this.addClass('agentmagic-status')
    this.waits.title = 'Go to what waits for you'
    this.waits.addEventListener('click', go)
    this.node.append(this.said, this.waits)
    links.changed.connect(() => this.draw())
    this.draw()
  }

  get isActive(): boolean {
    return Boolean(this.said.textContent) || !this.waits.hidden
  }

  private draw(): void {
    const { front, waiting } = this.links
    const { model, cost, running, waits } = front?.state ?? {}
    const turn = running && !waits ? `${running} runs a turn` : ''
    this.said.textContent = [model, cost, turn].filter(Boolean).join(' · ')
    this.waits.hidden = !waiting
    const other = waiting && waiting.context !== front?.context ? `${PathExt.basename(waiting.context.path)} ` : ''
    this.waits.textContent = `(!) ${other}waits for you`
  }
}
