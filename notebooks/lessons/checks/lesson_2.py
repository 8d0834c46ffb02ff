"""Checks of lesson 2: the limit of a loop, and a failure as a result."""

from agentmagic import ScriptedModel, ToolCall
from agentmagic.testing import check, exercise, expect, invalid_history

from . import raised


def two_calls(step):
    """Return a step that makes two calls, other ones than the steps before."""
    return {"calls": [{"name": "celsius", "arguments": {"fahrenheit": 50 + step + more}} for more in (0, 100)]}


LIMITED = 'A loop "for step in range(1, max_steps + 1)" ends by itself; its "else" runs only if no "break" has ended it.'


@exercise(
    "1",
    LIMITED,
    'Put the three steps of the loop below "for step in range(1, max_steps + 1):", and behind it "else:" with reason = "limit".',
)
async def check_1(result, run_limited):
    """Check the limit with other limits, and with models that end at it, before it and after it."""
    hint = "The loop runs until the model stops by itself. What has to be counted, and compared with max_steps?"
    check(result).hint(hint).called("celsius", fahrenheit=86).steps(max=4)
    hint = 'Somewhere the loop has to say that it was the limit that ended it: reason = "limit".'
    expect(result.stop_reason == "limit", f"The stop reason is {result.stop_reason!r}.", hint)
    for most in (4, 2, 1, 7):
        for calls in (0, most - 1, most, most + 3):
            model = ScriptedModel([*map(two_calls, range(calls)), "It is 10 degrees.", *["It is cold."] * 9])
            got = await run_limited(model, "How warm is 50 degrees Fahrenheit?", max_steps=most)
            expect(got is not None, "run_limited returned nothing.", "A RunResult is returned, at the limit too.")
            hint = "The limit is the parameter max_steps, not the number 4. It counts requests to the model, not calls."
            asked = min(calls + 1, most)
            words = f"With another limit, or another model, the loop sent {len(model.requests)} requests, and {asked} were right."
            expect(len(model.requests) == asked, words, hint)
            hint = "Each call is carried out, and its result goes to the model with the next request. Leave these lines as they were."
            sent = [len(request.messages) for request in model.requests] == [2 * step + 1 for step in range(asked)]
            sent = sent and all(invalid_history(request.messages) is None for request in model.requests)
            expect(sent, "A request does not have all messages before it, with the results of all calls.", hint)
            hint = "The result has all messages, so that they can be shown. Leave the last line as it was."
            expect(len(got.history_delta) >= 2 * asked, "The result lacks messages.", hint)
            hint = 'A model that answers in its last step has answered. "limit" is for a turn that ends without an answer.'
            right = "answer" if calls < most else "limit"
            words = f"A turn has the reason {got.stop_reason!r}, and {right!r} was right."
            expect(got.stop_reason == right, words, hint)
            hint = "The result counts the steps that were taken. Look at what you pass as the fourth argument."
            expect(got.iterations_used == asked, f"The result says {got.iterations_used} steps for {asked} requests.", hint)
            hint = "The text of the last message is the answer. Leave the last line as it was."
            words = f"The model answered, and the result says {got.final_text!r:.80}."
            expect(calls >= most or got.final_text == "It is 10 degrees.", words, hint)


@exercise(
    "2",
    'Test "call.name not in TOOLS" first; ", ".join(TOOLS) lists the names. The model reads nothing but your text.',
    'return ToolResult(call.id, call.name, (Text(f"There is no tool {call.name!r}. Tools: {\', \'.join(TOOLS)}."),), "error"), '
    'and in "except Exception as error" the same with the text f"{error}".',
)
async def check_2(result, carry_out, tools):
    """Check results of calls that fail in other ways, and of calls that succeed."""
    hint = "The second call of the model is right. Its result is a value, and no error."
    check(result).hint(hint).called("celsius", fahrenheit=86).answered("30")
    first = result.history_delta[2].parts[0]
    hint = 'ToolResult takes a status as its fourth argument: "error".'
    expect(first.is_error, f"The result of the first call is no error: its status is {first.status!r}.", hint)
    hint = "The text is all that the model reads. What would you need to know, to find the right name?"
    expect("celsius" in first.text, f"The model read {first.text!r:.200}, which does not help it.", hint)
    runs = []

    def convert(kilometres):
        runs.append(kilometres)
        if kilometres < 0:
            raise ValueError("no way is that short")
        return round(kilometres / 1.609, 1)

    tools["miles"] = convert
    try:
        _check_results(carry_out)
    finally:
        del tools["miles"]
    expect(runs == [-1, 16.09], f"For two calls, the tool ran {len(runs)} times.", "A call is carried out once.")


def _check_results(carry_out):
    unknown, error = raised(carry_out, ToolCall("call_7", "kelvin", {}))
    expect(error is None, f"A call of another tool that does not exist ends the turn: {error!r:.100}", "No error may leave carry_out.")
    hint = "The list of tools may change. Take all names from TOOLS, do not type them."
    named = "miles" in unknown.text and "celsius" in unknown.text
    expect(unknown.is_error and named, f"With one tool more, the model read {unknown.text!r:.200}", hint)
    wrong, error = raised(carry_out, ToolCall("call_8", "celsius", {"fahrenheit": "warm"}))
    hint = "A tool that exists can fail as well. What does the model read then?"
    expect(error is None, f"A call with a wrong argument ends the turn: {error!r:.100}", hint)
    words = f"A call with a wrong argument has the status {wrong.status!r} and the text {wrong.text!r:.100}."
    expect(wrong.is_error and wrong.text.strip(), words, f"{hint} Say what went wrong: the error has a text.")
    failed, error = raised(carry_out, ToolCall("call_11", "miles", {"kilometres": -1}))
    expect(error is None and failed.is_error, "A tool raised an error, and the result is none.", hint)
    told = "no way is that short" in failed.text or "ValueError" in failed.text
    expect(told, f"A tool raised an error, and the model read {failed.text!r:.100}", "Say what went wrong: the error has a text.")
    right = carry_out(ToolCall("call_9", "miles", {"kilometres": 16.09}))
    hint = "A call that succeeds has the value of its tool as its text, and no status of its own."
    expect(right.status == "ok" and right.text == "10.0", f"A call that was right has the text {right.text!r:.100}.", hint)
    zero = carry_out(ToolCall("call_10", "celsius", {"fahrenheit": 32}))
    hint = "0 degrees is a value like any other, though it is false for an if."
    expect(zero.status == "ok" and zero.text == "0.0", f"For 32 degrees Fahrenheit the model read {zero.text!r:.100}", hint)
    same = (right.call_id, right.name, unknown.call_id) == ("call_9", "miles", "call_7")
    expect(same, "A result has the id or the name of another call.", "A result names its call: call.id and call.name.")
