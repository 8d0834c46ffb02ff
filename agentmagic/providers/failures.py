"""Turns failures of all providers into agentmagic's exceptions.

A message says what happened, quotes the server, and says what the user can do.

`find_refused_field` finds the field of a request that a server does not accept.
"""

import json
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ProviderError,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.providers.proxies import proxy_for, route_fault
from agentmagic.providers.too_long import exceeds_rate, is_rate_limit, is_too_long
from agentmagic.providers.wire import FIELD_PLACES, MAPS_OF_SCHEMAS, Json, fields_of
from agentmagic.secrets import redact
from agentmagic.settings import require_key
from agentmagic.text import encodable, is_loopback, single_line

if TYPE_CHECKING:
    import httpx2

LONGEST_QUOTE = 500
"""The most characters of a server's message that an error quotes."""

_PAGE = re.compile(r"<(!doctype html|html|head|title|meta|body|center|h1|div|p)\b", re.IGNORECASE)
"""A tag at the beginning of an HTML page."""

RETRY_ADVICE = "Send the request again."

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""OpenSSL's names for the error that a server's answer is not TLS."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as a server reports it; `code` is the server's error code, or its error type if there is no code.

    `kind` is the class of our exception, if the HTTP status does not determine it. `retry_after` is in seconds.
    `used_up` is True if a quota is used up, and a turn cannot wait until it is renewed. `param` is the field of the
    request that the server names, in OpenAI's form of an error.
    """

    message: str
    code: str = ""
    status: int | None = None
    retry_after: float | None = None
    kind: type[ProviderError] | None = None
    used_up: bool = False
    param: str = ""


@dataclass(frozen=True, slots=True)
class Vendor:
    """The names of a server, a model and environment variables, which error messages need.

    `who` is the name of the server. `keys` are the variables that can hold the API key, `base_url` is the variable with
    the server's address. `hint` is a sentence with one more possible cause. It is shown if a model is unknown. `ending`
    is the end that most base URLs have.
    """

    who: str
    model: str
    keys: Sequence[str]
    base_url: str
    hint: str = ""
    ending: str = ""


def error_for(fault: Fault, vendor: Vendor) -> ProviderError:
    """Return the exception for an error that a server reports.

    Its message says what happened, what the server says, and what to do. It is StreamBroken if `fault` has neither an
    HTTP status nor a kind, and is not read as a conversation that is too long (see `is_too_long`).
    """
    if not (fault.kind or fault.used_up) and is_too_long(fault.message, fault.code, fault.param, fault.status):
        fault = replace(fault, kind=ContextTooLong)
    is_markup = fault.message.lstrip("\ufeff \t\r\n").startswith("<")
    page = is_markup and fault.status and _PAGE.search(fault.message[:LONGEST_QUOTE])
    kind, summary, advice = _explain_page(fault, vendor) if page else _explain(fault, vendor)
    says = f"It says: {sentence(fault.message)}" if fault.message and not is_markup else ""
    text = " ".join(filter(None, (f"{summary}.", says, advice)))
    error = kind(encodable(redact(text)), status=fault.status, retry_after=fault.retry_after)
    error.retryable = kind.retryable and not fault.used_up
    return error


def _explain(fault: Fault, vendor: Vendor) -> tuple[type[ProviderError], str, str]:  # noqa: PLR0911  (one per kind)
    who, model = vendor.who, vendor.model
    match fault.status:
        case _ if fault.kind is ContextTooLong:
            advice = "Start a new session, send less, or choose a model with a larger window."
            return ContextTooLong, f"The conversation no longer fits {model}", advice
        case _ if fault.used_up:
            return RateLimited, f"The quota of {who} is used up", "Check its plan and billing, or take another key."
        case status if fault.kind is AuthenticationFailed or status in (401, 403):
            return AuthenticationFailed, f"{who} refused the key", f"Check {' and '.join(vendor.keys)}."
        case None:
            summary = f"The answer broke off, {who} reports {fault.code or 'an error'}"
            return StreamBroken, summary if fault.message else f"{summary}: it gave no reason", RETRY_ADVICE
        case HTTPStatus.NOT_FOUND:
            return _not_found(fault.message, vendor)
        case 413 | 429 if exceeds_rate(fault.message):
            summary = f"The request is larger than {who} allows at a time"
            return BadRequest, summary, "Send less, or shorten the conversation: %agent compact."
        case status if status == 429 or (status == 413 and is_rate_limit(fault.message)):  # noqa: PLR2004
            return RateLimited, f"{who} takes no more requests for now", "Wait a while, or send fewer."
        case status if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT) or status >= 500:  # noqa: PLR2004
            return Unavailable, f"{who} is not available at the moment ({status})", "Try again later."
        case status if 300 <= status < 400:  # noqa: PLR2004
            summary = f"{who} sends the request on to another address ({status}), which is not followed"
            return BadRequest, summary, f"Set the base URL ({vendor.base_url}) to where it leads, if that is allowed."
        case status:
            advice = "The same request would be refused again."
            return BadRequest, f"{who} refused the request to {model} ({status})", advice


def _not_found(message: str, vendor: Vendor) -> tuple[type[ProviderError], str, str]:
    """Return the class, the summary and the advice for an address or a model that a server does not have."""
    if "model" in message.lower() or vendor.model in message:
        advice = f"Check the name, and the base URL ({vendor.base_url}).{vendor.hint}"
        return BadRequest, f"{vendor.who} has no model {vendor.model!r}", advice
    often = f", which often ends in {vendor.ending}," if vendor.ending else ""
    advice = f"Check the base URL ({vendor.base_url}){often} and the name {vendor.model!r}.{vendor.hint}"
    return BadRequest, f"{vendor.who} has nothing at this address (404)", advice


def _explain_page(fault: Fault, vendor: Vendor) -> tuple[type[ProviderError], str, str]:
    """Return the class, the summary and the advice of the exception for an HTML error page.

    A model's server does not send HTML. So a firewall or proxy answered in its place, and the API key need not be
    wrong.
    """
    too_long = ContextTooLong if fault.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else None
    kind, _, advice = _explain(replace(fault, kind=too_long, used_up=False), vendor)
    if kind in (AuthenticationFailed, BadRequest):
        kind, advice = BadRequest, f"Log in to the network, or ask who runs it; check the base URL ({vendor.base_url})."
    page = f"an HTML page ({fault.status}) came in its place, from a firewall, a proxy or another machine in between"
    return kind, f"{vendor.who} did not answer: {page}", advice


def stream_broken(why: str) -> StreamBroken:
    """Return the error for a response that ended early; `why` is the reason as a clause or sentence."""
    return StreamBroken(redact(f"The answer broke off: {sentence(why)} {RETRY_ADVICE}"))


def connection_broken(who: str, error: BaseException) -> StreamBroken:
    """Return the error for a response whose connection broke."""
    proxy = None
    with suppress(AttributeError, RuntimeError):  # not every error knows its request
        proxy = proxy_for(str(cast("httpx2.HTTPError", error).request.url))
    through = f", through the proxy {proxy}," if proxy else ""
    return stream_broken(f"{who}{through} closed the connection ({str(error) or type(error).__name__})")


def wrong_content_type(who: str, kind: str, variable: str, status: int | None = None, text: str = "") -> BadRequest:
    """Return the error for a response of content type `kind`, which is not a stream of events.

    The cause can be the login page of a proxy, or a wrong address. `text` is the text of the response, if readable.
    """
    says = f" It says: {sentence(text)}" if text else ""
    page = " A firewall, a proxy or the login page of a network may have answered." if "html" in kind else ""
    message = (
        f"{who} answered with {quote(kind)[:80]} in place of a stream.{says}{page} Check the base URL ({variable})."
    )
    return BadRequest(redact(message), status=status)


def sentence(message: str) -> str:
    """Return the message of a server or library as one safe, short line (see `quote`), with a full stop at the end."""
    message = quote(message) or "it gave no reason."
    return message if message.endswith((".", "!", "?")) else f"{message}."


def quote(message: object) -> str:
    """Return a server's message on one line, shortened and without secrets; "" for a value that is not a string."""
    if not isinstance(message, str):
        return ""
    # Secrets are removed before the text is cut: half of a secret would not be recognized.
    return single_line(encodable(redact(message)), LONGEST_QUOTE)


