"""Makes attachments from the values that a prompt names. Each has a message part for the model and a line for the user.

Secrets are blanked in both. The part for the model keeps text that only looks like a secret, because a wrong
guess would damage the text that the model reads.
"""

import mimetypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from agentmagic import errors
from agentmagic.context.request_view import FRAME, tokens_of_message
from agentmagic.errors import UsageError
from agentmagic.events import PromptValue, ValueKind
from agentmagic.messages import Content, Media, Resource, Text, user
from agentmagic.plain_files import decode_text, open_plain
from agentmagic.providers.catalog import ModelInfo
from agentmagic.secrets import learn, redact
from agentmagic.text import cut, plural, sanitize, single_line
from agentmagic.tools.calling import traceback_text
from agentmagic.values import frames, labelled_arrays
from agentmagic.values.describe import BUDGET, CHARACTERS, CUT, describe, schema, summary
from agentmagic.values.pictures import NoPicture, describe_figure, fit_image, is_picture, picture
from agentmagic.values.reprs import LONGEST_SECRET, in_time

ONE_LINE = 60
"""Maximum number of characters of a value that are shown to the user on one line."""
LARGEST_FILE = 20_000_000
"""Maximum number of bytes of an image or a document that can be attached."""
SCHEMA = "schema"
"""The format, as in `{df:schema}`, that sends only the names and types of a value."""

UNKNOWN = ModelInfo("the model", None, frozenset(), priced=True)
"""Placeholder for the model if the prompt is not sent to a model."""

