"""Strict fakes of outside agents: what a model makes them do, told over the protocol in each agent's own order.

    python -S -m tests.acp.fakes AGENT SCRIPT

SCRIPT is a JSON file {prompt: [step, ...]}; a prompt that it does not have is answered with its words. A step is a
JSON object, and its first key says what it is:

    {"say": text}, {"think": text}    words
    {"act": "command", "input": {}}   the model uses a tool (command, edit, read, mcp, plan); it asks as the agent does
                                      "id": the call's id; "unasked": it does not ask; "wait": false does not wait
                                      "announced", "request", "options", "meta": fields that another program would send
    {"update": {}}                    a session update as it is
    {"ask": {}, "options": []}        a permission request for a tool call as it is; "wait": false does not wait
    {"wait": number}                  wait for the answer to the request with that number in the turn, from 0
    {"end": reason}                   the response to the prompt; what follows comes after it
    {"sleep": seconds}

SCRIPT.heard gets a line of JSON for each answer ("answered": the option's kind, "" if cancelled, with "input" and the
number of the "turn", from 1) and for each thing that was run ("ran"). The fakes refuse what the real agents refuse: an
unknown session or mode, a method that they lack, an option that they did not offer. tests/acp/fake_agents.py has the
agents.
"""

import json
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.acp.fake_agents import AGENTS, Act, Agent, Json, Question, Stopped, text

PATIENCE = 60
"""How long a fake waits for an answer, in seconds."""


