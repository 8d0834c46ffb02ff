// What a person can say to a call that waits: approve, approve always, edit first, deny with a reason.
/** @import { CardBlock, Desk } from "./types.js" */
import { button, h, isSend, put, writingBox } from "./dom.js"

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
  if (desk.can("edit")) row.append(button("Edit", () => edit(place, block, desk)))
  if (desk.can("deny")) row.append(button("Deny…", () => deny(place, block, desk), "quiet"))
  put(place, row)
  for (const other of row.querySelectorAll("button")) if (other.textContent === focused) other.focus()
}

/** @param {HTMLElement} place @param {CardBlock} block @param {Desk} desk */
function edit(place, block, desk) {
  const box = writingBox("Arguments, as JSON", block.edit)
  const problem = h("p", { class: "am-problem", role: "alert", hidden: true })
  const approve = () => {
    const wrong = mistake(box.value)
    problem.hidden = !wrong
    put(problem, wrong)
    if (!wrong) desk.act({ type: "edit", id: block.ask, arguments: box.value })
  }
  const back = () => choices(place, block, desk, "Edit")
  const row = h("div", { class: "am-row" }, button("Approve as edited", approve, "go"), button("Back", back, "quiet"))
  box.classList.add("am-mono")
  box.addEventListener("keydown", (event) => event.key === "Escape" && back())
  put(place, h("h4", {}, "Arguments, as JSON"), box, problem, row)
  box.focus()
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

/** Says what is wrong with edited arguments, or nothing. @param {string} text */
function mistake(text) {
  try {
    const value = JSON.parse(text)
    return value && typeof value === "object" && !Array.isArray(value) ? "" : 'Write a JSON object: {"name": value}.'
  } catch (error) {
    return `This is not JSON yet: ${/** @type {Error} */ (error).message}.`
  }
}
