"""Answers of a given form: from a type or a JSON Schema to a request, and from the words back to a value."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from agentmagic.errors import UsageError
from agentmagic.json_schema import check_schema, misfit
from agentmagic.providers.base import OutputSchema

if TYPE_CHECKING:
    from pydantic import TypeAdapter

REPAIRS = 2
"""How often an answer of the wrong form is sent back to be mended."""

_WRAPPED = "value"
"""Providers take objects only; anything else is asked for as the one property of an object."""
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n[^\S\n]*```", re.DOTALL)
_SHARED = ("$defs", "definitions")
"""What stands at the root of a schema, where `$ref` looks for it."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form an answer must have."""

    output: OutputSchema
    _adapter: "TypeAdapter[Any] | None"
    _wrapped: bool

    @property
    def instructions(self) -> str:
        """Say the form in words, for models that are not held to a schema."""
        schema = json.dumps(self.output.schema, ensure_ascii=False)
        return f"Your final answer is one JSON object and nothing else, valid under this JSON Schema: {schema}"

    def read(self, text: str) -> Any:
        """Return the value an answer stands for.

        Raises ValueError, in words for the model, where it does not fit.
        """
        data = _json(text)
        if problem := misfit(self.output.schema, data):
            raise ValueError(problem)
        inner = data[_WRAPPED] if self._wrapped else data
        return inner if self._adapter is None else _validated(self._adapter, inner)


def form_of(output: Any) -> Form:
    """Make the form of a type that pydantic can validate, or of a JSON Schema.

    Raises UsageError for what is neither.
    """
    if isinstance(output, Mapping):
        schema = dict(cast("Mapping[str, Any]", output))
        name, adapter = str(schema.get("title", "answer")), None
    else:
        name, adapter = getattr(output, "__name__", "answer"), _adapter_of(output)
        schema = adapter.json_schema()
    schema = _opened(schema)
    wrapped = schema.get("type") != "object"
    whole = _wrap(schema) if wrapped else schema
    if problem := check_schema("output", whole):
        raise UsageError(problem)
    return Form(OutputSchema(_legal(name), whole), adapter, wrapped)


def _adapter_of(output: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(output)
        adapter.json_schema()
    except PydanticUserError as error:
        reason = str(error).splitlines()[0]
        message = f"output is {output!r:.80}, of which no JSON Schema can be made: {reason}"
        raise UsageError(message) from None
    return adapter


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that only refers to one of its definitions as that definition: providers look at the root."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    return {**schema["$defs"][name], "$defs": schema["$defs"]} if name in schema.get("$defs", {}) else schema


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """Put a schema below the one property of an object; its definitions stay at the root."""
    inner = {key: value for key, value in schema.items() if key not in (*_SHARED, "$id", "$schema")}
    whole = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED], "additionalProperties": False}
    return cast("dict[str, Any]", _moved(whole | {key: schema[key] for key in _SHARED if key in schema}))


def _moved(schema: Any) -> Any:
    """Have references to the whole follow it to where it is now."""
    if isinstance(schema, list):
        return [_moved(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    entries = cast("dict[str, Any]", schema)
    moved = {key: _moved(item) for key, item in entries.items()}
    return moved | {"$ref": f"#/properties/{_WRAPPED}"} if entries.get("$ref") == "#" else moved


def _legal(name: str) -> str:
    """Make a name that every provider takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:64] or "answer"


def _json(text: str) -> Any:
    fenced = _FENCED.search(text)
    try:
        return json.loads(fenced[1] if fenced and not text.lstrip().startswith("{") else text)
    except (ValueError, RecursionError):
        message = "it is not JSON"
        raise ValueError(message) from None


def _validated(adapter: "TypeAdapter[Any]", data: Any) -> Any:
    from pydantic import ValidationError

    try:
        return adapter.validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        message = f"{where or 'the value'}: {first['msg']}"
        raise ValueError(message) from None
