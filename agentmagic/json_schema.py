"""From a Python signature to a JSON Schema, and from arguments to what is wrong with them."""

import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass
from dataclasses import Field as DataclassField
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from warnings import catch_warnings, simplefilter

from agentmagic import portable_schemas
from agentmagic.errors import ToolError, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo
    from pydantic.json_schema import GenerateJsonSchema

_EXAMPLE = re.compile(
    r"^[ \t]*Examples?:[ \t]*(?P<question>.+?)[ \t]*->[ \t]*(?P<arguments>\{.*\})[ \t]*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function tells about itself.

    `parameters` is a JSON Schema; `model` validates and converts arguments; `context` names the parameter
    that takes the tool context; `examples` are (question, arguments) pairs. `by_name` are the parameters that take
    the name of a variable, with the classes that its value may have. `filled` are the parameters whose default stands
    in a pydantic `Field`, where the function cannot read it.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    model: "type[BaseModel]"
    context: str | None
    examples: tuple[tuple[str, dict[str, Any]], ...]
    by_name: Mapping[str, tuple[type, ...]]
    filled: frozenset[str] = frozenset()


def read_signature(function: Callable[..., Any], context_type: type, *, variables: bool = False) -> Signature:
    """Read a function's hints and docstring; the words of a hint or a `Field` count more than those of the docstring.

    With `variables`, a parameter of a class that JSON cannot carry takes the name of a variable.
    Raises UsageError for a parameter that cannot be described to a model.
    """
    from docstring_parser import parse

    called = name_of(function)
    try:
        examples, prose = split_examples(_docstring(function))
    except ValueError as error:
        message = f"The Example line of {called} does not end in JSON: {error}"
        raise UsageError(message) from None
    doc = parse(prose)
    told = {entry.arg_name: (entry.description or "").strip() for entry in doc.params}
    hints, defaults, context = _hints(function, context_type)
    fields = {name: _field(hint, defaults[name]) for name, hint in hints.items()}
    told |= {name: field.description for name, field in fields.items() if field.description}
    filled = frozenset(name for name, field in fields.items() if not field.is_required())
    by_name = {name: classes for name, hint in hints.items() if variables and (classes := _beyond_json(hint))}
    for name, classes in by_name.items():
        hints[name] = str | None if NoneType in get_args(hints[name]) else str
        told[name] = f"{told.get(name, '')} The name of a variable that is {any_of(classes)}.".strip()
        if name in filled:
            defaults[name] = fields[name].get_default(call_default_factory=True)
        elif _is_field(defaults[name]):
            defaults[name] = _REQUIRED
    model, parameters = _arguments_model(called, hints, defaults, told)
    parameters.pop("description", None)
    _tidy(parameters)
    parameters.setdefault("properties", {})
    parameters["additionalProperties"] = False
    description = "\n".join(part.strip() for part in (doc.short_description, doc.long_description) if part)
    return Signature(called, description, parameters, model, context, examples, by_name, filled)


def layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function. If it is a `functools.partial`, then also what it calls, from the outside in."""
    yield function
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
        yield function


def inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function or method that a call runs: inside `functools.partial`s; of an object, its `__call__`."""
    *_, last = layers(function)
    return last if hasattr(last, "__name__") else last.__call__


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, of the one inside a `functools.partial`, or of the class of an object."""
    *_, last = layers(function)
    return next((one.__name__ for one in layers(function) if hasattr(one, "__name__")), type(last).__name__)


def _docstring(function: Callable[..., Any]) -> str:
    """Return the docstring of what `name_of` names; an object without one for its `__call__` has that of its class."""
    for one in layers(function):
        if not isinstance(one, partial):
            own = inspect.getdoc(one) if hasattr(one, "__name__") else inside(one).__doc__ or inspect.getdoc(type(one))
            return inspect.cleandoc(own or "")
        if (own := one.__doc__) and own is not partial.__doc__:
            return inspect.cleandoc(own)
    return ""


def _flattened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `functools.partial` without the attributes of `update_wrapper`, which hide what it binds."""
    if not isinstance(function, partial):
        return function
    outer = cast("partial[Any]", function)
    return partial(_flattened(outer.func), *outer.args, **outer.keywords)


def split_examples(text: str) -> tuple[tuple[tuple[str, dict[str, Any]], ...], str]:
    """Return the `Example:` lines of a description, as questions and arguments, and the description without them.

    Raises ValueError, with the arguments, for a line that does not end in JSON.
    """
    examples: list[tuple[str, dict[str, Any]]] = []
    for match in _EXAMPLE.finditer(text):
        try:
            arguments = json.loads(match["arguments"])
        except ValueError:
            raise ValueError(match["arguments"]) from None
        examples.append((match["question"], arguments))
    return tuple(examples), _EXAMPLE.sub("", text)


_REQUIRED = inspect.Parameter.empty
"""The default of a parameter without one."""


def _field(hint: Any, default: Any) -> "FieldInfo":
    """Return what the hint of a parameter says, and its default if that is a `Field`; a plain one is not in it."""
    from pydantic.fields import FieldInfo

    if _is_field(default):
        return FieldInfo.from_annotated_attribute(hint, default)
    return FieldInfo.from_annotation(hint)


def _is_field(default: object) -> bool:
    """Return whether a default is a `Field` of pydantic or a `field` of a dataclass, and no value."""
    from pydantic.fields import FieldInfo

    return isinstance(default, FieldInfo | DataclassField)


def set_plain_defaults(function: Callable[..., Any]) -> None:
    """Give a function the values of its `Field`s as defaults, so that a call without them gets 3 and not a `Field`.

    Its signature shows the `Field`s as before. A default factory stays: one value for all calls would be shared.
    """
    signature = inspect.signature(function)
    given: tuple[Any, ...] = getattr(function, "__defaults__", None) or ()
    named: dict[str, Any] = getattr(function, "__kwdefaults__", None) or {}
    if not any(map(_is_field, (*given, *named.values()))):
        return
    target = cast("Any", function)
    target.__signature__ = signature
    target.__defaults__ = tuple(map(_plain, given)) or None
    target.__kwdefaults__ = {name: _plain(value) for name, value in named.items()} or None


def _plain(default: Any) -> Any:
    """Return the value in a `Field`, or the default itself if there is none in it."""
    from pydantic_core import PydanticUndefined

    value = default.default if _is_field(default) else default
    return default if any(value is none for none in (PydanticUndefined, MISSING, ...)) else value


def _arguments_model(
    function: str, hints: Mapping[str, Any], defaults: Mapping[str, Any], told: Mapping[str, str]
) -> "tuple[type[BaseModel], dict[str, Any]]":
    """Return the model of a function's arguments and its JSON Schema."""
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticUserError
    from pydantic.json_schema import PydanticJsonSchemaWarning

    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        own = _field(hint, defaults[name])
        # An alias keeps names that pydantic reserves ("model_config", "_x", "json") usable.
        alias: dict[str, Any] = {} if own.alias or own.validation_alias else {"alias": name}
        annotated = Annotated[hint, Field(description=told.get(name), **alias)]
        fields[f"arg_{name}"] = annotated if defaults[name] is _REQUIRED else (annotated, defaults[name])
    try:
        model = create_model(function, __config__=ConfigDict(extra="forbid"), **fields)
        with catch_warnings():  # a default that JSON cannot hold is left out
            simplefilter("ignore", PydanticJsonSchemaWarning)
            return model, model.model_json_schema(schema_generator=_untitled())
    except (PydanticUserError, TypeError) as error:
        misfits = [name for name, hint in hints.items() if not _fits_json(hint)]
        raise UsageError(_refusal(function, misfits, hints, error)) from None


@lru_cache(maxsize=1)
def _untitled() -> "type[GenerateJsonSchema]":
    """Return a writer of schemas that makes up no titles from the names of fields."""
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  (pydantic passes it)
            return False

    return Untitled


def _refusal(function: str, misfits: Sequence[str], hints: Mapping[str, Any], error: Exception) -> str:
    if not misfits:
        return f"{function} cannot be a tool: {str(error).splitlines()[0]}"
    name = misfits[0]
    return (
        f"{function} cannot be a tool: a model writes its arguments as JSON, which cannot carry "
        f"{name}: {inspect.formatannotation(hints[name])}. Let the model name what is meant, as in {name}: str, and "
        "look it up in the function, in a variable of the notebook or in ToolContext.deps; or take str, int, float, "
        "bool, list, dict, a dataclass or a pydantic model."
    )


def _beyond_json(hint: Any) -> tuple[type, ...]:
    """Return the classes of a hint if JSON can carry the values of none of them, else nothing."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    classes = tuple(get_origin(part) or part for part in parts if part is not NoneType)
    # Python's own types are too wide: for Callable or object, every function of the notebook would be offered.
    named = (isinstance(one, type) and one.__module__ not in _TOO_WIDE and not _fits_json(one) for one in classes)
    return classes if all(named) else ()


def any_of(classes: Iterable[type]) -> str:
    """Return classes as a model and a user read them: "a pandas.DataFrame or a polars.DataFrame"."""
    homes = ((one.__module__.partition(".")[0], one.__qualname__) for one in classes)
    names = [name if home == "__main__" else f"{home}.{name}" for home, name in homes]
    return " or ".join(f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}" for name in names)


def with_names(signature: Signature, names: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], str | None]:
    """Return the schema with the names that each parameter by name can take, and a required one without any."""
    schema = deepcopy(signature.parameters)
    for parameter, found in names.items():
        place = schema["properties"][parameter]
        required = parameter in schema.get("required", ())
        if not found and required and "anyOf" not in place:
            return schema, parameter
        if not found and not required:
            del schema["properties"][parameter]
        elif found:
            next(one for one in place.get("anyOf", (place,)) if one["type"] == "string")["enum"] = list(found)
        else:
            place["anyOf"] = [{"type": "null"}]
    return schema, None


def _fits_json(hint: Any) -> bool:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        TypeAdapter(hint).json_schema()
    except PydanticUserError as error:
        return error.code == "typed-dict-version"  # JSON can carry it; the error tells what to import
    except TypeError:
        return False
    return True


def _hints(function: Callable[..., Any], context_type: type) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return hints and defaults of the parameters that a model fills in, and the name of the one for the context.

    What a `functools.partial` binds is filled in already.
    """
    called, plain = name_of(function), _flattened(function)
    try:
        known = {name: readable(hint) for name, hint in get_type_hints(inside(function), include_extras=True).items()}
        parameters = dict(inspect.signature(plain).parameters)
    except NameError as error:
        message = f"{called} cannot be a tool: its annotations name {error.name!r}, which is not defined."
        raise UsageError(message) from None
    except (TypeError, ValueError) as error:  # of a wrong hint, or of a function that does not tell its parameters
        message = f"{called} cannot be a tool: {error} Write a function with type hints that calls it."
        raise UsageError(message) from None
    for bound in plain.keywords if isinstance(plain, partial) else ():
        parameters.pop(bound, None)  # `**options` of the function may have taken it
    hints = {name: known.get(name, Any) for name in parameters}
    context = next((name for name, hint in reversed(hints.items()) if hint is context_type), None)
    hints = {name: hint for name, hint in hints.items() if hint is not context_type}
    for parameter in map(parameters.__getitem__, hints):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            message = f"{called} cannot be a tool: a model cannot fill in {parameter}. Use named parameters."
            raise UsageError(message)
    return hints, {name: parameters[name].default for name in hints}, context


def readable(hint: Any, known: dict[Any, Any] | None = None) -> Any:
    """Return a hint as pydantic can read it, the hints inside it too.

    The words of `Annotated[str, "words"]` and of `Doc` become a description, and each `TypedDict` becomes one that
    pydantic takes: before Python 3.12 it refuses those of `typing`. `known` are the `TypedDict`s that were met before.
    Raises NameError if a `TypedDict` names what is not defined.
    """
    from pydantic import Field
    from typing_extensions import is_typeddict

    known = {} if known is None else known
    origin, parts = get_origin(hint), get_args(hint)
    if is_typeddict(origin or hint):
        return known[hint] if hint in known else _typed_dict(hint, known)
    if origin is None or origin is Literal:
        return hint
    if origin is not Annotated:
        inner = tuple(readable(part, known) for part in parts)
        changed = any(one is not part for one, part in zip(inner, parts, strict=True))
        return _subscripted(Union if origin is UnionType else origin, inner) if changed else hint
    words = [text for one in parts[1:] if (text := _words(one))]
    others = [one for one in parts[1:] if not _words(one)]
    described = (Field(description=" ".join(words)), *others) if words else others  # a `Field` after it says it better
    return _subscripted(Annotated, (readable(parts[0], known), *described)) if described else readable(parts[0], known)


def _subscripted(generic: Any, parts: tuple[Any, ...]) -> Any:
    return generic[parts[0] if len(parts) == 1 else parts]


def _words(metadata: object) -> str:
    """Return the words in the metadata of a hint: a text, or a `Doc`; "" for anything else."""
    text = metadata if isinstance(metadata, str) else getattr(metadata, "documentation", None)
    return text.strip() if isinstance(text, str) else ""


def _typed_dict(hint: Any, known: dict[Any, Any]) -> Any:
    """Return a `TypedDict` with the same keys, of the kind that pydantic takes on every Python."""
    from typing_extensions import TypedDict

    given = get_origin(hint) or hint
    values: dict[Any, Any] = dict(zip(getattr(given, "__parameters__", ()), get_args(hint), strict=False))
    made: Any = cast("Any", TypedDict)(given.__name__, {})
    known[hint] = made  # before its keys are read, because one of them may lead back to it
    for name in _OF_TYPED_DICTS:
        if hasattr(given, name):
            setattr(made, name, getattr(given, name))
    hints = get_type_hints(given, include_extras=True)
    made.__annotations__ = {name: readable(_bound(one, values), known) for name, one in hints.items()}
    return made


_OF_TYPED_DICTS = (
    *("__module__", "__qualname__", "__doc__", "__total__", "__required_keys__", "__optional_keys__"),
    *("__readonly_keys__", "__mutable_keys__", "__closed__", "__extra_items__", "__pydantic_config__"),
)


def _bound(hint: Any, values: Mapping[Any, Any]) -> Any:
    """Return a hint with its type variables replaced by their values."""
    if hint in values:
        return values[hint]
    variables = getattr(hint, "__parameters__", ())
    return hint[tuple(values.get(one, one) for one in variables)] if variables else hint


_TOO_WIDE = ("builtins", "collections.abc", "typing")


def _tidy(schema: dict[str, Any]) -> None:
    """Drop the titles of classes, which pydantic makes of their names, and defaults that are no JSON."""
    for described in (schema, *schema.get("$defs", {}).values()):
        described.pop("title", None)
    _drop_odd_defaults(schema)


def _drop_odd_defaults(schema: dict[str, Any]) -> None:
    if isinstance(default := schema.get("default"), float) and not math.isfinite(default):
        del schema["default"]
    for keyword, value in schema.items():
        for child in portable_schemas.subschemas(keyword, value):
            _drop_odd_defaults(child)


def arguments_for(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert JSON arguments to what the function's hints ask for.

    Raises ToolError, in a sentence for the model, if they cannot be converted.
    """
    from pydantic import ValidationError

    try:
        value = signature.model.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ToolError(f"The arguments of {signature.name} do not fit at {where}: {first['msg']}.") from None
    names = {name.removeprefix("arg_") for name in value.model_fields_set} | signature.filled
    return {name: getattr(value, f"arg_{name}") for name in names}


def problem(name: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return in a sentence how the arguments of a tool break its schema, or None if they fit."""
    wrong = misfit(parameters, dict(arguments))
    return wrong and f"The arguments of {name} do not fit its schema: {wrong}."


def misfit(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return how and where JSON data breaks a schema, '"x" is not of type "integer" (at size)', or None if it fits.

    Nothing fits a schema that cannot be used, of a tool that other code made for example.
    """
    try:
        validator = _validator(json.dumps(schema, sort_keys=True))
    except (ValueError, TypeError) as error:
        return f"it cannot be used: {_first_line(error)}"
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except UnicodeEncodeError:
        return "it holds a lone surrogate, half of a character"
    if error is None:
        return None
    where = ".".join(str(step) for step in error.instance_path)
    return f"{error.message[:500]}{f' (at {where})' if where else ''}"


def check_schema(name: str, parameters: Mapping[str, Any]) -> str | None:
    """Return in a sentence why a schema cannot be used, or None if it can."""
    try:
        _validator(json.dumps(parameters, sort_keys=True))
    except (ValueError, TypeError) as error:
        return f"The schema of {name} cannot be used: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]


@lru_cache(maxsize=1024)
def compiles(pattern: str) -> bool:
    """Return whether arguments can be checked against a regular expression; each is compiled once."""
    try:
        _compiled(json.dumps({"pattern": pattern}))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=512)
def _validator(parameters: str) -> Any:
    return _compiled(parameters)


def _compiled(parameters: str) -> Any:
    """Compile a schema; nothing is fetched for a `$ref`.

    A pattern may not backtrack for long, except in Pyodide, which has no wheel of `jsonschema-rs`.
    """
    schema = json.loads(parameters)
    if sys.platform == "emscripten":
        return portable_schemas.validator_for(schema, _no_network)
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        schema, retriever=_no_network, pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
    )


def _no_network(uri: str) -> Any:
    raise ValueError(f"it refers to {uri}, which is not fetched")
