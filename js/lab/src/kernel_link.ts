// The link between a notebook and its kernel: a comm that the kernel keeps once agentmagic is loaded there.
import { NotebookPanel } from '@jupyterlab/notebook'
import { Kernel, KernelMessage } from '@jupyterlab/services'
import { JSONObject } from '@lumino/coreutils'
import { Signal } from '@lumino/signaling'
import { FromKernel, State, ToKernel, read } from './messages'

const TARGET = 'agentmagic.lab'
/** Milliseconds after which a hello is said again. A running cell can hold the first one back until it is over. */
const FIRST_WAIT = 300
const LONGEST_WAIT = 5_000
/** Milliseconds after which a kernel that does not say whether agentmagic is loaded is taken for one without. */
const LOOK_WAIT = 2_000

type Handler<T extends keyof FromKernel> = (message: FromKernel[T]) => void

/** The link of a notebook; there is one for each, whether its kernel has loaded agentmagic or not. */
export class KernelLink {
  /** What the kernel has told last, or null if it has told nothing yet. */
  state: State | null = null
  /** Emitted when the kernel, or its state, is another one. */
  readonly changed = new Signal<this, void>(this)
  private comm: Kernel.IComm | null = null
  /** What is sent once the kernel has told its state. */
  private held: (() => void)[] = []
  private handlers = new Map<string, Set<Handler<never>>>()
  private looking = false
  private looked = false
  private loading = false
  private timer = 0

  constructor(readonly context: NotebookPanel['context']) {
    const { sessionContext } = context
    sessionContext.kernelChanged.connect(() => this.begin())
    sessionContext.statusChanged.connect((_, status) => {
      if (!/restarting|terminating|dead/.test(status)) return
      this.held = []
      this.lose()
    })
    sessionContext.kernelPreferenceChanged.connect(() => this.changed.emit())
    sessionContext.iopubMessage.connect(this.followCells, this)
    sessionContext.disposed.connect(() => this.lose())
    this.begin()
  }

  /** Whether agentmagic is loaded in the kernel, whose state may still be on its way. */
  get isLoaded(): boolean {
    return this.comm !== null
  }

  /** Whether it is known if the notebook has a kernel, and if agentmagic is loaded there: a page that loads finds out. */
  get isConnected(): boolean {
    return this.context.sessionContext.kernelDisplayStatus !== 'initializing' && (!this.kernel || this.looked)
  }

  /** Whether a click has agentmagic loaded, which a cell that runs holds back. */
  get isLoading(): boolean {
    return this.loading
  }

  set isLoading(is: boolean) {
    this.loading = is
    this.changed.emit()
  }

  get kernel(): Kernel.IKernelConnection | null {
    return this.context.sessionContext.session?.kernel ?? null
  }

  /** Calls a function with the messages of a type. Returns a function that ends that. */
  on<T extends keyof FromKernel>(type: T, handler: Handler<T>): () => void {
    const handlers = this.handlers.get(type) ?? new Set()
    this.handlers.set(type, handlers.add(handler as Handler<never>))
    return () => handlers.delete(handler as Handler<never>)
  }

  /** Whether a message waits for the kernel. */
  get isHolding(): boolean {
    return this.held.length > 0
  }

  /** Sends a message now or, if the kernel has not told its state yet, once it has; a restart drops it. */
  sendSoon<T extends keyof ToKernel>(message: { type: T } & ToKernel[T]): void {
    if (this.state) return this.send(message)
    this.held.push(() => this.send(message))
    this.changed.emit()
  }

  /** Sends a message to the kernel; it is lost if agentmagic is not loaded there. */
  send<T extends keyof ToKernel>(message: { type: T } & ToKernel[T]): void {
    if (this.comm && !this.comm.isDisposed && this.kernel) this.comm.send({ ...message } as unknown as JSONObject)
  }

  private begin(): void {
    this.lose()
    this.looked = false
    void this.look()
  }

  private lose(): void {
    clearTimeout(this.timer)
    this.comm = null
    this.state = null
    this.changed.emit()
  }

  /** Looks for the comm after a cell, which may have loaded agentmagic. */
  private followCells(_: unknown, message: KernelMessage.IMessage): void {
    const { header, parent_header: parent, content } = message
    const isOver = header.msg_type === 'status' && 'execution_state' in content && content.execution_state === 'idle'
    if (isOver && 'msg_type' in parent && parent.msg_type === 'execute_request' && !this.comm) void this.look()
  }

  private async look(): Promise<void> {
    const { kernel } = this
    if (!kernel || this.looking) return
    this.looking = true
    const late = window.setTimeout(() => kernel === this.kernel && this.settle(), LOOK_WAIT)
    try {
      const { content } = await kernel.requestCommInfo({ target_name: TARGET })
      const [id] = content.status === 'ok' ? Object.keys(content.comms) : []
      if (id && kernel === this.kernel && !this.comm) this.attach(kernel, id)
    } catch {
      // The kernel is gone. The next one is looked at when it is there.
    } finally {
      clearTimeout(late)
      this.looking = false
      if (kernel === this.kernel) this.settle()
      else void this.look()
    }
  }

  private settle(): void {
    if (this.looked) return
    this.looked = true
    this.changed.emit()
  }

  private attach(kernel: Kernel.IKernelConnection, id: string): void {
    const comm = kernel.hasComm(id) ? null : kernel.createComm(TARGET, id)
    if (!comm) return
    this.comm = comm
    comm.onMsg = message => this.receive(kernel, message)
    comm.onClose = () => {
      if (this.comm === comm) this.begin()
    }
    this.greet(FIRST_WAIT)
    this.changed.emit()
  }

  private greet(wait: number): void {
    this.send({ type: 'hello' })
    this.timer = window.setTimeout(() => this.greet(Math.min(2 * wait, LONGEST_WAIT)), wait)
  }

  private receive(kernel: Kernel.IKernelConnection, { content, parent_header }: KernelMessage.ICommMsgMsg): void {
    const message = read(content.data)
    if (!message || kernel !== this.kernel) return
    if (message.type === 'state') {
      clearTimeout(this.timer)
      const { type: _, ...state } = message
      this.state = state
      for (const send of this.held.splice(0)) send()
      this.changed.emit()
    } else if (message.type !== 'proposals' && (!('session' in parent_header) || parent_header.session !== kernel.clientId)) {
      return // What another page has asked for is not done in this one.
    }
    for (const handler of this.handlers.get(message.type) ?? []) (handler as Handler<keyof FromKernel>)(message)
  }
}
