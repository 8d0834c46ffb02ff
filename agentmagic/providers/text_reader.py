"""Separates the text of a model's answer into visible text, thinking and tool calls, which stand between tags.

A server passes thinking on as text if it does not know the model's tags. If the model's prompt template has opened the
thinking, only the closing tag is in the text. Tags inside Markdown code stay text, since a model can write about them.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

CLOSING = {
    "<think>": "</think>",  # DeepSeek, Qwen and most others
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",  # Mistral
    "◁think▷": "◁/think▷",  # Kimi
}
"""The tags that open a thought, each with the tag that closes it."""

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
"""The tags with which many open models mark a tool call. Some servers sometimes pass the call on as text."""

LONGEST_SPAN = 2_000
"""The most characters after a tag that are held back until it is clear whether the tag is inside a code span."""

_CLOSES = frozenset(CLOSING.values())
_TAGS = (*CLOSING, *CLOSING.values())
_TAGS_AND_CALL = (OPEN_CALL, *_TAGS)
_TAG, _TAG_OR_CALL = (re.compile("|".join(map(re.escape, tags))) for tags in (_TAGS, _TAGS_AND_CALL))
_FIRST = re.compile(r"[<\[◁]")
"""The first character of a tag."""

_MARK = re.compile(r"\n|\\[\\`]|`+|~{3,}")
_MARK_IN_JSON = re.compile(r"\\.|\"")
_BEFORE_FENCE = re.compile(r"[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+)?")
_LONGEST_INDENT = 100
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n")

Kind = Literal["text", "reasoning", "end", "thought", "call"]


class Piece(NamedTuple):
    """A piece of the answer.

    "text" and "reasoning" are new pieces of visible text and of thinking. "end" is the end of the thinking. "thought"
    says that the whole open part was thinking and has ended; `text` is its full text. "call" is a tool call; `text` is
    the text between the tags of the call.
    """

    kind: Kind
    text: str


class TextReader:
    """Reads the text of one answer, piece by piece.

    A thought without a closing tag lasts until the end of the answer. A closing tag without an opening tag turns the
    open part before it into thinking, once per answer. `is_call` decides whether the text between the tags of a call is
    a call; without it, the text is not searched for calls. Calls are returned at the end, since the part that contains
    them can turn out to be thinking.
    """

    def __init__(self, is_call: Callable[[str], bool] | None = None) -> None:
        self._is_call = is_call
        self._tag, self._tags = (_TAG_OR_CALL, _TAGS_AND_CALL) if is_call else (_TAG, _TAGS)
        self._pending = ""  # text that is held back until its kind is clear
        self._blank = ""  # blanks before the first word of a part
        self._closing = ""  # the tag that ends the open thought
        self._code = _Code()
        self._part_pieces: list[str] = []  # the text of the open part, calls included
        self._thought_pieces: list[str] = []  # the text of the open thought
        self._skipped: str | None = None  # the open thought up to the first closing tag inside code
        self._drafts: list[str] = []  # the calls in the open part
        self._calls: list[str] = []
        self._spoke = False
        self._may_withdraw = True  # whether a closing tag without an opening tag would still count
        self.found_thinking = False

    def feed(self, text: str) -> Sequence[Piece]:
        """Add a piece of the text, and return the pieces whose kind is now clear."""
        if (
            self._part_pieces and not self._pending and not self._closing and not _FIRST.search(text)
        ):  # nearly every piece
            self._code.add(text)
            self._part_pieces.append(text)
            return (Piece("text", text),)
        self._pending += text
        return tuple(self._read(last=False))

    def close(self) -> Sequence[Piece]:
        """Return the remaining pieces at the end of the text, and all calls."""
        pieces = tuple(self._read(last=True))
        self.end_part()
        calls, self._calls, self._closing = self._calls, [], ""
        return (*pieces, *(Piece("call", call) for call in calls))

    def end_part(self) -> None:
        """End the open part, because the server began another one. Later tags no longer change the part."""
        self._calls += self._drafts
        self._begin_part()

    def _begin_part(self) -> None:
        self._code = _Code()
        self._part_pieces, self._thought_pieces, self._drafts = [], [], []
        self._skipped, self._blank = None, ""

    def _read(self, *, last: bool) -> Iterator[Piece]:
        more = True
        while more:
            more = yield from (self._think(last=last) if self._closing else self._speak(last=last))

    def _take(self, size: int) -> str:
        """Remove the first `size` characters from the text that is held back, and return them."""
        text, self._pending = self._pending[:size], self._pending[size:]
        return text

    def _take_clear(self, tags: Iterable[str], *, last: bool) -> str:
        """Remove and return the text that is held back, except an end that can be the beginning of a tag."""
        clear = self._take(len(self._pending) - (0 if last else _tag_prefix_length(self._pending, tags)))
        self._code.add(clear)
        return clear

    # -- words -----------------------------------------------------------------------------------------

    def _speak(self, *, last: bool) -> Generator[Piece, None, bool]:
        """Read visible text up to and including the next tag. Return whether more can be read."""
        match = self._tag.search(self._pending)
        if match is None:
            yield from self._say(self._take_clear(self._tags, last=last))
            return False
        before, tag = self._take(match.start()), match[0]
        self._code.add(before)
        if tag == OPEN_CALL:
            return (yield from self._call(before, last=last))
        in_code = self._code.holds(self._pending, last=last)
        if in_code is None:
            yield from self._say(before)
            return False
        self._take(len(tag))
        if in_code or (tag in _CLOSES and not self._may_withdraw):
            self._code.add(tag)
            yield from self._say(before + tag)
        elif tag in _CLOSES:
            yield from self._withdraw(before)
        else:
            yield from self._say(before)
            self.end_part()
            self._closing, self.found_thinking = CLOSING[tag], True
        return True

    def _say(self, text: str) -> Iterator[Piece]:
        """Yield visible text. Blanks wait for the next word; blanks between thinking and the first word are dropped."""
        text, self._blank = self._blank + text, ""
        if not self._part_pieces and not text.strip():
            self._blank = text
            return
        if self.found_thinking and not self._spoke:
            text = text.lstrip()
        self._spoke = True
        if text:
            self._part_pieces.append(text)
            yield Piece("text", text)

    def _withdraw(self, before: str) -> Iterator[Piece]:
        """Turn the open part into thinking, because a closing tag without an opening tag has come."""
        if self._part_pieces:
            yield Piece("thought", "".join(self._part_pieces) + before)
        elif before.strip():
            yield from (Piece("reasoning", before.lstrip()), Piece("end", ""))
        self._begin_part()  # this also drops the calls in the part
        self._may_withdraw, self._spoke, self.found_thinking = False, False, True

    def _call(self, before: str, *, last: bool) -> Generator[Piece, None, bool]:
        """Read a call; `_pending` begins with its opening tag. Return whether more can be read."""
        assert self._is_call is not None  # noqa: S101  (without it, `_tag` does not match the tag of a call)
        end = self._pending.find(CLOSE_CALL)
        body = self._pending[len(OPEN_CALL) : end if end >= 0 else None]
        if end < 0 and not last and body.lstrip()[:1] in ("", "{"):
            yield from self._say(before)
            return False
        if (end >= 0 or last) and self._is_call(body):  # a few models omit the closing tag
            visible = before.rstrip()
            yield from self._say(visible)
            call_text = self._take(end + len(CLOSE_CALL) if end >= 0 else len(self._pending))
            self._part_pieces.append(self._blank + before[len(visible) :] + call_text)
            self._blank = ""
            self._drafts.append(body)
        else:
            tag = self._take(len(OPEN_CALL))
            self._code.add(tag)
            yield from self._say(before + tag)
        return True

    # -- thinking --------------------------------------------------------------------------------------

    def _think(self, *, last: bool) -> Generator[Piece, None, bool]:
        """Read up to the end of a thought. Return whether more can be read."""
        start = self._pending.find(self._closing)
        if start < 0:
            yield from self._reason(self._take_clear((self._closing,), last=last))
            if not last or self._skipped is None:
                return False
            # No other tag closes the thought, so the first closing tag did, although it seemed to stand in code.
            self._pending = "".join(self._thought_pieces)[len(self._skipped) + len(self._closing) :]
            yield Piece("thought", self._skipped)
            self._end_thought()
            return True
        before = self._take(start)
        self._code.add(before)
        yield from self._reason(before)
        in_code = self._code.holds(self._pending, last=last)
        if in_code is None:
            return False
        tag = self._take(len(self._closing))
        if not in_code:
            if self._thought_pieces:
                yield Piece("end", "")
            self._end_thought()
            return True
        self._skipped = "".join(self._thought_pieces) if self._skipped is None else self._skipped
        self._code.add(tag)
        yield from self._reason(tag)
        return True

    def _reason(self, text: str) -> Iterator[Piece]:
        text = text if self._thought_pieces else text.lstrip()
        if text:
            self._thought_pieces.append(text)
            yield Piece("reasoning", text)

    def _end_thought(self) -> None:
        self._closing = ""
        self._begin_part()


class _Code:
    """Tracks whether the end of a growing Markdown text is inside a fenced code block or a code span.

    If the text begins like JSON, which can be an answer in a requested form, its strings count as code. The text is
    parsed only when `holds` is called, and each character only once.
    """

    def __init__(self) -> None:
        self._unread: list[str] = []
        self._mark: re.Pattern[str] | None = None  # the pattern of the marks to find; None before the first word
        self._in_string = False
        self._line = ""  # the beginning of the last line
        self._fence = ""
        self._fenced_here = False  # the last line opened the fence
        self._span = ""  # the backticks that can have opened a code span

    def add(self, text: str) -> None:
        """Add a piece of the text."""
        self._unread.append(text)

    def holds(self, after: str, *, last: bool) -> bool | None:
        """Return whether `after`, the text that follows, begins inside code; None if that needs more text."""
        self._read()
        if self._fence or self._in_string or not self._span:
            return bool(self._fence) or self._in_string
        closing = re.search(rf"(?<!`){self._span}(?!`)", after)
        ending = _PARAGRAPH_END.search(after)
        if closing and (not ending or closing.start() < ending.start()):
            return True
        if ending or last or len(after) > LONGEST_SPAN:
            self._span = ""
            return False
        return None

    def _read(self) -> None:
        text = "".join(self._unread)
        self._unread.clear()
        if self._mark is None and (word := text.lstrip()):
            self._mark = _MARK_IN_JSON if word[0] in "{[" else _MARK
        start = 0
        for mark in (self._mark or _MARK).finditer(text):
            if mark[0] == '"':
                self._in_string = not self._in_string
            elif mark[0] == "\n":
                self._end_line(text[start : mark.start()])
                start = mark.end()
            elif mark[0][0] != "\\":
                self._take(mark, start)
        self._line += text[start : start + _LONGEST_INDENT]

    def _end_line(self, rest: str) -> None:
        if not (self._line + rest).strip():
            self._span = ""  # a paragraph ended
        self._line, self._fenced_here = "", False

    def _take(self, mark: re.Match[str], start: int) -> None:
        """Process a run of backticks or tildes; `start` is where its line begins, or continues, in the new text."""
        run = mark[0]
        indent = mark.start() - start + len(self._line)
        first = indent < _LONGEST_INDENT and _BEFORE_FENCE.fullmatch(self._line + mark.string[start : mark.start()])
        if self._fence and self._fenced_here:
            if "`" in self._fence and "`" in run:  # not a fence after all, but a code span that ends here
                self._fence = ""
        elif self._fence:
            has_name = mark.string[
                mark.end() : mark.end() + 1
            ].isalnum()  # a fence with a language name only opens code
            if first and run.startswith(self._fence) and not has_name:
                self._fence = ""
        elif first and len(run) >= len("```"):
            self._fence, self._fenced_here, self._span = run, True, ""
        elif run[0] == "`":
            self._span = {"": run, run: ""}.get(self._span, self._span)


def _tag_prefix_length(text: str, tags: Iterable[str]) -> int:
    """Return how many characters at the end of a text could be the beginning of a tag."""
    sizes = (size for tag in tags for size in range(1, len(tag)) if text.endswith(tag[:size]))
    return max(sizes, default=0)
