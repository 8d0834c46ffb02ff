"""Estimates the cost of all rows of a map from a sample of the rows."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import linear_regression

from agentmagic.text import about_seconds, plural

STUDENT = (63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17)
"""The 99.5 % quantiles of Student's t for 1 to 10 degrees of freedom. For more, the last one is slightly too large."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of the cost and time of a map.

    `rows` is the number of all rows. The estimate is made from a sample: the rows that were `asked`.

    `cost` (US dollars, 0 if the model's price is unknown) and `tokens` are a low, a middle and a high value; the true
    value is nearly always in this range. `seconds` are the shortest and longest time of the whole map.
    """

    rows: int
    asked: int
    cost: tuple[float, float, float]
    tokens: tuple[float, float, float]
    seconds: tuple[float, float]

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, *, times: bool = True) -> str:
        """Return a sentence with the cost of all rows, and if `times` is set, with the time they take."""
        low, middle, high = self.cost
        figures, unit = ((low, middle, high), "$") if high else (self.tokens, "")
        low, middle, high = (_amount(one, unit) for one in figures)
        amount = f"{middle} ({low} to {high})" + ("" if unit else " tokens")
        shortest, longest = (about_seconds(one) for one in self.seconds)
        time = f"about {longest}" if shortest == longest else f"{shortest} to {longest}"
        took = f" and take {time}" if times else ""
        return f"All {plural(self.rows, 'row')} may cost {amount}{took}, as {self.asked} of them tell."


def _amount(number: float, unit: str) -> str:
    if not unit:
        return f"{number:,.0f}"
    return f"{unit}{number:,.2f}" if number >= 1 else f"{unit}{number:.2g}"


def choose(sizes: Sequence[int], number: int, seed: int) -> list[int]:
    """Return the indexes of sample rows: rows are divided by size into `number` groups, with one random row of each."""
    order = _by_size(sizes)
    number = min(number, len(order))
    chance = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    cuts = [len(order) * index // number for index in range(number + 1)] if number else []
    return sorted(order[chance.randrange(start, end)] for start, end in pairwise(cuts))


def _by_size(sizes: Sequence[int]) -> list[int]:
    return sorted(range(len(sizes)), key=lambda place: (sizes[place], place))


def total(sizes: Sequence[int], values: Mapping[int, float]) -> tuple[float, float, float]:
    """Return a low, a middle and a high estimate of a sum over all rows, from the values that are known for some rows.

    First the part of the values that grows with the size is removed. Then rows are grouped by size. Each group has
    one known row. Differences between neighbouring groups show how much the rest varies within a group (Cochran,
    Sampling Techniques, 5A.12: collapsed strata). The range is a 99 % confidence interval.
    """
    slope = _slope([sizes[place] for place in values], list(values.values()))
    trend = slope * sum(sizes)
    low, middle, high = _total(sizes, {place: value - slope * sizes[place] for place, value in values.items()})
    return max(sum(values.values()), trend + low), trend + middle, trend + high


def _slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return how much a row's value grows per unit of size: at least 0, and 0 for fewer than three different sizes."""
    if len(set(sizes)) < 3:  # noqa: PLR2004  (two points always lie on a line)
        return 0.0
    return max(0.0, linear_regression(sizes, values).slope)


def _total(sizes: Sequence[int], values: Mapping[int, float]) -> tuple[float, float, float]:
    order = _by_size(sizes)
    ranks = [rank for rank, place in enumerate(order) if place in values]
    if not ranks:
        return 0.0, 0.0, 0.0
    # `cuts` divides all rows, sorted by size, into groups. Each group has the rows nearest in size to one sampled row.
    cuts = [0, *((one + other + 1) // 2 for one, other in pairwise(ranks)), len(order)]
    groups = [(end - start, values[order[rank]]) for rank, (start, end) in zip(ranks, pairwise(cuts), strict=True)]
    middle = sum(count * value for count, value in groups)
    if len(groups) == len(order):
        return middle, middle, middle
    spread = sqrt(sum((one * a - other * b) ** 2 for (one, a), (other, b) in zip(groups[::2], groups[1::2])))  # noqa: B905
    pairs = max(1, len(groups) // 2)
    if len(groups) == 1:
        spread = abs(middle)
    reach = STUDENT[min(pairs, len(STUDENT)) - 1] * spread
    return middle - reach, middle, middle + reach
