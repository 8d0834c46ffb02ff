"""What is typed, and what it means."""

from concurrent.futures import Future

import pytest

from agentmagic.events import AgentOption, ApprovalAsked, ApprovalGiven, Approve, Deny, QuestionAsked, Reply, Stop
from agentmagic.jupyter.cell.questions import LONGEST_ARGUMENTS, Questions, approval_intent, describe, step_intent
from agentmagic.messages import ToolCall
from agentmagic.runtime.engine import engine
from agentmagic.secrets import BLANK


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("y", Approve("q")),
        (" YES ", Approve("q")),
        ("always", Approve("q", always=True)),
        ("n not on Sundays", Deny("q", "not on Sundays")),
        ("No: ask Ann", Deny("q", "ask Ann")),
        ("", Deny("q")),
        ("e for effort", Deny("q", "e for effort")),
        ("yes, but later", Deny("q", "yes, but later")),
    ],
)
def test_all_that_is_no_yes_is_a_no(typed, meant):
    assert approval_intent(ApprovalAsked("q", ToolCall("1", "move", {}), "files"), typed) == meant


PLAN = (
    AgentOption("once", "Yes, and ask me for each edit", "allow_once"),
    AgentOption("all", "Yes, and never\u202e ask again", "allow_always"),
    AgentOption("no", "No, keep planning", "reject_once"),
    AgentOption("never", "No, and stop", "reject_always"),
)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("y", Approve("q")),
        ("1", Approve("q", option="all")),
        ("2", Deny("q", option="never")),
        ("3", Deny("q", "3")),
        ("1 please", Deny("q", "1 please")),
    ],
)
def test_the_options_of_an_outside_agent_have_numbers_and_their_own_names(typed, meant):
    asked = ApprovalAsked("q", ToolCall("1", "switch_mode", {}), "acp:claude", fixed=True, options=PLAN)
    assert approval_intent(asked, typed) == meant
    words = r"[y]es, [a]lways exactly this, [1] Yes, and never\u202e ask again, [2] No, and stop, [n]o and why: "
    assert describe(asked).endswith(words)


@pytest.mark.parametrize(
    ("options", "once", "choices"),
    [
        (PLAN[1:3], False, r"[1] Yes, and never\u202e ask again, [n]o and why: "),
        (PLAN[:1] * 2, False, "[1] Yes, and ask me for each edit, [2] Yes, and ask me for each edit, [n]o and why: "),
        (PLAN[::2], True, "[y]es, [n]o and why: "),
    ],
)
def test_what_cannot_be_approved_as_it_is_has_no_yes_and_what_does_not_say_what_runs_no_always(options, once, choices):
    asked = ApprovalAsked("q", ToolCall("1", "x", {}), "acp:claude", fixed=True, options=options, once=once)
    assert describe(asked).endswith(f"? {choices}")


def test_the_prompt_shows_tool_server_and_all_arguments_and_why_it_asks_where_that_is_no_rule():
    call = ToolCall("1", "move", {"source": "a.txt", "options": {"force": True}})
    arguments = 'Run move (files) with\n  source   a.txt\n  options  {"force": true}\n[y]es'
    assert describe(ApprovalAsked("q", call, "files")).startswith(arguments)
    why = "It was under way when the kernel stopped."
    asked = ApprovalAsked("q", call, "files", why)
    assert describe(asked, brief=True).startswith(f"{why} Run move (files)? [y]es")
    assert describe(asked).startswith(f"{why} {arguments}")


LONG = ToolCall("1", "run_python", {"code": "\n".join(f"print({number})" for number in range(340))})


@pytest.mark.parametrize(
    ("screen", "told"),
    [
        (None, "\n340 lines. [y]es"),
        ((80, 24), "\n21 of 340 lines in view. [y]es"),
        ((200, 400), "\n[y]es"),
        ((12, 24), "\n21 of 680 lines in view. [y]es"),  # each line takes two of a narrow terminal
    ],
)
def test_where_the_arguments_go_on_out_of_view_the_number_of_lines_stands_before_the_choices(screen, told):
    assert told in describe(ApprovalAsked("q", LONG, "notebook"), screen=screen)


def test_the_lines_that_the_screen_shows_above_the_question_are_counted_too():
    assert describe(ApprovalAsked("q", LONG, "notebook"), brief=True) == (
        "Run run_python (notebook)? 340 lines. [y]es, [a]lways, [e]dit, [n]o and why: "
    )
    one_line = ToolCall("1", "run_python", {"code": "1 + " * 800})
    assert "21 of 41 lines in view." in describe(ApprovalAsked("q", one_line, "notebook"), screen=(80, 24))


def test_a_value_cannot_pass_for_another_argument_and_what_hides_in_it_is_shown_as_its_escape():
    hidden = {"source": "\x1b[2J/etc/pass\u200bwd\u2066\r\x07\U000e0041", "to\u202e": "é 👩\u200d🚀"}
    call = ToolCall("1", "write", {"text": "hello\npath  safe.txt", "path": "/etc/passwd", **hidden})
    lines = describe(ApprovalAsked("q", call, "files")).splitlines()
    assert [line.split() for line in lines[1:4]] == [["text", "hello"], ["path", "safe.txt"], ["path", "/etc/passwd"]]
    assert lines[2].startswith(" " * 12)  # below the value, not below the names
    assert lines[4].endswith(r"\x1b[2J/etc/pass\u200bwd\u2066\r\x07\U000e0041")
    assert lines[5].split() == [r"to\u202e", "é", "👩\u200d🚀"]


