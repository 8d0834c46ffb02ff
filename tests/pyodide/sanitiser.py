"""The sanitiser for Pyodide: python -m tests.pyodide.sanitiser REQUESTS ANSWERS; see `inside.Cleaner`.

nh3 is a compiled package, and its wheel for Pyodide is in Pyodide's distribution only. So the nh3 of this Python cleans
what Pyodide sends through a pipe, a line of JSON for each text.
"""

import json
import sys
from importlib import import_module
from typing import Any

import nh3


def cleaner(options: dict[str, Any]) -> nh3.Cleaner:
    """Return a cleaner with options in JSON: lists stand for sets, and the filter's place for the filter."""
    ready: dict[str, Any] = {name: set(value) if isinstance(value, list) else value for name, value in options.items()}
    if "attributes" in ready:
        ready["attributes"] = {tag: set(names) for tag, names in ready["attributes"].items()}
    if "attribute_filter" in ready:
        module, name = ready["attribute_filter"]["module"], ready["attribute_filter"]["name"]
        ready["attribute_filter"] = getattr(import_module(module), name)
    return nh3.Cleaner(**ready)


def main(requests: str, answers: str) -> None:
    """Answer until the other side closes its pipe."""
    made: dict[str, nh3.Cleaner] = {}
    with open(requests, encoding="utf-8") as asked, open(answers, "w", encoding="utf-8") as told:  # noqa: PTH123
        for line in asked:
            options, html = json.loads(line)
            key = json.dumps(options)
            if key not in made:
                made[key] = cleaner(options)
            told.write(json.dumps(made[key].clean(html)) + "\n")
            told.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
