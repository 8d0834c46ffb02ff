import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.secrets import register_secret
from agentmagic.tools.mcp import stdio
from agentmagic.tools.mcp.stdio import Lines, Tail, TooLong


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_however_the_bytes_are_cut(lines, data):
    stream = b"".join(line + b"\n" for line in lines)
    cutter, found, at = Lines(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 10))
        found += cutter.feed(stream[at : at + size])
        at += size
    assert found == [line.strip() for line in lines]


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ({"jsonrpc": "2.0", "id": 7, "result": {"id": 8, "x": "y" * 9000}}, 7),
        ({"result": {"id": 8, "x": "y" * 9000}, "jsonrpc": "2.0", "id": "seven"}, "seven"),
        ({"method": "notifications/message", "params": {"id": 8, "data": "y" * 9000}}, None),
    ],
)
def test_a_line_that_is_too_long_leaves_only_the_request_it_answers(message, request_id):
    lines = Lines(longest=5000)
    stream = json.dumps(message).encode() + b"\nnext\n"
    found = []
    for at in range(0, len(stream), 700):
        found += lines.feed(stream[at : at + 700])
        assert sum(len(part) for part in lines._parts) < 6000
    assert found == [TooLong(request_id), b"next"]


@given(st.lists(st.sampled_from(["\\ud83d", "\\uDE00", "\\\\", "a", "\\n", "\\u0041", "\\\\ud83d"])).map("".join))
def test_halves_of_characters_are_mended_and_nothing_else(text):
    words = json.loads(f'"{text}"').encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert json.loads(stdio.repair(f'"{text}"'.encode())) == words


@pytest.mark.parametrize(
    ("written", "gist"),
    [
        (b"\x1b[2J\x1b]0;x\x07good\rbad \xe2\x80\xaeend\n", "goodbad end"),
        (
            b'starting\nTraceback (most recent call last):\n  File "x.py", line 1\nOSError: oh\n',
            "starting / OSError: oh",
        ),
    ],
)
def test_the_gist_of_last_words_moves_nothing_on_the_screen_and_has_the_last_line_of_a_traceback(written, gist):
    tail = Tail()
    tail.write(written)
    assert tail.gist() == gist


def test_the_gist_shows_no_end_of_a_key_that_it_cuts():
    register_secret("a-key-of-the-server")
    tail = Tail()
    tail.write(b"a-key-of-the-server" + b"x" * 290)
    assert "the-server" not in tail.gist()
