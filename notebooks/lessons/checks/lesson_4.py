"""Checks of lesson 4: an error that helps, and a result of the right size."""

import re

from agentmagic import ToolError
from agentmagic.testing import check, exercise, expect

from . import SAME, prompt_of, raised, results_of

MOST = 300


@exercise(
    "1",
    "Test first whether the product is in STOCK. If not, raise ToolError(...) with a sentence that names the products.",
    'if product not in STOCK: raise ToolError(f"There is no {product!r}. Products: {\', \'.join(STOCK)}.")',
)
def check_1(session, stock, goods):
    """Check the error with other products, and the count of those that there are."""
    expect(goods == {"Lamp": 12, "Desk": 3, "Chair": 40}, "The stock was changed.", SAME)
    expect(prompt_of(session) == "How many Lamps are in stock?", "The question is another one.", SAME)
    first = results_of(session)[0]
    hint = "The model takes a text that is returned for the truth. An error has to be raised."
    expect(first.is_error, f"For Lamps, which there are not, the model read the result {first.text!r:.200}", hint)
    hint = "The model reads the text of the error, and nothing else. Could you tell from it what the product is called?"
    check(session).hint(hint).called("stock", product="Lamp").answered("12")
    goods["Sofa"], goods["Shelf"] = 5, 0
    try:
        _check_stock(stock)
    finally:
        del goods["Sofa"], goods["Shelf"]


def _check_stock(stock):
    for product in ("Desks", "Piano"):
        value, error = raised(stock, product=product)
        hint = "An error has to be raised for every product that is not in STOCK."
        expect(error is not None, f"For another product that there is not, stock returned {value!r:.100}", hint)
        hint = "ToolError is the error whose text is meant for the model: raise ToolError(...)."
        expect(isinstance(error, ToolError), f"stock raised a {type(error).__name__} for another product.", hint)
        hint = "The stock may change tomorrow. Take the names from STOCK, do not type them."
        named = all(one in str(error) for one in ("Lamp", "Desk", "Chair", "Sofa", "Shelf"))
        expect(named, "With other products in STOCK, the error does not name all of them.", hint)
    hint = "For a product that there is, the function returns how many there are, as before. There may be none left."
    for product, count in (("Chair", 40), ("Sofa", 5), ("Shelf", 0)):
        value, error = raised(stock, product=product)
        expect(error is None, f"For a product that there is, stock raised {error!r:.100}", hint)
        expect(re.findall(r"\d+", str(value)) == [str(count)], f"For a product that there is, stock returned {value!r:.100}", hint)


@exercise(
    "2",
    'dry = days[(days["month"] == month) & (days["rain"] == 0)], and of it only dry["day"].',
    'Return ", ".join(dry["day"].dt.strftime("%Y-%m-%d")) of that.',
)
def check_2(session, dry_days, days):
    """Check the days of other months, and of a month in which two more were dry and one nearly so."""
    expect(len(days) == 365, "The table days has other rows now.", "The function looks days up. It changes nothing.")
    check(session).called("dry_days", month="May")
    (result,) = results_of(session)
    hint = "The whole year has 365 rows. Which of them were asked for?"
    expect(len(result.text) <= MOST, f"The model was sent {len(result.text):,} characters.", hint)
    hint = "A day is a row whose month is the one that was asked for, and whose rain is 0."
    if not _days_of(result.text):
        hint = "The tool returns the days without rain, each written like 2025-01-31."
    expect(_days_of(result.text) == ["2025-05-14"], f"Of May, the model read {result.text!r:.200}", hint)
    before = days["rain"].copy()
    for day, rain in (("2025-10-08", 0.0), ("2025-10-31", 0.0), ("2025-10-20", 0.1)):
        days.loc[days["day"].astype(str) == day, "rain"] = rain
    try:
        for month in ("October", "January", "December"):
            result = session.call("dry_days", month=month)
            right = days[(days["month"] == month) & (days["rain"] == 0)]["day"].astype(str).tolist()
            hint = "Does your function look at the parameter month, and at the rain? Try it with other months."
            expect(_days_of(result.text) == right, f"Of another month, the model would read {result.text!r:.200}", hint)
            hint = "Only the days were asked for. What else is in the result?"
            expect(len(result.text) <= MOST, f"Of another month, the model would be sent {len(result.text):,} characters.", hint)
    finally:
        days["rain"] = before


def _days_of(text):
    return sorted(set(re.findall(r"\d{4}-\d{2}-\d{2}", text)))
