// What travels between the kernel and a view; made by `python -m tests.widgets.page_types`.

/** A text; `note` says what was cut off. */
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

/** HTML from a tool; the browser page sanitises it again. */
export interface HtmlForm {
  form: "html"
  html: string
}

/** An image in base64, its media type, and the width in pixels to which it must be scaled, if it must. */
export interface ImageForm {
  form: "image"
  type: string
  data: string
  name: string
  width?: number
}

/** Web pages. Each has a title, an address to show, a URL to link to ("" for no link), and the start of its text. */
export interface PagesForm {
  form: "pages"
  pages: [string, string, string, string][]
  note: string
}

/** The prompt of a turn; `attached` are the names and texts of its attachments. `stretches` are parts of the text, each with True if it is laid out in columns; the list is empty if the browser page can show `text` as it is. If an MCP client of the served notebook called a tool in this turn, `client` names the client, and the page hides the prompt. */
export interface PromptFields {
  within?: number
  kind: "prompt"
  text: string
  stretches: [string, boolean][]
  attached: [string, string][]
  turn: number | null
  client: string
}

/** The values that a prompt names. Each has its text as typed, its kind, and the form that the model gets. */
export interface ValuesFields {
  within?: number
  kind: "values"
  line: string
  values: [string, string, Form][]
}

/** A text or the reasoning of the model; `open` says that more text is coming. If the text is an answer in JSON, `form` is the table, tree or text to show instead. `marks` are the source numbers to insert into the text. Each mark is a position in UTF-16 code units, the Markdown to insert before the number, and the number itself, which stands for one of the `sources`. */
export interface WordsFields {
  within?: number
  kind: "text" | "reasoning"
  text?: string
  open: boolean
  form?: Form
  marks?: [number, string, number][]
  sources?: SourceFields[]
}

/** A web page that an answer cites: its number, title, shown address, URL to link to (or ""), and quotations. */
export interface SourceFields {
  number: number
  title: string
  address: string
  link: string
  quotes: string[]
}

/** A tool call and its card. `name` is the name of the tool; if `titled`, it says in words what a call of the model's provider does. `addressed` says that `server` includes the server's command line or URL, because its name could be mistaken for one of ours. `word` is the state in words, with the reason of a call that failed or was denied. `short` are the arguments on one line; of a program it is the last statement, and `value` its value. `arguments` are pairs of name and text, and `languages` are those of arguments that are code, by name. `edit` are the arguments that the user can change: name, text, and whether the text is the value itself rather than JSON. `optional` are arguments that the model left out: name, default as text, whether that text is the value itself, and description. `edits` is a diff of what the user changed in the arguments. `effects` say line by line what the call does. If `step` is set, the turn only pauses before the call, and the card asks for no approval. `since` is when the call began to run, in seconds since 1970. `more` is the key with which the browser page requests the whole result. `inner` says that a running tool made the call. `client` is the outside program that makes the call, or the agent of an inner turn while its call asks for approval, else "". `agent` is the agent that the call asks; the blocks of that agent's turn name this card in their `within`. `waits` says that the user is asked something, about the call or by that agent. `approve` is the label of the plain approval, `always` that of the answer for later calls too; each is "" if there is none. `choices` are further answers of an outside agent: id, name, and whether it refuses. */
export interface CardFields {
  within?: number
  kind: "card"
  name: string
  titled: boolean
  server: string
  addressed: boolean
  state: CardState
  word: string
  short: string
  value: string
  arguments: [string, string][]
  languages: Record<string, string>
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
  agent: string
  waits: boolean
  approve: string
  always: string
  choices: [string, string, boolean][]
}

/** The progress of a tool call: a summary, the last lines of output if there are several, and the share done. The share is a number from 0 to 1, or None if it is unknown. */
export interface CardProgress {
  text: string
  lines: string
  share: number | null
}

/** The result of a tool call. `forms` are the parts inside the call's card; those in `below` are always visible. */
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

/** A task of a plan; `parts` are pairs of a heading and a text, which are shown on demand. */
export interface TaskFields {
  id: string
  title: string
  tool: string
  state: CardState
  word: string
  parts: [string, string][]
}

