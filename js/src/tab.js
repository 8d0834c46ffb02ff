// The mark of a page in which a block waits for the user: in the page title, and in JupyterLab on the notebook's tab.

const MARK = "(!) "
/** The attribute of a JupyterLab tab while a block in its notebook waits; place.js has the style. */
const WAITS = "data-agentmagic-waits"

/** The objects that wait, each with the id of its tab, or "". @type {Map<object, string>} */
const waiting = new Map()
/** Restores the mark after JupyterLab rewrites the title for another notebook. */
const titles = new MutationObserver(() => drawTitle())

/** Marks the page and a tab, because `what` waits there; if `tab` is null, removes that mark. @param {object} what @param {string | null} tab */
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

/** Returns the id of the tab that contains an element, or that the docked panel around it belongs to. @param {Element} element */
export function tabOf(element) {
  const root = element.getRootNode()
  const host = root instanceof ShadowRoot ? root.host : element
  return host.closest(".lm-DockPanel-widget")?.id ?? host.closest(".agentmagic-dock")?.getAttribute("data-tab") ?? undefined
}

/**
 * Shows a desktop notification to a user who looks at another page, if the user has allowed that before.
 * @param {string} words @param {() => void} show called when the user clicks the notification
 */
export function notify(words, show) {
  if (globalThis.Notification?.permission !== "granted" || (!document.hidden && document.hasFocus())) return undefined
  try {
    const notification = new Notification(bare(), { body: words, tag: words })
    notification.addEventListener("click", () => (window.focus(), show(), notification.close()))
    return notification
  } catch {
    return undefined // browsers of phones allow notifications only for service workers
  }
}

const bare = () => (document.title.startsWith(MARK) ? document.title.slice(MARK.length) : document.title)

function drawTitle() {
  const title = waiting.size ? MARK + bare() : bare()
  if (document.title !== title) document.title = title
}
