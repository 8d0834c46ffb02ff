"""The recording of one map: the request that all rows share, and a line for each row.

A line is the outcome of a row as JSON. The cassette file stores the lines, up to a hundred in a document. If the map
has a file of its own, that file stores the lines, and the cassette only their digest.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePath
from typing import Any, cast

from agentmagic.errors import CassetteError
from agentmagic.events import PromptValue
from agentmagic.messages import ToolCall, ToolResult, Usage
from agentmagic.providers.base import Model, ModelEvent, ModelSettings, Request
from agentmagic.replay import unasked
from agentmagic.replay.cassette import Cassette, Take
from agentmagic.replay.comparison import ABSENT, Difference, RequestRecords, compare
from agentmagic.replay.exchange import Json, blank_secrets, kind_of, short_digest
from agentmagic.replay.player import COSMETIC, Verdict, mismatch, records
from agentmagic.replay.recorded_answers import usage_list, usage_of
from agentmagic.replay.recorder import DIGEST, DIGITS, TurnRecorder
from agentmagic.replay.taped_tools import on_tape_toolsets, real_tool
from agentmagic.settings import Replay
from agentmagic.text import plural
from agentmagic.tools.base import Tool, ToolContext, Toolset

ROWS = 100
"""Maximum number of rows in one document."""
LONGEST_WAIT = 5.0
"""Seconds after which the next row is written together with the rows that wait, even if they are fewer than ROWS."""
MOST_NAMED = 3
"""Maximum number of rows named in a difference."""
KEY_SHOWN = 8
"""Characters of a row's key that are shown, to distinguish rows with the same label."""

