"""Every error agentmagic raises, as one tree.

AgentMagicError
├── UsageError(ValueError)            the caller's mistake: an option, a name, a value
│   ├── UnknownModel                  no provider or model of that name
│   ├── ConfigError                   a configuration file or entry that cannot be read
│   ├── JournalError                  a saved conversation that cannot be read
│   └── CassetteError                 a recording that cannot be read or written
├── ReplayMismatch                    a replayed run is not as it was recorded
├── MissingExtra(ImportError)         an optional dependency is not installed
├── SessionBusy(RuntimeError)         a turn of this session is still running
├── TurnTimeout(TimeoutError)         the turn ran out of time; `.result` is the partial result
├── ProviderError                     a model could not answer; `.result` if a turn failed because of it
│   ├── AuthenticationMissing         no key was found
│   ├── AuthenticationFailed          the provider refused the key
│   ├── RateLimited                   too many requests, or the quota is used up
│   ├── ContextTooLong                the conversation no longer fits the model's window
│   ├── BadRequest                    the provider refused the request
│   ├── EmptyAnswer                   the model said nothing and called nothing
│   ├── MalformedCall                 the model wrote a tool call that cannot be read
│   └── Unavailable(ConnectionError)  the provider cannot be reached or is down
│       └── StreamBroken              the answer broke off midway
├── InvalidOutput(ValueError)         the answer does not have the form that was asked for
├── ServerError(ConnectionError)      a tool server cannot be started or reached
└── ToolError                         raised by a tool: its message is for the model to read

`TaskComplete` is no error and lives with the tools.

Each error has a short code, which people see behind its message: `key-missing`. `agentmagic.error_codes` tells what
each code means.
"""

import inspect
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

MOST_INSIDE = 10
"""How many exceptions of a group are named."""


def failed_inside(error: BaseException) -> str:
    """Return what failed in an exception group and in the groups within it, "" for another error."""
    waiting: list[Any] = [error] if isinstance(error, BaseExceptionGroup) else []
    found: list[str] = []
    while waiting and len(found) < MOST_INSIDE:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting += reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions)
        else:
            found.append(f"{type(one).__name__}: {said(one)}".rstrip(": "))
    return "; ".join([*found, "and more"] if waiting else found)


def said(error: BaseException) -> str:
    """Return the words of an error, which may itself fail to say them."""
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001  (a __str__ of other code)
        return ""


def usage_code(module: str) -> str:
    """Return the code of the usage errors that a module makes: it names the package of agentmagic around the module."""
    root, *path = module.split(".")
    if root != "agentmagic" or not path:  # made by other code
        return UsageError.code
    return f"{UsageError.code}-{path[-2:][0].strip('_').replace('_', '-')}"


def code_of(error: BaseException) -> str:
    """Return the code of an AgentMagicError, "" for any other error.

    A class of other code may use the name `code` for something else, such as an HTTP status. That is no code.
    """
    if not isinstance(error, AgentMagicError):
        return ""
    code: Any = vars(error).get("code", type(error).code)
    return code if isinstance(code, str) else AgentMagicError.code


def with_code(error: BaseException) -> str:
    """Return the message of an error as people see it. The code of an AgentMagicError follows it in brackets."""
    code = code_of(error)
    return f"{said(error)} [{code}]" if code else said(error)


class AgentMagicError(Exception):
    """The root of every error of agentmagic.

    `code` is a short name of what failed. People see it behind the message; it is not part of `str(error)`, which
    models, journals and cassettes get. `result` is the partial `RunResult` if a turn failed because of this error, else
    None. `is_shown` says that the output of the cell has the message already, so that its last line need not repeat it.
    """

    code = "turn-failed"
    result: Any = None
    is_shown = False


class UsageError(AgentMagicError, ValueError):
    """The caller asked for something that cannot be; the message says what to do instead.

    `code` names the part of agentmagic that made the error, such as `usage-magics`.
    """

    code = "usage"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.code == UsageError.code:
            self.code = usage_code(_maker_of(self))

    def _render_traceback_(self) -> list[str]:
        """Have IPython show the sentence alone: the mistake is in the caller's line, not below it."""
        return [f"{type(self).__name__}: {with_code(self)}"]


