"""What a model does at its requests, in no API's terms: the script of a strict server.

    strict("openai", call(("clock", {"zone": "UTC"}), think="I need the time."), fault(503), say("It is noon."))

Each step answers one request that the API accepts.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Say:
    """Words."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `arguments` is the JSON text that the model writes, an object."""

    name: str
    arguments: str


Part = Say | Think | Call
Ending = Literal["whole", "length", "closed", "error", "stall"]
"""How an answer ends.

- whole: with its closing event
- length: with a closing event that says it was cut at a limit of length, within its last part
- closed: the socket closes within the last part
- error: an event within the last part reports a failure of the server
- stall: nothing more comes within the last part
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that begins with status 200."""

    parts: tuple[Part, ...]
    ending: Ending = "whole"


@dataclass(frozen=True, slots=True)
class Fault:
    """A response that fails with a status, or for its length, or a connection that is dropped in its place."""

    status: int
    kind: Literal["", "too_long", "dropped"] = ""
    retry_after: str = ""


Step = Answer | Fault


def say(text: str, *, think: str = "", ends: Ending = "whole") -> Answer:
    """Have the model say something, after it has thought."""
    return Answer((*_thought(think), Say(text)), ends)


def call(*calls: tuple[str, dict[str, Any] | str], think: str = "", says: str = "", ends: Ending = "whole") -> Answer:
    """Have the model call tools side by side, after it has thought and said something; arguments may be raw text."""
    spoken = (Say(says),) if says else ()
    return Answer((*_thought(think), *spoken, *(Call(name, _raw(arguments)) for name, arguments in calls)), ends)


def silence(*, think: str = "") -> Answer:
    """Have the model end its answer without a word, after it may have thought."""
    return Answer(_thought(think))


def fault(status: int, *, retry_after: str = "") -> Fault:
    """Have the server fail with a status."""
    return Fault(status, retry_after=retry_after)


TOO_LONG = Fault(400, "too_long")
DROPPED = Fault(0, "dropped")


def halves(text: str) -> tuple[str, str]:
    """Split a text, as a stream brings it in pieces."""
    middle = (len(text) + 1) // 2
    return text[:middle], text[middle:]


def _thought(think: str) -> tuple[Think, ...]:
    return (Think(think),) if think else ()


def _raw(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
