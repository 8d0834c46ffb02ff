"""What servers write for JSON Schema, and what it is mended to."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmagic.json_schema import check_schema, compiles
from agentmagic.messages import ToolDef
from agentmagic.providers import ollama
from agentmagic.providers.anthropic import encoder as anthropic_encoder
from agentmagic.providers.gemini import encoder as gemini_encoder
from agentmagic.providers.local.narrow import narrow
from agentmagic.providers.openai import chat_completions, responses
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.mends import MENDS, PatternCheck, mend
from tests.providers.strict import gemini as strict_gemini
from tests.providers.strict import ollama as strict_ollama
from tests.providers.strict import rules as strict_openai

TEXT = {"type": "string"}
HEX = {"type": "string", "pattern": "^[0-9a-f]+$"}


def of(**properties):
    """The schema of a tool with these properties."""
    return {"type": "object", "properties": properties}


# One row for each thing that has one meaning: what a server writes for a property, and what it stands for.
PROPERTIES = {
    # null for what is not there (Go)
    "null words": ({"type": "string", "description": None, "title": None, "format": None}, TEXT),
    "null of a const": ({"type": "string", "const": None}, TEXT),
    "null default": ({"type": "string", "default": None}, {"type": "string", "default": None}),
    # empty lists for empty objects (PHP)
    "list of properties": ({"type": "object", "properties": []}, of()),
    "null or list as schema": (of(y=None, z=[]), of(y={}, z={})),
    # types in words
    "any": ({"type": "any"}, {}),
    "str": ({"type": "str"}, TEXT),
    "list": ({"type": "list"}, {"type": "array", "items": {}}),
    "capitals": ({"type": "INTEGER"}, {"type": "integer"}),
    "any among types": ({"type": ["any", "null"]}, {}),
    "twice": ({"type": ["string", "string", "null"]}, {"type": ["string", "null"]}),
    "type as schema": (of() | {"additionalProperties": "object"}, of() | {"additionalProperties": {"type": "object"}}),
    # other drafts
    "exclusive": ({"minimum": 0, "exclusiveMinimum": True}, {"exclusiveMinimum": 0}),
    "inclusive": ({"type": "number", "maximum": 9, "exclusiveMaximum": False}, {"type": "number", "maximum": 9}),
    "tuple": ({"items": [TEXT]}, {"prefixItems": [TEXT], "items": {}}),
    "open tuple": ({"items": [TEXT], "additionalItems": {"type": "str"}}, {"prefixItems": [TEXT], "items": TEXT}),
    "address": ({"id": "#name", "$id": "http://a/b", "type": "string"}, TEXT),
    "dependencies": (
        of(y=TEXT) | {"dependencies": {"y": ["z"], "z": of(y=None)}},
        of(y=TEXT) | {"dependentRequired": {"y": ["z"]}, "dependentSchemas": {"z": of(y={})}},
    ),
    # required
    "required of both": (
        of(y=TEXT | {"required": True}, z=TEXT | {"required": False}, w=TEXT) | {"required": ["w"]},
        of(y=TEXT, z=TEXT, w=TEXT) | {"required": ["w", "y"]},
    ),
    "required of nothing": (of(y=TEXT) | {"required": {}}, of(y=TEXT) | {"required": []}),
    "required twice": (of(y=TEXT) | {"required": ["y", "y"]}, of(y=TEXT) | {"required": ["y"]}),
    "required unknown": (of(y=TEXT) | {"required": ["z"]}, of(y=TEXT, z={}) | {"required": ["z"]}),
    # OpenAPI
    "nullable words": (TEXT | {"nullable": True}, {"type": ["string", "null"]}),
    "not nullable": ({"type": "string", "nullable": False}, TEXT),
    "nullable": (TEXT | {"enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
    "nullable branches": ({"anyOf": [TEXT], "nullable": True}, {"anyOf": [TEXT, {"type": "null"}]}),
    # values of another form
    "choices twice": ({"enum": ["a", "b", "a", 1, True]}, {"enum": ["a", "b", 1, True]}),
    "numbers in texts": ({"type": "integer", "enum": ["1", "2"]}, {"type": "integer", "enum": [1, 2]}),
}


@pytest.mark.parametrize(("written", "meant"), PROPERTIES.values(), ids=PROPERTIES)
def test_what_has_one_meaning_is_written_as_that_and_nothing_is_said(written, meant):
    given = of(x=written)
    before = json.dumps(given)
    assert mend(given, compiles) == (of(x=meant), [])
    assert json.dumps(given) == before
    assert check_schema("it", of(x=meant)) is None
    assert mend(of(x=meant), compiles) == (of(x=meant), [])


# One row for each thing that has none: what a server writes, what is left of it, and what is said.
MEANINGLESS = {
    "a class of another dialect": ({"pattern": r"^[\w-.]+$"}, {}, r"pattern ^[\w-.]+$ of x"),
    "no text": ({"type": "string", "pattern": 7}, TEXT, "pattern 7 of x"),
    "a name": ({"patternProperties": {"[": {}}, "additionalProperties": True}, {"patternProperties": {}}, "patternP"),
    "a strange type": ({"type": "strange"}, {}, "type strange of x"),
    "no type": ({"type": []}, {}, "type [] of x"),
    "no choices": ({"type": "string", "enum": []}, TEXT, "enum [] of x"),
    "choices of nothing": ({"type": "integer", "enum": ["a"]}, {"type": "integer"}, 'enum ["a"] of x'),
    "a bound in words": ({"minimum": "none", "maximum": {}}, {}, "minimum none of x"),
    "a negative count": ({"minLength": -1}, {}, "minLength -1 of x"),
    "a multiple of nothing": ({"multipleOf": 0}, {}, "multipleOf 0 of x"),
    "no branches": ({"anyOf": []}, {}, "anyOf [] of x"),
    "a far reference": ({"$ref": "https://example.org/a.json"}, {}, "$ref https://example.org/a.json of x"),
    "a reference to nothing": ({"$ref": "#/$defs/none", "type": "string"}, TEXT, "$ref #/$defs/none of x"),
    "a reference by where it is read": ({"$dynamicRef": "#node"}, {}, "$dynamicRef #node of x"),
    "a number in a text": ({"minimum": "5"}, {}, "minimum 5 of x"),
    "a single choice": ({"enum": "a"}, {}, "enum a of x"),
    "no number": ({"default": float("nan")}, {}, "default NaN of x"),
    "a type of Python": ({"type": "list[str]"}, {}, "type list[str] of x"),
    "a number for a schema": (of(y=7), of(y={}), "the schema 7 of x.y"),
    "a place inside": ({"not": {"anyOf": [{"type": "odd"}]}}, {"not": {"anyOf": [{}]}}, "type odd of x.not.anyOf"),
}


@pytest.mark.parametrize(("written", "left", "said"), MEANINGLESS.values(), ids=MEANINGLESS)
def test_a_keyword_without_a_meaning_is_dropped_and_said(written, left, said):
    mended, dropped = mend(of(x=written), compiles)
    assert mended == of(x=left)
    assert dropped[0].startswith(said)
    assert check_schema("it", mended) is None


ROOTS = {
    "a dict": ({"type": "dict", "properties": {}}, of()),
    "any": ({"type": "any"}, {"type": "object"}),
    "an object or null": ({"type": ["object", "null"]}, {"type": "object"}),
    "an unknown draft": (of(x=TEXT) | {"$schema": "http://foo/bar"}, of(x=TEXT)),
    "a mended draft": (of(x={"type": "str"}) | {"$schema": "http://json-schema.org/draft-04/schema#"}, of(x=TEXT)),
    "the place of another draft": (
        of(x={"$ref": "#/$defs/t"}) | {"definitions": {"t": {"type": "str"}}},
        of(x={"$ref": "#/definitions/t"}) | {"definitions": {"t": TEXT}},
    ),
    "a bare name": (of(x={"$ref": "t"}) | {"$defs": {"t": TEXT}}, of(x={"$ref": "#/$defs/t"}) | {"$defs": {"t": TEXT}}),
    "the address of the whole": (
        {"$id": "http://a/b", **of(x={"$ref": "http://a/b#/$defs/t"}), "$defs": {"t": TEXT}},
        of(x={"$ref": "#/$defs/t"}) | {"$defs": {"t": TEXT}},
    ),
    "null for a reference": (
        of(x={"$ref": "#/$defs/t", "nullable": True}) | {"$defs": {"t": TEXT}},
        of(x={"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}) | {"$defs": {"t": TEXT}},
    ),
}


@pytest.mark.parametrize(("written", "meant"), ROOTS.values(), ids=ROOTS)
def test_the_whole_schema_is_mended_too(written, meant):
    assert mend(written, compiles) == (meant, [])
    assert check_schema("it", meant) is None


@pytest.mark.parametrize(
    "clean",
    [
        of(x={"$ref": "#/$defs/t"}) | {"$defs": {"t": of(t={"$ref": "#"})}},
        of(required={"type": "boolean"}, type={"type": "string", "default": None}, properties={"const": None}),
        of(x={"type": "string", "pattern": r"^\p{L}(?<=a)(?P<n>b)$", "format": "unheard-of"}),
        of(x={"anyOf": [True, False], "not": {}, "if": {"required": ["y"]}, "then": {"minProperties": 1}}),
        of(x={"default": {"type": "any", "required": True}, "enum": [{"type": None}], "examples": [None]}),
        of(**{"$ref": TEXT, "items": {"type": "array", "items": TEXT}}),
    ],
    ids=lambda schema: "-".join(schema["properties"]),
)
def test_a_clean_schema_comes_back_as_it_was(clean):
    assert mend(clean, compiles) == (clean, [])
    assert list(mend(clean)[0]) == list(clean)
    assert limits.schema_problem(clean) is None


def test_regular_expressions_that_take_long_are_dropped_and_the_tool_stays(monkeypatch):
    wide = of(**{f"p{n}": {"type": "string", "pattern": f"((a{{50}}){{50}}){{9}}{n}"} for n in range(9)}, x=HEX)
    mended, dropped = mend(wide, compiles)
    assert mended["properties"]["p0"] == {"type": "string", "pattern": "((a{50}){50}){9}0"}
    assert mended["properties"]["p8"] == TEXT
    assert mended["properties"]["x"] == HEX
    assert limits.schema_problem(mended) is None
    assert len(dropped) == 8
    monkeypatch.setattr(limits, "PATTERN_SECONDS", 0.0)
    assert mend(of(x=HEX), PatternCheck()) == (of(x=TEXT), ["pattern ^[0-9a-f]+$ of x"])


def test_a_schema_that_is_nested_without_end_is_left_to_the_caller():
    deep = {}
    for _ in range(5000):
        deep = {"items": deep}
    with pytest.raises(RecursionError):
        mend(deep)


def test_every_mended_schema_is_fit_for_every_provider():
    for name, (_, meant, *_) in {**PROPERTIES, **MEANINGLESS}.items():
        tool = ToolDef("it", "Does it.", mend(of(x=meant), compiles)[0])
        strict_openai.check_schema(chat_completions._tool(tool)["function"]["parameters"], name)
        strict_openai.check_schema(responses._tool(tool)["parameters"], name)
        strict_gemini._check_schema(gemini_encoder._declaration(tool)["parametersJsonSchema"], name)
        assert anthropic_encoder._tool(tool)["input_schema"]["type"] == "object"
        strict_ollama._check_tool(ollama._tool(tool))
        assert narrow(tool.parameters)["type"] == "object"


_KEYWORDS = sorted(
    {keyword for row in MENDS for keyword in row.keywords}
    | limits.NAMED_SCHEMAS
    | limits.LIST_KEYWORDS
    | limits.SINGLE_KEYWORDS
    | {"title", "format", "minimum", "minLength", "multipleOf", "uniqueItems", "$anchor", "$vocabulary", "$comment"}
    | {"$recursiveAnchor", "$dynamicAnchor", "default", "const", "examples", "dependentRequired", "deprecated"}
)
_WORDS = ["", "true", "a", "#", "#/$defs/a", "string", "any", "list[int]", "5", r"^[\w-.]+$", "http://a/b"]
_PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.sampled_from(_WORDS))
_JSON = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*_KEYWORDS, "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(_KEYWORDS), _JSON, max_size=6))
def test_any_values_of_any_keywords_end_in_a_schema_that_can_be_used(schema):
    mended, _ = mend(mend(schema)[0], compiles)
    again, dropped = mend(mended, compiles)
    assert (json.dumps(again), dropped) == (json.dumps(mended), [])
    if mended["type"] == "object" and limits.schema_problem(mended) is None:
        assert check_schema("it", mended) is None
