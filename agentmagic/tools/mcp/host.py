"""What a server may ask of us while a tool of its is running: a person's answers, a model's words.

A `Host` decides. `Typed` puts everything as a typed question through the running call, so that nobody is
asked by a server that was not called, and the clocks of call and turn stand still meanwhile. To authorize us
with a server a person is asked past the call, and past what is kept of the conversation: what is pasted is secret.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agentmagic.errors import ToolError
from agentmagic.messages import Message
from agentmagic.runtime.engine import engine
from agentmagic.tools.base import ToolContext

Kind = Literal["text", "number", "integer", "boolean", "choice", "choices"]
Refusal = Literal["decline", "cancel"]
"""A person said no, or nobody answered."""

LONGEST_SHOWN = 20_000
"""Characters that are shown of what a server would have a model answer."""

TRIES = 3
"""How often a person is asked again for an answer that does not fit."""

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})


@dataclass(frozen=True, slots=True)
class Field:
    """One value a server asks for; `choices` are the values that may be given, by what they are called."""

    name: str
    label: str
    kind: Kind = "text"
    choices: Mapping[str, str] | None = None
    required: bool = True
    default: Any = None


@dataclass(frozen=True, slots=True)
class Form:
    """Values a server asks a person for, none of them a secret."""

    server: str
    message: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """An address a server asks a person to visit; it is shown, never opened for them."""

    server: str
    message: str
    url: str


@dataclass(frozen=True, slots=True)
class Page:
    """Where a person lets us use a server; `note` says what becomes of the token, or what was wrong before."""

    server: str
    url: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a server wants a model to answer, in at most `max_tokens` tokens."""

    server: str
    messages: tuple[Message, ...]
    instructions: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the model answered."""

    text: str
    model: str
    stop_reason: str = "endTurn"


class Host(Protocol):
    """Answers servers, each answer by a person's leave; called on the engine."""

    @property
    def samples(self) -> bool:
        """Whether there is a model to answer; a server is told when it is connected."""
        ...

    async def may_start(self, server: str, command: str) -> bool:
        """Ask whether a server that a file of the project names may be started by this command."""
        ...

    async def attended(self) -> bool:
        """Whether somebody can be asked to open an authorization page."""
        ...

    async def authorize(self, page: Page) -> str:
        """Show an authorization page; return the address at which the person's browser ended up, "" for a no.

        Cancelled where the browser came back by itself, or nobody waits any more.
        """
        ...

    async def fill(self, form: Form, call: ToolContext) -> Mapping[str, Any] | Refusal:
        """Return values by the names of the form's fields, of the fields' kinds."""
        ...

    async def visit(self, link: Link, call: ToolContext) -> bool:
        """Show an address; whether the person means to go there."""
        ...

    async def sample(self, request: Sampling, call: ToolContext) -> Sampled | None:
        """Have a model answer, if a person agrees; None where they do not."""
        ...


async def by_the_turns_model(request: Sampling, call: ToolContext) -> Sampled:
    """Have the model of the running turn answer, within its time and budgets."""
    answer = await call.complete(request.messages, request.instructions, max_tokens=request.max_tokens)
    return Sampled(answer.text, answer.model, "maxTokens" if answer.cut else "endTurn")


