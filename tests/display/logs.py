"""Event logs for the tests of the renderers, made by hand and drawn by hypothesis, and the words of their HTML."""

from html.parser import HTMLParser
from typing import get_args

from hypothesis import strategies as st

from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    Notice,
    PartDelta,
    PartFinished,
    PartStarted,
    PromptAdded,
    PromptValue,
    QuestionAnswered,
    QuestionAsked,
    RunResult,
    StepFinished,
    StepRetried,
    StepStarted,
    StopReason,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    ValueKind,
)
from agentmagic.messages import (
    Citation,
    HostedCall,
    HostedResult,
    Media,
    Reasoning,
    Resource,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    user,
)

MODEL = "scripted:lesson"
USAGE = Usage(1200, 200, 34, 0, 2, 0.0019)


def started(prompt: str = "Hello") -> list[Event]:
    return [TurnStarted(user(prompt), MODEL), StepStarted(1, MODEL)]


def text(words: str, index: int = 0) -> list[Event]:
    return [PartStarted(index, "text"), PartDelta(index, words), PartFinished(index, Text(words))]


def reasoning(words: str, index: int = 0) -> list[Event]:
    return [PartStarted(index, "reasoning"), PartDelta(index, words), PartFinished(index, Reasoning(words))]


def asked_for(call: ToolCall, index: int = 0) -> list[Event]:
    return [PartStarted(index, "tool_call", call.name), PartFinished(index, call)]


def step_over(step: int = 1, *, interrupted: bool = False) -> list[Event]:
    return [StepFinished(step, Usage(10, 0, 5, 0, 1, 0.0), "stop", 0.5, interrupted)]


def carried_out(
    call: ToolCall, result: ToolResult, server: str = "shop", traceback: str = "", rich: tuple[str, ...] = ()
) -> list[Event]:
    return [ToolStarted(call, server), ToolFinished(result, 0.031, traceback, rich)]


def answered(call: ToolCall, *content: Text, server: str = "shop") -> list[Event]:
    return carried_out(call, ToolResult(call.id, call.name, content), server)


def over(final: str = "", stop: StopReason = "answer", error: str = "") -> list[Event]:
    return [TurnFinished(RunResult(final, (), (), 1, stop == "timeout", stop, USAGE, 7.3, error))]


def one_call(call: ToolCall, *content: Text, server: str = "shop") -> list[Event]:
    """A whole turn of one call."""
    return [*started(), *asked_for(call), *step_over(), *answered(call, *content, server=server), *over()]


def one_text(words: str) -> list[Event]:
    """A whole turn of one answer."""
    return [*started(), *text(words), *step_over(), *over(words)]


def everywhere(words: str) -> list[Event]:
    """A turn in which everybody says the same words, in every place that somebody else can write to."""
    call = ToolCall(words, words, {words: words, "nested": {words: [words]}})
    parts = (Text(words), Media("image/png", b"x", words), Media(words, b"x", words))
    parts = (*parts, Resource(words, words, words, words))
    hosted = HostedCall(words + "h", words, {words: words}, words), HostedResult(words + "h", words, parts)
    cited = Text(words, citations=(Citation(0, len(words), words, words, words),))
    step = [*reasoning(words, 0), *text(words, 1), *asked_for(call, 2)]
    step += [PartFinished(index, part) for index, part in enumerate((*hosted, cited), 3)]
    return [
        TurnStarted(user(words), words, (PromptValue(words, "text", words, 3, words),)),
        *[*started(words)[1:], *step, StepRetried(1, 1, 0.5, words), *step, *step_over()],
        *[ApprovalAsked("a", call, words), ApprovalGiven("a", approved=False, reason=words)],
        *[QuestionAsked("q", words), QuestionAnswered("q", words)],
        *carried_out(call, ToolResult(words, words, parts, "error"), words, words, (words,) * len(parts)),
        *[Notice("info", words), Notice("warning", words), PromptAdded(user(words))],
        *[*started()[1:], *text(words), *step_over(interrupted=True), *over(words, "error", words)],
    ]


