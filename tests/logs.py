"""Logs of turns for the tests of those who read them, and the strategies that make random ones."""

from hypothesis import strategies as st

from agentmagic import events, messages
from agentmagic.events import PartDelta, PartFinished, PartStarted, StepFinished, StepStarted, ToolFinished, TurnStarted
from agentmagic.messages import Text, ToolCall, ToolResult, Usage, user

CALL = ToolCall("c1", "add", {"a": 1, "b": 2})
RESULT = ToolResult("c1", "add", (Text("3"),))
STARTED = TurnStarted(user("What is 1 + 2?"), "scripted:script")


def told(index, part):
    """The events of one whole part."""
    kind = part.type
    words = part.text if kind != "tool_call" else "{}"
    name = part.name if kind == "tool_call" else ""
    return [PartStarted(index, kind, name), PartDelta(index, words), PartFinished(index, part)]


def step(number, *parts):
    """The events of one whole step."""
    inner = [event for index, part in enumerate(parts) for event in told(index, part)]
    return [StepStarted(number, "scripted:script"), *inner, StepFinished(number, Usage(3, 0, 2, 0, 1), "stop")]


WHOLE = [
    STARTED,
    *step(1, Text("Let me add."), CALL),
    ToolFinished(RESULT),
    *step(2, Text("It is 3.")),
]
"""The log of a turn with one call, up to its TurnFinished."""

words = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
_fields = {
    "data": json_values,
    "arguments": st.dictionaries(words, json_values, max_size=3),
    "structured": json_values,
}
provider_data = st.builds(messages.ProviderData, words, json_values)
contents = st.one_of(
    st.builds(messages.Text, words),
    st.builds(messages.Media, words, st.binary(max_size=8), words),
    st.builds(messages.Resource, words, words, words, words),
)
results = st.builds(
    messages.ToolResult,
    words,
    words,
    st.lists(contents, max_size=3).map(tuple),
    st.sampled_from(["ok", "error", "denied", "interrupted", "timeout"]),
    json_values,
    st.none() | words,
)
parts = st.one_of(
    contents,
    results,
    st.builds(messages.Reasoning, words, st.none() | provider_data),
    st.builds(messages.ToolCall, words, words, _fields["arguments"], st.none() | provider_data),
)
whole_messages = st.builds(
    messages.Message,
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(parts, max_size=3).map(tuple),
    st.booleans(),
)
usages = st.builds(messages.Usage, *[st.integers(0, 99)] * 5, st.none() | st.floats(0, 9))
some_events = st.one_of(
    st.builds(events.TurnStarted, whole_messages, words),
    st.builds(events.Working, words),
    st.builds(events.PartDelta, st.integers(0, 9), words),
    st.builds(events.PartFinished, st.integers(0, 9), parts),
    st.builds(events.StepFinished, st.integers(1, 9), usages, words, st.floats(0, 9), st.booleans()),
    st.builds(events.StepRetried, st.integers(1, 9), st.integers(1, 5), st.floats(0, 9), words),
    st.builds(events.ApprovalAsked, words, st.builds(messages.ToolCall, words, words, _fields["arguments"]), words),
    st.builds(events.ApprovalGiven, words, st.booleans(), st.booleans(), words, st.none() | _fields["arguments"]),
    st.builds(events.Sampled, words, words, usages),
    st.builds(events.ToolProgress, words, st.floats(0, 9), st.none() | st.floats(0, 9), words),
    st.builds(events.ToolFinished, results, st.floats(0, 9)),
    st.builds(events.PromptAdded, whole_messages),
    st.builds(events.Compacted, words, *[st.integers(0, 99)] * 5, usages),
    st.builds(events.HistoryCut, st.integers(0, 9)),
    st.builds(events.Notice, st.sampled_from(["info", "warning", "error"]), words),
)
