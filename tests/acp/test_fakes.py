"""The fakes of outside agents against recordings of the real ones: the same messages about calls, in the same order."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp.sessions import Fake

pytestmark = pytest.mark.posix

WIRE = Path(__file__).with_name("wire")
INTERESTING = ("tool_call", "tool_call_update")
SCENES = ("command", "deny", "edit", "ours")
CASES = [(name, scene) for name in ("claude", "codex", "opencode", "gemini") for scene in SCENES]
CASES.remove(("gemini", "ours"))  # it was not recorded: Gemini CLI offers servers in folders that it trusts


def recorded(name: str, scene: str) -> list[dict[str, Any]]:
    """Return the messages of a scene from its prompt on, as lines of the recording."""
    lines = [json.loads(line) for line in (WIRE / f"{name}-turns.jsonl").read_text(encoding="utf-8").splitlines()]
    starts = {line["scene"]: number for number, line in enumerate(lines) if "scene" in line}
    begin = starts[scene] + 1
    return lines[begin : min((number for number in starts.values() if number > begin), default=len(lines))]


def shape(message: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return what a message about a call says, without its words; None for other messages."""
    params = message.get("params") or {}
    if message.get("method") == "session/request_permission":
        call = params["toolCall"]
        return ("asks", call.get("kind"), kind_of(call.get("rawInput")), sorted(params.get("_meta", {})), marks(call))
    told = params.get("update") or {}
    if told.get("sessionUpdate") not in INTERESTING:
        return None
    return told["sessionUpdate"], told.get("status"), kind_of(told.get("rawInput")), marks(told)


def kind_of(given: Any) -> Any:
    """Return whether a call has an input, an empty one or none; of an input, whether it has a command."""
    return None if given is None else "command" in given if isinstance(given, dict) and given else not given


def marks(call: dict[str, Any]) -> list[str]:
    """Return the names in the `_meta` of a call, also those inside the part of an agent."""
    meta = call.get("_meta") or {}
    return sorted({*meta, *(meta.get("claudeCode") or {})} - {"nonExecutionKind"})


def options_of(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    asked = [one["params"] for one in messages if one.get("method") == "session/request_permission"]
    return [(option["optionId"], option["kind"]) for params in asked for option in params["options"]]


class Client:
    """A client that answers each request in one way, and has the messages of a fake."""

    def __init__(self, fake: Fake) -> None:
        self._process = subprocess.Popen([str(fake.program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.received: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def call(self, method: str, kind: str = "", **params: Any) -> dict[str, Any]:
        """Send a request, choose options of a kind until the answer comes, and return the answer."""
        self.send(id=method, method=method, params=params)
        for message in self._messages():
            self.received.append(message)
            if message.get("method") == "session/request_permission":
                options = {one["kind"]: one["optionId"] for one in reversed(message["params"]["options"])}
                outcome = {"outcome": "selected", "optionId": options.get(kind, kind)}
                self.send(id=message["id"], result={"outcome": outcome})
            elif message.get("id") == method:
                return message
        raise EOFError

    def _messages(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        return map(json.loads, self._process.stdout)

    def close(self) -> None:
        self._process.communicate(timeout=10)


def act_of(name: str, scene: str) -> dict[str, Any]:
    """Return the step of a script that does what the model did in a recording."""
    match scene:
        case "edit":
            return {"act": "edit", "input": {"path": "/notebooks/note.txt", "new": "hello"}}
        case "ours":
            return {"act": "mcp", "input": {"server": "x", "tool": "add", "arguments": {"a": 2, "b": 3}}}
        case _:
            return {"act": "command", "input": {"command": "touch x", "description": "Make a file"}}


def opened(fake: Fake) -> Client:
    client = Client(fake)
    client.call("initialize", protocolVersion=1)
    client.call("session/new", cwd="/", mcpServers=[])
    return client


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scene"), CASES)
def test_a_fake_tells_of_a_call_as_the_real_agent_does(name: str, scene: str, tmp_path: Path) -> None:
    client = opened(Fake(name, tmp_path, {"go": [act_of(name, scene)]}))
    kind = "reject_once" if scene == "deny" else "allow_once"
    client.call("session/prompt", kind, sessionId="session-1", prompt=[{"type": "text", "text": "go"}])
    client.close()
    real = [line["received"] for line in recorded(name, scene) if "received" in line]
    assert list(filter(None, map(shape, client.received))) == list(filter(None, map(shape, real)))
    assert set(options_of(real)) <= set(options_of(client.received))


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode", "protocol"])
def test_a_fake_refuses_what_the_real_agent_refuses(name: str, tmp_path: Path) -> None:
    fake = Fake(name, tmp_path, {"go": [act_of(name, "command")]})
    client = opened(fake)
    prompt = [{"type": "text", "text": "go"}]
    assert client.call("session/prompt", sessionId="nope", prompt=prompt)["error"]["code"] in (-32002, -32602)
    assert client.call("session/set_mode", sessionId="session-1", modeId="wrong")["error"]["code"] == -32602
    assert client.call("session/wobble")["error"]["code"] == -32601
    client.call("session/prompt", "an-option-that-it-has-not", sessionId="session-1", prompt=prompt)
    client.close()
    assert fake.heard("ran") == []
    assert fake.heard("answered") == [""]
