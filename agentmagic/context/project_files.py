"""The files of a project that tell a model how to work: rules, skills and commands, read within bounds.

A project may be a download, so each file is regular, text, small, and inside of the project. Nothing in them is run.
"""

import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, cast, get_args

from agentmagic.secrets import redact
from agentmagic.text import one_line, reveal

RULES = "AGENTS.md"
SKILL = "SKILL.md"
SKILL_FOLDERS = (".agents/skills", ".claude/skills")
COMMANDS = ".agents/commands"
ROOT_MARK = ".git"
"""What stands in the root of a repository."""

LARGEST_TEXT = 32_768
"""Bytes of a rules file, a SKILL.md or a command: Codex reads as much of AGENTS.md (`project_doc_max_bytes`)."""
LARGEST_FILE = 262_144
"""Bytes of another file of a skill that a model can read."""
MOST_LEVELS = 40
"""Folders from that of the notebook up to the root."""
MOST_FOUND = 100
"""Skills, or commands, of one folder that are looked at."""
MOST_FILES = 500
"""Files of one skill. A skill with more is left out, since all of them count when it is approved."""
MOST_BYTES = 20 * 2**20
"""Bytes of all files of one skill."""
LONGEST_FRONT = 8_192
"""Characters of a front matter."""
DEEPEST_FRONT = 5
"""Levels of lists and mappings in a front matter."""
LONGEST_DESCRIPTION = 1_024
"""Characters of a skill's description: https://agentskills.io/specification"""

_SKILL_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
"""Letters, digits and single hyphens within: https://agentskills.io/specification"""
COMMAND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

FileKind = Literal["rules", "skill", "command"]


class Unusable(ValueError):
    """A file cannot be used; the message completes "it"."""


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file that a model is told of; `file` names it from the notebook's folder, as any copy of the tree does.

    `text` is all of it, nothing hidden, and `body` what stands behind its front matter. `others` are the files beside a
    skill, each with its bytes and a digest. `digest` changes with any of that.
    """

    kind: FileKind
    name: str
    file: str
    path: Path
    text: str
    body: str
    description: str = ""
    others: tuple[tuple[str, int, str], ...] = ()
    digest: str = ""

    @property
    def approval(self) -> str:
        """The hash under which it is approved: of where it stands and all that it says."""
        return digest_of(str(self.path), self.digest)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a project around a folder, rules first, the nearest last; and why others are left out."""

    folder: Path = Path()
    files: tuple[ProjectFile, ...] = ()
    problems: tuple[str, ...] = ()


def find_files(folder: Path, kinds: Collection[FileKind] = get_args(FileKind), height: int | None = None) -> FoundFiles:
    """Return the rules, skills and commands of a folder and of those above it, up to the root of its repository.

    With a `height` so many folders above count, whether there is a repository or not.
    """
    folder = folder.absolute()
    levels, problems = _levels(folder, height), list[str]()
    found: dict[tuple[str, str], ProjectFile] = {}
    for level in levels:
        for place in _named(level, RULES) if "rules" in kinds else ():
            found |= _usable("rules", place, levels, problems)
    for level in reversed(levels):  # of one name the nearest is meant
        for place in _skills(level, problems) if "skill" in kinds else ():
            found = _usable("skill", place, levels, problems) | found
        for place in _commands(level, problems):
            found = _usable("command", place, levels, problems) | found
    files = sorted(found.values(), key=_place)
    return FoundFiles(folder, tuple(files), tuple(problems))


def _place(file: ProjectFile) -> tuple[int, int, str]:
    """Return what files are sorted by: their kind, rules by how near they are, and others by name."""
    is_rules = file.kind == "rules"
    return get_args(FileKind).index(file.kind), len(file.path.parts) if is_rules else 0, file.name


def _levels(folder: Path, height: int | None) -> list[Path]:
    """Return the folders from the root of the repository to this one; only this one without a repository."""
    above = [folder, *folder.parents][:MOST_LEVELS]
    root = next((place for place, one in enumerate(above) if os.path.lexists(one / ROOT_MARK)), 0)
    return list(reversed(above[: (root if height is None else height) + 1]))


