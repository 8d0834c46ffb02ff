// The controls with which the user answers a waiting call: approve, approve always, edit, deny with a reason, or step on.
/** @import { CardFields, QuestionFields } from "./messages.js" */
/** @import { Desk } from "./types.js" */
/** @import { Extent } from "./extent.js" */
import { button, h, heading, put, say, writingBox } from "./dom.js"

/**
 * Returns the controls of a call that waits. The button to approve has the number of the lines in view beside it.
 * @param {CardFields} block @param {Desk} desk @param {Extent} extent
 * @param {() => Iterable<Element>} texts returns the texts that the user approves @returns {HTMLElement}
 */
export function approval(block, desk, extent, texts) {
  const place = h("div", { class: "am-approval", role: "group", "aria-label": `Approval of ${quoted(block)}`, tabindex: -1 })
  choices(place, block, desk, { extent, texts })
  return place
}

/** Returns the name of a call for a sentence: in quotation marks if it is not the name of a tool. @param {CardFields} block */
export const quoted = ({ name, titled }) => (titled ? `“${name}”` : name)

/** @typedef {{extent: Extent, texts: () => Iterable<Element>}} Seen what the user approves, and how much of it is in view */

/** Returns a button that can also be pressed with a letter key. @param {string} key @param {string} label @param {() => void} onclick @param {string} [kind] */
export function keyed(key, label, onclick, kind = "") {
  return withKey(button(label, onclick, kind, { "aria-keyshortcuts": key }), key)
}

/** Shows a key on a button. @param {HTMLElement} element @param {string} key */
export function withKey(element, key) {
  element.append(h("kbd", { class: "am-letter", "aria-hidden": "true", "data-key": key }))
  return element
}

/** Returns the button "always", of which a narrow card shows only the first word. @param {string} label @param {() => void} onclick */
function always(label, onclick) {
  const [first = "", ...rest] = label.split(" ")
  const made = button(first, onclick, "always", { "aria-keyshortcuts": "a", "aria-label": label, title: label })
  made.append(h("span", {}, ` ${rest.join(" ")}`))
  return withKey(made, "a")
}

/** The keys that submit the text of several boxes. */
const SUBMIT = /Mac|iP/.test(navigator.platform) ? "Meta+Enter" : "Control+Enter"
const SUBMIT_WORDS = SUBMIT === "Meta+Enter" ? "⌘ Enter" : "Ctrl Enter"

/** @param {HTMLElement} place @param {CardFields} block @param {Desk} desk @param {Seen} seen @param {string} [focused] the key of a button */
function choices(place, block, desk, seen, focused = "") {
  const id = block.ask
  const row = h("div", { class: "am-row" })
  const change = block.edit.length || block.optional.length ? () => edit(place, block, desk, seen) : null
  seen.extent.watch(seen.texts())
  if (block.step) return pause(place, block, desk, change, focused, seen.extent)
  const look = isRisky(block) ? "go am-risky" : "go"
  if (block.approve) row.append(keyed("y", block.approve, () => desk.act({ type: "approve", id }), look))
  row.append(seen.extent.element)
  if (block.always) row.append(always(block.always, () => desk.act({ type: "approve", id, always: true })))
  if (change) row.append(keyed("e", "Edit", change))
  row.append(keyed("n", "Deny…", () => deny(place, block, desk, seen), "quiet"))
  const own = block.choices.map(([option, name, refuses]) => button(name, () => desk.act({ type: refuses ? "deny" : "approve", id, option }), "small"))
  const why = block.reason && h("p", { class: "am-hint am-why" }, block.reason)
  put(place, why, row, own.length > 0 && h("div", { class: "am-row am-own" }, heading(`${block.server} also offers`), ...own))
  buttonOf(place, focused)?.focus()
}

/** Returns whether the effects of a call name a risk, or variables that it removes. @param {CardFields} block */
export const isRisky = ({ effects }) => effects.some((line) => /^(Risk|Removes):/.test(line))

/** @param {Element} element @param {string} key @returns {HTMLElement | undefined} */
const buttonOf = (element, key) =>
  /** @type {HTMLElement[]} */ ([...element.querySelectorAll("[aria-keyshortcuts]")]).find((one) => one.getAttribute("aria-keyshortcuts") === key)

/** Milliseconds without a key press until keys can answer a call that took the focus by itself: the user may be typing. */
const REST = 500
/** Class of an element that took the focus by itself, during that time. */
const FRESH = "am-fresh"

/** Focuses the control of a waiting block. @param {HTMLElement} target @param {boolean} [asked] whether the user chose to go there */
export function take(target, asked = false) {
  const wake = () => target.classList.remove(FRESH)
  target.focus({ preventScroll: true })
  if (asked || target.closest(".am-going")) return wake()
  rest(target)
  for (const type of ["blur", "pointerdown"]) target.addEventListener(type, wake, { once: true })
}

/** @type {WeakMap<Element, any>} */
const rests = new WeakMap()

/** @param {Element} target */
function rest(target) {
  clearTimeout(rests.get(target))
  target.classList.add(FRESH)
  rests.set(target, setTimeout(() => target.classList.remove(FRESH), REST))
}

/**
 * Lets letter keys press the buttons in a waiting block. Letters pressed there do not reach the notebook's shortcuts.
 * @param {HTMLElement} element @param {() => boolean} waits
 */
