"""Turns the chunks of Gemini's `streamGenerateContent` into part events.

https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    MalformedCall,
    ProviderError,
    StreamBroken,
)
from agentmagic.messages import ProviderData, Reasoning, Text, ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.providers.error_bodies import find_error, status_of
from agentmagic.providers.failures import Fault, Vendor, error_for, quote, stream_broken
from agentmagic.providers.finish_reasons import Ending, ending_of
from agentmagic.providers.gemini import BASE_URL, KEYS
from agentmagic.providers.gemini.encoder import PROVIDER, is_before_3
from agentmagic.providers.gemini.server_parts import ServerParts, citations, metadata_parts, queries_of, sources_of
from agentmagic.providers.hosted import MOST_CITATIONS, LateCitations
from agentmagic.providers.repeats import SentCalls
from agentmagic.providers.streams import SETTLE
from agentmagic.providers.wire import (
    Json,
    PartWriter,
    clean_data,
    count_of,
    figures_so_far,
    mint_id,
    object_of,
    objects_of,
    read_arguments,
    text_of,
    tool_name,
)

_BAD_KEY = re.compile(r"\bapi[ _]key\b.*(?:not valid|invalid|expired|not found)", re.IGNORECASE | re.DOTALL)
_DAILY = re.compile(r"PerDay")
"""The part of a quota's id that marks a daily quota; other quotas are counted per minute."""
_STATUS_OF = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
}
"""The HTTP status for the name of an error without a numeric code. All other names mean a failure of the server."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s?")


def refusal(  # noqa: PLR0913  (facts about one response)
    status: int | None,
    payload: object,
    model: str,
    *,
    retry_after: float | None = None,
    who: str = "Gemini",
    asked: str = "",
) -> ProviderError:
    """Return our exception for an error of the server, from the HTTP status and the JSON body of the response.

    `status` is None for an error inside a stream: its status is then in `payload`. `retry_after` is the value of the
    header `Retry-After`, in seconds. If `payload` has a delay, that delay counts instead. `asked` is the
    address of the request.
    """
    error = (objects_of(payload) or [{}])[0]  # some endpoints send a list with one error
    error = find_error(error) or error  # the error can be inside {"error": ...}, or stand alone
    code, message = error.get("code"), error.get("message")
    message = message if isinstance(message, str) else ""
    if not status:
        known = _STATUS_OF.get(str(error.get("status")))
        status = status_of(str(code or ""), "") or known or status_of("", message) or 500
    details = objects_of(error.get("details"))
    is_refusal = status < 500 and status != 429  # noqa: PLR2004  (HTTP: a refusal that no retry helps)
    kind = AuthenticationFailed if is_refusal and _BAD_KEY.search(message) else None
    quotas = [str(violation) for detail in details for violation in objects_of(detail.get("violations"))]
    fault = Fault(
        message,
        status=status,
        retry_after=_delay(details) or retry_after,
        kind=kind,
        used_up=status == 429 and any(map(_DAILY.search, quotas)),  # noqa: PLR2004  (HTTP: too many requests)
        asked=asked,
    )
    return error_for(fault, Vendor(who, model, KEYS, BASE_URL))


def _delay(details: list[Json]) -> float | None:
    """Return the seconds to wait before a retry, from a delay such as "34.07s" in the details of a server's error."""
    delay = next((detail["retryDelay"] for detail in details if "retryDelay" in detail), None)
    match = _SECONDS.fullmatch(delay) if isinstance(delay, str) else None
    return float(match[1]) if match else None


_MALFORMED_REASONS = {
    "MALFORMED_FUNCTION_CALL": "Gemini wrote a tool call that cannot be read",
    "UNEXPECTED_TOOL_CALL": "Gemini called a tool that it was not offered",
    "TOO_MANY_TOOL_CALLS": "Gemini called too many tools at once",
    "MALFORMED_RESPONSE": "Gemini wrote an answer that cannot be read",
}
"""Finish reasons of a failed answer for which a retry can help, because the model is told the reason."""

