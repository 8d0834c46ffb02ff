"""Sources are kept wherever a frame has them, each once: the frames of servers, and the citations of the answer."""

from collections.abc import Iterable
from typing import Any

import pytest

from agentmagic.events import PartFinished
from agentmagic.messages import Citation, Text
from agentmagic.providers.anthropic.decoder import Decoder as Anthropic
from agentmagic.providers.gemini.decoder import Decoder as Gemini
from agentmagic.providers.hosted import LONGEST_QUOTE, LONGEST_TITLE, MOST_CITATIONS
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses

Json = dict[str, Any]

A, B = "https://a.example/1", "https://b.example/2"
SAID = "Fine [1]."


def citations(decoder: Any, frames: Iterable[Json]) -> tuple[Citation, ...]:
    events = [event for frame in frames for event in decoder.feed(frame)]
    ends = [event.part for event in (*events, *decoder.close()) if isinstance(event, PartFinished)]
    (text,) = (part for part in ends if isinstance(part, Text))
    assert text.text == SAID
    return text.citations


def shown(found: Iterable[Citation]) -> list[tuple[str, str]]:
    return [(one.url, one.title) for one in found]


def chunk(delta: object, reason: object = None, **more: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}


SAYS, STOP = chunk({"content": SAID}), chunk({}, "stop")
PAGES = [{"title": "A", "url": A, "date": "2026-11-01", "snippet": "a  quote"}, {"title": "B", "url": B}]
BOTH, PLAIN = [(A, "A"), (B, "B")], [(A, ""), (B, "")]
NOTE = {"type": "url_citation", "url_citation": {"url": A, "title": "A", "start_index": 0, "end_index": 4}}
FIELDS: list[tuple[Json, list[tuple[str, str]]]] = [
    ({"citations": [A, B]}, PLAIN),
    ({"citations": [A, A, B, B]}, PLAIN),
    ({"search_results": PAGES}, BOTH),
    ({"citations": [A, B], "search_results": PAGES}, BOTH),
    ({"citations": [A, B, f"{B}3"], "search_results": PAGES[:1]}, [(A, "A"), (B, ""), (f"{B}3", "")]),
    ({"web_search": [{"title": "A", "link": A, "content": "a", "refer": "ref_1"}]}, BOTH[:1]),
    ({"search_info": {"search_results": [{"index": 1, "title": "A", "url": A}, {"title": "B", "url": B}]}}, BOTH),
    ({"references": PAGES}, BOTH),
    ({"context": {"citations": [{"content": "a", "title": "A", "url": A, "filepath": "a.md"}]}}, BOTH[:1]),
    ({"context": {"citations": [{"content": "a", "title": "A", "url": None}], "intent": "x"}}, []),
    ({"vertex_ai_grounding_metadata": [{"groundingChunks": [{"web": {"uri": A, "title": "A"}}]}]}, BOTH[:1]),
    ({"annotations": [NOTE]}, BOTH[:1]),
]


@pytest.mark.parametrize(("fields", "expected"), FIELDS)
def test_a_chat_answer_keeps_its_sources_in_whichever_frame_they_come(fields: Json, expected: list[tuple[str, str]]):
    whole = {"choices": [{"message": {"content": SAID, **fields}, "finish_reason": "stop"}]}
    behind = {"choices": [{"message": {"content": SAID, **fields}, "finish_reason": "stop"}]}
    for name, frames in {
        "first": [chunk({"role": "assistant"}, **fields), SAYS, STOP],
        "each": [chunk({"content": SAID}, **fields), chunk({}, "stop", **fields), {"choices": [], **fields}],
        "after the reason": [SAYS, STOP, {"choices": [], **fields}],
        "delta": [SAYS, chunk(fields), STOP],
        "delta with the text": [chunk({"content": SAID, **fields}), STOP],
        "whole": [whole],
        "behind": [SAYS, behind],
    }.items():
        assert shown(citations(Chat("m"), frames)) == expected, name


def test_sources_stand_behind_the_text_in_the_order_of_the_server_and_a_cited_page_is_told_once():
    found = citations(Chat("m"), [SAYS, chunk({"annotations": [NOTE]}, "stop", search_results=[*PAGES[::-1]])])
    assert [(one.start, one.end, one.url) for one in found] == [(0, 4, A), (len(SAID), len(SAID), B)]


@pytest.mark.parametrize(
    "bad", [3, "x", [3], {"citations": 3}, [[[[[[[[A]]]]]]]], [{"url": {}}], {"search_results": {}}]
)
@pytest.mark.parametrize("name", ["citations", "search_results", "search_info", "context", "annotations"])
def test_odd_sources_are_left_out(name: str, bad: object):
    assert citations(Chat("m"), [SAYS, chunk({}, "stop", **{name: bad})]) == ()


def test_sources_are_bounded_and_made_safe():
    many = [{"url": f"{A}{place}", "title": "t" * 999, "content": "q" * 9_999} for place in range(999)]
    found = citations(Chat("m"), [SAYS, chunk({}, "stop", search_results=many)])
    assert (len(found), len(found[0].title), len(found[0].quote)) == (MOST_CITATIONS, LONGEST_TITLE, LONGEST_QUOTE)
    unsafe = ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd"]
    title = "a\u202eb\x1b[31m\nc"
    (kept,) = citations(Chat("m"), [SAYS, chunk({}, "stop", citations=unsafe, references=[{"url": A, "title": title}])])
    assert kept.url == A
    assert not {"\u202e", "\x1b", "\n"} & set(kept.title)


