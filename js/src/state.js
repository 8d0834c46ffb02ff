// The data of a view: blocks by their key, and the state of the session. Pure functions; tests run them without a page.
/** @import { Block, Frame, State, ViewSnapshot } from "./messages.js" */

/**
 * @typedef {object} Known
 * @property {Map<number, Block>} blocks in the order of their keys
 * @property {State} state
 * @property {number} ahead seconds by which the kernel's clock is ahead of this one
 */

/** @returns {Known} */
export const nothing = () => ({ blocks: new Map(), state: {}, ahead: 0 })

/**
 * Returns the data of a snapshot. Blocks that are equal to earlier ones stay the same objects, so they are not redrawn.
 * @param {ViewSnapshot} snapshot @param {number} now @param {Map<number, Block>} [before] @returns {Known}
 */
export function begun(snapshot, now, before = new Map()) {
  const blocks = new Map(snapshot.blocks.map(([key, block]) => [key, kept(block, before.get(key))]))
  return { blocks, state: snapshot.state, ahead: snapshot.now - now }
}

/** @param {any} block @param {any} [before] */
function kept(block, before = {}) {
  const fields = Object.entries(block).map(([name, value]) => [name, isSame(value, before[name]) ? before[name] : value])
  const same = fields.length === Object.keys(before).length && fields.every(([name, value]) => value === before[name])
  return same ? before : Object.fromEntries(fields)
}

/** @param {unknown} one @param {unknown} other */
const isSame = (one, other) => one === other || JSON.stringify(one) === JSON.stringify(other)

/**
 * Applies a frame, and returns the keys of the blocks that it changed.
 * @param {Known} known changed in place, because a session can be long
 * @param {Frame} frame
 */
export function follow(known, frame) {
  for (const [key, change] of frame.ops) {
    const block = /** @type {any} */ (known.blocks.get(key))
    if (change === null) known.blocks.delete(key)
    else if (typeof change === "string") known.blocks.set(key, { ...block, text: (block?.text ?? "") + change })
    else known.blocks.set(key, { ...block, ...change })
  }
  known.state = { ...known.state, ...frame.state }
  return new Set(frame.ops.map(([key]) => key))
}
