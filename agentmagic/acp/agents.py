"""A table of known outside agents, and the messages that tell a user why an agent cannot be used.

The rows for claude, codex, gemini and opencode were tested with the packages published in November 2026 (see
tests/acp/wire). The other rows follow the documentation of their makers, cited beside each, and are not tested.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, cast

from agentmagic.errors import MissingExtra, UnknownModel
from agentmagic.platforms import join_command, quote_word, split_command
from agentmagic.providers.outside import LONGEST_SHOWN, PREFIX, display_name
from agentmagic.secrets import redact
from agentmagic.text import did_you_mean, single_line

if TYPE_CHECKING:
    from agentmagic.tools.mcp.stdio import Tail

SERVER = f"agentmagic-{''.join(secrets.choice(ascii_lowercase) for _ in range(8))}"
"""The name under which an agent sees the MCP server with agentmagic's tools. Only this process knows it.

A project's configuration could declare a server of any other name, whose calls would then pass for those of ours.
"""
NODE_SECONDS = 5.0
"""Timeout of `node --version`, which normally takes 0.05 s."""
FETCHERS = frozenset({"npx", "bunx", "pnpx"})
"""Programs that download and run the package named in their arguments."""
_RUNNERS = re.compile(r"python[0-9.]*|node|deno|bun")
"""Programs that run the file named in their arguments."""
LAST_WORDS = 300
"""Longest quotation of an agent's last output in an error message, in characters."""
_METHODS = 5
"""How many login methods an error message names."""
_LABEL = 60
"""Longest name of a login method in an error message, in characters."""
_UNREACHABLE = re.compile(r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT|ENOTCACHED)\b")
"""Error codes that npm prints if it cannot reach its registry."""


@dataclass(frozen=True, slots=True)
class OutsideAgent:
    """An outside agent: a program that speaks the Agent Client Protocol on its standard input and output.

    `own`: the agent's own environment variables, passed to it although their names look like secrets. A key that
    agentmagic uses is never among them, because the agent would bill that key instead of using the user's login.
    `login`: the command that the user types once, in a terminal, to log in.
    `node`: the oldest Node.js version that the package requires. It is 0 if the package does not use Node.js.
    `asks_in`: the session mode in which the agent asks before it acts, "" if it has no modes.
    `asks_for_commands`: whether the agent, in that mode, asks before every command that it runs.
    `kinds`: the kinds of calls that the program sets by the name of its own tool, none of which runs a command. A call
    of any other kind counts as code, because a model may have chosen the kind.
    `server_field`: the path in `_meta` of the call in a permission request at which the program writes the name of the
    MCP server that is called, () if it does not write it. `tool_field`: the path in `_meta` of a reported call at which
    it writes the name by which it knows the tool. `tool_name` returns that name for a server and its tool.
    `session_meta` returns the `_meta` with which a session is opened, and `variables` environment variables: with them,
    the agent does not ask about the tools of agentmagic's MCP server, whose name is the argument. agentmagic asks.
    `wraps`: if this agent is only an adapter, the program that it connects to the protocol; otherwise "".
    `is_seen`: whether these values were tested with the real program.
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
    asks_for_commands: bool = False
    kinds: frozenset[str] = frozenset()
    server_field: tuple[str, ...] = ()
    tool_field: tuple[str, ...] = ()
    tool_name: Callable[[str, str], str] = "mcp__{}__{}".format
    session_meta: Callable[[str], Mapping[str, Any]] | None = None
    variables: Callable[[str], Mapping[str, str]] | None = None
    wraps: str = ""
    is_seen: bool = False

    @property
    def label(self) -> str:
        """The short name under which the agent's calls are shown; for "acp:COMMAND", the name of the program."""
        name = self.name if self.name in KNOWN else PurePath(_program((self.command, *self.args))[-1]).name
        return f"{PREFIX}{redact(single_line(name, LONGEST_SHOWN))}"

    @property
    def model(self) -> str:
        """The model name under which the agent's turns are shown and recorded."""
        return display_name(f"{PREFIX}{self.name}")


def _npm(package: str) -> str:
    return f"npm install -g {package}"