def usable_key(who: str, key: str | None, names: Sequence[str]) -> str:
    """Return the API key to send. This is `key`, or else the key that is set under one of the names.

    Raises AuthenticationMissing if there is no key, and AuthenticationFailed if a header cannot contain the key.
    """
    key = (key or require_key(who, names)).strip()
    if key.isascii() and key.isprintable():
        return key
    # The key's characters are checked here, because an HTTP client's own error would show the key.
    raise AuthenticationFailed(
        f"The {who} key holds characters that no key has. Copy it into {' or '.join(names)} once more."
    )


def usable_url(url: str, variable: str, example: str) -> str:
    """Return `url` if it is a valid HTTP address. Raises BadRequest if not.

    The error's message names `variable`, the environment variable in which the user sets the address.
    """
    if _is_address(url):
        return url
    better = f"https://{url}"
    cure = quote(better)[:200] if "://" not in url and _is_address(better) and not re.search(r"\s", url) else ""
    raise BadRequest(
        f"The base URL {quote(url)[:200]!r} is no address. Set {variable} to {cure or f'one like {example}'}."
    )


def _is_address(url: str) -> bool:
    with suppress(ValueError):  # from urlsplit: the port is not a number, or an IPv6 address is incomplete
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    return False


def unreachable(who: str, error: Exception, variable: str, url: str = "", hint: str = "") -> Unavailable:
    """Return the exception for a server at `url` that could not be reached.

    `variable` is the environment variable in which the user sets the URL. `hint` is a sentence with further advice.
    """
    route = route_fault(error)
    proxy = route.proxy if route else ""
    if fault := certificate_fault(error):
        opener = f"the proxy {proxy}" if proxy else "a proxy"
        advice = (
            f"Check the base URL ({variable}); if {opener} opens the traffic, set SSL_CERT_FILE to its certificate."
        )
        failure = Unavailable(redact(f"{who} cannot be reached safely: {quote(fault)}. {advice}"))
        failure.retryable = False  # a retry would get the same certificate
        return failure
    if route:
        failure = Unavailable(redact(f"{who} cannot be reached: {route}"))
        failure.retryable = not (route.lasting or (is_loopback(proxy) and _is_connection_refused(error)))
        return failure
    cause = error.__cause__ or error
    reason = quote(str(cause)) or type(cause).__name__
    advice = f"Check the network, that the server runs, and the base URL ({variable}).{hint}"
    failure = Unavailable(redact(f"{who} cannot be reached ({reason}). {advice}"))
    # A retry does not help if the server is on this machine and is not running.
    failure.retryable = not (is_loopback(url) and _is_connection_refused(error))
    return failure


