"""Records one turn: the requests and answers, the tools and their results, and the answers of the user."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast

from agentmagic.errors import CassetteError
from agentmagic.events import (
    AgentOption,
    ApprovalAsked,
    Approve,
    Deny,
    Event,
    InnerCall,
    Intent,
    PartFinished,
    QuestionAsked,
    Reply,
    StepFinished,
    StepRetried,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from agentmagic.messages import HostedTool, ToolCall
from agentmagic.providers.base import Request
from agentmagic.replay.cassette import Take, prompt_parts
from agentmagic.replay.exchange import (
    AGENT,
    SAME_TOOLS,
    Chain,
    Json,
    blank_secrets,
    call_of,
    definition,
    hosted_tool,
)
from agentmagic.secrets import redact
from agentmagic.serialization import same_json
from agentmagic.tools.base import Tool

if TYPE_CHECKING:
    from agentmagic.replay.recording import Recording

DIGITS = 3
"""Decimal places of the seconds in a recording."""
DIGEST = 12
"""Hexadecimal digits that a recording has of a request's digest."""

_FILE = re.compile(r'File "([^"\n]+)"')

Place = tuple[int, ...]
"""The place of a call: its step, and its index in the model's message. If a tool made the call, its number follows."""


class Calls:
    """The tool calls of a turn. `places` has the place of each call (its step, and its index there), by call id.

    `inner` has the calls that a tool made, by the id of the tool's own call. `running` has the calls that have started
    to run, by call id.
    """

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.running: dict[str, ToolCall] = {}
        self.inner = defaultdict[str, dict[str, ToolCall]](dict)
        self._step = 0
        self._count = 0

    def feed(self, event: Event) -> None:
        """Process an event of the turn."""
        match event:
            case StepStarted():
                self._step, self._count = self._step + 1, 0
            case StepRetried():
                self._count = 0
            case PartFinished(part=ToolCall() as call):
                self.places[call.id] = (self._step, self._count)
                self._count += 1
            case InnerCall(parent=parent, call=call):
                calls = self.inner[parent]
                calls[call.id] = call
                self.places[call.id] = (*self.places.get(parent, (0, 0)), len(calls))
            case ToolStarted(call=call):
                self.running[call.id] = call
            case _:
                pass

    def maker(self, call_id: str) -> str:
        """Return the id of the tool call that made this call, or "" if the model made it."""
        return next((parent for parent, calls in self.inner.items() if call_id in calls), "")


