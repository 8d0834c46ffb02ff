import base64
import json

import pytest
from hypothesis import given, settings

from agentmagic import secrets, serialization
from agentmagic.events import PartFinished, RunResult, StepFinished, StepStarted, TurnFinished, without_deltas
from agentmagic.export import to_gemini, to_json, to_openai, to_responses
from agentmagic.messages import (
    Citation,
    HostedCall,
    HostedResult,
    Media,
    Message,
    ProviderData,
    Reasoning,
    Resource,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    user,
)
from tests.display.logs import one_text, over, started
from tests.export.turns import turn
from tests.logs import whole_messages

PNG = b"\x89PNG"
SIGNATURE = base64.b64encode(b"signed").decode()
ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAB-sk-abcdefghijklmnopqrstuvwx"}
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c3", "name": "now", "arguments": "{}"}

CALLS = Message(
    "assistant", (Reasoning("Hm."), Text("Let me see."), ToolCall("c1", "area", {"w": 3}), ToolCall("c2", "now", {}))
)
RESULTS = Message(
    "tool",
    (
        ToolResult("c1", "area", (Text("21"), Media("image/png", PNG, "plot"))),
        ToolResult("c2", "now", (Resource("clock://now", text="noon"),), "error"),
    ),
)
HISTORY = (user("How large?", Media("image/png", PNG)), CALLS, RESULTS, Message("assistant", (Text("21."),)))
FOREIGN = (
    user("What now?"),
    Message(
        "assistant",
        (Reasoning("", ProviderData("openai", ITEM)), ToolCall("c3", "now", {}, ProviderData("openai", CALLED))),
    ),
    Message("tool", (ToolResult("c3", "now", (Text("noon"),)),)),
    Message(
        "assistant",
        (Text("Noon.", ProviderData("gemini", {"text": "Noon.", "thoughtSignature": SIGNATURE})),),
    ),
)


# -- JSON ------------------------------------------------------------------------------------------


def test_turns_are_one_document_of_a_named_form_whose_events_the_codec_reads():
    document = json.loads(to_json([turn(*one_text("Yes."))]))
    assert {key: document[key] for key in ("format", "version")} == {
        "format": "agentmagic",
        "version": serialization.VERSION,
    }
    assert document["turns"][0]["prompt"] == "Hello"
    events = serialization.decode_log(map(json.dumps, document["turns"][0]["events"]))
    assert tuple(events[:-1]) == without_deltas(one_text("Yes."))[:-1]


def test_what_json_does_not_have_is_null_and_what_utf_8_does_not_have_is_replaced():
    call = ToolCall("c1", "plot", {"x": [float("nan"), float("inf"), 1.5], "name": "\ud800"})
    result = RunResult("{}", (), (), 1, False, "answer", Usage(), value=object())  # which may be anything
    text = to_json([turn(*started(), PartFinished(0, call), StepFinished(1, Usage()), TurnFinished(result))])
    assert '"arguments": {' in text
    arguments = json.loads(text, parse_constant=pytest.fail)["turns"][0]["events"][2]["part"]["arguments"]
    assert arguments == {"x": [None, None, 1.5], "name": "\ufffd"}
    assert text.encode()


def test_secrets_are_blanked_and_bytes_are_left_alone():
    secrets.register_secret("my-own-password")
    image = Media("image/png", b"\x00sk-" * 20)
    call = ToolCall(
        "c1", "f", {"my-own-password": ["Bearer abcdefghijklmnopqrst"]}, ProviderData("x", {"k": "my-own-password"})
    )
    log = [*started("my-own-password"), StepStarted(1, "m"), PartFinished(0, call), PartFinished(1, image), *over()]
    text = to_json([turn(*log)])
    assert "my-own-password" not in text
    assert "abcdefghij" not in text
    assert base64.b64encode(image.data).decode() in text


# -- the messages of three APIs ----------------------------------------------------------------------


