"""Refusals that name a part of the history: what is left out of it from then on, and what stays."""

import re

import pytest

from agentmagic.messages import (
    HostedCall,
    HostedResult,
    HostedTool,
    Media,
    Message,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    user,
)
from agentmagic.providers.base import Request
from agentmagic.providers.history_forms import BRIDGE
from agentmagic.providers.refused_parts import RefusedParts, names_part

OWN = ProviderData("anthropic", {"signature": "sig"})
OLD, NEW = (Media("image/png", data, f"{data.decode()}.png") for data in (b"old", b"new"))
PDF = Media("application/pdf", b"%PDF")
CALL = ToolCall("call_1", "look", {"at": "it"}, OWN)
HISTORY = (
    Message("user", (Text("Hello."), OLD)),
    Message("assistant", (Reasoning("Hm.", OWN), Text("I look."), CALL)),
    Message("tool", (ToolResult("call_1", "look", (Text("Seen:"), NEW, PDF)),)),
    Message("assistant", (Reasoning("So.", OWN), Text("It is red."))),
)
TOOL = ToolDef("look", "Look.", {"type": "object"})
REQUEST = Request((*HISTORY, user("And now?")), tools=(TOOL,))
BODY = {
    "messages": [
        {"role": "user", "content": [{"text": "Hello."}, {"image_url": {"url": "data:image/png;base64,b2xk"}}]},
        {"role": "assistant", "content": [{"thinking": "Hm."}, {"text": "I look."}, {"id": "call_1"}]},
        {"role": "user", "content": [{"tool_use_id": "call_1", "content": [{"text": "Seen:"}, {"data": "bmV3"}]}]},
    ]
}
"""What was sent for the request, in a form between those of the APIs."""

PICTURES = "old picture", "new picture"
THOUGHTS = "thoughts"
CALLS = "call"


def left(request: Request) -> set[str]:
    """Return the special pieces that a request still has."""
    parts = [part for message in request.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.content]
    found = {PICTURES[0]: OLD in parts, PICTURES[1]: NEW in parts, "file": PDF in parts}
    found[THOUGHTS] = any(getattr(part, "provider_data", None) for part in parts)
    found[CALLS] = any(isinstance(part, ToolCall) for part in parts)
    found["words"] = any(isinstance(part, Text) and part.text == "Hello." for part in parts)
    return {name for name, is_there in found.items() if is_there}


ALL = left(REQUEST)

WORDS = {
    # pictures: Anthropic, OpenAI, Gemini
    "messages.0.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 "
    "pixels": {"old picture"},
    "messages.2.content.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes": {
        "new picture"
    },
    "Could not process image": {*PICTURES},
    "You uploaded an unsupported image. Please make sure your image is valid.": {*PICTURES},
    "Unable to process input image. Please retry or report in the forum.": {*PICTURES},
    "Provided image is not valid.": {*PICTURES},
    # no pictures at all: vLLM, DeepSeek, OpenAI, llama.cpp, OpenRouter, Mistral
    "m is not a multimodal model": {*PICTURES},
    "Failed to deserialize the JSON body: unknown variant `image_url`, expected `text`": {*PICTURES},
    "Invalid content type. image_url is only supported by certain models.": {*PICTURES},
    "image input is not supported - hint: you may need to provide the mmproj": {*PICTURES},
    "No endpoints found that support image input": {*PICTURES},
    "Image input is not enabled for this model": {*PICTURES},
    # too many: vLLM, Groq, Anthropic, OpenAI
    "At most 1 image(s) may be provided in one request.": {"old picture"},
    "Too many images provided. This model supports up to 1 images": {"old picture"},
    "messages: too many images and documents: 101 + 0 > 100": {"old picture"},
    "Number of images exceeds the limit.": {"old picture"},
    # files
    "messages.2.content.0: PDF cannot be processed": {"file"},
    "Unsupported MIME type: application/x": {"file"},
    # thoughts: Anthropic, OpenAI, Gemini
    "messages.1.content.0: Invalid `signature` in `thinking` block": {THOUGHTS},
    "messages.1.content.0: `thinking` blocks in the latest assistant message cannot be modified.": {THOUGHTS},
    "The encrypted content gAAA could not be verified. Reason: it could not be decrypted or parsed.": {THOUGHTS},
    "Item with id 'rs_68' not found. Items are not persisted when `store` is set to false.": {THOUGHTS},
    "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_2'.": {THOUGHTS},
    "Corrupted thought signature.": {THOUGHTS},
    "Function call is missing a thought_signature in functionCall parts.": {THOUGHTS},
    # calls: Anthropic, OpenAI, Gemini
    "messages.1.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'": {CALLS},
    "Invalid 'messages[1].tool_calls[0].id': it is not known": {CALLS},
    "Please ensure that the number of function response parts is equal to that of the function call turn.": {CALLS},
    # any part that is named by its path alone
    "messages[0].content[0]: forbidden": {"words"},
    "messages.2.content.0: forbidden": {CALLS, "new picture"},
    "messages.0.content.1: forbidden": {"old picture"},
    # no part is named
    "Invalid request.": {*PICTURES, "file", THOUGHTS, CALLS},
}


