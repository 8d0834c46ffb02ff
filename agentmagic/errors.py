"""All exceptions that agentmagic raises, as one tree.

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

`TaskComplete`, which a tool raises to end its turn, is not an error and is defined with the tools.

Each error has a short code, such as `key-missing`, which is shown after its message. `agentmagic.error_codes` explains
each code.
"""

import inspect
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

MOST_INSIDE = 10
"""The maximum number of exceptions of a group that a message names."""


def describe_group(error: BaseException) -> str:
    """Return the exceptions in an exception group, and in the groups inside it, as text; "" if it is not a group."""
    waiting: list[Any] = [error] if isinstance(error, BaseExceptionGroup) else []
    errors: list[str] = []
    while waiting and len(errors) < MOST_INSIDE:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting += reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions)
        else:
            errors.append(f"{type(one).__name__}: {describe(one)}".rstrip(": "))
    return "; ".join([*errors, "and more"] if waiting else errors)


def describe(error: BaseException) -> str:
    """Return the message of an error, or "" if its `__str__` raises."""
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001  (a __str__ of other code)
        return ""


def usage_code(module: str) -> str:
    """Return the code of usage errors that a module creates: "usage-" and the name of its package in agentmagic.

    For a module directly in agentmagic, the module's own name is used. For a module outside, the code is "usage".
    """
    root, *path = module.split(".")
    if root != "agentmagic" or not path:  # the error is from a module outside agentmagic
        return UsageError.code
    return f"{UsageError.code}-{path[-2:][0].strip('_').replace('_', '-')}"


def code_of(error: BaseException) -> str:
    """Return the code of an AgentMagicError, "" for any other error.

    A `code` that is not text is ignored: a subclass in other code may use the name for an HTTP status, for example.
    """
    if not isinstance(error, AgentMagicError):
        return ""
    code: Any = vars(error).get("code", type(error).code)
    return code if isinstance(code, str) else AgentMagicError.code


def with_code(error: BaseException) -> str:
    """Return the message of an error for users: an AgentMagicError has its code in brackets at the end."""
    code = code_of(error)
    return f"{describe(error)} [{code}]" if code else describe(error)


class AgentMagicError(Exception):
    """The root of every error of agentmagic.

    `code` is a short name for the kind of failure. Users see it after the message. It is not part of `str(error)`, the
    text that models, journals and cassettes get. `result` is the partial `RunResult` if a turn failed because of this
    error, else None. `is_shown` says that the output of the notebook cell already shows the message, so that it need
    not be shown again at the end.
    """

    code = "turn-failed"
    result: Any = None
    is_shown = False


class UsageError(AgentMagicError, ValueError):
    """Raised for a mistake of the caller, such as an invalid value; the message says what to do instead.

    `code` names the part of agentmagic that created the error, such as `usage-magics`.
    """

    code = "usage"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.code == UsageError.code:
            self.code = usage_code(_maker_of(self))

    def _render_traceback_(self) -> list[str]:
        """Return only the error's message. IPython shows it instead of a traceback of agentmagic's own code."""
        return [f"{type(self).__name__}: {with_code(self)}"]


def _maker_of(error: BaseException) -> str:
    """Return the name of the module whose code creates `error`. Called in the `__init__` of the error's class."""
    frame = inspect.currentframe()
    while frame is not None and (frame.f_code is _maker_of.__code__ or frame.f_locals.get("self") is error):
        frame = frame.f_back
    # `__spec__` has the module's real name; `__name__` is "__main__" in a module run by `python -m agentmagic`.
    spec = frame and frame.f_globals.get("__spec__")
    return spec.name if spec else ""


class UnknownModel(UsageError):
    """Raised if no provider or model has the given name."""

    code = "unknown-model"


class ConfigError(UsageError):
    """Raised for a configuration file or entry that cannot be read."""

    code = "config"


class JournalError(UsageError):
    """Raised for a saved conversation that cannot be read."""

    code = "journal"


class CassetteError(UsageError):
    """Raised for a cassette (a recording of turns) that cannot be read or written."""

    code = "cassette"


class ReplayMismatch(AgentMagicError):
    """Raised when a replayed turn differs from its recording.

    `differences`, which the module `replay.comparison` makes, says where.
    """

    code = "replay-mismatch"

    def __init__(self, message: str, differences: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


def requirement(extra: str) -> str:
    """Return the requirement for `pip install` that adds an extra of agentmagic.

    agentmagic is not on PyPI. If it is already installed, its name is enough. Otherwise, pip needs its source folder.
    """
    try:
        distribution("agentmagic")
    except PackageNotFoundError:
        return f"{Path(__file__).parents[1]}[{extra}]"
    return f"agentmagic[{extra}]"


class MissingExtra(AgentMagicError, ImportError):
    """Raised when a feature needs an optional dependency that is not installed; `command` installs it."""

    code = "missing-extra"

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        self.command = f"pip install '{requirement(extra)}'"
        super().__init__(f"{feature} needs a package that is not installed. Run: {self.command}")


class SessionBusy(AgentMagicError, RuntimeError):
    """Raised when a session cannot do something because one of its turns is still running."""

    code = "session-busy"


class TurnTimeout(AgentMagicError, TimeoutError):
    """Raised when a turn takes longer than its timeout; `result` has the finished part."""

    code = "turn-timeout"


class ProviderError(AgentMagicError):
    """Raised when a model could not answer.

    `retryable` says whether the same request may succeed later, `retry_after` is the wait in seconds that the provider
    asked for, `status` the HTTP status if there was one. `usage` is the usage of the failed attempts if the provider
    reported it, else None. `mended` is "" or a sentence: it names what the model object leaves out of its requests from
    now on, so that the request can be sent again at once. `begun` says whether a part of the answer came before.
    """

    code = "provider"
    retryable = False
    mended = ""
    begun = False

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.usage: Any = None
        self.retry_after = retry_after


class AuthenticationMissing(ProviderError):
    """Raised when no API key was found; `variables` are the names of the environment variables that can set it."""

    code = "key-missing"

    def __init__(self, message: str, variables: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.variables = tuple(variables)


class AuthenticationFailed(ProviderError):
    """Raised when the provider refused the API key."""

    code = "key-refused"


class RateLimited(ProviderError):
    """Raised when the provider got too many requests, or the quota is used up."""

    code = "rate-limited"
    retryable = True


class ContextTooLong(ProviderError):
    """Raised when the conversation no longer fits the model's context window."""

    code = "context-too-long"


class BadRequest(ProviderError):
    """Raised when the provider refused the request, and would refuse the same request again."""

    code = "request-refused"


class EmptyAnswer(ProviderError):
    """Raised when the model's answer has neither text nor a tool call."""

    code = "empty-answer"
    retryable = True


class MalformedCall(ProviderError):
    """Raised when the model wrote a tool call, or an answer, that cannot be parsed."""

    code = "malformed-call"
    retryable = True


class Unavailable(ProviderError, ConnectionError):
    """Raised when the provider cannot be reached or is down."""

    code = "provider-unavailable"
    retryable = True


class StreamBroken(Unavailable):
    """Raised when a model's answer, sent as a stream of events, broke off before the event that ends it."""

    code = "stream-broken"


class InvalidOutput(AgentMagicError, ValueError):
    """Raised when the answer does not fit the turn's `output` type, even after the model was asked to correct it."""

    code = "invalid-output"


class ServerError(AgentMagicError, ConnectionError):
    """Raised when an MCP server cannot be started or reached."""

    code = "tool-server"


class ToolError(AgentMagicError):
    """Raised by a tool that fails; the message, one sentence, is sent to the model."""

    code = "tool"
