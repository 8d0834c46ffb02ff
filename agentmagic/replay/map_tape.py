"""One map on tape: what all rows are asked, as one request, and the outcome of each row, as one line of JSON.

The lines stand on the cassette, a hundred in a document. If the map has a file of its own, they stand there, and the
cassette has a digest of them.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, cast

from agentmagic.errors import CassetteError
from agentmagic.events import PromptValue
from agentmagic.messages import ToolCall, ToolResult, Usage
from agentmagic.providers.base import Model, ModelEvent, ModelSettings, Request
from agentmagic.replay import unasked
from agentmagic.replay.cassette import Cassette, Take
from agentmagic.replay.chunks import usage_list, usage_of
from agentmagic.replay.comparison import ABSENT, Difference, RequestRecords, compare
from agentmagic.replay.exchange import Json, blanked, kind_of, short_digest
from agentmagic.replay.player import COSMETIC, Verdict, mismatch, records
from agentmagic.replay.recorder import DIGEST, DIGITS, TurnRecorder
from agentmagic.replay.taped_tools import running, taped
from agentmagic.settings import Replay
from agentmagic.text import counted
from agentmagic.tools.base import Tool, ToolContext, Toolset

ROWS = 100
"""Rows of a document at most."""
LONGEST_WAIT = 5.0
"""Seconds after which rows are written with the next one, also if they are fewer."""
MOST_NAMED = 3
"""Rows that a difference names."""
KEY_SHOWN = 8
"""Characters of a row's key that are shown: they tell two rows of the same label apart."""