@dataclass(frozen=True, slots=True)
class Typed:
    """Asks by typed questions through the running call.

    `complete` has a model answer, by default that of the running turn; without one sampling is not offered.
    `confirm` asks about starting a server, for which no call is running; without it none is started that needs a
    person's leave.
    """

    complete: Callable[[Sampling, ToolContext], Awaitable[Sampled]] | None = by_the_turns_model
    confirm: Callable[[str], Awaitable[bool]] | None = None

    @property
    def samples(self) -> bool:
        """Whether there is a model to answer."""
        return self.complete is not None

    async def may_start(self, server: str, command: str) -> bool:
        """Ask whether the server may be started."""
        if self.confirm is None:
            return False
        return await self.confirm(f"Start the MCP server {server!r}, which the project names?\n{command}")

    async def attended(self) -> bool:
        """Whether the kernel's person can be asked: one whose cell waits."""
        main = engine().main
        return main.person is not None and main.serving and await main.run(main.person.attended)

    async def authorize(self, page: Page) -> str:
        """Show the address and wait for another."""
        main = engine().main
        if (person := main.person) is None:
            return ""
        question = (
            f"The server {page.server!r} asks to be authorized. Open this page, if you trust it:\n"
            f"{page.url}\n{page.note}\n"
            "If your browser could not come back, paste the address it ended up at (nothing gives up): "
        )
        return await main.run(lambda: person.ask(question))

    async def fill(self, form: Form, call: ToolContext) -> Mapping[str, Any] | Refusal:
        """Ask for one field after the other."""
        head = f"The server {form.server!r} asks: {form.message}"
        if not form.fields:
            return await _agreed(f"{head}\nAccept? [y/n]", call) or {}
        values: dict[str, Any] = {}
        for number, field in enumerate(form.fields):
            question = _question(field)
            value = await _value(field, f"{head}\n{question}" if number == 0 else question, call)
            if isinstance(value, _Stop):
                return value.refusal
            if value is not None:
                values[field.name] = value
        return values

    async def visit(self, link: Link, call: ToolContext) -> bool:
        """Show the address and ask."""
        question = (
            f"The server {link.server!r} asks you to visit an address: {link.message}\n{link.url}\n"
            "Open it yourself if you trust it. Did you, or will you? [y/n]"
        )
        return await _agreed(question, call) is None

    async def sample(self, request: Sampling, call: ToolContext) -> Sampled | None:
        """Show what would be sent to the model and ask."""
        if self.complete is None:
            return None
        said = [("instructions", request.instructions)] if request.instructions else []
        said += [(message.role, message.text) for message in request.messages]
        words = "\n".join(f"{who}: {_excerpt(text, LONGEST_SHOWN // max(len(said), 1))}" for who, text in said)
        question = (
            f"The server {request.server!r} wants your model to answer, in up to {request.max_tokens} tokens:\n"
            f"{words}\nSend it? [y/n]"
        )
        return None if await _agreed(question, call) else await self.complete(request, call)


@dataclass(frozen=True, slots=True)
class _Stop:
    refusal: Refusal


def _excerpt(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}… (the first {most:,} of {len(text):,} characters)"


async def _agreed(question: str, call: ToolContext) -> Refusal | None:
    """Ask for a yes; return None where it was given."""
    try:
        answer = (await call.ask(question)).strip().lower()
    except ToolError:
        return "cancel"
    return None if answer in _YES else "decline"


async def _value(field: Field, question: str, call: ToolContext) -> Any:
    """Ask until the answer fits; return the value, None for none, or a stop."""
    for _ in range(TRIES):
        try:
            answer = (await call.ask(question)).strip()
        except ToolError:
            return _Stop("cancel")
        if not answer and (field.default is not None or not field.required):
            return field.default
        if answer == "-":
            return _Stop("decline")
        try:
            return read(field, answer)
        except ValueError as error:
            question = f"{error} {_question(field)}"
    return _Stop("cancel")


def _question(field: Field) -> str:
    match field.kind:
        case "choice" | "choices":
            several = ", several by commas" if field.kind == "choices" else ""
            kind = f"one of: {', '.join(field.choices or ())}{several}"
        case "boolean":
            kind = "y/n"
        case kind:
            pass
    default = f", else {field.default}" if field.default is not None else "" if field.required else ", may be empty"
    return f"{field.label} ({kind}{default}; - declines)"


def read(field: Field, answer: str) -> str | int | float | bool | list[str]:
    """Read a typed answer as the field's kind. Raises ValueError, in a sentence, where it does not fit."""
    match field.kind:
        case "text":
            return answer
        case "boolean":
            if answer.lower() in _YES | _NO:
                return answer.lower() in _YES
            raise ValueError("Please answer y or n.")
        case "choice":
            return _choice(field, answer)
        case "choices":
            return [_choice(field, one.strip()) for one in answer.split(",") if one.strip()]
        case "integer" | "number":
            try:
                return int(answer) if field.kind == "integer" else float(answer)
            except ValueError:
                raise ValueError("That is no number." if field.kind == "number" else "That is no integer.") from None


def _choice(field: Field, answer: str) -> str:
    choices = field.choices or {}
    if answer in choices:
        return choices[answer]
    if answer in choices.values():
        return answer
    raise ValueError(f"{answer!r} is none of them.")