_TYPES = mimetypes.MimeTypes()
"""Media types of file names, from Python's own table. On Windows, the registry would call a CSV file an Excel file."""
_TYPES.add_type("text/markdown", ".md")
_PNG = Media("image/png", b"")
_SIGNATURES = {b"%PDF-": "application/pdf", b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""First bytes of documents and images, with their media types."""
_UNDERLINES = re.compile(r"(?m)^[ |]*[~^][ ~^]*\n")  # Traceback lines of ~ and ^, which depend on Python's version.
_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {"r": repr, "s": str, "a": ascii}
_LEFT_OUT = re.compile(r"… \((?:cut: [\d,]+ in all|[\d,]+ more)\)")
"""Text that a repr contains in place of the parts that it leaves out."""
_HUGE = re.compile(r"\d{5,}")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A value that is sent with a prompt: `value` describes it for the user, and `part` is sent to the model.

    `loss` is a phrase that says why the model does not get the whole value: the value is too long, or is an image or
    document that the model does not read. It is "" if the model gets everything that the user expects.
    """

    value: PromptValue
    part: Content
    loss: str = ""


@dataclass(frozen=True, slots=True)
class Attacher:
    """Makes attachments for a model. With `schema_only`, only names and types are sent, and no values.

    `model` returns the properties of the model, such as whether it accepts images; it is called when an image or a
    document is attached. `budget` is the approximate maximum number of tokens for one value.
    """

    model: Callable[[], ModelInfo]
    schema_only: bool = False
    budget: int = BUDGET

    def attach_formatted(self, reference: str, name: str, value: Any, conversion: str, spec: str) -> Attachment:
        """Return the attachment for `{expression!conversion:spec}` in a prompt, as in an f-string.

        Raises UsageError if the format is invalid, and passes on every exception that formatting the value raises.
        """
        if self.schema_only or spec == SCHEMA:
            return self.attach(reference, name, value, only_schema=True)
        if not conversion and spec and frames.is_frame(value):
            if not spec.isdecimal():
                raise UsageError(f"a data frame takes a number of rows or {SCHEMA}, as in {{{name}:50}}")
            return self.attach(reference, name, value, rows=int(spec))
        if conversion or spec:
            if _HUGE.search(spec):
                raise UsageError("the format asks for more characters than a prompt should hold")
            change = _CONVERSIONS.get(conversion)
            value = in_time(lambda: format(change(value) if change else value, spec))
        return self.attach(reference, name, value)

    def attach(  # noqa: PLR0913  (how the value is named and sent)
        self,
        reference: str,
        name: str,
        value: Any,
        *,
        rows: int | None = None,
        only_schema: bool = False,
        uri: str = "",
    ) -> Attachment:
        """Return the attachment for a value, as an image, a document or text. With a `uri`, the text is a resource."""
        if isinstance(value, str):
            learn(name, value[:LONGEST_SECRET])
        if self.schema_only or only_schema:
            line = f"{summary(value)}: names and types"
            return _attachment(reference, SCHEMA, line, name, schema(value), uri)
        if isinstance(value, BaseException):
            return _attachment(reference, "error", type(value).__name__, name, _traceback(value), uri)
        if is_picture(value):
            return self._picture(reference, name, value, uri)
        if (media := _media_of(value)) is not None:
            line = f"{media.media_type}, {plural(len(media.data), 'byte')}"
            return self._media(reference, media.name or name, media.data, media.media_type, line, uri=uri)
        kind: ValueKind = "text"
        if frames.is_frame(value) or labelled_arrays.is_labelled_array(value):
            kind = "table"
        elif isinstance(value, type) or callable(value):
            kind = "code"
        text = describe(value, self.budget, rows=rows)
        line = summary(value) if kind != "text" or "\n" in text or len(text) > ONE_LINE else text
        attachment = _attachment(reference, kind, line, name, text, uri)
        return replace(attachment, loss=_loss(value, text, self.budget * CHARACTERS)) if kind == "text" else attachment

    def output(self, reference: str, name: str, text: str, kind: ValueKind = "text") -> Attachment:
        """Return the attachment for the source of a cell, or for the text of its output."""
        line = plural(text.rstrip().count("\n") + 1, "line")
        if self.schema_only:
            return _attachment(reference, SCHEMA, f"{line}, not sent", name, f"({name}: {line}.)", f"cell:{name}")
        return _attachment(reference, kind, line, name, cut(text.rstrip(), BUDGET * CHARACTERS, CUT), f"cell:{name}")

    def image(self, reference: str, name: str, data: bytes, kind: str) -> Attachment:
        """Return the attachment for an image in the output of a cell. Raises UsageError for an unreadable image."""
        line = f"{kind}, {plural(len(data), 'byte')}"
        if self.schema_only:
            return _attachment(reference, SCHEMA, f"{line}, not sent", name, f"({name}: {line}.)", f"cell:{name}")
        return self._media(reference, name, data, kind, line)

    def file(self, reference: str, path: Path, name: str) -> Attachment:
        """Return the attachment for a file. An image or a PDF document is sent as it is, and any other file as text.

        A text that is too long is cut. With `schema_only`, only the name, type and size are attached. Raises UsageError
        if the file or its image cannot be read, if an image or a PDF is too large, or if any other file is not text.
        """
        try:
            return self._read_file(reference, path, name)
        except OSError as error:
            raise UsageError(f"it cannot be read: {error.strerror or error}") from error

    def upload(self, name: str, data: bytes) -> Attachment:
        """Return the attachment for the content of a file that the front end sends.

        Raises UsageError if it is too large, or is neither text nor an image or a document.
        """
        name = single_line(sanitize(name), ONE_LINE)
        try:
            return self._file(name, name, len(data), BytesIO(data))
        except UsageError as problem:
            raise UsageError(f"{name} is not attached: {problem}.") from problem

    def _read_file(self, reference: str, path: Path, name: str) -> Attachment:
        with open_plain(path) as file:
            return self._file(reference, name, path.stat().st_size, file)

    def _file(self, reference: str, name: str, size: int, file: IO[bytes]) -> Attachment:
        kind = _TYPES.guess_type(name, strict=False)[0] or "text/plain"
        line = f"{kind}, {plural(size, 'byte')}"
        if self.schema_only:
            return _attachment(reference, SCHEMA, line, name, f"{name}: {line}", f"file:{name}")
        if kind.startswith("image/") or kind == "application/pdf":
            if size > LARGEST_FILE:
                raise UsageError(f"it has {size:,} bytes, and {LARGEST_FILE:,} is the most")
            return self._media(reference, name, file.read(), kind, line)
        most = BUDGET * CHARACTERS
        start = file.read(4 * most)  # `most` is in characters, which have up to 4 bytes each.
        text = decode_text(start, "replace")
        if "\0" in text:
            raise UsageError("it is no text, and no image")
        if size > len(start) or len(text) > most:
            text = f"{text[:most]}\n(cut: {size:,} bytes in all, the first {most:,} characters shown)"
        return _attachment(reference, "file", line, name, text, f"file:{name}")

    def _picture(self, reference: str, name: str, value: Any, uri: str) -> Attachment:
        try:
            media = picture(value, name) if self.model().accepts(_PNG) else None
            problem = f"{self.model().name} sees no images"
        except NoPicture as error:
            media, problem = None, str(error)
        if media is None:
            why = f"{summary(value)}, in words: {problem}"
            attachment = _attachment(reference, "text", why, name, f"({why}.)\n{describe_figure(value)}".rstrip(), uri)
            return replace(attachment, loss=f"is an image: {problem}")
        return _image(reference, media, f"{summary(value)} as an image")

    def _media(  # noqa: PLR0913  (what it is, and how it is named)
        self, reference: str, name: str, data: bytes, kind: str, line: str, *, uri: str | None = None
    ) -> Attachment:
        media = Media(kind, data, name)
        if not self.model().accepts(media):
            why = f"{line}, not sent: {self.model().name} does not read it"
            attachment = _attachment(reference, "text", why, name, f"({why}.)", f"file:{name}" if uri is None else uri)
            return replace(attachment, loss=f"is {kind}, which {self.model().name} does not read")
        if kind.startswith("image/"):
            try:
                media = in_time(lambda: fit_image(data, name), seconds=10)
            except (NoPicture, TimeoutError) as problem:
                raise UsageError(str(problem)) from problem
            if not media.data.startswith((b"\x89PNG", b"\xff\xd8")):
                raise UsageError("it is no image that can be read")
        return _image(reference, media, line)


def _attachment(reference: str, kind: ValueKind, line: str, name: str, text: str, uri: str) -> Attachment:  # noqa: PLR0913
    text = redact(text, keep_likely=True)
    part = Resource(uri, name, "text/plain", text) if uri else Text(text)
    value = PromptValue(reference, kind, single_line(sanitize(line), 2 * ONE_LINE), _tokens(part), sanitize(text))
    return Attachment(value, part)


def _media_of(value: Any) -> Media | None:
    """Return a value as `Media` if it is one, or is the bytes of an image or a document. Otherwise return None."""
    if isinstance(value, Media):
        return value
    kinds = (kind for start, kind in _SIGNATURES.items() if isinstance(value, bytes) and value.startswith(start))
    kind = next(kinds, None)
    return None if kind is None else Media(kind, value)


def _loss(value: Any, text: str, most: int) -> str:
    """Return a phrase that says that the value is longer than its `text`, or "" if `text` has the whole value."""
    is_cut = len(value) > most if isinstance(value, str) else _LEFT_OUT.search(text) is not None
    return f"is longer than the {most:,} characters that a prompt takes of one value" if is_cut else ""


def _tokens(part: Content) -> int:
    return tokens_of_message(user(part)) - FRAME


def _image(reference: str, media: Media, line: str) -> Attachment:
    value = PromptValue(reference, "image", single_line(sanitize(line), 2 * ONE_LINE), _tokens(media), "")
    return Attachment(value, media)


def _traceback(error: BaseException) -> str:
    """Return a traceback without IPython's own frames. Its text does not depend on the version of Python.

    The reprs of values in it can be slow, so the time to format the traceback is limited.
    """
    text = in_time(lambda: traceback_text(error), seconds=1) or f"{type(error).__name__}: {errors.describe(error)}"
    return cut(_UNDERLINES.sub("", text).rstrip(), BUDGET * CHARACTERS, CUT)
