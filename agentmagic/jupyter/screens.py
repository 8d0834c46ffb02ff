"""What shows a turn in a cell: a screen is fed the turn's events, and leaves its static output at the end."""

from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from agentmagic.display import html, terminal, words
from agentmagic.display.blocks import Block, PromptBlock, TextBlock, ToolCard
from agentmagic.display.transcript import Transcript
from agentmagic.events import Event, Intent, PartDelta, PartStarted
from agentmagic.secrets import RedactedStream

Publish = Callable[[Mapping[str, str], bool], None]
"""Sends a MIME bundle to the cell, as an update of what was sent before or as the first of it."""

Answer = Callable[[Intent], None]
"""Takes what the person does in a screen."""


class Screen(Protocol):
    """Shows a turn; `begin` is called in the cell, `feed` and `typed` on the engine, the others in any thread."""

    def begin(self, answer: Answer) -> None:
        """Take a place in the cell's output."""
        ...

    async def typed(self) -> str | None:
        """Say why the person answers at the keyboard, "" where that needs no reason; None where they click."""
        ...

    def feed(self, event: Event) -> None:
        """Take the next event of the turn."""
        ...

    def finish(self) -> None:
        """Leave the output that stays, or none where nothing happened; may be called again once more has."""
        ...

    def restart(self) -> None:
        """Forget what was shown: the turn is begun again."""
        ...


def bundle(transcript: Transcript, *, times: bool) -> dict[str, str]:
    """Return the output that stays of a turn: HTML without scripts, and plain text beside it."""
    return {
        "text/html": html.render(transcript, times=times),
        "text/plain": terminal.render(transcript, times=times),
    }


class BatchScreen:
    """One output at the end, the same whenever the turn is: no times, no updates."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self.restart()

    def begin(self, answer: Answer) -> None:
        """Do nothing: the output comes at the end."""

    async def typed(self) -> str | None:
        """Say nothing: nobody is asked."""
        return ""

    def restart(self) -> None:
        """Begin with an empty transcript."""
        self._transcript = Transcript()
        self._over = False

    def feed(self, event: Event) -> None:
        """Take an event in."""
        self._transcript.feed(event)

    def finish(self) -> None:
        """Show the turn."""
        if self._transcript.blocks and not self._over:
            self._over = True
            self._publish(bundle(self._transcript, times=False), False)


class TerminalScreen:
    """Text that is printed as it comes: words at once, other blocks when they are done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_line = False
        self._last: Block | None = None
        self.restart()

    def begin(self, answer: Answer) -> None:
        """Do nothing: what is printed takes its own place."""

    async def typed(self) -> str | None:
        """Say nothing: a terminal is typed into."""
        return ""

    def restart(self) -> None:
        """Begin with an empty transcript; what was printed stays."""
        self._transcript = Transcript()
        self._begun: dict[int, Block] = {}
        self._printed: dict[int, Block] = {}
        self._text_part = -1
        self._words = RedactedStream()

    def feed(self, event: Event) -> None:
        """Take an event in, and print what is new."""
        self._transcript.feed(event)
        match event:
            case PartDelta():
                if event.index == self._text_part:
                    self._print_words(event.text)
            case PartStarted():
                self._text_part = event.index if event.kind == "text" else -1
                self._words = RedactedStream() if event.kind == "text" else self._words
            case _:
                self._print_new()

    def finish(self) -> None:
        """Print what is left."""
        self._print_new()
        self._end_line()
        self._stream.flush()

    def _print_words(self, piece: str) -> None:
        """Print what came, except an end that may be the beginning of a secret."""
        block = self._transcript.blocks[-1]
        if id(block) not in self._begun:
            self._begin(block)
        self._write(words.cleaned(self._words.feed(piece)))

    def _print_new(self) -> None:
        for block in self._transcript.blocks:
            begun = id(block) in self._begun
            if not block.open and id(block) not in self._printed:
                self._printed[id(block)] = block
                self._print_rest(block) if begun and isinstance(block, TextBlock) else self._print(block)
            elif isinstance(block, ToolCard) and block.state == "running" and not begun:
                self._print(block)

    def _print(self, block: Block) -> None:
        if not isinstance(block, PromptBlock) and (lines := terminal.render_block(block)):
            self._begin(block)
            self._write(lines + "\n")

    def _print_rest(self, block: TextBlock) -> None:
        """End words that were printed as they came."""
        self._write(words.cleaned(self._words.finish()))
        self._end_line()
        if block.interrupted:
            self._write("[interrupted]\n")

    def _begin(self, block: Block) -> None:
        """Go to where a block begins: behind an empty line, but card below card."""
        self._begun[id(block)] = block
        self._end_line()
        if self._last is not None and not (isinstance(self._last, ToolCard) and isinstance(block, ToolCard)):
            self._stream.write("\n")
        self._last = block

    def _write(self, piece: str) -> None:
        if not piece:
            return
        self._stream.write(piece)
        self._stream.flush()
        self._in_line = not piece.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            self._stream.write("\n")
            self._in_line = False
