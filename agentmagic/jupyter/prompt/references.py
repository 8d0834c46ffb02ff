"""Makes prompts from typed text: values of `{expression}` in cells, `@name` and `@server:uri` everywhere."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentmagic.errors import AgentMagicError, UsageError
from agentmagic.events import PromptValue
from agentmagic.jupyter.prompt.attachables import Attachables
from agentmagic.messages import LONGEST_PROMPT, Content, Media, Prompt
from agentmagic.prompt.attachments import Attachment
from agentmagic.prompt.braces import WORD, Filled, code_spans, fill, within
from agentmagic.runtime.engine import engine
from agentmagic.text import listed
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
"""Letters that a word must have at least, for a variable of nearly the same spelling to be suggested."""
MOST_NAMED = 5
"""Words that attach nothing and are named in one line."""
_INLINE_CODE = re.compile(r"(`+)[^`\n]+\1")


@dataclass(frozen=True, slots=True)
class TypedPrompt:
    """The prompt of typed text; `told` says what each value became, `problems` what is odd about them."""

    prompt: Prompt
    told: tuple[PromptValue, ...] = ()
    problems: tuple[str, ...] = ()


def prompt_of(
    written: str, sources: Sequence[Toolset], attachables: Attachables, *, evaluate: bool, images: Sequence[str] = ()
) -> TypedPrompt:
    """Return the prompt that typed text stands for, with what `@name` and `@server:uri` name behind it.

    In a cell, which is the user's code, the values of `{expression}` are put in. In the chat box nothing is evaluated:
    pasted text is not the user's code, and its braces are literal (SECURITY-5). `images` are attached too.

    Raises UsageError and ServerError if a resource or an image cannot be attached.
    """
    if len(written) > LONGEST_PROMPT:
        return TypedPrompt(written)  # the session refuses it; no time is spent on its braces
    text = written.strip("\n")
    filled = fill(text, attachables.variables, attachables.attacher) if evaluate else Filled(text)
    # Looked for in what was typed, not in the values that were put in.
    resources = _resources(written, sources)
    named, problems = _mentioned(written, attachables, {server for server, *_ in resources})
    given = [*named, *(_image(name, attachables) for name in images)]
    if len(given) + len(resources) > MOST_ATTACHED:
        raise UsageError(
            f"The cell attaches {len(given) + len(resources)} resources and values; {MOST_ATTACHED} are the most. "
            "Ask in several cells."
        )
    shown = [one.part for one in filled.attachments if isinstance(one.part, Media)]
    parts: list[Content] = [*shown, *(one.part for one in given), *_read(resources)]
    told = tuple(one.told for one in (*filled.attachments, *given))
    return TypedPrompt([filled.text, *parts] if parts else filled.text, told, (*filled.left, *problems))


# -- @ -------------------------------------------------------------------------------------------


def _mentioned(text: str, attachables: Attachables, servers: set[str]) -> tuple[list[Attachment], list[str]]:
    """Return what `@name` attaches, each once, and what to tell of names that attach nothing."""
    code = code_spans(text)
    found: dict[tuple[str, str], Attachment] = {}
    problems: list[str] = []
    unbound: list[str] = []
    for mention in _MENTION.finditer(text):
        word, spec = mention[1].rstrip("./-"), mention[2] or ""
        if word in servers or (word, spec) in found or within(code, mention.start()):
            continue
        try:
            one = attachables.find(word, spec)
            if one is None and not spec and (head := WORD.match(word)) and attachables.has(head[0]):
                word, one = head[0], attachables.find(head[0], "")  # "@sales.head()" names sales
        except AgentMagicError as error:
            problems.append(f"@{word} is not attached: {error}.")
            continue
        if one is not None:
            found.setdefault((word, spec), one)
        elif word.isidentifier() and len(word) >= _LEAST_MISSPELT and (close := attachables.close(word)):
            problems.append(f"@{word} attaches nothing: no variable is named {word}. Did you mean @{close}?")
        elif attachables.is_free(word) and not _is_code(text, mention):
            unbound.append(word)
    return list(found.values()), list(dict.fromkeys([*problems, *_nothing(list(dict.fromkeys(unbound)))]))


def _is_code(text: str, mention: re.Match[str]) -> bool:
    """Return whether an unbound `@name` is code: within backticks, or a decorator with a bracket behind it."""
    spans = [found.span() for found in _INLINE_CODE.finditer(text)]
    return text.startswith("(", mention.end()) or within(spans, mention.start())


def _nothing(words: Sequence[str]) -> Iterator[str]:
    """Yield the one line about words that attach nothing: they may be handles, or pasted from anywhere."""
    if len(words) == 1:
        yield f"@{words[0]} attaches nothing: no variable is named {words[0]}."
    elif words:
        yield f"{listed([f'@{word}' for word in words], MOST_NAMED)} attach nothing: no variables are named so."


def _image(name: str, attachables: Attachables) -> Attachment:
    """Return the figure or image of a variable or a file. Raises UsageError if there is none."""
    try:
        found = attachables.find(name, "")
    except UsageError as error:
        raise UsageError(f"--image {name} is not attached: {error}.") from error
    if found is None:
        raise UsageError(f"--image {name} is no variable, and no file in the notebook's folder.")
    if found.told.kind != "image":
        raise UsageError(f"--image {name} is no image: {found.told.shown}.")
    return found


_Resource = tuple[str, "McpServers", str]
"""A server's name, its group, and a URI."""


def _resources(body: str, sources: Sequence[Toolset]) -> list[_Resource]:
    """Return the resources that a text names; a name that is no server's is plain text."""
    written = dict.fromkeys((server, uri.rstrip(_AFTER)) for server, uri in _REFERENCE.findall(body))
    known = _servers_by_name(sources) if written else {}
    return [(server, known[server], uri) for server, uri in written if server in known]


def _read(resources: Sequence[_Resource]) -> Iterator[Content]:
    """Yield the content of resources. Raises ServerError if a server cannot read one."""
    for server, group, uri in resources:
        yield from engine().call(group.read(server, uri))


def _servers_by_name(sources: Sequence[Toolset]) -> "dict[str, McpServers]":
    from agentmagic.tools.mcp import McpServers  # takes a while to load, and most prompts name no server

    # Reversed, so that of two servers of one name the first source's is meant, as it is for tools.
    groups = [source for source in reversed(sources) if isinstance(source, McpServers)]
    return {state.name: group for group in groups for state in group.servers}
