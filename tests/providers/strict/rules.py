"""What the three validators share: how they refuse, and the rules that both OpenAI APIs have."""

import re
from collections.abc import Collection
from typing import Any

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_NAME = 64


class Refused(Exception):
    """An API refuses a request; `status` is that of its HTTP response."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


def refuse_unless(condition: object, message: str, **options: Any) -> None:
    """Raise Refused, with its options, where a condition does not hold."""
    if not condition:
        raise Refused(message, **options)


def check_known(body: Json, known: Collection[str]) -> None:
    """Refuse a body with a parameter that OpenAI does not know."""
    for name in body:
        refuse_unless(name in known, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")


def check_name(name: object, where: str) -> None:
    """Refuse a function's name that OpenAI does not take, in a tool or in a call of the history.

    https://developers.openai.com/api/reference/resources/chat, `tools.function.name`.
    """
    refuse_unless(isinstance(name, str), f"Missing required parameter: '{where}'.", param=where)
    words = f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern '^{{}}$'."
    refuse_unless(NAME.fullmatch(str(name)), words.format(NAME.pattern), param=where, code="invalid_value")
    check_length(str(name), LONGEST_NAME, where)


def check_length(text: str, longest: int, where: str) -> None:
    """Refuse a string that is too long."""
    words = f"Expected a string with maximum length {longest}, but got a string with length {len(text)} instead."
    refuse_unless(
        len(text) <= longest,
        f"Invalid '{where}': string too long. {words}",
        param=where,
        code="string_above_max_length",
    )


def check_schema(schema: Any, name: str) -> None:
    """Refuse parameters of a function that are no JSON Schema of an object, or hold an array of nothing."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    words = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
    code = "invalid_function_parameters"
    refuse_unless(kind == "object", f"Invalid schema for function '{name}': {words}", code=code)
    for path, inner in _schemas(schema, ()):
        words = f"In context={path}, array schema missing items."
        whole = inner.get("type") != "array" or "items" in inner or "prefixItems" in inner
        refuse_unless(whole, f"Invalid schema for function '{name}': {words}", code=code)


def _schemas(schema: Json, path: tuple[str, ...]):
    yield path, schema
    for key in ("properties", "$defs"):
        for name, inner in (schema.get(key) or {}).items():
            if isinstance(inner, dict):
                yield from _schemas(inner, (*path, key, name))
    if isinstance(items := schema.get("items"), dict):
        yield from _schemas(items, (*path, "items"))
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(key) or ():
            if isinstance(inner, dict):
                yield from _schemas(inner, (*path, key))


def check_strict(schema: Json, name: str) -> None:
    """Refuse a strict function whose schema leaves something open.

    https://developers.openai.com/api/docs/guides/function-calling#strict-mode
    """
    start = f"Invalid schema for function '{name}': In context=(), "
    closed = schema.get("additionalProperties") is False
    refuse_unless(closed, f"{start}'additionalProperties' is required to be supplied and to be false.")
    complete = set(schema.get("properties") or ()) == set(schema.get("required") or ())
    refuse_unless(complete, f"{start}'required' is required to be supplied and to be an array including every key.")


def check_choice(choice: Any, named: object, tools: Collection[str]) -> None:
    """Refuse a tool_choice that is no word of OpenAI's and names no tool of the request."""
    refuse_unless(
        choice is None or tools, "'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice"
    )
    if choice is None or choice in ("auto", "none", "required"):
        return
    refuse_unless(isinstance(choice, dict), f"Invalid value: '{choice}'.", param="tool_choice", code="invalid_value")
    refuse_unless(named in tools, f"Tool choice '{named}' not found in 'tools' parameter.", param="tool_choice")


def openai_failure(message: str, code: str | None, param: str | None = None, kind: str = "") -> Json:
    """Write an error as OpenAI's APIs do: https://developers.openai.com/api/docs/guides/error-codes."""
    return {"error": {"message": message, "type": kind or "invalid_request_error", "param": param, "code": code}}
