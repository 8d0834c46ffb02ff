"""Records the turns of a session: each document is appended to the cassette file as it comes, under a lock.

Several sessions and processes can record to one file. Each has its own list of takes (recorded turns), and never
removes takes that another session has recorded since. `finish` sorts the file, with the takes of all sessions.
"""

import atexit
import os
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from agentmagic.errors import CassetteError
from agentmagic.history.journal import FOLDER, append, make_folder
from agentmagic.plain_files import FileLock, open_number, open_plain
from agentmagic.replay import documents
from agentmagic.replay.cassette import GOES_ON, HEAD, MARK, VERSION, Blobs, Cassette, Take, named_blobs, place, state_of
from agentmagic.replay.exchange import Chain, Encoder, Json

LONGEST_WAIT = 20.0
"""Seconds to wait for the lock. Another writer has it while it writes one document, or puts the file in order."""
_files_to_tidy: set[Path] = set()
"""Cassette files with appended documents. They are sorted when the process ends, if not before."""
_FLAGS = os.O_RDWR | os.O_APPEND


class Recording(Cassette):
    """A cassette while one session records to it. It has the turns that were in the file, and the session's turns."""

    def __init__(self, cassette: Cassette) -> None:
        super().__init__(cassette.path)
        self.takes = list(cassette.takes)
        self.blobs = Blobs(cassette.blobs)
        self.encoder = Encoder(self.blobs.keep)
        self.state = cassette.state
        self._stored_blobs: set[str] = set(cassette.blobs)
        self._open: dict[Take, tuple[Take | None, Collection[Take]]] = {}
        self._last = ""
        """The id of the turn or map that got the last document. Both can be recorded at the same time."""
        self._chain: tuple[Take | None, Chain] = (None, Chain())

    def refresh(self) -> None:
        """Do nothing, and do not read the file again: `finish` merges the turns that other sessions record now."""

    def begin(self, take: Take, after: Take | None, instead: Sequence[Take]) -> Chain:
        """Begin to record a turn `after` another, in place of the turns in `instead`. Return its `Chain`.

        Raises CassetteError if the file cannot be written, or if an earlier turn cannot be read.
        """
        last, chain = self._chain
        if last is not after:
            chain = self.chain_to(after)
        self._chain = None, Chain()
        with write_lock(self):
            self._make()
            was_put_in_order = self.state is not None and self.state[0] != self.path.stat().st_ino
            take.mark = {"id": uuid4().hex[:12], "after": after.key if after is not None else ""}
            take.mark |= {"instead": [earlier.key for earlier in instead]} if instead else {}
            if was_put_in_order and after is not None:  # `after` may be gone: write no differences to its requests
                take.mark["whole"] = True
                chain = Chain()
            take.base = None if "whole" in take.mark else after
            self._append(documents.write({**take.head, MARK: take.mark}), goes_on="")
        self._chain = take, chain
        self._last = take.mark["id"]
        self._open[take] = after, instead
        return chain

    def append(self, take: Take, document: Json) -> None:
        """Add a document to a turn being recorded, and to the file. Raises CassetteError if it cannot be written."""
        text = take.add(document)
        with write_lock(self):
            self._mend()
            self._append(text, goes_on=take.mark["id"])

    def settle(self, take: Take) -> None:
        """Move a finished turn to its place among the other recorded turns."""
        if take in self._open:
            place(self.takes, take, *self._open.pop(take))

    def finish(self) -> None:
        """If a turn was recorded, sort the file in the notebook's order. Raises CassetteError if this fails."""
        if self.path in _files_to_tidy:
            tidy(self.path)

    def _make(self) -> None:
        """Create the cassette file if it does not exist. If it has an older format, write it in the present one."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            number = open_number(self.path, _FLAGS | os.O_CREAT, 0o666)
            try:
                if not os.fstat(number).st_size:  # a full disk may have taken no more than the file's name before
                    append(number, HEAD.encode())
            finally:
                os.close(number)
            with open_plain(self.path) as file:
                is_present = file.read(len(HEAD)) == HEAD.encode()
        except OSError as error:
            raise self.unwritable(error) from error
        if is_present:
            self._mend()
        else:
            _put_in_order(self.path, always=True)

    def _mend(self) -> None:
        """Remove the last document from the file if it was cut off: a process that recorded it may have been killed."""
        try:
            if self._last and state_of(self.path.stat()) == self.state:  # a document of ours is the last
                return
            with open_plain(self.path) as file:
                file.seek(max(file.seek(0, os.SEEK_END) - len(documents.SEPARATOR), 0))
                ends = file.read()
        except OSError as error:
            raise self.unwritable(error) from error
        if not ends.endswith(b"\n") or ends == documents.SEPARATOR.encode():  # the file was cut off
            _put_in_order(self.path, always=True)

    def _append(self, text: str, *, goes_on: str) -> None:
        """Append a document to the file. If the last document there is of another turn, first append this turn's id.

        `goes_on` is this id, or "" for the first document of a turn.
        """
        _files_to_tidy.add(self.path)
        try:
            number = open_number(self.path, _FLAGS)
            try:
                now = state_of(os.fstat(number))
                if self.state is not None and now[0] != self.state[0]:
                    self._stored_blobs = set()  # the file was replaced: it may lack our blobs
                if goes_on and (now != self.state or goes_on != self._last):
                    text = documents.write({GOES_ON: goes_on}) + text
                new = [name for name in dict.fromkeys(named_blobs(text)) if name not in self._stored_blobs]
                self._stored_blobs.update(new)
                data = "".join((*self.blobs.documents(new), text)).encode()
                while data:
                    data = data[os.write(number, data) :]
                self.state = state_of(os.fstat(number))
                self._last = goes_on or self._last
            finally:
                os.close(number)
        except OSError as error:
            raise self.unwritable(error) from error


def tidy(path: Path) -> None:
    """Sort a cassette file in the notebook's order. If a turn is being recorded to it, do nothing: it is sorted later.

    Raises CassetteError if the file cannot be read or written.
    """
    with write_lock(Cassette(path)):
        _put_in_order(path)
    _files_to_tidy.discard(path)


def upgrade(cassette: Cassette) -> bool:
    """Write a cassette file of an older format in the present one. Return False if it had the present one.

    Raises CassetteError if a document cannot be read, or if the file cannot be written.
    """
    with write_lock(cassette):
        cassette.refresh()
        for take in cassette.takes:
            _ = take.edits
        if cassette.version == VERSION:
            return False
        cassette.save()
    return True


@atexit.register
def _finish() -> None:
    for path in [file for file in _files_to_tidy if file.is_file()]:
        with suppress(CassetteError):
            tidy(path)


def _put_in_order(path: Path, *, always: bool = False) -> None:
    cassette = Cassette(path)
    cassette.refresh()
    # Do not sort while a turn is being recorded: sorting could put another turn before it, but its requests are
    # written as differences to the requests of the turn that is before it now.
    goes_on = any(take.mark and not take.ended for take in cassette.takes)
    if always or not (cassette.is_tidy or goes_on):
        cassette.save()


@contextmanager
def write_lock(cassette: Cassette) -> Generator[None]:
    """Hold the lock of a cassette file. Raises CassetteError if another writer does not release the lock in time."""
    from filelock import Timeout

    path = cassette.path
    lock = FileLock(path.parent / FOLDER / path.name, LONGEST_WAIT)
    try:
        make_folder(path.parent / FOLDER)
        lock.acquire()
    except Timeout as error:
        if not lock.exists():  # in a read-only folder, `acquire` raises Timeout too
            raise cassette.unwritable(OSError(0, "no file can be made beside it")) from error
        message = f"{path} is being written by another process, which has not let go of it. End that one, or name "
        raise CassetteError(f"{message}another file for the cassette.") from error
    except OSError as error:
        raise cassette.unwritable(error) from error
    try:
        yield
    finally:
        lock.release()