def _claude_options(server: str) -> Mapping[str, Any]:
    """Return the options of a session of claude-agent-acp, which merges them into its own (dist/acp-agent.js).

    The settings of the folder (.claude/settings.json) are left out: a project could allow commands there. Without
    `allowDangerouslySkipPermissions` no answer can switch off all questions.
    """
    options = {
        "allowedTools": [f"mcp__{server}"],
        "settingSources": ["user"],
        "allowDangerouslySkipPermissions": False,
    }
    return {"claudeCode": {"options": options}}


def _opencode_permission(server: str) -> Mapping[str, str]:
    """Return the variable whose permissions opencode merges over those of its configuration (opencode.ai/docs/cli)."""
    try:
        before: object = json.loads(os.environ.get("OPENCODE_PERMISSION", "{}"))
    except ValueError:
        before = {}
    known = cast("dict[str, object]", before) if isinstance(before, dict) else {}
    return {"OPENCODE_PERMISSION": json.dumps({**known, f"{server}_*": "allow"})}


_ROWS = (
    OutsideAgent(
        "claude",
        "claude-agent-acp",
        package="@agentclientprotocol/claude-agent-acp",  # tested with version 0.101
        login="claude-agent-acp --cli auth login",  # from the agent's auth methods; with --console, users pay by use
        own=frozenset({"CLAUDE_CODE_OAUTH_TOKEN"}),  # a token that `claude setup-token` prints
        node=22,  # required by the agent's package.json, but the agent ran on Node.js 20.20 too
        asks_in="default",  # a new session is in the mode "auto", where the agent does not ask
        kinds=frozenset({"read", "search", "edit", "fetch"}),  # from dist/tool-calls/reporters: by the tool's name
        server_field=("claudeCode", "mcpServer", "name"),  # from the CLI, by canUseTool (dist/acp-agent.js)
        tool_field=("claudeCode", "toolName"),
        session_meta=_claude_options,
        wraps="claude",
        is_seen=True,
    ),
    OutsideAgent(
        "codex",
        "codex-acp",
        package="@agentclientprotocol/codex-acp",  # tested with version 2.6
        login="codex-acp login",
        own=frozenset({"CODEX_API_KEY"}),  # from the agent's README; used if DEFAULT_AUTH_REQUEST is api-key
        asks_in="read-only",  # a new session is in the mode "agent", where a model, not the user, reviews actions
        kinds=frozenset({"edit"}),  # "read" and "search" are what the program makes of a command (commandActionFacts)
        wraps="codex",
        is_seen=True,
    ),
    OutsideAgent(
        "gemini",
        "gemini",
        ("--acp",),  # from docs/cli/acp-mode.md; older versions call it --experimental-acp
        package="@google/gemini-cli",  # tested with version 0.61
        login="gemini",  # offers the login methods at its first start (docs/get-started/authentication)
        own=frozenset({"GOOGLE_APPLICATION_CREDENTIALS"}),  # the path of a credentials file, for Vertex AI
        node=20,
        kinds=frozenset({"read", "search", "edit", "fetch"}),  # from the tool in its registry (toAcpToolKind)
        is_seen=True,
    ),
    OutsideAgent(
        "opencode",
        "opencode",
        ("acp",),  # from opencode.ai/docs/cli/acp
        package="opencode-ai",  # tested with version 1.18
        login="opencode auth login",
        own=frozenset({"OPENCODE_API_KEY"}),
        kinds=frozenset({"read", "edit", "fetch"}),  # from packages/opencode/src/acp/tool.ts: by the tool's name
        variables=_opencode_permission,
        is_seen=True,
    ),
    OutsideAgent(
        "copilot",
        "copilot",
        ("--acp",),  # from docs.github.com/en/copilot/reference/copilot-cli-reference/acp-server
        package="@github/copilot",
        login="copilot login",
        own=frozenset({"COPILOT_GITHUB_TOKEN"}),
    ),
    OutsideAgent(
        "goose",
        "goose",
        ("acp",),  # from block.github.io/goose/docs/guides/acp-clients
        install="curl -fsSL https://github.com/aaif-goose/goose/releases/download/stable/download_cli.sh | bash",
        login="goose configure",
        asks_in="approve",  # from crates/goose/src/acp/server.rs; a new session may be in the mode "auto"
    ),
    OutsideAgent(
        "qwen",
        "qwen",
        ("--acp",),  # from the agent.json of qwen-code in agentclientprotocol/registry
        package="@qwen-code/qwen-code",
        login="qwen",
        node=22,
    ),
    OutsideAgent(
        "kimi",
        "kimi",
        ("acp",),  # from moonshotai.github.io/kimi-cli/en/reference/kimi-acp
        install="uv tool install kimi-cli",
        login="kimi login",
    ),
)
KNOWN: Mapping[str, OutsideAgent] = {row.name: replace(row, install=row.install or _npm(row.package)) for row in _ROWS}
"""The known agents by name. A row without an `install` command gets the npm command for its package."""


