"""Records a map to a cassette file, and replays it: its rows, and then its totals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import cast, get_args

from agentmagic.errors import CassetteError
from agentmagic.events import MapEnd
from agentmagic.mapping.file import MapFile, RowEnded, decode_line
from agentmagic.mapping.ledger import Ledger
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.mapping.reader import RowReader
from agentmagic.mapping.work import MapFailed, MapWork
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.replay.map_tape import MapTape, round_seconds
from agentmagic.runtime.engine import engine
from agentmagic.serialization import encode_record, shrink
from agentmagic.tools.base import Tool


class Playback:
    """Replays and records a map.

    If the recording lacks some rows, `rows` has the recorded outcomes to use, by row key.
    """

    def __init__(self, ledger: Ledger, reader: RowReader, tape: MapTape) -> None:
        self.rows: dict[str, RowEnded] = {}
        self._ledger = ledger
        self._reader = reader
        self._tape = tape

    async def play(self, tools: Sequence[Tool]) -> MapEnd:
        """Add the recorded rows to the map's result. Return why the map is over, or "" if some rows must be asked.

        Raises ReplayMismatch if the map differs from the recording, and CassetteError if it cannot be played.
        """
        ledger, tape, turn, prompts = self._ledger, self._tape, self._ledger.work.turn, self._ledger.work.prompts
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
        recording = await engine().in_pool(partial(_RecordedRows, tape, ledger.work.path))
        prompts_by_key: dict[str, tuple[RowPrompt, str]] = {}
        places, number = tape.places, 0
        place = next(places, None)
        async for prompt in self._reader.prompts_to_ask():
            if len(prompts_by_key) == tape.count:
                break
            if number == place:
                prompts_by_key[prompt.key] = replace(prompt, prompt=None), ledger.label(prompt)
                place = next(places, None)
            number += 1
        if not recording.has(prompts_by_key):
            self.rows = recording.reusable()
            return ""
        ledger.file = recording.file
        for key in [key for key in recording.outcomes if key in prompts_by_key]:
            if not ledger.keep(prompts_by_key[key][0], recording.outcomes[key]):
                raise CassetteError(
                    f"The recorded answer of row {prompts_by_key[key][1]} does not fit. Record the cell again."
                )
        return self._apply_recorded_totals(tools)

    def _apply_recorded_totals(self, tools: Sequence[Tool]) -> MapEnd:
        """Set the map's totals (counts, time, cost) to the recorded totals. Return why the recorded map ended."""
        ledger, figures, end = self._ledger, self._tape.totals, self._tape.end
        tally, rows = ledger.tally, {row.key: row for row in ledger.finished}
        tally.notices = [*ledger.work.notices, *map(str, figures.get("notices", ()))]
        if tools and self._tape.mode == "replay-model":
            tally.notices.append("The rows of a map are played as a whole, so their tools do not run.")
        if end["end"] == "stopped":
            tally.notices.append("This map was stopped when it was recorded. To ask the other rows: %agent auto.")
        tally.total = figures.get("total", ledger.work.rows.total)
        tally.fix(figures.get("kept", 0), figures.get("rate", 0.0), end.get("seconds", 0.0))
        ledger.doubtful = [rows[key] for key in figures.get("doubtful", ()) if key in rows]
        ledger.work.on_replayed_usage(self._tape.usage)
        if end["end"] == "failed":
            ledger.error = MapFailed(str(end.get("error", "")))
        return cast("MapEnd", end["end"] if end["end"] in get_args(MapEnd) else "done")

    def recorded_usage(self, file: MapFile) -> Usage:
        """Return the usage of the recorded rows that the map's own file does not have."""
        return sum((outcome.usage for key, outcome in self.rows.items() if key not in file.outcomes), Usage())

    def live(self) -> MapWork:
        """Return a copy of the map's parts with the live model, to ask the rows that the recording lacks."""
        work = self._ledger.work
        return replace(work, turn=replace(work.turn, model=self._tape.real()))

    def start(self) -> None:
        """Start recording the map if the replay mode records. Raises CassetteError if the file cannot be written."""
        self._ledger.on_outcome = self.note
        self._tape.start(self._ledger.work.path)

    def keep(self, prompt: RowPrompt) -> bool:
        """Add a row's recorded outcome to the result. Return False if none exists, or it does not fit the schema."""
        outcome = self.rows.get(prompt.key)
        return outcome is not None and self._ledger.keep(prompt, outcome)

    def note(self, outcome: RowEnded) -> None:
        """Record the outcome of a row. If the cassette file cannot be written, end the map."""
        if self._tape.recorder is None:
            return
        try:
            self._tape.note(line_of(outcome))
        except CassetteError as error:
            self._ledger.end(error)

    def finish(self) -> None:
        """Record how the map ended. Round its time and rate as in the recording, so that a replay shows the same."""
        if self._tape.recorder is None:
            return
        ledger, tally, progress = self._ledger, self._ledger.tally, self._ledger.progress()
        rate, seconds = round_seconds(progress.rate), round_seconds(progress.seconds)
        tally.fix(tally.kept_count, rate, seconds)
        notices = tally.notices[len(ledger.work.notices) :]  # leave out notices from before the map began
        figures = {"kept": tally.kept_count, "total": tally.total, "rate": rate, "seconds": seconds, "notices": notices}
        figures |= {"doubtful": [row.key for row in ledger.doubtful], "places": _ranges(self._places())}
        keys = [row.key for _, row in sorted(ledger.rows.items())]
        error = "" if ledger.error is None else str(ledger.error)
        try:
            self._tape.finish(tally.end_reason, error, keys, tally.run_usage, **figures)
        except CassetteError as cassette_error:
            ledger.error = ledger.error or cassette_error

    def _places(self) -> list[int]:
        """Return the numbers of the rows with an outcome, counted among the rows to ask. [] if they are the first."""
        numbers = {place: number for number, place in enumerate(self._reader.sample_places or ())}
        places = [numbers.get(place, place) for place in sorted(self._ledger.rows)]
        return [] if places == list(range(len(places))) else places


