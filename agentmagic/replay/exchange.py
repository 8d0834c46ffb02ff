"""Model requests as JSON, and as differences to the previous request.

Secrets are blanked before anything is compared or hashed, both in a recording and in a replay.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import is_
from typing import Any, Generic, TypeVar, cast

from agentmagic.context.rules import without_project
from agentmagic.context.sent_pictures import with_originals
from agentmagic.messages import NOTEBOOK, Example, HostedTool, Message, ToolDef
from agentmagic.providers.base import ModelSettings, OutputSchema, PlanQuestion, ProjectText, Request
from agentmagic.secrets import redact
from agentmagic.serialization import from_json, to_json

Json = dict[str, Any]
AGENT = "agent"
"""The kind of a document that contains a document of an agent tool's turn, and names the call of that tool."""
SAME = "same"
SAME_TOOLS: Json = {"sources": SAME}
"""This document is not written: a turn without a list of tools has the list of the turn before."""
MOST_SIDE_MESSAGES = 2
"""Maximum number of messages in a side request, which asks for a summary or for a check of a task result."""

T = TypeVar("T")


def blank_secrets(value: Any) -> Any:
    """Return an object of this package (such as a message), or JSON data, as plain JSON with secrets blanked."""
    return to_json(value, lambda inner, name: redact(inner, name=name) if isinstance(inner, str) else inner)


def short_digest(text: str | bytes) -> str:
    """Return a digest of 16 hexadecimal digits."""
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode("utf-8", "replace")).hexdigest()[:16]


def kind_of(document: Mapping[str, Any]) -> str:
    """Return the kind of a recorded document: its first key. An approval has a key `answer` too, but not first."""
    return next(iter(document), "")


def definition(tool: ToolDef) -> Json:
    """Return a tool's definition as JSON, without fields that have their default value."""
    data = cast("Json", blank_secrets(asdict(tool)))
    return {name: value for name, value in data.items() if value and (name, value) != ("server", NOTEBOOK)}


def tool_def(data: Mapping[str, Any]) -> ToolDef:
    """Return the tool's definition from the JSON that `definition` returned."""
    examples = tuple(Example(example["question"], example["arguments"]) for example in data.get("examples", ()))
    fields: Json = {"description": "", **data, "examples": examples}
    return ToolDef(**fields)