def _maker_of(error: BaseException) -> str:
    """Return the name of the module that makes an error, called from its `__init__`."""
    frame = inspect.currentframe()
    while frame is not None and (frame.f_code is _maker_of.__code__ or frame.f_locals.get("self") is error):
        frame = frame.f_back
    spec = frame and frame.f_globals.get("__spec__")  # names `python -m agentmagic`, whose `__name__` is "__main__"
    return spec.name if spec else ""


class UnknownModel(UsageError):
    """A model name that no provider answers to."""

    code = "unknown-model"


class ConfigError(UsageError):
    """A configuration file or entry that cannot be read."""

    code = "config"


class JournalError(UsageError):
    """A saved conversation that cannot be read."""

    code = "journal"


class CassetteError(UsageError):
    """A recording that cannot be read or written."""

    code = "cassette"


class ReplayMismatch(AgentMagicError):
    """A replayed run is not as it was recorded; `differences` are what `replay.comparison` found."""

    code = "replay-mismatch"

    def __init__(self, message: str, differences: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


def requirement(extra: str) -> str:
    """Return what pip is told to install for an extra of agentmagic.

    agentmagic is on no index. Pip takes its name for the one that is installed; else it needs the folder.
    """
    try:
        distribution("agentmagic")
    except PackageNotFoundError:
        return f"{Path(__file__).parents[1]}[{extra}]"
    return f"agentmagic[{extra}]"


class MissingExtra(AgentMagicError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    code = "missing-extra"

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        self.command = f"pip install '{requirement(extra)}'"
        super().__init__(f"{feature} needs a package that is not installed. Run: {self.command}")


class SessionBusy(AgentMagicError, RuntimeError):
    """A turn of this session is still running."""

    code = "session-busy"


class TurnTimeout(AgentMagicError, TimeoutError):
    """The turn ran out of its time; `result` holds what was finished."""

    code = "turn-timeout"


class ProviderError(AgentMagicError):
    """A model could not answer.

    `retryable` says whether the same request may succeed later, `retry_after` how many seconds the
    provider asked to wait, `status` the HTTP status if there was one. `usage` is the usage of the failed tries, if
    the provider reported it, else None. `mended` says in a sentence what the model leaves out from now on, so that the
    request is sent again at once.
    """

    code = "provider"
    retryable = False
    mended = ""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.usage: Any = None
        self.retry_after = retry_after


class AuthenticationMissing(ProviderError):
    """No key was found; `variables` names the environment variables that were looked at."""

    code = "key-missing"

    def __init__(self, message: str, variables: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.variables = tuple(variables)


class AuthenticationFailed(ProviderError):
    """The provider refused the key."""

    code = "key-refused"


class RateLimited(ProviderError):
    """Too many requests, or the quota is used up."""

    code = "rate-limited"
    retryable = True


class ContextTooLong(ProviderError):
    """The conversation no longer fits the model's window."""

    code = "context-too-long"


class BadRequest(ProviderError):
    """The provider refused the request; the same request would be refused again."""

    code = "request-refused"


class EmptyAnswer(ProviderError):
    """The model said nothing and called nothing."""

    code = "empty-answer"
    retryable = True


class MalformedCall(ProviderError):
    """The model wrote a tool call, or an answer, that cannot be read."""

    code = "malformed-call"
    retryable = True


class Unavailable(ProviderError, ConnectionError):
    """The provider cannot be reached or is down."""

    code = "provider-unavailable"
    retryable = True


class StreamBroken(Unavailable):
    """The answer broke off before its closing event."""

    code = "stream-broken"


class InvalidOutput(AgentMagicError, ValueError):
    """The answer does not have the form that was asked for, even after the model was asked to correct it."""

    code = "invalid-output"


class ServerError(AgentMagicError, ConnectionError):
    """A tool server cannot be started or reached."""

    code = "tool-server"


class ToolError(AgentMagicError):
    """Raised by a tool to tell the model, in one sentence, what went wrong."""

    code = "tool"
