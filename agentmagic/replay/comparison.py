"""Compares a model request with the recorded request, and names the cause of each difference.

A `RequestRecord` is the canonical form of a request: one line of JSON for each message and tool, with secrets blanked
and keys sorted. Call ids, opaque data of providers and the order of tools are left out, and media are replaced by their
digest. Records are compared as strings; the JSON is parsed only if the strings differ.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import count, islice, takewhile, zip_longest
from typing import Any, Literal, cast

from agentmagic.context.rules import without_project
from agentmagic.context.sent_pictures import with_originals
from agentmagic.events import PromptValue
from agentmagic.messages import (
    HostedCall,
    HostedResult,
    Media,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
)
from agentmagic.providers.base import Request
from agentmagic.replay.exchange import ConvertOnce, blank_secrets, hosted_tool
from agentmagic.secrets import BLANK, redact
from agentmagic.serialization import is_shallow, same_json
from agentmagic.text import clip, single_line
from agentmagic.tools.output_cache import READER

Cause = Literal[
    "cosmetic",
    "edited",
    "model",
    "settings",
    "instructions",
    "rules",
    "tool list",
    "tool schema",
    "order",
    "value",
    "prompt",
    "tool result",
    "row",
]

ABSENT = "(absent)"
"""Stands for a value that only one of the two requests has."""
MOST_DIFFERENCES = 20
"""Maximum number of differences that are reported for one request."""
LONGEST = 200
"""Maximum number of characters shown of a value. Of a longer value, the part around the difference is shown."""
MOST_WAYS = 5_000
"""Maximum number of pairs of positions that are tried when two prompts are compared."""
CONTEXT_BEFORE = 40
"""Characters shown before the difference if a value is cut."""

_LINE_ENDS = re.compile(r"[^\S\n]+$", re.MULTILINE)
_MARKS = re.compile(r"\n +[~^]+(?=\n|$)")
"""The line of marks below a code line in a traceback; not every Python version writes it."""
_HANDLE = re.compile(rf'({READER}\(id=)"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A model request in the form in which requests are compared: without secrets and ids, with sorted keys.

    `settings`, and each item of `tools`, `messages`, `values` and `project`, is one line of JSON.
    """

    model: str
    instructions: str = ""
    settings: str = "{}"
    tools: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    project: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A digest of all fields of the request, 32 hexadecimal characters."""
        whole = (self.model, self.instructions, self.settings, *self.tools, "", *self.messages, "", *self.values)
        whole += ("", *self.project) if self.project else ()
        return blake2b("\n".join(whole).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a recorded and a new request: its cause, the field's path, both values shortened."""

    cause: Cause
    field: str
    before: str
    after: str


# -- the canonical form ----------------------------------------------------------------------------


class RequestRecords:
    """Makes a `RequestRecord` from each request of a conversation. Messages and tools are converted only once."""

    def __init__(self) -> None:
        self._messages = ConvertOnce(_message)
        self._tools = ConvertOnce(_tool)

    def __call__(self, request: Request, model: str, values: Sequence[PromptValue] = ()) -> RequestRecord:
        """Return a request as a RequestRecord. `model` is the model's full name, `values` are values in the prompt."""
        instructions = request.instructions
        if request.output is not None:
            instructions = instructions.removesuffix(request.output.instructions).rstrip()
        instructions = without_project(instructions, request.project)
        return RequestRecord(
            model,
            redact(instructions),
            _settings(request),
            tuple(sorted(self._tools(request.tools))),
            tuple(self._messages(request.messages)),
            tuple(record_line({"written": one.written, "kind": one.kind, "text": one.text}) for one in values),
            tuple(record_line(blank_secrets(asdict(one))) for one in request.project),
        )


