"""What is attached of a cell's output: the values that the kernel knows, or the text and images of the page."""

import base64
import io
import sys
from dataclasses import replace

import pandas as pd
import pytest
from PIL import Image
from pydantic import ValidationError

from agentmagic.jupyter.prompt.attachables import Attachables
from agentmagic.jupyter.prompt.outputs import AskAboutOutput, attach_output
from agentmagic.messages import Media
from agentmagic.prompt.attachments import UNKNOWN, Attacher
from agentmagic.secrets import BLANK

SEES = replace(UNKNOWN, name="test:sees", takes=frozenset(("images",)))
KEY = "sk-planted0123456789abcdef0123456789"
SALES = pd.DataFrame({"city": ["Rome", "Lima"], "sold": [1, 2]})
NAMES = {"_i3": "sales", "Out": {3: SALES}, "In": ["", "", "", "sales"], "x": 1}
RESULT = {"kind": "result", "text": "   city sold"}


def png():
    stream = io.BytesIO()
    Image.new("RGB", (3, 2), "red").save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def attached(*outputs, count=3, source="sales", variables=NAMES, model=SEES, **options):
    asked = AskAboutOutput(action="ask", count=count, source=source, outputs=list(outputs))
    return attach_output(asked, Attachables(variables, Attacher(lambda: model, **options)))


def told(attachments):
    return [(one.value.written, one.value.kind) for one in attachments]


def test_a_value_that_the_kernel_knows_is_attached_with_the_code_of_its_cell():
    code, table = attached(RESULT)
    assert told([code, table]) == [("@In[3]", "code"), ("@out[3]", "table")]
    assert (code.part.text, "Lima" in table.part.text) == ("sales", True)


@pytest.mark.parametrize("changed", [{"source": "other"}, {"count": None}, {"variables": {"Out": {3: SALES}}}])
def test_the_text_of_the_page_is_attached_if_another_code_has_run_under_that_number(changed):
    _, shown = attached(RESULT, **changed)
    assert shown.value.kind == "text"
    assert shown.part.text == "   city sold"


def test_what_the_page_shows_is_never_evaluated_and_its_secrets_are_blanked(monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    (_, shown) = attached({"kind": "text", "text": f"{{x}} {{1/0}} @x {KEY}"}, source="{x}")
    assert shown.part.text == f"{{x}} {{1/0}} @x {BLANK}"


def test_figures_are_sent_as_images_and_said_in_words_to_a_model_that_sees_none_or_if_they_are_none():
    image = {"kind": "image", "type": "image/png", "data": png()}
    _, figure = attached(image)
    assert isinstance(figure.part, Media)
    assert figure.value.written == "figure [3]"
    _, words = attached(image, model=UNKNOWN)
    assert "not sent" in words.value.shown
    for data in ("no base64!", base64.b64encode(b"no image").decode()):
        _, figure, text = attached({**image, "data": data}, {"kind": "text", "text": "a"})
        assert told([figure, text]) == [("figure [3]", "text"), ("output [3]", "text")]


def test_the_last_error_of_the_kernel_is_attached_without_colours_or_as_the_page_shows_it(monkeypatch):
    page = {"kind": "error", "text": "\x1b[31mTraceback\x1b[0m of the page\nValueError: too small"}
    _, shown = attached(page)
    assert (shown.value.written, shown.part.text) == ("error [3]", "Traceback of the page\nValueError: too small")
    monkeypatch.setattr(sys, "last_value", ValueError("too small"), raising=False)
    _, known = attached(page)
    assert known.value.written == "@error"
    assert "of the page" not in known.part.text


def test_no_value_leaves_a_kernel_that_sends_names_and_types_only():
    parts = attached(
        RESULT,
        {"kind": "text", "text": "Lima"},
        {"kind": "image", "type": "image/png", "data": png()},
        schema_only=True,
    )
    assert [one.value.kind for one in parts] == ["schema"] * 4
    assert "Lima" not in str([one.part for one in parts])


def test_a_message_of_another_form_is_refused():
    image = {"kind": "image", "type": "image/svg+xml", "data": ""}
    for wrong in ({"count": 0}, {"outputs": [image]}, {"outputs": [RESULT] * 19}, {"code": "1"}):
        with pytest.raises(ValidationError):
            AskAboutOutput.model_validate({"action": "ask", "count": 3, "source": "", "outputs": [], **wrong})
