"""Reads the files of a project that tell a model how to work: rules, skills and commands.

A project can be a download, so only small, regular text files inside the project are read. Nothing in them is run.
"""

import errno
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

from agentmagic.plain_files import UnfitFile, decode_text, read_plain
from agentmagic.secrets import redact
from agentmagic.text import reveal, single_line

RULES = "AGENTS.md"
SKILL = "SKILL.md"
SKILL_FOLDERS = (".agents/skills", ".claude/skills")
COMMANDS = ".agents/commands"
ROOT_MARK = ".git"
"""The name of the entry that marks the root of a repository."""

LARGEST_TEXT = 32_768
"""Largest rules file, SKILL.md or command, in bytes; Codex has the same limit (`project_doc_max_bytes`)."""
LARGEST_FILE = 262_144
"""Largest other file of a skill that a model can read, in bytes."""
MOST_LEVELS = 40
"""How many folders are searched, from the notebook's folder up to the root."""
MOST_FOUND = 100
"""How many skills or commands of one folder are read."""
MOST_FILES = 500
"""Most files of one skill. A skill with more files is left out, because an approval covers all its files."""
MOST_BYTES = 20 * 2**20
"""Largest total size of the files of one skill, in bytes."""
LONGEST_FRONT = 8_192
"""Longest front matter, in characters."""
DEEPEST_FRONT = 5
"""Deepest nesting of lists and mappings in a front matter."""
LONGEST_DESCRIPTION = 1_024
"""Longest description of a skill, in characters: https://agentskills.io/specification"""

_SKILL_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
"""Lowercase letters and digits, with single hyphens between them: https://agentskills.io/specification"""
COMMAND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

FileKind = Literal["rules", "skill", "command"]


class Unusable(ValueError):
    """Raised when a file cannot be used. The message is a sentence without a subject, such as "is no regular file"."""


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A rules file, skill or command of the project.

    `file`: the path relative to the notebook's folder, which is the same in every copy of the project.
    `text`: the whole text, with hidden characters made visible. `body`: the text after the front matter.
    `others`: the other files of a skill, each as name, size in bytes and digest.
    `digest`: changes if the content of any of these files changes.
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
        """The key under which the user's approval is stored: a hash of the file's path and its `digest`."""
        return digest_of(str(self.path), self.digest)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The project files for a folder. `problems` says for each unusable file why it is left out.

    `files` has the rules first. Among the rules, those nearest to the folder come last.
    """

    folder: Path = Path()
    files: tuple[ProjectFile, ...] = ()
    problems: tuple[str, ...] = ()


def find_files(folder: Path, kinds: Collection[FileKind] = get_args(FileKind), height: int | None = None) -> FoundFiles:
    """Return the rules, skills and commands of a folder and the folders above it, up to the root of its repository.

    If `height` is given, exactly that many folders above are searched, with or without a repository.
    """
    folder = folder.absolute()
    levels, problems = _levels(folder, height), list[str]()
    files_by_name: dict[tuple[str, str], ProjectFile] = {}
    for level in levels:
        for path in _existing(level, RULES) if "rules" in kinds else ():
            files_by_name |= _read_or_report("rules", path, levels, problems)
    for level in reversed(levels):  # if files have the same name, the one nearest to `folder` is used
        for path in _skills(level, problems) if "skill" in kinds else ():
            files_by_name = _read_or_report("skill", path, levels, problems) | files_by_name
        for path in (one for one in _children(level / COMMANDS, problems) if one.suffix == ".md"):
            files_by_name = _read_or_report("command", path, levels, problems) | files_by_name
    files = sorted(files_by_name.values(), key=_place)
    return FoundFiles(folder, tuple(files), tuple(problems))


def _place(file: ProjectFile) -> tuple[int, int, str]:
    """Return the sort key of a project file: its kind, then its depth if it is a rules file, then its name."""
    is_rules = file.kind == "rules"
    return get_args(FileKind).index(file.kind), len(file.path.parts) if is_rules else 0, file.name


def _levels(folder: Path, height: int | None) -> list[Path]:
    """Return the folders from the root of the repository down to `folder`; without a repository, only `folder`.

    With `height`, start that many folders above instead.
    """
    above = [folder, *folder.parents][:MOST_LEVELS]
    root = next((index for index, one in enumerate(above) if os.path.lexists(one / ROOT_MARK)), 0)
    return list(reversed(above[: (root if height is None else height) + 1]))


def height_of(files: Iterable[str]) -> int:
    """Return how many folders the highest path is above the notebook's folder, to which the paths are relative."""
    return max((file.count("../") for file in files), default=0)


