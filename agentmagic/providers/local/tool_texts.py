"""Describes tools in the prompts for the small local model, and chooses the few tools that a prompt can have."""

import re
from collections import Counter
from collections.abc import Sequence

from agentmagic.json_schema import split_examples
from agentmagic.messages import Example, ToolDef
from agentmagic.text import clip

MAX_TOOLS = 5
"""The most tools in one plan prompt. With more tools, plans become unreliable."""

# How many characters of a tool's description a prompt can have: of the first line, and of the whole description.
SUMMARY_CLIP = 300
ABOUT_CLIP = 1000

_WORD = re.compile(r"[a-z0-9]+")


def choose(tools: Sequence[ToolDef], question: str) -> tuple[ToolDef, ...]:
    """Return at most MAX_TOOLS of the tools, in their original order.

    Tools whose whole name is in the question are chosen first. Next are tools whose name, description and example share
    more words with the question. A word counts less if more tools have it. Among equal tools, those with an example are
    preferred, and then earlier ones.
    """
    question_words = set(_stems(question))
    tool_words = [set(_stems(f"{tool.name} {tool.description} {example_question(tool)}")) for tool in tools]
    spread = Counter(word for words in tool_words for word in words)

    def worth(index: int) -> tuple[bool, float, bool, int]:
        name = set(_stems(tools[index].name))
        shared = sum(1 / spread[word] for word in question_words & tool_words[index])
        return bool(name) and name <= question_words, shared, bool(examples(tools[index])), -index

    best = set(sorted(range(len(tools)), key=worth, reverse=True)[:MAX_TOOLS])
    return tuple(tool for index, tool in enumerate(tools) if index in best)


def _stems(text: str) -> list[str]:
    # Only the first five letters count, so that "table" and "tables" are the same word.
    return [word[:5] for word in _WORD.findall(text.lower()) if len(word) > 2]  # noqa: PLR2004  ("a", "is", "of")


def signature(tool: ToolDef, *, whole: bool = False) -> str:
    """Return text for a prompt: the tool's name, its parameters, and the first line of its description.

    With `whole`, the text has the whole description.
    """
    return (
        f"- {tool.name}({', '.join(tool.parameters.get('properties', {}))}): {_about(tool) if whole else summary(tool)}"
    )


def examples(tool: ToolDef) -> tuple[Example, ...]:
    """Return the examples of a tool, each a question and its arguments.

    The examples of a tool of an MCP server are in its description.
    """
    return tool.examples or _split_description(tool)[0]


def _split_description(tool: ToolDef) -> tuple[tuple[Example, ...], str]:
    """Return the examples in the description of a tool, and the rest of the description."""
    try:
        pairs, about = split_examples(tool.description)
    except ValueError:  # an MCP server can send any text as a tool's description
        return (), tool.description
    return tuple(Example(question, arguments) for question, arguments in pairs), about


def example_question(tool: ToolDef) -> str:
    """Return a question that needs the tool: the question of its first example, or else its description."""
    return next((example.question for example in examples(tool)), summary(tool))


def summary(tool: ToolDef) -> str:
    """Return the first line of the description of a tool."""
    return clip(_about(tool).splitlines()[0], SUMMARY_CLIP, "...")


def _about(tool: ToolDef) -> str:
    return clip(_split_description(tool)[1].strip(), ABOUT_CLIP, "...") or tool.name
