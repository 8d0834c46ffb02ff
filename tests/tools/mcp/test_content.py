import asyncio
import base64
import html
import json

import pytest
from mcp import types

from agentmagic.messages import Media, Resource, Text, ToolCall
from agentmagic.tools import output_cache
from agentmagic.tools.calling import call_tool
from agentmagic.tools.mcp import content, limits
from agentmagic.tools.mcp.filters import clean_schema
from tests.tools.mcp.calling import context

CALL = ToolCall("call-1", "tool", {})


def result(*blocks, **fields):
    return content.to_result(CALL, types.CallToolResult(content=list(blocks), **fields))


def text(words):
    return types.TextContent(type="text", text=words)


def test_text_keeps_its_order_and_the_call_and_an_error_is_one():
    answer = result(text("a"), text("b"), is_error=True)
    assert (answer.call_id, answer.name, answer.status) == ("call-1", "tool", "error")
    assert answer.content == (Text("a"), Text("b"))


def memo(words):
    return types.TextResourceContents(uri="memo://a", mime_type="text/plain", text=words)


def picture(*audience, sent=b"png", **fields):
    notes = types.Annotations(audience=list(audience))
    given = {"data": base64.b64encode(sent).decode(), "mime_type": "image/png"} | fields
    return types.ImageContent(type="image", annotations=notes, **given)


def test_images_and_sounds_become_media_that_keep_whom_they_are_meant_for():
    sound = types.AudioContent(type="audio", data=base64.b64encode(b"wav").decode(), mime_type="audio/wav; rate=8000")
    answer = result(picture(), sound, picture("user"), picture("assistant"), picture("user", "assistant"))
    assert answer.content[:2] == (Media("image/png", b"png"), Media("audio/wav", b"wav"))
    assert [part.audience for part in answer.content[2:]] == ["user", "assistant", ""]


def test_rubbish_in_place_of_media_is_said_and_not_kept():
    image = picture(data="%%%", mime_type='image/png" onerror="x')
    assert result(image).content == (Text("[application/octet-stream left out: what the server sent is not base64]"),)


def test_embedded_resources_become_resources_or_media_and_links_resources_without_text():
    blob = types.BlobResourceContents(uri="memo://b", mime_type="image/png", blob=base64.b64encode(b"png").decode())
    blocks = [types.EmbeddedResource(type="resource", resource=one) for one in (memo("hello"), blob)]
    link = types.ResourceLink(type="resource_link", uri="memo://a", name="a", title="A memo")
    assert result(*blocks, link).content == (
        Resource("memo://a", media_type="text/plain", text="hello"),
        Media("image/png", b"png", "memo://b"),
        Resource("memo://a", "A memo"),
    )


LINK = types.ResourceLink(type="resource_link", uri="memo://a", name="a")


@pytest.mark.parametrize(
    ("blocks", "structured", "more"),
    [
        ([], {"sum": 3, "word": "größer"}, ['{"sum": 3, "word": "größer"}']),
        ([picture()], {"sum": 3}, ['{"sum": 3}']),
        ([LINK], {"sum": 3}, ['{"sum": 3}']),
        ([], {"result": []}, ['{"result": []}']),
        ([text("3 rows")], {"rows": [1, 2, 3]}, [content.BESIDE, '{"rows": [1, 2, 3]}']),
        ([text("three")], 3, [content.BESIDE, "3"]),
        ([text('{"rows": 2}')], {"rows": 3}, [content.BESIDE, '{"rows": 3}']),
        ([text('"a"'), text("b")], {"result": ["a"]}, [content.BESIDE, '{"result": ["a"]}']),
        ([text("[1, 2")], {"result": [1, 2]}, [content.BESIDE, '{"result": [1, 2]}']),
        ([text('{\n  "b": 1,\n  "a": [2]\n}\n')], {"a": [2], "b": 1}, []),
        ([text('Two rows:\n```json\n{"rows": [1, 2]}\n```')], {"rows": [1, 2]}, []),
        ([text("Two [of 9] rows"), text('["a", {"b": 1}]')], {"result": ["a", {"b": 1}]}, []),
        ([text("sunny")], {"result": "sunny"}, []),
        ([text("7")], {"result": "7"}, []),
        ([text('{"a": 1}'), text("b")], {"result": [{"a": 1}, "b"]}, []),
        ([types.EmbeddedResource(type="resource", resource=memo('{"a": 1}'))], {"a": 1}, []),
    ],
)
def test_structured_content_is_also_text_unless_the_text_says_it_already(blocks, structured, more):
    answer = result(*blocks, structured_content=structured)
    assert answer.structured == structured
    assert [part.text for part in answer.content[len(blocks) :]] == more


LONG = 'The first line.\n\n  A second <line> with "quotes",  a \\ and an é.'
B64 = base64.b64encode(b"a picture of some length").decode()

