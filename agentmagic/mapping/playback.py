"""Plays a map from a cassette, and records it there: its rows, and the figures that it ended with."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, cast, get_args

from agentmagic.errors import AgentMagicError, CassetteError
from agentmagic.events import MapEnd, MapProgress
from agentmagic.mapping.file import MapFile, RowEnded, decoded_line
from agentmagic.mapping.outcomes import MapRow
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.mapping.tally import Tally
from agentmagic.mapping.work import MapFailed, MapWork
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.replay.map_tape import MapTape, rounded
from agentmagic.runtime.engine import engine
from agentmagic.serialization import encode_record, fitting
from agentmagic.tools.base import Tool


class TapedMap(Protocol):
    """The driver of a map with a tape."""

    work: MapWork
    rows: dict[int, MapRow]
    finished: list[MapRow]
    doubtful: list[MapRow]
    tally: Tally
    file: MapFile | None
    error: AgentMagicError | None

    def wanted(self) -> AsyncIterator[RowPrompt]:
        """Yield the prompts of the rows that are asked."""
        ...

    def keep(self, prompt: RowPrompt, known: RowEnded) -> bool:
        """Take the outcome of an earlier run; return False for one that does not fit."""
        ...

    def label(self, prompt: RowPrompt) -> str:
        """Return how a row is called."""
        ...

    def progress(self) -> MapProgress:
        """Return how far the map has come."""
        ...

    def end(self, error: AgentMagicError) -> None:
        """End the map with an error."""
        ...


class Playback:
    """What the driver of a map does with its tape. `rows` are recorded outcomes that hold while others are asked."""

    def __init__(self, driver: TapedMap, tape: MapTape) -> None:
        self.rows: dict[str, RowEnded] = {}
        self._driver = driver
        self._tape = tape

    async def play(self, tools: Sequence[Tool]) -> MapEnd:
        """Take the rows that are on the tape into the result. Return why the map is over, "" if rows are to be asked.

        Raises ReplayMismatch, and CassetteError for what cannot be played.
        """
        driver, tape, turn, prompts = self._driver, self._tape, self._driver.work.turn, self._driver.work.prompts
        tape.begin(
            Request(
                (*turn.history.messages, prompts.whole),
                turn.agent.instructions,
                tuple(tool.definition for tool in tools),
                output=turn.agent.output_schema,
                settings=turn.agent.settings,
            ),
            prompts.values,
        )
        if tape.take is None:
            return ""
        recorded = await engine().in_pool(partial(_RecordedRows, tape, driver.work.path))
        asked: dict[str, tuple[RowPrompt, str]] = {}
        async for prompt in driver.wanted():
            if len(asked) == tape.count:
                break
            asked[prompt.key] = replace(prompt, prompt=None), driver.label(prompt)
        if not recorded.has(asked):
            self.rows = recorded.kept()
            return ""
        driver.file = recorded.file
        for key in [key for key in recorded.ended if key in asked]:
            if not driver.keep(asked[key][0], recorded.ended[key]):
                raise CassetteError(f"The recorded answer of row {asked[key][1]} does not fit. Record the cell again.")
        return self._over(tools)

    def _over(self, tools: Sequence[Tool]) -> MapEnd:
        """Take the recorded figures, and return why the recorded map was over."""
        driver, figures, end = self._driver, self._tape.figures, self._tape.end
        tally, rows = driver.tally, {row.key: row for row in driver.finished}
        tally.notices = [*driver.work.notices, *map(str, figures.get("notices", ()))]
        if tools and self._tape.mode == "replay-model":
            tally.notices.append("The rows of a map are played as a whole, so their tools do not run.")
        if end["end"] == "stopped":
            tally.notices.append("This map was stopped when it was recorded. To ask the other rows: %agent auto.")
        tally.total = figures.get("total", driver.work.rows.total)
        tally.fix(figures.get("kept", 0), figures.get("rate", 0.0), end.get("seconds", 0.0))
        driver.doubtful = [rows[key] for key in figures.get("doubtful", ()) if key in rows]
        driver.work.replayed(self._tape.spent)
        if end["end"] == "failed":
            driver.error = MapFailed(str(end.get("error", "")))
        return cast("MapEnd", end["end"] if end["end"] in get_args(MapEnd) else "done")

    def spent(self, file: MapFile) -> Usage:
        """Return what the recorded rows have cost that are not in the file."""
        return sum((ended.usage for key, ended in self.rows.items() if key not in file.ended), Usage())

    def live(self) -> MapWork:
        """Return the work with the model that rows are asked of."""
        work = self._driver.work
        return replace(work, turn=replace(work.turn, model=self._tape.real()))

    def start(self) -> None:
        """Begin to record, if the mode does. Raises CassetteError."""
        self._tape.start(self._driver.work.path)

    def keep(self, prompt: RowPrompt) -> bool:
        """Take the recorded outcome of a row, while others are asked; return False if there is none."""
        ended = self.rows.get(prompt.key)
        return ended is not None and self._driver.keep(prompt, ended)

    def note(self, ended: RowEnded) -> None:
        """Record the outcome of a row. A cassette that cannot be written ends the map."""
        if self._tape.recorder is None:
            return
        try:
            self._tape.note(line_of(ended))
        except CassetteError as error:
            self._driver.end(error)

    def finish(self) -> None:
        """Record how the map has ended, and show the figures as they are recorded."""
        if self._tape.recorder is None:
            return
        driver, tally, seen = self._driver, self._driver.tally, self._driver.progress()
        rate, seconds = rounded(seen.rate), rounded(seen.seconds)
        tally.fix(tally.kept, rate, seconds)
        notices = tally.notices[len(driver.work.notices) :]  # the others are of today's environment
        figures = {"kept": tally.kept, "total": tally.total, "rate": rate, "seconds": seconds, "notices": notices}
        doubtful = [row.key for row in driver.doubtful]
        keys = [row.key for _, row in sorted(driver.rows.items())]
        error = "" if driver.error is None else str(driver.error)
        try:
            self._tape.finish(tally.ended, error, keys, tally.spent, **figures, doubtful=doubtful)
        except CassetteError as failed:
            driver.error = driver.error or failed


class _RecordedRows:
    """The outcomes of the rows of a map that is played, by their keys, in the order in which the rows ended.

    `file` is the file of the map, open for reading, if the rows stand there. Raises CassetteError if that file is
    missing and nothing can be recorded, or if a row cannot be read.
    """

    def __init__(self, tape: MapTape, path: Path | None) -> None:
        self._tape = tape
        self.file: MapFile | None = None
        self.ended: dict[str, RowEnded] = {}
        if tape.file is None:
            for key, line in tape.lines.items():
                ended = decoded_line(line.encode())
                if not isinstance(ended, RowEnded):
                    raise CassetteError(f"{tape.cassette.path.name}: row {key!r:.40} cannot be read. Record it again.")
                self.ended[key] = ended
            return
        place = path if path is not None and path.is_file() else tape.file
        try:
            self.file = MapFile(place, None)
            self.ended = self.file.ended
        except OSError as error:
            if tape.record is None:
                raise CassetteError(
                    f"{place} has the recorded rows of {tape.prompt!r:.60}, and cannot be read: {error.strerror}. "
                    "Restore it, or record the cell anew, with %agent record (AGENTMAGIC_REPLAY=record)."
                ) from error

    def has(self, asked: Mapping[str, tuple[RowPrompt, str]]) -> bool:
        """Return whether these rows, with their labels, are those of the recording. Raises ReplayMismatch."""
        if self.file is not None:  # what could not be asked is not in the file
            lost = {key: (prompt, label) for key, (prompt, label) in asked.items() if prompt.problem}
            self.ended |= {
                key: RowEnded(key, label, "failed", error=prompt.problem) for key, (prompt, label) in lost.items()
            }
        known = {key: ended.row for key, ended in self.ended.items()}
        lines = (line_of(self.ended[key]) for key in asked if key in self.ended)
        return self._tape.has({key: label for key, (_, label) in asked.items()}, known, lines)

    def kept(self) -> dict[str, RowEnded]:
        """Return the outcomes that hold if other rows are asked: errors too, unless the map was broken off."""
        statuses = ("answered", "failed") if self._tape.ended == "done" else ("answered",)
        return {key: ended for key, ended in self.ended.items() if ended.status in statuses}


def line_of(ended: RowEnded) -> bytes:
    """Return the line of an outcome."""
    return encode_record(fitting(ended)[0])
