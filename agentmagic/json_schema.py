"""Makes JSON Schemas from the signatures of Python functions, and checks the arguments of tool calls."""

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
    """A function's description as a tool, read from its signature and docstring.

    `parameters` is a JSON Schema; `model` is a pydantic model that validates and converts arguments. `context` is the
    name of the parameter for the `ToolContext`, if there is one. `examples` are (question, arguments) pairs. `by_name`
    has the parameters for which the model gives the name of a notebook variable, each with the classes that the
    variable's value may have. `defaulted` are the parameters with a default inside a pydantic `Field`. Python does not
    apply such a default, so it must be passed in each call.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    model: "type[BaseModel]"
    context: str | None
    examples: tuple[tuple[str, dict[str, Any]], ...]
    by_name: Mapping[str, tuple[type, ...]]
    defaulted: frozenset[str] = frozenset()


def read_signature(function: Callable[..., Any], context_type: type, *, variables: bool = False) -> Signature:
    """Return a function's description as a tool, made from its type hints and docstring.

    A parameter's description in a hint or a `Field` overrides that in the docstring. With `variables`, the model gives
    the name of a notebook variable for a parameter of a class that JSON cannot represent. Raises UsageError for a
    parameter that cannot be described to a model.
    """
    from docstring_parser import parse

    function_name = name_of(function)
    try:
        examples, prose = split_examples(_docstring(function))
    except ValueError as error:
        message = f"The Example line of {function_name} does not end in JSON: {error}"
        raise UsageError(message) from None
    doc = parse(prose)
    descriptions = {entry.arg_name: (entry.description or "").strip() for entry in doc.params}
    hints, defaults, context = _hints(function, context_type)
    fields = {name: _field(hint, defaults[name]) for name, hint in hints.items()}
    descriptions |= {name: field.description for name, field in fields.items() if field.description}
    with_default = frozenset(name for name, field in fields.items() if not field.is_required())
    by_name = {name: classes for name, hint in hints.items() if variables and (classes := _beyond_json(hint))}
    for name, classes in by_name.items():
        hints[name] = str | None if NoneType in get_args(hints[name]) else str
        descriptions[name] = f"{descriptions.get(name, '')} The name of a variable that is {any_of(classes)}.".strip()
        if name in with_default:
            defaults[name] = fields[name].get_default(call_default_factory=True)
        elif _is_field(defaults[name]):
            defaults[name] = _REQUIRED
    model, parameters = _arguments_model(function_name, hints, defaults, descriptions)
    parameters.pop("description", None)
    for definition in (parameters, *parameters.get("$defs", {}).values()):
        definition.pop("title", None)  # pydantic makes it of the name of a class
    parameters.setdefault("properties", {})
    parameters["additionalProperties"] = False
    description = "\n".join(part.strip() for part in (doc.short_description, doc.long_description) if part)
    return Signature(function_name, description, parameters, model, context, examples, by_name, with_default)


def layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the function and, if it is a `functools.partial`, each function inside it, from the outside in."""
    yield function
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
        yield function


def innermost_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a call finally runs: the function inside all `functools.partial`s, or the `__call__` of an object."""
    *_, last = layers(function)
    return last if hasattr(last, "__name__") else last.__call__


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, of the function inside a `functools.partial`, or of a callable object's class."""
    *_, last = layers(function)
    return next((one.__name__ for one in layers(function) if hasattr(one, "__name__")), type(last).__name__)


def _docstring(function: Callable[..., Any]) -> str:
    """Return the docstring of a function, or of the function inside a `functools.partial`.

    If the partial itself was given a docstring, that is returned. For a callable object, it is the docstring of its
    `__call__`, else of its class.
    """
    for one in layers(function):
        if not isinstance(one, partial):
            own = (
                inspect.getdoc(one)
                if hasattr(one, "__name__")
                else innermost_function(one).__doc__ or inspect.getdoc(type(one))
            )
            return inspect.cleandoc(own or "")
        if (own := one.__doc__) and own is not partial.__doc__:
            return inspect.cleandoc(own)
    return ""


