# ruff: noqa: E501
"""Random programs made of what only reads and of what looks like it, and a notebook with data of all kinds for them."""

import collections
import datetime as dt
import decimal
import fractions
import json
import math
import random
import re
import statistics
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from agentmagic.undo.operations import FUNCTIONS, KEYWORDS, METHODS, PARTS
from tests.undo.random_programs import picture

IN_PLACE = [
    "sort",
    "reverse",
    "append",
    "extend",
    "insert",
    "pop",
    "remove",
    "clear",
    "update",
    "setdefault",
    "add",
    "discard",
    "popleft",
    "rotate",
    "appendleft",
    "fill",
    "put",
    "resize",
    "drop_in_place",
    "insert_column",
]
"""Methods that change an object of some types. Some of these names change nothing in other types."""
OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "@",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "==",
    "!=",
    "<",
    ">",
    "<=",
    "in",
    "is",
    "and",
    "or",
]
MODULES = {
    "np": np, "pd": pd, "pl": pl, "math": math, "re": re, "json": json, "statistics": statistics, "datetime": dt,
    "collections": collections,
}  # fmt: skip
ALIASES = {"numpy": "np", "pandas": "pd", "polars": "pl"}


def rich_notebook() -> dict[str, Any]:
    """Return a namespace with nested containers, arrays, frames and values of all kinds of data."""
    inner, words = [3, 1, 2], ["b", "a", "c"]
    row = {"n": 2, "tags": words, "at": dt.date(2024, 1, 2)}
    frame = pd.DataFrame({"a": [3.0, 1.0, 2.0], "b": ["x", "y", "x"], "c": [1, 1, 2]})
    frame["o"] = [inner, [0], {"k": inner}]
    objects = np.empty(3, dtype=object)
    objects[:] = [inner, words, None]
    return {
        "nums": inner, "words": words, "nest": [inner, [words, inner], (inner,)], "rows": [row, {"n": 1, "tags": inner}],
        "d": {"k": inner, "j": {"deep": words}, 1: row}, "names": {"p", "q"}, "queue": collections.deque([inner, words]),
        "tally": collections.Counter("abca"), "ordered": collections.OrderedDict(k=inner), "pair": (inner, words),
        "text": "some text", "data": b"bytes", "count": 3, "big": 10**30, "real": 2.5, "flag": True, "none": None,
        "steps": range(5), "moment": dt.datetime(2024, 1, 2), "gap": dt.timedelta(1),  # noqa: DTZ001
        "money": decimal.Decimal("2.50"), "part": fractions.Fraction(1, 3), "cut": slice(0, 2),
        "arr": np.array([4.0, 1.0, 9.0]), "m": np.arange(9.0).reshape(3, 3), "whole": np.array([2, 0, 1]),
        "oarr": objects, "mask": np.array([True, False, True]), "one": np.int64(2), "strings": np.array(["b", "a"]),
        "df": frame, "s": pd.Series([3.0, 1.0, 2.0], name="s"), "texts": pd.Series(["b", "a", None]),
        "lists": pd.Series([inner, words, [9]]), "days": pd.Series(pd.date_range("2024-01-01", periods=3)),
        "kinds": pd.Series(["u", "v", "u"], dtype="category"), "idx": pd.Index([3, 1, 2]), "stamp": pd.Timestamp("2024"),
        "levels": pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]),
        "pf": pl.DataFrame({"a": [3, 1, 2], "b": ["x", "y", "z"], "l": [[3, 1], [2], []]}),
        "ps": pl.Series("p", [3, 1, 2]), "pt": pl.Series("t", ["b", "a"]), "plists": pl.Series("l", [[3, 1], [2]]),
        "pstructs": pl.DataFrame({"x": [1, 2], "y": [[2, 1], [1]]}).to_struct("st"), **MODULES,
    }  # fmt: skip


