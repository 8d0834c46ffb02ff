"""What is logged, what is kept of it, and that nothing of it is a secret."""

import logging
from collections import deque

import pytest

from agentmagic import log
from agentmagic.events import (
    ApprovalAsked,
    Notice,
    PartDelta,
    PartFinished,
    PromptAdded,
    StepFinished,
    StepRetried,
    StepStarted,
    ToolFinished,
    ToolProgress,
)
from agentmagic.messages import Media, Resource, Text, Usage, user
from agentmagic.providers.registry import providers
from tests.logs import CALL, RESULT, STARTED
from tests.saving import ADDED

KEY = "sk-" + "a" * 30


class Heard(logging.Handler):
    """Keeps what it formats, as a handler of the user's would write it."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))
        assert record.exc_info is None  # of which another handler would write the exception itself


@pytest.fixture
def heard():
    """A handler of the user's, at the root."""
    handler = Heard()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """No records, and none kept afterwards."""
    monkeypatch.setattr(log, "_lines", deque(maxlen=log.KEPT))
    yield
    log.stop()


def texts():
    return [line.text for line in log.recent(log.KEPT)]


def failing():
    try:
        raise ValueError(f"refused {KEY}")  # noqa: TRY301  (to have a traceback)
    except ValueError:
        log.logger.exception("it failed with %s", KEY, stack_info=True)


def test_neither_a_handler_nor_what_is_kept_sees_a_secret_in_message_arguments_exception_or_stack(heard):
    log.keep(detailed=True)
    failing()
    log.logger.warning(f"the key {KEY}")
    logging.getLogger("openai._base_client").debug("headers %s", {"Authorization": f"Bearer {KEY}"})
    assert (len(heard.lines), len(texts())) == (2, 3)
    for lines in (heard.lines, texts()):
        assert "it failed with [redacted]" in lines[0]
        assert "ValueError: refused [redacted]" in lines[0]
        assert KEY not in "".join(lines)


def test_a_record_that_cannot_be_written_is_no_error(heard):
    class Unspeakable:
        def __str__(self):
            raise RuntimeError(KEY)

    log.logger.warning("%s", Unspeakable())
    log.logger.warning("%d of %d", 1)
    assert all("logs what cannot be written" in line for line in heard.lines)
    assert KEY not in "".join(heard.lines)


def test_the_last_records_are_kept_cut_to_a_length():
    log.keep()
    for number in range(log.KEPT + 1):
        log.logger.info("%d %s", number, "x" * 2 * log.LONGEST)
    assert len(texts()) == log.KEPT
    assert texts()[0].startswith("1 x")
    assert {len(text) for text in texts()} == {log.LONGEST}
    assert [line.text[:4] for line in log.recent(2)] == ["499 ", "500 "]


def test_outlines_are_kept_from_the_start_and_details_only_when_asked_for():
    log.keep()
    for detailed in (False, True):
        log.keep(detailed=detailed)
        assert log.is_detailed() == detailed
        log.logger.info("outline")
        log.logger.debug("detail")
        logging.getLogger("httpx2").debug("sdk")
    assert texts() == ["outline", "outline", "detail", "sdk"]


def test_details_hold_what_the_sdk_of_each_provider_logs():
    log.keep(detailed=True)
    for sdk in log.SDKS:
        logging.getLogger(f"{sdk}.client").debug(sdk)
    assert texts() == list(log.SDKS)
    packages = {row.package.replace(".", "_") for row in providers().values() if row.package}
    assert {*packages, "httpx2", "mcp"} == {*log.SDKS, "xllamacpp"}  # which logs nothing


def test_what_others_hear_stays_as_it_was(heard):
    log.keep(detailed=True)
    log.logger.info("kept only")
    log.logger.warning("for all")
    logging.getLogger("openai._base_client").debug("kept only")
    logging.getLogger("openai._base_client").warning("for all too")
    assert heard.lines == ["for all", "for all too"]


@pytest.mark.parametrize("name", ["agentmagic", ""], ids=["its own", "the root's"])
def test_a_level_that_the_user_sets_counts_whenever_it_is_set(heard, name):
    chosen = logging.getLogger(name)
    before = chosen.level
    log.keep()
    try:
        chosen.setLevel(logging.INFO)
        log.logger.info("wanted")
        log.stop()
        log.logger.info("wanted again")
    finally:
        chosen.setLevel(before)
    assert heard.lines == ["wanted", "wanted again"]


def test_a_turn_is_a_line_an_event_and_the_outline_its_beginning_and_end():
    log.keep(detailed=True)
    for happened in ADDED:
        log.event(happened)
    assert [text.split()[0] for text in texts()] == [happened.type for happened in ADDED]
    log.keep()
    for happened in ADDED:
        log.event(happened)
    outline = [line for line in log.recent(log.KEPT) if line.level == "INFO"]
    assert [line.text.split()[0] for line in outline] == ["turn_started", "turn_finished"] * 2
    assert texts()[-1].startswith("turn_finished answer after 0.000 s, Usage(")


@pytest.mark.parametrize(
    ("happened", "line"),
    [
        (STARTED, "turn_started scripted:script: What is 1 + 2?"),
        (StepStarted(1, "scripted:script"), "step_started step: 1, model: scripted:script, closing: False"),
        (StepRetried(1, 2, 0.5, "busy"), "step_retried 2, again in 0.5 s: busy"),
        (PartFinished(0, Text("Let me\nadd.")), "part_finished text Let me add."),
        (PartFinished(0, Media("image/png", b"123")), "part_finished image/png, 3 bytes"),
        (PartFinished(0, Resource("file:a")), "part_finished resource file:a"),
        (ApprovalAsked("q", CALL, "sums"), "approval_asked sums: add c1 {'a': 1, 'b': 2}"),
        (ToolFinished(RESULT, 0.25), "tool_finished add c1 ok 3 after 0.250 s"),
        (PromptAdded(user("go on")), "prompt_added go on"),
        (Notice("warning", "beware"), "notice level: warning, text: beware"),
    ],
)
def test_the_line_of_an_event_says_what_happened(happened, line):
    log.keep(detailed=True)
    log.event(happened)
    assert texts() == [line]


def test_deltas_have_no_line_and_long_texts_are_cut_behind_their_secrets():
    log.keep(detailed=True)
    log.event(PartDelta(0, "a"))
    log.event(ToolProgress("c1", 1.0))
    log.event(StepFinished(1, Usage()))
    long = "x" * (log.EXCERPT - 8) + " " + KEY + "x" * 10 * log.EXCERPT
    log.event(PartFinished(0, Text(long)))
    assert len(texts()) == 2
    assert "sk-" not in texts()[1]
    assert len(texts()[1]) < 2 * log.EXCERPT
