"""Every limit for what MCP servers send, as one table, and the counters that some of the limits need.

A server is not trusted: it may flood, babble, nest and repeat without end. The table has one row per limit, with its
reason. Other modules read the rows as attributes of this module, so that a test can lower one.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, cast
from urllib.parse import unquote

# One message, in bytes and values.
MESSAGE_BYTES = 32 * 1024 * 1024  # the SDK reads a line in quadratic time: 50 MB took it 79 s
MESSAGE_VALUES = 200_000  # 30 MB of "[],[],..." took the JSON parser 16 s and 3.4 GB; 30 MB of one string 0.2 s
REPAIRED_BYTES = 1_000_000  # a regular expression holds the GIL; repairing more would stop the other servers
MESSAGE_ENDS = 4096  # bytes kept at each end of a dropped message, enough to find the request that it answers
STDERR_BYTES = 64 * 1024
STDERR_SHOWN = 4000  # characters

# Messages a second.
PER_SECOND = 20.0  # of each kind; the progress of one call is a kind
BURST = 5  # of one kind at once
LOG_BURST = 200
KINDS = 256  # that a rate tells apart; the server chooses their names
HELD_KINDS = 64  # of which the last notification is held back while they come too fast
OPEN_REQUESTS = 32  # of a server that we have not answered; each costs a task
PAUSE_AFTER = 500  # dropped messages
PAUSE = 0.05  # seconds; a flood costs the server this time, instead of costing us the work
LOG_LINES = 1000

# Lists.
PAGES = 50  # of one list; a server can page without end
LIST_ENTRIES = 500  # prompts or resources of one server
TOOLS = 500  # of one server; each request to the model carries them
PROMPT_MESSAGES = 100
RESULT_LISTS = {  # entries of the lists in one result; the SDK takes 0.1 ms for each
    "content": 1001,
    "contents": 1001,
    "messages": 200,
    "prompts": LIST_ENTRIES,
    "resources": LIST_ENTRIES,
    "resourceTemplates": LIST_ENTRIES,
}

# Tools and their schemas; arguments are checked against a schema on the engine's loop.
TOOL_NAME = 200  # characters
TOOL_DESCRIPTION = 10_000  # characters; each request to the model carries them
SCHEMA_SIZE = 100_000  # characters of JSON
SCHEMA_NODES = 5000  # subschemas with references followed; a failing check takes 0.1 ms for each
PATTERN_SIZE = 50_000  # characters of all regular expressions, with their repetitions written out
PATTERN_SECONDS = 1.0  # to compile those of one listing, which holds the GIL: "\\p{L}{1,500}" took 0.17 s
DROPPED = 20  # keywords of one schema that are named when they are dropped

# Results, in characters, bytes and parts over one whole result.
RESULT_TEXT = 5_000_000
RESULT_MEDIA = 20_000_000
RESULT_PARTS = 1000

# Text that is shown, in characters.
INSTRUCTIONS = 5000
PROGRESS = 500
NAME = 200
ADDRESS = 2000
DESCRIPTION = 1000
LOG_TEXT = 2000
ERROR = 500
FAILURE = 2000  # of a call, for the model

# What a server may ask of the user, and how often in one turn of a session.
QUESTIONS = 10
QUESTION_TEXT = 2000
FORM_FIELDS = 20
FORM_CHOICES = 100
FORM_LABEL = 300
FORM_DEFAULT = 500
FORM_NUMBER = 10**15  # a longer number cannot be read at a glance
SAMPLES = 5  # answers of the user's model, which the user pays for
SAMPLE_TOKENS = 8000  # of all these answers together
SAMPLE_MESSAGES = 50
SAMPLE_INSTRUCTIONS = 10_000
SAMPLE_TEXT = 100_000
SAMPLE_MEDIA = 5_000_000
SAMPLE_SHOWN = 20_000  # characters of a request that the user reads before agreeing

# Authorization servers.
AUTH_SECONDS = 15.0  # for each answer
AUTH_BYTES = 512 * 1024
AUTH_ADDRESS = 4000
SCOPE = 300  # characters of the rights that a server asks for
CONSENTS = 3  # of the user, for one connection; a server could ask for more rights without end
TOKENS_TRIED = 4  # in one request: none, the stored one, a refreshed one, a new one
REDIRECT_BYTES = 16 * 1024  # of the browser's request, headers included
REDIRECT_SECONDS = 5.0

# Seconds of a connection.
START_WAIT = 10.0  # that a turn waits for a server; one that takes longer goes on starting
RETRY = 2.0  # the same for a server that failed before
HTTP_SECONDS = 30.0  # to connect and to write; a read limit would let one silent call end the connection (mcp 2.3)
CLOSE_SECONDS = 4.0  # to end a connection in good order; then it is cancelled
CANCEL_SECONDS = 0.5  # that a cancelled connection may take to end
# These two must have passed before the kernel is terminated: Jupyter gives it 2.5 seconds to shut down.
EXIT_SECONDS = 1.0  # from the end of a program's input to SIGTERM
TERM_SECONDS = 0.5  # from SIGTERM to SIGKILL
LAST_OUTPUT_SECONDS = 0.5  # that children of a program may still write after the program has ended


class Rate:
    """Counts how many messages of each kind may pass now; `burst` of one kind may pass at once."""

    def __init__(self, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, kind: str) -> bool:
        """Return whether one more message may pass, and count it."""
        left, now = self._refilled(kind)
        self._left[kind] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > KINDS:
            self._left.pop(next(iter(self._left)))
        return left >= 1

    def wait(self, kind: str) -> float:
        """Return the seconds until one more message may pass."""
        left, _ = self._refilled(kind)
        return max(0.0, (1 - left) / PER_SECOND)

    def _refilled(self, kind: str) -> tuple[float, float]:
        now = self._clock()
        left, then = self._left.get(kind, (self._burst, now))
        return min(self._burst, left + (now - then) * PER_SECOND), now


class Brake:
    """Makes a reader pause after every `PAUSE_AFTER` useless messages; meanwhile the server has to wait."""

    def __init__(self) -> None:
        self._dropped = 0

    async def dropped(self) -> None:
        """Count one useless message."""
        self._dropped += 1
        if self._dropped % PAUSE_AFTER == 0:
            await asyncio.sleep(PAUSE)


class ValueCounter:
    """Counts roughly how many values the JSON so far holds, without parsing it; text inside strings is not counted."""

    def __init__(self) -> None:
        self.count = 0
        self._in_string = False
        self._pending = b""

    @property
    def too_many(self) -> bool:
        """Whether there are more values than `MESSAGE_VALUES`."""
        return self.count > MESSAGE_VALUES

    def feed(self, chunk: bytes) -> None:
        """Count the next bytes."""
        chunk = self._pending + chunk
        backslashes = len(chunk) - len(chunk.rstrip(b"\\"))
        self._pending = b"\\" if backslashes % 2 else b""  # the character that it escapes is in the next chunk
        bare = chunk[: len(chunk) - len(self._pending)].replace(rb"\\", b"").replace(rb"\"", b"")
        # Without escapes each quote opens or closes a string, so every second piece lies outside of strings.
        pieces = bare.split(b'"')
        outside = b"".join(pieces[1 if self._in_string else 0 :: 2])
        self.count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        self._in_string ^= len(pieces) % 2 == 0


_REPETITION = re.compile(r"(\)?)\{(?:\d*,)?(\d{1,9})\}")
NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords of JSON Schema whose value has schemas under names of the server's own."""
_DEFINED = frozenset({"$defs", "definitions"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_SINGLE = frozenset(
    {"not", "if", "then", "else", "items", "additionalProperties", "additionalItems", "contains"}
    | {"propertyNames", "unevaluatedProperties", "unevaluatedItems"}
)
# These check the same value as the schema around them, so a reference back from them never ends.
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})


