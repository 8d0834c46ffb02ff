"""What a hostile model, tool or server may write, one per technique, and every place that they can write to.

`fired` is a function of the test page; `evil.test` stands for somebody else's machine. With the view built
without its sanitising each of them works, in the place where it is meant to.
"""

import json
from typing import Any, get_args
from urllib.parse import quote

from agentmagic.display.printout import (
    LineLook,
    PrintedFold,
    PrintedLine,
    PrintedRows,
    Printout,
    RowsLook,
    printout,
)
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    Notice,
    PartFinished,
    Planned,
    PromptAdded,
    QuestionAnswered,
    QuestionAsked,
    StepRetried,
    StepStarted,
    Task,
    TaskFinished,
    TaskJudged,
    TaskStarted,
    ToolProgress,
    ToolStarted,
)
from agentmagic.messages import Citation, HostedCall, HostedResult, Media, Resource, Text, ToolCall, ToolResult, user
from tests.display.logs import asked_for, carried_out, over, reasoning, started, step_over, text

TECHNIQUES = {
    "script": "<script>fired('script')</script>",
    "handler": "<img src=x onerror=\"fired('handler')\">",
    "animation": "<style>@keyframes q{}</style><b style='animation:q 1s' onanimationstart=\"fired('animation')\">x</b>",
    "svg": "<svg><animate onbegin=\"fired('svg')\" attributeName=x dur=1s></animate></svg>",
    "svg link": "<svg><a href=\"javascript:fired('svg link')\"><text y=20>press</text></a></svg>",
    "mathml": "<math><mtext><img src=x onerror=\"fired('mathml')\"></mtext></math>",
    "noscript": "<noscript><p title=\"</noscript><img src=x onerror=fired('noscript')>\"></noscript>",
    "frame": "<iframe srcdoc=\"<script>parent.fired('frame')</script>\"></iframe>",
    "form": "<form action='http://evil.test/form'><button>press</button></form>",
    "base": "<base href='http://evil.test/'><img src='base'>",
    "refresh": "<meta http-equiv=refresh content='0;url=http://evil.test/refresh'>",
    "style sheet": "<style>@import url(http://evil.test/style-sheet);</style>",
    "css": "<p style=\"background:url('http://evil.test/css')\">x</p>",
    "remote image": "![x](http://evil.test/remote-image)",
    "remote image, html": "<img srcset='http://evil.test/remote-image-html 1x'>",
    "maths": "$\\includegraphics{http://evil.test/maths}$",
    "script link": "[press](javascript:fired('script%20link'))",
    "data link": "<iframe name=f></iframe><a target=f href=\"data:text/html,<script>parent.postMessage('data link','*')"
    '</script>">press</a>',
}
"""Payloads by technique; those with "press" in them want to be clicked."""

POLLUTION = '{"__proto__": {"polluted": true}, "constructor": {"prototype": {"polluted": true}}, "hasOwnProperty": 1}'


ENCODED = {"page address", "source address"}
"""The places whose text is an address of the web, which is encoded before the page gets it."""


class Marked(dict[str, str]):
    """Returns the payload of a place, and keeps account of the places that were used."""

    def __init__(self, payload: str) -> None:
        self._payload = payload

    def __missing__(self, place: str) -> str:
        self[place] = self._payload.replace("PLACE", quote(place))
        return self[place]