WRAPPED = {
    "as the filesystem server wraps a file": ([LONG], {"content": LONG}, ""),
    "in two wrappings": ([LONG], {"data": {"text": LONG}}, ""),
    "in other blanks": ([LONG], {"content": " ".join(LONG.split())}, ""),
    "the text has the escapes of JSON": ([json.dumps(LONG)], {"content": LONG}, ""),
    "the text has escapes of JSON within words": ([f"It says: {json.dumps(LONG)}!"], {"content": LONG}, ""),
    "the text has the escapes of HTML": ([html.escape(LONG)], {"content": LONG}, ""),
    "the text is JSON in JSON": ([json.dumps(json.dumps({"n": 1, "m": [2]}))], {"m": [2], "n": 1}, ""),
    "in a list of texts": ([LONG, f"{LONG} 2"], {"items": [LONG, f"{LONG} 2"]}, ""),
    "joined from several texts": ([LONG, f"{LONG} 2"], {"content": f"{LONG}\n{LONG} 2"}, ""),
    "as blocks of MCP": ([LONG], {"content": [{"type": "text", "text": LONG}]}, ""),
    "with something that the text does not have": (
        [LONG],
        {"content": LONG, "truncated": True},
        '{"content": "[in the text above]", "truncated": true}',
    ),
    "another text": (
        [LONG],
        {"content": f"{LONG} And more."},
        json.dumps({"content": f"{LONG} And more."}, ensure_ascii=False),
    ),
    "a short text that is there by chance": (["3 of 30 are red"], {"color": "red"}, '{"color": "red"}'),
    "an empty list": ([LONG], {"items": []}, '{"items": []}'),
    "nothing": ([LONG], {}, "{}"),
}


@pytest.mark.parametrize(("texts", "structured", "told"), WRAPPED.values(), ids=WRAPPED)
def test_a_text_that_structured_content_wraps_is_told_once(texts, structured, told):
    answer = result(*map(text, texts), structured_content=structured)
    assert [part.text for part in answer.content[len(texts) :]] == ([content.BESIDE, told] if told else [])
    assert answer.structured == structured


def test_a_picture_that_structured_content_wraps_is_not_told_as_text():
    block = {"type": "image", "data": B64, "mimeType": "image/png"}
    answer = result(picture(sent=b"a picture of some length"), structured_content={"content": [block]})
    assert answer.content == (Media("image/png", b"a picture of some length"),)


def test_of_long_structured_content_the_model_sees_the_beginning_and_how_to_read_on():
    answer = result(text("500 rows"), structured_content={"rows": [{"n": n} for n in range(500)]})
    seen = output_cache.preview(answer, 1000).text
    assert seen.startswith(f'500 rows\n{content.BESIDE}\n{{"rows": [{{"n": 0}}, ')
    assert 'are left out. read_result(id="call-1", start=' in seen
    reading = ToolCall("call-2", output_cache.READER, {"id": "call-1", "search": '"n": 250'})
    found = asyncio.run(call_tool(output_cache.reader(lambda _: answer), reading, context(reading)))
    assert '{"n": 250}, {"n": 251}' in found.text


def test_too_much_text_is_cut_over_all_parts_and_too_much_media_left_out(monkeypatch):
    monkeypatch.setattr(limits, "RESULT_TEXT", 5)
    answer = result(text("abc"), text("defg"), structured_content="long enough")
    assert answer.content[:2] == (Text("abc"), Text("de\n[cut: 2 more characters]"))
    assert answer.content[-1] == Text("\n[cut: 13 more characters]")
    assert answer.structured is None
    monkeypatch.setattr(limits, "RESULT_MEDIA", 3)
    assert result(picture(sent=b"abcd")).content == (Text("[image/png of 4 bytes left out: the result is too large]"),)


LINES = "\r\x0b\x0c\x85\u2028\u2029"


def test_each_end_of_a_line_in_a_text_is_kept_as_one():
    whole, left = f"a\r\n\r\r\n{'b'.join(LINES)}\x1b[2J\u200bc\r", "a\r\n\n\r\n\nb\nb\nb\nb\nb\nc\n"
    memos = [memo(whole)]
    assert result(text(whole)).content == (Text(left),)
    assert content.to_contents(memos) == (Resource("memo://a", media_type="text/plain", text=left),)
    assert content.to_parts([text(whole)]) == (Text(left),)


@pytest.mark.parametrize("end", LINES)
def test_the_lines_of_a_description_are_not_joined(end):
    prompt = types.Prompt(
        name="a", description=f"a{end}b", arguments=[types.PromptArgument(name="c", description=f"a{end}b")]
    )
    shown = content._prompt("web", prompt)
    assert (shown.description, shown.arguments[0].description) == ("a b", "a b")
    assert (
        content._resource("web", types.Resource(uri="a:b", name="a", description=f"a{end}b"), "a:b").description
        == "a b"
    )
    assert clean_schema({"description": f"a{end}b", "const": f"a{end}b"}) == {
        "description": "a\nb",
        "const": f"a{end}b",
    }
