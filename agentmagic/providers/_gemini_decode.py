"""From the chunks of Gemini's `streamGenerateContent` to part events.

Source: https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from uuid import uuid4

from agentmagic.errors import BadRequest, StreamBroken
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import ProviderData, Reasoning, Text, ToolCall, Usage
from agentmagic.providers._gemini_encode import PROVIDER, Json
from agentmagic.providers._gemini_errors import quoted, refusal, unreadable
from agentmagic.providers.base import ModelEvent, ModelFinished

_BROKEN = {
    "MALFORMED_FUNCTION_CALL": "Gemini wrote a tool call that cannot be read",
    "UNEXPECTED_TOOL_CALL": "Gemini called a tool that it was not offered",
    "TOO_MANY_TOOL_CALLS": "Gemini called too many tools at once",
    "MALFORMED_RESPONSE": "Gemini wrote an answer that cannot be read",
    "MISSING_THOUGHT_SIGNATURE": "Gemini misses a thought signature in the history",
    "OTHER": "Gemini stopped without saying why",
}
"""Finish reasons after which there is no answer, but may be at the next try."""

_BLOCKED = {
    "SAFETY": "it may be unsafe",
    "RECITATION": "it may recite a source",
    "LANGUAGE": "its language is not supported",
    "BLOCKLIST": "it has a term of a blocklist",
    "PROHIBITED_CONTENT": "its content may be prohibited",
    "SPII": "it may hold sensitive personal data",
    "IMAGE_SAFETY": "its image may be unsafe",
    "IMAGE_PROHIBITED_CONTENT": "its image may be prohibited",
    "IMAGE_RECITATION": "its image may recite a source",
    "ESCALATION": "a rule of the provider held it back",
    "PUP_LIMITED_DISABLED": "the account is limited or disabled",
    "MODEL_ARMOR": "Model Armor held it back",
    "JAILBREAK": "it may be an attempt to break the model's rules",
}
"""Finish reasons, and reasons of a refused prompt, that the same request would meet again."""

_PLAIN = frozenset({"text", "thought"})


def mint_id() -> str:
    """Make an id for a call that came without one."""
    return f"call_{uuid4().hex[:16]}"


@dataclass(slots=True)
class _OpenPart:
    index: int
    kind: Literal["text", "reasoning"]
    pieces: list[str] = field(default_factory=list[str])

    def whole(self) -> Text | Reasoning:
        text = "".join(self.pieces)
        return Text(text) if self.kind == "text" else _thought(text, {"text": text, "thought": True})


class Decoder:
    """Turns the chunks of one response, as plain JSON, into events.

    Adjacent chunks of words become one part; a chunk that carries a signature, or anything else that
    has to go back as it came, becomes a part of its own. `feed` and `close` raise StreamBroken for what
    may go better at the next try, and another ProviderError for what would not.
    """

    def __init__(self, model: str, *, mint: Callable[[], str] = mint_id) -> None:
        self._model = model
        self._mint = mint
        self._count = 0
        self._open: _OpenPart | None = None
        self._usage: Json = {}
        self._reason = ""

    def feed(self, chunk: Any) -> Iterator[ModelEvent]:
        """Yield what one chunk adds to the answer."""
        response = _object(chunk)
        if "error" in response:
            raise _error_in_stream(response, self._model)
        if usage := response.get("usageMetadata"):
            self._usage = _object(usage)  # each is the sum so far
        if feedback := response.get("promptFeedback"):
            _check_prompt(_object(feedback))
        for candidate in _objects(response.get("candidates"))[:1]:
            for part in _objects(_object(candidate.get("content") or {}).get("parts")):
                yield from self._part(part)
            if reason := candidate.get("finishReason"):
                _check_reason(str(reason), candidate.get("finishMessage"))
                self._reason = str(reason)

    def close(self) -> Iterator[ModelEvent]:
        """Yield the end of the response, or raise StreamBroken where it has not come."""
        if not self._reason:
            message = "Gemini's answer broke off before its end. Ask again."
            raise StreamBroken(message)
        yield from self._close_part()
        yield ModelFinished(_usage(self._usage), self._reason)

    def _part(self, part: Json) -> Iterator[ModelEvent]:
        text = part.get("text")
        if "functionCall" in part:
            yield from self._call(part)
        elif not isinstance(text, str):
            yield from self._verbatim(f"[Gemini sent a part of kind {_kind(part)}, which cannot be shown.]", part)
        elif part.keys() <= _PLAIN:
            yield from self._words(text, "reasoning" if part.get("thought") else "text")
        else:
            yield from self._verbatim(text, part)

    def _words(self, text: str, kind: Literal["text", "reasoning"]) -> Iterator[ModelEvent]:
        if not text:
            return
        if self._open is None or self._open.kind != kind:
            yield from self._close_part()
            self._open = _OpenPart(self._next_index(), kind)
            yield PartStarted(self._open.index, kind)
        self._open.pieces.append(text)
        yield PartDelta(self._open.index, text)

    def _verbatim(self, text: str, part: Json) -> Iterator[ModelEvent]:
        yield from self._close_part()
        index = self._next_index()
        thought = bool(part.get("thought"))
        yield PartStarted(index, "reasoning" if thought else "text")
        if text:
            yield PartDelta(index, text)
        yield PartFinished(index, _thought(text, part) if thought else Text(text, ProviderData(PROVIDER, part)))

    def _call(self, part: Json) -> Iterator[ModelEvent]:
        yield from self._close_part()
        call = _object(part["functionCall"])
        # The answer to a call is matched by its id, so an id that we make up has to be in the replay too.
        call = {**call, "id": call.get("id") or self._mint()}
        name, arguments = str(call.get("name", "")), _object(call.get("args") or {})
        index = self._next_index()
        yield PartStarted(index, "tool_call", name)
        yield PartDelta(index, json.dumps(arguments, ensure_ascii=False))
        data = ProviderData(PROVIDER, {**part, "functionCall": call})
        yield PartFinished(index, ToolCall(str(call["id"]), name, arguments, data))

    def _close_part(self) -> Iterator[ModelEvent]:
        if self._open is not None:
            yield PartFinished(self._open.index, self._open.whole())
            self._open = None

    def _next_index(self) -> int:
        self._count += 1
        return self._count - 1


def _thought(text: str, data: Json) -> Reasoning:
    return Reasoning(text, ProviderData(PROVIDER, data))


def _kind(part: Json) -> str:
    """Name what a part holds, for people."""
    return quoted(next((key for key in part if key not in ("thought", "thoughtSignature")), "none"))


def _check_prompt(feedback: Json) -> None:
    if reason := feedback.get("blockReason"):
        raise _blocked("the prompt", str(reason), feedback.get("blockReasonMessage"))


def _check_reason(reason: str, said: object) -> None:
    if reason in _BLOCKED:
        raise _blocked("its answer", reason, said)
    if reason in _BROKEN:
        words = quoted(said)
        message = f"{_BROKEN[reason]} ({reason}{f': {words}' if words else ''}). Ask again."
        raise StreamBroken(message)


def _blocked(what: str, reason: str, said: object) -> BadRequest:
    why = quoted(said) or _BLOCKED.get(reason, "it does not say why")
    return BadRequest(f"Gemini blocked {what} ({quoted(reason)}): {why.rstrip('.')}. Word the request differently.")


def _error_in_stream(response: Json, model: str) -> Exception:
    error = response["error"]
    code = cast("Json", error).get("code") if isinstance(error, dict) else None
    return refusal(code if isinstance(code, int) else 500, response, model)


def _usage(counts: Json) -> Usage:
    """Count the tokens of a request; Gemini counts its thoughts beside its answer, we count them in."""
    thoughts = _count(counts, "thoughtsTokenCount")
    return Usage(
        input_tokens=_count(counts, "promptTokenCount") + _count(counts, "toolUsePromptTokenCount"),
        cached_tokens=_count(counts, "cachedContentTokenCount"),
        output_tokens=_count(counts, "candidatesTokenCount") + thoughts,
        reasoning_tokens=thoughts,
        requests=1,
        cost=None,
    )


def _count(counts: Json, key: str) -> int:
    value = counts.get(key)
    return value if isinstance(value, int) else 0


def _object(value: object) -> Json:
    if isinstance(value, dict):
        return cast("Json", value)
    raise unreadable()


def _objects(value: object) -> list[Json]:
    items = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [value]
    return [_object(item) for item in items]