/** A question to the user, and the `label` before its text. `suggested` is an answer that the user can send as it is, or change first. `ask` is the id to answer with. If `step` is set, the turn only pauses before a request to the model, and `text` shows the request. `choices` are the only possible answers, if there are any. If `suggested` is a plan, `plan` is "new". But if the plan that the user sent cannot be run, `plan` is "refused", and `text` says why. `files` is the text of files that the user is asked to approve. */
export interface QuestionFields {
  within?: number
  kind: "question"
  label: string
  text: string
  answer: string | null
  ask: string
  suggested: string
  step: boolean
  choices: string[]
  plan: "" | "new" | "refused"
  files: string
}

/** A notebook cell that a tool proposes. `state` is the user's decision, or "" before the user decides. `copy` is the text that the Copy button copies. */
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

/** A short message to the user, such as a warning; `label` is the word before it, or "". */
export interface NoticeFields {
  within?: number
  kind: "notice"
  level: "info" | "warning" | "error"
  label: string
  text: string
}

/** What a command of the panel has printed, in a frame if it is a `card`. `line` is the command as the user typed it, or "". */
export interface PrintoutFields {
  within?: number
  kind: "printout"
  line: string
  card: boolean
  parts: PrintedFields[]
}

/** A part of a printout, as a browser page draws it; `part` is its look. Only rows have `rows`, the names of their columns in `head`, and the number of columns that are aligned `left`. A part with the look "fold" has its title in `text`, and opens to show `inside`. */
export interface PrintedFields {
  part: "line" | "quiet" | "heading" | "code" | "facts" | "names" | "table" | "fold"
  text: string
  inside: string
  head: string[]
  rows: string[][]
  left: number
}

/** The progress of a map, which runs one prompt for many rows. `shares` are two numbers from 0 to 1, the shares of answered and of failed rows; None if the total is unknown. `again` is the label of the button that asks the failed rows again, "" if there are none. A page that cannot offer the button shows `advice`. */
export interface ProgressFields {
  within?: number
  kind: "progress"
  state: CardState | "partly"
  heading: string
  figures: string[]
  shares: [number, number] | null
  errors: string[]
  notices: string[]
  again: string
  advice: string
}

/** The figures of a turn (time, cost and others) and why it ended; `details` are figures shown on demand. If the turn got no answer, and later requests therefore leave it out, `unsent` is its number. */
export interface FooterFields {
  within?: number
  kind: "footer"
  figures: string[]
  details: string
  stop: "answer" | "done" | "limit" | "budget" | "timeout" | "cancelled" | "no_tools" | "error" | null
  unsent: number | null
}

/** A message with what changed in a view since the previous frame. */
export interface Frame {
  n: number
  ops: [number, Change][]
  state?: State
}

/** What a view shows around the blocks; a field that is missing is not shown. `actions` are the types of `agentmagic.widgets.page_messages` that work here; a view offers no others. `note` says why something cannot be done by a click. `left` says how many tasks of a plan can be resumed. `cleared` is how many cleared turns can be restored. `running` is set by `sync.Feed`. `welcome` and `examples` are shown in a conversation without turns, and `reads_notebook` is whether the model is offered the tools that look at the notebook. `earlier` says with which conversation of an earlier kernel the panel goes on. `offered` is a saved conversation that can be continued. `level` is the permission level, or "" if the agent's permission is none of the `levels`, each of which has a description. `names` complete a typed `@`, and `commands` and `prompts` a typed `/`, each with a description; `chats` are the conversations, once the page has asked for them. `setup` has the choices that a turn without an API key waits for. `attached` are the attachments of the next prompt, each with a description. `large` enlarges the type for a projector. `context` is about how many tokens the next request has without its prompt, and `window` how many tokens the model accepts, 0 if unknown. `web` says which tools the provider carries out. */
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
  reads_notebook?: boolean
  earlier?: string
  offered?: ConversationRow | null
  names?: [string, string][]
  commands?: [string, string][]
  prompts?: [string, string][]
  chats?: ConversationRow[]
  attached?: [string, string][]
  setup?: SetupCard | null
  asked?: PageQuestion | null
  large?: boolean
}

/** An MCP server in the chat panel's tab of servers. Each of its `tools` has a name, whether it is offered to the model, whether it runs without asking, a description, and its arguments. `address` is its command line or URL if the name could be mistaken for one of ours, or "". */
export interface ServerRow {
  name: string
  address: string
  state: string
  error: string
  stderr: string
  tools: [string, boolean, boolean, string, string][]
}

