// Keeps the keys in the panel when what had the focus goes away: a button that was pressed, or that is offered no more.

/** Whether an element can have the focus. @param {Element} element */
const isShown = (element) => element.isConnected && element.checkVisibility({ visibilityProperty: true })

/**
 * Calls `rest` whenever the focused element of a panel is removed or hidden, and no other element has got the focus.
 * Otherwise the browser gives the focus to the page, where the next keys are commands of the notebook.
 * @param {HTMLElement} panel @param {HTMLElement} refuge the message box, which stays @param {() => void} rest focuses it
 */
export function keepFocus(panel, refuge, rest) {
  /** @type {Element | null} the element that has the focus, or had it when it went away */
  let held = null
  const changes = new MutationObserver(() => {
    if (!held || isShown(held) || !panel.isConnected) return
    const { activeElement } = /** @type {Document | ShadowRoot} */ (panel.getRootNode())
    const isFree = document.activeElement === document.body || document.activeElement === null || activeElement === held
    release()
    if (isFree) rest()
  })
  const release = () => {
    held = null
    changes.disconnect()
  }
  panel.addEventListener("focusin", ({ target }) => {
    if (target === refuge) return release()
    held = /** @type {Element} */ (target)
    changes.observe(panel, { subtree: true, childList: true, attributeFilter: ["hidden", "open", "class"] })
  })
  // An element that goes away loses the focus too. Whether it has gone is known only after the change.
  panel.addEventListener("focusout", ({ target }) => queueMicrotask(() => target === held && held && isShown(held) && release()))
}