_NO_BLOCK = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that YAML does not allow in a literal block."""


class RecordedModel:
    """Stands for the model in a replayed map. No request may be sent to it."""

    def __init__(self, name: str, head: Json) -> None:
        self.name = name
        self.base_url = head.get("address")
        self._left_out = cast("Sequence[str]", head.get("left out", ()))

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model honoured when it was recorded."""
        return [name for name in settings.given if name not in self._left_out]

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Raise CassetteError, because a replayed map must not send a request."""
        raise CassetteError(f"A recording of {self.name} is not asked {request.messages[-1].text!r:.40}.")

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""


@dataclass(kw_only=True)
class MapTape:
    """Records or replays one map.

    `take` is the recording to play, or None. `record` creates the recorder, given the values in the prompt of all rows;
    it is None if nothing is recorded. `real` creates the live model. `name` is the model's name in the map. `records`
    and `verdicts` are shared by the session's turns. `settle` is called when a recording ends. `notices` are messages
    for the user.
    """

    mode: Replay
    cassette: Cassette
    take: Take | None
    record: Callable[[Sequence[PromptValue]], TurnRecorder] | None
    real: Callable[[], Model]
    name: str
    prompt: str
    records: RequestRecords
    verdicts: list[Verdict]
    settle: Callable[[Take], None]

    def __post_init__(self) -> None:
        self.recorder: TurnRecorder | None = None
        self.sources: dict[int, Json] = {}
        self.tools_on_tape: dict[int, Tool] = {}
        self.notices: list[str] = []
        self.lines = rows_of_take(self.take) if self.take is not None else {}
        """The recorded line of each row by its key, in the order in which the rows ended."""
        documents = {kind_of(document): document for document in self.take.documents} if self.take is not None else {}
        self.totals: Json = documents.get("map", {})
        self.end: Json = documents.get("end", {})
        self._request: Request | None = None
        self._values: Sequence[PromptValue] = ()
        self._digest = ""
        self._file: Path | None = None
        self._buffer: list[str] = []
        self._flush_time = 0.0
        self._answers = 0

    # -- what the rows are asked ---------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model to use: a `RecordedModel` if the recording answers, else the live model, created only then."""
        return self.real() if self.take is None else RecordedModel(self.name, self.take.head)

    def toolsets(self, sources: Sequence[Toolset]) -> tuple[Toolset, ...]:
        """Return the toolsets, wrapped: each tool list is recorded, or comes from the recording."""
        return on_tape_toolsets(self, sources, None if self.take is None else self.cassette.sources(self.take))

    async def call(self, tool: Tool, source: Toolset, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a tool call that the live model made for a row. A replayed row makes no calls."""
        return await (await real_tool(tool, source)).invoke(call, context)

    def begin(self, request: Request, values: Sequence[PromptValue]) -> None:
        """Compare the common request of all rows with the recorded one.

        If they differ, the mode `auto` ignores the recording. Other modes raise ReplayMismatch. Raises CassetteError if
        the recording has no end and the mode does not record.
        """
        self._request, self._values = request, values
        new_record = self.records(request, self.name, values)
        self._digest = new_record.digest[:DIGEST]
        take = self.take
        if take is None:
            return
        if self.record is None and not take.ended:
            raise CassetteError(
                f"The recording of {self.prompt!r:.60} in {self.cassette.path.name} breaks off after "
                f"{plural(len(self.lines), 'row')}: its kernel was killed, or the file was cut. Record the cell again."
            )
        differences = [edit.difference for edit in take.edits]
        if not differences:
            old_record = next((record for _, record in records(self.cassette, take)), None)
            differences = [] if old_record is None else list(compare(old_record, new_record))
        if differences and not self._verdict(differences):
            self.take, self.lines = None, {}

    def _verdict(self, differences: Sequence[Difference]) -> bool:
        """Add the comparison's result to `verdicts`. Return True if no difference matters to a model.

        Otherwise, return False if the mode records, else raise ReplayMismatch.
        """
        self.verdicts.append(
            Verdict(self.prompt, 1, differences[0].cause if differences else "same", tuple(differences))
        )
        others = [difference for difference in differences if difference.cause != COSMETIC]
        if others and self.record is None:
            assert self.take is not None  # noqa: S101  (of the caller)
            unasked.note_failure(self.cassette)
            raise mismatch(self.cassette, self.take, 1, others, self.prompt)
        return not others

    # -- the rows ------------------------------------------------------------------------------

    @property
    def file(self) -> Path | None:
        """The map's own file with the recorded rows, or None if the rows are in the cassette file."""
        name = self.totals.get("file")
        return None if name is None else self.cassette.path.parent / str(name)

    @property
    def end_reason(self) -> str:
        """The reason why the recorded map ended. It is "" if the recording has no end."""
        return str(self.end.get("end", ""))

    @property
    def count(self) -> int | None:
        """The number of input rows that a replay reads. None means all rows: the recorded map did not end early."""
        return self.totals.get("map") if self.end_reason not in ("", "done") else None

    @property
    def places(self) -> Iterator[int]:
        """The numbers of the input rows that a replay reads. Without such numbers on the tape, these are all numbers.

        A map that ended early need not have the outcomes of its first rows: its file can have those of other rows.
        """
        text = self.totals.get("places")
        if text is None:
            return count()
        ranges = (entry.partition("-") for entry in str(text).split())
        return (number for first, _, last in ranges for number in range(int(first), int(last or first) + 1))

    def has(self, labels: Mapping[str, str], recorded_labels: Mapping[str, str], lines: Iterable[bytes]) -> bool:
        """Return whether the recording has all rows of the map's input, so that no row must be asked.

        `labels` are the labels of the input's rows by key, in order. `recorded_labels` are the labels of the recorded
        rows. `lines` are the recorded lines for the input's rows. Raises ReplayMismatch if rows are missing or
        differ, and the mode does not record.
        """
        differences = list(self._differences(labels, recorded_labels, lines))
        return self._verdict(differences) and not (self.record is not None and self.end_reason != "done")

    def _differences(
        self, labels: Mapping[str, str], recorded_labels: Mapping[str, str], lines: Iterable[bytes]
    ) -> Iterator[Difference]:
        new = [key for key in labels if key not in recorded_labels]
        removals = [] if self.file is not None else [key for key in recorded_labels if key not in labels]
        number = self.totals.get("map", len(recorded_labels))
        if new or removals:
            yield Difference("row", "rows", _row_names(removals, recorded_labels), _row_names(new, labels))
        elif number != len(labels):
            yield Difference("row", "rows", f"{number:,} rows", f"{len(labels):,} rows")
        elif (keys := digest_of_keys(labels)) != self.totals.get("keys", keys):
            yield Difference("order", "rows", f"keys {self.totals['keys']}", f"keys {keys}")
        elif self.file is not None and (answers := _sum(lines)) != self.totals.get("answers"):
            file = PurePath(self.totals["file"]).name
            yield Difference("edited", f"answers in {file}", str(self.totals.get("answers")), answers)

    @property
    def usage(self) -> Usage:
        """The tokens and cost of the recorded map, without rows that an earlier run had answered."""
        return usage_of(self.totals.get("spent", ()))

    # -- recording -----------------------------------------------------------------------------

    def start(self, file: Path | None) -> None:
        """Start recording the map if the mode records. If the map has a `file`, it alone stores the rows.

        Raises CassetteError if the cassette file cannot be written.
        """
        if self.record is None or self._request is None:
            return
        self._file = file
        self._flush_time = time.monotonic()
        self.recorder = self.record(self._values)
        self.recorder.tools([self.sources[number] for number in sorted(self.sources)], None)
        self.recorder.request(self._request, self._digest)

    def note(self, line: bytes) -> None:
        """Record a row's outcome, a line of JSON with the row's `key`. Raises CassetteError if the write fails."""
        if self.recorder is None:
            return
        if self._file is not None:
            self._answers += _number(line)
            return
        data: Json = json.loads(line)
        text = json.dumps({**blank_secrets(data), "key": data["key"]}, ensure_ascii=False, separators=(",", ":"))
        self._buffer.append(_NO_BLOCK.sub(_escape, text))
        if len(self._buffer) >= ROWS or time.monotonic() - self._flush_time > LONGEST_WAIT:
            self._flush()

    def finish(self, why: str, error: str, keys: Sequence[str], usage: Usage, **figures: Any) -> None:
        """Record the end of the map: the reason, and the keys of the rows with an outcome, in input order.

        `figures` are further fields to record; `seconds` among them is the duration of the map. Raises CassetteError
        if the file cannot be written.
        """
        recorder = self.recorder
        if recorder is None:
            return
        self.recorder = None
        seconds = figures.pop("seconds", 0.0)
        fields = {name: blank_secrets(value) for name, value in figures.items() if value}
        document: Json = {"map": len(keys), **fields, "spent": usage_list(usage)}
        if self._file is not None:
            document |= {"file": self._relative(self._file), "answers": _hexadecimal(self._answers)}
        try:
            self._flush(recorder)
            recorder.write({**document, "keys": digest_of_keys(keys)})
            extra = {"error": blank_secrets(error)} if error else {}
            recorder.write({"end": why, **extra, "steps": [], "seconds": seconds})
        finally:
            self.settle(recorder.take)

    def _flush(self, recorder: TurnRecorder | None = None) -> None:
        rows, self._buffer = self._buffer, []
        self._flush_time = time.monotonic()
        if rows and (to := recorder or self.recorder) is not None:
            to.write({"rows": "\n".join(rows)})

    def _relative(self, file: Path) -> str:
        try:
            return Path(os.path.relpath(file.absolute(), self.cassette.path.parent)).as_posix()
        except ValueError:  # on Windows, a file on another drive has no relative path
            return file.name


def rows_of_take(take: Take) -> dict[str, str]:
    """Return the JSON line of each row of a recorded map, by row key. Raises CassetteError for a bad recording."""
    blocks = (document["rows"].split("\n") for document in take.documents if kind_of(document) == "rows")
    return {str(json.loads(line)["key"]): line for lines in blocks for line in lines}


def digest_of_keys(keys: Iterable[str]) -> str:
    """Return one digest of all row keys, in this order."""
    return short_digest("\n".join(keys))


def round_seconds(seconds: float) -> float:
    """Return seconds, rounded to the precision of recordings."""
    return round(seconds, DIGITS)


def _number(line: bytes) -> int:
    return int.from_bytes(hashlib.sha256(line.strip()).digest()[:8], "big")


def _sum(lines: Iterable[bytes]) -> str:
    """Return a digest of lines that does not depend on their order, because rows end in a different order each time."""
    return _hexadecimal(sum(map(_number, lines)))


def _hexadecimal(number: int) -> str:
    return f"{number % 2**64:016x}"


def _row_names(keys: Sequence[str], labels: Mapping[str, str]) -> str:
    """Return a text: the number of rows, and the first rows' labels and keys, because a changed row has another key."""
    if not keys:
        return ABSENT
    first = ", ".join(f"{labels[key]} ({key[:KEY_SHOWN]})" for key in keys[:MOST_NAMED])
    return f"{plural(len(keys), 'row')}: {first}{', ...' if len(keys) > MOST_NAMED else ''}"


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
