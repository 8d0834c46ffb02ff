// What a view knows.
import assert from "node:assert/strict"
import { test } from "node:test"
import { begun, follow, nothing } from "../src/state.js"

/** @type {any} */
const SNAPSHOT = { n: 1, view: "me", now: 1005, blocks: [[1, { kind: "text", text: "one", open: true }]], state: { title: "agent" } }

test("a snapshot is all there is, and tells how far the clocks are apart", () => {
  const known = begun(SNAPSHOT, 1000)
  assert.deepEqual([...known.blocks.keys()], [1])
  assert.equal(known.ahead, 5)
})

test("text grows, fields change, blocks come and go", () => {
  const known = begun(SNAPSHOT, 1000)
  const touched = follow(known, { n: 2, ops: [[1, " two"], [1, { open: false }], [2, { kind: "retry", text: "again" }]] })
  assert.deepEqual([...touched], [1, 2])
  assert.deepEqual(known.blocks.get(1), { kind: "text", text: "one two", open: false })
  follow(known, { n: 3, ops: [[2, null]], state: { cost: "$1" } })
  assert.deepEqual([...known.blocks.keys()], [1])
  assert.deepEqual(known.state, { title: "agent", cost: "$1" })
})

test("a block that changed is another object, one that did not is the same", () => {
  const known = begun(SNAPSHOT, 1000)
  const before = known.blocks.get(1)
  follow(known, { n: 2, ops: [[2, "x"]] })
  assert.equal(known.blocks.get(1), before)
  follow(known, { n: 3, ops: [[1, "x"]] })
  assert.notEqual(known.blocks.get(1), before)
})

test("fields with the names of a prototype's are fields and nothing else", () => {
  const known = nothing()
  const fields = JSON.parse('{"kind": "card", "__proto__": {"polluted": true}, "constructor": "x"}')
  follow(known, { n: 1, ops: [[1, fields]], state: JSON.parse('{"__proto__": {"polluted": true}}') })
  assert.equal(/** @type {any} */ ({}).polluted, undefined)
})