def everywhere(at: Marked) -> list[Event]:
    """Return a conversation with a payload in every place that others can write to."""
    nested = {"deep": [at["nested value"], "long enough to be spread over several lines of a card"]}
    call = ToolCall("c1", at["tool"], {at["argument"]: at["value"], "nested": nested})
    tree = json.dumps({at["JSON key"]: [at["JSON value"]], "why": {"it": "is long enough to need several lines"}})
    table = json.dumps([{at["column"]: at["cell"]}])
    parts = (Text(at["result"]), Text(tree), Text(table), Resource("a:b", at["resource"], text=at["resource"]))
    images = (Media("image/png", b"x", at["result"]), Media(at["result"], b"x", at["result"]))
    denied = ToolCall("c2", "denied", {})
    task = Task("t1", at["task tool"], {}, at["task"])
    failed = ToolCall("c5", "failed", {})
    found = Resource("https://x.test/" + at["page address"], at["page"], text=at["text of a page"])
    searched = HostedCall("h1", "web_search", {"query": at["query"]}, at["host"])
    cited = Citation(0, 3, "https://x.test/" + at["source address"], at["source"], at["quote"])
    waiting = ToolCall("c3", at["waiting tool"], {at["waiting argument"]: at["waiting value"]})
    return [
        *[*started(at["prompt"]), *text(at["text"], 0), *reasoning(at["reasoning"], 1), *asked_for(call, 2)],
        *[
            *asked_for(denied, 3),
            PartFinished(4, searched),
            PartFinished(5, HostedResult("h1", "web_search", (found,))),
        ],
        *[PartFinished(6, Text("New. " + at["cited text"], citations=(cited,))), *step_over()],
        *carried_out(call, ToolResult("c1", at["tool"], (*parts, *images)), at["server"]),
        *[ApprovalAsked("a0", denied, "shop"), ApprovalGiven("a0", approved=False, reason=at["reason"])],
        *[Notice("info", at["notice"]), Notice("warning", at["warning"]), PromptAdded(user(at["added prompt"]))],
        *[QuestionAsked("q0", at["question"]), QuestionAnswered("q0", at["answer"])],
        *[StepStarted(2, "model"), StepRetried(2, 1, 1.0, at["retry"]), *step_over(2)],
        *[Planned((task,)), TaskStarted("t1", "c5", {at["task parameter"]: at["task value"]})],
        *[TaskJudged("t1", success=False, reason=at["judgement"]), TaskFinished("t1", "failed", at["task summary"])],
        *[StepStarted(3, "model"), *asked_for(failed, 0), *step_over(3)],
        *carried_out(failed, ToolResult("c5", "failed", (), "error"), "shop", at["traceback"]),
        *[StepStarted(4, "model"), *over("", "error", at["error"])],
        *[*started("again"), *asked_for(ToolCall("c4", "slow", {}), 0), *asked_for(waiting, 1), *step_over()],
        *[ToolStarted(ToolCall("c4", "slow", {}), "shop"), ToolProgress("c4", 1, 2, at["progress"])],
        *[ApprovalAsked("a1", waiting, at["waiting server"]), QuestionAsked("q1", at["open question"])],
    ]


def printed_everywhere(at: Marked) -> Printout:
    """Return what a command prints, with a payload in every place."""
    lines = [PrintedLine(at[f"printed {look}"], look) for look in get_args(LineLook)]
    rows = [
        PrintedRows([(at[f"{look} name"], at[f"{look} cell"])], look, ("", at["head"])) for look in get_args(RowsLook)
    ]
    return printout(lines, rows, [PrintedFold(at["fold"], at["folded"])])


def rich_result(at: Marked, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with a value whose HTML was not sanitised on its way to the page."""
    return {**result, "forms": [*result["forms"], {"form": "html", "html": at["rich value"]}]}


def around(at: Marked) -> dict[str, object]:
    """Return a session's state with a payload in every place."""
    row = {"name": at["server row"], "state": at["server state"], "error": at["server error"], "stderr": at["stderr"]}
    about = at["server tool's description"], at["server tool's arguments"]
    described = (at["server tool"], True, False, *about)
    return {
        "title": at["title"],
        "cost": at["cost"],
        "note": at["note"],
        "model": at["model"],
        "models": [at["model list"]],
        "servers": [{**row, "tools": [described]}],
        "chats": [{"name": at["chat"], "about": at["about the chat"], "saved": True}],
    }
