"""The outside agents that agentmagic knows, one row each, and what is missing when one cannot be used.

The rows for claude, codex, gemini and opencode were tried with the published packages in November 2026 (see
tests/acp/wire). The others are from their makers' pages, named beside them, and not yet seen.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from agentmagic.errors import MissingExtra, UnknownModel
from agentmagic.platforms import join_command, quote_word, split_command
from agentmagic.providers.outside import PREFIX, SHOWN, shown_name
from agentmagic.secrets import redact
from agentmagic.text import did_you_mean, one_line

if TYPE_CHECKING:
    from agentmagic.tools.mcp.stdio import Tail

NODE_SECONDS = 5.0
"""For `node --version`, which takes 0.05 s."""
FETCHERS = frozenset({"npx", "bunx", "pnpx"})
"""Programs that fetch the package that is named behind them, and run it."""
_RUNNERS = re.compile(r"python[0-9.]*|node|deno|bun")
"""Programs that run the file that is named behind them."""
LAST_WORDS = 300
"""Characters of what an agent wrote before it ended."""
_METHODS = 5
"""Ways to log in that a message names."""
_LABEL = 60
"""Characters of the name of one."""
_UNREACHABLE = re.compile(r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT|ENOTCACHED)\b")
"""How npm says that it did not reach its registry."""


@dataclass(frozen=True, slots=True)
class OutsideAgent:
    """An outside agent: a program that speaks the Agent Client Protocol on its standard input and output.

    `own` are the variables that are the agent's own: it sees them, although they are named like secrets. No key that
    agentmagic uses is among them. Otherwise a turn would be paid with that key, and not by the login that the user
    means. `login` is typed in a terminal, once. `node` is the oldest version of Node.js that its package asks for, 0
    if it needs none. `asks_in` is the session mode in which it asks before it acts, "" if it has no modes. `wraps` is
    the program for which it is only an adapter. `is_seen` says that the row was tried with the real program.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    package: str = ""
    install: str = ""
    login: str = ""
    own: frozenset[str] = frozenset()
    node: int = 0
    asks_in: str = ""
    wraps: str = ""
    is_seen: bool = False

    @property
    def label(self) -> str:
        """The short name under which its calls are shown: a command without its arguments."""
        name = self.name if self.name in KNOWN else PurePath(_program((self.command, *self.args))[-1]).name
        return f"{PREFIX}{redact(one_line(name, SHOWN))}"

    @property
    def model(self) -> str:
        """The name under which its turns are shown and recorded."""
        return shown_name(f"{PREFIX}{self.name}")


def _npm(package: str) -> str:
    return f"npm install -g {package}"


_ROWS = (
    OutsideAgent(
        "claude",
        "claude-agent-acp",
        package="@agentclientprotocol/claude-agent-acp",  # 0.101
        login="claude-agent-acp --cli auth login",  # the `args` of its auth methods; --console instead pays by use
        own=frozenset({"CLAUDE_CODE_OAUTH_TOKEN"}),  # of `claude setup-token`
        node=22,  # its package.json; 20.20 ran it all the same
        asks_in="default",  # it begins in "auto", in which it decides by itself
        wraps="claude",
        is_seen=True,
    ),
    OutsideAgent(
        "codex",
        "codex-acp",
        package="@agentclientprotocol/codex-acp",  # 2.6
        login="codex-acp login",
        own=frozenset({"CODEX_API_KEY"}),  # its README; used if DEFAULT_AUTH_REQUEST names the method api-key
        asks_in="read-only",  # it begins in "agent", in which a model of its own reviews what it does
        wraps="codex",
        is_seen=True,
    ),
    OutsideAgent(
        "gemini",
        "gemini",
        ("--acp",),  # docs/cli/acp-mode.md; --experimental-acp is the old name
        package="@google/gemini-cli",  # 0.61
        login="gemini",  # docs/get-started/authentication: it asks for the way to log in at its first start
        own=frozenset({"GOOGLE_APPLICATION_CREDENTIALS"}),  # a path; Vertex AI needs it
        node=20,
        is_seen=True,
    ),
    OutsideAgent(
        "opencode",
        "opencode",
        ("acp",),  # opencode.ai/docs/cli/acp
        package="opencode-ai",  # 1.18
        login="opencode auth login",
        own=frozenset({"OPENCODE_API_KEY"}),
        is_seen=True,
    ),
    OutsideAgent(
        "copilot",
        "copilot",
        ("--acp",),  # docs.github.com/en/copilot/reference/copilot-cli-reference/acp-server
        package="@github/copilot",
        login="copilot login",
        own=frozenset({"COPILOT_GITHUB_TOKEN"}),
    ),
    OutsideAgent(
        "goose",
        "goose",
        ("acp",),  # block.github.io/goose/docs/guides/acp-clients
        install="curl -fsSL https://github.com/aaif-goose/goose/releases/download/stable/download_cli.sh | bash",
        login="goose configure",
    ),
    OutsideAgent(
        "qwen",
        "qwen",
        ("--acp",),  # the agent.json of qwen-code in agentclientprotocol/registry
        package="@qwen-code/qwen-code",
        login="qwen",
        node=22,
    ),
    OutsideAgent(
        "kimi",
        "kimi",
        ("acp",),  # moonshotai.github.io/kimi-cli/en/reference/kimi-acp
        install="uv tool install kimi-cli",
        login="kimi login",
    ),
)
KNOWN: Mapping[str, OutsideAgent] = {row.name: replace(row, install=row.install or _npm(row.package)) for row in _ROWS}
"""The rows by their names."""


