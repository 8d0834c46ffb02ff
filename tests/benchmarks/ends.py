"""A map whose answers end in every way, and whose process is killed: `python -m tests.benchmarks.ends`.

The provider of this module speaks five APIs. How it ends the answer to a row is decided by the row's number, and it
notes each answer in a log. A process maps all rows and is killed, and the map is run again. Then the frame is compared
with the log of the provider: `--rows`, `--kills` and `--api` change the size.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel

from agentmagic import Agent, ModelSettings, RetrySettings, Session
from tests.benchmarks.rows import is_over

ROOT = Path(__file__).parents[2]
PROMPT = "Which number? Row {number}."
CONCURRENCY = 32
Json = dict[str, Any]


class Label(BaseModel):
    """The answer to a row: its number."""

    id: int


# -- the provider ------------------------------------------------------------------------------------


def chat(text: str) -> dict[str, list[Any]]:
    """Return the chunks of Chat Completions for each end. https://developers.openai.com/api/reference/resources/chat"""

    def said(reason: str | None = None, **delta: Any) -> Json:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}
    call = {"index": 0, "id": "c", "function": {"name": "look_up", "arguments": "{}"}}
    return {
        "stop": [said(content=text), said("stop"), usage],
        "length": [said(content=text), said("length"), usage],
        "filter": [said(content=text), said("content_filter"), usage],
        "refusal": [said(refusal="I will not."), said("stop"), usage],
        "calls": [said(content=text), said(tool_calls=[call]), said("tool_calls"), usage],
        "empty": [said(content=""), said("stop"), usage],
        "error": [said(content=text), {"error": {"message": "It broke.", "type": "server_error", "code": 500}}],
        "null": [None],
    }


def responses(text: str) -> dict[str, list[Any]]:
    """Return the events of Responses for each end. https://developers.openai.com/api/reference/resources/responses"""
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}

    def message(**part: Any) -> list[Json]:
        item = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
        events = [{"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}}]
        return [*events, {"type": "response.output_item.done", "output_index": 0, "item": item}]

    def ended(kind: str, **more: Any) -> Json:
        return {"type": f"response.{kind}", "response": {"id": "r", "status": kind, "usage": usage, **more}}

    def stopped(reason: str) -> Json:
        return ended("incomplete", incomplete_details={"reason": reason})

    words = message(type="output_text", text=text, annotations=[])
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "look_up", "arguments": "{}"}
    error = {"code": "server_error", "message": "It broke."}
    return {
        "stop": [*words, ended("completed")],
        "length": [*words, stopped("max_output_tokens")],
        "filter": [*words, stopped("content_filter")],
        "refusal": [*message(type="refusal", refusal="I will not."), ended("completed")],
        "calls": [{"type": "response.output_item.done", "output_index": 0, "item": call}, ended("completed")],
        "empty": [ended("completed")],
        "error": [*words, {"type": "response.failed", "response": {"status": "failed", "error": error}}],
        "null": [None],
    }


def anthropic(text: str) -> dict[str, list[Any]]:
    """Return the events of Messages for each end. https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"""
    begun = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}

    def block(content: Json, **delta: Any) -> list[Json]:
        events = [{"type": "content_block_start", "index": 0, "content_block": content}]
        events += [{"type": "content_block_delta", "index": 0, "delta": delta}]
        return [*events, {"type": "content_block_stop", "index": 0}]

    def ended(reason: str, **more: Any) -> list[Json]:
        delta = {"stop_reason": reason, **more}
        return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}, {"type": "message_stop"}]

    words = [begun, *block({"type": "text", "text": ""}, type="text_delta", text=text)]
    call = {"type": "tool_use", "id": "c", "name": "look_up", "input": {}}
    return {
        "stop": [*words, *ended("end_turn")],
        "stop sequence": [*words, *ended("stop_sequence", stop_sequence="END")],
        "length": [*words, *ended("max_tokens")],
        "window": [*words, *ended("model_context_window_exceeded")],
        "refusal": [*words, *ended("refusal")],
        "calls": [begun, *block(call, type="input_json_delta", partial_json="{}"), *ended("tool_use")],
        "empty": [begun, *ended("end_turn")],
        "error": [*words, {"type": "error", "error": {"type": "api_error", "message": "It broke."}}],
        "null": [None],
    }


