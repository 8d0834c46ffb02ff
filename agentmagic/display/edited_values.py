"""Restore what a user did not change in the shown arguments of a tool call."""

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, cast

from agentmagic.serialization import same_json
from agentmagic.text import DEEPEST, exact, sanitize_json


def restore_unchanged(
    edited: Any, original: Any, change: Callable[[str], str] = exact, depth: int = DEEPEST, name: str = ""
) -> Any:
    """Return the value that a user edited, with each part that the user left unchanged replaced by the original part.

    A part is unchanged if it equals what `sanitize_json` makes of the original with this `change`, `depth` and `name`.
    So secrets that were shown blanked, and parts that were not shown because they are nested too deep, are restored.
    """
    if same_json(edited, sanitize_json(original, change, depth, name)):
        return original
    if depth == 0:
        return edited
    match edited, original:
        case dict(), Mapping():
            before = cast("Mapping[str, Any]", original)
            keys = {change(key): key for key in before}
            items = ((keys.get(key, key), value) for key, value in cast("dict[str, Any]", edited).items())
            return {key: restore_unchanged(value, before.get(key), change, depth - 1, key) for key, value in items}
        case list(), list() | tuple():
            pairs = zip_longest(cast("list[Any]", edited), cast("list[Any]", original))
            return [restore_unchanged(value, old, change, depth - 1, name) for value, old in pairs][
                : len(cast("list[Any]", edited))
            ]
        case _:
            return edited
