"""Front matter that is not strict YAML is read as other programs read it."""

import pytest

from agentmagic.context.project_files import Unusable, as_text, front_matter

LOOSE = {
    "a colon in the value": ("description: Set up: hooks, servers", {"description": "Set up: hooks, servers"}),
    "a star": ("description: *important* skill", {"description": "*important* skill"}),
    "brackets and quotes": ('argument-hint: [action] - e.g. "list"', {"argument-hint": '[action] - e.g. "list"'}),
    "an at sign": ("description: @file and more", {"description": "@file and more"}),
    "a percent sign": ("description: %agent does it", {"description": "%agent does it"}),
    "a backtick": ("description: `code` first", {"description": "`code` first"}),
    "a quoted value beside a loose one": ("name: 'x'\nhint: [a] b", {"name": "x", "hint": "[a] b"}),
    "an open quote": ("description: It's: fine\nname: x", {"description": "It's: fine", "name": "x"}),
    "a tab": ("description:\tSet up: all", {"description": "Set up: all"}),
    "a value on the next lines": (
        "description: Set up: all\n  of it: now\nname: x",
        {"description": "Set up: all of it: now", "name": "x"},
    ),
    "an empty value": ("description: a: b\nmodel:", {"description": "a: b", "model": ""}),
    "a comment": ("# mine\ndescription: a: b", {"description": "a: b"}),
    "strict YAML": ("description: >\n  one\n  two\nlist: [a, b]", {"description": "one two", "list": ["a", "b"]}),
}


@pytest.mark.parametrize(("text", "values"), LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_front_matter_is_read_as_other_programs_read_it(text, values, end):
    whole = end.join(["---", *text.split("\n"), "--- ", "Body: here.", ""])
    front, body = front_matter(as_text(whole.encode("utf-8-sig")))
    read = {key: value.strip() if isinstance(value, str) else value for key, value in front.items()}
    assert (read, body) == (values, "Body: here.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\nname: a: b\nno line of this kind\n---\n", "line 3 is no `key: value`"),
        ("---\n- a\n- b: c: d\n---\n", "line 2 is no `key: value`"),
        ("---\n\n---\n", "without a line"),
        ("---\nname: x\n", "no second one"),
        ("name: x\n", "no front matter: begin it"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_the_cure(text, words):
    with pytest.raises(Unusable, match=words):
        front_matter(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_of_an_editor_of_windows_is_read(encoding):
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    assert as_text(f"{mark}Größe: é\r\n".encode(encoding)) == "Größe: é\n"
