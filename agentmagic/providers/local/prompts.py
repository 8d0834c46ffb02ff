"""Writes the prompts for the small local model, and reads its replies. No function here has side effects.

A model of this size does not reliably follow a format for tool calls. Each request is therefore split into steps, and
the runtime enforces the format of each step:

- PLAN: a grammar allows only "answer", or up to three real tool names in order.
- ARGUMENTS of the next planned tool: they must follow its JSON Schema. The prompt has the results so far.
- ANSWER: free text, from the results alone.

At temperature 0, the model writes the same plan at every step of a turn, so the provider need not store the plan.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from agentmagic.messages import Content, Message, Resource, ToolCall, ToolDef, ToolResult, as_text
from agentmagic.providers.base import OutputSchema, PlanQuestion, Request
from agentmagic.providers.local.narrow import narrow
from agentmagic.providers.local.rows import compact, in_rows, row_grammar
from agentmagic.providers.local.tool_texts import example_question, examples, signature, summary
from agentmagic.providers.wire import read_arguments
from agentmagic.text import clip

MAX_CALLS = 3
"""The most calls in one plan."""

REPAIRS = 1
"""The number of failed calls of a turn that are tried again with other arguments."""

PLAN_TOKENS = 100
ARGUMENTS_TOKENS = 384
ANSWER_TOKENS = 512
FORM_TOKENS = 1024
"""More than `ANSWER_TOKENS`, because JSON takes more tokens than plain text, and is useless if it is cut off."""

# How many characters of each kind of text a prompt can have. The model's context window is small, and it takes seconds
# to read a long prompt.
QUESTION_CLIP = 500
RESULT_CLIP = 800
EARLIER_CLIP = 200
EARLIER_TURNS = 2
ATTACHED_CLIP = 2000
ATTACHED_PLAN_CLIP = 100
"""Short, because a plan depends on which files are attached, not on their content."""
PROPERTIES_CLIP = 2000
INSTRUCTIONS_CLIP = 2000

# Example questions that need no tool. Without these examples, the model plans a tool for every question.
ANSWER_SHOTS = ("Good evening!", "Who wrote Hamlet?", "What is a variable in programming?", "Thanks a lot!")
ANSWER_LINE = "no tool. For greetings, thanks, general knowledge and explanations."

ROWS_ANSWER = "briefly. Keep the order of the rows, and give the value that was asked for with each"
NO_RESULT_PROMPT = "No tool gave a result. Say in one sentence that this could not be answered, and why: {question}"

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
RAW = "_raw"
"""The name of the only argument of a call whose arguments were not a JSON object."""

_ROW = re.compile(r"^\d+\. ", re.MULTILINE)
_LISTING = re.compile(
    r"(?!.*\b(?:total|sum|mean|average|how many|number of)\b)"
    r"(?:\W*(?:please )?(?:list|show|rank|sort)\b"
    r"|.*\b(?:(?:ordered|sorted|ranked) by|in order|top \d+|\w+est first)\b)",
    re.IGNORECASE,
)
"""Matches a question that asks for rows in an order, by its first line. Other questions ask for a fact in the rows."""

PromptMessage = tuple[Literal["system", "user", "assistant"], str]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request to the local model for one reply.

    It has the messages, the limit on the reply's tokens, and the grammar or JSON Schema that the reply must follow.
    """

    messages: tuple[PromptMessage, ...]
    max_tokens: int
    grammar: str = ""
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A finished tool call of the current turn; `arguments` is JSON text, `outcome` is the text of the result.

    If the result is a list of records, `outcome` has a row for each, and `rows` are the labels of these rows.
    """

    name: str
    arguments: str
    outcome: str
    failed: bool = False
    rows: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """One line for a prompt with the call and its outcome."""
        return f"{self.name}({self.arguments}) {'failed:' if self.failed else 'returned'} {self.outcome}"


@dataclass(frozen=True, slots=True)
class Talk:
    """The part of a conversation that the prompts contain: the question, the calls of this turn, and earlier turns.

    `earlier` are pairs of a question and its answer. `outline` is the question with only the beginnings of the files
    and values attached to it; "" means that it is the same as `question`.
    """

    question: str
    calls: tuple[FinishedCall, ...] = ()
    earlier: tuple[tuple[str, str], ...] = ()
    outline: str = ""

    @property
    def found_nothing(self) -> bool:
        """Whether tools were called, and all calls failed."""
        return bool(self.calls) and all(call.failed for call in self.calls)

    @property
    def prompt(self) -> str:
        """The text for a prompt: the questions and answers of earlier turns, followed by the current question."""
        return self._after_earlier(self.question)

    @property
    def short_prompt(self) -> str:
        """The same text as `prompt`, but with only the beginnings of the question's attachments."""
        return self._after_earlier(self.outline or self.question)

    def _after_earlier(self, text: str) -> str:
        before = [f"(Earlier question: {question} Answer: {answer})\n" for question, answer in self.earlier]
        return "".join(before) + text


