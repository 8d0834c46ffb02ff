"""Separates the text of a model's answer into visible text, thinking and tool calls.

Thinking and tool calls stand between tags such as <think> and </think>. A server that does not know the model's tags
passes them on as text. If the prompt template already contains the opening tag, only the closing tag is in the answer.
Tags inside Markdown code stay text, since a model can write about them.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

CLOSING = {
    "<think>": "</think>",  # DeepSeek, Qwen and most other models
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",  # gpt-oss on Amazon Bedrock
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
    """A piece of a model's answer; `kind` says what it is.

    "text" is new visible text, "reasoning" is new thinking, and "end" is the end of the thinking. "thought" means that
    everything in the current part was thinking, and that it has ended. `text` is then all of this thinking. "call" is a
    tool call, and `text` is the text between its tags.
    """

    kind: Kind
    text: str


class TextReader:
    """Reads the text of one answer, piece by piece.

    A thought without a closing tag lasts until the end of the answer. A closing tag without an opening tag turns the
    part before it, which looked like visible text, into thinking. This happens at most once in an answer. `is_call`
    returns whether the text between a call's tags really is a call. Without `is_call`, no calls are searched. Calls are
    returned at the end, because the part that contains them can turn out to be thinking.
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
        # The text of the open thought before its first closing tag, if that tag was inside code; otherwise None.
        self._skipped: str | None = None
        self._drafts: list[str] = []  # the calls in the open part
        self._calls: list[str] = []
        self._spoke = False
        # Whether a closing tag without an opening tag would still turn the part before it into thinking.
        self._may_withdraw = True
        self.found_thinking = False

    def feed(self, text: str) -> Sequence[Piece]:
        """Add a piece of the text, and return the pieces whose kind is now clear."""
        # Nearly every piece is plain text without the beginning of a tag, so it needs no further reading.
        if self._part_pieces and not self._pending and not self._closing and not _FIRST.search(text):
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
        """End the current part, because the server began another one. Later tags no longer turn it into thinking."""
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
        """Remove and return the text that is held back, but keep its end if that can be the beginning of a tag."""
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
        """Turn the current part into thinking, because a closing tag without an opening tag has come.

        `before` is the text between the part and this tag.
        """
        if self._part_pieces:
            yield Piece("thought", "".join(self._part_pieces) + before)
        elif before.strip():
            yield from (Piece("reasoning", before.lstrip()), Piece("end", ""))
        self._begin_part()  # this also drops the calls in the part
        self._may_withdraw, self._spoke, self.found_thinking = False, False, True

    def _call(self, before: str, *, last: bool) -> Generator[Piece, None, bool]:
        """Read a tool call between tags. Return whether more can be read.

        `_pending` begins with the opening tag of the call; `before` is the text before the tag.
        """
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
            # The answer has ended, and every closing tag in the thought seemed to be inside code. So treat the first
            # of them as the end of the thought, and read the text after it again, as visible text.
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

    If the text begins like JSON, as an answer under a schema does, the strings in it count as code. The text is parsed
    only when `holds` is called, and each character only once.
    """

    def __init__(self) -> None:
        self._unread: list[str] = []
        # The pattern that finds the marks of code, or of strings if the text is JSON. It is None before the first word.
        self._mark: re.Pattern[str] | None = None
        self._in_string = False
        self._line = ""  # the beginning of the last line
        self._fence = ""
        self._fenced_here = False  # whether the last line opened the fenced code block
        self._span = ""  # the backticks that may have opened a code span

    def add(self, text: str) -> None:
        """Add a piece of the text."""
        self._unread.append(text)

    def holds(self, after: str, *, last: bool) -> bool | None:
        """Return whether the added text ends inside code, or None if that needs more text. `after` is the next text."""
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
            self._span = ""  # an empty line ends the paragraph, and a code span cannot go beyond it
        self._line, self._fenced_here = "", False

    def _take(self, mark: re.Match[str], start: int) -> None:
        """Process a run of backticks or tildes (`mark`).

        `start` is the place in the new text at which the line of this run begins, or continues from earlier text.
        """
        run = mark[0]
        indent = mark.start() - start + len(self._line)
        first = indent < _LONGEST_INDENT and _BEFORE_FENCE.fullmatch(self._line + mark.string[start : mark.start()])
        if self._fence and self._fenced_here:
            if "`" in self._fence and "`" in run:  # if backticks close it in the same line, it is a code span
                self._fence = ""
        elif self._fence:
            # A fence with the name of a language can only open a code block, not close it.
            has_name = mark.string[mark.end() : mark.end() + 1].isalnum()
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
