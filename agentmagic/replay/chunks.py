"""Converts a model's answer from the events in which it arrived to a document of a recorded turn, and back.

The document has the complete parts of the answer. Its line `chunks` says in which pieces they arrived. It is left out
if each text came word by word, and each tool call in one piece. The line `ms` has the pause before each event in
milliseconds. It is left out if the pauses were too short to notice. `withdrawn` lists the parts that began as text and
became reasoning.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat
from typing import Any

from agentmagic import errors
from agentmagic.errors import ProviderError, describe
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.replay.exchange import Json, blank_secrets
from agentmagic.secrets import redact
from agentmagic.serialization import from_json

WORDS = "w"
PIECES = {WORDS: re.compile(r"\S+\s*|\s+"), "t": re.compile(r"\s?[^\W\d_]+|\s?\d+|\s?[^\w\s]+|\s+")}
"""Patterns of the pieces in most streams: words ("w") or tokens ("t"). A piece that fits is written as the letter."""
TEXT_TYPES = ("text", "reasoning")
"""The types of parts whose text arrives in pieces."""
SHORTEST_ANSWER = 50
"""Milliseconds. If an answer took less time, its pauses are not written."""
PAUSE_TOLERANCE = 50
"""Milliseconds. Pauses that differ from their mean by no more than this, or than half the mean, are written as it."""

MOST_CHUNKS = 1_000_000
"""Maximum number of chunks in one line: a short line such as `w*999999 w*999999` can stand for very many."""

_RUN = re.compile(r"([+@-]\d{1,6}|[wt]|\d{1,9})(?:\*(\d{1,6}))?")


class Answer:
    """Builds the document of one answer, for the recording of a turn, from the events of the model."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._flow: list[tuple[str, int, str]] = []
        self._ticks: list[int] = []
        self._last = time.monotonic()
        self._parts: dict[int, Json] = {}
        self._pieces: dict[int, list[str]] = {}
        self._texts: set[int] = set()
        self._end: Json = {}

    def feed(self, event: ModelEvent) -> None:
        """Add an event of the model to the answer."""
        now = time.monotonic()
        self._ticks.append(round((now - self._last) * 1000))
        self._last = now
        match event:
            case PartStarted(index=index, kind=kind):
                self._flow.append(("+", index, ""))
                self._pieces[index] = []
                self._texts |= {index} if kind == "text" else set()
                call: Json = {"type": kind, "id": "", "name": event.name, "arguments": {}}
                self._parts[index] = {"type": kind, "text": ""} if kind in TEXT_TYPES else call
            case PartDelta(index=index, text=text):
                self._flow.append(("", index, text))
                self._pieces.setdefault(index, []).append(text)
            case PartFinished(index=index, part=part):
                self._flow.append(("-", index, ""))
                self._parts[index] = blank_secrets(part)
            case ModelFinished():
                self._end = {"reason": event.reason} if event.reason else {}
                self._end |= {"cut": True} if event.cut else {}
                self._end |= {} if event.once else {"once": False}
                self._end |= {"last": True} if event.last else {}
                self._end |= {"refused": True} if event.refused else {}
                self._end |= {"unknown": True} if event.unknown else {}
                self._end["usage"] = usage_list(event.usage)

    def fail(self, error: BaseException, name: str) -> None:
        """Record in the answer that the model `name` raised an error, or that the turn was stopped."""
        if not isinstance(error, Exception):
            self._end["stopped"] = True
            return
        is_public = isinstance(error, ProviderError) and type(error).__name__ in vars(errors)
        kind = type(error).__name__ if is_public else "ProviderError"
        message = (
            describe(error) if isinstance(error, ProviderError) else f"{name} failed: {type(error).__name__}: {error}"
        )
        failure: Json = {"kind": kind, "text": redact(message)}
        for field in ("status", "retry_after", "retryable"):
            if (value := getattr(error, field, None)) is not None:
                failure[field] = value
        if mend := getattr(error, "mended", ""):
            failure["mended"] = redact(mend)
        if (usage := getattr(error, "usage", None)) is not None:
            failure["usage"] = usage_list(usage)
        self._end["error"] = failure

    def document(self) -> Json:
        """Return the document of the answer."""
        places = {index: place for place, index in enumerate(dict.fromkeys(index for _, index, _ in self._flow))}
        texts = {index: "".join(pieces) for index, pieces in self._pieces.items()}
        complete = {index for mark, index, _ in self._flow if mark == "-"}
        for index in self._parts.keys() - complete:
            if self._parts[index]["type"] in TEXT_TYPES:
                self._parts[index]["text"] = redact(texts.get(index, ""))
        parts = [self._parts.get(index, {"type": "text", "text": ""}) for index in places]
        deltas = {
            str(places[i]): redact(text)
            for i, text in texts.items()
            if text and redact(text) not in spellings(self._parts[i])
        }
        withdrawn = sorted(places[index] for index in self._texts if self._parts[index]["type"] == "reasoning")
        calls = {index for index, part in self._parts.items() if part["type"] not in TEXT_TYPES}
        chunks = " ".join(_runs(_flow(self._flow, places, texts, calls)))
        alone = re.fullmatch(r"\+0 ([^-+@]+) -0", chunks)
        letter = next((key for key in PIECES if chunks == usual_chunks(parts, key)), "")
        chunks = letter or (alone[1] if alone and alone[1] not in PIECES else chunks)
        times = _pauses(self._ticks) if sum(self._ticks) >= SHORTEST_ANSWER else ""
        usage = self._end.pop("usage", None)
        return {
            "answer": self._number,
            "parts": parts,
            **({"written": deltas} if deltas else {}),
            **({"withdrawn": withdrawn} if withdrawn else {}),
            **self._end,
            **({"ms": times} if times else {}),
            **({"chunks": chunks} if usage is None or chunks != WORDS else {}),
            **({} if usage is None else {"usage": usage}),  # must be the last key: it shows that the answer is complete
        }


