import base64

from mcp import types

from agentmagic.messages import Media, Resource, Text, ToolCall
from agentmagic.tools.mcp import content, limits

CALL = ToolCall("call-1", "tool", {})


def result(*blocks, **fields):
    return content.to_result(CALL, types.CallToolResult(content=list(blocks), **fields))


def text(words):
    return types.TextContent(type="text", text=words)


def test_text_keeps_its_order_and_the_call_and_an_error_is_one():
    answer = result(text("a"), text("b"), is_error=True)
    assert (answer.call_id, answer.name, answer.status) == ("call-1", "tool", "error")
    assert answer.content == (Text("a"), Text("b"))


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
    words = types.TextResourceContents(uri="memo://a", mime_type="text/plain", text="hello")
    blob = types.BlobResourceContents(uri="memo://b", mime_type="image/png", blob=base64.b64encode(b"png").decode())
    blocks = [types.EmbeddedResource(type="resource", resource=one) for one in (words, blob)]
    link = types.ResourceLink(type="resource_link", uri="memo://a", name="a", title="A memo")
    assert result(*blocks, link).content == (
        Resource("memo://a", media_type="text/plain", text="hello"),
        Media("image/png", b"png", "memo://b"),
        Resource("memo://a", "A memo"),
    )


def test_structured_content_alone_is_also_text_and_beside_text_is_not_repeated():
    answer = result(structured_content={"sum": 3, "word": "größer"})
    assert answer.structured == {"sum": 3, "word": "größer"}
    assert answer.content == (Text('{"sum": 3, "word": "größer"}'),)
    assert result(text("three"), structured_content=3).content == (Text("three"),)


def test_too_much_text_is_cut_over_all_parts_and_too_much_media_left_out(monkeypatch):
    monkeypatch.setattr(limits, "RESULT_TEXT", 5)
    answer = result(text("abc"), text("defg"), structured_content="long enough")
    assert answer.content == (Text("abc"), Text("de\n[cut: 2 more characters]"))
    assert answer.structured is None
    monkeypatch.setattr(limits, "RESULT_MEDIA", 3)
    assert result(picture(sent=b"abcd")).content == (Text("[image/png of 4 bytes left out: the result is too large]"),)
