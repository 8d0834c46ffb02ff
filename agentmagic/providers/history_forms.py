"""Forms of a whole history that some servers ask for: the words of their refusals, and how the history gets the form.

The parts stay what they are, except those that a server refuses (`without_parts`).
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from agentmagic.messages import Media, Message, Part, Text, ToolCall, ToolResult, as_text, change_parts, media_of
from agentmagic.providers.wire import digest, results_of

BRIDGE = Message("assistant", (Text("(The tools have answered.)"),))
"""Stands between a tool's result and a message of the user, for servers that refuse one directly after the other."""

_LEFT_OUT = "(left out: the server refused it)"

ID_FORM = re.compile(r"\btool.?call.?ids?\b.{0,200}\blength (?:of )?(?:exactly )?9\b", re.IGNORECASE | re.DOTALL)
"""A refusal of a call's id: of Mistral's servers (code 3280), and of its chat templates in other servers, 2026-11."""
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class HistoryForm:
    """A form of the whole history that some servers ask for: the words of their refusals, the change, the notice."""

    words: re.Pattern[str]
    change: Callable[[Sequence[Message]], Iterator[Message]]
    notice: str


def _separate(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with `BRIDGE` between each tool message and a message of the user.

    The media of a result follow in a message of the user, because some APIs take them only there.
    """
    for message, following in zip_longest(messages, messages[1:]):
        media = [*media_of(message)] if message.role == "tool" else []
        yield without_parts(message, set(media)) if media else message
        if media:
            names = ", ".join(dict.fromkeys(result.name for result in results_of(message)))
            yield from (BRIDGE, Message("user", (Text(f"What the calls of {names} returned:"), *media)))
        elif message.role == "tool" and following is not None and following.role == "user":
            yield BRIDGE


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with those of one role in a row joined. A message with tool calls stays as it is."""
    last: Message | None = None
    for message in messages:
        if last is not None and last.role == message.role != "tool" and not (last.calls or message.calls):
            last = replace(last, parts=(*last.parts, Text("\n\n"), *message.parts))
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


def _with_short_ids(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with call ids of nine letters and digits. An id that has this form stays as it is."""
    for message in messages:
        parts = tuple(_with_short_id(part) for part in message.parts)
        yield message if parts == message.parts else replace(message, parts=parts)


def _with_short_id(part: Part) -> Part:
    match part:
        case ToolCall(id=call_id) if not _SHORT_ID.fullmatch(call_id):
            return replace(part, id=digest(call_id)[:9])
        case ToolResult(call_id=call_id) if not _SHORT_ID.fullmatch(call_id):
            return replace(part, call_id=digest(call_id)[:9])
        case _:
            return part


HISTORY_FORMS = (
    HistoryForm(
        ID_FORM,
        _with_short_ids,
        "The server takes only call ids of nine letters and digits; the ids of earlier calls are sent in this form.",
    ),
    # Mistral's servers (code 3230), and vLLM with Mistral's tokenizer
    HistoryForm(
        re.compile(r"unexpected role '?user'? after role '?tool|user message.{0,30}after.{0,20}tool", re.IGNORECASE),
        _separate,
        "The server refuses a message of the user directly after a tool's result; a short answer stands between them.",
    ),
    # the chat templates of Mistral, Gemma and Llama 2 in vLLM, llama.cpp and LM Studio
    HistoryForm(
        re.compile(
            r"roles? must alternate|unexpected role '?(\w+)'? after role '?\1|consecutive .{0,20}role", re.IGNORECASE
        ),
        _joined,
        "The server refuses two messages of one role in a row; they are sent as one.",
    ),
)


def without_parts(message: Message, refused: Collection[Hashable]) -> Message:
    """Return a message in which the refused media and texts are replaced: the same object if it has none."""
    return change_parts(message, partial(_replaced, refused))


def _replaced(refused: Collection[Hashable], part: Part) -> Part:
    match part:
        case Media() if part in refused:
            return Text(f"{as_text(part)} {_LEFT_OUT}")
        case Text() if ("text", part.text) in refused:
            return Text(_LEFT_OUT)
        case _:
            return part
