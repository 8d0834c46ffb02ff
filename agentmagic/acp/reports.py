"""A tool call as an outside agent has reported it, and the content of its updates as message parts.

The texts are a model's, so they are cleaned, cut and only shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, cast

from agentmagic.acp import bounds
from agentmagic.messages import Content, Media, Resource, Text, ToolCall, ToolResult, as_text
from agentmagic.text import clean, clip, cut, encodable, json_line, single_line

COMMANDS = frozenset(["argv", "cmd", "code", "command", "commands", "program", "script", "shell"])
"""Names of inputs that hold a command or code."""
BEGINNING = "beginning"
"""The argument that stands for an input that is too long to be shown whole."""


@dataclass(slots=True)
class CallReport:
    """A tool call, as an outside agent has reported it so far.

    `tool` is the name of an agentmagic tool, "" for an action of the agent itself. `is_over`: the call has its result.
    `is_made`: the agentmagic tool was called over MCP. `is_asked`: a permission request for the call is not answered.
    `runs`: the agent has reported that it carries out the call. `parent`: the call that it began in.
    """

    id: str
    title: str = ""
    kind: str = "other"
    raw: Any = None
    content: Sequence[Any] = ()
    output: Any = None
    tool: str = ""
    folder: Path = Path()
    is_over: bool = False
    is_made: bool = False
    is_asked: bool = False
    runs: bool = False
    parent: "CallReport | None" = None
    files: Sequence[str] = ()

    def merge(self, update: Any) -> None:
        """Take over what an update says about the call. Fields that the update does not have keep their values."""
        self.title = update.title or self.title
        self.kind = update.kind or self.kind
        # Some requests have an empty input, although the agent has sent the input before.
        self.raw = update.raw_input if update.raw_input or self.raw is None else self.raw
        if update.locations is not None:
            self.files = [single_line(clean(one.path), bounds.TITLE) for one in update.locations]
        self.content = update.content if update.content is not None else self.content
        self.output = update.raw_output if update.raw_output is not None else self.output
        self.runs = self.runs or getattr(update, "status", None) == "in_progress" or update.raw_output is not None

    @property
    def depth(self) -> int:
        """The number of calls around this one."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def has_begun(self) -> bool:
        """Whether the call waits for an answer of agentmagic, runs, or is finished."""
        return self.is_asked or self.is_made or self.is_over or self.runs

    @property
    def has_input(self) -> bool:
        """Whether the agent has said what the call will do. Agents often announce a call before its input."""
        return bool(self.raw or self.files) or any(one.type == "diff" for one in self.content)

    @property
    def name(self) -> str:
        """The name of the agentmagic tool, or the kind of the agent's own action."""
        return self.tool or self.kind

    def call(self) -> ToolCall:
        """Return the call, named after the agentmagic tool or after the kind of the agent's own action."""
        if self.tool:
            return ToolCall(self.id, self.tool, _object(self.raw))
        title = single_line(clean(encodable(self.title)), bounds.TITLE)
        raw = _object(self.raw)
        raw = raw if raw or not self.raw else {"input": self.raw}
        raw = raw or self._about()
        arguments: dict[str, Any] = {"title": title, **raw}
        if diffs := [one for one in self.content if one.type == "diff"]:
            diff_texts = {text for one in diffs for text in (one.old_text, one.new_text)}
            rest = {name: value for name, value in raw.items() if not (isinstance(value, str) and value in diff_texts)}
            is_cut = any(map(_is_cut, diffs))
            rest = raw if has_command(raw) or is_cut else rest
            is_whole = not is_cut or diff_texts - {None, ""} <= {
                value for value in raw.values() if isinstance(value, str)
            }
            changes = "\n".join(_diff(one, self.folder) for one in diffs)
            arguments = {"title": title, **rest, "changes" if is_whole else BEGINNING: changes}
        if len(json_text := json_line(arguments)) > bounds.ARGUMENTS:
            arguments = {"title": title, BEGINNING: cut(json_text, bounds.ARGUMENTS)}
        return ToolCall(self.id, self.kind, arguments)

    def _about(self) -> dict[str, Any]:
        """Return what the agent tells of a call without an input: the files that it is about, and a text."""
        texts = [one.content.text for one in self.content if one.type == "content" and one.content.type == "text"]
        details = clip(clean(encodable("\n".join(texts))), bounds.DETAILS)
        about = {"files": self.files[: bounds.FILES], "details": details}
        return {name: value for name, value in about.items() if value}

    def result(self, status: str) -> ToolResult:
        """Return the result of the call, with diffs as text; `structured` names the files that the call changed."""
        parts = [part for one in self.content for part in _content(one, self.folder)]
        if not parts and self.output is not None:
            parts = [Text(self.output if isinstance(self.output, str) else json_line(self.output))]
        files = [_path(one, self.folder) for one in self.content if one.type == "diff"]
        changes = {"files": files} if files else None
        outcome = "ok" if status == "completed" else "error"
        return ToolResult(self.id, self.name, _limit_parts(parts) or (Text(""),), outcome, changes)

    def progress(self) -> str:
        """Return the last line of the running call's output, or the call's title if there is no output."""
        texts = [one.content.text for one in self.content if one.type == "content" and one.content.type == "text"]
        last = texts[-1].strip().rpartition("\n")[2] if texts else self.title
        return single_line(clean(last), bounds.TITLE)

    def size(self) -> int:
        """Return how many characters of texts the call has, which count towards a limit."""
        return len(self.title) + sum(map(_size, self.content))