_NO_BLOCK = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that YAML does not take in a literal block."""


class RecordedModel:
    """The model of a map that is played: it has the name of the recorded one, and is never asked."""

    def __init__(self, name: str, head: Json) -> None:
        self.name = name
        self.base_url = head.get("address")
        self._left_out = cast("Sequence[str]", head.get("left out", ()))

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model honoured when it was recorded."""
        return [name for name in settings.given if name not in self._left_out]

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Raise CassetteError."""
        raise CassetteError(f"A recording of {self.name} is not asked {request.messages[-1].text!r:.40}.")

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


@dataclass(kw_only=True)
class MapTape:
    """One map on tape.

    `take` is played, None if nothing of it can be. `record` makes the recorder, with the values that stand in the
    prompt of all rows; None means that nothing is recorded. `real` makes the model that rows are asked of, `name` is
    what the map calls its model. `records` and `verdicts` are those of the session, `settle` is called when what was
    recorded is over. `notices` are those that the replay itself has.
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
        self.taped: dict[int, Tool] = {}
        self.notices: list[str] = []
        self.lines = rows_of_take(self.take) if self.take is not None else {}
        """The recorded lines of rows by their keys, in the order in which the rows ended."""
        documents = {kind_of(one): one for one in self.take.documents} if self.take is not None else {}
        self.figures: Json = documents.get("map", {})
        self.end: Json = documents.get("end", {})
        self._request: Request | None = None
        self._values: Sequence[PromptValue] = ()
        self._digest = ""
        self._file: Path | None = None
        self._buffer: list[str] = []
        self._flushed = 0.0
        self._answers = 0

    # -- what the rows are asked ---------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model of the map, which is not made if the tape answers."""
        return self.real() if self.take is None else RecordedModel(self.name, self.take.head)

    def toolsets(self, sources: Sequence[Toolset]) -> tuple[Toolset, ...]:
        """Return sources of tools whose lists are on the tape."""
        return taped(self, sources, None if self.take is None else self.cassette.sources(self.take))

    async def call(self, tool: Tool, source: Toolset, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call of a row that is asked."""
        return await (await running(tool, source)).invoke(call, context)

    def begin(self, request: Request, values: Sequence[PromptValue]) -> None:
        """Compare what all rows are asked with the recording.

        Raises ReplayMismatch, and CassetteError for a recording that breaks off; with `auto`, nothing of it is played.
        """
        self._request, self._values = request, values
        asked = self.records(request, self.name, values)
        self._digest = asked.digest[:DIGEST]
        take = self.take
        if take is None:
            return
        if self.record is None and not take.ended:
            raise CassetteError(
                f"The recording of {self.prompt!r:.60} in {self.cassette.path.name} breaks off after "
                f"{counted(len(self.lines), 'row')}: its kernel was killed, or the file was cut. Record the cell again."
            )
        found = [one.difference for one in take.edits]
        if not found:
            recorded = next((record for _, record in records(self.cassette, take)), None)
            found = [] if recorded is None else list(compare(recorded, asked))
        if found and not self._verdict(found):
            self.take, self.lines = None, {}

    def _verdict(self, found: Sequence[Difference]) -> bool:
        """Note the verdict, and return whether all is as recorded. Raises ReplayMismatch if nothing is recorded."""
        self.verdicts.append(Verdict(self.prompt, 1, found[0].cause if found else "same", tuple(found)))
        others = [one for one in found if one.cause != COSMETIC]
        if others and self.record is None:
            assert self.take is not None  # noqa: S101  (of the caller)
            unasked.note_failure(self.cassette)
            raise mismatch(self.cassette, self.take, 1, others, self.prompt)
        return not others

    # -- the rows ------------------------------------------------------------------------------

    @property
    def file(self) -> Path | None:
        """The file of the map which has the recorded rows, None if they are on the cassette."""
        name = self.figures.get("file")
        return None if name is None else self.cassette.path.parent / str(name)

    @property
    def ended(self) -> str:
        """Why the recorded map was over, "" if the recording breaks off."""
        return str(self.end.get("end", ""))

    @property
    def count(self) -> int | None:
        """How many rows are to be read: all of them (None) if all were asked when it was recorded."""
        return self.figures.get("map") if self.ended not in ("", "done") else None

    def has(self, asked: Mapping[str, str], known: Mapping[str, str], lines: Iterable[bytes]) -> bool:
        """Return whether the tape has all rows, as they are now, and nothing is to be asked.

        Both mappings are of the rows' labels by their keys: of the rows as they are now, in their order, and of those
        that are recorded. `lines` are the recorded lines of the rows of now. Raises ReplayMismatch.
        """
        found = list(self._differences(asked, known, lines))
        return self._verdict(found) and not (self.record is not None and self.ended != "done")

    def _differences(
        self, asked: Mapping[str, str], known: Mapping[str, str], lines: Iterable[bytes]
    ) -> Iterator[Difference]:
        new = [key for key in asked if key not in known]
        gone = [] if self.file is not None else [key for key in known if key not in asked]
        number = self.figures.get("map", len(known))
        if new or gone:
            yield Difference("row", "rows", _named(gone, known), _named(new, asked))
        elif number != len(asked):
            yield Difference("row", "rows", f"{number:,} rows", f"{len(asked):,} rows")
        elif (keys := digest_of_keys(asked)) != self.figures.get("keys", keys):
            yield Difference("order", "rows", f"keys {self.figures['keys']}", f"keys {keys}")
        elif self.file is not None and (answers := _sum(lines)) != self.figures.get("answers"):
            file = PurePath(self.figures["file"]).name
            yield Difference("edited", f"answers in {file}", str(self.figures.get("answers")), answers)

    @property
    def spent(self) -> Usage:
        """What the recorded map has spent, without the rows that its file had before."""
        return usage_of(self.figures.get("spent", ()))

    # -- recording -----------------------------------------------------------------------------

    def start(self, file: Path | None) -> None:
        """Begin to record, if the mode does; the rows of a map with a file stand there. Raises CassetteError."""
        if self.record is None or self._request is None:
            return
        self._file = file
        self._flushed = time.monotonic()
        self.recorder = self.record(self._values)
        self.recorder.tools([self.sources[number] for number in sorted(self.sources)], None)
        self.recorder.request(self._request, self._digest)

    def note(self, line: bytes) -> None:
        """Record the outcome of a row, a line of JSON with its `key`. Raises CassetteError."""
        if self.recorder is None:
            return
        if self._file is not None:
            self._answers += _number(line)
            return
        data: Json = json.loads(line)
        text = json.dumps({**blanked(data), "key": data["key"]}, ensure_ascii=False, separators=(",", ":"))
        self._buffer.append(_NO_BLOCK.sub(_escaped, text))
        if len(self._buffer) >= ROWS or time.monotonic() - self._flushed > LONGEST_WAIT:
            self._flush()

    def finish(self, why: str, error: str, keys: Sequence[str], spent: Usage, **figures: Any) -> None:
        """Record the end: why it is, and the keys of the rows with an outcome, in the order of the input.

        `figures` are fields of the document; `seconds` are those of the map. Raises CassetteError.
        """
        recorder = self.recorder
        if recorder is None:
            return
        self.recorder = None
        seconds = figures.pop("seconds", 0.0)
        kept = {name: blanked(value) for name, value in figures.items() if value}
        document: Json = {"map": len(keys), **kept, "spent": usage_list(spent)}
        if self._file is not None:
            document |= {"file": self._relative(self._file), "answers": _hexadecimal(self._answers)}
        try:
            self._flush(recorder)
            recorder.write({**document, "keys": digest_of_keys(keys)})
            told = {"error": blanked(error)} if error else {}
            recorder.write({"end": why, **told, "steps": [], "seconds": seconds})
        finally:
            self.settle(recorder.take)

    def _flush(self, recorder: TurnRecorder | None = None) -> None:
        rows, self._buffer = self._buffer, []
        self._flushed = time.monotonic()
        if rows and (to := recorder or self.recorder) is not None:
            to.write({"rows": "\n".join(rows)})

    def _relative(self, file: Path) -> str:
        try:
            return Path(os.path.relpath(file.absolute(), self.cassette.path.parent)).as_posix()
        except ValueError:  # another drive of Windows
            return file.name


def rows_of_take(take: Take) -> dict[str, str]:
    """Return the lines of the rows of a map by their keys. Raises CassetteError."""
    found = (one["rows"].split("\n") for one in take.documents if kind_of(one) == "rows")
    return {str(json.loads(line)["key"]): line for lines in found for line in lines}


def digest_of_keys(keys: Iterable[str]) -> str:
    """Return the digest of the keys of rows, in their order."""
    return short_digest("\n".join(keys))


def rounded(seconds: float) -> float:
    """Return a time as it is recorded."""
    return round(seconds, DIGITS)


def _number(line: bytes) -> int:
    return int.from_bytes(hashlib.sha256(line.strip()).digest()[:8], "big")


def _sum(lines: Iterable[bytes]) -> str:
    """Return the digest of lines, whose order does not matter: rows end in another order each time."""
    return _hexadecimal(sum(map(_number, lines)))


def _hexadecimal(number: int) -> str:
    return f"{number % 2**64:016x}"


def _named(keys: Sequence[str], labels: Mapping[str, str]) -> str:
    """Return the count of rows, and the first ones with their keys: a row that was changed keeps its label."""
    if not keys:
        return ABSENT
    first = ", ".join(f"{labels[key]} ({key[:KEY_SHOWN]})" for key in keys[:MOST_NAMED])
    return f"{counted(len(keys), 'row')}: {first}{', ...' if len(keys) > MOST_NAMED else ''}"


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
