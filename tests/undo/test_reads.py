"""That a card says "It only reads." of nothing that changes anything, and of most programs that do only read."""

import builtins
import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from agentmagic.undo import operations
from agentmagic.undo.program import READS, analyse
from tests.undo.harmless_programs import cells
from tests.undo.hostile_programs import OF_IPYTHON, hostile, notebook, same_settings, state

HOSTILE = hostile()


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Iterator[None]:
    """Be in a folder of its own, without warnings."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".")
        yield


def run(program: str, namespace: dict[str, Any]) -> None:
    """Run a program as a cell that shows its last value; it may fail on the way."""
    with suppress(Exception, SystemExit, pl.exceptions.PanicException):
        try:
            repr(eval(compile(program, "<program>", "eval"), namespace))  # noqa: S307
        except SyntaxError:
            exec(program, namespace)  # noqa: S102
    namespace.pop("__builtins__", None)


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_hostile_program_is_called_a_reader(kind: str):
    namespace = notebook()
    for known in (namespace, None):
        assert [one for one in HOSTILE[kind] if READS in analyse(one, known).lines()] == []


@pytest.mark.parametrize("kind", HOSTILE)
def test_each_hostile_program_changes_something_when_it_runs(kind: str, scratch, capsys):
    unchanged: list[str] = []
    for program in HOSTILE[kind]:
        if not program.startswith(OF_IPYTHON):
            with same_settings():
                namespace = notebook()
                before = state(namespace)
                run(program, namespace)
                if state(namespace) == before:
                    unchanged.append(program)
    assert unchanged == []


def test_most_programs_that_only_read_are_called_readers_and_are():
    namespace = notebook()
    before = state(namespace)
    reading = cells()[0]
    said = [one for one in reading if READS in analyse(one, namespace).lines()]
    assert len(said) >= 0.9 * len(reading)
    for program in said:
        run(program, namespace)
        assert state(namespace) == before, program


def test_no_program_without_a_risk_has_a_line_of_risk():
    namespace = notebook()
    reading, others = cells()
    assert {one: risks for one in reading + others if (risks := analyse(one, namespace).risks)} == {}


BASES = """
df odf.o arr oarr rows nums d names text pair pf ps df.groupby('c') df.b.str days.dt df.index pf.lazy() pl.col('a')
pf.group_by('b') df.rolling(2) df.values whole df.a.max() ps.to_numpy()
"""
GIVEN = ([], ["'b'"], ["arr"], ["nums"], ["m", "1"], ["0", "arr"], ["1", "0", "arr"], ["m", "0", "None", "arr"])


def given_to(function: str, most: int) -> list[str]:
    """Return calls of a function with as many arguments as the table allows."""
    return [f"{function}({', '.join(given)})" for given in GIVEN if len(given) <= most]


@pytest.mark.parametrize("base", BASES.split())
def test_each_method_of_the_table_leaves_all_as_it_was(base: str, scratch):
    namespace = notebook()
    before = state(namespace)
    kind = type(eval(base, dict(namespace)))  # noqa: S307
    methods = [(f"{base}.{name}", most) for name, most in operations.METHODS.items() if hasattr(kind, name)]
    calls = [call for function, most in methods for call in given_to(function, most)]
    parts = [f"{base}.{name}" for name in operations.PARTS if hasattr(kind, name)]
    assert any(analyse(program, namespace).only_reads for program in calls)
    for program in (*calls, *parts):
        run(program, namespace)
    assert state(namespace) == before


def test_each_function_of_the_table_leaves_all_as_it_was(scratch, capsys):
    namespace = {**notebook(), "numpy": np, "pandas": pd, "polars": pl, "builtins": builtins}
    before = state(namespace)
    for path, most in operations.FUNCTIONS.items():
        if path.partition(".")[0] in namespace:
            for program in given_to(path, most):
                run(program, namespace)
    assert state(namespace) == before


# -- what the user has put into the libraries ----------------------------------------------------------------


def mine(*_: object, **__: object) -> str:
    """Stand for a function of the user."""
    return "1"


@pytest.mark.parametrize(
    ("place", "name", "program"),
    [
        (pd.DataFrame, "head", "df.head()"),
        (pd.DataFrame, "sum", "df.agg('sum')"),
        (pd.DataFrame, "__len__", "df.a.sum()"),
        (pd.Series, "dt", "days.dt.year"),
        (np, "mean", "np.mean(arr)"),
        (builtins, "divmod", "divmod(3, 2)"),
        (json, "dumps", "json.dumps(d)"),
    ],
)
def test_a_function_of_the_user_in_a_library_may_do_anything(place: Any, name: str, program: str, monkeypatch):
    namespace = {**notebook(), "json": json}
    assert analyse(program, namespace).only_reads
    monkeypatch.setattr(place, name, property(mine) if name == "dt" else mine)
    assert not analyse(program, namespace).only_reads


def test_numbers_that_a_function_of_the_user_shows_may_do_anything():
    namespace = notebook()
    with pd.option_context("display.float_format", mine):
        assert not analyse("df", namespace).only_reads
    with pd.option_context("display.float_format", "{:.2f}".format):
        assert analyse("df", namespace).only_reads
    with np.printoptions(formatter={"all": mine}):
        assert not analyse("arr", namespace).only_reads
    assert analyse("arr", namespace).only_reads
