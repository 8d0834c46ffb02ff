"""The cassette file: a version, then the recording of each turn (a take), then images and other large binary data.

`Recording` appends the documents of a turn to the file while the turn runs, and other processes can do the same. An
appended take names the takes that it replaces, and the take that it follows. `Cassette.save` writes the file in
the order of the notebook. A cassette is untrusted: anyone may have edited, cut or written it.
"""

import base64
import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, cast
from weakref import WeakValueDictionary

from agentmagic.errors import CassetteError
from agentmagic.plain_files import read_plain, write_failure
from agentmagic.platforms import move_over
from agentmagic.replay import checks, documents, old_tapes
from agentmagic.replay.exchange import SAME, SAME_TOOLS, Chain, Json, kind_of, short_digest

VERSION = 3
OLDEST = 1
"""The oldest format version that can be read."""
LARGEST_INLINE = 8 * 1024
"""Bytes. A larger blob is written once, at the end of the file."""
LARGEST_FILE = 256 * 2**20
SUFFIX = ".cassette.yaml"

_TITLE = "agentmagic cassette"
HEAD = f"{_TITLE}: {VERSION}\n"
TURN, GOES_ON, MARK = "turn", "goes on", "recording"
_END, _BLOB = "end", "blob"
FACTS = ("model", "asked", "address")
"""Fields about the model that a recorded turn leaves out if all of them are the same as in the turn before."""
_FIRST_KEY = re.compile(r"(?:[ \t]*(?:#.*)?\n)*\"?([a-z ]+)\"?:")
_SEPARATOR = re.compile(r"^---[ \t]*\n", re.MULTILINE)
_CONFLICT = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?: .*)?$", re.MULTILINE)
"""The lines with which git marks a merge conflict. Recorded texts are indented, so they never start a line."""
_NAMED_BLOB = re.compile(r'"=([0-9a-f]{16})"|: =([0-9a-f]{16})$', re.MULTILINE)


