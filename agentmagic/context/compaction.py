"""What a model is sent of a conversation that grows, and when that is made shorter (CONTEXT-1, CONTEXT-2).

The history stays whole. What is sent is a view of it, made from the messages, the last `Compacted` event and
the limits; it changes only when a compaction is due, so that a provider's prompt cache hits in between
(CONTEXT-4).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from agentmagic.context import tokens
from agentmagic.context.plan import cut, older_results
from agentmagic.context.request_view import SHORT, WHOLE, Accepts, RequestView, Rules, TokenCount, accept_all
from agentmagic.context.summary import Complete, write
from agentmagic.events import Compacted
from agentmagic.messages import Message, ToolDef, Usage

__all__ = ["Complete", "Context", "Limits", "RequestView", "accept_all"]

DUE = 0.8
"""The share of the window that the shares below belong to; where another is set, they grow and shrink with it."""
ENOUGH = 1 / 2
"""What a compaction should reach, as a share of the window."""
KEPT = 1 / 3
"""What the turns that are kept word for word may take of the window."""
SUMMARY = 1 / 8
"""What the summary may take of the window, in any case no more than MOST_SUMMARY characters."""
LEAST_SUMMARY, MOST_SUMMARY = 200, 8_000
ASKED = 1 / 2
"""What the conversation may take of the window when its summary is asked for."""
WORTH = 0.9
"""A compaction after which more than this share of the request is left is not worth its price."""
FURTHEST_OFF = 4.0
"""The most that estimates are taken to be wrong by."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be sent: the model's window in tokens where it is known, and an Agent's two settings.

    `compact_at` is the share of the window at which a compaction is due, None for never; `max_result` bounds
    the characters of one result, None for no bound but the window.
    """

    window: int | None = None
    compact_at: float | None = DUE
    max_result: int | None = None

    @property
    def result(self) -> int | None:
        """The characters of one result that are sent: never more than a quarter of the window, nor below SHORT."""
        quarter = self.window // 4 * tokens.CHARACTERS if self.window else None
        bounds = [int(bound) for bound in (self.max_result, quarter) if bound is not None]
        return max(min(bounds), SHORT) if bounds else None

    @property
    def due(self) -> float | None:
        """The tokens of a request above which a compaction is due, or None."""
        return None if self.window is None or self.compact_at is None else self.window * self.compact_at


class Context:
    """What a turn sends of its session's history.

    `compacted` is the last compaction of the session; `view` is kept by the session from turn to turn.
    `accepts` says which media the model can be sent; the others are named in words (LOOP-17). Use the same
    function from turn to turn: another one begins the view anew. `instructions` and `tools` go with every
    request. A turn is given the whole history each time: past turns, then its own messages so far.
    """

    def __init__(  # noqa: PLR0913  (what a request is made of, and what is kept of the one before)
        self,
        limits: Limits,
        compacted: Compacted | None = None,
        *,
        view: RequestView | None = None,
        accepts: Accepts = accept_all,
        instructions: str = "",
        tools: Sequence[ToolDef] = (),
    ) -> None:
        self._limits = limits
        self._rules = Rules(limits.result, accepts, compacted or WHOLE)
        self._view = view or RequestView()
        self._instructions = instructions
        self._tools = tools

    @property
    def shortened(self) -> bool:
        """Whether the last view holds a preview, so that the tool that reads the rest is of use."""
        return self._view.shortened

    def view(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return what to send: a valid history, in which a message that need not change is the same object."""
        self._view.follow(messages, self._rules)
        return self._view.messages

    def measured(self, sent: int, usage: Usage) -> None:
        """Take the provider's figures of a request that held the view of the first `sent` messages.

        Its answer is message `sent`. Figures of 0, from servers that do not count, are passed over.
        """
        if usage.input_tokens:
            self._view.figures = TokenCount(sent + 1, usage.input_tokens + usage.output_tokens)

    def estimate(self, messages: Sequence[Message]) -> int:
        """Return about how many tokens the next request would take: what was counted last, and what came since."""
        self._view.follow(messages, self._rules)
        view = self._view
        if view.figures is not None:
            return view.figures.tokens + round(view.scale * view.tokens_from(view.figures.upto))
        return round(view.scale * (self._beside + view.tokens_from(0)))

    def due(self, messages: Sequence[Message]) -> bool:
        """Whether the next request would pass the share of the window at which older turns are summarised."""
        due = self._limits.due
        return due is not None and self.estimate(messages) > due

    async def compact(self, messages: Sequence[Message], prompt: int, complete: Complete) -> Compacted | None:
        """Make what is sent shorter, from the next view on; return how, or None where nothing can be gained.

        First older results shrink to previews. Where that is not enough, older turns are replaced by a summary
        that the model writes, and so are the older steps of the turn under way, whose prompt is message
        `prompt`, where that alone is too long. Works without a known window too, for a provider that said the
        conversation is too long: it then aims at half of what there is.
        """
        before = self.estimate(messages)
        guessed = self._size(messages, self._view.compacted)
        self._view.scale = min(max(before / guessed, 1 / FURTHEST_OFF), FURTHEST_OFF)
        window = self._window(before) / self._view.scale
        plan = self._plan(messages, prompt, window)
        if self._size(messages, plan) > WORTH * guessed:
            return None
        made = await self._summarised(messages, plan, window, complete)
        after = round(self._view.scale * self._size(messages, made))
        compacted = replace(made, before=before, after=after)
        self._rules = replace(self._rules, compacted=compacted)
        return compacted

    @cached_property
    def _beside(self) -> int:
        return tokens.of_tools(self._instructions, self._tools)

    def _window(self, before: int) -> float:
        """Return the window to aim at: the model's, less where compaction is due early, or what did not fit it."""
        due = self._limits.due
        if self._limits.window is None or due is None or before <= due:
            return before
        return min(self._limits.window, due / DUE)

    def _size(self, messages: Sequence[Message], compacted: Compacted) -> int:
        """Return the estimated tokens of a request under a compaction, not scaled."""
        return self._beside + self._trial(messages, compacted).tokens_from(0)

    def _trial(self, messages: Sequence[Message], compacted: Compacted) -> RequestView:
        view = RequestView()
        view.follow(messages, replace(self._rules, compacted=compacted))
        return view

    def _plan(self, messages: Sequence[Message], prompt: int, window: float) -> Compacted:
        """Choose the mildest compaction that is enough, else the one that leaves least.

        A summary that is still to be written stands in it at its full length.
        """
        now = self._view.compacted
        swept = replace(now, shrunk=max(now.shrunk, older_results(messages)), usage=Usage())
        if self._size(messages, swept) <= ENOUGH * window:
            return swept
        limit = _summary_limit(window)
        whole = ENOUGH * window - self._beside - tokens.of_text(" " * limit)
        trial = self._trial(messages, swept)
        covers, head = cut(messages, trial, prompt, keep=min(KEPT * window, whole), whole=whole)
        cut_off = swept
        if (covers, head) != (now.covers, now.prompt):
            cut_off = replace(swept, summary=" " * limit, covers=covers, prompt=head)
        # Last of all the results of the latest steps shrink too: many at once can be more than a window takes.
        plans = (cut_off, replace(cut_off, shrunk=len(messages)), swept)
        sizes = [self._size(messages, plan) for plan in plans]
        small_enough = (plan for plan, size in zip(plans, sizes, strict=True) if size <= DUE * window)
        return next(small_enough, plans[sizes.index(min(sizes))])

    async def _summarised(
        self, messages: Sequence[Message], plan: Compacted, window: float, complete: Complete
    ) -> Compacted:
        """Have the summary of a plan written, where it covers more than the one before."""
        now = self._view.compacted
        if (plan.covers, plan.prompt) == (now.covers, now.prompt):
            return plan
        # The prompt that the last summary was sent before is not part of that summary.
        head = messages[now.prompt : now.prompt + 1] if now.prompt < now.covers else ()
        covered = (*head, *messages[now.covers : plan.covers])
        most = int(ASKED * window) * tokens.CHARACTERS
        words, usage = await write(now.summary, covered, complete, limit=_summary_limit(window), most=most)
        return replace(plan, summary=words, usage=usage)


def _summary_limit(window: float) -> int:
    """Return how many characters a summary may have."""
    return min(max(int(SUMMARY * window) * tokens.CHARACTERS, LEAST_SUMMARY), MOST_SUMMARY)
