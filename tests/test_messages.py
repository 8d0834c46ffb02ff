from agentmagic.messages import Media, Message, Reasoning, Resource, Text, ToolCall, ToolResult, Usage, as_text, user

CALL = ToolCall("1", "add", {"a": 1})


def test_the_text_of_a_message_leaves_reasoning_and_calls_out_and_says_every_content_in_words():
    message = Message("assistant", (Reasoning("hm"), Text("It is "), CALL, Text("42.")))
    assert message.text == "It is 42."
    assert message.calls == (CALL,)
    picture = Media("image/png", b"1234", "plot.png")
    assert user("Look:", picture).parts == (Text("Look:"), picture)
    assert ToolResult("1", "plot", (Text("Here:"), picture)).text == "Here:\n[image/png plot.png, 4 bytes]"
    assert as_text(Media("image/png", b"1234")) == "[image/png, 4 bytes]"
    assert as_text(Resource("file:///a")) == "[resource file:///a]"
    assert as_text(Resource("file:///a", text="inside")) == "[resource file:///a]\ninside"


def test_usage_adds_up_and_a_sum_with_an_unknown_cost_is_unknown():
    total = Usage(10, 2, 5, 1, 1, 0.25) + Usage(20, 3, 6, 2, 1, 0.5)
    assert total == Usage(30, 5, 11, 3, 2, 0.75)
    written = Usage(cache_write_tokens=5, cache_write_1h_tokens=2)
    assert total + written + written == Usage(30, 5, 11, 3, 2, 0.75, 10, 4)
    assert sum([Usage(cost=None), Usage(cost=1.0)], Usage()).cost is None
