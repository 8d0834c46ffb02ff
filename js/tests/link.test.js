// The wire: order, gaps, silence.
import assert from "node:assert/strict"
import { test } from "node:test"
import { Link } from "../src/link.js"

/** A link whose timers run when told, and what it did. */
function linked({ expecting = false } = {}) {
  /** @type {any} */
  const seen = { sent: [], begun: [], followed: [], complaints: [], back: [], told: [], answered: [], waits: [], fire: null }
  const link = new Link("me", {
    send: (content) => seen.sent.push(content),
    begin: (snapshot) => seen.begun.push(snapshot.n),
    follow: (frame) => seen.followed.push(frame.n),
    complain: (words) => seen.complaints.push(words),
    giveBack: (prompt) => seen.back.push(prompt),
    tell: (words) => seen.told.push(words),
    inspected: () => {},
    answered: (is) => seen.answered.push(is),
    expecting: () => expecting,
    later: (callback, wait) => {
      seen.waits.push(wait)
      seen.fire = callback
    },
    forget: () => (seen.fire = null),
  })
  return { link, seen }
}

/** @param {number} n */
const frame = (n) => ({ n, ops: [] })
/** @param {number} n */
const snapshot = (n) => ({ n, view: "me", now: 0, blocks: [], state: {} })

test("a kernel that leaves a few hellos unanswered is said to be silent, until it answers", () => {
  const { link, seen } = linked()
  link.hello()
  for (let time = 0; time < 5; time++) seen.fire()
  assert.deepEqual(seen.answered, [])
  seen.fire()
  assert.deepEqual(seen.answered, [false])
  link.receive(snapshot(4))
  assert.deepEqual(seen.answered, [false, true])
})

test("a kernel that others know to be gone is said to be silent at once, until it answers", () => {
  const { link, seen } = linked()
  link.hello()
  link.receive(snapshot(4))
  link.lose()
  assert.deepEqual(seen.answered, [true, false])
  link.receive({ n: 4, view: "me" })
  assert.deepEqual(seen.answered, [true, false, true])
})

test("hello is said again, less and less often, until it is answered", () => {
  const { link, seen } = linked()
  link.hello()
  for (let time = 0; time < 9; time++) seen.fire()
  assert.equal(seen.sent.length, 10)
  assert.deepEqual(seen.waits.slice(0, 3), [60, 120, 240])
  assert.equal(seen.waits.at(-1), 10_000)
  link.receive(snapshot(4))
  assert.deepEqual(seen.begun, [4])
  seen.fire()
  assert.equal(seen.sent.length, 10)
})

test("frames follow the snapshot in their order, each once", () => {
  const { link, seen } = linked()
  link.receive(frame(5))
  link.receive(frame(3))
  link.receive(snapshot(4))
  link.receive(frame(7))
  link.receive(frame(6))
  link.receive(frame(6))
  assert.deepEqual(seen.followed, [5, 6, 7])
})

test("a gap is answered with a hello that says what was seen", () => {
  const { link, seen } = linked()
  link.receive(snapshot(1))
  link.receive(frame(3))
  assert.deepEqual(seen.sent, [{ type: "hello", view: "me", seen: 1 }])
  link.receive(snapshot(3))
  assert.deepEqual(seen.begun, [1, 3])
  link.receive(frame(4))
  assert.deepEqual(seen.followed, [4])
})

test("an old snapshot does not take a view back", () => {
  const { link, seen } = linked()
  link.receive(snapshot(5))
  link.receive(snapshot(2))
  assert.deepEqual(seen.begun, [5])
})

test("answers to other views are let pass", () => {
  const { link, seen } = linked()
  link.receive({ ...snapshot(5), view: "other" })
  assert.deepEqual(seen.begun, [])
})

test("silence in the middle of a turn is looked into", () => {
  const { link, seen } = linked({ expecting: true })
  link.receive(snapshot(5))
  seen.fire()
  assert.deepEqual(seen.sent, [{ type: "hello", view: "me", seen: 5 }])
  link.receive({ n: 5, view: "me" })
  assert.deepEqual(seen.waits.at(-1), 3_000)
})

test("an answer about a frame that has not come does not end the asking", () => {
  const { link, seen } = linked({ expecting: true })
  link.receive(snapshot(5))
  seen.fire()
  link.receive({ n: 6, view: "me" })
  seen.fire()
  assert.equal(seen.sent.length, 2)
})

test("pieces are joined, in whatever order they come", () => {
  const { link, seen } = linked()
  const text = JSON.stringify(snapshot(2))
  link.receive({ piece: 1, of: 2, id: 9, text: text.slice(10) })
  link.receive({ piece: 0, of: 2, id: 9, text: text.slice(0, 10) })
  assert.deepEqual(seen.begun, [2])
})

test("a refusal of the kernel is shown", () => {
  const { link, seen } = linked()
  link.receive({ problem: "No." })
  link.receive({ problem: "Nor this.", unsent: "hello" })
  link.receive({ unsent: "so long" })
  assert.deepEqual(seen.complaints, ["No.", "Nor this."])
  assert.deepEqual(seen.back, ["hello", "so long"])
  link.receive({ said: "Done." })
  assert.deepEqual(seen.told, ["Done."])
})
