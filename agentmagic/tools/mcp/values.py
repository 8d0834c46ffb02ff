"""How many values a JSON text holds, counted while it comes in and without reading it.

A few megabytes of `[],[],[],...` become gigabytes of memory and seconds that nothing else can run in. 30 MB of
them took the JSON reader under us 16 s and 3.4 GB; 30 MB of one text took it 0.2 s.
"""

MOST_VALUES = 200_000
"""Values in one message."""

_QUOTE = b'"'
_BACKSLASH = b"\\"


class Values:
    """Counts about as many values as the bytes so far begin, those inside of texts not among them."""

    def __init__(self) -> None:
        self._count = 0
        self._in_text = False
        self._waiting = b""

    @property
    def too_many(self) -> bool:
        """Whether there are more than `MOST_VALUES`."""
        return self._count > MOST_VALUES

    def feed(self, chunk: bytes) -> None:
        """Count on, over the next bytes."""
        chunk = self._waiting + chunk
        trailing = len(chunk) - len(chunk.rstrip(_BACKSLASH))
        self._waiting = _BACKSLASH if trailing % 2 else b""  # what it escapes is still to come
        bare = chunk[: len(chunk) - len(self._waiting)].replace(rb"\\", b"").replace(rb"\"", b"")
        pieces = bare.split(_QUOTE)
        outside = b"".join(pieces[1 if self._in_text else 0 :: 2])
        self._count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        self._in_text ^= len(pieces) % 2 == 0
