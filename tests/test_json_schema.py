import enum
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest
from pydantic import BaseModel, Field, field_validator

from agentmagic import json_schema
from agentmagic.errors import ToolError, UsageError
from agentmagic.tools.base import ToolContext


def read(function):
    return json_schema.read_signature(function, ToolContext)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    title: str
    age: int

    @field_validator("age")
    @classmethod
    def check(cls, age):
        if age > 150:
            message = "nobody is that old"
            raise ValueError(message)
        return age


@dataclass
class Point:
    x: float
    y: float = 0.0


def test_hints_and_docstring_make_the_schema():
    def search(query: str, limit: int = 5, tags: list[str] | None = None):
        """Search the notes.

        It looks at titles too.

        Args:
            query: words to look for
            limit: how many notes at most

        Example: notes on cats -> {"query": "cats"}
        """

    told = read(search)
    assert told.name == "search"
    assert told.description == "Search the notes.\nIt looks at titles too."
    assert told.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "words to look for"},
            "limit": {"type": "integer", "default": 5, "description": "how many notes at most"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert told.examples == (("notes on cats", {"query": "cats"}),)


@pytest.mark.parametrize(
    ("hint", "written", "value"),
    [
        (int, 3, 3),
        (Literal["a", "b"], "b", "b"),
        (Colour, "red", Colour.RED),
        (date, "2026-01-31", date(2026, 1, 31)),
        (Point, {"x": 1.5}, Point(1.5)),
        (Person, {"title": "Dr", "age": 40}, Person(title="Dr", age=40)),
        (Optional[int], None, None),  # noqa: UP045  (people write it)
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (Annotated[int, Field(ge=1, le=9)], 9, 9),
        (Any, {"what": "ever"}, {"what": "ever"}),
    ],
)
def test_arguments_become_what_the_hints_ask_for(hint, written, value):
    def function(given): ...

    function.__annotations__ = {"given": hint}
    told = read(function)
    assert json_schema.problem("function", told.parameters, {"given": written}) is None
    assert json_schema.arguments_for(told, {"given": written}) == {"given": value}


def test_a_property_named_title_is_kept_and_made_up_titles_are_dropped():
    def greet(title: str, person: Person): ...

    told = read(greet).parameters
    assert told["properties"]["title"] == {"type": "string"}
    assert told["$defs"]["Person"]["properties"]["title"] == {"type": "string"}


def test_defaults_are_left_to_the_function():
    def function(a: int, b: int = 2): ...

    assert json_schema.arguments_for(read(function), {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("name", ["model_config", "_hidden", "json", "self", "copy"])
def test_names_that_pydantic_reserves_can_be_parameters(name):
    namespace = {}
    exec(f"def function({name}: int): ...", namespace)  # noqa: S102  (the name is the parameter of the test)
    told = read(namespace["function"])
    assert list(told.parameters["properties"]) == [name]
    assert json_schema.arguments_for(told, {name: 1}) == {name: 1}


def test_the_context_is_no_parameter_of_the_model():
    def function(a: int, ctx: ToolContext): ...

    told = read(function)
    assert told.context == "ctx"
    assert list(told.parameters["properties"]) == ["a"]


def starred(*numbers: int): ...
def keyed(**options: int): ...
def positional(a: int, /): ...
def unheard_of(a): ...
def strange(a): ...


unheard_of.__annotations__ = {"a": "NoSuchType"}
strange.__annotations__ = {"a": type("Odd", (), {})}


@pytest.mark.parametrize("function", [starred, keyed, positional, unheard_of, strange])
def test_a_parameter_no_model_can_fill_in_is_refused_with_the_function_s_name(function):
    with pytest.raises(UsageError, match=f"^{function.__name__} cannot be a tool: "):
        read(function)


class Table:
    pass


@pytest.mark.parametrize(
    ("hint", "written"),
    [
        (Table, "tests.test_json_schema.Table"),
        (io.BytesIO | None, "_io.BytesIO | None"),
        (list[io.StringIO], "list[_io.StringIO]"),
        (Callable[[int], int], "collections.abc.Callable[[int], int]"),
    ],
)
def test_a_parameter_that_json_cannot_carry_is_named_with_what_to_do(hint, written):
    def load(rows: int, table): ...

    load.__annotations__["table"] = hint
    with pytest.raises(UsageError) as refused:
        read(load)
    assert str(refused.value) == (
        "load cannot be a tool: a model writes its arguments as JSON, which cannot carry "
        f"table: {written}. Let the model name what is meant, as in table: str, and look it up in the function, in a "
        "variable of the notebook or in ToolContext.deps; or take str, int, float, bool, list, dict, a dataclass or a "
        "pydantic model."
    )


class Entry(TypedDict):
    name: str


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes the TypedDict of later Pythons")
def test_a_typed_dict_of_an_older_python_is_refused_with_the_one_to_import():
    def load(entry: Entry): ...

    with pytest.raises(UsageError, match=r"^load cannot be a tool: Please use `typing_extensions.TypedDict`"):
        json_schema.read_signature(load, ToolContext, variables=True)


@pytest.mark.parametrize("default", [float("nan"), object(), b"\xff"])
def test_a_default_that_json_cannot_hold_is_left_to_the_function(default):
    def function(a: Any = default): ...

    assert "default" not in read(function).parameters["properties"]["a"]


def test_an_example_that_is_no_json_is_refused():
    def function(a: int):
        """Do it.

        Example: do it -> {a: 1}
        """

    with pytest.raises(UsageError, match="Example line of function does not end in JSON"):
        read(function)


def test_what_only_pydantic_can_see_is_said_in_one_sentence():
    def greet(person: Person): ...

    with pytest.raises(ToolError) as caught:
        json_schema.arguments_for(read(greet), {"person": {"title": "Dr", "age": 200}})
    assert str(caught.value) == ("The arguments of greet do not fit at person.age: Value error, nobody is that old.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, '"a" is a required property'),
        ({"a": "1"}, "(at a)"),
        ({"a": 1, "b": 2}, "Additional properties"),
        ({"a": "x" * 100_000}, "do not fit"),
    ],
)
def test_arguments_that_do_not_fit_are_described_in_a_sentence(arguments, words):
    def function(a: int): ...

    said = json_schema.problem("function", read(function).parameters, arguments)
    assert said is not None
    assert words in said
    assert "\n" not in said
    assert len(said) < 700


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {"type": "no such type"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"$ref": "https://example.org/schema.json"},
        {"type": object()},
    ],
)
def test_a_schema_that_cannot_be_used_is_described_in_a_sentence(parameters):
    said = json_schema.check_schema("odd", parameters)
    assert said is not None
    assert said.startswith("The schema of odd cannot be used: ")
    assert "\n" not in said


def test_an_ordinary_schema_has_no_fault():
    assert (
        json_schema.check_schema("add", {"type": "object", "properties": {"a": {"type": ["integer", "null"]}}}) is None
    )


@pytest.mark.parametrize("arguments", [{"size": "\ud800"}, {"\ud800": 1}])
def test_a_lone_surrogate_does_not_fit(arguments):
    schema = {"additionalProperties": {"type": "integer", "minimum": 2}}
    assert json_schema.misfit(schema, arguments) == "it holds a lone surrogate, half of a character"