def _is_connection_refused(error: BaseException | None) -> bool:
    """Return whether no server listens, because the connection was refused at every address of the host."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        if isinstance(error, BaseExceptionGroup):
            return all(map(_is_connection_refused, cast("BaseExceptionGroup[BaseException]", error).exceptions))
        error = error.__cause__ or error.__context__
    return False


def certificate_fault(error: BaseException | None) -> str:
    """Return what is wrong with a server's certificate or TLS, or "" if the error has another cause."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted, {getattr(error, 'verify_message', error)}"
        if isinstance(error, ssl.SSLError) and getattr(error, "reason", "") in _NO_TLS:
            return "it does not speak TLS there; http:// may be meant"
        error = error.__cause__ or error.__context__
    return ""


_REQUIRED_FIELDS = frozenset(
    {"model", "stream", *FIELD_PLACES, "system", "instructions", "systeminstruction"}
    | {"role", "content", "parts", "type", "text", "name", "id", "callid", "toolcallid", "tooluseid", "toolcalls"}
    | {"arguments", "args", "output", "response", "function", "functioncall", "functionresponse", "source", "data"}
    | {"imageurl", "images", "file", "filedata", "inlinedata", "mediatype", "mimetype", "url"}
    | {"functiondeclarations", "parameters", "parametersjsonschema", "inputschema", "schema", "jsonschema"}
    | {"properties", "required", "items", "description"}
    | {"googlesearch", "urlcontext", "toolcall", "toolresponse", "executablecode", "codeexecutionresult"}
    | {
        "alloweddomains",
        "filters",
        "maxuses",
        "maxtoolcalls",
        "urlsources",
    }  # limits of hosted tools: they must not be dropped silently
)
"""Fields that are never left out of a request, in the spelling of `_bare`."""

_LIMITS = ("max_tokens", "max_completion_tokens")
"""Two names of one field. If a server refuses one and names the other, the value is sent under the other name."""

_MESSAGE_FIELDS = (
    "message",
    "msg",
    "detail",
    "details",
    "error",
    "errors",
    "type",
    "code",
    "reason",
    "description",
    "raw",
)
_MORE_MESSAGE_FIELDS = ("metadata", "fieldViolations", "error_message", "external_model_message")
"""The fields of an error that hold the server's own message. Other fields can repeat text from the request."""