class Take:
    """The recording of one turn: a first document, and further documents, which are parsed when they are needed.

    `texts` has the text of the further documents, as in the file. `base` is the take of the turn before: requests are
    written as differences to its requests. `session` is the session's name, or "" if it has none. `comparable_prompt`
    is the prompt in the form that `Deck` compares. `mark` describes an appended take until the file is sorted: its
    `id`, the key of the take that it comes `after`, and the keys of the takes that it replaces (`instead`).
    """

    def __init__(self, head: Json, texts: Iterable[str] = (), where: str = "") -> None:
        self.mark: Json = head.pop(MARK, {})
        self.head = head
        self.session = str(head.get("session", ""))
        self.texts = list(texts)
        self.base: Take | None = None
        self.comparable_prompt: Json | None = None
        self._where = where
        self._documents: list[Json] | None = None if self.texts else []
        self._check = checks.digest_of(head)

    @property
    def prompt(self) -> str:
        """The prompt of the turn."""
        return str(self.head.get(TURN) or "")

    @property
    def ended(self) -> bool:
        """Whether the turn was recorded to its end: the last document says how it ended."""
        return bool(self.texts) and _kind(self.texts[-1]) == _END

    @property
    def is_map(self) -> bool:
        """Whether this take is the recording of a map: one prompt for many rows."""
        return bool(self.head.get("map"))

    @property
    def where(self) -> str:
        """The file name and the prompt, for error messages."""
        return f"{self._where}, {self.prompt!r:.60}"

    @property
    def documents(self) -> list[Json]:
        """The turn's documents after the first one. Raises CassetteError if one cannot be read or is missing."""
        if self._documents is None:
            read = self._read()
            if read and _is_cut_off(read[-1]):
                read.pop()
            checks.check(read, self.where)
            self._documents = read
        return self._documents

    def _read(self) -> list[Json]:
        return [documents.read(text, f"{self.where}:") for text in self.texts]

    @cached_property
    def key(self) -> str:
        """A digest that identifies a finished take. Sorting the file changes some parts; the digest ignores them."""
        texts = (text.partition("\n")[0] if _kind(text) == "request" else text for text in self.texts)
        return short_digest("".join((self.session, self.prompt, *(text for text in texts if _kind(text) != "sources"))))

    @property
    def edits(self) -> list[checks.Edit]:
        """The edits by hand since the recording. Raises CassetteError if a document was lost, doubled or moved."""
        return checks.edits(self.head, self.documents, self.where)

    def replace(self, new_documents: Sequence[Json], head: Json | None = None) -> None:
        """Replace the documents of this recorded turn. If it was edited by hand, it still counts as edited."""
        old = checks.digests_of((self.head, *self.documents))
        self.head = self.head if head is None else head
        if new_documents and (check := new_documents[-1].get("check")):
            check = checks.renewed(check, old, checks.digests_of((self.head, *new_documents)))
            new_documents = [*new_documents[:-1], {**new_documents[-1], "check": check}]
        self._write(new_documents)
        self._documents = list(new_documents)

    def upgrade(self) -> None:
        """Turn the documents, which are those of an older format, into documents of the present format.

        Raises CassetteError if one of them cannot be read.
        """
        self._write(old_tapes.upgraded(self.head, self._read()))

    def _write(self, new_documents: Iterable[Json]) -> None:
        self.texts, self._documents = list(map(_piece, new_documents)), None
        self.__dict__.pop("key", None)

    def append(self, text: str) -> None:
        """Add a document, given as its text in the file."""
        self.texts.append(text)
        self._documents = None
        self.__dict__.pop("key", None)

    def add(self, document: Json) -> str:
        """Add a document. Return the text to append to the file."""
        self._check += checks.digest_of(document)
        if kind_of(document) == _END:
            document = {**document, "check": self._check}
        self.documents.append(document)
        self.texts.append(_piece(document))
        return documents.SEPARATOR + self.texts[-1]

    def text(self, before: "Take | None" = None) -> Iterator[str]:
        """Yield each document as text. The first one lacks its FACTS if the take `before` has the same FACTS."""
        facts = () if before is None else [name for name in FACTS if self.head.get(name) == before.head.get(name)]
        left_out = facts if len(facts) == len(FACTS) else ()
        head = {name: value for name, value in self.head.items() if name not in left_out}
        yield documents.write({**head, MARK: self.mark} if self.mark else head)
        yield from (f"{documents.SEPARATOR}{text}" for text in self.texts)


