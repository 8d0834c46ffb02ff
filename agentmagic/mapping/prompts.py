"""The prompts for the rows of a map: `{column}` stands for a value of the row."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentmagic.context.request_view import tokens_of_message
from agentmagic.errors import UsageError, describe
from agentmagic.events import PromptValue
from agentmagic.mapping.rows import ROW, Rows, Values, is_missing
from agentmagic.messages import Content, Media, Message, Prompt, Text, as_prompt, user
from agentmagic.prompt.attachments import Attacher, Attachment
from agentmagic.prompt.braces import WORD, BracedExpression, FilledPrompt, Template, free_names
from agentmagic.serialization import encode
from agentmagic.text import did_you_mean, join_names, sanitize, single_line
from agentmagic.values.describe import CHARACTERS

KEY = 24
"""Hexadecimal digits of a row's key: 96 bits, so that no two rows of a frame have the same key by chance."""
LONGEST_PIECE = 40
"""Maximum number of characters of a row's values that name the row to the user."""
LONGEST_PROBLEM = 300
"""Maximum number of characters in the problem of a row that cannot be asked."""

_BRACES = re.compile(r"\{([^{}!:\n]{1,80})[^{}\n]*\}")


@dataclass(frozen=True, slots=True)
class RowPrompt:
    """The prompt of one row of a map. `place` is the number of the row.

    The `key` is computed from the row's own values in the prompt. It stays the same if the row moves, or if the words
    around the values change. The second of two equal rows gets a different key. If the row cannot be asked, `prompt` is
    None and `problem` says why.
    """

    place: int
    key: str
    prompt: Message | None
    values: tuple[PromptValue, ...] = ()
    problem: str = ""

    @property
    def size(self) -> int:
        """The estimated number of tokens in the prompt."""
        return 0 if self.prompt is None else tokens_of_message(self.prompt)


