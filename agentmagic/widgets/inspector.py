"""Inspect a turn: its requests as the provider got them, the responses, and where time and tokens went.

`inspect_turn` returns an `Inspection`. A notebook shows it as HTML, a terminal as text; the chat panel gets JSON.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from markupsafe import Markup

from agentmagic.context.request_view import tokens_by_part
from agentmagic.display import html, words
from agentmagic.display.html import element
from agentmagic.display.rich_values import JsonTree
from agentmagic.errors import AgentMagicError, UsageError
from agentmagic.events import Event, InnerCall, StepFinished, StepStarted, ToolFinished, ToolStarted, TurnStarted
from agentmagic.history.history import Turn
from agentmagic.providers.clients import RemoteModel
from agentmagic.providers.registry import info, resolve
from agentmagic.providers.traffic import HttpExchange, ModelExchange
from agentmagic.replay.exchange import Encoder, blank_secrets
from agentmagic.secrets import redact
from agentmagic.serialization import to_json
from agentmagic.session import Session
from agentmagic.text import cut, sanitize, sanitize_json, single_line
from agentmagic.widgets.view_messages import BarRow, InspectionPage, RequestPage

LONGEST_TEXT = 4_000
"""Characters that are shown of each text in a request or a response."""
MOST_CHUNKS = 200
"""Chunks of a response that are shown: half of them from its beginning, half from its end."""
LONGEST_SENT = 200_000
"""Characters of a request, and of a response, that are sent to a page."""
BAR = 30
"""The width of the timeline in a terminal, in characters."""

_BASE64 = re.compile(r"(?:data:[\w/+.-]+;base64,)?[A-Za-z0-9+/_-]{200,}=*")
_COLOURS = {
    "instructions": "#7b61c4",
    "tools": "#1976d2",
    "history": "#5f7a86",
    "results": "#2e8b57",
    "prompt": "#c77700",
}

OURS = "In agentmagic's own form: this model is not asked over HTTP."
ENCODED = "As {} would be sent it: the answer came from a cassette, and nothing was sent."
DROPPED = "As {} encodes it: the request itself was too large to keep."
UNSENT = "As {} encodes it: no connection was made."
SPLIT = "In agentmagic's own form, because a secret stands in it across several chunks. It is blanked here."


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar on the timeline of a turn, for a step or a tool call.

    `start` is in seconds since the turn began, and `seconds` is how long the step or call took. `depth` is 0 for a
    step, 1 for a tool call of the step, and 2 for a call that a running tool made.
    """

    name: str
    depth: int
    start: float = 0.0
    seconds: float = 0.0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class InspectedRequest:
    """One model request and its response: estimated tokens by part, the provider's own count, and both contents.

    `sent` is the request, and `received` has a line for each chunk (piece) of the response. If one of them is not
    exactly what was sent or received, a note explains why.
    """

    title: str
    tokens: Mapping[str, int]
    counted: str
    sent: Any
    sent_note: str
    received: tuple[str, ...]
    received_note: str

    @property
    def sent_text(self) -> str:
        """The request as indented JSON, or only the lines that a search matched."""
        return self.sent if isinstance(self.sent, str) else words.indented_json(self.sent)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `%agent inspect` shows of one turn.

    `tokens` is the number of tokens of the last request and its response; `window` is how many tokens fit into the
    model's context window, None if unknown. `note` says why no requests are shown. If `times` is false, nothing that is
    shown depends on the clock.
    """

    number: int
    prompt: str
    model: str
    tokens: int
    window: int | None
    bars: tuple[Bar, ...]
    requests: tuple[InspectedRequest, ...]
    note: str = ""
    query: str = ""
    times: bool = True

    @property
    def heading(self) -> str:
        """The number, the model and the prompt of the turn."""
        return f"Turn {self.number}, {self.model}: {self.prompt}"

    @property
    def meter(self) -> str:
        """How much of the model's context window is used, in words."""
        share = f" of the window of {self.window:,} ({self.tokens / self.window:.1%})" if self.window else ""
        return f"{self.tokens:,} tokens{share}"

    @property
    def length(self) -> float:
        """The length of the timeline in seconds."""
        return max((bar.start + bar.seconds for bar in self.bars), default=0.0)

    def search(self, query: str) -> "Inspection":
        """Return a copy with only those lines of requests and responses that contain `query`, ignoring case."""
        matches: list[InspectedRequest] = []
        for request in self.requests:
            request_lines = "\n".join(
                line.strip() for line in request.sent_text.splitlines() if query.lower() in line.lower()
            )
            response_lines = tuple(line for line in request.received if query.lower() in line.lower())
            if request_lines or response_lines:
                matches.append(replace(request, sent=request_lines, received=response_lines))
        note = "" if matches else f"{query!r} occurs in no request and no response of this turn."
        return replace(self, requests=tuple(matches), note=note, query=query)

    # -- as text -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        lines = [self.heading, f"Context: {self.meter}", "", *self._timeline()]
        for one in self.requests:
            lines += ["", f"-- {one.title}: {_tokens(one)} --", f"Request. {one.sent_note}".rstrip(), one.sent_text]
            lines += [f"Response. {one.received_note}".rstrip(), *one.received]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    def _timeline(self) -> Iterator[str]:
        width = max((len(bar.name) + 2 * bar.depth for bar in self.bars), default=0)
        for bar in self.bars:
            name = f"{'  ' * bar.depth}{bar.name}{', failed' * bar.failed}"
            if not self.times or not self.length:
                yield name
                continue
            start = round(BAR * bar.start / self.length)
            line = " " * start + "█" * max(1, round(BAR * bar.seconds / self.length))
            yield f"{name:<{width}}  {line:<{BAR + 1}}  {words.duration(bar.seconds)}"

    # -- as HTML -------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        meter = element("p", element("b", "Context: "), self.meter, style=html.HEADING)
        parts = [element("p", element("b", self.heading), style=html.HEADING), meter]
        if self.window:
            parts.append(_track([(min(self.tokens / self.window, 1.0), html.COLOURS["running"], self.meter)]))
        parts += [element("p", element("b", "Timeline"), style=html.HEADING), self._timeline_html()]
        parts += [_request_html(one, is_open=bool(self.query)) for one in self.requests]
        if self.note:
            parts.append(element("p", self.note, style=html.MUTED))
        return Markup('<div class="agentmagic mathjax_ignore">{}</div>').format(Markup().join(parts))

    def _timeline_html(self) -> Markup:
        rows: list[Markup] = []
        for bar in self.bars:
            failure_note = (
                (" ", element("small", "failed", style=f"color:{html.COLOURS['failed']}")) if bar.failed else ()
            )
            cells = [
                element("td", bar.name, *failure_note, style=f"text-align:left;padding-left:{8 + 16 * bar.depth}px")
            ]
            if self.times and self.length:
                offset, share = bar.start / self.length, bar.seconds / self.length
                colour = html.COLOURS["failed" if bar.failed else "done" if bar.depth else "running"]
                box = f"margin-left:{offset:.1%};width:{max(share, 0.005):.1%};height:10px;background:{colour}"
                bar_element = element("div", style=box)
                cells.append(element("td", bar_element, style="width:60%;min-width:160px;text-align:left"))
                cells.append(element("td", words.duration(bar.seconds)))
            rows.append(element("tr", *cells))
        return element("table", element("tbody", *rows))


