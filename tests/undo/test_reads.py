"""That a card says "It only reads." of nothing that changes anything or does not end, and of most that only read."""

import builtins
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from agentmagic.undo import operations
from agentmagic.undo.kinds import KINDS
from agentmagic.undo.program import AFTERWARDS, READS, UNBOUNDED, analyse
from agentmagic.undo.texts import steps
from tests.undo.harmless_programs import cells
from tests.undo.hostile_programs import OF_IPYTHON, hostile, notebook, same_settings, state
from tests.undo.long_programs import large_notebook, long_programs, looks
from tests.undo.reading_programs import ReadingPrograms, rich_notebook, state_of

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


# -- what does not end soon ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    """Return a namespace with large data, which no test changes."""
    return large_notebook()


@pytest.mark.parametrize("program", long_programs())
def test_a_program_that_does_not_end_soon_is_asked_about_with_the_reason(program: str, large):
    known = analyse(program, large)
    assert not known.only_reads
    assert known.lines()[-1].startswith("It only reads, but how long it takes is not known before: `")
    assert known.risks == ()


@pytest.mark.parametrize("program", looks())
def test_an_ordinary_look_at_large_data_is_not_asked_about(program: str, large):
    assert analyse(program, large).lines()[-1] == READS


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("9**9**9", "9 ** 9 ** 9"),
        ("sum(range(10**11))", "sum(range(10 ** 11))"),
        ("len(nums) + len(list(range(10**11)))", "list(range(10 ** 11))"),
        ("[text * n for n in range(10**9)]", "range(10 ** 9)"),
        ("'x'.ljust(\n    10**11)", "'x'.ljust(10 ** 11)"),
    ],
)
def test_the_reason_names_the_part_that_is_not_bounded(program: str, named: str):
    assert analyse(program, notebook()).lines()[-1] == UNBOUNDED.format(named)


def test_a_long_program_that_could_change_something_is_described_as_before():
    for program in ("nums.append(9**9**9)", "bump(sum(range(10**11)))", "[nums.pop() for _ in range(10**11)]"):
        assert analyse(program, notebook()).lines()[-1] == AFTERWARDS


def test_each_operation_of_the_table_has_a_kind_of_work():
    assert {*operations.KIND_OF.values()} == KINDS.keys()


@pytest.mark.parametrize("pattern", ["the", r"\w+", "[a-z]+", r"\d{4}-\d\d", "a|b", "(ab)+", "[]x]*", r"\(a\)+"])
def test_a_simple_pattern_takes_a_few_steps_for_each_character(pattern: str):
    assert steps(pattern, 1000) <= 3 * 1001


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+", "(a|b)*", "(a?){9}", "((a+))+", r"(a)\1", "(?=a)b", "(?x)a", "(", "a)", "[a", "(?P<x>a*)*", "(?i:a)"],
)
def test_a_pattern_that_can_take_exponential_time_has_no_bound(pattern: str):
    assert steps(pattern, 10) == math.inf


def test_the_bound_of_a_pattern_grows_with_each_repetition():
    assert steps("a*b*c", 10) == 11**3
    assert steps("a?" * 20 + "b", 10) == 11 * 2**20
    assert steps("a{2,5}b", 10) == 11 * 4


# -- random programs -----------------------------------------------------------------------------------------


def check_random_programs(seed: int, count: int) -> None:
    """Run this many random programs that are called reading, and assert that nothing changes."""
    namespace = rich_notebook()
    programs, before, found = ReadingPrograms(seed, namespace), state_of(namespace), 0
    while found < count:
        program = programs.program()
        if not analyse(program, namespace).only_reads:
            continue
        found += 1
        with suppress(Exception, SystemExit, pl.exceptions.PanicException):
            try:
                value = eval(compile(program, "<program>", "eval"), namespace)  # noqa: S307
            except SyntaxError:
                exec(program, namespace)  # noqa: S102
            else:
                repr(value)
                programs.grow(program, value)
        for name in [name for name in namespace if name.startswith("__")]:
            del namespace[name]
        assert state_of(namespace) == before, program


def test_random_programs_that_are_called_reading_change_nothing(scratch, capsys):
    check_random_programs(0, 300)


@pytest.mark.slow
def test_many_random_programs_that_are_called_reading_change_nothing(scratch, capsys):
    check_random_programs(1, 5000)
