"""Draws figures and images as Jupyter shows them, or for prompts: as PNG or JPEG of limited size, in limited time.

No library is imported to recognize a figure: the notebook has already imported the figure's library.
"""

import base64
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, tzinfo
from importlib.util import find_spec
from typing import Any, cast

from agentmagic.errors import describe
from agentmagic.host import Output
from agentmagic.messages import Media
from agentmagic.text import clip, json_line
from agentmagic.values.reprs import in_time

EDGE = 1_568
"""Largest length, in pixels, of the longer side of an image. Providers scale larger images down to about this size."""
MOST_PIXELS = 100_000_000
"""Largest number of pixels of an image that is read. A file of a few bytes can contain billions."""
LARGEST = 3_900_000
"""Largest size of an image in bytes. Providers accept up to 5 MB, as base64."""
DRAWING = 10.0
"""Largest time for drawing a figure, in seconds."""
MARGIN = 10
"""Pixels of margin around things drawn beyond the edge of a figure."""
LONGEST = 4_000
"""Largest number of characters of a figure described in words."""
MOST_TICKS = 12
"""Largest number of ticks named in the description of an axis."""
DAYS = 3
"""Days on a time axis above which its limits are written without the time of day."""
LARGEST_PNG = 1_000_000
"""Largest number of pixels of a photograph that is sent as PNG, without loss."""

_NUMBER = re.compile(r"[-\u2212+]?[\d.,]+(?:e[-+\u2212]?\d+)?|\$.*\$")
"""Matches a tick label that is a number, or a formula such as a power."""

_NEEDS = {"plotly": "kaleido", "altair": "vl_convert"}
"""The package that a library needs to draw its figures."""

_DEEP = ("F", "I", "I;16", "I;16L", "I;16B")
"""The modes of PIL images with values above 255, or with fractions."""


class NoPicture(Exception):
    """Raised when a value cannot be drawn as an image. The message says why."""


def is_picture(value: Any) -> bool:
    """Return whether a value is a figure or an image."""
    return _draw(value) is not None


def picture(value: Any, name: str) -> Media:
    """Return a figure or an image as Media. Raises NoPicture if it cannot be drawn."""
    draw = _draw(value)
    if draw is None:
        raise NoPicture("it is no figure")
    for library, package in _NEEDS.items():
        if library in _packages(value) and find_spec(package) is None:
            raise NoPicture(f"{library} draws with the package {package}, which is not installed")
    try:
        return in_time(lambda: fit_image(draw(), name), DRAWING)
    except NoPicture:
        raise
    except TimeoutError:
        raise NoPicture(f"it took longer than {DRAWING:g} s to draw") from None
    except Exception as error:
        raise NoPicture(f"{type(error).__name__}: {clip(describe(error), 200)}") from error


def fit_image(data: Any, name: str) -> Media:
    """Return an image as Media of a size that models accept. Raises NoPicture if that fails.

    `data` is an image file as bytes, or a PIL image.
    """
    if isinstance(data, bytes) and find_spec("PIL") is None:
        media = Media(_type_of(data), data, name)
    else:
        media = _encode(data, name)
    if len(media.data) > LARGEST:
        raise NoPicture(f"it has {len(media.data):,} bytes, and {LARGEST:,} is the most")
    return media


def figure_of(value: Any) -> Any:
    """Return a Matplotlib figure: the value itself, or the figure inside it, as in a seaborn grid; or None."""
    if not hasattr(cast("type[Any]", type(value)), "savefig"):
        return None
    figure: Any = value if "matplotlib" in _packages(value) else getattr(value, "figure", None)
    return figure if "matplotlib" in _packages(figure) and hasattr(figure, "savefig") else None


def shown_image(value: Any) -> Output | None:
    """Return the image that Jupyter shows for a value, or None if Jupyter shows the value in another way.

    In a notebook, a Matplotlib figure is drawn by the function that Jupyter uses below a code cell, with the user's
    settings of the inline backend. A format that models cannot read is replaced by PNG.
    """
    if isinstance(value, type):
        return None
    if (figure := figure_of(value)) is not None:
        draw = next(filter(None, (_formatter(kind, figure) for kind in _IMAGE_METHODS)), None)
        if draw is None:
            return _to_output(draw_figure(figure)) if figure.axes or figure.lines else None
        return _to_output(draw(figure))
    for method in _IMAGE_METHODS.values():
        if callable(draw := getattr(value, method, None)) and (image := _to_output(draw())):
            return image
    return _to_output(_save_png(value.savefig)) if hasattr(cast("type[Any]", type(value)), "savefig") else None