def read(request: Request) -> Talk:
    """Return a `Talk` with the current turn in the messages of a request, and a few turns before it."""
    messages = request.messages
    start = _turn_start(request)
    user_messages = [message for message in messages[start:] if message.role == "user"]
    question, outline = (
        "\n".join(_message_text(one, most) for one in user_messages) for most in (ATTACHED_CLIP, ATTACHED_PLAN_CLIP)
    )
    earlier = tuple(_earlier(messages[:start]))[-EARLIER_TURNS:]
    return Talk(question, tuple(_finished_calls(messages[start:])), earlier, outline)


def _turn_start(request: Request) -> int:
    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    if not users:
        return 0
    # If a turn reaches its limit of steps, the agent loop adds a user message after the last tool results, which asks
    # for the answer. The answer needs these results, so the turn begins at the user message before that one.
    closing = request.tool_choice == "none" and len(users) > 1 and request.messages[users[-1] - 1].role == "tool"
    return users[-2] if closing else users[-1]


def _message_text(message: Message, limit: int = ATTACHED_CLIP) -> str:
    parts = (cast("Content", part) for part in message.parts if not isinstance(part, ToolCall))
    return "\n".join(
        clip(compact(as_text(part)), limit, "...") if isinstance(part, Resource) else as_text(part) for part in parts
    )


def _finished_calls(messages: Iterable[Message]) -> Iterable[FinishedCall]:
    calls: dict[str, ToolCall] = {}
    for message in messages:
        calls |= {call.id: call for call in message.calls}
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in calls:
                yield _finished_call(calls[part.call_id], part)


def _finished_call(call: ToolCall, result: ToolResult) -> FinishedCall:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    outcome, rows = in_rows(compact(result.text))
    outcome = clip(outcome, RESULT_CLIP, "...")
    row_count = len(_ROW.findall(outcome))
    return FinishedCall(call.name, arguments, outcome, failed=result.is_error, rows=rows[:row_count])


def _earlier(messages: Iterable[Message]) -> Iterable[tuple[str, str]]:
    question = answer = ""
    for message in messages:
        if message.role == "user":
            if question and answer:
                yield question, answer
            question, answer = clip(_message_text(message), QUESTION_CLIP, "..."), ""
        elif message.role == "assistant" and message.text:
            answer = clip(message.text, EARLIER_CLIP, "...")
    if question and answer:
        yield question, answer


def plan(talk: Talk, tools: Sequence[ToolDef], *, required: bool = False) -> GenerationRequest:
    """Return the prompt that asks which tools the question needs, in order (at least one, if `required`)."""
    shots = [(example_question(tool), tool.name) for tool in tools]
    word = _no_tool(tools)
    tool_lines = "\n".join(map(signature, tools))
    task = (
        "You choose the tools that a question needs, in order.\n\n"
        f"Tools:\n{tool_lines}\n- {word}: {ANSWER_LINE}\n\n"
        "Reply with the tool name. If several calls are needed, separate the names with commas."
    )
    messages: list[PromptMessage] = [("system", task)]
    for question, name in (*shots, *((shot, word) for shot in ANSWER_SHOTS), *_joined_shots(shots)):
        messages.extend(_shot(question, name))
    messages.append(("user", talk.short_prompt))
    return GenerationRequest(tuple(messages), PLAN_TOKENS, grammar=plan_grammar(tools, required=required))


def _shot(question: str, reply: str) -> tuple[PromptMessage, PromptMessage]:
    return ("user", question), ("assistant", reply)