def _request_html(one: InspectedRequest, *, is_open: bool) -> Markup:
    whole = sum(one.tokens.values()) or 1
    shares = [(number / whole, _COLOURS[part], f"{part}: {number:,}") for part, number in one.tokens.items() if number]
    summary = element("b", one.title, style=html.NAME) + " " + _tokens(one)
    if isinstance(one.sent, str):  # a search left only the lines that match
        request_element = element("pre", one.sent, style=html.PRE)
    else:
        request_element = html.tree(JsonTree(one.sent_text, value=one.sent))
    response_element = element("pre", "\n".join(one.received), style=html.PRE)
    inside = [
        _track(shares),
        _section("Request", one.sent_note, request_element, is_open=is_open),
        _section("Response", one.received_note, response_element, is_open=is_open),
    ]
    body = element("div", *inside, style=html.BODY)
    return html.fold(summary, body, look=html.SUMMARY, style=html.CARD, is_open=is_open)


def _section(name: str, note: str, content: Markup | str, *, is_open: bool) -> Markup:
    note_element = element("p", element("small", note), style=f"margin:2px 0;{html.MUTED}") if note else ""
    return html.fold(element("b", name), note_element, content, style=html.HEADING, is_open=is_open)


def _track(shares: Iterable[tuple[float, str, str]]) -> Markup:
    """Return an HTML bar with a coloured part for each share of a whole; each part has a title."""
    part = Markup('<span title="{}" style="display:inline-block;height:10px;width:{:.2%};background:{}"></span>')
    spans = [part.format(title, share, colour) for share, colour, title in shares]
    edge = f"border:1px solid {html.BORDER};line-height:0;overflow:hidden;margin:2px 0 6px"
    return element("div", *spans, style=edge)


