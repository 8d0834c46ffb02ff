"""Shortens long tool results. The model gets a preview with the call's id, and a tool that reads the rest by this id.

Nothing is stored twice: the history has every result in full.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from agentmagic.errors import ToolError
from agentmagic.messages import Example, Media, Message, Text, ToolCall, ToolDef, ToolResult
from agentmagic.text import cut_middle
from agentmagic.tools.base import Tool, ToolContext, result

READER = "read_result"
SLICE = 4_000
"""Characters that one call of the reader returns by default."""
MOST = 20_000
"""Maximum number of characters that one call of the reader returns."""
HEAD = 150
"""Characters reserved for the header line above the text."""
AROUND = 120
"""Characters that are shown on each side of a search hit."""
MOST_HITS = 10
LONGEST_SEARCH = 200

Find = Callable[[str], ToolResult | None]


def preview(whole: ToolResult, limit: int, *, media: bool = True) -> ToolResult:
    """Return a tool result with text of at most `limit` characters. A cut text has a note on how to read the rest.

    The beginning and the end are kept. Images and other media are kept too, and the text names them. With `media=False`
    only their names are kept. A result that needs no change is returned unchanged.
    """
    text = whole.text
    media_parts = tuple(part for part in whole.content if isinstance(part, Media)) if media else ()
    if len(text) > limit:
        return replace(
            whole, content=(Text(cut_middle(text, limit, _how_to_read(whole.call_id, len(text)))), *media_parts)
        )
    if media or not any(isinstance(part, Media) for part in whole.content):
        return whole
    return replace(whole, content=(Text(text),))


def _how_to_read(call_id: str, length: int) -> Callable[[int, int], str]:
    handle = json.dumps(call_id, ensure_ascii=False)

    def note(start: int, end: int) -> str:
        return (
            f"\n[Characters {start} to {end} of {length} are left out. {READER}(id={handle}, start={start}) reads on, "
            f'{READER}(id={handle}, search="words") finds words.]\n'
        )

    return note


def find_result(messages: Sequence[Message], call_id: str) -> ToolResult | None:
    """Return the newest tool result with this call id in a history, or None."""
    results = (part for message in reversed(messages) if message.role == "tool" for part in message.parts)
    return next((part for part in results if isinstance(part, ToolResult) and part.call_id == call_id), None)


def reader(find: Find, limit: int | None = None) -> Tool:
    """Return the tool with which the model reads text that previews leave out.

    `find` returns a result by the id of its call. `limit` is the length limit of results. The tool's own results stay
    below it, so that they are never replaced by a preview.
    """
    most = MOST if limit is None else min(limit, MOST)

    async def read(call: ToolCall, _: ToolContext) -> ToolResult:
        whole = find(call.arguments["id"])
        if whole is None:
            label = json.dumps(call.arguments["id"][:80], ensure_ascii=False)
            raise ToolError(
                f"There is no result with the id {label}. Use the id that a preview names, exactly as it stands there."
            )
        return replace(result(call, _read(whole.text, call.arguments, most)), server=whole.server)

    return Tool(DEFINITION, read)


DEFINITION = ToolDef(
    READER,
    "Read more of an earlier tool result of which only a preview was shown; the preview names its id and where to "
    "read on. Give `start` to read a piece of the whole text, or `search` to find words in it (plain words, upper and "
    "lower case alike) and their positions.",
    {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id that the preview names."},
            "start": {
                "type": "integer",
                "minimum": 0,
                "default": 0,
                "description": "The character to begin at, counted from 0.",
            },
            "length": {
                "type": "integer",
                "minimum": 1,
                "default": SLICE,
                "description": "How many characters to read; fewer come where that is too many.",
            },
            "search": {
                "anyOf": [{"type": "string", "minLength": 1, "maxLength": LONGEST_SEARCH}, {"type": "null"}],
                "default": None,
                "description": "Words to find instead of reading; only hits from `start` on are shown.",
            },
        },
        "required": ["id"],
    },
    examples=(
        Example("Read on in result call_7 from character 4000.", {"id": "call_7", "start": 4000}),
        Example('Where does result call_7 mention "timeout"?', {"id": "call_7", "search": "timeout"}),
    ),
)


def _read(text: str, arguments: Any, most: int) -> str:
    start = int(arguments.get("start", 0))  # In JSON Schema, 4000.0 is an integer too.
    if start and start >= len(text):
        raise ToolError(f"The result has {len(text)} characters; choose a start below that.")
    if query := arguments.get("search"):
        return _hits(text, query, start, most)
    length = min(int(arguments.get("length", SLICE)), max(most - HEAD, 1))
    end = min(start + length, len(text))
    more = f"; start={end} reads on" if end < len(text) else ", the end"
    return f"[Characters {start} to {end} of {len(text)}{more}]\n{text[start:end]}"[:most]


def _hits(text: str, query: str, start: int, most: int) -> str:
    # The query is plain text, because a model's regular expression could run forever.
    low, needle = _lower(text), _lower(query)
    count = low.count(needle, start)
    if not count:
        return f"[The words are not found between character {start} and the end, {len(text)}]"[:most]
    positions = list(islice(_positions(low, needle, start), MOST_HITS + 1))
    lines = (_surroundings(text, position, len(query)) for position in positions[:MOST_HITS])
    shown_lines = list(_fitting(lines, max(most - HEAD, 1)))
    more = f"; start={positions[len(shown_lines)]} shows the next" if len(shown_lines) < len(positions) else ""
    head = f"[{len(shown_lines)} of {count} hits from character {start} on{more}]"
    return "\n".join([head, *shown_lines])[:most]


def _positions(low: str, needle: str, start: int) -> Iterator[int]:
    position = low.find(needle, start)
    while position >= 0:
        yield position
        position = low.find(needle, position + len(needle))


def _lower(text: str) -> str:
    """Return the text in lower case, in the same length. U+0130, whose lower case has two characters, is replaced."""
    return text.replace("\u0130", "I").lower()


def _surroundings(text: str, position: int, length: int) -> str:
    return f"[{position}] …{text[max(position - AROUND, 0) : position + length + AROUND]}…"


def _fitting(lines: Iterable[str], room: int) -> Iterator[str]:
    """Yield as many lines as fit into `room` characters, and at least the first line."""
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if number and room < 0:
            return
        yield line
