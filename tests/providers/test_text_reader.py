"""What is read of an answer that has thinking and calls written as text, in whatever pieces it comes."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmagic.providers.text_reader import CLOSING, Piece, TextReader

FENCED = "Write:\n\n```xml\n<think>a plan</think>\n```\n\nas it is."
CALL = '<tool_call>{"name": "clock"}</tool_call>'

# The text of an answer, and what it consists of: words, "~" before a thought, "!" before a call.
WHOLE = {
    "no thinking": ("It is noon.", ["It is noon."]),
    "a thought first": ("<think>\nHm.\n</think>\n\nNoon.", ["~Hm.\n", "Noon."]),
    "no end": ("<think>Hm. Hm.", ["~Hm. Hm."]),
    "no beginning": ("Hm.\n</think>\n\nNoon.", ["~Hm.\n", "Noon."]),
    "a lone end counts once": ("Hm.</think>Noon, </think> it is.", ["~Hm.", "Noon, </think> it is."]),
    "thoughts within a thought": ("<think>A<think>B</think>C</think>D", ["~A<think>B", "~C", "D"]),
    "a tag that is none": ("1 <thin 2 <thinker> 3 [THINKER] 4 <", ["1 <thin 2 <thinker> 3 [THINKER] 4 <"]),
    "tags in a fence": (FENCED, [FENCED]),
    "a fence in one line": ("```<think>``` <think>Hm.</think>so", ["```<think>``` ", "~Hm.", "so"]),
    "behind a fence": ("```\na\n```\n<think>Hm.</think>so", ["```\na\n```\n", "~Hm.", "so"]),
    "a backtick of another paragraph": ("The ` key.\n\n<think>Hm.</think> `x`", ["The ` key.\n\n", "~Hm.", " `x`"]),
    "a span of two lines": ("The `a\n<think>` key. <think>Hm.</think>so", ["The `a\n<think>` key. ", "~Hm.", "so"]),
    "an end in code in a thought": ("<think>`</think>` ends.</think>Noon.", ["~`</think>` ends.", "Noon."]),
    "a fence in a thought": ("<think>```\n</think>\n```\nHm.</think>Noon.", ["~```\n</think>\n```\nHm.", "Noon."]),
    "a value with tags": ('{"a": "<think>\\"x</think>", "b": 1}', ['{"a": "<think>\\"x</think>", "b": 1}']),
    "a value in a thought": ('<think>{"a": 1}?</think>{"a": 2}', ['~{"a": 1}?', '{"a": 2}']),
    "a call": (f"Let me look.\n{CALL}", ["Let me look.", '!{"name": "clock"}']),
    "a call in a thought": (f"<think>Or {CALL}?</think>Noon.", [f"~Or {CALL}?", "Noon."]),
    "a call before a lone end": (f"I could {CALL} now.</think>Noon.", [f"~I could {CALL} now.", "Noon."]),
    "a call, then a thought": (f"{CALL}<think>Hm.</think>", ["~Hm.", '!{"name": "clock"}']),
    "a thought in a call": (
        '<tool_call>{"name": "clock", "text": "<think>x</think>"}</tool_call>',
        ['!{"name": "clock", "text": "<think>x</think>"}'],
    ),
    "no call before a lone end": (f"A <tool_call> tag.</think>{CALL}", ["~A <tool_call> tag.", '!{"name": "clock"}']),
    "what is no call": ("<tool_call>no <think>Hm.</think>", ["<tool_call>no ", "~Hm."]),
}
TOKENS = st.sampled_from(["<think>", "</think>", "`", "```", "\n", "~~~", "x", " ", "<", CALL])
HOSTILE = ["<think>` ", "</think>", "<tool_call>", "```\n<think>\n"]


def is_call(text):
    try:
        return json.loads(text)["name"] == "clock"
    except ValueError:
        return False


def marked(pieces):
    """The parts that pieces make, with their marks and without the blanks at their ends."""
    parts = []
    for kind, text in pieces:
        if kind == "end":
            parts.append((kind, ""))
        elif kind == "thought" and parts and parts[-1][0] in ("text", "reasoning"):
            parts[-1] = ("thought", text)
        elif parts and parts[-1][0] == kind != "call":
            parts[-1] = (kind, parts[-1][1] + text)
        else:
            parts.append((kind, text))
    marks = {"text": "", "call": "!"}
    return [(marks.get(kind, "~") + text).rstrip() for kind, text in parts if kind != "end"]


def read(text, size=10_000):
    reader = TextReader(is_call)
    pieces = [piece for start in range(0, len(text), size) for piece in reader.feed(text[start : start + size])]
    return [*pieces, *reader.close()]


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_is_read_the_same_in_any_pieces(name):
    text, parts = WHOLE[name]
    for size in (10_000, 1, 3, 7):
        assert marked(read(text, size)) == [part.rstrip() for part in parts], size


@pytest.mark.parametrize(("tag", "end"), CLOSING.items())
def test_every_tag_opens_and_closes_a_thought(tag, end):
    assert marked(read(f"{tag}Hm.{end}Noon.", 2)) == ["~Hm.", "Noon."]
    assert marked(read(f"Hm.{end}Noon.", 2)) == ["~Hm.", "Noon."]
    assert marked(read(f"Write `{tag}` and `{end}`.", 2)) == [f"Write `{tag}` and `{end}`."]


def test_words_are_told_as_they_come_and_become_a_thought_at_a_lone_end():
    reader = TextReader()
    assert reader.feed("It is") == (Piece("text", "It is"),)
    assert reader.feed(" noon <") == (Piece("text", " noon "),)
    assert reader.feed("b>.</thi") == (Piece("text", "<b>."),)
    assert reader.feed("nk>Yes") == (Piece("thought", "It is noon <b>."), Piece("text", "Yes"))
    assert reader.feed("<think>Hm") == (Piece("reasoning", "Hm"),)


def test_a_lone_end_leaves_parts_alone_that_have_ended():
    reader = TextReader(is_call)
    reader.feed(f"Let me look. {CALL}")
    reader.end_part()
    assert reader.feed("Hm.</think>Noon.") == (Piece("reasoning", "Hm."), Piece("end", ""), Piece("text", "Noon."))
    assert reader.close() == (Piece("call", '{"name": "clock"}'),)


def test_a_span_without_an_end_holds_words_back_only_so_long():
    reader = TextReader()
    held = reader.feed("The ` key. <think>Hm. " + "and " * 400)
    assert marked(held) == ["The ` key."]
    assert marked(reader.feed("and " * 400))[0].startswith("~Hm. and")


@settings(deadline=None)  # the machine may be busy
@given(st.lists(TOKENS), st.integers(1, 9))
def test_nothing_that_was_written_is_lost_and_no_piece_changes_what_is_read(tokens, size):
    text = "".join(tokens)
    in_pieces, at_once = (["".join(part.split()) for part in marked(read(text, one))] for one in (size, 10_000))
    assert in_pieces == at_once  # but for the blanks before a call
    words = "".join(marked(read(text)))
    assert words.count("x") == text.count("x")
    assert words.count("`") == text.count("`")


@pytest.mark.parametrize("piece", HOSTILE)
def test_reading_takes_time_in_proportion_to_the_text(piece):
    def seconds(count):
        began = time.process_time()
        read(piece * count, 50)
        return time.process_time() - began

    # The least of some: a collection of garbage, or a busy machine, only adds.
    few, many = (min(seconds(count) for _ in range(3)) for count in (2_000, 10_000))
    assert many < 20 * max(few, 0.01)