def height_of(files: Iterable[str]) -> int:
    """Return how many folders above that of the notebook the highest of some named files stands."""
    return max((file.count("../") for file in files), default=0)


def _children(folder: Path, problems: list[str]) -> list[Path]:
    """Return what stands in a folder, by name; nothing if the folder is not there, or is a link."""
    found: list[Path] = []
    with suppress(OSError, ValueError):
        found = sorted(Path(one.path) for one in os.scandir(folder))
    if len(found) > MOST_FOUND:
        shown = reveal(folder.name, strictly=True)
        problems.append(f"{shown} has {len(found):,} entries, and those after the first {MOST_FOUND} are left out.")
    return found[:MOST_FOUND]


def _named(folder: Path, name: str) -> list[Path]:
    return [folder / name] if os.path.lexists(folder / name) else []


def _skills(level: Path, problems: list[str]) -> Iterator[Path]:
    for place in SKILL_FOLDERS:
        for folder in _children(level / place, problems):
            yield from _named(folder, SKILL)


def _commands(level: Path, problems: list[str]) -> Iterator[Path]:
    yield from (one for one in _children(level / COMMANDS, problems) if one.suffix == ".md")


def _usable(
    kind: FileKind, path: Path, levels: Sequence[Path], problems: list[str]
) -> dict[tuple[str, str], ProjectFile]:
    """Return a file under its kind and name; nothing, and a problem more, if it cannot be used."""
    try:
        file = _read(kind, path, levels)
    except (Unusable, OSError) as error:
        why = str(error) if isinstance(error, Unusable) else f"cannot be read ({type(error).__name__})"
        problems.append(f"{_from(levels[-1], path)} is left out: it {why}.")
        return {}
    is_empty = kind == "rules" and not file.body
    return {} if is_empty else {(kind, file.name): file}


def _from(folder: Path, path: Path) -> str:
    """Return a path from that of the notebook's folder, on one line, with nothing hidden."""
    return reveal(os.path.relpath(path, folder).replace(os.sep, "/"), strictly=True)


def _read(kind: FileKind, path: Path, levels: Sequence[Path]) -> ProjectFile:
    root = levels[0]
    data = read_bytes(path, root, LARGEST_TEXT)
    text = redact(_small_text(data))  # the model is not sent what the user is not shown
    where = _from(levels[-1], path)
    match kind:
        case "rules":
            return ProjectFile(kind, where, where, path, text, text.strip(), digest=digest_of(data))
        case "command":
            front, body = front_matter(text, strictly=False)
            if not COMMAND_NAME.fullmatch(path.stem):
                raise Unusable("needs a name of letters, digits, _ and -, 64 at most")
            about = one_line(str(front.get("description") or ""), LONGEST_DESCRIPTION)
            return ProjectFile(kind, path.stem, where, path, text, body, about, digest=digest_of(data))
        case "skill":
            return _skill(path, root, where, data, text)


def _skill(path: Path, root: Path, where: str, data: bytes, text: str) -> ProjectFile:
    front, body = front_matter(text)
    name, description = front.get("name"), front.get("description")
    if not isinstance(name, str) or not _SKILL_NAME.fullmatch(name):
        raise Unusable("needs a name of lowercase letters, digits and hyphens, 64 at most, in its front matter")
    if name != path.parent.name:
        raise Unusable(f"has the name {name}, which is not that of its folder")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= LONGEST_DESCRIPTION:
        raise Unusable(f"needs a description of 1 to {LONGEST_DESCRIPTION:,} characters in its front matter")
    others = tuple(_others(path.parent, root))
    digest = digest_of(data, *(f"{file} {size} {content}" for file, size, content in others))
    about = one_line(description, LONGEST_DESCRIPTION)
    return ProjectFile("skill", name, where, path, text, body, about, others, digest)


# -- reading -----------------------------------------------------------------------------------------


