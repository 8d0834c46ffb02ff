import json

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from agentmagic.errors import CassetteError
from agentmagic.replay import documents

TRICKY = st.one_of(
    st.text(st.characters()),
    st.text(st.sampled_from("a:#-?*&!|>%@`'\"{}[], \n\t\r\x00\x07\x85\xa0\xad\u2028\ufeff\ud800😀=^~.0123eE+")),
    st.sampled_from(
        ("null", "Yes", "2026-01-01", "1e3", "0x1F", "...", "---", "--- a", "# a", " a\n b", "a\n\n", "\n")
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TRICKY),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TRICKY, inner, max_size=4)),
    max_leaves=12,
)


@pytest.fixture(params=["libyaml", "python"])
def loader(request, monkeypatch):
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader")


def read(text):
    return documents.read(text, "Document 1 of x.cassette.yaml")


@pytest.mark.usefixtures("loader")
def test_every_value_comes_back_as_it_was_written():
    @given(VALUES)
    @example({"\t": None, "\x85": None})  # a tab, and a line break that no block may have
    @example("\t\n")
    def comes_back(value):
        data = {"value": value}
        written = documents.write(data)
        assert json.dumps(read(written)) == json.dumps(data)
        assert written.count("\n---\n") == 0

    comes_back()


def test_a_text_of_many_lines_is_a_block_also_with_blanks_at_its_ends():
    text = "# Report  \n\n    code\n\ttab\n"
    written = documents.write({"text": text})
    assert written == "---\ntext: |\n  # Report  \n\n      code\n  \ttab\n"
    assert read(written) == {"text": text}


def test_json_deeper_than_a_page_is_wide_stands_on_one_line():
    deep = 10**4299  # the longest of Python's integers
    for _ in range(200):
        deep = {"a": [deep]}
    written = documents.write({"value": deep})
    assert read(written) == {"value": deep}
    assert max(map(len, written.splitlines())) < 8000


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x 1\nb: *x\n", "an anchor or alias"),
        ("a: !!python/object/apply:os.system ['true']\n", "a tag"),
        ("a: " + "[" * 100_000, "nest"),  # newer versions of libyaml have a limit of their own
        ("a: {b: 1\n", "cannot be read as YAML"),
        ("a: \x00\n", "cannot be read as YAML"),
        ("$json: x\n", "cannot be read as YAML"),
        ("- a\n", "is no part of a cassette"),
        ("", "is no part of a cassette"),
    ],
)
def test_yaml_that_no_cassette_has_is_refused_in_a_sentence(text, words):
    with pytest.raises(CassetteError, match=words) as caught:
        read(text)
    assert str(caught.value).startswith("Document 1 of x.cassette.yaml")
    assert str(caught.value).count("\n") == 0
