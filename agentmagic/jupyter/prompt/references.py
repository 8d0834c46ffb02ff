"""Makes prompts from typed text: fills in `{expression}` in cells, and attaches `@name` and `@server:uri`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentmagic.errors import AgentMagicError, UsageError
from agentmagic.events import PromptValue
from agentmagic.jupyter.prompt.attachables import Attachables
from agentmagic.messages import LONGEST_PROMPT, Content, Media, Prompt
from agentmagic.prompt.attachments import Attachment
from agentmagic.prompt.braces import WORD, FilledPrompt, code_spans, fill, within
from agentmagic.runtime.engine import engine
from agentmagic.text import join_names
from agentmagic.tools.base import Toolset
from agentmagic.widgets.commands import MOST_ATTACHED

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers

_REFERENCE = re.compile(r"(?<![\w@])@([A-Za-z0-9_.-]+):([^\s\"'<>`]+)")
_AFTER = ".,;:!?)]}"
"""Punctuation that ends a sentence rather than a URI."""
_MENTION = re.compile(
    r"(?<![\w@.+-])@([^\W\d][\w./-]*(?:\[\d{1,9}\])?)(?::(schema|\d{1,9})\b(?![/:.\w])|(?=[^:\w]|$|:(?:\s|$)))"
)
_LEAST_MISSPELT = 3
"""The least number of letters in a word for which a variable with a similar spelling is suggested."""
MOST_WORDS = 5
"""The most words that one message lists as attaching nothing."""
_INLINE_CODE = re.compile(r"(`+)[^`\n]+\1")


@dataclass(frozen=True, slots=True)
class TypedPrompt:
    """The prompt made from the text that the user typed.

    `prompt_values` describes how each notebook value stands in the prompt. `problems` are messages about references
    such as `@name` that attach nothing, and about braces that were left as typed.
    """

    prompt: Prompt
    prompt_values: tuple[PromptValue, ...] = ()
    problems: tuple[str, ...] = ()


def prompt_of(
    typed_text: str, sources: Sequence[Toolset], attachables: Attachables, *, evaluate: bool, images: Sequence[str] = ()
) -> TypedPrompt:
    """Return the prompt made from typed text, followed by the attachments of `@name`, `@server:uri` and `images`.

    With `evaluate`, each `{expression}` is replaced by its value. This is for cells, which are the user's code. Text in
    a chat panel may be pasted from elsewhere, so nothing in it is evaluated and its braces stay.

    Raises UsageError or ServerError if a resource or an image cannot be attached. Raises UsageError for too many.
    """
    if len(typed_text) > LONGEST_PROMPT:
        return TypedPrompt(typed_text)  # not searched for references: the session refuses such a long prompt
    text = typed_text.strip("\n")
    result = fill(text, attachables.variables, attachables.attacher) if evaluate else FilledPrompt(text)
    # References are found in the typed text only, not in the values that have replaced `{expression}`.
    resources = _resources(typed_text, sources)
    mentions, problems = _mentions(typed_text, attachables, {server for server, *_ in resources})
    items = [*mentions, *(_image(name, attachables) for name in images)]
    if len(items) + len(resources) > MOST_ATTACHED:
        raise UsageError(
            f"The cell attaches {len(items) + len(resources)} resources and values; {MOST_ATTACHED} are the most. "
            "Ask in several cells."
        )
    media = [one.part for one in result.attachments if isinstance(one.part, Media)]
    parts: list[Content] = [*media, *(one.part for one in items), *_read(resources)]
    values = tuple(one.value for one in (*result.attachments, *items))
    return TypedPrompt([result.text, *parts] if parts else result.text, values, (*result.problems, *problems))


# -- @ -------------------------------------------------------------------------------------------


def _mentions(text: str, attachables: Attachables, servers: set[str]) -> tuple[list[Attachment], list[str]]:
    """Return an attachment for each `@name` in a text, and messages about the names that attach nothing."""
    code = code_spans(text)
    attachments: dict[tuple[str, str], Attachment] = {}
    problems: list[str] = []
    unbound: list[str] = []
    for mention in _MENTION.finditer(text):
        word, spec = mention[1].rstrip("./-"), mention[2] or ""
        if word in servers or (word, spec) in attachments or within(code, mention.start()):
            continue
        try:
            attachment = attachables.find(word, spec)
            if attachment is None and not spec and (head := WORD.match(word)) and attachables.has(head[0]):
                word, attachment = head[0], attachables.find(head[0], "")  # "@sales.head()" attaches sales
        except AgentMagicError as error:
            problems.append(f"@{word} is not attached: {error}.")
            continue
        if attachment is not None:
            attachments.setdefault((word, spec), attachment)
        elif word.isidentifier() and len(word) >= _LEAST_MISSPELT and (close := attachables.close(word)):
            problems.append(f"@{word} attaches nothing: no variable is named {word}. Did you mean @{close}?")
        elif attachables.is_free(word) and not _is_code(text, mention):
            unbound.append(word)
    return list(attachments.values()), list(dict.fromkeys([*problems, *_nothing(list(dict.fromkeys(unbound)))]))


def _is_code(text: str, mention: re.Match[str]) -> bool:
    """Return whether an unbound `@name` is code: it stands in backticks, or "(" follows it as in a decorator."""
    spans = [match.span() for match in _INLINE_CODE.finditer(text)]
    return text.startswith("(", mention.end()) or within(spans, mention.start())


def _nothing(words: Sequence[str]) -> Iterator[str]:
    """Yield one message about all `@word` references that attach nothing, if there are any.

    It is only one message, because such words may be user handles, or come from pasted text.
    """
    if len(words) == 1:
        yield f"@{words[0]} attaches nothing: no variable is named {words[0]}."
    elif words:
        yield f"{join_names([f'@{word}' for word in words], MOST_WORDS)} attach nothing: no variables are named so."


def _image(name: str, attachables: Attachables) -> Attachment:
    """Return the figure or image of a variable or a file. Raises UsageError if the name is not an image."""
    try:
        attachment = attachables.find(name, "")
    except UsageError as error:
        raise UsageError(f"--image {name} is not attached: {error}.") from error
    if attachment is None:
        raise UsageError(f"--image {name} is no variable, and no file in the notebook's folder.")
    if attachment.value.kind != "image":
        raise UsageError(f"--image {name} is no image: {attachment.value.shown}.")
    return attachment


_Resource = tuple[str, "McpServers", str]
"""A server's name, its group, and a URI."""


def _resources(body: str, sources: Sequence[Toolset]) -> list[_Resource]:
    """Return the MCP resources that a text names as `@server:uri`. If no server has that name, it is plain text."""
    references = dict.fromkeys((server, uri.rstrip(_AFTER)) for server, uri in _REFERENCE.findall(body))
    groups = _servers_by_name(sources) if references else {}
    return [(server, groups[server], uri) for server, uri in references if server in groups]


def _read(resources: Sequence[_Resource]) -> Iterator[Content]:
    """Yield the content of MCP resources. Raises ServerError if a server cannot read a resource."""
    for server, group, uri in resources:
        yield from engine().call(group.read(server, uri))


def _servers_by_name(sources: Sequence[Toolset]) -> "dict[str, McpServers]":
    from agentmagic.tools.mcp import McpServers  # slow to import, and most prompts name no server

    # Reversed, so that the first of two servers with the same name is kept, as for tools.
    groups = [source for source in reversed(sources) if isinstance(source, McpServers)]
    return {state.name: group for group in groups for state in group.servers}
