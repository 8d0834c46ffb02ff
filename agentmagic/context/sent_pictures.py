"""Makes the pictures of a history small enough for the provider, wherever they came from. The history stays as it is.

A provider refuses a picture that is too large, and would refuse it in each later turn too.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec

from agentmagic.messages import Media, Message, Text, ToolResult, as_text
from agentmagic.values.pictures import NoPicture, fit_image


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """What a provider takes: pixels of the longer side, bytes of one picture, and pictures and bytes of a request.

    Bytes are counted before the encoding in base64, which makes a third more of them.
    """

    side: int = 2_000
    size: int = 3_900_000
    count: int = 100
    total: int = 14_000_000


_DEFAULT = PictureLimits()
"""The limits for servers that are not in the table: the lowest that are common."""

LIMITS = {
    # https://platform.claude.com/docs/en/build-with-claude/vision, 2026-11: 5 MB in base64, 8,000 pixels, but 2,000 if
    # a request has more than 20 pictures; 100 pictures and 32 MB a request. A picture is sent as small from the first
    # request on as the 21st would need it, so that what was sent before never changes.
    "anthropic": PictureLimits(total=23_000_000),
    # https://developers.openai.com/api/docs/guides/images-vision, 2026-11: 500 pictures and 50 MB a request, and larger
    # pictures are scaled down to 2,048 pixels.
    "openai": PictureLimits(side=2_048, count=500, total=36_000_000),
    # https://ai.google.dev/gemini-api/docs/image-understanding, 2026-11: 20 MB a request with all that is in it;
    # Vertex AI: 7 MB a picture.
    "gemini": PictureLimits(side=3_072, count=900),
}
NO_PILLOW = (
    "A picture is too large for the model and is only named to it: nothing here can make it smaller. Run: "
    "pip install pillow"
)


def limits_for(provider: str) -> PictureLimits:
    """Return the limits of a provider."""
    return LIMITS.get(provider, _DEFAULT)


class SentPictures:
    """The pictures of one conversation in the form in which they are sent. Each is made smaller only once."""

    def __init__(self) -> None:
        self._notice: str | None = None
        self._fitted: dict[tuple[Media, PictureLimits], Media | Text] = {}

    def fit(self, media: Media, limits: PictureLimits) -> Media | Text:
        """Return the picture to send: the same object if it is small enough. Text names what cannot be made smaller.

        This can take a second, so it is called in a thread first, for all pictures of a request.
        """
        if not media.media_type.startswith("image/") or _is_small(media, limits):
            return media
        fitted = self._fitted.get((media, limits))
        if fitted is None:
            fitted = self._fitted[media, limits] = self._make_small(media, limits)
        return fitted

    def take_notice(self) -> str:
        """Return a sentence for the user about pictures that are not sent, once, or else ""."""
        notice = self._notice or ""
        self._notice = "" if notice else self._notice
        return notice

    def _make_small(self, media: Media, limits: PictureLimits) -> Media | Text:
        if find_spec("PIL") is None:
            self._notice = NO_PILLOW if self._notice is None else self._notice
            return Text(f"{as_text(media)} (not sent: it is too large)")
        try:
            small = fit_image(media.data, media.name)
        except NoPicture as error:
            return Text(f"{as_text(media)} (not sent: {error})")
        small = replace(small, audience=media.audience)
        return small if _is_small(small, limits) else Text(f"{as_text(media)} (not sent: it is too large)")


def pictures_in(messages: Iterable[Message]) -> Iterator[Media]:
    """Yield the images in messages, and in the tool results in them."""
    for message in messages:
        for part in message.parts:
            for inner in part.content if isinstance(part, ToolResult) else (part,):
                if isinstance(inner, Media) and inner.media_type.startswith("image/"):
                    yield inner


def _is_small(media: Media, limits: PictureLimits) -> bool:
    return len(media.data) <= limits.size and max(pixels(media.data)) <= limits.side


def pixels(data: bytes) -> tuple[int, int]:
    """Return the width and height of a PNG, GIF or JPEG file from its header; (0, 0) for other data.

    PNG: https://www.w3.org/TR/png/#11IHDR. GIF: https://www.w3.org/Graphics/GIF/spec-gif89a.txt. JPEG: ITU-T T.81, B.2.
    """
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return struct.unpack(">II", data[16:24])
        if data.startswith(b"GIF8"):
            return struct.unpack("<HH", data[6:10])
        return _jpeg_pixels(data) if data.startswith(b"\xff\xd8") else (0, 0)
    except (struct.error, IndexError):  # cut off
        return 0, 0


def _jpeg_pixels(data: bytes) -> tuple[int, int]:
    place = 2
    while data[place] == 0xFF:  # noqa: PLR2004  (the first byte of each marker)
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004  (a frame header)
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + struct.unpack(">H", data[place + 2 : place + 4])[0]
    return 0, 0