/** The turn under way: its figures, when it began, what it does and since when. Times are in seconds since 1970. */
export interface Running {
  figures: string[]
  since: number
  doing: [string, number]
}

/** A conversation to choose from: a session of the notebook, or one that is saved beside the notebook. */
export interface ConversationRow {
  name: string
  about: string
  saved: boolean
}

/** The choices shown to a user who has no API key; `why` says why the user is asked. `local` is a sentence about the local model, and `install` the command that installs its package, "" if it is installed. Each of the `providers` has a name, a description, the environment variable of its key, and how a key begins. `keyring` says why the system's keyring cannot store a key, or is "" if it can. `servers` are the model servers found on this machine, with their models; it is None while the search runs. `fixed` says that no other model can be chosen. */
export interface SetupCard {
  why: string
  local: string
  install: string
  providers: [string, string, string, string][]
  keyring: string
  servers: [string, string[]][] | null
  fixed: boolean
}

/** A card that asks whether an act of the page may be done, outside any turn; `ask` is the id to answer with. `line` is the command that does the same in a cell, and `target` the command line or URL of its MCP server, or "". Hidden characters in both are escaped. */
export interface PageQuestion {
  ask: string
  about: string
  line: string
  target: string
}

/** Everything that a view shows; `now` is the kernel's time, in seconds since 1970. */
export interface ViewSnapshot {
  n: number
  view: string
  now: number
  blocks: [number, Block][]
  state: State
}

/** The answer to a view that has sent `hello` and has missed no message. */
export interface UpToDate {
  n: number
  view: string
}

/** A piece of a message that is too long to be sent at once. */
export interface MessagePiece {
  piece: number
  of: number
  id: number
  text: string
}

/** A problem to show, and the prompt that was not sent because of it. */
export interface Problem {
  problem: string
  unsent?: string
}

/** A typed text that was not sent, to be put back into the input box. */
export interface Unsent {
  unsent: string
}

/** A message to show until the user's next action. */
export interface Said {
  said: string
}

/** The inspection of a turn: what it sent to the model and received. */
export interface Inspected {
  inspection: InspectionPage
}

/** What a turn sent to the model and received; `turn` counts from 1, and is 0 if the turn does not exist. */
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

/** A step or a tool call on the timeline of a turn; `start` and `share` are fractions of the whole timeline. */
export interface BarRow {
  name: string
  depth: number
  start: number
  share: number
  time: string
  failed: boolean
}

/** A model request and its response: estimated tokens by part, the provider's count, and both contents as text. */
export interface RequestPage {
  title: string
  tokens: Record<string, number>
  counted: string
  sent: string
  sent_note: string
  received: string
  received_note: string
}

/** The user lets a tool call run. */
export interface ApproveCall {
  type: "approve"
  id: string
  always?: boolean
  option?: string
}

/** The user lets a tool call run with changed arguments, written as JSON. */
export interface EditCall {
  type: "edit"
  id: string
  arguments: string
}

/** The user refuses a tool call. */
export interface DenyCall {
  type: "deny"
  id: string
  reason?: string
  option?: string
}

/** The user answers a question, for example of a tool. */
export interface AnswerQuestion {
  type: "reply"
  id: string
  text: string
}

/** The user stops the running turn. */
export interface StopTurn {
  type: "stop"
}

/** The user chooses the local model, which needs no API key. */
export interface UseLocal {
  type: "local"
}

/** The user chooses a provider and enters an API key for it. If `keep` is true, the key is stored in the system's keyring, else in this kernel's memory. */
export interface UseKey {
  type: "key"
  provider: string
  key: string
  keep: boolean
}

/** The user chooses a model of a model server that was found on this machine. */
export interface UseServer {
  type: "server"
  server: string
  model: string
}

/** The user chooses no model now, which ends the turn that waits for a model. */
export interface LeaveSetup {
  type: "leave"
}

/** The user ends the running map; the answers so far are kept. */
export interface StopMap {
  type: "stop-map"
}

/** The user sends a prompt, which begins a turn; with `plan`, the turn is planned first. `attached` names those attachments in the input box that are sent with the prompt; unknown names are ignored. */
export interface SendPrompt {
  type: "send"
  text: string
  plan?: boolean
  attached?: string[]
}

/** The user attaches a pasted or dropped file to the next prompt; `data` is its content in base64. The file replaces an attached file of the same name. */
export interface AttachFile {
  type: "file"
  name: string
  data: string
}