class TurnRecorder:
    """Writes the documents of one turn to its recording. After a failed write, no further document is written."""

    def __init__(self, recording: "Recording | InnerRecording", take: Take, chain: Chain) -> None:
        self._recording = recording
        self.take = take
        self._chain = chain
        self._requests = 0
        self._has_tools = False
        self._asides = defaultdict[str, list[Any]](list)
        self._ended_ids: set[str] = set()
        self._seconds: list[float] = []
        self._has_failed = False

    def copy(self, documents: Iterable[tuple[Json, Json]]) -> None:
        """Write documents of another recorded turn, each given in a pair with what `Chain.feed` returned for it."""
        for document, whole in documents:
            self.write(self._chain.difference(document, whole))
            self._requests += "request" in document

    def tools(
        self, sources: Sequence[Json], chosen: Sequence[str] | None, hosted: Mapping[HostedTool, bool] | None = None
    ) -> None:
        """Write the tools of the turn, once. `hosted` says for each hosted tool whether the provider runs it."""
        if not self._has_tools:
            self._has_tools = True
            few = {} if chosen is None else {"chosen": list(chosen)}
            own = [hosted_tool(tool) | ({} if here else {"missing": True}) for tool, here in (hosted or {}).items()]
            self.write({"sources": self._chain.encode_tools(sources), **few, **({"hosted": own} if own else {})})

    def request(self, request: Request, digest: str) -> int:
        """Write a request as its difference to the previous request, and return its number."""
        self._requests += 1
        difference = self._chain.encode(self._recording.encoder.request(request))
        self.write({"request": digest, **difference})
        return self._requests

    def answer(self, number: int, document: Json) -> None:
        """Write the document of the model's answer to the request with this number."""
        if number != self._requests:
            document = {"answer": document["answer"], "to": number} | document
        document = self._recording.blobs.keep(document)
        self._chain.add_answer(document)
        self.write(document)

    def wait(self, seconds: float) -> None:
        """Write how many seconds the turn waits before it sends the request again."""
        self.write({"wait": seconds})

    def aside(self, call_id: str, kind: str, *values: Any) -> None:
        """Store a message, a question or another act of a running tool call. It is written with the call's result."""
        self._asides[call_id].append([kind, *map(blank_secrets, values)])

    def requested(self, call: ToolCall, place: Place, options: Sequence[AgentOption], *, changed: bool) -> None:
        """Write the permission request of an outside agent for its call; its arguments only if they have changed."""
        document: Json = {"asked": call.name, **_place_json(place)}
        document |= {"arguments": blank_secrets(call.arguments)} if changed else {}
        document |= {"options": [[one.id, redact(one.name), one.kind] for one in options]} if options else {}
        self.write(document)

    def user_answer(self, question: ApprovalAsked | QuestionAsked, intent: Intent | None, place: Place) -> None:
        """Write the answer of the user to an approval or a question."""
        if isinstance(question, QuestionAsked):
            answer = intent.text if isinstance(intent, Reply) else None
            self.write({"question": redact(question.text), "answer": answer and redact(answer)})
            return
        document: Json = {"approval": question.call.name, **_place_json(place), "answer": "nobody"}
        match intent:
            case Approve():
                document |= {"answer": "always" if intent.always else "yes"}
                document |= _option_json(question, intent)
                document |= {} if intent.arguments is None else {"arguments": blank_secrets(intent.arguments)}
            case Deny():
                document |= {"answer": "no"} | ({"reason": redact(intent.reason)} if intent.reason else {})
                document |= _option_json(question, intent)
            case _:
                pass
        self.write(document)

    def event(self, event: Event, calls: Calls) -> Event:
        """Write an event's content to the recording. Return the event, with its seconds rounded as in the recording."""
        match event:
            case StepFinished():
                event = replace(event, seconds=round(event.seconds, DIGITS))
                self._seconds.append(event.seconds)
            case ToolFinished():
                trace = _FILE.sub(_shorter_path, event.traceback)
                event = replace(event, seconds=round(event.seconds, DIGITS), traceback=trace)
                self._result(event, calls)
            case TurnFinished(result=result):
                result = replace(result, seconds=round(result.seconds, DIGITS))
                event = TurnFinished(result)
                if result.stop_reason == "cancelled":
                    self.write({"stop": True})
                error = {"error": result.error} if result.error else {}
                document: Json = {"end": result.stop_reason, **error, "steps": self._seconds}
                self.write({**document, "seconds": result.seconds})
            case _:
                pass
        return event

    def _result(self, event: ToolFinished, calls: Calls) -> None:
        result = event.result
        place, maker = calls.places.get(result.call_id, (0, 0)), calls.maker(result.call_id)
        data = self._recording.blobs.keep(blank_secrets(result))
        document: Json = {"inner" if maker else "result": data.pop("name"), **_place_json(place)}
        running_call = calls.running.get(result.call_id)
        if maker:
            document |= self._note_inner_end(result.call_id, maker, calls)
        else:
            for call_id in calls.inner[result.call_id]:
                if call_id not in self._ended_ids:
                    self._write_unfinished(call_id, result.call_id, calls)
            own: Json = {"id": result.call_id}
            own |= {} if running_call is None else {"arguments": blank_secrets(running_call.arguments)}
            call = call_of(document, self._chain.calls)
            document |= {name: value for name, value in own.items() if not same_json(call[name], value)}
        document |= {"ran": False} if running_call is None else {}
        del data["type"], data["call_id"]
        match data["content"]:
            case [{"type": "text", "text": str() as text, **others}] if not others:
                del data["content"]
                document["text"] = text
            case _:
                pass
        document |= data
        document |= {"asides": self._asides.pop(result.call_id)} if result.call_id in self._asides else {}
        document |= {"traceback": event.traceback} if event.traceback else {}
        document |= {"rich": [redact(html) for html in event.rich]} if event.rich else {}
        document |= {"seconds": event.seconds} if event.seconds else {}
        if not maker:
            self._chain.add_result(document)
        self.write(document)

    def _note_inner_end(self, call_id: str, maker: str, calls: Calls) -> Json:
        """Store that a call made by another tool has ended. Return fields for the document of this ended call.

        `maker` is the id of the call of that other tool. The end is stored with that call.
        """
        self._ended_ids.add(call_id)
        asides, inner = self._asides[maker], calls.inner[maker]
        if asides and asides[-1][0] == "inner":
            asides[-1][1] += 1
        else:
            asides.append(["inner", 1])
        extra = {"begun": len(inner)} if len(inner) > calls.places[call_id][-1] else {}
        return {**extra, "arguments": blank_secrets(inner[call_id].arguments)}

    def _write_unfinished(self, call_id: str, maker: str, calls: Calls) -> None:
        """Write a call that a tool made, and that had not ended when the tool that made it ended."""
        head = {"inner": calls.inner[maker][call_id].name, **_place_json(calls.places[call_id])}
        self.write({**head, **self._note_inner_end(call_id, maker, calls), "unfinished": True})

    def inside(self, name: str, place: Place, head: Json) -> "TurnRecorder":
        """Begin to record, inside this turn, the turn of an agent that is called as a tool. Return its recorder."""
        recording, chain = InnerRecording(self, self._recording, {AGENT: name, **_place_json(place)}), Chain()
        take = Take(head)
        recording.append(take, head)
        chain.begin(prompt_parts(head))
        return TurnRecorder(recording, take, chain)

    def write(self, document: Json) -> None:
        """Write a document. Raises CassetteError if it fails. Later calls then do nothing, so that the turn can end."""
        if self._has_failed or document == SAME_TOOLS:
            return
        try:
            self._recording.append(self.take, document)
        except CassetteError:
            self._has_failed = True
            raise