export function answeredByKeys(element, waits) {
  element.addEventListener(
    "keydown",
    (event) => {
      if (!waits() || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return
      const target = /** @type {Element} */ (event.target)
      const [writes, letter] = [target.matches("textarea, input, select"), event.key.length === 1]
      if (target.matches(`.${FRESH}`) && (event.key === "Enter" || (letter && !writes))) {
        rest(target)
      } else if (letter && !writes) {
        const pressed = event.repeat || event.shiftKey ? undefined : buttonOf(element, event.key.toLowerCase())
        event.stopPropagation()
        if (event.key === " " || !pressed?.getClientRects().length) return
        pressed.click()
      } else return
      event.preventDefault()
      event.stopPropagation()
    },
    true,
  )
}

/** Whether the user's last action was "Go on"; then the next pause focuses that button again. */
let goesOn = false

/**
 * Shows the buttons of a pause in step mode.
 * @param {HTMLElement} place @param {CardFields | QuestionFields} block @param {Desk} desk
 * @param {(() => void) | null} edit @param {string} [focused] @param {Extent} [extent]
 */
export function pause(place, block, desk, edit, focused = "", extent) {
  const id = block.ask
  const go = (/** @type {boolean} */ always) => {
    goesOn = !always
    desk.act({ type: "approve", id, always })
  }
  const row = h("div", { class: "am-row am-pause" }, keyed("y", "Go on", () => go(false), "go"), extent?.element ?? "")
  if (edit) row.append(keyed("e", "Edit", edit))
  if (block.kind === "card") row.append(keyed("n", "Skip", () => desk.act({ type: "deny", id, reason: "" })))
  row.append(keyed("a", "Run to the end", () => go(true)), button("Stop", () => desk.act({ type: "stop" }), "stop"))
  put(place, row)
  const wanted = goesOn && !focused ? "y" : focused
  row.classList.toggle("am-going", goesOn) // the user expects this pause, so keys work at once
  goesOn = false
  const other = buttonOf(row, wanted)
  if (other) requestAnimationFrame(() => other.focus({ preventScroll: true }))
}

/** @param {HTMLElement} place @param {CardFields} block @param {Desk} desk @param {Seen} seen */
function edit(place, block, desk, seen) {
  const back = () => choices(place, block, desk, seen, "e")
  const fields = block.edit.map((argument) => field(argument))
  const problem = h("p", { class: "am-problem", role: "alert", hidden: true })
  const approve = () => {
    const wrong = fields.map(({ name, plain, box }) => (plain ? "" : mistake(name, box.value))).find(Boolean)
    say(problem, wrong ?? "")
    if (wrong) return
    const pairs = fields.map(({ name, plain, box }) => `${JSON.stringify(name)}: ${plain ? JSON.stringify(box.value) : box.value}`)
    desk.act({ type: "edit", id: block.ask, arguments: `{${pairs.join()}}` })
  }
  const label = block.step ? "Go on as edited" : "Approve as edited"
  const submit = button(label, approve, isRisky(block) ? "go am-risky" : "go", { "aria-keyshortcuts": SUBMIT })
  const row = h("div", { class: "am-row" }, withKey(submit, SUBMIT_WORDS), seen.extent.element, button("Back", back, "quiet"))
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") back()
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return
    event.preventDefault()
    event.stopPropagation()
    approve()
  }
  const places = h("div", {}, ...fields.map(({ element }) => element))
  const more = block.optional.length > 0 && addition(block.optional, (argument) => {
    const added = field(argument)
    fields.push(added)
    places.append(added.element)
    watch()
    added.box.focus()
    place.scrollIntoView({ block: "nearest" })
  })
  const watch = () => seen.extent.watch(fields.map(({ box }) => box))
  put(place, h("div", { class: "am-editing", onkeydown: pressed }, places, more, problem, row))
  watch()
  if (fields[0]) fields[0].box.focus()
  else place.querySelector("button")?.focus()
  place.scrollIntoView({ block: "nearest" })
}

/** Returns a row with a button for each argument that the model left out, which adds that argument. @param {CardFields["optional"]} optional @param {(argument: CardFields["edit"][number]) => void} add */
function addition(optional, add) {
  const row = h("div", { class: "am-row am-optional" }, heading("May be added"))
  for (const [name, text, plain, about] of optional) {
    const made = button(`+ ${name}`, () => (made.remove(), (row.hidden = row.children.length === 1), add([name, text, plain])), "small", { title: about, "aria-label": `Add ${name}` })
    row.append(made)
  }
  return row
}

/** Returns a text box for one argument. @param {CardFields["edit"][number]} argument */
function field([name, text, plain]) {
  const label = plain ? name : `${name}, as JSON`
  const box = writingBox(label, { text })
  return { name, plain, box, element: h("label", { class: "am-field" }, label, box) }
}

/** @param {HTMLElement} place @param {CardFields} block @param {Desk} desk @param {Seen} seen */
function deny(place, block, desk, seen) {
  const send = () => desk.act({ type: "deny", id: block.ask, reason: box.value.trim() })
  const back = () => choices(place, block, desk, seen, "n")
  const box = writingBox("Reason, which the model is told", { send, back })
  box.placeholder = "Why not? The model is told. May be left empty. Enter sends."
  put(place, box, h("div", { class: "am-row" }, button("Deny", send, "stop"), button("Back", back, "quiet")))
  box.focus()
  place.scrollIntoView({ block: "nearest" })
}

/** Returns what is wrong with an edited argument, or "". @param {string} name @param {string} text */
function mistake(name, text) {
  try {
    JSON.parse(text)
    return ""
  } catch (error) {
    return `${name} is not JSON yet: ${/** @type {Error} */ (error).message}.`
  }
}
