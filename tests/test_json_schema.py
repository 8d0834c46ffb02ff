import enum
import io
from collections.abc import Callable
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
        (Literal["a", "b"], "b", "b"),
        (Colour, "red", Colour.RED),
        (Point, {"x": 1.5}, Point(1.5)),
        (Person, {"title": "Dr", "age": 40}, Person(title="Dr", age=40)),
        (Optional[int], None, None),  # noqa: UP045  (people write it)
        (Any, {"what": "ever"}, {"what": "ever"}),
    ],
)
def test_arguments_become_what_the_hints_ask_for(hint, written, value):
    def function(given): ...

    function.__annotations__ = {"given": hint}
    told = read(function)
    assert json_schema.problem("function", told.parameters, {"given": written}) is None
    assert json_schema.arguments_for(told, {"given": written}) == {"given": value}


def test_a_property_may_have_the_name_of_a_keyword_and_made_up_titles_are_dropped():
    def greet(title: str, properties: dict, person: Person): ...

    told = read(greet).parameters
    assert set(told["properties"]) == {"title", "properties", "person"}
    assert told["properties"]["title"] == {"type": "string"}
    assert told["$defs"]["Person"]["properties"]["title"] == {"type": "string"}


@pytest.mark.parametrize("name", ["model_config", "_hidden", "json", "self"])
def test_names_that_pydantic_reserves_can_be_parameters(name):
    namespace = {}
    exec(f"def function({name}: int): ...", namespace)  # noqa: S102  (the name is the parameter of the test)
    told = read(namespace["function"])
    assert list(told.parameters["properties"]) == [name]
    assert json_schema.arguments_for(told, {name: 1}) == {name: 1}


def test_the_context_is_no_parameter_of_the_model_and_defaults_are_left_to_the_function():
    def function(a: int, ctx: ToolContext, b: int = 2): ...

    told = read(function)
    assert told.context == "ctx"
    assert list(told.parameters["properties"]) == ["a", "b"]
    assert json_schema.arguments_for(told, {"a": 1}) == {"a": 1}


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


def property_of(function, name):
    return read(function).parameters["properties"][name]


def words_alone(a: Annotated[int, "how many"]): ...
def words_of_a_doc(a: Annotated[int, Doc("how many")]): ...
def words_beside_a_check(a: Annotated[int, "how", "many", Field(gt=0)]): ...


def words_above_those_of_the_docstring(a: Annotated[int, Field(description="how many")]):
    """Do it.

    Args:
        a: from the docstring
    """


def words_of_the_docstring(a: Annotated[int, Field(ge=1)] = Field(2)):
    """Do it.

    Args:
        a: how many
    """


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (words_alone, {}),
        (words_of_a_doc, {}),
        (words_beside_a_check, {"exclusiveMinimum": 0}),
        (words_above_those_of_the_docstring, {}),
        (words_of_the_docstring, {"minimum": 1, "default": 2}),
    ],
)
def test_words_reach_the_schema_wherever_they_stand(function, more):
    words = "how many"
    assert property_of(function, "a") == {"type": "integer", "description": words, **more}


def test_words_inside_a_type_stay_where_they_stand_and_those_of_a_default_count_more():
    def function(
        a: list[Annotated[str, "a city"]],
        b: Annotated[int, "a year"] | None = None,
        c: Annotated[int, Field(description="far")] = Field(description="near", title="A year"),
    ): ...

    assert property_of(function, "a") == {"type": "array", "items": {"type": "string", "description": "a city"}}
    assert {"type": "integer", "description": "a year"} in property_of(function, "b")["anyOf"]
    assert property_of(function, "c") == {"type": "integer", "description": "near", "title": "A year"}


def even(value):
    if value % 2:
        message = "it is odd"
        raise ValueError(message)
    return value


def aliased(a: int = Field(alias="count")): ...
def renamed(a: int = Field(validation_alias=AliasChoices("count", "number"))): ...
def required(a: int = Field(...)): ...
def checked(a: Annotated[int, AfterValidator(even)]): ...
def named_only(*, a: int = Field(le=9)): ...


