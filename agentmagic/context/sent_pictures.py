"""Makes the pictures of a history small enough for the provider, wherever they came from. The history stays as it is.

A provider refuses a picture that is too large, and would refuse it in each later turn too.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec

from agentmagic.messages import Media, Message, Text, as_text, change_parts, media_of, value_class
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
TYPES = frozenset(f"image/{name}" for name in ("png", "jpeg", "jpg", "gif", "webp", "heic", "heif"))
"""The types that at least one provider reads. Pictures of other types are sent as PNG or JPEG."""
NO_PILLOW = (
    "A picture is too large for the model, or of a type that it does not read, and is only named to it: nothing here "
    "can convert it. Run: pip install pillow"
)


def limits_for(provider: str) -> PictureLimits:
    """Return the limits of a provider."""
    return LIMITS.get(provider, _DEFAULT)


@value_class
class SmallPicture(Media):
    """A picture that was made small for a provider; `original` is the picture of the history."""

    original: Media = field(default=Media("", b""), repr=False, compare=False)


class SentPictures:
    """The pictures of one conversation in the form in which they are sent. Each is made smaller only once.

    If `is_played`, nothing is sent, because a recording answers. Then a missing Pillow does not matter.
    """

    def __init__(self) -> None:
        self.is_played = False
        self._is_pillow_missed = False
        self._has_told = False
        self._fitted: dict[tuple[Media, PictureLimits], Media | Text] = {}

    def fit(self, media: Media, limits: PictureLimits) -> Media | Text:
        """Return the picture to send: the same object if it is small enough. Text names what cannot be made smaller.

        This can take a second, so it is called in a thread first, for all pictures of a request.
        """
        if not media.media_type.startswith("image/") or _is_small(media, limits):
            return media
        if self.is_played and find_spec("PIL") is None:
            return media
        fitted = self._fitted.get((media, limits))
        if fitted is None:
            fitted = self._fitted[media, limits] = self._make_small(media, limits)
        return fitted

    def take_notice(self) -> str:
        """Return a sentence for the user about pictures that are not sent, once, or else ""."""
        if self._has_told or not self._is_pillow_missed:
            return ""
        self._has_told = True
        return NO_PILLOW

    def _make_small(self, media: Media, limits: PictureLimits) -> Media | Text:
        if find_spec("PIL") is None:
            self._is_pillow_missed = True
            return _left_out(media)
        try:
            small = fit_image(media.data, media.name)
        except NoPicture as error:
            return Text(f"{as_text(media)} (not sent: {error})")
        small = SmallPicture(small.media_type, small.data, small.name, media.audience, media)
        return small if _is_small(small, limits) and pixels(small.data) != (0, 0) else _left_out(media)


def pictures_in(messages: Iterable[Message]) -> list[Media]:
    """Return the images in messages, and in the tool results in them."""
    return [media for message in messages for media in media_of(message) if media.media_type.startswith("image/")]


def with_originals(message: Message) -> Message:
    """Return a message of a request with the pictures of the history: the same object if none was made small."""
    return change_parts(message, lambda part: part.original if isinstance(part, SmallPicture) else part)


def _left_out(media: Media) -> Text:
    reason = "it is too large" if media.media_type in TYPES else "models do not read its type"
    return Text(f"{as_text(media)} (not sent: {reason})")


def _is_small(media: Media, limits: PictureLimits) -> bool:
    is_small = len(media.data) <= limits.size and max(pixels(media.data)) <= limits.side
    return is_small and media.media_type.lower() in TYPES


def pixels(data: bytes) -> tuple[int, int]:
    """Return the width and height of a PNG, GIF, WebP or JPEG file from its header; (0, 0) for other data.

    PNG: https://www.w3.org/TR/png/#11IHDR. GIF: https://www.w3.org/Graphics/GIF/spec-gif89a.txt. JPEG: ITU-T T.81, B.2.
    WebP: https://developers.google.com/speed/webp/docs/riff_container.
    """
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return struct.unpack(">II", data[16:24])
        if data.startswith(b"GIF8"):
            return struct.unpack("<HH", data[6:10])
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp_pixels(data)
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


def _webp_pixels(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":  # two numbers of 24 bits, each one less than the side
            low_width, high_width, low_height, high_height = struct.unpack("<HBHB", data[24:30])
            return low_width + (high_width << 16) + 1, low_height + (high_height << 16) + 1
        case b"VP8L":  # two numbers of 14 bits, each one less than the side
            (sides,) = struct.unpack("<I", data[21:25])
            return (sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1
        case b"VP8 ":  # two numbers of 14 bits, each with two bits for a scale
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return 0, 0
