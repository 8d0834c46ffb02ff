"""A session's use of its cassette file: the replay mode, and the position among the recorded turns."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from agentmagic import settings
from agentmagic.agent import Agent
from agentmagic.classroom import OFFLINE_MODES, class_settings
from agentmagic.errors import CassetteError, UsageError
from agentmagic.events import Notice, PromptValue
from agentmagic.host import current_host
from agentmagic.messages import Message, Text, ToolCall
from agentmagic.providers.base import Model
from agentmagic.replay import unasked
from agentmagic.replay.cassette import Blobs, Cassette, Take, prompt_parts
from agentmagic.replay.comparison import Difference, RequestRecords
from agentmagic.replay.exchange import Json, blank_secrets
from agentmagic.replay.map_tape import MapTape
from agentmagic.replay.model_facts import model_facts, model_name
from agentmagic.replay.player import Player, Verdict, first_call, is_incomplete, mismatch, next_call
from agentmagic.replay.recorder import TurnRecorder
from agentmagic.replay.recording import Recording, tidy
from agentmagic.replay.tape import KnownResults, TurnTape
from agentmagic.settings import MODES, Replay
from agentmagic.tools.notebook.proposals import FATES

RECORDS = ("record", "auto")
KINDS = ("map", "served")
"""Fields in the head of a recorded turn: they mark a map, or a call of an outside client, and not a normal turn."""
NAME_ONE = "Name one: %agent cassette FILE, AGENTMAGIC_CASSETTE, or Session(cassette=FILE)."

_claims: dict[tuple[tuple[str, int], Path, str, str], set[str]] = {}
"""The recordings that sessions use in this run of a cell, by run, cassette, mode and name of the session."""


class Deck:
    """The cassette of a session, and the mode (such as record or replay) in which the session uses it.

    `name` is the session's name in a notebook. It is "" for the default session and outside a notebook. `verdicts` are
    the results of comparing all replayed requests. A `timed` replay takes as long as the recording did.
    """

    def __init__(self, path: str | Path | None = None, mode: Replay | None = None, *, timed: bool = False) -> None:
        self.name = ""
        self.timed = timed
        self.verdicts: list[Verdict] = []
        self.records = RequestRecords()  # one object for all turns: it converts each message only once
        self._known = KnownResults()
        self._turn_mode: Replay = "live"
        self._forked = False
        self._path: Path | None = None
        self._has_own_cassette = path is not None
        self._mode: Replay | None = None
        self._recording: Recording | None = None
        self._claimed = False
        self._next = 0
        self._aligned = False
        """Whether the last turn was on the cassette, or was recorded in place of a turn on the cassette."""
        self.begins_at_top = False
        """Whether the first turn of the session is that of its recording, as in a notebook and in a test.

        It is false in a script: several scripts may record to one file, each with turns of its own.
        """
        self._runs: dict[int, tuple[str, int]] = {}
        self._past_runs: dict[int, tuple[str, int]] = {}
        """Recorded turns that were played in the history, and before it was cleared: index of the turn to cell run."""
        self._turns = 0
        self._open_takes: dict[Take, bool] = {}
        """The turns that are being recorded, each with whether it replaces an earlier recording."""
        if path is not None:
            self.insert(path)
        if mode is not None:
            self.choose(mode)

    @property
    def path(self) -> Path | None:
        """The file of the cassette. The environment variable names it or, if that is not set, the session does."""
        name = settings.variable(settings.CASSETTE)
        return Path(name) if name else self._path

    @property
    def mode(self) -> Replay:
        """The mode of the next turn. The environment variable sets it or, if that is not set, the session does."""
        return self.mode_of()

    def mode_of(self, choice: Replay | None = None) -> Replay:
        """Return the mode of a turn that chooses `choice`. A turn that chooses "live" never uses the cassette.

        Every other choice gives way to the environment variable.
        """
        return choice if choice == "live" else settings.replay_override() or choice or self._mode or "live"

    def answers(self, choice: Replay | None = None) -> bool:
        """Return whether recorded answers replace the model's in a turn that chooses `choice`."""
        return self.mode_of(choice) in ("replay", "replay-model", "auto")

    def is_frozen(self, choice: Replay | None = None) -> bool:
        """Return whether a turn that chooses `choice` runs no tool and never asks the user."""
        return self.mode_of(choice) in ("replay", "replay-tools")

    def insert(self, path: str | Path) -> None:
        """Use this cassette file from now on, from its first recorded turn. The file need not exist."""
        self.finish()
        self._path = settings.file_of(path)
        self.rewind()

    def join(self, name: str, notebook: "Deck") -> None:
        """Use the notebook's cassette and mode unless the session has its own. `name` is the name of the session."""
        self.begins_at_top = True
        if not self._has_own_cassette:
            self.name = name
        path, mode = notebook._path, notebook._mode  # noqa: SLF001  (of this class)
        if path is not None and self._path is None:
            self.insert(path)
        if mode is not None and self._mode is None:
            self.choose(mode, timed=notebook.timed)

    def choose(self, mode: Replay, *, timed: bool | None = None) -> None:
        """Set the replay mode. Raises UsageError if it is unknown, or if a teacher or administrator forbade it."""
        _check(mode)
        if mode not in RECORDS:
            self.finish()
        self._mode, self.timed = mode, self.timed if timed is None else timed
        self._forked = False

    def rewind(self) -> None:
        """Go back to the first recorded turn on the cassette."""
        self._next, self._aligned, self._forked = 0, False, False
        self._runs, self._past_runs = {}, {}

    def finish(self) -> None:
        """Stop recording, if a recording is open. Sort its file in the notebook's order, if it can be written."""
        recording, self._recording = self._recording, None
        if recording is not None:
            with suppress(CassetteError):
                recording.finish()

    def turn(  # noqa: PLR0913  (what a turn is made of)
        self,
        prompt: Message,
        recipe: Agent,
        real: Callable[[], Model],
        *,
        turns: int,
        cleared: bool,
        mode: Replay | None = None,
        values: Sequence[PromptValue] = (),
        notices: deque[Notice],
        served: bool = False,
        recorded: bool = True,
    ) -> TurnTape | None:
        """Return the recorder and player for the next turn, or None if the turn is neither recorded nor replayed.

        A `served` turn is one tool call by an MCP client of the notebook. If `recorded` is False, the call really
        runs, and no recorded call is played in its place. `turns` is the number of turns before this one. If it is
        smaller than at the last turn, the user has undone turns, so the position on the cassette goes back by the same
        number, unless the session was `cleared`.

        Raises UsageError if no cassette is set, or if an MCP client makes a call while a recording is played. Raises
        CassetteError if the cassette cannot be used.
        """
        if not self._choose_turn_mode(mode):
            return None
        if not recorded and self._turn_mode not in RECORDS:
            message = f"The notebook plays a recording ({self._turn_mode}), and no calls are carried out meanwhile."
            raise UsageError(f"{message} %agent live in the notebook ends that.")
        cassette = self._current_cassette()
        head = {**self._head(prompt, values), **({"served": True} if served else {})}
        index, take = self._place(cassette, head, turns, cleared=cleared, recorded=recorded)
        self._turns += 1
        real, start = cache(real), (self._next, self._aligned)

        def record() -> TurnRecorder:
            if index is not None:  # a turn that was to be replayed is recorded again, because it differed
                self._runs.pop(index, None)
                self._next, self._aligned = start
            return self._record(head, recipe, real(), between=not recorded and self._turn_mode == "auto")

        tape = TurnTape(
            mode=self._turn_mode,
            player=None if take is None else Player(cassette, take, timed=self.timed),
            record=record if self._turn_mode in RECORDS else None,
            real=real,
            name=model_name(recipe, None if self._turn_mode == "replay-tools" else take, real),
            prompt=str(head["turn"]),
            values=values,
            notices=notices,
            records=self.records,
            verdicts=self.verdicts,
            known=self._known,
            settle=self._settle,
        )
        if index is not None:
            self._use(index)
        return tape

    def map(  # noqa: PLR0913  (what a map is made of)
        self,
        prompt: Message,
        recipe: Agent,
        real: Callable[[], Model],
        *,
        turns: int,
        cleared: bool,
        mode: Replay | None = None,
    ) -> MapTape | None:
        """Return the recorder and player for the next map, or None if neither is needed.

        The map has a position among the turns on the cassette, but is not counted as a turn.

        Raises UsageError if no cassette is set, or if the mode cannot play a map. Raises CassetteError if the cassette
        cannot be used.
        """
        if not self._choose_turn_mode(mode):
            return None
        if self._turn_mode == "replay-tools":
            raise UsageError(
                "The mode replay-tools plays no map: the results of its rows' tools are not on the cassette. Choose "
                'replay, auto or live: session.map(..., replay="live"), %%agent --replay live.'
            )
        cassette = self._current_cassette()
        head = {**self._head(prompt, ()), "map": True}
        index, take = self._place(cassette, head, turns, cleared=cleared)
        real = cache(real)

        def record(values: Sequence[PromptValue]) -> TurnRecorder:
            own = [] if self._recording is None else self._recording.of_session(self.name)
            if take in own:  # find the index of `take` now: turns recorded meanwhile can have moved it
                self._runs.pop(own.index(take), None)
            map_head = self._head(prompt, values)
            return self._record({**map_head, "map": True}, recipe, real())

        tape = MapTape(
            mode=self._turn_mode,
            cassette=cassette,
            take=take,
            record=record if self._turn_mode in RECORDS else None,
            real=real,
            name=model_name(recipe, take, real),
            prompt=str(head["turn"]),
            records=self.records,
            verdicts=self.verdicts,
            settle=self._settle_take,
        )
        if index is not None:
            self._use(index)
        return tape

    def next_client_call(self, turns: int, *, cleared: bool) -> tuple[str, ToolCall | None] | None:
        """Return the prompt and call of the next recorded turn if an MCP client of the notebook made it, else None.

        The turn does not count as played. Raises CassetteError if the cassette cannot be used.
        """
        if self.path is None or not self.answers():
            return None
        self._choose_turn_mode(None)
        cassette = self._current_cassette()
        if not self._claimed:  # choose a session of the cassette that begins with a call of an MCP client
            if (first := first_call(cassette)) is None:
                return None
            self._claim(cassette, first.head)
        self._follow(cassette, turns, cleared=cleared)
        own = cassette.of_session(self.name)
        if cleared and not self._runs and self._next >= len(own):  # the notebook runs again from the top
            self._next = 0
        return next_call(cassette, own[self._next :])

    def _choose_turn_mode(self, mode: Replay | None) -> bool:
        """Set the replay mode of the next turn or map. Return whether it uses the cassette: all modes but "live" do."""
        if mode is not None:
            _check(mode)
        self._turn_mode = self.mode_of(mode)
        return self._turn_mode != "live"

    def _place(
        self, cassette: Cassette, head: Json, turns: int, *, cleared: bool, recorded: bool = True
    ) -> tuple[int, Take] | tuple[None, None]:
        """Find the recorded turn to play for a new turn. Return its index and the turn, or (None, None)."""
        self._claim(cassette, head)
        self._follow(cassette, turns, cleared=cleared)
        index = self._index_to_play(cassette, head) if recorded else None
        if index is None:
            return None, None
        take = cassette.of_session(self.name)[index]
        if self._turn_mode in OFFLINE_MODES:
            unasked.add_played(cassette, take)
        return index, take

    def _current_cassette(self) -> Cassette:
        """Return the session's `Recording` if the mode records, else the cassette to replay, sorted first."""
        if (path := self.path) is None:
            message = f"The mode {self._turn_mode} needs a cassette. {NAME_ONE}"
            raise UsageError(message)
        recording, records = self._recording, self._turn_mode in RECORDS
        if recording is not None and records and recording.path == path.expanduser().absolute():
            return recording
        self.finish()
        cassette = Cassette.at(path)
        if records:
            self._recording = Recording(cassette)
            return self._recording
        if not cassette.is_tidy:
            with suppress(CassetteError):  # sorting is optional: the folder may be read-only
                tidy(cassette.path)
            cassette.refresh()
        return cassette

    def _index_to_play(self, cassette: Cassette, head: Json) -> int | None:
        """Return the index of the recorded turn to play, or None if the turn is recorded from its beginning.

        Raises CassetteError if nothing is recorded and the mode does not record.
        """
        index, exact = self._find(cassette, head)
        if index is None and self._turn_mode not in RECORDS:
            problem = "There is no cassette" if not cassette.exists else "Nothing is recorded on the cassette"
            raise CassetteError(f"{problem} {self.path}. Record it: run the notebook with AGENTMAGIC_REPLAY=record.")
        if self._turn_mode == "record" or index is None:
            return None
        take = cassette.of_session(self.name)[index]
        if self._turn_mode != "auto" and take.is_map != bool(head.get("map")):
            kinds = [f"a map: {take.prompt}" if take.is_map else take.prompt]
            kinds += [f"a map: {head['turn']}" if head.get("map") else str(head["turn"])]
            raise mismatch(cassette, take, 1, [Difference("prompt", "prompt", *kinds)], str(head["turn"]))
        # A recorded map is always played: its `MapTape` asks the model only missing rows.
        goes_live = not exact or (not take.is_map and (self._forked or is_incomplete(take)))
        return None if self._turn_mode == "auto" and goes_live else index

    def _follow(self, cassette: Cassette, turns: int, *, cleared: bool) -> None:
        """If the user has undone turns, go back to the first of them on the cassette.

        The maps after it are then played again too. Maps are not counted as turns.
        """
        own, indexes, undone = cassette.of_session(self.name), list(self._runs), self._turns - turns
        while indexes and undone > 0:
            undone -= not (indexes[-1] < len(own) and own[indexes[-1]].is_map)
            indexes.pop()
        if cleared:
            self._past_runs |= self._runs
            self._runs = {}
        elif back := list(self._runs)[len(indexes) :]:
            self._next, self._aligned = back[0], True
            self._runs = {index: run for index, run in self._runs.items() if index not in back}
        self._turns = turns

    def _use(self, index: int, *, aligned: bool = True) -> None:
        self._next, self._aligned = index + 1, aligned
        for places in (self._runs, self._past_runs):
            places.pop(index, None)
        self._runs[index] = current_host().cell

    def _is_free(self, index: int, take: Take) -> bool:
        """Return whether a recorded turn can be recorded again.

        This is true if this session has not played it, or if its cell runs again after the session was cleared. For a
        map, it is true whenever its cell runs again.
        """
        (cell, number), (now, run) = (self._past_runs | self._runs).get(index, ("", 0)), current_host().cell
        runs_again = cell == now != "" and number != run
        if index in self._runs:
            return take.is_map and runs_again
        return index not in self._past_runs or runs_again

    def _settle(self, tape: TurnTape) -> None:
        """After a turn, move its recording to its place among the recorded turns."""
        self._forked = self._forked or tape.forked
        if tape.recorder is not None:
            self._settle_take(tape.recorder.take)

    def _settle_take(self, take: Take) -> None:
        recording, aligned = self._recording, self._open_takes.pop(take, None)
        if aligned is None or recording is None:
            return
        before = recording.of_session(self.name)
        recording.settle(take)
        unasked.add_recorded(recording, take)
        own = recording.of_session(self.name)
        for places in (self._runs, self._past_runs):  # inserting the new turn has changed the indexes of later turns
            pairs = [(before[index], run) for index, run in places.items() if index < len(before)]
            places.clear()
            places |= {own.index(one): run for one, run in pairs if one in own}
        index = own.index(take)
        self._use(index, aligned=aligned or index == len(own) - 1)

    def _claim(self, cassette: Cassette, head: Json) -> None:
        """Choose once which turns of the cassette belong to this session: those of its name that no other one uses.

        Turns are preferred if the first of them has the prompt of this turn. If a replay finds no turns of the
        session's name, it uses those of another name: one with a turn of this prompt, or the cassette's only name.
        """
        if self._claimed:
            return
        self._claimed = True
        run = current_host().cell
        for old in [key for key in _claims if key[0] != run]:
            del _claims[old]
        used_names = _claims.setdefault((run, cassette.path, self._turn_mode, self.name), set())
        later = f"{self.name or 'session'} "
        first = {take.session: take for take in reversed(cassette.takes)}
        family = [
            name for name in first if name == self.name or (name.startswith(later) and name[len(later) :].isdigit())
        ]
        free = [name for name in reversed(family) if name not in used_names]
        prompt = _comparable_prompt(head)
        free.sort(key=lambda name: _prompt_of_take(first[name]) != prompt)
        if not free and self._turn_mode in RECORDS:
            names = (self.name, *(f"{later}{number}" for number in range(2, len(used_names) + 2)))
            free = [name for name in names if name not in used_names]
        if not family and self._turn_mode not in RECORDS:  # the user renamed the session's variable
            own = {take.session for take in cassette.takes if _prompt_of_take(take) == prompt}
            free = [name for name in first if name in own or len(first) == 1]
        self.name = free[0] if free else self.name
        used_names.add(self.name)

    def _find(self, cassette: Cassette, head: Json) -> tuple[int | None, bool]:
        """Return the index of the recorded turn to play, and whether that turn has this prompt.

        If no turn has the prompt, return the index of the most similar turn; None if nothing is recorded.
        """
        own, prompt = cassette.of_session(self.name), _comparable_prompt(head)
        same = [index for index, take in enumerate(own) if _prompt_of_take(take) == prompt]
        if self._turn_mode in RECORDS:  # if a prompt occurs twice in the notebook, record it twice: skip used turns
            same = [index for index in same if self._is_free(index, own[index])]
        whole = [index for index in same if own[index].ended] or same
        later = [index for index in whole if index >= self._next]
        if whole:
            return (later or whole)[0], True
        if not own:
            return None, False
        here = min(self._next, len(own) - 1)
        if alike := [index for index, take in enumerate(own) if _has_text(take, head)]:  # a value in it was changed
            return next((index for index in alike if index >= self._next), alike[0]), False
        if _likeness(own[here], head) > 0.3:  # noqa: PLR2004  (a prompt that was changed, not another one)
            return here, False
        return max(range(len(own)), key=lambda index: _likeness(own[index], head)), False

    def _record(self, head: Json, recipe: Agent, model: Model, *, between: bool = False) -> TurnRecorder:
        """Begin to record a turn, and return the recorder. If `between` is True, the turn replaces no other turn."""
        recording = self._recording
        assert recording is not None  # noqa: S101  (of a mode that records)
        own = recording.of_session(self.name)
        index, exact = (None, False) if between else self._find(recording, head)
        place = index if exact and index is not None else min(self._next, len(own))
        prompt = _comparable_prompt(head)
        instead = [take for take in own if _prompt_of_take(take) == prompt and not take.ended]
        aligned = self._aligned or (self.begins_at_top and not self._next)
        indexes = [place] if exact or (aligned and place < len(own)) else []
        skipped = range(self._next, place)
        if self._aligned or len(skipped) <= len(self._runs):
            indexes += skipped  # their cells were deleted, or the turns that were recorded first stand for them
        instead = [] if between else instead + [own[at] for at in indexes if self._is_free(at, own[at])]
        before = [take for take in own[:place] if take not in instead]
        session = {"session": self.name} if self.name else {}
        take = Take({**head, **model_facts(recipe, model), **session}, where=recording.path.name)
        chain = recording.begin(take, before[-1] if before else None, instead)
        self._open_takes[take] = bool(instead)
        chain.begin(prompt_parts(take.head))
        return TurnRecorder(recording, take, chain)

    def _head(self, prompt: Message, values: Sequence[PromptValue]) -> Json:
        head: Json = {"turn": blank_secrets(prompt.text)}
        if not (len(prompt.parts) == 1 and isinstance(prompt.parts[0], Text)):
            blobs = Blobs() if self._recording is None else self._recording.blobs
            head["parts"] = blobs.keep(blank_secrets(prompt.parts))
        if values:
            head["values"] = [
                blank_secrets({"written": value.written, "kind": value.kind, "text": value.text}) for value in values
            ]
        return head


