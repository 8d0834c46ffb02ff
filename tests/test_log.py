"""What is logged, what is kept of it, and that nothing of it is a secret."""

import logging
import threading
from collections import deque

import pytest

from agentmagic import log
from agentmagic.events import (
    ApprovalAsked,
    PartDelta,
    PartFinished,
    PromptAdded,
    StepRetried,
    ToolFinished,
)
from agentmagic.messages import Media, Resource, Text, user
from agentmagic.providers.registry import providers
from tests.logs import CALL, RESULT
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
    monkeypatch.setattr(log, "_lines", deque(maxlen=log.MOST_RECORDS))
    yield
    log.stop()


def texts():
    return [line.text for line in log.recent(log.MOST_RECORDS)]


def test_neither_a_handler_nor_what_is_kept_sees_a_secret_in_message_arguments_exception_or_stack(heard):
    log.keep(detailed=True)
    try:
        raise ValueError(f"refused {KEY}")  # noqa: TRY301  (to have a traceback)
    except ValueError:
        log.logger.exception("it failed with %s", KEY, stack_info=True)
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
    for number in range(log.MOST_RECORDS + 1):
        log.logger.info("%d %s", number, "x" * 2 * log.LONGEST)
    assert len(texts()) == log.MOST_RECORDS
    assert texts()[0].startswith("1 x")
    assert {len(text) for text in texts()} == {log.LONGEST}
    assert [line.text[:4] for line in log.recent(2)] == ["499 ", "500 "]


def test_outlines_are_kept_from_the_start_and_details_of_each_sdk_too_only_when_asked_for():
    log.keep()
    for detailed in (False, True):
        log.keep(detailed=detailed)
        assert log.is_detailed() == detailed
        log.logger.info("outline")
        log.logger.debug("detail")
        for sdk in log.SDKS:
            logging.getLogger(f"{sdk}.client").debug(sdk)
    assert texts() == ["outline", "outline", "detail", *log.SDKS]
    packages = {row.package.replace(".", "_") for row in providers().values() if row.package}
    assert {*packages, "httpx2", "mcp"} == {*log.SDKS, "xllamacpp"}  # which logs nothing


@pytest.mark.parametrize(
    ("name", "lines"),
    [("agentmagic", ["for all", "wanted", "wanted again"]), ("", ["for all", "wanted again"])],
    ids=["its own", "the root's"],
)
def test_others_hear_warnings_and_more_if_the_user_sets_the_level_of_the_logger_whenever_it_is_set(heard, name, lines):
    chosen = logging.getLogger(name)
    before = chosen.level
    log.keep(detailed=True)
    log.logger.info("kept only")
    logging.getLogger("openai._base_client").debug("kept only")
    logging.getLogger("openai._base_client").warning("for all")
    try:
        chosen.setLevel(logging.INFO)
        log.logger.info("wanted")
        log.stop()
        log.logger.info("wanted again")
    finally:
        chosen.setLevel(before)
    assert heard.lines == lines


def on_engine(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, name="agentmagic-engine")
    thread.start()
    thread.join()


@pytest.mark.parametrize("detailed", [False, True])
def test_the_root_hears_what_libraries_log_of_the_users_work_and_not_what_they_log_of_ours(heard, detailed):
    def work():
        for name in (*log.SDKS, *log.HELPERS):
            logging.getLogger(f"{name}.client").info("of %s", name)

    log.keep(detailed=detailed)
    root, requests = logging.getLogger(), logging.getLogger("httpx2")
    before = root.level
    root.setLevel(logging.INFO)
    try:
        on_engine(work)
        assert heard.lines == []
        work()
        assert heard.lines == [f"of {name}" for name in (*log.SDKS, *log.HELPERS) if name != "markdown_it"]
        requests.setLevel(logging.DEBUG)
        on_engine(requests.debug, "asked for")
        assert heard.lines[-1] == "asked for"
    finally:
        root.setLevel(before)
        requests.setLevel(logging.NOTSET)


def test_a_handler_of_the_users_for_our_logger_and_caplog_hear_what_they_ask_for(caplog):
    mine = Heard()
    log.keep()
    log.logger.addHandler(mine)
    try:
        with caplog.at_level(logging.INFO, logger="agentmagic"):
            log.logger.info("asked for")
        log.auditor.info("a call")
    finally:
        log.logger.removeHandler(mine)
    assert mine.lines == ["asked for", "a call"]
    assert caplog.messages == ["asked for"]


def test_an_event_is_a_line_and_the_outline_of_a_turn_its_beginning_and_end():
    log.keep(detailed=True)
    log.event(StepRetried(1, 2, 0.5, "busy"))
    log.event(ApprovalAsked("q", CALL, "sums"))
    log.event(ToolFinished(RESULT, 0.25))
    log.event(PartFinished(0, Media("image/png", b"123")))
    log.event(PartFinished(0, Resource("file:a")))
    log.event(PromptAdded(user("go\non")))
    log.event(PartDelta(0, "a"))
    assert texts() == [
        "step_retried 2, again in 0.5 s: busy",
        "approval_asked sums: add c1 {'a': 1, 'b': 2}",
        "tool_finished add c1 ok 3 after 0.250 s",
        "part_finished image/png, 3 bytes",
        "part_finished resource file:a",
        "prompt_added go on",
    ]
    log.keep()
    for happened in ADDED:
        log.event(happened)
    assert texts()[6] == "turn_started scripted:script: What is 1 + 2?"
    assert texts()[7].startswith("turn_finished answer after 0.000 s, Usage(")


def test_a_long_text_is_cut_behind_its_secrets():
    log.keep(detailed=True)
    log.event(PartFinished(0, Text("x" * (log.EXCERPT - 8) + " " + KEY + "x" * 10 * log.EXCERPT)))
    (text,) = texts()
    assert "sk-" not in text
    assert len(text) < 2 * log.EXCERPT