def text_of(chunk: Any) -> str:
    """Return the text of a chunk of a message or a thought; content that is not text becomes text that names it."""
    part = _block(chunk.content)
    return encodable(part.text if isinstance(part, Text) else as_text(part))


def changed_files(result: ToolResult) -> list[str]:
    """Return the files that an action of the agent changed, according to its diffs."""
    files = None if result.is_error else _object(result.structured).get("files")
    paths = cast("list[Any]", files) if isinstance(files, list) else []
    return [path for path in paths if isinstance(path, str)]


def says_what_runs(arguments: Mapping[str, Any], *, code: bool) -> bool:
    """Return whether the arguments of an outside agent's own call hold all that will run, and not only texts about it.

    For `code`, the files that it is about are not enough.
    """
    about = {"title", "details", "files"} if code else {"title", "details"}
    return bool(set(arguments) - about) and BEGINNING not in arguments


def has_command(value: Any) -> bool:
    """Return whether a part of a call's input is named as a command or as code."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return any(str(name).casefold() in COMMANDS or has_command(inner) for name, inner in items)
    return isinstance(value, list) and any(map(has_command, cast("list[Any]", value)))


def value_at(meta: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of keys in the `_meta` of a message, None if there is none."""
    for key in path:
        meta = _object(meta).get(key)
    return meta


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _path(item: Any, folder: Path) -> str:
    """Return the path of the file in a diff, relative to `folder` if the file is inside it."""
    path = clip(clean(item.path), bounds.TITLE)
    return Path(path).relative_to(folder).as_posix() if Path(path).is_relative_to(folder) else path


def _block(block: Any) -> Content:
    """Return a content block of the Agent Client Protocol as a message part of agentmagic."""
    match block.type:
        case "text":
            return Text(encodable(block.text))
        case "image" | "audio":
            return Text(f"[{clip(block.mime_type, 100)}]")
        case "resource_link":
            return Resource(clip(block.uri, bounds.TITLE), clip(block.name, bounds.TITLE))
        case _:
            inner = block.resource
            return Resource(clip(str(inner.uri), bounds.TITLE), text=encodable(getattr(inner, "text", "")))


def _content(item: Any, folder: Path) -> list[Content]:
    match item.type:
        case "content" if item.content.type == "image" and len(item.content.data) <= bounds.IMAGE:
            return [_image(item.content)]
        case "content":
            return [_block(item.content)]
        case "diff":
            return [Text(_diff(item, folder))]
        case _:  # the block is a terminal, but agentmagic gives agents no terminals
            return []


def _image(block: Any) -> Content:
    from base64 import b64decode

    try:
        return Media(clip(block.mime_type, 100), b64decode(block.data, validate=True))
    except ValueError:
        return Text("[an image that cannot be read]")


def _diff(item: Any, folder: Path) -> str:
    """Return the change of a file as a unified diff."""
    path, before, now = _path(item, folder), item.old_text or "", item.new_text
    if len(before) + len(now) > bounds.RESULT:
        return f"{path}: {len(before):,} characters became {len(now):,}."
    lines = [*unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=2)][2:]
    more = [f"({len(lines) - bounds.DIFF_LINES} more lines)"] if len(lines) > bounds.DIFF_LINES else []
    head = f"{'New' if item.old_text is None else 'Changed'}: {path}"
    return encodable("\n".join([head, *lines[: bounds.DIFF_LINES], *more]))


def _is_cut(item: Any) -> bool:
    """Return whether `_diff` may leave out a part of a change."""
    texts = (item.old_text or "", item.new_text)
    return sum(map(len, texts)) > bounds.RESULT or sum(len(one.splitlines()) for one in texts) > bounds.DIFF_LINES


def _limit_parts(parts: Sequence[Content]) -> tuple[Content, ...]:
    remaining, short_parts = bounds.RESULT, list[Content]()
    for part in parts[:100]:
        if isinstance(part, Media):
            short_parts.append(part)
        elif remaining > 0:
            short = cut(part.text, remaining)
            remaining -= len(part.text)
            short_parts.append(Text(short) if isinstance(part, Text) else Resource(part.uri, part.name, text=short))
    return tuple(short_parts)


def _size(item: Any) -> int:
    if item.type == "diff":
        return len(item.new_text)
    return len(item.content.text) if item.type == "content" and item.content.type == "text" else 0
