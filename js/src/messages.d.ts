// What travels between the kernel and a view; made by `python -m tests.widgets.page_types`.

/** A text; `note` says what was cut. */
export interface TextForm {
  form: "text"
  text: string
  note: string
}

/** A table; `numeric` says which columns hold numbers. */
export interface TableForm {
  form: "table"
  columns: string[]
  rows: string[][]
  numeric: boolean[]
  note: string
}

/** HTML of a tool, which the page cleans. */
export interface HtmlForm {
  form: "html"
  html: string
}

/** An image in base64, its media type, and its width in pixels if it is to be scaled. */
export interface ImageForm {
  form: "image"
  type: string
  data: string
  name: string
  width?: number
}

/** Pages of the web: title, address to show, address to lead to ("" for none), beginning of the text. */
export interface PagesForm {
  form: "pages"
  pages: [string, string, string, string][]
  note: string
}

/** The prompt of a turn, and what is attached to it; its stretches, if it is not shown as it was sent. It is not shown if a `client` of the served notebook makes the call of the turn. */
export interface PromptFields {
  within?: number
  kind: "prompt"
  text: string
  stretches: [string, boolean][]
  attached: [string, string][]
  turn: number | null
  client: string
}

/** What the values that a prompt names became: as written, of which kind, and what the model gets. */
export interface ValuesFields {
  within?: number
  kind: "values"
  line: string
  values: [string, string, Form][]
}

/** Text or reasoning, and whether more comes; `form` is of an answer that is a value. `marks` are the numbers of its `sources`: a place in UTF-16 code units, what Markdown stands before it, the number. */
export interface WordsFields {
  within?: number
  kind: "text" | "reasoning"
  text?: string
  open: boolean
  form?: Form
  marks?: [number, string, number][]
  sources?: SourceFields[]
}

/** A page that a text cites: its number, title, address to show, address to lead to ("" for none), what it says. */
export interface SourceFields {
  number: number
  title: string
  address: string
  link: string
  quotes: string[]
}

/** A call: its arguments as name and text, what may be edited (name, text, whether the text is the value itself). With `step` the call may run, and the turn is paused before it. `since` is in seconds since 1970. `more` is the key to ask for a whole result. `effects` say line by line what the call does. A running tool made an `inner` call. `optional` are arguments that the model left out: name, default as text, whether the text is the value itself, and what it is for. `edits` are the lines that the user changed in the arguments. `client` makes the call, "" for the model. The provider carries out a `hosted` call, or is to be allowed to: `title` says what it does, in the place of the name, and `told` what came of it. `agent` is the agent that the call asks; the blocks of its turn are `within` the card. Such a card `waits` also while the agent asks the user something. */
export interface CardFields {
  within?: number
  kind: "card"
  name: string
  server: string
  state: CardState
  short: string
  arguments: [string, string][]
  note: string
  ask: string
  step: boolean
  edit: [string, string, boolean][]
  optional: [string, string, boolean, string][]
  edits: string
  since: number | null
  time: string
  progress: CardProgress | null
  reason: string
  result: CardResult | null
  more: number | null
  traceback: string
  effects: string[]
  inner: boolean
  client: string
  title: string
  told: string
  hosted: boolean
  agent: string
  waits: boolean
}

/** How far a call has come, its share of the whole if that is known, and its last lines if they are several. */
export interface CardProgress {
  text: string
  lines: string
  share: number | null
}

/** The parts of a result, and what of them stands open below the call. */
export interface CardResult {
  error: boolean
  forms: Form[]
  below: Form[]
}

/** The tasks of a plan. */
export interface ChecklistFields {
  within?: number
  kind: "checklist"
  heading: string
  tasks: TaskFields[]
}

/** A task of a plan. */
export interface TaskFields {
  id: string
  title: string
  tool: string
  state: CardState
  word: string
  parameters: string
  attempts: string[]
  summary: string
}

/** A question, its answer, and how to answer; `suggested` is an answer that may be sent as it is, or changed. With `step` the turn is paused before a request, which the text shows. `choices` are the answers that can be given, if there are no others. `plan` says that `suggested` is the lines of a plan, "refused" that those sent before cannot be run, as the text says. `files` is the text of files that are to be approved. */
export interface QuestionFields {
  within?: number
  kind: "question"
  text: string
  answer: string | null
  ask: string
  suggested: string
  step: boolean
  choices: string[]
  plan: "" | "new" | "refused"
  files: string
}

/** A proposed cell: what became of it, "" while the person has not decided, its code, and what Copy copies. */
export interface ProposalFields {
  within?: number
  kind: "proposal"
  title: string
  why: string
  state: string
  folded: boolean
  hint: string
  code: string
  language: string
  copy: string
}

/** A notice. */
export interface NoticeFields {
  within?: number
  kind: "notice"
  level: "info" | "warning" | "error"
  text: string
}

/** A request that is sent again. */
export interface RetryFields {
  within?: number
  kind: "retry"
  text: string
}

