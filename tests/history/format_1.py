"""The conversation of `format_1.jsonl`, a journal that the first version of the format wrote.

The file is frozen: it must load as the values below for as long as format 1 is read.
"""

from pathlib import Path

from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Compacted,
    Notice,
    PartFinished,
    PromptAdded,
    QuestionAnswered,
    QuestionAsked,
    RunResult,
    Sampled,
    StepFinished,
    StepRetried,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from agentmagic.messages import Media, Message, ProviderData, Reasoning, Resource, Text, ToolCall, ToolResult, Usage
from agentmagic.secrets import BLANK

PATH = Path(__file__).with_name("format_1.jsonl")
MODEL = "openai:gpt-5"
PIXEL = b"\x89PNG\r\n\x1a\n\x00\xff"

LOOK = ToolCall(
    "call_1",
    "look",
    {"url": f"https://host/?key={BLANK}", "pages": [1, 2.5, None, True, {"$bytes": "eA=="}], BLANK: "x"},
    ProviderData("openai", {"id": "fc_1", "type": "text", "more": [[], {"encrypted": "gAAAA"}]}),
)
RAW = ToolCall("call_2", "save", {"_raw": '{"path": '})
PAY = ToolCall("call_3", "pay", {"amount": 5})
EDITED = ToolCall("call_3", "pay", {"amount": 4})
SLOW = ToolCall("call_4", "transfer", {"to": "Zoë"})

FIRST = (
    TurnStarted(Message("user", (Text("Look at this.\nKey: " + BLANK), Media("image/png", PIXEL, "plot"))), MODEL),
    Notice("info", "AGENTMAGIC_MODEL is set."),
    StepStarted(1, MODEL),
    StepRetried(1, 1, 0.5, "The server was busy."),
    PartFinished(0, Reasoning("I should look.", ProviderData("openai", {"id": "rs_1", "summary": []}))),
    PartFinished(1, Reasoning("")),
    PartFinished(2, Text("Let me look — \ud83d", ProviderData("gemini", "c2lnbmVk"))),
    PartFinished(3, LOOK),
    PartFinished(4, RAW),
    StepFinished(1, Usage(120, 20, 30, 10, 1, 0.0125), "tool_calls", 1.5),
    ApprovalAsked("a1", LOOK, "web", "A rule asks."),
    ApprovalGiven("a1", approved=True, always=True),
    ToolStarted(LOOK, "web"),
    Sampled("call_1", "web", Usage(5, 0, 6, 0, 1, None)),
    QuestionAsked("q1", "Which page?"),
    QuestionAnswered("q1", "The first."),
    ToolFinished(
        ToolResult(
            "call_1",
            "look",
            (
                Text("A river, \u2028a mill."),
                Media("audio/wav", b"", "sound"),
                Resource("file:///a.txt", "a", "text/plain", "all of it"),
                Resource("file:///b.txt"),
            ),
            structured={"type": "text", "rows": [[1, 2], []], "deep": {"$bytes": "no bytes"}},
            server="web",
        ),
        0.25,
    ),
    ToolFinished(ToolResult("call_2", "save", (Text("The arguments are no JSON object."),), "error")),
    Compacted("They looked at a page.", 0, 0, 3, 9000, 4000, Usage(50, 0, 20, 0, 1, 0.001)),
    StepStarted(2, MODEL, closing=True),
    PartFinished(0, Text("There is a river.")),
    StepFinished(2, Usage(200, 100, 12, 0, 1), "stop", 0.75),
    PromptAdded(Message("user", (Text("Say it as JSON."),))),
    StepStarted(3, MODEL),
    PartFinished(0, Text('{"river": true}')),
    StepFinished(3, Usage(220, 200, 8, 0, 1, None), "stop", 1, interrupted=True),
)
FIRST_RESULT = RunResult(
    '{"river": true}',
    (
        FIRST[0].prompt,
        Message("assistant", tuple(event.part for event in FIRST[4:9])),
        Message("tool", (FIRST[16].result, FIRST[17].result)),
        Message("assistant", (Text("There is a river."),)),
        Message("user", (Text("Say it as JSON."),)),
        Message("assistant", (Text('{"river": true}'),), interrupted=True),
    ),
    FIRST,
    3,
    timed_out=False,
    stop_reason="answer",
    usage=Usage(595, 320, 76, 10, 5, None),
    seconds=4.5,
)

CUT_OFF = (
    TurnStarted(Message("user", (Text("Pay, then transfer."),)), MODEL),
    StepStarted(1, MODEL),
    PartFinished(0, PAY),
    PartFinished(1, SLOW),
    StepFinished(1, Usage(10, 0, 10, 0, 1), "tool_calls", 2.0),
    ApprovalAsked("a2", PAY, "bank"),
    ApprovalGiven("a2", approved=False, reason="Too much", arguments=EDITED.arguments),
    ToolFinished(ToolResult("call_3", "pay", (Text("It was denied: Too much"),), "denied")),
    ToolStarted(SLOW, "bank"),
)
"""The last turn, without the line that a newer version wrote and the one that was torn."""

SPENT = FIRST_RESULT.usage + Usage(10, 0, 10, 0, 1)
IN_DOUBT = {("bank", "transfer"), ("notebook", "remove")}
WARNING = (
    "This turn was cut off when its kernel ended. The call of transfer was under way and may have run in part, "
    "or wholly; look before it is repeated."
)
PROBLEMS = ("2 lines of the file could not be read; what stood there is missing.", WARNING)
CLOSING = (
    ToolFinished(
        ToolResult(
            "call_4",
            "transfer",
            (Text("Interrupted before it finished. It may have run in part, or wholly."),),
            "interrupted",
        )
    ),
    Notice("warning", WARNING),
    TurnFinished(RunResult("", (), (), 1, timed_out=False, stop_reason="cancelled", usage=Usage(10, 0, 10, 0, 1))),
)