def _flatten_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `functools.partial` without the attributes that `functools.update_wrapper` has added to it.

    With these attributes, `inspect.signature` would ignore the arguments that the partial binds.
    """
    if not isinstance(function, partial):
        return function
    outer = cast("partial[Any]", function)
    return partial(_flatten_partial(outer.func), *outer.args, **outer.keywords)


def split_examples(text: str) -> tuple[tuple[tuple[str, dict[str, Any]], ...], str]:
    """Return the (question, arguments) pairs in a docstring's `Example:` lines, and the docstring without these lines.

    Raises ValueError if the arguments are not valid JSON. The message of the error is the text of the arguments.
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
"""Marks a parameter without a default."""


def _field(hint: Any, default: Any) -> "FieldInfo":
    """Return a pydantic field made from a parameter's type hint, and from its default if that is a `Field`."""
    from pydantic.fields import FieldInfo

    if _is_field(default):
        return FieldInfo.from_annotated_attribute(hint, default)
    return FieldInfo.from_annotation(hint)


def _is_field(default: object) -> bool:
    """Return whether a default is a pydantic `Field` or a dataclass `field`, instead of a plain value."""
    from pydantic.fields import FieldInfo

    return isinstance(default, FieldInfo | DataclassField)


def set_plain_defaults(function: Callable[..., Any]) -> None:
    """Replace each `Field` default of a function by its value, so that a direct call gets 3 and not a `Field(3)`.

    The function's signature still shows the `Field`s. A `Field` with a default factory stays as it is: otherwise all
    calls would share one value.
    """
    signature = inspect.signature(function)
    positional: tuple[Any, ...] = getattr(function, "__defaults__", None) or ()
    keyword_only: dict[str, Any] = getattr(function, "__kwdefaults__", None) or {}
    if not any(map(_is_field, (*positional, *keyword_only.values()))):
        return
    target = cast("Any", function)
    target.__signature__ = signature
    target.__defaults__ = tuple(map(_plain, positional)) or None
    target.__kwdefaults__ = {name: _plain(value) for name, value in keyword_only.items()} or None


def _plain(default: Any) -> Any:
    """Return the default value inside a `Field`. A plain value, or a `Field` without a default, is returned as is."""
    from pydantic_core import PydanticUndefined

    value = default.default if _is_field(default) else default
    return default if any(value is none for none in (PydanticUndefined, MISSING, ...)) else value


def _arguments_model(
    function: str, hints: Mapping[str, Any], defaults: Mapping[str, Any], descriptions: Mapping[str, str]
) -> "tuple[type[BaseModel], dict[str, Any]]":
    """Return a pydantic model of a function's arguments, and the model's JSON Schema."""
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticUserError
    from pydantic.json_schema import PydanticJsonSchemaWarning

    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        own = _field(hint, defaults[name])
        # With an alias, a parameter can have a name that pydantic reserves ("model_config", "_x", "json").
        alias: dict[str, Any] = {} if own.alias or own.validation_alias else {"alias": name}
        hint_with_field = Annotated[hint, Field(description=descriptions.get(name), **alias)]
        fields[f"arg_{name}"] = hint_with_field if defaults[name] is _REQUIRED else (hint_with_field, defaults[name])
    try:
        model = create_model(function, __config__=ConfigDict(extra="forbid"), **fields)
        with catch_warnings():  # pydantic warns of each default that JSON cannot represent, and omits it
            simplefilter("ignore", PydanticJsonSchemaWarning)
            return model, model.model_json_schema(schema_generator=_title_free_generator())
    except (PydanticUserError, TypeError) as error:
        misfits = [name for name, hint in hints.items() if not _fits_json(hint)]
        raise UsageError(_refusal(function, misfits, hints, error)) from None


