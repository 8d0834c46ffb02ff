// What a person can say to a call that waits: approve, approve always, edit first, deny with a reason.
/** @import { CardBlock, Desk } from "./types.js" */
import { button, h, put, say, writingBox } from "./dom.js"

/** @param {CardBlock} block @param {Desk} desk @returns {HTMLElement} */
export function approval(block, desk) {
  const place = h("div", { class: "am-approval", role: "group", "aria-label": `Approval of ${block.name}` })
  choices(place, block, desk)
  return place
}

/** @param {HTMLElement} place @param {CardBlock} block @param {Desk} desk @param {string} [focused] */
function choices(place, block, desk, focused = "") {
  const id = block.ask
  const row = h("div", { class: "am-row" })
  if (desk.can("approve")) {
    row.append(button("Approve", () => desk.act({ type: "approve", id }), "go"))
    row.append(button("Always allow", () => desk.act({ type: "approve", id, always: true })))
  }
  if (desk.can("edit") && block.edit.length) row.append(button("Edit", () => edit(place, block, desk)))
  if (desk.can("deny")) row.append(button("Deny…", () => deny(place, block, desk), "quiet"))
  put(place, row)
  for (const other of row.querySelectorAll("button")) if (other.textContent === focused) other.focus()
}

/** @param {HTMLElement} place @param {CardBlock} block @param {Desk} desk */
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
  const row = h("div", { class: "am-row" }, button("Approve as edited", approve, "go"), button("Back", back, "quiet"))
  const leave = (/** @type {KeyboardEvent} */ { key }) => key === "Escape" && back()
  put(place, h("div", { onkeydown: leave }, ...fields.map(({ element }) => element), problem, row))
  fields[0]?.box.focus()
}

/** A box for one argument. @param {CardBlock["edit"][number]} argument */
function field([name, text, plain]) {
  const label = plain ? name : `${name}, as JSON`
  const box = writingBox(label, { text })
  return { name, plain, box, element: h("label", { class: "am-field" }, label, box) }
}

/** @param {HTMLElement} place @param {CardBlock} block @param {Desk} desk */
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