@pytest.mark.parametrize(
    ("words", "gone"), WORDS.items(), ids=lambda value: value[:60] if isinstance(value, str) else ""
)
def test_the_part_that_a_refusal_names_is_left_out_and_only_this(words, gone):
    refused = RefusedParts()
    assert refused.learn(words, REQUEST, BODY)
    fitted = refused.fit(REQUEST)
    # A call in words has no signature, and no thought before it; the second answer keeps its own.
    assert left(fitted) == ALL - gone
    assert refused.fit(REQUEST).messages == fitted.messages
    assert all(one is same for one, same in zip(refused.fit(REQUEST).messages, fitted.messages, strict=True))
    assert left(REQUEST) == ALL


@pytest.mark.parametrize(
    "words",
    [
        "The model `m` does not exist or you do not have access to it.",
        "API key not valid. Please pass a valid API key.",
        "Your credit balance is too low: check billing.",
        "This request was blocked by our content policy.",
    ],
)
def test_a_refusal_with_another_cause_leaves_the_history_as_it_is(words):
    refused = RefusedParts()
    assert refused.learn(words, REQUEST, BODY) == ""
    assert refused.fit(REQUEST) is REQUEST


def test_what_a_server_has_accepted_or_written_itself_is_not_suspected():
    refused = RefusedParts()
    refused.accept(Request(HISTORY[:1]))
    assert refused.learn("Invalid request.", Request(HISTORY[:2], tools=(TOOL,)), BODY) == ""
    refused.accept(REQUEST)
    assert refused.learn("Invalid request.", REQUEST, BODY) == ""


def test_what_was_suspected_is_sent_again_if_it_was_not_the_cause():
    refused = RefusedParts()
    assert refused.learn("Invalid request.", REQUEST, BODY)
    assert refused.learn("Invalid request.", REQUEST, BODY) == ""
    assert refused.fit(REQUEST).messages == REQUEST.messages


def test_a_picture_of_the_prompt_itself_is_not_left_out():
    refused = RefusedParts()
    asked = Request((Message("user", (Text("What is it?"), OLD)),))
    for words in ("Could not process image", "m is not a multimodal model", "Invalid request."):
        assert refused.learn(words, asked, BODY) == ""
    assert refused.fit(asked) is asked


def test_a_limit_of_pictures_holds_for_later_ones_too():
    refused = RefusedParts()
    assert refused.learn("At most 1 image(s) may be provided in one request.", REQUEST, BODY)
    later = Media("image/png", b"later")
    fitted = refused.fit(Request((*REQUEST.messages, Message("user", (Text("And this?"), later)))))
    assert "new picture" not in left(fitted)
    assert later in fitted.messages[-1].parts


def test_thoughts_that_are_refused_again_in_one_conversation_are_never_sent_again():
    refused = RefusedParts()
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"
    assert refused.learn(words, REQUEST, BODY)
    own = Message("assistant", (Reasoning("Mine.", ProviderData("anthropic", {"signature": "2"})), Text("Two.")))
    longer = Request((*REQUEST.messages, own, user("Three?")))
    assert THOUGHTS in left(refused.fit(longer))
    assert refused.learn(words, longer, BODY)
    last = Message("assistant", (Reasoning("Last.", ProviderData("anthropic", {"signature": "3"})), Text("Three.")))
    assert THOUGHTS not in left(refused.fit(Request((*longer.messages, last, user("Four?")))))


def test_a_call_of_the_provider_becomes_text_with_the_thoughts():
    parts = (
        HostedCall("h", "web_search", {"q": "x"}, "anthropic", OWN),
        HostedResult("h", "web_search", (), "ok", OWN),
    )
    request = Request((user("Hi."), Message("assistant", (*parts, Text("So."))), user("And?")))
    refused = RefusedParts()
    assert refused.learn("Invalid signature", request, BODY)
    assert {type(part) for message in refused.fit(request).messages for part in message.parts} == {Text}


def test_a_refused_call_and_its_result_are_sent_as_text():
    refused = RefusedParts()
    assert refused.learn("tool_use ids are not known", REQUEST, BODY)
    _, answer, result, *_ = refused.fit(REQUEST).messages
    assert (answer.role, answer.text) == ("assistant", 'I look.\n[Called look {"at": "it"}]')
    assert (result.role, result.text) == ("user", "[The result of look (ok):]Seen:")
    assert NEW in result.parts


AFTER_TOOL = "Unexpected role 'user' after role 'tool'"
STOPPED = (user("Go."), Message("assistant", (CALL,)), Message("tool", (ToolResult("call_1", "look", (Text("!"),)),)))
ORDERS = {
    "a user after a tool": (AFTER_TOOL, (*STOPPED, user("Again.")), ["user", "assistant", "tool", "assistant", "user"]),
    "a tool's picture": (AFTER_TOOL, HISTORY[:3], ["user", "assistant", "tool", "assistant", "user"]),
    "a turn without an answer": (
        "Conversation roles must alternate user/assistant/user/assistant/...",
        (user("One."), user("Two."), Message("assistant", (Text("Three."),)), user("Four.")),
        ["user", "assistant", "user"],
    ),
    "a tool that nobody follows": (AFTER_TOOL, STOPPED, ["user", "assistant", "tool"]),
}


