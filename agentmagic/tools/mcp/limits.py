"""All limits for the messages of MCP servers, as one table, and the counters that some of the limits need.

Servers are not trusted: a server can send any number of messages, of any size and depth. The table has one row per
limit, with its reason. Other modules read the limits as attributes of this module, so that a test can lower one.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, cast
from urllib.parse import unquote

# Limits of one message of a server, in bytes and in JSON values.
MESSAGE_BYTES = 32 * 1024 * 1024  # The SDK needs quadratic time for a line: 79 s for 50 MB.
MESSAGE_VALUES = 200_000  # The JSON parser needs 16 s and 3.4 GB for 30 MB of "[],[],...", but 0.2 s for one string.
REPAIRED_BYTES = 1_000_000  # Longer JSON is not repaired: the regular expression holds the GIL and stops all threads.
MESSAGE_ENDS = 4096  # Bytes kept from each end of a dropped message: enough to find the request that it answers.
STDERR_BYTES = 64 * 1024
STDERR_SHOWN = 4000  # Characters.

# How many messages a server can send in a given time. Further messages are dropped or delayed.
PER_SECOND = 20.0  # Messages of each kind. The progress notifications of each call count as one kind.
BURST = 5  # Messages of one kind that can come at once.
LOG_BURST = 200
KINDS = 256  # Kinds of messages that one `Rate` counts separately. The server can invent any number of kinds.
HELD_KINDS = 64  # Kinds whose last notification is held back while notifications come too fast.
OPEN_REQUESTS = 32  # Requests of one server that are not answered yet. Each one needs an asyncio task.
PAUSE_AFTER = 500  # After this many dropped messages of a server, reading from it pauses.
PAUSE = 0.05  # Length of the pause in seconds. A server that floods us with messages has to wait this long.
LOG_LINES = 1000

# Lists that a server sends.
PAGES = 50  # Pages of one list. A server can send pages without end.
LIST_ENTRIES = 500  # Prompts or resources of one server.
TOOLS = 500  # Tools of one server. Each request to the model contains all of them.
PROMPT_MESSAGES = 100
RESULT_LISTS = {  # Maximum number of entries in each list of one result. The SDK needs 0.1 ms for each entry.
    "content": 1001,
    "contents": 1001,
    "messages": 200,
    "prompts": LIST_ENTRIES,
    "resources": LIST_ENTRIES,
    "resourceTemplates": LIST_ENTRIES,
}

# Limits of tools and their schemas. Checking arguments against a schema blocks the engine's event loop.
TOOL_NAME = 200  # Characters.
TOOL_DESCRIPTION = 10_000  # Characters. Each request to the model contains the description.
SCHEMA_SIZE = 100_000  # Characters of JSON.
SCHEMA_NODES = 5000  # Subschemas, with references followed. If arguments are invalid, a check takes 0.1 ms for each.
PATTERN_SIZE = 50_000  # Characters of all regular expressions in a schema, with their repetitions written out.
PATTERN_SECONDS = 1.0  # To compile a tool list's patterns, which holds the GIL: "\\p{L}{1,500}" took 0.17 s.
DROPPED_KEYWORDS = 20  # How many of the keywords removed from a schema are reported to the user.

# One whole tool result, in characters of text, bytes of media, and number of parts.
RESULT_TEXT = 5_000_000
RESULT_MEDIA = 20_000_000
RESULT_PARTS = 1000

# Texts that are shown to the user, in characters.
INSTRUCTIONS = 5000
PROGRESS = 500
NAME = 200
ADDRESS = 2000
DESCRIPTION = 1000
LOG_TEXT = 2000
ERROR = 500
FAILURE = 2000  # The error text of a failed call, which the model reads.

# How many questions to the user, and requests to the user's model (samples), a server can send in one turn.
QUESTIONS = 10
QUESTION_TEXT = 2000
FORM_FIELDS = 20
FORM_CHOICES = 100
FORM_LABEL = 300
FORM_DEFAULT = 500
FORM_NUMBER = 10**15  # Longer numbers are hard to read.
SAMPLES = 5  # Requests to the user's model, for which the user pays.
SAMPLE_TOKENS = 8000  # Tokens of all answers to these requests together.
SAMPLE_MESSAGES = 50
SAMPLE_INSTRUCTIONS = 10_000
SAMPLE_TEXT = 100_000
SAMPLE_MEDIA = 5_000_000
SAMPLE_SHOWN = 20_000  # Characters of a request that are shown to the user for approval.

# Limits for OAuth: authorization servers, the rights that they ask for, and the browser that is redirected to us.
AUTH_SECONDS = 15.0  # Seconds to wait for each response.
AUTH_BYTES = 512 * 1024
AUTH_ADDRESS = 4000
SCOPE = 300  # Characters of the text that names the rights (OAuth scopes) that a server requests.
CONSENTS = 3  # How many times the user is asked for one connection. A server could ask for more rights without end.
TOKEN_ATTEMPTS = 4  # Attempts to send one request: without a token, and with a stored, a refreshed and a new token.
REDIRECT_BYTES = 16 * 1024  # Bytes of the request, with headers, that a redirected browser sends.
REDIRECT_SECONDS = 5.0

# Times of a connection, in seconds.
START_WAIT = 10.0  # A turn waits this long for a server. A slower server continues to start.
RETRY = 2.0  # A turn waits this long for a server that failed before.
HTTP_SECONDS = 30.0  # To connect or write. A limit for reading would end the connection at one slow call (mcp 2.3).
CLOSE_SECONDS = 4.0  # For a connection to close. After this time, its task is cancelled.
CANCEL_SECONDS = 0.5  # For a connection's task to end after it was cancelled.
# The sum of EXIT_SECONDS and TERM_SECONDS must be below the 2.5 seconds that Jupyter gives a kernel to shut down.
EXIT_SECONDS = 1.0  # Seconds between closing the input of a server's program and SIGTERM.
TERM_SECONDS = 0.5  # Seconds between SIGTERM and SIGKILL.
LAST_OUTPUT_SECONDS = 0.5  # After a program has ended, its child processes can still write for this time.


class Rate:
    """Limits the rate of messages of each kind to `PER_SECOND`. Up to `burst` messages of one kind can pass at once."""

    def __init__(self, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._clock = clock
        self._tokens: dict[str, tuple[float, float]] = {}

    def take(self, kind: str) -> bool:
        """Count one message, and return whether it can pass."""
        tokens, now = self._refill(kind)
        self._tokens[kind] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._tokens) > KINDS:
            self._tokens.pop(next(iter(self._tokens)))
        return tokens >= 1

    def wait(self, kind: str) -> float:
        """Return the seconds until the next message of this kind can pass."""
        tokens, _ = self._refill(kind)
        return max(0.0, (1 - tokens) / PER_SECOND)

    def _refill(self, kind: str) -> tuple[float, float]:
        now = self._clock()
        tokens, then = self._tokens.get(kind, (self._burst, now))
        return min(self._burst, tokens + (now - then) * PER_SECOND), now


class Brake:
    """Slows down a server that sends many useless messages: after every `PAUSE_AFTER` of them, reading pauses."""

    def __init__(self) -> None:
        self._count = 0

    async def count_dropped_message(self) -> None:
        """Count one dropped message. After every `PAUSE_AFTER` messages, sleep for `PAUSE` seconds."""
        self._count += 1
        if self._count % PAUSE_AFTER == 0:
            await asyncio.sleep(PAUSE)


class ValueCounter:
    """Counts the values in JSON text approximately, without parsing it. The text inside strings is not counted."""

    def __init__(self) -> None:
        self.count = 0
        self._in_string = False
        self._pending = b""

    @property
    def too_many(self) -> bool:
        """Whether the count exceeds `MESSAGE_VALUES`."""
        return self.count > MESSAGE_VALUES

    def feed(self, chunk: bytes) -> None:
        """Count the values in the next bytes of the text."""
        chunk = self._pending + chunk
        backslashes = len(chunk) - len(chunk.rstrip(b"\\"))
        self._pending = b"\\" if backslashes % 2 else b""  # The escaped character is in the next chunk.
        bare = chunk[: len(chunk) - len(self._pending)].replace(rb"\\", b"").replace(rb"\"", b"")
        # After the escapes are removed, each quote opens or closes a string: every second piece is outside strings.
        pieces = bare.split(b'"')
        outside = b"".join(pieces[1 if self._in_string else 0 :: 2])
        self.count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        self._in_string ^= len(pieces) % 2 == 0


_REPETITION = re.compile(r"(\)?)\{(?:\d*,)?(\d{1,9})\}")
NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords of JSON Schema whose value is an object of schemas, with keys that the server chooses."""
_DEFINITION_KEYWORDS = frozenset({"$defs", "definitions"})
LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SINGLE_KEYWORDS = frozenset(
    {"not", "if", "then", "else", "items", "additionalProperties", "contains"}
    | {"propertyNames", "unevaluatedProperties", "unevaluatedItems"}
)
"""Keywords whose value is a list of schemas, and those whose value is one schema."""
# Schemas under these keywords check the same value as the schema around them. If one of them refers back to that
# schema, the check never ends.
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})


