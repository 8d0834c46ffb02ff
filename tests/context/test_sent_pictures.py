"""Pictures are small enough for the provider before they are sent, wherever they came from."""

import asyncio
import base64
import importlib.util
import io
import os
import struct
import zlib
from dataclasses import replace

import pytest

from agentmagic import Agent, Session
from agentmagic.context import sent_pictures
from agentmagic.context.compaction import Context, Limits
from agentmagic.context.request_view import RequestView, Rules
from agentmagic.context.sent_pictures import LIMITS, PictureLimits, SentPictures, limits_for, pictures_in, pixels
from agentmagic.messages import Media, Message, Text, ToolCall, ToolResult, user
from agentmagic.providers.openai.chat_completions import OpenAIChat
from tests.providers.loopback import Exchange, Loopback, sse
from tests.turns import calls, notices, scripted

PIL = pytest.importorskip("PIL.Image")
SMALL = PictureLimits(side=64, size=10_000, count=4, total=4_000)


def png(width: int, height: int, *, noise: bool = False) -> bytes:
    """Return a PNG file, of one grey or of noise that cannot be compressed."""
    row = (lambda: os.urandom(width * 3)) if noise else (lambda: b"\x7f" * width * 3)
    data = zlib.compress(b"".join(b"\x00" + row() for _ in range(height)), 1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def saved(width: int, height: int, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    PIL.new("RGB", (width, height)).save(buffer, form, **options)
    return buffer.getvalue()


WEBP = {"WEBP": {}, "WEBP of the kind VP8L": {"lossless": True}, "WEBP of the kind VP8X": {"exif": b"Exif"}}


@pytest.mark.parametrize("form", ["PNG", "GIF", "JPEG", *WEBP])
def test_the_size_of_a_picture_is_in_its_header(form):
    data = saved(300, 20, form.split()[0], **WEBP.get(form, {}))
    assert pixels(data) == (300, 20)
    for cut in range(30):
        assert pixels(data[:cut]) in ((0, 0), (300, 20))
    assert pixels(b"no picture") == (0, 0)


@pytest.mark.parametrize("provider", [*LIMITS, "ollama", "openai-chat"])
@pytest.mark.parametrize(
    "data", [png(9_000, 40), png(40, 9_000), png(1_600, 1_400, noise=True)], ids=["wide", "high", "big"]
)
def test_a_picture_that_is_too_large_is_made_smaller_once(provider, data):
    pictures, limits = SentPictures(), limits_for(provider)
    media = Media("image/png", data, "a.png", "assistant")
    sent = pictures.fit(media, limits)
    assert isinstance(sent, Media)
    assert len(sent.data) <= limits.size
    assert max(pixels(sent.data)) <= limits.side
    assert (sent.name, sent.audience) == ("a.png", "assistant")
    assert pictures.fit(replace(media), limits) is sent


def test_what_is_small_or_no_picture_is_sent_as_it_is():
    pictures = SentPictures()
    for media in (
        Media("image/png", b"\x89PNG-a-picture"),
        Media("image/png", png(60, 60)),
        Media("audio/wav", b"x" * 99_999),
    ):
        assert pictures.fit(media, SMALL) is media


@pytest.mark.parametrize("form", ["BMP", "TIFF"])
def test_a_picture_of_a_type_that_models_do_not_read_is_sent_as_png(form):
    sent = SentPictures().fit(Media(f"image/{form.lower()}", saved(30, 20, form)), limits_for("gemini"))
    assert isinstance(sent, Media)
    assert (sent.media_type, pixels(sent.data)) == ("image/png", (30, 20))


def test_a_picture_of_a_type_that_cannot_be_converted_is_named():
    sent = SentPictures().fit(Media("image/svg+xml", b"<svg/>"), limits_for("gemini"))
    assert sent == Text("[image/svg+xml, 6 bytes] (not sent: models do not read its type)")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no picture" * 1_000_000, "not sent: it has 10,000,000 bytes"),
        (
            b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 60_000, 60_000, 8, 2, 0, 0, 0, 0),
            "not sent: ",
        ),
        (png(20, 9_000)[:200], "not sent: it cannot be read: "),  # cut off
        (
            b"\x89PNG\r\n\x1a\n"
            + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 60_000, 60_000, 8, 2, 0, 0, 0)
            + struct.pack(">I", zlib.crc32(struct.pack(">4sIIBBBBB", b"IHDR", 60_000, 60_000, 8, 2, 0, 0, 0)))
            + struct.pack(">I4sI", 0, b"IDAT", zlib.crc32(b"IDAT")),
            "not sent: it cannot be read: ",  # a bomb: PIL reads the header, and refuses the pixels
        ),
    ],
)
def test_what_cannot_be_made_smaller_is_named(data, words):
    sent = SentPictures().fit(Media("image/png", data, "a.png"), limits_for("openai"))
    assert isinstance(sent, Text)
    assert words in sent.text
    assert "a.png" in sent.text


def results(count: int, start: int = 0):
    """Messages with a picture each, of 1,000 bytes."""
    for number in range(start, start + count):
        picture = Media("image/png", bytes([number]) * 1_000, f"{number}.png")
        yield Message("assistant", (ToolCall(f"c{number}", "look", {}),))
        yield Message("tool", (ToolResult(f"c{number}", "look", (picture,)),))