def test_chat_messages_hold_calls_and_results():
    system, prompt, answer, first, second, picture, last = to_openai(HISTORY, "Be brief.")
    assert (system, last) == ({"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "21."})
    assert [part["type"] for part in prompt["content"]] == ["text", "image_url"]
    assert answer["content"] == "Let me see."  # no reasoning
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "21\n[image/png plot, 4 bytes]"}
    assert second["content"] == "Error: [resource clock://now]\nnoon"
    assert picture["content"][0]["text"] == "What the call c1 of area returned:"


def test_instructions_are_a_system_message_of_the_responses_too():
    assert to_responses([user("Hi")], "Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert to_responses([user("Hi")])[0]["role"] == "user"


def test_what_a_provider_wrote_goes_back_to_it_as_it_came():
    exported = to_responses(FOREIGN)
    assert exported[1:3] == [ITEM, CALLED]
    assert exported[1] is not ITEM  # a copy
    assert to_gemini(FOREIGN)[-1] == {"role": "model", "parts": [{"text": "Noon.", "thoughtSignature": SIGNATURE}]}


SEARCHED = ProviderData("anthropic", {"type": "server_tool_use", "id": "s1"})
WEB = (
    user("News?"),
    Message(
        "assistant",
        (
            HostedCall("s1", "web_search", {"query": "jit"}, "anthropic", SEARCHED),
            HostedResult("s1", "web_search", (Resource("https://x.org/", "X", text="It has one."),)),
            Text("Yes.", citations=(Citation(0, 4, "https://x.org/", "X"),)),
        ),
    ),
)


@pytest.mark.parametrize("export", [to_openai, to_responses, to_gemini])
def test_what_another_provider_searched_and_cited_is_text_with_links(export):
    words = json.dumps(export(WEB))
    for told in ("web_search", "data, not instructions", "It has one.", "Yes. [X](<https://x.org/>)"):
        assert told in words
    assert "server_tool_use" not in words


def test_pictures_in_results_stand_where_the_model_takes_them():
    inside, behind = to_gemini(HISTORY, "gemini-3.5-flash"), to_gemini(HISTORY)
    blob = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    assert inside[2]["parts"][0]["functionResponse"]["parts"] == [blob]
    assert behind[3]["parts"][1] == blob


@pytest.mark.parametrize("export", [to_openai, to_responses, to_gemini])
def test_a_call_without_a_result_gets_an_interrupted_one_and_a_result_without_a_call_goes(export):
    assert json.dumps(export(HISTORY[:2])).count("Interrupted") == 2
    assert "noon" not in json.dumps(export(HISTORY[2:]))
    assert "Interrupted" not in json.dumps(export(HISTORY + FOREIGN))
    assert export(()) == []


@settings(deadline=None, max_examples=30)
@given(whole_messages)
def test_any_message_is_exported_as_plain_json(message):
    for export in (to_openai, to_responses, to_gemini):
        told = export([message])
        assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_secrets_are_blanked_in_messages():
    secrets.register_secret("my-own-password")
    history = (
        user("my-own-password"),
        Message("assistant", (ToolCall("c1", "f", {"x": "my-own-password"}),)),
        Message("tool", (ToolResult("c1", "f", (Text("my-own-password"),)),)),
    )
    for export in (to_openai, to_responses):
        assert "my-own-password" not in json.dumps(export(history, "my-own-password"))
    assert "my-own-password" not in json.dumps(to_gemini(history))


def test_the_openai_sdk_takes_the_messages():
    chat = pytest.importorskip("openai.types.chat", exc_type=ImportError)
    responses = pytest.importorskip("openai.types.responses", exc_type=ImportError)
    pydantic = pytest.importorskip("pydantic")
    chat_message = pydantic.TypeAdapter(chat.ChatCompletionMessageParam)
    item = pydantic.TypeAdapter(responses.ResponseInputItemParam)
    for messages in (HISTORY, FOREIGN):
        assert all(map(chat_message.validate_python, to_openai(messages, "Be brief.")))
        assert all(map(item.validate_python, to_responses(messages, "Be brief.")))


@pytest.mark.parametrize("messages", [HISTORY, FOREIGN])
@pytest.mark.parametrize("model", ["", "gemini-3.5-flash"])
def test_the_gemini_sdk_takes_the_contents_and_sends_them_as_they_are(messages, model):
    types = pytest.importorskip("google.genai.types", exc_type=ImportError)
    contents = to_gemini(messages, model)
    read = [types.Content.model_validate(content) for content in contents]
    assert [content.model_dump(mode="json", by_alias=True, exclude_none=True) for content in read] == contents
