"""Binds the answer of a cell to a variable (`-o NAME`), and reads the type of the answer (`--as TYPE`)."""

import ast
import builtins
import dataclasses
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, cast

from agentmagic.agent import Output, output_schema
from agentmagic.errors import UsageError
from agentmagic.events import RunResult
from agentmagic.jupyter.frontend import say
from agentmagic.jupyter.notebook.namespace import Variables
from agentmagic.mapping.outcomes import record
from agentmagic.session import Session
from agentmagic.text import did_you_mean
from agentmagic.undo.variables import kind_of
from agentmagic.values.columns import columns_of, pandas_frame

_TYPE = (
    *(ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.Constant, ast.Load),
    *(ast.BinOp, ast.BitOr),
)
"""The syntax nodes that a type expression may contain. A call is not among them."""


def read_type(expression: str, variables: Mapping[str, Any]) -> Output:
    """Return the type or the JSON Schema that the expression after `--as` names.

    The expression consists of names, brackets and "|". Raises UsageError if it names neither a type nor a schema.
    """
    try:
        kind = _evaluate(expression, variables)
        output_schema(kind)
    except UsageError as error:
        reason = str(error)
    except NameError as error:
        reason = f"{error}.{_suggest_type(expression, error.name or '', variables)}"
    except Exception as error:  # noqa: BLE001  (a subscript of the user's class may raise anything)
        reason = f"{type(error).__name__}: {error}"
    else:
        return kind
    raise UsageError(
        f"--as {expression[:80]} is no type of an answer: {reason.rstrip('.')}{'' if reason.endswith('?') else '.'} "
        "Name a pydantic model, a dataclass, a TypedDict, a list[...] of one, or a variable that holds a JSON Schema."
    )


def _suggest_type(expression: str, missing: str, variables: Mapping[str, Any]) -> str:
    """Return " Did you mean ...?" with a type whose name is similar to the unbound name `missing`, or ""."""
    namespace = {**vars(builtins), **variables}
    types = [
        name for name, value in namespace.items() if isinstance(value, type | Mapping) and not name.startswith("_")
    ]
    return did_you_mean(missing, types, form=re.sub(rf"\b{re.escape(missing)}\b", "{}", expression))


def _evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    tree = ast.parse(expression, mode="eval")
    if not all(isinstance(node, _TYPE) for node in ast.walk(tree)):
        raise UsageError("it may hold names, brackets and | only")
    code = compile(tree, "<type>", "eval")
    return eval(code, {"__builtins__": vars(builtins)}, dict(variables))  # noqa: S307  (the user's own line, without calls)


@dataclasses.dataclass(frozen=True)
class AnswerVariable:
    """The variable to which the answer of a turn is bound, as a `str`, or as a value of the type in `output`."""

    name: str
    output: Output | None
    variables: Variables

    def __post_init__(self) -> None:
        if isinstance(self.variables.get(self.name), Session):
            raise UsageError(f"{self.name} is a session and stays. Choose another name for the answer.")

    def bind(self, result: RunResult) -> None:
        """Bind a turn's answer to the variable, and print a line about it. A turn without an answer changes nothing."""
        if result.stop_reason not in ("answer", "done", "limit") or (self.output is None and not result.final_text):
            return
        if self.output is None:
            self.bind_value(result.final_text)
        elif result.value is None and result.stop_reason != "answer":
            reason = "a tool ended the turn" if result.stop_reason == "done" else "the turn reached its limit of steps"
            say(f"{self.name} stays as it was: {reason}, so there is no answer of the form asked for.")
        else:
            self.bind_value(*as_frame(result.value, output_schema(self.output).schema))

    def bind_value(self, value: object, why: str = "") -> None:
        """Bind a value to the variable, and print a line that says so and ends with `why`."""
        self.variables[self.name] = value
        say(f"{self.name} is bound: {kind_of(value)}.{why}")


def as_frame(value: object, schema: Mapping[str, Any]) -> tuple[object, str]:
    """Return an answer's value, and a message for the user that is "" in most cases.

    A list of records is returned as a data frame. If pandas is not installed, the list itself is returned, and the
    message says so.
    """
    records = cast("list[Any]", value) if isinstance(value, list) else None
    columns = _columns(schema)
    if records is None or columns is None:
        return cast("object", value), ""
    if find_spec("pandas") is None:
        return records, " pandas, which would make a data frame of it, is not installed."
    return pandas_frame(columns_of(list(map(record, records)), columns)), ""


def _columns(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON Schemas of the fields of the list of records that a JSON Schema describes.

    They are empty if the records may have any fields. Return None if the schema describes another value.
    """
    value_schema: Mapping[str, Any] = schema.get("properties", {}).get("value", {})
    items: dict[str, Any] = value_schema.get("items", {}) if value_schema.get("type") == "array" else {}
    name = str(items.get("$ref", "")).rpartition("/")[2]
    items = next((schema[key][name] for key in ("$defs", "definitions") if name in schema.get(key, ())), items)
    return items.get("properties", {}) if items.get("type") == "object" else None