def post(server: Json, body: Json, session: str = "") -> tuple[Json, str]:
    """Send a message to an MCP server over HTTP. Return the answer ({} without one), and the id of the session."""
    headers = {one["name"]: one["value"] for one in server["headers"]}
    headers |= {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers |= {"mcp-session-id": session} if session else {}
    request = urllib.request.Request(server["url"], json.dumps(body).encode(), headers)  # noqa: S310  (on loopback)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310
        lines = response.read().decode().splitlines()
        data = [line.removeprefix("data:") for line in lines if not line.startswith(("event:", "id:", ":", "retry:"))]
        found = [json.loads(one) for one in data if one.strip()]
        return next((one for one in found if "id" in one), {}), response.headers.get("mcp-session-id") or session


def call_tool(server: Json, name: str, arguments: Json, meta: Json) -> tuple[str, bool]:
    """Call a tool of an MCP server. Return its text, and whether it went well."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fake", "version": "1"}}
    _, session = post(server, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    post(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    params = {"name": name, "arguments": arguments, "_meta": meta}
    answer, _ = post(server, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, session)
    result = answer.get("result") or {"isError": True, "content": [{"text": json.dumps(answer.get("error"))}]}
    return "".join(part.get("text", "") for part in result["content"]), not result.get("isError")


class Program:
    """Reads the client's messages, and plays the turns of a script."""

    def __init__(self, agent: Agent, script: Path) -> None:
        self._agent = agent
        self._script = script
        self._lock = threading.Lock()
        self._questions: dict[int, Question] = {}
        self._sessions: dict[str, list[Json]] = {}
        self._acts = 0
        self._turns = 0

    def run(self) -> None:
        """Serve until the input ends."""
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self._hear(message)
            elif message["method"] == "session/cancel":
                self._cancel()
            elif "id" in message:
                self._answer(message["id"], message["method"], message.get("params") or {})

    def write(self, **message: Any) -> None:
        """Send a message."""
        with self._lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def heard(self, **entry: Any) -> None:
        """Note something for the test."""
        with self._lock, self._script.with_suffix(".heard").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _answer(self, number: Any, method: str, params: Json) -> None:
        unknown = {**self._agent.unknown, "data": {"sessionId": params.get("sessionId")}}
        known = params.get("sessionId") in self._sessions
        match method:
            case "initialize":
                info = {"name": "fake", "version": "1"}
                result = {"protocolVersion": 1, "agentCapabilities": self._agent.capabilities, "agentInfo": info}
                self.write(id=number, result=result | {"authMethods": []})
            case "session/new" | "session/load":
                self._open(number, params)
            case "session/prompt" | "session/set_mode" if not known:
                self.write(id=number, error=unknown)
            case "session/prompt":
                threading.Thread(target=self._prompt, args=(number, params), daemon=True).start()
            case "session/set_mode" if params["modeId"] in self._agent.modes:
                self.heard(mode=params["modeId"])
                self.write(id=number, result={})
            case "session/set_mode":
                self.write(id=number, error={"code": -32602, "message": f"Invalid Mode: {params['modeId']}"})
            case _:
                self.write(id=number, error={"code": -32601, "message": f'"Method not found": {method}'})

    def _open(self, number: Any, params: Json) -> None:
        session = params.get("sessionId") or f"session-{len(self._sessions) + 1}"
        self._agent.meta = params.get("_meta") or {}
        self._sessions[session] = params["mcpServers"]
        self.heard(servers=[server["name"] for server in params["mcpServers"]], meta=self._agent.meta)
        modes = [{"id": mode, "name": mode} for mode in self._agent.modes]
        state = {"modes": {"currentModeId": self._agent.modes[-1], "availableModes": modes}} if modes else {}
        self.write(id=number, result={"sessionId": session, **state})

    def _hear(self, message: Json) -> None:
        question = self._questions.pop(message["id"])
        outcome = message.get("result", {}).get("outcome", {})
        question.chosen = outcome.get("optionId")
        self.heard(answered=question.kind, option=question.chosen, input=question.input, turn=question.turn)
        question.answered.set()

    def _cancel(self) -> None:
        self.heard(cancelled=True)

    # -- a turn ------------------------------------------------------------------------------------------------------

    def _prompt(self, number: Any, params: Json) -> None:
        self._turns += 1
        turn = _Turn(self, self._agent, params["sessionId"], self._sessions[params["sessionId"]])
        words = [block["text"] for block in params["prompt"] if block["type"] == "text"][-1]
        script: dict[str, list[Json]] = json.loads(self._script.read_text(encoding="utf-8"))
        steps = script.get(words.strip(), [{"say": words}])
        reason = "end_turn"
        try:
            for position, step in enumerate(steps):
                if "end" in step:
                    self.write(id=number, result={"stopReason": step["end"]})
                    turn.play(steps[position + 1 :])
                    return
                turn.play([step])
        except Stopped as stopped:
            turn.update(*stopped.args[0])
            reason = "cancelled"
        self.write(id=number, result={"stopReason": reason})
        turn.update(*self._agent.at_the_end())

    def ask(self, session: str, call: Json, options: list[Json], meta: Json, given: Any) -> Question:
        """Send a permission request. Return it without waiting for its answer."""
        question = Question(options, given, self._turns)
        with self._lock:
            number = 1000 + len(self._questions) + self._acts
            self._acts += 1
            self._questions[number] = question
        params = {"sessionId": session, "toolCall": call, "options": options} | ({"_meta": meta} if meta else {})
        self.write(id=number, method="session/request_permission", params=params)
        return question

    def next_id(self) -> str:
        """Return the id of a new tool call."""
        with self._lock:
            self._acts += 1
            return f"call_{self._acts}"


class _Turn:
    """Plays the steps of one prompt."""

    def __init__(self, program: Program, agent: Agent, session: str, servers: list[Json]) -> None:
        self._program, self._agent, self._session, self._servers = program, agent, session, servers
        self._asked: list[tuple[Act | None, Question]] = []

    def update(self, *updates: Json) -> None:
        """Send session updates."""
        for one in updates:
            self._program.write(method="session/update", params={"sessionId": self._session, "update": one})

    def play(self, steps: list[Json]) -> None:
        """Play steps in order."""
        for step in steps:
            match next(iter(step)):
                case "say":
                    self.update({"sessionUpdate": "agent_message_chunk", "content": text(step["say"])["content"]})
                case "think":
                    self.update({"sessionUpdate": "agent_thought_chunk", "content": text(step["think"])["content"]})
                case "update":
                    self.update(step["update"])
                case "act":
                    self._act(step)
                case "ask":
                    self._ask(step)
                case "wait":
                    self._settle(*self._asked[step["wait"]])
                case "sleep":
                    time.sleep(step["sleep"])
                case name:
                    raise ValueError(name)

    def _ask(self, step: Json) -> None:
        options = step.get("options") or self._agent.options(Act("plan", {}, ""))
        given = step["ask"].get("rawInput")
        question = self._program.ask(self._session, step["ask"], options, step.get("meta", {}), given)
        self._asked.append((None, question))
        if step.get("wait", True):
            self._settle(None, question)

    def _act(self, step: Json) -> None:
        act = Act(step["act"], step["input"], step.get("id") or self._program.next_id(), step)
        if act.what == "mcp" and act.input["server"] == "OURS":
            act.input = act.input | {"server": self._servers[0]["name"]}
        agent = self._agent
        self.update(*(one | step.get("announced", {}) for one in agent.announced(act)))
        if step.get("unasked") or not agent.asks(act):
            self._carry_out(act)
            return
        call = agent.request(act) | step.get("request", {})
        options, meta = step.get("options") or agent.options(act), agent.request_meta(act) | step.get("meta", {})
        question = self._program.ask(self._session, call, options, meta, act.input)
        self.update(*agent.late(act))
        self._asked.append((act, question))
        if step.get("wait", True):
            self._settle(act, question)

    def _settle(self, act: Act | None, question: Question) -> None:
        """Wait for an answer, and do what it says."""
        question.answered.wait(PATIENCE)
        if not question.kind.startswith("allow"):
            self.update(*(self._agent.refused(act, question) if act else []))
        elif act:
            self._carry_out(act)
        else:
            self._program.heard(ran=question.input)

    def _carry_out(self, act: Act) -> None:
        output, good = "done", True
        server = next((one for one in self._servers if one["name"] == act.input.get("server")), None)
        if act.what == "mcp" and server is not None:
            meta = self._agent.call_meta(act)
            output, good = call_tool(server, act.input["tool"], act.input["arguments"], meta)
        else:
            self._program.heard(ran=act.input)
        self.update(*self._agent.finished(act, output, good=good))


if __name__ == "__main__":
    Program(AGENTS[sys.argv[1]](), Path(sys.argv[2])).run()
