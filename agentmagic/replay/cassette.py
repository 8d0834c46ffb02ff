"""The file of a recording: one take for each turn, a version before them, images and other blobs after them.

While a turn is recorded, its documents are appended as they come. When it settles, the file is written anew in the
order of the notebook, to a temporary file that takes its name. A file that a killed kernel left is read up to its last
whole document. What a cassette says is untrusted: it may have been edited, cut, or written by anyone.
"""

import base64
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar, cast
from weakref import WeakValueDictionary

from agentmagic.errors import CassetteError
from agentmagic.replay import documents
from agentmagic.replay.exchange import Chain, Json, kind_of, short_digest
from agentmagic.replay.shorthand import Shorthand

VERSION = 2
OLDEST = 1
"""The oldest format that is read."""
LARGEST_INLINE = 8 * 1024
"""Bytes; larger blobs stand at the end of the file, once each."""
LARGEST_FILE = 256 * 2**20
SUFFIX = ".cassette.yaml"

_TITLE = "agentmagic cassette"
_HEAD = f"{_TITLE}: {VERSION}\n"
_TURN, _END, _BLOB, _GOES_ON = "turn", "end", "blob", "goes on"
FACTS = ("model", "asked", "address")
"""What the first document of a take leaves out if it is that of the take before."""
KINDS = (_TURN, "sources", "request", "answer", "wait", "approval", "question", "inner", "result", "stop", _END)
"""The documents of a take; the first key of each is its kind."""
_FIRST_KEY = re.compile(r"(?:[ \t]*(?:#.*)?\n)*\"?([a-z ]+)\"?:")


class Take:
    """The recording of one turn: its first document, and the others, which are read when they are needed."""

    def __init__(self, head: Json, written: Sequence[str] = (), where: str = "") -> None:
        self.head = head
        self._written = list(written)
        self._where = where
        self._documents: list[Json] | None = None if written else []
        self._shorthand = Shorthand()

    @property
    def prompt(self) -> str:
        """The prompt of the turn."""
        return str(self.head.get(_TURN) or "")

    @property
    def session(self) -> str:
        """The name of the session that the turn belongs to, "" in a script."""
        return str(self.head.get("session", ""))

    @property
    def ended(self) -> bool:
        """Whether the turn was recorded to its end."""
        if self._documents is None:
            return _kind(self._written[-1]) == _END
        return bool(self._documents) and _END in self._documents[-1]

    @property
    def documents(self) -> list[Json]:
        """The documents after the first. Raises CassetteError for one that cannot be read."""
        if self._documents is None:
            read = [documents.read(text, f"{self._where}, {self.prompt!r:.60}:") for text in self._written]
            if read and _is_cut_off(read[-1]):
                read.pop()
            short = Shorthand()
            self._documents = [whole for one in read for whole in short.whole(one)]
        return self._documents

    def replace(self, found: Sequence[Json]) -> None:
        """Put other documents in the place of those after the first."""
        self._documents, self._written = list(found), []

    def add(self, document: Json) -> str:
        """Add a document, and return it as it is written, "" if it is left out."""
        short = self._shorthand.written(document)
        self.documents.append(document)
        return documents.write(short) if short else ""

    def text(self, before: "Take | None" = None) -> Iterator[str]:
        """Yield the documents as they are written behind those of the take before."""
        facts = () if before is None else [name for name in FACTS if self.head.get(name) == before.head.get(name)]
        left_out = facts if len(facts) == len(FACTS) else ()
        yield documents.write({name: value for name, value in self.head.items() if name not in left_out})
        if self._written:
            yield from (f"{documents.SEPARATOR}{one}" for one in self._written)
            return
        shorthand = Shorthand()
        yield from (documents.write(short) for short in map(shorthand.written, self.documents) if short)