@lru_cache(maxsize=1)
def _title_free_generator() -> "type[GenerateJsonSchema]":
    """Return a pydantic schema generator that adds no titles made from field names."""
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import PydanticSerializationError

    class Untitled(GenerateJsonSchema):
        def encode_default(self, dft: Any) -> Any:
            if isinstance(dft, float) and not math.isfinite(dft):  # JSON has no such number
                raise PydanticSerializationError(str(dft))
            try:
                return super().encode_default(dft)
            except UnicodeDecodeError as error:  # bytes that are no text; pydantic 2.14 omits such a default itself
                raise PydanticSerializationError(str(error)) from None

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
    """Return the classes in a type hint, such as `DataFrame`, if JSON can represent none of them, or else ()."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    classes = tuple(get_origin(part) or part for part in parts if part is not NoneType)
    # Types of the modules in `_TOO_WIDE` are left out, since too many variables fit: all functions are Callable.
    checks = (isinstance(one, type) and one.__module__ not in _TOO_WIDE and not _fits_json(one) for one in classes)
    return classes if all(checks) else ()


def any_of(classes: Iterable[type]) -> str:
    """Return the names of classes for a model or a user: "a pandas.DataFrame or a polars.DataFrame"."""
    homes = ((one.__module__.partition(".")[0], one.__qualname__) for one in classes)
    names = [name if home == "__main__" else f"{home}.{name}" for home, name in homes]
    return " or ".join(f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}" for name in names)


def with_names(signature: Signature, names: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], str | None]:
    """Return the tool's JSON Schema, in which each parameter of `names` accepts only the variable names given for it.

    The second value is a required parameter for which there is no variable, or None. An optional parameter without a
    variable is left out of the schema, or can only be null.
    """
    schema = deepcopy(signature.parameters)
    for parameter, variables in names.items():
        place = schema["properties"][parameter]
        is_required = parameter in schema.get("required", ())
        if not variables and is_required and "anyOf" not in place:
            return schema, parameter
        if not variables and not is_required:
            del schema["properties"][parameter]
        elif variables:
            next(one for one in place.get("anyOf", (place,)) if one["type"] == "string")["enum"] = list(variables)
        else:
            place["anyOf"] = [{"type": "null"}]
    return schema, None


def _fits_json(hint: Any) -> bool:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        TypeAdapter(hint).json_schema()
    except PydanticUserError as error:
        return error.code == "typed-dict-version"  # True: it fits JSON, and a later error says what to import instead
    except TypeError:
        return False
    return True


def _hints(function: Callable[..., Any], context_type: type) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return the hints and the defaults of the parameters that a model fills in, and the name of the context parameter.

    Parameters that a `functools.partial` binds are left out.
    """
    function_name, plain = name_of(function), _flatten_partial(function)
    try:
        all_hints = {
            name: readable(hint)
            for name, hint in get_type_hints(innermost_function(function), include_extras=True).items()
        }
        parameters = dict(inspect.signature(plain).parameters)
    except NameError as error:
        message = f"{function_name} cannot be a tool: its annotations name {error.name!r}, which is not defined."
        raise UsageError(message) from None
    except (TypeError, ValueError) as error:  # an invalid hint, or a function whose signature cannot be read
        message = f"{function_name} cannot be a tool: {error} Write a function with type hints that calls it."
        raise UsageError(message) from None
    for keyword in plain.keywords if isinstance(plain, partial) else ():
        parameters.pop(keyword, None)  # a keyword that goes to `**options` is not in `parameters`
    hints = {name: all_hints.get(name, Any) for name in parameters}
    context = next((name for name, hint in reversed(hints.items()) if hint is context_type), None)
    hints = {name: hint for name, hint in hints.items() if hint is not context_type}
    for parameter in map(parameters.__getitem__, hints):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            message = f"{function_name} cannot be a tool: a model cannot fill in {parameter}. Use named parameters."
            raise UsageError(message)
    return hints, {name: parameters[name].default for name in hints}, context


def readable(hint: Any, copies: dict[Any, Any] | None = None) -> Any:
    """Return a type hint, and all hints inside it, in a form that pydantic accepts.

    The text in `Annotated[str, "text"]` or in a `Doc` becomes a description. Each `TypedDict` is replaced by a copy,
    because before Python 3.12 pydantic refuses the `TypedDict` of `typing`; `copies` has the copies made so far. Raises
    NameError if a `TypedDict` has a hint with an undefined name.
    """
    from pydantic import Field
    from typing_extensions import is_typeddict

    copies = {} if copies is None else copies
    origin, parts = get_origin(hint), get_args(hint)
    if is_typeddict(origin or hint):
        return copies[hint] if hint in copies else _typed_dict(hint, copies)
    if origin is None or origin is Literal:
        return hint
    if origin is not Annotated:
        inner = tuple(readable(part, copies) for part in parts)
        is_changed = any(one is not part for one, part in zip(inner, parts, strict=True))
        return _subscript(Union if origin is UnionType else origin, inner) if is_changed else hint
    texts = [text for one in parts[1:] if (text := _description_in(one))]
    others = [one for one in parts[1:] if not _description_in(one)]
    # The `Field` with the description stands first, because a later `Field`, of the user, overrides it.
    metadata = (Field(description=" ".join(texts)), *others) if texts else others
    return _subscript(Annotated, (readable(parts[0], copies), *metadata)) if metadata else readable(parts[0], copies)