def parts_of(answer: Mapping[str, Any]) -> list[Json]:
    """Return the parts in the document of a model's answer. A text stands for one part with this text."""
    content = answer["answer"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def calls_of(answer: Mapping[str, Any]) -> list[Json]:
    """Return the tool calls in the document of a model's answer."""
    return [part for part in parts_of(answer) if part["type"] == "tool_call"]


def with_numbers(documents: Iterable[Json]) -> Iterator[tuple[int, Json]]:
    """Yield each document with the number of its request. An answer belongs to the request `to`, or to the last one.

    The requests of an agent that was called as a tool have numbers of their own.
    """
    counts = Counter[str]()
    for document in documents:
        inner, call = document, ""
        while kind_of(inner) == AGENT and isinstance(inner.get("document"), dict):
            inner, call = inner["document"], f"{call} {inner.get('step')}.{inner.get('call')}"
        counts[call] += kind_of(inner) == "request"
        yield inner.get("to", counts[call]), document


def call_of(result: Mapping[str, Any], calls: Sequence[Json]) -> Json:
    """Return the id and arguments of a recorded result's tool call. What `result` lacks is taken from `calls`."""
    index: int = result.get("call", -1)
    call: Json = {"id": "", "arguments": {}}
    if 0 <= index < len(calls) and calls[index].get("name") == result["result"]:
        call = calls[index]
    return {name: result.get(name, call[name]) for name in ("id", "arguments")}


class ConvertOnce(Generic[T]):
    """Converts the values of a growing sequence, each value only once.

    A short sequence can begin with other values, for example the messages of a request for a summary. The cache is
    then kept.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._values: Sequence[Any] = ()
        self._results: list[T] = []

    def __call__(self, values: Sequence[Any]) -> list[T]:
        """Return the converted values. Values are compared by identity."""
        pairs = enumerate(map(is_, self._values, values))
        same = next((at for at, equal in pairs if not equal), min(len(self._values), len(values)))
        rest = zip(self._values[same:], self._results[same:], strict=True)
        cache = {id(value): results for value, results in rest}
        results = self._results[:same]
        results += [cache[id(one)] if id(one) in cache else self._make(one) for one in values[same:]]
        if same or len(values) > MOST_SIDE_MESSAGES:
            self._values, self._results = values, results
        return results


class Encoder:
    """Converts requests to JSON. Many requests repeat a message, so each message is converted only once."""

    def __init__(self, keep_bytes: Callable[[Any], Any]) -> None:
        def encode(message: Message) -> Json:
            data = keep_bytes(blank_secrets(with_originals(message)))
            del data["type"]
            return data

        self._messages = ConvertOnce(encode)

    def request(self, request: Request) -> Json:
        """Return a request as JSON, without fields that have their default value."""
        data: Json = {
            "instructions": blank_secrets(without_project(request.instructions, request.project)),
            "tools": [definition(tool) for tool in request.tools],
            "tool_choice": "" if request.tool_choice == "auto" else request.tool_choice,
            "output": request.output and blank_secrets({"name": request.output.name, "schema": request.output.schema}),
            "settings": blank_secrets({name: getattr(request.settings, name) for name in request.settings.given}),
            "decision": request.decision and request.decision.kind,
            "hosted": [hosted_tool(tool) for tool in request.hosted],
            "project": [blank_secrets(asdict(one)) for one in request.project],
            "messages": self._messages(request.messages),
        }
        return {name: value for name, value in data.items() if value}


def request_of(data: Mapping[str, Any], restore: Callable[[Any], Any]) -> Request:
    """Return the request from its JSON. Raises ValueError, KeyError or TypeError if the data is not a request."""
    output, kind = data.get("output"), data.get("decision")
    return Request(
        tuple(message_of(one, restore) for one in data.get("messages", ())),
        data.get("instructions", ""),
        tuple(map(tool_def, data.get("tools", ()))),
        data.get("tool_choice", "auto"),
        output and OutputSchema(output["name"], output["schema"]),
        ModelSettings(**data.get("settings", {})),
        kind and PlanQuestion(kind, ""),
        tuple(hosted_of(one) for one in data.get("hosted", ())),
        tuple(ProjectText(**one) for one in data.get("project", ())),
    )


def hosted_tool(tool: HostedTool) -> Json:
    """Return a provider-hosted tool as JSON, without fields that have their default value."""
    data = {"name": tool.name, "domains": list(tool.domains), "max_uses": tool.max_uses}
    return {name: value for name, value in data.items() if value}


def hosted_of(data: Mapping[str, Any]) -> HostedTool:
    """Return the provider-hosted tool from its JSON."""
    return HostedTool(str(data["name"]), tuple(map(str, data.get("domains", ()))), data.get("max_uses"))


def message_of(data: Mapping[str, Any], restore: Callable[[Any], Any]) -> Message:
    """Return the message from its JSON. Raises ValueError if the data is not a message."""
    return from_json(restore({"type": "message", **data}))


class Chain:
    """The requests of a conversation, each written as its difference to the requests before it.

    If a difference has no messages, the request has those of the previous request, and then the answer, the tool
    results and the prompt that followed. If a difference has messages, they follow the first `keep` messages of the
    previous request. A message part already recorded in this turn or the one before is a name such as "=result 0".
    """

    def __init__(self) -> None:
        self._fields: Json = {}
        self._messages: list[Json] = []
        self._tools: dict[str, Json] = {}
        self._names: dict[str, str] = {}
        self._parts: dict[str, Json] = {}
        self.calls: list[Json] = []
        self._aside = False
        self._tail: list[Json] = []
        self._answers: dict[int, Json] = {}
        self._requests = 0
        self._results = 0
        self.sources: list[Json] = []

    def begin(self, prompt: Sequence[Json]) -> None:
        """Begin a turn. Its requests can refer to message parts of this turn and the turn before, not to older ones."""
        before = {f"^{name}": part for name, part in self._parts.items() if not name.startswith("^")}
        self._parts, self._names = {}, {}
        for name, part in before.items():
            self._add(name, part)
        for index, part in enumerate(prompt):
            self._add(f"=prompt {index}", part)
        self._requests = self._results = 0
        self._settle()
        self._tail.append({"role": "user", "parts": list(prompt)})

    def list_tools(self, sources: Sequence[Json] | str) -> list[Json]:
        """Set the turn's tool lists, one per toolset. Requests refer to tools in them by name. Return the lists.

        The text SAME stands for the lists of the turn before.
        """
        self.sources = self.sources if isinstance(sources, str) else list(sources)
        self._tools = {tool["name"]: tool for source in self.sources for tool in source.get("tools", ())}
        return self.sources

    def encode_tools(self, sources: Sequence[Json]) -> list[Json] | str:
        """Set the turn's tool lists, one per toolset. Return what to write: the lists, or SAME if nothing changed."""
        same = list(sources) == self.sources
        self.list_tools(sources)
        return SAME if same else list(sources)

    def add_answer(self, answer: Json) -> None:
        """Add the document of the answer to the last request."""
        parts, number = parts_of(answer), answer.get("to", self._requests)
        self.calls = calls_of(answer)
        if not self._aside and not (answer.keys() & {"error", "stopped"}):
            self._settle()
            self._tail.append({"role": "assistant", "parts": parts})
        for index, part in enumerate(parts):
            self._add(f"=answer {number}.{index}", part)

    def add_result(self, result: Json) -> None:
        """Add the document of a tool call's result."""
        part: Json = {"type": "tool_result", "call_id": call_of(result, self.calls)["id"], "name": result["result"]}
        part["content"] = [{"type": "text", "text": result["text"]}] if "text" in result else result.get("content", [])
        part |= {name: result[name] for name in ("status", "structured", "done", "server") if name in result}
        self._add(f"=result {self._results}", part)
        self._results += 1
        self._answers[result.get("call", 0)] = part

    def _settle(self) -> None:
        """Append the tool results since the last answer as one message, in the order of the calls."""
        if self._answers:
            parts = [part for _, part in sorted(self._answers.items())]
            self._tail.append({"role": "tool", "parts": parts})
            self._answers = {}

    def _next_messages(self) -> list[Json]:
        """Return the messages of the next request if it only continues the conversation and changes nothing."""
        self._settle()
        return [*self._messages, *self._tail]

    def feed(self, document: Json) -> Json:
        """Add a document of a recorded turn. Return the complete request or tool lists, or {} for other documents.

        Raises ValueError for a request that refers to a message, part or tool that is missing.
        """
        match document:
            case {"sources": sources}:
                return {"sources": self.list_tools(sources)}
            case {"request": _}:
                return self.decode(document)
            case {"answer": _} if kind_of(document) == "answer":
                self.add_answer(document)
            case {"result": str()}:
                self.add_result(document)
            case _:
                pass
        return {}

    def difference(self, document: Json, whole: Json) -> Json:
        """Add a document, and return it as a difference. `whole` is what `feed` returned for it: its complete form."""
        match document:
            case {"sources": _}:
                return {**document, "sources": self.encode_tools(whole["sources"])}
            case {"request": digest}:
                return {"request": digest, **self.encode(whole)}
            case _:
                self.feed(document)
                return document

    def encode(self, request: Json) -> Json:
        """Return a request as its difference to the previous request."""
        fields = {name: value for name, value in request.items() if name != "messages"}
        if tools := fields.get("tools"):
            fields["tools"] = [one["name"] if self._tools.get(one["name"]) == one else one for one in tools]
        changes = {
            name: fields.get(name) for name in {**fields, **self._fields} if fields.get(name) != self._fields.get(name)
        }
        messages = request.get("messages", [])
        if messages == self._next_messages():
            self._take(fields, messages, len(messages))
            return changes
        pairs = zip(messages, self._messages, strict=False)
        keep = next((index for index, (one, other) in enumerate(pairs) if one is not other and one != other), None)
        keep = min(len(messages), len(self._messages)) if keep is None else keep
        self._take(fields, messages, keep)
        new = [{**one, "parts": [self._reference(part) for part in one["parts"]]} for one in messages[keep:]]
        return {**changes, **({"keep": keep} if keep or not new else {}), **({"messages": new} if new else {})}

    def decode(self, difference: Mapping[str, Any]) -> Json:
        """Return a complete request from its difference. Raises ValueError if a message, part or tool is missing."""
        try:
            own = ("instructions", "tools", "tool_choice", "output", "settings", "decision", "hosted", "project")
            changes = {name: difference[name] for name in own if name in difference}
            fields = {name: value for name, value in {**self._fields, **changes}.items() if value is not None}
            next_messages = self._next_messages()  # always call it: it also puts the tool results into a message
            messages = self._decode_messages(difference) if difference.keys() & {"keep", "messages"} else next_messages
            tools = [self._tools[one] if isinstance(one, str) else one for one in fields.get("tools", ())]
        except (KeyError, TypeError) as error:
            message = f"it refers to {error}, which is not there"
            raise ValueError(message) from None
        self._take(fields, messages, difference.get("keep", 0 if "messages" in difference else len(messages)))
        return {**fields, **({"tools": tools} if tools else {}), "messages": messages}

    def _decode_messages(self, difference: Mapping[str, Any]) -> list[Json]:
        keep = int(difference.get("keep", 0))
        if keep > len(self._messages):
            message = "it keeps more messages than there are"
            raise ValueError(message)
        new: list[Json] = [
            {**one, "parts": [self._parts[part] if isinstance(part, str) else part for part in one["parts"]]}
            for one in difference.get("messages", ())
        ]
        return [*self._messages[:keep], *new]

    def _take(self, fields: Json, messages: list[Json], keep: int) -> None:
        self._requests += 1
        self._fields = fields
        # A short request without earlier messages, such as one for a summary, is not part of the conversation.
        self._aside = not keep and len(messages) <= MOST_SIDE_MESSAGES and bool(self._messages)
        if not self._aside:
            self._messages, self._tail = messages, []

    def _add(self, name: str, part: Json) -> None:
        self._parts[name] = part
        self._names[json.dumps(part, sort_keys=True, default=str)] = name

    def _reference(self, part: Json) -> Json | str:
        return self._names.get(json.dumps(part, sort_keys=True, default=str), part)