def _tokens(one: InspectedRequest) -> str:
    parts = ", ".join(f"{part} {number:,}" for part, number in one.tokens.items() if number)
    return f"about {sum(one.tokens.values()):,} tokens ({parts}){one.counted}"


# -- gathering it ------------------------------------------------------------------------------------------


def inspect_turn(session: Session, number: int | None = None, *, times: bool = True) -> Inspection:
    """Return what a finished turn sent and received. Turns count from 1; None is the last turn.

    Raises UsageError if the turn does not exist.
    """
    turns = session.turns
    if not turns:
        raise UsageError("There are no turns yet. Ask the agent something, then inspect it.")
    if number is not None and not 1 <= number <= len(turns):
        raise UsageError(f"There is no turn {number}. The session has {len(turns)}; %agent history lists them.")
    number = number or len(turns)
    turn, traffic = turns[number - 1], session.traffic.of(turns[number - 1])
    model = next((event.model for event in turn.events if isinstance(event, TurnStarted)), "")
    exchanges = traffic.exchanges if traffic is not None else []
    requests = tuple(_inspect_request(one, model) for one in exchanges)
    note = "" if exchanges else "What was sent is not kept: the turn made no request, or is too old, or was loaded."
    tokens = tokens_used(turn) or (sum(requests[-1].tokens.values()) if requests else 0)
    window, bars = info(model).window, tuple(_bars(turn.events))
    prompt = single_line(sanitize(turn.prompt.text), 80)
    return Inspection(number, prompt, model, tokens, window, bars, requests, note, times=times)


def page_of(session: Session, number: int) -> InspectionPage:
    """Return the inspection of a turn as JSON for the chat panel; `number` 0 is the last turn."""
    turns = len(session.turns)
    if not turns or number > turns:
        note = "There are no turns yet." if not turns else "That turn is gone."
        return InspectionPage(turn=0, turns=turns, heading="", meter="", share=0, bars=[], requests=[], note=note)
    inspection = inspect_turn(session, number or None)
    whole = inspection.length or 1.0
    return InspectionPage(
        turn=inspection.number,
        turns=turns,
        heading=inspection.heading,
        meter=inspection.meter,
        share=min(inspection.tokens / inspection.window, 1.0) if inspection.window else 0.0,
        bars=[_bar_row(bar, whole) for bar in inspection.bars],
        requests=list(map(_request_page, inspection.requests)),
        note=inspection.note,
    )


def _bar_row(bar: Bar, whole: float) -> BarRow:
    return BarRow(
        name=bar.name,
        depth=bar.depth,
        start=bar.start / whole,
        share=bar.seconds / whole,
        time=words.duration(bar.seconds) if bar.seconds else "",
        failed=bar.failed,
    )


def _request_page(request: InspectedRequest) -> RequestPage:
    return RequestPage(
        title=request.title,
        tokens=request.tokens,
        counted=request.counted,
        sent=cut(request.sent_text, LONGEST_SENT),
        sent_note=request.sent_note,
        received=cut("\n".join(request.received), LONGEST_SENT),
        received_note=request.received_note,
    )


def tokens_used(turn: Turn) -> int:
    """Return the tokens of a turn's last request and its response, as the provider counted them; 0 without a count."""
    steps = [event.usage for event in turn.events if isinstance(event, StepFinished) and event.usage.input_tokens]
    # The input of the last request holds the whole history, and its output joins the input of the next request.
    return steps[-1].input_tokens + steps[-1].output_tokens if steps else 0


def _bars(events: Sequence[Event]) -> Iterator[Bar]:
    """Yield a bar for each step of a turn, then for its tool calls. Time spent waiting for the user is left out.

    The bars of the model's calls in a step begin together.
    """
    clock = end = 0.0
    closing, parents, order = False, dict[str, str](), list[str]()
    calls: dict[str, Bar] = {}
    for event in events:
        match event:
            case StepStarted():
                yield from (calls[call] for call in order)
                clock, closing, order, calls = max(clock, end), event.closing, [], {}
            case StepFinished():
                yield Bar("Closing request" if closing else f"Step {event.step}", 0, clock, event.seconds)
                clock = end = clock + event.seconds
            case InnerCall():
                parents[event.call.id] = event.parent
            case ToolStarted():
                order.append(event.call.id)
                inside = [
                    calls[one] for one in order if parents.get(one) == parents.get(event.call.id, "") and one in calls
                ]
                start = max((bar.start + bar.seconds for bar in inside), default=clock)
                inner = event.call.id in parents
                calls[event.call.id] = Bar(sanitize(event.call.name), 1 + inner, start if inner else clock)
            case ToolFinished():
                call = event.result.call_id
                if call not in calls:
                    order.append(call)
                bar = calls.get(call, Bar(sanitize(event.result.name), 1, clock))
                calls[call] = replace(bar, seconds=event.seconds, failed=event.result.is_error)
                end = max(end, bar.start + event.seconds)
            case _:
                pass
    yield from (calls[call] for call in order)


