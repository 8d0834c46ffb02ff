"""`scripted:`, a model whose answers come from a script: for lessons, tests and notebooks that must run anywhere."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from agentmagic.errors import BadRequest, ConfigError
from agentmagic.events import PartDelta, PartFinished, PartKind, PartStarted
from agentmagic.messages import (
    SEARCH,
    Citation,
    HostedCall,
    HostedResult,
    HostedTool,
    Part,
    Reasoning,
    Resource,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    as_text,
)
from agentmagic.plain_files import read_plain
from agentmagic.providers.base import FREE, KINDS, Family, ModelEvent, ModelFinished, ModelSettings, Provider, Request
from agentmagic.providers.wire import clean, read_arguments

PROVIDERS = (
    Provider(
        name="scripted",
        make="agentmagic.providers.scripted:make",
        about="plays a script, for lessons and tests",
        prices=FREE,
        all_models=Family(re.compile(""), KINDS, window=None),
    ),
    Provider(
        name="cassette",
        make="agentmagic.replay.player:make",
        about="answers from a recording, FILE.cassette.yaml",
        prices=FREE,
        all_models=Family(re.compile(""), KINDS, window=None),
    ),
)


class ScriptedCall(TypedDict):
    """A tool call in the script of a model. `arguments` can be a string, to simulate a model that writes bad JSON."""

    name: str
    arguments: "dict[str, Any] | str"


class ScriptedPage(TypedDict):
    """A web page that a search in a model's script finds."""

    url: str
    title: NotRequired[str]
    text: NotRequired[str]


class ScriptedSearch(TypedDict):
    """A web search in the script of a model. It simulates a search by the provider itself, before the answer's text."""

    query: str
    found: NotRequired[list[ScriptedPage]]


class ScriptedCitation(TypedDict):
    """A citation of a web page in a scripted answer; `of` is the part of the answer's text that the page supports."""

    of: str
    url: str
    title: NotRequired[str]
    quote: NotRequired[str]


class ScriptedStep(TypedDict):
    """One response in the script of a model; `pace` is the time in seconds before each event.

    `cut` simulates a response that stopped at its length limit.
    """

    text: NotRequired[str]
    reasoning: NotRequired[str]
    calls: NotRequired[list[ScriptedCall]]
    searches: NotRequired[list[ScriptedSearch]]
    citations: NotRequired[list[ScriptedCitation]]
    pace: NotRequired[float]
    cut: NotRequired[bool]


Step = str | ScriptedStep | Exception


