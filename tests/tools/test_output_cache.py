import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic import ToolContext
from agentmagic.messages import Media, Message, Resource, Text, ToolCall, ToolResult, user
from agentmagic.tools.calling import call_tool
from agentmagic.tools.output_cache import READER, find_result, preview, reader

LOG = "\n".join(f"line {number}: all is well" for number in range(2_000))
PICTURE = Media("image/png", b"12345", "plot.png")


def long(*extra, call_id="c1"):
    return ToolResult(call_id, "read_log", (Text(LOG), *extra), structured={"lines": 2_000})


async def unasked(question):
    pytest.fail(f"nobody was to be asked {question}")


def read(whole=None, limit=None, **arguments):
    """What the tool returns where the history holds one result, as the loop would call it."""
    whole = whole or long()
    tool = reader({whole.call_id: whole}.get, limit)
    call = ToolCall("c9", READER, {"id": whole.call_id, **arguments})
    return asyncio.run(call_tool(tool, call, ToolContext(call, ask=unasked, progress=lambda *told: None)))


def words_of(came):
    """What was read, without the line above it."""
    return came.text.partition("\n")[2]


def test_a_preview_has_the_beginning_the_end_and_how_to_read_on_where_the_beginning_ends():
    short = long(PICTURE)
    assert preview(short, len(short.text)) is short
    shown = preview(long(call_id='a"b'), 1_000).text
    beginning, rest = shown.split("\n[Characters ")
    assert shown.startswith("line 0: all is well\nline 1:")
    assert shown.endswith("line 1999: all is well")
    assert f"of {len(LOG)} are left out" in rest
    assert 'read_result(id="a\\"b", start=' in rest  # an id that can be given back
    start = int(rest.split()[0])
    assert LOG[:start] == beginning
    assert words_of(read(start=start, length=50)) == LOG[start : start + 50]
    whole = ToolResult("c1", "fetch", (Resource("file:///log", text=LOG),))
    assert preview(whole, 800).text.startswith("[resource file:///log]\nline 0")


def test_media_stay_beside_a_preview_that_names_them_or_only_their_names_are_left():
    shown = preview(long(PICTURE), 1_000)
    assert shown.content[1:] == (PICTURE,)
    assert shown.text.count("[image/png plot.png, 5 bytes]") == 2  # in the words, and for the medium itself
    short = ToolResult("c1", "draw", (Text("Drawn."), PICTURE))
    assert preview(short, 500, media=False).content == (Text("Drawn.\n[image/png plot.png, 5 bytes]"),)
    assert all(isinstance(part, Text) for part in preview(long(PICTURE), 500, media=False).content)


@given(
    st.lists(st.text(max_size=400) | st.binary(max_size=3), max_size=6), st.integers(0, 900), st.booleans(), st.text()
)
def test_a_preview_never_passes_its_limit(pieces, limit, media, call_id):
    content = tuple(Text(piece) if isinstance(piece, str) else Media("image/png", piece) for piece in pieces)
    whole = ToolResult(call_id, "work", content, "error")
    shown = preview(whole, limit, media=media)
    assert sum(len(part.text) for part in shown.content if isinstance(part, Text)) <= limit
    assert (shown.call_id, shown.name, shown.status) == (call_id, "work", "error")
    media_left = [part for part in shown.content if isinstance(part, Media)]
    assert media_left == [part for part in content if isinstance(part, Media)][: None if media else 0]


@pytest.mark.parametrize(
    ("whole", "arguments", "text"),
    [
        ("0123456789", {"start": 2, "length": 3}, "[Characters 2 to 5 of 10; start=5 reads on]\n234"),
        ("0123456789", {"start": 2.0, "search": None}, "[Characters 2 to 10 of 10, the end]\n23456789"),
        ("0123456789", {"start": 8}, "[Characters 8 to 10 of 10, the end]\n89"),
        ("", {}, "[Characters 0 to 0 of 0, the end]\n"),
    ],
)
def test_reading_gives_the_piece_that_was_asked_for(whole, arguments, text):
    assert read(ToolResult("c1", "work", (Text(whole),)), **arguments).text == text


def test_a_start_after_the_end_is_an_error_that_says_how_long_the_result_is():
    came = read(start=10**30)
    assert came.is_error
    assert f"has {len(LOG)} characters" in came.text


@pytest.mark.parametrize("limit", [500, None])
@pytest.mark.parametrize("arguments", [{"length": 10**9}, {"search": "LINE"}, {"search": "well", "start": 30_000}, {}])
def test_a_reading_is_never_itself_previewed(limit, arguments):
    came = read(limit=limit, **arguments)
    assert not came.is_error
    assert preview(came, limit or 20_000) is came


SEARCHES = [
    (
        LOG,
        {"search": "LINE 1999"},
        ["[1 of 1 hits from character 0 on]\n", f"[{LOG.index('line 1999')}] …", "line 1998"],
    ),
    (
        LOG,
        {"search": "well", "start": LOG.index("well") + 1},
        ["[10 of 1999 hits from character 16 on; start=237 shows"],
    ),
    ("a" * 5_000_000, {"search": "A"}, ["[10 of 5000000 hits from character 0 on; start=10 shows the next]"]),
    ("a" * 5_000_000, {"search": "a" * 199 + "b"}, ["not found"]),  # almost everywhere
    ("see (a+)+$ there", {"search": "(a+)+$"}, ["[4] …"]),
    ("İİİ ẞ Ω Straße", {"search": "straße"}, ["[8] …"]),
]


@pytest.mark.parametrize(("whole", "arguments", "parts"), SEARCHES)
def test_words_are_found_whatever_their_case_with_their_places_and_the_next_start(whole, arguments, parts):
    came = read(ToolResult("c1", "work", (Text(whole),)), **arguments)
    assert not came.is_error
    assert [part for part in parts if part not in came.text] == []


@pytest.mark.parametrize("arguments", [{"start": -1}, {"length": 0}, {"search": ""}, {"search": "x" * 201}, {"id": 7}])
def test_arguments_that_do_not_fit_are_an_error_to_mend(arguments):
    assert read(**arguments).is_error


def test_an_unknown_id_is_an_error_that_says_which_ids_there_are():
    tool = reader(lambda call_id: None)
    call = ToolCall("c9", READER, {"id": "x" * 5_000})
    came = asyncio.run(call_tool(tool, call, ToolContext(call, ask=unasked, progress=lambda *told: None)))
    assert came.is_error
    assert "Use the id that a preview names" in came.text
    assert len(came.text) < 300


def test_a_result_is_found_by_its_id_the_newest_first():
    old, new = ToolResult("c1", "add", (Text("2"),)), ToolResult("c1", "add", (Text("4"),))
    history = [user("Add."), *(Message("tool", (one,)) for one in (old, new))]
    assert find_result(history, "c1") is new
    assert find_result(history, "c2") is None