_LONGEST_REFUSAL = 8_000
"""The most characters of an error that are searched for the name of a field."""

_REFUSAL = re.compile(
    r"un(?:recogni[sz]ed|supported|known|expected|permitted)|extra(?:neous|_forbidden)|deprecated|cannot find field"
    r"|(?:\bnot|n't) (?:be |a |currently |yet )*(?:support|permit|allow|accept|recogni[sz]|implement)"
    r"|(?:not a valid|no such) (?:field|param|arg|key|prop|format)|\bonly\b.{1,80}\bsupported"
    r"|invalid (?:request )?(?:field|param|arg|key|prop)(?!.*\b(?:must|value)\b)"
    r"|cannot (?:both )?be (?:used|specified|set|combined)|(?:please|must|should|to) (?:not be|be )?(?:remove|omit)"
    r"|only (?:enabled|allowed|valid|available) (?:when|if|for|with|on)"
    r"|(?:must|should) not be (?:set|sent|given|used|provided)",
    re.IGNORECASE,
)
_PATTERN_REFUSAL = re.compile(
    r"(?:regex|regular expression|look-?(?:around|ahead|behind)).{0,80}(?:invalid|support|error|fail|allow|permit)"
    r"|(?:invalid|support|not a|bad|fail).{0,40}(?:regex|regular expression|look-?(?:around|ahead|behind))"
    r"|pattern must|(?:pars\w+|compil\w+) .{0,20}(?:grammar|regex)",
    re.IGNORECASE | re.DOTALL,
)
_OTHER_NAMES = re.compile(
    r"\b(?:expected|did you mean|instead|(?:valid|allowed|supported) \w+ (?:are|include))\b", re.IGNORECASE
)
"""Words in a refusal after which the server names fields that it accepts."""

_QUOTATION = re.compile(r"(?<!\w)(['\"`])((?:(?!\1)[^\n]){0,500})\1(?!\w)")
_NO_FIELD = re.compile(r"context=\([^)]*\)|\b(?:function|tool)\s+['\"`]?[\w.-]+['\"`]?", re.IGNORECASE)
"""The places in an error where a name is the name of a property or of a tool, not of a field."""
_WORD = re.compile(r"[\w$-]+")
_FIELD_PATH = re.compile(r"[\w$-]+(?:\.[\w$-]+|\[[\w$-]*\])*")
_BEFORE_NAME = re.compile(
    r"(?:['\"`\[(]|\b(?:argument|parameter|param|field|property|keyword|key|option|attribute|support|valid)s?:?\s+"
    r"|\b(?:supplied|supported|schema|unsupported|unknown|unrecogni[sz]ed|unexpected|permitted):\s+)$",
    re.IGNORECASE,
)
_REPEATED_ERROR = re.compile(
    r"(?:['\"]type['\"]: ?['\"]([\w.]+)['\"], ?)?"
    r"['\"]loc['\"]: ?[(\[]([^)\]]*)[)\]](?:, ?['\"]msg['\"]: ?['\"]([^'\"]*))?"
)
"""An error of pydantic that is quoted in the text of another error, in Python or JSON syntax."""


def find_refused_field(error: object, body: Json) -> tuple[str, str]:
    """Return the field of a request that a server refuses, and the field to use instead, or "" if none exists.

    `error` is the server's error, as JSON of any form; `body` is the request. A field is returned as "tools.NAME" or
    "messages.NAME" if it is inside the tools or messages of the request, and as "body.PATH" elsewhere. The result is
    ("", "") if the error names no field of the request, or only fields that the request needs.
    """
    fields = [place for place in dict.fromkeys(fields_of(body)) if _can_omit(place, body)]
    text = "\n".join(islice(_message_lines(error), 100))[:_LONGEST_REFUSAL]
    # A quotation with blanks in it is a value and not the name of a field, so it is removed.
    names = _QUOTATION.sub(lambda match: " " if re.search(r"\s", match[2]) else match[0], text)
    for sentence in re.split(r"\n|(?<=[.!?;])\s+", _NO_FIELD.sub(" ", names)):
        line = _OTHER_NAMES.split(sentence)[0]
        if _REFUSAL.search(line) and (field := next(_fields_in(line, fields), None)):
            name = field.rpartition(".")[2]
            other = next((one for one in _LIMITS if name in _LIMITS and one != name and one in text), "")
            return field, other
    patterns = sorted((one for one in fields if one.endswith((".pattern", ".patternProperties"))), reverse=True)
    return (patterns[0], "") if patterns and _PATTERN_REFUSAL.search(text) else ("", "")


