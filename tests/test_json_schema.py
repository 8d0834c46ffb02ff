import enum
import io
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NotRequired, Optional, Required, TypedDict, TypeVar

import pytest
from pydantic import AfterValidator, AliasChoices, BaseModel, Field, field_validator
from typing_extensions import Doc

from agentmagic import json_schema
from agentmagic.errors import ToolError, UsageError
from agentmagic.tools.base import ToolContext


def read(function):
    return json_schema.read_signature(function, ToolContext)


def taking(hint, *default, about=""):
    """What is read of a function of one parameter, a."""

    def function(a): ...

    function.__annotations__, function.__defaults__, function.__doc__ = {"a": hint}, default, about
    return read(function)


def even(value):
    if value % 2:
        message = "it is odd"
        raise ValueError(message)
    return value


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    title: str
    age: int
    check = field_validator("age")(even)


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
    with pytest.raises(UsageError, match="Example line of function does not end in JSON"):
        taking(int, about="Example: do it -> {a: 1}")


class Entry(TypedDict):
    name: Annotated[str, "what it is called"]


class Sized(Entry, total=False):
    size: int
    unit: Required[str]


class Tree(TypedDict):
    leaf: NotRequired["Sized"]
    children: "list[Tree]"


T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    items: list[T]


@pytest.mark.parametrize(
    ("hint", "written", "value", "misfit"),
    [
        (Literal["a", "b"], "b", "b", "c"),
        (Colour, "red", Colour.RED, "green"),
        (Point, {"x": 1.5}, Point(1.5), {"y": 1}),
        (Person, {"title": "Dr", "age": 40}, Person(title="Dr", age=40), {"age": 40}),
        (Optional[int], None, None, "1"),  # noqa: UP045  (people write it)
        (list[Entry], [{"name": "a"}], [{"name": "a"}], [{"name": 7}]),
        (dict[str, Entry] | None, {"x": {"name": "a"}}, {"x": {"name": "a"}}, {"x": {}}),
        (Sized, {"name": "a", "unit": "m"}, {"name": "a", "unit": "m"}, {"name": "a", "size": 1}),
        (Tree, *[{"children": [{"leaf": {"name": "a", "unit": "m"}, "children": []}]}] * 2, {"children": [{}]}),
        (Page[int], {"items": [1]}, {"items": [1]}, {"items": ["a"]}),
    ],
    ids=str,
)
def test_arguments_become_what_the_hints_ask_for_also_a_typed_dict_of_any_python(hint, written, value, misfit):
    told = taking(hint)
    assert json_schema.problem("function", told.parameters, {"a": written}) is None
    assert json_schema.arguments_for(told, {"a": written}) == {"a": value}
    assert json_schema.problem("function", told.parameters, {"a": misfit})
    if hint == list[Entry]:
        name = told.parameters["$defs"]["Entry"]["properties"]["name"]
        assert name == {"type": "string", "description": "what it is called"}


def test_a_property_may_have_the_name_of_a_keyword_and_made_up_titles_are_dropped():
    def greet(title: str, properties: dict, person: Person): ...

    told = read(greet).parameters
    assert set(told["properties"]) == {"title", "properties", "person"}
    assert told["properties"]["title"] == {"type": "string"}
    assert told["$defs"]["Person"]["properties"]["title"] == {"type": "string"}


def test_names_that_pydantic_reserves_can_be_parameters():
    def function(model_config: int, _hidden: int, json: int, self: int): ...

    names = ["model_config", "_hidden", "json", "self"]
    assert list(read(function).parameters["properties"]) == names
    assert json_schema.arguments_for(read(function), dict.fromkeys(names, 1)) == dict.fromkeys(names, 1)


def test_the_context_is_no_parameter_of_the_model_and_defaults_are_left_to_the_function():
    def function(a: int, ctx: ToolContext, b: int = 2): ...

    told = read(function)
    assert told.context == "ctx"
    assert list(told.parameters["properties"]) == ["a", "b"]
    assert json_schema.arguments_for(told, {"a": 1}) == {"a": 1}
    for default in (float("nan"), object(), b"\xff"):  # which JSON cannot hold
        assert "default" not in taking(Any, default).parameters["properties"]["a"]


def starred(*numbers: int): ...
def keyed(**options: int): ...
def positional(a: int, /): ...
def unheard_of(a: "NoSuchType"): ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@pytest.mark.parametrize("function", [starred, keyed, positional, unheard_of])
def test_a_parameter_no_model_can_fill_in_is_refused_with_the_function_s_name(function):
    with pytest.raises(UsageError, match=f"^{function.__name__} cannot be a tool: "):
        read(function)


