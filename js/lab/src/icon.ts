import { LabIcon } from '@jupyterlab/ui-components'

export const agentIcon = new LabIcon({
  name: 'agentmagic:agent',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" d="M4 3h16a2 2 0 0 1 2 2v11a2 2 0 0 1-2 2h-7l-5 4v-4H4a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2zm8 2-1.6 3.9L6.500 10.500l3.900 1.600L12 16l1.600-3.900 3.900-1.600-3.900-1.600z"/>
</svg>`
})