class CostlySchema(ValueError):
    """Raised for a schema that arguments are not checked against; the message says why."""


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return why checking arguments against a schema would be too much work, or None.

    A schema of a few hundred bytes can take hours to check: references that double at each step grow like 2^n
    (16 steps took 14 s), a reference back to itself never ends, and nested repetitions make a pattern huge.
    """
    try:
        nodes = _SchemaCost(schema).nodes("#", frozenset())
        if nodes > SCHEMA_NODES:
            found = min(nodes, 10**9)  # written out, 2^n would be a long number
            return f"it has {found} parts once its references are followed, over the limit of {SCHEMA_NODES}"
    except CostlySchema as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return None


class _SchemaCost:
    """Counts the subschemas of a schema, following references without writing them out."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[str, int] = {}
        self._pattern_size = 0

    def nodes(self, pointer: str, within: frozenset[str]) -> int:
        """Count the subschemas behind a reference; `within` are the references that check the same value."""
        if pointer in within:
            raise CostlySchema(f"its reference {pointer[:100]} leads back to itself")
        if pointer not in self._known:
            # A reference back through properties or items counts once: the arguments limit how deep it goes.
            self._known[pointer] = 1
            if (found := resolve(self._root, pointer)) is NOWHERE:
                raise CostlySchema(f"its reference {pointer[:100]} leads nowhere")
            self._known[pointer] = self._count(found, within | {pointer})
        return self._known[pointer]

    def _count(self, schema: Any, within: frozenset[str]) -> int:
        if not isinstance(schema, Mapping):
            return 1
        node = cast("Mapping[str, Any]", schema)
        self._add_patterns(node)
        if node is not self._root and any(isinstance(node.get(key), str) for key in ("$id", "id")):
            raise CostlySchema("a part of it has an address of its own, which changes what references mean")
        total = 1
        if (reference := node.get("$ref")) is not None:
            if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
                raise CostlySchema(f"it refers to {str(reference)[:200]}, which is not fetched")
            total += self.nodes(reference, within)
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise CostlySchema("it has references that depend on where they are read from")
        for keyword, child in _subschemas(node):
            total += self._count(child, within if keyword in _IN_PLACE else frozenset())
        return total

    def _add_patterns(self, node: Mapping[str, Any]) -> None:
        patterns = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
        if isinstance(by_pattern := node.get("patternProperties"), Mapping):
            patterns += list(cast("Mapping[str, Any]", by_pattern))
        self._pattern_size += sum(map(unrolled_size, patterns))
        if self._pattern_size > PATTERN_SIZE:
            raise CostlySchema("its regular expressions are too large")


NOWHERE: Any = object()


def resolve(root: Mapping[str, Any], pointer: str) -> Any:
    """Return what a reference inside a schema, "#/$defs/x", leads to; NOWHERE if there is nothing."""
    found: Any = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        try:
            found = cast("list[Any]", found)[int(key)] if isinstance(found, list) else found[key]
        except (LookupError, TypeError, ValueError):
            return NOWHERE
    return found


def unrolled_size(pattern: str) -> int:
    """Return roughly how long a regular expression is with its repetitions written out."""
    counts = [(bool(of_group), int(count)) for of_group, count in _REPETITION.findall(pattern)]
    nested = prod(max(1, count) for of_group, count in counts if of_group)
    return (len(pattern) + sum(count for of_group, count in counts if not of_group)) * nested


def _subschemas(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in node.items():
        if keyword in _DEFINED:
            continue  # counted at each reference to them
        if keyword in NAMED_SCHEMAS and isinstance(value, Mapping):
            yield from ((keyword, child) for child in cast("Mapping[str, Any]", value).values())
        elif keyword in _LISTED and isinstance(value, list):
            yield from ((keyword, child) for child in cast("list[Any]", value))
        elif keyword in _SINGLE:
            yield keyword, value
