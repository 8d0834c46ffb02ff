// Colours %%agent cells: options, Markdown, and in it Python between braces and @names. JupyterLab's own languages do it.
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application'
import { ICellModel } from '@jupyterlab/cells'
import { CodeEditor } from '@jupyterlab/codeeditor'
import { EditorExtensionRegistry, IEditorExtensionRegistry, IEditorLanguageRegistry } from '@jupyterlab/codemirror'
import { Language, LanguageSupport } from '@codemirror/language'
import { Compartment, Extension, Prec } from '@codemirror/state'
import { EditorView, ViewPlugin, ViewUpdate } from '@codemirror/view'
import { Parser, parseMixed } from '@lezer/common'
import { tags } from '@lezer/highlight'
import type { BlockContext, InlineContext, Line, MarkdownConfig, MarkdownParser } from '@lezer/markdown'

/** The first line; where %%agent is taken, it is %%magent. */
const HEAD = /^%%m?agent(?=\s|$)/
/** As agentmagic/jupyter/prompt/references.py has them: what may stand between braces, LaTeX before them, and names behind an @. */
const LONGEST = 500
const EXPRESSION = /^\{\s*[\p{L}_([][^]*\}$/u
const LATEX = /(?:[\^_]|\\[A-Za-z]+(?:\{[^{}]*\})*)$/
const NAME = /^@[\p{L}_][\p{L}\p{N}_./-]*(?:\[\d{1,9}\])?/u

export const agentCells: JupyterFrontEndPlugin<void> = {
  id: 'agentmagic:cells',
  description: 'Colours the cells that ask the agent.',
  autoStart: true,
  optional: [IEditorExtensionRegistry, IEditorLanguageRegistry],
  activate: (_: JupyterFrontEnd, extensions: IEditorExtensionRegistry | null, languages: IEditorLanguageRegistry | null) => {
    if (!extensions || !languages) return
    let loaded: Promise<Extension> | undefined
    const load = () => (loaded ??= support(languages))
    const extension = EditorExtensionRegistry.createImmutableExtension(following(load))
    extensions.addExtension({ name: 'agentmagic:cells', factory: ({ model }) => (isCode(model) ? extension : null) })
  }
}

/** Whether a cell asks the agent. */
export const isAgentCell = ({ sharedModel }: CodeEditor.IModel): boolean => HEAD.test(sharedModel.source)

const isCode = (model: CodeEditor.IModel): boolean => (model as Partial<ICellModel>).type === 'code'

const language = new Compartment()

/** Has an editor use the language while its first line asks for it, in place of Python. */
function following(load: () => Promise<Extension>): Extension {
  class Follower {
    private is = false

    constructor(view: EditorView) {
      void this.look(view)
    }

    update({ docChanged, view }: ViewUpdate): void {
      if (docChanged) void this.look(view)
    }

    private async look(view: EditorView): Promise<void> {
      const is = HEAD.test(view.state.doc.line(1).text)
      if (is === this.is) return
      this.is = is
      const found = await load() // an editor takes no changes while it makes one
      if (is === this.is) view.dispatch({ effects: language.reconfigure(is ? Prec.highest(found) : []) })
    }
  }
  return [language.of([]), ViewPlugin.fromClass(Follower)]
}

async function support(languages: IEditorLanguageRegistry): Promise<Extension> {
  const [markdown, python] = await Promise.all(['text/x-ipythongfm', 'text/x-ipython'].map(mime => languages.getLanguage(mime)))
  const inner = python?.support?.language.parser
  if (!markdown?.support || !inner) return []
  const parser = markdown.support.language.parser as MarkdownParser
  const { data } = markdown.support.language
  return new LanguageSupport(new Language(data, parser.configure(config(inner)), [], 'agentmagic'))
}

/** What a prompt has beside Markdown. */
const config = (python: Parser): MarkdownConfig => ({
  defineNodes: [
    { name: 'AgentMagic', style: tags.meta },
    { name: 'AgentExpression' },
    { name: 'AgentBrace', style: tags.brace },
    { name: 'AgentName', style: tags.special(tags.variableName) }
  ],
  parseBlock: [{ name: 'AgentMagic', before: 'LinkReference', parse: head }],
  parseInline: [
    { name: 'AgentExpression', before: 'Escape', parse: expression },
    { name: 'AgentName', before: 'Escape', parse: name }
  ],
  wrap: parseMixed(({ name, from, to }) => (name === 'AgentExpression' ? { parser: python, overlay: [{ from: from + 1, to: to - 1 }] } : null))
})

function head(context: BlockContext, line: Line): boolean {
  if (context.lineStart > 0 || !HEAD.test(line.text)) return false
  context.addElement(context.elt('AgentMagic', 0, line.text.length))
  context.nextLine()
  return true
}

function expression(context: InlineContext, next: number, from: number): number {
  if (next !== 123 || context.char(from + 1) === 123) return -1
  const [before, rest] = [context.slice(Math.max(context.offset, from - 100), from), context.slice(from, Math.min(context.end, from + LONGEST))]
  const to = from + closing(rest) + 1
  if (to === from || LATEX.test(before) || !EXPRESSION.test(context.slice(from, to))) return -1
  const braces = [context.elt('AgentBrace', from, from + 1), context.elt('AgentBrace', to - 1, to)]
  return context.addElement(context.elt('AgentExpression', from, to, braces))
}

/** Returns the place of the brace that closes the one at the beginning of a text, or -1. */
function closing(text: string): number {
  let depth = 0
  for (let place = 0; place < text.length; place++) {
    depth += text[place] === '{' ? 1 : text[place] === '}' ? -1 : 0
    if (depth === 0) return place
  }
  return -1
}

function name(context: InlineContext, next: number, from: number): number {
  if (next !== 64 || (from > context.offset && /[\p{L}\p{N}_@.+-]/u.test(context.slice(from - 1, from)))) return -1
  const [found] = NAME.exec(context.slice(from, Math.min(context.end, from + LONGEST))) ?? []
  return found ? context.addElement(context.elt('AgentName', from, from + found.length)) : -1
}