def event(kind: str, **more: Any) -> Json:
    return {"type": f"response.{kind}", "output_index": 0, **more}


MESSAGE = {"type": "message", "id": "m", "status": "completed"}
CITED = {"type": "url_citation", "url": A, "title": "A", "start_index": 0, "end_index": 4}
WORDS = {"type": "output_text", "text": SAID}
SPOKEN = event("output_text.delta", item_id="m", delta=SAID)
ADDED = event("output_text.annotation.added", item_id="m", annotation=CITED)


@pytest.mark.parametrize("content", [[WORDS], [WORDS | {"annotations": [CITED]}], []])
@pytest.mark.parametrize("early", [False, True])
def test_a_response_keeps_annotations_of_events_and_of_items(content: list[Json], early: bool):
    item = MESSAGE | {"content": content}
    ended = [event("output_item.done", item=item)] if early else []
    closing = event("completed", response={"status": "completed", "output": [item]})
    found = citations(Responses(), [SPOKEN, ADDED, *ended, closing])
    assert [(one.start, one.end, one.url, one.title) for one in found] == [(0, 4, A, "A")]


SEARCHED = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search"}}
FOUND = {"type": "search_results", "queries": ["q"], "results": PAGES}  # Perplexity's, without an id


@pytest.mark.parametrize(
    ("found", "note", "more", "expected"),
    [
        (SEARCHED, [], {"citations": [A, B]}, PLAIN),  # xAI
        (SEARCHED, [CITED], {"citations": [A, B]}, [(A, "A"), (B, "")]),
        (SEARCHED, [CITED], {"citations": []}, BOTH[:1]),
        (FOUND, [], {}, BOTH),
        (FOUND, [CITED], {}, BOTH),
        (FOUND, [], {"citations": 3}, BOTH),
    ],
)
@pytest.mark.parametrize("early", [False, True])
def test_a_response_keeps_the_sources_beside_its_text(found: Json, note: list[Json], more: Json, expected: Any, early):
    item = MESSAGE | {"content": [WORDS | {"annotations": note}]}
    first = [event("output_item.done", item=found), SPOKEN | {"output_index": 1}]
    ended = [event("output_item.done", item=item, output_index=1)] if early else []
    closing = event("completed", response={"status": "completed", "output": [found, item], **more})
    assert shown(citations(Responses(), [*first, *ended, closing])) == expected


def test_the_texts_between_searches_end_in_their_order_and_the_last_one_has_the_sources():
    items = [SEARCHED, MESSAGE | {"content": [WORDS]}, MESSAGE | {"id": "n", "content": [WORDS]}]
    frames = [event("output_item.done", item=item, output_index=place) for place, item in enumerate(items)]
    frames.append(event("completed", response={"status": "completed", "output": items, "citations": [A]}))
    decoder = Responses()
    events = [one for frame in frames for one in decoder.feed(frame)]
    texts = [one.part for one in events if isinstance(one, PartFinished) and isinstance(one.part, Text)]
    assert [shown(text.citations) for text in texts] == [[], PLAIN[:1]]


def candidate(said: str = "", **more: Any) -> Json:
    return {"candidates": [{**({"content": {"parts": [{"text": said}]}} if said else {}), **more}]}


CHUNKS = {"groundingChunks": [{"web": {"uri": A, "title": "A"}}, {"retrievedContext": {"uri": B, "title": "B"}}]}
SUPPORT = {"segment": {"startIndex": 0, "endIndex": 4}, "groundingChunkIndices": [0]}
RECITED = {"citationMetadata": {"citationSources": [{"startIndex": 0, "endIndex": 4, "uri": A, "title": "A"}]}}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"groundingMetadata": CHUNKS | {"groundingSupports": [SUPPORT]}}, BOTH[:1]),
        ({"groundingMetadata": CHUNKS}, BOTH),
        (RECITED, BOTH[:1]),
        ({"citationMetadata": {"citations": RECITED["citationMetadata"]["citationSources"]}}, BOTH[:1]),
    ],
)
def test_a_gemini_answer_keeps_its_sources_also_without_content(more: Json, expected: list[tuple[str, str]]):
    for frames in (
        [candidate(SAID, **more), candidate(finishReason="STOP")],
        [candidate(SAID), candidate(finishReason="STOP", **more)],
        [candidate(SAID), candidate(finishReason="STOP"), candidate(**more)],
        [candidate(SAID, **more), candidate(finishReason="STOP", **more)],
    ):
        assert shown(citations(Gemini("gemini-3-pro"), frames)) == expected


CITES = {"type": "citations_delta"}


def test_a_messages_answer_keeps_citations_of_deltas_and_of_blocks():
    cited = {"type": "web_search_result_location", "url": A, "title": "A", "cited_text": "a"}
    for given, deltas in (([cited], []), ([], [cited]), ([cited], [cited])):
        block = {"type": "text", "text": SAID, "citations": given}
        frames = [
            {"type": "content_block_start", "index": 0, "content_block": block},
            *({"type": "content_block_delta", "index": 0, "delta": CITES | {"citation": one}} for one in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ]
        assert shown(citations(Anthropic("m"), frames)) == BOTH[:1]
