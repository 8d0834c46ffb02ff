"""Finds the error in what a server sends in place of an answer, also with status 200, and the status that it means."""

import re

from agentmagic.providers.too_long import is_too_long
from agentmagic.providers.wire import Json, object_of, objects_of, text_of

# The fields of error bodies, from the documents and reports of 2026-11: OpenAI, vLLM ("object"), xAI and NestJS (a text
# in "error"), FastAPI ("detail"), Cloudflare ("success", "errors"), Z.ai ("msg"), MiniMax ("base_resp"), Baidu
# ("error_code"), DashScope ("code"), AWS ("Message"), Apigee ("fault").
_MESSAGES = (
    *("message", "msg", "error_msg", "error_message", "errorMessage", "status_msg", "Message", "detail", "details"),
    *("faultstring", "error_description", "reason", "title"),
)
_CODES = ("code", "error_code", "errorCode", "status_code", "statusCode", "__type")
_GOOD_CODES = frozenset({"", "0", "200", "ok", "OK", "success", "Success"})
_ANSWER = ("choices", "output", "candidates", "content", "usage", "id")
"""Fields of answers. A body with one of them is an error only if it has the field "error"."""
_LONGEST = 4_000

_STATUS_WORDS = (
    (
        402,
        r"insufficient.?(?:balance|credits?|funds|quota)|current quota|arrear|credit balance|余额不足|payment required",
    ),
    (429, r"rate.?limit|too many requests|throttl|high concurrency|per minute|resource.?exhausted|\bquota"),
    (401, r"(?:invalid|incorrect|wrong|missing|expired|no)[ _-]?(?:\w+ ){0,2}(?:api[ _-]?key|credentials?|\w+ token)"),
    (401, r"api[ _-]?key.{0,30}(?:not valid|invalid|missing|required|expired)|login fail|^(?:forbidden|invalid token)"),
    (401, r"unauthori[sz]ed|(?:un|not )authenticated|authentication|(?:access|permission).?denied"),
    (404, r"model\b.{0,80}\b(?:not found|not exist|unknown)|model_?not_?found|(?:no such|unknown) model|^not found"),
    (503, r"overloaded|(?:server|service|system) (?:is )?(?:\w+ )?busy|unavailable|at capacity|try again later"),
    (504, r"timed out|time-?out"),
    (500, r"internal.{0,8}error|server error"),
    (400, r"invalid.?(?:request|param|argument|input)|validation|bad request|not allowed|field required"),
)
_STATUSES = tuple((status, re.compile(words, re.IGNORECASE)) for status, words in _STATUS_WORDS)
"""The status that the words of an error mean, the first row that fits."""


def find_error(body: object) -> Json | None:
    """Return the error in the JSON that a server sends, with a "message" and a "code" if it has them, or None.

    The body is any JSON. It is an error if it says so ("error", "fault", "success": false, ...), or if it has a message
    or a code and no field of an answer.
    """
    fields = object_of(body)
    error = fields.get("error")
    if error and isinstance(error, dict | str):
        return _within(fields, error)  # pyright: ignore[reportUnknownArgumentType]
    if error or "error" in (fields.get("object"), fields.get("type")):
        return _named(fields)
    if _code(result := object_of(fields.get("base_resp"))):
        return _named(result)
    return None if any(fields.get(name) is not None for name in _ANSWER) else _loose_error(fields)


def _loose_error(fields: Json) -> Json | None:
    for inner in (one for name in ("fault", "errors", "detail") for one in objects_of(fields.get(name))):
        error = object_of(inner.get("error")) or inner
        if "loc" not in inner and (_code(error) or _words(error)):
            return _within(fields, error)
    is_error = fields.get("success") is False or fields.get("status") == "error"
    return _named(fields) if is_error or _code(fields) or _words(fields) else None


def _within(fields: Json, error: object) -> Json:
    """Return the error in a field of a body, with the code and the message beside it if it has none itself."""
    named, outer = _named(object_of(error) or {"message": error}), _named(fields)
    if isinstance(error, str) and outer.get("message", error) != error:
        named["message"] = f"{error}: {outer['message']}"
    return {name: outer[name] for name in ("message", "code") if name in outer} | named


def _named(error: Json) -> Json:
    return error | {name: value for name, value in (("message", _words(error)), ("code", _code(error))) if value}


def _words(error: Json) -> str:
    """Return the message of an error, which can stand in many fields, or ""."""
    if text := next((text for name in _MESSAGES if (text := text_of(error.get(name)))), ""):
        return text
    if places := [one for one in objects_of(error.get("detail")) if isinstance(one.get("loc"), list)]:
        # FastAPI writes an entry for each field that it refuses.
        return "; ".join(f"{'.'.join(map(str, one['loc'][:9]))}: {one.get('msg')}" for one in places[:5])
    errors = error.get("errors")
    return text_of(errors[0]) if isinstance(errors, list) and errors else ""  # pyright: ignore[reportUnknownArgumentType]


def _code(error: Json) -> str:
    values = (error.get(name) for name in _CODES)
    codes = [str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)]
    if isinstance(status := error.get("status"), int):  # Spring; Gemini has a word there, and a number in "code"
        codes.append(str(status))
    return next((code for code in codes if code not in _GOOD_CODES), "")


def status_of(code: str, message: str) -> int | None:
    """Return the HTTP status that an error's code or words mean, or None if both are unknown.

    It is for an error without a status of its own, as it came inside a stream or with status 200.
    """
    if re.fullmatch(r"[45]\d\d", code):  # some compatible servers send an HTTP status as the error code
        return int(code)
    if is_too_long(message, code):
        return 400
    words = f"{message[:_LONGEST]}\n{code[:100]}"
    return next((status for status, pattern in _STATUSES if pattern.search(words)), None)
