"""What agentmagic logs: standard `logging` under "agentmagic", secrets blanked, the last records kept (SESSION-6).

This module writes nothing: the handlers that the user configures decide where records go. In a notebook, `keep` holds
the last records in memory for `%agent debug`. `logging.basicConfig()` does not make them appear in cells: the root's
handlers then get our records from WARNING on, and those below if the user sets a level for the logger "agentmagic".
"""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from agentmagic import events
from agentmagic.events import Event
from agentmagic.messages import HostedCall, HostedResult, Media, Part, Reasoning, Resource, Text, ToolCall, ToolResult
from agentmagic.secrets import redact
from agentmagic.text import one_line, shown

KEPT = 500
LONGEST = 2_000
"""Characters of a record that are kept."""
EXCERPT = 200
"""Characters of a text or of arguments in the line of an event."""

SDKS = ("openai", "anthropic", "google_genai", "httpx2", "mcp", "acp")
"""The loggers of the SDKs. Their records are kept only if `keep` is called with `detailed`."""

HELPERS = ("httpcore2", "markdown_it", "uvicorn")
"""The loggers of further libraries that log, below WARNING, what they do for us."""

_MILESTONES = (events.TurnStarted, events.StepRetried, events.Notice, events.TurnFinished)

_INFO, _DEBUG = logging.INFO - 1, logging.DEBUG - 1
"""The levels that `keep` sets, each one below a standard level: so a level that the user sets differs from them."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A record that was kept, its secrets blanked; `time` is in seconds since 1970."""

    time: float
    level: str
    logger: str
    text: str


class Redacting(logging.Filter):
    """Blanks the secrets of a record before any handler sees it: its message, its exception and its stack."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the message, the exception and the stack of a record by text without secrets."""
        record.msg = shown(_message(record))
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
        record.exc_text = shown(record.exc_text) if record.exc_text else None
        record.stack_info = shown(record.stack_info) if record.stack_info else None
        return True


class Tap(logging.Handler):
    """Keeps log records at or above `level`, none if it is None; the root's handlers get ours from WARNING on.

    The handlers of the logger itself receive what they did before.
    """

    def __init__(self, logger: logging.Logger, level: int | None, lines: "deque[LogEntry]") -> None:
        super().__init__()
        self._logger = logger
        self._lines = lines
        self._before = logger.level, logger.propagate
        self.kept = level
        self._set = logger.level if level is None else level
        self.addFilter(Redacting())
        logger.setLevel(self._set)
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, and pass it on."""
        if self.kept is not None:
            text = "\n".join(filter(None, (str(record.msg), record.exc_text, record.stack_info)))
            self._lines.append(LogEntry(record.created, record.levelname, record.name, text[:LONGEST]))
        parent = self._logger.parent
        if self._before[1] and parent is not None and record.levelno >= self._passing(parent, record):
            parent.callHandlers(record)

    def close(self) -> None:
        """Give the logger its level and its handlers back."""
        self._logger.removeHandler(self)
        if self._logger.level == self._set:
            self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]
        super().close()

    def _passing(self, parent: logging.Logger, record: logging.LogRecord) -> int:
        """Return the level from which a record is passed on; the user may have set it before or after the tap."""
        own = self._before[0] if self._logger.level == self._set else self._logger.level
        return own or max(parent.getEffectiveLevel(), logging.WARNING if _is_ours(record) else logging.NOTSET)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record is about our work: our own, Markdown's, and those of the SDKs on our threads."""
    return record.name.startswith(("agentmagic", "markdown_it")) or (record.threadName or "").startswith("agentmagic")


logger = logging.getLogger("agentmagic")
logger.addFilter(Redacting())
auditor = logging.getLogger("agentmagic.audit")
"""Takes one line for each tool call; give it a handler to keep them."""
auditor.addFilter(Redacting())

_lines: "deque[LogEntry]" = deque(maxlen=KEPT)
_taps: list[Tap] = []


def keep(*, detailed: bool = False) -> None:
    """Keep the last KEPT records from INFO on; with `detailed`, those from DEBUG on and those of the SDKs too."""
    stop()
    _taps.append(Tap(logger, _DEBUG if detailed else _INFO, _lines))
    _taps.extend(Tap(logging.getLogger(name), _DEBUG if detailed else None, _lines) for name in SDKS)
    _taps.extend(Tap(logging.getLogger(name), None, _lines) for name in HELPERS)