class InnerRecording:
    """Writes the documents of an agent's turn into the turn that called the agent, each with the place of the call."""

    def __init__(self, recorder: TurnRecorder, recording: "Recording | InnerRecording", call: Json) -> None:
        self.encoder = recording.encoder
        self.blobs = recording.blobs
        self._recorder = recorder
        self._call = call

    def append(self, _take: Take, document: Json) -> None:
        """Add a document. Raises CassetteError if the file cannot be written."""
        self._recorder.write({**self._call, "document": document})


def _shorter_path(match: re.Match[str]) -> str:
    """Return the file path of a traceback line without folders of this machine.

    The result is a relative path, the part after `site-packages`, or the file name alone.
    """
    with suppress(OSError, RuntimeError):  # raised if the current folder, or the user in `~user/...`, does not exist
        path = Path(match[1]).expanduser()
        if not path.is_absolute():
            return match[0]
        if path.is_relative_to(Path.cwd()):
            return f'File "{path.relative_to(Path.cwd()).as_posix()}"'
    package_path = re.search(r"[\\/](?:site|dist)-packages[\\/](.+)", match[1])
    return f'File ".../{package_path[1] if package_path else PurePath(match[1]).name}"'


def _option_json(question: ApprovalAsked, intent: Approve | Deny) -> Json:
    """Return the option of an outside agent that an answer chooses, as a part of a document."""
    option = question.option_for(intent)
    return {} if option is None else {"option": option.id}


def _place_json(place: Place) -> Json:
    step, *call = place
    return {"step": step, "call": call if len(call) > 1 else call[0]}


def place_of(document: Json) -> Place:
    """Return the place of a document's tool call. Raises ValueError, KeyError or TypeError if it has no place."""
    call = document["call"]
    return int(document["step"]), *map(int, cast("list[Any]", call) if isinstance(call, list) else [call])


def source_of(tools: Sequence[Tool], problems: Sequence[str], notices: Sequence[str], *, local: bool) -> Json:
    """Return the tool list of one toolset as JSON, to record it."""
    source: Json = {"local": True} if local else {}
    source["tools"] = [definition(tool.definition) for tool in tools]
    source["problems"] = [redact(problem) for problem in problems]
    source["notices"] = [redact(notice) for notice in notices]
    for name, usual in (("parallel", True), ("ask", False), ("code", False)):
        source[name] = {tool.name: getattr(tool, name) for tool in tools if getattr(tool, name) is not usual}
    source["hosted"] = {tool.name: hosted_tool(tool.hosted) for tool in tools if tool.hosted}
    return {name: value for name, value in source.items() if value}
