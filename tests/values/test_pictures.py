"""Figures and images for models that see, and in words for those that do not."""

import base64
import io
import time

import altair as alt
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from IPython.display import Image as Display
from matplotlib.figure import Figure
from PIL import Image

from agentmagic.values import pictures
from agentmagic.values.pictures import (
    EDGE,
    LARGEST,
    PLOTLY,
    NoPicture,
    chart_of,
    chart_part,
    describe_figure,
    is_picture,
    picture,
    shown_image,
)

FRAME = pd.DataFrame({"day": [1, 2], "sold": [3, 4]})


def matplotlib_figure(inches=(6, 4)):
    figure = Figure(figsize=inches)
    axes = figure.subplots()
    axes.plot([1, 2], [3, 5], label="Oslo")
    axes.set(title="Sales", xlabel="day", ylabel="sold")
    return figure


class Grid:
    """Saves a figure as the grids of seaborn do."""

    def __init__(self):
        self.figure = matplotlib_figure()

    def savefig(self, *_, **options):
        raise AssertionError("the figure is drawn as Jupyter does it")


class Drawing:
    def __init__(self, drawn):
        self.drawn = drawn

    def _repr_png_(self):
        return self.drawn


def saved(image, form="PNG"):
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def opened(value):
    media = picture(value, "fig")
    assert media.name == "fig"
    assert len(media.data) <= LARGEST
    image = Image.open(io.BytesIO(media.data))
    assert media.media_type == f"image/{image.format.lower()}"
    image.load()
    return image


PIXEL, JPEG = (saved(Image.new("L", (9, 9)), form) for form in ("PNG", "JPEG"))
ENCODED = base64.b64encode(PIXEL).decode("ascii")
FIGURES = {
    "Matplotlib": (matplotlib_figure, (600, 400)),
    "Altair": (lambda: alt.Chart(FRAME).mark_line().encode(x="day", y="sold"), None),
    "a grid of seaborn": (Grid, (600, 400)),
    "PIL": (lambda: Image.new("RGB", (30, 20)), (30, 20)),
    "PIL with transparency": (lambda: Image.new("RGBA", (3000, 2)), (EDGE, 1)),
    "what draws itself with metadata": (lambda: Drawing((PIXEL, {})), (9, 9)),
}


@pytest.mark.parametrize(("make", "size"), FIGURES.values(), ids=FIGURES.keys())
def test_a_figure_becomes_an_image_of_a_bounded_size(make, size):
    image = opened(make())
    assert size is None or image.size == size
    assert max(image.size) <= EDGE


def test_an_image_of_4000_by_4000_pixels_is_scaled_in_time():
    noise = np.random.default_rng(1).integers(0, 255, (4000, 4000, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    began = time.perf_counter()
    assert opened(image).size == (EDGE, EDGE)
    assert time.perf_counter() - began < 2
    assert image.size == (4000, 4000)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: go.Figure(go.Bar(y=[1])), "plotly draws with the package kaleido, which is not installed"),
        (lambda: Drawing(None), "it draws itself as nothing"),
        (lambda: Image.new("1", (20_000, 20_000)), "it has 20,000 x 20,000 pixels"),
        (lambda: 3, "it is no figure"),
    ],
)
def test_a_figure_that_cannot_be_drawn_says_why(make, why):
    with pytest.raises(NoPicture, match=why):
        picture(make(), "fig")


def test_a_figure_that_takes_too_long_is_given_up(monkeypatch):
    class Endless:
        def _repr_png_(self):
            while True:
                pass

    monkeypatch.setattr(pictures, "DRAWING", 0.1)
    with pytest.raises(NoPicture, match="longer than"):
        picture(Endless(), "fig")


def shown_of(value):
    output = shown_image(value)
    assert output is not None
    return output


def is_whole(image):
    """Whether nothing is cut off at an edge: the outermost pixels have the colour of the paper."""
    pixels = np.asarray(image.convert("RGB"))
    edges = (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])
    return all((edge == 255).all() for edge in edges)


def test_a_figure_in_a_prompt_and_of_a_tool_is_whole():
    figure = matplotlib_figure((60, 40))
    axes = figure.axes[0]
    axes.set_yticks([3, 5], ["Bergen by the sea in the rain", "Oslo"])
    axes.set_title("one\ntwo\nthree\nfour\nfive")
    axes.set_xlabel("one\ntwo\nthree\nfour")
    axes.legend(loc="upper left", bbox_to_anchor=(1.1, 1))
    axes.annotate("here", (1, 3), (1.3, 1.3), xycoords="axes fraction")
    image = opened(axes)
    assert is_whole(image)
    assert max(image.size) <= EDGE
    media, html = shown_of(figure)
    assert is_whole(Image.open(io.BytesIO(media.data)))
    assert html == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Drawing(PIXEL), (PIXEL, "")),
        (Drawing((ENCODED, {"width": "20"})), (PIXEL, "")),
        (Display(PIXEL, width=30), (PIXEL, '<img width="30">')),
        (Display(JPEG, format="jpeg"), (JPEG, "")),
    ],
)
def test_an_image_is_shown_as_it_draws_itself(value, shown):
    media, html = shown_of(value)
    assert (media.data, html) == shown
    assert media.media_type == ("image/jpeg" if media.data == JPEG else "image/png")


