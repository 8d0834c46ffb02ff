"""How streamed responses are split into lines and server-sent events, wherever the network cuts them."""

import asyncio

import pytest

from agentmagic.providers.streams import DONE, read_events, read_lines


class Response:
    """A response whose body comes in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.left = list(pieces)

    async def aiter_bytes(self):
        while self.left:
            yield self.left.pop(0)


def all_of(reader, *pieces: bytes) -> list[list[bytes]]:
    async def read() -> list[list[bytes]]:
        return [found async for found in reader(Response(*pieces))]

    return asyncio.run(read())


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_wherever_they_are_cut(end):
    text = (
        end.join([b": a comment", b"event: x", b'data: {"a":', b"data:1}", b"", b"", b"data: 2", b"", b"data: 3"]) + end
    )
    for place in range(len(text)):
        found = all_of(read_events, text[:place], text[place:] + end)
        assert [data.replace(b" ", b"") for read in found for data in read] == [b'{"a":\n1}', b"2", b"3"], place


def test_what_comes_in_one_read_is_one_list_and_an_event_without_its_end_is_left_out():
    assert all_of(read_lines, b"a\nb", "c\nd\u2028\x0b".encode()) == [[b"a"], [b"bc"], ["d\u2028\x0b".encode()]]
    assert all_of(read_events, b"data: 1\n\ndata: 2\n\nda", b"ta: 3\n\ndata: 4\n") == [[b" 1", b" 2"], [b" 3"]]


def test_a_response_is_read_to_its_end_behind_the_last_event():
    response = Response(b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n", b"more", b"\n")

    async def read() -> list[list[bytes]]:
        return [found async for found in read_events(response)]

    assert asyncio.run(read()) == [[b" 1", DONE]]
    assert response.left == []
