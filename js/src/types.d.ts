// Types shared by the parts of a view. The messages between a view and the kernel are in messages.d.ts.
import type { CardFields, PageAction, QuestionFields, State } from "./messages.js"

declare global {
  /** False only in a test build that shows that attacks would work without sanitising; see build.js. */
  const SANITISE: boolean
  /** By the name of a library: the views that wait for it, or, once it is loaded, an object that accepts views. */
  var agentmagic: Record<string, Waiting[] | { push(view: Waiting): void }> | undefined
}

/** An action of the user; `whole` requests the complete result of a card. */
export type Action = PageAction | { type: "whole"; key: number }

/** The methods of a view that its parts use. */
export interface Desk {
  /** Sends an action to the kernel. */
  act(action: Action): void
  /** Whether the kernel carries out actions of this type. */
  can(type: Action["type"]): boolean
  /** Returns the number of turns after this turn. */
  later(turn: number): number
  /** Announces a text to users of screen readers. */
  announce(words: string): void
  /** Shows an error; "" removes it. */
  complain(words: string): void
  /** Shows a turn in the inspector: counted from 1, 0 for the last. */
  inspect(turn: number): void
  /** Returns the kernel's time, in seconds since 1970. */
  now(): number
  /** Returns the state of the session. */
  state(): State
  /** Returns the user's prompts, newest first. */
  asked(): string[]
}

/** Input from before a view existed: messages that the user sent, and unfinished text. */
export interface Early {
  sent: string[]
  text: string
  selection: [start: number, end: number]
  /** Whether the box with that text has the focus. */
  focused: boolean
}

/** The blocks that wait for the user: the first one, and the number of others. */
export interface Waits {
  block: CardFields | QuestionFields
  more: number
  /** Whether none of them is visible. */
  hidden: boolean
}

/** A block that is drawn in the page. */
export interface Drawn<B> {
  element: HTMLElement
  /** Updates the elements of the block; returns true if the time was too short and it must be called again. */
  update(block: B, deadline: number): boolean | void
  /** Called about once a second while the block is open. */
  tick?(): void
  /** The element in which the user answers while the block waits. */
  asking?: Element
  /** The element for the blocks of an inner agent's turn. */
  inside?: Element
  /** Updates the buttons to the actions that are possible now; typed text and opened parts stay. */
  refresh?(): void
}

/** A view whose model has been loaded in the page. */
export interface Waiting {
  model: Model
  gone: boolean
  close(): void
}

/**
 * The functions of our JupyterLab extension that a view uses; see js/lab/src/code_blocks.ts. Both return whether they
 * succeeded.
 */
export interface FrontEnd {
  /** Inserts code at the cursor of the cell that the user last edited. */
  insert(code: string, click: Event): boolean
  /** Creates a new cell with code. */
  newCell(code: string, click: Event): boolean
}

/** The part of an anywidget model that a view uses. */
export interface Model {
  get(name: string): any
  send(content: unknown): void
  on(event: "msg:custom", callback: (message: any) => void): void
  off(event: "msg:custom", callback: (message: any) => void): void
  /** Present in JupyterLab and Notebook 7. */
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