def test_a_parameter_that_json_cannot_carry_is_named_with_what_to_do():
    with pytest.raises(UsageError) as refused:
        taking(io.BytesIO | None)
    assert str(refused.value) == (
        "function cannot be a tool: a model writes its arguments as JSON, which cannot carry a: _io.BytesIO | None. "
        "Let the model name what is meant, as in a: str, and look it up in the function, in a variable of the notebook "
        "or in ToolContext.deps; or take str, int, float, bool, list, dict, a dataclass or a pydantic model."
    )


SAID = "Do it.\n\nArgs:\n    a: from the docstring\n"


@pytest.mark.parametrize(
    ("told", "written"),
    [
        (taking(Annotated[int, "how many"]), {"description": "how many"}),
        (taking(Annotated[int, Doc("how many")]), {"description": "how many"}),
        (taking(Annotated[int, "how", "many", Field(gt=0)]), {"description": "how many", "exclusiveMinimum": 0}),
        (taking(Annotated[int, Field(description="how many")], about=SAID), {"description": "how many"}),
        (
            taking(Annotated[int, Field(ge=1)], Field(2), about=SAID),
            {"description": "from the docstring", "minimum": 1, "default": 2},
        ),
        (
            taking(Annotated[int, Field(description="far")], Field(description="near", title="A year")),
            {"description": "near", "title": "A year"},
        ),
    ],
)
def test_words_reach_the_schema_wherever_they_stand(told, written):
    assert told.parameters["properties"]["a"] == {"type": "integer", **written}


def test_words_inside_a_type_stay_where_they_stand():
    (cities,) = taking(list[Annotated[str, "a city"]]).parameters["properties"].values()
    assert cities == {"type": "array", "items": {"type": "string", "description": "a city"}}
    (year,) = taking(Optional[Annotated[int, "a year"]]).parameters["properties"].values()  # noqa: UP045
    assert {"type": "integer", "description": "a year"} in year["anyOf"]


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (taking(int, Field(alias="count")), "count"),
        (taking(int, Field(validation_alias=AliasChoices("count", "number"))), "count"),
        (taking(int, Field(..., le=9)), "a"),
        (taking(Annotated[int, AfterValidator(even)]), "a"),
    ],
    ids=["aliased", "renamed", "required", "checked"],
)
def test_what_a_field_asks_for_is_asked_of_the_model(told, name):
    assert told.parameters["required"] == [name]
    assert json_schema.arguments_for(told, {name: 8}) == {"a": 8}
    with pytest.raises(ToolError, match="do not fit"):
        json_schema.arguments_for(told, {name: 11} if name == "a" else {"other": 8})


@pytest.mark.parametrize(
    "told",
    [
        taking(int, Field(3)),
        taking(Annotated[int, Field(default=3)]),
        taking(int, Field(default_factory=lambda: 3)),
        taking(int, Field(3, alias="count")),
        taking(int, field(default=3)),
    ],
    ids=["a default", "of the hint", "a factory", "by another name", "of a dataclass"],
)
def test_the_function_gets_the_value_of_a_field_and_not_the_field(told):
    assert "required" not in told.parameters
    assert json_schema.arguments_for(told, {}) == {"a": 3}


def test_a_default_factory_makes_a_fresh_value_for_each_call():
    for default in (Field(default_factory=list), Field([], max_length=2)):
        told = taking(list[int], default)
        first, second = (json_schema.arguments_for(told, {})["a"] for _ in range(2))
        assert first == second == []
        assert first is not second


def test_what_only_pydantic_can_see_is_said_in_one_sentence():
    with pytest.raises(ToolError, match=r"^The arguments of function do not fit at a.age: Value error, it is odd.*\.$"):
        json_schema.arguments_for(taking(Person), {"a": {"title": "Dr", "age": 201}})


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
    said = json_schema.problem("function", taking(int).parameters, arguments)
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
    assert json_schema.check_schema("even", {"properties": {"a": {"type": ["integer", "null"]}}}) is None
    assert json_schema.misfit(parameters, {}).startswith("it cannot be used: ")


@pytest.mark.parametrize("arguments", [{"size": "\ud800"}, {"\ud800": 1}])
def test_a_lone_surrogate_does_not_fit(arguments):
    schema = {"additionalProperties": {"type": "integer", "minimum": 2}}
    assert json_schema.misfit(schema, arguments) == "it holds a lone surrogate, half of a character"