def spellings(part: Mapping[str, Any]) -> list[str]:
    """Return the texts that can be rebuilt from an answer part. Any other streamed text is recorded."""
    if part["type"] in TEXT_TYPES:
        return [part.get("text", "")]
    arguments = part.get("arguments", {})
    return [
        json.dumps(arguments),
        json.dumps(arguments, separators=(",", ":")),
        json.dumps(arguments, ensure_ascii=False),
        json.dumps(arguments, ensure_ascii=False, separators=(",", ":")),
    ]


def usual_chunks(parts: Iterable[Json], letter: str) -> str:
    """Return the `chunks` line for an answer. Its texts came in words if `letter` is "w", in tokens if it is "t".

    Each tool call came in one piece.
    """
    words: list[str] = []
    for place, part in enumerate(parts):
        text = spellings(part)[0]
        pieces = [str(len(text))] if part["type"] == "tool_call" else [letter] * len(PIECES[letter].findall(text))
        words += [f"+{place}", *pieces, f"-{place}"]
    return " ".join(_runs(words))


def usage_list(usage: Usage) -> list[Any]:
    """Return the counts of a usage as a list, without zeros at the end.

    The order is: input, cached, output and reasoning tokens, the cost, all tokens written to a cache, the tokens that
    the cache keeps for an hour, and searches.
    """
    counts = [usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cost]
    counts += [usage.cache_write_tokens, usage.cache_write_1h_tokens, usage.searches]
    while counts and counts[-1] == 0:
        counts.pop()
    return counts


def usage_of(counts: Sequence[Any]) -> Usage:
    """Return the usage from a list that `usage_list` returned."""
    whole: list[Any] = [*counts, *(0, 0, 0, 0, 0.0, 0, 0, 0)[len(counts) :]]
    input_tokens, cached_tokens, output, reasoning, cost, *rest = whole
    return Usage(input_tokens, cached_tokens, output, reasoning, 0, cost, *rest)


def _flow(
    flow: Sequence[tuple[str, int, str]], places: Mapping[int, int], texts: Mapping[int, str], calls: Collection[int]
) -> Iterator[str]:
    """Yield the entries of an answer's `chunks` line: one for each begin and end of a part and each piece of text."""
    positions = dict.fromkeys(places, 0)
    blanks = {index for index, text in texts.items() if redact(text) != text}
    current, usual_piece = -1, WORDS
    for mark, index, text in flow:
        if mark:
            yield f"{mark}{places[index]}"
            current = index if mark == "+" else -1
            continue
        if current != index:
            yield f"@{places[index]}"
            current = index
        start = positions[index]
        positions[index] += len(text)
        if index in blanks:  # the text without its secrets has another length: write it as one piece
            if not start:
                yield str(len(redact(texts[index])))
            continue
        letters = () if index in calls else sorted(PIECES, key=lambda letter: letter != usual_piece)
        fitting = (key for key in letters if (match := PIECES[key].match(texts[index], start)) and match[0] == text)
        letter = next(fitting, "")
        usual_piece = letter or usual_piece
        yield letter or str(len(text))


