// The plugins of the extension. Each does without what a front end does not have: Notebook 7 has no status bar.
import { attention } from './attention'
import { dock } from './dock'
import { kernelLinks } from './kernel_links'
import { stagedCells } from './staged_cells'

export default [kernelLinks, dock, attention, stagedCells]
