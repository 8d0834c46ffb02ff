"""Logging with the standard `logging` under the logger "agentmagic", with secrets blanked.

This module prints nothing: the handlers that the user configures decide where records go. In a notebook, `keep` stores
the last records in memory for `%agent debug`. With `logging.basicConfig()` alone, cells do not show all these records:
the root logger's handlers get agentmagic's records only from WARNING on, or from the level that the user sets for the
logger "agentmagic".
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
from agentmagic.text import sanitize, single_line

MOST_RECORDS = 500
LONGEST = 2_000
"""Characters of a record that are stored."""
EXCERPT = 200
"""Characters of a text or of arguments that are logged for an event."""

SDKS = ("openai", "anthropic", "google_genai", "httpx2", "mcp", "acp")
"""The loggers of the SDKs. Their records are kept only if `keep` is called with `detailed`."""

HELPERS = ("httpcore2", "markdown_it", "uvicorn")
"""The loggers of other libraries that agentmagic uses. Their records about its work are passed on only from WARNING."""

_MILESTONES = (events.TurnStarted, events.StepRetried, events.Notice, events.TurnFinished)

_INFO, _DEBUG = logging.INFO - 1, logging.DEBUG - 1
"""The levels that `keep` sets. They are 1 below the standard levels, to distinguish them from levels the user sets."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A stored log record, with secrets blanked; `time` is in seconds since 1970."""

    time: float
    level: str
    logger: str
    text: str


class Redacting(logging.Filter):
    """A filter that blanks secrets in a record's message, exception and stack before any handler gets the record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace a record's message, exception and stack by text without secrets. Return True: all records pass."""
        record.msg = sanitize(_message(record))
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
        record.exc_text = sanitize(record.exc_text) if record.exc_text else None
        record.stack_info = sanitize(record.stack_info) if record.stack_info else None
        return True


class Tap(logging.Handler):
    """A handler that stores the records of `logger` at or above `level`, or none if `level` is None.

    It also passes records on to the handlers of the parent loggers, but those about agentmagic's work only from WARNING
    on. For the other handlers of `logger`, nothing changes.
    """

    def __init__(self, logger: logging.Logger, level: int | None, lines: "deque[LogEntry]") -> None:
        super().__init__()
        self._logger = logger
        self._lines = lines
        self._before = logger.level, logger.propagate
        self.stored_level = level
        self._set = logger.level if level is None else level
        self.addFilter(Redacting())
        logger.setLevel(self._set)
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Store a record, and pass it to the handlers of the parent loggers."""
        if self.stored_level is not None:
            text = "\n".join(filter(None, (str(record.msg), record.exc_text, record.stack_info)))
            self._lines.append(LogEntry(record.created, record.levelname, record.name, text[:LONGEST]))
        parent = self._logger.parent
        if self._before[1] and parent is not None and record.levelno >= self._passing(parent, record):
            parent.callHandlers(record)

    def close(self) -> None:
        """Remove this handler from its logger, and restore the level and the propagation that the logger had before."""
        self._logger.removeHandler(self)
        if self._logger.level == self._set:
            self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]
        super().close()

    def _passing(self, parent: logging.Logger, record: logging.LogRecord) -> int:
        """Return the lowest level from which the handlers of the parent loggers get this record.

        If the user has set a level for this handler's logger, before or after the handler was added, it is that level.
        """
        own = self._before[0] if self._logger.level == self._set else self._logger.level
        return own or max(parent.getEffectiveLevel(), logging.WARNING if _is_ours(record) else logging.NOTSET)


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether a record is about agentmagic's work.

    These are records of agentmagic and of its Markdown library, and all records from agentmagic's threads.
    """
    return record.name.startswith(("agentmagic", "markdown_it")) or (record.threadName or "").startswith("agentmagic")


logger = logging.getLogger("agentmagic")
logger.addFilter(Redacting())
auditor = logging.getLogger("agentmagic.audit")
"""The logger that gets one line for each tool call; add a handler to write the lines to a file."""
auditor.addFilter(Redacting())
logging.getLogger("httpx2").addFilter(Redacting())  # It logs the address of each request, which can hold a key.

_lines: "deque[LogEntry]" = deque(maxlen=MOST_RECORDS)
_taps: list[Tap] = []


