// What travels between the kernel and a view; display/block_json.py and widgets/page_messages.py say the same in Python.

declare global {
  /** False only in the build that shows what attacks would do; see build.js. */
  const SANITISE: boolean
  /** By the name of a library, the views that wait for it, or what takes them once it is there. */
  var agentmagic: Record<string, Waiting[] | { push(view: Waiting): void }> | undefined
}

export type CardState = "pending" | "waiting" | "running" | "done" | "failed" | "denied" | "interrupted"

export type Form =
  | { form: "text"; text: string; note: string }
  | { form: "table"; columns: string[]; rows: string[][]; numeric: boolean[]; note: string }
  | { form: "html"; html: string }
  | { form: "image"; type: string; data: string; name: string; width?: number }

export interface WordsBlock {
  kind: "text" | "reasoning"
  text?: string
  open: boolean
  /** of an answer that is a value */
  form?: Form
}

export interface CardBlock {
  kind: "card"
  name: string
  server: string
  state: CardState
  short: string
  arguments: [name: string, text: string][]
  note: string
  ask: string
  /** The call may run, and the turn is paused before it. */
  step: boolean
  edit: [name: string, text: string, plain: boolean][]
  since: number | null
  time: string
  progress: { text: string; share: number | null } | null
  reason: string
  result: { error: boolean; forms: Form[] } | null
  more: number | null
  traceback: string
  /** What the call does, line by line, if the tool tells. */
  effects: string[]
  /** Whether a running tool made the call. */
  inner: boolean
}

export interface PromptBlock {
  kind: "prompt"
  text: string
  /** The text in stretches, where some of it is laid out in columns. */
  stretches: [text: string, columns: boolean][]
  attached: [name: string, text: string][]
  turn: number | null
}

/** What the values that a prompt names became. */
export interface ValuesBlock {
  kind: "values"
  line: string
  /** The text of a table is Markdown. */
  values: [written: string, kind: string, form: Form][]
}

export interface QuestionBlock {
  kind: "question"
  text: string
  answer: string | null
  ask: string
  /** An answer that may be sent as it is, or changed. */
  suggested: string
  /** The turn is paused before a request, which the text shows. */
  step: boolean
}

export interface Task {
  id: string
  title: string
  tool: string
  state: CardState
  word: string
  parameters: string
  attempts: string[]
  summary: string
}

export interface ChecklistBlock {
  kind: "checklist"
  heading: string
  tasks: Task[]
}

export interface ProposalBlock {
  kind: "proposal"
  title: string
  why: string
  /** What became of it, "" while the person has not decided. */
  state: string
  folded: boolean
  hint: string
  /** The text of the cell, or how it is changed. */
  code: string
  language: string
  /** What Copy copies. */
  copy: string
}

export interface NoticeBlock {
  kind: "notice"
  level: "info" | "warning" | "error"
  text: string
}

export interface RetryBlock {
  kind: "retry"
  text: string
}

export interface FooterBlock {
  kind: "footer"
  figures: string[]
  /** Why the turn ended. */
  stop: string
  /** The number of a turn without any answer, which later requests leave out. */
  unsent: number | null
}

export type Block = WordsBlock | CardBlock | ChecklistBlock | PromptBlock | ValuesBlock | QuestionBlock | ProposalBlock | NoticeBlock | RetryBlock | FooterBlock

/** A tool of a server; `always` says that it runs without asking. */
export type Tool = [name: string, enabled: boolean, always?: boolean, about?: string, arguments?: string]

/** A session of the notebook, or a conversation that is saved beside it. */
export interface Chat {
  name: string
  about: string
  saved: boolean
}

export interface Server {
  name: string
  state: string
  error: string
  stderr: string
  tools: Tool[]
}

export interface State {
  title?: string
  actions?: string[]
  model?: string
  models?: string[]
  cost?: string
  servers?: Server[]
  note?: string
  /** How many tasks of a plan can be resumed, in words. */
  left?: string
  cleared?: number
  welcome?: string
  examples?: string[]
  /** A saved conversation to go on with. */
  offered?: Chat | null
  names?: [name: string, about: string][]
  commands?: [name: string, about: string][]
  chats?: Chat[]
  /** What goes with the next prompt. */
  attached?: [name: string, about: string][]
  /** For a projector. */
  large?: boolean
  running?: { figures: string[]; since: number; doing: [words: string, since: number] } | null
}

/** Text that a block grew by, fields that changed, or null for a block that is gone. */
export type Change = string | Record<string, unknown> | null

export interface Frame {
  n: number
  ops: [key: number, change: Change][]
  state?: State
}

export interface Snapshot {
  n: number
  view: string
  now: number
  blocks: [key: number, block: Block][]
  state: State
}

export interface UpToDate {
  n: number
  view: string
}

export interface Piece {
  piece: number
  of: number
  id: number
  text: string
}

/** What could not be done, and the prompt that was not sent for it. */
export interface Problem {
  problem: string
  unsent?: string
}

