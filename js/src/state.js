// What a view knows: blocks by their key and the session around them. Pure; tests run it without a page.
/** @import { Block, Frame, Snapshot, State } from "./types.js" */

/**
 * @typedef {object} Known
 * @property {Map<number, Block>} blocks in the order of their keys
 * @property {State} state
 * @property {number} ahead seconds by which the kernel's clock is ahead of this one
 */

/** @returns {Known} */
export const nothing = () => ({ blocks: new Map(), state: {}, ahead: 0 })

/** @param {Snapshot} snapshot @param {number} now @returns {Known} */
export function begun(snapshot, now) {
  return { blocks: new Map(snapshot.blocks), state: snapshot.state, ahead: snapshot.now - now }
}

/**
 * Takes a frame in, and returns the keys of the blocks that it touched.
 * @param {Known} known changed in place: a session can be long
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