def _subscript(generic: Any, parts: tuple[Any, ...]) -> Any:
    return generic[parts[0] if len(parts) == 1 else parts]


def _description_in(metadata: object) -> str:
    """Return the description in one metadata item of `Annotated`: a string or a `Doc`, "" for anything else."""
    text = metadata if isinstance(metadata, str) else getattr(metadata, "documentation", None)
    return text.strip() if isinstance(text, str) else ""


def _typed_dict(hint: Any, copies: dict[Any, Any]) -> Any:
    """Return a copy of a `TypedDict` made with `typing_extensions`, which pydantic accepts on every Python."""
    from typing_extensions import TypedDict

    original = get_origin(hint) or hint
    values: dict[Any, Any] = dict(zip(getattr(original, "__parameters__", ()), get_args(hint), strict=False))
    copy: Any = cast("Any", TypedDict)(original.__name__, {})
    copies[hint] = copy  # stored before its keys are read, since the type of a key may be this same `TypedDict`
    for name in _OF_TYPED_DICTS:
        if hasattr(original, name):
            setattr(copy, name, getattr(original, name))
    hints = get_type_hints(original, include_extras=True)
    copy.__annotations__ = {name: readable(_substitute(one, values), copies) for name, one in hints.items()}
    return copy


_OF_TYPED_DICTS = (
    *("__module__", "__qualname__", "__doc__", "__total__", "__required_keys__", "__optional_keys__"),
    *("__readonly_keys__", "__mutable_keys__", "__closed__", "__extra_items__", "__pydantic_config__"),
)


def _substitute(hint: Any, values: Mapping[Any, Any]) -> Any:
    """Return a type hint in which type variables, such as T, are replaced by the types that `values` has for them."""
    if hint in values:
        return values[hint]
    variables = getattr(hint, "__parameters__", ())
    return hint[tuple(values.get(one, one) for one in variables)] if variables else hint


_TOO_WIDE = ("builtins", "collections.abc", "typing")


def arguments_for(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a tool call's JSON arguments to the types in the function's type hints.

    Raises ToolError, whose message is for the model, if they cannot be converted.
    """
    from pydantic import ValidationError

    try:
        value = signature.model.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ToolError(f"The arguments of {signature.name} do not fit at {where}: {first['msg']}.") from None
    names = {name.removeprefix("arg_") for name in value.model_fields_set} | signature.defaulted
    return {name: getattr(value, f"arg_{name}") for name in names}


def problem(name: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return a sentence on how the arguments of a tool call violate its schema, or None if they fit."""
    wrong = misfit(parameters, dict(arguments))
    return wrong and f"The arguments of {name} do not fit its schema: {wrong}."


def misfit(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return how JSON data violates a schema, such as '"x" is not of type "integer" (at size)', or None if it fits.

    If the schema itself is invalid, which is possible for a tool from other code, no data fits.
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
    """Return a sentence on why a tool's schema cannot be used, or None if it can."""
    try:
        _validator(json.dumps(parameters, sort_keys=True))
    except (ValueError, TypeError) as error:
        return f"The schema of {name} cannot be used: {_first_line(error)}"
    return None


def is_schema(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema has the form of JSON Schema 2020-12. Its references and patterns are not checked."""
    import jsonschema_rs

    return jsonschema_rs.meta.is_valid(dict(schema))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]


@lru_cache(maxsize=1024)
def compiles(pattern: str) -> bool:
    """Return whether the library for JSON Schema can use a regular expression. Results are cached."""
    try:
        _compile(json.dumps({"pattern": pattern}))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=512)
def _validator(parameters: str) -> Any:
    return _compile(parameters)


def _compile(parameters: str) -> Any:
    """Return a validator for a JSON Schema. A `$ref` to a URL is an error, since nothing is fetched.

    The backtracking of regular expressions is limited, except in Pyodide, where `jsonschema-rs` does not exist.
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
