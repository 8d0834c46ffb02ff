"""Attaches a cell's output to a prompt about it: for "Ask about this", "Explain" and "Fix" in JupyterLab.

The browser page sends the cell's source and the outputs that the page shows. If the kernel still has the values of the
cell, the values are attached. Otherwise the text and the images from the page are attached. They are limited in size,
checked, and never evaluated.
"""

import base64
import binascii
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from agentmagic.errors import UsageError, describe
from agentmagic.jupyter.prompt.attachables import Attachables
from agentmagic.jupyter.prompt.cell_errors import FIX
from agentmagic.prompt.attachments import Attachment
from agentmagic.widgets.commands import MOST_ATTACHED
from agentmagic.widgets.page_messages import HIGHEST, PageMessage, TypedText, at_most

LONGEST_IMAGE = 8_000_000
"""The longest image that a page sends, in characters of base64."""

_PROMPTS: Mapping[str, str] = {
    "ask": "",
    "explain": "Explain the output of this cell: what it shows, and what is odd about it.",
    "fix": FIX,
}
_LABELS = {"text": "output", "result": "output", "error": "error", "image": "figure"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_IMAGE_TYPES = Literal["image/png", "image/jpeg"]


class OutputText(PageMessage):
    """Text in a cell's output, as a browser page sends it; the kind `result` is the value of the cell's last line."""

    kind: Literal["text", "result", "error"]
    text: TypedText


class OutputImage(PageMessage):
    """An image in a cell's output, in base64; `result` is True for the value of the cell's last line."""

    kind: Literal["image"]
    type: _IMAGE_TYPES
    data: Annotated[str, at_most(LONGEST_IMAGE)]
    result: bool = False


class AskAboutOutput(PageMessage):
    """Message: the user asks about a cell's output. The page sends the cell's execution count, source and outputs."""

    type: Literal["output"] = "output"
    action: Literal["ask", "explain", "fix"]
    count: Annotated[int, Field(ge=1, le=HIGHEST)] | None
    source: TypedText
    outputs: Annotated[
        list[Annotated[OutputText | OutputImage, Field(discriminator="kind")]], Field(max_length=MOST_ATTACHED - 2)
    ]

    @property
    def prompt(self) -> str:
        """The prompt of the turn that begins at once; "" if the user writes the prompt in the chat panel."""
        return _PROMPTS[self.action]


def attach_output(message: AskAboutOutput, attachables: Attachables) -> list[Attachment]:
    """Return a cell's code and output as attachments. Call it in the thread in which synchronous tools run."""
    # A restarted kernel counts from 1 again, and the user can edit a cell that has run. So the source must match too.
    ran = message.count is not None and _lines(attachables.variables.get(f"_i{message.count}")) == _lines(
        message.source
    )
    cell = f"[{message.count}]" if message.count is not None else "of a cell"
    attach = attachables.attacher
    attachments = [attach.output(f"@In{cell}" if ran else f"code {cell}", f"In{cell}", message.source, "code")]
    values = cast("Mapping[int, Any]", attachables.variables.get("Out", {}))
    has_value = ran and message.count in values
    if has_value and any(_is_result(one) for one in message.outputs) and (value := attachables.find(f"out{cell}", "")):
        attachments.append(value)
    kinds: Counter[str] = Counter()
    for one in message.outputs:
        if not (has_value and _is_result(one)):
            word = _LABELS[one.kind]
            kinds[word] += 1
            number = f" ({kinds[word]})" if kinds[word] > 1 else ""
            attachments.append(_attachment(one, f"{word} {cell}{number}", attachables, ran=ran))
    return attachments


def _is_result(one: OutputText | OutputImage) -> bool:
    return one.kind == "result" or (isinstance(one, OutputImage) and one.result)


def _attachment(one: OutputText | OutputImage, name: str, attachables: Attachables, *, ran: bool) -> Attachment:
    attach = attachables.attacher
    if isinstance(one, OutputImage):
        try:
            return attach.image(name, name, base64.b64decode(one.data, validate=True), one.type)
        except (UsageError, binascii.Error) as problem:
            return attach.output(name, name, f"(an image that cannot be sent: {problem})")
    text = _COLOUR.sub("", one.text)
    if one.kind == "error":
        last = cast("BaseException | None", getattr(sys, "last_value", None))
        if ran and last is not None and text.rstrip().endswith(f"{type(last).__name__}: {describe(last)}"):
            return attach.attach("@error", "error", last, uri="error:last")
        return attach.output(name, name, text, "error")
    return attach.output(name, name, text)


def _lines(source: object) -> Sequence[str]:
    return source.rstrip().splitlines() if isinstance(source, str) else ()