def outside_agent(model: str) -> OutsideAgent:
    """Return the agent that the model name "acp:NAME" or "acp:COMMAND ARGUMENTS" stands for.

    A command is split as a shell splits it. If it starts the program or the package of a known agent, other
    fields, such as `own` and `asks_in`, are those of the known agent. Raises UnknownModel.
    """
    name = model.strip().removeprefix(PREFIX).strip()
    try:
        words = split_command(name)
    except ValueError as error:
        raise UnknownModel(
            f"The command of {PREFIX} cannot be read: {str(error).lower()}. Close its quotes, or write a name: "
            f"{PREFIX}{next(iter(KNOWN))}."
        ) from None
    if not words:
        raise UnknownModel(f"{PREFIX} names no agent. Write {PREFIX}NAME with one of {', '.join(KNOWN)}, or a command.")
    if (row := KNOWN.get(name)) is not None:
        return row
    if words[0].startswith("~"):
        words[0] = str(Path(words[0]).expanduser())
    command, args, program = words[0], tuple(words[1:]), _program(words)
    row = next((row for row in KNOWN.values() if _is_of(program, row)), None)
    if row is None:
        return OutsideAgent(name, command, args)
    login = join_command(program) + row.login.removeprefix(row.command)
    return replace(row, name=name, command=command, args=args, login=login)