def state_of(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return what can be known of the data of a namespace: contents, and the identity of each object."""
    return {name: picture(value, set()) for name, value in namespace.items() if name not in MODULES}


class ReadingPrograms:
    """Makes random programs over the names of a notebook, the same for the same seed."""

    def __init__(self, seed: int, space: dict[str, Any]) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._space = space
        self._names = [name for name in self._space if name not in MODULES]
        self._functions = [self._spelling(path) for path in FUNCTIONS if self._spelling(path)]
        self._locals: list[str] = []
        self._grown: list[tuple[str, type]] = []

    def grow(self, program: str, value: object) -> None:
        """Let later programs go on from a program that did not fail, and its value."""
        if len(program) < 150 and "\n" not in program and program not in self._names:
            if len(self._grown) > 400:
                self._grown.pop(self._random.randrange(len(self._grown)))
            self._grown.append((program if program.endswith((")", "]")) else f"({program})", type(value)))

    def program(self) -> str:
        """Return a program of one or two expressions."""
        self._locals = []
        lines = [self._expression(2) for _ in range(self._random.choice((1, 1, 1, 1, 1, 2)))]
        if self._random.random() < 0.1:
            test, handled = self._expression(2), self._pick("ValueError", "(KeyError, TypeError)", self._expression(1))
            lines = [self._pick(f"if {test}: {lines[0]}", f"try: {lines[0]}\nexcept {handled}: {test}")]
        return "\n".join(lines)

    def _spelling(self, path: str) -> str:
        module, _, name = path.rpartition(".")
        head, _, rest = module.partition(".")
        head = ALIASES.get(head, head)
        if module == "builtins":
            return name
        return f"{'.'.join(filter(None, (head, rest)))}.{name}" if head in MODULES else ""

    def _pick(self, *several: Any) -> Any:
        return self._random.choice(several)

    def _expression(self, depth: int) -> str:
        if depth <= 0:
            return self._leaf()
        kinds = [
            self._method, self._method, self._method, self._method, self._method, self._method, self._part, self._function, self._function, self._item,
            self._item, self._part, self._operation, self._operation, self._aliased, self._comprehension, self._literal,
            self._formatted, self._lambda, self._aggregate,
        ]  # fmt: skip
        return self._random.choice(kinds)(depth - 1)

    def _leaf(self) -> str:
        if self._locals and self._random.random() < 0.6:
            return self._pick(*self._locals)
        if self._grown and self._random.random() < 0.15:
            return self._pick(*self._grown)[0]
        if self._random.random() < 0.6:
            return self._pick(*self._names)
        return self._pick(
            "0", "1", "2", "-1", "3", "'a'", "'b'", "'x'", "'k'", "'n'", "None", "True", "1.5", "10", "[0, 1]", "['a', 'b']",
            "pl.col('a')", "pl.DataFrame({'a': [1]})", "pl.Series([1, 2])", "10**6", "'%s'", "r'\\w+'", "'(a+)+b'", "99999",
            "pl.Series([nums])", "[nums]", "(rows,)", "{'z': nums}", "df.a", "df['o']", "pf['a']", "nest[0]", "pl.len()",
        )  # fmt: skip

    def _method(self, depth: int) -> str:
        base, kind = self._base(depth)
        known = [name for name in (*METHODS, *METHODS, *IN_PLACE) if hasattr(kind, name)]
        name = self._pick(*known) if known else self._pick(*METHODS)
        name = self._pick(*IN_PLACE[:3], "pop", "update", "clear") if self._random.random() < 0.1 else name
        base = base if base.isidentifier() or base.endswith((")", "]")) else f"({base})"
        return f"{base}.{name}({self._arguments(depth, METHODS.get(name, 1))})"

    def _base(self, depth: int) -> tuple[str, type]:
        """Return an expression of a known type, mostly."""
        if self._grown and self._random.random() < 0.6:
            return self._pick(*self._grown)
        if self._random.random() < 0.8:
            name = self._pick(*self._names)
            return name, type(self._space[name])
        return self._expression(depth), object

    def _function(self, depth: int) -> str:
        name = self._pick(*self._functions)
        if name in ("map", "filter"):
            return f"list({name}({self._pick('str', 'len', 'abs', 'str.upper', self._key(depth))}, {self._expression(depth)}))"
        if name in ("sorted", "min", "max") and self._random.random() < 0.6:
            return f"{name}({self._expression(depth)}, key={self._pick('len', 'str', self._key(depth))})"
        most = next(most for path, most in FUNCTIONS.items() if self._spelling(path) == name)
        more = f", {self._arguments(0, most - 1)}" if most > 1 and self._random.random() < 0.4 else ""
        return f"{name}({self._base(depth)[0]}{more})"

    def _arguments(self, depth: int, most: int) -> str:
        number = min(most, self._pick(0, 0, 0, 0, 0, 1, 1, 2))
        given = [self._expression(self._pick(0, 0, 0, 0, min(depth, 1))) for _ in range(number)]
        if self._random.random() < 0.12:
            word = self._pick(*sorted(KEYWORDS), "default", "key", "inplace", "axis", "n", "index", "columns")
            given.append(f"{word}={self._expression(0)}")
        if self._random.random() < 0.03:
            given = [f"*{self._expression(0)}"]
        return ", ".join(given)

    def _item(self, depth: int) -> str:
        base, _ = self._base(depth)
        base = base if base.isidentifier() or base.endswith((")", "]")) else f"({base})"
        key = self._pick(
            "0", "-1", "1", "'a'", "'k'", "'n'", "'tags'", ":2", "::-1", "['a', 'b']", "mask", "0, 0", ":, 0", "None"
        )
        return f"{base}[{key if self._random.random() < 0.9 else self._expression(0)}]"

    def _part(self, depth: int) -> str:
        base, kind = self._base(depth)
        base = base if base.isidentifier() or base.endswith((")", "]")) else f"({base})"
        known = [name for name in sorted(PARTS) if hasattr(kind, name)] or ["a", "b"]
        return f"{base}.{self._pick(*known)}"

    def _operation(self, depth: int) -> str:
        left, right = (
            self._base(depth)[0],
            self._pick("2", "1", "3.5", "nums", "arr", "s", self._expression(min(depth, 1))),
        )
        if self._random.random() < 0.1:
            return f"({left} if {right} else {self._expression(0)})"
        right = left if self._random.random() < 0.3 else right
        return f"({left} {self._pick(*OPERATORS)} {right})"

    def _aliased(self, depth: int) -> str:
        """Return an expression that reaches a container of the user through another one, and a change of it."""
        of_polars = self._pick(
            "pf.width", "ps.len()", "pf['a'].max()", "pf['a'].len()", "pl.len()", "pf.height", "len(ps)"
        )
        target = self._pick("nums", "words", "rows", "nest[0]", "d['k']", "queue", "oarr", "arr", "df", "d", "tally")
        reached = self._pick(
            f"([{target}] * {of_polars})[0]", f"({of_polars} * [{target}])[0]", f"[one for one in [{target}]][0]",
            f"(pf if none else {target})", f"(none or {target})", f"next(iter([{target}]))", f"max([{target}])",
            f"dict(z={target})['z']", f"{{'z': {target}}}.get('z')", f"list(zip([{target}]))[0][0]", f"pf.get_column('zz', default={target})",
            f"pl.Series([{target}], dtype=None)[0]", f"pl.Series([{target}]).item()", f"[{target}, pf][0]", f"(lambda: {target})()",
            f"list(map(lambda one: one, [{target}]))[0]", f"sorted([{target}], key=len)[0]", f"pd.Series([{target}])[0]",
            f"np.array([{target}, None], dtype='object')[0]", f"d.get('no', {target})", f"pl.lit({target})", f"(pf + {target})",
            f"(pf == {target})", "pf.select(pl.lit(1)).rows()[0]", "lists.iloc[0]", "df.o[0]", "oarr[0]",
            f"pd.Series([1], index=[0]).get(5, {target})", f"df.get('zz', {target})", f"pl.Series([{target}]).max()",
        )  # fmt: skip
        changed = self._pick(
            "sort()",
            "reverse()",
            "sort(key=str)",
            "pop()",
            "clear()",
            "append(1)",
            "update(z=1)",
            "copy()",
            "sort_values()",
        )
        return f"{reached}.{changed}"

    def _comprehension(self, depth: int) -> str:
        name = f"v{len(self._locals)}"
        source = self._expression(min(depth, 2))
        self._locals.append(name)
        value, test = self._expression(min(depth, 2)), self._expression(0)
        self._locals.pop()
        where = f" if {test}" if self._random.random() < 0.3 else ""
        return self._pick(f"[{value} for {name} in {source}{where}]", f"{{{name}: {value} for {name} in {source}{where}}}",
                          f"sum({value} for {name} in {source}{where})", f"[{name} for {name}, *_ in {source}]",
                          f"[({name}, w) for {name}, w in {source}]", f"{{{value} for {name} in {source}}}")  # fmt: skip

    def _literal(self, depth: int) -> str:
        one, other = self._expression(min(depth, 1)), self._expression(0)
        return self._pick(
            f"[{one}, {other}]", f"({one}, {other})", f"{{'q': {one}}}", f"[*{one}]", f"{{**{other}}}", f"{{{other}}}"
        )

    def _formatted(self, depth: int) -> str:
        one = self._expression(min(depth, 1)).replace("'", '"')
        spec = self._pick("", ":>10", ":,.2f", "!r", ":{count}", ":%Y")
        return self._pick(f"f'{{{one}{spec}}}'" if "{" not in one and '"' not in one else "f'{nums}'",
                          f"'%s %r' % ({one}, 1)", f"'{{}} {{:>5}}'.format({one}, count)", f"'%d' % {one}")  # fmt: skip

    def _key(self, depth: int) -> str:
        self._locals.append("k")
        body = self._expression(min(depth, 2))
        self._locals.pop()
        return f"lambda k: {body}"

    def _lambda(self, depth: int) -> str:
        return f"sorted({self._expression(min(depth, 1))}, key={self._key(depth)})"

    def _aggregate(self, _depth: int) -> str:
        return self._pick(
            "df.groupby('b').agg({'a': 'mean'})", "df.query('a > 1')", "df.groupby('b').a.agg(['min', 'max'])", "df.eval('a + c')",
            "df.pivot_table(index='b', columns='c', values='a', aggfunc='sum')", "pf.group_by('b').agg(pl.col('a').sort())",
            "pf.select(pl.col('a').sort().reverse())", "pf.sort('a').reverse()", "pf['a'].sort()", "df.agg('sum')",
            "pf.with_columns(pl.col('l').list.sort())", "pf.lazy().sort('a').collect()", "ps.sort(descending=True).reverse()",
        )  # fmt: skip