/** The user removes an attachment from the input box. */
export interface DropAttachment {
  type: "detach"
  name: string
}

/** The user resumes the plan that the last turn left unfinished. */
export interface ResumePlan {
  type: "resume"
}

/** The user gives up the plan that the last turn left unfinished. */
export interface DropPlan {
  type: "drop"
}

/** The user takes back the prompts that have not been sent to the model yet. */
export interface WithdrawPrompts {
  type: "withdraw"
}

/** The user runs a turn again with its own prompt; this turn and all later ones are removed. Turns count from 0. */
export interface RetryTurn {
  type: "retry"
  turn: number
}

/** The user runs a turn again with another prompt; this turn and all later ones are removed. */
export interface RewriteTurn {
  type: "rewrite"
  turn: number
  text: string
}

/** The user makes a new session from the turns up to and including this turn. */
export interface ForkSession {
  type: "fork"
  turn: number
}

/** The user clears the conversation. */
export interface ClearSession {
  type: "clear"
}

/** The user wants older turns to be summarised for the model. */
export interface CompactSession {
  type: "compact"
}

/** The user wants to see what a turn sent and received. Here turns count from 1, and 0 stands for the last turn. */
export interface InspectTurn {
  type: "inspect"
  turn: number
}

/** The user restores the conversation that was just cleared. */
export interface UndoClear {
  type: "undo"
}

/** The user undoes the last turn, edit or clearing of the conversation. */
export interface UndoChange {
  type: "back"
}

/** The user redoes what was undone last. */
export interface RedoChange {
  type: "redo"
}

/** The user exports the conversation to a file. */
export interface ExportSession {
  type: "export"
  form: "markdown" | "html" | "json" | "notebook"
}

/** The user chooses another model from the next turn on. */
export interface ChooseModel {
  type: "model"
  name: string
}

/** The user chooses which tools run without asking, from the next turn on. */
export interface ChooseLevel {
  type: "level"
  level: "ask" | "reads" | "trusted"
}

/** The user runs a line of `%agent` on the panel's session, or a line of `%mcp`. */
export interface RunCommand {
  type: "command"
  magic?: "agent" | "mcp"
  line: string
}

/** The user continues in a new session, which has no turns. */
export interface NewChat {
  type: "new"
}

/** The browser page asks for the list of the notebook's conversations. */
export interface ListChats {
  type: "chats"
}

/** The user continues one of the listed conversations. */
export interface OpenChat {
  type: "open"
  name: string
  saved: boolean
}

/** The user connects an MCP server. */
export interface ConnectServer {
  type: "connect"
  server: string
}

/** The user disconnects an MCP server. */
export interface DisconnectServer {
  type: "disconnect"
  server: string
}

/** The user offers a tool of an MCP server to the model, or no longer offers it. */
export interface EnableTool {
  type: "tool"
  server: string
  name: string
  enabled: boolean
}

/** The user lets a tool of an MCP server run without asking, or all its tools if `name` is empty. */
export interface AllowTools {
  type: "allow"
  server: string
  name?: string
}

/** The user has the failed rows of a map asked again. */
export interface AskRows {
  type: "ask-rows"
}

export type CardState = "pending" | "waiting" | "running" | "done" | "failed" | "denied" | "interrupted"

export type Form = TextForm | TableForm | HtmlForm | ImageForm | PagesForm

export type Block = PromptFields | ValuesFields | WordsFields | CardFields | ChecklistFields | QuestionFields | ProposalFields | NoticeFields | PrintoutFields | ProgressFields | FooterFields

export type Change = string | Record<string, unknown> | null

export type Message = Frame | ViewSnapshot | UpToDate | MessagePiece | Problem | Unsent | Said | Inspected

export type PageAction = ApproveCall | EditCall | DenyCall | AnswerQuestion | StopTurn | UseLocal | UseKey | UseServer | LeaveSetup | StopMap | SendPrompt | AttachFile | DropAttachment | ResumePlan | DropPlan | WithdrawPrompts | RetryTurn | RewriteTurn | ForkSession | ClearSession | CompactSession | InspectTurn | UndoClear | UndoChange | RedoChange | ExportSession | ChooseModel | ChooseLevel | RunCommand | NewChat | ListChats | OpenChat | ConnectServer | DisconnectServer | EnableTool | AllowTools | AskRows