/** How far a map has come; `shares` are those of the rows that were answered and that failed, if that is known. */
export interface ProgressFields {
  within?: number
  kind: "progress"
  state: CardState
  heading: string
  figures: string[]
  shares: [number, number] | null
  errors: string[]
  notices: string[]
}

/** The figures of a turn and why it ended; `unsent` is its number if it got no answer and later requests omit it. `details` are the figures that are shown if asked for. */
export interface FooterFields {
  within?: number
  kind: "footer"
  figures: string[]
  details: string
  stop: "answer" | "done" | "limit" | "budget" | "timeout" | "cancelled" | "no_tools" | "error" | null
  unsent: number | null
}

/** What changed since the frame before. */
export interface Frame {
  n: number
  ops: [number, Change][]
  state?: State
}

/** What a view shows around the blocks; what is not told is not shown. `actions` are the types of `agentmagic.widgets.page_messages` that are wired: a view offers no others. `note` says why something cannot be done by a click, `left` how many tasks of a plan can be resumed. `cleared` is how many turns can be brought back. `running` belongs to the feed. `welcome` and `examples` stand in a conversation without turns. `offered` is a saved conversation to go on with. `level` is what runs without asking, "" if the permission of the agent is none of the `levels`, each with its words. `names` complete `@`, `commands` and `prompts` complete `/`, each with what it is; `chats` are the conversations, once the page has asked for them. `setup` is the card that a turn without a key waits for. `attached` are the attachments of the next prompt, each with what it is. `large` is for a projector. `context` is about how many tokens the next request takes beside its prompt, `window` how many the model takes, 0 if that is unknown. `web` tells which tools the provider carries out. */
export interface State {
  title?: string
  actions?: string[]
  model?: string
  models?: string[]
  level?: string
  levels?: [string, string][]
  cost?: string
  context?: number
  window?: number
  servers?: ServerRow[]
  web?: string
  note?: string
  left?: string
  cleared?: number
  running?: Running | null
  welcome?: string
  examples?: string[]
  offered?: ConversationRow | null
  names?: [string, string][]
  commands?: [string, string][]
  prompts?: [string, string][]
  chats?: ConversationRow[]
  attached?: [string, string][]
  setup?: SetupCard | null
  large?: boolean
}

/** A row of the servers tab. A tool has its name, whether the model is offered it, whether it runs without asking, its description and its arguments. */
export interface ServerRow {
  name: string
  state: string
  error: string
  stderr: string
  tools: [string, boolean, boolean, string, string][]
}

/** The turn under way: its figures, when it began, what it does and since when, in seconds since 1970. */
export interface Running {
  figures: string[]
  since: number
  doing: [string, number]
}

/** A session of the notebook, or a conversation that is saved beside it. */
export interface ConversationRow {
  name: string
  about: string
  saved: boolean
}

/** What a user without a key can choose, and why it is asked. `local` is a sentence about the local model, and `install` the command that installs its package, "" if it is there. `providers` are those that take a key: name, what it is, the variable of the key, and how a key begins. `keyring` says why the system's keyring can keep no key, "" if it can. `servers` are those found on this machine with their models, None while they are looked for. `fixed` says that no other model can be chosen. */
export interface SetupCard {
  why: string
  local: string
  install: string
  providers: [string, string, string, string][]
  keyring: string
  servers: [string, string[]][] | null
  fixed: boolean
}

/** All that a view shows; `now` is the kernel's time, in seconds since 1970. */
export interface ViewSnapshot {
  n: number
  view: string
  now: number
  blocks: [number, Block][]
  state: State
}

/** The answer to a view that has missed nothing. */
export interface UpToDate {
  n: number
  view: string
}