@pytest.mark.parametrize("function", [aliased, renamed, required, checked, named_only])
def test_what_a_field_asks_for_is_asked_of_the_model(function):
    told = read(function)
    (name,) = told.parameters["required"]
    assert name == ("count" if function in (aliased, renamed) else "a")
    assert json_schema.arguments_for(told, {name: 8}) == {"a": 8}
    with pytest.raises(
        ToolError, match=r"checked do not fit at a: .*it is odd" if function is checked else "do not fit"
    ):
        json_schema.arguments_for(told, {"a": 3} if function is checked else {"other": 8})


def a_default(a: int = Field(3)): ...
def a_default_of_the_hint(a: Annotated[int, Field(default=3)]): ...
def a_factory(a: int = Field(default_factory=lambda: 3)): ...
def a_default_by_another_name(a: int = Field(3, alias="count")): ...
def a_field_of_a_dataclass(a: int = field(default=3)): ...


@pytest.mark.parametrize(
    "function",
    [a_default, a_default_of_the_hint, a_factory, a_default_by_another_name, a_field_of_a_dataclass],
)
def test_the_function_gets_the_value_of_a_field_and_not_the_field(function):
    told = read(function)
    assert "required" not in told.parameters
    assert json_schema.arguments_for(told, {}) == {"a": 3}


def test_a_default_factory_makes_a_fresh_value_for_each_call():
    def function(a: list[int] = Field(default_factory=list), b: list[int] = Field([], max_length=2)): ...

    told = read(function)
    first, second = (json_schema.arguments_for(told, {}) for _ in range(2))
    assert first == second == {"a": [], "b": []}
    assert first["a"] is not second["a"]
    assert first["b"] is not second["b"]


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
    ("hint", "fits", "misfits"),
    [
        (list[Entry], [{"name": "a"}], [{"name": 7}]),
        (dict[str, Entry] | None, {"x": {"name": "a"}}, {"x": {}}),
        (Sized, {"name": "a", "unit": "m"}, {"name": "a", "size": 1}),
        (Tree, {"children": [{"leaf": {"name": "a", "unit": "m"}, "children": []}]}, {"children": [{}]}),
        (Page[int], {"items": [1]}, {"items": ["a"]}),
    ],
    ids=str,
)
def test_a_typed_dict_of_any_python_is_taken(hint, fits, misfits):
    def load(entry): ...

    load.__annotations__ = {"entry": hint}
    told = read(load)
    assert json_schema.problem("load", told.parameters, {"entry": fits}) is None
    assert json_schema.arguments_for(told, {"entry": fits}) == {"entry": fits}
    assert json_schema.problem("load", told.parameters, {"entry": misfits})
    if hint == list[Entry]:
        name = told.parameters["$defs"]["Entry"]["properties"]["name"]
        assert name == {"type": "string", "description": "what it is called"}


@pytest.mark.parametrize("default", [float("nan"), object(), b"\xff"])
def test_a_default_that_json_cannot_hold_is_left_to_the_function(default):
    def function(a: Any = default): ...

    assert "default" not in read(function).parameters["properties"]["a"]


def test_an_example_that_is_no_json_is_refused():
    def function(a: int):
        """Example: do it -> {a: 1}"""

    with pytest.raises(UsageError, match="Example line of function does not end in JSON"):
        read(function)


def test_what_only_pydantic_can_see_is_said_in_one_sentence():
    def greet(person: Person): ...

    with pytest.raises(ToolError, match=r"^The arguments of greet do not fit at person.age: Value error, nobody .*\.$"):
        json_schema.arguments_for(read(greet), {"person": {"title": "Dr", "age": 200}})


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
    assert json_schema.check_schema("even", {"properties": {"a": {"type": ["integer", "null"]}}}) is None
    assert json_schema.misfit(parameters, {}).startswith("it cannot be used: ")


@pytest.mark.parametrize("arguments", [{"size": "\ud800"}, {"\ud800": 1}])
def test_a_lone_surrogate_does_not_fit(arguments):
    schema = {"additionalProperties": {"type": "integer", "minimum": 2}}
    assert json_schema.misfit(schema, arguments) == "it holds a lone surrogate, half of a character"
