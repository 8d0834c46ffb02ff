// The plugins of the extension. Each does without what a front end does not have: Notebook 7 has no status bar.
import { agentCells } from './agent_cells'
import { attention } from './attention'
import { codeBlocks } from './code_blocks'
import { dock } from './dock'
import { kernelLinks } from './kernel_links'
import { outputActions } from './output_actions'
import { stagedCells } from './staged_cells'

export default [kernelLinks, dock, attention, codeBlocks, outputActions, agentCells, stagedCells]