/** A piece of a long message. */
export interface MessagePiece {
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

/** What was done, if nothing else shows it. */
export interface Said {
  said: string
}

/** What a turn sent and received. */
export interface Inspected {
  inspection: InspectionPage
}

/** What a turn sent and received; `turn` counts from 1 and is 0 if there is none. */
export interface InspectionPage {
  turn: number
  turns: number
  heading: string
  meter: string
  share: number
  bars: BarRow[]
  requests: RequestPage[]
  note: string
}

/** A step or a call on the timeline, in shares of the whole. */
export interface BarRow {
  name: string
  depth: number
  start: number
  share: number
  time: string
  failed: boolean
}

/** A request and its answer: estimated tokens by part, what the provider counted, and both as text. */
export interface RequestPage {
  title: string
  tokens: Record<string, number>
  counted: string
  sent: string
  sent_note: string
  received: string
  received_note: string
}

/** Let a tool call run. */
export interface ApproveCall {
  type: "approve"
  id: string
  always?: boolean
}

/** Let a tool call run with other arguments than the model gave, written as JSON. */
export interface EditCall {
  type: "edit"
  id: string
  arguments: string
}

/** Refuse a tool call. */
export interface DenyCall {
  type: "deny"
  id: string
  reason?: string
}

/** Answer a question of a tool. */
export interface AnswerQuestion {
  type: "reply"
  id: string
  text: string
}

/** Cancel the turn. */
export interface StopTurn {
  type: "stop"
}

/** Use the local model, which needs no key. */
export interface UseLocal {
  type: "local"
}

/** Use a provider with a key, which is kept in the system's keyring with `keep`, else in this kernel's memory. */
export interface UseKey {
  type: "key"
  provider: string
  key: string
  keep: boolean
}

/** Use a model of a server that was found on this machine. */
export interface UseServer {
  type: "server"
  server: string
  model: string
}

/** Choose no model now: the turn that waits for one is given up. */
export interface LeaveSetup {
  type: "leave"
}

/** End the map that runs; what was answered is kept. */
export interface StopMap {
  type: "stop-map"
}

/** Begin a turn with a prompt, planned first if `plan` is set. `attached` names the attachments in the box that go with it; names that are not there are ignored. */
export interface SendPrompt {
  type: "send"
  text: string
  plan?: boolean
  attached?: string[]
}

/** Attach a file that was pasted or dropped to the next message; `data` are its bytes in base64. A file of the same name that is attached is replaced. */
export interface AttachFile {
  type: "file"
  name: string
  data: string
}

/** Take an attachment out of the box. */
export interface DropAttachment {
  type: "detach"
  name: string
}

/** Go on with the plan that the last turn left open. */
export interface ResumePlan {
  type: "resume"
}

/** Give up the plan that the last turn left open. */
export interface DropPlan {
  type: "drop"
}

/** Take back the prompts that have not been sent. */
export interface WithdrawPrompts {
  type: "withdraw"
}

/** Run a turn again with its own prompt; the turn and all later ones are forgotten. Turns count from 0. */
export interface RetryTurn {
  type: "retry"
  turn: number
}

/** Run a turn again with another prompt; the turn and all later ones are forgotten. */
export interface RewriteTurn {
  type: "rewrite"
  turn: number
  text: string
}

/** Make another session of the turns up to this one, which is included. */
export interface ForkSession {
  type: "fork"
  turn: number
}

/** Forget the conversation. */
export interface ClearSession {
  type: "clear"
}

/** Have older turns summarised for the model. */
export interface CompactSession {
  type: "compact"
}

/** Send what a turn sent and received; turns count from 1 here, 0 is the last. */
export interface InspectTurn {
  type: "inspect"
  turn: number
}

/** Bring the cleared conversation back. */
export interface UndoClear {
  type: "undo"
}

/** Undo the last turn, edit or clear. */
export interface UndoChange {
  type: "back"
}

/** Do again what was undone last. */
export interface RedoChange {
  type: "redo"
}

/** Write the conversation to a file. */
export interface ExportSession {
  type: "export"
  form: "markdown" | "json" | "notebook"
}

/** Use another model from the next turn on. */
export interface ChooseModel {
  type: "model"
  name: string
}

/** Let more or less run without asking, from the next turn on. */
export interface ChooseLevel {
  type: "level"
  level: "ask" | "reads" | "trusted"
}

/** Carry out a line of `%agent` on the panel's session, or a line of `%mcp`. */
export interface RunCommand {
  type: "command"
  magic?: "agent" | "mcp"
  line: string
}

/** Go on in a session without turns. */
export interface NewChat {
  type: "new"
}

/** Send the list of the notebook's conversations. */
export interface ListChats {
  type: "chats"
}

/** Go on with one of the listed conversations. */
export interface OpenChat {
  type: "open"
  name: string
  saved: boolean
}

/** Connect a server. */
export interface ConnectServer {
  type: "connect"
  server: string
}

/** Disconnect a server. */
export interface DisconnectServer {
  type: "disconnect"
  server: string
}

/** Offer a server's tool to the model, or stop offering it. */
export interface EnableTool {
  type: "tool"
  server: string
  name: string
  enabled: boolean
}

/** Let a server's tool run without asking, or all its tools if none is named. */
export interface AllowTools {
  type: "allow"
  server: string
  name?: string
}

export type CardState = "pending" | "waiting" | "running" | "done" | "failed" | "denied" | "interrupted"

export type Form = TextForm | TableForm | HtmlForm | ImageForm | PagesForm

export type Block = PromptFields | ValuesFields | WordsFields | CardFields | ChecklistFields | QuestionFields | ProposalFields | NoticeFields | RetryFields | ProgressFields | FooterFields

export type Change = string | Record<string, unknown> | null

export type Message = Frame | ViewSnapshot | UpToDate | MessagePiece | Problem | Unsent | Said | Inspected

export type PageAction = ApproveCall | EditCall | DenyCall | AnswerQuestion | StopTurn | UseLocal | UseKey | UseServer | LeaveSetup | StopMap | SendPrompt | AttachFile | DropAttachment | ResumePlan | DropPlan | WithdrawPrompts | RetryTurn | RewriteTurn | ForkSession | ClearSession | CompactSession | InspectTurn | UndoClear | UndoChange | RedoChange | ExportSession | ChooseModel | ChooseLevel | RunCommand | NewChat | ListChats | OpenChat | ConnectServer | DisconnectServer | EnableTool | AllowTools