def outside_agent(model: str) -> OutsideAgent:
    """Return the agent of "acp:NAME" or "acp:COMMAND ARGUMENTS"; the command is split into words as a shell does it.

    A command that starts the program or the package of a row has the row's variables and login. Raises UnknownModel.
    """
    written = model.strip().removeprefix(PREFIX).strip()
    try:
        words = split_command(written)
    except ValueError as error:
        raise UnknownModel(
            f"The command of {PREFIX} cannot be read: {str(error).lower()}. Close its quotes, or write a name: "
            f"{PREFIX}{next(iter(KNOWN))}."
        ) from None
    if not words:
        raise UnknownModel(f"{PREFIX} names no agent. Write {PREFIX}NAME with one of {', '.join(KNOWN)}, or a command.")
    if (row := KNOWN.get(written)) is not None:
        return row
    if words[0].startswith("~"):
        words[0] = str(Path(words[0]).expanduser())
    command, args, program = words[0], tuple(words[1:]), _program(words)
    row = next((row for row in KNOWN.values() if _is_of(program, row)), None)
    if row is None:
        return OutsideAgent(written, command, args)
    login = join_command(program) + row.login.removeprefix(row.command)
    return replace(row, name=written, command=command, args=args, login=login)


def _program(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command that name its program: the first, and what npx is to fetch or Python to run."""
    first = PurePath(words[0]).stem
    if first not in FETCHERS and not _RUNNERS.fullmatch(first):
        return words[:1]
    return words[: next((number for number, word in enumerate(words) if number and not word.startswith("-")), 0) + 1]


def _is_of(program: Sequence[str], row: OutsideAgent) -> bool:
    """Return whether a program is that of a row; a package may have a version behind it."""
    name = program[-1]
    if len(program) == 1:
        return PurePath(name).stem == row.command
    return row.package != "" and re.sub(r"(?<=.)@[^/]*$", "", name) == row.package


def installed() -> list[OutsideAgent]:
    """Return the rows whose program is on this machine."""
    return [row for row in KNOWN.values() if _locate(row.command)]


# -- what is missing: each message ends with what to type --------------------------------------------------------


def library_problem() -> MissingExtra:
    """Return the error for a missing acp library."""
    return MissingExtra(f"Outside agents ({PREFIX}):", "acp")


def problem_of(agent: OutsideAgent) -> str:
    """Return why an agent cannot be started, "" if its program is there."""
    if _locate(agent.command):
        return ""
    if not agent.install:
        shown = redact(one_line(agent.command, SHOWN))
        hint = did_you_mean(agent.name, KNOWN, form=f"{PREFIX}{{}}")
        return (
            f"There is no program {shown!r} on the PATH of this kernel.{hint} Install it, or write the whole path: "
            f"{PREFIX}/path/to/{PurePath(shown).name}"
        )
    if agent.package and _locate("npm") is None:
        version = f" {agent.node} or newer" if agent.node else ""
        return (
            f"{agent.model} needs Node.js{version}, and there is none on the PATH of this kernel. Install it from "
            f"https://nodejs.org, and then the agent: {agent.install}"
        )
    return (
        f"{agent.model} needs the program {agent.command}, which is not on the PATH of this kernel. "
        f"To install it: {agent.install}"
    )


def node_problem(agent: OutsideAgent) -> str:
    """Return that Node.js is missing or older than an agent's package asks for, "" if it is neither.

    Old versions of Node.js run some packages that ask for a newer one, so this is no reason not to try. Blocks for up
    to `NODE_SECONDS`.
    """
    if not agent.node:
        return ""
    found = _node_version()
    if found is None or _major(found) >= agent.node:
        return ""
    return (
        f"{agent.model} needs Node.js {agent.node} or newer, and {found or 'none'} was found on the PATH of this "
        f"kernel. Install it from https://nodejs.org, and then the agent: {agent.install}"
    )


def _node_version() -> str | None:
    """Return the version of Node.js ("v20.1.0"), "" if there is none, None if it does not say."""
    if (node := shutil.which("node")) is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603  (the program of the PATH that the agent is run by)
            [node, "--version"], capture_output=True, text=True, timeout=NODE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = done.stdout.strip()
    return found if re.fullmatch(r"v\d+(\.\d+)*", found, re.ASCII) else None


def _major(version: str) -> int:
    return int(version.removeprefix("v").partition(".")[0] or 0)


def login_problem(agent: OutsideAgent, methods: Sequence[str] = ()) -> str:
    """Return that an agent wants its user to log in; `methods` are the names that it gives to its ways to do so."""
    if agent.login:
        return f"{agent.model} is not logged in. Log in once, in a terminal: {agent.login}"
    named = ", ".join(redact(one_line(one, _LABEL)) for one in methods[:_METHODS])
    ways = f" ({named})" if named else ""
    return (
        f"{agent.model} is not logged in{ways}. Log in once with its own command, in a terminal: "
        f"{redact(one_line(join_command(_program((agent.command, *agent.args))), SHOWN))}"
    )


def end_problem(agent: OutsideAgent, status: int | None, tail: "Tail") -> str:
    """Return that the process of an agent has ended; `tail` is the end of its stderr. Blocks as `node_problem` does."""
    if _is_fetched(agent) and _UNREACHABLE.search(tail.text()):
        return f"{agent.model} could not be fetched: {agent.command} did not reach its registry. {_install_once(agent)}"
    if old := node_problem(agent):
        return old
    code = "" if status is None else f" with exit status {status}"
    words = one_line(tail.gist(lines=2), LAST_WORDS).rstrip(".")  # the last line of Node.js is only its version
    return f"{agent.model} ended{code}{words and ': '}{words}. {trial(agent)}"


def silence_problem(agent: OutsideAgent, what: str, seconds: float) -> str:
    """Return that an agent did not do something in time; `what` completes "did not ..."."""
    words = f"{agent.model} did not {what} within {seconds:g} s."
    if _is_fetched(agent):
        return f"{words} {agent.command} may still be fetching it. {_install_once(agent)}"
    return f"{words} {trial(agent)}"


def _install_once(agent: OutsideAgent) -> str:
    package = _program((agent.command, *agent.args))[-1]
    return f"Install it once, where there is a network: {_npm(quote_word(redact(one_line(package, SHOWN))))}"


def _is_fetched(agent: OutsideAgent) -> bool:
    return PurePath(agent.command).stem in FETCHERS and len(_program((agent.command, *agent.args))) > 1


def trial(agent: OutsideAgent) -> str:
    """Return the sentence that says how to try an agent in a terminal."""
    return f"Try it in a terminal: {redact(one_line(join_command((agent.command, *agent.args)), SHOWN))}"


def _locate(command: str) -> str | None:
    from agentmagic.tools.mcp.stdio import locate  # loads pydantic, and the names of the agents are known without it

    return locate(command)