/** What was typed and is not sent after all. */
export interface Unsent {
  unsent: string
}

/** What was done, where nothing else shows it. */
export interface Said {
  said: string
}

/** A step or a call on the timeline, in shares of the whole. */
export interface Bar {
  name: string
  depth: number
  start: number
  share: number
  time: string
  failed: boolean
}

export interface InspectedRequest {
  title: string
  tokens: Record<string, number>
  counted: string
  sent: string
  sent_note: string
  received: string
  received_note: string
}

/** What a turn sent and received; `turn` counts from 1 and is 0 where there is none. */
export interface Inspection {
  turn: number
  turns: number
  heading: string
  meter: string
  share: number
  bars: Bar[]
  requests: InspectedRequest[]
  note: string
}

export interface Inspected {
  inspection: Inspection
}

export type Message = Frame | Snapshot | UpToDate | Piece | Problem | Unsent | Said | Inspected

/** What a person does: the messages that agentmagic/widgets/commands.py reads. */
export type Action =
  | { type: "approve"; id: string; always?: boolean }
  | { type: "edit"; id: string; arguments: string }
  | { type: "deny"; id: string; reason: string }
  | { type: "reply"; id: string; text: string }
  | { type: "stop" }
  | { type: "whole"; key: number }
  | { type: "send"; text: string; plan?: boolean; attached?: string[] }
  | { type: "detach"; name: string }
  | { type: "resume" }
  | { type: "withdraw" }
  | { type: "retry"; turn: number }
  | { type: "rewrite"; turn: number; text: string }
  | { type: "fork"; turn: number }
  | { type: "clear" }
  | { type: "inspect"; turn: number }
  | { type: "undo" }
  | { type: "back" }
  | { type: "redo" }
  | { type: "export"; form: string }
  | { type: "model"; name: string }
  | { type: "command"; magic?: string; line: string }
  | { type: "new" }
  | { type: "chats" }
  | { type: "open"; name: string; saved: boolean }
  | { type: "allow"; server: string; name?: string }
  | { type: "connect"; server: string }
  | { type: "disconnect"; server: string }
  | { type: "tool"; server: string; name: string; enabled: boolean }

/** What the parts of a view ask of it. */
export interface Desk {
  /** Sends an action to the kernel. */
  act(action: Action): void
  /** Whether the kernel carries out actions of this type. */
  can(type: Action["type"]): boolean
  /** How many turns come after one. */
  later(turn: number): number
  /** Says something to those who hear the page rather than see it. */
  announce(words: string): void
  /** The kernel's time, in seconds since 1970. */
  now(): number
  /** What is known of the session around the conversation. */
  state(): State
  /** What the person asked, the last first. */
  asked(): string[]
}

/** What was typed before a view was there: messages that were sent, and the text that is being written. */
export interface Early {
  sent: string[]
  text: string
  selection: [start: number, end: number]
  /** Whether the keys go there. */
  focused: boolean
}

/** What waits for the person: the first block of those that do, and how many more. */
export interface Waits {
  block: CardBlock | QuestionBlock
  more: number
  /** Whether none of them is in sight. */
  hidden: boolean
}

/** A block in the page. */
export interface Drawn<B> {
  element: HTMLElement
  /** Brings it up to date; returns true where there was no time to finish and it should be called again. */
  update(block: B, deadline: number): boolean | void
  /** Called about once a second while the block is open. */
  tick?(): void
  /** The part that a person answers in while the block waits. */
  asking?: Element
  /** Shows what can be done now; what was typed or opened stays. */
  refresh?(): void
}

/** A view whose model has come into the page. */
export interface Waiting {
  model: Model
  gone: boolean
  close(): void
}

/**
 * What agentmagic's extension of JupyterLab does for a view, of which js/lab/src/code_blocks.ts tells more. Both return
 * whether it was done.
 */
export interface FrontEnd {
  /** Writes code at the cursor of the cell that the person was last in. */
  insert(code: string, click: Event): boolean
  /** Makes a cell of code. */
  newCell(code: string, click: Event): boolean
}

/** The part of an anywidget model that a view uses. */
export interface Model {
  get(name: string): any
  send(content: unknown): void
  on(event: "msg:custom", callback: (message: any) => void): void
  off(event: "msg:custom", callback: (message: any) => void): void
  /** Of JupyterLab and Notebook 7. */
  widget_manager?: { kernel?: Kernel | null; context?: Context }
}

/** The part of an open notebook that a view uses. */
export interface Context {
  path: string
  model?: { cells: Iterable<{ id: string }> }
  disposed: { connect(slot: () => void): void }
}

/** The part of JupyterLab's connection to a kernel that a view uses. */
export interface Kernel {
  status: string
  statusChanged: { connect(slot: StatusSlot): void; disconnect(slot: StatusSlot): void }
  requestExecute(content: object, disposeOnDone: boolean, metadata: object): { done: Promise<{ content: { status: string; evalue?: string } }> }
}

export type StatusSlot = (sender: unknown, status: string) => void