def _runs(words: Iterable[str]) -> Iterator[str]:
    """Yield the entries of a `chunks` or `ms` line. Equal entries in a row are yielded once, as `entry*count`."""
    for word, group in groupby(words):
        count = sum(1 for _ in group)
        yield word if count == 1 else f"{word}*{count}"


def _pauses(ticks: Iterable[int]) -> str:
    """Return the pauses between events, in milliseconds, as one line. Similar pauses in a row become their mean."""
    runs: list[list[int]] = [[]]
    for tick in ticks:
        mean = sum(runs[-1]) / max(len(runs[-1]), 1)
        if runs[-1] and abs(tick - mean) > max(PAUSE_TOLERANCE, mean / 2):
            runs.append([])
        runs[-1].append(tick)
    return " ".join(_runs(str(round(sum(run) / len(run))) for run in runs for _ in run))


# -- back to events ----------------------------------------------------------------------------------


def model_events(answer: Json, restore: Callable[[Any], Any]) -> Iterator[ModelEvent]:
    """Yield the model events of a recorded answer.

    Raises ValueError, KeyError, TypeError or IndexError if the document cannot be read.
    """
    parts = [from_json(restore(part)) for part in answer["parts"]]
    texts = [str(answer.get("written", {}).get(str(place), "")) for place in range(len(parts))]
    withdrawn = answer.get("withdrawn", ())
    chunks = str(answer.get("chunks", WORDS))
    if chunks in PIECES:
        chunks = usual_chunks(answer["parts"], chunks)
    flow = list(unroll(f"+0 {chunks} -0" if chunks[:1].isalnum() else chunks))
    lengths = _lengths(flow)
    for place, data in enumerate(answer["parts"]):
        if not texts[place] and place in lengths:
            candidates = [spelling for spelling in spellings(data) if lengths[place] in (len(spelling), -1)]
            texts[place] = candidates[0]  # raises IndexError if the text was edited, but its `chunks` were not
    positions, current = [0] * len(parts), 0
    for word in flow:
        if word[0] in "+-@":
            current = int(word[1:])
            part = parts[current]
            if word[0] == "+":
                kind = "text" if current in withdrawn else answer["parts"][current]["type"]
                yield PartStarted(current, kind, part.name if isinstance(part, ToolCall) else "")
            elif word[0] == "-":
                yield PartFinished(current, part)
            continue
        text, start = texts[current], positions[current]
        piece = (PIECES[word].match(text, start) or [""])[0] if word in PIECES else text[start : start + int(word)]
        positions[current] += len(piece)
        yield PartDelta(current, piece)
    if "usage" in answer:
        end = (answer.get("reason", ""), answer.get("cut", False), answer.get("once", True), answer.get("last", False))
        refused, unknown = answer.get("refused", False), answer.get("unknown", False)
        yield ModelFinished(usage_of(answer["usage"]), *end, refused=refused, unknown=unknown)


def unroll(line: str) -> Iterator[str]:
    """Yield each entry of a `chunks` or `ms` line. An entry `entry*count` is yielded `count` times.

    Raises ValueError for an invalid entry, and for more than MOST_CHUNKS entries.
    """
    budget = MOST_CHUNKS
    for word in str(line).split():
        match = _RUN.fullmatch(word)
        if match is None:
            message = f"{word!r} is no chunk"
            raise ValueError(message)
        times = int(match[2] or 1)
        budget -= times
        if budget < 0:
            message = f"it has more than {MOST_CHUNKS:,} chunks"
            raise ValueError(message)
        yield from repeat(match[1], times)


def _lengths(flow: Sequence[str]) -> dict[int, int]:
    """Return the length of each answer part, by index, from the `chunks` entries. It is -1 if they have no lengths."""
    lengths: dict[int, int] = {}
    current = 0
    for word in flow:
        if word[0] in "+-@":
            current = int(word[1:])
        elif word in PIECES or lengths.get(current) == -1:
            lengths[current] = -1
        else:
            lengths[current] = lengths.get(current, 0) + int(word)
    return lengths