def field_notice(field: str, other: str) -> str:
    """Return a notice that tells the user that a refused `field` is left out of requests, or replaced by `other`.

    `field` and `other` are as `find_refused_field` returns them.
    """
    place, _, path = field.partition(".")
    where = f" of the {place}" if place in ("messages", "tools") else ""
    how = f"with `{other}` in its place" if other else "without it"
    return f"The server refused `{single_line(path or place, 80)}`{where}; the request was sent again {how}."


def _can_omit(field: str, body: Json) -> bool:
    """Return whether the request `body` can be sent without a field."""
    # Servers need the id of a call to match its result. Only Gemini does not need it. The field `contents` shows that a
    # request is for Gemini.
    name = _bare(field.rpartition(".")[2])
    return name not in _REQUIRED_FIELDS or (name == "id" and field.startswith("messages") and "contents" in body)


def _message_lines(value: object, depth: int = 8) -> Iterator[str]:
    """Yield the lines of the server's message in an error, without the text that the error repeats from the request."""
    if isinstance(value, str):
        value = value[:_LONGEST_REFUSAL]
        with suppress(ValueError, RecursionError):
            if value.lstrip()[:1] in ("{", "["):
                yield from _message_lines(json.loads(value), depth - 1)
                return
        errors = _REPEATED_ERROR.findall(value)
        yield from (f"{'.'.join(_WORD.findall(where))}: {kind} {why}" for kind, where, why in errors)
        yield from [] if errors else [value]
    elif isinstance(value, list) and depth > 0:
        for item in cast("list[object]", value):
            yield from _message_lines(item, depth - 1)
    elif isinstance(value, dict) and depth > 0:
        error = cast("Json", value)
        if isinstance(where := error.get("loc"), list):
            yield f"{'.'.join(map(str, cast('list[Any]', where)))}: {error.get('msg')} {error.get('type')}"
            return
        words = [error[name] for name in (*_MESSAGE_FIELDS, *_MORE_MESSAGE_FIELDS) if name in error]
        field = f"'{error['param']}' " if isinstance(error.get("param"), str) else ""
        for line in (line for one in words for line in _message_lines(one, depth - 1)):
            yield f"{field}{line}"


def _fields_in(line: str, fields: Sequence[str]) -> Iterator[str]:
    """Yield the fields among `fields` that a line of an error names, in the order in which they appear in the line."""
    matches = [(match, _WORD.findall(match[0])) for match in _FIELD_PATH.finditer(line)]
    paths = [(match, [one for one in parts if not one.isdigit()]) for match, parts in matches]
    roots = [_root(parts) for _, parts in paths]
    for match, parts in paths:
        # After a keyword such as "properties", a name belongs to a property in a JSON Schema, not to a request field.
        if not parts or (len(parts) > 1 and parts[-2] in MAPS_OF_SCHEMAS):
            continue
        before, after = line[: match.start()], line[match.end() :]
        is_name = re.search(r"[_$]|[a-z][A-Z]", parts[-1]) or len(parts) > 1 or _BEFORE_NAME.search(before[-40:])
        begins = not before.strip() and re.match(r"\s*:|\s+(?:is|are|was|cannot)\b", after)
        if not is_name and not begins:
            continue
        alike = [one for one in fields if _is_alias(parts[-1], one.rpartition(".")[2])]
        place = _root(parts)
        likely = place or next(filter(None, roots), "tools" if "schema" in line.lower() else "body")
        alike.sort(key=lambda one: not one.startswith(likely))
        yield from (one for one in alike[:1] if one.startswith(place))


def _root(parts: Sequence[str]) -> str:
    """Return "messages" or "tools" if the path of a field begins in that part of a request, or else ""."""
    at = parts[:1] == ["body"]
    return FIELD_PLACES.get(parts[at], "") if len(parts) > at + 1 else ""


def _is_alias(name: str, field: str) -> bool:
    return _bare(name) == _bare(field) or (name, field) == ("thinking", "think")  # Ollama uses both names for a field


def _bare(name: str) -> str:
    """Return a name in lower case without separators, so that max_tokens and maxTokens are equal."""
    return name.replace("_", "").replace("-", "").lower()