class _RecordedRows:
    """The recorded outcomes of a map's rows, by row key, in the order of their ends.

    If the rows are stored in the map's own file, `file` is this file, open for reading. Raises CassetteError if
    this file is missing and the replay mode does not record, or if a row cannot be read.
    """

    def __init__(self, tape: MapTape, path: Path | None) -> None:
        self._tape = tape
        self.file: MapFile | None = None
        self.outcomes: dict[str, RowEnded] = {}
        if tape.file is None:
            for key, line in tape.lines.items():
                outcome = decode_line(line.encode())
                if not isinstance(outcome, RowEnded):
                    raise CassetteError(f"{tape.cassette.path.name}: row {key!r:.40} cannot be read. Record it again.")
                self.outcomes[key] = outcome
            return
        file = path if path is not None and path.is_file() else tape.file
        if file.is_file():
            self.file = MapFile(file, None)
            self.outcomes = self.file.outcomes
        elif tape.record is None:
            raise CassetteError(
                f"{file} has the recorded rows of {tape.prompt!r:.60}, and is not there. Restore it, or record the "
                "cell anew, with %agent record (AGENTMAGIC_REPLAY=record)."
            )

    def has(self, rows: Mapping[str, tuple[RowPrompt, str]]) -> bool:
        """Return whether the recording has these rows, with these labels.

        Raises ReplayMismatch if the recording lacks some of them and the replay mode does not record.
        """
        if self.file is not None:  # a map's file has no line for rows that could not be asked
            unaskable = {key: (prompt, label) for key, (prompt, label) in rows.items() if prompt.problem}
            known = {key: self.file.last_outcome(key, label) for key, (_, label) in rows.items()}
            self.outcomes |= {key: outcome for key, outcome in known.items() if outcome is not None}
            self.outcomes |= {
                key: RowEnded(key, label, "failed", error=prompt.problem) for key, (prompt, label) in unaskable.items()
            }
        recorded_labels = {key: outcome.row for key, outcome in self.outcomes.items()}
        lines = (line_of(self.outcomes[key]) for key in rows if key in self.outcomes)
        return self._tape.has({key: label for key, (_, label) in rows.items()}, recorded_labels, lines)

    def reusable(self) -> dict[str, RowEnded]:
        """Return the recorded outcomes to reuse: all answers, and the failed rows if the recorded map was complete."""
        statuses = ("answered", "failed") if self._tape.end_reason == "done" else ("answered",)
        return {key: outcome for key, outcome in self.outcomes.items() if outcome.status in statuses}


def _ranges(numbers: Sequence[int]) -> str:
    """Return growing numbers as ranges, for example "0-4 7 9-20"."""
    starts = [at for at, number in enumerate(numbers) if at == 0 or number != numbers[at - 1] + 1]
    ranges = [(numbers[start], numbers[end - 1]) for start, end in pairwise([*starts, len(numbers)])]
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def line_of(outcome: RowEnded) -> bytes:
    """Return the outcome of a row as a line of JSON, as it is in the file of a map."""
    return encode_record(shrink(outcome)[0])