@pytest.mark.parametrize(("words", "messages", "roles"), ORDERS.values(), ids=ORDERS)
def test_a_refused_order_of_roles_gets_a_bridge_from_then_on(words, messages, roles):
    refused = RefusedParts()
    request = Request(messages)
    assert refused.learn(words, request, {})
    fitted = refused.fit(request).messages
    assert [message.role for message in fitted] == roles
    said = [part for message in fitted if message != BRIDGE for part in message.parts]
    assert {OLD, NEW, PDF} & {part for message in messages for part in message.parts if isinstance(part, Media)} <= {
        part for part in said if isinstance(part, Media)
    }


CURES = {
    "To use function tools, use /v1/responses or set reasoning_effort to 'none'.": "none",
    "Please set `reasoning.effort` to `low` or remove the tools.": "low",
    "reasoning_effort must be one of none, low": None,
    "set reasoning_effort to 'everything'": None,
    "set max_tokens to 10": None,
}


@pytest.mark.parametrize(("words", "effort"), CURES.items())
def test_a_refusal_of_tools_that_names_an_effort_is_followed_once_and_only_for_tools(words, effort):
    refused = RefusedParts()
    assert refused.follow_cure(words, has_tools=False) == ""
    assert bool(refused.follow_cure(words, has_tools=True)) is (effort is not None)
    assert refused.fit(REQUEST).settings.reasoning == effort
    assert refused.fit(Request(REQUEST.messages)).settings.reasoning is None
    assert refused.follow_cure(words, has_tools=True) == ""


TOO_MANY_TOOLS = {
    # OpenAI, Groq, GitHub's models, Gemini's models, gateways
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200 "
    "instead.": 128,
    "'tools' : maximum number of items is 128": 128,
    "You may not include more than 128 tools in your request.": 128,
    "At most 64 function declarations can be provided.": 64,
    "The number of function declarations must be between 1 and 128.": 128,
    "Too many tools provided.": 100,
    # not the number of tools, or a limit that this request keeps
    "Invalid 'messages[3].tool_calls': array too long. Expected an array with maximum length 128.": 200,
    "Invalid 'tools[3].function.name': string too long. Expected a string with maximum length 64.": 200,
    "tools.3.name: String should have at most 64 characters": 200,
    "Too many tools: the limit is 500.": 200,
}


@pytest.mark.parametrize(("words", "most"), TOO_MANY_TOOLS.items(), ids=lambda value: str(value)[:60])
def test_a_refusal_of_too_many_tools_names_those_that_stay_out(words, most):
    tools = tuple(ToolDef(f"tool_{number}", "", {"type": "object"}) for number in range(200))
    request = Request((user("Hi."),), tools=tools, tool_choice="tool_150")
    refused = RefusedParts()
    notice = refused.learn(words, request, {})
    kept = refused.fit(request).tools
    assert len(kept) == most
    assert tools[150] in kept
    assert kept == tuple(tool for tool in tools if tool in kept)  # in their order
    left_out = [tool.name for tool in tools if tool not in kept]
    assert notice == "" or ", ".join(left_out[:100]) in notice
    assert bool(notice) is bool(left_out)
    assert refused.learn(words, request, {}) == ""
    assert refused.fit(request).tools == kept


def test_tools_that_the_provider_runs_count_as_well():
    tools = tuple(ToolDef(f"tool_{number}", "", {"type": "object"}) for number in range(4))
    request = Request((user("Hi."),), tools=tools, hosted=(HostedTool("web_search"),))
    refused = RefusedParts()
    assert refused.learn("Too many tools: at most 3 tools.", request, {}).endswith(": tool_2, tool_3.")
    assert refused.fit(request).tools == tools[:2]


SHORT = re.compile(r"[a-zA-Z0-9]{9}")
ID_FORMS = [
    "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",  # Mistral, code 3280, and vLLM
    "Tool call IDs should be alphanumeric strings with length 9!",  # the chat templates of its models
]


@pytest.mark.parametrize("words", ID_FORMS)
def test_ids_of_calls_get_the_form_that_a_server_wants_and_stay_pairs(words):
    own = ToolCall("aB3dE6gH9", "look", {})
    messages = (*HISTORY, Message("assistant", (own,)), Message("tool", (ToolResult(own.id, "look", ()),)))
    refused = RefusedParts()
    assert names_part(words)
    assert "nine letters and digits" in refused.learn(words, Request(messages, tools=(TOOL,)), BODY)
    fitted = refused.fit(Request(messages, tools=(TOOL,))).messages
    parts = [part for message in fitted for part in message.parts]
    calls = [part.id for part in parts if isinstance(part, ToolCall)]
    assert [part.call_id for part in parts if isinstance(part, ToolResult)] == calls
    assert all(map(SHORT.fullmatch, calls))
    assert calls[1] == own.id
    assert fitted[0] is messages[0]
    assert refused.fit(Request(messages, tools=(TOOL,))).messages == fitted
