"""Reads what a model wrote as text: its thinking and its calls between tags, and the words beside them.

A server passes thinking on as text if it does not know the tags of the model. If the template of the model has opened
the thinking, only the closing tag is in the text. Tags in Markdown's code are text, since a model may write about them.
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
"""How many open models write a call; some servers pass it on as text now and then."""

LONGEST_SPAN = 2_000
"""Characters of text that wait, behind a tag, for the end of the code span that the tag may stand in."""

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
    """A piece of what was read.

    "end" is that of a thought. The text of a "thought" is all of the open part, which was thinking, and has ended. That
    of a "call" stood between the tags of the call.
    """

    kind: Kind
    text: str


class TextReader:
    """Reads the text of one answer, piece by piece.

    A thought that is not closed reaches to the end. A lone closing tag makes thinking of the open part before it, once
    an answer. `is_call` says whether a text between the tags of a call is one; without it none is looked for. Calls are
    told at the end, since the part that they stand in may prove to be thinking.
    """

    def __init__(self, is_call: Callable[[str], bool] | None = None) -> None:
        self._is_call = is_call
        self._tag, self._tags = (_TAG_OR_CALL, _TAGS_AND_CALL) if is_call else (_TAG, _TAGS)
        self._held = ""  # it is not yet clear what this is
        self._blank = ""  # before the first word of a part
        self._closing = ""  # the tag that ends the open thought
        self._code = _Code()
        self._said: list[str] = []  # in the open part, calls included
        self._thought: list[str] = []  # in the open thought
        self._skipped: str | None = None  # the open thought up to the first closing tag that stands in code
        self._drafts: list[str] = []  # the calls in the open part
        self._calls: list[str] = []
        self._spoke = False
        self._lone = True  # one may still come
        self.found_thinking = False

    def feed(self, text: str) -> Sequence[Piece]:
        """Return what is clear after this piece of the text."""
        if self._said and not self._held and not self._closing and not _FIRST.search(text):  # nearly every piece
            self._code.add(text)
            self._said.append(text)
            return (Piece("text", text),)
        self._held += text
        return tuple(self._read(last=False))

    def close(self) -> Sequence[Piece]:
        """Return what is left at the end of the text."""
        pieces = tuple(self._read(last=True))
        self.end_part()
        calls, self._calls, self._closing = self._calls, [], ""
        return (*pieces, *(Piece("call", call) for call in calls))

    def end_part(self) -> None:
        """Take in that the open part has ended, because the server sent another one: no later tag changes it."""
        self._calls += self._drafts
        self._begin_part()

    def _begin_part(self) -> None:
        self._code = _Code()
        self._said, self._thought, self._drafts = [], [], []
        self._skipped, self._blank = None, ""

    def _read(self, *, last: bool) -> Iterator[Piece]:
        more = True
        while more:
            more = yield from (self._think(last=last) if self._closing else self._speak(last=last))

    def _take(self, size: int) -> str:
        """Return the beginning of what is held, which is held no longer."""
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def _take_clear(self, tags: Iterable[str], *, last: bool) -> str:
        """Return what is held, but for an end that may be the beginning of a tag."""
        clear = self._take(len(self._held) - (0 if last else _begun(self._held, tags)))
        self._code.add(clear)
        return clear

    # -- words -----------------------------------------------------------------------------------------

    def _speak(self, *, last: bool) -> Generator[Piece, None, bool]:
        """Read up to the first tag behind some words. Return whether more can be read."""
        found = self._tag.search(self._held)
        if found is None:
            yield from self._say(self._take_clear(self._tags, last=last))
            return False
        before, tag = self._take(found.start()), found[0]
        self._code.add(before)
        if tag == OPEN_CALL:
            return (yield from self._call(before, last=last))
        in_code = self._code.holds(self._held, last=last)
        if in_code is None:
            yield from self._say(before)
            return False
        self._take(len(tag))
        if in_code or (tag in _CLOSES and not self._lone):
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
        """Yield some words; blanks wait for a word, and the blanks between thinking and the first word are left out."""
        text, self._blank = self._blank + text, ""
        if not self._said and not text.strip():
            self._blank = text
            return
        if self.found_thinking and not self._spoke:
            text = text.lstrip()
        self._spoke = True
        if text:
            self._said.append(text)
            yield Piece("text", text)

    def _withdraw(self, before: str) -> Iterator[Piece]:
        """Make thinking of the open part: a lone closing tag has come."""
        if self._said:
            yield Piece("thought", "".join(self._said) + before)
        elif before.strip():
            yield from (Piece("reasoning", before.lstrip()), Piece("end", ""))
        self._begin_part()  # with the calls that were drafted in it
        self._lone, self._spoke, self.found_thinking = False, False, True

    def _call(self, before: str, *, last: bool) -> Generator[Piece, None, bool]:
        """Read a call, whose opening tag is held. Return whether more can be read."""
        assert self._is_call is not None  # noqa: S101  (else the tag is not looked for)
        end = self._held.find(CLOSE_CALL)
        body = self._held[len(OPEN_CALL) : end if end >= 0 else None]
        if end < 0 and not last and body.lstrip()[:1] in ("", "{"):
            yield from self._say(before)
            return False
        if (end >= 0 or last) and self._is_call(body):  # a few models leave the end out
            words = before.rstrip()
            yield from self._say(words)
            written = self._take(end + len(CLOSE_CALL) if end >= 0 else len(self._held))
            self._said.append(self._blank + before[len(words) :] + written)
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
        start = self._held.find(self._closing)
        if start < 0:
            yield from self._reason(self._take_clear((self._closing,), last=last))
            if not last or self._skipped is None:
                return False
            # No other tag closes the thought, so the first one did: it stood in no code.
            self._held = "".join(self._thought)[len(self._skipped) + len(self._closing) :]
            yield Piece("thought", self._skipped)
            self._end_thought()
            return True
        before = self._take(start)
        self._code.add(before)
        yield from self._reason(before)
        in_code = self._code.holds(self._held, last=last)
        if in_code is None:
            return False
        tag = self._take(len(self._closing))
        if not in_code:
            if self._thought:
                yield Piece("end", "")
            self._end_thought()
            return True
        self._skipped = "".join(self._thought) if self._skipped is None else self._skipped
        self._code.add(tag)
        yield from self._reason(tag)
        return True

    def _reason(self, text: str) -> Iterator[Piece]:
        text = text if self._thought else text.lstrip()
        if text:
            self._thought.append(text)
            yield Piece("reasoning", text)

    def _end_thought(self) -> None:
        self._closing = ""
        self._begin_part()


class _Code:
    """Knows whether the end of a Markdown text stands in a fence of code, or behind the beginning of a code span.

    In a text that begins like JSON, which may be the answer that was asked for, the strings count as code. A text is
    read only when that is asked, and each character once.
    """

    def __init__(self) -> None:
        self._unread: list[str] = []
        self._mark: re.Pattern[str] | None = None  # what is looked for; None before the first word
        self._in_string = False
        self._line = ""  # the beginning of the last line
        self._fence = ""
        self._fenced_here = False  # the last line opened the fence
        self._span = ""  # the backticks that may have opened a code span

    def add(self, text: str) -> None:
        """Add a piece of the text."""
        self._unread.append(text)

    def holds(self, after: str, *, last: bool) -> bool | None:
        """Return whether the text that follows begins in code; None if only what comes behind it can tell."""
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
        """Take in a run of backticks or tildes of a line that began, or went on, at `start`."""
        run = mark[0]
        indent = mark.start() - start + len(self._line)
        first = indent < _LONGEST_INDENT and _BEFORE_FENCE.fullmatch(self._line + mark.string[start : mark.start()])
        if self._fence and self._fenced_here:
            if "`" in self._fence and "`" in run:  # it was a code span, and has ended
                self._fence = ""
        elif self._fence:
            named = mark.string[mark.end() : mark.end() + 1].isalnum()  # a fence with a name opens code
            if first and run.startswith(self._fence) and not named:
                self._fence = ""
        elif first and len(run) >= len("```"):
            self._fence, self._fenced_here, self._span = run, True, ""
        elif run[0] == "`":
            self._span = {"": run, run: ""}.get(self._span, self._span)


def _begun(text: str, tags: Iterable[str]) -> int:
    """Return the length of the beginning of a tag that stands at the end of a text."""
    sizes = (size for tag in tags for size in range(1, len(tag)) if text.endswith(tag[:size]))
    return max(sizes, default=0)