class RowPrompts:
    """Makes the prompt of each row of a map. A name in braces is a column of the row. Any other is a variable.

    Notebook variables are evaluated once. Raises UsageError if the prompt names no column, or has an unknown name.
    """

    def __init__(self, prompt: Prompt, rows: Rows, namespace: Mapping[str, Any], attacher: Attacher) -> None:
        first_part, *further = as_prompt(prompt).parts
        if not isinstance(first_part, Text):
            raise UsageError("The prompt of a map begins with a text that names a column, as {review} does.")
        self.text = first_part.text
        self._rows = rows
        self._attacher = attacher
        self._further: list[Content] = [part for part in further if isinstance(part, Content)]
        names = {*rows.names, ROW}
        words = {*WORD.findall(self.text)} - names  # only names in the prompt, because this dict is copied for each row
        self._namespace = {name: namespace[name] for name in words if name in namespace}
        template = Template.read(self.text, {**self._namespace, **dict.fromkeys(names)})
        unbound = [*template.unbound, *_near_columns(self.text, rows)]
        if unbound and (rows.total or rows.names):
            raise UsageError(_unknown_name_error(unbound[0], rows))
        if unbound:  # there are no rows and no known columns: take unknown names as columns
            names |= {name for one in unbound for name in WORD.findall(one.partition("}")[0])[:1]}
            template = Template.read(self.text, {**self._namespace, **dict.fromkeys(names)})
        self._template = template.evaluate_constants(names, self._namespace, attacher)
        self.columns = frozenset(name for one in self._template.expressions for name in free_names(one.tree) & names)
        if not self.columns and rows.total != 0:
            raise UsageError(
                "The prompt names no column, so every row would be asked the same. Write one in braces: "
                f"{join_names([f'{{{name}}}' for name in rows.names], 5)}."
            )

    @property
    def whole(self) -> Message:
        """The prompt of all rows as the user wrote it, not filled in yet, and the images in notebook variables."""
        pictures = [attachment.part for attachment in self._notebook_values if isinstance(attachment.part, Media)]
        return as_prompt(user(self.text, *self._further, *pictures))

    @property
    def values(self) -> tuple[PromptValue, ...]:
        """The values of notebook variables that the prompt of every row contains."""
        return tuple(attachment.value for attachment in self._notebook_values)

    @property
    def _notebook_values(self) -> list[Attachment]:
        return [piece for piece in self._template.pieces if isinstance(piece, Attachment)]

    @property
    def digest(self) -> str:
        """A digest of the prompt that all rows share: its words, and the values of notebook variables in it."""
        pieces = self._template.pieces
        words = (piece.written if isinstance(piece, BracedExpression) else repr(piece) for piece in pieces)
        return digest(*words, *map(encode, self._further))

    def piece(self, prompt: RowPrompt) -> str:
        """Return a short piece of the row's own values in its prompt, on one line; "" if the row has none there."""
        shared = self.values
        return single_line(sanitize(", ".join(one.text for one in prompt.values if one not in shared)), LONGEST_PIECE)

    def read(self) -> Iterator[RowPrompt]:
        """Yield the prompt of each row."""
        counts = Counter[str]()
        for place, values in enumerate(self._rows.read(self.columns)):
            prompt = self._row_prompt(place, values)
            counts[prompt.key] += 1
            if (number := counts[prompt.key]) > 1:
                prompt = RowPrompt(place, f"{prompt.key}-{number}", prompt.prompt, prompt.values, prompt.problem)
            yield prompt

    def _row_prompt(self, place: int, values: Values) -> RowPrompt:
        if problem := self._problem(values):
            return RowPrompt(place, digest("", str(place)), None, (), problem)
        try:
            filling = self._template.fill({**self._namespace, **values}, self._attacher)
            prompt = self._prompt(filling)
        except Exception as error:  # noqa: BLE001  (a value of the user's class may raise anything)
            return RowPrompt(place, digest("", str(place)), None, (), single_line(describe(error), LONGEST_PROBLEM))
        own = [attachment for attachment in filling.attachments if attachment not in self._template.pieces]
        key = digest(*(encode(attachment.part) for attachment in own))
        if filling.problems:
            return RowPrompt(place, key, None, (), single_line(filling.problems[0], LONGEST_PROBLEM))
        if problem := next((self._loss(attachment) for attachment in own if attachment.loss), ""):
            return RowPrompt(place, key, None, (), problem)
        return RowPrompt(place, key, prompt, tuple(attachment.value for attachment in filling.attachments))

    def _prompt(self, filling: FilledPrompt) -> Message:
        pictures = [attachment.part for attachment in filling.attachments if isinstance(attachment.part, Media)]
        return as_prompt(user(filling.text, *pictures, *self._further))

    def _problem(self, values: Values) -> str:
        """Return why a row with these values cannot be asked, or "" if it can be asked."""
        for name in sorted(self.columns):
            if name not in values:
                return f"The row has no {name}."
        # Check plain column names only, because an expression may handle missing values.
        for expression in self._template.expressions:
            if expression.source in self.columns and is_missing(values[expression.source]):
                return (
                    f"{expression.source} is missing in this row, so nothing was asked. Fill it, or leave the row out."
                )
        return ""

    def _loss(self, attachment: Attachment) -> str:
        """Return why a row is not asked: the model would get only a part of a value, and could give a wrong answer."""
        name, advice = attachment.value.written[1:-1], ""
        if attachment.loss.startswith("is longer"):
            most = self._attacher.budget * CHARACTERS
            advice = f" Shorten it first, as {{{name}[:{most}]}} does." if name.isidentifier() else " Shorten it first."
        return f"{attachment.value.written} {attachment.loss}, so nothing was asked.{advice}"


def _near_columns(text: str, rows: Rows) -> list[str]:
    """Return the `{...}` parts of a text that probably misspell a column name that is not an identifier."""
    names = [name for name in rows.names if not name.isidentifier()]
    braces = [content.strip() for content in _BRACES.findall(text)] if names else []
    return [
        f"{{{brace}}}"
        for brace in braces
        if brace not in names and not brace.isidentifier() and did_you_mean(brace, names)
    ]


def _unknown_name_error(braces: str, rows: Rows) -> str:
    """Return the error message for a name in braces that is neither a column nor a variable."""
    name = braces.partition("}")[0].removeprefix("{")
    hint = did_you_mean(name, rows.names)
    return f"{{{name}}} names no column and no variable.{hint} The columns: {join_names(rows.names)}."


def digest(*texts: str) -> str:
    """Return one digest of all texts, in this order."""
    hasher = hashlib.sha256()
    for text in texts:
        hasher.update(f"{len(text)}:".encode() + text.encode(errors="surrogatepass"))
    return hasher.hexdigest()[:KEY]
