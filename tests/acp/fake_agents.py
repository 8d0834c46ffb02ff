"""How the fakes of outside agents tell about a use of a tool: a table of agents, each in its published order.

The order and the fields are those of the packages published in November 2026, and tests/acp/wire has recordings:

claude    @agentclientprotocol/claude-agent-acp 0.101: dist/tool-calls/renderer.js 91-189 (announced with the input as
          it stands, then refined, then the whole call in the request), dist/acp-agent.js 8184-8221 (`mcpServer` in the
          call's `_meta`), 9102-9235 (`_meta.claudeCode.options`), dist/permissions/options (ids, the plan's question),
          dist/permissions/response.js 594-600 (an option that was not offered fails the tool)
codex     @agentclientprotocol/codex-acp 2.6: dist/index.js 34091-34200 (a command's kind is read from the command, the
          request is always `execute`), 34902-34940 (an edit's request has no diff), 35518-35560 and 40150-40175 (a tool
          of an MCP server is named in the announced call, the request has only `is_mcp_tool_approval`), 39517-39700
          (`cancel` ends the turn)
gemini    @google/gemini-cli 0.61: bundle/gemini-3HFX2LNT.js 14858-14950 (options, always first), 15598-15700 (the
          request is the first word about a call and has no input; after a no nothing more is told)
opencode  opencode-ai 1.18: packages/opencode/src/acp/permission.ts (the input is the permission's metadata, empty for
          tools of MCP servers; one call can ask twice), tool.ts (kinds by name), event.ts (the order)
protocol  the other agents of the table: what the protocol says, with option ids that are kinds, as
          crates/goose/src/acp/server.rs of goose has them, always first
"""

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

Json = dict[str, Any]


def option(option_id: str, kind: str, name: str) -> Json:
    return {"optionId": option_id, "name": name, "kind": kind}