def record_line(data: Any) -> str:
    """Return JSON data as one line with sorted keys, as in a RequestRecord."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _settings(request: Request) -> str:
    settings = request.settings
    data: dict[str, Any] = {name: getattr(settings, name) for name in settings.given}
    if request.tool_choice != "auto":
        data["tool_choice"] = request.tool_choice
    if request.output is not None:
        data["output"] = {"name": request.output.name, "schema": request.output.schema}
    if request.decision is not None:
        data["decision"] = request.decision.kind
    if request.hosted:
        data["hosted"] = list(map(hosted_tool, request.hosted))
    return record_line(blank_secrets(data)) if data else "{}"


def _tool(tool: ToolDef) -> str:
    examples = [[example.question, example.arguments] for example in tool.examples]
    # "_" sorts before the other keys, so the name is first in the line, and sorted lines are sorted by name.
    data = {"_": tool.name, "description": tool.description, "parameters": tool.parameters, "examples": examples}
    return record_line(blank_secrets(data))


def _message(message: Message) -> str:
    message = with_originals(message)  # a version of Pillow decides the bytes of what was made small
    data: dict[str, Any] = {"role": message.role, "parts": [_part(part) for part in message.parts]}
    return record_line(data | {"interrupted": True} if message.interrupted else data)


def _part(part: Part) -> dict[str, Any]:  # noqa: PLR0911  (one return for each kind of part)
    match part:
        case Media():
            digest = blake2b(part.data, digest_size=16).hexdigest()
            return {"type": "media", "media_type": part.media_type, "name": redact(part.name), "digest": digest}
        case ToolResult():
            data = blank_secrets(replace(part, call_id="", content=(), server=""))
            return data | {"content": [_part(inner) for inner in part.content]}
        case ToolCall():
            # Leave out the argument `id` of the tool READER, which reads on in a long result: it is the id of a call,
            # and such ids differ in each run.
            arguments = {**part.arguments, "id": ""} if part.name == READER else part.arguments
            return blank_secrets(replace(part, id="", arguments=arguments, provider_data=None))
        case HostedCall():
            return blank_secrets(replace(part, id="", provider_data=None))
        case HostedResult():
            return blank_secrets(replace(part, call_id="", provider_data=None))
        case Text() | Reasoning():
            return blank_secrets(replace(part, provider_data=None))
        case _:
            return blank_secrets(part)


# -- the comparison --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """Tool results that were reported as different from the recording, and are not reported for later requests.

    `places` are the positions of the results in a request: the index of the message, and of the part in the message.
    `texts` are pairs of a recorded and a new text. They are needed because the last message can be a question of the
    agent loop that quotes such a text.
    """

    places: Collection[tuple[int, int]] = ()
    texts: Sequence[tuple[str, str]] = ()


def compare(old: RequestRecord, new: RequestRecord, known: Known | None = None) -> tuple[Difference, ...]:
    """Return how a request differs from the recorded request, the most likely cause first; () if they are equal.

    If each difference is in `known` or does not matter to a model, return one difference with the cause "cosmetic".
    """
    if old == new:
        return ()
    differences = list(islice(_differences(old, new, known or Known()), MOST_DIFFERENCES))
    return tuple(differences or [_cosmetic(old, new)])


def compare_results(old: ToolResult, new: ToolResult) -> tuple[Difference, ...]:
    """Return the differences between the recorded result of a tool call and its new result that matter to a model."""
    return tuple(islice(_result(_part(old), _part(new)), MOST_DIFFERENCES))


def _cosmetic(old: RequestRecord, new: RequestRecord) -> Difference:
    name = next(field.name for field in fields(old) if getattr(old, field.name) != getattr(new, field.name))
    before, after = getattr(old, name), getattr(new, name)
    if isinstance(before, tuple):
        pairs = zip_longest(cast("tuple[str]", before), cast("tuple[str]", after), fillvalue=ABSENT)
        before, after = next(pair for pair in pairs if pair[0] != pair[1])
    return _difference("cosmetic", name, before, after)


def _differences(old: RequestRecord, new: RequestRecord, known: Known) -> Iterator[Difference]:
    if old.model != new.model:
        yield _difference("model", "model", old.model, new.model)
    yield from _walk("settings", "settings", json.loads(old.settings), json.loads(new.settings))
    yield from _walk("instructions", "instructions", old.instructions, new.instructions)
    yield from _project_differences(old.project, new.project)
    yield from _tool_differences(old.tools, new.tools)
    yield from _Messages(old, new, known).differences()


def _project_differences(old: Sequence[str], new: Sequence[str]) -> Iterator[Difference]:
    """Yield a difference for each project file that was added, removed or changed, and for a changed order."""
    before, after = ({one["file"]: one for one in map(json.loads, files)} for files in (old, new))
    for file in [*before, *(file for file in after if file not in before)]:
        one, other = before.get(file), after.get(file)
        if one is None or other is None:
            yield _difference(
                "rules", file, ABSENT if one is None else one["text"], ABSENT if other is None else other["text"]
            )
        elif one["text"] != other["text"]:
            yield from _walk("rules", file, one["text"], other["text"])
        elif one["digest"] != other["digest"] and one["kind"] != "rules":  # rules files with equal texts are equal
            yield _difference("rules", file, f"(digest {one['digest']})", f"(digest {other['digest']})")
    if before == after and old != new:
        yield _difference("rules", "order", ", ".join(before), ", ".join(after))


def _tool_differences(old: Sequence[str], new: Sequence[str]) -> Iterator[Difference]:
    before, after = ({tool.pop("_"): tool for tool in map(json.loads, tools)} for tools in (old, new))
    # A difference in READER does not matter: this tool reads on in long results, and is offered only if there are any.
    only_one = (before.keys() - after.keys(), after.keys() - before.keys())
    removals, additions = (", ".join(sorted(names - {READER})) for names in only_one)
    if removals or additions:
        yield _difference("tool list", "tools", removals or ABSENT, additions or ABSENT)
    for name in before.keys() & after.keys():
        yield from _walk("tool schema", f"tools.{name}", before[name], after[name])


class _Messages:
    """Compares the messages of a recorded request with those of a new request."""

    def __init__(self, old: RequestRecord, new: RequestRecord, known: Known) -> None:
        self._known = known
        names = sorted((json.loads(tool)["_"] for tool in old.tools), key=len, reverse=True)
        self._listing = _listing(names) if "decision" in json.loads(new.settings) else None
        self._lines = old.messages, new.messages
        self._old = [json.loads(line) for line in old.messages]
        self._new = [json.loads(line) for line in new.messages]
        user_places = [place for place, message in enumerate(self._new) if message["role"] == "user"]
        # Planning adds a question after the prompt, so the prompt is one of the last two user messages.
        self._prompts = user_places[-1 if self._listing is None else -2 :] or [0]
        self._values = _paired_values(old.values, new.values)

    def differences(self) -> Iterator[Difference]:
        """Yield the differences in values and messages. The model's messages count only if nothing else differs."""
        changes = [(one, other) for one, other in self._values if not is_cosmetic(one["text"], other["text"])]
        for before, after in changes:
            cause: Cause = "rules" if before["kind"] == "command" else "value"
            yield _difference(cause, f"values.{before['written']}", before["text"], after["text"])
        pairs, in_order = self._pairs()
        if not in_order:
            yield _difference("order", "history", _prompts(self._old), _prompts(self._new))
        has_difference = bool(changes) or not in_order
        for index, place in pairs:
            before, after = self._old[index], self._new[place]
            if before["role"] == "user":
                differences = self._prompt(place, before, after, changes)
            elif before["role"] == "tool":
                differences = self._results(place, before, after)
            else:
                continue
            for difference in differences:
                has_difference = True
                yield difference
        own = [pair for pair in pairs if self._old[pair[0]]["role"] == "assistant"]
        for index, place in () if has_difference else own:
            yield from _walk("prompt", f"history[{place}]", self._old[index], self._new[place])

    def _pairs(self) -> tuple[list[tuple[int, int]], bool]:
        """Return the indexes of recorded and new messages to compare, and whether both are in the same order."""
        old, new = self._lines
        roles = [[message["role"] for message in messages] for messages in (self._old, self._new)]
        if roles[0] == roles[1] and sorted(old) != sorted(new):
            return [(index, index) for index in range(len(old)) if old[index] != new[index]], True
        if roles[0] == roles[1]:
            return [], old == new
        blocks = [code for code in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if code[0] != "equal"]
        pairs = [pair for _, i, k, j, m in blocks for pair in zip(range(i, k), range(j, m), strict=False)]
        return [(i, j) for i, j in pairs if self._old[i]["role"] == self._new[j]["role"]], False

    def _prompt(self, place: int, before: Any, after: Any, changes: Sequence[tuple[Any, Any]]) -> Iterator[Difference]:
        """Yield the differences between two user messages, except those in `changes`: changed values of variables."""
        name = "prompt" if place in self._prompts else f"history[{place}]"
        if len(before["parts"]) != len(after["parts"]):
            yield _difference("prompt", name, _message_text(before), _message_text(after))
            return
        media = [one["written"] for one, _ in self._values if one["kind"] == "image"]
        number = count()
        for part, other in zip(before["parts"], after["parts"], strict=True):
            value_name = media[at] if part["type"] == "media" and (at := next(number)) < len(media) else ""
            if part == other:
                continue
            if value_name and other["type"] == "media":
                yield _difference("value", f"values.{value_name}", part["digest"], other["digest"])
            elif "text" in part and {**part, "text": ""} == {**other, "text": ""}:
                texts = [(one["text"], two["text"]) for one, two in changes]
                texts += self._known.texts if place == len(self._new) - 1 else ()
                one, two = (self._with_sorted_tools(inner["text"]) for inner in (part, other))
                if not _is_explained(one, two, texts):
                    yield from _walk("prompt", name if part["type"] == "text" else f"{name}.text", one, two)
            else:
                yield from _walk("prompt", name, part, other)

    def _with_sorted_tools(self, text: str) -> str:
        """Return a planning prompt with the names in its lists of tools sorted, because their order has no meaning."""
        if self._listing is None:
            return text
        return self._listing.sub(lambda match: ", ".join(sorted(match[0].split(", "))), text)

    def _results(self, place: int, before: Any, after: Any) -> Iterator[Difference]:
        parts = cast("Iterator[tuple[Any, Any]]", zip_longest(before["parts"], after["parts"]))
        for number, (part, other) in enumerate(parts):
            if not part or not other:
                only: Any = part or other
                yield _difference("tool result", f"results.{only['name']}", part or ABSENT, other or ABSENT)
            elif (place, number) not in self._known.places:
                yield from _result(part, other)


