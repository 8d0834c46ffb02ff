// What the parts of a view know of each other; what travels between it and the kernel is in messages.d.ts.
import type { CardFields, PageAction, QuestionFields, State } from "./messages.js"

declare global {
  /** False only in the build that shows what attacks would do; see build.js. */
  const SANITISE: boolean
  /** By the name of a library, the views that wait for it, or what takes them once it is there. */
  var agentmagic: Record<string, Waiting[] | { push(view: Waiting): void }> | undefined
}

/** What a person does; `whole` asks for all of a card's result. */
export type Action = PageAction | { type: "whole"; key: number }

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
  /** Says what could not be done; "" takes it back. */
  complain(words: string): void
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
  block: CardFields | QuestionFields
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
  /** Where the blocks of an agent's turn stand. */
  inside?: Element
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
  widget_manager?: { kernel?: Kernel | null; context?: Context; get_model?(id: string): Promise<OwnModel> }
}

/** The widget manager's own model, behind the one that anywidget hands out. */
export interface OwnModel {
  comm?: { on_msg?(callback: (message: CommMessage) => unknown): void }
  trigger(event: "msg:custom", content: any): void
  _handle_comm_msg(message: CommMessage): unknown
}

export interface CommMessage {
  content: { data: any }
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
  connectionStatus: string
  statusChanged: { connect(slot: StatusSlot): void; disconnect(slot: StatusSlot): void }
  requestExecute(content: object, disposeOnDone: boolean, metadata: object): { done: Promise<{ content: { status: string; evalue?: string } }> }
}

export type StatusSlot = (sender: unknown, status: string) => void
