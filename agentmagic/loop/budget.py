"""What may be spent: the caps of a turn and of a session, kept before each request."""

from dataclasses import dataclass

from agentmagic.messages import Usage


class BudgetExhausted(Exception):
    """No further request may be sent in this turn; the message says why. The loop ends the turn of it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A cap on cost (US dollars) and tokens (input and output), and what was spent under it before.

    `of` says in a word what it is the cap of.
    """

    of: str
    max_cost: float | None = None
    max_tokens: int | None = None
    before: Usage = Usage()  # noqa: RUF009  (a frozen value)

    def exhausted(self, usage: Usage) -> str | None:
        """Say in a sentence why no further request may be sent after this usage, or return None."""
        spent = self.before + usage
        tokens = spent.input_tokens + spent.output_tokens
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return f"The {self.of} has taken {tokens:,} tokens; max_tokens is {self.max_tokens:,}. {self._advice}"
        if self.max_cost is None:
            return None
        if spent.cost is None:
            return (
                f"What the {self.of} costs is unknown, so max_cost cannot be kept. Register the model's price with "
                "register_model, or use max_tokens."
            )
        if spent.cost >= self.max_cost:
            return f"The {self.of} has cost ${spent.cost:.4f}; max_cost is ${self.max_cost:.4f}. {self._advice}"
        return None

    @property
    def _advice(self) -> str:
        return "No further request was sent; raise the limit to go on."