def stop() -> None:
    """Keep no further records; those that were kept stay."""
    while _taps:
        _taps.pop().close()


def is_detailed() -> bool:
    """Return whether records are kept from DEBUG on."""
    return bool(_taps) and _taps[0].kept == _DEBUG


def recent(number: int) -> list[LogEntry]:
    """Return the last records that were kept, the oldest first."""
    return list(_lines)[-number:]


def event(happened: Event) -> None:
    """Log an event of a turn in one line, unless it is a delta; at INFO at most, since a screen shows it too.

    An event of an inner turn is logged by that turn.
    """
    if isinstance(happened, events.InnerEvent):
        return
    raised = isinstance(happened, events.ToolFinished) and happened.traceback
    level = logging.INFO if raised or isinstance(happened, _MILESTONES) else logging.DEBUG
    if logger.isEnabledFor(level) and not events.is_delta(happened):
        logger.log(level, "%s %s", happened.type, _words(happened))


@dataclass(slots=True)
class Audit:
    """One tool call: who allowed or refused it, and how it ended.

    `arguments` are those that the tool ran with; only their hash is written. `seconds` is how long the tool itself ran.
    `caller` is the outside program that made the call, "" for the session's own model.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any]
    decision: str = "undecided"
    outcome: str = "interrupted"
    seconds: float = 0.0
    caller: str = ""


def audit(entry: Audit) -> None:
    """Log a tool call in a line, at INFO, under "agentmagic.audit"."""
    if auditor.isEnabledFor(logging.INFO):
        auditor.info(
            "%sserver=%s tool=%s arguments=%s decision=%s outcome=%s seconds=%.3f",
            f"caller={json.dumps(entry.caller)} " if entry.caller else "",
            json.dumps(entry.server),
            json.dumps(entry.tool),
            arguments_hash(entry.arguments),
            json.dumps(entry.decision),
            json.dumps(entry.outcome),
            entry.seconds,
        )


def arguments_hash(arguments: Mapping[str, Any]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of arguments, written as JSON with sorted keys."""
    written = json.dumps(dict(arguments), sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def _words(happened: Event) -> str:  # noqa: PLR0911  (one arm for each event with words of its own)
    match happened:
        case events.TurnStarted():
            return f"{happened.model}: {_short(happened.prompt.text)}"
        case events.StepRetried():
            return f"{happened.attempt}, again in {happened.delay:.1f} s: {_short(happened.error)}"
        case events.PartFinished():
            return _part(happened.part)
        case events.ApprovalAsked() | events.ToolStarted():
            return f"{happened.server}: {_part(happened.call)}"
        case events.ToolFinished():
            end = f"{_part(happened.result)} after {happened.seconds:.3f} s"
            return f"{end}\n{happened.traceback}" if happened.traceback else end
        case events.PromptAdded():
            return _short(happened.prompt.text)
        case events.TurnFinished(result):
            end = f"{result.stop_reason} after {result.seconds:.3f} s, {result.usage}"
            return f"{end}: {_short(result.error)}" if result.error else end
        case _:
            return _short(", ".join(f"{field.name}: {getattr(happened, field.name)}" for field in fields(happened)))


def _part(part: Part) -> str:
    match part:
        case Text() | Reasoning():
            return f"{part.type} {_short(part.text)}"
        case ToolCall():
            return f"{part.name} {part.id} {_short(str(dict(part.arguments)))}"
        case HostedCall():
            return f"{part.name} {part.id} {_short(str(dict(part.arguments)))}"
        case ToolResult() | HostedResult():
            return f"{part.name} {part.call_id} {part.status} {_short(part.text)}"
        case Media():
            return f"{part.media_type}, {len(part.data):,} bytes"
        case Resource():
            return f"{part.type} {_short(part.uri)}"


def _short(text: str) -> str:
    """Return a text as a short line. Secrets are blanked first: half of a key would not be recognized."""
    return one_line(redact(text), EXCERPT)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  (arguments that do not fit, or cannot be written: logging never raises)
        return f"{record.pathname}, line {record.lineno}, logs what cannot be written: {type(error).__name__}"
