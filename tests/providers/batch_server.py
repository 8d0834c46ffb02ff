"""A loopback double of the three batch APIs: it takes batches, works for some polls, and gives what came of them."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.gemini.model import Gemini
from agentmagic.providers.openai.responses import OpenAIResponses
from tests.providers.loopback import Exchange, Loopback, Received, sse

KEY = "sk-test-0123456789abcdef0123456789"
Json = dict[str, Any]


@dataclass(frozen=True)
class Api:
    """One batch API.

    `answered` is a line of results with the text, `refused` one of a request that failed, `expired` one of a request
    that was not reached. `stream` answers a plain request with the same text.
    """

    make: Callable[..., OpenAIResponses | Anthropic | Gemini]
    model: str
    bare: Callable[[Json], Json]
    answered: Callable[[str, str], Json]
    refused: Callable[[str], Json]
    expired: Callable[[str], Json]
    stream: Callable[[str], str]


def _response(text: str) -> Json:
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    item |= {"content": [{"type": "output_text", "text": text, "annotations": []}]}
    usage = {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 400}, "output_tokens": 20}
    return {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}


def _openai_line(key: str, status: int, body: Json, error: Json | None = None) -> Json:
    response = None if error else {"status_code": status, "request_id": "req_1", "body": body}
    return {"id": "batch_req_1", "custom_id": key, "response": response, "error": error}


_FIGURES = {"input_tokens": 600, "cache_read_input_tokens": 400, "output_tokens": 20}


def _message(text: str) -> Json:
    block = {"type": "text", "text": text}
    return {"type": "message", "role": "assistant", "content": [block], "stop_reason": "end_turn", "usage": _FIGURES}


def _message_events(text: str) -> str:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return sse(
        {"type": "message_start", "message": {"usage": _FIGURES}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        delta,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}},
        {"type": "message_stop"},
    )


def _generated(text: str) -> Json:
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 1000, "cachedContentTokenCount": 400, "candidatesTokenCount": 20}
    return {"candidates": [candidate], "usageMetadata": usage}


def _result(key: str, **result: Any) -> Json:
    return {"custom_id": key, "result": result}


APIS = {
    "openai": Api(
        OpenAIResponses,
        "gpt-5.4",
        lambda line: line["body"],
        lambda key, text: _openai_line(key, 200, _response(text)),
        lambda key: _openai_line(
            key, 400, {"error": {"message": f"Too hot for {KEY}.", "type": "invalid_request_error"}}
        ),
        lambda key: _openai_line(key, 0, {}, {"code": "batch_expired", "message": "It could not be executed."}),
        lambda text: sse({"type": "response.completed", "response": _response(text)}),
    ),
    "anthropic": Api(
        Anthropic,
        "claude-sonnet-5-5",
        lambda line: line["params"],
        lambda key, text: _result(key, type="succeeded", message=_message(text)),
        lambda key: _result(
            key,
            type="errored",
            error={"type": "error", "error": {"type": "invalid_request_error", "message": f"Too hot for {KEY}."}},
        ),
        lambda key: _result(key, type="expired"),
        _message_events,
    ),
    "gemini": Api(
        Gemini,
        "gemini-3.5-flash",
        lambda line: line["request"],
        lambda key, text: {"key": key, "response": _generated(text)},
        lambda key: {"key": key, "error": {"code": 3, "message": f"Too hot for {KEY}."}},
        lambda key: {"key": key, "error": {"code": 4, "message": "It could not be executed."}},
        lambda text: sse(_generated(text)),
    ),
}


class BatchServer(Loopback):
    """Serves one API. A batch is done at its poll of the number `polls`, and then ends as `ending` says.

    `lines` are its results; a text is sent as it is. `sent` are the requests of the last batch, `stream` answers a
    plain request. `faults` has the status and the body to answer a request with in place of the right answer, by method
    and path; `batch` has fields of a batch that differ. `asked` are methods and paths, in order.
    """

    def __init__(self, name: str, lines: Iterable[Json | str] = (), *, polls: int = 0, ending: str = "") -> None:
        super().__init__(())
        self.api = APIS[name]
        self.lines = list(lines)
        self.polls = polls
        self.ending = ending
        self.sent: list[Json] = []
        self.stream = ""
        self.faults: dict[str, tuple[int, str]] = {}
        self.batch: Json = {}
        self.asked: list[str] = []
        self._answer = {"openai": self._openai, "anthropic": self._anthropic, "gemini": self._gemini}[name]

    def model(self) -> OpenAIResponses | Anthropic | Gemini:
        """Return a new model on this server."""
        return self.api.make(self.api.model, base_url=self.url, api_key=KEY)

    def answer(self, received: Received) -> Exchange:
        """Answer a request."""
        asked = f"{received.method} {received.path.partition('?')[0]}"
        self.asked.append(asked)
        if asked in self.faults:
            status, body = self.faults[asked]
            return Exchange(body, status, "application/json")
        made = self._answer(asked, received)
        return made if isinstance(made, Exchange) else Exchange(json.dumps(made), content_type="application/json")

    def _done(self) -> bool:
        self.polls -= 1
        return self.polls < 0

    def _file(self) -> Exchange:
        lines = [line if isinstance(line, str) else json.dumps(line) for line in self.lines]
        return Exchange("".join(f"{line}\n" for line in lines), content_type="application/octet-stream")

    def _take(self, file: bytes) -> None:
        self.sent = [json.loads(line) for line in file.splitlines() if line.startswith(b"{")]

    def _openai(self, asked: str, received: Received) -> Json | Exchange:  # noqa: PLR0911  (one per request)
        match asked:
            case "POST /files":
                assert b'name="purpose"\r\n\r\nbatch\r\n' in received.body
                self._take(received.body)
                return {"id": "file-in", "object": "file"}
            case "POST /batches":
                asks = {"input_file_id": "file-in", "endpoint": "/v1/responses", "completion_window": "24h"}
                assert received.json == asks
                return {"id": "batch_1", "status": "validating"}
            case "GET /batches/batch_1" if not self._done():
                return {"id": "batch_1", "status": "in_progress", "request_counts": {"total": 3, "completed": 1}}
            case "GET /batches/batch_1":
                files = {"output_file_id": "file-out", "error_file_id": None}
                return {"id": "batch_1", "status": self.ending or "completed", **files, **self.batch}
            case "GET /files/file-out/content":
                return self._file()
            case "POST /batches/batch_1/cancel":
                return {"id": "batch_1", "status": "cancelling"}
            case _:
                return self._plain(asked, "POST /responses")

    def _anthropic(self, asked: str, received: Received) -> Json | Exchange:
        match asked:
            case "POST /v1/messages/batches":
                self.sent = received.json["requests"]
                return {"id": "msgbatch_1", "processing_status": "in_progress"}
            case "GET /v1/messages/batches/msgbatch_1" if not self._done():
                counts = {"processing": 2, "succeeded": 1}
                return {"id": "msgbatch_1", "processing_status": "in_progress", "request_counts": counts}
            case "GET /v1/messages/batches/msgbatch_1":
                return {"id": "msgbatch_1", "processing_status": self.ending or "ended", **self.batch}
            case "GET /v1/messages/batches/msgbatch_1/results":
                return self._file()
            case "POST /v1/messages/batches/msgbatch_1/cancel":
                return {"id": "msgbatch_1", "processing_status": "canceling"}
            case _:
                return self._plain(asked, "POST /v1/messages")

    def _gemini(self, asked: str, received: Received) -> Json | Exchange:  # noqa: PLR0911  (one per request)
        match asked:
            case "POST /upload/v1beta/files" if received.headers["x-goog-upload-command"] == "start":
                place = {"x-goog-upload-url": "https://elsewhere.invalid/upload/v1beta/files?upload_id=7"}
                return Exchange("{}", content_type="application/json", headers=place)
            case "POST /upload/v1beta/files":
                assert received.path.endswith("?upload_id=7")
                self._take(received.body)
                return {"file": {"name": "files/in"}}
            case "POST /v1beta/models/gemini-3.5-flash:batchGenerateContent":
                assert received.json["batch"]["inputConfig"] == {"fileName": "files/in"}
                return {"name": "batches/1", "metadata": {"state": "BATCH_STATE_PENDING"}}
            case "GET /v1beta/batches/1" if not self._done():
                stats = {"requestCount": "3", "successfulRequestCount": "1"}
                return {"name": "batches/1", "metadata": {"state": "BATCH_STATE_RUNNING", "batchStats": stats}}
            case "GET /v1beta/batches/1":
                state = {"state": f"BATCH_STATE_{self.ending or 'SUCCEEDED'}"}
                output = {"response": {"responsesFile": "files/out"}}
                return {"name": "batches/1", "metadata": state, "done": True, **(self.batch or output)}
            case "GET /v1beta/files/out:download":
                return self._file()
            case "POST /v1beta/batches/1:cancel":
                return {}
            case _:
                return self._plain(asked, "POST /v1beta/models/gemini-3.5-flash:streamGenerateContent")

    def _plain(self, asked: str, path: str) -> Exchange:
        assert asked == path, asked
        return Exchange(self.api.stream(self.stream))