def _inspect_request(exchange: ModelExchange, model: str) -> InspectedRequest:
    http = exchange.http[-1] if exchange.http else None
    request_json, sent_note = _request_body(exchange, http, model)
    response_lines, received_note = _response_lines(exchange, http)
    count_note = ""
    if (finished := exchange.finished) and (usage := finished.usage).input_tokens:
        count_note = f"; the provider counted {usage.input_tokens:,} in, {usage.output_tokens:,} out"
    tries = f", try {len(exchange.http)}" if len(exchange.http) > 1 else ""
    title = f"{exchange.purpose or f'Step {exchange.step}'}{tries}"
    return InspectedRequest(
        title, tokens_by_part(exchange.request), count_note, request_json, sent_note, response_lines, received_note
    )


def _request_body(exchange: ModelExchange, http: HttpExchange | None, model: str) -> tuple[Any, str]:
    if http is not None and http.request_body and (data := _json(http.request_body)) is not None:
        return _plain(data), f"{http.method} {redact(http.url)}"
    provider = model.partition(":")[0]
    try:
        client = resolve(model)
        body = client.body(exchange.request) if isinstance(client, RemoteModel) else None
    except AgentMagicError:
        body = None
    if body is None:
        return _plain(Encoder(_without_bytes).request(exchange.request)), OURS
    why = DROPPED if exchange.is_dropped or http else UNSENT if exchange.error else ENCODED
    return _plain(body), why.format(provider)


def _response_lines(exchange: ModelExchange, http: HttpExchange | None) -> tuple[tuple[str, ...], str]:
    parts = [part for _, part in sorted(exchange.parts.items())]
    if http is None or not http.chunks or blank_secrets(parts) != to_json(parts):
        lines = tuple(_line(_without_bytes(to_json(part))) for part in parts)
        error_note = f" It failed: {sanitize(exchange.error)}" if exchange.error else ""
        return lines, SPLIT if http and http.chunks else f"In agentmagic's own form.{error_note}"
    cut_off = "" if http.whole else " Only its beginning is kept."
    return tuple(_chunks(b"".join(http.chunks))), f"Status {http.status}.{cut_off}"


def _chunks(body: bytes) -> Iterator[str]:
    """Yield the chunks (pieces) of a response body as JSON, one a line. A line that is not JSON stays as it came."""
    if (whole := _json(body)) is not None:
        yield _line(whole)
        return
    lines = [line for line in body.splitlines() if line.strip() and not line.startswith((b"event:", b":", b"id:"))]
    half = MOST_CHUNKS // 2
    gap = max(0, len(lines) - 2 * half)
    for place, line in enumerate(lines):
        if gap and half <= place < len(lines) - half:
            if place == half:
                yield f"({gap:,} chunks are left out here)"
            continue
        text = line.removeprefix(b"data:").strip()
        data = _json(text)
        yield _text(redact(text.decode("utf-8", "replace"))) if data is None else _line(data)


def _json(text: bytes) -> Any:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("object", data) if isinstance(data, dict | list) else None


def _without_bytes(data: Any) -> Any:
    """Return JSON in which each blob (bytes as agentmagic stores them) is replaced by its size."""
    if isinstance(data, dict):
        members = cast("dict[str, Any]", data)
        if isinstance(blob := members.get("$bytes"), str):
            return f"(base64, {len(blob):,} characters)"
        return {name: _without_bytes(value) for name, value in members.items()}
    return list(map(_without_bytes, cast("list[Any]", data))) if isinstance(data, list) else data


def _plain(data: Any) -> Any:
    """Return JSON with secrets blanked, long texts cut and hidden characters removed."""
    return sanitize_json(blank_secrets(data), _text)


def _line(data: Any) -> str:
    """Return JSON on one line, ready to be shown."""
    return json.dumps(_plain(data), ensure_ascii=False)


def _text(text: str) -> str:
    if _BASE64.fullmatch(text):
        return f"(base64, {len(text):,} characters)"
    return cut(sanitize(text), LONGEST_TEXT)
