"""What the validators share: how they refuse, and the rules that both OpenAI APIs have."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from itertools import count
from pkgutil import resolve_name
from typing import Any, ClassVar

from agentmagic.providers.base import Model
from agentmagic.providers.registry import providers
from tests.providers.strict.script import Answer, Fault

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_NAME = 64


class Refused(Exception):
    """An API refuses a request; `status` is that of its HTTP response."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def refuse_unless(condition: object, message: str, status: int = 400) -> None:
    """Raise Refused where a condition does not hold."""
    if not condition:
        raise Refused(message, status)


class Api(ABC):
    """One of the APIs, with what it remembers of its own answers; it is asked for `asked` below its `root`."""

    name: ClassVar[str]
    path: str
    asked: ClassVar[str]
    root: ClassVar[str] = ""

    def __init__(self) -> None:
        self._numbers = count(1)

    def model(self, url: str, key: str) -> Model:
        """Return the provider under test, pointed at a server."""
        return resolve_name(providers()[self.name].make)(self.asked, base_url=f"{url}{self.root}", api_key=key)

    @abstractmethod
    def check(self, path: str, body: Json) -> None:
        """Raise Refused for a request that the API would not take."""

    @abstractmethod
    def stream(self, answer: Answer) -> tuple[list[str], list[str]]:
        """Return the events of an answer: all up to the middle of its last part, and the rest."""

    @abstractmethod
    def midway_failure(self) -> str:
        """Return an event that reports a failure of the server."""

    @abstractmethod
    def refusal(self, refused: Refused) -> Json:
        """Write why a request was refused."""

    @abstractmethod
    def failure(self, fault: Fault) -> Json:
        """Write the body of a fault."""


def check_known(body: Json, known: Collection[str]) -> None:
    """Refuse a body with a parameter that OpenAI does not know."""
    for name in body:
        refuse_unless(name in known, f"Unknown parameter: '{name}'.")


def check_name(name: object, where: str) -> None:
    """Refuse a function's name that OpenAI does not take, in a tool or in a call of the history.

    https://developers.openai.com/api/reference/resources/chat, `tools.function.name`.
    """
    refuse_unless(NAME.fullmatch(str(name or "")), f"Invalid '{where}': string does not match pattern '{NAME.pattern}'")
    check_length(str(name), LONGEST_NAME, where)


def check_length(text: str, longest: int, where: str) -> None:
    """Refuse a string that is too long."""
    refuse_unless(len(text) <= longest, f"Invalid '{where}': string too long, {len(text)} in place of {longest}.")


def check_schema(schema: Any, name: str) -> None:
    """Refuse parameters of a function that are no JSON Schema of an object, or hold an array of nothing."""
    start = f"Invalid schema for function '{name}': "
    is_object = isinstance(schema, dict) and schema.get("type") == "object"
    refuse_unless(is_object, f"{start}schema must be a JSON Schema of 'type: \"object\"'.")
    for path, inner in _schemas(schema, ()):
        whole = inner.get("type") != "array" or "items" in inner or "prefixItems" in inner
        refuse_unless(whole, f"{start}In context={path}, array schema missing items.")


def _schemas(schema: Json, path: tuple[str, ...]):
    yield path, schema
    children = [((key, name), inner) for key in ("properties", "$defs") for name, inner in schema.get(key, {}).items()]
    children += [((key,), inner) for key in ("anyOf", "oneOf", "allOf") for inner in schema.get(key, ())]
    for step, inner in (*children, (("items",), schema.get("items"))):
        if isinstance(inner, dict):
            yield from _schemas(inner, (*path, *step))


def openai_fault(fault: Fault, too_long: str) -> Json:
    """Write the body of a fault as both OpenAI APIs do: https://developers.openai.com/api/docs/guides/error-codes."""
    if fault.kind == "too_long":
        return openai_failure(too_long, "context_length_exceeded")
    return openai_failure(f"It failed with {fault.status}.", kind="server_error" if fault.status >= 500 else "")


def openai_failure(message: str, code: str | None = None, kind: str = "invalid_request_error") -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