def _joined_shots(shots: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join examples with one call (`shots`), and return two examples. Each is a question and a plan of two calls."""
    if len(shots) < 2:  # noqa: PLR2004  (two examples are needed)
        return []
    (first, one), (second, two), (last, three) = shots[0], shots[1], shots[-1]
    return [(f"{first} Then: {second}", f"{one}, {two}"), (f"{last} And also: {first}", f"{three}, {one}")]


def _no_tool(tools: Sequence[ToolDef]) -> str:
    """Return a word that means "no tool" in a plan, and that is not the name of a tool."""
    names = {tool.name for tool in tools}
    return next(word for word in ("answer", "no_tool", "-") if word not in names)


def plan_grammar(tools: Sequence[ToolDef], *, required: bool = False) -> str:
    """Return the grammar (GBNF) of a plan: one to three tool names, or, if not `required`, the word for "no tool"."""
    names = " | ".join(json.dumps(tool.name) for tool in tools)
    no_tool = "" if required else f"{json.dumps(_no_tool(tools))} | "
    return f'root ::= {no_tool}tool ("," " " tool){{0,{MAX_CALLS - 1}}}\ntool ::= {names}'


def tools_in_plan(reply: str, tools: Sequence[ToolDef]) -> tuple[ToolDef, ...]:
    """Return the tools that the model's plan (`reply`) names. Other words, such as a cut-off name, are ignored."""
    by_name = {tool.name: tool for tool in tools}
    return tuple(by_name[name] for name in reply.strip().split(", ") if name in by_name)


def next_tool(talk: Talk, steps: Sequence[ToolDef]) -> ToolDef | None:
    """Return the tool to call next, or None if every step of the plan is done.

    The first failure of a turn does not count as a step: the tool is tried again with other arguments.
    """
    failures = sum(call.failed for call in talk.calls)
    step = len(talk.calls) - min(failures, REPAIRS)
    return steps[step] if step < len(steps) else None


def arguments(talk: Talk, tool: ToolDef, *, several: bool = False) -> GenerationRequest:
    """Return the prompt for the arguments of the next call, or for a list for all calls if `several` is True."""
    properties = clip(json.dumps(tool.parameters.get("properties", {}), ensure_ascii=False), PROPERTIES_CLIP, "...")
    what = f"the calls to {tool.name} that a question needs: a list with one object for each call"
    task = (
        f"You write the JSON arguments of {what if several else f'a call to {tool.name}'}.\n"
        f"{signature(tool, whole=True)}\n"
        f"Parameters: {properties}\nReply with the JSON {'list' if several else 'object'} only."
    )
    messages: list[PromptMessage] = [("system", task)]
    for example in examples(tool)[:1]:
        example_arguments = dict(example.arguments)
        messages.extend(
            _shot(
                example.question, json.dumps([example_arguments] if several else example_arguments, ensure_ascii=False)
            )
        )
    question = talk.prompt
    if talk.calls:
        history = "\n".join(f"{call.name}({call.arguments}) -> {call.outcome}" for call in talk.calls)
        question += (
            f"\n\nAlready done:\n{history}\n\n"
            f"Write the arguments of the next call to {tool.name}. It must differ from the calls already done."
        )
    messages.append(("user", question))
    form = narrow(tool.parameters)
    schema = {"type": "array", "items": form, "minItems": 1, "maxItems": MAX_CALLS} if several else form
    return GenerationRequest(tuple(messages), ARGUMENTS_TOKENS, schema=schema)


def takes_nothing(tool: ToolDef) -> bool:
    """Return whether a tool has no parameters, so that no arguments need to be generated."""
    return not tool.parameters.get("properties") and not tool.parameters.get("additionalProperties")


def parse_arguments(reply: str) -> dict[str, Any]:
    """Return the arguments in a reply of the model; a reply that is not a JSON object becomes `{"_raw": "..."}`."""
    return read_arguments(reply) if reply.strip() else {RAW: reply}


def parse_argument_list(reply: str) -> list[dict[str, Any]]:
    """Return the arguments of each call that a reply of the model lists in JSON, without duplicates.

    A reply that is not a list counts as the arguments of one call.
    """
    try:
        read = json.loads(reply)
    except ValueError:
        read = None
    values = cast("list[Any]", read) if isinstance(read, list) else []
    texts = dict.fromkeys(json.dumps(one, ensure_ascii=False) for one in values) or [reply]
    return [parse_arguments(text) for text in texts]


def repeats(talk: Talk, call: ToolCall) -> bool:
    """Return whether the same call was made before in this turn."""
    return any(
        earlier.name == call.name and json.loads(earlier.arguments) == dict(call.arguments) for earlier in talk.calls
    )


def talk_of(decision: PlanQuestion) -> Talk:
    """Return a `Talk` with the question and the calls of a turn that follows a task list."""
    calls = (_finished_call(call, result) for call, result in decision.calls)
    return Talk(decision.question, tuple(calls))


def route(steps: Sequence[ToolDef]) -> str:
    """Return JSON that says whether a turn begins with tool calls ("tools") or is answered at once ("answer").

    `steps` are the tools in the model's plan. Other models can also choose to ask the user a question first; the small
    model never does.
    """
    return json.dumps({"route": "tools" if steps else "answer"})


def one_tool(steps: Sequence[ToolDef]) -> bool:
    """Return whether a plan names only one tool, once or several times.

    Such a plan can have the wrong number of calls.
    """
    return len({tool.name for tool in steps}) == 1


def task_list(steps: Sequence[ToolDef], values: Sequence[Mapping[str, Any]]) -> str:
    """Return the task list for a plan as JSON, with a task for each call.

    `values` are the arguments of the first call, or of every call. A task whose arguments are not known yet gets them
    from the result of the task before it.
    """
    tasks: list[dict[str, Any]] = []
    if one_tool(steps) and len(values) > len(steps):
        steps = [steps[0]] * len(values)
    together = len(values) == len(steps)
    for number, tool in enumerate(steps, 1):
        before = [] if together or number == 1 else [f"t{number - 1}"]
        later = dict.fromkeys(tool.parameters.get("properties", {}), f"${''.join(before)}")
        task = {"id": f"t{number}", "tool": tool.name, "parameters": later if before else values[number - 1]}
        tasks.append({**task, "depends_on": before, "description": summary(tool)})
    return json.dumps({"tasks": tasks}, ensure_ascii=False)


def judgement(talk: Talk, tool: ToolDef, new_arguments: Mapping[str, Any]) -> str:
    """Return JSON that says whether the last call succeeded, and whether to retry it.

    A failed call is retried if no earlier call had `new_arguments`, which the model wrote after the failure.
    """
    last = talk.calls[-1]
    retry = last.failed and not repeats(talk, ToolCall("", tool.name, new_arguments))
    reason = last.outcome if last.failed else ""
    return json.dumps(
        {"success": not last.failed, "retry": retry, "reason": reason, "parameters": new_arguments or None}
    )


def answer(talk: Talk, instructions: str, who: str, output: OutputSchema | None = None) -> GenerationRequest:
    """Return the prompt for the answer to the user. It has any tool results, and asks for JSON if `output` is given."""
    task = f"{who} You are a helpful assistant. Answer briefly."
    if instructions:
        task += f"\n\n{clip(instructions, INSTRUCTIONS_CLIP, '...')}"
    messages: list[PromptMessage] = [("system", task)]
    for question, reply in talk.earlier:
        messages.extend(_shot(question, reply))
    # If the question asks for a list, a grammar makes the answer keep the order of the rows in the tool's result: in
    # free text, the model would change the order.
    rows = talk.calls[-1].rows if talk.calls and _LISTING.match(talk.question) else ()
    if talk.calls:
        facts = "\n".join(dict.fromkeys(call.line for call in talk.calls))
        how = "as a JSON object" if output else ROWS_ANSWER if rows else "in one or two sentences"
        instruction = f"Use only these facts to answer {how}: {talk.question}"
        if talk.found_nothing:
            instruction = NO_RESULT_PROMPT.format(question=talk.question)
        messages.append(("user", f"Facts:\n{facts}\n\n{instruction}"))
    else:
        messages.append(("user", talk.question))
    if output is None:
        return GenerationRequest(tuple(messages), ANSWER_TOKENS, grammar=row_grammar(rows) if rows else "")
    return GenerationRequest(tuple(messages), FORM_TOKENS, schema=narrow(output.schema))


def next_id(messages: Iterable[Message]) -> str:
    """Return an id for a new call that is not used in the conversation."""
    ids = {call.id for message in messages for call in message.calls}
    number = len(ids) + 1
    while f"call_{number}" in ids:
        number += 1
    return f"call_{number}"
