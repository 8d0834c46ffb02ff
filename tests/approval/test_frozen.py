"""What was approved is what runs: whoever looks at the arguments of a call gets a copy, however deep they are."""

import json
import logging
from typing import Any

import pytest

from agentmagic import Policy, Rule, ToolContext, tool
from agentmagic.events import ApprovalAsked, Approve, InnerCall, ToolStarted
from agentmagic.log import arguments_hash
from agentmagic.loop import tool_calls
from tests.approval.test_approvals import answered
from tests.turns import approve, calls, results, scripted, texts

EDITED = {"orders": [{"path": "edited.txt", "lines": [1]}]}


def orders() -> dict[str, Any]:
    return {"orders": [{"path": "safe.txt", "lines": [1, 2]}]}


def spoil(arguments: Any) -> None:
    """Change the arguments of an order as deep as can be."""
    if "orders" not in arguments:
        return
    arguments["orders"][0]["path"] = "/etc/passwd"
    arguments["orders"][0]["lines"].append(666)
    arguments["orders"].append({})


class Shop:
    """A tool that keeps what it got and spoils it. When it runs, it first spoils what others still hold."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.held: list[Any] = []

    def tools(self) -> Any:
        @tool(ask=True)
        def buy(orders: list[dict[str, Any]]) -> str:
            """Buy something."""
            for arguments in self.held:
                spoil(arguments)
            self.got.append(json.loads(json.dumps({"orders": orders})))
            spoil({"orders": orders})
            return "bought"

        return buy


def spoiling_rule(arguments: Any) -> bool:
    spoil(arguments)
    return True


def spoiling_hook(call: Any, definition: Any) -> None:
    spoil(call.arguments)
    definition.parameters.clear()


def edit(asked: ApprovalAsked) -> Approve:
    return Approve(asked.id, arguments=json.loads(json.dumps(EDITED)))


def spoil_and_approve(asked: ApprovalAsked) -> Approve:
    spoil(asked.call.arguments)
    return Approve(asked.id)


@pytest.mark.parametrize("inner", [False, True], ids=["of the model", "inside another"])
@pytest.mark.parametrize(
    ("answer", "options", "expected"),
    [
        (approve, {}, orders()),
        (approve, {"permission": Policy([Rule("ask", "buy", when=spoiling_rule)])}, orders()),
        (approve, {"permission": spoiling_hook}, orders()),
        (approve, {"permission": Policy([Rule("allow", "buy", when=spoiling_rule)])}, orders()),
        (spoil_and_approve, {}, orders()),
        (edit, {}, EDITED),
        (edit, {"permission": Policy([Rule("ask", "buy", when=spoiling_rule)], hook=spoiling_hook)}, EDITED),
    ],
    ids=["tool", "rule", "hook", "allowed", "listener", "edit", "edit with a rule and a hook"],
)
def test_card_audit_log_and_tool_see_the_same_whoever_changes_arguments(answer, options, expected, inner, caplog):
    shop, given = Shop(), orders()

    @tool
    def outer(context: ToolContext) -> str:
        """Call another tool."""
        return str(context.call_tool("buy", given))

    def reply(question: ApprovalAsked) -> Approve:
        shown.append(json.loads(json.dumps(dict(question.call.arguments))))
        spoil(given)  # the program goes on in another thread
        intent = answer(question)
        shop.held += [question.call.arguments, intent.arguments or {}]
        return intent

    first = calls("outer") if inner else calls(("buy", orders()))
    shown: list[Any] = []
    with caplog.at_level(logging.INFO, "agentmagic.audit"):
        outcome = answered(scripted(first, "Done.", tools=[outer, shop.tools()], **options), reply)
    assert not any(result.is_error for result in results(outcome)), texts(outcome)
    assert shop.got == [expected]
    assert shown == ([] if "allow" in str(options) else [orders()])
    started = [event.call for event in outcome.events if isinstance(event, ToolStarted) and event.call.name == "buy"]
    assert [dict(call.arguments) for call in started] == [expected]
    assert f'tool="buy" arguments={arguments_hash(expected)}' in caplog.text
    made = [event.call for event in outcome.events if isinstance(event, InnerCall)]
    made += [call for message in outcome.history_delta for call in message.calls if call.name == "buy"]
    assert [dict(call.arguments) for call in made] == [orders()]


class Chameleon(str):
    """A text that says something else of itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "evil"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"orders": [{"path": {1, 2}}]}, "a set is among them"),
        ({"orders": [{1: 2}]}, "an int is a key in them"),
        ({"orders": [object()]}, "an object is among them"),
    ],
)
def test_arguments_of_an_inner_call_that_are_no_json_are_refused_in_words(arguments, words):
    shop = Shop()

    @tool
    def outer(context: ToolContext) -> str:
        """Call another tool."""
        return str(context.call_tool("buy", arguments))

    (told,) = texts(answered(scripted(calls("outer"), "Done.", tools=[outer, shop.tools()]), approve))
    assert told.startswith(f"The arguments of buy cannot be used: {words}.")
    assert shop.got == []


def test_a_value_that_contains_itself_is_refused_and_a_subclass_is_taken_for_what_it_holds():
    shop, itself = Shop(), list[Any]()
    itself.append(itself)
    given = iter([{"orders": itself}, {"orders": ({"path": Chameleon("safe.txt"), "lines": (True, 1.5)},)}])

    @tool
    def outer(context: ToolContext) -> str:
        """Call another tool."""
        return str(context.call_tool("buy", next(given)))

    session = scripted(calls("outer"), calls("outer"), "Done.", tools=[outer, shop.tools()])
    told = texts(answered(session, approve))
    assert told[0].startswith("The arguments of buy cannot be used: they are nested too deep.")
    assert told[1] == "bought"
    assert shop.got == [{"orders": [{"path": "safe.txt", "lines": [True, 1.5]}]}]


def test_calls_within_calls_are_five_deep_at_most_and_the_model_is_told():
    depths: list[int] = []

    @tool
    def dig(context: ToolContext, depth: int = 0) -> str:
        """Call itself."""
        depths.append(depth)
        return str(context.call_tool("dig", {"depth": depth + 1}))

    (told,) = texts(answered(scripted(calls("dig"), "Done.", tools=[dig]), approve))
    assert depths == list(range(tool_calls.DEEPEST_INNER + 1))
    assert told == (
        "dig was not called: dig runs 5 calls deep within other calls, and no call may be deeper. "
        "Call dig from further out."
    )