def _result(part: Any, other: Any) -> Iterator[Difference]:
    """Yield the differences between two tool results.

    The structured value is compared only if the content is equal, because both often say the same.
    """
    path = f"results.{part['name']}"
    differences = list(_walk("tool result", path, *map(_content, (part, other))))
    yield from differences
    left_out = {"content": None, "structured": None} if differences else {"content": None}
    yield from _walk("tool result", path, {**part, **left_out}, {**other, **left_out})


def _listing(names: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches a comma-separated list of these tool names."""
    name_pattern = "|".join(map(re.escape, names)) or "(?!)"
    return re.compile(rf"(?<!\w)(?:{name_pattern})(?:, (?:{name_pattern}))+(?!\w)")


def _paired_values(old: Sequence[str], new: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return pairs of a recorded and a new value in the prompt; [] if the two prompts have different expressions."""
    pairs = [(json.loads(value), json.loads(other)) for value, other in zip(old, new, strict=False)]
    same = len(old) == len(new) and all(value["written"] == other["written"] for value, other in pairs)
    return pairs if same else []


def _is_explained(old: str, new: str, pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether `old` becomes `new` if the first value of each pair is replaced in it by the second value."""
    visits = set[tuple[int, int]]()  # pairs of positions already tried: with repeated values, a pair comes up often
    stack = [(0, 0)]  # pairs of positions from which the rest of both texts must be compared
    while stack and len(visits) < MOST_WAYS:
        start, other = rest = stack.pop()
        if rest in visits:
            continue
        visits.add(rest)
        if is_cosmetic(old[start:], new[other:]):
            return True
        for before, after in pairs:
            position = old.find(before, start)
            while position >= 0 and new.startswith(old[start:position], other):
                if new.startswith(after, other + position - start):
                    stack.append((position + len(before), other + position - start + len(after)))
                position = old.find(before, position + 1)
    return False


def _content(result: Any) -> Any:
    """Return the content of a tool result. A single text with JSON is parsed, to name the path of a difference."""
    match result["content"]:
        case [{"type": "text", "text": text}]:
            data = _read_json(text)
            return text if data is None else data
        case content:
            return content


def _read_json(text: str) -> Any:
    """Return the object or list that a text contains as JSON, or None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if is_shallow(data) else None


def _message_text(message: Any) -> str:
    return "\n".join(part.get("text", f"[{part['type']}]") for part in message["parts"])


def _prompts(messages: Sequence[Any]) -> str:
    prompts = [single_line(_message_text(message), CONTEXT_BEFORE) for message in messages if message["role"] == "user"]
    return " | ".join(prompts) or ABSENT


# -- two values ------------------------------------------------------------------------------------


def _walk(cause: Cause, path: str, before: Any, after: Any) -> Iterator[Difference]:
    """Yield the differences between two JSON values, each at the deepest path that both values have."""
    match before, after:
        case dict(), dict():
            one, other = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
            for name in [*one, *(name for name in other if name not in one)]:
                yield from _walk(cause, f"{path}.{name}", one.get(name, ABSENT), other.get(name, ABSENT))
        case list(), list() if len(cast("Any", before)) == len(cast("Any", after)):
            pairs = zip(cast("list[Any]", before), cast("list[Any]", after), strict=True)
            for index, pair in enumerate(pairs):
                yield from _walk(cause, f"{path}[{index}]", *pair)
        case str(), str() if is_cosmetic(before, after):
            pass
        case _ if not same_json(before, after):
            yield _difference(cause, path, before, after)
        case _:
            pass


def is_cosmetic(before: str, after: str) -> bool:
    """Return whether two texts differ at most in line ends, order of JSON keys, ids, traceback `^^^` or secrets."""
    if before == after:
        return True
    one, other = _tidy(before), _tidy(after)
    if one == other or _fits_blanks(one, other) or _fits_blanks(other, one):
        return True
    data = _read_json(one)
    return data is not None and record_line(data) == record_line(_read_json(other))


def _tidy(text: str) -> str:
    return _HANDLE.sub(r'\1"..."', _MARKS.sub("", _LINE_ENDS.sub("", text.replace("\r\n", "\n")))).rstrip("\n")


def _fits_blanks(pattern: str, text: str) -> bool:
    """Return whether `text` equals `pattern` if each blank in `pattern` stands for any secret, known here or not."""
    first, *rest = pattern.split(BLANK)
    if not rest or not text.startswith(first):
        return False
    position = len(first)
    for piece in rest[:-1]:
        position = text.find(piece, position) + len(piece)
        if position < len(piece):
            return False
    return len(text) - position >= len(rest[-1]) and text.endswith(rest[-1])


def _difference(cause: Cause, field: str, before: Any, after: Any) -> Difference:
    one, other = (value if isinstance(value, str) else record_line(value) for value in (before, after))
    if one == other:  # add the types if two values of different types look the same, such as 1 and "1"
        one, other = (f"{record_line(value)} ({_type_of(value)})" for value in (before, after))
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    start = max(same - CONTEXT_BEFORE, 0) if max(len(one), len(other)) > LONGEST else 0
    return Difference(cause, clip(field, LONGEST), _piece(one, start), _piece(other, start))


def _type_of(value: Any) -> str:
    """Return the name of a JSON value's type, for messages."""
    kinds = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list"}
    return "nothing" if value is None else kinds.get(cast("Any", type(value)), "an object")


def _piece(text: str, start: int) -> str:
    return f"{'…' * bool(start)}{clip(text[start:], LONGEST)}"