@pytest.mark.parametrize(
    ("value", "may_draw"),
    [
        (pd.DataFrame({"savefig": [1]}), False),
        (Drawing, False),
        (Drawing(None), True),
        (Figure(), True),
    ],
)
def test_what_draws_nothing_is_shown_in_another_way(value, may_draw):
    assert shown_image(value) is None
    assert is_picture(value) == may_draw


def drawn(draw):
    """A figure with axes on which a function has drawn."""
    figure = Figure()
    draw(figure.subplots())
    return figure


DAYS = pd.date_range("2026-01-01", periods=90)
HOURS = pd.date_range("2026-01-01", periods=9, freq="h")


def zoned(axes):
    axes.plot(DAYS.tz_localize("UTC").tz_convert("Asia/Tokyo")[:1].repeat(2), [0, 1])
    axes.set_xlim(*(pd.Timestamp(f"2026-01-0{day}", tz="Asia/Tokyo") for day in (1, 2)))


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda axes: axes.plot(DAYS, range(90)), "x:  from 2025-12-27 to 2026-04-04 (ticks: 2026-01-01, 2026-01-15, "),
        (lambda axes: axes.plot(HOURS, range(9)), "x:  from 2025-12-31 23:36 to 2026-01-01 08:24 (ticks: "),
        (lambda axes: axes.plot(range(90), DAYS), "y:  from 2025-12-27 to 2026-04-04 (ticks: "),
        (zoned, "x:  from 2026-01-01 00:00 to 2026-01-02 00:00 (ticks: "),
        (lambda axes: pd.Series(range(90), DAYS).plot(ax=axes), "x:  from 2026-01-01 to 2026-03-31 (ticks: Jan 2026, "),
        (
            lambda axes: axes.bar(["Oslo", "Bergen"], [1, 2]),
            "x:  from -0.49 to 1.49 (ticks: Oslo, Bergen); y:  from 0 to 2.1",
        ),
        (lambda axes: axes.bar([*map(str, DAYS.date)], 1), ", …)"),
    ],
)
def test_the_axes_of_a_figure_in_words_have_dates_and_names_rather_than_their_numbers(draw, words):
    assert words in describe_figure(drawn(draw))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (matplotlib_figure(), ["title: Sales", "x: day from 0.95", "drawn: Oslo"]),
        (go.Figure(go.Bar(y=[1], name="Oslo"), layout={"title": {"text": "Sales"}}), ["title: Sales", "bar: Oslo"]),
        (alt.Chart(FRAME, title="Sales").mark_line().encode(x="day:Q", y="sold:Q"), ['"Sales"', '"field": "sold"']),
        (Image.new("RGB", (30, 20)), ["30 x 20 pixels, RGB"]),
        (Drawing(b""), [""]),
    ],
)
def test_a_figure_can_be_told_in_words(value, words):
    told = describe_figure(value)
    assert all(part in told for part in words)
    assert "datasets" not in told


@pytest.mark.parametrize("values", [np.uint16([[0, 32768, 65535]]), np.int32([[-5, 0, 5]]), np.float32([[0, 0.5, 1]])])
def test_an_image_of_large_or_fractional_values_is_drawn_from_black_to_white(values):
    assert [*opened(Image.fromarray(values)).get_flattened_data()] == [0, 127, 255]


def long_chart():
    return go.Figure(go.Scatter(x=np.arange(3000), y=["a" * 900] * 3000, name="growth"))


def test_the_specification_of_a_long_chart_in_words_names_the_first_values():
    told = describe_figure(long_chart())
    assert '"x": [0, 1, 2, 3, 4, "… (2,995 more)"]' in told
    assert "template" not in told
    assert len(told) < 2_000


@pytest.mark.parametrize(
    ("value", "data", "is_chart"),
    [
        (alt.Chart(FRAME).mark_line(), {"text/html": "<div>"}, True),
        (None, {PLOTLY: long_chart().to_plotly_json()}, True),
        (None, {PLOTLY: {"data": 3, "layout": []}}, False),
        (None, {PLOTLY: "no object"}, False),
        (alt.Chart, {}, False),
        (FRAME, {"text/html": "<table>"}, False),
    ],
)
def test_a_chart_is_known_by_its_display(value, data, is_chart):
    assert (chart_of(value, data) is not None) == is_chart


def test_a_chart_is_a_picture_for_the_model_alone_or_else_its_specification():
    drawn_chart = chart_part(alt.Chart(FRAME).mark_line().encode(x="day:Q", y="sold:Q"))
    assert (drawn_chart.media_type, drawn_chart.audience) == ("image/png", "assistant")
    told = chart_part(long_chart()).text
    assert "kaleido, which is not installed" in told
    assert '"name": "growth"' in told
    assert "would take too long" in chart_part(alt.Chart(FRAME).mark_line(), draw=False).text