class Blobs(dict[str, str]):
    """The blobs (large binary data, such as images) of a cassette in base64, by their digest."""

    def keep(self, value: Any) -> Any:
        """Store the large blobs in JSON data. Return the data, with each of these blobs replaced by its name."""

        def keep(data: str) -> str:
            if len(data) * 3 // 4 <= LARGEST_INLINE:
                return data
            name = short_digest(base64.b64decode(data))
            self[name] = data
            return f"={name}"

        return _with_bytes(value, keep)

    def documents(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the documents of the blobs with these names."""
        for name in names:
            if (data := self.get(name)) is not None:
                lines = "\n".join(data[start : start + 100] for start in range(0, len(data), 100))
                yield documents.write({_BLOB: name, "data": lines})


class Cassette:
    """One cassette file: `takes` are the recorded turns in the notebook's order. `Cassette.at` returns one per file."""

    _instances: ClassVar["WeakValueDictionary[Path, Cassette]"] = WeakValueDictionary()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.takes: list[Take] = []
        self.blobs = Blobs()
        self.is_tidy = True
        self.version = VERSION
        self.state: tuple[int, ...] | None = None
        """The state of the file when it was last read, or last written by a recording."""
        self._file_takes: list[Take] = []

    @classmethod
    def at(cls, path: str | Path) -> "Cassette":
        """Return the cassette of a file, and read the file again if it has changed. The file need not exist."""
        file = Path(path).expanduser().absolute()
        cassette = cls._instances.get(file)
        if cassette is None:
            cassette = cls._instances[file] = cls(file)
        cassette.refresh()
        return cassette

    @property
    def exists(self) -> bool:
        """Whether the file exists."""
        return self.path.is_file()

    def of_session(self, session: str) -> list[Take]:
        """Return the recorded turns of a session, in order."""
        return [take for take in self.takes if take.session == session]

    # -- requests ------------------------------------------------------------------------------

    def chain_to(self, take: Take | None) -> Chain:
        """Return a `Chain` that has read the turns of a session up to `take`, so that a next turn can continue it."""
        takes: list[Take] = []
        while take is not None:
            takes.append(take)
            take = take.base
        chain = Chain()
        for earlier in reversed(takes):
            for _ in self.requests(earlier, chain):
                pass
        return chain

    def requests(self, take: Take, chain: Chain) -> Iterator[tuple[Json, Json]]:
        """Yield the documents of a turn, each with what `chain.feed` returns for it: for a request, the whole request.

        Raises CassetteError for a request that refers to a message, part or tool that is missing.
        """
        chain.begin(prompt_parts(take.head))
        if not any(kind_of(document) == "sources" for document in take.documents):
            yield SAME_TOOLS, {"sources": chain.sources}
        for document in take.documents:
            try:
                whole = chain.feed(document)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                where = f"{self.path.name}, {take.prompt!r:.60}, {next(iter(document))}:"
                message = f"{where} {error}. It was edited, or the turn before was changed; record it again."
                raise CassetteError(message) from None
            yield document, whole

    def sources(self, take: Take | None) -> Sequence[Json]:
        """Return a turn's recorded tool lists, one per toolset. If they did not change, an earlier turn has them."""
        while take is not None:
            for document in reversed(take.documents):
                if "sources" in document and document["sources"] != SAME:
                    return cast("Sequence[Json]", document["sources"])
            take = take.base
        return ()

    # -- reading -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the file if it has changed since it was last read.

        Raises CassetteError if the file cannot be read, or is not a cassette of a supported version.
        """
        now = None
        with suppress(OSError):
            now = state_of(self.path.stat())
        if now == self.state:
            return
        self.takes, self._file_takes, self.blobs, self.is_tidy, self.state = [], [], Blobs(), True, None
        if now is not None and (text := self._text()):  # a full disk may have taken no more than the file's name
            self._load(text)
            self._put_in_order()
            for take in self._file_takes if self.version < VERSION else ():
                with suppress(CassetteError):  # a take that cannot be read is left as it is
                    take.upgrade()
        self.state = now

    def _text(self) -> str:
        try:
            text = read_plain(self.path, LARGEST_FILE).decode()
        except UnicodeDecodeError:
            raise CassetteError(f"{self.path} is no text in UTF-8, so it is no cassette. Name another file.") from None
        except OSError as error:
            raise CassetteError(f"{self.path} cannot be read: {error.strerror}. Name another file.") from error
        # Remove carriage returns: this package never writes them, but mail programs and editors add them to lines.
        return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")

    def _load(self, text: str) -> None:
        """Parse the text of a cassette into recorded turns and blobs."""
        self._check_version(text)
        if _CONFLICT.search(text):
            message = f"{self.path} has the marks of a merge that git could not finish. Choose one side: "
            raise CassetteError(f"{message}git checkout --ours {self.path.name}, or --theirs.")
        pieces = _SEPARATOR.split(text)[1:]
        if pieces and not pieces[-1].endswith("\n"):
            pieces.pop()  # the file was cut off in the middle of a line
        ids: dict[str, Take] = {}
        current: Take | None = None
        for number, piece in enumerate(pieces, 2):
            kind, where = _kind(piece), f"Document {number} of {self.path.name}"
            if kind == TURN:
                head = documents.read(piece, where)
                checks.check_head(head, where)
                current = Take(head, where=self.path.name)
                self._file_takes.append(current)
                self.is_tidy = self.is_tidy and "after" not in current.mark
                ids |= {current.mark["id"]: current} if "id" in current.mark else {}
            elif kind == GOES_ON:
                place = documents.read(piece, where)[GOES_ON]
                is_number = type(place) is int and 0 <= place < len(self._file_takes)
                current = self._file_takes[place] if is_number else ids.get(str(place))
                self.is_tidy = False
            elif kind == _BLOB:
                self._add_blob(documents.read(piece, where), where)
            elif kind in checks.KINDS and current is not None:
                current.append(piece)
            else:
                message = f"{where} is no part of a recording: it begins with {kind or piece[:40]!r}. Undo the edit."
                raise CassetteError(message)
        for before, take in pairwise(self._file_takes):
            if FACTS[0] not in take.head:
                take.head.update({name: before.head[name] for name in FACTS if name in before.head})

    def _put_in_order(self) -> None:
        """Sort the recorded turns in the notebook's order. If a turn was recorded again, drop the old recording."""
        self.takes = []
        last: dict[str, Take] = {}
        takes_by_key: dict[str, Take] = {}
        for take in self._file_takes:
            after = takes_by_key.get(str(take.mark.get("after", "")))
            instead = [takes_by_key[other] for other in take.mark.get("instead", ()) if other in takes_by_key]
            if "after" in take.mark:
                take.base = None if take.mark.get("whole") else after
                place(self.takes, take, after, instead)
            else:
                take.base = last.get(take.session)
                self.takes = [other for other in self.takes if not (take.ended and other in instead)] + [take]
            last[take.session] = take
            if not self.is_tidy:  # two takes can have the same key: it then stands for the later one
                takes_by_key[take.key] = take

    def _check_version(self, text: str) -> None:
        first = next((piece for piece in _SEPARATOR.split(text) if piece.strip()), "")
        try:
            version = documents.read(first, str(self.path)).get(_TITLE)
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
        self.version = version

    def _add_blob(self, document: Json, where: str) -> None:
        match document:
            case {"blob": str() as name, "data": str() as data}:
                self.blobs[name] = "".join(data.split())
            case _:
                raise CassetteError(f"{where} is no blob with a name and data. Undo the edit.")

    def restore(self, value: Any) -> Any:
        """Return JSON data with each blob name replaced by the blob. Raises CassetteError for a missing or bad blob."""

        def load(name: str) -> str:
            if not name.startswith("="):
                return name
            data = self.blobs.get(name[1:], "")
            with suppress(ValueError):
                if short_digest(base64.b64decode(data, validate=True)) == name[1:]:
                    return data
            raise CassetteError(f"{self.path.name} lacks the blob {name[1:]}, or has it damaged. Record it again.")

        return _with_bytes(value, load)

    # -- writing -------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the whole file in order, through a temporary file. Raises CassetteError if it cannot be written."""
        self._rebase()
        for take in self.takes:  # remove marks, but keep two of a take that another process may still record
            take.mark = {name: take.mark[name] for name in ("id", "instead") if not take.ended and name in take.mark}
        pairs = zip((None, *self.takes), self.takes, strict=False)
        body = [text for before, take in pairs for text in take.text(before)]
        blob_names = dict.fromkeys(name for text in body for name in named_blobs(text))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_name(f".{uuid.uuid4().hex}.tmp")
            try:
                with temporary.open("xb") as file:
                    file.write("".join((HEAD, *body, *self.blobs.documents(blob_names))).encode())
                if self.exists:
                    temporary.chmod(self.path.stat().st_mode & 0o777)
                move_over(temporary, self.path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self.unwritable(error) from error

    def _rebase(self) -> None:
        """Encode requests again if another turn now comes before them: they are stored as differences to that turn."""
        sessions = {take.session for before, take in self._neighbours() if take.base is not before}
        whole = self._whole_requests(sessions) if sessions else {}
        chains = {session: Chain() for session in sessions}
        changed_takes: set[Take | None] = set()
        for before, take in list(self._neighbours()):
            if (chain := chains.get(take.session)) is None:
                continue
            if take not in whole:  # this take cannot be read: do not change it, nor later takes of its session
                del chains[take.session]
                continue
            chain.begin(prompt_parts(take.head))
            pairs = [chain.difference(document, request) for document, request in whole[take]]
            differences = [document for document in pairs if document != SAME_TOOLS]
            if (take.base is not before or before in changed_takes) and differences != take.documents:
                take.replace(differences)
                changed_takes.add(take)
            take.base = before

    def _neighbours(self) -> Iterator[tuple[Take | None, Take]]:
        """Yield a pair for each recorded turn: the previous turn of the same session (or None), and this turn."""
        last: dict[str, Take] = {}
        for take in self.takes:
            yield last.get(take.session), take
            last[take.session] = take

    def _whole_requests(self, sessions: Collection[str]) -> dict[Take, list[tuple[Json, Json]]]:
        """Return what `requests` yields for each recorded turn of these sessions, with its complete requests."""
        requests: dict[Take, list[tuple[Json, Json]]] = {}
        chains: dict[Take | None, Chain] = {}
        for take in self._file_takes:
            if take.session in sessions:
                with suppress(CassetteError):
                    chain = chains.pop(take.base, None) or self.chain_to(take.base)
                    requests[take] = list(self.requests(take, chain))
                    chains[take] = chain
        return requests

    def unwritable(self, error: OSError) -> CassetteError:
        """Return the error for a file that cannot be written."""
        advice = "Name another file for the cassette."
        return CassetteError(f"{self.path} cannot be written: {write_failure(error, advice)}")


def place(takes: list[Take], take: Take, after: Take | None, instead: Collection[Take]) -> None:
    """Insert the recorded turn `take` into `takes`.

    A complete `take` replaces the turns in `instead`, at the position of the first of them. Without `instead`, it goes
    behind the turn `after`, or before all turns of its session if `after` is not in `takes`. An incomplete `take`
    removes no turn: if `instead` is not empty, it goes behind the last turn of its session.
    """
    at = next((index for index, other in enumerate(takes) if other in instead), None)
    if instead and not take.ended:  # keep the earlier takes until this take is complete
        at = None
        after = next((other for other in reversed(takes) if other.session == take.session), after)
    elif at is not None:
        takes[:] = [other for other in takes if other not in instead]
    if at is None and after in takes:
        at = takes.index(after) + 1
    elif at is None:
        at = next((index for index, other in enumerate(takes) if other.session == take.session), len(takes))
    takes.insert(at, take)


def state_of(stat: os.stat_result) -> tuple[int, int, int]:
    """Return the inode, modification time and size of a file. Equal states mean equal content."""
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def named_blobs(text: str) -> Iterator[str]:
    """Yield the names of the blobs that a document refers to."""
    yield from (quoted_name or plain_name for quoted_name, plain_name in _NAMED_BLOB.findall(text))


def _piece(document: Json) -> str:
    return documents.write(document).removeprefix(documents.SEPARATOR)


def _kind(text: str) -> str:
    key = _FIRST_KEY.match(text)
    return key[1] if key else ""


def _with_bytes(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON data in which `change` was applied to each text that stands for bytes."""
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
    """Return whether the last document of a file lacks its last key, because the file was cut off."""
    if kind_of(document) == "answer":
        return not document.keys() & {"usage", "stopped"}
    if kind_of(document) == "map":
        return "keys" not in document
    return kind_of(document) == _END and not document.keys() & {"seconds", "check"}


def prompt_parts(head: Mapping[str, Any]) -> list[Json]:
    """Return the parts of a turn's prompt."""
    parts = head.get("parts")
    return cast("list[Json]", parts) if isinstance(parts, list) else [{"type": "text", "text": head.get(TURN, "")}]