def _children(folder: Path, problems: list[str]) -> list[Path]:
    """Return the entries of a folder, sorted by name; [] if the folder cannot be read."""
    paths: list[Path] = []
    with suppress(OSError, ValueError):
        paths = sorted(Path(one.path) for one in os.scandir(folder))
    if len(paths) > MOST_FOUND:
        name = reveal(folder.name, strictly=True)
        problems.append(f"{name} has {len(paths):,} entries, and those after the first {MOST_FOUND} are left out.")
    return paths[:MOST_FOUND]


def _existing(folder: Path, name: str) -> list[Path]:
    return [folder / name] if os.path.lexists(folder / name) else []


def _skills(level: Path, problems: list[str]) -> Iterator[Path]:
    for place in SKILL_FOLDERS:
        for folder in _children(level / place, problems):
            yield from _existing(folder, SKILL)


def _read_or_report(
    kind: FileKind, path: Path, levels: Sequence[Path], problems: list[str]
) -> dict[tuple[str, str], ProjectFile]:
    """Read a file and return {(kind, name): file}. For an unusable file, return {} and add the reason to `problems`."""
    try:
        file = _read(kind, path, levels)
    except (Unusable, OSError) as error:
        why = str(error) if isinstance(error, Unusable) else f"cannot be read ({type(error).__name__})"
        problems.append(f"{_relative(levels[-1], path)} is left out: it {why}.")
        return {}
    is_empty = kind == "rules" and not file.body
    return {} if is_empty else {(kind, file.name): file}


def _relative(folder: Path, path: Path) -> str:
    """Return a path relative to `folder`, on one line, with hidden characters made visible."""
    return reveal(os.path.relpath(path, folder).replace(os.sep, "/"), strictly=True)


def _read(kind: FileKind, path: Path, levels: Sequence[Path]) -> ProjectFile:
    root = levels[0]
    data = read_bytes(path, root, LARGEST_TEXT)
    text = redact(_small_text(data))  # the user is shown the same text that is used: secrets are blanked here
    where = _relative(levels[-1], path)
    match kind:
        case "rules":
            return ProjectFile(kind, where, where, path, text, text.strip(), digest=digest_of(data))
        case "command":
            front, body = front_matter(text, strictly=False)
            if not COMMAND_NAME.fullmatch(path.stem):
                raise Unusable("needs a name of letters, digits, _ and -, 64 at most")
            about = single_line(str(front.get("description") or ""), LONGEST_DESCRIPTION)
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
    others = tuple(_other_files(path.parent, root))
    digest = digest_of(data, *(f"{file} {size} {content}" for file, size, content in others))
    about = single_line(description, LONGEST_DESCRIPTION)
    return ProjectFile("skill", name, where, path, text, body, about, others, digest)


# -- reading -----------------------------------------------------------------------------------------


def read_bytes(path: Path, within: Path, most: int) -> bytes:
    """Return the content of a regular file.

    Raises Unusable if it is not regular, is outside `within`, or has over `most` bytes. Raises OSError.
    """
    real = _inside(path, within)
    try:
        return read_plain(real, most)
    except UnfitFile as error:
        is_large = error.errno == errno.EFBIG
        raise Unusable(f"has more than {most:,} bytes" if is_large else "is no regular file") from None


def _inside(path: Path, within: Path) -> Path:
    """Return the path of a file with links resolved.

    Raises Unusable if it is not a regular file in `within`, and OSError, for example if there is no such file.
    """
    try:
        real = path.resolve(strict=True)
    except (RuntimeError, ValueError):  # for example a loop of links, or a NUL in the name
        raise Unusable("leads nowhere") from None
    if not real.is_relative_to(within.resolve()):
        raise Unusable("leads out of its folder")
    if not real.is_file():  # reading a pipe would block
        raise Unusable("is no regular file")
    return real


def as_text(data: bytes) -> str:
    """Return bytes as text, with hidden characters made visible. Raises Unusable if the bytes are not UTF-8 text."""
    try:
        text = decode_text(data)
    except UnicodeDecodeError:
        raise Unusable("is no text in UTF-8") from None
    if "\0" in text:
        raise Unusable("is no text")
    return reveal(text.replace("\r\n", "\n"))


_small_text = lru_cache(maxsize=128)(as_text)
"""A cached `as_text`, for files that are read in every turn."""


