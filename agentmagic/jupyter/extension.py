"""Loads the extension (magics, hooks, chat panels) into an IPython shell, and unloads it."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import needs_local_scope, no_var_expand

from agentmagic import log, traces
from agentmagic.display.printout import Printout
from agentmagic.errors import UsageError
from agentmagic.host import ScriptHost, install
from agentmagic.jupyter.cell.live_runs import AnswerText, LiveRuns
from agentmagic.jupyter.cell.map_cells import run_map
from agentmagic.jupyter.cell.runner import Runner, TurnInterrupted, quiet_stop, short_error
from agentmagic.jupyter.frontend import Kind, front_end, in_kernel, say, text_only
from agentmagic.jupyter.kernel_host import KernelHost
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.magics.agent_commands import AgentCommands, agent_magic
from agentmagic.jupyter.magics.completion import matcher
from agentmagic.jupyter.magics.formatting import chosen_model
from agentmagic.jupyter.magics.mcp_commands import McpCommands, mcp_magic
from agentmagic.jupyter.magics.options import Ask, LineMagic, ask_parser, fill_line, parse_ask
from agentmagic.jupyter.magics.parser import Help
from agentmagic.jupyter.notebook.file import KnownNotebook
from agentmagic.jupyter.notebook.kernel import KernelNotebook
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, Namespace
from agentmagic.jupyter.panel import panels
from agentmagic.jupyter.prompt.cell_errors import CellErrors
from agentmagic.messages import Message, user
from agentmagic.plan import RESUME_PROMPT
from agentmagic.providers.outside import display_name
from agentmagic.providers.registry import model_sentence, preload
from agentmagic.runtime.engine import in_thread
from agentmagic.settings import model_override
from agentmagic.widgets.busy_kernel import answer_pages_anytime, take_messages_anywhere

if TYPE_CHECKING:
    from agentmagic.jupyter.panel.lab import LabLink

LAB = "agentmagic.lab"
"""The target name of the comm (Jupyter's message channel) through which the JupyterLab extension finds a kernel."""


class AgentMagics:
    """The magics of one shell. `name` is "agent", or the name that the user chose for `%%agent` and `%agent`."""

    def __init__(self, shell: InteractiveShell, name: str, namespace: Namespace) -> None:
        self.cell_parser = ask_parser(name)
        self.agent = agent_magic(name)
        self.mcp = mcp_magic()
        self._mcp_commands = McpCommands(namespace, lambda: front_end(shell).attended, self._run_prompt)
        self._name = name
        self._namespace = namespace
        self._variables = namespace.variables
        self._runner = Runner(shell, namespace)
        self.live_runs = LiveRuns(shell)
        self.errors = CellErrors(shell, name)
        self.dock_panel: Callable[[str], bool] = lambda _name: False
        self.commands = AgentCommands(shell, namespace, name, self)

    def functions(self) -> list[tuple[str, str, Callable[..., Any]]]:
        """Return the magics to register: kind, name, and a function whose docstring is the help."""
        agent, mcp = partial(_carry_out, self.agent, self.commands), partial(_carry_out, self.mcp, self._mcp_commands)
        return [
            ("cell", self._name, self._magic(self._ask, self.cell_parser.format_help())),
            ("line", self._name, self._magic(agent, Help(self.agent.overview()).text)),
            ("line", "mcp", self._magic(mcp, Help(self.mcp.overview()).text)),
        ]

    def _magic(self, run: Callable[..., Any], about: str) -> Callable[..., Any]:
        """Return a magic that replaces `{x}` and `$x` in its line by values, and shows its errors in one line."""

        @no_var_expand  # IPython would fill values into quoted text too; `fill_line` does not
        @needs_local_scope
        @short_error
        def magic(line: str, *cell: str, local_ns: Mapping[str, Any] | None = None) -> Any:
            return run(fill_line(line, {**self._variables, **(local_ns or {})}), *cell)

        magic.__doc__ = about  # IPython shows this text for `%%agent?`
        return magic

    def _ask(self, line: str, cell: str) -> None:
        read = parse_ask(line, self._name)
        if isinstance(read, Help):
            say(read.printout)
        elif cell.strip() and read.rows is not None:
            run_map(self._runner, self._namespace, read, cell)
        elif cell.strip() or read.command:
            self._runner.ask(read, cell)
        else:
            raise UsageError(
                f"The prompt is empty: write it below the line %%{self._name}, whose options --help tells."
            )

    def _run_prompt(self, session: str, prompt: Message) -> None:
        self._runner.run_turn(Ask(session), prompt)

    def answer(self, command: Ask, prompt: str) -> object:
        """Run a turn with a prompt, and return the answer: its text, or its value if the command names a type."""
        result = self._runner.ask(command, prompt)
        if result is None or command.as_type is not None:
            return result and result.value
        answer = AnswerText(result.final_text)
        self.live_runs.mark_shown(answer)
        return answer

    def dock(self, session: str) -> bool:
        """Show a session's chat panel beside the notebook; return False if the browser page cannot show one."""
        return self.dock_panel(session)

    def fix(self, session: str) -> None:
        """Run a turn that asks about the last error of a cell."""
        self._runner.run_turn(Ask(session), user(self.errors.prompt()))

    def resume(self, session: str) -> None:
        """Run a turn that continues the unfinished plan of the last turn."""
        self._runner.run_turn(Ask(session), user(RESUME_PROMPT), resume=True)


def _complete_cell(name: str, lines: list[str]) -> list[str]:
    """Return the lines of a cell. Change them if IPython would not pass them to `%agent` or `%%agent`.

    IPython refuses `%%agent` without a prompt below it, and takes a `%agent` line that ends in "?" for a help request.
    """
    if not lines or (words := lines[0].split())[:1] not in ([f"%{name}"], [f"%%{name}"]):
        return lines
    if words[0].startswith("%%"):
        # Add a body, because IPython refuses a cell magic without one.
        return lines if any(lines[1:]) else [f"{lines[0].rstrip()}\n", "\n"]
    if words[-1].endswith("?") and len(words) > 1:  # else IPython would show help about the last word
        return [f"get_ipython().run_line_magic({name!r}, {' '.join(words[1:])!r})\n", *lines[1:]]
    return lines


def _carry_out(magic: LineMagic, commands: object, line: str) -> Any:
    """Carry out the subcommand of a line magic: show its result if it is to be printed, and return any other result."""
    output = magic.carry_out(commands, line)
    if not isinstance(output, Printout) and type(output) is not str:  # an answer has a class of its own
        return output
    say(output)
    return None


Shell = Any
"""An `InteractiveShell` of IPython. It is `Any` because IPython annotates few of the class's attributes."""


_unloaders: dict[int, ExitStack] = {}
"""The callbacks that unload the extension from each shell, by the shell's id."""

_namespaces: dict[int, Namespace] = {}
"""The namespace of each shell, by the shell's id. Kept at unload, so that a reload finds the servers and sessions."""

_answerers: dict[int, str] = {}
"""The last printed line about the model that would answer, by the shell's id."""

KEYRING_SECONDS = 0.5
"""The longest time that loading waits for the line about the model, in seconds."""

_looks: dict[int, list[Callable[..., None]]] = {}
"""The callbacks of panels after a cell, by the shell's id: stored at unload, and registered again at the next load."""


def load(shell: Shell, name: str = DEFAULT_SESSION) -> None:
    """Register `%%name`, `%name` and `%mcp`, and bind the default session to the variable `agent`.

    If a conversation of the notebook is saved, a printed line names the command that loads it. If another extension
    has a magic of the same name, that magic stays; a printed line names the command that loads `%%agent` under another
    name.
    """
    unload(shell)
    for look in _looks.pop(id(shell), ()):
        shell.events.register("post_run_cell", look)
    hidden_names = frozenset[str](shell.user_ns_hidden)
    namespace = _namespaces.setdefault(id(shell), Namespace(shell.user_ns, KnownNotebook(shell), hidden_names))
    magics = AgentMagics(shell, name, namespace)
    undo = _unloaders[id(shell)] = ExitStack()
    text_only[id(shell)] = lambda: namespace.uses_cassette
    _register(shell, name, magics, namespace, undo)
    panels.load(shell, namespace, magics.agent, magics.commands)
    notebook = KernelNotebook(shell, namespace.notebook)
    if in_kernel(shell):
        magics.dock_panel, notebook.can_stage = _find_pages(shell, namespace, undo.callback)
    magics.live_runs.load(undo.callback)
    install(KernelHost(shell, namespace, magics.live_runs, notebook))
    undo.callback(lambda: install(ScriptHost()))
    preload()
    log.keep()
    undo.callback(log.stop)
    notice, answers = namespace.bind_default(), _model_line(shell, namespace, name)
    say("\n".join(filter(None, (notice, answers, formatting.class_bounds(), magics.commands.hint()))))


def _model_line(shell: Shell, namespace: Namespace, name: str) -> str:
    """Return the line that names the model that would answer.

    Return "" in a batch run (a program runs the notebook), if no user can type, if another extension has the magic, or
    if the line was printed before.
    To find the model, API keys are looked up. This can be slow, because a keyring may ask the user for a password. The
    wait is limited (`KEYRING_SECONDS`). A line that is known later is printed into the cell if its front end allows it.
    """
    front = front_end(shell)
    # No line in a batch run, because the outputs of different machines would differ.
    if front.kind is Kind.BATCH or not front.attended or _is_taken(shell, "cell", name):
        return ""
    session = namespace.sessions().get(DEFAULT_SESSION)
    model = display_name(model_override() or "") or (chosen_model(session) if session is not None else "")
    sentence: Future[str] = Future()
    in_thread(lambda: sentence.set_result(model_sentence(model, f"%%{name} cell")), "agentmagic-answerer")
    try:
        return _if_new(shell, sentence.result(timeout=KEYRING_SECONDS))
    except TimeoutError:
        if front.kind is Kind.LIVE and front.reachable:  # elsewhere the text would stand in another cell, or the prompt
            sentence.add_done_callback(lambda done: _say_if_new(shell, done.result()))
        return ""


def _if_new(shell: Shell, line: str) -> str:
    """Return the line about the model, "" if it was printed before."""
    before, _answerers[id(shell)] = _answerers.get(id(shell)), line
    return "" if line == before else line


def _say_if_new(shell: Shell, line: str) -> None:
    if line := _if_new(shell, line):
        say(line)


def _register(shell: Shell, name: str, magics: AgentMagics, namespace: Namespace, undo: ExitStack) -> None:
    """Register the magics, their completion and their cell hooks in IPython; closing `undo` unregisters them."""
    for kind, magic, function in magics.functions():
        if _is_taken(shell, kind, magic):
            say(_how_to_load(kind, magic))
        else:
            shell.register_magic_function(function, kind, magic)
            undo.callback(_unregister, shell, kind, magic)
    hooks: list[tuple[list[Any], object]] = [
        (shell.Completer.custom_matchers, matcher(namespace, magics.cell_parser, (magics.agent, magics.mcp))),
        (shell.input_transformers_cleanup, partial(_complete_cell, name)),
    ]
    for registry, hook in hooks:
        registry.append(hook)
        undo.callback(registry.remove, hook)
    for look in (magics.errors.notice, _send_spans):
        shell.events.register("post_run_cell", look)
        undo.callback(shell.events.unregister, "post_run_cell", look)
    if not shell.custom_exceptions:  # IPython has only one handler of errors: do not replace another extension's
        shell.set_custom_exc((TurnInterrupted,), quiet_stop)
        undo.callback(_forget_handler, shell)


def _send_spans(_result: object) -> None:
    """Send the OpenTelemetry spans of a cell that has ended, before the next cell runs."""
    traces.flush()


def _find_pages(
    shell: Shell, namespace: Namespace, at_unload: Callable[..., object]
) -> tuple[Callable[[str], bool], Callable[[], bool]]:
    """Let browser pages that have agentmagic's JupyterLab extension find this kernel.

    Return two functions. The first makes the browser page of the running cell show a session's chat panel beside the
    notebook, and returns False if the page does not have the extension. The second returns whether a page can show
    cells that the model proposes.
    """
    from comm import create_comm, get_comm_manager

    # Browser pages find this comm (message channel) by its target name. It is not opened, because a page without the
    # extension would close it for all pages.
    comm: Any = create_comm(target_name=LAB, primary=False)
    get_comm_manager().register_comm(comm)
    take_messages_anywhere(comm)
    answer_pages_anytime(shell.kernel)
    first, links = threading.Lock(), list["LabLink"]()

    def receive(message: Mapping[str, Any]) -> None:
        with first:
            if not links:
                # Imported late: the module is needed only if a page has the JupyterLab extension.
                from agentmagic.jupyter.panel.lab import LabLink

                links.append(LabLink(comm, shell, namespace))
                at_unload(links[0].close)
        links[0].receive(message)

    comm.on_msg(receive)
    at_unload(comm.close)
    return lambda name: bool(links) and links[0].show(name), lambda: bool(links) and links[0].has_page


def unload(shell: Shell) -> None:
    """Remove the extension's magics and hooks from a shell. Sessions stay, because they are the user's variables."""
    if (undo := _unloaders.pop(id(shell), None)) is not None:
        undo.close()
        looks = [one for one in shell.events.callbacks["post_run_cell"] if one.__module__.startswith("agentmagic.")]
        for look in looks:
            shell.events.unregister("post_run_cell", look)
        _looks[id(shell)] = looks


def _is_taken(shell: Shell, kind: str, magic: str) -> bool:
    """Return whether another extension, or the user, has registered a magic of this kind and name."""
    function = shell.magics_manager.magics[kind].get(magic)
    # A placeholder, which IPython stores for a magic that is not imported yet, is not callable.
    return callable(function) and getattr(function, "__module__", None) != AgentMagics.__module__


def _forget_handler(shell: Shell) -> None:
    if shell.custom_exceptions == (TurnInterrupted,):
        shell.set_custom_exc((), None)


def _unregister(shell: Shell, kind: str, magic: str) -> None:
    """Unregister agentmagic's magic, unless another extension has since registered a magic of this name."""
    if not _is_taken(shell, kind, magic):
        shell.magics_manager.magics[kind].pop(magic, None)


def _how_to_load(kind: str, magic: str) -> str:
    label = f"{'%%' if kind == 'cell' else '%'}{magic}"
    if magic == "mcp":
        return f"{label} belongs to another extension and stays; connect servers in code: Agent(..., mcp=[...])."
    other = f"m{magic}"
    call = f'import agentmagic; agentmagic.load_ipython_extension(get_ipython(), "{other}")'
    return f"{label} belongs to another extension and stays. To have ours as %%{other} and %{other}: {call}"