def read_bytes(path: Path, within: Path, most: int) -> bytes:
    """Return the content of a regular file inside of a folder. Raises Unusable, and OSError."""
    real = _inside(path, within)
    with real.open("rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise Unusable("is no regular file")
        data = opened.read(most + 1)
    if len(data) > most:
        raise Unusable(f"has more than {most:,} bytes")
    return data


def _inside(path: Path, within: Path) -> Path:
    """Return where a path leads: to a regular file of the folder. Raises Unusable, and OSError."""
    try:
        real = path.resolve(strict=True)
    except (RuntimeError, ValueError):  # a loop of links, or a NUL
        raise Unusable("leads nowhere") from None
    if not real.is_relative_to(within.resolve()):
        raise Unusable("leads out of its folder")
    if not real.is_file():  # a pipe would keep us waiting
        raise Unusable("is no regular file")
    return real


def as_text(data: bytes) -> str:
    """Return bytes as text in which nothing is hidden. Raises Unusable for what is no text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unusable("is no text in UTF-8") from None
    if "\0" in text:
        raise Unusable("is no text")
    return reveal(text.replace("\r\n", "\n"))


_small_text = lru_cache(maxsize=128)(as_text)
"""`as_text` for files that are read in each turn."""


def front_matter(text: str, *, strictly: bool = True) -> tuple[Mapping[str, Any], str]:
    """Return the mapping between the lines `---` at the beginning of a text, and what stands behind them.

    Raises Unusable if it cannot be read, and with `strictly` if there is none.
    """
    lines = text.split("\n")
    end = next((place for place, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        if strictly:
            raise Unusable("has no front matter")
        return {}, text.strip()
    return _yaml("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip()


@lru_cache(maxsize=512)
def _yaml(text: str) -> Mapping[str, Any]:
    import yaml  # only a project with skills or commands needs it

    if len(text) > LONGEST_FRONT:
        raise Unusable(f"has a front matter of more than {LONGEST_FRONT:,} characters")
    try:
        _check_events(cast("Any", yaml).parse(text, Loader=yaml.BaseLoader))
        data = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  (it makes texts, lists and mappings alone)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError):
        raise Unusable("has a front matter that is no plain YAML") from None
    if not isinstance(data, dict):
        raise Unusable("has a front matter that is no mapping")
    return cast("Mapping[str, Any]", data)


def _check_events(events: Iterable[Any]) -> None:
    """Raise Unusable for aliases, by which few lines become a gigabyte, and for what is deeply nested."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith(("MappingStartEvent", "SequenceStartEvent"))
        depth -= kind.endswith(("MappingEndEvent", "SequenceEndEvent"))
        if kind == "AliasEvent" or depth > DEEPEST_FRONT:
            raise Unusable("has a front matter that is no plain YAML")


def _others(folder: Path, root: Path) -> list[tuple[str, int, str]]:
    """Return the files beside a SKILL.md: the name, the bytes and a digest of each. Links are not followed.

    What Python, Jupyter and git write beside is no part of a skill.
    """
    if not folder.resolve().is_relative_to(root.resolve()):
        raise Unusable("leads out of its folder")
    found: list[tuple[str, int, str]] = []
    total = 0
    top = str(folder)
    for here, folders, names in os.walk(top):  # texts, since a Path for each file takes several times as long
        folders[:] = sorted(filter(_counts, folders))
        for name in sorted(filter(_counts, names)):
            path = os.path.join(here, name)  # noqa: PTH118
            about = os.lstat(path)
            if path == os.path.join(top, SKILL) or not stat.S_ISREG(about.st_mode):  # noqa: PTH118
                continue
            total += about.st_size
            if len(found) == MOST_FILES or total > MOST_BYTES:
                raise Unusable(f"has more than {MOST_FILES} files, or {MOST_BYTES:,} bytes, beside it")
            seen = (about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino)
            file = path[len(top) + 1 :].replace(os.sep, "/")
            found.append((reveal(file, strictly=True), about.st_size, _content(path, seen)))
    return found


def _counts(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


@lru_cache(maxsize=4_096)
def _content(path: str, _seen: tuple[int, ...]) -> str:
    """Return a digest of a file, which is read again after each change."""
    return digest_of(Path(path).read_bytes())


def digest_of(*whole: str | bytes) -> str:
    """Return a digest of texts and bytes, 32 hexadecimal characters; git changes line ends, so they do not count."""
    parts = [one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else one for one in whole]
    parts = [one.replace("\r\n", "\n") for one in parts]
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