class Cassette:
    """One file of takes. `Cassette.at` returns the same object for the same file, so that sessions can share it."""

    _known: ClassVar["WeakValueDictionary[Path, Cassette]"] = WeakValueDictionary()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.takes: list[Take] = []
        self._blobs: dict[str, str] = {}
        self._read: tuple[int, int] | None = None
        self._open: list[Take] = []
        self._heads = 0
        self._last: Take | None = None
        self._places: dict[int, int] = {}

    @classmethod
    def at(cls, path: str | Path) -> "Cassette":
        """Return the cassette of a file, which need not exist, read anew if the file was changed by others."""
        place = Path(path).expanduser().absolute()
        cassette = cls._known.get(place)
        if cassette is None:
            cassette = cls._known[place] = cls(place)
        cassette.refresh()
        return cassette

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.is_file()

    def of_session(self, session: str) -> list[Take]:
        """Return the takes of a session, in order."""
        return [take for take in self.takes if take.session == session]

    def chain(self, takes: Iterable[Take]) -> Chain:
        """Return the chain of requests up to the end of these takes of a session."""
        chain = Chain()
        for take in takes:
            for _ in self.requests(take, chain):
                pass
        return chain

    def chain_before(self, take: Take) -> Chain:
        """Return the chain of requests up to a take of its session."""
        return self.chain(takewhile(lambda one: one is not take, self.of_session(take.session)))

    def requests(self, take: Take, chain: Chain) -> Iterator[tuple[Json, Json]]:
        """Yield the documents of a take, each with what `Chain.feed` returns of it.

        Raises CassetteError for a request that refers to a message, part or tool that is missing.
        """
        chain.begin(prompt_parts(take.head))
        for document in take.documents:
            try:
                whole = chain.feed(document)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                where = f"{self.path.name}, {take.prompt!r:.60}, {next(iter(document))}:"
                message = f"{where} {error}. It was edited, or the turn before was changed; record it again."
                raise CassetteError(message) from None
            yield document, whole

    # -- reading -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the file if it was changed since it was last read or written.

        Raises CassetteError for a file that cannot be read, or is no cassette of this version.
        """
        if self._open or (now := self._state()) == self._read:
            return
        self.takes, self._blobs = [], {}
        if now is not None:
            self._load(self._text())
        self._read = now

    def _state(self) -> tuple[int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size

    def _text(self) -> str:
        try:
            if self.path.stat().st_size > LARGEST_FILE:
                message = f"{self.path} is larger than {LARGEST_FILE >> 20} MB, and is not read. Name another file."
                raise CassetteError(message)
            return self.path.read_bytes().decode()
        except UnicodeDecodeError:
            raise CassetteError(f"{self.path} is no text in UTF-8, so it is no cassette. Name another file.") from None
        except OSError as error:
            raise CassetteError(f"{self.path} cannot be read: {error.strerror}. Name another file.") from error

    def _load(self, text: str) -> None:
        first, *rest = re.split(r"^---[ \t]*\n", text.removeprefix("\ufeff").replace("\r\n", "\n"), flags=re.MULTILINE)
        self._check_version(first if first.strip() else rest.pop(0) if rest else "")
        if rest and not rest[-1].endswith("\n"):
            rest.pop()  # cut off in the midst of a line
        written: list[tuple[Json, list[str]]] = []
        current: list[str] | None = None
        for number, piece in enumerate(rest, 2):
            kind, where = _kind(piece), f"Document {number} of {self.path.name}"
            if kind == _TURN:
                written.append((documents.read(piece, where), current := []))
            elif kind == _GOES_ON:
                place = documents.read(piece, where)[_GOES_ON]
                current = written[place][1] if isinstance(place, int) and 0 <= place < len(written) else None
            elif kind == _BLOB:
                self._add_blob(documents.read(piece, where), where)
            elif kind in KINDS and current is not None:
                current.append(piece)
            else:
                message = f"{where} is no part of a recording: it begins with {kind or piece[:40]!r}. Undo the edit."
                raise CassetteError(message)
        for (before, _), (head, _) in pairwise(written):
            if FACTS[0] not in head:
                head.update({name: before[name] for name in FACTS if name in before})
        self.takes = [Take(head, pieces, self.path.name) for head, pieces in written]

    def _check_version(self, text: str) -> None:
        try:
            version = documents.read(text, str(self.path)).get(_TITLE)
        except CassetteError:
            version = None
        if not isinstance(version, int) or isinstance(version, bool):
            message = f"{self.path} is no cassette of agentmagic, and was left as it is. Name another file."
            raise CassetteError(message)
        if version > VERSION:
            message = (
                f"{self.path} has the format {version} of a newer agentmagic; this one reads format {VERSION}. "
                "Run: pip install -U agentmagic"
            )
            raise CassetteError(message)
        if version < OLDEST:
            message = f"{self.path} has the format {version} of an older agentmagic. Record it again."
            raise CassetteError(message)

    def _add_blob(self, document: Json, where: str) -> None:
        match document:
            case {"blob": str() as name, "data": str() as data}:
                self._blobs[name] = "".join(data.split())
            case _:
                raise CassetteError(f"{where} is no blob with a name and data. Undo the edit.")

    # -- blobs ---------------------------------------------------------------------------------

    def keep_bytes(self, value: Any) -> Any:
        """Return JSON of ours in which large blobs are named; the cassette keeps them."""

        def keep(data: str) -> str:
            if len(data) * 3 // 4 <= LARGEST_INLINE:
                return data
            name = short_digest(base64.b64decode(data))
            self._blobs[name] = data
            return f"={name}"

        return _with_bytes(value, keep)

    def restore(self, value: Any) -> Any:
        """Return JSON with its blobs. Raises CassetteError for one that is missing or damaged."""

        def restored(name: str) -> str:
            if not name.startswith("="):
                return name
            data = self._blobs.get(name[1:], "")
            with suppress(ValueError):
                if short_digest(base64.b64decode(data, validate=True)) == name[1:]:
                    return data
            raise CassetteError(f"{self.path.name} lacks the blob {name[1:]}, or has it damaged. Record it again.")

        return _with_bytes(value, restored)

    # -- writing -------------------------------------------------------------------------------

    def begin(self, take: Take) -> None:
        """Begin to record a take. Raises CassetteError if the file cannot be written."""
        if not self._open:
            self.save()  # leaves out what was cut off at the end, and creates the file
            self._heads = len(self.takes)
        self._append(documents.write(take.head))
        self._open.append(take)
        self._last = take
        self._places[id(take)] = self._heads
        self._heads += 1

    def append(self, take: Take, document: Json) -> None:
        """Add a document to a take, in the file too. Raises CassetteError if the file cannot be written."""
        text = take.add(document)
        if not text:
            return
        if self._last is not take:
            text = documents.write({_GOES_ON: self._places[id(take)]}) + text
            self._last = take
        self._append(text)

    def settle(self, take: Take, after: Take | None, instead: Sequence[Take]) -> None:
        """Put a take into its place, with other takes removed, and write the file.

        The place is that of the first take in `instead`. If none of those is in the file, it is the place behind
        `after`; without that, the place before all other takes of the session; for the first take of a session, the
        place at which it was begun.

        Raises CassetteError if the file cannot be written.
        """
        self._open.remove(take)
        followers = self._absolute(take.session)
        place = next((index for index, one in enumerate(self.takes) if one in instead), None)
        if place is not None:
            self.takes = [one for one in self.takes if one not in instead]
        elif after in self.takes:
            place = self.takes.index(after) + 1
        else:
            sessions = [one.session for one in self.takes]
            place = sessions.index(take.session) if take.session in sessions else self._places[id(take)]
        self.takes.insert(place, take)
        self._rebase(take, followers)
        self.save()

    def _absolute(self, session: str) -> dict[int, list[Json]]:
        """Return the whole requests of each take of a session, by the id of the take."""
        chain, found = Chain(), dict[int, list[Json]]()
        for take in self.of_session(session):
            with suppress(CassetteError):
                found[id(take)] = [whole for _, whole in self.requests(take, chain)]
        return found

    def _rebase(self, take: Take, whole: Mapping[int, list[Json]]) -> None:
        """Write the requests of the takes behind a new one anew, as differences to the requests before them now."""
        later = self.of_session(take.session)
        later = later[later.index(take) + 1 :]
        if not later:
            return
        chain = self.chain_before(later[0])
        for one in later:
            if id(one) not in whole:
                return
            one.replace(list(_differences(one, whole[id(one)], chain)))

    def _append(self, text: str) -> None:
        new = [name for name in self._blobs if f"={name}" in text]
        whole = "".join(map(self._blob, new)) + text
        try:
            with self.path.open("ab") as file:
                file.write(whole.encode())
        except OSError as error:
            raise self._unwritable(error) from error
        self._read = self._state()

    def _blob(self, name: str) -> str:
        data = self._blobs[name]
        lines = "\n".join(data[start : start + 100] for start in range(0, len(data), 100))
        return documents.write({_BLOB: name, "data": lines})

    def save(self) -> None:
        """Write the whole file, by way of a temporary one. Raises CassetteError if it cannot be written."""
        takes = (*self.takes, *self._open)
        body = [text for before, take in zip((None, *takes), takes, strict=False) for text in take.text(before)]
        used = dict.fromkeys(
            name
            for text in body
            for name in re.findall(r'"=([0-9a-f]{16})"|: =([0-9a-f]{16})$', text, re.MULTILINE)
            for name in name
            if name
        )
        blobs = [self._blob(name) for name in used if name in self._blobs]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_name(f".{uuid.uuid4().hex}.tmp")
            try:
                with beside.open("xb") as file:
                    file.write("".join((_HEAD, *body, *blobs)).encode())
                if self.exists:
                    beside.chmod(self.path.stat().st_mode & 0o777)
                beside.replace(self.path)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        self._read = self._state()

    def _unwritable(self, error: OSError) -> CassetteError:
        return CassetteError(f"{self.path} cannot be written: {error.strerror}. Name another file for the cassette.")


def _kind(text: str) -> str:
    found = _FIRST_KEY.match(text)
    return found[1] if found else ""


def _with_bytes(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON of ours in which each text that stands for bytes is changed."""
    match value:
        case {"$bytes": str() as data}:
            return {"$bytes": change(data)}
        case dict():
            return {key: _with_bytes(inner, change) for key, inner in cast("Json", value).items()}
        case list():
            return [_with_bytes(inner, change) for inner in cast("list[Any]", value)]
        case _:
            return value


def _is_cut_off(document: Json) -> bool:
    """Return whether a document, the last of a file, lacks the key that is written last."""
    if kind_of(document) == "answer":
        return ("chunks" if document.keys() & {"error", "stopped"} else "usage") not in document
    return isinstance(document.get(_END), str) and "seconds" not in document


def prompt_parts(head: Mapping[str, Any]) -> list[Json]:
    """Return the parts of a turn's prompt."""
    parts = head.get("parts")
    return cast("list[Json]", parts) if isinstance(parts, list) else [{"type": "text", "text": head.get(_TURN, "")}]


def _differences(take: Take, whole: Sequence[Json], chain: Chain) -> Iterator[Json]:
    """Yield the documents of a take with its requests as differences along a chain."""
    chain.begin(prompt_parts(take.head))
    yield from map(chain.difference, take.documents, whole)
