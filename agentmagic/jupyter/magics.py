"""`%%agent`, `%agent` and `%mcp`: each parses, calls and prints."""

from collections.abc import Callable

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.jupyter.agent_commands import AgentCommands, agent_magic
from agentmagic.jupyter.frontend import front_end, say
from agentmagic.jupyter.mcp_commands import McpCommands, mcp_magic
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.options import Ask, Help, LineMagic, ask_parser, parse_ask
from agentmagic.jupyter.runner import Runner, one_line
from agentmagic.messages import Message


class AgentMagics:
    """The magics of one shell; `%%agent` and `%agent` are loaded under the name `name`."""

    def __init__(self, shell: InteractiveShell, name: str, namespace: Namespace) -> None:
        self.cell_parser = ask_parser(name)
        self.agent = agent_magic(name)
        self.mcp = mcp_magic()
        self.commands = AgentCommands(shell, namespace, name)
        self._mcp_commands = McpCommands(namespace, lambda: front_end(shell).attended, self._put)
        self._name = name
        self._runner = Runner(shell, namespace)

    def functions(self) -> list[tuple[str, str, Callable[..., None]]]:
        """Return the magics to register: kind, name, and a function whose docstring is the help."""

        @one_line
        def ask(line: str, cell: str) -> None:
            read = parse_ask(line, self._name)
            say(read.text) if isinstance(read, Help) else self._runner.ask(read, cell)

        @one_line
        def agent(line: str) -> None:
            _carry_out(self.agent, self.commands, line)

        @one_line
        def mcp(line: str) -> None:
            _carry_out(self.mcp, self._mcp_commands, line)

        # IPython shows the docstring for `%%agent?`.
        ask.__doc__ = self.cell_parser.format_help()
        agent.__doc__ = self.agent.overview()
        mcp.__doc__ = self.mcp.overview()
        return [("cell", self._name, ask), ("line", self._name, agent), ("line", "mcp", mcp)]

    def _put(self, session: str, prompt: Message) -> None:
        self._runner.put(Ask(session), prompt)


def _carry_out(magic: LineMagic, commands: object, line: str) -> None:
    read = magic.read(line)
    words = read.text if isinstance(read, Help) else magic.commands[read.word](commands, **read.arguments)
    if words:
        say(words)
