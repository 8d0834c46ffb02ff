"""Where a history may be cut, and how much of it a compaction keeps; pure functions of sizes."""

from collections.abc import Sequence
from itertools import islice

from agentmagic.context import tokens
from agentmagic.context.request_view import RequestView
from agentmagic.messages import Message

LATEST = 2
"""Steps whose results a sweep leaves as they are."""


def older_results(messages: Sequence[Message]) -> int:
    """Return the index before which results are older than the latest steps; 0 where none are."""
    backwards = (index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "tool")
    return next(islice(backwards, LATEST - 1, None), 0)


def cut(messages: Sequence[Message], view: RequestView, prompt: int, *, keep: float, whole: float) -> tuple[int, int]:
    """Return the `covers` and the `prompt` of a compaction that goes further than that of the view, where it can.

    As many of the latest turns are kept as take no more than `keep` tokens, at least the one under way, which
    begins with message `prompt`. Where that alone takes more than `whole`, its older steps are covered as
    well: its prompt and as many of its latest steps as `keep` allows are left, at least the last.
    """
    now = view.compacted
    first = max(now.covers, now.prompt + 1)  # of the messages that may begin what is kept
    for index in range(first, prompt + 1):
        if messages[index].role == "user" and view.tokens_from(index) <= keep:
            return index, index
    if prompt >= first and view.tokens_from(prompt) <= whole:
        return prompt, prompt
    own = tokens.of_message(messages[prompt])
    # A step begins with the assistant's message, so a cut before one never parts a call from its result.
    begun = max(now.covers, prompt + 1)
    steps = [index for index in range(begun + 1, len(messages)) if messages[index].role == "assistant"]
    if steps:
        return next((index for index in steps if own + view.tokens_from(index) <= keep), steps[-1]), prompt
    return (prompt, prompt) if prompt >= first else (now.covers, now.prompt)