def display_width(metadata: Any) -> str:
    """Return an `<img>` tag with the width at which Jupyter shows an image, or "" if this is the image's own."""
    match metadata:
        case {"width": int(width)} if width > 0:
            return f'<img width="{width}">'
        case _:
            return ""


def draw_figure(figure: Any, **options: Any) -> bytes:
    """Return a Matplotlib figure as PNG, complete and in its own colours, as Jupyter draws it by default."""
    colours = {"facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor()}
    return _save_png(figure.canvas.print_figure, **colours, **{"dpi": figure.dpi, "bbox_inches": "tight"} | options)


_IMAGE_METHODS: Mapping[str, str] = {"image/png": "_repr_png_", "image/jpeg": "_repr_jpeg_"}
"""Image types that Jupyter shows and models can read, each with the method of a value that draws this type."""


def _formatter(kind: str, figure: Any) -> Callable[[Any], Any] | None:
    """Return the function by which the notebook draws a figure as an image of the type `kind`, or None."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    try:
        return shell.display_formatter.formatters[kind].lookup(figure)
    except (AttributeError, KeyError):  # this is not a notebook, or it does not draw this type
        return None


def _to_output(result: Any) -> Output | None:
    """Return the result of a method such as `_repr_png_` as an output, or None if the method drew nothing.

    The result is the image as bytes or base64, alone or in a tuple with metadata.
    """
    data, metadata = cast("tuple[Any, Any]", result) if isinstance(result, tuple) else (result, None)
    data = base64.b64decode(data) if isinstance(data, str) else data
    return (Media(_type_of(data), data), display_width(metadata)) if isinstance(data, bytes) else None


def describe_figure(value: Any) -> str:
    """Return a description of a figure in words, for models that cannot see images, or "" if that fails."""
    with suppress(Exception):  # any library can raise here, and the description is optional
        return clip(in_time(lambda: "\n".join(_descriptions(value)), 1.0), LONGEST)
    return ""


def _packages(value: Any) -> set[str]:
    kinds = () if isinstance(value, type) else type(value).__mro__
    return {kind.__module__.partition(".")[0] for kind in kinds}


def _draw(value: Any) -> Callable[[], Any] | None:
    """Return a function that draws a value as a PIL image or as bytes, or None if the value is not a figure."""
    packages, kind = _packages(value), cast("type[Any]", type(value))
    if isinstance(value, type):
        return None
    if "PIL" in packages and hasattr(kind, "thumbnail"):
        return lambda: value
    if "plotly" in packages and hasattr(kind, "to_image"):
        return lambda: value.to_image(format="png")
    if "altair" in packages and hasattr(kind, "save"):
        return lambda: _save_png(value.save)
    if "matplotlib" in packages and not hasattr(kind, "savefig"):  # axes, or an object drawn on axes
        value = getattr(value, "figure", None)
        kind = cast("type[Any]", type(value))
    if hasattr(kind, "savefig"):
        return lambda: _draw_bounded(value)
    draw = getattr(kind, "_repr_png_", None) or getattr(kind, "_repr_jpeg_", None)
    return (lambda: _bytes(draw(value))) if draw is not None else None


def _draw_bounded(value: Any) -> bytes:
    """Return a figure as PNG.

    The longer side of a Matplotlib figure has at most 1,568 pixels (`EDGE`). This includes everything that is drawn
    outside the figure's area.
    """
    if (figure := figure_of(value)) is None:
        return _save_png(value.savefig)
    figure.draw_without_rendering()  # computes the layout
    own, tight_box = figure.bbox_inches, figure.get_tightbbox()
    box = own.union([own, tight_box])
    is_beyond = bool((box.extents != own.extents).any())
    dpi = min(figure.dpi, (EDGE - 2 * MARGIN * is_beyond) / max(box.size))
    return draw_figure(figure, dpi=dpi, bbox_inches=box.padded(MARGIN / dpi) if is_beyond else box)


def _save_png(save: Callable[..., Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, format="png", **options)
    return buffer.getvalue()


def _bytes(result: Any) -> bytes:
    # A method such as `_repr_png_` can return a tuple with metadata.
    data = cast("tuple[Any, ...]", result)[0] if isinstance(result, tuple) else result
    if not isinstance(data, bytes):
        raise NoPicture("it draws itself as nothing")
    return data


def _type_of(data: bytes) -> str:
    return "image/jpeg" if data.startswith(b"\xff\xd8") else "image/png"


def _encode(data: Any, name: str) -> Media:
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data)) if isinstance(data, bytes) else data
    except UnidentifiedImageError:
        return Media(_type_of(data), data, name)
    if image.width * image.height > MOST_PIXELS:
        raise NoPicture(f"it has {image.width:,} x {image.height:,} pixels")
    if isinstance(data, bytes) and max(image.size) <= EDGE and image.format in ("PNG", "JPEG"):
        return Media(f"image/{image.format.lower()}", data, name)
    if isinstance(data, bytes):
        image.draft(None, (EDGE, EDGE))  # read a JPEG at about the size that is needed
    if image.mode in _DEEP:
        image = _to_grey(image.convert("F"))
    mode = "RGBA" if image.has_transparency_data else "L" if image.mode in ("1", "L") else "RGB"
    image = image if image.mode == mode else image.convert(mode)
    if (scale := EDGE / max(image.size)) < 1:
        size = [max(round(side * scale), 1) for side in image.size]
        # Premultiply the colours, because otherwise PIL ignores `reducing_gap` for an image with transparency.
        image = image.convert("RGBa") if mode == "RGBA" else image
        # Not `thumbnail`, because it changes the image in place, and the image can belong to the user.
        image = image.resize(size, Image.Resampling.HAMMING, reducing_gap=1.1).convert(mode)
    if image.mode == "RGB" and image.width * image.height > LARGEST_PNG:  # a photograph
        return Media("image/jpeg", _save_jpeg(image), name)
    data = _save_png(image.save, compress_level=1)
    if len(data) > LARGEST:
        white = Image.new("RGBA", image.size, "white")
        return Media("image/jpeg", _save_jpeg(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")), name)
    return Media("image/png", data, name)


def _save_jpeg(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _to_grey(image: Any) -> Any:
    """Return an image of floats as an image of 256 greys. Its values are stretched to this range if needed."""
    low, high = image.getextrema()
    if low >= 0 and 1 < high <= 255:  # noqa: PLR2004  (it fits as it is)
        return image.convert("L")
    scale = 255 / (high - low or 1)

    def grey(value: Any) -> Any:
        return value * scale - low * scale

    return image.point(grey).convert("L")


def _descriptions(value: Any) -> Iterator[str]:
    packages = _packages(value)
    if "plotly" in packages:
        layout = value.layout
        yield f"title: {layout.title.text}"
        for trace in value.data[:20]:
            yield f"{trace.type}: {trace.name or ''}"
        yield f"axes: {layout.xaxis.title.text}, {layout.yaxis.title.text}"
    elif "altair" in packages:
        chart = value.copy(deep=False)
        with suppress(AttributeError, TypeError):
            chart.data = sys.modules["altair"].Undefined
        spec = {key: item for key, item in chart.to_dict(validate=False).items() if key not in ("config", "datasets")}
        yield json_line(spec)
    elif "matplotlib" in packages:
        for axes in getattr(value, "figure", value).axes[:20]:
            yield f"title: {axes.get_title()}"
            yield f"x: {_axis(axes.xaxis)}; y: {_axis(axes.yaxis)}"
            labels = [artist.get_label() for artist in (*axes.lines, *axes.collections, *axes.containers)]
            yield f"drawn: {', '.join(label for label in labels if not label.startswith('_'))}"
    elif "PIL" in packages:
        yield f"{value.width} x {value.height} pixels, {value.mode}"


def _axis(axis: Any) -> str:
    """Return the label of a Matplotlib axis, its limits, and its ticks unless they are all numbers."""
    low, high = axis.get_view_interval()
    ticks = [text for tick in axis.get_ticklabels() if (text := tick.get_text().replace("\n", " ").strip())]
    labels = ticks if any(not _NUMBER.fullmatch(text) for text in ticks) else []
    suffix = f" (ticks: {', '.join(labels[:MOST_TICKS])}{', …' * (len(labels) > MOST_TICKS)})" if labels else ""
    return f"{axis.get_label_text()} from {_place(axis, low, high)} to {_place(axis, high, low)}{suffix}"


def _place(axis: Any, place: float, other: float) -> str:
    """Return a position on an axis as text. A date has its time only if the position `other` is near."""
    if (freq := getattr(axis, "freq", None)) is not None:  # pandas numbers the periods on this axis
        return str(sys.modules["pandas"].Period(ordinal=int(place), freq=freq))
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    if "Date" not in type(converter).__name__:
        return f"{place:g}"
    zone = axis.get_units()
    day: datetime = sys.modules["matplotlib.dates"].num2date(place, zone if isinstance(zone, tzinfo) else None)
    return f"{day:%Y-%m-%d}" if abs(place - other) > DAYS else f"{day:%Y-%m-%d %H:%M}"
