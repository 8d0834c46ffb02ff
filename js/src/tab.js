// The mark of a page in which something waits: in its title, and in JupyterLab on the notebook's own tab.

const MARK = "(!) "
/** What a tab of JupyterLab bears while something in its notebook waits; place.js has the style. */
const WAITS = "data-agentmagic-waits"

/** What waits, with the id of the tab it is in, or "". @type {Map<object, string>} */
const waiting = new Map()
/** JupyterLab writes the title anew when another notebook is chosen. */
const titles = new MutationObserver(() => drawTitle())

/** Marks the page while something waits in a tab, and no longer for null. @param {object} what @param {string | null} tab */
export function mark(what, tab) {
  if (tab === null) waiting.delete(what)
  else waiting.set(what, tab)
  titles.disconnect()
  drawTitle()
  if (waiting.size) titles.observe(document.head, { subtree: true, childList: true, characterData: true })
  for (const label of document.querySelectorAll(`[${WAITS}]`)) label.removeAttribute(WAITS)
  for (const id of new Set(waiting.values())) {
    if (id) document.querySelector(`.lm-TabBar-tab[data-id="${CSS.escape(id)}"]`)?.setAttribute(WAITS, "")
  }
}

/** Returns the id of the tab that an element is in, or that the panel beside the notebook names. @param {Element} element */
export function tabOf(element) {
  const root = element.getRootNode()
  const host = root instanceof ShadowRoot ? root.host : element
  return host.closest(".lm-DockPanel-widget")?.id ?? host.closest(".agentmagic-dock")?.getAttribute("data-tab") ?? undefined
}

/**
 * Tells a person who looks elsewhere, if they have allowed it before: it is not asked for here.
 * @param {string} words @param {() => void} show called when the person chooses it
 */
export function notify(words, show) {
  if (globalThis.Notification?.permission !== "granted" || (!document.hidden && document.hasFocus())) return undefined
  try {
    const notification = new Notification(bare(), { body: words, tag: words })
    notification.addEventListener("click", () => (window.focus(), show(), notification.close()))
    return notification
  } catch {
    return undefined // browsers of phones have them for service workers only
  }
}

const bare = () => (document.title.startsWith(MARK) ? document.title.slice(MARK.length) : document.title)

function drawTitle() {
  const title = waiting.size ? MARK + bare() : bare()
  if (document.title !== title) document.title = title
}