def gemini(text: str) -> dict[str, list[Any]]:
    """Return the chunks of Gemini for each end. https://ai.google.dev/api/generate-content#FinishReason"""
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}

    def ended(reason: str, *parts: Json) -> list[Any]:
        candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, "finishReason": reason}
        return [{"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}]

    words = {"text": text}
    begun = {"candidates": [{"content": {"role": "model", "parts": [words]}, "index": 0}]}
    reasons = ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "OTHER")
    return {
        "stop": [begun, *ended("STOP")],
        "length": ended("MAX_TOKENS", words),
        **{reason.lower(): ended(reason, words) for reason in reasons},
        "malformed": ended("MALFORMED_FUNCTION_CALL"),
        "blocked": [{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage}],
        "calls": ended("STOP", {"functionCall": {"name": "look_up", "args": {}, "id": "c"}}),
        "empty": ended("STOP"),
        "error": [begun, {"error": {"code": 500, "message": "It broke.", "status": "INTERNAL"}}],
        "null": [None],
    }


def ollama(text: str) -> dict[str, list[Any]]:
    """Return the lines of Ollama for each end. https://github.com/ollama/ollama/blob/main/docs/api.md"""

    def said(**message: Any) -> Json:
        return {"model": "m", "message": {"role": "assistant", "content": "", **message}, "done": False}

    def ended(reason: str) -> Json:
        return said() | {"done": True, "done_reason": reason, "prompt_eval_count": 9, "eval_count": 3}

    call = {"function": {"name": "look_up", "arguments": {}}}
    return {
        "stop": [said(content=text), ended("stop")],
        "length": [said(content=text), ended("length")],
        "calls": [said(tool_calls=[call]), ended("stop")],
        "empty": [ended("stop")],
        "error": [said(content=text), {"error": "it broke"}],
        "null": [None],
    }


@dataclass(frozen=True)
class Api:
    """An API: the chunks of its answers by their end, the model that speaks it, and what ends its stream."""

    chunks: Callable[[str], dict[str, list[Any]]]
    model: str
    end: str = ""
    is_lines: bool = False


APIS = {
    "chat": Api(chat, "openai-chat:ends", "data: [DONE]\n\n"),
    "responses": Api(responses, "openai:ends"),
    "anthropic": Api(anthropic, "anthropic:ends"),
    "gemini": Api(gemini, "gemini:ends"),
    "ollama": Api(ollama, "ollama:ends", is_lines=True),
}
WHOLE = ("stop", "stop sequence")
"""The ends of a whole answer."""
ONCE = ("truncated once", "500 once")
"""What happens to the first request of a row; a further request gets a whole answer."""
OF_HTTP = ("truncated", "400", "500", *ONCE)
"""Ends that are the same in each API: a connection that ends too early, and refusals."""


def end_of(api: Api, number: int) -> str:
    """Return how the provider ends the answer to a row: three quarters of the rows get a whole answer."""
    others = [*(end for end in api.chunks("") if end != "stop"), *OF_HTTP]
    return "stop" if number % 4 else others[number // 4 % len(others)]


def is_null(number: int) -> bool:
    """Return whether the answer to a row is null."""
    return number % 5 == 0


@dataclass
class Provider:
    """The provider: `log` has the row of each request, with the end of its answer."""

    api: Api
    typed: bool
    log: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def text(self, number: int) -> str:
        """Return the whole answer to a row."""
        value = json.dumps({"value": None if is_null(number) else {"id": number}})
        return value if self.typed else f"It is {number}."

    async def answer(self, number: int, writer: asyncio.StreamWriter) -> bool:
        """Answer a request about a row, and note its end. Return whether the connection stays open."""
        end = end_of(self.api, number)
        if end in ONCE and any(row == number for row, _ in self.log):
            end = "stop"
        await asyncio.sleep(0.02)
        self.log.append((number, end))
        if end[:3].isdigit():
            error = json.dumps({"error": {"message": "It does not work.", "type": "invalid_request_error"}}).encode()
            writer.write(f"HTTP/1.1 {end[:3]} No\r\ncontent-type: application/json\r\n".encode())
            writer.write(f"content-length: {len(error)}\r\n\r\n".encode() + error)
            return True
        is_cut = end.startswith("truncated")
        chunks = self.api.chunks(self.text(number))["stop" if is_cut else end]
        body = "".join(map(self._line, chunks[:1] if is_cut else chunks)) + ("" if is_cut else self.api.end)
        length = len(body.encode()) + 100 * is_cut
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n".encode())
        writer.write(body.encode())
        return not is_cut

    def _line(self, chunk: Any) -> str:
        text = json.dumps(chunk)
        kind = f"event: {chunk['type']}\n" if isinstance(chunk, dict) and "type" in chunk else ""
        return f"{text}\n" if self.api.is_lines else f"{kind}data: {text}\n\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, request after request, until its client is gone."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            is_open = True
            while is_open and (head := await reader.readline()):
                length = 0
                while (line := await reader.readline()).strip():
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                rows = re.findall(rb"Row (\d+)\.", await reader.readexactly(length))
                if rows:
                    is_open = await self.answer(int(rows[-1]), writer)
                else:
                    text = json.dumps(self.log).encode() if b"/log" in head else b"{}"
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(text) + text)
                await writer.drain()
        writer.close()


async def serve(api: str, *, typed: bool) -> None:
    """Serve on a free port until standard input is closed. The first line that is printed is the port."""
    provider = Provider(APIS[api], typed)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, limit=2**26, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


# -- the process that maps ---------------------------------------------------------------------------


def labelled(api: str, library: str, path: str, rows: int, *, typed: bool) -> None:
    """Map the rows, as the child does, and print the frame as records, and which rows are doubtful."""
    frame = import_module(library).DataFrame({"number": list(range(rows))})
    agent = Agent(
        APIS[api].model,
        settings=ModelSettings(max_output_tokens=50),
        retry=RetrySettings(tries=2, first_wait=0.01, longest_wait=0.02),
    )
    session = Session(agent)
    result = session.map(frame, PROMPT, as_=Label | None if typed else None, to=path, concurrency=CONCURRENCY)
    records = result.frame.to_dict("records") if library == "pandas" else result.frame.to_dicts()
    rows_told = [(one["number"], one["_status"], one["_error"], one["answer"]) for one in records]
    doubtful = [row.place for row in result.doubtful]
    print(json.dumps({"rows": rows_told, "doubtful": doubtful, "type": type(result.frame).__module__}), flush=True)


# -- the process that kills it -----------------------------------------------------------------------


@contextmanager
def started(api: str, *, typed: bool) -> Iterator[str]:
    """Start the provider in a process of its own, and yield its address."""
    command = [sys.executable, "-m", "tests.benchmarks.ends", "--serve", api, str(int(typed))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def log_of(address: str) -> list[tuple[int, str]]:
    """Return the log of the provider: the row of each request, with the end of its answer."""
    from urllib.request import urlopen

    with urlopen(f"{address}/log") as answer:  # noqa: S310  (of this machine)
        return [(row, end) for row, end in json.load(answer)]


@dataclass
class Trial:
    """A map that is killed and run again: what its last frame says, and what the provider has noted."""

    api: str
    library: str
    rows: int
    typed: bool
    kills: int = 1
    runs: int = 0
    seconds: float = 0.0
    log: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    told: list[tuple[int, str, str, Any]] = field(default_factory=list[tuple[int, str, str, Any]])
    doubtful: set[int] = field(default_factory=set[int])
    module: str = ""

    def play(self) -> None:
        """Run the map, kill its process when a share of the rows has been asked, and run it again to its end."""
        began = time.monotonic()
        with TemporaryDirectory() as folder, started(self.api, typed=self.typed) as address:
            for kill in range(1, self.kills + 1):
                self._run(address, folder, kill_at=self.rows * kill // (self.kills + 1))
            said = self._run(address, folder)
            self.log = log_of(address)
        self.seconds = time.monotonic() - began
        found = json.loads(said)
        self.told = [(number, status, error, answer) for number, status, error, answer in found["rows"]]
        self.doubtful, self.module = set(found["doubtful"]), found["type"]

    def _run(self, address: str, folder: str, kill_at: int | None = None) -> str:
        self.runs += 1
        options = [self.api, self.library, f"{folder}/rows.jsonl", str(self.rows), str(int(self.typed))]
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "bench")
        hosts = dict.fromkeys(("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_HOST"), address)
        environment = os.environ | keys | hosts | {"OPENAI_BASE_URL": f"{address}/v1"}
        command = [sys.executable, "-m", "tests.benchmarks.ends", "--child", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        assert process.stdout is not None
        if kill_at is not None:
            while len({row for row, _ in log_of(address)}) < kill_at and not is_over(process.pid):
                time.sleep(0.1)
            os.kill(process.pid, signal.SIGKILL)
        with process.stdout:
            said = process.stdout.read()
        assert process.wait() == (0 if kill_at is None else -signal.SIGKILL)
        return said

    # -- what the frame says, beside what the provider has noted ---------------------------------------

    @property
    def ended_well(self) -> set[int]:
        """The rows to which the provider has given a whole answer."""
        return {row for row, end in self.log if end in WHOLE}

    @property
    def answered(self) -> set[int]:
        """The rows that are answered in the frame."""
        return {number for number, status, _, _ in self.told if status == "answered"}

    @property
    def wrong(self) -> set[int]:
        """The answered rows whose answer is not what the provider has said."""
        text = {number: answer for number, status, _, answer in self.told if status == "answered"}
        return {number for number, answer in text.items() if answer != self._expected(number)}

    @property
    def silent(self) -> set[int]:
        """The rows without an answer that do not say why."""
        return {number for number, status, error, _ in self.told if status != "answered" and not error}

    @property
    def paid_twice(self) -> set[int]:
        """The rows to which the provider has given a whole answer twice, and that are not told as doubtful."""
        counts = Counter(row for row, end in self.log if end in WHOLE)
        return {row for row, count in counts.items() if count > 1} - self.doubtful

    def _expected(self, number: int) -> Any:
        if not self.typed:
            return f"It is {number}."
        return None if is_null(number) else {"id": number}


def table(options: argparse.Namespace) -> None:
    """Print a line for each API and library."""
    print(f"{'':22} rows answered  wrong  lost  more  twice  doubtful  silent  ends seconds")
    for number, name in enumerate([options.api] if options.api else APIS):
        for library in ("pandas", "polars"):
            trial = Trial(name, library, options.rows, bool(number % 2) == (library == "pandas"), options.kills)
            trial.play()
            well, answered = trial.ended_well, trial.answered
            counts = [len(trial.told), len(answered), len(trial.wrong), len(well - answered), len(answered - well)]
            counts += [
                len(trial.paid_twice),
                len(trial.doubtful),
                len(trial.silent),
                len({end for _, end in trial.log}),
            ]
            form = "value" if trial.typed else "text"
            print(
                f"{name:9} {library:6} {form:5}",
                *(f"{count:6,}" for count in counts),
                f"{trial.seconds:6.0f}",
                flush=True,
            )


def main() -> None:
    """Print the table, or be one of its processes."""
    reader = argparse.ArgumentParser(prog="python -m tests.benchmarks.ends")
    reader.add_argument("--rows", type=int, default=2_000)
    reader.add_argument("--kills", type=int, default=2)
    reader.add_argument("--api", choices=[*APIS])
    reader.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    reader.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = reader.parse_args()
    if options.serve:
        api, typed = options.serve
        asyncio.run(serve(api, typed=typed == "1"))
    elif options.child:
        api, library, path, rows, typed = options.child
        labelled(api, library, path, int(rows), typed=typed == "1")
    else:
        table(options)


if __name__ == "__main__":
    main()