def front_matter(text: str, *, strictly: bool = True) -> tuple[Mapping[str, Any], str]:
    """Return the front matter (the YAML mapping between two lines `---` at the start), and the text after it.

    Raises Unusable if the front matter is invalid. If `strictly` is true, raises it also if none exists.
    """
    lines = text.replace("\r", "\n").split("\n")
    end = next((index for index, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        if strictly and lines[0].rstrip() == "---":
            raise Unusable("begins with a line --- and has no second one: write it after the description")
        if strictly:
            raise Unusable("has no front matter: begin it with the lines ---, name: ..., description: ..., ---")
        return {}, text.strip()
    return _yaml("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip()


_FRONT_LINE = re.compile(r"([A-Za-z_][\w-]{0,63})[ \t]*:(?:[ \t]+(.*)|)")
"""A line of a front matter with a key and a value."""


@lru_cache(maxsize=512)
def _yaml(text: str) -> Mapping[str, Any]:
    import yaml  # imported late: only projects with skills or commands need it

    if len(text) > LONGEST_FRONT:
        raise Unusable(f"has a front matter of more than {LONGEST_FRONT:,} characters")
    try:
        _check_events(cast("Any", yaml).parse(text, Loader=yaml.BaseLoader))
        data = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  (it makes texts, lists and mappings alone)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError):
        return _lines_of(text)
    return cast("Mapping[str, Any]", data) if isinstance(data, dict) else _lines_of(text)


def _lines_of(text: str) -> Mapping[str, str]:
    """Return the values of lines `key: value`, as other programs read a front matter that is not strict YAML.

    A value can have a colon, a bracket or a star in it. Indented lines continue the value before them. Raises Unusable,
    with the number of the line, for any other line.
    """
    values: dict[str, str] = {}
    key = ""
    for number, line in enumerate(text.split("\n"), 2):  # the line --- is the first
        if match := _FRONT_LINE.fullmatch(line):
            key, values[match[1]] = match[1], _unquoted((match[2] or "").strip())
        elif line.strip() and not line.startswith("#"):
            if not key or not line[:1].isspace():
                raise Unusable(f"has a front matter whose line {number} is no `key: value`: write it so, or remove it")
            values[key] = f"{values[key]} {line.strip()}".strip()
    if not values:
        raise Unusable("has a front matter without a line `key: value`")
    return values


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _check_events(events: Iterable[Any]) -> None:
    """Raise ValueError for YAML with deep nesting or aliases. With aliases, a few lines can expand to a gigabyte."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith(("MappingStartEvent", "SequenceStartEvent"))
        depth -= kind.endswith(("MappingEndEvent", "SequenceEndEvent"))
        if kind == "AliasEvent" or depth > DEEPEST_FRONT:
            raise ValueError("it has aliases, or is nested too deep")


def _other_files(folder: Path, root: Path) -> list[tuple[str, int, str]]:
    """Return the other files in the folder of a SKILL.md: name, size in bytes and digest of each.

    Links are not followed. Hidden files and `__pycache__` are skipped, because Python, Jupyter and git write them.
    """
    if not folder.resolve().is_relative_to(root.resolve()):
        raise Unusable("leads out of its folder")
    files: list[tuple[str, int, str]] = []
    total = 0
    top = str(folder)
    for here, folders, names in os.walk(top):  # `str` paths: Path objects are several times slower
        folders[:] = sorted(filter(_is_part, folders))
        for name in sorted(filter(_is_part, names)):
            path = os.path.join(here, name)  # noqa: PTH118
            status = os.lstat(path)
            if path == os.path.join(top, SKILL) or not stat.S_ISREG(status.st_mode):  # noqa: PTH118
                continue
            total += status.st_size
            if len(files) == MOST_FILES or total > MOST_BYTES:
                raise Unusable(f"has more than {MOST_FILES} files, or {MOST_BYTES:,} bytes, beside it")
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
            file = path[len(top) + 1 :].replace(os.sep, "/")
            files.append((reveal(file, strictly=True), status.st_size, _content(path, version)))
    return files


def _is_part(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


@lru_cache(maxsize=4_096)
def _content(path: str, _seen: tuple[int, ...]) -> str:
    """Return a digest of a file, cached. `_seen` only changes the cache key, so that a changed file is read again."""
    return digest_of(read_plain(path, MOST_BYTES))


def digest_of(*whole: str | bytes) -> str:
    """Return a digest of texts and bytes: 32 hexadecimal characters.

    The line ends CRLF and LF give the same digest, because git converts one into the other.
    """
    parts = [one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else one for one in whole]
    parts = [one.replace("\r\n", "\n") for one in parts]
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