def test_the_oldest_pictures_are_named_when_there_are_too_many_and_a_few_more_than_needed(monkeypatch):
    monkeypatch.setitem(LIMITS, "openai", SMALL)
    view, rules, history, seen = RequestView(), Rules(provider="openai"), [user("Go.")], []
    for number in range(12):
        history += results(1, number)
        before = view.messages
        view.follow(tuple(history), rules)
        sent = [media.name for media in pictures_in(view.messages)]
        assert sent == [f"{n}.png" for n in range(number + 1)][-len(sent) :]
        assert 0 < len(sent) <= SMALL.count
        seen.append(before == view.messages[: len(before)])
    assert seen.count(False) <= 5  # what was sent before seldom changes
    assert len(pictures_in(history)) == 12


def test_a_history_that_was_cut_hides_no_picture_that_fits(monkeypatch):
    monkeypatch.setitem(LIMITS, "openai", SMALL)
    view, rules = RequestView(), Rules(provider="openai")
    view.follow((user("Go."), *results(9)), rules)
    view.follow((user("Again."), *results(2)), rules)
    assert len(pictures_in(view.messages)) == 2


def test_the_trials_of_a_compaction_make_no_picture_small_again(monkeypatch):
    history, work = (user("Go.", Media("image/png", png(9_000, 2), "big.png")),), list[str]()
    view = RequestView()
    context = Context(Limits(1_000), view=view, provider="openai")
    context.view(history)
    monkeypatch.setattr(sent_pictures, "fit_image", lambda data, name: work.append(name) or Media("image/png", data))
    asyncio.run(context.compact(history, 0, lambda request: None, early=True))
    assert work == []


def test_the_work_is_done_in_a_thread_and_once_for_a_message(monkeypatch):
    work = []
    monkeypatch.setattr(
        sent_pictures, "fit_image", lambda data, name: work.append(name) or Media("image/png", b"", name)
    )
    history = (user("Go.", Media("image/png", png(9_000, 2), "big.png")),)

    async def main() -> None:
        view = RequestView()
        for _ in range(3):
            await view.fit_pictures(history, "openai")
            view.follow(history, Rules(provider="openai"))

    asyncio.run(main())
    assert work == ["big.png"]


def answer() -> Exchange:
    return Exchange(sse({"choices": [{"delta": {"content": "Fine."}, "finish_reason": "stop"}]}) + sse(done=True))


def look() -> Media:
    """Look."""
    return Media("image/png", png(100, 5_000))


def test_a_picture_of_a_tool_a_prompt_and_an_earlier_model_goes_out_small():
    session = scripted(calls("look"), "I see.", tools=[look])
    session.ask("Look.")
    before = session.messages
    with Loopback([answer(), answer()]) as server:
        agent = Agent(OpenAIChat("gpt-5.4", base_url=server.url, api_key="k"))
        session.ask(["And this?", Media("image/png", png(5_000, 100))], agent=agent)
        session.ask("And now?", agent=agent)
        first, second = (received.json["messages"] for received in server.requests)
    urls = [part["image_url"]["url"] for message in second for part in message["content"] if "image_url" in part]
    assert len(urls) == 2
    assert all(max(pixels(base64.b64decode(url.partition(",")[2]))) <= 2_000 for url in urls)
    assert second[: len(first)] == first
    assert session.messages[: len(before)] == before


def without_pillow(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(sent_pictures, "find_spec", lambda name: None if name == "PIL" else find(name))


def other_pillow(monkeypatch):
    """Another version of Pillow writes other bytes, and more of them."""
    fit = sent_pictures.fit_image
    monkeypatch.setattr(
        sent_pictures, "fit_image", lambda *image: replace(small := fit(*image), data=small.data + b" " * 9)
    )


@pytest.mark.parametrize("prepare", [without_pillow, other_pillow])
def test_a_replay_compares_pictures_as_they_are_in_the_history(monkeypatch, tmp_path, prepare):
    path, agent = tmp_path / "look.cassette.yaml", Agent(scripted(calls("look"), "I see.").agent.model, tools=[look])
    prompt = ["Look.", Media("image/png", png(3_000, 40, noise=True), "wide.png")]
    recording = Session(agent, cassette=path, replay="record")
    recording.ask(prompt)
    recording.close()
    assert path.stat().st_size < 1.5 * len(base64.b64encode(prompt[1].data))  # the cassette has the picture once
    prepare(monkeypatch)
    played = Session(agent, cassette=path, replay="replay")
    result = played.ask(prompt)
    played.close()
    assert (result.final_text, notices(result)) == ("I see.", [])


def test_without_pillow_a_large_picture_is_named_and_the_user_told_once(monkeypatch):
    without_pillow(monkeypatch)
    with Loopback([answer(), answer()]) as server:
        session = Session(Agent(OpenAIChat("gpt-5.4", base_url=server.url, api_key="k")))
        told = [notices(session.ask(prompt)) for prompt in (["See.", look()], "And now?")]
        assert "image_url" not in server.requests[0].body.decode()
        assert "not sent: it is too large" in server.requests[0].body.decode()
    assert told[0] == [sent_pictures.NO_PILLOW]
    assert told[1] == []