def keep(*, detailed: bool = False) -> None:
    """Start to store the last 500 log records (MOST_RECORDS) from INFO on. `detailed` adds DEBUG and SDK records."""
    stop()
    _taps.append(Tap(logger, _DEBUG if detailed else _INFO, _lines))
    _taps.extend(Tap(logging.getLogger(name), _DEBUG if detailed else None, _lines) for name in SDKS)
    _taps.extend(Tap(logging.getLogger(name), None, _lines) for name in HELPERS)


def stop() -> None:
    """Stop storing log records. Records that are already stored stay available."""
    while _taps:
        _taps.pop().close()


def is_detailed() -> bool:
    """Return whether log records are stored from the level DEBUG on."""
    return bool(_taps) and _taps[0].stored_level == _DEBUG


def recent(number: int) -> list[LogEntry]:
    """Return the last `number` stored log records, the oldest first."""
    return list(_lines)[-number:]


def event(turn_event: Event) -> None:
    """Log an event of a turn in one line, unless it is a delta (an event that only reports progress).

    The level is INFO or DEBUG, never WARNING, since users see the event in the notebook anyway. An `InnerEvent` is
    skipped, because the inner turn logs its own events.
    """
    if isinstance(turn_event, events.InnerEvent):
        return
    is_failure = isinstance(turn_event, events.ToolFinished) and turn_event.traceback
    level = logging.INFO if is_failure or isinstance(turn_event, _MILESTONES) else logging.DEBUG
    if logger.isEnabledFor(level) and not events.is_delta(turn_event):
        logger.log(level, "%s %s", turn_event.type, _event_text(turn_event))


@dataclass(slots=True)
class Audit:
    """The audit entry of one tool call: who allowed or refused it, and how it ended.

    `arguments` are the arguments with which the tool ran; only their hash is logged. `seconds` is the run time of the
    tool itself. `caller` is the outside program that made the call, or "" if the session's own model made it. `within`
    is the id of the call whose tool or program made this call, "" if none did.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any]
    decision: str = "undecided"
    outcome: str = "interrupted"
    seconds: float = 0.0
    caller: str = ""
    within: str = ""


def audit(entry: Audit) -> None:
    """Log a tool call in one line, at INFO, to the logger "agentmagic.audit"."""
    if auditor.isEnabledFor(logging.INFO):
        auditor.info(
            "%s%sserver=%s tool=%s arguments=%s decision=%s outcome=%s seconds=%.3f",
            f"caller={json.dumps(entry.caller)} " if entry.caller else "",
            f"within={json.dumps(entry.within)} " if entry.within else "",
            json.dumps(entry.server),
            json.dumps(entry.tool),
            arguments_hash(entry.arguments),
            json.dumps(entry.decision),
            json.dumps(entry.outcome),
            entry.seconds,
        )


def arguments_hash(arguments: Mapping[str, Any]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of arguments, written as JSON with sorted keys."""
    text = json.dumps(dict(arguments), sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _event_text(turn_event: Event) -> str:  # noqa: PLR0911  (one arm for each event with words of its own)
    match turn_event:
        case events.TurnStarted():
            return f"{turn_event.model}: {_short(turn_event.prompt.text)}"
        case events.StepRetried():
            return f"{turn_event.attempt}, again in {turn_event.delay:.1f} s: {_short(turn_event.error)}"
        case events.PartFinished():
            return _part(turn_event.part)
        case events.ApprovalAsked() | events.ToolStarted():
            return f"{turn_event.server}: {_part(turn_event.call)}"
        case events.ToolFinished():
            end = f"{_part(turn_event.result)} after {turn_event.seconds:.3f} s"
            return f"{end}\n{turn_event.traceback}" if turn_event.traceback else end
        case events.PromptAdded():
            return _short(turn_event.prompt.text)
        case events.TurnFinished(result):
            end = f"{result.stop_reason} after {result.seconds:.3f} s, {result.usage}"
            return f"{end}: {_short(result.error)}" if result.error else end
        case _:
            return _short(", ".join(f"{field.name}: {getattr(turn_event, field.name)}" for field in fields(turn_event)))


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
    """Return a text as one short line. Secrets are blanked before the cut, as a cut key would not be recognized."""
    return single_line(redact(text), EXCERPT)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  (arguments that do not fit, or cannot be written: logging never raises)
        return f"{record.pathname}, line {record.lineno}, logs what cannot be written: {type(error).__name__}"