_BLOCK_REASONS = {
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
"""Finish reasons, and reasons for a blocked prompt, for which a retry does not help."""

_COUNTS = ("prompt", "toolUsePrompt", "cachedContent", "candidates", "thoughts")
_TOTAL = "totalTokenCount"
_METADATA = frozenset({"groundingMetadata", "urlContextMetadata", "citationMetadata"})
_FIELDS = frozenset({"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"})
_PLAIN = frozenset({"text", "thought"})
_SIGNED = _PLAIN | {"thoughtSignature"}


class Decoder:
    """Turns the chunks of one response, as plain JSON, into model events.

    Adjacent chunks of text become one part. A chunk with a signature, or with other data that must be sent back
    unchanged, becomes a separate part. `circulates` is True if the request set the field whose name is in the constant
    `CIRCULATES`: then searches and page fetches of Google's servers are parts of the answer. Otherwise they are only in
    its metadata. `feed` and `close` raise MalformedCall or StreamBroken if a retry can help, and another ProviderError
    if not.
    """

    def __init__(self, model: str, *, mint: Callable[[], str] = mint_id, circulates: bool = False) -> None:
        self._model = model
        self._mint = mint
        self._circulates = circulates
        self._server = ServerParts(PROVIDER, mint)
        self._calls = SentCalls()
        self._texts = LateCitations(lambda text: ProviderData(PROVIDER, {"text": text}))
        self._grounding: Json = {}
        self._recited: list[Json] = []
        self._urls: Json = {}
        self._writer = PartWriter(lambda text, _field: _reasoning(text, {"text": text, "thought": True}))
        self._usage: Json = {}
        self._reason = ""
        self._ending: Ending = "whole"
        self._answerer = ""
        self._began = False
        self._answered = False
        self.rest: float | None = None

    @property
    def usage_so_far(self) -> Usage | None:
        """The tokens that the answer has used so far, or None if the server has not reported them."""
        return replace(_usage(self._usage), searches=self._searches()) if self._usage else None

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield the model events in a chunk of the response. The chunk is unchecked: it can be any JSON."""
        response = object_of(chunk)
        self._began = self._began or bool(_FIELDS & response.keys())
        if error := response.get("error"):
            raise refusal(None, {"error": error}, self._model)
        if usage := object_of(response.get("usageMetadata")):
            self._usage = _most(self._usage, usage)
        if feedback := response.get("promptFeedback"):
            _check_prompt(object_of(feedback))
        for candidate in objects_of(response.get("candidates"))[:1]:
            self._answered = True
            self._take_metadata(candidate)
            for part in objects_of(object_of(candidate.get("content")).get("parts")):
                yield from self._texts.take(self._part(part))
            if reason := text_of(candidate.get("finishReason")):
                if reason == "TOO_MANY_TOOL_CALLS" and self._server.called:
                    raise MalformedCall("Gemini searched too often within one answer. Ask for less at once.")
                self._ending = _ending_of(reason, candidate.get("finishMessage"))
                self._reason, self.rest = reason, SETTLE  # a chunk with the token counts can still follow
                self._answerer = text_of(response.get("modelVersion"))

    def close(self, *, done: bool = False) -> Iterator[ModelEvent]:
        """Yield the last model events, at the end of the response. Raises StreamBroken if it is not complete."""
        if self._began and not self._answered:
            self._reason = "NO_CANDIDATES"  # not from Gemini: we made this name
        if done and self._answered and not self._reason:
            self._reason = "STOP"
        if not self._reason:
            raise stream_broken("the response ended before it was complete")
        yield from self._texts.take(self._writer.finish())
        yield from self._texts.close(
            citations(self._texts.text, clean_data(self._grounding), clean_data(self._recited))
        )
        if self._only_metadata:
            for part in metadata_parts(self._grounding, self._urls, PROVIDER, self._mint):
                yield from self._writer.whole(part)
        usage = replace(_usage(self._usage), searches=self._searches())
        cut, unknown = self._ending == "cut", self._ending == "unknown"
        yield ModelFinished(usage, self._reason, cut, model=self._answerer, unknown=unknown)

    @property
    def _only_metadata(self) -> bool:
        """Whether searches and fetches by Google's servers are only in the answer's metadata, and not in its parts."""
        return not (self._circulates or self._server.called)

    def _searches(self) -> int:
        if not self._only_metadata:
            return self._server.searches()
        searches = queries_of(self._grounding)  # before Gemini 3, one search is billed per answer
        return min(searches, 1) if is_before_3(self._model) else searches

    def _take_metadata(self, candidate: Json) -> None:
        """Store the metadata of an answer about searches and fetched pages, if there is any.

        From then on, finished texts are held back, because their citations can come in a later chunk.
        """
        if not _METADATA.isdisjoint(candidate):
            self._texts.holds = True
            self._grounding = figures_so_far(self._grounding, object_of(candidate.get("groundingMetadata")))
            self._recited += objects_of(sources_of(object_of(candidate.get("citationMetadata"))))[:MOST_CITATIONS]
            self._urls = figures_so_far(self._urls, object_of(candidate.get("urlContextMetadata")))

    def _part(self, part: Json) -> Iterator[ModelEvent]:
        text = text_of(part.get("text"))
        if part.keys() <= _PLAIN:  # only text or a thought, as in nearly every part
            if text:
                yield from self._writer.think(text, "thought") if part.get("thought") else self._writer.say(text)
            return
        part = clean_data(part)
        if "functionCall" in part:
            yield from self._call(part)
        elif part.get("text") is None and part.keys() - _SIGNED:
            for one in self._server.parts(part):
                yield from self._writer.whole(one)
            self._texts.holds = True
        else:
            yield from self._verbatim(text, part)

    def _verbatim(self, text: str, part: Json) -> Iterator[ModelEvent]:
        whole = _reasoning(text, part) if part.get("thought") else Text(text, ProviderData(PROVIDER, part))
        yield from self._writer.whole(whole)

    def _call(self, part: Json) -> Iterator[ModelEvent]:
        call = object_of(part["functionCall"])
        name, arguments = tool_name(call.get("name")), read_arguments(call.get("args"))
        # A signature belongs to one part, so it can tell a repeated call from a second one if there are no ids.
        key = text_of(call.get("id") or part.get("thoughtSignature"))
        if key and self._calls.is_again(ToolCall(key, name, arguments)):
            return
        # Gemini may send a call without an id. The later request needs the same id in the call and in its result, so a
        # new id is also put into the data that is sent back.
        call = {**call, "id": text_of(call.get("id")) or self._mint()}
        data = ProviderData(PROVIDER, {**part, "functionCall": call})
        yield from self._writer.whole(ToolCall(call["id"], name, arguments, data))


def _reasoning(text: str, data: Json) -> Reasoning:
    return Reasoning(text, ProviderData(PROVIDER, data))


def _check_prompt(feedback: Json) -> None:
    if reason := text_of(feedback.get("blockReason")):
        raise _blocked_error("the prompt", reason, feedback.get("blockReasonMessage"))


def _ending_of(reason: str, detail: object) -> Ending:
    """Return how an answer ended. Raises ProviderError, with Gemini's `detail`, if the answer cannot be used."""
    message = quote(detail)
    ending = f"({reason}{f': {message}' if message else ''})"
    match reason.upper():
        case reason if reason in _BLOCK_REASONS:
            raise _blocked_error("its answer", reason, detail)
        case reason if reason in _MALFORMED_REASONS:
            raise MalformedCall(f"{_MALFORMED_REASONS[reason]} {ending}. Ask again.")
        case "MISSING_THOUGHT_SIGNATURE":
            advice = "Start a new session, or undo a turn."
            raise BadRequest(f"Gemini misses a thought signature in the history {ending}. {advice}")
        case "OTHER":
            raise StreamBroken(f"Gemini stopped without saying why {ending}. Ask again.")
        case _:
            return ending_of(reason)


def _blocked_error(what: str, reason: str, detail: object) -> ProviderError:
    why = quote(detail) or _BLOCK_REASONS.get(reason, "it does not say why")
    return BadRequest(f"Gemini blocked {what} ({quote(reason)}): {why.rstrip('.')}. Word the request differently.")


def _most(before: Json, now: Json) -> Json:
    """Return the token counts so far, from the counts `before` and the counts `now` of the latest chunk.

    The counts in a chunk include those of earlier chunks. But if Google's servers ran a tool, some counts shrink, and
    some are missing in the last chunk. Then the larger of each old and new count is taken.
    """
    if now.keys() >= before.keys() and count_of(now.get(_TOTAL)) >= count_of(before.get(_TOTAL)):
        return now
    return {name: max(count_of(now.get(name)), count_of(before.get(name))) for name in before | now}


def _usage(counts: Json) -> Usage:
    """Return the usage of a request from Gemini's token counts.

    Gemini counts thoughts apart from the answer; here they are part of the output tokens.
    """
    prompt, beside, cached_tokens, output, thoughts = (count_of(counts.get(f"{name}TokenCount")) for name in _COUNTS)
    return Usage(prompt + beside, cached_tokens, output + thoughts, thoughts, requests=1, cost=None)
