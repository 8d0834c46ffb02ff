// What a person can say to a call that waits: approve, approve always, edit first, deny with a reason; and in step mode.
/** @import { CardFields, QuestionFields } from "./messages.js" */
/** @import { Desk } from "./types.js" */
import { button, h, put, say, writingBox } from "./dom.js"

/** @param {CardFields} block @param {Desk} desk @returns {HTMLElement} */
export function approval(block, desk) {
  const place = h("div", { class: "am-approval", role: "group", "aria-label": `Approval of ${block.name}` })
  choices(place, block, desk)
  return place
}

/** @param {HTMLElement} place @param {CardFields} block @param {Desk} desk @param {string} [focused] */
function choices(place, block, desk, focused = "") {
  const id = block.ask
  const row = h("div", { class: "am-row" })
  if (block.step) return pause(place, block, desk, block.edit.length ? () => edit(place, block, desk) : null, focused)
  row.append(button("Approve", () => desk.act({ type: "approve", id }), "go"))
  row.append(button(block.effects.length ? "Always this program" : "Always allow", () => desk.act({ type: "approve", id, always: true })))
  if (block.edit.length) row.append(button("Edit", () => edit(place, block, desk)))
  row.append(button("Deny…", () => deny(place, block, desk), "quiet"))
  put(place, row)
  for (const other of row.querySelectorAll("button")) if (other.textContent === focused) other.focus()
}

/** Whether the last thing a person did was to go on, so that the next pause takes the same key. */
let goesOn = false

/**
 * The buttons of a pause in step mode.
 * @param {HTMLElement} place @param {CardFields | QuestionFields} block @param {Desk} desk
 * @param {(() => void) | null} edit @param {string} [focused]
 */
export function pause(place, block, desk, edit, focused = "") {
  const id = block.ask
  const go = (/** @type {boolean} */ always) => {
    goesOn = !always
    desk.act({ type: "approve", id, always })
  }
  const row = h("div", { class: "am-row am-pause" }, button("Go on", () => go(false), "go"))
  if (edit) row.append(button("Edit", edit))
  if (block.kind === "card") row.append(button("Skip", () => desk.act({ type: "deny", id, reason: "" })))
  row.append(button("Run to the end", () => go(true)), button("Stop", () => desk.act({ type: "stop" }), "stop"))
  put(place, row)
  const wanted = goesOn && !focused ? "Go on" : focused
  goesOn = false
  for (const other of row.querySelectorAll("button")) if (other.textContent === wanted) requestAnimationFrame(() => other.focus({ preventScroll: true }))
}

/** @param {HTMLElement} place @param {CardFields} block @param {Desk} desk */
function edit(place, block, desk) {
  const back = () => choices(place, block, desk, "Edit")
  const fields = block.edit.map((argument) => field(argument))
  const problem = h("p", { class: "am-problem", role: "alert", hidden: true })
  const approve = () => {
    const wrong = fields.map(({ name, plain, box }) => (plain ? "" : mistake(name, box.value))).find(Boolean)
    say(problem, wrong ?? "")
    if (wrong) return
    const pairs = fields.map(({ name, plain, box }) => `${JSON.stringify(name)}: ${plain ? JSON.stringify(box.value) : box.value}`)
    desk.act({ type: "edit", id: block.ask, arguments: `{${pairs.join()}}` })
  }
  const row = h("div", { class: "am-row" }, button(block.step ? "Go on as edited" : "Approve as edited", approve, "go"), button("Back", back, "quiet"))
  const leave = (/** @type {KeyboardEvent} */ { key }) => key === "Escape" && back()
  put(place, h("div", { onkeydown: leave }, ...fields.map(({ element }) => element), problem, row))
  fields[0]?.box.focus()
}

/** A box for one argument. @param {CardFields["edit"][number]} argument */
function field([name, text, plain]) {
  const label = plain ? name : `${name}, as JSON`
  const box = writingBox(label, { text })
  return { name, plain, box, element: h("label", { class: "am-field" }, label, box) }
}

/** @param {HTMLElement} place @param {CardFields} block @param {Desk} desk */
function deny(place, block, desk) {
  const send = () => desk.act({ type: "deny", id: block.ask, reason: box.value.trim() })
  const back = () => choices(place, block, desk, "Deny…")
  const box = writingBox("Reason, which the model is told", { send, back })
  box.placeholder = "Why not? The model is told. May be left empty."
  put(place, box, h("div", { class: "am-row" }, button("Deny", send, "stop"), button("Back", back, "quiet")))
  box.focus()
}

/** Says what is wrong with an edited argument, or nothing. @param {string} name @param {string} text */
function mistake(name, text) {
  try {
    JSON.parse(text)
    return ""
  } catch (error) {
    return `${name} is not JSON yet: ${/** @type {Error} */ (error).message}.`
  }
}
