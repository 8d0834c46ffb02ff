"""From the chunks of Gemini's `streamGenerateContent` to part events.

Source: https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from agentmagic.errors import BadRequest, MalformedCall, ProviderError, StreamBroken
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import ProviderData, Reasoning, Text, ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.providers.failures import quoted
from agentmagic.providers.gemini.gemini_encoder import PROVIDER
from agentmagic.providers.gemini.gemini_errors import refusal
from agentmagic.providers.wire import Json, count_of, figures_of, kept, mint_id, object_of, objects_of, text_of

_MALFORMED = {
    "MALFORMED_FUNCTION_CALL": "Gemini wrote a tool call that cannot be read",
    "UNEXPECTED_TOOL_CALL": "Gemini called a tool that it was not offered",
    "TOO_MANY_TOOL_CALLS": "Gemini called too many tools at once",
    "MALFORMED_RESPONSE": "Gemini wrote an answer that cannot be read",
}
"""Finish reasons after which there is no answer, but may be once the model is told."""

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
_SIGNED = _PLAIN | {"thoughtSignature"}


@dataclass(slots=True)
class _GeminiPart:
    index: int
    kind: Literal["text", "reasoning"]
    pieces: list[str] = field(default_factory=list[str])

    def whole(self) -> Text | Reasoning:
        text = "".join(self.pieces)
        return Text(text) if self.kind == "text" else _thought(text, {"text": text, "thought": True})


class Decoder:
    """Turns the chunks of one response, as plain JSON, into events.

    Adjacent chunks of words become one part; a chunk that carries a signature, or anything else that
    has to go back as it came, becomes a part of its own. `feed` and `close` raise MalformedCall and
    StreamBroken for what may go better at the next try, and another ProviderError for what would not.
    """

    def __init__(self, model: str, *, mint: Callable[[], str] = mint_id) -> None:
        self._model = model
        self._mint = mint
        self._count = 0
        self._open: _GeminiPart | None = None
        self._usage: Json = {}
        self._reason = ""

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield what one chunk adds to the answer, whatever JSON it is."""
        response = object_of(chunk)
        if error := response.get("error"):
            raise refusal(None, {"error": error}, self._model)
        self._usage = figures_of(response.get("usageMetadata")) or self._usage  # each is the sum so far
        _check_prompt(object_of(response.get("promptFeedback")))
        for candidate in objects_of(response.get("candidates"))[:1]:
            for part in objects_of(object_of(candidate.get("content")).get("parts")):
                yield from self._part(part)
            if reason := text_of(candidate.get("finishReason")):
                _check_reason(reason, candidate.get("finishMessage"))
                self._reason = reason

    def close(self) -> Iterator[ModelEvent]:
        """Yield the end of the response, or raise StreamBroken where it has not come."""
        if not self._reason:
            message = "Gemini's answer broke off before its end. Ask again."
            raise StreamBroken(message)
        yield from self._close_part()
        yield ModelFinished(_usage(self._usage), self._reason, self._reason == "MAX_TOKENS")

    def _part(self, part: Json) -> Iterator[ModelEvent]:
        text = text_of(part.get("text"))
        if part.keys() <= _PLAIN:
            yield from self._words(text, "reasoning" if part.get("thought") else "text")
            return
        part = kept(part)
        if "functionCall" in part:
            yield from self._call(part)
        elif part.get("text") is None and part.keys() - _SIGNED:
            yield from self._verbatim(f"[Gemini sent a part of kind {_kind(part)}, which cannot be shown.]", part)
        else:
            yield from self._verbatim(text, part)

    def _words(self, text: str, kind: Literal["text", "reasoning"]) -> Iterator[ModelEvent]:
        if not text:
            return
        if self._open is None or self._open.kind != kind:
            yield from self._close_part()
            self._open = _GeminiPart(self._next_index(), kind)
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
        call = object_of(part["functionCall"])
        name, arguments = text_of(call.get("name")), object_of(call.get("args"))
        if not name:
            message = "Gemini called a tool without naming it. Ask again."
            raise MalformedCall(message)
        # The answer to a call is matched by its id, so an id that we make up has to be in the replay too.
        call = {**call, "id": text_of(call.get("id")) or self._mint()}
        index = self._next_index()
        yield PartStarted(index, "tool_call", name)
        yield PartDelta(index, json.dumps(arguments, ensure_ascii=False))
        data = ProviderData(PROVIDER, {**part, "functionCall": call})
        yield PartFinished(index, ToolCall(call["id"], name, arguments, data))

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
    if reason := text_of(feedback.get("blockReason")):
        raise _blocked("the prompt", reason, feedback.get("blockReasonMessage"))


def _check_reason(reason: str, said: object) -> None:
    words = quoted(said)
    ending = f"({reason}{f': {words}' if words else ''})"
    match reason:
        case _ if reason in _BLOCKED:
            raise _blocked("its answer", reason, said)
        case _ if reason in _MALFORMED:
            message = f"{_MALFORMED[reason]} {ending}. Ask again."
            raise MalformedCall(message)
        case "MISSING_THOUGHT_SIGNATURE":
            message = f"Gemini misses a thought signature in the history {ending}. Start a new session, or undo a turn."
            raise BadRequest(message)
        case "OTHER":
            message = f"Gemini stopped without saying why {ending}. Ask again."
            raise StreamBroken(message)
        case _:
            return


def _blocked(what: str, reason: str, said: object) -> ProviderError:
    why = quoted(said) or _BLOCKED.get(reason, "it does not say why")
    return BadRequest(f"Gemini blocked {what} ({quoted(reason)}): {why.rstrip('.')}. Word the request differently.")


def _usage(counts: Json) -> Usage:
    """Count the tokens of a request; Gemini counts its thoughts beside its answer, we count them in."""
    thoughts = count_of(counts.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count_of(counts.get("promptTokenCount")) + count_of(counts.get("toolUsePromptTokenCount")),
        cached_tokens=count_of(counts.get("cachedContentTokenCount")),
        output_tokens=count_of(counts.get("candidatesTokenCount")) + thoughts,
        reasoning_tokens=thoughts,
        requests=1,
        cost=None,
    )