class ScriptedModel:
    """A model that answers each request with the next step of a script.

    A step that is a string is the answer. A dict can also call tools. An exception is raised. All requests are kept in
    `requests`. Each word counts as one token. A request after the last step raises BadRequest.
    """

    def __init__(self, steps: Sequence[Step], name: str = "script") -> None:
        self.name = f"scripted:{name}"
        self.requests: list[Request] = []
        self._steps = list(steps)
        self._calls = 0

    def honours(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return the names of all `settings` that have a value: they do not change the script, so all are accepted."""
        return settings.given

    def hosts(self, _tool: HostedTool) -> bool:
        """Return True for every tool, because tools do not change the script of the model."""
        return True

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Record the request, and yield the events of the next step."""
        self.requests.append(request)
        step = self._next()
        if isinstance(step, Exception):
            raise step
        whole: ScriptedStep = clean({"text": step} if isinstance(step, str) else step)
        pace = whole.get("pace", 0.0)
        for event in self._events(whole):
            await asyncio.sleep(pace)  # also if `pace` is 0, so that the answer can be cancelled like a real one
            yield event
        cut = whole.get("cut", False)
        yield ModelFinished(_usage(request, whole), "length" if cut else "stop", cut)

    async def aclose(self) -> None:
        """Do nothing: a script has no connections."""

    def _next(self) -> Step:
        if len(self.requests) > len(self._steps):
            raise BadRequest(
                f"The script {self.name} has {len(self._steps)} steps, and one more was asked for. Add a step."
            )
        return self._steps[len(self.requests) - 1]

    def _events(self, step: ScriptedStep) -> Iterator[ModelEvent]:
        index = 0
        for search in step.get("searches", []):
            self._calls += 1
            for part in _search(f"call_{self._calls}", search):
                yield from _part(index, cast("PartKind", part.type), part.name, [], part)
                index += 1
        for kind, text in (("reasoning", step.get("reasoning")), ("text", step.get("text"))):
            if text:
                part = Text(text, citations=_citations(text, step)) if kind == "text" else Reasoning(text)
                yield from _part(index, cast("PartKind", kind), "", re.findall(r"\S+\s*|\s+", text), part)
                index += 1
        for call in step.get("calls", []):
            self._calls += 1
            arguments = call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"])
            part = ToolCall(f"call_{self._calls}", call["name"], read_arguments(arguments))
            yield from _part(index, "tool_call", call["name"], [arguments], part)
            index += 1


def make(model: str) -> ScriptedModel:
    """Return a model that plays a script file, which is a JSON list of steps. Raises ConfigError for any other file."""
    path = Path(model)
    try:
        steps = clean(json.loads(read_plain(path)))
    except (OSError, ValueError, RecursionError) as error:
        name = model or "(no file named)"
        raise ConfigError(f"The script {name} cannot be read: {error}. Write scripted:FILE.json.") from error
    if not isinstance(steps, list) or not all(map(_is_step, cast("list[object]", steps))):
        raise ConfigError(f"The script {model} is no list of steps. Write a JSON list of strings and objects.")
    return ScriptedModel(cast("list[Step]", steps), path.stem)


def _is_step(step: object) -> bool:
    """Return whether a step of a script file is valid: a string, or an object whose calls have names and arguments."""
    if not isinstance(step, dict):
        return isinstance(step, str)
    calls = cast("dict[str, object]", step).get("calls", [])
    return isinstance(calls, list) and all(map(_is_call, cast("list[object]", calls)))


def _is_call(call: object) -> bool:
    match call:
        case {"name": str(), "arguments": dict() | str()}:
            return True
        case _:
            return False


def _part(index: int, kind: PartKind, name: str, pieces: Sequence[str], part: Part) -> Iterator[ModelEvent]:
    yield PartStarted(index, kind, name)
    for piece in pieces:
        yield PartDelta(index, piece)
    yield PartFinished(index, part)


def _search(call_id: str, search: ScriptedSearch) -> tuple[HostedCall, HostedResult]:
    pages = (Resource(one["url"], one.get("title", ""), text=one.get("text", "")) for one in search.get("found", []))
    call = HostedCall(call_id, SEARCH, {"query": search["query"]}, "scripted")
    return call, HostedResult(call_id, SEARCH, tuple(pages))


def _citations(text: str, step: ScriptedStep) -> tuple[Citation, ...]:
    citations: list[Citation] = []
    for one in step.get("citations", []):
        if (start := text.find(one["of"])) >= 0:
            end = start + len(one["of"])
            citations.append(Citation(start, end, one["url"], one.get("title", ""), one.get("quote", "")))
    return tuple(sorted(citations, key=lambda citation: citation.end))


def _usage(request: Request, step: ScriptedStep) -> Usage:
    inputs = [request.instructions, *(_part_text(part) for message in request.messages for part in message.parts)]
    reasoning = step.get("reasoning", "")
    outputs = [step.get("text", ""), reasoning, json.dumps(step.get("calls", []))]
    searches = len(step.get("searches", []))
    return Usage(
        _count(inputs), 0, _count(outputs), _count([reasoning]), searches=searches
    )  # `outputs` includes the reasoning


def _part_text(part: Part) -> str:
    match part:
        case Text() | Reasoning() | ToolResult():
            return part.text
        case ToolCall():
            return json.dumps(dict(part.arguments))
        case _:
            return as_text(part)


def _count(texts: Sequence[str]) -> int:
    return sum(len(text.split()) for text in texts)
