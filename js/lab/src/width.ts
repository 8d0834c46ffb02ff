// The width of the docked panel: one that has room for the panel, until the user chooses another.
import { SplitPanel, Widget } from '@lumino/widgets'

/** Pixels. */
const WIDTH = 420
/** The share of the page that the panel takes at most by itself. */
const MOST = 0.5
/** Where the width is kept that the user has chosen, in pixels. */
const CHOSEN = 'agentmagic-panel-width'

const followed = new WeakSet<SplitPanel>()

/** Gives a panel, which has just been shown, its width in the page. */
export function giveWidth(panel: Widget): void {
  const [split, side] = around(panel)
  if (!split || !side || !panel.isVisible) return
  if (!followed.has(split)) {
    followed.add(split)
    split.handleMoved.connect(() => panel.isVisible && localStorage.setItem(CHOSEN, String(side.node.offsetWidth)))
  }
  const { widgets } = split
  const sizes = widgets.map(one => (one.isHidden ? 0 : one.node.offsetWidth))
  const place = widgets.indexOf(side)
  const total = sizes.reduce((sum, size) => sum + size, 0)
  const chosen = Number(localStorage.getItem(CHOSEN))
  const width = chosen || Math.min(WIDTH, MOST * total)
  const beside = sizes.findLastIndex((size, index) => size > 0 && index < place)
  if (beside < 0) return
  sizes[beside]! += sizes[place]! - width
  sizes[place] = width
  if (sizes.every(size => size >= 0)) split.setRelativeSizes(sizes)
}

/** Returns what a panel shares the width of the page with others in, and the part of it in which the panel is. */
function around(panel: Widget): [SplitPanel | null, Widget | null] {
  for (let part = panel; part.parent; part = part.parent) {
    const { parent } = part
    if (parent instanceof SplitPanel && parent.orientation === 'horizontal') return [parent, part]
  }
  return [null, null]
}