class CostlySchema(ValueError):
    """Raised for a schema that is too costly or impossible to check arguments against. The message is the reason."""


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return why a check of arguments against a schema would take too long, or None if it would not.

    With a schema of a few hundred bytes, a check can take hours. A chain of n definitions, in which each refers twice
    to the next, has 2^n parts (16 steps took 14 s). A schema that refers to itself never ends, and nested repetitions
    make a regular expression huge.
    """
    try:
        nodes = _SchemaCost(schema).nodes("#", frozenset())
        if nodes > SCHEMA_NODES:
            count = min(nodes, 10**9)  # The true count can have hundreds of digits.
            return f"it has {count} parts once its references are followed, over the limit of {SCHEMA_NODES}"
    except CostlySchema as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return None


class _SchemaCost:
    """Counts the parts of a JSON Schema as if each `$ref` were replaced by its target, but replaces none."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._counts: dict[str, int] = {}
        self._pattern_size = 0

    def nodes(self, pointer: str, within: frozenset[str]) -> int:
        """Return the number of subschemas in the target of a `$ref`.

        Of the references that led here, `within` has those whose targets check the same value as this target.
        """
        if pointer in within:
            raise CostlySchema(f"its reference {pointer[:100]} leads back to itself")
        if pointer not in self._counts:
            # While the target is counted, a reference back to it through properties or items counts as 1: a check
            # follows it only as deep as the arguments are nested.
            self._counts[pointer] = 1
            if (target := resolve(self._root, pointer)) is NOWHERE:
                raise CostlySchema(f"its reference {pointer[:100]} leads nowhere")
            self._counts[pointer] = self._count(target, within | {pointer})
        return self._counts[pointer]

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
    """Return the target of a reference inside a schema, such as "#/$defs/x", or NOWHERE if it does not exist."""
    value: Any = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        try:
            value = cast("list[Any]", value)[int(key)] if isinstance(value, list) else value[key]
        except (LookupError, TypeError, ValueError):
            return NOWHERE
    return value


def unrolled_size(pattern: str) -> int:
    """Return the approximate length of a regular expression with its repetitions written out."""
    counts = [(bool(of_group), int(count)) for of_group, count in _REPETITION.findall(pattern)]
    factor = prod(max(1, count) for of_group, count in counts if of_group)
    return (len(pattern) + sum(count for of_group, count in counts if not of_group)) * factor


def _subschemas(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in node.items():
        if keyword in _DEFINITION_KEYWORDS:
            continue  # Definitions are counted at each reference to them.
        if keyword in NAMED_SCHEMAS and isinstance(value, Mapping):
            yield from ((keyword, child) for child in cast("Mapping[str, Any]", value).values())
        elif isinstance(value, list) and keyword in LIST_KEYWORDS | {"items"}:
            yield from ((keyword, child) for child in cast("list[Any]", value))
        elif keyword in SINGLE_KEYWORDS | {"additionalItems"}:
            yield keyword, value
