// What a person can say to a call that waits: approve, approve always, edit first, deny with a reason.
/** @import { CardBlock, Desk } from "./types.js" */
import { button, h, isSend, put, say, writingBox } from "./dom.js"

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
  place.onkeydown = null
  put(place, row)
  for (const other of row.querySelectorAll("button")) if (other.textContent === focused) other.focus()
}

/** @param {HTMLElement} place @param {CardBlock} block @param {Desk} desk */
function edit(place, block, desk) {
  const fields = block.edit.map(([name, text, plain]) => ({ name, plain, box: writingBox(plain ? name : `${name}, as JSON`, text) }))
  const problem = h("p", { class: "am-problem", role: "alert", hidden: true })
  const approve = () => {
    const wrong = fields.map(({ name, plain, box }) => (plain ? "" : mistake(name, box.value))).find(Boolean)
    say(problem, wrong ?? "")
    if (wrong) return
    const pairs = fields.map(({ name, plain, box }) => `${JSON.stringify(name)}: ${plain ? JSON.stringify(box.value) : box.value}`)
    desk.act({ type: "edit", id: block.ask, arguments: `{${pairs.join()}}` })
  }
  const back = () => choices(place, block, desk, "Edit")
  place.onkeydown = (event) => event.key === "Escape" && back()
  const row = h("div", { class: "am-row" }, button("Approve as edited", approve, "go"), button("Back", back, "quiet"))
  const boxes = fields.map(({ name, plain, box }) => h("label", { class: "am-field" }, plain ? name : `${name}, as JSON`, box))
  put(place, ...boxes, problem, row)
  fields[0]?.box.focus()
}

/** @param {HTMLElement} place @param {CardBlock} block @param {Desk} desk */
function deny(place, block, desk) {
  const box = writingBox("Reason, which the model is told")
  box.placeholder = "Why not? The model is told. May be left empty."
  const send = () => desk.act({ type: "deny", id: block.ask, reason: box.value.trim() })
  const back = () => choices(place, block, desk, "Deny…")
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") back()
    if (!isSend(event)) return
    event.preventDefault()
    send()
  })
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
