"""An outside agent for the tests, made with the acp package: a real process, steered by the words of its prompt.

Each line of the prompt that begins with "!" is a command, carried out in order; what it does is told over the protocol
as a real agent does. Options of the command line: `--no-load`, `--no-images`, `--login`, `--sessions FOLDER`.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
from acp import (
    schema,
    start_tool_call,
    text_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)
from acp.helpers import plan_entry, tool_content, tool_diff_content, update_plan

OPTIONS = [
    schema.PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id="always", name="Always allow", kind="allow_always"),
    schema.PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]


class ScriptedAgent:
    """Does what the prompt says, and remembers what it was sent, in a file per session."""

    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.folder = Path(options[options.index("--sessions") + 1]) if "--sessions" in options else None
        self.client: Any = None
        self.servers: dict[str, list[Any]] = {}
        self.heard: dict[str, list[str]] = {}
        self.stopped = asyncio.Event()
        self.calls = 0

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        del protocol_version
        images = "--no-images" not in self.options
        return schema.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(
                load_session="--no-load" not in self.options,
                prompt_capabilities=schema.PromptCapabilities(image=images, embedded_context=images),
                mcp_capabilities=schema.McpCapabilities(http=True),
            ),
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> schema.NewSessionResponse:
        del cwd
        if "--login" in self.options:
            raise acp.RequestError.auth_required()
        modes = None
        if "--modes" in self.options:
            names = [schema.SessionMode(id=name, name=name) for name in ("auto", "default")]
            modes = schema.SessionModeState(available_modes=names, current_mode_id="auto")
        session = f"s{len(self.heard) + len(list(self.folder.glob('*'))) + 1 if self.folder else len(self.heard) + 1}"
        self.servers[session], self.heard[session] = list(mcp_servers or ()), []
        return schema.NewSessionResponse(session_id=session, modes=modes)

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> Any:
        del cwd
        kept = self.folder / session_id if self.folder else None
        if kept is None or not kept.exists():
            raise acp.RequestError.resource_not_found(session_id)
        self.heard[session_id] = json.loads(kept.read_text())
        self.servers[session_id] = list(mcp_servers or ())
        await self.client.session_update(session_id, update_agent_message_text("(told again)"))
        return schema.LoadSessionResponse()

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> None:
        self.heard[session_id].append(f"mode {mode_id}")

    async def cancel(self, session_id: str, **_: Any) -> None:
        del session_id
        self.stopped.set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> schema.PromptResponse:
        self.stopped.clear()
        text = "\n".join(block.text if block.type == "text" else f"[{block.type}]" for block in prompt)
        self.heard[session_id].append(text)
        if self.folder:
            (self.folder / session_id).write_text(json.dumps(self.heard[session_id]))
        turn = Turn(self, session_id)
        reason: Any = "end_turn"
        texts = [block.text for block in prompt if block.type == "text"][-1:]
        commands = [line[1:] for line in "".join(texts).splitlines() if line.startswith("!")]
        for line in commands or ["say what?"]:
            name, _gap, rest = line.partition(" ")
            reason = await getattr(turn, name)(rest) or reason
        usage = schema.Usage(total_tokens=30, input_tokens=10, output_tokens=20)
        return schema.PromptResponse(stop_reason=reason, usage=usage)


class Turn:
    """The commands of a prompt."""

    def __init__(self, agent: ScriptedAgent, session: str) -> None:
        self.agent = agent
        self.session = session

    async def tell(self, update: Any) -> None:
        await self.agent.client.session_update(self.session, update)

    def _next(self) -> str:
        self.agent.calls += 1
        return f"call{self.agent.calls}"

    async def say(self, words: str) -> None:
        for word in words.split(" "):
            await self.tell(update_agent_message_text(f"{word} "))

    async def where(self, _rest: str) -> None:
        await self.tell(update_agent_message_text(str(Path.cwd())))

    async def think(self, words: str) -> None:
        await self.tell(update_agent_thought_text(words))

    async def plan(self, statuses: str) -> None:
        names = statuses.split()
        await self.tell(update_plan([plan_entry(f"step {n}", status=one) for n, one in enumerate(names, 1)]))

    async def read(self, path: str) -> None:
        call = self._next()
        await self.tell(start_tool_call(call, f"Read {path}", kind="read", raw_input={"path": path}))
        done = [tool_content(text_block(f"the text of {path}"))]
        await self.tell(update_tool_call(call, status="completed", content=done))

    async def both(self, paths: str) -> None:
        """Make calls in parallel, which end in the other order."""
        calls = [(self._next(), path) for path in paths.split()]
        for call, path in calls:
            await self.tell(start_tool_call(call, f"Read {path}", kind="read", raw_input={"path": path}))
        for call, _ in calls:
            await self.tell(update_tool_call(call, status="in_progress"))
        for call, path in reversed(calls):
            await self.tell(update_tool_call(call, status="completed", content=[tool_content(text_block(path))]))

    async def edit(self, path: str) -> None:
        """Ask, and write a file if that is allowed."""
        call = self._next()
        file = Path(path)
        before = file.read_text() if file.exists() else None
        diff = tool_diff_content(str(file.absolute()), "new text\n", before)
        await self.tell(start_tool_call(call, f"Edit {path}", kind="edit", content=[diff]))
        asked = schema.ToolCallUpdate(tool_call_id=call, title=f"Edit {path}")
        answer = await self.agent.client.request_permission(self.session, asked, OPTIONS)
        chosen = getattr(answer.outcome, "option_id", "cancelled")
        if chosen in ("yes", "always"):
            file.write_text("new text\n")
            await self.tell(update_tool_call(call, status="completed", content=[diff]))
        else:
            await self.tell(update_tool_call(call, status="failed"))
        await self.say(f"answered {chosen}.")

    async def call(self, line: str) -> None:
        """Call a tool of the first MCP server: its name, and JSON of its arguments."""
        await self._call(line, reported=True)

    async def quietly(self, line: str) -> None:
        """Call a tool of the first MCP server, and do not report it."""
        await self._call(line, reported=False)

    async def _call(self, line: str, *, reported: bool) -> None:
        from fastmcp import Client
        from fastmcp.client.transports import StreamableHttpTransport

        name, _, given = line.partition(" ")
        call = self._next()
        arguments: dict[str, Any] = json.loads(given or "{}")
        if reported:
            # As claude's adapter marks it; other agents have no mark that only their program writes.
            mark = {"claudeCode": {"toolName": f"mcp__{self.agent.servers[self.session][0].name}__{name}"}}
            begun = start_tool_call(call, f"Call {name}", kind="other", raw_input=arguments)
            begun.field_meta = mark
            await self.tell(begun)
        server = self.agent.servers[self.session][0]
        headers = {one.name: one.value for one in server.headers}
        async with Client(StreamableHttpTransport(server.url, headers=headers)) as client:
            result = await client.call_tool(name, arguments, raise_on_error=False)
        words = "".join(getattr(part, "text", "") for part in result.content)
        if reported:
            status = "failed" if result.is_error else "completed"
            await self.tell(update_tool_call(call, status=status, content=[tool_content(text_block(words))]))
        await self.say(f"got {words}")

    async def giveup(self, line: str) -> None:
        """Call a tool, and give up before it has answered."""
        await self.quietly("nothing {}")  # the library takes a second to be imported
        try:
            await asyncio.wait_for(self._call(line, reported=True), 1.5)
        except TimeoutError:
            await self.say("gave up")

    async def inside(self, path: str) -> None:
        """Make a call while another one runs."""
        outer = self._next()
        await self.tell(start_tool_call(outer, "A helper", kind="think"))
        await self.tell(update_tool_call(outer, status="in_progress"))
        await asyncio.sleep(0.4)
        await self.read(path)
        await self.tell(update_tool_call(outer, status="completed", content=[tool_content(text_block("helped"))]))

    async def cost(self, dollars: str) -> None:
        update = schema.UsageUpdate(
            session_update="usage_update", used=10, size=100, cost=schema.Cost(amount=float(dollars), currency="USD")
        )
        await self.tell(update)

    async def heard(self, _: str) -> None:
        await self.say(" / ".join(self.agent.heard[self.session]).replace("\n", " ").replace("!", ""))

    async def wait(self, _: str) -> str:
        """Wait to be cancelled, as a good agent does."""
        await self.agent.stopped.wait()
        return "cancelled"

    async def spawn(self, path: str) -> None:
        """Start a program that outlives the agent, and write its process id to a file."""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)  # noqa: ASYNC220
        Path(path).write_text(str(child.pid))

    async def hang(self, _: str) -> None:
        """Do not react to anything."""
        await asyncio.Event().wait()

    async def start(self, path: str) -> None:
        """Begin a call, and leave it open."""
        call = self._next()
        await self.tell(start_tool_call(call, f"Read {path}", kind="read", raw_input={"path": path}))
        await self.tell(update_tool_call(call, status="in_progress"))

    async def die(self, words: str) -> None:
        print(words, file=sys.stderr, flush=True)  # noqa: T201
        os._exit(3)

    async def flood(self, count: str) -> None:
        for _ in range(int(count)):
            await self.tell(update_agent_message_text("x" * 1000))

    async def rubbish(self, _: str) -> None:
        deep = "[" * 5000 + "]" * 5000
        lines = ["what?", "{", "[]", '"x"', '{"id": [1]}', '{"jsonrpc": "2.0", "id": 1, "error": 3}', deep]
        lines += ['{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": 1}}']
        lines += [
            '{"jsonrpc": "2.0", "method": "session/update", "params": []}',
            '{"method": 7}',
            "\ud800".encode("utf-8", "replace").decode(),
        ]
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    async def borrow(self, path: str) -> None:
        """Ask for what is not lent."""
        try:
            await self.agent.client.read_text_file(self.session, str(Path(path).absolute()))
        except acp.RequestError as error:
            await self.say(str(error))

    async def end(self, reason: str) -> str:
        return reason


if __name__ == "__main__":
    asyncio.run(acp.run_agent(ScriptedAgent(sys.argv[1:])))