def text(words: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": words}}


@dataclass
class Act:
    """One use of a tool by the model: its `kind` in the script, its input and its id."""

    what: str
    input: Json
    id: str
    step: Json = field(default_factory=dict[str, Any])

    @property
    def diff(self) -> Json:
        given = self.input
        return {
            "type": "diff",
            "path": given["path"],
            "oldText": given.get("old"),
            "newText": given.get("new", ""),
        }


@dataclass
class Question:
    """A permission request that went out: its options, what it is about, its turn, and the answer."""

    options: list[Json]
    input: Any
    turn: int
    chosen: str | None = None
    answered: threading.Event = field(default_factory=threading.Event)

    @property
    def kind(self) -> str:
        return next((one["kind"] for one in self.options if one["optionId"] == self.chosen), "")


class Stopped(Exception):
    """The agent ends its turn."""


class Agent:
    """An agent that follows the protocol, and what the others have in common."""

    modes: ClassVar[tuple[str, ...]] = ()
    """The session modes; a new session is in the last one."""
    unknown: ClassVar[Json] = {"code": -32002, "message": "Resource not found"}
    """The error for an unknown session."""
    kinds: ClassVar[dict[str, str]] = {
        "command": "execute",
        "edit": "edit",
        "read": "read",
        "mcp": "other",
        "plan": "switch_mode",
    }
    capabilities: ClassVar[Json] = {"loadSession": True, "mcpCapabilities": {"http": True}, "promptCapabilities": {}}

    def __init__(self) -> None:
        self.meta: Json = {}

    def title(self, act: Act) -> str:
        given = act.input
        match act.what:
            case "command":
                return given["command"]
            case "mcp":
                return f"{given['server']}__{given['tool']}"
            case "plan":
                return "Approve Plan"
            case _:
                return f"{act.what.title()} {given['path']}"

    def raw(self, act: Act) -> Any:
        return act.input["arguments"] if act.what == "mcp" else act.input

    def asks(self, act: Act) -> bool:
        return act.what != "read"

    def announced(self, act: Act) -> list[Json]:
        """Return the updates before the request."""
        call = self._call(act)
        return [{"sessionUpdate": "tool_call", **call}]

    def request(self, act: Act) -> Json:
        """Return the tool call of the request."""
        return self._call(act)

    def request_meta(self, act: Act) -> Json:
        """Return the `_meta` of the request itself."""
        del act
        return {}

    def late(self, act: Act) -> list[Json]:
        """Return the updates that are sent right after the request."""
        del act
        return []

    def options(self, act: Act) -> list[Json]:
        del act
        kinds = ("allow_always", "allow_once", "reject_once", "reject_always")
        return [option(kind, kind, kind) for kind in kinds]

    def finished(self, act: Act, output: str, *, good: bool) -> list[Json]:
        """Return the updates after the act was carried out, or after it failed."""
        status = "completed" if good else "failed"
        return [self._update(act, status=status, content=[text(output)])]

    def refused(self, act: Act, question: Question) -> list[Json]:
        """Return the updates after a no. Raises Stopped if the agent ends its turn."""
        del question
        return self.finished(act, "The user refused.", good=False)

    def at_the_end(self) -> list[Json]:
        """Return the updates after the response to a prompt."""
        return []

    def call_meta(self, act: Act) -> Json:
        """Return the `_meta` of a call of an MCP server's tool."""
        del act
        return {}

    def _call(self, act: Act) -> Json:
        head = {"toolCallId": act.id, "title": self.title(act), "kind": self.kinds[act.what], "status": "pending"}
        content = {"content": [act.diff]} if act.what == "edit" else {}
        return {**head, "rawInput": self.raw(act), **content}

    def _update(self, act: Act, **fields: Any) -> Json:
        return {"sessionUpdate": "tool_call_update", "toolCallId": act.id, **fields}


class Claude(Agent):
    """Claude Code's adapter: an empty announcement, the input in pieces, the whole call in the request."""

    modes = ("default", "acceptEdits", "plan", "auto")
    tools: ClassVar[dict[str, str]] = {"command": "Bash", "edit": "Write", "read": "Read", "plan": "ExitPlanMode"}
    empty: ClassVar[dict[str, str]] = {
        "command": "Terminal",
        "edit": "Write",
        "read": "Read File",
        "plan": "Approve Plan",
    }
    safe: ClassVar[frozenset[str]] = frozenset({"ls", "pwd", "cat"})

    def tool(self, act: Act) -> str:
        return self.tools.get(act.what) or f"mcp__{act.input['server']}__{act.input['tool']}"

    def title(self, act: Act) -> str:
        return self.tool(act) if act.what == "mcp" else super().title(act)

    def asks(self, act: Act) -> bool:
        if act.what == "command":  # its own rule for commands that only read
            return (
                act.input["command"].split(" ")[0] not in self.safe
                or not act.input["command"].replace(" ", "").isalnum()
            )
        allowed = self.meta.get("claudeCode", {}).get("options", {}).get("allowedTools", [])
        server = f"mcp__{act.input.get('server')}"
        return act.what != "read" and not {self.tool(act), server, f"{server}__*"} & set(allowed)

    def announced(self, act: Act) -> list[Json]:
        meta = {"_meta": {"claudeCode": {"toolName": self.tool(act)}}}
        head = {"sessionUpdate": "tool_call", "toolCallId": act.id, "name": self.tool(act), "rawInput": {}}
        title = self.empty.get(act.what, self.tool(act))
        first = {**meta, **head, "status": "pending", "title": title, "kind": self.kinds[act.what], "content": []}
        pieces = list(self.raw(act).items())
        partial = (
            [self._update(act, rawInput=dict(pieces[:1]), **meta)] if act.what != "edit" and len(pieces) > 1 else []
        )
        content = self._content(act)
        return [
            first,
            *partial,
            self._update(act, rawInput=self.raw(act), title=self.title(act), content=content, **meta),
        ]

    def _content(self, act: Act) -> list[Json]:
        words = act.input.get("description" if act.what == "command" else "plan", "")
        return [act.diff] if act.what == "edit" else [text(words)] * bool(words)

    def request(self, act: Act) -> Json:
        call = {**self._call(act), "name": self.tool(act), "content": self._content(act)}
        if act.what == "mcp":
            server = {"name": act.input["server"], "source": "dynamic"}
            call["_meta"] = {"claudeCode": {"toolName": self.tool(act), "mcpServer": server}}
        return call

    def options(self, act: Act) -> list[Json]:
        once, no = option("allow-once", "allow_once", "Yes"), option("reject", "reject_once", "No")
        always = option("allow-with-updates", "allow_always", "Yes, and don't ask again")
        if act.what == "plan":
            return [
                option("exit-plan-default", "allow_once", "Yes, manually approve edits"),
                option("exit-plan-clear-auto", "allow_always", "Yes, clear context (3% used) and use auto mode"),
                option("exit-plan-auto", "allow_always", "Yes, and use auto mode"),
                option("exit-plan-bypass", "allow_always", "Yes, and bypass permissions"),
                option("reject", "reject_once", "No, keep planning"),
            ]
        return [once, always, no]

    def finished(self, act: Act, output: str, *, good: bool) -> list[Json]:
        meta = {"claudeCode": {"toolName": self.tool(act)}}
        told = {"claudeCode": {**meta["claudeCode"], "toolResponse": {"stdout": output}}}
        status = "completed" if good else "failed"
        end = self._update(act, status=status, rawOutput=output, content=[text(output)], _meta=meta)
        return [self._update(act, _meta=told), end] if good else [end]

    def at_the_end(self) -> list[Json]:
        return [{"sessionUpdate": "session_info_update", "title": "A title"}]

    def call_meta(self, act: Act) -> Json:
        return {"claudecode/toolUseId": act.id}


class Codex(Agent):
    """Codex's adapter: the kind of a command is read from it, and the request for a tool does not name it."""

    modes = ("read-only", "workspace-write", "agent-full-access", "agent")
    unknown: ClassVar[Json] = {"code": -32002, "message": "Session not found"}
    parsed: ClassVar[dict[str, tuple[str, str]]] = {
        "cat": ("read", "Read file '{}'"),
        "ls": ("read", "List files in '{}'"),
        "grep": ("search", "Search for '{}'"),
    }

    def raw(self, act: Act) -> Any:
        if act.what == "command":
            return {"command": act.input["command"], "cwd": str(Path.cwd())}
        return act.input

    def announced(self, act: Act) -> list[Json]:
        head: Json = {"sessionUpdate": "tool_call", "toolCallId": act.id, "status": "in_progress"}
        match act.what:
            case "mcp":
                title = f"mcp.{act.input['server']}.{act.input['tool']}"
                call = {"kind": "execute", "title": title, "rawInput": act.input, "_meta": {"is_mcp_tool_call": True}}
            case "edit":
                call = {"kind": "edit", "title": "Editing files", "content": [act.diff]}
            case "read":
                call = {"kind": "read", "title": f"Read file '{act.input['path']}'"}
            case "plan":
                return []
            case _:
                call = self._command(act)
        return [{**head, **call}]

    def _command(self, act: Act) -> Json:
        word, _, rest = act.input["command"].partition(" ")
        if word in self.parsed:
            kind, title = self.parsed[word]
            return {"name": "exec_command", "kind": kind, "title": title.format(rest)}
        terminal = {"type": "terminal", "terminalId": act.id}
        told = {"kind": "execute", "title": act.input["command"], "content": [terminal], "rawInput": self.raw(act)}
        return {"name": "exec_command", **told, "_meta": {"terminal_info": {"terminal_id": act.id}}}

    def request(self, act: Act) -> Json:
        head: Json = {"toolCallId": act.id, "status": "pending"}
        match act.what:
            case "mcp":
                return {**head, "kind": "execute"}
            case "edit":
                return {**head, "kind": "edit", "title": "Edit files", "locations": [{"path": act.input["path"]}]}
            case "plan":
                return {**head, "kind": "switch_mode", "title": "Implement this plan?", "rawInput": act.input}
            case _:
                told = self._command(act)
                return {**head, "kind": "execute", "title": told["title"], "rawInput": self.raw(act)}

    def request_meta(self, act: Act) -> Json:
        return {"is_mcp_tool_approval": True} if act.what == "mcp" else {}

    def options(self, act: Act) -> list[Json]:
        once, no = option("allow_once", "allow_once", "Yes, proceed"), option("cancel", "reject_once", "Cancel")
        match act.what:
            case "mcp":
                session = option("allow_session", "allow_always", "Allow for this session")
                return [once, session, option("allow_always", "allow_always", "Always allow"), no]
            case "edit":
                return [
                    once,
                    option("allow_for_session", "allow_always", "Yes, and don't ask again for these files"),
                    no,
                ]
            case "plan":
                yes = option("implement_plan", "allow_once", "Yes, implement this plan")
                return [yes, option("revise_plan", "reject_once", "No, and tell Codex what to do differently")]
            case _:
                name = f"Yes, and don't ask again for commands that start with `{act.input['command']}`"
                return [once, option("accept_execpolicy_amendment", "allow_always", name), no]

    def finished(self, act: Act, output: str, *, good: bool) -> list[Json]:
        status = "completed" if good else "failed"
        if act.what == "mcp":
            content = {"content": [{"type": "text", "text": output}]}
            result = {"result": content, "error": None} if good else {"result": None, "error": {"message": output}}
            begun = [self._update(act, status="in_progress")] if good else []
            return [*begun, self._update(act, status=status, rawOutput=result)]
        if act.what == "edit":
            return [self._update(act, status=status)]
        return [self._update(act, status=status, _meta={"terminal_exit": {"exit_code": 0 if good else None}})]

    def refused(self, act: Act, question: Question) -> list[Json]:
        updates = self.finished(act, "user cancelled MCP tool call", good=False)
        if act.what in ("command", "edit"):  # `cancel` interrupts the turn
            raise Stopped(updates)
        del question
        return updates

    def call_meta(self, act: Act) -> Json:
        return {"callId": act.id}


class Gemini(Agent):
    """Gemini CLI: nothing is told before the request, and the request has no input."""

    modes = ("autoEdit", "yolo", "plan", "default")
    unknown: ClassVar[Json] = {"code": -32602, "message": "Session not found"}

    def title(self, act: Act) -> str:
        if act.what == "mcp":
            command = act.input["arguments"].get("command")
            return command if isinstance(command, str) else f"{act.input['tool']} ({act.input['server']} MCP Server)"
        return super().title(act)

    def _told(self, act: Act) -> Json:
        words = {"command": act.input.get("description", ""), "mcp": json.dumps(act.input.get("arguments"))}
        said = [text(words[act.what])] if words.get(act.what) else []
        content = [act.diff] if act.what == "edit" else said
        return {"title": self.title(act), "content": content, "locations": [], "kind": self.kinds[act.what]}

    def announced(self, act: Act) -> list[Json]:
        if self.asks(act) and not act.step.get("unasked"):
            return []
        return [{"sessionUpdate": "tool_call", "toolCallId": act.id, "status": "in_progress", **self._told(act)}]

    def request(self, act: Act) -> Json:
        return {"toolCallId": act.id, "status": "pending", **self._told(act)}

    def options(self, act: Act) -> list[Json]:
        session = [option("proceed_always", "allow_always", "Allow for this session")]
        if act.what == "mcp":
            session = [option("proceed_always_server", "allow_always", "Allow all server tools for this session")]
        basic = [option("proceed_once", "allow_once", "Allow"), option("cancel", "reject_once", "Reject")]
        return [*(session if act.what != "plan" else []), *basic]

    def finished(self, act: Act, output: str, *, good: bool) -> list[Json]:
        if not good:
            return [self._update(act, status="failed", content=[text(output)], kind=self.kinds[act.what])]
        return [self._update(act, status="completed", **(self._told(act) | {"content": [text(output)]}))]

    def refused(self, act: Act, question: Question) -> list[Json]:
        wrong = question.chosen is not None and not question.kind
        return self.finished(act, "Invalid enum value.", good=False) if wrong else []


class Opencode(Agent):
    """opencode: a request shows what its permission holds, which is nothing for a tool of an MCP server."""

    unknown: ClassVar[Json] = {"code": -32602, "message": "Invalid params: session not found"}
    tools: ClassVar[dict[str, str]] = {"command": "bash", "edit": "write", "read": "read", "plan": "plan_exit"}
    kinds: ClassVar[dict[str, str]] = Agent.kinds | {"plan": "other"}

    def tool(self, act: Act) -> str:
        return self.tools.get(act.what) or f"{act.input['server']}_{act.input['tool']}"

    def title(self, act: Act) -> str:
        return act.input["path"] if act.what in ("edit", "read") else act.input.get("command") or self.tool(act)

    def asks(self, act: Act) -> bool:
        allowed = json.loads(os.environ.get("OPENCODE_PERMISSION") or "{}")
        is_ours = act.what == "mcp" and allowed.get(f"{act.input['server']}_*") == "allow"
        return super().asks(act) and not is_ours

    def announced(self, act: Act) -> list[Json]:
        place = {"cwd": str(Path.cwd())} if act.what == "command" else {}
        head = {"toolCallId": act.id, "title": self.tool(act), "kind": self.kinds[act.what], "status": "pending"}
        first = {"sessionUpdate": "tool_call", **head, "locations": [], "rawInput": place}
        asks_first = act.what == "mcp" and self.asks(act) and not act.step.get("unasked")
        return [first] if asks_first else [first, self._running(act)]

    def _running(self, act: Act) -> Json:
        given = self.raw(act) | ({"cwd": str(Path.cwd())} if act.what == "command" else {})
        fields = {"kind": self.kinds[act.what], "title": self.title(act), "locations": [], "rawInput": given}
        return self._update(act, status="in_progress", **fields)

    def request(self, act: Act) -> Json:
        held: Json = {}
        if act.what == "command":
            held = {"command": act.input["command"]}
        elif act.what == "edit":
            held = {"filepath": act.input["path"], "diff": act.input.get("new", "")}
        head = {"toolCallId": act.id, "title": self.title(act), "kind": self.kinds[act.what], "status": "pending"}
        content = {"content": [act.diff]} if act.what == "edit" else {}
        return {**head, "locations": [], "rawInput": held, **content}

    def late(self, act: Act) -> list[Json]:
        return [self._running(act)] if act.what == "mcp" else []

    def options(self, act: Act) -> list[Json]:
        del act
        once, always = option("once", "allow_once", "Allow once"), option("always", "allow_always", "Always allow")
        return [once, always, option("reject", "reject_once", "Reject")]

    def finished(self, act: Act, output: str, *, good: bool) -> list[Json]:
        if good:
            end = self._update(act, status="completed", content=[text(output)], rawOutput={"output": output})
            return [self._running(act), end] if act.what == "command" else [end]
        head = {"kind": self.kinds[act.what], "title": self.title(act), "rawInput": self.raw(act)}
        return [self._update(act, status="failed", **head, content=[text(output)], rawOutput={"error": output})]


AGENTS: dict[str, type[Agent]] = {
    "claude": Claude,
    "codex": Codex,
    "gemini": Gemini,
    "opencode": Opencode,
    "protocol": Agent,
}