# -- what is asked and answered ----------------------------------------------------------------------


class Answers:
    """A run that keeps what it is sent, and a person who types lines; an error is raised where one stands."""

    def __init__(self, *typed):
        self.typed = list(typed)
        self.prompts = []
        self.sent = Future()

    def pass_on(self, intent):
        self.sent.set_result(intent)

    def ask(self, prompt):
        self.prompts.append(prompt)
        line = self.typed.pop(0)
        if isinstance(line, Exception):
            raise line
        return line


async def at_the_keyboard():
    return ""


def answered(*typed, arguments=None, event=None):
    """What a person's lines come to, and what was asked of them."""
    person = Answers(*typed)
    questions = Questions(person, at_the_keyboard, ask=person.ask)
    event = event or ApprovalAsked("q", ToolCall("1", "open", arguments or {"path": "a"}), "files")
    engine().loop.call_soon_threadsafe(questions.feed, event)
    with engine().main.mark_busy():
        engine().wait(person.sent, lambda: None)
    engine().loop.call_soon_threadsafe(questions.feed, ApprovalGiven("q", approved=True))
    return person.sent.result(), person.prompts


@pytest.mark.parametrize(
    "typed",
    [
        ["e", '{"path": "b"}'],
        ['e {"path": "b"}'],
        ["e", "path = b", '["b"]', '{"path": NaN}', "[" * 100_000, '{"path": "b"}'],
        ["e", "", 'e  {"path": "b"} '],
    ],
)
def test_arguments_are_typed_as_json_until_they_are(typed):
    intent, prompts = answered(*typed)
    assert intent == Approve("q", arguments={"path": "b"})
    assert len(prompts) == len(typed)


def test_what_is_no_json_is_said_with_what_is_wrong():
    _, prompts = answered("e", "path = b", "", "n")
    assert prompts[1].startswith('They are now: {"path": "a"}\nThe arguments to run it with instead, as JSON')
    assert prompts[2].startswith("That is no JSON (Expecting value: line 1 column 1 (char 0)).\nThe arguments")
    _, prompts = answered("e", "", "n", arguments={"text": "x" * 10 * LONGEST_ARGUMENTS})
    assert len(prompts[1]) < LONGEST_ARGUMENTS + 500


def test_a_secret_that_the_prompt_did_not_show_stays_when_another_argument_is_edited():
    secret = "sk-" + "a" * 40
    intent, prompts = answered("e", f'{{"path": "b", "key": "{BLANK}"}}', arguments={"path": "a", "key": secret})
    assert secret not in prompts[1]
    assert intent == Approve("q", arguments={"path": "b", "key": secret})


@pytest.mark.parametrize("failure", [EOFError(), OSError("the terminal is gone"), UnicodeError("no text")])
def test_an_input_that_fails_is_a_no_and_keeps_nobody_waiting(failure):
    assert answered(failure)[0] == Deny("q")
    assert answered("e", failure, "n")[0] == Deny("q")


def test_a_question_that_cannot_be_asked_is_denied_with_the_reason():
    async def page_is_gone():
        message = "no such comm"
        raise RuntimeError(message)

    person = Answers()
    questions = Questions(person, page_is_gone, ask=person.ask)
    event = ApprovalAsked("q", ToolCall("1", "open", {}), "files")
    engine().loop.call_soon_threadsafe(questions.feed, event)
    assert person.sent.result(10) == Deny("q", "it could not be asked: RuntimeError")


# -- step mode ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", Approve("q")),
        ("go on", Approve("q")),
        ("s", Deny("q")),
        ("skip not now", Deny("q", "not now")),
        ("r", Approve("q", always=True)),
        ("Q", Stop()),
    ],
)
def test_a_pause_goes_on_unless_something_else_is_typed(typed, meant):
    assert step_intent("q", typed) == meant


CALL = ApprovalAsked("q", ToolCall("1", "open", {"path": "a"}), "files", step=True)
REQUEST = QuestionAsked("q", "Step 1, to a:b\nuser: Why?", "Why?", step=True)


def test_a_pause_shows_what_comes_and_takes_other_arguments_or_another_prompt():
    intent, (prompt, _) = answered("e", '{"path": "b"}', event=CALL)
    assert intent == Approve("q", arguments={"path": "b"})
    assert prompt == "Paused before open (files) with\n  path  a\n[g]o on, [e]dit, [s]kip, [r]un to the end, [q]uit: "
    intent, prompts = answered("e", "Why not?", event=REQUEST)
    assert intent == Reply("q", "Why not?")
    assert prompts[0] == "Step 1, to a:b\nuser: Why?\n[g]o on, [e]dit the prompt, [r]un to the end, [q]uit: "
    assert answered("e Why not?", event=REQUEST)[0] == Reply("q", "Why not?")
    _, prompts = answered("", event=QuestionAsked("q", "Step 2", step=True))  # without a prompt
    assert prompts == ["Step 2\n[g]o on, [r]un to the end, [q]uit: "]