def _check(mode: str) -> None:
    if mode not in MODES:
        message = f"replay is {mode!r}. Choose one of {', '.join(MODES)}."
        raise UsageError(message)
    class_settings().check_mode(mode)


def _comparable_prompt(head: Json) -> Json:
    """Return a turn's prompt in the form in which prompts are compared: known secrets are blanked.

    The part that says which proposed cells were kept is left out. A replay takes it from the recording.
    """
    parts = [part for part in prompt_parts(head) if part.get("uri") != FATES]
    kind = {name: True for name in KINDS if head.get(name)}
    return blank_secrets({"turn": head.get("turn"), "parts": parts, **kind})


def _prompt_of_take(take: Take) -> Json:
    """Return a recorded prompt in the form in which prompts are compared, cached with the secrets known so far."""
    if take.comparable_prompt is None:
        take.comparable_prompt = _comparable_prompt(take.head)
    return take.comparable_prompt


def _is_of_kind(take: Take, head: Json) -> bool:
    return all(bool(take.head.get(kind)) == bool(head.get(kind)) for kind in KINDS)


def _has_text(take: Take, head: Json) -> bool:
    return take.prompt == head["turn"] and _is_of_kind(take, head)


def _likeness(take: Take, head: Json) -> float:
    if not _is_of_kind(take, head):
        return 0.0
    return SequenceMatcher(None, take.prompt[:1000], str(head["turn"])[:1000], autojunk=False).ratio()
