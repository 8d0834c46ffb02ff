// What travels between the page and the kernel; MESSAGES in agentmagic/jupyter/panel/lab.py is the kernel's side.

/** What the page sends, by type; the kernel drops what is not in its own table. */
export interface ToKernel {
  /** The page has found the kernel. The answer is the state. */
  hello: object
  /** The page is about to draw the docked panel. The answer is a state with its view. */
  dock: object
  /** Ask, explain or fix was chosen for the output of a cell. */
  output: { action: 'ask' | 'explain' | 'fix'; count: number | null; source: string; outputs: OutputPart[] }
  /** The user has kept or discarded staged cells. */
  settle: { settled: Settled[] }
}

/** What a cell shows; a `result` is the value of its last line. Images are in base64. */
export type OutputPart =
  | { kind: 'text' | 'result' | 'error'; text: string }
  | { kind: 'image'; type: 'image/png' | 'image/jpeg'; data: string; result: boolean }

/** What the kernel sends, by type. */
export interface FromKernel {
  state: State
  /** The proposed cells that the user has not decided on, all of them. */
  proposals: { proposals: Proposal[] }
  /** `%agent chat --dock` was run in this page. */
  show: object
}

/** A proposed cell. */
export interface Proposal {
  id: string
  action: 'insert' | 'change' | 'remove'
  kind: 'code' | 'markdown'
  source: string
  why: string
  /** The cell that is changed or removed, or below which one is inserted; "" if it is not known. */
  cell: string
  /** Its number as the model knows it, or 0. */
  number: number
  /** Its text when the proposal was made. */
  before: string
}

/** What became of one. */
export interface Settled {
  id: string
  fate: 'kept' | 'changed' | 'discarded'
  /** The text of a cell that the user changed. */
  source?: string
  ran?: boolean
}

/** What stands around the docked panel. */
export interface State {
  /** The variable of the session. */
  session: string
  model: string
  cost: string
  /** The session whose turn runs, or "". */
  running: string
  /** The session that waits for the user, or "". */
  waits: string
  /** The name of the panel's view, or "" before a page has asked for it. */
  view: string
}

const LONGEST = 1_000

const text = (value: unknown): boolean => typeof value === 'string' && value.length <= LONGEST
const id = (value: unknown): boolean => typeof value === 'string' && /^\w{0,64}$/.test(value)

/** Characters of a cell, as agentmagic/tools/notebook/proposals.py has them. */
const LONGEST_CELL = 20_000
const cell = (value: unknown): boolean => typeof value === 'string' && value.length <= LONGEST_CELL
const cellId = (value: unknown): boolean => typeof value === 'string' && /^[\w-]{0,64}$/.test(value)
const oneOf = (...words: string[]) => (value: unknown): boolean => typeof value === 'string' && words.includes(value)
const PROPOSAL: Checks<Proposal> = {
  id,
  action: oneOf('insert', 'change', 'remove'),
  kind: oneOf('code', 'markdown'),
  source: cell,
  why: text,
  cell: cellId,
  number: Number.isSafeInteger,
  before: cell
}
const proposals = (value: unknown): boolean =>
  Array.isArray(value) && value.every(one => typeof one === 'object' && one && Object.entries(PROPOSAL).every(([name, passes]) => passes(one[name])))

type Checks<T> = { [K in keyof T]: (value: unknown) => boolean }

/** One row for each type: the check of each field. */
const CHECKS: { [T in keyof FromKernel]: Checks<FromKernel[T]> } = {
  state: { session: text, model: text, cost: text, running: text, waits: text, view: id },
  proposals: { proposals },
  show: {}
}

export type Message = { [T in keyof FromKernel]: { type: T } & FromKernel[T] }[keyof FromKernel]

/** Returns a message of the kernel if it is one, with no other fields than those of its type; else null. */
export function read(content: unknown): Message | null {
  if (typeof content !== 'object' || content === null) return null
  const fields = content as Record<string, unknown>
  const { type } = fields
  if (typeof type !== 'string' || !Object.hasOwn(CHECKS, type)) return null
  const checks = Object.entries(CHECKS[type as keyof FromKernel]) as [string, (value: unknown) => boolean][]
  if (!checks.every(([name, passes]) => Object.hasOwn(fields, name) && passes(fields[name]))) return null
  return Object.fromEntries([['type', type], ...checks.map(([name]) => [name, fields[name]])]) as unknown as Message
}