class _Words(HTMLParser):
    INLINE = ("b", "code", "em", "font", "small", "span", "strong")

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.pieces.append("" if tag in self.INLINE else " ")

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def words_of(fragment: str) -> str:
    """Return the text that is left where a page strips all styles."""
    parser = _Words()
    parser.feed(fragment)
    return " ".join("".join(parser.pieces).split())


# -- drawn logs ------------------------------------------------------------------------------------

_words = st.text(st.sampled_from("ab *_`#|-\n[](){}<>&$\"'"), max_size=30)
_names = st.sampled_from(["add", "run_query", "x"])
_outcomes = st.sampled_from(["ok", "error", "timeout", "denied", "interrupted"])


@st.composite
def _part(draw: st.DrawFn, index: int) -> tuple[list[Event], list[Event]]:
    """A part's opening with deltas, and its end; what began as text may prove to be reasoning."""
    kind = draw(st.sampled_from(["text", "reasoning", "tool_call"]))
    deltas: list[Event] = [PartDelta(index, piece) for piece in draw(st.lists(_words, max_size=3))]
    whole = "".join(event.text for event in deltas if isinstance(event, PartDelta))
    if kind == "tool_call":
        name = draw(_names)
        part = ToolCall(f"call{index}", name, {"value": draw(_words)})
        return [PartStarted(index, "tool_call", name), *deltas], [PartFinished(index, part)]
    part = Text(whole) if kind == "text" and draw(st.integers(0, 3)) else Reasoning(whole)
    return [PartStarted(index, kind), *deltas], [PartFinished(index, part)]


@st.composite
def _settled(draw: st.DrawFn, call: ToolCall) -> list[Event]:
    status = draw(_outcomes)
    events: list[Event] = []
    if draw(st.booleans()):
        events.append(ApprovalAsked(f"ask-{call.id}", call, "shop"))
        events.append(ApprovalGiven(f"ask-{call.id}", approved=status != "denied", reason=draw(_words)))
    if status != "denied":
        events += [
            ToolStarted(call, "shop"),
            ToolProgress(call.id, draw(st.floats(0, 9)), draw(st.none() | st.just(9))),
        ]
    if draw(st.booleans()):
        events += [QuestionAsked("q", draw(_words)), *draw(st.just([]) | st.just([QuestionAnswered("q", "yes")]))]
    return [*events, ToolFinished(ToolResult(call.id, call.name, (Text(draw(_words)),), status), 0.2)]


@st.composite
def _step(draw: st.DrawFn, number: int) -> list[Event]:
    events: list[Event] = [StepStarted(number, MODEL)]
    for attempt in range(1, draw(st.integers(1, 3))):
        for index in range(draw(st.integers(0, 2))):
            opening, end = draw(_part(index))
            events += [*opening, *draw(st.just([]) | st.just(end))]
        if draw(st.booleans()):
            events.append(Notice("warning", draw(_words)))
        events.append(StepRetried(number, attempt, 1.5, "Rate limited."))
    calls: list[ToolCall] = []
    for index in range(draw(st.integers(0, 3))):
        opening, end = draw(_part(index))
        events += [*opening, *end]
        calls += [event.part for event in end if isinstance(event, PartFinished) and isinstance(event.part, ToolCall)]
    events += step_over(number, interrupted=draw(st.booleans()))
    for call in calls:
        events += draw(_settled(call))
    return events


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Draw a log of one or two turns, as the loop would emit them."""
    events: list[Event] = []
    for _ in range(draw(st.integers(1, 2))):
        told = st.builds(PromptValue, _words, st.sampled_from(get_args(ValueKind)), _words, st.just(3), _words)
        events.append(TurnStarted(user(draw(_words)), MODEL, tuple(draw(st.lists(told, max_size=2)))))
        for number in range(1, draw(st.integers(0, 3)) + 1):
            events += draw(_step(number))
        events += over(draw(_words), draw(st.sampled_from(["answer", "limit", "cancelled"])), draw(_words))
    return events