def _program(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command up to the one that names its program.

    Usually that is the first word. After npx it is the package, and after an interpreter such as Python the file.
    """
    first = PurePath(words[0]).stem
    if first not in FETCHERS and not _RUNNERS.fullmatch(first):
        return words[:1]
    return words[: next((number for number, word in enumerate(words) if number and not word.startswith("-")), 0) + 1]


def _is_of(program: Sequence[str], row: OutsideAgent) -> bool:
    """Return whether a command's program is that of a known agent; a version ("@1.0" after the package) is ignored."""
    name = program[-1]
    if len(program) == 1:
        return PurePath(name).stem == row.command
    return row.package != "" and re.sub(r"(?<=.)@[^/]*$", "", name) == row.package


def list_installed() -> list[OutsideAgent]:
    """Return the known agents whose program is installed on this machine."""
    return [row for row in KNOWN.values() if _locate(row.command)]


# -- messages about a missing program; each ends with the command to type ----------------------------------------


def library_problem() -> MissingExtra:
    """Return the error for a missing acp library."""
    return MissingExtra(f"Outside agents ({PREFIX}):", "acp")


def problem_of(agent: OutsideAgent) -> str:
    """Return a message that says what the user must install: the program, or Node.js; "" if the program is found."""
    if _locate(agent.command):
        return ""
    if not agent.install:
        program = redact(single_line(agent.command, LONGEST_SHOWN))
        hint = did_you_mean(agent.name, KNOWN, form=f"{PREFIX}{{}}")
        return (
            f"There is no program {program!r} on the PATH of this kernel.{hint} Install it, or write the whole path: "
            f"{PREFIX}/path/to/{PurePath(program).name}"
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
    """Return a message that Node.js is missing or too old; "" if its version is new enough or unknown.

    Call this only after the agent failed: some packages run on an older Node.js than they require. Blocks for up to
    5 seconds (`NODE_SECONDS`).
    """
    if not agent.node:
        return ""
    version = _node_version()
    if version is None or _major(version) >= agent.node:
        return ""
    return (
        f"{agent.model} needs Node.js {agent.node} or newer, and {version or 'none'} was found on the PATH of this "
        f"kernel. Install it from https://nodejs.org, and then the agent: {agent.install}"
    )


def _node_version() -> str | None:
    """Return the version of Node.js ("v20.1.0"), "" if it is not installed, None if the version is unknown."""
    if (node := shutil.which("node")) is None:
        return ""
    try:
        process = subprocess.run(  # noqa: S603  (the program of the PATH that the agent is run by)
            [node, "--version"], capture_output=True, text=True, timeout=NODE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = process.stdout.strip()
    return version if re.fullmatch(r"v\d+(\.\d+)*", version, re.ASCII) else None


def _major(version: str) -> int:
    return int(version.removeprefix("v").partition(".")[0] or 0)


def login_problem(agent: OutsideAgent, methods: Sequence[str] = (), words: str = "") -> str:
    """Return a message that the user must log in.

    `methods` are the agent's names for its ways to log in. `words` is what else the agent said, without secrets.
    """
    said = f": {words}" if words else ""
    if agent.login:
        return f"{agent.model} is not logged in{said}. Log in once, in a terminal: {agent.login}"
    names = ", ".join(redact(single_line(one, _LABEL)) for one in methods[:_METHODS])
    ways = f" ({names})" if names else ""
    return (
        f"{agent.model} is not logged in{ways}{said}. Log in once with its own command, in a terminal: "
        f"{_login_command(agent)}"
    )


def login_advice(agent: OutsideAgent) -> str:
    """Return a sentence that tells the user how to log in, in case that the agent needs a login."""
    return f"If it needs a login, log in once, in a terminal: {_login_command(agent)}"


def _login_command(agent: OutsideAgent) -> str:
    """Return the command that logs in or, if that is unknown, the command that starts the agent's program."""
    program = join_command(_program((agent.command, *agent.args)))
    return agent.login or redact(single_line(program, LONGEST_SHOWN))


def end_problem(agent: OutsideAgent, status: int | None, tail: "Tail") -> str:
    """Return a message that the agent's process has ended.

    `tail` is the last output of the process. Can block for 5 seconds (`NODE_SECONDS`).
    """
    if _is_fetched(agent) and _UNREACHABLE.search(tail.text()):
        return f"{agent.model} could not be fetched: {agent.command} did not reach its registry. {_install_once(agent)}"
    if old := node_problem(agent):
        return old
    code = "" if status is None else f" with exit status {status}"
    # Two lines, because the last line that Node.js prints is only its version.
    last_output = single_line(tail.gist(lines=2), LAST_WORDS).rstrip(".")
    return f"{agent.model} ended{code}{last_output and ': '}{last_output}. {trial(agent)}"


def silence_problem(agent: OutsideAgent, action: str, seconds: float, limit: str = "") -> str:
    """Return a message that an agent did not do something in time; `action` completes "did not ...".

    `limit` is a remark on the limit of `seconds`: it follows the number, and begins with a comma.
    """
    message = f"{agent.model} did not {action} within {seconds:g} s{limit}."
    if _is_fetched(agent):
        return f"{message} {agent.command} may still be fetching it. {_install_once(agent)}"
    return f"{message} {trial(agent)}"


def _install_once(agent: OutsideAgent) -> str:
    package = _program((agent.command, *agent.args))[-1]
    return f"Install it once, where there is a network: {_npm(quote_word(redact(single_line(package, LONGEST_SHOWN))))}"


def _is_fetched(agent: OutsideAgent) -> bool:
    return PurePath(agent.command).stem in FETCHERS and len(_program((agent.command, *agent.args))) > 1


def trial(agent: OutsideAgent) -> str:
    """Return a sentence that tells the user how to try the agent in a terminal."""
    return f"Try it in a terminal: {redact(single_line(join_command((agent.command, *agent.args)), LONGEST_SHOWN))}"


def _locate(command: str) -> str | None:
    from agentmagic.tools.mcp.stdio import locate  # imported only when needed, because it loads pydantic

    return locate(command)
